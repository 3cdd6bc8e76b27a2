//! What does a member do with what it is asked?
//!
//! Stable media, a volatile cache in front of it and a list of what is outstanding. A request begins
//! with [`Disk::submit`], which copies the payload of a write, and ends with [`Disk::complete`], which
//! says how it went; whoever drives the disk chooses when and in which order. In between nothing is
//! decided: a power cut may find any part of an outstanding write on the media.
//!
//! - A write lands in the cache at its completion, or on the media with FUA.
//! - A flush makes durable what had completed when it was submitted.
//! - A metadata write does both (`PREFLUSH | FUA`).
//! - A logical block is atomic; a longer write is not.

mod volatile_cache;

use std::collections::BTreeMap;
use std::sync::Arc;

use weft_engine::{Fault, Token};
use weft_units::{SECTOR_BYTES, Sectors};

use crate::crash::{CutMode, CutReport};
use crate::faults::{Faults, Planned};
use crate::rng::Rng;
pub use volatile_cache::{Sector, Version, VolatileCache};

/// A simulated member.
#[derive(Clone, Debug)]
pub struct Disk {
    size: Sectors,
    logical_block: u32,
    stable: Media,
    cache: VolatileCache,
    outstanding: BTreeMap<Token, Outstanding>,
    /// Counts completed writes.
    sequence: u64,
    /// Counts operations, for the schedule of faults.
    operations: u64,
    /// How it misbehaves.
    pub faults: Faults,
    /// Writes are refused and counted: for assemblies that promise to write nothing.
    pub read_only: bool,
    /// What it did.
    pub stats: Stats,
}

/// A request to a member, with its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskOp {
    /// Make durable what has completed.
    Flush,
    /// Read.
    Read {
        /// First sector.
        at: u64,
        /// How many.
        count: u64,
    },
    /// Write.
    Write {
        /// First sector.
        at: u64,
        /// What.
        bytes: Vec<u8>,
        /// Durable at completion.
        fua: bool,
        /// Everything that completed before is durable first.
        preflush: bool,
    },
}

/// Counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Read requests that went well.
    pub reads: u64,
    /// Write requests that went well.
    pub writes: u64,
    /// Flush requests that went well.
    pub flushes: u64,
    /// Sectors read.
    pub sectors_read: u64,
    /// Sectors written.
    pub sectors_written: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Writes that came though the member is to be read only.
    pub forbidden_writes: u64,
}

#[derive(Clone, Debug)]
struct Outstanding {
    op: DiskOp,
    /// Writes with a lower sequence had completed when it was submitted.
    before: u64,
    number: u64,
}

const PAGE_SECTORS: u64 = 8;

/// Durable content: sparse, zero where nothing was written, cheap to copy.
#[derive(Clone, Debug, Default)]
struct Media {
    pages: BTreeMap<u64, Arc<[u8; 4096]>>,
}

impl Media {
    fn get(&self, sector: u64) -> Option<&[u8]> {
        let start = (sector % PAGE_SECTORS * SECTOR_BYTES) as usize;
        self.pages.get(&(sector / PAGE_SECTORS)).map(|page| &page[start..start + 512])
    }

    fn put(&mut self, sector: u64, bytes: &[u8]) {
        assert_eq!(bytes.len(), 512);
        let zero = || Arc::new([0; 4096]);
        let page = self.pages.entry(sector / PAGE_SECTORS).or_insert_with(zero);
        let start = (sector % PAGE_SECTORS * SECTOR_BYTES) as usize;
        Arc::make_mut(page)[start..start + 512].copy_from_slice(bytes);
    }
}

impl Disk {
    /// A member full of zeros.
    #[must_use]
    pub fn new(size: Sectors, logical_block: u32) -> Self {
        assert!(logical_block.is_power_of_two() && (512..=4096).contains(&logical_block));
        Self {
            size,
            logical_block,
            stable: Media::default(),
            cache: VolatileCache::default(),
            outstanding: BTreeMap::new(),
            sequence: 0,
            operations: 0,
            faults: Faults::none(),
            read_only: false,
            stats: Stats::default(),
        }
    }

    /// All of it.
    #[must_use]
    pub fn size(&self) -> Sectors {
        self.size
    }

    /// Bytes that are written whole or not at all.
    #[must_use]
    pub fn logical_block(&self) -> u32 {
        self.logical_block
    }

    /// The same content without a cache, on which every write is refused and counted.
    #[must_use]
    pub fn read_only_twin(&self) -> Self {
        let mut twin = Self::new(self.size, self.logical_block);
        twin.stable = self.stable.clone();
        for (sector, versions) in self.cache.iter() {
            if let Some(last) = versions.last() {
                twin.stable.put(sector, &last.bytes[..]);
            }
        }
        twin.read_only = true;
        twin
    }

    /// Takes a request in.
    pub fn submit(&mut self, token: Token, op: DiskOp) {
        if let DiskOp::Read { at, count } = op {
            assert!(count > 0 && at + count <= self.size.0, "read at {at}+{count} is outside");
        }
        if let DiskOp::Write { at, ref bytes, .. } = op {
            let count = bytes.len() as u64 / SECTOR_BYTES;
            let block = u64::from(self.logical_block);
            assert!(count > 0 && at + count <= self.size.0, "write at {at}+{count} is outside");
            assert!((bytes.len() as u64).is_multiple_of(block), "write of {} bytes", bytes.len());
            assert!((at * SECTOR_BYTES).is_multiple_of(block), "write at sector {at}");
            if self.read_only {
                self.stats.forbidden_writes += 1;
            }
        }
        let number = self.operations;
        self.operations += 1;
        if self.faults.schedule.get(&number) == Some(&Planned::Gone) {
            self.faults.gone = true;
        }
        if self.faults.schedule.get(&number) == Some(&Planned::Silent) {
            self.faults.stalled = true;
        }
        let entry = Outstanding { op, before: self.sequence, number };
        let previous = self.outstanding.insert(token, entry);
        assert!(previous.is_none(), "{token:?} is used twice");
    }

    /// Ends a request. A read that went well returns its bytes.
    ///
    /// # Errors
    /// As the faults say.
    ///
    /// # Panics
    /// The token is not outstanding.
    pub fn complete(&mut self, token: Token) -> Result<Vec<u8>, Fault> {
        let Outstanding { op, before, number } =
            self.outstanding.remove(&token).expect("only what is outstanding completes");
        let result = self.perform(op, before, number);
        self.stats.failed += u64::from(result.is_err());
        result
    }

    /// Ends a request as given up on: an outstanding write may or may not have happened; here it
    /// has not.
    pub fn abort(&mut self, token: Token) {
        self.outstanding.remove(&token);
        self.stats.failed += 1;
    }

    /// Whether a request may complete now.
    #[must_use]
    pub fn can_complete(&self) -> bool {
        !self.faults.stalled || self.faults.gone
    }

    /// Operations submitted so far.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// What a read would return, errors aside.
    #[must_use]
    pub fn peek(&self, at: u64, count: u64) -> Vec<u8> {
        let mut bytes = vec![0; (count * SECTOR_BYTES) as usize];
        for (sector, into) in (at..at + count).zip(bytes.chunks_exact_mut(512)) {
            if let Some(newest) = self.cache.newest(sector) {
                into.copy_from_slice(newest);
            } else if let Some(stable) = self.stable.get(sector) {
                into.copy_from_slice(stable);
            }
        }
        bytes
    }

    /// What would be there after a power cut that loses everything it may.
    #[must_use]
    pub fn peek_stable(&self, at: u64, count: u64) -> Vec<u8> {
        let mut bytes = vec![0; (count * SECTOR_BYTES) as usize];
        for (sector, into) in (at..at + count).zip(bytes.chunks_exact_mut(512)) {
            if let Some(stable) = self.stable.get(sector) {
                into.copy_from_slice(stable);
            }
        }
        bytes
    }

    /// Writes behind everybody's back.
    pub fn poke(&mut self, at: u64, bytes: &[u8]) {
        for (sector, from) in (at..).zip(bytes.chunks_exact(512)) {
            self.cache.forget(sector);
            self.stable.put(sector, from);
        }
    }

    /// Bit rot: turns one bit over, durably.
    pub fn flip_bit(&mut self, sector: u64, bit: u32) {
        let mut bytes = self.peek(sector, 1);
        bytes[bit as usize / 8 % 512] ^= 1 << (bit % 8);
        self.poke(sector, &bytes);
    }

    /// What is not durable.
    #[must_use]
    pub fn volatile(&self) -> &VolatileCache {
        &self.cache
    }

    /// Sector ranges of outstanding writes.
    pub fn outstanding_writes(&self) -> impl Iterator<Item = (u64, u64)> {
        self.outstanding.values().filter_map(|entry| match &entry.op {
            DiskOp::Write { at, bytes, .. } => Some((*at, bytes.len() as u64 / SECTOR_BYTES)),
            DiskOp::Flush | DiskOp::Read { .. } => None,
        })
    }

    /// Every page that was ever made durable, as first sectors.
    pub fn pages(&self) -> impl Iterator<Item = u64> {
        self.stable.pages.keys().map(|page| page * PAGE_SECTORS)
    }

    /// The power goes: what is not durable survives or does not, as `mode` and `rng` choose, and
    /// nothing is outstanding any more.
    pub fn power_cut(&mut self, mode: CutMode, rng: &mut Rng) -> CutReport {
        let atom = u64::from(self.logical_block) / SECTOR_BYTES;
        let mut report = CutReport::default();
        let outstanding = std::mem::take(&mut self.outstanding);
        let mut in_flight = Vec::new();
        for entry in outstanding.into_values() {
            let DiskOp::Write { at, bytes, preflush, .. } = entry.op else { continue };
            if self.faults.gone || self.read_only {
                continue;
            }
            report.metadata_in_flight |= preflush;
            report.writes_in_flight += 1;
            in_flight.push((at, bytes, preflush, entry.before));
        }
        // A metadata write begins with its flush, so none of it is there unless that is done.
        for (_, bytes, preflush, before) in &mut in_flight {
            if *preflush && rng.percent(50) {
                report.settled.extend(self.settle(*before));
            } else if *preflush {
                bytes.clear();
            }
        }
        // Pieces that survive or not as one: (sequence, sector, content of one atom).
        let mut pieces: Vec<(u64, u64, Vec<u8>)> = Vec::new();
        let mut atoms: BTreeMap<(u64, u64), Vec<u8>> = BTreeMap::new();
        for (sector, versions) in self.cache.take() {
            for version in versions {
                let whole = atoms.entry((version.sequence, sector / atom)).or_default();
                whole.extend_from_slice(&version.bytes[..]);
            }
        }
        for ((sequence, number), bytes) in atoms {
            pieces.push((sequence, number * atom, bytes));
        }
        for (order, (at, bytes, _, _)) in in_flight.into_iter().enumerate() {
            let size = (atom * SECTOR_BYTES) as usize;
            for (index, piece) in bytes.chunks(size).enumerate() {
                let sequence = self.sequence + order as u64;
                pieces.push((sequence, at + index as u64 * atom, piece.to_vec()));
            }
        }
        pieces.sort_by_key(|(sequence, sector, _)| (*sequence, *sector));
        let keep_all_before = match mode {
            CutMode::Ordered => rng.index(pieces.len() + 1),
            CutMode::Everything => pieces.len(),
            CutMode::Nothing | CutMode::Subset => 0,
        };
        // Per cut, so that nearly all and nearly none are tried as often as about half.
        let chance = rng.pick(&[10, 50, 50, 90]);
        for (index, (_, sector, bytes)) in pieces.into_iter().enumerate() {
            let keep = index < keep_all_before || mode == CutMode::Subset && rng.percent(chance);
            for (at, from) in (sector..).zip(bytes.chunks_exact(512)) {
                if keep {
                    self.harden(at, from);
                    report.kept.insert(at);
                } else {
                    report.lost.insert(at);
                }
            }
        }
        self.sequence += 1_000_000;
        self.faults.stalled = false;
        report
    }

    /// The process goes and the power stays: completed writes are kept, outstanding ones land or do
    /// not.
    pub fn process_killed(&mut self, rng: &mut Rng) {
        for entry in std::mem::take(&mut self.outstanding).into_values() {
            if rng.percent(50) {
                let _ = self.perform(entry.op, entry.before, entry.number);
            }
        }
    }

    /// Makes durable what completed before. Which sectors.
    fn settle(&mut self, before: u64) -> Vec<u64> {
        let durable = self.cache.settle(before);
        for (sector, bytes) in &durable {
            self.harden(*sector, &bytes[..]);
        }
        durable.into_iter().map(|(sector, _)| sector).collect()
    }

    /// A sector becomes durable, and readable with it.
    fn harden(&mut self, sector: u64, bytes: &[u8]) {
        self.stable.put(sector, bytes);
        self.faults.bad_reads.remove(&sector);
    }

    fn perform(&mut self, op: DiskOp, before: u64, number: u64) -> Result<Vec<u8>, Fault> {
        match self.faults.schedule.get(&number) {
            Some(Planned::Once(fault)) => return Err(*fault),
            Some(Planned::Gone) => self.faults.gone = true,
            Some(Planned::Silent) | None => {}
        }
        if self.faults.gone {
            return Err(Fault::Gone);
        }
        match op {
            DiskOp::Flush => {
                if self.faults.flush_error {
                    return Err(Fault::Io);
                }
                if !self.faults.lying_flush {
                    self.settle(before);
                }
                self.stats.flushes += 1;
                Ok(Vec::new())
            }
            DiskOp::Read { at, count } => {
                // What was written over a bad sector is read from the cache until it is durable.
                let mut bad = self.faults.bad_reads.range(at..at + count);
                if bad.any(|sector| self.cache.newest(*sector).is_none())
                    || Faults::hits(&self.faults.dead_reads, at, count).is_some()
                {
                    return Err(Fault::Io);
                }
                self.stats.reads += 1;
                self.stats.sectors_read += count;
                Ok(self.peek(at, count))
            }
            DiskOp::Write { at, bytes, fua, preflush } => {
                let count = bytes.len() as u64 / SECTOR_BYTES;
                if self.read_only {
                    return Err(Fault::Io);
                }
                if self.faults.no_space {
                    return Err(Fault::NoSpace);
                }
                if preflush {
                    if self.faults.flush_error {
                        return Err(Fault::Io);
                    }
                    if !self.faults.lying_flush {
                        self.settle(before);
                    }
                }
                // What comes before the bad sector is written, the rest is not.
                let bad = Faults::hits(&self.faults.bad_writes, at, count);
                let good = bad.map_or(count, |bad| bad - at);
                for (sector, from) in (at..at + good).zip(bytes.chunks_exact(512)) {
                    if fua && !self.faults.lying_flush {
                        self.cache.forget(sector);
                        self.harden(sector, from);
                    } else {
                        let content = from.try_into().expect("a sector is 512 bytes");
                        let sequence = self.sequence;
                        self.cache.push(sector, Version { sequence, bytes: Box::new(content) });
                    }
                }
                self.sequence += 1;
                if bad.is_some() {
                    return Err(Fault::Io);
                }
                self.stats.writes += 1;
                self.stats.sectors_written += count;
                Ok(Vec::new())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> Disk {
        Disk::new(Sectors(1024), 512)
    }

    fn write(disk: &mut Disk, token: u64, at: u64, byte: u8, count: usize, fua: bool) {
        let bytes = vec![byte; 512 * count];
        disk.submit(Token(token), DiskOp::Write { at, bytes, fua, preflush: false });
    }

    #[test]
    fn a_write_is_visible_when_complete_and_durable_when_flushed() {
        let mut disk = disk();
        write(&mut disk, 1, 8, 1, 2, false);
        assert_eq!(disk.peek(8, 1), [0; 512]);
        disk.complete(Token(1)).unwrap();
        assert_eq!(disk.peek(8, 1), [1; 512]);
        assert_eq!(disk.peek_stable(8, 1), [0; 512]);
        disk.submit(Token(2), DiskOp::Flush);
        write(&mut disk, 3, 9, 3, 1, false);
        disk.complete(Token(3)).unwrap();
        disk.complete(Token(2)).unwrap();
        assert_eq!(disk.peek_stable(8, 1), [1; 512]);
        assert_eq!(disk.peek_stable(9, 1), [1; 512], "the flush began before the write completed");
        assert_eq!(disk.peek(9, 1), [3; 512]);
        write(&mut disk, 4, 9, 4, 1, true);
        disk.complete(Token(4)).unwrap();
        assert_eq!(disk.peek_stable(9, 1), [4; 512]);
        assert!(disk.volatile().is_empty());
    }

    #[test]
    fn a_cut_keeps_any_subset_of_what_is_not_durable_and_all_of_what_is() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..400 {
            let mut disk = disk();
            write(&mut disk, 1, 0, 1, 1, true);
            disk.complete(Token(1)).unwrap();
            write(&mut disk, 2, 1, 2, 2, false);
            disk.complete(Token(2)).unwrap();
            write(&mut disk, 3, 3, 3, 1, false);
            let report = disk.power_cut(CutMode::Subset, &mut Rng::new(seed));
            assert_eq!(report.kept.len() + report.lost.len(), 3);
            assert_eq!(disk.peek(0, 1), [1; 512]);
            seen.insert([1, 2, 3].map(|sector| disk.peek(sector, 1)[0]));
        }
        assert_eq!(seen.len(), 8, "{seen:?}");
    }

    #[test]
    fn an_ordered_cut_keeps_a_beginning() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let mut disk = disk();
            for (token, at) in [(1, 5), (2, 4), (3, 3)] {
                write(&mut disk, token, at, token as u8, 1, false);
                disk.complete(Token(token)).unwrap();
            }
            disk.power_cut(CutMode::Ordered, &mut Rng::new(seed));
            seen.insert([5, 4, 3].map(|sector| disk.peek(sector, 1)[0]));
        }
        assert!(seen.into_iter().eq([[0, 0, 0], [1, 0, 0], [1, 2, 0], [1, 2, 3]]));
    }

    #[test]
    fn metadata_on_the_media_means_that_everything_before_it_is_there_too() {
        let mut both = 0;
        for seed in 0..200 {
            let mut disk = disk();
            write(&mut disk, 1, 100, 1, 4, false);
            disk.complete(Token(1)).unwrap();
            let bytes = vec![9; 512];
            disk.submit(Token(2), DiskOp::Write { at: 8, bytes, fua: true, preflush: true });
            let report = disk.power_cut(CutMode::Subset, &mut Rng::new(seed));
            assert!(report.metadata_in_flight);
            if disk.peek(8, 1)[0] == 9 {
                assert_eq!(disk.peek(100, 4), [1; 2048]);
                both += 1;
            }
        }
        assert!(both > 10, "{both}");
    }

    #[test]
    fn a_logical_block_is_atomic() {
        for seed in 0..100 {
            let mut disk = Disk::new(Sectors(1024), 4096);
            write(&mut disk, 1, 16, 7, 16, false);
            disk.complete(Token(1)).unwrap();
            disk.power_cut(CutMode::Subset, &mut Rng::new(seed));
            for at in [16, 24] {
                let block = disk.peek(at, 8);
                assert!(block.iter().all(|byte| *byte == block[0]));
            }
        }
    }

    #[test]
    fn faults_do_what_they_say() {
        let mut disk = disk();
        disk.faults.bad_reads.insert(9);
        let read = |disk: &mut Disk, token| {
            disk.submit(Token(token), DiskOp::Read { at: 8, count: 2 });
            disk.complete(Token(token))
        };
        assert_eq!(read(&mut disk, 1), Err(Fault::Io));
        write(&mut disk, 2, 9, 1, 1, false);
        disk.complete(Token(2)).unwrap();
        assert!(read(&mut disk, 3).is_ok(), "a written sector can be read again");
        disk.faults.bad_writes.insert(9);
        write(&mut disk, 4, 8, 5, 2, false);
        assert_eq!(disk.complete(Token(4)), Err(Fault::Io));
        assert_eq!((disk.peek(8, 1)[0], disk.peek(9, 1)[0]), (5, 1));
        disk.faults.no_space = true;
        write(&mut disk, 5, 20, 5, 1, false);
        assert_eq!(disk.complete(Token(5)), Err(Fault::NoSpace));
        disk.faults.flush_error = true;
        disk.submit(Token(6), DiskOp::Flush);
        assert_eq!(disk.complete(Token(6)), Err(Fault::Io));
        disk.faults.schedule.insert(disk.operations() + 1, Planned::Gone);
        assert!(read(&mut disk, 7).is_ok());
        assert_eq!(read(&mut disk, 8), Err(Fault::Gone));
        let mut twin = disk.read_only_twin();
        write(&mut twin, 9, 8, 1, 1, false);
        assert_eq!(twin.complete(Token(9)), Err(Fault::Io));
        assert_eq!(twin.stats.forbidden_writes, 1);
    }

    #[test]
    fn a_bit_flips_for_good() {
        let mut disk = disk();
        disk.flip_bit(3, 9);
        assert_eq!(disk.peek_stable(3, 1)[1], 2);
    }
}
