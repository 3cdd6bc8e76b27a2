//! Repetition of a simulated write, under a profiler: `repeat COUNT`.
//!
//! Each write has 4 KiB at a random offset of a RAID 5, with tags as payload and without checkers.
//! 64 writes are in flight, members answer in rounds, and a flush follows every thousand writes.
//! Preparation stays outside of `measured_part`. `weft-bench repeat` is the counterpart for product
//! code; the crash simulator is no product code. `cargo xtask instructions` compares the count of
//! instructions with that of `benches/instructions.toml`.

use std::hint::black_box;
use std::process::ExitCode;

use weft_crash::{Options, Payload, PayloadMode, World, chunk_kib};
use weft_engine::{Flags, RequestOp};
use weft_ondisk::Level;
use weft_units::rng::Rng;
use weft_units::{ByteRange, ClientId};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.as_slice() {
        [count] if count.parse::<u64>().is_ok() => {
            random_writes(count.parse().expect("looked at just now"));
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("usage: repeat COUNT");
            ExitCode::from(2)
        }
    }
}

/// The part that a profiler measures.
#[inline(never)]
fn measured_part(work: &mut dyn FnMut()) {
    work();
    black_box(());
}

fn random_writes(count: u64) {
    let mut options = Options::new(Level::Raid5, 4, chunk_kib(64));
    options.full_stripes = 256;
    options.knobs.stripe_cache_size = 256;
    (options.payload, options.checked) = (PayloadMode::Tags, false);
    let mut world = World::new(options);
    let (blocks, mut rng) = (world.size() / 4096, Rng::new(1));
    let flags = Flags { sync: true, ..Flags::NONE };
    let mut carry_out = |count: u64| {
        for number in 0..count {
            let (op, range) = if number % 1000 == 999 {
                (RequestOp::Flush, ByteRange::default())
            } else {
                (RequestOp::Write, ByteRange::new(rng.below(blocks) * 4096, 4096))
            };
            world.request(ClientId(1), op, range, Payload::Tags, flags);
            while world.unanswered() >= 64 {
                world.settle();
                assert!(world.round() || world.wake(), "the simulation makes no progress");
                world.forget_answers();
            }
        }
    };
    carry_out(2000);
    measured_part(&mut || carry_out(count));
}
