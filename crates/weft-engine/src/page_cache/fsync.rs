//! fsync of a file: the pages that were dirty at the call written, and all writeback waited for.
//!
//! A process that syncs a file writes its pages itself: those that were dirty when it called, in
//! ascending order, each as soon as an earlier write of it is done. Then it waits, again in
//! ascending order, until no page is under writeback any more. What others have started meanwhile
//! it waits for as well; what was dirtied meanwhile it leaves alone. Marks are the file's, so that
//! of two syncs at once the first to come to a page writes it for both.
//!
//! This is `fdatasync` without what a file system adds (a journal's commit), and the close of a
//! block device by its last user. Making it durable takes a flush of the device afterwards, which
//! is not the page cache's affair.
//!
//! Source   experiments.md §1.1 (close of a block device), §1.7 step 1. The kernels' own differ in
//!          one thing: 2.6.24 has no marks, and writes what is dirtied ahead of it too

use super::id::InodeId;
use super::index::Marked;
use super::pass::{Reason, WriteOut};
use super::pool::Pool;
use super::queue::Inodes;
use std::ops::Range;

/// A sync of one file, under way.
#[derive(Clone, Debug)]
pub struct Fsync {
    inode: InodeId,
    within: Range<u64>,
    waits: bool,
}

/// Next action of a syncing process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncStep {
    /// All that was dirty is written.
    Done,
    /// Wait for [`Wake::Inode`](super::Wake::Inode), then ask again.
    Wait,
    /// Submit these, then ask again.
    Write(WriteOut),
}

impl Fsync {
    /// Marks what is dirty.
    pub(crate) fn new(inodes: &mut Inodes, inode: InodeId, within: Range<u64>) -> Self {
        inodes.of_mut(inode).pages.mark(&within);
        Self { inode, within, waits: false }
    }

    /// The file that is synced.
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
