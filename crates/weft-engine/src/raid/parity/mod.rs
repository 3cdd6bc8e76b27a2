//! RAID 4, 5 and 6: a stripe cache, and one explicit plan per stripe.

pub(crate) mod cache;
pub(crate) mod discard;
mod index;
mod list;
pub mod plan;
pub mod priority;
pub(crate) mod split;
pub(crate) mod streams;
mod stripe;
pub mod stripe_size;
pub(crate) mod stripes;
pub(crate) mod sync;
pub mod waits;

use std::collections::VecDeque;
use std::ops::Range;

use weft_units::{ByteRange, Sectors, Span, StripeId, Time, VolumeId};

use self::cache::{Acquired, Cache};
use self::discard::Discarded;
use self::split::{Detour, SplitRequest};
use self::streams::{StreamId, Streams};
pub(crate) use self::stripe::SubRequest;
use self::stripes::{Stripes, Surroundings};
use self::sync::Resync;
use crate::array::Array;
use crate::frame::Frame;
use crate::knobs::{Knobs, PriorityRule, WAITS_WITHOUT_BOUND};
use crate::mutant::Mutant;
use crate::raid::geometry::Geometry;

/// The stripe cache of a volume, the requests that wait for stripes of it, and the streams that may
/// fill them.
#[derive(Clone, Debug)]
pub(crate) struct ParityRaid {
    volume: VolumeId,
    memory: StripeMemory,
    pub(crate) stripes: Stripes,
    pub(crate) streams: Streams,
    /// Full stripes that are being discarded.
    discarded: Discarded,
    /// Requests that go on attaching in this turn.
    pub(crate) ready: VecDeque<SplitRequest>,
    /// Requests that found no stripe.
    starved: VecDeque<SplitRequest>,
    /// Sub-requests of reads that go through the cache.
    pub(crate) detours: VecDeque<Detour>,
    /// The first of the starved ones was refused after detours had stripes: its turn is before
    /// theirs.
    detours_wait: bool,
    /// Stripes that are handled in this turn.
    picked: Vec<StripeId>,
}

/// The part of the frame pool that holds the stripes of a volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StripeMemory {
    pub(crate) first: Frame,
    pub(crate) frames: u32,
    /// Most stripes that are made of it, whatever the knobs say.
    pub(crate) stripes_max: Option<u32>,
}

impl ParityRaid {
    pub(crate) fn new(
        volume: VolumeId,
        memory: StripeMemory,
        geometry: &Geometry,
        knobs: &Knobs,
    ) -> Self {
        Self {
            volume,
            memory,
            stripes: memory.stripes(volume, geometry, knobs),
            streams: Streams::default(),
            discarded: Discarded::default(),
            ready: VecDeque::new(),
            starved: VecDeque::new(),
            detours: VecDeque::new(),
            detours_wait: false,
            picked: Vec::new(),
        }
    }

    /// Gives the cache the size that the knobs say now. No stripe is in use.
    pub(crate) fn resize(&mut self, geometry: &Geometry, knobs: &Knobs) {
        let waits = std::mem::take(&mut self.stripes.waits);
        self.stripes = self.memory.stripes(self.volume, geometry, knobs);
        self.stripes.waits = waits;
    }

    /// Frames of the cache, however many of them are stripes.
    pub(crate) fn frames(&self) -> u32 {
        self.memory.frames
    }

    /// Whether requests wait because no stripe was free.
    pub(crate) fn starves(&self) -> bool {
        !self.starved.is_empty()
    }

    /// Whether every stripe is in use.
    pub(crate) fn is_full(&self) -> bool {
        self.stripes.cache.active() == self.stripes.cache.size()
    }

    /// Relieves those who wait for stripes, before a resync takes what is free.
    pub(crate) fn relieve(&mut self, cx: &Surroundings<'_>) {
        self.stripes.cache.relieve_within(wait_max(cx.knobs, cx.array), cx.out.now);
    }

    /// Whether a turn would handle stripes.
    pub(crate) fn has_runnable(&self, array: &Array, knobs: &Knobs, now: Time) -> bool {
        let (variant, activation) = (knobs.priority_variant(), knobs.activation());
        self.stripes.cache.has_runnable(variant, activation, wait_max(knobs, array), now)
    }

    /// When delayed stripes are due though nothing else happens.
    pub(crate) fn next_wake(&self, array: &Array, knobs: &Knobs) -> Option<Time> {
        self.stripes.cache.activation_wake(knobs.priority_variant(), wait_max(knobs, array))
    }

    /// Handles at most `stripes_max` stripes, and those that are led by them. How many.
    pub(crate) fn handle(&mut self, stripes_max: u32, cx: &mut Surroundings<'_>) -> u32 {
        let full_stripe = cx.array.geometry.full_stripe_bytes();
        let Self { stripes, streams, picked, .. } = self;
        let (geometry, now) = (&cx.array.geometry, cx.out.now);
        stripes.activate(cx.knobs, wait_max(cx.knobs, cx.array), geometry, now, |lacks| {
            streams.moved(&lacks, full_stripe, now)
        });
        let variant = cx.knobs.priority_variant();
        // What goes by full stripes ends a turn when it has made the longest request that there is:
        // members are to begin while the next one is worked on.
        let most = (cx.knobs.max_sectors.0 / stripes.cache.strip_bytes()).max(1);
        let (mut picks, mut count) = (0, 0);
        while picks < stripes_max && count < most {
            let first = picked.len();
            if !stripes.cache.pick(variant, picked) {
                break;
            }
            picks += 1;
            if stripes.cache.goes_by_full_stripes() {
                let led = |id: &StripeId| 1 + stripes.cache.stripe(*id).followers();
                count += picked[first..].iter().map(led).sum::<u64>();
            }
        }
        let handled = picked.len() as u32;
        picked.drain(..).for_each(|stripe| stripes.handle(stripe, cx));
        handled
    }

    /// Plugs what was delayed in this turn.
    pub(crate) fn plug_delayed(&mut self, cx: &Surroundings<'_>) {
        self.stripes.cache.plug_delayed(cx.knobs.activation(), cx.out.now);
    }

    /// The stream of a write, if anybody wants to know, and whether its stripes are to wait for
    /// more of it. `before_answer`: it begins where a write ends that is not answered.
    pub(crate) fn stream_of(
        &mut self,
        range: ByteRange,
        before_answer: impl FnOnce() -> bool,
        (geometry, knobs): (&Geometry, &Knobs),
        now: Time,
    ) -> (StreamId, bool) {
        let gathers = knobs.stripe_size.is_auto();
        if !gathers && knobs.priority != PriorityRule::Stream {
            return (StreamId::default(), false);
        }
        let (stream, flows) = self.streams.arrive(range, before_answer(), now);
        (stream, gathers && flows && self.streams.reaches(stream, rest_of_stripes(range, geometry)))
    }

    /// Whether as much of a stream as fills a full stripe has come without a pause.
    pub(crate) fn pours(&self, stream: StreamId, geometry: &Geometry, knobs: &Knobs) -> bool {
        knobs.stripe_size.is_auto() && self.streams.run(stream).0 >= geometry.full_stripe_bytes()
    }

    /// Gives a resync its next stripes.
    pub(crate) fn feed(&mut self, sync: &mut Resync, geometry: &Geometry) {
        let Self { stripes, discarded, .. } = self;
        sync.feed(stripes.cache.size(), |key, action| {
            if discarded.has(stripes.full_stripe_of(key)) {
                return false;
            }
            let free = stripes.cache.acquire_free(key, geometry);
            if let Acquired::Stripe(stripe) = free {
                stripes.attach_sync(stripe, action);
            }
            free != Acquired::Starved
        });
    }

    /// Whether a resync would be given stripes.
    pub(crate) fn would_feed(&self, sync: &Resync) -> bool {
        let may = |key| {
            self.stripes.cache.is_free(key) && !self.discarded.has(self.stripes.full_stripe_of(key))
        };
        sync.has_work(self.stripes.cache.size(), may, |key| self.stripes.syncs_stripe(key))
    }

    /// A discard of full stripes begins: no resync is given stripes of them.
    pub(crate) fn discard_begins(&mut self, full_stripes: &Range<u64>) {
        self.discarded.enter(full_stripes.clone());
    }

    /// It has ended.
    pub(crate) fn discard_ends(&mut self, full_stripes: &Range<u64>) {
        self.discarded.leave(full_stripes);
    }

    /// Whether nothing goes on in full stripes.
    pub(crate) fn are_quiet(&self, full_stripes: &Range<u64>, sync: Option<&Resync>) -> bool {
        self.stripes.are_quiet(&self.stripes.keys_of(full_stripes), sync)
    }

    /// Forgets what the cache has of full stripes in which nothing goes on.
    pub(crate) fn forget(&mut self, full_stripes: &Range<u64>) {
        let keys = self.stripes.keys_of(full_stripes);
        self.stripes.forget(&keys);
    }

    /// Whether members had no space for something that is only in stripes.
    pub(crate) fn has_deferred(&self) -> bool {
        self.stripes.has_deferred()
    }
}

impl StripeMemory {
    /// As many stripes as are wanted, or as many of them as fit.
    fn stripes(&self, volume: VolumeId, geometry: &Geometry, knobs: &Knobs) -> Stripes {
        let (chunk, height) = (geometry.chunk(), height_of(geometry, knobs));
        let wanted = self.stripes_max.unwrap_or(u32::MAX).min(knobs.cache_stripes(geometry));
        let stripes = wanted.max(1).min(self.frames / knobs.stripe_size.stripe_frames(geometry));
        let by_full_stripes = knobs.stripe_size.is_auto().then(|| chunk.0 / height.0);
        let form = knobs.stripe_cache_form;
        let cache =
            Cache::new(stripes, self.first, geometry.members(), height, by_full_stripes, form);
        Stripes::new(volume, cache, chunk)
    }
}

/// How many bytes from the start of a write to the end of the last one that fills its stripes.
fn rest_of_stripes(range: ByteRange, geometry: &Geometry) -> u64 {
    let (chunk, full_stripe) = (geometry.chunk().bytes().0, geometry.full_stripe_bytes());
    let last = range.end().0 - 1;
    let begins = last - last % full_stripe;
    let first = range.start.0.max(begins);
    let of_stripes = if first / chunk == last / chunk {
        full_stripe - chunk + last % chunk + 1
    } else {
        full_stripe
    };
    begins + of_stripes - range.start.0
}

/// How long a stripe waits at most to be filled, by a rule that has no bound of its own, and a
/// request for a stripe.
#[inline]
fn wait_max(knobs: &Knobs, array: &Array) -> Span {
    if array.is_planted(Mutant::WaitWithoutEnd) {
        WAITS_WITHOUT_BOUND
    } else {
        knobs.preread_wait_max
    }
}

/// Stripe height in sectors.
pub(crate) fn height_of(geometry: &Geometry, knobs: &Knobs) -> Sectors {
    knobs.stripe_size.at_most(geometry.chunk().bytes()).sectors()
}
