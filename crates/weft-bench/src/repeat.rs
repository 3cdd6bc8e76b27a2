//! Repetition: one operation done many times, under a profiler.
//!
//! The function `measured_part` contains all of the repeated work and none of its preparation, so
//! callgrind's `--toggle-collect` and perf's call chains find the repeated work by this name.
//! Nothing depends on a clock, a random number or an address, so the count of instructions is the
//! same in every run. `cargo xtask instructions` compares the counts with those of
//! `benches/instructions.toml`.

use std::hint::black_box;

use weft_engine::knobs::{Knobs, SchedulerKind};
use weft_nbd::{Op, ServerEvent};
use weft_ondisk::{Level as Raid, Super1};
use weft_parity::{Level, Parity, Strategy};
use weft_units::Bytes;

use crate::BenchError;
use crate::alone::{Alone, FULL_STRIPE, RequestKind, assembled, superblocks};
use crate::driven::Driven;
use crate::sched::{Loaded, SchedLoad};
use crate::session::session;

/// Operation that can be repeated under a profiler.
#[derive(Debug)]
pub struct Repetition {
    /// Name on the command line.
    pub name: &'static str,
    /// Description of the operation.
    pub about: &'static str,
    run: fn(u64) -> Result<(), BenchError>,
}

impl Repetition {
    /// Carries out the operation `count` times.
    ///
    /// # Errors
    /// The operation failed, or this CPU lacks its instructions.
    pub fn run(&self, count: u64) -> Result<(), BenchError> {
        (self.run)(count)
    }
}

/// Operations that can be repeated, by name.
pub static REPETITIONS: &[Repetition] = &[
    Repetition {
        name: "assemble",
        about: "Four superblocks parsed, and their set assembled",
        run: assemble,
    },
    Repetition {
        name: "driver-random-write",
        about: "A 4 KiB write of a RAID 5 of four through a driver, 32 at a time; parity by AVX2",
        run: |count| driven(32, RequestKind::RandomWrite, count),
    },
    Repetition {
        name: "driver-random-write-alone",
        about: "The same, one at a time",
        run: |count| driven(1, RequestKind::RandomWrite, count),
    },
    Repetition {
        name: "driver-read",
        about: "A 4 KiB read of a RAID 5 of four through a driver, 32 at a time",
        run: |count| driven(32, RequestKind::RandomRead, count),
    },
    Repetition {
        name: "driver-read-alone",
        about: "The same, one at a time",
        run: |count| driven(1, RequestKind::RandomRead, count),
    },
    Repetition {
        name: "engine-read",
        about: "A 4 KiB read of a healthy RAID 5",
        run: |count| engine(stripes(256), 4096, 64, RequestKind::RandomRead, 2000, count),
    },
    Repetition {
        name: "engine-full-stripe-write",
        about: "A write of a full stripe, 192 KiB, of a RAID 5",
        run: |count| engine(stripes(256), FULL_STRIPE, 4, RequestKind::SequentialWrite, 50, count),
    },
    Repetition {
        name: "engine-full-stripe-write-auto",
        about: "The same with `stripe_size=auto`",
        run: |count| {
            engine(Knobs::default(), FULL_STRIPE, 4, RequestKind::SequentialWrite, 50, count)
        },
    },
    Repetition {
        name: "engine-random-write-256",
        about: "A 4 KiB write somewhere in a RAID 5, with 256 stripes in the cache",
        run: |count| engine(stripes(256), 4096, 64, RequestKind::RandomWrite, 2000, count),
    },
    Repetition {
        name: "engine-random-write-65536",
        about: "The same with 65,536 stripes",
        // Warm-up until the cache is full and stripes are evicted.
        run: |count| engine(stripes(65_536), 4096, 64, RequestKind::RandomWrite, 70_000, count),
    },
    Repetition {
        name: "engine-random-write-bitmap",
        about: "The same with 256 stripes and a write-intent bitmap with its bits set",
        run: |count| with_bitmap(Alone::new(stripes(256), 4096, 64)?, count),
    },
    Repetition {
        name: "engine-raid1-write-bitmap",
        about: "A 4 KiB write of a RAID 1 of two with such a bitmap",
        run: |count| with_bitmap(Alone::of_level(Raid::Raid1, 2, 4096, 64)?, count),
    },
    Repetition {
        name: "engine-raid0-read",
        about: "A 4 KiB read of a RAID 0 of four",
        run: |count| of_level(Raid::Raid0, 4, RequestKind::RandomRead, count),
    },
    Repetition {
        name: "engine-raid0-write",
        about: "A 4 KiB write of a RAID 0 of four",
        run: |count| of_level(Raid::Raid0, 4, RequestKind::RandomWrite, count),
    },
    Repetition {
        name: "engine-raid1-read",
        about: "A 4 KiB read of a RAID 1 of two",
        run: |count| of_level(Raid::Raid1, 2, RequestKind::RandomRead, count),
    },
    Repetition {
        name: "engine-raid1-write",
        about: "A 4 KiB write of a RAID 1 of two",
        run: |count| of_level(Raid::Raid1, 2, RequestKind::RandomWrite, count),
    },
    Repetition {
        name: "engine-raid10-read",
        about: "A 4 KiB read of a RAID 10 of four",
        run: |count| of_level(Raid::Raid10, 4, RequestKind::RandomRead, count),
    },
    Repetition {
        name: "engine-raid10-write",
        about: "A 4 KiB write of a RAID 10 of four",
        run: |count| of_level(Raid::Raid10, 4, RequestKind::RandomWrite, count),
    },
    Repetition {
        name: "engine-single-read",
        about: "A 4 KiB read of one member as it is, without metadata",
        run: |count| single(RequestKind::RandomRead, count),
    },
    Repetition {
        name: "engine-single-write",
        about: "A 4 KiB write of one member as it is",
        run: |count| single(RequestKind::RandomWrite, count),
    },
    Repetition {
        name: "nbd-request",
        about: "An NBD read request parsed and the header of its reply written",
        run: nbd_request,
    },
    Repetition {
        name: "parity-pq-scalar",
        about: "P and Q of 6+2 strips of 4 KiB, by the scalar kernels",
        run: |count| parity_pq(Level::Scalar, count),
    },
    Repetition {
        name: "parity-xor-avx2",
        about: "P of 4+1 strips of 4 KiB, by AVX2 kernels: all that callgrind knows",
        run: |count| parity_xor(Level::Avx2, count),
    },
    Repetition {
        name: "sched-bfq-6",
        about: "A random 4 KiB read through bfq alone, of 6 processes with four each",
        run: |count| scheduled(SchedulerKind::Bfq, 6, count),
    },
    Repetition {
        name: "sched-bfq-4096",
        about: "The same of 4,096 processes",
        run: |count| scheduled(SchedulerKind::Bfq, 4096, count),
    },
    Repetition {
        name: "sched-mq-deadline-6",
        about: "A random 4 KiB read through mq-deadline alone, of 6 processes with four each",
        run: |count| scheduled(SchedulerKind::MqDeadline, 6, count),
    },
    Repetition {
        name: "sched-mq-deadline-4096",
        about: "The same of 4,096 processes",
        run: |count| scheduled(SchedulerKind::MqDeadline, 4096, count),
    },
    Repetition {
        name: "write-back-write",
        about: "A 4 KiB write that stays in a write-back cache",
        run: |count| cached(RequestKind::RandomWrite, count),
    },
    Repetition {
        name: "write-back-read",
        about: "A 4 KiB read of what is in such a cache",
        run: |count| cached(RequestKind::RandomRead, count),
    },
    Repetition {
        name: "write-back-read-miss",
        about: "A 4 KiB read of a healthy RAID 5 behind such a cache, which has none of it",
        run: |count| behind_cache(RequestKind::RandomRead, count),
    },
    Repetition {
        name: "write-back-write-out",
        about: "A 4 KiB write somewhere in a RAID 5, through such a cache that is full",
        run: |count| behind_cache(RequestKind::RandomWrite, count),
    },
];

/// Does the work and returns its result. A profiler finds the measured part by the name of this
/// function.
#[inline(never)]
fn measured_part<T>(work: &mut dyn FnMut() -> T) -> T {
    black_box(work())
}

/// md's knobs, with this many stripes in the stripe cache.
fn stripes(stripes: u32) -> Knobs {
    Knobs { stripe_cache_size: stripes, ..Knobs::md() }
}

fn engine(
    knobs: Knobs,
    bytes: u64,
    depth: u32,
    asked: RequestKind,
    before: u64,
    count: u64,
) -> Result<(), BenchError> {
    let mut alone = Alone::new(knobs, bytes, depth)?;
    alone.carry_out(asked, before)?;
    measured_part(&mut || alone.carry_out(asked, count))
}

fn driven(depth: u32, asked: RequestKind, count: u64) -> Result<(), BenchError> {
    let mut driven = Driven::new(depth)?;
    driven.carry_out(asked, 2000)?;
    measured_part(&mut || driven.carry_out(asked, count))
}

fn of_level(level: Raid, members: usize, asked: RequestKind, count: u64) -> Result<(), BenchError> {
    let mut alone = Alone::of_level(level, members, 4096, 64)?;
    alone.carry_out(asked, 2000)?;
    measured_part(&mut || alone.carry_out(asked, count))
}

fn with_bitmap(mut alone: Alone, count: u64) -> Result<(), BenchError> {
    alone.add_bitmap()?;
    alone.carry_out(RequestKind::RandomWrite, 2000)?;
    measured_part(&mut || alone.carry_out(RequestKind::RandomWrite, count))
}

fn single(asked: RequestKind, count: u64) -> Result<(), BenchError> {
    let mut alone = Alone::single(4096, 64)?;
    alone.carry_out(asked, 2000)?;
    measured_part(&mut || alone.carry_out(asked, count))
}

/// Sends `count` random reads of 4 KiB through a scheduler, from `processes` processes with four
/// requests outstanding each.
fn scheduled(scheduler: SchedulerKind, processes: u32, count: u64) -> Result<(), BenchError> {
    let knobs = Knobs { scheduler, ..Knobs::md() };
    let mut loaded = Loaded::new(&knobs, SchedLoad::reads(processes, 4));
    loaded.run(40_000);
    measured_part(&mut || {
        loaded.run(count);
        Ok(())
    })
}

/// Carries out `count` requests of 4 KiB in the first 64 MiB of a volume, which are all dirty in a
/// write-back cache of 256 MiB: no member is read or written.
fn cached(asked: RequestKind, count: u64) -> Result<(), BenchError> {
    let mut alone = Alone::cached(Bytes::mib(256), Bytes::mib(64), 64)?;
    alone.carry_out(RequestKind::SequentialWrite, 16_384)?;
    measured_part(&mut || alone.carry_out(asked, count))
}

/// Carries out `count` requests of 4 KiB in the first 8 GiB of a volume, behind a write-back cache
/// of 16 MiB that is full.
fn behind_cache(asked: RequestKind, count: u64) -> Result<(), BenchError> {
    let mut alone = Alone::cached(Bytes::mib(16), Bytes::mib(8192), 64)?;
    alone.carry_out(asked, 5000)?;
    measured_part(&mut || alone.carry_out(asked, count))
}

fn assemble(count: u64) -> Result<(), BenchError> {
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
            black_box(assembled(parsed.map_err(BenchError::failed)?)?);
        }
        Ok(())
    })
}

fn nbd_request(count: u64) -> Result<(), BenchError> {
    let (mut connection, mut server) = session()?;
    let read = Op::Read { offset: 4096, len: 4096, df: false };
    let bytes = connection.request(7, read).map_err(BenchError::failed)?;
    measured_part(&mut || {
        for _ in 0..count {
            let (_, event) = server.input(black_box(&bytes));
            let Some(ServerEvent::Request(request)) = event else {
                return Err(BenchError::failed("a request was not understood"));
            };
            black_box(server.reply_header(&request, Ok(())));
        }
        Ok(())
    })
}

fn parity_pq(level: Level, count: u64) -> Result<(), BenchError> {
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

fn parity_xor(level: Level, count: u64) -> Result<(), BenchError> {
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

/// Kernels of a SIMD level with a fixed strategy, so counts do not depend on the vendor of the CPU.
fn with_level(level: Level) -> Result<Parity, BenchError> {
    let parity = Parity::with_level(level).map(|parity| parity.with_strategy(Strategy::InOrder));
    parity.ok_or_else(|| BenchError::failed(format!("this CPU has no {level}")))
}
