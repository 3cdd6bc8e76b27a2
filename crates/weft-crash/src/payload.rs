//! Representation of payload: whole bytes, tags of 16 bytes for each sector, or nothing.
//!
//! Metadata is complete in every mode. Client data is complete ([`PayloadMode::Bytes`]), or 16
//! bytes, the *tag*, represent each sector of 512 bytes, or there is no data:
//!
//! ```text
//! a sector   |0        |32       |64       | …                |480      |512
//! its tag    |0        |1        |2        | …                |15       |16
//! ```
//!
//! XOR and GF(2^8) work on tags as they do on sectors. A part of a sector is rounded outwards to
//! whole bytes of the tag, so that a write of one byte is visible. Adjacent parts of a sector may
//! overlap in its tag; they are still applied in the same order everywhere, to data and to parity.
//!
//! The engine never sees payload. Payload affects the engine only by the outcome of comparisons,
//! and two tags differ if their sectors differ, so the engine makes the same decisions with tags as
//! with bytes. `tests/all/payload.rs` verifies this. Without payload nothing can be compared, so
//! operations that compare are refused ([`NeedsPayload`]).
//!
//! Source   reliability.md §6.1

use std::ops::Range;

use thiserror::Error;
use weft_engine::Segment;
use weft_units::SECTOR_BYTES;

/// Representation of payload: complete, as tags, or absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PayloadMode {
    /// No payload: requests have only positions and lengths.
    None,
    /// Tags of 16 bytes per sector.
    Tags,
    /// All bytes of the payload.
    #[default]
    Bytes,
}

/// Bytes of a tag, which represents a sector.
pub const TAG_BYTES: usize = 16;

/// Operations that need payload. A world without payload refuses them with this error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{self:?} looks at payload, and this world has none: give it PayloadMode::Tags or Bytes")]
pub enum NeedsPayload {
    /// A bit flip on the media.
    BitRot,
    /// A check, which compares parity or copies.
    Check,
    /// Use of a partial parity log.
    Ppl,
    /// A repair, which compares and rewrites parity or copies.
    Repair,
}

impl PayloadMode {
    /// Number of bytes that represent a sector.
    #[must_use]
    pub const fn sector_bytes(self) -> usize {
        match self {
            Self::None => 0,
            Self::Tags => TAG_BYTES,
            Self::Bytes => SECTOR_BYTES as usize,
        }
    }

    /// Number of bytes that represent this many sectors.
    #[must_use]
    pub const fn bytes_of(self, sectors: u64) -> usize {
        self.sector_bytes() * sectors as usize
    }

    /// Range, in the representation of a sector, of the sector's bytes from `start` to `end`.
    #[must_use]
    pub const fn place(self, start: u64, end: u64) -> Range<usize> {
        let bytes = self.sector_bytes() as u64;
        (start * bytes / SECTOR_BYTES) as usize..(end * bytes).div_ceil(SECTOR_BYTES) as usize
    }

    /// Byte range of a segment in the slab, the memory of all frames, as this mode represents it.
    #[must_use]
    pub fn part(self, part: Segment) -> Range<usize> {
        self.place(part.slab_start(), part.slab_end())
    }

    /// Succeeds if there is payload, which the operation `what` needs.
    ///
    /// # Errors
    /// `what`, if there is no payload.
    pub fn needed_for(self, what: NeedsPayload) -> Result<(), NeedsPayload> {
        match self {
            Self::None => Err(what),
            Self::Bytes | Self::Tags => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_sector_are_rounded_outwards_and_whole_sectors_are_exact() {
        assert_eq!(PayloadMode::Tags.place(512, 1536), 16..48);
        assert_eq!(PayloadMode::Tags.place(513, 514), 16..17);
        assert_eq!(PayloadMode::Tags.place(512 + 31, 512 + 33), 16..18);
        assert_eq!(PayloadMode::Bytes.place(513, 514), 513..514);
        assert_eq!(PayloadMode::None.place(513, 514), 0..0);
        // Parts at the same place in their sectors have the same length, wherever the sectors are.
        for (start, end) in [(0, 1), (31, 32), (5, 69), (100, 512)] {
            let len = |at: u64| PayloadMode::Tags.place(at + start, at + end).len();
            assert_eq!(len(512), len(4096 * 7), "{start}..{end}");
        }
    }

    #[test]
    fn the_refusal_names_what_was_asked_for() {
        let refused = PayloadMode::None.needed_for(NeedsPayload::Check).unwrap_err();
        assert!(refused.to_string().starts_with("Check looks at payload"), "{refused}");
        assert_eq!(PayloadMode::Tags.needed_for(NeedsPayload::Check), Ok(()));
    }
}
