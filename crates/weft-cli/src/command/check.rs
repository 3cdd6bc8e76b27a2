//! `weft check`: compares parity with data, and copies with each other, in a running volume.

use clap::Args;
use weft_terminal::outcome::Outcome;

use crate::sync_action::{self, Sync};

/// Reads all members of a running volume and counts where parity or copies disagree
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
