//! Superblock of btrfs: the newest valid copy of three, with the chunks of the system.
//!
//! Source   btrfs documentation, "On-disk Format", "Superblock"

use super::sum::Sum;
use crate::bytes::{array, le16, le32, le64, part};
use crate::source::{Source, read_vec};
use crate::tree::TreeError;

/// Place of a tree's root block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Root {
    /// Logical address of the root block.
    pub(super) at: u64,
    /// Generation of the block.
    pub(super) generation: u64,
    /// Level of the root block: the number of levels below it.
    pub(super) level: u8,
}

/// A superblock.
#[derive(Clone, Debug)]
pub(super) struct Superblock {
    /// Byte offset of this copy on its device.
    pub(super) place: u64,
    pub(super) sum: Sum,
    pub(super) generation: u64,
    /// UUID of the file system, which each of its devices has.
    pub(super) uuid: [u8; 16],
    /// UUID in the headers of tree blocks.
    pub(super) block_uuid: [u8; 16],
    pub(super) roots: Root,
    pub(super) chunks: Root,
    /// Root of the tree of log roots; `None` if there is no log, as after an unmount.
    pub(super) logs: Option<Root>,
    /// Size of all devices together, in bytes.
    pub(super) total_bytes: u64,
    pub(super) used_bytes: u64,
    pub(super) devices: u64,
    /// Number of this device.
    pub(super) device: u64,
    pub(super) sector_bytes: u64,
    pub(super) node_bytes: u64,
    pub(super) incompat: u64,
    /// Keys and items of the system's chunks.
    pub(super) system_chunks: Vec<u8>,
}

impl Superblock {
    /// Byte offsets of the copies on a device.
    pub(super) const PLACES: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];
    /// Length of a copy in bytes.
    pub(super) const BYTES: u64 = 4096;

    /// Reads the valid copies with the UUID of the first valid one, and returns the one with the
    /// highest generation. Without a valid copy, the error is that of the first copy.
    pub(super) fn read(source: &dyn Source) -> Result<Self, TreeError> {
        let mut newest: Option<Self> = None;
        let mut error = None;
        for place in Self::PLACES.into_iter().filter(|place| place + Self::BYTES <= source.size()) {
            let bytes = read_vec(source, place, Self::BYTES).map_err(TreeError::from);
            match bytes.and_then(|bytes| Self::parse(place, &bytes)) {
                Ok(found) => {
                    // A copy that a former file system left behind has another UUID.
                    let is_newer =
                        |it: &Self| it.uuid == found.uuid && it.generation < found.generation;
                    if newest.as_ref().is_none_or(is_newer) {
                        newest = Some(found);
                    }
                }
                Err(why) => {
                    error.get_or_insert(why);
                }
            }
        }
        let nothing =
            || TreeError::damaged("size in bytes", source.size(), "at least 69632 of btrfs");
        newest.ok_or_else(|| error.unwrap_or_else(nothing))
    }

    pub(super) fn parse(place: u64, bytes: &[u8]) -> Result<Self, TreeError> {
        let field = |name: &str| format!("superblock at byte {place}, {name}");
        if part(bytes, 0x40, 8) != MAGIC {
            let found = part(bytes, 0x40, 8).escape_ascii();
            return Err(TreeError::damaged(field("magic"), found, "_BHRfS_M"));
        }
        let sum = Sum::of(le16(bytes, 0xc4))?;
        if !sum.holds(bytes) {
            let found = part(bytes, 0, sum.len()).escape_ascii();
            return Err(TreeError::damaged(field("checksum"), found, "that of its bytes"));
        }
        let own_place = le64(bytes, 0x30);
        if own_place != place {
            return Err(TreeError::damaged(field("place"), own_place, place.to_string()));
        }
        let (sector, node) = (le32(bytes, 0x90), le32(bytes, 0x94));
        if !sector.is_power_of_two() || !(4096..=65536).contains(&sector) {
            let expected = "a power of two from 4096 to 65536";
            return Err(TreeError::damaged(field("size of sectors"), sector, expected));
        }
        if !node.is_power_of_two() || !(sector..=65536).contains(&node) {
            let expected = format!("a power of two from {sector} to 65536");
            return Err(TreeError::damaged(field("size of nodes"), node, expected));
        }
        let incompat = le64(bytes, 0xbc);
        for (bit, name) in REFUSED {
            if incompat & bit != 0 {
                return Err(TreeError::Refused(format!("btrfs with {name} is not read")));
            }
        }
        let array_len = le32(bytes, 0xa0);
        let system_chunks =
            part(bytes, 0x32b, usize::try_from(array_len).unwrap_or(usize::MAX).min(2048));
        if system_chunks.len() as u64 != u64::from(array_len) {
            return Err(TreeError::damaged(field("bytes of chunks"), array_len, "at most 2048"));
        }
        let generation = le64(bytes, 0x48);
        let root = |at: usize, level: usize, generation: u64| Root {
            at: le64(bytes, at),
            generation,
            level: bytes[level],
        };
        let uuid = array(bytes, 0x20);
        let has_block_uuid = incompat & METADATA_UUID != 0;
        Ok(Self {
            place,
            sum,
            generation,
            uuid,
            block_uuid: if has_block_uuid { array(bytes, 0x23b) } else { uuid },
            roots: root(0x50, 0xc6, generation),
            chunks: root(0x58, 0xc7, le64(bytes, 0xa4)),
            // A log belongs to the transaction after the last one that was committed.
            logs: (le64(bytes, 0x60) != 0).then(|| root(0x60, 0xc8, generation.wrapping_add(1))),
            total_bytes: le64(bytes, 0x70),
            used_bytes: le64(bytes, 0x78),
            devices: le64(bytes, 0x88),
            device: le64(bytes, 0xc9),
            sector_bytes: sector.into(),
            node_bytes: node.into(),
            incompat,
            system_chunks: system_chunks.to_vec(),
        })
    }

    /// Notes for the user: another copy than the first one is used, or features are unknown.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.place != Self::PLACES[0] {
            let place = self.place;
            notes.push(format!(
                "its first superblock is damaged or old; the one at byte {place} is used"
            ));
        }
        let unknown = self.incompat & !KNOWN;
        if unknown != 0 {
            notes.push(format!(
                "it has features that are not known ({unknown:#x}): check its files"
            ));
        }
        notes
    }
}

const MAGIC: &[u8] = b"_BHRfS_M";
/// Incompatible feature: tree blocks have a UUID of their own.
const METADATA_UUID: u64 = 0x400;
/// Incompatible features that are read: all up to profiles of three and four copies, and simple
/// quotas, which change no item that is read.
const KNOWN: u64 = 0xfff | 0x1_0000;
/// Incompatible features that are refused.
const REFUSED: [(u64, &str); 3] = [
    (0x1000, "zones"),
    (0x2000, "an extent tree of version 2"),
    (0x4000, "a tree of RAID stripes"),
];
