//! Versions of one sector in the model: the contents that it may have, and the contents that a read
//! may return.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::{Why, WriteId};
use crate::payload::PayloadMode;
use crate::violation::Violation;

#[derive(Clone, Debug)]
pub(super) struct Cell {
    /// Number of the oldest version that is kept.
    pub(super) first: u64,
    pub(super) versions: VecDeque<Version>,
    pub(super) read_floor: u64,
    pub(super) durable_floor: u64,
    /// Newest version that is stored on members because the write-back cache was drained (its dirty
    /// pages were written). A process crash does not lose it.
    pub(super) drained: u64,
    /// Acknowledged versions that are not durable, each with the model's count of acknowledgements
    /// when the version was acknowledged.
    pub(super) volatile: SmallVec<[(u64, u64); 1]>,
    /// Whether writes of parts of the sector were in flight together. Such writes may take effect
    /// in any order, so that each byte may belong to any of the versions. The state lasts until the
    /// whole sector is written.
    pub(super) mixed: bool,
    /// Number of the version that last ended the state `mixed`, a write of the whole sector; 0 if
    /// there was none. If a power cut undoes this write, the sector is mixed again.
    pub(super) unmixed_by: u64,
    /// Value of the model's `reconstructed` when the result of reconstructing this sector last
    /// changed.
    pub(super) reconstructed: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Version {
    pub(super) write: WriteId,
    /// Possible contents of the sector in this version. There may be several if the version changes
    /// only a part of the sector and an earlier version failed.
    pub(super) contents: SmallVec<[Content; 1]>,
    /// Number of `contents`, at the end of the list, that were never written but may result from
    /// reconstruction.
    pub(super) reconstructed: usize,
    /// Model's count of acknowledgements when this version was acknowledged; `None` for a version
    /// that was not acknowledged, or that a power cut or crash may have lost since.
    pub(super) acknowledged: Option<u64>,
    /// Part of the sector that the version changed; `None` for the whole sector.
    pub(super) patch: Option<Box<Patch>>,
    pub(super) failed: bool,
    /// Whether a power cut may have lost the version.
    pub(super) cut: bool,
    /// For a failed version: the model's count of reads when a read first returned this version;
    /// `None` if no read has. `gone` is the count when a later read first returned an older version
    /// in its place.
    pub(super) seen: Option<u64>,
    pub(super) gone: Option<u64>,
}

/// A write to a part of a sector.
#[derive(Clone, Debug)]
pub(super) struct Patch {
    /// First byte of the part within the 512 bytes of the sector.
    pub(super) offset: usize,
    /// Length in bytes.
    pub(super) len: usize,
    /// Byte range of the part within the representation of the sector.
    pub(super) place: Range<usize>,
    pub(super) content: Content,
}

impl Version {
    pub(super) fn whole(write: WriteId, content: Content) -> Self {
        let contents = smallvec![content];
        let (reconstructed, acknowledged) = (0, None);
        Self {
            write,
            contents,
            reconstructed,
            acknowledged,
            patch: None,
            failed: false,
            cut: false,
            seen: None,
            gone: None,
        }
    }

    pub(super) fn looks_like(&self, sector: u64, at: usize, bytes: &[u8]) -> bool {
        self.contents.iter().any(|content| content.looks_like(sector, at, bytes))
    }

    /// Whether `bytes`, from byte `at` of the sector's representation, match a content that was
    /// written; contents that can only result from reconstruction do not count.
    pub(super) fn was_written(&self, sector: u64, at: usize, bytes: &[u8]) -> bool {
        let written = self.contents.len() - self.reconstructed;
        self.contents[..written].iter().any(|content| content.looks_like(sector, at, bytes))
    }

    /// Whether the version changed a byte, given by its offset in the representation of the sector.
    pub(super) fn covers(&self, place: usize) -> bool {
        self.patch.as_ref().is_none_or(|patch| patch.place.contains(&place))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Bytes(Arc<[u8]>),
    Fill(u8),
    /// Tags of a write that covers only a part of the sector; `Tags` cover the whole sector.
    Part(WriteId),
    Tags(WriteId),
}

impl Content {
    /// Appends the bytes of `place`, a part of the representation of the sector.
    pub(super) fn write(&self, sector: u64, place: Range<usize>, into: &mut Vec<u8>) {
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

    pub(super) fn bytes(&self, sector: u64, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len);
        self.write(sector, 0..len, &mut bytes);
        bytes
    }

    pub(super) fn looks_like(&self, sector: u64, at: usize, bytes: &[u8]) -> bool {
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

/// Word that fills a tagged sector: 24 bits of the write's number and 32 of the sector's, seven
/// bits in each byte, with the top bit of the byte set. Each byte of a sector shows by its value
/// whether it is zero, belongs to a write of a part (1 to 127) or belongs to a write of the whole
/// sector. The comparison of two contents therefore gives the same result at every offset and for
/// every number of bytes that represents a sector.
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

/// Number of the write and number of the sector that a tag word encodes; `None` if `word` is no tag
/// word.
pub(super) fn untag(word: [u8; 8]) -> Option<(u64, u64)> {
    let set = word.iter().all(|byte| byte & 0x80 != 0);
    let bits = word.iter().rev().fold(0, |bits, byte| bits << 7 | u64::from(byte & 0x7f));
    set.then_some((bits >> 32, bits & 0xffff_ffff))
}

/// Byte at offset `at` in a tagged part of a sector.
pub(super) fn tag_byte(write: WriteId, sector: u64, at: usize) -> u8 {
    1 + ((u64::from(write.0) + sector + at as u64) % 127) as u8
}

impl Cell {
    pub(super) fn new() -> Self {
        // Most sectors have one or two versions.
        let mut versions = VecDeque::with_capacity(2);
        versions.push_back(Version::whole(WriteId(0), Content::Fill(0)));
        Self {
            first: 0,
            versions,
            read_floor: 0,
            durable_floor: 0,
            drained: 0,
            volatile: SmallVec::new(),
            mixed: false,
            unmixed_by: 0,
            reconstructed: 0,
        }
    }

    pub(super) fn last(&self) -> u64 {
        self.first + self.versions.len() as u64 - 1
    }

    /// Whether a version changed only a part of the sector; false if the version is no longer kept.
    pub(super) fn is_patch(&self, number: u64) -> bool {
        let index = (number - self.first) as usize;
        self.versions.get(index).is_some_and(|version| version.patch.is_some())
    }

    pub(super) fn from(&self, floor: u64) -> impl Iterator<Item = (u64, &Version)> {
        (self.first..).zip(&self.versions).skip_while(move |(number, _)| *number < floor)
    }

    /// Whether the version is acknowledged and durable, so that no power cut can undo it.
    pub(super) fn is_settled(&self, number: u64) -> bool {
        let version = &self.versions[(number - self.first) as usize];
        let volatile = self.volatile.iter().any(|(other, _)| *other == number);
        number <= self.durable_floor && version.acknowledged.is_some() && !volatile
    }

    /// Drops versions that reads may no longer return. While parts of writes may be mixed, a
    /// version is dropped only once the next version, or a later write of the whole sector, is
    /// acknowledged and durable: each part may be stored without the parts before it.
    pub(super) fn prune(&mut self) {
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

    /// Adds a content to the newest version, as a possible result of reconstruction.
    pub(super) fn add_possible(&mut self, content: Content) {
        let newest = self.versions.back_mut().expect("a cell is never empty");
        if !newest.contents.contains(&content) {
            newest.contents.push(content);
            newest.reconstructed += 1;
        }
    }

    /// Possible contents of the sector after version `index`, a write of a part of the sector
    /// (`patch`). The rest of the sector has the content of the version before. If this earlier
    /// version failed, or a power cut may have lost it, the rest may also have the content of the
    /// next older version, and so on down to a version that is certainly stored.
    pub(super) fn patched(
        &self,
        index: usize,
        sector: u64,
        patch: &Patch,
        payload: PayloadMode,
    ) -> SmallVec<[Content; 1]> {
        let mut contents = SmallVec::new();
        for index in (0..index.min(self.versions.len())).rev() {
            let (number, version) = (self.first + index as u64, &self.versions[index]);
            for base in &version.contents {
                let content = patched(base, sector, patch, payload);
                if !contents.contains(&content) {
                    contents.push(content);
                }
            }
            // A version that a read has returned since the cut was not lost.
            let was_lost = version.cut && number > self.read_floor;
            if !version.failed && !was_lost {
                break;
            }
        }
        contents
    }

    /// Records that a version failed: its write may or may not have happened.
    pub(super) fn fail(&mut self, number: u64, sector: u64, payload: PayloadMode) {
        let Some(index) = number.checked_sub(self.first).map(|index| index as usize) else {
            return;
        };
        let Some(version) = self.versions.get_mut(index) else { return };
        version.failed = true;
        // A later write of a part may apply to the content before the failed version.
        for later in index + 1..self.versions.len() {
            let version = &self.versions[later];
            match version.patch.clone() {
                Some(patch) => {
                    self.versions[later].contents = self.patched(later, sector, &patch, payload);
                }
                None if version.failed => {}
                None => break,
            }
        }
    }

    /// Records a drain of the write-back cache: all versions acknowledged up to the model's count
    /// `count` are stored on members.
    pub(super) fn drained(&mut self, count: u64) {
        let covered = self.volatile.iter().filter(|(_, at)| *at <= count);
        self.drained = covered.map(|(number, _)| *number).fold(self.drained, u64::max);
    }

    /// Records a power cut. Every acknowledged version that is not durable counts as not
    /// acknowledged, because the cut may have lost it. Failed versions no longer count as failed,
    /// but as versions that the cut may have lost.
    pub(super) fn take_back(&mut self) {
        self.drained = 0;
        let kept = self.take_back_but_drained();
        for (number, version) in (self.first..).zip(&mut self.versions) {
            (version.failed, version.seen, version.gone) = (false, None, None);
            version.cut = number > kept;
        }
    }

    /// Counts every acknowledged version that is neither durable nor stored by a drain of the
    /// write-back cache as not acknowledged. Returns the number of the newest version that is
    /// certainly kept; newer versions may be kept or lost.
    pub(super) fn take_back_but_drained(&mut self) -> u64 {
        let kept = self.durable_floor.max(self.drained);
        self.read_floor = kept;
        let covered = self.durable_floor + 1..=kept;
        let (stays, gone) =
            self.volatile.drain(..).partition(|(number, _)| covered.contains(number));
        self.volatile = stays;
        for (number, _) in gone {
            if let Some(index) = number.checked_sub(self.first)
                && let Some(version) = self.versions.get_mut(index as usize)
            {
                version.acknowledged = None;
            }
        }
        self.mixed |= kept < self.unmixed_by;
        kept
    }

    /// Number of the newest version from `floor` on that matches `bytes` at `offset` of the sector,
    /// with the reason why it may be read; `None` if none matches. If writes of parts were in
    /// flight together, every mixture matches, as the newest version, in which all versions
    /// acknowledged up to the count `acknowledged` have taken effect.
    pub(super) fn find(
        &self,
        (floor, acknowledged): (u64, u64),
        sector: u64,
        offset: usize,
        bytes: &[u8],
    ) -> Option<(u64, Why)> {
        let skipped = floor.saturating_sub(self.first) as usize;
        let newest_first = (skipped..self.versions.len()).rev();
        let mut versions = newest_first.map(|index| (index, &self.versions[index]));
        let found = versions.find(|(_, version)| version.looks_like(sector, offset, bytes));
        if let Some((index, version)) = found {
            let written = version.was_written(sector, offset, bytes)
                || versions.any(|(_, other)| other.was_written(sector, offset, bytes));
            let why = if written { Why::Written } else { Why::Reconstructed };
            return Some((self.first + index as u64, why));
        }
        if !self.mixed {
            return None;
        }
        let why = self.mixes(acknowledged, sector, offset, bytes)?;
        Some((self.last(), why))
    }

    /// Records that a read returned this version and no other version matches. `issued` is the
    /// count of reads when the read was issued, `now` the count when it returned. Returns an error
    /// if the version failed, was returned by an earlier read, and had disappeared before this read
    /// was issued.
    pub(super) fn saw(&mut self, number: u64, issued: u64, now: u64) -> Result<(), WriteId> {
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

    /// Allows failed versions to disappear although a read has returned them: reads may again
    /// return the last version before them that did not fail.
    pub(super) fn forget_failed(&mut self) {
        let seen = self.versions.iter().take((self.read_floor + 1 - self.first) as usize);
        let failed = seen.rev().take_while(|version| version.failed).count() as u64;
        self.read_floor = self.read_floor.saturating_sub(failed).max(self.first);
    }

    /// Reason why `bytes` may be content of the sector after writes of parts were in flight
    /// together; `None` if no combination of the versions gives `bytes`. Each version, in order,
    /// takes effect as a whole or not at all; versions acknowledged up to the count `acknowledged`
    /// do take effect.
    pub(super) fn mixes(
        &self,
        acknowledged: u64,
        sector: u64,
        offset: usize,
        bytes: &[u8],
    ) -> Option<Why> {
        let must = |version: &Version| version.acknowledged.is_some_and(|it| it <= acknowledged);
        let later = || self.versions.iter().skip(1);
        if later().filter(|version| !must(version)).count() > PARTS_MAX {
            // Each byte belongs to the last acknowledged version that changed it, or to a later
            // version.
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

    /// Number of the newest version from `floor` on that differs from `bytes` by one of `errors`
    /// (XOR); `None` if there is none. If parts of the sector were written, some bytes may be
    /// right, because such a write may have replaced them.
    pub(super) fn find_off(
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

    /// Whether no version of the sector is in flight and no version can be undone. The content that
    /// a read returned may then become the only version.
    pub(super) fn is_quiet(&self) -> bool {
        self.volatile.is_empty()
            && self.last() <= self.read_floor
            && self.versions.iter().all(|version| !version.failed)
    }
}

/// Largest number of unacknowledged versions of a sector for which all combinations are tried.
const PARTS_MAX: usize = 10;

pub(super) fn patched(base: &Content, sector: u64, patch: &Patch, payload: PayloadMode) -> Content {
    let mut mixed = base.bytes(sector, payload.sector_bytes());
    let mut fresh = Vec::with_capacity(patch.place.len());
    patch.content.write(sector, patch.place.clone(), &mut fresh);
    mixed[patch.place.clone()].copy_from_slice(&fresh);
    Content::Bytes(mixed.into())
}

pub(super) fn collapse(cell: &mut Cell, content: Content) {
    let write = cell.versions.back().expect("a cell is never empty").write;
    let number = cell.last() + 1;
    *cell = Cell {
        first: number,
        versions: VecDeque::from([Version::whole(write, content)]),
        read_floor: number,
        durable_floor: number,
        drained: 0,
        volatile: SmallVec::new(),
        mixed: false,
        unmixed_by: 0,
        reconstructed: 0,
    };
}

pub(super) fn came_back(sector: u64, write: WriteId) -> Violation {
    let write = write.0;
    let message = format!(
        "sector {sector} reads as write {write} again, which failed, was seen, and was not there any more"
    );
    Violation::new("I3 stable reads", message)
}

pub(super) fn explain(
    cell: &Cell,
    sector: u64,
    floor: u64,
    older: Option<u64>,
    found: &[u8],
) -> Violation {
    let allowed: Vec<u32> = cell.from(floor).map(|(_, version)| version.write.0).collect();
    let word = found.first_chunk().copied().unwrap_or_default();
    let same = found.chunks(8).all(|chunk| chunk == &word[..chunk.len()]);
    let tag = untag(word).filter(|_| same);
    let is_zero = found.iter().all(|byte| *byte == 0);
    let looks = match tag {
        _ if is_zero => "zeros".to_owned(),
        Some((write, of)) => format!("write {write} at sector {of}"),
        None => format!("a mixture that begins with {:02x?}", &found[..found.len().min(8)]),
    };
    // `older` is set if a version that is still kept matches, although reads may no longer return
    // it. A version that was dropped is recognized by its tag; the initial content, before any
    // write, by its zeros.
    let older =
        older.map(|number| u64::from(cell.versions[(number - cell.first) as usize].write.0));
    let first = u64::from(cell.versions.front().expect("a cell is never empty").write.0);
    let forgotten = tag.filter(|(write, of)| *of == sector && *write < first);
    let unwritten = (is_zero && cell.first > 0).then_some(0);
    match older.or(forgotten.map(|(write, _)| write)).or(unwritten) {
        Some(write) => Violation::new(
            "I1 durability",
            format!(
                "sector {sector} reads as write {write}, which is older than allowed: writes \
                 {allowed:?}"
            ),
        ),
        None => Violation::new(
            "I2 old or new",
            format!("sector {sector} reads as {looks}; allowed are writes {allowed:?}"),
        ),
    }
}
