//! Golden digest: the recorded hash over all outputs, with their times, of a fixed set of runs.
//!
//! Every build has to find the recorded digest: the tests compare it in a debug build, and `sweep
//! fresh` in a release build. After a change that affects decisions of the engine,
//! `WEFT_CRASH_UPDATE=1 cargo test -p weft-crash --lib tests::determinism` records it again.

use std::ops::Range;

use weft_units::digest::Digest;

use crate::script::{Profile, Script};

/// Digest that was recorded, in 16 hexadecimal digits and a line feed.
pub const RECORDED: &str = include_str!("golden.digest");

/// Path of the file of [`RECORDED`].
pub const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/golden.digest");

/// Profile of the golden runs: only the features that the generator had when the digest was first
/// recorded.
pub const PROFILE: Profile = Profile { steps: 50, cuts: 4, more: false, ..Profile::CALM };

/// Seeds of the golden runs.
pub const SEEDS: Range<u64> = 500..520;

/// Digest of the run of one seed.
///
/// # Panics
/// The run violates a checker.
#[must_use]
pub fn of_seed(seed: u64, profile: Profile) -> Digest {
    let script = Script::generate(seed, profile);
    script.run().unwrap_or_else(|failure| panic!("{failure}")).digest
}

/// Digest of all golden runs, computed by this build, in 16 hexadecimal digits.
#[must_use]
pub fn found() -> String {
    let mut all = Digest::default();
    for seed in SEEDS {
        all.add(&of_seed(seed, PROFILE).0.to_le_bytes());
    }
    format!("{:016x}", all.0)
}
