//! Clones of fio jobs: requests from a source, with direct or buffered I/O, paced and measured.
//!
//! A source yields the requests one by one, each with the time at which it is due. [`Job`] submits
//! requests to the volume directly, several at a time. [`Buffered`] goes through the page cache,
//! one call after the other. Both keep to a [`Pace`] and count alike: a latency lasts from the
//! submission to the answer, and requests that end during the warm-up or after the run time are not
//! counted.
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

/// Request of a clone: operation and byte range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// Operation of the request: read, write, flush and so on.
    pub op: RequestOp,
    /// Bytes of the volume; empty for a flush.
    pub range: ByteRange,
}

/// Request of a clone, with its flags and the time at which it is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Operation and byte range.
    pub io: Io,
    /// Flags of the request (sync, FUA and so on).
    pub flags: Flags,
    /// Earliest time of the request after the start of the clone, from a rate or a trace.
    pub due: Span,
}

impl From<Io> for Ask {
    /// Creates a request that is issued as soon as possible. Writes carry the `sync` flag, as those
    /// of `O_DIRECT` do.
    fn from(io: Io) -> Self {
        let sync = io.op == RequestOp::Write;
        Self { io, flags: Flags { sync, ..Flags::NONE }, due: Span::ZERO }
    }
}

/// Pace at which a clone issues requests, and its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Largest number of requests in flight (`iodepth`).
    pub depth: u32,
    /// Number of requests that are submitted together.
    pub plug: Plug,
    /// Number of answers that are reaped together; fewer if no more requests are in flight
    /// (`iodepth_batch_complete_min`).
    pub answers: u32,
    /// Number of requests in flight at which submission resumes after `depth` was reached
    /// (`iodepth_low`).
    pub low: u32,
    /// Whether a request waits for requests in flight that it overlaps (`serialize_overlap`).
    pub apart: bool,
    /// Delay before the clone begins (`startdelay`).
    pub delay: Span,
    /// Length of each pause (`thinktime`); zero for none. Nothing is in flight during a pause.
    pub think: Span,
    /// Number of requests between two pauses (`thinktime_blocks`).
    pub think_after: u64,
    /// Highest rate in bytes per second (`rate`); `None` for no limit.
    pub rate: Option<Bytes>,
    /// Time after the start of the clone in which requests are not counted (`ramp_time`).
    pub warm_up: Span,
    /// Time after the warm-up during which requests are issued (`runtime`). `None`: the clone ends
    /// when there are no more requests.
    pub run_time: Option<Span>,
    /// Number of flushes, one after the other, once everything else is done (`end_fsync`,
    /// `fsync_on_close`).
    pub last_flushes: u32,
}

/// Number of requests that a clone submits together, as one plug.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plug {
    /// All requests that are possible at the time (`iodepth_batch` as large as `iodepth`).
    #[default]
    Moment,
    /// One request per system call (`iodepth_batch=1`, fio's default).
    Request,
    /// Up to this many requests (`iodepth_batch`).
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
    /// A pace with no limit but this number of requests in flight, until there are no more
    /// requests.
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

/// An answered request that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Operation and byte range.
    pub io: Io,
    /// Time at which the request was due; never after `begun`.
    pub due: Time,
    /// Time of the request's submission.
    pub begun: Time,
    /// Time of the request's answer.
    pub ended: Time,
    /// Number of the clone's requests in flight when this one was submitted, including itself.
    pub in_flight: u32,
}
