//! Output of `weft rescue --list` and `--to`: the table of what is inside, and reports of copies.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde_json::{Value, json};
use weft_files::copy::{Damaged, Report, Told};
use weft_files::inside::{Inside as Found, Place};
use weft_files::probe::Content;
use weft_ondisk::MdTime;
use weft_terminal::outcome::Failure;
use weft_terminal::terminal::{label, printable, printable_stdout, quoted};
use weft_units::Bytes;

use super::files::Asked;
use super::record::{Record, damaged_json, told_json};
use crate::contents::has_files;
use crate::size;

/// Copies of all file systems, and the files that say what the terminal only counts.
#[derive(Default)]
pub(super) struct All {
    pub(super) list: Vec<Restored>,
    /// Whether every array could be read.
    pub(super) is_whole: bool,
    /// File with every finding, or why not all are in it.
    pub(super) findings: Option<Result<PathBuf, String>>,
    /// Script that sets owners, or why it is not whole.
    pub(super) owners: Option<Result<PathBuf, String>>,
}

/// Copy of a file system.
#[derive(Default)]
pub(super) struct Restored {
    /// Name of the place.
    pub(super) place: String,
    /// Folder of the files, in that of `--to`.
    pub(super) folder: String,
    /// Oddities of the file system.
    pub(super) notes: Vec<String>,
    /// Report of the copy, up to its end.
    pub(super) report: Option<Report>,
    /// Reason why nothing was copied.
    pub(super) refused: Option<String>,
    /// Reason why the copy ended early.
    pub(super) stopped: Option<String>,
}

impl All {
    /// Whether everything was copied as it was.
    pub(super) fn is_complete(&self) -> bool {
        self.is_whole && !self.list.is_empty() && self.list.iter().all(Restored::is_complete)
    }

    /// One sentence about what was not copied as it was; `None` if there is nothing to say.
    pub(super) fn verdict(&self) -> Option<String> {
        let mut says = Vec::new();
        if !self.is_whole {
            says.push("an array cannot be read".to_owned());
        }
        for copied in self.list.iter().filter(|copied| copied.report.is_none()) {
            says.push(format!("nothing of {} was copied", copied.place));
        }
        for copied in &self.list {
            says.extend(
                copied.stopped.as_ref().map(|why| format!("{} ended early: {why}", copied.place)),
            );
        }
        let reports: Vec<&Report> =
            self.list.iter().filter_map(|copied| copied.report.as_ref()).collect();
        let count =
            |of: fn(&Report) -> usize| reports.iter().map(|report| of(report)).sum::<usize>();
        for (count, noun, what) in [
            (count(|it| it.damaged.len()), "file", "with zeros for what cannot be read"),
            (count(|it| it.failed.len()), "path", "not copied, or in part"),
            (count(|it| it.kept.len()), "path", "left as they were in the folder"),
            (count(|it| it.suspect.len()), "path", "copied that may be wrong"),
        ] {
            if count > 0 {
                says.push(format!("{} {what}", counted(count as u64, noun)));
            }
        }
        for copied in self.list.iter().filter(|it| it.report.is_some() && it.stopped.is_none()) {
            let report = copied.report.as_ref();
            if report.is_some_and(|report| !report.is_replayed) {
                says.push(format!("the journal of {} is not replayed in full", copied.place));
            }
            if report.is_some_and(|report| !report.doubts.is_empty()) {
                says.push(format!("{} is damaged as a whole", copied.place));
            }
        }
        if says.is_empty() {
            return None;
        }
        let mut says = format!("not everything was copied as it was: {}", says.join(", "));
        match &self.findings {
            Some(Ok(path)) => says += &format!("; {} lists all of it", label(path)),
            Some(Err(error)) => says += &format!("; the list of it could not be written: {error}"),
            None => {}
        }
        Some(says)
    }

    /// Says where the lists are.
    fn print_files(&self, out: &mut dyn Write) -> Result<(), Failure> {
        if let Some(Ok(path)) = &self.findings {
            writeln!(out, "\n{} lists each of these paths with its bytes", label(path))?;
        }
        match &self.owners {
            Some(Ok(path)) => {
                writeln!(
                    out,
                    "owners were not set, which needs root: bash {} does it",
                    quoted(path.as_os_str())
                )?;
            }
            Some(Err(error)) => {
                writeln!(
                    out,
                    "owners were not set, and the script that would do it is not whole: {error}"
                )?;
            }
            None => {}
        }
        Ok(())
    }
}

/// Time of the last use, by RFC 3339.
pub(super) fn last_use(content: &Content) -> Option<String> {
    let secs = u64::try_from(content.last_use?).ok()?;
    Some(MdTime { secs, micros: 0 }.to_rfc3339())
}

/// Prints the table, data first and the largest of it first, and the reports.
pub(super) fn print(found: &Found, restored: &All, asked: &Asked<'_>) -> Result<(), Failure> {
    let mut out = printable_stdout();
    let mut places: Vec<&Place> = found.places.iter().collect();
    places.sort_by_key(|place| (has_files(place).is_none(), std::cmp::Reverse(place.size)));
    let rows: Vec<[String; 3]> = places
        .iter()
        .map(|place| {
            let holds = match &place.content {
                Ok((content, _)) => content.kind.to_string(),
                Err(_) => "not read".to_owned(),
            };
            [printable(&place.name), printable(&holds), size::human(Bytes(place.size))]
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
                    line += &format!("  {what} {}", printable(&value));
                }
            }
        }
        writeln!(out, "{line}")?;
        let own = place.content.as_ref().map(|(content, _)| content.notes.as_slice());
        for note in place.notes.iter().chain(own.unwrap_or_default()) {
            writeln!(out, "  note: {}", printable(note))?;
        }
        if let Some(Err(why)) = has_files(place) {
            writeln!(out, "  its files are not copied: {}", printable(&why))?;
        }
    }
    for group in &found.groups {
        let on = printable(&group.on.join(", "));
        writeln!(out, "volume group {}: on {on}", printable(&group.name))?;
        for uuid in &group.missing {
            let uuid = printable(uuid);
            writeln!(out, "  note: physical volume {uuid} was not found; name its disks too")?;
        }
        if let Err(error) = &group.volumes {
            writeln!(out, "  note: {}", printable(&error.to_string()))?;
        }
    }
    if asked.to.is_none() && places.iter().any(|place| matches!(has_files(place), Some(Ok(_)))) {
        writeln!(out, "next: weft rescue {} --to FOLDER copies the files out", asked.disks)?;
    }
    let lines_max = match restored.findings {
        Some(Err(_)) => usize::MAX,
        Some(Ok(_)) | None => LINES_MAX,
    };
    for copied in &restored.list {
        copied.print(&mut out, asked, lines_max)?;
    }
    restored.print_files(&mut out)?;
    out.flush()?;
    Ok(())
}

impl Restored {
    fn is_complete(&self) -> bool {
        self.stopped.is_none() && self.report.as_ref().is_some_and(Report::is_complete)
    }

    /// Adds the end of the copy to the findings, if there is something to say: a list without it is
    /// not whole.
    pub(super) fn finish(&self, record: &mut Record<'_>) {
        if self.is_complete() {
            return;
        }
        let why = self.refused.as_ref().or(self.stopped.as_ref());
        let report = self.report.as_ref();
        let value = json!({
            "notes": self.notes, "error": why,
            "doubts": report.map(|report| &report.doubts),
            "journal_replayed": report.map(|report| report.is_replayed),
        });
        record.finding(&self.place, "end", value);
    }

    fn print(
        &self,
        out: &mut dyn Write,
        asked: &Asked<'_>,
        lines_max: usize,
    ) -> Result<(), Failure> {
        let to = asked.to.map(|to| to.join(&self.folder)).unwrap_or_default();
        let place = printable(&self.place);
        writeln!(out)?;
        for note in &self.notes {
            writeln!(out, "{place}: note: {}", printable(note))?;
        }
        if let Some(why) = &self.refused {
            writeln!(out, "{place}: nothing was copied: {}", printable(why))?;
        }
        let Some(report) = &self.report else { return Ok(()) };
        for doubt in &report.doubts {
            writeln!(out, "{place}: damaged, any of its files may be wrong: {}", printable(doubt))?;
        }
        let bytes = size::human(Bytes(report.bytes));
        writeln!(
            out,
            "{place}: {} ({bytes}), {}, {} copied to {}",
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
            (report.owners_lost, "have another owner".to_owned()),
            (
                report.damaged.len() as u64,
                format!("files have zeros for what cannot be read, {lost} in all"),
            ),
        ];
        for (count, what) in counts.iter().filter(|(count, _)| *count > 0) {
            writeln!(out, "  {count} {what}")?;
        }
        let mut lines = Lines { out, left: lines_max };
        for Damaged { path, ranges } in &report.damaged {
            for (range, why) in ranges {
                let name = quoted(OsStr::from_bytes(path));
                lines.line(format_args!("{name}: bytes {}..{}: {why}", range.start, range.end))?;
            }
        }
        lines.end(report.damaged.iter().map(|file| file.ranges.len()).sum(), lines_max)?;
        for (list, what) in [
            (&report.failed, "could not be copied, or in part"),
            (&report.kept, "stay as they are"),
            (&report.suspect, "were copied and may be wrong"),
            (&report.special, "are no files and were left out"),
        ] {
            if !list.is_empty() {
                writeln!(out, "  {} {what}", list.len())?;
            }
            let mut lines = Lines { out, left: lines_max };
            for Told { path, why } in list {
                lines.line(format_args!("{}: {why}", quoted(OsStr::from_bytes(path))))?;
            }
            lines.end(list.len(), lines_max)?;
        }
        if let Some(why) = &self.stopped {
            writeln!(out, "{place}: the copy ended early: {}", printable(why))?;
        }
        Ok(())
    }

    pub(super) fn to_json(&self) -> Value {
        let Some(report) = &self.report else {
            return json!({"error": self.refused, "notes": self.notes, "complete": false});
        };
        let told = |list: &[Told]| list.iter().map(told_json).collect::<Vec<_>>();
        json!({
            "folder": self.folder, "notes": self.notes, "complete": self.is_complete(),
            "stopped": self.stopped, "journal_replayed": report.is_replayed,
            "doubts": report.doubts,
            "files": report.files, "directories": report.directories, "bytes": report.bytes,
            "symbolic_links": report.links, "hard_links": report.hard_links,
            "skipped": report.skipped, "bytes_lost": report.bytes_lost(),
            "attributes_lost": report.attributes_lost, "owners_lost": report.owners_lost,
            "hard_links_copied": report.links_copied,
            "damaged": report.damaged.iter().map(damaged_json).collect::<Vec<_>>(),
            "failed": told(&report.failed), "kept": told(&report.kept),
            "suspect": told(&report.suspect), "special": told(&report.special),
        })
    }
}

/// Lines about paths, up to a largest number of them.
struct Lines<'o> {
    out: &'o mut dyn Write,
    left: usize,
}

impl Lines<'_> {
    fn line(&mut self, line: std::fmt::Arguments<'_>) -> Result<(), Failure> {
        if self.left > 0 {
            self.left -= 1;
            writeln!(self.out, "    {}", printable(&line.to_string()))?;
        }
        Ok(())
    }

    /// Says how many of `all` lines were left out.
    fn end(&mut self, all: usize, lines_max: usize) -> Result<(), Failure> {
        if all > lines_max {
            writeln!(self.out, "    and {} more", all - lines_max)?;
        }
        Ok(())
    }
}

/// A number with its noun.
fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Largest number of lines about one kind of path; the file with the findings has all.
const LINES_MAX: usize = 20;
