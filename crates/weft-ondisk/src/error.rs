//! Errors of metadata: structure, field, offset, found, expected.

use crate::{Features, Level, Uuid, Version};
use std::fmt;
use weft_units::Sectors;

/// Field of a structure, with which each message starts.
///
/// Units    `byte` counts from the start of the structure, not of the member
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// Name of the structure.
    pub structure: &'static str,
    /// Name that md gives the field.
    pub field: &'static str,
    /// Offset of the field in its structure, in bytes.
    pub byte: usize,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} at byte {}", self.structure, self.field, self.byte)
    }
}

/// Names a field of `Raw` with its byte offset. The module that uses the macro defines `Raw` and
/// `STRUCTURE`.
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

/// Explanation for error texts why an image that was cut off may have no superblock.
pub const CUT_HAS_NONE: &str = "superblocks of versions 0.90 and 1.0 lie at the end, where an image \
                                that is cut has none: copy the rest too";

/// Reasons why bytes are not a valid superblock. The message does not name the member; the caller
/// adds its name in front.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SuperblockError {
    /// There is no superblock at any possible place.
    #[error(
        "no md superblock found (looked at sectors {}); name a member of an array; {CUT_HAS_NONE}",
        list(looked)
    )]
    Absent {
        /// Sectors at which a superblock was looked for.
        looked: Vec<Sectors>,
    },
    /// Two superblocks are legal and name different arrays, so the member could belong to either.
    #[error(
        "superblock: found version {first} of array {first_uuid} and version {second} of array \
             {second_uuid} on one member, {newest} being the newer one, expected one; \
             say which with --metadata, or erase the stale one"
    )]
    Ambiguous {
        /// Version of the first superblock.
        first: Version,
        /// UUID of the array that the first superblock names.
        first_uuid: Uuid,
        /// Version of the second superblock.
        second: Version,
        /// UUID of the array that the second superblock names.
        second_uuid: Uuid,
        /// Version of the superblock with the later creation time: the one that mdadm would use.
        newest: Version,
    },
    /// The stored checksum differs from the checksum computed over the other bytes.
    #[error(
        "{at}: found {stored:#010x}, expected {computed:#010x} from the other bytes; the \
             superblock is damaged: leave the member out, or restore the superblock from a copy"
    )]
    Checksum {
        /// Field at fault: `sb_csum`.
        at: At,
        /// Checksum that is stored.
        stored: u32,
        /// Checksum of the bytes that were read.
        computed: u32,
    },
    /// The superblock has features that exclude each other.
    #[error(
        "{at}: found {found}, expected no {rule}; \
             the superblock is damaged or from a newer md: leave the member out"
    )]
    Combination {
        /// Field at fault: `feature_map`.
        at: At,
        /// All features of the superblock.
        found: Features,
        /// Rule that the features break, in words.
        rule: &'static str,
    },
    /// The block does not have the magic of a superblock.
    #[error("{at}: found {found:#010x}, expected 0xa92b4efc; there is no md superblock here")]
    Magic {
        /// Field at fault: `magic`.
        at: At,
        /// Number that is in place of the magic.
        found: u32,
    },
    /// The superblock uses a feature or field that this release does not know; it may change the
    /// meaning of the rest.
    #[error(
        "{at}: found {found}, expected 0; \
             made by a newer md: use a weft or kernel that knows it"
    )]
    Newer {
        /// Field at fault: `feature_map`, `pad0` or `pad3`.
        at: At,
        /// The unknown bits or bytes, as text.
        found: String,
    },
    /// The sum or product of fields overflows: no device is that large.
    #[error(
        "{at}: found {found}, expected {sum} to fit 64 bits; \
             the superblock is damaged: leave the member out"
    )]
    Overflow {
        /// First of the fields that are added or multiplied.
        at: At,
        /// Value that the field has.
        found: u64,
        /// Sum or product that overflows, in words.
        sum: &'static str,
    },
    /// Two areas of the member share sectors.
    #[error(
        "{at}: found {area} at sectors {start}..{end}, expected it clear of {other} at sectors \
             {other_start}..{other_end}; writing would destroy one of them: leave the member out"
    )]
    Overlap {
        /// The field that determines the place of the area.
        at: At,
        /// Name of the area.
        area: &'static str,
        /// First sector of the area on the member. Signed, because an area may lie before the
        /// member.
        start: i64,
        /// End of the area, exclusive.
        end: i64,
        /// Name of the area that is overlapped.
        other: &'static str,
        /// First sector of the other area.
        other_start: i64,
        /// End of the other area, exclusive.
        other_end: i64,
    },
    /// The superblock was found at another sector than its `super_offset` names.
    #[error(
        "{at}: found {found}, expected {expected}, where it was read; \
             superblock copied or member resized: restore the member's size, or leave it out"
    )]
    Position {
        /// Field at fault: `super_offset`.
        at: At,
        /// Sector at which the superblock says that it lies.
        found: Sectors,
        /// Sector at which the superblock was read.
        expected: Sectors,
    },
    /// An entry of the role table has a code that no member can have.
    #[error("{at}: found {found:#06x}, expected {}; \
             the role table is damaged: leave the member out", roles(*slots))]
    Role {
        /// Field at fault: an entry of `dev_roles`.
        at: At,
        /// Value that the entry has.
        found: u16,
        /// Number of slots of the array.
        slots: u32,
    },
    /// Fewer bytes were given than a superblock has.
    #[error("superblock: found {found} bytes, expected 4096; read the whole block")]
    Short {
        /// Number of bytes that were given.
        found: usize,
    },
    /// The member is too small for metadata.
    #[error("member: found {found}, expected at least {expected}; too small to hold metadata")]
    TooSmall {
        /// Size that the member has.
        found: Sectors,
        /// Smallest size of a member.
        expected: Sectors,
    },
    /// The data, or another area, would reach beyond the end of the member.
    #[error(
        "{at}: found {needs} needed, expected no more than the member has, {has}; \
             member truncated: restore its size from a copy, or leave it out"
    )]
    Truncated {
        /// The field that determines the end of the area.
        at: At,
        /// Sectors that the member must have.
        needs: Sectors,
        /// Sectors that the member has.
        has: Sectors,
    },
    /// A value is outside the range that the field or the level allows.
    #[error(
        "{at}: found {found}, expected {expected}; \
             the superblock is damaged or not supported: leave the member out"
    )]
    Value {
        /// Field at fault.
        at: At,
        /// Value that the field has, as text.
        found: String,
        /// Legal values, in words.
        expected: String,
    },
    /// The version of the format is not supported by this crate.
    #[error("{at}: found {found}, expected {expected}; use a program that knows this version")]
    Version {
        /// Field at fault: `major_version`, or `minor_version` of 0.90.
        at: At,
        /// Version that was found.
        found: u32,
        /// Versions that are supported, in words.
        expected: &'static str,
    },
}

impl SuperblockError {
    /// Field at fault; `None` if the error is not in one field.
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
        Self::value(at, found, format!("{}..={most} for {level}", level.row().members_min))
    }
}

fn list(sectors: &[Sectors]) -> String {
    sectors.iter().map(|at| at.0.to_string()).collect::<Vec<_>>().join(", ")
}

fn roles(slots: u32) -> String {
    format!("a slot below {slots}, 0xfffd (journal), 0xfffe (faulty) or 0xffff (spare)")
}

/// Reasons why a bitmap, a log or a journal cannot be trusted. The message does not name the
/// member; the caller adds its name in front.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The stored checksum differs from the checksum computed over the other bytes.
    #[error(
        "{at}: found {stored:#010x}, expected {computed:#010x} from the other bytes; {}",
        way_out(at)
    )]
    Checksum {
        /// Field with the checksum.
        at: At,
        /// Checksum that is stored.
        stored: u32,
        /// Checksum of the bytes that were read.
        computed: u32,
    },
    /// The block does not begin with the magic of the structure.
    #[error("{at}: found {found:#010x}, expected {expected:#010x}; {}", way_out(at))]
    Magic {
        /// Field at fault: `magic`.
        at: At,
        /// Number that is in place of the magic.
        found: u32,
        /// Magic that the structure begins with.
        expected: u32,
    },
    /// The structure belongs to another array, or to none.
    #[error("{at}: found {found}, expected {expected}, that of the array; {}", way_out(at))]
    OtherArray {
        /// The field with the UUID, or with a value derived from it.
        at: At,
        /// UUID, or derived value, that was found.
        found: String,
        /// UUID, or derived value, that was expected.
        expected: String,
    },
    /// Fewer bytes were given than the structure has.
    #[error("{at}: found {found} bytes, expected {expected}; read all of it")]
    Short {
        /// First field of the structure.
        at: At,
        /// Number of bytes that were given.
        found: usize,
        /// Number of bytes that are needed.
        expected: usize,
    },
    /// A value is outside the range that the field allows.
    #[error("{at}: found {found}, expected {expected}; {}", way_out(at))]
    Value {
        /// Field at fault.
        at: At,
        /// Value that the field has, as text.
        found: String,
        /// Legal values, in words.
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

/// Advice on how to go on without the damaged structure that `at` names.
fn way_out(at: &At) -> &'static str {
    match at.structure {
        "bitmap" => "without it all of a dirty array is resynced",
        "bad-block log" => "it is not known which blocks are bad: leave the member out",
        "partial parity log" => "without it the array stays dirty and is resynced",
        _ => "let the kernel replay the journal, or read the array with its risks",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field of each structure, its message, and the advice at its end.
    #[test]
    fn a_damaged_log_names_its_field_and_the_way_out() {
        for (structure, way_out) in [
            ("bitmap", "without it all of a dirty array is resynced"),
            ("bad-block log", "it is not known which blocks are bad: leave the member out"),
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
