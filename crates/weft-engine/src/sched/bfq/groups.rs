//! Groups of clients: a share of the member for each group, then shares within it.
//!
//! A weight compares one client with the others. A tenant with many clients gets more by that than
//! one with few, whatever each is worth. So clients may be in a group, which has a weight of its
//! own beside those of the clients that are in none: the member is shared between these first, and
//! what a group gets between its clients, by their weights. The array's own work, resync among it,
//! is in no group.
//!
//! Classes hold within a group; towards others a group is of the best-effort class. Where two
//! groups have requests, or a group and somebody of none, shares depend on more than on taking
//! turns, and the member may be kept for a queue. Queues of different groups are not merged.
//!
//! Inputs   the group of a request ([`Origin::group`]), queues that begin and end to ask
//! Answer   [`Bfq::groups_compete`]; whose turn it is the service tree says
//! Knob     `group_weights`
//! Source   io-schedulers.md §2.1 "Hierarchy", §2.5, §2.6; kernel documentation, `bfq-iosched.rst`,
//!          "BFQ group scheduling"
//! Measured statement B15, groups of 100 and 200 with one and five queues: a third and two thirds
//!          within 1 %; Linux 6.12: 33.6 to 33.8 %
//!
//! [`Origin::group`]: crate::contract::input::Origin::group

use weft_units::{Group, Time};

use super::QueueId;
use super::queue::BfqQueue;
use super::scheduler::Bfq;
use crate::sched::request::IoPriority;

/// Groups with requests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Groups {
    /// Queues of each that have a request queued or at the member.
    pending: [u32; Group::MAX as usize],
    /// Groups that have such a queue.
    asking: u32,
    /// Busy queues of all.
    pub(super) busy: u32,
}

impl Bfq {
    /// A group may be new: it gets its place among the entities.
    pub(super) fn found_group(&mut self, group: Group, now: Time) {
        if self.trees.knows(group) {
            return;
        }
        let entity = self.queues.create_for_group(group, &mut self.trees, now);
        if let Some(fair) = &mut self.fair {
            fair.know(entity);
        }
        self.trees.found(group, entity, self.knobs.groups.weight(group));
    }

    /// A queue of a group becomes busy.
    pub(super) fn on_busy_in_group(&mut self, id: QueueId) {
        self.groups.busy += 1;
        let queue = self.queues.at_mut(id);
        if !std::mem::replace(&mut queue.in_group, true) {
            let pending = &mut self.groups.pending[usize::from(queue.group.number()) - 1];
            *pending += 1;
            self.groups.asking += u32::from(*pending == 1);
        }
    }

    /// A queue of a group has no request anywhere.
    pub(super) fn leave_group(&mut self, id: QueueId) {
        let queue = self.queues.at_mut(id);
        queue.in_group = false;
        let pending = &mut self.groups.pending[usize::from(queue.group.number()) - 1];
        *pending -= 1;
        self.groups.asking -= u32::from(*pending == 0);
    }

    /// Whether there is more than one group that asks, the root among them.
    #[inline]
    pub(super) fn groups_compete(&self) -> bool {
        self.groups.asking > 0 && (self.groups.asking > 1 || self.busy_queues() > self.groups.busy)
    }

    /// Class and weight of a queue, or of its group, among the entities of the root.
    pub(super) fn rank_in_root(&self, queue: &BfqQueue) -> (IoPriority, u32) {
        if queue.group == Group::ROOT {
            (queue.class, queue.weight())
        } else {
            (IoPriority::BestEffort, self.knobs.groups.weight(queue.group))
        }
    }
}
