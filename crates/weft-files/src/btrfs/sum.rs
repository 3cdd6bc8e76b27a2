//! Checksums of btrfs: CRC-32C, xxHash64, SHA-256 and BLAKE2b with 256 bits.
//!
//! Source   btrfs documentation, "Checksum Algorithms"; xxHash fast digest algorithm, "XXH64
//!          Algorithm Description"

use blake2::Blake2b;
use blake2::digest::consts::U32;
use sha2::{Digest, Sha256};
use weft_ondisk::crc::crc32c;

use crate::bytes::{le32, le64};
use crate::tree::TreeError;

/// Checksum algorithm of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sum {
    Crc32c,
    Xxhash64,
    Sha256,
    Blake2b,
}

impl Sum {
    /// The algorithm with this number in the superblock; an error for an unknown number.
    pub(super) fn of(number: u16) -> Result<Self, TreeError> {
        match number {
            0 => Ok(Self::Crc32c),
            1 => Ok(Self::Xxhash64),
            2 => Ok(Self::Sha256),
            3 => Ok(Self::Blake2b),
            other => Err(TreeError::damaged("superblock, checksum type", other, "0 to 3")),
        }
    }

    /// Length of a sum in bytes.
    pub(super) fn len(self) -> usize {
        match self {
            Self::Crc32c => 4,
            Self::Xxhash64 => 8,
            Self::Sha256 | Self::Blake2b => 32,
        }
    }

    /// The sum of some bytes.
    pub(super) fn of_bytes(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Crc32c => crc32c(bytes).to_le_bytes().to_vec(),
            Self::Xxhash64 => xxhash64(bytes).to_le_bytes().to_vec(),
            Self::Sha256 => Sha256::digest(bytes).to_vec(),
            Self::Blake2b => Blake2b::<U32>::digest(bytes).to_vec(),
        }
    }

    /// Whether the checksum in the first 32 bytes of a block is right.
    pub(super) fn holds(self, block: &[u8]) -> bool {
        match (block.get(..self.len()), block.get(32..)) {
            (Some(stored), Some(rest)) => self.of_bytes(rest) == stored,
            _ => false,
        }
    }
}

/// XXH64 with the seed 0.
fn xxhash64(bytes: &[u8]) -> u64 {
    let round = |lane: u64, word: u64| {
        lane.wrapping_add(word.wrapping_mul(PRIMES[1])).rotate_left(31).wrapping_mul(PRIMES[0])
    };
    let (stripes, rest) = bytes.as_chunks::<32>();
    let mut hash = PRIMES[4];
    if !stripes.is_empty() {
        let mut lanes =
            [PRIMES[0].wrapping_add(PRIMES[1]), PRIMES[1], 0, 0_u64.wrapping_sub(PRIMES[0])];
        for stripe in stripes {
            for (lane, at) in lanes.iter_mut().zip((0..).step_by(8)) {
                *lane = round(*lane, le64(stripe, at));
            }
        }
        hash = [1, 7, 12, 18]
            .iter()
            .zip(lanes)
            .fold(0, |sum: u64, (&by, lane)| sum.wrapping_add(lane.rotate_left(by)));
        for lane in lanes {
            hash = (hash ^ round(0, lane)).wrapping_mul(PRIMES[0]).wrapping_add(PRIMES[3]);
        }
    }
    hash = hash.wrapping_add(bytes.len() as u64);
    let (words, rest) = rest.as_chunks::<8>();
    for word in words {
        hash ^= round(0, u64::from_le_bytes(*word));
        hash = hash.rotate_left(27).wrapping_mul(PRIMES[0]).wrapping_add(PRIMES[3]);
    }
    let (halves, rest) = rest.as_chunks::<4>();
    for half in halves {
        hash ^= u64::from(le32(half, 0)).wrapping_mul(PRIMES[0]);
        hash = hash.rotate_left(23).wrapping_mul(PRIMES[1]).wrapping_add(PRIMES[2]);
    }
    for byte in rest {
        hash ^= u64::from(*byte).wrapping_mul(PRIMES[4]);
        hash = hash.rotate_left(11).wrapping_mul(PRIMES[0]);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(PRIMES[1]);
    hash = (hash ^ (hash >> 29)).wrapping_mul(PRIMES[2]);
    hash ^ (hash >> 32)
}

/// Constants of XXH64.
const PRIMES: [u64; 5] = [
    0x9e37_79b1_85eb_ca87,
    0xc2b2_ae3d_27d4_eb4f,
    0x1656_67b1_9e37_79f9,
    0x85eb_ca77_c2b2_ae63,
    0x27d4_eb2f_1656_67c5,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_known_texts() {
        assert_eq!(xxhash64(b""), 0xef46_db37_51d8_e999);
        assert_eq!(xxhash64(b"abc"), 0x44bc_2cf5_ad77_0999);
        assert_eq!(Sum::Crc32c.of_bytes(b"123456789"), 0xe306_9283_u32.to_le_bytes());
        assert_eq!(Sum::Sha256.of_bytes(b"")[..4], [0xe3, 0xb0, 0xc4, 0x42]);
        assert_eq!(Sum::Blake2b.of_bytes(b"")[..4], [0x0e, 0x57, 0x51, 0xc0]);
    }
}
