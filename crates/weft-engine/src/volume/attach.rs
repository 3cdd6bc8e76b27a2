//! Which shards or members does a request turn to?
//!
//! A read of a whole array goes straight to its members, chunk by chunk, exactly what was asked for.
//! Everything else is dealt to the shards whose chunk rows it touches ([`super::shard`]).
//!
//! Source   md-raid.md §2.1

use weft_units::{ByteRange, Bytes, FRAME_BYTES, SECTOR_BYTES, SectorRange, Sectors};

use super::queues::ToShard;
use super::shard::{Attaching, Dealt, Detour, Shard, beside, shard_of_byte};
use super::{ATTACHING, Active, Volume};
use crate::align::whole_blocks;
use crate::array::MemberRequest;
use crate::error::ReplyError;
use crate::frame::Run;
use crate::input::RequestOp;
use crate::membership::Around;
use crate::mutant::Mutant;
use crate::outbox::{Outbox, ReadPart, Who};
use crate::output::Output;
use crate::ranges::RequestId;
use crate::sched::merge::Kind;
use crate::shard::ShardId;

impl Volume {
    /// Reads straight from the members, chunk by chunk, exactly what was asked for; through the cache
    /// what a member does not have.
    pub(super) fn bypass(&mut self, id: RequestId, out: &mut Outbox) {
        let chunk = self.array.geometry.chunk().bytes().0;
        let request = self.active(id);
        let (range, frames, attr) = (request.range, request.frames, request.attr);
        let mut start = range.start.0;
        let mut pieces = 0;
        while start < range.end().0 {
            let end = range.end().0.min((start / chunk + 1) * chunk);
            let position = self.array.geometry.locate(Bytes(start).sectors_floor());
            let len = (end - start) as u32;
            pieces += 1;
            // Whatever the member's blocks are, the ones that are read lie within these frames.
            let first = position.sector.0 / FRAME_SECTORS * FRAME_SECTORS;
            let last = position.sector.0 + (end - 1) / SECTOR_BYTES - start / SECTOR_BYTES;
            let sectors = SectorRange::new(
                first,
                last / FRAME_SECTORS * FRAME_SECTORS + FRAME_SECTORS - first,
            );
            let readable = self.array.membership.readable(sectors, Around::WhereChecked);
            let place = self.array.position_at(position.slot);
            let Some(place) = place.filter(|_| readable.contains(position.slot)) else {
                self.detour_unread(id, start, len);
                start = end;
                continue;
            };
            let part = ReadPart { request: id, start: Bytes(start), len };
            let block = u64::from(self.array.members[place].info.logical_block);
            let whole = whole_blocks(ByteRange::new(start, end - start), block);
            let in_frames = whole.start.0 - range.start.0 / FRAME_BYTES * FRAME_BYTES;
            let sector_in_chunk = Sectors(whole.start.0 % chunk / SECTOR_BYTES);
            let read = MemberRequest {
                write: false,
                sector: position.sector.round_down(self.array.geometry.chunk()) + sector_in_chunk,
                bytes: whole.len,
                max: self.knobs.max_sectors,
                kind: Kind { fua: false, rows: false, attr },
            };
            let memory = frames.part(in_frames, whole.len.0);
            self.array.stage(place, &read, &[memory], Who::Read(part), out);
            start = end;
        }
        self.active(id).pending += pieces;
        self.piece_done(id, Ok(()), out);
    }

    /// Sends a piece of a read through the cache whose member is not asked.
    #[inline(never)]
    fn detour_unread(&mut self, request: RequestId, start: u64, len: u32) {
        self.detour(ReadPart { request, start: Bytes(start), len }, false);
    }

    /// Sends a piece of a read, which is pending, through the cache.
    #[inline(never)]
    pub(super) fn detour(&mut self, part: ReadPart, failed: bool) {
        let request = self.active(part.request);
        request.pending += ATTACHING - 1;
        let (frames, start, attr) = (request.frames, request.range.start, request.attr);
        let detour = Detour { part, failed, frames, start, attr, pieces: 0 };
        let shard = shard_of_byte(&self.array.geometry, self.shards.len() as u64, part.start.0);
        if self.is_far() {
            self.tell(shard, ToShard::Detour(detour));
        } else {
            self.shards[shard.index()].detours.push_back(detour);
        }
    }

    /// Deals what is ready to shards; those wait for rows. While the cache waits for its new shape nothing
    /// is begun.
    pub(super) fn deal_ready(&mut self, out: &mut Outbox) {
        if self.ready.is_empty() {
            return;
        }
        let mut later = Vec::new();
        while let Some(id) = self.ready.pop_front() {
            if self.active(id).error.is_some() {
                self.attached(id, out);
                self.piece_done(id, Ok(()), out);
            } else if self.resizing.is_some() {
                later.push(id);
            } else {
                self.deal(id, out);
            }
        }
        self.ready.extend(later);
    }

    fn deal(&mut self, id: RequestId, out: &mut Outbox) {
        if self.active(id).discarded.is_some() && self.begin_discard(id) {
            self.attached(id, out);
            self.piece_done(id, Ok(()), out);
            return;
        }
        if !self.is_far() && self.attach_at_once(id) {
            // Its piece is pending instead of its dealing.
            self.attached(id, out);
        } else {
            self.deal_to_touched(id);
        }
    }

    /// Deals a request to the shards that it touches.
    #[inline(never)]
    fn deal_to_touched(&mut self, id: RequestId) {
        let dealt = self.active(id).dealt(id);
        if self.shards.len() == 1 {
            self.active(id).pending += ATTACHING - 1;
            self.deal_to(ShardId(0), dealt);
            return;
        }
        let touched = self.touched(&dealt);
        let shards = touched.iter().filter(|touched| **touched).count() as u64;
        assert!(shards > 0, "what is not discarded is somewhere");
        self.active(id).pending += ATTACHING * shards - 1;
        for (shard, touched) in (0..).map(ShardId).zip(touched) {
            if touched {
                self.deal_to(shard, dealt.clone());
            }
        }
    }

    /// Attaches a short request to its row, if nobody waits for rows and there is one.
    #[inline]
    fn attach_at_once(&mut self, id: RequestId) -> bool {
        let dealt = self.active(id).dealt(id);
        let place = match self.shards.len() {
            1 => 0,
            shards => {
                let start = dealt.range.start.0;
                shard_of_byte(&self.array.geometry, shards as u64, start).index()
            }
        };
        let cx = Attaching {
            geometry: &self.array.geometry,
            shards: self.shards.len() as u64,
            writes: self.knobs.writes,
            frozen: false,
            off_by_one: self.array.is_planted(Mutant::ChunkEdgeOffByOne),
        };
        self.shards[place].attach_at_once(&dealt, &cx)
    }

    /// Which shards have rows of a request.
    fn touched(&self, dealt: &Dealt) -> Vec<bool> {
        let geometry = &self.array.geometry;
        let chunk_row = geometry.chunk().bytes().0 * u64::from(geometry.data_members());
        let shards = self.shards.len();
        let mut touched = vec![false; shards];
        let mut at = dealt.range.start.0;
        loop {
            let (from, end) = beside(dealt.discarded, at, dealt.range.end().0);
            if from >= end {
                return touched;
            }
            for chunk_row in (from / chunk_row..end.div_ceil(chunk_row)).take(shards) {
                touched[(chunk_row % shards as u64) as usize] = true;
            }
            at = end;
        }
    }

    #[inline]
    fn deal_to(&mut self, shard: ShardId, dealt: Dealt) {
        if self.is_far() {
            self.tell(shard, ToShard::Attach(Box::new(dealt)));
        } else {
            self.shards[shard.index()].ready.push_back(dealt);
        }
    }

    /// Attaches what waits for rows.
    pub(super) fn attach_waiting(&mut self, out: &mut Outbox) {
        let (far, shards) = (self.is_far(), self.shards.len() as u64);
        for place in 0..self.shards.len() {
            let shard = &mut self.shards[place];
            if !shard.has_waiting() {
                continue;
            }
            let cx = Attaching {
                geometry: &self.array.geometry,
                shards,
                writes: shard.far.as_ref().map_or(&self.knobs, |far| &far.knobs).writes,
                frozen: self.resizing.is_some() && !far,
                off_by_one: self.array.is_planted(Mutant::ChunkEdgeOffByOne),
            };
            shard.attach_waiting(&cx);
            self.take_events(out);
        }
    }

    /// Whether something waits for a row of the cache, and none will come back.
    pub(super) fn waits_in_vain(&self) -> bool {
        !self.is_far() && self.shards.iter().any(Shard::waits_in_vain)
    }

    /// Ends what waits for rows of a broken array when all rows that are in use hold deferred writes:
    /// nothing is written any more, so these rows stay in use, for only they know what belongs there.
    #[cold]
    pub(super) fn end_vain_waits(&mut self, out: &mut Outbox) {
        for place in 0..self.shards.len() {
            if self.is_far() || !self.shards[place].waits_in_vain() {
                continue;
            }
            for id in self.shards[place].end_waits() {
                self.active(id).error.get_or_insert(ReplyError::Io);
            }
        }
        self.take_events(out);
    }

    /// A shard has attached all that it was to of a request.
    pub(super) fn attached(&mut self, id: RequestId, out: &mut Outbox) {
        let request = self.active(id);
        let (stream, end) = (request.stream, request.range.end().0);
        self.streams.attached(stream, end, out.now);
        if self.array.is_planted(Mutant::FrameReusedInFlight) {
            let frames = std::mem::replace(&mut self.active(id).frames, Run::EMPTY);
            out.push(Output::Release(frames));
        }
    }
}

impl Active {
    /// What a shard has to know of it.
    #[inline(always)]
    fn dealt(&self, id: RequestId) -> Dealt {
        Dealt {
            id,
            range: self.range,
            frames: self.frames,
            attr: self.attr,
            discarded: self.discarded.as_ref().map(|rows| rows.range),
            writes: self.writes,
            zeroes: self.op == RequestOp::WriteZeroes,
            fua: self.flags.fua,
            sync: self.flags.sync && !self.pours,
            streams: self.streams,
            waited_for: self.waited_for,
            failed: false,
            pieces: 0,
            cursor: None,
        }
    }
}

const FRAME_SECTORS: u64 = FRAME_BYTES / SECTOR_BYTES;
