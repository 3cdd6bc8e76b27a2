//! Wakers: queues for which another queue waits before it issues its next request.
//!
//! A journal waits for the data of a client, and a client in fsync waits for the journal. While the
//! member is kept idle for one of them, the request that it waits for may be in the queue of the
//! other, so that the idle time is lost. Therefore, when a queue with a long think time gets a
//! request, the queue of the last completion before that request is noted as a candidate. A
//! candidate that is noted three times in succession becomes the waker. Requests of the waker are
//! dispatched while the member is kept idle for the queue that it wakes, regardless of the
//! injection limit. The same holds for requests of the queue that the queue in service was most
//! recently found to wake.
//!
//! Inputs   each request of a sync queue with a long think time, and the last completion before it
//! Answer   [`Bfq::coupled_queue`]: the queue to dispatch from meanwhile
//! Knob     `waker` (flag, default 0: there was none when patch 003 was written; Linux has had it
//!          since 2019)
//! Source   io-schedulers.md §2.7, §2.9
//! Measured two clients of weights 80 and 40 that wait for one another, beside a third one, 1 ms a
//!          request: 654 requests a second, 389 without (tests below)

use weft_units::{Span, Time};

use super::QueueId;
use super::scheduler::Bfq;

/// The last request that a member completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LastCompletion {
    /// Queue that the request belonged to.
    pub(super) queue: QueueId,
    /// Whether `queue` serves several processes.
    pub(super) shared: bool,
    pub(super) at: Time,
}

/// Search for the waker of a queue, which is another queue that this queue waits for, and the
/// result of the search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WakerSearch {
    found: Option<QueueId>,
    candidate: Option<QueueId>,
    hits: u32,
    since: Time,
}

impl WakerSearch {
    pub(super) fn waker(&self) -> Option<QueueId> {
        self.found
    }

    /// Handles a request of `queue`, which has a long think time and had no request before. `last`
    /// is the last completion before the request.
    pub(super) fn woke(
        &mut self,
        queue: QueueId,
        last: Option<LastCompletion>,
        slice_idle: Span,
        now: Time,
    ) {
        let Some(last) = last.filter(|last| {
            last.queue != queue && !last.shared && now.since(last.at) < WOKEN_WITHIN
        }) else {
            return;
        };
        if self.found == Some(last.queue) {
            return;
        }
        let patience = Span(slice_idle.0.saturating_mul(PATIENCE));
        if self.candidate == Some(last.queue) && now.since(self.since) <= patience {
            self.hits += 1;
        } else {
            (self.candidate, self.hits, self.since) = (Some(last.queue), 1, now);
        }
        if self.hits >= HITS {
            (self.found, self.candidate, self.hits) = (Some(last.queue), None, 0);
        }
    }

    /// Takes over the waker that the search `of` found, because the queue of `of` is merged into
    /// `queue`, the queue of this search.
    pub(super) fn inherit(&mut self, queue: QueueId, of: Self) {
        if self.found.is_none() && of.found != Some(queue) {
            self.found = of.found;
        }
    }

    /// Removes a queue that no longer exists, because its number may be reused.
    pub(super) fn forget(&mut self, queue: QueueId) {
        if self.found == Some(queue) {
            self.found = None;
        }
        if self.candidate == Some(queue) {
            (self.candidate, self.hits) = (None, 0);
        }
    }
}

impl Bfq {
    /// Looks for the waker of a sync queue that was empty and has got a request.
    pub(super) fn look_for_waker(&mut self, id: QueueId, now: Time) {
        let (last, slice_idle) = (self.last_completion, self.knobs.slice_idle);
        let queue = self.queues.at_mut(id);
        if !queue.think.is_long() {
            return;
        }
        let before = queue.waker.waker();
        queue.waker.woke(id, last, slice_idle, now);
        if let Some(waker) = queue.waker.waker().filter(|found| Some(*found) != before) {
            self.queues.at_mut(waker).woken = Some(id);
            self.stats.wakers += 1;
        }
    }

    /// Queue from which to dispatch while the member is kept idle for `kept_for`: the waker of
    /// `kept_for`, or else the queue that `kept_for` wakes, if the next request of that queue may
    /// be dispatched. `None` if there is no such queue.
    pub(super) fn coupled_queue(&self, kept_for: QueueId) -> Option<QueueId> {
        let queue = self.queues.at(kept_for);
        let woken = queue.woken.filter(|id| self.queues.at(*id).waker.waker() == Some(kept_for));
        [queue.waker.waker(), woken].into_iter().flatten().find(|id| {
            let fits = |charge| charge <= self.trees.budget_left(*id);
            self.trees.is_active(*id) && self.charge_of_head(*id).is_some_and(fits)
        })
    }
}

/// Longest time from a completion to a request for the completion to count as the wake-up.
const WOKEN_WITHIN: Span = Span::millis(4);
/// Number of times in succession that a queue must be noted as a candidate to become the waker.
const HITS: u32 = 3;
/// Longest time in which a candidate must be noted [`HITS`] times to become the waker, as a
/// multiple of `slice_idle`.
const PATIENCE: u64 = 128;

#[cfg(test)]
mod tests {
    use weft_units::{ClientId, Group, Sectors};

    use super::super::BfqStats;
    use super::*;
    use crate::contract::input::{Attr, Origin};
    use crate::contract::member::DeviceTraits;
    use crate::knobs::BfqKnobs;
    use crate::sched::request::{Direction, QueuedRequest, Receipt};

    const ME: QueueId = QueueId(0);
    const SLICE_IDLE: Span = Span::millis(8);

    fn at(millis: u64) -> Time {
        Time(0) + Span::millis(millis)
    }

    /// Runs `completions`, each a queue and a time, `after` ms before the waiting queue gets a
    /// request. Returns the waker that is found.
    fn waker(completions: &[(u32, u64)], after: u64, shared: bool) -> Option<QueueId> {
        let mut search = WakerSearch::default();
        for (queue, millis) in completions {
            let last = LastCompletion { queue: QueueId(*queue), shared, at: at(*millis) };
            search.woke(ME, Some(last), SLICE_IDLE, at(millis + after));
        }
        search.waker()
    }

    #[test]
    fn three_times_in_a_row_make_a_waker() {
        assert_eq!(waker(&[(5, 0), (5, 20)], 3, false), None);
        assert_eq!(waker(&[(5, 0), (5, 20), (5, 40)], 3, false), Some(QueueId(5)));
        assert_eq!(waker(&[(5, 0), (6, 20), (5, 40), (5, 60)], 3, false), None, "6 was between");
    }

    #[test]
    fn a_queue_that_is_forgotten_is_neither_a_candidate_nor_a_waker() {
        for (forgotten, expected) in [(5, None), (6, Some(QueueId(5)))] {
            let mut search = WakerSearch::default();
            for millis in [0, 20, 40] {
                if millis == 40 {
                    search.forget(QueueId(forgotten));
                }
                let last = LastCompletion { queue: QueueId(5), shared: false, at: at(millis) };
                search.woke(ME, Some(last), SLICE_IDLE, at(millis + 3));
            }
            assert_eq!(search.waker(), expected, "{forgotten}");
            search.forget(QueueId(5));
            assert_eq!(search.waker(), None);
        }
    }

    #[test]
    fn late_shared_and_own_completions_give_no_waker() {
        let three = [(5, 0), (5, 20), (5, 40)];
        assert_eq!(waker(&three, 4, false), None, "4 ms are too late");
        assert_eq!(waker(&three, 3, true), None, "a shared queue belongs to no process");
        assert_eq!(waker(&[(0, 0), (0, 20), (0, 40)], 3, false), None, "its own completions");
        let mut search = WakerSearch::default();
        search.woke(ME, None, SLICE_IDLE, at(0));
        assert_eq!(search, WakerSearch::default());
    }

    #[test]
    fn a_candidate_has_128_slice_idle_to_prove_itself() {
        assert_eq!(waker(&[(5, 0), (5, 500), (5, 1024)], 0, false), Some(QueueId(5)));
        assert_eq!(waker(&[(5, 0), (5, 500), (5, 1025)], 0, false), None);
    }

    #[test]
    fn another_queue_takes_the_wakers_place_and_a_gone_one_leaves_it() {
        let other = [(5, 0), (5, 20), (5, 40), (6, 60), (6, 80), (5, 90), (6, 100)];
        assert_eq!(waker(&other, 1, false), Some(QueueId(6)), "the current waker is no candidate");
        let mut search = WakerSearch::default();
        let last = LastCompletion { queue: QueueId(5), shared: false, at: at(0) };
        (0..3).for_each(|_| search.woke(ME, Some(last), SLICE_IDLE, at(1)));
        assert_eq!(search.waker(), Some(QueueId(5)));
        search.forget(QueueId(5));
        assert_eq!(search.waker(), None);
    }

    fn knobs(waker: bool) -> BfqKnobs {
        BfqKnobs { low_latency: false, waker, ..BfqKnobs::default() }
    }

    /// Runs two clients for ten seconds, each of which issues a request 0.1 ms after the other's
    /// request completes, beside a third client that is always backlogged. Returns the number of
    /// requests completed for the two, and BFQ's counters.
    fn in_turns(knobs: BfqKnobs) -> (u64, BfqStats) {
        let mut bfq = Bfq::new(knobs, Sectors(1024), DeviceTraits::default());
        let insert = |bfq: &mut Bfq, client: u32, id: u64, now: Time| {
            let weight = [80, 40, 20][client as usize];
            let origin = Origin::Client(ClientId(client), Group::ROOT);
            let request = QueuedRequest {
                id: id << 2 | u64::from(client),
                direction: Direction::Read,
                attr: Attr { weight, origin, ..Attr::NONE },
                first: Sectors(u64::from(client) << 30 | (id % (1 << 20)) << 4),
                len: Sectors(8),
                discard: false,
                merges: false,
            };
            bfq.insert(&request, now);
        };
        let (mut now, mut turns, mut id) = (Time(0), 0, 0);
        insert(&mut bfq, 0, id, now);
        (0..4).for_each(|n| insert(&mut bfq, 2, 1_000 + n, now));
        // Next request and its time, and the request at the member.
        let mut next: Option<(Time, u32)> = None;
        let mut at_member: Option<(Time, u32, Receipt)> = None;
        while now < Time(0) + Span::secs(10) {
            if let Some((_, client)) = next.filter(|(at, _)| *at <= now) {
                id += 1;
                insert(&mut bfq, client, id, now);
                next = None;
            }
            if at_member.is_none() {
                let sent = bfq.dispatch(now);
                at_member = sent.map(|it| (now + Span::millis(1), it.id as u32 & 3, it.receipt));
            }
            let times = [next.map(|it| it.0), at_member.map(|it| it.0), bfq.next_wake()];
            now = times.into_iter().flatten().min().expect("an event is pending").max(now);
            if let Some((_, client, receipt)) = at_member.filter(|(at, ..)| *at <= now) {
                at_member = None;
                bfq.completed(receipt, now);
                if client == 2 {
                    id += 1;
                    insert(&mut bfq, 2, id, now);
                } else {
                    turns += 1;
                    next = Some((now + Span(100_000), 1 - client));
                }
            }
        }
        (turns, *bfq.stats())
    }

    #[test]
    fn clients_that_wait_for_one_another_do_not_wait_for_the_end_of_plugging() {
        let (without, stats) = in_turns(knobs(false));
        assert_eq!(stats.wakers, 0, "not looked for");
        let (with, stats) = in_turns(knobs(true));
        assert_eq!(stats.wakers, 2, "each of the two is found once");
        assert!(with > without * 3 / 2, "{without} requests without, {with} with");
    }

    #[test]
    fn a_waker_is_inherited_unless_it_is_the_queue_itself_or_another_is_known() {
        let found = |found| WakerSearch { found, ..WakerSearch::default() };
        for (before, of, expected) in [
            (None, Some(QueueId(5)), Some(QueueId(5))),
            (None, Some(ME), None),
            (Some(QueueId(6)), Some(QueueId(5)), Some(QueueId(6))),
        ] {
            let mut search = found(before);
            search.inherit(ME, found(of));
            assert_eq!(search.waker(), expected);
        }
    }
}
