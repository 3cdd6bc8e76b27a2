//! Files in the folder of a copy with the details that the terminal only counts: findings and
//! owners.
//!
//! Findings are written one by one, when they are found: a copy that is interrupted, or that ends
//! because there is no space left, has recorded its findings up to that point. Each run that finds
//! something writes a file of its own, with the first free number; nothing is overwritten. Owners
//! that could not be set become a script for root.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use weft_files::copy::{Damaged, Event, Folder, ReportedPath};
use weft_files::tree::{Node, NodeKind};
use weft_terminal::terminal::{json_line, quoted};

use crate::contents::with_path;

/// Files with the findings and owners of one run.
pub(super) struct Record<'f> {
    folder: &'f Folder,
    to: &'f Path,
    findings: Lazy<File>,
    owners: Lazy<Owners>,
}

/// A file that is created at the first write.
enum Lazy<F> {
    Failed(String),
    Nothing,
    Open(String, F),
}

impl<F> Lazy<F> {
    /// Writes to the file, which `make` creates at the first write. After an error nothing more is
    /// written.
    fn with(
        &mut self,
        make: impl FnOnce() -> io::Result<(String, F)>,
        write: impl FnOnce(&mut F) -> io::Result<()>,
    ) {
        if matches!(self, Self::Nothing) {
            *self = make().map_or_else(
                |error| Self::Failed(error.to_string()),
                |(name, file)| Self::Open(name, file),
            );
        }
        if let Self::Open(name, file) = self
            && let Err(error) = write(file)
        {
            *self = Self::Failed(format!("{name}: {error}"));
        }
    }

    /// Path of the file below `to`, or the error if the file is incomplete. `None` if nothing was
    /// written.
    fn state(&self, to: &Path) -> Option<Result<PathBuf, &str>> {
        match self {
            Self::Failed(error) => Some(Err(error)),
            Self::Nothing => None,
            Self::Open(name, _) => Some(Ok(to.join(name))),
        }
    }
}

impl<'f> Record<'f> {
    pub(super) fn new(folder: &'f Folder, to: &'f Path) -> Self {
        Self { folder, to, findings: Lazy::Nothing, owners: Lazy::Nothing }
    }

    /// Records an event of the copy of a place: a finding, or an owner for the script. `below` is
    /// the folder of the copied files below the folder of the copy; empty if they lie in the folder
    /// of the copy itself.
    pub(super) fn event(&mut self, place: &str, below: &str, event: &Event<'_>) {
        let (what, reported) = match event {
            Event::Bytes(_) => return,
            Event::Damaged(damaged) => {
                return self.finding(place, "damaged", damaged_json(damaged));
            }
            Event::Owner { path, node } => {
                let folder = self.folder;
                let path = match below {
                    "" => path.to_vec(),
                    below => [below.as_bytes(), b"/", path].concat(),
                };
                self.owners.with(|| Owners::make(folder), |owners| owners.add(&path, node));
                return;
            }
            Event::Failed(reported) => ("failed", reported),
            Event::Kept(reported) => ("kept", reported),
            Event::Special(reported) => ("special", reported),
            Event::Suspect(reported) => ("suspect", reported),
        };
        self.finding(place, what, reported_json(reported));
    }

    /// Writes a finding of the kind `what` about a place.
    pub(super) fn finding(&mut self, place: &str, what: &str, mut value: Value) {
        (value["place"], value["what"]) = (json!(place), json!(what));
        let folder = self.folder;
        let make = || first_free(folder, ".jsonl");
        self.findings.with(make, |file| file.write_all(json_line(&value.to_string()).as_bytes()));
    }

    /// Path of the file with the findings, or the error if the file is incomplete. `None` without
    /// findings.
    pub(super) fn findings(&self) -> Option<Result<PathBuf, &str>> {
        self.findings.state(self.to)
    }

    /// Completes the script for owners. Returns its path, or the error if it is incomplete; `None`
    /// if there is no script.
    pub(super) fn owners(&mut self) -> Option<Result<PathBuf, &str>> {
        if let Lazy::Open(name, owners) = &mut self.owners
            && let Err(error) = owners.end()
        {
            self.owners = Lazy::Failed(format!("{name}: {error}"));
        }
        self.owners.state(self.to)
    }
}

/// Creates a file with the first number in its name that is free. Returns the name and the file.
fn first_free(folder: &Folder, suffix: &str) -> io::Result<(String, File)> {
    for number in 1_u32.. {
        let name = format!("weft-rescue-{number}{suffix}");
        match folder.new_file(&name) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            result => return result.map(|file| (name, file)),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

/// Script that sets owners: one command for consecutive paths with the same owner.
struct Owners {
    file: BufWriter<File>,
    /// Owner of the paths in `waiting`, for which no command was written yet.
    owner: (u32, u32),
    waiting: String,
    /// Commands that restore modes: a change of owner clears the set-user-ID and set-group-ID bits.
    modes: String,
}

impl Owners {
    fn make(folder: &Folder) -> io::Result<(String, Self)> {
        let (name, file) = first_free(folder, "-owners.sh")?;
        let mut file = BufWriter::new(file);
        writeln!(
            file,
            "#!/bin/bash\n# Owners that weft rescue could not set. As root: bash {name}\n\
             cd -- \"$(dirname -- \"$0\")\" || exit 1"
        )?;
        let owners = Self { file, owner: (0, 0), waiting: String::new(), modes: String::new() };
        Ok((name, owners))
    }

    fn add(&mut self, path: &[u8], node: &Node) -> io::Result<()> {
        let owner = (node.uid, node.gid);
        if owner != self.owner || self.waiting.len() > COMMAND_BYTES {
            self.pass_on()?;
        }
        self.owner = owner;
        let name = quoted(OsStr::from_bytes(path));
        self.waiting.push(' ');
        self.waiting += &name;
        if node.mode & 0o6000 != 0 && node.kind != NodeKind::Link {
            self.modes += &format!("chmod {:o} -- {name}\n", node.mode);
        }
        Ok(())
    }

    fn pass_on(&mut self) -> io::Result<()> {
        let (waiting, modes) = (std::mem::take(&mut self.waiting), std::mem::take(&mut self.modes));
        if !waiting.is_empty() {
            writeln!(self.file, "chown -h {}:{} --{waiting}", self.owner.0, self.owner.1)?;
        }
        self.file.write_all(modes.as_bytes())
    }

    fn end(&mut self) -> io::Result<()> {
        self.pass_on()?;
        self.file.flush()
    }
}

/// JSON of a path, with the reason why it was reported.
pub(super) fn reported_json(reported: &ReportedPath) -> Value {
    with_path(&reported.path, json!({"why": reported.why}))
}

/// JSON of a damaged file with its ranges that cannot be read.
pub(super) fn damaged_json(file: &Damaged) -> Value {
    let mut ranges = Vec::new();
    for (range, why) in &file.ranges {
        ranges.push(json!({"start": range.start, "end": range.end, "why": why}));
    }
    with_path(&file.path, json!({"ranges": ranges}))
}

/// Longest list of paths of a command, in bytes.
const COMMAND_BYTES: usize = 60_000;

#[cfg(test)]
mod tests {
    use weft_files::tree::NodeTime;

    use super::*;

    #[test]
    fn the_script_for_owners_names_every_path_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        let mut record = Record::new(&folder, dir.path());
        let node = |uid, mode| {
            let (accessed, modified) = (NodeTime::default(), NodeTime::default());
            let (id, size, gid, links, kind) = (1, 0, 100, 1, NodeKind::File);
            Node {
                id,
                kind,
                size,
                mode,
                uid,
                gid,
                links,
                accessed,
                modified,
                changed: modified,
                stored: size,
                device: 0,
                fault: None,
            }
        };
        let paths: [(&[u8], u32, u32); 5] = [
            (b"plain", 1000, 0o644),
            (b"it's $(touch evil) `touch evil`", 1000, 0o4755),
            (b"-R\n; touch evil", 1001, 0o644),
            (b"\xff\\ \"", 1001, 0o644),
            (b"#", 0, 0o644),
        ];
        for (path, uid, mode) in paths {
            record.event("nas", "-nas", &Event::Owner { path, node: &node(uid, mode) });
        }
        let script = record.owners().unwrap().unwrap();
        assert_eq!(script, dir.path().join("weft-rescue-1-owners.sh"));
        assert!(record.findings().is_none(), "owners are no findings");
        // Stands for chown and chmod, and says what it was given.
        let bin = dir.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        let says = "#!/bin/sh\nprintf '%s\\0' \"${0##*/}\" \"$@\" >>\"$LOG\"\n";
        for name in ["chown", "chmod"] {
            std::fs::write(bin.join(name), says).unwrap();
            let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(bin.join(name), executable).unwrap();
        }
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let mut shell = std::process::Command::new("bash");
        shell.arg(&script).env("PATH", path).env("LOG", dir.path().join("log"));
        assert!(shell.status().unwrap().success());
        let said = std::fs::read(dir.path().join("log")).unwrap();
        let said: Vec<&[u8]> = said.split(|byte| *byte == 0).filter(|it| !it.is_empty()).collect();
        let expected: [&[u8]; 21] = [
            b"chown",
            b"-h",
            b"1000:100",
            b"--",
            b"-nas/plain",
            b"-nas/it's $(touch evil) `touch evil`",
            b"chmod",
            b"4755",
            b"--",
            b"-nas/it's $(touch evil) `touch evil`",
            b"chown",
            b"-h",
            b"1001:100",
            b"--",
            b"-nas/-R\n; touch evil",
            b"-nas/\xff\\ \"",
            b"chown",
            b"-h",
            b"0:100",
            b"--",
            b"-nas/#",
        ];
        assert_eq!(said, expected);
        assert!(!dir.path().join("evil").exists());
    }

    #[test]
    fn findings_that_cannot_be_written_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        let mut record = Record::new(&folder, dir.path());
        // The folder goes away.
        std::fs::remove_dir(dir.path()).unwrap();
        let reported = ReportedPath { path: b"a".to_vec(), why: "lost".into() };
        record.event("nas", "nas", &Event::Failed(&reported));
        assert!(record.findings().unwrap().is_err());
    }
}
