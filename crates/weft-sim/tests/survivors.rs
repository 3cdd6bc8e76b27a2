//! Changes of the engine that no test noticed, by `cargo xtask mutants stripes`: one test for each.

use weft_engine::assemble;
use weft_engine::knobs::Knobs;
use weft_engine::{ReplyError, SyncAction, Verb};
use weft_ondisk::Role;
use weft_sim::{BLOCK, Logged, Order, Rig, chunk_kib};
use weft_units::Span;

/// RAID 5 of four with a chunk of 64 KiB: block 0 is on disk 0.
fn raid5() -> Rig {
    Rig::raid5(4, chunk_kib(64))
}

#[test]
fn a_read_only_array_writes_no_block_again_that_it_could_not_read() {
    let mut rig = raid5().written(0, 7);
    rig.stop();
    let first = rig.array.data_offset[0].0;
    rig.disks[0].faults.bad_reads.extend(first..first + 8);
    rig.disks.iter_mut().for_each(|disk| disk.read_only = true);
    let how = assemble::Options { read_only: true, ..assemble::Options::default() };
    rig.start(&how).expect("it was stopped");
    // What goes to a disk that is read-only fails the test.
    assert!(rig.read(0).is_all(7));
    rig.finish();
    assert_eq!(rig.volume().members[0].corrected, 0);
    assert_eq!(rig.volume().degraded, 0);
    assert!(!rig.disks[0].faults.bad_reads.is_empty());
}

#[test]
fn superblocks_say_that_a_member_was_removed() {
    let mut rig = raid5().written(0, 1);
    rig.fail_disk(2).finish();
    let number = rig.record.of(2).expect("it was a member").dev_number();
    let role = |rig: &Rig| rig.record.of(0).expect("it is a member").role(number);
    assert_eq!(role(&rig), Ok(Role::Faulty));
    rig.remove(2).finish();
    assert_eq!(role(&rig), Ok(Role::Spare));
}

#[test]
fn syncs_that_are_frozen_are_shown_as_such() {
    let mut rig = raid5();
    assert_eq!(rig.volume().sync_action, SyncAction::Idle);
    rig.sync(SyncAction::Frozen).expect("nothing speaks against it");
    assert_eq!(rig.volume().sync_action, SyncAction::Frozen);
    rig.sync(SyncAction::Idle).expect("nothing speaks against it");
    assert_eq!(rig.volume().sync_action, SyncAction::Idle);
}

#[test]
fn what_a_member_had_no_space_for_is_not_written_twice_at_once() {
    let mut rig = raid5().written(0, 1);
    rig.disks[0].faults.no_space = true;
    let write = rig.write(0, 2);
    while !rig.volume().no_space {
        assert!(rig.step(Order::Fifo), "nothing is written");
    }
    // Its next try does not end, and the time for others comes.
    rig.disks[0].faults.no_space = false;
    rig.disks[0].faults.stalled = true;
    rig.pass(Span::millis(2500));
    assert_eq!(rig.disks[0].outstanding_writes().count(), 1);
    rig.disks[0].faults.stalled = false;
    rig.pass(Span::secs(5));
    assert!(rig.is_answered(write) && !rig.volume().no_space);
    rig.finish();
    assert!(rig.scrub_clean() > 0);
}

#[test]
fn a_command_that_waits_for_superblocks_is_answered_when_the_array_breaks() {
    let mut rig = raid5().with(|options| options.data_promised = false);
    // It waits for the round after the one that says dirty, and there is none.
    rig.write(0, 1);
    rig.settle();
    let member = rig.member_of(0);
    let fail = rig.admin(Verb::Fail(member));
    rig.disks[1].faults.gone = true;
    rig.finish();
    assert_eq!(rig.volume().array_state, "broken");
    assert_eq!(rig.wait(fail), Err(ReplyError::Io));
}

/// Writes of a block each, one behind the other, each sent when so many are not answered yet. How many
/// requests read something for it, and how long it took.
fn stream(depth: usize, sync: bool) -> (usize, Span) {
    let mut rig = raid5().with(|options| {
        options.knobs = Knobs::default();
        options.logged = true;
    });
    rig.store(rig.size() - BLOCK, BLOCK).expect("nothing is wrong with it");
    rig.log.clear();
    let begin = rig.now;
    for block in 0..144 {
        while rig.unanswered() >= depth {
            assert!(rig.step(Order::Fifo) || rig.wake(), "nobody is answered");
        }
        let at = block * BLOCK;
        if sync {
            rig.put(at, BLOCK)
        } else {
            rig.put_nosync(at, BLOCK)
        };
        rig.settle();
    }
    rig.finish();
    let reads = rig.log.iter().filter(|logged| matches!(logged, Logged::Read { .. }));
    (reads.count(), rig.now.since(begin))
}

#[test]
fn a_stream_that_runs_ahead_of_its_answers_reads_little_and_no_other_is_kept_waiting() {
    let (one_by_one, ahead) = (stream(1, false), stream(64, false));
    assert!(ahead.0 * 4 <= one_by_one.0, "{ahead:?} and {one_by_one:?}");
    assert!(one_by_one.1.0 <= stream(1, true).1.0 * 2, "{one_by_one:?}");
}

/// The cache has eight rows. Chunk rows are filled from their middle on, and writes that wait for rows bring
/// what those lack that are there: of the 16 chunk rows few are read.
#[test]
fn a_write_that_waits_for_rows_fills_those_that_wait_for_it() {
    let mut rig = raid5().with(|options| {
        options.knobs = Knobs::default();
        options.rows_max = Some(8);
        options.chunk_rows = 24;
        options.logged = true;
    });
    rig.store(rig.size() - BLOCK, BLOCK).expect("nothing is wrong with it");
    rig.log.clear();
    let row = 48 * BLOCK;
    for pair in 0..8 {
        let at = pair * 2 * row;
        let (second, rest) = (at + row, row - 3 * BLOCK);
        for block in 0..3 {
            rig.put_nosync(second + block * BLOCK, BLOCK);
        }
        rig.put_nosync(at, row);
        rig.put_nosync(second + 3 * BLOCK, rest);
        rig.put_nosync(at, 2 * row);
        rig.settle();
    }
    rig.finish();
    let reads = rig.log.iter().filter(|logged| matches!(logged, Logged::Read { .. })).count();
    assert!(reads <= 16, "{reads} requests read something");
}
