//! Errors of metadata: structure, field, offset, found, expected.

use crate::{Features, Level, Uuid, Version};
use std::fmt;
use weft_units::Sectors;

/// A field of a structure: the start of each message.
///
/// Units    `byte` counts from the start of the structure, not of the member
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// The structure the field is in.
    pub structure: &'static str,
    /// The field, under the name md uses.
    pub field: &'static str,
    /// Offset of the field in its structure, bytes.
    pub byte: usize,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} at byte {}", self.structure, self.field, self.byte)
    }
}

/// Names a field of the `Raw` bytes of a `STRUCTURE`, with its place: both as the module says that
/// uses this.
macro_rules! at {
    ($field:ident) => {
        $crate::At {
            structure: STRUCTURE,
            field: stringify!($field),
            byte: std::mem::offset_of!(Raw, $field),
        }
    };
}
pub(crate) use at;

/// What may have become of the superblock of an image that has none.
pub const CUT_HAS_NONE: &str = "superblocks of versions 0.90 and 1.0 lie at the end, where an image \
                                that is cut has none: copy the rest too";

/// Why bytes are not a superblock that weft can believe. The caller prepends the member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SuperblockError {
    /// There is no superblock at any place where one could be.
    #[error(
        "no md superblock found (looked at sectors {}); name a member of an array; {CUT_HAS_NONE}",
        list(looked)
    )]
    Absent {
        /// Sectors at which superblocks were looked for.
        looked: Vec<Sectors>,
    },
    /// Two superblocks are legal, so that the member could belong to either array.
    #[error(
        "superblock: found version {first} of array {first_uuid} and version {second} of array \
             {second_uuid} on one member, {newest} being the newer one, expected one; \
             say which with --metadata, or erase the stale one"
    )]
    Ambiguous {
        /// Version of the one.
        first: Version,
        /// Array of the one.
        first_uuid: Uuid,
        /// Version of the other.
        second: Version,
        /// Array of the other.
        second_uuid: Uuid,
        /// Version of the array that was created later: the one that mdadm would take.
        newest: Version,
    },
    /// The stored sum is not that of the bytes.
    #[error(
        "{at}: found {stored:#010x}, expected {computed:#010x} from the other bytes; the \
             superblock is damaged: leave the member out, or restore the superblock from a copy"
    )]
    Checksum {
        /// `sb_csum`.
        at: At,
        /// The sum in the superblock.
        stored: u32,
        /// The sum of its bytes.
        computed: u32,
    },
    /// Features that exclude each other.
    #[error(
        "{at}: found {found}, expected no {rule}; \
             the superblock is damaged or from a newer md: leave the member out"
    )]
    Combination {
        /// `feature_map`.
        at: At,
        /// All features.
        found: Features,
        /// Rule that is broken.
        rule: &'static str,
    },
    /// Not a superblock at all.
    #[error("{at}: found {found:#010x}, expected 0xa92b4efc; there is no md superblock here")]
    Magic {
        /// `magic`.
        at: At,
        /// Value that was found.
        found: u32,
    },
    /// A feature or field that this release does not know; it may change what the rest means.
    #[error(
        "{at}: found {found}, expected 0; \
             made by a newer md: use a weft or kernel that knows it"
    )]
    Newer {
        /// `feature_map`, `pad0` or `pad3`.
        at: At,
        /// The unknown bits or bytes.
        found: String,
    },
    /// Numbers that cannot be added or multiplied: no device is that large.
    #[error(
        "{at}: found {found}, expected {sum} to fit 64 bits; \
             the superblock is damaged: leave the member out"
    )]
    Overflow {
        /// The field named first in `sum`.
        at: At,
        /// Value of the field.
        found: u64,
        /// The sum or product.
        sum: &'static str,
    },
    /// Two areas of the member share sectors.
    #[error(
        "{at}: found {area} at sectors {start}..{end}, expected it clear of {other} at sectors \
             {other_start}..{other_end}; writing would destroy one of them: leave the member out"
    )]
    Overlap {
        /// The field that places the area.
        at: At,
        /// The area.
        area: &'static str,
        /// First sector of the area on the member. Signed, for an area may lie before the member.
        start: i64,
        /// The sector after its last.
        end: i64,
        /// The area it runs into.
        other: &'static str,
        /// First sector of the other.
        other_start: i64,
        /// The sector after the last of the other.
        other_end: i64,
    },
    /// The superblock says that it belongs elsewhere.
    #[error(
        "{at}: found {found}, expected {expected}, where it was read; \
             superblock copied or member resized: restore the member's size, or leave it out"
    )]
    Position {
        /// `super_offset`.
        at: At,
        /// Sector that the superblock says it is at.
        found: Sectors,
        /// Sector that it is at.
        expected: Sectors,
    },
    /// A role that no member can have.
    #[error("{at}: found {found:#06x}, expected {}; \
             the role table is damaged: leave the member out", roles(*slots))]
    Role {
        /// An entry of `dev_roles`.
        at: At,
        /// The entry.
        found: u16,
        /// Number of slots of the array.
        slots: u32,
    },
    /// Fewer bytes than a superblock were given.
    #[error("superblock: found {found} bytes, expected 4096; read the whole block")]
    Short {
        /// Number that was found.
        found: usize,
    },
    /// The member has no room for metadata.
    #[error("member: found {found}, expected at least {expected}; too small to hold metadata")]
    TooSmall {
        /// The member's size.
        found: Sectors,
        /// The least size.
        expected: Sectors,
    },
    /// Data would be past the end of the member.
    #[error(
        "{at}: found {needs} needed, expected no more than the member has, {has}; \
             member truncated: restore its size from a copy, or leave it out"
    )]
    Truncated {
        /// The field that ends the area.
        at: At,
        /// Sectors the member must have.
        needs: Sectors,
        /// Sectors it has.
        has: Sectors,
    },
    /// A value that is outside what the field or the level allows.
    #[error(
        "{at}: found {found}, expected {expected}; \
             the superblock is damaged or not supported: leave the member out"
    )]
    Value {
        /// The field.
        at: At,
        /// Value that was found.
        found: String,
        /// Values that are legal.
        expected: String,
    },
    /// A version of the format that this crate does not read.
    #[error("{at}: found {found}, expected {expected}; use a program that knows this version")]
    Version {
        /// `major_version`, or `minor_version` of 0.90.
        at: At,
        /// The version.
        found: u32,
        /// Values that are known here.
        expected: &'static str,
    },
}

impl SuperblockError {
    /// The field at fault, where there is one.
    #[must_use]
    pub const fn at(&self) -> Option<At> {
        match self {
            Self::Absent { .. }
            | Self::Ambiguous { .. }
            | Self::Short { .. }
            | Self::TooSmall { .. } => None,
            Self::Checksum { at, .. }
            | Self::Combination { at, .. }
            | Self::Magic { at, .. }
            | Self::Newer { at, .. }
            | Self::Overflow { at, .. }
            | Self::Overlap { at, .. }
            | Self::Position { at, .. }
            | Self::Role { at, .. }
            | Self::Truncated { at, .. }
            | Self::Value { at, .. }
            | Self::Version { at, .. } => Some(*at),
        }
    }

    pub(crate) fn value(at: At, found: impl fmt::Display, expected: impl Into<String>) -> Self {
        Self::Value { at, found: found.to_string(), expected: expected.into() }
    }

    pub(crate) fn raid_disks(at: At, found: u32, level: Level, most: u32) -> Self {
        Self::value(at, found, format!("{}..={most} for {level}", level.raid_disks_min()))
    }
}

fn list(sectors: &[Sectors]) -> String {
    sectors.iter().map(|at| at.0.to_string()).collect::<Vec<_>>().join(", ")
}

fn roles(slots: u32) -> String {
    format!("a slot below {slots}, 0xfffd (journal), 0xfffe (faulty) or 0xffff (spare)")
}

/// Why a bitmap, a log or a journal cannot be believed. The caller prepends the member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The stored sum is not that of the bytes.
    #[error(
        "{at}: found {stored:#010x}, expected {computed:#010x} from the other bytes; {}",
        way_out(at)
    )]
    Checksum {
        /// The sum.
        at: At,
        /// Checksum as it is stored.
        stored: u32,
        /// Checksum of the bytes.
        computed: u32,
    },
    /// Not the structure at all.
    #[error("{at}: found {found:#010x}, expected {expected:#010x}; {}", way_out(at))]
    Magic {
        /// `magic`.
        at: At,
        /// Value that was found.
        found: u32,
        /// Value that it begins with.
        expected: u32,
    },
    /// Part of another array, or of none.
    #[error("{at}: found {found}, expected {expected}, that of the array; {}", way_out(at))]
    OtherArray {
        /// The uuid, or what is made of it.
        at: At,
        /// UUID that was found.
        found: String,
        /// UUID that was expected.
        expected: String,
    },
    /// Fewer bytes than the structure has.
    #[error("{at}: found {found} bytes, expected {expected}; read all of it")]
    Short {
        /// Field where the structure begins.
        at: At,
        /// Number that was found.
        found: usize,
        /// Number that is needed.
        expected: usize,
    },
    /// A value outside what the field allows.
    #[error("{at}: found {found}, expected {expected}; {}", way_out(at))]
    Value {
        /// The field.
        at: At,
        /// Value that was found.
        found: String,
        /// Values that are legal.
        expected: String,
    },
}

impl LogError {
    /// The field at fault.
    #[must_use]
    pub const fn at(&self) -> At {
        match self {
            Self::Checksum { at, .. }
            | Self::Magic { at, .. }
            | Self::OtherArray { at, .. }
            | Self::Short { at, .. }
            | Self::Value { at, .. } => *at,
        }
    }

    pub(crate) fn value(at: At, found: impl fmt::Display, expected: impl Into<String>) -> Self {
        Self::Value { at, found: found.to_string(), expected: expected.into() }
    }
}

/// Advice for going on without the structure.
fn way_out(at: &At) -> &'static str {
    match at.structure {
        "bitmap" => "without it all of a dirty array is resynced",
        "bad-block log" => "nobody knows which blocks are bad: leave the member out",
        "partial parity log" => "without it the array stays dirty and is resynced",
        _ => "let the kernel replay the journal, or read the array with its risks",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field of each structure, its message, and the way out at its end.
    #[test]
    fn a_damaged_log_names_its_field_and_the_way_out() {
        for (structure, way_out) in [
            ("bitmap", "without it all of a dirty array is resynced"),
            ("bad-block log", "nobody knows which blocks are bad: leave the member out"),
            ("partial parity log", "without it the array stays dirty and is resynced"),
            ("journal", "let the kernel replay the journal, or read the array with its risks"),
        ] {
            let at = At { structure, field: "magic", byte: 4 };
            let error = LogError::value(at, 1, "2");
            let expected = format!("{structure} magic at byte 4: found 1, expected 2; {way_out}");
            assert_eq!((error.to_string(), error.at()), (expected, at));
        }
    }

    #[test]
    fn a_damaged_superblock_names_its_field_where_there_is_one() {
        let at = At { structure: "superblock", field: "raid_disks", byte: 92 };
        let error = SuperblockError::raid_disks(at, 1, Level::Raid6, 384);
        let message = error.to_string();
        assert!(message.starts_with("superblock raid_disks at byte 92: found 1, expected 4..=384"));
        assert_eq!(error.at(), Some(at));
        let absent = SuperblockError::Absent { looked: vec![Sectors(8), Sectors(0)] };
        assert!(absent.to_string().contains("(looked at sectors 8, 0)"), "{absent}");
        assert_eq!(absent.at(), None);
        let role = SuperblockError::Role { at, found: 0xff00, slots: 4 }.to_string();
        assert!(role.contains("a slot below 4, 0xfffd (journal)"), "{role}");
    }
}
