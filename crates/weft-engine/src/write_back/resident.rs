//! Resident pages of a volume: frame and epoch of each page that is dirty or in use.
//!
//! A page is resident from its first write until it is clean and no read uses its frame. The index
//! of [`crate::page_cache`] records whether a page is dirty or under writeback.
//!
//! *Epochs* count the flushes of a volume. A page has the epoch in which it became dirty. When the
//! page is taken for writing, the epoch of the data being written is stored separately, so a page
//! that is dirtied again counts in two epochs. A flush is complete once no page of its epoch or an
//! earlier one is left. Hence pages dirtied after the arrival of a flush never delay it.

use std::collections::VecDeque;
use std::ops::Range;

use smallvec::SmallVec;

use super::op::Pinned;
use crate::contract::frame::Frame;
use crate::page_cache::sparse::Sparse;

/// Page in the cache: it is dirty, is being written, or is in use by a client request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    pub(super) frame: Frame,
    /// Epoch (interval between two flushes) in which the page became dirty; `None` if it is not
    /// dirty.
    pub(super) dirty: Option<u64>,
    /// Epoch (interval between two flushes) in which the data that is being written became dirty;
    /// `None` if the page is not being written.
    pub(super) written: Option<u64>,
    /// Whether the data being written has been copied to a buffer, so that changes of the frame do
    /// not affect the write.
    pub(super) copied: bool,
    /// Number of client reads and writes that use the frame.
    pub(super) pins: u32,
    /// Whether the page was replaced on the volume before its data was copied for a write. The
    /// write skips such a page.
    pub(super) gone: bool,
}

impl Page {
    fn is_unused(&self) -> bool {
        self.dirty.is_none() && self.written.is_none() && self.pins == 0
    }
}

/// Resident pages of a volume, by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Resident {
    pages: Sparse<Page>,
    epochs: Epochs,
}

/// Number of unwritten pages per epoch, which is an interval between two flushes, for the epochs
/// that have such pages.
#[derive(Clone, Debug, Default)]
struct Epochs {
    now: u64,
    /// Counts of the latest epochs, up to epoch `now`.
    counts: VecDeque<u64>,
}

impl Epochs {
    fn first(&self) -> u64 {
        self.now + 1 - self.counts.len() as u64
    }

    fn add(&mut self) -> u64 {
        if self.counts.is_empty() {
            self.counts.push_back(0);
        }
        *self.counts.back_mut().expect("there is at least one epoch") += 1;
        self.now
    }

    fn remove(&mut self, epoch: u64) {
        let place = (epoch - self.first()) as usize;
        self.counts[place] -= 1;
        while self.counts.front() == Some(&0) {
            self.counts.pop_front();
        }
    }

    fn close(&mut self) -> u64 {
        self.now += 1;
        if !self.counts.is_empty() {
            self.counts.push_back(0);
        }
        self.now - 1
    }
}

impl Resident {
    /// Resident page with this number; `None` if it is not resident or was replaced on the volume.
    pub(super) fn get(&self, page: u64) -> Option<&Page> {
        self.pages.get(page).filter(|page| !page.gone)
    }

    /// Resident pages of a range, in ascending order.
    pub(super) fn within(&self, pages: &Range<u64>) -> impl Iterator<Item = (u64, &Page)> {
        self.pages.iter(pages.clone()).filter(|(_, page)| !page.gone)
    }

    /// Frame for a write to a page: the page's own frame, or a new one from `new`. The page stays
    /// resident until [`Resident::filled`], even if its earlier data is written in the meantime.
    pub(super) fn fill(&mut self, page: u64, new: impl FnOnce() -> Frame) -> Frame {
        let fresh = || Page {
            frame: new(),
            dirty: None,
            written: None,
            copied: false,
            pins: 0,
            gone: false,
        };
        let page = self.pages.get_or_insert_with(page, fresh);
        page.gone = false;
        page.pins += 1;
        page.frame
    }

    /// Records that pages were filled with new data, and so are dirty.
    pub(super) fn filled(&mut self, pages: Range<u64>) {
        let Self { pages: here, epochs } = self;
        here.each_mut(pages, |_, page| {
            page.pins -= 1;
            if page.dirty.is_none() {
                page.dirty = Some(epochs.add());
            }
        });
    }

    /// Marks pages as being written.
    pub(super) fn taken(&mut self, pages: Range<u64>) {
        self.pages.each_mut(pages, |_, page| {
            assert!(page.written.is_none(), "one write of a page is under way at a time");
            (page.written, page.copied) = (page.dirty.take(), false);
        });
    }

    /// Records that the data of pages being written was copied to a buffer, so that the pages may
    /// change.
    pub(super) fn copied(&mut self, pages: Range<u64>) {
        self.pages.each_mut(pages, |_, page| page.copied = true);
    }

    /// Frame of a page with data that is neither on the members nor in a buffer; `None` if there is
    /// no such data.
    pub(super) fn newer(&self, page: u64) -> Option<Frame> {
        let is_newer =
            |page: &&Page| page.dirty.is_some() || page.written.is_some() && !page.copied;
        self.get(page).filter(is_newer).map(|page| page.frame)
    }

    /// Ends a successful write of pages. Frames that are no longer in use are added to `freed`.
    pub(super) fn written(&mut self, pages: Range<u64>, freed: &mut Vec<Frame>) {
        let epochs = &mut self.epochs;
        self.pages.each_mut(pages.clone(), |_, page| {
            epochs.remove(page.written.take().expect("the page was taken"));
        });
        self.free(pages, freed);
    }

    /// Ends a failed write of pages. Returns the pages that are dirty again. Frames that are no
    /// longer in use are added to `freed`.
    pub(super) fn not_written(&mut self, pages: Range<u64>, freed: &mut Vec<Frame>) -> Vec<u64> {
        let mut again = Vec::new();
        let epochs = &mut self.epochs;
        self.pages.each_mut(pages.clone(), |number, page| {
            let epoch = page.written.take().expect("the page was taken");
            if page.gone {
                epochs.remove(epoch);
                return;
            }
            // The page keeps the older of its two epochs.
            if let Some(newer) = page.dirty.replace(epoch) {
                epochs.remove(newer);
            }
            again.push(number);
        });
        self.free(pages, freed);
        again
    }

    /// Drops pages that were replaced on the volume or given up. Frames that are no longer in use
    /// are added to `freed`.
    pub(super) fn replaced(&mut self, pages: Range<u64>, freed: &mut Vec<Frame>) {
        let epochs = &mut self.epochs;
        self.pages.each_mut(pages.clone(), |_, page| {
            if let Some(epoch) = page.dirty.take() {
                epochs.remove(epoch);
            }
            page.gone = page.written.is_some();
        });
        self.free(pages, freed);
    }

    /// Keeps the cached pages of a range in the cache for a read, and returns them.
    pub(super) fn pin(&mut self, pages: &Range<u64>) -> Pinned {
        let mut pinned = Pinned::new();
        self.pages.each_mut(pages.clone(), |number, page| {
            if !page.gone {
                page.pins += 1;
                pinned.push((number, page.frame));
            }
        });
        pinned
    }

    /// Unpins the pages of a read. Frames that are no longer in use are added to `freed`.
    pub(super) fn unpin(&mut self, pinned: &Pinned, freed: &mut Vec<Frame>) {
        for (number, frame) in pinned {
            let page = self.pages.get_mut(*number).expect("the page was pinned");
            page.pins -= 1;
            if page.is_unused() {
                self.pages.remove(*number);
                freed.push(*frame);
            }
        }
    }

    /// Ends the current epoch, because a flush, drain or stop has to wait for the pages that are
    /// dirty now. Returns its number.
    pub(super) fn close_epoch(&mut self) -> u64 {
        self.epochs.close()
    }

    /// Whether all pages that became dirty in `epoch` or before are written.
    pub(super) fn is_written(&self, epoch: u64) -> bool {
        self.epochs.counts.is_empty() || self.epochs.first() > epoch
    }

    /// Numbers of the pages of a range that are being written.
    pub(super) fn being_written(&self, pages: Range<u64>) -> Vec<u64> {
        let here = self.pages.iter(pages).filter(|(_, page)| page.written.is_some());
        here.map(|(number, _)| number).collect()
    }

    /// Marks a page as not dirty.
    pub(super) fn undirtied(&mut self, page: u64) {
        let page = self.pages.get_mut(page).expect("it is here");
        if let Some(epoch) = page.dirty.take() {
            self.epochs.remove(epoch);
        }
    }

    /// Whether all pages that became dirty in `epoch` or before are written or being written.
    pub(super) fn is_taken(&self, epoch: u64) -> bool {
        self.pages.values().all(|page| page.dirty.is_none_or(|dirty| dirty > epoch))
    }

    /// Oldest epoch of the data that is being written from pages of a range, that is, in which that
    /// data became dirty; `None` if no page of the range is being written.
    pub(super) fn oldest_written(&self, pages: Range<u64>) -> Option<u64> {
        self.pages.iter(pages).filter_map(|(_, page)| page.written).min()
    }

    /// Pages that became dirty in `epoch` or before, and are dirty or being written.
    pub(super) fn of_epoch(&self, epoch: u64) -> impl Iterator<Item = (u64, &Page)> + Clone {
        let of = move |page: &Page| {
            [page.dirty, page.written].into_iter().flatten().any(|its| its <= epoch)
        };
        self.pages.iter(0..u64::MAX).filter(move |(_, page)| of(page))
    }

    pub(super) fn is_being_written(&self) -> bool {
        self.pages.values().any(|page| page.written.is_some())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    fn free(&mut self, pages: Range<u64>, freed: &mut Vec<Frame>) {
        let here = self.pages.iter(pages).filter(|(_, page)| page.is_unused());
        let numbers: SmallVec<[u64; 8]> = here.map(|(number, _)| number).collect();
        for number in numbers {
            let page = self.pages.remove(number).expect("the page is resident");
            freed.push(page.frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pages: Range<u64>) -> Resident {
        let mut resident = Resident::default();
        for page in pages.clone() {
            resident.fill(page, || Frame(100 + page as u32));
        }
        resident.filled(pages);
        resident
    }

    fn again(resident: &mut Resident, page: u64) {
        resident.fill(page, || unreachable!("it has a frame"));
        resident.filled(page..page + 1);
    }

    #[test]
    fn a_page_keeps_its_frame_while_it_is_filled() {
        let (mut resident, mut freed) = (with(3..4), Vec::new());
        resident.taken(3..4);
        resident.fill(3, || unreachable!("it has a frame"));
        resident.written(3..4, &mut freed);
        assert!(freed.is_empty(), "a write fills it");
        resident.filled(3..4);
        let epoch = resident.close_epoch();
        assert!(!resident.is_written(epoch));
    }

    #[test]
    fn a_flush_waits_for_what_was_dirty_before_it_and_for_nothing_else() {
        let (mut resident, mut freed) = (with(0..2), Vec::new());
        let first = resident.close_epoch();
        resident.fill(7, || Frame(7));
        resident.filled(7..8);
        let second = resident.close_epoch();
        assert!(!resident.is_written(first) && !resident.is_written(second));
        resident.taken(0..2);
        // Dirtied again while being written: belongs to a later flush.
        again(&mut resident, 1);
        assert!(!resident.is_written(first));
        resident.written(0..2, &mut freed);
        assert_eq!(freed, [Frame(100)]);
        assert!(resident.is_written(first) && !resident.is_written(second));
        resident.taken(7..8);
        resident.written(7..8, &mut freed);
        assert!(resident.is_written(second));
        resident.taken(1..2);
        resident.written(1..2, &mut freed);
        assert!(resident.is_empty());
        assert_eq!(freed, [Frame(100), Frame(7), Frame(101)]);
    }

    #[test]
    fn a_page_that_could_not_be_written_is_as_old_as_before() {
        let (mut resident, mut freed) = (with(3..4), Vec::new());
        let first = resident.close_epoch();
        resident.taken(3..4);
        again(&mut resident, 3);
        assert_eq!(resident.not_written(3..4, &mut freed), [3]);
        assert!(!resident.is_written(first), "it has the epoch of what was not written");
        assert!(freed.is_empty());
    }

    #[test]
    fn a_page_replaced_below_is_kept_until_the_write_that_waits_is_over() {
        let (mut resident, mut freed) = (with(3..5), Vec::new());
        let epoch = resident.close_epoch();
        resident.taken(3..4);
        resident.replaced(3..5, &mut freed);
        assert_eq!(freed, [Frame(104)], "the other one waits for nothing");
        assert!(resident.get(3).is_none() && resident.within(&(0..9)).next().is_none());
        assert!(!resident.is_written(epoch));
        resident.written(3..4, &mut freed);
        assert!(resident.is_written(epoch) && resident.is_empty());
    }

    #[test]
    fn a_frame_that_a_read_uses_is_not_freed() {
        let (mut resident, mut freed) = (with(3..4), Vec::new());
        resident.taken(3..4);
        let pinned = resident.pin(&(2..5));
        assert_eq!(pinned[..], [(3, Frame(103))]);
        resident.written(3..4, &mut freed);
        assert!(freed.is_empty() && resident.get(3).is_some());
        resident.unpin(&pinned, &mut freed);
        assert_eq!(freed, [Frame(103)]);
    }
}
