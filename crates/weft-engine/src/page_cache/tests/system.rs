//! Tests of writers, flushers and devices together, compared with measurements.
//!
//! The device has a constant speed and a constant cost per jump. It does not model a disk, which
//! the simulator does, but suffices for effects of pauses and limits.

use super::super::*;
use super::rig::World;
use weft_units::{Span, Time};

const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;

/// A rig with the parameters of the single-disk measurements.
fn world(kernel: Kernel, limit_mib: u64, hz: u32, writers: u32) -> World {
    let config = PoolConfig {
        dirty: Amount::Bytes(limit_mib * MIB),
        ticks: TickRate::new(hz),
        ..PoolConfig::new(kernel, 8, 2942 * 256, 700_000)
    };
    World::new(config, 1, 58, Span::millis(8), writers)
}

/// Runs for `seconds`. Returns the throughput of the disk in MiB/s, and the fraction of time in
/// which it was idle.
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
    // Finer pauses do less harm, and with a larger pool they do none.
    let (finer, _) = measured(&mut world(Kernel::V3_1, 1, 1000, 1), 20);
    assert!(finer > rate + 5.0, "{finer} MiB/s");
    let (rate, idle) = measured(&mut world(Kernel::V3_1, 100, 250, 1), 20);
    assert!(rate > 57.0 && idle < 0.01, "{rate} MiB/s, idle {idle}");
}

#[test]
fn the_older_kernel_keeps_a_disk_busy_at_its_own_limits() {
    // 1 GiB of memory, of which 10 % may be dirty, and one writer.
    let config = PoolConfig::new(Kernel::V2_6_24, 4, 262_144, 240_000);
    let mut world = World::new(config, 1, 58, Span::millis(8), 1);
    let (rate, _) = measured(&mut world, 10);
    assert!(rate > 50.0, "{rate} MiB/s");
    assert!(world.total_max <= 24_000 + 4 * 1024, "{} pages", world.total_max);
    assert!(world.total_max > 18_000, "{} pages", world.total_max);
}

#[test]
fn a_device_without_earlier_writes_has_no_share_until_it_completes_something() {
    // Two disks, the second used later: when all of the limit is taken, writers of the second start
    // with no share.
    let config = PoolConfig {
        dirty: Amount::Bytes(10 * MIB),
        ..PoolConfig::new(Kernel::V3_1, 8, 2942 * 256, 700_000)
    };
    let mut world = World::new(config, 2, 58, Span::millis(8), 1);
    world.run_until(Time(10 * SECOND));
    let [one, other] = world.progress()[..] else { panic!("two writers") };
    assert!(one.abs_diff(other) * 5 < one.max(other), "{one} and {other} pages");
}

const IO_LESS: [DirtyThrottle; 4] = [
    DirtyThrottle::V11,
    DirtyThrottle::Patch001,
    DirtyThrottle::Mainline3_2,
    DirtyThrottle::Mainline6_12,
];

#[test]
fn writeback_statement_45_the_shortest_pause_of_3_2_outlasts_a_pool_of_1_mib_at_250_hz() {
    let idle = |hz| {
        let kernel = Kernel::IoLess(DirtyThrottle::Mainline3_2);
        measured(&mut world(kernel, 1, hz, 1), 20).1
    };
    assert!(idle(250) > 0.2, "{}", idle(250));
    assert!(idle(1000) < 0.01, "{}", idle(1000));
}

/// The size of the gain depends on how soon the flusher comes, which this rig does not model.
#[test]
fn writeback_statement_59_a_sole_writer_of_a_small_pool_is_faster_than_before() {
    for hz in [250, 1000] {
        let rate = |kernel| measured(&mut world(kernel, 1, hz, 1), 20).0;
        let before = rate(Kernel::V3_1);
        for variant in IO_LESS {
            let after = rate(Kernel::IoLess(variant));
            assert!(after > before, "{variant:?} at {hz}: {before} to {after} MiB/s");
        }
    }
}

#[test]
fn no_sleeping_writer_is_left_behind_for_ever() {
    for variant in IO_LESS {
        for (limit, disks, writers) in [(1, 1, 10), (10, 2, 10), (10, 4, 1), (1, 4, 4)] {
            let config = PoolConfig {
                dirty: Amount::Bytes(limit * MIB),
                ..PoolConfig::new(Kernel::IoLess(variant), 8, 2942 * 256, 700_000)
            };
            let mut world = World::new(config, disks, 58, Span::millis(8), writers);
            let mut before = world.progress();
            for second in [5, 10, 15] {
                world.run_until(Time(second * SECOND));
                let now = world.progress();
                let moved = before.iter().zip(&now).all(|(before, now)| now > before);
                assert!(moved, "{variant:?} {limit} MiB, {disks} disks: {before:?} {now:?}");
                before = now;
            }
        }
    }
}
