//! Injection: dispatch of other queues' requests while the member is kept idle for an empty queue.
//!
//! A member that is kept idle wastes time, and on flash one more request hardly slows down the
//! next. The number of requests that may be in flight during that time is found by measurement: the
//! time from arrival to completion of the first request after a pause is measured without other
//! requests at the member (the baseline), and with injected requests. If the time with injection is
//! below one and a half times the baseline the limit is raised by one; otherwise it is lowered by
//! one. The first baseline sets the limit to one. Every second the measurement restarts, with a
//! limit of one for sources with a long think time and of zero for others.
//!
//! An injected request is charged to its own queue.
//!
//! Inputs   first requests of the queue in service, injections, completions
//! Answer   [`Injection::limit`]: requests in flight up to which others are injected
//! Source   io-schedulers.md §2.8

use weft_units::{Sectors, Span, Time};

use super::QueueId;
use super::request_pool::RequestId;
use super::scheduler::Bfq;

/// Limit on the requests that are injected while the member is kept idle for a queue, and the
/// measurements behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Injection {
    limit: u32,
    /// Service time of the first request after a pause of the queue, measured while the member had
    /// no other request; `None` until measured.
    baseline: Option<Span>,
    /// Last time at which the limit was lowered or the measurement restarted.
    lowered: Time,
}

/// Measurement in progress of the time that the first request after a pause takes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InjectionSample {
    /// Time at which the first request after a pause of the queue arrived.
    since: Time,
    /// Whether the first request after the pause is still queued.
    queued: bool,
    /// First request after the pause, while it is in flight at the member; `None` before it is
    /// dispatched and after it has completed.
    watched: Option<RequestId>,
    /// Whether a request of another queue was injected ahead of the first request after the pause.
    injected: bool,
    /// Largest number of requests in flight at the member at any dispatch from a queue in service
    /// so far. Later measurements keep it.
    most: u32,
}

impl Injection {
    pub(super) const fn new(now: Time) -> Self {
        Self { limit: 0, baseline: None, lowered: now }
    }

    /// Number of requests in flight below which requests of other queues are injected.
    pub(super) const fn limit(&self) -> u32 {
        self.limit
    }

    fn begin_anew(&mut self, thinks_long: bool, now: Time) {
        *self = Self { limit: u32::from(thinks_long), baseline: None, lowered: now };
    }

    /// Adjusts the limit after a first request that took `took`. `injected` tells whether other
    /// requests were injected, and `alone` whether no other request was in flight; `most` is the
    /// largest number in flight.
    fn learn(&mut self, took: Span, injected: bool, alone: bool, most: u32, now: Time) {
        let before = self.limit;
        if let Some(baseline) = self.baseline.filter(|_| injected) {
            if took.0 * 2 >= baseline.0 * 3 {
                if before > 0 {
                    self.limit -= 1;
                    self.lowered = now;
                }
            } else if before <= most {
                self.limit += 1;
            }
        }
        match self.baseline {
            None if alone => {
                self.limit = before.max(1);
                self.baseline = Some(took);
            }
            Some(baseline) if took < baseline || !injected && alone => self.baseline = Some(took),
            _ => {}
        }
    }
}

impl Bfq {
    /// Handles the first request of a sync queue that had been empty: resets the injection limit of
    /// the queue if that is due, and may start a measurement if the queue is in service. The member
    /// must have no other request in flight then, unless a baseline is known and requests were
    /// injected.
    pub(super) fn on_first_request(&mut self, id: QueueId, now: Time) {
        let in_service = self.in_service() == Some(id);
        let queue = self.queues.at_mut(id);
        let injection = &mut queue.injection;
        if now >= injection.lowered + PERIOD {
            injection.begin_anew(queue.think.is_long(), now);
            self.sample.watched = self.sample.watched.filter(|_| !in_service);
        }
        let measurable =
            self.in_driver == 0 || injection.baseline.is_some() && self.sample.injected;
        if in_service && measurable && now >= injection.lowered + SAMPLING {
            self.sample.since = now;
            self.sample.queued = true;
        }
    }

    /// Begins to watch the request that is being dispatched, if it is the first one of the queue in
    /// service after a pause: its completion ends the measurement.
    pub(super) fn watch_if_first(&mut self, request: RequestId) {
        self.sample.most = self.sample.most.max(self.in_driver);
        if std::mem::take(&mut self.sample.queued) {
            self.sample.watched = Some(request);
        }
    }

    /// Evaluates the measurement if the completed request is the watched one. Called while the
    /// request still counts as in flight.
    pub(super) fn learn_if_watched(&mut self, request: RequestId, id: QueueId, now: Time) {
        if self.sample.watched != Some(request) {
            return;
        }
        let InjectionSample { since, injected, most, .. } = self.sample;
        let alone = self.in_driver == 1;
        self.queues.at_mut(id).injection.learn(now.since(since), injected, alone, most, now);
        (self.sample.watched, self.sample.injected) = (None, false);
    }

    /// Ends the measurement of a first request when another queue enters service.
    pub(super) fn end_sample(&mut self) {
        self.sample = InjectionSample { most: self.sample.most, ..InjectionSample::default() };
    }

    /// Queue from which to inject a request while the member is kept idle for the queue `kept_for`;
    /// `None` if no request may be injected.
    pub(super) fn injected_queue(&mut self, kept_for: QueueId) -> Option<QueueId> {
        if self.knobs.waker
            && let Some(coupled) = self.coupled_queue(kept_for)
        {
            self.sample.injected = true;
            self.stats.injected += 1;
            return Some(coupled);
        }
        let facts = self.idle_facts(kept_for);
        let bears = !facts.raised || self.raised_busy > 1 || facts.thinks_long;
        if facts.boosts_throughput() || !bears {
            return None;
        }
        let limit = self.queues.at(kept_for).injection.limit();
        if self.in_driver >= limit {
            return None;
        }
        let always = !facts.raised || facts.thinks_long;
        let injected = self.trees.active().find(|id| {
            let queue = self.queues.at(*id);
            let Some(charge) = self.charge_of_head(*id) else { return false };
            let head = queue.backlog.head.expect("a queue with a charge has a head");
            let large = !self.rotational && self.pool.at(head).len >= LARGE_ON_FLASH;
            (always || queue.raising.is_raised())
                && charge <= self.trees.budget_left(*id)
                && !(large && self.in_driver > 0)
        })?;
        self.sample.injected = true;
        self.stats.injected += 1;
        Some(injected)
    }
}

/// Time after which the measurement of the injection limit restarts.
const PERIOD: Span = Span::secs(1);

/// Shortest time between lowering the injection limit and the next measurement.
const SAMPLING: Span = Span::millis(10);

/// Length from which a request is not injected on flash while another request is in flight.
const LARGE_ON_FLASH: Sectors = Sectors(64);

#[cfg(test)]
mod tests {
    use weft_units::{ClientId, Group};

    use super::super::waker::LastCompletion;
    use super::*;
    use crate::contract::input::{Attr, Origin};
    use crate::contract::member::DeviceTraits;
    use crate::knobs::BfqKnobs;
    use crate::sched::request::{Direction, QueuedRequest};

    const US: u64 = 1000;

    #[test]
    fn statement_b27_the_limit_follows_the_time_of_first_requests() {
        let mut queue = Injection::new(Time(0));
        queue.learn(Span(100 * US), false, true, 8, Time(1));
        assert_eq!((queue.limit, queue.baseline), (1, Some(Span(100 * US))));
        for limit in 2..=5 {
            queue.learn(Span(149 * US), true, false, 8, Time(2));
            assert_eq!(queue.limit, limit);
        }
        queue.learn(Span(150 * US), true, false, 8, Time(3));
        assert_eq!((queue.limit, queue.lowered), (4, Time(3)));
        for _ in 0..9 {
            queue.learn(Span(200 * US), true, false, 8, Time(4));
        }
        assert_eq!(queue.limit, 0);
        for _ in 0..20 {
            queue.learn(Span(120 * US), true, false, 8, Time(5));
        }
        assert_eq!(queue.limit, 9, "one more than the member ever had");
        queue.learn(Span(80 * US), true, false, 8, Time(6));
        assert_eq!(queue.baseline, Some(Span(80 * US)), "faster than alone");
        queue.learn(Span(90 * US), false, true, 8, Time(7));
        assert_eq!(queue.baseline, Some(Span(90 * US)), "measured anew");
        queue.begin_anew(false, Time(8));
        assert_eq!((queue.limit, queue.baseline), (0, None));
        queue.begin_anew(true, Time(9));
        assert_eq!(queue.limit, 1);
    }

    const A: QueueId = QueueId(0);
    const B: QueueId = QueueId(1);

    /// A scheduler for a flash device. Client 0, of weight 80, has its one request in flight, and
    /// the member is kept for it, with room for injection; client 1, of weight 40, has a request of
    /// `len` sectors.
    fn kept_for_the_first(len: u64, waker: bool) -> Bfq {
        let knobs = BfqKnobs { low_latency: false, waker, ..BfqKnobs::default() };
        let mut bfq = Bfq::new(knobs, Sectors(1024), DeviceTraits::default());
        for (client, weight, len) in [(0, 80, 8), (1, 40, len)] {
            let origin = Origin::Client(ClientId(client), Group::ROOT);
            let request = QueuedRequest {
                id: client.into(),
                direction: Direction::Read,
                attr: Attr { weight, origin, ..Attr::NONE },
                first: Sectors(u64::from(client) << 20),
                len: Sectors(len),
                discard: false,
                merges: false,
            };
            bfq.insert(&request, Time(0));
        }
        assert!(bfq.dispatch(Time(0)).is_some() && bfq.in_service() == Some(A));
        assert_eq!(bfq.injected_queue(A), None, "the limit is none in flight");
        bfq.queues.at_mut(A).injection.limit = 4;
        bfq
    }

    #[test]
    fn a_small_request_within_the_budget_of_its_queue_is_injected_and_counted() {
        let mut bfq = kept_for_the_first(8, false);
        bfq.stats.injected = 5;
        assert_eq!(bfq.injected_queue(A), Some(B));
        assert_eq!((bfq.stats.injected, bfq.sample.injected), (6, true));
        bfq.trees.set_budget(B, 7);
        assert_eq!(bfq.injected_queue(A), None, "its budget does not suffice");
        let mut large = kept_for_the_first(LARGE_ON_FLASH.0, false);
        assert_eq!(large.injected_queue(A), None, "while a request is in flight");
        large.in_driver = 0;
        assert_eq!(large.injected_queue(A), Some(B));
    }

    #[test]
    fn a_request_of_the_waker_is_injected_at_any_limit_and_counted() {
        let mut bfq = kept_for_the_first(8, true);
        (0..3).for_each(|_| {
            let last = LastCompletion { queue: B, shared: false, at: Time(0) };
            bfq.queues.at_mut(A).waker.woke(A, Some(last), Span::millis(8), Time(0));
        });
        bfq.queues.at_mut(A).injection.limit = 0;
        bfq.stats.injected = 5;
        assert_eq!(bfq.injected_queue(A), Some(B));
        assert_eq!((bfq.stats.injected, bfq.sample.injected), (6, true));
    }

    #[test]
    fn only_the_queue_in_service_is_measured_and_not_soon_after_the_limit_was_lowered() {
        let mut bfq = kept_for_the_first(8, false);
        for (queue, in_driver, millis, measured) in
            [(A, 0, 10, true), (A, 0, 9, false), (A, 1, 10, false), (B, 0, 10, false)]
        {
            (bfq.sample, bfq.in_driver) = (InjectionSample::default(), in_driver);
            bfq.on_first_request(queue, Time(0) + Span::millis(millis));
            assert_eq!(bfq.sample.queued, measured, "{queue:?} {in_driver} {millis}");
        }
    }

    #[test]
    fn a_measurement_ends_when_another_queue_enters_service() {
        let mut bfq = kept_for_the_first(8, false);
        let watched = Some(RequestId(0));
        bfq.sample =
            InjectionSample { since: Time(1), queued: true, watched, injected: true, most: 3 };
        bfq.end_sample();
        let InjectionSample { queued, watched, injected, most, .. } = bfq.sample;
        assert_eq!((queued, watched, injected, most), (false, None, false, 3));
    }
}
