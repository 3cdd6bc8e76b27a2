//! Options for disks that fail: `--unreadable DISK=MAP`, maps of GNU ddrescue by name, for disks
//! without a map beside them, and `--read-timeout`, a time limit for reads of disks that hang.
//!
//! A map counts bytes of the disk, so DISK is a whole file or device; members may be parts of it.
//! DISK is matched with the members by its path or, behind a link, by its device and inode.

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use weft_runtime::identity::Identity;
use weft_runtime::spec::MemberSpec;
use weft_runtime::timed::{ReadTimeout, TimedOut};
use weft_terminal::outcome::Failure;
use weft_terminal::terminal::{self, complain, quoted};

/// Options for reading failing disks: areas that are not read, and the time limit of a read.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ReadingOptions {
    /// Map of GNU ddrescue for DISK, a file or device that is a member or has members in it: bytes
    /// that MAP does not mark as rescued are not read. Once for each disk [default: the map beside
    /// an image, found by its name]
    #[arg(long, value_name = "DISK=MAP")]
    unreadable: Vec<OsString>,
    /// Time after which a read of a disk counts as failed: its data is computed from the other
    /// disks. After 8 ranges with such failures, a disk is not read any more. Only for commands
    /// that write nothing to the disks [default: time limit of the kernel and the disk]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    read_timeout: Option<u64>,
}

impl ReadingOptions {
    /// Passes the name and value of each option to `option`, for another command line.
    pub(crate) fn each(&self, mut option: impl FnMut(&str, OsString)) {
        self.unreadable.iter().for_each(|text| option("--unreadable", text.clone()));
        self.read_timeout.iter().for_each(|it| option("--read-timeout", it.to_string().into()));
    }

    /// Refuses the time limit if the command writes to the disks (`is_written`).
    ///
    /// # Errors
    /// There is a limit, and `is_written` is true.
    pub(crate) fn refuse_writes(&self, is_written: bool) -> Result<(), Failure> {
        match self.read_timeout {
            Some(seconds) if is_written => Err(Failure::usage(format!(
                "--read-timeout: found {seconds} s for disks that are written, expected \
                 --read-only, or --overlay DIR that takes the writes"
            ))),
            _ => Ok(()),
        }
    }

    /// How to read the disks of `members`: the maps of ddrescue in the values of `--unreadable`,
    /// each for a disk that is one of `members` or holds some of them, and the time limit.
    ///
    /// # Errors
    /// An argument names no disk of a member, or a disk has two maps.
    pub(crate) fn of(&self, members: &[PathBuf]) -> Result<Reading, Failure> {
        let mut maps: Vec<Named> = Vec::new();
        for text in &self.unreadable {
            let named = named(text, members)?;
            if let Some(other) = maps.iter().find(|other| is_same(&other.disk, &named.disk)) {
                return Err(Failure::usage(format!(
                    "--unreadable: {}: found two maps of it, {} and {}, expected one",
                    terminal::label(&named.disk),
                    terminal::label(&other.map),
                    terminal::label(&named.map)
                )));
            }
            maps.push(named);
        }
        let limit = self.read_timeout.map(Duration::from_secs);
        let timeout = limit.map(|limit| Arc::new(ReadTimeout::new(limit, complain)));
        Ok(Reading { maps, timeout })
    }
}

/// How disks are read: with maps of ddrescue by disk, and with a time limit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reading {
    maps: Vec<Named>,
    timeout: Option<Arc<ReadTimeout>>,
}

#[derive(Clone, Debug)]
struct Named {
    disk: PathBuf,
    map: PathBuf,
}

impl Reading {
    /// The member with the map of the disk that it is on, if the command line names one, and with
    /// the time limit.
    pub(crate) fn apply(&self, spec: MemberSpec) -> MemberSpec {
        let spec = match self.map_of(&spec) {
            Some(named) => spec.with_map(&named.map),
            None => spec,
        };
        match &self.timeout {
            Some(timeout) => spec.with_read_timeout(Arc::clone(timeout)),
            None => spec,
        }
    }

    /// Refuses the time limit for a running volume: its server reads the members, not this command.
    ///
    /// # Errors
    /// There is a limit.
    pub(crate) fn refuse_running(&self, volume: &Path) -> Result<(), Failure> {
        match self.timeout {
            Some(_) => Err(Failure::usage(format!(
                "--read-timeout: found {}, which is not a disk but the name of a running volume, \
                 expected disks; weft serve --read-only takes the option for its members",
                terminal::label(volume)
            ))),
            None => Ok(()),
        }
    }

    /// JSON list of the disks with reads that took longer than the limit.
    pub(crate) fn timed_out(&self) -> Value {
        let disks = self.timeout.iter().flat_map(|timeout| timeout.timed_out());
        let range = |it: &Range<u64>| json!({"start": it.start, "length": it.end - it.start});
        let disk = |it: TimedOut| {
            json!({
                "disk": it.disk, "reads": it.reads, "given_up": it.is_given_up(),
                "ranges": it.ranges.iter().map(range).collect::<Vec<_>>(),
            })
        };
        disks.map(disk).collect()
    }

    /// Options that name the maps of these members' disks and the time limit again, for a suggested
    /// command. Each option is followed by a space.
    pub(crate) fn options<'a>(&self, members: impl Iterator<Item = &'a Path>) -> String {
        let specs: Vec<MemberSpec> = members.map(MemberSpec::path).collect();
        let is_of = |named: &Named, spec: &MemberSpec| {
            spec.file().is_some_and(|file| is_same(file, &named.disk))
        };
        let used = self.maps.iter().filter(|named| specs.iter().any(|spec| is_of(named, spec)));
        let option = |named: &Named| {
            let mut text = named.disk.clone().into_os_string();
            text.push("=");
            text.push(&named.map);
            format!("--unreadable {} ", quoted(&text))
        };
        let timeout = self.timeout.iter();
        let timeout = timeout.map(|it| format!("--read-timeout {} ", it.limit().as_secs()));
        used.map(option).chain(timeout).collect()
    }

    fn map_of(&self, spec: &MemberSpec) -> Option<&Named> {
        let file = spec.file()?;
        self.maps.iter().find(|named| is_same(file, &named.disk))
    }
}

/// Splits an argument of `--unreadable` into disk and map. Both may contain equals signs. The
/// argument is split at the first equals sign with the name of a member's disk before it.
fn named(text: &OsStr, members: &[PathBuf]) -> Result<Named, Failure> {
    let bytes = text.as_bytes();
    let disks: Vec<PathBuf> = members
        .iter()
        .filter_map(|member| MemberSpec::path(member).file().map(Path::to_owned))
        .collect();
    let split = |at: usize| {
        let part = |bytes| PathBuf::from(OsStr::from_bytes(bytes));
        Named { disk: part(&bytes[..at]), map: part(&bytes[at + 1..]) }
    };
    let mut splits = (0..bytes.len()).filter(|at| bytes[*at] == b'=').map(split).peekable();
    let label = terminal::label(Path::new(text));
    let Some(first) = splits.peek().cloned() else {
        return Err(Failure::usage(format!("--unreadable: found {label}, expected DISK=MAP")));
    };
    let found = splits.find(|named| disks.iter().any(|disk| is_same(disk, &named.disk)));
    match found {
        Some(named) if named.map.as_os_str().is_empty() => Err(Failure::usage(format!(
            "--unreadable: found {label} without a map, expected DISK=MAP"
        ))),
        Some(named) => Ok(named),
        None => {
            let mut expected: Vec<String> =
                disks.iter().map(|disk| terminal::label(disk)).collect();
            expected.dedup();
            Err(Failure::usage(format!(
                "--unreadable: found the disk {}, expected one that a member is or is part of: {}",
                terminal::label(&first.disk),
                expected.join(", ")
            )))
        }
    }
}

/// Whether two paths lead to the same file or device.
fn is_same(a: &Path, b: &Path) -> bool {
    let absolute = |path: &Path| std::path::absolute(path).ok();
    let identity = |path: &Path| Identity::at(path).ok();
    a == b
        || absolute(a).is_some_and(|a| Some(a) == absolute(b))
        || identity(a).is_some_and(|a| Some(a) == identity(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_one_of_the_members() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["a", "b=c"] {
            std::fs::write(path(name), "").unwrap();
        }
        std::os::unix::fs::symlink(path("a"), path("link")).unwrap();
        let members = [path("a#1"), path("a@1M+2M"), path("b=c")];
        let maps = |texts: &[String]| {
            let unreadable = texts.iter().map(OsString::from).collect();
            ReadingOptions { unreadable, read_timeout: None }.of(&members)
        };
        let at = |text: &str| format!("{}/{text}", dir.path().display());
        for (text, disk, map) in
            [("a=x=y", "a", "x=y"), ("b=c=x", "b=c", "x"), ("link=x", "link", "x")]
        {
            let found = maps(&[at(text)]).unwrap();
            assert_eq!(
                (&found.maps[0].disk, &found.maps[0].map),
                (&path(disk), &map.into()),
                "{text}"
            );
        }
        let found = maps(&[at("link=x"), at("b=c=y z")]).unwrap();
        let options = |name: &str| found.options([path(name).as_path()].into_iter());
        assert_eq!(options("a#1"), format!("--unreadable {} ", at("link=x")));
        assert_eq!(options("b=c"), format!("--unreadable '{}' ", at("b=c=y z")));
        assert_eq!(options("d"), "");
        for (texts, says) in [
            (vec![at("a")], "expected DISK=MAP"),
            (vec![at("a=")], "without a map, expected DISK=MAP"),
            (vec![at("d=x")], "expected one that a member is or is part of"),
            (vec![at("a#1=x")], "expected one that a member is or is part of"),
            (vec![at("a=x"), at("link=y")], "found two maps of it, x and y, expected one"),
        ] {
            let Err(Failure::Usage(text)) = maps(&texts) else { panic!("{texts:?}") };
            assert!(text.contains(says), "{text}");
        }
    }
}
