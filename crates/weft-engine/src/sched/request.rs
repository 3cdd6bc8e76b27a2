//! Member requests on their way to a member: as stripes and reads ask for them, as a scheduler
//! queues them, as it dispatches them.

use smallvec::SmallVec;
use weft_units::{Bytes, Sectors};

use crate::input::Attr;

/// A read or write of one member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemberRequest {
    pub(crate) write: bool,
    /// First data sector.
    pub(crate) sector: Sectors,
    pub(crate) bytes: Bytes,
    /// How large the request may become.
    pub(crate) max: Bytes,
    pub(crate) kind: MergeKind,
}

/// What two requests of one member and direction have in common if one goes to the end of the
/// other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MergeKind {
    pub(crate) fua: bool,
    /// For stripes of the cache; else for a chunk-aligned read.
    pub(crate) stripes: bool,
    pub(crate) attr: Attr,
}

/// Which way the data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the member.
    Read,
    /// To the member.
    Write,
}

/// The classes of `ioprio`; no class counts as best effort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IoPriority {
    /// Before everything else.
    RealTime,
    /// What nothing was said about.
    #[default]
    BestEffort,
    /// After everything else.
    Idle,
}

/// What is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedRequest {
    /// The caller's name for it.
    pub id: u64,
    /// Which way.
    pub direction: Direction,
    /// Its class.
    pub level: IoPriority,
    /// Where it begins.
    pub first: Sectors,
    /// How long it is; not zero.
    pub len: Sectors,
    /// Whether it may become a part of another one: no FUA, no flush.
    pub merges: bool,
}

/// What goes to the member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dispatched {
    /// Which way.
    pub direction: Direction,
    /// Its class; the scheduler wants it back when the request is completed.
    pub level: IoPriority,
    /// Where it begins.
    pub first: Sectors,
    /// How long it is.
    pub len: Sectors,
    /// Everything that it is made of.
    pub ids: SmallVec<[u64; 4]>,
}
