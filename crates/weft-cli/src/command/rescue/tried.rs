//! `weft rescue --try`: prints the geometries under which a file system makes sense, best first.

use std::io::Write;
use std::path::PathBuf;

use serde_json::{Value, json};
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::{complain, print_json, printable_stdout, quoted};
use weft_units::Bytes;

use super::Rescue;
use crate::look;
use crate::member::{self, MemberArg};
use crate::size;
use crate::trial::{Guess, SEARCH, STARTS_TEXT, try_all};

pub(super) fn run(arguments: &Rescue) -> Outcome {
    let is_missing = |it: &&MemberArg| **it == MemberArg::Missing;
    let missing = arguments.disks.iter().filter(is_missing).count();
    let disks: Vec<MemberArg> =
        arguments.disks.iter().filter(|it| !is_missing(it)).cloned().collect();
    let names = member::paths(&disks).map_err(Failure::Usage)?;
    let slots = names.len() + missing;
    if !(2..=16).contains(&slots) {
        return Err(Failure::usage(format!("--try: found {slots} disks, expected 2 to 16")));
    }
    let reading = arguments.reading.of(&names)?;
    let opened = look::open_all_with(&names, &reading)?;
    let tried = try_all(&opened, missing);
    let given = reading.options(names.iter().map(PathBuf::as_path));
    let alike = tried.best_count();
    let shown: Vec<&Guess> = tried.guesses.iter().take(SHOWN).collect();
    if arguments.json {
        let all: Vec<Value> = shown.iter().map(|it| to_json(it, &names, &given)).collect();
        print_json(&json!({
            "schema": "weft.rescue.try/1", "read_bytes": tried.read, "geometries": all,
            "best_alike": alike, "reached_read_limit": tried.is_limited,
        }))?;
    } else {
        print(&shown, alike, |guess| command(guess, &names, &given))?;
    }
    if tried.is_limited {
        complain("--try: 1 GiB was read of a disk, and no more of it; scores may be too low");
    }
    if shown.is_empty() {
        return Err(Failure::failed(format!(
            "--try: read {}, found no geometry under which an ext2, ext3, ext4, btrfs or XFS makes \
             sense, expected one: at the start of the array, {STARTS_TEXT} into it, or in a volume \
             of LVM there, with its first superblock or LVM's label in the first {} of a disk. Name \
             all disks of the array, or its partitions, and 'missing' for each that is gone",
            size::human(Bytes(tried.read)),
            size::human(Bytes(SEARCH)),
        )));
    }
    Ok(Exit::Done)
}

/// Prints the geometries and the next command. `alike` is the number of geometries with the best
/// score, `command` returns the command that reads an array with a geometry.
fn print(
    shown: &[&Guess],
    alike: usize,
    command: impl Fn(&Guess) -> String,
) -> Result<(), Failure> {
    let mut out = printable_stdout();
    for guess in shown {
        let (found, all) = guess.hits;
        write!(
            out,
            "score {}: {}: {} at byte {} of the array: {found} of {all} points of its structures \
             are where they should be",
            guess.score,
            command(guess),
            guess.inside,
            guess.start
        )?;
        match guess.parity {
            (_, 0) => writeln!(out)?,
            (right, places) => writeln!(out, ", parity is right at {right} of {places} places")?,
        }
    }
    if alike > 1 {
        writeln!(out, "{alike} geometries score alike; look at some files of each")?;
    }
    if let Some(best) = shown.first() {
        writeln!(out, "next: {} --list", command(best))?;
    }
    out.flush()?;
    Ok(())
}

/// Command that reads the array with this geometry; `given` are the options that say how the disks
/// are read.
fn command(guess: &Guess, names: &[PathBuf], given: &str) -> String {
    let mut words = vec![format!("weft build {given}--level {}", guess.level)];
    if guess.chunk.0 > 0 {
        words.push(format!("--chunk {}K", guess.chunk.0 / 2));
    }
    if let Some(layout) = layout(guess) {
        words.push(format!("--layout {layout}"));
    }
    words.push(format!("--data-offset {}K", guess.data_offset / 1024));
    words.extend(guess.order.iter().map(|disk| match disk.and_then(|disk| names.get(disk)) {
        Some(name) => quoted(name.as_os_str()),
        None => "missing".to_owned(),
    }));
    words.join(" ")
}

fn layout(guess: &Guess) -> Option<String> {
    let name = guess.level.row().layouts.name(guess.layout);
    name.filter(|_| guess.level.is_striped())
}

fn to_json(guess: &Guess, names: &[PathBuf], given: &str) -> Value {
    let order = guess.order.iter().map(|disk| disk.map(|disk| names[disk].to_string_lossy()));
    json!({
        "score": guess.score, "level": guess.level.name(), "layout": layout(guess),
        "chunk_bytes": guess.chunk.bytes().0, "data_offset_bytes": guess.data_offset,
        "start_bytes": guess.start, "members": order.collect::<Vec<_>>(),
        "points": guess.hits.0, "points_possible": guess.hits.1, "inside": guess.inside,
        "parity_right": guess.parity.0, "parity_places": guess.parity.1,
        "command": command(guess, names, given),
    })
}

/// Largest number of geometries that are shown.
const SHOWN: usize = 5;
