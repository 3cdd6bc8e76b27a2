//! `weft idle`: stops a resync, check or repair.

use clap::Args;
use serde_json::json;
use weft_export::control::Command;
use weft_terminal::outcome::{Exit, Outcome};
use weft_terminal::terminal::print_json;

use crate::target::Target;

/// Stops a check, repair, resync or rebuild of a running volume
///
/// A resync or rebuild that the array needs starts again by itself.
#[derive(Debug, Args)]
pub(crate) struct Idle {
    /// Name or control socket of a running volume [default: the only one]
    target: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Idle) -> Outcome {
    let mut target = Target::named_or_only(arguments.target.as_deref())?;
    target.ask(Command::sync_action("idle"))?;
    if arguments.json {
        print_json(&json!({"schema": "weft.idle/1", "volume": target.name}))?;
    }
    Ok(Exit::Done)
}
