//! Tests of sweeps: counts, independence of threads, reports of failures.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::script::{Profile, Script};
use crate::sweep::{Totals, Work, fresh_failures_max, run};
use weft_engine::mutant::Mutant;
use weft_ondisk::Level;

fn quiet(_: usize, _: &Totals) {}

#[test]
fn counts_do_not_depend_on_threads_and_are_those_of_the_scripts() {
    let seeds = 300_000..300_006;
    let work: Vec<Work> = Profile::ALL
        .iter()
        .flat_map(|it| seeds.clone().map(|seed| Work::Seed(*it, seed)))
        .collect();
    let told = AtomicUsize::new(0);
    let one = run(&work, 1, &|done, _| {
        assert_eq!(told.fetch_add(1, Ordering::Relaxed) + 1, done);
    });
    assert_eq!(told.into_inner(), work.len());
    let three = run(&work, 3, &quiet);
    assert_eq!(format!("{one:?}"), format!("{three:?}"));
    assert_eq!((one.seeds, one.fault_seeds), (60, 36));
    let mut requests = 0;
    for profile in Profile::ALL {
        for seed in seeds.clone() {
            requests += Script::generate(seed, profile).run().unwrap().requests;
        }
    }
    assert_eq!(one.requests, requests);
    assert!(one.requests > 500 && one.coverage.points > 10 && one.verified > 1000, "{one:?}");
    assert!(one.failures.is_empty());
}

/// Levels among `levels` that no script of these seeds has, in any profile.
fn levels_not_drawn(levels: &[Level], seeds: std::ops::Range<u64>) -> Vec<Level> {
    let mut left = levels.to_vec();
    for seed in seeds {
        for profile in Profile::every() {
            let drawn = Script::generate(seed, profile).options.level;
            left.retain(|level| *level != drawn);
        }
    }
    left
}

#[test]
fn every_level_is_drawn() {
    let levels: Vec<Level> = Level::all().collect();
    assert_eq!(levels_not_drawn(&levels, 0..20), []);
    assert_eq!(levels_not_drawn(&levels, 0..0), levels);
}

/// A sweep with a planted bug has far more failures than the number that is tolerated among fresh
/// scripts.
#[test]
fn no_bug_that_is_planted_passes_for_an_old_failure() {
    assert_eq!((fresh_failures_max(999), fresh_failures_max(20_000)), (0, 20));
    for (bug, profile) in [
        (Mutant::AckBeforeSuperblock, Profile::CUTS),
        (Mutant::MissedWriteNotRecorded, Profile::FAULTS),
    ] {
        let fails = |seed: &u64| {
            let plant = |world: &mut crate::World| world.plant(bug);
            Script::generate(*seed, profile).run_with(&plant).is_err()
        };
        let found = (300_000..300_200).filter(fails).count() as u64;
        assert!(found > fresh_failures_max(200 * 40), "{bug:?}: {found} of 200 scripts");
    }
}

#[test]
fn steady_load_and_the_small_scope_count_themselves() {
    let totals = run(&[Work::Steady(1), Work::Scope(1)], 2, &quiet);
    assert!(totals.failures.is_empty(), "{:?}", totals.failures);
    assert_eq!((totals.steady_requests, totals.requests, totals.seeds), (20_000, 20_000, 0));
    // There are 56 scripts, some of which have fewer states than their budget; each is cut twice.
    assert!((300..=56 * 6).contains(&totals.scope_states), "{}", totals.scope_states);
    assert!(totals.crash_points() >= totals.scope_states * 2, "{totals:?}");
    assert!(totals.verified > 10_000 && totals.scrubbed > 10_000, "{totals:?}");
}

#[test]
fn load_with_faults_meets_errors_of_every_kind() {
    let totals = run(&[Work::Faulty(1), Work::Faulty(2)], 2, &quiet);
    assert!(totals.failures.is_empty(), "{:?}", totals.failures);
    assert_eq!((totals.requests, totals.faulty_requests), (40_000, 40_000));
    let errors = totals.io_errors;
    let kinds = [errors.flushes, errors.reads, errors.writes, errors.fua_writes];
    assert!(kinds.iter().all(|count| *count > 5) && errors.landed > 20, "{errors:?}");
}

/// The work fails unless `check` counts the planted faults and, on RAID 6, locates them and
/// `correct` corrects them.
#[test]
fn silent_faults_are_counted_and_located() {
    let work: Vec<Work> = (0..24).map(Work::Silent).collect();
    let totals = run(&work, 2, &quiet);
    assert!(totals.failures.is_empty(), "{:?}", totals.failures);
    let silent = totals.silent;
    let kinds = [silent.lost, silent.elsewhere, silent.other_member, silent.stale];
    assert!(kinds.iter().all(|count| *count > 5), "{silent:?}");
    assert!(silent.counted > 80 && silent.located > 30, "{silent:?}");
    assert_eq!(silent.corrected, silent.located, "{silent:?}");
    assert!(silent.left > 8, "{silent:?}");
}

/// The generation of a script panics. The panic counts as one failure, and the sweep continues.
#[test]
fn a_failure_is_told_with_the_command_that_does_it_again() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let broken = Profile { steps: usize::MAX, ..Profile::CALM };
    let totals = run(&[Work::Seed(broken, 7), Work::Seed(Profile::CALM, 7)], 1, &quiet);
    std::panic::set_hook(hook);
    assert_eq!((totals.seeds, totals.failures.len()), (1, 1));
    let text = &totals.failures[0];
    assert!(text.contains("capacity overflow") && text.ends_with("replay calm 7"), "{text}");
    assert!(Work::named("calm", 7).is_some() && Work::named("scope", 7).is_some());
    assert!(Work::named("nothing", 7).is_none());
}

#[test]
fn a_sweep_is_seeds_of_every_profile_and_a_twenty_fifth_of_the_rest() {
    let work = Work::of_sweep(1000, 100);
    let count = |matches: fn(&Work) -> bool| work.iter().filter(|work| matches(work)).count();
    let scripts = Profile::every().count() * 100;
    assert!(scripts >= 27 * 100, "no profile was lost");
    assert_eq!(count(|work| matches!(work, Work::Seed(_, 1000..1100))), scripts);
    assert_eq!(count(|work| matches!(work, Work::StraightSteady(1000..1004))), 4);
    assert_eq!(count(|work| matches!(work, Work::Scope(1000..1004))), 4);
    assert_eq!(count(|work| matches!(work, Work::Steady(1000..1004))), 4);
    assert_eq!(count(|work| matches!(work, Work::Faulty(1000..1004))), 4);
    assert_eq!(count(|work| matches!(work, Work::Silent(1000..1004))), 4);
    assert_eq!(count(|work| matches!(work, Work::StraightScope(1000..1004))), 4);
    assert_eq!(count(|work| matches!(work, Work::StraightFaulty(1000..1004))), 4);
    assert_eq!(work.len(), scripts + 7 * 4);
}
