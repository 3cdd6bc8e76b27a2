//! Who has to wait for whom? Requests that overlap a write run in order of arrival.
//!
//! A request waits for every earlier one that overlaps it, if either of the two writes. Reads pass
//! each other. Waiting ones count as well, so that nobody is overtaken and nobody starves.
//!
//! Source   style.md §4, "Overlap"; NBD and the block layer leave the order of overlapping requests
//!          to the client, who gets the simplest one here

use std::collections::BTreeMap;

use weft_units::ByteRange;

/// Names a request of one volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RequestId(pub(crate) u32);

/// The requests in flight or waiting, by place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges {
    by_start: BTreeMap<(u64, RequestId), Held>,
    /// Longest range present: how far back an overlapping one may begin.
    longest: u64,
}

#[derive(Clone, Debug)]
struct Held {
    range: ByteRange,
    writes: bool,
    waits_for: u32,
    waiting: Vec<(u64, RequestId)>,
}

impl Ranges {
    /// Enters a request. Whether it may start at once.
    pub(crate) fn enter(&mut self, id: RequestId, range: ByteRange, writes: bool) -> bool {
        debug_assert!(range.len.0 > 0);
        let start = range.start.0;
        let mut waits_for = 0;
        let from = (start.saturating_sub(self.longest), RequestId(0));
        let to = (range.end().0, RequestId(0));
        for (_, other) in self.by_start.range_mut(from..to) {
            if other.range.overlaps(range) && (writes || other.writes) {
                other.waiting.push((start, id));
                waits_for += 1;
            }
        }
        self.longest = self.longest.max(range.len.0);
        let held = Held { range, writes, waits_for, waiting: Vec::new() };
        let before = self.by_start.insert((start, id), held);
        assert!(before.is_none());
        waits_for == 0
    }

    /// Takes a finished request out. The requests that may start now, in order of arrival.
    pub(crate) fn leave(&mut self, id: RequestId, start: u64) -> Vec<RequestId> {
        let Some(held) = self.by_start.remove(&(start, id)) else { return Vec::new() };
        assert_eq!(held.waits_for, 0);
        if self.by_start.is_empty() {
            self.longest = 0;
        }
        let mut free = Vec::new();
        for key in held.waiting {
            let waiting = self.by_start.get_mut(&key).expect("one that waits stays until it ran");
            waiting.waits_for -= 1;
            if waiting.waits_for == 0 {
                free.push(key.1);
            }
        }
        free
    }

    /// How many are in flight or waiting.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.by_start.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn id(number: u32) -> RequestId {
        RequestId(number)
    }

    #[test]
    fn overlapping_writes_run_in_order_of_arrival() {
        let mut ranges = Ranges::default();
        assert!(ranges.enter(id(1), ByteRange::new(0, 8192), true));
        assert!(!ranges.enter(id(2), ByteRange::new(4096, 8192), true));
        assert!(!ranges.enter(id(3), ByteRange::new(8192, 4096), false));
        assert!(ranges.enter(id(4), ByteRange::new(65_536, 1), true));
        assert_eq!(ranges.leave(id(1), 0), [id(2)]);
        assert_eq!(ranges.leave(id(2), 4096), [id(3)]);
        assert_eq!(ranges.leave(id(3), 8192), []);
        assert_eq!(ranges.leave(id(4), 65_536), []);
        assert_eq!(ranges.len(), 0);
    }

    #[test]
    fn reads_pass_each_other_but_not_a_waiting_write() {
        let mut ranges = Ranges::default();
        assert!(ranges.enter(id(1), ByteRange::new(0, 4096), false));
        assert!(ranges.enter(id(2), ByteRange::new(0, 4096), false));
        assert!(!ranges.enter(id(3), ByteRange::new(0, 512), true));
        assert!(!ranges.enter(id(4), ByteRange::new(0, 4096), false));
        assert_eq!(ranges.leave(id(1), 0), []);
        assert_eq!(ranges.leave(id(2), 0), [id(3)]);
        assert_eq!(ranges.leave(id(3), 0), [id(4)]);
    }

    #[test]
    fn a_long_request_is_seen_from_far_behind_its_start() {
        let mut ranges = Ranges::default();
        assert!(ranges.enter(id(1), ByteRange::new(0, 1 << 25), true));
        assert!(!ranges.enter(id(2), ByteRange::new((1 << 25) - 1, 1), false));
        assert!(ranges.enter(id(3), ByteRange::new(1 << 25, 1), false));
    }
}
