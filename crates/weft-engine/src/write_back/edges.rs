//! Edges of writes that go to the volume before they are answered: partly covered pages with cached
//! content that is newer than the members'.
//!
//! A write of parts of pages goes through to the volume. If such a page is dirty in the cache, the
//! members have an older version of it: a write of the part to the members could, after a crash,
//! expose a page or a sector that never existed. The part is therefore changed in the cached page,
//! which will be written anyway, and only the rest of the write goes to the volume. With FUA
//! everything is flushed before the reply. A page with content that is already in a write-back
//! buffer needs none of this, because the volume gets the write after that of the buffer.
//!
//! ```text
//! lock above ─▶ parts of dirty pages changed here ─▶ rest to volume ─▶ answered
//!       └ preflush ─▶ flush of volume ─┘                          └ FUA ─▶ flush ─▶ answered
//! ```

use smallvec::SmallVec;
use weft_units::{ByteRange, FRAME_BYTES};

use super::client_op::{covered, of_page};
use super::op::{CachePath, ClientOp, OpWork, pages_of};
use super::{Cached, OpId, WriteBack};
use crate::array::outbox::Outbox;
use crate::contract::error::ReplyError;
use crate::contract::frame::{Frame, Run, Segment};
use crate::contract::input::{ClientRequest, Flags, RequestOp};
use crate::contract::output::ComputeOp;
use crate::volume::Volume;

/// Progress of a write that is sent to its volume before it is answered, while some of its pages
/// may be dirty in the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Edges {
    /// The whole range is sent to the volume, before any page is changed in the cache.
    #[default]
    Below,
    /// The volume flushes first; after that, pages are changed in the cache.
    FlushesFirst,
    /// Pages are being changed in the cache.
    Changing,
    /// Pages have been changed in the cache, and the rest of the range goes to the volume.
    Here,
    /// The volume has done the write, and is flushed because the write has FUA.
    Flushed,
}

impl Edges {
    /// Whether the volume gets a flush instead of the request itself.
    pub(super) const fn is_flush(self) -> bool {
        matches!(self, Self::FlushesFirst | Self::Flushed)
    }
}

/// Pages that `range` covers only in part, in a volume of `size` bytes.
pub(super) fn edges_of(range: ByteRange, size: u64) -> SmallVec<[u64; 2]> {
    let (pages, whole) = (pages_of(range), covered(range, size));
    let mut edges: SmallVec<[u64; 2]> = SmallVec::from([pages.start, pages.end - 1]);
    edges.dedup();
    edges.retain(|page| !whole.contains(page));
    edges
}

/// Computation that applies the part `range` of a write or write-zeroes to page number `page`.
/// `frame` holds the page.
pub(super) fn change(
    request: &ClientRequest,
    range: ByteRange,
    page: u64,
    frame: Frame,
) -> ComputeOp {
    let (part, _) = of_page(page, range);
    let to = Segment::at(frame, part.start.0, part.len.0);
    if request.op == RequestOp::Write {
        let (_, there) = of_page(page, request.range);
        ComputeOp::Copy { from: request.frames.part(there, part.len.0), to }
    } else {
        ComputeOp::Zero { to }
    }
}

impl ClientOp {
    /// Request that is sent to the volume for the client's request: its part `asked`, or a flush.
    pub(super) fn below(&self) -> ClientRequest {
        if self.edges.is_flush() {
            let (op, range) = (RequestOp::Flush, ByteRange::new(0, 0));
            return ClientRequest {
                op,
                range,
                frames: Run::EMPTY,
                flags: Flags::NONE,
                ..self.request
            };
        }
        ClientRequest { range: self.asked, frames: self.frames_below(), ..self.request }
    }

    /// Frames of the request that is sent to the volume.
    pub(super) fn frames_below(&self) -> Run {
        let Run { first, count } = self.request.frames;
        if count == 0 || self.asked == self.request.range {
            return self.request.frames;
        }
        if self.asked.len.0 == 0 {
            return Run::EMPTY;
        }
        let (all, asked) = (pages_of(self.request.range), pages_of(self.asked));
        let skipped = (asked.start - all.start) as u32;
        Run::new(first.0 + skipped, (asked.end - asked.start) as u32)
    }
}

impl WriteBack {
    /// Starts a request that is sent to its volume before it is answered, once it holds its range
    /// lock.
    pub(super) fn start_through(&mut self, id: OpId, volumes: &mut [Volume], out: &mut Outbox) {
        let index = self.op(id).volume.index();
        let request = self.client_op(id).request;
        if !matches!(request.op, RequestOp::Write | RequestOp::WriteZeroes) {
            self.lock_below(id);
            return;
        }
        let cached = &self.volumes[index];
        let mut asked = request.range;
        let mut ops = out.ops();
        for page in edges_of(request.range, cached.size) {
            let Some(here) = cached.resident.newer(page) else { continue };
            ops.push(change(&request, request.range, page, here));
            let (first, end) = (page * FRAME_BYTES, (page + 1) * FRAME_BYTES);
            asked = if first <= asked.start.0 {
                ByteRange::new(end.min(asked.end().0), asked.end().0.saturating_sub(end))
            } else {
                ByteRange::new(asked.start.0, first - asked.start.0)
            };
        }
        if ops.is_empty() {
            out.recycle(ops);
            self.lock_below(id);
            return;
        }
        let op = self.client_op(id);
        if request.flags.preflush {
            op.edges = Edges::FlushesFirst;
            out.recycle(ops);
            self.ask(id);
            return;
        }
        (op.edges, op.asked) = (Edges::Changing, asked);
        if asked.len.0 == 0 {
            volumes[index].count(&request);
        }
        Self::compute(id, ops, out);
    }

    /// Whether operation `id` is a write about to be sent to its volume with an edge in a page that
    /// is newer in the cache: the write-out of that page was in progress when the write came, and
    /// has failed since.
    pub(super) fn has_newer_edges(&self, id: OpId) -> bool {
        let op = self.op(id);
        let OpWork::Client(ClientOp { request, path, edges, .. }) = &op.work else { return false };
        let Cached { resident, size, .. } = &self.volumes[op.volume.index()];
        let sends_data = matches!(request.op, RequestOp::Write | RequestOp::WriteZeroes)
            && (*path, *edges) == (CachePath::Through, Edges::Below);
        sends_data
            && edges_of(request.range, *size).into_iter().any(|it| resident.newer(it).is_some())
    }

    /// Handles the volume's answer to the flush that precedes changes of pages.
    pub(super) fn flushed_first(
        &mut self,
        id: OpId,
        result: Result<(), ReplyError>,
        volumes: &mut [Volume],
        out: &mut Outbox,
    ) {
        let op = self.client_op(id);
        (op.edges, op.request.flags.preflush) = (Edges::Below, false);
        if result.is_ok() {
            self.start_through(id, volumes, out);
        } else {
            self.through_over(id, result, volumes, out);
        }
    }

    /// Handles the completed computation of a request that is sent to its volume.
    pub(super) fn through_computed(&mut self, id: OpId, volumes: &mut [Volume], out: &mut Outbox) {
        let op = self.client_op(id);
        if op.edges != Edges::Changing {
            self.through_done(id, Ok(()), volumes, out);
            return;
        }
        op.edges = Edges::Here;
        if op.asked.len.0 > 0 {
            self.lock_below(id);
        } else {
            self.through_over(id, Ok(()), volumes, out);
        }
    }

    /// Ends a request that goes to its volume before it is answered. The request holds no lock
    /// below any more.
    pub(super) fn through_over(
        &mut self,
        id: OpId,
        result: Result<(), ReplyError>,
        volumes: &mut [Volume],
        out: &mut Outbox,
    ) {
        self.unlock_above(id, volumes, out);
        let op = self.client_op(id);
        if result.is_ok() && op.edges == Edges::Here && op.request.flags.fua {
            (op.edges, op.path) = (Edges::Flushed, CachePath::Flush);
            self.begin_flush(id, volumes, out);
        } else {
            self.answer(id, result, out);
            self.flush_those_written(volumes, out);
        }
        self.admit_waiting(volumes, out);
    }
}
