//! Holes of a member: ranges of its file for which nothing is stored.
//!
//! A hole of a file reads as zeroes and nothing is stored for it. Block devices have none that
//! could be found, and what an overlay holds is not looked at: such ranges count as data.
//!
//! Source   lseek(2), `SEEK_DATA` and `SEEK_HOLE`

use std::fs::File;
use std::os::fd::AsFd;

use rustix::fs::{FileType, SeekFrom, fstat, seek};
use rustix::io::Errno;
use weft_units::Bytes;

use crate::devices::{Access, OpenMember};
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
    /// Bytes of hole from `at` on, `len` at most.
    #[must_use]
    pub fn hole(&self, at: Bytes, len: Bytes) -> Bytes {
        let start = self.start().0 + at.0;
        if self.overlay().is_some() {
            return Bytes::ZERO;
        }
        match seek(self, SeekFrom::Data(start)) {
            // The rest of the file is one, unless that was cut off.
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
        let start = self.start().0 + at.0;
        let position = match seek(self, SeekFrom::Hole(start)) {
            Ok(position) if self.overlay().is_none() && position > start => position,
            _ => start + len.0,
        };
        Stretch { hole: false, len: Bytes(position.min(start + len.0) - start) }
    }

    /// Whether holes can be made in the member. Tried behind its end, where there is nothing to
    /// lose. Block devices promise too little: what they discard may read as anything.
    #[must_use]
    pub fn can_discard(&self) -> bool {
        let Ok(stat) = fstat(self) else { return false };
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let writable = self.access() == Access::ReadWrite && self.overlay().is_none();
        let Ok(end) = u64::try_from(stat.st_size) else { return false };
        let tried = || {
            let file = self.as_fd().try_clone_to_owned().map(File::from);
            let before = file.as_ref().ok().and_then(|file| file.metadata().ok()?.modified().ok());
            let tried = punch(self, end.next_multiple_of(4096), 4096);
            // Nothing was written, and the time of the last write is what overlays go by.
            if let (Ok(file), Some(before)) = (file, before) {
                let _ = file.set_modified(before);
            }
            tried
        };
        is_file && writable && (self.is_memory() || tried().is_ok())
    }
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
