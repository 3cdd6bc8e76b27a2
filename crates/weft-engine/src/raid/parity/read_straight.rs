//! Chunk-aligned reads: reads that go straight to the members, past the stripe cache.
//!
//! A read is sent chunk by chunk, for exactly the requested range, rounded out to the members'
//! logical blocks. A chunk that its member cannot supply is read through the cache
//! ([`super::split`]), together with the request's other chunks of the same full stripe. The
//! missing chunk is computed from these other chunks, which would otherwise be read twice.
//!
//! Source   md-raid.md §2.1 (md: `chunk_aligned_read`, of arrays that miss no member)

use weft_units::{ByteRange, Bytes, FRAME_BYTES, SECTOR_BYTES, SectorRange, Sectors};

use super::ParityRaid;
use crate::array::membership::ReadAround;
use crate::layout::align::whole_blocks;
use crate::raid::personality::Requests;
use crate::raid::straight::StraightPart;
use crate::raid::{ArrayIo, Cx, SPLITTING};
use crate::sched::request::{MemberRequest, MergeKind};

impl ParityRaid {
    /// Sends a read straight to the members, except for the parts that a member cannot supply:
    /// these are read through the stripe cache. Returns the number of sub-requests.
    #[inline]
    pub(super) fn read_chunks(&mut self, io: &ArrayIo, cx: &mut Cx<'_>) -> u64 {
        let (mut start, end) = (io.range.start.0, io.range.end().0);
        let mut sub_requests = 0;
        while start < end {
            let here = self.in_chunk(start, end);
            let place = self.place_of(here, cx);
            match place.filter(|_| self.reads_rest_of_stripe(here.end().0, end, cx)) {
                Some((place, sector)) => {
                    read(io, here, place, sector, cx);
                    sub_requests += 1;
                    start = here.end().0;
                }
                None => {
                    let next = (start + 1).next_multiple_of(self.geometry.full_stripe_bytes());
                    let (first, len) = (Bytes(start), (end.min(next) - start) as u32);
                    let part = StraightPart { request: io.id, start: first, len };
                    self.read_again(part, io, false);
                    sub_requests += SPLITTING;
                    start = end.min(next);
                }
            }
        }
        sub_requests
    }

    /// The bytes from `start` up to the end of their chunk, or to `end` if that comes first.
    #[inline]
    fn in_chunk(&self, start: u64, end: u64) -> ByteRange {
        // The size of a chunk is a power of two.
        let last = start | (self.geometry.chunk().bytes().0 - 1);
        ByteRange::new(start, end.min(last + 1) - start)
    }

    /// Position of the member that holds `range`, which lies in one chunk, and the first data
    /// sector on it. `None` if the member cannot be read there.
    #[inline(always)]
    fn place_of(&self, range: ByteRange, cx: &Cx<'_>) -> Option<(usize, Sectors)> {
        let position = self.geometry.locate(range.start.sectors_floor());
        let sectors = frames_of(position.sector, range);
        let readable = cx.membership().readable(sectors, ReadAround::WhereChecked);
        let place = cx.view().position_at(position.slot)?;
        readable.contains(position.slot).then_some((place, position.sector))
    }

    /// Whether the members can supply all chunks of a request from byte `start`, the start of a
    /// chunk, up to the end of the full stripe or to byte `end`, the end of the request.
    #[inline]
    fn reads_rest_of_stripe(&self, start: u64, end: u64, cx: &Cx<'_>) -> bool {
        if cx.membership().is_whole_and_answers() {
            return true;
        }
        self.reads_each(start, end, cx)
    }

    #[cold]
    fn reads_each(&self, mut start: u64, end: u64, cx: &Cx<'_>) -> bool {
        let full_stripe = self.geometry.full_stripe_bytes();
        let end = end.min(start.next_multiple_of(full_stripe));
        while start < end {
            let here = self.in_chunk(start, end);
            if self.place_of(here, cx).is_none() {
                return false;
            }
            start = here.end().0;
        }
        true
    }
}

/// Reads a range of a request from the member at `position`; `sector` is the data sector of its
/// first byte. The read is rounded out to the member's logical blocks, for which the frames have
/// room ([`crate::layout::align`]).
#[inline]
fn read(io: &ArrayIo, range: ByteRange, position: usize, sector: Sectors, cx: &mut Cx<'_>) {
    let block = cx.view().logical_block(position);
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
    cx.stage_at(position, &request, &[memory], part.target());
}

/// Data sectors of a member, in whole frames, that a read of `range` from `sector` on may touch
/// after it is rounded out to the member's logical blocks.
#[inline]
fn frames_of(sector: Sectors, range: ByteRange) -> SectorRange {
    let first = sector.0 / FRAME_SECTORS * FRAME_SECTORS;
    let last = sector.0 + (range.end().0 - 1) / SECTOR_BYTES - range.start.0 / SECTOR_BYTES;
    SectorRange::new(first, last / FRAME_SECTORS * FRAME_SECTORS + FRAME_SECTORS - first)
}

const FRAME_SECTORS: u64 = FRAME_BYTES / SECTOR_BYTES;
