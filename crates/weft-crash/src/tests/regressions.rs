//! Regression tests: one for each bug that a review found and the sweeps had missed.

use std::collections::VecDeque;

use crate::{BLOCK, Logged, Order, Payload, Planned, Rig, Ticket, chunk_kib};
use weft_engine::assemble::{self, Assembly, Candidate};
use weft_engine::knobs::Knobs;
use weft_engine::{
    Attr, ClientRequest, Config, Engine, Fault, Flags, Input, MemberInfo, MemberState, Output,
    ReplyError, RequestOp, Run, SyncAction, Tag, Token, Value, Verb,
};
use weft_ondisk::{Level, NewArray, NewMember, Uuid};
use weft_units::rng::Rng;
use weft_units::{ByteRange, ClientId, MemberIndex, Sectors, Span, Time, VolumeId};

/// A `safe_mode_delay` longer than any of these tests, so that the array stays dirty.
const NEVER: Span = Span::secs(3600);

/// RAID 5 of four with a chunk of 64 KiB: block 0 is on disk 0, 16 on 1, 32 on 2, their P on 3.
fn raid5() -> Rig {
    Rig::raid5(4, chunk_kib(64))
}

/// Runs until a request is answered, and returns the answer. Meanwhile the disk has no space for
/// writes that begin at its first data sector.
fn wait_without_space_for_first(
    rig: &mut Rig,
    disk: usize,
    ticket: Ticket,
) -> Result<(), ReplyError> {
    let first = rig.array.data_offset[disk].0;
    while !rig.is_answered(ticket) {
        let full = rig.disks[disk].outstanding_writes().any(|(at, _)| at == first);
        rig.disks[disk].faults.no_space = full;
        assert!(rig.step(Order::Fifo), "a request is outstanding");
    }
    rig.disks[disk].faults.no_space = false;
    rig.must();
    rig.take_answer(ticket).expect("the request was answered").map(|_| ())
}

/// RAID 5 of five members with a chunk of 64 KiB, which stays dirty: block 0 is on disk 0, block 16
/// on disk 1 and so on, P on disk 4. Each of these data blocks is filled with 0x40 plus the number
/// of its disk, and none is in the stripe cache.
fn five_with_a_stripe(knobs: Knobs) -> Rig {
    let mut rig = Rig::raid5(5, chunk_kib(64)).with(|o| {
        o.knobs = knobs;
        o.knobs.safe_mode_delay = NEVER;
    });
    for (disk, byte) in (0..4).zip(0x40..) {
        rig = rig.written(disk * 16, byte);
    }
    rig.stop().recover();
    rig.written(100, 1)
}

/// Issues a full-stripe write to a stripe other than those of [`five_with_a_stripe`], while a disk
/// stalls.
fn stall_a_write(rig: &mut Rig, disk: usize) {
    rig.disks[disk].faults.stalled = true;
    for disk in 0..4 {
        let sync = Flags { sync: true, ..Flags::NONE };
        rig.plug(RequestOp::Write, (disk * 16 + 8) * BLOCK, BLOCK, Payload::Tags, sync);
    }
    rig.settle();
}

/// RAID 5 with a stripe cache of one full stripe (sixteen stripes). Every block is written.
fn one_full_stripe_of_cache() -> Rig {
    let mut rig = raid5().with(|o| {
        o.knobs = Knobs::default();
        o.stripes_max = Some(16);
    });
    for stripe in 0..16 {
        rig.store(stripe * STRIPE, STRIPE).expect("the array works");
    }
    rig
}

/// Bytes of data of a full stripe of [`raid5`].
const STRIPE: u64 = 192 << 10;

/// An array of three members with indexes from `first` on.
fn assembly(first: u16) -> Assembly {
    let size = Sectors(20_480);
    let uuid = |number: u16| Uuid([number.to_le_bytes()[0]; 16]);
    let member = |number| NewMember { size, device_uuid: uuid(first + number) };
    let mut array = NewArray::new(Level::Raid5, (1..=3).map(member).collect());
    (array.set_uuid, array.assume_clean) = (uuid(first + 9), true);
    let mut candidates = Candidate::of_new(&array).expect("three members are enough");
    for (candidate, index) in candidates.iter_mut().zip(first..) {
        candidate.member = MemberInfo::of_size(MemberIndex(index), format!("disk{index}"), size);
    }
    assemble::assemble(&candidates, &assemble::Options::default()).expect("a new array")
}

fn read(tag: u64, volume: u16, len: u64, frames: Run) -> Input {
    Input::Client(ClientRequest {
        client: ClientId(1),
        tag: Tag(tag),
        volume: VolumeId(volume),
        op: RequestOp::Read,
        range: ByteRange::new(0, len),
        frames,
        flags: Flags::NONE,
        attr: Attr::default(),
    })
}

// Errors of a failed member that arrived late were attributed to the disk that had its slot by
// then, so that a dead member also failed the spare.
#[test]
fn late_errors_of_a_failed_member_do_not_fail_its_replacement() {
    let mut rig = raid5().with(|o| o.spares = 1).written(250, 1);
    for block in 0..8 {
        rig.write(block, 7);
    }
    let tokens = rig.hold_back(0, 2);
    rig.disks[0].faults.gone = true;
    rig.complete(tokens[0]);
    assert_eq!(rig.state_of(0), Some(MemberState::Faulty));
    assert_eq!(rig.state_of(4), Some(MemberState::Spare), "the failure is not recorded yet");
    let is_rebuilding = |rig: &Rig| {
        let state = rig.state_of(4);
        matches!(state, Some(MemberState::Rebuilding { .. }))
    };
    while !is_rebuilding(&rig) {
        let other = rig.outstanding().map(|(token, _)| token).find(|it| *it != tokens[1]);
        rig.complete(other.expect("superblock writes are outstanding"));
    }
    rig.complete(tokens[1]);
    assert_eq!(rig.state_of(0), Some(MemberState::Faulty));
    assert!(is_rebuilding(&rig));
    rig.until_idle();
    assert_eq!(rig.state_of(4), Some(MemberState::InSync));
    assert!(rig.scrub_clean() > 0);
}

// The end of a rebuild that had already passed a stripe cleared the record that the parity of this
// stripe must be corrected.
#[test]
fn rebuild_does_not_forget_a_stripe_behind_it_that_found_no_space() {
    let mut rig = raid5().with(|o| o.knobs.safe_mode_delay = NEVER);
    for chunk in 0..40 {
        rig = rig.written(chunk * 16, 1);
    }
    rig.fail_disk(3).remove(3);
    rig.add_blank();
    rig.settle();
    while rig.volume().sync_completed.is_none_or(|(done, _)| done <= Sectors(64)) {
        assert!(rig.step(Order::Fifo), "the rebuild continues");
    }
    assert_eq!(rig.volume().sync_action, SyncAction::Recover);
    let ticket = rig.write(0, 2);
    let answer = wait_without_space_for_first(&mut rig, 0, ticket);
    assert_eq!(answer, Err(ReplyError::NoSpace));
    assert_eq!(rig.volume().resync_from, Some(Sectors(0)));
    rig.pass(Span::secs(2)).until_idle();
    assert_eq!((rig.volume().degraded, rig.volume().resync_from), (0, None));
    assert!(rig.scrub_clean() > 0);
}

// A round of flushes without a member never ended, and a stop waited for it.
#[test]
fn flush_and_stop_are_answered_when_no_member_is_left() {
    let mut rig = Rig::raid5(3, chunk_kib(64)).with(|o| o.data_promised = false).written(0, 1);
    for disk in 0..3 {
        rig.disks[disk].faults.gone = true;
    }
    for block in [1, 17, 33, 49] {
        assert_eq!(rig.read_bytes(block * BLOCK, BLOCK), Err(ReplyError::Io));
    }
    assert!((0..3).all(|disk| rig.state_of(disk) == Some(MemberState::Faulty)));
    let flush = rig.flush();
    assert_eq!(rig.wait(flush), Err(ReplyError::Io));
    assert_eq!(rig.command(Verb::Stop), Ok(()));
}

// Requests were aborted only at a member that an administrator failed; a member that failed by an
// error held its stripes forever.
#[test]
fn what_a_failed_member_never_answers_is_given_up() {
    let mut rig = raid5().with(|o| o.knobs.member_timeout = Span::secs(5)).written(200, 1);
    let tickets: Vec<Ticket> = (0..4).map(|block| rig.write(block, 7)).collect();
    let tokens = rig.hold_back(0, 2);
    rig.disks[0].faults.gone = true;
    rig.complete(tokens[0]);
    assert_eq!(rig.state_of(0), Some(MemberState::Faulty));
    rig.disks[0].faults.gone = false;
    rig.disks[0].faults.stalled = true;
    rig.pass(Span::secs(60));
    for ticket in tickets {
        assert_eq!(rig.take_answer(ticket), Some(Ok(Vec::new())));
    }
    assert!((0..4).all(|block| rig.read(block).is_all(7)));
}

// The flush of a first attempt to mark the array clean also counted for the second.
#[test]
fn clean_state_waits_for_a_flush_that_began_after_the_last_write() {
    let mut rig = Rig::raid5(3, chunk_kib(64)).written(0, 1);
    assert!(rig.wake());
    assert_eq!(rig.volume().array_state, "active-idle");
    let flushes: Vec<Token> = rig.outstanding().map(|(token, _)| token).collect();
    assert_eq!(flushes.len(), 3);
    let ticket = rig.write(1, 2);
    while let Some(token) = rig.pending().into_iter().find(|token| !flushes.contains(token)) {
        rig.complete(token);
    }
    assert_eq!(rig.take_answer(ticket), Some(Ok(Vec::new())));
    let stop = rig.admin(Verb::Stop);
    rig.settle();
    for token in flushes {
        rig.complete(token);
        rig.must();
    }
    // Only the second round of flushes is outstanding.
    assert_eq!((rig.volume().array_state, rig.pending().len()), ("active-idle", 3));
    assert_eq!(rig.wait(stop), Ok(Vec::new()));
    assert_eq!(rig.volume().array_state, "clean");
}

// Stripes with requests at a stalled member stay in use. The resize waited for these stripes, and
// all requests waited for the resize.
#[test]
fn resize_of_the_cache_is_given_up_when_a_member_stalls() {
    let mut rig = raid5().written(0, 1).written(16, 1).written(32, 1);
    rig.disks[1].faults.stalled = true;
    for block in [1, 17, 33] {
        rig.write(block, 3);
    }
    rig.pass(Span::secs(1));
    let resize = rig.set("stripe_cache_size", "17");
    rig.settle();
    let writes: Vec<Ticket> = (0..16).map(|stripe| rig.write(48 * stripe + 5, 9)).collect();
    rig.pass(Span::secs(100));
    assert!(matches!(rig.take_answer(resize), Some(Err(ReplyError::Busy(_)))));
    // Requests that do not need the member proceed.
    assert!(writes.iter().any(|ticket| rig.is_answered(*ticket)));
    let ticket = rig.get(0, BLOCK);
    rig.pass(Span::secs(100));
    assert_eq!(rig.take_answer(ticket), Some(Ok(vec![1; 4096])));
    rig.disks[1].faults.stalled = false;
    rig.finish();
    assert!(writes.iter().all(|ticket| rig.is_answered(*ticket)));
}

// A rewrite of an unreadable block that found no space counted as done, and the block was read
// back, which failed.
#[test]
fn full_member_is_not_failed_by_the_rewrite_of_a_bad_block() {
    let mut rig = raid5().written(0, 1).flushed();
    rig.stop().recover();
    let first = rig.array.data_offset[0].0;
    rig.disks[0].faults.bad_reads = (first..first + 8).collect();
    rig.disks[0].faults.no_space = true;
    assert!(rig.read(0).is_all(1));
    rig.finish();
    assert_eq!(rig.volume().degraded, 0);
    assert_eq!(rig.state_of(0), Some(MemberState::InSync));
    // With space again and the stripe out of the cache, the block is corrected.
    rig.disks[0].faults.no_space = false;
    rig.stop().recover();
    assert!(rig.read(0).is_all(1));
    rig.finish();
    assert_eq!(rig.volume().members[0].corrected, 8);
}

// In a degraded stripe, P was written and data was not, for lack of space: missing blocks that no
// client had written became garbage.
#[test]
fn no_space_in_a_degraded_stripe_leaves_the_blocks_that_no_client_wrote() {
    for lost in 0..3 {
        let mut rig = raid5().with(|o| o.knobs.safe_mode_delay = NEVER);
        let before = [(0, 0x40), (16, 0x50), (32, 0x60)];
        for (block, byte) in before {
            rig = rig.written(block, byte);
        }
        rig.fail_disk(lost);
        let disk = (lost + 1) % 3;
        let written = 16 * disk as u64;
        let ticket = rig.write(written, 0xee);
        let answer = wait_without_space_for_first(&mut rig, disk, ticket);
        assert_eq!(answer, Err(ReplyError::NoSpace));
        rig.pass(Span::secs(2));
        for (block, byte) in before {
            let found = rig.read(block);
            let new = block == written && found.is_all(0xee);
            assert!(new || found.is_all(byte), "disk {lost} lost, block {block}: {:x}", found.0[0]);
        }
    }
}

// While clients waited for stripes, the rebuild never got one.
#[test]
fn rebuild_ends_while_clients_want_more_stripes_than_there_are() {
    let mut rig = raid5();
    rig.fail_disk(3).remove(3);
    rig.add_blank();
    rig.settle();
    let (mut rng, mut tickets, mut written) = (Rng::new(3), Vec::new(), 0);
    let blocks = rig.size() / BLOCK;
    while rig.volume().degraded > 0 {
        tickets.retain(|ticket| rig.take_answer(*ticket).is_none());
        while tickets.len() < 64 {
            tickets.push(rig.write(rng.below(blocks), 1));
            written += 1;
        }
        assert!(written < 2000, "starved at {:?}", rig.volume().sync_completed);
        assert!(rig.step(Order::Fifo));
    }
    assert_eq!(rig.state_of(4), Some(MemberState::InSync));
    rig.finish();
    assert!(rig.scrub_clean() > 0);
}

// A recovery that waited for the end of a check started only at the next event, and the end of the
// check was no event.
#[test]
fn recovery_starts_at_the_end_of_the_check_it_waited_for() {
    let mut rig = raid5().with(|o| o.spares = 1).written(0, 1);
    rig.pass(Span::secs(2));
    rig.admin(Verb::SyncAction(SyncAction::Check));
    rig.settle();
    rig.steps(20);
    assert_eq!(rig.volume().sync_action, SyncAction::Check);
    let member = rig.member_of(0);
    rig.admin(Verb::Fail(member));
    rig.settle();
    // `run` is not used here, because it would begin with a turn that the engine did not request.
    while rig.step(Order::Fifo) {}
    rig.must();
    assert_eq!((rig.volume().degraded, rig.volume().sync_action), (0, SyncAction::Idle));
    assert_eq!(rig.state_of(4), Some(MemberState::InSync));
}

// A read of the second volume was submitted as one of the first, which had no such request.
#[test]
fn read_of_the_second_volume_is_answered_to_the_second_volume() {
    let mut config = Config::for_volume(assembly(0), Knobs::md());
    config.volumes.extend(Config::for_volume(assembly(10), Knobs::md()).volumes);
    config.cache_frames *= 2;
    let frames = Run::new(config.client_frames_first(), 1);
    let mut engine = Engine::new(config, Time(0)).expect("two volumes");
    engine.handle(Time(0), read(1, 1, BLOCK, frames));
    let mut outputs = VecDeque::new();
    engine.run(Time(0), 1, &mut outputs);
    let Some(Output::Submit { token, member, .. }) = outputs.pop_front() else { panic!("no read") };
    assert_eq!((member, outputs.len()), (MemberIndex(10), 0));
    engine.handle(Time(0), Input::Done { token, result: Ok(Value::Nothing) });
    engine.run(Time(0), 1, &mut outputs);
    let answered =
        |output: &Output| matches!(output, Output::Reply { tag: Tag(1), result: Ok(()), .. });
    assert_eq!(outputs.iter().filter(|output| answered(output)).count(), 1);
    assert!(!outputs.iter().any(|output| matches!(output, Output::Submit { .. })));
}

// A spare that had been away returned with a device number that another member had by then, and
// took the slot of that member.
#[test]
fn spare_with_a_number_that_another_member_has_now_is_not_believed() {
    let mut rig = Rig::raid5(3, chunk_kib(64)).with(|o| o.spares = 1).written(0, 1).written(16, 2);
    rig.remove(3);
    rig.fail_disk(1).remove(1);
    let new = rig.add();
    rig.until_idle();
    let number_of = |disk: usize| rig.volume().members[disk].dev_number;
    assert_eq!((new, number_of(2)), (4, 3));
    rig.stop();
    rig.disks[1].faults.gone = true;
    rig.recover();
    assert_eq!(rig.state_of(3), None);
    rig.fail_disk(0).until_idle();
    assert_eq!(rig.volume().degraded, 1);
    rig.store(0, BLOCK).expect("degraded is not failed");
    rig.stop().recover();
    assert_eq!(rig.state_of(4), Some(MemberState::InSync));
    assert!(rig.read(16).is_all(2));
    assert!(rig.verify() > 0);
}

// Content that a failed read left in the memory of a stripe counted as the block, and was even
// written to the replacement.
#[test]
fn block_that_cannot_be_read_back_is_not_taken_from_memory() {
    let mut rig = raid5().with(|o| o.knobs.stripe_cache_size = 512).written(0, 1).flushed();
    rig.stop().recover();
    let first = rig.array.data_offset[0].0;
    rig.disks[0].faults.bad_reads = (first..first + 8).collect();
    let ticket = rig.get(0, BLOCK);
    while rig.disks[0].outstanding_writes().next().is_none() {
        assert!(rig.step(Order::Fifo), "a rewrite is outstanding");
    }
    rig.steps(1);
    // Both the outstanding read back and its repetition fail.
    let next = rig.disks[0].operations();
    for operation in [next - 1, next] {
        rig.disks[0].faults.schedule.insert(operation, Planned::Once(Fault::Io));
    }
    assert_eq!(rig.wait(ticket), Ok(vec![1; 4096]));
    assert_eq!(rig.state_of(0), Some(MemberState::Faulty));
    rig.remove(0);
    rig.add();
    rig.until_idle();
    rig.fail_disk(1);
    assert!(rig.read(0).is_all(1));
    assert!(rig.read(16).is_all(0) && rig.read(32).is_all(0));
}

// The sum of two lengths near 2^64 overflowed.
#[test]
fn lengths_near_the_largest_number_are_refused() {
    let config = Config::for_volume(assembly(0), Knobs::md());
    let frames = Run::new(config.client_frames_first(), 1);
    let mut engine = Engine::new(config, Time(0)).expect("one volume");
    for tag in 1..=2 {
        engine.handle(Time(0), read(tag, 0, u64::MAX - 4, frames));
    }
    let mut outputs = VecDeque::new();
    engine.run(Time(0), 1, &mut outputs);
    let refusals = outputs.into_iter().filter_map(|output| match output {
        Output::Reply { result, .. } => result.err(),
        _ => None,
    });
    let refusals: Vec<ReplyError> = refusals.collect();
    assert!(matches!(refusals[..], [ReplyError::OutOfRange, ReplyError::Busy(_)]), "{refusals:?}");
}

// Requests that arrived after a request of many stripes waited until the latter had got its last
// stripe.
#[test]
fn small_write_goes_between_the_pieces_of_a_huge_one() {
    let mut rig = raid5().with(|o| o.full_stripes = 64);
    let size = rig.size();
    let huge = rig.write_zeroes(0, size - 65_536);
    let small = rig.write(size / BLOCK - 1, 1);
    let mut before = 0;
    while !rig.is_answered(small) {
        assert!(rig.step(Order::Fifo), "a request is outstanding");
        before += 1;
    }
    assert!(!rig.is_answered(huge));
    let mut after = 0;
    while rig.step(Order::Fifo) {
        after += 1;
    }
    assert!(before * 2 < after, "answered after {before} completions, {after} were to come");
    assert_eq!(rig.take_answer(huge), Some(Ok(Vec::new())));
    rig.must();
}

// After the answer to a stop, the addition of a spare still wrote superblocks to the spare and to
// all members.
#[test]
fn command_after_a_stop_is_refused_and_writes_nothing() {
    let mut rig = raid5().with(|o| o.logged = true).written(0, 1);
    rig.command(Verb::Stop).expect("the array stops");
    rig.log.clear();
    let (_, ticket) = rig.add_blank();
    assert_eq!(rig.wait(ticket), Err(ReplyError::Stopping));
    assert!(!rig.log.iter().any(|line| matches!(line, Logged::Write { .. })), "{:?}", rig.log);
}

// A stripe with pinned memory dropped content that no member had yet: blocks that no client wrote
// were then computed from old data and new parity.
#[test]
fn stripe_with_a_deferred_write_is_kept_when_a_read_of_it_is_given_up() {
    for knobs in [Knobs::md(), Knobs::default()] {
        for failed in [false, true] {
            let mut rig = five_with_a_stripe(knobs);
            if !failed {
                // The disk still stalls when the read is aborted.
                stall_a_write(&mut rig, 2);
            }
            let ticket = rig.write(0, 0xee);
            let answer = wait_without_space_for_first(&mut rig, 0, ticket);
            assert_eq!(answer, Err(ReplyError::NoSpace));
            rig.disks[2].faults.stalled = true;
            let read = rig.get(32 * BLOCK, BLOCK);
            if failed {
                rig.fail_disk(2);
            }
            // The failure must be recorded on disk 0, too, which needs space for it.
            rig.disks[0].faults.no_space = !failed;
            rig.pass(Span::secs(5));
            assert_eq!(rig.take_answer(read), Some(Ok(vec![0x42; 4096])), "failed {failed}");
            rig.disks[0].faults.no_space = false;
            rig.disks[2].faults.stalled = false;
            rig.pass(Span::secs(5)).finish();
            for (block, byte) in [(16, 0x41), (32, 0x42), (48, 0x43)] {
                assert!(rig.read(block).is_all(byte), "failed {failed}, block {block}");
            }
        }
    }
}

// The deferred write was forgotten while a read of the stripe was in flight: the stripe was put on
// the inactive list twice.
#[test]
fn stripe_with_a_deferred_write_to_a_failed_member_is_released_once() {
    let mut rig = five_with_a_stripe(Knobs::md());
    let ticket = rig.write(0, 0xee);
    let answer = wait_without_space_for_first(&mut rig, 0, ticket);
    assert_eq!(answer, Err(ReplyError::NoSpace));
    rig.disks[2].faults.stalled = true;
    rig.pass(Span::millis(500));
    let read = rig.get(32 * BLOCK, BLOCK);
    let member = rig.member_of(0);
    rig.admin(Verb::Fail(member));
    rig.settle();
    rig.pass(Span::secs(1));
    rig.disks[2].faults.stalled = false;
    rig.pass(Span::secs(3)).finish();
    assert!(matches!(rig.take_answer(read), Some(Ok(_))));
    assert_eq!(rig.volume().raid.stripe_cache_active, 0);
}

// If the stripe cache is no larger than a full stripe, a large read waited until the whole cache
// was free, which never happened while a stripe had a deferred write.
#[test]
fn stripe_with_a_deferred_write_does_not_keep_a_large_read_from_going_on() {
    let mut rig = one_full_stripe_of_cache();
    rig.disks[0].faults.no_space = true;
    let write = rig.write(0, 9);
    rig.pass(Span::millis(100));
    assert_eq!(rig.take_answer(write), Some(Err(ReplyError::NoSpace)));
    for len in [STRIPE, BLOCK] {
        let read = rig.get(STRIPE, len);
        rig.pass(Span::secs(3));
        assert!(matches!(rig.take_answer(read), Some(Ok(_))), "{len} bytes");
    }
}

// Reads of a lost member go through the stripe cache. They always got free stripes first, so that a
// write that needs many stripes never got them.
#[test]
fn large_write_goes_between_reads_of_a_lost_member() {
    let mut rig = one_full_stripe_of_cache();
    rig.fail_disk(0);
    // Blocks with data on disk 0, which holds the parity of every fourth full stripe.
    let stripes = (0..12).filter(|stripe| stripe % 4 < 3);
    let blocks =
        stripes.flat_map(|stripe| (0..16).map(move |block| stripe * 48 + stripe % 4 * 16 + block));
    let mut blocks = blocks.cycle();
    let mut reads: Vec<Ticket> = Vec::new();
    let mut write = None;
    for number in 0..2000 {
        reads.retain(|ticket| !rig.is_answered(*ticket));
        while reads.len() < 12 {
            reads.push(rig.get(blocks.next().expect("the iterator is endless") * BLOCK, BLOCK));
        }
        assert!(rig.step(Order::Fifo), "a request is outstanding");
        if number == 2 {
            write = Some(rig.put(13 * STRIPE, STRIPE));
        }
    }
    assert!(rig.is_answered(write.expect("the write was started")));
}

// With syncs frozen the engine had nothing to rebuild, but asked to be woken for the rebuild at a
// time that had passed.
#[test]
fn full_member_is_not_waited_for_while_syncs_are_frozen() {
    let mut rig = one_full_stripe_of_cache();
    rig.fail_disk(3).remove(3);
    let (disk, _) = rig.add_blank();
    rig.settle();
    while rig.volume().sync_completed.is_none_or(|(done, _)| done <= Sectors(64)) {
        assert!(rig.step(Order::Fifo), "the rebuild continues");
    }
    rig.disks[disk].faults.no_space = true;
    while !rig.volume().no_space {
        assert!(rig.step(Order::Fifo), "the rebuild continues");
    }
    rig.disks[disk].faults.no_space = false;
    rig.sync(SyncAction::Frozen).expect("the command is accepted");
    let mut wakes = 0;
    while wakes < 100 && rig.wake() {
        wakes += 1;
    }
    assert!(wakes < 100, "the engine sleeps");
    rig.sync(SyncAction::Recover).expect("the command is accepted");
    rig.pass(Span::secs(2)).until_idle();
    assert_eq!(rig.volume().degraded, 0);
}

// A write that is never aborted kept the member stalled, and later reads were not handled until an
// unrelated event.
#[test]
fn read_goes_round_a_member_that_stalled_with_an_earlier_write() {
    let mut rig = five_with_a_stripe(Knobs::md());
    stall_a_write(&mut rig, 2);
    rig.pass(Span::secs(1));
    let read = rig.get(32 * BLOCK, BLOCK);
    rig.pass(Span::millis(2500));
    assert_eq!(rig.take_answer(read), Some(Ok(vec![0x42; 4096])));
    rig.disks[2].faults.stalled = false;
    rig.finish();
}

// A batch of filled stripes goes to each member as one request, which consists of many blocks. When
// the request is aborted, blocks that are written from the client's memory pin this memory, and
// blocks in stripes pin the stripes.
#[test]
fn full_stripe_that_is_given_up_keeps_the_memory_that_its_member_may_read() {
    for (disk, kept) in [(1, 48), (3, 0)] {
        let mut rig = raid5().with(|o| o.knobs = Knobs::default());
        rig.store(192 << 10, 192 << 10).unwrap();
        rig.disks[disk].faults.stalled = true;
        let ticket = rig.put(0, 192 << 10);
        let held = rig.hold_back(disk, 1);
        let member = rig.member_of(disk);
        rig.admin(Verb::Fail(member));
        rig.settle();
        while !rig.is_answered(ticket) {
            let other = rig.outstanding().find(|(token, _)| !held.contains(token));
            let (token, _) = other.expect("other requests are outstanding");
            rig.complete(token);
        }
        assert_eq!(rig.snapshot().frames_held, kept, "of disk {disk}");
        rig.complete(held[0]);
        assert_eq!(rig.snapshot().frames_held, 0);
        rig.finish();
        rig.store(0, 192 << 10).unwrap();
        rig.verify();
    }
}
