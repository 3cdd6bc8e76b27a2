//! Writes of a stripe, or of a batch of filled stripes.
//!
//! New data is drained into the stripe and parity is computed, in one computation. Then data and
//! parity are written to the members, highest slot first and in ascending order of stripes within a
//! slot, so that each member gets a batch as one run. The writers are answered when every member
//! has answered.
//!
//! Source   md-raid.md §1.7, §2.4

use weft_units::{Bytes, FRAME_BYTES, Slot, StripeId};

use super::{Access, Stripes, exponent};
use crate::array::membership::Membership;
use crate::contract::error::ReplyError;
use crate::contract::frame::{Segment, Segments, ZERO_FRAME};
use crate::contract::input::Class;
use crate::contract::output::ComputeOp;
use crate::layout::slot_set::SlotSet;
use crate::mutant::Mutant;
use crate::raid::parity::plan::Mode;
use crate::raid::parity::stripe::{Batch, Operation, SubRequest};
use crate::raid::parity::stripe_part::{StripIo, StripRun};
use crate::raid::{Cx, Event};
use crate::sched::merge;
use crate::sched::request::{MemberRequest, MergeKind};

impl Stripes {
    /// Drains the writers of a stripe or of a batch, and computes parity.
    pub(super) fn drain(&mut self, id: StripeId, mode: Mode, cx: &mut Cx<'_>) {
        let mut ops = cx.ops();
        self.drain_stripe(id, mode, &mut ops, cx);
        let mut before = id;
        let batch = std::mem::take(&mut self.cache.stripe_mut(id).batch);
        for follower in batch.followers().iter().copied() {
            let goes_on = self.goes_on(follower, before, &mut ops);
            if goes_on {
                let stripe = self.cache.stripe_mut(follower);
                let (new_parity, zero_copy) =
                    (stripe.parity.and(cx.membership().present()), stripe.to_write());
                stripe.drain(new_parity, zero_copy);
                self.cache.count_drained(zero_copy);
            } else {
                self.drain_stripe(follower, mode, &mut ops, cx);
            }
            self.cache.stripe_mut(follower).goes_on = goes_on;
            cx.count_follower();
            before = follower;
        }
        let stripe = self.cache.stripe_mut(id);
        stripe.batch = batch;
        assert!(stripe.written().without(stripe.data).is_empty(), "clients write data strips");
        if stripe.written() == stripe.data {
            stripe.full_write = true;
            self.cache.full_stripe_writes += 1;
        }
        self.compute(id, Operation::Computing(mode), ops, cx);
    }

    /// Extends the last of the computations `ops`, which drain data and compute parity, by the
    /// stripe `id`, if the stripe's memory directly follows that of the stripe `before`. Returns
    /// whether it was extended.
    fn goes_on(&self, id: StripeId, before: StripeId, ops: &mut [ComputeOp]) -> bool {
        let (stripe, before) = (self.cache.stripe(id), self.cache.stripe(before));
        let Some(ComputeOp::Pq { data, p, q }) = ops.last_mut() else { return false };
        if !stripe.goes_on_after(before, self.cache.strip_frames()) {
            return false;
        }
        let strip_bytes = self.cache.strip_bytes() as u32;
        let parts = data.iter_mut().map(|source| &mut source.part).chain(p).chain(q);
        parts.for_each(|part| part.len += strip_bytes);
        true
    }

    fn drain_stripe(
        &mut self,
        id: StripeId,
        mode: Mode,
        ops: &mut Vec<ComputeOp>,
        cx: &mut Cx<'_>,
    ) {
        let strip_bytes = self.cache.strip_bytes();
        let placement = *self.cache.stripe(id).placement();
        let present = cx.membership().present();
        let p = Some(placement.p).filter(|p| present.contains(*p));
        let q = placement.q.filter(|q| present.contains(*q));
        let stripe = self.cache.stripe(id);
        let written = stripe.to_write();
        let full = written == stripe.data;
        let skip_copy = cx.knobs.skip_copy || (self.cache.policy().filled_zero_copy && full);
        let mut zero_copy = SlotSet::EMPTY;
        // At most two operations per sub-request, or one each and the parity; zeros may take more.
        ops.reserve(2 * stripe.writes().len());
        for sub_request in stripe.writes() {
            let zero_copy_from = sub_request.whole_strip(strip_bytes).filter(|_| skip_copy);
            if zero_copy_from.is_some() {
                zero_copy.insert(sub_request.slot);
            }
            if zero_copy_from.is_some() && mode == Mode::Reconstruct {
                continue;
            }
            let mut take = |new: Segment, offset: u32| {
                let here = |slot: Slot| stripe.part(slot, offset, new.len);
                let to = here(sub_request.slot);
                if mode == Mode::ReadModifyWrite {
                    let exponent = exponent(&placement, sub_request.slot, cx);
                    let old = if cx.is_planted(Mutant::RmwNewAsOld) { new } else { to };
                    let (p, q) = (p.map(here), q.map(here));
                    ops.push(ComputeOp::UpdatePq { exponent, old, new, p, q });
                }
                if zero_copy_from.is_some() {
                    return;
                }
                ops.push(if new.is_zero() {
                    ComputeOp::Zero { to }
                } else {
                    ComputeOp::Copy { from: new, to }
                });
            };
            match sub_request.memory {
                Some(memory) => take(memory, sub_request.offset),
                None => sub_request.zeros().for_each(|(part, offset)| take(part, offset)),
            }
        }
        self.cache.count_drained(written);
        let stripe = self.cache.stripe_mut(id);
        stripe.drain(stripe.parity.and(present), zero_copy);
        // Without a present parity member there is no parity to compute, and nothing was read for
        // it.
        if mode == Mode::Reconstruct && (p.is_some() || q.is_some()) {
            let data = self.sources(id, self.cache.stripe(id).data, cx);
            let whole = |slot: Slot| self.whole(id, slot);
            ops.push(ComputeOp::Pq { data, p: p.map(whole), q: q.map(whole) });
        }
    }

    /// Writes data and parity to the members, after parity was computed.
    pub(super) fn write_out(&mut self, id: StripeId, cx: &mut Cx<'_>) {
        assert!(cx.may_write(), "the array is marked dirty before data is written");
        if self.followers_of(id).is_empty() {
            self.begin_writing(id);
            let stripe = self.cache.stripe(id);
            let slots = stripe.written().or(stripe.new_parity).and(cx.membership().present());
            let fua = stripe.written_durably();
            self.stage(id, slots, Access::Write { fua }, cx.knobs.max_sectors, cx);
        } else {
            let stripes = self.batch_of(id);
            stripes.iter().for_each(|id| self.begin_writing(*id));
            self.stage_batch(id, &stripes, cx);
        }
        self.cache.stripe_mut(id).operation = Operation::Writing;
        if cx.is_planted(Mutant::AckBeforeParity) {
            self.batch_of(id).into_iter().for_each(|id| self.answer_writers(id, &Ok(())));
        }
        if self.cache.stripe(id).in_flight == 0 {
            self.written(id, cx);
        }
    }

    /// Marks new data and its parity as valid, when the write to the members begins.
    fn begin_writing(&mut self, id: StripeId) {
        let stripe = self.cache.stripe_mut(id);
        stripe.uptodate =
            stripe.uptodate.or(stripe.written().without(stripe.zero_copy)).or(stripe.new_parity);
        stripe.io_started = true;
        self.cache.forbid_preread(id);
    }

    /// Writes the strips of a batch slot by slot, so that each member gets adjacent sectors at
    /// once.
    fn stage_batch(&mut self, head: StripeId, stripes: &[StripeId], cx: &mut Cx<'_>) {
        assert!(stripes.len() > 1, "a stripe alone is staged as such");
        let stripe = self.cache.stripe(head);
        let (parity, written) = (stripe.new_parity, stripe.written().or(stripe.new_parity));
        let kind = |id| MergeKind {
            fua: false,
            stripes: true,
            attr: self.cache.stripe(id).member_attr(Class::None),
        };
        let first = kind(head);
        let alike = stripes.iter().all(|id| first.merges(&kind(*id)));
        for slot in written.and(cx.membership().present()).descending() {
            let without_tail =
                parity.contains(slot) && cx.is_planted(Mutant::FullStripeWriteWithoutTail);
            let end = stripes.len() - usize::from(without_tail);
            let mut first = 0;
            while first < end {
                first += self.stage_run(head, slot, first, &stripes[first..end], alike, cx);
            }
        }
    }

    /// Writes the strips at `slot` of the batch's stripes from number `first` on, as many as fit
    /// into one member request. Returns the number of strips. `alike` is true if all stripes have
    /// the same client and class.
    fn stage_run(
        &mut self,
        head: StripeId,
        slot: Slot,
        first: usize,
        stripes: &[StripeId],
        alike: bool,
        cx: &mut Cx<'_>,
    ) -> usize {
        let (height, frames) = (self.cache.height(), self.cache.strip_frames());
        let stripe = self.cache.stripe(stripes[0]);
        let attr = stripe.member_attr(Class::None);
        let purpose = stripe.purposes(attr.purpose, SlotSet::only(slot), true).of(slot);
        let attr = attr.with(purpose);
        let kind = MergeKind { fua: stripe.written_durably(), stripes: true, attr };
        let strip = MemberRequest {
            write: true,
            sector: stripe.sector(height),
            bytes: height.bytes(),
            max: cx.knobs.max_sectors,
            kind,
        };
        let Some(room) = cx.room(slot, &strip) else { return stripes.len() };
        let room = (room / height.bytes().0) as usize;
        let stripes = &stripes[..room.clamp(1, stripes.len())];
        let mut parts = Segments::new();
        let mut count = 0;
        while let Some(id) = stripes.get(count) {
            let stripe = self.cache.stripe(*id);
            let attr = stripe.member_attr(Class::None);
            if !alike && !kind.merges(&MergeKind { attr, ..kind }) {
                break;
            }
            let beside = stripes[count + 1..].iter();
            let beside = beside.take_while(|id| alike && self.cache.stripe(**id).goes_on).count();
            let memory = stripe.memory(slot, frames).0;
            let len = memory.len * (1 + beside as u32);
            merge::append(&mut parts, Segment { len, ..memory });
            count += 1 + beside;
        }
        assert!(count > 0, "a run has stripes");
        let bytes = Bytes(height.bytes().0 * count as u64);
        let request = MemberRequest { bytes, ..strip };
        let (first, stripes) = (first as u32, count as u32);
        let run = StripRun { head, slot, first, count: stripes };
        cx.stage(slot, &request, &parts, run.target());
        self.cache.stripe_mut(head).in_flight += 1;
        count
    }

    /// Answers the writers after every member has answered. Failed writes of strips are repeated
    /// before that, and zero-copy pages of strips without space are saved.
    pub(super) fn written(&mut self, id: StripeId, cx: &mut Cx<'_>) {
        assert_eq!(self.cache.stripe(id).in_flight, 0, "every member has answered");
        if !self.to_write_again.is_empty() && self.write_again(id, cx) {
            return;
        }
        let defers = |id: &StripeId| !self.cache.stripe(*id).deferred.is_empty();
        let one_defers = defers(&id) || self.followers_of(id).iter().any(defers);
        if one_defers && self.save_zero_copy(id, &self.batch_of(id), cx) {
            return;
        }
        let stripe = self.cache.stripe_mut(id);
        let mut followers = match std::mem::take(&mut stripe.batch) {
            Batch::Head(followers) => followers,
            Batch::Follower(_) | Batch::None => Vec::new(),
        };
        if std::mem::take(&mut stripe.full_write) {
            assert!(self.cache.full_stripe_writes > 0, "a full-stripe write ends once");
            self.cache.full_stripe_writes -= 1;
        }
        let mut with_deferred = self.defer(id);
        for id in &followers {
            with_deferred |= self.defer(*id);
        }
        let result = if with_deferred {
            Err(ReplyError::NoSpace)
        } else {
            if self.with_deferred.is_empty() {
                self.events.push(Event::Written);
            }
            Ok(())
        };
        for id in std::iter::once(&id).chain(&followers) {
            self.stripe_written(*id, &result, cx);
        }
        // Released in this order, stripes that were used together are later reused together,
        // adjacent in memory.
        self.rest_or_continue(id);
        if followers.is_empty() {
            return;
        }
        for id in followers.drain(..) {
            self.cache.stripe_mut(id).batch = Batch::None;
            self.rest_or_continue(id);
        }
        self.spare_followers.push(followers);
    }

    /// Whether the failed write of a strip is repeated, in a member request of its own, because a
    /// request of several strips may have failed for only one of them. No write is repeated if the
    /// strip has already failed again, or if its member cannot record it as bad.
    #[cold]
    pub(super) fn is_to_write_again(&mut self, part: StripIo, membership: &Membership) -> bool {
        let stripe = self.cache.stripe_mut(part.stripe);
        let again = membership.records_unwritten(part.slot) && !stripe.retried.contains(part.slot);
        if again {
            stripe.retried.insert(part.slot);
            stripe.faults.insert(part.slot);
            self.to_write_again.push(part.stripe);
        }
        again
    }

    /// Repeats the failed writes of strips of the stripe or batch `head`, each in a member request
    /// of its own. Returns whether there are any.
    #[cold]
    fn write_again(&mut self, head: StripeId, cx: &mut Cx<'_>) -> bool {
        let batch = self.batch_of(head);
        let here = |id: &mut StripeId| batch.contains(id);
        let mut stripes: Vec<StripeId> = self.to_write_again.extract_if(.., here).collect();
        stripes.sort_unstable_by_key(|id| id.0);
        stripes.dedup();
        for id in stripes {
            let stripe = self.cache.stripe_mut(id);
            let failed = std::mem::take(&mut stripe.faults).and(cx.membership().present());
            let fua = stripe.written_durably();
            self.stage(id, failed, Access::Write { fua }, Bytes::ZERO, cx);
            if id != head {
                let sent = std::mem::take(&mut self.cache.stripe_mut(id).in_flight);
                self.cache.stripe_mut(head).in_flight += sent;
            }
        }
        let stripe = self.cache.stripe_mut(head);
        let again = stripe.in_flight > 0;
        if again {
            stripe.operation = Operation::Writing;
        }
        again
    }

    fn stripe_written(&mut self, id: StripeId, result: &Result<(), ReplyError>, cx: &Cx<'_>) {
        let has_failed = !self.cache.stripe(id).faults.is_empty();
        let is_lost = has_failed && !self.is_given_without(id, SlotSet::EMPTY, cx);
        let result = if is_lost { &Err(ReplyError::Io) } else { result };
        let unwritten = self.unwritten(id, cx);
        let stripe = self.cache.stripe_mut(id);
        let rewritten = stripe.written().or(stripe.new_parity);
        stripe.read_error = stripe.read_error.without(rewritten).or(unwritten);
        stripe.retried = stripe.retried.without(rewritten);
        stripe.faults = SlotSet::EMPTY;
        stripe.zero_copy = SlotSet::EMPTY;
        self.answer_writers(id, result);
    }

    /// Ends the operation of a stripe, and answers the sub-requests in `taken` with `result`.
    #[inline(always)]
    pub(super) fn answer_writers(&mut self, id: StripeId, result: &Result<(), ReplyError>) {
        let Self { cache, events, .. } = self;
        let stripe = cache.stripe_mut(id);
        for of_request in stripe.taken().chunk_by(|one, next| one.request == next.request) {
            let (answered, count) = (of_request[0].request, of_request.len() as u32);
            match events.last_mut() {
                Some(Event::SubRequestsDone { request, sub_requests, result: Ok(()) })
                    if *request == answered && result.is_ok() =>
                {
                    *sub_requests += count;
                }
                _ => {
                    let (request, result) = (answered, result.clone());
                    events.push(Event::SubRequestsDone { request, sub_requests: count, result });
                }
            }
        }
        stripe.answered();
    }
}

impl Stripes {
    /// Copies strips for which a member had no space from zero-copy pages into their stripes,
    /// before the writers are answered. Returns whether there are such strips.
    fn save_zero_copy(&mut self, id: StripeId, stripes: &[StripeId], cx: &mut Cx<'_>) -> bool {
        if cx.is_planted(Mutant::ZeroCopyNotSaved) {
            return false;
        }
        let mut ops = Vec::new();
        for id in stripes {
            let stripe = self.cache.stripe(*id);
            for slot in stripe.deferred.and(stripe.zero_copy).ascending() {
                let zero_copy_from =
                    stripe.zero_copy_from(slot).expect("writers stay until they are answered");
                let from = zero_copy_from.memory.expect("a zero-copy page has memory");
                ops.push(ComputeOp::Copy { from, to: self.whole(*id, slot) });
            }
        }
        if ops.is_empty() {
            return false;
        }
        self.compute(id, Operation::Saving, ops, cx);
        true
    }

    /// Marks the strips copied by `save_zero_copy` as valid, and goes on to answer the writers.
    pub(super) fn saved(&mut self, id: StripeId, cx: &mut Cx<'_>) {
        for id in self.batch_of(id) {
            let stripe = self.cache.stripe_mut(id);
            let saved = stripe.deferred.and(stripe.zero_copy);
            stripe.uptodate = stripe.uptodate.or(saved);
            stripe.zero_copy = stripe.zero_copy.without(saved);
        }
        self.written(id, cx);
    }

    /// Registers a stripe for which a member had no space, or forgets it if the member has stored
    /// the strip by now. Returns whether the stripe still has a deferred write.
    #[inline]
    fn defer(&mut self, id: StripeId) -> bool {
        let stripe = self.cache.stripe(id);
        assert!(stripe.hashed, "a stripe with a deferred write is hashed");
        if stripe.deferred.is_empty() && self.with_deferred.is_empty() {
            return false;
        }
        self.defer_or_forget(id)
    }

    #[inline(never)]
    fn defer_or_forget(&mut self, id: StripeId) -> bool {
        let stripe = self.cache.stripe(id);
        let deferred = stripe.deferred;
        if deferred.is_empty() {
            self.with_deferred.retain(|other| *other != id);
            return false;
        }
        let sector = stripe.sector(self.cache.height());
        for slot in deferred.ascending() {
            self.events.push(Event::NoSpace { slot, sector });
        }
        if !self.with_deferred.contains(&id) {
            self.with_deferred.push(id);
        }
        true
    }

    /// Tries again to write the strips for which a member had no space, stripe by stripe.
    pub(crate) fn write_deferred(&mut self, cx: &mut Cx<'_>) {
        for id in self.with_deferred.clone() {
            let stripe = self.cache.stripe_mut(id);
            if stripe.in_flight > 0 || stripe.plugged || stripe.handle {
                continue;
            }
            // A member that failed meanwhile will be rebuilt from the others.
            let deferred = stripe.deferred.and(cx.membership().present());
            stripe.deferred = deferred;
            assert!(stripe.operation == Operation::Idle, "a deferred write waits at rest");
            stripe.operation = Operation::WritingDeferred;
            self.stage(id, deferred, Access::WRITE, cx.knobs.max_sectors, cx);
            if self.cache.stripe(id).in_flight == 0 {
                self.deferred_written(id, cx);
            }
        }
    }

    /// Whether a stripe has a deferred write.
    pub(crate) fn has_deferred(&self) -> bool {
        !self.with_deferred.is_empty()
    }

    /// Whether every stripe in use has a deferred write and no other work.
    pub(crate) fn only_deferred(&self) -> bool {
        let rests = |id: &StripeId| {
            let stripe = self.cache.stripe(*id);
            stripe.in_flight == 0 && !stripe.handle && !stripe.plugged
        };
        self.with_deferred.len() == self.cache.active() as usize
            && self.with_deferred.iter().all(rests)
    }

    /// Removes a stripe that no longer has a deferred write from `with_deferred`, and lets it rest.
    pub(crate) fn forget_deferred(&mut self, id: StripeId) {
        self.with_deferred.retain(|other| *other != id);
        self.rest(id);
    }

    pub(super) fn deferred_written(&mut self, id: StripeId, cx: &mut Cx<'_>) {
        let stripe = self.cache.stripe_mut(id);
        assert_eq!(stripe.in_flight, 0, "every member has answered");
        stripe.operation = Operation::Idle;
        stripe.faults = SlotSet::EMPTY;
        stripe.deferred = stripe.deferred.and(cx.membership().present());
        if stripe.deferred.is_empty() {
            self.with_deferred.retain(|other| *other != id);
            if self.with_deferred.is_empty() {
                self.events.push(Event::Written);
            }
        }
        self.rest_or_continue(id);
    }
}

impl SubRequest {
    /// Segments of the frame of zeros that stand in for the sub-request's memory, each with its
    /// offset within the strip.
    fn zeros(&self) -> impl Iterator<Item = (Segment, u32)> {
        let frame = FRAME_BYTES as u32;
        (0..self.len.div_ceil(frame)).map(move |nth| {
            let len = frame.min(self.len - nth * frame);
            (Segment { frame: ZERO_FRAME, offset: 0, len }, self.offset + nth * frame)
        })
    }
}
