//! Tests of arrays without redundancy left: a member that then fails a flush, a superblock write or
//! a read stays in the array.

use crate::{Options, Planned, Rig, chunk_kib};
use weft_engine::knobs::Knobs;
use weft_engine::{Fault, MemberState, ReplyError, SyncAction, Verb};
use weft_ondisk::{Level, NewBitmap, Version};
use weft_units::{Bytes, Span};

/// Returns arrays of each level with redundancy that have lost as many members as they tolerate,
/// each with a disk that has the last copy of block 0, or a part of it.
fn last_copies() -> Vec<(Rig, usize)> {
    let shapes: [(Level, usize, &[usize], usize); 6] = [
        (Level::Raid1, 2, &[1], 0),
        (Level::Raid1, 3, &[0, 2], 1),
        (Level::Raid10, 4, &[1], 0),
        (Level::Raid4, 3, &[2], 0),
        (Level::Raid5, 4, &[1], 0),
        (Level::Raid6, 5, &[1, 4], 0),
    ];
    let made = shapes.map(|(level, members, lost, disk)| {
        let mut rig = Rig::of(Options::new(level, members, chunk_kib(64)));
        rig = rig.with(|options| options.data_promised = false).written(0, 7).written(1, 8);
        rig = rig.flushed();
        for lost in lost {
            rig.fail_disk(*lost);
        }
        (rig, disk)
    });
    made.into()
}

/// Makes the disk fail one flush after a write, and asserts that the client's flush fails. The next
/// flush of the disk succeeds.
fn fails_a_flush(rig: &mut Rig, disk: usize) {
    let write = rig.write(2, 1);
    assert!(rig.wait(write).is_ok());
    rig.disks[disk].faults.flush_error = true;
    let flush = rig.flush();
    assert_eq!(rig.wait(flush), Err(ReplyError::Io));
    rig.disks[disk].faults.flush_error = false;
}

/// Asserts that blocks 0 and 1 are read, that writes and flushes fail, and that the disk has not
/// failed as a member.
fn is_read_and_not_written(rig: &mut Rig, disk: usize) {
    let level = rig.options.level;
    assert!(rig.read(0).is_all(7) && rig.read(1).is_all(8), "{level:?}");
    let write = rig.write(5, 9);
    assert_eq!(rig.wait(write), Err(ReplyError::Io), "{level:?}");
    let flush = rig.flush();
    assert_eq!(rig.wait(flush), Err(ReplyError::Io), "{level:?}");
    let volume = rig.volume();
    assert_eq!(volume.array_state, "broken", "{level:?}");
    let member = rig.member_of(disk);
    let found = volume.members.iter().find(|it| it.member == member).expect("the disk is a member");
    assert_eq!(found.state, MemberState::InSync, "{level:?}");
    assert!(rig.record.is_in_sync(disk), "{level:?}: no failure is recorded");
}

/// A failed flush is reported, and no later flush is acknowledged, because data of the failed one
/// may be lost even if the disk flushes again. The array is stopped with an error and assembled
/// anew.
#[test]
fn last_copy_that_fails_a_flush_is_read_on() {
    for (mut rig, disk) in last_copies() {
        fails_a_flush(&mut rig, disk);
        is_read_and_not_written(&mut rig, disk);
        rig.kill();
        rig.recover();
        assert!(rig.read(0).is_all(7));
        let write = rig.write(5, 9);
        assert!(rig.wait(write).is_ok());
        rig.must();
    }
}

/// A superblock write fails twice. The array was clean, and a write must mark the array dirty
/// first.
#[test]
fn last_copy_that_fails_a_superblock_is_read_on() {
    for (mut rig, disk) in last_copies() {
        rig.pass(Span::secs(5));
        assert_eq!(rig.volume().array_state, "clean");
        let number = rig.disks[disk].operations();
        for attempt in 0..2 {
            let once = Planned::Once(Fault::Io);
            rig.disks[disk].faults.schedule.insert(number + attempt, once);
        }
        let write = rig.write(2, 1);
        assert_eq!(rig.wait(write), Err(ReplyError::Io));
        assert_eq!(rig.disks[disk].stats.io_errors.superblocks, 2, "both attempts failed");
        is_read_and_not_written(&mut rig, disk);
        rig.must();
    }
}

/// With the knob `fail_last_dev`, a mirror fails a member that holds the last copy and fails a
/// flush, as in md; with parity the member stays. In either case the array is broken, superblocks
/// record nothing, and a new assembly has the data.
#[test]
fn last_copy_that_fails_a_flush_is_failed_with_fail_last_dev() {
    for (mut rig, disk) in last_copies() {
        let knob = Knobs::default().parse("fail_last_dev", "1").unwrap();
        assert!(rig.command(Verb::Set(knob)).is_ok());
        fails_a_flush(&mut rig, disk);
        let level = rig.options.level;
        let expected = if level.has_copies() { MemberState::Faulty } else { MemberState::InSync };
        assert_eq!(rig.state_of(disk), Some(expected), "{level:?}");
        assert_eq!(rig.volume().array_state, "broken");
        assert!(rig.record.is_in_sync(disk), "{level:?}: no failure is recorded");
        rig.kill();
        rig.recover();
        assert!(rig.read(0).is_all(7));
        rig.must();
    }
}

/// A member that the array can lose is failed when its flush fails, and the client's flush is
/// acknowledged.
#[test]
fn member_to_spare_that_fails_a_flush_fails() {
    for level in [Level::Raid1, Level::Raid5, Level::Raid6] {
        let mut rig = Rig::of(Options::new(level, 4, chunk_kib(64))).written(0, 7);
        rig.disks[0].faults.flush_error = true;
        let flush = rig.flush();
        assert_eq!(rig.wait(flush), Ok(Vec::new()));
        assert!(!rig.record.is_in_sync(0) && rig.volume().array_state != "broken");
        assert!(rig.read(0).is_all(7));
        rig.must();
    }
}

/// A read that fails repeatedly returns an error. Once the disk works again, the stripe can be read
/// and written.
#[test]
fn last_copy_that_fails_a_read_is_read_and_written_once_it_is_well() {
    let mut failed = 0;
    for (mut rig, disk) in last_copies() {
        // The assembly empties the stripe cache.
        rig.kill();
        rig.recover();
        rig.until_idle();
        let number = rig.disks[disk].operations();
        for attempt in 0..40 {
            let once = Planned::Once(Fault::Io);
            rig.disks[disk].faults.schedule.insert(number + attempt, once);
        }
        failed += u32::from(rig.read_bytes(0, 4096 * 4).is_err());
        rig.disks[disk].faults.schedule.clear();
        for block in [0, 2] {
            let write = rig.write(block, 3);
            assert!(rig.wait(write).is_ok(), "{:?} block {block}", rig.options.level);
            assert!(rig.read(block).is_all(3));
        }
        rig.must();
    }
    assert!(failed >= 3, "{failed} of 6 reads failed");
}

/// RAID 10 of three members, one of them missing. A member that the array needs for another chunk,
/// and that has no bad-block log, fails to write its copy, while the other member writes its own
/// copy. The array stays dirty, with or without a bitmap. Once all slots are filled again, a resync
/// makes the copies equal.
#[test]
fn copy_that_a_needed_member_failed_to_write_is_resynced_once_the_array_is_whole() {
    for bitmap in [false, true] {
        let options = Options::new(Level::Raid10, 3, chunk_kib(64));
        let mut rig = Rig::of(Options { layout: Some(0x102), version: Version::V0_90, ..options });
        rig = rig.with(|options| options.data_promised = false).written(0, 7).flushed();
        if bitmap {
            let new = NewBitmap { chunk: Some(Bytes(4096)), daemon_sleep: 1 };
            assert!(rig.command(Verb::SetBitmap(Some(new))).is_ok());
        }
        rig.fail_disk(0);
        // Chunk 0 is on disks 0 and 1, chunk 2 on disks 1 and 2 behind the first of each.
        let (copy, block) = (1, 32);
        let sector = rig.array.data_offset[copy].0 + 128;
        rig.disks[copy].faults.bad_writes.insert(sector);
        let write = rig.write(block, 9);
        assert_eq!(rig.wait(write), Err(ReplyError::Io));
        assert!(rig.record.is_in_sync(copy), "it is needed");
        rig.pass(Span::secs(60));
        let volume = rig.volume();
        assert_eq!(
            (volume.array_state, volume.sync_action),
            ("active", SyncAction::Idle),
            "it waits"
        );
        assert!(volume.resync_from.is_some(), "bitmap: {bitmap}");
        rig.add();
        rig.until_idle().pass(Span::secs(60));
        assert_eq!((rig.volume().array_state, rig.volume().resync_from), ("clean", None));
        assert_eq!(rig.check().0, 0, "copies agree");
        rig.must();
    }
}
