//! Signatures of other users of a device: file systems, partition tables, volume managers.
//!
//! A signature is a few bytes at a known offset. A match does not prove that the file system or
//! table is intact, only that a person should look at the device before it becomes a member.
//!
//! Source: the on-disk documentation of each format, offsets and bytes only.

use crate::ext;
use crate::super1::Super1;
use crate::version::Minor;
use crate::{SUPER_BYTES, Super090, Superblock};
use weft_units::fields::le32;
use weft_units::{SECTOR_BYTES, Sectors};

/// Bytes at the start of a member that [`foreign_signature`] needs: the signature of ZFS is the
/// farthest from the start, within the first 256 KiB.
pub const HEAD_BYTES: usize = 256 << 10;

/// Bytes at the end of a member that [`foreign_signature`] needs: the superblock of md 0.90 is the
/// farthest from the end, up to 128 KiB.
pub const TAIL_BYTES: usize = 128 << 10;

/// Signature of a format found on a member: a file system, a partition table, a volume manager, or
/// md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// Name of the format, for a message.
    pub name: &'static str,
    /// Byte offset of the signature on the device.
    pub byte: u64,
}

/// Signatures near the start: name, offset and bytes.
const HEAD: [(&str, usize, &[u8]); 36] = [
    ("a LUKS volume", 0, b"LUKS\xba\xbe"),
    ("a LUKS2 volume (second header)", 0x4000, b"SKUL\xba\xbe"),
    ("an LVM physical volume", 0, b"LABELONE"),
    ("an LVM physical volume", 512, b"LABELONE"),
    ("an LVM physical volume", 1024, b"LABELONE"),
    ("an LVM physical volume", 1536, b"LABELONE"),
    ("an XFS file system", 0, b"XFSB"),
    ("a btrfs file system", 0x1_0040, b"_BHRfS_M"),
    (
        "a bcachefs file system",
        0x1018,
        b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
    ),
    (
        "a bcache device",
        0x1018,
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
    ),
    ("an F2FS file system", 0x400, b"\x10\x20\xf5\xf2"),
    ("an F2FS file system (second superblock)", 0x1400, b"\x10\x20\xf5\xf2"),
    ("an EROFS file system", 0x400, b"\xe2\xe1\xf5\xe0"),
    ("a squashfs file system", 0, b"hsqs"),
    ("a JFS file system", 0x8000, b"JFS1"),
    ("a ReiserFS file system", 0x1_0034, b"ReIsEr"),
    ("a ReiserFS file system", 0x2034, b"ReIsEr"),
    ("an ISO 9660 file system", 0x8001, b"CD001"),
    ("an NTFS file system", 3, b"NTFS    "),
    ("an exFAT file system", 3, b"EXFAT   "),
    ("a FAT file system", 0x36, b"FAT12   "),
    ("a FAT file system", 0x36, b"FAT16   "),
    ("a FAT file system", 0x52, b"FAT32   "),
    ("swap space", 4096 - 10, b"SWAPSPACE2"),
    ("swap space", 8192 - 10, b"SWAPSPACE2"),
    ("swap space", 16384 - 10, b"SWAPSPACE2"),
    ("swap space", 65536 - 10, b"SWAPSPACE2"),
    ("a hibernated system", 4096 - 10, b"S1SUSPEND"),
    ("a GUID partition table", 512, b"EFI PART"),
    ("a GUID partition table", 4096, b"EFI PART"),
    ("a Stratis device", 0x204, b"!Stra0tis\x86\xff\x02^\x41rh"),
    ("a VDO volume", 0, b"dmvdo001"),
    ("a Ceph OSD", 0, b"bluestore block device"),
    ("a qcow2 image", 0, b"QFI\xfb"),
    ("a VMDK image", 0, b"KDMV"),
    ("a dm-verity tree", 0, b"verity\0\0"),
];

/// Signatures near the end: name, offset back from the end of the member, and bytes.
const TAIL: [(&str, u64, &[u8]); 7] = [
    ("a GUID partition table (second header)", 512, b"EFI PART"),
    ("a GUID partition table (second header)", 4096, b"EFI PART"),
    ("an Intel IMSM container member", 1024, b"Intel Raid ISM Cfg Sig. "),
    ("an Intel IMSM container member", 8192, b"Intel Raid ISM Cfg Sig. "),
    ("a DDF container member", 512, b"\xde\x11\xde\x11"),
    ("a DDF container member", 4096, b"\xde\x11\xde\x11"),
    ("a VHD image", 512, b"conectix"),
];

const MD_MAGIC_LITTLE: [u8; 4] = 0xa92b_4efc_u32.to_le_bytes();
const MD_MAGIC_BIG: [u8; 4] = 0xa92b_4efc_u32.to_be_bytes();
const ZFS_UBERBLOCK: u64 = 0x00ba_b10c;

/// First signature of a known format that is found on a member; md's superblock is such a format.
/// `None` if there is none.
///
/// Shape    `head` is the first [`HEAD_BYTES`] of the member and `tail` its last [`TAIL_BYTES`], or
///          the whole member if it is smaller; bytes that are not given are not searched
#[must_use]
pub fn foreign_signature(member_size: Sectors, head: &[u8], tail: &[u8]) -> Option<Foreign> {
    let tail_start = member_size.bytes().0.saturating_sub(tail.len() as u64);
    let in_tail = |byte: u64, signature: &[u8]| {
        let from = byte.checked_sub(tail_start).and_then(|from| usize::try_from(from).ok());
        from.is_some_and(|from| has(tail, from, signature))
    };
    let found = |name, byte| Some(Foreign { name, byte });

    for (name, byte) in [("an md superblock 1.1", 0), ("an md superblock 1.2", 4096)] {
        if has(head, byte, &MD_MAGIC_LITTLE) {
            return found(name, byte as u64);
        }
    }
    // A superblock of 0.90 is in the last whole 64 KiB, in the byte order of the writing machine.
    let size = member_size.0;
    for (name, sector) in [
        ("an md superblock 1.0", (size.saturating_sub(16)) & !7),
        ("an md superblock 0.90", (size & !127).saturating_sub(128)),
    ] {
        let byte = Sectors(sector).bytes().0;
        if in_tail(byte, &MD_MAGIC_LITTLE) || in_tail(byte, &MD_MAGIC_BIG) {
            return found(name, byte);
        }
    }
    for (name, byte, signature) in HEAD {
        if has(head, byte, signature) {
            return found(name, byte as u64);
        }
    }
    if let Some(name) = extended_fs(head) {
        return found(name, 0x438);
    }
    if let Some(byte) = zfs_uberblock(head) {
        return found("a ZFS pool member", byte);
    }
    for (name, back, signature) in TAIL {
        let byte = member_size.bytes().0.checked_sub(back);
        if let Some(byte) = byte.filter(|byte| in_tail(*byte, signature)) {
            return found(name, byte);
        }
    }
    partition_table(head).and_then(|name| found(name, 510))
}

/// An undamaged superblock at a place where none is expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misplaced {
    /// Sector of the superblock.
    pub sector: Sectors,
    /// The superblock. For version 1, its minor version is the one that its own position suggests.
    pub superblock: Superblock,
    /// Sector at which the described member would begin, from the position that the superblock
    /// records for itself. `None` for 0.90, which records no position, and if the member would
    /// begin before sector 0.
    pub member_start: Option<Sectors>,
}

/// Superblocks at any sector of `bytes`: those of members that were truncated or grown, or of
/// members inside other data.
///
/// Shape    `bytes` begin at sector `first`. A superblock is found only if the 4096 bytes from its
///          start on are in `bytes`, so consecutive parts of a member must overlap by 3584 bytes
#[must_use]
pub fn superblocks_anywhere(bytes: &[u8], first: Sectors) -> Vec<Misplaced> {
    let sector_bytes = usize::try_from(SECTOR_BYTES).expect("512");
    let blocks = bytes.windows(SUPER_BYTES).step_by(sector_bytes).zip(first.0..);
    blocks.filter_map(|(block, sector)| superblock_here(block, Sectors(sector))).collect()
}

fn superblock_here(block: &[u8], sector: Sectors) -> Option<Misplaced> {
    if !has(block, 0, &MD_MAGIC_LITTLE) && !has(block, 0, &MD_MAGIC_BIG) {
        return None;
    }
    if let Ok(mut new) = Super1::decode(block, Minor::V1_0) {
        new.minor = match new.super_offset.0 {
            0 => Minor::V1_1,
            8 => Minor::V1_2,
            _ => Minor::V1_0,
        };
        let member_start = sector.0.checked_sub(new.super_offset.0).map(Sectors);
        return Some(Misplaced { sector, superblock: new.into(), member_start });
    }
    // The size of the member only determines where the superblock should be.
    let mut old = Super090::decode(block, Sectors(u64::MAX)).ok()?;
    old.super_offset = sector;
    Some(Misplaced { sector, superblock: old.into(), member_start: None })
}

fn has(bytes: &[u8], at: usize, signature: &[u8]) -> bool {
    bytes.get(at..).is_some_and(|rest| rest.starts_with(signature))
}

/// Name of the ext2, ext3 or ext4 file system that begins with `head`; `None` if there is none.
fn extended_fs(head: &[u8]) -> Option<&'static str> {
    let superblock = head.get(ext::SUPERBLOCK_AT..)?;
    Some(match ext::generation(superblock.get(..ext::SUPERBLOCK_BYTES)?)? {
        2 => "an ext2 file system",
        3 => "an ext3 file system",
        _ => "an ext4 file system",
    })
}

/// Offset of the first uberblock in the first ZFS label; `None` if there is none. The ring of
/// uberblocks is the second half of the first 256 KiB.
fn zfs_uberblock(head: &[u8]) -> Option<u64> {
    (128_usize << 10..256 << 10)
        .step_by(1 << 10)
        .find(|byte| {
            has(head, *byte, &ZFS_UBERBLOCK.to_le_bytes())
                || has(head, *byte, &ZFS_UBERBLOCK.to_be_bytes())
        })
        .map(|byte| byte as u64)
}

/// Recognises a boot sector with a partition table: at least one entry in use, and only legal
/// entries. Returns the name of the table, or `None` for any other sector, such as boot code
/// without partitions.
fn partition_table(head: &[u8]) -> Option<&'static str> {
    let entries = head.get(446..510).filter(|_| has(head, 510, b"\x55\xaa"))?;
    let mut used = false;
    for entry in entries.chunks_exact(16) {
        let (boot, kind, sectors) = (entry.first()?, entry.get(4)?, le32(entry, 12));
        if !matches!(boot, 0 | 0x80) {
            return None;
        }
        used |= *kind != 0 && sectors != 0;
    }
    used.then_some("an MBR partition table")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Sectors = Sectors(4096 + 5);

    /// Searches an empty member with only `signature` written, at `byte`.
    fn check(byte: u64, signature: &[u8]) -> Option<Foreign> {
        let mut member = vec![0; usize::try_from(SIZE.bytes().0).unwrap()];
        let at = usize::try_from(byte).unwrap();
        member[at..at + signature.len()].copy_from_slice(signature);
        let (head, tail) = (&member[..HEAD_BYTES], &member[member.len() - TAIL_BYTES..]);
        foreign_signature(SIZE, head, tail)
    }

    #[test]
    fn every_signature_is_found_where_it_belongs() {
        for (name, byte, signature) in HEAD {
            assert_eq!(check(byte as u64, signature), Some(Foreign { name, byte: byte as u64 }));
        }
        let end = SIZE.bytes().0;
        for (name, back, signature) in TAIL {
            let byte = end - back;
            assert_eq!(check(byte, signature), Some(Foreign { name, byte }), "{name}");
        }
        for (name, byte, magic) in [
            ("an md superblock 1.1", 0, MD_MAGIC_LITTLE),
            ("an md superblock 1.2", 4096, MD_MAGIC_LITTLE),
            ("an md superblock 1.0", 4080 * 512, MD_MAGIC_LITTLE),
            ("an md superblock 0.90", 3968 * 512, MD_MAGIC_LITTLE),
            ("an md superblock 0.90", 3968 * 512, MD_MAGIC_BIG),
        ] {
            assert_eq!(check(byte, &magic), Some(Foreign { name, byte }));
        }
        let name = "a ZFS pool member";
        let byte = 255 << 10;
        assert_eq!(check(byte, &ZFS_UBERBLOCK.to_be_bytes()), Some(Foreign { name, byte }));
    }

    #[test]
    fn extended_file_systems_are_told_apart() {
        for (compat, incompat, name) in [
            (0_u8, 2_u8, "an ext2 file system"),
            (4, 2, "an ext3 file system"),
            (4, 0x42, "an ext4 file system"),
        ] {
            let mut superblock = [0; 0x64];
            superblock[0x38..0x3a].copy_from_slice(b"\x53\xef");
            superblock[0x5c] = compat;
            superblock[0x60] = incompat;
            assert_eq!(check(1024, &superblock), Some(Foreign { name, byte: 0x438 }));
            superblock[0x18] = 99;
            assert_eq!(check(1024, &superblock), None);
        }
    }

    #[test]
    fn a_boot_sector_counts_only_with_a_partition() {
        let mut sector = [0; 512];
        sector[510..].copy_from_slice(b"\x55\xaa");
        assert_eq!(check(0, &sector), None);
        sector[446 + 4] = 0x83;
        sector[446 + 12] = 1;
        assert_eq!(check(0, &sector), Some(Foreign { name: "an MBR partition table", byte: 510 }));
        sector[446 + 16] = 1;
        assert_eq!(check(0, &sector), None);
    }

    #[test]
    fn nothing_is_found_in_nothing() {
        assert_eq!(check(0, b""), None);
        assert_eq!(foreign_signature(Sectors(0), &[], &[]), None);
        assert_eq!(foreign_signature(Sectors(u64::MAX), &[0; 9], &[0; 9]), None);
    }
}
