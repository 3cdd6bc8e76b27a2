//! Request path of BFQ: insertion into a queue, dispatch to the member, completion.
//!
//! Inputs   [`QueuedRequest`]s, completions, the time
//! Answer   [`Bfq::dispatch`]: the next request, with all requests merged into it; none while
//!          the member is kept idle for a queue, until [`Bfq::next_wake`]
//! Knobs    [`BfqKnobs`]: the files of `queue/iosched/`; `max_sectors_kb`

use weft_units::{Sectors, Time};

use super::QueueId;
use super::budget::Budgets;
use super::burst::Bursts;
use super::fair_requests::FairRequests;
use super::groups::Groups;
use super::injection::InjectionSample;
use super::peak_rate::PeakRate;
use super::queue::{QueueKey, Queues};
use super::queue_merge::Merging;
use super::request_pool::{RequestId, RequestPool};
use super::service_tree::ServiceTrees;
use super::slot::Slot;
use super::stable_merge::StableMerge;
use super::stats::{BfqStats, ExpireReason};
use super::waker::LastCompletion;
use super::weights::WeightCounts;
use crate::contract::member::DeviceTraits;
use crate::knobs::{BfqKnobs, Fairness};
use crate::sched::request::{Dispatched, IoPriority, QueuedRequest, Receipt};

/// BFQ scheduler of one member.
#[derive(Clone, Debug)]
pub struct Bfq {
    pub(super) knobs: BfqKnobs,
    pub(super) rotational: bool,
    pub(super) queues: Queues,
    pub(super) pool: RequestPool,
    pub(super) trees: ServiceTrees,
    /// Fairness by requests, which replaces slots; `None` with `fairness=slots`.
    pub(super) fair: Option<Box<FairRequests>>,
    /// Slot of the queue in service; `None` if no queue is in service.
    pub(super) slot: Option<Slot>,
    pub(super) budgets: Budgets,
    pub(super) peak: PeakRate,
    /// Weights of the queues that have requests.
    pub(super) weights: WeightCounts,
    /// Number of busy queues per class.
    pub(super) busy: [u32; 3],
    pub(super) groups: Groups,
    pub(super) raised_busy: u32,
    /// Number of requests that wait for dispatch.
    pub(super) queued: u32,
    /// Number of requests in flight at the member.
    pub(super) in_driver: u32,
    pub(super) sample: InjectionSample,
    /// Last completion; updated only while the knob `waker` is set. `None` before the first one.
    pub(super) last_completion: Option<LastCompletion>,
    pub(super) merging: Merging,
    pub(super) stable: StableMerge,
    pub(super) bursts: Bursts,
    /// End of the request that was dispatched last.
    last_end: Sectors,
    /// Identifiers of the requests that are merged in the last dispatched request.
    sent: Vec<u64>,
    /// Time since which requests have been held back although the member had room; `None` if none
    /// are held back.
    withheld_since: Option<Time>,
    pub(super) stats: BfqStats,
}

impl Bfq {
    /// Creates a scheduler without requests, for a device with these traits. Merging makes no
    /// request larger than `max` (`max_sectors_kb`).
    #[must_use]
    pub fn new(knobs: BfqKnobs, max: Sectors, device: DeviceTraits) -> Self {
        // Fairness by requests gives strict shares, so no weight is raised.
        let low_latency = knobs.low_latency && knobs.fairness == Fairness::Slots;
        let knobs = BfqKnobs { low_latency, ..knobs };
        Self {
            knobs,
            rotational: device.rotational,
            queues: Queues::new(),
            pool: RequestPool::new(max),
            trees: ServiceTrees::new(),
            fair: (knobs.fairness == Fairness::Requests)
                .then(|| Box::new(FairRequests::new(&knobs.groups))),
            slot: None,
            budgets: Budgets::new(&knobs),
            peak: PeakRate::new(device.rotational),
            weights: WeightCounts::new(),
            busy: [0; 3],
            groups: Groups::default(),
            raised_busy: 0,
            queued: 0,
            in_driver: 0,
            sample: InjectionSample::default(),
            last_completion: None,
            merging: Merging::new(knobs.merge, device.rotational),
            stable: StableMerge::default(),
            bursts: Bursts::default(),
            last_end: Sectors::ZERO,
            sent: Vec::new(),
            withheld_since: None,
            stats: BfqStats::default(),
        }
    }

    /// Whether no request is queued. Requests in flight at the member do not count.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queued == 0
    }

    /// Number of queued requests. A request that was merged into another does not count.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queued as usize
    }

    /// Counters of decisions so far.
    #[must_use]
    pub fn stats(&self) -> &BfqStats {
        &self.stats
    }

    /// Number of queues that are backlogged or in service.
    pub(super) fn busy_queues(&self) -> u32 {
        self.busy.iter().sum()
    }

    /// Queues a request, or merges it into a queued one.
    pub fn insert(&mut self, request: &QueuedRequest, now: Time) {
        assert!(request.len > Sectors::ZERO, "a request has a length");
        self.on_time(now);
        let home = self.queue_for(request, now);
        let id = if self.queues.at(home).sync { self.route(home, request, now) } else { home };
        let queue = self.queues.at(id);
        if queue.sync && queue.is_empty() {
            if self.knobs.waker {
                self.look_for_waker(id, now);
            }
            self.on_first_request(id, now);
        }
        let queue = self.queues.at_mut(id);
        let expire =
            if queue.sync { self.knobs.fifo_expire_sync } else { self.knobs.fifo_expire_async };
        let inserted = self.pool.insert(&mut queue.backlog, id, request, now + expire);
        if inserted.merged > 0 {
            self.queued -= inserted.merged - 1;
            self.on_head_change(id);
            self.index_head(id, now);
            return;
        }
        self.queued += 1;
        let had_none = !queue.busy && queue.in_driver == 0;
        if had_none {
            queue.think.add(now.since(queue.ended), self.knobs.slice_idle);
        }
        queue.seeks.add(request.first, request.len, self.rotational);
        let before = queue.backlog.head;
        let head = before.map_or(inserted.id, |head| {
            self.pool.choose(head, inserted.id, self.last_end, &self.knobs)
        });
        queue.backlog.head = Some(head);
        let (sync, busy) = (queue.sync, queue.busy);
        if !busy {
            self.on_busy(id, now);
        } else if before != Some(head) {
            self.on_head_change(id);
        }
        if before != Some(head) {
            self.index_head(id, now);
        }
        if !sync && busy && self.knobs.low_latency {
            self.on_async_request(id, now);
        }
        self.on_arrival(id, now);
    }

    /// Queue for the source of a request. The queue is created if the source has none.
    fn queue_for(&mut self, request: &QueuedRequest, now: Time) -> QueueId {
        let (key, sync) = QueueKey::of(&request.attr, request.direction);
        self.queues.find(key).unwrap_or_else(|| {
            self.found_group(request.attr.origin.group(), now);
            let own_budget = self.budgets.first();
            let trees = &mut self.trees;
            let id = self.queues.create(key, request.attr, sync, own_budget, trees, now);
            if let Some(fair) = &mut self.fair {
                fair.know(id);
            }
            self.on_created(id, now);
            id
        })
    }

    /// Returns the next request for the member. `None` if no request is queued, if the member is
    /// kept idle for a queue, or if `strict_guarantees` permits no second request in flight.
    pub fn dispatch(&mut self, now: Time) -> Option<Dispatched> {
        let next = self.next(now);
        if next.is_none() && self.queued > 0 {
            self.withheld_since.get_or_insert(now);
        } else {
            self.on_full_member(now);
        }
        next
    }

    /// Ends the time in which waiting requests count as held back by the scheduler, because the
    /// member accepts no request at present.
    pub(crate) fn on_full_member(&mut self, now: Time) {
        if let Some(since) = self.withheld_since.take() {
            self.stats.withheld.0 += now.since(since).0;
        }
    }

    fn next(&mut self, now: Time) -> Option<Dispatched> {
        self.on_time(now);
        if self.queued == 0 && self.slot.is_none() {
            return None;
        }
        if self.knobs.strict_guarantees && self.in_driver > 0 {
            return None;
        }
        let queue = match &mut self.fair {
            Some(fair) => fair.next(now)?,
            None => self.select(now)?,
        };
        Some(self.dispatch_from(queue, now))
    }

    /// Dispatches the next request of the queue `id` to the member.
    fn dispatch_from(&mut self, id: QueueId, now: Time) -> Dispatched {
        let charge = self.charge_of_head(id).expect("a selected queue has a request");
        let queue = self.queues.at_mut(id);
        let head = queue.backlog.head.expect("a selected queue has a request");
        let look = !std::mem::replace(&mut queue.fifo_looked, true);
        queue.backlog.head = self.pool.following(&queue.backlog, head, look, &self.knobs, now);
        self.pool.take(&mut queue.backlog, head);
        queue.in_driver += 1;
        self.queued -= 1;
        let record = self.pool.at_mut(head);
        let (direction, first, len) = (record.direction, record.first, record.len);
        let name = self.pool.take_names(head, &mut self.sent);
        self.last_end = first + len;
        if self.peak.on_dispatch(first, len, self.in_driver, now) {
            self.budgets.on_rate(&self.peak, &self.knobs);
        }
        self.in_driver += 1;
        if self.in_service() == Some(id) {
            self.watch_if_first(head);
        }
        match &mut self.fair {
            Some(fair) => fair.dispatched(id, charge),
            None => self.trees.charge(id, charge),
        }
        self.on_service(id, first, len, now);
        self.on_dispatched(id, now);
        Dispatched { direction, receipt: Receipt(head.0), first, len, id: name }
    }

    fn on_dispatched(&mut self, id: QueueId, now: Time) {
        let queue = self.queues.at(id);
        if self.in_service() == Some(id) {
            if queue.class == IoPriority::Idle && self.busy_queues() > 1 {
                self.expire(ExpireReason::BudgetExhausted, now);
            }
        } else if queue.is_empty() {
            self.leave(id);
        } else {
            self.on_head_change(id);
        }
    }

    /// Identifiers of all requests that are merged in the last dispatched request.
    #[must_use]
    pub fn sent(&self) -> &[u64] {
        &self.sent
    }

    /// Reports that the member has completed the request with this receipt.
    pub fn completed(&mut self, receipt: Receipt, now: Time) {
        self.on_time(now);
        let request = RequestId(receipt.0);
        let id = self.pool.at(request).queue;
        self.pool.release(request);
        assert!(self.in_driver > 0, "a request is completed once");
        if self.peak.on_complete(now) {
            self.budgets.on_rate(&self.peak, &self.knobs);
        }
        self.learn_if_watched(request, id, now);
        self.sample_queueing();
        self.in_driver -= 1;
        let queue = self.queues.at_mut(id);
        queue.in_driver -= 1;
        queue.ended = now;
        if self.knobs.waker {
            let shared = queue.sharing.is_shared();
            self.last_completion = Some(LastCompletion { queue: id, shared, at: now });
        }
        if let Some(fair) = &mut self.fair {
            let thinks = queue.is_empty() && queue.in_driver == 0;
            fair.completed(id, thinks, self.knobs.slice_idle, now);
        }
        self.uncount_if_gone(id);
        if self.in_service() == Some(id) {
            self.on_completed_in_service(id, now);
        } else {
            self.on_drained(id, now);
        }
    }

    /// Time until which the member is kept idle for a queue; `None` if it is not kept idle for any.
    #[must_use]
    pub fn next_wake(&self) -> Option<Time> {
        match &self.fair {
            Some(fair) => fair.next_wake(),
            None => self.slot.as_ref().and_then(Slot::idles_until),
        }
    }

    /// Removes the first active queue from the service tree: a deliberate bug, which tests must
    /// detect.
    pub(crate) fn forget_first(&mut self) {
        let first = self.trees.active().next();
        if let Some(first) = first {
            self.trees.deactivate(first);
        }
    }

    /// Drops the queued requests as if they had never been inserted. Requests in flight are kept.
    pub(crate) fn clear_waiting(&mut self) {
        for id in self.queues.ids() {
            let queue = self.queues.at_mut(id);
            while let Some(request) = self.pool.oldest(&queue.backlog) {
                self.pool.take(&mut queue.backlog, request);
                self.pool.release(request);
            }
            queue.backlog.head = None;
            if queue.busy {
                if self.slot.as_ref().is_some_and(|slot| slot.queue == id) {
                    self.slot = None;
                }
                self.leave(id);
            }
        }
        self.pool.clear_names();
        self.queued = 0;
    }
}
