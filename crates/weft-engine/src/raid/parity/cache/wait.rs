//! Waiting stripes: how long a delayed stripe waits for more writes, and the bound on any wait.
//!
//! A stripe that lacks strips waits no longer than `preread_wait_max`, and no longer than it takes
//! writes to drain 64 times the content of the stripe cache (`CACHES_PASSED_MAX`). Then the stripe
//! is ready and may preread. md has no such limits (`preread_wait_max=none`).
//!
//! Delayed stripes wait on a list of their own, each until its own time ([`Patience`]). At the
//! earliest of these times all waiting stripes are checked again, because a stream may have moved
//! on or ended. When one stripe becomes ready, all waiting stripes that no stream will fill become
//! ready with it, because disks sort requests that arrive together. No stripe waits any longer when
//! requests find no free stripe and no full-stripe write is in flight that would free one.

use weft_units::{Span, StripeId, Time};

use super::{Cache, List, Patience, PrioritySettings, Since, Stripe};
use crate::knobs::WAITS_WITHOUT_BOUND;

/// State of [`List::Wait`], the list of stripes that each wait until a time of their own.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waiting {
    /// Earliest times at which a waiting stripe may be due: the first while no full-stripe write is
    /// in flight, the second while one is. `None` if no check is scheduled.
    next: Option<(Time, Time)>,
    /// Time at which the last full-stripe write ended; `None` while one is in flight.
    idle_since: Option<Time>,
    /// Whether stripes that no stream will fill were moved on early to free stripes for requests,
    /// and no further stripe has begun to wait since.
    made_room: bool,
}

/// Lower bounds over all stripes that wait to be filled: no wait began before `since`, in time and
/// in bytes drained, and no stripe is due before `due`.
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

/// Lists of the stripes that wait to be filled.
const WAITS: [List; 3] = [List::Delayed, List::Wait, List::Hold];

impl Cache {
    /// Extends the lower bounds of start and due time to a stripe that begins to wait.
    pub(super) fn begins_to_wait(&mut self, id: StripeId) {
        if !self.stripes_wait() {
            self.bounds = Bounds::default();
        }
        self.bounds.add(&self.stripes[id.index()]);
    }

    fn stripes_wait(&self) -> bool {
        WAITS.into_iter().any(|list| self.lists.first(list).is_some())
    }

    /// Earliest time at which a stripe's wait may reach its limit `bound`, or its due time. `None`
    /// if no stripe waits. Under weft's own rule `bound` is unlimited, because `wait_max` limits
    /// each stripe's own time.
    pub(super) fn overdue_at(&self, bound: Span) -> Option<Time> {
        let bounded = self.bounds.since.filter(|_| bound < WAITS_WITHOUT_BOUND);
        let at =
            [bounded.map(|since| since.at + bound), self.bounds.due].into_iter().flatten().min();
        at.filter(|_| self.stripes_wait())
    }

    /// Whether the wait of some stripe may have reached its limit. This may be true too early,
    /// because `bounds` holds lower bounds.
    #[inline]
    pub(super) fn is_overdue(&self, settings: &PrioritySettings, now: Time) -> bool {
        let Bounds { since, due } = self.bounds;
        self.is_too_long(since, due, settings, now) && self.stripes_wait()
    }

    /// Whether a wait that began at `since` has reached its limit in time or in bytes, or the time
    /// `due` has come.
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

    /// Makes stripes ready that have waited up to their limit, and gives them the permission to
    /// preread.
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

    /// Limits the wait of a stripe to the time `due`, because a request waits for the stripe's
    /// data.
    pub(crate) fn hurry(&mut self, id: StripeId, due: Time) {
        let waits = self.lists.of(id).is_some_and(|list| WAITS.contains(&list));
        let stripe = &mut self.stripes[id.index()];
        stripe.waited_for = true;
        if waits {
            stripe.due.get_or_insert(due);
            self.bounds.add(stripe);
        }
    }

    /// Moves delayed stripes to the list of waiting stripes once the plug is pulled, and moves
    /// stripes that have waited long enough to the hold list. `patience` returns how long a stripe
    /// waits.
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

    /// Schedules the next check of the waiting stripes no later than the end of a wait with the
    /// limit `patience`.
    fn waits(&mut self, patience: Patience) {
        let idle_since = self.waiting.idle_since.unwrap_or(Time(0));
        let (idle, busy) = (patience.until(Some(idle_since)), patience.until(None));
        let next = self.waiting.next.unwrap_or((idle, busy));
        self.waiting.next = Some((next.0.min(idle), next.1.min(busy)));
    }

    fn idle_since(&self, now: Time) -> Option<Time> {
        (self.full_stripe_writes == 0).then(|| self.waiting.idle_since.unwrap_or(now))
    }

    /// Whether waiting stripes have to be checked: one may have waited long enough, the rule has
    /// changed, or requests find no free stripe.
    pub(super) fn has_waited(&self, settings: &PrioritySettings, now: Time) -> bool {
        if self.lists.first(List::Wait).is_none() {
            return false;
        }
        // If the rule has changed, the stripes that are left on the list do not wait any longer.
        let is_time = self.waiting_wake().is_some_and(|at| at <= now);
        !settings.each_waits() || is_time || self.is_stuck() || self.is_crowded()
    }

    /// Next time at which a waiting stripe may have waited long enough; `None` if no stripe waits.
    pub(super) fn waiting_wake(&self) -> Option<Time> {
        let (idle, busy) = self.waiting.next.filter(|_| self.lists.first(List::Wait).is_some())?;
        Some(if self.full_stripe_writes == 0 { idle } else { busy })
    }

    /// Whether requests find no free stripe and no stripe in use is about to become free.
    fn is_stuck(&self) -> bool {
        let ready = self.lists.first(List::Handle).is_some();
        self.starved.is_some() && self.full_stripe_writes == 0 && !ready
    }

    /// Whether requests find no free stripe while more than half of all stripes wait, and no
    /// waiting stripe was moved on early yet.
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
