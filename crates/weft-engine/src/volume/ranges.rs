//! Range locks: overlapping requests wait for each other in order of arrival, unless both read.
//!
//! A request waits for every earlier request that overlaps it, if either of the two writes. Reads
//! do not wait for each other. Requests that still wait count as earlier ones too, so that no
//! request is overtaken and none starves.
//!
//! Source   NBD and the block layer leave the order of overlapping requests to the client; weft
//!          uses the simplest order

use smallvec::SmallVec;
use weft_units::ByteRange;

use crate::contract::token::RequestId;

/// Requests in flight or waiting, indexed by regions of 64 KiB: each request is on the list of
/// every region that it touches, and the lists of all regions share 256 buckets. Wide requests,
/// which would be on many lists, are on a list of their own, which every request checks.
#[derive(Clone, Debug)]
pub(crate) struct Ranges {
    wide: Vec<RequestId>,
    buckets: Box<[u32; BUCKETS]>,
    links: Vec<Link>,
    /// Index of the first unused link; unused links form a list.
    free: u32,
    /// Range and waiters of each request, by request number.
    held: Vec<Held>,
}

/// Entry of a request in the list of one of its regions.
#[derive(Clone, Copy, Debug)]
struct Link {
    request: RequestId,
    region: u64,
    next: u32,
}

#[derive(Clone, Debug, Default)]
struct Held {
    range: ByteRange,
    writes: bool,
    waits_for: u32,
    waiting: SmallVec<[RequestId; 2]>,
}

impl Default for Ranges {
    fn default() -> Self {
        let (wide, buckets) = (Vec::new(), Box::new([NONE; BUCKETS]));
        Self { wide, buckets, links: Vec::new(), free: NONE, held: Vec::new() }
    }
}

impl Ranges {
    /// Adds a request. Returns whether it may start at once.
    #[inline]
    pub(crate) fn enter(&mut self, id: RequestId, range: ByteRange, writes: bool) -> bool {
        assert!(range.len.0 > 0, "a request that enters is not empty");
        let place = id.0 as usize;
        if self.held.len() <= place {
            self.grow(place);
        }
        let is_wide = is_wide(range);
        let mut waits_for = if is_wide {
            self.wide.push(id);
            self.wait_for_all(id, range, writes)
        } else {
            self.wait_for_wide(id, range, writes)
        };
        let regions = if is_wide { 0..0 } else { regions(range) };
        for region in regions.clone() {
            let first = self.buckets[bucket(region)];
            let mut next = first;
            while next != NONE {
                let link = self.links[next as usize];
                next = link.next;
                let other = &mut self.held[link.request.0 as usize];
                // Two requests with several regions in common are compared only in the first of
                // these.
                let meet = link.region == region
                    && (region == regions.start || region == first_region(other.range));
                if meet {
                    waits_for += u32::from(other.holds_up(id, range, writes));
                }
            }
            let link = Link { request: id, region, next: first };
            self.buckets[bucket(region)] = self.link(link);
        }
        let held = &mut self.held[place];
        assert!(held.range.len.0 == 0, "a request enters once");
        (held.range, held.writes, held.waits_for) = (range, writes, waits_for);
        waits_for == 0
    }

    /// Makes room in the table for the request number `place`.
    #[cold]
    fn grow(&mut self, place: usize) {
        self.held.resize_with(place + 1, Held::default);
    }

    /// Earlier requests for which request `id` waits. Only valid for the request that entered last.
    pub(crate) fn held_up_by(&self, id: RequestId) -> impl Iterator<Item = RequestId> + '_ {
        let holds_up = move |held: &Held| held.waiting.last() == Some(&id);
        (0..).map(RequestId).zip(&self.held).filter(move |(_, held)| holds_up(held)).map(|it| it.0)
    }

    /// Makes the wide request `id` wait for every earlier request that overlaps it, if either
    /// writes. Returns the number of requests for which it waits.
    #[cold]
    fn wait_for_all(&mut self, id: RequestId, range: ByteRange, writes: bool) -> u32 {
        let held = self.held.iter_mut().filter(|held| held.range.len.0 > 0);
        held.map(|held| u32::from(held.holds_up(id, range, writes))).sum()
    }

    /// Makes request `id` wait for every earlier wide request that overlaps it, if either writes.
    /// Returns the number of requests for which it waits.
    #[inline]
    fn wait_for_wide(&mut self, id: RequestId, range: ByteRange, writes: bool) -> u32 {
        let wide = self.wide.iter();
        wide.map(|wide| u32::from(self.held[wide.0 as usize].holds_up(id, range, writes))).sum()
    }

    /// Whether a write in flight or waiting ends at byte `byte`, so that a write that begins there
    /// continues it.
    pub(crate) fn write_ends_at(&self, byte: u64) -> bool {
        let wide = |id: &RequestId| self.held[id.0 as usize].is_write_to(byte);
        if self.wide.iter().any(wide) {
            return true;
        }
        let Some(region) = byte.checked_sub(1).map(|last| last / REGION_BYTES) else {
            return false;
        };
        let mut next = self.buckets[bucket(region)];
        while next != NONE {
            let link = self.links[next as usize];
            next = link.next;
            let held = &self.held[link.request.0 as usize];
            if link.region == region && held.is_write_to(byte) {
                return true;
            }
        }
        false
    }

    /// Whether a write in flight or waiting overlaps `range`. Always true if `range` is wide,
    /// because wide ranges are not searched.
    #[inline]
    pub(crate) fn is_written(&self, range: ByteRange) -> bool {
        let overlaps = |id: RequestId| {
            let held = &self.held[id.0 as usize];
            held.writes && held.range.overlaps(range)
        };
        if is_wide(range) || self.wide.iter().any(|id| overlaps(*id)) {
            return true;
        }
        for region in regions(range) {
            let mut next = self.buckets[bucket(region)];
            while next != NONE {
                let link = self.links[next as usize];
                next = link.next;
                if link.region == region && overlaps(link.request) {
                    return true;
                }
            }
        }
        false
    }

    /// Removes a finished request. Returns the requests that may start now, in order of arrival;
    /// `None` if there are none, or if the request never entered.
    #[inline(always)]
    pub(crate) fn leave(&mut self, id: RequestId) -> Option<SmallVec<[RequestId; 2]>> {
        let held = self.held.get_mut(id.0 as usize)?;
        if held.range.len.0 == 0 {
            return None;
        }
        assert_eq!(held.waits_for, 0, "a request ends after those that it waited for");
        let range = std::mem::take(&mut held.range);
        if is_wide(range) {
            self.wide.retain(|other| *other != id);
        } else {
            regions(range).for_each(|region| self.unlink(id, region));
        }
        if self.held[id.0 as usize].waiting.is_empty() { None } else { self.let_go(id) }
    }

    /// Ends the wait of requests for request `id`. Returns those that now wait for no other request
    /// and may start; `None` if there are none.
    #[cold]
    fn let_go(&mut self, id: RequestId) -> Option<SmallVec<[RequestId; 2]>> {
        let mut waiting = std::mem::take(&mut self.held[id.0 as usize].waiting);
        waiting.retain(|next| {
            let next = &mut self.held[next.0 as usize];
            assert!(next.waits_for > 0, "a request is told as often as it waits");
            next.waits_for -= 1;
            next.waits_for == 0
        });
        (!waiting.is_empty()).then_some(waiting)
    }

    fn link(&mut self, link: Link) -> u32 {
        if self.free == NONE {
            self.links.push(link);
            return self.links.len() as u32 - 1;
        }
        let place = self.free;
        let link = std::mem::replace(&mut self.links[place as usize], link);
        self.free = link.next;
        place
    }

    #[inline]
    fn unlink(&mut self, id: RequestId, region: u64) {
        let mut before = NONE;
        let mut place = self.buckets[bucket(region)];
        loop {
            assert!(place != NONE, "a request is on the list of each of its regions");
            let link = self.links[place as usize];
            if link.request == id && link.region == region {
                match before {
                    NONE => self.buckets[bucket(region)] = link.next,
                    before => self.links[before as usize].next = link.next,
                }
                self.links[place as usize].next = self.free;
                self.free = place;
                return;
            }
            (before, place) = (place, link.next);
        }
    }

    /// Number of requests in flight or waiting.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.held.iter().filter(|held| held.range.len.0 > 0).count()
    }
}

impl Held {
    /// Whether the later request `id` has to wait for this request. If so, `id` is added to this
    /// request's waiters.
    #[inline]
    fn holds_up(&mut self, id: RequestId, range: ByteRange, writes: bool) -> bool {
        let holds_up = (writes || self.writes) && self.range.overlaps(range);
        if holds_up {
            self.waiting.push(id);
        }
        holds_up
    }

    fn is_write_to(&self, byte: u64) -> bool {
        self.writes && self.range.end().0 == byte
    }
}

fn is_wide(range: ByteRange) -> bool {
    range.len.0 > WIDE_BYTES
}

fn first_region(range: ByteRange) -> u64 {
    range.start.0 / REGION_BYTES
}

fn regions(range: ByteRange) -> std::ops::Range<u64> {
    first_region(range)..(range.end().0 - 1) / REGION_BYTES + 1
}

fn bucket(region: u64) -> usize {
    (region % BUCKETS as u64) as usize
}

/// Size of a region. Few small requests share a region, and large requests cross few of them.
const REGION_BYTES: u64 = 64 << 10;
const BUCKETS: usize = 256;
/// Length above which a request is wide, because it would be on hundreds of lists.
const WIDE_BYTES: u64 = 16 << 20;
const NONE: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    const fn id(number: u32) -> RequestId {
        RequestId(number)
    }

    #[test]
    fn overlapping_writes_run_in_order_of_arrival() {
        let mut ranges = Ranges::default();
        assert!(ranges.enter(id(1), ByteRange::new(0, 8192), true));
        assert!(!ranges.enter(id(2), ByteRange::new(4096, 8192), true));
        assert!(ranges.write_ends_at(8192) && ranges.write_ends_at(12_288));
        assert!(!ranges.write_ends_at(0) && !ranges.write_ends_at(4096));
        assert!(!ranges.enter(id(3), ByteRange::new(8192, 4096), false));
        assert!(ranges.enter(id(4), ByteRange::new(65_536, 1), true));
        assert_eq!(ranges.leave(id(1)).unwrap()[..], [id(2)]);
        assert_eq!(ranges.leave(id(2)).unwrap()[..], [id(3)]);
        assert!(ranges.leave(id(3)).is_none());
        assert!(ranges.leave(id(4)).is_none());
        assert_eq!(ranges.len(), 0);
    }

    #[test]
    fn reads_pass_each_other_but_not_a_waiting_write() {
        let mut ranges = Ranges::default();
        assert!(ranges.enter(id(1), ByteRange::new(0, 4096), false));
        assert!(ranges.enter(id(2), ByteRange::new(0, 4096), false));
        assert!(!ranges.enter(id(3), ByteRange::new(0, 512), true));
        assert!(!ranges.enter(id(4), ByteRange::new(0, 4096), false));
        assert!(ranges.leave(id(1)).is_none());
        assert_eq!(ranges.leave(id(2)).unwrap()[..], [id(3)]);
        assert_eq!(ranges.leave(id(3)).unwrap()[..], [id(4)]);
    }

    #[test]
    fn a_range_is_written_while_a_write_there_is_in_flight_or_waits() {
        let mut ranges = Ranges::default();
        assert!(ranges.enter(id(1), ByteRange::new(4096, 4096), false));
        assert!(!ranges.is_written(ByteRange::new(0, 1 << 20)), "reads are no writes");
        assert!(!ranges.enter(id(2), ByteRange::new(0, 131_072), true));
        for (start, written) in [(0, true), (65_536, true), (126_976, true), (131_072, false)] {
            assert_eq!(ranges.is_written(ByteRange::new(start, 4096)), written, "{start}");
        }
        // A region of the same bucket.
        let far = BUCKETS as u64 * REGION_BYTES;
        assert!(!ranges.is_written(ByteRange::new(far, 4096)));
        assert!(ranges.is_written(ByteRange::new(far, WIDE_BYTES + 512)), "not found out");
        assert_eq!(ranges.leave(id(1)).unwrap()[..], [id(2)]);
        assert!(ranges.is_written(ByteRange::new(0, 512)));
        assert!(ranges.enter(id(3), ByteRange::new(1 << 30, 1 << 25), true));
        assert!(ranges.is_written(ByteRange::new((1 << 30) + (1 << 25) - 512, 512)));
        assert!(ranges.leave(id(2)).is_none() && ranges.leave(id(3)).is_none());
        assert!(!ranges.is_written(ByteRange::new(0, 512)));
    }

    #[test]
    fn a_long_request_is_seen_from_far_behind_its_start() {
        let mut ranges = Ranges::default();
        assert!(ranges.enter(id(1), ByteRange::new(0, 1 << 25), true));
        assert!(!ranges.enter(id(2), ByteRange::new((1 << 25) - 1, 1), false));
        assert!(ranges.enter(id(3), ByteRange::new(1 << 25, 1), false));
    }

    #[test]
    fn a_wide_request_waits_and_is_waited_for_and_is_on_no_list_of_a_region() {
        let mut ranges = Ranges::default();
        assert!(ranges.enter(id(1), ByteRange::new(1 << 40, 4096), false));
        assert!(ranges.enter(id(2), ByteRange::new(0, 4096), true));
        assert!(!ranges.enter(id(3), ByteRange::new(4096, 1 << 50), true));
        assert!(!ranges.enter(id(4), ByteRange::new(0, 1 << 51), false), "for 2 and 3");
        assert!(!ranges.enter(id(5), ByteRange::new(1 << 45, 512), false));
        assert_eq!(ranges.links.len(), 3);
        assert!(ranges.write_ends_at((1 << 50) + 4096) && !ranges.write_ends_at(1 << 51));
        assert!(ranges.leave(id(2)).is_none());
        assert_eq!(ranges.leave(id(1)).unwrap()[..], [id(3)]);
        assert_eq!(ranges.leave(id(3)).unwrap()[..], [id(4), id(5)]);
        assert_eq!(ranges.wide[..], [id(4)]);
        assert!(ranges.enter(id(6), ByteRange::new(0, 512), false), "reads pass each other");
        for last in [4, 5, 6] {
            assert!(ranges.leave(id(last)).is_none());
        }
        assert!(ranges.wide.is_empty());
    }
}
