//! `weft fail`: declares members of a running volume failed.

use clap::Args;
use weft_export::control::Command;
use weft_terminal::outcome::Outcome;

use crate::named_members::{self, NamedMembers};

/// Declares members of a running volume failed
///
/// Their data is reconstructed from the others from now on. All that are named, or none: refused
/// when too few members would be left.
#[derive(Debug, Args)]
pub(crate) struct Fail {
    #[command(flatten)]
    members: NamedMembers,
}

pub(crate) fn run(arguments: &Fail) -> Outcome {
    let command = |members| Command::Fail { members };
    named_members::run(&arguments.members, command, "weft.fail/1", "failed")
}
