//! Tests of wake-ups: work that can go on is asked for at once.
//!
//! There is one test for each fault that the checker of lost wake-ups found.

use weft_engine::{Token, Verb};
use weft_sim::{BLOCK, Rig, chunk_kib};
use weft_units::Span;

/// RAID 5 of three with a chunk of a block: block 0 is on disk 0, its P on disk 2.
fn raid5() -> Rig {
    Rig::raid5(3, chunk_kib(4))
}

fn first_of(rig: &Rig, disk: usize) -> Token {
    let first = rig.outstanding().find(|(_, pending)| pending.disk == Some(disk));
    first.expect("something is outstanding").0
}

fn is_given_up(rig: &Rig, token: Token) -> bool {
    rig.outstanding().any(|(other, pending)| other == token && pending.is_aborted())
}

#[test]
fn what_is_sent_to_a_member_in_the_turn_in_which_it_fails_is_given_up_at_once() {
    let mut rig = raid5();
    rig.disks[0].faults.stalled = true;
    // One plug: the engine sees both in the same turn, the read first.
    rig.plug(
        weft_engine::RequestOp::Read,
        0,
        BLOCK,
        weft_sim::Payload::Zeros,
        weft_engine::Flags::NONE,
    );
    let member = rig.member_of(0);
    rig.admin(Verb::Fail(member));
    rig.settle();
    let token = first_of(&rig, 0);
    assert!(is_given_up(&rig, token), "nothing else has to happen for it");
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
    assert!(!is_given_up(&rig, token), "degraded: nobody else knows it");
    // It answers what came later, and the failed member's place is filled.
    rig.disks[0].faults.stalled = false;
    rig.add_blank();
    rig.settle();
    while rig.volume().degraded > 0 {
        let other = rig.outstanding().find(|(other, _)| *other != token).map(|(other, _)| other);
        rig.complete(other.expect("the rebuild goes on"));
        rig.must();
    }
    assert!(is_given_up(&rig, token), "the others know it from this moment");
    assert!(rig.wait(read).unwrap().iter().all(|byte| *byte == 0));
}

/// It would keep a driver awake without end: the checker of [`weft_sim::World::wake`] objects.
#[test]
fn a_superblock_update_that_waits_for_space_and_for_an_answer_wakes_nobody() {
    let mut rig = raid5();
    rig.disks[0].faults.no_space = true;
    rig.disks[1].faults.stalled = true;
    rig.put(0, BLOCK);
    rig.pass(Span::secs(5));
    rig.disks[0].faults.no_space = false;
    rig.disks[1].faults.stalled = false;
    rig.finish();
}
