//! Tests of known failures: each listed script still fails, and only mended scripts leave the list.

use crate::World;
use crate::kept::{self, Kept};
use crate::script::{Profile, Script};
use weft_engine::mutant::Mutant;

/// Number of stored scripts, open or mended. The number only grows, because a mended script moves
/// from one folder to the other.
const KEPT: usize = 108;

#[test]
fn known_failures_still_fail() {
    let open = kept::open().unwrap_or_else(|error| panic!("{error}"));
    for kept in &open {
        println!("open: {}: {}", kept.name, kept.story);
        kept.may_be_open().unwrap_or_else(|text| panic!("{text}"));
        kept.still_fails().unwrap_or_else(|text| panic!("{text}"));
    }
    let mended = kept::regressions().unwrap_or_else(|error| panic!("{error}"));
    println!("{} open, {} mended", open.len(), mended.len());
    assert_eq!(open.len() + mended.len(), KEPT, "a script is new (raise KEPT), or was lost");
}

fn entry(seed: u64, violation: &[&str]) -> Kept {
    Kept {
        name: format!("cuts-{seed}"),
        story: "planted".to_owned(),
        fails: violation.iter().map(|part| (*part).to_owned()).collect(),
        script: Script::generate(seed, Profile::CUTS),
    }
}

fn plant(world: &mut World) {
    world.plant(Mutant::AckBeforeSuperblock);
}

/// The list of open scripts may be empty, so the rule for its entries is tested with planted
/// entries.
#[test]
fn no_entry_breaks_a_promise_about_data_or_was_not_looked_into() {
    assert_eq!(entry(7, &["I13 liveness"]).may_be_open(), Ok(()));
    assert_eq!(entry(7, &["I19 bounded wait"]).may_be_open(), Ok(()));
    for checker in ["I1 durability", "I2 old or new", "I4 flushed", "I8 copies", "I20 bits"] {
        let text = entry(7, &[checker]).may_be_open().unwrap_err();
        assert!(text.contains("is mended, never open"), "{text}");
    }
    let script = Script::generate(1, Profile::CUTS);
    let failure = script.run_with(&plant).expect_err("the first write is to a clean array");
    let found = Kept { fails: vec!["I13 liveness".to_owned()], ..Kept::of_failure(&failure) };
    assert!(found.may_be_open().unwrap_err().contains("expected what is wrong"));
}

/// The list of open scripts may be empty, so the check of an entry is tested with three planted
/// entries: one that fails as described, one that is mended, and one that fails differently.
#[test]
fn an_entry_that_fails_is_told_from_one_that_is_mended_or_fails_otherwise() {
    let early = &["I5 dirty before data"];
    let fails = |seed: &u64| entry(*seed, early).still_fails_with(&plant).is_ok();
    let seed = (1..20).find(fails).expect("one of 20 scripts writes to a clean array");
    let text = entry(seed, early).still_fails().unwrap_err();
    assert!(text.contains("found no violation") && text.contains("move it"), "{text}");
    assert!(text.contains(&format!("cuts-{seed}:")), "{text}");
    let other = entry(seed, &["I13 liveness"]);
    assert!(other.still_fails_with(&plant).unwrap_err().contains("found I5 dirty"));
    // An entry without a part of its failure's message is not valid.
    assert!(entry(seed, &[]).still_fails_with(&plant).is_err());
}
