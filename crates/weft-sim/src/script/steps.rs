//! Steps of a script, and the profiles by which they are drawn.

use weft_engine::{Flags, RequestOp, SyncAction};
use weft_units::VolumeId;

use crate::crash::CutMode;
use crate::faults::Planned;

/// One step of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptStep {
    /// A blank disk joins.
    Add,
    /// A client asks for something, in bytes.
    Ask {
        /// Volume that is asked.
        volume: VolumeId,
        /// Client that asks.
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
    /// An administrator gives the array a bitmap of chunks of so many bytes, or takes it away.
    Bitmap(Option<u64>),
    /// The power goes; restart; read everything.
    Cut(CutMode),
    /// The power goes; restart; soon afterwards it goes again, or an administrator stops the array;
    /// restart; read everything.
    CutAgain {
        /// Rule by which sectors survive the cut.
        mode: CutMode,
        /// This many requests complete in between.
        after: u32,
        /// Whether the array is stopped.
        stop: bool,
    },
    /// A client leaves.
    Disconnect(u32),
    /// An administrator has everything written that is dirty of a volume in the write-back cache.
    Drain(VolumeId),
    /// An operation of a disk fails, this many operations from now.
    FailOperation {
        /// Index of the disk.
        disk: usize,
        /// Number of operations until then.
        after: u64,
        /// Kind of the failure.
        how: Planned,
    },
    /// So many discards of a disk fail from now on.
    FailDiscards {
        /// Index of the disk.
        disk: usize,
        /// Number of discards.
        count: u32,
    },
    /// An administrator declares a disk failed.
    FailDisk(usize),
    /// A disk that was forgotten joins again; with the bitmap only what it misses is copied.
    ReAdd(usize),
    /// A sector cannot be read until it is written, or never again.
    BadRead {
        /// Index of the disk.
        disk: usize,
        /// Data sector of the column.
        column: u64,
        /// Whether writing it does not help.
        dead: bool,
    },
    /// The superblock of a disk cannot be read until it is written, or never again.
    BadSuperblock {
        /// Index of the disk.
        disk: usize,
        /// Whether writing it does not help.
        dead: bool,
    },
    /// A sector cannot be written.
    BadWrite {
        /// Index of the disk.
        disk: usize,
        /// Data sector of the column.
        column: u64,
    },
    /// Runs until all is answered.
    Finish,
    /// Flushes of a disk fail, and what implies one, for good.
    FlushError(usize),
    /// The process dies, the power stays; restart; read everything.
    Kill,
    /// Flushes of a disk succeed and do nothing, for good.
    LyingFlush(usize),
    /// The power goes; somebody looks at the array read-only, and tries to write; then a restart.
    Look(CutMode),
    /// Disks have no space for a while, longer than it takes until what found none is tried again,
    /// and shorter than members are waited for; clients go on. Then there is space, and soon every
    /// write and flush has to succeed.
    LackSpace {
        /// Index of the first disk.
        first: usize,
        /// Disks from there on, round and round.
        count: usize,
        /// For how long.
        seconds: u64,
    },
    /// A disk finds space or no space, in turn.
    NoSpace(usize),
    /// Forgets a failed disk.
    Remove(usize),
    /// A disk that was forgotten joins again, with what it holds.
    Return(usize),
    /// Sets a knob.
    Set(&'static str, &'static str),
    /// Sets a knob of one disk's queue.
    SetQueue(usize, &'static str, &'static str),
    /// A disk becomes shorter: so many of its sectors are left.
    Shrink {
        /// Index of the disk.
        disk: usize,
        /// Sectors that are left.
        sectors: u64,
    },
    /// Milliseconds pass, with everything that falls into them.
    Sleep(u64),
    /// This many requests complete.
    Steps(u32),
    /// A disk completes nothing until it is released by the same step.
    Stall(usize),
    /// An administrator stops the array.
    Stop,
    /// If that was asked for: it has stopped; the power goes; restart; read everything.
    Stopped,
    /// An administrator starts or stops resync.
    Sync(SyncAction),
    /// Milliseconds pass in which nothing completes: timers fire, and what they begin stays
    /// outstanding.
    Wait(u64),
}

/// Distribution that scripts are drawn from.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// Name in failure messages.
    pub name: &'static str,
    /// Steps per script.
    pub steps: usize,
    /// Per cent of steps that cut the power.
    pub cuts: u64,
    /// Whether disks fail.
    pub faults: bool,
    /// Whether administrators act.
    pub admin: bool,
    /// Per cent of steps that trim, or store zeros that need not be stored. Without any, disks do
    /// not discard.
    pub discards: u64,
    /// Per cent of steps that change a knob.
    pub knobs: u64,
    /// Whether more is drawn than when the first seeds were: versions of superblocks and spares,
    /// time that passes while nothing completes, stops, writes that fail in part, disks that cannot
    /// write or flush, or become shorter. It is drawn from a stream of its own.
    pub more: bool,
    /// Whether requests wait in the queues of members: schedulers, and bounds on what a member has
    /// at once. They are drawn from a stream of their own.
    pub queues: bool,
    /// Whether disks lie about flushes, no more of them than the level survives. Then nothing is
    /// promised of data, but the array assembles.
    pub lies: bool,
    /// Whether more disks may be hurt than the level survives. See
    /// [`crate::Options::data_promised`].
    pub beyond: bool,
    /// Whether the array is of a level without parity: RAID 0, 1, 10 or linear. What they draw is
    /// of their own, so that seeds of profiles of levels with parity mean what they meant.
    pub straight: bool,
    /// Whether the array has a write-intent bitmap, and members leave and come back for it. Drawn
    /// from a stream of its own.
    pub bitmaps: bool,
    /// Per cent of steps in which disks have no space for a while. Drawn from a stream of its own,
    /// like the write-back cache of such an array, which is there in half of the scripts.
    pub lacks: u64,
    /// Whether two members are rebuilt at once from different offsets, before anything else, and
    /// the power goes or the process dies. The array is one that can do without two members, and
    /// drawn from a stream of its own, as this is.
    pub rebuilds: bool,
    /// Whether discards fail, of any disk. Drawn from a stream of its own.
    pub trims_fail: bool,
    /// Whether members come at any step of a superblock update, before anything else, and the power
    /// goes or the process dies. Drawn from a stream of its own.
    pub joins: bool,
    /// Whether members fail until none is left that the array could do without; then flushes and
    /// superblocks of those that are left fail, and reads now and then. Drawn from a stream of its
    /// own.
    pub last_copy: bool,
    /// Whether the array has a write-back cache that is drained now and then, beside everything
    /// else. Drawn from a stream of its own.
    pub drains: bool,
    /// Whether a bare volume is served beside the array. Drawn from a stream of its own.
    pub bare: bool,
    /// Whether everything meets that others draw apart, and what nothing else draws: caches beside
    /// bitmaps and schedulers, every knob at run time. Drawn from a stream of its own.
    pub mixed: bool,
}

impl Profile {
    /// Clients and nothing else.
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
    /// Power cuts all the time.
    pub const MANY_CUTS: Self = Self { name: "many-cuts", steps: 40, cuts: 15, ..Self::CALM };
    /// Knobs change in the middle of everything, and the power goes.
    pub const KNOBS: Self = Self { name: "knobs", cuts: 4, knobs: 20, ..Self::CALM };
    /// Faults and administrators.
    pub const FAULTS: Self = Self { name: "faults", faults: true, admin: true, ..Self::CALM };
    /// Faults, administrators and power cuts.
    pub const FAULTS_AND_CUTS: Self = Self { name: "faults-and-cuts", cuts: 5, ..Self::FAULTS };
    /// More than the level survives.
    pub const BEYOND: Self = Self { name: "beyond", cuts: 3, beyond: true, ..Self::FAULTS };
    /// More than the level survives while the power stays on: what is read and what is
    /// acknowledged is right.
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

    /// The same, of levels without parity.
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

    /// The same, of arrays with a bitmap.
    const fn bitmaps(self, name: &'static str) -> Self {
        Self { name, bitmaps: true, ..self }
    }

    /// Members without space, again and again: with parity, then mirrors, each without and with a
    /// bitmap.
    pub const LACKS: [Self; 4] = [
        Self::CALM.lacks("lacks"),
        Self::CALM.straight("").lacks("straight-lacks"),
        Self::CALM.bitmaps("").lacks("bitmap-lacks"),
        Self::CALM.straight("").bitmaps("").lacks("straight-bitmap-lacks"),
    ];

    /// The same, of arrays whose members lack space.
    const fn lacks(self, name: &'static str) -> Self {
        Self { name, lacks: 8, ..self }
    }

    /// Profiles of two members that are rebuilt at once: every request goes to its member at once,
    /// or waits in queues, or the array has a bitmap.
    pub const REBUILDS: [Self; 3] = [
        Self::CALM.rebuilds("rebuilds"),
        Self { queues: true, ..Self::CALM.rebuilds("rebuilds-queues") },
        Self { bitmaps: true, ..Self::CALM.rebuilds("rebuilds-bitmap") },
    ];

    const fn rebuilds(self, name: &'static str) -> Self {
        Self { name, steps: 12, cuts: 4, straight: true, rebuilds: true, ..self }
    }

    /// Profiles of discards that fail, which hurt nothing: with parity, then others.
    pub const TRIMS: [Self; 2] =
        [Self::CALM.trims("trims-fail"), Self::CALM.straight("").trims("straight-trims-fail")];

    const fn trims(self, name: &'static str) -> Self {
        Self { name, cuts: 3, discards: 30, trims_fail: true, ..self }
    }

    /// Profiles of members that come in the middle of an update of an array with a bitmap: with
    /// parity, then mirrors.
    pub const JOINS: [Self; 2] = [
        Self::CALM.bitmaps("").joins("joins"),
        Self::CALM.straight("").bitmaps("").joins("straight-joins"),
    ];

    const fn joins(self, name: &'static str) -> Self {
        Self { name, steps: 12, cuts: 4, joins: true, ..self }
    }

    /// Profiles of arrays that can do without no member any more: with parity, then mirrors.
    pub const LAST_COPIES: [Self; 2] = [
        Self::CALM.last_copy("last-copy"),
        Self::CALM.straight("").last_copy("straight-last-copy"),
    ];

    const fn last_copy(self, name: &'static str) -> Self {
        Self { name, steps: 40, beyond: true, last_copy: true, ..self }
    }

    /// Profiles of a write-back cache that is drained: with parity, then others, then those with a
    /// bitmap whose members lack space.
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

    /// Profiles in which features meet: with parity, then mirrors.
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
    /// The disk that something goes wrong with.
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
