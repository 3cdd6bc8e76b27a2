//! Check and repair of a running volume: start, watch, report.

use std::io::Write;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;
use weft_engine::layout::geometry::Geometry;
use weft_export::control::{Command, MismatchStatus, MismatchesStatus, VolumeStatus};
use weft_ondisk::Level;
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::{print_json, progress, stdout, took};
use weft_units::{Bytes, Sectors, Slot};

use crate::target::{Target, only_volume};

/// Options of `check` and `repair`.
#[derive(Debug, Args)]
pub(crate) struct Sync {
    /// Name or control socket of a running volume [default: the only one]
    target: Option<String>,
    /// Start the check or repair and return at once; weft status shows its progress
    #[arg(long)]
    no_wait: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Result of a completed action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    /// Number of 4 KiB stripes read on every member.
    pub(crate) stripes: u64,
    /// Mismatch count in sectors, as md counts them.
    pub(crate) mismatch_cnt: u64,
    /// Mismatches by the member that explains them, and those that were found first; `None` if
    /// there are none.
    pub(crate) mismatches: Option<MismatchesStatus>,
    /// Time that the action took.
    pub(crate) took: Duration,
}

/// Starts `check`, `repair` or `correct`, and waits for its end unless `--no-wait` is given.
pub(crate) fn run(action: &'static str, arguments: &Sync) -> Outcome {
    let mut target = Target::named_or_only(arguments.target.as_deref())?;
    let command = if action == "correct" { "repair" } else { action };
    if arguments.no_wait {
        target.ask(Command::SyncAction { action: action.into() })?;
        if arguments.json {
            let schema = format!("weft.{command}/2");
            print_json(&json!({"schema": schema, "volume": target.name, "started": true}))?;
        }
        return Ok(Exit::Done);
    }
    let report = perform(&mut target, action)?;
    let left = report.mismatches.as_ref().map_or(0, |it| it.not_located * STRIPE_SECTORS);
    if arguments.json {
        print_json(&json!({
            "schema": format!("weft.{command}/2"),
            "volume": target.name,
            "stripes": report.stripes,
            "stripe_bytes": STRIPE_SECTORS * 512,
            "mismatch_cnt": report.mismatch_cnt,
            "mismatches": report.mismatches,
            "duration_ms": u64::try_from(report.took.as_millis()).unwrap_or(u64::MAX),
        }))?;
    } else {
        let verdict = match (action, report.mismatch_cnt) {
            (_, 0) => "parity agrees with the data everywhere".to_owned(),
            ("repair", count) => format!("mismatch_cnt {count} sectors, written again"),
            ("correct", count) if left == 0 => {
                format!(
                    "mismatch_cnt {count} sectors; the one strip that was wrong is written anew"
                )
            }
            ("correct", count) => {
                format!("mismatch_cnt {count} sectors, of which {left} are left as they are")
            }
            (_, count) => format!("mismatch_cnt {count} sectors; weft repair makes parity agree"),
        };
        let mut out = stdout();
        writeln!(
            out,
            "{command} of {}: {} stripes read in {}; {verdict}",
            target.name,
            report.stripes,
            took(report.took)
        )?;
        if let Some(mismatches) = &report.mismatches {
            for line in mismatch_lines(mismatches) {
                writeln!(out, "  {line}")?;
            }
        }
        out.flush()?;
    }
    let wrong = match action {
        "check" => report.mismatch_cnt,
        "correct" => left,
        _ => 0,
    };
    Ok(if wrong > 0 { Exit::Mismatches } else { Exit::Done })
}

/// Checks a RAID 6 before a repair, and refuses the repair if strips of data are wrong: parity that
/// is recomputed from a wrong strip makes the error permanent.
///
/// # Errors
/// P and Q identify wrong strips of data, or the check failed.
pub(crate) fn refuse_wrong_strips(arguments: &Sync) -> Result<(), Failure> {
    let mut target = Target::named_or_only(arguments.target.as_deref())?;
    let status = target.status()?;
    let volume = only_volume(&target.name, &status)?;
    let Some(array) = volume.array.as_ref().filter(|_| volume.level == "raid6") else {
        return Ok(());
    };
    if arguments.no_wait {
        return Err(Failure::usage(format!(
            "{}: --no-wait: found a RAID 6, which is checked for wrong strips before it is \
             repaired; leave it out, or --trust data repairs without a check",
            target.name
        )));
    }
    let report = perform(&mut target, "check")?;
    let Some(mismatches) = report.mismatches else { return Ok(()) };
    let failed =
        |error: &dyn std::fmt::Display| Failure::failed(format!("{}: {error}", target.name));
    let geometry = Geometry::new(
        Level::Raid6,
        array.layout,
        u32::try_from(volume.slots).map_err(|error| failed(&error))?,
        Bytes(array.chunk).sectors_floor(),
        Bytes(array.member_size).sectors_floor(),
    )
    .map_err(|error| failed(&error))?;
    let is_parity = |found: &&MismatchStatus| {
        let placement = geometry.placement(geometry.full_stripe_of(Sectors(found.sector)));
        found.slot.is_some_and(|slot| placement.data_index(Slot(slot)).is_none())
    };
    // Only listed mismatches can be classified; others count as data.
    let parity = mismatches.first.iter().filter(is_parity).count() as u64;
    if mismatches.members.iter().map(|wrong| wrong.stripes).sum::<u64>() == parity {
        return Ok(());
    }
    Err(Failure::Refused(format!(
        "{}: found strips of data that are wrong by P and Q, expected none; nothing was written; \
         --trust syndrome writes them anew from the others, --trust data makes P and Q agree with \
         them as they are\n  {}",
        target.name,
        mismatch_lines(&mismatches).join("\n  ")
    )))
}

/// Starts an action and waits for its end.
///
/// # Errors
/// The action did not start, or ended before it had read everything.
pub(crate) fn perform(target: &mut Target, action: &'static str) -> Result<Report, Failure> {
    let start = Instant::now();
    target.ask(Command::SyncAction { action: action.into() })?;
    let volume = watch(target, action)?;
    let (done, total) = volume.sync_completed.unwrap_or((0, 0));
    if done < total {
        return Err(Failure::failed(format!(
            "{}: {action} stopped after {done} of {total} sectors of each member; mismatch_cnt {} \
             so far; start it again",
            target.name, volume.mismatch_cnt
        )));
    }
    // After the loss of the last parity, further stripes have nothing to compare.
    let parities = if volume.level == "raid6" { 2 } else { 1 };
    if volume.degraded >= parities {
        return Err(Failure::failed(format!(
            "{}: {action}: members were lost on the way and no parity is left; it did not compare \
             every stripe; mismatch_cnt {} so far; add a member, wait for its rebuild, start again",
            target.name, volume.mismatch_cnt
        )));
    }
    Ok(Report {
        stripes: done.div_ceil(STRIPE_SECTORS),
        mismatch_cnt: volume.mismatch_cnt,
        mismatches: volume.mismatches,
        took: start.elapsed(),
    })
}

/// Waits while an action runs. Returns the volume in its final state.
///
/// # Errors
/// The volume no longer responds.
pub(crate) fn watch(target: &mut Target, action: &'static str) -> Result<VolumeStatus, Failure> {
    let bar = progress(action, 0);
    let mut pause = POLL_MIN;
    loop {
        let status = target.status()?;
        let volume = only_volume(&target.name, &status)?;
        if volume.sync_action != action {
            bar.finish_and_clear();
            return Ok(volume.clone());
        }
        if let Some((done, total)) = volume.sync_completed {
            bar.set_length(Sectors(total).bytes().0);
            bar.set_position(Sectors(done).bytes().0);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(POLL_MAX);
    }
}

/// Lines about mismatches: one for each member with wrong strips, and one for the stripes that no
/// single member explains.
pub(crate) fn mismatch_lines(mismatches: &MismatchesStatus) -> Vec<String> {
    let MismatchesStatus { members, not_located, first } = mismatches;
    let places = |member: Option<&str>| {
        let found = first.iter().filter(|it| it.member.as_deref() == member);
        let mut sectors: Vec<u64> = found.map(|it| it.member_sector.unwrap_or(it.sector)).collect();
        sectors.sort_unstable();
        let shown: Vec<String> = sectors.iter().take(PLACES).map(u64::to_string).collect();
        shown.join(", ")
    };
    let stripes =
        |count: u64| if count == 1 { "1 stripe".into() } else { format!("{count} stripes") };
    let more = |count: u64| if count > PLACES as u64 { " and more" } else { "" };
    // A rebuild of one member is safe only if the others are right.
    let mend = match (members.len(), not_located) {
        (1, 0) => ", or fail, remove and add the member to have all of it written",
        _ => "",
    };
    let mut lines: Vec<String> = members
        .iter()
        .map(|wrong| {
            let (label, count) = (&wrong.label, wrong.stripes);
            format!(
                "{label}: its strip alone is wrong in {}, by P and Q: 8 sectors each from sector \
                 {}{} of it; weft repair --trust syndrome writes it from the others{mend}",
                stripes(count),
                places(Some(label)),
                more(count),
            )
        })
        .collect();
    if *not_located > 0 {
        lines.push(format!(
            "{}: which member is wrong is not known; 8 sectors each from data sector {}{} of every \
             member",
            stripes(*not_located),
            places(None),
            more(*not_located),
        ));
    }
    lines
}

/// Largest number of positions of mismatches in a line; the JSON has more.
const PLACES: usize = 8;

/// Sectors of a stripe on each member: 4 KiB.
pub(crate) const STRIPE_SECTORS: u64 = 8;
/// Shortest pause between two polls of the status: small arrays are done quickly.
pub(crate) const POLL_MIN: Duration = Duration::from_millis(2);
/// Longest pause between two polls of the status, while a bar is shown.
pub(crate) const POLL_MAX: Duration = Duration::from_millis(100);
