//! Superblock of ext2, ext3 and ext4: its signature, features, size and generation.
//!
//! The three file systems share one magic number and differ in their features. A plausible revision
//! and block size exclude chance matches of the two bytes of the magic number.
//!
//! Source: Linux documentation, "ext4 Data Structures and Algorithms", "Super Block".

use weft_units::fields::{le16, le32};

/// Byte offset of the first superblock on the device.
pub const SUPERBLOCK_AT: usize = 1024;
/// Length of a superblock in bytes.
pub const SUPERBLOCK_BYTES: usize = 1024;
/// Magic number of the three file systems (`s_magic`).
pub const MAGIC: u16 = 0xef53;
/// Largest legal value of `s_log_block_size`: blocks of 64 KiB.
pub const BLOCK_SHIFT_MAX: u32 = 6;

/// Compatible feature: a journal.
pub const HAS_JOURNAL: u32 = 0x4;
/// Compatible feature: backups of the superblock in the two groups that it names.
pub const SPARSE_SUPER2: u32 = 0x200;
/// Incompatible feature: the device is the journal of another file system.
pub const JOURNAL_DEVICE: u32 = 0x8;
/// Incompatible feature: group descriptors lie within the groups, not all behind the superblock
/// (`meta_bg`).
pub const META_GROUPS: u32 = 0x10;
/// Incompatible feature: block numbers of 64 bits.
pub const WIDE: u32 = 0x80;
/// Incompatible feature: the superblock stores the seed of checksums (`metadata_csum_seed`).
pub const SUM_SEED: u32 = 0x2000;
/// Incompatible feature: directories of 4 GiB and more.
pub const LARGE_DIRECTORIES: u32 = 0x4000;
/// Incompatible features that only ext4 has: extents, 64-bit block numbers, multiple mount
/// protection, flexible groups, attribute values in inodes, data in directory entries, and later
/// ones.
const EXT4_ONLY: u32 = 0x40
    | WIDE
    | 0x100
    | 0x200
    | 0x400
    | 0x1000
    | SUM_SEED
    | LARGE_DIRECTORIES
    | 0x8000
    | 0x1_0000
    | 0x2_0000;
/// Read-only compatible feature: backups of the superblock in groups 0, 1 and powers of 3, 5, 7.
pub const SPARSE_SUPER: u32 = 0x1;
/// Read-only compatible feature: descriptors of groups have a checksum (CRC-16).
pub const GROUP_SUMS: u32 = 0x10;
/// Read-only compatible feature: metadata has checksums (CRC-32C).
pub const METADATA_SUMS: u32 = 0x400;

/// Generation of the file system that has this superblock: 2, 3 or 4 for ext2 to ext4. `None` if
/// the bytes are not the superblock of any of them.
#[must_use]
pub fn generation(superblock: &[u8]) -> Option<u8> {
    let is_one = superblock.len() >= SUPERBLOCK_BYTES
        && le16(superblock, 0x38) == MAGIC
        && le32(superblock, 0x18) <= BLOCK_SHIFT_MAX
        && le32(superblock, 0x4c) <= 1;
    let (compat, incompat) = (le32(superblock, 0x5c), le32(superblock, 0x60));
    is_one.then_some(match (incompat & EXT4_ONLY != 0, compat & HAS_JOURNAL != 0) {
        (true, _) => 4,
        (false, true) => 3,
        (false, false) => 2,
    })
}

/// Size of the file system in blocks (`s_blocks_count`).
#[must_use]
pub fn blocks(superblock: &[u8]) -> u64 {
    wide(superblock, 0x150, 4)
}

/// Number of free blocks (`s_free_blocks_count`).
#[must_use]
pub fn free_blocks(superblock: &[u8]) -> u64 {
    wide(superblock, 0x158, 0xc)
}

/// Number of blocks from two 32-bit halves, which lie at the bytes `high` and `low`. The high half
/// counts only with the feature [`WIDE`].
fn wide(superblock: &[u8], high: usize, low: usize) -> u64 {
    let high = match le32(superblock, 0x60) & WIDE {
        0 => 0,
        _ => u64::from(le32(superblock, high)) << 32,
    };
    high | u64::from(le32(superblock, low))
}

/// Whether a group has a backup of the superblock, with the feature [`SPARSE_SUPER`].
///
/// ```
/// use weft_ondisk::ext::is_sparse_group;
///
/// let groups: Vec<u64> = (0..30).filter(|group| is_sparse_group(*group)).collect();
/// assert_eq!(groups, [0, 1, 3, 5, 7, 9, 25, 27]);
/// ```
#[must_use]
pub fn is_sparse_group(group: u64) -> bool {
    let is_power = |base: u64| {
        let mut powers = std::iter::successors(Some(base), |power| power.checked_mul(base));
        powers.find(|power| *power >= group) == Some(group)
    };
    group <= 1 || is_power(3) || is_power(5) || is_power(7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generation_follows_from_the_features() {
        let superblock = |compat: u32, incompat: u32| {
            let mut bytes = vec![0; SUPERBLOCK_BYTES];
            bytes[0x38..0x3a].copy_from_slice(&MAGIC.to_le_bytes());
            bytes[0x5c..0x60].copy_from_slice(&compat.to_le_bytes());
            bytes[0x60..0x64].copy_from_slice(&incompat.to_le_bytes());
            bytes
        };
        for (compat, incompat, expected) in
            [(0, 2, 2), (HAS_JOURNAL, 2, 3), (HAS_JOURNAL, 0x42, 4), (0, 0x1_0000, 4), (0, 0x10, 2)]
        {
            assert_eq!(generation(&superblock(compat, incompat)), Some(expected), "{incompat:#x}");
        }
        for (at, value) in [(0x38, 0x54), (0x18, 7), (0x4c, 2)] {
            let mut bytes = superblock(0, 0);
            bytes[at] = value;
            assert_eq!(generation(&bytes), None, "{at:#x}");
        }
        assert_eq!(generation(&superblock(0, 0)[..1023]), None);
    }

    #[test]
    fn the_high_half_of_a_size_counts_with_64_bits_only() {
        let mut bytes = vec![0; SUPERBLOCK_BYTES];
        (bytes[4], bytes[0x150], bytes[0xc], bytes[0x158]) = (7, 1, 3, 2);
        assert_eq!((blocks(&bytes), free_blocks(&bytes)), (7, 3));
        bytes[0x60] = 0x80;
        assert_eq!((blocks(&bytes), free_blocks(&bytes)), (7 | 1 << 32, 3 | 2 << 32));
    }

    #[test]
    fn a_large_number_of_a_group_ends_the_search_for_its_powers() {
        assert!(!is_sparse_group(u64::MAX) && is_sparse_group(3_u64.pow(40)));
    }
}
