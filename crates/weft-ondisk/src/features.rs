//! Features of a version 1 superblock. A reader that does not know one of them must not use the
//! superblock.

use std::fmt;

/// Bits of `feature_map`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features(pub u32);

/// Reason why this release does not write to an array although it understands the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    /// Name of the feature, as in [`Features`], or of the field.
    pub name: &'static str,
    /// Description of the cause, for a message.
    pub what: &'static str,
}

impl Features {
    /// The members have a write-intent bitmap.
    pub const BITMAP: Self = Self(0x0001);
    /// The member is valid only below `recovery_offset`.
    pub const RECOVERY: Self = Self(0x0002);
    /// A reshape is in progress.
    pub const RESHAPE: Self = Self(0x0004);
    /// The bad-block log is not empty.
    pub const BADBLOCKS: Self = Self(0x0008);
    /// The member is replacing another one of the same slot.
    pub const REPLACEMENT: Self = Self(0x0010);
    /// A reshape that does not change the number of members runs backwards.
    pub const RESHAPE_BACK: Self = Self(0x0020);
    /// The reshape also moves the data.
    pub const NEW_OFFSET: Self = Self(0x0040);
    /// Only chunks with their bit set in the write-intent bitmap have to be recovered.
    pub const RECOVERY_BITMAP: Self = Self(0x0080);
    /// The array is clustered: several hosts use it at once.
    pub const CLUSTERED: Self = Self(0x0100);
    /// The array has a RAID4/5/6 journal.
    pub const JOURNAL: Self = Self(0x0200);
    /// Each member has one partial parity log.
    pub const PPL: Self = Self(0x0400);
    /// Each member has a ring of partial parity logs.
    pub const MULTI_PPL: Self = Self(0x0800);
    /// `layout` is meaningful for RAID0.
    pub const RAID0_LAYOUT: Self = Self(0x1000);

    const NAMED: [(Self, &'static str); 13] = [
        (Self::BITMAP, "BITMAP"),
        (Self::RECOVERY, "RECOVERY"),
        (Self::RESHAPE, "RESHAPE"),
        (Self::BADBLOCKS, "BADBLOCKS"),
        (Self::REPLACEMENT, "REPLACEMENT"),
        (Self::RESHAPE_BACK, "RESHAPE_BACK"),
        (Self::NEW_OFFSET, "NEW_OFFSET"),
        (Self::RECOVERY_BITMAP, "RECOVERY_BITMAP"),
        (Self::CLUSTERED, "CLUSTERED"),
        (Self::JOURNAL, "JOURNAL"),
        (Self::PPL, "PPL"),
        (Self::MULTI_PPL, "MULTI_PPL"),
        (Self::RAID0_LAYOUT, "RAID0_LAYOUT"),
    ];

    /// Features that weft understands but does not keep up to date. An array with one of them is
    /// not written.
    ///
    /// A bitmap is not in the list: whether an array with a bitmap may be written depends on the
    /// bitmap, see [`crate::Bitmap::may_be_kept`]. A bad-block log is not in the list either; it
    /// prevents writing only if its unit is not a sector. A replacement does not prevent writing:
    /// while its original is present, weft fills the replacement further or leaves it out, and
    /// otherwise the replacement is an ordinary member.
    const UNWRITABLE: [(Self, &'static str); 5] = [
        (Self::RESHAPE, "a reshape under way"),
        (Self::CLUSTERED, "an array shared by a cluster"),
        (Self::JOURNAL, "a journal member"),
        (Self::PPL, "a partial parity log"),
        (Self::MULTI_PPL, "a ring of partial parity logs"),
    ];

    /// Whether all bits of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any bit of `other` is set.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Union of both sets of features.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Sets the bits of `other`.
    pub const fn insert(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Clears the bits of `other`.
    pub const fn remove(&mut self, other: Self) {
        self.0 &= !other.0;
    }

    /// Set bits for which [`Features`] has no constant.
    #[must_use]
    pub fn unknown(self) -> Self {
        Self::NAMED.iter().fold(self, |rest, (feature, _)| Self(rest.0 & !feature.0))
    }

    /// Features of the set that prevent this release from writing.
    pub(crate) fn unwritable(self) -> Vec<Reason> {
        Self::UNWRITABLE
            .into_iter()
            .filter(|(feature, _)| self.contains(*feature))
            .map(|(feature, what)| Reason { name: feature.first_name(), what })
            .collect()
    }

    fn first_name(self) -> &'static str {
        let named = Self::NAMED.iter().find(|(feature, _)| self.intersects(*feature));
        named.map_or("unknown", |(_, name)| name)
    }
}

/// Format: the number, and the names of the set bits: `0x801 (BITMAP, MULTI_PPL)`.
impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)?;
        let named = Self::NAMED.iter().filter(|(feature, _)| self.contains(*feature));
        let names: Vec<&str> = named.map(|(_, name)| *name).collect();
        if names.is_empty() { Ok(()) } else { write!(f, " ({})", names.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_named() {
        let both = Features::BITMAP.with(Features::RESHAPE);
        assert_eq!((both, both.with(Features::RESHAPE)), (Features(5), Features(5)));
        let mut features = Features::BITMAP.with(Features::MULTI_PPL);
        assert_eq!(features.to_string(), "0x801 (BITMAP, MULTI_PPL)");
        features.remove(Features::BITMAP);
        features.insert(Features(0x4000));
        assert_eq!(features.to_string(), "0x4800 (MULTI_PPL)");
        assert_eq!(features.unknown(), Features(0x4000));
        assert_eq!(Features(0x1fff).unknown(), Features(0));
        assert_eq!(Features::default().to_string(), "0x0");
    }
}
