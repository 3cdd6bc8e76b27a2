//! `weft assemble`: which members are believed, and may the array be served?
//!
//! Prints the decision that `serve` and `cat` would take, with its reasons. Writes nothing.

use std::io::Write;

use clap::Args;
use serde_json::{Value, json};
use weft_engine::assemble::{Assembly, Candidate, Options, Refused, SlotState, assemble};
use weft_ondisk::{Role, layout_id};
use weft_units::MemberIndex;

use crate::look;
use crate::member::{self, MemberArg};
use crate::outcome::{Exit, Failure, Outcome};
use crate::size;
use crate::terminal::{complain, print_json, stdout};

/// How to choose among what was found. The same options mean the same for `cat` and `serve`.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Selection {
    /// Only members of the array with this uuid
    #[arg(long)]
    pub(crate) uuid: Option<String>,
}

/// Says which members would be believed, whether the array could be served, and why
///
/// Reads only. Exit status: 0 when serve would start, 3 when it would refuse.
#[derive(Debug, Args)]
pub(crate) struct Assemble {
    /// Decide as serve --read-only would
    #[arg(short = 'o', long)]
    read_only: bool,
    /// Decide as serve --run would: accept a set that is newly degraded
    #[arg(short = 'R', long)]
    run: bool,
    /// Decide as serve --force-dirty would: accept a set that is dirty and degraded
    #[arg(long)]
    force_dirty: bool,
    #[command(flatten)]
    selection: Selection,
    /// Only members of the array of this name
    #[arg(short = 'N', long)]
    name: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Files or block devices
    #[arg(value_name = "MEMBER", required = true, value_parser = MemberArg::parser())]
    members: Vec<MemberArg>,
}

pub(crate) fn run(arguments: &Assemble) -> Outcome {
    let paths = member::paths(&arguments.members).map_err(Failure::Usage)?;
    let candidates = look::candidates(&look::open_all(&paths)?);
    let options = Options {
        read_only: arguments.read_only,
        run: arguments.run,
        force_dirty: arguments.force_dirty,
        uuid: arguments.selection.uuid()?,
        name: arguments.name.clone(),
    };
    let decision = assemble(&candidates, &options);
    if arguments.json {
        print_json(&to_json(&candidates, &decision))?;
    } else {
        print_text(&candidates, &decision)?;
    }
    match decision {
        Ok(_) => Ok(Exit::Done),
        Err(refused) => Err(refusal(&refused)),
    }
}

impl Selection {
    pub(crate) fn uuid(&self) -> Result<Option<weft_ondisk::Uuid>, Failure> {
        let parse = |text: &String| {
            text.parse().map_err(|error| Failure::usage(format!("--uuid: {text}: {error}")))
        };
        self.uuid.as_ref().map(parse).transpose()
    }
}

/// A refusal as a command ends with it: what, why not, and the way out.
pub(crate) fn refusal(refused: &Refused) -> Failure {
    let mut message = refused.reason.clone();
    // What was found of each device matters when no array was found at all.
    if refused.reason.starts_with("no md superblock") || refused.reason.starts_with("only spares") {
        for dropped in &refused.dropped {
            complain(&format!("{}: {}", dropped.member.label, dropped.reason));
        }
    }
    if let Some(way_out) = &refused.way_out {
        message = format!("{message}; {way_out}");
    }
    Failure::Refused(message)
}

/// A line about each member: slot, state, events, reason.
struct Line {
    label: String,
    slot: Option<u16>,
    state: &'static str,
    events: Option<u64>,
    reason: String,
}

fn lines(candidates: &[Candidate], decision: &Result<Assembly, Refused>) -> Vec<Line> {
    candidates.iter().map(|candidate| line(candidate, decision)).collect()
}

fn line(candidate: &Candidate, decision: &Result<Assembly, Refused>) -> Line {
    let index = candidate.member.index;
    let superblock = candidate.superblock.as_ref().ok();
    let mut line = Line {
        label: candidate.member.label.clone(),
        slot: superblock.and_then(|superblock| match superblock.own_role() {
            Ok(Role::Active(slot)) => Some(slot.0),
            _ => None,
        }),
        state: "undecided",
        events: superblock.map(|superblock| superblock.events),
        reason: String::new(),
    };
    let dropped = match decision {
        Ok(assembly) => {
            if let Some((slot, state, reason)) = standing(assembly, index) {
                (line.slot, line.state, line.reason) = (slot, state, reason);
            }
            &assembly.dropped
        }
        Err(refused) => &refused.dropped,
    };
    if let Some(dropped) = dropped.iter().find(|dropped| dropped.member.index == index) {
        (line.slot, line.state, line.reason) = (None, "not used", dropped.reason.clone());
    }
    line
}

/// Where a member stands in an assembly.
fn standing(
    assembly: &Assembly,
    index: MemberIndex,
) -> Option<(Option<u16>, &'static str, String)> {
    for (state, slot) in assembly.slots.iter().zip(0_u16..) {
        match state {
            SlotState::InSync(member) if member.info.index == index => {
                return Some((Some(slot), "in sync", String::new()));
            }
            SlotState::Rebuilding { member, good_to } if member.info.index == index => {
                let good = size::human(good_to.bytes());
                let all = size::human(assembly.geometry.member_size().bytes());
                return Some((Some(slot), "rebuilding", format!("good up to {good} of {all}")));
            }
            SlotState::InSync(_) | SlotState::Missing | SlotState::Rebuilding { .. } => {}
        }
    }
    let spare = assembly.spares.iter().any(|spare| spare.info.index == index);
    spare.then(|| (None, "spare", String::new()))
}

/// What would be served, in a sentence.
pub(crate) fn title(assembly: &Assembly) -> String {
    let geometry = &assembly.geometry;
    let (all, missing) = (usize::from(geometry.members()), assembly.degraded());
    let layout = layout_id::name(geometry.level(), geometry.layout());
    format!(
        "{} ({}): {}, {}, {} of {all} members in sync, chunk {}{}, events {}{}",
        assembly.name,
        assembly.uuid,
        geometry.level(),
        size::human(geometry.array_size().bytes()),
        all - missing,
        size::human(geometry.chunk().bytes()),
        layout.map(|layout| format!(", {layout}")).unwrap_or_default(),
        assembly.events,
        match assembly.resync_from {
            None => ", clean".to_owned(),
            Some(from) => format!(", dirty from {}", size::human(from.bytes())),
        },
    )
}

fn print_text(
    candidates: &[Candidate],
    decision: &Result<Assembly, Refused>,
) -> Result<(), Failure> {
    let mut out = stdout();
    if let Ok(assembly) = decision {
        writeln!(out, "{}", title(assembly))?;
    }
    let lines = lines(candidates, decision);
    let width = lines.iter().map(|line| line.label.chars().count()).max().unwrap_or(0).max(6);
    writeln!(
        out,
        "  {:<width$}  {:>4}  {:<10}  {:>8}  reason",
        "member", "slot", "state", "events"
    )?;
    for line in &lines {
        let slot = line.slot.map_or("-".to_owned(), |slot| slot.to_string());
        let events = line.events.map_or("-".to_owned(), |events| events.to_string());
        let text = format!(
            "  {:<width$}  {slot:>4}  {:<10}  {events:>8}  {}",
            line.label, line.state, line.reason
        );
        writeln!(out, "{}", text.trim_end())?;
    }
    if let Ok(assembly) = decision {
        for (slot, _) in missing(assembly) {
            writeln!(out, "  {:<width$}  {slot:>4}  missing", "-")?;
        }
        for note in &assembly.notes {
            writeln!(out, "note: {note}")?;
        }
        let mode = if assembly.read_only { "read-only" } else { "for reading and writing" };
        let degraded = if assembly.degraded() > 0 { ", degraded" } else { "" };
        writeln!(out, "decision: can be served {mode}{degraded}; nothing was written")?;
    } else {
        writeln!(out, "decision: refused; nothing was written")?;
    }
    out.flush()?;
    Ok(())
}

fn missing(assembly: &Assembly) -> impl Iterator<Item = (usize, &SlotState)> {
    assembly.slots.iter().enumerate().filter(|(_, state)| matches!(state, SlotState::Missing))
}

fn to_json(candidates: &[Candidate], decision: &Result<Assembly, Refused>) -> Value {
    let members: Vec<Value> = lines(candidates, decision)
        .into_iter()
        .map(|line| {
            json!({
                "member": line.label, "slot": line.slot, "state": line.state.replace(' ', "_"),
                "events": line.events, "reason": line.reason,
            })
        })
        .collect();
    match decision {
        Ok(assembly) => {
            let geometry = &assembly.geometry;
            json!({
                "schema": "weft.assemble/1",
                "decision": "serve",
                "name": assembly.name,
                "uuid": assembly.uuid.to_string(),
                "level": geometry.level().name(),
                "layout": layout_id::name(geometry.level(), geometry.layout()),
                "chunk_bytes": geometry.chunk().bytes().0,
                "array_size_bytes": geometry.array_size().bytes().0,
                "raid_devices": geometry.members(),
                "degraded": assembly.degraded(),
                "missing_slots": missing(assembly).map(|(slot, _)| slot).collect::<Vec<_>>(),
                "events": assembly.events,
                "resync_from_bytes": assembly.resync_from.map(|from| from.bytes().0),
                "read_only": assembly.read_only,
                "notes": assembly.notes,
                "members": members,
            })
        }
        Err(refused) => json!({
            "schema": "weft.assemble/1",
            "decision": "refuse",
            "reason": refused.reason,
            "way_out": refused.way_out,
            "members": members,
        }),
    }
}
