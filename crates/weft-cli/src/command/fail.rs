//! `weft fail`: declare a member of a running volume failed?

use std::io::Write;

use clap::Args;
use serde_json::json;
use weft_export::control::Command;

use super::members;
use super::status::only_volume;
use crate::outcome::{Exit, Outcome};
use crate::target::Target;
use crate::terminal::{print_json, stdout};

/// Declares members of a running volume failed
///
/// Their data is reconstructed from the others from now on. All that are named, or none: refused
/// when too few members would be left.
#[derive(Debug, Args)]
pub(crate) struct Fail {
    /// Name or control socket of a running volume
    target: String,
    /// By path, file name or device number, as weft status shows them
    #[arg(value_name = "MEMBER", required = true)]
    members: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Fail) -> Outcome {
    let mut target = Target::connect(&arguments.target)?;
    let status = target.status()?;
    let volume = only_volume(&target.name, &status)?;
    let members = members::named(&target.name, volume, &arguments.members)?;
    target.ask(Command::Fail { members: members::indices(&members) })?;
    let members = members::labels(&members);
    if arguments.json {
        print_json(&json!({"schema": "weft.fail/1", "volume": volume.name, "members": members}))?;
    } else {
        let mut out = stdout();
        for member in members {
            writeln!(out, "failed {member}")?;
        }
        out.flush()?;
    }
    Ok(Exit::Done)
}
