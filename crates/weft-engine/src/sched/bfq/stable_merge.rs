//! Stable merge: queues that were created together are permanently served as one.
//!
//! Since 2021 Linux merges queues by creation time if it does not merge them by position. A queue
//! created within 180 ms of another one of the same class and level is merged with it: at once on
//! flash that queues commands, otherwise after 600 ms unless keeping the member idle for it
//! increases throughput. Fewer queues cost less time: ten random readers of a null device read 40 %
//! more in its author's measurement.
//!
//! The price is fairness among equals: two backlogged readers that share a queue in Linux 6.12 get
//! between 32 and 68 % each, at latencies up to 1.2 s. The feature is therefore off by default in
//! weft.
//!
//! Inputs   each sync queue that is created
//! Answer   the queue to merge it with, when the time has come
//! Knob     `stable_merge` (flag, default 0; Linux always does it since 2021)
//! Source   io-schedulers.md §2.12, "Stable merge"

use weft_units::{Span, Time};

use super::QueueId;
use super::scheduler::Bfq;

/// Queue with which queues created later may be merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StableMerge {
    anchor: Option<Anchor>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Anchor {
    queue: QueueId,
    created: Time,
    /// Group, class, and level or weight of the queue, encoded. Only queues with equal values are
    /// merged.
    kin: u32,
}

impl StableMerge {
    /// Registers a new sync queue. Returns the queue with which it is to be merged, at once or
    /// after [`MERGE_AFTER`]; `None` if there is none.
    ///
    /// `kin` encodes group, class, and level or weight.
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

    /// Removes a queue that no longer exists, because its number may be reused.
    pub(super) fn forget(&mut self, queue: QueueId) {
        self.anchor = self.anchor.filter(|anchor| anchor.queue != queue);
    }
}

impl Bfq {
    /// Handles the creation of a queue. If `stable_merge` is set, looks for a queue to merge it
    /// with.
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

    /// Drops all references to a queue number that is about to be reused.
    fn forget(&mut self, id: QueueId) {
        self.stable.forget(id);
        self.bursts.forget(id);
        if self.knobs.waker {
            for other in self.queues.ids() {
                self.queues.at_mut(other).waker.forget(id);
            }
        }
    }

    /// Performs a delayed stable merge if its time has come. A queue stays alone if keeping the
    /// member idle for it increases throughput. Returns the queue for the requests of `id`.
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

/// Age of a queue after which a delayed stable merge is performed (`bfq_late_stable_merging`).
pub(super) const MERGE_AFTER: Span = Span::millis(600);
/// Longest time between the creations of two queues that are merged.
const TOGETHER: Span = Span::millis(180);

#[cfg(test)]
mod tests {
    use weft_units::{ClientId, Group, Sectors};

    use super::*;
    use crate::contract::input::{Attr, Origin};
    use crate::contract::member::DeviceTraits;
    use crate::knobs::{BfqKnobs, MergeKnobs};
    use crate::sched::request::{Direction, QueuedRequest};

    /// Creates queues, each given as time and kind. Returns the partner of each.
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

    /// Linux 6.12 merges a queue created 150 ms after the first one with it, but not one created
    /// 300 ms or 700 ms after it, or with another level.
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

    #[test]
    fn a_delayed_merge_is_due_after_exactly_600_ms() {
        let merge = MergeKnobs { stable: true, ..MergeKnobs::default() };
        let knobs = BfqKnobs { merge, low_latency: false, ..BfqKnobs::default() };
        let device = DeviceTraits { rotational: true, ..DeviceTraits::default() };
        let mut bfq = Bfq::new(knobs, Sectors(1024), device);
        for client in 0..2 {
            let request = QueuedRequest {
                id: client,
                direction: Direction::Read,
                attr: Attr {
                    origin: Origin::Client(ClientId(client as u32), Group::ROOT),
                    ..Attr::NONE
                },
                first: Sectors(client << 20),
                len: Sectors(8),
                discard: false,
                merges: false,
            };
            bfq.insert(&request, Time(0));
            bfq.queues.at_mut(QueueId(client as u32)).intensity.io_bound = false;
        }
        let due = Time(0) + MERGE_AFTER;
        assert_eq!(bfq.merge_later(QueueId(1), Time(due.0 - 1)), QueueId(1));
        assert_eq!(bfq.merge_later(QueueId(1), due), QueueId(0));
    }
}
