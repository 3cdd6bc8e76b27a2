//! Columns: the disks, and each missing member as a column with content computed from the disks.
//!
//! Content is computed for one missing member only. With one parity it is the XOR of all disks.
//! With two it is the XOR of all disks but the one that has Q in that stripe; which disk that is
//! depends on the order, so each disk is left out in turn.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use weft_parity::Parity;

use crate::look::Looked;

/// Cached run of [`LINE`] bytes of a disk, shorter at the end of the disk; `None` if it cannot be
/// read.
type Line = Option<Rc<[u8]>>;

/// Disks that are read through a cache of lines. The cache is emptied when it is full.
pub(super) struct Columns {
    disks: Vec<Looked>,
    missing: usize,
    lines: RefCell<BTreeMap<(usize, u64), Line>>,
    /// Number of bytes that were read of each disk.
    read: Vec<Cell<u64>>,
    /// Largest number of bytes that may be read of one disk.
    limit: Cell<u64>,
    /// Whether a read was refused because of the limit.
    is_limited: Cell<bool>,
}

impl Columns {
    pub(super) fn new(disks: Vec<Looked>, missing: usize) -> Self {
        let read = disks.iter().map(|_| Cell::new(0)).collect();
        let (limit, is_limited) = (Cell::new(READ_MAX), Cell::new(false));
        Self { disks, missing, lines: RefCell::default(), read, limit, is_limited }
    }

    /// Size of the smallest disk in bytes.
    pub(super) fn smallest(&self) -> u64 {
        self.disks.iter().map(|disk| disk.probe.size().bytes().0).min().unwrap_or(0)
    }

    /// Number of members, missing ones too.
    pub(super) fn slots(&self) -> usize {
        self.disks.len() + self.missing
    }

    /// Number of sources of bytes at a level with this number of parities. Each disk is a source
    /// for its own column; each way to compute the one missing member from the disks is a further
    /// source.
    pub(super) fn sources(&self, parities: u32) -> usize {
        let disks = self.disks.len();
        match (self.missing, parities) {
            (1, 1) => disks + 1,
            // With two parities, Q may be on any of the disks, which is then left out of the XOR.
            (1, 2) => 2 * disks,
            _ => disks,
        }
    }

    /// Column for which a source has the bytes: that of the disk or, for each further source, that
    /// of the missing member.
    pub(super) fn column_of(&self, source: usize) -> usize {
        source.min(self.disks.len())
    }

    pub(super) fn is_disk(&self, column: usize) -> bool {
        column < self.disks.len()
    }

    /// Whether the content of a column can be read or computed.
    pub(super) fn is_readable(&self, column: usize, parities: u32) -> bool {
        self.is_disk(column) || column < self.sources(parities)
    }

    /// Number of bytes that were read from all disks together.
    pub(super) fn bytes_read(&self) -> u64 {
        self.read.iter().map(Cell::get).sum()
    }

    /// Whether a read was refused because its disk had reached the limit of bytes that may be read.
    pub(super) fn is_limited(&self) -> bool {
        self.is_limited.get()
    }

    /// Sets the limit of bytes that may be read of each disk to this percentage of [`READ_MAX`].
    /// The rest is kept for later rounds.
    pub(super) fn allow(&self, percent: u64) {
        self.limit.set(READ_MAX / 100 * percent);
    }

    /// Counts bytes that are about to be read of a disk. `None`, without counting them, if they
    /// would exceed the limit.
    fn count(&self, disk: usize, len: u64) -> Option<()> {
        let read = self.read.get(disk)?;
        if read.get() + len > self.limit.get() {
            self.is_limited.set(true);
            return None;
        }
        read.set(read.get() + len);
        Some(())
    }

    /// The bytes `at..at + len` of a source; `None` if they cannot be read.
    pub(super) fn read(
        &self,
        source: usize,
        at: u64,
        len: usize,
        parities: u32,
    ) -> Option<Vec<u8>> {
        if source >= self.sources(parities) {
            return None;
        }
        if !self.is_disk(source) {
            let without = (parities == 2).then(|| source - self.disks.len());
            let disks = (0..self.disks.len()).filter(|it| Some(*it) != without);
            return self.sum(disks, at, len);
        }
        self.disk(source, at, len)
    }

    /// XOR of the bytes `at..at + len` of some disks; `None` if one of them cannot be read.
    pub(super) fn sum(
        &self,
        mut disks: impl Iterator<Item = usize>,
        at: u64,
        len: usize,
    ) -> Option<Vec<u8>> {
        disks.try_fold(vec![0; len], |mut sum, disk| {
            Parity::detect().xor_into(&mut sum, &self.disk(disk, at, len)?);
            Some(sum)
        })
    }

    /// The bytes `at..at + len` of a disk; `None` if they cannot be read.
    pub(super) fn disk(&self, disk: usize, at: u64, len: usize) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let next = at.checked_add(bytes.len() as u64)?;
            let line = self.line(disk, next / LINE)?;
            let within = usize::try_from(next % LINE).ok()?;
            let part = line.get(within..).filter(|part| !part.is_empty())?;
            bytes.extend_from_slice(&part[..part.len().min(len - bytes.len())]);
        }
        Some(bytes)
    }

    fn line(&self, column: usize, number: u64) -> Line {
        if let Some(line) = self.lines.borrow().get(&(column, number)) {
            return line.clone();
        }
        let probe = &self.disks.get(column)?.probe;
        let start = number * LINE;
        let len = LINE.min(probe.size().bytes().0.checked_sub(start)?);
        self.count(column, len)?;
        let mut bytes = vec![0; usize::try_from(len).ok()?];
        let line = probe.read_exact_at(&mut bytes, start).ok().map(|()| Rc::from(bytes));
        let mut lines = self.lines.borrow_mut();
        if lines.len() >= LINES_MAX {
            lines.clear();
        }
        lines.insert((column, number), line.clone());
        line
    }

    /// Reads a range of all disks once, part by part, without caching it. Calls `visit` with the
    /// byte offset and the bytes of each part of each disk and, if one member is missing, of each
    /// content that it may have had. Bytes that cannot be read are passed as zeros.
    pub(super) fn scan(&self, range: Range<u64>, visit: &mut dyn FnMut(u64, &[u8])) {
        let end = range.end.min(self.smallest());
        for at in (range.start..end).step_by(PIECE) {
            let len = PIECE.min(usize::try_from(end - at).unwrap_or(PIECE));
            let read = |disk: usize| {
                let mut bytes = vec![0; len];
                if self.count(disk, len as u64).is_none()
                    || self.disks[disk].probe.read_exact_at(&mut bytes, at).is_err()
                {
                    bytes.fill(0);
                }
                bytes
            };
            let pieces: Vec<Vec<u8>> = (0..self.disks.len()).map(read).collect();
            pieces.iter().for_each(|piece| visit(at, piece));
            if self.missing == 1 {
                let mut sum = vec![0; len];
                pieces.iter().for_each(|piece| Parity::detect().xor_into(&mut sum, piece));
                visit(at, &sum);
                // With two parities, the missing member is the XOR without the disk that has Q
                // there.
                for piece in pieces.iter().filter(|_| pieces.len() >= 3) {
                    let mut rest = sum.clone();
                    Parity::detect().xor_into(&mut rest, piece);
                    visit(at, &rest);
                }
            }
        }
    }
}

/// Size of a line of the cache, in bytes.
const LINE: u64 = 16 << 10;
/// Largest number of lines in the cache: 256 MiB.
const LINES_MAX: usize = 16 << 10;
/// Largest number of bytes that are read of one disk: 1 GiB.
const READ_MAX: u64 = 1 << 30;
/// Number of bytes that a scan reads of a disk at once.
const PIECE: usize = 1 << 20;
