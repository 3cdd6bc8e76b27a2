//! Journal of ext3 and ext4, replayed in memory.
//!
//! Committed transactions are read from the start that the journal's superblock names to the first
//! block that does not continue the log. Each block that they hold replaces one of the file system,
//! unless a later transaction revokes it; [`Replayed`] is the device with these blocks in place.
//! Nothing is written. Fast commits are not replayed; a note says so.
//!
//! Source   Linux documentation, "ext4 Data Structures and Algorithms", "Journal (jbd2)"

use std::collections::BTreeMap;
use std::rc::Rc;

use weft_ondisk::crc::crc32c_raw;

use super::superblock::Superblock;
use crate::bytes::{array, be16, be32, be64, part};
use crate::source::{ReadError, Shared, Source, read_vec};
use crate::tree::{PieceBytes, Pieces, TreeError};

/// A device of which blocks are replaced by their copies in the journal.
pub(super) struct Replayed {
    of: Shared,
    block_bytes: u64,
    /// Copies in the journal, by the number of the file system's block that each replaces.
    pub(super) blocks: BTreeMap<u64, Logged>,
}

/// Copy of a block in the journal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Logged {
    /// Byte offset of the copy on the device.
    at: u64,
    /// Whether the block begins with the magic number of the journal. The copy has zeros in place
    /// of this number.
    is_escaped: bool,
}

impl Replayed {
    /// The device `of` with no block replaced.
    pub(super) fn nothing(of: &Shared, block_bytes: u64) -> Self {
        Self { of: Rc::clone(of), block_bytes, blocks: BTreeMap::new() }
    }

    /// Reads a part of a block from its copy.
    fn read_logged(&self, logged: Logged, within: u64, into: &mut [u8]) -> Result<(), ReadError> {
        if !logged.is_escaped {
            return self.of.read_at(logged.at + within, into);
        }
        let mut block = read_vec(&*self.of, logged.at, self.block_bytes)?;
        block[..4].copy_from_slice(&MAGIC.to_be_bytes());
        let from = usize::try_from(within).unwrap_or(usize::MAX);
        into.copy_from_slice(part(&block, from, into.len()));
        Ok(())
    }
}

impl Source for Replayed {
    fn size(&self) -> u64 {
        self.of.size()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
        let end = offset.saturating_add(into.len() as u64);
        let mut done = offset;
        while done < end {
            let left = &mut into[usize::try_from(done - offset).unwrap_or(0)..];
            let block = done / self.block_bytes;
            let next = self.blocks.range(block..).next();
            let start = next.map_or(end, |(block, _)| block * self.block_bytes).min(end);
            if let Some((_, logged)) = next.filter(|_| start <= done && done < end) {
                let within = done - start;
                let len = (self.block_bytes - within).min(end - done);
                let part = &mut left[..usize::try_from(len).unwrap_or(0)];
                self.read_logged(*logged, within, part).map_err(|error| ReadError {
                    range: done..done + len,
                    why: format!("in the journal: {}", error.why),
                })?;
                done += len;
            } else {
                let part = &mut left[..usize::try_from(start - done).unwrap_or(0)];
                self.of.read_at(done, part)?;
                done = start;
            }
        }
        Ok(())
    }
}

/// Result of reading a journal: copies of the file system's blocks, and notes for the user.
pub(super) struct Found {
    pub(super) blocks: BTreeMap<u64, Logged>,
    /// Whether all of the journal could be read and used.
    pub(super) is_whole: bool,
    pub(super) notes: Vec<String>,
}

/// Reads the journal from the content of its inode.
///
/// # Errors
/// The superblock of the journal is not valid, or names a feature that is not known.
pub(super) fn read(
    source: &dyn Source,
    superblock: &Superblock,
    pieces: &Pieces,
) -> Result<Found, TreeError> {
    let mut log = Log::open(source, superblock, pieces)?;
    let mut found = Found { blocks: BTreeMap::new(), is_whole: true, notes: Vec::new() };
    if log.start == 0 {
        return Ok(found);
    }
    log.scan();
    let (mut revoked, mut replayed) = (BTreeMap::new(), 0_u32);
    for (block, transaction) in &log.revoked {
        let last = revoked.entry(*block).or_insert(*transaction);
        *last = (*last).max(*transaction);
    }
    for (transaction, blocks) in (0_u32..).zip(&log.committed) {
        replayed += 1;
        for (block, logged) in blocks {
            if revoked.get(block).is_none_or(|last| *last < transaction) {
                found.blocks.insert(*block, *logged);
            }
        }
    }
    if replayed > 0 {
        found.notes.push(format!(
            "was not unmounted: {replayed} transactions of its journal are replayed in memory"
        ));
    }
    // Each note of the log is about something that is not replayed.
    found.is_whole = log.notes.is_empty();
    found.notes.append(&mut log.notes);
    Ok(found)
}

/// A journal while it is read.
struct Log<'s> {
    source: &'s dyn Source,
    pieces: &'s Pieces,
    block_bytes: u64,
    /// Number of blocks of the file system.
    fs_blocks: u64,
    /// First block of the log, and the one after its last.
    first: u64,
    end: u64,
    /// Block of the first transaction; 0 if there is none.
    start: u64,
    sequence: u32,
    form: Form,
    uuid: [u8; 16],
    /// Numbers and copies of the blocks of each committed transaction, in order.
    committed: Vec<Vec<(u64, Logged)>>,
    /// Numbers of revoked blocks, each with the index of the transaction that revokes it.
    revoked: Vec<(u64, u32)>,
    notes: Vec<String>,
}

/// Format of tags and checksums, from the features of the journal.
#[derive(Clone, Copy)]
struct Form {
    wide: bool,
    sums2: bool,
    sums3: bool,
}

impl Form {
    fn has_sums(self) -> bool {
        self.sums2 || self.sums3
    }

    fn tag_bytes(self) -> usize {
        match self {
            Self { sums3: true, .. } => 16,
            _ => 8 + if self.wide { 4 } else { 0 } + if self.sums2 { 2 } else { 0 },
        }
    }
}

impl<'s> Log<'s> {
    fn open(
        source: &'s dyn Source,
        superblock: &Superblock,
        pieces: &'s Pieces,
    ) -> Result<Self, TreeError> {
        let mut log = Self {
            source,
            pieces,
            block_bytes: superblock.block_bytes,
            fs_blocks: superblock.blocks,
            first: 1,
            end: 0,
            start: 0,
            sequence: 0,
            form: Form { wide: false, sums2: false, sums3: false },
            uuid: [0; 16],
            committed: Vec::new(),
            revoked: Vec::new(),
            notes: Vec::new(),
        };
        let at = log.place(0).ok_or_else(|| {
            TreeError::damaged("journal", "no block", "its superblock in the first one")
        })?;
        let bytes = read_vec(source, at, 1024)?;
        let wrong = |field: &str, found: &dyn ToString, expected: &str| {
            Err(TreeError::damaged(format!("journal, {field}"), found.to_string(), expected))
        };
        let kind = be32(&bytes, 4);
        if be32(&bytes, 0) != MAGIC || !matches!(kind, SUPERBLOCK_V1 | SUPERBLOCK_V2) {
            return wrong("magic", &format!("{:#x}", be32(&bytes, 0)), "0xc03b3998");
        }
        if u64::from(be32(&bytes, 12)) != log.block_bytes {
            return wrong("s_blocksize", &be32(&bytes, 12), "that of the file system");
        }
        log.end = u64::from(be32(&bytes, 16));
        log.first = u64::from(be32(&bytes, 20));
        log.sequence = be32(&bytes, 24);
        log.start = u64::from(be32(&bytes, 28));
        if kind == SUPERBLOCK_V2 {
            let features = be32(&bytes, 40);
            if features & !FEATURES != 0 {
                return wrong("features", &format!("{features:#x}"), "no unknown ones");
            }
            log.form = Form {
                wide: features & 2 != 0,
                sums2: features & 8 != 0,
                sums3: features & 16 != 0,
            };
            log.uuid = array(&bytes, 48);
            if features & FAST_COMMITS != 0 {
                let blocks = match be32(&bytes, 84) {
                    0 => FAST_COMMIT_BLOCKS,
                    blocks => blocks,
                };
                log.end = log.end.saturating_sub(u64::from(blocks));
                if log.start != 0 {
                    log.notes.push(
                        "fast commits of its journal are not replayed: the changes of the last \
                         seconds may be missing"
                            .into(),
                    );
                }
            }
            if log.form.has_sums() {
                let mut zeroed = bytes;
                let stored = be32(&zeroed, 252);
                zeroed[252..256].fill(0);
                let computed = crc32c_raw(u32::MAX, &zeroed);
                if stored != computed {
                    return wrong("checksum", &format!("{stored:#x}"), &format!("{computed:#x}"));
                }
            }
        }
        if log.first == 0 || (log.start != 0 && !(log.first..log.end).contains(&log.start)) {
            let found = format!("{} in {}..{}", log.start, log.first, log.end);
            return wrong("s_start", &found, "a block of the log");
        }
        Ok(log)
    }

    /// Byte offset on the device of a block of the journal; `None` if the block is not mapped.
    fn place(&self, block: u64) -> Option<u64> {
        let byte = block.checked_mul(self.block_bytes)?;
        let list = &self.pieces.list;
        let piece = list.get(list.partition_point(|piece| piece.range.end <= byte))?;
        match piece.bytes {
            PieceBytes::Source(at) if piece.range.start <= byte => {
                Some(at + (byte - piece.range.start))
            }
            PieceBytes::Source(_) | PieceBytes::Here(_) | PieceBytes::Packed(_) => None,
        }
    }

    fn block(&self, block: u64) -> Option<Vec<u8>> {
        read_vec(self.source, self.place(block)?, self.block_bytes).ok()
    }

    fn after(&self, block: u64) -> u64 {
        if block + 1 >= self.end { self.first } else { block + 1 }
    }

    /// Seed of the checksums of this journal.
    fn sum_start(&self) -> u32 {
        crc32c_raw(u32::MAX, &self.uuid)
    }

    /// Whether the checksum at the end of a block of descriptors or revocations fits; true for a
    /// journal without checksums.
    fn tail_fits(&self, block: &[u8]) -> bool {
        if !self.form.has_sums() {
            return true;
        }
        let body = block.len().saturating_sub(4);
        let sum = crc32c_raw(self.sum_start(), part(block, 0, body));
        crc32c_raw(sum, &[0; 4]) == be32(block, body)
    }

    /// Reads transactions up to the first block that does not continue the log.
    fn scan(&mut self) {
        let (mut at, mut left) = (self.start, self.end - self.first);
        let mut pending = Vec::new();
        let mut revoked = Vec::new();
        while left > 0 {
            let Some(block) = self.block(at) else {
                self.notes.push(format!("block {at} of its journal cannot be read; it ends there"));
                return;
            };
            if be32(&block, 0) != MAGIC || be32(&block, 8) != self.sequence {
                return;
            }
            match be32(&block, 4) {
                DESCRIPTOR if self.tail_fits(&block) => {
                    let used = self.descriptor(&block, at, &mut pending);
                    left = left.saturating_sub(used);
                    for _ in 0..used {
                        at = self.after(at);
                    }
                }
                REVOCATION if self.tail_fits(&block) => revoked.extend(self.revocations(&block)),
                COMMIT if self.commit_fits(&block) => {
                    let number = u32::try_from(self.committed.len()).unwrap_or(u32::MAX);
                    self.committed.push(std::mem::take(&mut pending));
                    self.revoked.extend(revoked.drain(..).map(|block| (block, number)));
                    self.sequence = self.sequence.wrapping_add(1);
                }
                DESCRIPTOR | REVOCATION | COMMIT => {
                    let says = "has a wrong checksum; it ends there";
                    self.notes.push(format!("block {at} of its journal {says}"));
                    return;
                }
                _ => return,
            }
            at = self.after(at);
            left = left.saturating_sub(1);
        }
    }

    fn commit_fits(&self, block: &[u8]) -> bool {
        if !self.form.has_sums() {
            return true;
        }
        let mut zeroed = block.to_vec();
        zeroed[16..20].fill(0);
        crc32c_raw(self.sum_start(), &zeroed) == be32(block, 16)
    }

    /// Adds the blocks that a descriptor names; returns their number.
    fn descriptor(&mut self, block: &[u8], at: u64, into: &mut Vec<(u64, Logged)>) -> u64 {
        let tail = if self.form.has_sums() { 4 } else { 0 };
        let tags = part(block, 0, block.len() - tail);
        let len = self.form.tag_bytes();
        let (mut tag_at, mut place, mut used) = (12, at, 0);
        while tag_at + len <= tags.len() && used < self.end - self.first {
            let tag = part(tags, tag_at, len);
            let flags = match self.form.sums3 {
                true => be32(tag, 4),
                false => u32::from(be16(tag, 6)),
            };
            let high = if self.form.wide { u64::from(be32(tag, 8)) << 32 } else { 0 };
            let number = high | u64::from(be32(tag, 0));
            place = self.after(place);
            used += 1;
            let logged = self.place(place).filter(|_| number < self.fs_blocks);
            match logged {
                Some(at) if self.data_fits(tag, place) => {
                    into.push((number, Logged { at, is_escaped: flags & ESCAPED != 0 }));
                }
                _ => self.notes.push(format!(
                    "block {place} of its journal, for block {number}, is damaged and not replayed"
                )),
            }
            tag_at += len + if flags & SAME_UUID == 0 { 16 } else { 0 };
            if flags & LAST != 0 {
                break;
            }
        }
        self.notes.truncate(NOTES_MAX);
        used
    }

    /// Whether the checksum in a tag fits its block; true for a journal without checksums.
    fn data_fits(&self, tag: &[u8], place: u64) -> bool {
        if !self.form.has_sums() {
            return true;
        }
        let Some(data) = self.block(place) else { return false };
        let sum = crc32c_raw(self.sum_start(), &self.sequence.to_be_bytes());
        let sum = crc32c_raw(sum, &data);
        match self.form.sums3 {
            true => sum == be32(tag, 12),
            false => sum & 0xffff == u32::from(be16(tag, 4)),
        }
    }

    fn revocations(&self, block: &[u8]) -> Vec<u64> {
        let used = usize::try_from(be32(block, 12)).unwrap_or(0).min(block.len());
        let list = part(block, 16, used.saturating_sub(16));
        if self.form.wide {
            list.chunks_exact(8).map(|number| be64(number, 0)).collect()
        } else {
            list.chunks_exact(4).map(|number| u64::from(be32(number, 0))).collect()
        }
    }
}

const MAGIC: u32 = 0xc03b_3998;
const DESCRIPTOR: u32 = 1;
const COMMIT: u32 = 2;
const SUPERBLOCK_V1: u32 = 3;
const SUPERBLOCK_V2: u32 = 4;
const REVOCATION: u32 = 5;
/// Flags of a tag: the block's first bytes are escaped; no UUID follows; it is the last one.
const ESCAPED: u32 = 1;
const SAME_UUID: u32 = 2;
const LAST: u32 = 8;
const FAST_COMMITS: u32 = 0x20;
/// Incompatible features of a journal that are known: revocations, 64 bits, asynchronous commits,
/// checksums of version 2 and 3, fast commits.
const FEATURES: u32 = 0x1 | 0x2 | 0x4 | 0x8 | 0x10 | FAST_COMMITS;
/// Number of blocks at the end of the log for fast commits, if the superblock names no number.
const FAST_COMMIT_BLOCKS: u32 = 256;
/// Largest number of notes about one journal.
const NOTES_MAX: usize = 16;
