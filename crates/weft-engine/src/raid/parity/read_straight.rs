//! Chunk-aligned reads: reads of a whole array straight from its members, past the stripe cache.
//!
//! Chunk by chunk, exactly what was asked for, rounded out to the members' logical blocks. What a
//! member does not have is read through the cache ([`super::split`]).
//!
//! Source   md-raid.md §2.1 (md: `chunk_aligned_read`)

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
        let chunk = self.geometry.chunk().bytes().0;
        let ArrayIo { range, frames, attr, .. } = *io;
        let mut start = range.start.0;
        let mut sub_requests = 0;
        while start < range.end().0 {
            let end = range.end().0.min((start / chunk + 1) * chunk);
            let position = self.geometry.locate(Bytes(start).sectors_floor());
            let len = (end - start) as u32;
            sub_requests += 1;
            // Whatever the member's blocks are, the ones that are read lie within these frames.
            let first = position.sector.0 / FRAME_SECTORS * FRAME_SECTORS;
            let last = position.sector.0 + (end - 1) / SECTOR_BYTES - start / SECTOR_BYTES;
            let sectors = SectorRange::new(
                first,
                last / FRAME_SECTORS * FRAME_SECTORS + FRAME_SECTORS - first,
            );
            let readable = cx.membership().readable(sectors, Around::WhereChecked);
            let place = cx.array.position_at(position.slot);
            let part = StraightPart { request: io.id, start: Bytes(start), len };
            let Some(place) = place.filter(|_| readable.contains(position.slot)) else {
                self.read_again(part, io, false);
                sub_requests += SPLITTING - 1;
                start = end;
                continue;
            };
            let block = u64::from(cx.array.members[place].info.logical_block);
            let whole = whole_blocks(ByteRange::new(start, end - start), block);
            let in_frames = whole.start.0 - range.start.0 / FRAME_BYTES * FRAME_BYTES;
            let sector_in_chunk = Sectors(whole.start.0 % chunk / SECTOR_BYTES);
            let read = MemberRequest {
                write: false,
                sector: position.sector.round_down(self.geometry.chunk()) + sector_in_chunk,
                bytes: whole.len,
                max: cx.knobs.max_sectors,
                kind: MergeKind { fua: false, stripes: false, attr },
            };
            let memory = frames.part(in_frames, whole.len.0);
            cx.array.stage(place, &read, &[memory], Who::Straight(part), cx.out);
            start = end;
        }
        sub_requests
    }
}

const FRAME_SECTORS: u64 = FRAME_BYTES / SECTOR_BYTES;
