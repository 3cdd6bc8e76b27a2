//! What a client sees: one range of bytes that can be read, written and flushed.
//!
//! A request passes these gates, in order, and waits at each without holding what others need:
//!
//! 1. earlier requests that overlap it ([`crate::ranges`]);
//! 2. for a write, the dirty mark of the array; with `preflush`, a round of flushes;
//! 3. rows of the stripe cache, one at a time; a read of a whole array goes straight to its members;
//! 4. its pieces are done;
//! 5. failures that happened meanwhile are recorded on the other members.
//!
//! Then it is answered, its frames and credit go back, and the next one that overlaps it starts.

use std::collections::VecDeque;

use smallvec::{SmallVec, smallvec};
use weft_units::{
    ByteRange, Bytes, ClientId, FRAME_BYTES, MemberIndex, SECTOR_BYTES, Sectors, Slot, Span, Time,
    VolumeId,
};

use crate::align::whole_blocks;
use crate::array::{Array, FlushFor};
use crate::config::VolumeConfig;
use crate::error::ReplyError;
use crate::frame::{Frame, Run, frames_needed};
use crate::input::{Command, Fault, Flags, Request, RequestOp, SyncAction, Value, Verb};
use crate::knobs::{Knob, Knobs, Writes};
use crate::mutant::Mutant;
use crate::outbox::{Outbox, Outstanding, Owner, ReadPart, Sent};
use crate::output::{Notice, Output};
use crate::raid::parity::Piece;
use crate::raid::parity::cache::{Acquired, Cache};
use crate::raid::parity::rows::{Event, Rows, Surroundings};
use crate::raid::parity::stripe_size::StripeSize;
use crate::raid::parity::sync::RowSync;
use crate::ranges::{Ranges, RequestId};
use crate::sched::merge::Staged;
use crate::snapshot::VolumeSnapshot;
use crate::token::{Tag, Token};

/// One volume: an array of level 4, 5 or 6 and the requests to it.
#[derive(Clone, Debug)]
pub(crate) struct Volume {
    id: VolumeId,
    pub(crate) array: Array,
    rows: Rows,
    knobs: Knobs,
    memory: Memory,
    requests: Vec<Option<Active>>,
    free: Vec<u32>,
    ranges: Ranges,
    /// Writes that wait for the dirty mark.
    before_dirty: VecDeque<RequestId>,
    /// Requests that go on attaching in this turn.
    ready: VecDeque<RequestId>,
    /// Requests that found no row.
    starved: VecDeque<RequestId>,
    /// Reads that failed on their member: to be read through the cache.
    retries: VecDeque<ReadPart>,
    /// Done, but a failure is not recorded yet.
    held: VecDeque<RequestId>,
    sync: Option<RowSync>,
    /// The last one, for people.
    last_sync: Option<RowSync>,
    /// Asked for by an administrator.
    wanted_sync: Option<SyncAction>,
    frozen: bool,
    /// A recovery failed: none is tried until the members change.
    recovery_disabled: bool,
    /// Waits until no row is in use.
    resizing: Option<Knob>,
    /// Who asked for what, and waits.
    commands: Vec<Waiting>,
    stopping: bool,
    /// No space behind a member since then.
    full_since: Option<Time>,
}

/// The part of the frame pool that holds the rows.
#[derive(Clone, Copy, Debug)]
struct Memory {
    first: Frame,
    frames: u32,
    rows_max: Option<u32>,
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
    /// Pieces that are not done, and one for attaching them.
    pending: u32,
    cursor: Cursor,
    error: Option<ReplyError>,
    /// A member that it read has stalled.
    stalled: bool,
    /// Member reads into its frames that were given up.
    pins: u32,
    writes: bool,
    flushed: bool,
    /// The array counts it as a writer.
    begun: bool,
    answered: bool,
}

/// How far a request is attached: which units of the present piece of at most 256 are done.
#[derive(Clone, Debug, Default)]
struct Cursor {
    /// Bytes of the volume that the present piece is made of.
    from: u64,
    to: u64,
    /// The same in units, rounded out.
    first: u64,
    end: u64,
    /// Where to go on within the piece.
    at: u64,
    done: SmallVec<[u64; 5]>,
    left: u64,
}

#[derive(Clone, Debug)]
struct Waiting {
    client: ClientId,
    tag: Tag,
    until: Until,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    /// The superblock round of this number is done, or there will be none.
    Recorded(u64),
    /// The cache has its new shape.
    Resized,
    /// Everything is finished, flushed and marked.
    Stopped,
    /// No sync runs.
    SyncStopped,
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
        let array = Array::new(id, &config.assembly, epoch_secs, now);
        let memory = Memory { first, frames, rows_max: config.rows_max };
        let rows = memory.rows(&array, &config.knobs);
        Self {
            id,
            array,
            rows,
            knobs: config.knobs,
            memory,
            requests: Vec::new(),
            free: Vec::new(),
            ranges: Ranges::default(),
            before_dirty: VecDeque::new(),
            ready: VecDeque::new(),
            starved: VecDeque::new(),
            retries: VecDeque::new(),
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
        }
    }

    // What is recorded: requests, answers, commands.

    /// A request arrives.
    pub(crate) fn request(
        &mut self,
        request: &Request,
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
        let writes = matches!(request.op, RequestOp::Write | RequestOp::WriteZeroes);
        if writes {
            self.takes_writes(out.now)?;
        }
        let has_payload = matches!(request.op, RequestOp::Read | RequestOp::Write);
        let needed = if has_payload { frames_needed(range.start.0, range.len.0) } else { 0 };
        if request.frames.count != needed {
            return Err(ReplyError::Invalid("the frames of the request do not fit its range"));
        }
        let id = self.enter(request, writes);
        if request.op == RequestOp::Flush {
            self.array.flushes.arrive(FlushFor::Request(id));
        } else if range.len == Bytes::ZERO {
            self.piece_done(id, Ok(()), out);
        } else if self.ranges.enter(id, range, writes) {
            self.start(id, out);
        }
        Ok(())
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
        result: Result<Value, Fault>,
        out: &mut Outbox,
    ) {
        let position = outstanding.member.and_then(|index| self.array.position_of(index));
        if let Some(position) = position {
            self.array.members[position].in_flight -= 1;
        }
        let detached = outstanding.detached;
        match outstanding.owner {
            Owner::Compute(row) => {
                self.with_rows(out, |rows, cx| rows.computed(row, &result, cx));
            }
            Owner::Flush if !detached => {
                self.flush_done(position, result.map(|_| ()), out);
            }
            Owner::Superblock if !detached => {
                self.array.superblock_done(position, result.map(|_| ()), out);
            }
            Owner::Flush | Owner::Superblock => {}
            Owner::Reads(parts) if detached => self.unpin(&parts, out),
            Owner::Reads(parts) => self.reads_done(&parts, position, result.map(|_| ()), out),
            Owner::Rows(parts) if detached => self.rows.unpin(&parts),
            Owner::Rows(parts) => {
                self.with_rows(out, |rows, cx| rows.done(&parts, result.map(|_| ()), false, cx));
            }
        }
        self.take_events(out);
    }

    /// An administrator asks for something. `Ok(None)`: the answer comes later.
    pub(crate) fn command(
        &mut self,
        command: &Command,
        out: &mut Outbox,
    ) -> Option<Result<(), ReplyError>> {
        let until = match &command.verb {
            Verb::Add { member, superblock: _, device_uuid } => {
                self.recovery_disabled = false;
                self.array.add(member.clone(), *device_uuid).map(|()| self.recorded())
            }
            Verb::Fail(index) => self.fail(*index, out).map(|()| self.recorded()),
            Verb::Remove(index) => match self.array.position_of(*index) {
                None => Err(ReplyError::Invalid("no such member")),
                Some(position) => self.array.remove(position).map(|()| self.recorded()),
            },
            Verb::Set(knob) => self.set(*knob),
            Verb::Stop => {
                self.stopping = true;
                if let Some(sync) = &mut self.sync {
                    sync.stop();
                }
                Ok(Some(Until::Stopped))
            }
            Verb::SyncAction(action) => self.sync_action(*action),
        };
        match until {
            Ok(None) => Some(Ok(())),
            Ok(Some(until)) => {
                let Command { client, tag, .. } = *command;
                self.commands.push(Waiting { client, tag, until });
                None
            }
            Err(error) => Some(Err(error)),
        }
    }

    /// A request was sent to a member of this volume.
    pub(crate) fn issued(&mut self, index: MemberIndex, token: Token, sent: Sent, now: Time) {
        if let Some(position) = self.array.position_of(index) {
            self.array.members[position].issued(token, sent, now);
        }
    }

    // What is decided: one turn.

    /// Decides for at most `rows_max` rows. How many it handled.
    pub(crate) fn turn(&mut self, rows_max: u32, out: &mut Outbox) -> u32 {
        self.watch_members(out);
        self.start_dirty_writers();
        self.run_syncs(out);
        self.resize();
        self.attach_waiting(out);
        self.rows.release_plug(self.knobs.writes);
        let handled = self.handle_rows(rows_max, out);
        self.release_held(out);
        let delay =
            if self.stopping && self.is_idle() { None } else { Some(self.knobs.safe_mode_delay) };
        self.array.settle(delay, out.now);
        self.array.start_rounds(out);
        self.answer_commands(out);
        out.submit_staged(self.id);
        handled
    }

    /// Whether another turn has something to do already.
    pub(crate) fn has_work(&self) -> bool {
        let rows_wait =
            self.rows_may_move() && self.rows.cache.has_runnable(self.knobs.priority_variant());
        let for_rows =
            !self.starved.is_empty() || !self.retries.is_empty() || self.rows.has_displaced();
        let sync_goes_on = self.sync.as_ref().is_some_and(|sync| {
            sync.has_work(&self.rows) && (self.array.is_dirty() || !changes_parity(sync.action))
        });
        rows_wait
            || sync_goes_on
            || self.may_resize()
            || (for_rows && self.rows.cache.is_relieved())
            || (!self.ready.is_empty() && self.resizing.is_none())
            || (!self.before_dirty.is_empty() && (self.array.is_dirty() || self.array.broken))
            || (!self.held.is_empty() && self.rows_may_move())
    }

    /// When something is due though nothing else happens.
    pub(crate) fn next_wake(&self) -> Option<Time> {
        let settle = self.array.settle_wake(self.knobs.safe_mode_delay);
        let Knobs { read_around, member_timeout, .. } = self.knobs;
        let stalls = self.array.members.iter().enumerate().filter_map(|(position, member)| {
            let since = member.waits_since()?;
            let around = (read_around > Span::ZERO && !member.stalled).then_some(read_around);
            let warn = (!member.warned).then_some(STALL_WARNING);
            let may_fail = member_timeout > Span::ZERO && !self.array.breaks(position);
            let fail = may_fail.then_some(member_timeout);
            [around, warn, fail].into_iter().flatten().map(|span| since + span).min()
        });
        stalls.chain(settle).min()
    }

    pub(crate) fn snapshot(&self) -> VolumeSnapshot {
        let sync = self.sync.as_ref().or(self.last_sync.as_ref());
        VolumeSnapshot {
            array_state: self.array.state_word(),
            size: self.array.geometry.array_size().bytes(),
            degraded: self.array.degraded(),
            events: self.array.events(),
            sync_action: match &self.sync {
                Some(sync) => sync.action,
                None if self.frozen => SyncAction::Frozen,
                None => SyncAction::Idle,
            },
            sync_completed: sync.map(|sync| (sync.completed(), sync.total())),
            sync_rows: sync.map_or(0, |sync| sync.rows),
            mismatch_cnt: sync.map_or(0, |sync| sync.mismatch_cnt),
            resync_from: self.array.resync_from,
            stripe_cache_active: self.rows.cache.active(),
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

    fn takes_writes(&mut self, now: Time) -> Result<(), ReplyError> {
        if self.array.read_only {
            return Err(ReplyError::ReadOnly);
        }
        if self.array.broken {
            return Err(ReplyError::Io);
        }
        match self.full_since {
            // One write now and then finds out whether there is space again.
            Some(since) if now.since(since) < FULL_RETRY => Err(ReplyError::NoSpace),
            Some(_) => {
                self.full_since = Some(now);
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn enter(&mut self, request: &Request, writes: bool) -> RequestId {
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
            cursor: Cursor::default(),
            error: None,
            stalled: false,
            pins: 0,
            writes,
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
        self.array.write_begins();
        self.before_dirty.push_back(id);
    }

    /// Lets writers through once the members say dirty.
    fn start_dirty_writers(&mut self) {
        if self.array.broken {
            for id in std::mem::take(&mut self.before_dirty) {
                self.active(id).error = Some(ReplyError::Io);
                self.ready.push_back(id);
            }
            return;
        }
        if !self.array.is_dirty() {
            return;
        }
        for id in std::mem::take(&mut self.before_dirty) {
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
        if self.array.reads_bypass() {
            self.bypass(id, out);
        } else {
            self.ready.push_back(id);
        }
    }

    /// Reads straight from the members, chunk by chunk, exactly what was asked for.
    fn bypass(&mut self, id: RequestId, out: &mut Outbox) {
        let chunk = self.array.geometry.chunk().bytes().0;
        let request = self.active(id);
        let (range, frames, attr) = (request.range, request.frames, request.attr);
        let mut start = range.start.0;
        let mut pieces = 0;
        while start < range.end().0 {
            let end = range.end().0.min((start / chunk + 1) * chunk);
            let position = self.array.geometry.locate(Bytes(start).sectors_floor());
            let member = self.array.at(position.slot).expect("reads bypass only a whole array");
            let block = u64::from(member.info.logical_block);
            let whole = whole_blocks(ByteRange::new(start, end - start), block);
            let in_frames = whole.start.0 - range.start.0 / FRAME_BYTES * FRAME_BYTES;
            let sector_in_chunk = Sectors(whole.start.0 % chunk / SECTOR_BYTES);
            let sector = position.sector.round_down(self.array.geometry.chunk()) + sector_in_chunk;
            let piece = Staged {
                member: member.info.index,
                write: false,
                fua: false,
                at: member.data_sector(sector),
                parts: smallvec![frames.part(in_frames, whole.len.0)],
                bytes: whole.len.0,
                attr,
                owner: Owner::Reads(smallvec![ReadPart {
                    request: id,
                    start: Bytes(start),
                    len: (end - start) as u32,
                }]),
            };
            out.stage(piece, self.knobs.max_sectors);
            pieces += 1;
            start = end;
        }
        self.active(id).pending += pieces;
        self.piece_done(id, Ok(()), out);
    }

    fn reads_done(
        &mut self,
        parts: &[ReadPart],
        position: Option<usize>,
        result: Result<(), Fault>,
        out: &mut Outbox,
    ) {
        match (result, position) {
            (Ok(()), Some(position)) => self.array.members[position].read_errors = 0,
            (Err(Fault::Gone), Some(position)) => self.array.fail(position, out),
            (Err(_), Some(position)) => self.array.members[position].read_errors += 1,
            (_, None) => {}
        }
        for part in parts {
            if result.is_ok() {
                self.piece_done(part.request, Ok(()), out);
            } else {
                self.retries.push_back(*part);
            }
        }
    }

    /// Attaches what waits for rows: work that lost its row, failed reads, requests in order. While
    /// the cache waits for its new shape, only what was begun goes on.
    fn attach_waiting(&mut self, out: &mut Outbox) {
        if self.rows.cache.relieve() {
            self.rows.place_displaced(&self.array);
            while let Some(part) = self.retries.front().copied() {
                if !self.retry(part) {
                    break;
                }
                self.retries.pop_front();
            }
            // In order of arrival: those that waited go on before the new ones.
            while let Some(id) = self.starved.pop_back() {
                self.ready.push_front(id);
            }
        }
        let mut after_resize = Vec::new();
        while let Some(id) = self.ready.pop_front() {
            let request = self.active(id);
            let begun = request.cursor.left > 0 || request.error.is_some();
            if self.resizing.is_some() && !begun {
                after_resize.push(id);
            } else if self.active(id).error.is_some() || self.attach(id) {
                self.attached(id, out);
            } else if self.active(id).cursor.left > 0 {
                self.starved.push_back(id);
            } else {
                after_resize.push(id);
            }
        }
        self.ready.extend(after_resize);
    }

    fn attached(&mut self, id: RequestId, out: &mut Outbox) {
        if self.array.is_planted(Mutant::FrameReusedInFlight) {
            let frames = std::mem::replace(&mut self.active(id).frames, Run::EMPTY);
            out.push(Output::Release(frames));
        }
        self.piece_done(id, Ok(()), out);
    }

    /// Attaches the rest of a request, row by row. Whether all of it is attached.
    ///
    /// Source   md-raid.md §2.1: pieces of 256 units; a request that reaches into the next member's
    ///          chunk begins there, so that member offsets go up
    fn attach(&mut self, id: RequestId) -> bool {
        let unit = self.rows.cache.block_bytes();
        let end_unit = self.active(id).range.end().0.div_ceil(unit);
        loop {
            let request = self.requests[id.0 as usize].as_mut().expect("it is being attached");
            if request.cursor.left == 0 {
                let from = request.cursor.to.max(request.range.start.0);
                if from >= request.range.end().0 {
                    return true;
                }
                if self.resizing.is_some() {
                    return false;
                }
                let next = from / unit;
                let end = end_unit.min(next + UNITS_MAX);
                request.cursor = Cursor::new(next, end, unit);
                request.cursor.from = from;
                request.cursor.at = first_unit(&self.array, next, end, unit);
            }
            let cursor = &request.cursor;
            let first = cursor.next().expect("units are left");
            let position = self.array.geometry.locate(Bytes(first * unit).sectors_floor());
            let height = self.rows.cache.height();
            let key = position.sector.0 / height.0;
            let Acquired::Row(row) = self.rows.cache.acquire(key, &self.array.geometry) else {
                return false;
            };
            let pieces = self.row_pieces(id, first);
            let request = self.requests[id.0 as usize].as_mut().expect("it is being attached");
            request.pending += pieces.len() as u32;
            let sync = match self.knobs.writes {
                Writes::Sync => true,
                Writes::Auto | Writes::Gather => request.flags.sync,
            };
            self.rows.attach(row, &pieces, request.writes, sync, false, request.attr);
        }
    }

    /// The pieces of a request that lie in the row of a unit; the cursor moves past them.
    fn row_pieces(&mut self, id: RequestId, unit_number: u64) -> SmallVec<[(Slot, Piece); 8]> {
        let unit = self.rows.cache.block_bytes();
        let geometry = &self.array.geometry;
        let units_per_chunk = geometry.chunk().bytes().0 / unit;
        let data_members = u64::from(geometry.data_members());
        let chunk_number = unit_number / units_per_chunk;
        let first_chunk = chunk_number / data_members * data_members;
        let in_chunk = unit_number % units_per_chunk;
        let request = self.requests[id.0 as usize].as_mut().expect("it is being attached");
        let mut pieces = SmallVec::new();
        let placement = geometry.placement(weft_units::ChunkRow(chunk_number / data_members));
        for data_index in 0..data_members {
            let number = (first_chunk + data_index) * units_per_chunk + in_chunk;
            if !request.cursor.take(number) {
                continue;
            }
            let mut slot = placement.data_slot(data_index as u16);
            if self.array.is_planted(Mutant::ChunkEdgeOffByOne)
                && in_chunk == 0
                && data_index > 0
                && request.writes
            {
                slot = placement.data_slot(data_index as u16 - 1);
            }
            let start = request.cursor.from.max(number * unit);
            let end = request.range.end().0.min((number + 1) * unit);
            pieces.push((slot, request.piece(id, start, end, unit)));
        }
        pieces
    }

    /// Reads through the cache what a member did not give. Whether a row was free.
    fn retry(&mut self, part: ReadPart) -> bool {
        let unit = self.rows.cache.block_bytes();
        let mut start = part.start.0;
        let end = start + u64::from(part.len);
        let mut pieces = 0;
        while start < end {
            let stop = end.min((start / unit + 1) * unit);
            let position = self.array.geometry.locate(Bytes(start).sectors_floor());
            let key = position.sector.0 / self.rows.cache.height().0;
            let Acquired::Row(row) = self.rows.cache.acquire(key, &self.array.geometry) else {
                break;
            };
            let request = self.active(part.request);
            let piece = request.piece(part.request, start, stop, unit);
            let attr = request.attr;
            self.rows.attach(row, &[(position.slot, piece)], false, true, true, attr);
            pieces += 1;
            start = stop;
        }
        let rest = u32::from(start < end);
        self.active(part.request).pending += pieces + rest - 1;
        if rest == 1 {
            let front = self.retries.front_mut().expect("it is being retried");
            *front = ReadPart { start: Bytes(start), len: (end - start) as u32, ..part };
        }
        rest == 0
    }

    /// One piece of a request is done, or its attaching.
    fn piece_done(&mut self, id: RequestId, result: Result<(), ReplyError>, out: &mut Outbox) {
        let request = self.active(id);
        if let Err(error) = result {
            request.error.get_or_insert(error);
        }
        request.pending -= 1;
        if request.pending > 0 {
            return;
        }
        let reads = request.op == RequestOp::Read;
        if reads || self.array.failures_recorded() {
            self.answer(id, out);
        } else {
            self.held.push_back(id);
        }
    }

    fn release_held(&mut self, out: &mut Outbox) {
        let recorded = self.array.failures_recorded();
        if recorded || self.array.broken {
            for id in std::mem::take(&mut self.held) {
                if !recorded {
                    // It missed a member, and the others will never say so.
                    self.active(id).error.get_or_insert(ReplyError::Io);
                }
                self.answer(id, out);
            }
        }
    }

    fn answer(&mut self, id: RequestId, out: &mut Outbox) {
        let request = self.active(id);
        request.answered = true;
        let result = match request.error.take() {
            Some(error) => Err(error),
            None if request.stalled => Err(ReplyError::Stalled),
            None => Ok(()),
        };
        let charged = std::mem::take(&mut request.payload).0;
        if request.op == RequestOp::Read && result.is_ok() && !request.gone {
            // They go back with the reply.
            request.frames = Run::EMPTY;
        }
        let (client, tag, gone) = (request.client, request.tag, request.gone);
        let (begun, start) = (request.begun, request.range.start.0);
        if !gone {
            out.reply(client, tag, result);
        }
        if !(gone && self.array.is_planted(Mutant::CreditLostOnDisconnect)) {
            out.give_credit(client, charged);
        }
        if begun {
            self.array.write_ends(out.now);
        }
        self.forget(id, out);
        for next in self.ranges.leave(id, start) {
            self.start(next, out);
        }
    }

    /// Gives the frames of an answered request back, once nothing uses them any more.
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
        for id in self.array.flush_done(position, result, out) {
            let broken = self.array.broken;
            let request = self.active(id);
            let outcome = if broken { Err(ReplyError::Io) } else { Ok(()) };
            if request.op == RequestOp::Flush {
                self.piece_done(id, outcome, out);
            } else {
                if let Err(error) = outcome {
                    request.error = Some(error);
                }
                self.ready.push_back(id);
            }
        }
    }

    // Rows.

    fn with_rows(&mut self, out: &mut Outbox, act: impl FnOnce(&mut Rows, &mut Surroundings<'_>)) {
        let mut cx = Surroundings { array: &mut self.array, knobs: &self.knobs, out };
        act(&mut self.rows, &mut cx);
    }

    fn rows_may_move(&self) -> bool {
        self.array.failures_recorded() || self.array.broken
    }

    fn handle_rows(&mut self, rows_max: u32, out: &mut Outbox) -> u32 {
        // As md: nothing moves while a failure is not recorded.
        if !self.rows_may_move() {
            return 0;
        }
        self.rows.cache.activate_delayed();
        let variant = self.knobs.priority_variant();
        let picked: SmallVec<[_; 8]> =
            std::iter::from_fn(|| self.rows.cache.pick(variant)).take(rows_max as usize).collect();
        for id in &picked {
            self.with_rows(out, |rows, cx| rows.handle(*id, cx));
        }
        self.take_events(out);
        picked.len() as u32
    }

    fn take_events(&mut self, out: &mut Outbox) {
        let mut events = std::mem::take(&mut self.rows.events);
        for event in events.drain(..) {
            match event {
                Event::PieceDone { request, result } => self.piece_done(request, result, out),
                Event::SyncDone { key, mismatch, ok } => {
                    let sync = self.sync.as_mut().expect("rows are synced for a sync");
                    sync.row_done(key, mismatch, ok);
                }
                Event::NoSpace { slot, sector } => {
                    let from = self.array.resync_from.unwrap_or(sector).min(sector);
                    self.array.resync_from = Some(from);
                    let first = self.full_since.replace(out.now).is_none();
                    if first && let Some(member) = self.array.at(slot) {
                        out.notice(Notice::NoSpace { member: member.info.index });
                    }
                }
                Event::Written => self.full_since = None,
            }
        }
        // Keeps the allocation; nothing was added meanwhile but by rows, which are not handled here.
        if self.rows.events.is_empty() {
            self.rows.events = events;
        }
    }

    // Syncs.

    fn run_syncs(&mut self, out: &mut Outbox) {
        if self.sync.is_none() {
            self.choose_sync(out);
        }
        let Some(sync) = &mut self.sync else { return };
        let spent = sync.action == SyncAction::Recover
            && self.array.rebuilding().is_none_or(|(slots, _)| !sync.rebuilds_only(slots));
        if spent || self.array.broken || self.resizing.is_some() {
            sync.stop();
        }
        if self.array.is_dirty() || !changes_parity(sync.action) {
            sync.feed(&mut self.rows, &self.array);
        }
        sync.checkpoint(&mut self.array);
        if sync.finish(&mut self.array, self.id, out) {
            let sync = self.sync.take().expect("it was there");
            if changes_parity(sync.action) {
                self.array.write_ends(out.now);
            }
            if sync.action == SyncAction::Recover && sync.has_failed() {
                self.recovery_disabled = true;
            }
            self.last_sync = Some(sync);
        }
    }

    /// Recovery before resync, what is needed before what was asked for.
    fn choose_sync(&mut self, out: &mut Outbox) {
        let held_back =
            self.array.read_only || self.array.broken || self.stopping || self.resizing.is_some();
        if held_back {
            self.wanted_sync = None;
            return;
        }
        if !self.recovery_disabled && !self.frozen {
            self.array.fill_slots();
        }
        let full = self.full_since.is_some();
        let redundant = self.array.degraded() < usize::from(self.array.geometry.parities());
        let (action, from) = match (self.array.rebuilding(), self.array.resync_from) {
            (Some((_, from)), _) if !self.recovery_disabled && !self.frozen => {
                (SyncAction::Recover, from)
            }
            (_, Some(from)) if redundant && !self.frozen && !full => (SyncAction::Resync, from),
            _ => match self.wanted_sync.take() {
                Some(action) => (action, Sectors::ZERO),
                None => return,
            },
        };
        if changes_parity(action) {
            self.array.write_begins();
        }
        out.notice(Notice::SyncStarted { volume: self.id, action });
        self.sync = Some(RowSync::new(action, from, &self.array, self.rows.cache.height()));
    }

    fn sync_action(&mut self, action: SyncAction) -> Result<Option<Until>, ReplyError> {
        match action {
            SyncAction::Frozen | SyncAction::Idle => {
                self.frozen = action == SyncAction::Frozen;
                self.wanted_sync = None;
                if let Some(sync) = &mut self.sync {
                    sync.stop();
                }
                return Ok(Some(Until::SyncStopped));
            }
            SyncAction::Recover => {
                self.frozen = false;
                self.recovery_disabled = false;
                return Ok(None);
            }
            SyncAction::Check | SyncAction::Repair | SyncAction::Resync => {}
        }
        if self.sync.is_some() || self.wanted_sync.is_some() {
            return Err(ReplyError::Busy("a sync is running; stop it with idle"));
        }
        if self.array.read_only {
            return Err(ReplyError::ReadOnly);
        }
        if self.array.degraded() >= usize::from(self.array.geometry.parities()) {
            return Err(ReplyError::Refused(
                "degraded: there is no parity left to compare with; add a member first".to_owned(),
            ));
        }
        self.frozen = false;
        self.wanted_sync = Some(match action {
            // A resync of an array that needs none is a repair.
            SyncAction::Resync => SyncAction::Repair,
            action => action,
        });
        Ok(None)
    }

    // Members.

    /// Declares a member failed: what it has outstanding is given up.
    fn fail(&mut self, index: MemberIndex, out: &mut Outbox) -> Result<(), ReplyError> {
        let position =
            self.array.position_of(index).ok_or(ReplyError::Invalid("no such member"))?;
        if self.array.read_only {
            return Err(ReplyError::ReadOnly);
        }
        if self.array.breaks(position) {
            return Err(ReplyError::Refused(
                "too few members would be left to know every byte; add one and let it be rebuilt \
                 first"
                    .to_owned(),
            ));
        }
        self.array.fail(position, out);
        self.give_up(position, None, out);
        self.take_events(out);
        Ok(())
    }

    /// Looks after members that do not answer.
    fn watch_members(&mut self, out: &mut Outbox) {
        let Knobs { read_around, member_timeout, .. } = self.knobs;
        for position in 0..self.array.members.len() {
            let now = out.now;
            let member = &mut self.array.members[position];
            let waited = member.oldest(out).map_or(Span::ZERO, |issued| now.since(issued));
            if member.is_faulty() {
                continue;
            }
            let index = member.info.index;
            let stalled = read_around > Span::ZERO && waited >= read_around;
            let was_stalled = member.stalled;
            let warn = waited >= STALL_WARNING && !std::mem::replace(&mut member.warned, true);
            member.warned &= waited >= STALL_WARNING;
            if warn {
                out.notice(Notice::MemberStalled { member: index, read_around: stalled });
            }
            if stalled != was_stalled {
                self.array.set_stalled(position, stalled);
                if stalled && !warn {
                    out.notice(Notice::MemberStalled { member: index, read_around: true });
                }
            }
            if member_timeout > Span::ZERO && waited >= member_timeout {
                if !self.array.breaks(position) {
                    self.array.fail(position, out);
                    self.give_up(position, None, out);
                }
            } else if stalled && self.array.can_read_around(position) {
                self.give_up(position, Some(Time(now.0 - read_around.0)), out);
            }
        }
        self.take_events(out);
    }

    /// Gives up what a member has outstanding: all of it, or the reads issued by then. Its owners
    /// are told now; its answers, if they come, only free memory.
    fn give_up(&mut self, position: usize, reads_by: Option<Time>, out: &mut Outbox) {
        let tokens: Vec<Token> =
            self.array.members[position].outstanding.iter().map(|(token, _)| *token).collect();
        for token in tokens {
            let Some(outstanding) = out.outstanding_mut(token) else { continue };
            let chosen = match reads_by {
                None => true,
                Some(by) => {
                    let read = matches!(outstanding.owner, Owner::Reads(_) | Owner::Rows(_));
                    read && !outstanding.write && outstanding.issued <= by
                }
            };
            if outstanding.detached || !chosen {
                continue;
            }
            outstanding.detached = true;
            let owner = outstanding.owner.clone();
            out.abort(token);
            let fault = Err(Fault::Aborted);
            match owner {
                Owner::Compute(_) => unreachable!("members compute nothing"),
                Owner::Flush => self.flush_done(Some(position), fault, out),
                Owner::Reads(parts) => {
                    for part in parts {
                        let request = self.active(part.request);
                        request.pins += 1;
                        request.stalled = true;
                        self.piece_done(part.request, Ok(()), out);
                    }
                }
                Owner::Rows(parts) => {
                    self.with_rows(out, |rows, cx| rows.done(&parts, fault, true, cx));
                }
                Owner::Superblock => self.array.superblock_done(Some(position), fault, out),
            }
        }
    }

    fn unpin(&mut self, parts: &[ReadPart], out: &mut Outbox) {
        for part in parts {
            self.active(part.request).pins -= 1;
            self.forget(part.request, out);
        }
    }

    // Commands.

    /// What was changed is on the members.
    fn recorded(&self) -> Option<Until> {
        Some(Until::Recorded(self.array.last_round()))
    }

    fn set(&mut self, knob: Knob) -> Result<Option<Until>, ReplyError> {
        match knob {
            Knob::StripeCacheSize(_) | Knob::StripeSize(_) => {}
            _ => {
                self.knobs.set(knob);
                return Ok(None);
            }
        }
        if matches!(knob, Knob::StripeSize(_)) && self.sync.is_some() {
            return Err(ReplyError::Busy("a sync is running"));
        }
        if self.resizing.is_some() {
            return Err(ReplyError::Busy("the stripe cache is being resized"));
        }
        let mut knobs = self.knobs;
        knobs.set(knob);
        let row_frames = self.memory.row_frames(&self.array, knobs.stripe_size);
        let room = self.memory.frames / row_frames;
        if let Knob::StripeCacheSize(rows) = knob
            && rows > room
        {
            return Err(ReplyError::Refused(format!(
                "stripe_cache_size: found {rows}, expected at most {room}, for which memory was \
                 set aside at the start; start with a larger one"
            )));
        }
        if room == 0 {
            return Err(ReplyError::Refused(format!(
                "stripe_size: a row of {row_frames} frames does not fit into the {} of the cache",
                self.memory.frames
            )));
        }
        self.resizing = Some(knob);
        Ok(Some(Until::Resized))
    }

    /// Gives the cache its new shape once no row is in use.
    fn resize(&mut self) {
        if self.may_resize()
            && let Some(knob) = self.resizing.take()
        {
            self.knobs.set(knob);
            self.rows = self.memory.rows(&self.array, &self.knobs);
        }
    }

    fn may_resize(&self) -> bool {
        self.resizing.is_some()
            && self.sync.is_none()
            && self.rows.cache.is_quiet()
            && !self.rows.has_displaced()
            && self.retries.is_empty()
            && self.starved.is_empty()
    }

    fn is_idle(&self) -> bool {
        self.requests.iter().flatten().all(|request| request.answered) && self.sync.is_none()
    }

    fn answer_commands(&mut self, out: &mut Outbox) {
        if self.commands.is_empty() {
            return;
        }
        let stopped = self.stopping && self.is_idle() && self.array.is_settled();
        let resized = self.resizing.is_none();
        let sync_stopped = self.sync.is_none();
        self.commands.retain(|waiting| {
            let met = match waiting.until {
                Until::Recorded(round) => {
                    self.array.round_done(round) || self.array.broken || self.array.read_only
                }
                Until::Resized => resized,
                Until::Stopped => stopped,
                Until::SyncStopped => sync_stopped,
            };
            if met {
                out.reply(waiting.client, waiting.tag, Ok(()));
            }
            !met
        });
    }
}

impl Memory {
    fn row_frames(&self, array: &Array, stripe_size: StripeSize) -> u32 {
        let block = stripe_size.at_most(array.geometry.chunk().bytes());
        u32::from(array.geometry.members()) * block.frames()
    }

    /// As many rows as are wanted and fit.
    fn rows(&self, array: &Array, knobs: &Knobs) -> Rows {
        let chunk = array.geometry.chunk();
        let height = knobs.stripe_size.at_most(chunk.bytes()).sectors();
        let row_frames = self.row_frames(array, knobs.stripe_size);
        let wanted = self.rows_max.unwrap_or(u32::MAX).min(knobs.stripe_cache_size);
        let rows = wanted.min(self.frames / row_frames);
        let members = array.geometry.members();
        Rows::new(Cache::new(rows, self.first, row_frames, members, height), chunk)
    }
}

impl Active {
    /// The piece of a request between two bytes of one block, as its row takes it.
    fn piece(&self, id: RequestId, start: u64, end: u64, unit: u64) -> Piece {
        let in_frames = start - self.range.start.0 / FRAME_BYTES * FRAME_BYTES;
        let memory =
            (self.op != RequestOp::WriteZeroes).then(|| self.frames.part(in_frames, end - start));
        Piece {
            request: id,
            offset: (start % unit) as u32,
            len: (end - start) as u32,
            memory,
            fua: self.flags.fua,
        }
    }
}

impl Cursor {
    fn new(first: u64, end: u64, unit: u64) -> Self {
        let words = (end - first).div_ceil(64) as usize;
        let (from, to) = (first * unit, end * unit);
        Self { from, to, first, end, at: first, done: smallvec![0; words], left: end - first }
    }

    /// The next unit that is not attached, going up from where it began and around.
    fn next(&self) -> Option<u64> {
        let is_left = |unit: &u64| !self.is_done(*unit);
        (self.at..self.end).find(is_left).or_else(|| (self.first..self.at).find(is_left))
    }

    fn is_done(&self, unit: u64) -> bool {
        let bit = unit - self.first;
        self.done[(bit / 64) as usize] >> (bit % 64) & 1 == 1
    }

    /// Marks a unit, if it belongs to the present piece and is not done yet.
    fn take(&mut self, unit: u64) -> bool {
        if !(self.first..self.end).contains(&unit) || self.is_done(unit) {
            return false;
        }
        let bit = unit - self.first;
        self.done[(bit / 64) as usize] |= 1 << (bit % 64);
        self.left -= 1;
        while self.at < self.end && self.is_done(self.at) {
            self.at += 1;
        }
        true
    }
}

/// The unit that a request's piece begins with (md's `raid5_bio_lowest_chunk_sector`).
fn first_unit(array: &Array, first: u64, end: u64, unit: u64) -> u64 {
    let geometry = &array.geometry;
    let units_per_chunk = geometry.chunk().bytes().0 / unit;
    let next_chunk = (first / units_per_chunk + 1) * units_per_chunk;
    if next_chunk >= end {
        return first;
    }
    let position = geometry.locate(Bytes(first * unit).sectors_floor());
    let parity = geometry.placement(position.chunk_row).parity();
    let members = geometry.members();
    let higher = (position.slot.0 + 1..members).any(|slot| !parity.contains(Slot(slot)));
    if higher { next_chunk } else { first }
}

fn changes_parity(action: SyncAction) -> bool {
    matches!(action, SyncAction::Repair | SyncAction::Resync)
}

/// Units that a request attaches at a time (md: `RAID5_MAX_REQ_STRIPES`).
const UNITS_MAX: u64 = 256;

/// A member that has not answered for this long is spoken of, whatever the knobs.
const STALL_WARNING: Span = Span::secs(30);

/// How often a full member is tried.
const FULL_RETRY: Span = Span::secs(1);
