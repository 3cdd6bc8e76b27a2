//! mq-deadline: requests of a member sorted by place, with a bound on how long each waits.
//!
//! Requests of one direction go out in ascending order, in batches. Between two batches the
//! direction is chosen anew: reads, unless writes were passed over twice; and from the front of the
//! queue if the deadline of what waits there longest has passed, else where the last batch of this
//! direction ended.
//!
//! A request that begins where a queued one ends (or ends where one begins) becomes a part of it.
//!
//! Inputs   [`QueuedRequest`]s, the time
//! Answer   [`MqDeadline::dispatch`]: the next one, with everything that was merged into it
//! Knobs    [`MqDeadlineKnobs`]: those of `queue/iosched/`; `max_sectors_kb`
//! Source   io-schedulers.md §1; Linux `block/mq-deadline.c`, rules checked against 6.12
//! Measured as exact sequences (statements D1, D2, D4 to D7, D9 to D11 of io-schedulers.md §6)

use std::collections::BTreeMap;

use smallvec::{SmallVec, smallvec};
use weft_units::{Sectors, Time};

use super::request::{Direction, Dispatched, IoPriority, QueuedRequest, Receipt};
use crate::knobs::MqDeadlineKnobs;

/// The queue of one member.
#[derive(Clone, Debug)]
pub struct MqDeadline {
    settings: MqDeadlineKnobs,
    max: Sectors,
    per_prio: [Queues; 3],
    last_direction: Direction,
    batching: u32,
    starved: u32,
    arrivals: u64,
    /// The last one that was inserted or merged into: asked first, whatever `front_merges` says.
    last_merge: Option<Place>,
}

/// The requests of one level.
#[derive(Clone, Debug, Default)]
struct Queues {
    /// By direction.
    of: [Queue; 2],
    /// Inserted and not completed.
    queued: u64,
}

#[derive(Clone, Debug, Default)]
struct Queue {
    /// By where they begin; the arrival tells those apart that begin at one place.
    sorted: BTreeMap<(Sectors, u64), Queued>,
    /// Keys in `sorted` of mergeable requests, by the sector behind each.
    ends: BTreeMap<Sectors, (Sectors, u64)>,
    /// By deadline, then by arrival.
    fifo: BTreeMap<(Time, u64), (Sectors, u64)>,
    latest_pos: Sectors,
}

#[derive(Clone, Debug)]
struct Queued {
    len: Sectors,
    deadline: Time,
    /// Its place in the FIFO among those of one deadline.
    arrival: u64,
    merges: bool,
    ids: SmallVec<[u64; 4]>,
}

/// Place of a queued request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    level: IoPriority,
    direction: Direction,
    key: (Sectors, u64),
}

impl MqDeadline {
    /// An empty queue, whose requests become no larger than `max` by merging (`max_sectors_kb`).
    #[must_use]
    pub fn new(settings: MqDeadlineKnobs, max: Sectors) -> Self {
        Self {
            settings,
            max,
            per_prio: Default::default(),
            last_direction: Direction::Write,
            batching: 0,
            starved: 0,
            arrivals: 0,
            last_merge: None,
        }
    }

    /// Whether nothing is queued. What is at the member does not count.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.per_prio.iter().flat_map(|level| &level.of).all(|queue| queue.sorted.is_empty())
    }

    /// Number of queued requests. What was merged is a part of one.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.per_prio.iter().flat_map(|level| &level.of).map(|queue| queue.sorted.len()).sum()
    }

    /// Queues a request, or makes it a part of a queued one. Says whether it was merged.
    pub fn insert(&mut self, request: &QueuedRequest, now: Time) -> bool {
        assert!(request.len > Sectors::ZERO, "a request has a length");
        if request.merges && self.merge(request) {
            return true;
        }
        let expire = match request.direction {
            Direction::Read => self.settings.read_expire,
            Direction::Write => self.settings.write_expire,
        };
        let priority = IoPriority::of(request.attr.class);
        let level = &mut self.per_prio[priority as usize];
        level.queued += 1;
        let arrival = self.arrivals;
        self.arrivals += 1;
        let queued = Queued {
            len: request.len,
            deadline: now + expire,
            arrival,
            merges: request.merges,
            ids: smallvec![request.id],
        };
        let key = (request.first, arrival);
        level.of[request.direction as usize].put(key, queued);
        self.last_merge = Some(Place { level: priority, direction: request.direction, key });
        false
    }

    fn merge(&mut self, request: &QueuedRequest) -> bool {
        let max = self.max;
        let priority = IoPriority::of(request.attr.class);
        let level = &mut self.per_prio[priority as usize];
        let queue = &mut level.of[request.direction as usize];
        let count = queue.sorted.len();
        let fits = |queue: &Queue, key: (Sectors, u64)| {
            queue
                .sorted
                .get(&key)
                .is_some_and(|found: &Queued| found.merges && found.len + request.len <= max)
        };
        let back = queue.ends.get(&request.first).copied().filter(|key| fits(queue, *key));
        let end = request.first + request.len;
        let front = queue.sorted.range((end, 0)..=(end, u64::MAX)).next().map(|(key, _)| *key);
        let cached = self.last_merge.is_some_and(|last| {
            (last.level, last.direction) == (priority, request.direction) && Some(last.key) == front
        });
        let front = front.filter(|key| {
            (self.settings.front_merges || cached) && back.is_none() && fits(queue, *key)
        });
        let key = match (back, front) {
            (Some(key), _) => queue.grow_back(key, request, max),
            (None, Some(key)) => queue.grow_front(key, request, max),
            (None, None) => return false,
        };
        // Two that have become one.
        level.queued -= (count - queue.sorted.len()) as u64;
        self.last_merge = Some(Place { level: priority, direction: request.direction, key });
        true
    }

    /// The next request for the member.
    pub fn dispatch(&mut self, now: Time) -> Option<Dispatched> {
        let busy = self.per_prio.iter().filter(|level| level.queued > 0).count();
        if busy > 1
            && let Some(before) = now.0.checked_sub(self.settings.prio_aging_expire.0).map(Time)
        {
            for level in [IoPriority::BestEffort, IoPriority::Idle] {
                if let Some(dispatched) = self.pick(level, before, now) {
                    return Some(dispatched);
                }
            }
        }
        for level in [IoPriority::RealTime, IoPriority::BestEffort, IoPriority::Idle] {
            if let Some(dispatched) = self.pick(level, now, now) {
                return Some(dispatched);
            }
            // Also while it has requests at the member only: classes are strict.
            if self.per_prio[level as usize].queued > 0 {
                return None;
            }
        }
        None
    }

    /// A dispatched request is done.
    pub fn completed(&mut self, receipt: Receipt) {
        let queued = &mut self.per_prio[receipt.0 as usize].queued;
        assert!(*queued > 0, "a request is completed once");
        *queued -= 1;
    }

    /// When the oldest request of a lower class may go before those of a higher one, which keep it
    /// from the member until then; `None` when none is, or none will.
    #[must_use]
    pub fn next_wake(&self, now: Time) -> Option<Time> {
        let busy = self.per_prio.iter().filter(|level| level.queued > 0).count();
        if busy < 2 {
            return None;
        }
        let lower = &self.per_prio[IoPriority::BestEffort as usize..];
        let started = lower.iter().flat_map(|level| {
            let expires = [self.settings.read_expire, self.settings.write_expire];
            level.of.iter().zip(expires).filter_map(|(queue, expire)| {
                let ((deadline, _), _) = queue.fifo.first_key_value()?;
                Some(Time(deadline.0.saturating_sub(expire.0)))
            })
        });
        // One that is due and was not picked waits for whatever goes before it.
        started.map(|since| since + self.settings.prio_aging_expire).filter(|due| *due > now).min()
    }

    /// Forgets what is queued, as if it had never been inserted. What is at the member stays.
    pub(crate) fn clear_waiting(&mut self) {
        for level in &mut self.per_prio {
            let waiting: usize = level.of.iter().map(|queue| queue.sorted.len()).sum();
            assert!(level.queued >= waiting as u64, "what waits is counted");
            level.queued -= waiting as u64;
            for queue in &mut level.of {
                (queue.sorted, queue.ends) = (BTreeMap::new(), BTreeMap::new());
                queue.fifo = BTreeMap::new();
            }
        }
        self.last_merge = None;
    }

    /// The next one of a class that did not come after `latest_start`. Changes nothing if there is
    /// none.
    fn pick(&mut self, level: IoPriority, latest_start: Time, now: Time) -> Option<Dispatched> {
        let queues = &self.per_prio[level as usize];
        let of = |direction: Direction| &queues.of[direction as usize];
        let mut starved = self.starved;
        let follows = of(self.last_direction).next();
        let (direction, key, batching) = match follows {
            Some(key) if self.batching < self.settings.fifo_batch => {
                (self.last_direction, key, self.batching)
            }
            _ => {
                let (reads, writes) = (of(Direction::Read), of(Direction::Write));
                let direction = match (reads.fifo.is_empty(), writes.fifo.is_empty()) {
                    (true, true) => return None,
                    (false, true) => Direction::Read,
                    (true, false) => {
                        starved = 0;
                        Direction::Write
                    }
                    (false, false) if starved >= self.settings.writes_starved => {
                        starved = 0;
                        Direction::Write
                    }
                    (false, false) => {
                        starved += 1;
                        Direction::Read
                    }
                };
                let queue = of(direction);
                let ((deadline, _), oldest) = queue.fifo.first_key_value()?;
                let key = match queue.next() {
                    Some(next) if *deadline > now => next,
                    _ => *oldest,
                };
                (direction, key, 0)
            }
        };
        let expire = match direction {
            Direction::Read => self.settings.read_expire,
            Direction::Write => self.settings.write_expire,
        };
        let started = of(direction).sorted[&key].deadline.0.saturating_sub(expire.0);
        if started > latest_start.0 {
            return None;
        }
        (self.starved, self.last_direction, self.batching) = (starved, direction, batching + 1);
        let queue = &mut self.per_prio[level as usize].of[direction as usize];
        let queued = queue.take(key);
        queue.latest_pos = key.0;
        let place = Place { level, direction, key };
        if self.last_merge == Some(place) {
            self.last_merge = None;
        }
        let receipt = Receipt(level as u64);
        Some(Dispatched { direction, receipt, first: key.0, len: queued.len, ids: queued.ids })
    }
}

impl Queue {
    /// The first one where the last batch ended, or beyond.
    fn next(&self) -> Option<(Sectors, u64)> {
        self.sorted.range((self.latest_pos, 0)..).next().map(|(key, _)| *key)
    }

    fn put(&mut self, key: (Sectors, u64), queued: Queued) {
        assert!(!queued.ids.is_empty(), "a request is made of requests");
        if queued.merges {
            self.ends.insert(key.0 + queued.len, key);
        }
        self.fifo.insert((queued.deadline, queued.arrival), key);
        self.sorted.insert(key, queued);
    }

    fn take(&mut self, key: (Sectors, u64)) -> Queued {
        let queued = self.sorted.remove(&key).expect("what is named is queued");
        let end = key.0 + queued.len;
        if self.ends.get(&end) == Some(&key) {
            self.ends.remove(&end);
        }
        let listed = self.fifo.remove(&(queued.deadline, queued.arrival));
        assert_eq!(listed, Some(key), "what is queued is in the FIFO");
        queued
    }

    /// Adds a request to the end of a queued one, and the queued one that begins where both end.
    fn grow_back(
        &mut self,
        key: (Sectors, u64),
        request: &QueuedRequest,
        max: Sectors,
    ) -> (Sectors, u64) {
        let mut queued = self.take(key);
        queued.len += request.len;
        queued.ids.push(request.id);
        let end = key.0 + queued.len;
        let next = self.sorted.range((end, 0)..=(end, u64::MAX)).next().map(|(key, _)| *key);
        if let Some(next) = next
            && self.sorted[&next].merges
            && queued.len + self.sorted[&next].len <= max
        {
            let next = self.take(next);
            queued.swallow(next);
        }
        self.put(key, queued);
        key
    }

    /// Adds a request before a queued one, and both to the one that ends where they begin.
    fn grow_front(
        &mut self,
        key: (Sectors, u64),
        request: &QueuedRequest,
        max: Sectors,
    ) -> (Sectors, u64) {
        let mut queued = self.take(key);
        queued.len += request.len;
        queued.ids.insert(0, request.id);
        let mut key = (request.first, key.1);
        if let Some(before) = self.ends.get(&request.first).copied()
            && self.sorted[&before].len + queued.len <= max
        {
            let mut first = self.take(before);
            first.swallow(queued);
            (key, queued) = (before, first);
        }
        self.put(key, queued);
        key
    }
}

impl Queued {
    /// Takes over what follows, and its place in the FIFO if that is better.
    fn swallow(&mut self, next: Self) {
        assert!(self.merges && next.merges, "both may be merged");
        self.len += next.len;
        self.ids.extend(next.ids);
        if next.deadline < self.deadline {
            (self.deadline, self.arrival) = (next.deadline, next.arrival);
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_units::Span;

    use super::*;
    use crate::contract::input::{Attr, Class};

    const MAX: Sectors = Sectors(1024);

    fn request(id: u64, direction: Direction, first: u64, len: u64) -> QueuedRequest {
        let (first, len) = (Sectors(first), Sectors(len));
        QueuedRequest { id, direction, attr: Attr::NONE, first, len, merges: true }
    }

    fn at(millis: u64) -> Time {
        Time(0) + Span::millis(millis)
    }

    /// Dispatches everything and names it by direction and place.
    fn drain(queue: &mut MqDeadline, now: Time) -> Vec<(Direction, u64)> {
        std::iter::from_fn(|| queue.dispatch(now))
            .map(|next| (next.direction, next.first.0))
            .collect()
    }

    /// Lengths of the runs of one direction.
    fn runs(order: &[(Direction, u64)]) -> Vec<(Direction, usize)> {
        order.chunk_by(|a, b| a.0 == b.0).map(|run| (run[0].0, run.len())).collect()
    }

    fn backlogged(settings: MqDeadlineKnobs, count: u64, gap: u64) -> MqDeadline {
        let mut queue = MqDeadline::new(settings, MAX);
        for i in 0..count {
            queue.insert(&request(i, Direction::Read, 1000 + gap * i, 4), at(0));
            queue.insert(&request(100 + i, Direction::Write, 5000 + gap * i, 4), at(0));
        }
        queue
    }

    use Direction::{Read as R, Write as W};

    #[test]
    fn d1_and_d2_batches_alternate_as_in_linux() {
        let order = drain(&mut backlogged(MqDeadlineKnobs::default(), 40, 8), at(1));
        assert_eq!(runs(&order), [(W, 16), (R, 32), (W, 16), (R, 8), (W, 8)]);
        let settings = MqDeadlineKnobs { fifo_batch: 4, ..MqDeadlineKnobs::default() };
        let order = drain(&mut backlogged(settings, 20, 8), at(1));
        let expected = [(W, 4), (R, 8), (W, 4), (R, 8), (W, 4), (R, 4), (W, 8)];
        assert_eq!(runs(&order), expected);
    }

    #[test]
    fn d4_writes_first_when_they_may_not_starve() {
        let settings = MqDeadlineKnobs { writes_starved: 0, ..MqDeadlineKnobs::default() };
        let order = drain(&mut backlogged(settings, 20, 8), at(1));
        assert_eq!(runs(&order), [(W, 20), (R, 20)]);
    }

    #[test]
    fn d5_batches_of_one() {
        let settings = MqDeadlineKnobs { fifo_batch: 1, ..MqDeadlineKnobs::default() };
        let mut queue = MqDeadline::new(settings, MAX);
        for i in 0..4 {
            queue.insert(&request(i, R, 100 + 8 * i, 4), at(0));
            queue.insert(&request(10 + i, W, 500 + 8 * i, 4), at(0));
        }
        let expected =
            [(W, 500), (R, 100), (R, 108), (W, 508), (R, 116), (R, 124), (W, 516), (W, 524)];
        assert_eq!(drain(&mut queue, at(1)), expected);
    }

    #[test]
    fn d6_and_d7_late_ones_go_first_and_the_sweep_is_one_way() {
        let settings = MqDeadlineKnobs { fifo_batch: 4, ..MqDeadlineKnobs::default() };
        let mut queue = MqDeadline::new(settings, MAX);
        queue.insert(&request(0, R, 900, 4), at(0));
        for i in 0..12 {
            queue.insert(&request(1 + i, R, 100 + 8 * i, 4), at(100));
        }
        // The instance begins with writes, so the first batch is chosen from the start.
        let order: Vec<u64> = (0..13)
            .map(|n| queue.dispatch(at(496 + n)).expect("thirteen are queued").first.0)
            .collect();
        assert_eq!(order[..6], [100, 108, 116, 124, 900, 132]);
        let mut queue = MqDeadline::new(MqDeadlineKnobs::default(), MAX);
        for (id, first) in [(0, 6000), (1, 300), (2, 100), (3, 200), (4, 7000)] {
            queue.insert(&request(id, R, first, 4), at(id));
        }
        queue.per_prio[1].of[0].latest_pos = Sectors(5000);
        let order: Vec<u64> = drain(&mut queue, at(5)).iter().map(|next| next.1).collect();
        assert_eq!(order, [6000, 7000, 300, 100, 200]);
    }

    #[test]
    fn d9_classes_are_strict_until_somebody_waited_too_long() {
        let mut queue = MqDeadline::new(MqDeadlineKnobs::default(), MAX);
        let attr = Attr { class: Class::RealTime(0), ..Attr::NONE };
        let real_time = QueuedRequest { attr, ..request(1, R, 0, 4) };
        queue.insert(&real_time, at(0));
        queue.insert(&request(2, R, 100, 4), at(0));
        assert_eq!(queue.dispatch(at(1)).map(|next| next.ids[0]), Some(1));
        assert_eq!(queue.dispatch(at(1)), None, "the real-time one is at the member");
        assert_eq!(queue.dispatch(at(10_001)).map(|next| next.ids[0]), Some(2), "10 s are over");
        queue.insert(&request(3, R, 100, 4), at(10_001));
        assert_eq!(queue.dispatch(at(10_002)), None);
        queue.completed(Receipt(IoPriority::RealTime as u64));
        assert_eq!(queue.dispatch(at(10_002)).map(|next| next.ids[0]), Some(3));
    }

    #[test]
    fn neighbours_become_one_request_up_to_the_limit() {
        let mut queue = MqDeadline::new(MqDeadlineKnobs::default(), Sectors(24));
        assert!(!queue.insert(&request(1, W, 100, 8), at(0)));
        assert!(!queue.insert(&request(2, W, 116, 8), at(1)));
        assert!(queue.insert(&request(3, W, 108, 8), at(2)), "fills the gap between both");
        assert!(!queue.insert(&request(4, W, 124, 8), at(3)), "would be too large");
        let next = queue.dispatch(at(4)).unwrap();
        assert_eq!(
            (next.first, next.len, next.ids.as_slice()),
            (Sectors(100), Sectors(24), &[1, 3, 2][..])
        );
        assert_eq!(queue.dispatch(at(4)).unwrap().ids.as_slice(), [4]);
        assert!(queue.is_empty());
    }

    #[test]
    fn d10_and_d11_front_merges_move_a_request_and_keep_the_better_place() {
        let mut queue = MqDeadline::new(MqDeadlineKnobs::default(), MAX);
        queue.insert(&request(1, R, 1008, 8), at(0));
        assert!(queue.insert(&request(2, R, 1000, 8), at(5)));
        let next = queue.dispatch(at(6)).unwrap();
        assert_eq!((next.first, next.len), (Sectors(1000), Sectors(16)));
        let settings = MqDeadlineKnobs { front_merges: false, ..MqDeadlineKnobs::default() };
        let mut queue = MqDeadline::new(settings, MAX);
        queue.insert(&request(1, R, 1008, 8), at(0));
        assert!(queue.insert(&request(2, R, 1000, 8), at(0)), "the last one is asked all the same");
        queue.insert(&request(3, R, 5000, 8), at(0));
        assert!(!queue.insert(&request(4, R, 992, 8), at(0)), "another one was in between");
        // The earlier expiry of two that are merged counts for both.
        let settings = MqDeadlineKnobs { fifo_batch: 1, ..MqDeadlineKnobs::default() };
        let mut queue = MqDeadline::new(settings, MAX);
        queue.insert(&request(1, R, 0, 8), at(100));
        queue.insert(&request(2, R, 2016, 8), at(0));
        queue.insert(&request(3, R, 2000, 8), at(200));
        assert!(queue.insert(&request(4, R, 2008, 8), at(300)));
        queue.per_prio[1].of[0].latest_pos = Sectors(0);
        let next = queue.dispatch(at(501)).unwrap();
        assert_eq!((next.first, next.len), (Sectors(2000), Sectors(24)), "late since 500 ms");
    }

    #[test]
    fn nothing_is_lost_and_nothing_comes_twice() {
        let mut queue = MqDeadline::new(MqDeadlineKnobs::default(), Sectors(64));
        let (mut random, mut seen) = (1u64, Vec::new());
        for id in 0..5000u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let direction = if random >> 63 == 0 { R } else { W };
            let mut next = request(id, direction, (random >> 40) % 4096 * 4, 4);
            next.merges = id % 7 != 0;
            queue.insert(&next, at(id));
            if id % 3 == 0
                && let Some(next) = queue.dispatch(at(id))
            {
                queue.completed(next.receipt);
                assert_eq!(next.len.0, 4 * next.ids.len() as u64);
                seen.extend(next.ids);
            }
        }
        while let Some(next) = queue.dispatch(at(9999)) {
            queue.completed(next.receipt);
            seen.extend(next.ids);
        }
        seen.sort_unstable();
        assert!(seen.iter().copied().eq(0..5000));
        assert_eq!(queue.per_prio[1].queued, 0);
        assert!(queue.per_prio[1].of.iter().all(|of| of.ends.is_empty() && of.fifo.is_empty()));
    }
}
