//! Interface between a volume and its personality: requests, their answers, and events.

use weft_units::{ByteRange, MemberIndex, Sectors, Slot};

use super::parity::streams::WriteStream;
use crate::array::outbox::StraightPart;
use crate::contract::error::ReplyError;
use crate::contract::frame::Run;
use crate::contract::input::{Attr, Fault};
use crate::contract::token::RequestId;

/// A request for a range of the volume, as a personality sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrayIo {
    pub(crate) id: RequestId,
    pub(crate) range: ByteRange,
    pub(crate) frames: Run,
    pub(crate) attr: Attr,
    /// The part of the range that members are told to discard.
    pub(crate) discarded: Option<ByteRange>,
    pub(crate) writes: bool,
    pub(crate) zeroes: bool,
    pub(crate) fua: bool,
    /// md's `REQ_SYNC`: the client waits for the answer.
    pub(crate) sync: bool,
    /// The client repeats a request that stalled.
    pub(crate) again: bool,
    pub(crate) stream: WriteStream,
    /// Another request waits for this one.
    pub(crate) waited_for: bool,
}

/// Answer of a member for a part of a member request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) result: Result<(), Fault>,
    /// The member that answered; `None` if none was asked.
    pub(crate) member: Option<MemberIndex>,
    /// The member did not answer: its request was given up, and pins memory until it is done.
    pub(crate) given_up: bool,
    pub(crate) write: bool,
}

/// Outcome of a member's answer for the client request that the part belongs to.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    /// The part is the personality's own; its events report what follows.
    Nothing,
    /// One sub-request of the request is done.
    Done(RequestId),
    /// One sub-request of the request failed, and no redundancy covers the failure.
    Failed(RequestId, ReplyError),
    /// One sub-request ended because its member stalled: the client is told so, and the request's
    /// memory stays pinned.
    GivenUp(RequestId),
    /// A member failed without an answer to a write, which pins the request's memory. The
    /// sub-request is over, because other members have the data.
    WriteGivenUp(RequestId),
    /// A member did not return the data, or, unless `asked`, no member was asked for it: see
    /// [`super::Personality::read_again`].
    ReadFailed { part: StraightPart, asked: bool },
}

/// Events that a personality reports to its volume.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A member had no space. Parity may be wrong from this data sector of the members on.
    NoSpace { slot: Slot, sector: Sectors },
    /// A member had no space for a discard. The array already knows where parity may be wrong.
    NoSpaceForDiscard { slot: Slot, sector: Sectors },
    /// A member write from the memory of a request was given up. The member may go on using that
    /// memory.
    Pinned { request: RequestId },
    /// A request that counted as [`SPLITTING`] is split into `sub_requests`. `whole`: the request
    /// itself, and not one of its sub-requests that failed to be read.
    Split { request: RequestId, sub_requests: u32, whole: bool },
    /// Sub-requests of a request are done.
    SubRequestsDone { request: RequestId, sub_requests: u32, result: Result<(), ReplyError> },
    /// A sync has finished one of its units. `wrong` is the slot of the strip that alone explains
    /// the mismatch.
    SyncDone { unit: u64, mismatch: bool, wrong: Option<Slot>, ok: bool },
    /// A write that was given up is done at last.
    Unpinned { request: RequestId },
    /// A part of the personality asks for this range of the array, exclusively if `writes` and else
    /// for reading: see [`super::Personality::locked`].
    Lock { part: u32, range: ByteRange, writes: bool },
    /// A write reached every member, which shows that they have space.
    Written,
}

/// State of a volume that may keep a knob from being set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Busy {
    /// A resync, recovery, check or repair runs.
    pub(crate) syncs: bool,
    /// Another knob already waits to be set.
    pub(crate) quiesces: bool,
    /// A member does not answer.
    pub(crate) unanswered: bool,
}

/// Pending count of a request while it is being split: more sub-requests than it can have.
pub(crate) const SPLITTING: u64 = 1 << 32;
