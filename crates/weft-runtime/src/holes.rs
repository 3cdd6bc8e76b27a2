//! Holes of a file: ranges that have no storage, and read as zeroes.
//!
//! One call makes holes in files and in devices (`punch`), because a discarded range has to read as
//! zeroes: `BLKDISCARD` and a discard of an NVMe or SATA disk leave open what is read afterwards.
//! For a block device the call sends a command that writes zeroes and may unmap. A device without
//! such a command refuses it, and zeroes are written (see `member_io/`). The device's discard
//! granularity and alignment are advice: a smaller range is zeroed all the same.
//!
//! Source   lseek(2), `SEEK_DATA` and `SEEK_HOLE`; fallocate(2), `FALLOC_FL_PUNCH_HOLE`

use std::fs::File;
use std::os::fd::AsFd;

use rustix::fs::{FallocateFlags, SeekFrom, fstat, seek};
use rustix::io::Errno;
use weft_units::Bytes;

/// A stretch of a file or member that is all hole or all data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The stretch is a hole: no storage is allocated, and it reads as zeroes.
    pub hole: bool,
    /// Length in bytes.
    pub len: Bytes,
}

/// Hole or data at byte `start` of a file, at most `len` bytes long: the stretch ends where the
/// other kind begins. Everything behind the end of the file counts as a hole. Where holes cannot be
/// found, all is data.
pub(crate) fn stretch_of(file: impl AsFd, start: u64, len: Bytes) -> Stretch {
    match seek(&file, SeekFrom::Data(start)) {
        Err(Errno::NXIO) => Stretch { hole: true, len },
        Ok(position) if position > start => {
            Stretch { hole: true, len: Bytes(position.min(start + len.0) - start) }
        }
        Ok(_) => data_from(file, start, len),
        Err(_) => Stretch { hole: false, len },
    }
}

/// Data from byte `start` of a file on, up to the next hole or to `len` bytes. `start` must not be
/// in a hole.
pub(crate) fn data_from(file: impl AsFd, start: u64, len: Bytes) -> Stretch {
    let position = match seek(file, SeekFrom::Hole(start)) {
        Ok(position) if position > start => position,
        _ => start + len.0,
    };
    Stretch { hole: false, len: Bytes(position.min(start + len.0) - start) }
}

/// Whether holes can be made in a file. Tries it behind the end of the file, where no data is lost.
pub(crate) fn can_punch(file: impl AsFd) -> bool {
    let Ok(stat) = fstat(&file) else { return false };
    let Ok(end) = u64::try_from(stat.st_size) else { return false };
    let twin = file.as_fd().try_clone_to_owned().map(File::from);
    let before = twin.as_ref().ok().and_then(|twin| twin.metadata().ok()?.modified().ok());
    let tried = punch(&file, end.next_multiple_of(4096), 4096);
    // Nothing was written, so the modification time is restored: overlays compare it.
    if let (Ok(twin), Some(before)) = (twin, before) {
        let _ = twin.set_modified(before);
    }
    tried.is_ok()
}

/// Deallocates a range, which reads as zeroes from then on. A block device is told to write zeroes
/// and may unmap; a device without such a command refuses (`EOPNOTSUPP`).
///
/// Source   fallocate(2); Linux `block/fops.c`, `blkdev_fallocate`
pub(crate) fn punch(file: impl AsFd, offset: u64, len: u64) -> Result<(), Errno> {
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(file, mode, offset, len)
}
