//! What a client sees: one range of bytes that can be read, written and flushed.
//!
//! A request passes these gates, in order, and waits at each without holding what others need:
//!
//! 1. earlier requests that overlap it ([`crate::ranges`]);
//! 2. for a write, the dirty state of the array; with `preflush`, a round of flushes;
//! 3. stripes of the stripe cache, one at a time; a read of a whole array goes straight to its
//!    members;
//! 4. its sub-requests are done;
//! 5. failures that happened meanwhile are recorded on the other members.
//!
//! Then it is answered, its frames and credit go back, and the next one that overlaps it starts.

mod attach;
mod command;
mod discard;
mod members;
mod sync;

use std::collections::VecDeque;

use smallvec::SmallVec;
use weft_units::{ByteRange, Bytes, ClientId, Sectors, Slot, Span, Time, VolumeId};

use self::command::Waiting;
use self::discard::Discard;
use self::members::STALL_WARNING;
use self::sync::changes_parity;
use crate::Congestion;
use crate::array::{Array, FlushFor};
use crate::config::VolumeConfig;
use crate::error::ReplyError;
use crate::frame::{Frame, Run, frames_needed};
use crate::input::{ClientRequest, Fault, Flags, RequestOp, SyncAction, Value};
use crate::knobs::{Knob, Knobs, PlanRule, WAITS_WITHOUT_BOUND};
use crate::mutant::Mutant;
use crate::outbox::{Outbox, Outstanding, Owner, ReadPart, StripIo, Who};
use crate::output::{Notice, Output};
use crate::raid::parity::streams::StreamId;
use crate::raid::parity::stripes::{Answer, Event, Surroundings};
use crate::raid::parity::sync::Resync;
use crate::raid::parity::{ParityRaid, StripeMemory, height_of};
use crate::ranges::{Ranges, RequestId};
use crate::snapshot::{StripesInUse, VolumeSnapshot, WrongStrip};
use crate::token::Tag;

/// One volume: an array of level 4, 5 or 6 and the requests to it.
#[derive(Clone, Debug)]
pub(crate) struct Volume {
    id: VolumeId,
    pub(crate) array: Array,
    raid: ParityRaid,
    knobs: Knobs,
    requests: Vec<Option<Active>>,
    free: Vec<u32>,
    ranges: Ranges,
    /// Writes that wait for the dirty state.
    before_dirty: VecDeque<RequestId>,
    /// Requests that may be attached to stripes.
    ready: VecDeque<RequestId>,
    /// What is being discarded, request by request, and the stripes of it.
    discards: Vec<Discard>,
    /// Done, but a failure is not recorded yet.
    held: VecDeque<RequestId>,
    sync: Option<Resync>,
    /// The last one, for people.
    last_sync: Option<Resync>,
    /// Asked for by an administrator.
    wanted_sync: Option<SyncAction>,
    frozen: bool,
    /// A recovery failed: none is tried until the members change.
    recovery_disabled: bool,
    /// Waits until no stripe is in use.
    resizing: Option<Knob>,
    /// Who asked for what, and waits.
    commands: Vec<Waiting>,
    stopping: bool,
    /// No space behind a member since then, or found again at that time.
    full_since: Option<Time>,
    /// A sync ended early because of it.
    sync_failed_full: bool,
}

/// A request that is not answered yet, or whose frames are still in use.
#[derive(Clone, Debug)]
struct Active {
    client: ClientId,
    gone: bool,
    tag: Tag,
    op: RequestOp,
    range: ByteRange,
    /// Of its client's credit.
    payload: Bytes,
    frames: Run,
    flags: Flags,
    attr: crate::input::Attr,
    /// Sub-requests that are not done, one for splitting it, and [`ATTACHING`] while it is being
    /// attached.
    pending: u64,
    /// What of it goes past the cache.
    discarded: Option<Box<discard::Stripes>>,
    error: Option<ReplyError>,
    /// A member that it read has stalled.
    stalled: bool,
    /// Member reads into its frames that were given up.
    pins: u32,
    writes: bool,
    /// Another request waits for it.
    waited_for: bool,
    /// More of its stripe is on its way.
    streams: bool,
    /// And as much of it as a full stripe holds has come without a pause.
    pours: bool,
    /// What it belongs to, if anybody wants to know.
    stream: StreamId,
    flushed: bool,
    /// The array counts it as a writer.
    begun: bool,
    answered: bool,
}

impl Volume {
    pub(crate) fn new(
        id: VolumeId,
        config: &VolumeConfig,
        first: Frame,
        frames: u32,
        epoch_secs: u64,
        now: Time,
    ) -> Self {
        let mut array = Array::new(id, &config.assembly, epoch_secs, now);
        array.set_queues(config.knobs.member_queues(), |_| 0);
        let memory = StripeMemory { first, frames, stripes_max: config.stripes_max };
        let raid = ParityRaid::new(id, memory, &array.geometry, &config.knobs);
        Self {
            id,
            array,
            raid,
            knobs: config.knobs,
            requests: Vec::new(),
            free: Vec::new(),
            ranges: Ranges::default(),
            before_dirty: VecDeque::new(),
            ready: VecDeque::new(),
            discards: Vec::new(),
            held: VecDeque::new(),
            sync: None,
            last_sync: None,
            wanted_sync: None,
            frozen: false,
            recovery_disabled: false,
            resizing: None,
            commands: Vec::new(),
            stopping: false,
            full_since: None,
            sync_failed_full: false,
        }
    }

    // What is recorded: requests, answers, commands.

    /// A request arrives.
    pub(crate) fn request(
        &mut self,
        request: &ClientRequest,
        out: &mut Outbox,
    ) -> Result<(), ReplyError> {
        let range = request.range;
        let size = self.array.geometry.array_size().bytes();
        if range.checked_end().is_none_or(|end| end > size) {
            return Err(ReplyError::OutOfRange);
        }
        if self.stopping {
            return Err(ReplyError::Stopping);
        }
        let trims = request.op == RequestOp::Trim;
        let writes = trims || matches!(request.op, RequestOp::Write | RequestOp::WriteZeroes);
        if writes {
            self.takes_writes(trims, out.now)?;
        }
        let has_payload = matches!(request.op, RequestOp::Read | RequestOp::Write);
        let needed = if has_payload { frames_needed(range.start.0, range.len.0) } else { 0 };
        if request.frames.count != needed {
            return Err(ReplyError::Invalid("the frames of the request do not fit its range"));
        }
        let discarded = self.to_discard(request);
        let range = match discarded {
            Some(stripes) if trims => stripes,
            // Advice that cannot be taken.
            None if trims => ByteRange::new(range.start.0, 0),
            _ => range,
        };
        let id = self.enter(&ClientRequest { range, ..*request }, writes, out.now);
        self.active(id).discarded =
            discarded.map(|stripes| Box::new(discard::Stripes::new(stripes)));
        if request.op == RequestOp::Flush || (range.len == Bytes::ZERO && request.flags.preflush) {
            self.array.flushes.arrive(FlushFor::Request(id));
        } else if range.len == Bytes::ZERO {
            // Answered in this turn, once it is known who is still there.
            self.active(id).pending = 0;
            self.held.push_back(id);
        } else if self.ranges.enter(id, range, writes) {
            self.start(id, out);
        } else {
            self.hurry_those_before(id, out.now);
        }
        Ok(())
    }

    /// A request waits for others that it overlaps. Stripes of these wait not for long to be
    /// filled: those who could fill them may be kept waiting by that. md does not queue whole
    /// requests.
    #[cold]
    fn hurry_those_before(&mut self, id: RequestId, now: Time) {
        if self.knobs.preread_wait_max == WAITS_WITHOUT_BOUND {
            return;
        }
        let before: SmallVec<[RequestId; 4]> = self.ranges.held_up_by(id).collect();
        let full_stripe = self.array.geometry.full_stripe_bytes();
        for id in before {
            let request = self.active(id);
            if !request.writes || std::mem::replace(&mut request.waited_for, true) {
                continue;
            }
            let range = request.range;
            let full_stripes = range.start.0 / full_stripe..range.end().0.div_ceil(full_stripe);
            self.raid.hurry(id, &full_stripes, now);
        }
    }

    /// A client is gone: what it asked for finishes unanswered.
    pub(crate) fn client_gone(&mut self, client: ClientId) {
        for request in self.requests.iter_mut().flatten() {
            request.gone |= request.client == client;
        }
        self.commands.retain(|waiting| waiting.client != client);
    }

    /// A token is done.
    pub(crate) fn done(
        &mut self,
        outstanding: Outstanding,
        value: &Result<Value, Fault>,
        out: &mut Outbox,
    ) {
        let position = outstanding.member.and_then(|index| self.array.position_of(index));
        let detached = outstanding.detached;
        if let Some(position) = position {
            let member = &mut self.array.members[position];
            member.in_flight -= outstanding.requests;
            if outstanding.at_member {
                member.queue.ended(outstanding.scheduled);
            }
            if member.read_errors > 0 && !detached {
                let reads = !outstanding.write && matches!(outstanding.owner, Owner::Parts(..));
                if reads && value.is_ok() {
                    member.read_errors = 0;
                }
            }
        }
        let result = value.as_ref().map(|_| ()).map_err(|fault| *fault);
        match outstanding.owner {
            Owner::Compute(stripe) => {
                self.with_raid(out, |raid, cx| raid.stripes.computed(stripe, value, cx));
            }
            Owner::Discard(request) if !detached => {
                self.discard_done(request, position, result, out);
            }
            Owner::Flush if !detached => self.flush_done(position, result, out),
            Owner::Superblock if !detached => {
                self.array.superblock_done(position, result, out);
                if result == Err(Fault::NoSpace) || self.array.update_waits_for_space() {
                    self.no_superblock_space(position, out);
                } else if self.full_since.is_some()
                    && self.array.nobody_is_full()
                    && !self.has_deferred()
                {
                    self.full_since = None;
                }
            }
            Owner::Discard(_) | Owner::Flush | Owner::Superblock => {}
            Owner::Parts(first, mut merged) => {
                if matches!(first, Who::Read(_)) && !detached {
                    self.aligned_answered(position, result, out);
                }
                let member = outstanding.member;
                let answer = Answer { result, member, given_up: false };
                let mut next = Some(first);
                while let Some(part) = next {
                    match part {
                        Who::Stripe(part) if detached => self.raid.stripes.unpin(part),
                        Who::Stripe(part) => self.stripe_done(part, answer, out),
                        Who::Stripes(_) if detached => {
                            unreachable!("what is given up is told stripe by stripe")
                        }
                        Who::Stripes(run) => {
                            self.with_raid(out, |raid, cx| raid.stripes.run_done(run, answer, cx));
                        }
                        Who::Read(part) if detached => self.unpin(part.request, out),
                        Who::Read(part) => self.read_done(part, result, out),
                    }
                    next = out.next_part(&mut merged);
                }
            }
        }
        self.take_events(out);
    }

    // What is decided: one turn.

    /// Decides for at most `stripes_max` stripes. How many it handled.
    pub(crate) fn turn(&mut self, stripes_max: u32, out: &mut Outbox) -> u32 {
        self.watch_members(out);
        self.start_dirty_writers();
        self.write_deferred(out);
        // Those who waited for stripes are relieved before a sync takes what is free.
        self.with_raid(out, |raid, cx| raid.relieve(cx));
        self.run_syncs(out);
        self.resize(out);
        self.split_ready(out);
        self.attach_waiting(out);
        if self.array.membership.broken {
            self.end_vain_waits(out);
        }
        let may_move = self.members_are_known();
        let mut handled = self.with_raid(out, |raid, cx| raid.stripes.release_plug(cx, may_move));
        // As md: nothing moves while a failure is not recorded.
        if self.members_are_known() {
            handled += self.with_raid(out, |raid, cx| raid.handle(stripes_max, cx));
            self.take_events(out);
        }
        self.run_discards(out);
        self.with_raid(out, |raid, cx| raid.plug_delayed(cx));
        self.release_held(out);
        let delay =
            if self.stopping && self.is_idle() { None } else { Some(self.knobs.safe_mode_delay) };
        if self.may_enter_safe_mode() {
            self.array.enter_safe_mode(delay, out.now);
        }
        let served = self.array.start_rounds(out);
        self.flushed(served, out);
        self.answer_commands(out);
        handled
    }

    /// Whether another turn has something to do already.
    pub(crate) fn has_work(&self, now: Time) -> bool {
        let lost = self.array.is_planted(Mutant::LostWakeUp);
        let stripes_wait =
            self.members_are_known() && self.raid.has_runnable(&self.array, &self.knobs, now);
        let sync_goes_on = self.sync.as_ref().is_some_and(|sync| {
            self.raid.would_feed(sync) && (self.array.is_dirty() || !changes_parity(sync.action))
        });
        (stripes_wait && !lost)
            || self.raid.can_attach()
            || (!self.raid.ready.is_empty() && self.resizing.is_none())
            || sync_goes_on
            || self.array.members.iter().any(|member| member.to_give_up)
            || (self.sync.is_none() && self.sync_is_due(now))
            || self.may_resize()
            || self.can_never_resize()
            || (!self.ready.is_empty() && self.resizing.is_none())
            || (!self.before_dirty.is_empty()
                && (self.array.is_dirty() || self.array.membership.broken))
            || (!self.held.is_empty() && self.members_are_known())
            || (self.array.membership.broken && self.raid.waits_in_vain())
            || self.has_discards_to_run()
    }

    /// What a member had no space for is written to it later, and that is for a dirty array.
    fn may_enter_safe_mode(&self) -> bool {
        self.stopping || !self.has_deferred()
    }

    pub(crate) fn stripe_cache_active(&self) -> u32 {
        self.raid.stripes.cache.active()
    }

    pub(crate) fn stripes_in_use(&self) -> StripesInUse {
        self.raid.stripes.cache.stripes_in_use()
    }

    /// Source: md's `raid5_congested`; `md_write_start`, in which a writer waits for the
    /// superblock.
    pub(crate) fn congestion(&self) -> Congestion {
        if self.raid.starves() || !self.before_dirty.is_empty() {
            Congestion::Blocked
        } else if self.raid.is_full() {
            Congestion::Congested
        } else {
            Congestion::None
        }
    }

    /// When something is due though nothing else happens.
    pub(crate) fn next_wake(&self, out: &Outbox) -> Option<Time> {
        let enter_safe_mode = self.array.safe_mode_wake(self.knobs.safe_mode_delay);
        let enter_safe_mode = enter_safe_mode.filter(|_| self.may_enter_safe_mode());
        let Knobs { read_around, member_timeout, .. } = self.knobs;
        let stalls = self.array.members.iter().enumerate().filter_map(|(position, member)| {
            let since = out.oldest(member.info.index).filter(|_| !member.is_faulty())?;
            let around = (read_around > Span::ZERO && !member.stalled).then_some(read_around);
            let warn = (!member.warned).then_some(STALL_WARNING);
            let may_fail = member_timeout > Span::ZERO && !self.array.breaks(position);
            let fail = may_fail.then_some(member_timeout);
            let spans = [around, warn, fail].into_iter().flatten();
            spans.map(|span| since + span).chain(member.gives_up_at).min()
        });
        let retry = self.retry_wake();
        let known = self.members_are_known();
        let raid = known.then(|| self.raid.next_wake(&self.array, &self.knobs)).flatten();
        stalls.chain(enter_safe_mode).chain(retry).chain(self.array.update_wake()).chain(raid).min()
    }

    pub(crate) fn snapshot(&self) -> VolumeSnapshot {
        let sync = self.sync.as_ref().or(self.last_sync.as_ref());
        VolumeSnapshot {
            array_state: self.array.state_word(),
            size: self.array.geometry.array_size().bytes(),
            degraded: self.array.membership.degraded(),
            events: self.array.events(),
            sync_action: match &self.sync {
                Some(sync) => sync.action,
                None if self.frozen => SyncAction::Frozen,
                None => SyncAction::Idle,
            },
            sync_completed: sync.map(|sync| (sync.completed(), sync.total())),
            sync_stripes: sync.map_or(0, |sync| sync.stripes),
            mismatch_cnt: sync.map_or(0, |sync| sync.mismatch_cnt),
            mismatches: sync.map(|sync| sync.mismatches.clone()).unwrap_or_default(),
            no_space: self.full_since.is_some() || self.array.update_waits_for_space(),
            resync_from: self.array.membership.resync_from,
            stripe_cache_active: self.stripe_cache_active(),
            stripe_waits: self.raid.stripes.waits.clone(),
            requests_active: self.requests.iter().flatten().filter(|r| !r.answered).count(),
            knobs: self.knobs,
            members: self.array.members.iter().map(crate::member::Member::snapshot).collect(),
        }
    }

    /// Client frames that are still in use.
    pub(crate) fn frames_held(&self) -> u32 {
        self.requests.iter().flatten().map(|request| request.frames.count).sum()
    }

    // Requests.

    fn takes_writes(&mut self, trims: bool, now: Time) -> Result<(), ReplyError> {
        if self.array.membership.read_only && !self.array.is_planted(Mutant::WriteWhileReadOnly) {
            return Err(ReplyError::ReadOnly);
        }
        if self.array.membership.broken {
            return Err(ReplyError::Io);
        }
        match self.full_since {
            // What it gives up may be what others need.
            _ if trims => Ok(()),
            // One write now and then finds out whether there is space again.
            Some(since) if now.since(since) < FULL_RETRY => Err(ReplyError::NoSpace),
            Some(_) => {
                self.full_since = Some(now);
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn enter(&mut self, request: &ClientRequest, writes: bool, now: Time) -> RequestId {
        let (stream, streams) = if writes {
            let ends_at = || self.ranges.write_ends_at(request.range.start.0);
            let settings = (&self.array.geometry, &self.knobs);
            self.raid.stream_of(request.range, ends_at, settings, now)
        } else {
            (StreamId::default(), false)
        };
        let active = Active {
            client: request.client,
            gone: false,
            tag: request.tag,
            op: request.op,
            range: request.range,
            payload: request.payload(),
            frames: request.frames,
            flags: request.flags,
            attr: request.attr,
            pending: 1,
            discarded: None,
            error: None,
            stalled: false,
            pins: 0,
            writes,
            waited_for: false,
            streams,
            pours: streams && self.raid.pours(stream, &self.array.geometry, &self.knobs),
            stream,
            flushed: false,
            begun: false,
            answered: false,
        };
        match self.free.pop() {
            Some(place) => {
                self.requests[place as usize] = Some(active);
                RequestId(place)
            }
            None => {
                self.requests.push(Some(active));
                RequestId(self.requests.len() as u32 - 1)
            }
        }
    }

    fn active(&mut self, id: RequestId) -> &mut Active {
        self.requests[id.0 as usize].as_mut().expect("a request stays until it is answered")
    }

    /// Nothing that overlaps it is before it.
    fn start(&mut self, id: RequestId, out: &mut Outbox) {
        let request = self.active(id);
        if !request.writes {
            self.start_read(id, out);
            return;
        }
        request.begun = true;
        let discards = request.discarded.is_some();
        self.array.write_begins();
        if discards && self.array.is_planted(Mutant::DiscardBeforeDirty) {
            self.ready.push_back(id);
            return;
        }
        self.before_dirty.push_back(id);
    }

    /// Lets writers through once the members say dirty.
    fn start_dirty_writers(&mut self) {
        if self.array.membership.broken {
            while let Some(id) = self.before_dirty.pop_front() {
                self.active(id).error = Some(ReplyError::Io);
                self.ready.push_back(id);
            }
            return;
        }
        if !self.array.is_dirty() {
            return;
        }
        while let Some(id) = self.before_dirty.pop_front() {
            let request = self.active(id);
            if request.flags.preflush && !request.flushed {
                request.flushed = true;
                self.array.flushes.arrive(FlushFor::Request(id));
            } else {
                self.ready.push_back(id);
            }
        }
    }

    fn start_read(&mut self, id: RequestId, out: &mut Outbox) {
        // What a member has no space for is known to its stripe only. A read whose member stalled
        // would be given up once more if members need longer for it than `read_around`, and so on
        // for ever.
        let aligned =
            self.array.membership.reads_aligned() || self.knobs.plan_rule == PlanRule::Least;
        if aligned && !self.active(id).flags.again && !self.has_deferred() {
            self.read_aligned(id, out);
        } else {
            self.ready.push_back(id);
        }
    }

    /// A member answered a chunk-aligned read. If it could not be read, stripes do not say so.
    fn aligned_answered(
        &mut self,
        position: Option<usize>,
        result: Result<(), Fault>,
        out: &mut Outbox,
    ) {
        match (result, position) {
            (Err(Fault::Gone), Some(position)) => self.array.fail(position, out),
            (Err(_), Some(position)) => self.array.members[position].read_errors += 1,
            (Ok(()), _) | (_, None) => {}
        }
    }

    /// A sub-request of such a read is done.
    fn read_done(&mut self, part: ReadPart, result: Result<(), Fault>, out: &mut Outbox) {
        if result.is_ok() {
            self.sub_request_done(part.request, Ok(()), out);
        } else {
            self.detour(part, true);
        }
    }

    /// One sub-request of a request is done, or its attaching.
    #[inline]
    fn sub_request_done(
        &mut self,
        id: RequestId,
        result: Result<(), ReplyError>,
        out: &mut Outbox,
    ) {
        self.sub_requests_done(id, 1, result, out);
    }

    /// So many sub-requests of a request are done.
    #[inline]
    fn sub_requests_done(
        &mut self,
        id: RequestId,
        sub_requests: u64,
        result: Result<(), ReplyError>,
        out: &mut Outbox,
    ) {
        let request = self.active(id);
        if let Err(error) = result {
            request.error.get_or_insert(error);
        }
        request.pending -= sub_requests;
        if request.pending == 0 {
            self.all_done(id, out);
        }
    }

    fn all_done(&mut self, id: RequestId, out: &mut Outbox) {
        let reads = self.active(id).op == RequestOp::Read;
        if reads || self.array.failures_recorded() {
            self.answer(id, out);
        } else {
            self.held.push_back(id);
        }
    }

    fn release_held(&mut self, out: &mut Outbox) {
        let recorded = self.array.failures_recorded();
        if recorded || self.array.membership.broken {
            while let Some(id) = self.held.pop_front() {
                if !recorded && !self.array.is_planted(Mutant::BrokenAcknowledges) {
                    // It missed a member, and the others will never say so.
                    self.active(id).error.get_or_insert(ReplyError::Io);
                }
                self.answer(id, out);
            }
        }
    }

    #[inline]
    fn answer(&mut self, id: RequestId, out: &mut Outbox) {
        let request = self.active(id);
        request.answered = true;
        let result = match request.error.take() {
            Some(error) => Err(error),
            None if request.stalled => Err(ReplyError::Stalled),
            None => Ok(()),
        };
        let charged = std::mem::take(&mut request.payload).0;
        let (stream, len) = (request.stream, request.range.len);
        if request.op == RequestOp::Read && result.is_ok() && !request.gone {
            // They go back with the reply.
            request.frames = Run::EMPTY;
        }
        let (client, tag, gone) = (request.client, request.tag, request.gone);
        let begun = request.begun;
        if !gone {
            out.reply(client, tag, result);
        }
        if !(gone && self.array.is_planted(Mutant::CreditLostOnDisconnect)) {
            out.give_credit(client, charged);
        }
        if begun {
            self.raid.streams.answered(stream, len);
            self.array.write_ends(out.now);
        }
        let waiting = self.ranges.leave(id);
        self.forget(id, out);
        if !waiting.is_empty() {
            for next in waiting {
                self.start(next, out);
            }
        }
    }

    /// Gives the frames of an answered request back, once nothing uses them any more.
    #[inline]
    fn forget(&mut self, id: RequestId, out: &mut Outbox) {
        let request = self.active(id);
        if !request.answered || request.pins > 0 {
            return;
        }
        if request.frames.count > 0 {
            out.push(Output::Release(request.frames));
        }
        self.requests[id.0 as usize] = None;
        self.free.push(id.0);
    }

    fn flush_done(&mut self, position: Option<usize>, result: Result<(), Fault>, out: &mut Outbox) {
        let served = self.array.flush_done(position, result, out);
        self.flushed(served, out);
    }

    fn flushed(&mut self, served: Vec<RequestId>, out: &mut Outbox) {
        for id in served {
            let request = self.active(id);
            if request.op == RequestOp::Flush || request.range.len == Bytes::ZERO {
                self.sub_request_done(id, Ok(()), out);
            } else {
                self.ready.push_back(id);
            }
        }
    }

    #[inline]
    fn with_raid<T>(
        &mut self,
        out: &mut Outbox,
        act: impl FnOnce(&mut ParityRaid, &mut Surroundings<'_>) -> T,
    ) -> T {
        let mut cx = Surroundings { array: &mut self.array, knobs: &self.knobs, out };
        act(&mut self.raid, &mut cx)
    }

    /// A member request of a stripe is done, or was given up.
    #[inline]
    fn stripe_done(&mut self, part: StripIo, answer: Answer, out: &mut Outbox) {
        self.with_raid(out, |raid, cx| raid.stripes.done(part, answer, cx));
    }

    /// Whether every failure is recorded, or never will be.
    fn members_are_known(&self) -> bool {
        self.array.failures_recorded() || self.array.membership.broken
    }

    /// Writes again, now and then, what members had no space for.
    fn write_deferred(&mut self, out: &mut Outbox) {
        if self.has_deferred() && self.retry_wake().is_some_and(|time| out.now >= time) {
            self.full_since = Some(out.now);
            self.array.give_up_full(self.knobs.no_space_wait, out);
            self.with_raid(out, |raid, cx| raid.stripes.write_deferred(cx));
            self.take_events(out);
        }
    }

    /// When to find out whether there is space again.
    fn retry_wake(&self) -> Option<Time> {
        let due = self.full_since? + FULL_RETRY;
        // A sync that is not to run needs no wake-up.
        let waits = self.has_deferred() || (self.sync.is_none() && self.sync_is_due(due));
        (waits && !self.array.membership.broken).then_some(due)
    }

    #[inline]
    fn take_events(&mut self, out: &mut Outbox) {
        if !self.raid.stripes.events.is_empty() {
            self.take_some_events(out);
        }
    }

    #[inline(never)]
    fn take_some_events(&mut self, out: &mut Outbox) {
        let mut events = std::mem::take(&mut self.raid.stripes.events);
        for event in events.drain(..) {
            self.event(event, out);
        }
        // Keeps the allocation; nothing was added meanwhile but by stripes, which are not handled
        // here.
        if self.raid.stripes.events.is_empty() {
            self.raid.stripes.events = events;
        }
    }

    #[inline(always)]
    fn event(&mut self, event: Event, out: &mut Outbox) {
        match event {
            Event::Attached { request, sub_requests, whole } => {
                if whole {
                    self.attached(request, out);
                }
                let sub_requests = u64::from(sub_requests);
                self.active(request).pending += sub_requests;
                self.sub_requests_done(request, ATTACHING, Ok(()), out);
            }
            Event::SubRequestsDone { request, sub_requests, result } => {
                if result.is_err() {
                    self.raid.request_failed(request);
                }
                self.sub_requests_done(request, sub_requests.into(), result, out);
            }
            Event::Pinned { .. } | Event::Unpinned { .. }
                if self.array.is_planted(Mutant::ZeroCopyNotPinned) => {}
            Event::Pinned { request } => self.active(request).pins += 1,
            Event::SyncDone { key, mismatch, wrong, ok } => {
                let sync = self.sync.as_mut().expect("stripes are synced for a sync");
                sync.stripe_done(key, mismatch, ok);
                if mismatch && sync.action == SyncAction::Check {
                    let sector = sync.sector_of(key);
                    let wrong = wrong.and_then(|slot| {
                        let member = self.array.at(slot)?;
                        let at = member.data_sector(sector);
                        Some(WrongStrip { member: member.info.index, slot, at })
                    });
                    sync.found_mismatch(key, wrong);
                }
            }
            Event::NoSpace { slot, sector } => {
                // The others agree about a strip that is being rebuilt, or whose member failed
                // meanwhile.
                let membership = &self.array.membership;
                if membership.present().contains(slot) && !membership.is_rebuilding(slot) {
                    self.array.resync_for_space(sector, false);
                }
                self.no_space(slot, sector, out);
            }
            Event::Unpinned { request } => self.unpin(request, out),
            Event::Written => {
                if self.full_since.take().is_some() {
                    self.array.found_space();
                }
                self.sync_failed_full = false;
            }
        }
    }

    /// A member has no space for a stripe.
    fn no_space(&mut self, slot: Slot, sector: Sectors, out: &mut Outbox) {
        let stripe = sector.0 / self.height().0;
        if let Some(sync) = &mut self.sync {
            self.sync_failed_full = true;
            sync.rewind(stripe);
        }
        self.array.found_no_space(slot, out.now);
        let first = self.full_since.replace(out.now).is_none();
        if first && let Some(member) = self.array.at(slot) {
            out.notice(Notice::NoSpace { member: member.info.index });
        }
    }

    /// A superblock found no space, or its update waits for some. Nobody waits with it: who would
    /// is told so, as those are whose strips find no space.
    #[cold]
    fn no_superblock_space(&mut self, position: Option<usize>, out: &mut Outbox) {
        let first = self.full_since.is_none();
        if first && let Some(position) = position {
            let member = self.array.members[position].info.index;
            out.notice(Notice::NoSpace { member });
        }
        self.full_since = Some(out.now);
        if !self.array.update_waits_for_space() {
            return;
        }
        self.array.give_up_full(self.knobs.no_space_wait, out);
        while let Some(id) = self.before_dirty.pop_front() {
            self.active(id).error = Some(ReplyError::NoSpace);
            self.ready.push_back(id);
        }
        if self.array.is_stuck(self.knobs.no_space_wait) {
            while let Some(id) = self.held.pop_front() {
                self.active(id).error.get_or_insert(ReplyError::NoSpace);
                self.answer(id, out);
            }
        }
    }

    /// Stripe height in sectors.
    fn height(&self) -> Sectors {
        height_of(&self.array.geometry, &self.knobs)
    }

    fn has_deferred(&self) -> bool {
        self.raid.has_deferred()
    }
}

/// How often a full member is tried.
const FULL_RETRY: Span = Span::secs(1);

/// What counts as pending for a request that is being attached: more than a request has
/// sub-requests.
const ATTACHING: u64 = 1 << 32;
