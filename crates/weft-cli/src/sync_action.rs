//! Check and repair of a running volume: start, watch, report.

use std::io::Write;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;
use weft_engine::layout::Layout;
use weft_engine::layout::geometry::Geometry;
use weft_engine::layout::mirrors::Mirrors;
use weft_export::control::{Command, MismatchStatus, MismatchesStatus, VolumeStatus};
use weft_ondisk::{Level, MdTime};
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::{print_json, progress, stdout, took};
use weft_units::{Bytes, SECTOR_BYTES, Sectors, Slot};

use crate::size::human;
use crate::target::{Target, only_volume};

/// Options of `check` and `repair`.
#[derive(Debug, Args)]
pub(crate) struct Sync {
    /// Name or control socket of a running volume [default: the only one]
    target: Option<String>,
    /// Begin at this position of each member (RAID 10: of the array), rounded down to a stripe,
    /// as md with sync_min
    #[arg(long, value_name = "SIZE", value_parser = crate::size::bytes)]
    from: Option<Bytes>,
    /// End at this position of each member (RAID 10: of the array), rounded up to a stripe; md
    /// waits at sync_max instead
    #[arg(long, value_name = "SIZE", value_parser = crate::size::bytes)]
    to: Option<Bytes>,
    /// Start the check or repair and return at once; weft status shows its progress
    #[arg(long)]
    no_wait: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Part of an array that an action covers: from one sector of each member, or of the array for
/// RAID 10, to another one. `None` is the beginning or the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    from: Option<Sectors>,
    to: Option<Sectors>,
}

impl Sync {
    /// Part of the array that the options name.
    ///
    /// # Errors
    /// The part is empty.
    fn part(&self) -> Result<Part, Failure> {
        let from = self.from.map(Bytes::sectors_floor);
        let to = self.to.map(|to| Sectors(to.0.div_ceil(SECTOR_BYTES)));
        if let Some(to) = self.to.filter(|to| *to <= self.from.unwrap_or_default()) {
            let from = self.from.unwrap_or_default();
            return Err(Failure::usage(format!("--to: found {to}, expected more than {from}")));
        }
        Ok(Part { from, to })
    }
}

/// Result of a completed action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    /// Number of stripes of 4 KiB that were read on every member, from the one at which the action
    /// was asked to start.
    pub(crate) stripes: u64,
    /// State of the volume at the end, with the mismatches that were found.
    pub(crate) volume: VolumeStatus,
    /// Time that the action took.
    pub(crate) took: Duration,
}

/// Starts `check`, `repair` or `correct`, and waits for its end unless `--no-wait` is given.
pub(crate) fn run(action: &'static str, arguments: &Sync) -> Outcome {
    let mut target = Target::named_or_only(arguments.target.as_deref())?;
    let command = if action == "correct" { "repair" } else { action };
    let part = arguments.part()?;
    if arguments.no_wait {
        target.ask(start_of(action, part))?;
        if arguments.json {
            let schema = format!("weft.{command}/2");
            print_json(&json!({"schema": schema, "volume": target.name, "started": true}))?;
        }
        return Ok(Exit::Done);
    }
    let report = perform(&mut target, action, part)?;
    let Report { volume, .. } = &report;
    let mirrors = mirrors_of(volume);
    let unit = unit_of(mirrors.as_ref());
    let left = volume.mismatches.as_ref().map_or(0, |it| it.not_located * unit);
    if arguments.json {
        print_json(&json!({
            "schema": format!("weft.{command}/2"),
            "volume": target.name,
            "stripes": report.stripes,
            "stripe_bytes": STRIPE_SECTORS * 512,
            "mismatch_cnt": volume.mismatch_cnt,
            "mismatches": volume.mismatches,
            "from": volume.last_sync.as_ref().map_or(0, |last| last.from),
            "sync_completed": volume.sync_completed,
            "duration_ms": u64::try_from(report.took.as_millis()).unwrap_or(u64::MAX),
        }))?;
    } else {
        let (agrees, mended) = match mirrors.is_some() {
            true => ("the copies agree", "copies that were outvoted are"),
            false => ("parity agrees with the data", "the one strip that was wrong is"),
        };
        let verdict = match (action, volume.mismatch_cnt) {
            (_, 0) if part_read(volume).is_empty() => format!("{agrees} everywhere"),
            (_, 0) => format!("{agrees} there"),
            ("repair", count) => format!("mismatch_cnt {count} sectors, written again"),
            ("correct", count) if left == 0 => {
                format!("mismatch_cnt {count} sectors; {mended} written anew")
            }
            ("correct", count) => {
                format!("mismatch_cnt {count} sectors, of which {left} are left as they are")
            }
            (_, count) => format!("mismatch_cnt {count} sectors; weft repair makes them agree"),
        };
        let mut out = stdout();
        writeln!(
            out,
            "{command} of {}: {} stripes read in {}{}; {verdict}",
            target.name,
            report.stripes,
            took(report.took),
            part_read(volume)
        )?;
        for line in mismatch_lines(volume) {
            writeln!(out, "  {line}")?;
        }
        out.flush()?;
    }
    let wrong = match action {
        "check" => volume.mismatch_cnt,
        "correct" => left,
        _ => 0,
    };
    Ok(if wrong > 0 { Exit::Mismatches } else { Exit::Done })
}

/// Refuses a value of `--trust` that is for volumes of another kind: `majority` is for mirrors, and
/// `syndrome` for RAID 6.
///
/// # Errors
/// The value is for volumes of the other kind.
pub(crate) fn expect_mirror(arguments: &Sync, mirror: bool) -> Result<(), Failure> {
    let mut target = Target::named_or_only(arguments.target.as_deref())?;
    let status = target.status()?;
    let volume = only_volume(&target.name, &status)?;
    if mirrors_of(volume).is_some() == mirror {
        return Ok(());
    }
    let (given, expected) = match mirror {
        true => ("majority", "mirrors of three copies or more"),
        false => ("syndrome", "raid6"),
    };
    Err(Failure::usage(format!(
        "--trust {given}: found {} in {}, expected {expected}",
        volume.level, target.name
    )))
}

/// Checks a RAID 6, or a mirror with three copies or more, before a repair, and refuses the repair
/// if strips of data are wrong, or copies differ: parity or copies made from a wrong one would make
/// the error permanent.
///
/// # Errors
/// P and Q identify wrong strips of data, copies differ, or the check failed.
pub(crate) fn refuse_wrong_strips(arguments: &Sync) -> Result<(), Failure> {
    let mut target = Target::named_or_only(arguments.target.as_deref())?;
    let status = target.status()?;
    let volume = only_volume(&target.name, &status)?;
    let copies = mirrors_of(volume).map_or(1, |it| usize::from(it.copies_per_chunk()));
    let votes = copies.saturating_sub(volume.degraded) > 2;
    let level = volume.level.parse().ok().filter(|it: &Level| votes || has_syndrome(*it));
    let (Some(array), Some(level)) = (volume.array.as_ref(), level) else {
        return Ok(());
    };
    if arguments.no_wait {
        let what = if votes { "three copies or more, which are" } else { "a RAID 6, which is" };
        return Err(Failure::usage(format!(
            "{}: --no-wait: found {what} checked before a repair; leave it out, or --trust data \
             repairs without a check",
            target.name
        )));
    }
    let checked = perform(&mut target, "check", arguments.part()?)?.volume;
    let Some(mismatches) = &checked.mismatches else { return Ok(()) };
    if votes {
        return Err(Failure::Refused(format!(
            "{}: found copies that differ, expected none; nothing was written; --trust majority \
             writes anew those that differ from more than half of them, --trust data makes all of \
             them equal to the first\n  {}",
            target.name,
            mismatch_lines(&checked).join("\n  ")
        )));
    }
    let failed =
        |error: &dyn std::fmt::Display| Failure::failed(format!("{}: {error}", target.name));
    let geometry = Geometry::new(
        level,
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
        mismatch_lines(&checked).join("\n  ")
    )))
}

/// Command that starts an action on a part of the array.
fn start_of(action: &str, part: Part) -> Command {
    let [from, to] = [part.from, part.to].map(|sector| sector.map(|it| it.0));
    Command::SyncAction { action: action.into(), from, to }
}

/// Remark about the part that the last check or repair of a volume has read; empty for all of it.
fn part_read(volume: &VolumeStatus) -> String {
    let from = volume.last_sync.as_ref().map_or(0, |last| last.from);
    let (done, total) = volume.sync_completed.unwrap_or_default();
    if from == 0 && done >= total {
        return String::new();
    }
    let [from, done, total] = [from, done, total].map(|it| human(Sectors(it).bytes()));
    format!(", from {from} to {done} of {total}")
}

/// The last check, repair or correction of a volume, if no sync was started since: its action, and
/// when it ended, up to where it has come and what it found.
pub(crate) fn last_check(volume: &VolumeStatus) -> Option<(&str, String)> {
    let last = volume.last_sync.as_ref()?;
    let is_check = matches!(last.action.as_str(), "check" | "repair" | "correct");
    let ended = MdTime::from_secs(last.ended_secs.filter(|_| is_check)?).to_ctime();
    let (part, count) = (part_read(volume), volume.mismatch_cnt);
    Some((&last.action, format!("{ended}, mismatch_cnt {count} sectors{part}")))
}

/// Starts an action on a part of the array, and waits for its end.
///
/// # Errors
/// The action did not start, ended before it had read everything, or could not compare every stripe
/// because members were lost and no redundancy is left.
pub(crate) fn perform(
    target: &mut Target,
    action: &'static str,
    part: Part,
) -> Result<Report, Failure> {
    let start = Instant::now();
    target.ask(start_of(action, part))?;
    let volume = watch(target, action)?;
    let (done, total) = volume.sync_completed.unwrap_or((0, 0));
    if done < part.to.map_or(total, |to| to.0.min(total)) {
        return Err(Failure::failed(format!(
            "{}: {action} stopped after {done} of {total} sectors of each member; mismatch_cnt {} \
             so far; start it again, or --from {done}s{} goes on there",
            target.name,
            volume.mismatch_cnt,
            part.to.map(|to| format!(" --to {}s", to.0)).unwrap_or_default()
        )));
    }
    // After the loss of the last parity, further stripes have nothing to compare.
    let parities = match mirrors_of(&volume) {
        Some(mirrors) => usize::from(mirrors.copies_per_chunk()) - 1,
        None if volume.level.parse().is_ok_and(has_syndrome) => 2,
        None => 1,
    };
    if volume.degraded >= parities {
        return Err(Failure::failed(format!(
            "{}: {action}: members were lost on the way and no parity is left; it did not compare \
             every stripe; mismatch_cnt {} so far; add a member, wait for its rebuild, start again",
            target.name, volume.mismatch_cnt
        )));
    }
    let before = part.from.map_or(0, |from| from.0 / STRIPE_SECTORS);
    let stripes = done.div_ceil(STRIPE_SECTORS).saturating_sub(before);
    Ok(Report { stripes, volume, took: start.elapsed() })
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

/// Places of the copies of a volume; `None` if it is no mirror.
fn mirrors_of(volume: &VolumeStatus) -> Option<Mirrors> {
    let array = volume.array.as_ref()?;
    let level: Level = volume.level.parse().ok()?;
    let slots = u32::try_from(volume.slots).ok()?;
    let size = Bytes(array.member_size).sectors_floor();
    let chunk = Bytes(array.chunk).sectors_floor();
    match Layout::new(level, array.layout, slots, chunk, size, &[]).ok()? {
        Layout::Mirrors(places) => Some(places),
        Layout::Parity(_) | Layout::Striped(_) => None,
    }
}

/// Whether a level has P and Q, which tell the strip that is wrong.
fn has_syndrome(level: Level) -> bool {
    level.parity_count() > 1
}

/// Number of sectors that count as one mismatch: a stripe of 4 KiB, or a unit of a mirror.
fn unit_of(mirrors: Option<&Mirrors>) -> u64 {
    mirrors.map_or(STRIPE_SECTORS, |mirrors| mirrors.resync_unit().0)
}

/// Lines about the mismatches of a volume: one for each member that is wrong alone, and one for
/// mismatches that no single member explains.
pub(crate) fn mismatch_lines(volume: &VolumeStatus) -> Vec<String> {
    let Some(MismatchesStatus { members, not_located, first }) = &volume.mismatches else {
        return Vec::new();
    };
    let mirrors = mirrors_of(volume);
    let (unit, mirror) = (unit_of(mirrors.as_ref()), mirrors.is_some());
    let places = |member: Option<&str>| {
        let found = first.iter().filter(|it| it.member.as_deref() == member);
        let mut sectors: Vec<u64> = found.map(|it| it.member_sector.unwrap_or(it.sector)).collect();
        sectors.sort_unstable();
        let shown: Vec<String> = sectors.iter().take(PLACES).map(u64::to_string).collect();
        shown.join(", ")
    };
    let noun = if mirror { "range" } else { "stripe" };
    let stripes =
        |count: u64| if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") };
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
            let (what, by, trust) = match mirror {
                true => ("copy", "the others", "majority"),
                false => ("strip", "P and Q", "syndrome"),
            };
            format!(
                "{label}: its {what} alone is wrong in {}, by {by}: {unit} sectors each from \
                 sector {}{} of it; weft repair --trust {trust} writes it from the others{mend}",
                stripes(count),
                places(Some(label)),
                more(count),
            )
        })
        .collect();
    if *not_located > 0 {
        let of = if mirror { "the volume" } else { "every member" };
        lines.push(format!(
            "{}: which member is wrong is not known; {unit} sectors each from data sector {}{} of \
             {of}",
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
