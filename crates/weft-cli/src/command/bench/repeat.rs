//! `weft bench repeat`: do one thing many times, under a profiler.
//!
//! What is prepared is not in [`measured_part`], and what is repeated is nowhere else: callgrind's
//! `--toggle-collect` and perf's call chains tell them apart by this name. Nothing depends on a
//! clock, a random number or an address, so a count of instructions is the same from run to run.
//! `cargo xtask instructions` compares the counts with those of `benches/instructions.toml`.

use std::hint::black_box;
use std::io::Write;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use weft_engine::knobs::Knobs;
use weft_engine::{Flags, RequestOp};
use weft_nbd::{
    ClientHandshake, ExportInfo, Goal, HandshakeEvent, Op, ServerConnection, ServerEvent,
};
use weft_ondisk::Super1;
use weft_parity::{Level, Parity};
use weft_sim::rng::Rng;
use weft_sim::{Options, Payload, PayloadMode, World, chunk_kib};
use weft_units::{ByteRange, ClientId};

use super::alone::{Alone, Asked, FULL_STRIPE, assembled, superblocks};
use crate::outcome::{Exit, Failure, Outcome};
use crate::terminal::stdout;

/// Does one thing many times, for a profiler
#[derive(Debug, Args)]
pub(crate) struct Repeat {
    /// What to do
    case: Case,
    /// How often
    count: u64,
    /// Do as many percent more than said: a planted slow-down, to see that it is found
    #[arg(long, value_name = "PERCENT", default_value_t = 0)]
    extra: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Case {
    /// Four superblocks parsed, and their set assembled
    Assemble,
    /// A 4 KiB read of a healthy RAID 5
    EngineRead,
    /// A write of a full stripe, 192 KiB, of a RAID 5
    EngineFullStripeWrite,
    /// The same with `stripe_size=auto`
    EngineFullStripeWriteAuto,
    /// A 4 KiB write somewhere in a RAID 5, with 256 stripes in the cache
    #[value(name = "engine-random-write-256")]
    EngineRandomWrite256,
    /// The same with 65,536 stripes
    #[value(name = "engine-random-write-65536")]
    EngineRandomWrite65536,
    /// An NBD read request parsed and the header of its reply written
    NbdRequest,
    /// P and Q of 6+2 strips of 4 KiB, by the scalar kernels
    ParityPqScalar,
    /// P of 4+1 strips of 4 KiB, by AVX2 kernels: all that callgrind knows
    ParityXorAvx2,
    /// A 4 KiB write somewhere in a RAID 5 of the fault simulator, with tags for payload
    SimRandomWriteTags,
}

pub(super) fn run(arguments: &Repeat) -> Outcome {
    let count = arguments.count + arguments.count * arguments.extra / 100;
    match arguments.case {
        Case::Assemble => assemble(count)?,
        Case::EngineRead => engine(stripes(256), 4096, 64, Asked::RandomRead, 2000, count)?,
        Case::EngineFullStripeWrite => {
            engine(stripes(256), FULL_STRIPE, 4, Asked::SequentialWrite, 50, count)?;
        }
        Case::EngineFullStripeWriteAuto => {
            engine(Knobs::default(), FULL_STRIPE, 4, Asked::SequentialWrite, 50, count)?;
        }
        Case::EngineRandomWrite256 => {
            engine(stripes(256), 4096, 64, Asked::RandomWrite, 2000, count)?;
        }
        // Until the cache is full and stripes have to leave it.
        Case::EngineRandomWrite65536 => {
            engine(stripes(65_536), 4096, 64, Asked::RandomWrite, 70_000, count)?;
        }
        Case::NbdRequest => nbd_request(count)?,
        Case::ParityPqScalar => parity_pq(Level::Scalar, count)?,
        Case::ParityXorAvx2 => parity_xor(Level::Avx2, count)?,
        Case::SimRandomWriteTags => sim_random_write(count),
    }
    writeln!(stdout(), "{count}")?;
    Ok(Exit::Done)
}

/// The part that a profiler looks at.
#[inline(never)]
fn measured_part<T>(work: &mut dyn FnMut() -> T) -> T {
    black_box(work())
}

/// md's knobs, with as many stripes in the cache.
fn stripes(stripes: u32) -> Knobs {
    Knobs { stripe_cache_size: stripes, ..Knobs::md() }
}

fn engine(
    knobs: Knobs,
    bytes: u64,
    depth: u32,
    asked: Asked,
    before: u64,
    count: u64,
) -> Result<(), Failure> {
    let mut alone = Alone::new(knobs, bytes, depth)?;
    alone.carry_out(asked, before)?;
    measured_part(&mut || alone.carry_out(asked, count))
}

fn assemble(count: u64) -> Result<(), Failure> {
    let members: Vec<_> = superblocks()?
        .into_iter()
        .map(|superblock| (superblock.minor, superblock.encode()))
        .collect();
    measured_part(&mut || {
        for _ in 0..count {
            let parsed: Result<Vec<Super1>, _> = members
                .iter()
                .map(|(minor, bytes)| Super1::decode(black_box(bytes), *minor))
                .collect();
            black_box(assembled(parsed.map_err(Failure::failed)?)?);
        }
        Ok(())
    })
}

fn nbd_request(count: u64) -> Result<(), Failure> {
    let exports = Arc::new([ExportInfo::new("disk", 1 << 30).map_err(Failure::failed)?]);
    let mut server = ServerConnection::new(exports, Some(0));
    let mut client = ClientHandshake::new(Goal::Open("disk".into())).map_err(Failure::failed)?;
    let mut connection = loop {
        let (_, event) = client.input(server.output());
        server.advance_output(server.output().len());
        if let Some(HandshakeEvent::Ready(connection)) = event {
            break connection;
        }
        let said = client.output().to_vec();
        client.advance_output(said.len());
        let mut rest = &said[..];
        while !rest.is_empty() {
            let (taken, _) = server.input(rest);
            rest = &rest[taken..];
        }
    };
    let read = Op::Read { offset: 4096, len: 4096, df: false };
    let bytes = connection.request(7, read).map_err(Failure::failed)?;
    measured_part(&mut || {
        for _ in 0..count {
            let (_, event) = server.input(black_box(&bytes));
            let Some(ServerEvent::Request(request)) = event else {
                return Err(Failure::failed("a request was not understood"));
            };
            black_box(server.reply_header(&request, Ok(())));
        }
        Ok(())
    })
}

/// 64 writes at a time, members that answer in rounds, a flush after a thousand.
fn sim_random_write(count: u64) {
    let mut options = Options::new(weft_ondisk::Level::Raid5, 4, chunk_kib(64));
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
                assert!(world.round() || world.wake(), "nothing moves");
                world.forget_answers();
            }
        }
    };
    carry_out(2000);
    measured_part(&mut || carry_out(count));
}

fn parity_pq(level: Level, count: u64) -> Result<(), Failure> {
    let parity = with_level(level)?;
    let strips: Vec<Vec<u8>> = (1..=6u8).map(|byte| vec![byte; 4096]).collect();
    let data: Vec<(u8, &[u8])> = (0..).zip(strips.iter().map(Vec::as_slice)).collect();
    let (mut p, mut q) = (vec![0; 4096], vec![0; 4096]);
    measured_part(&mut || {
        for _ in 0..count {
            parity.pq(black_box(&data), &mut p, &mut q);
        }
    });
    Ok(())
}

fn parity_xor(level: Level, count: u64) -> Result<(), Failure> {
    let parity = with_level(level)?;
    let strips: Vec<Vec<u8>> = (1..=4u8).map(|byte| vec![byte; 4096]).collect();
    let sources: Vec<&[u8]> = strips.iter().map(Vec::as_slice).collect();
    let mut p = vec![0; 4096];
    measured_part(&mut || {
        for _ in 0..count {
            parity.xor(black_box(&sources), &mut p);
        }
    });
    Ok(())
}

fn with_level(level: Level) -> Result<Parity, Failure> {
    Parity::with_level(level).ok_or_else(|| Failure::failed(format!("this CPU has no {level}")))
}
