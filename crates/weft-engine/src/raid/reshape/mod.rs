//! Personality of a parity array during a reshape: a level for each of the two geometries.
//!
//! Each of the two levels (the sides *before* and *after*) has its own stripe cache, its own
//! membership and its own place on the members ([`crate::array::reshape`]). A request goes to the
//! side that has its range; a request across the position is split between both sides. The range
//! that is being copied is locked ([`copy`]), so that neither side gets requests for it. Answers of
//! members and computations carry the side to which they belong.
//!
//! No range is discarded during a reshape, as in md.

mod copy;

use weft_units::{ByteRange, Bytes, FRAME_BYTES, Sectors, Time};

use self::copy::ReshapeCopies;
use super::parity::streams::WriteStream;
use super::personality::{Discards, RaidLevel, Requests, Settings};
use super::straight::StraightPart;
use super::{Answer, ArrayIo, ArrayView, Busy, Cx, Event, ParityRaid, PartOutcome, StripeMemory};
use crate::array::outbox::{CompletionTarget, JobId};
use crate::array::reshape::Side;
use crate::array::resync_window::{Pass, Resync, Settles};
use crate::contract::error::ReplyError;
use crate::contract::frame::Run;
use crate::contract::input::{ClientRequest, Fault, Growth, RequestOp, SyncAction, Value, Verb};
use crate::contract::snapshot::{RaidSnapshot, StripesInUse};
use crate::contract::token::RequestId;
use crate::knobs::{Knob, Knobs};
use crate::layout::geometry::Geometry;

/// Personality of an array that is being reshaped.
#[derive(Clone, Debug)]
pub(crate) struct Reshape {
    before: ParityRaid,
    after: ParityRaid,
    copies: ReshapeCopies,
    /// Array sector from which on requests go to the side before.
    boundary: Sectors,
    events: Vec<Event>,
}

/// Evaluates an expression for the level of each side, and returns both values: before, after.
macro_rules! both {
    ($this:ident, $raid:ident => $call:expr) => {{
        let $raid = &mut $this.before;
        let one = $call;
        let $raid = &mut $this.after;
        (one, $call)
    }};
}

impl Reshape {
    /// Creates the personality of an array with the geometry `after` below `boundary` and the
    /// geometry `before` from there on.
    pub(crate) fn new(
        memory: StripeMemory,
        (before, after): (&Geometry, &Geometry),
        boundary: Sectors,
        knobs: &Knobs,
    ) -> Self {
        let (copies, rest) = ReshapeCopies::new(memory, before, after);
        let half = StripeMemory { frames: rest.frames / 2, ..rest };
        let first = crate::contract::frame::Frame(half.first.0 + half.frames);
        let other = StripeMemory { first, frames: rest.frames - half.frames, ..rest };
        Self {
            before: ParityRaid::new(half, before, knobs),
            after: ParityRaid::new(other, after, knobs),
            copies,
            boundary,
            events: Vec::new(),
        }
    }

    /// Smallest number of frames that a volume needs for a reshape.
    pub(crate) fn frames_min(before: &Geometry, after: &Geometry, knobs: &Knobs) -> u32 {
        let stripes = |geometry| STRIPES_MIN * ParityRaid::stripe_frames(geometry, knobs);
        ReshapeCopies::unit_frames(before, after) + 2 * stripes(before).max(stripes(after))
    }

    fn raid(&mut self, side: Side) -> &mut ParityRaid {
        match side {
            Side::Before => &mut self.before,
            Side::After => &mut self.after,
        }
    }

    /// Side of the array sector of byte `at`.
    fn side_at(&self, at: Bytes) -> Side {
        if at < self.boundary.bytes() { Side::After } else { Side::Before }
    }

    /// Side of a request; `None` if the boundary is within its range.
    fn side_of(&self, range: ByteRange) -> Option<Side> {
        let at = self.boundary.bytes();
        let is_across = range.start < at && at < range.end();
        (!is_across).then(|| self.side_at(range.start))
    }

    /// Collects the events of both sides. Events about copies go to `copies`, all others to
    /// `events`.
    fn collect(&mut self) {
        let waits_for_space = self.has_deferred();
        let Self { before, after, copies, events, .. } = self;
        for raid in [before, after] {
            if raid.events().is_empty() {
                continue;
            }
            let mut failed: Option<RequestId> = None;
            for event in raid.events().drain(..) {
                match copies.take(&event) {
                    // The other side still keeps strips for which there was no space.
                    None if waits_for_space && matches!(event, Event::Written) => {}
                    Some(request) => failed = request.or(failed),
                    None => events.push(event),
                }
            }
            if let Some(request) = failed {
                raid.request_failed(request);
            }
        }
    }
}

/// Submits a request to one side, and returns the number of its pending sub-requests. Not inlined,
/// because the other caller of `ParityRaid::submit` already has it inlined.
#[inline(never)]
fn submit(raid: &mut ParityRaid, io: &ArrayIo, cx: &mut Cx<'_>) -> u64 {
    raid.submit(io, cx)
}

/// Divides a request at byte `at` into the part below it and the part from there on.
fn split(io: &ArrayIo, at: Bytes) -> (ArrayIo, ArrayIo) {
    let (start, end) = (io.range.start.0, io.range.end().0);
    let low = ByteRange::new(start, at.0 - start);
    let high = ByteRange::new(at.0, end - at.0);
    let skipped = ((at.0 - start / FRAME_BYTES * FRAME_BYTES) / FRAME_BYTES) as u32;
    let frames =
        |first, count| if io.frames.count == 0 { Run::EMPTY } else { Run::new(first, count) };
    let first = io.frames.first.0;
    (
        ArrayIo { range: low, frames: frames(first, skipped), ..*io },
        ArrayIo {
            range: high,
            frames: frames(first + skipped, io.frames.count.saturating_sub(skipped)),
            ..*io
        },
    )
}

impl Requests for Reshape {
    fn arrives(
        &mut self,
        range: ByteRange,
        before_answer: impl FnOnce() -> bool,
        knobs: &Knobs,
        now: Time,
    ) -> WriteStream {
        match self.side_of(range) {
            Some(side) => self.raid(side).arrives(range, before_answer, knobs, now),
            None => WriteStream::default(),
        }
    }

    fn read_straight(&mut self, io: &ArrayIo, cx: &mut Cx<'_>) -> Option<u64> {
        let side = self.side_of(io.range)?;
        self.raid(side).read_straight(io, &mut cx.on(side))
    }

    /// Takes a request, and returns the number of its pending sub-requests. A range that was to be
    /// discarded when the request arrived, before the reshape began, is overwritten with zeros
    /// instead.
    fn submit(&mut self, io: &ArrayIo, cx: &mut Cx<'_>) -> u64 {
        let mut io = *io;
        if io.discarded.take().is_some() {
            io.op = RequestOp::WriteZeroes;
        }
        let io = &io;
        if let Some(side) = self.side_of(io.range) {
            return submit(self.raid(side), io, &mut cx.on(side));
        }
        let at = self.boundary.bytes();
        let (low, high) = split(io, at);
        let (of_low, of_high) = (self.side_at(low.range.start), self.side_at(at));
        let pending = submit(self.raid(of_low), &low, &mut cx.on(of_low));
        pending + submit(self.raid(of_high), &high, &mut cx.on(of_high))
    }

    fn skip(&mut self, io: &ArrayIo, now: Time) {
        both!(self, raid => raid.skip(io, now));
    }

    fn repeat(&mut self, part: StraightPart, io: &ArrayIo, asked: bool) {
        let side = self.side_at(part.start);
        self.raid(side).repeat(part, io, asked);
    }

    /// Reports that another request waits for `io`: if `io` is a copy, its position is recorded
    /// soon.
    fn hurry(&mut self, io: &ArrayIo, now: Time) {
        if !self.copies.hurry(io.id) {
            both!(self, raid => raid.hurry(io, now));
        }
    }

    fn request_failed(&mut self, id: RequestId) {
        both!(self, raid => raid.request_failed(id));
    }

    fn answered(&mut self, stream: WriteStream, len: Bytes) {
        both!(self, raid => raid.answered(stream, len));
    }

    fn split_waiting(&mut self, quiesces: bool, cx: &mut Cx<'_>) {
        self.before.split_waiting(quiesces, &mut cx.on(Side::Before));
        self.after.split_waiting(quiesces, &mut cx.on(Side::After));
    }

    fn end_vain_waits(&mut self, now: Time) {
        both!(self, raid => raid.end_vain_waits(now));
    }

    fn is_quiet(&self) -> bool {
        self.before.is_quiet() && self.after.is_quiet() && self.copies.is_quiet()
    }

    fn has_waiting(&self) -> bool {
        self.before.has_waiting() || self.after.has_waiting()
    }
}

impl Discards for Reshape {
    fn to_discard(&self, _: &ClientRequest, _: ArrayView<'_>) -> Option<ByteRange> {
        None
    }

    fn discard_done(
        &mut self,
        _: RequestId,
        _: Option<usize>,
        _: Result<(), Fault>,
        _: &mut Cx<'_>,
    ) {
        unreachable!("nothing is discarded during a reshape")
    }
}

impl Settings for Reshape {
    fn refuses(&self, verb: &Verb) -> Option<ReplyError> {
        let waits = match verb {
            // A command with the shape of the reshape under way resumes a reshape that has stopped.
            Verb::Grow(Growth::Shape(_)) => false,
            verb if verb.changes_members() => true,
            Verb::SyncAction(action) => {
                !matches!(action, SyncAction::Frozen | SyncAction::Idle | SyncAction::Reshape)
            }
            Verb::SyncRange { .. } => true,
            _ => false,
        };
        waits.then_some(ReplyError::Busy("a reshape is under way"))
    }

    fn sets_when_quiet(&self, knob: Knob) -> bool {
        self.after.sets_when_quiet(knob)
    }

    fn check(&self, _: Knob, _: &Knobs, _: Busy) -> Result<(), ReplyError> {
        Err(ReplyError::Busy("a reshape is under way"))
    }
}

impl RaidLevel for Reshape {
    fn read_failed(
        &mut self,
        first: CompletionTarget,
        position: Option<usize>,
        fault: Fault,
        cx: &mut Cx<'_>,
    ) {
        let (side, first) = Side::of_part(first);
        self.raid(side).read_failed(first, position, fault, &mut cx.on(side));
    }

    fn part_done(
        &mut self,
        part: CompletionTarget,
        answer: Answer,
        cx: &mut Cx<'_>,
    ) -> PartOutcome {
        let (side, part) = Side::of_part(part);
        self.raid(side).part_done(part, answer, &mut cx.on(side))
    }

    fn part_freed(&mut self, part: CompletionTarget) -> Option<RequestId> {
        let (side, part) = Side::of_part(part);
        self.raid(side).part_freed(part)
    }

    fn compute_done(&mut self, job: JobId, value: &Result<Value, Fault>, cx: &mut Cx<'_>) {
        if self.copies.computed(job) {
            return;
        }
        let (side, job) = Side::of_job(job);
        self.raid(side).compute_done(job, value, &mut cx.on(side));
    }

    fn events(&mut self) -> &mut Vec<Event> {
        self.collect();
        self.copies.events(&mut self.events);
        &mut self.events
    }

    fn gains_by_giving_up(&self, part: CompletionTarget, array: ArrayView<'_>) -> bool {
        match Side::of_part(part) {
            (Side::Before, part) => self.before.gains_by_giving_up(part, array.on(Side::Before)),
            (Side::After, part) => self.after.gains_by_giving_up(part, array.on(Side::After)),
        }
    }

    fn given_up(&self, first: CompletionTarget) -> u8 {
        match Side::of_part(first) {
            (Side::Before, first) => self.before.given_up(first),
            (Side::After, first) => self.after.given_up(first),
        }
    }

    fn parts_given_up(&self, parts: &[CompletionTarget]) -> Option<Vec<CompletionTarget>> {
        let mut all = Vec::new();
        let mut changed = false;
        for marked in parts {
            let (side, part) = Side::of_part(*marked);
            let raid = if side == Side::Before { &self.before } else { &self.after };
            match raid.parts_given_up(&[part]) {
                Some(parts) => {
                    changed = true;
                    all.extend(parts.into_iter().map(|part| side.mark(part)));
                }
                None => all.push(*marked),
            }
        }
        changed.then_some(all)
    }

    fn begin_turn(&mut self, cx: &mut Cx<'_>) {
        self.before.begin_turn(&mut cx.on(Side::Before));
        self.after.begin_turn(&mut cx.on(Side::After));
    }

    fn turn(&mut self, stripes_max: u32, cx: &mut Cx<'_>) -> u32 {
        self.collect();
        let Self { before, after, copies, boundary, .. } = self;
        copies.go_on(before, after, cx);
        *boundary = cx.view().reshape().recorded();
        let handled = before.turn(stripes_max, &mut cx.on(Side::Before));
        handled + after.turn(stripes_max, &mut cx.on(Side::After))
    }

    fn end_turn(&mut self, _: Option<&Resync>, cx: &mut Cx<'_>) {
        self.before.end_turn(None, &mut cx.on(Side::Before));
        self.after.end_turn(None, &mut cx.on(Side::After));
    }

    fn has_work(
        &self,
        quiesces: bool,
        _: Option<&Resync>,
        (array, knobs): (ArrayView<'_>, &Knobs),
        now: Time,
    ) -> bool {
        let on = |side| (array.on(side), knobs);
        self.before.has_work(quiesces, None, on(Side::Before), now)
            || self.after.has_work(quiesces, None, on(Side::After), now)
            || self.copies.has_work(array)
    }

    fn next_wake(&self, array: ArrayView<'_>, knobs: &Knobs) -> Option<Time> {
        let before = self.before.next_wake(array.on(Side::Before), knobs);
        let after = self.after.next_wake(array.on(Side::After), knobs);
        before.into_iter().chain(after).min()
    }

    fn holds_writes(&self) -> bool {
        true
    }

    fn resync_pass(&self, _: SyncAction, array: ArrayView<'_>, _: &Knobs) -> Pass {
        let unit = array.reshape().unit_height();
        Pass { unit, size: array.reshape().after.member_size(), settles: Settles::No, maps: false }
    }

    fn feed(&mut self, sync: &mut Resync, array: ArrayView<'_>) {
        self.copies.feed(sync, array);
    }

    fn would_feed(&self, sync: &Resync) -> bool {
        self.copies.would_feed(sync)
    }

    fn locked(&mut self, part: u32, request: RequestId, cx: &mut Cx<'_>) {
        self.copies.locked(part, request, &mut self.before, cx);
    }

    fn has_deferred(&self) -> bool {
        self.before.has_deferred() || self.after.has_deferred()
    }

    fn write_deferred(&mut self, cx: &mut Cx<'_>) {
        self.before.write_deferred(&mut cx.on(Side::Before));
        self.after.write_deferred(&mut cx.on(Side::After));
    }

    fn starves(&self) -> bool {
        self.before.starves() || self.after.starves()
    }

    fn is_full(&self) -> bool {
        self.before.is_full() || self.after.is_full()
    }

    fn snapshot(&self) -> RaidSnapshot {
        RaidSnapshot { stripe_cache_active: self.stripe_cache_active(), ..self.after.snapshot() }
    }

    fn stripe_cache_active(&self) -> u32 {
        self.before.stripe_cache_active() + self.after.stripe_cache_active()
    }

    fn stripes_in_use(&self) -> StripesInUse {
        self.after.stripes_in_use()
    }
}

/// Smallest number of stripes that each of the two stripe caches has.
const STRIPES_MIN: u32 = 4;
