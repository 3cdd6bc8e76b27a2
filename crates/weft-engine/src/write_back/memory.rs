//! Memory of the write-back cache: a frame for each page, and buffers for what is being written.
//!
//! What is written back is copied first, into a *buffer* of frames side by side: so a run of pages
//! is one request whatever frames its pages have, and a page can be written to again at once while
//! the members still read the copy (the kernel's stable pages, without the wait).

use crate::config::{BUFFERS, WriteBackConfig};
use crate::contract::frame::{Frame, Run};

/// Frames of the cache.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    /// Free frames of pages; the last one is next.
    free: Vec<Frame>,
    /// The first frame of the buffers.
    first: u32,
    buffer_pages: u32,
    /// By buffer: runs of it that the volume has not given back, and whether it is taken.
    buffers: [Buffer; BUFFERS as usize],
}

#[derive(Clone, Copy, Debug, Default)]
struct Buffer {
    taken: bool,
    lent: u32,
}

impl Memory {
    /// Memory of a cache from this frame on.
    pub(super) fn new(first: Frame, config: &WriteBackConfig) -> Self {
        let pages = config.pages;
        Self {
            free: (first.0..first.0 + pages).rev().map(Frame).collect(),
            first: first.0 + pages,
            buffer_pages: config.buffer_pages(),
            buffers: [Buffer::default(); BUFFERS as usize],
        }
    }

    /// Frames of pages that are free.
    pub(super) fn free(&self) -> u64 {
        self.free.len() as u64
    }

    /// A frame for a page.
    pub(super) fn take(&mut self) -> Frame {
        self.free.pop().expect("a frame was reserved")
    }

    /// Frames come back.
    pub(super) fn give_back(&mut self, frames: &mut Vec<Frame>) {
        // The last one is next, so that pages side by side get frames side by side again.
        self.free.extend(frames.drain(..).rev());
    }

    /// Pages that fit into a buffer.
    pub(super) const fn buffer_pages(&self) -> u64 {
        self.buffer_pages as u64
    }

    /// Whether a buffer is free.
    pub(super) fn has_buffer(&self) -> bool {
        self.buffers.iter().any(|buffer| !buffer.taken && buffer.lent == 0)
    }

    /// A buffer, if one is free.
    pub(super) fn take_buffer(&mut self) -> Option<Frame> {
        let place = self.buffers.iter().position(|it| !it.taken && it.lent == 0)?;
        self.buffers[place].taken = true;
        Some(Frame(self.first + place as u32 * self.buffer_pages))
    }

    /// A part of a buffer goes to a volume.
    pub(super) fn lend(&mut self, frame: Frame) {
        self.buffer_mut(frame).expect("it is of a buffer").lent += 1;
    }

    /// A part of a buffer comes back. Whether it is one.
    pub(super) fn comes_back(&mut self, run: Run) -> bool {
        let Some(buffer) = self.buffer_mut(run.first) else { return false };
        assert!(buffer.lent > 0, "a part of a buffer comes back once");
        buffer.lent -= 1;
        true
    }

    /// A write is over. Its buffer is free when all parts of it have come back.
    pub(super) fn give_back_buffer(&mut self, frame: Frame) {
        let buffer = self.buffer_mut(frame).expect("it is of a buffer");
        assert!(std::mem::take(&mut buffer.taken), "a buffer was taken");
    }

    /// Whether a volume has a part of a buffer.
    #[cfg(test)]
    pub(super) fn lent(&self) -> bool {
        self.buffers.iter().any(|buffer| buffer.lent > 0)
    }

    fn buffer_mut(&mut self, frame: Frame) -> Option<&mut Buffer> {
        let place = frame.0.checked_sub(self.first)? / self.buffer_pages;
        self.buffers.get_mut(place as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_units::{Bytes, FRAME_BYTES};

    fn config(pages: u64) -> WriteBackConfig {
        WriteBackConfig::of(Bytes(pages * FRAME_BYTES))
    }

    #[test]
    fn a_buffer_is_free_when_the_write_is_over_and_its_memory_is_back() {
        let mut memory = Memory::new(Frame(10), &config(32));
        assert_eq!((memory.free(), memory.buffer_pages()), (32, 2));
        let buffers: Vec<_> = std::iter::from_fn(|| memory.take_buffer()).collect();
        assert_eq!(buffers.len() as u32, BUFFERS);
        assert_eq!(buffers[1], Frame(10 + 32 + 2));
        memory.lend(buffers[1]);
        memory.give_back_buffer(buffers[1]);
        assert!(!memory.has_buffer() && memory.lent(), "a member may still read it");
        assert!(memory.comes_back(Run::new(buffers[1].0, 1)));
        assert_eq!(memory.take_buffer(), Some(buffers[1]));
        assert!(!memory.comes_back(Run::new(config(32).frames() + 10, 1)), "a client's");
        assert!(!memory.comes_back(Run::new(10, 1)), "a page's");
    }

    #[test]
    fn buffers_are_a_half_of_a_small_cache_and_16_mib_of_a_large_one() {
        assert_eq!(config(256).frames(), 256 + 8 * 16);
        assert_eq!(config(65_536).frames(), 65_536 + 8 * 512);
    }
}
