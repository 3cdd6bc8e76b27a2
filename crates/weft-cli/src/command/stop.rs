//! `weft stop`: end a running volume in good order.

use clap::Args;
use weft_export::control::Command;

use crate::outcome::{Exit, Outcome};
use crate::target::Target;

/// Ends a running volume: it stops accepting, finishes, flushes and marks the array clean
///
/// Returns when that is done and the members are closed.
#[derive(Debug, Args)]
#[command(visible_alias = "S")]
pub(crate) struct Stop {
    /// Name or control socket of a running volume
    target: String,
}

pub(crate) fn run(arguments: &Stop) -> Outcome {
    Target::connect(&arguments.target)?.ask(Command::Stop)?;
    Ok(Exit::Done)
}
