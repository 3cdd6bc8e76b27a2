//! Personality of a volume: what a level can be asked, behind one closed enum.
//!
//! The methods are those of four traits, which each level implements: a method with a body here is
//! one that a level may leave out. A level without a stripe cache, for example, sends each request
//! on as it arrives, and leaves out all that is about stripes. The macro `levels!` declares a trait
//! and passes its methods on to the level of a [`Personality`], without dynamic dispatch.

use weft_units::{ByteRange, Bytes, Sectors, Time};

use super::mirror::Mirror;
use super::parity::streams::WriteStream;
use super::single::Single;
use super::straight::StraightPart;
use super::striped::Striped;
use super::{
    Answer, ArrayIo, ArrayView, Busy, Cx, Event, ParityRaid, PartOutcome, StripeMemory, clear,
};
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

impl Personality {
    /// Creates the personality for the members in `config`.
    pub(crate) fn new(memory: StripeMemory, config: &VolumeConfig) -> Self {
        match &config.source {
            VolumeSource::Array(assembly) => match &assembly.layout {
                Layout::Mirrors(places) => {
                    Self::Mirror(Box::new(Mirror::new(memory, places.clone())))
                }
                Layout::Parity(geometry) => {
                    Self::Parity(Box::new(ParityRaid::new(memory, geometry, &config.knobs)))
                }
                Layout::Striped(places) => Self::Striped(Box::new(Striped::new(places.clone()))),
            },
            VolumeSource::Single { .. } => Self::Single(Box::default()),
        }
    }
}

/// Calls a method of the level.
macro_rules! each {
    ($personality:expr, $raid:ident => $call:expr) => {
        match $personality {
            Self::Mirror($raid) => $call,
            Self::Parity($raid) => $call,
            Self::Single($raid) => $call,
            Self::Striped($raid) => $call,
        }
    };
}

/// Declares a trait of levels, and passes its methods on from [`Personality`].
macro_rules! levels {
    ($(#[$attr:meta])* trait $trait:ident { $($methods:tt)* }) => {
        $(#[$attr])*
        #[allow(unused_variables, reason = "most defaults need no arguments")]
        pub(super) trait $trait { $($methods)* }

        impl Personality { pass_on! { $($methods)* } }
    };
}

/// Defines each method as a call of the level's method of that name. Methods that every level has
/// are those of the hot path.
macro_rules! pass_on {
    () => {};
    (
        $(#[$attr:meta])*
        fn $name:ident($($params:tt)*) $(-> $result:ty)?;
        $($rest:tt)*
    ) => {
        call! { $(#[$attr])* #[inline(always)] fn $name($($params)*) $(-> $result)?; }
        pass_on! { $($rest)* }
    };
    (
        $(#[$attr:meta])*
        fn $name:ident($($params:tt)*) $(-> $result:ty)? $default:block
        $($rest:tt)*
    ) => {
        call! { $(#[$attr])* #[inline] fn $name($($params)*) $(-> $result)?; }
        pass_on! { $($rest)* }
    };
}

/// Defines a method as a call of the level's method of that name.
macro_rules! call {
    (
        $(#[$attr:meta])*
        fn $name:ident(&mut $this:ident $(, $arg:ident: $type:ty)*) $(-> $result:ty)?;
    ) => {
        $(#[$attr])*
        pub(crate) fn $name(&mut $this $(, $arg: $type)*) $(-> $result)? {
            each!($this, raid => raid.$name($($arg),*))
        }
    };
    (
        $(#[$attr:meta])*
        fn $name:ident(&$this:ident $(, $arg:ident: $type:ty)*) $(-> $result:ty)?;
    ) => {
        $(#[$attr])*
        pub(crate) fn $name(&$this $(, $arg: $type)*) $(-> $result)? {
            each!($this, raid => raid.$name($($arg),*))
        }
    };
}

levels! {
    /// Client requests, from their arrival to their answer.
    trait Requests {
        /// Member position and data sector at which a member can serve a read or write unchanged,
        /// as one request for which the volume keeps no state and no order. `None` if there is no
        /// such member. `is_written` tells whether an unanswered write overlaps the range.
        fn passes(
            &mut self,
            range: ByteRange,
            writes: bool,
            is_written: impl FnOnce() -> bool,
            array: ArrayView<'_>
        ) -> Option<(usize, Sectors)> {
            None
        }

        /// Whether another member may have the data of a passed read that failed.
        fn has_copies(&self) -> bool {
            false
        }

        /// Stream of an arriving write, and whether it will bring the rest of the stripe.
        /// `before_answer` tells whether the write begins where an unanswered write ends.
        fn arrives(
            &mut self,
            range: ByteRange,
            before_answer: impl FnOnce() -> bool,
            knobs: &Knobs,
            now: Time
        ) -> WriteStream {
            WriteStream::default()
        }

        /// Sends a read to its members without waiting for a turn. Returns its number of
        /// sub-requests; `None` if the read has to go through [`Personality::submit`].
        fn read_straight(&mut self, io: &ArrayIo, cx: &mut Cx<'_>) -> Option<u64> {
            None
        }

        /// Takes a request in a turn. Returns the number of pending sub-requests, plus
        /// [`SPLITTING`](super::SPLITTING) if it is not completely split yet; an [`Event::Split`]
        /// follows then.
        fn submit(&mut self, io: &ArrayIo, cx: &mut Cx<'_>) -> u64;

        /// Drops a request that failed before it was submitted.
        fn skip(&mut self, io: &ArrayIo, now: Time) {}

        /// Reads a part that failed to be read ([`PartOutcome::ReadFailed`]) in another way: from
        /// another copy or by reconstruction. The request counts as being split again. `asked`: a
        /// member was asked for it and failed.
        fn read_again(&mut self, part: StraightPart, io: &ArrayIo, asked: bool) {
            unreachable!("no other member has the data")
        }

        /// Notes that another request waits for this write: its stripes stop waiting for more data
        /// soon.
        fn hurry(&mut self, io: &ArrayIo, now: Time) {}

        /// Notes that a sub-request of a request failed: sub-requests that are not sent yet can be
        /// dropped.
        fn request_failed(&mut self, id: RequestId) {}

        /// Notes that a write of `len` bytes in a stream was answered.
        fn answered(&mut self, stream: WriteStream, len: Bytes) {}

        /// Splits waiting requests; while the volume quiesces, only requests that are partly split.
        fn split_waiting(&mut self, quiesces: bool, cx: &mut Cx<'_>) {}

        /// Fails requests to a broken array that wait for stripes which will never become free.
        fn end_vain_waits(&mut self, now: Time) {}

        /// Whether no stripe is in use, and no request that is partly split waits for one.
        fn is_quiet(&self) -> bool {
            true
        }
    }
}

levels! {
    /// Requests that end in discards of the members.
    trait Discards {
        /// Part of a request's range that members are told to discard; `None` if there is none.
        fn to_discard(&self, request: &ClientRequest, array: ArrayView<'_>) -> Option<ByteRange> {
            clear::to_discard(request, array)
        }

        /// Handles a member's answer for a discard of a request.
        fn discard_done(
            &mut self,
            request: RequestId,
            position: Option<usize>,
            result: Result<(), Fault>,
            cx: &mut Cx<'_>
        );
    }
}

levels! {
    /// Commands, and knobs whose values a level cannot take at any time.
    trait Settings {
        /// Error for a command that does not apply to the personality; `None` if it does.
        fn refuses(&self, verb: &Verb) -> Option<ReplyError> {
            None
        }

        /// Whether the new value of a knob can only be set when nothing is in use.
        fn sets_when_quiet(&self, knob: Knob) -> bool {
            false
        }

        /// Checks the new value of a knob for which [`Personality::sets_when_quiet`] is true;
        /// `knobs` already contain the value.
        ///
        /// # Errors
        /// The volume is busy, or the value does not fit into the memory of the volume.
        fn check(&self, knob: Knob, knobs: &Knobs, busy: Busy) -> Result<(), ReplyError> {
            Ok(())
        }

        /// Sets a knob that [`Personality::check`] accepted. No stripe is in use.
        fn apply(&mut self, knob: Knob, array: ArrayView<'_>, knobs: &Knobs) {}
    }
}

levels! {
    /// A level: its answers of members, turns, resyncs and states.
    trait RaidLevel {
        // Answers.

        /// Handles the error of a member read. `first` is the first part of the read; this is
        /// called once, before [`Personality::part_done`] is called for each part.
        #[cold]
        fn read_failed(
            &mut self,
            first: CompletionTarget,
            position: Option<usize>,
            fault: Fault,
            cx: &mut Cx<'_>
        ) {
        }

        /// Handles a part of a member request that is done or was given up.
        fn part_done(
            &mut self,
            part: CompletionTarget,
            answer: Answer,
            cx: &mut Cx<'_>
        ) -> PartOutcome;

        /// Frees the memory that a part of a given-up member request still used. Returns the
        /// request that owns the memory; `None` if it was the personality's own.
        fn part_freed(&mut self, part: CompletionTarget) -> Option<RequestId> {
            StraightPart::of(part).map(|part| part.request)
        }

        /// Handles a finished computation.
        fn compute_done(
            &mut self,
            job: JobId,
            value: &Result<Value, Fault>,
            cx: &mut Cx<'_>
        ) {
            unreachable!("nothing is computed")
        }

        /// Events that the volume has not yet taken.
        fn events(&mut self) -> &mut Vec<Event>;

        // Reads that are given up.

        /// Whether the data of a read can be had in another way if the read is given up.
        fn gains_by_giving_up(&self, part: CompletionTarget, array: ArrayView<'_>) -> bool {
            false
        }

        /// Number of reads of the stripe of `first` that were given up because a member was slow,
        /// since the stripe cache last reused it; 0 without a stripe cache, and for other targets.
        fn given_up(&self, first: CompletionTarget) -> u8 {
            0
        }

        /// Parts to report in place of `parts` when their member request is given up; `None`:
        /// `parts` themselves.
        fn parts_given_up(&self, parts: &[CompletionTarget]) -> Option<Vec<CompletionTarget>> {
            None
        }

        // Turns.

        /// Begins a turn: wakes requests that wait for stripes before a resync takes the free ones.
        fn begin_turn(&mut self, cx: &mut Cx<'_>) {}

        /// Handles at most `stripes_max` stripes and returns how many it handled.
        fn turn(&mut self, stripes_max: u32, cx: &mut Cx<'_>) -> u32 {
            0
        }

        /// Ends a turn: continues discards, and starts the wait of delayed stripes.
        fn end_turn(&mut self, sync: Option<&Resync>, cx: &mut Cx<'_>) {}

        /// Whether another turn has work to do at `now`.
        fn has_work(
            &self,
            quiesces: bool,
            sync: Option<&Resync>,
            settings: (ArrayView<'_>, &Knobs),
            now: Time
        ) -> bool {
            false
        }

        /// Time at which the personality needs a turn if no other event comes; `None`: not at all.
        fn next_wake(&self, array: ArrayView<'_>, knobs: &Knobs) -> Option<Time> {
            None
        }

        // Resync.

        /// Whether writes that were submitted are held back while the failure of a member is not
        /// recorded.
        fn holds_writes(&self) -> bool {
            false
        }

        /// Whether P and Q can locate the wrong strip of a stripe.
        fn locates(&self) -> bool {
            false
        }

        /// Unit, size and effect of a resync, recovery, check or repair.
        fn resync_pass(&self, action: SyncAction, array: ArrayView<'_>, knobs: &Knobs) -> Pass {
            unreachable!("there is no redundancy")
        }

        /// Starts the next units of a resync, as far as there is memory.
        fn feed(&mut self, sync: &mut Resync, array: ArrayView<'_>) {}

        /// Whether [`Personality::feed`] would start a unit.
        fn would_feed(&self, sync: &Resync) -> bool {
            false
        }

        /// Tells part number `part` of the personality that its range is locked ([`Event::Lock`]);
        /// `request` holds the lock.
        fn locked(&mut self, part: u32, request: RequestId, cx: &mut Cx<'_>) {
            unreachable!("only mirrors lock ranges")
        }

        // Space.

        /// Whether strips or copies are not written because a member had no space.
        fn has_deferred(&self) -> bool {
            false
        }

        /// Tries again to write the strips or copies that members had no space for.
        fn write_deferred(&mut self, cx: &mut Cx<'_>) {}

        /// Whether members had no space and no write has shown since then that they have some.
        fn is_unproven(&self) -> bool {
            false
        }

        // States.

        /// Whether requests wait for a stripe.
        fn starves(&self) -> bool {
            false
        }

        /// Whether every stripe is in use.
        fn is_full(&self) -> bool {
            false
        }

        /// Counters for people and tests.
        fn snapshot(&self) -> RaidSnapshot {
            RaidSnapshot::default()
        }

        /// Number of stripes of the stripe cache in use.
        fn stripe_cache_active(&self) -> u32 {
            0
        }

        /// Number of stripes of the stripe cache in use, by state.
        fn stripes_in_use(&self) -> StripesInUse {
            StripesInUse::default()
        }
    }
}
