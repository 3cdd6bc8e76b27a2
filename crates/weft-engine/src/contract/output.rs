//! Outputs of the engine: everything that a driver must do.

use smallvec::SmallVec;
use weft_units::{Bytes, ClientId, MemberIndex, Sectors, Slot, VolumeId};

use crate::contract::error::ReplyError;
use crate::contract::frame::{Run, Segment, Segments};
use crate::contract::input::{Attr, SyncAction};
use crate::contract::token::{Tag, Token};

/// An action for the driver. The order within one drain has no meaning, except that a `Reply`
/// follows the `Submit`s it depends on; it does by construction, because it waits for their `Done`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// Start a member request. Answer with one `Done`.
    Submit {
        /// Token that its `Done` carries.
        token: Token,
        /// The member.
        member: MemberIndex,
        /// Operation on the member.
        op: MemberOp,
        /// Class and origin of the request.
        attr: Attr,
    },
    /// Compute over frames: these operations in order, as one. Answer with one `Done` that has the
    /// value of the last operation.
    Compute {
        /// Token that its `Done` carries.
        token: Token,
        /// Computations, in order.
        ops: Vec<ComputeOp>,
    },
    /// Give up an outstanding request. It still gets its one `Done`, now or later.
    Abort(Token),
    /// Answer a client or an administrator.
    Reply {
        /// The client.
        client: ClientId,
        /// Tag of the request.
        tag: Tag,
        /// Result of the request. The frames of a successful read return to the driver with this
        /// reply; all others return by `Release`, possibly later.
        result: Result<(), ReplyError>,
    },
    /// The frames of a request return to the driver: of a write, of a failed read, or of a client
    /// that is gone.
    Release(Run),
    /// A client may send this much more payload: the credit of an answered request.
    Credit {
        /// The client.
        client: ClientId,
        /// Credit in bytes.
        bytes: Bytes,
    },
    /// Information for logs, metrics and checkers.
    Notice(Notice),
}

/// A request to one member. Positions are absolute sectors of the member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MemberOp {
    /// Store nothing for a range, which then reads as zeroes. If the member cannot do that, or
    /// fails to, the driver stores zeros, because the engine relies on them. An error says that
    /// they could not be stored either.
    Discard {
        /// First sector.
        at: Sectors,
        /// Length in sectors.
        len: Sectors,
        /// Durable before `Done`.
        fua: bool,
    },
    /// Make every write that completed earlier durable.
    Flush,
    /// Read into the parts.
    Read {
        /// First sector.
        at: Sectors,
        /// Memory that is written, in order.
        into: Segments,
    },
    /// Write from the parts.
    Write {
        /// First sector.
        at: Sectors,
        /// Memory that is read, in order.
        from: Segments,
        /// Durable before `Done`.
        fua: bool,
    },
    /// Store metadata: everything before it is made durable first, and it is durable before `Done`
    /// (md: `REQ_PREFLUSH | REQ_FUA`).
    WriteMetadata {
        /// First sector.
        at: Sectors,
        /// Bytes to store, a multiple of the member's logical block.
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
        /// Source.
        from: Segment,
        /// Destination.
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
        /// The data strips that are present.
        data: Sources,
        /// Stored P.
        p: Option<Segment>,
        /// Stored Q.
        q: Option<Segment>,
        /// One or two lost data strips, with the memory for their content.
        lost: SmallVec<[Source; 2]>,
    },
    /// Exchange one data strip's share in the parity: `p ^= old ^ new`,
    /// `q ^= g^exponent (old ^ new)`.
    UpdatePq {
        /// Exponent of the data strip.
        exponent: u8,
        /// Old content of the strip.
        old: Segment,
        /// New content of the strip.
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

/// Information for people. Never needed for correctness.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Notice {
    /// The superblocks durably record clean.
    ArrayClean(VolumeId),
    /// The superblocks durably record dirty: writes may be in flight from here.
    ArrayDirty(VolumeId),
    /// Too few members are left. Writes have stopped; the members stay as they were.
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
        /// Whether reads go around it now.
        read_around: bool,
    },
    /// A member has no space; the volume takes no writes until it has.
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
    /// A sync ended.
    SyncFinished {
        /// The volume.
        volume: VolumeId,
        /// Kind of the pass: resync, recovery, check or repair.
        action: SyncAction,
        /// Sectors with parity that disagreed, in md's counting.
        mismatch_cnt: u64,
        /// Stripes covered.
        stripes: u64,
        /// Whether it reached the end.
        complete: bool,
    },
    /// The write-back cache could not write to a volume: the pages stay dirty and are tried again
    /// every second. Sent once until it works again.
    WriteBackFailed {
        /// The volume.
        volume: VolumeId,
        /// First byte that was not written.
        at: u64,
        /// Error of the volume.
        error: ReplyError,
    },
    /// The write-back cache can write to a volume again.
    WriteBackWorks(VolumeId),
    /// A sync began.
    SyncStarted {
        /// The volume.
        volume: VolumeId,
        /// Kind of the pass: resync, recovery, check or repair.
        action: SyncAction,
    },
}
