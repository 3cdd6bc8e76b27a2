//! Inode: its fields, its times, its checksum.
//!
//! Source   Linux documentation, "ext4 Data Structures and Algorithms", "Index Nodes"

use weft_ondisk::crc::crc32c_raw;

use super::superblock::Superblock;
use crate::bytes::{le16, le32};
use crate::tree::{Node, NodeKind, NodeTime, TreeError};

/// An inode.
#[derive(Clone, Debug)]
pub(super) struct Inode {
    pub(super) node: Node,
    pub(super) flags: u32,
    /// The 60 bytes for block numbers, extents, a short link or inline data.
    pub(super) block: Vec<u8>,
    /// Number of the block with extended attributes; 0 for none.
    pub(super) attribute_block: u64,
    /// Bytes behind the fields, with extended attributes.
    pub(super) rest: Vec<u8>,
    /// Seed of the checksums of the inode's blocks of extents and names; `None` if the file system
    /// has no checksums of metadata.
    pub(super) sum_start: Option<u32>,
}

impl Inode {
    /// Parses the bytes of an inode.
    pub(super) fn parse(
        superblock: &Superblock,
        number: u32,
        bytes: &[u8],
    ) -> Result<Self, TreeError> {
        let mode = u32::from(le16(bytes, 0));
        let kind = NodeKind::of_mode(mode).ok_or_else(|| {
            let what = format!("inode {number}, mode");
            TreeError::damaged(what, format!("{mode:#o}"), "an inode in use")
        })?;
        let high_size = match kind {
            NodeKind::File => true,
            NodeKind::Directory => superblock.has_large_directories(),
            NodeKind::Link | NodeKind::Special(_) => false,
        };
        let high = if high_size { u64::from(le32(bytes, 0x6c)) << 32 } else { 0 };
        let extra = match bytes.len() > 128 {
            true => usize::from(le16(bytes, 0x80)).min(bytes.len() - 128),
            false => 0,
        };
        let time = |at: usize, extra_at: usize| {
            let more = if extra_at + 4 <= 128 + extra { le32(bytes, extra_at) } else { 0 };
            let low = le32(bytes, at).cast_signed();
            NodeTime {
                seconds: i64::from(low) + (i64::from(more & 3) << 32),
                nanos: (more >> 2).min(999_999_999),
            }
        };
        let fault = Self::checksum_fault(superblock, number, bytes, extra);
        let node = Node {
            id: u64::from(number),
            kind,
            size: high | u64::from(le32(bytes, 4)),
            mode: mode & 0o7777,
            uid: u32::from(le16(bytes, 2)) | u32::from(le16(bytes, 0x78)) << 16,
            gid: u32::from(le16(bytes, 0x18)) | u32::from(le16(bytes, 0x7a)) << 16,
            links: u32::from(le16(bytes, 0x1a)),
            accessed: time(0x8, 0x8c),
            modified: time(0x10, 0x88),
            changed: time(0xc, 0x84),
            stored: Self::stored(superblock, bytes),
            device: Self::device(kind, bytes),
            fault,
        };
        Ok(Self {
            node,
            flags: le32(bytes, 0x20),
            block: bytes[0x28..0x64].to_vec(),
            attribute_block: u64::from(le32(bytes, 0x68)) | u64::from(le16(bytes, 0x76)) << 32,
            rest: bytes.get(128 + extra..).unwrap_or(&[]).to_vec(),
            sum_start: Self::sum_start(superblock, number, bytes),
        })
    }

    /// Number of bytes in the blocks of an inode. The field counts sectors, or blocks if the file
    /// is huge.
    fn stored(superblock: &Superblock, bytes: &[u8]) -> u64 {
        let count = u64::from(le32(bytes, 0x1c)) | u64::from(le16(bytes, 0x74)) << 32;
        let is_huge = le32(bytes, 0x20) & HUGE != 0;
        count.saturating_mul(if is_huge { superblock.block_bytes } else { 512 })
    }

    /// Number of a device: 16 bits in the first block number, or 32 bits in the second if the first
    /// is 0.
    fn device(kind: NodeKind, bytes: &[u8]) -> u32 {
        let (old, new) = (le32(bytes, 0x28), le32(bytes, 0x2c));
        match kind {
            NodeKind::Special(_) if old != 0 => old & 0xffff,
            NodeKind::Special(_) => new,
            NodeKind::Directory | NodeKind::File | NodeKind::Link => 0,
        }
    }

    /// Seed of the checksums of an inode, from its number and its generation; `None` if the file
    /// system has no checksums of metadata.
    fn sum_start(superblock: &Superblock, number: u32, bytes: &[u8]) -> Option<u32> {
        let sum = crc32c_raw(superblock.sum_start?, &number.to_le_bytes());
        Some(crc32c_raw(sum, &bytes[0x64..0x68]))
    }

    fn checksum_fault(
        superblock: &Superblock,
        number: u32,
        bytes: &[u8],
        extra: usize,
    ) -> Option<String> {
        let mut sum = Self::sum_start(superblock, number, bytes)?;
        let mut zeroed = bytes.to_vec();
        zeroed[0x7c..0x7e].fill(0);
        let wide = extra >= 4;
        if wide {
            zeroed[0x82..0x84].fill(0);
        }
        sum = crc32c_raw(sum, &zeroed);
        let mut stored = u32::from(le16(bytes, 0x7c));
        match wide {
            true => stored |= u32::from(le16(bytes, 0x82)) << 16,
            false => sum &= 0xffff,
        }
        (stored != sum)
            .then(|| format!("inode {number}, checksum: found {stored:#x}, expected {sum:#x}"))
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.flags & ENCRYPTED != 0
    }

    pub(super) fn has_extents(&self) -> bool {
        self.flags & EXTENTS != 0
    }

    /// Whether the directory has an index of its names.
    pub(super) fn is_indexed(&self) -> bool {
        self.flags & INDEXED != 0
    }

    pub(super) fn is_inline(&self) -> bool {
        self.flags & INLINE != 0
    }
}

const ENCRYPTED: u32 = 0x800;
const INDEXED: u32 = 0x1000;
const EXTENTS: u32 = 0x8_0000;
const HUGE: u32 = 0x4_0000;
const INLINE: u32 = 0x1000_0000;
