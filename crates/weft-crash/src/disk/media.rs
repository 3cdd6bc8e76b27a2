//! Stable media of a simulated member: its durable sectors, page by page.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Sectors of a page.
pub(super) const PAGE_SECTORS: u64 = 8;

/// Durable content of a disk. Storage is sparse: a page that was never written reads as zeros. A
/// clone shares its pages.
#[derive(Clone, Debug, Default)]
pub(super) struct Media {
    /// Pages of eight sectors each, by page number. All sectors of a page are stored with the same
    /// number of bytes: 512, or as many as the `PayloadMode` of the disk says.
    pub(super) pages: BTreeMap<u64, Arc<[u8]>>,
}

impl Media {
    /// Content from `sector` to `stop`, which must be on one page, with `len` bytes per sector;
    /// `None` if nothing was written to the page.
    pub(super) fn get(&self, sector: u64, stop: u64, len: usize) -> Option<&[u8]> {
        let start = (sector % PAGE_SECTORS) as usize * len;
        let bytes = (stop - sector) as usize * len;
        self.pages.get(&(sector / PAGE_SECTORS)).map(|page| &page[start..start + bytes])
    }

    pub(super) fn put(&mut self, sector: u64, bytes: &[u8]) {
        self.put_all([(sector, bytes)].into_iter());
    }

    /// Stores contents, given as sector number and bytes in ascending order; each page is looked up
    /// once.
    pub(super) fn put_all<'a>(&mut self, contents: impl Iterator<Item = (u64, &'a [u8])>) {
        let mut contents = contents.peekable();
        while let Some((first, _)) = contents.peek().copied() {
            let number = first / PAGE_SECTORS;
            let in_page = |(sector, _): &(u64, &[u8])| sector / PAGE_SECTORS == number;
            let len = contents.peek().map_or(0, |(_, bytes)| bytes.len());
            let zero = || Arc::from(vec![0; len * PAGE_SECTORS as usize]);
            let page = Arc::make_mut(self.pages.entry(number).or_insert_with(zero));
            while let Some((sector, bytes)) = contents.next_if(in_page) {
                let start = (sector % PAGE_SECTORS) as usize * len;
                page[start..start + len].copy_from_slice(bytes);
            }
        }
    }
}
