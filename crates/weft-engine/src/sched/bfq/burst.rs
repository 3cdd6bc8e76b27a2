//! Bursts: queues that begin together, none of which is raised.
//!
//! A boot or a `make -j` begins many queues at once. None of them is the one somebody waits for,
//! and raising the weight of all would raise that of none, at the cost of everybody who was there
//! before. So queues are counted that begin within 180 ms of one another; with the eighth the burst
//! is large, and all of its queues are marked, those that still join it too. A marked queue is not
//! raised until it has been idle for more than 10 s ([`mark_fades`]). A queue of another group
//! begins a new burst.
//!
//! Inputs   each queue at its first request, whether anybody else was busy
//! Answer   the queues to mark
//! Source   io-schedulers.md §2.11; kernel documentation, `bfq-iosched.rst`, `low_latency`

use smallvec::SmallVec;
use weft_units::{Group, Span, Time};

use super::QueueId;

/// The burst that goes on, if any.
#[derive(Clone, Debug, Default)]
pub(super) struct Bursts {
    /// Its queues that are not marked yet.
    listed: SmallVec<[QueueId; LARGE]>,
    /// Queues that have joined it, those that have gone by now too.
    joined: usize,
    /// Time at which the last queue joined.
    last: Time,
    group: Group,
}

impl Bursts {
    /// A queue has its first request. Names every queue that is to be marked.
    pub(super) fn queue_began(
        &mut self,
        queue: QueueId,
        group: Group,
        others_busy: bool,
        now: Time,
        mut mark: impl FnMut(QueueId),
    ) {
        if self.joined == 0 && others_busy {
            return;
        }
        if now.since(self.last) > INTERVAL || group != self.group {
            self.listed.clear();
            self.joined = 0;
        }
        (self.last, self.group) = (now, group);
        self.joined += 1;
        if self.joined < LARGE {
            self.listed.push(queue);
            return;
        }
        self.listed.drain(..).for_each(&mut mark);
        mark(queue);
    }

    /// The queue is no more; its number may come again.
    pub(super) fn forget(&mut self, queue: QueueId) {
        self.listed.retain(|listed| *listed != queue);
    }
}

/// Whether the mark of a queue that was idle for so long is removed.
pub(super) fn mark_fades(idle: Span) -> bool {
    idle > FADE
}

/// Queues of a large burst (`bfq_large_burst_thresh`).
const LARGE: usize = 8;
/// Longest time between two queues of one burst (`bfq_burst_interval`).
const INTERVAL: Span = Span::millis(180);
/// Longest idle time of a queue that stays marked.
const FADE: Span = Span::secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time(0) + Span::millis(millis)
    }

    /// Queues begin at these times; the marked ones.
    fn marked(began: impl IntoIterator<Item = u64>) -> Vec<u32> {
        let (mut bursts, mut marked) = (Bursts::default(), Vec::new());
        for (queue, millis) in (0..).zip(began) {
            bursts.queue_began(QueueId(queue), Group::ROOT, queue > 0, at(millis), |queue| {
                marked.push(queue.0);
            });
        }
        marked
    }

    #[test]
    fn eight_queues_that_begin_together_are_marked_and_so_is_who_follows() {
        assert_eq!(marked((0..7).map(|n| n * 180)), [], "seven are no large burst");
        assert_eq!(marked((0..9).map(|n| n * 180)), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn a_gap_begins_a_new_burst() {
        assert_eq!(marked((0..14).map(|n| n * 100 + n / 7 * 81)), [], "181 ms after seven");
        assert_eq!(marked((0..20).map(|n| n * 181)), []);
    }

    #[test]
    fn a_burst_begins_only_when_nobody_is_busy() {
        let (mut bursts, mut marked) = (Bursts::default(), 0);
        for queue in 0..20 {
            bursts.queue_began(QueueId(queue), Group::ROOT, true, at(0), |_| marked += 1);
        }
        assert_eq!(marked, 0);
    }

    #[test]
    fn a_queue_that_has_gone_counts_and_is_not_marked() {
        let (mut bursts, mut marked) = (Bursts::default(), Vec::new());
        for queue in 0..8 {
            bursts.queue_began(QueueId(queue), Group::ROOT, queue > 0, at(0), |queue| {
                marked.push(queue.0);
            });
            if queue == 3 {
                bursts.forget(QueueId(3));
            }
        }
        assert_eq!(marked, [0, 1, 2, 4, 5, 6, 7]);
    }

    #[test]
    fn a_mark_fades_after_ten_idle_seconds() {
        assert!(!mark_fades(Span::secs(10)));
        assert!(mark_fades(Span::millis(10_001)));
    }
}
