//! Report of a copy: counts of restored files, and paths that were not restored as they were.

use std::ops::Range;

use crate::tree::Node;

/// Event of a copy, reported when it happens. Findings are in the report, too.
#[derive(Clone, Copy, Debug)]
pub enum Event<'e> {
    /// Number of bytes of files that were done since the last such event.
    Bytes(u64),
    /// A file has bytes that could not be read.
    Damaged(&'e Damaged),
    /// A path could not be restored, or a part of a directory could not be read.
    Failed(&'e ReportedPath),
    /// A path exists in the folder and differs from the original; it stays as it is.
    Kept(&'e ReportedPath),
    /// Owner and group of a path were not set.
    Owner {
        /// Path below the folder of the copied files.
        path: &'e [u8],
        /// Node with its owner, and with the mode that counts once the owner is set.
        node: &'e Node,
    },
    /// A device, pipe or socket is not restored.
    Special(&'e ReportedPath),
    /// A path was restored and may be wrong.
    Suspect(&'e ReportedPath),
}

/// A path in the report, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedPath {
    /// Path below the folder of the copied files.
    pub path: Vec<u8>,
    /// Reason why the path is in the report.
    pub why: String,
}

/// File with bytes that could not be read and are zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// Path below the folder of the copied files.
    pub path: Vec<u8>,
    /// Byte ranges in the file, ascending, each with the cause.
    pub ranges: Vec<(Range<u64>, String)>,
}

/// Result of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of regular files that were copied.
    pub files: u64,
    /// Number of directories that were copied.
    pub directories: u64,
    /// Number of symbolic links that were made.
    pub links: u64,
    /// Number of hard links that were made, as further names of copied files.
    pub hard_links: u64,
    /// Number of bytes of files that were copied, without holes.
    pub bytes: u64,
    /// Number of files and symbolic links that the folder had already.
    pub skipped: u64,
    /// Files with bytes that could not be read.
    pub damaged: Vec<Damaged>,
    /// Paths that could not be restored, and directories with a part that could not be read.
    pub failed: Vec<ReportedPath>,
    /// Paths that exist in the folder and differ; they stay as they are.
    pub kept: Vec<ReportedPath>,
    /// Devices, pipes and sockets, which are not restored.
    pub special: Vec<ReportedPath>,
    /// Nodes, directories or byte ranges with a fault that did not prevent reading.
    pub suspect: Vec<ReportedPath>,
    /// Number of extended attributes that were not set.
    pub attributes_lost: u64,
    /// Number of nodes with another owner or group than this process has, which was not restored.
    pub owners_lost: u64,
    /// Number of further names of files that became copies of their own, because no hard link could
    /// be made.
    pub links_copied: u64,
    /// Whether the newest state was read: false if a journal or log was not replayed in full.
    pub is_replayed: bool,
    /// Faults of the file system as a whole, which make all of its files doubtful.
    pub doubts: Vec<String>,
}

impl Report {
    /// Whether every file, directory and link is there, in its newest state and with every byte,
    /// and none is doubtful. Devices, pipes and sockets are not counted.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.damaged.is_empty()
            && self.failed.is_empty()
            && self.kept.is_empty()
            && self.suspect.is_empty()
            && self.is_replayed
            && self.doubts.is_empty()
    }

    /// Number of unreadable bytes.
    #[must_use]
    pub fn bytes_lost(&self) -> u64 {
        let ranges = self.damaged.iter().flat_map(|file| &file.ranges);
        ranges.map(|(range, _)| range.end - range.start).sum()
    }
}

impl Damaged {
    /// Adds a range behind the others, or makes the last one longer.
    pub(super) fn add(&mut self, range: Range<u64>, why: String) {
        match self.ranges.last_mut() {
            Some((last, _)) if last.end == range.start => last.end = range.end,
            _ => self.ranges.push((range, why)),
        }
    }
}
