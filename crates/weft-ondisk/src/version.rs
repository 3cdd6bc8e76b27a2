//! Versions of the superblock, and the place of each version 1 superblock on a member.

use std::fmt;
use std::str::FromStr;
use weft_units::Sectors;

/// Size of the smallest member on which mdadm and weft look for a v1 superblock.
pub const MEMBER_SECTORS_MIN: Sectors = Sectors(24);

/// Minor version of a version 1 superblock: one of three places on a member. A superblock does not
/// store it; the place at which the superblock lies implies it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Minor {
    /// Near the end of the member, after the data.
    V1_0,
    /// At the start of the member.
    V1_1,
    /// 4 KiB after the start, out of the way of boot sectors.
    #[default]
    V1_2,
}

/// Version of the superblock, which determines its place on a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// In the last whole, aligned 64 KiB of the member.
    V0_90,
    /// Near the end of the member, after the data.
    V1_0,
    /// At the start of the member.
    V1_1,
    /// 4 KiB after the start of the member.
    V1_2,
}

/// Error for a text that names no version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("version: found {found:?}, expected 0.90, 1.0, 1.1 or 1.2")]
pub struct UnknownVersion {
    /// The text that was found.
    pub found: String,
}

impl Minor {
    /// All minor versions, in the order in which weft searches a member for them.
    pub const ALL: [Self; 3] = [Self::V1_0, Self::V1_1, Self::V1_2];

    /// Sector of the superblock on a member of this size; `None` if the member is too small.
    ///
    /// Source   1.0: at least 8 KiB before the end, rounded down to 4 KiB
    #[must_use]
    pub fn position(self, member_size: Sectors) -> Option<Sectors> {
        if member_size < MEMBER_SECTORS_MIN {
            return None;
        }
        Some(match self {
            Self::V1_0 => Sectors(member_size.0 - 16).round_down(Sectors(8)),
            Self::V1_1 => Sectors(0),
            Self::V1_2 => Sectors(8),
        })
    }
}

impl fmt::Display for Minor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::V1_0 => "1.0",
            Self::V1_1 => "1.1",
            Self::V1_2 => "1.2",
        })
    }
}

impl Version {
    /// All versions, in the order in which weft searches a member for them.
    pub const ALL: [Self; 4] = [Self::V1_0, Self::V1_1, Self::V1_2, Self::V0_90];

    /// Minor version of a version 1 superblock; `None` for 0.90.
    #[must_use]
    pub const fn minor(self) -> Option<Minor> {
        match self {
            Self::V0_90 => None,
            Self::V1_0 => Some(Minor::V1_0),
            Self::V1_1 => Some(Minor::V1_1),
            Self::V1_2 => Some(Minor::V1_2),
        }
    }
}

impl From<Minor> for Version {
    fn from(minor: Minor) -> Self {
        match minor {
            Minor::V1_0 => Self::V1_0,
            Minor::V1_1 => Self::V1_1,
            Minor::V1_2 => Self::V1_2,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.minor() {
            Some(minor) => minor.fmt(f),
            None => f.pad("0.90"),
        }
    }
}

impl FromStr for Version {
    type Err = UnknownVersion;

    fn from_str(text: &str) -> Result<Self, UnknownVersion> {
        let known = Self::ALL.into_iter().find(|version| version.to_string() == text);
        known.ok_or_else(|| UnknownVersion { found: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn superblocks_are_where_mdadm_looks_for_them() {
        for (member_size, position) in [
            (24, 8),
            (65536, 65520),
            (65537, 65520),
            (65543, 65520),
            (65544, 65528),
            (65551, 65528),
        ] {
            let position = Some(Sectors(position));
            assert_eq!(Minor::V1_0.position(Sectors(member_size)), position, "{member_size}");
        }
        assert_eq!(Minor::V1_1.position(Sectors(24)), Some(Sectors(0)));
        assert_eq!(Minor::V1_2.position(Sectors(24)), Some(Sectors(8)));
        for minor in Minor::ALL {
            assert_eq!(minor.position(Sectors(23)), None);
        }
        assert_eq!(Minor::V1_0.position(Sectors(u64::MAX)), Some(Sectors(u64::MAX - 23)));
    }
}
