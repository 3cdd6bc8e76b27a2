//! Copies of a reshape: units of the array that are read before they are written at their new
//! place.
//!
//! ```text
//! lock ──▶ read (geometry before) ──▶ zero the part past the end of the array before
//!      ──▶ wait until no sector is overwritten that a restart reads ──▶ write (geometry after)
//!      ──▶ wait until the position is recorded ──▶ unlock
//! ```
//!
//! A unit is read through the stripe cache, so that a stalled member does not keep the unit's
//! memory in use. A unit consists of full stripes of the geometry after, so nothing has to be read
//! to write it.
//!
//! Source   md-reshape.md §3 (md: `reshape_request`)

use std::collections::VecDeque;

use weft_units::{ByteRange, Bytes, FRAME_BYTES, Sectors};

use super::{StripeMemory, submit};
use crate::array::outbox::JobId;
use crate::array::reshape::{Side, UNRECORDED_MAX};
use crate::array::resync_window::Resync;
use crate::contract::error::ReplyError;
use crate::contract::frame::{Frame, Run};
use crate::contract::input::{Flags, RequestOp};
use crate::contract::output::ComputeOp;
use crate::contract::token::RequestId;
use crate::layout::geometry::Geometry;
use crate::mutant::Mutant;
use crate::raid::personality::RaidLevel;
use crate::raid::{ArrayIo, ArrayView, Cx, Event, ParityRaid, SPLITTING};

/// Units that are being copied, and their memory.
#[derive(Clone, Debug)]
pub(super) struct ReshapeCopies {
    first: Frame,
    unit_frames: u32,
    /// Number of array sectors per unit.
    unit: Sectors,
    /// Size of the array in the geometry before.
    size_before: Sectors,
    /// Units in progress, by index; `None` at an unused index. Each index has memory for a unit.
    units: Vec<Option<Unit>>,
    /// Locks of units that are copied but not recorded, each with the array sector at which its
    /// unit ends, in order.
    unrecorded: VecDeque<(RequestId, Sectors)>,
    /// Highest end, as an array sector, of the copied units that client requests wait for. A
    /// position up to this sector is recorded soon.
    hurried_to: Sectors,
    /// First array sector of the first unit that could not be copied. Copies of later units are
    /// given up, because they would have to be made again. `None` while no copy has failed.
    gives_up_from: Option<Sectors>,
    /// Whether, since the last step, a copy was completed or failed, or a client request began to
    /// wait for one.
    fresh: bool,
    /// Events that were not reported yet.
    events: Vec<Event>,
}

/// Part of the array that is being copied.
#[derive(Clone, Debug)]
struct Unit {
    key: u64,
    range: ByteRange,
    /// Request that holds the lock; `None` until the unit is locked.
    request: Option<RequestId>,
    step: Step,
    /// Number of sub-requests of the current step that are not done, plus [`SPLITTING`] while the
    /// request of the step is being split.
    pending: u64,
    /// Number of given-up member writes that may still use the memory.
    pins: u32,
    /// First error of a step; `None` if none has failed. A lack of space replaces an earlier error.
    error: Option<ReplyError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Locking,
    Reading,
    Zeroing,
    /// The unit waits until it may be written.
    Waiting,
    Writing,
    /// The unit is copied, or has failed. Member writes may still use its memory.
    Over,
}

impl ReshapeCopies {
    /// Sets aside memory for up to [`UNITS_MAX`] units, at most a quarter of `memory`,
    /// but at least one. Also returns the rest of the memory.
    pub(super) fn new(
        memory: StripeMemory,
        before: &Geometry,
        after: &Geometry,
    ) -> (Self, StripeMemory) {
        let unit_frames = Self::unit_frames(before, after);
        let units = (memory.frames / 4 / unit_frames).clamp(1, UNITS_MAX);
        let taken = (units * unit_frames).min(memory.frames);
        let rest = Frame(memory.first.0 + taken);
        let copies = Self {
            first: memory.first,
            unit_frames,
            unit: Bytes(u64::from(unit_frames) * FRAME_BYTES).sectors_floor(),
            size_before: before.array_size(),
            units: vec![None; units as usize],
            unrecorded: VecDeque::new(),
            hurried_to: Sectors::ZERO,
            gives_up_from: None,
            fresh: false,
            events: Vec::new(),
        };
        (copies, StripeMemory { first: rest, frames: memory.frames - taken, ..memory })
    }

    /// Number of frames of one unit.
    pub(super) fn unit_frames(before: &Geometry, after: &Geometry) -> u32 {
        let height = before.chunk().max(after.chunk()).bytes().0 / FRAME_BYTES;
        height as u32 * u32::from(after.data_members())
    }

    fn frames(&self, place: usize) -> Run {
        Run::new(self.first.0 + place as u32 * self.unit_frames, self.unit_frames)
    }

    fn of_request(&mut self, request: RequestId) -> Option<&mut Unit> {
        self.units.iter_mut().flatten().find(|unit| unit.request == Some(request))
    }

    fn free_place(&self) -> Option<usize> {
        self.units.iter().position(Option::is_none)
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.units.iter().all(Option::is_none) && self.unrecorded.is_empty()
    }

    // Units of the sync.

    pub(super) fn feed(&mut self, sync: &mut Resync, array: ArrayView<'_>) {
        let size = array.reshape().end().bytes();
        sync.feed(self.units.len() as u32 * 4, |key, _| {
            let Some(place) = self.free_place() else { return false };
            let unit = self.unit.bytes().0;
            let start = key * unit;
            let range = ByteRange::new(start, unit.min(size.0 - start));
            self.units[place] = Some(Unit {
                key,
                range,
                request: None,
                step: Step::Locking,
                pending: 0,
                pins: 0,
                error: None,
            });
            self.events.push(Event::Lock { part: place as u32, range, writes: true });
            true
        });
    }

    pub(super) fn would_feed(&self, sync: &Resync) -> bool {
        let window = self.units.len() as u32 * 4;
        sync.has_work(window, |_| self.free_place().is_some(), |_| false)
    }

    /// Begins to read the unit at index `place`, which `request` has locked.
    pub(super) fn locked(
        &mut self,
        place: u32,
        request: RequestId,
        before: &mut ParityRaid,
        cx: &mut Cx<'_>,
    ) {
        let place = place as usize;
        let (frames, end) = (self.frames(place), self.size_before.bytes());
        let unit = self.units[place].as_mut().expect("the lock was asked for");
        assert_eq!(unit.step, Step::Locking, "a unit is locked once");
        unit.request = Some(request);
        if unit.range.start >= end {
            unit.step = Step::Reading;
            return;
        }
        let len = unit.range.end().min(end) - unit.range.start;
        let range = ByteRange { start: unit.range.start, len };
        let flags = Flags { sync: true, again: true, ..Flags::NONE };
        let io = ArrayIo::new(request, RequestOp::Read, range, false);
        let io = ArrayIo { frames, flags, ..io };
        let pending = submit(before, &io, &mut cx.on(Side::Before));
        (unit.step, unit.pending) = (Step::Reading, pending);
    }

    /// Handles an event of one of the two levels, if it is about a copy. Returns `None` if the
    /// volume has to handle the event, `Some` of the copy's request if one of its sub-requests
    /// failed, and otherwise `Some(None)`.
    pub(super) fn take(&mut self, event: &Event) -> Option<Option<RequestId>> {
        let (Event::Split { request, .. }
        | Event::SubRequestsDone { request, .. }
        | Event::Pinned { request }
        | Event::Unpinned { request }) = *event
        else {
            return None;
        };
        let unit = self.of_request(request)?;
        match event {
            Event::Split { sub_requests, .. } => {
                unit.pending += u64::from(*sub_requests);
                unit.pending -= SPLITTING;
            }
            Event::SubRequestsDone { sub_requests, result, .. } => {
                unit.pending -= u64::from(*sub_requests);
                if let Err(error) = result {
                    if unit.error.is_none() || *error == ReplyError::NoSpace {
                        unit.error = Some(error.clone());
                    }
                    return Some(Some(request));
                }
            }
            // The volume handles the event too, because the number of the request must not be used
            // again before the memory is free.
            Event::Pinned { .. } => {
                unit.pins += 1;
                return None;
            }
            Event::Unpinned { .. } => {
                unit.pins -= 1;
                return None;
            }
            _ => {}
        }
        Some(None)
    }

    /// Handles a finished computation, if it belongs to a copy. Returns whether it does.
    pub(super) fn computed(&mut self, job: JobId) -> bool {
        let (side, JobId(number)) = Side::of_job(job);
        let is_own = side == Side::After && number & JOB != 0;
        if is_own {
            let place = (number & !JOB) as usize;
            let unit = self.units[place].as_mut().expect("a unit is zeroed while it is copied");
            unit.pending -= 1;
        }
        is_own
    }

    /// Reports that a client request waits for the copy that holds its lock as request `id`.
    /// Returns whether there is such a copy.
    pub(super) fn hurry(&mut self, id: RequestId) -> bool {
        let of_unit = self.of_request(id).map(|unit| unit.key).map(|key| self.end_of(key));
        let end = of_unit.or_else(|| self.unrecorded.iter().find(|it| it.0 == id).map(|it| it.1));
        self.hurried_to = self.hurried_to.max(end.unwrap_or_default());
        self.fresh |= end.is_some();
        end.is_some()
    }

    /// Whether [`ReshapeCopies::go_on`] has something to do.
    pub(super) fn has_work(&self, array: ArrayView<'_>) -> bool {
        let broken = array.membership().broken;
        let steps = self.units.iter().flatten().any(|unit| match unit.step {
            Step::Locking => false,
            Step::Reading | Step::Zeroing | Step::Writing => unit.pending == 0,
            Step::Waiting => {
                let end = self.end_of(unit.key);
                let gives_up = broken || unit.error.is_some() || self.is_in_vain(end);
                gives_up || array.may_copy_to(end)
            }
            Step::Over => unit.pins == 0,
        });
        let recorded = array.reshape().recorded();
        let mut ends = self.unrecorded.iter().map(|(_, end)| *end);
        let released = ends.any(|end| end <= recorded || broken || self.is_in_vain(end));
        steps || released || self.fresh || !self.events.is_empty()
    }

    /// Array sector at which unit number `key` ends.
    fn end_of(&self, key: u64) -> Sectors {
        Sectors((key + 1) * self.unit.0)
    }

    /// Whether a unit that ends at `end` could not be copied, or follows one that could not.
    fn is_in_vain(&self, end: Sectors) -> bool {
        self.gives_up_from.is_some_and(|from| end > from)
    }

    /// Takes the next steps of all units, releases the locks of units that are recorded or given
    /// up, and requests that a position be recorded if one is wanted.
    pub(super) fn go_on(&mut self, before: &ParityRaid, after: &mut ParityRaid, cx: &mut Cx<'_>) {
        self.fresh = false;
        let is_idle = !self.is_copying();
        if is_idle {
            self.gives_up_from = None;
        }
        for place in 0..self.units.len() {
            while self.step(place, after, cx) {}
        }
        let (recorded, copied) = (cx.view().reshape().recorded(), cx.view().reshape().copied());
        // Strips for which a member had no space are in memory only: their units are copied again
        // once there is space, and no request waits for that.
        let forgets = is_idle && after.has_deferred() && cx.forget_copied();
        let gives_up = cx.membership().broken || cx.is_planted(Mutant::ReshapeLetsPass) || forgets;
        // Units after one that failed are copied again.
        for (request, end) in std::mem::take(&mut self.unrecorded) {
            let in_vain = is_idle && end > copied || self.is_in_vain(end);
            if end <= recorded || gives_up || in_vain {
                self.release(request);
            } else {
                self.unrecorded.push_back((request, end));
            }
        }
        // A unit may wait for its lock behind a client request, which in turn waits for a copied
        // unit.
        let waits = |unit: &Unit| matches!(unit.step, Step::Locking | Step::Waiting);
        let waits = self.units.iter().flatten().any(waits);
        let many = self.unrecorded.len() as u64 >= UNRECORDED_MAX;
        let is_wanted = waits || many || is_idle || self.hurried_to > recorded;
        // Once the position is recorded, the old places of the stripes below it may be overwritten,
        // so no write to these places, such as a correction, may be under way then.
        let old = cx.view().reshape().read_from(copied);
        if is_wanted && !after.has_deferred() && !before.may_write_below(old) {
            cx.record_reshape();
        }
    }

    /// Whether a unit is being copied.
    fn is_copying(&self) -> bool {
        self.units.iter().flatten().any(|unit| unit.step != Step::Over)
    }

    fn release(&mut self, request: RequestId) {
        self.events.push(Event::SubRequestsDone { request, sub_requests: 1, result: Ok(()) });
    }

    /// Takes the next step of the unit at index `place`, if it is due. Returns whether it did.
    fn step(&mut self, place: usize, after: &mut ParityRaid, cx: &mut Cx<'_>) -> bool {
        let frames = self.frames(place);
        let Some(unit) = self.units[place].clone() else { return false };
        let (end, last) = (self.end_of(unit.key), self.size_before.bytes());
        let gives_up = unit.error.is_some() || cx.membership().broken || self.is_in_vain(end);
        let (step, pending) = match unit.step {
            Step::Locking => return false,
            Step::Reading | Step::Zeroing | Step::Writing if unit.pending > 0 => return false,
            Step::Reading | Step::Zeroing | Step::Waiting if gives_up => return self.fail(place),
            Step::Reading if unit.range.end() > last => {
                let from = last.max(unit.range.start) - unit.range.start;
                let to = frames.part(from.0, unit.range.len.0 - from.0);
                let mut ops = cx.ops();
                ops.push(ComputeOp::Zero { to });
                cx.compute(JobId(JOB | place as u32), ops);
                (Step::Zeroing, 1)
            }
            Step::Reading | Step::Zeroing => (Step::Waiting, 0),
            Step::Waiting if !cx.view().may_copy_to(end) => return false,
            Step::Waiting => {
                let request = unit.request.expect("a unit that was read is locked");
                let io = ArrayIo::new(request, RequestOp::Write, unit.range, true);
                let io = ArrayIo { frames, flags: Flags { sync: true, ..Flags::NONE }, ..io };
                (Step::Writing, submit(after, &io, &mut cx.on(Side::After)))
            }
            Step::Writing if unit.error.is_some() => return self.fail(place),
            Step::Writing => {
                let request = unit.request.expect("a unit that was written is locked");
                self.fresh = true;
                let (key, mismatch, wrong, ok) = (unit.key, false, None, true);
                self.events.push(Event::SyncDone { unit: key, mismatch, wrong, ok });
                let later = self.unrecorded.partition_point(|(_, other)| *other < end);
                self.unrecorded.insert(later, (request, end));
                (Step::Over, 0)
            }
            Step::Over if unit.pins == 0 => {
                self.units[place] = None;
                return false;
            }
            Step::Over => return false,
        };
        self.units[place] = Some(Unit { step, pending, ..unit });
        true
    }

    /// Ends the copy of a unit that could not be read or written, or that follows such a unit.
    /// Returns whether the unit was in progress.
    fn fail(&mut self, place: usize) -> bool {
        let Some(unit) = self.units[place].clone() else { return false };
        let start = Sectors(unit.key * self.unit.0);
        self.gives_up_from = Some(self.gives_up_from.map_or(start, |from| from.min(start)));
        self.fresh = true;
        let no_space = unit.error == Some(ReplyError::NoSpace);
        let (key, mismatch, wrong, ok) = (unit.key, false, None, false);
        self.events.push(match unit.error {
            Some(_) if !no_space => Event::SyncDone { unit: key, mismatch, wrong, ok },
            Some(_) | None => Event::SyncPutOff { unit: key, no_space },
        });
        if let Some(request) = unit.request {
            self.release(request);
        }
        self.units[place] = Some(Unit { step: Step::Over, ..unit });
        true
    }

    /// Moves the events that were not reported yet to `events`.
    pub(super) fn events(&mut self, events: &mut Vec<Event>) {
        events.append(&mut self.events);
    }
}

/// Bit that marks the number of a computation as that of zeroing a part of a unit.
const JOB: u32 = 1 << 30;

/// Largest number of units that are copied at a time.
const UNITS_MAX: u32 = 8;
