//! Report of copies: on the terminal, and as JSON.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use weft_files::copy::{Damaged, Report, ReportedPath};
use weft_terminal::outcome::Failure;
use weft_terminal::terminal::{label, printable, quoted};
use weft_units::Bytes;

use super::record::{Record, damaged_json, reported_json};
use crate::size;

/// Results of all copies, and the files with the details that the terminal only counts.
#[derive(Default)]
pub(crate) struct All {
    pub(crate) list: Vec<Restored>,
    /// Whether every array could be read.
    pub(crate) is_whole: bool,
    /// File with every finding, or the error if it is incomplete; `None` without findings.
    pub(crate) findings: Option<Result<PathBuf, String>>,
    /// Script that sets owners, or the error if it is incomplete; `None` if there is no script.
    pub(crate) owners: Option<Result<PathBuf, String>>,
}

/// Result of the copy of a file system.
#[derive(Default)]
pub(crate) struct Restored {
    /// Name of the place.
    pub(crate) place: String,
    /// Folder of the copied files, below the folder of the copy; `None` if they lie in the folder
    /// of the copy itself.
    pub(crate) folder: Option<String>,
    /// Notes on the file system, for the user.
    pub(crate) notes: Vec<String>,
    /// Report of the copy, also of one that ended early; `None` if it was not begun.
    pub(crate) report: Option<Report>,
    /// Reason why nothing was copied; `None` if the copy was begun.
    pub(crate) refused: Option<String>,
    /// Reason why the copy ended early; `None` if it came to its end.
    pub(crate) stopped: Option<String>,
}

impl All {
    /// Whether everything was copied as it was.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_whole && !self.list.is_empty() && self.list.iter().all(Restored::is_complete)
    }

    /// Sentence about files and file systems that were not copied as they were; `None` if all were.
    pub(crate) fn verdict(&self) -> Option<String> {
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

    /// Prints the report of every copy, and the paths of the files with details. `to` is the folder
    /// of the copies.
    pub(crate) fn print(&self, out: &mut dyn Write, to: &Path) -> Result<(), Failure> {
        let lines_max = match self.findings {
            Some(Err(_)) => usize::MAX,
            Some(Ok(_)) | None => LINES_MAX,
        };
        for copied in &self.list {
            copied.print(out, to, lines_max)?;
        }
        self.print_files(out)
    }

    /// Adds to a JSON object whether everything was copied as it was, and the paths of the files
    /// with details.
    pub(crate) fn add_to(&self, object: &mut Value) {
        object["complete"] = json!(self.is_complete());
        object["verdict"] = json!(self.verdict());
        let path = |state: &Option<Result<PathBuf, String>>| match state {
            Some(Ok(path)) => json!(label(path)),
            Some(Err(_)) | None => Value::Null,
        };
        object["findings_file"] = path(&self.findings);
        object["owners_file"] = path(&self.owners);
    }

    /// Prints the paths of the files with findings and owners.
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

impl Restored {
    fn is_complete(&self) -> bool {
        self.stopped.is_none() && self.report.as_ref().is_some_and(Report::is_complete)
    }

    /// Records a last finding about a copy that is not complete. Its absence shows that the file of
    /// findings was cut off.
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

    fn print(&self, out: &mut dyn Write, to: &Path, lines_max: usize) -> Result<(), Failure> {
        let to = match &self.folder {
            Some(folder) => to.join(folder),
            None => to.to_owned(),
        };
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
            for ReportedPath { path, why } in list {
                lines.line(format_args!("{}: {why}", quoted(OsStr::from_bytes(path))))?;
            }
            lines.end(list.len(), lines_max)?;
        }
        if let Some(why) = &self.stopped {
            writeln!(out, "{place}: the copy ended early: {}", printable(why))?;
        }
        Ok(())
    }

    pub(crate) fn to_json(&self) -> Value {
        let Some(report) = &self.report else {
            return json!({"error": self.refused, "notes": self.notes, "complete": false});
        };
        let reported = |list: &[ReportedPath]| list.iter().map(reported_json).collect::<Vec<_>>();
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
            "failed": reported(&report.failed), "kept": reported(&report.kept),
            "suspect": reported(&report.suspect), "special": reported(&report.special),
        })
    }
}

/// Printed lines about one kind of path, of which at most `left` more are printed.
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

    /// Prints how many of `all` lines were left out, if there were more than `lines_max`.
    fn end(&mut self, all: usize, lines_max: usize) -> Result<(), Failure> {
        if all > lines_max {
            writeln!(self.out, "    and {} more", all - lines_max)?;
        }
        Ok(())
    }
}

/// Text of a number with its noun: `1 file`, `2 files`.
fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Largest number of lines about one kind of path; the file with the findings has all.
const LINES_MAX: usize = 20;
