//! Reference model: for each sector, the versions that a read may return.
//!
//! For each sector the model has the list of versions that were written to it, in the order in
//! which they were issued, which is also the order in which overlapping writes take effect. Two
//! marks move along the list:
//!
//! ```text
//!   versions   v0   v1   v2   v3   v4
//!                   ▲         ▲     ▲
//!                   │         │     └ issued, not acknowledged
//!                   │         └ read floor: acknowledged; a read issued from here on sees v3 or later
//!                   └ durable floor: a flush or FUA covered it; a power cut leaves v1 or later
//! ```
//!
//! A read returns one version between the read floor at the time of its issue and the newest
//! version. The content is complete, belongs to this address, and was written (I2). After a power
//! cut a read may return any version from the durable floor on (I1, P1, P4); all later reads must
//! then return the content that the first read found (I3). A write that failed, or that a
//! disconnected client left behind, may become visible. If members lack space, such a write may
//! also disappear again, but only once: it never comes back (I3).
//!
//! A crash of the process also ends writes halfway. If only one copy of a mirror has such a write,
//! a read may have returned it from this copy, and a later read may return the older content of
//! another copy: an unacknowledged write is not promised to survive (P2).
//!
//! The model predicts the damage of the write hole and allows no other. If members disagree after a
//! cut and the sector's own member is missing, a read may return the content that is reconstructed
//! from the other members, which the model computes ([`crate::suspects`]). Such reads are counted,
//! because runs in which none of them returns wrong content do not test the prediction.
//!
//! [`PayloadMode`] decides how many bytes represent a sector. Without payload no content is kept,
//! and reads may return anything.
//!
//! Source   reliability.md §3 and §5 (I1-I3, I7)

mod cell;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use weft_units::{ByteRange, SECTOR_BYTES};

use crate::excuses::ExcuseCounts;
use crate::payload::PayloadMode;
use crate::sector_map::SectorMap;
use crate::violation::Violation;
use cell::{Cell, Content, Patch, Version, came_back, collapse, explain};

pub use cell::tag;

/// Number of a write. Every word of its payload contains it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteId(pub u32);

/// Content that a write stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Bytes of this value.
    Fill(u8),
    /// Tags: in a whole sector, every 8-byte word has the write's number and the sector's number.
    /// In a part of a sector, every byte depends on both numbers and on its own offset.
    Tags,
    /// Nothing but zeros.
    Zeros,
}

/// Reference model: the versions that each sector may hold.
#[derive(Clone, Debug, Default)]
pub struct Model {
    payload: PayloadMode,
    cells: SectorMap<Cell>,
    /// Ranges of acknowledged writes that are not durable, each with the value of `acknowledged`
    /// after its acknowledgement.
    unflushed: VecDeque<(u64, ByteRange)>,
    /// Count of acknowledgements up to which a drain of the write-back cache has stored all writes
    /// on members.
    drained: u64,
    writes: BTreeMap<WriteId, Issued>,
    writes_issued: u32,
    /// Number of acknowledgements so far: of acknowledged writes, and of writes of disconnected
    /// clients that were left in the write-back cache.
    acknowledged: u64,
    reads_outstanding: u32,
    /// Number of reads that returned content, whether right or wrong.
    reads_done: u64,
    /// Number of calls of [`Self::is_reconstructed`] so far.
    reconstructed: u64,
}

/// State of the model when a read was issued: the read floor of each of its sectors, and counters.
#[derive(Clone, Debug)]
pub struct ReadMark {
    range: ByteRange,
    floors: Vec<u64>,
    acknowledged: u64,
    /// Value of the model's `reads_done` when the read was issued.
    reads_done: u64,
    /// Value of the model's `reconstructed` when the read was issued.
    reconstructed: u64,
}

/// Reason why the model allows a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// A client wrote the content.
    Written,
    /// Several clients wrote parts of the content, and the parts were in flight together.
    Mixed,
    /// The content is `Mixed`, but was compared byte for byte, because there were too many parts to
    /// try all combinations.
    MixedBytes,
    /// The content may have been reconstructed from members that disagreed.
    Reconstructed,
}

/// Value of the model's `reconstructed` when a read was issued, to pass to [`Model::settle`].
#[derive(Clone, Copy, Debug)]
pub struct Reconstructed(u64);

/// Number of writes that were acknowledged when a flush was received. The flush covers these
/// writes.
#[derive(Clone, Copy, Debug)]
pub struct FlushMark(u64);

#[derive(Clone, Debug)]
struct Issued {
    range: ByteRange,
    /// Number of the write's version in each sector of the range.
    numbers: Vec<u64>,
}

impl ReadMark {
    /// Byte range of the read.
    #[must_use]
    pub fn range(&self) -> ByteRange {
        self.range
    }
}

/// Numbers of the sectors that a byte range touches.
fn sectors(range: ByteRange) -> Range<u64> {
    range.start.0 / SECTOR_BYTES..(range.start.0 + range.len.0).div_ceil(SECTOR_BYTES)
}

/// Sectors that a byte range touches: number of the sector, then offset and length of the part
/// inside it.
pub(crate) fn pieces(range: ByteRange) -> impl Iterator<Item = (u64, usize, usize)> {
    let (start, end) = (range.start.0, range.start.0 + range.len.0);
    sectors(range).map(move |sector| {
        let low = start.max(sector * SECTOR_BYTES);
        let high = end.min((sector + 1) * SECTOR_BYTES);
        (sector, (low % SECTOR_BYTES) as usize, (high - low) as usize)
    })
}

impl Model {
    /// An empty model for payload that is represented as `payload` says.
    #[must_use]
    pub fn new(payload: PayloadMode) -> Self {
        Self { payload, ..Self::default() }
    }

    /// Records that a write is issued. Returns its number and the bytes to write.
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
                // Parts that overlap take effect in order of issue; disjoint parts may take effect
                // in any order.
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

    /// Records that a write is acknowledged; with FUA it is durable.
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
            // This version covers the whole sector and follows all other versions.
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

    /// Records that a write failed: its data may or may not have been stored.
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

    /// Records that a copy of a mirror is lost while another copy lacks writes that failed for lack
    /// of space. Content of such a write may be lost with the copy, even if reads have returned it;
    /// acknowledged content is on both copies.
    pub fn copy_lost(&mut self) {
        self.cells.values_mut().for_each(Cell::forget_failed);
    }

    /// Records that a write-back cache holds the range of a write that a disconnected client left
    /// behind. The cache may write the range to members at any time until a flush.
    pub fn left_in_cache(&mut self, range: ByteRange) {
        self.acknowledged += 1;
        self.unflushed.push_back((self.acknowledged, range));
    }

    /// Returns a mark for a flush that is received now, to pass to [`Self::flush_acknowledged`].
    #[must_use]
    pub fn flush_issued(&self) -> FlushMark {
        FlushMark(self.acknowledged)
    }

    /// Records that a flush is acknowledged: everything acknowledged before its receipt is durable.
    pub fn flush_acknowledged(&mut self, mark: FlushMark) {
        self.flush_acknowledged_but(mark, &[]);
    }

    /// Records that a stop is answered: everything acknowledged is durable, except for the ranges
    /// in `lost`.
    pub fn stop_answered(&mut self, lost: &[ByteRange]) {
        self.flush_acknowledged_but(self.flush_issued(), lost);
    }

    /// Records the answer of a drain of the write-back cache: everything acknowledged before its
    /// receipt is stored on members and survives a process crash, except for the ranges in `left`.
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

    /// Records that a read is issued. Returns a mark to pass to [`Self::read_done`].
    pub fn read_issued(&mut self, range: ByteRange) -> ReadMark {
        self.reads_outstanding += 1;
        let floor = |(sector, _, _)| self.cells.get(sector).map_or(0, |cell| cell.read_floor);
        let floors = pieces(range).map(floor).collect();
        let (acknowledged, reads_done) = (self.acknowledged, self.reads_done);
        ReadMark { range, floors, acknowledged, reads_done, reconstructed: self.reconstructed }
    }

    /// Records that a read failed or that its client disconnected.
    pub fn read_failed(&mut self) {
        self.reads_outstanding -= 1;
    }

    /// Checks a read that returned `bytes`. `errors(sector)` lists the XOR differences by which a
    /// sector may be wrong if it had to be reconstructed from members that disagreed. Reads that
    /// pass only with an excuse are counted in `excuses`.
    ///
    /// # Errors
    /// A violation, if the model does not allow the content that was read.
    pub fn read_done(
        &mut self,
        mark: &ReadMark,
        bytes: &[u8],
        errors: impl Fn(u64) -> Vec<Vec<u8>>,
        excuses: &mut ExcuseCounts,
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
            // The sector may have been read from its own member before this member failed.
            let late = cell.reconstructed > mark.reconstructed;
            excuses.read += 1;
            excuses.read_unsure += u64::from(unsure);
            match cell.find((*floor, mark.acknowledged), sector, offset, found) {
                // P3: once a read has returned a version, later reads do not return an older one.
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

    /// Returns a mark for a read that is issued now, to pass to [`Self::settle`].
    #[must_use]
    pub fn reconstructed(&self) -> Reconstructed {
        Reconstructed(self.reconstructed)
    }

    /// Settles a sector after a power cut: the content that a read returned is its only content
    /// from now on (I3). Later writes that are not durable stay possible. If the sector was
    /// reconstructed since the read was issued, the read may have used the sector's own member
    /// before it failed, so all earlier contents stay possible too.
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

    /// Records a power cut: no request is outstanding afterwards, and content that was not durable
    /// may be lost.
    pub fn power_cut(&mut self) {
        self.writes.clear();
        self.unflushed.clear();
        self.reads_outstanding = 0;
        self.cells.values_mut().for_each(Cell::take_back);
    }

    /// Records a process crash while the power stays on: no request is outstanding afterwards;
    /// acknowledged writes are kept, and are as durable as before. Other writes may be lost, even
    /// if a read has returned their content.
    pub fn process_died(&mut self) {
        let outstanding: Vec<WriteId> = self.writes.keys().copied().collect();
        outstanding.into_iter().for_each(|write| self.write_failed(write));
        // The read floor may be at an unacknowledged write that a read has returned.
        self.cells.values_mut().for_each(Cell::forget_failed);
        self.reads_outstanding = 0;
    }

    /// Records the crash of a process with a write-back cache while the power stays on. Writes that
    /// neither a flush nor a drain covered are not durable and may be lost. Writes that a drain
    /// covered are kept, and are as durable as before.
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

    /// Byte range of an unanswered write; `None` once it is answered.
    #[must_use]
    pub fn range_of(&self, write: WriteId) -> Option<ByteRange> {
        self.writes.get(&write).map(|issued| issued.range)
    }

    /// Byte ranges of unanswered writes.
    #[must_use]
    pub fn in_flight_ranges(&self) -> Vec<ByteRange> {
        self.writes.values().map(|issued| issued.range).collect()
    }

    /// Byte ranges of answered writes that no flush has covered since: a write-back cache may still
    /// write them to members at any time.
    pub fn unflushed_ranges(&self) -> impl Iterator<Item = ByteRange> {
        self.unflushed.iter().map(|(_, range)| *range)
    }

    /// Reason why a read that is issued now may return this content; `None` if it must not return
    /// it.
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

    /// Whether the member that holds the sector's data may have this content on its media: the
    /// content was written, or may result from reconstruction, and was not durably overwritten
    /// since.
    #[must_use]
    pub fn media_allows(&self, sector: u64, bytes: &[u8]) -> bool {
        self.why(sector, bytes).is_some()
    }

    /// Reason why the member that holds the sector's data may have this content on its media;
    /// `None` if it may not.
    #[must_use]
    pub fn why(&self, sector: u64, bytes: &[u8]) -> Option<Why> {
        match self.cells.get(sector) {
            Some(cell) => cell.find((cell.first, 0), sector, 0, bytes).map(|(_, why)| why),
            None => bytes.iter().all(|byte| *byte == 0).then_some(Why::Written),
        }
    }

    /// Whether the content is the XOR of one of `errors` and the content of a version that was
    /// written.
    #[must_use]
    pub fn media_allows_off(&self, sector: u64, bytes: &[u8], errors: &[Vec<u8>]) -> bool {
        let unwritten = Cell::new();
        let cell = self.cells.get(sector).unwrap_or(&unwritten);
        cell.find_off(cell.first, sector, 0, bytes, errors).is_some()
    }

    /// All contents that the whole sector may have, and whether parts of several writes may be
    /// mixed in it.
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

    /// Allows a content of a sector that may result from reconstruction.
    pub fn add_possible(&mut self, sector: u64, bytes: &[u8]) {
        for (_, cell) in self.cells.all_of(sector..sector + 1, Cell::new) {
            cell.add_possible(Content::Bytes(bytes.into()));
        }
    }

    /// Records that reconstruction of the sector gives this content from now on. Reads issued
    /// earlier may return other content.
    pub fn is_reconstructed(&mut self, sector: u64, bytes: &[u8]) {
        if self.why_now(sector, bytes).is_none() {
            self.add_possible(sector, bytes);
        }
        self.reconstructed += 1;
        if let Some(cell) = self.cells.get_mut(sector) {
            cell.reconstructed = self.reconstructed;
        }
    }

    /// Whether a write to the sector may still be carried out: it is unanswered, or was answered
    /// with an error, or its client disconnected.
    #[must_use]
    pub fn in_flight(&self, sector: u64) -> bool {
        self.cells.get(sector).is_some_and(|cell| {
            let mut versions = cell.versions.iter();
            versions.any(|version| version.failed || self.writes.contains_key(&version.write))
        })
    }

    /// Numbers of the sectors that were ever written.
    pub fn touched(&self) -> impl Iterator<Item = u64> {
        self.cells.iter().map(|(sector, _)| sector)
    }

    /// Number of writes issued so far.
    #[must_use]
    pub fn writes_issued(&self) -> u32 {
        self.writes_issued
    }
}

#[cfg(test)]
mod tests;
