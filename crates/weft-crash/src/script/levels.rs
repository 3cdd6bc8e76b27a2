//! Lists of the levels that are drawn; a level is drawn as often as its list names it.
//!
//! Seeds keep their meaning only while the lists stay as they are. All other properties of a level,
//! such as numbers of members and layouts, are read from its row of
//! [`LEVELS`](weft_ondisk::LEVELS).

use weft_ondisk::Level;

/// Levels with parity, for scripts and steady loads.
pub(crate) const PARITY: [Level; 4] = [Level::Raid4, Level::Raid5, Level::Raid5, Level::Raid6];

/// Levels with parity, for silent faults. Half are RAID 6, because only two parities tell which
/// strip is wrong.
pub(crate) const PARITY_LOCATED: [Level; 4] =
    [Level::Raid4, Level::Raid5, Level::Raid6, Level::Raid6];

/// Levels without parity, with and without redundancy.
pub(crate) const STRAIGHT: [Level; 6] =
    [Level::Raid0, Level::Linear, Level::Raid1, Level::Raid1, Level::Raid10, Level::Raid10];

/// Levels without parity that have redundancy.
pub(crate) const MIRRORS: [Level; 5] =
    [Level::Raid1, Level::Raid1, Level::Raid10, Level::Raid10, Level::Raid10];

/// Levels in which an array can lose two members, given enough members.
pub(crate) const LOSE_TWO: [Level; 5] =
    [Level::Raid1, Level::Raid1, Level::Raid10, Level::Raid10, Level::Raid6];

/// Small arrays with parity, on which the search of a small scope (`scope.rs`) runs scripts: level
/// and members.
pub(crate) const PARITY_SHAPES: [(Level, usize); 4] =
    [(Level::Raid4, 3), (Level::Raid5, 4), (Level::Raid6, 5), (Level::Raid5, 3)];

/// Small arrays without parity, on which the search of a small scope (`scope.rs`) runs scripts:
/// each level, and each kind of RAID 10.
pub(crate) const STRAIGHT_SHAPES: [(Level, usize, Option<u32>); 8] = [
    (Level::Raid1, 2, None),
    (Level::Raid10, 4, None),
    (Level::Raid10, 3, Some(0x201)),
    (Level::Raid1, 3, None),
    (Level::Raid10, 3, Some(0x1_0201)),
    (Level::Raid10, 3, None),
    (Level::Raid0, 2, None),
    (Level::Linear, 2, None),
];
