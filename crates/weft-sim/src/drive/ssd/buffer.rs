//! Write buffer of a solid-state drive: host pages that are not yet programmed.
//!
//! The buffer holds pages from the host in the order in which they will be programmed. Each program
//! of the flash has a number, and its pages leave the buffer when the die has completed it.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

/// Write buffer of a solid-state drive.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    /// Size of the buffer in pages.
    limit: u64,
    /// Number of pages for which room was reserved, including those in the buffer.
    taken: u64,
    /// Pages of the next program, which is not full yet.
    open: Vec<u64>,
    /// Pages of each program, beginning with the oldest one that has not completed; `None` for
    /// completed programs.
    programs: VecDeque<Option<Vec<u64>>>,
    /// Number of the first program in `programs`.
    oldest: u64,
    /// By page: how many times it is in the buffer.
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

    /// Reserves room for pages. Returns false if there is too little room and a program in progress
    /// will free some. Without a program in progress the room is granted even beyond the limit,
    /// because the open program needs more pages to become full, however small the buffer is.
    pub(super) fn promise(&mut self, pages: u64) -> bool {
        let waits = self.taken == self.open.len() as u64;
        let fits = self.taken + pages <= self.limit || waits;
        if fits {
            self.taken += pages;
        }
        fits
    }

    /// Adds a page for which room was reserved.
    pub(super) fn take(&mut self, page: u64) {
        self.open.push(page);
        *self.pages.entry(page).or_insert(0) += 1;
    }

    /// Makes a program of all pages that were added since the last one. Returns the number of the
    /// program.
    pub(super) fn program(&mut self) -> u64 {
        self.programs.push_back(Some(std::mem::take(&mut self.open)));
        self.next_program() - 1
    }

    /// Number that the next program will have.
    pub(super) fn next_program(&self) -> u64 {
        self.oldest + self.programs.len() as u64
    }

    /// Whether all programs with lower numbers have completed.
    pub(super) fn ended_before(&self, number: u64) -> bool {
        self.oldest >= number
    }

    /// Records that a program has completed.
    pub(super) fn end(&mut self, number: u64) {
        let pages = self.programs[(number - self.oldest) as usize].take();
        let pages = pages.expect("a program ends once");
        self.taken -= pages.len() as u64;
        for page in pages {
            let count = self.pages.get_mut(&page).expect("the page is in the buffer");
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

    /// Whether a page is in the buffer.
    pub(super) fn has(&self, page: u64) -> bool {
        !self.pages.is_empty() && self.pages.contains_key(&page)
    }
}

/// Hasher of page numbers: multiplication by 2^64 divided by the golden ratio. Nothing iterates in
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
