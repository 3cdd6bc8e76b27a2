//! Requests of a volume: from the gates to the personality, and on to their answers.

use smallvec::SmallVec;
use weft_units::{ByteRange, Bytes, Sectors, Time};

use super::{FULL_RETRY, Volume};
use crate::array::flush::flush_batch::FlightId;
use crate::array::issuer::Issuer;
use crate::array::outbox::{CompletionTarget, Outbox, PassedRequest};
use crate::array::superblock_update::FlushFor;
use crate::array::twin::{TwinAnswer, TwinOwner, is_twin};
use crate::array::write_intent::Lease;
use crate::contract::error::ReplyError;
use crate::contract::frame::Run;
use crate::contract::input::{ClientRequest, Fault, RequestOp};
use crate::contract::output::Output;
use crate::contract::token::RequestId;
use crate::mutant::Mutant;
use crate::raid::parity::streams::WriteStream;
use crate::raid::{Answer, ArrayIo, ArrayView, Cx, PartOutcome, SPLITTING, StraightPart};

/// Request that is not answered yet, or that has frames still in use.
#[derive(Clone, Debug)]
pub(super) struct Active {
    pub(super) issuer: Issuer,
    pub(super) gone: bool,
    /// Properties of the request that its personality needs.
    pub(super) io: ArrayIo,
    /// Bytes charged to the client's credit.
    pub(super) payload: Bytes,
    /// Number of unfinished sub-requests, plus one until the request is submitted to its RAID
    /// level, plus [`SPLITTING`] while it is not completely split.
    pub(super) pending: u64,
    pub(super) error: Option<ReplyError>,
    /// Whether a read of the request was given up because its member has stalled.
    pub(super) stalled: bool,
    /// Number of given-up member requests that may still use the request's frames.
    pub(super) pins: u32,
    pub(super) flushed: bool,
    /// Permission of a write to change its range, which keeps the array dirty until the lease is
    /// returned; `None` for a read, and for a write that waits for an earlier request.
    pub(super) lease: Option<Lease>,
    pub(super) answered: bool,
}

impl Volume {
    pub(super) fn takes_writes(&mut self, trims: bool, now: Time) -> Result<(), ReplyError> {
        if self.array.membership.read_only && !self.array.is_planted(Mutant::WriteWhileReadOnly) {
            return Err(ReplyError::ReadOnly);
        }
        if self.array.membership.broken {
            return Err(ReplyError::Io);
        }
        match self.full_since {
            // A trim may free the space that other writes need.
            _ if trims => Ok(()),
            // One write per `FULL_RETRY` is let through to find out whether there is space again.
            Some(since) if now.since(since) < FULL_RETRY => Err(ReplyError::NoSpace),
            Some(_) => {
                self.full_since = Some(now);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Position and data sector of a member that can serve a read or write unchanged. `None` if the
    /// personality has to split the request, or if it would wait in the member's queue.
    #[inline]
    pub(super) fn passes(&mut self, range: ByteRange, writes: bool) -> Option<(usize, Sectors)> {
        let is_written = || self.ranges.is_written(range);
        let found = self.raid.passes(range, writes, is_written, ArrayView::of(&self.array));
        found.filter(|(position, _)| self.array.passes(*position))
    }

    /// Turns a read that was passed to a member unchanged, and that failed there, into a normal
    /// request with one sub-request. Later writes to its range have not waited for the read, and
    /// still do not wait.
    #[cold]
    pub(super) fn keep_passed(&mut self, request: &PassedRequest) -> CompletionTarget {
        let PassedRequest { issuer, frames, start, len, attr, gone } = *request;
        assert!(self.passing > 0, "a request that passes is kept once");
        self.passing -= 1;
        let range = ByteRange { start, len: Bytes(len.into()) };
        let request = self.keep(|id| {
            let io = ArrayIo { frames, attr, ..ArrayIo::new(id, RequestOp::Read, range, false) };
            Active { gone, payload: range.len, ..Active::new(issuer, io) }
        });
        StraightPart { request, start, len }.target()
    }

    /// Answers a request that was passed to a member unchanged.
    #[inline(never)]
    pub(super) fn passed(
        &mut self,
        request: &PassedRequest,
        write: bool,
        result: Result<(), Fault>,
        out: &mut Outbox,
    ) {
        let PassedRequest { issuer, frames, len, gone, .. } = *request;
        assert!(self.passing > 0, "a request that passes is answered once");
        self.passing -= 1;
        // Frames of a successful read are returned by the reply.
        let frames = if write || gone || result.is_err() { frames } else { Run::EMPTY };
        let result = result.map_err(ReplyError::from);
        match issuer {
            Issuer::Client { client, tag } => {
                if !gone {
                    out.reply(client, tag, result);
                }
                if frames.count > 0 {
                    out.push(Output::Release(frames));
                }
                out.add_credit(client, len.into());
            }
            Issuer::Resync { .. } => unreachable!("a part of a resync reads no member by itself"),
            Issuer::WriteBack { op } => {
                out.return_answer(op, result);
                if frames.count > 0 {
                    out.return_frames(op, frames);
                }
            }
        }
    }

    /// Stores a request for `range`, which may differ from the request's own range. `discarded` is
    /// the part of `range` that members are told to discard. Returns the number of the request.
    #[inline]
    pub(super) fn enter(
        &mut self,
        request: &ClientRequest,
        issuer: Issuer,
        (range, discarded): (ByteRange, Option<ByteRange>),
        writes: bool,
        now: Time,
    ) -> RequestId {
        let stream = if writes {
            let ends_at = || self.ranges.write_ends_at(range.start.0);
            self.raid.arrives(range, ends_at, &self.knobs, now)
        } else {
            WriteStream::default()
        };
        let ClientRequest { op, frames, attr, flags, .. } = *request;
        self.keep(|id| {
            let io = ArrayIo::new(id, op, range, writes);
            let io = ArrayIo { frames, attr, discarded, flags, stream, ..io };
            Active { payload: request.payload(), ..Active::new(issuer, io) }
        })
    }

    /// Locks a range for part number `part` of a sync or correction, behind the earlier requests
    /// that overlap the range.
    pub(super) fn lock(&mut self, part: u32, range: ByteRange, writes: bool, out: &mut Outbox) {
        let io = |id| ArrayIo::new(id, RequestOp::Read, range, writes);
        let id = self.keep(|id| Active::new(Issuer::Resync { part }, io(id)));
        if self.ranges.enter(id, range, writes) {
            self.start(id, out);
        }
    }

    /// Stores a request in a free slot of the table. `make` gets the number of the request.
    #[inline(always)]
    fn keep(&mut self, make: impl FnOnce(RequestId) -> Active) -> RequestId {
        let place = self.free.pop().unwrap_or_else(|| {
            self.requests.push(None);
            self.requests.len() as u32 - 1
        });
        let (id, slot) = (RequestId(place), &mut self.requests[place as usize]);
        assert!(slot.is_none(), "a place that is free holds no request");
        *slot = Some(make(id));
        id
    }

    #[inline(always)]
    pub(super) fn active(&mut self, id: RequestId) -> &mut Active {
        active(&mut self.requests, id)
    }

    /// Starts a request or lock that no longer waits for an earlier one.
    pub(super) fn start(&mut self, id: RequestId, out: &mut Outbox) {
        let request = self.active(id);
        if let Issuer::Resync { part } = request.issuer {
            self.with_raid(out, |raid, cx| raid.locked(part, id, cx));
        } else if request.io.writes {
            self.start_write(id);
        } else {
            self.start_read(id, out);
        }
    }

    /// Takes the lease of a write that overlaps no earlier request any more. The write goes on once
    /// the lease is granted.
    #[inline]
    pub(super) fn start_write(&mut self, id: RequestId) {
        let request = self.active(id);
        let (range, discards) = (request.io.range, request.io.discarded.is_some());
        let lease = self.array.lease(range);
        let before = self.active(id).lease.replace(lease);
        assert!(before.is_none(), "a write starts once");
        if discards && self.array.is_planted(Mutant::DiscardBeforeDirty) {
            self.ready.push_back(id);
            return;
        }
        // A write may pass writes that wait for bits of the bitmap which it does not need.
        let may_pass = self.array.has_bitmap() && !self.before_lease.is_empty();
        if may_pass && self.is_granted(id) && !self.next_is_granted() {
            self.granted(id);
            return;
        }
        self.before_lease.push_back(id);
    }

    /// Continues the writes that may now change their ranges, because superblocks and bitmap
    /// durably record that writes to these ranges may be in flight.
    pub(super) fn start_granted(&mut self) {
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
            self.granted(id);
        }
    }

    /// Continues a write that may now change its range: with the flush that precedes it, or to the
    /// personality.
    fn granted(&mut self, id: RequestId) {
        let request = self.active(id);
        if request.io.flags.preflush && !request.flushed {
            request.flushed = true;
            self.array.flushes.arrive(FlushFor::Request(id));
        } else {
            self.ready.push_back(id);
        }
    }

    /// Whether the lease of the first waiting write can be granted. As in md, no data is written
    /// while a member failure is not recorded; a personality with a stripe cache takes the write,
    /// and its stripes wait for the record.
    pub(super) fn next_is_granted(&self) -> bool {
        self.before_lease.front().is_some_and(|id| self.is_granted(*id))
    }

    fn is_granted(&self, id: RequestId) -> bool {
        let request = self.requests[id.0 as usize].as_ref();
        let lease = request.and_then(|request| request.lease.as_ref());
        let known = || self.array.is_known() || self.raid.holds_writes();
        lease.is_some_and(|lease| self.array.grants(lease)) && known()
    }

    pub(super) fn start_read(&mut self, id: RequestId, out: &mut Outbox) {
        let Self { requests, raid, array, knobs, .. } = self;
        let request = active(requests, id);
        match raid.read_straight(&request.io, &mut Cx::new(array, knobs, out)) {
            // The sub-requests replace the one that was pending for the submission.
            Some(pending) => request.pending += pending - 1,
            None => self.ready.push_back(id),
        }
    }

    /// Submits ready requests to the personality, unless a change waits until nothing is in use.
    /// Ends the requests that have failed before they were submitted.
    pub(super) fn submit_ready(&mut self, out: &mut Outbox) {
        if self.ready.is_empty() {
            return;
        }
        let mut later = Vec::new();
        while let Some(id) = self.ready.pop_front() {
            if self.active(id).error.is_some() {
                self.raid.skip(&active(&mut self.requests, id).io, out.now);
                self.is_split(id, out);
                self.sub_request_done(id, out);
            } else if self.quiescing.is_some() {
                later.push(id);
            } else {
                self.submit(id, out);
            }
        }
        self.ready.extend(later);
    }

    #[inline(always)]
    pub(super) fn submit(&mut self, id: RequestId, out: &mut Outbox) {
        let Self { requests, raid, array, knobs, .. } = self;
        let request = active(requests, id);
        assert!(!request.io.writes || request.lease.is_some(), "a write has a lease");
        let pending = raid.submit(&request.io, &mut Cx::new(array, knobs, out));
        // The sub-requests replace the one that was pending for the submission.
        request.pending += pending - 1;
        if pending < SPLITTING {
            self.is_split(id, out);
        }
    }

    /// Handles the event that request `id` has been split into sub-requests completely.
    #[inline]
    pub(super) fn is_split(&mut self, id: RequestId, out: &mut Outbox) {
        if self.array.is_planted(Mutant::FrameReusedInFlight) {
            let request = self.active(id);
            let (issuer, frames) =
                (request.issuer, std::mem::replace(&mut request.io.frames, Run::EMPTY));
            out.release(issuer, frames);
        }
    }

    /// Handles a part of a member request that is done or was given up.
    #[inline(always)]
    pub(super) fn part_done(&mut self, part: CompletionTarget, answer: Answer, out: &mut Outbox) {
        if is_twin(part) {
            let Answer { member, result, given_up, pins, .. } = answer;
            self.twin_done(part, TwinAnswer { member, result, given_up, pins }, out);
            return;
        }
        let mut cx = Cx::new(&mut self.array, &self.knobs, out);
        match self.raid.part_done(part, answer, &mut cx) {
            PartOutcome::Nothing => {}
            PartOutcome::Done(request) => self.sub_request_done(request, out),
            PartOutcome::Failed(request, error) => {
                // One member of a twin write failed it, and the other one was given up.
                self.active(request).pins += u32::from(answer.pins);
                self.failed(request, error);
                self.sub_request_done(request, out);
            }
            PartOutcome::GivenUp(id) => {
                let request = self.active(id);
                request.pins += 1;
                request.stalled = true;
                self.sub_request_done(id, out);
            }
            PartOutcome::WriteGivenUp(id) => {
                self.active(id).pins += 1;
                self.sub_request_done(id, out);
            }
            PartOutcome::ToRepeat { part, asked } => {
                let request = active(&mut self.requests, part.request);
                request.pending += SPLITTING - 1;
                self.raid.repeat(part, &request.io, asked);
            }
        }
    }

    /// Handles a member's answer to its part of a twin write, which goes to a member and to its
    /// replacement.
    #[cold]
    pub(super) fn twin_done(
        &mut self,
        part: CompletionTarget,
        answer: TwinAnswer,
        out: &mut Outbox,
    ) {
        let Some((owner, answer)) = self.array.twin_answered(part, answer, out) else { return };
        let owner = match owner {
            TwinOwner::Part(owner) => owner,
            TwinOwner::Discard(request) => {
                let TwinAnswer { member, result, .. } = answer;
                let position = member.and_then(|member| self.array.position_of(member));
                self.with_raid(out, |raid, cx| raid.discard_done(request, position, result, cx));
                return;
            }
        };
        let TwinAnswer { member, result, given_up, pins } = answer;
        if pins {
            let pinned = self.raid.parts_given_up(&[owner]).unwrap_or_else(|| vec![owner]);
            self.array.twin_pinned(part, pinned);
        }
        self.part_done(owner, Answer { result, member, given_up, pins, write: true }, out);
    }

    /// Counts one sub-request of request `id` as done, or the submission of the request itself.
    #[inline]
    pub(super) fn sub_request_done(&mut self, id: RequestId, out: &mut Outbox) {
        self.sub_requests_done(id, 1, out);
    }

    /// Counts `sub_requests` sub-requests of a request as done.
    #[inline(always)]
    pub(super) fn sub_requests_done(&mut self, id: RequestId, sub_requests: u64, out: &mut Outbox) {
        let request = self.active(id);
        assert!(request.pending >= sub_requests, "a sub-request is done once");
        request.pending -= sub_requests;
        if request.pending == 0 {
            self.all_done(id, out);
        }
    }

    /// Records the error of a sub-request; the first one becomes the request's answer.
    #[cold]
    pub(super) fn failed(&mut self, id: RequestId, error: ReplyError) {
        self.active(id).error.get_or_insert(error);
    }

    #[inline(never)]
    pub(super) fn all_done(&mut self, id: RequestId, out: &mut Outbox) {
        let reads = self.active(id).io.op == RequestOp::Read;
        if reads || self.array.failures_recorded() {
            self.answer(id, out);
        } else {
            self.held.push_back(id);
        }
    }

    pub(super) fn release_held(&mut self, out: &mut Outbox) {
        let recorded = self.array.failures_recorded();
        if recorded || self.array.membership.broken {
            while let Some(id) = self.held.pop_front() {
                if !recorded && !self.array.is_planted(Mutant::BrokenAcknowledges) {
                    // The write missed a member, and the failure can no longer be recorded on the
                    // others.
                    self.failed(id, ReplyError::Io);
                }
                self.answer(id, out);
            }
        }
    }

    #[inline(always)]
    pub(super) fn answer(&mut self, id: RequestId, out: &mut Outbox) {
        let request = self.active(id);
        assert!(!std::mem::replace(&mut request.answered, true), "a request is answered once");
        assert_eq!(request.pending, 0, "all sub-requests are done");
        let result = match request.error.take() {
            Some(error) => Err(error),
            None if request.stalled => Err(ReplyError::Stalled),
            None => Ok(()),
        };
        let charged = std::mem::take(&mut request.payload).0;
        if request.io.op == RequestOp::Read && result.is_ok() && !request.gone {
            // The frames are returned by the reply.
            request.io.frames = Run::EMPTY;
        }
        let (issuer, gone) = (request.issuer, request.gone);
        let (stream, len) = (request.io.stream, request.io.range.len);
        let lease = request.lease.take().map(|lease| (lease, stream, len));
        match issuer {
            Issuer::Client { client, tag } => {
                if !gone {
                    out.reply(client, tag, result);
                }
                if !(gone && self.array.is_planted(Mutant::CreditLostOnDisconnect)) {
                    out.give_credit(client, charged);
                }
            }
            Issuer::Resync { .. } => {}
            Issuer::WriteBack { op } => out.return_answer(op, result),
        }
        if let Some((lease, stream, len)) = lease {
            self.raid.answered(stream, len);
            self.array.give_back(lease, out.now);
        }
        let waiting = self.ranges.leave(id);
        self.forget(id, out);
        if let Some(waiting) = waiting {
            self.start_those(waiting, out);
        }
    }

    #[cold]
    fn start_those(&mut self, waiting: SmallVec<[RequestId; 2]>, out: &mut Outbox) {
        for id in waiting {
            self.start(id, out);
        }
    }

    /// Returns the frames of an answered request and frees its slot, once nothing uses the frames.
    #[inline(always)]
    pub(super) fn forget(&mut self, id: RequestId, out: &mut Outbox) {
        let request = self.active(id);
        if !request.answered || request.pins > 0 {
            return;
        }
        assert!(request.lease.is_none(), "a request that was answered has no lease");
        if request.io.frames.count > 0 {
            let (issuer, frames) = (request.issuer, request.io.frames);
            out.release(issuer, frames);
        }
        self.requests[id.0 as usize] = None;
        self.free.push(id.0);
    }

    pub(super) fn flush_done(
        &mut self,
        flight: FlightId,
        position: Option<usize>,
        result: Result<(), Fault>,
        out: &mut Outbox,
    ) {
        self.array.flush_done(flight, position, result, &self.knobs, out);
        self.flushed(out);
    }

    /// Continues the requests for which all member flushes have ended. If the array broke
    /// meanwhile, the requests fail: a flush of the only member with some of the earlier data may
    /// have been given up, so the data that was to follow the flush must not be written.
    #[inline]
    pub(super) fn flushed(&mut self, out: &mut Outbox) {
        for (id, result) in self.array.take_flushed() {
            let broken = self.array.membership.broken;
            let result =
                if broken { Err(ReplyError::Io) } else { result.map_err(ReplyError::from) };
            let request = self.active(id);
            request.error = result.err();
            if request.io.op == RequestOp::Flush || request.io.range.len == Bytes::ZERO {
                self.sub_request_done(id, out);
            } else {
                assert!(request.flushed, "a round serves requests that asked for one");
                self.ready.push_back(id);
            }
        }
    }
}

impl Active {
    /// Creates a request without payload.
    #[inline(always)]
    fn new(issuer: Issuer, io: ArrayIo) -> Self {
        Self {
            issuer,
            gone: false,
            io,
            payload: Bytes::ZERO,
            pending: 1,
            error: None,
            stalled: false,
            pins: 0,
            flushed: false,
            lease: None,
            answered: false,
        }
    }

    /// Whether a client or the write-back cache waits for the request.
    pub(super) fn is_active(&self) -> bool {
        !self.answered && !matches!(self.issuer, Issuer::Resync { .. })
    }
}

/// Request `id` of the table `requests`.
#[inline(always)]
fn active(requests: &mut [Option<Active>], id: RequestId) -> &mut Active {
    requests[id.0 as usize].as_mut().expect("a request stays until it is answered")
}
