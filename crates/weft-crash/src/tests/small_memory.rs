//! Tests with the smallest memory: a stripe cache of two stripes with the frames of one.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "numbers of a test are small"
)]

use crate::checker::parity::Bytes;
use crate::{Options, Order, Payload, Rig, chunk_kib};
use weft_engine::{Flags, RequestOp, SyncAction};
use weft_ondisk::Level;
use weft_units::rng::Rng;
use weft_units::{ByteRange, ClientId};

#[test]
fn two_stripes_and_the_frames_of_one_are_enough() {
    for (level, members, order) in [
        (Level::Raid5, 3, Order::Fifo),
        (Level::Raid5, 5, Order::Random),
        (Level::Raid6, 4, Order::Lifo),
        (Level::Raid6, 6, Order::Random),
        (Level::Raid4, 4, Order::Random),
    ] {
        for stripe_size in ["4096", "16384"] {
            let mut options = Options::new(level, members, chunk_kib(16));
            options.stripes_max = Some(2);
            options.cache_stripes = Some(1);
            options.client_frames = 64;
            options.seed = members as u64;
            options.knobs.set(options.knobs.parse("stripe_size", stripe_size).unwrap());
            let mut rig = Rig::of(options);
            rig.order = order;
            let mut rng = Rng::new(7);
            let size = rig.size();
            for number in 0..400 {
                let start = rng.below(size / 512) * 512;
                let len = ((1 + rng.below(60)) * 512).min(size - start);
                let op = if rng.percent(70) { RequestOp::Write } else { RequestOp::Read };
                let flags = Flags { sync: rng.percent(50), ..Flags::NONE };
                let range = ByteRange::new(start, len);
                rig.request(ClientId(1 + number % 3), op, range, Payload::Tags, flags);
                for _ in 0..rng.below(6) {
                    rig.step(order);
                }
                rig.must();
            }
            rig.finish();
            assert_eq!(rig.requests_answered(), 400);
            assert!(rig.scrub(Bytes::Visible).written > 100);
            assert!(rig.scrub_clean() > 100);
            // Degraded operation, a check and a rebuild work with the same memory.
            rig.fail_disk(1).remove(1);
            rig.store(0, 64 * 1024).unwrap();
            assert!(rig.verify() > 100);
            rig.add();
            rig.until_idle();
            assert_eq!(rig.volume().degraded, 0);
            rig.sync(SyncAction::Check).unwrap();
            rig.until_idle();
            let volume = rig.volume();
            assert_eq!(volume.mismatch_cnt, 0);
            assert!(volume.sync_stripes > 0);
            assert!(rig.scrub_clean() > 100);
        }
    }
}
