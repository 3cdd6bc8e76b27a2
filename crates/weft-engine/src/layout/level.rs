//! Table of levels: the RAID levels that are served, with their members, layouts and parities.
//!
//! Geometry, `weft create`, the lab, the simulator and error texts read it.
//!
//! Source   md-raid.md §5.1 and §5.2

use weft_ondisk::Level;

/// A level that is served.
#[derive(Debug)]
pub struct LevelRow {
    /// The level.
    pub level: Level,
    /// Fewest members of an array, missing ones included.
    pub members_min: u16,
    /// Parity strips per full stripe: members that an array can do without.
    pub parities: u16,
    /// md's numbers of its layouts; empty where the kernel ignores the number.
    pub layouts: &'static [u32],
}

/// Every level that is served, in order.
pub static LEVELS: &[LevelRow] = &[
    LevelRow { level: Level::Raid4, members_min: 2, parities: 1, layouts: &[] },
    LevelRow { level: Level::Raid5, members_min: 2, parities: 1, layouts: &[0, 1, 2, 3, 4, 5] },
    LevelRow {
        level: Level::Raid6,
        members_min: 4,
        parities: 2,
        layouts: &[0, 1, 2, 3, 4, 5, 8, 9, 10, 16, 17, 18, 19, 20],
    },
];

impl LevelRow {
    /// The row of a level; `None` if this release does not serve it.
    #[must_use]
    pub fn of(level: Level) -> Option<&'static Self> {
        LEVELS.iter().find(|row| row.level == level)
    }

    /// Whether arrays of this level may have a layout of md's number.
    #[must_use]
    pub fn has_layout(&self, layout: u32) -> bool {
        self.layouts.is_empty() || self.layouts.contains(&layout)
    }
}

/// The levels that are served, as an error text lists them: `raid4, raid5 or raid6` with the
/// levels' names and `or`.
pub fn listed<T: ToString>(name: impl Fn(Level) -> T, last: &str) -> String {
    let names: Vec<String> = LEVELS.iter().map(|row| name(row.level).to_string()).collect();
    match names.split_last() {
        Some((end, others)) if !others.is_empty() => {
            format!("{} {last} {end}", others.join(", "))
        }
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
        assert_eq!(listed(Level::name, "and"), "raid4, raid5 and raid6");
        assert_eq!(listed(Level::code, "or"), "4, 5 or 6");
        assert!(LevelRow::of(Level::Raid1).is_none());
        let legal = |level, layout| LevelRow::of(level).unwrap().has_layout(layout);
        assert!(legal(Level::Raid4, 77) && legal(Level::Raid6, 20));
        assert!(!legal(Level::Raid5, 6) && !legal(Level::Raid6, 11));
    }
}
