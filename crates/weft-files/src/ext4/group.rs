//! Groups of ext2, ext3 and ext4: the places of their inode tables.
//!
//! All descriptors are read when the file system is opened. A descriptor that cannot be read, that
//! has a wrong checksum, or that names an impossible block is replaced by its first sound copy
//! beside a backup of the superblock: the place of a table never changes. Without a sound copy the
//! descriptor is used as it is, if its table is possible, and its group counts as doubtful.
//!
//! Source   Linux documentation, "ext4 Data Structures and Algorithms", "Block Group Descriptors"
//!          and "Checksums"

use std::collections::BTreeMap;

use weft_ondisk::crc::crc32c_raw;

use super::superblock::Superblock;
use crate::bytes::{le16, le32};
use crate::source::{Source, read_vec};
use crate::tree::TreeError;

/// Places of inode tables, where the descriptor of a group is damaged.
#[derive(Default)]
pub(super) struct Groups {
    /// First block of the inode table of each group with a damaged descriptor, by the number of the
    /// group; `None` if it is not known.
    replaced: BTreeMap<u64, Option<u64>>,
    /// Messages about faults for which a sound copy is used.
    pub(super) notes: Vec<String>,
    /// Messages about faults without a sound copy.
    pub(super) doubts: Vec<String>,
}

impl Groups {
    /// Reads the descriptors of the first `count` groups.
    pub(super) fn read(source: &dyn Source, superblock: &Superblock, count: u64) -> Self {
        let mut groups = Self::default();
        let (mut copied, mut doubtful) = (0_u64, 0_u64);
        for group in 0..count.min(superblock.groups()) {
            let own = read_table(source, superblock, group, superblock.descriptor(group));
            let Err(fault) = own else { continue };
            if groups.replaced.len() >= REPLACED_MAX {
                groups.doubts.push(format!("groups from {group} on are not checked"));
                break;
            }
            let copies = superblock.descriptor_copies(group);
            let sound = copies
                .into_iter()
                .find_map(|at| Some((at, read_table(source, superblock, group, at).ok()?)));
            match sound {
                Some((at, table)) => {
                    groups.replaced.insert(group, Some(table));
                    copied += 1;
                    if copied <= NOTES_MAX {
                        let says = format!("{}; the copy at byte {at} is used", fault.why);
                        groups.notes.push(says);
                    }
                }
                None => {
                    groups.replaced.insert(group, fault.table);
                    doubtful += 1;
                    if doubtful <= NOTES_MAX {
                        groups.doubts.push(fault.why);
                    }
                }
            }
        }
        let more = |count: u64| format!("and {} groups more", count - NOTES_MAX);
        if copied > NOTES_MAX {
            groups.notes.push(more(copied));
        }
        if doubtful > NOTES_MAX {
            groups.doubts.push(more(doubtful));
        }
        groups
    }

    /// First block of the inode table of a group.
    ///
    /// # Errors
    /// The group has no sound descriptor, and no sound copy of one.
    pub(super) fn table(
        &self,
        source: &dyn Source,
        superblock: &Superblock,
        group: u64,
    ) -> Result<u64, TreeError> {
        let table = match self.replaced.get(&group) {
            Some(table) => *table,
            None => {
                let bytes =
                    read_vec(source, superblock.descriptor(group), superblock.descriptor_bytes)?;
                named_table(superblock, &bytes)
            }
        };
        table.ok_or_else(|| {
            let what = format!("table of inodes of group {group}");
            TreeError::damaged(what, "no sound descriptor", "a block of the file system")
        })
    }
}

/// Fault of a descriptor, and the inode table that it names; `None` if it cannot be a table.
struct Fault {
    why: String,
    table: Option<u64>,
}

/// First block of the inode table that the descriptor at byte `at` names, or the fault of the
/// descriptor.
fn read_table(
    source: &dyn Source,
    superblock: &Superblock,
    group: u64,
    at: u64,
) -> Result<u64, Fault> {
    let wrong =
        |why: String, table| Fault { why: format!("descriptor of group {group}: {why}"), table };
    let bytes = read_vec(source, at, superblock.descriptor_bytes)
        .map_err(|error| wrong(error.to_string(), None))?;
    let table = named_table(superblock, &bytes);
    if superblock.has_group_sums() {
        let (stored, computed) = (le16(&bytes, SUM_AT), sum(superblock, group, &bytes));
        if stored != computed {
            let why = format!("checksum: found {stored:#06x}, expected {computed:#06x}");
            return Err(wrong(why, table));
        }
    }
    table.ok_or_else(|| {
        wrong("found an impossible table of inodes, expected a block of it".into(), None)
    })
}

/// First block of the inode table that a descriptor names; `None` if the file system has no such
/// block.
fn named_table(superblock: &Superblock, bytes: &[u8]) -> Option<u64> {
    let high = if bytes.len() >= 64 { u64::from(le32(bytes, 0x28)) << 32 } else { 0 };
    let table = high | u64::from(le32(bytes, 8));
    (table != 0 && table < superblock.blocks).then_some(table)
}

/// Checksum of a descriptor: 16 bits of the file system's CRC-32C, or a CRC-16.
fn sum(superblock: &Superblock, group: u64, bytes: &[u8]) -> u16 {
    let number = u32::try_from(group).unwrap_or(u32::MAX).to_le_bytes();
    let (before, rest) = bytes.split_at(SUM_AT);
    let after = &rest[2..];
    if let Some(start) = superblock.sum_start {
        let pieces = [&number[..], before, &[0; 2], after];
        let sum = pieces.iter().fold(start, |sum, piece| crc32c_raw(sum, piece));
        return u16::try_from(sum & 0xffff).unwrap_or(0);
    }
    let pieces = [&superblock.uuid[..], &number, before, after];
    pieces.iter().fold(u16::MAX, |sum, piece| crc16(sum, piece))
}

/// CRC-16 with the polynomial 0x8005, bits reflected, as `gdt_csum` uses it.
fn crc16(sum: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(sum, |sum, byte| {
        (0..8).fold(sum ^ u16::from(*byte), |sum, _| (sum >> 1) ^ (0xa001 * (sum & 1)))
    })
}

/// Byte offset of the checksum in a descriptor.
const SUM_AT: usize = 0x1e;
/// Largest number of damaged descriptors that are replaced.
const REPLACED_MAX: usize = 1 << 16;
/// Largest number of groups that are named one by one in the notes, and as many in the doubts.
const NOTES_MAX: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc16_has_the_check_value_of_its_kind() {
        // CRC-16/ARC starts with 0, CRC-16/MODBUS with ones.
        assert_eq!(crc16(0, b"123456789"), 0xbb3d);
        assert_eq!(crc16(u16::MAX, b"123456789"), 0x4b37);
    }
}
