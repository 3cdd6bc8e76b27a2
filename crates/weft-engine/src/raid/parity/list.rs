//! Lists of stripes in order of arrival; each stripe is on at most one.
//!
//! Each list is a ring in one shared table of links, with a closing entry that belongs to no
//! stripe. A stripe can leave the middle of its list in one step, as when a new write promotes it,
//! and the ends need no special case.

use weft_units::StripeId;

/// A list of the stripe cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    /// Stripes without permission to preread, which wait for more data.
    Delayed,
    /// Stripes that are ready to be handled.
    Handle,
    /// Stripes with permission to preread that ready stripes may bypass.
    Hold,
    /// Stripes that each wait until a time of their own ([`super::priority::Patience`]).
    Wait,
    /// Inactive stripes that only a sync has used, least recently used first.
    Synced,
    /// Inactive stripes of the class with this number, least recently used first.
    Inactive(u8),
}

#[derive(Clone, Debug)]
pub(crate) struct Lists {
    /// Links of all stripes, followed by the closing link of each list.
    links: Vec<Link>,
    stripes: u32,
    /// Number of stripes on [`List::Wait`].
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
            Self::Synced => 4,
            Self::Inactive(class) => 5 + u32::from(class),
        }
    }

    /// Whether the stripes on the list are inactive.
    #[inline]
    pub(crate) fn is_inactive(self) -> bool {
        matches!(self, Self::Inactive(_) | Self::Synced)
    }
}

impl Lists {
    pub(crate) fn new(stripes: u32) -> Self {
        let empty = |place| Link { list: None, before: place, after: place };
        Self { links: (0..stripes + LISTS).map(empty).collect(), stripes, waiting: 0 }
    }

    /// List that a stripe is on; `None` if it is on none.
    #[inline]
    pub(crate) fn of(&self, stripe: StripeId) -> Option<List> {
        self.links[stripe.index()].list
    }

    #[inline]
    pub(crate) fn first(&self, list: List) -> Option<StripeId> {
        let first = self.links[self.end(list) as usize].after;
        (first < self.stripes).then_some(StripeId(first))
    }

    /// The stripe after `stripe` on the same list; `None` at the end.
    pub(crate) fn next(&self, stripe: StripeId) -> Option<StripeId> {
        let next = self.links[stripe.index()].after;
        (next < self.stripes).then_some(StripeId(next))
    }

    /// Number of stripes on [`List::Wait`].
    pub(crate) fn waiting(&self) -> u32 {
        self.waiting
    }

    /// Number of stripes on a list. Walks the list, so only for occasional use.
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

    #[inline(always)]
    pub(crate) fn push(&mut self, list: List, stripe: StripeId) {
        assert!(self.of(stripe).is_none(), "a stripe is on one list");
        self.waiting += u32::from(matches!(list, List::Wait));
        let end = self.end(list);
        let before = std::mem::replace(&mut self.links[end as usize].before, stripe.0);
        self.links[before as usize].after = stripe.0;
        self.links[stripe.index()] = Link { list: Some(list), before, after: end };
    }

    /// Takes a stripe off the list that it is on, if any.
    #[inline]
    pub(crate) fn remove(&mut self, stripe: StripeId) {
        let link = &mut self.links[stripe.index()];
        let Some(list) = link.list.take() else { return };
        let Link { before, after, .. } = *link;
        self.links[before as usize].after = after;
        self.links[after as usize].before = before;
        if matches!(list, List::Wait) {
            assert!(self.waiting > 0, "stripes that wait are counted");
            self.waiting -= 1;
        }
    }

    #[inline]
    pub(crate) fn pop(&mut self, list: List) -> Option<StripeId> {
        let stripe = self.first(list)?;
        self.remove(stripe);
        Some(stripe)
    }

    /// Index of the entry in `links` that closes a list.
    #[inline]
    fn end(&self, list: List) -> u32 {
        self.stripes + list.index()
    }
}

/// Number of classes of inactive stripes in md (`NR_STRIPE_HASH_LOCKS`).
pub(crate) const CLASSES_MAX: u8 = 8;

const LISTS: u32 = 5 + CLASSES_MAX as u32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_leave_from_the_front_or_the_middle() {
        let mut lists = Lists::new(4);
        for stripe in 0..4 {
            lists.push(List::Delayed, StripeId(stripe));
        }
        lists.remove(StripeId(2));
        lists.remove(StripeId(2));
        lists.push(List::Hold, StripeId(2));
        assert_eq!(lists.of(StripeId(2)), Some(List::Hold));
        lists.remove(StripeId(3));
        lists.push(List::Delayed, StripeId(3));
        assert_eq!(
            [List::Delayed, List::Hold, List::Handle].map(|list| lists.count(list)),
            [3, 1, 0]
        );
        let order: Vec<_> = std::iter::from_fn(|| lists.pop(List::Delayed)).collect();
        assert_eq!(order, [StripeId(0), StripeId(1), StripeId(3)]);
        assert_eq!(lists.first(List::Delayed), None);
        assert_eq!((lists.next(StripeId(2)), lists.waiting()), (None, 0));
        lists.push(List::Wait, StripeId(3));
        lists.push(List::Wait, StripeId(0));
        assert_eq!((lists.next(StripeId(3)), lists.waiting()), (Some(StripeId(0)), 2));
        lists.remove(StripeId(3));
        assert_eq!(lists.waiting(), 1);
    }
}
