//! Clones of fio jobs: requests from a source, with direct or buffered I/O, paced and measured.
//!
//! A source gives the requests one by one, each with the time at which it is due. [`Job`] hands
//! requests to the volume past the page cache, several at a time; [`Buffered`] goes through the
//! page cache, one call after the other. Both keep to a [`Pace`] and count in one way: a latency
//! goes from being handed over to the answer, and what ends before the warm-up is over or after the
//! run time is not counted.
//!
//! Source   experiments.md §1.5, §4 (5), §6; fio HOWTO

mod buffered;
mod direct;
mod ledger;

use weft_engine::{Flags, RequestOp};
use weft_units::{ByteRange, Bytes, Span, Time};

pub use buffered::{Buffered, Device};
pub use direct::Job;
pub use ledger::{Found, Watcher};

/// Request of a clone: operation and range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// Operation.
    pub op: RequestOp,
    /// Byte range; empty for a flush.
    pub range: ByteRange,
}

/// Request of a clone with its flags and the time at which it is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Operation and range.
    pub io: Io,
    /// Flags of the request.
    pub flags: Flags,
    /// Earliest time of the request, since the clone began: from a rate, or a trace.
    pub due: Span,
}

impl From<Io> for Ask {
    /// As soon as it can be. Writes carry the `sync` flag, as those of `O_DIRECT` do.
    fn from(io: Io) -> Self {
        let sync = io.op == RequestOp::Write;
        Self { io, flags: Flags { sync, ..Flags::NONE }, due: Span::ZERO }
    }
}

/// How fast a clone asks, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Requests in flight at most (`iodepth`).
    pub depth: u32,
    /// Requests that are handed over together.
    pub plug: Plug,
    /// Answers are looked at when there are so many, or all that are to come
    /// (`iodepth_batch_complete_min`).
    pub answers: u32,
    /// With `depth` in flight nothing more is asked for until only so many are (`iodepth_low`).
    pub low: u32,
    /// A request waits for those in flight that it overlaps (`serialize_overlap`).
    pub apart: bool,
    /// Delay before the clone begins (`startdelay`).
    pub delay: Span,
    /// Length of each pause (`thinktime`). In a pause nothing is in flight.
    pub think: Span,
    /// After so many requests it pauses (`thinktime_blocks`).
    pub think_after: u64,
    /// Bytes per second at most (`rate`).
    pub rate: Option<Bytes>,
    /// What ends in this time is not counted (`ramp_time`).
    pub warm_up: Span,
    /// Nothing is asked for when it is over (`runtime`); it begins when the warm-up is over.
    /// Without one the clone ends when there is nothing more to ask for.
    pub run_time: Option<Span>,
    /// Flushes one after the other when everything else is done (`end_fsync`, `fsync_on_close`).
    pub last_flushes: u32,
}

/// What a clone hands over together, as one plug.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plug {
    /// All that it can ask for at one moment (`iodepth_batch` as large as `iodepth`).
    #[default]
    Moment,
    /// One request: one system call each (`iodepth_batch=1`, fio's default).
    Request,
    /// Up to so many requests (`iodepth_batch`).
    Several(u32),
}

impl Plug {
    fn most(self) -> usize {
        match self {
            Self::Moment => usize::MAX,
            Self::Request => 1,
            Self::Several(count) => count.max(1) as usize,
        }
    }
}

impl Pace {
    /// As fast as so many in flight make it, until there is nothing more to ask for.
    #[must_use]
    pub const fn depth(depth: u32) -> Self {
        Self {
            depth,
            plug: Plug::Moment,
            answers: 1,
            low: depth,
            apart: false,
            delay: Span::ZERO,
            think: Span::ZERO,
            think_after: 1,
            rate: None,
            warm_up: Span::ZERO,
            run_time: None,
            last_flushes: 0,
        }
    }
}

/// A request that has ended and is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Request that was asked for.
    pub io: Io,
    /// When it was to be handed over, by its own time; never after `begun`.
    pub due: Time,
    /// Time at which it was handed over.
    pub begun: Time,
    /// Time of its answer.
    pub ended: Time,
    /// How many of the clone were in flight when it was handed over, itself among them.
    pub in_flight: u32,
}
