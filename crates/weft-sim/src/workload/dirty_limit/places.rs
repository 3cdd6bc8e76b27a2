//! Positions of files that only grow, on a file system of one disk.
//!
//! The layout is reduced to what affects the arm. XFS with `allocsize=1g` gives each file runs of 1
//! GiB, and the first runs of all files follow each other. ext4 gives a file extents of at most 128
//! MiB, at the time when its pages are written back, in the order in which files reach the end of
//! their space.
//!
//! Source   writeback.md §6.1; experiments.md §1.2

use weft_engine::page_cache::InodeId;
use weft_units::{Bytes, Sectors};

use crate::machine::PageAllocator;

/// File system of each disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// XFS with `-o allocsize=1g,nobarrier,inode64,delaylog`.
    Xfs,
    /// ext4 with its defaults: a commit of the journal every 5 s, with a flush.
    Ext4,
}

impl FileSystem {
    /// File system that the name of a case calls `xfs` or `ext4`; `None` for other names.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "xfs" => Some(Self::Xfs),
            "ext4" => Some(Self::Ext4),
            _ => None,
        }
    }
}

/// Number of pages in each contiguous run that XFS gives to a file (`allocsize=1g`): 1 GiB.
const XFS_RUN: u64 = 1 << 18;
/// Number of pages in the longest extent of ext4: 128 MiB.
const EXT4_EXTENT: u64 = 1 << 15;
const PAGE_SECTORS: u64 = 8;

/// Layout of the files of a box: file `n` is on disk `n` modulo the number of disks.
#[derive(Debug)]
pub(super) struct Layout(Vec<Places>);

impl Layout {
    /// Creates the layout for `files` files on each of `disks` disks of this capacity.
    pub(super) fn new(kind: FileSystem, disks: u16, files: u32, capacity: Sectors) -> Self {
        Self((0..disks).map(|_| Places::new(kind, files, capacity)).collect())
    }
}

impl PageAllocator for Layout {
    fn place(&mut self, inode: InodeId, page: u64, count: u64) -> (Bytes, u64) {
        let disks = self.0.len() as u32;
        let places = &mut self.0[(inode.0 % disks) as usize];
        let (first, count) = places.place(inode.0 / disks, page, count);
        (Sectors(first).bytes(), count)
    }
}

/// Positions of the files on one disk.
#[derive(Clone, Debug)]
struct Places {
    kind: FileSystem,
    files: u64,
    /// Number of runs (XFS) or extents (ext4) that the disk has room for.
    runs: u64,
    /// ext4: numbers of the extents of each file, in order.
    extents: Vec<Vec<u64>>,
    next_extent: u64,
}

impl Places {
    fn new(kind: FileSystem, files: u32, capacity: Sectors) -> Self {
        let run = Self::run_of(kind) * PAGE_SECTORS;
        Self {
            kind,
            files: files.into(),
            runs: (capacity.0 / run).max(1),
            extents: vec![Vec::new(); files as usize],
            next_extent: 0,
        }
    }

    const fn run_of(kind: FileSystem) -> u64 {
        match kind {
            FileSystem::Xfs => XFS_RUN,
            FileSystem::Ext4 => EXT4_EXTENT,
        }
    }

    /// First sector of a file's page, and how many of `count` pages are contiguous from there. A
    /// full disk is used again from its beginning, because nothing is read.
    fn place(&mut self, file: u32, page: u64, count: u64) -> (u64, u64) {
        let length = Self::run_of(self.kind);
        let nth = page / length;
        let run = match self.kind {
            FileSystem::Xfs => nth * self.files + u64::from(file),
            FileSystem::Ext4 => {
                let extents = &mut self.extents[file as usize];
                while extents.len() as u64 <= nth {
                    extents.push(self.next_extent);
                    self.next_extent += 1;
                }
                extents[nth as usize]
            }
        };
        let within = page % length;
        let first = (run % self.runs * length + within) * PAGE_SECTORS;
        (first, count.min(length - within))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: Sectors = Sectors(1 << 31);

    #[test]
    fn files_of_xfs_lie_a_gib_apart_and_go_on_behind_all_others() {
        let mut places = Places::new(FileSystem::Xfs, 10, DISK);
        assert_eq!(places.place(0, 0, 100), (0, 100));
        assert_eq!(places.place(3, 7, 100), (3 * (1 << 21) + 56, 100));
        assert_eq!(places.place(3, XFS_RUN - 1, 100), (4 * (1 << 21) - 8, 1));
        assert_eq!(places.place(3, XFS_RUN, 100), (13 * (1 << 21), 100));
    }

    #[test]
    fn files_of_ext4_get_room_when_they_are_written() {
        let mut places = Places::new(FileSystem::Ext4, 3, DISK);
        assert_eq!(places.place(2, 0, 4096).0, 0);
        assert_eq!(places.place(0, 0, 4096).0, 1 << 18);
        assert_eq!(places.place(2, EXT4_EXTENT - 2, 4096).1, 2);
        assert_eq!(places.place(2, EXT4_EXTENT, 4096).0, 2 << 18);
        assert_eq!(places.place(0, 5, 1), ((1 << 18) + 40, 1), "its place stays the same");
    }

    #[test]
    fn a_full_disk_begins_again() {
        let mut places = Places::new(FileSystem::Xfs, 1, Sectors(3 << 21));
        assert_eq!(places.place(0, 3 * XFS_RUN, 1).0, 0);
    }

    #[test]
    fn files_are_dealt_out_to_disks() {
        let mut layout = Layout::new(FileSystem::Xfs, 3, 2, DISK);
        let places = [0, 1, 3, 4].map(|file| layout.place(InodeId(file), 0, 100));
        let second = (Bytes(1 << 30), 100);
        assert_eq!(places, [(Bytes(0), 100), (Bytes(0), 100), second, second]);
    }
}
