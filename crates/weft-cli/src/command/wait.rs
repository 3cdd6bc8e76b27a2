//! `weft wait`: waits until no resync, recovery or check runs.
//!
//! Between two resyncs, and between `add` and the rebuild that follows, no sync runs for a moment;
//! the wait ends when none runs and none is about to start.

use std::io::Write;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;
use weft_export::control::{ReshapeStatus, VolumeStatus};
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::{print_json, progress, stdout, took};
use weft_units::Sectors;

use crate::sync_action::{POLL_MAX, POLL_MIN};
use crate::target::{Target, only_volume};

/// Waits until no check, repair, resync or rebuild of a running volume runs, as mdadm --wait
///
/// Shows a progress bar on a terminal. Exit status: 0; 1 when a reshape stopped before its end; 4
/// when the volume is degraded.
#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// Name or control socket of a running volume [default: the only one]
    target: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Wait) -> Outcome {
    let mut target = Target::named_or_only(arguments.target.as_deref())?;
    let start = Instant::now();
    let volume = settled(&mut target)?;
    let frozen = volume.sync_action == "frozen";
    if let Some(reshape) = volume.reshape.as_ref().filter(|_| !frozen) {
        return Err(Failure::failed(stopped(&target.name, reshape)));
    }
    if arguments.json {
        print_json(&json!({
            "schema": "weft.wait/1",
            "volume": volume.name,
            "degraded": volume.degraded,
            "frozen": frozen,
            "mismatch_cnt": volume.mismatch_cnt,
            "duration_ms": u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX),
        }))?;
    } else {
        let state = match (volume.degraded, frozen) {
            (0, _) => "all members are in sync".to_owned(),
            (count, false) => format!("degraded: {count} of {} slots", volume.slots),
            (count, true) => format!("frozen; degraded: {count} of {} slots", volume.slots),
        };
        let mut out = stdout();
        writeln!(out, "{}: nothing runs after {}; {state}", target.name, took(start.elapsed()))?;
        out.flush()?;
    }
    Ok(if volume.degraded > 0 { Exit::Degraded } else { Exit::Done })
}

/// Message about a reshape that does not go on by itself.
fn stopped(name: &str, reshape: &ReshapeStatus) -> String {
    let byte = |sector| Sectors(sector).bytes().0;
    let (position, end) = (byte(reshape.position), byte(reshape.end));
    format!(
        "{name}: the reshape stopped at byte {position} of {end} of the array: what follows could \
         not be copied, and the log of weft serve names the members that failed to read it; once \
         they read it again, or it has been written, weft grow with the same options goes on"
    )
}

/// Waits until no sync runs and none is about to start. Returns the final state of the volume.
fn settled(target: &mut Target) -> Result<VolumeStatus, Failure> {
    let bar = progress("", 0);
    let mut pause = POLL_MIN;
    let mut quiet_since = None;
    loop {
        let status = target.status()?;
        let volume = only_volume(&target.name, &status)?;
        let word = match volume.sync_action.as_str() {
            "idle" | "frozen" => None,
            "recover" => Some("rebuild"),
            "check" => Some("check"),
            "repair" => Some("repair"),
            "reshape" => Some("reshape"),
            _ => Some("resync"),
        };
        if let Some(word) = word {
            quiet_since = None;
            bar.set_prefix(word);
            if let Some((done, total)) = volume.sync_completed {
                bar.set_length(Sectors(total).bytes().0);
                bar.set_position(Sectors(done).bytes().0);
            }
        } else {
            let since = *quiet_since.get_or_insert_with(Instant::now);
            if !is_due(volume) || since.elapsed() >= SETTLE {
                bar.finish_and_clear();
                return Ok(volume.clone());
            }
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(POLL_MAX);
    }
}

/// Whether a sync is about to start by itself, because a spare is available for an empty slot, a
/// replacement is not filled yet, or a reshape is not over. False if syncs are frozen.
fn is_due(volume: &VolumeStatus) -> bool {
    let waits = |member: &str| member == "spare" || member == "rebuilding";
    let mut members = volume.members.iter();
    let reshapes = volume.sync_action == "idle" && volume.reshape.is_some();
    reshapes
        || volume.sync_action == "idle"
            && members.any(|it| {
                let replaced = it.want_replacement || it.replaces.is_some();
                replaced || (volume.degraded > 0 && waits(&it.state))
            })
}

/// Longest time from the moment at which a rebuild is due to its start, which takes a few
/// superblock updates. A rebuild that has not started by then will not start: the spare is too
/// small, or it failed before, as a reshape does at a range that cannot be read.
const SETTLE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;
    use weft_export::control::MemberStatus;

    #[test]
    fn a_rebuild_is_due_while_a_spare_can_fill_a_slot() {
        let volume = |action: &str, degraded, states: &[&str]| VolumeStatus {
            sync_action: action.into(),
            degraded,
            members: states
                .iter()
                .map(|state| MemberStatus { state: (*state).into(), ..MemberStatus::default() })
                .collect(),
            ..VolumeStatus::default()
        };
        assert!(is_due(&volume("idle", 1, &["in_sync", "spare"])));
        assert!(is_due(&volume("idle", 1, &["in_sync", "rebuilding"])));
        assert!(!is_due(&volume("idle", 1, &["in_sync", "faulty"])));
        assert!(!is_due(&volume("idle", 0, &["in_sync", "spare"])));
        assert!(!is_due(&volume("frozen", 1, &["in_sync", "spare"])));
        let mut asked = volume("idle", 0, &["in_sync", "spare"]);
        asked.members[0].want_replacement = true;
        assert!(is_due(&asked), "the spare is not bound yet");
    }
}
