//! Volume: requests of clients from arrival to answer, and the gates that they pass.
//!
//! A request passes these gates, in order, and waits at each without holding what others need:
//!
//! 1. earlier requests that overlap it ([`ranges`]);
//! 2. for a write, the dirty state of the array; with `preflush`, a round of flushes;
//! 3. its personality ([`crate::raid`]), which splits it and answers for its sub-requests;
//! 4. its sub-requests are done;
//! 5. failures that happened meanwhile are recorded on the other members.
//!
//! Then it is answered, its frames and credit go back, and the next one that overlaps it starts.

mod command;
mod members;
mod ranges;
mod sync;

use std::collections::VecDeque;

use smallvec::SmallVec;
use weft_units::{ByteRange, Bytes, ClientId, Sectors, Slot, Span, Time, VolumeId};

use self::command::Waiting;
use self::members::STALL_WARNING;
use self::ranges::Ranges;
use self::sync::changes_parity;
use crate::Congestion;
use crate::array::Array;
use crate::array::outbox::{Outbox, Outstanding, Owner, Who};
use crate::array::resync_window::Resync;
use crate::array::superblock_round::FlushFor;
use crate::array::write_intent::Lease;
use crate::config::VolumeConfig;
use crate::contract::error::ReplyError;
use crate::contract::frame::{Frame, Run, frames_needed};
use crate::contract::input::{ClientRequest, Fault, Flags, RequestOp, SyncAction, Value};
use crate::contract::output::{Notice, Output};
use crate::contract::snapshot::{VolumeSnapshot, WrongStrip};
use crate::contract::token::{RequestId, Tag};
use crate::knobs::{Knob, Knobs, WAITS_WITHOUT_BOUND};
use crate::mutant::Mutant;
use crate::raid::parity::streams::WriteStream;
use crate::raid::{Answer, ArrayIo, Cx, Event, Personality, SPLITTING, StripeMemory, Told};

/// One volume: an array and the requests to it.
#[derive(Clone, Debug)]
pub(crate) struct Volume {
    id: VolumeId,
    pub(crate) array: Array,
    raid: Personality,
    knobs: Knobs,
    requests: Vec<Option<Active>>,
    free: Vec<u32>,
    ranges: Ranges,
    /// Writes whose lease is not granted yet.
    before_lease: VecDeque<RequestId>,
    /// Requests that the personality may take.
    ready: VecDeque<RequestId>,
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
    /// A new value that is set once the personality uses nothing.
    quiescing: Option<Knob>,
    /// Commands that wait, with their origin.
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
    attr: crate::contract::input::Attr,
    /// Sub-requests that are not done, one until it is submitted, and [`SPLITTING`] while it is
    /// being split.
    pending: u64,
    /// The part of its range that members are told to discard.
    discarded: Option<ByteRange>,
    error: Option<ReplyError>,
    /// A member that it read has stalled.
    stalled: bool,
    /// Member reads into its frames that were given up.
    pins: u32,
    writes: bool,
    /// Another request waits for it.
    waited_for: bool,
    stream: WriteStream,
    flushed: bool,
    /// Of a write that has begun.
    lease: Option<Lease>,
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
        let raid = Personality::new(id, memory, &array.geometry, &config.knobs);
        Self {
            id,
            array,
            raid,
            knobs: config.knobs,
            requests: Vec::new(),
            free: Vec::new(),
            ranges: Ranges::default(),
            before_lease: VecDeque::new(),
            ready: VecDeque::new(),
            held: VecDeque::new(),
            sync: None,
            last_sync: None,
            wanted_sync: None,
            frozen: false,
            recovery_disabled: false,
            quiescing: None,
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
        let discarded = self.raid.to_discard(request, &self.array);
        let range = match discarded {
            Some(discarded) if trims => discarded,
            // Advice that cannot be taken.
            None if trims => ByteRange::new(range.start.0, 0),
            _ => range,
        };
        let id = self.enter(&ClientRequest { range, ..*request }, writes, out.now);
        self.active(id).discarded = discarded;
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

    /// A request waits for others that it overlaps. These do not wait long for more to be written
    /// with them, because who would bring that may wait for them. md does not queue whole requests.
    #[cold]
    fn hurry_those_before(&mut self, id: RequestId, now: Time) {
        if self.knobs.preread_wait_max == WAITS_WITHOUT_BOUND {
            return;
        }
        let before: SmallVec<[RequestId; 4]> = self.ranges.held_up_by(id).collect();
        for id in before {
            let request = self.active(id);
            if !request.writes || std::mem::replace(&mut request.waited_for, true) {
                continue;
            }
            let io = request.io(id);
            self.raid.hurry(&io, &self.array.geometry, now);
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
            let forgotten = self.array.is_planted(Mutant::CommandEndForgotten);
            let member = &mut self.array.members[position];
            member.in_flight -= outstanding.requests;
            if outstanding.at_member && !forgotten {
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
            Owner::Compute(job) => {
                self.with_raid(out, |raid, cx| raid.compute_done(job, value, cx));
            }
            Owner::Discard(request) if !detached => {
                self.with_raid(out, |raid, cx| raid.discard_done(request, position, result, cx));
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
                if !detached {
                    self.with_raid(out, |raid, cx| {
                        raid.member_answered(first, position, result, cx);
                    });
                }
                let answer = Answer { result, member: outstanding.member, given_up: false };
                let mut next = Some(first);
                while let Some(part) = next {
                    if !detached {
                        self.part_done(part, answer, out);
                    } else if let Some(request) = self.raid.part_freed(part) {
                        self.unpin(request, out);
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
        self.start_granted();
        self.write_deferred(out);
        self.with_raid(out, |raid, cx| raid.begin_turn(cx));
        self.run_syncs(out);
        self.set_when_quiet(out);
        self.submit_ready(out);
        let quiesces = self.quiescing.is_some();
        self.with_raid(out, |raid, cx| raid.split_waiting(quiesces, cx));
        self.take_events(out);
        if self.array.membership.broken {
            self.raid.end_vain_waits(out.now);
            self.take_events(out);
        }
        let handled = self.with_raid(out, |raid, cx| raid.turn(stripes_max, cx));
        self.take_events(out);
        let mut cx = Cx { array: &mut self.array, knobs: &self.knobs, out };
        self.raid.end_turn(self.sync.as_ref(), &mut cx);
        self.take_events(out);
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
        let sync_goes_on = self.sync.as_ref().is_some_and(|sync| {
            self.raid.would_feed(sync) && (self.array.is_dirty() || !changes_parity(sync.action))
        });
        let quiesces = self.quiescing.is_some();
        let settings = (&self.array, &self.knobs);
        self.raid.has_work(quiesces, self.sync.as_ref(), settings, now)
            || sync_goes_on
            || self.array.members.iter().any(|member| member.to_give_up)
            || (self.sync.is_none() && self.sync_is_due(now))
            || self.may_set()
            || self.can_never_set()
            || (!self.ready.is_empty() && !quiesces)
            || self.next_is_granted()
            || (!self.before_lease.is_empty() && self.array.membership.broken)
            || (!self.held.is_empty() && self.array.is_known())
    }

    /// What a member had no space for is written to it later, and that is for a dirty array.
    fn may_enter_safe_mode(&self) -> bool {
        self.stopping || !self.has_deferred()
    }

    pub(crate) fn raid(&self) -> &Personality {
        &self.raid
    }

    /// Source: md's `raid5_congested`; `md_write_start`, in which a writer waits for the
    /// superblock.
    pub(crate) fn congestion(&self) -> Congestion {
        if self.raid.starves() || !self.before_lease.is_empty() {
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
        let raid = self.raid.next_wake(&self.array, &self.knobs);
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
            sync_stripes: sync.map_or(0, |sync| sync.units),
            mismatch_cnt: sync.map_or(0, |sync| sync.mismatch_cnt),
            mismatches: sync.map(|sync| sync.mismatches.clone()).unwrap_or_default(),
            no_space: self.full_since.is_some() || self.array.update_waits_for_space(),
            resync_from: self.array.membership.resync_from,
            raid: self.raid.snapshot(),
            requests_active: self.requests.iter().flatten().filter(|r| !r.answered).count(),
            knobs: self.knobs,
            members: self
                .array
                .members
                .iter()
                .map(crate::array::member::Member::snapshot)
                .collect(),
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
        let stream = if writes {
            let ends_at = || self.ranges.write_ends_at(request.range.start.0);
            let settings = (&self.array.geometry, &self.knobs);
            self.raid.arrives(request.range, ends_at, settings, now)
        } else {
            WriteStream::default()
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
            stream,
            flushed: false,
            lease: None,
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
        let (range, discards) = (request.range, request.discarded.is_some());
        let lease = self.array.lease(range);
        self.active(id).lease = Some(lease);
        if discards && self.array.is_planted(Mutant::DiscardBeforeDirty) {
            self.ready.push_back(id);
            return;
        }
        self.before_lease.push_back(id);
    }

    /// Lets writes through whose lease is granted.
    fn start_granted(&mut self) {
        if self.array.membership.broken {
            while let Some(id) = self.before_lease.pop_front() {
                self.active(id).error = Some(ReplyError::Io);
                self.ready.push_back(id);
            }
            return;
        }
        while self.next_is_granted()
            && let Some(id) = self.before_lease.pop_front()
        {
            let request = self.active(id);
            if request.flags.preflush && !request.flushed {
                request.flushed = true;
                self.array.flushes.arrive(FlushFor::Request(id));
            } else {
                self.ready.push_back(id);
            }
        }
    }

    /// Whether the lease of the first write that waits for it is granted.
    fn next_is_granted(&self) -> bool {
        let next = self.before_lease.front();
        let request = next.and_then(|id| self.requests[id.0 as usize].as_ref());
        let lease = request.and_then(|request| request.lease.as_ref());
        lease.is_some_and(|lease| self.array.grants(lease))
    }

    fn start_read(&mut self, id: RequestId, out: &mut Outbox) {
        let io = self.active(id).io(id);
        match self.with_raid(out, |raid, cx| raid.read_straight(&io, cx)) {
            Some(pending) => {
                self.active(id).pending += pending;
                self.sub_request_done(id, Ok(()), out);
            }
            None => self.ready.push_back(id),
        }
    }

    /// Has the personality take what is ready. While it quiesces nothing is begun.
    fn submit_ready(&mut self, out: &mut Outbox) {
        if self.ready.is_empty() {
            return;
        }
        let mut later = Vec::new();
        while let Some(id) = self.ready.pop_front() {
            if self.active(id).error.is_some() {
                let io = self.active(id).io(id);
                self.raid.skip(&io, out.now);
                self.is_split(id, out);
                self.sub_request_done(id, Ok(()), out);
            } else if self.quiescing.is_some() {
                later.push(id);
            } else {
                self.submit(id, out);
            }
        }
        self.ready.extend(later);
    }

    fn submit(&mut self, id: RequestId, out: &mut Outbox) {
        let io = self.active(id).io(id);
        let pending = self.with_raid(out, |raid, cx| raid.submit(&io, cx));
        // Its sub-requests are pending instead of its being submitted.
        self.active(id).pending += pending - 1;
        if pending < SPLITTING {
            self.is_split(id, out);
        }
    }

    /// All of a request is split into sub-requests.
    fn is_split(&mut self, id: RequestId, out: &mut Outbox) {
        if self.array.is_planted(Mutant::FrameReusedInFlight) {
            let frames = std::mem::replace(&mut self.active(id).frames, Run::EMPTY);
            out.push(Output::Release(frames));
        }
    }

    /// A part of a member request is done, or was given up.
    #[inline]
    fn part_done(&mut self, part: Who, answer: Answer, out: &mut Outbox) {
        match self.with_raid(out, |raid, cx| raid.part_done(part, answer, cx)) {
            Told::Nothing => {}
            Told::Done(request) => self.sub_request_done(request, Ok(()), out),
            Told::GivenUp(id) => {
                let request = self.active(id);
                request.pins += 1;
                request.stalled = true;
                self.sub_request_done(id, Ok(()), out);
            }
            Told::ReadFailed { part, asked } => {
                let request = self.active(part.request);
                request.pending += SPLITTING - 1;
                let io = request.io(part.request);
                self.raid.read_again(part, &io, asked);
            }
        }
    }

    /// One sub-request of a request is done, or its being submitted.
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
        let lease = request.lease.take();
        if !gone {
            out.reply(client, tag, result);
        }
        if !(gone && self.array.is_planted(Mutant::CreditLostOnDisconnect)) {
            out.give_credit(client, charged);
        }
        if let Some(lease) = lease {
            self.raid.answered(stream, len);
            self.array.give_back(lease, out.now);
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
        act: impl FnOnce(&mut Personality, &mut Cx<'_>) -> T,
    ) -> T {
        let mut cx = Cx { array: &mut self.array, knobs: &self.knobs, out };
        act(&mut self.raid, &mut cx)
    }

    /// Writes again, now and then, what members had no space for.
    fn write_deferred(&mut self, out: &mut Outbox) {
        if self.has_deferred() && self.retry_wake().is_some_and(|time| out.now >= time) {
            self.full_since = Some(out.now);
            self.array.give_up_full(self.knobs.no_space_wait, out);
            self.with_raid(out, |raid, cx| raid.write_deferred(cx));
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
        if !self.raid.events().is_empty() {
            self.take_some_events(out);
        }
    }

    #[inline(never)]
    fn take_some_events(&mut self, out: &mut Outbox) {
        let mut events = std::mem::take(self.raid.events());
        for event in events.drain(..) {
            self.event(event, out);
        }
        // Keeps the allocation, if nothing was added meanwhile.
        if self.raid.events().is_empty() {
            *self.raid.events() = events;
        }
    }

    #[inline(always)]
    fn event(&mut self, event: Event, out: &mut Outbox) {
        match event {
            Event::Split { request, sub_requests, whole } => {
                if whole {
                    self.is_split(request, out);
                }
                let sub_requests = u64::from(sub_requests);
                self.active(request).pending += sub_requests;
                self.sub_requests_done(request, SPLITTING, Ok(()), out);
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
            Event::SyncDone { unit, mismatch, wrong, ok } => {
                let sync = self.sync.as_mut().expect("units are synced for a sync");
                sync.unit_done(unit, mismatch, ok);
                if mismatch && sync.action == SyncAction::Check {
                    let sector = sync.sector_of(unit);
                    let wrong = wrong.and_then(|slot| {
                        let member = self.array.at(slot)?;
                        let at = member.data_sector(sector);
                        Some(WrongStrip { member: member.info.index, slot, at })
                    });
                    sync.found_mismatch(unit, wrong);
                }
            }
            Event::NoSpaceForDiscard { slot, sector } => self.no_space(slot, sector, out),
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

    /// A member has no space for data at this data sector.
    fn no_space(&mut self, slot: Slot, sector: Sectors, out: &mut Outbox) {
        if let Some(sync) = &mut self.sync {
            self.sync_failed_full = true;
            sync.rewind_to(sector);
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
        while let Some(id) = self.before_lease.pop_front() {
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

    fn has_deferred(&self) -> bool {
        self.raid.has_deferred()
    }
}

impl Active {
    /// What its personality has to know of it.
    #[inline(always)]
    fn io(&self, id: RequestId) -> ArrayIo {
        ArrayIo {
            id,
            range: self.range,
            frames: self.frames,
            attr: self.attr,
            discarded: self.discarded,
            writes: self.writes,
            zeroes: self.op == RequestOp::WriteZeroes,
            fua: self.flags.fua,
            sync: self.flags.sync,
            again: self.flags.again,
            stream: self.stream,
            waited_for: self.waited_for,
        }
    }
}

/// Time between two attempts at a full member.
const FULL_RETRY: Span = Span::secs(1);
