//! Weights of the queues that have requests: whether all of them are equal.
//!
//! A queue is counted from its first request until it has none queued or in flight. Raised queues
//! are not counted.

use super::queue::WEIGHT_MAX;

/// Number of queues per weight.
#[derive(Clone, Debug)]
pub(super) struct WeightCounts {
    /// Number of queues, indexed by weight.
    of: Vec<u32>,
    /// Bitmap of the weights in use.
    present: [u64; WORDS],
    distinct: u32,
}

impl WeightCounts {
    pub(super) fn new() -> Self {
        Self { of: vec![0; WEIGHT_MAX as usize + 1], present: [0; WORDS], distinct: 0 }
    }

    pub(super) fn add(&mut self, weight: u32) {
        let count = &mut self.of[weight as usize];
        *count += 1;
        if *count == 1 {
            self.present[weight as usize / 64] |= 1 << (weight % 64);
            self.distinct += 1;
        }
    }

    pub(super) fn remove(&mut self, weight: u32) {
        let count = &mut self.of[weight as usize];
        assert!(*count > 0, "a removed weight was counted");
        *count -= 1;
        if *count == 0 {
            self.present[weight as usize / 64] &= !(1 << (weight % 64));
            self.distinct -= 1;
        }
    }

    /// Whether the weights of the counted queues differ, and `weight` is not the smallest of them.
    /// The queue with the weight `weight` need not be counted itself.
    pub(super) fn others_have_less(&self, weight: u32) -> bool {
        self.distinct > 1 && self.smallest() != Some(weight)
    }

    pub(super) fn differ(&self) -> bool {
        self.distinct > 1
    }

    fn smallest(&self) -> Option<u32> {
        let word = self.present.iter().position(|word| *word != 0)?;
        Some(word as u32 * 64 + self.present[word].trailing_zeros())
    }
}

const WORDS: usize = WEIGHT_MAX as usize / 64 + 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_of_several_weights_is_known() {
        let mut weights = WeightCounts::new();
        [40, 40, 1000].into_iter().for_each(|weight| weights.add(weight));
        assert!(weights.others_have_less(1000) && !weights.others_have_less(40));
        assert!(weights.differ());
        weights.add(1);
        assert!(weights.others_have_less(40));
        weights.remove(1);
        assert!(!weights.others_have_less(40), "1 is gone");
        [40, 40].into_iter().for_each(|weight| weights.remove(weight));
        assert!(!weights.others_have_less(1000) && !weights.differ(), "alone");
        assert!(!weights.others_have_less(1001), "those that are counted do not differ");
    }
}
