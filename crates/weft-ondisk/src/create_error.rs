//! Errors of arrays that cannot be created: field, found, expected.

use crate::{Level, Minor, Redundancy, SuperblockError};
use weft_units::Sectors;

/// Reasons why an array cannot be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The level, or the room on the members, does not allow the bitmap.
    #[error("bitmap: found {found}, expected {expected}")]
    Bitmap {
        /// The bitmap that was asked for, in words.
        found: String,
        /// Legal bitmaps, in words.
        expected: String,
    },
    /// The level does not allow the chunk.
    #[error("chunk: found {found}, expected {expected}")]
    Chunk {
        /// The chunk that was asked for.
        found: Sectors,
        /// Legal chunks, in words.
        expected: &'static str,
    },
    /// The data offset leaves no room for the superblock, or is not 0 for version 1.0.
    #[error("data offset: found {found}, expected {} {least} for version {minor}",
        if *minor == Minor::V1_0 { "only" } else { "at least" })]
    DataOffset {
        /// The offset that was asked for.
        found: Sectors,
        /// Smallest legal offset.
        least: Sectors,
        /// Version of the superblock.
        minor: Minor,
    },
    /// The planned superblock is not legal: a bug, if all other checks passed.
    #[error("planned {0}")]
    Illegal(#[from] SuperblockError),
    /// The level or the number of members does not allow the layout.
    #[error("layout: found {}, expected {} with {raid_disks} members",
        level.row().layouts.name(*found).unwrap_or_else(|| format!("{found:#x}")),
        match level.row().redundancy {
            Redundancy::Copies => {
                "2 or more copies of a chunk, each on a member of its own,".to_owned()
            }
            _ => format!("one of {level}"),
        })]
    Layout {
        /// The layout that was asked for.
        found: u32,
        /// RAID level, which does not have this layout.
        level: Level,
        /// Number of slots.
        raid_disks: usize,
    },
    /// More slots are missing than the level tolerates.
    #[error("missing members: found {found}, expected at most {most} for {level}{}",
        if level.row().redundancy == Redundancy::Copies { " that hold the same chunk" } else { "" })]
    Missing {
        /// Number of missing members.
        found: usize,
        /// Largest number of members that may be missing; for RAID10, of those that hold the same
        /// chunk.
        most: usize,
        /// RAID level, which tolerates `most` missing members.
        level: Level,
    },
    /// The name is too long.
    #[error("name: found {found} bytes, expected at most 32")]
    Name {
        /// Length of the name in bytes.
        found: usize,
    },
    /// There are too few or too many slots.
    #[error("raid devices: found {found}, expected {least}..={most} for {level}")]
    RaidDisks {
        /// Number of slots that were asked for.
        found: usize,
        /// Smallest legal number of slots.
        least: usize,
        /// Largest legal number of slots.
        most: usize,
        /// RAID level, which allows these numbers of slots.
        level: Level,
    },
    /// The size is too small, or was given for RAID0 or linear, which use all of each member.
    #[error("size: found {found}, expected {expected}")]
    Size {
        /// The size that was asked for.
        found: Sectors,
        /// Legal sizes, in words.
        expected: String,
    },
    /// A level without redundancy has no use for spares.
    #[error("spares: found {found}, expected 0 for {level}")]
    Spares {
        /// Number of spares that were asked for.
        found: usize,
        /// RAID level, which has no redundancy.
        level: Level,
    },
    /// The array would have more bytes than a Linux block device can have.
    #[error(
        "data of a member: found {found}, expected at most {most}, for an array ends below 8 EiB; \
             set a smaller size"
    )]
    TooLarge {
        /// Data of each member that was asked for.
        found: Sectors,
        /// Largest legal data of each member.
        most: Sectors,
    },
    /// A member is too small.
    #[error("member {member}: found {found}, expected at least {expected} for data and metadata")]
    TooSmall {
        /// Position in the list of members, from 0.
        member: usize,
        /// Size that the member has.
        found: Sectors,
        /// Smallest size that is needed.
        expected: Sectors,
    },
}
