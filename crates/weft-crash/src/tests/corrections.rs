//! Regression tests of blocks that are unreadable or answered late, and of the writes that follow:
//! corrections, checks, resyncs.

use crate::{BLOCK, CutMode, Logged, Order, Payload, Planned, Rig, chunk_kib};
use weft_engine::assemble;
use weft_engine::knobs::Knobs;
use weft_engine::{Fault, Flags, MemberState, Origin, RequestOp, SyncAction, Token, Verb};
use weft_ondisk::{Level, Version};
use weft_units::Span;

/// A `safe_mode_delay` longer than any of these tests, so that the array stays dirty.
const NEVER: Span = Span::secs(3600);

/// RAID 5 of four with a chunk of 64 KiB: block 0 is on disk 0, 16 on 1, 32 on 2, their P on 3.
fn raid5() -> Rig {
    Rig::raid5(4, chunk_kib(64))
}

/// RAID 6 of four with a spare. The first block of disk 1 is unreadable. The array is marked clean.
fn raid6_with_a_bad_block() -> Rig {
    let mut rig = Rig::raid6(4, chunk_kib(64)).with(|o| o.spares = 1).written(0, 1).flushed();
    rig.stop().recover();
    let first = rig.array.data_offset[1].0;
    rig.disks[1].faults.bad_reads = (first..first + 8).collect();
    rig
}

// A recovery corrects blocks without marking the array dirty. At the end of the recovery,
// superblocks said clean before the members were flushed.
#[test]
fn strip_corrected_by_a_recovery_is_durable_before_superblocks_say_clean() {
    let mut rig = raid6_with_a_bad_block();
    rig.fail_disk(3).until_idle();
    assert_eq!(rig.state_of(4), Some(MemberState::InSync));
    assert_eq!(rig.volume().members[1].corrected, 8);
    assert!(rig.read(0).is_all(1));
}

// A read corrected a block while superblocks were written for another reason, and they said clean
// before the member was flushed.
#[test]
fn strip_corrected_by_a_read_is_durable_before_superblocks_say_clean() {
    let mut rig = raid6_with_a_bad_block();
    let ticket = rig.get(0, BLOCK);
    while rig.disks[1].outstanding_writes().next().is_none() {
        assert!(rig.step(Order::Fifo), "the block is not rewritten");
    }
    rig.disks[1].faults.stalled = true;
    let spare = rig.member_of(4);
    rig.admin(Verb::Remove(spare));
    rig.settle();
    rig.disks[1].faults.stalled = false;
    rig.until_idle();
    assert_eq!(rig.wait(ticket), Ok(vec![1; 4096]));
    assert_eq!(rig.state_of(4), None);
}

/// Completes every request except `held` until no other is left, and asserts that the block of disk
/// 1 was corrected meanwhile.
fn until_corrected_without(rig: &mut Rig, held: Token) {
    loop {
        let other = rig.outstanding().map(|(token, _)| token).find(|token| *token != held);
        let Some(other) = other else { break };
        rig.complete(other);
        rig.must();
    }
    assert_eq!(rig.volume().members[1].corrected, 8);
}

// A new member takes a slot at the same time: the other members' superblocks, which follow in the
// same update, said clean before the members were flushed.
#[test]
fn strip_corrected_while_a_member_takes_a_slot_is_durable_before_superblocks_say_clean() {
    let mut rig = raid6_with_a_bad_block();
    let new = rig.remove(4).fail_disk(3).add_blank().0;
    while !matches!(rig.state_of(new), Some(MemberState::Rebuilding { .. })) {
        rig.settle();
        assert!(rig.step(Order::Fifo), "no member takes the slot");
    }
    let introduced = rig.hold_back(new, 1)[0];
    until_corrected_without(&mut rig, introduced);
    rig.until_idle();
    assert_eq!(rig.state_of(new), Some(MemberState::InSync));
    assert!(rig.read(0).is_all(1));
}

// A superblock write that failed was repeated with the same content, which said clean although a
// block had been corrected meanwhile and was not durable.
#[test]
fn strip_corrected_is_durable_before_a_superblock_says_clean_at_the_second_try() {
    // The flush covers corrections that an earlier process may have made.
    let mut rig = raid6_with_a_bad_block().flushed();
    let spare = rig.member_of(4);
    let next = rig.disks[0].operations();
    rig.disks[0].faults.schedule.insert(next, Planned::Once(Fault::Io));
    rig.admin(Verb::Remove(spare));
    rig.settle();
    let superblock = rig.outstanding_of(0)[0];
    let read = rig.get(0, BLOCK);
    until_corrected_without(&mut rig, superblock);
    rig.until_idle();
    assert_eq!(rig.take_answer(read), Some(Ok(vec![1; 4096])));
    assert_eq!(rig.disks[0].stats.io_errors.superblocks, 1);
    assert_eq!(rig.state_of(0), Some(MemberState::InSync));
}

// After a read error in a run of P, the blocks of the run were not read one by one: with one data
// block missing, all of the chunk's P counted as lost, and two missing members made the data of a
// whole chunk unreadable.
#[test]
fn a_bad_block_of_p_takes_no_other_with_it() {
    const CHUNK: u64 = 64 << 10;
    // Block 0 is on disk 1, its P on disk 3, its Q on disk 0.
    let mut rig = Rig::raid6(4, chunk_kib(64)).with(|o| o.data_promised = false);
    rig.store(0, 2 * CHUNK).expect("the array works");
    rig.fail_disk(0).fail_disk(1).stop().recover();
    let first = rig.array.data_offset[3].0;
    rig.disks[3].faults.bad_reads.insert(first + 8);
    rig.read_bytes(0, CHUNK).expect_err("the second block cannot be reconstructed");
    for block in 0..CHUNK / BLOCK {
        let read = rig.read_bytes(block * BLOCK, BLOCK);
        assert_eq!(read.is_err(), block == 1, "block {block}");
    }
}

// P of RAID 6 can be computed if all data is present. After a read error P was not read again block
// by block, but all blocks of the same request were given up.
#[test]
fn a_check_corrects_a_bad_block_and_no_other() {
    for raid6 in [false, true] {
        for disk in 0..4 {
            let mut rig = if raid6 { Rig::raid6(4, chunk_kib(64)) } else { raid5() };
            rig.store(0, 128 << 10).expect("the array works");
            rig.stop().recover();
            let first = rig.array.data_offset[disk].0;
            rig.disks[disk].faults.bad_reads.insert(first + 8);
            assert_eq!(rig.check(), (0, 256));
            let corrected: Vec<u64> = rig.volume().members.iter().map(|m| m.corrected).collect();
            let expected: Vec<u64> =
                (0..4).map(|other| if other == disk { 8 } else { 0 }).collect();
            assert_eq!(corrected, expected, "RAID 6: {raid6}");
        }
    }
}

// A direct read from a member failed while stripes read the same blocks together to reconstruct a
// missing member. Each block counted as failed twice, and reads of blocks that good blocks could
// reconstruct returned an error.
#[test]
fn two_reads_of_a_run_with_a_bad_block_cost_that_block_only() {
    const CHUNK: u64 = 64 << 10;
    for seed in 0..60 {
        let mut rig = raid5().with(|o| {
            (o.knobs, o.data_promised, o.seed) = (Knobs::default(), false, seed);
        });
        rig.store(0, 3 * CHUNK).expect("the array works");
        // Block 0 is missing. Block 16, from which it is reconstructed, is followed by a bad block.
        rig.fail_disk(0).stop().recover();
        let first = rig.array.data_offset[1].0;
        rig.disks[1].faults.bad_reads.insert(first + 8);
        rig.order = Order::Random;
        rig.read_bytes(0, 3 * CHUNK).expect_err("two of the blocks are unreadable");
        for block in 0..3 * CHUNK / BLOCK {
            let read = rig.read_bytes(block * BLOCK, BLOCK);
            assert_eq!(read.is_err(), block == 1 || block == 17, "block {block}, seed {seed}");
        }
    }
}

/// A full stripe with FUA is not written in one batch with a full stripe without FUA, because a
/// batch is written with the FUA flag of its first stripe.
#[test]
fn a_filled_stripe_with_fua_goes_with_none_that_has_not() {
    for durable in [[false, true], [true, false], [true, true]] {
        let mut rig = raid5().with(|o| {
            o.logged = true;
            o.knobs.safe_mode_delay = NEVER;
        });
        rig.store(100 * BLOCK, BLOCK).expect("the array works");
        let mut tickets = Vec::new();
        for (stripe, fua) in durable.into_iter().enumerate() {
            let flags = Flags { sync: true, fua, ..Flags::NONE };
            let block = |disk: u64| (disk * 16 + stripe as u64) * BLOCK;
            let write = |disk| rig.plug(RequestOp::Write, block(disk), BLOCK, Payload::Tags, flags);
            tickets.extend((0..3).map(write));
        }
        let before = rig.log.len();
        rig.settle();
        rig.finish();
        assert!(tickets.iter().all(|ticket| rig.is_answered(*ticket)));
        let runs = rig.log[before..].iter().filter_map(|logged| match logged {
            Logged::Write { count, fua, metadata: false, .. } => Some((*count, *fua)),
            _ => None,
        });
        // Two stripes with the same flag share one request to each member.
        let runs: Vec<(u64, bool)> = runs.collect();
        let expected =
            if durable[0] == durable[1] { vec![(16, true); 4] } else { vec![(8, true); 4] };
        let with_fua: Vec<_> = runs.iter().filter(|(_, fua)| *fua).copied().collect();
        assert_eq!(with_fua, expected, "{durable:?}: {runs:?}");
        rig.cut(CutMode::Nothing);
        rig.recover();
        assert!(rig.verify() > 0);
    }
}

/// RAID 6 ahead of its resync, with one member missing: parity is not yet in sync there, so a write
/// computes it from all data (reconstruct write) instead of read-modify-write. Flushed data then
/// survives the failure of another member. In md: rows `raid6-6-unsynced-without-…` of
/// `kernel-md-traces.csv`.
#[test]
fn what_is_written_ahead_of_a_resync_survives_two_failures() {
    // Columns of a full stripe with a number divisible by six: Q, four of data, P.
    const FULL_STRIPE: u64 = 120;
    let (q, d0, d1, p) = (0, 1, 2, 5);
    for first in [d1, p, q] {
        let mut rig = Rig::raid6(6, chunk_kib(64)).with(|o| {
            o.knobs = Knobs::default();
            o.knobs.safe_mode_delay = NEVER;
            o.full_stripes = 240;
            o.assume_clean = false;
            // The members were not blank when the array was created.
            o.checked = false;
        });
        for (disk, byte) in (0x11..0x17).enumerate() {
            let at = rig.array.data_offset[disk].0 + FULL_STRIPE * 128;
            for sector in 0..8 {
                rig.disks[disk].poke(at + sector, &[byte; 512]);
            }
        }
        rig.sync(SyncAction::Frozen).expect("a resync may be held back");
        assert!(rig.volume().resync_from.is_some_and(|from| from.0 < FULL_STRIPE * 128));
        rig.fail_disk(first);
        let mut rig = rig.written(FULL_STRIPE * 64, 0x5a).flushed();
        rig.fail_disk(d0);
        rig.stop().recover(); // from the members, not from the cache
        assert!(rig.read(FULL_STRIPE * 64).is_all(0x5a), "disks {first} and {d0} failed");
    }
}

/// An unreadable sector at the position where another metadata version would have its superblock
/// must not fail the member, as it once did.
#[test]
fn a_bad_sector_where_another_version_has_its_superblock_costs_no_member() {
    for version in Version::ALL {
        for other in Version::ALL.into_iter().filter(|other| *other != version) {
            let mut rig = raid5().with(|o| o.version = version).written(0, 1);
            rig.stop();
            let at = other.position(rig.disks[1].size()).expect("the disk is large enough");
            rig.disks[1].faults.bad_reads.insert(at.0);
            let plain = assemble::Options::default();
            let assembly = rig.assemble(&plain).unwrap();
            let note = format!("superblock of version {other} at sector {}", at.0);
            assert!(assembly.notes.iter().any(|it| it.contains(&note)), "{:?}", assembly.notes);
            rig.start(&plain).unwrap_or_else(|refused| panic!("{version}, {other}: {refused}"));
            assert_eq!(rig.volume().degraded, 0, "{version}, {other}");
            assert!(rig.verify() > 0);
        }
    }
}

/// Regression: if a read took members longer than `read_around`, although each member kept
/// answering, the read was aborted at one of them, answered with a stall, repeated and aborted
/// again, forever.
#[test]
fn a_read_that_takes_longer_than_read_around_is_answered() {
    for (level, read_around) in [(Level::Raid5, 2000), (Level::Raid5, 100), (Level::Raid6, 100)] {
        let mut rig = Rig::raid(level, 5, None, chunk_kib(64)).with(|o| {
            o.knobs.read_around = Span::millis(read_around);
            o.knobs.max_sectors = chunk_kib(64).bytes();
        });
        let len = 3 << 20;
        for start in (0..len).step_by(64 << 10) {
            rig.store(start, 64 << 10).unwrap();
        }
        rig.stop().recover();
        let read = rig.get(0, len);
        let mut moments = 0;
        while !rig.is_answered(read) {
            moments += 1;
            assert!(moments < 2000, "{level}, {read_around} ms: the read does not end");
            for disk in 0..5 {
                if let Some(token) = rig.outstanding_of(disk).first() {
                    rig.complete(*token);
                }
            }
            rig.pass_time(Span::millis(300));
        }
        assert_eq!(rig.take_answer(read).unwrap().unwrap().len() as u64, len);
        rig.finish();
        // No member failed, and reads go directly to members again.
        assert_eq!(rig.volume().degraded, 0);
        assert!(rig.verify() > 0);
    }
}

/// Block 1 is rebuilt onto a spare from old parity, while a write that is never answered keeps the
/// stripe of the block suspect. Then the power is cut. Afterwards the members agree, but block 1
/// keeps the wrong content. Found by faults-and-cuts, seed 2000966: a bug of the checkers, which
/// forgot the wrong content.
#[test]
fn what_was_rebuilt_wrongly_is_known_after_the_next_cut() {
    let mut rig = Rig::raid5(3, chunk_kib(4)).with(|o| {
        o.spares = 1;
        o.knobs.safe_mode_delay = NEVER;
    });
    rig = rig.written(0, 1).written(1, 2).flushed();
    let (parity, spare) = (rig.array.data_offset[2].0, rig.array.data_offset[3].0);
    let old = rig.disks[2].peek(parity, 8);
    rig.write(0, 7);
    rig.finish();
    rig.disks[2].poke(parity, &old);
    rig.cut(CutMode::Everything);
    rig.recover();
    rig.disks[1].faults.gone = true;
    let (client, _) = rig.write(0, 9);
    rig.disconnect(client);
    rig.until_idle();
    let rebuilt = rig.disks[3].peek(spare, 8);
    assert!(rebuilt.iter().any(|byte| *byte != 2), "parity was old");
    assert_eq!(rig.suspect_columns(), (0..8).collect::<Vec<u64>>());
    rig.cut(CutMode::Everything);
    rig.recover();
    assert_eq!(rig.suspect_columns(), [] as [u64; 0]);
    assert!(rig.verify() > 0);
}

/// RAID 5 or 6 of four members. Disk 3 holds wrong parity for the first stripe of blocks.
fn with_wrong_parity(level: Level, assume_clean: bool) -> Rig {
    let mut rig = Rig::raid(level, 4, None, chunk_kib(4)).with(|o| {
        o.assume_clean = assume_clean;
        // Twice as many stripes as a sync requests at a time.
        o.full_stripes = 16;
    });
    while !assume_clean && rig.outstanding().all(|(_, p)| p.origin != Some(Origin::Sync)) {
        assert!(rig.step(Order::Fifo), "no resync begins");
    }
    let first = rig.array.data_offset[3].0;
    rig.disks[3].poke(first, &[7; 4096]);
    rig
}

/// Stops a disk from answering, and issues a write of the last stripe, which stays outstanding
/// there and is never aborted.
fn stall(rig: &mut Rig, disk: usize) {
    rig.disks[disk].faults.stalled = true;
    let stripe = rig.size() / 16;
    rig.put(15 * stripe, stripe);
}

// A resync read around a member that did not answer. It compared the reconstructed block with the
// blocks from which this block had been reconstructed, and marked the array clean, so parity stayed
// wrong (write hole). Found by seed 20913 of `faults`.
#[test]
fn a_resync_compares_what_a_member_holds_that_answers_late() {
    for level in [Level::Raid5, Level::Raid6] {
        for stalled in [0, 3] {
            let mut rig = with_wrong_parity(level, false);
            stall(&mut rig, stalled);
            rig.pass(Span::secs(60));
            assert_eq!(rig.volume().sync_action, SyncAction::Resync, "{level}, disk {stalled}");
            rig.disks[stalled].faults.stalled = false;
            rig.until_idle();
            assert_eq!(rig.volume().resync_from, None);
            assert_eq!(rig.volume().mismatch_cnt, 8, "{level}, disk {stalled}");
            rig.scrub_clean();
        }
    }
}

// A check counted blocks that it had not compared as correct.
#[test]
fn a_check_compares_what_a_member_holds_that_answers_late() {
    for level in [Level::Raid5, Level::Raid6] {
        let mut rig = with_wrong_parity(level, true);
        stall(&mut rig, 0);
        rig.admin(Verb::SyncAction(SyncAction::Check));
        rig.pass(Span::secs(60));
        assert_eq!(rig.volume().sync_action, SyncAction::Check, "{level}");
        rig.disks[0].faults.stalled = false;
        rig.until_idle();
        assert_eq!((rig.volume().mismatch_cnt, rig.volume().degraded), (8, 0), "{level}");
    }
}

// A read reconstructed a block from parity that had not been checked since a crash, although the
// member of the block was present and only slow. Counterpart: after the check, reads go around the
// member.
#[test]
fn no_read_goes_round_a_slow_member_where_parity_was_not_checked() {
    let mut rig = with_wrong_parity(Level::Raid5, false);
    stall(&mut rig, 0);
    let read = rig.get(0, BLOCK);
    rig.pass(Span::secs(60));
    assert!(!rig.is_answered(read));
    rig.disks[0].faults.stalled = false;
    assert_eq!(rig.wait(read), Ok(vec![0; 4096]));
    rig.until_idle();
    stall(&mut rig, 0);
    let read = rig.get(0, BLOCK);
    rig.pass(Span::secs(10));
    assert_eq!(rig.take_answer(read), Some(Ok(vec![0; 4096])));
}

// A write that no longer needed an unreadable block did not correct it, and the stripe still
// counted the block as missing later: when another member failed, its recovery found two blocks
// missing although the block could be read by then. Found by the load `faulty` 1001454014.
#[test]
fn a_block_that_a_write_could_not_read_is_corrected_when_the_write_ends() {
    // Both plans need two reads, so a reconstruct write is chosen; as block 16 is unreadable, the
    // stripe is read-modify-written instead.
    let mut rig = raid5();
    let first = rig.array.data_offset[1].0;
    rig.disks[1].faults.bad_reads.insert(first);
    rig.write(0, 1);
    rig.until_idle();
    assert_eq!(rig.volume().members[1].corrected, 8);
    rig.fail_disk(0).remove(0).add_blank();
    rig.until_idle();
    assert_eq!(rig.volume().degraded, 0);
    assert!(rig.read(0).is_all(1));
}
