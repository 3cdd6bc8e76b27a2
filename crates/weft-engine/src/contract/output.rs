//! Outputs of the engine: everything that a driver must do.

use smallvec::SmallVec;
use weft_units::{Bytes, ClientId, MemberIndex, Sectors, Slot, VolumeId};

use crate::contract::error::ReplyError;
use crate::contract::frame::{Run, Segment, Segments};
use crate::contract::input::{Attr, SyncAction};
use crate::contract::token::{Tag, Token};

/// Something to do. The order within one drain has no meaning except that a `Reply` follows the
/// `Submit`s it depends on, which is so by construction: it waits for their `Done`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// Start a member request. Answer with one `Done`.
    Submit {
        /// Names it.
        token: Token,
        /// The member.
        member: MemberIndex,
        /// Operation on the member.
        op: MemberOp,
        /// Class and origin of the request.
        attr: Attr,
    },
    /// Compute over frames, these operations in order, as one. Answer with one `Done`, whose value
    /// is that of the last.
    Compute {
        /// Names it.
        token: Token,
        /// Computations, in order.
        ops: Vec<ComputeOp>,
    },
    /// Please give up on a request that is outstanding. It still gets its one `Done`, now or later.
    Abort(Token),
    /// Answer a client or an administrator.
    Reply {
        /// The client.
        client: ClientId,
        /// Tag of the request.
        tag: Tag,
        /// Result of the request. The frames of a read that went well are the driver's again with
        /// this reply; all others come by `Release`, which may be later.
        result: Result<(), ReplyError>,
    },
    /// The frames of a request are the driver's again: of a write, a failed read, or a client that
    /// is gone.
    Release(Run),
    /// A client may send this much more payload: what an answered request had taken.
    Credit {
        /// The client.
        client: ClientId,
        /// Credit in bytes.
        bytes: Bytes,
    },
    /// For logs, metrics and checkers.
    Notice(Notice),
}

/// A request to one member. Positions are absolute sectors of the member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MemberOp {
    /// Store nothing for a range, which reads as zeroes then. A driver that finds that the member
    /// cannot do that, or fails to, stores zeros: who asks relies on them. An error says that they
    /// could not be stored either.
    Discard {
        /// First sector.
        at: Sectors,
        /// Length in sectors.
        len: Sectors,
        /// Durable before `Done`.
        fua: bool,
    },
    /// Make every write that completed before durable.
    Flush,
    /// Fill the parts.
    Read {
        /// First sector.
        at: Sectors,
        /// Memory that is written, in order.
        into: Segments,
    },
    /// Store the parts.
    Write {
        /// First sector.
        at: Sectors,
        /// Memory that is read, in order.
        from: Segments,
        /// Durable before `Done`.
        fua: bool,
    },
    /// Store metadata: everything before it is durable first, and it is durable before `Done`
    /// (md: `REQ_PREFLUSH | REQ_FUA`).
    WriteMetadata {
        /// First sector.
        at: Sectors,
        /// What, a multiple of the member's logical block long.
        bytes: Box<[u8]>,
    },
}

/// A computation over frames. All parts of one operation have the same length.
///
/// The exponent of a data strip is that of the generator in Q (md-raid.md §5.2).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ComputeOp {
    /// Comparison of stored parity with the data. Answers [`crate::Value::Differs`].
    Compare {
        /// Every data strip.
        data: Sources,
        /// Stored P.
        p: Option<Segment>,
        /// Stored Q.
        q: Option<Segment>,
    },
    /// Copy bytes.
    Copy {
        /// From.
        from: Segment,
        /// To.
        to: Segment,
    },
    /// Location of the single strip that is wrong. Answers [`crate::Value::Located`].
    Locate {
        /// Every data strip.
        data: Sources,
        /// Stored P.
        p: Segment,
        /// Stored Q.
        q: Segment,
    },
    /// Generate parity from all data strips.
    Pq {
        /// Every data strip.
        data: Sources,
        /// Memory of P.
        p: Option<Segment>,
        /// Memory of Q.
        q: Option<Segment>,
    },
    /// Compute lost data strips: one from P, one from Q (when `p` is `None`), or two from both.
    Recover {
        /// The data strips that are there.
        data: Sources,
        /// Stored P.
        p: Option<Segment>,
        /// Stored Q.
        q: Option<Segment>,
        /// One or two lost data strips: where they go.
        lost: SmallVec<[Source; 2]>,
    },
    /// Exchange one data strip's share in the parity: `p ^= old ^ new`,
    /// `q ^= g^exponent (old ^ new)`.
    UpdatePq {
        /// Of the data strip.
        exponent: u8,
        /// Its content so far.
        old: Segment,
        /// Its content to be.
        new: Segment,
        /// P, changed in place.
        p: Option<Segment>,
        /// Q, changed in place.
        q: Option<Segment>,
    },
    /// Fill with zeros.
    Zero {
        /// Memory of the result.
        to: Segment,
    },
}

/// Data strips of a stripe, each with its exponent.
pub type Sources = SmallVec<[Source; 4]>;

/// A data strip of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// Power of the generator that multiplies it in Q.
    pub exponent: u8,
    /// Memory of the strip.
    pub part: Segment,
}

/// Stored parities that disagree with the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Differs {
    /// P.
    pub p: bool,
    /// Q.
    pub q: bool,
}

/// Something worth telling people. Never needed for correctness.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Notice {
    /// The superblocks say clean, durably.
    ArrayClean(VolumeId),
    /// The superblocks say dirty, durably: writes may be in flight from here.
    ArrayDirty(VolumeId),
    /// Too few members are left. No more writes; the members stay as they were.
    Broken(VolumeId),
    /// A member failed, or was declared failed.
    MemberFailed {
        /// The volume.
        volume: VolumeId,
        /// The member.
        member: MemberIndex,
        /// Its slot.
        slot: Option<Slot>,
    },
    /// The failure of a member is recorded on the others, durably.
    FailureRecorded {
        /// The volume.
        volume: VolumeId,
    },
    /// A member has not answered for a long time.
    MemberStalled {
        /// The member.
        member: MemberIndex,
        /// Whether reads go round it now.
        read_around: bool,
    },
    /// No space behind a member; the volume takes no writes until there is.
    NoSpace {
        /// The member.
        member: MemberIndex,
    },
    /// A strip that could not be read was computed from the others and written again.
    ReadErrorCorrected {
        /// The member.
        member: MemberIndex,
        /// First absolute sector.
        at: Sectors,
        /// Length in sectors.
        sectors: Sectors,
    },
    /// Resync ended.
    SyncFinished {
        /// The volume.
        volume: VolumeId,
        /// Kind of the pass: resync, recovery, check or repair.
        action: SyncAction,
        /// Sectors whose parity disagreed, in md's counting.
        mismatch_cnt: u64,
        /// Stripes looked at.
        stripes: u64,
        /// Whether it reached the end.
        complete: bool,
    },
    /// The write-back cache could not write to a volume: the pages stay dirty and are tried again
    /// every second. Once until it works again.
    WriteBackFailed {
        /// The volume.
        volume: VolumeId,
        /// First byte of what was not written.
        at: u64,
        /// Error of the volume.
        error: ReplyError,
    },
    /// The write-back cache can write to a volume again.
    WriteBackWorks(VolumeId),
    /// Resync began.
    SyncStarted {
        /// The volume.
        volume: VolumeId,
        /// Kind of the pass: resync, recovery, check or repair.
        action: SyncAction,
    },
}
