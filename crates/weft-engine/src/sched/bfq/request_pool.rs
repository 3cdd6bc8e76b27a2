//! Requests of all queues: in each queue they are sorted by sector, listed by age, and merged with
//! neighbours.
//!
//! A request is merged into a queued request of the same queue and direction that ends where it
//! begins, or that begins where it ends. The search for the insertion position finds both
//! neighbours.
//!
//! The next request of a queue is the first one of its FIFO if that has waited for longer than
//! `fifo_expire_*`, which is checked once per slot. Otherwise it is the request nearest to the last
//! one. Metadata goes before data. A distance backward within `back_seek_max` counts
//! `back_seek_penalty` times; requests farther back come after all others, lowest sector first.
//!
//! A dispatched request keeps its record until it completes.
//!
//! Knobs    `back_seek_max`, `back_seek_penalty`, `max_sectors_kb`
//! Source   io-schedulers.md §2.7

use weft_units::{Sectors, Time};

use super::QueueId;
use super::treap::{Member, Set, Treaps};
use crate::knobs::BfqKnobs;
use crate::sched::names::{NameTable, Names};
use crate::sched::request::{Direction, QueuedRequest};

/// Index of a request in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestId(pub(super) u32);

/// Request that is queued, or dispatched and not completed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) first: Sectors,
    pub(super) len: Sectors,
    pub(super) direction: Direction,
    pub(super) meta: bool,
    merges: bool,
    pub(super) queue: QueueId,
    deadline: Time,
    older: u32,
    newer: u32,
    /// Identifiers of the requests that were merged into this one, itself included.
    pub(super) names: Names,
}

impl Member for Record {
    const LOW: bool = false;

    #[inline]
    fn before(&self, other: &Self) -> bool {
        self.first < other.first
    }
}

/// Queued requests of one queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backlog {
    sorted: Set,
    oldest: u32,
    newest: u32,
    pub(super) len: u32,
    /// Request that is dispatched next; `None` if the queue is empty.
    pub(super) head: Option<RequestId>,
}

impl Backlog {
    pub(super) const EMPTY: Self =
        Self { sorted: Set::EMPTY, oldest: NIL, newest: NIL, len: 0, head: None };
}

/// Outcome of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Inserted {
    pub(super) id: RequestId,
    /// Number of merges that the insertion caused: of the new request into a queued one, and of the
    /// grown request with its next neighbour.
    pub(super) merged: u32,
}

/// Records of all requests, and the list of free records.
#[derive(Clone, Debug)]
pub(super) struct RequestPool {
    records: Treaps<Record>,
    free: Vec<u32>,
    names: NameTable,
    max: Sectors,
}

impl RequestPool {
    pub(super) fn new(max: Sectors) -> Self {
        Self { records: Treaps::new(), free: Vec::new(), names: NameTable::new(), max }
    }

    #[inline]
    pub(super) fn at(&self, id: RequestId) -> &Record {
        self.records.at(id.0)
    }

    pub(super) fn at_mut(&mut self, id: RequestId) -> &mut Record {
        self.records.at_mut(id.0)
    }

    /// Oldest queued request of a queue; `None` if it has none.
    pub(super) fn oldest(&self, of: &Backlog) -> Option<RequestId> {
        (of.oldest != NIL).then_some(RequestId(of.oldest))
    }

    /// Queues a request, or merges it into a queued one. Returns the request that holds it, and the
    /// number of merges. The caller updates the queue's head.
    pub(super) fn insert(
        &mut self,
        of: &mut Backlog,
        queue: QueueId,
        request: &QueuedRequest,
        deadline: Time,
    ) -> Inserted {
        let record = Record {
            first: request.first,
            len: request.len,
            direction: request.direction,
            meta: request.attr.meta,
            merges: request.merges,
            queue,
            deadline,
            older: of.newest,
            newer: NIL,
            names: Names::of(request.id),
        };
        let spot = self.records.locate(of.sorted, &record);
        if request.merges {
            if let Some(back) = spot.previous.filter(|at| self.adjoins(*at, &record, false)) {
                let merged = 1 + self.grow_back(of, back, &record, spot.next);
                return Inserted { id: RequestId(back), merged };
            }
            if let Some(front) = spot.next.filter(|at| self.adjoins(*at, &record, true)) {
                let grown = self.records.at_mut(front);
                // No other request begins between the old and the new first sector.
                grown.first = record.first;
                grown.len += record.len;
                self.names.prepend(&mut grown.names, request.id);
                return Inserted { id: RequestId(front), merged: 1 };
            }
        }
        let place = if let Some(place) = self.free.pop() {
            *self.records.at_mut(place) = record;
            place
        } else {
            self.records.push(record)
        };
        self.records.insert_at(&mut of.sorted, place, spot);
        if of.newest == NIL {
            of.oldest = place;
        } else {
            self.records.at_mut(of.newest).newer = place;
        }
        of.newest = place;
        of.len += 1;
        Inserted { id: RequestId(place), merged: 0 }
    }

    /// Whether the record at `place` and `record` are adjacent and may be merged. With `begins`,
    /// the record at `place` must begin where `record` ends; otherwise it must end where `record`
    /// begins.
    fn adjoins(&self, place: u32, record: &Record, begins: bool) -> bool {
        let other = self.records.at(place);
        let (low, high) = if begins { (record, other) } else { (other, record) };
        low.first + low.len == high.first
            && low.merges
            && high.merges
            && low.direction == high.direction
            && low.len + high.len <= self.max
    }

    /// Appends `new` to the queued request `back`. If that closes the gap to `next`, merges `next`
    /// too. Returns the number of queued requests that were merged.
    fn grow_back(&mut self, of: &mut Backlog, back: u32, new: &Record, next: Option<u32>) -> u32 {
        let grown = self.records.at_mut(back);
        grown.len += new.len;
        self.names.join(&mut grown.names, new.names);
        let Some(next) = next else { return 0 };
        if !self.adjoins(next, self.records.at(back), true) {
            return 0;
        }
        let Record { len, deadline, names, .. } = *self.records.at(next);
        let grown = self.records.at_mut(back);
        grown.len += len;
        self.names.join(&mut grown.names, names);
        if deadline < grown.deadline {
            // The merged request keeps the earlier deadline of the two, and its position in the
            // FIFO.
            grown.deadline = deadline;
            self.unlist(of, back);
            self.list_before(of, back, next);
        }
        if of.head == Some(RequestId(next)) {
            of.head = Some(RequestId(back));
        }
        self.take(of, RequestId(next));
        self.release(RequestId(next));
        1
    }

    /// Removes a request from its queue, but keeps its record.
    pub(super) fn take(&mut self, of: &mut Backlog, id: RequestId) {
        self.records.remove(&mut of.sorted, id.0);
        self.unlist(of, id.0);
        of.len -= 1;
    }

    /// Moves the identifiers of a request to `ids`. Returns the first one, which stays in the
    /// record too.
    #[inline]
    pub(super) fn take_names(&mut self, id: RequestId, ids: &mut Vec<u64>) -> u64 {
        let record = self.records.at_mut(id.0);
        let names = record.names;
        record.names = Names::of(names.first);
        self.names.take(names, ids);
        names.first
    }

    /// Drops the identifiers, given by callers, of all requests. No request may be queued.
    pub(super) fn clear_names(&mut self) {
        self.names.clear();
    }

    /// Frees the record of a request.
    pub(super) fn release(&mut self, id: RequestId) {
        self.free.push(id.0);
    }

    fn unlist(&mut self, of: &mut Backlog, place: u32) {
        let Record { older, newer, .. } = *self.records.at(place);
        match older {
            NIL => of.oldest = newer,
            older => self.records.at_mut(older).newer = newer,
        }
        match newer {
            NIL => of.newest = older,
            newer => self.records.at_mut(newer).older = older,
        }
    }

    fn list_before(&mut self, of: &mut Backlog, place: u32, newer: u32) {
        let older = self.records.at(newer).older;
        let record = self.records.at_mut(place);
        (record.older, record.newer) = (older, newer);
        match older {
            NIL => of.oldest = place,
            older => self.records.at_mut(older).newer = place,
        }
        self.records.at_mut(newer).older = place;
    }

    /// Request that a queue serves after `id`, which is about to be removed: the oldest one if
    /// `look` is set and it has expired, otherwise the nearer one of the two neighbours by sector.
    /// `None` if no other request is queued.
    pub(super) fn following(
        &self,
        of: &Backlog,
        id: RequestId,
        look: bool,
        knobs: &BfqKnobs,
        now: Time,
    ) -> Option<RequestId> {
        if look && of.oldest != id.0 && of.oldest != NIL {
            let oldest = RequestId(of.oldest);
            if self.at(oldest).deadline <= now {
                return Some(oldest);
            }
        }
        let previous = self.records.previous(id.0);
        let next = self
            .records
            .next(id.0)
            .or_else(|| self.records.first(of.sorted).filter(|first| *first != id.0));
        let record = self.at(id);
        let last = record.first + record.len;
        match (next.map(RequestId), previous.map(RequestId)) {
            (Some(next), Some(previous)) => Some(self.choose(next, previous, last, knobs)),
            (next, previous) => next.or(previous),
        }
    }

    /// The one of the requests `a` and `b` that a queue serves first after its last request, which
    /// ended at sector `last`. Metadata goes before data; then the nearer request goes first, with
    /// the distance of a backward seek counted `back_seek_penalty` times. A request farther back
    /// than `back_seek_max` comes last.
    pub(super) fn choose(
        &self,
        a: RequestId,
        b: RequestId,
        last: Sectors,
        knobs: &BfqKnobs,
    ) -> RequestId {
        if a == b {
            return a;
        }
        let (first, second) = (self.at(a), self.at(b));
        if first.meta != second.meta {
            return if first.meta { a } else { b };
        }
        let back_max = u64::from(knobs.back_seek_max) * 2;
        let way = |to: Sectors| {
            if to >= last {
                Some(to.0 - last.0)
            } else if to.0 + back_max >= last.0 {
                Some((last.0 - to.0) * u64::from(knobs.back_seek_penalty))
            } else {
                None
            }
        };
        let low_first = first.first < second.first;
        let first_goes = match (way(first.first), way(second.first)) {
            (Some(x), Some(y)) if x == y => !low_first,
            (Some(x), Some(y)) => x < y,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => low_first,
        };
        if first_goes { a } else { b }
    }
}

const NIL: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::input::Attr;

    /// A pool with requests of eight sectors of one queue, all with the same deadline.
    struct Rig {
        pool: RequestPool,
        backlog: Backlog,
    }

    impl Rig {
        fn new() -> Self {
            Self { pool: RequestPool::new(Sectors(1024)), backlog: Backlog::EMPTY }
        }

        fn insert(&mut self, first: u64, merges: bool) -> Inserted {
            let request = QueuedRequest {
                id: first,
                direction: Direction::Read,
                attr: Attr::NONE,
                first: Sectors(first),
                len: Sectors(8),
                discard: false,
                merges,
            };
            self.pool.insert(&mut self.backlog, QueueId(0), &request, Time(9))
        }

        /// First sector of the request that is nearer to `last`.
        fn nearer(&mut self, one: u64, other: u64, last: u64) -> u64 {
            let (one, other) = (self.insert(one, false).id, self.insert(other, false).id);
            let knobs =
                BfqKnobs { back_seek_max: 16_384, back_seek_penalty: 2, ..BfqKnobs::default() };
            let chosen = self.pool.choose(one, other, Sectors(last), &knobs);
            assert_eq!(self.pool.choose(other, one, Sectors(last), &knobs), chosen, "either way");
            self.pool.at(chosen).first.0
        }
    }

    #[test]
    fn requests_at_the_same_sector_are_in_their_order_of_insertion() {
        let mut rig = Rig::new();
        let (one, other) = (rig.insert(40, false).id, rig.insert(40, false).id);
        assert_eq!(rig.pool.records.first(rig.backlog.sorted), Some(one.0));
        assert_eq!(rig.pool.records.next(one.0), Some(other.0));
    }

    #[test]
    fn a_request_that_closes_a_gap_keeps_the_place_of_the_older_one_in_the_fifo() {
        let mut rig = Rig::new();
        let first = rig.insert(0, true).id;
        rig.insert(100, true);
        rig.insert(16, true);
        assert_eq!(rig.insert(8, true), Inserted { id: first, merged: 2 });
        assert_eq!(rig.pool.oldest(&rig.backlog), Some(first));
        assert_eq!((rig.pool.at(first).len, rig.backlog.len), (Sectors(24), 2));
    }

    #[test]
    fn a_way_back_counts_twice_up_to_16_mib_and_beyond_that_comes_last() {
        let last = 100_000;
        assert_eq!(Rig::new().nearer(last + 10, last - 6, last), last + 10, "10 against 12");
        assert_eq!(Rig::new().nearer(last + 13, last - 6, last), last - 6, "13 against 12");
        assert_eq!(Rig::new().nearer(last + 12, last - 6, last), last + 12, "equally far");
        assert_eq!(Rig::new().nearer(last + 70_000, last - 32_768, last), last - 32_768);
        assert_eq!(Rig::new().nearer(last + 70_000, last - 32_769, last), last + 70_000);
        assert_eq!(Rig::new().nearer(last - 40_000, last - 50_000, last), last - 50_000);
    }
}
