//! Errors for clients, and for the driver that configures the engine.

use std::fmt;

use thiserror::Error;
use weft_units::ByteRange;

use super::input::Fault;

/// Reason why a request or a command failed.
#[derive(Clone, Debug, Error, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReplyError {
    /// Other work excludes it at present.
    #[error("busy: {0}")]
    Busy(&'static str),
    /// The request makes no sense.
    #[error("invalid: {0}")]
    Invalid(&'static str),
    /// The members could not do it and redundancy did not help.
    #[error("input/output error")]
    Io,
    /// No space behind a member.
    #[error("no space left behind a member")]
    NoSpace,
    /// The range is not inside the volume.
    #[error("outside the volume")]
    OutOfRange,
    /// The volume takes no writes.
    #[error("the volume is read-only")]
    ReadOnly,
    /// Not done for safety; the text says why and what to do.
    #[error("{0}")]
    Refused(String),
    /// For the driver, not for a client: the member that was read has stalled and may still fill
    /// the request's frames, which come back by `Release` when it answers. The driver repeats the
    /// read with other frames and [`crate::Flags::again`]; the read then goes around the member.
    #[error("the member stalled; ask again with other frames")]
    Stalled,
    /// The volume was stopped.
    #[error("the volume is stopping")]
    Stopping,
    /// Dirty pages of the write-back cache could not be written to the members.
    #[error("{0}")]
    Unwritten(Box<Unwritten>),
}

/// Bytes of the write-back cache that could not be written to the members.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Unwritten {
    /// Error of the last write that failed.
    pub error: ReplyError,
    /// Total number of bytes.
    pub bytes: u64,
    /// The first ranges of the volume that hold such bytes.
    pub ranges: Vec<ByteRange>,
    /// Number of further ranges.
    pub more: usize,
    /// The bytes were given up: nothing has them any more.
    pub lost: bool,
}

impl Unwritten {
    /// Largest number of ranges that are named.
    pub const RANGES_MAX: usize = 8;
}

impl fmt::Display for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { error, bytes, ranges, more, lost } = self;
        let what = if *lost { "are lost" } else { "cannot be written" };
        write!(f, "{bytes} bytes that clients wrote {what} ({error}):")?;
        for (range, nth) in ranges.iter().zip(0..) {
            let comma = if nth > 0 { "," } else { "" };
            write!(f, "{comma} {} at byte {}", range.len.0, range.start.0)?;
        }
        if *more > 0 {
            write!(f, ", and {more} ranges more")?;
        }
        Ok(())
    }
}

/// Error of a member fault that redundancy does not cover.
impl From<Fault> for ReplyError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::NoSpace => Self::NoSpace,
            Fault::Aborted | Fault::Gone | Fault::Io => Self::Io,
        }
    }
}

/// Reason why an engine cannot be made from a configuration.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// The frame pool cannot hold one stripe, so nothing would ever finish.
    #[error(
        "cache_frames: found {found}, expected at least {expected} (one stripe of the widest array)"
    )]
    TooFewFrames {
        /// Frames configured.
        found: u32,
        /// Frames needed.
        expected: u32,
    },
    /// Knobs of the write-back cache do not fit it, or each other.
    #[error("{0}")]
    WriteBack(String),
    /// Two members share an index.
    #[error("members: index {0} is used twice; give each member of all volumes its own")]
    Members(u16),
}
