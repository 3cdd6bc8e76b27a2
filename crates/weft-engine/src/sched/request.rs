//! Member requests: as stripes make them, as a scheduler queues them, as it dispatches them.

use weft_units::{Bytes, Sectors};

use crate::contract::input::{Attr, Class};

/// A read or write of one member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemberRequest {
    pub(crate) write: bool,
    /// First data sector.
    pub(crate) sector: Sectors,
    pub(crate) bytes: Bytes,
    /// Largest length that merging may make.
    pub(crate) max: Bytes,
    pub(crate) kind: MergeKind,
}

impl MemberRequest {
    /// The same, not durable by itself.
    #[inline(always)]
    pub(crate) const fn without_fua(self) -> Self {
        Self { kind: MergeKind { fua: false, ..self.kind }, ..self }
    }
}

/// Attributes that two requests of one member and direction share if one goes to the end of the
/// other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MergeKind {
    pub(crate) fua: bool,
    /// For stripes of the cache; else for a chunk-aligned read.
    pub(crate) stripes: bool,
    pub(crate) attr: Attr,
}

impl MergeKind {
    /// Whether two requests of this kind and that one may be one: of one client and class, as in
    /// the kernel, whatever they are for.
    #[inline(always)]
    pub(crate) fn merges(&self, other: &Self) -> bool {
        let (mine, others) = (&self.attr, &other.attr);
        self.fua == other.fua
            && self.stripes == other.stripes
            && mine.origin == others.origin
            && mine.class == others.class
            && mine.weight == others.weight
    }
}

/// Direction of the data.
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
    /// Default priority.
    #[default]
    BestEffort,
    /// After everything else.
    Idle,
}

impl IoPriority {
    /// The class that a scheduler knows of those of a request.
    #[must_use]
    pub const fn of(class: Class) -> Self {
        match class {
            Class::RealTime(_) => Self::RealTime,
            Class::Idle => Self::Idle,
            Class::BestEffort(_) | Class::None => Self::BestEffort,
        }
    }
}

/// Request in a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedRequest {
    /// The caller's name for it.
    pub id: u64,
    /// Direction of the data.
    pub direction: Direction,
    /// On whose behalf.
    pub attr: Attr,
    /// First sector.
    pub first: Sectors,
    /// Length in sectors; not zero.
    pub len: Sectors,
    /// Whether it may become a part of another one: no FUA, no flush.
    pub merges: bool,
}

/// Request that goes to the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatched {
    /// Direction of the data.
    pub direction: Direction,
    /// What the scheduler is to be told when the request is completed.
    pub receipt: Receipt,
    /// First sector.
    pub first: Sectors,
    /// Length in sectors.
    pub len: Sectors,
    /// The first of what it is made of; `sent` of its scheduler has all.
    pub id: u64,
}

/// A scheduler's own name for a request that it dispatched, given back when that is completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Receipt(pub u32);
