//! Tests of wake-ups: the engine asks to run as soon as it has work that can continue.
//!
//! There is one test for each bug that the checker of lost wake-ups found.

use crate::{BLOCK, Options, Payload, Rig, chunk_kib};
use weft_engine::knobs::FlushRule;
use weft_engine::{Flags, MemberState, RequestOp, Token, Verb};
use weft_ondisk::Level;
use weft_units::Span;

/// RAID 5 of three with a chunk of a block: block 0 is on disk 0, its P on disk 2.
fn raid5() -> Rig {
    Rig::raid5(3, chunk_kib(4))
}

fn first_of(rig: &Rig, disk: usize) -> Token {
    let first = rig.outstanding().find(|(_, pending)| pending.disk == Some(disk));
    first.expect("a request is outstanding").0
}

fn is_given_up(rig: &Rig, token: Token) -> bool {
    rig.outstanding().any(|(other, pending)| other == token && pending.is_aborted())
}

#[test]
fn what_is_sent_to_a_member_in_the_turn_in_which_it_fails_is_given_up_at_once() {
    let mut rig = raid5();
    rig.disks[0].faults.stalled = true;
    // The engine sees both inputs in the same turn, the read first.
    rig.plug(RequestOp::Read, 0, BLOCK, Payload::Zeros, Flags::NONE);
    let member = rig.member_of(0);
    rig.admin(Verb::Fail(member));
    rig.settle();
    let token = first_of(&rig, 0);
    assert!(is_given_up(&rig, token), "aborted without a further event");
    rig.finish();
    rig.must();
}

#[test]
fn a_stalled_read_goes_round_as_soon_as_a_rebuilt_member_allows_it() {
    let mut rig = raid5();
    rig.disks[0].faults.stalled = true;
    let read = rig.get(0, BLOCK);
    let token = first_of(&rig, 0);
    let member = rig.member_of(1);
    rig.admin(Verb::Fail(member));
    rig.settle();
    rig.now = rig.now + Span::secs(3);
    assert!(rig.wake());
    assert!(!is_given_up(&rig, token), "degraded: no other member has the data");
    // The disk answers later requests, and the failed member's slot is filled.
    rig.disks[0].faults.stalled = false;
    rig.add_blank();
    rig.settle();
    while rig.volume().degraded > 0 {
        let other = rig.outstanding().find(|(other, _)| *other != token).map(|(other, _)| other);
        rig.complete(other.expect("the rebuild continues"));
        rig.must();
    }
    assert!(is_given_up(&rig, token), "the others have the data from now on");
    assert!(rig.wait(read).unwrap().iter().all(|byte| *byte == 0));
}

/// A superblock update that waits for space on one member and for the answer of another must not
/// wake the driver again and again. The checker in [`crate::World::wake`] reports an engine that
/// never sleeps.
#[test]
fn a_superblock_update_that_waits_for_space_and_for_an_answer_wakes_no_driver() {
    let mut rig = raid5();
    rig.disks[0].faults.no_space = true;
    rig.disks[1].faults.stalled = true;
    rig.put(0, BLOCK);
    rig.pass(Span::secs(5));
    rig.disks[0].faults.no_space = false;
    rig.disks[1].faults.stalled = false;
    rig.finish();
}

const FLUSH_RULES: [FlushRule; 5] =
    [FlushRule::Batch, FlushRule::Md612, FlushRule::Needed, FlushRule::Parallel, FlushRule::Serial];

/// An array that is dirty after a durable write, with members that hold no volatile data.
fn dirty_and_flushed(level: Level, rule: FlushRule) -> Rig {
    let mut options = Options::new(level, 3, chunk_kib(4));
    options.knobs.flush_batch = rule;
    options.lost_work_every = 1;
    let mut rig = Rig::of(options);
    rig.fua(0, BLOCK);
    rig.finish();
    let rig = rig.flushed();
    assert_eq!(rig.volume().array_state, "active");
    rig
}

// A flush was answered once the failure of a member was recorded, in a turn that had already
// checked whether the array was idle. The array then never became clean. Found by seed 1000155 of
// `lies`.
#[test]
fn a_stop_goes_on_when_a_flush_to_a_failed_member_was_answered() {
    for rule in FLUSH_RULES {
        for level in [Level::Raid1, Level::Raid4, Level::Raid5] {
            let mut rig = dirty_and_flushed(level, rule);
            rig.put(0, BLOCK);
            rig.finish();
            rig.disks[0].faults.flush_error = true;
            let flush = rig.flush();
            assert_eq!(rig.command(Verb::Stop), Ok(()), "{level}, {rule:?}");
            assert_eq!(rig.take_answer(flush), Some(Ok(Vec::new())), "{level}, {rule:?}");
            let volume = rig.volume();
            assert_eq!((volume.array_state, volume.degraded), ("clean", 1), "{level}, {rule:?}");
            assert_eq!(volume.members[0].state, MemberState::Faulty, "{level}, {rule:?}");
        }
    }
}

// With the rule `needed`, a flush of members without volatile data completes in the turn that
// begins it. A stop, or the clean state after `safe_mode_delay`, then waited for an unrelated
// event.
#[test]
fn an_array_becomes_clean_when_no_member_has_to_be_flushed() {
    for rule in FLUSH_RULES {
        let mut rig = dirty_and_flushed(Level::Raid5, rule);
        let sent: u64 = rig.volume().members.iter().map(|member| member.flushes).sum();
        rig.pass(Span::secs(1));
        let volume = rig.volume();
        let now: u64 = volume.members.iter().map(|member| member.flushes).sum();
        assert_eq!(volume.array_state, "clean", "{rule:?}");
        assert_eq!(now - sent, if rule == FlushRule::Needed { 0 } else { 3 }, "{rule:?}");

        let mut rig = dirty_and_flushed(Level::Raid5, rule);
        let flush = rig.plug(RequestOp::Flush, 0, 0, Payload::Zeros, Flags::NONE);
        assert_eq!(rig.command(Verb::Stop), Ok(()), "{rule:?}");
        assert_eq!(rig.take_answer(flush), Some(Ok(Vec::new())), "{rule:?}");
        assert_eq!(rig.volume().array_state, "clean", "{rule:?}");
    }
}
