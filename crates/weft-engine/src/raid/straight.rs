//! Straight requests: ranges of one member each, read into or written from a request's frames.

use smallvec::SmallVec;
use weft_units::{ByteRange, Bytes, FRAME_BYTES, Sectors};

use super::{ArrayIo, Cx};
use crate::array::outbox::CompletionTarget;
use crate::contract::frame::Segment;
use crate::contract::token::RequestId;
use crate::sched::request::{MemberRequest, MergeKind};

/// Part of a client request that is transferred between one member and the request's frames, past
/// any cache. Every level has this kind of part, and no other kind is common to all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StraightPart {
    pub(crate) request: RequestId,
    /// First byte in the volume.
    pub(crate) start: Bytes,
    pub(crate) len: u32,
}

impl StraightPart {
    /// Value of [`CompletionTarget::kind`] for parts with data of a client. The values that a level
    /// defines itself begin at 1.
    const KIND: u32 = 0;

    /// Converts the part to the words that the outbox stores for it.
    #[inline(always)]
    pub(crate) const fn target(self) -> CompletionTarget {
        let start = self.start.0;
        let words = [self.request.0, self.len, start as u32, (start >> 32) as u32];
        CompletionTarget { kind: Self::KIND, words }
    }

    /// Converts the words that the outbox stores for a part back to the part; `None` if the words
    /// are of a kind that the level defines.
    #[inline(always)]
    pub(super) const fn of(target: CompletionTarget) -> Option<Self> {
        let [request, len, low, high] = target.words;
        let start = Bytes(low as u64 | (high as u64) << 32);
        match target.kind {
            Self::KIND => Some(Self { request: RequestId(request), start, len }),
            _ => None,
        }
    }
}

/// Range of the array that lies on one member, and its place there.
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

/// Reads or writes the range of `target` for the request `io`, with `parts` as memory. The outbox
/// may merge it with other requests up to `max` bytes.
#[inline(always)]
pub(super) fn send(io: &ArrayIo, target: &Target, parts: &[Segment], max: Bytes, cx: &mut Cx<'_>) {
    let kind = MergeKind { fua: io.flags.fua && io.writes, stripes: false, attr: io.attr };
    let Target { position, sector, range } = *target;
    let request = MemberRequest { write: io.writes, sector, bytes: range.len, max, kind };
    let part = StraightPart { request: io.id, start: range.start, len: range.len.0 as u32 };
    cx.stage_at(position, &request, parts, part.target());
}

/// Memory of `range`, a part of the request's range, in the request's frames.
#[inline]
pub(super) fn memory(io: &ArrayIo, range: ByteRange) -> Segment {
    let in_frames = range.start.0 - io.range.start.0 / FRAME_BYTES * FRAME_BYTES;
    io.frames.part(in_frames, range.len.0)
}
