//! Names in directories, in the references of inodes, and of attributes.
//!
//! Source   btrfs documentation, "On-disk Format", "DIR_INDEX", "INODE_REF", "INODE_EXTREF" and
//!          "XATTR_ITEM"

use super::block::{KEY_BYTES, Key};
use super::kinds;
use crate::bytes::{le16, le64, part};

/// Name of an inode in a directory, as an item of the inode records it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    pub(super) directory: u64,
    pub(super) inode: u64,
    pub(super) index: u64,
    pub(super) name: Vec<u8>,
}

/// Names in an item of references; empty for items of other kinds. A name that is cut off is left
/// out.
pub(super) fn references(key: Key, item: &[u8]) -> Vec<Reference> {
    let (head, is_extended) = match key.kind {
        kinds::INODE_REF => (10, false),
        kinds::INODE_EXTREF => (18, true),
        _ => return Vec::new(),
    };
    let (mut all, mut at) = (Vec::new(), 0);
    while at + head < item.len() {
        let directory = if is_extended { le64(item, at) } else { key.offset };
        let index = le64(item, at + head - 10);
        let len = usize::from(le16(item, at + head - 2));
        let name = part(item, at + head, len).to_vec();
        if name.len() < len {
            break;
        }
        all.push(Reference { directory, inode: key.object, index, name });
        at += head + len;
    }
    all
}

/// Name in a directory, or of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    /// Key of the inode or subvolume that has the name.
    pub(super) location: Key,
    pub(super) name: Vec<u8>,
    /// Value of an attribute; empty for a name in a directory.
    pub(super) value: Vec<u8>,
}

/// Names in an item of a directory or of attributes. If the item is cut off, the error says at
/// which byte.
pub(super) fn named(item: &[u8]) -> Result<Vec<Named>, String> {
    let (mut all, mut at) = (Vec::new(), 0);
    while at < item.len() {
        let value_len = usize::from(le16(item, at + KEY_BYTES + 8));
        let name_len = usize::from(le16(item, at + KEY_BYTES + 10));
        let name = part(item, at + HEAD_BYTES, name_len);
        let value = part(item, at + HEAD_BYTES + name_len, value_len);
        if name.len() < name_len || value.len() < value_len || name.is_empty() {
            return Err(format!("found a name of {name_len} bytes at byte {at}, expected less"));
        }
        let location = Key::at(item, at);
        all.push(Named { location, name: name.to_vec(), value: value.to_vec() });
        at += HEAD_BYTES + name_len + value_len;
    }
    Ok(all)
}

/// Number of bytes before a name: a key, a generation, two lengths, a kind.
const HEAD_BYTES: usize = KEY_BYTES + 13;
