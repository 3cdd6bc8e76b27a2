//! Which map and image belong to a disk, and whether a copy begins or goes on.

use std::ops::Range;
use std::path::{Path, PathBuf};

use weft_runtime::mapfile::{Mapfile, Status};
use weft_runtime::rescued::{TITLES, is_map, names};
use weft_terminal::outcome::Failure;
use weft_terminal::result_file::Kind;
use weft_terminal::terminal::label;

use super::sparse::SparseImage;
use crate::result_kinds::IMAGE_MAP;

/// Map of an image: the one that is beside it, else the one that commands find there.
pub(crate) fn map_beside(file: &Path) -> PathBuf {
    let names = names(file);
    let found = names.iter().find(|name| is_map(name)).or(names.first());
    found.cloned().unwrap_or_default()
}

/// Whether commands find this map of an image by its name.
pub(crate) fn is_beside(file: &Path, map: &Path) -> bool {
    names(file).iter().any(|name| name == map)
}

/// Map of what was copied before into `file`, and the kind of the file at `path`. A new map if
/// nothing was. `disk` is the name of the disk, and `size` its size in bytes.
///
/// # Errors
/// Image and map do not belong together or to the disk.
pub(crate) fn map_of(
    file: &Path,
    path: &Path,
    disk: &str,
    size: u64,
) -> Result<(Mapfile, Kind), Failure> {
    let (image, map) = (label(file), label(path));
    let is_there = path.metadata().is_ok_and(|found| !found.is_file() || found.len() > 0);
    let copied = SparseImage::size_at(file);
    let anew = format!("to begin anew, name another file than {image}");
    if !is_there {
        return match copied {
            None => Ok((Mapfile::new(size), IMAGE_MAP)),
            Some(_) => Err(Failure::refused(format!(
                "{image}: exists, and there is no map {map} that says which of its bytes were \
                 read; --map names its map; {anew}"
            ))),
        };
    }
    if !is_map(path) {
        return Err(Failure::refused(format!(
            "--map {map}: exists and holds something that is no map of a disk, which weft does not \
             overwrite; name another file"
        )));
    }
    let mapped = Mapfile::read(path)
        .map_err(|why| Failure::refused(format!("--map {map}: {why}; mend it; {anew}")))?;
    if mapped.size() != size {
        return Err(Failure::refused(format!(
            "--map {map}: found a map of a disk of {} bytes, expected one of {size} bytes, the \
             size of {disk}; name the map of this disk",
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
    let begin = TITLES.into_iter().find(|begin| title.starts_with(begin));
    Ok((mapped, Kind { begin: begin.unwrap_or(IMAGE_MAP.begin), ..IMAGE_MAP }))
}

/// Ranges by which an image shows that it is of the disk: the beginnings of the first and of the
/// last area that was read, as far as `len` bytes.
pub(crate) fn samples(map: &Mapfile, len: u64) -> Vec<Range<u64>> {
    let read = || map.areas().filter(|(_, status)| *status == Status::Finished);
    let begin = |(area, _): (Range<u64>, Status)| area.start..area.end.min(area.start + len);
    let mut samples: Vec<Range<u64>> =
        [read().next(), read().next_back()].into_iter().flatten().map(begin).collect();
    samples.dedup();
    samples
}
