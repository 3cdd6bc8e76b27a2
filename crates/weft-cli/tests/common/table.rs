//! Partition tables for tests, built byte by byte.

use std::os::unix::fs::FileExt;
use std::path::Path;

/// Writes a GPT, both copies, with its protective MBR. Partitions are (first, last) in sectors of
/// 512 bytes, from number 1.
pub(crate) fn gpt(path: &Path, partitions: &[(u64, u64)]) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    let sectors = file.metadata().unwrap().len() / 512;
    let mut array = vec![0; 128 * 128];
    for ((first, last), entry) in partitions.iter().zip(array.chunks_exact_mut(128)) {
        entry[..16].copy_from_slice(&LINUX_RAID);
        entry[32..40].copy_from_slice(&first.to_le_bytes());
        entry[40..48].copy_from_slice(&last.to_le_bytes());
    }
    for (own, other, at) in [(1, sectors - 1, 2), (sectors - 1, 1, sectors - 33)] {
        let mut header = [0; 92];
        header[..8].copy_from_slice(b"EFI PART");
        header[8..12].copy_from_slice(&0x1_0000_u32.to_le_bytes());
        header[12..16].copy_from_slice(&92_u32.to_le_bytes());
        header[24..32].copy_from_slice(&own.to_le_bytes());
        header[32..40].copy_from_slice(&other.to_le_bytes());
        header[72..80].copy_from_slice(&at.to_le_bytes());
        header[80..84].copy_from_slice(&128_u32.to_le_bytes());
        header[84..88].copy_from_slice(&128_u32.to_le_bytes());
        header[88..].copy_from_slice(&crc32fast::hash(&array).to_le_bytes());
        let sum = crc32fast::hash(&header);
        header[16..20].copy_from_slice(&sum.to_le_bytes());
        file.write_all_at(&header, own * 512).unwrap();
        file.write_all_at(&array, at * 512).unwrap();
    }
    mbr(path, 0, &[(0xee, 1, u32::MAX)]);
}

/// Writes the entries (kind, start, sectors) of the boot sector at a byte.
pub(crate) fn mbr(path: &Path, at: u64, entries: &[(u8, u32, u32)]) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    let mut table = [0; 66];
    for ((kind, start, sectors), entry) in entries.iter().zip(table.chunks_exact_mut(16)) {
        entry[4] = *kind;
        entry[8..12].copy_from_slice(&start.to_le_bytes());
        entry[12..].copy_from_slice(&sectors.to_le_bytes());
    }
    table[64..].copy_from_slice(&[0x55, 0xaa]);
    file.write_all_at(&table, at + 446).unwrap();
}

const LINUX_RAID: [u8; 16] = [
    0x0f, 0x88, 0x9d, 0xa1, 0xfc, 0x05, 0x3b, 0x4d, 0xa0, 0x06, 0x74, 0x3f, 0x0f, 0x84, 0x91, 0x1e,
];
