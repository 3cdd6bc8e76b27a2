//! `weft stop`: ends a running volume in good order.

use clap::Args;
use serde_json::json;
use weft_export::control::Command;

use crate::outcome::{Exit, Outcome};
use crate::target::Target;
use crate::terminal::print_json;

/// Ends a running volume: it stops accepting, finishes, flushes and marks the array clean
///
/// Returns when that is done and the members are closed. If what a write-back cache has in
/// memory cannot be written, for want of space say, it fails and names it, and the volume goes on.
#[derive(Debug, Args)]
pub(crate) struct Stop {
    /// Name or control socket of a running volume
    target: String,
    /// Give up what cannot be written: it is lost, counted, and the exit status is 1
    #[arg(long)]
    discard: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Stop) -> Outcome {
    let mut target = Target::connect(&arguments.target)?;
    target.ask(Command::Stop { discard: arguments.discard })?;
    if arguments.json {
        print_json(&json!({"schema": "weft.stop/1", "volume": target.name}))?;
    }
    Ok(Exit::Done)
}
