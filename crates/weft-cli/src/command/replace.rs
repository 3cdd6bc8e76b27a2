//! `weft replace`: replaces members of a running volume while they work.

use std::io::Write;

use clap::Args;
use serde_json::json;
use weft_export::control::Command;
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::{print_json, stdout};

use crate::named_members::{self, Named};
use crate::target::Target;

/// Replaces members that still work, by spares that are filled beside them
///
/// A spare is filled from the member itself, or the first copy of a mirror, and from the others
/// where that cannot be read, while the volume is in use and keeps all of its redundancy. Then
/// the spare takes the slot, and the member counts as failed; weft remove forgets the member. weft
/// wait ends when the spare has the slot. To cancel the replacement, fail the spare with weft fail.
/// Without a spare the command is refused (exit status 3); weft add adds one.
#[derive(Debug, Args)]
pub(crate) struct Replace {
    /// Name or control socket of a running volume
    target: String,
    /// Members by path, file name or device number, as weft status shows them
    #[arg(value_name = "MEMBER", required = true)]
    members: Vec<String>,
    /// Spares that replace them, in the same order; otherwise the first ones are taken
    #[arg(long, value_name = "MEMBER", num_args = 1..)]
    with: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Replace) -> Outcome {
    let (count, spares) = (arguments.members.len(), arguments.with.len());
    if spares > count {
        return Err(Failure::usage(format!(
            "--with: found {spares} spares, expected at most {count}, one for each member"
        )));
    }
    let mut target = Target::connect(&arguments.target)?;
    let members = named_members::all(&mut target, &arguments.members)?;
    let with = named_members::all(&mut target, &arguments.with)?;
    let indices = |named: &[Named]| named.iter().map(|it| it.index.clone()).collect();
    target.ask(Command::Replace { members: indices(&members), with: indices(&with) })?;
    let labels = |named: Vec<Named>| named.into_iter().map(|it| it.label).collect::<Vec<_>>();
    let (members, with) = (labels(members), labels(with));
    if arguments.json {
        let volume = &target.name;
        print_json(&json!({
            "schema": "weft.replace/1", "volume": volume, "members": members, "with": with
        }))?;
    } else {
        let mut out = stdout();
        for member in members {
            writeln!(out, "replacing {member}")?;
        }
        out.flush()?;
    }
    Ok(Exit::Done)
}
