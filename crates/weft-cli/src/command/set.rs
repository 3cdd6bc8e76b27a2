//! `weft set`: tune a running volume.

use clap::Args;
use weft_export::control::Command;

use crate::outcome::{Exit, Failure, Outcome};
use crate::target::Target;

/// Changes knobs of a running volume
///
/// One after the other; stops at the first that is refused. Nothing of it is kept when the volume
/// is stopped.
#[derive(Debug, Args)]
#[command(after_long_help = super::knobs::table())]
pub(crate) struct Set {
    /// Name or control socket of a running volume
    target: String,
    /// What to change, as weft get prints it
    #[arg(value_name = "KNOB=VALUE", required = true)]
    knobs: Vec<String>,
}

pub(crate) fn run(arguments: &Set) -> Outcome {
    let knobs: Result<Vec<_>, Failure> = arguments
        .knobs
        .iter()
        .map(|setting| {
            super::knobs::split(setting).map(|(name, value)| (name.to_owned(), value.to_owned()))
        })
        .collect();
    Target::connect(&arguments.target)?.ask(Command::Set { knobs: knobs? })?;
    Ok(Exit::Done)
}
