//! Table of levels: the RAID levels, with their members, layouts and parities.
//!
//! Geometry, `weft create`, the lab, the simulator and error texts read it.
//!
//! Source   md-raid.md §5.1 and §5.2

use weft_ondisk::Level;

/// Properties of a RAID level.
#[derive(Debug)]
pub struct LevelRow {
    /// RAID level that the row describes.
    pub level: Level,
    /// Smallest number of members, missing ones included.
    pub members_min: u16,
    /// Number of parity strips per full stripe, and so of members that an array can do without; 0
    /// for levels without parity.
    pub parities: u16,
    /// Layout numbers that md accepts for a parity level; empty if the kernel ignores the number.
    pub layouts: &'static [u32],
}

const RAID5: &[u32] = &[0, 1, 2, 3, 4, 5];
const RAID6: &[u32] = &[0, 1, 2, 3, 4, 5, 8, 9, 10, 16, 17, 18, 19, 20];

/// All levels, in ascending order.
pub static LEVELS: &[LevelRow] = &[
    without_parity(Level::Linear, 1),
    without_parity(Level::Raid0, 1),
    without_parity(Level::Raid1, 1),
    with_parity(Level::Raid4, 2, 1, &[]),
    with_parity(Level::Raid5, 2, 1, RAID5),
    with_parity(Level::Raid6, 4, 2, RAID6),
    without_parity(Level::Raid10, 2),
];

const fn without_parity(level: Level, members_min: u16) -> LevelRow {
    LevelRow { level, members_min, parities: 0, layouts: &[] }
}

const fn with_parity(
    level: Level,
    members_min: u16,
    parities: u16,
    layouts: &'static [u32],
) -> LevelRow {
    LevelRow { level, members_min, parities, layouts }
}

impl LevelRow {
    /// Row of the table for a level.
    #[must_use]
    pub fn of(level: Level) -> &'static Self {
        LEVELS.iter().find(|row| row.level == level).expect("every level has a row")
    }

    /// Whether an array of this level may have the layout number `layout`.
    #[must_use]
    pub fn has_layout(&self, layout: u32) -> bool {
        self.layouts.is_empty() || self.layouts.contains(&layout)
    }
}

/// Names of the levels with parity, as an error text lists them: `raid4, raid5 and raid6`.
pub(crate) fn with_parity_listed() -> String {
    let rows = LEVELS.iter().filter(|row| row.parities > 0);
    let names: Vec<&str> = rows.map(|row| row.level.name()).collect();
    match names.split_last() {
        Some((end, others)) if !others.is_empty() => format!("{} and {end}", others.join(", ")),
        _ => names.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_in_order_and_listed_as_people_write() {
        assert!(LEVELS.windows(2).all(|pair| pair[0].level < pair[1].level));
        assert!(LEVELS.iter().all(|row| row.members_min > row.parities));
        assert_eq!(with_parity_listed(), "raid4, raid5 and raid6");
        let legal = |level, layout| LevelRow::of(level).has_layout(layout);
        assert!(legal(Level::Raid4, 77) && legal(Level::Raid6, 20));
        assert!(!legal(Level::Raid5, 6) && !legal(Level::Raid6, 11));
    }
}
