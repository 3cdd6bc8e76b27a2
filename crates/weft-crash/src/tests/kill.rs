//! Tests of process crashes while the power stays on (F14).
//!
//! Members keep all completed writes, durable or not, so every acknowledged write is there. Only
//! outstanding writes may be stored or lost.

#![allow(clippy::cast_possible_truncation, reason = "numbers of a test are small")]

use crate::{BLOCK, CutMode, Order, Rig, chunk_kib};

fn raid5() -> Rig {
    Rig::raid5(4, chunk_kib(16))
}

#[test]
fn what_was_acknowledged_and_never_flushed_is_there_after_a_kill() {
    let mut rig = raid5();
    for block in 0..24 {
        rig.write(block, block as u8 + 1);
    }
    rig.finish();
    rig.kill().recover();
    for block in 0..24 {
        assert!(rig.read(block).is_all(block as u8 + 1), "block {block}");
    }
    rig.until_idle();
    assert!(rig.scrub_clean() > 0);
}

/// Acknowledged writes that were never flushed may be lost if the power is cut, unlike after a
/// crash of the process.
#[test]
fn a_power_cut_instead_may_take_it() {
    let mut rig = raid5();
    for block in 0..24 {
        rig.write(block, block as u8 + 1);
    }
    rig.finish();
    rig.cut(CutMode::Nothing);
    rig.recover();
    assert!(rig.read(0).is_all(0));
}

#[test]
fn a_kill_at_every_point_leaves_what_was_acknowledged() {
    let mut points = 0;
    for order in [Order::Fifo, Order::Lifo, Order::Random] {
        for steps in 0.. {
            let mut rig = raid5().with(|options| options.seed = steps as u64);
            rig.order = order;
            let whole = rig.put(0, 12 * BLOCK);
            rig.put(2 * BLOCK + 512, 1024);
            rig.put(20 * BLOCK, 3 * BLOCK);
            rig.steps(steps);
            let over = rig.is_answered(whole) && rig.outstanding().next().is_none();
            rig.kill().recover();
            rig.verify();
            // A flush of the next engine covers all writes that the previous engine acknowledged.
            let flush = rig.flush();
            rig.wait(flush).unwrap();
            rig.until_idle();
            rig.cut(CutMode::Nothing);
            rig.recover();
            rig.verify();
            rig.until_idle();
            rig.scrub_clean();
            points += 1;
            if over {
                break;
            }
        }
    }
    assert!(points > 30, "{points}");
}
