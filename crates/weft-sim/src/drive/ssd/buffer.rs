//! Write buffer of a solid-state drive: host pages that are not yet programmed.
//!
//! The host's pages in the order of their programs. A program is known by its number; it leaves the
//! buffer when the die has ended it.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

/// The write buffer.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    /// In pages.
    limit: u64,
    /// Promised room, or here.
    taken: u64,
    /// Pages of the program that is not full yet.
    open: Vec<u64>,
    /// Programs from the oldest that has not ended: its pages, until it has.
    programs: VecDeque<Option<Vec<u64>>>,
    /// The number of the first of these.
    oldest: u64,
    /// Number of times that each page is in the buffer.
    pages: HashMap<u64, u32, BuildHasherDefault<PageHasher>>,
}

impl Buffer {
    pub(super) fn new(limit: u64) -> Self {
        Self {
            limit,
            taken: 0,
            open: Vec::new(),
            programs: VecDeque::new(),
            oldest: 0,
            pages: HashMap::default(),
        }
    }

    /// Sets room aside, when there is some; or when nothing is under way that would make room: an
    /// open program waits for more pages, however small the buffer is.
    pub(super) fn promise(&mut self, pages: u64) -> bool {
        let waits = self.taken == self.open.len() as u64;
        let fits = self.taken + pages <= self.limit || waits;
        if fits {
            self.taken += pages;
        }
        fits
    }

    /// Takes a page in for which room was promised.
    pub(super) fn take(&mut self, page: u64) {
        self.open.push(page);
        *self.pages.entry(page).or_insert(0) += 1;
    }

    /// The pages taken in since the last one are a program; its number.
    pub(super) fn program(&mut self) -> u64 {
        self.programs.push_back(Some(std::mem::take(&mut self.open)));
        self.next_program() - 1
    }

    /// The number that the next program will have.
    pub(super) fn next_program(&self) -> u64 {
        self.oldest + self.programs.len() as u64
    }

    /// Whether all programs before this number have ended.
    pub(super) fn ended_before(&self, number: u64) -> bool {
        self.oldest >= number
    }

    /// A program has ended.
    pub(super) fn end(&mut self, number: u64) {
        let pages = self.programs[(number - self.oldest) as usize].take();
        let pages = pages.expect("a program ends once");
        self.taken -= pages.len() as u64;
        for page in pages {
            let count = self.pages.get_mut(&page).expect("it was taken in");
            *count -= 1;
            if *count == 0 {
                self.pages.remove(&page);
            }
        }
        while let Some(None) = self.programs.front() {
            self.programs.pop_front();
            self.oldest += 1;
        }
    }

    /// Whether a page is here.
    pub(super) fn has(&self, page: u64) -> bool {
        !self.pages.is_empty() && self.pages.contains_key(&page)
    }
}

/// Spreads page numbers: multiplication by 2^64 over the golden ratio. Nothing is ever listed in
/// the order of these hashes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PageHasher(u64);

impl Hasher for PageHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_leave_with_their_program_in_any_order() {
        let mut buffer = Buffer::new(8);
        for page in [1, 2, 3, 1, 5, 6] {
            assert!(buffer.promise(1));
            buffer.take(page);
            if page == 2 || page == 1 && buffer.next_program() == 1 {
                buffer.program();
            }
        }
        assert_eq!(buffer.next_program(), 2);
        assert!(!buffer.promise(3) && buffer.promise(2));
        buffer.end(1);
        assert!(buffer.has(1) && !buffer.has(3) && !buffer.ended_before(1));
        buffer.end(0);
        assert!(!buffer.has(1) && buffer.has(5) && buffer.ended_before(2));
        assert!(!buffer.ended_before(3));
    }
}
