//! RAID personalities: how each level carries out requests, behind one closed enum.
//!
//! A volume handles requests, their order and their answers, and knows nothing of levels. Its
//! personality turns requests into member requests and computations through `Cx`, and reports back
//! with `Event`s. Each level is a folder here and a variant of `Personality`. A level without a
//! stripe cache sends each request on as it arrives; the macro `cached!` supplies its result for
//! methods about stripes.
//!
//! ```text
//! Volume ── submit(ArrayIo) ──► Personality ── Cx::stage ──► members
//!        ◄── Event, PartOutcome ──             ◄── part_done ── their answers
//! ```

mod clear;
pub(crate) mod cx;
pub(crate) mod io;
mod mirror;
pub mod parity;
mod single;
mod straight;
mod striped;

use weft_units::{ByteRange, Bytes, Sectors, Time};

use self::cx::MemberDiscard;
pub(crate) use self::cx::{ArrayView, Cx};
pub(crate) use self::io::{Answer, ArrayIo, Busy, Event, PartOutcome, SPLITTING};
use self::mirror::Mirror;
use self::parity::streams::WriteStream;
pub(crate) use self::parity::{ParityRaid, StripeMemory};
use self::single::Single;
pub(crate) use self::straight::StraightPart;
use self::striped::Striped;
use crate::array::outbox::{CompletionTarget, JobId};
use crate::array::resync_window::{Pass, Resync};
use crate::config::{VolumeConfig, VolumeSource};
use crate::contract::error::ReplyError;
use crate::contract::input::{ClientRequest, Fault, SyncAction, Value, Verb};
use crate::contract::snapshot::{RaidSnapshot, StripesInUse};
use crate::contract::token::RequestId;
use crate::knobs::{Knob, Knobs};
use crate::layout::Layout;

/// Personality of a volume: how its level carries out requests.
#[derive(Clone, Debug)]
pub(crate) enum Personality {
    /// RAID 1 and 10.
    Mirror(Box<Mirror>),
    /// RAID 4, 5 and 6.
    Parity(Box<ParityRaid>),
    /// One member without metadata.
    Single(Box<Single>),
    /// RAID 0 and linear.
    Striped(Box<Striped>),
}

/// Calls a method that every personality has.
macro_rules! each {
    ($personality:expr, $raid:ident => $call:expr) => {
        match $personality {
            Personality::Mirror($raid) => $call,
            Personality::Parity($raid) => $call,
            Personality::Single($raid) => $call,
            Personality::Striped($raid) => $call,
        }
    };
}

/// Calls a method of the personality with a stripe cache, and gives `$without` for the others.
macro_rules! cached {
    ($personality:expr, $raid:ident => $call:expr, $without:expr) => {
        match $personality {
            Personality::Parity($raid) => $call,
            Personality::Mirror(_) | Personality::Single(_) | Personality::Striped(_) => $without,
        }
    };
}

impl Personality {
    /// Creates the personality for the members in `config`.
    pub(crate) fn new(memory: StripeMemory, config: &VolumeConfig) -> Self {
        match &config.source {
            VolumeSource::Array(assembly) => match &assembly.layout {
                Layout::Mirrors(places) => {
                    Self::Mirror(Box::new(Mirror::new(memory, places.clone())))
                }
                Layout::Parity(geometry) => {
                    let raid = ParityRaid::new(memory, geometry, &config.knobs);
                    Self::Parity(Box::new(raid))
                }
                Layout::Striped(places) => Self::Striped(Box::new(Striped::new(places.clone()))),
            },
            VolumeSource::Single { .. } => Self::Single(Box::default()),
        }
    }

    /// Error for a command that does not apply to the personality; `None` if it does.
    pub(crate) fn refuses(&self, verb: &Verb) -> Option<ReplyError> {
        match (self, verb) {
            (Self::Single(_), Verb::Set(knob)) if !knob.is_of_queues() => {
                Some(ReplyError::Invalid("a bare member has only the knobs of its queue"))
            }
            (Self::Single(_), Verb::Drain | Verb::Set(_) | Verb::SetQueues { .. } | Verb::Stop) => {
                None
            }
            (Self::Single(_), _) => {
                Some(ReplyError::Invalid("a bare member has no array to administer"))
            }
            _ => None,
        }
    }

    // Requests.

    /// Member position and data sector at which a member can serve a read or write unchanged, as
    /// one request for which the volume keeps no state and no order. `None` if there is no such
    /// member. `is_written` tells whether an unanswered write overlaps the range.
    #[inline]
    pub(crate) fn passes(
        &mut self,
        range: ByteRange,
        writes: bool,
        is_written: impl FnOnce() -> bool,
        array: ArrayView<'_>,
    ) -> Option<(usize, Sectors)> {
        match self {
            Self::Mirror(_) if writes || is_written() => None,
            Self::Mirror(raid) => raid.passes(range, array),
            Self::Parity(_) => None,
            Self::Single(_) => Some((0, range.start.sectors_floor())),
            Self::Striped(raid) => raid.passes(range, array),
        }
    }

    /// Whether another member may have the data of a passed read that failed.
    pub(crate) fn has_copies(&self) -> bool {
        matches!(self, Self::Mirror(_))
    }

    /// Stream of an arriving write, and whether it will bring the rest of the stripe.
    /// `before_answer` tells whether the write begins where an unanswered write ends.
    pub(crate) fn arrives(
        &mut self,
        range: ByteRange,
        before_answer: impl FnOnce() -> bool,
        knobs: &Knobs,
        now: Time,
    ) -> WriteStream {
        let none = WriteStream::default();
        cached!(self, raid => raid.arrives(range, before_answer, knobs, now), none)
    }

    /// Part of a request's range that members are told to discard; `None` if there is none.
    pub(crate) fn to_discard(
        &self,
        request: &ClientRequest,
        array: ArrayView<'_>,
    ) -> Option<ByteRange> {
        cached!(self, raid => raid.to_discard(request, array), clear::to_discard(request, array))
    }

    /// Sends a read to its members without waiting for a turn. Returns its number of sub-requests;
    /// `None` if the read has to go through [`Personality::submit`].
    pub(crate) fn read_straight(&mut self, io: &ArrayIo, cx: &mut Cx<'_>) -> Option<u64> {
        match self {
            Self::Mirror(raid) => Some(raid.read_straight(io, cx)),
            Self::Parity(raid) => raid.read_straight(io, cx),
            Self::Single(_) => None,
            Self::Striped(raid) => Some(raid.submit(io, cx)),
        }
    }

    /// Takes a request in a turn. Returns the number of pending sub-requests, plus [`SPLITTING`] if
    /// it is not completely split yet; an [`Event::Split`] follows then.
    pub(crate) fn submit(&mut self, io: &ArrayIo, cx: &mut Cx<'_>) -> u64 {
        each!(self, raid => raid.submit(io, cx))
    }

    /// Drops a request that failed before it was submitted.
    pub(crate) fn skip(&mut self, io: &ArrayIo, now: Time) {
        cached!(self, raid => raid.skip(io, now), ());
    }

    /// Reads a part that failed to be read ([`PartOutcome::ReadFailed`]) in another way: from
    /// another copy or by reconstruction. The request counts as being split again. `asked`: a
    /// member was asked for it and failed.
    pub(crate) fn read_again(&mut self, part: StraightPart, io: &ArrayIo, asked: bool) {
        match self {
            Self::Mirror(raid) => raid.read_again(part, io),
            Self::Parity(raid) => raid.read_again(part, io, asked),
            Self::Single(_) | Self::Striped(_) => unreachable!("no other member has the data"),
        }
    }

    /// Notes that another request waits for this write: its stripes stop waiting for more data
    /// soon.
    pub(crate) fn hurry(&mut self, io: &ArrayIo, now: Time) {
        cached!(self, raid => raid.hurry(io, now), ());
    }

    /// Notes that a sub-request of a request failed: sub-requests that are not sent yet can be
    /// dropped.
    pub(crate) fn request_failed(&mut self, id: RequestId) {
        cached!(self, raid => raid.request_failed(id), ());
    }

    /// Notes that a write of `len` bytes in a stream was answered.
    pub(crate) fn answered(&mut self, stream: WriteStream, len: Bytes) {
        cached!(self, raid => raid.answered(stream, len), ());
    }

    // Answers.

    /// Handles the error of a member read. `first` is the first part of the read; this is called
    /// once, before [`Personality::part_done`] is called for each part.
    #[cold]
    pub(crate) fn read_failed(
        &mut self,
        first: CompletionTarget,
        position: Option<usize>,
        fault: Fault,
        cx: &mut Cx<'_>,
    ) {
        match self {
            Self::Mirror(raid) => raid.read_failed(position, fault, cx),
            Self::Parity(raid) => raid.read_failed(first, position, fault, cx),
            Self::Single(_) | Self::Striped(_) => {}
        }
    }

    /// Handles a part of a member request that is done or was given up.
    #[inline(always)]
    pub(crate) fn part_done(
        &mut self,
        part: CompletionTarget,
        answer: Answer,
        cx: &mut Cx<'_>,
    ) -> PartOutcome {
        each!(self, raid => raid.part_done(part, answer, cx))
    }

    /// Frees the memory that a part of a given-up member request still used. Returns the request
    /// that owns the memory; `None` if it was the personality's own.
    pub(crate) fn part_freed(&mut self, part: CompletionTarget) -> Option<RequestId> {
        match self {
            Self::Mirror(raid) => raid.part_freed(part),
            Self::Parity(raid) => raid.part_freed(part),
            Self::Single(_) | Self::Striped(_) => StraightPart::of(part).map(|part| part.request),
        }
    }

    /// Handles a finished computation.
    pub(crate) fn compute_done(
        &mut self,
        job: JobId,
        value: &Result<Value, Fault>,
        cx: &mut Cx<'_>,
    ) {
        match self {
            Self::Mirror(raid) => raid.compute_done(job, value, cx),
            Self::Parity(raid) => raid.compute_done(job, value, cx),
            Self::Single(_) | Self::Striped(_) => unreachable!("nothing is computed"),
        }
    }

    /// Handles a member's answer for a discard of a request.
    pub(crate) fn discard_done(
        &mut self,
        request: RequestId,
        position: Option<usize>,
        result: Result<(), Fault>,
        cx: &mut Cx<'_>,
    ) {
        each!(self, raid => raid.discard_done(request, position, result, cx));
    }

    /// Events that the volume has not yet taken.
    #[inline]
    pub(crate) fn events(&mut self) -> &mut Vec<Event> {
        each!(self, raid => raid.events())
    }

    // Reads that are given up.

    /// Whether the data of a read can be had in another way if the read is given up.
    pub(crate) fn gains_by_giving_up(&self, part: CompletionTarget, array: ArrayView<'_>) -> bool {
        match self {
            Self::Mirror(raid) => raid.gains_by_giving_up(part, array),
            Self::Parity(raid) => raid.gains_by_giving_up(part, array),
            Self::Single(_) | Self::Striped(_) => false,
        }
    }

    /// Number of reads of the stripe of `first` that were given up before because a member was
    /// slow; 0 without a stripe cache.
    pub(crate) fn given_up(&self, first: CompletionTarget) -> u8 {
        cached!(self, raid => raid.given_up(first), 0)
    }

    /// Parts to report in place of `parts` when their member request is given up; `None`: `parts`
    /// themselves.
    pub(crate) fn parts_given_up(
        &self,
        parts: &[CompletionTarget],
    ) -> Option<Vec<CompletionTarget>> {
        cached!(self, raid => raid.parts_given_up(parts), None)
    }

    // Turns.

    /// Begins a turn: wakes requests that wait for stripes before a resync takes the free ones.
    pub(crate) fn begin_turn(&mut self, cx: &mut Cx<'_>) {
        cached!(self, raid => raid.begin_turn(cx), ());
    }

    /// Splits waiting requests; while the volume quiesces, only requests that are partly split.
    pub(crate) fn split_waiting(&mut self, quiesces: bool, cx: &mut Cx<'_>) {
        match self {
            Self::Mirror(raid) => raid.split_waiting(cx),
            Self::Parity(raid) => raid.split_waiting(quiesces, cx),
            Self::Single(_) | Self::Striped(_) => {}
        }
    }

    /// Fails requests to a broken array that wait for stripes which will never become free.
    pub(crate) fn end_vain_waits(&mut self, now: Time) {
        cached!(self, raid => raid.end_vain_waits(now), ());
    }

    /// Handles at most `stripes_max` stripes and returns how many it handled.
    pub(crate) fn turn(&mut self, stripes_max: u32, cx: &mut Cx<'_>) -> u32 {
        cached!(self, raid => raid.turn(stripes_max, cx), 0)
    }

    /// Ends a turn: continues discards, and starts the wait of delayed stripes.
    pub(crate) fn end_turn(&mut self, sync: Option<&Resync>, cx: &mut Cx<'_>) {
        cached!(self, raid => raid.end_turn(sync, cx), ());
    }

    /// Whether another turn has work to do at `now`.
    pub(crate) fn has_work(
        &self,
        quiesces: bool,
        sync: Option<&Resync>,
        (array, knobs): (ArrayView<'_>, &Knobs),
        now: Time,
    ) -> bool {
        match self {
            Self::Mirror(raid) => raid.has_work(),
            Self::Parity(raid) => raid.has_work(quiesces, sync, (array, knobs), now),
            Self::Single(_) | Self::Striped(_) => false,
        }
    }

    /// Time at which the personality needs a turn if no other event comes; `None`: not at all.
    pub(crate) fn next_wake(&self, array: ArrayView<'_>, knobs: &Knobs) -> Option<Time> {
        cached!(self, raid => raid.next_wake(array, knobs), None)
    }

    // Resync.

    /// Whether writes that were submitted are held back while the failure of a member is not
    /// recorded.
    #[inline]
    pub(crate) fn holds_writes(&self) -> bool {
        cached!(self, _raid => true, false)
    }

    /// Whether P and Q can locate the wrong strip of a stripe.
    pub(crate) fn locates(&self) -> bool {
        cached!(self, raid => raid.locates(), false)
    }

    /// Unit, size and effect of a resync, recovery, check or repair.
    pub(crate) fn resync_pass(
        &self,
        action: SyncAction,
        array: ArrayView<'_>,
        knobs: &Knobs,
    ) -> Pass {
        match self {
            Self::Mirror(raid) => raid.resync_pass(action, array),
            Self::Parity(raid) => raid.resync_pass(array, knobs),
            Self::Single(_) | Self::Striped(_) => unreachable!("there is no redundancy"),
        }
    }

    /// Starts the next units of a resync, as far as there is memory.
    pub(crate) fn feed(&mut self, sync: &mut Resync, array: ArrayView<'_>) {
        match self {
            Self::Mirror(raid) => raid.feed(sync, array),
            Self::Parity(raid) => raid.feed(sync),
            Self::Single(_) | Self::Striped(_) => {}
        }
    }

    /// Whether [`Personality::feed`] would start a unit.
    pub(crate) fn would_feed(&self, sync: &Resync) -> bool {
        match self {
            Self::Mirror(raid) => raid.would_feed(sync),
            Self::Parity(raid) => raid.would_feed(sync),
            Self::Single(_) | Self::Striped(_) => false,
        }
    }

    /// Tells part number `part` of the personality that its range is locked ([`Event::Lock`]);
    /// `request` holds the lock.
    pub(crate) fn locked(&mut self, part: u32, request: RequestId, cx: &mut Cx<'_>) {
        match self {
            Self::Mirror(raid) => raid.locked(part, request, cx),
            Self::Parity(_) | Self::Single(_) | Self::Striped(_) => {
                unreachable!("only mirrors lock ranges")
            }
        }
    }

    // Space.

    /// Whether strips or copies are not written because a member had no space.
    pub(crate) fn has_deferred(&self) -> bool {
        match self {
            Self::Mirror(raid) => raid.has_deferred(),
            Self::Parity(raid) => raid.has_deferred(),
            Self::Single(_) | Self::Striped(_) => false,
        }
    }

    /// Tries again to write the strips or copies that members had no space for.
    pub(crate) fn write_deferred(&mut self, cx: &mut Cx<'_>) {
        match self {
            Self::Mirror(raid) => raid.write_deferred(cx),
            Self::Parity(raid) => raid.write_deferred(cx),
            Self::Single(_) | Self::Striped(_) => {}
        }
    }

    /// Whether members had no space and no write has shown since then that they have some.
    #[inline]
    pub(crate) fn is_unproven(&self) -> bool {
        match self {
            Self::Mirror(raid) => raid.is_unproven(),
            Self::Parity(_) | Self::Single(_) | Self::Striped(_) => false,
        }
    }

    // Knobs and states.

    /// Whether the new value of a knob can only be set when nothing is in use.
    pub(crate) fn sets_when_quiet(&self, knob: Knob) -> bool {
        cached!(self, raid => raid.sets_when_quiet(knob), false)
    }

    /// Checks the new value of a knob for which [`Personality::sets_when_quiet`] is true; `knobs`
    /// already contain the value.
    ///
    /// # Errors
    /// The volume is busy, or the value does not fit into the memory of the volume.
    pub(crate) fn check(&self, knob: Knob, knobs: &Knobs, busy: Busy) -> Result<(), ReplyError> {
        cached!(self, raid => raid.check(knob, knobs, busy), Ok(()))
    }

    /// Sets a knob that [`Personality::check`] accepted. No stripe is in use.
    pub(crate) fn apply(&mut self, knob: Knob, array: ArrayView<'_>, knobs: &Knobs) {
        cached!(self, raid => raid.apply(knob, array, knobs), ());
    }

    /// Whether no stripe is in use, and no request that is partly split waits for one.
    pub(crate) fn is_quiet(&self) -> bool {
        cached!(self, raid => raid.is_quiet(), true)
    }

    /// Whether requests wait for a stripe.
    pub(crate) fn starves(&self) -> bool {
        cached!(self, raid => raid.starves(), false)
    }

    /// Whether every stripe is in use.
    pub(crate) fn is_full(&self) -> bool {
        cached!(self, raid => raid.is_full(), false)
    }

    /// Counters for people and tests.
    pub(crate) fn snapshot(&self) -> RaidSnapshot {
        cached!(self, raid => raid.snapshot(), RaidSnapshot::default())
    }

    /// Number of stripes of the stripe cache in use.
    pub(crate) fn stripe_cache_active(&self) -> u32 {
        cached!(self, raid => raid.stripe_cache_active(), 0)
    }

    /// Number of stripes of the stripe cache in use, by state.
    pub(crate) fn stripes_in_use(&self) -> StripesInUse {
        cached!(self, raid => raid.stripes_in_use(), StripesInUse::default())
    }
}

#[cfg(test)]
mod tests;
