//! Event queue of a drive: planned events in order of their times.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use weft_units::Time;

/// Planned events in order of time; events at the same time in the order in which they were
/// planned.
#[derive(Clone, Debug)]
pub(super) struct Events<E> {
    heap: BinaryHeap<Planned<E>>,
    planned: u64,
}

#[derive(Clone, Debug)]
struct Planned<E> {
    at: Time,
    order: u64,
    event: E,
}

impl<E> Events<E> {
    pub(super) fn new() -> Self {
        Self { heap: BinaryHeap::new(), planned: 0 }
    }

    /// Plans an event at a time, which may also be in the past.
    pub(super) fn plan(&mut self, at: Time, event: E) {
        self.planned += 1;
        self.heap.push(Planned { at, order: self.planned, event });
    }

    /// Time of the next event; `None` if none is planned.
    pub(super) fn next_at(&self) -> Option<Time> {
        self.heap.peek().map(|planned| planned.at)
    }

    /// Takes the next event with its time; `None` if none is planned up to `now`.
    pub(super) fn pop(&mut self, now: Time) -> Option<(Time, E)> {
        if self.next_at()? > now {
            return None;
        }
        self.heap.pop().map(|planned| (planned.at, planned.event))
    }
}

impl<E> PartialEq for Planned<E> {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl<E> Eq for Planned<E> {}

impl<E> PartialOrd for Planned<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Planned<E> {
    /// The earliest event counts as the greatest, because a heap pops its greatest element first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_one_time_come_in_the_order_of_planning() {
        let mut events = Events::new();
        for (at, name) in [(5, 'c'), (3, 'a'), (5, 'd'), (4, 'b'), (6, 'e')] {
            events.plan(Time(at), name);
        }
        let order: String =
            std::iter::from_fn(|| events.pop(Time(5))).map(|(_, name)| name).collect();
        assert_eq!((order.as_str(), events.next_at()), ("abcd", Some(Time(6))));
    }
}
