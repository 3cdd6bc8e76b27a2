//! Free space of the reduced ext4: extents, first fit.
//!
//! Blocks are taken from the front of the first free extent that is large enough.

use std::collections::BTreeMap;
use std::ops::Range;

/// Free blocks of the volume.
#[derive(Debug)]
pub(super) struct Space {
    /// Free extents: end of each, by its start, in blocks.
    free: BTreeMap<u64, u64>,
}

impl Space {
    pub(super) fn new(free: impl IntoIterator<Item = Range<u64>>) -> Self {
        Self { free: free.into_iter().map(|range| (range.start, range.end)).collect() }
    }

    /// Takes at most `count` contiguous blocks: from `goal` on if a free extent begins there,
    /// otherwise from the first extent that has as many, otherwise from the first free extent.
    ///
    /// # Panics
    /// Panics if no block is free.
    pub(super) fn take(&mut self, goal: Option<u64>, count: u64) -> Range<u64> {
        let at_goal = goal.filter(|goal| self.free.contains_key(goal));
        let fits = || self.free.iter().find(|(start, end)| **end - **start >= count);
        let start = at_goal
            .or_else(|| fits().or_else(|| self.free.iter().next()).map(|(start, _)| *start))
            .expect("a file system with room");
        let end = self.free.remove(&start).expect("the extent is free");
        let taken = start..end.min(start + count);
        if taken.end < end {
            self.free.insert(taken.end, end);
        }
        taken
    }

    /// Frees blocks, which must not be free already.
    pub(super) fn give(&mut self, mut blocks: Range<u64>) {
        if let Some((&start, &end)) = self.free.range(..blocks.start).next_back() {
            assert!(end <= blocks.start, "blocks {blocks:?} are given back once");
            if end == blocks.start {
                blocks.start = start;
            }
        }
        if let Some(end) = self.free.remove(&blocks.end) {
            blocks.end = end;
        }
        self.free.insert(blocks.start, blocks.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_fits_is_taken_from_its_front() {
        let mut space = Space::new([0..4, 10..30]);
        assert_eq!(space.take(None, 5), 10..15);
        assert_eq!(space.take(None, 4), 0..4);
        assert_eq!(space.take(Some(15), 2), 15..17, "behind the last one");
        assert_eq!(space.take(Some(16), 2), 17..19, "blocks in use are no goal");
        assert_eq!(space.take(None, 100), 19..30, "all that there is");
        space.give(10..12);
        space.give(14..16);
        space.give(12..14);
        assert_eq!(space.take(None, 6), 10..16, "in one piece again");
    }

    #[test]
    #[should_panic(expected = "given back once")]
    fn nothing_is_given_back_twice() {
        let mut space = Space::new([0..4, 10..30]);
        space.give(3..5);
    }
}
