//! Steps of a script, and the profiles from which they are drawn.

use weft_engine::{Flags, RequestOp, SyncAction};
use weft_units::VolumeId;

use crate::crash::CutMode;
use crate::faults::Planned;

/// One step of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptStep {
    /// An administrator adds a blank disk.
    Add,
    /// A client issues a request.
    Ask {
        /// Volume to which the request is sent.
        volume: VolumeId,
        /// Number of the client, from 1 to 3.
        client: u32,
        /// Operation of the request: read, write, flush and so on.
        op: RequestOp,
        /// First byte, from the start of the volume.
        start: u64,
        /// Length in bytes; 0 for a flush.
        len: u64,
        /// Flags of the request (sync, FUA, PREFLUSH and so on).
        flags: Flags,
    },
    /// The disk with this number is absent at the next start, and is there again at the start after
    /// that.
    Away(usize),
    /// An administrator adds a bitmap with chunks of this many bytes, or removes the bitmap.
    Bitmap(Option<u64>),
    /// The power is cut. After a restart everything is read.
    Cut(CutMode),
    /// The power is cut. Soon after the restart the power is cut again, or an administrator stops
    /// the array. After another restart everything is read.
    CutAgain {
        /// Rule that decides what survives each cut.
        mode: CutMode,
        /// Requests and computations that complete after the first restart.
        after: u32,
        /// Whether the array is stopped instead of the second cut.
        stop: bool,
    },
    /// The client with this number disconnects.
    Disconnect(u32),
    /// An administrator drains a volume's dirty data from the write-back cache.
    Drain(VolumeId),
    /// One operation of a disk fails, after some more operations.
    FailOperation {
        /// Number of the disk, from 0.
        disk: usize,
        /// Number of operations of the disk before the one that fails.
        after: u64,
        /// Way in which the operation fails.
        how: Planned,
    },
    /// The next discards of a disk fail.
    FailDiscards {
        /// Number of the disk, from 0.
        disk: usize,
        /// Number of discards that fail.
        count: u32,
    },
    /// An administrator declares the disk with this number failed.
    FailDisk(usize),
    /// An administrator re-adds a removed disk. With a bitmap, only the columns that the disk
    /// missed are copied.
    ReAdd(usize),
    /// A sector becomes unreadable, for good or until it is written.
    BadRead {
        /// Number of the disk, from 0.
        disk: usize,
        /// The sector, counted from the start of the disk's data area.
        column: u64,
        /// Whether the sector stays unreadable even after it is written.
        dead: bool,
    },
    /// The superblock of a disk becomes unreadable, for good or until it is written.
    BadSuperblock {
        /// Number of the disk, from 0.
        disk: usize,
        /// Whether the superblock stays unreadable even after it is written.
        dead: bool,
    },
    /// All further writes of a sector fail.
    BadWrite {
        /// Number of the disk, from 0.
        disk: usize,
        /// The sector, counted from the start of the disk's data area.
        column: u64,
    },
    /// Outstanding operations complete until all requests are answered. If requests need a disk
    /// that stalls, the stall ends.
    Finish,
    /// All further flushes of a disk fail, including those of metadata writes.
    FlushError(usize),
    /// The process crashes while the power stays on. After a restart everything is read.
    Kill,
    /// All further flushes of a disk succeed without effect.
    LyingFlush(usize),
    /// The power is cut. The array is started read-only and a write is tried, which must fail. Then
    /// the array is started normally and everything is read.
    Look(CutMode),
    /// Disks have no space for a while: longer than the time after which a failed write is tried
    /// again, and shorter than `no_space_wait`, after which the engine fails a member. Clients
    /// continue. Then there is space again, and soon every write and flush must succeed.
    LackSpace {
        /// Number of the first disk.
        first: usize,
        /// Number of disks from the first on; after the last disk follows disk 0.
        count: usize,
        /// Duration in seconds.
        seconds: u64,
    },
    /// A disk loses its space, or has space again if it had none.
    NoSpace(usize),
    /// An administrator removes a failed disk.
    Remove(usize),
    /// An administrator requests the replacement of a disk by the first spare.
    Replace(usize),
    /// An administrator adds a removed disk again, with its content.
    Return(usize),
    /// An administrator sets a knob: name and value.
    Set(&'static str, &'static str),
    /// An administrator sets a knob of one disk's queue: disk, name and value.
    SetQueue(usize, &'static str, &'static str),
    /// A disk becomes shorter, for good.
    Shrink {
        /// Number of the disk, from 0.
        disk: usize,
        /// Sectors that are left on the disk.
        sectors: u64,
    },
    /// Time passes, in milliseconds; requests complete and timers fire meanwhile.
    Sleep(u64),
    /// This many member requests or computations complete.
    Steps(u32),
    /// A disk stalls (completes nothing), or ends its stall if it already stalls.
    Stall(usize),
    /// An administrator requests that the array is stopped.
    Stop,
    /// A requested stop completes. Then the power is cut, and after a restart everything is read.
    /// Without a requested stop the step does nothing.
    Stopped,
    /// An administrator starts or stops a resync, recovery, check or repair.
    Sync(SyncAction),
    /// An administrator starts a check, repair or correction of a range of sectors, counted as the
    /// sync counts them.
    SyncRange {
        /// Check, repair or correction.
        action: SyncAction,
        /// First sector.
        from: u64,
        /// Sector at which the sync ends; `None` for the end of the array.
        to: Option<u64>,
    },
    /// Time passes, in milliseconds, without completions: timers fire, but requests that they start
    /// stay outstanding.
    Wait(u64),
}

/// Parameters of the distribution from which scripts are drawn.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// Name of the profile in failure messages and in the texts of scripts.
    pub name: &'static str,
    /// Number of steps per script.
    pub steps: usize,
    /// Percentage of steps that cut the power or crash the process.
    pub cuts: u64,
    /// Whether some of the steps plant faults of disks.
    pub faults: bool,
    /// Whether some of the steps are commands of administrators.
    pub admin: bool,
    /// Percentage of steps that trim, or that write zeros which may be discarded instead. With 0,
    /// disks do not support discards.
    pub discards: u64,
    /// Percentage of steps that change a knob.
    pub knobs: u64,
    /// Whether the script also has features that were added to the generator after its first
    /// profiles: other versions of superblocks and spares, time without completions, stops, writes
    /// that fail in part, disks that cannot write or flush, and disks that become shorter. These
    /// have a random stream of their own, so that the seeds of older profiles keep their meaning.
    pub more: bool,
    /// Whether requests wait in the queues of members: schedulers and bounds on the requests at a
    /// member are drawn. These knobs have a random stream of their own.
    pub queues: bool,
    /// Whether disks lie about flushes, at most as many as the level survives. No promise then
    /// covers data, but the array must assemble.
    pub lies: bool,
    /// Whether more disks may be hurt than the level survives; see
    /// [`crate::Options::data_promised`].
    pub beyond: bool,
    /// Whether the array is of a level without parity: RAID 0, 1, 10 or linear. Their options have
    /// a random stream of their own, so that seeds of profiles with parity keep their meaning.
    pub straight: bool,
    /// Whether the array has a write-intent bitmap, and members leave and are re-added. Both have a
    /// random stream of their own.
    pub bitmaps: bool,
    /// Percentage of steps in which disks have no space for a while. These steps have a random
    /// stream of their own. Half of the scripts have a write-back cache, which also has a random
    /// stream of its own.
    pub lacks: u64,
    /// Whether the script starts with two members that are rebuilt at once from different offsets,
    /// followed by a power cut or process crash. The array survives the loss of two members. These
    /// scripts have a random stream of their own.
    pub rebuilds: bool,
    /// Whether discards of any disk fail at times. The failures have a random stream of their own.
    pub trims_fail: bool,
    /// Whether the script starts with members that join at any step of a superblock update,
    /// followed by a power cut or process crash. These steps have a random stream of their own.
    pub joins: bool,
    /// Whether the script starts with a member that is absent at one start and is there again at
    /// the next, each after a superblock update that was cut off. These steps have a random stream
    /// of their own.
    pub absences: bool,
    /// Whether the script starts with a member that is rebuilt while sectors of others cannot be
    /// read, so that blocks of it are recorded as bad. These steps have a random stream of their
    /// own.
    pub bad_blocks: bool,
    /// Whether the script starts with members that are replaced while they work, with faults, cuts
    /// and crashes in the middle. These steps have a random stream of their own.
    pub replaces: bool,
    /// Whether members fail until the array cannot lose another member. After that, flushes and
    /// superblock writes of the remaining members fail, and occasionally their reads. These steps
    /// have a random stream of their own.
    pub last_copy: bool,
    /// Whether the array has a write-back cache that is drained occasionally, in addition to the
    /// profile's other features. Cache and drains have a random stream of their own.
    pub drains: bool,
    /// Whether the write-back cache writes runs of several parts, one of which fails, on the array
    /// and on a bare volume beside it. These steps have a random stream of their own.
    pub parts: bool,
    /// Whether a bare volume is served beside the array. Its requests have a random stream of their
    /// own.
    pub bare: bool,
    /// Whether a second array is served beside the array, in place of a bare volume.
    pub two_arrays: bool,
    /// Whether features are combined that other profiles draw separately, and with features that no
    /// other profile draws: caches beside bitmaps and schedulers, every knob at run time. Such
    /// features have a random stream of their own.
    pub mixed: bool,
    /// Whether drive models determine when requests are done. The models have a random stream of
    /// their own, which also chooses the cache, throttle, flush rule, classes and bitmap of such
    /// scripts.
    pub drives: bool,
}

impl Profile {
    /// Client requests, and the features of [`Profile::more`].
    pub const CALM: Self = Self {
        name: "calm",
        steps: 60,
        cuts: 0,
        faults: false,
        admin: false,
        discards: 5,
        knobs: 0,
        more: true,
        queues: false,
        lies: false,
        beyond: false,
        straight: false,
        bitmaps: false,
        lacks: 0,
        rebuilds: false,
        trims_fail: false,
        joins: false,
        absences: false,
        bad_blocks: false,
        replaces: false,
        last_copy: false,
        drains: false,
        parts: false,
        bare: false,
        two_arrays: false,
        mixed: false,
        drives: false,
    };
    /// Client requests and power cuts.
    pub const CUTS: Self = Self { name: "cuts", cuts: 6, ..Self::CALM };
    /// Client requests and many power cuts.
    pub const MANY_CUTS: Self = Self { name: "many-cuts", steps: 40, cuts: 15, ..Self::CALM };
    /// Knobs that change at any step, and power cuts.
    pub const KNOBS: Self = Self { name: "knobs", cuts: 4, knobs: 20, ..Self::CALM };
    /// Faults and administrators' commands.
    pub const FAULTS: Self = Self { name: "faults", faults: true, admin: true, ..Self::CALM };
    /// Faults, administrators' commands and power cuts.
    pub const FAULTS_AND_CUTS: Self = Self { name: "faults-and-cuts", cuts: 5, ..Self::FAULTS };
    /// Faults of more members than the level survives, with power cuts.
    pub const BEYOND: Self = Self { name: "beyond", cuts: 3, beyond: true, ..Self::FAULTS };
    /// More faults than the level survives while the power stays on. Content that is read, and
    /// writes that are acknowledged, must be right.
    pub const BEYOND_POWERED: Self = Self { name: "beyond-powered", cuts: 0, ..Self::BEYOND };

    /// Disks that lie about flushes, with other faults and power cuts.
    pub const LIES: Self = Self { name: "lies", cuts: 6, lies: true, ..Self::FAULTS };

    /// Faults, administrators' commands and power cuts while requests wait in the queues of
    /// members.
    pub const QUEUES: Self =
        Self { name: "queues", knobs: 3, queues: true, ..Self::FAULTS_AND_CUTS };

    /// Profiles of levels without parity.
    pub const STRAIGHT: [Self; 9] = [
        Self::CALM.straight("straight-calm"),
        Self::CUTS.straight("straight-cuts"),
        Self::MANY_CUTS.straight("straight-many-cuts"),
        Self::FAULTS.straight("straight-faults"),
        Self::FAULTS_AND_CUTS.straight("straight-faults-and-cuts"),
        Self::BEYOND.straight("straight-beyond"),
        Self::LIES.straight("straight-lies"),
        Self::BEYOND_POWERED.straight("straight-beyond-powered"),
        Self::QUEUES.straight("straight-queues"),
    ];

    /// A copy of this profile for levels without parity, with another name.
    const fn straight(self, name: &'static str) -> Self {
        Self { name, straight: true, ..self }
    }

    /// Profiles of arrays with a write-intent bitmap: with parity, then mirrors.
    pub const BITMAPS: [Self; 8] = [
        Self::CUTS.bitmaps("bitmap-cuts"),
        Self::MANY_CUTS.bitmaps("bitmap-many-cuts"),
        Self::FAULTS.bitmaps("bitmap-faults"),
        Self::FAULTS_AND_CUTS.bitmaps("bitmap-faults-and-cuts"),
        Self::CUTS.straight("").bitmaps("straight-bitmap-cuts"),
        Self::MANY_CUTS.straight("").bitmaps("straight-bitmap-many-cuts"),
        Self::FAULTS.straight("").bitmaps("straight-bitmap-faults"),
        Self::FAULTS_AND_CUTS.straight("").bitmaps("straight-bitmap-faults-and-cuts"),
    ];

    /// A copy of this profile for arrays with a bitmap, with another name.
    const fn bitmaps(self, name: &'static str) -> Self {
        Self { name, bitmaps: true, ..self }
    }

    /// Profiles of members that lack space repeatedly: with parity, then mirrors, each without and
    /// with a bitmap.
    pub const LACKS: [Self; 4] = [
        Self::CALM.lacks("lacks"),
        Self::CALM.straight("").lacks("straight-lacks"),
        Self::CALM.bitmaps("").lacks("bitmap-lacks"),
        Self::CALM.straight("").bitmaps("").lacks("straight-bitmap-lacks"),
    ];

    /// A copy of this profile for arrays with members that lack space, with another name.
    const fn lacks(self, name: &'static str) -> Self {
        Self { name, lacks: 8, ..self }
    }

    /// Profiles of two members that are rebuilt at once: requests go to members directly, or wait
    /// in queues, or the array has a bitmap.
    pub const REBUILDS: [Self; 3] = [
        Self::CALM.rebuilds("rebuilds"),
        Self { queues: true, ..Self::CALM.rebuilds("rebuilds-queues") },
        Self { bitmaps: true, ..Self::CALM.rebuilds("rebuilds-bitmap") },
    ];

    const fn rebuilds(self, name: &'static str) -> Self {
        Self { name, steps: 12, cuts: 4, straight: true, rebuilds: true, ..self }
    }

    /// Profiles in which discards fail at times, so that zeros are written instead: levels with
    /// parity, then others.
    pub const TRIMS: [Self; 2] =
        [Self::CALM.trims("trims-fail"), Self::CALM.straight("").trims("straight-trims-fail")];

    const fn trims(self, name: &'static str) -> Self {
        Self { name, cuts: 3, discards: 30, trims_fail: true, ..self }
    }

    /// Profiles of arrays with a bitmap, to which members are added during a superblock update:
    /// with parity, then mirrors.
    pub const JOINS: [Self; 2] = [
        Self::CALM.bitmaps("").joins("joins"),
        Self::CALM.straight("").bitmaps("").joins("straight-joins"),
    ];

    const fn joins(self, name: &'static str) -> Self {
        Self { name, steps: 12, cuts: 4, joins: true, ..self }
    }

    /// Profiles of a member that is absent at one start: with parity, then mirrors, then both with
    /// a bitmap, then both with faults and administrators' commands.
    pub const ABSENCES: [Self; 6] = [
        Self::CALM.absences("absences"),
        Self::CALM.straight("").absences("straight-absences"),
        Self::CALM.bitmaps("").absences("bitmap-absences"),
        Self::CALM.straight("").bitmaps("").absences("straight-bitmap-absences"),
        Self::FAULTS.absences("faults-absences"),
        Self::FAULTS.straight("").absences("straight-faults-absences"),
    ];

    const fn absences(self, name: &'static str) -> Self {
        Self { name, steps: 20, cuts: 5, absences: true, ..self }
    }

    /// Profiles of rebuilds that meet sectors which cannot be read: with parity, then mirrors, then
    /// both with a bitmap and power cuts.
    pub const BAD_BLOCKS: [Self; 4] = [
        Self::CALM.bad_blocks("bad-blocks"),
        Self::CALM.straight("").bad_blocks("straight-bad-blocks"),
        Self { cuts: 3, ..Self::CALM.bitmaps("").bad_blocks("bitmap-bad-blocks") },
        Self {
            cuts: 3,
            ..Self::CALM.straight("").bitmaps("").bad_blocks("straight-bitmap-bad-blocks")
        },
    ];

    const fn bad_blocks(self, name: &'static str) -> Self {
        Self { name, steps: 16, bad_blocks: true, ..self }
    }

    /// Whether scripts of levels without parity need a level with redundancy.
    pub(super) fn needs_redundancy(&self) -> bool {
        let promised = self.faults && !self.beyond;
        let starts = self.last_copy || self.absences || self.bad_blocks || self.replaces;
        self.bitmaps || self.lacks > 0 || promised || starts
    }

    /// Profiles of members that are replaced while they work: with parity, then mirrors; then both
    /// with a bitmap; then both with schedulers, faults and administrators' commands; then both
    /// with sectors that no member can supply.
    pub const REPLACES: [Self; 8] = [
        Self::CALM.replaces("replaces"),
        Self::CALM.straight("").replaces("straight-replaces"),
        Self::CALM.bitmaps("").replaces("bitmap-replaces"),
        Self::CALM.straight("").bitmaps("").replaces("straight-bitmap-replaces"),
        Self { queues: true, ..Self::FAULTS.replaces("faults-replaces") },
        Self { queues: true, ..Self::FAULTS.straight("").replaces("straight-faults-replaces") },
        Self { cuts: 0, ..Self::CALM.replaces("replaces-unreadable") },
        Self { cuts: 0, ..Self::CALM.straight("").replaces("straight-replaces-unreadable") },
    ];

    const fn replaces(self, name: &'static str) -> Self {
        Self { name, steps: 16, cuts: 4, replaces: true, ..self }
    }

    /// Profiles of arrays that cannot lose another member: with parity, then mirrors.
    pub const LAST_COPIES: [Self; 2] = [
        Self::CALM.last_copy("last-copy"),
        Self::CALM.straight("").last_copy("straight-last-copy"),
    ];

    const fn last_copy(self, name: &'static str) -> Self {
        Self { name, steps: 40, beyond: true, last_copy: true, ..self }
    }

    /// Profiles of a write-back cache that is drained: levels with parity, then other levels; then
    /// both again for arrays with a bitmap and members that lack space.
    pub const DRAINS: [Self; 4] = [
        Self::FAULTS_AND_CUTS.drains("drains"),
        Self::FAULTS_AND_CUTS.straight("").drains("straight-drains"),
        Self { lacks: 3, ..Self::CUTS.bitmaps("").drains("drains-lacks") },
        Self { lacks: 3, ..Self::CUTS.straight("").bitmaps("").drains("straight-drains-lacks") },
    ];

    const fn drains(self, name: &'static str) -> Self {
        Self { name, drains: true, ..self }
    }

    /// Profiles in which only some parts of a run of the write-back cache can be written: with
    /// parity, then other levels.
    pub const PARTS: [Self; 2] =
        [Self::CUTS.parts("parts"), Self::CUTS.straight("").parts("straight-parts")];

    const fn parts(self, name: &'static str) -> Self {
        Self { name, parts: true, ..self }
    }

    /// Profiles of a bare volume beside the array: with parity, then other levels.
    pub const BARES: [Self; 2] =
        [Self::QUEUES.bare("bare"), Self::QUEUES.straight("").bare("straight-bare")];

    const fn bare(self, name: &'static str) -> Self {
        Self { name, bare: true, ..self }
    }

    /// Profiles of two arrays in one engine: the first with parity, then of other levels.
    pub const TWO_ARRAYS: [Self; 2] = [
        Self::QUEUES.two_arrays("two-arrays"),
        Self::QUEUES.straight("").two_arrays("straight-two-arrays"),
    ];

    const fn two_arrays(self, name: &'static str) -> Self {
        Self { name, two_arrays: true, ..self }
    }

    /// Profiles that combine features which other profiles draw separately: levels with parity, and
    /// mirrors.
    pub const MIXED: [Self; 7] = [
        Self::MANY_CUTS.mixed("mixed-cuts"),
        Self::FAULTS_AND_CUTS.mixed("mixed-faults-and-cuts"),
        Self::MANY_CUTS.straight("").mixed("straight-mixed-cuts"),
        Self::FAULTS_AND_CUTS.straight("").mixed("straight-mixed-faults-and-cuts"),
        Self::BEYOND.mixed("mixed-beyond"),
        Self::BEYOND.straight("").mixed("straight-mixed-beyond"),
        Self::LIES.mixed("mixed-lies"),
    ];

    const fn mixed(self, name: &'static str) -> Self {
        Self { name, knobs: 3, queues: true, bitmaps: true, mixed: true, ..self }
    }

    /// Profiles in which drive models time the requests: levels with parity and mirrors, both with
    /// faults and cuts; then all levels without parity, with many cuts.
    pub const DRIVES: [Self; 3] = [
        Self::FAULTS_AND_CUTS.bitmaps("").drives("drives"),
        Self::FAULTS_AND_CUTS.straight("").bitmaps("").drives("straight-drives"),
        Self::MANY_CUTS.straight("").drives("straight-drives-cuts"),
    ];

    const fn drives(self, name: &'static str) -> Self {
        Self { name, queues: true, drives: true, ..self }
    }

    /// All profiles.
    pub fn every() -> impl Iterator<Item = Self> + Clone {
        let before = Self::ALL.into_iter().chain(Self::STRAIGHT).chain(Self::BITMAPS);
        let before = before.chain(Self::LACKS).chain(Self::REBUILDS).chain(Self::TRIMS);
        let since = Self::JOINS.into_iter().chain(Self::LAST_COPIES);
        let since = since.chain(Self::DRAINS).chain(Self::MIXED).chain(Self::BARES);
        let since = since.chain(Self::ABSENCES).chain(Self::DRIVES);
        before
            .chain(since)
            .chain(Self::PARTS)
            .chain(Self::TWO_ARRAYS)
            .chain(Self::BAD_BLOCKS)
            .chain(Self::REPLACES)
    }

    /// The basic profiles, for levels with parity.
    pub const ALL: [Self; 10] = [
        Self::CALM,
        Self::CUTS,
        Self::MANY_CUTS,
        Self::KNOBS,
        Self::FAULTS,
        Self::FAULTS_AND_CUTS,
        Self::BEYOND,
        Self::LIES,
        Self::BEYOND_POWERED,
        Self::QUEUES,
    ];
}

impl ScriptStep {
    /// Number of the disk that a step hurts, by a fault, a failure, an absence or a replacement;
    /// `None` for all other steps.
    pub(super) fn hurts(self) -> Option<usize> {
        match self {
            Self::BadRead { disk, .. }
            | Self::BadSuperblock { disk, .. }
            | Self::BadWrite { disk, .. }
            | Self::Away(disk)
            | Self::FailDisk(disk)
            | Self::FailOperation { disk, .. }
            | Self::FlushError(disk)
            | Self::LyingFlush(disk)
            | Self::NoSpace(disk)
            | Self::Replace(disk)
            | Self::Shrink { disk, .. }
            | Self::Stall(disk) => Some(disk),
            _ => None,
        }
    }
}
