//! Outbox: outputs of the engine, tokens of requests in flight, and the owner of each.

use std::collections::VecDeque;

use smallvec::smallvec;
use weft_units::{Bytes, ClientId, MemberIndex, Sectors, Time, VolumeId};

use crate::array::flush::flush_batch::FlightId;
use crate::array::issuer::{Issuer, Returned};
use crate::array::member::Member;
use crate::contract::error::ReplyError;
use crate::contract::frame::{Run, Segment, Segments};
use crate::contract::input::{Attr, Class, Origin};
use crate::contract::output::{ComputeOp, MemberOp, Notice, Output};
use crate::contract::token::RequestId;
use crate::contract::token::{Tag, Token};
use crate::contract::turn::Work;
use crate::mutant::{self, Mutant};
use crate::sched::Receipt;
use crate::sched::member_queue::{QueueCommand, Waiting};
use crate::sched::merge::{self, Last};
use crate::sched::request::{MemberRequest, MergeKind};

/// Recipient of the `Done` of a token.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Owner {
    /// A member request made of one or more parts, each with its own recipient: the recipient of
    /// the first part, and the chain of the recipients of parts that were merged with it.
    Parts(CompletionTarget, Chain),
    /// A client's read or write that was passed to a member unchanged.
    Passed(PassedRequest),
    /// Discard of the range of a client request.
    Discard(RequestId),
    /// Discard that also goes to a replacement; see [`super::twin`].
    TwinDiscard(CompletionTarget),
    /// A flush of a member, for which one or more rounds of flush requests wait.
    Flush(FlightId),
    /// A write of a member's superblock, for the superblock update in progress.
    Superblock,
    /// A write of bitmap pages to a member, in the bitmap round in progress. `all` is true if all
    /// pages were written to the member, not only those of the round.
    Bitmap { all: bool },
    /// A computation of a personality.
    Compute(JobId),
}

/// Number that identifies a computation to the personality that ordered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JobId(pub(crate) u32);

/// First and last entry of a linked list in one of two tables. The list has either the parts of a
/// member request after its first part, or the outstanding requests of a member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    first: u32,
    last: u32,
}

/// Recipient of the result of one part of a member request. The personality interprets it, and the
/// array returns it unchanged with the member's answer; the array reads only its kind, which marks
/// the twin of a replacement and the side of a reshape.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompletionTarget {
    pub(crate) kind: u32,
    pub(crate) words: [u32; 4],
}

/// A client's read or write that was passed to a member unchanged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PassedRequest {
    pub(crate) issuer: Issuer,
    pub(crate) frames: Run,
    /// First byte of the request in the volume.
    pub(crate) start: Bytes,
    pub(crate) len: u32,
    pub(crate) attr: Attr,
    /// Whether the client has disconnected, so that the answer is dropped.
    pub(crate) gone: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Outstanding {
    pub(crate) volume: VolumeId,
    /// Member that got the request; `None` for a computation.
    pub(crate) member: Option<MemberIndex>,
    pub(crate) write: bool,
    /// Whether the request is a write that is durable once it is done.
    pub(crate) fua: bool,
    /// Time at which the request was dispatched.
    pub(crate) issued: Time,
    pub(crate) owner: Owner,
    /// Number of requests that were merged into this one in the member's queue, itself included.
    pub(crate) requests: u32,
    /// Whether the request still counts against the member's queue depth. The member may report the
    /// end of a request to its queue before the `Done`, and the request does not count from then
    /// on.
    pub(crate) at_member: bool,
    /// Receipt from the scheduler; `None` if the request did not pass through a scheduler.
    pub(crate) scheduled: Option<Receipt>,
    /// Whether the owner was told early, before the request was done, that the request failed. The
    /// member may use the request's memory until the request is done, so the frames remain in use.
    pub(crate) detached: bool,
}

impl Outstanding {
    /// Record of a request that is sent at `issued` and was not merged with others, or of a
    /// computation (`member` is `None`).
    pub(crate) fn new(
        volume: VolumeId,
        member: Option<MemberIndex>,
        write: bool,
        owner: Owner,
        issued: Time,
    ) -> Self {
        let (requests, at_member, scheduled) = (1, member.is_some(), None);
        let (fua, detached) = (false, false);
        Self { volume, member, write, fua, issued, owner, requests, at_member, scheduled, detached }
    }

    /// Whether the request is a write of a personality's data (`Owner::Parts`) with an owner that
    /// has not got a result yet.
    fn is_writing_parts(&self) -> bool {
        self.write && !self.detached && matches!(self.owner, Owner::Parts(..))
    }
}

/// Outputs of the engine, and the tokens that were issued with them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outbox {
    pub(crate) now: Time,
    pub(crate) planted: Option<Mutant>,
    pub(crate) work: Work,
    /// Credit to be returned to clients for answered requests, in bytes.
    pub(crate) credit: Vec<(ClientId, u64)>,
    /// Answers and frames to return to the write-back cache.
    pub(super) returned: Vec<Returned>,
    outputs: VecDeque<Output>,
    /// Number of requests that wait in the queues of members.
    queued: usize,
    /// Number of the engine's turn. Without a queue that holds requests back, only requests of the
    /// same turn are merged.
    turn: u64,
    tokens: Vec<Entry>,
    /// For each member, the chain of its outstanding requests in the order in which they were sent.
    of_members: Vec<Chain>,
    free: Vec<u32>,
    sequence: u64,
    /// Empty lists of compute operations, kept for their allocations.
    spare_ops: Vec<Vec<ComputeOp>>,
    /// Recipients of the parts that were merged into member requests. Each has the index of the
    /// next recipient of the same request.
    merged: Vec<(CompletionTarget, u32)>,
    merged_free: Vec<u32>,
}

// Entries own no heap memory, so that they are written and read in place.
#[derive(Clone, Copy, Debug)]
struct Entry {
    token: Token,
    /// Indexes in `tokens` of the member's requests that were sent just before and just after this
    /// one.
    before: u32,
    after: u32,
    outstanding: Option<Outstanding>,
}

impl Chain {
    pub(crate) const NONE: Self = Self { first: END, last: END };
}

impl Outbox {
    pub(crate) fn new(now: Time) -> Self {
        Self { now, turn: 1, ..Self::default() }
    }

    /// Appends all outputs to `outputs`, after those that the driver has not carried out yet.
    pub(crate) fn take_outputs(&mut self, outputs: &mut VecDeque<Output>) {
        if outputs.is_empty() {
            std::mem::swap(&mut self.outputs, outputs);
        } else {
            outputs.append(&mut self.outputs);
        }
    }

    /// Sends a read or write with `parts` as its memory, or appends it to the member's last request
    /// in the same direction if that is possible.
    // A stripe sends four requests, so this function is inlined, and the token's entry is built in
    // place.
    #[inline(always)]
    pub(crate) fn stage(
        &mut self,
        volume: VolumeId,
        member: &mut Member,
        request: &MemberRequest,
        parts: &[Segment],
        completion: CompletionTarget,
    ) {
        if !member.queue.passes() {
            self.stage_queued(member, request, parts, completion);
            return;
        }
        let MemberRequest { write, sector, bytes, kind: MergeKind { fua, .. }, .. } = *request;
        let at = member.data_sector(sector);
        if mutant::is(self.planted, Mutant::MergeAcrossFlush)
            && fua
            && self.is_merged_across_flush(member, request, parts, completion)
        {
            return;
        }
        let last = &mut member.queue.last[usize::from(write)];
        if let Some(place) = last.merge(self.turn, at, request, self.outputs.len()) {
            self.append(place, parts, completion);
            self.work.merges += 1;
            member.moved(&request.kind.attr, write, bytes.sectors_floor());
            return;
        }
        let owner = Owner::Parts(completion, Chain::NONE);
        let to = member.info.index;
        let outstanding = Outstanding::new(volume, Some(to), write, owner, self.now);
        let token = self.issue(Outstanding { fua, ..outstanding });
        self.work.submits += 1;
        let op = op_of(at, request, parts);
        let attr = request.kind.attr;
        self.outputs.push_back(Output::Submit { token, member: to, op, attr });
        member.sent(&request.kind.attr, write, bytes.sectors_floor());
    }

    /// Appends a durable write to a request that is not durable, for a planted bug. Returns whether
    /// it was appended.
    #[cold]
    fn is_merged_across_flush(
        &mut self,
        member: &mut Member,
        request: &MemberRequest,
        parts: &[Segment],
        completion: CompletionTarget,
    ) -> bool {
        let (at, bare) = (member.data_sector(request.sector), request.without_fua());
        let last = &mut member.queue.last[usize::from(request.write)];
        if !last.fits(self.turn, at, &bare) {
            return false;
        }
        let place = last.merge(self.turn, at, &bare, self.outputs.len());
        self.append(place.expect("the write fits"), parts, completion);
        self.work.merges += 1;
        member.moved(&bare.kind.attr, bare.write, bare.bytes.sectors_floor());
        true
    }

    /// Like [`Outbox::stage`], for a member with a queue that holds requests back.
    #[inline(never)]
    fn stage_queued(
        &mut self,
        member: &mut Member,
        request: &MemberRequest,
        parts: &[Segment],
        completion: CompletionTarget,
    ) {
        let MemberRequest { write, sector, bytes, kind: MergeKind { attr, .. }, .. } = *request;
        let at = member.data_sector(sector);
        let (queue, turn) = (&mut member.queue, self.turn);
        let next = queue.next_place();
        if let Some(place) = queue.last[usize::from(write)].merge(turn, at, request, next) {
            let Owner::Parts(_, chain) = queue.append(place, parts) else {
                unreachable!("a merged request has parts")
            };
            link(&mut self.merged, &mut self.merged_free, chain, completion);
            self.work.merges += 1;
            member.moved(&attr, write, bytes.sectors_floor());
            return;
        }
        let op = op_of(at, request, parts);
        self.queue(member, op, attr, Owner::Parts(completion, Chain::NONE));
        member.sent(&attr, write, bytes.sectors_floor());
    }

    #[inline(never)]
    fn queue(&mut self, member: &mut Member, op: MemberOp, attr: Attr, owner: Owner) {
        self.work.submits += 1;
        self.queued += 1;
        member.queue.stage(Waiting { op, attr, owner, since: self.now });
    }

    /// Whether requests wait in the queues of members.
    #[inline]
    pub(crate) fn has_queued(&self) -> bool {
        self.queued > 0
    }

    /// Sends the requests that the queue of `member` dispatches.
    pub(crate) fn dispatch(&mut self, volume: VolumeId, member: &mut Member) {
        while let Some(command) = member.queue.dispatch(self.now) {
            let QueueCommand { op, attr, owners, takes_room, scheduled } = command;
            let to = member.info.index;
            let requests = owners.len() as u32;
            let mut owners = owners.into_iter();
            let mut owner = owners.next().expect("a command is made of requests");
            for other in owners {
                self.join(&mut owner, other);
            }
            assert!(self.queued >= requests as usize, "a dispatched request was queued");
            self.queued -= requests as usize;
            member.merged(writes(&op), u64::from(requests - 1));
            let outstanding = Outstanding {
                requests,
                fua: is_fua(&op),
                at_member: takes_room,
                scheduled,
                ..Outstanding::new(volume, Some(to), writes(&op), owner, self.now)
            };
            let token = self.issue(outstanding);
            let again = mutant::is(self.planted, Mutant::DispatchedTwice).then(|| op.clone());
            self.outputs.push_back(Output::Submit { token, member: to, op, attr });
            if let Some(op) = again.filter(|_| scheduled.is_some()) {
                // The owner of the command gets its answer from the first request; the second one,
                // a planted bug, reports to no owner.
                let out = Outstanding::new(volume, Some(to), writes(&op), owner, self.now);
                let out = Outstanding { requests: 0, at_member: false, detached: true, ..out };
                let token = self.issue(out);
                self.outputs.push_back(Output::Submit { token, member: to, op, attr });
            }
        }
    }

    /// Adds the parts of `other` to the parts of `owner`, because their member requests were
    /// merged.
    fn join(&mut self, owner: &mut Owner, other: Owner) {
        let (Owner::Parts(_, chain), Owner::Parts(completion, rest)) = (owner, other) else {
            unreachable!("only requests of parts are merged")
        };
        link(&mut self.merged, &mut self.merged_free, chain, completion);
        if rest.first != END {
            self.merged[chain.last as usize].1 = rest.first;
            chain.last = rest.last;
        }
    }

    /// Removes all waiting requests from the queue of `member`, and returns them.
    pub(crate) fn take_waiting(&mut self, member: &mut Member) -> Vec<Waiting<Owner>> {
        let waiting = member.queue.take_waiting();
        assert!(self.queued >= waiting.len(), "a waiting request was queued");
        self.queued -= waiting.len();
        waiting
    }

    /// Moves the waiting sync requests of `member` from the idle class to the class `none`.
    pub(crate) fn promote_syncs(&mut self, member: &mut Member) {
        let idle =
            |it: &Waiting<Owner>| it.attr.origin == Origin::Sync && it.attr.class == Class::Idle;
        if !member.queue.waiting().any(idle) {
            return;
        }
        for mut request in self.take_waiting(member) {
            if idle(&request) {
                request.attr.class = Class::None;
            }
            self.put_back(member, request);
        }
    }

    /// Puts a request that was taken out of the queue of `member` back into it.
    pub(crate) fn put_back(&mut self, member: &mut Member, request: Waiting<Owner>) {
        self.queued += 1;
        member.queue.put_back(request);
    }

    /// Records that a member reported the end of a request to its queue, before the request's
    /// `Done`. Returns the request and its receipt from the scheduler; `None` if the request did
    /// not count against the queue depth.
    pub(crate) fn ended(&mut self, token: Token) -> Option<(&Outstanding, Option<Receipt>)> {
        let outstanding = self.outstanding_mut(token)?;
        if !std::mem::take(&mut outstanding.at_member) {
            return None;
        }
        let scheduled = outstanding.scheduled;
        Some((outstanding, scheduled))
    }

    /// Detaches the outstanding requests of `member` from the member's scheduler. Returns the
    /// number of requests that count against the member's queue depth.
    pub(crate) fn unschedule(&mut self, member: MemberIndex) -> u32 {
        let mut count = 0;
        for token in self.tokens_of(member) {
            if let Some(outstanding) = self.outstanding_mut(token) {
                outstanding.scheduled = None;
                count += u32::from(outstanding.at_member);
            }
        }
        count
    }

    #[inline(never)]
    fn append(&mut self, place: usize, new: &[Segment], completion: CompletionTarget) {
        let Some(Output::Submit { token, op, .. }) = self.outputs.get_mut(place) else {
            unreachable!("a turn's requests stay where they are until it ends")
        };
        let token = *token;
        match op {
            MemberOp::Read { into: parts, .. } | MemberOp::Write { from: parts, .. } => {
                new.iter().for_each(|part| merge::append(parts, *part));
            }
            _ => unreachable!("only reads and writes are merged"),
        }
        self.chain(token, completion);
    }

    /// Adds the recipient of a further part to the member request with this token.
    fn chain(&mut self, token: Token, completion: CompletionTarget) {
        let entry = &mut self.tokens[token_place(token)];
        let Some(Outstanding { owner: Owner::Parts(_, chain), .. }) = &mut entry.outstanding else {
            unreachable!("a merged request has parts")
        };
        link(&mut self.merged, &mut self.merged_free, chain, completion);
    }

    /// Removes and returns the recipient of the next merged part of a member request; `None` if
    /// there are no more.
    #[inline]
    pub(crate) fn next_part(&mut self, chain: &mut Chain) -> Option<CompletionTarget> {
        if chain.first == END {
            return None;
        }
        let place = chain.first;
        let (completion, next) = self.merged[place as usize];
        chain.first = next;
        self.merged_free.push(place);
        Some(completion)
    }

    /// Recipients of all parts of a member request: `first`, and those on the chain.
    pub(crate) fn parts(&self, first: CompletionTarget, chain: Chain) -> Vec<CompletionTarget> {
        let mut parts = vec![first];
        let mut place = chain.first;
        while place != END {
            let (completion, next) = self.merged[place as usize];
            parts.push(completion);
            place = next;
        }
        parts
    }

    pub(crate) fn replace_parts(&mut self, token: Token, parts: &[CompletionTarget]) {
        let [first, rest @ ..] = parts else { unreachable!("a member request has parts") };
        let Some(outstanding) = self.outstanding_mut(token) else {
            unreachable!("a token with parts is outstanding")
        };
        let owner = std::mem::replace(&mut outstanding.owner, Owner::Parts(*first, Chain::NONE));
        if let Owner::Parts(_, mut chain) = owner {
            while self.next_part(&mut chain).is_some() {}
        }
        rest.iter().for_each(|part| self.chain(token, *part));
    }

    /// Largest number of bytes of a request at sector `at`. If the request can be appended to the
    /// last request of its member and direction, this is the room left in that request; otherwise
    /// it is the maximum for a new request.
    pub(crate) fn room(&self, at: Sectors, request: &MemberRequest, last: &Last) -> u64 {
        last.room(self.turn, at, request)
    }

    /// Ensures that no later request is merged into one that was sent so far.
    pub(crate) fn seal(&mut self) {
        self.turn += 1;
    }

    /// Sends a request that is never merged with others, or adds it to the member's queue if that
    /// holds requests back.
    pub(crate) fn submit(
        &mut self,
        volume: VolumeId,
        member: &mut Member,
        op: MemberOp,
        attr: &Attr,
        owner: Owner,
    ) {
        if !member.queue.passes() {
            self.queue(member, op, *attr, owner);
            return;
        }
        let to = Some(member.info.index);
        let outstanding = Outstanding::new(volume, to, writes(&op), owner, self.now);
        let fua = is_fua(&op);
        self.send(member, || op, attr, Outstanding { fua, ..outstanding });
    }

    /// Sends a request to a member without queueing it. The member's queue must hold no requests
    /// back. `op` returns the operation, which is thus built where it is stored.
    #[inline(always)]
    pub(crate) fn send(
        &mut self,
        member: &Member,
        op: impl FnOnce() -> MemberOp,
        attr: &Attr,
        outstanding: Outstanding,
    ) {
        let token = self.issue(outstanding);
        self.work.submits += 1;
        let (member, op, attr) = (member.info.index, op(), *attr);
        self.outputs.push_back(Output::Submit { token, member, op, attr });
    }

    pub(crate) fn compute(&mut self, volume: VolumeId, job: JobId, ops: Vec<ComputeOp>) {
        let owner = Owner::Compute(job);
        let token = self.issue(Outstanding::new(volume, None, false, owner, self.now));
        self.work.operations += ops.len() as u32;
        self.outputs.push_back(Output::Compute { token, ops });
    }

    /// Returns an empty list of compute operations, which reuses the allocation of an earlier list
    /// if possible.
    pub(crate) fn ops(&mut self) -> Vec<ComputeOp> {
        self.spare_ops.pop().unwrap_or_default()
    }

    /// Takes back a list of compute operations, to reuse its allocation.
    pub(crate) fn recycle(&mut self, mut ops: Vec<ComputeOp>) {
        if self.spare_ops.len() < SPARE_OPS_MAX && ops.capacity() <= SPARE_OPS_LONG {
            ops.clear();
            self.spare_ops.push(ops);
        }
    }

    /// Aborts an outstanding member request. The caller reports the abort to the request's owner.
    pub(crate) fn abort(&mut self, token: Token) {
        let outstanding = self.outstanding_mut(token).expect("an aborted token is outstanding");
        let before = std::mem::replace(&mut outstanding.detached, true);
        assert!(!before, "a member request is given up once");
        self.outputs.push_back(Output::Abort(token));
    }

    pub(crate) fn reply(&mut self, client: ClientId, tag: Tag, result: Result<(), ReplyError>) {
        self.outputs.push_back(Output::Reply { client, tag, result });
    }

    pub(crate) fn give_credit(&mut self, client: ClientId, bytes: u64) {
        self.credit.push((client, bytes));
    }

    /// Adds to the credit that a client gets back in this turn.
    #[inline]
    pub(crate) fn add_credit(&mut self, client: ClientId, bytes: u64) {
        match self.credit.iter_mut().find(|(to, _)| *to == client) {
            Some((_, sum)) => *sum += bytes,
            None => self.give_credit(client, bytes),
        }
    }

    /// Outstanding requests that were passed to a member unchanged.
    pub(crate) fn passed(&mut self) -> impl Iterator<Item = &mut PassedRequest> {
        self.tokens.iter_mut().filter_map(|entry| match &mut entry.outstanding {
            Some(Outstanding { owner: Owner::Passed(request), .. }) => Some(request),
            _ => None,
        })
    }

    /// Number of client frames in use by requests that were passed to a member unchanged.
    pub(crate) fn frames_passed(&self) -> u32 {
        let outstanding = self.tokens.iter().filter_map(|entry| entry.outstanding.as_ref());
        let frames = outstanding.map(|outstanding| match &outstanding.owner {
            Owner::Passed(request) if request.issuer.is_client() => request.frames.count,
            _ => 0,
        });
        frames.sum()
    }

    /// Drops error replies to a client that has disconnected.
    pub(crate) fn forget_refusals(&mut self, gone: ClientId) {
        // The sequence of outputs changes, so nothing may be appended to requests sent in this
        // turn.
        self.seal();
        self.outputs.retain(|output| {
            !matches!(output, Output::Reply { client, result: Err(_), .. } if *client == gone)
        });
    }

    pub(crate) fn push(&mut self, output: Output) {
        self.outputs.push_back(output);
    }

    pub(crate) fn notice(&mut self, notice: Notice) {
        self.outputs.push_back(Output::Notice(notice));
    }

    /// Removes and returns the record of a token that is done; `None` if the token was never issued
    /// or is already done.
    #[inline]
    pub(crate) fn take(&mut self, token: Token) -> Option<Outstanding> {
        let place = token_place(token);
        let entry = self.tokens.get_mut(place).filter(|entry| entry.token == token)?;
        let member = entry.outstanding.as_ref()?.member;
        let (before, after) = (entry.before, entry.after);
        if let Some(member) = member {
            let of_member = &mut self.of_members[member.index()];
            match before {
                END => of_member.first = after,
                before => self.tokens[before as usize].after = after,
            }
            match after {
                END => of_member.last = before,
                after => self.tokens[after as usize].before = before,
            }
        }
        self.free.push(place as u32);
        // The record is taken last, so that it is copied only once, to the stack.
        self.tokens[place].outstanding.take()
    }

    /// Time at which a member's oldest outstanding request was sent; `None` if it has none.
    /// Requests in its queue do not count.
    #[inline]
    pub(crate) fn oldest(&self, member: MemberIndex) -> Option<Time> {
        let first = self.of_members.get(member.index())?.first;
        self.tokens.get(first as usize)?.outstanding.as_ref().map(|request| request.issued)
    }

    /// Tokens of a member's outstanding requests, in the order in which they were sent.
    pub(crate) fn tokens_of(&self, member: MemberIndex) -> Vec<Token> {
        let first = self.of_members.get(member.index()).map(|of_member| of_member.first);
        let entry = |place: u32| self.tokens.get(place as usize);
        let first = first.and_then(entry);
        let entries = std::iter::successors(first, |before| entry(before.after));
        entries.map(|entry| entry.token).collect()
    }

    /// Whether a write of a personality's data (`Owner::Parts`) to the member is queued or
    /// outstanding, with an owner that has not got a result yet.
    pub(crate) fn is_writing_parts(&self, member: &Member) -> bool {
        let out = self.tokens_of(member.info.index).into_iter().any(|token| {
            let outstanding = self.tokens[token_place(token)].outstanding.as_ref();
            outstanding.is_some_and(Outstanding::is_writing_parts)
        });
        let waits = |it: &Waiting<Owner>| writes(&it.op) && matches!(it.owner, Owner::Parts(..));
        out || member.queue.waiting().any(waits)
    }

    /// The record of a token; `None` if it is not outstanding.
    pub(crate) fn outstanding_mut(&mut self, token: Token) -> Option<&mut Outstanding> {
        let entry = self.tokens.get_mut(token_place(token))?;
        if entry.token == token { entry.outstanding.as_mut() } else { None }
    }

    pub(crate) fn outstanding(&self) -> usize {
        self.tokens.len() - self.free.len()
    }

    #[inline(always)]
    fn issue(&mut self, outstanding: Outstanding) -> Token {
        self.sequence += 1;
        let place = self.free.pop().unwrap_or_else(|| self.new_entry());
        let token = Token(self.sequence << TOKEN_PLACE_BITS | u64::from(place));
        let before = outstanding.member.map_or(END, |member| self.append_to_member(member, place));
        let outstanding = Some(outstanding);
        self.tokens[place as usize] = Entry { token, before, after: END, outstanding };
        token
    }

    #[cold]
    fn new_entry(&mut self) -> u32 {
        let place = self.tokens.len() as u32;
        assert!(u64::from(place) < 1 << TOKEN_PLACE_BITS);
        self.tokens.push(Entry { token: Token(0), before: END, after: END, outstanding: None });
        place
    }

    /// Appends the outstanding request at index `place` to the list of its member's requests.
    /// Returns the index of the request before it, `END` if there is none.
    #[inline]
    fn append_to_member(&mut self, member: MemberIndex, place: u32) -> u32 {
        if self.of_members.len() <= member.index() {
            self.new_member(member);
        }
        let of_member = &mut self.of_members[member.index()];
        let before = std::mem::replace(&mut of_member.last, place);
        match before {
            END => of_member.first = place,
            before => self.tokens[before as usize].after = place,
        }
        before
    }

    #[cold]
    fn new_member(&mut self, member: MemberIndex) {
        self.of_members.resize(member.index() + 1, Chain::NONE);
    }
}

/// A token is a sequence number above the index of its table entry, so it is found in one step and
/// is never issued twice. At most 2^24 tokens can be outstanding, and 2^40 can be issued in the
/// engine's lifetime (34 years at 1,000 a millisecond).
const TOKEN_PLACE_BITS: u32 = 24;

/// Limit on the number of operation lists that are kept for reuse, and on the length of each list.
/// One stripe usually needs no longer list.
const SPARE_OPS_MAX: usize = 64;
const SPARE_OPS_LONG: usize = 16;

const END: u32 = u32::MAX;

/// Appends a part to a chain in the table `merged`, at an index from `free` if there is one.
fn link(
    merged: &mut Vec<(CompletionTarget, u32)>,
    free: &mut Vec<u32>,
    chain: &mut Chain,
    completion: CompletionTarget,
) {
    let next = free.pop().unwrap_or_else(|| {
        merged.push((completion, END));
        merged.len() as u32 - 1
    });
    merged[next as usize] = (completion, END);
    match std::mem::replace(&mut chain.last, next) {
        END => chain.first = next,
        last => merged[last as usize].1 = next,
    }
}

fn writes(op: &MemberOp) -> bool {
    match op {
        MemberOp::Discard { .. } | MemberOp::Write { .. } | MemberOp::WriteMetadata { .. } => true,
        MemberOp::Flush | MemberOp::Read { .. } => false,
    }
}

/// Whether a write is durable by itself (FUA). Metadata writes are durable too, but this function
/// does not include them because nothing relies on it.
fn is_fua(op: &MemberOp) -> bool {
    match op {
        MemberOp::Discard { fua, .. } | MemberOp::Write { fua, .. } => *fua,
        MemberOp::Flush | MemberOp::Read { .. } | MemberOp::WriteMetadata { .. } => false,
    }
}

/// Member operation for a read or write at sector `at`.
#[inline]
fn op_of(at: Sectors, request: &MemberRequest, parts: &[Segment]) -> MemberOp {
    let parts = parts_of(parts);
    if request.write {
        MemberOp::Write { at, from: parts, fua: request.kind.fua }
    } else {
        MemberOp::Read { at, into: parts }
    }
}

/// List of the segments of a request, usually one.
#[inline]
fn parts_of(parts: &[Segment]) -> Segments {
    match parts {
        [part] => smallvec![*part],
        parts => Segments::from_slice(parts),
    }
}

fn token_place(token: Token) -> usize {
    (token.0 & ((1 << TOKEN_PLACE_BITS) - 1)) as usize
}
