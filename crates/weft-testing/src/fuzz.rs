//! Damaged inputs: seed and number of cases of the tests that pass damaged inputs to parsers.
//!
//! By default these tests draw the same cases every time. `cargo xtask long fuzz` sets
//! `WEFT_FUZZ_SEED` to another seed for each round, which also makes the tests draw more cases.

/// Least number of cases of a test under `cargo xtask long fuzz`.
const CASES_LONG: usize = 20_000;

/// Seed of this run, from `WEFT_FUZZ_SEED`; 0 if that is not set.
///
/// # Panics
/// Panics if `WEFT_FUZZ_SEED` is not a number.
pub fn seed() -> u64 {
    given().unwrap_or(0)
}

/// Number of cases of a test: `usual` without a seed in the environment, at least 20,000 with one.
///
/// # Panics
/// Panics if `WEFT_FUZZ_SEED` is not a number.
pub fn cases(usual: usize) -> usize {
    given().map_or(usual, |_| usual.max(CASES_LONG))
}

fn given() -> Option<u64> {
    let text = std::env::var("WEFT_FUZZ_SEED").ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("WEFT_FUZZ_SEED: found {text}, expected a number")))
}
