//! Holes of members: the ranges that have no storage, and the test whether holes can be made.
//!
//! Three kinds of range count as data: all of a block device, which cannot report its holes; all of
//! a member with an overlay, which is not searched; and ranges that ddrescue did not rescue, which
//! cannot be read at all.

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use weft_units::Bytes;

use super::{Access, Medium, OpenMember};
use crate::holes::{Stretch, can_punch, data_from};

impl OpenMember {
    /// Length of the hole that begins at byte `at` of the member, at most `len`; 0 if there is
    /// data, or if the holes of the member are not known.
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

    /// Hole or data at byte `at` of the member, at most `len` bytes long. The stretch ends where
    /// the other kind begins, and may end earlier, at the border of a range that was not rescued.
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

    /// Whether holes can be made in the member, which is tested without changing data: on a file by
    /// making a hole behind its end, on a block device by the limits of its queue. For a member
    /// with an overlay the answer is that of the overlay's file. False if the member is open for
    /// reading only.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::{MemberSpec, OpenOptions};
    use crate::holes::punch;
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
