//! Golden test of determinism: same seed, same run, every output with its time hashed.
//!
//! `determinism.golden` holds the hash of a set of runs. Running this test elsewhere checks that
//! debug and release builds, and other machines, give the same hash. When the engine decides
//! differently on purpose: `WEFT_CRASH_UPDATE=1 cargo test -p weft-crash --test determinism`.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "numbers of a test are small"
)]

use weft_crash::script::{Profile, Script};
use weft_units::digest::Digest;

/// Profile of the golden hash, with what was generated when it was first taken.
const PROFILE: Profile = Profile { steps: 50, cuts: 4, more: false, ..Profile::CALM };
/// Profile with faults, administrators and power cuts.
const ALL: Profile = Profile { steps: 50, ..Profile::FAULTS_AND_CUTS };
const SEEDS: std::ops::Range<u64> = 500..520;

fn digest(seed: u64, profile: Profile) -> Digest {
    let script = Script::generate(seed, profile);
    script.run().unwrap_or_else(|failure| panic!("{failure}")).digest
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in SEEDS {
        for profile in [PROFILE, ALL] {
            assert_eq!(digest(seed, profile), digest(seed, profile), "{} {seed}", profile.name);
        }
    }
}

#[test]
fn another_seed_is_another_run() {
    let mut digests: Vec<u64> = SEEDS.map(|seed| digest(seed, PROFILE).0).collect();
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len() as u64, SEEDS.end - SEEDS.start);
}

#[test]
fn every_build_finds_the_same() {
    let mut all = Digest::default();
    for seed in SEEDS {
        all.add(&digest(seed, PROFILE).0.to_le_bytes());
    }
    let found = format!("{:016x}", all.0);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/determinism.golden");
    println!("{found}");
    if std::env::var_os("WEFT_CRASH_UPDATE").is_some() {
        std::fs::write(path, format!("{found}\n")).unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap();
    assert_eq!(found, golden.trim(), "decided differently on purpose? WEFT_CRASH_UPDATE=1");
}
