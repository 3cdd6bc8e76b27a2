//! `weft rescue --list` and `--to`: what is inside of the arrays, and files out of it.

use std::cell::Cell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use weft_files::copy::{Event, Folder, PART, Start, Stopped, copy};
use weft_files::inside::Inside as Found;
use weft_files::open::Opened;
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::{self, complain, print_json, progress};
use weft_units::Bytes;

use super::record::Record;
use super::table::{self, All, Restored};
use crate::contents::{Array, Contents, FileSystem, has_files};
use crate::size;

/// Request for what is inside.
pub(super) struct Asked<'a> {
    /// Folder for the files; `None` to list only.
    pub(super) to: Option<&'a Path>,
    /// Names of the places to copy; all if there are none.
    pub(super) only: &'a [String],
    pub(super) json: bool,
    /// Arguments of the command line that name the disks, for the line that is printed.
    pub(super) disks: String,
}

/// Lists what is inside of the arrays, and copies the files out.
pub(super) fn run(arrays: &[Array], asked: &Asked<'_>) -> Outcome {
    let contents = Contents::of_arrays(arrays)?;
    let found = &contents.found;
    if let Some(missing) =
        asked.only.iter().find(|name| !found.places.iter().any(|p| p.name == **name))
    {
        let names: Vec<&str> = found.places.iter().map(|place| place.name.as_str()).collect();
        return Err(Failure::usage(format!(
            "--only: found {missing:?}, expected one of {}",
            names.join(", ")
        )));
    }
    let mut restored = match asked.to {
        Some(to) => restore_all(&contents, asked, to)?,
        None => All::default(),
    };
    restored.is_whole &= contents.is_whole;
    if asked.json {
        print_json(&to_json(found, &restored, asked))?;
    } else {
        table::print(found, &restored, asked)?;
    }
    contents.stop()?;
    if asked.to.is_none() {
        return Ok(Exit::Done);
    }
    if restored.list.is_empty() {
        complain("found no file system in the arrays; --list says what is inside");
    }
    if restored.is_complete() {
        return Ok(Exit::Done);
    }
    if let Some(says) = restored.verdict() {
        complain(&says);
    }
    Ok(Exit::Of(1))
}

/// Copies the files of every file system that is read. After an error of the folder itself, the
/// others are not begun.
fn restore_all(contents: &Contents, asked: &Asked<'_>, to: &Path) -> Result<All, Failure> {
    let base = Folder::open(to)
        .map_err(|error| Failure::failed(format!("{}: {error}", terminal::label(to))))?;
    terminal::remove_when_interrupted(&[to.join(OsStr::from_bytes(PART))])?;
    let mut record = Record::new(&base, to);
    let mut all: Vec<Restored> = Vec::new();
    for files in contents.file_systems() {
        let place = &files.place.name;
        // A snapshot is most of its origin once more.
        let is_asked = match asked.only {
            [] => !files.is_snapshot(),
            only => only.contains(place),
        };
        if !is_asked {
            continue;
        }
        let (place, folder) = (place.clone(), files.folder.clone());
        let mut restored = Restored { place, folder, ..Restored::default() };
        let is_stopped = all.iter().any(|copied| copied.stopped.is_some());
        match &files.refused {
            None if is_stopped => restored.refused = Some("the copy ended before it".to_owned()),
            None => restore(&files, (&base, to), &mut restored, &mut record),
            Some(why) => restored.refused = Some(why.clone()),
        }
        restored.finish(&mut record);
        all.push(restored);
    }
    let owned = |state: Option<Result<PathBuf, &str>>| state.map(|it| it.map_err(str::to_owned));
    let (findings, owners) = (owned(record.findings()), owned(record.owners()));
    Ok(All { list: all, is_whole: true, findings, owners })
}

/// Copies the files of one file system.
fn restore(
    files: &FileSystem<'_>,
    (base, to): (&Folder, &Path),
    restored: &mut Restored,
    record: &mut Record<'_>,
) {
    let tree = match files.open() {
        Ok(Opened { tree, notes }) => {
            restored.notes = notes;
            tree
        }
        Err(why) => {
            restored.refused = Some(why);
            return;
        }
    };
    let place = files.place;
    let used = tree.used_bytes().min(place.size);
    // A file system that does not say how much is free ends the copy when nothing is.
    let free = base.free_bytes().unwrap_or(u64::MAX);
    if used > free {
        let (used, free) = (size::human(Bytes(used)), size::human(Bytes(free)));
        complain(&format!(
            "note: {}: found {free} free in {}, expected {used} for {}",
            place.name,
            terminal::label(to),
            "all of its files; what fits is copied, and the same command goes on there"
        ));
    }
    let bar = progress("files", used);
    let done = Cell::new(0);
    let mut tell = |event: Event<'_>| {
        if let Event::Bytes(bytes) = event {
            done.set(done.get() + bytes);
            bar.set_position(done.get().min(used));
        }
        record.event(&restored.place, &restored.folder, &event);
    };
    let is_root = rustix::process::geteuid().is_root();
    let copied = copy(&*tree, base, Start::Root(restored.folder.as_bytes()), is_root, &mut tell);
    bar.finish_and_clear();
    restored.report = Some(match copied {
        Ok(report) => report,
        Err(Stopped { report, error }) => {
            restored.stopped = Some(format!("{}: {error}", terminal::label(to)));
            *report
        }
    });
}

fn to_json(found: &Found, restored: &All, asked: &Asked<'_>) -> Value {
    let places: Vec<Value> = found
        .places
        .iter()
        .map(|place| {
            let mut object = json!({
                "name": place.name, "size_bytes": place.size, "notes": place.notes,
            });
            match &place.content {
                Ok((content, _)) => {
                    object["holds"] = json!(content.kind.to_string());
                    object["label"] = json!(content.label);
                    object["uuid"] = json!(content.uuid);
                    object["content_bytes"] = json!(content.size);
                    object["last_use"] = json!(table::last_use(content));
                    object["content_notes"] = json!(content.notes);
                    object["has_files"] = json!(matches!(has_files(place), Some(Ok(_))));
                }
                Err(why) => object["refused"] = json!(why),
            }
            let mine = restored.list.iter().find(|restored| restored.place == place.name);
            object["copied"] = mine.map_or(Value::Null, Restored::to_json);
            object
        })
        .collect();
    let groups: Vec<Value> = found
        .groups
        .iter()
        .map(|group| {
            let fault = group.volumes.as_ref().err().map(ToString::to_string);
            json!({
                "name": group.name, "on": group.on, "missing": group.missing, "fault": fault,
            })
        })
        .collect();
    let mut object = json!({"schema": "weft.rescue.files/1", "places": places, "groups": groups});
    if asked.to.is_some() {
        object["complete"] = json!(restored.is_complete());
        object["verdict"] = json!(restored.verdict());
        let path = |state: &Option<Result<PathBuf, String>>| match state {
            Some(Ok(path)) => json!(terminal::label(path)),
            Some(Err(_)) | None => Value::Null,
        };
        object["findings_file"] = path(&restored.findings);
        object["owners_file"] = path(&restored.owners);
    }
    object
}
