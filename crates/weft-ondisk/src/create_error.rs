//! Errors of arrays that cannot be made: field, found, expected.

use crate::{Level, Minor, SuperblockError, layout_id};
use weft_units::Sectors;

/// Reasons why there can be no such array.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// A bitmap that the level or the members have no room for.
    #[error("bitmap: found {found}, expected {expected}")]
    Bitmap {
        /// The bitmap.
        found: String,
        /// What is legal.
        expected: String,
    },
    /// A chunk that the level cannot have.
    #[error("chunk: found {found}, expected {expected}")]
    Chunk {
        /// The chunk.
        found: Sectors,
        /// Values that are legal.
        expected: &'static str,
    },
    /// A data offset that leaves no room for the superblock, or any but 0 for version 1.0.
    #[error("data offset: found {found}, expected {} {least} for version {minor}",
        if *minor == Minor::V1_0 { "only" } else { "at least" })]
    DataOffset {
        /// The offset asked for.
        found: Sectors,
        /// The least one.
        least: Sectors,
        /// The version.
        minor: Minor,
    },
    /// The planned superblock is not legal: a bug if all else was checked.
    #[error("planned {0}")]
    Illegal(#[from] SuperblockError),
    /// A layout that the level or the number of members does not allow.
    #[error("layout: found {}, expected {} with {raid_disks} members",
        layout_id::name(*level, *found).unwrap_or_else(|| format!("{found:#x}")),
        match level {
            Level::Raid10 => "2 or more copies of a chunk, each on a member of its own,".to_owned(),
            _ => format!("one of {level}"),
        })]
    Layout {
        /// The layout.
        found: u32,
        /// The level.
        level: Level,
        /// Number of slots.
        raid_disks: usize,
    },
    /// More slots are missing than the level can do without.
    #[error("missing members: found {found}, expected at most {most} for {level}{}",
        if *level == Level::Raid10 { " that hold the same chunk" } else { "" })]
    Missing {
        /// Number of missing members.
        found: usize,
        /// Number that may be missing.
        most: usize,
        /// The level.
        level: Level,
    },
    /// A name that does not fit.
    #[error("name: found {found} bytes, expected at most 32")]
    Name {
        /// Its length.
        found: usize,
    },
    /// Too few or too many slots.
    #[error("raid devices: found {found}, expected {least}..={most} for {level}")]
    RaidDisks {
        /// Number of members.
        found: usize,
        /// The least number.
        least: usize,
        /// The greatest number.
        most: usize,
        /// The level.
        level: Level,
    },
    /// A size that is too small, or one for RAID0 or linear, which use all of each member.
    #[error("size: found {found}, expected {expected}")]
    Size {
        /// The size.
        found: Sectors,
        /// Values that are legal.
        expected: String,
    },
    /// A level without redundancy has no use for spares.
    #[error("spares: found {found}, expected 0 for {level}")]
    Spares {
        /// Number of members.
        found: usize,
        /// The level.
        level: Level,
    },
    /// An array of more bytes than a Linux block device can have.
    #[error(
        "data of a member: found {found}, expected at most {most}, for an array ends below 8 EiB; \
             set a smaller size"
    )]
    TooLarge {
        /// Data of each member.
        found: Sectors,
        /// The most.
        most: Sectors,
    },
    /// A member that is too small.
    #[error("member {member}: found {found}, expected at least {expected} for data and metadata")]
    TooSmall {
        /// Position in the list of members, from 0.
        member: usize,
        /// Sectors it has.
        found: Sectors,
        /// Sectors it needs.
        expected: Sectors,
    },
}
