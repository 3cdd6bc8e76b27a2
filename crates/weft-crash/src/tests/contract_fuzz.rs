//! Fuzz test of the engine's contract: a legal but hostile driver, with every checker on.
//!
//! Completions arrive in any order, with errors anywhere; clients disconnect, administrators act at
//! any time, and knobs change while requests are in flight.
//!
//! `WEFT_CRASH_SEEDS=n` sets the number of seeds, `WEFT_CRASH_FIRST=n` the first one;
//! `examples/sweep.rs` replays a single seed.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "numbers of a test are small"
)]

use crate::script::{Profile, Report, Script};
use crate::shrink::shrink;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn run(profile: Profile, first: u64, seeds: u64) -> Report {
    let seeds = variable("WEFT_CRASH_SEEDS").unwrap_or(seeds);
    let first = variable("WEFT_CRASH_FIRST").unwrap_or(first);
    let mut total = Report::default();
    let mut failures = Vec::new();
    for seed in first..first + seeds {
        match Script::generate(seed, profile).run() {
            Ok(report) => {
                total.coverage.merge(report.coverage);
                total.kills += report.kills;
                total.lacks += report.lacks;
                total.looks += report.looks;
                total.requests += report.requests;
                total.verified += report.verified;
                total.written_again += report.written_again;
                total.scrubbed += report.scrubbed;
            }
            Err(failure) => {
                // The failure is printed at once, so that a long run can be watched.
                eprintln!("{} {seed}: {}", profile.name, failure.violation);
                failures.push(failure);
            }
        }
    }
    if let Some(failure) = failures.first() {
        let mut list = String::new();
        for failure in &failures {
            list += &format!("seed {}: {}\n", failure.script.options.seed, failure.violation);
        }
        let shortest = shrink(failure, &|_| (), 300);
        panic!("{} of {seeds} seeds fail:\n{list}\nshrunk: {shortest}", failures.len());
    }
    println!("{total:?}");
    total
}

#[test]
fn space_that_is_there_again_is_noticed() {
    let reports = Profile::LACKS.map(|profile| run(profile, 9000, 10));
    for (profile, report) in Profile::LACKS.iter().zip(reports) {
        assert!(report.lacks > 20 && report.requests > 1500, "{}: {report:?}", profile.name);
    }
}

#[test]
fn clients_alone_break_nothing() {
    let report = run(Profile::CALM, 0, 60);
    assert!(report.requests > 1000 && report.scrubbed > 1000, "{report:?}");
}

#[test]
fn power_cuts_break_nothing() {
    let report = run(Profile::CUTS, 1000, 60);
    assert!(report.kills > 10 && report.looks > 10, "{report:?}");
    assert!(report.coverage.points > 100 && report.verified > 1000, "{report:?}");
}

#[test]
fn knobs_in_the_middle_of_writes_break_nothing() {
    let report = run(Profile::KNOBS, 5000, 60);
    assert!(report.coverage.points > 40 && report.verified > 1000, "{report:?}");
}

#[test]
fn faults_and_administrators_break_nothing() {
    let report = run(Profile::FAULTS, 2000, 80);
    assert!(report.requests > 1000 && report.scrubbed > 100, "{report:?}");
}

#[test]
fn faults_with_power_cuts_break_nothing_but_predicted_stripes() {
    let report = run(Profile::FAULTS_AND_CUTS, 3000, 80);
    assert!(report.coverage.points > 100, "{report:?}");
}

/// Arrays with a write-intent bitmap, of every level that may have one: members leave and are
/// re-added by the bitmap, and bits are cleared only where members agree.
#[test]
fn arrays_with_a_bitmap_keep_their_promises() {
    let reports = Profile::BITMAPS.map(|profile| run(profile, 8000, 30));
    let mut all = Report::default();
    for (profile, report) in Profile::BITMAPS.iter().zip(reports) {
        assert!(report.requests > 400 && report.verified > 400, "{}: {report:?}", profile.name);
        all.coverage.merge(report.coverage);
        all.kills += report.kills;
    }
    assert!(all.coverage.points > 500 && all.coverage.judged_by_bits > 10_000, "{all:?}");
    assert!(all.coverage.re_added > 15 && all.kills > 20, "{all:?}");
}

/// Members join at any step of an update, and the power is cut soon afterwards.
#[test]
fn members_that_come_in_the_middle_of_an_update_break_nothing() {
    for profile in Profile::JOINS {
        let report = run(profile, 9700, 100);
        let (cuts, requests) = (report.coverage.points, report.requests);
        assert!(cuts > 100 && requests > 1000, "{}: {report:?}", profile.name);
        assert!(report.coverage.re_added > 20, "{}: {report:?}", profile.name);
    }
}

/// Members are replaced while they work, with faults and cuts in the middle, and with sectors that
/// no member can supply, which the replacement records.
#[test]
fn members_that_are_replaced_break_nothing() {
    let mut all = Report::default();
    for profile in Profile::REPLACES {
        let report = run(profile, 9900, 60);
        assert!(report.coverage.replaced > 30, "{}: {report:?}", profile.name);
        assert!(report.requests > 500 && report.verified > 500, "{}: {report:?}", profile.name);
        all.coverage.merge(report.coverage);
    }
    let cuts = all.coverage;
    assert!(cuts.points > 300 && cuts.replacements_failed > 5, "{cuts:?}");
    assert!(cuts.bad_blocks > 50, "{cuts:?}");
}

/// A discard that fails is harmless: the driver stores zeros in its place.
#[test]
fn discards_that_fail_break_nothing() {
    for profile in Profile::TRIMS {
        let report = run(profile, 9500, 60);
        assert!(report.coverage.discards_failed > 200, "{}: {report:?}", profile.name);
        assert!(report.requests > 1000 && report.scrubbed > 300, "{}: {report:?}", profile.name);
    }
}

/// More members are hurt than the level survives: data may be lost, but the contract holds.
#[test]
fn beyond_the_level_the_contract_still_holds() {
    let report = run(Profile::BEYOND, 4000, 80);
    assert!(report.requests > 1000 && report.verified > 1000, "{report:?}");
}

/// Beyond the level while the power stays on: every checker counts, and all content that can be
/// read is right.
#[test]
fn beyond_the_level_nothing_wrong_is_read_or_acknowledged() {
    let report = run(Profile::BEYOND_POWERED, 4300, 80);
    assert!(report.requests > 1000 && report.verified > 1000, "{report:?}");
}

/// The array cannot lose another member, and flushes, superblock writes and reads of the remaining
/// members fail. Their content can still be read, and can be written again once they work.
#[test]
fn the_last_copy_is_served_whatever_it_fails_but_writes() {
    for profile in Profile::LAST_COPIES {
        let report = run(profile, 4600, 80);
        assert!(report.verified > 20_000 && report.written_again > 500, "{report:?}");
    }
}

/// Disks lie about flushes: data may be lost, but the array assembles.
#[test]
fn disks_that_lie_about_flushes_do_not_keep_an_array_from_assembling() {
    let report = run(Profile::LIES, 6000, 80);
    assert!(report.coverage.points > 100 && report.requests > 1000, "{report:?}");
}
