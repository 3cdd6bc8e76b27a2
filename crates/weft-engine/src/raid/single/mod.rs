//! Single: one member as it is, without metadata (`--bare`).
//!
//! Nothing is cached or merged. Reads and writes go on as they are, and their order is left to
//! clients, as by the device itself ([`super::Personality::passes`]). Here are the requests that
//! take more: zeroes that need not be stored become a hole where the member can have one, others
//! are written in steps, one after the other; a write may wait for a flush, or for room in the
//! queue of the member. An error of the member is told to the client, and the member stays in use.

use weft_units::{ByteRange, FRAME_BYTES};

use super::{Answer, ArrayIo, Cx, Event, Told};
use crate::array::Array;
use crate::array::outbox::{Owner, StraightPart, Who};
use crate::contract::error::ReplyError;
use crate::contract::frame::{Segment, Segments, ZERO_FRAME};
use crate::contract::input::{ClientRequest, Fault, RequestOp};
use crate::contract::output::MemberOp;
use crate::contract::token::RequestId;
use crate::sched::request::{MemberRequest, MergeKind};

/// One member, and the requests without payload that it has under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Single {
    clears: Vec<Clear>,
    events: Vec<Event>,
}

/// A range that is to read as zeroes.
#[derive(Clone, Copy, Debug)]
struct Clear {
    io: ArrayIo,
    /// First byte that no write of zeroes was sent for.
    next: u64,
}

impl Single {
    /// See [`super::Personality::to_discard`]: all of it, if the member can have holes.
    pub(crate) fn to_discard(&self, request: &ClientRequest, array: &Array) -> Option<ByteRange> {
        let wanted = match request.op {
            RequestOp::Flush | RequestOp::Read | RequestOp::Write => false,
            RequestOp::Trim => true,
            RequestOp::WriteZeroes => request.flags.discard,
        };
        (wanted && array.can_discard()).then_some(request.range)
    }

    /// See [`super::Personality::submit`]: one sub-request.
    pub(crate) fn submit(&mut self, io: &ArrayIo, cx: &mut Cx<'_>) -> u64 {
        if io.zeroes || io.discarded.is_some() {
            self.begin_clear(io, cx);
        } else {
            let memory = io.frames.part(io.range.start.0 % FRAME_BYTES, io.range.len.0);
            stage(io, io.range, &[memory], cx);
        }
        1
    }

    #[inline(never)]
    fn begin_clear(&mut self, io: &ArrayIo, cx: &mut Cx<'_>) {
        let mut clear = Clear { io: *io, next: io.range.start.0 };
        match io.discarded {
            Some(range) => discard(io, range, cx),
            None => clear.write_next(cx),
        }
        self.clears.push(clear);
    }

    /// See [`super::Personality::discard_done`].
    pub(crate) fn discard_done(
        &mut self,
        request: RequestId,
        position: Option<usize>,
        mut result: Result<(), Fault>,
        cx: &mut Cx<'_>,
    ) {
        let place = self.place_of(request).expect("it stays until its member has answered");
        let clear = &mut self.clears[place];
        if let (Err(Fault::Io), Some(position)) = (result, position) {
            // It cannot, after all: zeroes can be stored, and a trim is advice.
            cx.array.members[position].info.discards = false;
            if clear.io.zeroes {
                clear.write_next(cx);
                return;
            }
            result = Ok(());
        }
        let result = result.map_err(ReplyError::from);
        self.clears.swap_remove(place);
        self.events.push(Event::SubRequestsDone { request, sub_requests: 1, result });
    }

    /// See [`super::Personality::part_done`].
    pub(crate) fn part_done(&mut self, part: Who, answer: Answer, cx: &mut Cx<'_>) -> Told {
        let Who::Straight(StraightPart { request, .. }) = part else {
            unreachable!("there are no stripes")
        };
        if !self.clears.is_empty() && self.is_clearing(request, answer, cx) {
            return Told::Nothing;
        }
        match answer.result {
            Ok(()) => Told::Done(request),
            Err(fault) => Told::Failed(request, fault.into()),
        }
    }

    /// Whether a request goes on with the next step of its zeroes.
    fn is_clearing(&mut self, request: RequestId, answer: Answer, cx: &mut Cx<'_>) -> bool {
        let Some(place) = self.place_of(request) else { return false };
        let clear = &mut self.clears[place];
        let goes_on = answer.result.is_ok() && clear.next < clear.io.range.end().0;
        if goes_on {
            clear.write_next(cx);
        } else {
            self.clears.swap_remove(place);
        }
        goes_on
    }

    fn place_of(&self, request: RequestId) -> Option<usize> {
        self.clears.iter().position(|clear| clear.io.id == request)
    }

    /// Events since they were last taken.
    #[inline]
    pub(crate) fn events(&mut self) -> &mut Vec<Event> {
        &mut self.events
    }
}

impl Clear {
    /// Writes the next zeroes.
    fn write_next(&mut self, cx: &mut Cx<'_>) {
        let len = (self.io.range.end().0 - self.next).min(ZERO_BYTES_MAX);
        let part = |at: u64| Segment::at(ZERO_FRAME, 0, (len - at).min(FRAME_BYTES));
        let zeroes: Segments = (0..len).step_by(FRAME_BYTES as usize).map(part).collect();
        stage(&self.io, ByteRange::new(self.next, len), &zeroes, cx);
        self.next += len;
    }
}

/// Reads or writes a range of a request. Neighbours are not merged: one error is one client's.
fn stage(io: &ArrayIo, range: ByteRange, parts: &[Segment], cx: &mut Cx<'_>) {
    let kind = MergeKind { fua: io.fua, stripes: false, attr: io.attr };
    let (sector, bytes) = (range.start.sectors_floor(), range.len);
    let request = MemberRequest { write: io.writes, sector, bytes, max: bytes, kind };
    let part = StraightPart { request: io.id, start: range.start, len: range.len.0 as u32 };
    cx.array.stage(0, &request, parts, Who::Straight(part), cx.out);
}

fn discard(io: &ArrayIo, range: ByteRange, cx: &mut Cx<'_>) {
    let (at, len) = (range.start.sectors_floor(), range.len.sectors_floor());
    let (volume, member) = (cx.array.volume, &mut cx.array.members[0]);
    let op = MemberOp::Discard { at, len, fua: io.fua };
    cx.out.submit(volume, member, op, io.attr, Owner::Discard(io.id));
    member.sent(true, len);
}

/// Most zeroes written by one member request: 256 times the frame of zeroes.
const ZERO_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests;
