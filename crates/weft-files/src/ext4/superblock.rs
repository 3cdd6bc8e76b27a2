//! Superblock of ext2, ext3 and ext4: geometry and features.
//!
//! If the first superblock is not valid, the backups are tried, in group 1 and the powers of 3, 5
//! and 7, for each block size. A backup records its block size and its group. A backup of a former
//! file system, or of one in a partition, has other values and is not used.
//!
//! Source   Linux documentation, "ext4 Data Structures and Algorithms", "Super Block" and "Block
//!          Group Descriptors"

use weft_ondisk::crc::crc32c_raw;
use weft_ondisk::ext::{
    BLOCK_SHIFT_MAX, GROUP_SUMS, HAS_JOURNAL, LARGE_DIRECTORIES, MAGIC, META_GROUPS, METADATA_SUMS,
    SPARSE_SUPER, SPARSE_SUPER2, SUM_SEED, SUPERBLOCK_AT, SUPERBLOCK_BYTES, WIDE, blocks,
    free_blocks, is_sparse_group,
};

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
    pub(super) descriptor_bytes: u64,
    first_meta_group: u64,
    backup_groups: [u32; 2],
    compat: u32,
    incompat: u32,
    ro_compat: u32,
    pub(super) journal_inode: u32,
    pub(super) uuid: [u8; 16],
    /// Seed of the checksums of metadata; `None` without that feature.
    pub(super) sum_start: Option<u32>,
    /// Bytes of this superblock as they are on the device.
    pub(super) raw: Vec<u8>,
    /// Message about a wrong checksum, which means that the fields may be wrong; `None` if it is
    /// right.
    pub(super) doubt: Option<String>,
    /// Place of this superblock if it is a backup; `None` for the first superblock.
    pub(super) backup: Option<Backup>,
}

/// Place of a backup, and the fault of the first superblock.
#[derive(Clone, Debug)]
pub(super) struct Backup {
    /// Byte offset of the backup on the device.
    at: u64,
    /// Group with this backup.
    group: u64,
    /// Fault of the first superblock; empty if it was not read.
    why: String,
}

impl Backup {
    /// Note for the user that the backup is used.
    pub(super) fn note(&self) -> String {
        let Self { at, group, why } = self;
        let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
        format!(
            "its first superblock is lost or damaged{why}; the copy at byte {at}, in group \
             {group}, is used"
        )
    }
}

impl Superblock {
    /// Reads the first superblock, or a backup.
    ///
    /// # Errors
    /// Neither is valid, or the file system uses a feature that is not read. The error is that of
    /// the first superblock.
    pub(super) fn read(source: &dyn Source) -> Result<Self, TreeError> {
        let bytes = read_vec(source, SUPERBLOCK_AT as u64, SUPERBLOCK_BYTES as u64);
        let first = bytes.map_err(TreeError::from).and_then(|bytes| Self::parse(&bytes));
        let why = match &first {
            Ok(Self { doubt: None, .. }) | Err(TreeError::Refused(_)) => return first,
            Ok(Self { doubt: Some(doubt), .. }) => doubt.clone(),
            Err(error) => error.to_string(),
        };
        match Self::backup(source) {
            Some(mut found) => {
                if let Some(backup) = &mut found.backup {
                    backup.why = why;
                }
                Ok(found)
            }
            None => first,
        }
    }

    /// First valid backup at the usual places for each block size; `None` if none is valid.
    pub(super) fn backup(source: &dyn Source) -> Option<Self> {
        // The usual size first.
        [4096_u64, 1024, 2048, 8192, 16_384, 32_768, 65_536].into_iter().find_map(|block| {
            // A group is as many blocks as a block has bits; with blocks of 1 KiB, block 0 is
            // before the first group.
            let at = |group: u64| (group * block * 8 + u64::from(block == 1024)) * block;
            let last = source.size() / (block * block * 8);
            sparse_groups(last)
                .into_iter()
                .find_map(|group| Self::backup_at(source, at(group), block, group))
        })
    }

    fn backup_at(source: &dyn Source, at: u64, block: u64, group: u64) -> Option<Self> {
        let bytes = read_vec(source, at, SUPERBLOCK_BYTES as u64).ok()?;
        let mut found = Self::parse(&bytes).ok()?;
        let is_it = found.block_bytes == block
            && u64::from(le16(&bytes, 0x5a)) == group & 0xffff
            && found.doubt.is_none();
        found.own_block = at / block;
        found.backup = Some(Backup { at, group, why: String::new() });
        is_it.then_some(found)
    }

    fn parse(bytes: &[u8]) -> Result<Self, TreeError> {
        let wrong = |field: &str, found: &dyn ToString, expected: &str| {
            Err(TreeError::damaged(format!("superblock {field}"), found.to_string(), expected))
        };
        if le16(bytes, 0x38) != MAGIC {
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
        let doubt = (sum_start.is_some() && stored != computed)
            .then(|| format!("superblock checksum: found {stored:#x}, expected {computed:#x}"));
        let shift = le32(bytes, 0x18);
        if shift > BLOCK_SHIFT_MAX {
            return wrong("s_log_block_size", &shift, "0 to 6");
        }
        let block_bytes = 1024_u64 << shift;
        let wide = incompat & WIDE != 0;
        let blocks = blocks(bytes);
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
            free_blocks: free_blocks(bytes),
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
            uuid: array(bytes, 0x68),
            sum_start,
            raw: bytes.to_vec(),
            doubt,
            backup: None,
        })
    }

    pub(super) fn has_journal(&self) -> bool {
        self.compat & HAS_JOURNAL != 0
    }

    /// Whether the size of a directory has 64 bits.
    pub(super) fn has_large_directories(&self) -> bool {
        self.incompat & LARGE_DIRECTORIES != 0
    }

    /// Whether descriptors of groups have a checksum, of either kind.
    pub(super) fn has_group_sums(&self) -> bool {
        self.sum_start.is_some() || self.ro_compat & GROUP_SUMS != 0
    }

    /// Number of groups with inodes.
    pub(super) fn groups(&self) -> u64 {
        u64::from(self.inodes.div_ceil(self.inodes_per_group))
    }

    /// First byte of the descriptor of a group on the device.
    pub(super) fn descriptor(&self, group: u64) -> u64 {
        let per_block = self.block_bytes / self.descriptor_bytes;
        let number = group / per_block;
        let block = if self.is_beside(number) {
            let first = number.saturating_mul(per_block);
            self.meta_block(first, number)
        } else {
            self.own_block.saturating_add(1 + number)
        };
        self.within(block, group)
    }

    /// Byte offsets of the other copies of a group's descriptor.
    pub(super) fn descriptor_copies(&self, group: u64) -> Vec<u64> {
        let per_block = self.block_bytes / self.descriptor_bytes;
        let number = group / per_block;
        let blocks: Vec<u64> = if self.is_beside(number) {
            // The copies are in the second and the last group of those that the block describes.
            let first = number.saturating_mul(per_block);
            [first + 1, first.saturating_add(per_block - 1)]
                .into_iter()
                .map(|group| self.meta_block(group, number))
                .collect()
        } else {
            let with_first = std::iter::once(0).chain(self.backups());
            with_first
                .map(|group| self.group_start(group).saturating_add(1 + number))
                .filter(|block| *block != self.own_block.saturating_add(1 + number))
                .collect()
        };
        blocks.into_iter().map(|block| self.within(block, group)).collect()
    }

    /// Whether block `number` of the group descriptors lies within the groups that it describes
    /// (`meta_bg`), and not behind the superblock.
    fn is_beside(&self, number: u64) -> bool {
        self.incompat & META_GROUPS != 0 && number >= self.first_meta_group
    }

    fn group_start(&self, group: u64) -> u64 {
        self.first_data_block.saturating_add(group.saturating_mul(self.blocks_per_group))
    }

    /// Block of the file system with the descriptor block `number`, in `group`, which is one of the
    /// groups that it describes.
    fn meta_block(&self, group: u64, number: u64) -> u64 {
        let shifted = self.block_bytes == 1024 && self.first_data_block == 0 && number == 0;
        let before = u64::from(self.has_superblock(group)) + u64::from(shifted);
        self.group_start(group).saturating_add(before)
    }

    /// Byte offset on the device of the descriptor of a group, which lies in `block`, a block of
    /// descriptors.
    fn within(&self, block: u64, group: u64) -> u64 {
        let per_block = self.block_bytes / self.descriptor_bytes;
        let at = block.saturating_mul(self.block_bytes);
        at.saturating_add(group % per_block * self.descriptor_bytes)
    }

    /// Groups with a backup of the superblock that are tried for copies of descriptors.
    fn backups(&self) -> Vec<u64> {
        let last = self.blocks / self.blocks_per_group;
        if self.compat & SPARSE_SUPER2 != 0 {
            return self.backup_groups.iter().map(|group| u64::from(*group)).collect();
        }
        // Without `sparse_super` every group has a backup; those of the sparse groups are enough.
        sparse_groups(last)
    }

    fn has_superblock(&self, group: u64) -> bool {
        if self.compat & SPARSE_SUPER2 != 0 {
            return group == 0
                || self.backup_groups.iter().any(|&backup| u64::from(backup) == group);
        }
        self.ro_compat & SPARSE_SUPER == 0 || is_sparse_group(group)
    }
}

/// Groups from 1 to `last` with a backup, in ascending order.
fn sparse_groups(last: u64) -> Vec<u64> {
    let mut groups = vec![1];
    for base in [3_u64, 5, 7] {
        let powers = std::iter::successors(Some(base), |power| power.checked_mul(base));
        groups.extend(powers.take_while(|power| *power <= last));
    }
    groups.retain(|group| *group <= last);
    groups.sort_unstable();
    groups
}

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
