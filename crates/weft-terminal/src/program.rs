//! A program from its command line to its exit status.
//!
//! Every message on standard error starts with the program's name, as in `weft: `, except clap's
//! errors about the command line. A failure under `--json` is also one JSON object on standard
//! output, unless the command has already printed JSON.
//!
//! Source   reference.md (exit status)

use std::ffi::OsString;
use std::io::ErrorKind;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use clap::error::{ContextKind, ContextValue};
use serde_json::json;
use signal_hook::consts::SIGXFSZ;

use crate::outcome::{Exit, Failure, Outcome};
use crate::terminal;

/// Parses the command line, runs the command, reports its outcome, and returns the exit status.
pub fn run<C: Parser>(command: impl FnOnce(&C) -> Outcome) -> ExitCode {
    // With a handler, a write beyond the limit on file sizes fails with an error like that of a
    // full disk; without a handler, the signal kills the process, and the volume stays dirty
    // without any message.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    terminal::set_program(C::command().get_name());
    let arguments = match parse::<C>() {
        Ok(arguments) => arguments,
        Err(error) => return not_parsed(error),
    };
    let outcome = command(&arguments);
    terminal::wait_if_interrupted();
    finish(outcome, wants_json(std::env::args_os()))
}

/// Reports an outcome as [`run`] does, without parsing the command line. Returns the exit status.
pub fn end<C: Parser>(outcome: Outcome) -> ExitCode {
    terminal::set_program(C::command().get_name());
    finish(outcome, wants_json(std::env::args_os()))
}

/// Parses the command line. clap's `help` accepts no options, so `help --help` is parsed as
/// `help help`, which prints the help of `help`, and `help COMMAND --help` as `help COMMAND`.
fn parse<C: Parser>() -> Result<C, clap::Error> {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    let parsed = C::try_parse_from(&words);
    let is_option = |word: &str| ["--help", "-h"].contains(&word);
    // Every command except `help` knows these options.
    let unknown = parsed.as_ref().err().and_then(|error| error.get(ContextKind::InvalidSubcommand));
    if !matches!(unknown, Some(ContextValue::String(word)) if is_option(word)) {
        return parsed;
    }
    words.retain(|word| !word.to_str().is_some_and(is_option));
    if words.iter().position(|word| word == "help") == Some(words.len() - 1) {
        words.push("help".into());
    }
    C::try_parse_from(&words)
}

/// Commands that are not suggested for a mistyped one, because they end a volume or take a member
/// from it.
const RISKY: [&str; 3] = ["fail", "remove", "stop"];

/// Prints what clap returned instead of arguments: an error on standard error, or else help or the
/// version on standard output. Returns the exit status, which is 0 for help and version.
fn not_parsed(mut error: clap::Error) -> ExitCode {
    let suggested = error.get(ContextKind::SuggestedSubcommand);
    let is_risky = |name: &String| RISKY.contains(&name.as_str());
    if matches!(suggested, Some(ContextValue::Strings(names)) if names.iter().any(is_risky)) {
        error.remove(ContextKind::SuggestedSubcommand);
    }
    let status = u8::try_from(error.exit_code()).unwrap_or(2);
    if error.use_stderr() && wants_json(std::env::args_os()) {
        print_error(status, &error.to_string());
    }
    match error.print() {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => ExitCode::from(status.max(1)),
        _ => ExitCode::from(status),
    }
}

/// Whether the command line has the flag `--json`: standard output is then JSON, also after a
/// failure.
fn wants_json(arguments: impl Iterator<Item = OsString>) -> bool {
    arguments.skip(1).take_while(|word| word != "--").any(|word| word == "--json")
}

/// Prints a failure as JSON on standard output, unless the command has already printed a JSON
/// document, which then reports the failure.
fn print_error(status: u8, message: &str) {
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
fn finish(outcome: Outcome, json: bool) -> ExitCode {
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
