//! `weft stop`: ends a running volume in good order.

use clap::Args;
use serde_json::json;
use weft_export::control::Command;
use weft_terminal::outcome::{Exit, Outcome};
use weft_terminal::terminal::{complain, print_json};

use crate::target::Target;

/// Ends a running volume: it stops accepting, finishes, flushes and marks the array clean
///
/// Returns when that is done and the members are closed. A member that does not answer is named;
/// the volume has stopped without it. If data in the write-back cache cannot be written, for want
/// of space say, the command fails and names the cause, and the volume goes on.
#[derive(Debug, Args)]
pub(crate) struct Stop {
    /// Name or control socket of a running volume [default: the only one]
    target: Option<String>,
    /// Give up data that cannot be written: the data is lost and counted, and the exit status is 1
    #[arg(long)]
    discard: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Stop) -> Outcome {
    let mut target = Target::named_or_only(arguments.target.as_deref())?;
    let stopped = target.ask(Command::Stop { discard: arguments.discard })?;
    if let Some(note) = &stopped.note {
        complain(&format!("{}: note: {note}", target.name));
    }
    if arguments.json {
        let mut told = json!({"schema": "weft.stop/1", "volume": target.name});
        if let Some(note) = stopped.note {
            told["note"] = note.into();
        }
        print_json(&told)?;
    }
    Ok(Exit::Done)
}
