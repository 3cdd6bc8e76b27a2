//! Waiting stripes: how long a delayed stripe waits for more writes, and the bound on any wait.
//!
//! No stripe that lacks strips waits longer than `preread_wait_max`, nor while writes drain 64
//! times the content of the stripe cache (`CACHES_PASSED_MAX`). Then the stripe is ready and may
//! preread. md has no such bounds (`preread_wait_max=none`).
//!
//! Delayed stripes wait on a list of their own, each until its own time ([`Patience`]). At the
//! earliest of these times all waiting stripes are checked again, because a stream may have moved
//! on or ended. When one stripe becomes ready, all stripes that no stream will fill become ready
//! with it, as disks sort requests that they get together. No stripe waits while requests find no
//! free stripe and no full-stripe write is in flight that would free one.

use weft_units::{Span, StripeId, Time};

use super::{Cache, List, Patience, PrioritySettings, Since, Stripe};
use crate::knobs::WAITS_WITHOUT_BOUND;

/// State of the list of waiting stripes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waiting {
    /// Earliest time at which a waiting stripe may be due: the first if disks are idle, the second
    /// if they are not.
    next: Option<(Time, Time)>,
    /// Time at which the last full-stripe write ended.
    idle_since: Option<Time>,
    /// Stripes that no stream fills were sent on to make room, and no stripe has begun to wait
    /// since.
    made_room: bool,
}

/// Lower bounds over all stripes that wait to be filled: none has waited since before `since`, in
/// time and in bytes drained, and none is due before `due`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bounds {
    since: Option<Since>,
    due: Option<Time>,
}

impl Bounds {
    fn add(&mut self, stripe: &Stripe) {
        self.since = self.since.into_iter().chain(stripe.waits_since).min();
        self.due = self.due.into_iter().chain(stripe.due).min();
    }
}

/// Lists on which stripes wait to be filled.
const WAITS: [List; 3] = [List::Delayed, List::Wait, List::Hold];

impl Cache {
    /// Includes a stripe that is about to wait in the bounds.
    pub(super) fn begins_to_wait(&mut self, id: StripeId) {
        if !self.stripes_wait() {
            self.bounds = Bounds::default();
        }
        self.bounds.add(&self.stripes[id.index()]);
    }

    fn stripes_wait(&self) -> bool {
        WAITS.into_iter().any(|list| self.lists.first(list).is_some())
    }

    /// Earliest time at which a stripe may reach its bound. Weft's own rule has `wait_max` in each
    /// stripe's time, and `bound` is unlimited.
    pub(super) fn overdue_at(&self, bound: Span) -> Option<Time> {
        let bounded = self.bounds.since.filter(|_| bound < WAITS_WITHOUT_BOUND);
        let at =
            [bounded.map(|since| since.at + bound), self.bounds.due].into_iter().flatten().min();
        at.filter(|_| self.stripes_wait())
    }

    /// Whether a stripe may have reached its bound. `bounds` is a lower bound, so this may be too
    /// early.
    #[inline]
    pub(super) fn is_overdue(&self, settings: &PrioritySettings, now: Time) -> bool {
        let Bounds { since, due } = self.bounds;
        self.is_too_long(since, due, settings, now) && self.stripes_wait()
    }

    /// Whether a wait since `since` has reached its bound in time or in bytes, or `due` is reached.
    #[inline]
    fn is_too_long(
        &self,
        since: Option<Since>,
        due: Option<Time>,
        settings: &PrioritySettings,
        now: Time,
    ) -> bool {
        let bounded = settings.bound < WAITS_WITHOUT_BOUND;
        let is_long = |since: Since| {
            (bounded && since.at + settings.bound <= now)
                || (settings.bounds_passed && self.drained - since.drained > self.passed_max)
        };
        since.is_some_and(is_long) || due.is_some_and(|due| due <= now)
    }

    /// Makes the stripes that have reached their bound ready, with permission to preread.
    #[inline]
    pub(crate) fn end_overdue(&mut self, settings: &PrioritySettings, now: Time) {
        if self.is_overdue(settings, now) {
            self.end_long_waits(settings, now);
            assert!(!self.is_overdue(settings, now), "no stripe waits longer");
        }
    }

    #[inline(never)]
    fn end_long_waits(&mut self, settings: &PrioritySettings, now: Time) {
        self.bounds = Bounds::default();
        for list in WAITS {
            let mut next = self.lists.first(list);
            while let Some(id) = next {
                next = self.lists.next(id);
                let stripe = self.stripe(id);
                if self.is_too_long(stripe.waits_since, stripe.due, settings, now) {
                    self.lists.remove(id);
                    self.stripe_mut(id).delayed = false;
                    self.permit_preread(id);
                    self.lists.push(List::Handle, id);
                } else {
                    self.bounds.add(&self.stripes[id.index()]);
                }
            }
        }
    }

    /// Bounds the wait of a stripe to be filled by `due`, because a request waits for its data.
    pub(crate) fn hurry(&mut self, id: StripeId, due: Time) {
        let waits = self.lists.of(id).is_some_and(|list| WAITS.contains(&list));
        let stripe = &mut self.stripes[id.index()];
        stripe.waited_for = true;
        if waits {
            stripe.due.get_or_insert(due);
            self.bounds.add(stripe);
        }
    }

    /// Lets delayed stripes begin to wait, and moves stripes that have waited long enough to the
    /// hold list. `patience` gives the wait of a stripe.
    pub(crate) fn activate_each(
        &mut self,
        settings: &PrioritySettings,
        now: Time,
        patience: &impl Fn(&Stripe) -> Patience,
    ) {
        self.waiting.idle_since = self.idle_since(now);
        if self.lists.first(List::Delayed).is_none() {
            self.plug.no_stripe_waits(settings.plug, self.starved.is_some(), now);
        } else if self.plug.opens(settings, self.pressure(settings), now) {
            while let Some(id) = self.lists.pop(List::Delayed) {
                self.lists.push(List::Wait, id);
                self.waits(patience(self.stripe(id)));
                self.waiting.made_room = false;
            }
        }
        if self.has_waited(settings, now) {
            self.end_waits(now, patience);
        }
    }

    fn end_waits(&mut self, now: Time, patience: &impl Fn(&Stripe) -> Patience) {
        let (idle_since, stuck) = (self.idle_since(now), self.is_stuck());
        self.waiting.next = None;
        self.waiting.made_room = self.starved.is_some();
        let mut next = self.lists.first(List::Wait);
        while let Some(id) = next {
            next = self.lists.next(id);
            let of_stripe = patience(self.stripe(id));
            let streams = matches!(of_stripe, Patience::Streams { .. });
            if streams && now < of_stripe.until(idle_since) && !stuck {
                self.waits(of_stripe);
                continue;
            }
            self.lists.remove(id);
            self.stripe_mut(id).delayed = false;
            self.permit_preread(id);
            self.lists.push(List::Hold, id);
        }
    }

    /// Updates the next due time for a stripe that begins or continues to wait.
    fn waits(&mut self, patience: Patience) {
        let idle_since = self.waiting.idle_since.unwrap_or(Time(0));
        let (idle, busy) = (patience.until(Some(idle_since)), patience.until(None));
        let next = self.waiting.next.unwrap_or((idle, busy));
        self.waiting.next = Some((next.0.min(idle), next.1.min(busy)));
    }

    fn idle_since(&self, now: Time) -> Option<Time> {
        (self.full_stripe_writes == 0).then(|| self.waiting.idle_since.unwrap_or(now))
    }

    /// Whether a waiting stripe may have waited long enough.
    pub(super) fn has_waited(&self, settings: &PrioritySettings, now: Time) -> bool {
        if self.lists.first(List::Wait).is_none() {
            return false;
        }
        // The list has stripes left from another rule, which do not wait.
        let is_time = self.waiting_wake().is_some_and(|at| at <= now);
        !settings.each_waits() || is_time || self.is_stuck() || self.is_crowded()
    }

    /// Time at which a waiting stripe may have waited long enough; `None` if no stripe waits.
    pub(super) fn waiting_wake(&self) -> Option<Time> {
        let (idle, busy) = self.waiting.next.filter(|_| self.lists.first(List::Wait).is_some())?;
        Some(if self.full_stripe_writes == 0 { idle } else { busy })
    }

    /// Whether requests find no free stripe and no stripe in use is about to become free.
    fn is_stuck(&self) -> bool {
        let ready = self.lists.first(List::Handle).is_some();
        self.starved.is_some() && self.full_stripe_writes == 0 && !ready
    }

    /// Whether requests find no free stripe while more than half of all stripes wait.
    fn is_crowded(&self) -> bool {
        let crowds = self.lists.waiting() > self.size() / 2;
        self.starved.is_some() && !self.waiting.made_room && crowds
    }

    /// Moves waiting stripes back to the delayed list, after a change of the rule.
    pub(super) fn wait_no_more(&mut self) {
        while let Some(id) = self.lists.pop(List::Wait) {
            self.lists.push(List::Delayed, id);
        }
    }
}
