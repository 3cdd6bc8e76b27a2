//! Stripe handling: carries out the steps of a stripe, from the arrival of a request to its answer.
//!
//! [`super::plan`] decides the next step of a stripe, and [`super::cache`] which stripe is next.
//! This module carries the step out: member requests, computations, and what follows when they
//! complete. Adjacent filled stripes of one chunk are written as one batch, member by member, and
//! adjacent stripes of a sync take their steps together.
//!
//! The memory of a member request that was given up is *pinned*: the member may still read or write
//! it. A stripe with pinned memory is retired, and its work moves to another stripe.
//!
//! Source   md-raid.md §1.4, §1.7, §2.2 to §2.10, §6.2

mod answers;
pub(super) mod arrivals;
mod correct;
mod sync;
mod together;
mod write;

use std::collections::VecDeque;

use weft_units::{Bytes, SectorRange, Sectors, Slot, Span, StripeId};

use self::arrivals::Displaced;
use super::cache::Cache;
use super::plan::{Facts, StripeStep};
use super::priority::patience_for_others;
use super::stripe::{Batch, Operation, ResyncState};
use crate::array::membership::{Membership, ReadAround};
use crate::array::outbox::JobId;
use crate::contract::error::ReplyError;
use crate::contract::frame::Segment;
use crate::contract::input::SyncAction;
use crate::contract::output::{ComputeOp, Source, Sources};
use crate::contract::stripe_waits::StripeWaits;
use crate::knobs::CheckReads;
use crate::layout::geometry::Placement;
use crate::layout::slot_set::SlotSet;
use crate::mutant::Mutant;
use crate::raid::parity::stripe_part::StripIo;
use crate::raid::{Cx, Event};
use crate::sched::request::{MemberRequest, MergeKind};

/// Stripe cache of a volume, and the operations on its stripes.
#[derive(Clone, Debug)]
pub(crate) struct Stripes {
    pub(crate) cache: Cache,
    stripes_per_chunk: u64,
    /// Stripes to which something was attached in this turn, in order.
    plug: Vec<StripeId>,
    /// Stripes with a deferred write: a member had no space for one of the stripe's strips.
    with_deferred: Vec<StripeId>,
    /// Stripes with a strip that failed to be written and is written once more.
    to_write_again: Vec<StripeId>,
    /// Work of retired stripes, which waits for other stripes.
    displaced: VecDeque<Displaced>,
    /// Empty lists for followers of batches, kept for their allocations.
    spare_followers: Vec<Vec<StripeId>>,
    pub(crate) waits: StripeWaits,
    /// Average duration of a preread; `None` until one was measured.
    preread: Option<Span>,
    /// Events that the volume has not yet taken.
    pub(crate) events: Vec<Event>,
}

impl Stripes {
    pub(crate) fn new(cache: Cache, chunk: Sectors) -> Self {
        let stripes_per_chunk = chunk.0 / cache.height().0;
        assert!(stripes_per_chunk.is_power_of_two(), "a stripe is never higher than the chunk");
        Self {
            cache,
            stripes_per_chunk,
            plug: Vec::new(),
            with_deferred: Vec::new(),
            to_write_again: Vec::new(),
            displaced: VecDeque::new(),
            spare_followers: Vec::new(),
            waits: StripeWaits::default(),
            preread: None,
            events: Vec::new(),
        }
    }

    /// Number of reads of the stripe that were given up because a member was slow, since the cache
    /// last reused the stripe.
    pub(crate) fn given_up(&self, id: StripeId) -> u8 {
        self.cache.stripe(id).given_up
    }

    pub(super) fn stripes_per_chunk(&self) -> u64 {
        self.stripes_per_chunk
    }

    /// Number of the full stripe that contains the stripe number `key`.
    pub(crate) fn full_stripe_of(&self, key: u64) -> u64 {
        key >> self.stripes_per_chunk.ilog2()
    }

    // Handling.

    /// Takes the next step of the stripe `id`, which was picked.
    pub(crate) fn handle(&mut self, id: StripeId, cx: &mut Cx<'_>) {
        let stripe = self.cache.stripe_mut(id);
        assert_eq!(stripe.in_flight, 0, "a stripe is handled one step at a time");
        assert!(stripe.handle, "a stripe that is picked may have work");
        stripe.handle = false;
        stripe.delayed = false;
        stripe.batch_ready = false;
        if stripe.pins > 0 {
            self.set_aside(id);
            return;
        }
        if let Some((action, ResyncState::Requested)) = stripe.sync
            && stripe.batch == Batch::None
        {
            stripe.sync = Some((action, ResyncState::Filling));
            let requested =
                matches!(action, SyncAction::Check | SyncAction::Correct | SyncAction::Repair);
            if requested {
                // Strips that could not be corrected before are tried once more.
                stripe.uncorrectable = SlotSet::EMPTY;
            }
            if requested && cx.knobs.check_reads == CheckReads::Media {
                // Deferred strips are not on their members yet, so only these stay valid; all other
                // strips are read.
                stripe.uptodate = stripe.uptodate.and(stripe.deferred);
            }
            if action == SyncAction::Recover {
                self.forget_lost_parity(id, cx);
            }
        }
        if self.copy_out(id, cx) {
            return;
        }
        if !cx.membership().with_bad().is_empty() {
            self.meet_bad_blocks(id, cx);
        }
        let facts = self.facts(id, cx);
        let written_in_vain = cx.membership().broken && !facts.to_write.is_empty();
        let failed = facts.failed();
        if written_in_vain || (!failed.is_empty() && failed.count() > facts.parity().count()) {
            self.fail_stripe(id, facts, cx);
            return;
        }
        match facts.plan() {
            StripeStep::Read { strips, delay } => {
                let since = self.cache.since(cx.now());
                let stripe = self.cache.stripe_mut(id);
                if delay {
                    stripe.handle = true;
                    stripe.delayed = true;
                    stripe.waits_since.get_or_insert(since);
                    if stripe.waited_for {
                        stripe.due.get_or_insert(cx.now() + patience_for_others(self.preread));
                    }
                } else if let Some(since) = stripe.waits_since.take() {
                    stripe.reads_since = Some(cx.now());
                    self.waits.preread.record(since.at, cx.now());
                }
                self.read(id, strips, cx);
            }
            // P of RAID 6 is computed once the other strips are valid, but a failed read of it is
            // repeated first.
            StripeStep::Recover(lost) if !self.to_repeat(id, lost, facts).is_empty() => {
                self.read(id, self.to_repeat(id, lost, facts), cx);
            }
            StripeStep::Recover(lost) => self.recover(id, lost, cx),
            StripeStep::Write(mode) => {
                if let Some(since) = self.cache.stripe_mut(id).waits_since.take() {
                    self.waits.filled.record(since.at, cx.now());
                }
                self.drain(id, mode, cx);
            }
            // Strips are corrected before parity is compared, so that the sync compares corrected
            // strips.
            StripeStep::Rest if self.correct(id, cx) => {}
            StripeStep::Rest if self.is_filled_for_sync(id) && facts.wants_all => {
                self.sync_compare(id, facts, cx);
            }
            StripeStep::Rest if self.is_filled_for_sync(id) => {
                self.sync_correct(id, SlotSet::EMPTY, cx);
            }
            StripeStep::Rest => self.rest(id),
        }
    }

    /// Slots at which the stripe's strip can be read from the member.
    #[inline]
    fn readable(&self, id: StripeId, membership: &Membership) -> SlotSet {
        let (stripe, height) = (self.cache.stripe(id), self.cache.height());
        let around = match stripe.sync {
            Some((action, _)) if action != SyncAction::Recover => ReadAround::Never,
            // The stripe holds the strip that a member has no space for, and the other strips match
            // it.
            _ if !stripe.deferred.is_empty() => ReadAround::Always,
            _ => ReadAround::WhereChecked,
        };
        membership.readable(SectorRange::new(stripe.sector(height).0, height.0), around)
    }

    /// Whether the other strips may be read to compute this strip, so that it need not be read from
    /// its member, which does not answer.
    pub(crate) fn reads_around(&self, part: StripIo, membership: &Membership) -> bool {
        !self.readable(part.stripe, membership).contains(part.slot)
    }

    #[inline(always)]
    fn facts(&self, id: StripeId, cx: &Cx<'_>) -> Facts {
        let stripe = self.cache.stripe(id);
        let sector = stripe.sector(self.cache.height());
        let placement = stripe.placement();
        let readable = self.readable(id, cx.membership());
        let insync = readable.without(stripe.read_error);
        let copied = self.copied(id, insync, cx.membership());
        let (mut to_read, mut to_write) = (stripe.to_read(), stripe.to_write());
        if !copied.is_empty() {
            (to_read, to_write) = (to_read.or(copied), SlotSet::EMPTY);
        }
        let syncs = self.is_filled_for_sync(id) && copied.is_empty();
        Facts {
            all: SlotSet::first(stripe.members),
            p: placement.p,
            q: placement.q,
            uptodate: stripe.uptodate,
            insync,
            writable: cx.membership().present(),
            to_read,
            to_write,
            overwrite: stripe.overwrite(self.cache.strip_bytes()).and(to_write),
            wants_all: syncs || !self.to_compute(id, cx).is_empty(),
            preread: stripe.preread,
            resync_pending: cx.membership().resync_from.is_some_and(|from| sector >= from),
            rmw_level: cx.knobs.rmw_level,
            rule: cx.knobs.plan_rule,
        }
    }

    /// Strips that a recovery only copies to replacements, so that it needs no other strips.
    /// Writers wait meanwhile. Empty if the recovery has to compute a strip.
    #[inline]
    fn copied(&self, id: StripeId, insync: SlotSet, membership: &Membership) -> SlotSet {
        let replaced = membership.replaced();
        if replaced.is_empty() {
            return SlotSet::EMPTY;
        }
        let known = insync.or(self.cache.stripe(id).uptodate);
        let recovers =
            matches!(self.cache.stripe(id).sync, Some((SyncAction::Recover, ResyncState::Filling)));
        let copies =
            recovers && membership.filled() == replaced && replaced.without(known).is_empty();
        if copies { replaced } else { SlotSet::EMPTY }
    }

    /// Whether a sync waits for valid strips: for all strips, or for those that it copies.
    #[inline]
    fn is_filled_for_sync(&self, id: StripeId) -> bool {
        matches!(self.cache.stripe(id).sync, Some((_, ResyncState::Filling)))
    }

    /// Invalidates cached parity on slots that a recovery rebuilds: such parity may have been
    /// cached before the member failed, while a resync had not yet checked it. The recovery
    /// computes it again from the data, which it reads anyway.
    fn forget_lost_parity(&mut self, id: StripeId, cx: &Cx<'_>) {
        let facts = self.facts(id, cx);
        let stripe = self.cache.stripe_mut(id);
        stripe.uptodate =
            stripe.uptodate.without(facts.parity().and(facts.failed()).without(stripe.deferred));
    }

    /// Serves the readers of valid strips. Returns whether there were any.
    fn copy_out(&mut self, id: StripeId, cx: &mut Cx<'_>) -> bool {
        let stripe = self.cache.stripe_mut(id);
        let served = stripe.to_read().and(stripe.uptodate);
        if served.is_empty() {
            return false;
        }
        let mut ops = Vec::new();
        for sub_request in
            stripe.reads().iter().filter(|sub_request| served.contains(sub_request.slot))
        {
            let from = stripe.part(sub_request.slot, sub_request.offset, sub_request.len);
            ops.push(ComputeOp::Copy {
                from,
                to: sub_request.memory.expect("a reader brings memory"),
            });
        }
        stripe.take_readers(served);
        self.compute(id, Operation::CopyingOut, ops, cx);
        true
    }

    /// Fails all writes of the stripe, and the reads of lost strips, when more strips are lost than
    /// can be computed. Strips that other requests read, and that members can supply, are still
    /// read.
    fn fail_stripe(&mut self, id: StripeId, facts: Facts, cx: &mut Cx<'_>) {
        assert_eq!(self.cache.stripe(id).in_flight, 0, "a stripe fails between two operations");
        let lost = facts.failed().without(facts.uptodate);
        let recovers = matches!(self.cache.stripe(id).sync, Some((SyncAction::Recover, _)))
            && self.record_unrecovered(id, lost, cx);
        for id in self.batch_of(id) {
            for sub_request in self.cache.stripe_mut(id).give_up(lost) {
                let (request, result) = (sub_request.request, Err(ReplyError::Io));
                self.events.push(Event::SubRequestsDone { request, sub_requests: 1, result });
            }
        }
        self.unbatch(id, |stripes, id| stripes.rest(id));
        self.cache.forbid_preread(id);
        if !recovers && self.cache.stripe(id).sync.is_some() {
            self.sync_finished(id, false, None, false);
        }
        // No request needs the lost strips any more. A later request tries to read them again,
        // because the member may have recovered. A strip that was rewritten and could not be read
        // back stays lost.
        let stripe = self.cache.stripe_mut(id);
        let again = lost.without(stripe.uncorrectable).without(stripe.deferred);
        stripe.read_error = stripe.read_error.without(again);
        stripe.retried = stripe.retried.without(again);
        let readable = facts.to_read.and(facts.insync).without(facts.uptodate);
        // Strips that are only copied to replacements are read first.
        let copied = cx.membership().replaced().and(facts.insync).without(facts.uptodate);
        if recovers && !copied.is_empty() {
            self.read(id, copied.or(readable), cx);
        } else if recovers {
            // Strips that are valid in the cache are written, although the lost strips cannot be
            // computed.
            self.sync_correct(id, SlotSet::EMPTY, cx);
        } else if readable.is_empty() {
            self.rest(id);
        } else {
            self.read(id, readable, cx);
        }
    }

    /// Slots among `strips` where a read failed once and is to be repeated, on members that can be
    /// read.
    fn to_repeat(&self, id: StripeId, strips: SlotSet, facts: Facts) -> SlotSet {
        self.cache.stripe(id).retried.and(strips).and(facts.insync).without(facts.uptodate)
    }

    fn read(&mut self, id: StripeId, strips: SlotSet, cx: &mut Cx<'_>) {
        // A repeated read is not merged, so that its neighbours do not fail with it.
        let alone = self.cache.stripe(id).retried.and(strips);
        if !alone.is_empty() {
            self.stage(id, alone, Access::Read, Bytes::ZERO, cx);
        }
        self.stage(id, strips.without(alone), Access::Read, cx.knobs.max_sectors, cx);
        let stripe = self.cache.stripe_mut(id);
        if stripe.in_flight > 0 {
            stripe.operation = Operation::Reading;
        } else {
            self.cache.release(id);
        }
    }

    fn recover(&mut self, id: StripeId, lost: SlotSet, cx: &mut Cx<'_>) {
        self.compute_lost(id, lost, Operation::Recovering(lost), cx);
    }

    /// Computes lost strips from all others.
    fn compute_lost(&mut self, id: StripeId, lost: SlotSet, operation: Operation, cx: &mut Cx<'_>) {
        let ops = self.lost_ops(id, lost, cx);
        self.compute(id, operation, ops, cx);
    }

    /// The computations of lost strips from all others.
    fn lost_ops(&self, id: StripeId, lost: SlotSet, cx: &Cx<'_>) -> Vec<ComputeOp> {
        let stripe = self.cache.stripe(id);
        let placement = stripe.placement();
        let data = stripe.data;
        assert!(lost.and(stripe.uptodate).is_empty(), "a strip that is computed is not valid yet");
        assert!(lost.count() <= placement.parity().count(), "parity suffices for what is lost");
        let lost_data = lost.and(data);
        let lost_p = lost.contains(placement.p);
        let lost_q = placement.q.is_some_and(|q| lost.contains(q));
        let whole = |slot: Slot| self.whole(id, slot);
        let mut ops = Vec::new();
        if !lost_data.is_empty() {
            // One lost data strip is computed from P if there is P; two need both parities.
            let needs_q = lost_p || lost_data.count() == 2;
            ops.push(ComputeOp::Recover {
                data: self.sources(id, data.without(lost_data), cx),
                p: (!lost_p).then(|| whole(placement.p)),
                q: placement.q.filter(|_| needs_q).map(whole),
                lost: self.sources(id, lost_data, cx).into_iter().collect(),
            });
        }
        if lost_p || lost_q {
            ops.push(ComputeOp::Pq {
                data: self.sources(id, data, cx),
                p: lost_p.then(|| whole(placement.p)),
                q: placement.q.filter(|_| lost_q).map(whole),
            });
        }
        ops
    }

    // Outputs.

    /// Sends a computation for a stripe.
    fn compute(
        &mut self,
        id: StripeId,
        operation: Operation,
        ops: Vec<ComputeOp>,
        cx: &mut Cx<'_>,
    ) {
        let stripe = self.cache.stripe_mut(id);
        assert_eq!(stripe.in_flight, 0, "a stripe is computed alone");
        stripe.in_flight = 1;
        stripe.operation = operation;
        cx.compute(JobId(id.0), ops);
    }

    /// Sends member requests for whole strips, highest slot first. The outbox may merge them with
    /// others up to `max` bytes.
    fn stage(&mut self, id: StripeId, slots: SlotSet, access: Access, max: Bytes, cx: &mut Cx<'_>) {
        let (height, frames) = (self.cache.height(), self.cache.strip_frames());
        let stripe = self.cache.stripe_mut(id);
        stripe.io_started = true;
        let attr = stripe.member_attr(cx.view().sync_class());
        let write = access != Access::Read;
        let purposes = stripe.purposes(attr.purpose, slots, write);
        let mut request = MemberRequest {
            write,
            sector: stripe.sector(height),
            bytes: height.bytes(),
            max,
            kind: MergeKind { fua: access == Access::Write { fua: true }, stripes: true, attr },
        };
        let mut sent = 0;
        for slot in slots.descending() {
            let (memory, zero_copy_from) = stripe.memory(slot, frames);
            let completion = StripIo { stripe: id, slot, zero_copy_from }.target();
            request.kind.attr.purpose = purposes.of(slot);
            sent += u32::from(if access == Access::Fill {
                cx.stage_fill(slot, &request, &[memory], completion)
            } else {
                cx.stage(slot, &request, &[memory], completion)
            });
        }
        stripe.in_flight += sent;
    }

    fn whole(&self, id: StripeId, slot: Slot) -> Segment {
        self.cache.stripe(id).strip(slot, self.cache.strip_frames())
    }

    fn sources(&self, id: StripeId, slots: SlotSet, cx: &Cx<'_>) -> Sources {
        let (stripe, frames) = (self.cache.stripe(id), self.cache.strip_frames());
        let placement = stripe.placement();
        let mut sources = Sources::new();
        for slot in slots.ascending() {
            let (part, _) = stripe.memory(slot, frames);
            sources.push(Source { exponent: exponent(placement, slot, cx), part });
        }
        sources
    }
}

/// Kind of a member request for a strip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Read,
    Write {
        fua: bool,
    },
    /// A write that fills the slot's replacement, or the member itself if it is being rebuilt.
    Fill,
}

impl Access {
    const WRITE: Self = Self::Write { fua: false };
}

fn exponent(placement: &Placement, slot: Slot, cx: &Cx<'_>) -> u8 {
    let exponent = placement.exponent(slot);
    let wrong = exponent >= 2 && cx.is_planted(Mutant::WrongQExponent);
    exponent + u8::from(wrong)
}
