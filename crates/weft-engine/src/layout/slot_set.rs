//! Sets of slots, with one bit per slot.

use weft_units::Slot;

/// Set of slots with numbers below 64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotSet(u64);

impl SlotSet {
    /// The empty set.
    pub const EMPTY: Self = Self(0);

    /// The set of the slots `0 .. count`.
    #[must_use]
    pub const fn first(count: u16) -> Self {
        if count >= 64 { Self(u64::MAX) } else { Self((1 << count) - 1) }
    }

    /// The set with one slot.
    #[must_use]
    pub const fn only(slot: Slot) -> Self {
        Self(1 << slot.0)
    }

    /// Adds a slot.
    pub fn insert(&mut self, slot: Slot) {
        self.0 |= 1 << slot.0;
    }

    /// Removes a slot.
    pub fn remove(&mut self, slot: Slot) {
        self.0 &= !(1 << slot.0);
    }

    /// Adds a slot if `member` is true, and removes it otherwise.
    pub fn set(&mut self, slot: Slot, member: bool) {
        if member { self.insert(slot) } else { self.remove(slot) }
    }

    /// Whether a slot is in the set.
    #[must_use]
    pub const fn contains(self, slot: Slot) -> bool {
        self.0 >> slot.0 & 1 == 1
    }

    /// Number of slots in the set.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Union of two sets.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Intersection of two sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Slots that are in this set but not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Slots of the set, highest first: the order in which md submits member requests.
    pub fn descending(self) -> impl Iterator<Item = Slot> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let slot = rest.checked_ilog2()?;
            rest ^= 1 << slot;
            Some(Slot(slot as u16))
        })
    }

    /// Slots of the set, lowest first.
    pub fn ascending(self) -> impl Iterator<Item = Slot> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            (rest != 0).then(|| {
                let slot = rest.trailing_zeros();
                rest &= rest - 1;
                Slot(slot as u16)
            })
        })
    }
}

impl FromIterator<Slot> for SlotSet {
    fn from_iter<I: IntoIterator<Item = Slot>>(slots: I) -> Self {
        let mut set = Self::EMPTY;
        slots.into_iter().for_each(|slot| set.insert(slot));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_orders_visit_every_slot_once() {
        let set: SlotSet = [Slot(0), Slot(3), Slot(63)].into_iter().collect();
        assert_eq!(set.descending().collect::<Vec<_>>(), [Slot(63), Slot(3), Slot(0)]);
        assert_eq!(set.ascending().collect::<Vec<_>>(), [Slot(0), Slot(3), Slot(63)]);
        assert_eq!(set.count(), 3);
        assert!(set.contains(Slot(3)) && !set.contains(Slot(4)));
        assert_eq!(SlotSet::first(64).count(), 64);
        assert_eq!(SlotSet::first(3).without(SlotSet::only(Slot(1))).count(), 2);
    }
}
