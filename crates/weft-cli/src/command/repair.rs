//! `weft repair`: makes parity agree with the data, and copies with the first.

use clap::Args;

use crate::outcome::Outcome;
use crate::sync_action::{self, Sync};

/// Reads all members of a running volume and rewrites parity or copies that disagree
///
/// Waits for the end, with a progress bar on a terminal. Data, or the first copy, is taken to be
/// right, as md does: a member whose data was changed behind the array is not found out.
#[derive(Debug, Args)]
pub(crate) struct Repair {
    #[command(flatten)]
    sync: Sync,
}

pub(crate) fn run(arguments: &Repair) -> Outcome {
    sync_action::run("repair", &arguments.sync)
}
