//! Names in the blocks of a directory.
//!
//! Blocks of a hash tree look like blocks without names to a reader that goes from entry to entry,
//! and so do checksums.
//!
//! Source   Linux documentation, "ext4 Data Structures and Algorithms", "Directory Entries"

use crate::bytes::{le16, le32, part};
use crate::tree::{Entries, Entry};

/// Adds the names of a block, or of the part of one that is inline; `place` is its first byte in
/// the directory.
pub(super) fn parse(bytes: &[u8], place: u64, into: &mut Entries) {
    let mut at = 0;
    while at + 8 <= bytes.len() {
        let id = le32(bytes, at);
        let raw = usize::from(le16(bytes, at + 4));
        // Lengths of 64 KiB and more have their high bits below.
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
