//! Power cuts at every point of short scripts, in every order, and what is there afterwards.
//!
//! Small scope (`weft_sim::scope`): all scripts of one or two operations on the smallest array of each
//! level. The test prints how many were exhausted and how many cut short.
//!
//! The same with each policy that is not what md does untuned, on chunks of more than a row.
//!
//! Wider: random scripts on larger shapes, cut often.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "numbers of a test are small"
)]

use weft_engine::assemble;
use weft_engine::{Flags, RequestOp, Shards};
use weft_ondisk::Level;
use weft_sim::scope::{Search, begin, policies};
use weft_sim::script::{Profile, Script};
use weft_sim::{Coverage, CutMode, Options, Order, Payload, World, chunk_kib};
use weft_units::{ByteRange, ClientId};

const SYNC: Flags =
    Flags { sync: true, fua: false, preflush: false, meta: false, discard: false, ahead: false };

fn smallest(level: Level, members: usize, clean: bool) -> World {
    let mut options = Options::new(level, members, chunk_kib(4));
    options.rows_max = Some(4);
    begin(options, clean)
}

fn run_scope(level: Level, members: usize, per_script: u64) -> Search {
    let mut search = Search::default();
    for clean in [true, false] {
        let start = smallest(level, members, clean);
        let note = format!("{level} x {members}, clean {clean}");
        search.run_scripts(&start, per_script, &note);
    }
    println!(
        "{level}x{members}: {} states, {} scripts exhausted, {} cut short, {:?}",
        search.states, search.exhausted, search.cut_short, search.coverage
    );
    assert!(search.verified > search.states && search.scrubbed > search.states);
    search
}

fn assert_covered(coverage: Coverage) {
    assert_covered_with(coverage, 30);
}

fn assert_covered_with(coverage: Coverage, half_written_least: u64) {
    let Coverage { points, half_written_row, strict_subset, inside_metadata, during_sync, .. } =
        coverage;
    assert!(points >= 1000, "{coverage:?}");
    let percent = |count| coverage.percent(count);
    assert!(percent(half_written_row) >= half_written_least, "half-written rows: {coverage:?}");
    assert!(percent(strict_subset) >= 20, "strict subsets: {coverage:?}");
    assert!(percent(inside_metadata) >= 10, "inside metadata: {coverage:?}");
    assert!(percent(during_sync) >= 5, "during row sync: {coverage:?}");
    assert!(coverage.hole_predicted > 0, "no write hole was looked at: {coverage:?}");
    assert!(coverage.hole_wrong > 0, "blind: no predicted row was ever wrong: {coverage:?}");
}

#[test]
fn every_order_and_cut_of_short_scripts_on_raid4() {
    let search = run_scope(Level::Raid4, 3, 20);
    assert_covered(search.coverage);
}

#[test]
fn every_order_and_cut_of_short_scripts_on_raid5() {
    let search = run_scope(Level::Raid5, 3, 36);
    assert!(search.exhausted >= 20, "{}", search.exhausted);
    assert_covered(search.coverage);
}

#[test]
fn every_order_and_cut_of_short_scripts_on_raid6() {
    let search = run_scope(Level::Raid6, 4, 20);
    assert_covered(search.coverage);
}

#[test]
fn every_policy_on_every_level_survives_cuts_of_short_scripts() {
    let policies = policies();
    let mut coverage = Coverage::default();
    let (mut states, mut shapes) = (0, 0);
    for (number, (name, knobs)) in policies.iter().enumerate() {
        for (level, members) in [(Level::Raid4, 3), (Level::Raid5, 4), (Level::Raid6, 5)] {
            let mut search = Search { states: number as u64 * 1000, ..Search::default() };
            let first = search.states;
            let mut options = Options::new(level, members, chunk_kib(8));
            options.knobs = *knobs;
            options.discards = number % 2 == 0;
            let start = begin(options, number % 3 == 0);
            search.run_scripts(&start, 6, &format!("{name}, {level} x {members}"));
            assert!(search.verified > search.states - first, "{name}: nothing was read back");
            states += search.states - first;
            shapes += 1;
            coverage.merge(search.coverage);
        }
    }
    println!("{shapes} policies and levels, {states} states, {coverage:?}");
    assert_eq!(shapes, policies.len() * 3);
    assert!(states > 4000, "{states}");
    assert_covered(coverage);
}

/// Rows dealt to shards, with queues that are delivered in every order with all else.
#[test]
fn every_order_and_cut_of_short_scripts_on_shards_behind_queues() {
    for count in 1..=3 {
        let mut coverage = Coverage::default();
        let (mut states, mut undelivered, mut exhausted) = (0, 0, 0);
        for (number, (level, members)) in
            [(Level::Raid4, 3), (Level::Raid5, 3), (Level::Raid6, 4)].into_iter().enumerate()
        {
            for clean in [true, false] {
                let mut options = Options::new(level, members, chunk_kib(4));
                options.rows_max = Some(4);
                options.shards = Shards { count, queues: true };
                options.discards = clean;
                let first = number as u64 * 1000;
                let mut search = Search { states: first, ..Search::default() };
                let note = format!("{level} x {members} on {count} shards, clean {clean}");
                search.run_scripts(&begin(options, clean), 24, &note);
                assert!(search.verified > search.states - first, "{note}: nothing was read back");
                states += search.states - first;
                undelivered += search.undelivered;
                exhausted += search.exhausted;
                coverage.merge(search.coverage);
            }
        }
        println!(
            "{count} shards: {states} states, {undelivered} with something in a queue, {exhausted} \
             scripts exhausted, {coverage:?}"
        );
        assert!(states > 5000, "{states}");
        assert!(undelivered * 2 > states, "queues were not delayed: {undelivered} of {states}");
        // Many states are those in which a queue has what a row will be written with.
        assert_covered_with(coverage, 25);
    }
}

/// Dirty and degraded is refused unless it is consented to, and then only predicted rows are wrong.
#[test]
fn dirty_and_degraded_needs_consent() {
    let mut world = smallest(Level::Raid5, 3, false);
    let range = ByteRange::new(0, 4096);
    world.request(ClientId(1), RequestOp::Write, range, Payload::Tags, SYNC);
    world.step(Order::Fifo);
    world.power_cut(CutMode::Subset);
    world.disks[1].faults.gone = true;
    let refused = world.start(&assemble::Options::default()).unwrap_err();
    assert!(refused.way_out.is_some(), "{refused}");
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
