//! Bad-block log: ranges of a member with content that must not be used.
//!
//! The log has up to 512 entries of 64 bits, little-endian: the lowest 10 bits are a length, the
//! others a position, both in units of `512 << bblog_shift` bytes. The first entry of all ones ends
//! the list. Positions count from the start of the member, unlike most positions in md's metadata;
//! [`BadBlocks`] converts them to positions from the start of data. The log has no checksum. A
//! feature bit of the superblock says whether the log has entries.
//!
//! Source: format facts as read from Linux 6.1 and 6.12; lists of Linux 6.12 in `fixtures/md-meta`.

use crate::{At, LogError};
use weft_units::{SECTOR_BYTES, SectorRange, Sectors};

/// Largest length of an entry, in units of `512 << bblog_shift` bytes.
pub const BADBLOCK_LEN_MAX: u64 = 512;

/// Number of low bits of an entry that hold its length.
const LEN_BITS: u32 = 10;
const END: u64 = u64::MAX;

/// Facts about a member that its bad-block log depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadBlockContext {
    /// `bblog_shift`: positions and lengths in the log count `1 << shift` sectors.
    pub shift: u8,
    /// First sector of the data on the member.
    pub data_offset: Sectors,
    /// Sectors of data on the member.
    pub used_size: Sectors,
    /// Size of the member in sectors.
    pub member_size: Sectors,
}

/// The bad blocks of one member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BadBlocks {
    /// Bad ranges in ascending order and disjoint.
    ///
    /// Units    sectors of the member's data
    ranges: Vec<SectorRange>,
    /// Whether all entries of the log were in use when it was read.
    pub full: bool,
    /// Messages about values in the log that are unusual but have an accepted meaning.
    pub warnings: Vec<String>,
}

/// Error for more bad blocks than the log has room for. The caller must fail the member instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "bad-block log: found {found} entries, expected at most {expected}; \
     the member has to fail, for its bad blocks cannot be remembered"
)]
pub struct LogFull {
    /// Number of entries that were found.
    pub found: usize,
    /// Number of entries that fit.
    pub expected: usize,
}

const fn entry_at(index: usize) -> At {
    At { structure: "bad-block log", field: "entry", byte: 8 * index }
}

/// Entries as stored, each as position and length, up to the entry that marks the end.
///
/// Units    multiples of `512 << bblog_shift` bytes, from the start of the member
pub fn raw_entries(bytes: &[u8]) -> impl Iterator<Item = (u64, u64)> + '_ {
    let words = bytes
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.first_chunk().copied().unwrap_or([0xff; 8])));
    words
        .take_while(|word| *word != END)
        .map(|word| (word >> LEN_BITS, word & ((1 << LEN_BITS) - 1)))
}

impl BadBlocks {
    /// Reads the log.
    ///
    /// Ranges outside the data are left out, and ranges out of order are sorted, both with a
    /// warning.
    ///
    /// Shape    `bytes` is the whole area that the superblock reserves, `bblog_size` sectors
    ///
    /// # Errors
    ///
    /// `Value` with the first entry that has no length or reaches beyond the member.
    pub fn parse(bytes: &[u8], context: &BadBlockContext) -> Result<Self, LogError> {
        let mut found = Self::default();
        let (data, used) = (context.data_offset.0, context.used_size.0);
        let (mut count, mut last_end) = (0, 0);
        for (index, (block, len)) in raw_entries(bytes).enumerate() {
            count += 1;
            let at = entry_at(index);
            let said = format!("block {block}, length {len}");
            if len == 0 {
                return Err(LogError::value(at, said, "a length of at least 1"));
            }
            let unit = 1_u64.checked_shl(context.shift.into());
            let sectors = unit.and_then(|unit| {
                let start = block.checked_mul(unit)?;
                Some((start, start.checked_add(len.checked_mul(unit)?)?))
            });
            let inside = sectors.filter(|(_, end)| *end <= context.member_size.0);
            let Some((start, end)) = inside else {
                let expected = format!("an end within the member, {}", context.member_size.0);
                return Err(LogError::value(at, said, expected));
            };
            if start < last_end {
                found.warnings.push(format!("{at}: found {said}, expected it after the others"));
            }
            last_end = end;
            let (first, last) = (start.max(data), end.min(data.saturating_add(used)));
            if first < last {
                found.insert(SectorRange::new(first - data, last - first));
            }
            if (first, last) != (start, end) {
                let warning = format!("{at}: found {said}, expected it in the data; ignored there");
                found.warnings.push(warning);
            }
        }
        found.full = count > 0 && count == bytes.len() / 8;
        Ok(found)
    }

    /// Encodes the log in `len` bytes; unused entries are all ones.
    ///
    /// Ranges are rounded out to whole units. Adjacent ranges share an entry; a long range takes
    /// several.
    ///
    /// # Errors
    ///
    /// [`LogFull`] when there are more entries than fit `len`.
    pub fn encode(&self, len: usize, context: &BadBlockContext) -> Result<Vec<u8>, LogFull> {
        let unit = 1_u64.checked_shl(context.shift.into()).unwrap_or(u64::MAX);
        let mut entries: Vec<(u64, u64)> = Vec::new();
        for range in &self.ranges {
            let start = (range.start.0 + context.data_offset.0) / unit;
            let end = (range.end().0 + context.data_offset.0).div_ceil(unit);
            // Rounding may have made two ranges adjacent or overlapping.
            let start = entries.last().map_or(start, |(block, len)| start.max(block + len));
            let mut block = start;
            while block < end {
                let len = (end - block).min(BADBLOCK_LEN_MAX);
                entries.push((block, len));
                block += len;
            }
        }
        let room = len / 8;
        if entries.len() > room {
            return Err(LogFull { found: entries.len(), expected: room });
        }
        let mut bytes = vec![0xff; len];
        for (word, (block, len)) in bytes.chunks_exact_mut(8).zip(entries) {
            word.copy_from_slice(&(block << LEN_BITS | len).to_le_bytes());
        }
        Ok(bytes)
    }

    /// All bad ranges, in ascending order and disjoint.
    ///
    /// Units    sectors of the member's data
    #[must_use]
    pub fn ranges(&self) -> &[SectorRange] {
        &self.ranges
    }

    /// Whether there are no bad blocks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// First bad range that overlaps `range`, cut to the part inside `range`; `None` if there is
    /// none.
    #[must_use]
    pub fn first_in(&self, range: SectorRange) -> Option<SectorRange> {
        let before = self.ranges.partition_point(|bad| bad.end() <= range.start);
        let bad = self.ranges.get(before)?;
        let (start, end) = (bad.start.max(range.start), bad.end().min(range.end()));
        (start < end).then(|| SectorRange { start, len: end - start })
    }

    /// Records a range of the member's data as bad.
    pub fn insert(&mut self, range: SectorRange) {
        if range.len == Sectors::ZERO {
            return;
        }
        let (mut start, mut end) = (range.start, range.end());
        // Adjacent ranges are merged.
        let from = self.ranges.partition_point(|bad| bad.end() < start);
        let to = self.ranges.partition_point(|bad| bad.start <= end);
        if let (Some(first), Some(last)) =
            (self.ranges.get(from), to.checked_sub(1).and_then(|last| self.ranges.get(last)))
            && from < to
        {
            (start, end) = (start.min(first.start), end.max(last.end()));
        }
        self.ranges.splice(from..to, [SectorRange { start, len: end - start }]);
    }

    /// Removes a range of the member's data from the bad blocks, after a write of the range has
    /// succeeded.
    pub fn remove(&mut self, range: SectorRange) {
        let (start, end) = (range.start, range.end());
        let mut rest = Vec::with_capacity(self.ranges.len() + 1);
        for bad in &self.ranges {
            for (from, to) in [(bad.start, bad.end().min(start)), (bad.start.max(end), bad.end())] {
                if from < to {
                    rest.push(SectorRange { start: from, len: to - from });
                }
            }
        }
        if range.len > Sectors::ZERO {
            self.ranges = rest;
        }
    }

    /// Copy of these bad blocks with each range moved down by `distance`. Parts of ranges that
    /// would lie before sector 0 of the data are left out.
    #[must_use]
    pub fn moved_down(&self, distance: Sectors) -> Self {
        let mut moved = Self::default();
        for range in &self.ranges {
            let start = range.start.0.saturating_sub(distance.0);
            let end = range.end().0.saturating_sub(distance.0);
            moved.insert(SectorRange::new(start, end - start));
        }
        moved
    }

    /// Lines that `mdadm --examine-badblocks` prints: start and length of each range, in sectors
    /// from the start of the member, which is not the start of its data. `shift` is `bblog_shift`.
    #[must_use]
    pub fn describe(bytes: &[u8], shift: u8) -> Vec<String> {
        let unit = 1_u64.checked_shl(shift.into()).unwrap_or_default();
        raw_entries(bytes)
            .map(|(block, len)| {
                let (start, len) = (block.wrapping_mul(unit), len.wrapping_mul(unit));
                format!("{start:>20} for {len} sectors")
            })
            .collect()
    }
}

const _: () = assert!(BADBLOCK_LEN_MAX < 1 << LEN_BITS && SECTOR_BYTES == 512);

#[cfg(test)]
mod tests {
    use super::*;

    const CONTEXT: BadBlockContext = BadBlockContext {
        shift: 0,
        data_offset: Sectors(2048),
        used_size: Sectors(4096),
        member_size: Sectors(8192),
    };

    fn log(entries: &[(u64, u64)]) -> Vec<u8> {
        let words = entries.iter().map(|(block, len)| block << 10 | len);
        words.chain([END, 5 << 10]).flat_map(u64::to_le_bytes).collect()
    }

    fn parse(entries: &[(u64, u64)]) -> Result<BadBlocks, LogError> {
        BadBlocks::parse(&log(entries), &CONTEXT)
    }

    fn ranges(found: &BadBlocks) -> Vec<(u64, u64)> {
        found.ranges().iter().map(|range| (range.start.0, range.len.0)).collect()
    }

    #[test]
    fn positions_count_from_the_data() {
        let found = parse(&[(2064, 8), (2100, 512), (2612, 88)]).unwrap();
        assert_eq!(ranges(&found), [(16, 8), (52, 600)]);
        assert_eq!((found.full, found.warnings.len()), (false, 0));
    }

    #[test]
    fn what_is_not_data_is_left_out() {
        let found = parse(&[(2040, 16), (100, 1), (6140, 10), (2100, 1), (2000, 1)]).unwrap();
        assert_eq!(ranges(&found), [(0, 8), (52, 1), (4092, 4)]);
        // Three entries are out of order, and four are outside the data in whole or in part.
        assert_eq!(found.warnings.len(), 3 + 4, "{:?}", found.warnings);
    }

    #[test]
    fn illegal_entries_are_named() {
        for (entries, message) in [
            (&[(5000, 1), (5001, 0)][..], "at byte 8: found block 5001, length 0, expected a len"),
            (&[(8192, 1)], "at byte 0: found block 8192, length 1, expected an end within the m"),
            (&[((1 << 54) - 1, 1022)], "at byte 0: found block 18014398509481983, length 1022, e"),
        ] {
            let error = parse(entries).unwrap_err().to_string();
            assert!(error.starts_with(&format!("bad-block log entry {message}")), "{error}");
        }
        let wide = BadBlockContext { shift: 63, ..CONTEXT };
        assert!(BadBlocks::parse(&log(&[(2, 1)]), &wide).is_err());
        let wider = BadBlockContext { shift: 64, ..CONTEXT };
        assert!(BadBlocks::parse(&log(&[(2, 1)]), &wider).is_err());
    }

    #[test]
    fn neighbours_become_one_and_holes_split() {
        let mut bad = BadBlocks::default();
        for (start, len) in [(10, 5), (20, 5), (15, 5), (40, 1), (0, 0), (30, 2), (24, 10)] {
            bad.insert(SectorRange::new(start, len));
        }
        assert_eq!(ranges(&bad), [(10, 24), (40, 1)]);
        let first = |start, len| bad.first_in(SectorRange::new(start, len));
        assert_eq!(first(0, 10), None);
        assert_eq!(first(0, 12), Some(SectorRange::new(10, 2)));
        assert_eq!(first(33, 100), Some(SectorRange::new(33, 1)));
        assert_eq!(first(34, 100), Some(SectorRange::new(40, 1)));
        assert_eq!(first(41, 100), None);
        bad.remove(SectorRange::new(12, 3));
        bad.remove(SectorRange::new(33, 100));
        bad.remove(SectorRange::new(11, 0));
        assert_eq!(ranges(&bad), [(10, 2), (15, 18)]);
    }

    #[test]
    fn a_full_log_says_so() {
        let mut bad = BadBlocks::default();
        for index in 0..512 {
            bad.insert(SectorRange::new(index * 4, 1));
        }
        let bytes = bad.encode(4096, &CONTEXT).unwrap();
        let again = BadBlocks::parse(&bytes, &CONTEXT).unwrap();
        assert!(again.full);
        assert_eq!(again.ranges(), bad.ranges());
        bad.insert(SectorRange::new(3000, 1));
        assert_eq!(bad.encode(4096, &CONTEXT), Err(LogFull { found: 513, expected: 512 }));
    }

    #[test]
    fn units_are_rounded_out() {
        let context = BadBlockContext { shift: 3, ..CONTEXT };
        let mut bad = BadBlocks::default();
        for (start, len) in [(4, 1), (6, 3), (24, 8 * 513)] {
            bad.insert(SectorRange::new(start, len));
        }
        let bytes = bad.encode(512, &context).unwrap();
        let entries: Vec<_> = raw_entries(&bytes).collect();
        assert_eq!(entries, [(256, 1), (257, 1), (259, 512), (771, 1)]);
    }
}
