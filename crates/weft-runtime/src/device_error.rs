//! Errors of opening a member: the device, the value that was found, the value that was expected,
//! and advice.

use rustix::io::Errno;
use thiserror::Error;

/// Reasons why a member cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The device is in use: it is mounted, or is part of another device such as an array.
    #[error("{label}: in use: found {by}, expected none; stop that first")]
    Claimed {
        /// Member as the user named it.
        label: String,
        /// Use that was found, such as `mounted at /srv` or `part of md0`.
        by: String,
    },
    /// Two members are the same range of one file or device.
    #[error("{label}: found the device of {other} again, expected each device once; leave one out")]
    Duplicate {
        /// Member that is refused, as the user named it.
        label: String,
        /// Member that was opened before, with the same range, as the user named it.
        other: String,
    },
    /// Two members have bytes in common.
    #[error(
        "{label}: overlaps {other}, expected members that have no byte in common; leave one out"
    )]
    Overlap {
        /// Member that is refused, as the user named it.
        label: String,
        /// Member that was opened before and has some of these bytes, as the user named it.
        other: String,
    },
    /// A system call on the member failed.
    #[error("{label}: {what}: {source}")]
    Io {
        /// Member as the user named it.
        label: String,
        /// Operation that failed.
        what: &'static str,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The path is neither a regular file nor a block device.
    #[error("{label}: file type: found {found}, expected a regular file or a block device")]
    Kind {
        /// Member as the user named it.
        label: String,
        /// Kind of file that was found.
        found: &'static str,
    },
    /// Another process has locked the member.
    #[error(
        "{label}: lock: found it held by another process, expected it free; stop that process, \
         or wait until its last I/O has ended"
    )]
    Locked {
        /// Member as the user named it.
        label: String,
    },
    /// Too many files are open.
    #[error("{label}: open files: limit RLIMIT_NOFILE reached; raise it (ulimit -n)")]
    NoFiles {
        /// Member as the user named it.
        label: String,
    },
    /// The member's map of ddrescue cannot be used.
    #[error("{label}: {why}")]
    Map {
        /// Member as the user named it.
        label: String,
        /// Reason, with advice. For a damaged map it names the line and the field.
        why: String,
    },
    /// A member to be written was not rescued completely, according to its map of ddrescue.
    #[error("{label}: {why}")]
    NotRescued {
        /// Member as the user named it.
        label: String,
        /// Path of the map, the number of bytes that were not read, and advice.
        why: String,
    },
    /// The overlay of the member cannot be used.
    #[error("{label}: {why}")]
    Overlay {
        /// Member as the user named it.
        label: String,
        /// Reason, with advice.
        why: String,
    },
    /// The partition that was named does not exist, or cannot be used.
    #[error("{label}: {why}")]
    Partition {
        /// Member as the user named it.
        label: String,
        /// Reason, in most cases with the partitions that the device has.
        why: String,
    },
    /// The size or the start of the member does not fit.
    #[error("{label}: {what}: found {found}, expected {expected}")]
    Size {
        /// Member as the user named it.
        label: String,
        /// Property that does not fit, such as the offset.
        what: &'static str,
        /// Value that was found, in bytes.
        found: u64,
        /// Values that are allowed, as text.
        expected: String,
    },
    /// The text does not name a member.
    #[error("{label}: found {found}, expected PATH, PATH#N, PATH@OFFSET[+LENGTH] or ram:SIZE")]
    Spec {
        /// Member as the user named it.
        label: String,
        /// Description of the part of the text that is wrong.
        found: String,
    },
}

/// Converts the error of a system call on a member: to [`DeviceError::NoFiles`] if too many files
/// are open, otherwise to [`DeviceError::Io`] with the operation `what`.
pub(crate) fn error_of(label: &str, what: &'static str, errno: Errno) -> DeviceError {
    let label = label.to_owned();
    match errno {
        Errno::MFILE | Errno::NFILE => DeviceError::NoFiles { label },
        _ => DeviceError::Io { label, what, source: errno.into() },
    }
}
