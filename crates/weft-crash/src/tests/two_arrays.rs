//! Tests of two arrays in one engine: both keep their data, and bugs of the second one are found.

use crate::script::{Profile, Script, ScriptStep};
use crate::{BARE, CutMode, Options, Order, Planned, World, chunk_kib};
use weft_engine::mutant::Mutant;
use weft_engine::{Fault, Flags, RequestOp};
use weft_ondisk::Level;

/// A drawn script of two arrays, without client requests to the first.
fn of_the_second(number: u64) -> Script {
    let profile = Profile::TWO_ARRAYS[usize::from(!number.is_multiple_of(2))];
    let mut script = Script::generate(50_000 + number, profile);
    let of_first = |step: &ScriptStep| match step {
        ScriptStep::Ask { volume, .. } => *volume != BARE,
        _ => false,
    };
    script.steps.retain(|step| !of_first(step));
    script
}

/// Number of the first drawn script in which a checker, with all others off, reports a planted bug;
/// `None` if there is none.
fn found(mutant: Mutant, checker: &'static str) -> Option<u64> {
    let plant = |world: &mut World| world.plant(mutant);
    (0..SCRIPTS).find(|number| {
        let mut script = of_the_second(*number);
        script.options.only = Some(checker);
        let failure = script.run_with(&plant).err();
        failure.is_some_and(|failure| failure.violation.checker.starts_with(checker))
    })
}

#[test]
fn two_arrays_keep_their_data_apart_and_each_its_own() {
    let (mut first, mut second, mut cuts, mut errors) = (0, 0, 0, 0);
    for number in 0..SCRIPTS / 4 {
        for profile in Profile::TWO_ARRAYS {
            let report = Script::generate(number, profile).run();
            let report = report.unwrap_or_else(|failure| panic!("{failure}"));
            first += report.requests - report.bare_requests;
            second += report.bare_requests;
            cuts += report.coverage.points + report.kills;
            errors += report.io_errors.writes;
        }
        let alone = of_the_second(number).run();
        let alone = alone.unwrap_or_else(|failure| panic!("{failure}"));
        second += alone.bare_requests;
    }
    let counts = format!("{first} {second} {cuts} {errors}");
    println!("{counts}");
    assert!(first > 1000 && second > 1000 && cuts > 100, "{counts}");
}

/// Only the second array has data, so a violation that a checker of data reports is in the second
/// array.
#[test]
fn bugs_are_seen_in_the_second_array_alone() {
    for mutant in [Mutant::FlushSkipsOneMember, Mutant::DrainBeforeWritten] {
        let found = found(mutant, "I1 ");
        assert!(found.is_some(), "{mutant:?} is not seen by I1 in {SCRIPTS} scripts");
    }
}

/// A member of the second array misses a write that is acknowledged, and the power is cut after
/// `steps` requests.
fn member_fails(steps: u32) -> Script {
    let mut options = Options::new(Level::Raid5, 3, chunk_kib(8));
    options.beside = 2;
    let first = options.members;
    let ask = |flags| ScriptStep::Ask {
        volume: BARE,
        client: 1,
        op: RequestOp::Write,
        start: 8192 * 512,
        len: 4096,
        flags,
    };
    let fua = Flags { sync: true, fua: true, ..Flags::NONE };
    let how = Planned::Once(Fault::Io);
    Script {
        profile: "second-fails",
        options,
        order: Order::Fifo,
        steps: vec![
            ask(fua),
            ScriptStep::Steps(20),
            // A write that fails is tried once more.
            ScriptStep::FailOperation { disk: first, after: 0, how },
            ScriptStep::FailOperation { disk: first, after: 1, how },
            ask(fua),
            ScriptStep::Steps(steps),
            ScriptStep::Cut(CutMode::Nothing),
        ],
        within_promises: true,
        assembles: true,
    }
}

#[test]
fn a_failed_member_of_the_second_array_is_recorded_before_the_write_is_acknowledged() {
    let plant = |world: &mut World| world.plant(Mutant::MissedWriteNotRecorded);
    let mut seen = Vec::new();
    for steps in 0..12 {
        let script = member_fails(steps);
        script.run().unwrap_or_else(|failure| panic!("{failure}"));
        if let Err(failure) = script.run_with(&plant) {
            seen.push((steps, failure.violation.to_string()));
        }
    }
    println!("{seen:?}");
    assert!(seen.iter().any(|(_, found)| found.starts_with("I1 durability: sector")), "{seen:?}");
}

/// Number of drawn scripts for each bug and checker.
const SCRIPTS: u64 = 100;
