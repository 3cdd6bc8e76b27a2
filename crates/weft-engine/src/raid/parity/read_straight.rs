//! Chunk-aligned reads: reads of a whole array straight from its members, past the stripe cache.
//!
//! Chunk by chunk, exactly what was asked for, rounded out to the members' logical blocks. What a
//! member does not have is read through the cache ([`super::split`]), and with it what the request
//! reads of the other chunks of that full stripe: to compute the missing one takes them anyway, and
//! they would be read twice.
//!
//! Source   md-raid.md §2.1 (md: `chunk_aligned_read`, of arrays that miss no member)

use smallvec::SmallVec;
use weft_units::{ByteRange, Bytes, FRAME_BYTES, SECTOR_BYTES, SectorRange, Sectors};

use super::ParityRaid;
use crate::array::membership::Around;
use crate::array::outbox::{StraightPart, Who};
use crate::knobs::PlanRule;
use crate::layout::align::whole_blocks;
use crate::raid::{ArrayIo, Cx, SPLITTING};
use crate::sched::request::{MemberRequest, MergeKind};

impl ParityRaid {
    /// Reads straight from the members; through the cache what a member does not have. What a
    /// member had no space for is known to its stripe only. A read whose member stalled would be
    /// given up once more if members need longer for it than `read_around`, and so on for ever.
    pub(crate) fn read_straight(&mut self, io: &ArrayIo, cx: &mut Cx<'_>) -> Option<u64> {
        let aligned = cx.membership().reads_aligned() || cx.knobs.plan_rule == PlanRule::Least;
        (aligned && !io.again && !self.has_deferred()).then(|| self.read_chunks(io, cx))
    }

    fn read_chunks(&mut self, io: &ArrayIo, cx: &mut Cx<'_>) -> u64 {
        let mut sub_requests = 0;
        for in_stripe in parts_of(io.range, self.geometry.full_stripe_bytes()) {
            let chunks = parts_of(in_stripe, self.geometry.chunk().bytes().0);
            let places: Option<SmallVec<[_; 8]>> =
                chunks.map(|here| self.place_of(here, cx)).collect();
            if let Some(places) = places {
                for (here, place, sector) in places {
                    read(io, here, place, sector, cx);
                    sub_requests += 1;
                }
            } else {
                let len = in_stripe.len.0 as u32;
                let part = StraightPart { request: io.id, start: in_stripe.start, len };
                self.read_again(part, io, false);
                sub_requests += SPLITTING;
            }
        }
        sub_requests
    }

    /// A range of one chunk with its member's position and first data sector, if the member can be
    /// read there.
    fn place_of(&self, range: ByteRange, cx: &Cx<'_>) -> Option<(ByteRange, usize, Sectors)> {
        let position = self.geometry.locate(range.start.sectors_floor());
        let sectors = frames_of(position.sector, range);
        let readable = cx.membership().readable(sectors, Around::WhereChecked);
        let place = cx.array.position_at(position.slot)?;
        readable.contains(position.slot).then_some((range, place, position.sector))
    }
}

/// A range, cut where multiples of a size begin.
fn parts_of(range: ByteRange, size: u64) -> impl Iterator<Item = ByteRange> {
    let end = range.end().0;
    let mut start = range.start.0;
    std::iter::from_fn(move || {
        let part = ByteRange::new(start, end.min((start / size + 1) * size) - start);
        start += part.len.0;
        (part.len > Bytes::ZERO).then_some(part)
    })
}

/// Reads a range of a request that lies on one member, at a position, from a data sector on: the
/// one of the range's first byte. A read is rounded out to the logical blocks of its member; in the
/// frames there is room for that ([`crate::layout::align`]).
#[inline]
fn read(io: &ArrayIo, range: ByteRange, position: usize, sector: Sectors, cx: &mut Cx<'_>) {
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
fn frames_of(sector: Sectors, range: ByteRange) -> SectorRange {
    let first = sector.0 / FRAME_SECTORS * FRAME_SECTORS;
    let last = sector.0 + (range.end().0 - 1) / SECTOR_BYTES - range.start.0 / SECTOR_BYTES;
    SectorRange::new(first, last / FRAME_SECTORS * FRAME_SECTORS + FRAME_SECTORS - first)
}

const FRAME_SECTORS: u64 = FRAME_BYTES / SECTOR_BYTES;
