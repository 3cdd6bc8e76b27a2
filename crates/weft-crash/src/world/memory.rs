//! Memory of a world: the slab and its frames. Free frames hold garbage.
//!
//! There is one slab, sized by the engine's configuration. Its payload frames are allocated to
//! requests and given back. A frame that is given back is filled with garbage, so that an operation
//! that still reads the frame is noticed.

use std::collections::BTreeMap;
use std::ops::Range;

use smallvec::SmallVec;
use weft_compute::{Frames, Split, split_slice};
use weft_engine::{Config, Run, Segment, Segments};
use weft_units::{FRAME_BYTES, SECTOR_BYTES};

use crate::payload::PayloadMode;

/// The memory through which engine and disks exchange data.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    /// Content of all frames in order, in the representation of `payload`.
    slab: Vec<u8>,
    payload: PayloadMode,
    /// Runs of free payload frames: the number of frames, by first frame.
    free: BTreeMap<u32, u32>,
}

impl Memory {
    /// Memory for a configuration, filled with garbage except for the frame of zeros.
    pub(super) fn new(config: &Config, payload: PayloadMode) -> Self {
        let frame = payload.bytes_of(FRAME_BYTES / SECTOR_BYTES);
        let mut slab = vec![GARBAGE; config.frames_total() as usize * frame];
        slab[..frame].fill(0);
        let free = BTreeMap::from([(config.client_frames_first(), config.client_frames)]);
        Self { slab, payload, free }
    }

    /// Allocates a run of adjacent frames; `None` if no run of that length is free.
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

    /// Number of free frames.
    pub(super) fn free(&self) -> u32 {
        self.free.values().sum()
    }

    /// Frees a run of frames.
    pub(super) fn give_back(&mut self, run: Run) {
        if run.count == 0 {
            return;
        }
        // Anything that still reads the run finds garbage.
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

    /// Bytes that represent a segment.
    pub(super) fn part(&mut self, part: Segment) -> &mut [u8] {
        &mut self.slab[self.payload.part(part)]
    }

    /// Content of several segments, one behind the other.
    pub(super) fn gather(&self, parts: &Segments) -> Vec<u8> {
        let mut bytes = Vec::new();
        for part in parts {
            bytes.extend_from_slice(&self.slab[self.payload.part(*part)]);
        }
        bytes
    }
}

impl Frames for Memory {
    fn split(&mut self, read: &[Segment], write: &[Segment]) -> Split<'_> {
        assert!(write.iter().all(|to| !to.is_zero()), "the frame of zeros is never written");
        let place = |segment: &Segment| self.payload.part(*segment);
        // The loop over a list avoids arrays mapped to arrays, which would be moved four times.
        let reads: SmallVec<[Range<usize>; 8]> = read.iter().map(place).collect();
        let writes: SmallVec<[Range<usize>; 8]> = write.iter().map(place).collect();
        let mut split = split_slice(&mut self.slab, &reads, &writes);
        // A strip may begin within a sector. Its representation may then be a byte longer than that
        // of zeros of the same length, because the frame of zeros begins at a sector. The zeros get
        // the length of the strips.
        let mut strips = read.iter().zip(&split.read).filter(|it| !it.0.is_zero());
        let len = strips.next().map(|it| it.1.len()).or(split.write.first().map(|it| it.len()));
        for (segment, bytes) in read.iter().zip(&mut split.read).filter(|it| it.0.is_zero()) {
            assert!(segment.slab_end() <= FRAME_BYTES, "{segment:?} leaves the frame of zeros");
            *bytes = &ZEROS[..len.unwrap_or(bytes.len())];
        }
        split
    }
}

const GARBAGE: u8 = 0xdb;
static ZEROS: [u8; FRAME_BYTES as usize] = [0; FRAME_BYTES as usize];

#[cfg(test)]
mod tests {
    use super::*;
    use weft_compute::conformance;

    #[test]
    fn computations_on_bytes_and_on_tags_give_what_their_definition_says() {
        for payload in [PayloadMode::Bytes, PayloadMode::Tags] {
            let frame = payload.bytes_of(FRAME_BYTES / SECTOR_BYTES);
            let tried = conformance::check(|| {
                let slab = vec![0; frame * conformance::FRAMES as usize];
                Memory { slab, payload, free: BTreeMap::new() }
            });
            assert!(tried.operations > 100 && tried.refusals > 30, "{payload:?}: {tried:?}");
        }
    }
}
