//! RAID levels, with the numbers and names of md.

use std::fmt;
use std::str::FromStr;

/// A RAID level.
///
/// Source   `level` of a v1 superblock, byte 72; codes as in md's user-space header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Members are concatenated.
    Linear,
    /// Striping without redundancy.
    Raid0,
    /// Mirrors: each member has all data.
    Raid1,
    /// Striping with a member for parity.
    Raid4,
    /// Striping with rotating parity.
    Raid5,
    /// Striping with two rotating syndromes.
    Raid6,
    /// Striping over copies: each chunk has several.
    Raid10,
}

/// Text that names no level.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("level: found {found:?}, expected linear, 0, 1, 4, 5, 6 or 10 (or raid0 ... raid10)")]
pub struct UnknownLevel {
    /// The text that was found.
    pub found: String,
}

impl Level {
    /// Every level, in the order of their codes.
    pub const ALL: [Self; 7] = [
        Self::Linear,
        Self::Raid0,
        Self::Raid1,
        Self::Raid4,
        Self::Raid5,
        Self::Raid6,
        Self::Raid10,
    ];

    /// Level of an on-disk code. `None` for multipath, faulty, containers and all other codes.
    #[must_use]
    pub fn from_code(code: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.code() == code)
    }

    /// On-disk code of the level.
    #[must_use]
    pub const fn code(self) -> i32 {
        match self {
            Self::Linear => -1,
            Self::Raid0 => 0,
            Self::Raid1 => 1,
            Self::Raid4 => 4,
            Self::Raid5 => 5,
            Self::Raid6 => 6,
            Self::Raid10 => 10,
        }
    }

    /// Name that mdadm prints.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Raid0 => "raid0",
            Self::Raid1 => "raid1",
            Self::Raid4 => "raid4",
            Self::Raid5 => "raid5",
            Self::Raid6 => "raid6",
            Self::Raid10 => "raid10",
        }
    }

    /// Smallest `raid_disks` of an array of this level.
    #[must_use]
    pub const fn raid_disks_min(self) -> u32 {
        match self {
            Self::Linear | Self::Raid0 | Self::Raid1 => 1,
            Self::Raid4 | Self::Raid5 | Self::Raid10 => 2,
            Self::Raid6 => 4,
        }
    }

    /// Number of parity strips in a full stripe: P, or P and Q.
    #[must_use]
    pub const fn parity_count(self) -> u32 {
        match self {
            Self::Linear | Self::Raid0 | Self::Raid1 | Self::Raid10 => 0,
            Self::Raid4 | Self::Raid5 => 1,
            Self::Raid6 => 2,
        }
    }

    /// Whether `size` is the used part of each member. For the other levels `data_size` is.
    #[must_use]
    pub const fn uses_size(self) -> bool {
        !matches!(self, Self::Linear | Self::Raid0)
    }

    /// Whether data is divided into chunks, so that a chunk size is needed.
    #[must_use]
    pub const fn is_striped(self) -> bool {
        !matches!(self, Self::Linear | Self::Raid1)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Level {
    type Err = UnknownLevel;

    fn from_str(text: &str) -> Result<Self, UnknownLevel> {
        Ok(match text {
            "linear" => Self::Linear,
            "0" | "raid0" | "stripe" => Self::Raid0,
            "1" | "raid1" | "mirror" => Self::Raid1,
            "4" | "raid4" => Self::Raid4,
            "5" | "raid5" => Self::Raid5,
            "6" | "raid6" => Self::Raid6,
            "10" | "raid10" => Self::Raid10,
            other => return Err(UnknownLevel { found: other.to_owned() }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_are_read_back() {
        for level in Level::ALL {
            assert_eq!(Level::from_code(level.code()), Some(level));
            assert_eq!(level.to_string().parse(), Ok(level));
        }
        for code in [-100, -5, -4, 2, 3, 7, 11, i32::MAX] {
            assert_eq!(Level::from_code(code), None);
        }
        assert!("raid7".parse::<Level>().is_err());
    }
}
