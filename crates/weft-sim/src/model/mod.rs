//! Reference model: for each sector, the versions that a read may return.
//!
//! Per sector the list of everything that was written to it, in the order of issue, which is also
//! the order in which overlapping writes take effect. Two marks move along the list:
//!
//! ```text
//!   versions   v0   v1   v2   v3   v4
//!                   ▲         ▲     ▲
//!                   │         │     └ issued, not acknowledged
//!                   │         └ read floor: acknowledged; a read issued from here on sees v3 or later
//!                   └ durable floor: a flush or FUA covered it; a power cut leaves v1 or later
//! ```
//!
//! A read sees one version between the read floor of its issue and the newest there is: whole, at
//! its own address, invented nowhere (I2). After a power cut it may be any from the durable floor
//! (I1); what the first read finds is all that later ones may find (I3). A write that failed, or
//! whose client left, may be seen, and may go away again where there is no space: once, and not
//! come back (I3).
//!
//! The write hole is predicted, not forgiven: where members disagree after a cut, and only where
//! the sector's own member is missing, a read may be off by what reconstruction from them gives,
//! and by nothing else ([`crate::suspects`]). It is counted, so that a test in which none ever is
//! wrong can be told to be blind.
//!
//! Contents are as long as [`PayloadMode`] says; without payload nothing is kept, and anything may
//! be read.
//!
//! Source   reliability.md §3 and §5 (I1-I3, I7)

mod cell;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use weft_units::{ByteRange, SECTOR_BYTES};

use crate::checker::Violation;
use crate::excuses::Excuses;
use crate::payload::PayloadMode;
use crate::sector_map::SectorMap;
use cell::{Cell, Content, Patch, Version, came_back, collapse, explain};

pub use cell::tag;

/// Names a write; part of every word of its payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteId(pub u32);

/// Content that a write stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// The same byte everywhere.
    Fill(u8),
    /// In every 8-byte word of a whole sector the write's id and the sector's address; in every
    /// byte of a part of one something of both and of the byte's own place.
    Tags,
    /// Nothing but zeros.
    Zeros,
}

/// Versions that every sector may hold.
#[derive(Clone, Debug, Default)]
pub struct Model {
    payload: PayloadMode,
    cells: SectorMap<Cell>,
    /// Writes that are acknowledged and not durable, with the count at their acknowledgement.
    unflushed: VecDeque<(u64, ByteRange)>,
    /// The last acknowledgement that a drain covered.
    drained: u64,
    writes: BTreeMap<WriteId, Issued>,
    writes_issued: u32,
    /// Counts acknowledgements.
    acknowledged: u64,
    reads_outstanding: u32,
    /// Counts reads that returned something.
    reads_done: u64,
    /// Counts when it was seen what sectors may be reconstructed as.
    reconstructed: u64,
}

/// A read's view at its issue: the read floor of each of its sectors, and all acknowledgements.
#[derive(Clone, Debug)]
pub struct ReadMark {
    range: ByteRange,
    floors: Vec<u64>,
    acknowledged: u64,
    /// Reads that had returned.
    reads_done: u64,
    /// Content that a reconstruction is known to have given.
    reconstructed: u64,
}

/// Reason why a content is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// It is what a client wrote.
    Written,
    /// It is made of parts that clients wrote together.
    Mixed,
    /// The same, byte for byte, as there were too many parts to try which of them are there.
    MixedBytes,
    /// The content may have been reconstructed from members that disagreed.
    Reconstructed,
}

/// What was known to be reconstructed by then, for [`Model::settle`].
#[derive(Clone, Copy, Debug)]
pub struct Reconstructed(u64);

/// A flush's view at its receipt: the acknowledgements that it covers.
#[derive(Clone, Copy, Debug)]
pub struct FlushMark(u64);

#[derive(Clone, Debug)]
struct Issued {
    range: ByteRange,
    /// Number of its version in each of its sectors.
    numbers: Vec<u64>,
}

impl ReadMark {
    /// Byte range of the read.
    #[must_use]
    pub fn range(&self) -> ByteRange {
        self.range
    }
}

/// The sectors of a byte range.
fn sectors(range: ByteRange) -> Range<u64> {
    range.start.0 / SECTOR_BYTES..(range.start.0 + range.len.0).div_ceil(SECTOR_BYTES)
}

/// The sectors of a byte range, with offset and length of the part inside each.
pub(crate) fn pieces(range: ByteRange) -> impl Iterator<Item = (u64, usize, usize)> {
    let (start, end) = (range.start.0, range.start.0 + range.len.0);
    sectors(range).map(move |sector| {
        let low = start.max(sector * SECTOR_BYTES);
        let high = end.min((sector + 1) * SECTOR_BYTES);
        (sector, (low % SECTOR_BYTES) as usize, (high - low) as usize)
    })
}

impl Model {
    /// Of a world with so much payload.
    #[must_use]
    pub fn new(payload: PayloadMode) -> Self {
        Self { payload, ..Self::default() }
    }

    /// A write is issued. Returns its name and its bytes.
    pub fn write_issued(&mut self, range: ByteRange, payload: Payload) -> (WriteId, Vec<u8>) {
        self.writes_issued += 1;
        let write = WriteId(self.writes_issued);
        let mode = self.payload;
        if mode == PayloadMode::None {
            return (write, Vec::new());
        }
        let content = match payload {
            Payload::Fill(byte) => Content::Fill(byte),
            Payload::Tags => Content::Tags(write),
            Payload::Zeros => Content::Fill(0),
        };
        let mut bytes = Vec::with_capacity(mode.place(0, range.len.0).len());
        let mut numbers = Vec::new();
        let cells = self.cells.all_of(sectors(range), Cell::new);
        for ((_, offset, len), (sector, cell)) in pieces(range).zip(cells) {
            if len < 512 {
                // Those that overlap happen in order of issue.
                let apart = cell.from(cell.read_floor + 1).any(|(_, version)| {
                    let other = version.patch.as_ref().map_or((0, 512), |p| (p.offset, p.len));
                    !version.failed && (other.0 + other.1 <= offset || offset + len <= other.0)
                });
                cell.mixed |= apart;
            }
            let place = mode.place(offset as u64, (offset + len) as u64);
            let content = match content {
                Content::Tags(write) if len < 512 => Content::Part(write),
                ref other => other.clone(),
            };
            content.write(sector, place.clone(), &mut bytes);
            let version = if len == 512 {
                Version::whole(write, content.clone())
            } else {
                let patch = Patch { offset, len, place, content: content.clone() };
                let contents = cell.patched(cell.versions.len(), sector, &patch, mode);
                let patch = Some(Box::new(patch));
                let whole = Version::whole(write, Content::Fill(0));
                Version { contents, patch, ..whole }
            };
            cell.versions.push_back(version);
            numbers.push(cell.last());
        }
        self.writes.insert(write, Issued { range, numbers });
        (write, bytes)
    }

    /// A write is acknowledged; with FUA it is durable.
    pub fn write_acknowledged(&mut self, write: WriteId, fua: bool) {
        self.acknowledged += 1;
        if self.payload == PayloadMode::None {
            return;
        }
        let issued = self.writes.remove(&write).expect("a write is answered once");
        let prunes = self.reads_outstanding == 0;
        if !fua {
            self.unflushed.push_back((self.acknowledged, issued.range));
        }
        let cells = self.cells.all_of(sectors(issued.range), Cell::new);
        for ((_, cell), number) in cells.zip(issued.numbers) {
            cell.read_floor = cell.read_floor.max(number);
            if let Some(index) = number.checked_sub(cell.first)
                && let Some(version) = cell.versions.get_mut(index as usize)
            {
                version.acknowledged = Some(self.acknowledged);
            }
            // The whole of it was written after everything else.
            if cell.mixed && number == cell.last() && !cell.is_patch(number) {
                (cell.mixed, cell.unmixed_by) = (false, number);
            }
            if fua {
                cell.durable_floor = cell.durable_floor.max(number);
            } else {
                cell.volatile.push((number, self.acknowledged));
            }
            if prunes {
                cell.prune();
            }
        }
    }

    /// A write failed: it may have happened or not, for ever.
    pub fn write_failed(&mut self, write: WriteId) {
        if self.payload == PayloadMode::None {
            return;
        }
        let mode = self.payload;
        let issued = self.writes.remove(&write).expect("a write is answered once");
        let cells = self.cells.all_of(sectors(issued.range), Cell::new);
        for ((sector, cell), number) in cells.zip(issued.numbers) {
            cell.fail(number, sector, mode);
        }
    }

    /// A copy of a mirror is lost while another misses writes that failed for want of space. What
    /// reads saw of such a write may be gone with it; what was acknowledged is on both.
    pub fn copy_lost(&mut self) {
        self.cells.values_mut().for_each(Cell::forget_failed);
    }

    /// The same of one whose client is gone, and that a write-back cache may keep until a flush.
    pub fn write_left(&mut self, write: WriteId) {
        self.acknowledged += 1;
        self.unflushed.extend(self.range_of(write).map(|range| (self.acknowledged, range)));
        self.write_failed(write);
    }

    /// A flush is received.
    #[must_use]
    pub fn flush_issued(&self) -> FlushMark {
        FlushMark(self.acknowledged)
    }

    /// It is acknowledged: what had been acknowledged at its receipt is durable.
    pub fn flush_acknowledged(&mut self, mark: FlushMark) {
        self.flush_acknowledged_but(mark, &[]);
    }

    /// A stop is answered: what had been acknowledged is durable, but for what it says is lost.
    pub fn stop_answered(&mut self, lost: &[ByteRange]) {
        self.flush_acknowledged_but(self.flush_issued(), lost);
    }

    /// A drain is answered: what had been acknowledged at its receipt is with the members, and
    /// outlives the process, but for what was left.
    pub fn drained(&mut self, mark: FlushMark, left: &[ByteRange]) {
        self.drained = self.drained.max(mark.0);
        let is_left = |sector| left.iter().any(|range| sectors(*range).contains(&sector));
        for (count, range) in &self.unflushed {
            if *count > mark.0 {
                break;
            }
            for (sector, cell) in self.cells.all_of(sectors(*range), Cell::new) {
                if !is_left(sector) {
                    cell.drained(mark.0);
                }
            }
        }
    }

    fn flush_acknowledged_but(&mut self, mark: FlushMark, lost: &[ByteRange]) {
        let is_lost = |sector| lost.iter().any(|range| sectors(*range).contains(&sector));
        let prunes = self.reads_outstanding == 0;
        while let Some((count, range)) = self.unflushed.front().copied() {
            if count > mark.0 {
                break;
            }
            self.unflushed.pop_front();
            for (sector, cell) in self.cells.all_of(sectors(range), Cell::new) {
                if is_lost(sector) {
                    continue;
                }
                let covered = cell.volatile.iter().filter(|(_, count)| *count <= mark.0);
                if let Some(number) = covered.map(|(number, _)| *number).max() {
                    cell.durable_floor = cell.durable_floor.max(number);
                }
                cell.volatile.retain(|(_, count)| *count > mark.0);
                if prunes {
                    cell.prune();
                }
            }
        }
    }

    /// A read is issued.
    pub fn read_issued(&mut self, range: ByteRange) -> ReadMark {
        self.reads_outstanding += 1;
        let floor = |(sector, _, _)| self.cells.get(sector).map_or(0, |cell| cell.read_floor);
        let floors = pieces(range).map(floor).collect();
        let (acknowledged, reads_done) = (self.acknowledged, self.reads_done);
        ReadMark { range, floors, acknowledged, reads_done, reconstructed: self.reconstructed }
    }

    /// It failed, or its client is gone.
    pub fn read_failed(&mut self) {
        self.reads_outstanding -= 1;
    }

    /// It returned `bytes`. `errors` tells what a sector may be off by, if it had to be
    /// reconstructed from members that disagreed. What needed an excuse is counted.
    ///
    /// # Errors
    /// The bytes that were read are no content that the model allows.
    pub fn read_done(
        &mut self,
        mark: &ReadMark,
        bytes: &[u8],
        errors: impl Fn(u64) -> Vec<Vec<u8>>,
        excuses: &mut Excuses,
    ) -> Result<(), Violation> {
        self.reads_outstanding -= 1;
        if self.payload == PayloadMode::None {
            return Ok(());
        }
        self.reads_done += 1;
        let mut rest = bytes;
        let cells = self.cells.all_of(sectors(mark.range), Cell::new);
        for (((sector, offset, len), floor), (_, cell)) in
            pieces(mark.range).zip(&mark.floors).zip(cells)
        {
            let place = self.payload.place(offset as u64, (offset + len) as u64);
            let (found, after) = rest.split_at(place.len());
            rest = after;
            let offset = place.start;
            let errors = errors(sector);
            let unsure = !errors.is_empty()
                || cell.from(*floor).any(|(_, version)| version.reconstructed > 0);
            // Its member may have been read before it went.
            let late = cell.reconstructed > mark.reconstructed;
            excuses.read += 1;
            excuses.read_unsure += u64::from(unsure);
            match cell.find((*floor, mark.acknowledged), sector, offset, found) {
                // P3: what was seen once does not go away again.
                Some((number, why)) => {
                    excuses.read_wrong += u64::from(why == Why::Reconstructed);
                    excuses.read_mixed += u64::from(why == Why::Mixed);
                    excuses.read_mixed_bytes += u64::from(why == Why::MixedBytes);
                    let looks = |version: &&Version| version.looks_like(sector, offset, found);
                    let several = cell.versions.len() > 1 && !late;
                    if several && cell.versions.iter().filter(looks).count() == 1 {
                        let back = cell.saw(number, mark.reads_done, self.reads_done);
                        back.map_err(|write| came_back(sector, write))?;
                    }
                }
                None => {
                    if cell.find_off(*floor, sector, offset, found, &errors).is_none() {
                        let older = cell.find((cell.first, 0), sector, offset, found);
                        let older = older.map(|(number, _)| number);
                        return Err(explain(cell, sector, *floor, older, found));
                    }
                    excuses.read_wrong += 1;
                    if found.len() == self.payload.sector_bytes() {
                        let content = Content::Bytes(found.into());
                        match cell.is_quiet() && !late {
                            true => collapse(cell, content),
                            false => cell.add_possible(content),
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// For a read whose result settles what was read.
    #[must_use]
    pub fn reconstructed(&self) -> Reconstructed {
        Reconstructed(self.reconstructed)
    }

    /// After a power cut: what the sector holds is what it holds from now on (I3). What was written
    /// since, and is not durable, stays as it is. If it is reconstructed since the read was issued,
    /// its member may have been read before it went, and it may be all that it might be before as
    /// well.
    pub fn settle(&mut self, sector: u64, bytes: &[u8], issued: Reconstructed) {
        if let Some(cell) = self.cells.get_mut(sector)
            && cell.volatile.is_empty()
            && cell.versions.iter().all(|version| !version.failed)
        {
            let (reconstructed, mut others) = (cell.reconstructed, Vec::new());
            if reconstructed > issued.0 {
                let all = cell.from(cell.read_floor).flat_map(|(_, version)| &version.contents);
                others.extend(all.map(|content| content.bytes(sector, bytes.len())));
            }
            collapse(cell, Content::Bytes(bytes.into()));
            cell.reconstructed = reconstructed;
            others.into_iter().for_each(|other| cell.add_possible(Content::Bytes(other.into())));
        }
    }

    /// The power goes: nothing is outstanding any more, and what was not durable may be gone.
    pub fn power_cut(&mut self) {
        self.writes.clear();
        self.unflushed.clear();
        self.reads_outstanding = 0;
        for cell in self.cells.values_mut() {
            cell.take_back();
            for version in &mut cell.versions {
                (version.failed, version.seen, version.gone) = (false, None, None);
            }
        }
    }

    /// The process goes and the power stays: nothing is outstanding any more; what was acknowledged
    /// is there, and no more durable than before.
    pub fn process_died(&mut self) {
        let outstanding: Vec<WriteId> = self.writes.keys().copied().collect();
        outstanding.into_iter().for_each(|write| self.write_failed(write));
        self.reads_outstanding = 0;
    }

    /// The process goes with a write-back cache in it, and the power stays: what neither a flush
    /// nor a drain had covered may be there or not, and is not durable; what a drain had covered is
    /// there, and no more durable than before.
    pub fn process_died_with_cache(&mut self) {
        self.process_died();
        let drained = self.drained;
        self.unflushed.retain(|(count, _)| *count <= drained);
        let mode = self.payload;
        let sectors: Vec<u64> = self.touched().collect();
        for sector in sectors {
            let Some(cell) = self.cells.get_mut(sector) else { continue };
            let kept = cell.take_back_but_drained();
            for number in kept + 1..=cell.last() {
                cell.fail(number, sector, mode);
            }
        }
    }

    /// Byte range of a write that is not answered; `None` once it is.
    #[must_use]
    pub fn range_of(&self, write: WriteId) -> Option<ByteRange> {
        self.writes.get(&write).map(|issued| issued.range)
    }

    /// Byte ranges of writes that are not answered.
    #[must_use]
    pub fn in_flight_ranges(&self) -> Vec<ByteRange> {
        self.writes.values().map(|issued| issued.range).collect()
    }

    /// Byte ranges of writes that no flush has covered since they were answered: a write-back cache
    /// may be writing them at any time.
    pub fn unflushed_ranges(&self) -> impl Iterator<Item = ByteRange> {
        self.unflushed.iter().map(|(_, range)| *range)
    }

    /// Whether a read that is issued now may return this.
    #[must_use]
    pub fn why_now(&self, sector: u64, bytes: &[u8]) -> Option<Why> {
        match self.cells.get(sector) {
            Some(cell) => {
                let from = (cell.read_floor, self.acknowledged);
                cell.find(from, sector, 0, bytes).map(|(_, why)| why)
            }
            None => bytes.iter().all(|byte| *byte == 0).then_some(Why::Written),
        }
    }

    /// Whether this content on the media of the sector's own member is explained: something that
    /// was written there and not overwritten durably since.
    #[must_use]
    pub fn media_allows(&self, sector: u64, bytes: &[u8]) -> bool {
        self.why(sector, bytes).is_some()
    }

    /// How this content on the media of the sector's own member is explained.
    #[must_use]
    pub fn why(&self, sector: u64, bytes: &[u8]) -> Option<Why> {
        match self.cells.get(sector) {
            Some(cell) => cell.find((cell.first, 0), sector, 0, bytes).map(|(_, why)| why),
            None => bytes.iter().all(|byte| *byte == 0).then_some(Why::Written),
        }
    }

    /// Whether it is something that was written off by one of the errors.
    #[must_use]
    pub fn media_allows_off(&self, sector: u64, bytes: &[u8], errors: &[Vec<u8>]) -> bool {
        let unwritten = Cell::new();
        let cell = self.cells.get(sector).unwrap_or(&unwritten);
        cell.find_off(cell.first, sector, 0, bytes, errors).is_some()
    }

    /// All that a sector may hold, as far as it is known whole, and whether parts of it may mix.
    #[must_use]
    pub fn choices(&self, sector: u64) -> (Vec<Vec<u8>>, bool) {
        let len = self.payload.sector_bytes();
        let Some(cell) = self.cells.get(sector) else { return (vec![vec![0; len]], false) };
        let all = cell.versions.iter().flat_map(|version| &version.contents);
        let mut contents: Vec<Vec<u8>> = all.map(|content| content.bytes(sector, len)).collect();
        contents.sort_unstable();
        contents.dedup();
        (contents, cell.mixed)
    }

    /// The sector may hold this as well, as it may have been reconstructed.
    pub fn add_possible(&mut self, sector: u64, bytes: &[u8]) {
        for (_, cell) in self.cells.all_of(sector..sector + 1, Cell::new) {
            cell.add_possible(Content::Bytes(bytes.into()));
        }
    }

    /// The sector is reconstructed as this from now on, whatever reads return that were issued
    /// before.
    pub fn is_reconstructed(&mut self, sector: u64, bytes: &[u8]) {
        if self.why_now(sector, bytes).is_none() {
            self.add_possible(sector, bytes);
        }
        self.reconstructed += 1;
        if let Some(cell) = self.cells.get_mut(sector) {
            cell.reconstructed = self.reconstructed;
        }
    }

    /// Whether a write to the sector is issued and not answered, or may still be going on as nobody
    /// waits for its answer.
    #[must_use]
    pub fn in_flight(&self, sector: u64) -> bool {
        self.cells.get(sector).is_some_and(|cell| {
            let mut versions = cell.versions.iter();
            versions.any(|version| version.failed || self.writes.contains_key(&version.write))
        })
    }

    /// Sectors that were ever written.
    pub fn touched(&self) -> impl Iterator<Item = u64> {
        self.cells.iter().map(|(sector, _)| sector)
    }

    /// Writes issued so far.
    #[must_use]
    pub fn writes_issued(&self) -> u32 {
        self.writes_issued
    }
}

#[cfg(test)]
mod tests;
