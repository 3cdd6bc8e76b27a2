//! Test of two connections that write the same thousand ranges at once.
//!
//! A sector may keep either write. At the end the parity of every stripe, recomputed from the
//! media, is right.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "numbers of a test are small"
)]

use crate::checker::parity::Bytes;
use crate::{Options, Order, Payload, World, chunk_kib};
use weft_engine::{Flags, RequestOp};
use weft_ondisk::Level;
use weft_units::rng::Rng;
use weft_units::{ByteRange, ClientId};

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
