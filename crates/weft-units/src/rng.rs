//! Random numbers, all from one seed: SplitMix64.
//!
//! 64 bits of state, one multiplication chain per number, no dependency. The quality suffices to
//! choose completion orders and faults, but not where a number must not be guessed.
//!
//! Source   Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014

/// Stream of numbers that a seed determines.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

/// Mixing function: every bit of `z` changes about half of the bits of the result.
#[must_use]
#[inline]
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    /// Creates the stream of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::at(seed ^ 0x6a09_e667_f3bc_c909)
    }

    /// Creates the stream that begins at a state, for comparison with published SplitMix64
    /// sequences.
    #[must_use]
    pub fn at(state: u64) -> Self {
        Self { state }
    }

    /// Next 64 bits of the stream.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// Random number from 0 to `bound - 1`; `bound` must not be zero.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0);
        self.next_u64() % bound
    }

    /// Random index into a collection of `len` items; `len` must not be zero.
    #[inline]
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("below a usize")
    }

    /// Returns true with a probability of `percent` in a hundred.
    #[inline]
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Picks one of the values in `of`, all with nearly the same probability; `of` must not be
    /// empty.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())]
    }

    /// Shuffles a slice in place (Fisher-Yates), so that every item is at every place with nearly
    /// the same probability.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last + 1));
        }
    }

    /// Creates and returns an independent stream: drawing numbers from one of the two streams does
    /// not change those of the other.
    pub fn fork(&mut self) -> Self {
        Self::new(self.next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_stream() {
        let draw =
            |seed| (0..4).map(|_| 0).scan(Rng::new(seed), |rng, _: i32| Some(rng.next_u64()));
        assert!(draw(7).eq(draw(7)));
        assert!(!draw(7).eq(draw(8)));
    }

    #[test]
    fn shuffling_loses_nothing() {
        let mut items = [0, 1, 2, 3, 4, 5];
        Rng::new(3).shuffle(&mut items);
        items.sort_unstable();
        assert_eq!(items, [0, 1, 2, 3, 4, 5]);
    }

    /// Source   S. Vigna, splitmix64.c, seed 1234567
    #[test]
    fn numbers_are_those_of_splitmix64() {
        let mut rng = Rng::at(1_234_567);
        let found = [(); 3].map(|()| rng.next_u64());
        let expected =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(found, expected);
    }
}
