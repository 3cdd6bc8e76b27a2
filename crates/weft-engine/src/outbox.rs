//! What leaves the engine, and who asked for it: outputs, tokens, member requests of this turn.

use std::collections::VecDeque;

use smallvec::{SmallVec, smallvec};
use weft_units::{Bytes, ClientId, MemberIndex, RowId, Sectors, Slot, Time, VolumeId};

use crate::Work;
use crate::error::ReplyError;
use crate::frame::Part;
use crate::input::Attr;
use crate::output::{ComputeOp, MemberOp, Notice, Output};
use crate::ranges::RequestId;
use crate::sched::merge::{self, Kind, Last, Next};
use crate::token::{Tag, Token};

/// Who is to be told of a `Done`.
#[derive(Clone, Debug)]
pub(crate) enum Owner {
    /// Blocks of rows.
    Rows(SmallVec<[RowPart; 2]>),
    /// Pieces of reads that bypass the cache.
    Reads(SmallVec<[ReadPart; 1]>),
    /// The running flush round.
    Flush,
    /// The running superblock round.
    Superblock,
    /// A computation of a row.
    Compute(RowId),
}

/// A block of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowPart {
    pub(crate) row: RowId,
    pub(crate) slot: Slot,
}

/// A read or write of one part, on its way to a member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Staged {
    pub(crate) volume: VolumeId,
    pub(crate) member: MemberIndex,
    pub(crate) write: bool,
    pub(crate) kind: Kind,
    pub(crate) at: Sectors,
    pub(crate) part: Part,
    /// How large it may become.
    pub(crate) max: Bytes,
    pub(crate) who: Who,
}

/// Whose it is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Who {
    Read(ReadPart),
    Row(RowPart),
}

/// A piece of a client's read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadPart {
    pub(crate) request: RequestId,
    /// First byte within the volume.
    pub(crate) start: Bytes,
    pub(crate) len: u32,
}

/// What is known of an outstanding token.
#[derive(Clone, Debug)]
pub(crate) struct Outstanding {
    pub(crate) volume: VolumeId,
    /// `None` for a computation.
    pub(crate) member: Option<MemberIndex>,
    pub(crate) write: bool,
    pub(crate) issued: Time,
    pub(crate) owner: Owner,
    /// Its owner was told already that it failed. It only pins memory until it is done.
    pub(crate) detached: bool,
}

/// Outputs, and the tokens that were given out with them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outbox {
    pub(crate) now: Time,
    pub(crate) work: Work,
    /// Credit to be given back, of requests that were answered.
    pub(crate) credit: Vec<(ClientId, u64)>,
    outputs: VecDeque<Output>,
    /// Counts turns, for merging.
    turn: u64,
    tokens: Vec<Entry>,
    free: Vec<u32>,
    sequence: u64,
    outstanding: usize,
}

#[derive(Clone, Debug)]
struct Entry {
    token: Token,
    outstanding: Option<Outstanding>,
}

impl Outbox {
    pub(crate) fn new(now: Time) -> Self {
        Self { now, turn: 1, ..Self::default() }
    }

    pub(crate) fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Sends a read or write of one part, or appends it to the last one of its member and direction.
    /// The token, if it goes on its own.
    pub(crate) fn stage(&mut self, request: Staged, last: &mut Last) -> Option<Token> {
        let Staged { volume, member, write, kind, at, part, max, who } = request;
        let bytes = Bytes(u64::from(part.len));
        let next = Next { turn: self.turn, kind, at, bytes, max, place: self.outputs.len() };
        if let Some(place) = last.merge(&next) {
            self.append(place, part, who);
            return None;
        }
        let parts = smallvec![part];
        let op = if write {
            MemberOp::Write { at, from: parts, fua: kind.fua }
        } else {
            MemberOp::Read { at, into: parts }
        };
        let owner = match who {
            Who::Read(part) => Owner::Reads(smallvec![part]),
            Who::Row(part) => Owner::Rows(smallvec![part]),
        };
        Some(self.submit(volume, member, op, kind.attr, owner))
    }

    fn append(&mut self, place: usize, part: Part, who: Who) {
        let Some(Output::Submit { token, op, .. }) = self.outputs.get_mut(place) else {
            unreachable!("a turn's requests stay where they are until it ends")
        };
        let token = *token;
        match op {
            MemberOp::Read { into: parts, .. } | MemberOp::Write { from: parts, .. } => {
                merge::append(parts, part);
            }
            _ => unreachable!("only reads and writes are merged"),
        }
        let outstanding = self.outstanding_mut(token).expect("it was sent in this turn");
        match (&mut outstanding.owner, who) {
            (Owner::Rows(all), Who::Row(part)) => all.push(part),
            (Owner::Reads(all), Who::Read(part)) => all.push(part),
            _ => unreachable!("requests of one kind are merged"),
        }
    }

    /// Requests that were sent so far are not appended to any more.
    pub(crate) fn seal(&mut self) {
        self.turn += 1;
    }

    pub(crate) fn submit(
        &mut self,
        volume: VolumeId,
        member: MemberIndex,
        op: MemberOp,
        attr: Attr,
        owner: Owner,
    ) -> Token {
        let write = matches!(op, MemberOp::Write { .. } | MemberOp::WriteMetadata { .. });
        let token = self.issue(Outstanding {
            volume,
            member: Some(member),
            write,
            issued: self.now,
            owner,
            detached: false,
        });
        self.work.submits += 1;
        self.outputs.push_back(Output::Submit { token, member, op, attr });
        token
    }

    pub(crate) fn compute(&mut self, volume: VolumeId, row: RowId, ops: Vec<ComputeOp>) {
        let token = self.issue(Outstanding {
            volume,
            member: None,
            write: false,
            issued: self.now,
            owner: Owner::Compute(row),
            detached: false,
        });
        self.work.computes += 1;
        self.outputs.push_back(Output::Compute { token, ops });
    }

    pub(crate) fn abort(&mut self, token: Token) {
        self.outputs.push_back(Output::Abort(token));
    }

    pub(crate) fn reply(&mut self, client: ClientId, tag: Tag, result: Result<(), ReplyError>) {
        self.outputs.push_back(Output::Reply { client, tag, result });
    }

    pub(crate) fn give_credit(&mut self, client: ClientId, bytes: u64) {
        self.credit.push((client, bytes));
    }

    /// Nobody is there any more to be told that something failed.
    pub(crate) fn forget_refusals(&mut self, gone: ClientId) {
        // What was sent in this turn may move.
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

    /// Forgets a token that is done. `None` if it was never given out, or is done already.
    pub(crate) fn take(&mut self, token: Token) -> Option<Outstanding> {
        let place = token_place(token);
        let entry = self.tokens.get_mut(place).filter(|entry| entry.token == token)?;
        let outstanding = entry.outstanding.take()?;
        self.free.push(place as u32);
        self.outstanding -= 1;
        Some(outstanding)
    }

    /// Looks at a token, if it is outstanding.
    pub(crate) fn outstanding_mut(&mut self, token: Token) -> Option<&mut Outstanding> {
        let entry = self.tokens.get_mut(token_place(token))?;
        if entry.token == token { entry.outstanding.as_mut() } else { None }
    }

    /// How many tokens are out.
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding
    }

    fn issue(&mut self, outstanding: Outstanding) -> Token {
        self.outstanding += 1;
        self.sequence += 1;
        let place = self.free.pop().unwrap_or_else(|| {
            let place = self.tokens.len() as u32;
            assert!(u64::from(place) < 1 << TOKEN_PLACE_BITS);
            self.tokens.push(Entry { token: Token(0), outstanding: None });
            place
        });
        let token = Token(self.sequence << TOKEN_PLACE_BITS | u64::from(place));
        self.tokens[place as usize] = Entry { token, outstanding: Some(outstanding) };
        token
    }
}

/// A token is a sequence number above the place of its table entry, so that it is found in one step
/// and never given out twice: 2^24 outstanding, 2^40 in a lifetime (34 years at 1,000 a millisecond).
const TOKEN_PLACE_BITS: u32 = 24;

fn token_place(token: Token) -> usize {
    (token.0 & ((1 << TOKEN_PLACE_BITS) - 1)) as usize
}
