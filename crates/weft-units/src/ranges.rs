//! Half-open ranges of bytes and sectors.

use crate::{Bytes, Sectors};

/// Bytes `start .. start + len` of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ByteRange {
    /// First byte.
    pub start: Bytes,
    /// Length; may be zero.
    pub len: Bytes,
}

/// Sectors `start .. start + len` of a member, of a member's data, or of an array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SectorRange {
    /// First sector.
    pub start: Sectors,
    /// Length; may be zero.
    pub len: Sectors,
}

impl ByteRange {
    /// Creates a range from plain numbers of bytes.
    #[must_use]
    pub const fn new(start: u64, len: u64) -> Self {
        Self { start: Bytes(start), len: Bytes(len) }
    }

    /// End of the range, exclusive; `None` on overflow. Meant for a range that was not checked yet,
    /// such as that of a client's request.
    #[must_use]
    pub const fn checked_end(self) -> Option<Bytes> {
        match self.start.0.checked_add(self.len.0) {
            Some(end) => Some(Bytes(end)),
            None => None,
        }
    }

    /// End of the range, exclusive, for a range known to be inside a volume.
    #[must_use]
    pub fn end(self) -> Bytes {
        self.start + self.len
    }

    /// Whether the ranges have a byte in common. An empty range overlaps nothing.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.len.0 > 0 && other.len.0 > 0 && self.start < other.end() && other.start < self.end()
    }
}

impl SectorRange {
    /// Creates a range from plain numbers of sectors.
    #[must_use]
    pub const fn new(start: u64, len: u64) -> Self {
        Self { start: Sectors(start), len: Sectors(len) }
    }

    /// End of the range, exclusive.
    #[must_use]
    pub fn end(self) -> Sectors {
        self.start + self.len
    }

    /// Range of the same length that begins `distance` sectors later.
    #[must_use]
    pub fn moved_up(self, distance: Sectors) -> Self {
        Self { start: self.start + distance, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_needs_a_common_byte() {
        let cases = [((0, 4), (4, 4), false), ((0, 5), (4, 4), true), ((4, 0), (0, 9), false)];
        for ((a, b), (c, d), expected) in cases {
            assert_eq!(ByteRange::new(a, b).overlaps(ByteRange::new(c, d)), expected);
            assert_eq!(ByteRange::new(c, d).overlaps(ByteRange::new(a, b)), expected);
        }
        assert_eq!(ByteRange::new(u64::MAX, 2).checked_end(), None);
    }
}
