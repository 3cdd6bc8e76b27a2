//! Outputs of the engine: everything that a driver must do.

use smallvec::SmallVec;
use weft_units::{Bytes, ClientId, MemberIndex, Sectors, Slot, VolumeId};

use crate::contract::error::ReplyError;
use crate::contract::frame::{Run, Segment, Segments};
use crate::contract::input::{Attr, SyncAction};
use crate::contract::token::{Tag, Token};

/// Action for the driver. Outputs of one run may be carried out in any order, except that a `Reply`
/// follows the `Submit`s on which it depends, because it waits for their `Done`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// Start a member request. The driver answers with one `Done`.
    Submit {
        /// Token that the `Done` must carry.
        token: Token,
        /// Member that the request is for.
        member: MemberIndex,
        /// Operation on the member.
        op: MemberOp,
        /// Attributes for the scheduler and the counters.
        attr: Attr,
    },
    /// Compute over frames: the operations in order, as one job. The driver answers with one `Done`
    /// that carries the value of the last operation.
    Compute {
        /// Token that the `Done` must carry.
        token: Token,
        /// Computations, in order.
        ops: Vec<ComputeOp>,
    },
    /// Give up an outstanding member request. The request still gets its one `Done`, now or later.
    Abort(Token),
    /// Answer a request of a client or a command of an administrator.
    Reply {
        /// Client that gets the answer.
        client: ClientId,
        /// Tag of the request or command.
        tag: Tag,
        /// Result of the request. The frames of a successful read return to the driver with this
        /// reply; all other frames return by `Release`, possibly later.
        result: Result<(), ReplyError>,
    },
    /// The frames of a request return to the driver: those of a write, of a failed read, or of a
    /// client that has disconnected.
    Release(Run),
    /// A client may send more payload, because a request was answered.
    Credit {
        /// Client that gets the credit.
        client: ClientId,
        /// Amount in bytes of payload.
        bytes: Bytes,
    },
    /// Information for logs, metrics and checkers.
    Notice(Notice),
}

/// Request to one member. Positions are sectors counted from the start of the member, not of its
/// data.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MemberOp {
    /// Discard a range, which then reads as zeroes. If the member cannot discard or fails to do so,
    /// the driver writes zeros, because the engine relies on reading zeros from the range. An error
    /// means that zeros could not be written either.
    Discard {
        /// First sector of the range on the member.
        at: Sectors,
        /// Length in sectors.
        len: Sectors,
        /// Whether the discard must be durable before `Done`.
        fua: bool,
    },
    /// Make every earlier completed write durable.
    Flush,
    /// Read into the segments of `into`.
    Read {
        /// First sector of the range on the member.
        at: Sectors,
        /// Memory to fill, in order.
        into: Segments,
    },
    /// Write the segments of `from`.
    Write {
        /// First sector of the range on the member.
        at: Sectors,
        /// Memory with the data, in order.
        from: Segments,
        /// Whether the write must be durable before `Done`.
        fua: bool,
    },
    /// Write metadata. Earlier writes become durable before it, and the metadata is durable before
    /// `Done` (md: `REQ_PREFLUSH | REQ_FUA`).
    WriteMetadata {
        /// First sector of the range on the member.
        at: Sectors,
        /// Bytes to write; their number is a multiple of the member's logical block.
        bytes: Box<[u8]>,
    },
}

/// A computation over frames. All segments of one operation have the same length.
///
/// The exponent of a data strip is the power of the generator that multiplies the strip in Q
/// (md-raid.md §5.2).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ComputeOp {
    /// Compare stored parity with the data. Answers [`crate::Value::Differs`].
    Compare {
        /// Every data strip of the stripe.
        data: Sources,
        /// Stored P; `None`: not compared.
        p: Option<Segment>,
        /// Stored Q; `None`: not compared.
        q: Option<Segment>,
    },
    /// Copy a segment.
    Copy {
        /// Segment from which the data is copied.
        from: Segment,
        /// Segment into which the data is copied.
        to: Segment,
    },
    /// Locate the single strip that is wrong. Answers [`crate::Value::Located`].
    Locate {
        /// Every data strip of the stripe.
        data: Sources,
        /// Stored P.
        p: Segment,
        /// Stored Q.
        q: Segment,
    },
    /// Generate parity from all data strips.
    Pq {
        /// Every data strip of the stripe.
        data: Sources,
        /// Memory for P; `None`: P is not computed.
        p: Option<Segment>,
        /// Memory for Q; `None`: Q is not computed.
        q: Option<Segment>,
    },
    /// Compute lost data strips: one from P (if `q` is `None`), one from Q (if `p` is `None`), or
    /// two from both.
    Recover {
        /// The data strips that are present.
        data: Sources,
        /// Stored P; `None`: one strip is recovered from Q.
        p: Option<Segment>,
        /// Stored Q; `None`: one strip is recovered from P.
        q: Option<Segment>,
        /// One or two lost data strips, with the memory for their content.
        lost: SmallVec<[Source; 2]>,
    },
    /// Update parity after a change of one data strip: `p ^= old ^ new`, `q ^= g^exponent (old ^
    /// new)`.
    UpdatePq {
        /// Exponent of the data strip in Q.
        exponent: u8,
        /// Old content of the strip.
        old: Segment,
        /// New content of the strip.
        new: Segment,
        /// P, changed in place; `None`: not updated.
        p: Option<Segment>,
        /// Q, changed in place; `None`: not updated.
        q: Option<Segment>,
    },
    /// Fill a segment with zeros.
    Zero {
        /// Memory to fill.
        to: Segment,
    },
}

/// Data strips of a stripe, each with its exponent.
pub type Sources = SmallVec<[Source; 4]>;

/// A data strip of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// Exponent of the generator: in Q the strip is multiplied by the generator to this power.
    pub exponent: u8,
    /// Memory with the strip's content.
    pub part: Segment,
}

/// Stored parities that disagree with the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Differs {
    /// Whether P disagrees.
    pub p: bool,
    /// Whether Q disagrees.
    pub q: bool,
}

/// Information for people and logs. A driver may ignore it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Notice {
    /// The superblocks durably record the array as clean.
    ArrayClean(VolumeId),
    /// The superblocks durably record the array as dirty: writes may be in flight from now on.
    ArrayDirty(VolumeId),
    /// Too few members are left. Writes have stopped; the superblocks of the remaining members are
    /// left unchanged.
    Broken(VolumeId),
    /// A member failed, or an administrator declared it failed.
    MemberFailed {
        /// Volume that the member belongs to.
        volume: VolumeId,
        /// Member that failed.
        member: MemberIndex,
        /// Slot that the member had; `None` for a spare.
        slot: Option<Slot>,
    },
    /// The failure of a member is durably recorded on the other members.
    FailureRecorded {
        /// Volume that the member belonged to.
        volume: VolumeId,
    },
    /// A member has not answered for a long time.
    MemberStalled {
        /// Member that does not answer.
        member: MemberIndex,
        /// Whether other members are read instead of this member from now on.
        read_around: bool,
    },
    /// A member has no space. The volume refuses writes until there is space again.
    NoSpace {
        /// Member without space.
        member: MemberIndex,
    },
    /// A strip that could not be read was computed from the other strips and rewritten.
    ReadErrorCorrected {
        /// Member with the strip.
        member: MemberIndex,
        /// First sector, from the start of the member.
        at: Sectors,
        /// Length in sectors.
        sectors: Sectors,
    },
    /// Sectors of a member were recorded as bad in its bad-block log. They are not read until they
    /// are written.
    BadBlocks {
        /// Member with the bad blocks.
        member: MemberIndex,
        /// First sector, from the start of the member.
        at: Sectors,
        /// Length in sectors.
        sectors: Sectors,
        /// Whether the data is lost: a recovery could not compute it, or a client got an error for
        /// its write, because too many of the other members lack it. Otherwise the member failed to
        /// write or to keep the data, and the other members supply it.
        lost: bool,
    },
    /// A resync, recovery, check or repair ended.
    SyncFinished {
        /// Volume that the sync ran on.
        volume: VolumeId,
        /// Kind of the sync.
        action: SyncAction,
        /// md's `mismatch_cnt`: number of sectors in which parity or copies disagreed.
        mismatch_cnt: u64,
        /// Number of units that the sync finished. A unit is one stripe, or with RAID 1 and 10 up
        /// to 64 KiB of one chunk.
        stripes: u64,
        /// Whether the sync reached the end of the array. A check or repair must also have covered
        /// the rest of it.
        complete: bool,
    },
    /// The write-back cache could not write to a volume. The pages stay dirty and are tried again
    /// every second. This notice is not repeated until a write has succeeded again.
    WriteBackFailed {
        /// Volume that answered the write with an error.
        volume: VolumeId,
        /// First byte, in the volume, of the run of pages that could not be written.
        at: u64,
        /// Error with which the volume answered the write.
        error: ReplyError,
    },
    /// The write-back cache can write to a volume again.
    WriteBackWorks(VolumeId),
    /// A resync, recovery, check or repair began.
    SyncStarted {
        /// Volume that the sync runs on.
        volume: VolumeId,
        /// Kind of the sync.
        action: SyncAction,
    },
    /// A replacement holds all data of its slot and has taken it. The member that it replaces
    /// counts as failed.
    MemberReplaced {
        /// Volume that the members belong to.
        volume: VolumeId,
        /// Member that had the slot.
        member: MemberIndex,
        /// Member that has the slot now.
        by: MemberIndex,
        /// Slot that the replacement has taken.
        slot: Slot,
    },
}
