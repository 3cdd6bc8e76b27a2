//! `weft repair`: makes parity agree with the data, and copies with the first.

use clap::{Args, ValueEnum};
use weft_terminal::outcome::Outcome;

use crate::sync_action::{self, Sync};

/// Reads all members of a running volume and rewrites parity or copies that disagree
///
/// Waits for the end, with a progress bar on a terminal. Data, or the first copy, is taken to be
/// right, as md does. A RAID 6 and a mirror with three copies or more are checked first, and
/// nothing is written where P and Q name strips of data that are wrong, or where copies differ: the
/// exit status is 3 then, and `--trust` says what is right.
#[derive(Debug, Args)]
pub(crate) struct Repair {
    /// Part that is right, without a check before: data makes P and Q agree with the data, and
    /// copies with the first; syndrome rewrites the one strip of a RAID 6 that P and Q identify as
    /// wrong; majority rewrites copies that differ from more than half of all. Both leave alone
    /// what they do not explain
    #[arg(long, value_name = "WHAT")]
    trust: Option<Trust>,
    #[command(flatten)]
    sync: Sync,
}

/// Part of a stripe that is taken to be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Trust {
    /// Data, also where P and Q agree on another content of a strip; the first copy.
    Data,
    /// The content that P, Q and all other strips agree on.
    Syndrome,
    /// The content of more than half of the copies.
    Majority,
}

pub(crate) fn run(arguments: &Repair) -> Outcome {
    let action = match arguments.trust {
        Some(Trust::Data) => "repair",
        Some(trust @ (Trust::Syndrome | Trust::Majority)) => {
            sync_action::expect_mirror(&arguments.sync, trust == Trust::Majority)?;
            "correct"
        }
        None => {
            sync_action::refuse_wrong_strips(&arguments.sync)?;
            "repair"
        }
    };
    sync_action::run(action, &arguments.sync)
}
