//! Output of `weft rescue --list` and `--to`: the table of what is inside, and reports of copies.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use serde_json::{Value, json};
use weft_files::copy::{Damaged, Report, Told};
use weft_files::inside::{Inside as Contents, Place};
use weft_files::probe::{Content, Kind};
use weft_files::source::Shared;
use weft_ondisk::MdTime;
use weft_terminal::outcome::Failure;
use weft_terminal::terminal::{label, quoted, stdout};
use weft_units::Bytes;

use super::files::Asked;
use crate::size;

/// Copy of a file system.
pub(super) struct Restored {
    /// Name of the place.
    pub(super) place: String,
    /// Folder of the files, in that of `--to`.
    pub(super) folder: String,
    /// Oddities of the file system.
    pub(super) notes: Vec<String>,
    /// Report of the copy, or why nothing was copied.
    pub(super) result: Result<Report, String>,
}

/// Source of a place with files, or why they are not read. `None` for a place without files of its
/// own: a table, a physical volume, swap, an empty one.
pub(super) fn has_files(place: &Place) -> Option<Result<&Shared, String>> {
    match &place.content {
        Ok((content, source)) => match &content.kind {
            Kind::Btrfs(_) | Kind::Ext(_) | Kind::Snapshot(_) => Some(Ok(source)),
            Kind::Xfs | Kind::Luks(_) => Some(Err(format!(
                "{} is not read by this release; the kernel reads it over weft serve --overlay",
                content.kind
            ))),
            Kind::Other(name) if name.contains("file system") => {
                Some(Err(format!("{name} is not read by this release")))
            }
            Kind::LvmPhysical | Kind::Nothing | Kind::Other(_) | Kind::Swap | Kind::Table(_) => {
                None
            }
        },
        Err(why) => Some(Err(why.clone())),
    }
}

/// Time of the last use, by RFC 3339.
pub(super) fn last_use(content: &Content) -> Option<String> {
    let secs = u64::try_from(content.last_use?).ok()?;
    Some(MdTime { secs, micros: 0 }.to_rfc3339())
}

/// Prints the table, data first and the largest of it first, and the reports.
pub(super) fn print(
    found: &Contents,
    restored: &[Restored],
    asked: &Asked<'_>,
) -> Result<(), Failure> {
    let mut out = stdout();
    let mut places: Vec<&Place> = found.places.iter().collect();
    places.sort_by_key(|place| (has_files(place).is_none(), std::cmp::Reverse(place.size)));
    let rows: Vec<[String; 3]> = places
        .iter()
        .map(|place| {
            let holds = match &place.content {
                Ok((content, _)) => content.kind.to_string(),
                Err(_) => "not read".to_owned(),
            };
            [place.name.clone(), holds, size::human(Bytes(place.size))]
        })
        .collect();
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2)];
    for (place, [name, holds, bytes]) in places.iter().zip(&rows) {
        let mut line =
            format!("{name:0$}  {holds:1$}  {bytes:>2$}", widths[0], widths[1], widths[2]);
        if let Ok((content, _)) = &place.content {
            for (what, value) in [
                ("label", content.label.clone()),
                ("uuid", content.uuid.clone()),
                ("last used", last_use(content)),
            ] {
                if let Some(value) = value {
                    line += &format!("  {what} {value}");
                }
            }
        }
        writeln!(out, "{line}")?;
        let own = place.content.as_ref().map(|(content, _)| content.notes.as_slice());
        for note in place.notes.iter().chain(own.unwrap_or_default()) {
            writeln!(out, "  note: {note}")?;
        }
        if let Some(Err(why)) = has_files(place) {
            writeln!(out, "  its files are not copied: {why}")?;
        }
    }
    for group in &found.groups {
        writeln!(out, "volume group {}: on {}", group.name, group.on.join(", "))?;
        for uuid in &group.missing {
            writeln!(out, "  note: physical volume {uuid} was not found; name its disks too")?;
        }
        if let Err(error) = &group.volumes {
            writeln!(out, "  note: {error}")?;
        }
    }
    if asked.to.is_none() && places.iter().any(|place| matches!(has_files(place), Some(Ok(_)))) {
        writeln!(out, "next: weft rescue {} --to FOLDER copies the files out", asked.disks)?;
    }
    for copied in restored {
        copied.print(&mut out, asked)?;
    }
    out.flush()?;
    Ok(())
}

impl Restored {
    fn print(&self, out: &mut dyn Write, asked: &Asked<'_>) -> Result<(), Failure> {
        let to = asked.to.map(|to| to.join(&self.folder)).unwrap_or_default();
        writeln!(out)?;
        for note in &self.notes {
            writeln!(out, "{}: note: {note}", self.place)?;
        }
        let report = match &self.result {
            Err(why) => {
                writeln!(out, "{}: nothing was copied: {why}", self.place)?;
                return Ok(());
            }
            Ok(report) => report,
        };
        let bytes = size::human(Bytes(report.bytes));
        writeln!(
            out,
            "{}: {} ({bytes}), {}, {} copied to {}",
            self.place,
            counted(report.files, "file"),
            counted(report.directories, "folder"),
            counted(report.links + report.hard_links, "link"),
            label(&to)
        )?;
        let lost = size::human(Bytes(report.bytes_lost()));
        let counts = [
            (report.skipped, "were there already".to_owned()),
            (report.links_copied, "hard links became files of their own".to_owned()),
            (report.attributes_lost, "extended attributes could not be set".to_owned()),
            (report.owners_lost, "owners were not set, which needs root".to_owned()),
            (
                report.damaged.len() as u64,
                format!("files have zeros for what cannot be read, {lost} in all"),
            ),
        ];
        for (count, what) in counts.iter().filter(|(count, _)| *count > 0) {
            writeln!(out, "  {count} {what}")?;
        }
        for Damaged { path, ranges } in report.damaged.iter().take(LINES_MAX) {
            for (range, why) in ranges.iter().take(LINES_MAX) {
                let name = quoted(OsStr::from_bytes(path));
                writeln!(out, "    {name}: bytes {}..{}: {why}", range.start, range.end)?;
            }
        }
        for (list, what) in [
            (&report.failed, "could not be copied"),
            (&report.kept, "stay as they are"),
            (&report.suspect, "were copied and may be wrong"),
            (&report.special, "are no files and were left out"),
        ] {
            if !list.is_empty() {
                writeln!(out, "  {} {what}", list.len())?;
            }
            for Told { path, why } in list.iter().take(LINES_MAX) {
                writeln!(out, "    {}: {why}", quoted(OsStr::from_bytes(path)))?;
            }
            if list.len() > LINES_MAX {
                writeln!(out, "    and {} more; --json has all", list.len() - LINES_MAX)?;
            }
        }
        Ok(())
    }

    pub(super) fn to_json(&self) -> Value {
        let report = match &self.result {
            Err(why) => return json!({"error": why, "notes": self.notes}),
            Ok(report) => report,
        };
        let name = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        let told = |list: &[Told]| -> Vec<Value> {
            list.iter().map(|told| json!({"path": name(&told.path), "why": told.why})).collect()
        };
        let damaged = |file: &Damaged| {
            let range = |(range, why): &(std::ops::Range<u64>, String)| json!({"start": range.start, "end": range.end, "why": why});
            let ranges: Vec<Value> = file.ranges.iter().map(range).collect();
            json!({"path": name(&file.path), "ranges": ranges})
        };
        json!({
            "folder": self.folder, "notes": self.notes, "complete": report.is_complete(),
            "files": report.files, "directories": report.directories, "bytes": report.bytes,
            "symbolic_links": report.links, "hard_links": report.hard_links,
            "skipped": report.skipped, "bytes_lost": report.bytes_lost(),
            "attributes_lost": report.attributes_lost, "owners_lost": report.owners_lost,
            "hard_links_copied": report.links_copied,
            "damaged": report.damaged.iter().map(damaged).collect::<Vec<_>>(),
            "failed": told(&report.failed), "kept": told(&report.kept),
            "suspect": told(&report.suspect), "special": told(&report.special),
        })
    }
}

/// A number with its noun.
fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Largest number of lines about one kind of path; `--json` has all.
const LINES_MAX: usize = 20;
