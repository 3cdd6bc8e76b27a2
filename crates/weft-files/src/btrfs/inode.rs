//! Inode of btrfs.
//!
//! Source   btrfs documentation, "On-disk Format", "INODE_ITEM"

use crate::bytes::{le32, le64};
use crate::tree::{Node, NodeKind, NodeTime, TreeError};

/// An inode.
#[derive(Clone, Debug)]
pub(super) struct Inode {
    pub(super) node: Node,
    /// Transaction that created the inode; 0 in a log that only records that the inode exists.
    pub(super) generation: u64,
}

impl Inode {
    /// Parses the item of an inode; `id` is the number of its node.
    pub(super) fn parse(number: u64, id: u64, item: &[u8]) -> Result<Self, TreeError> {
        let field = |name: &str| format!("inode {number}, {name}");
        if item.len() < 160 {
            return Err(TreeError::damaged(field("bytes"), item.len(), "160"));
        }
        let mode = le32(item, 52);
        let kind = NodeKind::of_mode(mode).ok_or_else(|| {
            let found = format!("{mode:#o}");
            TreeError::damaged(field("mode"), found, "a kind and permissions")
        })?;
        let size = le64(item, 16);
        if size > i64::MAX.cast_unsigned() {
            return Err(TreeError::damaged(field("size"), size, "less than 2^63"));
        }
        let time = |at: usize| NodeTime {
            seconds: le64(item, at).cast_signed(),
            nanos: le32(item, at + 8).min(999_999_999),
        };
        let node = Node {
            id,
            kind,
            size,
            mode: mode & 0o7777,
            uid: le32(item, 44),
            gid: le32(item, 48),
            links: le32(item, 40),
            accessed: time(112),
            modified: time(136),
            changed: time(124),
            stored: le64(item, 24),
            device: device(le64(item, 56)),
            fault: None,
        };
        Ok(Self { node, generation: le64(item, 0) })
    }
}

/// Number of a device in the 32 bits of Linux. On btrfs the minor number has the lower 20 bits, the
/// major number the next 12.
fn device(number: u64) -> u32 {
    let major = u32::try_from(number >> 20 & 0xfff).unwrap_or(0);
    let minor = u32::try_from(number & 0xf_ffff).unwrap_or(0);
    minor & 0xff | major << 8 | (minor & !0xff) << 12
}
