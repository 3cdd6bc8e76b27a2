//! `weft remove`: removes failed members or spares from a running volume.

use clap::Args;
use weft_export::control::Command;
use weft_terminal::outcome::Outcome;

use crate::named_members::{self, NamedMembers};

/// Forgets failed members and spares of a running volume, and closes them
///
/// A member that is in use is not removed; fail it first.
#[derive(Debug, Args)]
pub(crate) struct Remove {
    #[command(flatten)]
    members: NamedMembers,
}

pub(crate) fn run(arguments: &Remove) -> Outcome {
    let command = |members| Command::Remove { members };
    named_members::run(&arguments.members, command, "weft.remove/1", "removed")
}
