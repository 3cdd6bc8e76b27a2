//! `weft rescue --list` and `--to`: what is inside of the arrays, and files out of it.
//!
//! Each array that can be read is served within this process, read-only, and read through that
//! server: what is missing is reconstructed, and no image lies in between.

use std::cell::Cell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use weft_engine::assemble::Options;
use weft_files::copy::{Event, Folder, PART, Stopped, copy};
use weft_files::inside::{Inside as Contents, Place, look};
use weft_files::open::{Opened, open as open_files};
use weft_files::probe::Kind;
use weft_files::source::Shared;
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::{self, complain, is_printable, print_json, progress};
use weft_units::Bytes;

use super::contents::{self, All, Restored};
use super::record::Record;
use super::{Array, FORCE_DIRTY, WITHOUT_JOURNAL, array_source};
use crate::inside::Inside;
use crate::size;
use crate::volume::Opening;

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
pub(super) fn run(arrays: &[Array<'_>], asked: &Asked<'_>) -> Outcome {
    let directory = terminal::scratch()?;
    terminal::remove_when_interrupted(&[directory.path().to_owned()])?;
    let mut servers = Vec::new();
    let mut sources: Vec<(String, Shared)> = Vec::new();
    let mut is_whole = true;
    for array in arrays {
        let Ok(assembly) = &array.decision else {
            is_whole = false;
            continue;
        };
        let name = free_name(&name_of(&assembly.name, &array.uuid.to_string()), &sources);
        match open(array, &format!("rescue{}", servers.len()), directory.path()) {
            Ok((server, source)) => {
                servers.push(server);
                sources.push((name, source));
            }
            Err(failure) => {
                is_whole = false;
                complain(&format!("array {name}: {}", text(&failure)));
            }
        }
    }
    if sources.is_empty() {
        return Err(Failure::failed("found no array that can be read, expected one or more"));
    }
    let found = look(sources);
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
        Some(to) => restore_all(&found, asked, to)?,
        None => All::default(),
    };
    restored.is_whole &= is_whole;
    if asked.json {
        print_json(&to_json(&found, &restored, asked))?;
    } else {
        contents::print(&found, &restored, asked)?;
    }
    drop(found);
    for mut server in servers {
        server.stop()?;
    }
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

fn text(failure: &Failure) -> &str {
    match failure {
        Failure::Failed(text) | Failure::Usage(text) | Failure::Refused(text) => text,
        Failure::BrokenPipe => "a closed pipe",
    }
}

/// Name of an array without that of the machine; its UUID if it has none.
fn name_of(name: &str, uuid: &str) -> String {
    let own = name.rsplit(':').next().unwrap_or_default();
    match own {
        "" => format!("array-{}", uuid.split(':').next().unwrap_or(uuid)),
        own => own.to_owned(),
    }
}

/// The name, with a number if another array has it.
fn free_name(name: &str, taken: &[(String, Shared)]) -> String {
    let is_free = |name: &str| !taken.iter().any(|(its, _)| its == name);
    let mut free = name.to_owned();
    let mut number = 2;
    while !is_free(&free) {
        free = format!("{name}-{number}");
        number += 1;
    }
    free
}

/// Opens and serves an array, with the options that its assembly needs.
fn open(array: &Array<'_>, name: &str, directory: &Path) -> Result<(Inside, Shared), Failure> {
    let mut opening = Opening::read_only();
    opening.options = Options {
        read_only: true,
        force_dirty: array.consent.contains(&FORCE_DIRTY),
        without_journal: array.consent.contains(&WITHOUT_JOURNAL),
        ..Options::default()
    };
    opening.maps.clone_from(array.maps);
    let names: Vec<PathBuf> = array.names().into_iter().map(Path::to_owned).collect();
    array_source::serve(opening.open(&names)?, name, directory)
}

/// Copies the files of every file system that is read. After an error of the folder itself, the
/// others are not begun.
fn restore_all(found: &Contents, asked: &Asked<'_>, to: &Path) -> Result<All, Failure> {
    let base = Folder::open(to)
        .map_err(|error| Failure::failed(format!("{}: {error}", terminal::label(to))))?;
    terminal::remove_when_interrupted(&[to.join(OsStr::from_bytes(PART))])?;
    let mut record = Record::new(&base, to);
    let mut all: Vec<Restored> = Vec::new();
    for place in &found.places {
        if !asked.only.is_empty() && !asked.only.contains(&place.name) {
            continue;
        }
        let Some(has_files) = contents::has_files(place) else { continue };
        // A snapshot is most of its origin once more.
        if asked.only.is_empty() && is_snapshot(place) {
            continue;
        }
        let mut folder = folder_name(&place.name);
        while all.iter().any(|other| other.folder == folder) {
            folder.push('_');
        }
        let place_name = place.name.clone();
        let mut restored = Restored { place: place_name, folder, ..Restored::default() };
        let is_stopped = all.iter().any(|copied| copied.stopped.is_some());
        match has_files {
            Ok(_) if is_stopped => restored.refused = Some("the copy ended before it".to_owned()),
            Ok(_) => restore(place, (&base, to), &mut restored, &mut record),
            Err(why) => restored.refused = Some(why),
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
    place: &Place,
    (base, to): (&Folder, &Path),
    restored: &mut Restored,
    record: &mut Record<'_>,
) {
    let opened = match &place.content {
        Ok((content, _)) => open_files(&content.kind, &place.devices()),
        Err(why) => {
            restored.refused = Some(why.clone());
            return;
        }
    };
    let tree = match opened {
        Ok(Opened { tree, notes }) => {
            restored.notes = notes;
            tree
        }
        Err(error) => {
            restored.refused = Some(error.to_string());
            return;
        }
    };
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
    let copied = copy(&*tree, base, restored.folder.as_bytes(), is_root, &mut tell);
    bar.finish_and_clear();
    restored.report = Some(match copied {
        Ok(report) => report,
        Err(Stopped { report, error }) => {
            restored.stopped = Some(format!("{}: {error}", terminal::label(to)));
            *report
        }
    });
}

fn is_snapshot(place: &Place) -> bool {
    matches!(&place.content, Ok((content, _)) if matches!(content.kind, Kind::Snapshot(_)))
}

/// Name of the folder for a place: without separators, and no hidden one.
fn folder_name(place: &str) -> String {
    let plain = |c: char| if matches!(c, '/' | '#') || !is_printable(c) { '-' } else { c };
    let name: String = place.chars().map(plain).collect();
    match name.starts_with('.') {
        true => name.replacen('.', "_", 1),
        false => name,
    }
}

fn to_json(found: &Contents, restored: &All, asked: &Asked<'_>) -> Value {
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
                    object["last_use"] = json!(contents::last_use(content));
                    object["content_notes"] = json!(content.notes);
                    object["has_files"] = json!(matches!(contents::has_files(place), Some(Ok(_))));
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
