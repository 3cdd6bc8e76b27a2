//! Places of a file's content: extents, or block numbers with indirect blocks.
//!
//! Each block of a map is read once at most, and extents ascend: a map that refers to itself ends
//! with a fault. A part of the map that cannot be read is a fault of the range that it maps; a part
//! with a wrong checksum is used, and its range is doubtful.
//!
//! Source   Linux documentation, "ext4 Data Structures and Algorithms", "The Contents of
//!          inode.i_block"

use std::collections::BTreeSet;
use std::ops::Range;

use weft_ondisk::crc::crc32c_raw;

use super::inode::Inode;
use super::superblock::Superblock;
use crate::bytes::{le16, le32, part};
use crate::source::{Source, read_vec};
use crate::tree::{Piece, PieceBytes, Pieces};

/// Segments of the content of an inode that is not inline.
pub(super) fn pieces(source: &dyn Source, superblock: &Superblock, inode: &Inode) -> Pieces {
    let size = inode.node.size;
    let mut map = Map {
        source,
        superblock,
        sum_start: inode.sum_start,
        size,
        mapped: 0,
        seen: BTreeSet::new(),
        pieces: Pieces::default(),
    };
    let blocks = size.div_ceil(superblock.block_bytes);
    if inode.has_extents() {
        map.extents(&inode.block, None, 0..blocks.min(1 << 32));
    } else {
        map.indirect(&inode.block, blocks);
    }
    map.pieces
}

struct Map<'s> {
    source: &'s dyn Source,
    superblock: &'s Superblock,
    /// Seed of the CRC-32C of the file's extent blocks; `None` without checksums of metadata.
    sum_start: Option<u32>,
    /// Size of the file in bytes.
    size: u64,
    /// Number of bytes that were mapped so far.
    mapped: u64,
    /// Numbers of the blocks of the map itself that were read so far.
    seen: BTreeSet<u64>,
    pieces: Pieces,
}

impl Map<'_> {
    /// Byte range of the file for a range of its blocks, cut at the end of the file.
    fn bytes(&self, blocks: &Range<u64>) -> Range<u64> {
        let byte = |block: u64| block.saturating_mul(self.superblock.block_bytes).min(self.size);
        byte(blocks.start)..byte(blocks.end)
    }

    fn fault(&mut self, blocks: &Range<u64>, why: impl Into<String>) {
        let range = self.bytes(blocks);
        if range.start < range.end {
            self.pieces.faults.push((range, why.into()));
        }
    }

    /// Adds `blocks` of the file, the first of which is block `place` of the device.
    fn add(&mut self, blocks: Range<u64>, place: u64) {
        let size = self.superblock.block_bytes;
        let end = place.saturating_add(blocks.end - blocks.start);
        if end > self.superblock.blocks {
            let why = format!("found blocks {place}..{end}, expected them in the file system");
            return self.fault(&blocks, why);
        }
        let range = self.bytes(&blocks);
        if range.start >= range.end {
            return;
        }
        self.mapped += range.end - range.start;
        if self.mapped > self.superblock.blocks.saturating_mul(size) {
            return self.fault(&blocks, "found more blocks than the file system has");
        }
        let at = place.saturating_mul(size);
        if let Some(last) = self.pieces.list.last_mut()
            && last.range.end == range.start
            && let PieceBytes::Source(before) = last.bytes
            && before + (last.range.end - last.range.start) == at
        {
            last.range.end = range.end;
            return;
        }
        self.pieces.list.push(Piece { range, bytes: PieceBytes::Source(at) });
    }

    /// Reads block `number` of the device, a part of the map that maps `blocks`. `None`, after a
    /// fault was added, if it cannot be read.
    fn block(&mut self, number: u64, blocks: &Range<u64>) -> Option<Vec<u8>> {
        if number >= self.superblock.blocks || !self.seen.insert(number) {
            let why = format!("found block {number}, which is used twice or lies beyond the end");
            self.fault(blocks, why);
            return None;
        }
        let size = self.superblock.block_bytes;
        match read_vec(self.source, number.saturating_mul(size), size) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                self.fault(blocks, format!("map of the file: {error}"));
                None
            }
        }
    }

    /// Compares the checksum of a block of extents; a wrong one makes its part of the file
    /// doubtful.
    fn verify(&mut self, number: u64, bytes: &[u8], blocks: &Range<u64>) {
        let Some(start) = self.sum_start else { return };
        // The checksum follows the last entry for which the block has room.
        let at = 12 + 12 * usize::from(le16(bytes, 4));
        let (stored, computed) = (le32(bytes, at), crc32c_raw(start, part(bytes, 0, at)));
        let range = self.bytes(blocks);
        if (at + 4 > bytes.len() || stored != computed) && range.start < range.end {
            let why = format!(
                "block {number} of extents, checksum: found {stored:#010x}, expected \
                 {computed:#010x}"
            );
            self.pieces.doubts.push((range, why));
        }
    }

    /// Adds the extents of a node, which maps `blocks`. `depth` is the depth that its parent
    /// expects; `None` for the root.
    fn extents(&mut self, bytes: &[u8], depth: Option<u16>, blocks: Range<u64>) {
        let (magic, count, its) = (le16(bytes, 0), le16(bytes, 2), le16(bytes, 6));
        let room = (bytes.len() - 12) / 12;
        // Only the root of a tree may be without entries.
        let has_entries = count > 0 || (its == 0 && depth.is_none());
        let is_sound =
            magic == 0xf30a && has_entries && usize::from(count) <= room && its <= DEPTH_MAX;
        if !is_sound || depth.is_some_and(|depth| depth != its) {
            let why = format!(
                "found a node of extents with magic {magic:#x}, {count} entries, depth {its}, \
                 expected 0xf30a, 1 to {room}, {}",
                depth.map_or("at most 5".into(), |depth| depth.to_string())
            );
            return self.fault(&blocks, why);
        }
        let entries: Vec<&[u8]> = bytes[12..].chunks_exact(12).take(usize::from(count)).collect();
        let first = entries.first().map(|entry| u64::from(le32(entry, 0)));
        if let Some(first) = first.filter(|first| depth.is_some() && *first != blocks.start) {
            let why = format!(
                "found the first block {first} in a node of extents, expected {} as in its parent",
                blocks.start
            );
            return self.fault(&blocks, why);
        }
        let mut next = blocks.start;
        for (index, entry) in entries.iter().enumerate() {
            let first = u64::from(le32(entry, 0));
            if first < next {
                let why = format!("found block {first} in its extents, expected {next} or more");
                return self.fault(&(next..blocks.end), why);
            }
            if first >= blocks.end {
                // Space that is reserved behind the end of the file, or damage.
                if self.bytes(&blocks).end < self.size {
                    let why = format!(
                        "found block {first} in a node of extents for blocks before {}",
                        blocks.end
                    );
                    self.fault(&(next..blocks.end), why);
                }
                return;
            }
            if its == 0 {
                let (len, unwritten) = match le16(entry, 4) {
                    len @ 0..=0x8000 => (u64::from(len), false),
                    len => (u64::from(len) - 0x8000, true),
                };
                if len == 0 {
                    let why = "found an extent of 0 blocks, expected 1 or more";
                    return self.fault(&(first..blocks.end), why);
                }
                let place = u64::from(le32(entry, 8)) | u64::from(le16(entry, 6)) << 32;
                next = first + len;
                if !unwritten {
                    self.add(first..next.min(blocks.end), place);
                }
            } else {
                let after = entries.get(index + 1).map_or(blocks.end, |e| u64::from(le32(e, 0)));
                let inner = first..after.clamp(first, blocks.end);
                let child = u64::from(le32(entry, 4)) | u64::from(le16(entry, 8)) << 32;
                next = inner.end;
                if let Some(bytes) = self.block(child, &inner) {
                    self.verify(child, &bytes, &inner);
                    self.extents(&bytes, Some(its - 1), inner);
                }
            }
        }
    }

    /// Adds the blocks of an inode that has twelve block numbers and three trees of block numbers.
    fn indirect(&mut self, block: &[u8], blocks: u64) {
        let per_block = self.superblock.block_bytes / 4;
        let mut first = 0;
        for index in 0..15_u32 {
            let level = index.saturating_sub(11);
            let span = per_block.pow(level);
            let range = first.min(blocks)..(first + span).min(blocks);
            self.number(u64::from(le32(block, index as usize * 4)), level, range);
            first += span;
        }
    }

    /// Adds the blocks that a block number with `level` indirections maps.
    fn number(&mut self, number: u64, level: u32, blocks: Range<u64>) {
        if number == 0 || blocks.start >= blocks.end {
            return;
        }
        if level == 0 {
            return self.add(blocks, number);
        }
        let Some(bytes) = self.block(number, &blocks) else { return };
        let span = (self.superblock.block_bytes / 4).pow(level - 1);
        let mut first = blocks.start;
        for entry in bytes.chunks_exact(4) {
            let end = (first + span).min(blocks.end);
            self.number(u64::from(le32(entry, 0)), level - 1, first..end);
            first = end;
        }
    }
}

/// Largest depth of a tree of extents.
const DEPTH_MAX: u16 = 5;
