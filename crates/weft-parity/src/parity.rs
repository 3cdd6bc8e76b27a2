//! The choice of kernels and of their strategy, which all operations share.

use std::fmt;

use crate::level::Level;
use crate::simd::{self, Kernels};
use crate::strategy::{Maker, Strategy};

/// The parity operations, with the kernels chosen for this CPU.
///
/// This is a small `Copy` value. Its operations are grouped by purpose in `xor.rs`, `pq.rs`,
/// `recover.rs` and `compare.rs`.
#[derive(Clone, Copy)]
pub struct Parity {
    pub(crate) kernels: &'static Kernels,
    pub(crate) strategy: Strategy,
}

impl Parity {
    /// Chooses the fastest level of this CPU, and its strategy for strips that are in a cache.
    ///
    /// Reads no environment variable: a program that lets its user choose the level calls
    /// [`Parity::with_level`].
    #[must_use]
    pub fn detect() -> Self {
        let mut best_first = Level::ALL.into_iter().rev();
        best_first.find_map(Self::with_level).expect("every CPU has the scalar level")
    }

    /// Chooses this level, and the strategy that [`Parity::detect`] chooses. `None` if the CPU
    /// lacks the level.
    #[must_use]
    pub fn with_level(level: Level) -> Option<Self> {
        let strategy = Strategy::for_cached(Maker::detect());
        simd::kernels(level).map(|kernels| Self { kernels, strategy })
    }

    /// Returns the same kernels with another strategy for `pq`, `xor` and `recover_two`.
    #[must_use]
    pub fn with_strategy(self, strategy: Strategy) -> Self {
        Self { strategy, ..self }
    }

    /// SIMD level of the kernels in use.
    #[must_use]
    pub fn level(&self) -> Level {
        self.kernels.level()
    }

    /// Strategy of the kernels: the order of their reads and the kind of their stores.
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
}
