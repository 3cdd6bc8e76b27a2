//! `weft status`: prints the state of running volumes, in the form of `/proc/mdstat`.
//!
//! Programs that read `/proc/mdstat` can read it.

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use clap::Args;
use serde_json::{Value, json};
use weft_export::control::{MemberStatus, Status, VolumeStatus};

use crate::outcome::{Exit, Outcome};
use crate::states;
use crate::sync_action::mismatch_lines;
use crate::target::{self, Target};
use crate::terminal::{complain, print_json, stdout};

/// Prints how running volumes are, as /proc/mdstat
///
/// Exit status: 0, or 4 when a volume is degraded.
#[derive(Debug, Args)]
pub(crate) struct StatusOf {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Name or control socket of a running volume [default: all of them]
    target: Option<String>,
}

pub(crate) fn run(arguments: &StatusOf) -> Outcome {
    let servers: Vec<Status> = match &arguments.target {
        Some(name) => vec![Target::connect(name)?.status()?],
        None => target::running().into_iter().map(|(_, status)| status).collect(),
    };
    if arguments.json {
        let mut all = json!({"schema": "weft.status/2", "servers": servers});
        for (server, index) in servers.iter().zip(0..) {
            for (volume, place) in server.volumes.iter().zip(0..) {
                let states: &mut Value = &mut all["servers"][index]["volumes"][place]["states"];
                *states = states::to_json(&states::of_running(volume));
            }
        }
        print_json(&all)?;
    } else {
        let mut out = stdout();
        write!(out, "{}", to_text(&servers))?;
        out.flush()?;
        // Beside the text of mdstat, which programs read.
        for volume in servers.iter().flat_map(|server| &server.volumes) {
            for line in states::lines(&states::of_running(volume)) {
                complain(&format!("{}: note: {line}", volume.name));
            }
            for line in volume.mismatches.iter().flat_map(mismatch_lines) {
                complain(&format!("{}: note: check: {line}", volume.name));
            }
        }
    }
    let degraded = servers.iter().flat_map(|server| &server.volumes).any(|it| it.degraded > 0);
    Ok(if degraded { Exit::Degraded } else { Exit::Done })
}

/// The text of `/proc/mdstat`.
///
/// Source   md-raid.md §7.2 and output of Linux 6.12
fn to_text(servers: &[Status]) -> String {
    let mut text = String::from("Personalities : [raid6] [raid5] [raid4] \n");
    for volume in servers.iter().flat_map(|server| &server.volumes) {
        volume_text(&mut text, volume);
    }
    text.push_str("unused devices: <none>\n");
    text
}

fn volume_text(text: &mut String, volume: &VolumeStatus) {
    let read_only = match volume.array_state.as_str() {
        "readonly" => " (read-only)",
        "read-auto" => " (auto-read-only)",
        _ => "",
    };
    let mut members: Vec<&MemberStatus> = volume.members.iter().collect();
    // The kernel lists the last one first.
    members.sort_by_key(|member| std::cmp::Reverse(member.dev_number));
    let members: Vec<String> = members
        .into_iter()
        .map(|member| {
            let flag = match member.state.as_str() {
                "faulty" => "(F)",
                "spare" => "(S)",
                _ => "",
            };
            let path = Path::new(&member.label);
            let name = path
                .file_name()
                .map_or(member.label.clone(), |name| name.to_string_lossy().into_owned());
            format!("{name}[{}]{flag}", member.dev_number)
        })
        .collect();
    // Strings take whatever is written to them.
    let _ = writeln!(
        text,
        "{} : active{read_only}{} {} {}",
        volume.name,
        if volume.no_space { " (no space)" } else { "" },
        volume.level,
        members.join(" ")
    );
    let up: String = (0..volume.slots)
        .map(|slot| {
            let filled = volume.members.iter().any(|member| {
                member.slot.map(usize::from) == Some(slot) && member.state == "in_sync"
            });
            if filled { 'U' } else { '_' }
        })
        .collect();
    let shape = volume.array.as_ref().map_or(String::new(), |array| {
        let algorithm = if array.level == 4 { 0 } else { array.layout };
        format!(
            " super {} level {}, {}k chunk, algorithm {algorithm}",
            array.metadata,
            array.level,
            array.chunk / 1024
        )
    });
    let working = volume.slots.saturating_sub(volume.degraded);
    let _ = writeln!(
        text,
        "      {} blocks{shape} [{}/{working}] [{up}]",
        volume.size / 1024,
        volume.slots
    );
    if let Some(progress) = progress_text(volume) {
        let _ = writeln!(text, "      {progress}");
    }
    text.push_str("      \n");
}

/// `[===>......]  recovery = 12.3% (done/total)`, while something runs.
fn progress_text(volume: &VolumeStatus) -> Option<String> {
    let action = match volume.sync_action.as_str() {
        // Parity is to be checked when something else, or nobody, lets it.
        "idle" | "frozen" if volume.resync_from.is_some() => {
            return Some("\tresync=PENDING".into());
        }
        "idle" | "frozen" => return None,
        "recover" => "recovery",
        // The kernel does not tell them apart here.
        "repair" | "check" => "check",
        other => other,
    };
    let (done, total) = volume.sync_completed?;
    let per_mille = u128::from(done) * 1000 / u128::from(total.max(1));
    let cells = usize::try_from(per_mille / 50).unwrap_or(20).min(20);
    let bar = format!("{}>{}", "=".repeat(cells), ".".repeat(20 - cells));
    Some(format!(
        "[{bar}]  {action} ={:>3}.{}% ({}/{})",
        per_mille / 10,
        per_mille % 10,
        done / 2,
        total / 2
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_export::control::ArrayStatus;

    fn volume() -> VolumeStatus {
        let member = |slot: u16, dev_number: u32, state: &str| MemberStatus {
            index: slot,
            label: format!("/nowhere/{}.img", ["a", "b", "c", "d"][usize::from(slot)]),
            slot: (state != "spare" && state != "faulty").then_some(slot),
            dev_number,
            state: state.into(),
            ..MemberStatus::default()
        };
        VolumeStatus {
            name: "demo".into(),
            array_state: "clean".into(),
            level: "raid5".into(),
            size: 129_024 << 10,
            slots: 3,
            degraded: 1,
            sync_action: "recover".into(),
            sync_completed: Some((8192, 129_024)),
            array: Some(ArrayStatus {
                metadata: "1.2".into(),
                level: 5,
                layout: 2,
                chunk: 64 << 10,
                ..ArrayStatus::default()
            }),
            members: vec![
                member(0, 0, "in_sync"),
                member(1, 1, "in_sync"),
                member(2, 3, "rebuilding"),
                member(3, 2, "faulty"),
            ],
            ..VolumeStatus::default()
        }
    }

    #[test]
    fn a_volume_reads_as_in_mdstat() {
        let status = Status { volumes: vec![volume()], ..Status::default() };
        let expected = "Personalities : [raid6] [raid5] [raid4] \n\
            demo : active raid5 c.img[3] d.img[2](F) b.img[1] a.img[0]\n      \
            129024 blocks super 1.2 level 5, 64k chunk, algorithm 2 [3/2] [UU_]\n      \
            [=>...................]  recovery =  6.3% (4096/64512)\n      \n\
            unused devices: <none>\n";
        assert_eq!(to_text(&[status]), expected);
    }

    #[test]
    fn a_resync_that_waits_is_pending() {
        let waits = VolumeStatus { resync_from: Some(0), ..volume() };
        for action in ["idle", "frozen"] {
            let waits = VolumeStatus { sync_action: action.into(), ..waits.clone() };
            assert_eq!(progress_text(&waits).as_deref(), Some("\tresync=PENDING"));
        }
        let idle = VolumeStatus { sync_action: "idle".into(), ..volume() };
        assert_eq!(progress_text(&idle), None);
    }

    #[test]
    fn a_volume_without_space_says_so() {
        let full = Status {
            volumes: vec![VolumeStatus { no_space: true, ..volume() }],
            ..Status::default()
        };
        assert!(to_text(&[full]).contains("demo : active (no space) raid5 "));
    }

    #[test]
    fn progress_stays_inside_its_bar() {
        for completed in [None, Some((0, 0)), Some((5, 1)), Some((u64::MAX, 1)), Some((7, 7))] {
            let text = progress_text(&VolumeStatus { sync_completed: completed, ..volume() });
            assert!(text.is_none_or(|text| text.contains(']')), "{completed:?}");
        }
    }
}
