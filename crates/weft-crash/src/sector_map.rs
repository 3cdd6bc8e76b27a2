//! Map from sectors to values, stored a page of eight sectors at a time.
//!
//! Requests cover adjacent sectors, mostly whole pages of eight, and one search finds all sectors
//! of a page.

use std::collections::BTreeMap;
use std::ops::Range;

/// Map from sectors to values, in the order of sectors. A sector may have no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SectorMap<T> {
    pages: BTreeMap<u64, Page<T>>,
}

type Page<T> = Box<[Option<T>; PAGE]>;

const PAGE: usize = 8;

impl<T> Default for SectorMap<T> {
    fn default() -> Self {
        Self { pages: BTreeMap::new() }
    }
}

fn place(sector: u64) -> (u64, usize) {
    (sector / PAGE as u64, (sector % PAGE as u64) as usize)
}

/// Part of a range of sectors that lies in page number `page`: first sector of the part, and the
/// indexes of the part within the page. The indexes are empty if no part lies in the page.
fn part(page: u64, sectors: &Range<u64>) -> (u64, Range<usize>) {
    let first = page * PAGE as u64;
    let start = sectors.start.max(first);
    let end = sectors.end.clamp(first, first + PAGE as u64).max(start);
    (start, (start - first) as usize..(end - first) as usize)
}

fn pages(sectors: &Range<u64>) -> Range<u64> {
    sectors.start / PAGE as u64..sectors.end.div_ceil(PAGE as u64)
}

impl<T> SectorMap<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    pub(crate) fn get(&self, sector: u64) -> Option<&T> {
        let (page, index) = place(sector);
        self.pages.get(&page)?[index].as_ref()
    }

    pub(crate) fn get_mut(&mut self, sector: u64) -> Option<&mut T> {
        let (page, index) = place(sector);
        self.pages.get_mut(&page)?[index].as_mut()
    }

    pub(crate) fn remove(&mut self, sector: u64) {
        let (page, index) = place(sector);
        let Some(entries) = self.pages.get_mut(&page) else { return };
        entries[index] = None;
        if entries.iter().all(Option::is_none) {
            self.pages.remove(&page);
        }
    }

    /// Entries in a range of sectors, in order: sector and value. Sectors without a value are left
    /// out.
    pub(crate) fn range(&self, sectors: Range<u64>) -> impl Iterator<Item = (u64, &T)> {
        self.pages.range(pages(&sectors)).flat_map(move |(page, entries)| {
            let (first, places) = part(*page, &sectors);
            (first..)
                .zip(&entries[places])
                .filter_map(|(sector, entry)| Some((sector, entry.as_ref()?)))
        })
    }

    /// Entries of all sectors of a range, in order: sector and value. Sectors without a value get a
    /// new one, the result of `new`.
    pub(crate) fn all_of(
        &mut self,
        sectors: Range<u64>,
        new: impl Fn() -> T,
    ) -> impl Iterator<Item = (u64, &mut T)> {
        let wanted = pages(&sectors);
        if (self.pages.range(wanted.clone()).count() as u64) < wanted.end - wanted.start {
            for page in wanted.clone() {
                self.pages.entry(page).or_insert_with(|| Box::new([const { None }; PAGE]));
            }
        }
        let entries = self.pages.range_mut(wanted).flat_map(move |(page, entries)| {
            let (first, places) = part(*page, &sectors);
            (first..).zip(&mut entries[places])
        });
        entries.map(move |(sector, entry)| (sector, entry.get_or_insert_with(&new)))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.range(0..u64::MAX / 2)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.pages.values_mut().flat_map(|entries| entries.iter_mut().flatten())
    }

    /// Keeps the entries for which `wanted` is true; `wanted` may change them.
    pub(crate) fn retain(&mut self, mut wanted: impl FnMut(u64, &mut T) -> bool) {
        self.pages.retain(|page, entries| {
            for (sector, entry) in (page * PAGE as u64..).zip(entries.iter_mut()) {
                if entry.as_mut().is_some_and(|value| !wanted(sector, value)) {
                    *entry = None;
                }
            }
            entries.iter().any(Option::is_some)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_map_of_sectors() {
        let mut map = SectorMap::default();
        for (sector, value) in map.all_of(5..19, || 0) {
            *value = sector * 10;
        }
        assert!(map.range(0..8).map(|(sector, value)| (sector, *value)).eq([
            (5, 50),
            (6, 60),
            (7, 70)
        ]));
        assert_eq!(map.iter().count(), 14);
        assert_eq!((map.get(4), map.get(18), map.get(19)), (None, Some(&180), None));
        map.remove(6);
        map.retain(|sector, value| {
            *value += 1;
            sector % 2 == 0
        });
        let left: Vec<u64> = map.iter().map(|(sector, _)| sector).collect();
        assert_eq!(left, [8, 10, 12, 14, 16, 18]);
        assert_eq!(map.get_mut(8), Some(&mut 81));
        assert_eq!(map.all_of(7..9, || 3).map(|(_, value)| *value).collect::<Vec<_>>(), [3, 81]);
        map.retain(|_, _| false);
        assert!(map.is_empty());
    }
}
