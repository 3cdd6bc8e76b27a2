//! Attaching of requests: to members straight, or to stripes of the stripe cache.
//!
//! A read of a whole array goes straight to its members, chunk by chunk, exactly what was asked
//! for. Everything else goes through the stripe cache ([`crate::raid::parity::split`]).
//!
//! Source   md-raid.md §2.1

use weft_units::{ByteRange, Bytes, FRAME_BYTES, SECTOR_BYTES, SectorRange, Sectors};

use super::{ATTACHING, Active, Volume};
use crate::align::whole_blocks;
use crate::array::Array;
use crate::error::ReplyError;
use crate::frame::Run;
use crate::input::RequestOp;
use crate::knobs::Knobs;
use crate::membership::Around;
use crate::mutant::Mutant;
use crate::outbox::{Outbox, ReadPart, Who};
use crate::output::Output;
use crate::raid::parity::split::{Attaching, Detour, SplitRequest};
use crate::ranges::RequestId;
use crate::sched::request::{MemberRequest, MergeKind};

impl Volume {
    /// Reads straight from the members, chunk by chunk, exactly what was asked for; through the
    /// cache what a member does not have.
    pub(super) fn read_aligned(&mut self, id: RequestId, out: &mut Outbox) {
        let chunk = self.array.geometry.chunk().bytes().0;
        let request = self.active(id);
        let (range, frames, attr) = (request.range, request.frames, request.attr);
        let mut start = range.start.0;
        let mut sub_requests = 0;
        while start < range.end().0 {
            let end = range.end().0.min((start / chunk + 1) * chunk);
            let position = self.array.geometry.locate(Bytes(start).sectors_floor());
            let len = (end - start) as u32;
            sub_requests += 1;
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
                kind: MergeKind { fua: false, stripes: false, attr },
            };
            let memory = frames.part(in_frames, whole.len.0);
            self.array.stage(place, &read, &[memory], Who::Read(part), out);
            start = end;
        }
        self.active(id).pending += sub_requests;
        self.sub_request_done(id, Ok(()), out);
    }

    /// Sends a sub-request of a read through the cache whose member is not asked.
    #[inline(never)]
    fn detour_unread(&mut self, request: RequestId, start: u64, len: u32) {
        self.detour(ReadPart { request, start: Bytes(start), len }, false);
    }

    /// Sends a sub-request of a read, which is pending, through the cache.
    #[inline(never)]
    pub(super) fn detour(&mut self, part: ReadPart, failed: bool) {
        let request = self.active(part.request);
        request.pending += ATTACHING - 1;
        let (frames, start, attr) = (request.frames, request.range.start, request.attr);
        let detour = Detour { part, failed, frames, start, attr, sub_requests: 0 };
        self.raid.detours.push_back(detour);
    }

    /// Attaches what is ready, or has it wait for stripes. While the cache waits for its new size
    /// nothing is begun.
    pub(super) fn split_ready(&mut self, out: &mut Outbox) {
        if self.ready.is_empty() {
            return;
        }
        let mut later = Vec::new();
        while let Some(id) = self.ready.pop_front() {
            if self.active(id).error.is_some() {
                self.attached(id, out);
                self.sub_request_done(id, Ok(()), out);
            } else if self.resizing.is_some() {
                later.push(id);
            } else {
                self.split_up(id, out);
            }
        }
        self.ready.extend(later);
    }

    fn split_up(&mut self, id: RequestId, out: &mut Outbox) {
        if self.active(id).discarded.is_some() && self.begin_discard(id) {
            self.attached(id, out);
            self.sub_request_done(id, Ok(()), out);
            return;
        }
        if self.attach_at_once(id) {
            // Its sub-request is pending instead of its splitting.
            self.attached(id, out);
        } else {
            self.attach_later(id);
        }
    }

    /// Has a request wait until it is attached.
    #[inline(never)]
    fn attach_later(&mut self, id: RequestId) {
        let split = self.active(id).split(id);
        self.active(id).pending += ATTACHING - 1;
        self.raid.ready.push_back(split);
    }

    /// Attaches a short request to its stripe, if nobody waits for stripes and there is one.
    #[inline]
    fn attach_at_once(&mut self, id: RequestId) -> bool {
        let split = self.active(id).split(id);
        let cx = attaching(&self.array, &self.knobs, false);
        self.raid.attach_at_once(&split, &cx)
    }

    /// Attaches what waits for stripes.
    pub(super) fn attach_waiting(&mut self, out: &mut Outbox) {
        if self.raid.has_waiting() {
            let cx = attaching(&self.array, &self.knobs, self.resizing.is_some());
            self.raid.attach_waiting(&cx);
            self.take_events(out);
        }
    }

    /// Ends what waits for stripes of a broken array when all stripes that are in use hold deferred
    /// writes: nothing is written any more, so these stripes stay in use, for only they know what
    /// belongs there.
    #[cold]
    pub(super) fn end_vain_waits(&mut self, out: &mut Outbox) {
        if !self.raid.waits_in_vain() {
            return;
        }
        for id in self.raid.end_waits() {
            self.active(id).error.get_or_insert(ReplyError::Io);
        }
        self.take_events(out);
    }

    /// All of a request is attached.
    pub(super) fn attached(&mut self, id: RequestId, out: &mut Outbox) {
        let request = self.active(id);
        let (stream, end) = (request.stream, request.range.end().0);
        self.raid.streams.attached(stream, end, out.now);
        if self.array.is_planted(Mutant::FrameReusedInFlight) {
            let frames = std::mem::replace(&mut self.active(id).frames, Run::EMPTY);
            out.push(Output::Release(frames));
        }
    }
}

impl Active {
    /// What the stripe cache has to know of it.
    #[inline(always)]
    fn split(&self, id: RequestId) -> SplitRequest {
        SplitRequest {
            id,
            range: self.range,
            frames: self.frames,
            attr: self.attr,
            discarded: self.discarded.as_ref().map(|stripes| stripes.range),
            writes: self.writes,
            zeroes: self.op == RequestOp::WriteZeroes,
            fua: self.flags.fua,
            sync: self.flags.sync && !self.pours,
            streams: self.streams,
            waited_for: self.waited_for,
            failed: false,
            sub_requests: 0,
            cursor: None,
        }
    }
}

#[inline]
fn attaching<'a>(array: &'a Array, knobs: &Knobs, frozen: bool) -> Attaching<'a> {
    Attaching {
        geometry: &array.geometry,
        writes: knobs.writes,
        frozen,
        off_by_one: array.is_planted(Mutant::ChunkEdgeOffByOne),
    }
}

const FRAME_SECTORS: u64 = FRAME_BYTES / SECTOR_BYTES;
