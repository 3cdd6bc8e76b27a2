//! Arrivals: how requests and syncs are attached to stripes, which then wait for the end of the
//! turn.
//!
//! Stripes to which something was attached in a turn are *plugged* until the end of the turn: then
//! they go to their lists together, so that all requests that arrived for a stripe in one turn are
//! seen together. Adjacent filled stripes of one chunk become one batch.
//!
//! Source   md-raid.md §2.1 to §2.3, §2.9

use std::ops::Range;

use weft_units::{StripeId, Time};

use super::Stripes;
use crate::contract::error::ReplyError;
use crate::contract::input::{Attr, SyncAction};
use crate::contract::token::RequestId;
use crate::knobs::Writes;
use crate::layout::geometry::Geometry;
use crate::raid::parity::SubRequest;
use crate::raid::parity::cache::Acquired;
use crate::raid::parity::priority::{Patience, PrioritySettings, patience_for_others, plug_2008};
use crate::raid::parity::stripe::{Batch, ResyncState, Touched};
use crate::raid::{Cx, Event};

/// Properties of a client request that matter to the stripes to which the request is attached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) write: bool,
    /// Whether the stripe must not wait for more data, because the client waits for the write (md:
    /// `REQ_SYNC`).
    pub(crate) sync: bool,
    /// Whether a stream will bring the rest of the stripe.
    pub(crate) streams: bool,
    /// Whether another client request waits for this one.
    pub(crate) waited_for: bool,
    /// Whether a member already failed once to read the range.
    pub(crate) retried: bool,
    pub(crate) attr: Attr,
}

/// Work of a retired stripe, which will be attached to another stripe with the same number.
#[derive(Clone, Debug)]
pub(super) struct Displaced {
    pub(super) key: u64,
    pub(super) reads: Vec<SubRequest>,
    pub(super) writes: Vec<SubRequest>,
    pub(super) sync: Option<SyncAction>,
    /// Attributes of the reads and writes.
    pub(super) attr: Attr,
    /// Number of reads given up before; see [`crate::raid::parity::stripe::Stripe::given_up`].
    pub(super) given_up: u8,
}

impl Stripes {
    /// Attaches sub-requests of a client to the stripe `id`, which was acquired for them.
    pub(crate) fn attach(
        &mut self,
        id: StripeId,
        sub_requests: &[SubRequest],
        touched: Touched,
        arrival: Arrival,
    ) {
        let Arrival { write, sync, streams, waited_for, retried, attr } = arrival;
        let stripe = self.cache.stripe_mut(id);
        assert!(!sub_requests.is_empty(), "an attached request has sub-requests");
        stripe.charge(attr);
        assert!(stripe.batch == Batch::None, "a batch is covered by writes that exclude others");
        stripe.attach(sub_requests, touched, write);
        // A read in flight may be the one that failed, merged with others, so it does not count as
        // the repetition.
        if retried && stripe.in_flight == 0 {
            stripe.repeat(touched);
        }
        stripe.handle = true;
        stripe.delayed = false;
        stripe.arrivals += 1;
        stripe.streams |= streams;
        stripe.waited_for |= waited_for;
        if write {
            self.join_batch(id);
        } else {
            stripe.batch_ready = false;
        }
        if write && sync && !matches!(self.cache.stripe(id).batch, Batch::Follower(_)) {
            self.cache.permit_preread(id);
        }
        self.hold_until_release(id);
    }

    /// Requests a sync of the stripe `id`, which was acquired for it.
    pub(crate) fn attach_sync(&mut self, id: StripeId, action: SyncAction) {
        let stripe = self.cache.stripe_mut(id);
        assert!(stripe.sync.is_none(), "a stripe is synced once at a time");
        stripe.sync = Some((action, ResyncState::Requested));
        stripe.handle = true;
        self.hold_until_release(id);
    }

    /// Ends the arrivals of a turn: stripes to which something was attached go to their lists. With
    /// `stripe_cache_form=2008` they may take their first step at once, if `may_move`. Returns the
    /// number of stripes that took a step.
    pub(crate) fn release_plug(&mut self, cx: &mut Cx<'_>, may_move: bool) -> u32 {
        let mut handled = 0;
        let writes = cx.knobs.writes;
        let at_arrival = may_move && plug_2008::is_handled_at_arrival(cx.knobs);
        let policy = self.cache.policy();
        let mut plug = std::mem::take(&mut self.plug);
        for id in plug.drain(..) {
            let stripe = self.cache.stripe_mut(id);
            assert!(std::mem::take(&mut stripe.plugged), "a stripe is in the plug once");
            let streams = std::mem::take(&mut stripe.streams);
            let arrivals = std::mem::take(&mut stripe.arrivals);
            cx.count_attaches(arrivals);
            let alone = arrivals == 1;
            let at_once = match writes {
                // Nothing is known to follow a write that arrived alone.
                Writes::Auto => policy.goes_at_once(alone, streams),
                Writes::Gather => false,
                Writes::Sync => true,
            };
            if matches!(stripe.batch, Batch::Follower(_)) {
                // A follower goes to its list with its head.
                continue;
            }
            if at_once && !stripe.to_write().is_empty() {
                self.cache.permit_preread(id);
            }
            self.cache.release(id);
            if at_arrival && self.cache.take_ready(id) {
                self.handle(id, cx);
                handled += 1;
            }
        }
        // Keeps the allocation; nothing arrives while stripes are handled.
        self.plug = plug;
        handled
    }

    /// Attaches the work of retired stripes to other stripes, as long as there are free ones.
    pub(crate) fn place_displaced(&mut self, geometry: &Geometry) {
        while let Some(work) = self.displaced.front() {
            let Acquired::Stripe(id) = self.cache.acquire(work.key, geometry) else { return };
            let work = self.displaced.pop_front().expect("there is a front");
            let strip_bytes = self.cache.strip_bytes();
            let stripe = self.cache.stripe_mut(id);
            stripe.batch_ready = false;
            stripe.given_up = stripe.given_up.max(work.given_up);
            if !(work.reads.is_empty() && work.writes.is_empty()) {
                stripe.charge(work.attr);
            }
            stripe.attach(&work.reads, Touched::by(&work.reads, strip_bytes), false);
            stripe.attach(&work.writes, Touched::by(&work.writes, strip_bytes), true);
            if let Some(action) = work.sync {
                stripe.sync = Some((action, ResyncState::Requested));
            }
            stripe.handle = true;
            if !stripe.to_write().is_empty() {
                self.cache.permit_preread(id);
            }
            self.hold_until_release(id);
        }
    }

    /// Fails the work of retired stripes, because it will find no other stripe.
    pub(crate) fn end_displaced(&mut self) {
        for Displaced { key, reads, writes, sync, .. } in std::mem::take(&mut self.displaced) {
            for sub_request in reads.into_iter().chain(writes) {
                let (request, result) = (sub_request.request, Err(ReplyError::Io));
                self.events.push(Event::SubRequestsDone { request, sub_requests: 1, result });
            }
            if sync.is_some() {
                self.events.push(Event::SyncDone {
                    unit: key,
                    mismatch: false,
                    wrong: None,
                    ok: false,
                });
            }
        }
    }

    /// Whether work of retired stripes waits for other stripes.
    pub(crate) fn has_displaced(&self) -> bool {
        !self.displaced.is_empty()
    }

    fn hold_until_release(&mut self, id: StripeId) {
        if !std::mem::replace(&mut self.cache.stripe_mut(id).plugged, true) {
            self.plug.push(id);
        }
    }

    /// Appends a filled stripe to the batch of the adjacent stripe before it, if both can be
    /// written together.
    fn join_batch(&mut self, id: StripeId) {
        let key = self.cache.stripe(id).key;
        // The stripe before the first one of a chunk belongs to another full stripe.
        let first = key & (self.stripes_per_chunk - 1) == 0;
        if !self.cache.batches() || first || !self.may_batch(id) {
            return;
        }
        let Some(before) = self.cache.find(key - 1).filter(|before| self.may_batch(*before)) else {
            return;
        };
        let head = match &self.cache.stripe(before).batch {
            Batch::Follower(head) => *head,
            Batch::Head(_) | Batch::None => before,
        };
        let writes_durably = |id| self.cache.stripe(id).writes_durably();
        if writes_durably(before) != writes_durably(id) {
            return;
        }
        let head_key = self.cache.stripe(head).key;
        assert_eq!(
            self.full_stripe_of(head_key),
            self.full_stripe_of(key),
            "a batch is of one chunk"
        );
        match &mut self.cache.stripe_mut(head).batch {
            Batch::Head(followers) => followers.push(id),
            batch => {
                let mut followers = self.spare_followers.pop().unwrap_or_default();
                followers.push(id);
                *batch = Batch::Head(followers);
            }
        }
        self.cache.stripe_mut(id).batch = Batch::Follower(head);
        self.cache.forbid_preread(id);
    }

    /// Whether a stripe may be in a batch: it is filled, was not handled yet, and no request reads
    /// it.
    #[inline(always)]
    fn may_batch(&self, id: StripeId) -> bool {
        let stripe = self.cache.stripe(id);
        stripe.batch_ready && stripe.sync.is_none() && stripe.is_filled(self.cache.strip_bytes())
    }

    /// Moves delayed stripes that have waited long enough to the hold list. `moved` returns the
    /// time at which the stream that will bring a range of the volume was last seen.
    pub(crate) fn activate(
        &mut self,
        settings: &PrioritySettings,
        geometry: &Geometry,
        now: Time,
        moved: impl Fn(Range<u64>) -> Option<Time>,
    ) {
        self.cache.end_overdue(settings, now);
        if !settings.each_waits() {
            self.cache.activate_delayed(settings, now);
            return;
        }
        let (height, preread) = (self.cache.height(), self.preread);
        self.cache.activate_each(settings, now, &|stripe| {
            let moved = stripe.lacks(geometry, height).and_then(&moved);
            let since = stripe.waits_since.map_or(now, |since| since.at);
            Patience::new(since, moved, preread, settings.wait_max)
        });
    }

    /// Limits how long the stripes in `keys` with writes of `request` wait to be filled, because
    /// another request waits for `request`. The limit is that of [`patience_for_others`].
    pub(crate) fn hurry(&mut self, request: RequestId, keys: &Range<u64>, now: Time) {
        let due = now + patience_for_others(self.preread);
        for id in self.cache.stripes_of(keys) {
            if self
                .cache
                .stripe(id)
                .writes()
                .iter()
                .any(|sub_request| sub_request.request == request)
            {
                self.cache.hurry(id, due);
            }
        }
    }
}
