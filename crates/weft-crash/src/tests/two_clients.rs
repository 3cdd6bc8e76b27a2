//! Tests of two connections: both write the same thousand ranges at once, and the member requests
//! of each are charged to it.
//!
//! A sector that both write may keep either write. At the end the parity of every stripe,
//! recomputed from the media, is right.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "numbers of a test are small"
)]

use crate::checker::parity::Bytes;
use crate::{Options, Order, Payload, World, chunk_kib};
use weft_engine::knobs::Knobs;
use weft_engine::{Flags, Party, RequestOp};
use weft_ondisk::Level;
use weft_units::rng::Rng;
use weft_units::{ByteRange, ClientId, Span};

fn contend(level: Level, members: usize, seed: u64) {
    let mut options = Options::new(level, members, chunk_kib(16));
    options.full_stripes = 24;
    options.seed = seed;
    options.defer_computes = seed.is_multiple_of(2);
    let mut world = World::new(options);
    let mut rng = Rng::new(seed);
    let size = world.size();
    let ranges: Vec<(u64, u64)> = (0..1000)
        .map(|_| {
            let start = rng.below(size / 512) * 512;
            (start, (1 + rng.below(48)) * 512)
        })
        .map(|(start, len)| (start, len.min(size - start)))
        .collect();
    let mut orders = [ranges.clone(), ranges];
    for order in &mut orders {
        rng.shuffle(order);
    }
    let [first, second] = orders;
    for (a, b) in first.into_iter().zip(second) {
        for (client, (start, len)) in [(1, a), (2, b)] {
            let flags = Flags { sync: rng.percent(50), fua: rng.percent(5), ..Flags::NONE };
            let range = ByteRange::new(start, len);
            world.request(ClientId(client), RequestOp::Write, range, Payload::Tags, flags);
        }
        for _ in 0..rng.below(24) {
            world.step(Order::Random);
        }
        assert_eq!(world.failure(), None);
    }
    world.run(Order::Random);
    assert_eq!(world.failure(), None);
    assert_eq!(world.requests_answered(), 2000);
    let scrub = world.scrub(Bytes::Visible);
    assert!(scrub.wrong.is_empty(), "{:?}", scrub.wrong);
    assert_eq!(scrub.columns, 24 * 32);
    assert!(scrub.written >= scrub.columns * 95 / 100, "{} stripes hold something", scrub.written);
    assert!(world.verify(Order::Random) * 512 > size / 2);
    assert_eq!(world.failure(), None);
}

#[test]
fn two_clients_on_the_same_ranges_leave_parity_right() {
    contend(Level::Raid5, 3, 1);
    contend(Level::Raid5, 5, 2);
    contend(Level::Raid4, 4, 3);
    contend(Level::Raid6, 6, 4);
}

/// After an aborted read, the work of a stripe moves to another stripe, which was last used for
/// another client.
#[test]
fn work_that_moves_to_another_stripe_is_charged_to_its_client() {
    let mut options = Options::new(Level::Raid5, 4, chunk_kib(16));
    options.full_stripes = 8;
    options.knobs = Knobs { stripe_cache_size: 32, ..Knobs::default() };
    let mut world = World::new(options);
    let size = world.size();
    let write = |world: &mut World, client, start, len| {
        let range = ByteRange::new(start, len);
        world.request(ClientId(client), RequestOp::Write, range, Payload::Tags, Flags::NONE);
    };
    let charged = |world: &World, client| {
        let accounts = world.snapshot().volumes.remove(0).accounts;
        let of_client = accounts.iter().find(|it| it.party == Party::Client(ClientId(client)));
        of_client.map_or(0, |account| account.sectors.0)
    };
    for _ in 0..2 {
        write(&mut world, 1, 0, size);
        world.run(Order::Fifo);
    }
    let before = charged(&world, 1);
    assert!(before > 0, "the first client's writes are counted");
    for (number, disk) in [(0, 0), (1, 1), (2, 2), (3, 3)] {
        world.disks[disk].faults.stalled = true;
        write(&mut world, 2, number * size / 8 + 512, 512);
        for _ in 0..8 {
            // The read of the stalled disk is aborted after a while.
            while world.outstanding().any(|(_, it)| it.disk != Some(disk)) {
                world.step(Order::Fifo);
            }
            world.pass_time(Span::secs(1));
        }
        world.disks[disk].faults.stalled = false;
        world.run(Order::Fifo);
    }
    assert_eq!(world.failure(), None);
    assert!(charged(&world, 2) > 0, "the second client's writes are counted");
    assert_eq!(charged(&world, 1), before);
}
