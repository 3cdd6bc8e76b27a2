//! RAID levels: the table of their properties, with the numbers and names of md.
//!
//! All crates read the same rows. A new level is a variant of [`Level`] and a row of [`LEVELS`];
//! the code that carries out its requests is the engine's.
//!
//! Source   md-raid.md §2.1, §5.1 and §5.2; md-ondisk.md §2

use std::fmt;
use std::str::FromStr;

use crate::chunk_rule::ChunkRule;
use crate::layout_id::{self, Layouts};

/// A RAID level.
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
    /// Striping with copies: each chunk is on several members.
    Raid10,
}

/// Redundancy of a level, which determines the members that may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redundancy {
    /// Copies of each chunk on some of the members.
    Copies,
    /// All data on each member.
    Mirror,
    /// No redundancy: each member has data of its own, and all of its size is used.
    None,
    /// This number of parity strips in a full stripe: P, or P and Q.
    Parity(u32),
}

/// Properties of a RAID level.
#[derive(Debug)]
pub struct LevelRow {
    /// RAID level that the row describes.
    pub level: Level,
    /// Number of the level in the `level` field of a superblock.
    pub code: i32,
    /// Name that mdadm prints.
    pub name: &'static str,
    /// Other names that mdadm accepts, beside the code.
    pub other_names: &'static [&'static str],
    /// Smallest `raid_disks`, missing members included. The largest depends on the version of the
    /// superblock.
    pub members_min: u32,
    /// Copies or parity that the level stores.
    pub redundancy: Redundancy,
    /// Rule for the chunk sizes that the level may have.
    pub chunk: ChunkRule,
    /// Layouts that the level may have.
    pub layouts: Layouts,
}

/// Rows of all levels, in the order of [`Level`], which is that of their codes.
pub static LEVELS: [LevelRow; 7] = [
    LevelRow {
        level: Level::Linear,
        code: -1,
        name: "linear",
        other_names: &[],
        members_min: 1,
        redundancy: Redundancy::None,
        chunk: ChunkRule::Rounding,
        layouts: Layouts::Ignored,
    },
    LevelRow {
        level: Level::Raid0,
        code: 0,
        name: "raid0",
        other_names: &["stripe"],
        members_min: 1,
        redundancy: Redundancy::None,
        chunk: ChunkRule::Multiple,
        layouts: Layouts::Zones,
    },
    LevelRow {
        level: Level::Raid1,
        code: 1,
        name: "raid1",
        other_names: &["mirror"],
        members_min: 1,
        redundancy: Redundancy::Mirror,
        chunk: ChunkRule::Unused,
        layouts: Layouts::Ignored,
    },
    LevelRow {
        level: Level::Raid4,
        code: 4,
        name: "raid4",
        other_names: &[],
        members_min: 2,
        redundancy: Redundancy::Parity(1),
        chunk: ChunkRule::PowerOfTwo,
        layouts: Layouts::Ignored,
    },
    LevelRow {
        level: Level::Raid5,
        code: 5,
        name: "raid5",
        other_names: &[],
        members_min: 2,
        redundancy: Redundancy::Parity(1),
        chunk: ChunkRule::PowerOfTwo,
        layouts: Layouts::Rotations(&layout_id::ROTATIONS_5),
    },
    LevelRow {
        level: Level::Raid6,
        code: 6,
        name: "raid6",
        other_names: &[],
        members_min: 4,
        redundancy: Redundancy::Parity(2),
        chunk: ChunkRule::PowerOfTwo,
        layouts: Layouts::Rotations(&layout_id::ROTATIONS_6),
    },
    LevelRow {
        level: Level::Raid10,
        code: 10,
        name: "raid10",
        other_names: &[],
        members_min: 2,
        redundancy: Redundancy::Copies,
        chunk: ChunkRule::PowerOfTwo,
        layouts: Layouts::Copies,
    },
];

/// Error for a text that names no level.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("level: found {found:?}, expected {} (or raid0 ... raid10)", Level::listed())]
pub struct UnknownLevel {
    /// The text that was found.
    pub found: String,
}

impl Level {
    /// Properties of the level.
    #[must_use]
    #[expect(clippy::indexing_slicing, reason = "each variant has a row; a test compares them")]
    pub const fn row(self) -> &'static LevelRow {
        &LEVELS[self as usize]
    }

    /// Every level, in the order of their codes.
    pub fn all() -> impl Iterator<Item = Self> + Clone {
        LEVELS.iter().map(|row| row.level)
    }

    /// Level of an on-disk code. `None` for multipath, faulty, containers and all other codes.
    #[must_use]
    pub fn from_code(code: i32) -> Option<Self> {
        Self::all().find(|level| level.code() == code)
    }

    /// On-disk code of the level.
    #[must_use]
    pub const fn code(self) -> i32 {
        self.row().code
    }

    /// Name that mdadm prints.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// Number of parity strips in a full stripe: P, or P and Q; 0 without parity.
    #[must_use]
    pub const fn parity_count(self) -> u32 {
        match self.row().redundancy {
            Redundancy::Parity(count) => count,
            Redundancy::Copies | Redundancy::Mirror | Redundancy::None => 0,
        }
    }

    /// Whether the level stores parity.
    #[must_use]
    pub const fn has_parity(self) -> bool {
        self.parity_count() > 0
    }

    /// Whether each sector of data is stored on several members, as copies and not as parity.
    #[must_use]
    pub const fn has_copies(self) -> bool {
        matches!(self.row().redundancy, Redundancy::Copies | Redundancy::Mirror)
    }

    /// Whether each member has all data, so that there are neither layouts nor chunks.
    #[must_use]
    pub const fn is_mirror(self) -> bool {
        matches!(self.row().redundancy, Redundancy::Mirror)
    }

    /// Whether the superblock's `size` gives the used part of each member. For levels without
    /// redundancy `data_size` gives it.
    #[must_use]
    pub const fn uses_size(self) -> bool {
        !matches!(self.row().redundancy, Redundancy::None)
    }

    /// Whether resync positions and bitmaps count sectors of the array, as for RAID10, instead of
    /// those of a member.
    #[must_use]
    pub const fn syncs_array(self) -> bool {
        matches!(self.row().redundancy, Redundancy::Copies)
    }

    /// Whether data is divided into chunks, so that a chunk size is needed.
    #[must_use]
    pub const fn is_striped(self) -> bool {
        self.row().chunk.is_needed()
    }

    /// Levels as users give them, for error texts: `linear, 0, 1, 4, 5, 6 or 10`.
    #[must_use]
    pub fn listed() -> String {
        list(|row| if row.code < 0 { row.name.to_owned() } else { row.code.to_string() })
    }

    /// Codes of all levels, for error texts: `-1 (linear), 0, 1, 4, 5, 6 or 10`.
    pub(crate) fn codes_listed() -> String {
        list(|row| match row.code {
            code if code < 0 => format!("{code} ({})", row.name),
            code => code.to_string(),
        })
    }
}

/// List of all levels for an error text; `text` formats each of them.
fn list(text: impl Fn(&LevelRow) -> String) -> String {
    let mut texts: Vec<String> = LEVELS.iter().map(text).collect();
    let last = texts.pop().unwrap_or_default();
    format!("{} or {last}", texts.join(", "))
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Level {
    type Err = UnknownLevel;

    fn from_str(text: &str) -> Result<Self, UnknownLevel> {
        let is_named = |row: &&LevelRow| {
            let is_code = row.code >= 0 && row.code.to_string() == text;
            is_code || row.name == text || row.other_names.contains(&text)
        };
        let row = LEVELS.iter().find(is_named);
        row.map(|row| row.level).ok_or_else(|| UnknownLevel { found: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_the_order_of_levels_and_codes() {
        for (row, place) in LEVELS.iter().zip(0..) {
            assert_eq!((row.level as usize, row.level.row().code), (place, row.code));
            assert!(row.members_min > row.level.parity_count());
            let unused = row.chunk == ChunkRule::Unused && row.layouts == Layouts::Ignored;
            assert_eq!(row.level.is_mirror(), unused);
        }
        assert!(LEVELS.is_sorted_by(|one, other| one.code < other.code));
        assert_eq!(Level::listed(), "linear, 0, 1, 4, 5, 6 or 10");
        assert_eq!(Level::codes_listed(), "-1 (linear), 0, 1, 4, 5, 6 or 10");
    }

    #[test]
    fn codes_and_names_are_read_back() {
        for level in Level::all() {
            assert_eq!(Level::from_code(level.code()), Some(level));
            assert_eq!(level.to_string().parse(), Ok(level));
        }
        for code in [-100, -5, -4, 2, 3, 7, 11, i32::MAX] {
            assert_eq!(Level::from_code(code), None);
        }
        for (text, level) in
            [("stripe", Level::Raid0), ("mirror", Level::Raid1), ("10", Level::Raid10)]
        {
            assert_eq!(text.parse(), Ok(level));
        }
        for text in ["raid7", "-1", "", "05"] {
            assert!(text.parse::<Level>().is_err(), "{text}");
        }
    }
}
