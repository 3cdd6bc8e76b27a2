//! Straight requests: ranges of one member each, read into or written from a request's frames.

use smallvec::SmallVec;
use weft_units::{ByteRange, Bytes, FRAME_BYTES, Sectors};

use super::{ArrayIo, Cx};
use crate::array::outbox::{CompletionTarget, StraightPart};
use crate::contract::frame::Segment;
use crate::sched::request::{MemberRequest, MergeKind};

/// Range of the array, and its place on one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// Position of the member in the array.
    pub(super) position: usize,
    /// First data sector on the member.
    pub(super) sector: Sectors,
    pub(super) range: ByteRange,
}

/// Targets of a request, in order of the array; the copies of one range follow each other.
pub(super) type Targets = SmallVec<[Target; 4]>;

/// Reads or writes the range of `target` for a request, with `parts` as its memory. It may be
/// merged with others up to `max` bytes.
#[inline]
pub(super) fn send(io: &ArrayIo, target: &Target, parts: &[Segment], max: Bytes, cx: &mut Cx<'_>) {
    let kind = MergeKind { fua: io.fua && io.writes, stripes: false, attr: io.attr };
    let Target { position, sector, range } = *target;
    let request = MemberRequest { write: io.writes, sector, bytes: range.len, max, kind };
    let part = StraightPart { request: io.id, start: range.start, len: range.len.0 as u32 };
    cx.array.stage(position, &request, parts, CompletionTarget::Straight(part), cx.out);
}

/// Memory for a range of a request, in the request's frames.
#[inline]
pub(super) fn memory(io: &ArrayIo, range: ByteRange) -> Segment {
    let in_frames = range.start.0 - io.range.start.0 / FRAME_BYTES * FRAME_BYTES;
    io.frames.part(in_frames, range.len.0)
}
