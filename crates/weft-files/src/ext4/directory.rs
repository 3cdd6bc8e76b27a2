//! Names in the blocks of a directory.
//!
//! The blocks of a hash tree consist of entries without names for a reader that goes from entry to
//! entry. A checksum also lies in an entry without a name.
//!
//! Source   Linux documentation, "ext4 Data Structures and Algorithms", "Directory Entries" and
//!          "Checksums"

use weft_ondisk::crc::crc32c_raw;

use crate::bytes::{le16, le32, part};
use crate::tree::{Entries, Entry};

/// Adds the names in a block of a directory, or in an inline part of one. `place` is the offset of
/// `bytes` in the directory.
pub(super) fn parse(bytes: &[u8], place: u64, into: &mut Entries) {
    let mut at = 0;
    while at + 8 <= bytes.len() {
        let id = le32(bytes, at);
        let raw = usize::from(le16(bytes, at + 4));
        // Lengths of 64 KiB and more have their high bits in the two lowest bits of the field.
        let len = match raw {
            0 | 0xffff if bytes.len() >= 0x1_0000 => bytes.len() - at,
            _ => (raw & 0xfffc) | ((raw & 3) << 16),
        };
        let name_len = usize::from(bytes[at + 6]);
        let shortest = if id == 0 { 8 } else { 8 + name_len };
        if len < shortest || at + len > bytes.len() {
            into.faults.push(format!(
                "entry at byte {}: found the length {len} for a name of {name_len} bytes, expected \
                 an entry within its block",
                place + at as u64
            ));
            return;
        }
        let name = part(bytes, at + 8, name_len);
        if id != 0 && name != b"." && name != b".." {
            into.list.push(Entry { name: name.to_vec(), id: u64::from(id) });
        }
        at += len;
    }
}

/// Message about the checksum of a block if it is missing or wrong; `None` if it is right. The
/// block begins at byte `place` of its directory; `start` is the seed of the checksums of the
/// directory's inode, and `is_indexed` says whether some blocks are an index.
pub(super) fn checksum_fault(
    start: u32,
    bytes: &[u8],
    place: u64,
    is_indexed: bool,
) -> Option<String> {
    let wrong = |what: &str, stored: u32, computed: u32| {
        format!("{what} at byte {place}, checksum: found {stored:#010x}, expected {computed:#010x}")
    };
    if let Some(at) = index_at(bytes, place).filter(|_| is_indexed) {
        // In place of the first entry are the largest and the present number of entries.
        let (limit, count) = (usize::from(le16(bytes, at)), usize::from(le16(bytes, at + 2)));
        let tail = at + limit * 8;
        let sum = crc32c_raw(start, part(bytes, 0, at + count * 8));
        let sum = crc32c_raw(crc32c_raw(sum, part(bytes, tail, 4)), &[0; 4]);
        let stored = le32(bytes, tail + 4);
        let is_sound = count <= limit && tail + 8 <= bytes.len() && stored == sum;
        return (!is_sound).then(|| wrong("index of names", stored, sum));
    }
    let tail = bytes.len().checked_sub(TAIL_BYTES)?;
    // The checksum lies in an entry without a name.
    let is_tail = le32(bytes, tail) == 0
        && le16(bytes, tail + 4) == 12
        && bytes[tail + 6] == 0
        && bytes[tail + 7] == 0xde;
    let (stored, computed) = (le32(bytes, tail + 8), crc32c_raw(start, part(bytes, 0, tail)));
    match is_tail {
        false => Some(format!("names at byte {place}: found no checksum, expected one")),
        true => (stored != computed).then(|| wrong("names", stored, computed)),
    }
}

/// Byte offset of the entries of an index, if the block has the form of one: in the first block
/// behind the names `.` and `..`, in any other one behind an entry of the whole block.
fn index_at(bytes: &[u8], place: u64) -> Option<usize> {
    let rest = |from: usize| bytes.len() - from;
    let has_len = |at: usize, len: usize| usize::from(le16(bytes, at + 4)) == len & 0xffff;
    if place == 0 {
        return (has_len(0, 12) && has_len(12, rest(12)) && bytes[29] == 8).then_some(32);
    }
    (le32(bytes, 0) == 0 && has_len(0, rest(0))).then_some(8)
}

/// Length in bytes of the entry with the checksum at the end of a block of names.
const TAIL_BYTES: usize = 12;
