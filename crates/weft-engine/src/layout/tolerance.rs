//! Tolerance of a layout: which members an array can lose.
//!
//! Tolerance depends on which slots are lost, not only on how many: RAID 10 survives two failures
//! in different mirrors, but not in the same one. With parity, any set of at least as many members
//! as a full stripe has data strips suffices.
//!
//! Source   md-raid.md §5 and §6.7 (md: `has_failed` of each personality)

use super::slot_set::SlotSet;

/// Rule that tells which sets of members an array can lose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tolerance {
    /// Parity: any `data_members` members suffice. Also RAID 0 and linear, which need all members.
    AnyOf {
        /// Number of data strips per full stripe; for RAID 0 and linear, number of slots.
        data_members: u16,
    },
    /// Mirrors: one member of each of these sets suffices. The members of a set hold the same
    /// chunks.
    OneOfEach(Box<[SlotSet]>),
}

impl Tolerance {
    /// Whether the members at `slots` suffice to reconstruct all data.
    #[inline]
    pub(crate) fn suffices(&self, slots: SlotSet) -> bool {
        match self {
            Self::AnyOf { data_members } => slots.count() >= u32::from(*data_members),
            Self::OneOfEach(sets) => sets.iter().all(|set| !set.and(slots).is_empty()),
        }
    }

    /// Whether an array of `slots` slots can lose at least one member.
    pub(crate) fn is_redundant(&self, slots: usize) -> bool {
        match self {
            Self::AnyOf { data_members } => slots > usize::from(*data_members),
            Self::OneOfEach(sets) => sets.iter().any(|set| set.count() > 1),
        }
    }

    /// Whether the members at `slots` hold redundant data.
    pub(crate) fn has_redundancy(&self, slots: SlotSet) -> bool {
        match self {
            Self::AnyOf { data_members } => slots.count() > u32::from(*data_members),
            Self::OneOfEach(sets) => sets.iter().any(|set| set.and(slots).count() > 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_ondisk::Level;
    use weft_units::{Sectors, Slot};

    use crate::layout::geometry::Geometry;
    use crate::layout::slot_set::SlotSet;

    #[test]
    fn parity_survives_as_many_members_as_it_has_parities_whichever_they_are() {
        for (level, layout, members, survives) in
            [(Level::Raid4, 0, 3, 1), (Level::Raid5, 2, 5, 1), (Level::Raid6, 2, 6, 2)]
        {
            let size = Sectors(1024);
            let geometry = Geometry::new(level, layout, members, Sectors(8), size).unwrap();
            let mut asked = 0;
            for failed in 0..1_u32 << members {
                let left = (0..members as u16).filter(|slot| failed >> slot & 1 == 0);
                let left: SlotSet = left.map(Slot).collect();
                let expected = failed.count_ones() <= survives;
                let tolerance = geometry.tolerance();
                assert_eq!(tolerance.suffices(left), expected, "{level}: {failed:b}");
                let redundant = failed.count_ones() < survives;
                assert_eq!(tolerance.has_redundancy(left), redundant, "{level}: {failed:b}");
                asked += 1;
            }
            assert_eq!(asked, 1 << members);
        }
    }
}
