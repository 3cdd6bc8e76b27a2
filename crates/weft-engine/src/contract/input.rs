//! Inputs of the engine: everything that can change its state. The list is closed on purpose.

use std::cmp::Reverse;

use weft_ondisk::{BadBlocks, NewBitmap, Superblock};
use weft_units::{ByteRange, Bytes, ClientId, Group, MemberIndex, Sectors, VolumeId};

use crate::contract::frame::Run;
use crate::contract::member::MemberInfo;
use crate::contract::output::Differs;
use crate::contract::token::{Tag, Token};
use crate::knobs::Knob;

/// An event that the engine handles.
#[derive(Clone, Debug)]
pub enum Input {
    /// A client sends a request. Its frames belong to the engine until an output returns them.
    Client(ClientRequest),
    /// A client has disconnected. Its requests still finish, and their frames are returned. Replies
    /// that were decided before this input was handled may still be sent; such a reply returns the
    /// frames of a read as usual.
    ClientGone(ClientId),
    /// Answer to a `Submit` or a `Compute`, each of which gets exactly one. A `Compute` cannot
    /// fail: a driver that cannot carry one out must stop without an answer.
    Done {
        /// Token of the `Submit` or `Compute`.
        token: Token,
        /// Value of the operation, or fault of the member.
        result: Result<Value, Fault>,
    },
    /// The time returned by [`crate::Engine::next_wake`] has come. Harmless if sent too early.
    Wake,
    /// An administrator sends a command.
    Admin(Box<Command>),
}

/// Request of a client to a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientRequest {
    /// Client that sends the request.
    pub client: ClientId,
    /// Tag of the request, unique among the client's outstanding requests.
    pub tag: Tag,
    /// Volume that the request is for.
    pub volume: VolumeId,
    /// Operation on the range.
    pub op: RequestOp,
    /// Byte range in the volume; empty for a flush. A range outside the volume is answered with an
    /// error.
    pub range: ByteRange,
    /// Frames with the payload of a write, or for the payload of a read. [`crate::frames_needed`]
    /// returns their number and describes the position of the payload in them. Empty for all other
    /// operations.
    pub frames: Run,
    /// Flags that change how the request is carried out.
    pub flags: Flags,
    /// Attributes of the request: class, weight and origin. Its member requests carry them to the
    /// schedulers of the members.
    pub attr: Attr,
}

impl ClientRequest {
    /// Number of bytes that the request takes from its client's credit until it is answered. Zero
    /// for a request without payload.
    #[must_use]
    pub fn payload(&self) -> Bytes {
        if self.frames.count > 0 { self.range.len } else { Bytes::ZERO }
    }
}

/// Operation of a client request on its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestOp {
    /// Make every earlier acknowledged write durable.
    Flush,
    /// Read into the frames.
    Read,
    /// Write from the frames.
    Write,
    /// Discard the range, which the client no longer needs; the request is only advice. If all
    /// members can discard, the full stripes of the range read as zeroes afterwards. The rest of
    /// the range keeps its content.
    Trim,
    /// Store zeros in the range.
    WriteZeroes,
}

/// Flags of a request, named as in the block layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flags {
    /// The client waits for the request: do not delay it to collect more data of its stripe
    /// (`REQ_SYNC`).
    pub sync: bool,
    /// Make the write durable before it is acknowledged (`REQ_FUA`).
    pub fua: bool,
    /// Make every earlier acknowledged write durable before this request starts (`REQ_PREFLUSH`).
    pub preflush: bool,
    /// The data is metadata of a file system or other layer above (`REQ_META`).
    pub meta: bool,
    /// For `WriteZeroes`: the range may be unmapped instead of written (`!REQ_NOUNMAP`). Parity
    /// levels still write zeros to the parts that are not full stripes.
    pub discard: bool,
    /// Readahead (`REQ_RAHEAD`): the read may be refused if it would have to wait. At present the
    /// engine never refuses it.
    pub ahead: bool,
    /// Repeats a read that was answered with [`crate::ReplyError::Stalled`]. The read goes through
    /// the stripe cache, so a member that stalls again may keep writing into the cache's memory but
    /// not into the request's frames. Hence the read is never answered with `Stalled` a second
    /// time.
    pub again: bool,
}

impl Flags {
    /// No flags.
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

/// Attributes of a member request: its scheduling, its origin, and the account to which it is
/// charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attr {
    /// I/O class and level, as with `ioprio`.
    pub class: Class,
    /// Relative weight in the scheduler; 0 for the default weight of the class and level.
    pub weight: u16,
    /// Origin of the request: a client, the array itself or a sync.
    pub origin: Origin,
    /// Purpose of the request. The engine sets it and ignores the value in a client's request.
    pub purpose: Purpose,
    /// Account in which the sectors are counted. The engine sets it and ignores the value in a
    /// client's request.
    pub account: Account,
    /// Whether no client waits for the request, because a cache writes back. The kernel calls such
    /// writes asynchronous.
    pub background: bool,
    /// The data is metadata of a file system or other layer above (`REQ_META`).
    pub meta: bool,
}

impl Attr {
    /// Attributes of the array's own bookkeeping: superblocks and bitmaps.
    pub const NONE: Self = Self {
        class: Class::None,
        weight: 0,
        origin: Origin::Metadata,
        purpose: Purpose::Metadata,
        account: Account::METADATA,
        background: false,
        meta: false,
    };

    /// Attributes for the member requests of a sync, in I/O class `class`.
    pub(crate) const fn sync(class: Class) -> Self {
        let (origin, account) = (Origin::Sync, Account::SYNC);
        Self { class, origin, account, ..Self::NONE.with(Purpose::Resync) }
    }

    /// Copy of these attributes with another purpose.
    #[inline(always)]
    pub(crate) const fn with(self, purpose: Purpose) -> Self {
        Self { purpose, ..self }
    }

    /// Attributes for a member request that serves two client requests: those of the request with
    /// the higher class or, at equal class, with the larger weight, or of `self`, the first
    /// request, if both are equal. The result is background only if both requests are, and metadata
    /// if either is.
    #[must_use]
    pub fn stronger(self, other: Self) -> Self {
        let rank = |attr: &Self| (attr.class.rank(), Reverse(attr.class.weight(attr.weight)));
        let stronger = if rank(&other) < rank(&self) { other } else { self };
        let background = self.background && other.background;
        let purpose = if background { stronger.purpose } else { Purpose::User };
        Self { background, purpose, meta: self.meta || other.meta, ..stronger }
    }
}

/// Number of an account. Each member counts the sectors that it reads and writes by account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account(pub(crate) u8);

impl Account {
    /// Account of the array's own bookkeeping.
    pub(crate) const METADATA: Self = Self(0);
    /// Account of resync, recovery, check and repair.
    pub(crate) const SYNC: Self = Self(1);
    /// Account shared by all clients without an account of their own. The accounts of single
    /// clients have the numbers after this one.
    pub(crate) const OTHERS: Self = Self(2);
}

/// Purpose of a member request. Whether the request is a read or a write follows from its
/// operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// The array's own bookkeeping: superblocks, bitmaps, flushes, and strips that are rewritten
    /// after a read error.
    #[default]
    Metadata,
    /// Parity that a client's write changed.
    Parity,
    /// Strips outside of the client's range that are read to compute parity from all data, or to
    /// compute a strip that its member cannot supply.
    Reconstruct,
    /// Resync, recovery, check or repair.
    Resync,
    /// Old data and old parity, read for a read-modify-write.
    RmwRead,
    /// The data that a client reads or writes.
    User,
    /// Data that a cache writes back while no client waits for it.
    WriteBack,
}

impl Purpose {
    /// Every purpose, in the order of the counters.
    pub const ALL: [Self; 7] = [
        Self::Metadata,
        Self::Parity,
        Self::Reconstruct,
        Self::Resync,
        Self::RmwRead,
        Self::User,
        Self::WriteBack,
    ];

    /// Name of the purpose in JSON and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Metadata => "metadata",
            Self::Parity => "parity",
            Self::Reconstruct => "reconstruct",
            Self::Resync => "resync",
            Self::RmwRead => "rmw_read",
            Self::User => "user",
            Self::WriteBack => "write_back",
        }
    }
}

/// I/O class with its level, as in `ioprio`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Class {
    /// Best effort, level 0 (high) to 7.
    BestEffort(u8),
    /// Served only when no other request waits for the member.
    Idle,
    /// No class given: scheduled as best effort, level 4.
    #[default]
    None,
    /// Served before all other requests, level 0 (high) to 7.
    RealTime(u8),
}

impl Class {
    /// Level within the class, 0 (high) to 7; 4 for [`Class::None`].
    #[must_use]
    pub const fn level(self) -> u8 {
        match self {
            Self::BestEffort(level @ 0..=7) | Self::RealTime(level @ 0..=7) => level,
            Self::BestEffort(_) | Self::RealTime(_) | Self::Idle => 7,
            Self::None => 4,
        }
    }

    /// Weight of a request with this class: `given` or, if that is 0, BFQ's weight for the level.
    #[must_use]
    pub const fn weight(self, given: u16) -> u16 {
        if given == 0 { (8 - self.level() as u16) * 10 } else { given }
    }

    /// Sort key of the class: the class with the smallest key is served first. [`Class::None`]
    /// ranks in the middle of best effort.
    const fn rank(self) -> (u8, u8) {
        match self {
            Self::RealTime(level) => (0, level),
            Self::BestEffort(level) => (1, level),
            Self::None => (1, 4),
            Self::Idle => (2, 0),
        }
    }
}

/// Origin of a member request: the client, the array's own work or the sync for which the request
/// is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A client, together with the group to which it belongs.
    Client(ClientId, Group),
    /// The array's own bookkeeping: superblocks, and rewrites after a read error.
    #[default]
    Metadata,
    /// Resync, recovery, check or repair.
    Sync,
}

impl Origin {
    /// Group that the request is charged to; the root group for the array's own work and for syncs.
    #[must_use]
    pub const fn group(self) -> Group {
        match self {
            Self::Client(_, group) => group,
            Self::Metadata | Self::Sync => Group::ROOT,
        }
    }
}

/// Value of a `Submit` or `Compute` that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// The operation has no result.
    Nothing,
    /// Result of `Compare`: the stored parities that disagree with the data.
    Differs(Differs),
    /// Result of `Locate`: the strip that alone explains every difference, if there is one.
    Located(Located),
}

/// Location of the wrong strip of a stripe, by [`crate::ComputeOp::Locate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Located {
    /// Data, P and Q agree: no strip is wrong.
    Clean,
    /// The data strip at this position in the operation's `data`.
    Data(u16),
    /// P is wrong.
    P,
    /// Q is wrong.
    Q,
    /// No single strip explains the differences.
    Unknown,
}

/// Reason for which a member request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The driver gave up the request after [`crate::Output::Abort`]. The range may or may not have
    /// been written.
    Aborted,
    /// The whole member is gone.
    Gone,
    /// An I/O error on this range. The rest of the member may be intact.
    Io,
    /// The member has no space, as happens to a file on a full file system. The member itself is
    /// intact.
    NoSpace,
}

/// Command of an administrator. It is answered by a `Reply`, like a request.
#[derive(Clone, Debug)]
pub struct Command {
    /// Client that sends the command. Any id may be used, even one that has never sent a request.
    pub client: ClientId,
    /// Tag of the command, given back in the reply.
    pub tag: Tag,
    /// Volume that the command is for.
    pub volume: VolumeId,
    /// Action that the command asks for.
    pub verb: Verb,
}

/// Metadata of a former member of an array, with which the member can be taken back.
#[derive(Clone, Debug)]
pub struct Former {
    /// Superblock of the member.
    pub superblock: Superblock,
    /// List of the member's bad-block log; empty if the member has none.
    pub bad_blocks: BadBlocks,
}

/// Commands of an administrator. Each changes the state of a volume, and other work may have to
/// stop before the volume reaches that state.
#[derive(Clone, Debug)]
pub enum Verb {
    /// Add a new member as a spare, which is rebuilt at once if a slot is empty. A former member is
    /// taken back as by [`Verb::ReAdd`] where that is possible.
    Add {
        /// The opened member, with an index that no member had before.
        member: MemberInfo,
        /// Metadata of the member; `None` if it is no former member of an array.
        former: Option<Box<Former>>,
        /// Device uuid for a member without a superblock. The driver chooses it, because the engine
        /// has no source of randomness.
        device_uuid: weft_ondisk::Uuid,
    },
    /// Take a former member back into its slot, and copy only the chunks that have their bit set in
    /// the write-intent bitmap. Refused where that is not possible.
    ReAdd {
        /// The opened member, with an index that no member had before.
        member: MemberInfo,
        /// Metadata of the member.
        former: Box<Former>,
    },
    /// Declare a member failed.
    Fail(MemberIndex),
    /// Declare several members failed at once: all of them, or none if too few members would
    /// remain.
    FailAll(Box<[MemberIndex]>),
    /// Fill a spare beside a member that still works, and let it take the member's slot at the end.
    /// The member counts as failed from then on.
    Replace(Replace),
    /// Change the shape of the array. The answer is sent when the array has its new shape or, if
    /// data has to be copied to reach that shape, when superblocks record that the reshape has
    /// begun.
    Grow(Growth),
    /// Start or stop a sync. `check`, `repair`, `resync` and `correct` start one; `recover` and
    /// `reshape` let a recovery or reshape start again that was frozen or has failed. `idle` stops
    /// a running sync, and `frozen` also prevents a new one from starting.
    SyncAction(SyncAction),
    /// Start a check, repair or correction of a range of sectors, as with md's `sync_min` and
    /// `sync_max`. The sync ends at the end of the range.
    SyncRange {
        /// [`SyncAction::Check`], [`SyncAction::Repair`] or [`SyncAction::Correct`].
        action: SyncAction,
        /// First sector, counted as in [`VolumeSnapshot::sync_completed`] and rounded down to a
        /// unit of the sync.
        ///
        /// [`VolumeSnapshot::sync_completed`]: super::snapshot::VolumeSnapshot::sync_completed
        from: Sectors,
        /// Sector at which the sync ends, counted in the same way and rounded up to a unit of the
        /// sync; `None`, and a sector beyond the end: the end of the array.
        to: Option<Sectors>,
    },
    /// Forget a failed member or a spare. The driver may then close its file.
    Remove(MemberIndex),
    /// Change a knob of the volume. A knob of member queues changes for every member, including
    /// members with a value of their own.
    Set(Knob),
    /// Change a knob of member queues for these members only: for all of them, or for none if one
    /// is unknown. Refused for other knobs.
    SetQueues {
        /// Members that get the new value.
        members: Box<[MemberIndex]>,
        /// The knob of member queues, with its new value.
        knob: Knob,
    },
    /// Add a write-intent bitmap to the array, or remove the bitmap with `None`. Has no effect if
    /// the array is already in that state. Refused while a sync runs, and if a member has no room
    /// for a bitmap.
    SetBitmap(Option<NewBitmap>),
    /// Write all dirty pages of the write-back cache while the volume stays in use. The cache tries
    /// to write every page; the answer lists the pages that could not be written
    /// ([`ReplyError::Unwritten`]), which stay dirty.
    ///
    /// [`ReplyError::Unwritten`]: super::error::ReplyError::Unwritten
    Drain,
    /// Finish all requests, flush, and mark the array clean. The answer is sent when the members
    /// may be closed. Later requests fail. The write-back cache tries to write every dirty page;
    /// the answer lists the pages that it gives up.
    Stop,
}

impl Verb {
    /// Whether the command changes the members, the bitmap or the shape of the array.
    pub(crate) fn changes_members(&self) -> bool {
        matches!(
            self,
            Self::Add { .. }
                | Self::ReAdd { .. }
                | Self::Replace(_)
                | Self::Grow(_)
                | Self::SetBitmap(_)
        )
    }
}

/// Member that is to be replaced while it works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Replace {
    /// Member in sync that is replaced.
    pub member: MemberIndex,
    /// Spare that replaces the member; `None`: the first free spare.
    pub with: Option<MemberIndex>,
}

/// Change of the shape of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// Slots, layout and chunk. An array with parity is reshaped; spares take additional slots. An
    /// array of RAID 1 gets more slots, or loses empty ones.
    Shape(ArrayShape),
    /// Data sectors of each member; `None`: as many as every member has room for.
    Size(Option<Sectors>),
}

/// Shape that an array is to have. A field that is `None` keeps its present value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArrayShape {
    /// Number of slots; `None`: unchanged.
    pub raid_disks: Option<u16>,
    /// md's number of the layout; `None`: unchanged.
    pub layout: Option<u32>,
    /// Size of a chunk; `None`: unchanged.
    pub chunk: Option<Sectors>,
}

/// Values of md's `sync_action`, and `correct`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SyncAction {
    /// Read everything, and count the units in which parity disagrees with the data, or copies with
    /// each other.
    Check,
    /// No sync runs, and none may be started.
    Frozen,
    /// No sync runs.
    Idle,
    /// Rebuild a new or returned member (md: `recover`).
    Recover,
    /// Read everything, and rewrite parity that disagrees with the data, and copies that disagree
    /// with the first one.
    Repair,
    /// Make parity or copies agree after an unclean stop, continuing where the last resync stopped.
    Resync,
    /// Go on with the reshape that is under way (md: `reshape`).
    Reshape,
    /// Read every stripe of a RAID 6 and rewrite the one strip that P and Q show to be wrong. On a
    /// mirror with three copies or more, read every copy and rewrite the copies that differ from
    /// more than half of all copies. Stripes in which no single strip explains the difference, and
    /// copies without such a majority, are counted and left unchanged. md leaves RAID 6 to
    /// `raid6check`, and has nothing for mirrors.
    Correct,
}

/// Client id that no driver uses. It stands for the write-back cache as the sender of writes, and
/// for the clients that share [`Account::OTHERS`].
pub(crate) const NO_CLIENT: ClientId = ClientId(u32::MAX);

#[cfg(test)]
mod tests {
    use super::*;

    fn attr(class: Class, weight: u16, client: u32) -> Attr {
        let origin = Origin::Client(ClientId(client), Group::ROOT);
        Attr { class, weight, origin, purpose: Purpose::User, ..Attr::NONE }
    }

    #[test]
    fn several_clients_of_one_stripe_are_charged_by_class_then_weight_then_arrival() {
        let light = attr(Class::None, 100, 1);
        let heavy = attr(Class::None, 400, 2);
        let urgent = attr(Class::RealTime(4), 1, 3);
        let idle = attr(Class::Idle, 1000, 4);
        assert_eq!(light.stronger(heavy), heavy);
        assert_eq!(heavy.stronger(light), heavy);
        assert_eq!(heavy.stronger(urgent), urgent);
        assert_eq!(idle.stronger(light), light);
        assert_eq!(light.stronger(attr(Class::None, 0, 9)), light, "no weight is that of most");
        assert_eq!(light.stronger(attr(Class::None, 100, 9)), light, "the first to come");
        assert_eq!(light.stronger(attr(Class::BestEffort(3), 1, 9)).class, Class::BestEffort(3));
        assert_eq!(light.stronger(attr(Class::BestEffort(5), 900, 9)), light);
    }

    #[test]
    fn what_one_of_several_waits_for_is_not_of_the_background() {
        let cache = Attr { background: true, ..attr(Class::None, 400, 1) }.with(Purpose::WriteBack);
        let waits = attr(Class::None, 100, 2);
        let both = cache.stronger(waits);
        assert_eq!((both.origin, both.background), (cache.origin, false));
        assert_eq!(both.purpose, Purpose::User);
        assert!(cache.stronger(cache).background);
    }

    #[test]
    fn every_purpose_has_a_name_of_its_own() {
        let mut names = Purpose::ALL.map(Purpose::name).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Purpose::ALL.len());
        assert!(Purpose::ALL.is_sorted());
    }
}
