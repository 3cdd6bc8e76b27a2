//! Discards: full stripes that read as zeros afterwards, without zeros being stored.
//!
//! The full stripes within the range of a trim are discarded on every member, parity included,
//! because the parity of zeros is zero. This is done run by run, and the stripe cache is bypassed.
//! Write-zeroes that may discard are handled alike, and the parts of their range outside full
//! stripes are written like any zeros. A trim is ignored outside full stripes: it is advice, and
//! less than a full stripe cannot be discarded, because parity covers the rest. During a discard no
//! other work may read or write its full stripes. Requests of clients are locked out already
//! ([`crate::volume::ranges`]); this module locks out syncs and the cache's own work.
//!
//! A discard is all or nothing: if one member kept its data while the others discard theirs, the
//! next write to the stripe would compute wrong parity. Therefore the array is marked dirty first,
//! a member that fails its discard is failed, and if a member cannot discard the driver writes
//! zeros instead ([`crate::MemberOp::Discard`]). If there is no space for these zeros, parity is
//! resynced from that sector on.
//!
//! Source   drivers/md/raid5.c, `make_discard_request`: whole stripes only, for the same reason. md
//!          sends them stripe by stripe, through its cache

use std::ops::Range;

use weft_units::{ByteRange, Sectors, Slot, StripeId};

use super::ParityRaid;
use super::stripes::Stripes;
use crate::array::resync_window::Resync;
use crate::contract::error::ReplyError;
use crate::contract::input::{Attr, ClientRequest, Fault, RequestOp};
use crate::contract::token::RequestId;
use crate::layout::geometry::Geometry;
use crate::layout::slot_set::SlotSet;
use crate::mutant::Mutant;
use crate::raid::cx::MemberDiscard;
use crate::raid::parity::stripe::Batch;
use crate::raid::personality::Discards;
use crate::raid::{ArrayIo, ArrayView, Cx, Event};

/// Discard of the full stripes of one request.
#[derive(Clone, Debug)]
pub(super) struct Discard {
    request: RequestId,
    /// Numbers of the full stripes to discard.
    full_stripes: Range<u64>,
    /// Full stripes that members are discarding, or discarded last, in one step of the discard;
    /// empty before the first step.
    run: Range<u64>,
    /// Number of members that have not answered for the current step, the full stripes in `run`.
    in_flight: u32,
    /// Slot of a member that had no space to write zeros in place of the discard; `None` if there
    /// is none.
    full: Option<Slot>,
    fua: bool,
    attr: Attr,
}

impl Discard {
    /// Whether one of the discards covers this full stripe, so that its stripes must not be used.
    pub(super) fn any_has(discards: &[Self], full_stripe: u64) -> bool {
        discards.iter().any(|discard| discard.full_stripes.contains(&full_stripe))
    }

    /// Numbers of the full stripes in the next step: those after the current `run`, at most
    /// [`RUN_SECTORS`] on each member.
    fn run_after(&self, geometry: &Geometry) -> Range<u64> {
        let most = (RUN_SECTORS / geometry.chunk().0).max(1);
        let start = self.run.end;
        start..self.full_stripes.end.min(start + most)
    }

    /// Tells the member at `position` to discard its part of the full stripes in `run`.
    fn send(&self, position: usize, chunk: u64, cx: &mut Cx<'_>) {
        assert!(self.run.end <= self.full_stripes.end, "a run lies within its discard");
        let Self { request, fua, attr, .. } = *self;
        let first = Sectors(self.run.start * chunk);
        let len = Sectors((self.run.end - self.run.start) * chunk);
        let discard = MemberDiscard { request, first, len, counted: Sectors::ZERO, fua, attr };
        cx.discard(position, &discard);
    }
}

impl ParityRaid {
    /// Begins to discard `discarded`, the part of a request's range that consists of full stripes.
    pub(super) fn begin_discard(&mut self, io: &ArrayIo, discarded: ByteRange) {
        let bytes = self.geometry.full_stripe_bytes();
        let full_stripes = discarded.start.0 / bytes..discarded.end().0 / bytes;
        assert!(!full_stripes.is_empty(), "full stripes are discarded");
        let run = full_stripes.start..full_stripes.start;
        let (request, in_flight, full, fua, attr) = (io.id, 0, None, io.flags.fua, io.attr);
        self.discards.push(Discard { request, full_stripes, run, in_flight, full, fua, attr });
    }

    /// Sends the next step of every discard for which no member request is in flight and nothing
    /// else uses the stripes.
    pub(super) fn run_discards(&mut self, sync: Option<&Resync>, cx: &mut Cx<'_>) {
        let mut place = 0;
        while place < self.discards.len() {
            let may = self.may_go_on(&self.discards[place], sync, cx.view());
            if may && cx.membership().broken {
                self.end_discard(place, Err(ReplyError::Io));
                continue;
            }
            if may {
                self.next_run(place, cx);
            }
            place += 1;
        }
    }

    /// Whether [`Self::run_discards`] would send or end anything.
    pub(super) fn has_discards_to_run(&self, sync: Option<&Resync>, array: ArrayView<'_>) -> bool {
        self.discards.iter().any(|discard| self.may_go_on(discard, sync, array))
    }

    fn may_go_on(&self, discard: &Discard, sync: Option<&Resync>, array: ArrayView<'_>) -> bool {
        if discard.in_flight > 0 || !array.is_known() {
            return false;
        }
        let keys = self.stripes.keys_of(&discard.run_after(&self.geometry));
        let waits = array.is_planted(Mutant::DiscardUnderSync);
        array.membership().broken || waits || self.stripes.are_quiet(&keys, sync)
    }

    fn next_run(&mut self, place: usize, cx: &mut Cx<'_>) {
        let discard = &mut self.discards[place];
        discard.run = discard.run_after(&self.geometry);
        assert!(!discard.run.is_empty(), "a discard that goes on has something left");
        if !cx.is_planted(Mutant::DiscardKeepsStripes) {
            let keys = self.stripes.keys_of(&discard.run);
            let may =
                self.stripes.are_quiet(&keys, None) || cx.is_planted(Mutant::DiscardUnderSync);
            assert!(may, "no work goes on in discarded stripes");
            self.stripes.forget(&keys);
        }
        for slot in cx.membership().present().descending() {
            if slot.0 == 0 && cx.is_planted(Mutant::DiscardSkipsOneMember) {
                continue;
            }
            let position = cx.view().position_at(slot);
            let position = position.expect("a slot that is present has a member");
            discard.send(position, self.geometry.chunk().0, cx);
            discard.in_flight += 1;
        }
        assert!(discard.in_flight > 0, "an array that is not broken has members");
    }

    fn end_discard(&mut self, place: usize, result: Result<(), ReplyError>) {
        let Discard { request, in_flight, .. } = self.discards.remove(place);
        assert_eq!(in_flight, 0, "every member has answered");
        let done = Event::SubRequestsDone { request, sub_requests: 1, result };
        self.stripes.events.push(done);
    }
}

impl Discards for ParityRaid {
    /// The full stripes within the request's range, to be discarded. `None` if there are none, if a
    /// member cannot discard, or if the request must not be carried out as a discard.
    #[inline]
    fn to_discard(&self, request: &ClientRequest, array: ArrayView<'_>) -> Option<ByteRange> {
        let wanted = match request.op {
            RequestOp::Flush | RequestOp::Read | RequestOp::Write => false,
            RequestOp::Trim => true,
            // If a member lacks space for written zeros, the stripe keeps them. A discard keeps
            // nothing, so after a lack of space the content of a missing member could not be
            // computed.
            RequestOp::WriteZeroes => request.flags.discard && array.membership().degraded() == 0,
        };
        if !wanted || !array.can_discard() {
            return None;
        }
        let bytes = self.geometry.full_stripe_bytes();
        let range = request.range;
        let (first, end) = (range.start.0.div_ceil(bytes), range.end().0 / bytes);
        (first < end).then(|| ByteRange::new(first * bytes, (end - first) * bytes))
    }

    fn discard_done(
        &mut self,
        request: RequestId,
        position: Option<usize>,
        result: Result<(), Fault>,
        cx: &mut Cx<'_>,
    ) {
        let place = self.discards.iter().position(|discard| discard.request == request);
        let place = place.expect("a discard stays until every member has answered");
        let discard = &mut self.discards[place];
        match (result, position) {
            (Err(Fault::NoSpace), Some(position)) => {
                // `None` if the member failed meanwhile.
                discard.full = discard.full.or(cx.view().slot_of(position));
            }
            (Err(_), Some(position)) => cx.lose(position),
            (Ok(()), _) | (_, None) => {}
        }
        assert!(discard.in_flight > 0, "a member discards a run once");
        discard.in_flight -= 1;
        if discard.in_flight > 0 {
            return;
        }
        if let Some(slot) = discard.full {
            let sector = Sectors(discard.run.start * self.geometry.chunk().0);
            // Parity may be wrong from here on, also on a member under recovery that is past this
            // sector. Members other than the first may also have lacked space.
            cx.resync_for_space(sector, cx.membership().present());
            self.end_discard(place, Err(ReplyError::NoSpace));
            self.stripes.events.push(Event::NoSpaceForDiscard { slot, sector });
        } else if discard.run.end == discard.full_stripes.end {
            let result = if cx.membership().broken { Err(ReplyError::Io) } else { Ok(()) };
            self.end_discard(place, result);
        }
    }
}

impl Stripes {
    /// Range of stripe numbers that the given full stripes cover.
    pub(crate) fn keys_of(&self, full_stripes: &Range<u64>) -> Range<u64> {
        let stripes = self.stripes_per_chunk();
        full_stripes.start * stripes..full_stripes.end * stripes
    }

    /// Whether nothing uses the stripes `keys`: no request, no sync, and no operation in flight,
    /// such as a correction. A deferred write that is not being tried again does not count.
    pub(crate) fn are_quiet(&self, keys: &Range<u64>, sync: Option<&Resync>) -> bool {
        let is_quiet = |id: &StripeId| {
            let stripe = self.cache.stripe(*id);
            let untouched = !stripe.handle && !stripe.plugged && stripe.batch == Batch::None;
            stripe.in_flight == 0 && untouched && !stripe.has_work()
        };
        // A sync may also wait for a stripe that it asked for.
        sync.is_none_or(|sync| !sync.waits_for(keys))
            && self.cache.stripes_of(keys).iter().all(is_quiet)
    }

    /// Removes the stripes `keys` from the index and drops their deferred writes. The stripes must
    /// be quiet.
    pub(crate) fn forget(&mut self, keys: &Range<u64>) {
        for id in self.cache.stripes_of(keys) {
            let stripe = self.cache.stripe_mut(id);
            if !stripe.deferred.is_empty() {
                // Discarded data needs no space on the member.
                stripe.deferred = SlotSet::EMPTY;
                self.forget_deferred(id);
            }
            self.cache.forget(id);
        }
    }
}

/// Longest run of a discard on a member, in sectors: 64 MiB. Other requests can go between two runs
/// even if a member has to write zeros to carry out the discard.
const RUN_SECTORS: u64 = 64 << 11;

#[cfg(test)]
mod tests {
    use weft_ondisk::Level;
    use weft_units::{Sectors, Slot};

    use super::*;
    use crate::SyncAction;
    use crate::contract::frame::Frame;
    use crate::knobs::Knobs;
    use crate::layout::geometry::Geometry;
    use crate::raid::parity::cache::{Acquired, Cache};
    use crate::raid::parity::stripe::{ResyncState, Stripe};

    /// Stripes of three members, 8 of them in a full stripe; one is in use, stripe 5.
    fn stripes(change: fn(&mut Stripe)) -> Stripes {
        let geometry = Geometry::new(Level::Raid5, 2, 3, Sectors(64), Sectors(512)).unwrap();
        let mut cache = Cache::new(16, Frame(0), 3, Sectors(8), 8, &Knobs::md());
        let Acquired::Stripe(id) = cache.acquire(5, &geometry) else { panic!("all are free") };
        change(cache.stripe_mut(id));
        Stripes::new(cache, Sectors(64))
    }

    #[test]
    fn full_stripe_is_quiet_unless_something_goes_on_in_one_of_its_stripes() {
        let goes_on: [fn(&mut Stripe); 6] = [
            |stripe| stripe.handle = true,
            |stripe| stripe.plugged = true,
            |stripe| stripe.batch = Batch::Head(vec![StripeId(9)]),
            |stripe| stripe.batch = Batch::Follower(StripeId(9)),
            |stripe| stripe.in_flight = 1,
            |stripe| stripe.sync = Some((SyncAction::Check, ResyncState::Requested)),
        ];
        for (change, number) in goes_on.into_iter().zip(0..) {
            assert!(!stripes(change).are_quiet(&(0..8), None), "change {number}");
            assert!(stripes(change).are_quiet(&(8..16), None), "change {number}");
        }
        assert!(stripes(|_| {}).are_quiet(&(0..8), None));
    }

    #[test]
    fn stripes_of_a_full_stripe_that_is_discarded_are_forgotten_and_defer_nothing() {
        for keys in [0..5, 0..8, 0..64] {
            let mut stripes = stripes(|stripe| stripe.deferred = SlotSet::only(Slot(1)));
            let id = stripes.cache.find(5).unwrap();
            stripes.forget(&keys);
            let forgotten = keys.contains(&5);
            assert_eq!(stripes.cache.find(5).is_none(), forgotten, "{keys:?}");
            assert_eq!(stripes.cache.stripe(id).deferred.is_empty(), forgotten, "{keys:?}");
        }
    }
}
