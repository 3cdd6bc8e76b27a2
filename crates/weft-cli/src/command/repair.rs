//! `weft repair`: makes parity agree with the data.

use clap::Args;

use crate::outcome::Outcome;
use crate::sync_action::{self, Sync};

/// Reads every stripe of a running volume and rewrites parity that disagrees with the data
///
/// Waits for the end, with a progress bar on a terminal. Data is taken to be right, as md does: a
/// member whose data was changed behind the array is not found out.
#[derive(Debug, Args)]
pub(crate) struct Repair {
    #[command(flatten)]
    sync: Sync,
}

pub(crate) fn run(arguments: &Repair) -> Outcome {
    sync_action::run("repair", &arguments.sync)
}
