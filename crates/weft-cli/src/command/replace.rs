//! `weft replace`: replaces members of a running volume while they work.

use std::io::Write;

use clap::Args;
use serde_json::json;
use weft_export::control::{Command, VolumeStatus};
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::{print_json, stdout};

use crate::named_members::{self, Named};
use crate::target::{Target, only_volume};

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
    let slots = slots_of(&mut target, &members)?;
    let indices = |named: &[Named]| named.iter().map(|it| it.index.clone()).collect();
    target.ask(Command::Replace { members: indices(&members), with: indices(&with) })?;
    let status = target.status()?;
    let volume = only_volume(&target.name, &status)?;
    let spares = members.iter().zip(&slots).map(|(it, slot)| spare_of(volume, &it.index, *slot));
    let named = with.into_iter().map(|it| Some(it.label)).chain(std::iter::repeat(None));
    let spares: Vec<_> = named.zip(spares).map(|(named, found)| named.or(found)).collect();
    let labels: Vec<String> = members.into_iter().map(|it| it.label).collect();
    if arguments.json {
        let volume = &target.name;
        print_json(&json!({
            "schema": "weft.replace/2", "volume": volume, "members": labels, "with": spares
        }))?;
    } else {
        let mut out = stdout();
        for (member, spare) in labels.iter().zip(&spares) {
            let by = spare.as_ref().map(|spare| format!(" with {spare}")).unwrap_or_default();
            writeln!(out, "replacing {member}{by}")?;
        }
        out.flush()?;
    }
    Ok(Exit::Done)
}

/// Slots of the members `named`; `None` for one without a slot.
fn slots_of(target: &mut Target, named: &[Named]) -> Result<Vec<Option<u16>>, Failure> {
    let status = target.status()?;
    let volume = only_volume(&target.name, &status)?;
    let slot = |named: &Named| {
        let mut members = volume.members.iter();
        members.find(|member| member.index.to_string() == named.index)?.slot
    };
    Ok(named.iter().map(slot).collect())
}

/// Label of the spare that replaces the member with number `index` at `slot`, after the command: it
/// is reserved, is filled, or already has the slot of a small member. `None` if there is none any
/// more, or none yet.
fn spare_of(volume: &VolumeStatus, index: &str, slot: Option<u16>) -> Option<String> {
    let at = slot?;
    let others = || volume.members.iter().filter(|member| member.index.to_string() != index);
    let chosen = others().find(|it| it.reserved_for == Some(at) || it.replaces == Some(at));
    let has_slot = || others().find(|it| it.slot == slot && it.state != "faulty");
    chosen.or_else(has_slot).map(|member| member.label.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_export::control::MemberStatus;

    #[test]
    fn the_spare_that_was_chosen_is_found_in_each_state() {
        let member = |label: &str, slot: Option<u16>| MemberStatus {
            index: u16::from(label.as_bytes()[0]),
            label: label.into(),
            slot,
            state: if slot.is_some() { "in_sync" } else { "spare" }.into(),
            ..MemberStatus::default()
        };
        let of = |members: [MemberStatus; 3]| {
            let volume = VolumeStatus { members: members.into(), ..VolumeStatus::default() };
            spare_of(&volume, &u16::from(b'o').to_string(), Some(1))
        };
        let spare = || member("b", None);
        let waits = MemberStatus { reserved_for: Some(1), ..spare() };
        let filled = MemberStatus { replaces: Some(1), state: "rebuilding".into(), ..spare() };
        for chosen in [waits, filled] {
            let found = of([member("a", None), member("old", Some(1)), chosen]);
            assert_eq!(found.as_deref(), Some("b"));
        }
        let old = MemberStatus { state: "faulty".into(), ..member("old", None) };
        let has_slot = member("b", Some(1));
        assert_eq!(of([old, has_slot, member("c", Some(0))]).as_deref(), Some("b"));
        let without = of([member("a", Some(0)), member("old", Some(1)), spare()]);
        assert_eq!(without, None);
    }
}
