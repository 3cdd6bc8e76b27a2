//! The end of the process: its exit status, and the message of a failure as text or JSON.
//!
//! Every message on standard error starts with `weft: `.
//!
//! Source   reference.md (exit status)

use std::ffi::OsString;
use std::process::ExitCode;

use serde_json::json;

use crate::outcome::{Exit, Failure, Outcome};
use crate::terminal;

/// Whether the command line has the flag `--json`: standard output is then JSON, also after a
/// failure.
pub(crate) fn wants_json(arguments: impl Iterator<Item = OsString>) -> bool {
    arguments.skip(1).take_while(|word| word != "--").any(|word| word == "--json")
}

/// Prints a failure as JSON on standard output. A command that already printed a JSON document has
/// reported the failure in it.
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
    // An error is ignored: the reader may have closed the pipe.
    let _ = terminal::print_json(&error);
}

/// Prints the message of a failure, with `json` also as JSON, and returns the exit status.
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
