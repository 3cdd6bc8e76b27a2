//! `weft examine`: prints the metadata of members.
//!
//! The text has the fields of `mdadm --examine`; `--json` prints them for programs.

use std::io::Write;
use std::path::Path;

use clap::Args;
use serde_json::{Value, json};
use weft_ondisk::probe::Misplaced;
use weft_ondisk::{
    BadBlocks, CUT_HAS_NONE, RESERVED_090, Superblock, SuperblockError, Version, raw_entries,
};
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::{self, complain, print_json, stdout};
use weft_units::Sectors;

use crate::look::{Looked, Shown};
use crate::member::{self, MemberArg};
use crate::reading::{Reading, ReadingOptions};
use crate::superblock_json;
use crate::when;

/// Prints what the metadata of members says, field by field, as mdadm --examine
///
/// Reads only. Times are UTC. Exit status: 0, or 1 when a member has no superblock that can be
/// believed.
#[derive(Debug, Args)]
pub(crate) struct Examine {
    /// Files, block devices, or parts of them: PATH, PATH#N (partition N), PATH@OFFSET[+LENGTH]
    #[arg(value_name = "MEMBER", required = true, value_parser = MemberArg::parser())]
    members: Vec<MemberArg>,
    #[command(flatten)]
    reading: ReadingOptions,
    /// Read all of each device and say where superblocks are, in odd places too
    #[arg(long)]
    deep: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Examine) -> Outcome {
    let paths = member::paths(&arguments.members).map_err(Failure::Usage)?;
    let reading = arguments.reading.of(&paths)?;
    let mut reports = Vec::new();
    let mut good = true;
    for path in paths {
        let label = terminal::label(&path);
        match look(&path, &reading) {
            Ok((looked, shown)) => {
                good &= report(&looked, &shown, arguments.json, &mut reports)?;
                if arguments.deep {
                    let found = deep(&looked)?;
                    if arguments.json {
                        if let Some(report) = reports.last_mut() {
                            report["deep"] = found.iter().map(FoundSuperblock::to_json).collect();
                        }
                    } else {
                        print_places(&looked.label, &found)?;
                    }
                }
            }
            Err(Failure::Failed(text)) => {
                good = false;
                complain(&text);
                reports.push(json!({"member": label, "error": text}));
            }
            Err(other) => return Err(other),
        }
    }
    if arguments.json {
        print_json(&json!({"schema": "weft.examine/1", "members": reports}))?;
    }
    Ok(if good { Exit::Done } else { Exit::Of(1) })
}

/// Superblock found by a search of the whole device.
struct FoundSuperblock {
    found: Misplaced,
    /// Whether the superblock is at the position that its version prescribes.
    usual: bool,
    /// MEMBER argument for which the superblock is at the position that its version prescribes.
    /// `None` if it is there already, or if there is no such argument.
    name: Option<String>,
}

fn deep(looked: &Looked) -> Result<Vec<FoundSuperblock>, Failure> {
    let found = looked.superblocks_anywhere()?;
    Ok(found.into_iter().map(|found| FoundSuperblock::of(found, looked)).collect())
}

impl FoundSuperblock {
    fn of(found: Misplaced, looked: &Looked) -> Self {
        let version = found.superblock.version();
        let usual = version.position(looked.probe.size()) == Some(found.sector);
        // The position of a superblock at the end follows from the member's size, so the size is
        // chosen to match.
        let window = match (version, found.member_start) {
            _ if usual => None,
            (Version::V0_90, _) => Some((0, Some(found.sector.0 + RESERVED_090.0))),
            (Version::V1_0, Some(start)) => {
                Some((start.0, Some(found.sector.0 - start.0 + V1_0_BEHIND)))
            }
            (_, Some(start)) => Some((start.0, None)),
            (_, None) => None,
        };
        let fits = |&(start, len): &(u64, Option<u64>)| {
            len.is_none_or(|len| start + len <= looked.probe.size().0)
        };
        let name = window.filter(fits).map(|(start, len)| {
            let len = len.map(|len| format!("+{len}s")).unwrap_or_default();
            format!("{}@{start}s{len}", looked.label)
        });
        Self { found, usual, name }
    }

    fn to_json(&self) -> Value {
        let superblock = &self.found.superblock;
        json!({
            "sector": self.found.sector.0,
            "metadata": superblock.version().to_string(),
            "array_uuid": superblock.set_uuid().to_string(),
            "name": superblock.name(),
            "events": superblock.events(),
            "usual_place": self.usual,
            "member": self.name,
        })
    }
}

fn print_places(label: &str, places: &[FoundSuperblock]) -> Result<(), Failure> {
    let mut out = stdout();
    writeln!(out, "{label}: {} superblocks in all of it", places.len())?;
    for place in places {
        let superblock = &place.found.superblock;
        let what = match &place.name {
            _ if place.usual => "where it is looked for".to_owned(),
            Some(name) => format!("in an odd place; try {name}"),
            None => "in an odd place; its member does not fit here".to_owned(),
        };
        writeln!(
            out,
            "  sector {}: version {}, array {} \"{}\", {} of {}, events {}: {what}",
            place.found.sector.0,
            superblock.version(),
            superblock.set_uuid(),
            superblock.name(),
            superblock.level(),
            superblock.raid_disks(),
            superblock.events(),
        )?;
    }
    out.flush()?;
    Ok(())
}

/// Least distance from the superblock of a 1.0 member to the end of the member, in sectors.
const V1_0_BEHIND: u64 = 16;

fn look(path: &Path, reading: &Reading) -> Result<(Looked, Shown), Failure> {
    let looked = Looked::open_with(path, reading)?;
    let shown = looked.superblocks();
    Ok((looked, shown))
}

/// Prints one member, or adds it to `reports` if `as_json` is set. Returns whether its metadata is
/// valid.
fn report(
    looked: &Looked,
    shown: &Shown,
    as_json: bool,
    reports: &mut Vec<Value>,
) -> Result<bool, Failure> {
    let label = &looked.label;
    let mut problems: Vec<String> = shown.damaged.iter().map(ToString::to_string).collect();
    problems.extend(
        shown.readable.iter().filter_map(|(_, wrong)| wrong.as_ref().map(ToString::to_string)),
    );
    if shown.readable.len() > 1 {
        problems.push(
            "superblock: found several on one member, expected one; erase the stale one".into(),
        );
    }
    let unreadable: Vec<String> = shown.unreadable.iter().map(ToString::to_string).collect();
    let at_another = shown.readable.first().map(|(superblock, _)| superblock.version());
    for place in &unreadable {
        complain(&match at_another {
            Some(version) => format!("{label}: {place}; that of version {version} is used"),
            None => format!("{label}: {place}; the superblock may be there: leave the member out"),
        });
    }
    if at_another.is_none() {
        problems.extend(unreadable.iter().cloned());
    }
    if shown.readable.is_empty() && problems.is_empty() {
        complain(&format!("No md superblock detected on {label}."));
        let mut problem = "no md superblock detected".to_owned();
        if !looked.probe.is_device() {
            complain(&format!("{label}: {CUT_HAS_NONE}"));
            problem = format!("{problem}; {CUT_HAS_NONE}");
        }
        problems.push(problem);
    } else {
        for problem in problems.iter().filter(|problem| !unreadable.contains(problem)) {
            complain(&format!("{label}: {problem}"));
        }
    }
    if as_json {
        let superblocks: Vec<Value> = shown
            .readable
            .iter()
            .map(|(superblock, wrong)| stored(looked, superblock, wrong.as_ref()))
            .collect();
        reports.push(json!({
            "member": label,
            "size_bytes": looked.probe.size().bytes().0,
            "superblock": superblocks.first(),
            "more_superblocks": superblocks.get(1..).unwrap_or_default(),
            "errors": problems,
            "unreadable": unreadable,
        }));
    } else {
        let mut out = stdout();
        for (superblock, wrong) in &shown.readable {
            writeln!(
                out,
                "{label}:\n{}",
                to_text(superblock, looked.probe.size(), wrong.as_ref())
            )?;
            if let Some(bytes) = bad_block_log(looked, superblock) {
                // As mdadm --examine-badblocks prints them.
                writeln!(out, "\nBad-blocks on {label}:")?;
                for line in BadBlocks::describe(&bytes, bad_block_shift(superblock)) {
                    writeln!(out, "{line}")?;
                }
            }
        }
        out.flush()?;
    }
    Ok(problems.is_empty())
}

/// Text as `mdadm --examine` prints it, without the line that names the member. `wrong` is the
/// error of the superblock, if it is invalid.
fn to_text(
    superblock: &Superblock,
    member_size: Sectors,
    wrong: Option<&SuperblockError>,
) -> String {
    use std::fmt::Write;
    let lines = superblock.describe(member_size);
    let has_layout = lines.iter().any(|(name, _)| name == "Layout");
    let mut text = String::new();
    for (name, mut value) in lines {
        if let ("Checksum", Some(SuperblockError::Checksum { stored, computed, .. })) =
            (name.as_str(), wrong)
        {
            value = format!("{stored:x} - expected {computed:x}");
        }
        // mdadm aligns its last two lines one column further left, after a gap.
        let width = match name.as_str() {
            "Device Role" => {
                text.push('\n');
                14
            }
            "Array State" => 14,
            _ => 15,
        };
        let is_old = matches!(superblock, Superblock::V0_90(_));
        if is_old && (name == "Layout" || (name == "Chunk Size" && !has_layout)) {
            text.push('\n');
        }
        let host = if name == "Name" { local_to(&value) } else { String::new() };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:>width$} : {value}{host}");
        let ends_group = match superblock {
            Superblock::V0_90(_) => name == "Preferred Minor",
            Superblock::V1(_) => matches!(name.as_str(), "Raid Devices" | "Device UUID" | "Events"),
        };
        if ends_group {
            text.push('\n');
        }
    }
    for (line, index) in superblock.describe_disks().iter().zip(0..) {
        // The title and the member's own row each form a group.
        let gap = if matches!(index, 0 | 2) { "\n" } else { "" };
        let _ = writeln!(text, "{gap}{line}");
    }
    text.pop();
    text
}

fn local_to(name: &str) -> String {
    let host = when::hostname();
    match name.split_once(':') {
        Some((first, _)) if first == host => format!("  (local to host {host})"),
        _ => String::new(),
    }
}

/// Bytes of a member's bad-block log; `None` if it has no entries. A log that cannot be read is
/// reported.
fn bad_block_log(looked: &Looked, superblock: &Superblock) -> Option<Vec<u8>> {
    looked.bad_block_log(superblock).unwrap_or_else(|error| {
        complain(&format!("{}: {error}", looked.label));
        None
    })
}

fn bad_block_shift(superblock: &Superblock) -> u8 {
    superblock.as_v1().map_or(0, |new| new.bblog_shift)
}

/// JSON of every field of a superblock as it is stored on the member, also of a wrong checksum.
fn stored(looked: &Looked, superblock: &Superblock, wrong: Option<&SuperblockError>) -> Value {
    let mut fields = superblock_json::fields(superblock);
    if let Some(SuperblockError::Checksum { stored, .. }) = wrong {
        fields["checksum"] = json!(format!("{stored:08x}"));
    }
    if let Some(bytes) = bad_block_log(looked, superblock) {
        let unit = 1_u64.checked_shl(bad_block_shift(superblock).into()).unwrap_or_default();
        let entries = raw_entries(&bytes).map(|(start, len)| {
            json!({"sector": start.wrapping_mul(unit), "sectors": len.wrapping_mul(unit)})
        });
        fields["bad_block_log"]["entries"] = entries.collect();
    }
    fields
}
