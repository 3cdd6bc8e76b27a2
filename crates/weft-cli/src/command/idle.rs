//! `weft idle`: stop what runs over all rows.

use clap::Args;
use weft_export::control::Command;

use crate::outcome::{Exit, Outcome};
use crate::target::Target;

/// Stops a check, repair, resync or rebuild of a running volume
///
/// What the array needs, a resync or a rebuild, starts again by itself.
#[derive(Debug, Args)]
pub(crate) struct Idle {
    /// Name or control socket of a running volume
    target: String,
}

pub(crate) fn run(arguments: &Idle) -> Outcome {
    Target::connect(&arguments.target)?.ask(Command::SyncAction { action: "idle".into() })?;
    Ok(Exit::Done)
}
