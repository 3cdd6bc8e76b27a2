//! `weft re-add`: takes former members of a running volume back, by the write-intent bitmap.

use std::io::Write;

use clap::Args;
use serde_json::json;
use weft_export::control::Command;
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::{print_json, stdout};

use crate::member::MemberArg;
use crate::target::Target;

/// Takes former members back into their slots
///
/// Copies only what the members missed, according to the write-intent bitmap. A member for which
/// the bitmap cannot tell is refused (exit status 3); weft add copies all of it.
#[derive(Debug, Args)]
pub(crate) struct ReAdd {
    /// Name or control socket of a running volume
    target: String,
    /// PATH, PATH#N (partition N) or PATH@OFFSET[+LENGTH]
    #[arg(value_name = "MEMBER", required = true, value_parser = MemberArg::parser())]
    members: Vec<MemberArg>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &ReAdd) -> Outcome {
    let mut target = Target::connect(&arguments.target)?;
    let mut members = Vec::new();
    for member in &arguments.members {
        let MemberArg::Path(path) = member else {
            return Err(Failure::usage(format!("{member}: name a file or device")));
        };
        let path = std::path::absolute(path);
        let path = path.map_err(|error| Failure::failed(format!("{member}: {error}")))?;
        let label = path.to_str().map(str::to_owned).ok_or_else(|| {
            Failure::usage(format!("{member}: the control socket takes names in UTF-8 only"))
        })?;
        members.push(label);
    }
    target.ask(Command::ReAdd { members: members.clone() })?;
    if arguments.json {
        let volume = &target.name;
        print_json(&json!({"schema": "weft.re-add/1", "volume": volume, "members": members}))?;
    } else {
        let mut out = stdout();
        for member in members {
            writeln!(out, "re-added {member}")?;
        }
        out.flush()?;
    }
    Ok(Exit::Done)
}
