//! Bare member: a file or device served as it is, without metadata (`--bare`).
//!
//! Each request becomes member requests of its own, at once; nothing is cached, merged or ordered.
//! The range has to be made of whole logical blocks, which the export announces. A flush is one
//! member flush: the writes it covers were answered, so they were done. Zeroes that need not be
//! stored become a hole where the member can have one.

use std::collections::VecDeque;

use smallvec::SmallVec;
use weft_engine::knobs::Knobs;
use weft_engine::{
    ClientRequest, Fault, Input, MemberInfo, MemberOp, MemberSnapshot, MemberState, Mismatches,
    Output, RaidSnapshot, ReplyError, RequestOp, Run, Segment, Snapshot, SyncAction, Tag, Token,
    Turn, Verb, VolumeSnapshot, Work, ZERO_FRAME,
};
use weft_units::{Bytes, ClientId, FRAME_BYTES, Time};

use crate::poison::Core;

/// One member behind the interface of an engine.
#[derive(Clone, Debug)]
pub struct Bare {
    member: MemberInfo,
    read_only: bool,
    /// The member can have holes.
    discards: bool,
    inputs: VecDeque<Input>,
    outputs: VecDeque<Output>,
    /// A token is a place here, and above it a number that makes it fresh.
    active: Vec<Option<Active>>,
    free: Vec<u32>,
    /// Clients with something outstanding: a few.
    accounts: Vec<Account>,
    tokens: u64,
    stopping: Option<(ClientId, Tag)>,
    stopped: bool,
    counts: Counts,
}

/// Requests that a client has outstanding.
#[derive(Clone, Copy, Debug)]
struct Account {
    client: ClientId,
    outstanding: Bytes,
    /// To be told at the end of the turn, in one.
    due: Bytes,
}

#[derive(Clone, Copy, Debug)]
struct Active {
    token: Token,
    request: ClientRequest,
    /// Bytes of a `WriteZeroes` that are done or under way.
    begun: u64,
    /// By one hole.
    discarding: bool,
    answered: bool,
    is_stop: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    reads: u64,
    writes: u64,
    flushes: u64,
    bytes_read: u64,
    bytes_written: u64,
}

impl Bare {
    /// Serves a member.
    #[must_use]
    pub fn new(member: MemberInfo, read_only: bool) -> Self {
        Self {
            discards: member.discards,
            member,
            read_only,
            inputs: VecDeque::new(),
            outputs: VecDeque::new(),
            active: Vec::new(),
            free: Vec::new(),
            accounts: Vec::new(),
            tokens: 0,
            stopping: None,
            stopped: false,
            counts: Counts::default(),
        }
    }

    fn on_request(&mut self, request: ClientRequest) {
        let (client, bytes) = (request.client, charge(&request));
        if bytes.0 > 0 {
            match self.accounts.iter_mut().find(|account| account.client == client) {
                Some(account) => account.outstanding += bytes,
                None => {
                    self.accounts.push(Account { client, outstanding: bytes, due: Bytes::ZERO });
                }
            }
        }
        match self.check(&request) {
            Ok(()) => self.submit(Active::new(request)),
            Err(error) => self.answer(&request, Err(error)),
        }
    }

    fn check(&self, request: &ClientRequest) -> Result<(), ReplyError> {
        if self.stopping.is_some() || self.stopped {
            return Err(ReplyError::Stopping);
        }
        let reads = matches!(request.op, RequestOp::Flush | RequestOp::Read);
        if !reads && self.read_only {
            return Err(ReplyError::ReadOnly);
        }
        let end = request.range.checked_end();
        if end.is_none_or(|end| end > self.member.size.bytes()) {
            return Err(ReplyError::OutOfRange);
        }
        let mask = u64::from(self.member.logical_block) - 1;
        if (request.range.start.0 | request.range.len.0) & mask != 0 {
            return Err(ReplyError::Invalid("not whole logical blocks"));
        }
        Ok(())
    }

    fn submit(&mut self, mut active: Active) {
        let ClientRequest { op, range, frames, flags, attr, .. } = active.request;
        let start = range.start.0;
        let at = |byte: u64| Bytes(byte).sectors_floor();
        let payload = || SmallVec::from_slice(&[frames.part(start % FRAME_BYTES, range.len.0)]);
        let op = match op {
            RequestOp::Flush => MemberOp::Flush,
            RequestOp::Read => MemberOp::Read { at: at(start), into: payload() },
            RequestOp::Write => MemberOp::Write { at: at(start), from: payload(), fua: flags.fua },
            RequestOp::Trim | RequestOp::WriteZeroes
                if (flags.discard || op == RequestOp::Trim)
                    && self.discards
                    && active.begun == 0 =>
            {
                active.begun = range.len.0;
                active.discarding = true;
                let len = range.len.sectors_floor();
                MemberOp::Discard { at: at(start), len, fua: flags.fua }
            }
            RequestOp::Trim => {
                // Advice that cannot be taken.
                self.answer(&active.request, Ok(()));
                return;
            }
            RequestOp::WriteZeroes => {
                let first = start + active.begun;
                let len = (range.len.0 - active.begun).min(ZERO_BYTES_MAX);
                active.begun += len;
                let zeros =
                    |offset: u64| Segment::at(ZERO_FRAME, 0, (len - offset).min(FRAME_BYTES));
                let from = (0..len.div_ceil(FRAME_BYTES)).map(|index| zeros(index * FRAME_BYTES));
                MemberOp::Write { at: at(first), from: from.collect(), fua: flags.fua }
            }
        };
        match op {
            MemberOp::Flush => self.counts.flushes += 1,
            MemberOp::Read { .. } => {
                self.counts.reads += 1;
                self.counts.bytes_read += range.len.0;
            }
            MemberOp::Discard { .. } | MemberOp::Write { .. } | MemberOp::WriteMetadata { .. } => {
                self.counts.writes += 1;
                self.counts.bytes_written += range.len.0;
            }
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.active.push(None);
            u32::try_from(self.active.len() - 1).expect("bounded by what clients may have open")
        });
        self.tokens += 1;
        let token = Token(self.tokens << 32 | u64::from(place));
        self.active[place as usize] = Some(Active { token, ..active });
        self.outputs.push_back(Output::Submit { token, member: self.member.index, op, attr });
    }

    fn on_done(&mut self, token: Token, result: Result<(), Fault>) {
        let place = u32::try_from(token.0 & u64::from(u32::MAX)).expect("32 bits");
        let active = self.active[place as usize].take().expect("each token is answered once");
        assert_eq!(active.token, token);
        self.free.push(place);
        let request = active.request;
        if active.discarding && result == Err(Fault::Io) {
            // It cannot, after all; zeros can be stored.
            self.discards = false;
            self.submit(Active { begun: 0, discarding: false, ..active });
            return;
        }
        if result.is_ok()
            && request.op == RequestOp::WriteZeroes
            && active.begun < request.range.len.0
        {
            self.submit(active);
            return;
        }
        let result = result.map_err(|fault| match fault {
            Fault::NoSpace => ReplyError::NoSpace,
            Fault::Aborted | Fault::Gone | Fault::Io => ReplyError::Io,
        });
        if active.is_stop {
            self.stopped = true;
            let (client, tag) = (request.client, request.tag);
            self.outputs.push_back(Output::Reply { client, tag, result });
        } else if active.answered {
            self.release(request.frames);
        } else {
            self.answer(&request, result);
        }
        self.stop_if_idle();
    }

    fn answer(&mut self, request: &ClientRequest, result: Result<(), ReplyError>) {
        let (client, tag) = (request.client, request.tag);
        let kept = request.op == RequestOp::Read && result.is_ok();
        self.outputs.push_back(Output::Reply { client, tag, result });
        if !kept {
            self.release(request.frames);
        }
        let bytes = charge(request);
        if bytes.0 > 0 {
            let account = self.accounts.iter_mut().find(|account| account.client == client);
            let account = account.expect("charged before");
            account.outstanding = Bytes(account.outstanding.0 - bytes.0);
            account.due += bytes;
        }
    }

    /// Tells clients in one what the answers of this turn gave back.
    fn pay(&mut self) {
        for account in &mut self.accounts {
            if account.due.0 > 0 {
                let bytes = std::mem::take(&mut account.due);
                self.outputs.push_back(Output::Credit { client: account.client, bytes });
            }
        }
        self.accounts.retain(|account| account.outstanding.0 > 0);
    }

    fn in_flight(&self) -> usize {
        self.active.len() - self.free.len()
    }

    fn release(&mut self, frames: Run) {
        if frames.count > 0 {
            self.outputs.push_back(Output::Release(frames));
        }
    }

    fn on_gone(&mut self, client: ClientId) {
        self.accounts.retain(|account| account.client != client);
        for active in self.active.iter_mut().flatten() {
            active.answered |= active.request.client == client && !active.is_stop;
        }
    }

    fn stop_if_idle(&mut self) {
        if self.stopped || self.in_flight() > 0 {
            return;
        }
        let Some((client, tag)) = self.stopping.take() else { return };
        self.stopped = true;
        if self.read_only {
            self.outputs.push_back(Output::Reply { client, tag, result: Ok(()) });
            return;
        }
        self.submit(Active { is_stop: true, ..Active::new(flush_of(client, tag)) });
    }
}

impl Active {
    fn new(request: ClientRequest) -> Self {
        Self {
            token: Token(0),
            request,
            begun: 0,
            discarding: false,
            answered: false,
            is_stop: false,
        }
    }
}

impl Core for Bare {
    fn handle(&mut self, _now: Time, input: Input) {
        self.inputs.push_back(input);
    }

    fn run(&mut self, _now: Time, _turns_max: u32, outputs: &mut VecDeque<Output>) -> Turn {
        let mut work = Work { turns: 1, ..Work::default() };
        while let Some(input) = self.inputs.pop_front() {
            work.inputs += 1;
            match input {
                Input::Client(request) => self.on_request(request),
                Input::ClientGone(client) => self.on_gone(client),
                Input::Done { token, result } => self.on_done(token, result.map(|_| ())),
                Input::Wake => {}
                Input::Admin(command) => {
                    let (client, tag) = (command.client, command.tag);
                    if matches!(command.verb, Verb::Stop) && !self.stopped {
                        self.stopping = Some((client, tag));
                        self.stop_if_idle();
                        continue;
                    }
                    let text = "a bare member has no array to administer";
                    let result = Err(ReplyError::Invalid(text));
                    self.outputs.push_back(Output::Reply { client, tag, result });
                }
            }
        }
        self.pay();
        outputs.append(&mut self.outputs);
        Turn { work, more: false }
    }

    fn next_wake(&self) -> Option<Time> {
        None
    }

    fn snapshot(&self) -> Snapshot {
        let in_flight = u32::try_from(self.in_flight()).unwrap_or(u32::MAX);
        let Counts { reads, writes, flushes, bytes_read, bytes_written } = self.counts;
        let member = MemberSnapshot {
            member: self.member.index,
            label: self.member.label.clone(),
            slot: None,
            dev_number: 0,
            state: MemberState::InSync,
            reads,
            writes,
            flushes,
            sectors_read: Bytes(bytes_read).sectors_floor().0,
            sectors_written: Bytes(bytes_written).sectors_floor().0,
            corrected: 0,
            in_flight,
        };
        let active = self.active.iter().flatten();
        let frames_held = active.map(|active| active.request.frames.count).sum();
        Snapshot {
            volumes: vec![VolumeSnapshot {
                array_state: if self.read_only { "readonly" } else { "active" },
                size: self.member.size.bytes(),
                degraded: 0,
                events: 0,
                sync_action: SyncAction::Idle,
                sync_completed: None,
                sync_stripes: 0,
                mismatch_cnt: 0,
                mismatches: Mismatches::default(),
                no_space: false,
                resync_from: None,
                raid: RaidSnapshot::default(),
                requests_active: self.in_flight(),
                knobs: Knobs::default(),
                members: vec![member],
            }],
            clients: self
                .accounts
                .iter()
                .map(|account| (account.client, account.outstanding))
                .collect(),
            tokens_outstanding: self.in_flight(),
            frames_held,
        }
    }
}

/// What a request takes of its client's credit: its payload.
fn charge(request: &ClientRequest) -> Bytes {
    if request.frames.count > 0 { request.range.len } else { Bytes::ZERO }
}

fn flush_of(client: ClientId, tag: Tag) -> ClientRequest {
    ClientRequest {
        client,
        tag,
        volume: weft_units::VolumeId(0),
        op: RequestOp::Flush,
        range: weft_units::ByteRange::new(0, 0),
        frames: Run::EMPTY,
        flags: weft_engine::Flags::NONE,
        attr: weft_engine::Attr::default(),
    }
}

/// Most zeros written by one member request: 256 times the frame of zeros.
const ZERO_BYTES_MAX: u64 = 1 << 20;
