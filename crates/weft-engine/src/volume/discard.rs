//! How does a range come to read as zeroes without being stored?
//!
//! The part of a trim that is full stripes is discarded on every member, a run of stripes at a time
//! and past the cache ([`crate::raid::parity::discard`]). The same goes for zeros that need not be
//! stored; what they have left over at both ends is written like any other zeros. A trim leaves its
//! ends alone: it is advice, and less than a full stripe cannot be discarded, for the parity of the
//! rest.
//!
//! All or nothing: a member that does not discard while the others do makes the parity of what is
//! written next to it wrong. So the array is marked dirty before, a member that fails is failed,
//! and a driver that finds that a member cannot discard stores zeros in its stead
//! ([`crate::MemberOp::Discard`]). Without space for that, parity is checked from there on.

use std::ops::Range;

use weft_units::{ByteRange, Sectors, Slot};

use super::Volume;
use crate::array::Array;
use crate::error::ReplyError;
use crate::input::{Attr, ClientRequest, Fault, RequestOp};
use crate::mutant::Mutant;
use crate::outbox::{Outbox, Owner};
use crate::output::MemberOp;
use crate::ranges::RequestId;

/// What of a request is discarded.
#[derive(Clone, Debug)]
pub(super) struct Discard {
    request: RequestId,
    /// All of it.
    full_stripes: Range<u64>,
    /// What members are discarding, or are told to discard next.
    run: Range<u64>,
    /// Members that have not answered.
    in_flight: u32,
    /// One that had no space.
    full: Option<Slot>,
    fua: bool,
    attr: Attr,
}

impl Array {
    /// Whether discards pay: every member stores nothing for what is discarded.
    pub(crate) fn can_discard(&self) -> bool {
        let slots = self.membership.present();
        slots.ascending().all(|slot| self.at(slot).is_some_and(|member| member.info.discards))
    }

    /// The bytes of full stripes within a range.
    fn full_stripes_within(&self, range: ByteRange) -> ByteRange {
        let bytes = self.geometry.full_stripe_bytes();
        let (first, end) = (range.start.0.div_ceil(bytes), range.end().0 / bytes);
        ByteRange::new(first * bytes, end.saturating_sub(first) * bytes)
    }

    /// Tells a member to discard full stripes.
    fn discard(&mut self, position: usize, discard: &Discard, out: &mut Outbox) {
        let chunk = self.geometry.chunk().0;
        let Discard { run, fua, attr, request, .. } = discard;
        let member = &mut self.members[position];
        let at = member.data_sector(Sectors(run.start * chunk));
        let op = MemberOp::Discard { at, len: Sectors((run.end - run.start) * chunk), fua: *fua };
        let owner = Owner::Discard(*request);
        out.submit(self.volume, member, op, *attr, owner);
        member.sent(true, Sectors::ZERO);
    }
}

impl Volume {
    /// What of a request is to be discarded; `None` for no part of it.
    pub(super) fn to_discard(&self, request: &ClientRequest) -> Option<ByteRange> {
        let wanted = match request.op {
            RequestOp::Flush | RequestOp::Read | RequestOp::Write => false,
            RequestOp::Trim => true,
            // Of zeros that a member has no space for, their stripe knows what belongs there. After
            // a discard nobody would know what a missing member has.
            RequestOp::WriteZeroes => {
                request.flags.discard && self.array.membership.degraded() == 0
            }
        };
        if !wanted || !self.array.can_discard() {
            return None;
        }
        Some(self.array.full_stripes_within(request.range))
            .filter(|full_stripes| full_stripes.len.0 > 0)
    }

    /// Begins to discard what of a request is to be. Whether that is all of it.
    pub(super) fn begin_discard(&mut self, id: RequestId) -> bool {
        let bytes = self.array.geometry.full_stripe_bytes();
        let request = self.active(id);
        let discarded = request.discarded.as_deref_mut().expect("some of it is to be discarded");
        let full_stripes = discarded.range;
        if !std::mem::replace(&mut discarded.begun, true) {
            let full_stripes = full_stripes.start.0 / bytes..full_stripes.end().0 / bytes;
            request.pending += 1;
            let (fua, attr) = (request.flags.fua, request.attr);
            let run = full_stripes.start..full_stripes.start;
            self.raid.discard_begins(&full_stripes);
            let (in_flight, full) = (0, None);
            let discard = Discard { request: id, full_stripes, run, in_flight, full, fua, attr };
            self.discards.push(discard);
        }
        full_stripes == self.active(id).range
    }

    /// Tells members to discard the next runs of those that may go on.
    pub(super) fn run_discards(&mut self, out: &mut Outbox) {
        let mut place = 0;
        while place < self.discards.len() {
            let may = self.may_go_on(&self.discards[place]);
            let ends = may && self.array.membership.broken;
            if ends {
                self.end_discard(place, Err(ReplyError::Io), out);
                continue;
            }
            if may {
                self.next_run(place, out);
            }
            place += 1;
        }
    }

    /// Whether a turn would tell members to discard something.
    pub(super) fn has_discards_to_run(&self) -> bool {
        self.discards.iter().any(|discard| self.may_go_on(discard))
    }

    fn may_go_on(&self, discard: &Discard) -> bool {
        if discard.in_flight > 0 || !self.members_are_known() {
            return false;
        }
        let run = self.run_after(discard);
        let waits = self.array.is_planted(Mutant::DiscardUnderSync);
        let sync = self.sync.as_ref();
        self.array.membership.broken || waits || self.raid.are_quiet(&run, sync)
    }

    fn run_after(&self, discard: &Discard) -> Range<u64> {
        let most = (RUN_SECTORS / self.array.geometry.chunk().0).max(1);
        let start = discard.run.end;
        start..discard.full_stripes.end.min(start + most)
    }

    fn next_run(&mut self, place: usize, out: &mut Outbox) {
        let run = self.run_after(&self.discards[place]);
        if !self.array.is_planted(Mutant::DiscardKeepsStripes) {
            self.raid.forget(&run);
        }
        let discard = &mut self.discards[place];
        discard.run = run;
        for slot in self.array.membership.present().descending() {
            if slot.0 == 0 && self.array.is_planted(Mutant::DiscardSkipsOneMember) {
                continue;
            }
            let position =
                self.array.position_at(slot).expect("a slot that is present has a member");
            self.array.discard(position, discard, out);
            discard.in_flight += 1;
        }
        assert!(discard.in_flight > 0, "an array that is not broken has members");
    }

    /// A member has discarded a run, or not.
    pub(super) fn discard_done(
        &mut self,
        request: RequestId,
        position: Option<usize>,
        result: Result<(), Fault>,
        out: &mut Outbox,
    ) {
        let place = self.discards.iter().position(|discard| discard.request == request);
        let place = place.expect("it stays until every member has answered");
        let discard = &mut self.discards[place];
        match (result, position) {
            (Err(Fault::NoSpace), Some(position)) => {
                // None if it failed meanwhile.
                discard.full = discard.full.or(self.array.members[position].slot);
            }
            (Err(_), Some(position)) => self.array.fail(position, out),
            (Ok(()), _) | (_, None) => {}
        }
        discard.in_flight -= 1;
        if discard.in_flight > 0 {
            return;
        }
        if let Some(slot) = discard.full {
            let sector = Sectors(discard.run.start * self.array.geometry.chunk().0);
            // Parity may be wrong from here on: of a member that is being rebuilt as well, which
            // may be past it.
            self.array.resync_for_space(sector, true);
            self.end_discard(place, Err(ReplyError::NoSpace), out);
            self.no_space(slot, sector, out);
        } else if discard.run.end == discard.full_stripes.end {
            let result = if self.array.membership.broken { Err(ReplyError::Io) } else { Ok(()) };
            self.end_discard(place, result, out);
        }
    }

    fn end_discard(&mut self, place: usize, result: Result<(), ReplyError>, out: &mut Outbox) {
        let discard = self.discards.remove(place);
        self.raid.discard_ends(&discard.full_stripes);
        self.sub_request_done(discard.request, result, out);
    }
}

/// The range of a request that is discarded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stripes {
    pub(super) range: ByteRange,
    begun: bool,
}

impl Stripes {
    pub(super) fn new(range: ByteRange) -> Self {
        Self { range, begun: false }
    }
}

/// Most that a member is told to discard at a time, in sectors: 64 MiB. Should it have to store
/// zeros, others have their turn in between.
const RUN_SECTORS: u64 = 64 << 11;
