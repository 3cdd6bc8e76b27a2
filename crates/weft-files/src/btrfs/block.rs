//! Tree blocks: their keys, items and pointers.
//!
//! A block is checked once, when it is read; its entries are then used without further checks.
//!
//! Source   btrfs documentation, "On-disk Format", "Header", "Internal Node" and "Leaf Node"

use super::superblock::Superblock;
use crate::bytes::{le32, le64, part};

/// Key of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) object: u64,
    pub(super) kind: u8,
    pub(super) offset: u64,
}

impl Key {
    pub(super) const fn new(object: u64, kind: u8, offset: u64) -> Self {
        Self { object, kind, offset }
    }

    /// The key that begins at byte `at` of `bytes`.
    pub(super) fn at(bytes: &[u8], at: usize) -> Self {
        let kind = bytes.get(at + 8).copied().unwrap_or(0);
        Self { object: le64(bytes, at), kind, offset: le64(bytes, at + 9) }
    }
}

/// Length of a key in bytes.
pub(super) const KEY_BYTES: usize = 17;

/// Tree block with a valid checksum, UUID, address and layout of its entries.
#[derive(Debug)]
pub(super) struct Block {
    bytes: Vec<u8>,
    pub(super) generation: u64,
    pub(super) level: u8,
    pub(super) count: usize,
}

impl Block {
    /// Checks the bytes of the block at a logical address. The error says what is wrong with them.
    pub(super) fn parse(of: &Superblock, at: u64, bytes: Vec<u8>) -> Result<Self, String> {
        if !of.sum.holds(&bytes) {
            return Err("the checksum is not that of its bytes".into());
        }
        if bytes[0x20..0x30] != of.block_uuid {
            return Err("the UUID is that of another file system".into());
        }
        let own = le64(&bytes, 0x30);
        if own != at {
            return Err(format!("it says that its address is {own}"));
        }
        let (count, level) = (le32(&bytes, 0x60) as usize, bytes[0x64]);
        let generation = le64(&bytes, 0x50);
        let block = Self { bytes, generation, level, count };
        let each = if level == 0 { ITEM_BYTES } else { POINTER_BYTES };
        let room = (block.bytes.len() - HEADER_BYTES) / each;
        if count > room || level > LEVEL_MAX || (level > 0 && count == 0) {
            return Err(format!("it has {count} entries at level {level}"));
        }
        for index in 0..count {
            if index > 0 && block.key(index - 1) >= block.key(index) {
                return Err(format!("the key of entry {index} is not above the one before it"));
            }
            if level == 0 {
                let (start, len) = block.place(index);
                let end = start.saturating_add(len);
                let heads = HEADER_BYTES + count * ITEM_BYTES;
                if start < heads || end > block.bytes.len() {
                    return Err(format!("entry {index} has the bytes {start}..{end}"));
                }
            }
        }
        Ok(block)
    }

    /// Key of an entry; `index` is below `count`.
    pub(super) fn key(&self, index: usize) -> Key {
        let each = if self.level == 0 { ITEM_BYTES } else { POINTER_BYTES };
        Key::at(&self.bytes, HEADER_BYTES + index * each)
    }

    /// Index of the first entry that may give keys from `start` on: in a leaf, the first with such
    /// a key; in an inner block, the first that may point to such keys.
    pub(super) fn first_from(&self, start: Key) -> usize {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            match self.key(middle) < start {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        let is_exact = low < self.count && self.key(low) == start;
        if self.level == 0 || is_exact { low } else { low.saturating_sub(1) }
    }

    /// Item of an entry of a leaf.
    pub(super) fn item(&self, index: usize) -> &[u8] {
        let (start, len) = self.place(index);
        part(&self.bytes, start, len)
    }

    /// Logical address and generation of the block that an entry of an inner block points to.
    pub(super) fn pointer(&self, index: usize) -> (u64, u64) {
        let at = HEADER_BYTES + index * POINTER_BYTES + KEY_BYTES;
        (le64(&self.bytes, at), le64(&self.bytes, at + 8))
    }

    /// Index in the block of the first byte of an item, and the length of the item.
    fn place(&self, index: usize) -> (usize, usize) {
        let at = HEADER_BYTES + index * ITEM_BYTES + KEY_BYTES;
        let start = le32(&self.bytes, at) as usize;
        (start.saturating_add(HEADER_BYTES), le32(&self.bytes, at + 4) as usize)
    }
}

const HEADER_BYTES: usize = 0x65;
const ITEM_BYTES: usize = KEY_BYTES + 8;
const POINTER_BYTES: usize = KEY_BYTES + 16;
/// Highest level of a tree.
pub(super) const LEVEL_MAX: u8 = 7;
