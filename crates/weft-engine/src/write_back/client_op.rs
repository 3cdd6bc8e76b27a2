//! Client requests in the write-back cache: room, frames, resident pages and reads of the volume.

use std::ops::Range;

use weft_units::{ByteRange, FRAME_BYTES};

use super::edges::{Edges, change, edges_of};
use super::op::{CachePath, ClientOp, OpWork};
use super::{Cached, OpId, WriteBack};
use crate::array::outbox::Outbox;
use crate::contract::error::ReplyError;
use crate::contract::frame::Segment;
use crate::contract::input::{ClientRequest, RequestOp};
use crate::contract::output::{ComputeOp, Output};
use crate::mutant::{self, Mutant};
use crate::volume::Volume;

impl WriteBack {
    /// Handles a request that touches pages. The request waits if it overlaps an earlier request
    /// that waits or has yet to flush. A write that is to stay in the cache also waits while other
    /// requests wait, and while the dirty limit leaves no room for its pages.
    pub(super) fn arrive(&mut self, id: OpId, volumes: &mut [Volume], out: &mut Outbox) {
        let op = self.op(id);
        let (volume, pages) = (op.volume, op.pages.clone());
        let request = self.client_op(id).request;
        let keeps = self.keeps(&request, &pages, out);
        if self.way_of_write(id, keeps) {
            volumes[volume.index()].count(&request);
        }
        let behind = self.waiting.iter().any(|other| keeps || self.is_behind(id, *other));
        let no_room = keeps && !self.has_room(&pages, out);
        if behind || no_room || self.is_behind_flush(id) {
            let arrived = |id: OpId| match &self.op(id).work {
                OpWork::Client(op) => op.arrived,
                _ => unreachable!("it is a client request"),
            };
            let place = self.waiting.partition_point(|other| arrived(*other) < arrived(id));
            self.waiting.insert(place, id);
        } else {
            self.enter(id, volumes, out);
        }
    }

    /// Whether operation `id` touches pages that operation `other`, which arrived before it,
    /// touches too.
    fn is_behind(&self, id: OpId, other: OpId) -> bool {
        let (one, other) = (self.op(id), self.op(other));
        let apart = other.pages.end <= one.pages.start || one.pages.end <= other.pages.start;
        let before = match (&one.work, &other.work) {
            (OpWork::Client(one), OpWork::Client(other)) => other.arrived < one.arrived,
            _ => false,
        };
        before && one.volume == other.volume && !apart
    }

    /// Whether operation `id` must wait behind an overlapping request that has a preflush and does
    /// not hold its range lock yet.
    fn is_behind_flush(&self, id: OpId) -> bool {
        let flushes = &self.volumes[self.op(id).volume.index()].flushes;
        let is_to_come = |flush: OpId| match &self.op(flush).work {
            OpWork::Client(op) => op.edges != Edges::Flushed,
            _ => false,
        };
        flushes.iter().any(|(flush, _)| is_to_come(*flush) && self.is_behind(id, *flush))
    }

    /// Whether a request is a write that can stay in the cache: a write of whole pages, of at most
    /// half the number of pages for which there can be room, without FUA or preflush, to a volume
    /// without failing write-back.
    fn keeps(&self, request: &ClientRequest, pages: &Range<u64>, out: &Outbox) -> bool {
        let cached = &self.volumes[request.volume.index()];
        let (range, limit) = (request.range, self.room_max());
        let whole = covered(range, cached.size) == *pages;
        let few = pages.end - pages.start <= limit / 2;
        let fua = request.flags.fua && !mutant::is(out.planted, Mutant::FuaStaysInCache);
        let plain = !fua && !request.flags.preflush && cached.failing.is_none();
        request.op == RequestOp::Write && whole && few && plain
    }

    /// Largest number of pages for which write-back can make room: the dirty limit minus the pages
    /// of volumes with failing write-back. A write of more than half of this number is sent to its
    /// volume at once, so that it does not wait until another volume's member is repaired.
    fn room_max(&self) -> u64 {
        let failing = self.volumes.iter().filter(|cached| cached.failing.is_some());
        let stuck: u64 = failing.map(|cached| self.cache.inode_counts(cached.inode).total()).sum();
        self.cache.pool().thresholds().dirty.saturating_sub(stuck)
    }

    fn has_room(&self, pages: &Range<u64>, out: &Outbox) -> bool {
        let wanted = self.reserved + (pages.end - pages.start);
        let pool = self.cache.pool();
        let below_limit = pool.counts().total() + wanted <= pool.thresholds().dirty;
        let passes = mutant::is(out.planted, Mutant::DirtyLimitPassed);
        (below_limit || passes) && wanted <= self.memory.free()
    }

    fn enter(&mut self, id: OpId, volumes: &mut [Volume], out: &mut Outbox) {
        let pages = &self.op(id).pages;
        let count = pages.end - pages.start;
        let op = self.client_op(id);
        let writes = op.request.op != RequestOp::Read;
        if op.path == CachePath::Keep {
            self.reserved += count;
        }
        self.lock_above(id, writes, volumes, out);
    }

    /// Starts requests that wait for room under the dirty limit, in order, as long as there is
    /// room.
    pub(super) fn admit_waiting(&mut self, volumes: &mut [Volume], out: &mut Outbox) {
        while let Some(id) = self.waiting.front().copied() {
            let pages = self.op(id).pages.clone();
            let no_room = self.client_op(id).path == CachePath::Keep && !self.has_room(&pages, out);
            if no_room || self.is_behind_flush(id) {
                return;
            }
            self.waiting.pop_front();
            self.enter(id, volumes, out);
        }
    }

    /// Fails the writes to volume `index` that wait for room under the dirty limit, because the
    /// volume cannot be written and its pages stay dirty.
    pub(super) fn refuse_waiting(
        &mut self,
        index: usize,
        error: &ReplyError,
        volumes: &mut [Volume],
        out: &mut Outbox,
    ) {
        for id in std::mem::take(&mut self.waiting) {
            let everywhere = mutant::is(out.planted, Mutant::OtherVolumeRefused);
            let refused = everywhere || self.op(id).volume.index() == index;
            if refused && self.client_op(id).path == CachePath::Keep {
                self.answer(id, Err(error.clone()), out);
            } else {
                self.arrive(id, volumes, out);
            }
        }
    }

    /// Copies the data of a write into frames of the cache.
    pub(super) fn fill(&mut self, id: OpId, out: &mut Outbox) {
        let op = self.op(id);
        let (index, pages) = (op.volume.index(), op.pages.clone());
        let frames = self.client_op(id).request.frames;
        let (cached, memory) = (&mut self.volumes[index], &mut self.memory);
        let mut ops = out.ops();
        for page in pages.clone() {
            let frame = cached.resident.fill(page, || memory.take());
            let len = page_len(page, cached.size);
            let from = frames.part((page - pages.start) * FRAME_BYTES, len);
            push_copy(&mut ops, from, Segment::at(frame, 0, len));
        }
        Self::compute(id, ops, out);
    }

    /// Marks the pages of a write dirty, after its data was copied into the cache. Then answers the
    /// write, or lets the throttle delay the answer.
    pub(super) fn kept(&mut self, id: OpId, volumes: &mut [Volume], out: &mut Outbox) {
        let op = self.op(id);
        let (volume, pages) = (op.volume, op.pages.clone());
        let ClientOp { request: ClientRequest { client, .. }, gone, .. } = *self.client_op(id);
        let throttled = self.knobs.throttle.is_some() && !gone;
        let writer = throttled.then(|| self.writer_of(client, volume));
        let cached = &mut self.volumes[volume.index()];
        let (dirties, inode) = (writer.unwrap_or(cached.writer), cached.inode);
        let charge = self.cache.dirty(out.now, dirties, inode, pages.clone());
        cached.resident.filled(pages.clone());
        if mutant::is(out.planted, Mutant::RedirtiedPageLost) {
            // Planted bug: the data being written counts as the current data.
            for page in cached.resident.being_written(pages.clone()) {
                self.cache.discard(cached.inode, page..page + 1);
                cached.resident.undirtied(page);
            }
        }
        self.reserved -= pages.end - pages.start;
        self.unlock_above(id, volumes, out);
        match writer {
            Some(writer) => self.charge(writer, id, charge, volumes, out),
            None => self.answer(id, Ok(()), out),
        }
        self.admit_waiting(volumes, out);
    }

    /// Starts a read: pins the resident pages until the read ends, and reads the other pages from
    /// the volume.
    pub(super) fn start_read(&mut self, id: OpId, volumes: &mut [Volume], out: &mut Outbox) {
        let op = self.op(id);
        let (index, pages) = (op.volume.index(), op.pages.clone());
        let cached = &mut self.volumes[index];
        let here = cached.resident.pin(&pages);
        let all = here.len() as u64 == pages.end - pages.start;
        let op = self.client_op(id);
        op.pinned = here;
        if all {
            let request = op.request;
            volumes[index].count(&request);
            self.copy_over(id, out);
        } else {
            self.ask(id);
        }
    }

    /// Copies the resident pages over the data that the volume has returned for a read.
    fn copy_over(&mut self, id: OpId, out: &mut Outbox) {
        let op = self.client_op(id);
        let (range, frames) = (op.request.range, op.request.frames);
        let pinned = std::mem::take(&mut op.pinned);
        let mut ops = out.ops();
        for (page, frame) in &pinned {
            let (here, there) = of_page(*page, range);
            let to = frames.part(there, here.len.0);
            push_copy(&mut ops, Segment::at(*frame, here.start.0, here.len.0), to);
        }
        self.client_op(id).pinned = pinned;
        Self::compute(id, ops, out);
    }

    /// Handles the volume's answer to a read.
    pub(super) fn read_below(
        &mut self,
        id: OpId,
        result: Result<(), ReplyError>,
        volumes: &mut [Volume],
        out: &mut Outbox,
    ) {
        let op = self.client_op(id);
        op.on_loan &= result.is_err();
        if result.is_ok() && !op.pinned.is_empty() {
            self.copy_over(id, out);
        } else {
            self.read_done(id, result, volumes, out);
        }
    }

    pub(super) fn read_done(
        &mut self,
        id: OpId,
        result: Result<(), ReplyError>,
        volumes: &mut [Volume],
        out: &mut Outbox,
    ) {
        let index = self.op(id).volume.index();
        let pinned = std::mem::take(&mut self.client_op(id).pinned);
        let mut freed = Vec::new();
        self.volumes[index].resident.unpin(&pinned, &mut freed);
        self.memory.give_back(&mut freed);
        self.unlock_above(id, volumes, out);
        self.answer(id, result, out);
        self.admit_waiting(volumes, out);
    }

    /// Handles the volume's answer to a request that changes data: drops the pages that the request
    /// covers completely, and updates the pages that it covers in part. After a trim that may have
    /// changed nothing, all pages stay: members have older data, which no read may return again.
    pub(super) fn changed_below(
        &mut self,
        id: OpId,
        result: Result<(), ReplyError>,
        volumes: &mut [Volume],
        out: &mut Outbox,
    ) {
        let index = self.op(id).volume.index();
        let op = self.client_op(id);
        let (request, changes) = (op.request, op.changes.filter(|range| range.len.0 > 0));
        let changed = result.is_ok() && !volumes[index].may_have_kept(&request);
        let Some(range) = changes.filter(|_| changed) else {
            self.through_done(id, result, volumes, out);
            return;
        };
        let cached = &mut self.volumes[index];
        let covered = covered(range, cached.size);
        let mut freed = Vec::new();
        if !covered.is_empty() {
            self.cache.discard(cached.inode, covered.clone());
            cached.resident.replaced(covered.clone(), &mut freed);
        }
        self.memory.give_back(&mut freed);
        let mut ops = out.ops();
        for page in edges_of(range, cached.size) {
            if let Some(here) = cached.resident.get(page) {
                ops.push(change(&request, range, page, here.frame));
            }
        }
        if ops.is_empty() {
            out.recycle(ops);
            self.through_done(id, result, volumes, out);
        } else {
            Self::compute(id, ops, out);
        }
    }

    pub(super) fn through_done(
        &mut self,
        id: OpId,
        result: Result<(), ReplyError>,
        volumes: &mut [Volume],
        out: &mut Outbox,
    ) {
        self.unlock_below(id);
        self.through_over(id, result, volumes, out);
    }

    /// Starts a flush or preflush, which has to wait until all pages that are dirty now are
    /// written.
    pub(super) fn begin_flush(&mut self, id: OpId, volumes: &mut [Volume], out: &mut Outbox) {
        let index = self.op(id).volume.index();
        let cached = &mut self.volumes[index];
        self.cache.mark(cached.inode, &(0..u64::MAX));
        let epoch = cached.resident.close_epoch();
        cached.flushes.push((id, epoch));
        self.flush_those_written(volumes, out);
    }

    /// Continues each flush that has no unwritten pages left: a flush goes to its volume, and a
    /// request with a preflush goes on as a request without one.
    pub(super) fn flush_those_written(&mut self, volumes: &mut [Volume], out: &mut Outbox) {
        let forgets = mutant::is(out.planted, Mutant::FlushMissesWriteback);
        for index in 0..self.volumes.len() {
            // One at a time, because continuing a preflush may start other requests.
            loop {
                let Cached { resident, flushes, .. } = &mut self.volumes[index];
                let written = |epoch| resident.is_written(epoch);
                let clean = |epoch| forgets && resident.is_taken(epoch);
                let ready = |flush: &(OpId, u64)| written(flush.1) || clean(flush.1);
                let Some(place) = flushes.iter().position(ready) else { break };
                let (id, _) = flushes.remove(place);
                self.pages_flushed(id, volumes, out);
            }
        }
    }

    fn pages_flushed(&mut self, id: OpId, volumes: &mut [Volume], out: &mut Outbox) {
        let op = self.client_op(id);
        let nothing_else = op.request.op == RequestOp::Flush || op.request.range.len.0 == 0;
        if nothing_else || op.edges == Edges::Flushed {
            self.ask(id);
            return;
        }
        op.path =
            if op.request.op == RequestOp::Read { CachePath::Read } else { CachePath::Through };
        self.arrive(id, volumes, out);
        self.admit_waiting(volumes, out);
    }

    /// Answers a client request, and returns its frames and credit.
    pub(super) fn answer(&mut self, id: OpId, result: Result<(), ReplyError>, out: &mut Outbox) {
        let index = self.op(id).volume.index();
        self.volumes[index].clients -= 1;
        let ClientOp { request, gone, credit, on_loan, .. } = *self.client_op(id);
        let went_well = request.op == RequestOp::Read && result.is_ok() && !gone;
        if !gone {
            out.reply(request.client, request.tag, result);
        }
        if on_loan {
            self.op_mut(id).work = OpWork::Lent(request.frames);
        } else {
            self.forget(id);
            if request.frames.count > 0 && !went_well {
                out.push(Output::Release(request.frames));
            }
        }
        if credit > 0 {
            out.give_credit(request.client, credit);
        }
    }
}

/// Number of bytes of page number `page` that lie within a volume of `size` bytes.
pub(super) fn page_len(page: u64, size: u64) -> u64 {
    FRAME_BYTES.min(size - page * FRAME_BYTES)
}

/// Pages that `range` covers completely, in a volume of `size` bytes. The last page of the volume
/// may be short.
pub(super) fn covered(range: ByteRange, size: u64) -> Range<u64> {
    let start = range.start.0.div_ceil(FRAME_BYTES);
    let end = if range.end().0 == size {
        size.div_ceil(FRAME_BYTES)
    } else {
        range.end().0 / FRAME_BYTES
    };
    start..end.max(start)
}

/// Part of page number `page` that belongs to `range`, relative to the page, and the offset of that
/// part in the frames of `range`.
pub(super) fn of_page(page: u64, range: ByteRange) -> (ByteRange, u64) {
    let first = page * FRAME_BYTES;
    let start = range.start.0.max(first);
    let end = range.end().0.min(first + FRAME_BYTES);
    let frames = range.start.0 / FRAME_BYTES * FRAME_BYTES;
    (ByteRange::new(start - first, end - start), start - frames)
}

/// Appends a copy to `ops`, or extends the last copy if both source and target continue it.
pub(super) fn push_copy(ops: &mut Vec<ComputeOp>, from: Segment, to: Segment) {
    if let Some(ComputeOp::Copy { from: last_from, to: last_to }) = ops.last_mut()
        && last_from.slab_end() == from.slab_start()
        && last_to.slab_end() == to.slab_start()
    {
        last_from.len += from.len;
        last_to.len += to.len;
        return;
    }
    ops.push(ComputeOp::Copy { from, to });
}
