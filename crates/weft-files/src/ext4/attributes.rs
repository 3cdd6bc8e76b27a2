//! Extended attributes: behind the fields of an inode, and in a block of their own.
//!
//! Access control lists have another form on the disk than in the system call.
//!
//! Source   Linux documentation, "ext4 Data Structures and Algorithms", "Extended Attributes"; for
//!          the form of lists in system calls: `linux/posix_acl_xattr.h`

use weft_ondisk::crc::crc32c_raw;

use crate::bytes::{le16, le32, part};
use crate::tree::{Attribute, TreeError};

/// Attribute as it is stored.
pub(super) struct Stored {
    /// Number of the prefix of the name.
    pub(super) index: u8,
    /// Name without its prefix.
    pub(super) name: Vec<u8>,
    /// Value or, as an `Err`, the number of the inode that has the value, and its length in bytes.
    pub(super) value: Result<Vec<u8>, (u32, u32)>,
}

impl Stored {
    /// Whether the attribute holds the rest of the inode's inline data.
    pub(super) fn is_inline_data(&self) -> bool {
        self.index == 7 && self.name == b"data"
    }
}

/// Attributes behind the fields of an inode; none if these bytes have no magic number.
pub(super) fn in_inode(rest: &[u8]) -> Result<Vec<Stored>, TreeError> {
    if le32(rest, 0) != MAGIC {
        return Ok(Vec::new());
    }
    let area = part(rest, 4, rest.len());
    parse(area, area)
}

/// Attributes in a block; an error if the block is damaged.
pub(super) fn in_block(block: &[u8]) -> Result<Vec<Stored>, TreeError> {
    if le32(block, 0) != MAGIC {
        let found = format!("{:#x}", le32(block, 0));
        return Err(TreeError::damaged("block of attributes, magic", found, format!("{MAGIC:#x}")));
    }
    parse(part(block, 32, block.len()), block)
}

/// Compares the checksum of block `number`, which holds attributes. `start` is the seed of the file
/// system's checksums. A difference is an error.
pub(super) fn verify(start: u32, number: u64, block: &[u8]) -> Result<(), TreeError> {
    let (before, after) = (part(block, 0, 16), part(block, 20, block.len()));
    let pieces = [&number.to_le_bytes()[..], before, &[0; 4], after];
    let computed = pieces.iter().fold(start, |sum, piece| crc32c_raw(sum, piece));
    let stored = le32(block, 16);
    if stored != computed {
        let what = format!("block {number} of attributes, checksum");
        return Err(TreeError::damaged(
            what,
            format!("{stored:#010x}"),
            format!("{computed:#010x}"),
        ));
    }
    Ok(())
}

/// Parses entries of attributes. The offsets of their values count from the start of `values`.
fn parse(entries: &[u8], values: &[u8]) -> Result<Vec<Stored>, TreeError> {
    let mut all = Vec::new();
    let mut at = 0;
    while at + 16 <= entries.len() && le32(entries, at) != 0 {
        let name_len = usize::from(entries[at]);
        let index = entries[at + 1];
        let name = part(entries, at + 16, name_len).to_vec();
        let place = usize::from(le16(entries, at + 2));
        let (inode, len) = (le32(entries, at + 4), le32(entries, at + 8));
        let value = match inode {
            0 => {
                let want = usize::try_from(len).unwrap_or(usize::MAX);
                let value = part(values, place, want);
                if value.len() < want || name.len() < name_len {
                    let found = format!("{len} bytes at {place}");
                    return Err(TreeError::damaged("attribute, value", found, "a value within"));
                }
                Ok(value.to_vec())
            }
            inode => Err((inode, len)),
        };
        all.push(Stored { index, name, value });
        at += (16 + name_len).next_multiple_of(4);
    }
    Ok(all)
}

/// Attribute with name and value as getxattr(2) gives them. `None` if users do not see it.
pub(super) fn named(index: u8, name: &[u8], value: Vec<u8>) -> Option<Attribute> {
    let prefix: &[u8] = match index {
        1 => b"user.",
        2 | 3 => {
            let name: &[u8] = match index {
                2 => b"system.posix_acl_access",
                _ => b"system.posix_acl_default",
            };
            return Some(Attribute { name: name.to_vec(), value: access_list(&value)? });
        }
        4 => b"trusted.",
        6 => b"security.",
        8 => b"system.richacl",
        _ => return None,
    };
    Some(Attribute { name: [prefix, name].concat(), value })
}

/// Access control list in the form of system calls. `None` if the stored one is not valid.
fn access_list(stored: &[u8]) -> Option<Vec<u8>> {
    if stored.len() < 4 || le32(stored, 0) != 1 {
        return None;
    }
    let mut list = 2_u32.to_le_bytes().to_vec();
    let mut at = 4;
    while at + 4 <= stored.len() {
        let tag = le16(stored, at);
        list.extend(part(stored, at, 4));
        // Entries for one user or one group have the number of the user or group.
        if matches!(tag, 2 | 8) {
            if at + 8 > stored.len() {
                return None;
            }
            list.extend(part(stored, at + 4, 4));
            at += 8;
        } else {
            list.extend(u32::MAX.to_le_bytes());
            at += 4;
        }
    }
    Some(list)
}

const MAGIC: u32 = 0xea02_0000;
