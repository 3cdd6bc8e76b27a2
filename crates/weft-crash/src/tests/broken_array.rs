//! Tests of arrays that break, and of members without space: no write is acknowledged wrongly, and
//! no request hangs.

use crate::script::{Script, ScriptStep};
use crate::{ARRAY, CutMode, Logged, Options, Order, Planned, Rig, Ticket, chunk_kib};
use weft_engine::mutant::Mutant;
use weft_engine::{Fault, Flags, MemberState, Notice, ReplyError, RequestOp, SyncAction, Verb};
use weft_ondisk::Level;
use weft_units::{Sectors, Slot, Span};

/// RAID 5 of four with a chunk of 64 KiB that stays dirty: block 16 is on disk 1, its parity on
/// disk 3.
fn raid5() -> Rig {
    let rig = Rig::raid5(4, chunk_kib(64)).with(|o| o.knobs.safe_mode_delay = Span::secs(3600));
    rig.written(16, 1)
}

fn writes(rig: &Rig, disk: usize) -> bool {
    rig.disks[disk].outstanding_writes().next().is_some()
}

/// Completes all outstanding requests of a disk.
fn complete_all_of(rig: &mut Rig, disk: usize) {
    rig.outstanding_of(disk).into_iter().for_each(|token| rig.complete(token));
}

/// Starts a write of block 16 to disk 1, and of its parity to disk 3.
fn begin_to_write(rig: &mut Rig) -> Ticket {
    let ticket = rig.write(16, 2);
    while !(writes(rig, 1) && writes(rig, 3)) {
        assert!(rig.step(Order::Fifo), "the write goes to its members");
    }
    ticket
}

/// Declares disk 1 failed, and makes disk 2 fail in the superblock update that records the failure.
/// Returns the ticket of the command.
fn fail_1_and_2_in_the_round(rig: &mut Rig) -> Ticket {
    let number = rig.disks[2].operations();
    for attempt in 0..4 {
        rig.disks[2].faults.schedule.insert(number + attempt, Planned::Once(Fault::Io));
    }
    // Outstanding requests of disk 1 never complete.
    rig.disks[1].faults.stalled = true;
    let member = rig.member_of(1);
    let fail = rig.admin(Verb::Fail(member));
    rig.settle();
    fail
}

/// Breaks the array while block 16 is being written. The parity of the block is written before the
/// array breaks (`parity_first`) or after it. Returns the tickets of the write and of the command
/// that fails disk 1.
fn break_while_writing(rig: &mut Rig, parity_first: bool) -> (Ticket, Ticket) {
    let ticket = begin_to_write(rig);
    if parity_first {
        complete_all_of(rig, 3);
    }
    let fail = fail_1_and_2_in_the_round(rig);
    while rig.volume().array_state != "broken" {
        // Disk 3 answers last, for parity and superblock.
        let other = rig.outstanding().find(|(_, p)| p.disk != Some(3)).map(|(token, _)| token);
        match other {
            Some(token) => rig.complete(token),
            None => assert!(rig.wake(), "the round ends"),
        }
    }
    (ticket, fail)
}

/// A planted bug acknowledges the write that a member missed although the array breaks, and I4
/// reports it.
#[test]
fn planted_acknowledgement_of_a_broken_array_is_seen() {
    for parity_first in [true, false] {
        let mut rig = raid5();
        rig.engine_mut().expect("an engine runs").plant(Mutant::BrokenAcknowledges);
        let (ticket, _) = break_while_writing(&mut rig, parity_first);
        let order = rig.order;
        rig.run(order);
        assert_eq!(rig.take_answer(ticket), Some(Ok(Vec::new())));
        let violation = rig.failure().expect("I4 reports it");
        assert_eq!(violation.checker, "I4 no early acknowledgement");
    }
}

/// A member missed the write, and the array breaks in the superblock update that records this. The
/// write fails, whether its parity is written before the array breaks or only afterwards.
#[test]
fn write_that_a_member_missed_fails_if_the_round_that_records_it_breaks_the_array() {
    for parity_first in [true, false] {
        let mut rig = raid5();
        let (ticket, fail) = break_while_writing(&mut rig, parity_first);
        assert_eq!(rig.wait(ticket), Err(ReplyError::Io), "parity first: {parity_first}");
        assert_eq!(rig.wait(fail), Err(ReplyError::Io));
        let recorded = |(_, notice): &(_, Notice)| matches!(notice, Notice::FailureRecorded { .. });
        assert!(!rig.notices.iter().any(recorded));
        // Later requests fail too, and a failed member may be removed.
        let flush = rig.flush();
        assert_eq!(rig.wait(flush), Err(ReplyError::Io));
        let member = rig.member_of(1);
        assert_eq!(rig.command(Verb::Remove(member)), Ok(()));
        rig.must();
    }
}

/// If the superblock update succeeds, the failure is recorded, and then the write is acknowledged.
#[test]
fn write_that_a_member_missed_is_acknowledged_once_its_failure_is_recorded() {
    let mut rig = raid5();
    let ticket = begin_to_write(&mut rig);
    let member = rig.member_of(1);
    let fail = rig.admin(Verb::Fail(member));
    rig.settle();
    assert_eq!(rig.wait(ticket), Ok(Vec::new()));
    assert_eq!(rig.wait(fail), Ok(Vec::new()));
    assert_eq!(rig.record.believed(Slot(1)), None);
}

/// Below its recovery offset a member is read and written like the others. If another member fails
/// before the recovery ends, the array is broken, although below that offset only one block of a
/// stripe is missing. A write that has begun to preread there must not continue.
#[test]
fn write_where_a_recovery_has_been_reaches_no_member_once_the_array_is_broken() {
    let mut rig = raid5().with(|options| {
        options.data_promised = false;
        options.logged = true;
        // The size of the cache limits the number of stripes that a recovery has in flight.
        options.stripes_max = Some(32);
        options.knobs.safe_mode_delay = Span::secs(3600);
    });
    let write = rig.write(0, 1);
    assert_eq!(rig.wait(write), Ok(Vec::new()));
    rig.fail_disk(2);
    let (added, _) = rig.add_blank();
    rig.settle();
    // The first stripe has left the cache.
    while rig.volume().sync_stripes < 100 {
        assert!(rig.step(Order::Fifo), "the recovery continues");
    }
    rig.sync(SyncAction::Frozen).expect("a recovery may be stopped");
    let recovery_offset = match rig.volume().members[added].state {
        MemberState::Rebuilding { recovery_offset } => recovery_offset,
        state => panic!("{state:?}"),
    };
    assert!(recovery_offset >= Sectors(8), "{recovery_offset:?}");
    rig.log.clear();
    let write = rig.write(0, 2);
    rig.disks[1].faults.gone = true;
    rig.flush();
    while rig.volume().array_state != "broken" {
        assert!(rig.step(Order::Lifo), "disk 1 is flushed");
    }
    let reads = |logged: &Logged| matches!(logged, Logged::Read { .. });
    assert!(rig.log.iter().any(reads), "the write reads first");
    assert_eq!(rig.wait(write), Err(ReplyError::Io));
    assert!(!rig.log.iter().any(|logged| matches!(logged, Logged::Write { .. })), "{:?}", rig.log);
}

fn ask(client: u32, op: RequestOp, start: u64, len: u64, sync: bool, fua: bool) -> ScriptStep {
    let flags = Flags { sync, fua, ..Flags::NONE };
    ScriptStep::Ask { volume: ARRAY, client, op, start, len, flags }
}

fn knobs(options: &mut Options, settings: &[(&str, &str)]) {
    for (name, value) in settings {
        let knob = options.knobs.parse(name, value).expect("a valid knob");
        options.knobs.set(knob);
    }
}

// Both stripes of the cache had deferred writes for a member without space when the array broke.
// Such stripes stay in use, and requests that needed a stripe waited forever. Found by seed 20637
// of `beyond` with a spare.
#[test]
fn requests_that_wait_for_stripes_of_a_broken_array_end_when_all_stripes_hold_deferred_writes() {
    let mut options = Options::new(Level::Raid5, 8, Sectors(8));
    options.layout = Some(5);
    options.full_stripes = 12;
    options.spares = 1;
    options.assume_clean = false;
    options.stripes_max = Some(2);
    options.data_promised = false;
    knobs(
        &mut options,
        &[
            ("stripe_cache_size", "17"),
            ("stripe_size", "auto"),
            ("priority", "stream"),
            ("rmw_level", "0"),
            ("writes", "auto"),
            ("activation", "at_unplug"),
            ("max_sectors_kb", "64"),
            ("preread_bypass_threshold", "0"),
        ],
    );
    let steps = vec![
        ScriptStep::FailDisk(6),
        ScriptStep::BadRead { disk: 3, column: 3, dead: true },
        ScriptStep::Finish,
        ScriptStep::FailOperation { disk: 3, after: 2, how: Planned::Gone },
        ask(2, RequestOp::Write, 266_240, 77_824, false, true),
        ScriptStep::NoSpace(3),
        ScriptStep::Steps(21),
        ask(2, RequestOp::Flush, 0, 0, true, false),
    ];
    let profile = "written by hand";
    let order = Order::Fifo;
    let (within_promises, assembles) = (false, false);
    let script = Script { profile, options, order, steps, within_promises, assembles };
    script.run().unwrap_or_else(|failure| panic!("{failure}"));
}

// All stripes that a resync had requested had a client's write to a stalled member in flight. The
// resync requested no other stripes until an unrelated event occurred. Found by seed 21486 of
// `faults-and-cuts` with a spare.
#[test]
fn resync_asks_for_more_stripes_when_those_that_it_asked_for_wait_for_a_stalled_member() {
    let mut options = Options::new(Level::Raid5, 3, Sectors(16));
    options.full_stripes = 12;
    options.spares = 1;
    options.logical_block = 4096;
    options.discards = true;
    options.client_frames = 80;
    // Every state is checked for lost wake-ups, because the state that shows the bug is rare.
    options.lost_work_every = 1;
    knobs(
        &mut options,
        &[
            ("stripe_cache_size", "17"),
            ("priority", "fifo"),
            ("writes", "gather"),
            ("max_sectors_kb", "512"),
            ("preread_bypass_threshold", "17"),
        ],
    );
    options.seed = 21_486;
    let steps = vec![
        ask(3, RequestOp::Write, 152_064, 1024, true, false),
        ask(3, RequestOp::Read, 73_728, 57_344, false, false),
        ScriptStep::Cut(CutMode::Subset),
        ask(1, RequestOp::Flush, 0, 0, true, false),
        ScriptStep::Steps(2),
        ScriptStep::Stall(1),
        ScriptStep::Steps(1),
        ScriptStep::Sleep(3000),
        ask(2, RequestOp::Write, 28_672, 4096, true, true),
        ask(1, RequestOp::Write, 168_586, 422, false, false),
        ask(1, RequestOp::Read, 122_880, 4096, true, false),
        ScriptStep::Sync(SyncAction::Repair),
        ScriptStep::Steps(6),
    ];
    let profile = "written by hand";
    let order = Order::Lifo;
    let (within_promises, assembles) = (true, true);
    let script = Script { profile, options, order, steps, within_promises, assembles };
    script.run().unwrap_or_else(|failure| panic!("{failure}"));
}

// A check took the stale block that it read from a member without space for current content. The
// stale block was written to the member once it had space, and parity was wrong from then on. Found
// by seed 3699 of `beyond-powered`.
#[test]
fn check_does_not_forget_what_a_full_member_lacks() {
    for full in [0, 3] {
        let mut rig = raid5().written(0, 0x40);
        rig.disks[full].faults.no_space = true;
        let ticket = rig.write(0, 0xee);
        assert_eq!(rig.wait(ticket), Err(ReplyError::NoSpace));
        assert_eq!(rig.check().0, 0, "a deferred write is not a mismatch");
        rig.disks[full].faults.no_space = false;
        rig.pass(Span::secs(5));
        assert!(rig.scrub_clean() > 0);
        rig.fail_disk(1);
        assert!(rig.read(16).is_all(1));
        assert!(rig.read(0).is_all(0xee));
    }
}
