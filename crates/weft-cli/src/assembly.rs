//! Assembly of an array for a command: its options, the line about each member, the text of a
//! refusal.

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use weft_engine::assemble::{Assembly, Candidate, Dropped, Options, Refused, SlotState};
use weft_ondisk::Role;
use weft_terminal::outcome::Failure;
use weft_terminal::terminal::complain;
use weft_units::{MemberIndex, Sectors};

use crate::{size, states};

/// Options that select the array among the members that were named, by uuid or by name. They mean
/// the same in every command that takes members of an array.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Selection {
    /// Only members of the array with this uuid
    #[arg(long)]
    uuid: Option<String>,
    /// Only members of the array of this name
    #[arg(long, value_name = "NAME")]
    array: Option<String>,
}

impl Selection {
    /// Whether the selection has neither a UUID nor a name, so that members of any array are taken.
    pub(crate) fn is_any(&self) -> bool {
        self.uuid.is_none() && self.array.is_none()
    }

    /// Assembly options for this selection; all other options have their defaults. Fails if the
    /// value of `--uuid` is not a UUID.
    pub(crate) fn options(&self) -> Result<Options, Failure> {
        let parse = |text: &String| {
            text.parse().map_err(|error| Failure::usage(format!("--uuid: {text}: {error}")))
        };
        let uuid = self.uuid.as_ref().map(parse).transpose()?;
        Ok(Options { uuid, name: self.array.clone(), ..Options::default() })
    }
}

/// Options that accept what `weft` refuses to assemble by itself, because data may be lost by it.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Consent {
    /// Accept an array that is dirty and degraded: data reconstructed from stripes that were being
    /// written when it stopped may be wrong
    #[arg(long)]
    pub(crate) force_dirty: bool,
    /// Accept an array without its journal, for reading only: data may be old or wrong
    #[arg(long)]
    pub(crate) without_journal: bool,
}

/// Options that decide whether an array is served, and how: of `serve`, and of `assemble`, which
/// says what `serve` would do.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct AssemblyOptions {
    /// Take no writes, and write nothing to any member
    #[arg(short = 'o', long)]
    pub(crate) read_only: bool,
    /// Accept a set that is newly degraded
    #[arg(short = 'R', long)]
    pub(crate) run: bool,
    #[command(flatten)]
    consent: Consent,
    /// Go on without a member that has not answered for this many seconds while its metadata is
    /// read, as if the member had not been named; a set that is newly degraded by this needs --run
    /// [default: wait for the member, with a notice]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    member_wait: Option<u32>,
}

impl AssemblyOptions {
    /// Assembly options for the members of a selection.
    ///
    /// # Errors
    /// The value of `--uuid` is not a UUID.
    pub(crate) fn options(&self, selection: &Selection) -> Result<Options, Failure> {
        let Self { read_only, run, consent, .. } = self;
        let Consent { force_dirty, without_journal } = *consent;
        let chosen = selection.options()?;
        Ok(Options { read_only: *read_only, run: *run, force_dirty, without_journal, ..chosen })
    }

    /// Longest wait for a member's metadata; `None` waits forever.
    pub(crate) fn member_wait(&self) -> Option<Duration> {
        self.member_wait.map(|seconds| Duration::from_secs(seconds.into()))
    }
}

/// Reports the named members that are not used, and the reasons.
pub(crate) fn tell_dropped(dropped: &[Dropped]) {
    for Dropped { member, reason } in dropped {
        complain(&format!("{}: not used: {reason}", member.label));
    }
}

/// Converts a refusal to the failure of a command, with the reason for the array and advice. Prints
/// the reason for each unused member, unless `named`, the number of members on the command line, is
/// 1.
pub(crate) fn refusal(refused: &Refused, named: usize) -> Failure {
    if named > 1 {
        tell_dropped(&refused.dropped);
    }
    Failure::Refused(sentence(refused, named))
}

/// Reason of a refusal, with advice. `named` is the number of members on the command line.
pub(crate) fn sentence(refused: &Refused, named: usize) -> String {
    // With a single device, the fault of the device is the whole reason.
    if let ([only], 1) = (refused.dropped.as_slice(), named) {
        return format!("{}: {}", only.member.label, only.reason);
    }
    format!("{}; {}", refused.reason, refused.state.next())
}

/// Line of output about a member: its slot, state, event count, and remark.
pub(crate) struct Line {
    pub(crate) label: String,
    pub(crate) slot: Option<u16>,
    pub(crate) state: &'static str,
    pub(crate) events: Option<u64>,
    pub(crate) reason: String,
}

pub(crate) fn lines(candidates: &[Candidate], decision: &Result<Assembly, Refused>) -> Vec<Line> {
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
        events: superblock.map(|superblock| superblock.events()),
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

/// Slot, state and remark of a member for its line; `None` if the assembly does not use the member.
fn standing(
    assembly: &Assembly,
    index: MemberIndex,
) -> Option<(Option<u16>, &'static str, String)> {
    for (state, slot) in assembly.slots.iter().zip(0_u16..) {
        match state {
            SlotState::InSync(member) if member.info.index == index => {
                return Some((Some(slot), "in sync", String::new()));
            }
            SlotState::Rebuilding { member, recovery_offset } if member.info.index == index => {
                let good = size::human(recovery_offset.bytes());
                let all = size::human(assembly.layout.member_size().bytes());
                return Some((Some(slot), "rebuilding", format!("good up to {good} of {all}")));
            }
            SlotState::InSync(_) | SlotState::Missing | SlotState::Rebuilding { .. } => {}
        }
    }
    let mut replacements = assembly.replacements.iter();
    if let Some(it) = replacements.find(|it| it.member.info.index == index) {
        let good = size::human(it.recovery_offset.bytes());
        let all = size::human(assembly.layout.member_size().bytes());
        let remark = format!("filled up to {good} of {all} to replace the member of its slot");
        return Some((Some(it.slot.0), "replacement", remark));
    }
    let spare = assembly.spares.iter().any(|spare| spare.info.index == index);
    spare.then(|| (None, "spare", String::new()))
}

/// Text about an assembled array in one line: name, UUID, level, size, members in sync, chunk,
/// layout, events, and clean state.
pub(crate) fn title(assembly: &Assembly) -> String {
    let array = &assembly.layout;
    let (all, missing) = (assembly.slots.len(), assembly.degraded());
    let layout = array.level().row().layouts.name(array.number());
    format!(
        "{} ({}): {}, {}, {} of {all} members in sync{}{}, events {}{}",
        assembly.name,
        assembly.uuid,
        array.level(),
        size::human(array.array_size().bytes()),
        all - missing,
        match array.chunk() {
            Sectors::ZERO => String::new(),
            chunk => format!(", chunk {}", size::human(chunk.bytes())),
        },
        layout.map(|layout| format!(", {layout}")).unwrap_or_default(),
        assembly.events,
        match assembly.resync_from {
            None => ", clean".to_owned(),
            Some(from) => format!(", dirty from {}", size::human(from.bytes())),
        },
    )
}

pub(crate) fn missing(assembly: &Assembly) -> impl Iterator<Item = (usize, &SlotState)> {
    assembly.slots.iter().enumerate().filter(|(_, state)| matches!(state, SlotState::Missing))
}

pub(crate) fn to_json(candidates: &[Candidate], decision: &Result<Assembly, Refused>) -> Value {
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
            let array = &assembly.layout;
            json!({
                "schema": "weft.assemble/1",
                "decision": "serve",
                "name": assembly.name,
                "uuid": assembly.uuid.to_string(),
                "level": array.level().name(),
                "layout": array.level().row().layouts.name(array.number()),
                "chunk_bytes": array.chunk().bytes().0,
                "array_size_bytes": array.array_size().bytes().0,
                "raid_devices": array.members(),
                "degraded": assembly.degraded(),
                "missing_slots": missing(assembly).map(|(slot, _)| slot).collect::<Vec<_>>(),
                "events": assembly.events,
                "resync_from_bytes": assembly.resync_from.map(|from| from.bytes().0),
                "read_only": assembly.read_only,
                "notes": assembly.notes,
                "states": states::to_json(&assembly.states),
                "members": members,
            })
        }
        Err(refused) => json!({
            "schema": "weft.assemble/1",
            "decision": "refuse",
            "state": refused.state.id(),
            "says": refused.state.says(),
            "next": refused.state.next(),
            "states": states::to_json(&[refused.state]),
            "reason": refused.reason,
            "way_out": refused.state.next(),
            "members": members,
        }),
    }
}
