//! Ranges that come to read as zeroes: zeroes and trims of levels without parity, step by step.
//!
//! A range is discarded where members store nothing for what is discarded; else zeroes are written,
//! which all are one frame. A step ends when every member has answered, so that a long range leaves
//! others their turns, and takes no more memory than a short one.

use smallvec::SmallVec;
use weft_units::{ByteRange, FRAME_BYTES, Sectors};

use super::straight::{self, Targets};
use super::{Answer, ArrayIo, Cx, Event, Told};
use crate::array::Array;
use crate::array::outbox::{Owner, StraightPart, Who};
use crate::contract::frame::{Segment, Segments, ZERO_FRAME};
use crate::contract::input::{ClientRequest, Fault, RequestOp};
use crate::contract::output::MemberOp;
use crate::contract::token::RequestId;

/// Requests whose ranges are being cleared.
#[derive(Clone, Debug, Default)]
pub(super) struct Clears(Vec<Clear>);

/// One of them.
#[derive(Clone, Copy, Debug)]
struct Clear {
    io: ArrayIo,
    /// The part that members were told of last.
    step: ByteRange,
    discards: bool,
    /// Members that have not answered.
    pending: u32,
    fault: Option<Fault>,
}

/// The part of a request's range that members are told to discard: all of it, where they store
/// nothing for what is discarded.
pub(super) fn to_discard(request: &ClientRequest, array: &Array) -> Option<ByteRange> {
    let wanted = match request.op {
        RequestOp::Flush | RequestOp::Read | RequestOp::Write => false,
        RequestOp::Trim => true,
        RequestOp::WriteZeroes => request.flags.discard,
    };
    (wanted && array.can_discard()).then_some(request.range)
}

impl Clears {
    /// Begins with a request, which is one sub-request until its range is cleared.
    #[inline(never)]
    pub(super) fn begin(
        &mut self,
        io: &ArrayIo,
        targets: impl Fn(ByteRange, &Array) -> Targets,
        events: &mut Vec<Event>,
        cx: &mut Cx<'_>,
    ) {
        assert!(self.place_of(io.id).is_none(), "a request clears its range once");
        let step = ByteRange::new(io.range.start.0, 0);
        let discards = io.discarded.is_some();
        self.0.push(Clear { io: *io, step, discards, pending: 0, fault: None });
        self.go_on(self.0.len() - 1, targets, events, cx);
    }

    /// Whether the range of a request is being cleared.
    #[inline]
    pub(super) fn has(&self, request: RequestId) -> bool {
        !self.0.is_empty() && self.place_of(request).is_some()
    }

    /// The part of a request's range that members were told of last.
    pub(super) fn step_of(&self, request: RequestId) -> ByteRange {
        let place = self.place_of(request).expect("it stays until every member has answered");
        self.0[place].step
    }

    /// A member has carried out its part of a step, or not.
    pub(super) fn done(
        &mut self,
        request: RequestId,
        result: Result<(), Fault>,
        targets: impl Fn(ByteRange, &Array) -> Targets,
        events: &mut Vec<Event>,
        cx: &mut Cx<'_>,
    ) {
        let place = self.place_of(request).expect("it stays until every member has answered");
        let clear = &mut self.0[place];
        assert!(clear.pending > 0, "a member answers once");
        clear.pending -= 1;
        clear.fault = clear.fault.or(result.err());
        if clear.pending == 0 {
            self.go_on(place, targets, events, cx);
        }
    }

    /// As [`Clears::done`], of a member that nobody stands in for: an error of it is told, and it
    /// may be found unable to discard.
    pub(super) fn discard_told(
        &mut self,
        (request, position): (RequestId, Option<usize>),
        mut result: Result<(), Fault>,
        targets: impl Fn(ByteRange, &Array) -> Targets,
        events: &mut Vec<Event>,
        cx: &mut Cx<'_>,
    ) {
        if let (Err(Fault::Io), Some(position)) = (result, position) {
            cx.array.members[position].info.discards = false;
            self.cannot_discard(request);
            result = Ok(());
        }
        self.done(request, result, targets, events, cx);
    }

    /// A part of a request is done, of a member that nobody stands in for.
    pub(super) fn part_told(
        &mut self,
        part: Who,
        answer: Answer,
        targets: impl Fn(ByteRange, &Array) -> Targets,
        events: &mut Vec<Event>,
        cx: &mut Cx<'_>,
    ) -> Told {
        let Who::Straight(StraightPart { request, .. }) = part else {
            unreachable!("there are no stripes")
        };
        if self.has(request) {
            self.done(request, answer.result, targets, events, cx);
            return Told::Nothing;
        }
        match answer.result {
            Ok(()) => Told::Done(request),
            Err(fault) => Told::Failed(request, fault.into()),
        }
    }

    /// A member cannot discard, after all: zeroes are stored, beginning with this step. A trim is
    /// advice, and is over with it.
    fn cannot_discard(&mut self, request: RequestId) {
        let place = self.place_of(request).expect("it stays until every member has answered");
        let clear = &mut self.0[place];
        if !std::mem::take(&mut clear.discards) {
            return;
        }
        clear.step.len.0 =
            if clear.io.zeroes { 0 } else { clear.io.range.end().0 - clear.step.start.0 };
    }

    /// The next step, or the end.
    fn go_on(
        &mut self,
        place: usize,
        targets: impl Fn(ByteRange, &Array) -> Targets,
        events: &mut Vec<Event>,
        cx: &mut Cx<'_>,
    ) {
        let clear = &mut self.0[place];
        let (start, end) = (clear.step.end().0, clear.io.range.end().0);
        if clear.fault.is_none() && start < end {
            let most = if clear.discards { DISCARD_BYTES_MAX } else { ZERO_BYTES_MAX };
            clear.step = ByteRange::new(start, most.min(end - start));
            let targets = targets(clear.step, cx.array);
            clear.send(targets, cx);
            if clear.pending > 0 {
                return;
            }
            // Nobody is left who could have it.
            clear.fault = Some(Fault::Io);
        }
        let Clear { io, fault, .. } = self.0.swap_remove(place);
        let result = fault.map_or(Ok(()), |fault| Err(fault.into()));
        events.push(Event::SubRequestsDone { request: io.id, sub_requests: 1, result });
    }

    fn place_of(&self, request: RequestId) -> Option<usize> {
        self.0.iter().position(|clear| clear.io.id == request)
    }
}

impl Clear {
    /// Tells members of their parts of the step.
    fn send(&mut self, targets: Targets, cx: &mut Cx<'_>) {
        if !self.discards {
            self.pending = targets.len() as u32;
            for target in targets {
                let len = target.range.len.0;
                let part = |at: u64| Segment::at(ZERO_FRAME, 0, (len - at).min(FRAME_BYTES));
                let zeroes: Segments = (0..len).step_by(FRAME_BYTES as usize).map(part).collect();
                straight::send(&self.io, &target, &zeroes, target.range.len, cx);
            }
            return;
        }
        for (position, first, len) in runs(targets) {
            let (volume, member) = (cx.array.volume, &mut cx.array.members[position]);
            assert!(first + len <= member.data_size, "a discard lies within the member's data");
            let op = MemberOp::Discard { at: member.data_sector(first), len, fua: self.io.fua };
            cx.out.submit(volume, member, op, &self.io.attr, Owner::Discard(self.io.id));
            member.sent(&self.io.attr, true, len);
            self.pending += 1;
        }
    }
}

/// The targets as runs of sectors of a member, at a position: chunks that follow each other on
/// their member are one run, whatever lies between them in the array.
fn runs(targets: Targets) -> SmallVec<[(usize, Sectors, Sectors); 4]> {
    let mut runs: SmallVec<[(usize, Sectors, Sectors); 4]> = SmallVec::new();
    for target in targets {
        let len = target.range.len.sectors_floor();
        let goes_on = |run: &&mut (usize, Sectors, Sectors)| {
            run.0 == target.position && run.1 + run.2 == target.sector
        };
        match runs.iter_mut().find(goes_on) {
            Some(run) => run.2 += len,
            None => runs.push((target.position, target.sector, len)),
        }
    }
    runs
}

/// Most zeroes written in a step: 256 times the frame of zeroes, for each copy.
const ZERO_BYTES_MAX: u64 = 1 << 20;

/// Most that is discarded in a step. Should a member have to store zeroes, others have their turn
/// in between.
const DISCARD_BYTES_MAX: u64 = 64 << 20;
