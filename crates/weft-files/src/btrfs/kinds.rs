//! Kinds of keys, and objects with fixed numbers.
//!
//! Source   btrfs documentation, "On-disk Format", "Item Types" and "Objects"

pub(super) const INODE_ITEM: u8 = 1;
pub(super) const INODE_REF: u8 = 12;
pub(super) const INODE_EXTREF: u8 = 13;
pub(super) const XATTR_ITEM: u8 = 24;
pub(super) const DIR_LOG_INDEX: u8 = 72;
pub(super) const DIR_ITEM: u8 = 84;
pub(super) const DIR_INDEX: u8 = 96;
pub(super) const EXTENT_DATA: u8 = 108;
pub(super) const EXTENT_CSUM: u8 = 128;
pub(super) const ROOT_ITEM: u8 = 132;
pub(super) const ROOT_BACKREF: u8 = 144;
pub(super) const ROOT_REF: u8 = 156;
pub(super) const CHUNK_ITEM: u8 = 228;

/// Subvolume that has all others below it.
pub(super) const TOP: u64 = 5;
/// Tree of the checksums of data.
pub(super) const SUM_TREE: u64 = 7;
/// First number of subvolumes, and of inodes: that of the root directory of each subvolume.
pub(super) const FIRST: u64 = 256;
/// Largest number of a subvolume or an inode.
pub(super) const LAST: u64 = u64::MAX - 255;
/// Object ID of the items with checksums of data.
pub(super) const SUMS: u64 = u64::MAX - 9;
/// Object ID of the items with the roots of log trees.
pub(super) const LOGS: u64 = u64::MAX - 5;
