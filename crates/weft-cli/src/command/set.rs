//! `weft set`: sets knobs of a running volume.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use weft_engine::knobs::Knobs;
use weft_export::control::Command;
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::{label, print_json};

use crate::configuration::default_volumes;
use crate::named_members;
use crate::target::Target;
use crate::volumes_file::{KeptKnobs, NewFile};

/// Changes knobs of a running volume, or adds or removes its write-intent bitmap
///
/// Changes are made in order, up to the first that is refused. Knobs are lost when the volume
/// stops, unless --save keeps them for the next start: once the volume has taken all of them, they
/// are written to the file of weft daemon that describes the volume. The bitmap stays:
/// bitmap=internal writes one to every member and then names it in the superblocks, bitmap=none
/// removes it. Writes go on meanwhile; while a resync, rebuild or check runs, both are refused, as
/// by mdadm.
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
    /// Keep the knobs for the next start, in the file that describes the volume
    #[arg(long, conflicts_with = "members")]
    save: bool,
    /// File of the volumes [default: /etc/weft.toml for root, else ~/.config/weft.toml]
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, requires = "save")]
    config: Option<PathBuf>,
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

/// Writes the file that will keep the knobs beside the one that it replaces once they are set;
/// `None` without `--save`.
fn kept(arguments: &Set, target: &Target) -> Result<Option<NewFile>, Failure> {
    if !arguments.save {
        return Ok(None);
    }
    let config = arguments.config.clone().map_or_else(default_volumes, Ok)?;
    let mut kept = KeptKnobs::of(&config, target.volume())?;
    for setting in &arguments.knobs {
        let (name, value) = crate::knobs::split(setting)?;
        kept.set(name, value)?;
    }
    kept.write().map(Some)
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
    let kept = kept(arguments, &target)?;
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
    let saved = kept.map(NewFile::replace).transpose()?;
    if let Some(path) = &saved {
        values["saved"] = label(path).into();
    }
    if arguments.json {
        print_json(&values)?;
        return Ok(Exit::Done);
    }
    if let Some(name) = arguments.knobs.iter().find_map(|knob| of_pool(knob)) {
        eprintln!("weft: {name} is of the write-back cache: set for all volumes of this server");
    }
    if let Some(path) = saved {
        eprintln!("weft: saved in {}", label(&path));
    }
    Ok(Exit::Done)
}
