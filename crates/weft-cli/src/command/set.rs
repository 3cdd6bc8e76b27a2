//! `weft set`: sets knobs of a running volume.

use clap::Args;
use serde_json::json;
use weft_engine::knobs::Knobs;
use weft_export::control::Command;
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::print_json;

use crate::named_members;
use crate::target::Target;

/// Changes knobs of a running volume, or adds or removes its write-intent bitmap
///
/// Changes are made in order, up to the first that is refused. Knobs are lost when the volume
/// stops. The bitmap stays: bitmap=internal writes one to every member and then names it in the
/// superblocks, bitmap=none removes it. Writes go on meanwhile; while a resync, rebuild or check
/// runs, both are refused, as by mdadm.
///
/// Knobs of queues (scheduler, nr_requests and the like) can be set for single members with
/// --member. Without it, a value applies to every member, also to members with a value of their
/// own.
#[derive(Debug, Args)]
#[command(after_long_help = crate::knobs::table_of_running())]
pub(crate) struct Set {
    /// Name or control socket of a running volume
    target: String,
    /// Knobs and their values, as weft get prints them; sizes take K, M, G
    #[arg(value_name = "KNOB=VALUE", required = true)]
    knobs: Vec<String>,
    /// Change the queue of this member alone, by path, file name or device number; may be repeated
    #[arg(long = "member", value_name = "MEMBER")]
    members: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Name of the knob that `setting` changes, if it is one that all volumes of a server share; `None`
/// otherwise.
fn of_pool(setting: &str) -> Option<&str> {
    let (name, value) = setting.split_once('=')?;
    let knob = Knobs::default().parse(name, &crate::knobs::plain(name, value)).ok()?;
    knob.is_of_pool().then_some(name)
}

pub(crate) fn run(arguments: &Set) -> Outcome {
    let knobs: Result<Vec<_>, Failure> = arguments
        .knobs
        .iter()
        .map(|setting| {
            let (name, value) = crate::knobs::split(setting)?;
            Ok((name.to_owned(), crate::knobs::plain(name, value)))
        })
        .collect();
    let mut target = Target::connect(&arguments.target)?;
    let knobs = knobs?;
    let mut values =
        json!({"schema": "weft.set/1", "volume": target.name, "knobs": arguments.knobs});
    if arguments.members.is_empty() {
        target.ask(Command::Set { knobs })?;
    } else {
        let members = named_members::all(&mut target, &arguments.members)?;
        let indices = members.iter().map(|member| member.index.clone()).collect();
        target.ask(Command::SetQueues { members: indices, knobs })?;
        values["members"] = members.into_iter().map(|member| member.label).collect();
    }
    if arguments.json {
        print_json(&values)?;
    } else if let Some(name) = arguments.knobs.iter().find_map(|knob| of_pool(knob)) {
        eprintln!("weft: {name} is of the write-back cache: set for all volumes of this server");
    }
    Ok(Exit::Done)
}
