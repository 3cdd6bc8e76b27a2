//! Tests of a member that fails at the k-th operation of a script or a rebuild. (Scripts try every
//! second or third k only, to save time.)
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "numbers of a test are small"
)]

use crate::checker::parity::Bytes;
use crate::{Options, Order, Payload, Planned, World, chunk_kib};
use weft_engine::{Fault, Flags, RequestOp};
use weft_ondisk::Level;
use weft_units::rng::Rng;
use weft_units::{ByteRange, ClientId, Span};

fn options(level: Level, members: usize) -> Options {
    let mut options = Options::new(level, members, chunk_kib(8));
    options.full_stripes = 6;
    options.client_frames = 128;
    options.stripes_max = Some(8);
    options
}

/// Runs 120 requests of all kinds, some of them concurrently. Returns the number of requests that
/// failed.
fn script(world: &mut World) -> usize {
    let mut rng = Rng::new(99);
    let size = world.size();
    let mut tickets = Vec::new();
    for _ in 0..120 {
        let start = rng.below(size / 512) * 512;
        let len = ((1 + rng.below(40)) * 512).min(size - start);
        let op = rng.pick(&[
            RequestOp::Write,
            RequestOp::Write,
            RequestOp::Write,
            RequestOp::Read,
            RequestOp::Flush,
            RequestOp::WriteZeroes,
        ]);
        let flush = op == RequestOp::Flush;
        let range = if flush { ByteRange::default() } else { ByteRange::new(start, len) };
        let write = matches!(op, RequestOp::Write);
        let flags = Flags { sync: true, fua: write && rng.percent(20), ..Flags::NONE };
        tickets.push(world.request(ClientId(1), op, range, Payload::Tags, flags));
        for _ in 0..rng.below(10) {
            world.step(Order::Random);
        }
        if world.failure().is_some() {
            break;
        }
    }
    world.run(Order::Random);
    let errors =
        tickets.into_iter().filter(|ticket| matches!(world.take_answer(*ticket), Some(Err(_))));
    errors.count()
}

fn must(world: &World, note: &str) {
    if let Some(violation) = world.failure() {
        panic!("{note}: {violation}");
    }
}

fn fail_everywhere(level: Level, members: usize, kinds: &[Planned], second: bool, stride: usize) {
    let mut clean = World::new(options(level, members));
    assert_eq!(script(&mut clean), 0);
    must(&clean, "nothing fails");
    let operations = clean.disks[0].operations();
    assert!(operations > 60, "{operations}");
    let (mut failed, mut points) = (0, 0);
    for k in (0..operations).step_by(stride) {
        for how in kinds {
            let disk = k as usize % members;
            let note = format!("{level}x{members} disk {disk} operation {k} {how:?}");
            let mut world = World::new(Options { seed: k, ..options(level, members) });
            world.disks[disk].faults.schedule.insert(k, *how);
            if second {
                let other = (disk + 1 + k as usize / members % (members - 1)) % members;
                world.disks[other].faults.schedule.insert(k + 7, *how);
            }
            let errors = script(&mut world);
            must(&world, &note);
            assert_eq!(errors, 0, "{note}");
            let read = world.verify(Order::Fifo);
            must(&world, &note);
            assert!(read > 50, "{note}: {read} sectors");
            points += 1;
            let volume = &world.snapshot().volumes[0];
            failed += u64::from(volume.degraded > 0);
            let scrub = world.scrub(Bytes::Visible);
            assert!(scrub.wrong.is_empty(), "{note}: {:?}", scrub.wrong);
            assert_eq!(scrub.columns == 0, volume.degraded > 0, "{note} {volume:?}");
            // The array is consistent after a power cut too.
            world.power_cut(crate::CutMode::Subset);
            must(&world, &note);
            let how = weft_engine::assemble::Options {
                run: true,
                force_dirty: true,
                ..Default::default()
            };
            world.start(&how).unwrap_or_else(|refused| panic!("{note}: {refused}"));
            let read = world.verify(Order::Fifo);
            must(&world, &note);
            assert!(read > 50, "{note}: {read} sectors");
        }
    }
    println!("{level}x{members}: {points} points, {failed} with a member failed");
    assert!(failed > 0);
}

#[test]
fn a_member_gone_at_every_operation_of_raid4() {
    fail_everywhere(Level::Raid4, 4, &[Planned::Gone], false, 3);
}

#[test]
fn a_member_gone_at_every_operation_of_raid5() {
    fail_everywhere(Level::Raid5, 4, &[Planned::Gone, Planned::Once(Fault::Io)], false, 2);
}

#[test]
fn two_members_gone_at_every_operation_of_raid6() {
    fail_everywhere(Level::Raid6, 5, &[Planned::Gone], true, 2);
}

#[test]
fn a_rebuild_survives_the_failure_of_any_operation() {
    for (level, members) in [(Level::Raid5, 4), (Level::Raid6, 5)] {
        let prepare = || {
            let mut world = World::new(options(level, members));
            assert_eq!(script(&mut world), 0);
            let member = world.member_of(1);
            world.admin(weft_engine::Verb::Fail(member));
            world.run(Order::Fifo);
            let member = world.member_of(1);
            world.admin(weft_engine::Verb::Remove(member));
            world.run(Order::Fifo);
            must(&world, "prepare");
            world
        };
        let mut whole = prepare();
        let (spare, _) = whole.add_blank();
        whole.run(Order::Fifo);
        whole.idle(Span::secs(30));
        must(&whole, "nothing fails");
        assert_eq!(whole.snapshot().volumes[0].degraded, 0);
        let operations = whole.disks[spare].operations();
        assert!(operations > 5, "{operations}");
        let mut failed = 0;
        for k in 0..operations {
            let mut world = prepare();
            let (spare, _) = world.add_blank();
            world.disks[spare].faults.schedule.insert(k, Planned::Gone);
            world.run(Order::Random);
            world.idle(Span::secs(30));
            let note = format!("{level}x{members}: the new member goes at operation {k}");
            must(&world, &note);
            failed += u64::from(world.snapshot().volumes[0].degraded > 0);
            let read = world.verify(Order::Fifo);
            must(&world, &note);
            assert!(read > 50, "{note}: {read} sectors");
            // Another new member completes the rebuild.
            let member = world.member_of(spare);
            world.admin(weft_engine::Verb::Remove(member));
            world.run(Order::Fifo);
            world.add_blank();
            world.run(Order::Fifo);
            world.idle(Span::secs(30));
            must(&world, &note);
            assert_eq!(world.snapshot().volumes[0].degraded, 0, "{note}");
            let scrub = world.scrub(Bytes::Visible);
            assert!(scrub.wrong.is_empty() && scrub.written > 50, "{note}: {:?}", scrub.wrong);
        }
        println!("{level}x{members}: {operations} points, {failed} with the new member failed");
        assert!(failed > operations / 2);
    }
}

/// Latent errors of one member at a time are corrected from redundancy.
#[test]
fn every_latent_error_is_read_around_and_mended() {
    for (level, members) in [(Level::Raid5, 4), (Level::Raid6, 5)] {
        let mut world = World::new(options(level, members));
        assert_eq!(script(&mut world), 0);
        let disk = 2;
        let first = world.array.data_offset[disk].0;
        let size = world.array.layout.member_size().0;
        world.disks[disk].faults.bad_reads = (first..first + size).step_by(8).collect();
        let bad = world.disks[disk].faults.bad_reads.len();
        let read = world.verify(Order::Fifo);
        must(&world, "verify");
        assert!(read > 50);
        world.idle(Span::secs(10));
        world.run(Order::Fifo);
        must(&world, "idle");
        let left = world.disks[disk].faults.bad_reads.len();
        assert!(left < bad, "{left} of {bad} left");
        assert_eq!(world.snapshot().volumes[0].degraded, 0);
        assert!(world.scrub(Bytes::Visible).wrong.is_empty());
    }
}

/// Two strips of a stripe are unreadable. One read reconstructs both, and both are rewritten. In
/// the second case the rewrite of the first strip fails, and the strip is recorded as a bad block.
#[test]
fn both_latent_errors_of_a_stripe_of_raid6_are_mended_by_one_read() {
    for first_fails in [false, true] {
        let mut world = World::new(options(Level::Raid6, 5));
        // Data of the first stripe of 8 KiB chunks is on slots 1 to 3.
        let bad = [1, 2].map(|disk| (disk, world.array.data_offset[disk].0));
        for (disk, sector) in bad {
            world.disks[disk].faults.bad_reads = (sector..sector + 8).collect();
        }
        if first_fails {
            world.disks[1].faults.bad_writes = world.disks[1].faults.bad_reads.clone();
        }
        let range = ByteRange::new(0, 4096);
        let flags = Flags { sync: true, ..Flags::NONE };
        let read = world.request(ClientId(1), RequestOp::Read, range, Payload::Tags, flags);
        world.run(Order::Fifo);
        must(&world, "read");
        assert!(matches!(world.take_answer(read), Some(Ok(_))));
        let volume = &world.snapshot().volumes[0];
        let corrected = [1, 2].map(|disk: usize| volume.members[disk].corrected);
        assert_eq!(corrected, [if first_fails { 0 } else { 8 }, 8]);
        let recorded = [1, 2].map(|disk: usize| volume.members[disk].bad_blocks.len());
        assert_eq!(recorded, [usize::from(first_fails), 0]);
        assert_eq!(volume.degraded, 0);
    }
}
