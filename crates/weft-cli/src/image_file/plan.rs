//! Plan of a copy: the map and image of a disk or array, and whether the copy begins or is resumed.

use std::ops::Range;
use std::path::{Path, PathBuf};

use weft_runtime::mapfile::{Mapfile, Status};
use weft_runtime::rescued::{TITLES, is_map, names};
use weft_terminal::outcome::Failure;
use weft_terminal::result_file::Kind;
use weft_terminal::terminal::label;

use super::sparse::SparseImage;
use crate::result_kinds::{IMAGE_MAP, OUTPUT_MAP};

/// Disk or array of which an image is a copy, and the maps that belong to such copies.
pub(crate) struct Origin<'a> {
    /// Name of the disk or array in messages.
    name: &'a str,
    /// `disk` or `array`.
    noun: &'static str,
    /// Size of the image in bytes.
    size: u64,
    /// Kind of the file of a new map.
    kind: Kind,
    /// First bytes of the maps that a copy may be resumed with.
    titles: &'static [&'static str],
    /// Second line of each map, which names the part of the array that is copied; `None` for a
    /// disk.
    part: Option<String>,
}

impl<'a> Origin<'a> {
    /// A disk of `size` bytes.
    pub(crate) fn disk(name: &'a str, size: u64) -> Self {
        Self { name, noun: "disk", size, kind: IMAGE_MAP, titles: &TITLES, part: None }
    }

    /// A part of an array: `size` bytes, from the byte `start` on.
    pub(crate) fn array(name: &'a str, start: u64, size: u64) -> Self {
        let part = Some(format!("# Copy of {size} bytes from byte {start} on of array {name}"));
        let titles = &[OUTPUT_MAP.begin];
        Self { name, noun: "array", size, kind: OUTPUT_MAP, titles, part }
    }

    /// First lines of a new map; `None` for a disk.
    pub(crate) fn part_title(&self) -> Option<String> {
        self.part.as_ref().map(|part| format!("{}\n{part}\n", self.kind.begin))
    }

    /// Whether a map of this kind is at `path`.
    pub(crate) fn is_map(&self, path: &Path) -> bool {
        let title = Mapfile::title(path);
        self.titles.iter().any(|begin| title.starts_with(begin))
    }

    /// Fails if the map is of another part or array.
    fn check_part(&self, path: &Path) -> Result<(), Failure> {
        let Some(part) = &self.part else { return Ok(()) };
        let found = Mapfile::subtitle(path);
        if found == *part {
            return Ok(());
        }
        let text = |line: &str| line.trim_start_matches("# ").to_owned();
        Err(Failure::refused(format!(
            "--map {}: found a map that says {}, expected {}; the same options go on there; to begin \
             anew, name another file, or --force",
            label(path),
            text(&found),
            text(part)
        )))
    }
}

/// Path of the map of an image: of an existing map that commands find by its name, else of a new
/// one.
pub(crate) fn map_beside(file: &Path) -> PathBuf {
    let names = names(file);
    let found = names.iter().find(|name| is_map(name)).or(names.first());
    found.cloned().unwrap_or_default()
}

/// Whether commands find the map at `map` by the name of its image.
pub(crate) fn is_beside(file: &Path, map: &Path) -> bool {
    names(file).iter().any(|name| name == map)
}

/// Map of an earlier copy into `file`, read from `path`, or a new map if there was none. Also
/// returns the kind of the map's file.
///
/// # Errors
/// Image and map do not belong together or to the origin.
pub(crate) fn map_of(
    file: &Path,
    path: &Path,
    origin: &Origin<'_>,
) -> Result<(Mapfile, Kind), Failure> {
    let (image, map) = (label(file), label(path));
    let Origin { name, noun, size, kind, .. } = *origin;
    let is_there = path.metadata().is_ok_and(|found| !found.is_file() || found.len() > 0);
    let copied = SparseImage::size_at(file);
    let anew = format!("to begin anew, name another file than {image}");
    if !is_there {
        return match copied {
            None => Ok((Mapfile::new(size), kind)),
            Some(_) => Err(Failure::refused(format!(
                "{image}: exists, and there is no map {map} that says which of its bytes were \
                 read; --map names its map; {anew}"
            ))),
        };
    }
    if !origin.is_map(path) {
        let expected = if noun == "disk" { "map of a disk" } else { kind.name };
        return Err(Failure::refused(format!(
            "--map {map}: exists and holds something that is no {expected}, which weft does not \
             overwrite; name another file"
        )));
    }
    origin.check_part(path)?;
    let mapped = Mapfile::read(path)
        .map_err(|why| Failure::refused(format!("--map {map}: {why}; mend it; {anew}")))?;
    if mapped.size() != size {
        return Err(Failure::refused(format!(
            "--map {map}: found a map of a {noun} of {} bytes, expected one of {size} bytes, the \
             size of {name}; name the map of this {noun}",
            mapped.size()
        )));
    }
    let is_read = |area: &(Range<u64>, Status)| area.1 == Status::Finished;
    let end = mapped.areas().rfind(is_read).map_or(0, |(area, _)| area.end);
    let found = copied.unwrap_or(0);
    if found < end || found > size {
        return Err(Failure::refused(format!(
            "{image}: found {found} bytes, expected {end} to {size}, of which the map {map} says \
             that they were read; name the image and the map that belong together; {anew}, and \
             another map"
        )));
    }
    let title = Mapfile::title(path);
    let begin = origin.titles.iter().find(|begin| title.starts_with(**begin));
    Ok((mapped, Kind { begin: begin.copied().unwrap_or(kind.begin), ..kind }))
}

/// Ranges of which the bytes are compared to see whether an image is of this disk or array: the
/// first `len` bytes of the first and of the last area that was read.
pub(crate) fn samples(map: &Mapfile, len: u64) -> Vec<Range<u64>> {
    let read = || map.areas().filter(|(_, status)| *status == Status::Finished);
    let begin = |(area, _): (Range<u64>, Status)| area.start..area.end.min(area.start + len);
    let mut samples: Vec<Range<u64>> =
        [read().next(), read().next_back()].into_iter().flatten().map(begin).collect();
    samples.dedup();
    samples
}
