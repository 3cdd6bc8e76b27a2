//! Images that are written in any order and by several runs, each with a map of the bytes that were
//! read: the common part of `weft image` and `weft cat --output`.
//!
//! `plan.rs` says which image and map belong together, `sparse.rs` writes the image.

mod plan;
mod sparse;

use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

use weft_runtime::mapfile::{Mapfile, Status};
use weft_terminal::outcome::Failure;
use weft_terminal::result_file::ResultFile;
use weft_terminal::terminal::complain;
use weft_units::Bytes;

use crate::size;
pub(crate) use plan::{Origin, is_beside, map_beside, map_of, samples};
pub(crate) use sparse::SparseImage;
use sparse::is_full;

/// An image and the file of its map, while they are written.
pub(crate) struct MappedImage {
    pub(crate) image: SparseImage,
    map_file: ResultFile,
    /// First lines of the map.
    title: String,
    saved: Instant,
    /// Byte range of the last write to the image; its space is released if the map needs it.
    last: Range<u64>,
}

impl MappedImage {
    /// An image with the file of its map. `title` is the text at the beginning of the map, lines of
    /// comments.
    pub(crate) fn new(image: SparseImage, map_file: ResultFile, title: String) -> Self {
        Self { image, map_file, title, saved: Instant::now(), last: 0..0 }
    }

    /// Writes bytes at a place of the image. The caller changes the map after that.
    ///
    /// # Errors
    /// The image cannot be written.
    pub(crate) fn write(&mut self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.image.write(bytes, at)?;
        self.last = at..at + bytes.len() as u64;
        Ok(())
    }

    /// Makes the image durable, then saves the map that describes it.
    fn save(&mut self, map: &Mapfile) -> io::Result<()> {
        self.saved = Instant::now();
        self.image.sync()?;
        self.map_file.save(&map.to_text(&self.title))
    }

    /// Saves the map if its last save was long ago. A failed save does not stop the copy: a failing
    /// disk may not be readable a second time.
    pub(crate) fn save_if_old(&mut self, map: &Mapfile) {
        if self.saved.elapsed() >= SAVE_INTERVAL
            && let Err(error) = self.save(map)
        {
            let pause = SAVE_INTERVAL.as_secs();
            complain(&format!("--map: {error}; the copy goes on, tried again after {pause} s"));
        }
    }

    /// Saves the map at the end of a copy, complete or not. If the file system is full, the space
    /// of the last write to the image is released to make room. Returns the released range, which
    /// has to be read again; empty if there is none.
    ///
    /// # Errors
    /// The map cannot be saved.
    pub(crate) fn save_at_last(&mut self, map: &Mapfile) -> Result<Range<u64>, Failure> {
        let mut given_back = 0..0;
        let saved = self.save(map).or_else(|error| {
            if !is_full(&error) || self.last.is_empty() {
                return Err(error);
            }
            given_back = self.last.clone();
            self.image.give_back(given_back.start, given_back.end - given_back.start);
            let mut map = map.clone();
            map.set(given_back.clone(), Status::NonTried);
            self.save(&map)
        });
        let failed = |error: io::Error| {
            let pause = SAVE_INTERVAL.as_secs();
            Failure::failed(format!("--map: {error}; the map of the last {pause} s is not saved"))
        };
        saved.map(|()| given_back).map_err(failed)
    }

    /// Saves the map after a signal, and says how to go on. `read` is the number of bytes that were
    /// read.
    pub(crate) fn stopped(&mut self, map: &Mapfile, read: u64) {
        match self.save_at_last(map) {
            Ok(_) => complain(&format!(
                "stopped: {} are read, the map is saved, and the same command goes on there",
                size::human(Bytes(read))
            )),
            Err(Failure::Failed(text)) => complain(&format!("stopped: {text}")),
            Err(_) => {}
        }
    }
}

/// Adds to the failure that ended a copy whether the map was saved, as `saved` says.
pub(crate) fn ended_by(failure: Failure, saved: Result<Range<u64>, Failure>) -> Failure {
    let goes_on = "the map is saved, and the same command goes on there";
    match (failure, saved) {
        (Failure::Failed(text), Ok(_)) => Failure::failed(format!("{text}; {goes_on}")),
        (Failure::Failed(text), Err(Failure::Failed(also))) => {
            Failure::failed(format!("{text}; {also}"))
        }
        (failure, _) => failure,
    }
}

/// Time after which the map is saved again, as in GNU ddrescue.
const SAVE_INTERVAL: Duration = Duration::from_secs(30);
