//! Tests that kill mutants which survived (`cargo xtask mutants stripes`), one for each mutant.

use std::collections::VecDeque;

use super::bad_blocks::stop_and_record;
use crate::{BLOCK, Logged, Order, Payload, Pending, Planned, Rig, chunk_kib};
use weft_engine::assemble;
use weft_engine::knobs::{CacheForm, FlushRule, Knobs, PriorityRule, SyncPace, Writes};
use weft_engine::{
    ArrayShape, ComputeOp, Congestion, Fault, Flags, Growth, MemberState, Notice, Origin, Output,
    Party, Replace, ReplyError, RequestOp, StripesInUse, SyncAction, Token, Verb, WriteBackConfig,
};
use weft_ondisk::{Level, Role};
use weft_units::{Bytes, ClientId, SectorRange, Sectors, Span, Time, VolumeId};

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
    rig.start(&how).expect("the array was stopped");
    // A write to a read-only disk fails the test.
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
    let number = rig.record.of(2).expect("disk 2 was a member").dev_number();
    let role = |rig: &Rig| rig.record.of(0).expect("disk 0 is a member").role(number);
    assert_eq!(role(&rig), Ok(Role::Faulty));
    rig.remove(2).finish();
    assert_eq!(role(&rig), Ok(Role::Spare));
    // The volume shows how often superblocks were written.
    let events = rig.record.of(0).expect("disk 0 is a member").events();
    assert!(events > 1);
    assert_eq!(rig.volume().events, events);
}

#[test]
fn syncs_that_are_frozen_are_shown_as_such() {
    let mut rig = raid5();
    assert_eq!(rig.volume().sync_action, SyncAction::Idle);
    rig.sync(SyncAction::Frozen).expect("the command is accepted");
    assert_eq!(rig.volume().sync_action, SyncAction::Frozen);
    rig.sync(SyncAction::Idle).expect("the command is accepted");
    assert_eq!(rig.volume().sync_action, SyncAction::Idle);
}

#[test]
fn what_a_member_had_no_space_for_is_not_written_twice_at_once() {
    let mut rig = raid5().written(0, 1);
    rig.disks[0].faults.no_space = true;
    let write = rig.write(0, 2);
    while !rig.volume().no_space {
        assert!(rig.step(Order::Fifo), "a write is outstanding");
    }
    // The next attempt does not complete until the time for another attempt.
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

// A write that found no space is repeated every second. Another write to the same stripe may be
// held meanwhile, because it has to preread while a full stripe is being written.
#[test]
fn deferred_write_of_a_stripe_that_is_held_back_waits_for_it() {
    let mut rig = Rig::raid5(6, chunk_kib(4)).with(|options| {
        options.knobs.preread_bypass_threshold = 0;
        options.knobs.writes = Writes::Gather;
        options.knobs.safe_mode_delay = Span::secs(3600);
    });
    // Block 0 is on disk 0, its parity on disk 5. After this write only these two blocks of the
    // stripe are cached.
    rig = rig.written(0, 1);
    let first = rig.write(0, 2);
    while rig.disks[0].outstanding_writes().next().is_none() {
        assert!(rig.step(Order::Fifo), "no preread is needed");
    }
    let of_first: Vec<_> = rig.outstanding().map(|(token, _)| token).collect();
    let second = rig.put_nosync(BLOCK, 512);
    rig.put(5 * BLOCK, 5 * BLOCK);
    rig.disks[0].faults.no_space = true;
    of_first.into_iter().for_each(|token| rig.complete(token));
    assert_eq!(rig.take_answer(first), Some(Err(ReplyError::NoSpace)));
    // The rest of the block that the second write changes may be read at once.
    assert_eq!(rig.outstanding().count(), 7);
    let (of_block, _) = rig.outstanding().last().expect("a request is outstanding");
    rig.complete(of_block);
    assert_eq!(rig.outstanding().count(), 6, "only the full stripe's writes are outstanding");
    rig.disks[0].faults.no_space = false;
    let before = rig.now;
    assert!(rig.wake() && rig.now.since(before) <= Span::secs(1));
    assert_eq!(rig.outstanding().count(), 6, "the held stripe is not written");
    // The stripe still has the deferred write.
    assert_eq!(rig.wait(second), Err(ReplyError::NoSpace));
    rig.pass(Span::secs(5));
    assert!(!rig.volume().no_space);
    assert!(rig.read(0).is_all(2));
    assert!(rig.scrub_clean() > 0);
}

// A resync writes parity, so it counts as a writer: the array is marked clean after the same delay
// from its end as from the last write.
#[test]
fn array_is_marked_clean_as_long_after_its_resync_as_after_a_write() {
    let delay = Span::millis(700);
    let mut rig = raid5().with(|options| {
        options.assume_clean = false;
        options.knobs.safe_mode_delay = delay;
    });
    rig.sync(SyncAction::Frozen).expect("the command is accepted");
    rig.pass(Span::secs(5));
    rig.sync(SyncAction::Idle).expect("the command is accepted");
    rig.pass(Span::secs(5));
    let last = |those: fn(&Notice) -> bool| {
        let found = rig.notices.iter().rev().find(|(_, notice)| those(notice));
        found.map(|(at, _)| *at).expect("the notice was given")
    };
    let ended = last(|notice| matches!(notice, Notice::SyncFinished { .. }));
    let clean = last(|notice| matches!(notice, Notice::ArrayClean(_)));
    assert!(ended >= Time(0) + Span::secs(5), "the resync ran after the freeze");
    assert!(clean.since(ended) >= delay, "{:?}", clean.since(ended));
}

// Writes proceed as long as the cache has free stripes. With all stripes in use the volume reports
// congestion, and writers that then need a stripe are blocked.
#[test]
fn volume_is_congested_with_all_stripes_in_use_and_blocked_when_a_request_waits_for_one() {
    let mut rig = raid5().with(|options| options.stripes_max = Some(8)).written(100, 1);
    let mut told = Vec::new();
    for block in 0..9 {
        told.push(rig.engine_mut().expect("an engine runs").congestion(VolumeId(0)));
        rig.write(block, 2);
    }
    assert_eq!(told, [&[Congestion::None; 8][..], &[Congestion::Congested]].concat());
    let engine = rig.engine_mut().expect("an engine runs");
    assert_eq!(engine.congestion(VolumeId(0)), Congestion::Blocked);
}

#[test]
fn cache_for_which_no_memory_was_set_aside_is_refused() {
    let mut rig = raid5().with(|options| options.stripes_max = Some(256));
    let knob = |value: &str| {
        let knob = Knobs::default().parse("stripe_cache_bytes", value);
        Verb::Set(knob.expect("the value is a size"))
    };
    let refused = rig.command(knob("1073741824"));
    let Err(ReplyError::Refused(text)) = refused else { panic!("{refused:?}") };
    let (_, most) = text.split_once("expected at most ").expect("the message names the limit");
    let most = most.split(',').next().unwrap_or_default();
    let above = most.parse::<u64>().expect("the limit is a size") + 1;
    assert!(matches!(rig.command(knob(&above.to_string())), Err(ReplyError::Refused(_))));
    assert_eq!(rig.command(knob(most)), Ok(()));
    assert_eq!(rig.command(knob("0")), Ok(()));
}

/// A rig in which disk 0 has a bad-block log with block 2.
fn with_a_bad_block() -> Rig {
    let mut rig = raid5().with(|options| options.logged = true);
    for (block, byte) in (0..6).zip(1..) {
        rig = rig.written(block, byte);
    }
    stop_and_record(&mut rig, 0, SectorRange::new(2 * 8, 8));
    rig
}

#[test]
fn member_with_a_bad_block_is_read_past_the_cache_but_for_that_block() {
    let mut rig = with_a_bad_block();
    let how = assemble::Options { read_only: true, ..assemble::Options::default() };
    rig.start(&how).expect("the array starts read-only");
    for (block, byte) in (0..6).zip(1..) {
        rig.log.clear();
        let sector = rig.read_bytes(block * BLOCK, 512).expect("other members have the block");
        assert!(sector.is_all(byte), "block {block}");
        let reads: Vec<_> = rig.log.iter().filter_map(disk_and_count).collect();
        // Reads past the cache read the requested range; reads around a member read whole blocks,
        // from the last slot on, as in md.
        let expected: &[_] = if block == 2 { &[(3, 8), (2, 8), (1, 8)] } else { &[(0, 1)] };
        assert_eq!(reads, expected, "block {block}");
    }
}

fn disk_and_count(logged: &Logged) -> Option<(usize, u64)> {
    match logged {
        Logged::Read { disk, count, .. } => Some((*disk, *count)),
        _ => None,
    }
}

#[test]
fn a_command_that_waits_for_superblocks_is_answered_when_the_array_breaks() {
    let mut rig = raid5().with(|options| options.data_promised = false);
    // The command waits for the superblock update after the one that says dirty; this second update
    // never begins.
    rig.write(0, 1);
    rig.settle();
    let member = rig.member_of(0);
    let fail = rig.admin(Verb::Fail(member));
    rig.disks[1].faults.gone = true;
    rig.finish();
    assert_eq!(rig.volume().array_state, "broken");
    assert_eq!(rig.wait(fail), Err(ReplyError::Io));
}

/// Runs a stream of writes of `len` bytes each, with up to `depth` writes unanswered at a time.
/// Returns the number of reads that the stream needed, and its duration.
fn stream(len: u64, depth: usize, sync: bool) -> (usize, Span) {
    let mut rig = raid5().with(|options| {
        options.knobs = Knobs::default();
        options.logged = true;
    });
    rig.store(rig.size() - BLOCK, BLOCK).expect("the array works");
    rig.log.clear();
    let begin = rig.now;
    for at in (0..144 * BLOCK).step_by(len as usize) {
        while rig.unanswered() >= depth {
            assert!(rig.step(Order::Fifo) || rig.wake(), "a request is answered eventually");
        }
        if sync {
            rig.put(at, len)
        } else {
            rig.put_nosync(at, len)
        };
        rig.settle();
    }
    rig.finish();
    let reads = rig.log.iter().filter(|logged| matches!(logged, Logged::Read { .. }));
    (reads.count(), rig.now.since(begin))
}

#[test]
fn a_stream_that_runs_ahead_of_its_answers_reads_little_and_no_other_is_kept_waiting() {
    let (one_by_one, ahead) = (stream(BLOCK, 1, false), stream(BLOCK, 64, false));
    assert!(ahead.0 * 4 <= one_by_one.0, "{ahead:?} and {one_by_one:?}");
    assert!(one_by_one.1.0 <= stream(BLOCK, 1, true).1.0 * 2, "{one_by_one:?}");
    let (one_by_one, ahead) = (stream(BLOCK / 2, 1, false), stream(BLOCK / 2, 64, false));
    assert!(ahead.0 * 10 <= one_by_one.0 * 7, "{ahead:?} and {one_by_one:?}");
}

/// The cache has eight stripes. Full stripes are filled from their middle on, and the writes that
/// wait for free stripes carry the data that the cached stripes lack. Only few of the 16 full
/// stripes may need reads.
#[test]
fn a_write_that_waits_for_stripes_fills_those_that_wait_for_it() {
    let mut rig = raid5().with(|options| {
        options.knobs = Knobs::default();
        options.stripes_max = Some(8);
        options.full_stripes = 24;
        options.logged = true;
    });
    rig.store(rig.size() - BLOCK, BLOCK).expect("the array works");
    rig.log.clear();
    let stripe = 48 * BLOCK;
    for pair in 0..8 {
        let at = pair * 2 * stripe;
        let (second, rest) = (at + stripe, stripe - 3 * BLOCK);
        for block in 0..3 {
            rig.put_nosync(second + block * BLOCK, BLOCK);
        }
        rig.put_nosync(at, stripe);
        rig.put_nosync(second + 3 * BLOCK, rest);
        rig.put_nosync(at, 2 * stripe);
        rig.settle();
    }
    rig.finish();
    let reads = rig.log.iter().filter(|logged| matches!(logged, Logged::Read { .. })).count();
    assert!(reads <= 12, "{reads} requests read something");
}

// In the kernel of 2008, before its patch, the submitter of a request took the first step of all
// stripes of the request, regardless of how many other stripes were to be handled.
#[test]
fn turn_says_how_many_stripes_it_handled() {
    for (form, priority, stripes) in [
        (CacheForm::Today, PriorityRule::Bypass, 8),
        (CacheForm::Today, PriorityRule::Fifo, 8),
        (CacheForm::Of2008, PriorityRule::Bypass, 8),
        (CacheForm::Of2008, PriorityRule::Fifo, 12),
    ] {
        let mut rig = raid5().with(|options| {
            options.knobs.stripe_cache_form = form;
            options.knobs.priority = priority;
            options.knobs.safe_mode_delay = Span::secs(3600);
        });
        // The superblocks say dirty already.
        rig = rig.written(100, 1);
        rig.plug(RequestOp::Write, 0, 12 * BLOCK, Payload::Fill(1), Flags::NONE);
        let now = rig.now;
        let mut twin = rig.engine_mut().expect("an engine runs").clone();
        let turn = twin.run(now, 1, &mut VecDeque::new());
        assert_eq!(turn.work.stripes, stripes, "{form:?} {priority:?}");
        rig.finish();
    }
}

#[test]
fn superblocks_say_when_they_were_written() {
    let mut rig = raid5().written(0, 1);
    rig.pass(Span::secs(60));
    rig.fail_disk(3);
    let written = rig.now.0 / 1_000_000_000;
    let utime = rig.record.of(0).expect("disk 0 is a member").utime();
    assert!(written >= 60 && utime.secs == 1_750_000_000 + written, "{utime:?} after {written} s");
}

// As in md, a member fails after more read errors than the stripe cache has stripes, without a
// successful read in between.
#[test]
fn member_falls_after_too_many_read_errors_in_a_row() {
    for (bad, degraded) in [(8, 0), (16, 1)] {
        let mut rig = raid5().with(|options| options.knobs.stripe_cache_size = 16).written(0, 1);
        rig.stop().recover();
        let first = rig.array.data_offset[0].0;
        rig.disks[0].faults.bad_reads = (first..first + bad * 8).collect();
        for block in 0..bad {
            rig.get(block * BLOCK, BLOCK);
        }
        rig.finish();
        assert_eq!(rig.volume().degraded, degraded, "{bad} bad blocks");
    }
}

#[test]
fn parity_of_a_full_stripe_that_is_written_at_once_is_one_computation() {
    let mut rig = raid5().with(|options| {
        options.knobs = Knobs::default();
        options.knobs.safe_mode_delay = Span::secs(3600);
    });
    rig = rig.written(100, 1);
    let chunk = 16 * BLOCK;
    rig.plug(RequestOp::Write, 0, 3 * chunk, Payload::Tags, Flags::NONE);
    let now = rig.now;
    let engine = rig.engine_mut().expect("an engine runs");
    let mut outputs = VecDeque::new();
    while engine.run(now, 64, &mut outputs).more {}
    let ops = outputs.into_iter().filter_map(|output| match output {
        Output::Compute { ops, .. } => Some(ops),
        _ => None,
    });
    let ops: Vec<ComputeOp> = ops.flatten().collect();
    let [ComputeOp::Pq { data, p: Some(p), q: None }] = &ops[..] else { panic!("{ops:?}") };
    let lengths = data.iter().map(|source| source.part.len).chain([p.len]);
    assert_eq!(lengths.map(u64::from).collect::<Vec<_>>(), [chunk; 4]);
}

#[test]
fn engine_says_how_many_stripes_are_in_use_and_how_many_preread() {
    let mut rig = raid5().with(|options| options.knobs.safe_mode_delay = Span::secs(3600));
    rig = rig.written(100, 1);
    let in_use = |rig: &mut Rig| {
        let engine = rig.engine_mut().expect("an engine runs");
        engine.stripes_in_use(VolumeId(0))
    };
    assert_eq!(in_use(&mut rig), StripesInUse::default());
    // Each of these blocks is of another stripe, and needs reads.
    rig.write(0, 1);
    rig.write(1, 1);
    let expected = StripesInUse { active: 2, prereading: 2, ..StripesInUse::default() };
    assert_eq!(in_use(&mut rig), expected);
    rig.finish();
    assert_eq!(in_use(&mut rig), StripesInUse::default());
}

#[test]
fn one_parity_does_not_say_which_strip_is_wrong() {
    let corrects = |level| Rig::raid(level, 4, None, chunk_kib(64)).sync(SyncAction::Correct);
    let refused = corrects(Level::Raid5);
    assert!(matches!(&refused, Err(ReplyError::Refused(_))), "{refused:?}");
    assert_eq!(corrects(Level::Raid6), Ok(()));
}

#[test]
fn read_beside_a_bad_block_goes_past_the_cache_up_to_that_block() {
    let mut rig = with_a_bad_block();
    let how = assemble::Options { read_only: true, ..assemble::Options::default() };
    rig.start(&how).expect("the array starts read-only");
    rig.log.clear();
    // Block 2 is the bad one. A read through the cache would read whole blocks.
    let last = rig.read_bytes(2 * BLOCK - 512, 512).expect("block 1 can be read");
    assert!(last.is_all(2));
    let reads: Vec<_> = rig.log.iter().filter_map(disk_and_count).collect();
    assert_eq!(reads, [(0, 1)]);
}

#[test]
fn a_broken_array_is_announced_once() {
    let mut rig = raid5().with(|options| options.data_promised = false).written(0, 1);
    let announced = |rig: &Rig| {
        let broken = |(_, notice): &&(Time, Notice)| matches!(notice, Notice::Broken(_));
        rig.notices.iter().filter(broken).count()
    };
    for (disk, expected) in [(0, 0), (1, 1), (2, 1)] {
        rig.disks[disk].faults.gone = true;
        // The block is on this disk, in a stripe that was not read before.
        rig.get((5 + disk as u64 * 17) * BLOCK, BLOCK);
        rig.finish();
        assert_eq!(announced(&rig), expected, "without disk {disk}");
    }
}

/// Reads and retries of the unreadable blocks count; the answer to a write in the middle does not
/// begin the count anew.
#[test]
fn a_write_does_not_take_back_read_errors() {
    let mut rig = raid5().with(|options| {
        options.knobs.stripe_cache_size = 16;
        options.knobs.safe_mode_delay = Span::secs(3600);
    });
    rig = rig.written(0, 7).written(100, 1);
    let first = rig.array.data_offset[0].0;
    let bad = 12;
    rig.disks[0].faults.bad_reads = (first..first + bad * 8).collect();
    let stripe = 48 * BLOCK;
    rig.put(4 * stripe, stripe);
    let writes = rig.hold_back(0, 1);
    for block in 0..bad {
        rig.get(block * BLOCK, BLOCK);
    }
    for token in rig.outstanding_of(0) {
        if !writes.contains(&token) {
            rig.complete(token);
        }
    }
    for token in writes {
        rig.complete(token);
    }
    rig.finish();
    assert_eq!(rig.volume().degraded, 1);
}

/// Block 0 is on disk 0, which turns out to be unable to discard and keeps the first content.
#[test]
fn page_of_a_trim_that_changed_nothing_is_read_again() {
    let mut rig = Rig::raid(Level::Raid0, 2, None, chunk_kib(64)).with(|options| {
        options.discards = true;
        options.write_back = Some(WriteBackConfig::of(Bytes(64 * BLOCK)));
    });
    let fua = Flags { fua: true, ..Flags::NONE };
    rig.issue(RequestOp::Write, 0, BLOCK, Payload::Fill(1), fua);
    rig.finish();
    // The cache keeps the second content.
    rig.write(0, 2);
    rig.finish();
    // The discard fails, and so does the write of zeros with which the driver replaces it.
    let next = rig.disks[0].operations();
    for number in [next, next + 1] {
        rig.disks[0].faults.schedule.insert(number, Planned::Once(Fault::Io));
    }
    let trim = rig.trim(0, 16 * BLOCK);
    assert_eq!(rig.wait(trim), Ok(Vec::new()));
    assert_eq!(rig.disks[0].operations(), next + 2);
    assert!(rig.read(0).is_all(2));
}

// The data that the failing member should have stored follows from nothing else.
#[test]
fn write_that_the_last_member_with_its_data_fails_is_not_acknowledged() {
    let mut rig = raid5().with(|options| options.data_promised = false).written(0, 1);
    rig.fail_disk(3);
    let first = rig.array.data_offset[0].0;
    rig.disks[0].faults.bad_writes.insert(first);
    assert_eq!(rig.store(0, BLOCK), Err(ReplyError::Io));
}

/// The cache answers reads of the client without a request to the volume. They keep a check at its
/// lowest speed nevertheless.
#[test]
fn requests_that_the_cache_answers_slow_a_sync_down() {
    let mut rig = raid5().with(|options| {
        options.knobs.sync_pace = SyncPace::Idle;
        options.knobs.sync_speed_min = Bytes::kib(1);
        options.write_back = Some(WriteBackConfig::of(Bytes(64 * BLOCK)));
    });
    rig.put_nosync(0, BLOCK);
    rig.finish();
    let compared = |rig: &mut Rig, reads: bool| {
        rig.admin(Verb::SyncAction(SyncAction::Check));
        for _ in 0..300 {
            if reads {
                rig.get(0, BLOCK);
            }
            if !rig.step(Order::Fifo) {
                rig.pass_time(Span(100_000));
            }
        }
        let compared = rig.volume().sync_stripes;
        rig.sync(SyncAction::Idle).expect("the command is accepted");
        compared
    };
    let beside = compared(&mut rig, true);
    assert!(beside < 128, "{beside} stripes");
    assert_eq!(compared(&mut rig, false), 16 * 16);
}

/// A slot without a member is rebuilt before the copy to a replacement of another member goes on.
#[test]
fn lost_member_is_rebuilt_before_the_copy_to_a_replacement_ends() {
    let mut rig = Rig::raid(Level::Raid6, 5, None, chunk_kib(64)).written(0, 1).flushed();
    rig.add();
    let (member, with) = (rig.member_of(0), None);
    rig.admin(Verb::Replace(Replace { member, with }));
    rig.settle();
    while rig.volume().members.iter().all(|it| it.replaces.is_none()) {
        assert!(rig.step(Order::Fifo), "the copy begins");
    }
    let fresh = rig.add_blank().0;
    let lost = rig.member_of(1);
    rig.admin(Verb::Fail(lost));
    rig.settle();
    while rig.state_of(fresh) != Some(MemberState::InSync) {
        assert_eq!(rig.state_of(0), Some(MemberState::InSync), "the copy has not ended");
        assert!(rig.step(Order::Fifo) || rig.wake(), "the recovery goes on");
    }
    rig.until_idle();
    assert_eq!((rig.state_of(0), rig.volume().degraded), (Some(MemberState::Faulty), 0));
}

// The write is outstanding at a member that needs it and fails it, and at the member's replacement,
// which is given up before.
#[test]
fn frames_of_a_failed_write_stay_until_the_replacement_answers() {
    let mut rig = Rig::raid(Level::Raid1, 2, None, chunk_kib(64))
        .with(|options| (options.full_stripes, options.data_promised) = (200, false))
        .written(0, 1)
        .flushed();
    let spare = rig.add();
    let (member, with) = (rig.member_of(1), None);
    rig.admin(Verb::Replace(Replace { member, with }));
    rig.settle();
    while rig.volume().members.iter().all(|it| it.replaces.is_none()) {
        assert!(rig.step(Order::Fifo), "the copy begins");
    }
    rig.admin(Verb::SyncAction(SyncAction::Frozen));
    let other = rig.member_of(0);
    rig.admin(Verb::Fail(other));
    rig.finish();
    let sector = rig.array.data_offset[1].0;
    rig.disks[1].faults.bad_writes.insert(sector);
    rig.disks[spare].faults.stalled = true;
    let write = rig.write(0, 9);
    while rig.outstanding_of(spare).is_empty() {
        assert!(rig.step(Order::Fifo), "the write begins");
    }
    let replacement = rig.member_of(spare);
    rig.admin(Verb::Fail(replacement));
    rig.settle();
    rig.pass(Span::secs(1));
    assert!(matches!(rig.take_answer(write), Some(Err(_))), "no member has stored the write");
    rig.disks[spare].faults.stalled = false;
    rig.finish();
}

// The engine sees both answers of disk 0 in one turn: the first says that the disk is gone.
#[test]
fn member_that_failed_before_it_had_no_space_is_not_waited_for() {
    let mut rig = raid5().with(|options| options.knobs.safe_mode_delay = Span::secs(3600));
    rig = rig.written(0, 1).written(8, 1);
    let writes = [rig.write(0, 2), rig.write(8, 2)];
    let tokens = rig.hold_back(0, 2);
    rig.disks[0].faults.gone = true;
    rig.complete_only(tokens[0]);
    (rig.disks[0].faults.gone, rig.disks[0].faults.no_space) = (false, true);
    rig.complete_only(tokens[1]);
    rig.settle();
    for write in writes {
        assert_eq!(rig.wait(write), Ok(Vec::new()));
    }
    assert!(!rig.volume().no_space);
}

// Every stripe of the cache holds a write for which a member had no space. A write that waits for a
// stripe fails when the array breaks.
#[test]
fn write_that_waits_for_stripes_of_a_broken_array_fails() {
    let mut rig = raid5().with(|options| {
        options.stripes_max = Some(8);
        options.data_promised = false;
    });
    rig = rig.written(100, 1);
    rig.disks[0].faults.no_space = true;
    for block in 0..8 {
        rig.write(block, 2);
    }
    let waits = rig.write(8, 2);
    rig.pass(Span::millis(100));
    assert!(!rig.is_answered(waits), "no stripe is free");
    for disk in [1, 2] {
        rig.disks[disk].faults.gone = true;
    }
    rig.flush();
    rig.pass(Span::millis(100));
    assert_eq!(rig.volume().array_state, "broken");
    assert_eq!(rig.take_answer(waits), Some(Err(ReplyError::Io)));
}

/// RAID 5 of three members and a spare, with a chunk of 16 KiB. The checkers of the structure are
/// off, because they know one shape only.
fn to_grow() -> Rig {
    let mut rig = Rig::raid5(3, chunk_kib(16)).with(|options| {
        options.full_stripes = 100;
        options.spares = 1;
        options.checked = false;
    });
    for start in (0..rig.size()).step_by(32 << 10) {
        rig.store(start, 32 << 10).expect("the array works");
    }
    rig
}

fn four_disks() -> Verb {
    Verb::Grow(Growth::Shape(ArrayShape { raid_disks: Some(4), ..ArrayShape::default() }))
}

// A reshape needs frames for one unit of copies, here 12, and for four stripes of each shape.
#[test]
fn reshape_for_which_no_memory_was_set_aside_is_refused() {
    for (stripes, fits) in [(10, false), (15, true)] {
        let mut rig = to_grow().with(|options| options.stripes_max = Some(stripes));
        let grown = rig.command(four_disks());
        assert_eq!(grown.is_ok(), fits, "{stripes} stripes: {grown:?}");
        rig.until_idle();
        assert_eq!(rig.volume().slots, if fits { 4 } else { 3 });
    }
}

#[test]
fn half_reshaped_array_that_is_read_only_writes_no_block_again_that_it_could_not_read() {
    let mut rig = to_grow();
    rig.admin(four_disks());
    while rig.volume().reshape.is_none_or(|reshape| reshape.position.0 == 0) {
        assert!(rig.step(Order::Fifo) || rig.wake(), "the reshape goes on");
    }
    rig.sync(SyncAction::Frozen).expect("the command is accepted");
    rig.stop();
    let superblock = rig.metadata(0).superblock;
    assert!(superblock.reshape().is_some(), "the reshape has not ended");
    for disk in &mut rig.disks {
        disk.read_only = true;
    }
    let end = rig.array.data_offset[0].0 + 100 * 32;
    rig.disks[0].faults.bad_reads.extend(end - 64..end);
    let how = assemble::Options { read_only: true, ..assemble::Options::default() };
    rig.start(&how).expect("the array starts read-only");
    // A write to a read-only disk fails the test.
    for start in (rig.size() - (128 << 10)..rig.size()).step_by(4096) {
        rig.read_bytes(start, BLOCK).expect("the other members have the block");
    }
    rig.finish();
    assert!(!rig.disks[0].faults.bad_reads.is_empty());
    assert_eq!(rig.volume().degraded, 0);
}

// Parity may be wrong from the position of the resync on. Below it, a read may be computed.
#[test]
fn reads_go_round_a_slow_member_where_a_resync_has_checked_parity() {
    let mut rig = raid5().with(|options| {
        options.assume_clean = false;
        options.full_stripes = 64;
    });
    while rig.volume().sync_stripes < 64 {
        assert!(rig.step(Order::Fifo) || rig.wake(), "the resync goes on");
    }
    rig.sync(SyncAction::Frozen).expect("the command is accepted");
    let from = rig.volume().resync_from.expect("the resync has not ended");
    assert!(from >= Sectors(128), "the first full stripe is checked");
    rig.disks[0].faults.stalled = true;
    // This write keeps the member from answering.
    rig.put(63 * 48 * BLOCK, 48 * BLOCK);
    let read = rig.get(0, BLOCK);
    rig.pass(Span::secs(10));
    assert_eq!(rig.take_answer(read), Some(Ok(vec![0; 4096])));
    rig.disks[0].faults.stalled = false;
    rig.finish();
}

/// The client sends block after block, each long before the wait of a stripe would end.
#[test]
fn a_stripe_that_a_stream_will_fill_is_not_read_beside_idle_members() {
    let mut rig = raid5().with(|options| {
        options.knobs = Knobs { safe_mode_delay: Span::secs(3600), ..Knobs::default() };
        options.logged = true;
    });
    rig.store(rig.size() - BLOCK, BLOCK).expect("the array works");
    rig.log.clear();
    for block in 0..48 {
        rig.put_nosync(block * BLOCK, BLOCK);
        rig.pass_time(Span(100_000));
    }
    rig.finish();
    let reads = rig.log.iter().filter(|logged| matches!(logged, Logged::Read { .. })).count();
    assert!(reads <= 2, "{reads} requests read something");
}

// RAID 0 passes requests on unchanged. A write with FUA is durable once it is answered.
#[test]
fn passed_write_with_fua_leaves_nothing_to_flush() {
    let mut rig = Rig::raid(Level::Raid0, 2, None, chunk_kib(64)).with(|options| {
        options.knobs.flush_batch = FlushRule::Needed;
        options.logged = true;
    });
    for (fua, flushed) in [(true, &[][..]), (false, &[0])] {
        rig = rig.flushed();
        rig.log.clear();
        let flags = Flags { fua, ..Flags::NONE };
        rig.issue(RequestOp::Write, 0, BLOCK, Payload::Tags, flags);
        rig.finish();
        rig = rig.flushed();
        let flushes = rig.log.iter().filter_map(|logged| match logged {
            Logged::Flush { disk } => Some(*disk),
            _ => None,
        });
        assert_eq!(flushes.collect::<Vec<_>>(), flushed, "fua: {fua}");
    }
}

#[test]
fn growth_is_answered_once_superblocks_record_it() {
    let size = to_grow().options.data_of(0) + chunk_kib(64);
    for verb in [Verb::Grow(Growth::Size(Some(size))), four_disks()] {
        let mut rig = to_grow();
        let before = rig.volume().size;
        let ticket = rig.admin(verb);
        rig.settle();
        while !rig.is_answered(ticket) {
            assert!(rig.step(Order::Fifo) || rig.wake(), "the command is answered");
        }
        let reshapes = |disk| rig.metadata(disk).superblock.reshape().is_some();
        let is_recorded = rig.volume().size > before || (0..4).all(reshapes);
        assert!(is_recorded, "{:?}", rig.volume());
        assert_eq!(rig.take_answer(ticket), Some(Ok(Vec::new())));
    }
}

// The last step of a reshape waits for a client's write. When that write finds no space, the step
// waits for the space, and requests do not wait for the step.
#[test]
fn end_of_a_reshape_that_waits_for_space_keeps_no_request_waiting() {
    let mut rig = to_grow();
    rig.admin(four_disks());
    rig.settle();
    let reshape = |rig: &Rig| rig.volume().reshape.expect("the reshape has not ended");
    while reshape(&rig).position.0 * 2 < reshape(&rig).end.0 {
        assert!(rig.step(Order::Fifo) || rig.wake(), "the reshape goes on");
    }
    let write = rig.write(0, 9);
    // All but the client's writes to members.
    let other = |rig: &Rig| {
        let is_held = |(token, pending): &(Token, &Pending)| {
            let stores =
                pending.disk.is_some_and(|disk| rig.disks[disk].payload_of(*token).is_some());
            stores && matches!(pending.origin, Some(Origin::Client(..)))
        };
        rig.outstanding().find(|pending| !is_held(pending)).map(|(token, _)| token)
    };
    while let Some(token) = other(&rig) {
        rig.complete(token);
    }
    assert_eq!(reshape(&rig).position, reshape(&rig).end);
    let disk = rig.outstanding().find_map(|(_, pending)| pending.disk).expect("a write is held");
    rig.disks[disk].faults.no_space = true;
    while !rig.volume().no_space {
        assert!(rig.step(Order::Fifo), "a write is held");
    }
    let read = rig.get(100 * BLOCK, BLOCK);
    rig.pass(Span::millis(500));
    assert!(rig.is_answered(read) && rig.volume().no_space);
    assert_eq!(rig.take_answer(write), Some(Err(ReplyError::NoSpace)));
    rig.disks[disk].faults.no_space = false;
    rig.pass(Span::secs(5));
    assert!(rig.volume().reshape.is_none(), "there is space again");
}

// A mirror that had no space waits for a resync, which finds out whether there is space again. No
// resync comes while the array stops.
#[test]
fn mirror_that_stops_does_not_wait_for_a_resync_to_find_space() {
    let mut rig = Rig::raid(Level::Raid1, 2, None, chunk_kib(64)).written(0, 1);
    rig.disks[1].faults.no_space = true;
    rig.write(0, 2);
    rig.pass(Span::millis(1500));
    assert!(rig.volume().no_space);
    rig.disks[0].faults.stalled = true;
    rig.admin(Verb::Stop);
    rig.pass(Span::millis(10));
    assert!(!rig.volume().no_space);
    rig.disks[0].faults.stalled = false;
    rig.finish();
}

#[test]
fn growth_fails_when_the_array_breaks_before_it_begins() {
    let mut rig = to_grow().with(|options| options.data_promised = false);
    rig.disks[0].faults.stalled = true;
    let grown = rig.admin(four_disks());
    rig.pass(Span::millis(100));
    assert!(!rig.is_answered(grown));
    for disk in [1, 2] {
        rig.disks[disk].faults.gone = true;
    }
    rig.get(0, 128 * BLOCK);
    rig.pass(Span::millis(100));
    assert_eq!(rig.volume().array_state, "broken");
    assert_eq!(rig.take_answer(grown), Some(Err(ReplyError::Io)));
}

#[test]
fn accounts_that_count_nothing_are_not_shown() {
    let rig = raid5().written(0, 1);
    let parties: Vec<_> = rig.volume().accounts.iter().map(|account| account.party).collect();
    assert_eq!(parties, [Party::Metadata, Party::Client(ClientId(1))]);
}

// A sync goes at its least rate for as long as a client waits, also for a single read that its
// member serves without a stripe.
#[test]
fn read_that_stays_unanswered_slows_a_sync_down() {
    let compared = |reads: bool| {
        let mut rig = Rig::raid(Level::Raid1, 2, None, chunk_kib(64)).with(|options| {
            options.knobs.sync_pace = SyncPace::Idle;
            options.knobs.sync_speed_min = Bytes::kib(1);
        });
        rig = rig.written(0, 1).flushed();
        rig.pass(Span::secs(5));
        if reads {
            rig.get(5 * BLOCK, BLOCK);
        }
        rig.settle();
        let held = rig.outstanding().map(|(token, _)| token).next();
        assert_eq!(held.is_some(), reads, "the read is outstanding");
        rig.admin(Verb::SyncAction(SyncAction::Check));
        rig.settle();
        let end = rig.now + Span::secs(2);
        while rig.now < end {
            let other =
                rig.outstanding().map(|(token, _)| token).find(|token| held != Some(*token));
            match other {
                Some(token) => rig.complete(token),
                None if rig.volume().sync_action == SyncAction::Idle => break,
                None => assert!(rig.wake(), "the check goes on"),
            }
        }
        rig.volume().sync_stripes
    };
    let (beside, alone) = (compared(true), compared(false));
    assert!(beside > 0 && beside * 4 <= alone, "{beside} of {alone}");
}

#[test]
fn member_that_the_array_needs_is_named_when_it_is_not_failed() {
    let mut rig = raid5();
    let members = Box::new([rig.member_of(2), rig.member_of(1)]);
    let refused = rig.command(Verb::FailAll(members)).expect_err("one may fail");
    let refused = refused.to_string();
    assert!(refused.contains("disk1: found a member that the array needs"), "{refused}");
    assert!(refused.contains("only disk2 may be"), "{refused}");
}

#[test]
fn a_check_is_refused_while_another_runs() {
    let mut rig = raid5();
    rig.admin(Verb::SyncAction(SyncAction::Check));
    rig.settle();
    assert_eq!(rig.volume().sync_action, SyncAction::Check);
    let refused = rig.sync(SyncAction::Repair).expect_err("a check runs");
    assert!(matches!(refused, ReplyError::Busy(_)), "{refused:?}");
}

// The copy to a replacement waits for the resync.
#[test]
fn parity_is_resynced_before_a_member_is_copied_to_its_replacement() {
    let mut rig = raid5().with(|options| options.assume_clean = false);
    rig.sync(SyncAction::Frozen).expect("the command is accepted");
    let spare = rig.add_blank().0;
    rig.settle();
    let (member, with) = (rig.member_of(0), None);
    rig.admin(Verb::Replace(Replace { member, with }));
    rig.pass(Span::millis(100));
    rig.admin(Verb::SyncAction(SyncAction::Idle));
    rig.settle();
    assert_eq!(rig.volume().sync_action, SyncAction::Resync);
    rig.until_idle();
    assert_eq!(rig.state_of(spare), Some(MemberState::InSync));
}
