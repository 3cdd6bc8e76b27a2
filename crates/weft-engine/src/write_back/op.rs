//! Operations of the write-back cache that are under way: requests of clients, and writes of its
//! own.
//!
//! ```text
//! write kept       room ─▶ range ─▶ copied ─▶ answered
//! write through    range ─▶ edges.rs ─▶ writes below ─▶ volume ─▶ pages patched ─▶ answered
//! read             range ─▶ volume, unless all is here ─▶ copied over ─▶ answered
//! flush            pages of its epoch ─▶ volume ─▶ answered
//! write-back       range ─▶ copied ─▶ writes below ─▶ volume ─▶ pages clean
//! drain            all pages that are dirty when it comes ─▶ answered
//! stop             requests ─▶ all pages ─▶ volume ─▶ answered
//! ```

use std::ops::Range;

use smallvec::SmallVec;
use weft_units::{ByteRange, FRAME_BYTES, VolumeId};

use super::edges::Edges;
use crate::contract::error::ReplyError;
use crate::contract::frame::{Frame, Run};
use crate::contract::input::{ClientRequest, Command, RequestOp};

/// One operation.
#[derive(Clone, Debug)]
pub(super) struct Op {
    pub(super) volume: VolumeId,
    pub(super) pages: Range<u64>,
    pub(super) work: OpWork,
}

/// What an operation is, with what it waits for.
#[derive(Clone, Debug)]
pub(super) enum OpWork {
    Client(ClientOp),
    /// All that is dirty is to be written, and the volume goes on.
    Drain(Command),
    /// The frames of a request of a client that is answered: the volume has a part of them, or all,
    /// and they go back to the client together.
    Lent(Run),
    Stop(Command),
    WriteOut(WriteOut),
}

/// A request of a client.
#[derive(Clone, Debug)]
pub(super) struct ClientOp {
    pub(super) request: ClientRequest,
    pub(super) way: Way,
    /// The client is there no more.
    pub(super) gone: bool,
    /// Bytes of its client's credit, which go back with the answer.
    pub(super) credit: u64,
    /// The volume has frames of it.
    pub(super) lent: bool,
    /// Pages that a read uses, with their frames.
    pub(super) pinned: Pinned,
    /// Bytes that hold something else once the volume has carried it out.
    pub(super) changes: Option<ByteRange>,
    /// What the volume is asked for, of a request that goes through.
    pub(super) asked: ByteRange,
    pub(super) edges: Edges,
    /// Its place among all requests of clients, in order of arrival.
    pub(super) arrived: u64,
}

/// Way of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// A flush, or what a request has before it.
    Flush,
    /// A write whose pages stay here.
    Keep,
    Read,
    /// Whatever goes to the volume, before it is answered.
    Through,
}

/// A run of pages that is being written back.
#[derive(Clone, Debug)]
pub(super) struct WriteOut {
    pub(super) buffer: Frame,
    /// Somebody waits for it.
    pub(super) sync: bool,
    /// Parts that go to the volume.
    pub(super) parts: Vec<Range<u64>>,
    /// Those that are not answered.
    pub(super) pending: usize,
    pub(super) error: Option<ReplyError>,
}

impl ClientOp {
    pub(super) fn new(request: &ClientRequest, arrived: u64) -> Self {
        let way = match request.op {
            RequestOp::Flush => Way::Flush,
            RequestOp::Read => Way::Read,
            RequestOp::Trim | RequestOp::Write | RequestOp::WriteZeroes => Way::Through,
        };
        Self {
            request: *request,
            way: if request.flags.preflush { Way::Flush } else { way },
            gone: false,
            credit: request.payload().0,
            lent: false,
            pinned: Pinned::new(),
            changes: None,
            asked: request.range,
            edges: Edges::default(),
            arrived,
        }
    }
}

/// Pages whose frames a read uses: one, for most.
pub(super) type Pinned = SmallVec<[(u64, Frame); 1]>;

/// Pages that a range touches.
pub(super) fn pages_of(range: ByteRange) -> Range<u64> {
    range.start.0 / FRAME_BYTES..range.end().0.div_ceil(FRAME_BYTES)
}

/// Bytes of pages in a volume of this size.
pub(super) fn bytes_of(pages: &Range<u64>, size: u64) -> ByteRange {
    let start = pages.start * FRAME_BYTES;
    ByteRange::new(start, (pages.end * FRAME_BYTES).min(size) - start)
}

/// Runs of numbers that follow each other.
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
