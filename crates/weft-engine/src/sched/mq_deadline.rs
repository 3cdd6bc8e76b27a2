//! mq-deadline: requests of a member sorted by place, with a bound on how long each waits.
//!
//! Requests of one direction go out in ascending order, in batches. Between two batches the
//! direction is chosen anew: reads, unless writes were passed over twice; and from the front of the
//! queue if the deadline of what waits there longest has passed, else where the last batch of this
//! direction ended.
//!
//! A request that begins where a queued one ends (or ends where one begins) becomes a part of it.
//! Linux finds the request that ends at a sector by a hash table. Here it is the one before the new
//! request in the sorted list, which is searched for the new one's place anyway; another one is
//! missed only where queued requests of one direction overlap.
//!
//! Requests are records of a table, chained by indices, so that a queue that was once as long
//! allocates nothing. The request that goes on with a batch is kept up to date rather than looked
//! up.
//!
//! Linux inserts requests at the head of a class that a driver gave back or that pass the scheduler
//! by. Members give nothing back, and what passes the scheduler by never comes here
//! (`member_queue.rs`).
//!
//! Inputs   [`QueuedRequest`]s, the time
//! Answer   [`MqDeadline::dispatch`]: the next one, with everything that was merged into it
//! Knobs    [`MqDeadlineKnobs`]: those of `queue/iosched/`, but for `async_depth`, which is the
//!          queue's (`member_queue.rs`); `max_sectors_kb`, `nomerges`
//! Source   io-schedulers.md §1; Linux `block/mq-deadline.c`, rules checked against 6.12
//! Measured as exact sequences (statements D1 to D14 of io-schedulers.md §6), and by replay of what
//!          Linux 6.12 did (`fixtures/sched`); `weft bench sched` has its cost

use weft_units::{Sectors, Span, Time};

use super::names::{NameTable, Names};
use super::request::{Direction, Dispatched, IoPriority, QueuedRequest, Receipt};
use super::sorted::Sorted;
use crate::knobs::{MqDeadlineKnobs, NoMerges};

/// The queue of one member.
#[derive(Clone, Debug)]
pub struct MqDeadline {
    settings: MqDeadlineKnobs,
    max: Sectors,
    nomerges: NoMerges,
    per_prio: [Queues; 3],
    last_direction: Direction,
    batching: u32,
    starved: u32,
    waiting: usize,
    /// The last one that was inserted or merged into: asked first, whatever `front_merges` says.
    last_merge: u32,
    requests: Vec<Queued>,
    /// First of the records that are free, chained by `after`.
    free: u32,
    names: NameTable,
    /// What the last one that was dispatched is made of.
    sent: Vec<u64>,
}

/// The requests of one level.
#[derive(Clone, Debug, Default)]
struct Queues {
    /// By direction.
    of: [Queue; 2],
    /// Inserted and not completed.
    queued: u64,
}

#[derive(Clone, Debug)]
struct Queue {
    /// By where they begin.
    sorted: Sorted,
    /// By deadline, then by arrival: a chain of records by its ends.
    oldest: u32,
    newest: u32,
    latest_pos: Sectors,
    /// The first of `sorted` at `latest_pos` or beyond.
    next: u32,
}

/// Record of a queued request.
#[derive(Clone, Copy, Debug)]
struct Queued {
    first: Sectors,
    len: Sectors,
    deadline: Time,
    /// Neighbours in the FIFO.
    before: u32,
    after: u32,
    /// What it is made of.
    names: Names,
    level: IoPriority,
    direction: Direction,
    merges: bool,
}

impl MqDeadline {
    /// An empty queue, whose requests become no larger than `max` by merging (`max_sectors_kb`).
    #[must_use]
    pub fn new(settings: MqDeadlineKnobs, max: Sectors, nomerges: NoMerges) -> Self {
        Self {
            settings,
            max,
            nomerges,
            per_prio: Default::default(),
            last_direction: Direction::Write,
            batching: 0,
            starved: 0,
            waiting: 0,
            last_merge: NONE,
            requests: Vec::new(),
            free: NONE,
            names: NameTable::new(),
            sent: Vec::new(),
        }
    }

    /// Whether nothing is queued. What is at the member does not count.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Number of queued requests. What was merged is a part of one.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Queues a request, or makes it a part of a queued one. Says whether it was merged.
    pub fn insert(&mut self, request: &QueuedRequest, now: Time) -> bool {
        assert!(request.len > Sectors::ZERO, "a request has a length");
        let (level, direction) = (IoPriority::of(request.attr.class), request.direction);
        if request.merges && self.merge_at_last(request, level) {
            return true;
        }
        let queue = &self.per_prio[level as usize].of[direction as usize];
        let position = queue.sorted.beyond(request.first.0);
        if request.merges
            && let Some(merged) = self.neighbour(request, level, position)
        {
            self.grow(merged, request);
            return true;
        }
        let name = self.record(Queued {
            first: request.first,
            len: request.len,
            deadline: now + self.expire(direction),
            before: NONE,
            after: NONE,
            names: Names::of(request.id),
            level,
            direction,
            merges: request.merges,
        });
        let queues = &mut self.per_prio[level as usize];
        queues.queued += 1;
        let queue = &mut queues.of[direction as usize];
        queue.sorted.insert(position, request.first.0, name);
        queue.comes(&self.requests, name);
        queue.append(&mut self.requests, name);
        self.waiting += 1;
        self.last_merge = name;
        false
    }

    /// Makes a request a part of a queued one, if that can be. Says whether it was merged.
    pub fn merge(&mut self, request: &QueuedRequest) -> bool {
        let level = IoPriority::of(request.attr.class);
        if !request.merges || self.merge_at_last(request, level) {
            return request.merges;
        }
        let queue = &self.per_prio[level as usize].of[request.direction as usize];
        let position = queue.sorted.beyond(request.first.0);
        let merged = self.neighbour(request, level, position);
        if let Some(merged) = merged {
            self.grow(merged, request);
        }
        merged.is_some()
    }

    /// Makes a request a part of the one that was inserted or merged into last.
    fn merge_at_last(&mut self, request: &QueuedRequest, level: IoPriority) -> bool {
        if self.nomerges == NoMerges::Never || self.last_merge == NONE {
            return false;
        }
        let last = &self.requests[self.last_merge as usize];
        if (last.level, last.direction) != (level, request.direction) || !self.fits(last, request) {
            return false;
        }
        let merge = if last.first + last.len == request.first {
            Merge::Back(self.last_merge)
        } else if request.first + request.len == last.first {
            Merge::Front(self.last_merge)
        } else {
            return false;
        };
        self.grow(merge, request);
        true
    }

    /// The queued request that a new one becomes a part of; `position` is behind all that begin
    /// where the new one begins.
    #[inline]
    fn neighbour(
        &self,
        request: &QueuedRequest,
        level: IoPriority,
        position: super::sorted::Position,
    ) -> Option<Merge> {
        if self.nomerges != NoMerges::Allowed {
            return None;
        }
        let sorted = &self.per_prio[level as usize].of[request.direction as usize].sorted;
        if let Some((first, name)) = sorted.before(position) {
            let queued = &self.requests[name as usize];
            if first + queued.len.0 == request.first.0 && self.fits(queued, request) {
                return Some(Merge::Back(name));
            }
        }
        if !self.settings.front_merges {
            return None;
        }
        let (end, mut position) = (request.first.0 + request.len.0, position);
        while let Some((first, name)) = sorted.at(position).filter(|found| found.0 <= end) {
            if first == end && self.fits(&self.requests[name as usize], request) {
                return Some(Merge::Front(name));
            }
            position = sorted.step(position);
        }
        None
    }

    fn fits(&self, queued: &Queued, request: &QueuedRequest) -> bool {
        queued.merges && queued.len + request.len <= self.max
    }

    /// Adds a request to the end of a queued one, or before it, and then the queued one that
    /// follows both, or both to the one that they follow.
    fn grow(&mut self, merge: Merge, request: &QueuedRequest) {
        let (Merge::Back(name) | Merge::Front(name)) = merge;
        let Queued { first, len, level, direction, .. } = self.requests[name as usize];
        let end = first + len + request.len;
        match merge {
            Merge::Back(_) => {
                self.names.append(&mut self.requests[name as usize].names, request.id);
            }
            Merge::Front(_) => {
                self.sorted_out(name);
                let grown = &mut self.requests[name as usize];
                self.names.prepend(&mut grown.names, request.id);
                grown.first = request.first;
                self.sorted_in(name);
            }
        }
        self.requests[name as usize].len += request.len;
        self.last_merge = name;
        let sorted = &self.per_prio[level as usize].of[direction as usize].sorted;
        match merge {
            Merge::Back(_) => {
                let next = sorted.at(sorted.at_or_beyond(end.0));
                if let Some((_, next)) = next.filter(|found| found.0 == end.0) {
                    self.join(name, next);
                }
            }
            Merge::Front(_) => {
                let before = sorted.before(sorted.at_or_beyond(request.first.0));
                if let Some((first, before)) = before
                    && first + self.requests[before as usize].len.0 == request.first.0
                {
                    self.join(before, name);
                }
            }
        }
    }

    /// Makes a queued request a part of the one that it follows, with its place in the FIFO if that
    /// is better.
    fn join(&mut self, name: u32, next: u32) {
        let (into, joined) = (self.requests[name as usize], self.requests[next as usize]);
        if !into.merges || !joined.merges || into.len + joined.len > self.max {
            return;
        }
        self.sorted_out(next);
        let queues = &mut self.per_prio[joined.level as usize];
        queues.queued -= 1;
        let queue = &mut queues.of[joined.direction as usize];
        if joined.deadline < into.deadline {
            queue.unlink(&mut self.requests, name);
            queue.replace(&mut self.requests, next, name);
            self.requests[name as usize].deadline = joined.deadline;
        } else {
            queue.unlink(&mut self.requests, next);
        }
        let grown = &mut self.requests[name as usize];
        self.names.join(&mut grown.names, joined.names);
        grown.len += joined.len;
        self.release(next);
        self.waiting -= 1;
        self.last_merge = name;
    }

    /// The next request for the member.
    pub fn dispatch(&mut self, now: Time) -> Option<Dispatched> {
        let busy = self.per_prio.iter().filter(|level| level.queued > 0).count();
        if busy > 1 {
            for level in [IoPriority::BestEffort, IoPriority::Idle] {
                let age = self.settings.prio_aging_expire;
                if let Some(dispatched) = self.pick(level, age, now) {
                    return Some(dispatched);
                }
            }
        }
        for level in [IoPriority::RealTime, IoPriority::BestEffort, IoPriority::Idle] {
            // Also while it has requests at the member only: classes are strict.
            if self.per_prio[level as usize].queued > 0 {
                return self.pick(level, Span::ZERO, now);
            }
        }
        None
    }

    /// Everything that the request which was dispatched last is made of.
    #[must_use]
    pub fn sent(&self) -> &[u64] {
        &self.sent
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
        let oldest = lower.iter().flat_map(|level| &level.of).filter(|queue| queue.oldest != NONE);
        // One that is due and was not picked waits for whatever goes before it.
        oldest
            .map(|queue| self.started(queue.oldest) + self.settings.prio_aging_expire)
            .filter(|due| *due > now)
            .min()
    }

    /// Forgets what is queued, as if it had never been inserted. What is at the member stays.
    pub(crate) fn clear_waiting(&mut self) {
        for level in &mut self.per_prio {
            let waiting: usize = level.of.iter().map(|queue| queue.sorted.len()).sum();
            assert!(level.queued >= waiting as u64, "what waits is counted");
            level.queued -= waiting as u64;
            for queue in &mut level.of {
                queue.sorted.clear();
                (queue.oldest, queue.newest, queue.next) = (NONE, NONE, NONE);
            }
        }
        self.waiting = 0;
        self.last_merge = NONE;
        self.free = NONE;
        self.requests.clear();
        self.names.clear();
    }

    /// The next one of a class, if it has waited for `age`. As in Linux a direction that was chosen
    /// for one that has not stays chosen.
    fn pick(&mut self, level: IoPriority, age: Span, now: Time) -> Option<Dispatched> {
        let follows = self.per_prio[level as usize].of[self.last_direction as usize].next;
        let name = if follows != NONE && self.batching < self.settings.fifo_batch {
            follows
        } else {
            self.next_batch(level, now)?
        };
        if self.started(name) + age > now {
            return None;
        }
        self.batching += 1;
        Some(self.send(name))
    }

    /// The first request of a new batch of a class, in the direction whose turn it is.
    fn next_batch(&mut self, level: IoPriority, now: Time) -> Option<u32> {
        let [reads, writes] = &self.per_prio[level as usize].of;
        let direction = match (reads.oldest == NONE, writes.oldest == NONE) {
            (true, true) => return None,
            (false, true) => Direction::Read,
            (false, false) if self.starved < self.settings.writes_starved => {
                self.starved += 1;
                Direction::Read
            }
            (_, false) => {
                self.starved = 0;
                Direction::Write
            }
        };
        (self.last_direction, self.batching) = (direction, 0);
        let Queue { oldest, next, .. } = self.per_prio[level as usize].of[direction as usize];
        let late = self.requests[oldest as usize].deadline <= now;
        Some(if late || next == NONE { oldest } else { next })
    }

    fn send(&mut self, name: u32) -> Dispatched {
        let Queued { first, len, level, direction, names, .. } = self.requests[name as usize];
        let queue = &mut self.per_prio[level as usize].of[direction as usize];
        queue.unlink(&mut self.requests, name);
        let mut position = queue.sorted.remove(first.0, name);
        // Those of the same sector that came before count as not passed yet.
        while let Some(back) = queue.sorted.step_back(position)
            && queue.sorted.at(back).is_some_and(|found| found.0 == first.0)
        {
            position = back;
        }
        queue.next = queue.sorted.at(position).map_or(NONE, |found| found.1);
        queue.latest_pos = first;
        self.names.take(names, &mut self.sent);
        if self.last_merge == name {
            self.last_merge = NONE;
        }
        self.release(name);
        self.waiting -= 1;
        Dispatched { direction, receipt: Receipt(level as u32), first, len, id: names.first }
    }

    fn expire(&self, direction: Direction) -> Span {
        match direction {
            Direction::Read => self.settings.read_expire,
            Direction::Write => self.settings.write_expire,
        }
    }

    /// Time at which a queued request came.
    fn started(&self, name: u32) -> Time {
        let Queued { deadline, direction, .. } = self.requests[name as usize];
        Time(deadline.0.saturating_sub(self.expire(direction).0))
    }

    /// Takes a request out of the sorted list.
    fn sorted_out(&mut self, name: u32) {
        let Queued { first, level, direction, .. } = self.requests[name as usize];
        let queue = &mut self.per_prio[level as usize].of[direction as usize];
        let after = queue.sorted.remove(first.0, name);
        if queue.next == name {
            queue.next = queue.sorted.at(after).map_or(NONE, |found| found.1);
        }
    }

    /// Puts a request into the sorted list.
    fn sorted_in(&mut self, name: u32) {
        let Queued { first, level, direction, .. } = self.requests[name as usize];
        let queue = &mut self.per_prio[level as usize].of[direction as usize];
        queue.sorted.insert(queue.sorted.beyond(first.0), first.0, name);
        queue.comes(&self.requests, name);
    }

    /// A record for a request.
    fn record(&mut self, queued: Queued) -> u32 {
        if self.free == NONE {
            self.requests.push(queued);
            return self.requests.len() as u32 - 1;
        }
        let name = self.free;
        let record = &mut self.requests[name as usize];
        self.free = record.after;
        *record = queued;
        name
    }

    /// Gives a record back.
    fn release(&mut self, name: u32) {
        self.requests[name as usize].after = self.free;
        self.free = name;
    }
}

impl Default for Queue {
    fn default() -> Self {
        let (oldest, newest, next) = (NONE, NONE, NONE);
        Self { sorted: Sorted::default(), oldest, newest, latest_pos: Sectors::ZERO, next }
    }
}

impl Queue {
    /// A request was put into the sorted list.
    fn comes(&mut self, requests: &[Queued], name: u32) {
        let first = requests[name as usize].first;
        if first >= self.latest_pos
            && (self.next == NONE || first < requests[self.next as usize].first)
        {
            self.next = name;
        }
    }

    /// Puts a request behind those whose deadline is not later: as a rule behind all.
    fn append(&mut self, requests: &mut [Queued], name: u32) {
        let deadline = requests[name as usize].deadline;
        let (mut before, mut after) = (self.newest, NONE);
        while before != NONE && requests[before as usize].deadline > deadline {
            (before, after) = (requests[before as usize].before, before);
        }
        let record = &mut requests[name as usize];
        (record.before, record.after) = (before, after);
        self.join_links(requests, before, name);
        self.join_links(requests, name, after);
    }

    fn unlink(&mut self, requests: &mut [Queued], name: u32) {
        let Queued { before, after, .. } = requests[name as usize];
        self.join_links(requests, before, after);
    }

    /// Puts a request where another one was.
    fn replace(&mut self, requests: &mut [Queued], old: u32, new: u32) {
        let Queued { before, after, .. } = requests[old as usize];
        self.join_links(requests, before, new);
        self.join_links(requests, new, after);
    }

    /// Makes two neighbours in the FIFO; `NONE` is either end of it.
    fn join_links(&mut self, requests: &mut [Queued], before: u32, after: u32) {
        match before {
            NONE => self.oldest = after,
            before => requests[before as usize].after = after,
        }
        match after {
            NONE => self.newest = before,
            after => requests[after as usize].before = before,
        }
    }
}

/// How a new request becomes a part of a queued one, by name.
#[derive(Clone, Copy, Debug)]
enum Merge {
    /// At its end.
    Back(u32),
    /// Before it.
    Front(u32),
}

/// No request.
const NONE: u32 = u32::MAX;

#[cfg(test)]
mod replay;
#[cfg(test)]
mod tests;
