//! Partition tables: GPT and MBR of a disk or image, numbered as the kernel numbers them.
//!
//! MBRs are read with their chains of logical partitions; the content of partitions is not
//! examined. A table may be hostile: every offset is checked before it is read, every chain has a
//! bounded length, and no table makes the reader allocate more than `ARRAY_BYTES_MAX`.
//!
//! If the first GPT header is damaged or cannot be read, the second one is used, with a notice.
//! Sectors that cannot be read cost only the partitions that they describe. An image does not
//! record the logical block size of its disk, so both 512 and 4096 bytes are tried for a GPT. For
//! an MBR in an image, blocks of 512 bytes are assumed, because nothing in an MBR gives their size.
//!
//! Existing crates for partition tables take ownership of the device, write it back, or trust the
//! counts in its headers; hence weft has its own reader.
//!
//! Source   UEFI specification 2.10, §5.3 (GPT) and §5.2 (MBR); the order of logical partitions is
//!          that of the chain, as fdisk shows it

use std::collections::BTreeSet;
use std::fmt;
use std::io;

use thiserror::Error;
use weft_units::SECTOR_BYTES;
use weft_units::fields::{le32, le64};

/// Callback that fills the buffer with the bytes of the disk that begin at a byte offset.
pub type ReadAt<'a> = dyn FnMut(u64, &mut [u8]) -> io::Result<()> + 'a;

/// A partition of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Number of the partition, from 1, as the kernel numbers it.
    pub number: u32,
    /// Byte offset of the partition on the disk.
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
    /// Purpose of the partition according to the table: the name of its type, or the type's number.
    pub kind: String,
    /// Whether the partition contains other partitions rather than data.
    pub is_extended: bool,
}

/// The partitions of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Kind of the table.
    pub scheme: Scheme,
    /// Partitions in the order of their numbers.
    pub partitions: Vec<Partition>,
    /// Sentences for people about oddities of the table.
    pub notices: Vec<String>,
}

/// Kinds of partition tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// GUID partition table.
    Gpt,
    /// Master boot record.
    Mbr,
}

/// Reasons why no partitions can be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TableError {
    /// There is a GUID partition table, and neither of its copies is valid.
    #[error(
        "GUID partition table: first header {first}; second header {second}; name the partition by PATH@OFFSET+LENGTH (weft rescue finds where)"
    )]
    Damaged {
        /// Fault of the copy at the start of the device.
        first: String,
        /// Fault of the copy at the end of the device.
        second: String,
    },
    /// Reading the disk failed.
    #[error("partition table: {0}")]
    Io(#[from] io::Error),
    /// There is no partition table.
    #[error("partition table: found none, expected a GUID partition table or an MBR")]
    Nothing,
}

/// Reads the partition table of a disk of `size` bytes.
///
/// Shape    `block` is the logical block size of a device, `None` for an image
///
/// # Errors
/// Fails when there is no valid table.
pub fn read(read: &mut ReadAt<'_>, size: u64, block: Option<u32>) -> Result<Table, TableError> {
    if size < SECTOR_BYTES {
        return Err(TableError::Nothing);
    }
    let mut sector = [0; 512];
    let unread = read(0, &mut sector).err();
    let boot = BootSector::parse(&sector).filter(|_| unread.is_none());
    let blocks: &[u32] = match &block {
        Some(block) => std::slice::from_ref(block),
        None => &[512, 4096],
    };
    let gpt = read_gpt(read, size, blocks);
    match (boot, gpt) {
        (Some(boot), Gpt::Good(mut table)) if boot.is_protective() => {
            if boot.entries.iter().any(|entry| entry.is_used() && entry.kind != KIND_PROTECTIVE) {
                table.notices.push(
                    "the MBR has partitions of its own (a hybrid MBR); those of the GUID partition \
                     table count, as for Linux"
                        .into(),
                );
            }
            Ok(table)
        }
        (None, Gpt::Good(mut table)) => {
            let why = unread.map_or("no protective MBR".into(), |error| format!("MBR: {error}"));
            table.notices.push(format!("{why}; the GUID partition table is whole and is used"));
            Ok(table)
        }
        (Some(boot), Gpt::Damaged { first, second }) if boot.is_protective() => {
            Err(TableError::Damaged { first, second })
        }
        (Some(boot), gpt) if !boot.is_protective() && boot.entries.iter().any(Entry::is_used) => {
            let mut table = read_mbr(read, &boot, size, block.unwrap_or(512));
            if matches!(gpt, Gpt::Good(_)) {
                table.notices.push(
                    "there is a GUID partition table too; the MBR is not a protective one, and \
                     counts, as for Linux"
                        .into(),
                );
            }
            Ok(table)
        }
        (_, Gpt::Damaged { first, second }) => Err(TableError::Damaged { first, second }),
        (_, Gpt::Unreadable(error)) => Err(TableError::Io(error)),
        (Some(boot), Gpt::None) if boot.is_protective() => Err(TableError::Damaged {
            first: "has no signature".into(),
            second: "has no signature".into(),
        }),
        _ => Err(unread.map_or(TableError::Nothing, TableError::Io)),
    }
}

impl Table {
    /// Partition with this number; `None` if there is none.
    #[must_use]
    pub fn find(&self, number: u32) -> Option<&Partition> {
        self.partitions.iter().find(|partition| partition.number == number)
    }

    /// List of all partitions as text in one line; `none` if there are no partitions.
    #[must_use]
    pub fn summary(&self) -> String {
        let all: Vec<String> = self.partitions.iter().map(ToString::to_string).collect();
        if all.is_empty() { "none".into() } else { all.join(", ") }
    }

    /// Adds notices about partitions that overlap each other or end beyond the disk of `size`
    /// bytes.
    fn judged(mut self, size: u64) -> Self {
        self.partitions.sort_by_key(|partition| partition.number);
        let mut data: Vec<&Partition> =
            self.partitions.iter().filter(|partition| !partition.is_extended).collect();
        data.sort_by_key(|partition| partition.start);
        let mut notices = Vec::new();
        for pair in data.windows(2) {
            if let [a, b] = pair
                && b.start < a.start.saturating_add(a.len)
            {
                notices.push(format!("partitions {} and {} overlap", a.number, b.number));
            }
        }
        for partition in data {
            if partition.start.saturating_add(partition.len) > size {
                notices.push(format!(
                    "partition {} ends beyond the end of the disk, {size} bytes",
                    partition.number
                ));
            }
        }
        notices.truncate(NOTICES_MAX);
        self.notices.append(&mut notices);
        self
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, start, len, kind, .. } = self;
        write!(f, "{number} (bytes {start}+{len}, {kind})")
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gpt => "GUID partition table",
            Self::Mbr => "MBR",
        })
    }
}

/// Result of the search for a GUID partition table.
enum Gpt {
    None,
    /// No header was found, and the first place that could not be read may have one.
    Unreadable(io::Error),
    Good(Table),
    Damaged {
        first: String,
        second: String,
    },
}

/// Reads a GUID partition table: tries the first header with each block size, then the second
/// header with each.
fn read_gpt(read: &mut ReadAt<'_>, size: u64, blocks: &[u32]) -> Gpt {
    let (mut first, mut unread) = (None, None);
    let mut backup = Vec::new();
    for &block in blocks {
        match GptHeader::read(read, size, block, 1) {
            Ok(header) => match header.partitions(read, size) {
                Ok(partitions) => return Gpt::Good(of_gpt(partitions, size)),
                Err(why) => {
                    first = Some(why);
                    backup.push((block, header.alternate));
                }
            },
            Err(HeaderFault::Damaged(why)) => first = Some(why),
            Err(HeaderFault::Unreadable(error)) => unread = unread.or(Some(error)),
            Err(HeaderFault::None) => {}
        }
        backup.push((block, (size / u64::from(block)).saturating_sub(1)));
    }
    let mut second = None;
    for (block, at) in backup {
        if at <= 1 {
            continue;
        }
        match GptHeader::read(read, size, block, at) {
            Ok(header) => match header.partitions(read, size) {
                Ok(partitions) => {
                    let first = first.or(unread.map(|error| format!("cannot be read: {error}")));
                    let mut table = of_gpt(partitions, size);
                    table.notices.push(format!(
                        "GUID partition table: first header {}; the second one, at byte {}, is \
                         whole and is used",
                        first.as_deref().unwrap_or("has no signature"),
                        at * u64::from(block)
                    ));
                    return Gpt::Good(table);
                }
                Err(why) => second = Some(why),
            },
            Err(HeaderFault::Damaged(why)) => second = Some(why),
            Err(HeaderFault::Unreadable(error)) => unread = unread.or(Some(error)),
            Err(HeaderFault::None) => {}
        }
    }
    if first.is_none() && second.is_none() {
        return unread.map_or(Gpt::None, Gpt::Unreadable);
    }
    let none =
        || unread.map_or("has no signature".to_owned(), |it| format!("cannot be read: {it}"));
    match (first, second) {
        (Some(first), second) => Gpt::Damaged { first, second: second.unwrap_or_else(none) },
        (None, second) => Gpt::Damaged { first: none(), second: second.unwrap_or_default() },
    }
}

fn of_gpt(partitions: Vec<Partition>, size: u64) -> Table {
    Table { scheme: Scheme::Gpt, partitions, notices: Vec::new() }.judged(size)
}

/// The fields of a GPT header that are used.
struct GptHeader {
    block: u64,
    /// Block in which the other copy of the header is.
    alternate: u64,
    array_at: u64,
    entries: u32,
    entry_bytes: u32,
    array_crc: u32,
}

enum HeaderFault {
    /// The block has no GPT signature, or lies beyond the end of the device.
    None,
    Unreadable(io::Error),
    Damaged(String),
}

impl GptHeader {
    fn read(read: &mut ReadAt<'_>, size: u64, block: u32, lba: u64) -> Result<Self, HeaderFault> {
        let block = u64::from(block);
        let Some(at) = lba.checked_mul(block).filter(|at| {
            at.checked_add(block).is_some_and(|end| end <= size) && block >= SECTOR_BYTES
        }) else {
            return Err(HeaderFault::None);
        };
        let mut bytes = vec![0; usize::try_from(block).unwrap_or(0)];
        read(at, &mut bytes).map_err(HeaderFault::Unreadable)?;
        Self::parse(&bytes, block, lba, size)
    }

    /// Parses the header in block `lba`, and checks its checksum and its fields.
    ///
    /// Source   UEFI specification 2.10, table 5.5
    fn parse(bytes: &[u8], block: u64, lba: u64, size: u64) -> Result<Self, HeaderFault> {
        if !bytes.starts_with(b"EFI PART") {
            return Err(HeaderFault::None);
        }
        let at = lba * block;
        let damaged = |field: &str, offset: u64, found: &dyn fmt::Display, expected: &str| {
            Err(HeaderFault::Damaged(format!(
                "{field} at byte {}: found {found}, expected {expected}",
                at + offset
            )))
        };
        let header_bytes = le32(bytes, 12);
        if u64::from(header_bytes) > block || header_bytes < HEADER_BYTES {
            return damaged("size", 12, &header_bytes, &format!("{HEADER_BYTES} to {block}"));
        }
        let mut header = bytes[..header_bytes as usize].to_vec();
        header[16..20].fill(0);
        let (stored, computed) = (le32(bytes, 16), crc32fast::hash(&header));
        if stored != computed {
            let expected = format!("{computed:#010x}");
            return damaged("checksum", 16, &format!("{stored:#010x}"), &expected);
        }
        let own = le64(bytes, 24);
        if own != lba {
            return damaged("own place", 24, &own, &lba.to_string());
        }
        let (entries, entry_bytes) = (le32(bytes, 80), le32(bytes, 84));
        if entry_bytes < ENTRY_BYTES || !entry_bytes.is_power_of_two() || entry_bytes > 4096 {
            let expected = format!("{ENTRY_BYTES} times a power of two, at most 4096");
            return damaged("size of an entry", 84, &entry_bytes, &expected);
        }
        let array_bytes = u64::from(entries) * u64::from(entry_bytes);
        if array_bytes > ARRAY_BYTES_MAX {
            let expected = format!("at most {}", ARRAY_BYTES_MAX / u64::from(entry_bytes));
            return damaged("number of entries", 80, &entries, &expected);
        }
        let array_at = le64(bytes, 72).checked_mul(block);
        let end = array_at.and_then(|at| at.checked_add(array_bytes));
        let Some(array_at) = array_at.filter(|_| end.is_some_and(|end| end <= size)) else {
            return damaged("place of the entries", 72, &le64(bytes, 72), "one within the disk");
        };
        let (alternate, array_crc) = (le64(bytes, 32), le32(bytes, 88));
        Ok(Self { block, alternate, array_at, entries, entry_bytes, array_crc })
    }

    /// Partitions of the entries in use. The error says why the array of entries is not valid.
    fn partitions(&self, read: &mut ReadAt<'_>, size: u64) -> Result<Vec<Partition>, String> {
        let len = u64::from(self.entries) * u64::from(self.entry_bytes);
        debug_assert!(self.array_at + len <= size);
        let mut array = vec![0; usize::try_from(len).unwrap_or(0)];
        read(self.array_at, &mut array).map_err(|error| {
            format!("has entries at byte {} that cannot be read: {error}", self.array_at)
        })?;
        let computed = crc32fast::hash(&array);
        if computed != self.array_crc {
            return Err(format!(
                "has the checksum {:#010x} for the entries at byte {}, which have {computed:#010x}",
                self.array_crc, self.array_at
            ));
        }
        let entries = array.chunks_exact(self.entry_bytes as usize).zip(1..);
        let used = entries.filter_map(|(entry, number)| self.partition(entry, number));
        Ok(used.collect())
    }

    /// Parses an entry of the array; `None` if it is unused or its range is not legal.
    ///
    /// Source   UEFI specification 2.10, table 5.6
    fn partition(&self, entry: &[u8], number: u32) -> Option<Partition> {
        let guid: [u8; 16] = entry.get(..16)?.try_into().ok()?;
        let (first, last) = (le64(entry, 32), le64(entry, 40));
        if guid == [0; 16] || last < first {
            return None;
        }
        let start = first.checked_mul(self.block)?;
        let len = (last - first).checked_add(1)?.checked_mul(self.block)?;
        start.checked_add(len)?;
        let kind = gpt_kind(&guid);
        Some(Partition { number, start, len, kind, is_extended: false })
    }
}

/// The four entries of a boot sector.
#[derive(Clone, Copy, Debug)]
struct BootSector {
    entries: [Entry; 4],
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    kind: u8,
    /// First block of the partition. Entries of the disk's first sector count from the start of the
    /// disk, those of a chain as described at `read_logical`.
    start: u32,
    blocks: u32,
}

impl BootSector {
    /// Parses a boot sector. `None` unless it is signed and its entries are legal: the boot sector
    /// of a file system has other bytes there.
    fn parse(sector: &[u8; 512]) -> Option<Self> {
        if sector[510..] != [0x55, 0xaa] {
            return None;
        }
        let mut entries = [Entry { kind: 0, start: 0, blocks: 0 }; 4];
        for (entry, bytes) in entries.iter_mut().zip(sector[446..510].chunks_exact(16)) {
            if !matches!(bytes[0], 0 | 0x80) {
                return None;
            }
            *entry = Entry { kind: bytes[4], start: le32(bytes, 8), blocks: le32(bytes, 12) };
        }
        Some(Self { entries })
    }

    fn is_protective(&self) -> bool {
        self.entries.iter().any(|entry| entry.kind == KIND_PROTECTIVE)
    }
}

impl Entry {
    fn is_used(&self) -> bool {
        self.kind != 0 && self.blocks != 0
    }

    fn is_extended(&self) -> bool {
        self.is_used() && KINDS_EXTENDED.contains(&self.kind)
    }
}

fn read_mbr(read: &mut ReadAt<'_>, boot: &BootSector, size: u64, block: u32) -> Table {
    let block = u64::from(block);
    let mut table = Table { scheme: Scheme::Mbr, partitions: Vec::new(), notices: Vec::new() };
    for (entry, number) in boot.entries.iter().zip(1..) {
        if entry.is_used() {
            table.partitions.push(Partition {
                number,
                start: u64::from(entry.start) * block,
                len: u64::from(entry.blocks) * block,
                kind: mbr_kind(entry.kind),
                is_extended: entry.is_extended(),
            });
        }
    }
    for entry in boot.entries.iter().filter(|entry| entry.is_extended()) {
        read_logical(read, &mut table, entry, size, block);
    }
    table.judged(size)
}

/// Follows the chain of an extended partition, and adds its logical partitions to `table`. Each
/// link is a boot sector: its entry for a logical partition counts blocks from the link, its entry
/// for the next link counts blocks from the start of the extended partition.
fn read_logical(read: &mut ReadAt<'_>, table: &mut Table, extended: &Entry, size: u64, block: u64) {
    let base = u64::from(extended.start);
    let end = base + u64::from(extended.blocks);
    let (mut link, mut link_blocks) = (base, u64::from(extended.blocks));
    let mut seen = BTreeSet::new();
    loop {
        if !seen.insert(link) || seen.len() > LOGICAL_MAX {
            table.notices.push(format!(
                "the chain of logical partitions does not end (at byte {}); those before it count",
                link * block
            ));
            return;
        }
        let at = link * block;
        if at + SECTOR_BYTES > size {
            table.notices.push(format!(
                "the chain of logical partitions goes on at byte {at}, beyond the end of the disk"
            ));
            return;
        }
        let mut sector = [0; 512];
        if let Err(error) = read(at, &mut sector) {
            table.notices.push(format!(
                "the chain of logical partitions goes on at byte {at}, which cannot be read: \
                 {error}; those before it count"
            ));
            return;
        }
        let Some(boot) = BootSector::parse(&sector) else {
            table.notices.push(format!(
                "the chain of logical partitions has no table at byte {at}, where it goes on"
            ));
            return;
        };
        for (entry, index) in boot.entries.iter().zip(0..) {
            if !entry.is_used() || entry.is_extended() {
                continue;
            }
            let (start, blocks) = (link + u64::from(entry.start), u64::from(entry.blocks));
            // Only the first two entries are defined; another entry counts only if it is plausible.
            let sound = start >= base
                && start + blocks <= end
                && u64::from(entry.start) + blocks <= link_blocks;
            if index >= 2 && !sound {
                continue;
            }
            let logical = table.partitions.iter().filter(|partition| partition.number > 4).count();
            if logical >= LOGICAL_MAX {
                table.notices.push(format!("more than {LOGICAL_MAX} logical partitions"));
                return;
            }
            table.partitions.push(Partition {
                number: u32::try_from(logical).unwrap_or(u32::MAX).saturating_add(5),
                start: start * block,
                len: blocks * block,
                kind: mbr_kind(entry.kind),
                is_extended: false,
            });
        }
        let Some(next) = boot.entries.iter().find(|entry| entry.is_extended()) else {
            return;
        };
        link = base + u64::from(next.start);
        link_blocks = u64::from(next.blocks);
    }
}

/// Name of the partition type with this GUID, or `type` and the GUID. The first three fields of a
/// GUID, of 4, 2 and 2 bytes, are little-endian.
fn gpt_kind(guid: &[u8; 16]) -> String {
    let text = format!(
        "{:08X}-{:04X}-{:04X}-{:02X}{:02X}-{}",
        le32(guid, 0),
        u16::from_le_bytes([guid[4], guid[5]]),
        u16::from_le_bytes([guid[6], guid[7]]),
        guid[8],
        guid[9],
        guid[10..].iter().map(|byte| format!("{byte:02X}")).collect::<String>()
    );
    let known = GPT_KINDS.iter().find(|(guid, _)| *guid == text);
    known.map_or(format!("type {text}"), |(_, name)| (*name).to_owned())
}

fn mbr_kind(kind: u8) -> String {
    let name = match kind {
        0x05 | 0x0f | 0x85 => "extended",
        0x07 => "NTFS or exFAT",
        0x0b | 0x0c => "FAT32",
        0x82 => "Linux swap",
        0x83 => "Linux",
        0x8e => "Linux LVM",
        KIND_PROTECTIVE => "GPT",
        0xef => "EFI system",
        0xfd => "Linux RAID",
        _ => return format!("type {kind:#04x}"),
    };
    name.into()
}

/// Names of types of partitions, by GUID.
///
/// Source   the Discoverable Partitions Specification, and UEFI specification 2.10, table 5.7
const GPT_KINDS: [(&str, &str); 8] = [
    ("0657FD6D-A4AB-43C4-84E5-0933C84B4F4F", "Linux swap"),
    ("0FC63DAF-8483-4772-8E79-3D69D8477DE4", "Linux file system"),
    ("21686148-6449-6E6F-744E-656564454649", "BIOS boot"),
    ("A19D880F-05FC-4D3B-A006-743F0F84911E", "Linux RAID"),
    ("C12A7328-F81F-11D2-BA4B-00A0C93EC93B", "EFI system"),
    ("E6D6D379-F507-44C2-A23C-238F2A3DF928", "Linux LVM"),
    ("E3C9E316-0B5C-4DB8-817D-F92DF00215AE", "Microsoft reserved"),
    ("EBD0A0A2-B9E5-4433-87C0-68B6B72699C7", "Microsoft basic data"),
];

/// Smallest legal size of a header, in bytes.
///
/// Source   UEFI specification 2.10, table 5.5: its last defined field ends here
const HEADER_BYTES: u32 = 92;
/// Smallest legal size of an entry, in bytes.
///
/// Source   UEFI specification 2.10, table 5.5, `SizeOfPartitionEntry`
const ENTRY_BYTES: u32 = 128;
/// Largest array of entries that is read, in bytes. Tables have 16 KiB; more than 32,768 entries of
/// 128 bytes are a hostile count.
const ARRAY_BYTES_MAX: u64 = 4 << 20;
/// Largest number of logical partitions that are read: the kernel has no device numbers for more.
const LOGICAL_MAX: usize = 251;
/// Largest number of notices about one table; further ones are left out. Notices are for people to
/// read.
const NOTICES_MAX: usize = 16;
const KIND_PROTECTIVE: u8 = 0xee;
const KINDS_EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];

#[cfg(test)]
mod tests;
