//! `weft cat --output FILE`: a sparse image of an array. The same command, given again, continues a
//! copy that was interrupted.

use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft_export::in_process::InProcessClient;
use weft_runtime::mapfile::{Current, Mapfile, Status};
use weft_terminal::outcome::Failure;
use weft_terminal::result_file::{Output, ResultFile};
use weft_terminal::terminal::{self, complain, label, printable_stdout, progress};
use weft_units::Bytes;

use super::reads::{Piece, Reads};
use crate::image_file::{MappedImage, Origin, SparseImage, ended_by, map_beside, map_of, samples};
use crate::size;

/// Files of a copy, as the command line names them.
pub(super) struct Files<'a> {
    pub(super) file: &'a Path,
    /// Path of the map; `None` for the default path beside the file.
    pub(super) map: Option<&'a Path>,
    /// Whether an earlier copy in the file is dropped, so that the copy begins anew.
    pub(super) force: bool,
    /// Files and devices of the members.
    pub(super) members: &'a [PathBuf],
}

/// A copy of a range of an array.
pub(super) struct Copy {
    file: MappedImage,
    map: Mapfile,
    map_path: PathBuf,
    /// Byte range of the array of which the file is a copy.
    range: Range<u64>,
}

impl Copy {
    /// Opens the image and the file of its map, or creates them. `array` identifies the array in
    /// the map.
    ///
    /// # Errors
    /// The files are not those of an earlier copy of the same bytes, or cannot be written.
    pub(super) fn open(asked: &Files<'_>, array: &str, range: Range<u64>) -> Result<Self, Failure> {
        let Files { file, force, members, .. } = *asked;
        let size = range.end - range.start;
        let map_path = asked.map.map_or_else(|| map_beside(file), Path::to_owned);
        let origin = Origin::array(array, range.start, size);
        let title = origin.part_title().unwrap_or_default();
        // Without its map a file may be anything, so it is not overwritten.
        let anew = force && SparseImage::size_at(file).is_some() && origin.is_map(&map_path);
        let (mut map, kind) = match anew {
            true => (Mapfile::new(size), crate::result_kinds::OUTPUT_MAP),
            false => map_of(file, &map_path, &origin)?,
        };
        map.current = Current { position: 0, phase: '?', pass: 1 };
        let inputs = [members, &[file.to_owned()]].concat();
        let asked =
            Output { option: "--map", path: &map_path, kind, force: true, members: &inputs };
        let map_file = ResultFile::at(&asked)?;
        let image = SparseImage::open("--output", file, size, members, anew)?;
        let mut file = MappedImage::new(image, map_file, title);
        // From here on, the same command resumes the copy, also after a kill.
        file.save_at_last(&map)?;
        Ok(Self { file, map, map_path, range })
    }

    /// Copies the ranges that are left, and saves the map: first the ranges that no run has read
    /// yet, then those that earlier runs could not read. Returns the map, which lists the areas of
    /// the file that could not be read.
    ///
    /// # Errors
    /// The array cannot be read, or a file cannot be written. The map is saved if possible.
    pub(super) fn run(self, client: &mut InProcessClient, skip: bool) -> Result<Mapfile, Failure> {
        self.compare(client)?;
        let left = self.range.end - self.range.start - self.map.bytes(Status::Finished);
        if let Some(note) = self.file.image.short_of_space(left) {
            complain(&format!("note: {note}"));
        }
        let start = self.range.start;
        let ranges: Vec<Range<u64>> = [false, true]
            .into_iter()
            .flat_map(|bad| {
                let wanted = move |status| match status {
                    Status::Finished => false,
                    status => (status == Status::Bad) == bad,
                };
                self.map.areas().filter(move |(_, status)| wanted(*status))
            })
            .map(|(area, _)| area.start + start..area.end + start)
            .collect();
        let bar = progress("cat", self.range.end - self.range.start);
        bar.set_position(self.map.bytes(Status::Finished));
        // The rate counts only bytes that this run reads.
        bar.reset_eta();
        let shared = Arc::new(Mutex::new(self));
        let interrupted = Arc::clone(&shared);
        terminal::when_interrupted(move || {
            let Self { file, map, .. } = &mut *locked(&interrupted);
            file.stopped(map, map.bytes(Status::Finished));
        });
        let mut reads = Reads::new(client, ranges, skip);
        let result = loop {
            match reads.next() {
                Ok(Some(piece)) => {
                    let mut copy = locked(&shared);
                    if let Err(failure) = copy.take(&piece) {
                        break Err(failure);
                    }
                    bar.set_position(copy.map.bytes(Status::Finished));
                }
                Ok(None) => break Ok(()),
                Err(failure) => break Err(failure),
            }
        };
        bar.finish_and_clear();
        let mut copy = locked(&shared);
        copy.end(result)?;
        copy.print()?;
        Ok(copy.map.clone())
    }

    /// Compares samples of the earlier copy with the array, and refuses to continue if they differ:
    /// an image must not mix different states of an array.
    fn compare(&self, client: &mut InProcessClient) -> Result<(), Failure> {
        let start = self.range.start;
        for sample in samples(&self.map, SAMPLE_BYTES) {
            let range = sample.start + start..sample.end + start;
            let piece = Reads::new(client, vec![range], true).next()?;
            let Some(piece) = piece.filter(|piece| piece.bad.is_empty()) else { continue };
            let data = piece.to_vec();
            let copied = self.file.image.read(sample.start, data.len());
            let copied = copied.map_err(|error| self.file.image.failed(&error))?;
            if let Some(at) = data.iter().zip(&copied).position(|(a, b)| a != b) {
                return Err(Failure::refused(format!(
                    "{}: byte {} is another one in the array, which was read there before; found \
                     an image of an array that was written since, or of other members; name the \
                     members and the overlay as before, another file, or --force to begin anew",
                    self.file.image.label(),
                    sample.start + at as u64
                )));
            }
        }
        Ok(())
    }

    /// Writes the bytes of a read to the file, then records in the map which bytes were read and
    /// which could not be.
    fn take(&mut self, piece: &Piece) -> Result<(), Failure> {
        let at = piece.offset - self.range.start;
        let mut end = at;
        let mut write = |bytes: &[u8]| {
            let written = self.file.write(bytes, end);
            end += bytes.len() as u64;
            written.map_err(|error| self.file.image.failed(&error))
        };
        // Blocks that were read one by one are written at once, so that the space of the last write
        // is enough for the map.
        match piece.bad.is_empty() {
            true => piece.try_for_each(write)?,
            false => write(&piece.to_vec())?,
        }
        self.map.set(at..end, Status::Finished);
        for bad in &piece.bad {
            let bad = bad.start - self.range.start..bad.end - self.range.start;
            self.map.set(bad, Status::Bad);
        }
        self.map.current.position = end;
        self.file.save_if_old(&self.map);
        Ok(())
    }

    /// Saves the map at the end of the copy, and returns the failure that ended the copy early, if
    /// there is one, or that of the save.
    fn end(&mut self, result: Result<(), Failure>) -> Result<(), Failure> {
        if result.is_ok() {
            self.map.current.phase = '+';
        }
        let saved = self.file.save_at_last(&self.map);
        if let Err(failure) = result {
            return Err(ended_by(failure, saved));
        }
        let given_back = saved?;
        if given_back.is_empty() {
            return Ok(());
        }
        Err(Failure::failed(format!(
            "{}: no space is left for the last bytes and the map; the map is saved, and the same \
             command goes on there",
            self.file.image.label()
        )))
    }

    fn print(&self) -> Result<(), Failure> {
        let mut out = printable_stdout();
        let human = |bytes| size::human(Bytes(bytes));
        let read = self.map.bytes(Status::Finished);
        writeln!(
            out,
            "{}: {} of {} read; map {}",
            self.file.image.label(),
            human(read),
            human(self.range.end - self.range.start),
            label(&self.map_path)
        )?;
        out.flush()?;
        Ok(())
    }
}

fn locked(copy: &Mutex<Copy>) -> MutexGuard<'_, Copy> {
    copy.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Largest number of bytes in each of the two samples that are compared; less than a read.
const SAMPLE_BYTES: u64 = 64 << 10;
