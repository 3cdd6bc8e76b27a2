//! Rule for chunks: the chunk sizes that a level may have, and how texts name them.
//!
//! Source   md-raid.md §2.1 and §5.3: a power of two of at least a page; any multiple of the
//!          logical block for RAID 0

use weft_units::Sectors;

/// Chunk sizes that a level may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkRule {
    /// Any multiple of the logical block, except 0.
    Multiple,
    /// A power of two of at least a page and a logical block.
    PowerOfTwo,
    /// Any number: the level has no chunks, but the data of each member is rounded down to a
    /// multiple of the number.
    Rounding,
    /// Any number: the level has no chunks and ignores the field.
    Unused,
}

/// Upper bound of chunk sizes, exclusive: 2 GiB, because the kernel counts the bytes of a chunk in
/// 31 bits.
pub(crate) const CHUNK_END: Sectors = Sectors(1 << 22);

/// Smallest chunk of a level with parity or copies: a page. The chunk of every new array is a
/// multiple of it.
pub(crate) const CHUNK_PAGE: Sectors = Sectors(8);

impl ChunkRule {
    /// Whether the level divides data into chunks, so that a chunk size is needed.
    #[must_use]
    pub const fn is_needed(self) -> bool {
        matches!(self, Self::Multiple | Self::PowerOfTwo)
    }

    /// Name that mdadm prints before the chunk; `None` if it prints no chunk.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::Multiple | Self::PowerOfTwo => Some("Chunk Size"),
            Self::Rounding => Some("Rounding"),
            Self::Unused => None,
        }
    }

    /// Whether an array on members with logical blocks of `block` may have this chunk. An allowed
    /// chunk is not 0 where [`ChunkRule::is_needed`] holds, so it can be used as a divisor. The
    /// upper bound `CHUNK_END` is not checked.
    #[must_use]
    pub fn allows(self, chunk: Sectors, block: Sectors) -> bool {
        match self {
            Self::Multiple => chunk.0 > 0 && chunk.0.is_multiple_of(block.0.max(1)),
            Self::PowerOfTwo => chunk.0.is_power_of_two() && chunk >= CHUNK_PAGE.max(block),
            Self::Rounding | Self::Unused => true,
        }
    }

    /// Chunks that [`ChunkRule::allows`] accepts, for error texts.
    #[must_use]
    pub fn expected(self, block: Sectors) -> String {
        match self {
            Self::Multiple => format!("a multiple of the logical block, {} sectors", block.0),
            Self::PowerOfTwo => {
                format!("a power of two, at least {} sectors", CHUNK_PAGE.max(block).0)
            }
            Self::Rounding | Self::Unused => "any number of sectors".to_owned(),
        }
    }

    /// Chunks that [`ChunkRule::allows_new`] accepts, for error texts.
    #[must_use]
    pub const fn expected_new(self) -> &'static str {
        match self {
            Self::Multiple => "a multiple of 4 KiB, at least 4 KiB and less than 2 GiB",
            Self::PowerOfTwo => "a power of two, at least 4 KiB and less than 2 GiB",
            Self::Rounding | Self::Unused => "none, for the level does not spread data in chunks",
        }
    }

    /// Whether a new array may have this chunk. A level without chunks allows only 0.
    #[must_use]
    pub fn allows_new(self, chunk: Sectors) -> bool {
        if self.is_needed() {
            chunk < CHUNK_END && self.allows(chunk, CHUNK_PAGE)
        } else {
            chunk == Sectors::ZERO
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_multiples_or_powers_of_two_below_2_gib() {
        use ChunkRule::{Multiple, PowerOfTwo, Rounding, Unused};
        for (rule, chunk, block, allows, allows_new) in [
            (Multiple, 0, 8, false, false),
            (Multiple, 24, 8, true, true),
            (Multiple, 4, 1, true, false),
            (Multiple, 4, 0, true, false),
            (Multiple, 4, 8, false, false),
            (Multiple, 1 << 22, 8, true, false),
            (PowerOfTwo, 0, 0, false, false),
            (PowerOfTwo, 4, 0, false, false),
            (PowerOfTwo, 8, 0, true, true),
            (PowerOfTwo, 8, 16, false, true),
            (PowerOfTwo, 24, 0, false, false),
            (PowerOfTwo, 1 << 21, 0, true, true),
            (PowerOfTwo, 1 << 22, 0, true, false),
            (Rounding, 0, 0, true, true),
            (Rounding, 3, 8, true, false),
            (Unused, 0, 8, true, true),
            (Unused, 128, 8, true, false),
        ] {
            let found =
                (rule.allows(Sectors(chunk), Sectors(block)), rule.allows_new(Sectors(chunk)));
            assert_eq!(found, (allows, allows_new), "{rule:?}, {chunk} sectors, blocks of {block}");
        }
    }
}
