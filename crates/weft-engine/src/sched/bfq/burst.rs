//! Bursts: queues that start together, so that their weight is not raised.
//!
//! A boot or a `make -j` starts many queues at once. No user waits for one of these queues in
//! particular. Raising the weight of all of them would give none an advantage over the others, and
//! would slow down older queues. Queues that start within 180 ms of one another are therefore
//! counted. With the eighth queue the burst is large, and all of its queues are marked, including
//! those that join later. A marked queue is not raised until it has been idle for more than 10 s
//! ([`mark_fades`]). A queue of another group begins a new burst.
//!
//! Inputs   each queue at its first request, and whether other queues were busy
//! Answer   the queues to mark
//! Source   io-schedulers.md §2.11; kernel documentation, `bfq-iosched.rst`, `low_latency`

use smallvec::SmallVec;
use weft_units::{Group, Span, Time};

use super::QueueId;

/// The burst in progress, if any.
#[derive(Clone, Debug, Default)]
pub(super) struct Bursts {
    /// Queues of the burst that are not yet marked as part of a large one.
    listed: SmallVec<[QueueId; LARGE]>,
    /// Number of queues that have joined the burst, including those that no longer exist.
    joined: usize,
    /// Time at which the last queue joined.
    last: Time,
    group: Group,
}

impl Bursts {
    /// Handles the first request of a queue. Calls `mark` for each queue that has to be marked as
    /// part of a large burst. `others_busy` tells whether other queues were busy.
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

    /// Removes a queue that no longer exists, because its number may be reused.
    pub(super) fn forget(&mut self, queue: QueueId) {
        self.listed.retain(|listed| *listed != queue);
    }
}

/// Whether a queue that is marked as part of a large burst loses the mark after an idle time of
/// `idle`.
pub(super) fn mark_fades(idle: Span) -> bool {
    idle > FADE
}

/// Number of queues that make a burst large (`bfq_large_burst_thresh`).
const LARGE: usize = 8;
/// Longest time between the starts of two successive queues of a burst (`bfq_burst_interval`).
const INTERVAL: Span = Span::millis(180);
/// Idle time after which a queue loses its mark.
const FADE: Span = Span::secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time(0) + Span::millis(millis)
    }

    /// Starts queues at the times `began`, in ms. Returns the queues that were marked.
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
    fn eight_queues_that_begin_together_are_marked_and_so_is_the_next() {
        assert_eq!(marked((0..7).map(|n| n * 180)), [], "seven are no large burst");
        assert_eq!(marked((0..9).map(|n| n * 180)), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn a_gap_begins_a_new_burst() {
        assert_eq!(marked((0..14).map(|n| n * 100 + n / 7 * 81)), [], "181 ms after seven");
        assert_eq!(marked((0..20).map(|n| n * 181)), []);
    }

    #[test]
    fn a_burst_begins_only_when_no_other_queue_is_busy() {
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
