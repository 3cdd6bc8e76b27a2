//! Inputs of the engine: everything that can change its state. The list is closed on purpose.

use std::cmp::Reverse;

use weft_ondisk::{NewBitmap, Superblock};
use weft_units::{ByteRange, Bytes, ClientId, Group, MemberIndex, VolumeId};

use crate::contract::frame::Run;
use crate::contract::member::MemberInfo;
use crate::contract::output::Differs;
use crate::contract::token::{Tag, Token};
use crate::knobs::Knob;

/// An event that the engine handles.
#[derive(Clone, Debug)]
pub enum Input {
    /// A client sends a request. Its frames belong to the engine until they come back.
    Client(ClientRequest),
    /// A connection is gone. Its requests still finish, and their frames come back. Answers that
    /// were decided before this input was handled may still come, with the frames of a read as
    /// usual.
    ClientGone(ClientId),
    /// The one answer to a `Submit` or a `Compute`. A `Compute` cannot fail: a driver that cannot
    /// carry one out must stop, without an answer.
    Done {
        /// Token of the order.
        token: Token,
        /// Result of the order.
        result: Result<Value, Fault>,
    },
    /// The time asked for by `next_wake` has come. Harmless if it has not.
    Wake,
    /// An administrator sends a command.
    Admin(Box<Command>),
}

/// Request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientRequest {
    /// The client.
    pub client: ClientId,
    /// Tag of the request.
    pub tag: Tag,
    /// The volume.
    pub volume: VolumeId,
    /// Operation.
    pub op: RequestOp,
    /// Range in bytes. Empty for a flush. A range outside the volume is answered with an error.
    pub range: ByteRange,
    /// Payload of a write, or room for that of a read; [`crate::frames_needed`] gives the number of
    /// frames and the place of the bytes in them. Empty for the other operations.
    pub frames: Run,
    /// Flags of the request.
    pub flags: Flags,
    /// Attributes for the schedulers, passed down to the members.
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
    /// Read into the frames.
    Read,
    /// Write from the frames.
    Write,
    /// The range is not needed any more. This is advice: where it is followed, in full stripes that
    /// all members discard, the range reads as zeroes; the rest keeps its content.
    Trim,
    /// Store zeros.
    WriteZeroes,
}

/// Flags of a request, as the block layer has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flags {
    /// A client waits for it: do not delay it for more of its stripe (`REQ_SYNC`).
    pub sync: bool,
    /// Durable before it is acknowledged (`REQ_FUA`).
    pub fua: bool,
    /// Earlier acknowledged writes are durable before this one starts (`REQ_PREFLUSH`).
    pub preflush: bool,
    /// Metadata of the layer above (`REQ_META`).
    pub meta: bool,
    /// For zeroes: nothing needs to be stored for the range (`!REQ_NOUNMAP`). Arrays still store
    /// the parts that are not full stripes.
    pub discard: bool,
    /// Readahead: may be refused if it would have to wait (`REQ_RAHEAD`).
    pub ahead: bool,
    /// Repeats a read that was answered [`crate::ReplyError::Stalled`]. The read goes through the
    /// cache. A member that stalls once more may go on filling the cache's memory, so the read is
    /// not answered that way again.
    pub again: bool,
}

impl Flags {
    /// No flag set.
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

/// Attributes of a member request: the party that it is charged to, and its scheduling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attr {
    /// I/O class and level.
    pub class: Class,
    /// Relative weight; 0 for the default.
    pub weight: u16,
    /// Origin of the request.
    pub origin: Origin,
    /// Purpose of the request, set by the engine whatever a client's request has.
    pub purpose: Purpose,
    /// Account in the counters of members, set by the engine whatever a client's request has.
    pub account: Account,
    /// No client waits for it: write-back of a cache. The kernel calls such writes asynchronous.
    pub background: bool,
    /// Metadata of the layer above (`REQ_META`).
    pub meta: bool,
}

impl Attr {
    /// Attributes of the array's own bookkeeping.
    pub const NONE: Self = Self {
        class: Class::None,
        weight: 0,
        origin: Origin::Metadata,
        purpose: Purpose::Metadata,
        account: Account::METADATA,
        background: false,
        meta: false,
    };

    /// Attributes of a resync, recovery, check or repair, in this class.
    pub(crate) const fn sync(class: Class) -> Self {
        let (origin, account) = (Origin::Sync, Account::SYNC);
        Self { class, origin, account, ..Self::NONE.with(Purpose::Resync) }
    }

    /// Copy of these attributes with another purpose.
    #[inline(always)]
    pub(crate) const fn with(self, purpose: Purpose) -> Self {
        Self { purpose, ..self }
    }

    /// The attributes that schedulers see when several requests want one thing: those of the higher
    /// class, then of the larger weight, then of `self`, which came first. The result is background
    /// only if both are.
    #[must_use]
    pub fn stronger(self, other: Self) -> Self {
        let rank = |attr: &Self| (attr.class.rank(), Reverse(attr.class.weight(attr.weight)));
        let stronger = if rank(&other) < rank(&self) { other } else { self };
        let background = self.background && other.background;
        let purpose = if background { stronger.purpose } else { Purpose::User };
        Self { background, purpose, meta: self.meta || other.meta, ..stronger }
    }
}

/// Number of an account in the counters of members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account(pub(crate) u8);

impl Account {
    /// Account of the array's own bookkeeping.
    pub(crate) const METADATA: Self = Self(0);
    /// Account of resync, recovery, check and repair.
    pub(crate) const SYNC: Self = Self(1);
    /// Account of clients without one of their own; those of single clients follow.
    pub(crate) const OTHERS: Self = Self(2);
}

/// Purpose of a member request. Its operation says whether it reads or writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// The array's own bookkeeping: superblocks, bitmaps, flushes, strips written again after a
    /// read error.
    #[default]
    Metadata,
    /// Parity that a client's write changed.
    Parity,
    /// Strips that a client did not name, read to compute parity from all data, or to compute a
    /// strip that a member cannot supply.
    Reconstruct,
    /// Resync, recovery, check or repair.
    Resync,
    /// Old data and old parity, read for a read-modify-write.
    RmwRead,
    /// Data that a client reads or writes, at its place.
    User,
    /// Data that a cache writes back, with no client waiting.
    WriteBack,
}

impl Purpose {
    /// Every purpose, in order.
    pub const ALL: [Self; 7] = [
        Self::Metadata,
        Self::Parity,
        Self::Reconstruct,
        Self::Resync,
        Self::RmwRead,
        Self::User,
        Self::WriteBack,
    ];

    /// Its name in JSON and tables.
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

/// I/O class, as ioprio.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Class {
    /// Best effort, level 0 (high) to 7.
    BestEffort(u8),
    /// Served only when no other request wants the member.
    Idle,
    /// No class given.
    #[default]
    None,
    /// Served before all other requests, level 0 (high) to 7.
    RealTime(u8),
}

impl Class {
    /// Level within the class, 0 (high) to 7; 4 if none is given.
    #[must_use]
    pub const fn level(self) -> u8 {
        match self {
            Self::BestEffort(level @ 0..=7) | Self::RealTime(level @ 0..=7) => level,
            Self::BestEffort(_) | Self::RealTime(_) | Self::Idle => 7,
            Self::None => 4,
        }
    }

    /// Weight of a request with this class: the given weight or, if that is 0, the weight of the
    /// level, as in BFQ.
    #[must_use]
    pub const fn weight(self, given: u16) -> u16 {
        if given == 0 { (8 - self.level() as u16) * 10 } else { given }
    }

    /// Rank of the class, highest first; no class counts as the middle of best effort.
    const fn rank(self) -> (u8, u8) {
        match self {
            Self::RealTime(level) => (0, level),
            Self::BestEffort(level) => (1, level),
            Self::None => (1, 4),
            Self::Idle => (2, 0),
        }
    }
}

/// Origin of a member request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A client, of a group of clients.
    Client(ClientId, Group),
    /// The array's own bookkeeping: superblocks, rewrites after a read error.
    #[default]
    Metadata,
    /// Resync, recovery, check or repair.
    Sync,
}

impl Origin {
    /// Group that the request's share of members belongs to; the array's own work is in the root
    /// group.
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
    /// Done, without a result.
    Nothing,
    /// Result of `Compare`: the stored parities that disagree with the data.
    Differs(Differs),
    /// Result of `Locate`: the one strip that explains every difference.
    Located(Located),
}

/// Location of the wrong strip of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Located {
    /// No strip is wrong.
    Clean,
    /// The data strip at this position of the operation's list.
    Data(u16),
    /// P.
    P,
    /// Q.
    Q,
    /// No single strip explains the differences.
    Unknown,
}

/// Reason why a member request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The driver gave up after [`crate::Output::Abort`]. Nothing is known of the range.
    Aborted,
    /// The member is gone as a whole.
    Gone,
    /// An I/O error, of this range as far as is known.
    Io,
    /// The member has no space (a file on a full file system). The member itself is well.
    NoSpace,
}

/// An administrator's command. Answered by a reply like a request.
#[derive(Clone, Debug)]
pub struct Command {
    /// Client that sends it; any id, even one that never sent a request.
    pub client: ClientId,
    /// Tag of the command.
    pub tag: Tag,
    /// The volume.
    pub volume: VolumeId,
    /// Verb of the command.
    pub verb: Verb,
}

/// Commands of an administrator. Each sets a state in which other work stops; none is a procedure.
#[derive(Clone, Debug)]
pub enum Verb {
    /// Add a new member as a spare; it is rebuilt at once if a slot is missing. A former member is
    /// taken back as by [`Verb::ReAdd`] where that is possible.
    Add {
        /// The opened member, with a fresh index.
        member: MemberInfo,
        /// Superblock of a former member of this array, if it has one.
        superblock: Option<Box<Superblock>>,
        /// Device uuid of a member without a superblock; the engine has no randomness.
        device_uuid: weft_ondisk::Uuid,
    },
    /// Take a former member back into its slot, and copy only what the write-intent bitmap names.
    /// Refused where that is not possible.
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
    /// Forget a failed member or a spare. Its file may then be closed.
    Remove(MemberIndex),
    /// Change a knob. A knob of queues is changed for every member, also where one had its own
    /// value.
    Set(Knob),
    /// Change a knob of the queues of these members alone: of all of them, or of none if one is
    /// unknown. Refused for other knobs.
    SetQueues {
        /// The members.
        members: Box<[MemberIndex]>,
        /// Knob of queues.
        knob: Knob,
    },
    /// Add a write-intent bitmap to the array, or remove it; no effect if that is so already.
    /// Refused while a sync runs, and if a member has no room for a bitmap.
    SetBitmap(Option<NewBitmap>),
    /// Write all dirty pages of the write-back cache while the volume goes on. Every page is tried;
    /// the answer names those that could not be written ([`ReplyError::Unwritten`]), which stay
    /// dirty.
    ///
    /// [`ReplyError::Unwritten`]: super::error::ReplyError::Unwritten
    Drain,
    /// Finish, flush and mark clean; answered when the members may be closed. Later requests fail.
    /// Every dirty page of the write-back cache is tried; the answer names those that are given up.
    Stop,
}

/// md's `sync_action` words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SyncAction {
    /// Read every stripe and count those with parity that disagrees.
    Check,
    /// No sync runs, and none may start.
    Frozen,
    /// No sync runs.
    Idle,
    /// Fill a new or returned member.
    Recover,
    /// Read every stripe and rewrite parity that disagrees.
    Repair,
    /// Repair after an unclean stop, from where the last one stopped.
    Resync,
    /// Read every stripe of a RAID 6 and rewrite the one strip that is wrong by P and Q. Stripes
    /// that no strip alone explains are counted and stay as they are. md leaves this to
    /// `raid6check`.
    Correct,
}

/// Client id that no driver uses: the client of writes by the write-back cache, and of the account
/// that clients without one share.
pub(crate) const NOBODY: ClientId = ClientId(u32::MAX);

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
