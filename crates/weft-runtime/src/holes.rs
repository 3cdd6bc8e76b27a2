//! Holes of a member: ranges of its file that have no storage.
//!
//! A hole of a file reads as zeroes. Three kinds of range count as data: all of a block device,
//! which cannot report its holes; all of a member with an overlay, which is not searched; and
//! ranges that ddrescue did not rescue, which cannot be read at all.
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

use rustix::fs::{SeekFrom, fstat, seek};
use rustix::io::Errno;
use weft_units::Bytes;

use crate::devices::{Access, Medium, OpenMember};
use crate::threads::punch;

/// A stretch of a member that is all hole or all data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The stretch is a hole: no storage is allocated, and it reads as zeroes.
    pub hole: bool,
    /// Length in bytes.
    pub len: Bytes,
}

impl OpenMember {
    /// Length of the hole that begins at `at`, `len` at most; 0 without one.
    #[must_use]
    pub fn hole(&self, at: Bytes, len: Bytes) -> Bytes {
        let start = self.start().0 + at.0;
        if self.overlay().is_some() {
            return Bytes::ZERO;
        }
        let known = self.rescued().map_or(u64::MAX, |map| map.rescued_from(at.0));
        let len = Bytes(len.0.min(known));
        match seek(self, SeekFrom::Data(start)) {
            // The rest of the file is a hole, unless the file was cut off.
            Err(Errno::NXIO) if !self.is_cut() => len,
            Err(_) => Bytes::ZERO,
            Ok(position) => Bytes(position.clamp(start, start + len.0) - start),
        }
    }

    /// Stretch that begins at byte `at` of the member, of `len` bytes at most.
    #[must_use]
    pub fn stretch(&self, at: Bytes, len: Bytes) -> Stretch {
        let hole = self.hole(at, len);
        if hole.0 > 0 {
            return Stretch { hole: true, len: hole };
        }
        let unread = self.rescued().map_or(0, |map| map.unread_from(at.0));
        match self.overlay() {
            None if unread > 0 => Stretch { hole: false, len: Bytes(len.0.min(unread)) },
            None => data_from(self, self.start().0 + at.0, len),
            Some(_) => Stretch { hole: false, len },
        }
    }

    /// Whether holes can be made in the member, found out without changing it: a file is tried
    /// behind its end, a block device is judged by its limits. For a member with an overlay the
    /// answer is that of the overlay's file.
    #[must_use]
    pub fn can_discard(&self) -> bool {
        if self.access() != Access::ReadWrite {
            return false;
        }
        match (self.overlay(), self.medium()) {
            (Some(overlay), _) => overlay.can_discard(),
            (None, Medium::BlockDevice) => self.device_discards(),
            (None, Medium::File) => can_punch(self),
            (None, Medium::Memory) => true,
        }
    }
}

/// Stretch of a file from byte `start` on, of `len` bytes at most.
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

/// Stretch of data from byte `start`, which is in no hole, up to the next hole.
fn data_from(file: impl AsFd, start: u64, len: Bytes) -> Stretch {
    let position = match seek(file, SeekFrom::Hole(start)) {
        Ok(position) if position > start => position,
        _ => start + len.0,
    };
    Stretch { hole: false, len: Bytes(position.min(start + len.0) - start) }
}

/// Whether holes can be made in a file. The call is tried behind its end, where no data is lost.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::{MemberSpec, OpenOptions};
    use weft_units::MemberIndex;

    fn open(text: &str) -> OpenMember {
        let spec = MemberSpec::parse(text).unwrap();
        OpenOptions::new(Access::ReadWrite).open(&spec, MemberIndex(0), []).unwrap()
    }

    #[test]
    fn what_was_not_rescued_is_no_hole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m");
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(8 << 20).unwrap();
        let title = "# Mapfile. Created by GNU ddrescue\n0 + 1\n";
        let areas = "0 0x200000 +\n0x200000 0x100000 -\n0x300000 0x500000 +\n";
        std::fs::write(dir.path().join("m.map"), format!("{title}{areas}")).unwrap();
        let spec = MemberSpec::path(&path);
        let member = OpenOptions::new(Access::ReadOnly).open(&spec, MemberIndex(0), []).unwrap();
        let stretch = |at, len| {
            let Stretch { hole, len } = member.stretch(Bytes::mib(at), Bytes::mib(len));
            (hole, len)
        };
        assert_eq!(stretch(0, 1), (true, Bytes::mib(1)));
        assert_eq!(stretch(0, 8), (true, Bytes::mib(2)), "up to what was not rescued");
        assert_eq!(stretch(2, 6), (false, Bytes::mib(1)), "a range that was not rescued");
        assert_eq!(stretch(3, 5), (true, Bytes::mib(5)));
        assert_eq!(member.hole(Bytes::mib(1), Bytes::mib(2)), Bytes::mib(1));
        assert_eq!(member.hole(Bytes::mib(2), Bytes::mib(1)), Bytes::ZERO);
    }

    #[test]
    fn what_was_cut_off_is_no_hole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m");
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(8 << 20).unwrap();
        let member = open(path.to_str().unwrap());
        let (at, len) = (Bytes::mib(4), Bytes::mib(1));
        assert_eq!(member.stretch(at, len), Stretch { hole: true, len });
        file.set_len(2 << 20).unwrap();
        assert_eq!(member.stretch(at, len), Stretch { hole: false, len });
    }

    #[test]
    fn holes_of_files_and_memory_are_found_and_made() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m");
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(8 << 20).unwrap();
        for member in [open(path.to_str().unwrap()), open("ram:8M")] {
            let whole = Bytes::mib(8);
            assert_eq!(member.stretch(Bytes(0), whole), Stretch { hole: true, len: whole });
            let bytes = vec![1; 1 << 20];
            let aligned = crate::buffers::AlignedBytes::copy_of(&bytes);
            let written = rustix::io::pwrite(&member, aligned.as_ref(), 2 << 20);
            assert_eq!(written, Ok(1 << 20), "{}", member.info().label);
            let before = member.stretch(Bytes::mib(1), whole);
            assert_eq!(before, Stretch { hole: true, len: Bytes::mib(1) });
            let there = member.stretch(Bytes::mib(2), Bytes::mib(6));
            assert_eq!(there, Stretch { hole: false, len: Bytes::mib(1) });
            assert!(member.can_discard());
            punch(&member, 2 << 20, 512 << 10).unwrap();
            let there = member.stretch(Bytes::mib(2), Bytes::mib(6));
            assert_eq!(there, Stretch { hole: true, len: Bytes(512 << 10) });
        }
    }
}
