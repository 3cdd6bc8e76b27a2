//! Tests of two members that are rebuilt at once, with a power cut or a process crash meanwhile.

use std::collections::BTreeSet;

use crate::checker::parity::Bytes;
use crate::kept;
use crate::script::{Profile, Script, ScriptStep as Step};
use crate::{ARRAY, CutMode, Logged, Options, Order, Rig, World, chunk_kib};
use weft_engine::mutant::Mutant;
use weft_engine::{Flags, MemberState, RequestOp, SyncAction};
use weft_ondisk::Level;
use weft_units::Sectors;

fn offsets(world: &World) -> BTreeSet<Sectors> {
    let offset = |state| match state {
        MemberState::Rebuilding { recovery_offset } => Some(recovery_offset),
        MemberState::Faulty | MemberState::InSync | MemberState::Spare => None,
    };
    let members = &world.snapshot().volumes[0].members;
    members.iter().filter_map(|member| offset(member.state)).collect()
}

/// Generated scripts keep all promises. The test counts the starts that found two members rebuilt
/// to different offsets and, with a bitmap, the scripts that rebuilt a re-added member beside a
/// fresh one.
#[test]
fn copies_agree_after_an_end_in_the_middle_of_two_rebuilds() {
    for profile in Profile::REBUILDS {
        let starts = std::cell::Cell::new(0);
        let count = |world: &mut World| {
            starts.set(starts.get() + u32::from(offsets(world).len() > 1));
        };
        let (mut requests, mut scrubbed, mut kills, mut cuts) = (0, 0, 0, 0);
        let mut beside = 0;
        for seed in 0..SCRIPTS {
            let report = Script::generate(seed, profile).run_with(&count);
            let report = report.unwrap_or_else(|failure| panic!("{failure}"));
            requests += report.requests;
            scrubbed += report.scrubbed;
            kills += report.kills;
            cuts += report.coverage.points;
            beside += report.rebuilt_beside;
        }
        let counts = format!("{starts:?} {requests} {scrubbed} {kills} {cuts} {beside}");
        let counts = format!("{}: {counts}", profile.name);
        println!("{counts}");
        assert!(starts.get() > 10 && kills > 30 && cuts > 30, "{counts}");
        assert!(requests > 1000 && scrubbed > 1000, "{counts}");
        assert_eq!(beside > 5, profile.bitmaps, "{counts}");
    }
}

/// Stored scripts that once left copies different, because a partly rebuilt member was treated as
/// if its data could not differ from the other copies. Each script passes today
/// (`found_by_sweeps.rs`), and fails with the bug planted.
#[test]
fn scripts_after_which_copies_differed_differ_with_the_bug_planted() {
    let kept = kept::regressions().unwrap_or_else(|error| panic!("{error}"));
    let mut failed = 0;
    for kept in kept.iter().filter(|kept| kept.name.starts_with("partly-rebuilt-settles")) {
        let plant = |world: &mut World| world.plant(Mutant::PartlyRebuiltSettles);
        let failure = kept.script.run_with(&plant).expect_err(&kept.name);
        let by = failure.violation.checker;
        assert!(by.starts_with("I6 ") || by.starts_with("I20"), "{}: {failure}", kept.name);
        failed += 1;
    }
    assert_eq!(failed, 6);
}

/// RAID 1 of three: slot 0 is rebuilt to its middle when slot 1 fails and is replaced. A write
/// below that offset reaches slot 0 but not slot 2, and the power is cut. Returns the number of
/// columns that differ, with or without a bug, when all members are in sync again.
fn cut_below_the_larger_offset(mutant: Option<Mutant>) -> usize {
    let rig = Rig::raid(Level::Raid1, 3, None, chunk_kib(64));
    let mut rig = rig.with(|options| options.full_stripes = 48).written(0, 1).flushed();
    rig.fail_disk(0).finish().remove(0);
    rig.add_blank();
    rig.settle();
    for _ in 0..1000 {
        if offsets(&rig).first().is_some_and(|to| *to >= Sectors(8 * 128)) {
            break;
        }
        rig.steps(1);
    }
    assert_eq!(offsets(&rig).len(), 1, "the first member is being rebuilt");
    rig.sync(SyncAction::Frozen).expect("the command is accepted");
    rig.finish().fail_disk(1).finish().remove(1);
    rig.add_blank();
    rig.finish();
    rig.fua(0, 4096);
    rig.steps(1);
    rig.cut(CutMode::Nothing);
    rig.recover();
    rig.plant(mutant);
    rig.until_idle();
    assert!(offsets(&rig).is_empty() && rig.volume().resync_from.is_none(), "{:?}", rig.volume());
    rig.scrub(Bytes::Visible).wrong.len()
}

#[test]
fn a_write_below_the_larger_of_two_recovery_offsets_is_made_equal_after_a_cut() {
    assert_eq!(cut_below_the_larger_offset(None), 0);
}

#[test]
fn without_a_resync_what_was_rebuilt_in_part_stays_different() {
    assert_eq!(cut_below_the_larger_offset(Some(Mutant::PartlyRebuiltSettles)), 8);
}

/// Origins of the two members that are rebuilt together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Together {
    /// One member is re-added by the bitmap, the other is fresh.
    ReAddedAndFresh,
    /// One member left while it was being rebuilt, and returns.
    HalfRebuilt,
}

fn together(level: Level, members: usize, how: Together, wait: u32, order: Order) -> Script {
    let mut options = Options::new(level, members, chunk_kib(8));
    options.bitmap = Some(weft_units::Bytes(4096));
    options.seed = u64::from(wait);
    let write = |start, len| {
        let flags = Flags { sync: true, ..Flags::NONE };
        Step::Ask { volume: ARRAY, client: 1, op: RequestOp::Write, start, len, flags }
    };
    let mut steps = vec![write(0, 8192 * 12), Step::Finish, Step::Sleep(4000)];
    let away = |disk| [Step::FailDisk(disk), Step::Finish, Step::Remove(disk)];
    steps.extend(away(0));
    match how {
        Together::ReAddedAndFresh => {
            steps.extend(away(2));
            steps.extend([write(8192, 4096), Step::Finish, Step::Sync(SyncAction::Frozen)]);
            steps.extend([Step::ReAdd(0), Step::Add, Step::Sync(SyncAction::Recover)]);
        }
        Together::HalfRebuilt => {
            steps.extend([Step::Sleep(3000), Step::Add, Step::Steps(wait)]);
            steps.extend(away(members));
            steps.extend([write(8192, 4096), Step::Finish, Step::ReAdd(members)]);
        }
    }
    steps.extend([Step::Steps(wait), Step::Finish, Step::Sleep(6000), Step::Finish]);
    steps.extend([Step::Sync(SyncAction::Check), Step::Finish, Step::Cut(CutMode::Everything)]);
    steps.extend([Step::Finish, Step::Sleep(1000)]);
    let profile = "together";
    Script { profile, options, order, steps, within_promises: true, assembles: true }
}

/// A fresh member is copied as a whole, even beside one that is re-added by the bitmap.
#[test]
fn a_fresh_member_is_rebuilt_as_a_whole_beside_one_that_follows_the_bitmap() {
    let mut ran = 0;
    for (level, members) in [(Level::Raid6, 5), (Level::Raid1, 4), (Level::Raid10, 6)] {
        for wait in [0, 3, 10, 40] {
            for order in [Order::Fifo, Order::Random] {
                for how in [Together::ReAddedAndFresh, Together::HalfRebuilt] {
                    let script = together(level, members, how, wait, order);
                    let report = script.run().unwrap_or_else(|failure| panic!("{failure}"));
                    assert!(report.scrubbed >= 32 && report.verified >= 192, "{report:?}");
                    ran += 1;
                }
            }
        }
    }
    assert_eq!(ran, 48);
}

/// A read that begins below the recovery offset of a member and ends behind it does not go to this
/// member; a read that ends at the offset does. The member is the first of its mirror.
#[test]
fn a_read_that_crosses_the_recovery_offset_goes_to_a_member_that_has_all_of_it() {
    let rig = Rig::raid(Level::Raid1, 2, None, chunk_kib(64));
    let mut rig =
        rig.with(|options| (options.full_stripes, options.logged) = (48, true)).written(0, 1);
    let size = rig.size();
    for start in (0..size).step_by(1 << 19) {
        rig.store(start, 1 << 19).expect("the array works");
    }
    rig.finish().fail_disk(0).finish().remove(0);
    let (added, _) = rig.add_blank();
    rig.settle();
    let middle = Sectors(8 * 128);
    for _ in 0..1000 {
        if offsets(&rig).first().is_some_and(|to| *to >= middle) {
            break;
        }
        rig.steps(1);
    }
    rig.sync(SyncAction::Frozen).expect("the command is accepted");
    rig.finish();
    let to = offsets(&rig).first().expect("the member is being rebuilt").bytes().0;
    assert!(to >= middle.bytes().0 && to + 65_536 <= size, "{to} of {size} bytes are rebuilt");
    for (start, len, of_added) in [
        (to - 8192, 8192, true),
        (to - 512, 512, true),
        (to - 8192, 8704, false),
        (to - 512, 1024, false),
        (to, 512, false),
        (to - 65_536, 131_072, false),
    ] {
        rig.log.clear();
        rig.read_bytes(start, len).expect("the range can be read");
        let read = |logged: &Logged| match logged {
            Logged::Read { disk, .. } => Some(*disk == added),
            _ => None,
        };
        let reads: Vec<bool> = rig.log.iter().filter_map(read).collect();
        assert!(!reads.is_empty(), "{start} {len} is read");
        assert!(reads.iter().all(|of| *of == of_added), "{start} {len} of {to}: {reads:?}");
    }
}

/// Scripts of each profile.
const SCRIPTS: u64 = 60;
