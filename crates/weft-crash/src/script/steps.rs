//! Steps of a script, and the profiles from which they are drawn.

use weft_engine::{Flags, RequestOp, SyncAction};
use weft_units::VolumeId;

use crate::crash::CutMode;
use crate::faults::Planned;

/// One step of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptStep {
    /// A blank disk joins.
    Add,
    /// A client issues a request, in bytes.
    Ask {
        /// Volume of the request.
        volume: VolumeId,
        /// Client that issues it.
        client: u32,
        /// Operation.
        op: RequestOp,
        /// First byte.
        start: u64,
        /// Length in bytes.
        len: u64,
        /// Flags of the request.
        flags: Flags,
    },
    /// An administrator adds a bitmap with chunks of this many bytes, or removes the bitmap.
    Bitmap(Option<u64>),
    /// The power is cut; restart; everything is read.
    Cut(CutMode),
    /// The power is cut; restart; soon afterwards it is cut again, or an administrator stops the
    /// array; restart; everything is read.
    CutAgain {
        /// Rule by which sectors survive the cut.
        mode: CutMode,
        /// Requests that complete in between.
        after: u32,
        /// Whether the array is stopped.
        stop: bool,
    },
    /// A client disconnects.
    Disconnect(u32),
    /// An administrator drains a volume's dirty data from the write-back cache.
    Drain(VolumeId),
    /// A later operation of a disk fails.
    FailOperation {
        /// Index of the disk.
        disk: usize,
        /// Number of operations before it.
        after: u64,
        /// Kind of the failure.
        how: Planned,
    },
    /// The next discards of a disk fail.
    FailDiscards {
        /// Index of the disk.
        disk: usize,
        /// Number of discards.
        count: u32,
    },
    /// An administrator declares a disk failed.
    FailDisk(usize),
    /// A removed disk is re-added; with a bitmap only the columns that it misses are copied.
    ReAdd(usize),
    /// A sector becomes unreadable, until it is written or for good.
    BadRead {
        /// Index of the disk.
        disk: usize,
        /// Data sector of the column.
        column: u64,
        /// Whether it stays unreadable when it is written.
        dead: bool,
    },
    /// The superblock of a disk becomes unreadable, until it is written or for good.
    BadSuperblock {
        /// Index of the disk.
        disk: usize,
        /// Whether it stays unreadable when it is written.
        dead: bool,
    },
    /// All further writes of a sector fail.
    BadWrite {
        /// Index of the disk.
        disk: usize,
        /// Data sector of the column.
        column: u64,
    },
    /// The engine runs until all requests are answered.
    Finish,
    /// All further flushes of a disk fail, and operations that imply one.
    FlushError(usize),
    /// The process crashes while the power stays on; restart; everything is read.
    Kill,
    /// All further flushes of a disk succeed without effect.
    LyingFlush(usize),
    /// The power is cut; the array is started read-only and a write is tried; then a restart.
    Look(CutMode),
    /// Disks have no space for a while: longer than the delay after which a failed write is tried
    /// again, and shorter than the engine waits for members. Clients continue. Then there is space
    /// again, and soon every write and flush has to succeed.
    LackSpace {
        /// Index of the first disk.
        first: usize,
        /// Number of disks from there on; the first disk follows the last.
        count: usize,
        /// Duration in seconds.
        seconds: u64,
    },
    /// Toggles whether a disk has space.
    NoSpace(usize),
    /// An administrator removes a failed disk.
    Remove(usize),
    /// A removed disk joins again with its content.
    Return(usize),
    /// Sets a knob.
    Set(&'static str, &'static str),
    /// Sets a knob of one disk's queue.
    SetQueue(usize, &'static str, &'static str),
    /// A disk becomes shorter.
    Shrink {
        /// Index of the disk.
        disk: usize,
        /// Sectors that are left.
        sectors: u64,
    },
    /// Milliseconds pass, with all events in them.
    Sleep(u64),
    /// This many requests complete.
    Steps(u32),
    /// Toggles whether a disk stalls, that is completes nothing.
    Stall(usize),
    /// An administrator stops the array.
    Stop,
    /// If a stop was requested: it completes; the power is cut; restart; everything is read.
    Stopped,
    /// An administrator starts or stops resync.
    Sync(SyncAction),
    /// Milliseconds pass in which nothing completes: timers fire, and the requests that they start
    /// stay outstanding.
    Wait(u64),
}

/// Distribution from which scripts are drawn.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// Name in failure messages.
    pub name: &'static str,
    /// Number of steps per script.
    pub steps: usize,
    /// Percentage of steps that cut the power.
    pub cuts: u64,
    /// Whether disks fail.
    pub faults: bool,
    /// Whether administrators act.
    pub admin: bool,
    /// Percentage of steps that trim, or store zeros that need not be stored. If it is 0, disks do
    /// not support discards.
    pub discards: u64,
    /// Percentage of steps that change a knob.
    pub knobs: u64,
    /// Whether more is drawn than when the first seeds were: versions of superblocks and spares,
    /// time that passes while nothing completes, stops, writes that fail in part, disks that cannot
    /// write or flush, or that become shorter. It has a random stream of its own.
    pub more: bool,
    /// Whether requests wait in the queues of members: schedulers, and bounds on the requests at a
    /// member. They have a random stream of their own.
    pub queues: bool,
    /// Whether disks lie about flushes, at most as many as the level survives. Nothing is promised
    /// of data then, but the array assembles.
    pub lies: bool,
    /// Whether more disks may be hurt than the level survives. See
    /// [`crate::Options::data_promised`].
    pub beyond: bool,
    /// Whether the array is of a level without parity: RAID 0, 1, 10 or linear. Their options have
    /// a random stream of their own, so that seeds of profiles with parity keep their meaning.
    pub straight: bool,
    /// Whether the array has a write-intent bitmap, and members leave and are re-added. It has a
    /// random stream of its own.
    pub bitmaps: bool,
    /// Percentage of steps in which disks have no space for a while. It has a random stream of its
    /// own, as has the write-back cache, which half of these scripts have.
    pub lacks: u64,
    /// Whether the script starts with two members that are rebuilt at once from different offsets,
    /// and a power cut or process crash. The array survives the loss of two members. Both have a
    /// random stream of their own.
    pub rebuilds: bool,
    /// Whether discards of any disk fail. This has a random stream of its own.
    pub trims_fail: bool,
    /// Whether the script starts with members that join at any step of a superblock update, and a
    /// power cut or process crash. This has a random stream of its own.
    pub joins: bool,
    /// Whether members fail until the array cannot lose another one. Then flushes and superblock
    /// writes of the remaining members fail, and reads occasionally. This has a random stream of
    /// its own.
    pub last_copy: bool,
    /// Whether the array has a write-back cache that is drained occasionally, beside everything
    /// else. This has a random stream of its own.
    pub drains: bool,
    /// Whether a bare volume is served beside the array. It has a random stream of its own.
    pub bare: bool,
    /// Whether features are combined that other profiles draw separately, with others that no
    /// profile draws: caches beside bitmaps and schedulers, every knob at run time. It has a random
    /// stream of its own.
    pub mixed: bool,
}

impl Profile {
    /// Only client requests.
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
        last_copy: false,
        drains: false,
        bare: false,
        mixed: false,
    };
    /// Power cuts.
    pub const CUTS: Self = Self { name: "cuts", cuts: 6, ..Self::CALM };
    /// Many power cuts.
    pub const MANY_CUTS: Self = Self { name: "many-cuts", steps: 40, cuts: 15, ..Self::CALM };
    /// Knobs that change at any step, and power cuts.
    pub const KNOBS: Self = Self { name: "knobs", cuts: 4, knobs: 20, ..Self::CALM };
    /// Faults and administrators.
    pub const FAULTS: Self = Self { name: "faults", faults: true, admin: true, ..Self::CALM };
    /// Faults, administrators and power cuts.
    pub const FAULTS_AND_CUTS: Self = Self { name: "faults-and-cuts", cuts: 5, ..Self::FAULTS };
    /// More faults than the level survives.
    pub const BEYOND: Self = Self { name: "beyond", cuts: 3, beyond: true, ..Self::FAULTS };
    /// More faults than the level survives while the power stays on: content that is read and
    /// writes that are acknowledged are right.
    pub const BEYOND_POWERED: Self = Self { name: "beyond-powered", cuts: 0, ..Self::BEYOND };

    /// Disks that lie about flushes.
    pub const LIES: Self = Self { name: "lies", cuts: 6, lies: true, ..Self::FAULTS };

    /// Faults, administrators and power cuts while requests wait in the queues of members.
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

    /// The profile for levels without parity, under another name.
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

    /// The profile for arrays with a bitmap, under another name.
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

    /// The profile for arrays with members that lack space, under another name.
    const fn lacks(self, name: &'static str) -> Self {
        Self { name, lacks: 8, ..self }
    }

    /// Profiles of two members that are rebuilt at once: requests go to members at once, or wait in
    /// queues, or the array has a bitmap.
    pub const REBUILDS: [Self; 3] = [
        Self::CALM.rebuilds("rebuilds"),
        Self { queues: true, ..Self::CALM.rebuilds("rebuilds-queues") },
        Self { bitmaps: true, ..Self::CALM.rebuilds("rebuilds-bitmap") },
    ];

    const fn rebuilds(self, name: &'static str) -> Self {
        Self { name, steps: 12, cuts: 4, straight: true, rebuilds: true, ..self }
    }

    /// Profiles of discards that fail, which is harmless: with parity, then others.
    pub const TRIMS: [Self; 2] =
        [Self::CALM.trims("trims-fail"), Self::CALM.straight("").trims("straight-trims-fail")];

    const fn trims(self, name: &'static str) -> Self {
        Self { name, cuts: 3, discards: 30, trims_fail: true, ..self }
    }

    /// Profiles of members that join during an update of an array with a bitmap: with parity, then
    /// mirrors.
    pub const JOINS: [Self; 2] = [
        Self::CALM.bitmaps("").joins("joins"),
        Self::CALM.straight("").bitmaps("").joins("straight-joins"),
    ];

    const fn joins(self, name: &'static str) -> Self {
        Self { name, steps: 12, cuts: 4, joins: true, ..self }
    }

    /// Profiles of arrays that cannot lose another member: with parity, then mirrors.
    pub const LAST_COPIES: [Self; 2] = [
        Self::CALM.last_copy("last-copy"),
        Self::CALM.straight("").last_copy("straight-last-copy"),
    ];

    const fn last_copy(self, name: &'static str) -> Self {
        Self { name, steps: 40, beyond: true, last_copy: true, ..self }
    }

    /// Profiles of a write-back cache that is drained: with parity, then others, then arrays with a
    /// bitmap and with members that lack space.
    pub const DRAINS: [Self; 4] = [
        Self::FAULTS_AND_CUTS.drains("drains"),
        Self::FAULTS_AND_CUTS.straight("").drains("straight-drains"),
        Self { lacks: 3, ..Self::CUTS.bitmaps("").drains("drains-lacks") },
        Self { lacks: 3, ..Self::CUTS.straight("").bitmaps("").drains("straight-drains-lacks") },
    ];

    const fn drains(self, name: &'static str) -> Self {
        Self { name, drains: true, ..self }
    }

    /// Profiles of a bare volume beside the array: with parity, then others.
    pub const BARES: [Self; 2] =
        [Self::QUEUES.bare("bare"), Self::QUEUES.straight("").bare("straight-bare")];

    const fn bare(self, name: &'static str) -> Self {
        Self { name, bare: true, ..self }
    }

    /// Profiles that combine features: with parity, then mirrors.
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

    /// Profiles of every level.
    pub fn every() -> impl Iterator<Item = Self> + Clone {
        let before = Self::ALL.into_iter().chain(Self::STRAIGHT).chain(Self::BITMAPS);
        let before = before.chain(Self::LACKS).chain(Self::REBUILDS).chain(Self::TRIMS);
        let since = Self::JOINS.into_iter().chain(Self::LAST_COPIES);
        before.chain(since).chain(Self::DRAINS).chain(Self::MIXED).chain(Self::BARES)
    }

    /// Every profile of levels with parity.
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
    /// The disk that a step makes fail.
    pub(super) fn hurts(self) -> Option<usize> {
        match self {
            Self::BadRead { disk, .. }
            | Self::BadSuperblock { disk, .. }
            | Self::BadWrite { disk, .. }
            | Self::FailDisk(disk)
            | Self::FailOperation { disk, .. }
            | Self::FlushError(disk)
            | Self::LyingFlush(disk)
            | Self::NoSpace(disk)
            | Self::Shrink { disk, .. }
            | Self::Stall(disk) => Some(disk),
            _ => None,
        }
    }
}
