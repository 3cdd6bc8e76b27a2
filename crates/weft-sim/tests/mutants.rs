//! Do the checkers see? Each planted bug is found by a checker, which is named; the same seeds without
//! the bug are clean.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "numbers of a test are small"
)]

use std::collections::BTreeMap;
use std::panic;

use weft_engine::mutant::Mutant;
use weft_sim::World;
use weft_sim::script::{Profile, Script};

const SEEDS: u64 = 2000;

const PROFILES: [Profile; 3] = [Profile::CUTS, Profile::FAULTS, Profile::FAULTS_AND_CUTS];

/// The first seed that shows the bug to a checker, and everybody who saw it until then.
fn hunt(mutant: Mutant) -> (Option<u64>, BTreeMap<&'static str, u64>) {
    let mut seen = BTreeMap::new();
    for seed in 0..SEEDS {
        let profile = PROFILES[seed as usize % PROFILES.len()];
        let mut script = Script::generate(20_000 + seed, profile);
        if mutant.is_of_queues() {
            script = script.on_shards(1 + (seed / 3 % 3) as u16);
        }
        let plant = |world: &mut World| {
            if let Some(engine) = world.engine_mut() {
                engine.plant(mutant);
            }
        };
        let Err(failure) = script.run_with(&plant) else { continue };
        let checker = failure.violation.checker;
        *seen.entry(checker).or_default() += 1;
        // An assertion of the engine is welcome, and not what is tested here.
        if checker != "panic" {
            if let Err(twin) = script.run() {
                panic!("{mutant:?}: seed {seed} fails without the bug too: {twin}");
            }
            return (Some(seed), seen);
        }
    }
    (None, seen)
}

#[test]
fn every_planted_bug_is_found_by_a_checker() {
    // Panics of planted bugs are expected and say nothing new.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| ()));
    let found: Vec<_> = Mutant::ALL.into_iter().map(|mutant| (mutant, hunt(mutant))).collect();
    panic::set_hook(hook);
    let mut missed = Vec::new();
    for (mutant, (seed, seen)) in found {
        println!("{mutant:?}: seed {seed:?}, seen by {seen:?}");
        if seed.is_none() {
            missed.push((mutant, seen));
        }
    }
    assert!(missed.is_empty(), "not found within {SEEDS} seeds: {missed:?}");
}
