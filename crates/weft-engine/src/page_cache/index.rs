//! Page index of a file: which pages are dirty, and which are under writeback.
//!
//! Each page of 4 KiB has two flags: *dirty* (newer in memory than on the device) and *under
//! writeback* (a write of it is in flight). A page that is written to while it is under writeback
//! has both, and will be written once more. A third flag marks the pages that an fsync must write:
//! those that were dirty when it was called. Thus a concurrent writer cannot prolong the fsync
//! without end.
//!
//! ```text
//!              write                 take                     written
//!     clean ──────────▶ dirty ──────────────▶ writeback ──────────────────▶ clean
//!                         ▲                       │ write
//!                         │ written               ▼
//!                         └──────────────── writeback, dirty
//!     discard: dirty ▶ clean; writeback, dirty ▶ writeback
//! ```
//!
//! The flags of 64 pages are stored as three words of bits, unless all of these pages are clean. A
//! stream of 100 MiB takes 400 entries, 25,600 scattered pages take at most one entry each, and
//! entries are never merged or split. A clean page is not in the index, even if it is in memory:
//! *resident* pages are not modelled, and reads are assumed to hit.
//!
//! Source   writeback.md §3; experiments.md §1.7

use std::ops::Range;

use super::sparse::{Sparse, bits_within};

/// State of one page, as the combination of its two flags *dirty* and *under writeback*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageState {
    /// The page has the same content as on the device, or is not in memory at all.
    Clean,
    /// The page is newer in memory than on the device.
    Dirty,
    /// A write of the page is in flight.
    Writeback,
    /// A write of the page is in flight, and the page was written to since.
    WritebackDirty,
}

/// Numbers of pages that a truncation or discard affected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Discarded {
    /// Number of dirty pages that were dropped and will not be written.
    pub dirty: u64,
    /// Number of pages under writeback. The kernel waits for these before it continues.
    pub under_writeback: u64,
}

/// Result of taking the next marked pages for an fsync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Marked {
    /// Pages to write. They are under writeback from now on.
    Pages(Range<u64>),
    /// The first marked page, which has this number, is under writeback, and can be written when
    /// that write completes.
    Busy(u64),
    /// No page is marked.
    Nothing,
}

/// Page state of one file.
#[derive(Clone, Debug, Default)]
pub struct Pages {
    words: Sparse<Word>,
    dirty: u64,
    writeback: u64,
}

/// State of 64 pages, one bit per page. The number of the first page is a multiple of 64.
#[derive(Clone, Copy, Debug, Default)]
struct Word {
    dirty: u64,
    writeback: u64,
    marked: u64,
}

impl Pages {
    /// Number of dirty pages, including those that are under writeback too.
    #[must_use]
    pub const fn dirty(&self) -> u64 {
        self.dirty
    }

    /// Number of pages under writeback, including those that are dirty too.
    #[must_use]
    pub const fn writeback(&self) -> u64 {
        self.writeback
    }

    /// State of the page with the number `page`.
    #[must_use]
    pub fn state(&self, page: u64) -> PageState {
        let word = self.words.get(page / 64).copied().unwrap_or_default();
        let bit = 1 << (page % 64);
        match (word.writeback & bit != 0, word.dirty & bit != 0) {
            (false, false) => PageState::Clean,
            (false, true) => PageState::Dirty,
            (true, false) => PageState::Writeback,
            (true, true) => PageState::WritebackDirty,
        }
    }

    /// Marks pages dirty. Returns how many of them were not dirty before.
    pub fn write(&mut self, pages: Range<u64>) -> u64 {
        let mut new = 0;
        for (number, bits) in words_of(pages) {
            let word = self.words.get_or_insert_with(number, Word::default);
            new += ones(bits & !word.dirty);
            word.dirty |= bits;
        }
        self.dirty += new;
        new
    }

    /// Takes and returns the first run of pages within `within`, at most `pages_max`, that are
    /// dirty and not under writeback. The pages are under writeback from now on. `None` if there is
    /// no such page.
    pub fn take(&mut self, within: Range<u64>, pages_max: u64) -> Option<Range<u64>> {
        let run = self.run(within, pages_max, |word| word.dirty & !word.writeback)?;
        self.start(run.clone());
        Some(run)
    }

    /// Whether any page is marked.
    #[must_use]
    pub fn has_marked(&self) -> bool {
        self.first(0..u64::MAX, |word| word.marked).is_some()
    }

    /// Like [`take`](Self::take), for marked pages; skips pages that are under writeback. `None` if
    /// there is no such page.
    pub(crate) fn take_marked_free(
        &mut self,
        within: Range<u64>,
        pages_max: u64,
    ) -> Option<Range<u64>> {
        let run = self.run(within, pages_max, |word| word.marked & !word.writeback)?;
        self.start(run.clone());
        Some(run)
    }

    /// Ends the writeback of these pages.
    ///
    /// # Panics
    /// Panics if a page was not under writeback: the completion is unexpected.
    pub fn written(&mut self, pages: Range<u64>) {
        assert!(pages.start < pages.end, "a completion has pages");
        for (number, bits) in words_of(pages) {
            let word = self.words.get_mut(number).expect("a page under writeback has its word");
            assert!(word.writeback & bits == bits, "pages that are not under writeback are done");
            word.writeback &= !bits;
            self.writeback -= ones(bits);
            if word.is_clean() {
                self.words.remove(number);
            }
        }
    }

    /// Clears the dirty and marked flags of the pages of a range. Returns the number of pages that
    /// were dirty, and the number of pages under writeback.
    pub fn discard(&mut self, within: Range<u64>) -> Discarded {
        let mut discarded = Discarded::default();
        let numbers = self.words.numbers(within.start / 64..within.end.div_ceil(64));
        for number in numbers.collect::<Vec<_>>() {
            let bits = bits_within(number, &within);
            let word = self.words.get_mut(number).expect("listed just before");
            discarded.dirty += ones(word.dirty & bits);
            discarded.under_writeback += ones(word.writeback & bits);
            word.dirty &= !bits;
            word.marked &= !bits;
            if word.is_clean() {
                self.words.remove(number);
            }
        }
        self.dirty -= discarded.dirty;
        discarded
    }

    /// Marks the dirty pages of a range for an fsync. Returns the number of marked pages in the
    /// range.
    pub fn mark(&mut self, within: &Range<u64>) -> u64 {
        let mut count = 0;
        self.words.each_mut(within.start / 64..within.end.div_ceil(64), |number, word| {
            let bits = bits_within(number, within);
            word.marked |= word.dirty & bits;
            count += ones(word.marked & bits);
        });
        count
    }

    /// Takes the next run of marked pages within `within` for an fsync, at most `pages_max`.
    /// Returns the run, or the reason for which there is none.
    pub(crate) fn take_marked(&mut self, within: Range<u64>, pages_max: u64) -> Marked {
        let Some(first) = self.first(within.clone(), |word| word.marked) else {
            return Marked::Nothing;
        };
        match self.run(first..within.end, pages_max, |word| word.marked & !word.writeback) {
            Some(run) if run.start == first => {
                self.start(run.clone());
                Marked::Pages(run)
            }
            _ => Marked::Busy(first),
        }
    }

    /// The first dirty page from `first` on, which may be under writeback too; `None` if there is
    /// none.
    #[must_use]
    pub fn next_dirty(&self, first: u64) -> Option<u64> {
        self.first(first..u64::MAX, |word| word.dirty)
    }

    /// The first page within `within` that is under writeback; `None` if there is none.
    #[must_use]
    pub fn next_writeback(&self, within: Range<u64>) -> Option<u64> {
        self.first(within, |word| word.writeback)
    }

    /// Changes dirty pages to under writeback.
    fn start(&mut self, pages: Range<u64>) {
        for (number, bits) in words_of(pages) {
            let word = self.words.get_mut(number).expect("a dirty page has its word");
            debug_assert!(word.dirty & bits == bits && word.writeback & bits == 0);
            word.dirty &= !bits;
            word.marked &= !bits;
            word.writeback |= bits;
            self.dirty -= ones(bits);
            self.writeback += ones(bits);
        }
    }

    fn first(&self, within: Range<u64>, of: impl Fn(&Word) -> u64) -> Option<u64> {
        if within.is_empty() {
            return None;
        }
        let words = self.words.iter(within.start / 64..within.end.div_ceil(64));
        words
            .map(|(number, word)| (number, of(word) & bits_within(number, &within)))
            .find(|&(_, bits)| bits != 0)
            .map(|(number, bits)| number * 64 + u64::from(bits.trailing_zeros()))
    }

    fn run(
        &self,
        within: Range<u64>,
        pages_max: u64,
        of: impl Fn(&Word) -> u64,
    ) -> Option<Range<u64>> {
        let first = self.first(within.clone(), &of)?;
        let end = within.end.min(first.saturating_add(pages_max));
        let mut next = first;
        for (number, word) in self.words.iter(first / 64..end.div_ceil(64)) {
            if number != next / 64 {
                break;
            }
            let offset = next % 64;
            let length = u64::from((of(word) >> offset).trailing_ones());
            next += length;
            if offset + length < 64 {
                break;
            }
        }
        (first < end).then_some(first..next.min(end))
    }
}

impl Word {
    const fn is_clean(self) -> bool {
        self.dirty | self.writeback == 0
    }
}

fn ones(bits: u64) -> u64 {
    u64::from(bits.count_ones())
}

/// Words that contain pages of a range, each with its number and the bitmap of its pages in the
/// range.
fn words_of(pages: Range<u64>) -> impl Iterator<Item = (u64, u64)> {
    (pages.start / 64..pages.end.div_ceil(64))
        .map(move |number| (number, bits_within(number, &pages)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Model of a page index that has one entry per page.
    #[derive(Clone, Default)]
    struct Model(BTreeMap<u64, [bool; 3]>);

    impl Model {
        fn take(&mut self, within: Range<u64>, most: u64, of: fn(&[bool; 3]) -> bool) -> Vec<u64> {
            let pages = within.filter(|page| self.0.get(page).is_some_and(of));
            let mut run: Vec<u64> = Vec::new();
            for page in pages {
                if run.last().is_some_and(|last| last + 1 != page) || run.len() as u64 == most {
                    break;
                }
                run.push(page);
            }
            for page in &run {
                self.0.insert(*page, [false, true, false]);
            }
            run
        }

        fn count(&self, which: usize) -> u64 {
            self.0.values().filter(|bits| bits[which]).count() as u64
        }
    }

    fn compare(pages: &Pages, model: &Model, last: u64) {
        for page in 0..last {
            let [dirty, writeback, _] = model.0.get(&page).copied().unwrap_or_default();
            let expected = match (writeback, dirty) {
                (false, false) => PageState::Clean,
                (false, true) => PageState::Dirty,
                (true, false) => PageState::Writeback,
                (true, true) => PageState::WritebackDirty,
            };
            assert_eq!(pages.state(page), expected, "page {page}");
        }
        assert_eq!((pages.dirty(), pages.writeback()), (model.count(0), model.count(1)));
        let dirty = model.0.iter().find(|(_, bits)| bits[0]).map(|(&page, _)| page);
        assert_eq!(pages.next_dirty(0), dirty);
        let writeback = model.0.iter().find(|(_, bits)| bits[1]).map(|(&page, _)| page);
        assert_eq!(pages.next_writeback(0..last), writeback);
        assert!(pages.words.values().all(|word| !word.is_clean()), "clean words are removed");
    }

    /// Generator of pseudorandom numbers; equal seeds give equal numbers.
    fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        move |below| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        }
    }

    #[test]
    fn it_agrees_with_a_model_of_single_pages() {
        const LAST: u64 = 300;
        for seed in 1..400 {
            let mut number = numbers(seed);
            let (mut pages, mut model) = (Pages::default(), Model::default());
            for _ in 0..60 {
                let start = number(LAST - 1);
                let longest = [1, 5, 64, 200][usize::try_from(number(4)).unwrap()];
                let range = start..(start + 1 + number(longest)).min(LAST);
                let most = 1 + number(90);
                match number(10) {
                    0..4 => {
                        let new = pages.write(range.clone());
                        let before = model.count(0);
                        for page in range {
                            model.0.entry(page).or_default()[0] = true;
                        }
                        assert_eq!(new, model.count(0) - before);
                    }
                    4..6 => {
                        let taken = pages.take(range.clone(), most).unwrap_or(0..0);
                        let expected = model.take(range, most, |bits| bits[0] && !bits[1]);
                        assert_eq!(taken.collect::<Vec<_>>(), expected);
                    }
                    6..8 => {
                        let Some(first) = pages.next_writeback(range.start..LAST) else { continue };
                        let mut end = first;
                        while end < range.end.max(first + 1)
                            && model.0.get(&end).is_some_and(|bits| bits[1])
                        {
                            model.0.get_mut(&end).unwrap()[1] = false;
                            end += 1;
                        }
                        pages.written(first..end);
                    }
                    8 => {
                        // Discards are rare, or few pages would be left.
                        let first = start.max(LAST / 2);
                        let expected = Discarded {
                            dirty: model.0.range(first..).filter(|(_, bits)| bits[0]).count()
                                as u64,
                            under_writeback: model.0.range(first..).filter(|(_, b)| b[1]).count()
                                as u64,
                        };
                        assert_eq!(pages.discard(first..u64::MAX), expected);
                        for (_, bits) in model.0.range_mut(first..) {
                            (bits[0], bits[2]) = (false, false);
                        }
                    }
                    _ => {
                        let mut count = 0;
                        for (_, bits) in model.0.range_mut(range.clone()) {
                            bits[2] |= bits[0];
                            count += u64::from(bits[2]);
                        }
                        assert_eq!(pages.mark(&range), count);
                        let first = model.0.range(range.clone()).find(|(_, bits)| bits[2]);
                        let first = first.map(|(&page, bits)| (page, bits[1]));
                        let taken = pages.take_marked(range.clone(), most);
                        let expected = match first {
                            None => Marked::Nothing,
                            Some((page, true)) => Marked::Busy(page),
                            Some(_) => {
                                let run = model.take(range, most, |bits| bits[2] && !bits[1]);
                                Marked::Pages(run[0]..run[run.len() - 1] + 1)
                            }
                        };
                        assert_eq!(taken, expected);
                    }
                }
                model.0.retain(|_, bits| bits[0] || bits[1]);
                compare(&pages, &model, LAST);
            }
        }
    }

    #[test]
    #[should_panic(expected = "page 7")]
    fn the_comparison_sees_a_page_that_was_forgotten() {
        let (mut pages, mut model) = (Pages::default(), Model::default());
        pages.write(0..7);
        (0..8).for_each(|page| model.0.entry(page).or_default()[0] = true);
        compare(&pages, &model, 10);
    }

    #[test]
    fn every_way_through_the_states_of_one_page() {
        // All sequences of six actions (write, take, written, discard) that are possible.
        for sequence in 0..4_u32.pow(6) {
            let mut pages = Pages::default();
            let mut state = PageState::Clean;
            for step in 0..6 {
                use PageState::{Clean, Dirty, Writeback, WritebackDirty};
                let action = sequence / 4_u32.pow(step) % 4;
                state = match (action, state) {
                    (0, Clean | Dirty) => Dirty,
                    (0, Writeback | WritebackDirty) => WritebackDirty,
                    (1, Dirty) => Writeback,
                    (2, Writeback) => Clean,
                    (2, WritebackDirty) => Dirty,
                    (2, Clean | Dirty) => continue,
                    (3, Clean | Dirty) => Clean,
                    (3, Writeback | WritebackDirty) => Writeback,
                    (_, other) => other,
                };
                match action {
                    0 => _ = pages.write(70..71),
                    1 => _ = pages.take(0..100, 9),
                    2 => pages.written(70..71),
                    _ => _ = pages.discard(3..u64::MAX),
                }
                assert_eq!(pages.state(70), state, "{sequence}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "not under writeback")]
    fn a_completion_of_a_page_that_is_not_under_writeback_is_a_bug() {
        let mut pages = Pages::default();
        pages.write(0..4);
        pages.take(0..2, 9);
        pages.written(1..3);
    }

    #[test]
    fn a_stream_takes_an_entry_for_64_pages() {
        let mut pages = Pages::default();
        (0..25_600).for_each(|page| _ = pages.write(page..page + 1));
        assert_eq!(pages.words.values().count(), 400);
        assert_eq!(pages.take(0..u64::MAX, 25_600), Some(0..25_600));
        pages.written(0..25_600);
        assert!(pages.words.is_empty());
        assert_eq!(pages.write(u64::MAX - 3..u64::MAX), 3, "up to the last page there can be");
        assert_eq!(pages.take(0..u64::MAX, 100), Some(u64::MAX - 3..u64::MAX));
    }
}
