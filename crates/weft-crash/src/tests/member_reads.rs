//! Tests of the member reads of a request. The simulator checks that their content is right.

use crate::{BLOCK, Logged, Rig, chunk_kib};
use weft_engine::assemble;
use weft_engine::knobs::{Knobs, PlanRule};
use weft_ondisk::Level;

/// Blocks of a chunk.
const CHUNK: u64 = 16;

/// Number of blocks that each of four disks reads for a range of an array that was started anew
/// without disk 1. The parity of the first four full stripes is on disks 3, 2, 1 and 0.
fn reads(plan_rule: PlanRule, blocks: std::ops::Range<u64>) -> [u64; 4] {
    let mut rig = Rig::raid5(4, chunk_kib(CHUNK * 4)).with(|options| {
        options.knobs = Knobs { plan_rule, ..Knobs::default() };
        options.logged = true;
    });
    rig.store(0, 12 * CHUNK * BLOCK).expect("all members are present");
    rig.fail_disk(1).finish();
    rig.stop();
    rig.start(&assemble::Options { run: true, ..assemble::Options::default() })
        .expect("three suffice");
    rig.finish();
    rig.log.clear();
    let len = (blocks.end - blocks.start) * BLOCK;
    let ticket = rig.get(blocks.start * BLOCK, len);
    let found = rig.wait(ticket).expect("the range is reconstructed");
    assert_eq!(found.len() as u64, len);
    let mut read = [0; 4];
    for logged in &rig.log {
        if let Logged::Read { disk, count, .. } = logged {
            read[*disk] += count / 8;
        }
    }
    read
}

#[test]
fn a_read_of_full_stripes_takes_each_strip_of_the_others_once() {
    assert_eq!(reads(PlanRule::Least, 0..12 * CHUNK), [4 * CHUNK, 0, 4 * CHUNK, 4 * CHUNK]);
    // By md's rule all of these chunks are read through the stripe cache.
    assert_eq!(reads(PlanRule::Md, 0..12 * CHUNK), [4 * CHUNK, 0, 4 * CHUNK, 4 * CHUNK]);
}

#[test]
fn strips_that_no_missing_one_is_computed_from_are_read_from_their_members_alone() {
    // The last chunk of the first full stripe is on disk 2.
    assert_eq!(reads(PlanRule::Least, 2 * CHUNK..3 * CHUNK), [0, 0, CHUNK, 0]);
    // The range has one block of the missing chunk, and the next block on disk 2.
    assert_eq!(reads(PlanRule::Least, 2 * CHUNK - 1..2 * CHUNK + 1), [1, 0, 2, 1]);
}

#[test]
fn chunks_of_a_request_that_follow_each_other_on_a_member_are_one_read_of_it() {
    let mut rig = Rig::raid(Level::Raid0, 3, None, chunk_kib(CHUNK * 4)).with(|options| {
        options.knobs = Knobs::default();
        options.logged = true;
    });
    rig.store(0, 12 * CHUNK * BLOCK).expect("all members are present");
    rig.log.clear();
    // Eight chunks, from the middle of the second one on; and another request behind them.
    let first = rig.get((CHUNK + CHUNK / 2) * BLOCK, 8 * CHUNK * BLOCK);
    let second = rig.get((9 * CHUNK + CHUNK / 2) * BLOCK, CHUNK / 2 * BLOCK);
    for (ticket, blocks) in [(first, 8 * CHUNK), (second, CHUNK / 2)] {
        let found = rig.wait(ticket).expect("all members are present");
        assert_eq!(found.len() as u64, blocks * BLOCK);
    }
    let mut reads: Vec<(usize, u64)> = Vec::new();
    for logged in &rig.log {
        if let Logged::Read { disk, count, .. } = logged {
            reads.push((*disk, count / 8));
        }
    }
    reads.sort_unstable();
    let half = CHUNK / 2;
    assert_eq!(reads, [(0, half), (0, 2 * CHUNK + half), (1, 2 * CHUNK + half), (2, 3 * CHUNK)]);
}
