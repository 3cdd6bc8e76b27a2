//! Memory for the strips of a measurement.
//!
//! The memory is contiguous, on huge pages if the kernel provides them: with pages of 4 KiB a
//! measurement from DRAM would include address translation.

use weft_units::rng::Rng;

/// Memory for strips, filled with random bytes.
pub(super) struct Arena {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Arena {
    /// Allocates the memory and writes all of it.
    pub(super) fn new(len: usize) -> Self {
        let len = len.next_multiple_of(HUGE_PAGE);
        // Zeroed memory consists of fresh pages, which were not touched yet and can still become
        // huge pages.
        let mut bytes = vec![0u8; len + HUGE_PAGE];
        let start = bytes.as_ptr().align_offset(HUGE_PAGE);
        let arena = &mut bytes[start..start + len];
        let address = arena.as_mut_ptr().cast();
        // SAFETY: the range is memory of the vector, which lives longer than the call; the advice
        // changes how it is mapped and not what it holds.
        let advised =
            unsafe { rustix::mm::madvise(address, len, rustix::mm::Advice::LinuxHugepage) };
        // An error is ignored: a kernel without huge pages is measured with small ones.
        let _ = advised;
        let mut rng = Rng::new(1);
        for word in arena.as_chunks_mut::<8>().0 {
            *word = rng.next_u64().to_le_bytes();
        }
        Self { bytes, start, len }
    }

    pub(super) fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

/// Size of a huge page of x86-64, and of aarch64 with small pages of 4 KiB.
const HUGE_PAGE: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arenas_are_aligned_and_full() {
        let mut arena = Arena::new(3 << 20);
        let bytes = arena.bytes();
        assert_eq!(bytes.len(), 4 << 20);
        assert_eq!(bytes.as_ptr().align_offset(HUGE_PAGE), 0);
        let (first, second) = bytes.split_at(2 << 20);
        assert!(first != second && bytes.chunks(64).all(|line| line.iter().any(|byte| *byte != 0)));
    }
}
