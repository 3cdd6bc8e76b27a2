//! Tests of the write-back cache above arrays: power cuts and process crashes at many points of
//! random scripts.
//!
//! Data that was flushed, or written with FUA, must survive; a sector with other data reads as an
//! old or new version.

#![allow(clippy::cast_possible_truncation, reason = "numbers of a test are small")]

use crate::{BLOCK, CutMode, Options, Order, Payload, Rig, chunk_kib};
use weft_engine::mutant::Mutant;
use weft_engine::page_cache::Kernel;
use weft_engine::{Flags, ReplyError, RequestOp, Verb, WriteBackConfig};
use weft_ondisk::Level;
use weft_units::rng::Rng;
use weft_units::{Bytes, Span};

fn options(level: Level, members: usize, pages: u64) -> Options {
    Options {
        write_back: Some(WriteBackConfig::of(Bytes(pages * BLOCK))),
        defer_computes: true,
        discards: true,
        ..Options::new(level, members, chunk_kib(8))
    }
}

/// Issues one random request, which may cover parts of blocks, or be a flush or a FUA write.
fn request(rig: &mut Rig, rng: &mut Rng) {
    let mut below = |bound: u64| rng.next_u64() % bound;
    let blocks = 40;
    let (at, len) = (below(blocks - 8) * BLOCK, (1 + below(8)) * BLOCK);
    match below(16) {
        0..7 => _ = rig.put_nosync(at, len),
        7 => _ = rig.put(at + 512 * below(8), 512 * (1 + below(12))),
        8 => _ = rig.fua(at, len),
        9 => _ = rig.write_zeroes(at + 512 * below(8), 512 * (1 + below(12))),
        10 => _ = rig.trim(at, len),
        11 | 12 => _ = rig.flush(),
        13 => {
            let flags = Flags { preflush: true, ..Flags::NONE };
            rig.finish();
            rig.issue(RequestOp::Write, at, len, Payload::Tags, flags);
            rig.finish();
        }
        _ => _ = rig.get(at + 512 * below(8), 512 * (1 + below(30))),
    }
}

/// Counts of a script or of several.
#[derive(Clone, Copy, Debug, Default)]
struct Course {
    ends: u64,
    /// Sectors read after cuts and crashes.
    read: u64,
    /// Pauses of the client.
    pauses: u64,
    /// Bytes that stops could not write to members. `kept` is the number of bytes that they could
    /// write.
    lost: u64,
    kept: u64,
}

/// Runs a script with cuts and crashes between its parts. At its end the array is stopped while a
/// member has no space.
fn course(seed: u64, level: Level, members: usize, plant: impl Fn(&mut Rig)) -> Course {
    let pages = [8, 24, 64][(seed % 3) as usize];
    let mut options = Options { seed, ..options(level, members, pages) };
    // The throttles are weft's own, which wakes writers at completions, a kernel's with pauses, and
    // an older kernel's in which writers write back.
    let throttle = ["weft", "mainline-6.12", "3.1"][(seed / 4 % 3) as usize];
    options.knobs.pool.throttle = Kernel::named(throttle);
    let mut rig = Rig::of(options);
    rig.order = [Order::Random, Order::Fifo, Order::Lifo][(seed / 3 % 3) as usize];
    plant(&mut rig);
    let mut rng = Rng::new(seed);
    let (mut ends, mut read) = (0, 0);
    for _ in 0..3 {
        for _ in 0..12 + rng.next_u64() % 30 {
            request(&mut rig, &mut rng);
            rig.steps((rng.next_u64() % 9) as usize);
            let cache = rig.snapshot().write_back.expect("the cache is on");
            assert!(cache.dirty_pages + cache.writeback_pages <= pages, "limit {pages}: {cache:?}");
        }
        if rng.next_u64().is_multiple_of(3) {
            rig.kill();
        } else {
            let mode = [CutMode::Nothing, CutMode::Ordered, CutMode::Subset];
            rig.cut(mode[(rng.next_u64() % 3) as usize]);
        }
        rig.recover();
        read += rig.verify();
        rig.until_idle();
        plant(&mut rig);
        ends += 1;
    }
    // The last part has no cut, so that everything is written at its end.
    for _ in 0..20 {
        request(&mut rig, &mut rng);
    }
    // More requests at once than the pool admits: the client is paused.
    for block in 0..80 {
        rig.put_nosync(block * BLOCK, BLOCK);
    }
    rig.finish();
    let pauses = rig.snapshot().write_back.expect("the cache is on").pauses;
    rig.idle(Span::secs(40));
    rig.finish();
    let cache = rig.snapshot().write_back.expect("the cache is on");
    assert_eq!((cache.dirty_pages, cache.writeback_pages), (0, 0), "after 40 s");
    read += rig.verify();
    let (lost, kept) = stop_without_space(&mut rig, &mut rng, (seed % members as u64) as usize);
    Course { ends, read: read + rig.verify(), pauses, lost, kept }
}

/// Stops the array while a member has no space, and starts it again. The answer names the ranges
/// that are lost, and the rest must be durable. Returns the number of dirty bytes that were lost,
/// and of those that were written.
fn stop_without_space(rig: &mut Rig, rng: &mut Rng, full: usize) -> (u64, u64) {
    let blocks = 1 + rng.next_u64() % 6;
    for _ in 0..blocks {
        rig.put_nosync(rng.next_u64() % 40 * BLOCK, BLOCK);
    }
    rig.finish();
    let dirty = rig.snapshot().write_back.expect("the cache is on").dirty_pages * BLOCK;
    rig.disks[full].faults.no_space = true;
    let ticket = rig.admin(Verb::Stop);
    rig.pass(Span::secs(3));
    rig.disks[full].faults.no_space = false;
    rig.pass(Span::secs(3));
    let (bytes, lost) = match rig.take_answer(ticket).expect("a stop ends") {
        Ok(_) => (0, Vec::new()),
        Err(ReplyError::Unwritten(it)) => {
            assert!(it.lost && it.more == 0 && it.error == ReplyError::NoSpace, "{it:?}");
            (it.bytes, it.ranges.clone())
        }
        Err(error) => panic!("{error}"),
    };
    assert_eq!(bytes, lost.iter().map(|range| range.len.0).sum::<u64>());
    rig.model.stop_answered(&lost);
    rig.cut(CutMode::Nothing);
    rig.recover();
    (bytes, dirty - bytes)
}

fn courses(level: Level, members: usize, seeds: u64) {
    let mut sum = Course::default();
    for seed in 0..seeds {
        let one = course(seed, level, members, |_| {});
        sum.ends += one.ends;
        sum.read += one.read;
        sum.pauses += one.pauses;
        sum.lost += one.lost;
        sum.kept += one.kept;
    }
    assert!(sum.ends == seeds * 3 && sum.read > seeds * 300, "{level}: {sum:?}");
    assert!(seeds < 60 || sum.pauses >= 5, "pauses, {level}: {sum:?}");
    assert!(sum.lost > seeds * BLOCK / 2, "lost by stops, {level}: {sum:?}");
    // Every write to a mirror needs all members.
    let is_mirror = matches!(level, Level::Raid1 | Level::Raid10);
    assert!(is_mirror || sum.kept > 0, "written by stops, {level}: {sum:?}");
}

#[test]
fn raid5_keeps_what_was_flushed_through_cuts_and_kills_with_the_cache_on() {
    courses(Level::Raid5, 4, 60);
}

#[test]
fn raid1_keeps_what_was_flushed_through_cuts_and_kills_with_the_cache_on() {
    courses(Level::Raid1, 2, 60);
}

#[test]
fn other_levels_keep_it_too() {
    for (level, members) in [(Level::Raid0, 3), (Level::Raid6, 5), (Level::Raid10, 4)] {
        courses(level, members, 15);
    }
}

#[test]
fn every_planted_bug_of_the_cache_is_found() {
    for bug in Mutant::WRITE_BACK {
        let plant = |rig: &mut Rig| rig.engine_mut().expect("an engine runs").plant(bug);
        let fails = |seed: u64| {
            let levels = [(Level::Raid5, 4), (Level::Raid1, 2)];
            let (level, members) = levels[(seed % 2) as usize];
            let run = || course(seed, level, members, plant);
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err()
        };
        assert!((0..100).any(fails), "{bug:?}");
    }
}

#[test]
fn what_was_not_flushed_is_lost_with_the_process_and_nothing_else_is() {
    let mut rig = Rig::of(options(Level::Raid5, 4, 64));
    for block in 0..8 {
        rig.write(block, 1);
    }
    rig.finish();
    let flush = rig.flush();
    rig.wait(flush).unwrap();
    for block in 4..12 {
        rig.write(block, 2);
    }
    rig.finish();
    assert!(rig.read(5).is_all(2));
    rig.kill().recover();
    for block in 0..8 {
        assert!(rig.read(block).is_all(1), "block {block}");
    }
    assert!(rig.read(8).is_all(0));
    rig.verify();
}
