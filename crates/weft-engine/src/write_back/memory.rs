//! Memory of the write-back cache: a frame for each page, and buffers for runs being written.
//!
//! A run that is written back is first copied into adjacent frames of a *buffer*. Thus a run is one
//! request whatever frames its pages have, and a page can be written to again while members still
//! read the copy (the kernel's stable pages, without the wait). A long run fills a buffer alone.
//! Short runs share a buffer, one behind the other, until it is full; the buffer becomes free when
//! all of these runs are done. Thus scattered pages keep as many requests in flight as disks can
//! sort.

use crate::config::{BUFFERS, WriteBackConfig};
use crate::contract::frame::{Frame, Run};

/// Frames of the write-back cache: one for each page, and those of the buffers for runs being
/// written.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    /// Free frames for pages. The last one in the list is used next.
    free: Vec<Frame>,
    /// Number of the first frame of the buffers.
    first: u32,
    buffer_pages: u32,
    buffers: [Buffer; BUFFERS as usize],
    /// Index of the buffer that takes the next run of pages, if it has room for the run.
    filling: usize,
    /// Number of runs of pages in all buffers.
    runs: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Buffer {
    /// Number of frames allocated in the buffer since it was last free.
    used: u32,
    /// Number of runs of pages in the buffer that are still being written.
    runs: u32,
    /// Number of parts of runs with frames that a volume, or a member of it, is still using.
    on_loan: u32,
}

impl Buffer {
    fn is_free(&self) -> bool {
        self.runs == 0 && self.on_loan == 0
    }

    fn leave(&mut self) {
        if self.is_free() {
            self.used = 0;
        }
    }
}

/// Largest number of runs of pages being written at a time: as many as a disk's queue holds. More
/// would only delay reads of clients.
const RUNS_MAX: u32 = 64;

impl Memory {
    /// Creates the memory of a cache, from frame `first` on.
    pub(super) fn new(first: Frame, config: &WriteBackConfig) -> Self {
        let pages = config.pages;
        Self {
            free: (first.0..first.0 + pages).rev().map(Frame).collect(),
            first: first.0 + pages,
            buffer_pages: config.buffer_pages(),
            buffers: [Buffer::default(); BUFFERS as usize],
            filling: 0,
            runs: 0,
        }
    }

    /// Number of free frames for pages.
    pub(super) fn free(&self) -> u64 {
        self.free.len() as u64
    }

    /// Allocates and returns a frame for a page. A frame must be free.
    pub(super) fn take(&mut self) -> Frame {
        self.free.pop().expect("a frame was reserved")
    }

    /// Returns the frames in `frames` to the free list, and empties `frames`.
    pub(super) fn give_back(&mut self, frames: &mut Vec<Frame>) {
        // The last frame is used next, so that adjacent pages get adjacent frames again.
        self.free.extend(frames.drain(..).rev());
    }

    /// Largest number of pages that are written as one run.
    pub(super) const fn buffer_pages(&self) -> u64 {
        self.buffer_pages as u64
    }

    /// Whether a run of pages of any length can be given room in a buffer.
    pub(super) fn has_buffer(&self) -> bool {
        self.runs < RUNS_MAX && self.buffers.iter().any(Buffer::is_free)
    }

    /// Allocates room for a run of `pages` pages in a buffer. Returns the first frame; `None`
    /// unless [`Memory::has_buffer`].
    pub(super) fn take_buffer(&mut self, pages: u64) -> Option<Frame> {
        assert!(pages <= self.buffer_pages(), "a run fits into a buffer");
        if !self.has_buffer() {
            return None;
        }
        if u64::from(self.buffers[self.filling].used) + pages > self.buffer_pages() {
            self.filling = self.buffers.iter().position(Buffer::is_free)?;
        }
        let buffer = &mut self.buffers[self.filling];
        let frame = Frame(self.first + self.filling as u32 * self.buffer_pages + buffer.used);
        buffer.used += pages as u32;
        buffer.runs += 1;
        self.runs += 1;
        Some(frame)
    }

    /// Records that a volume begins to use the part of a run that begins at `frame`.
    pub(super) fn lend(&mut self, frame: Frame) {
        self.buffer_mut(frame).expect("the frame is in a buffer").on_loan += 1;
    }

    /// Records that a volume no longer uses the frames `run`, a part of a run of pages. Returns
    /// `false` if the frames are not in a buffer.
    pub(super) fn comes_back(&mut self, run: Run) -> bool {
        let Some(buffer) = self.buffer_mut(run.first) else { return false };
        assert!(buffer.on_loan > 0, "a part of a buffer comes back once");
        buffer.on_loan -= 1;
        buffer.leave();
        true
    }

    /// Records that the write of the run that begins at `frame` has ended. The buffer of the run
    /// becomes free once all writes of its runs have ended and no volume uses a part of it.
    pub(super) fn give_back_buffer(&mut self, frame: Frame) {
        let buffer = self.buffer_mut(frame).expect("the frame is in a buffer");
        assert!(buffer.runs > 0, "the buffer has a run");
        buffer.runs -= 1;
        buffer.leave();
        self.runs -= 1;
    }

    /// Whether a volume is using part of any buffer.
    #[cfg(test)]
    pub(super) fn on_loan(&self) -> bool {
        self.buffers.iter().any(|buffer| buffer.on_loan > 0)
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
        let buffers: Vec<_> = std::iter::from_fn(|| memory.take_buffer(2)).collect();
        assert_eq!(buffers.len() as u32, BUFFERS);
        assert_eq!(buffers[1], Frame(10 + 32 + 2));
        memory.lend(buffers[1]);
        memory.give_back_buffer(buffers[1]);
        assert!(!memory.has_buffer() && memory.on_loan(), "a member may still read it");
        assert!(memory.comes_back(Run::new(buffers[1].0, 1)));
        assert_eq!(memory.take_buffer(2), Some(buffers[1]));
        assert!(!memory.comes_back(Run::new(config(32).frames() + 10, 1)), "a client's");
        assert!(!memory.comes_back(Run::new(10, 1)), "a page's");
    }

    #[test]
    fn short_runs_share_a_buffer_and_leave_it_together() {
        // Eight buffers of 32 pages.
        let mut memory = Memory::new(Frame(0), &config(512));
        let first = memory.take_buffer(20).unwrap();
        assert_eq!(memory.take_buffer(10), Some(Frame(first.0 + 20)));
        assert_eq!(memory.take_buffer(3), Some(Frame(first.0 + 32)), "the next buffer");
        memory.lend(Frame(first.0 + 25));
        memory.give_back_buffer(first);
        memory.give_back_buffer(Frame(first.0 + 20));
        assert_eq!(memory.take_buffer(30), Some(Frame(first.0 + 64)), "a member reads the first");
        assert!(memory.comes_back(Run::new(first.0 + 25, 1)));
        assert_eq!(memory.take_buffer(32), Some(first));
        // Runs fill a disk's queue, and no more.
        let short = std::iter::from_fn(|| memory.take_buffer(1)).count() as u32;
        assert_eq!(short, RUNS_MAX - 3);
        assert!(!memory.has_buffer());
        memory.give_back_buffer(first);
        assert!(memory.has_buffer());
    }

    #[test]
    fn buffers_are_a_half_of_a_small_cache_and_16_mib_of_a_large_one() {
        assert_eq!(config(256).frames(), 256 + 8 * 16);
        assert_eq!(config(65_536).frames(), 65_536 + 8 * 512);
    }
}
