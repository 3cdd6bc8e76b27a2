//! Sparse ordered map: values by number, which are found by hash and walked in ascending order.
//!
//! A lookup of one number is a search in a hash map. The order is kept beside it, in a B-tree of
//! bitmaps of 64 numbers each, which changes only when a value is inserted or removed. Thus a page
//! that is written again and again costs no search of a tree: with this map instead of B-trees of
//! pages, a write that stays in a write-back cache takes 2,664 instructions instead of 3,304
//! (`cargo xtask instructions`).
//!
//! The hash has no random key, and no result depends on the order of the hash table.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hash::Hasher;
use std::ops::Range;

use hashbrown::HashTable;
use rustc_hash::FxHasher;

/// Values by number. See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct Sparse<V> {
    values: HashTable<(u64, V)>,
    /// Bitmaps of the numbers that have values, 64 numbers each, by number divided by 64. There is
    /// no empty bitmap.
    groups: BTreeMap<u64, u64>,
}

impl<V> Default for Sparse<V> {
    fn default() -> Self {
        Self { values: HashTable::new(), groups: BTreeMap::new() }
    }
}

impl<V> Sparse<V> {
    #[inline]
    pub(crate) fn get(&self, number: u64) -> Option<&V> {
        self.values.find(hash(number), |entry| entry.0 == number).map(|entry| &entry.1)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut V> {
        let entry = self.values.find_mut(hash(number), |entry| entry.0 == number);
        entry.map(|entry| &mut entry.1)
    }

    /// Value of `number`, which is inserted from `new` if there is none.
    #[inline]
    pub(crate) fn get_or_insert_with(&mut self, number: u64, new: impl FnOnce() -> V) -> &mut V {
        let groups = &mut self.groups;
        let is_it = |entry: &(u64, V)| entry.0 == number;
        let entry = self.values.entry(hash(number), is_it, |entry| hash(entry.0));
        let entry = entry.or_insert_with(|| {
            *groups.entry(number / 64).or_default() |= 1 << (number % 64);
            (number, new())
        });
        &mut entry.into_mut().1
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<V> {
        let entry = self.values.find_entry(hash(number), |entry| entry.0 == number).ok()?;
        let (_, value) = entry.remove().0;
        let Entry::Occupied(mut group) = self.groups.entry(number / 64) else {
            unreachable!("a number with a value is in a group")
        };
        *group.get_mut() &= !(1 << (number % 64));
        if *group.get() == 0 {
            group.remove();
        }
        Some(value)
    }

    /// Numbers of a range that have values, in ascending order.
    #[inline]
    pub(crate) fn numbers(&self, within: Range<u64>) -> Numbers<'_> {
        if let Some(number) = only_number(&within) {
            // No search in the tree for the most common range.
            let bits = u64::from(self.get(number).is_some()) << (number % 64);
            return Numbers { groups: &self.groups, next: 0..0, within, group: number / 64, bits };
        }
        Numbers::new(&self.groups, within)
    }

    /// Numbers of a range with their values, in ascending order.
    pub(crate) fn iter(&self, within: Range<u64>) -> impl Iterator<Item = (u64, &V)> + Clone {
        let value = |number| self.get(number).expect("a number in a group has a value");
        self.numbers(within).map(move |number| (number, value(number)))
    }

    /// Calls `each` for every value of a range, in ascending order.
    #[inline]
    pub(crate) fn each_mut(&mut self, within: Range<u64>, mut each: impl FnMut(u64, &mut V)) {
        if let Some(number) = only_number(&within) {
            if let Some(value) = self.get_mut(number) {
                each(number, value);
            }
            return;
        }
        for number in Numbers::new(&self.groups, within) {
            let entry = self.values.find_mut(hash(number), |entry| entry.0 == number);
            each(number, &mut entry.expect("a number in a group has a value").1);
        }
    }

    /// All values, in no particular order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.values.iter().map(|entry| &entry.1)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

/// Iterator over the numbers of a range that have values, in ascending order.
#[derive(Clone, Debug)]
pub(crate) struct Numbers<'a> {
    groups: &'a BTreeMap<u64, u64>,
    within: Range<u64>,
    /// Groups to look at after the present one.
    next: Range<u64>,
    /// The present group, and those of its numbers that were not returned yet.
    group: u64,
    bits: u64,
}

impl<'a> Numbers<'a> {
    fn new(groups: &'a BTreeMap<u64, u64>, within: Range<u64>) -> Self {
        let next =
            if within.is_empty() { 0..0 } else { within.start / 64..within.end.div_ceil(64) };
        Self { groups, next, within, group: 0, bits: 0 }
    }

    /// Goes on to the next group that exists. Returns `None` if there is none in the range.
    fn go_on(&mut self) -> Option<()> {
        // Groups of a run follow each other, and are found without a search for a range.
        let Range { start, end } = self.next;
        if start >= end {
            return None;
        }
        let (group, bits) = match self.groups.get(&start) {
            Some(bits) => (start, *bits),
            None if start + 1 == end => return None,
            None => self.groups.range(start + 1..end).next().map(|it| (*it.0, *it.1))?,
        };
        (self.group, self.next.start) = (group, group + 1);
        self.bits = bits & bits_within(group, &self.within);
        Some(())
    }
}

impl Iterator for Numbers<'_> {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        while self.bits == 0 {
            self.go_on()?;
        }
        let bit = u64::from(self.bits.trailing_zeros());
        self.bits &= self.bits - 1;
        Some(self.group * 64 + bit)
    }
}

/// Hash of a number: the same in each process.
#[inline]
fn hash(number: u64) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write_u64(number);
    hasher.finish()
}

/// The number of a range that has only one; `None` for other ranges.
#[inline]
fn only_number(within: &Range<u64>) -> Option<u64> {
    (within.end.wrapping_sub(within.start) == 1).then_some(within.start)
}

/// Bitmap of the numbers in `within` that belong to group `group`, which begins at number `64 *
/// group`.
#[inline]
pub(crate) fn bits_within(group: u64, within: &Range<u64>) -> u64 {
    let first = group * 64;
    let from = within.start.saturating_sub(first).min(64);
    let to = within.end.saturating_sub(first).min(64);
    let below = |n: u64| if n >= 64 { u64::MAX } else { (1 << n) - 1 };
    below(to) & !below(from)
}
