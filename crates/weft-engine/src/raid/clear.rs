//! Write-zeroes and trims of levels without parity, carried out in bounded steps.
//!
//! If the members free discarded sectors, the range is discarded. Otherwise zeroes are written, all
//! from one shared frame. The next step begins when every member has answered the last one, so a
//! long range lets other requests go in between and takes no more memory than a short one.

use smallvec::SmallVec;
use weft_units::{ByteRange, FRAME_BYTES, Sectors};

use super::cx::MemberDiscard;
use super::straight::{self, StraightPart, Targets};
use super::{Answer, ArrayIo, ArrayView, Cx, Event, PartOutcome};
use crate::array::outbox::CompletionTarget;
use crate::contract::frame::{Segment, Segments, ZERO_FRAME};
use crate::contract::input::{ClientRequest, Fault, Flags, RequestOp};
use crate::contract::token::RequestId;

/// Write-zeroes and trims in progress.
#[derive(Clone, Debug, Default)]
pub(super) struct Clears(Vec<Clear>);

/// One write-zeroes or trim in progress.
#[derive(Clone, Copy, Debug)]
struct Clear {
    io: ArrayIo,
    /// Part of the request's range that was last sent to the members, to be discarded or
    /// overwritten with zeroes.
    step: ByteRange,
    discards: bool,
    /// Number of member requests for `step` that are not answered.
    pending: u32,
    fault: Option<Fault>,
}

/// Part of a request's range that the members are told to discard: the whole range if every member
/// can discard and the request is a trim, or a write-zeroes that may discard. Otherwise `None`.
pub(super) fn to_discard(request: &ClientRequest, array: ArrayView<'_>) -> Option<ByteRange> {
    let wanted = match request.op {
        RequestOp::Flush | RequestOp::Read | RequestOp::Write => false,
        RequestOp::Trim => true,
        RequestOp::WriteZeroes => request.flags.discard,
    };
    (wanted && array.can_discard()).then_some(request.range)
}

impl Clears {
    /// Begins to clear a request's range. The request counts as one sub-request until all steps are
    /// done. `targets` returns the members that hold a given range.
    #[inline(never)]
    pub(super) fn begin(
        &mut self,
        io: &ArrayIo,
        targets: impl Fn(ByteRange, ArrayView<'_>) -> Targets,
        events: &mut Vec<Event>,
        cx: &mut Cx<'_>,
    ) {
        assert!(self.place_of(io.id).is_none(), "a request clears its range once");
        let step = ByteRange::new(io.range.start.0, 0);
        let discards = io.discarded.is_some();
        self.0.push(Clear { io: *io, step, discards, pending: 0, fault: None });
        self.go_on(self.0.len() - 1, targets, events, cx);
    }

    /// Whether the range of a request is being discarded or overwritten with zeroes.
    #[inline]
    pub(super) fn has(&self, request: RequestId) -> bool {
        !self.0.is_empty() && self.place_of(request).is_some()
    }

    /// Part of the range of `request` that is being discarded or overwritten with zeroes.
    pub(super) fn step_of(&self, request: RequestId) -> ByteRange {
        let place = self.place_of(request).expect("a clear stays until every member has answered");
        self.0[place].step
    }

    /// Handles a member's answer for its part of a step of a write-zeroes or trim, and begins the
    /// next step after the last answer.
    pub(super) fn done(
        &mut self,
        request: RequestId,
        result: Result<(), Fault>,
        targets: impl Fn(ByteRange, ArrayView<'_>) -> Targets,
        events: &mut Vec<Event>,
        cx: &mut Cx<'_>,
    ) {
        let place = self.place_of(request).expect("a clear stays until every member has answered");
        let clear = &mut self.0[place];
        assert!(clear.pending > 0, "a member answers once");
        clear.pending -= 1;
        clear.fault = clear.fault.or(result.err());
        if clear.pending == 0 {
            self.go_on(place, targets, events, cx);
        }
    }

    /// Handles a member's answer to a discard, on a level without redundancy. An I/O error shows
    /// that the member cannot discard; every other result goes to [`Clears::done`].
    pub(super) fn discard_told(
        &mut self,
        (request, position): (RequestId, Option<usize>),
        mut result: Result<(), Fault>,
        targets: impl Fn(ByteRange, ArrayView<'_>) -> Targets,
        events: &mut Vec<Event>,
        cx: &mut Cx<'_>,
    ) {
        if let (Err(Fault::Io), Some(position)) = (result, position) {
            cx.cannot_discard(position);
            self.cannot_discard(request);
            result = Ok(());
        }
        self.done(request, result, targets, events, cx);
    }

    /// Handles a member's answer for `part` on a level without redundancy. The part belongs to a
    /// read or write, or to the step in progress of a write-zeroes or trim. Returns the consequence
    /// for the client request; nothing for a step.
    pub(super) fn part_told(
        &mut self,
        part: CompletionTarget,
        answer: Answer,
        targets: impl Fn(ByteRange, ArrayView<'_>) -> Targets,
        events: &mut Vec<Event>,
        cx: &mut Cx<'_>,
    ) -> PartOutcome {
        let part = StraightPart::of(part).expect("a level without redundancy has one kind of part");
        let request = part.request;
        if self.has(request) {
            self.done(request, answer.result, targets, events, cx);
            return PartOutcome::Nothing;
        }
        match answer.result {
            Ok(()) => PartOutcome::Done(request),
            Err(fault) => PartOutcome::Failed(request, fault.into()),
        }
    }

    /// Handles a member that turned out to be unable to discard. A write-zeroes goes on with
    /// written zeroes from this step on; a trim, which is only advice, ends.
    fn cannot_discard(&mut self, request: RequestId) {
        let place = self.place_of(request).expect("a clear stays until every member has answered");
        let clear = &mut self.0[place];
        if !std::mem::take(&mut clear.discards) {
            return;
        }
        clear.step.len.0 =
            if clear.io.zeroes() { 0 } else { clear.io.range.end().0 - clear.step.start.0 };
    }

    /// Begins the next step of the write-zeroes or trim at index `place`, or ends its request after
    /// the last step.
    fn go_on(
        &mut self,
        place: usize,
        targets: impl Fn(ByteRange, ArrayView<'_>) -> Targets,
        events: &mut Vec<Event>,
        cx: &mut Cx<'_>,
    ) {
        let clear = &mut self.0[place];
        let (start, end) = (clear.step.end().0, clear.io.range.end().0);
        if clear.fault.is_none() && start < end {
            let most = if clear.discards { DISCARD_BYTES_MAX } else { ZERO_BYTES_MAX };
            clear.step = ByteRange::new(start, most.min(end - start));
            let targets = targets(clear.step, cx.view());
            clear.send(targets, cx);
            if clear.pending > 0 {
                return;
            }
            // No member holds any of this range any more.
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
    /// Sends the current step, as discards or as writes of zeroes, to the members that hold its
    /// range.
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
            let ArrayIo { id: request, flags: Flags { fua, .. }, attr, .. } = self.io;
            let discard = MemberDiscard { request, first, len, counted: len, fua, attr };
            cx.discard(position, &discard);
            self.pending += 1;
        }
    }
}

/// Merges targets into runs of (member position, first sector, length). Chunks that are adjacent on
/// their member are one run even if they are not adjacent in the array.
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

/// Largest step in which zeroes are written, in bytes per copy: 256 times the shared frame of
/// zeroes.
const ZERO_BYTES_MAX: u64 = 1 << 20;

/// Largest step of a discard, in bytes. Other requests can go between two steps even if a member
/// has to write zeroes to carry out the discard.
const DISCARD_BYTES_MAX: u64 = 64 << 20;
