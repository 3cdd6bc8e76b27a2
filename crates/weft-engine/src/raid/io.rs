//! Interface between a volume and its personality: requests, their answers, and events.

use weft_units::{ByteRange, MemberIndex, Sectors, Slot};

use super::parity::streams::WriteStream;
use super::straight::StraightPart;
use crate::contract::error::ReplyError;
use crate::contract::frame::Run;
use crate::contract::input::{Attr, Fault, Flags, RequestOp};
use crate::contract::token::RequestId;

/// A request for a range of the volume, as it is passed to a personality.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrayIo {
    pub(crate) id: RequestId,
    pub(crate) range: ByteRange,
    pub(crate) frames: Run,
    pub(crate) attr: Attr,
    /// Part of the request's range that the members are told to discard; `None` if there is no such
    /// part.
    pub(crate) discarded: Option<ByteRange>,
    pub(crate) op: RequestOp,
    /// Whether the request excludes reads of its range while it is carried out.
    pub(crate) writes: bool,
    pub(crate) flags: Flags,
    pub(crate) stream: WriteStream,
    /// Whether another request waits for this one, because their ranges overlap.
    pub(crate) waited_for: bool,
}

impl ArrayIo {
    /// Creates a request without frames and flags.
    #[inline(always)]
    pub(crate) fn new(id: RequestId, op: RequestOp, range: ByteRange, writes: bool) -> Self {
        Self {
            id,
            range,
            frames: Run::EMPTY,
            attr: Attr::default(),
            discarded: None,
            op,
            writes,
            flags: Flags::NONE,
            stream: WriteStream::default(),
            waited_for: false,
        }
    }

    /// Whether the request stores zeros, and so has no frames.
    #[inline]
    pub(crate) fn zeroes(&self) -> bool {
        self.op == RequestOp::WriteZeroes
    }
}

/// Answer of a member to a member request, as it applies to one of the parts that were merged into
/// the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) result: Result<(), Fault>,
    /// Member that answered; `None` if the part was not sent to a member.
    pub(crate) member: Option<MemberIndex>,
    /// Whether the member did not answer and its request was given up.
    pub(crate) given_up: bool,
    /// Whether a given-up request pins the memory of the part until its member answers. The request
    /// is the one to `member`, or one to another member that was written along with it
    /// ([`crate::array::twin`]).
    pub(crate) pins: bool,
    pub(crate) write: bool,
}

/// Consequence of a member's answer for the client request to which the answered part belongs.
#[derive(Clone, Debug)]
pub(crate) enum PartOutcome {
    /// None yet: events of the personality report what follows.
    Nothing,
    /// One sub-request of the client request is done.
    Done(RequestId),
    /// One sub-request of the client request failed, and no redundancy covers the failure.
    Failed(RequestId, ReplyError),
    /// One sub-request ended because its member stalled. The client gets an error that says so, and
    /// the request's memory stays pinned.
    GivenUp(RequestId),
    /// A member failed before it answered a write, and its request pins the client request's
    /// memory. The sub-request ends successfully, because other members have the data.
    WriteGivenUp(RequestId),
    /// A read or write failed and is repeated. `asked` is true if the part was sent to a member,
    /// and false if no member could be asked. See [`super::Personality::repeat`].
    ToRepeat { part: StraightPart, asked: bool },
}

/// Events that a personality reports to its volume.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A member had no space for a write. From `sector` on, parity may be wrong or copies may
    /// differ. `sector` is a data sector of the members or, for mirrors, a sector of the array.
    NoSpace { slot: Slot, sector: Sectors },
    /// A member had no space for a discard. The array has already noted where parity may be wrong.
    NoSpaceForDiscard { slot: Slot, sector: Sectors },
    /// A member write from the memory of a request was given up. The member may still read that
    /// memory.
    Pinned { request: RequestId },
    /// A request that counted as [`SPLITTING`] is now split into `sub_requests`. With `whole`, the
    /// request itself was split; otherwise one of its sub-requests was, for another attempt after a
    /// failed read or write.
    Split { request: RequestId, sub_requests: u32, whole: bool },
    /// Some sub-requests of a request are done, with the same result.
    SubRequestsDone { request: RequestId, sub_requests: u32, result: Result<(), ReplyError> },
    /// Unit number `unit` of a sync is finished. `mismatch` is true if parity or copies disagreed,
    /// and `wrong` is the slot of the strip or copy that alone explains this, if there is one. `ok`
    /// is false if the unit could not be synced.
    SyncDone { unit: u64, mismatch: bool, wrong: Option<Slot>, ok: bool },
    /// Unit number `unit` of a sync is to be synced later, because a member has no space or an
    /// earlier unit could not be synced.
    SyncPutOff { unit: u64, no_space: bool },
    /// A given-up member request has been answered, and no longer uses the memory of `request`.
    Unpinned { request: RequestId },
    /// Part number `part` of the personality needs a lock on this range of the array: exclusive
    /// with `writes`, otherwise shared with reads. See [`super::Personality::locked`].
    Lock { part: u32, range: ByteRange, writes: bool },
    /// A write reached every member, which shows that members that had run out of space have space
    /// again.
    Written,
}

/// State of a volume that may keep a knob from being set at present.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Busy {
    /// Whether a resync, recovery, check or repair runs.
    pub(crate) syncs: bool,
    /// Whether a knob that was set before still waits for its new value to be applied.
    pub(crate) quiesces: bool,
    /// Whether a member does not answer, so that some stripes may stay in use for long.
    pub(crate) unanswered: bool,
}

/// Number that is added to the count of a request's pending sub-requests while the request is being
/// split; larger than any number of sub-requests.
pub(crate) const SPLITTING: u64 = 1 << 32;
