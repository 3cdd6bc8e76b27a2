//! First come, first served: lists of rows, each row on at most one.
//!
//! Doubly linked through one table, so that a row that a new write promotes leaves the middle of its
//! list in one step.

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
    /// Rows of one class without work, longest unused first.
    Inactive(u8),
}

/// All lists of one cache.
#[derive(Clone, Debug)]
pub(crate) struct Lists {
    heads: [Head; 3 + CLASSES_MAX as usize],
    links: Vec<Link>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Head {
    first: Option<RowId>,
    last: Option<RowId>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Link {
    list: Option<List>,
    before: Option<RowId>,
    after: Option<RowId>,
}

impl List {
    fn index(self) -> usize {
        match self {
            Self::Delayed => 0,
            Self::Handle => 1,
            Self::Hold => 2,
            Self::Inactive(class) => 3 + usize::from(class),
        }
    }
}

impl Lists {
    pub(crate) fn new(rows: u32) -> Self {
        Self {
            heads: [Head::default(); 3 + CLASSES_MAX as usize],
            links: vec![Link::default(); rows as usize],
        }
    }

    /// The list that a row is on.
    pub(crate) fn of(&self, row: RowId) -> Option<List> {
        self.links[row.index()].list
    }

    pub(crate) fn first(&self, list: List) -> Option<RowId> {
        self.heads[list.index()].first
    }

    pub(crate) fn push(&mut self, list: List, row: RowId) {
        assert!(self.of(row).is_none(), "a row is on one list");
        let head = &mut self.heads[list.index()];
        let before = head.last.replace(row);
        if head.first.is_none() {
            head.first = Some(row);
        }
        self.links[row.index()] = Link { list: Some(list), before, after: None };
        if let Some(before) = before {
            self.links[before.index()].after = Some(row);
        }
    }

    /// Takes a row off its list, if it is on one.
    pub(crate) fn remove(&mut self, row: RowId) {
        let link = std::mem::take(&mut self.links[row.index()]);
        let Some(list) = link.list else { return };
        let head = &mut self.heads[list.index()];
        match link.before {
            Some(before) => self.links[before.index()].after = link.after,
            None => head.first = link.after,
        }
        match link.after {
            Some(after) => self.links[after.index()].before = link.before,
            None => head.last = link.before,
        }
    }

    pub(crate) fn pop(&mut self, list: List) -> Option<RowId> {
        let row = self.first(list)?;
        self.remove(row);
        Some(row)
    }
}

/// md's `NR_STRIPE_HASH_LOCKS`.
pub(crate) const CLASSES_MAX: u8 = 8;

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
        let order: Vec<_> = std::iter::from_fn(|| lists.pop(List::Delayed)).collect();
        assert_eq!(order, [RowId(0), RowId(1), RowId(3)]);
        assert_eq!(lists.first(List::Delayed), None);
    }
}
