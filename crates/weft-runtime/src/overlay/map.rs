//! Map of an overlay: the granules that the overlay has, and those that are not durable yet.
//!
//! Only pages with at least one bit set are in memory. A bit is set once its granule has been
//! written. Its page is then *pending* until a flush has made first the data durable and then the
//! page.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::format::{GRANULE, PAGE, PAGE_GRANULES};

#[derive(Clone, Debug, Default)]
pub(super) struct Map {
    pages: BTreeMap<u64, Box<[u8; PAGE]>>,
    pending: BTreeSet<u64>,
    granules: u64,
}

impl Map {
    /// Adds a page as read from disk, for a member of `granules` granules.
    ///
    /// Errors    a bit is set for a granule beyond the end of the member; the error is that granule
    pub(super) fn load(&mut self, page: u64, bytes: &[u8; PAGE], granules: u64) -> Result<(), u64> {
        let first = page * PAGE_GRANULES;
        let mut count = 0;
        for (byte, at) in bytes.iter().zip(0_u64..).filter(|(byte, _)| **byte != 0) {
            let highest = first + at * 8 + u64::from(7 - byte.leading_zeros());
            if highest >= granules {
                return Err(highest);
            }
            count += u64::from(byte.count_ones());
        }
        if count > 0 {
            self.granules += count;
            self.pages.insert(page, Box::new(*bytes));
        }
        Ok(())
    }

    pub(super) fn has(&self, granule: u64) -> bool {
        let (page, byte, bit) = place(granule);
        self.pages.get(&page).is_some_and(|page| page[byte] & bit != 0)
    }

    /// Number of granules that the overlay has.
    pub(super) fn granules(&self) -> u64 {
        self.granules
    }

    /// Numbers of the map's pages that would get their first bit if all granules of a byte range
    /// were set.
    pub(super) fn pages_new(&self, range: &Range<u64>) -> Vec<u64> {
        let pages = pages_of(range);
        pages.filter(|page| !self.pages.contains_key(page)).collect()
    }

    /// Sets all granules that a range of bytes touches.
    pub(super) fn set(&mut self, range: &Range<u64>) {
        for granule in granules_of(range) {
            let (page, byte, bit) = place(granule);
            let bytes = self.pages.entry(page).or_insert_with(|| Box::new([0; PAGE]));
            if bytes[byte] & bit == 0 {
                bytes[byte] |= bit;
                self.granules += 1;
                self.pending.insert(page);
            }
        }
    }

    /// Whether a crash could lose a granule of a byte range, because a page with its bit is
    /// pending.
    pub(super) fn is_pending(&self, range: &Range<u64>) -> bool {
        pages_of(range).any(|page| self.pending.contains(&page))
    }

    /// Takes the pending pages, with their numbers and present content, for a flush to write. The
    /// data of their granules has been written already.
    pub(super) fn take_pending(&mut self) -> Vec<(u64, Box<[u8; PAGE]>)> {
        let pending = std::mem::take(&mut self.pending);
        pending.into_iter().map(|page| (page, self.pages[&page].clone())).collect()
    }

    /// Splits a range of bytes, in order, into parts that the overlay has (true) and parts that it
    /// does not have (false).
    pub(super) fn runs(&self, range: &Range<u64>) -> Vec<(Range<u64>, bool)> {
        let mut runs: Vec<(Range<u64>, bool)> = Vec::new();
        for granule in granules_of(range) {
            let start = (granule * GRANULE).max(range.start);
            let end = ((granule + 1) * GRANULE).min(range.end);
            let here = self.has(granule);
            match runs.last_mut() {
                Some((run, kind)) if *kind == here => run.end = end,
                _ => runs.push((start..end, here)),
            }
        }
        runs
    }

    /// Byte ranges of all granules that the overlay has, each at most `bytes_max` long, which is a
    /// multiple of the granule.
    pub(super) fn all(&self, bytes_max: u64) -> Vec<Range<u64>> {
        let mut all: Vec<Range<u64>> = Vec::new();
        for (page, bytes) in &self.pages {
            for (byte, at) in bytes.iter().zip(0_u64..).filter(|(byte, _)| **byte != 0) {
                for bit in (0..8).filter(|bit| byte >> bit & 1 == 1) {
                    let start = (page * PAGE_GRANULES + at * 8 + bit) * GRANULE;
                    match all.last_mut() {
                        Some(run) if run.end == start && run.end - run.start < bytes_max => {
                            run.end += GRANULE;
                        }
                        _ => all.push(start..start + GRANULE),
                    }
                }
            }
        }
        all
    }
}

fn place(granule: u64) -> (u64, usize, u8) {
    let within = granule % PAGE_GRANULES;
    let byte = usize::try_from(within / 8).expect("a page is 4096 bytes");
    (granule / PAGE_GRANULES, byte, 1 << (within % 8))
}

fn granules_of(range: &Range<u64>) -> Range<u64> {
    range.start / GRANULE..range.end.div_ceil(GRANULE)
}

fn pages_of(range: &Range<u64>) -> Range<u64> {
    let granules = granules_of(range);
    granules.start / PAGE_GRANULES..granules.end.div_ceil(PAGE_GRANULES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_cover_a_range_and_tell_here_from_there() {
        let mut map = Map::default();
        map.set(&(5000..9000));
        map.set(&(4096 * 32_767..4096 * 32_769));
        assert_eq!(map.granules(), 4);
        let runs = map.runs(&(512..20_000));
        assert_eq!(runs, [(512..4096, false), (4096..12_288, true), (12_288..20_000, false)]);
        let edge = 4096 * 32_768;
        assert_eq!(map.runs(&(edge - 4096..edge + 4096)), [(edge - 4096..edge + 4096, true)]);
        assert_eq!(map.all(1 << 20), [4096..12_288, edge - 4096..edge + 4096]);
        assert_eq!(map.all(4096).len(), 4);
    }

    #[test]
    fn a_page_is_pending_until_it_was_taken() {
        let mut map = Map::default();
        assert_eq!(map.pages_new(&(0..4096)), [0]);
        map.set(&(0..4096));
        assert!(map.is_pending(&(8192..8704)) && map.pages_new(&(0..4096)).is_empty());
        let pages = map.take_pending();
        assert_eq!((pages.len(), pages[0].0, pages[0].1[0]), (1, 0, 1));
        map.set(&(0..4096));
        assert!(!map.is_pending(&(0..4096)), "the granule was set already");
    }

    #[test]
    fn bits_beyond_the_member_are_refused() {
        let mut page = [0; PAGE];
        page[1] = 0b10;
        assert_eq!(Map::default().load(0, &page, 10), Ok(()));
        assert_eq!(Map::default().load(0, &page, 9), Err(9));
        assert_eq!(Map::default().load(3, &page, 10), Err(3 * PAGE_GRANULES + 9));
    }
}
