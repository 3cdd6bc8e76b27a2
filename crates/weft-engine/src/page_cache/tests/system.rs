//! Tests of writers, flushers and devices together, against measurements.
//!
//! The device here is no model of a disk (that is the simulator's affair), only a constant speed
//! and a constant cost per jump: enough for what is due to pauses and limits alone.

use super::super::*;
use super::rig::World;
use weft_units::{Span, Time};

const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;

/// The machine of the single-disk measurements.
fn world(kernel: Kernel, limit_mib: u64, hz: u32, writers: u32) -> World {
    let config = PoolConfig {
        dirty: Amount::Bytes(limit_mib * MIB),
        ticks: TickRate::new(hz),
        ..PoolConfig::new(kernel, 8, 2942 * 256, 700_000)
    };
    World::new(config, 1, 58, Span::millis(8), writers)
}

/// MiB/s of the disk, and the part of the time in which it was idle.
fn measured(world: &mut World, seconds: u64) -> (f64, f64) {
    world.run_until(Time(seconds * SECOND));
    let disk = &world.disks[0];
    let time = seconds as f64;
    (disk.written as f64 / 256.0 / time, disk.idle.0 as f64 / SECOND as f64 / time)
}

#[test]
fn writeback_statement_59_pauses_drain_a_small_pool() {
    let (rate, idle) = measured(&mut world(Kernel::V3_1, 1, 250, 1), 20);
    assert!((30.0..38.0).contains(&rate), "{rate} MiB/s");
    assert!(idle >= 0.3, "idle {idle}");
    // Finer pauses do less harm, and a larger pool none.
    let (finer, _) = measured(&mut world(Kernel::V3_1, 1, 1000, 1), 20);
    assert!(finer > rate + 5.0, "{finer} MiB/s");
    let (rate, idle) = measured(&mut world(Kernel::V3_1, 100, 250, 1), 20);
    assert!(rate > 57.0 && idle < 0.01, "{rate} MiB/s, idle {idle}");
}

#[test]
fn writeback_statement_60_no_more_is_dirty_than_the_limit_and_a_burst_of_each_cpu() {
    for (limit, writers) in [(1, 1), (1, 10), (8, 2), (8, 10), (100, 2), (100, 10)] {
        let mut world = world(Kernel::V3_1, limit, 250, writers);
        measured(&mut world, 5);
        let bound = limit * 256 + 1024 * u64::from(writers.min(8));
        assert!(world.total_max <= bound, "{limit} MiB, {writers}: {} pages", world.total_max);
    }
}

#[test]
fn writeback_statement_61_two_equal_writers_get_equal_parts() {
    let mut world = world(Kernel::V3_1, 100, 250, 2);
    measured(&mut world, 30);
    let [one, other] = world.progress()[..] else { panic!("two writers") };
    assert!(one.abs_diff(other) * 20 < one.max(other), "{one} and {other} pages");
}

#[test]
fn the_older_kernel_keeps_a_disk_busy_at_its_own_limits() {
    // 1 GiB, of which 10 % may be dirty; one writer.
    let config = PoolConfig::new(Kernel::V2_6_24, 4, 262_144, 240_000);
    let mut world = World::new(config, 1, 58, Span::millis(8), 1);
    let (rate, _) = measured(&mut world, 10);
    assert!(rate > 50.0, "{rate} MiB/s");
    assert!(world.total_max <= 24_000 + 4 * 1024, "{} pages", world.total_max);
    assert!(world.total_max > 18_000, "{} pages", world.total_max);
}

#[test]
fn a_device_that_nobody_wrote_to_has_no_share_until_it_completes_something() {
    // Two disks, the second comes later: with all of the limit taken its writers start from
    // nothing.
    let config = PoolConfig {
        dirty: Amount::Bytes(10 * MIB),
        ..PoolConfig::new(Kernel::V3_1, 8, 2942 * 256, 700_000)
    };
    let mut world = World::new(config, 2, 58, Span::millis(8), 1);
    world.run_until(Time(10 * SECOND));
    let [one, other] = world.progress()[..] else { panic!("two writers") };
    assert!(one.abs_diff(other) * 5 < one.max(other), "{one} and {other} pages");
}
