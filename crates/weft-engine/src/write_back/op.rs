//! Operations in progress in the write-back cache: client requests, and the cache's own writes.
//!
//! ```text
//! write kept       room ─▶ lock above ─▶ copied ─▶ answered
//! write through    lock above ─▶ edges.rs ─▶ lock below ─▶ volume ─▶ pages changed ─▶ answered
//! read             lock above ─▶ volume, unless all is resident ─▶ copied over ─▶ answered
//! flush            pages of its epoch ─▶ volume ─▶ answered
//! write-back       lock above ─▶ copied ─▶ lock below ─▶ volume ─▶ pages clean
//! drain            all pages that are dirty when it arrives ─▶ answered
//! stop             requests ─▶ all pages ─▶ volume ─▶ answered
//! ```

use std::ops::Range;

use smallvec::SmallVec;
use weft_units::{ByteRange, FRAME_BYTES, VolumeId};

use super::edges::Edges;
use crate::contract::error::ReplyError;
use crate::contract::frame::{Frame, Run};
use crate::contract::input::{ClientRequest, Command, RequestOp};

/// An operation in progress: a client request, a command, or a write of the cache.
#[derive(Clone, Debug)]
pub(super) struct Op {
    pub(super) volume: VolumeId,
    pub(super) pages: Range<u64>,
    pub(super) work: OpWork,
}

/// Kind of an operation, with its state.
#[derive(Clone, Debug)]
pub(super) enum OpWork {
    Client(ClientOp),
    /// A command that waits until the cache has tried to write all pages that were dirty on its
    /// arrival.
    Drain(Command),
    /// Frames of a client request that is already answered, while the volume still uses some of
    /// them. All of them go back to the client together.
    Lent(Run),
    Stop(Command),
    WriteOut(WriteOut),
}

/// A client request in progress.
#[derive(Clone, Debug)]
pub(super) struct ClientOp {
    pub(super) request: ClientRequest,
    pub(super) path: CachePath,
    /// Whether the client has disconnected.
    pub(super) gone: bool,
    /// Number of bytes to return to the client's credit with the reply.
    pub(super) credit: u64,
    /// Whether the volume is using frames of the request.
    pub(super) on_loan: bool,
    /// Pages in the cache that a read uses, and that must stay there until it ends.
    pub(super) pinned: Pinned,
    /// Range with content that changes when the volume executes the request; `None` if no content
    /// changes.
    pub(super) changes: Option<ByteRange>,
    /// Part of the request's range that is sent to the volume. The rest was changed in cached
    /// pages.
    pub(super) asked: ByteRange,
    pub(super) edges: Edges,
    /// Sequence number among all client requests, in order of arrival.
    pub(super) arrived: u64,
}

/// Path of a client request through the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CachePath {
    /// A flush, or a request with a preflush until its preflush is done.
    Flush,
    /// A write that is answered from the cache, and written to the volume later.
    Keep,
    Read,
    /// Any other request: it is sent to the volume before it is answered.
    Through,
}

/// A run of pages that are being written to the volume.
#[derive(Clone, Debug)]
pub(super) struct WriteOut {
    pub(super) buffer: Frame,
    /// Whether an operation waits until this run is written.
    pub(super) sync: bool,
    /// Parts of the run, in pages, that are written to the volume. Pages that were replaced on the
    /// volume meanwhile are left out.
    pub(super) parts: Vec<Range<u64>>,
    /// Number of parts of the run that the volume has not answered.
    pub(super) pending: usize,
    pub(super) error: Option<ReplyError>,
}

impl ClientOp {
    pub(super) fn new(request: &ClientRequest, arrived: u64) -> Self {
        let path = match request.op {
            RequestOp::Flush => CachePath::Flush,
            RequestOp::Read => CachePath::Read,
            RequestOp::Trim | RequestOp::Write | RequestOp::WriteZeroes => CachePath::Through,
        };
        Self {
            request: *request,
            path: if request.flags.preflush { CachePath::Flush } else { path },
            gone: false,
            credit: request.payload().0,
            on_loan: false,
            pinned: Pinned::new(),
            changes: None,
            asked: request.range,
            edges: Edges::default(),
            arrived,
        }
    }
}

/// Resident pages by number, each with its frame; usually only one.
pub(super) type Pinned = SmallVec<[(u64, Frame); 1]>;

/// Pages that a range touches.
pub(super) fn pages_of(range: ByteRange) -> Range<u64> {
    range.start.0 / FRAME_BYTES..range.end().0.div_ceil(FRAME_BYTES)
}

/// Byte range that `pages` cover in a volume of `size` bytes.
pub(super) fn bytes_of(pages: &Range<u64>, size: u64) -> ByteRange {
    let start = pages.start * FRAME_BYTES;
    ByteRange::new(start, (pages.end * FRAME_BYTES).min(size) - start)
}

/// Groups ascending numbers into ranges of consecutive numbers.
pub(super) fn runs_of(numbers: impl Iterator<Item = u64>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some(last) if last.end == number => last.end += 1,
            _ => runs.push(number..number + 1),
        }
    }
    runs
}
