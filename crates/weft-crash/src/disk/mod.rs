//! Contents of a simulated member: stable media, a volatile cache, outstanding requests, faults.
//!
//! A request begins with [`Disk::submit`], which copies the payload of a write, and ends with
//! [`Disk::complete`], which returns the result. The driver chooses when and in which order
//! requests complete. Until a write completes, any part of it may reach the media in a power cut.
//!
//! - A write is stored in the cache when it completes, or on the media with FUA.
//! - A flush makes all writes durable that had completed when the flush was submitted.
//! - A metadata write flushes first and is durable when it completes (`PREFLUSH | FUA`).
//! - A disk without a volatile cache stores every write on the media.
//! - A logical block is atomic; a longer write is not, except for the superblocks of a disk with
//!   [`Disk::whole_superblocks`].
//!
//! A sector of payload has as many bytes as [`PayloadMode`] says, every other sector has 512.

mod media;
mod power_cut;
mod volatile_cache;

use std::collections::BTreeMap;
use std::ops::Range;

use weft_engine::{Fault, Token};
use weft_units::rng::Rng;
use weft_units::{SECTOR_BYTES, Sectors};

use crate::faults::{Faults, Planned};
use crate::payload::{NeedsPayload, PayloadMode};
use crate::text_digest::TextDigest;
use media::{Media, PAGE_SECTORS};
pub use volatile_cache::{Sector, Version, VolatileCache};

/// A simulated disk, as the backing device of a member.
#[derive(Clone, Debug)]
pub struct Disk {
    size: Sectors,
    logical_block: u32,
    /// Sectors that hold payload, and the representation of payload. All other sectors have 512
    /// bytes.
    payload: (Range<u64>, PayloadMode),
    stable: Media,
    cache: VolatileCache,
    outstanding: BTreeMap<Token, Outstanding>,
    /// Number of completed writes.
    sequence: u64,
    /// Number of operations submitted so far, by which [`Faults::schedule`] plans faults.
    operations: u64,
    /// Random numbers that choose the part of a failed write that is stored.
    chance: Rng,
    /// Present and planned faults of this disk.
    pub faults: Faults,
    /// Whether the disk has no volatile cache, so that every write is durable when it completes.
    pub write_through: bool,
    /// Whether a power cut stores an outstanding superblock as a whole or not at all, however many
    /// logical blocks it has.
    pub whole_superblocks: bool,
    /// Whether writes are refused and counted, to check that an array started read-only writes
    /// nothing.
    pub read_only: bool,
    /// Counters of requests and sectors.
    pub stats: Stats,
}

/// A request to a disk, with its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskOp {
    /// Makes all writes durable that completed before the flush was submitted.
    Flush,
    /// Reads `count` sectors from sector `at` on.
    Read {
        /// First sector, counted from the start of the disk.
        at: u64,
        /// Number of sectors.
        count: u64,
    },
    /// Writes `count` sectors from sector `at` on.
    Write {
        /// First sector, counted from the start of the disk.
        at: u64,
        /// Number of sectors.
        count: u64,
        /// Content of the sectors, in the representation that [`crate::payload`] describes.
        bytes: Vec<u8>,
        /// Whether the data is durable when the write completes.
        fua: bool,
        /// Whether the write flushes first: all writes that completed before its submission become
        /// durable.
        preflush: bool,
    },
}

/// Counters of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Read requests that succeeded.
    pub reads: u64,
    /// Write requests that succeeded.
    pub writes: u64,
    /// Flush requests that succeeded.
    pub flushes: u64,
    /// Sectors read.
    pub sectors_read: u64,
    /// Sectors written.
    pub sectors_written: u64,
    /// Requests that failed with any error, and requests that were aborted.
    pub failed: u64,
    /// Writes that were submitted while the disk was read-only.
    pub forbidden_writes: u64,
    /// Requests that failed with an I/O error, by kind.
    pub io_errors: IoErrors,
}

/// Requests that failed with an I/O error, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoErrors {
    /// Flushes that failed.
    pub flushes: u64,
    /// Writes of data with FUA, or to a disk without a volatile cache, that failed.
    pub fua_writes: u64,
    /// Reads that failed.
    pub reads: u64,
    /// Metadata writes that failed.
    pub superblocks: u64,
    /// Writes of data without FUA, to a disk with a volatile cache, that failed.
    pub writes: u64,
    /// Failed or aborted writes that stored at least one sector because of [`Faults::tears`].
    pub landed: u64,
}

sums!(IoErrors: flushes, fua_writes, reads, superblocks, writes, landed);

#[derive(Clone, Debug)]
struct Outstanding {
    op: DiskOp,
    /// Value of `Disk::sequence` at submission. A flush, or the flush of a metadata write, covers
    /// writes with smaller numbers.
    before: u64,
    number: u64,
}

impl Disk {
    /// A disk full of zeros, with a logical block size in bytes.
    #[must_use]
    pub fn new(size: Sectors, logical_block: u32) -> Self {
        assert!(logical_block.is_power_of_two() && (512..=4096).contains(&logical_block));
        Self {
            size,
            logical_block,
            payload: (0..0, PayloadMode::Bytes),
            stable: Media::default(),
            cache: VolatileCache::default(),
            outstanding: BTreeMap::new(),
            sequence: 0,
            operations: 0,
            chance: Rng::new(0),
            faults: Faults::default(),
            write_through: false,
            whole_superblocks: false,
            read_only: false,
            stats: Stats::default(),
        }
    }

    /// Sets the sectors that hold payload, and the representation of payload.
    ///
    /// # Panics
    /// Panics if the sectors do not fill whole pages, or if anything was written already.
    #[must_use]
    pub fn carrying(mut self, sectors: Range<u64>, mode: PayloadMode) -> Self {
        let whole = |sector: u64| sector.is_multiple_of(PAGE_SECTORS);
        assert!(whole(sectors.start) && whole(sectors.end), "{sectors:?} is not whole pages");
        assert!(self.stable.pages.is_empty() && self.cache.is_empty());
        self.payload = (sectors, mode);
        self
    }

    /// Sets the seed that chooses the part of a failed write that is stored ([`Faults::tears`]).
    #[must_use]
    pub fn failing_by_chance(mut self, seed: u64) -> Self {
        self.chance = Rng::new(seed ^ 0xfa11);
        self
    }

    /// Number of bytes that represent a sector.
    #[must_use]
    pub fn sector_bytes(&self, sector: u64) -> usize {
        match &self.payload {
            (sectors, mode) if sectors.contains(&sector) => mode.sector_bytes(),
            _ => SECTOR_BYTES as usize,
        }
    }

    /// Current size; a fault may have made the disk shorter.
    #[must_use]
    pub fn size(&self) -> Sectors {
        Sectors(self.faults.ends_at.unwrap_or(self.size.0).min(self.size.0))
    }

    /// Original size, including sectors that were cut off.
    #[must_use]
    pub fn whole_size(&self) -> Sectors {
        self.size
    }

    /// Logical block size in bytes, the unit that is written as a whole or not at all.
    #[must_use]
    pub fn logical_block(&self) -> u32 {
        self.logical_block
    }

    /// Submits a request. Until [`Self::complete`] or [`Self::abort`], a power cut or process crash
    /// may store any part of a write.
    pub fn submit(&mut self, token: Token, mut op: DiskOp) {
        if let DiskOp::Read { at, count } = op {
            assert!(count > 0 && at + count <= self.size.0, "read at {at}+{count} is outside");
        }
        if let DiskOp::Write { at, count, ref bytes, ref mut fua, .. } = op {
            *fua |= self.write_through;
            let block = u64::from(self.logical_block);
            assert!(count > 0 && at + count <= self.size.0, "write at {at}+{count} is outside");
            let len = self.sector_bytes(at);
            assert_eq!(len, self.sector_bytes(at + count - 1), "write at {at}+{count}");
            assert_eq!(bytes.len(), len * count as usize, "write at {at}+{count}");
            assert!((count * SECTOR_BYTES).is_multiple_of(block), "write of {count} sectors");
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

    /// Completes a request. A successful read returns its bytes.
    ///
    /// # Errors
    /// The fault that the disk has or that is planned for this operation.
    ///
    /// # Panics
    /// Panics if the token is not outstanding.
    pub fn complete(&mut self, token: Token) -> Result<Vec<u8>, Fault> {
        let Outstanding { op, before, number } =
            self.outstanding.remove(&token).expect("the token is outstanding");
        let kind: fn(&mut IoErrors) -> &mut u64 = match op {
            DiskOp::Flush => |errors| &mut errors.flushes,
            DiskOp::Read { .. } => |errors| &mut errors.reads,
            DiskOp::Write { preflush: true, .. } => |errors| &mut errors.superblocks,
            DiskOp::Write { fua: true, .. } => |errors| &mut errors.fua_writes,
            DiskOp::Write { .. } => |errors| &mut errors.writes,
        };
        let result = self.perform(op, before, number);
        self.stats.failed += u64::from(result.is_err());
        if result == Err(Fault::Io) {
            *kind(&mut self.stats.io_errors) += 1;
        }
        result
    }

    /// Aborts a request. An aborted write is stored like a failed one: any part of it if
    /// [`Faults::tears`] is set for the disk, otherwise nothing.
    pub fn abort(&mut self, token: Token) {
        self.stats.failed += 1;
        let entry = self.outstanding.remove(&token);
        if let Some(Outstanding { op, before, .. }) = entry {
            self.leave(op, before);
        }
    }

    /// Stores the part of a failed write that reaches the media, if [`Faults::tears`] is set for
    /// the disk.
    fn leave(&mut self, op: DiskOp, before: u64) {
        let DiskOp::Write { at, count, bytes, fua, preflush } = op else { return };
        if !self.faults.tears || self.faults.gone || self.read_only {
            return;
        }
        // A metadata write starts with its flush.
        if preflush {
            if self.faults.flush_error || self.chance.percent(50) {
                return;
            }
            if !self.faults.lying_flush {
                self.settle(before);
            }
        }
        let atom = u64::from(self.logical_block) / SECTOR_BYTES;
        let atoms = count.div_ceil(atom);
        let beginning = self.chance.below(atoms + 1);
        let how = self.chance.below(4);
        let durable = fua && !self.faults.lying_flush;
        let durable = durable && (self.write_through || self.chance.percent(50));
        let len = self.sector_bytes(at);
        let mut landed = false;
        for number in 0..atoms {
            let keep = match how {
                0 => false,
                1 => number < beginning,
                2 => self.chance.percent(50),
                _ => true,
            };
            let sectors = at + number * atom..at + count.min((number + 1) * atom);
            let there = sectors.end <= self.size().0;
            let bad = Faults::hits(&self.faults.bad_writes, sectors.start, atom).is_some();
            if !keep || bad || !there {
                continue;
            }
            landed = true;
            for sector in sectors {
                let content = nth(&bytes, sector - at, len);
                if durable {
                    self.cache.forget(sector);
                    self.harden(sector, content);
                } else {
                    self.cache.push(sector, self.sequence, [content].into_iter());
                }
            }
        }
        self.sequence += 1;
        self.stats.io_errors.landed += u64::from(landed);
    }

    /// Whether outstanding requests of the disk may complete now: not while it stalls, unless it is
    /// gone.
    #[must_use]
    pub fn can_complete(&self) -> bool {
        !self.faults.stalled || self.faults.gone
    }

    /// Number of operations submitted so far.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Content of the `count` sectors from `at` on that reads would return if they had no errors,
    /// in the representation of the sectors.
    #[must_use]
    pub fn peek(&self, at: u64, count: u64) -> Vec<u8> {
        let mut bytes = self.peek_stable(at, count);
        let len = self.sector_bytes(at);
        for (sector, content) in self.cache.newest_of(at, count) {
            bytes[(sector - at) as usize * len..][..len].copy_from_slice(content);
        }
        bytes
    }

    /// Content of the `count` sectors from `at` on that survives the worst power cut, in the
    /// representation of the sectors.
    #[must_use]
    pub fn peek_stable(&self, at: u64, count: u64) -> Vec<u8> {
        let len = self.sector_bytes(at);
        debug_assert_eq!(len, self.sector_bytes(at + count - 1), "{at}+{count} is of two kinds");
        let mut bytes = Vec::with_capacity(len * count as usize);
        let (mut sector, end) = (at, at + count);
        while sector < end {
            let stop = end.min((sector / PAGE_SECTORS + 1) * PAGE_SECTORS);
            match self.stable.get(sector, stop, len) {
                Some(contents) => bytes.extend_from_slice(contents),
                None => bytes.resize(bytes.len() + (stop - sector) as usize * len, 0),
            }
            sector = stop;
        }
        bytes
    }

    /// Whether a power cut can change the content of any of the `count` sectors from `at` on,
    /// because the cache has a version that differs from the durable content, or that has no
    /// payload to compare. A rewrite of an unreadable block does not count, because it has the
    /// durable content.
    #[must_use]
    pub fn can_lose(&self, at: u64, count: u64) -> bool {
        self.cache.versions_of(at, count).any(|(sector, versions)| {
            let stable = self.peek_stable(sector, 1);
            versions.iter().any(|it| it.bytes.is_empty() || it.bytes[..] != stable[..])
        })
    }

    /// Content of the `count` sectors from `at` on as a search for metadata reads it: 512 bytes of
    /// every sector. A shorter representation of payload is repeated to fill the sector.
    #[must_use]
    pub fn peek_whole(&self, at: u64, count: u64) -> Vec<u8> {
        let mut bytes = vec![0; (count * SECTOR_BYTES) as usize];
        for (sector, into) in (at..at + count).zip(bytes.chunks_exact_mut(512)) {
            let content = self.peek(sector, 1);
            if !content.is_empty() {
                into.chunks_exact_mut(content.len())
                    .for_each(|into| into.copy_from_slice(&content));
            }
        }
        bytes
    }

    /// Reads 512 bytes of every sector, as opening a device does to search for metadata.
    ///
    /// # Errors
    /// A sector cannot be read or lies beyond the end, or the disk is gone.
    pub fn read_whole(&self, at: u64, count: u64) -> Result<Vec<u8>, Fault> {
        if self.faults.gone || at + count > self.size().0 {
            return Err(Fault::Gone);
        }
        if self.is_readable(at, count) { Ok(self.peek_whole(at, count)) } else { Err(Fault::Io) }
    }

    /// Whether all the sectors can be read. Content that was written over a bad sector is read from
    /// the cache until it is durable.
    pub(crate) fn is_readable(&self, at: u64, count: u64) -> bool {
        let mut bad = self.faults.bad_reads.range(at..at + count);
        bad.all(|sector| self.cache.newest(*sector).is_some())
            && Faults::hits(&self.faults.dead_reads, at, count).is_none()
    }

    /// Changes the content of the sectors from `at` on durably, without a request.
    pub fn poke(&mut self, at: u64, bytes: &[u8]) {
        let len = self.sector_bytes(at);
        for (sector, from) in (at..).zip(bytes.chunks_exact(len.max(1))) {
            self.cache.forget(sector);
            self.stable.put(sector, from);
        }
    }

    /// Flips a bit durably (bit rot).
    ///
    /// # Errors
    /// There is no payload at this sector.
    pub fn flip_bit(&mut self, sector: u64, bit: u32) -> Result<(), NeedsPayload> {
        let mut bytes = self.peek(sector, 1);
        if bytes.is_empty() {
            return Err(NeedsPayload::BitRot);
        }
        let place = bit as usize / 8 % bytes.len();
        bytes[place] ^= 1 << (bit % 8);
        self.poke(sector, &bytes);
        Ok(())
    }

    /// The volatile cache: content that is not durable.
    #[must_use]
    pub fn volatile(&self) -> &VolatileCache {
        &self.cache
    }

    /// Outstanding writes: the first sector and the number of sectors of each.
    pub fn outstanding_writes(&self) -> impl Iterator<Item = (u64, u64)> {
        self.outstanding.values().filter_map(|entry| match &entry.op {
            DiskOp::Write { at, count, .. } => Some((*at, *count)),
            DiskOp::Flush | DiskOp::Read { .. } => None,
        })
    }

    /// Payload of an outstanding write; `None` for other requests.
    pub(crate) fn payload_of(&self, token: Token) -> Option<&[u8]> {
        match &self.outstanding.get(&token)?.op {
            DiskOp::Write { bytes, .. } => Some(bytes),
            DiskOp::Flush | DiskOp::Read { .. } => None,
        }
    }

    /// First sector of each page that was ever made durable.
    pub fn pages(&self) -> impl Iterator<Item = u64> {
        self.stable.pages.keys().map(|page| page * PAGE_SECTORS)
    }

    /// Hashes the state that a power cut would find: content as bytes, everything else as text.
    pub(crate) fn hash_into(&self, text: &mut TextDigest) {
        for (number, page) in &self.stable.pages {
            text.bytes(&number.to_le_bytes());
            text.bytes(page);
        }
        for (sector, versions) in self.cache.iter() {
            for version in versions {
                text.bytes(&sector.to_le_bytes());
                text.bytes(&version.sequence.to_le_bytes());
                text.bytes(&version.bytes);
            }
        }
        for Outstanding { op, before, number } in self.outstanding.values() {
            match op {
                DiskOp::Write { at, count, bytes, fua, preflush } => {
                    text.debug(&(at, count, fua, preflush, before, number));
                    text.bytes(bytes);
                }
                DiskOp::Flush | DiskOp::Read { .. } => text.debug(&(op, before, number)),
            }
        }
        let Self { size, logical_block, sequence, operations, faults, read_only, .. } = self;
        text.debug(&(size, logical_block, sequence, operations, faults, read_only));
    }

    /// Makes writes with a sequence number below `before` durable. Returns the sectors that they
    /// wrote.
    fn settle(&mut self, before: u64) -> Vec<u64> {
        let durable = self.cache.settle(before);
        self.stable.put_all(durable.iter().map(|(sector, bytes)| (*sector, &bytes[..])));
        for (sector, _) in &durable {
            self.faults.bad_reads.remove(sector);
        }
        durable.into_iter().map(|(sector, _)| sector).collect()
    }

    /// Stores content of a sector on the media. A read error that lasts until the sector is written
    /// ends.
    fn harden(&mut self, sector: u64, bytes: &[u8]) {
        self.stable.put(sector, bytes);
        self.faults.bad_reads.remove(&sector);
    }

    fn perform(&mut self, op: DiskOp, before: u64, number: u64) -> Result<Vec<u8>, Fault> {
        match self.faults.schedule.get(&number).copied() {
            Some(Planned::Once(fault)) => {
                self.leave(op, before);
                return Err(fault);
            }
            Some(Planned::Gone) => self.faults.gone = true,
            Some(Planned::Silent) | None => {}
        }
        let beyond = match op {
            DiskOp::Flush => false,
            DiskOp::Read { at, count } | DiskOp::Write { at, count, .. } => {
                at + count > self.size().0
            }
        };
        if self.faults.gone || beyond {
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
                if !self.is_readable(at, count) {
                    return Err(Fault::Io);
                }
                self.stats.reads += 1;
                self.stats.sectors_read += count;
                Ok(self.peek(at, count))
            }
            DiskOp::Write { at, count, bytes, fua, preflush } => {
                if self.read_only {
                    return Err(Fault::Io);
                }
                if self.faults.no_space {
                    self.leave(DiskOp::Write { at, count, bytes, fua, preflush }, before);
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
                // The sectors before the bad one are written, the rest is not.
                let bad = Faults::hits(&self.faults.bad_writes, at, count);
                if bad.is_some() && self.faults.tears {
                    self.leave(DiskOp::Write { at, count, bytes, fua, preflush }, before);
                    return Err(Fault::Io);
                }
                let good = bad.map_or(count, |bad| bad - at);
                let len = self.sector_bytes(at);
                let contents = (0..good as usize).map(|index| nth(&bytes, index as u64, len));
                if fua && !self.faults.lying_flush {
                    for (sector, from) in (at..).zip(contents) {
                        self.cache.forget(sector);
                        self.harden(sector, from);
                    }
                } else {
                    self.cache.push(at, self.sequence, contents);
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

/// Content of the sector at `index` in a buffer of several sectors, each of `len` bytes.
fn nth(bytes: &[u8], index: u64, len: usize) -> &[u8] {
    &bytes[index as usize * len..][..len]
}

#[cfg(test)]
mod tests;
