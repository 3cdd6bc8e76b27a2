//! Copies of files from file systems into a folder, with a report: the common part of `weft rescue
//! --to`, `build --to` and `cp`.

pub(crate) mod listed;
mod record;
mod report;
mod table;

use std::cell::Cell;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use weft_files::copy::{Event, Folder, PART, Start, Stopped, copy};
use weft_files::inside::ContentLocation;
use weft_files::open::Opened;
use weft_files::tree::{Entry, Node, NodeKind, Tree};
use weft_terminal::outcome::Failure;
use weft_terminal::terminal::{self, complain, label, progress};
use weft_units::Bytes;

use crate::contents::FileSystem;
use crate::size;
use record::Record;
pub(crate) use report::{All, Restored};

/// Copy that is to be made from one file system.
pub(crate) struct Job<'j> {
    pub(crate) files: &'j FileSystem<'j>,
    pub(crate) part: Part<'j>,
}

/// The part of a file system that is copied.
pub(crate) enum Part<'j> {
    /// All of the file system, into the folder that has its name.
    Everything,
    /// Single entries of the open file system, side by side in the folder of the copy.
    Picked(&'j dyn Tree, Vec<Entry>),
}

/// Copies into the folder `to`, which is made if it is missing. After an error of that folder, such
/// as no space, the remaining copies are not begun.
///
/// # Errors
/// The folder cannot be made or opened. Everything else is in the result.
pub(crate) fn copy_all(to: &Path, jobs: &[Job<'_>]) -> Result<All, Failure> {
    let base =
        Folder::open(to).map_err(|error| Failure::failed(format!("{}: {error}", label(to))))?;
    terminal::remove_when_interrupted(&[to.join(OsStr::from_bytes(PART))])?;
    let mut record = Record::new(&base, to);
    let mut list: Vec<Restored> = Vec::new();
    for job in jobs {
        let place = job.files.place.name.clone();
        let folder = match &job.part {
            Part::Everything => Some(job.files.folder.clone()),
            Part::Picked(..) => None,
        };
        let mut restored = Restored { place, folder, ..Restored::default() };
        let is_stopped = list.iter().any(|copied| copied.stopped.is_some());
        match &job.files.refused {
            None if is_stopped => restored.refused = Some("the copy ended before it".to_owned()),
            None => restore(job, (&base, to), &mut restored, &mut record),
            Some(why) => restored.refused = Some(why.clone()),
        }
        restored.finish(&mut record);
        list.push(restored);
    }
    let owned = |state: Option<Result<PathBuf, &str>>| state.map(|it| it.map_err(str::to_owned));
    let (findings, owners) = (owned(record.findings()), owned(record.owners()));
    Ok(All { list, is_whole: true, findings, owners })
}

/// Copies from one file system. The outcome is stored in `restored`, findings and owners in
/// `record`.
fn restore(
    job: &Job<'_>,
    (base, to): (&Folder, &Path),
    restored: &mut Restored,
    record: &mut Record<'_>,
) {
    let place = job.files.place;
    let opened;
    let (tree, start, work) = match &job.part {
        Part::Everything => {
            opened = match job.files.open() {
                Ok(Opened { tree, notes }) => {
                    restored.notes = notes;
                    tree
                }
                Err(why) => {
                    restored.refused = Some(why);
                    return;
                }
            };
            let used = opened.used_bytes().min(place.size);
            (&*opened, Start::Root(job.files.folder.as_bytes()), Work { least: used, most: used })
        }
        Part::Picked(tree, entries) => (*tree, Start::Entries(entries), weigh(*tree, entries)),
    };
    ask_for_room(place, (base, to), &work, matches!(job.part, Part::Everything));
    let total = work.most.min(place.size);
    let bar = progress("files", total);
    let done = Cell::new(0);
    let below = restored.folder.clone().unwrap_or_default();
    let mut tell = |event: Event<'_>| {
        if let Event::Bytes(bytes) = event {
            done.set(done.get() + bytes);
            bar.set_position(done.get().min(total));
        }
        record.event(&restored.place, &below, &event);
    };
    let is_root = rustix::process::geteuid().is_root();
    let copied = copy(tree, base, start, is_root, &mut tell);
    bar.finish_and_clear();
    restored.report = Some(match copied {
        Ok(report) => report,
        Err(Stopped { report, error }) => {
            restored.stopped = Some(format!("{}: {error}", label(to)));
            *report
        }
    });
}

/// Reports on standard error if the folder has no room for the files that are to be copied.
fn ask_for_room(
    place: &ContentLocation,
    (base, to): (&Folder, &Path),
    work: &Work,
    is_everything: bool,
) {
    // If the free space is unknown, the copy begins, and ends when there is no space left.
    let free = base.free_bytes().unwrap_or(u64::MAX);
    if work.least > free {
        let (used, free) = (size::human(Bytes(work.least)), size::human(Bytes(free)));
        let which = if is_everything { "all of its files" } else { "what is copied of it" };
        complain(&format!(
            "note: {}: found {free} free in {}, expected {used} for {which}; what fits is copied, \
             and the same command goes on there",
            place.name,
            label(to),
        ));
    }
}

/// Lower and upper bound of the bytes of the files that are to be copied.
struct Work {
    least: u64,
    most: u64,
}

/// Bounds of the bytes of entries with everything below them. Beyond [`WEIGHED_MAX`] files and
/// folders, the bounds are the bytes counted so far and all that the file system holds.
fn weigh(tree: &dyn Tree, entries: &[Entry]) -> Work {
    let mut known = HashSet::new();
    let mut waiting: Vec<u64> = entries.iter().map(|entry| entry.id).collect();
    let mut bytes = 0_u64;
    while let Some(id) = waiting.pop() {
        if !known.insert(id) {
            continue;
        }
        if known.len() > WEIGHED_MAX {
            return Work { least: bytes, most: bytes.max(tree.used_bytes()) };
        }
        // Nodes that cannot be read are reported by the copy itself.
        match tree.node(id) {
            Ok(Node { kind: NodeKind::File, size, stored, .. }) => {
                bytes = bytes.saturating_add(size.min(stored));
            }
            Ok(node) if node.kind == NodeKind::Directory => {
                if let Ok(below) = tree.entries(&node) {
                    waiting.extend(below.list.iter().map(|entry| entry.id));
                }
            }
            Ok(_) | Err(_) => {}
        }
    }
    Work { least: bytes, most: bytes }
}

/// Largest number of files and folders of which the sizes are added up before a copy begins.
const WEIGHED_MAX: usize = 50_000;
