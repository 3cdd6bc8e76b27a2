//! Stripe handling: the steps of a stripe carried out, from the arrival of a request to its answer.
//!
//! [`super::plan`] says the next step of a stripe, [`super::cache`] which stripe is next. This
//! module carries the step out: member requests, computations, and what follows when they are done.
//! Filled stripes of one chunk that lie side by side go as one batch, written member by member.
//!
//! Memory that a member request was given up on is *pinned*: the member may still read or fill it.
//! Such a stripe is retired; what it had to do is moved to a fresh one.
//!
//! Source   md-raid.md §1.4, §1.7, §2.2 to §2.10, §6.2

mod correct;
mod sync;
mod write;

use std::collections::VecDeque;
use std::ops::Range;

use smallvec::{SmallVec, smallvec};
use weft_units::{Bytes, SectorRange, Sectors, Slot, Span, StripeId, Time, VolumeId};

use super::cache::{Acquired, Cache};
use super::plan::{Facts, StripeStep};
use super::priority::{Patience, PrioritySettings, patience_for_others, plug_2008};
use super::stripe::{Batch, Operation, ResyncState, Stripe, SubRequest};
use crate::array::membership::{Around, Membership, Report};
use crate::array::outbox::{JobId, StripIo, StripRun, Who};
use crate::contract::error::ReplyError;
use crate::contract::frame::Segment;
use crate::contract::input::{Attr, Fault, Located, SyncAction, Value};
use crate::contract::output::{ComputeOp, Differs, Source, Sources};
use crate::contract::stripe_waits::StripeWaits;
use crate::contract::token::RequestId;
use crate::knobs::{CheckReads, Writes};
use crate::layout::geometry::{Geometry, Placement};
use crate::layout::slot_set::SlotSet;
use crate::mutant::Mutant;
use crate::raid::{Answer, Cx, Event};
use crate::sched::request::{MemberRequest, MergeKind};

/// The stripes of a volume.
#[derive(Clone, Debug)]
pub(crate) struct Stripes {
    volume: VolumeId,
    pub(crate) cache: Cache,
    stripes_per_chunk: u64,
    /// Stripes that requests of this turn were attached to, in order.
    plug: Vec<StripeId>,
    /// Stripes that members had no space for.
    with_deferred: Vec<StripeId>,
    /// Work of retired stripes, waiting for fresh ones.
    displaced: VecDeque<Displaced>,
    pub(crate) waits: StripeWaits,
    /// How long prereads take, once one was measured.
    preread: Option<Span>,
    /// For the volume.
    pub(crate) events: Vec<Event>,
}

/// Way in which sub-requests come to a stripe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) write: bool,
    /// Do not wait for more of the stripe.
    pub(crate) sync: bool,
    /// More of the stripe is likely to follow.
    pub(crate) streams: bool,
    /// A request waits for the one that they are of.
    pub(crate) waited_for: bool,
    /// The member failed to read it once.
    pub(crate) retried: bool,
    pub(crate) attr: Attr,
}

/// Work of a retired stripe.
#[derive(Clone, Debug)]
struct Displaced {
    key: u64,
    reads: Vec<SubRequest>,
    writes: Vec<SubRequest>,
    sync: Option<SyncAction>,
    /// See [`super::stripe::Stripe::given_up`].
    given_up: u8,
}

impl Stripes {
    pub(crate) fn new(volume: VolumeId, cache: Cache, chunk: Sectors) -> Self {
        let stripes_per_chunk = chunk.0 / cache.height().0;
        assert!(stripes_per_chunk.is_power_of_two(), "a stripe is never higher than the chunk");
        Self {
            volume,
            cache,
            stripes_per_chunk,
            plug: Vec::new(),
            with_deferred: Vec::new(),
            displaced: VecDeque::new(),
            waits: StripeWaits::default(),
            preread: None,
            events: Vec::new(),
        }
    }

    /// How often a read of a stripe was given up since it has been worked on.
    pub(crate) fn given_up(&self, id: StripeId) -> u8 {
        self.cache.stripe(id).given_up
    }

    /// Stripes of one chunk.
    pub(super) fn stripes_per_chunk(&self) -> u64 {
        self.stripes_per_chunk
    }

    /// The full stripe in which a stripe lies.
    pub(crate) fn full_stripe_of(&self, key: u64) -> u64 {
        key / self.stripes_per_chunk
    }

    // Arrivals.

    /// Attaches a client's sub-requests to a stripe that was acquired.
    pub(crate) fn attach(&mut self, id: StripeId, sub_requests: &[SubRequest], arrival: Arrival) {
        let Arrival { write, sync, streams, waited_for, retried, attr } = arrival;
        let strip_bytes = self.cache.strip_bytes();
        let stripe = self.cache.stripe_mut(id);
        stripe.attr = attr;
        assert!(stripe.batch == Batch::None, "a batch is covered by writes that exclude others");
        for sub_request in sub_requests {
            stripe.attach(*sub_request, write, strip_bytes);
            // What is being read now may be read together with what failed: that is no second time.
            if retried && stripe.in_flight == 0 {
                stripe.retried.insert(sub_request.slot);
            }
        }
        stripe.handle = true;
        stripe.delayed = false;
        stripe.arrivals += 1;
        stripe.streams |= streams;
        stripe.waited_for |= waited_for;
        if write {
            self.join_batch(id);
        } else {
            stripe.batch_ready = false;
        }
        if write && sync && !matches!(self.cache.stripe(id).batch, Batch::Follower(_)) {
            self.cache.permit_preread(id);
        }
        self.hold_until_release(id);
    }

    /// Asks for a stripe to be synced. It was acquired.
    pub(crate) fn attach_sync(&mut self, id: StripeId, action: SyncAction) {
        let stripe = self.cache.stripe_mut(id);
        assert!(stripe.sync.is_none());
        stripe.sync = Some((action, ResyncState::Requested));
        stripe.handle = true;
        self.hold_until_release(id);
    }

    /// Ends the arrivals of a turn: stripes go to their lists, or take their first step as in 2008.
    /// Returns the number that did.
    pub(crate) fn release_plug(&mut self, cx: &mut Cx<'_>, may_move: bool) -> u32 {
        let mut handled = 0;
        let writes = cx.knobs.writes;
        let at_arrival = may_move && plug_2008::is_handled_at_arrival(cx.knobs);
        let policy = self.cache.policy();
        let mut plug = std::mem::take(&mut self.plug);
        for id in plug.drain(..) {
            let stripe = self.cache.stripe_mut(id);
            stripe.plugged = false;
            let streams = std::mem::take(&mut stripe.streams);
            let arrivals = std::mem::take(&mut stripe.arrivals);
            cx.out.work.attaches += arrivals;
            let alone = arrivals == 1;
            let at_once = match writes {
                // A write that came alone has nothing to wait for that is known of.
                Writes::Auto => policy.goes_at_once(alone, streams),
                Writes::Gather => false,
                Writes::Sync => true,
            };
            let follows = matches!(stripe.batch, Batch::Follower(_));
            if at_once && !follows && !stripe.to_write().is_empty() {
                self.cache.permit_preread(id);
            }
            self.cache.release(id);
            if at_arrival && self.cache.take_ready(id) {
                self.handle(id, cx);
                handled += 1;
            }
        }
        // For its allocation; nothing arrives while stripes are handled.
        self.plug = plug;
        handled
    }

    /// Gives displaced work fresh stripes, as far as there are any.
    pub(crate) fn place_displaced(&mut self, geometry: &Geometry) {
        while let Some(work) = self.displaced.front() {
            let Acquired::Stripe(id) = self.cache.acquire(work.key, geometry) else { return };
            let work = self.displaced.pop_front().expect("there is a front");
            let strip_bytes = self.cache.strip_bytes();
            let stripe = self.cache.stripe_mut(id);
            stripe.batch_ready = false;
            stripe.given_up = stripe.given_up.max(work.given_up);
            work.reads
                .into_iter()
                .for_each(|sub_request| stripe.attach(sub_request, false, strip_bytes));
            work.writes
                .into_iter()
                .for_each(|sub_request| stripe.attach(sub_request, true, strip_bytes));
            if let Some(action) = work.sync {
                stripe.sync = Some((action, ResyncState::Requested));
            }
            stripe.handle = true;
            if !stripe.to_write().is_empty() {
                self.cache.permit_preread(id);
            }
            self.hold_until_release(id);
        }
    }

    /// Ends displaced work that will find no stripe.
    pub(crate) fn end_displaced(&mut self) {
        for Displaced { key, reads, writes, sync, given_up: _ } in
            std::mem::take(&mut self.displaced)
        {
            for sub_request in reads.into_iter().chain(writes) {
                let (request, result) = (sub_request.request, Err(ReplyError::Io));
                self.events.push(Event::SubRequestsDone { request, sub_requests: 1, result });
            }
            if sync.is_some() {
                self.events.push(Event::SyncDone {
                    unit: key,
                    mismatch: false,
                    wrong: None,
                    ok: false,
                });
            }
        }
    }

    /// Whether displaced work waits.
    pub(crate) fn has_displaced(&self) -> bool {
        !self.displaced.is_empty()
    }

    fn hold_until_release(&mut self, id: StripeId) {
        if !std::mem::replace(&mut self.cache.stripe_mut(id).plugged, true) {
            self.plug.push(id);
        }
    }

    /// Appends a filled stripe to the batch of the stripe below it, if the two may go as one.
    fn join_batch(&mut self, id: StripeId) {
        let key = self.cache.stripe(id).key;
        // The first stripe of a chunk has another placement below it, or at least another chunk.
        let first = key & (self.stripes_per_chunk - 1) == 0;
        if !self.cache.batches() || first || !self.may_batch(id) {
            return;
        }
        let Some(before) = self.cache.find(key - 1).filter(|before| self.may_batch(*before)) else {
            return;
        };
        let head = match &self.cache.stripe(before).batch {
            Batch::Follower(head) => *head,
            Batch::Head(_) | Batch::None => before,
        };
        let fua = |stripe: &Stripe| stripe.writes().iter().any(|sub_request| sub_request.fua);
        if fua(self.cache.stripe(before)) != fua(self.cache.stripe(id)) {
            return;
        }
        match &mut self.cache.stripe_mut(head).batch {
            Batch::Head(followers) => followers.push(id),
            batch => *batch = Batch::Head(vec![id]),
        }
        self.cache.stripe_mut(id).batch = Batch::Follower(head);
        self.cache.forbid_preread(id);
    }

    /// A filled stripe that was never handled and is not read.
    fn may_batch(&self, id: StripeId) -> bool {
        let stripe = self.cache.stripe(id);
        let data = self.data_slots(id);
        stripe.batch_ready
            && stripe.to_write() == data
            && stripe.sync.is_none()
            && stripe.overwrite(self.cache.strip_bytes()) == data
    }

    /// Delayed stripes that have waited long enough become held ones. `moved` says when the stream
    /// was last seen that will bring these bytes of the volume.
    pub(crate) fn activate(
        &mut self,
        settings: &PrioritySettings,
        geometry: &Geometry,
        now: Time,
        moved: impl Fn(Range<u64>) -> Option<Time>,
    ) {
        self.cache.end_overdue(settings, now);
        if !settings.each_waits() {
            self.cache.activate_delayed(settings, now);
            return;
        }
        let (height, preread) = (self.cache.height(), self.preread);
        self.cache.activate_each(settings, now, &|stripe| {
            let moved = stripe.lacks(geometry, height).and_then(&moved);
            Patience::new(stripe.waits_since.unwrap_or(now), moved, preread, settings.wait_max)
        });
    }

    /// A request waits for one whose sub-requests are in these stripes: they wait no longer than it
    /// takes to fill stripes that are about to be filled.
    pub(crate) fn hurry(&mut self, request: RequestId, keys: &Range<u64>, now: Time) {
        let due = now + patience_for_others(self.preread);
        for id in self.cache.stripes_of(keys) {
            if self
                .cache
                .stripe(id)
                .writes()
                .iter()
                .any(|sub_request| sub_request.request == request)
            {
                self.cache.hurry(id, due);
            }
        }
    }

    // Handling.

    /// Takes the next step of a stripe that was picked.
    pub(crate) fn handle(&mut self, id: StripeId, cx: &mut Cx<'_>) {
        let stripe = self.cache.stripe_mut(id);
        debug_assert_eq!(stripe.in_flight, 0);
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
            let requested = matches!(action, SyncAction::Check | SyncAction::Repair);
            if requested && cx.knobs.check_reads == CheckReads::Media {
                // The media do not have what their member had no space for.
                stripe.uptodate = stripe.uptodate.and(stripe.deferred);
            }
            if action == SyncAction::Recover {
                self.forget_lost_parity(id, cx);
            }
        }
        if self.copy_out(id, cx) {
            return;
        }
        let facts = self.facts(id, cx);
        let written_in_vain = cx.membership().broken && !facts.to_write.is_empty();
        let failed = facts.failed();
        if written_in_vain || (!failed.is_empty() && failed.count() > facts.parity().count()) {
            self.fail_stripe(id, &facts, cx);
            return;
        }
        match facts.plan() {
            StripeStep::Read { strips, delay } => {
                let stripe = self.cache.stripe_mut(id);
                if delay {
                    stripe.handle = true;
                    stripe.delayed = true;
                    stripe.waits_since.get_or_insert(cx.out.now);
                    if stripe.waited_for {
                        stripe.due.get_or_insert(cx.out.now + patience_for_others(self.preread));
                    }
                } else if let Some(since) = stripe.waits_since.take() {
                    stripe.reads_since = Some(cx.out.now);
                    self.waits.preread.record(since, cx.out.now);
                }
                self.read(id, strips, cx);
            }
            // P of RAID 6 is computed where all else is here, but not to get around a read that
            // failed.
            StripeStep::Recover(lost) if !self.to_repeat(id, lost, &facts).is_empty() => {
                self.read(id, self.to_repeat(id, lost, &facts), cx);
            }
            StripeStep::Recover(lost) => self.recover(id, lost, cx),
            StripeStep::Write(mode) => {
                if let Some(since) = self.cache.stripe_mut(id).waits_since.take() {
                    self.waits.filled.record(since, cx.out.now);
                }
                self.drain(id, mode, cx);
            }
            // A strip is corrected before parity is compared, so that a sync ends with all of it.
            StripeStep::Rest if self.correct(id, cx) => {}
            StripeStep::Rest if facts.syncing => self.sync_compare(id, &facts, cx),
            StripeStep::Rest => self.rest(id),
        }
    }

    /// Slots whose member is read in a stripe.
    #[inline]
    fn readable(&self, id: StripeId, membership: &Membership) -> SlotSet {
        let (stripe, height) = (self.cache.stripe(id), self.cache.height());
        let around = match stripe.sync {
            Some((action, _)) if action != SyncAction::Recover => Around::Never,
            // What a member has no space for is here, and the others add up to it.
            _ if !stripe.deferred.is_empty() => Around::Always,
            _ => Around::WhereChecked,
        };
        membership.readable(SectorRange::new(stripe.sector(height).0, height.0), around)
    }

    /// Whether a stripe does without a strip whose member does not answer.
    pub(crate) fn reads_around(&self, part: StripIo, membership: &Membership) -> bool {
        !self.readable(part.stripe, membership).contains(part.slot)
    }

    #[inline]
    fn facts(&self, id: StripeId, cx: &Cx<'_>) -> Facts {
        let stripe = self.cache.stripe(id);
        let sector = stripe.sector(self.cache.height());
        let placement = stripe.placement();
        let readable = self.readable(id, cx.membership());
        Facts {
            all: SlotSet::first(stripe.members),
            p: placement.p,
            q: placement.q,
            uptodate: stripe.uptodate,
            insync: readable.without(stripe.read_error),
            writable: cx.membership().present(),
            to_read: stripe.to_read(),
            to_write: stripe.to_write(),
            overwrite: stripe.overwrite(self.cache.strip_bytes()),
            syncing: matches!(stripe.sync, Some((_, ResyncState::Filling))),
            preread: stripe.preread,
            resync_pending: cx.membership().resync_from.is_some_and(|from| sector >= from),
            rmw_level: cx.knobs.rmw_level,
            rule: cx.knobs.plan_rule,
        }
    }

    /// Parity that is to be rebuilt may be here from before its member failed, in the middle of a
    /// resync that had not looked at it. It is computed anew: its stripe is read as a whole anyway.
    fn forget_lost_parity(&mut self, id: StripeId, cx: &Cx<'_>) {
        let facts = self.facts(id, cx);
        let stripe = self.cache.stripe_mut(id);
        stripe.uptodate =
            stripe.uptodate.without(facts.parity().and(facts.failed()).without(stripe.deferred));
    }

    /// Serves readers of valid strips. Whether there were any.
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

    /// Too many strips cannot be had: what needs them fails, the rest is read.
    fn fail_stripe(&mut self, id: StripeId, facts: &Facts, cx: &mut Cx<'_>) {
        let lost = facts.failed().without(facts.uptodate);
        for id in self.batch_of(id) {
            for sub_request in self.cache.stripe_mut(id).give_up(lost) {
                let (request, result) = (sub_request.request, Err(ReplyError::Io));
                self.events.push(Event::SubRequestsDone { request, sub_requests: 1, result });
            }
        }
        self.unbatch(id, |stripes, id| stripes.rest(id));
        self.cache.forbid_preread(id);
        if self.cache.stripe(id).sync.is_some() {
            self.sync_finished(id, false, None, false);
        }
        let readable = facts.to_read.and(facts.insync).without(facts.uptodate);
        if readable.is_empty() {
            self.rest(id);
        } else {
            self.read(id, readable, cx);
        }
    }

    /// Strips whose read failed once, of members that may be read.
    fn to_repeat(&self, id: StripeId, strips: SlotSet, facts: &Facts) -> SlotSet {
        self.cache.stripe(id).retried.and(strips).and(facts.insync).without(facts.uptodate)
    }

    fn read(&mut self, id: StripeId, strips: SlotSet, cx: &mut Cx<'_>) {
        // A read that is repeated goes alone, so that its neighbours do not fail with it.
        let alone = self.cache.stripe(id).retried.and(strips);
        if !alone.is_empty() {
            self.stage(id, alone, None, Bytes::ZERO, cx);
        }
        self.stage(id, strips.without(alone), None, cx.knobs.max_sectors, cx);
        let stripe = self.cache.stripe_mut(id);
        if stripe.in_flight > 0 {
            stripe.operation = Operation::Reading;
        } else {
            self.cache.release(id);
        }
    }

    fn recover(&mut self, id: StripeId, lost: SlotSet, cx: &mut Cx<'_>) {
        let stripe = self.cache.stripe(id);
        let placement = stripe.placement();
        let data = self.data_slots(id);
        let lost_data = lost.and(data);
        let lost_p = lost.contains(placement.p);
        let lost_q = placement.q.is_some_and(|q| lost.contains(q));
        let whole = |slot: Slot| self.whole(id, slot);
        let mut ops = Vec::new();
        if !lost_data.is_empty() {
            // One lost strip comes from P when P is there; two need both parities.
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
        self.compute(id, Operation::Recovering(lost), ops, cx);
    }

    /// A computation of a stripe is done.
    pub(crate) fn computed(&mut self, id: StripeId, value: &Result<Value, Fault>, cx: &mut Cx<'_>) {
        // See `Input::Done`: a driver that cannot compute must not go on.
        assert!(value.is_ok(), "a computation has no way to fail");
        let stripe = self.cache.stripe_mut(id);
        stripe.in_flight -= 1;
        debug_assert_eq!(stripe.in_flight, 0);
        match std::mem::replace(&mut stripe.operation, Operation::Idle) {
            Operation::Comparing { whole } => {
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
                self.sync_located(id, located);
            }
            Operation::Computing(_) => self.write_out(id, cx),
            Operation::CopyingOut => {
                self.answer_writers(&[id], &Ok(()));
                self.rest_or_continue(id);
            }
            Operation::Recovering(lost) => {
                stripe.uptodate = stripe.uptodate.or(lost);
                stripe.handle = true;
                self.rest(id);
            }
            Operation::Regenerating(differs) => self.sync_correct(id, differs, cx),
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

    /// A member request that was given up is done at last.
    pub(crate) fn unpin(&mut self, part: StripIo) {
        if let Some(request) = part.zero_copy_from {
            self.events.push(Event::Unpinned { request });
            return;
        }
        let stripe = self.cache.stripe_mut(part.stripe);
        stripe.pins -= 1;
        if stripe.pins == 0 && stripe.in_flight == 0 {
            self.rest(part.stripe);
        }
    }

    /// A member request of a stripe is done, or was given up, in which case it pins memory.
    pub(crate) fn done(&mut self, part: StripIo, answer: Answer, cx: &mut Cx<'_>) {
        let head = self.head_of(part.stripe);
        let operation = self.cache.stripe(head).operation;
        if answer.given_up {
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
        self.one_done(head, cx);
    }

    /// The same for a run of stripes of a batch.
    pub(crate) fn run_done(&mut self, run: StripRun, answer: Answer, cx: &mut Cx<'_>) {
        let operation = self.cache.stripe(run.head).operation;
        debug_assert_eq!(operation, Operation::Writing, "batches are written, nothing else");
        if answer.given_up {
            let parts: Vec<StripIo> = self.parts_of(run).collect();
            parts.into_iter().for_each(|part| self.pin(part));
        }
        if let Err(fault) = answer.result {
            let parts: Vec<StripIo> = self.parts_of(run).collect();
            for part in parts {
                self.part_failed(part, fault, operation, answer, cx);
            }
        }
        self.one_done(run.head, cx);
    }

    /// The strips of a run, each for itself.
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

    /// A member request that was given up may still use a strip.
    fn pin(&mut self, part: StripIo) {
        match part.zero_copy_from {
            Some(request) => self.events.push(Event::Pinned { request }),
            None => self.cache.stripe_mut(part.stripe).pins += 1,
        }
    }

    /// A member request of the operation in flight is over.
    fn one_done(&mut self, head: StripeId, cx: &mut Cx<'_>) {
        let stripe = self.cache.stripe_mut(head);
        stripe.in_flight -= 1;
        if stripe.in_flight > 0 {
            return;
        }
        match std::mem::replace(&mut stripe.operation, Operation::Idle) {
            Operation::Reading => {
                stripe.handle = true;
                if let Some(since) = stripe.reads_since.take() {
                    let took = cx.out.now.since(since);
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

    /// A member did not do its part of the operation.
    #[cold]
    fn part_failed(
        &mut self,
        part: StripIo,
        fault: Fault,
        operation: Operation,
        answer: Answer,
        cx: &mut Cx<'_>,
    ) {
        // A member that failed may answer late, when another has its slot: not that one's doing.
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
            (fault, _) => {
                stripe.faults.insert(part.slot);
                // What cannot be read back, or has no space, is for the stripe to judge.
                let judged = matches!(operation, Operation::Rereading(_));
                if still_there && !judged && fault != Fault::NoSpace {
                    cx.report(Report::Failed { slot: part.slot });
                }
            }
        }
    }

    /// Handles a stripe again if somebody waits, or if a correction may be due.
    fn rest_or_continue(&mut self, id: StripeId) {
        let stripe = self.cache.stripe_mut(id);
        stripe.handle |= !stripe.correctable().is_empty();
        self.rest(id);
    }

    /// Nothing of the stripe is in flight: to its list, or out of the way if its memory is pinned.
    fn rest(&mut self, id: StripeId) {
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

    /// Does without a stripe whose memory is pinned. A stripe with a deferred write cannot be done
    /// without: what belongs there is known to it only, and the others do not add up to it. It
    /// waits for its memory or for space.
    fn set_aside(&mut self, id: StripeId) {
        self.unbatch(id, |stripes, id| stripes.rest(id));
        let stripe = self.cache.stripe_mut(id);
        if stripe.deferred.is_empty() {
            self.displace(id);
        } else {
            stripe.handle = false;
        }
    }

    /// Retires a stripe whose memory is pinned, and keeps its work for another.
    fn displace(&mut self, id: StripeId) {
        let stripe = self.cache.stripe_mut(id);
        let (reads, writes) = stripe.move_out();
        let sync = stripe.sync.take().map(|(action, _)| action);
        let work = Displaced { key: stripe.key, reads, writes, sync, given_up: stripe.given_up };
        self.with_deferred.retain(|other| *other != id);
        self.cache.retire(id);
        if !(work.reads.is_empty() && work.writes.is_empty() && work.sync.is_none()) {
            self.displaced.push_back(work);
        }
    }

    /// Makes every stripe of a batch stand on its own, and does something with each follower.
    fn unbatch(&mut self, id: StripeId, mut with: impl FnMut(&mut Self, StripeId)) {
        if let Batch::Head(followers) = std::mem::take(&mut self.cache.stripe_mut(id).batch) {
            for follower in followers {
                self.cache.stripe_mut(follower).batch = Batch::None;
                with(self, follower);
            }
        }
    }

    /// The stripes that go as one with this one: itself, and what it leads.
    #[inline]
    fn batch_of(&self, id: StripeId) -> SmallVec<[StripeId; 4]> {
        let mut stripes = smallvec![id];
        if let Batch::Head(followers) = &self.cache.stripe(id).batch {
            stripes.extend_from_slice(followers);
        }
        stripes
    }

    fn head_of(&self, id: StripeId) -> StripeId {
        match self.cache.stripe(id).batch {
            Batch::Follower(head) => head,
            Batch::Head(_) | Batch::None => id,
        }
    }

    // Outputs.

    /// Sends a computation of a stripe.
    fn compute(
        &mut self,
        id: StripeId,
        operation: Operation,
        ops: Vec<ComputeOp>,
        cx: &mut Cx<'_>,
    ) {
        let stripe = self.cache.stripe_mut(id);
        assert_eq!(stripe.in_flight, 0);
        stripe.in_flight = 1;
        stripe.operation = operation;
        cx.out.compute(self.volume, JobId(id.0), ops);
    }

    /// Sends reads or writes (with or without FUA) of whole strips, highest slot first.
    fn stage(
        &mut self,
        id: StripeId,
        slots: SlotSet,
        write: Option<bool>,
        max: Bytes,
        cx: &mut Cx<'_>,
    ) {
        assert!(write.is_none() || !cx.membership().read_only, "no write while read-only");
        let (height, frames) = (self.cache.height(), self.cache.strip_frames());
        let stripe = self.cache.stripe_mut(id);
        stripe.io_started = true;
        let request = MemberRequest {
            write: write.is_some(),
            sector: stripe.sector(height),
            bytes: height.bytes(),
            max,
            kind: MergeKind { fua: write == Some(true), stripes: true, attr: stripe.member_attr() },
        };
        let mut sent = 0;
        for slot in slots.descending() {
            let (memory, zero_copy_from) = stripe.memory(slot, frames);
            let who = Who::Stripe(StripIo { stripe: id, slot, zero_copy_from });
            sent += u32::from(cx.stage(slot, &request, &[memory], who));
        }
        stripe.in_flight += sent;
    }

    fn whole(&self, id: StripeId, slot: Slot) -> Segment {
        self.cache.stripe(id).strip(slot, self.cache.strip_frames())
    }

    #[inline]
    fn data_slots(&self, id: StripeId) -> SlotSet {
        let stripe = self.cache.stripe(id);
        SlotSet::first(stripe.members).without(stripe.placement().parity())
    }

    fn sources(&self, id: StripeId, slots: SlotSet, cx: &Cx<'_>) -> Sources {
        let (stripe, frames) = (self.cache.stripe(id), self.cache.strip_frames());
        let placement = stripe.placement();
        let mut sources = Sources::new();
        for slot in slots.ascending() {
            let exponent = exponent(placement, slot, cx);
            sources.push(Source { exponent, part: stripe.strip(slot, frames) });
        }
        sources
    }
}

fn exponent(placement: Placement, slot: Slot, cx: &Cx<'_>) -> u8 {
    let exponent = placement.exponent(slot);
    let wrong = exponent >= 2 && cx.is_planted(Mutant::WrongQExponent);
    exponent + u8::from(wrong)
}
