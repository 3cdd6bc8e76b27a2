//! First come, first served: lists of rows, each row on at most one.
//!
//! Each list is a ring through one table, closed by an entry of its own, so that a row that a new
//! write promotes leaves the middle of its list in one step, and first and last are nothing special.

use weft_units::RowId;

/// Which list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    /// Rows that wait for a permission to preread.
    Delayed,
    /// Rows that may be handled.
    Handle,
    /// Rows that were permitted to preread and may be bypassed.
    Hold,
    /// Rows that wait, each for as long as it pays ([`super::priority::Patience`]).
    Wait,
    /// Rows of one class without work, longest unused first.
    Inactive(u8),
}

/// All lists of one cache.
#[derive(Clone, Debug)]
pub(crate) struct Lists {
    /// Of every row, then the one that closes each list.
    links: Vec<Link>,
    rows: u32,
    /// On [`List::Wait`].
    waiting: u32,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    list: Option<List>,
    before: u32,
    after: u32,
}

impl List {
    fn index(self) -> u32 {
        match self {
            Self::Delayed => 0,
            Self::Handle => 1,
            Self::Hold => 2,
            Self::Wait => 3,
            Self::Inactive(class) => 4 + u32::from(class),
        }
    }
}

impl Lists {
    pub(crate) fn new(rows: u32) -> Self {
        let empty = |place| Link { list: None, before: place, after: place };
        Self { links: (0..rows + LISTS).map(empty).collect(), rows, waiting: 0 }
    }

    /// The list that a row is on.
    #[inline]
    pub(crate) fn of(&self, row: RowId) -> Option<List> {
        self.links[row.index()].list
    }

    #[inline]
    pub(crate) fn first(&self, list: List) -> Option<RowId> {
        let first = self.links[self.end(list) as usize].after;
        (first < self.rows).then_some(RowId(first))
    }

    /// The row behind another one on its list.
    pub(crate) fn next(&self, row: RowId) -> Option<RowId> {
        let next = self.links[row.index()].after;
        (next < self.rows).then_some(RowId(next))
    }

    /// How many rows are on [`List::Wait`].
    pub(crate) fn waiting(&self) -> u32 {
        self.waiting
    }

    /// How many rows are on a list: they are counted, so this is for those who look on.
    pub(crate) fn count(&self, list: List) -> u32 {
        let end = self.end(list);
        let mut at = self.links[end as usize].after;
        let mut count = 0;
        while at != end {
            count += 1;
            at = self.links[at as usize].after;
        }
        count
    }

    #[inline]
    pub(crate) fn push(&mut self, list: List, row: RowId) {
        assert!(self.of(row).is_none(), "a row is on one list");
        self.waiting += u32::from(list == List::Wait);
        let end = self.end(list);
        let before = std::mem::replace(&mut self.links[end as usize].before, row.0);
        self.links[before as usize].after = row.0;
        self.links[row.index()] = Link { list: Some(list), before, after: end };
    }

    /// Takes a row off its list, if it is on one.
    #[inline]
    pub(crate) fn remove(&mut self, row: RowId) {
        let link = &mut self.links[row.index()];
        let Some(list) = link.list.take() else { return };
        let Link { before, after, .. } = *link;
        self.links[before as usize].after = after;
        self.links[after as usize].before = before;
        self.waiting -= u32::from(list == List::Wait);
    }

    #[inline]
    pub(crate) fn pop(&mut self, list: List) -> Option<RowId> {
        let row = self.first(list)?;
        self.remove(row);
        Some(row)
    }

    /// The entry that closes a list.
    #[inline]
    fn end(&self, list: List) -> u32 {
        self.rows + list.index()
    }
}

/// md's `NR_STRIPE_HASH_LOCKS`.
pub(crate) const CLASSES_MAX: u8 = 8;

const LISTS: u32 = 4 + CLASSES_MAX as u32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_leave_from_the_front_or_the_middle() {
        let mut lists = Lists::new(4);
        for row in 0..4 {
            lists.push(List::Delayed, RowId(row));
        }
        lists.remove(RowId(2));
        lists.remove(RowId(2));
        lists.push(List::Hold, RowId(2));
        assert_eq!(lists.of(RowId(2)), Some(List::Hold));
        lists.remove(RowId(3));
        lists.push(List::Delayed, RowId(3));
        assert_eq!(
            [List::Delayed, List::Hold, List::Handle].map(|list| lists.count(list)),
            [3, 1, 0]
        );
        let order: Vec<_> = std::iter::from_fn(|| lists.pop(List::Delayed)).collect();
        assert_eq!(order, [RowId(0), RowId(1), RowId(3)]);
        assert_eq!(lists.first(List::Delayed), None);
        assert_eq!((lists.next(RowId(2)), lists.waiting()), (None, 0));
        lists.push(List::Wait, RowId(3));
        lists.push(List::Wait, RowId(0));
        assert_eq!((lists.next(RowId(3)), lists.waiting()), (Some(RowId(0)), 2));
        lists.remove(RowId(3));
        assert_eq!(lists.waiting(), 1);
    }
}
