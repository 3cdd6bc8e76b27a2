//! `weft cat`: writes the content of an array to standard output or into an image.
//!
//! Reads go through the engine, so missing members are reconstructed and stale members are not
//! used. Nothing is written to a member.

mod output;
mod reads;

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use clap::{ArgGroup, Args};
use weft_engine::assemble::Options;
use weft_export::in_process::InProcessClient;
use weft_runtime::mapfile::{Current, Mapfile, Status};
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::result_file::{Output, ResultFile};
use weft_terminal::terminal::{self, complain, progress};
use weft_units::Bytes;

use self::output::Copy;
use self::reads::{Piece, Reads};
use crate::assembly::{Consent, Selection, tell_dropped};
use crate::inside::Inside;
use crate::member::{self, MemberArg};
use crate::reading::ReadingOptions;
use crate::result_kinds::MAP;
use crate::size;
use crate::volume::{Opening, files};

/// Writes the content of an array to standard output or into an image
///
/// Never writes to a member. Members that are missing are reconstructed from the others. Sizes are
/// in bytes, or take K, M, G, T (binary) or sectors with s.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("mapped").args(["output", "skip_unreadable"]).multiple(true))]
#[command(group = ArgGroup::new("files").args(["output", "map"]).multiple(true))]
pub(crate) struct Cat {
    /// First byte
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = size::bytes)]
    offset: Bytes,
    /// Number of bytes [default: up to the end]
    #[arg(long, value_name = "SIZE", value_parser = size::bytes)]
    length: Option<Bytes>,
    #[command(flatten)]
    consent: Consent,
    /// Include the changes that serve --overlay has collected in DIR
    #[arg(long, value_name = "DIR")]
    overlay: Option<PathBuf>,
    /// Write zeros for blocks of 4 KiB that cannot be read, and go on; the exit status is then 1
    #[arg(long)]
    skip_unreadable: bool,
    /// Write an image in place of standard output: zeros take no space, and the same command goes
    /// on after an interruption. The map says what was read. An existing file is refused, unless
    /// its map says that it is a copy of the same bytes
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Record in FILE which ranges were read and which were not, as a mapfile of GNU ddrescue; it
    /// is updated every 30 s, at the end and when the command is interrupted. An existing file that
    /// is not such a map of weft cat is never overwritten [default with --output: the map beside
    /// the image, or its name with .map]
    #[arg(long, value_name = "FILE", requires = "mapped")]
    map: Option<PathBuf>,
    /// Overwrite the map of an earlier weft cat that --map names; with --output, overwrite the
    /// image of an earlier weft cat, known by its map
    #[arg(long, requires = "files")]
    force: bool,
    #[command(flatten)]
    reading: ReadingOptions,
    #[command(flatten)]
    selection: Selection,
    /// Files, block devices, or parts of them: PATH, PATH#N (partition N), PATH@OFFSET[+LENGTH]
    #[arg(value_name = "MEMBER", required = true, value_parser = MemberArg::parser())]
    members: Vec<MemberArg>,
}

pub(crate) fn run(arguments: &Cat) -> Outcome {
    let paths = member::paths(&arguments.members).map_err(Failure::Usage)?;
    let members = files(&arguments.members);
    let plain_map = arguments.map.as_deref().filter(|_| arguments.output.is_none());
    let file = plain_map.map(|path| {
        let (force, members) = (arguments.force, &members);
        ResultFile::at(&Output { option: "--map", path, kind: MAP, force, members })
    });
    let file = file.transpose()?;
    let mut opening = Opening::read_only();
    opening.options = Options {
        read_only: true,
        force_dirty: arguments.consent.force_dirty,
        without_journal: arguments.consent.without_journal,
        ..arguments.selection.options()?
    };
    opening.overlay.clone_from(&arguments.overlay);
    opening.reading = arguments.reading.of(&paths)?;
    let volume = opening.open(&paths)?;
    let assembly = &volume.assembly;
    tell_dropped(&volume.not_used);
    for note in &assembly.notes {
        complain(&format!("note: {note}"));
    }
    let all = assembly.layout.array_size().bytes().0;
    let range = range(arguments, all)?;
    let copy = arguments.output.as_deref().map(|file| {
        let (map, force) = (arguments.map.as_deref(), arguments.force);
        let asked = output::Files { file, map, force, members: &members };
        Copy::open(&asked, &assembly.uuid.to_string(), range.clone())
    });
    let copy = copy.transpose()?;
    let (mut inside, mut client) = Inside::read(volume)?;
    let skip = arguments.skip_unreadable;
    let result = match copy {
        Some(copy) => copy.run(&mut client, skip).map(|map| unreadable_in(&map, range.start)),
        None => to_stdout(&mut client, all, range, skip, file),
    };
    drop(client);
    // An error of the server is the cause of a connection error, so it is reported first.
    inside.stop()?;
    let bad = result?;
    let Some(first) = bad.first() else { return Ok(Exit::Done) };
    let (bytes, count) = (bad.iter().map(|area| area.end - area.start).sum::<u64>(), bad.len());
    let first = first.start;
    Err(Failure::failed(format!(
        "{bytes} bytes in {count} areas could not be read and are zeros, the first at byte {first}"
    )))
}

/// Unreadable areas of a map, as byte ranges of the array. `start` is the byte of the array at
/// which the copy begins.
fn unreadable_in(map: &Mapfile, start: u64) -> Vec<Range<u64>> {
    let bad = map.areas().filter(|(_, status)| *status == Status::Bad);
    bad.map(|(area, _)| area.start + start..area.end + start).collect()
}

/// Copies a range to standard output, and writes its map. Returns the areas that could not be read.
fn to_stdout(
    client: &mut InProcessClient,
    all: u64,
    range: Range<u64>,
    skip: bool,
    file: Option<ResultFile>,
) -> Result<Vec<Range<u64>>, Failure> {
    let areas = Areas { whole: all, range: range.clone(), read_to: range.start, bad: Vec::new() };
    let map = Arc::new(Mutex::new(Map { areas, file, saved: Instant::now() }));
    let interrupted = Arc::clone(&map);
    // An error is ignored: the process ends, and the map of the last interval stays.
    terminal::when_interrupted(move || drop(locked(&interrupted).save()));
    let result = copy(client, range, skip, &map);
    let (written, areas) = locked(&map).end();
    result?;
    written?;
    Ok(areas.bad)
}

/// State of the reading: the ranges read so far, and the file of `--map` that lists them.
struct Map {
    areas: Areas,
    file: Option<ResultFile>,
    saved: Instant,
}

impl Map {
    /// Saves the present map in its file, if there is one.
    fn save(&mut self) -> io::Result<()> {
        self.saved = Instant::now();
        let text = self.areas.to_map();
        self.file.as_mut().map_or(Ok(()), |file| file.save(&text))
    }

    /// Records that everything before `offset` was read, and saves the map if the last save was
    /// long ago. A failed save does not stop the reading: a failing member may not be readable a
    /// second time.
    fn read_to(&mut self, offset: u64) {
        self.areas.read_to = offset;
        if self.file.is_some()
            && self.saved.elapsed() >= MAP_INTERVAL
            && let Err(error) = self.save()
        {
            let pause = MAP_INTERVAL.as_secs();
            complain(&format!("--map: {error}; reading goes on, tried again after {pause} s"));
        }
    }

    /// Writes the final map to the file of `--map`, if there is one. Returns whether that
    /// succeeded, and which areas of the array were read and which could not be.
    fn end(&mut self) -> (Result<(), Failure>, Areas) {
        let text = self.areas.to_map();
        let written = self.file.take().map_or(Ok(()), |file| file.write(&text));
        (written, self.areas.clone())
    }
}

fn locked(map: &Mutex<Map>) -> MutexGuard<'_, Map> {
    map.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Areas of the array that were read, and areas that could not be read.
#[derive(Clone)]
struct Areas {
    /// Size of the array in bytes.
    whole: u64,
    /// Byte range of the array that is to be read.
    range: Range<u64>,
    read_to: u64,
    /// Unreadable areas in ascending order; no two are adjacent.
    bad: Vec<Range<u64>>,
}

impl Areas {
    fn add_bad(&mut self, area: Range<u64>) {
        match self.bad.last_mut() {
            Some(last) if last.end == area.start => last.end = area.end,
            _ => self.bad.push(area),
        }
    }

    /// Text of the map in the format of GNU ddrescue. Positions are bytes of the array.
    fn to_map(&self) -> String {
        let mut map = Mapfile::new(self.whole);
        map.set(self.range.start..self.read_to, Status::Finished);
        self.bad.iter().for_each(|bad| map.set(bad.clone(), Status::Bad));
        let phase = if self.read_to == self.range.end { '+' } else { '?' };
        map.current = Current { position: self.read_to, phase, pass: 1 };
        map.to_text(MAP.begin)
    }
}

/// Byte range that the options select in an array of `all` bytes. A range that goes beyond the end
/// of the array is refused.
fn range(arguments: &Cat, all: u64) -> Result<Range<u64>, Failure> {
    let Bytes(start) = arguments.offset;
    if start > all {
        return Err(Failure::usage(format!("--offset: found {start}, expected at most {all}")));
    }
    let rest = all - start;
    let len = arguments.length.map_or(rest, |length| length.0);
    if len > rest {
        return Err(Failure::usage(format!(
            "--length: found {len}, expected at most {rest} after --offset {start}"
        )));
    }
    Ok(start..start + len)
}

/// Copies a range to standard output, from start to end.
fn copy(
    client: &mut InProcessClient,
    range: Range<u64>,
    skip: bool,
    map: &Mutex<Map>,
) -> Result<(), Failure> {
    let bar = progress("cat", range.end - range.start);
    // The buffer of `Stdout` ends at newlines and would cut the data there.
    let mut out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let mut reads = Reads::new(client, vec![range], skip);
    while let Some(piece) = reads.next()? {
        let len = piece.len() as u64;
        piece.try_for_each(|bytes| out.write_all(bytes))?;
        let Piece { offset, bad, .. } = piece;
        bad.into_iter().for_each(|bad| locked(map).areas.add_bad(bad));
        locked(map).read_to(offset + len);
        bar.inc(len);
    }
    bar.finish_and_clear();
    Ok(())
}

/// Time after which the map is saved again, as in GNU ddrescue.
const MAP_INTERVAL: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_that_cannot_be_saved_for_a_while_is_saved_later() {
        let folder = tempfile::tempdir().unwrap();
        let (home, away) = (folder.path().join("home"), folder.path().join("away"));
        std::fs::create_dir(&home).unwrap();
        let path = home.join("map");
        let asked = Output { option: "--map", path: &path, kind: MAP, force: false, members: &[] };
        let file = Some(ResultFile::at(&asked).unwrap());
        let areas = Areas { whole: 9000, range: 0..9000, read_to: 0, bad: Vec::new() };
        let mut map = Map { areas, file, saved: Instant::now() };
        std::fs::rename(&home, &away).unwrap();
        for (offset, folder_is_there) in [(1000, false), (2000, false), (3000, true)] {
            if folder_is_there {
                std::fs::rename(&away, &home).unwrap();
            }
            map.saved = Instant::now().checked_sub(MAP_INTERVAL).expect("the machine is up");
            map.read_to(offset);
            assert_eq!(path.exists(), folder_is_there);
            assert!(map.saved.elapsed() < MAP_INTERVAL, "not at every read");
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), map.areas.to_map());
        assert_eq!(map.areas.read_to, 3000);
    }
}
