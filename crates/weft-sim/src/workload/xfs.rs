//! Reduced XFS: allocation groups, the places of files, and the log.
//!
//! The model is reduced to what affects a disk's arm. Allocation groups have equal size. Each file
//! has a group of its own as long as there are groups, and is contiguous in it, as delayed
//! allocation places a file that is written sequentially. The log is in the middle of the volume.
//! Successive groups begin on different disks, as `mkfs.xfs` lays them out over md. Metadata of
//! groups, inodes, quotas and the CPU time of allocation are not modelled.
//!
//! Source   experiments.md §1.1, §1.7; mkfs.xfs(8), `sunit`, `swidth`, `agcount`

use weft_engine::page_cache::{InodeId, PAGE_BYTES};
use weft_units::{ByteRange, Bytes};

use crate::machine::PageAllocator;

/// Layout of a file system on a volume.
#[derive(Clone, Copy, Debug)]
pub struct Xfs {
    groups: u64,
    group: u64,
    /// Offset in bytes of the first file within its group.
    first: u64,
    /// Room in bytes for each file in its group.
    room: u64,
    log: ByteRange,
}

/// Number of allocation groups on an array (assumed).
const GROUPS: u64 = 16;

/// Size of the log on disk.
const LOG: Bytes = Bytes::mib(32);

impl Xfs {
    /// Lays out a file system for a volume of this size, chunk and full stripe, with files of at
    /// most `room` bytes.
    ///
    /// # Panics
    /// Panics if a group has no room for such a file beside the log.
    #[must_use]
    pub fn new(volume: Bytes, chunk: Bytes, full_stripe: Bytes, room: Bytes) -> Self {
        let group = volume.0 / GROUPS / chunk.0 * chunk.0;
        // The next group must not begin on the same disk.
        let group = if group.is_multiple_of(full_stripe.0) { group - chunk.0 } else { group };
        let room = room.0.next_multiple_of(chunk.0);
        let log = ByteRange::new(GROUPS / 2 * group + chunk.0, LOG.0);
        let first = (chunk.0 + LOG.0).next_multiple_of(chunk.0);
        assert!(
            first + room <= group,
            "a volume of {} bytes has groups of {group}, a file of {room} needs {}",
            volume.0,
            first + room
        );
        Self { groups: GROUPS, group, first, room, log }
    }

    /// Byte range of the log.
    #[must_use]
    pub fn log(&self) -> ByteRange {
        self.log
    }

    /// First byte of a file on the volume.
    ///
    /// # Panics
    /// Panics if the group of the file has no room for it.
    #[must_use]
    pub fn file(&self, inode: InodeId) -> Bytes {
        let (group, nth) = (u64::from(inode.0) % self.groups, u64::from(inode.0) / self.groups);
        let at = self.first + nth * self.room;
        assert!(at + self.room <= self.group, "file {} has no room in its group", inode.0);
        Bytes(group * self.group + at)
    }
}

impl PageAllocator for Xfs {
    fn place(&mut self, inode: InodeId, page: u64, count: u64) -> (Bytes, u64) {
        let at = page * PAGE_BYTES;
        assert!(at < self.room, "page {page} of file {} is beyond its room", inode.0);
        (Bytes(self.file(inode).0 + at), count.min((self.room - at) / PAGE_BYTES))
    }
}
