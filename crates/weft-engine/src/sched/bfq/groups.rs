//! Groups of clients: the member is shared between groups first, then within each group.
//!
//! A weight compares one client with the others, so a tenant with many clients gets more than a
//! tenant with few. Clients may therefore be in a group, which has a weight of its own. The member
//! is first shared between the groups and the clients that are in no group; then the share of a
//! group is divided between its clients by their weights. The array's own work, including resync,
//! is in no group.
//!
//! Classes apply within a group; among groups and ungrouped queues, a group counts as best effort.
//! While two groups have requests, or a group and an ungrouped queue, serving queues in turn does
//! not give each its share, and the member may be kept idle for a queue. Queues of different groups
//! are not merged.
//!
//! Inputs   the group of a request ([`Origin::group`]), queues that become active or inactive
//! Answer   [`Bfq::groups_compete`]; the service tree selects the queue
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

/// Counts of groups that have requests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Groups {
    /// For each group, the number of its queues with a request queued or in flight.
    pending: [u32; Group::MAX as usize],
    /// Number of groups with a queue that has a request queued or in flight.
    asking: u32,
    /// Number of busy queues in all groups.
    pub(super) busy: u32,
}

impl Bfq {
    /// Creates the service-tree entity of a group if the group has none yet.
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

    /// Counts the queue `id`, which becomes busy, in its group.
    pub(super) fn on_busy_in_group(&mut self, id: QueueId) {
        self.groups.busy += 1;
        let queue = self.queues.at_mut(id);
        if !std::mem::replace(&mut queue.in_group, true) {
            let pending = &mut self.groups.pending[usize::from(queue.group.number()) - 1];
            *pending += 1;
            self.groups.asking += u32::from(*pending == 1);
        }
    }

    /// Stops counting the queue `id` in its group, when it has no request queued or in flight any
    /// more.
    pub(super) fn leave_group(&mut self, id: QueueId) {
        let queue = self.queues.at_mut(id);
        queue.in_group = false;
        let pending = &mut self.groups.pending[usize::from(queue.group.number()) - 1];
        *pending -= 1;
        self.groups.asking -= u32::from(*pending == 0);
    }

    /// Whether more than one group is active. All queues without a group together count as one
    /// group.
    #[inline]
    pub(super) fn groups_compete(&self) -> bool {
        self.groups.asking > 0 && (self.groups.asking > 1 || self.busy_queues() > self.groups.busy)
    }

    /// Class and weight with which a queue competes at the root. For a queue in a group these are
    /// the class and weight of the group, otherwise its own.
    pub(super) fn rank_in_root(&self, queue: &BfqQueue) -> (IoPriority, u32) {
        if queue.group == Group::ROOT {
            (queue.class, queue.weight())
        } else {
            (IoPriority::BestEffort, self.knobs.groups.weight(queue.group))
        }
    }
}
