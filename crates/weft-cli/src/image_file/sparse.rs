//! Image that is written at any place: zeros become holes.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, FlockOperation, SeekFrom};
use rustix::io::Errno;
use weft_terminal::outcome::Failure;
use weft_terminal::result_file::{Kind, Output};
use weft_terminal::terminal::label;
use weft_units::Bytes;

use crate::size;

/// Kind of file of an image. Its content may be anything: the map says what the image is a copy of.
const IMAGE: Kind = Kind { begin: "", name: "image" };

/// A sparse image that this process writes.
pub(crate) struct SparseImage {
    file: File,
    label: String,
    /// Whether the file was made or emptied here, so that ranges that were not written are holes.
    is_fresh: bool,
}

impl SparseImage {
    /// Size of the file at `path`; `None` if there is none, or an empty one.
    pub(crate) fn size_at(path: &Path) -> Option<u64> {
        let len = path.metadata().ok()?.len();
        (len > 0).then_some(len)
    }

    /// Opens the image to be written, and makes it if it is missing. The caller has checked that a
    /// file with content is the image of the same map. With `anew` its content is dropped.
    ///
    /// # Errors
    /// The file is one of `inputs` or no regular file, cannot be made, has no room for `size`
    /// bytes, or another process writes it.
    pub(crate) fn open(
        option: &'static str,
        path: &Path,
        size: u64,
        inputs: &[PathBuf],
        anew: bool,
    ) -> Result<Self, Failure> {
        let is_there = Self::size_at(path).is_some();
        let asked = Output { option, path, kind: IMAGE, force: is_there, members: inputs };
        let (file, _) = asked.open()?;
        let image = Self { file, label: label(path), is_fresh: anew || !is_there };
        // Other errors are ignored: not every file system has locks.
        let lock = FlockOperation::NonBlockingLockExclusive;
        if rustix::fs::flock(&image.file, lock) == Err(Errno::WOULDBLOCK) {
            let says = "another process writes it; wait for its end";
            return Err(Failure::refused(format!("{}: {says}", image.label)));
        }
        if anew {
            image.file.set_len(0).map_err(|error| image.failed(&error))?;
        }
        if image.file.metadata()?.len() != size {
            image.file.set_len(size).map_err(|error| image.failed(&error))?;
        }
        Ok(image)
    }

    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    pub(crate) fn failed(&self, error: &io::Error) -> Failure {
        Failure::failed(format!("{}: {error}", self.label))
    }

    /// Text about the free space if it is less than `wanted` bytes; `None` if it is enough or not
    /// known.
    pub(crate) fn short_of_space(&self, wanted: u64) -> Option<String> {
        let stat = rustix::fs::fstatvfs(&self.file).ok()?;
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        let (free_text, wanted_text) = (size::human(Bytes(free)), size::human(Bytes(wanted)));
        (free < wanted).then(|| {
            format!(
                "{}: found {free_text} free beside it, expected {wanted_text} for all that is left; \
                 what fits is copied, zeros take no space, and the same command goes on there",
                self.label
            )
        })
    }

    /// Writes bytes from byte `at` on. Blocks of zeros become holes, or overwrite earlier data.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let is_zero = |part: &[u8]| part.iter().all(|byte| *byte == 0);
        let mut parts = bytes.chunks(HOLE_BYTES).zip((at..).step_by(HOLE_BYTES)).peekable();
        let mut done = 0;
        while let Some((part, offset)) = parts.next() {
            let begin = done;
            done += part.len();
            if is_zero(part) {
                self.clear(offset, part)?;
                continue;
            }
            // Data that lies together is written together.
            while let Some((part, _)) = parts.next_if(|(part, _)| !is_zero(part)) {
                done += part.len();
            }
            self.file.write_all_at(&bytes[begin..done], offset)?;
        }
        Ok(())
    }

    /// Makes a range read as zeros: writes `zeros` if the range has data, and nothing if it is a
    /// hole.
    fn clear(&self, at: u64, zeros: &[u8]) -> io::Result<()> {
        let end = at + zeros.len() as u64;
        let has_data = !self.is_fresh
            && match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
                Ok(data) => data < end,
                Err(Errno::NXIO) => false,
                Err(_) => true,
            };
        if has_data { self.file.write_all_at(zeros, at) } else { Ok(()) }
    }

    /// Reads `len` bytes of the image from byte `at` on.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn read(&self, at: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }

    /// Releases the space of a range of the file, so that the file system has room for a map.
    pub(crate) fn give_back(&self, at: u64, len: u64) {
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // An error is ignored: the range is read again in any case.
        let _ = rustix::fs::fallocate(&self.file, mode, at, len);
    }

    /// Makes all written data durable.
    ///
    /// # Errors
    /// The device of the file failed.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// Whether an error says that there is no room for more.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge
    )
}

/// Unit of holes: zeros of this length are not written.
const HOLE_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn zeros_become_holes_and_replace_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let mut bytes = vec![0; 10 * HOLE_BYTES + 7];
        bytes[HOLE_BYTES * 3 + 1] = 1;
        bytes[HOLE_BYTES * 4] = 2;
        bytes[HOLE_BYTES * 9] = 3;
        let size = bytes.len() as u64 + 1000;
        let open = || SparseImage::open("image", &path, size, &[], false).unwrap();
        open().write(&bytes, 1000).unwrap();
        let read = std::fs::read(&path).unwrap();
        assert!(read[..1000].iter().all(|byte| *byte == 0) && read[1000..] == bytes);
        let blocks = path.metadata().unwrap().blocks() * 512;
        assert!(blocks < size, "{blocks} of {size}");
        let other = vec![0; bytes.len()];
        open().write(&other, 1000).unwrap();
        assert!(std::fs::read(&path).unwrap().iter().all(|byte| *byte == 0));
        let first = open();
        let Err(Failure::Refused(says)) =
            SparseImage::open("image", &path, size, &[], false).map(drop)
        else {
            panic!("refused")
        };
        assert!(says.contains("another process writes it"), "{says}");
        drop(first);
    }
}
