//! Columns: the disks, and of one missing member what the others say it had.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use super::ext4::Super;
use crate::look::Looked;

/// Line of a disk; `None` if it cannot be read.
type Line = Option<Rc<[u8]>>;

/// Disks that are read in lines, of which the last [`LINES_MAX`] or fewer are kept.
pub(super) struct Columns<'a> {
    disks: &'a [Looked],
    missing: usize,
    lines: RefCell<BTreeMap<(usize, u64), Line>>,
    read: Cell<u64>,
}

impl<'a> Columns<'a> {
    pub(super) fn new(disks: &'a [Looked], missing: usize) -> Self {
        Self { disks, missing, lines: RefCell::default(), read: Cell::new(0) }
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

    pub(super) fn bytes_read(&self) -> u64 {
        self.read.get()
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
        if self.read.get() >= self.disks.len() as u64 * READ_MAX {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(len).ok()?];
        self.read.set(self.read.get() + len);
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
        found
    }

    /// Bytes that are read once and not kept; zeros for what cannot be read.
    fn piece(&self, column: usize, at: u64, len: usize) -> Vec<u8> {
        let mut sum = vec![0; len];
        let all = 0..self.disks.len();
        for disk in all.filter(|disk| !self.is_disk(column) || *disk == column) {
            let mut bytes = vec![0; len];
            self.read.set(self.read.get() + len as u64);
            if self.disks[disk].probe.read_exact_at(&mut bytes, at).is_ok() {
                sum.iter_mut().zip(bytes).for_each(|(sum, byte)| *sum ^= byte);
            }
        }
        sum
    }
}

/// Bytes of a line.
const LINE: u64 = 16 << 10;
/// Largest number of lines that are kept: 256 MiB.
const LINES_MAX: usize = 1 << 14;
/// Bytes that are read of each disk on average; what lies beyond counts as unreadable.
const READ_MAX: u64 = 1 << 30;
/// Bytes of a disk in which a superblock is searched: behind mdadm's largest usual data offset.
const SEARCH: u64 = 160 << 20;
/// Bytes that the search reads at once.
const PIECE: u64 = 1 << 20;
