//! XOR, P+Q syndromes and recovery as md computes them.
//!
//! The functions are pure and work on byte slices: no allocation, no I/O, no state except the
//! choice of kernels and of their strategy, which [`Parity::detect`] makes once. Slices may have
//! any length and any alignment.
//!
//! | Part | File |
//! |---|---|
//! | arithmetic of the field | `gf.rs` |
//! | P and its updates | `xor.rs` |
//! | P and Q and their updates | `pq.rs` |
//! | recovery of lost strips | `recover.rs` |
//! | comparison, location of a wrong strip | `compare.rs` |
//! | order of reads, kind of stores, by CPU | `strategy.rs` |
//! | vector kernels | `simd/` |
//!
//! # Exponents
//!
//! P is the XOR of all data strips. Q is the sum of gᵏ·D over all data strips D, where the exponent
//! k stands for the position of the strip. Callers pass the exponent with each strip. Two orders
//! are in use:
//!
//! - md order: the data strips count 0, 1, 2, … cyclically from the member after Q.
//! - DDF order: the exponent is the slot, so P and Q leave gaps.
//!
//! ```
//! use weft_parity::Parity;
//!
//! let parity = Parity::detect();
//! let strips = [b"warp".as_slice(), b"weft", b"yarn"];
//! let data = [(0, strips[0]), (1, strips[1]), (2, strips[2])];
//! let (mut p, mut q) = ([0; 4], [0; 4]);
//! parity.pq(&data, &mut p, &mut q);
//!
//! // Strips 0 and 2 are lost.
//! let (mut first, mut third) = ([0; 4], [0; 4]);
//! parity.recover_two(&data[1..2], &p, &q, 0, 2, &mut first, &mut third);
//! assert_eq!((&first, &third), (b"warp", b"yarn"));
//! ```
//!
//! Source: H. P. Anvin, "The mathematics of RAID-6"; exponents: spec md-raid §5.2.
#![deny(unsafe_code)]
#![deny(missing_docs)]

mod compare;
pub mod gf;
mod pq;
mod recover;
#[allow(unsafe_code, reason = "vector loads and stores, and calls that need a CPU feature")]
mod simd;
mod strategy;
mod xor;

use std::fmt;

pub use compare::{Located, Mismatch};
pub use strategy::{Maker, Strategy};

/// Level of SIMD of the kernels, chosen once at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Level {
    /// One byte at a time; the reference for all other levels.
    Scalar,
    /// aarch64: 16 bytes at a time, products by two table look-ups.
    Neon,
    /// x86-64: 16 bytes at a time, products by two byte shuffles.
    Ssse3,
    /// x86-64: 32 bytes at a time, products by two byte shuffles.
    Avx2,
    /// x86-64: 64 bytes at a time, products by one 8×8 bit matrix.
    Avx512Gfni,
}

impl Level {
    /// Every level, slowest first, including those that this CPU lacks.
    pub const ALL: [Self; 5] =
        [Self::Scalar, Self::Neon, Self::Ssse3, Self::Avx2, Self::Avx512Gfni];

    /// Name of the level for users: `scalar`, `neon`, `ssse3`, `avx2` or `avx512-gfni`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Neon => "neon",
            Self::Ssse3 => "ssse3",
            Self::Avx2 => "avx2",
            Self::Avx512Gfni => "avx512-gfni",
        }
    }

    /// The level with this [`name`](Self::name), `None` for any other text.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The parity operations, with the kernels chosen for this CPU.
///
/// A `Parity` is a small `Copy` value that is cheap to pass on. The operations are grouped by
/// purpose in `xor.rs`, `pq.rs`, `recover.rs` and `compare.rs`.
#[derive(Clone, Copy)]
pub struct Parity {
    kernels: &'static simd::Kernels,
    strategy: Strategy,
}

impl Parity {
    /// Chooses the best level of this CPU, and its strategy for strips that are in a cache.
    ///
    /// Reads no environment variable; a caller that offers a choice uses [`Parity::with_level`].
    #[must_use]
    pub fn detect() -> Self {
        let mut best_first = Level::ALL.into_iter().rev();
        best_first.find_map(Self::with_level).expect("every CPU has the scalar level")
    }

    /// Chooses a given level, `None` if the CPU lacks it, with the strategy of [`Parity::detect`].
    #[must_use]
    pub fn with_level(level: Level) -> Option<Self> {
        let strategy = Strategy::for_cached(Maker::detect());
        simd::kernels(level).map(|kernels| Self { kernels, strategy })
    }

    /// Uses another strategy for `pq`, `xor` and `recover_two`, with the same kernels.
    #[must_use]
    pub fn with_strategy(self, strategy: Strategy) -> Self {
        Self { strategy, ..self }
    }

    /// SIMD level of the kernels.
    #[must_use]
    pub fn level(&self) -> Level {
        self.kernels.level()
    }

    /// Strategy of `pq`, `xor` and `recover_two`: order of reads and kind of stores.
    #[must_use]
    pub fn strategy(&self) -> Strategy {
        self.strategy
    }
}

impl fmt::Debug for Parity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Parity");
        fields.field("level", &self.level()).field("strategy", &self.strategy).finish()
    }
}

/// A data strip with the exponent k of its coefficient gᵏ.
type Weighted<'a> = (u8, &'a [u8]);

/// Asserts the conditions of operations on weighted strips: equal lengths, distinct exponents up to
/// 254.
///
/// Two strips with the same exponent would make Q useless for recovery, so release builds check
/// too.
fn assert_weighted(data: &[Weighted<'_>], strip_bytes: usize) {
    let mut seen = [0u64; 4];
    for &(exponent, strip) in data {
        assert_eq!(strip.len(), strip_bytes, "strips differ in length");
        assert!(exponent < gf::ORDER, "exponent 255 is equivalent to 0");
        let word = &mut seen[usize::from(exponent / 64)];
        let bit = 1 << (exponent % 64);
        assert!(*word & bit == 0, "two strips have exponent {exponent}");
        *word |= bit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detected_level_is_the_last_that_the_cpu_has() {
        let has = |level: &Level| Parity::with_level(*level).is_some();
        let best = Level::ALL.into_iter().rfind(|level| has(level));
        assert_eq!(Some(Parity::detect().level()), best);
        assert!(has(&Level::Scalar));
    }

    #[test]
    fn each_level_reports_itself_and_is_found_by_name() {
        for level in Level::ALL {
            assert_eq!(Level::from_name(level.name()), Some(level));
            assert_eq!(level.to_string(), level.name());
            if let Some(parity) = Parity::with_level(level) {
                assert_eq!(parity.level(), level);
            }
        }
        assert_eq!(Level::from_name("mmx"), None);
    }

    #[test]
    fn the_strategy_is_the_one_for_caches_until_another_is_said() {
        let scalar = Parity::with_level(Level::Scalar).unwrap();
        assert_eq!(scalar.strategy(), Strategy::for_cached(Maker::detect()));
        let streaming = scalar.with_strategy(Strategy::Streaming);
        assert_eq!(format!("{streaming:?}"), "Parity { level: Scalar, strategy: Streaming }");
    }

    #[test]
    #[should_panic(expected = "two strips have exponent 3")]
    fn repeated_exponents_are_refused() {
        assert_weighted(&[(3, b"a"), (3, b"b")], 1);
    }
}
