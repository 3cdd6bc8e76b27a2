//! Content of a file: its bytes, out of the segments of its tree, and its holes.

use std::ops::Range;

use weft_files::tree::{Node, Packed, PieceBytes, Pieces, Tree};

/// Part of a file that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    /// Part that cannot be read, as a byte range in the file.
    pub(crate) range: Range<u64>,
    /// Cause of the loss, as a message for the user.
    pub(crate) why: String,
}

/// Content of a file: its size and its map of segments.
pub(crate) struct Content {
    pub(crate) size: u64,
    /// Segments, and faults that do not overlap, both in ascending order.
    pieces: Pieces,
}

impl Content {
    /// Content of the file `node` with the segments and faults of `pieces`, which are sorted.
    /// Faults that overlap are merged.
    pub(crate) fn of(node: &Node, mut pieces: Pieces) -> Self {
        pieces.list.sort_by_key(|piece| piece.range.start);
        pieces.faults.sort_by_key(|(range, _)| range.start);
        let mut faults: Vec<(Range<u64>, String)> = Vec::new();
        for (range, why) in pieces.faults {
            match faults.last_mut() {
                Some((last, _)) if range.start < last.end => last.end = last.end.max(range.end),
                _ => faults.push((range, why)),
            }
        }
        pieces.faults = faults;
        Self { size: node.size, pieces }
    }

    /// Weight in a cache: 1, one more for each segment and each fault, and one more for each 64
    /// bytes that the segments hold themselves.
    pub(crate) fn weight(&self) -> usize {
        let own = |bytes: &PieceBytes| match bytes {
            PieceBytes::Here(bytes) => bytes.len() / 64,
            PieceBytes::Packed(_) | PieceBytes::Source(_) => 0,
        };
        let own: usize = self.pieces.list.iter().map(|piece| own(&piece.bytes)).sum();
        1 + self.pieces.list.len() + self.pieces.faults.len() + own
    }

    /// Byte ranges that may be wrong, each with the cause for a message.
    pub(crate) fn doubts(&self) -> &[(Range<u64>, String)] {
        &self.pieces.doubts
    }

    /// Fills `into` with the bytes of the file from `offset` on. All of them lie before its end;
    /// holes read as zeros.
    ///
    /// # Errors
    /// The first part that cannot be read; the content of `into` is undefined then.
    pub(crate) fn read(&self, tree: &dyn Tree, offset: u64, into: &mut [u8]) -> Result<(), Lost> {
        let asked = offset..offset.saturating_add(into.len() as u64);
        let faults = &self.pieces.faults;
        let first = faults.partition_point(|(range, _)| range.end <= asked.start);
        if let Some((range, why)) = faults.get(first).filter(|it| it.0.start < asked.end) {
            return Err(Lost { range: common(range, &asked), why: why.clone() });
        }
        let pieces = &self.pieces.list;
        let mut done = 0;
        let first = pieces.partition_point(|piece| piece.range.end <= asked.start);
        for piece in pieces[first..].iter().take_while(|piece| piece.range.start < asked.end) {
            let part = common(&piece.range, &asked);
            let at = |byte: u64| usize::try_from(byte - asked.start).unwrap_or(usize::MAX);
            // Pieces may overlap.
            if let Some(hole) = into.get_mut(done..at(part.start)) {
                hole.fill(0);
            }
            done = done.max(at(part.end));
            let into = &mut into[at(part.start)..at(part.end)];
            let within = part.start - piece.range.start;
            let lost = |why: String| Lost { range: part.clone(), why };
            match &piece.bytes {
                PieceBytes::Source(at) => {
                    let from = at.saturating_add(within);
                    tree.source().read_at(from, into).map_err(|error| {
                        let up = |at: u64| part.start.saturating_add(at.saturating_sub(from));
                        let range = up(error.range.start)..up(error.range.end).min(part.end);
                        Lost { range, why: error.why }
                    })?;
                }
                PieceBytes::Here(bytes) => copy(bytes, within, into).map_err(lost)?,
                PieceBytes::Packed(packed) => {
                    unpack(tree, packed, within, into).map_err(lost)?;
                }
            }
        }
        into[done..].fill(0);
        Ok(())
    }

    /// Offset of the first byte from `offset` on that is data or cannot be read (`SEEK_DATA`).
    /// `None` if only a hole follows.
    pub(crate) fn data_from(&self, offset: u64) -> Option<u64> {
        let next = self.segment(offset)?;
        Some(next.start.max(offset)).filter(|start| *start < self.size)
    }

    /// Offset of the first byte from `offset` on that is in a hole, or the size of the file
    /// (`SEEK_HOLE`).
    pub(crate) fn hole_from(&self, offset: u64) -> u64 {
        let mut at = offset;
        while let Some(segment) = self.segment(at).filter(|segment| segment.start <= at) {
            at = segment.end;
        }
        at.min(self.size)
    }

    /// Byte range of the first segment or fault that ends behind `offset`; `None` if none does.
    fn segment(&self, offset: u64) -> Option<Range<u64>> {
        let Pieces { list, faults, .. } = &self.pieces;
        let piece = list.get(list.partition_point(|piece| piece.range.end <= offset));
        let fault = faults.get(faults.partition_point(|(range, _)| range.end <= offset));
        let ranges = piece.map(|it| &it.range).into_iter().chain(fault.map(|it| &it.0));
        ranges.min_by_key(|range| range.start).cloned()
    }
}

/// Intersection of two ranges that overlap.
fn common(one: &Range<u64>, other: &Range<u64>) -> Range<u64> {
    one.start.max(other.start)..one.end.min(other.end)
}

fn unpack(tree: &dyn Tree, packed: &Packed, within: u64, into: &mut [u8]) -> Result<(), String> {
    let bytes = tree.unpack(packed).map_err(|error| error.to_string())?;
    copy(&bytes, packed.skip.saturating_add(within), into)
}

/// Fills `into` with the part of `bytes` that begins at index `from`. Too few bytes are an error;
/// they are never filled up with zeros.
fn copy(bytes: &[u8], from: u64, into: &mut [u8]) -> Result<(), String> {
    let start = usize::try_from(from).unwrap_or(usize::MAX);
    let Some(part) = bytes.get(start..).and_then(|rest| rest.get(..into.len())) else {
        let (found, expected) = (bytes.len(), from.saturating_add(into.len() as u64));
        return Err(format!("found {found} bytes, expected {expected}"));
    };
    into.copy_from_slice(part);
    Ok(())
}
