//! Personality of a volume: the operations of a RAID level, behind one closed enum.
//!
//! The methods belong to four traits, which each level implements. A method with a body here is
//! optional: a level without a stripe cache, for example, sends each request on as it arrives, and
//! leaves out all methods about stripes. The macro `levels!` declares a trait and forwards its
//! methods to the level of a [`Personality`], without dynamic dispatch.

use weft_units::{ByteRange, Bytes, Sectors, Time};

use super::mirror::Mirror;
use super::parity::streams::WriteStream;
use super::reshape::Reshape;
use super::single::Single;
use super::straight::StraightPart;
use super::striped::Striped;
use super::{
    Answer, ArrayIo, ArrayView, Busy, Cx, Event, ParityRaid, PartOutcome, StripeMemory, clear,
};
use crate::array::outbox::{CompletionTarget, JobId};
use crate::array::resync_window::{Pass, Resync};
use crate::assemble::Reshaping;
use crate::config::{VolumeConfig, VolumeSource};
use crate::contract::error::ReplyError;
use crate::contract::input::{ClientRequest, Fault, SyncAction, Value, Verb};
use crate::contract::snapshot::{RaidSnapshot, StripesInUse};
use crate::contract::token::RequestId;
use crate::knobs::{Knob, Knobs};
use crate::layout::Layout;
use crate::layout::geometry::Geometry;

/// Personality of a volume: how its level carries out requests.
#[derive(Clone, Debug)]
pub(crate) enum Personality {
    /// RAID 1 and 10.
    Mirror(Box<Mirror>),
    /// RAID 4, 5 and 6.
    Parity(Box<ParityRaid>),
    /// One member without metadata.
    Single(Box<Single>),
    /// RAID 4, 5 and 6 during a reshape.
    Reshape(Box<Reshape>),
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
                Layout::Parity(before) => match &assembly.reshape {
                    Some(reshape) => Self::reshape(memory, before, reshape, &config.knobs),
                    None => Self::parity(memory, before, &config.knobs),
                },
                Layout::Striped(places) => Self::Striped(Box::new(Striped::new(places.clone()))),
            },
            VolumeSource::Single { .. } => Self::Single(Box::default()),
        }
    }

    /// The personality of a level with parity.
    pub(crate) fn parity(memory: StripeMemory, geometry: &Geometry, knobs: &Knobs) -> Self {
        Self::Parity(Box::new(ParityRaid::new(memory, geometry, knobs)))
    }

    /// Smallest number of frames that a volume needs to be reshaped.
    pub(crate) fn frames_to_reshape(before: &Geometry, after: &Geometry, knobs: &Knobs) -> u32 {
        Reshape::frames_min(before, after, knobs)
    }

    /// The personality of an array that is being reshaped from the geometry `before`.
    pub(crate) fn reshape(
        memory: StripeMemory,
        before: &Geometry,
        reshape: &Reshaping,
        knobs: &Knobs,
    ) -> Self {
        let Reshaping { after, position, .. } = reshape;
        Self::Reshape(Box::new(Reshape::new(memory, (before, after), *position, knobs)))
    }
}

/// Calls a method on whichever level the [`Personality`] contains.
macro_rules! each {
    ($personality:expr, $raid:ident => $call:expr) => {
        match $personality {
            Self::Mirror($raid) => $call,
            Self::Parity($raid) => $call,
            Self::Reshape($raid) => $call,
            Self::Single($raid) => $call,
            Self::Striped($raid) => $call,
        }
    };
}

/// Declares a trait that levels implement, and forwards its methods from [`Personality`].
macro_rules! levels {
    ($(#[$attr:meta])* trait $trait:ident { $($methods:tt)* }) => {
        $(#[$attr])*
        #[allow(unused_variables, reason = "most defaults need no arguments")]
        pub(super) trait $trait { $($methods)* }

        impl Personality { pass_on! { $($methods)* } }
    };
}

/// Defines each method of [`Personality`] as a call of the level's method of that name. The methods
/// without a default are on the hot path.
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
        /// Position and data sector of a member that can serve this read or write unchanged, in one
        /// request for which the volume keeps no state and no order. `None` if there is no such
        /// member. `is_written` returns whether an unanswered write overlaps the range.
        fn passes(
            &mut self,
            range: ByteRange,
            writes: bool,
            is_written: impl FnOnce() -> bool,
            array: ArrayView<'_>
        ) -> Option<(usize, Sectors)> {
            None
        }

        /// Whether another member may hold the data of a failed read that [`Personality::passes`]
        /// had sent unchanged.
        fn has_copies(&self) -> bool {
            false
        }

        /// Stream to which an arriving write belongs, and whether the stream will bring the rest of
        /// the write's stripe. `before_answer` returns whether the write begins where an unanswered
        /// write ends.
        fn arrives(
            &mut self,
            range: ByteRange,
            before_answer: impl FnOnce() -> bool,
            knobs: &Knobs,
            now: Time
        ) -> WriteStream {
            WriteStream::default()
        }

        /// Sends a read to its members at once, without waiting for the next turn of the volume.
        /// Returns its number of sub-requests; `None` if the read has to go through
        /// [`Personality::submit`].
        fn read_straight(&mut self, io: &ArrayIo, cx: &mut Cx<'_>) -> Option<u64> {
            None
        }

        /// Takes a request during a turn of the volume. Returns the number of pending sub-requests,
        /// plus [`SPLITTING`](super::SPLITTING) if the request is not completely split yet; an
        /// [`Event::Split`] follows in that case.
        fn submit(&mut self, io: &ArrayIo, cx: &mut Cx<'_>) -> u64;

        /// Drops a request that failed before it was submitted.
        fn skip(&mut self, io: &ArrayIo, now: Time) {}

        /// Reads the data of `part`, which failed to be read ([`PartOutcome::ToRepeat`]), from
        /// another copy or by reconstruction. The request counts as being split again. `asked` is
        /// true if a member was asked for the data and failed.
        fn repeat(&mut self, part: StraightPart, io: &ArrayIo, asked: bool) {
            unreachable!("no other member has the data")
        }

        /// Reports that another request waits for the write `io`: its stripes stop waiting for more
        /// data soon.
        fn hurry(&mut self, io: &ArrayIo, now: Time) {}

        /// Reports that a sub-request of request `id` failed: sub-requests that are not sent yet
        /// can be dropped.
        fn request_failed(&mut self, id: RequestId) {}

        /// Reports that a write of `len` bytes that belongs to `stream` was answered.
        fn answered(&mut self, stream: WriteStream, len: Bytes) {}

        /// Attaches more of the waiting requests to stripes, or repeats reads that wait for another
        /// copy. While the volume quiesces, only requests that are partly attached are continued.
        fn split_waiting(&mut self, quiesces: bool, cx: &mut Cx<'_>) {}

        /// Fails the requests to a broken array that wait for stripes which will never become free.
        fn end_vain_waits(&mut self, now: Time) {}

        /// Whether no stripe is in use, and no partly split request waits for a stripe; for
        /// mirrors, whether no range is being synced and no read or write of a copy is to be
        /// repeated.
        fn is_quiet(&self) -> bool {
            true
        }

        /// Whether requests wait to be split, or are carried out past the stripe cache.
        fn has_waiting(&self) -> bool {
            false
        }
    }
}

levels! {
    /// Methods for requests of which the members are told to discard a part.
    trait Discards {
        /// Part of a request's range that the members are told to discard; `None` if there is no
        /// such part.
        fn to_discard(&self, request: &ClientRequest, array: ArrayView<'_>) -> Option<ByteRange> {
            clear::to_discard(request, array)
        }

        /// Handles the answer of the member at `position` to a discard; `None`: the member has
        /// left.
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
    /// Commands, and knobs that a level can only set under conditions.
    trait Settings {
        /// Error for a command that does not apply to the personality; `None` if it does.
        fn refuses(&self, verb: &Verb) -> Option<ReplyError> {
            None
        }

        /// Whether a new value of this knob can only be applied while no stripe is in use.
        fn sets_when_quiet(&self, knob: Knob) -> bool {
            false
        }

        /// Checks the new value of a knob for which [`Personality::sets_when_quiet`] is true.
        /// `knobs` already contains the new value.
        ///
        /// # Errors
        /// The volume is busy, or the value does not fit into the memory of the volume.
        fn check(&self, knob: Knob, knobs: &Knobs, busy: Busy) -> Result<(), ReplyError> {
            Ok(())
        }

        /// Switches to another layout, in which all data that the array holds keeps its place. No
        /// stripe is in use.
        fn resize(&mut self, layout: &Layout) {
            unreachable!("only mirrors and parity are resized")
        }

        /// Sets a knob that [`Personality::check`] accepted. No stripe is in use.
        fn apply(&mut self, knob: Knob, array: ArrayView<'_>, knobs: &Knobs) {}
    }
}

levels! {
    /// All methods of a level that are not in another trait: answers of members, turns of the
    /// volume, syncs, and queries of its state.
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

        /// Handles a part of a member request that is done or that was given up. Returns the
        /// consequence for the client request to which the part belongs.
        fn part_done(
            &mut self,
            part: CompletionTarget,
            answer: Answer,
            cx: &mut Cx<'_>
        ) -> PartOutcome;

        /// Releases the memory that `part` of a given-up member request still used. Returns the
        /// client request that owns the memory; `None` if the memory is the personality's own.
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

        /// Whether the data of a read can be obtained without its member, so that it is worth
        /// giving the read up.
        fn gains_by_giving_up(&self, part: CompletionTarget, array: ArrayView<'_>) -> bool {
            false
        }

        /// For a read of a stripe, the number of reads of that stripe which were given up because a
        /// member was slow, since the stripe cache last reused the stripe. Zero for all other
        /// reads, and without a stripe cache. `first` is the first part of the read.
        fn given_up(&self, first: CompletionTarget) -> u8 {
            0
        }

        /// Parts to report instead of `parts` when their member request is given up; `None` if
        /// `parts` are to be reported unchanged.
        fn parts_given_up(&self, parts: &[CompletionTarget]) -> Option<Vec<CompletionTarget>> {
            None
        }

        // Turns.

        /// Begins a turn: wakes requests that wait for stripes before a resync takes the free ones.
        fn begin_turn(&mut self, cx: &mut Cx<'_>) {}

        /// Takes the next step of waiting stripes, and returns the number of stripes handled.
        /// Stripes are picked at most `stripes_max` times, each time one or a run of adjacent ones.
        fn turn(&mut self, stripes_max: u32, cx: &mut Cx<'_>) -> u32 {
            0
        }

        /// Ends a turn: sends the next steps of discards, and starts the wait of stripes that were
        /// delayed.
        fn end_turn(&mut self, sync: Option<&Resync>, cx: &mut Cx<'_>) {}

        /// Whether a turn at `now` would have work to do.
        fn has_work(
            &self,
            quiesces: bool,
            sync: Option<&Resync>,
            settings: (ArrayView<'_>, &Knobs),
            now: Time
        ) -> bool {
            false
        }

        /// Time at which the personality needs a turn if no other event comes before; `None` if it
        /// needs none.
        fn next_wake(&self, array: ArrayView<'_>, knobs: &Knobs) -> Option<Time> {
            None
        }

        // Resync.

        /// Whether submitted writes are held back while the failure of a member is not recorded.
        fn holds_writes(&self) -> bool {
            false
        }

        /// Whether P and Q can locate the wrong strip of a stripe, or a vote the wrong copy.
        fn locates(&self) -> bool {
            false
        }

        /// Extent and effect of a sync with the given action on an array of this level.
        fn resync_pass(&self, action: SyncAction, array: ArrayView<'_>, knobs: &Knobs) -> Pass {
            unreachable!("there is no redundancy")
        }

        /// Starts to sync the next stripes, or sections of a mirror, as many as there is memory
        /// for.
        fn feed(&mut self, sync: &mut Resync, array: ArrayView<'_>) {}

        /// Whether [`Personality::feed`] would start a unit.
        fn would_feed(&self, sync: &Resync) -> bool {
            false
        }

        /// Reports that the range for which part number `part` of the personality asked with
        /// [`Event::Lock`] is locked. `request` holds the lock.
        fn locked(&mut self, part: u32, request: RequestId, cx: &mut Cx<'_>) {
            unreachable!("only mirrors lock ranges")
        }

        // Space.

        /// Whether some strips or copies are still unwritten because a member had no space for
        /// them.
        fn has_deferred(&self) -> bool {
            false
        }

        /// Tries again to write the strips or copies for which members had no space.
        fn write_deferred(&mut self, cx: &mut Cx<'_>) {}

        /// Whether some member had no space for a write, and no later write has shown that it has
        /// space again.
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

        /// Counters of the level, for the status report and for tests.
        fn snapshot(&self) -> RaidSnapshot {
            RaidSnapshot::default()
        }

        /// Number of stripe-cache entries in use.
        fn stripe_cache_active(&self) -> u32 {
            0
        }

        /// Number of stripe-cache entries in use, by state.
        fn stripes_in_use(&self) -> StripesInUse {
            StripesInUse::default()
        }
    }
}
