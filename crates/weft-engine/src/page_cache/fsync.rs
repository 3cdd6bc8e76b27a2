//! fsync of a file: writes the pages that were dirty at the call, then waits for all writeback.
//!
//! A process that syncs a file writes the pages itself: those that were dirty when it called, in
//! ascending order, each as soon as an earlier write of the page has completed. It then waits,
//! again in ascending order, until no page is under writeback, including writeback that others have
//! started since the call. It does not write pages that were dirtied after the call. Marks belong
//! to the file: of two concurrent syncs, the first to reach a page writes it for both.
//!
//! This is `fdatasync` without the file system's part (a journal commit), and also the close of a
//! block device by its last user. For durability the device must be flushed afterwards, which is
//! outside the page cache.
//!
//! Source   experiments.md §1.1 (close of a block device), §1.7 step 1. The kernels differ in one
//!          point: 2.6.24 has no marks, and also writes pages that are dirtied ahead of the sync's
//!          position

use super::id::InodeId;
use super::index::Marked;
use super::pass::{Reason, WriteOut};
use super::pool::Pool;
use super::queue::Inodes;
use std::ops::Range;

/// State of an fsync that has not been completed.
#[derive(Clone, Debug)]
pub struct Fsync {
    inode: InodeId,
    within: Range<u64>,
    waits: bool,
}

/// Next action of a process that syncs a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncStep {
    /// The sync is complete: all pages that were dirty at the call are written.
    Done,
    /// Wait for [`Wake::Inode`](super::Wake::Inode), then call again.
    Wait,
    /// Submit these pages, then call again.
    Write(WriteOut),
}

impl Fsync {
    /// Begins an fsync: marks the dirty pages within `within`.
    pub(crate) fn new(inodes: &mut Inodes, inode: InodeId, within: Range<u64>) -> Self {
        inodes.of_mut(inode).pages.mark(&within);
        Self { inode, within, waits: false }
    }

    /// File that is being synced.
    #[must_use]
    pub const fn inode(&self) -> InodeId {
        self.inode
    }

    pub(crate) fn step(
        &mut self,
        pool: &mut Pool,
        inodes: &mut Inodes,
        pages_max: u64,
    ) -> SyncStep {
        let inode = inodes.of_mut(self.inode);
        if !self.waits {
            match inode.pages.take_marked(self.within.clone(), pages_max) {
                Marked::Pages(pages) => {
                    pool.started(inode.bdi, pages.end - pages.start);
                    let (bdi, reason) = (inode.bdi, Reason::Sync);
                    return SyncStep::Write(WriteOut { bdi, inode: self.inode, pages, reason });
                }
                Marked::Busy(_) => {
                    inode.watched = true;
                    return SyncStep::Wait;
                }
                Marked::Nothing => self.waits = true,
            }
        }
        match inode.pages.next_writeback(self.within.clone()) {
            Some(page) => {
                self.within.start = page;
                inode.watched = true;
                SyncStep::Wait
            }
            None => SyncStep::Done,
        }
    }
}
