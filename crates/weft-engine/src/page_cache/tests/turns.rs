//! Tests of turns, weft's own throttling: its guarantees hold, and their checks detect faults.

use super::super::*;
use super::rig::World;
use weft_units::{Span, Time};

const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;

fn world(kernel: Kernel, limit: u64, hz: u32, disks: u16, rate: u64, writers: u32) -> World {
    let config = PoolConfig {
        dirty: Amount::Bytes(limit * MIB),
        ticks: TickRate::new(hz),
        ..PoolConfig::new(kernel, 8, 2942 * 256, 700_000)
    };
    World::new(config, disks, rate, Span::millis(8), writers)
}

/// Throughput of all disks in MiB/s from second `from` to second `to`.
fn rate(world: &mut World, from: u64, to: u64) -> f64 {
    world.run_until(Time(from * SECOND));
    let written = |world: &World| world.disks.iter().map(|disk| disk.written).sum::<u64>();
    let before = written(world);
    world.run_until(Time(to * SECOND));
    (written(world) - before) as f64 / 256.0 / (to - from) as f64
}

/// Runs endless writers. Returns the violations that were found: pages over the limit, disks that
/// are idle while writers wait, writers that get less than others or that wait for longer than
/// `wait`.
fn findings(world: &mut World, limit: u64, wait: Span) -> Vec<String> {
    const SECONDS: u64 = 30;
    let mut found = Vec::new();
    // The initial phase, in which the pool fills at the speed of memory, is excluded.
    world.run_until(Time(3 * SECOND));
    let (before, idle) = (world.progress(), world.disks.iter().map(|disk| disk.idle.0));
    let idle: Vec<u64> = idle.collect();
    world.run_until(Time(SECONDS * SECOND));
    if world.total_max > limit * 256 {
        found.push(format!("{} pages of {}", world.total_max, limit * 256));
    }
    for (disk, before) in world.disks.iter().zip(idle) {
        let idle = disk.idle.0 - before;
        if idle * 100 > (SECONDS - 3) * SECOND {
            found.push(format!("idle for {idle} ns"));
        }
    }
    let got: Vec<u64> =
        world.progress().iter().zip(before).map(|(now, before)| now - before).collect();
    let (least, most) = (got.iter().min().unwrap(), got.iter().max().unwrap());
    if (most - least) * 20 > *most {
        found.push(format!("from {least} to {most} pages"));
    }
    if world.wait_max() > wait {
        found.push(format!("a wait of {} ms", world.wait_max().0 / 1_000_000));
    }
    found
}

#[test]
fn turns_keep_disks_busy_writers_equal_and_dirty_pages_below_the_limit() {
    // Limit in MiB, disks, MiB/s, writers, longest wait in ms.
    for (limit, disks, speed, writers, wait) in [
        (1, 1, 58, 1, 20),
        (1, 1, 58, 2, 80),
        (8, 1, 58, 1, 20),
        (8, 1, 58, 2, 40),
        (100, 1, 58, 2, 40),
        (100, 1, 58, 10, 50),
        (1024, 1, 58, 10, 50),
        (10, 2, 117, 1, 20),
        (100, 10, 70, 1, 20),
    ] {
        let mut world = world(Kernel::Weft, limit, 250, disks, speed, writers);
        let found = findings(&mut world, limit, Span::millis(wait));
        assert_eq!(found, [""; 0], "{limit} MiB, {disks} disks, {writers} writers");
    }
}

#[test]
fn what_kernels_do_wrong_in_a_small_pool_is_found() {
    for kernel in ["3.1", "mainline-3.2"] {
        let mut world = world(Kernel::named(kernel).unwrap(), 10, 250, 2, 117, 10);
        let found = findings(&mut world, 10, Span::millis(400));
        assert!(found.len() >= 2, "{kernel}: {found:?}");
    }
}

#[test]
fn writers_that_are_not_woken_are_found_and_look_again_by_themselves() {
    let mut world = world(Kernel::Weft, 1, 250, 1, 58, 2);
    world.loses_wakes = true;
    let found = findings(&mut world, 1, Span::millis(400));
    assert!(found.iter().any(|found| found.contains("idle")), "{found:?}");
    assert!(world.progress().iter().all(|pages| *pages > 1000), "{:?}", world.progress());
}

#[test]
fn writers_of_a_small_pool_wait_for_a_switch_and_two_as_long_runs_of_each_other_at_most() {
    // Limit in MiB, disks, MiB/s, writers, least MiB/s, longest wait in ms. With a hundred writers
    // a run is as long as a switch, and half of the disk's time is lost.
    for (limit, disks, speed, writers, least, wait) in [
        (1, 1, 58, 10, 37.0, 300),
        (8, 1, 58, 10, 42.0, 50),
        (10, 2, 117, 10, 150.0, 400),
        (100, 10, 70, 10, 520.0, 60),
        (100, 10, 70, 100, 330.0, 2000),
    ] {
        let mut world = world(Kernel::Weft, limit, 250, disks, speed, writers);
        // The first seconds are for measuring the disk.
        world.run_until(Time(5 * SECOND));
        world.forget_waits();
        let rate = rate(&mut world, 5, 20);
        assert!(rate >= least, "{limit} MiB, {disks} disks, {writers} writers: {rate}");
        assert!(world.total_max <= limit * 256, "{} pages", world.total_max);
        let found = world.wait_max();
        assert!(found <= Span::millis(wait), "{limit} MiB, {writers} writers: {found:?}");
    }
}

#[test]
fn writeback_statement_62_a_hundred_writers_on_each_of_two_disks_with_10_mib() {
    let rate_of = |kernel| rate(&mut world(kernel, 10, 250, 2, 117, 100), 0, 20);
    let weft = rate_of(Kernel::Weft);
    assert!(weft >= 100.0, "{weft} MiB/s");
    let kernel = rate_of(Kernel::named("mainline-3.2").unwrap());
    assert!(kernel < 30.0, "{kernel} MiB/s");
}

#[test]
fn the_length_of_a_tick_makes_no_difference() {
    for (limit, writers) in [(1, 1), (1, 2), (8, 10)] {
        let written = |hz| {
            let mut world = world(Kernel::Weft, limit, hz, 1, 58, writers);
            world.run_until(Time(10 * SECOND));
            (world.disks[0].written, world.progress())
        };
        assert_eq!(written(100), written(1000), "{limit} MiB, {writers} writers");
    }
}

#[test]
fn a_slow_disk_does_not_hold_up_a_fast_one() {
    for limit in [4, 100] {
        let mut world = world(Kernel::Weft, limit, 250, 2, 100, 2);
        world.disks[1].pages_per_second = 2 * 256;
        world.run_until(Time(20 * SECOND));
        let [fast, slow] = [0, 1].map(|disk| world.disks[disk].written as f64 / 256.0 / 20.0);
        // With 4 MiB about a third is lost to the switches between the two writers of a disk.
        let least = if limit == 4 { (60.0, 1.4) } else { (90.0, 1.8) };
        assert!(fast > least.0, "{limit} MiB: {fast} MiB/s");
        assert!(slow > least.1, "{limit} MiB: {slow} MiB/s");
        assert!(world.disks[0].idle < Span::millis(200), "{:?}", world.disks[0].idle);
    }
}

#[test]
fn writers_that_leave_take_no_turn_and_no_credit_with_them() {
    let mut world = world(Kernel::Weft, 1, 250, 1, 58, 10);
    world.run_until(Time(5 * SECOND));
    for writer in 0..9 {
        world.leave(writer);
        world.run_until(Time(5 * SECOND + (writer as u64 + 1) * 10_000_000));
    }
    let rate = rate(&mut world, 8, 12);
    assert!(rate > 57.0, "{rate} MiB/s");
    assert!(world.wait_max() <= Span::millis(3000), "{:?}", world.wait_max());
}

#[test]
fn new_limits_hold_as_soon_as_the_disk_has_written_what_is_over_them() {
    let mut world = world(Kernel::Weft, 100, 250, 1, 58, 4);
    world.run_until(Time(5 * SECOND));
    assert!(world.total_max > 25_000, "{} pages", world.total_max);
    world.cache.set_limits(Amount::Bytes(MIB), Amount::Percent(10));
    // The excess of 99 MiB takes 1.7 s at 58 MiB/s.
    world.run_until(Time(7 * SECOND));
    world.total_max = 0;
    let low = rate(&mut world, 7, 12);
    assert!(world.total_max <= 256, "{} pages", world.total_max);
    assert!(low > 37.0, "{low} MiB/s: two thirds of the disk");
    world.cache.set_limits(Amount::Bytes(100 * MIB), Amount::Percent(10));
    world.run_until(Time(13 * SECOND));
    assert!(world.total_max > 25_000, "{} pages", world.total_max);
}

#[test]
fn throttles_are_changed_while_writers_wait() {
    let mut world = world(Kernel::Weft, 8, 250, 1, 58, 4);
    let mut before = world.progress();
    for second in 1..=8 {
        world.run_until(Time(second * SECOND));
        let now = world.progress();
        assert!(before.iter().zip(&now).all(|(before, now)| now > before), "{before:?} {now:?}");
        before = now;
        let name = ["3.1", "weft", "mainline-6.12", "weft"][second as usize % 4];
        world.cache.set_rules(Kernel::named(name).unwrap(), 3000, 500);
    }
}
