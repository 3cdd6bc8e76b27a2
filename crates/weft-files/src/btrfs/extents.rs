//! Extents of a file: segments of its content.
//!
//! Source   btrfs documentation, "On-disk Format", "EXTENT_DATA"; "Compression"

use std::ops::Range;

use super::block::Key;
use super::kinds;
use super::unpack::unpack;
use super::volume::Lost;
use crate::bytes::{le16, le64, part};
use crate::tree::{Packed, Packing, Piece, PieceBytes, Pieces, TreeError};

/// Content of an extent: its bytes, or where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    /// Bytes of an inline extent, unpacked; the rest of the range is zeros.
    Here(Vec<u8>),
    /// Bytes that are not read, with the reason.
    Lost(String),
    Packed(Packed),
    /// Logical address of the first byte of the extent.
    Source(u64),
    /// Zeros: a hole, or preallocated space.
    Zeros,
}

/// Extent of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    range: Range<u64>,
    content: Content,
}

impl Extent {
    /// Parses an item; the extent begins at byte `start` of the file. `sector` is the size of a
    /// sector in bytes. The error says what is wrong with the item.
    pub(super) fn parse(start: u64, item: &[u8], sector: u64) -> Result<Self, String> {
        let (unpacked_len, kind) = (le64(item, 8), item.get(20).copied().unwrap_or(u8::MAX));
        if !start.is_multiple_of(sector) || item.len() < DATA_BYTES && kind != INLINE {
            return Err(format!("found an extent of {} bytes at byte {start}", item.len()));
        }
        let packing = match item.get(16).copied().unwrap_or(0) {
            0 => None,
            1 => Some(Packing::Zlib),
            2 => Some(Packing::Lzo),
            3 => Some(Packing::Zstd),
            other => return Err(format!("found compression {other}, expected 0 to 3")),
        };
        if le16(item, 17) != 0 || item.get(17).is_some_and(|&encryption| encryption != 0) {
            return Err("encrypted or encoded extents are not read".into());
        }
        if packing.is_some() && unpacked_len > PACKED_MAX {
            let expected = format!("at most {PACKED_MAX}");
            return Err(format!("found {unpacked_len} unpacked bytes, expected {expected}"));
        }
        if kind == INLINE {
            let bytes = part(item, 21, item.len());
            let len = usize::try_from(unpacked_len).unwrap_or(usize::MAX);
            let content = match packing {
                None => Content::Here(part(bytes, 0, len).to_vec()),
                Some(packing) => match unpack(packing, bytes, len, sector) {
                    Ok(bytes) => Content::Here(bytes),
                    Err(why) => Content::Lost(why),
                },
            };
            let is_short = packing.is_none() && bytes.len() < len;
            if is_short || unpacked_len > sector.max(item.len() as u64) {
                return Err(format!("found {unpacked_len} inline bytes, expected {}", bytes.len()));
            }
            let end = start.saturating_add(unpacked_len).checked_next_multiple_of(sector);
            return Ok(Self { range: start..end.unwrap_or(u64::MAX), content });
        }
        let (at, disk_len) = (le64(item, 21), le64(item, 29));
        let (skip, len) = (le64(item, 37), le64(item, 45));
        let Some(end) = start.checked_add(len).filter(|end| *end > start) else {
            return Err(format!("found an extent of {len} bytes at byte {start}"));
        };
        let whole = if packing.is_some() { unpacked_len } else { disk_len };
        let content = match (kind, at) {
            (DATA, 0) | (PREALLOCATED, _) => Content::Zeros,
            (DATA, _) => {
                if skip.checked_add(len).is_none_or(|end| end > whole) || !at.is_multiple_of(sector)
                {
                    return Err(format!(
                        "found the bytes {skip} and {len} more of an extent of {whole} at {at}"
                    ));
                }
                match packing {
                    Some(_) if disk_len > PACKED_MAX + sector => {
                        return Err(format!("found {disk_len} packed bytes"));
                    }
                    Some(packing) => {
                        Content::Packed(Packed { at, len: disk_len, unpacked_len, packing, skip })
                    }
                    None => Content::Source(at.saturating_add(skip)),
                }
            }
            (other, _) => return Err(format!("found an extent of kind {other}, expected 0 to 2")),
        };
        Ok(Self { range: start..end, content })
    }

    /// The part of an extent that is in a range; `None` if there is none.
    fn cut(&self, to: &Range<u64>) -> Option<Self> {
        let range = self.range.start.max(to.start)..self.range.end.min(to.end);
        if range.is_empty() {
            return None;
        }
        let more = range.start - self.range.start;
        let content = match &self.content {
            Content::Here(bytes) => {
                let start = usize::try_from(more).unwrap_or(usize::MAX);
                let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
                Content::Here(part(bytes, start, len).to_vec())
            }
            Content::Packed(packed) => {
                Content::Packed(Packed { skip: packed.skip + more, ..*packed })
            }
            Content::Source(at) => Content::Source(at.saturating_add(more)),
            other => other.clone(),
        };
        Some(Self { range, content })
    }
}

/// Extents of a file, from the tree of a subvolume or from its log.
#[derive(Default)]
pub(super) struct Extents {
    list: Vec<Extent>,
    faults: Vec<(Range<u64>, String)>,
}

impl Extents {
    /// Parses an item and adds its extent, or a fault if the item is damaged.
    pub(super) fn add(&mut self, start: u64, item: &[u8], sector: u64) {
        match Extent::parse(start, item, sector) {
            Ok(extent) => self.list.push(extent),
            // The extent is inline, or its length is unknown: one sector counts as faulty.
            Err(why) => self.faults.push((start..start.saturating_add(sector), why)),
        }
    }

    /// Adds a fault for each byte range of the file with extents in a lost part of the tree;
    /// `inode` is the number of the file.
    pub(super) fn add_lost(&mut self, inode: u64, lost: Vec<Lost>) {
        let byte = |key: Key| match (key.object, key.kind) {
            at if at < (inode, kinds::EXTENT_DATA) => 0,
            at if at > (inode, kinds::EXTENT_DATA) => u64::MAX,
            _ => key.offset,
        };
        for Lost { first, end, why } in lost {
            self.faults.push((byte(first)..end.map_or(u64::MAX, byte), why));
        }
    }

    /// Adds the extents of a log, in place of the bytes that they cover.
    pub(super) fn replace_by(&mut self, log: Self) {
        let mut covered: Vec<Range<u64>> = log.list.iter().map(|it| it.range.clone()).collect();
        covered.extend(log.faults.iter().map(|(range, _)| range.clone()));
        covered.sort_by_key(|range| range.start);
        // Old extents and faults stay in the gaps between the log's extents. Only the gaps that an
        // old extent overlaps are looked at for it.
        let mut gaps = Vec::new();
        let mut next = 0;
        for range in covered {
            if next < range.start {
                gaps.push(next..range.start);
            }
            next = next.max(range.end);
        }
        gaps.push(next..u64::MAX);
        let old = std::mem::take(&mut self.list);
        for extent in &old {
            let first = gaps.partition_point(|gap| gap.end <= extent.range.start);
            let among = gaps[first..].iter().take_while(|gap| gap.start < extent.range.end);
            self.list.extend(among.filter_map(|gap| extent.cut(gap)));
        }
        let old = std::mem::take(&mut self.faults);
        for (range, why) in &old {
            let first = gaps.partition_point(|gap| gap.end <= range.start);
            for gap in gaps[first..].iter().take_while(|gap| gap.start < range.end) {
                let part = range.start.max(gap.start)..range.end.min(gap.end);
                self.faults.push((part, why.clone()));
            }
        }
        self.list.extend(log.list);
        self.faults.extend(log.faults);
        self.list.sort_by_key(|extent| extent.range.start);
    }

    /// Segments of the first `size` bytes of the file.
    pub(super) fn pieces(self, size: u64) -> Pieces {
        let mut pieces = Pieces::default();
        let mut next = 0;
        for extent in self.list {
            let Some(Extent { range, content }) = extent.cut(&(0..size)) else { continue };
            if range.start < next {
                let why = format!("found an extent that begins before the end of another, {next}");
                pieces.faults.push((range, why));
                continue;
            }
            next = range.end;
            let bytes = match content {
                Content::Zeros => continue,
                Content::Lost(why) => {
                    pieces.faults.push((range, why));
                    continue;
                }
                Content::Here(bytes) => {
                    let range = range.start..range.start + bytes.len() as u64;
                    pieces.list.push(Piece { range, bytes: PieceBytes::Here(bytes) });
                    continue;
                }
                Content::Packed(packed) => PieceBytes::Packed(packed),
                Content::Source(at) => PieceBytes::Source(at),
            };
            pieces.list.push(Piece { range, bytes });
        }
        for (range, why) in self.faults {
            let range = range.start..range.end.min(size);
            if !range.is_empty() {
                pieces.faults.push((range, why));
            }
        }
        pieces
    }

    /// Content of at most `size` bytes that is stored in the tree itself. It is an error if there
    /// is none, or if it cannot be read.
    pub(super) fn inline(self, size: u64) -> Result<Vec<u8>, TreeError> {
        let pieces = self.pieces(size);
        if let Some((_, why)) = pieces.faults.into_iter().next() {
            return Err(TreeError::Refused(why));
        }
        match pieces.list.into_iter().next().map(|piece| piece.bytes) {
            Some(PieceBytes::Here(bytes)) => Ok(bytes),
            _ => Err(TreeError::damaged("inline content", "none", "one or more bytes")),
        }
    }
}

/// Length in bytes of the item of an extent that is not inline.
const DATA_BYTES: usize = 53;
/// Kinds of extents.
const INLINE: u8 = 0;
const DATA: u8 = 1;
const PREALLOCATED: u8 = 2;
/// Largest number of unpacked bytes of a compressed extent: the limit of the format.
pub(super) const PACKED_MAX: u64 = 128 << 10;
