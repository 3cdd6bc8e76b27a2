//! Tests of members that are replaced while they work: the replacement has all data at the swap,
//! whatever writes, failures and crashes occur before.

use weft_engine::{MemberState, Replace, ReplyError, SyncAction, Verb};
use weft_ondisk::Level;

use crate::{Rig, chunk_kib};

/// Number of 4 KiB blocks that are written: several stripes, and several units of mirrors.
const BLOCKS: u64 = 96;

/// Levels with redundancy: level, number of members, layout.
const LEVELS: [(Level, usize, Option<u32>); 6] = [
    (Level::Raid1, 2, None),
    (Level::Raid1, 3, None),
    (Level::Raid10, 4, Some(0x102)),
    (Level::Raid4, 4, None),
    (Level::Raid5, 4, None),
    (Level::Raid6, 5, None),
];

/// An array that was written, with a spare. Also returns the number of the spare's disk.
fn with_spare(shape: (Level, usize, Option<u32>)) -> (Rig, usize) {
    promised(shape, true)
}

fn promised(
    (level, members, layout): (Level, usize, Option<u32>),
    data_promised: bool,
) -> (Rig, usize) {
    let mut rig = Rig::raid(level, members, layout, chunk_kib(64))
        .with(|options| options.data_promised = data_promised)
        .written(0, 1);
    for block in 1..BLOCKS {
        let write = rig.write(block, 1 + block as u8);
        rig.wait(write).unwrap();
    }
    rig = rig.flushed();
    let spare = rig.add();
    assert_eq!(rig.state_of(spare), Some(MemberState::Spare));
    (rig, spare)
}

fn replace(rig: &mut Rig, disk: usize) -> Result<(), ReplyError> {
    let member = rig.member_of(disk);
    rig.command(Verb::Replace(Replace { member, with: None }))
}

/// Begins to replace a disk. Returns as soon as the spare is bound to its slot.
fn begin(rig: &mut Rig, disk: usize) {
    let (member, with) = (rig.member_of(disk), None);
    rig.admin(Verb::Replace(Replace { member, with }));
    rig.settle();
    let is_bound = |rig: &Rig| rig.volume().members.iter().any(|it| it.replaces.is_some());
    for _ in 0..100 {
        if is_bound(rig) {
            return;
        }
        rig.steps(1);
    }
    panic!("the spare is not bound: {:?}", rig.volume());
}

/// Declares a disk failed, and does not wait until other requests complete.
fn fail_now(rig: &mut Rig, disk: usize) {
    let member = rig.member_of(disk);
    rig.admin(Verb::Fail(member));
    rig.settle();
}

#[test]
fn a_replacement_takes_the_slot_with_all_data() {
    for shape in LEVELS {
        for disk in 0..shape.1 {
            let (mut rig, spare) = with_spare(shape);
            begin(&mut rig, disk);
            // These blocks are written while the rest is copied.
            for block in [0, 17, BLOCKS - 1, 40, 3] {
                rig.steps(2);
                rig.write(block, 0x90 + block as u8);
            }
            rig.until_idle();
            assert_eq!(rig.state_of(disk), Some(MemberState::Faulty), "{shape:?} {disk}");
            assert_eq!(rig.state_of(spare), Some(MemberState::InSync), "{shape:?} {disk}");
            assert_eq!(rig.volume().degraded, 0);
            assert_eq!(rig.check().0, 0, "{shape:?} {disk}");
            assert!(rig.verify() > 0);
            rig.remove(disk);
            rig.stop();
            assert!(rig.scrub_clean() > 0);
        }
    }
}

#[test]
fn a_copy_reads_the_original_only() {
    let (mut rig, spare) = with_spare((Level::Raid5, 4, None));
    let before: Vec<u64> = rig.volume().members.iter().map(|it| it.sectors_read).collect();
    replace(&mut rig, 1).unwrap();
    rig.until_idle();
    let after: Vec<u64> = rig.volume().members.iter().map(|it| it.sectors_read).collect();
    let read: Vec<u64> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
    let size = rig.volume().members[spare].data.unwrap().len.0;
    // Cached strips are not read again.
    assert!(size / 2 < read[1] && read[1] <= size, "{size} {read:?}");
    assert_eq!([read[0], read[2], read[3], read[4]], [0; 4]);
}

#[test]
fn a_replacement_goes_on_as_the_member_when_the_original_fails() {
    for shape in LEVELS {
        let mut in_the_middle = 0;
        for steps in 0..12 {
            let (mut rig, spare) = with_spare(shape);
            begin(&mut rig, 1);
            rig.steps(steps);
            if rig.state_of(1) != Some(MemberState::InSync) {
                continue;
            }
            in_the_middle += 1;
            rig.fail_disk(1);
            rig.write(5, 0x77);
            rig.until_idle();
            assert_eq!(rig.state_of(spare), Some(MemberState::InSync), "{shape:?} {steps}");
            assert_eq!(rig.volume().degraded, 0);
            assert_eq!(rig.check().0, 0, "{shape:?} {steps}");
            assert!(rig.verify() > 0);
        }
        assert!(in_the_middle > 2, "{shape:?}");
    }
}

#[test]
fn an_original_stays_when_its_replacement_fails() {
    for shape in LEVELS {
        let (mut rig, spare) = with_spare(shape);
        begin(&mut rig, 1);
        rig.fail_disk(spare);
        rig.write(5, 0x77);
        rig.until_idle();
        assert_eq!(rig.state_of(1), Some(MemberState::InSync), "{shape:?}");
        assert_eq!(rig.state_of(spare), Some(MemberState::Faulty), "{shape:?}");
        assert_eq!(rig.volume().degraded, 0);
        assert_eq!(rig.check().0, 0, "{shape:?}");
        assert!(rig.verify() > 0);
    }
}

#[test]
fn what_cannot_be_replaced_is_refused() {
    let refusal = |rig: &mut Rig, disk: usize| match replace(rig, disk) {
        Err(ReplyError::Refused(why)) => why,
        other => panic!("{other:?}"),
    };
    let mut rig = Rig::raid5(4, chunk_kib(64)).written(0, 1);
    assert!(refusal(&mut rig, 1).contains("no free spare"));
    let spare = rig.add();
    assert!(refusal(&mut rig, spare).contains("not in sync"));
    rig.sync(SyncAction::Frozen).unwrap();
    replace(&mut rig, 1).unwrap();
    assert!(matches!(replace(&mut rig, 1), Err(ReplyError::Busy(_))));
    assert!(refusal(&mut rig, 2).contains("no free spare"));
    let mut rig = Rig::raid(Level::Raid0, 3, None, chunk_kib(64)).written(0, 1);
    assert!(refusal(&mut rig, 1).contains("without redundancy"));
}

/// A block that the original failed to write stays recorded as bad in the original's log, because
/// its content was stored on the replacement only.
#[test]
fn bad_blocks_of_an_original_stay_when_its_replacement_fails() {
    for shape in [LEVELS[0], LEVELS[4]] {
        let (mut rig, spare) = with_spare(shape);
        let places = rig.array.column(8 * 8).places;
        let place = places.iter().find(|place| place.slot.0 == 1).unwrap_or(&places[0]);
        let (disk, sector) = (usize::from(place.slot.0), place.sector);
        let first = rig.array.data_offset[disk].0 + sector;
        rig.disks[disk].faults.bad_writes.insert(first);
        let write = rig.write(8, 0x55);
        rig.wait(write).unwrap();
        let bad = rig.volume().members[disk].bad_blocks.clone();
        assert!(!bad.is_empty(), "{shape:?}");
        begin(&mut rig, disk);
        while rig.volume().members.iter().all(|it| {
            it.member != rig.member_of(spare) || {
                it.state == MemberState::Rebuilding { recovery_offset: weft_units::Sectors::ZERO }
            }
        }) {
            rig.steps(1);
        }
        rig.fail_disk(spare);
        assert_eq!(rig.state_of(disk), Some(MemberState::InSync), "{shape:?}");
        assert_eq!(rig.volume().members[disk].bad_blocks, bad, "{shape:?}");
        assert!(rig.read(8).is_all(0x55), "{shape:?}");
    }
}

/// The power is cut at each step from the request to the swap and beyond.
#[test]
fn a_cut_at_any_step_leaves_one_of_the_two_at_the_slot() {
    for shape in [LEVELS[0], LEVELS[2], LEVELS[4]] {
        for steps in 0..60 {
            let (mut rig, spare) = with_spare(shape);
            let (member, with) = (rig.member_of(1), None);
            rig.admin(Verb::Replace(Replace { member, with }));
            rig.settle();
            rig.steps(steps);
            rig.power_cut().recover();
            rig.until_idle();
            let states = [rig.state_of(1), rig.state_of(spare)];
            rig.stop().recover();
            assert_eq!(rig.volume().degraded, 0, "{shape:?} {steps} {states:?}");
            rig.until_idle();
            assert_eq!(rig.check().0, 0, "{shape:?} {steps}");
            assert!(rig.verify() > 0);
        }
    }
}

/// Slot 3 is rebuilt and the member of slot 1 is replaced in one pass, and a strip of slot 2 is a
/// bad block. The strip of slot 1 is copied from the original, although its stripe lacks too many
/// other strips to compute it.
#[test]
fn a_strip_is_copied_where_the_rest_of_the_row_is_lost() {
    let mut rig = Rig::raid5(4, chunk_kib(64)).with(|options| options.data_promised = false);
    for block in 0..BLOCKS {
        rig = rig.written(block, 1 + block as u8);
    }
    rig = rig.flushed();
    let at = |rig: &Rig, disk: usize| rig.array.data_offset[disk].0 + 24;
    let first = at(&rig, 2);
    rig.disks[2].faults.bad_writes.extend(first..first + 8);
    for block in 0..BLOCKS {
        let write = rig.write(block, 0x80 + block as u8);
        let _ = rig.wait(write);
    }
    assert!(!rig.volume().members[2].bad_blocks.is_empty());
    let expected = rig.disks[1].peek(at(&rig, 1), 8);
    rig.stop().recover();
    rig.sync(SyncAction::Frozen).unwrap();
    rig.fail_disk(3).remove(3);
    let (first, second) = (rig.add(), rig.add());
    let (member, with) = (rig.member_of(1), Some(rig.member_of(second)));
    rig.command(Verb::Replace(Replace { member, with })).unwrap();
    rig.sync(SyncAction::Recover).unwrap();
    rig.until_idle();
    assert_eq!(rig.state_of(first), Some(MemberState::InSync));
    assert_eq!(rig.state_of(second), Some(MemberState::InSync));
    assert_eq!(rig.disks[second].peek(at(&rig, second), 8), expected);
}

/// The array cannot run without the member that is replaced: a write that this member cannot store
/// returns an error, and the replacement fails.
#[test]
fn a_write_that_a_needed_original_fails_is_not_kept_by_its_replacement() {
    // The array has more recovery units than are copied at once.
    let mut rig = Rig::raid(Level::Raid1, 2, None, chunk_kib(64))
        .with(|options| (options.full_stripes, options.data_promised) = (200, false))
        .written(0, 1)
        .flushed();
    let spare = rig.add();
    begin(&mut rig, 1);
    rig.admin(Verb::SyncAction(SyncAction::Frozen));
    fail_now(&mut rig, 0);
    rig.finish();
    assert!(matches!(rig.state_of(spare), Some(MemberState::Rebuilding { .. })));
    let sector = rig.array.data_offset[1].0;
    rig.disks[1].faults.bad_writes.insert(sector);
    let write = rig.write(0, 0x99);
    assert!(rig.wait(write).is_err());
    assert_eq!(rig.state_of(spare), Some(MemberState::Faulty));
    assert!(rig.read(0).is_all(1));
}

#[test]
fn a_needed_original_that_is_gone_ends_the_copy_at_any_step() {
    let mut broken = 0;
    for shape in [LEVELS[0], LEVELS[4]] {
        for steps in 0..40 {
            let (mut rig, _) = promised(shape, false);
            begin(&mut rig, 1);
            fail_now(&mut rig, 0);
            rig.steps(steps);
            if rig.state_of(1) != Some(MemberState::InSync) {
                continue;
            }
            rig.disks[1].faults.gone = true;
            rig.write(3, 0x44);
            rig.until_idle();
            broken += u32::from(rig.volume().array_state == "broken");
        }
    }
    assert!(broken > 3, "{broken}");
}
