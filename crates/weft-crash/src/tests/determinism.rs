//! Tests of determinism (I15, P9): same seed, same run, and the digest that was recorded.

use crate::golden::{PATH, PROFILE, RECORDED, SEEDS, found, of_seed};
use crate::script::Profile;

/// Profile with faults, administrators and power cuts.
const ALL: Profile = Profile { steps: 50, ..Profile::FAULTS_AND_CUTS };

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in SEEDS {
        for profile in [PROFILE, ALL] {
            assert_eq!(of_seed(seed, profile), of_seed(seed, profile), "{} {seed}", profile.name);
        }
    }
}

#[test]
fn another_seed_is_another_run() {
    let mut digests: Vec<u64> = SEEDS.map(|seed| of_seed(seed, PROFILE).0).collect();
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len() as u64, SEEDS.end - SEEDS.start);
}

#[test]
fn every_build_finds_the_same() {
    let found = found();
    println!("{found}");
    if std::env::var_os("WEFT_CRASH_UPDATE").is_some() {
        std::fs::write(PATH, format!("{found}\n")).unwrap();
        return;
    }
    assert_eq!(found, RECORDED.trim(), "decided differently on purpose? WEFT_CRASH_UPDATE=1");
}
