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
//! Source   spec reliability.md §3 and §5 (I1-I3, I7); design.md, promises 1 and 2

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};
use weft_units::{ByteRange, SECTOR_BYTES};

use crate::checker::Violation;
use crate::excuses::Excuses;
use crate::payload::PayloadMode;
use crate::sector_map::SectorMap;

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
    /// It may have been reconstructed from members that disagreed.
    Reconstructed,
}

/// What was known to be reconstructed by then, for [`Model::settle`].
#[derive(Clone, Copy, Debug)]
pub struct Reconstructed(u64);

/// A flush's view at its receipt: the acknowledgements that it covers.
#[derive(Clone, Copy, Debug)]
pub struct FlushMark(u64);

#[derive(Clone, Debug)]
struct Cell {
    /// Number of the first version that is kept.
    first: u64,
    versions: VecDeque<Version>,
    read_floor: u64,
    durable_floor: u64,
    /// Acknowledged versions that are not durable, with the count at their acknowledgement.
    volatile: SmallVec<[(u64, u64); 1]>,
    /// Writes of parts of it were in flight together: they may happen in any order, so that only
    /// each byte for itself is known to be of one of the versions. Until the whole of it is
    /// written.
    mixed: bool,
    /// The version that ended this, which a power cut may take: 0 for none.
    unmixed_by: u64,
    /// The count when it was seen last what it may be reconstructed as.
    reconstructed: u64,
}

#[derive(Clone, Debug)]
struct Version {
    write: WriteId,
    /// What the sector may hold by it: one, or more where what it changed in part had failed.
    contents: SmallVec<[Content; 1]>,
    /// So many of them, the last, are nothing that was written but what reconstruction may give.
    reconstructed: usize,
    /// How many acknowledgements there were with its own, if a power cut did not take it back.
    acknowledged: Option<u64>,
    /// The part that it changed, if not all.
    patch: Option<Box<Patch>>,
    failed: bool,
    /// If it failed: the count of reads with the first that saw it, and with the first after that
    /// which saw an older one in its place.
    seen: Option<u64>,
    gone: Option<u64>,
}

/// A part of a sector that was written.
#[derive(Clone, Debug)]
struct Patch {
    /// First byte, of 512.
    offset: usize,
    /// Bytes, of 512.
    len: usize,
    /// Byte range of the content within the payload.
    place: Range<usize>,
    content: Content,
}

impl Version {
    fn whole(write: WriteId, content: Content) -> Self {
        let contents = smallvec![content];
        let (reconstructed, acknowledged) = (0, None);
        Self {
            write,
            contents,
            reconstructed,
            acknowledged,
            patch: None,
            failed: false,
            seen: None,
            gone: None,
        }
    }

    fn looks_like(&self, sector: u64, at: usize, bytes: &[u8]) -> bool {
        self.contents.iter().any(|content| content.looks_like(sector, at, bytes))
    }

    /// Whether that is what was written, not what was reconstructed.
    fn was_written(&self, sector: u64, at: usize, bytes: &[u8]) -> bool {
        let written = self.contents.len() - self.reconstructed;
        self.contents[..written].iter().any(|content| content.looks_like(sector, at, bytes))
    }

    /// Whether it changed a byte, by its place in what stands for the sector.
    fn covers(&self, place: usize) -> bool {
        self.patch.as_ref().is_none_or(|patch| patch.place.contains(&place))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    Bytes(Arc<[u8]>),
    Fill(u8),
    /// Of a part of a sector.
    Part(WriteId),
    Tags(WriteId),
}

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

impl Content {
    /// Appends a part of what a sector holds by it.
    fn write(&self, sector: u64, place: Range<usize>, into: &mut Vec<u8>) {
        match self {
            Self::Bytes(content) => into.extend_from_slice(&content[place]),
            Self::Fill(byte) => into.resize(into.len() + place.len(), *byte),
            Self::Part(write) => into.extend(place.map(|at| tag_byte(*write, sector, at))),
            Self::Tags(write) => {
                let word = tag(*write, sector);
                into.extend(place.map(|at| word[at % 8]));
            }
        }
    }

    fn bytes(&self, sector: u64, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len);
        self.write(sector, 0..len, &mut bytes);
        bytes
    }

    fn looks_like(&self, sector: u64, at: usize, bytes: &[u8]) -> bool {
        match self {
            Self::Bytes(content) => content[at..at + bytes.len()] == *bytes,
            Self::Fill(byte) => bytes.iter().all(|found| found == byte),
            Self::Part(write) => {
                (at..).zip(bytes).all(|(at, found)| *found == tag_byte(*write, sector, at))
            }
            Self::Tags(write) => {
                let word = tag(*write, sector);
                (at..).zip(bytes).all(|(at, found)| *found == word[at % 8])
            }
        }
    }
}

/// The word that every 8 bytes of a tagged sector hold: 24 bits of the write and 32 of the sector,
/// seven in each byte below a bit that is set. Whether two contents differ at a place does not
/// depend on the place, then, nor on how many bytes stand for a sector: a byte is zero, or of a
/// part, or of a whole sector.
#[must_use]
pub fn tag(write: WriteId, sector: u64) -> [u8; 8] {
    let mut rest = u64::from(write.0) << 32 | (sector & 0xffff_ffff);
    let mut word = [0; 8];
    for byte in &mut word {
        *byte = 0x80 | rest as u8 & 0x7f;
        rest >>= 7;
    }
    word
}

/// The write and the sector of such a word.
fn untag(word: [u8; 8]) -> Option<(u64, u64)> {
    let set = word.iter().all(|byte| byte & 0x80 != 0);
    let bits = word.iter().rev().fold(0, |bits, byte| bits << 7 | u64::from(byte & 0x7f));
    set.then_some((bits >> 32, bits & 0xffff_ffff))
}

/// The byte at a place of a part of a sector.
fn tag_byte(write: WriteId, sector: u64, at: usize) -> u8 {
    1 + ((u64::from(write.0) + sector + at as u64) % 127) as u8
}

impl Cell {
    fn new() -> Self {
        // Of most sectors there is one version, or two.
        let mut versions = VecDeque::with_capacity(2);
        versions.push_back(Version::whole(WriteId(0), Content::Fill(0)));
        Self {
            first: 0,
            versions,
            read_floor: 0,
            durable_floor: 0,
            volatile: SmallVec::new(),
            mixed: false,
            unmixed_by: 0,
            reconstructed: 0,
        }
    }

    fn last(&self) -> u64 {
        self.first + self.versions.len() as u64 - 1
    }

    /// Whether a version that is kept changed only part of the sector.
    fn is_patch(&self, number: u64) -> bool {
        let index = (number - self.first) as usize;
        self.versions.get(index).is_some_and(|version| version.patch.is_some())
    }

    fn from(&self, floor: u64) -> impl Iterator<Item = (u64, &Version)> {
        (self.first..).zip(&self.versions).skip_while(move |(number, _)| *number < floor)
    }

    /// Whether it stays what it is, acknowledged and durable.
    fn is_settled(&self, number: u64) -> bool {
        let version = &self.versions[(number - self.first) as usize];
        let volatile = self.volatile.iter().any(|(other, _)| *other == number);
        number <= self.durable_floor && version.acknowledged.is_some() && !volatile
    }

    /// Forgets what nobody may read any more. Of parts that were in flight together each may be
    /// there without those before it, until all of them are settled.
    fn prune(&mut self) {
        if self.mixed || self.durable_floor < self.unmixed_by {
            let numbers = self.first + 1..=self.last();
            let whole = numbers.rev().find(|it| !self.is_patch(*it) && self.is_settled(*it));
            let keep_from = whole.unwrap_or(self.first);
            while self.first < keep_from
                || self.versions.len() > 1 && self.is_settled(self.first + 1)
            {
                self.versions.pop_front();
                self.first += 1;
            }
            return;
        }
        let keep_from = self.durable_floor.min(self.read_floor);
        while self.first < keep_from {
            self.versions.pop_front();
            self.first += 1;
        }
    }

    /// The newest version may be this as well, as it may have been reconstructed.
    fn add_possible(&mut self, content: Content) {
        let newest = self.versions.back_mut().expect("a cell is never empty");
        if !newest.contents.contains(&content) {
            newest.contents.push(content);
            newest.reconstructed += 1;
        }
    }

    /// What the sector may hold after a part of it was written as the version at this index: the
    /// part stands on the version before, and on one before that wherever a version failed.
    fn patched(
        &self,
        index: usize,
        sector: u64,
        patch: &Patch,
        payload: PayloadMode,
    ) -> SmallVec<[Content; 1]> {
        let mut contents = SmallVec::new();
        for version in self.versions.iter().take(index).rev() {
            for base in &version.contents {
                let content = patched(base, sector, patch, payload);
                if !contents.contains(&content) {
                    contents.push(content);
                }
            }
            if !version.failed {
                break;
            }
        }
        contents
    }

    /// The newest version not below `floor` that looks like `bytes` at `offset` of the sector.
    /// Where parts were in flight together those that had been acknowledged at a moment are there.
    fn find(
        &self,
        (floor, acknowledged): (u64, u64),
        sector: u64,
        offset: usize,
        bytes: &[u8],
    ) -> Option<(u64, Why)> {
        let matching =
            self.from(floor).filter(|(_, version)| version.looks_like(sector, offset, bytes));
        if let Some((number, version)) = matching.last() {
            let written = version.was_written(sector, offset, bytes)
                || self.from(floor).any(|(_, other)| other.was_written(sector, offset, bytes));
            return Some((number, if written { Why::Written } else { Why::Reconstructed }));
        }
        if !self.mixed {
            return None;
        }
        let why = self.mixes(acknowledged, sector, offset, bytes)?;
        Some((self.last(), why))
    }

    /// A read that was issued after so many others saw this version and no other. An error if it
    /// had failed, and was seen and not there any more before.
    fn saw(&mut self, number: u64, issued: u64, now: u64) -> Result<(), WriteId> {
        let index = (number - self.first) as usize;
        let version = &mut self.versions[index];
        if version.gone.is_some_and(|gone| gone <= issued) {
            return Err(version.write);
        }
        if version.failed {
            version.seen.get_or_insert(now);
        } else if self.versions.iter().filter(|version| !version.failed).count() > 1 {
            self.read_floor = self.read_floor.max(number);
        }
        for later in self.versions.iter_mut().skip(index + 1) {
            if later.failed && later.seen.is_some_and(|seen| seen <= issued) {
                later.gone.get_or_insert(now);
            }
        }
        Ok(())
    }

    /// Whether it is what is left when each version took effect as a whole or not at all, in order;
    /// those that had been acknowledged did.
    fn mixes(&self, acknowledged: u64, sector: u64, offset: usize, bytes: &[u8]) -> Option<Why> {
        let must = |version: &Version| version.acknowledged.is_some_and(|it| it <= acknowledged);
        let later = || self.versions.iter().skip(1);
        if later().filter(|version| !must(version)).count() > PARTS_MAX {
            // Each byte is of the last version that must be there and changed it, or of a later
            // one.
            let last = |at: usize| {
                let changed = |version: &Version| must(version) && version.covers(at);
                self.versions.iter().rposition(changed).unwrap_or(0)
            };
            let all = (offset..).zip(bytes.chunks(1)).all(|(at, byte)| {
                let from = self.versions.iter().skip(last(at));
                from.into_iter().any(|version| version.looks_like(sector, at, byte))
            });
            return all.then_some(Why::MixedBytes);
        }
        let end = offset + bytes.len();
        let part = |content: &Content| {
            let mut part = Vec::with_capacity(bytes.len());
            content.write(sector, offset..end, &mut part);
            part
        };
        let mut states: Vec<Vec<u8>> = self.versions[0].contents.iter().map(part).collect();
        for version in later() {
            let mut after = if must(version) { Vec::new() } else { states.clone() };
            match &version.patch {
                None => after.extend(version.contents.iter().map(part)),
                Some(patch) => after.extend(states.into_iter().map(|mut state| {
                    let place = patch.place.start.max(offset)..patch.place.end.min(end);
                    if !place.is_empty() {
                        let within = place.start - patch.place.start..place.end - patch.place.start;
                        let mut fresh = Vec::with_capacity(patch.place.len());
                        patch.content.write(sector, patch.place.clone(), &mut fresh);
                        state[place.start - offset..place.end - offset]
                            .copy_from_slice(&fresh[within]);
                    }
                    state
                })),
            }
            after.sort_unstable();
            after.dedup();
            states = after;
        }
        states.iter().any(|state| state == bytes).then_some(Why::Mixed)
    }

    /// The version that this is, off by one of the errors. What was written to a part stands on it.
    fn find_off(
        &self,
        floor: u64,
        sector: u64,
        offset: usize,
        bytes: &[u8],
        errors: &[Vec<u8>],
    ) -> Option<u64> {
        let parts = self.mixed || self.versions.iter().any(|version| version.patch.is_some());
        let off = |content: &Content, error: &Vec<u8>| {
            let right = content.bytes(sector, error.len());
            (offset..).zip(bytes).all(|(at, found)| {
                let wrong = right[at] ^ error[at];
                *found == wrong || parts && *found == right[at]
            })
        };
        let matching = self.from(floor).filter(|(_, version)| {
            version.contents.iter().any(|it| errors.iter().any(|error| off(it, error)))
        });
        matching.last().map(|(number, _)| number)
    }

    /// Whether what was read may be all that will be read: nothing is in flight or may go back.
    fn is_quiet(&self) -> bool {
        self.volatile.is_empty()
            && self.last() <= self.read_floor
            && self.versions.iter().all(|version| !version.failed)
    }
}

/// Versions of a sector of which every choice is tried.
const PARTS_MAX: usize = 10;

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
            let Some(index) = number.checked_sub(cell.first).map(|index| index as usize) else {
                continue;
            };
            let Some(version) = cell.versions.get_mut(index) else { continue };
            version.failed = true;
            // What was written to a part of it may stand on what was there before.
            for later in index + 1..cell.versions.len() {
                let version = &cell.versions[later];
                match version.patch.clone() {
                    Some(patch) => {
                        cell.versions[later].contents = cell.patched(later, sector, &patch, mode);
                    }
                    None if version.failed => {}
                    None => break,
                }
            }
        }
    }

    /// A flush is received.
    #[must_use]
    pub fn flush_issued(&self) -> FlushMark {
        FlushMark(self.acknowledged)
    }

    /// It is acknowledged: what had been acknowledged at its receipt is durable.
    pub fn flush_acknowledged(&mut self, mark: FlushMark) {
        let prunes = self.reads_outstanding == 0;
        while let Some((count, range)) = self.unflushed.front().copied() {
            if count > mark.0 {
                break;
            }
            self.unflushed.pop_front();
            for (_, cell) in self.cells.all_of(sectors(range), Cell::new) {
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
    /// What was read is not allowed.
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
            cell.read_floor = cell.durable_floor;
            for (number, _) in std::mem::take(&mut cell.volatile) {
                if let Some(index) = number.checked_sub(cell.first)
                    && let Some(version) = cell.versions.get_mut(index as usize)
                {
                    version.acknowledged = None;
                }
            }
            cell.mixed |= cell.durable_floor < cell.unmixed_by;
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

    /// What a write that is not answered is about.
    #[must_use]
    pub fn range_of(&self, write: WriteId) -> Option<ByteRange> {
        self.writes.get(&write).map(|issued| issued.range)
    }

    /// What writes that are not answered are about.
    #[must_use]
    pub fn in_flight_ranges(&self) -> Vec<ByteRange> {
        self.writes.values().map(|issued| issued.range).collect()
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

fn patched(base: &Content, sector: u64, patch: &Patch, payload: PayloadMode) -> Content {
    let mut mixed = base.bytes(sector, payload.sector_bytes());
    let mut fresh = Vec::with_capacity(patch.place.len());
    patch.content.write(sector, patch.place.clone(), &mut fresh);
    mixed[patch.place.clone()].copy_from_slice(&fresh);
    Content::Bytes(mixed.into())
}

fn collapse(cell: &mut Cell, content: Content) {
    let write = cell.versions.back().expect("a cell is never empty").write;
    let number = cell.last() + 1;
    *cell = Cell {
        first: number,
        versions: VecDeque::from([Version::whole(write, content)]),
        read_floor: number,
        durable_floor: number,
        volatile: SmallVec::new(),
        mixed: false,
        unmixed_by: 0,
        reconstructed: 0,
    };
}

fn came_back(sector: u64, write: WriteId) -> Violation {
    let write = write.0;
    let message = format!(
        "sector {sector} reads as write {write} again, which failed, was seen, and was not there any more"
    );
    Violation::new("I3 stable reads", message)
}

fn explain(cell: &Cell, sector: u64, floor: u64, older: Option<u64>, found: &[u8]) -> Violation {
    let allowed: Vec<u32> = cell.from(floor).map(|(_, version)| version.write.0).collect();
    let word = found.first_chunk().copied().unwrap_or_default();
    let same = found.chunks(8).all(|chunk| chunk == &word[..chunk.len()]);
    let looks = match untag(word).filter(|_| same) {
        _ if found.iter().all(|byte| *byte == 0) => "zeros".to_owned(),
        Some((write, of)) => format!("write {write} at sector {of}"),
        None => format!("a mixture that begins with {:02x?}", &found[..found.len().min(8)]),
    };
    match older {
        Some(number) => Violation::new(
            "I1 durability",
            format!(
                "sector {sector} reads as write {}, which is older than allowed: writes {allowed:?}",
                cell.versions[(number - cell.first) as usize].write.0
            ),
        ),
        None => Violation::new(
            "I2 old or new",
            format!("sector {sector} reads as {looks}; allowed are writes {allowed:?}"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECTOR: ByteRange = ByteRange::new(512 * 7, 512);

    fn read(model: &mut Model, range: ByteRange, bytes: &[u8]) -> Result<(), Violation> {
        let mark = model.read_issued(range);
        model.read_done(&mark, bytes, |_| Vec::new(), &mut Excuses::default())
    }

    #[test]
    fn a_read_sees_the_acknowledged_write_or_a_newer_one() {
        let mut model = Model::default();
        let (first, one) = model.write_issued(SECTOR, Payload::Tags);
        assert_eq!(one[8..16], tag(first, 7));
        assert!(read(&mut model, SECTOR, &[0; 512]).is_ok());
        assert!(read(&mut model, SECTOR, &one).is_ok());
        // Seen once, it stays.
        assert!(read(&mut model, SECTOR, &[0; 512]).is_err());
        model.write_acknowledged(first, false);
        assert!(read(&mut model, SECTOR, &one).is_ok());
        let (second, two) = model.write_issued(SECTOR, Payload::Tags);
        let early = model.read_issued(SECTOR);
        model.write_acknowledged(second, false);
        assert!(
            model.read_done(&early, &one, |_| Vec::new(), &mut Excuses::default()).is_ok(),
            "it was issued before the ack"
        );
        assert_eq!(read(&mut model, SECTOR, &one).unwrap_err().checker, "I1 durability");
        assert!(read(&mut model, SECTOR, &two).is_ok());
        let mut mixed = one.clone();
        mixed[256..].copy_from_slice(&two[256..]);
        assert_eq!(read(&mut model, SECTOR, &mixed).unwrap_err().checker, "I2 old or new");
    }

    #[test]
    fn a_cut_may_take_what_was_not_flushed_and_nothing_else() {
        let mut model = Model::default();
        let (first, one) = model.write_issued(SECTOR, Payload::Tags);
        model.write_acknowledged(first, false);
        let flush = model.flush_issued();
        let (second, two) = model.write_issued(SECTOR, Payload::Tags);
        model.write_acknowledged(second, false);
        model.flush_acknowledged(flush);
        model.power_cut();
        assert!(read(&mut model.clone(), SECTOR, &two).is_ok());
        assert!(read(&mut model, SECTOR, &one).is_ok());
        assert!(read(&mut model, SECTOR, &[0; 512]).is_err());
        let issued = model.reconstructed();
        model.settle(7, &one, issued);
        assert!(read(&mut model, SECTOR, &two).is_err(), "I3: two reads agree");
        assert!(model.media_allows(7, &one) && !model.media_allows(7, &two));
    }

    /// A member is read, it fails before all of the read is answered, and what is reconstructed for
    /// it from then on is something else. Found by faults-and-cuts, seeds 2000116, 2001438 and
    /// 2001915.
    #[test]
    fn a_read_that_saw_a_member_that_failed_since_does_not_settle_what_is_reconstructed() {
        for reconstructed in [[1; 512], [5; 512]] {
            let mut model = Model::default();
            let (first, one) = model.write_issued(SECTOR, Payload::Fill(1));
            model.write_acknowledged(first, true);
            let (_, two) = model.write_issued(SECTOR, Payload::Fill(2));
            model.power_cut();
            let (early, before) = (model.read_issued(SECTOR), model.reconstructed());
            model.is_reconstructed(7, &reconstructed);
            let mut done = |mark: &ReadMark, found: &[u8]| {
                model.read_done(mark, found, |_| Vec::new(), &mut Excuses::default()).unwrap();
                model.settle(7, found, before);
                model.clone()
            };
            let mut model = done(&early, &two);
            assert!(model.media_allows(7, &two));
            assert!(read(&mut model, SECTOR, &reconstructed).is_ok());
            // Part of it stands on either.
            let mut after = model.clone();
            after.write_issued(ByteRange::new(512 * 7, 100), Payload::Fill(3));
            for mut sector in [[2; 512], reconstructed] {
                sector[..100].fill(3);
                assert!(after.media_allows(7, &sector));
            }
            // A read that was issued since does.
            let now = model.reconstructed();
            model.settle(7, &reconstructed, now);
            assert!(!model.media_allows(7, &two));
            assert_eq!(model.media_allows(7, &one), reconstructed == [1; 512]);
        }
    }

    #[test]
    fn fua_is_durable_when_acknowledged_and_an_error_leaves_both() {
        let mut model = Model::default();
        let (first, one) = model.write_issued(SECTOR, Payload::Fill(1));
        model.write_acknowledged(first, true);
        let (second, two) = model.write_issued(SECTOR, Payload::Fill(2));
        model.write_failed(second);
        model.power_cut();
        assert!(read(&mut model.clone(), SECTOR, &two).is_ok());
        assert!(read(&mut model, SECTOR, &one).is_ok());
        assert!(read(&mut model, SECTOR, &[0; 512]).is_err());
    }

    #[test]
    fn what_failed_settles_and_does_not_come_back() {
        let late = |model: &mut Model, mark: &ReadMark, found: &[u8]| {
            model.read_done(mark, found, |_| Vec::new(), &mut Excuses::default())
        };
        let mut model = Model::default();
        let (first, one) = model.write_issued(SECTOR, Payload::Fill(1));
        model.write_acknowledged(first, false);
        let (second, two) = model.write_issued(SECTOR, Payload::Fill(2));
        model.write_failed(second);
        assert!(read(&mut model, SECTOR, &one).is_ok(), "not there yet");
        let early = model.read_issued(SECTOR);
        assert!(read(&mut model, SECTOR, &two).is_ok());
        assert!(read(&mut model, SECTOR, &two).is_ok());
        assert!(late(&mut model, &early, &one).is_ok(), "it was issued before");
        assert!(read(&mut model, SECTOR, &two).is_ok(), "so that it was not gone");
        let early = model.read_issued(SECTOR);
        assert!(read(&mut model, SECTOR, &one).is_ok(), "gone");
        assert!(late(&mut model, &early, &two).is_ok(), "it was issued before");
        assert!(read(&mut model, SECTOR, &one).is_ok());
        assert_eq!(read(&mut model, SECTOR, &two).unwrap_err().checker, "I3 stable reads");
        model.power_cut();
        assert!(read(&mut model, SECTOR, &two).is_ok(), "the cut decides anew");
    }

    #[test]
    fn only_what_may_be_reconstructed_may_be_wrong_and_only_so() {
        let mut model = Model::default();
        let (first, right) = model.write_issued(SECTOR, Payload::Tags);
        model.write_acknowledged(first, true);
        let wrong: Vec<u8> = right.iter().map(|byte| byte ^ 9).collect();
        let mark = model.read_issued(SECTOR);
        let mut excuses = Excuses::default();
        let mut done = |model: &mut Model, found: &[u8], errors: &[Vec<u8>]| {
            model.read_done(&mark, found, |_| errors.to_vec(), &mut excuses)
        };
        assert!(done(&mut model.clone(), &wrong, &[]).is_err(), "its member is there");
        assert!(done(&mut model.clone(), &wrong, &[vec![8; 512]]).is_err(), "another error");
        assert!(done(&mut model.clone(), &[7; 512], &[vec![9; 512]]).is_err(), "something else");
        assert!(done(&mut model.clone(), &right, &[vec![9; 512]]).is_ok());
        assert!(done(&mut model, &wrong, &[vec![8; 512], vec![9; 512]]).is_ok());
        assert_eq!((excuses.read, excuses.read_unsure, excuses.read_wrong), (5, 4, 1));
        assert!(read(&mut model, SECTOR, &wrong).is_ok());
        assert!(read(&mut model, SECTOR, &right).is_err(), "it stays what it was read as");
    }

    #[test]
    fn what_may_be_reconstructed_is_told_from_what_was_written() {
        let mut model = Model::default();
        let (first, right) = model.write_issued(SECTOR, Payload::Tags);
        model.write_acknowledged(first, true);
        model.add_possible(7, &[5; 512]);
        assert_eq!(model.why(7, &right), Some(Why::Written));
        assert_eq!(model.why(7, &[5; 512]), Some(Why::Reconstructed));
        assert_eq!(model.why(7, &[6; 512]), None);
        // A part of it stands on either.
        let (_, part) = model.write_issued(ByteRange::new(512 * 7, 100), Payload::Fill(3));
        let mut sector = [5; 512];
        sector[..100].copy_from_slice(&part);
        assert!(model.media_allows(7, &sector));
        sector[100] = 6;
        assert!(!model.media_allows(7, &sector));
        // The next of all of it does not.
        let (all, _) = model.write_issued(SECTOR, Payload::Fill(4));
        model.write_acknowledged(all, true);
        assert_eq!((model.why(7, &[5; 512]), model.why(7, &[4; 512])), (None, Some(Why::Written)));
    }

    #[test]
    fn part_of_a_sector_may_stand_on_what_was_there_before_a_failure() {
        let mut model = Model::default();
        let (a, _) = model.write_issued(SECTOR, Payload::Fill(1));
        let (b, _) = model.write_issued(ByteRange::new(512 * 7, 100), Payload::Fill(2));
        model.write_failed(a);
        model.write_acknowledged(b, false);
        let (c, _) = model.write_issued(SECTOR, Payload::Fill(3));
        model.write_failed(c);
        let (d, _) = model.write_issued(ByteRange::new(512 * 7, 50), Payload::Fill(2));
        model.write_acknowledged(d, false);
        for base in [0, 1, 3] {
            let mut sector = [base; 512];
            sector[..if base == 3 { 50 } else { 100 }].fill(2);
            assert!(read(&mut model.clone(), SECTOR, &sector).is_ok(), "{base}");
        }
        assert!(read(&mut model, SECTOR, &[1; 512]).is_err());
    }

    /// Found beyond the level without power cuts, seed 10939.
    #[test]
    fn part_of_a_sector_may_stand_on_what_was_there_before_two_failures_in_any_order() {
        for first in [0, 1] {
            let mut model = Model::default();
            let (a, _) = model.write_issued(SECTOR, Payload::Fill(1));
            model.write_acknowledged(a, false);
            let (b, _) = model.write_issued(SECTOR, Payload::Fill(2));
            let (c, _) = model.write_issued(SECTOR, Payload::Fill(3));
            model.write_issued(ByteRange::new(512 * 7, 100), Payload::Fill(4));
            let (b, c) = if first == 0 { (b, c) } else { (c, b) };
            model.write_failed(b);
            model.write_failed(c);
            for base in 0..4 {
                let mut sector = [base; 512];
                sector[..100].fill(4);
                assert_eq!(model.media_allows(7, &sector), base > 0, "{base}");
            }
        }
    }

    #[test]
    fn parts_of_a_sector_in_flight_together_happen_in_any_order() {
        let mut model = Model::default();
        let (a, _) = model.write_issued(ByteRange::new(0, 100), Payload::Fill(1));
        let (b, _) = model.write_issued(ByteRange::new(200, 100), Payload::Fill(2));
        model.write_acknowledged(b, false);
        let mut sector = [0; 512];
        sector[200..300].fill(2);
        assert!(model.media_allows(0, &sector), "the second alone");
        sector[..100].fill(1);
        assert!(model.media_allows(0, &sector), "both");
        sector[150] = 2;
        assert!(!model.media_allows(0, &sector), "a byte that nobody wrote there");
        model.write_acknowledged(a, false);
    }

    /// Parts are there as a whole or not at all, and those that were acknowledged are there.
    #[test]
    fn parts_do_not_tear_and_do_not_go_away() {
        let mut model = Model::default();
        let (_, _) = model.write_issued(ByteRange::new(0, 100), Payload::Fill(1));
        let (b, _) = model.write_issued(ByteRange::new(200, 100), Payload::Fill(2));
        let (c, _) = model.write_issued(ByteRange::new(250, 100), Payload::Fill(3));
        let whole = ByteRange::new(0, 512);
        let sector = |parts: &[(Range<usize>, u8)]| {
            let mut sector = [0; 512];
            parts.iter().for_each(|(range, byte)| sector[range.clone()].fill(*byte));
            sector
        };
        let before = model.read_issued(whole);
        model.write_acknowledged(b, false);
        let late = model.read_issued(whole);
        let done = |model: &Model, mark: &ReadMark, found: [u8; 512]| {
            let mut excuses = Excuses::default();
            let done = model.clone().read_done(mark, &found, |_| Vec::new(), &mut excuses);
            (done.is_ok(), excuses.read_mixed)
        };
        let second_alone = sector(&[(200..300, 2)]);
        assert_eq!(done(&model, &late, second_alone), (true, 1));
        let third_alone = sector(&[(250..350, 3)]);
        assert_eq!(done(&model, &before, third_alone), (true, 1));
        assert_eq!(done(&model, &late, third_alone), (false, 0), "the second was acknowledged");
        let both = sector(&[(200..300, 2), (250..350, 3)]);
        assert_eq!(done(&model, &late, both), (true, 1));
        let torn = sector(&[(200..300, 2), (250..351, 3)]);
        assert_eq!(done(&model, &late, torn), (false, 0), "a byte more than was written");
        let torn = sector(&[(0..50, 1), (200..300, 2)]);
        assert_eq!(done(&model, &late, torn), (false, 0), "half of a part");
        model.write_acknowledged(c, false);
    }

    #[test]
    fn what_ended_a_mixture_may_go_with_the_power_unless_it_was_flushed() {
        for flushed in [false, true] {
            let mut model = Model::default();
            let (a, _) = model.write_issued(ByteRange::new(0, 100), Payload::Fill(1));
            let (b, _) = model.write_issued(ByteRange::new(200, 100), Payload::Fill(2));
            model.write_acknowledged(b, false);
            model.write_acknowledged(a, false);
            let (all, _) = model.write_issued(ByteRange::new(0, 512), Payload::Fill(3));
            model.write_acknowledged(all, false);
            let mut second_alone = [0; 512];
            second_alone[200..300].fill(2);
            let whole = ByteRange::new(0, 512);
            assert!(read(&mut model.clone(), whole, &second_alone).is_err(), "it is overwritten");
            if flushed {
                let flush = model.flush_issued();
                model.flush_acknowledged(flush);
            }
            model.power_cut();
            assert_eq!(read(&mut model, whole, &second_alone).is_ok(), !flushed);
        }
    }

    #[test]
    fn a_byte_shows_in_the_tag_of_its_sector() {
        let mut model = Model::new(PayloadMode::Tags);
        let (all, whole) = model.write_issued(SECTOR, Payload::Tags);
        assert_eq!(whole, [tag(all, 7), tag(all, 7)].concat());
        model.write_acknowledged(all, false);
        let (one, byte) = model.write_issued(ByteRange::new(512 * 7 + 100, 1), Payload::Fill(9));
        assert_eq!(byte, [9]);
        model.write_acknowledged(one, false);
        let mut mixed = whole.clone();
        mixed[100 / 32] = 9;
        assert!(read(&mut model, SECTOR, &mixed).is_ok());
        assert_eq!(read(&mut model, SECTOR, &whole).unwrap_err().checker, "I1 durability");
    }

    #[test]
    fn bytes_of_a_sector_mix_in_order_of_issue() {
        let mut model = Model::default();
        let (a, _) = model.write_issued(ByteRange::new(0, 100), Payload::Fill(1));
        let (b, _) = model.write_issued(ByteRange::new(50, 100), Payload::Fill(2));
        model.write_acknowledged(a, false);
        model.write_acknowledged(b, false);
        let mut sector = [0; 512];
        sector[..50].fill(1);
        sector[50..150].fill(2);
        assert!(read(&mut model, ByteRange::new(0, 512), &sector).is_ok());
        assert!(read(&mut model, ByteRange::new(40, 20), &sector[40..60]).is_ok());
        sector[149] = 1;
        assert!(read(&mut model, ByteRange::new(0, 512), &sector).is_err());
    }
}
