//! Straight reads: a range of one member, read into the frames of its request.
//!
//! A read is rounded out to the logical blocks of its member; in the frames there is room for that
//! ([`crate::layout::align`]).

use weft_units::{ByteRange, FRAME_BYTES, SECTOR_BYTES, SectorRange, Sectors};

use super::{ArrayIo, Cx};
use crate::array::outbox::{StraightPart, Who};
use crate::layout::align::whole_blocks;
use crate::sched::request::{MemberRequest, MergeKind};

/// Reads a range of a request that lies on one member, at a position, from a data sector on: the
/// one of the range's first byte.
#[inline]
pub(super) fn read(
    io: &ArrayIo,
    range: ByteRange,
    position: usize,
    sector: Sectors,
    cx: &mut Cx<'_>,
) {
    let block = u64::from(cx.array.members[position].info.logical_block);
    let whole = whole_blocks(range, block);
    let before = range.start.0 / SECTOR_BYTES - whole.start.0 / SECTOR_BYTES;
    let request = MemberRequest {
        write: false,
        sector: Sectors(sector.0 - before),
        bytes: whole.len,
        max: cx.knobs.max_sectors,
        kind: MergeKind { fua: false, stripes: false, attr: io.attr },
    };
    let in_frames = whole.start.0 - io.range.start.0 / FRAME_BYTES * FRAME_BYTES;
    let memory = io.frames.part(in_frames, whole.len.0);
    let part = StraightPart { request: io.id, start: range.start, len: range.len.0 as u32 };
    cx.array.stage(position, &request, &[memory], Who::Straight(part), cx.out);
}

/// Data sectors of a member of which any may be read for a range that begins at this one: whatever
/// the blocks of the member are, they lie within these frames.
#[inline]
pub(super) fn frames_of(sector: Sectors, range: ByteRange) -> SectorRange {
    let first = sector.0 / FRAME_SECTORS * FRAME_SECTORS;
    let last = sector.0 + (range.end().0 - 1) / SECTOR_BYTES - range.start.0 / SECTOR_BYTES;
    SectorRange::new(first, last / FRAME_SECTORS * FRAME_SECTORS + FRAME_SECTORS - first)
}

const FRAME_SECTORS: u64 = FRAME_BYTES / SECTOR_BYTES;
