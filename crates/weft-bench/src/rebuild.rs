//! Rebuild benchmark: rebuild of a member in memory, compared with the minimal work for it.
//!
//! A driver with an engine rebuilds the last member of an array as fast as it can, on one thread
//! and with members in this process's memory. The baseline computes the same bytes from the memory
//! of the other members, without an engine: a copy for RAID 1, parity for RAID 5 and 6. Figures are
//! bytes of the rebuilt member per second of CPU time.

use std::hint::black_box;
use std::time::{Duration, Instant};

use weft_engine::assemble::{Options, assemble};
use weft_engine::knobs::Knobs;
use weft_engine::{Config, Engine, SyncAction};
use weft_ondisk::{Level, NewArray};
use weft_parity::Parity;
use weft_runtime::buffers::Slab;
use weft_runtime::devices::{Access, MemberSpec, OpenMember, OpenOptions, read_metadata};
use weft_runtime::io::ring::NoRing;
use weft_runtime::serve::driver::{Driver, DriverParts};
use weft_runtime::serve::pool::Pool;
use weft_units::{MemberIndex, Sectors, Time};

use crate::BenchError;
use crate::rounds::{in_turns, thread_cpu};
use crate::sheet::{Sheet, SheetRow};

/// Levels that are measured, each with its number of members.
const CASES: [(Level, usize); 3] = [(Level::Raid1, 2), (Level::Raid5, 4), (Level::Raid6, 6)];
/// Size of a member, larger than the caches of a CPU.
const MEMBER_SIZE: Sectors = Sectors(96 << 11);
const CHUNK: Sectors = Sectors(128);
/// Number of bytes that the baseline computes at a time.
const PIECE: usize = 64 << 10;
/// Least acceptable ratio of a rebuild's rate to the rate of the minimal work, which is limited by
/// one core's bandwidth for copies or parity.
const MARK: f64 = 0.9;

/// Number of rows that [`measure`] fills.
pub(crate) const ROWS: usize = CASES.len();

/// Fills a row for each level.
///
/// # Errors
/// An array cannot be created, or does not complete its rebuild.
pub(crate) fn measure(rounds: u32, sheet: &mut Sheet) -> Result<(), BenchError> {
    for (level, members) in CASES {
        let case = format!("rebuild of {level} of {members} in memory");
        sheet.now(&case);
        let array = InMemory::new(level, members)?;
        let mut least = Least::new(level, members);
        // The first rebuild allocates all pages of memory.
        array.rebuild()?;
        let (mut ours, mut other) = (|| array.rebuild(), || Ok(least.make()));
        let figures = in_turns(rounds, &mut [&mut ours, &mut other])?;
        let name = if level.has_parity() { "parity" } else { "copy" };
        let row = SheetRow::faster(case, "GB/s", &figures[0], Some((name, &figures[1])));
        sheet.push(row.mark(MARK));
    }
    Ok(())
}

/// An array with an empty last slot and a spare.
struct InMemory {
    members: Vec<OpenMember>,
    /// Superblock of each member, with its byte offset on the member.
    superblocks: Vec<(u64, Vec<u8>)>,
}

impl InMemory {
    fn new(level: Level, count: usize) -> Result<Self, BenchError> {
        let mut array = NewArray::in_sync(level, count, MEMBER_SIZE);
        array.chunk = level.is_striped().then_some(CHUNK);
        array.spares.extend(array.slots.last_mut().and_then(Option::take));
        let superblocks = array.plan().map_err(BenchError::failed)?;
        let superblocks = superblocks.iter().map(|superblock| {
            let place = superblock.minor.position(MEMBER_SIZE).map_or(0, |sector| sector.bytes().0);
            (place, superblock.encode().to_vec())
        });
        let spec = MemberSpec::parse(&format!("ram:{}", MEMBER_SIZE.bytes().0));
        let specs = vec![spec.map_err(BenchError::failed)?; count];
        let members = OpenOptions::new(Access::ReadWrite).open_all(&specs, MemberIndex(0));
        let members = members.map_err(BenchError::failed)?;
        let zeroes = vec![0; 1 << 20];
        for member in &members {
            for at in (0..MEMBER_SIZE.bytes().0).step_by(zeroes.len()) {
                write(member, &zeroes, at)?;
            }
        }
        Ok(Self { members, superblocks: superblocks.collect() })
    }

    /// Rebuilds the last member from the start. Returns the GB rebuilt per second of CPU time.
    fn rebuild(&self) -> Result<f64, BenchError> {
        for (member, (place, bytes)) in self.members.iter().zip(&self.superblocks) {
            write(member, bytes, *place)?;
        }
        let (mut driver, bytes) = self.driver()?;
        let (begin, cpu) = (Instant::now(), thread_cpu());
        loop {
            driver.tick();
            driver.wake();
            driver.settle();
            while driver.event().is_some() {}
            if driver.busy() {
                continue;
            }
            let snapshot = driver.snapshot().ok_or_else(|| BenchError::failed("a panic"))?;
            let volume = &snapshot.volumes[0];
            if volume.degraded == 0 && volume.sync_action == SyncAction::Idle {
                break;
            }
            if begin.elapsed() > PATIENCE {
                let still = format!("the rebuild stands still: {:?}", volume.sync_completed);
                return Err(BenchError::failed(still));
            }
        }
        Ok(bytes as f64 / 1e9 / (thread_cpu() - cpu).as_secs_f64())
    }

    /// A driver of the array, and the number of bytes of array data on a member.
    fn driver(&self) -> Result<(Driver, u64), BenchError> {
        let members: Vec<OpenMember> =
            self.members.iter().filter_map(OpenMember::share_memory).collect();
        let candidates: Vec<_> = members.iter().map(read_metadata).collect();
        let options = Options { run: true, ..Options::default() };
        let assembly = assemble(&candidates, &options)
            .map_err(|refused| BenchError::failed(format!("{refused:?}")))?;
        let bytes = assembly.layout.member_size().bytes().0;
        let config = Config::for_volume(assembly, Knobs::default());
        let Config { cache_frames, client_frames, .. } = config;
        let parts = DriverParts {
            core: Box::new(Engine::new(config, Time(0)).map_err(BenchError::failed)?),
            slab: Slab::new(1 + cache_frames + client_frames).map_err(BenchError::failed)?,
            pool: Pool::new(1 + cache_frames, client_frames).with_floors(1),
            ring: Box::new(NoRing::new().map_err(BenchError::failed)?),
            members,
        };
        Ok((Driver::new(parts).map_err(BenchError::failed)?, bytes))
    }
}

fn write(member: &OpenMember, bytes: &[u8], at: u64) -> Result<(), BenchError> {
    let written = rustix::io::pwrite(member, bytes, at).map_err(BenchError::failed)?;
    if written < bytes.len() {
        return Err(BenchError::failed(format!("memory: {written} of {} bytes", bytes.len())));
    }
    Ok(())
}

/// Minimal work of a rebuild, as the baseline: the bytes of a member are computed from those of the
/// other members in memory.
struct Least {
    level: Level,
    parity: Parity,
    sources: Vec<Vec<u8>>,
    /// Content of the rebuilt member. For RAID 6 also the other parity strip of each stripe, which
    /// a rebuild computes in order to compare it.
    made: Vec<Vec<u8>>,
}

impl Least {
    fn new(level: Level, members: usize) -> Self {
        let len = usize::try_from(MEMBER_SIZE.bytes().0).expect("a member fits into memory");
        let made = level.parity_count().max(1) as usize;
        let filled = |count: usize| (0..count).map(|_| vec![1; len]).collect();
        let parity = Parity::detect();
        Self { level, parity, sources: filled(members - made), made: filled(made) }
    }

    /// Computes the content of the rebuilt member once. Returns the GB computed per second of CPU
    /// time.
    fn make(&mut self) -> f64 {
        let (cpu, len) = (thread_cpu(), self.sources[0].len());
        for at in (0..len).step_by(PIECE) {
            let range = at..(at + PIECE).min(len);
            let sources = self.sources.iter().map(|source| &source[range.clone()]);
            match &mut self.made[..] {
                [p, q] => {
                    let data: Vec<(u8, &[u8])> = (0..).zip(sources).collect();
                    self.parity.pq(&data, &mut p[range.clone()], &mut q[range.clone()]);
                }
                [copy] if self.level.has_copies() => {
                    sources.for_each(|source| copy[range.clone()].copy_from_slice(source));
                }
                made => {
                    let sources: Vec<&[u8]> = sources.collect();
                    self.parity.xor(&sources, &mut made[0][range.clone()]);
                }
            }
        }
        black_box(&self.made);
        len as f64 / 1e9 / (thread_cpu() - cpu).as_secs_f64()
    }
}

/// Time limit of a rebuild, which only a rebuild that is stuck reaches.
const PATIENCE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rebuild_gets_to_its_end() {
        let array = InMemory::new(Level::Raid5, 4).unwrap();
        assert!(array.rebuild().unwrap() > 0.0);
        assert!(array.rebuild().unwrap() > 0.0, "and again, from the start");
        assert!(Least::new(Level::Raid6, 4).make() > 0.0);
    }
}
