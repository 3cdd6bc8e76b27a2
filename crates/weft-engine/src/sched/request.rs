//! Member requests: as a personality issues them, as a scheduler queues them, and as it dispatches
//! them.

use weft_units::{Bytes, Sectors};

use crate::contract::input::{Attr, Class};

/// Read or write of one member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemberRequest {
    pub(crate) write: bool,
    /// First data sector on the member.
    pub(crate) sector: Sectors,
    pub(crate) bytes: Bytes,
    /// Largest length of the request after merging, in bytes.
    pub(crate) max: Bytes,
    pub(crate) kind: MergeKind,
}

impl MemberRequest {
    #[inline(always)]
    pub(crate) const fn without_fua(self) -> Self {
        Self { kind: MergeKind { fua: false, ..self.kind }, ..self }
    }
}

/// Properties that two requests of one member and direction must share to be merged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MergeKind {
    pub(crate) fua: bool,
    /// Whether the request transfers strips of the stripe cache; otherwise it is a read or write
    /// between the member and a client's frames.
    pub(crate) stripes: bool,
    pub(crate) attr: Attr,
}

impl MergeKind {
    /// Whether requests of these two kinds may be merged. As in the kernel, they must belong to the
    /// same client and have the same class and weight; their purpose does not matter.
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

/// Direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Read: data is transferred from the member.
    Read,
    /// Write: data is transferred to the member.
    Write,
}

/// I/O priority classes of `ioprio`. A request without a class counts as best effort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IoPriority {
    /// Served before all other classes.
    RealTime,
    /// The default class.
    #[default]
    BestEffort,
    /// Served after all other classes.
    Idle,
}

impl IoPriority {
    /// Maps the I/O class of a request to the class that schedulers distinguish.
    #[must_use]
    pub const fn of(class: Class) -> Self {
        match class {
            Class::RealTime(_) => Self::RealTime,
            Class::Idle => Self::Idle,
            Class::BestEffort(_) | Class::None => Self::BestEffort,
        }
    }
}

/// Member request in the form in which it is passed to a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedRequest {
    /// Identifier of the request, chosen by the caller; returned when it is dispatched.
    pub id: u64,
    /// Whether the request reads from or writes to the member.
    pub direction: Direction,
    /// Attributes of the request: its origin, class and weight.
    pub attr: Attr,
    /// First sector of the request, counted from the start of the member.
    pub first: Sectors,
    /// Length in sectors; not zero.
    pub len: Sectors,
    /// Whether the request discards its sectors; its direction is that of a write.
    pub discard: bool,
    /// Whether the request may be merged with another one (no FUA, no flush).
    pub merges: bool,
}

/// A request, possibly merged from several, that the scheduler sends to the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatched {
    /// Whether the request reads from or writes to the member.
    pub direction: Direction,
    /// Receipt to hand back to the scheduler when the request completes.
    pub receipt: Receipt,
    /// First sector of the request, counted from the start of the member.
    pub first: Sectors,
    /// Length in sectors.
    pub len: Sectors,
    /// Identifier of the first of the merged requests; the scheduler's `sent` lists the identifiers
    /// of all.
    pub id: u64,
}

/// A scheduler's handle for a request that it dispatched, handed back on completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Receipt(pub u32);
