//! Errors for clients, and for the driver that configures the engine.

use std::fmt;

use thiserror::Error;
use weft_units::ByteRange;

use super::input::Fault;

/// Reason why a request or a command failed.
#[derive(Clone, Debug, Error, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReplyError {
    /// The request or command is not possible at present, for the reason in the text. It may be
    /// tried again later.
    #[error("busy: {0}")]
    Busy(&'static str),
    /// The request or command is malformed: an unknown volume, frames that do not fit, a wrong
    /// unit.
    #[error("invalid: {0}")]
    Invalid(&'static str),
    /// A member request failed, and redundancy could not make up for it.
    #[error("input/output error")]
    Io,
    /// A member has no space left, as happens to a file on a full file system.
    #[error("no space left behind a member")]
    NoSpace,
    /// The range does not lie within the volume.
    #[error("outside the volume")]
    OutOfRange,
    /// The volume is read-only, and the request is not a read or a flush.
    #[error("the volume is read-only")]
    ReadOnly,
    /// A command was refused to protect data; the text says why and what to do instead.
    #[error("{0}")]
    Refused(String),
    /// Answer for the driver, not for a client: the member that was read has stalled and may still
    /// write into the request's frames, which are returned by `Release` when the member answers.
    /// The driver repeats the read with other frames and [`crate::Flags::again`]; the repeated read
    /// avoids the member.
    #[error("the member stalled; ask again with other frames")]
    Stalled,
    /// The volume was stopped, or is stopping.
    #[error("the volume is stopping")]
    Stopping,
    /// Dirty pages of the write-back cache could not be written to the members; the value names
    /// their ranges.
    #[error("{0}")]
    Unwritten(Box<Unwritten>),
}

/// Bytes of the write-back cache that could not be written to the members.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Unwritten {
    /// Error of the last write that failed.
    pub error: ReplyError,
    /// Total number of bytes that could not be written.
    pub bytes: u64,
    /// First ranges of the unwritten bytes in the volume, at most [`Unwritten::RANGES_MAX`], in
    /// ascending order.
    pub ranges: Vec<ByteRange>,
    /// Number of further ranges that are not listed in `ranges`.
    pub more: usize,
    /// Whether the cache gave the bytes up, so that they are lost. Otherwise their pages stay
    /// dirty.
    pub lost: bool,
}

impl Unwritten {
    /// Largest number of ranges in [`Unwritten::ranges`].
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

/// Converts the fault of a member into the error that a request gets if redundancy does not cover
/// the fault.
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
    /// `cache_frames` holds less than one stripe, so that no request would ever finish.
    #[error(
        "cache_frames: found {found}, expected at least {expected} (one stripe of the widest array)"
    )]
    TooFewFrames {
        /// Number of frames configured, in [`crate::Config::cache_frames`].
        found: u32,
        /// Number of frames that one stripe of the widest array needs.
        expected: u32,
    },
    /// Knobs of the write-back cache do not fit its size, or contradict each other.
    #[error("{0}")]
    WriteBack(String),
    /// Two members have the same index, which is given here.
    #[error("members: index {0} is used twice; give each member of all volumes its own")]
    Members(u16),
}
