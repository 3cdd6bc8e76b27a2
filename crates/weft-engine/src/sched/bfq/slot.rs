//! Slot of the queue in service: how the slot begins, what the queue is charged, and how the slot
//! ends.
//!
//! A slot ends when its budget or its time (`timeout_sync`) is used up, when its queue runs empty
//! and the member is not kept idle for the queue or was kept idle in vain, or when another queue
//! preempts it. Sequential queues pay for sectors. A slow queue pays for time, so that shares among
//! slow queues are shares of time; a queue is slow if it is seeky, or if its slot was long and
//! transferred less than half of the largest budget. Sectors of background writes count three
//! times, unless weights differ.
//!
//! A queue that left service early and gets a request within three times `slice_idle` resumes with
//! the rest of its budget, and preempts the queue that was served instead.
//!
//! Source   io-schedulers.md §2.4 to §2.7

use weft_units::{Group, Span, Time};

use super::QueueId;
use super::budget::SlotEnd;
use super::idling::IdleFacts;
use super::scheduler::Bfq;
use super::service_tree::TreeOf;
use super::stats::{ExpireReason, IdleReason};

/// Slot of the queue in service.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) queue: QueueId,
    began: Time,
    /// Time at which the slot ends, even if budget is left.
    until: Time,
    idle: Option<Idle>,
}

/// Period in which the member is kept idle for the queue in service.
#[derive(Clone, Copy, Debug)]
struct Idle {
    since: Time,
    until: Time,
    reason: IdleReason,
}

impl Slot {
    pub(super) fn idles_until(&self) -> Option<Time> {
        self.idle.map(|idle| idle.until)
    }
}

impl Bfq {
    pub(super) fn in_service(&self) -> Option<QueueId> {
        self.slot.as_ref().map(|slot| slot.queue)
    }

    /// Ends the time in which the member is kept idle, if it is over and no request has arrived.
    pub(super) fn on_time(&mut self, now: Time) {
        if let Some(fair) = &mut self.fair {
            fair.on_time(now);
        }
        let Some(slot) = &self.slot else { return };
        let Some(idle) = slot.idle.filter(|idle| idle.until <= now) else { return };
        let (id, timed_out) = (slot.queue, slot.until <= idle.until);
        if timed_out {
            self.expire(ExpireReason::BudgetTimeout, idle.until);
        } else if self.queues.at(id).is_empty() {
            self.expire(ExpireReason::TooIdle, idle.until);
        } else {
            self.stop_idling(idle.until);
        }
    }

    /// Ends the time in which the member is kept idle for the queue in service, if the member is
    /// kept idle.
    fn stop_idling(&mut self, now: Time) {
        if let Some(slot) = &mut self.slot
            && let Some(idle) = slot.idle.take()
        {
            self.stats.plugged[idle.reason as usize].0 += now.since(idle.since).0;
        }
    }

    /// Activates the queue `id`, which was empty and has got a request.
    pub(super) fn on_busy(&mut self, id: QueueId, now: Time) {
        self.on_wake(id, now);
        let charge = self.charge_of_head(id).expect("the queue has a request");
        let left = self.trees.budget_left(id);
        let queue = self.queues.at_mut(id);
        let in_time = now <= queue.ended + Span(3 * self.knobs.slice_idle.0);
        let resumes = std::mem::take(&mut queue.may_resume) && in_time && left > 0;
        // With fairness by requests, a queue that has requests in flight at the member is not idle.
        let works = self.fair.is_some() && queue.in_driver > 0;
        let idle = if works { Span::ZERO } else { now.since(queue.ended) };
        queue.intensity.add(idle, now);
        let budget =
            if resumes { left.min(queue.own_budget) } else { queue.own_budget.max(charge) };
        let (class, weight, raising) =
            (queue.class, queue.weight(), u64::from(queue.raising.coefficient()));
        queue.busy = true;
        if !queue.raising.is_raised() && queue.counted.is_none() {
            queue.counted = Some(queue.base_weight);
            self.weights.add(queue.base_weight);
        }
        self.raised_busy += u32::from(raising > 1);
        self.busy[class as usize] += 1;
        let group = queue.group;
        if group != Group::ROOT {
            self.on_busy_in_group(id);
        }
        if let Some(fair) = &mut self.fair {
            fair.begin(id, group, class, weight);
            return;
        }
        self.trees.activate(
            id,
            TreeOf::new(group, class),
            weight,
            budget,
            resumes.then_some(raising),
        );
        if let Some(current) = self.in_service()
            && self.preempts(id, current, resumes)
        {
            self.expire(ExpireReason::Preempted, now);
        }
    }

    fn preempts(&self, new: QueueId, current: QueueId, resumes: bool) -> bool {
        let (a, b) = (self.queues.at(new), self.queues.at(current));
        let ((class, weight), (other_class, other_weight)) = match a.group == b.group {
            true => ((a.class, a.weight()), (b.class, b.weight())),
            false => (self.rank_in_root(a), self.rank_in_root(b)),
        };
        resumes && a.raising.coefficient() >= b.raising.coefficient()
            || class < other_class
            || class == other_class && weight > other_weight
            || self.idle_facts(current).better_to_idle().is_none()
    }

    /// Ends the idle period if `id` is the queue in service, which has got a request.
    pub(super) fn on_arrival(&mut self, id: QueueId, now: Time) {
        let Some(slot) = self.slot.as_ref().filter(|slot| slot.queue == id) else { return };
        if slot.idle.is_some() {
            let timed_out = slot.until <= now;
            self.stop_idling(now);
            if timed_out {
                self.expire(ExpireReason::BudgetTimeout, now);
            }
        }
    }

    /// Updates the budget of a busy queue after its next request has changed or grown.
    pub(super) fn on_head_change(&mut self, id: QueueId) {
        if !self.trees.is_active(id) {
            return;
        }
        let charge = self.charge_of_head(id).unwrap_or(0);
        let budget = self.queues.at(id).own_budget.max(charge);
        if budget != self.trees.budget(id) {
            self.trees.set_budget(id, budget);
        }
    }

    /// Number of sectors that the queue `id` is charged for its next request; `None` if it has
    /// none.
    pub(super) fn charge_of_head(&self, id: QueueId) -> Option<u64> {
        let queue = self.queues.at(id);
        let len = self.pool.at(queue.backlog.head?).len.0;
        let cheap = queue.sync || queue.raising.is_raised() || self.is_asymmetric(id);
        Some(if cheap { len } else { len * ASYNC_FACTOR })
    }

    /// Whether the queue would not get its share if queues were only served in turn.
    pub(super) fn is_asymmetric(&self, id: QueueId) -> bool {
        let classes = self.busy.iter().filter(|busy| **busy > 0).count();
        let weights = match self.knobs.idle_lowest {
            true => self.weights.differ(),
            false => self.weights.others_have_less(self.queues.at(id).base_weight),
        };
        classes > 1 || weights || self.groups_compete()
    }

    pub(super) fn idle_facts(&self, id: QueueId) -> IdleFacts {
        let queue = self.queues.at(id);
        IdleFacts {
            strict: self.knobs.strict_guarantees,
            slice_idle: self.knobs.slice_idle,
            rotational: self.rotational,
            hw_tag: self.merging.hw_tag(),
            sync: queue.sync,
            unattended: queue.is_unattended(),
            seeky: queue.seeks.is_seeky(),
            io_bound: queue.intensity.io_bound,
            thinks_long: queue.think.is_long(),
            raised: queue.raising.is_raised(),
            asymmetric: self.is_asymmetric(id),
            busy: self.busy_queues(),
            raised_busy: self.raised_busy,
            in_driver: self.in_driver,
            own_in_driver: queue.in_driver,
        }
    }

    /// Selects the queue from which to dispatch. `None` if no queue has a request, or if the member
    /// is kept idle for a queue and no request may be injected.
    pub(super) fn select(&mut self, now: Time) -> Option<QueueId> {
        if let Some(id) = self.in_service()
            && self.has_timed_out(now)
            && !(self.queues.at(id).is_empty() && self.idle_facts(id).better_to_idle().is_some())
        {
            self.expire(ExpireReason::BudgetTimeout, now);
        }
        loop {
            let id = match self.in_service() {
                Some(id) => id,
                None => self.begin_slot(now)?,
            };
            if let Some(charge) = self.charge_of_head(id) {
                if charge <= self.trees.budget_left(id) {
                    self.stop_idling(now);
                    return Some(id);
                }
                self.expire(ExpireReason::BudgetExhausted, now);
                continue;
            }
            let waits = self.slot.as_ref().is_some_and(|slot| slot.idle.is_some())
                || self.queues.at(id).in_driver > 0
                    && self.idle_facts(id).better_to_idle().is_some();
            if waits {
                return self.injected_queue(id);
            }
            self.expire(ExpireReason::NoMoreRequests, now);
        }
    }

    fn begin_slot(&mut self, now: Time) -> Option<QueueId> {
        let id = self.trees.next(now)?;
        self.trees.serve(id);
        self.budgets.on_slot();
        self.end_sample();
        let queue = self.queues.at_mut(id);
        queue.fifo_looked = false;
        let time = Span(self.knobs.timeout_sync.0 * queue.raising.slot_factor());
        self.stats.raised_slots += u64::from(queue.raising.is_raised());
        if self.merging.on() {
            self.merging.enters_service();
        }
        self.slot = Some(Slot { queue: id, began: now, until: now + time, idle: None });
        Some(id)
    }

    /// Whether the time of the slot is over. A queue for which the member is kept idle may continue
    /// if it has used most of its budget.
    fn has_timed_out(&self, now: Time) -> bool {
        let Some(slot) = &self.slot else { return false };
        now >= slot.until && (slot.idle.is_none() || self.has_used_little(slot.queue))
    }

    fn has_used_little(&self, id: QueueId) -> bool {
        self.trees.budget_left(id) >= self.trees.budget(id) / 3
    }

    /// Handles the completion of a request of the queue in service: the queue may leave service, or
    /// the member is kept idle for it.
    pub(super) fn on_completed_in_service(&mut self, id: QueueId, now: Time) {
        let queue = self.queues.at(id);
        let empty = queue.is_empty();
        let facts = self.idle_facts(id);
        if empty && let Some(reason) = facts.better_to_idle() {
            if queue.in_driver == 0 {
                let idle = Idle { since: now, until: now + facts.patience(), reason };
                self.slot.as_mut().expect("it is in service").idle = Some(idle);
                self.stats.idled[reason as usize] += 1;
            }
        } else if self.has_timed_out(now) {
            self.expire(ExpireReason::BudgetTimeout, now);
        } else if empty {
            self.expire(ExpireReason::NoMoreRequests, now);
        }
    }

    pub(super) fn expire(&mut self, reason: ExpireReason, now: Time) {
        let idled_since = self.slot.as_ref().and_then(|slot| slot.idle).map(|idle| idle.since);
        self.stop_idling(now);
        let slot = self.slot.take().expect("a queue is in service");
        let id = slot.queue;
        self.split_if_seeky(id, now);
        // The queue is not charged for the time for which the member was kept idle in vain.
        let end = idled_since.filter(|_| reason == ExpireReason::TooIdle).unwrap_or(now);
        self.charge_time(id, reason, end.since(slot.began));
        self.stats.expired[reason as usize] += 1;
        let served = self.trees.service(id);
        let queue = self.queues.at(id);
        let slot_end = SlotEnd {
            reason,
            own: queue.own_budget,
            served,
            in_driver: queue.in_driver > 0,
            sync: queue.sync,
            raised: queue.raising.is_raised(),
        };
        let own_budget = self.budgets.after(&slot_end, &self.knobs);
        let stays = !queue.is_empty()
            || reason == ExpireReason::Preempted
                && self.idle_facts(id).needed_for_guarantees().is_some();
        let queue = self.queues.at_mut(id);
        queue.own_budget = own_budget;
        if stays {
            let (weight, charge) = (queue.weight(), self.charge_of_head(id).unwrap_or(0));
            self.trees.requeue(id, weight, own_budget.max(charge));
            self.index_head(id, now);
        } else {
            queue.may_resume =
                !matches!(reason, ExpireReason::BudgetTimeout | ExpireReason::BudgetExhausted);
            self.leave(id);
            self.on_drained(id, now);
        }
    }

    /// Charges a queue for the time of its slot instead of its sectors, if the queue is slow or
    /// used little of its budget before its time was over. A queue with raised weight is never
    /// charged for time.
    fn charge_time(&mut self, id: QueueId, reason: ExpireReason, slot: Span) {
        let queue = self.queues.at(id);
        let (seeky, sync, raised) = (queue.seeks.is_seeky(), queue.sync, queue.raising.is_raised());
        let max = self.budgets.max();
        let served = self.trees.service(id);
        let slow = sync && if slot > SLOT_LONG { served < max / 2 } else { seeky };
        let timed_out = reason == ExpireReason::BudgetTimeout && self.has_used_little(id);
        if raised || !slow && !timed_out {
            return;
        }
        let time = match slot {
            Span(..SHORT_NS) if self.rotational => self.knobs.slice_idle,
            Span(..SHORT_NS) => NOMINAL_ON_FLASH,
            slot => slot,
        };
        let timeout = self.knobs.timeout_sync;
        let due = max * time.0.min(timeout.0) / timeout.0;
        if due > served {
            let budget = self.trees.budget(id).max(due);
            self.trees.set_budget(id, budget);
            self.trees.charge(id, due - served);
        }
    }

    /// Removes a busy queue that has no requests left from the busy queues.
    pub(super) fn leave(&mut self, id: QueueId) {
        let queue = self.queues.at_mut(id);
        assert!(queue.busy, "a queue that leaves was busy");
        let holds = queue.sync && !queue.is_unattended() && queue.intensity.works;
        match &mut self.fair {
            Some(fair) => fair.end(id, holds && queue.in_driver > 0),
            None => self.trees.deactivate(id),
        }
        queue.busy = false;
        self.busy[queue.class as usize] -= 1;
        self.groups.busy -= u32::from(queue.group != Group::ROOT);
        self.raised_busy -= u32::from(queue.raising.is_raised());
        self.merging.emptied(id);
        self.uncount_if_gone(id);
    }

    /// Stops counting the queue's weight, and the queue in its group, if it has no request queued
    /// or in flight.
    pub(super) fn uncount_if_gone(&mut self, id: QueueId) {
        let queue = self.queues.at_mut(id);
        if queue.busy || queue.in_driver > 0 {
            return;
        }
        if let Some(weight) = queue.counted.take() {
            self.weights.remove(weight);
        }
        if self.queues.at(id).in_group {
            self.leave_group(id);
        }
    }
}

/// Factor by which the sectors of background writes are charged.
const ASYNC_FACTOR: u64 = 3;

/// Duration of a slot above which the sectors that it transferred show whether its queue is slow,
/// without the queue's access pattern.
const SLOT_LONG: Span = Span::millis(20);

/// Duration in nanoseconds below which a slot is too short for a measurement.
const SHORT_NS: u64 = 1_000_000;

/// Time that is charged on flash for a slot that is too short for a measurement.
const NOMINAL_ON_FLASH: Span = Span::millis(2);

#[cfg(test)]
mod tests {
    use weft_units::{ClientId, Sectors};

    use super::*;
    use crate::contract::input::{Attr, Class, Origin};
    use crate::contract::member::DeviceTraits;
    use crate::knobs::BfqKnobs;
    use crate::sched::request::{Direction, QueuedRequest, Receipt};

    const MS: u64 = 1_000_000;

    /// A scheduler for a flash device, and its clients, each with the number of its queue.
    struct Rig {
        bfq: Bfq,
        inserted: u64,
    }

    impl Rig {
        fn new() -> Self {
            let knobs = BfqKnobs { low_latency: false, ..BfqKnobs::default() };
            let bfq = Bfq::new(knobs, Sectors(1024), DeviceTraits::default());
            Self { bfq, inserted: 0 }
        }

        /// Inserts a read of a client.
        fn read(&mut self, client: u32, attr: Attr, at: u64) {
            let origin = Origin::Client(ClientId(client), attr.origin.group());
            self.insert(Direction::Read, Attr { origin, ..attr }, at);
        }

        fn insert(&mut self, direction: Direction, attr: Attr, at: u64) {
            self.inserted += 1;
            let request = QueuedRequest {
                id: self.inserted,
                direction,
                attr,
                first: Sectors(self.inserted << 20),
                len: Sectors(8),
                discard: false,
                merges: false,
            };
            self.bfq.insert(&request, Time(at));
        }

        fn dispatch(&mut self, at: u64) -> Option<Receipt> {
            self.bfq.dispatch(Time(at)).map(|sent| sent.receipt)
        }

        fn expired(&self, reason: ExpireReason) -> u64 {
            self.bfq.stats().expired[reason as usize]
        }
    }

    fn weight(weight: u16) -> Attr {
        Attr { weight, ..Attr::NONE }
    }

    /// Client 0, of weight 80, has its one request in flight, and client 1, of weight 40, waits.
    fn kept_for_the_first() -> (Rig, Receipt) {
        let mut rig = Rig::new();
        rig.read(0, weight(80), 0);
        rig.read(1, weight(40), 0);
        let receipt = rig.dispatch(0).expect("a request is queued");
        assert_eq!(rig.bfq.in_service(), Some(QueueId(0)));
        assert_eq!(rig.dispatch(0), None, "the member is kept for it");
        (rig, receipt)
    }

    #[test]
    fn a_queue_for_which_the_member_was_idle_in_vain_is_too_idle_and_not_out_of_time() {
        let (mut rig, receipt) = kept_for_the_first();
        rig.bfq.completed(receipt, Time(MS));
        assert!(rig.dispatch(9 * MS).is_some(), "of the other one");
        assert_eq!(rig.expired(ExpireReason::TooIdle), 1);
        assert_eq!(rig.expired(ExpireReason::BudgetTimeout), 0);
        let (first, least) = (16_384 * 2 / 3, 16_384 / 32);
        assert_eq!(rig.bfq.queues.at(QueueId(0)).own_budget, first - 4 * least);
        // The time of the slot, 125 ms, ends first.
        let (mut rig, receipt) = kept_for_the_first();
        rig.bfq.completed(receipt, Time(120 * MS));
        assert!(rig.dispatch(128 * MS).is_some());
        assert_eq!(rig.expired(ExpireReason::TooIdle), 0);
        assert_eq!(rig.expired(ExpireReason::BudgetTimeout), 1);
    }

    #[test]
    fn a_slot_ends_with_its_time_even_if_requests_wait() {
        let mut rig = Rig::new();
        (0..3).for_each(|_| rig.read(0, Attr::NONE, 0));
        assert!(rig.dispatch(0).is_some() && rig.dispatch(124 * MS).is_some());
        assert_eq!(rig.expired(ExpireReason::BudgetTimeout), 0);
        assert!(rig.dispatch(125 * MS).is_some());
        assert_eq!(rig.expired(ExpireReason::BudgetTimeout), 1);
    }

    #[test]
    fn within_a_group_the_weights_of_its_clients_decide_which_preempts() {
        let group = |weight| Attr {
            weight,
            origin: Origin::Client(ClientId(0), Group::new(1).expect("a valid number")),
            ..Attr::NONE
        };
        let mut rig = Rig::new();
        rig.read(0, group(40), 0);
        assert!(rig.dispatch(0).is_some());
        rig.read(2, group(10), 1);
        assert_eq!(rig.expired(ExpireReason::Preempted), 0, "the member is kept for 40 of 50");
        rig.read(1, group(80), 1);
        assert_eq!(rig.expired(ExpireReason::Preempted), 1);
    }

    #[test]
    fn queues_of_two_classes_are_not_served_in_turn() {
        let mut rig = Rig::new();
        rig.read(0, Attr::NONE, 0);
        let number = rig.bfq.queues.ids().next().expect("the client has a queue");
        assert!(!rig.bfq.is_asymmetric(number));
        rig.read(1, Attr { class: Class::RealTime(4), ..Attr::NONE }, 0);
        assert!(!rig.bfq.weights.differ() && rig.bfq.is_asymmetric(number));
    }

    #[test]
    fn a_queue_has_used_little_while_a_third_of_its_budget_is_left() {
        let (mut rig, _) = kept_for_the_first();
        let (id, trees) = (QueueId(0), &mut rig.bfq.trees);
        trees.set_budget(id, 304);
        trees.charge(id, 203 - trees.service(id));
        assert!(rig.bfq.has_used_little(id), "101 of 304");
        rig.bfq.trees.charge(id, 1);
        assert!(!rig.bfq.has_used_little(id), "100 of 304");
    }

    #[test]
    fn a_long_slot_is_paid_in_sectors_if_half_of_the_largest_budget_was_served() {
        for (served, charged) in [(8_192, 8_192), (8_191, 13_107)] {
            let (mut rig, _) = kept_for_the_first();
            let (id, trees) = (QueueId(0), &mut rig.bfq.trees);
            trees.set_budget(id, 16_384);
            trees.charge(id, served - trees.service(id));
            rig.bfq.charge_time(id, ExpireReason::NoMoreRequests, Span::millis(100));
            assert_eq!(rig.bfq.trees.service(id), charged);
        }
    }

    #[test]
    fn a_weight_counts_until_the_last_request_of_its_queue_has_completed() {
        let mut rig = Rig::new();
        let write_back = Attr { background: true, ..weight(80) };
        rig.insert(Direction::Write, write_back, 0);
        let receipt = rig.dispatch(0).expect("a request is queued");
        rig.read(1, weight(40), 0);
        assert_eq!(rig.dispatch(0).map(|receipt| receipt.0), Some(1), "the read");
        assert!(!rig.bfq.queues.at(QueueId(0)).busy && rig.bfq.weights.differ(), "in flight");
        rig.bfq.completed(receipt, Time(MS));
        assert!(!rig.bfq.weights.differ());
    }

    #[test]
    fn a_group_competes_until_the_last_request_of_its_clients_has_completed() {
        let mut rig = Rig::new();
        let origin = Origin::Client(ClientId(0), Group::new(1).expect("a valid number"));
        let write_back = Attr { background: true, origin, ..Attr::NONE };
        rig.insert(Direction::Write, write_back, 0);
        let receipt = rig.dispatch(0).expect("a request is queued");
        rig.read(1, Attr::NONE, 0);
        assert!(rig.dispatch(0).is_some() && rig.bfq.groups_compete());
        rig.bfq.completed(receipt, Time(MS));
        assert!(!rig.bfq.groups_compete());
    }

    #[test]
    fn the_idle_class_keeps_its_slot_while_it_is_alone() {
        let mut rig = Rig::new();
        let idle = Attr { class: Class::Idle, ..Attr::NONE };
        (0..3).for_each(|_| rig.read(0, idle, 0));
        assert!(rig.dispatch(0).is_some());
        let first = rig.bfq.in_service();
        assert!(first.is_some());
        rig.read(1, idle, 1);
        assert!(rig.dispatch(1).is_some());
        assert_eq!(rig.expired(ExpireReason::BudgetExhausted), 1, "after each request");
    }

    #[test]
    fn requests_that_wait_for_an_idle_period_count_as_withheld() {
        let (mut rig, _) = kept_for_the_first();
        rig.bfq.on_full_member(Time(5 * MS));
        assert_eq!(rig.bfq.stats().withheld, Span::millis(5));
        let mut empty = Rig::new();
        assert_eq!(empty.dispatch(0), None);
        empty.bfq.on_full_member(Time(5 * MS));
        assert_eq!(empty.bfq.stats().withheld, Span::ZERO);
    }

    #[test]
    fn only_the_budget_of_a_queue_that_waits_follows_its_next_request() {
        let (mut rig, _) = kept_for_the_first();
        let active = [0, 1].map(|queue| rig.bfq.trees.is_active(QueueId(queue)));
        assert_eq!(active, [false, true]);
        for queue in [0, 1].map(QueueId) {
            rig.bfq.queues.at_mut(queue).own_budget = 4;
            rig.bfq.trees.set_budget(queue, 100);
            rig.bfq.on_head_change(queue);
        }
        let budgets = [0, 1].map(|queue| rig.bfq.trees.budget(QueueId(queue)));
        assert_eq!(budgets, [100, 8]);
    }
}
