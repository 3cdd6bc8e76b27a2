//! `weft get`: prints the knobs of a running volume.

use std::io::Write;

use clap::Args;
use serde_json::{Map, Value, json};
use weft_engine::knobs::{Knobs, TABLE};
use weft_export::control::{Command, MemberStatus, Response};
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::{print_json, stdout};

use crate::knobs::BITMAP;
use crate::named_members;
use crate::target::{Target, only_volume};

/// Prints knobs of a running volume, and whether it has a write-intent bitmap
///
/// Members with other values in their queues follow. --member prints the values of one member
/// alone. Without names, the output ends with the depth and rotation that the queue of each member
/// uses, and their origin: a knob, the device, or assumed.
#[derive(Debug, Args)]
#[command(after_long_help = crate::knobs::table_of_running())]
pub(crate) struct Get {
    /// Name or control socket of a running volume [default: the only one]
    target: Option<String>,
    /// Names of knobs [default: all, with their meaning]
    knobs: Vec<String>,
    /// Print the values of this member's queue, by path, file name or device number
    #[arg(long, value_name = "MEMBER")]
    member: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Get) -> Outcome {
    let (mut target, names) = chosen(arguments)?;
    let mut answer = target.ask(Command::Get { knobs: names.clone() })?;
    if let Some(member) = &arguments.member {
        of_member(&mut target, member, &names, &mut answer)?;
    }
    let Response { knobs, queues, .. } = answer;
    if arguments.json {
        let of = |knobs: Vec<(String, String)>| -> Map<String, Value> {
            knobs.into_iter().map(|(name, value)| (name, Value::String(value))).collect()
        };
        let mut values = json!({"schema": "weft.get/1", "volume": target.name, "knobs": of(knobs)});
        if !queues.is_empty() {
            let queues =
                queues.into_iter().map(|queue| (queue.label, Value::from(of(queue.knobs))));
            values["members"] = Value::Object(queues.collect());
        }
        print_json(&values)?;
        return Ok(Exit::Done);
    }
    let mut out = stdout();
    let settings: Vec<(String, String)> =
        knobs.into_iter().map(|(name, value)| (format!("{name}={value}"), name)).collect();
    let width = settings.iter().map(|(setting, _)| setting.len()).max().unwrap_or(0);
    for (setting, name) in &settings {
        // Values requested by name are printed without their meaning, for scripts.
        let row = TABLE.iter().find(|row| row.name == name);
        let about = match row {
            _ if !names.is_empty() => None,
            Some(row) => Some((row.doc, row.unit, row.range_live())),
            None if name == BITMAP.name => Some((BITMAP.doc, BITMAP.unit, BITMAP.range.to_owned())),
            None => None,
        };
        match about {
            None => writeln!(out, "{setting}")?,
            Some((doc, unit, range)) => {
                writeln!(out, "{setting:<width$}  # {doc} ({unit}, {range})")?;
            }
        }
    }
    for queue in queues {
        for (name, value) in queue.knobs {
            writeln!(out, "{}: {name}={value}", queue.label)?;
        }
    }
    if names.is_empty() {
        let status = target.status()?;
        let named = arguments.member.iter().cloned().collect::<Vec<_>>();
        let named = named_members::all(&mut target, &named)?;
        let members = only_volume(&target.name, &status)?.members.iter();
        for member in members.filter(|member| {
            named.is_empty() || named.iter().any(|one| one.index == member.index.to_string())
        }) {
            writeln!(out, "# {}", queue_line(member))?;
        }
    }
    out.flush()?;
    Ok(Exit::Done)
}

/// Splits the arguments into the volume and the names of knobs. If the first word names a knob and
/// no running volume, it is one of the names, and the volume is the only one that runs.
fn chosen(arguments: &Get) -> Result<(Target, Vec<String>), Failure> {
    let is_knob = |name: &&String| {
        let known = TABLE.iter().map(|row| row.name).chain([BITMAP.name]);
        known.into_iter().any(|known| known == *name) && Target::connect(name).is_err()
    };
    let knob = arguments.target.as_ref().filter(is_knob);
    let target = arguments.target.as_deref().filter(|_| knob.is_none());
    let names = knob.into_iter().chain(&arguments.knobs).cloned().collect();
    Ok((Target::named_or_only(target)?, names))
}

/// Text about the queue of a member: its scheduler, whether the member counts as rotational, and
/// the depth that it uses; the last two each with their origin.
fn queue_line(member: &MemberStatus) -> String {
    let queue = &member.queue;
    let depth = match (queue.depth, &queue.depth_from) {
        (Some(depth), Some(from)) => format!("{depth} ({from})"),
        _ => "none: requests go out as they are made".to_owned(),
    };
    let turns = u8::from(queue.rotational);
    format!(
        "{}: scheduler {}, rotational {turns} ({}), queue_depth {depth}",
        member.label, queue.scheduler, queue.rotational_from
    )
}

/// Reduces an answer to the values of the queue of `member`. Fails if one of the names in `asked`
/// is not a knob of queues.
fn of_member(
    target: &mut Target,
    member: &str,
    asked: &[String],
    answer: &mut Response,
) -> Result<(), Failure> {
    let named = named_members::all(target, &[member.to_owned()])?;
    let own = answer.queues.iter().find(|queue| named[0].index == queue.index.to_string());
    let own = own.map(|queue| queue.knobs.clone()).unwrap_or_default();
    let defaults = Knobs::default();
    let is_of_queues =
        |name: &str, value: &str| defaults.parse(name, value).is_ok_and(|knob| knob.is_of_queues());
    answer.knobs.retain(|(name, value)| is_of_queues(name, value));
    if let Some(name) = asked.iter().find(|name| answer.knobs.iter().all(|knob| knob.0 != **name)) {
        return Err(Failure::usage(format!(
            "{name}: of the whole volume, not of a member's queue"
        )));
    }
    for (name, value) in own {
        if let Some(knob) = answer.knobs.iter_mut().find(|knob| knob.0 == name) {
            knob.1 = value;
        }
    }
    answer.queues.clear();
    Ok(())
}
