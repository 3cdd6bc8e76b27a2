//! End of a command: exit status and message.
//!
//! The exit status is for scripts; people get at most one message. Every message starts with `weft:
//! ` and says what was found, what was expected and what to do.
//!
//! Source   cli.md, "Exit status"

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use serde_json::json;

use crate::terminal;

/// What a command returns: the status it ends with, or why it stopped.
pub(crate) type Outcome = Result<Exit, Failure>;

/// Exit statuses of commands that did what they were asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done.
    Done,
    /// Done, and an array is degraded (`status`).
    Degraded,
    /// Done, and mismatches were found (`check`).
    Mismatches,
    /// The status of somebody else: `serve --exec`, `detail --test`, `examine`.
    Of(u8),
}

/// Reasons why a command stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The operation failed.
    Failed(String),
    /// What was said makes no sense, or is not for this release.
    Usage(String),
    /// Not done for safety; nothing was written.
    Refused(String),
    /// Whoever read our output has gone. Nobody is left to be told.
    BrokenPipe,
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
impl Failure {
    pub(crate) fn failed(message: impl ToString) -> Self {
        Self::Failed(message.to_string())
    }

    pub(crate) fn usage(message: impl ToString) -> Self {
        Self::Usage(message.to_string())
    }

    pub(crate) fn refused(message: impl ToString) -> Self {
        Self::Refused(message.to_string())
    }
}

/// Writing our own output is the only I/O whose error converts by itself; all others say where.
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

/// The trait that `serde_json` errors lack: what kind of I/O error they were.
trait IntoIo {
    fn into_io_error(self) -> io::Error;
}

impl IntoIo for serde_json::Error {
    fn into_io_error(self) -> io::Error {
        self.into()
    }
}

/// Whether the command line has the flag `--json`: then standard output has JSON, though it fails.
pub(crate) fn wants_json(arguments: impl Iterator<Item = OsString>) -> bool {
    arguments.skip(1).take_while(|word| word != "--").any(|word| word == "--json")
}

/// Prints a failure as JSON on standard output, unless a value was printed there already: a
/// document that says what is wrong.
pub(crate) fn print_error(status: u8, message: &str) {
    if terminal::printed_json() {
        return;
    }
    let kind = match status {
        2 => "usage",
        3 => "refused",
        _ => "failed",
    };
    let message = message.trim_end();
    let error = json!({"schema": "weft.error/1", "error": message, "kind": kind, "exit": status});
    // Nobody may be left to read it.
    let _ = terminal::print_json(&error);
}

/// Prints the message, with `json` as JSON too, and gives the status of the process.
pub(crate) fn finish(outcome: Outcome, json: bool) -> ExitCode {
    let (status, message) = match outcome {
        Ok(Exit::Done) => (0, None),
        Ok(Exit::Degraded) => (4, None),
        Ok(Exit::Mismatches) => (5, None),
        Ok(Exit::Of(status)) => (status, None),
        Err(Failure::Failed(message)) => (1, Some(message)),
        Err(Failure::Usage(message)) => (2, Some(message)),
        Err(Failure::Refused(message)) => (3, Some(message)),
        Err(Failure::BrokenPipe) => (0, None),
    };
    if let Some(message) = message {
        if json {
            print_error(status, &message);
        }
        terminal::complain(&message);
    }
    ExitCode::from(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_asked_for_by_the_flag_alone() {
        for (line, wanted) in [
            ("weft stop vol --json", true),
            ("weft --json", true),
            ("weft stop vol", false),
            ("weft cat -- --json", false),
            ("weft serve m --exec --json-tool", false),
            ("--json stop", false),
        ] {
            let words = line.split(' ').map(OsString::from);
            assert_eq!(wants_json(words), wanted, "{line}");
        }
    }
}
