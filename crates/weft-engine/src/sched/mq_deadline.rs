//! mq-deadline scheduler: sorts the requests of a member by sector, and gives each a deadline.
//!
//! Requests of one direction are dispatched in ascending order, in batches. Before each batch the
//! direction is chosen again: reads go first, unless writes were passed over `writes_starved`
//! times. A batch begins with the oldest request of its direction if the deadline of that request
//! has passed, and otherwise where the last batch of this direction ended.
//!
//! A request is merged into a queued request that ends where it begins, or that begins where it
//! ends. Linux finds the request that ends at a sector in a hash table. Here it is the request in
//! front of the new one in the sorted list, which is searched for the insertion position anyway.
//! This lookup misses a candidate only where queued requests of one direction overlap.
//!
//! Requests are records in a table, linked by indices, so the scheduler allocates nothing until
//! more requests are queued than ever before. The request that continues a batch is tracked, not
//! looked up.
//!
//! Linux inserts requests that a driver requeued, or that bypass the scheduler, at the head of a
//! class. Here members requeue no requests, and requests that bypass the scheduler are not passed
//! to it (`member_queue.rs`).
//!
//! Inputs   [`QueuedRequest`]s, the time
//! Answer   [`MqDeadline::dispatch`]: the next request, with all requests merged into it
//! Knobs    [`MqDeadlineKnobs`]: the files of `queue/iosched/` except `async_depth`, which the
//!          member queue implements (`member_queue.rs`); `max_sectors_kb`, `nomerges`
//! Source   io-schedulers.md §1; Linux `block/mq-deadline.c`, rules checked against 6.12
//! Measured as exact sequences (statements D1 to D14 of io-schedulers.md §6), and by replaying what
//!          Linux 6.12 did (`fixtures/sched`); `weft-bench sched` measures its cost

use weft_units::{Sectors, Span, Time};

use super::names::{NameTable, Names};
use super::request::{Direction, Dispatched, IoPriority, QueuedRequest, Receipt};
use super::sorted::Sorted;
use crate::knobs::{MqDeadlineKnobs, NoMerges};

/// mq-deadline scheduler of one member.
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
    /// Index of the request that was last inserted or merged into; [`NONE`] if it was dispatched.
    /// The request is the first merge candidate, and new requests may be merged at its front even
    /// if `front_merges` is off.
    last_merge: u32,
    requests: Vec<Queued>,
    /// Index of the first free record; free records are chained by `after`.
    free: u32,
    names: NameTable,
    /// Identifiers of the requests that are merged in the last dispatched request.
    sent: Vec<u64>,
}

/// Requests of one I/O priority class.
#[derive(Clone, Debug, Default)]
struct Queues {
    /// Queues of reads and of writes.
    of: [Queue; 2],
    /// Number of requests that were inserted and have not completed.
    queued: u64,
}

#[derive(Clone, Debug)]
struct Queue {
    /// Requests in order of first sector.
    sorted: Sorted,
    /// First and (`newest`) last request of the FIFO, a chain of records in order of deadline, then
    /// of arrival.
    oldest: u32,
    newest: u32,
    latest_pos: Sectors,
    /// First request of `sorted` that begins at or beyond `latest_pos`; [`NONE`] if there is none.
    next: u32,
}

/// Record of a queued request.
#[derive(Clone, Copy, Debug)]
struct Queued {
    first: Sectors,
    len: Sectors,
    deadline: Time,
    /// Requests before and (`after`) behind this request in the FIFO; [`NONE`] at its ends.
    before: u32,
    after: u32,
    /// Identifiers of the requests that were merged into this one, itself included.
    names: Names,
    level: IoPriority,
    direction: Direction,
    merges: bool,
}

impl MqDeadline {
    /// Creates a scheduler without requests. Merging makes no request larger than `max`
    /// (`max_sectors_kb`).
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

    /// Whether no request is queued. Requests in flight at the member do not count.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Number of queued requests. A request that was merged into another does not count.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Queues a request, or merges it into a queued one. Returns whether it was merged.
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

    /// Merges a request into a queued one if possible. Returns whether it was merged.
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

    /// Merges a request into the one that was last inserted or merged into, if possible. Returns
    /// whether it was merged.
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

    /// Finds a queued request into which a new one can be merged; `None` if there is none.
    /// `position` is the insertion position, behind all requests that begin at the same sector.
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

    /// Merges a request into a queued one. If that closes the gap to the next queued request,
    /// merges that one as well.
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

    /// Merges the queued request `next` into `name`, which ends where `next` begins, if both may be
    /// merged and the result is not too large. The merged request gets the earlier of the two
    /// deadlines, and the FIFO position that belongs to it.
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

    /// Returns the next request for the member; `None` if none is queued, or all queued ones are
    /// held back by a higher class.
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
            // A class with all of its requests in flight still goes before lower ones: classes are
            // strict.
            if self.per_prio[level as usize].queued > 0 {
                return self.pick(level, Span::ZERO, now);
            }
        }
        None
    }

    /// Identifiers of all requests that are merged in the last dispatched request.
    #[must_use]
    pub fn sent(&self) -> &[u64] {
        &self.sent
    }

    /// Reports that the member has completed a dispatched request.
    pub fn completed(&mut self, receipt: Receipt) {
        let queued = &mut self.per_prio[receipt.0 as usize].queued;
        assert!(*queued > 0, "a request is completed once");
        *queued -= 1;
    }

    /// Time at which the oldest request of a lower class becomes old enough to be dispatched
    /// despite requests of higher classes. `None` if no request is held back, or if all such times
    /// have passed.
    #[must_use]
    pub fn next_wake(&self, now: Time) -> Option<Time> {
        let busy = self.per_prio.iter().filter(|level| level.queued > 0).count();
        if busy < 2 {
            return None;
        }
        let lower = &self.per_prio[IoPriority::BestEffort as usize..];
        let oldest = lower.iter().flat_map(|level| &level.of).filter(|queue| queue.oldest != NONE);
        // A request that is due but was not picked waits for the requests in front of it.
        oldest
            .map(|queue| self.started(queue.oldest) + self.settings.prio_aging_expire)
            .filter(|due| *due > now)
            .min()
    }

    /// Drops the queued requests as if they had never been inserted. Requests in flight are kept.
    pub(crate) fn clear_waiting(&mut self) {
        for level in &mut self.per_prio {
            let waiting: usize = level.of.iter().map(|queue| queue.sorted.len()).sum();
            assert!(level.queued >= waiting as u64, "every queued request is counted");
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

    /// Returns the next request of a class if it was queued at least `age` ago, otherwise `None`.
    /// As in Linux, the direction that was chosen for a request stays chosen even if the request is
    /// not old enough.
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

    /// First request of a new batch of a class, in the direction that has its turn; `None` if the
    /// class has no request.
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
        // Requests at the same sector that arrived earlier count as not passed yet.
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

    /// Arrival time of a queued request.
    fn started(&self, name: u32) -> Time {
        let Queued { deadline, direction, .. } = self.requests[name as usize];
        Time(deadline.0.saturating_sub(self.expire(direction).0))
    }

    /// Removes a request from the sorted list.
    fn sorted_out(&mut self, name: u32) {
        let Queued { first, level, direction, .. } = self.requests[name as usize];
        let queue = &mut self.per_prio[level as usize].of[direction as usize];
        let after = queue.sorted.remove(first.0, name);
        if queue.next == name {
            queue.next = queue.sorted.at(after).map_or(NONE, |found| found.1);
        }
    }

    /// Inserts a request into the sorted list.
    fn sorted_in(&mut self, name: u32) {
        let Queued { first, level, direction, .. } = self.requests[name as usize];
        let queue = &mut self.per_prio[level as usize].of[direction as usize];
        queue.sorted.insert(queue.sorted.beyond(first.0), first.0, name);
        queue.comes(&self.requests, name);
    }

    /// Allocates a record for a request. Returns its index.
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

    /// Frees a record.
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
    /// Updates `next` after the request `name` was inserted into the sorted list.
    fn comes(&mut self, requests: &[Queued], name: u32) {
        let first = requests[name as usize].first;
        if first >= self.latest_pos
            && (self.next == NONE || first < requests[self.next as usize].first)
        {
            self.next = name;
        }
    }

    /// Inserts a request into the FIFO behind all requests with the same or an earlier deadline,
    /// which is usually its end.
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

    /// Puts the request `new` at the FIFO position of `old`.
    fn replace(&mut self, requests: &mut [Queued], old: u32, new: u32) {
        let Queued { before, after, .. } = requests[old as usize];
        self.join_links(requests, before, new);
        self.join_links(requests, new, after);
    }

    /// Links two neighbours in the FIFO; `NONE` stands for an end of the FIFO.
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

/// A way to merge a request: the queued request to merge it into, and the side of that request.
#[derive(Clone, Copy, Debug)]
enum Merge {
    /// Append the new request to this one.
    Back(u32),
    /// Prepend the new request to this one.
    Front(u32),
}

/// Index that stands for no request.
const NONE: u32 = u32::MAX;

#[cfg(test)]
mod replay;
#[cfg(test)]
mod tests;
