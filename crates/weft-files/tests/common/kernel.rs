//! Images of btrfs that the kernel wrote, and their blocks.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use weft_ondisk::crc::crc32c;

/// An image that the kernel wrote, from `fixtures/btrfs`.
pub(crate) fn fixture(name: &str) -> Vec<u8> {
    let packed = File::open(fixtures().join(format!("{name}.img.zst"))).unwrap();
    let mut image = Vec::new();
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(packed).unwrap();
    decoder.read_to_end(&mut image).unwrap();
    image
}

pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/btrfs")
}

pub(crate) fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Writes the right checksum into the block at byte `at`.
pub(crate) fn seal(image: &mut [u8], at: usize, len: usize) {
    let sum = crc32c(&image[at + 32..at + len]);
    image[at..at + 4].copy_from_slice(&sum.to_le_bytes());
}

/// Bytes of the blocks of trees, in each of their copies.
pub(crate) fn blocks(image: &[u8], len: usize) -> Vec<usize> {
    let uuid = &image[0x1_0020..0x1_0030];
    let is_block = |at: &usize| {
        *at != 0x1_0000
            && &image[at + 0x20..at + 0x30] == uuid
            && crc32c(&image[at + 32..at + len]).to_le_bytes() == image[*at..at + 4]
    };
    (0..image.len() - len).step_by(4096).filter(is_block).collect()
}
