//! Stable merge: queues that were created together are served as one, for good.
//!
//! Since 2021 Linux merges by time of birth what it does not merge by position: a queue that is
//! created within 180 ms of another one of the same class and level is merged with it, at
//! once on flash that queues, else after 600 ms unless plugging for it pays. Fewer queues cost less
//! time: ten random readers of a null device read 40 % more in its author's measurement.
//!
//! The price is fairness among equals: two backlogged readers that share a queue in Linux 6.12 get
//! 32 to 68 % each, at latencies up to 1.2 s. So weft leaves it out unless it is asked for.
//!
//! Inputs   each sync queue that is created
//! Answer   the queue to merge it with, when the time has come
//! Knob     `stable_merge` (flag, default 0; Linux always does it since 2021)
//! Source   io-schedulers.md §2.12, "Stable merge"

use weft_units::{Span, Time};

use super::QueueId;
use super::scheduler::Bfq;

/// The queue with which those that follow are merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StableMerge {
    anchor: Option<Anchor>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Anchor {
    queue: QueueId,
    created: Time,
    /// Group, class, and level or weight.
    kin: u32,
}

impl StableMerge {
    /// A sync queue is created. The queue that it is to be merged with, now or [`MERGE_AFTER`].
    ///
    /// `kin` tells groups, classes and levels apart.
    pub(super) fn created(&mut self, queue: QueueId, kin: u32, now: Time) -> Option<QueueId> {
        let anchor = self
            .anchor
            .filter(|anchor| anchor.kin == kin && now.since(anchor.created) < MERGE_AFTER);
        let Some(anchor) = anchor else {
            self.anchor = Some(Anchor { queue, created: now, kin });
            return None;
        };
        (now.since(anchor.created) <= TOGETHER).then_some(anchor.queue)
    }

    /// The queue is no more; its number may come again.
    pub(super) fn forget(&mut self, queue: QueueId) {
        self.anchor = self.anchor.filter(|anchor| anchor.queue != queue);
    }
}

impl Bfq {
    /// A queue was created. With `stable_merge` it may have a partner.
    pub(super) fn on_created(&mut self, id: QueueId, now: Time) {
        if self.queues.at(id).sharing.is_of_a_successor() {
            self.forget(id);
        }
        let queue = self.queues.at(id);
        if !self.knobs.merge.stable || !queue.sync {
            return;
        }
        let group = u32::from(queue.group.number());
        let kin = group << 24 | (queue.class as u32) << 16 | queue.base_weight;
        let Some(partner) = self.stable.created(id, kin, now) else { return };
        if self.merging.nonrot_with_queueing() {
            self.merge_stably(id, partner, now);
        } else {
            let later = self.queues.at(partner).sharing.partner(partner, now + MERGE_AFTER);
            self.queues.at_mut(id).sharing.later = Some(later);
        }
    }

    /// The number of a queue is another one's now.
    fn forget(&mut self, id: QueueId) {
        self.stable.forget(id);
        self.bursts.forget(id);
        if self.knobs.waker {
            for other in self.queues.ids() {
                self.queues.at_mut(other).waker.forget(id);
            }
        }
    }

    /// Does a stable merge that was put off, if its time has come and nothing is lost by it: where
    /// plugging for the queue makes the member faster, it stays alone. Says where its requests go.
    pub(super) fn merge_later(&mut self, id: QueueId, now: Time) -> QueueId {
        let Some(later) = self.queues.at(id).sharing.later else { return id };
        if now < later.at || self.idle_facts(id).boosts_throughput() {
            return id;
        }
        self.queues.at_mut(id).sharing.later = None;
        if self.queues.at(later.queue).sharing.is_partner(&later) {
            self.merge_stably(id, later.queue, now)
        } else {
            id
        }
    }
}

/// Age of a queue after which a stable merge that was put off is done
/// (`bfq_late_stable_merging`).
pub(super) const MERGE_AFTER: Span = Span::millis(600);
/// Longest time between the births of two queues that are merged.
const TOGETHER: Span = Span::millis(180);

#[cfg(test)]
mod tests {
    use super::*;

    /// Queues of these kin are created at these times; each one's partner.
    fn partners(created: &[(u64, u32)]) -> Vec<Option<u32>> {
        let mut stable = StableMerge::default();
        (0..)
            .zip(created)
            .map(|(queue, (millis, kin))| {
                let now = Time(0) + Span::millis(*millis);
                stable.created(QueueId(queue), *kin, now).map(|anchor| anchor.0)
            })
            .collect()
    }

    /// Linux 6.12: 150 ms apart yes, 300 ms no, 700 ms or another level none.
    #[test]
    fn the_first_queue_stays_the_anchor_for_600_ms() {
        assert_eq!(partners(&[(0, 0), (0, 0), (0, 0)]), [None, Some(0), Some(0)]);
        assert_eq!(partners(&[(0, 0), (150, 0), (300, 0)]), [None, Some(0), None]);
        assert_eq!(partners(&[(0, 0), (250, 0), (430, 0)]), [None, None, None]);
        assert_eq!(partners(&[(0, 0), (600, 0), (700, 0)]), [None, None, Some(1)]);
        assert_eq!(partners(&[(0, 0), (10, 1), (20, 1)]), [None, None, Some(1)]);
    }

    #[test]
    fn a_queue_that_is_gone_is_no_partner() {
        let mut stable = StableMerge::default();
        assert_eq!(stable.created(QueueId(0), 0, Time(0)), None);
        stable.forget(QueueId(0));
        assert_eq!(stable.created(QueueId(1), 0, Time(0)), None);
        assert_eq!(stable.created(QueueId(2), 0, Time(0)), Some(QueueId(1)));
    }
}
