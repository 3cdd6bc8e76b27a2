//! Tests of known failures: each on the list still fails, and none left it but by a mend.

use weft_engine::assemble;
use weft_engine::mutant::Mutant;
use weft_ondisk::Level;
use weft_sim::kept::{self, Kept};
use weft_sim::script::{Profile, Script};
use weft_sim::{BLOCK, CutMode, Options, Rig, World, chunk_kib};
use weft_units::Span;

/// Scripts that are kept, open or mended. It grows: what is mended moves from the one folder to the
/// other.
const KEPT: usize = 59;

#[test]
fn known_failures_still_fail() {
    let open = kept::open().unwrap_or_else(|error| panic!("{error}"));
    for kept in &open {
        println!("open: {}: {}", kept.name, kept.story);
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
    assert!(text.contains("found no violation") && text.contains("move it"), "{text}");
    assert!(text.contains(&format!("cuts-{seed}:")), "{text}");
    let other = entry(seed, &["I13 liveness"]);
    assert!(other.still_fails_with(&plant).unwrap_err().contains("found I5 dirty"));
    // What says nothing of its failure is no entry.
    assert!(entry(seed, &[]).still_fails_with(&plant).is_err());
}

/// Open, by hand, for no profile draws it: a superblock that finds no space counts as written, and
/// each retry of the update raises the event count of the members that have space. Two members that
/// are full together fall behind by two, and after a power cut the array is refused without
/// `--force`, though both have all data. Nothing is lost. Where members that had no space for the
/// last superblock count as behind (`Array::lags`) this passes, and another failure comes: space is
/// found before the failure of a third member is known, so the resync for want of space is not
/// taken back, and the array is left degraded and dirty
/// (`what_is_written_when_there_is_space_again_is_durable_before_clean_is_said`).
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
