//! `weft remove`: forget a failed member or a spare?

use std::io::Write;

use clap::Args;
use serde_json::json;
use weft_export::control::Command;

use super::members;
use super::status::only_volume;
use crate::outcome::{Exit, Outcome};
use crate::target::Target;
use crate::terminal::{print_json, stdout};

/// Forgets failed members and spares of a running volume, and closes them
///
/// A member that is in use is not removed; fail it first.
#[derive(Debug, Args)]
pub(crate) struct Remove {
    /// Name or control socket of a running volume
    target: String,
    /// By path, file name or device number, as weft status shows them
    #[arg(value_name = "MEMBER", required = true)]
    members: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Remove) -> Outcome {
    let mut target = Target::connect(&arguments.target)?;
    let status = target.status()?;
    let volume = only_volume(&target.name, &status)?;
    let members = members::named(&target.name, volume, &arguments.members)?;
    target.ask(Command::Remove { members: members::indices(&members) })?;
    let members = members::labels(&members);
    if arguments.json {
        print_json(&json!({"schema": "weft.remove/1", "volume": volume.name, "members": members}))?;
    } else {
        let mut out = stdout();
        for member in members {
            writeln!(out, "removed {member}")?;
        }
        out.flush()?;
    }
    Ok(Exit::Done)
}
