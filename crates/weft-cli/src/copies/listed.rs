//! `--list` and `--to` of `weft rescue` and `build`: lists the content of arrays, and copies files
//! out.

use std::path::Path;

use serde_json::{Value, json};
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::{complain, print_json};

use super::table;
use super::{All, Job, Part, Restored, copy_all};
use crate::contents::{Array, Contents, FileSystem, has_files};
use crate::reading::Reading;

/// Arguments of `--list` and `--to`.
pub(crate) struct ListArguments<'a> {
    /// Folder for the files; `None` to list only.
    pub(crate) to: Option<&'a Path>,
    /// Names of the places with the files to copy; empty for all places.
    pub(crate) only: &'a [String],
    /// Whether the arrays with the system of a NAS are listed and copied too.
    pub(crate) all: bool,
    pub(crate) json: bool,
    /// Command line without `--list` and `--to`, for the advice that is printed.
    pub(crate) command: String,
    /// Maps of ddrescue and time limit with which the disks are read.
    pub(crate) reading: &'a Reading,
}

/// Lists the contents of the arrays. If `asked` names a folder, the files are copied there first.
pub(crate) fn run(contents: Contents, arrays: &[Array], asked: &ListArguments<'_>) -> Outcome {
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
        print_json(&to_json(arrays, &contents, &restored, asked))?;
    } else {
        table::print(&contents, &restored, asked)?;
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

/// Copies the files of every file system that is asked for. Returns the results of all copies.
fn restore_all(contents: &Contents, asked: &ListArguments<'_>, to: &Path) -> Result<All, Failure> {
    let all = contents.file_systems();
    // Snapshots are left out: they mostly repeat the files of their origin.
    let is_asked = |files: &&FileSystem<'_>| match asked.only {
        [] => !files.is_snapshot() && (asked.all || !contents.is_system(files.place)),
        only => only.contains(&files.place.name),
    };
    let jobs = all.iter().filter(is_asked).map(|files| Job { files, part: Part::Everything });
    copy_all(to, &jobs.collect::<Vec<Job<'_>>>())
}

fn to_json(
    arrays: &[Array],
    contents: &Contents,
    restored: &All,
    asked: &ListArguments<'_>,
) -> Value {
    let found = &contents.found;
    let places: Vec<Value> = found
        .places
        .iter()
        .map(|place| {
            let mut object = json!({
                "name": place.name, "size_bytes": place.size, "notes": place.notes,
                "is_system": contents.is_system(place),
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
    let refused: Vec<Value> = arrays.iter().filter_map(Array::refused_to_json).collect();
    let mut object = json!({
        "schema": "weft.rescue.files/1", "places": places, "groups": groups, "refused": refused,
        "timed_out": asked.reading.timed_out(),
    });
    if asked.to.is_some() {
        restored.add_to(&mut object);
    }
    object
}
