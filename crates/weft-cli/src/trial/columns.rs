//! Columns: the disks, and of one missing member what the others say it had.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use super::ext4::Super;
use crate::look::Looked;

/// Line of a disk; `None` if it cannot be read.
type Line = Option<Rc<[u8]>>;

/// Disks that are read in lines, which are kept as long as there is room.
pub(super) struct Columns<'a> {
    disks: &'a [Looked],
    missing: usize,
    lines: RefCell<BTreeMap<(usize, u64), Line>>,
    /// Number of bytes that were read of each disk.
    read: Vec<Cell<u64>>,
    /// Whether a read was left out because of [`READ_MAX`].
    is_limited: Cell<bool>,
}

impl<'a> Columns<'a> {
    pub(super) fn new(disks: &'a [Looked], missing: usize) -> Self {
        let read = disks.iter().map(|_| Cell::new(0)).collect();
        Self { disks, missing, lines: RefCell::default(), read, is_limited: Cell::new(false) }
    }

    /// Size of the smallest disk in bytes.
    pub(super) fn smallest(&self) -> u64 {
        self.disks.iter().map(|disk| disk.probe.size().bytes().0).min().unwrap_or(0)
    }

    /// Number of columns that can be read: disks, and one missing member.
    pub(super) fn readable(&self) -> usize {
        self.disks.len() + usize::from(self.missing == 1)
    }

    pub(super) fn is_disk(&self, column: usize) -> bool {
        column < self.disks.len()
    }

    /// Whether a column can be read, also if that takes the XOR of all disks.
    pub(super) fn is_readable(&self, column: usize, can_xor: bool) -> bool {
        self.is_disk(column) || can_xor && column < self.readable()
    }

    /// Number of bytes that were read of all disks.
    pub(super) fn bytes_read(&self) -> u64 {
        self.read.iter().map(Cell::get).sum()
    }

    /// Whether something was not read because as much of its disk had been read as is allowed.
    pub(super) fn is_limited(&self) -> bool {
        self.is_limited.get()
    }

    /// Counts bytes that are about to be read of a disk; `None` if these would be too many.
    fn count(&self, disk: usize, len: u64) -> Option<()> {
        let read = self.read.get(disk)?;
        if read.get() + len > READ_MAX {
            self.is_limited.set(true);
            return None;
        }
        read.set(read.get() + len);
        Some(())
    }

    /// The bytes `at..at + len` of a column; `None` if they cannot be read.
    pub(super) fn read(
        &self,
        column: usize,
        at: u64,
        len: usize,
        can_xor: bool,
    ) -> Option<Vec<u8>> {
        if !self.is_readable(column, can_xor) {
            return None;
        }
        if !self.is_disk(column) {
            let mut sum = vec![0; len];
            for disk in 0..self.disks.len() {
                let bytes = self.read(disk, at, len, false)?;
                sum.iter_mut().zip(bytes).for_each(|(sum, byte)| *sum ^= byte);
            }
            return Some(sum);
        }
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let next = at.checked_add(bytes.len() as u64)?;
            let line = self.line(column, next / LINE)?;
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

    /// First superblocks of ext4 in the first bytes of a column, each with its byte.
    pub(super) fn superblocks(&self, column: usize) -> Vec<(u64, Super)> {
        let mut found = Vec::new();
        let mut at = 0;
        while at < SEARCH.min(self.smallest()) {
            let len = usize::try_from(PIECE.min(self.smallest() - at)).unwrap_or(0);
            let piece = self.piece(column, at, len);
            for (block, byte) in piece.chunks_exact(1024).zip((at..).step_by(1024)) {
                found.extend(Super::of(block).map(|it| (byte, it)));
            }
            at += PIECE;
        }
        found.truncate(FOUND_MAX);
        found
    }

    /// Bytes that are read once and not kept; zeros for what cannot be read.
    fn piece(&self, column: usize, at: u64, len: usize) -> Vec<u8> {
        let mut sum = vec![0; len];
        let all = 0..self.disks.len();
        for disk in all.filter(|disk| !self.is_disk(column) || *disk == column) {
            let mut bytes = vec![0; len];
            if self.count(disk, len as u64).is_none() {
                continue;
            }
            if self.disks[disk].probe.read_exact_at(&mut bytes, at).is_ok() {
                sum.iter_mut().zip(bytes).for_each(|(sum, byte)| *sum ^= byte);
            }
        }
        sum
    }
}

/// Bytes of a line.
const LINE: u64 = 16 << 10;
/// Number of lines that are kept: 256 MiB.
const LINES_MAX: usize = 16 << 10;
/// Bytes of a disk in which a superblock is searched: behind mdadm's largest usual data offset.
pub(crate) const SEARCH: u64 = 160 << 20;
/// Number of superblocks of one column that are tried: copies of images, or a journal, may have
/// many.
const FOUND_MAX: usize = 64;
/// Largest number of bytes that are read of one disk: 1 GiB.
const READ_MAX: u64 = 1 << 30;
/// Bytes that the search reads at once.
const PIECE: u64 = 1 << 20;
