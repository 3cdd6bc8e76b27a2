//! Rows dealt to shards, by hand: who has which, and what a queue may hold up.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "numbers of a test are small"
)]

use weft_engine::mutant::Mutant;
use weft_engine::{MemberState, Shards, Token, Verb};
use weft_ondisk::Level;
use weft_sim::{BLOCK, Logged, Options, Order, Rig, chunk_kib};

fn options(count: u16, queues: bool) -> Options {
    let mut options = Options::new(Level::Raid5, 3, chunk_kib(4));
    options.shards = Shards { count, queues };
    options.logged = true;
    options
}

/// A queue that is out.
fn queue_of(rig: &Rig) -> Vec<Token> {
    let queues = rig.outstanding().filter(|(_, pending)| pending.is_queue());
    queues.map(|(token, _)| token).collect()
}

/// Ends everything but these, until nothing else is outstanding.
fn finish_all_but(rig: &mut Rig, held: &[Token]) {
    while let Some(token) = rig.pending().into_iter().find(|token| !held.contains(token)) {
        rig.complete(token);
        rig.must();
    }
}

/// Reads of the data of a disk that were submitted.
fn reads_of(rig: &Rig, wanted: usize) -> usize {
    rig.log
        .iter()
        .filter(|logged| matches!(logged, Logged::Read { disk, .. } if *disk == wanted))
        .count()
}

/// Chunk rows are dealt in turn, and each shard has its part of the cache: one that has no row to spare
/// keeps nobody waiting at the others.
#[test]
fn a_shard_without_a_row_keeps_nobody_waiting_at_another() {
    let mut options = options(2, false);
    options.rows_max = Some(2);
    let mut rig = Rig::of(options);
    let row = 2 * BLOCK;
    // Chunk rows 0, 2 and 4 are one shard's, which has one row; 1 is the other's.
    let first = rig.put(0, row);
    let second = rig.put(2 * row, row);
    let third = rig.put(4 * row, row);
    let other = rig.put(row, row);
    assert_eq!(rig.snapshot().volumes[0].stripe_cache_active, 0, "the dirty mark comes first");
    while rig.snapshot().volumes[0].stripe_cache_active == 0 {
        assert!(rig.step(Order::Fifo));
    }
    assert_eq!(rig.snapshot().volumes[0].stripe_cache_active, 2, "a row of each");
    // With one shard the second would have the other row.
    let mut answered = Vec::new();
    while answered.len() < 4 {
        assert!(rig.step(Order::Fifo));
        for ticket in [first, second, third, other] {
            if rig.take_answer(ticket).is_some() {
                answered.push(ticket);
            }
        }
    }
    assert_eq!(answered[..2], [first, other]);
    assert_eq!(answered[2..], [second, third]);
    rig.finish();
    assert!(rig.scrub_clean() > 0);
}

/// One request over many chunk rows is attached by every shard, and answered once.
#[test]
fn a_long_request_is_dealt_to_every_shard() {
    for queues in [false, true] {
        for count in 1..=3 {
            let mut options = options(count, queues);
            options.chunk_rows = 400;
            let mut rig = Rig::of(options);
            let len = 700 * BLOCK;
            rig.store(512, len).unwrap();
            assert_eq!(rig.read_bytes(512, len).unwrap().0.len() as u64, len);
            assert!(rig.scrub_clean() > 2000);
            rig.fail_disk(1);
            assert_eq!(rig.read_bytes(512, len).unwrap().0.len() as u64, len);
            assert_eq!(queues, rig.delays.queues > 0);
        }
    }
}

/// A read of a member is in a queue when the member fails, is forgotten, and a blank disk has its slot. How
/// many reads the blank disk got before anything was rebuilt on it.
fn reads_of_who_came_later(bug: Option<Mutant>) -> usize {
    let mut rig = Rig::of(options(1, true));
    if let (Some(bug), Some(engine)) = (bug, rig.engine_mut()) {
        engine.plant(bug);
    }
    // Half of a row: the other half is read, and this goes into the queue from the shard.
    let before = rig.log.len();
    let ticket = rig.put(0, BLOCK);
    let read =
        |rig: &Rig| rig.log[before..].iter().any(|logged| matches!(logged, Logged::Read { .. }));
    let mut held = Vec::new();
    for _ in 0..100 {
        // Would this one bring the read out?
        let tokens = queue_of(&rig);
        held = tokens
            .into_iter()
            .filter(|token| {
                let mut twin = rig.clone();
                twin.complete(*token);
                read(&twin)
            })
            .collect();
        if !held.is_empty() {
            break;
        }
        assert!(rig.step(Order::Fifo));
    }
    assert_eq!(held.len(), 1, "the read is in a queue");
    // Whose it is.
    let mut twin = rig.clone();
    twin.complete(held[0]);
    let disk = twin.log[before..].iter().find_map(|logged| match logged {
        Logged::Read { disk, .. } => Some(*disk),
        _ => None,
    });
    let disk = disk.expect("it was read");
    let member = rig.member_of(disk);
    rig.admin(Verb::Fail(member));
    rig.settle();
    finish_all_but(&mut rig, &held);
    rig.admin(Verb::Remove(member));
    rig.settle();
    finish_all_but(&mut rig, &held);
    let (blank, _) = rig.add_blank();
    rig.settle();
    finish_all_but(&mut rig, &held);
    let taken = rig.snapshot().volumes[0].members.iter().any(|member| {
        matches!(member.state, MemberState::Rebuilding { .. }) && member.slot.is_some()
    });
    assert!(taken, "the slot changed hands");
    rig.complete(held[0]);
    let reads = reads_of(&rig, blank);
    if bug.is_none() {
        rig.wait(ticket).unwrap();
        assert!(rig.verify() > 0);
        assert!(rig.scrub_clean() > 0);
    }
    reads
}

#[test]
fn a_request_does_not_go_to_who_came_into_the_slot_after_it_was_made() {
    assert_eq!(reads_of_who_came_later(None), 0);
    assert_eq!(reads_of_who_came_later(Some(Mutant::OldMembership)), 1);
}
