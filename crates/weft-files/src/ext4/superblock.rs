//! Superblock of ext2, ext3 and ext4: geometry and features.
//!
//! If the first superblock is not valid, the backups at the usual places are tried.
//!
//! Source   Linux documentation, "ext4 Data Structures and Algorithms", "Super Block" and "Block
//!          Group Descriptors"

use weft_ondisk::crc::crc32c_raw;

use crate::bytes::{array, le16, le32};
use crate::source::{Source, read_vec};
use crate::tree::TreeError;

/// Fields of a superblock that are used.
#[derive(Clone, Debug)]
pub(super) struct Superblock {
    pub(super) block_bytes: u64,
    pub(super) blocks: u64,
    pub(super) free_blocks: u64,
    pub(super) inodes: u32,
    pub(super) inodes_per_group: u32,
    pub(super) inode_bytes: u64,
    /// Block of this superblock: descriptors of groups follow it.
    own_block: u64,
    first_data_block: u64,
    blocks_per_group: u64,
    descriptor_bytes: u64,
    first_meta_group: u64,
    backup_groups: [u32; 2],
    compat: u32,
    incompat: u32,
    ro_compat: u32,
    pub(super) journal_inode: u32,
    /// Start of the checksums of metadata; `None` without that feature.
    pub(super) sum_start: Option<u32>,
    /// Byte at which this superblock was found, if it is not the first one.
    pub(super) backup_at: Option<u64>,
}

impl Superblock {
    /// Reads the first superblock, or a backup.
    ///
    /// # Errors
    /// None is valid; the error is that of the first one.
    pub(super) fn read(source: &dyn Source) -> Result<Self, TreeError> {
        let first = Self::at(source, 1024, None);
        let Err(error) = first else { return first };
        if matches!(error, TreeError::Refused(_)) {
            return Err(error);
        }
        // The first backup is in group 1. A group is as many blocks as a block has bits.
        for block in [1024_u64, 2048, 4096] {
            let at = (block * 8 + u64::from(block == 1024)) * block;
            if let Ok(found) = Self::at(source, at, Some(block)) {
                return Ok(found);
            }
        }
        Err(error)
    }

    fn at(source: &dyn Source, at: u64, block: Option<u64>) -> Result<Self, TreeError> {
        let bytes = read_vec(source, at, 1024)?;
        let mut found = Self::parse(&bytes)?;
        if let Some(block) = block {
            if found.block_bytes != block {
                return Err(TreeError::damaged("backup superblock", found.block_bytes, "its size"));
            }
            found.own_block = at / block;
            found.backup_at = Some(at);
        }
        Ok(found)
    }

    fn parse(bytes: &[u8]) -> Result<Self, TreeError> {
        let wrong = |field: &str, found: &dyn ToString, expected: &str| {
            Err(TreeError::damaged(format!("superblock {field}"), found.to_string(), expected))
        };
        if le16(bytes, 0x38) != 0xef53 {
            return wrong("magic", &format!("{:#06x}", le16(bytes, 0x38)), "0xef53");
        }
        let (incompat, ro_compat) = (le32(bytes, 0x60), le32(bytes, 0x64));
        let unknown = incompat & !INCOMPAT_READ;
        if unknown != 0 {
            let says = format!("its features {unknown:#x} are not read (e2fsck -n says more)");
            return Err(TreeError::Refused(says));
        }
        let sum_start = (ro_compat & METADATA_SUMS != 0).then(|| match incompat & SUM_SEED {
            0 => crc32c_raw(u32::MAX, &array::<16>(bytes, 0x68)),
            _ => le32(bytes, 0x270),
        });
        let (stored, computed) = (le32(bytes, 0x3fc), crc32c_raw(u32::MAX, &bytes[..0x3fc]));
        if sum_start.is_some() && stored != computed {
            return wrong("checksum", &format!("{stored:#x}"), &format!("{computed:#x}"));
        }
        let shift = le32(bytes, 0x18);
        if shift > 6 {
            return wrong("s_log_block_size", &shift, "0 to 6");
        }
        let block_bytes = 1024_u64 << shift;
        let wide = incompat & WIDE != 0;
        let high = |at| if wide { u64::from(le32(bytes, at)) << 32 } else { 0 };
        let blocks = high(0x150) | u64::from(le32(bytes, 4));
        if blocks > u64::MAX >> 20 {
            return wrong("s_blocks_count", &blocks, "one that fits a device");
        }
        let (inodes_per_group, blocks_per_group) = (le32(bytes, 0x28), le32(bytes, 0x20));
        if inodes_per_group == 0 || blocks_per_group == 0 {
            let found = format!("{inodes_per_group} inodes, {blocks_per_group} blocks");
            return wrong("size of a group", &found, "some of both");
        }
        let inode_bytes = if le32(bytes, 0x4c) == 0 { 128 } else { u64::from(le16(bytes, 0x58)) };
        if !inode_bytes.is_power_of_two() || !(128..=block_bytes).contains(&inode_bytes) {
            return wrong("s_inode_size", &inode_bytes, "a power of two from 128 to a block");
        }
        let descriptor_bytes = if wide { u64::from(le16(bytes, 0xfe)) } else { 32 };
        if !descriptor_bytes.is_power_of_two() || !(32..=block_bytes).contains(&descriptor_bytes) {
            return wrong("s_desc_size", &descriptor_bytes, "a power of two from 32 to a block");
        }
        Ok(Self {
            block_bytes,
            blocks,
            free_blocks: high(0x158) | u64::from(le32(bytes, 0xc)),
            inodes: le32(bytes, 0),
            inodes_per_group,
            inode_bytes,
            own_block: u64::from(shift == 0),
            first_data_block: u64::from(le32(bytes, 0x14)),
            blocks_per_group: u64::from(blocks_per_group),
            descriptor_bytes,
            first_meta_group: u64::from(le32(bytes, 0x104)),
            backup_groups: [le32(bytes, 0x24c), le32(bytes, 0x250)],
            compat: le32(bytes, 0x5c),
            incompat,
            ro_compat,
            journal_inode: le32(bytes, 0xe0),
            sum_start,
            backup_at: None,
        })
    }

    pub(super) fn has_journal(&self) -> bool {
        self.compat & HAS_JOURNAL != 0
    }

    /// Whether the size of a directory has 64 bits.
    pub(super) fn has_large_directories(&self) -> bool {
        self.incompat & LARGE_DIRECTORIES != 0
    }

    /// Bytes `start..` of the descriptor of a group on the device, and their number.
    pub(super) fn descriptor(&self, group: u64) -> (u64, u64) {
        let per_block = self.block_bytes / self.descriptor_bytes;
        let number = group / per_block;
        let block = if self.incompat & META_GROUPS == 0 || number < self.first_meta_group {
            self.own_block.saturating_add(1 + number)
        } else {
            let first = number.saturating_mul(per_block);
            let start = self.first_data_block + first.saturating_mul(self.blocks_per_group);
            let shifted = self.block_bytes == 1024 && self.first_data_block == 0 && number == 0;
            start.saturating_add(u64::from(self.has_superblock(first)) + u64::from(shifted))
        };
        let at = block.saturating_mul(self.block_bytes);
        (at.saturating_add(group % per_block * self.descriptor_bytes), self.descriptor_bytes)
    }

    fn has_superblock(&self, group: u64) -> bool {
        let power = |base: u64| {
            let mut power = base;
            while power < group {
                power *= base;
            }
            power == group
        };
        if group == 0 {
            return true;
        }
        if self.compat & SPARSE2 != 0 {
            return self.backup_groups.iter().any(|&backup| u64::from(backup) == group);
        }
        self.ro_compat & SPARSE == 0 || group == 1 || power(3) || power(5) || power(7)
    }
}

const HAS_JOURNAL: u32 = 0x4;
const SPARSE2: u32 = 0x200;
const SPARSE: u32 = 0x1;
const METADATA_SUMS: u32 = 0x400;
const META_GROUPS: u32 = 0x10;
const WIDE: u32 = 0x80;
const SUM_SEED: u32 = 0x2000;
const LARGE_DIRECTORIES: u32 = 0x4000;
/// Incompatible features that are read: types in directories, recovery, meta groups, extents, 64
/// bits, multiple mount protection, flexible groups, attributes in inodes, seeds of checksums,
/// large directories, inline data, encryption (its files are refused), folded case.
const INCOMPAT_READ: u32 = 0x2
    | 0x4
    | META_GROUPS
    | 0x40
    | WIDE
    | 0x100
    | 0x200
    | 0x400
    | SUM_SEED
    | LARGE_DIRECTORIES
    | 0x8000
    | 0x1_0000
    | 0x2_0000;
