//! Decisions of `weft image`: the bytes of a dying disk to read next, and the status of those read.
//!
//! Decides   the next read, from the map alone and the answers to the reads before it.
//! Why       a dying disk may give each sector only once, and its next sector not at all. What is
//!           easy to read comes first: large reads, away from bad areas.
//!
//! | phase | reads | after a failure |
//! |---|---|---|
//! | copying, pass 1 | blocks, forwards | skips 64 KiB, twice as much after each further failure |
//! | copying, pass 2 | the skipped blocks, backwards | the same |
//! | copying, pass 5 | the blocks that are left, forwards | goes on with the next block |
//! | trimming | sectors from both ends of each failed area, up to a bad one | the end is known |
//! | scraping | the sectors between these ends | goes on with the next sector |
//! | retrying | bad sectors, once in each pass | goes on with the next sector |
//!
//! A skip is at most 1 GiB or a hundredth of the disk. No read that failed in the passes is split
//! before trimming. The passes have ddrescue's numbers; its passes 3 and 4 are not needed, because
//! no area is skipped for being slow.
//!
//! A copy that is interrupted at any point and resumed with its map has the same result as a copy
//! without an interruption. Reads begin and end at multiples of the block, so the order of reads
//! does not change which blocks fail. While an area is trimmed, its ends that are known already are
//! recognised by the bad sectors beside them.
//!
//! No clock and no I/O: [`DiskCopy::next`] says what to read, [`DiskCopy::answer`] takes the
//! answer.
//!
//! Source   GNU ddrescue manual, "Algorithm" and "Mapfile structure"

use std::ops::Range;

use weft_runtime::mapfile::{Current, Mapfile, Status};

/// Settings of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Bytes of the disk to copy.
    pub(crate) domain: Range<u64>,
    /// Size of a read in the passes, in bytes: a multiple of `sector`.
    pub(crate) block: u64,
    /// Size of a sector in bytes.
    pub(crate) sector: u64,
    /// Whether the first pass goes backwards, and the second one forwards.
    pub(crate) is_reversed: bool,
    /// Whether sectors between the ends of failed areas are read one by one.
    pub(crate) scrapes: bool,
    /// Number of passes in which bad sectors are read again.
    pub(crate) retries: u32,
}

/// Phase of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Blocks are read, in this pass: 1, 2 or 5.
    Copy(u32),
    /// Sectors from both ends of failed areas are read.
    Trim,
    /// Sectors between the ends of failed areas are read.
    Scrape,
    /// Bad sectors are read again, in the pass of this number, from 1 on.
    Retry(u32),
    /// Nothing is left to read.
    End,
}

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Number of bytes that were read, from the start of the range on; the rest of the range
    /// failed.
    Read(u64),
    /// The whole read failed, or took too long.
    Failed,
}

/// State of the copy of a dying disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DiskCopy {
    map: Mapfile,
    settings: Settings,
    phase: Phase,
    /// Byte from which the phase continues, in ascending or descending order.
    position: u64,
    /// Number of bytes to skip after the next failure.
    skip: u64,
}

impl DiskCopy {
    /// Begins a copy, or resumes the copy that the map describes.
    pub(crate) fn new(map: Mapfile, settings: Settings) -> Self {
        assert!(settings.domain.end <= map.size() && settings.domain.start <= settings.domain.end);
        assert!(settings.sector > 0 && settings.block.is_multiple_of(settings.sector));
        let Current { position, phase, pass } = map.current;
        let (phase, position) = match (phase, pass) {
            ('?', 1 | 2) => (Phase::Copy(pass), Some(position)),
            ('?', _) => (Phase::Copy(SWEEP), Some(position)),
            ('/', _) => (Phase::Scrape, Some(position)),
            ('-', 1..) if pass <= settings.retries => (Phase::Retry(pass), Some(position)),
            // Any other state begins with the first pass, which skips areas that are done.
            _ => (Phase::Copy(1), None),
        };
        let skip = settings.block.max(SKIP_MIN);
        let mut disk_copy = Self { map, settings, phase, position: 0, skip };
        let domain = disk_copy.domain();
        let is_new = disk_copy.bytes(Status::NonTried) == domain.end - domain.start;
        let position = position.filter(|_| !is_new).unwrap_or_else(|| disk_copy.edge());
        disk_copy.position = position.clamp(domain.start, domain.end);
        disk_copy.go_back();
        disk_copy
    }

    /// Present map of the copy.
    pub(crate) fn map(&self) -> &Mapfile {
        &self.map
    }

    /// Phase of the copy.
    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Bytes of the disk to copy.
    pub(crate) fn domain(&self) -> Range<u64> {
        self.settings.domain.clone()
    }

    /// Number of bytes with a status, among the bytes to copy.
    pub(crate) fn bytes(&self, status: Status) -> u64 {
        if self.settings.domain == (0..self.map.size()) {
            return self.map.bytes(status);
        }
        let areas = self.map.areas_in(self.domain());
        areas.filter(|(_, it)| *it == status).map(|(area, _)| area.end - area.start).sum()
    }

    /// Bytes to read next: whole sectors, except at the end of the disk. `None` if nothing is left
    /// to do. Without an answer, the next call returns the same bytes.
    pub(crate) fn next(&mut self) -> Option<Range<u64>> {
        loop {
            let found = match self.phase {
                Phase::Copy(_) if self.is_backwards() => self.block_before(),
                Phase::Copy(_) => self.block_behind(),
                Phase::Trim => self.trimmed(),
                Phase::Scrape => self.sector_behind(Status::NonScraped),
                Phase::Retry(_) => self.sector_behind(Status::Bad),
                Phase::End => None,
            };
            if found.is_some() || self.phase == Phase::End {
                self.tell();
                return found;
            }
            self.phase = self.next_phase();
            self.position = self.edge();
            self.skip = self.settings.block.max(SKIP_MIN);
            self.tell();
        }
    }

    /// Records the answer to a read of `range`, which [`Self::next`] returned, in the map, and sets
    /// the position of the next read.
    pub(crate) fn answer(&mut self, range: &Range<u64>, answer: Answer) {
        let len = range.end - range.start;
        let good = match answer {
            Answer::Read(bytes) if bytes >= len => len,
            Answer::Read(bytes) => bytes / self.settings.sector * self.settings.sector,
            Answer::Failed => 0,
        };
        let rest = range.start + good..range.end;
        let is_bad = !rest.is_empty();
        self.map.set(range.start..rest.start, Status::Finished);
        let is_block = matches!(self.phase, Phase::Copy(_)) && len > self.settings.sector;
        self.map.set(rest, if is_block { Status::NonTrimmed } else { Status::Bad });
        let jump = if is_bad && self.skips() { self.skip } else { 0 };
        let domain = self.domain();
        self.position = match self.is_backwards() {
            // Areas are trimmed in order, and each from both ends.
            _ if self.phase == Phase::Trim => self.position,
            true if jump == 0 => range.start,
            true => self.block_start(range.start.saturating_sub(jump)).max(domain.start),
            false => self.block_start(range.end.saturating_add(jump)).max(range.end),
        };
        self.position = self.position.min(domain.end);
        self.skip = match is_bad {
            true => (self.skip * 2).min(self.skip_max()),
            false => self.settings.block.max(SKIP_MIN),
        };
        self.tell();
    }

    /// Forgets that a range was read, so that it is read again.
    pub(crate) fn forget(&mut self, range: Range<u64>) {
        self.map.set(range, Status::NonTried);
    }

    /// Records the phase and position of the copy in the map.
    fn tell(&mut self) {
        let (phase, pass) = match self.phase {
            Phase::Copy(pass) => ('?', pass),
            Phase::Trim => ('*', 1),
            Phase::Scrape => ('/', 1),
            Phase::Retry(pass) => ('-', pass),
            Phase::End => ('+', 1),
        };
        self.map.current = Current { position: self.position, phase, pass };
    }

    /// Returns to an earlier phase that still has something to read, for example because the
    /// earlier run copied another part of the disk.
    fn go_back(&mut self) {
        let has = |status| self.bytes(status) > 0;
        if matches!(self.phase, Phase::Copy(_)) {
            return;
        }
        self.phase = if has(Status::NonTried) {
            Phase::Copy(1)
        } else if has(Status::NonTrimmed) {
            Phase::Trim
        } else if self.settings.scrapes && has(Status::NonScraped) && self.phase != Phase::Scrape {
            Phase::Scrape
        } else {
            return;
        };
        self.position = self.edge();
    }

    fn next_phase(&self) -> Phase {
        match self.phase {
            Phase::Copy(1) => Phase::Copy(2),
            Phase::Copy(2) => Phase::Copy(SWEEP),
            // A resumed pass may have begun behind blocks that were not tried; it is then repeated.
            Phase::Copy(_) if self.bytes(Status::NonTried) > 0 => Phase::Copy(SWEEP),
            Phase::Copy(_) => Phase::Trim,
            Phase::Trim if self.settings.scrapes => Phase::Scrape,
            Phase::Scrape if self.bytes(Status::NonScraped) > 0 => Phase::Scrape,
            Phase::Trim | Phase::Scrape if self.settings.retries > 0 => Phase::Retry(1),
            Phase::Retry(pass) if pass < self.settings.retries => Phase::Retry(pass + 1),
            Phase::Trim | Phase::Scrape | Phase::Retry(_) | Phase::End => Phase::End,
        }
    }

    fn is_backwards(&self) -> bool {
        match self.phase {
            Phase::Copy(2) => !self.settings.is_reversed,
            Phase::Copy(_) => self.settings.is_reversed,
            Phase::Trim | Phase::Scrape | Phase::Retry(_) | Phase::End => false,
        }
    }

    /// Whether the phase skips bytes after a failure.
    fn skips(&self) -> bool {
        matches!(self.phase, Phase::Copy(1 | 2))
    }

    /// Byte at which the phase begins.
    fn edge(&self) -> u64 {
        if self.is_backwards() { self.settings.domain.end } else { self.settings.domain.start }
    }

    fn skip_max(&self) -> u64 {
        let most = (self.map.size() / 100).min(SKIP_MAX);
        most.max(self.settings.block).max(SKIP_MIN)
    }

    /// Start of the block that has the byte `at`.
    fn block_start(&self, at: u64) -> u64 {
        at / self.settings.block * self.settings.block
    }

    /// First area with a status in a range; `None` if there is none.
    fn first(&self, status: Status, range: Range<u64>) -> Option<Range<u64>> {
        self.map.areas_in(range).find(|(_, it)| *it == status).map(|(area, _)| area)
    }

    /// Next block that was not tried, in ascending order; `None` if none is left.
    fn block_behind(&self) -> Option<Range<u64>> {
        let area = self.first(Status::NonTried, self.position..self.settings.domain.end)?;
        let end = self.block_start(area.start).saturating_add(self.settings.block);
        Some(area.start..end.min(area.end))
    }

    /// Next block that was not tried, in descending order; `None` if none is left.
    fn block_before(&self) -> Option<Range<u64>> {
        let range = self.settings.domain.start..self.position.min(self.settings.domain.end);
        let mut areas = self.map.areas_in(range).rev();
        let (area, _) = areas.find(|(_, status)| *status == Status::NonTried)?;
        Some(self.block_start(area.end - 1).max(area.start)..area.end)
    }

    /// Next sector at an end of an area that failed; `None` if none is left. An area with both ends
    /// known becomes [`Status::NonScraped`].
    fn trimmed(&mut self) -> Option<Range<u64>> {
        loop {
            let area = self.first(Status::NonTrimmed, self.position..self.settings.domain.end)?;
            self.position = area.start;
            let is_bad =
                |at: Option<u64>| at.and_then(|at| self.map.status(at)) == Some(Status::Bad);
            if !is_bad(area.start.checked_sub(1)) {
                return Some(self.sector_at(area.start, area.end));
            }
            if !is_bad(Some(area.end)) {
                let start = (area.end - 1) / self.settings.sector * self.settings.sector;
                return Some(start.max(area.start)..area.end);
            }
            self.map.set(area, Status::NonScraped);
        }
    }

    /// Next sector with a status, in ascending order; `None` if none is left.
    fn sector_behind(&self, status: Status) -> Option<Range<u64>> {
        let area = self.first(status, self.position..self.settings.domain.end)?;
        Some(self.sector_at(area.start, area.end))
    }

    /// The range from `start` to the end of its sector, or to `end` if that comes first.
    fn sector_at(&self, start: u64, end: u64) -> Range<u64> {
        let next = start / self.settings.sector * self.settings.sector + self.settings.sector;
        start..next.min(end)
    }
}

/// Number of the last copying pass, as ddrescue counts them.
const SWEEP: u32 = 5;

/// Number of bytes to skip after a first failure, as ddrescue does.
const SKIP_MIN: u64 = 64 << 10;

/// Largest number of bytes to skip, as ddrescue has it.
const SKIP_MAX: u64 = 1 << 30;
