//! Inputs of the engine: everything that can make it move. Closed on purpose.

use weft_ondisk::{NewBitmap, Superblock};
use weft_units::{ByteRange, Bytes, ClientId, MemberIndex, VolumeId};

use crate::contract::frame::Run;
use crate::contract::member::MemberInfo;
use crate::contract::output::Differs;
use crate::contract::token::{Tag, Token};
use crate::knobs::Knob;

/// Something that has happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// A client asks for something. Its frames are the engine's until they come back.
    Client(ClientRequest),
    /// A connection is gone. What it asked for still finishes; its frames come back. Answers that
    /// were decided before this was looked at may still come, with the frames of a read as usual.
    ClientGone(ClientId),
    /// The one answer to a `Submit` or a `Compute`. A `Compute` has no way to fail: a driver that
    /// cannot carry one out must stop, and answer nobody.
    Done {
        /// Token of the order.
        token: Token,
        /// Result of the order.
        result: Result<Value, Fault>,
    },
    /// The time asked for by `next_wake` has come. Harmless when it has not.
    Wake,
    /// An administrator asks for something.
    Admin(Box<Command>),
}

/// Request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientRequest {
    /// The client.
    pub client: ClientId,
    /// The client's name for it.
    pub tag: Tag,
    /// The volume.
    pub volume: VolumeId,
    /// Operation.
    pub op: RequestOp,
    /// Range in bytes. Empty for a flush. A range outside the volume is answered with an error.
    pub range: ByteRange,
    /// Payload of a write, or room for that of a read; [`crate::frames_needed`] says how many and
    /// how the bytes sit in them. Empty for the other operations.
    pub frames: Run,
    /// Flags of the request.
    pub flags: Flags,
    /// On whose behalf, for the schedulers. Travels down to the member.
    pub attr: Attr,
}

impl ClientRequest {
    /// Bytes of its client's credit that the request takes until it is answered.
    #[must_use]
    pub fn payload(&self) -> Bytes {
        if self.frames.count > 0 { self.range.len } else { Bytes::ZERO }
    }
}

/// Operation on the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestOp {
    /// Make earlier acknowledged writes durable.
    Flush,
    /// Fill the frames.
    Read,
    /// Store the frames.
    Write,
    /// Nothing of the range is needed any more. Advice: where it is taken, in full stripes whose
    /// members all discard, the range reads as zeroes; the rest keeps what it has.
    Trim,
    /// Store zeros.
    WriteZeroes,
}

/// Flags of a request, as the block layer has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flags {
    /// Somebody waits for it: do not delay it for more of its stripe (`REQ_SYNC`).
    pub sync: bool,
    /// Durable before it is acknowledged (`REQ_FUA`).
    pub fua: bool,
    /// Earlier acknowledged writes are durable before this one starts (`REQ_PREFLUSH`).
    pub preflush: bool,
    /// Metadata of whoever sits above (`REQ_META`).
    pub meta: bool,
    /// Of zeroes: nothing needs to be stored for the range (`!REQ_NOUNMAP`). Arrays store what is
    /// not a full stripe.
    pub discard: bool,
    /// Readahead: may be refused when it would have to wait (`REQ_RAHEAD`).
    pub ahead: bool,
    /// A read that was answered [`crate::ReplyError::Stalled`], asked again: it goes through the
    /// cache, whose memory a member that stalls once more may go on filling, so that it is not
    /// answered so again.
    pub again: bool,
}

impl Flags {
    /// None set.
    pub const NONE: Self = Self {
        sync: false,
        fua: false,
        preflush: false,
        meta: false,
        discard: false,
        ahead: false,
        again: false,
    };
}

/// On whose behalf a member request is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attr {
    /// I/O class and level.
    pub class: Class,
    /// Relative weight; 0 for the default.
    pub weight: u16,
    /// Origin of the request.
    pub origin: Origin,
    /// Nobody waits for it: write-back of a cache. The kernel calls such writes asynchronous.
    pub background: bool,
    /// Metadata of whoever sits above (`REQ_META`).
    pub meta: bool,
}

impl Attr {
    /// The array's own bookkeeping.
    pub const NONE: Self = Self {
        class: Class::None,
        weight: 0,
        origin: Origin::Metadata,
        background: false,
        meta: false,
    };
}

/// I/O class, as ioprio.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Class {
    /// Best effort, level 0 (high) to 7.
    BestEffort(u8),
    /// Only when nobody else wants the member.
    Idle,
    /// None given.
    #[default]
    None,
    /// Before everybody else, level 0 (high) to 7.
    RealTime(u8),
}

/// Origin of a member request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A client.
    Client(ClientId),
    /// The array's own bookkeeping: superblocks, rewrites after a read error.
    #[default]
    Metadata,
    /// Resync, recovery, check or repair.
    Sync,
}

/// Value of a `Submit` or `Compute` that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Done, without a result.
    Nothing,
    /// Of `Compare`: which of the stored parities disagree with the data.
    Differs(Differs),
    /// Of `Locate`: the one strip that explains every difference.
    Located(Located),
}

/// Strip of a stripe that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Located {
    /// None.
    Clean,
    /// The data strip at this position of the operation's list.
    Data(u16),
    /// P.
    P,
    /// Q.
    Q,
    /// No single strip explains what differs.
    Unknown,
}

/// Reason why a member request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The driver gave up after [`crate::Output::Abort`]. Nothing is known of the range.
    Aborted,
    /// The member is gone as a whole.
    Gone,
    /// An I/O error: of this range, as far as is known.
    Io,
    /// No space behind the member (a file on a full file system). The member itself is well.
    NoSpace,
}

/// An administrator's command. Answered by a reply like a request.
#[derive(Clone, Debug)]
pub struct Command {
    /// Client that asks; any id, also one that never sent a request.
    pub client: ClientId,
    /// The asker's name for it.
    pub tag: Tag,
    /// The volume.
    pub volume: VolumeId,
    /// Verb of the command.
    pub verb: Verb,
}

/// Commands of an administrator. Each is a state that turns other work off, not a procedure.
#[derive(Clone, Debug)]
pub enum Verb {
    /// Take in a new member as a spare; it is rebuilt at once if a slot is missing. A former member
    /// is taken back as by [`Verb::ReAdd`] where that can be.
    Add {
        /// The opened member, with a fresh index.
        member: MemberInfo,
        /// Superblock of a former member of this array, if it has one.
        superblock: Option<Box<Superblock>>,
        /// Its device uuid if it has no superblock; the engine has no randomness.
        device_uuid: weft_ondisk::Uuid,
    },
    /// Take a former member back into its slot, where no more is copied to it than the write-intent
    /// bitmap says. Refused where that cannot be.
    ReAdd {
        /// The opened member, with a fresh index.
        member: MemberInfo,
        /// Its superblock.
        superblock: Box<Superblock>,
    },
    /// Declare a member failed.
    Fail(MemberIndex),
    /// Declare members failed: all of them, or none when too few would be left.
    FailAll(Box<[MemberIndex]>),
    /// Stop a running sync (`idle`); keep a new one from starting as well (`frozen`).
    /// Or start one: `check`, `repair`, `resync`.
    SyncAction(SyncAction),
    /// Forget a failed member or a spare, whose file may then be closed.
    Remove(MemberIndex),
    /// Change a knob.
    Set(Knob),
    /// Give the array a write-intent bitmap, or take it away; no effect where that is so already.
    /// Refused while a sync runs, and where a member has no room for one.
    SetBitmap(Option<NewBitmap>),
    /// Finish, flush, mark clean; answered when the members may be closed. Later requests fail.
    Stop,
}

/// md's `sync_action` words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SyncAction {
    /// Read every stripe and count those whose parity disagrees.
    Check,
    /// None, and none is to start.
    Frozen,
    /// None.
    Idle,
    /// Fill a new or returned member.
    Recover,
    /// Read every stripe and rewrite parity that disagrees.
    Repair,
    /// The same after an unclean stop, from where it stopped.
    Resync,
}
