//! Tests of power cuts at sampled points of short scripts, in sampled orders.
//!
//! The small scope (`crate::scope`) has all scripts of one or two operations on the smallest array
//! of each level, each in six orders, with two cuts in each of a few states. The tests print how
//! many orders and states were tried, and require minimum numbers of them.
//!
//! For a sample of the scripts, the search also covers each policy that differs from untuned md,
//! with chunks larger than a stripe.
//!
//! In a wider scope, random scripts on larger arrays are cut often.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "numbers of a test are small"
)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::scope::{Budget, Search, Start, begin, policies};
use crate::script::{Profile, Script};
use crate::{Coverage, CutMode, Options, Order, Payload, World, chunk_kib};
use weft_engine::assemble;
use weft_engine::mutant::Mutant;
use weft_engine::{Flags, RequestOp};
use weft_ondisk::Level;
use weft_units::{ByteRange, ClientId, Span};

/// Table row of a planted bug: the bug, its checker, and the function that plants it.
macro_rules! bug {
    ($name:ident, $checker:literal) => {
        (Mutant::$name, $checker, |world| world.plant(Mutant::$name))
    };
}

const SYNC: Flags = Flags { sync: true, ..Flags::NONE };

fn smallest(level: Level, members: usize, start: Start) -> World {
    let mut options = Options::new(level, members, chunk_kib(4));
    options.stripes_max = Some(4);
    options.discards = true;
    begin(options, start)
}

/// Searches all scripts on the smallest array of a level, within the budget. Returns the counts.
fn run_scope(level: Level, members: usize, budget: Budget) -> Search {
    let mut search = Search::default();
    for start in Start::ALL {
        let note = format!("{level} x {members}, {start:?}");
        search.run_scripts(&smallest(level, members, start), budget, &note);
    }
    println!("{level} x {members}: {search:?}");
    assert_sampled(&search);
    search
}

/// Asserts that a search tried several orders of events, and cut the power after answers and while
/// data was outstanding.
fn assert_sampled(search: &Search) {
    let Search { scripts, two_orders, states, answered, data_outstanding, .. } = search;
    let Search { scripts_with_data, verified, scrubbed, .. } = search;
    assert!(two_orders * 100 >= scripts * 90, "two orders: {two_orders} of {scripts} scripts");
    assert!(answered * 100 >= states * 30, "a client answered: {answered} of {states} states");
    assert!(data_outstanding * 100 >= states * 40, "data: {data_outstanding} of {states} states");
    assert!(scripts_with_data * 100 >= scripts * 80, "data: {scripts_with_data} of {scripts}");
    assert!(verified > states && scrubbed > states, "{verified} {scrubbed} of {states}");
}

fn assert_covered(coverage: Coverage) {
    assert_covered_with(coverage, 30);
}

fn assert_covered_with(coverage: Coverage, half_written_least: u64) {
    let Coverage {
        points, half_written_stripe, strict_subset, inside_metadata, during_sync, ..
    } = coverage;
    assert!(points >= 1000, "{coverage:?}");
    let percent = |count| coverage.percent(count);
    assert!(
        percent(half_written_stripe) >= half_written_least,
        "half-written stripes: {coverage:?}"
    );
    assert!(percent(strict_subset) >= 20, "strict subsets: {coverage:?}");
    assert!(percent(inside_metadata) >= 10, "inside metadata: {coverage:?}");
    assert!(percent(during_sync) >= 5, "during resync: {coverage:?}");
    assert!(coverage.hole_predicted > 0, "no write hole was looked at: {coverage:?}");
    assert!(coverage.hole_wrong > 0, "blind: no predicted stripe was ever wrong: {coverage:?}");
}

const WHOLE: Budget = Budget { operations: 2, scripts: usize::MAX, walks: 4, states: 3, cuts: 2 };

#[test]
fn sampled_orders_and_cuts_of_short_scripts_on_raid4() {
    let search = run_scope(Level::Raid4, 3, WHOLE);
    assert_covered(search.coverage);
}

#[test]
fn sampled_orders_and_cuts_of_short_scripts_on_raid5() {
    let search = run_scope(Level::Raid5, 3, WHOLE);
    assert_covered(search.coverage);
}

#[test]
fn sampled_orders_and_cuts_of_short_scripts_on_raid6() {
    let search = run_scope(Level::Raid6, 4, WHOLE);
    assert_covered(search.coverage);
}

#[test]
fn every_policy_on_every_level_survives_sampled_cuts_of_short_scripts() {
    let policies = policies();
    let budget = Budget { operations: 2, scripts: 40, walks: 3, states: 3, cuts: 2 };
    let mut search = Search::default();
    let mut shapes = 0;
    for (number, (name, knobs)) in policies.iter().enumerate() {
        for (level, members) in [(Level::Raid4, 3), (Level::Raid5, 4), (Level::Raid6, 5)] {
            let mut options = Options::new(level, members, chunk_kib(8));
            options.knobs = *knobs;
            options.discards = number % 2 == 0;
            let start = begin(options, Start::ALL[shapes % 3]);
            let before = search.verified;
            search.run_scripts(&start, budget, &format!("{name}, {level} x {members}"));
            assert!(search.verified > before, "{name}: nothing was read back");
            shapes += 1;
        }
    }
    println!("{shapes} policies and levels: {search:?}");
    assert_eq!(shapes, policies.len() * 3);
    assert!(search.states > 4000, "{}", search.states);
    assert_sampled(&search);
    assert_covered(search.coverage);
}

/// Scripts of one operation, with enough walks to try most orders of events of the shorter scripts.
#[test]
fn all_orders_of_the_shortest_scripts() {
    let budget = Budget { operations: 1, scripts: usize::MAX, walks: 300, states: 10, cuts: 1 };
    let mut search = Search::default();
    for start in Start::ALL {
        search.run_scripts(&smallest(Level::Raid5, 3, start), budget, &format!("{start:?}"));
    }
    println!("{search:?}");
    assert!(search.exhausted >= 5, "{} of {}", search.exhausted, search.scripts);
}

/// Clones of states with equal fingerprints are cut side by side, and are equal afterwards: clones
/// with the same inputs have the same outputs (I16). The test also shows that it would notice a
/// difference: fingerprints without the disks are equal for states that a cut leaves different.
#[test]
fn states_that_look_alike_to_a_cut_are_left_alike_by_it() {
    let budget = Budget { operations: 2, scripts: 16, walks: 12, states: 12, cuts: 0 };
    let compare = |left_out: Option<&'static str>| {
        let mut search = Search { compared: true, left_out, ..Search::default() };
        search.run_scripts(&smallest(Level::Raid5, 3, Start::Dirty), budget, "alike");
        println!("without {left_out:?}: {} of {} alike", search.wrongly_alike, search.alike);
        (search.alike, search.wrongly_alike)
    };
    let (alike, wrongly) = compare(None);
    assert!(alike >= 50, "{alike} states were compared");
    assert_eq!(wrongly, 0, "of {alike}");
    let (more, wrongly) = compare(Some("disks"));
    assert!(wrongly > 0, "blind: {more} states were taken for the same");
}

/// Changes each part of the state that a cut depends on, one at a time.
#[test]
fn whatever_a_cut_depends_on_changes_the_fingerprint() {
    let mut world = smallest(Level::Raid5, 3, Start::Dirty);
    let block = ByteRange::new(0, 4096);
    world.request(ClientId(1), RequestOp::Write, block, Payload::Tags, SYNC);
    world.settle();
    while !world.disks.iter().any(|disk| disk.outstanding_writes().next().is_some()) {
        assert!(world.step(Order::Fifo));
    }
    type Change = (&'static str, fn(&mut World));
    let changes: [Change; 9] = [
        ("disks", |world| world.disks[1].flip_bit(2048, 3).unwrap()),
        ("disks", |world| world.disks[0].poke(8, &[7; 512])),
        ("disks", |world| world.disks[2].faults.gone = true),
        // A member request completes, so that its write is in the cache or durable.
        ("disks", |world| assert!(world.step(Order::Fifo))),
        ("disks", |world| assert!(world.step(Order::Lifo))),
        ("clients", |world| world.model.add_possible(5, &[1; 512])),
        ("checkers", |world| assert_eq!(world.add_blank().0, 3)),
        ("surroundings", |world| world.now = world.now + Span(1)),
        ("surroundings", |world| world.options.discards ^= true),
    ];
    let before = world.cut_fingerprints();
    assert_eq!(world.clone().cut_fingerprints(), before);
    for (number, (part, change)) in changes.into_iter().enumerate() {
        let mut changed = world.clone();
        change(&mut changed);
        let mut parts = before.iter().zip(changed.cut_fingerprints());
        assert!(parts.any(|(was, is)| was.0 == part && was.1 != is.1), "{number}: {part}");
    }
}

/// Bugs that scripts of two operations show, each found by the named checker. The first bug needs a
/// write that arrives while superblocks that say clean are being written, so time has to pass
/// before this write.
#[test]
fn planted_bugs_are_found_in_the_small_scope() {
    type Bug = (Mutant, &'static str, fn(&mut World));
    const BUGS: [Bug; 10] = [
        bug!(NotDirtyWhileBecomingClean, "I5"),
        bug!(AckBeforeParity, "I4"),
        bug!(AckBeforeSuperblock, "I5"),
        bug!(DiscardBeforeDirty, "I5"),
        bug!(DiscardSkipsOneMember, "I4"),
        bug!(DiscardUnderSync, "I10"),
        bug!(EventsNotRaised, "I5"),
        bug!(FlushSkipsOneMember, "I5"),
        bug!(RmwNewAsOld, "I6"),
        bug!(StaleMemberAfterAdd, "I6"),
    ];
    const SEEDS: u64 = 4;
    let budget = Budget { cuts: 1, ..WHOLE };
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let found = BUGS.map(|(mutant, checker, plant)| {
        let mut search = Search { planted: Some(plant), ..Search::default() };
        // Only a few of the orders that a seed picks have a discard during a recovery.
        let run = AssertUnwindSafe(|| {
            for seed in 0..SEEDS {
                search.seed = seed;
                for start in Start::ALL {
                    search.run_scripts(&smallest(Level::Raid5, 3, start), budget, "planted");
                }
            }
        });
        let text = catch_unwind(run).err().and_then(|panic| panic.downcast::<String>().ok());
        (mutant, checker, text.unwrap_or_default(), search.scripts)
    });
    std::panic::set_hook(hook);
    for (mutant, checker, text, scripts) in found {
        println!("{mutant:?}, after {scripts} scripts: {text:.120}");
        assert!(text.starts_with(&format!("{checker} ")), "{mutant:?} is not found by {checker}");
    }
}

/// A dirty and degraded array is refused without consent. After consent, only stripes that the
/// model predicts may be wrong.
#[test]
fn dirty_and_degraded_needs_consent() {
    let mut world = smallest(Level::Raid5, 3, Start::Dirty);
    let range = ByteRange::new(0, 4096);
    world.request(ClientId(1), RequestOp::Write, range, Payload::Tags, SYNC);
    world.step(Order::Fifo);
    world.power_cut(CutMode::Subset);
    world.disks[1].faults.gone = true;
    let refused = world.start(&assemble::Options::default()).unwrap_err();
    assert_eq!(refused.state, assemble::AssemblyState::DirtyDegraded, "{refused}");
    let how = assemble::Options { run: true, force_dirty: true, ..assemble::Options::default() };
    world.start(&how).unwrap();
    assert!(world.verify(Order::Fifo) > 0);
    assert_eq!(world.failure(), None);
}

#[test]
fn random_scripts_on_wider_shapes_survive_many_cuts() {
    let mut coverage = Coverage::default();
    let mut scrubbed = 0;
    for seed in 10_000..10_120 {
        match Script::generate(seed, Profile::MANY_CUTS).run() {
            Ok(report) => {
                coverage.merge(report.coverage);
                scrubbed += report.scrubbed;
            }
            Err(failure) => panic!("{failure}"),
        }
    }
    println!("{coverage:?}");
    assert!(coverage.points > 500 && scrubbed > 1000, "{coverage:?} {scrubbed}");
    assert!(coverage.during_sync > 10, "{coverage:?}");
}
