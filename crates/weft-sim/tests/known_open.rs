//! Test of known failures: each on the list still fails.

use weft_engine::assemble;
use weft_engine::mutant::Mutant;
use weft_ondisk::Level;
use weft_sim::known_open::{KNOWN_OPEN, KnownOpen};
use weft_sim::script::Profile;
use weft_sim::{BLOCK, CutMode, Options, Rig, World, chunk_kib};
use weft_units::Span;

#[test]
fn known_failures_still_fail() {
    for open in KNOWN_OPEN {
        println!("open: {} seed {}: {}", open.profile.name, open.seed, open.reason);
        open.still_fails().unwrap_or_else(|text| panic!("{text}"));
    }
}

fn entry(seed: u64, violation: &'static [&'static str]) -> KnownOpen {
    KnownOpen { profile: Profile::CUTS, seed, spares: 0, reason: "planted", violation }
}

fn plant(world: &mut World) {
    if let Some(engine) = world.engine_mut() {
        engine.plant(Mutant::AckBeforeSuperblock);
    }
}

/// The list may be empty: so the test of it is shown a failure that is planted, the same one
/// mended, and one that fails otherwise.
#[test]
fn an_entry_that_fails_is_told_from_one_that_is_mended_or_fails_otherwise() {
    let early = &["I5 dirty before data"];
    let fails = |seed: &u64| entry(*seed, early).still_fails_with(&plant).is_ok();
    let seed = (1..20).find(fails).expect("one of 20 scripts writes to an array marked clean");
    let text = entry(seed, early).still_fails().unwrap_err();
    assert!(text.contains("found no violation") && text.contains("take it off"), "{text}");
    assert!(text.contains(&format!("cuts {seed}:")), "{text}");
    let other = entry(seed, &["I13 liveness"]);
    assert!(other.still_fails_with(&plant).unwrap_err().contains("found I5 dirty"));
}

/// What stood on the list once, with the spares it had: two spares of version 0.90 with one number
/// after a cut, and a member without space that failed during a stop.
#[test]
fn what_was_mended_stays_mended() {
    for (seed, spares) in [(1_004_253, 2), (1_002_672, 0)] {
        let mended = KnownOpen { profile: Profile::FAULTS_AND_CUTS, spares, ..entry(seed, &[]) };
        mended.script().run().unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// Open, by hand, for no profile draws it: a superblock that finds no space counts as written, and
/// each retry of the update raises the event count of the members that have space. Two members that
/// are full together fall behind by two, and after a power cut the array is refused without
/// `--force`, though both have all data. Nothing is lost. A mend has to catch full members up
/// before the others, and to decide whether a resync for want of space may still be taken back when
/// a member fails after space was found.
#[test]
fn two_members_without_space_for_superblocks_are_stale_after_a_cut() {
    let mut rig = Rig::of(Options::new(Level::Raid5, 4, chunk_kib(64))).written(0, 1).flushed();
    rig.pass(Span::secs(5));
    assert_eq!(rig.volume().array_state, "clean");
    for disk in [1, 2] {
        rig.disks[disk].faults.no_space = true;
    }
    rig.put(0, BLOCK);
    rig.pass(Span::secs(3));
    rig.cut(CutMode::Nothing);
    for disk in [1, 2] {
        rig.disks[disk].faults.no_space = false;
    }
    let plain = assemble::Options { run: true, ..assemble::Options::default() };
    let refused = rig.start(&plain).expect_err("mended: move this test to full_members.rs");
    let text = refused.to_string();
    assert!(text.contains("need 3 of 4 members in sync, have 2"), "{text}");
}
