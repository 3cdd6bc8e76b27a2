//! Writeback pass: writes dirty files of a device, a limited number of pages of each at a time.
//!
//! A pass takes files from the front of the list *io* (`queue.rs`). Each file gets a turn in which
//! a limited number of its pages is written, in ascending order from where its last turn ended,
//! wrapping around at the end of the file. Flushers make passes, and before patch 001 throttled
//! writers do too. All passes share the lists, so ten writers write ten files at once.
//!
//! After its turn a file goes
//! - off the lists, if it is clean;
//! - to *more* if its turn was too short (3.1; in 2.6.24 only in periodic writeback);
//! - to the end of *dirty* otherwise: some pages are still under writeback, or the file was written
//!   to meanwhile.
//!
//! A file on which another pass has its turn is skipped (3.1), or written by both passes (2.6.24).
//!
//! A pass for a sync differs in two ways: it goes through each file from the start, and in 3.1 it
//! writes only pages that were dirty when the file's turn began.
//!
//! A pass returns one [`WriteOut`] at a time, and the caller may take as long as it needs to submit
//! it: a full queue delays the submitter, and with it the turn of the file.
//!
//! Source   writeback.md §3; for 2.6.24 `sync_sb_inodes` and `write_cache_pages`, January 2008

use super::id::{BdiId, InodeId, WriterId};
use super::index::Pages;
use super::pool::{Generation, Pool};
use super::queue::{Inodes, List, Queues};
use std::ops::Range;
use weft_units::Time;

/// Reason why pages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The flusher writes because the background threshold is exceeded.
    Background,
    /// The flusher writes because the file has been dirty for longer than `expire_centisecs`, by
    /// default 30 s.
    Periodic,
    /// A process waits until the pages are written.
    Sync,
    /// A throttled writer writes back itself (before patch 001).
    Writer(WriterId),
}

/// Pages to write to their device. They are already under writeback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteOut {
    /// Device to write to.
    pub bdi: BdiId,
    /// File that the pages belong to.
    pub inode: InodeId,
    /// Page numbers in the file; never empty.
    pub pages: Range<u64>,
    /// Reason why the pages are written.
    pub reason: Reason,
}

/// State of the page cache on which a pass works, borrowed for one step.
pub(crate) struct WritebackControl<'a> {
    pub bdi: BdiId,
    pub pool: &'a mut Pool,
    pub queues: &'a mut Queues,
    pub inodes: &'a mut Inodes,
    /// Whether the device's queue is congested.
    pub congested: bool,
    pub tick: u64,
}

impl<'a> WritebackControl<'a> {
    pub(crate) fn new(
        bdi: BdiId,
        now: Time,
        pool: &'a mut Pool,
        inodes: &'a mut Inodes,
        queues: &'a mut Queues,
        congested: bool,
    ) -> Self {
        let tick = pool.ticks().tick(now);
        Self { bdi, pool, queues, inodes, congested, tick }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Pass {
    reason: Reason,
    start: u64,
    budget: u64,
    written: u64,
    /// Number of files that were clean after their turn. For the pass they count as progress, as
    /// written pages do.
    cleaned: u64,
    /// Whether the pass met a congested queue, which 2.6.24's flusher skips.
    pub met_congestion: bool,
    turn: Option<Turn>,
    over: bool,
}

/// Turn of one file in a writeback pass: the pages that are written before the next file.
#[derive(Clone, Debug)]
struct Turn {
    inode: InodeId,
    /// Number of pages that may still be written in this turn.
    left: u64,
    within: Range<u64>,
    /// Page at which the turn ends after wrapping around; `None` if it does not wrap around.
    around: Option<u64>,
    cursor: u64,
    /// Whether this pass, and not another one, marked the file as busy and has to clear the mark.
    owner: bool,
}

impl Pass {
    /// Creates a pass that writes about `budget` pages. First fills the list *io* with files that
    /// became dirty at tick `older_than` or before (`None`: with all files): under 3.1 only if *io*
    /// is empty, under 2.6.24 only then or outside of periodic writeback.
    pub(crate) fn new(
        wbc: &mut WritebackControl<'_>,
        reason: Reason,
        budget: u64,
        older_than: Option<u64>,
    ) -> Self {
        let io_is_empty = wbc.queues.is_empty(List::Io);
        match wbc.kernel() {
            Generation::V2_6_24 if reason != Reason::Periodic || io_is_empty => {
                wbc.queues.fill_2_6_24(wbc.inodes, older_than);
            }
            Generation::V3_1 if io_is_empty => wbc.queues.fill(wbc.inodes, older_than),
            Generation::V2_6_24 | Generation::V3_1 => {}
        }
        Self {
            reason,
            start: wbc.tick,
            budget,
            written: 0,
            cleaned: 0,
            met_congestion: false,
            turn: None,
            over: false,
        }
    }

    /// Takes and returns the next pages to write, at most `pages_max`; `None` when the pass is
    /// over.
    pub(crate) fn next(
        &mut self,
        wbc: &mut WritebackControl<'_>,
        pages_max: u64,
    ) -> Option<WriteOut> {
        while !self.over {
            if self.turn.is_none() && !self.begin_turn(wbc) {
                break;
            }
            if let Some((inode, pages)) = self.take(wbc, pages_max) {
                return Some(WriteOut { bdi: wbc.bdi, inode, pages, reason: self.reason });
            }
            self.end_turn(wbc);
            self.over = self.is_enough(wbc);
        }
        self.over = true;
        None
    }

    /// Ends the pass early, and releases the file on which it has its turn.
    pub(crate) fn abandon(mut self, wbc: &mut WritebackControl<'_>) {
        self.end_turn(wbc);
    }

    /// Number of pages written so far.
    pub(crate) const fn written(&self) -> u64 {
        self.written
    }

    /// Whether the pass has written pages, or found files to be clean after their turn.
    pub(crate) const fn made_progress(&self) -> bool {
        self.written + self.cleaned > 0
    }

    fn begin_turn(&mut self, wbc: &mut WritebackControl<'_>) -> bool {
        let kernel = wbc.kernel();
        while let Some(id) = wbc.queues.first(List::Io) {
            if kernel == Generation::V2_6_24 {
                if self.goes_around_congestion() && wbc.congested {
                    self.met_congestion = true;
                    return false;
                }
                // The file became dirty after this pass began, and another pass put it on the list.
                if wbc.inodes.of(id).dirtied_when > self.start {
                    return false;
                }
            }
            let inode = wbc.inodes.of_mut(id);
            let owner = !inode.busy;
            if inode.busy {
                wbc.queues.append(List::More, id, inode);
                if kernel == Generation::V3_1 {
                    continue;
                }
            } else {
                inode.busy = true;
                inode.touched = false;
            }
            inode.passes += 1;
            if self.takes_marked(kernel) {
                inode.pages.mark(&(0..u64::MAX));
            }
            let quota = match kernel {
                // 2.6.24 looks at 14 pages at a time and writes all of them.
                Generation::V2_6_24 => {
                    self.left().checked_next_multiple_of(PAGES_AT_A_LOOK).unwrap_or(u64::MAX)
                }
                Generation::V3_1 if self.reason == Reason::Sync => u64::MAX,
                Generation::V3_1 => wbc.pool.chunk_pages(wbc.bdi, self.left()),
            };
            let (pages, cursor) = (&inode.pages, inode.cursor);
            let (from, around) = first_page(kernel, self.reason, pages, cursor);
            let within = from..u64::MAX;
            self.turn = Some(Turn { inode: id, left: quota, within, around, cursor, owner });
            return true;
        }
        false
    }

    fn take(
        &mut self,
        wbc: &mut WritebackControl<'_>,
        pages_max: u64,
    ) -> Option<(InodeId, Range<u64>)> {
        let goes_around = self.goes_around_congestion();
        let marked = self.takes_marked(wbc.kernel());
        let turn = self.turn.as_mut()?;
        if goes_around && wbc.kernel() == Generation::V2_6_24 && wbc.congested {
            self.met_congestion = true;
            return None;
        }
        let most = turn.left.min(pages_max);
        if most == 0 {
            return None;
        }
        let pages = &mut wbc.inodes.of_mut(turn.inode).pages;
        let mut take = |within: Range<u64>| {
            if marked { pages.take_marked_free(within, most) } else { pages.take(within, most) }
        };
        let mut run = take(turn.within.clone());
        if run.is_none()
            && let Some(until) = turn.around.take()
        {
            (turn.within, turn.cursor) = (0..until, 0);
            run = take(turn.within.clone());
        }
        let run = run?;
        let count = run.end - run.start;
        turn.within.start = run.end;
        turn.cursor = match wbc.kernel() {
            Generation::V2_6_24 => run.end,
            Generation::V3_1 => run.end - 1,
        };
        turn.left = turn.left.saturating_sub(count);
        self.written += count;
        wbc.pool.started(wbc.bdi, count);
        Some((turn.inode, run))
    }

    fn end_turn(&mut self, wbc: &mut WritebackControl<'_>) {
        let Some(turn) = self.turn.take() else { return };
        let id = turn.inode;
        let kernel = wbc.kernel();
        let inode = wbc.inodes.of_mut(id);
        inode.cursor = turn.cursor;
        inode.passes -= 1;
        if turn.owner {
            inode.busy = false;
            let (dirty, touched) = (inode.pages.dirty() > 0, inode.touched);
            inode.touched |= dirty;
            if touched && self.reason == Reason::Sync && kernel == Generation::V3_1 {
                // The file became dirty too late for this sync, which would otherwise never end.
                inode.dirtied_when = wbc.tick;
            }
            let unfinished = match kernel {
                Generation::V2_6_24 => !touched && self.reason == Reason::Periodic,
                Generation::V3_1 => turn.left == 0,
            };
            if inode.removed || !(dirty || touched) {
                inode.touched = false;
                wbc.queues.remove(id, inode);
                self.cleaned += 1;
            } else if dirty && unfinished {
                wbc.queues.append(List::More, id, inode);
            } else {
                wbc.queues.redirty(id, wbc.inodes, wbc.tick);
            }
        }
        wbc.inodes.free_if_over(id);
    }

    fn is_enough(&self, wbc: &WritebackControl<'_>) -> bool {
        let hz = wbc.pool.ticks().hz();
        let long = wbc.kernel() == Generation::V3_1 && wbc.tick > self.start + hz / 10;
        self.made_progress() && (self.left() == 0 || long)
    }

    const fn left(&self) -> u64 {
        self.budget.saturating_sub(self.written)
    }

    /// Whether only marked pages are written: in 3.1 a sync skips pages that were dirtied after the
    /// file's turn began.
    fn takes_marked(&self, kernel: Generation) -> bool {
        kernel == Generation::V3_1 && self.reason == Reason::Sync
    }

    /// Whether the pass is a flusher's periodic or background writeback, which skips congested
    /// queues in 2.6.24. All other passes wait.
    const fn goes_around_congestion(&self) -> bool {
        matches!(self.reason, Reason::Background | Reason::Periodic)
    }
}

impl WritebackControl<'_> {
    pub(crate) const fn kernel(&self) -> Generation {
        self.pool.config().kernel.generation()
    }
}

/// Page at which a turn starts, and the page at which it ends after wrapping around; `None` if it
/// ends at the last page. `cursor` is where the last turn ended.
fn first_page(
    kernel: Generation,
    reason: Reason,
    pages: &Pages,
    cursor: u64,
) -> (u64, Option<u64>) {
    match kernel {
        _ if reason == Reason::Sync => (0, None),
        // 2.6.24 wraps around only if no dirty page follows.
        Generation::V2_6_24 if pages.next_dirty(cursor).is_some() => (cursor, None),
        Generation::V2_6_24 => (0, None),
        Generation::V3_1 => (cursor, (cursor > 0).then_some(cursor)),
    }
}

/// Number of pages that 2.6.24 looks up at a time (`PAGEVEC_SIZE`).
const PAGES_AT_A_LOOK: u64 = 14;
