//! Volume: requests of clients from arrival to answer, and the gates at which they wait.
//!
//! A request passes these gates in order. While it waits at a gate it holds no resources that
//! others need:
//!
//! 1. earlier requests that overlap it have finished ([`ranges`]);
//! 2. for a write, the array is dirty; with `preflush`, a round of flushes is done;
//! 3. its personality ([`crate::raid`]) has split it into sub-requests;
//! 4. its sub-requests are done;
//! 5. failures of members that happened in the meantime are recorded on the other members.
//!
//! Then the request is answered, its frames and credit are returned, and the next request that
//! overlaps it starts.

mod clients;
mod command;
mod events;
mod members;
pub(crate) mod ranges;
mod requests;
mod sync;

use std::collections::VecDeque;

use smallvec::SmallVec;
use weft_units::{ByteRange, Bytes, ClientId, Span, Time, VolumeId};

use self::clients::Clients;
use self::command::{Waiting, WhenQuiet};
use self::members::STALL_WARNING;
use self::ranges::Ranges;
use self::requests::Active;
use self::sync::changes_parity;
use crate::array::Array;
use crate::array::issuer::Issuer;
use crate::array::outbox::{Chain, CompletionTarget, Outbox, Outstanding, Owner, PassedRequest};
use crate::array::resync_window::{Resync, Wanted};
use crate::array::superblock_update::FlushFor;
use crate::array::twin::{TwinAnswer, is_twin};
use crate::config::VolumeConfig;
use crate::contract::error::ReplyError;
use crate::contract::frame::{Frame, frames_needed};
use crate::contract::input::{ClientRequest, Fault, RequestOp, SyncAction, Value};
use crate::contract::snapshot::{LastSync, VolumeSnapshot};
use crate::contract::token::RequestId;
use crate::contract::turn::Congestion;
use crate::knobs::{Knob, Knobs, PoolKnobs, WAITS_WITHOUT_BOUND};
use crate::mutant::Mutant;
use crate::raid::{Answer, ArrayView, Cx, Personality, StripeMemory};

/// One volume: an array and the requests to it.
#[derive(Clone, Debug)]
pub(crate) struct Volume {
    id: VolumeId,
    pub(crate) array: Array,
    raid: Personality,
    memory: StripeMemory,
    knobs: Knobs,
    requests: Vec<Option<Active>>,
    free: Vec<u32>,
    /// Number of requests in flight that were passed to a member unchanged. They are not in
    /// `requests`: the table of tokens records them.
    passing: u32,
    clients: Clients,
    ranges: Ranges,
    /// Writes that wait for their lease. A lease is granted once the dirty state of the array, and
    /// the bits of the bitmap for the write's range, are durable.
    before_lease: VecDeque<RequestId>,
    /// Requests that may be passed to the RAID level: they wait for no earlier request, no lease
    /// and no flush.
    ready: VecDeque<RequestId>,
    /// Finished requests with an answer that waits until a member failure is recorded, or until the
    /// end of the turn.
    held: VecDeque<RequestId>,
    sync: Option<Resync>,
    /// The last sync that ended, for the status report; `None` if none has ended.
    last_sync: Option<Resync>,
    /// Number of syncs that were started.
    syncs: u64,
    /// Sync action that an administrator asked for, and the sectors that it is to cover, until it
    /// runs; `None` if there is none.
    wanted_sync: Option<(SyncAction, Wanted)>,
    frozen: bool,
    /// Whether a recovery failed, so that none is started until the members change.
    recovery_disabled: bool,
    /// Change that is made once no stripe is in use and no request is partly split into
    /// sub-requests; `None` if no change waits.
    quiescing: Option<Box<WhenQuiet>>,
    /// Commands that are not answered yet.
    commands: Vec<Waiting>,
    stopping: bool,
    /// Time at which a member last had no space, or was last tried again; `None` if no member is
    /// known to be full, or if the next write of a client has to find out.
    full_since: Option<Time>,
    /// Whether a sync ended early because a member had no space.
    sync_failed_full: bool,
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
        let mut array = Array::new(id, &config.source, epoch_secs, now);
        array.set_queues(&config.knobs, |_| 0);
        let memory = StripeMemory { first, frames, stripes_max: config.stripes_max };
        let raid = Personality::new(memory, config);
        let reshape = config.source.assembly().and_then(|assembly| assembly.reshape.as_ref());
        let frozen = reshape.is_some_and(|reshape| reshape.held);
        Self {
            id,
            array,
            raid,
            memory,
            knobs: config.knobs,
            requests: Vec::new(),
            free: Vec::new(),
            passing: 0,
            clients: Clients::new(),
            ranges: Ranges::default(),
            before_lease: VecDeque::new(),
            ready: VecDeque::new(),
            held: VecDeque::new(),
            sync: None,
            last_sync: None,
            syncs: 0,
            wanted_sync: None,
            frozen,
            recovery_disabled: false,
            quiescing: None,
            commands: Vec::new(),
            stopping: false,
            full_since: None,
            sync_failed_full: false,
        }
    }

    pub(crate) const fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    /// Records the new value of a knob of the write-back cache for reports only: the volume does
    /// not use it.
    pub(crate) fn note_knob(&mut self, knob: Knob) {
        self.knobs.set(knob);
    }

    /// Records new values of the knobs of the pool of dirty pages, which all volumes share.
    pub(crate) const fn note_pool(&mut self, knobs: PoolKnobs) {
        self.knobs.pool = knobs;
    }

    pub(crate) fn size(&self) -> u64 {
        self.array.size.bytes().0
    }

    /// Checks whether the volume would accept a request that stays in the write-back cache for now.
    /// Returns the error with which it would refuse the request.
    pub(crate) fn admits(&self, request: &ClientRequest) -> Result<(), ReplyError> {
        self.is_inside(request)?;
        let reads = matches!(request.op, RequestOp::Flush | RequestOp::Read);
        if !reads && self.array.membership.read_only {
            return Err(ReplyError::ReadOnly);
        }
        if !reads && self.array.membership.broken {
            return Err(ReplyError::Io);
        }
        self.fits(request).map(|_| ())
    }

    /// Counts a request that the write-back cache answers without asking the volume.
    pub(crate) fn count(&mut self, request: &ClientRequest) {
        let mut request = *request;
        self.clients.enter(&mut request, &mut self.array);
    }

    /// Part of a request's range that members would be told to discard; `None` if there is none.
    pub(crate) fn to_discard(&self, request: &ClientRequest) -> Option<ByteRange> {
        self.raid.to_discard(request, ArrayView::of(&self.array))
    }

    /// Whether an answered request may have left its range as it was: a trim during a reshape, or a
    /// trim on a level without redundancy if a member turned out to be unable to discard.
    pub(crate) fn may_have_kept(&self, request: &ClientRequest) -> bool {
        let keeps = self.array.is_reshaping() || !self.array.membership.is_redundant;
        let is_only_advice = request.op == RequestOp::Trim && keeps;
        is_only_advice && self.to_discard(request).is_none()
    }

    #[inline(always)]
    fn is_inside(&self, request: &ClientRequest) -> Result<(), ReplyError> {
        let size = self.array.size.bytes();
        if request.range.checked_end().is_none_or(|end| end > size) {
            return Err(ReplyError::OutOfRange);
        }
        if self.stopping { Err(ReplyError::Stopping) } else { Ok(()) }
    }

    /// Checks that a request covers whole logical blocks and has the frames that it needs. Returns
    /// the number of frames, or an error if the request fails the check.
    #[inline(always)]
    fn fits(&self, request: &ClientRequest) -> Result<u32, ReplyError> {
        let range = request.range;
        let has_payload = matches!(request.op, RequestOp::Read | RequestOp::Write);
        let needed = if has_payload { frames_needed(range.start.0, range.len.0) } else { 0 };
        if request.frames.count != needed {
            return Err(ReplyError::Invalid("the frames of the request do not fit its range"));
        }
        if (range.start.0 | range.len.0) & (self.array.request_unit.0 - 1) != 0 {
            return Err(ReplyError::Invalid("not whole logical blocks"));
        }
        Ok(needed)
    }

    // Records: requests, answers, commands.

    /// Handles a request from a client or, with `of_cache`, from the operation with that number in
    /// the write-back cache. Returns an error if the request is refused.
    pub(crate) fn request(
        &mut self,
        request: &mut ClientRequest,
        of_cache: Option<u32>,
        out: &mut Outbox,
    ) -> Result<(), ReplyError> {
        let issuer = match of_cache {
            None => Issuer::Client { client: request.client, tag: request.tag },
            Some(op) => Issuer::WriteBack { op },
        };
        let range = request.range;
        self.is_inside(request)?;
        let trims = request.op == RequestOp::Trim;
        let writes = !matches!(request.op, RequestOp::Flush | RequestOp::Read);
        if writes {
            self.takes_writes(trims, out.now)?;
        }
        let needed = self.fits(request)?;
        self.clients.enter(request, &mut self.array);
        if needed > 0
            && !request.flags.preflush
            && let Some((position, sector)) = self.passes(range, writes)
        {
            self.passing += 1;
            self.array.pass(position, sector, request, issuer, out);
            return Ok(());
        }
        let (mut range, mut discarded) = (range, None);
        if writes {
            discarded = self.to_discard(request);
        }
        if trims {
            // A trim is advice, and may have no part that can be discarded.
            range = discarded.unwrap_or(ByteRange::new(range.start.0, 0));
        }
        let id = self.enter(request, issuer, (range, discarded), writes, out.now);
        if request.op == RequestOp::Flush || (range.len == Bytes::ZERO && request.flags.preflush) {
            self.array.flushes.arrive(FlushFor::Request(id));
        } else if range.len == Bytes::ZERO {
            // An empty request is answered at the end of this turn, after all of its inputs are
            // recorded.
            self.active(id).pending = 0;
            self.held.push_back(id);
        } else if !self.ranges.enter(id, range, writes) {
            self.hurry_those_before(id, out.now);
        } else if writes {
            self.start_write(id);
        } else {
            self.start_read(id, out);
        }
        Ok(())
    }

    /// Shortens the waits of the earlier requests that overlap request `id`: they stop waiting for
    /// more data to merge, because the client that would send that data may itself be blocked
    /// behind them. md does not queue whole requests.
    #[cold]
    fn hurry_those_before(&mut self, id: RequestId, now: Time) {
        if self.knobs.preread_wait_max == WAITS_WITHOUT_BOUND {
            return;
        }
        let before: SmallVec<[RequestId; 4]> = self.ranges.held_up_by(id).collect();
        assert!(!before.is_empty(), "a request waits for others");
        for id in before {
            let io = &mut self.active(id).io;
            if !io.writes || std::mem::replace(&mut io.waited_for, true) {
                continue;
            }
            let io = *io;
            self.raid.hurry(&io, now);
        }
    }

    /// Records that a client has disconnected: its requests finish without an answer.
    pub(crate) fn client_gone(&mut self, client: ClientId) {
        for request in self.requests.iter_mut().flatten() {
            request.gone |= request.issuer.is(client);
        }
        self.commands.retain(|waiting| !waiting.issuer.is(client));
        self.clients.gone(client);
    }

    /// Handles the `Done` of the token with the record `outstanding`.
    #[inline(always)]
    pub(crate) fn done(
        &mut self,
        outstanding: &Outstanding,
        value: &Result<Value, Fault>,
        out: &mut Outbox,
    ) {
        let position = outstanding.member.and_then(|index| self.array.position_of(index));
        let detached = outstanding.detached;
        if let Some(position) = position {
            let forgotten = self.array.is_planted(Mutant::CommandEndForgotten);
            let forgets_metadata = self.array.is_planted(Mutant::FlushSkipForgetsMetadata)
                && matches!(
                    outstanding.owner,
                    Owner::Bitmap { .. }
                        | Owner::Discard(_)
                        | Owner::Superblock
                        | Owner::TwinDiscard(_)
                );
            let member = &mut self.array.members[position];
            assert!(member.in_flight >= outstanding.requests, "a member answers what it was sent");
            member.in_flight -= outstanding.requests;
            if outstanding.at_member && !forgotten {
                member.queue.ended(outstanding.scheduled, outstanding.write, out.now);
            }
            if outstanding.write && !outstanding.fua && !forgets_metadata {
                member.unflushed.wrote();
            }
            if member.read_errors > 0 && !detached {
                let reads = !outstanding.write
                    && matches!(outstanding.owner, Owner::Parts(..) | Owner::Passed(_));
                if reads && value.is_ok() {
                    member.read_errors = 0;
                }
            }
        }
        let result = value.as_ref().map(|_| ()).map_err(|fault| *fault);
        match outstanding.owner {
            _ if detached => self.freed(&outstanding.owner, out),
            Owner::Compute(job) => {
                self.with_raid(out, |raid, cx| raid.compute_done(job, value, cx));
            }
            Owner::Discard(request) => {
                self.with_raid(out, |raid, cx| raid.discard_done(request, position, result, cx));
            }
            Owner::TwinDiscard(part) => {
                let member = outstanding.member;
                let (given_up, pins) = (false, false);
                self.twin_done(part, TwinAnswer { member, result, given_up, pins }, out);
            }
            Owner::Passed(ref request) if result.is_err() && self.raid.has_copies() => {
                self.passed_in_vain(request, outstanding, position, result, out);
            }
            Owner::Passed(ref request) => {
                self.passed(request, outstanding.write, result, out);
                // Only the personality creates events, and it does not know this request.
                return;
            }
            Owner::Flush(flight) => self.flush_done(flight, position, result, out),
            Owner::Bitmap { all } => {
                self.array.bitmap_done(position, all, result, &self.knobs, out);
                self.metadata_done(position, result, out);
            }
            Owner::Superblock => {
                self.array.superblock_done(position, result, &self.knobs, out);
                self.metadata_done(position, result, out);
            }
            Owner::Parts(first, merged) => {
                self.parts_done((first, merged), outstanding, position, result, out);
            }
        }
        self.take_events(out);
    }

    /// Passes the result of a member request on to the parts that were merged into it.
    #[inline(always)]
    fn parts_done(
        &mut self,
        (first, mut merged): (CompletionTarget, Chain),
        outstanding: &Outstanding,
        position: Option<usize>,
        result: Result<(), Fault>,
        out: &mut Outbox,
    ) {
        let (member, write) = (outstanding.member, outstanding.write);
        if let (Err(fault), false) = (result, write) {
            self.with_raid(out, |raid, cx| raid.read_failed(first, position, fault, cx));
        }
        let answer = Answer { result, member, given_up: false, pins: false, write };
        self.part_done(first, answer, out);
        while let Some(part) = out.next_part(&mut merged) {
            self.part_done(part, answer, out);
        }
    }

    /// Handles the failure of a read that was passed to a member unchanged: it becomes a normal
    /// request, because another member may have the data.
    #[cold]
    fn passed_in_vain(
        &mut self,
        request: &PassedRequest,
        outstanding: &Outstanding,
        position: Option<usize>,
        result: Result<(), Fault>,
        out: &mut Outbox,
    ) {
        let parts = (self.keep_passed(request), Chain::NONE);
        self.parts_done(parts, outstanding, position, result, out);
    }

    /// Releases the memory that a given-up member request might still have used, because the member
    /// has answered the request.
    #[cold]
    fn freed(&mut self, owner: &Owner, out: &mut Outbox) {
        let Owner::Parts(first, mut merged) = *owner else { return };
        let mut next = Some(first);
        while let Some(part) = next {
            let freed = if is_twin(part) { self.array.twin_freed(part) } else { vec![part] };
            for part in freed {
                if let Some(request) = self.raid.part_freed(part) {
                    self.unpin(request, out);
                }
            }
            next = out.next_part(&mut merged);
        }
    }

    // Decisions: one turn.

    /// Takes one turn: handles stripes, picking at most `stripes_max` times, and does all other
    /// work that is due. Returns the number of stripes handled.
    pub(crate) fn turn(&mut self, stripes_max: u32, out: &mut Outbox) -> u32 {
        self.clients.look(&self.array, out.now);
        self.watch_members(out);
        self.start_granted();
        self.write_deferred(out);
        self.with_raid(out, |raid, cx| raid.begin_turn(cx));
        self.run_syncs(out);
        if let Some(end) = self.end_of_growth() {
            self.quiescing = Some(Box::new(end));
        }
        self.act_when_quiet(out);
        self.submit_ready(out);
        let keeps = self.keeps_waiting();
        self.with_raid(out, |raid, cx| raid.split_waiting(keeps, cx));
        self.take_events(out);
        if self.array.membership.broken {
            self.raid.end_vain_waits(out.now);
            self.take_events(out);
        }
        let handled = self.with_raid(out, |raid, cx| raid.turn(stripes_max, cx));
        self.take_events(out);
        let mut cx = Cx::new(&mut self.array, &self.knobs, out);
        self.raid.end_turn(self.sync.as_ref(), &mut cx);
        self.take_events(out);
        // Answers are sent before the check whether the array is idle, because the last answer
        // allows the stop.
        self.release_held(out);
        self.flushed(out);
        let delay =
            if self.stopping && self.is_idle() { None } else { Some(self.knobs.safe_mode_delay) };
        if self.may_enter_safe_mode() {
            self.array.enter_safe_mode(delay, out.now);
        }
        if delay.is_none() {
            self.array.record_bad_blocks();
        }
        self.array.run_bitmap(delay.is_none(), out.now);
        self.array.start_rounds(self.knobs.flush_batch, out);
        // Takes the events of the range locks that were released in this turn.
        self.take_events(out);
        self.answer_commands(out);
        handled
    }

    /// Whether a turn at `now` would have work to do.
    pub(crate) fn has_work(&self, now: Time) -> bool {
        let sync_goes_on = self.sync.as_ref().is_some_and(|sync| {
            self.raid.would_feed(sync) && (self.array.is_dirty() || !changes_parity(sync.action))
        });
        let quiesces = self.quiescing.is_some();
        let settings = (ArrayView::of(&self.array), &self.knobs);
        self.raid.has_work(self.keeps_waiting(), self.sync.as_ref(), settings, now)
            || sync_goes_on
            || self.array.members.iter().any(|member| member.to_give_up)
            || (self.sync.is_none() && self.sync_is_due(now))
            || self.may_act()
            || self.end_of_growth().is_some()
            || self.can_never_set()
            || (!self.ready.is_empty() && !quiesces)
            || self.next_is_granted()
            || (!self.before_lease.is_empty() && self.array.membership.broken)
            || (!self.held.is_empty() && self.array.is_known())
            || self.array.has_flushed()
    }

    /// Whether the array may become clean. The array stays dirty while strips wait for space on a
    /// member, because a strip is written only to a dirty array. A volume that stops does not wait
    /// for these strips.
    fn may_enter_safe_mode(&self) -> bool {
        self.stopping || !self.has_deferred()
    }

    pub(crate) fn raid(&self) -> &Personality {
        &self.raid
    }

    /// Congestion of the stripe cache.
    ///
    /// Source   md's `raid5_congested`; `md_write_start`, in which a writer waits for the
    ///          superblock
    pub(crate) fn congestion(&self) -> Congestion {
        if self.raid.starves() || !self.before_lease.is_empty() {
            Congestion::Blocked
        } else if self.raid.is_full() {
            Congestion::Congested
        } else {
            Congestion::None
        }
    }

    /// Time at which the volume needs a turn if no other event comes before; `None` if it needs
    /// none.
    pub(crate) fn next_wake(&self, out: &Outbox) -> Option<Time> {
        let enter_safe_mode = self.array.safe_mode_wake(self.knobs.safe_mode_delay);
        let enter_safe_mode = enter_safe_mode.filter(|_| self.may_enter_safe_mode());
        let (read_around, member_timeout) = self.patience_with_members();
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
        let raid = self.raid.next_wake(ArrayView::of(&self.array), &self.knobs);
        let array = self.array.update_wake().into_iter().chain(self.array.bitmap_wake());
        let sync = self.sync.as_ref().and_then(|sync| sync.wake(self.client_waits()));
        stalls.chain(sync).chain(enter_safe_mode).chain(retry).chain(array).chain(raid).min()
    }

    pub(crate) fn snapshot(&self) -> VolumeSnapshot {
        let sync = self.sync.as_ref().or(self.last_sync.as_ref());
        VolumeSnapshot {
            array_state: self.array.state_word(),
            size: self.array.size.bytes(),
            request_unit: self.array.request_unit,
            slots: self.array.slots(),
            layout: self.array.layout_snapshot(),
            degraded: self.array.membership.degraded(),
            events: self.array.events(),
            updated_secs: self.array.updated_secs(),
            bitmap: self.array.bitmap_snapshot(),
            sync_action: match &self.sync {
                Some(sync) => sync.action,
                None if self.frozen => SyncAction::Frozen,
                None => SyncAction::Idle,
            },
            last_sync: sync.map(|it| LastSync {
                number: self.syncs,
                action: it.action,
                from: it.wanted.from,
                to: it.wanted.to,
                ended: it.ended,
            }),
            sync_completed: sync.map(|sync| (sync.completed(), sync.total())),
            sync_stripes: sync.map_or(0, |sync| sync.units),
            sync_speed: self.sync.as_ref().and_then(|sync| sync.pace.speed()),
            mismatch_cnt: sync.map_or(0, |sync| sync.mismatch_cnt),
            mismatches: sync.map(|sync| sync.mismatches.clone()).unwrap_or_default(),
            reshape: self.array.reshape_snapshot(),
            no_space: self.full_since.is_some() || self.array.update_waits_for_space(),
            resync_from: self.array.membership.resync_from,
            raid: self.raid.snapshot(),
            requests_active: self.requests_active(),
            knobs: self.knobs,
            members: self.array.member_snapshots(|account| self.clients.party(account)),
            accounts: self.clients.snapshot(&self.array),
        }
    }

    /// Number of requests that are not answered yet.
    pub(crate) fn requests_active(&self) -> usize {
        self.requests.iter().flatten().filter(|it| it.is_active()).count() + self.passing as usize
    }

    /// Number of client frames in use by requests of this volume, without requests that were passed
    /// to a member unchanged.
    pub(crate) fn frames_held(&self) -> u32 {
        let of_clients = |request: &&Active| request.issuer.is_client();
        let requests = self.requests.iter().flatten().filter(of_clients);
        requests.map(|request| request.io.frames.count).sum()
    }

    #[inline]
    fn with_raid<T>(
        &mut self,
        out: &mut Outbox,
        act: impl FnOnce(&mut Personality, &mut Cx<'_>) -> T,
    ) -> T {
        let mut cx = Cx::new(&mut self.array, &self.knobs, out);
        act(&mut self.raid, &mut cx)
    }

    fn has_deferred(&self) -> bool {
        self.raid.has_deferred()
    }
}

/// Time between two attempts to write to a full member.
const FULL_RETRY: Span = Span::secs(1);
