//! Tests of discards: full stripes on every member, partial stripes unchanged, and parity right or
//! recorded as suspect after any fault.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "numbers of a test are small"
)]

use crate::{CutMode, Logged, Options, Order, Payload, Planned, Rig, chunk_kib};
use weft_engine::{Fault, Flags, MemberState, ReplyError, RequestOp, SyncAction, assemble};
use weft_ondisk::Level;
use weft_units::Span;

/// Bytes of a chunk.
const CHUNK: u64 = 16 << 10;

fn options(level: Level, members: usize) -> Options {
    let mut options = Options::new(level, members, chunk_kib(CHUNK >> 10));
    options.discards = true;
    options.full_stripes = 8;
    options
}

/// An array that has these options and is written as a whole.
fn full(options: Options) -> Rig {
    let mut rig = Rig::of(options);
    let size = rig.size();
    rig.store(0, size).expect("the array works");
    rig.flushed()
}

/// Bytes of a full stripe.
fn full_stripe(rig: &Rig) -> u64 {
    CHUNK * u64::from(rig.array.geometry().data_members())
}

/// Disk and number of sectors of each data write since the log was cleared.
fn written(rig: &Rig) -> Vec<(usize, u64)> {
    let write = |logged: &Logged| match logged {
        Logged::Write { disk, count, metadata: false, .. } => Some((*disk, *count)),
        _ => None,
    };
    rig.log.iter().filter_map(write).collect()
}

#[test]
fn a_trim_is_one_discard_for_each_member_and_leaves_its_ends_alone() {
    for (level, members) in [(Level::Raid4, 3), (Level::Raid5, 4), (Level::Raid6, 5)] {
        let mut rig = full(Options { logged: true, ..options(level, members) });
        let full_stripe = full_stripe(&rig);
        rig.log.clear();
        let trim = rig.trim(full_stripe - 512, 3 * full_stripe + 1024);
        assert_eq!(rig.wait(trim), Ok(Vec::new()));
        let chunk_sectors = CHUNK / 512;
        let expected: Vec<_> = (0..members).rev().map(|disk| (disk, 3 * chunk_sectors)).collect();
        assert_eq!(written(&rig), expected, "{level}");
        assert!(rig.read_bytes(full_stripe, 3 * full_stripe).unwrap().is_all(0));
        assert!(!rig.read_bytes(full_stripe - 512, 512).unwrap().is_all(0));
        assert!(!rig.read_bytes(4 * full_stripe, 512).unwrap().is_all(0));
        rig.log.clear();
        // The trim covers less than two full stripes, and no full stripe as a whole.
        let trim = rig.trim(5 * full_stripe + 512, 2 * full_stripe - 1024);
        assert_eq!(rig.wait(trim), Ok(Vec::new()));
        assert_eq!(written(&rig), []);
        rig.verify();
        rig.scrub_clean();
        assert_eq!(rig.check().0, 0);
    }
}

#[test]
fn zeroes_are_discarded_where_full_stripes_are_whole_and_written_beside() {
    let mut rig = full(Options { logged: true, ..options(Level::Raid5, 4) });
    let full_stripe = full_stripe(&rig);
    let zeroes = |rig: &mut Rig, discard| {
        rig.log.clear();
        let flags = Flags { discard, ..Flags::NONE };
        let (start, len) = (2 * full_stripe - 4096, full_stripe + 8192);
        let ticket = rig.issue(RequestOp::WriteZeroes, start, len, Payload::Zeros, flags);
        assert_eq!(rig.wait(ticket), Ok(Vec::new()));
        assert!(rig.read_bytes(start, len).unwrap().is_all(0));
        let full_stripes = |(_, count): &(usize, u64)| *count == CHUNK / 512;
        let written = written(rig);
        (written.iter().filter(|write| full_stripes(write)).count(), written.len())
    };
    // There is one discard for each member, and a write of data and of parity for the block at each
    // end.
    assert_eq!(zeroes(&mut rig, true), (4, 8));
    // Without discards the zeros go through the stripe cache, where writes are merged differently.
    assert_eq!(zeroes(&mut rig, false), (2, 6));
    rig.verify();
    rig.fail_disk(1);
    zeroes(&mut rig, true);
    rig.verify();
}

#[test]
fn long_ones_go_run_by_run() {
    let mut long = options(Level::Raid5, 3);
    long.full_stripes = (64 << 20) / CHUNK + 3;
    let mut rig = Rig::of(Options { logged: true, ..long });
    let size = rig.size();
    let trim = rig.trim(0, size);
    assert_eq!(rig.wait(trim), Ok(Vec::new()));
    let (run, rest) = (128 << 10, 3 * CHUNK / 512);
    assert_eq!(written(&rig), [(2, run), (1, run), (0, run), (2, rest), (1, rest), (0, rest)]);
}

#[test]
fn members_that_do_not_discard_are_left_alone() {
    let mut rig = full(Options { logged: true, discards: false, ..options(Level::Raid5, 4) });
    rig.log.clear();
    let full_stripe = full_stripe(&rig);
    let trim = rig.trim(0, 3 * full_stripe);
    assert_eq!(rig.wait(trim), Ok(Vec::new()));
    assert_eq!(written(&rig), []);
    rig.verify();
}

/// The power is cut after each step of a trim between writes, under different rules.
#[test]
fn a_cut_in_the_middle_leaves_full_stripes_that_are_resynced() {
    let mut suspect = 0;
    for (level, members) in [(Level::Raid5, 4), (Level::Raid6, 5)] {
        let mut points = 0;
        for point in 0..200 {
            let mut rig = full(Options { seed: point, ..options(level, members) });
            let full_stripe = full_stripe(&rig);
            rig.order = Order::Random;
            rig.trim(full_stripe, 2 * full_stripe);
            rig.put(2 * full_stripe - 4096, 8192);
            rig.write_zeroes(4 * full_stripe - 512, 1024);
            let before = rig.unanswered();
            rig.steps(point as usize % 25);
            points += u64::from(before > 0 && rig.unanswered() > 0);
            let modes = [CutMode::Subset, CutMode::Ordered, CutMode::Nothing];
            let shape = rig.cut(modes[point as usize % modes.len()]);
            suspect += u64::from(shape.half_written_stripe);
            rig.recover();
            rig.verify();
            rig.until_idle();
            rig.scrub_clean();
        }
        // Some requests are answered before the cut.
        assert!((50..200).contains(&points), "{points}");
    }
    assert!(suspect > 5, "{suspect}");
}

/// A failed discard does not fail the member: on every level zeros are stored in its place, and
/// copies and parity agree.
#[test]
fn a_discard_that_fails_costs_no_member() {
    let levels = [
        (Level::Raid1, 3),
        (Level::Raid10, 4),
        (Level::Raid4, 3),
        (Level::Raid5, 4),
        (Level::Raid6, 5),
    ];
    for (level, members) in levels {
        for zeroes in [false, true] {
            let mut rig = full(options(level, members));
            let len = rig.size() / 2 / CHUNK * CHUNK;
            let next = rig.disks[1].operations();
            rig.disks[1].faults.schedule.insert(next, Planned::Once(Fault::Io));
            let flags = Flags { discard: zeroes, sync: true, ..Flags::NONE };
            let op = if zeroes { RequestOp::WriteZeroes } else { RequestOp::Trim };
            let request = rig.issue(op, 0, len, Payload::Zeros, flags);
            assert_eq!(rig.wait(request), Ok(Vec::new()), "{level}");
            assert_eq!(rig.coverage.discards_failed, 1, "{level}");
            assert_eq!(rig.volume().degraded, 0, "{level}");
            rig.verify();
            assert!(rig.scrub_clean() > 0, "{level}");
        }
    }
}

#[test]
fn a_member_that_fails_is_failed_and_the_full_stripes_are_zero_without_it() {
    for gone in [false, true] {
        let mut rig = full(options(Level::Raid5, 4));
        let full_stripe = full_stripe(&rig);
        let next = rig.disks[2].operations();
        let how = if gone { Planned::Gone } else { Planned::Once(Fault::Io) };
        rig.disks[2].faults.schedule.insert(next, how);
        // The write of zeros in its place fails too.
        rig.disks[2].faults.schedule.insert(next + 1, how);
        let trim = rig.trim(full_stripe, 2 * full_stripe);
        assert_eq!(rig.wait(trim), Ok(Vec::new()));
        assert_eq!(rig.volume().degraded, 1);
        assert!(rig.read_bytes(full_stripe, 2 * full_stripe).unwrap().is_all(0));
        rig.verify();
        let spare = rig.add();
        rig.until_idle();
        assert_eq!(rig.volume().degraded, 0, "disk {spare} took the slot");
        rig.verify();
        rig.scrub_clean();
    }
}

#[test]
fn without_space_the_full_stripes_are_checked_and_no_member_is_failed() {
    let mut rig = full(options(Level::Raid5, 4));
    let full_stripe = full_stripe(&rig);
    let next = rig.disks[1].operations();
    rig.disks[1].faults.schedule.insert(next, Planned::Once(Fault::NoSpace));
    let trim = rig.trim(full_stripe, full_stripe);
    assert_eq!(rig.wait(trim), Err(ReplyError::NoSpace));
    assert!(!rig.scrub(crate::checker::parity::Bytes::Visible).wrong.is_empty());
    rig.pass(Span::secs(2));
    rig.until_idle();
    let states = rig.volume().members.iter().map(|member| member.state).collect::<Vec<_>>();
    assert_eq!(states, [MemberState::InSync; 4]);
    rig.verify();
    rig.scrub_clean();
}

/// A trim and a sync of the same full stripes wait for each other, so that neither sees full
/// stripes that only some members have discarded.
#[test]
fn a_trim_and_a_sync_of_its_full_stripes_wait_for_each_other() {
    for action in [SyncAction::Check, SyncAction::Repair] {
        for steps in (0..60).step_by(3) {
            let mut rig = full(Options { seed: steps, ..options(Level::Raid6, 5) });
            rig.order = Order::Random;
            let full_stripe = full_stripe(&rig);
            rig.admin(weft_engine::Verb::SyncAction(action));
            rig.settle();
            rig.steps(steps as usize);
            let trims =
                [rig.trim(full_stripe, 4 * full_stripe), rig.trim(7 * full_stripe, full_stripe)];
            rig.until_idle();
            for trim in trims {
                assert_eq!(rig.take_answer(trim), Some(Ok(Vec::new())));
            }
            let volume = rig.volume();
            assert_eq!((volume.mismatch_cnt, volume.sync_stripes), (0, 8 * CHUNK / 4096));
            rig.verify();
            rig.scrub_clean();
        }
    }
}

/// Known defect: a degraded array needs consent to start again if one of its members once had no
/// space, although the members have all data by then. The lack of space marks parity as possibly
/// wrong, and only a resync, which a degraded array cannot run, removes this mark. The array should
/// start without consent.
#[test]
fn a_degraded_array_that_was_full_once_asks_for_consent() {
    let mut after_trim = full(options(Level::Raid5, 4));
    after_trim.fail_disk(3);
    let next = after_trim.disks[1].operations();
    after_trim.disks[1].faults.schedule.insert(next, Planned::Once(Fault::NoSpace));
    let trim = after_trim.trim(3 * CHUNK, 3 * CHUNK);
    after_trim.wait(trim).expect_err("the zeros in its place find no space");
    let mut after_write = full(options(Level::Raid5, 4));
    after_write.fail_disk(3);
    after_write.disks[1].faults.no_space = true;
    after_write.put(0, 3 * CHUNK);
    after_write.pass(Span::millis(500));
    after_write.disks[1].faults.no_space = false;
    for mut rig in [after_trim, after_write] {
        rig.pass(Span::secs(5));
        rig.until_idle();
        rig.verify();
        rig.stop();
        let plain = assemble::Options { run: true, ..assemble::Options::default() };
        let refused = rig.start(&plain).expect_err("a known defect");
        assert_eq!(refused.state, assemble::AssemblyState::DirtyDegraded, "{refused}");
        rig.start(&assemble::Options { force_dirty: true, ..plain }).expect("with consent");
        assert!(rig.verify() > 0, "everything reads as it was written");
    }
}
