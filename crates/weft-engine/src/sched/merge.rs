//! Back merging of the member requests of one turn.
//!
//! Stripes are handled one at a time, so a full stripe arrives here as many small adjacent
//! requests. A request is appended to the last one of the same member and kind if it begins where
//! the last one ends, has the same flags, and the combined length stays within `max_sectors_kb`.
//! The order of requests never changes.
//!
//! Knob     `max_sectors_kb` (KiB; 0 disables merging)
//! Source   Linux block layer, back merge in a plug list; md relies on it (baseline/kernel-md.csv)

use weft_units::{Bytes, Sectors};

use super::request::{MemberRequest, MergeKind};
use crate::contract::frame::{Segment, Segments};
use crate::contract::input::Attr;

/// Last request of one member and direction in a turn. The next request may be merged into it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Last {
    /// Turn of the engine in which the request was made. Requests of earlier turns were sent and
    /// cannot grow.
    turn: u64,
    kind: MergeKind,
    end: Sectors,
    bytes: u64,
    /// Largest length to which merging may extend the request, in bytes.
    max: u64,
    largest: u64,
    /// Index of the request among the engine's outputs or, if the member's queue holds requests
    /// back, in that queue.
    place: usize,
}

impl Last {
    /// State before any request was staged. `largest` limits merged requests, in addition to the
    /// limit of each request.
    pub(crate) const fn none(largest: Bytes) -> Self {
        Self {
            turn: 0,
            kind: MergeKind { fua: false, stripes: false, attr: Attr::NONE },
            end: Sectors(u64::MAX),
            bytes: 0,
            max: 0,
            largest: largest.0,
            place: 0,
        }
    }

    /// Index of the staged request to which `next`, at sector `at`, is to be appended. `None` if
    /// `next` is sent separately; it then becomes the last request, with the index `place`.
    #[inline]
    pub(crate) fn merge(
        &mut self,
        turn: u64,
        at: Sectors,
        next: &MemberRequest,
        place: usize,
    ) -> Option<usize> {
        let bytes = next.bytes.0;
        let end = at + next.bytes.sectors_floor();
        if self.fits(turn, at, next) {
            self.end = end;
            self.bytes += bytes;
            return Some(self.place);
        }
        // The fields are assigned one by one, so that the kind is copied as it lies in memory.
        self.turn = turn;
        self.kind = next.kind;
        self.end = end;
        self.bytes = bytes;
        self.max = next.max.0;
        self.place = place;
        None
    }

    /// Number of bytes that `next` may have at sector `at` without being split.
    pub(crate) fn room(&self, turn: u64, at: Sectors, next: &MemberRequest) -> u64 {
        let max = next.max.0.min(self.largest);
        if self.fits(turn, at, next) { self.max.min(max) - self.bytes } else { max }
    }

    #[inline]
    pub(crate) fn fits(&self, turn: u64, at: Sectors, next: &MemberRequest) -> bool {
        self.end == at
            && self.turn == turn
            && self.bytes + next.bytes.0 <= self.max.min(next.max.0).min(self.largest)
            && self.kind.merges(&next.kind)
    }
}

/// Appends a segment, or extends the last one if the two are adjacent in memory.
pub(crate) fn append(parts: &mut Segments, part: Segment) {
    if let Some(last) = parts.last_mut()
        && last.slab_end() == part.slab_start()
        && !part.is_zero()
        && !last.is_zero()
    {
        last.len += part.len;
        return;
    }
    parts.push(part);
}

#[cfg(test)]
mod tests {
    use weft_units::Group;

    use super::*;

    type Staged = (u16, bool, bool, u64);

    const ANY: Bytes = Bytes(u64::MAX);

    fn request(write: bool, fua: bool, max_kib: u64) -> MemberRequest {
        let kind = MergeKind { fua, stripes: true, attr: Attr::NONE };
        let (sector, bytes) = (Sectors::ZERO, Bytes(4096));
        MemberRequest { write, sector, bytes, max: Bytes::kib(max_kib), kind }
    }

    /// Stages requests of 4 KiB. Returns the requests that are sent separately, each with the
    /// number of requests merged into it.
    fn merged(requests: &[Staged], max_kib: impl Fn(usize) -> u64) -> Vec<(u16, u64, usize)> {
        let mut last = [[Last::none(ANY); 2]; 2];
        let mut sent: Vec<(u16, u64, usize)> = Vec::new();
        for (number, (member, write, fua, at)) in requests.iter().enumerate() {
            let next = request(*write, *fua, max_kib(number));
            let last = &mut last[usize::from(*member)][usize::from(*write)];
            match last.merge(1, Sectors(*at), &next, sent.len()) {
                Some(place) => sent[place].2 += 1,
                None => sent.push((*member, *at, 1)),
            }
        }
        sent
    }

    #[test]
    fn neighbours_of_one_member_and_kind_become_one() {
        let requests = [
            (0, true, false, 0),
            (1, true, false, 0),
            (0, true, false, 8),
            (0, true, false, 16),
            (0, false, false, 24),
            (0, true, false, 32),
        ];
        assert_eq!(merged(&requests, |_| 512), [(0, 0, 3), (1, 0, 1), (0, 24, 1), (0, 32, 1)]);
    }

    #[test]
    fn a_merged_request_stays_within_the_limit_and_flags_are_kept() {
        let mut requests: Vec<_> = (0..5).map(|n| (0, true, false, n * 8)).collect();
        assert_eq!(merged(&requests, |_| 8), [(0, 0, 2), (0, 16, 2), (0, 32, 1)]);
        assert_eq!(merged(&requests, |_| 0).len(), 5);
        requests[1].2 = true;
        assert_eq!(merged(&requests, |_| 512).len(), 3);
    }

    #[test]
    fn a_request_that_goes_alone_takes_no_company() {
        let requests: Vec<_> = (0..3).map(|n| (0, false, false, n * 8)).collect();
        assert_eq!(merged(&requests, |number| if number == 1 { 0 } else { 512 }).len(), 3);
    }

    /// A run may grow as long as the request that results from merging its strips one by one.
    #[test]
    fn a_run_goes_as_far_as_its_strips_would() {
        let strip = request(true, false, 64);
        let mut last = Last::none(ANY);
        assert_eq!(last.room(1, Sectors(0), &strip), 65_536);
        let mut joined = 0;
        last.merge(1, Sectors(0), &strip, 0);
        let room = last.room(1, Sectors(8), &strip);
        while last.merge(1, Sectors(8 + joined * 8), &strip, 0).is_some() {
            joined += 1;
        }
        assert_eq!((joined, room), (15, 15 * 4096));
        assert_eq!(last.room(1, Sectors(136), &strip), 15 * 4096, "the last one took its place");
        assert_eq!(last.room(1, Sectors(999), &strip), 65_536, "elsewhere it goes on its own");
    }

    #[test]
    fn requests_of_one_client_merge_whatever_they_are_for() {
        use crate::contract::input::{Class, Origin, Purpose};
        use weft_units::ClientId;

        let of = |attr: Attr| {
            let plain = request(false, false, 512);
            MemberRequest { kind: MergeKind { attr, ..plain.kind }, ..plain }
        };
        let client = Attr { origin: Origin::Client(ClientId(1), Group::ROOT), ..Attr::NONE };
        let merges = |attr: Attr| {
            let mut last = Last::none(ANY);
            last.merge(1, Sectors(0), &of(client), 0);
            last.merge(1, Sectors(8), &of(attr), 1).is_some()
        };
        assert!(merges(client.with(Purpose::RmwRead)));
        assert!(merges(Attr { meta: true, ..client.with(Purpose::Reconstruct) }));
        assert!(!merges(Attr { origin: Origin::Client(ClientId(2), Group::ROOT), ..client }));
        assert!(!merges(Attr { class: Class::Idle, ..client }));
        assert!(!merges(Attr { weight: 7, ..client }));
    }

    #[test]
    fn what_another_turn_sent_is_out_of_reach() {
        let next = request(false, false, 512);
        let mut last = Last::none(ANY);
        assert_eq!(last.merge(1, Sectors(0), &next, 7), None);
        assert_eq!(last.merge(1, Sectors(8), &next, 8), Some(7));
        assert_eq!(last.merge(2, Sectors(16), &next, 9), None);
    }

    #[test]
    fn memory_that_goes_on_is_one_part() {
        let part =
            |frame| Segment { frame: crate::contract::frame::Frame(frame), offset: 0, len: 4096 };
        let mut parts = Segments::new();
        for frame in [10, 11, 30, 0, 0] {
            append(&mut parts, part(frame));
        }
        assert_eq!(parts.len(), 4, "{parts:?}");
        assert_eq!(parts[0].len, 8192);
    }
}
