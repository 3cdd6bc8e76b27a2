//! Where are the bytes that frames name?
//!
//! One slab, as the engine's configuration sizes it. Its payload frames are given to requests and come
//! back; what comes back is filled with garbage, so that whoever still reads it reads garbage.

use std::collections::BTreeMap;

use weft_engine::{Config, Part, Parts, Run};
use weft_units::FRAME_BYTES;

/// The memory between engine and disks.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    /// Every frame, one after the other.
    pub(super) slab: Vec<u8>,
    /// Free payload frames: first and count.
    free: BTreeMap<u32, u32>,
}

impl Memory {
    /// As a configuration asks for: garbage, the frame of zeros excepted.
    pub(super) fn new(config: &Config) -> Self {
        let mut slab = vec![GARBAGE; config.frames_total() as usize * FRAME_BYTES as usize];
        slab[..FRAME_BYTES as usize].fill(0);
        let free = BTreeMap::from([(config.client_frames_first(), config.client_frames)]);
        Self { slab, free }
    }

    /// Frames side by side, if there are as many.
    pub(super) fn allocate(&mut self, count: u32) -> Option<Run> {
        if count == 0 {
            return Some(Run::EMPTY);
        }
        let (first, len) =
            self.free.iter().find(|(_, len)| **len >= count).map(|(first, len)| (*first, *len))?;
        self.free.remove(&first);
        if len > count {
            self.free.insert(first + count, len - count);
        }
        Some(Run::new(first, count))
    }

    /// How many frames are free.
    pub(super) fn free(&self) -> u32 {
        self.free.values().sum()
    }

    /// They come back.
    pub(super) fn give_back(&mut self, run: Run) {
        if run.count == 0 {
            return;
        }
        // Whoever still reads it reads garbage.
        let part = run.part(0, u64::from(run.count) * FRAME_BYTES);
        self.part(part).fill(GARBAGE);
        let (mut first, mut count) = (run.first.0, run.count);
        if let Some((before, len)) = self.free.range(..first).next_back().map(|(f, l)| (*f, *l))
            && before + len >= first
        {
            assert!(before + len == first, "{run:?} is free already");
            self.free.remove(&before);
            first = before;
            count += len;
        }
        if let Some((after, len)) = self.free.range(first + count..).next().map(|(f, l)| (*f, *l))
            && first + count == after
        {
            self.free.remove(&after);
            count += len;
        }
        self.free.insert(first, count);
    }

    /// The bytes of a part.
    pub(super) fn part(&mut self, part: Part) -> &mut [u8] {
        &mut self.slab[part.slab_start() as usize..part.slab_end() as usize]
    }

    /// The bytes of parts, one after the other.
    pub(super) fn gather(&self, parts: &Parts) -> Vec<u8> {
        let mut bytes = Vec::new();
        for part in parts {
            bytes.extend_from_slice(
                &self.slab[part.slab_start() as usize..part.slab_end() as usize],
            );
        }
        bytes
    }
}

const GARBAGE: u8 = 0xdb;
