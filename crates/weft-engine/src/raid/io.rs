//! Requests of a volume on their way through a personality, and what comes back of them.

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
    /// The client asks a second time, for its first request stalled.
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

/// Outcome for a request, where a part that was answered is one of the request itself.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    /// The part belongs to the personality, whose events say what follows.
    Nothing,
    /// One sub-request of the request is done.
    Done(RequestId),
    /// One sub-request of the request failed, and nothing makes up for it.
    Failed(RequestId, ReplyError),
    /// One sub-request is over, its client is told that the member stalled, and the request's
    /// memory is pinned.
    GivenUp(RequestId),
    /// The member failed without an answer to a write, which pins the request's memory. One
    /// sub-request is over, as others have what it was to write.
    WriteGivenUp(RequestId),
    /// The member did not give the data, or was not even asked for it: see
    /// [`super::Personality::read_again`].
    ReadFailed { part: StraightPart, asked: bool },
}

/// Events that a personality tells its volume.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A member had no space; parity may be wrong from this data sector of the members on.
    NoSpace { slot: Slot, sector: Sectors },
    /// The same of a discard; the array knows from where parity may be wrong.
    NoSpaceForDiscard { slot: Slot, sector: Sectors },
    /// A member write from the memory of a request was given up, and may go on using it.
    Pinned { request: RequestId },
    /// A request that counted as [`SPLITTING`] is split, into so many sub-requests: the `whole`
    /// request, or a sub-request of it that was read in vain before.
    Split { request: RequestId, sub_requests: u32, whole: bool },
    /// Sub-requests of a request are done.
    SubRequestsDone { request: RequestId, sub_requests: u32, result: Result<(), ReplyError> },
    /// A resync is done with one of its units. `wrong` is the slot whose strip alone explains the
    /// mismatch.
    SyncDone { unit: u64, mismatch: bool, wrong: Option<Slot>, ok: bool },
    /// A write that was given up is done at last.
    Unpinned { request: RequestId },
    /// A part of the personality's own wants this range of the array for itself, or for reading:
    /// see [`super::Personality::locked`].
    Lock { part: u32, range: ByteRange, writes: bool },
    /// A write reached every member: there is space.
    Written,
}

/// State of a volume that a knob's new value may have to wait for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Busy {
    /// A resync, recovery, check or repair runs.
    pub(crate) syncs: bool,
    /// Another knob waits already.
    pub(crate) quiesces: bool,
    /// A member does not answer.
    pub(crate) unanswered: bool,
}

/// Sub-requests that a request counts as pending while it is being split: more than it can have.
pub(crate) const SPLITTING: u64 = 1 << 32;
