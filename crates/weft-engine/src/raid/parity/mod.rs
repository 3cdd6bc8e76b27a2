//! RAID 4, 5 and 6: a stripe cache, and one explicit plan per stripe.

pub(crate) mod cache;
mod discard;
mod index;
mod list;
pub mod plan;
mod priority;
mod read_straight;
mod settings;
mod split;
pub(crate) mod streams;
mod stripe;
mod stripe_part;
mod stripe_size;
pub(crate) mod stripes;

use std::collections::VecDeque;

use weft_units::{Sectors, Span, StripeId, Time};

use self::cache::{Acquired, Cache, Picked};
use self::discard::Discard;
use self::priority::PrioritySettings;
use self::split::{ReRead, SplitRequest};
use self::streams::Streams;
pub(crate) use self::stripe::SubRequest;
use self::stripe_part::{StripIo, StripePart};
use self::stripes::Stripes;
use super::personality::RaidLevel;
use super::{Answer, ArrayView, Cx, Event, PartOutcome};
use crate::array::outbox::{CompletionTarget, JobId};
use crate::array::resync_window::{Pass, Resync, Settles};
use crate::contract::frame::Frame;
use crate::contract::input::{Fault, SyncAction, Value};
use crate::contract::snapshot::{RaidSnapshot, StripesInUse};
use crate::contract::token::RequestId;
use crate::knobs::{Knobs, WAITS_WITHOUT_BOUND};
use crate::layout::geometry::Geometry;
use crate::mutant::Mutant;

/// Personality of RAID 4, 5 and 6: the stripe cache of a volume, the requests that wait for
/// stripes, and the write streams that may fill stripes.
#[derive(Clone, Debug)]
pub(crate) struct ParityRaid {
    geometry: Geometry,
    memory: StripeMemory,
    stripes: Stripes,
    streams: Streams,
    /// Discards of full stripes in progress, one per client request.
    discards: Vec<Discard>,
    /// Requests that can be attached to stripes in this turn.
    ready: VecDeque<SplitRequest>,
    /// Requests that wait for a free stripe.
    starved: VecDeque<SplitRequest>,
    /// Parts of reads that have to go through the stripe cache, because a member could not supply
    /// them.
    rereads: VecDeque<ReRead>,
    /// Whether parts in `rereads` took stripes that the first request in `starved` needed: in the
    /// next turn that request goes before them.
    rereads_wait: bool,
    /// Stripes picked in the current turn. Empty between turns; the allocation is kept.
    picked: Vec<StripeId>,
}

/// Frames of a volume in which its stripe cache keeps the stripes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StripeMemory {
    pub(crate) first: Frame,
    pub(crate) frames: u32,
    /// Limit on the number of stripes, in addition to the limit that the knobs set; `None` for no
    /// such limit.
    pub(crate) stripes_max: Option<u32>,
}

impl ParityRaid {
    pub(crate) fn new(memory: StripeMemory, geometry: &Geometry, knobs: &Knobs) -> Self {
        Self {
            geometry: geometry.clone(),
            memory,
            stripes: memory.stripes(geometry, knobs),
            streams: Streams::default(),
            discards: Vec::new(),
            ready: VecDeque::new(),
            starved: VecDeque::new(),
            rereads: VecDeque::new(),
            rereads_wait: false,
            picked: Vec::new(),
        }
    }

    /// Whether a stripe below data sector `sector` of the members may still be written.
    pub(super) fn may_write_below(&self, sector: Sectors) -> bool {
        self.stripes.cache.may_write_below(sector)
    }

    /// Number of frames that one stripe takes.
    pub(super) fn stripe_frames(geometry: &Geometry, knobs: &Knobs) -> u32 {
        stripe_size::stripe_frames(knobs, geometry)
    }

    fn handle(&mut self, stripes_max: u32, cx: &mut Cx<'_>) -> u32 {
        let settings = self.priority(cx.knobs, cx.view());
        let Self { geometry, stripes, streams, picked, .. } = self;
        let (full_stripe, now) = (geometry.full_stripe_bytes(), cx.now());
        stripes.activate(&settings, geometry, now, |lacks| streams.moved(&lacks, full_stripe, now));
        // A turn ends after the longest possible request, so that members start on it while the
        // engine goes on.
        let most = (cx.knobs.max_sectors.0 / stripes.cache.strip_bytes()).max(1);
        let (mut picks, mut count) = (0, 0);
        while picks < stripes_max && count < most {
            let first = picked.len();
            let found = stripes.cache.pick(&settings, picked);
            if found == Picked::Nothing {
                break;
            }
            picks += 1;
            if found == Picked::Part {
                break;
            }
            if stripes.cache.policy().turn_is_one_request {
                let led = |id: &StripeId| 1 + stripes.cache.stripe(*id).followers();
                count += picked[first..].iter().map(led).sum::<u64>();
            }
        }
        assert!(picks <= stripes_max, "a turn is bounded");
        let mut handled = 0;
        while handled < picked.len() {
            handled += stripes.handle_first(&picked[handled..], cx);
        }
        picked.clear();
        handled as u32
    }

    /// Settings of stripe priority with the current knobs.
    #[inline]
    fn priority(&self, knobs: &Knobs, array: ArrayView<'_>) -> PrioritySettings {
        self.stripes.cache.policy().priority(knobs, wait_max(knobs, array))
    }
}

impl RaidLevel for ParityRaid {
    /// Handles the error of a member read. The error of a read past the stripe cache is counted
    /// here; a stripe counts the errors of its own reads.
    fn read_failed(
        &mut self,
        first: CompletionTarget,
        position: Option<usize>,
        fault: Fault,
        cx: &mut Cx<'_>,
    ) {
        match (StripePart::of(first), fault, position) {
            (StripePart::Straight(_), Fault::Gone, Some(position)) => {
                cx.lose(position);
            }
            (StripePart::Straight(_), _, Some(position)) => {
                cx.count_read_error(position);
            }
            _ => {}
        }
    }

    #[inline(always)]
    fn part_done(
        &mut self,
        part: CompletionTarget,
        answer: Answer,
        cx: &mut Cx<'_>,
    ) -> PartOutcome {
        match StripePart::of(part) {
            StripePart::Strip(part) => self.stripes.done(part, answer, cx),
            StripePart::Run(run) => self.stripes.run_done(run, answer, cx),
            StripePart::Strips(strips) => self.stripes.strips_done(strips, answer, cx),
            StripePart::Straight(part) if answer.given_up => {
                return PartOutcome::GivenUp(part.request);
            }
            StripePart::Straight(part) if answer.result.is_ok() => {
                return PartOutcome::Done(part.request);
            }
            StripePart::Straight(part) => {
                return PartOutcome::ToRepeat { part, asked: answer.member.is_some() };
            }
        }
        PartOutcome::Nothing
    }

    fn part_freed(&mut self, part: CompletionTarget) -> Option<RequestId> {
        match StripePart::of(part) {
            StripePart::Straight(part) => return Some(part.request),
            StripePart::Strip(part) => self.stripes.unpin(part),
            StripePart::Run(_) | StripePart::Strips(_) => {
                unreachable!("several stripes are given up one by one")
            }
        }
        None
    }

    #[inline]
    fn compute_done(&mut self, job: JobId, value: &Result<Value, Fault>, cx: &mut Cx<'_>) {
        self.stripes.computed(StripeId(job.0), value, cx);
    }

    #[inline]
    fn events(&mut self) -> &mut Vec<Event> {
        &mut self.stripes.events
    }

    fn gains_by_giving_up(&self, part: CompletionTarget, array: ArrayView<'_>) -> bool {
        match StripePart::of(part) {
            StripePart::Strip(part) => self.stripes.reads_around(part, array.membership()),
            StripePart::Strips(strips) => {
                let membership = array.membership();
                strips.each().any(|part| self.stripes.reads_around(part, membership))
            }
            StripePart::Run(_) | StripePart::Straight(_) => true,
        }
    }

    fn given_up(&self, first: CompletionTarget) -> u8 {
        match StripePart::of(first) {
            StripePart::Strip(part) => self.stripes.given_up(part.stripe),
            StripePart::Strips(strips) => self.stripes.given_up(strips.first),
            StripePart::Run(_) | StripePart::Straight(_) => 0,
        }
    }

    /// Parts to report instead of `parts`. A part of several stripes is reported stripe by stripe,
    /// because a batch may end before the member answers. `None` if no part is of several stripes.
    fn parts_given_up(&self, parts: &[CompletionTarget]) -> Option<Vec<CompletionTarget>> {
        let is_of_several =
            |part| matches!(StripePart::of(part), StripePart::Run(_) | StripePart::Strips(_));
        if !parts.iter().copied().any(is_of_several) {
            return None;
        }
        let mut each = Vec::new();
        for part in parts {
            match StripePart::of(*part) {
                StripePart::Run(run) => {
                    each.extend(self.stripes.parts_of(run).map(StripIo::target));
                }
                StripePart::Strips(strips) => each.extend(strips.each().map(StripIo::target)),
                StripePart::Straight(_) | StripePart::Strip(_) => each.push(*part),
            }
        }
        Some(each)
    }

    #[inline]
    fn begin_turn(&mut self, cx: &mut Cx<'_>) {
        self.stripes.cache.relieve_within(wait_max(cx.knobs, cx.view()), cx.now());
    }

    /// Takes the first steps of stripes that are handled at arrival, then picks stripes up to
    /// `stripes_max` times (each time one, or a run of adjacent ones) and takes the next step of
    /// each. Returns the number of stripes handled. As in md, no stripe is handled while a member
    /// failure is not recorded.
    #[inline]
    fn turn(&mut self, stripes_max: u32, cx: &mut Cx<'_>) -> u32 {
        let may_move = cx.view().is_known();
        let mut handled = self.stripes.release_plug(cx, may_move);
        if cx.view().is_known() {
            handled += self.handle(stripes_max, cx);
        }
        handled
    }

    /// Continues discards, and sets the plug for the stripes that were delayed in this turn.
    #[inline]
    fn end_turn(&mut self, sync: Option<&Resync>, cx: &mut Cx<'_>) {
        self.run_discards(sync, cx);
        let settings = self.priority(cx.knobs, cx.view());
        self.stripes.cache.plug_delayed(&settings, cx.now());
    }

    #[inline(always)]
    fn has_work(
        &self,
        quiesces: bool,
        sync: Option<&Resync>,
        (array, knobs): (ArrayView<'_>, &Knobs),
        now: Time,
    ) -> bool {
        let settings = self.priority(knobs, array);
        let lost = array.is_planted(Mutant::LostWakeUp);
        let cache = &self.stripes.cache;
        let runs = array.is_known() && cache.has_runnable(&settings, now);
        (runs && !lost)
            || self.can_attach()
            || (!self.ready.is_empty() && !quiesces)
            || (array.membership().broken && self.waits_in_vain())
            || self.has_discards_to_run(sync, array)
    }

    #[inline]
    fn next_wake(&self, array: ArrayView<'_>, knobs: &Knobs) -> Option<Time> {
        let settings = self.priority(knobs, array);
        if array.is_known() { self.stripes.cache.activation_wake(&settings) } else { None }
    }

    fn holds_writes(&self) -> bool {
        true
    }

    fn locates(&self) -> bool {
        self.geometry.level().parity_count() == 2
    }

    fn resync_pass(&self, _: SyncAction, array: ArrayView<'_>, knobs: &Knobs) -> Pass {
        let unit = stripe_size::height(knobs, &self.geometry);
        // Each stripe is compared with all parity that is left, so the pass settles an earlier
        // pending resync whatever was rebuilt before.
        Pass { unit, size: array.member_size(), settles: Settles::Yes, maps: false }
    }

    /// Starts the sync of the next stripes of a resync, as far as there are free stripes in the
    /// cache.
    fn feed(&mut self, sync: &mut Resync, array: ArrayView<'_>) {
        let Self { geometry, stripes, discards, .. } = self;
        stripes.cache.set_syncs_together(array.rotates());
        sync.feed(stripes.cache.size(), |key, sync| {
            if Discard::any_has(discards, stripes.full_stripe_of(key)) {
                return false;
            }
            let free = stripes.cache.acquire_free(key, geometry);
            if let Acquired::Stripe(stripe) = free {
                stripes.attach_sync(stripe, sync.action);
            }
            free != Acquired::Starved
        });
    }

    fn would_feed(&self, sync: &Resync) -> bool {
        let may = |key| {
            self.stripes.cache.is_free(key)
                && !Discard::any_has(&self.discards, self.stripes.full_stripe_of(key))
        };
        // A stripe for which a recovery records bad blocks is done at once while others are in
        // progress, so there may be room for the next one without an answer from a member.
        let waits = sync.action != SyncAction::Recover;
        let syncs = |key| waits && self.stripes.syncs_stripe(key);
        sync.has_work(self.stripes.cache.size(), may, syncs)
    }

    fn has_deferred(&self) -> bool {
        self.stripes.has_deferred()
    }

    fn write_deferred(&mut self, cx: &mut Cx<'_>) {
        self.stripes.write_deferred(cx);
    }

    fn starves(&self) -> bool {
        !self.starved.is_empty()
    }

    fn is_full(&self) -> bool {
        self.stripes.cache.active() == self.stripes.cache.size()
    }

    fn snapshot(&self) -> RaidSnapshot {
        RaidSnapshot {
            stripe_cache_active: self.stripe_cache_active(),
            stripe_waits: self.stripes.waits.clone(),
        }
    }

    fn stripe_cache_active(&self) -> u32 {
        self.stripes.cache.active()
    }

    fn stripes_in_use(&self) -> StripesInUse {
        self.stripes.cache.stripes_in_use()
    }
}

impl StripeMemory {
    /// Creates the stripe cache: as many stripes as the knobs ask for, but at least one and no more
    /// than fit into the volume's frames.
    fn stripes(&self, geometry: &Geometry, knobs: &Knobs) -> Stripes {
        let (chunk, height) = (geometry.chunk(), stripe_size::height(knobs, geometry));
        let stripe_frames = stripe_size::stripe_frames(knobs, geometry);
        let wanted = self.stripes_max.unwrap_or(u32::MAX).min(knobs.cache_stripes(stripe_frames));
        let stripes = wanted.max(1).min(self.frames / stripe_frames);
        let cache =
            Cache::new(stripes, self.first, geometry.members(), height, chunk.0 / height.0, knobs);
        Stripes::new(cache, chunk)
    }
}

/// Limit on two waits: the wait of a stripe to be filled, under a priority rule without its own
/// limit, and the wait of a request for a free stripe, after which inactive stripes are kept for
/// waiting requests.
#[inline]
fn wait_max(knobs: &Knobs, array: ArrayView<'_>) -> Span {
    if array.is_planted(Mutant::WaitWithoutEnd) {
        WAITS_WITHOUT_BOUND
    } else {
        knobs.preread_wait_max
    }
}

#[cfg(test)]
mod tests;
