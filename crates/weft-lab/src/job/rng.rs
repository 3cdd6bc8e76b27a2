//! Random numbers of a job: SplitMix64, the same on every machine.
//!
//! Fractions are exact multiples of 2^-53, and everything that is not arithmetic goes through
//! `libm`.
//!
//! Source   Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014

pub(super) use weft_units::rng::mix;

/// Random sequence that a seed determines.
#[derive(Clone, Debug)]
pub(super) struct Rng(weft_units::rng::Rng);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Self(weft_units::rng::Rng::at(mix(seed ^ 0x6a09_e667_f3bc_c909)))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Draws a number below `bound`, without bias; `bound` is not zero.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0);
        // Lemire, "Fast random integer generation in an interval" (2019).
        loop {
            let wide = u128::from(self.next()) * u128::from(bound);
            let (high, low) = (wide >> 64, wide & u128::from(u64::MAX));
            if low >= u128::from(bound.wrapping_neg() % bound) {
                return u64::try_from(high).expect("below the bound");
            }
        }
    }

    /// Draws a number from 0 up to, but not including, 1.
    pub(super) fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Returns true with a probability of `percent` %.
    pub(super) fn percent(&mut self, percent: u8) -> bool {
        self.below(100) < u64::from(percent)
    }
}
