//! Completions: the steps that follow when a computation or a member request of a stripe completes.
//!
//! The memory of a member request that was given up is *pinned*: the member may still read or write
//! it. A stripe with pinned memory is retired, and its work moves to another stripe.
//!
//! Source   md-raid.md §1.7, §2.6 to §2.10, §6.2

use smallvec::{SmallVec, smallvec};
use weft_units::{SectorRange, Span, StripeId};

use super::Stripes;
use super::arrivals::Displaced;
use crate::array::membership::Report;
use crate::contract::input::{Fault, Located, Value};
use crate::contract::output::Differs;
use crate::raid::parity::stripe::{Batch, Operation};
use crate::raid::parity::stripe_part::{StripIo, StripRun};
use crate::raid::{Answer, Cx, Event};

impl Stripes {
    /// Handles a finished computation of a stripe.
    pub(crate) fn computed(&mut self, id: StripeId, value: &Result<Value, Fault>, cx: &mut Cx<'_>) {
        // See `Input::Done`: a driver that cannot compute must stop.
        assert!(value.is_ok(), "a computation has no way to fail");
        let stripe = self.cache.stripe_mut(id);
        let others = std::mem::take(&mut stripe.computed_with);
        if others > 0 {
            self.computed_together(id, others, value, cx);
            return;
        }
        assert_eq!(stripe.in_flight, 1, "a stripe computes one thing at a time");
        stripe.in_flight = 0;
        match std::mem::replace(&mut stripe.operation, Operation::Idle) {
            Operation::Comparing { whole, .. } => {
                let differs = match value {
                    Ok(Value::Differs(differs)) => *differs,
                    _ => Differs::default(),
                };
                self.sync_compared(id, differs, whole, cx);
            }
            Operation::Locating => {
                let located = match value {
                    Ok(Value::Located(located)) => *located,
                    _ => Located::Unknown,
                };
                self.sync_located(id, located, cx);
            }
            Operation::Computing(_) => self.write_out(id, cx),
            Operation::CopyingOut => {
                self.answer_writers(id, &Ok(()));
                self.rest_or_continue(id);
            }
            Operation::Recovering(lost) => {
                stripe.uptodate = stripe.uptodate.or(lost);
                stripe.handle = true;
                self.rest(id);
            }
            Operation::Regenerating(strips) => self.sync_correct(id, strips, cx),
            Operation::Saving => self.saved(id, cx),
            operation @ (Operation::Idle
            | Operation::WritingDeferred
            | Operation::Reading
            | Operation::Rereading(_)
            | Operation::Rewriting(_)
            | Operation::SyncWriting
            | Operation::Writing) => unreachable!("{operation:?} computes nothing"),
        }
    }

    /// Unpins the memory of a given-up member request, which has been answered.
    pub(crate) fn unpin(&mut self, part: StripIo) {
        if let Some(request) = part.zero_copy_from {
            self.events.push(Event::Unpinned { request });
            return;
        }
        let stripe = self.cache.stripe_mut(part.stripe);
        assert!(stripe.pins > 0, "memory is pinned until its request is done");
        stripe.pins -= 1;
        if stripe.pins == 0 && stripe.in_flight == 0 {
            self.rest(part.stripe);
        }
    }

    /// Handles a member request for one strip that is done, or that was given up and so pins
    /// memory.
    #[inline(always)]
    pub(crate) fn done(&mut self, part: StripIo, answer: Answer, cx: &mut Cx<'_>) {
        let head = self.head_of(part.stripe);
        let operation = self.cache.stripe(head).operation;
        if answer.pins {
            self.pin(part);
            if operation == Operation::Reading {
                let stripe = self.cache.stripe_mut(part.stripe);
                stripe.given_up = stripe.given_up.saturating_add(1);
            }
        }
        match (answer.result, operation) {
            (Ok(()), Operation::Reading) => {
                let stripe = self.cache.stripe_mut(part.stripe);
                stripe.uptodate.insert(part.slot);
                stripe.retried.remove(part.slot);
            }
            (Ok(()), Operation::Writing | Operation::WritingDeferred) => {
                self.cache.stripe_mut(part.stripe).deferred.remove(part.slot);
            }
            (Ok(()), _) => {}
            (Err(fault), operation) => self.part_failed(part, fault, operation, answer, cx),
        }
        if cx.membership().with_bad().contains(part.slot) {
            self.written_over(part, answer, operation, cx);
        }
        self.one_done(head, cx);
    }

    /// Handles a write of one slot's strips in adjacent stripes that is done or that was given up.
    pub(crate) fn run_done(&mut self, run: StripRun, answer: Answer, cx: &mut Cx<'_>) {
        let operation = self.cache.stripe(run.head).operation;
        assert_eq!(operation, Operation::Writing, "a batch is only ever written");
        if answer.pins {
            let parts: Vec<StripIo> = self.parts_of(run).collect();
            parts.into_iter().for_each(|part| self.pin(part));
        }
        if let Err(fault) = answer.result {
            let parts: Vec<StripIo> = self.parts_of(run).collect();
            for part in parts {
                self.part_failed(part, fault, operation, answer, cx);
            }
        }
        if cx.membership().with_bad().contains(run.slot) {
            let parts: Vec<StripIo> = self.parts_of(run).collect();
            parts.into_iter().for_each(|part| self.written_over(part, answer, operation, cx));
        }
        self.one_done(run.head, cx);
    }

    /// Handles a strip that was written to a member with bad blocks: the record of bad blocks in
    /// the strip is cleared. A strip that is rewritten after a read error is read back first.
    #[cold]
    fn written_over(
        &mut self,
        part: StripIo,
        answer: Answer,
        operation: Operation,
        cx: &mut Cx<'_>,
    ) {
        let written = answer.write && answer.result.is_ok() && !answer.given_up;
        let same = answer.member == cx.membership().member_at(part.slot);
        if written && same && !matches!(operation, Operation::Rewriting(_)) {
            let height = self.cache.height();
            let start = self.cache.stripe(part.stripe).sector(height);
            cx.written_over(answer.member, SectorRange { start, len: height });
        }
    }

    pub(crate) fn parts_of(&self, run: StripRun) -> impl Iterator<Item = StripIo> {
        let stripes = self.batch_of(run.head);
        let (first, count) = (run.first as usize, run.count as usize);
        stripes.into_iter().skip(first).take(count).map(move |stripe| {
            let zero_copy_from = self
                .cache
                .stripe(stripe)
                .zero_copy_from(run.slot)
                .map(|sub_request| sub_request.request);
            StripIo { stripe, slot: run.slot, zero_copy_from }
        })
    }

    /// Pins the memory of a strip that a given-up member request may still use.
    fn pin(&mut self, part: StripIo) {
        match part.zero_copy_from {
            Some(request) => self.events.push(Event::Pinned { request }),
            None => self.cache.stripe_mut(part.stripe).pins += 1,
        }
    }

    /// Counts one member request of the operation in flight as done. The operation ends after the
    /// last of them.
    #[inline(always)]
    fn one_done(&mut self, head: StripeId, cx: &mut Cx<'_>) {
        let stripe = self.cache.stripe_mut(head);
        assert!(stripe.in_flight > 0, "a member answers what it was asked");
        stripe.in_flight -= 1;
        if stripe.in_flight == 0 {
            self.all_done(head, cx);
        }
    }

    /// Ends the operation in flight after all of its member requests are done.
    #[inline(never)]
    fn all_done(&mut self, head: StripeId, cx: &mut Cx<'_>) {
        let stripe = self.cache.stripe_mut(head);
        match std::mem::replace(&mut stripe.operation, Operation::Idle) {
            Operation::Reading => {
                stripe.handle = true;
                if let Some(since) = stripe.reads_since.take() {
                    let took = cx.now().since(since);
                    let known = self.preread.unwrap_or(took).0;
                    self.preread = Some(Span(known - known / 8 + took.0 / 8));
                }
                self.rest(head);
            }
            Operation::WritingDeferred => self.deferred_written(head, cx),
            Operation::Rereading(slot) => self.reread(head, slot, cx),
            Operation::Rewriting(slot) => self.rewritten(head, slot, cx),
            Operation::SyncWriting => self.sync_written(head, cx),
            Operation::Writing => self.written(head, cx),
            operation @ (Operation::Comparing { .. }
            | Operation::Computing(_)
            | Operation::CopyingOut
            | Operation::Idle
            | Operation::Locating
            | Operation::Recovering(_)
            | Operation::Regenerating(_)
            | Operation::Saving) => {
                unreachable!("{operation:?} has no member requests")
            }
        }
    }

    /// Handles the failure of a member request of the operation.
    #[cold]
    fn part_failed(
        &mut self,
        part: StripIo,
        fault: Fault,
        operation: Operation,
        answer: Answer,
        cx: &mut Cx<'_>,
    ) {
        // A failed member may answer late, when its slot has another member. The new member has not
        // failed.
        let still_there = answer.member.is_some_and(|member| {
            !answer.given_up && cx.membership().member_at(part.slot) == Some(member)
        });
        let stripe = self.cache.stripe_mut(part.stripe);
        match (fault, operation) {
            (_, Operation::Reading) if !still_there => {}
            (Fault::Gone, Operation::Reading) => cx.report(Report::Failed { slot: part.slot }),
            (_, Operation::Reading) => self.read_failed(part, cx),
            (Fault::NoSpace, Operation::Writing | Operation::WritingDeferred) if still_there => {
                stripe.deferred.insert(part.slot);
            }
            (Fault::NoSpace, Operation::SyncWriting) if still_there => {
                stripe.no_space = Some(part.slot);
            }
            (Fault::Io, Operation::Writing)
                if still_there && self.is_to_write_again(part, cx.membership()) => {}
            (fault, _) => {
                let stripe = self.cache.stripe_mut(part.stripe);
                stripe.faults.insert(part.slot);
                let rewrites = matches!(operation, Operation::Rewriting(_));
                if still_there && rewrites && fault == Fault::NoSpace {
                    stripe.no_space = Some(part.slot);
                }
                // The stripe itself handles a strip that cannot be read back or has no space.
                let judged = matches!(operation, Operation::Rereading(_));
                let fails = still_there && !judged && fault != Fault::NoSpace;
                if fails && !(fault == Fault::Io && self.record_unwritten(part, cx)) {
                    cx.report(Report::Failed { slot: part.slot });
                }
            }
        }
    }

    /// Handles the stripe again if requests wait for it or a strip can be corrected; otherwise lets
    /// it rest.
    #[inline]
    pub(super) fn rest_or_continue(&mut self, id: StripeId) {
        let stripe = self.cache.stripe_mut(id);
        stripe.handle |= !stripe.correctable().is_empty();
        self.rest(id);
    }

    /// Puts a stripe with nothing in flight on its list, or sets it aside if a given-up member
    /// request may still use its memory.
    pub(super) fn rest(&mut self, id: StripeId) {
        let stripe = self.cache.stripe_mut(id);
        if stripe.in_flight > 0 {
            return;
        }
        if stripe.pins > 0 {
            self.set_aside(id);
            return;
        }
        stripe.handle |= stripe.has_work();
        self.cache.release(id);
    }

    /// Sets aside a stripe with memory that a given-up member request may still use: its work moves
    /// to another stripe. A stripe with a deferred write cannot be set aside, because it holds the
    /// only copy of a strip, which the other strips do not reproduce: its work waits until the
    /// memory is unpinned or the member has space.
    pub(super) fn set_aside(&mut self, id: StripeId) {
        assert!(self.cache.stripe(id).pins > 0, "only a stripe with pinned memory is set aside");
        self.unbatch(id, |stripes, id| stripes.rest(id));
        let stripe = self.cache.stripe_mut(id);
        if stripe.deferred.is_empty() {
            self.displace(id);
        } else {
            stripe.handle = false;
        }
    }

    /// Retires a stripe with pinned memory, and queues its work for another stripe.
    fn displace(&mut self, id: StripeId) {
        let stripe = self.cache.stripe_mut(id);
        assert_eq!(stripe.in_flight, 0, "work in flight is not moved");
        assert!(stripe.batch == Batch::None, "the batch was taken apart");
        assert!(stripe.deferred.is_empty(), "a stripe with a deferred write stays");
        let (reads, writes) = stripe.move_out();
        let sync = stripe.sync.take().map(|(action, _)| action);
        let (key, attr, given_up) = (stripe.key, stripe.attr, stripe.given_up);
        let work = Displaced { key, reads, writes, sync, attr, given_up };
        self.with_deferred.retain(|other| *other != id);
        self.cache.retire(id);
        if !(work.reads.is_empty() && work.writes.is_empty() && work.sync.is_none()) {
            self.displaced.push_back(work);
        }
    }

    /// Dissolves the batch that stripe `id` heads, and calls `with` for each former follower.
    pub(super) fn unbatch(&mut self, id: StripeId, mut with: impl FnMut(&mut Self, StripeId)) {
        if let Batch::Head(followers) = std::mem::take(&mut self.cache.stripe_mut(id).batch) {
            for follower in followers {
                self.cache.stripe_mut(follower).batch = Batch::None;
                with(self, follower);
            }
        }
    }

    /// Stripes of a batch: its head `id`, then the followers.
    #[inline]
    pub(super) fn batch_of(&self, id: StripeId) -> SmallVec<[StripeId; 4]> {
        let mut stripes = smallvec![id];
        stripes.extend_from_slice(self.followers_of(id));
        stripes
    }

    /// Followers of the batch that a stripe heads.
    #[inline]
    pub(super) fn followers_of(&self, id: StripeId) -> &[StripeId] {
        self.cache.stripe(id).batch.followers()
    }

    fn head_of(&self, id: StripeId) -> StripeId {
        match self.cache.stripe(id).batch {
            Batch::Follower(head) => head,
            Batch::Head(_) | Batch::None => id,
        }
    }
}
