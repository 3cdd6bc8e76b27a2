//! `weft check`: compares parity with the data, in all stripes of a running volume.

use clap::Args;

use crate::outcome::Outcome;
use crate::sync_action::{self, Sync};

/// Reads every stripe of a running volume and counts where parity disagrees with the data
///
/// Waits for the end, with a progress bar on a terminal. Exit status: 0, or 5 when mismatches were
/// found.
#[derive(Debug, Args)]
pub(crate) struct Check {
    #[command(flatten)]
    sync: Sync,
}

pub(crate) fn run(arguments: &Check) -> Outcome {
    sync_action::run("check", &arguments.sync)
}
