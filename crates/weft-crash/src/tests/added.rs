//! Tests of members that join at every step of a superblock update, with a power cut soon
//! afterwards.

use crate::script::{Script, ScriptStep as S};
use crate::{ARRAY, CutMode, Options, Order, chunk_kib};
use weft_engine::{Flags, RequestOp, WriteBackConfig};
use weft_ondisk::Level;
use weft_units::Bytes;

/// Ways in which a member joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comes {
    Added,
    ReAdded,
    Returned,
}

const COMES: [Comes; 3] = [Comes::Added, Comes::ReAdded, Comes::Returned];

fn write(start: u64) -> S {
    let flags = Flags { sync: true, ..Flags::NONE };
    S::Ask { volume: ARRAY, client: 1, op: RequestOp::Write, start, len: 4096, flags }
}

/// Script in which a member of an array with a bitmap has left. Writes mark the array dirty, the
/// member joins in the way `how` after `before` member requests, and the script ends after `after`
/// more.
fn comes(level: Level, members: usize, how: Comes, (before, after): (u32, u32)) -> Script {
    let mut options = Options::new(level, members, chunk_kib(8));
    options.bitmap = Some(Bytes(4096));
    options.seed = u64::from(before * 100 + after);
    let leaves = [S::FailDisk(1), S::Finish, S::Remove(1)];
    let mut steps = vec![write(0), S::Finish, S::Sleep(3500)];
    steps.extend(leaves);
    steps.extend([write(8192), S::Finish, S::Sleep(3500)]);
    steps.extend([write(65_536), write(16_384), S::Steps(before)]);
    steps.push(match how {
        Comes::Added => S::Add,
        Comes::ReAdded => S::ReAdd(1),
        Comes::Returned => S::Return(1),
    });
    steps.push(S::Steps(after));
    Script {
        profile: "added",
        options,
        order: Order::Fifo,
        steps,
        within_promises: true,
        assembles: true,
    }
}

/// Adds a power cut to the script, and some time after the restart.
fn with_end(mut script: Script, mode: CutMode, order: Order) -> Script {
    script.steps.extend([S::Cut(mode), write(4096), S::Finish, S::Sleep(400)]);
    script.order = order;
    script
}

const MODES: [CutMode; 4] =
    [CutMode::Nothing, CutMode::Everything, CutMode::Ordered, CutMode::Subset];
const ORDERS: [Order; 3] = [Order::Fifo, Order::Lifo, Order::Random];
const BEFORE: [u32; 7] = [0, 1, 2, 3, 4, 6, 8];
const AFTER: std::ops::Range<u32> = 0..24;

fn run(script: &Script) {
    let report = script.run().unwrap_or_else(|failure| panic!("{failure}"));
    assert!(report.coverage.points == 1 && report.requests >= 4, "{report:?}");
}

/// A member joins at every step of a superblock update on RAID 1. The cut modes and orders of
/// completions take turns.
#[test]
fn a_member_that_comes_at_any_step_of_an_update_of_a_mirror_is_told_after_its_bitmap() {
    let mut ran = 0;
    for how in COMES {
        for (at, before) in BEFORE.into_iter().enumerate() {
            for after in AFTER {
                for (nth, mode) in MODES.into_iter().enumerate() {
                    let order = ORDERS[(at + nth + after as usize) % ORDERS.len()];
                    run(&with_end(comes(Level::Raid1, 3, how, (before, after)), mode, order));
                    ran += 1;
                }
            }
        }
    }
    assert_eq!(ran, 2016);
}

/// A member joins at a sample of the steps of an update on the other levels. Half of the arrays
/// have a write-back cache.
#[test]
fn the_same_of_other_levels() {
    let mut ran = 0;
    for (level, members) in [(Level::Raid5, 4), (Level::Raid6, 5), (Level::Raid10, 4)] {
        for how in COMES {
            for (at, before) in BEFORE.into_iter().enumerate() {
                for after in AFTER.step_by(2) {
                    let nth = at + after as usize / 2;
                    let script = comes(level, members, how, (before, after));
                    let mut script = with_end(script, MODES[nth % 4], ORDERS[nth % 3]);
                    if nth.is_multiple_of(2) {
                        script.options.write_back = Some(WriteBackConfig::of(Bytes(32 * 4096)));
                    }
                    run(&script);
                    ran += 1;
                }
            }
        }
    }
    assert_eq!(ran, 756);
}
