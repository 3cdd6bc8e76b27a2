//! Chunk-aligned reads: reads of a whole array straight from its members, past the stripe cache.
//!
//! Chunk by chunk, exactly what was asked for, rounded out to the members' logical blocks. What a
//! member does not have is read through the cache ([`super::split`]).
//!
//! Source   md-raid.md §2.1 (md: `chunk_aligned_read`)

use weft_units::{ByteRange, Bytes};

use super::ParityRaid;
use crate::array::membership::Around;
use crate::array::outbox::StraightPart;
use crate::knobs::PlanRule;
use crate::raid::{ArrayIo, Cx, SPLITTING, straight};

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
        let range = io.range;
        let mut start = range.start.0;
        let mut sub_requests = 0;
        while start < range.end().0 {
            let end = range.end().0.min((start / chunk + 1) * chunk);
            let position = self.geometry.locate(Bytes(start).sectors_floor());
            let here = ByteRange::new(start, end - start);
            sub_requests += 1;
            let sectors = straight::frames_of(position.sector, here);
            let readable = cx.membership().readable(sectors, Around::WhereChecked);
            let place = cx.array.position_at(position.slot);
            match place.filter(|_| readable.contains(position.slot)) {
                Some(place) => straight::read(io, here, place, position.sector, cx),
                None => {
                    let len = here.len.0 as u32;
                    let part = StraightPart { request: io.id, start: here.start, len };
                    self.read_again(part, io, false);
                    sub_requests += SPLITTING - 1;
                }
            }
            start = end;
        }
        sub_requests
    }
}
