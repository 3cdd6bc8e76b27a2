//! Content of a source: a file system, a partition table, a physical volume, swap, LUKS.
//!
//! A superblock gives the label, the UUID, the size and, if it records one, the time of the last
//! use. Nothing is checked beyond the signature and the bytes that these fields need. A damaged
//! file system is therefore recognised too, and an ext file system without its first superblock by
//! a backup.
//!
//! Source   ext4: Linux documentation, "ext4 Data Structures and Algorithms", "Super Block"; btrfs:
//!          "On-disk Format" of its wiki; XFS: "XFS Algorithms & Data Structures", "Superblocks";
//!          LUKS1 and LUKS2 On-Disk Format Specification; swap: mkswap(8), swaplabel(8)

use std::fmt;

use weft_ondisk::ext;
use weft_ondisk::partition::{self, Table, TableError};
use weft_ondisk::probe::{HEAD_BYTES, TAIL_BYTES, foreign_signature};
use weft_units::Bytes;

use crate::bytes::{array, be16, be32, be64, le16, le32, le64, part, text, uuid};
use crate::ext4;
use crate::source::{BLOCK_BYTES, ReadError, Source};

/// Content of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Kind of the content.
    pub kind: Kind,
    /// Label that a user gave; `None` if there is none.
    pub label: Option<String>,
    /// UUID in its usual form; `None` if the content has none.
    pub uuid: Option<String>,
    /// Size in bytes that the content itself records; `None` if it records none.
    pub size: Option<u64>,
    /// Time of the last use, in seconds from 1970; on ext the later of the last write and the last
    /// mount. `None` if the content records none.
    pub last_use: Option<i64>,
    /// Notes for the user, such as blocks that cannot be read.
    pub notes: Vec<String>,
    /// Whether bytes that may have had a signature cannot be read.
    pub is_partly_unreadable: bool,
}

/// Kinds of content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// btrfs, on this many devices.
    Btrfs(u64),
    /// ext2, ext3 or ext4, with the number 2, 3 or 4.
    Ext(u8),
    /// LUKS, with its version.
    Luks(u16),
    /// Physical volume of LVM2.
    LvmPhysical,
    /// None of the known signatures.
    Nothing,
    /// Another signature, by its name for messages.
    Other(&'static str),
    /// Read-only snapshot in a btrfs, with the number of its subvolume.
    Snapshot(u64),
    /// Swap space.
    Swap,
    /// Partition table.
    Table(Table),
    /// XFS.
    Xfs,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Btrfs(1) => f.write_str("btrfs"),
            Self::Btrfs(devices) => write!(f, "btrfs on {devices} devices"),
            Self::Ext(version) => write!(f, "ext{version}"),
            Self::Luks(version) => write!(f, "LUKS{version}"),
            Self::LvmPhysical => f.write_str("LVM2 physical volume"),
            Self::Nothing => f.write_str("nothing known"),
            Self::Other(name) => f.write_str(name),
            Self::Snapshot(_) => f.write_str("btrfs snapshot"),
            Self::Swap => f.write_str("swap"),
            Self::Table(table) => write!(f, "{}", table.scheme),
            Self::Xfs => f.write_str("XFS"),
        }
    }
}

/// Recognises the content of a source.
#[must_use]
pub fn probe(source: &dyn Source) -> Content {
    let mut notes = Vec::new();
    let head = lossy(source, 0, HEAD_BYTES as u64, &mut notes);
    let is_partly_unreadable = !notes.is_empty();
    let found = luks(&head)
        .or_else(|| lvm(&head))
        .or_else(|| btrfs(part(&head, 64 << 10, 4096)))
        .or_else(|| xfs(&head))
        .or_else(|| extended(part(&head, ext::SUPERBLOCK_AT, ext::SUPERBLOCK_BYTES)))
        .or_else(|| swap(&head));
    let mut content = found.unwrap_or_else(|| other(source, &head, &mut notes));
    // A source without a signature may be an ext file system that has lost its first superblock.
    if content.kind == Kind::Nothing
        && let Some((backup, note)) = ext4::backup(source)
        && let Some(found) = extended(&backup)
    {
        notes.push(note);
        content = found;
    }
    // The first superblock of btrfs may be lost: the second one records its own place.
    if content.kind == Kind::Nothing && source.size() > BTRFS_SECOND {
        let second = lossy(source, BTRFS_SECOND, 4096, &mut Vec::new());
        if le64(&second, 0x30) == BTRFS_SECOND {
            content = btrfs(&second).unwrap_or(content);
        }
    }
    if let Some(size) = content.size.filter(|size| *size > source.size()) {
        notes.push(format!("its size is {size} bytes, of which {} are here", source.size()));
    }
    content.notes.append(&mut notes);
    content.is_partly_unreadable = is_partly_unreadable;
    content
}

/// The bytes `at..at + len`, up to the end of the source, with zeros for blocks that cannot be
/// read. A note tells how many cannot.
fn lossy(source: &dyn Source, at: u64, len: u64, notes: &mut Vec<String>) -> Vec<u8> {
    let len = len.min(source.size().saturating_sub(at));
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    if source.read_at(at, &mut bytes).is_ok() {
        return bytes;
    }
    let mut lost = 0;
    for (block, offset) in bytes.chunks_mut(BLOCK_BYTES).zip((at..).step_by(BLOCK_BYTES)) {
        if source.read_at(offset, block).is_err() {
            block.fill(0);
            lost += block.len();
        }
    }
    notes.push(format!("{lost} of the bytes {at}..{} cannot be read", at + len));
    bytes
}

fn content(kind: Kind) -> Content {
    Content {
        kind,
        label: None,
        uuid: None,
        size: None,
        last_use: None,
        notes: Vec::new(),
        is_partly_unreadable: false,
    }
}

fn luks(head: &[u8]) -> Option<Content> {
    if !head.starts_with(b"LUKS\xba\xbe") {
        return None;
    }
    let version = be16(head, 6);
    let label = if version == 2 { text(part(head, 24, 48)) } else { None };
    let uuid = text(part(head, 168, 40));
    Some(Content { label, uuid, ..content(Kind::Luks(version)) })
}

fn lvm(head: &[u8]) -> Option<Content> {
    let is_label = |at: &usize| part(head, *at, 8) == b"LABELONE";
    let at = [0, 512, 1024, 1536].into_iter().find(is_label)?;
    (part(head, at + 24, 8) == b"LVM2 001").then(|| content(Kind::LvmPhysical))
}

fn btrfs(superblock: &[u8]) -> Option<Content> {
    if part(superblock, 0x40, 8) != b"_BHRfS_M" {
        return None;
    }
    let devices = le64(superblock, 0x88);
    // If there are several devices, the size is that of this device.
    let size_at = if devices > 1 { 0xd1 } else { 0x70 };
    Some(Content {
        label: text(part(superblock, 0x12b, 256)),
        uuid: uuid(array(superblock, 0x20)),
        size: Some(le64(superblock, size_at)),
        ..content(Kind::Btrfs(devices))
    })
}

fn xfs(head: &[u8]) -> Option<Content> {
    if !head.starts_with(b"XFSB") {
        return None;
    }
    Some(Content {
        label: text(part(head, 108, 12)),
        uuid: uuid(array(head, 32)),
        size: u64::from(be32(head, 4)).checked_mul(be64(head, 8)),
        ..content(Kind::Xfs)
    })
}

/// Content of a source with this superblock of ext2, ext3 or ext4; `None` if the bytes are no such
/// superblock, or that of a journal device.
fn extended(superblock: &[u8]) -> Option<Content> {
    let generation = ext::generation(superblock)?;
    if le32(superblock, 0x60) & ext::JOURNAL_DEVICE != 0 {
        return None;
    }
    let seconds = |at: usize, high: usize| {
        i64::from(le32(superblock, at)) | i64::from(superblock[high]) << 32
    };
    let used = seconds(0x30, 0x274).max(seconds(0x2c, 0x275));
    let mut notes = Vec::new();
    if le16(superblock, 0x3a) & ERRORS != 0 {
        notes.push("marked as damaged (e2fsck would check it)".into());
    }
    Some(Content {
        label: text(part(superblock, 0x78, 16)),
        uuid: uuid(array(superblock, 0x68)),
        size: ext::blocks(superblock).checked_mul(1024 << le32(superblock, 0x18)),
        last_use: (used > 0).then_some(used),
        notes,
        ..content(Kind::Ext(generation))
    })
}

fn swap(head: &[u8]) -> Option<Content> {
    let is_swap = |page: &u64| {
        let at = usize::try_from(page - 10).unwrap_or(0);
        matches!(part(head, at, 10), b"SWAPSPACE2" | b"S1SUSPEND\0")
    };
    let page = [4096, 8192, 16384, 65536].into_iter().find(is_swap)?;
    Some(Content {
        label: text(part(head, 1052, 16)),
        uuid: uuid(array(head, 1036)),
        size: (u64::from(le32(head, 1028)) + 1).checked_mul(page),
        ..content(Kind::Swap)
    })
}

/// A partition table, or another known signature, which gives nothing but a name.
fn other(source: &dyn Source, head: &[u8], notes: &mut Vec<String>) -> Content {
    let tail_len = (TAIL_BYTES as u64).min(source.size());
    let tail = lossy(source, source.size() - tail_len, tail_len, notes);
    let size = Bytes(source.size()).sectors_floor();
    let foreign = foreign_signature(size, head, &tail).map(|foreign| foreign.name);
    if let Some(name) = foreign.filter(|name| !name.contains("partition table")) {
        return content(Kind::Other(name));
    }
    let mut read = |offset: u64, into: &mut [u8]| {
        source.read_at(offset, into).map_err(|error: ReadError| std::io::Error::other(error))
    };
    match partition::read(&mut read, source.size(), None) {
        Ok(mut table) => {
            let mut found = table.notices.clone();
            if table.partitions.len() > PARTITIONS_MAX {
                found.push(format!(
                    "found {} partitions, of which the first {PARTITIONS_MAX} are read",
                    table.partitions.len()
                ));
                table.partitions.truncate(PARTITIONS_MAX);
            }
            Content { notes: found, ..content(Kind::Table(table)) }
        }
        Err(TableError::Nothing) => content(foreign.map_or(Kind::Nothing, Kind::Other)),
        Err(error) => {
            notes.push(error.to_string());
            content(foreign.map_or(Kind::Nothing, Kind::Other))
        }
    }
}

/// Name of [`Kind::Other`] of a device of a btrfs that is read by another device of it.
pub const FURTHER_DEVICE: &str = "further device of btrfs";

/// Byte offset of the second superblock of btrfs.
const BTRFS_SECOND: u64 = 64 << 20;
/// Largest number of partitions of a table that are read: the limit of Linux.
const PARTITIONS_MAX: usize = 256;
/// Flag in the state of an ext superblock: the kernel has detected errors.
const ERRORS: u16 = 2;
