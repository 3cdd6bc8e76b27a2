//! The outcome of a command: an exit status that scripts can tell apart, or a failure.
//!
//! A failure is one message that states what was found, what was expected and what to do.
//!
//! Source   reference.md (exit status)

use std::io;

/// Result of a command: its exit status, or the failure that stopped it.
pub type Outcome = Result<Exit, Failure>;

/// Exit statuses of commands that were carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Status 0: the command did what was asked.
    Done,
    /// Status 4: the command did what was asked, and an array is degraded (`weft status`,
    /// `weft wait`, `weft monitor --oneshot`), or there is a problem (`weft doctor`).
    Degraded,
    /// Status 5: the command did what was asked, and mismatches were found (`check`), or a case is
    /// worse than `compare --fail-above` allows.
    Mismatches,
    /// Another status: that of the command of `serve --exec`, that of mdadm for `detail --test`, 1
    /// for an incomplete result (of `examine`, `cp` or `ls`, for example), or 130 after an
    /// interruption.
    Of(u8),
}

/// Reasons why a command stopped, with the message for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Status 1: the operation failed.
    Failed(String),
    /// Status 2: the command line is invalid, or requests a feature of a later release.
    Usage(String),
    /// Status 3: the command refused for safety; nothing was written.
    Refused(String),
    /// Status 0: the reader of standard output has closed the pipe, so no message is printed.
    BrokenPipe,
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
impl Failure {
    /// Creates [`Failure::Failed`] with this message.
    pub fn failed(message: impl ToString) -> Self {
        Self::Failed(message.to_string())
    }

    /// Creates [`Failure::Usage`] with this message.
    pub fn usage(message: impl ToString) -> Self {
        Self::Usage(message.to_string())
    }

    /// Creates [`Failure::Refused`] with this message.
    pub fn refused(message: impl ToString) -> Self {
        Self::Refused(message.to_string())
    }

    /// Text of the failure, for a command that goes on or reports the failure in another way.
    #[must_use]
    pub fn message(&self) -> &str {
        match self {
            Self::Failed(text) | Self::Usage(text) | Self::Refused(text) => text,
            Self::BrokenPipe => "standard output is closed",
        }
    }
}

/// Converts an error of a write to standard output: a closed pipe to [`Failure::BrokenPipe`], any
/// other error to [`Failure::Failed`]. Errors of files are converted explicitly, with the name of
/// the file.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::BrokenPipe
        } else {
            Self::Failed(format!("standard output: {error}"))
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        error.into_io_error().into()
    }
}

/// Conversion of an error of `serde_json` to an I/O error.
trait IntoIo {
    fn into_io_error(self) -> io::Error;
}

impl IntoIo for serde_json::Error {
    fn into_io_error(self) -> io::Error {
        self.into()
    }
}
