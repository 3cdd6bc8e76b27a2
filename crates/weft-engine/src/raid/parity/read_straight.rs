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
        let is_whole = cx.membership().is_whole_and_answers();
        let mut sub_requests = 0;
        while start < end {
            if is_whole || self.reads_rest_of_stripe(start, end, cx) {
                let here = self.in_chunk(start, end);
                let position = self.geometry.locate(here.start.sectors_floor());
                let place = cx.view().position_at(position.slot);
                let place = place.expect("a slot that can be read has a member");
                read(io, here, place, position.sector, cx);
                sub_requests += 1;
                start = here.end().0;
            } else {
                let rest = end.min(self.next_full_stripe(start)) - start;
                let part = StraightPart { request: io.id, start: Bytes(start), len: rest as u32 };
                self.repeat(part, io, false);
                sub_requests += SPLITTING;
                start += rest;
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

    /// First byte of the full stripe after the one that contains byte `at`.
    fn next_full_stripe(&self, at: u64) -> u64 {
        (at + 1).next_multiple_of(self.geometry.full_stripe_bytes())
    }

    /// Whether the members can supply the chunks of a request from byte `start` up to the end of
    /// the full stripe or to byte `end`, the end of the request.
    #[cold]
    fn reads_rest_of_stripe(&self, mut start: u64, end: u64, cx: &Cx<'_>) -> bool {
        let end = end.min(self.next_full_stripe(start));
        while start < end {
            let here = self.in_chunk(start, end);
            let position = self.geometry.locate(here.start.sectors_floor());
            let sectors = frames_of(position.sector, here);
            let readable = cx.membership().readable(sectors, ReadAround::WhereChecked);
            if !readable.contains(position.slot) {
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
