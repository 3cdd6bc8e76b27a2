//! `weft cp`: copies selected files and folders from disks or a running volume.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::Args;
use serde_json::{Value, json};
use weft_files::tree::Entry;
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::{complain, label, print_json, printable_stdout};

use crate::contents::{Contents, NamedPaths, Spot, Walk, shown, with_path};
use crate::copies::{All, Job, Part, copy_all};
use crate::reading::ReadingOptions;

/// Copies files and folders from disks, or from a running volume
///
/// Paths are those of weft ls; one with *, ? or [ ] in quotes means everything that it matches, and
/// the root every file system. Each becomes DIR/NAME, folders with everything below: with modes,
/// times, extended attributes, holes and links, owners as root only. Existing files are not
/// overwritten; the same command goes on after an interruption. Disks are only read, and what is
/// missing is computed from the others. Exit status: 0 when everything was copied as it was, 1
/// otherwise.
#[derive(Debug, Args)]
#[command(override_usage = "weft cp [OPTIONS] <DISK>... <:PATH>... <DIR>\n       \
                            weft cp [OPTIONS] <TARGET:PATH>... <DIR>")]
pub(crate) struct Cp {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reading: ReadingOptions,
    /// Name or control socket of a running volume; or the disks, images of disks, or members that
    /// still exist. A path begins with a colon. The last argument is DIR, which is made if it is
    /// missing
    #[arg(value_name = "TARGET|DISK|:PATH", required = true)]
    names: Vec<OsString>,
}

pub(crate) fn run(arguments: &Cp) -> Outcome {
    let (NamedPaths { names, paths }, to) = asked(&arguments.names)?;
    let reading = arguments.reading.of(&names)?;
    let contents = Contents::named(&names, &reading)?;
    let walk = Walk::new(&contents);
    let (mut picks, mut faults) = (Picks::default(), Vec::new());
    for path in &paths {
        match walk.find(path) {
            Ok(found) => {
                faults.extend(found.faults);
                found.reached.into_iter().for_each(|(path, spot)| picks.add(&walk, path, spot));
            }
            Err(why) => faults.push(why),
        }
    }
    picks.refuse_same_names(to)?;
    faults.iter().for_each(|why| complain(why));
    let jobs = picks.jobs(&walk, &mut faults);
    // A pattern may also match file systems in an array that cannot be read.
    let is_open = |path: &Vec<Vec<u8>>| {
        path.first().is_none_or(|name| name.iter().any(|byte| b"*?[".contains(byte)))
    };
    let is_whole = contents.is_whole || !paths.iter().any(is_open);
    let all = match jobs.as_slice() {
        [] => All { is_whole, ..All::default() },
        jobs => All { is_whole, ..copy_all(to, jobs)? },
    };
    let is_complete = all.is_complete() && faults.is_empty();
    if arguments.json {
        let mut object = to_json(&picks, &all, &faults, is_complete);
        object["timed_out"] = reading.timed_out();
        print_json(&object)?;
    } else if !all.list.is_empty() {
        let mut out = printable_stdout();
        all.print(&mut out, to)?;
        out.flush()?;
    }
    drop(jobs);
    drop(walk);
    contents.stop()?;
    if is_complete {
        return Ok(Exit::Done);
    }
    if let Some(says) = all.verdict().filter(|_| !all.list.is_empty()) {
        complain(&says);
    }
    Ok(Exit::Of(1))
}

/// Splits the arguments into disks or a volume with paths inside, and the folder to copy to.
fn asked(arguments: &[OsString]) -> Result<(NamedPaths, &Path), Failure> {
    let Some((to, rest)) = arguments.split_last().filter(|(_, rest)| !rest.is_empty()) else {
        return Err(Failure::usage(
            "found one argument, expected disks or a running volume with a :PATH, and last DIR",
        ));
    };
    let asked = NamedPaths::of(rest).map_err(Failure::Usage)?;
    let is_path = to.as_bytes().starts_with(b":")
        || matches!(asked.names.as_slice(), [one] if !asked.paths.is_empty()
            && to.as_bytes().starts_with(&[one.as_os_str().as_bytes(), b":"].concat()));
    let to = Path::new(to);
    if is_path {
        return Err(Failure::usage(format!(
            "{}: found a path inside, expected the folder to copy to as the last argument; ./{0} is \
             a folder of that name",
            label(to)
        )));
    }
    if asked.paths.is_empty() {
        return Err(Failure::usage(format!(
            "found no path before {}, expected one or more: weft ls says which there are, and :/ is \
             everything",
            label(to)
        )));
    }
    Ok((asked, to))
}

/// Files and folders that the paths of the command line lead to, each once.
#[derive(Default)]
struct Picks {
    /// Index of the file system, and number of the node in it, by the path of the file or folder.
    all: BTreeMap<Vec<Vec<u8>>, (usize, u64)>,
    /// File systems that were to be copied as a whole and cannot be read: the reason, by path.
    closed: BTreeMap<Vec<Vec<u8>>, String>,
}

impl Picks {
    fn add(&mut self, walk: &Walk<'_>, path: Vec<Vec<u8>>, spot: Spot) {
        match spot {
            Spot::Node(at, node) => {
                self.all.insert(path, (at, node.id));
            }
            Spot::Root => {
                for (at, files) in walk.file_systems().iter().enumerate() {
                    // Snapshots are left out: they mostly repeat the files of their origin.
                    if files.is_snapshot() {
                        continue;
                    }
                    let path = vec![files.folder.as_bytes().to_vec()];
                    match walk.tree(at) {
                        Ok(tree) => drop(self.all.insert(path, (at, tree.root()))),
                        Err(why) => drop(self.closed.insert(path, why)),
                    }
                }
            }
        }
    }

    /// Refuses two files or folders that would have the same name in the folder of the copy.
    fn refuse_same_names(&self, to: &Path) -> Result<(), Failure> {
        let mut taken: BTreeMap<&[u8], &Vec<Vec<u8>>> = BTreeMap::new();
        for path in self.all.keys() {
            if let Some(first) = taken.insert(name_of(path), path) {
                return Err(Failure::usage(format!(
                    "found {} and {}, which would both be {}; copy one of them into another folder",
                    shown(first),
                    shown(path),
                    label(&to.join(OsStr::from_bytes(name_of(path))))
                )));
            }
        }
        Ok(())
    }

    /// Makes a job for each file system with something to copy. File systems that cannot be read
    /// are reported on standard error and added to `faults`.
    fn jobs<'w>(&self, walk: &'w Walk<'_>, faults: &mut Vec<String>) -> Vec<Job<'w>> {
        for why in self.closed.values() {
            complain(why);
            faults.push(why.clone());
        }
        let mut entries: BTreeMap<usize, Vec<Entry>> = BTreeMap::new();
        for (path, (at, id)) in &self.all {
            let entry = Entry { name: name_of(path).to_vec(), id: *id };
            entries.entry(*at).or_default().push(entry);
        }
        let job = |(at, entries): (usize, Vec<Entry>)| {
            // The path was found in this file system, so the file system is open.
            let tree = walk.tree(at).ok()?;
            Some(Job { files: &walk.file_systems()[at], part: Part::Picked(tree, entries) })
        };
        entries.into_iter().filter_map(job).collect()
    }
}

/// Last name of a path.
fn name_of(path: &[Vec<u8>]) -> &[u8] {
    path.last().map_or(&[], Vec::as_slice)
}

fn to_json(picks: &Picks, all: &All, faults: &[String], is_complete: bool) -> Value {
    let picked = picks.all.keys().map(|path| {
        let mut object = json!({});
        object["name"] = json!(String::from_utf8_lossy(name_of(path)));
        with_path(&[b"/", path.join(&b'/').as_slice()].concat(), object)
    });
    let copied = all.list.iter().map(|copied| {
        let mut object = copied.to_json();
        object["name"] = json!(copied.place);
        object
    });
    let (picked, copied) = (picked.collect::<Vec<_>>(), copied.collect::<Vec<_>>());
    let mut object = json!({
        "schema": "weft.cp/1", "picked": picked, "copied": copied, "faults": faults,
    });
    all.add_to(&mut object);
    object["complete"] = json!(is_complete);
    object
}
