//! Stripe cache: which stripes are in memory, and on which list each is.
//!
//! ```text
//!  inactive ──acquire──▶ held by an arrival ──plug released──▶ handle ──picked──▶ handled
//!     ▲                                                          ▲   ▲               │
//!     │                                            promoted by   │   │               ▼
//!     │                                            an arrival    │  hold ◀── all ── delayed
//!     └──────────────── nothing left to do ◀─────────────────────┴── in flight ◀─────┘
//! ```
//!
//! Inactive stripes are reused in LRU order within one of eight classes, as with md's eight hash
//! locks. If adjacent stripes of a sync take their steps together, stripes that only a sync has
//! used are reused before all others: a sync returns to none of its stripes, so that it does not
//! displace what clients may use again, and its memory stays in the caches of the CPU. By weft's
//! own rule, delayed stripes wait on one more list before they are held (`cache/wait.rs`). A lookup
//! fails if it needs a free stripe and finds none. From then on every lookup that needs a free
//! stripe fails, until a quarter of the cache is free again; lookups that find their stripe in the
//! cache succeed. With a stripe size that picks by full stripes ([`super::stripe_size`]) there is
//! one class, and after a failed lookup the wait ends when as many stripes are free as the request
//! needs of one chunk, or half the cache: stripes with a deferred write or with pinned memory must
//! not hold up other requests. Once a request has waited for `preread_wait_max`, inactive stripes
//! are kept for waiting requests: even a lookup that would find an inactive stripe waits.
//!
//! Source   md-raid.md §1.1, §1.2, §1.4, §1.5

mod wait;

use std::ops::Range;

use weft_units::{FRAME_BYTES, Sectors, Span, StripeId, Time};

use self::wait::{Bounds, Waiting};
use super::index::Index;
use super::list::{CLASSES_MAX, List, Lists};
use super::priority::{
    Patience, Pick, Plug, Pressure, Priority, PrioritySettings, Ready, plug_2008,
};
use super::stripe::{Batch, Since, Stripe};
use super::stripe_size::StripeSizePolicy;
use crate::contract::frame::Frame;
use crate::contract::snapshot::StripesInUse;
use crate::knobs::{CACHES_PASSED_MAX, Knobs};
use crate::layout::geometry::{Geometry, Placement};
use crate::layout::slot_set::SlotSet;

/// The stripe cache of one volume.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    stripes: Vec<Stripe>,
    index: Index,
    lists: Lists,
    classes: u8,
    /// Whether adjacent filled stripes of a chunk are written as one batch.
    batches: bool,
    /// Number of stripes in use, that is, not on an inactive list.
    active: u32,
    /// Condition for retrying after a lookup found too few free stripes; `None` if no lookup has
    /// failed. Until the condition holds, every lookup that needs a free stripe fails.
    starved: Option<Starved>,
    /// Number of stripes on the inactive lists.
    inactive: u32,
    policy: &'static StripeSizePolicy,
    /// Whether adjacent stripes of the running or last sync take their steps together.
    syncs_together: bool,
    stripes_per_chunk: u64,
    /// Number of stripes that have the permission to preread, that is, to read strips before a
    /// write.
    preread_active: u32,
    pub(crate) full_stripe_writes: u32,
    priority: Priority,
    plug: Plug,
    waiting: Waiting,
    /// Lower bounds of the start and of the due time of every stripe that waits to be filled.
    bounds: Bounds,
    /// Total number of bytes that were drained into stripes.
    drained: u64,
    /// Number of bytes that may be drained into other stripes while one stripe waits to be filled.
    passed_max: u64,
    /// Time since which requests have waited for a free stripe; `None` if none waits.
    starved_since: Option<Time>,
    /// Whether a request has waited too long for a free stripe, so that all inactive stripes are
    /// kept for waiting requests.
    reserved: bool,
    /// Whether a stripe was put on the delayed list since the last call of [`Cache::plug_delayed`].
    newly_delayed: bool,
    /// Stripe height: number of sectors of a stripe on each member.
    height: Sectors,
}

/// Condition that ends the wait of requests for a free stripe.
#[derive(Clone, Copy, Debug)]
enum Starved {
    /// A stripe of this class (number modulo eight, as with md's hash locks) is free, and more than
    /// a quarter of all stripes are.
    Class(u8),
    /// At least this many stripes are free.
    Stripes(u32),
}

/// Result of picking the next stripes to handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Picked {
    Nothing,
    /// One stripe was picked, or a whole run of adjacent stripes.
    Run,
    /// Only some stripes of a run were picked: the remaining ones are to be read while these are
    /// written.
    Part,
}

/// Result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acquired {
    /// Stripe with the requested number. It may already have other work.
    Stripe(StripeId),
    /// No stripe is free now.
    Starved,
}

impl Cache {
    /// Creates a cache of `stripes` stripes, with their memory from frame `frames` on.
    pub(crate) fn new(
        stripes: u32,
        frames: Frame,
        members: u16,
        height: Sectors,
        stripes_per_chunk: u64,
        knobs: &Knobs,
    ) -> Self {
        // A cache smaller than md allows, as tests use, has one class: several classes would run
        // out of stripes.
        let policy = StripeSizePolicy::of(knobs.stripe_size);
        let batches = plug_2008::has_batches_and_classes(knobs.stripe_cache_form);
        let classes_pay = stripes >= 2 * u32::from(CLASSES_MAX) && policy.runs.is_none() && batches;
        let classes = if classes_pay { CLASSES_MAX } else { 1 };
        let mut cache = Self {
            stripes: Vec::new(),
            index: Index::new(stripes),
            lists: Lists::new(stripes),
            classes,
            batches,
            active: 0,
            starved: None,
            inactive: stripes,
            policy,
            syncs_together: false,
            stripes_per_chunk,
            preread_active: 0,
            full_stripe_writes: 0,
            priority: Priority::default(),
            plug: Plug::default(),
            waiting: Waiting::default(),
            bounds: Bounds::default(),
            drained: 0,
            passed_max: CACHES_PASSED_MAX
                * u64::from(stripes)
                * u64::from(members)
                * height.bytes().0,
            starved_since: None,
            reserved: false,
            newly_delayed: false,
            height,
        };
        let strip_frames = cache.strip_frames();
        for number in 0..stripes {
            let class = (number % u32::from(classes)) as u8;
            let first = Frame(frames.0 + number * strip_frames);
            cache.stripes.push(Stripe::new(class, first, stripes * strip_frames, members));
            cache.lists.push(List::Inactive(class), StripeId(number));
        }
        cache
    }

    pub(crate) fn stripe(&self, stripe: StripeId) -> &Stripe {
        &self.stripes[stripe.index()]
    }

    pub(crate) fn stripe_mut(&mut self, stripe: StripeId) -> &mut Stripe {
        &mut self.stripes[stripe.index()]
    }

    pub(crate) fn height(&self) -> Sectors {
        self.height
    }

    /// Stripe height: number of bytes of a stripe on each member.
    pub(crate) fn strip_bytes(&self) -> u64 {
        self.height.bytes().0
    }

    /// Stripe height: number of frames of a stripe on each member.
    pub(crate) fn strip_frames(&self) -> u32 {
        (self.strip_bytes() / FRAME_BYTES) as u32
    }

    /// Rules that depend on the knob `stripe_size`.
    pub(super) fn policy(&self) -> &'static StripeSizePolicy {
        self.policy
    }

    /// Takes a stripe off the handle list. Returns whether it was on that list.
    pub(crate) fn take_ready(&mut self, id: StripeId) -> bool {
        let ready = self.lists.of(id) == Some(List::Handle);
        if ready {
            self.lists.remove(id);
        }
        ready
    }

    /// Counts the bytes of `strips`, into which new data was drained, against the limit on how much
    /// may be drained into other stripes while a stripe waits to be filled.
    #[inline]
    pub(super) fn count_drained(&mut self, strips: SlotSet) {
        self.drained += u64::from(strips.count()) * self.strip_bytes();
    }

    /// Start of a wait that begins at `now`: the time, and the number of bytes drained so far.
    #[inline]
    pub(super) fn since(&self, now: Time) -> Since {
        Since { at: now, drained: self.drained }
    }

    /// Whether adjacent filled stripes of a chunk are written as one batch.
    pub(crate) fn batches(&self) -> bool {
        self.batches
    }

    /// Number of stripes in the cache, in use or free.
    pub(crate) fn size(&self) -> u32 {
        self.stripes.len() as u32
    }

    /// Number of stripes that are not inactive.
    pub(crate) fn active(&self) -> u32 {
        self.active
    }

    pub(crate) fn stripes_in_use(&self) -> StripesInUse {
        StripesInUse {
            active: self.active,
            delayed: self.lists.count(List::Delayed) + self.lists.waiting(),
            ready: self.lists.count(List::Handle),
            held: self.lists.count(List::Hold),
            prereading: self.preread_active,
        }
    }

    /// Looks up the stripe number `key`, or reuses an inactive stripe for it. Takes the stripe off
    /// its list; the stripe may have member requests in flight or belong to a batch. Returns
    /// [`Acquired::Starved`] if no stripe is free.
    pub(crate) fn acquire(&mut self, key: u64, geometry: &Geometry) -> Acquired {
        let full_stripe = geometry.full_stripe_of(Sectors(key * self.height.0));
        self.acquire_some(key, 1, || geometry.placement(full_stripe))
    }

    /// Like [`Cache::acquire`], for the first of `stripes` adjacent stripes that a request needs.
    /// If the policy waits for runs, no stripe is reused unless that many are free, or half the
    /// cache if that is less. `placement` is called only when a stripe is reused.
    #[inline(always)]
    pub(crate) fn acquire_some(
        &mut self,
        key: u64,
        stripes: u64,
        placement: impl FnOnce() -> Placement,
    ) -> Acquired {
        if let Some(id) = self.index.find(key) {
            if self.lists.of(id).is_some_and(List::is_inactive) {
                if self.reserved {
                    return Acquired::Starved;
                }
                self.active += 1;
                self.inactive -= 1;
            }
            self.lists.remove(id);
            return Acquired::Stripe(id);
        }
        if self.starved.is_some() {
            return Acquired::Starved;
        }
        if self.policy.waits_for_runs {
            let stripes = stripes.min(u64::from(self.size() / 2).max(1)) as u32;
            if self.inactive < stripes {
                self.starved = Some(Starved::Stripes(stripes));
                return Acquired::Starved;
            }
        }
        let class = self.class_of(key);
        let Some(id) = self.first_inactive(class) else {
            self.starved = Some(Starved::Class(class));
            return Acquired::Starved;
        };
        self.lists.remove(id);
        self.active += 1;
        self.inactive -= 1;
        let old = self.stripe(id);
        if old.hashed {
            let old_key = old.key;
            self.index.remove(old_key);
        }
        self.stripe_mut(id).reuse(key, placement());
        self.index.insert(key, id);
        Acquired::Stripe(id)
    }

    /// Whether the stripe number `key` is in the cache and waits to be filled: on the delayed list,
    /// the list of waiting stripes or the hold list.
    pub(crate) fn is_delayed(&self, key: u64) -> bool {
        let list = self.index.find(key).and_then(|id| self.lists.of(id));
        matches!(list, Some(List::Delayed | List::Hold | List::Wait))
    }

    /// Stripe with the number `key`, in any state; `None` if it is not in the cache.
    pub(crate) fn find(&self, key: u64) -> Option<StripeId> {
        self.index.find(key)
    }

    /// Stripes in the cache with numbers within `keys`.
    pub(crate) fn stripes_of(&self, keys: &Range<u64>) -> Vec<StripeId> {
        if keys.end - keys.start < self.stripes.len() as u64 {
            return keys.clone().filter_map(|key| self.index.find(key)).collect();
        }
        let stands = |(stripe, _): &(&Stripe, u32)| stripe.hashed && keys.contains(&stripe.key);
        self.stripes.iter().zip(0..).filter(stands).map(|(_, id)| StripeId(id)).collect()
    }

    /// Removes an inactive stripe from the index.
    pub(crate) fn forget(&mut self, id: StripeId) {
        let stripe = &mut self.stripes[id.index()];
        if std::mem::take(&mut stripe.hashed) {
            self.index.remove(stripe.key);
        }
    }

    /// Like [`Cache::acquire`], for work that can be postponed: a failed lookup does not make
    /// client requests wait for free stripes.
    pub(crate) fn acquire_free(&mut self, key: u64, geometry: &Geometry) -> Acquired {
        if self.is_free(key) { self.acquire(key, geometry) } else { Acquired::Starved }
    }

    /// Whether [`Cache::acquire`] would return a stripe for `key`.
    pub(crate) fn is_free(&self, key: u64) -> bool {
        let unused = || self.first_inactive(self.class_of(key)).is_some();
        match self.index.find(key) {
            Some(id) => !(self.reserved && self.lists.of(id).is_some_and(List::is_inactive)),
            None => self.starved.is_none() && unused(),
        }
    }

    /// Whether enough stripes are free for waiting requests to try again. True also if no request
    /// waits.
    pub(crate) fn is_relieved(&self) -> bool {
        match self.starved {
            None => true,
            Some(Starved::Class(class)) => {
                let unused = self.first_inactive(class).is_some();
                unused && self.active * 4 < self.size() * 3
            }
            Some(Starved::Stripes(stripes)) => self.inactive >= stripes,
        }
    }

    /// Ends the wait of requests for a free stripe if enough stripes are free. Returns whether
    /// requests may look up stripes now.
    pub(crate) fn relieve(&mut self) -> bool {
        let relieved = self.is_relieved();
        if relieved {
            self.starved = None;
            self.reserved = false;
        }
        relieved
    }

    /// Like [`Cache::relieve`], at the start of a turn of the volume. Once requests have waited for
    /// `wait_max`, all inactive stripes are kept for them: no lookup returns one.
    pub(crate) fn relieve_within(&mut self, wait_max: Span, now: Time) {
        if self.relieve() {
            self.starved_since = None;
            return;
        }
        let since = *self.starved_since.get_or_insert(now);
        self.reserved = now >= since + wait_max;
    }

    /// Has adjacent stripes of syncs take their steps together if the stripe size picks runs and no
    /// member `rotates`.
    pub(crate) fn set_syncs_together(&mut self, rotates: bool) {
        self.syncs_together = self.policy.runs.is_some() && !rotates;
    }

    /// Whether adjacent stripes of the running or last sync take their steps together.
    pub(crate) fn syncs_together(&self) -> bool {
        self.syncs_together
    }

    /// Stripe of a class that is reused next; `None` if no stripe of the class is inactive.
    #[inline]
    fn first_inactive(&self, class: u8) -> Option<StripeId> {
        self.lists.first(List::Synced).or_else(|| self.lists.first(List::Inactive(class)))
    }

    fn class_of(&self, key: u64) -> u8 {
        (key % u64::from(self.classes)) as u8
    }

    /// Puts a stripe on the list that matches its state, unless it still has member requests in
    /// flight or belongs on no list.
    pub(crate) fn release(&mut self, id: StripeId) {
        let stripe = self.stripe(id);
        if stripe.in_flight > 0 || stripe.plugged || matches!(stripe.batch, Batch::Follower(_)) {
            return;
        }
        if stripe.pins > 0 && !stripe.hashed {
            return;
        }
        if !stripe.deferred.is_empty() && !stripe.handle {
            // A stripe with a deferred write stays in the index but is on no list.
            return;
        }
        self.lists.remove(id);
        let stripe = &mut self.stripes[id.index()];
        let list = if stripe.handle && stripe.delayed && !stripe.preread {
            self.newly_delayed = true;
            self.begins_to_wait(id);
            List::Delayed
        } else if stripe.handle {
            stripe.delayed = false;
            List::Handle
        } else {
            assert!(!stripe.has_work(), "a stripe with work is handled: {stripe:?}");
            self.preread_active -= u32::from(std::mem::take(&mut stripe.preread));
            self.active -= 1;
            self.inactive += 1;
            // Lists of classes are md's, and so is the order of each.
            let synced = !stripe.served && self.syncs_together;
            if synced { List::Synced } else { List::Inactive(stripe.class) }
        };
        self.lists.push(list, id);
    }

    /// Removes a stripe with pinned memory from the index, so that another stripe can take its
    /// number. Once the memory is unpinned, [`Cache::release`] makes the stripe free again.
    pub(crate) fn retire(&mut self, id: StripeId) {
        self.forbid_preread(id);
        self.lists.remove(id);
        let stripe = self.stripe_mut(id);
        assert!(stripe.pins > 0 && stripe.in_flight == 0, "a stripe retires until it is unpinned");
        stripe.hashed = false;
        stripe.handle = false;
        let key = stripe.key;
        self.index.remove(key);
    }

    /// Gives a stripe the permission to preread, if it does not have it.
    pub(crate) fn permit_preread(&mut self, id: StripeId) {
        if !std::mem::replace(&mut self.stripe_mut(id).preread, true) {
            self.preread_active += 1;
        }
    }

    /// Withdraws a stripe's permission to preread, because it was used or is not needed.
    pub(crate) fn forbid_preread(&mut self, id: StripeId) {
        if std::mem::replace(&mut self.stripe_mut(id).preread, false) {
            assert!(self.preread_active > 0, "a permission is counted");
            self.preread_active -= 1;
        }
    }

    /// Moves all delayed stripes on, once the plug is pulled: to the hold list or, under the rule
    /// before patch 000, to the end of the handle list.
    pub(crate) fn activate_delayed(&mut self, settings: &PrioritySettings, now: Time) {
        self.wait_no_more();
        if self.lists.first(List::Delayed).is_none() {
            self.plug.no_stripe_waits(settings.plug, self.starved.is_some(), now);
            return;
        }
        let pressure = self.pressure(settings);
        if !self.plug.opens(settings, pressure, now) {
            return;
        }
        let to = settings.list_of_activated();
        while let Some(id) = self.lists.pop(List::Delayed) {
            self.stripe_mut(id).delayed = false;
            self.permit_preread(id);
            self.lists.push(to, id);
        }
    }

    /// Sets the plug, which holds delayed stripes back, if any stripe is delayed. The plug of 2008
    /// (`priority/plug_2008.rs`) is set only if a stripe was delayed in this turn: stripes that
    /// still wait after an earlier plug was pulled do not set it again.
    pub(crate) fn plug_delayed(&mut self, settings: &PrioritySettings, now: Time) {
        let new = std::mem::take(&mut self.newly_delayed);
        if self.lists.first(List::Delayed).is_some() {
            self.plug.put_in(settings.plug, new, now);
        }
    }

    /// Time at which delayed stripes move on if no other event comes before; `None` if there is no
    /// such time.
    pub(crate) fn activation_wake(&self, settings: &PrioritySettings) -> Option<Time> {
        let due = [self.plug.due(), self.waiting_wake(), self.overdue_at(settings.bound)];
        due.into_iter().flatten().min()
    }

    /// Picks the next stripes to handle, and adds them to `picked`: one stripe or, if the policy
    /// picks runs, its adjacent stripes on the same list in ascending order. Returns whether
    /// nothing, a whole run or only a part of a run was picked.
    pub(crate) fn pick(
        &mut self,
        settings: &PrioritySettings,
        picked: &mut Vec<StripeId>,
    ) -> Picked {
        let Some((list, id)) = self.pick_one(settings) else { return Picked::Nothing };
        let Some(rule) = self.policy.runs else {
            picked.push(id);
            return Picked::Run;
        };
        let stripes = self.stripes_per_chunk;
        let key = self.stripe(id).key;
        let synced = self.syncs_together && self.stripe(id).sync.is_some();
        let full_stripe = key / stripes * stripes;
        let waits = |cache: &Self, key: u64| {
            cache.index.find(key).filter(|id| cache.lists.of(*id) == Some(list))
        };
        let stripes_max = rule.stripes_max(self.stripe(id).full_write, synced, self.active);
        let first = picked.len();
        for below in (full_stripe..key).rev() {
            let Some(id) = waits(self, below) else { break };
            self.lists.remove(id);
            picked.push(id);
        }
        picked[first..].reverse();
        picked.push(id);
        for above in key + 1..full_stripe + stripes {
            let Some(id) = waits(self, above) else { break };
            if picked.len() - first >= stripes_max {
                return Picked::Part;
            }
            self.lists.remove(id);
            picked.push(id);
        }
        Picked::Run
    }

    fn pick_one(&mut self, settings: &PrioritySettings) -> Option<(List, StripeId)> {
        let ready = self
            .lists
            .first(List::Handle)
            .map(|stripe| Ready { stripe, io_started: self.stripe(stripe).io_started });
        let held = self.lists.first(List::Hold);
        match self.priority.pick(settings, ready, held, self.full_stripe_writes) {
            Pick::Held => self.lists.pop(List::Hold).map(|id| (List::Hold, id)),
            Pick::Nothing => None,
            Pick::Ready => self.lists.pop(List::Handle).map(|id| (List::Handle, id)),
        }
    }

    /// Whether a turn at `now` would pick a stripe.
    pub(crate) fn has_runnable(&self, settings: &PrioritySettings, now: Time) -> bool {
        if self.lists.first(List::Handle).is_some() || self.is_overdue(settings, now) {
            return true;
        }
        if self.has_waited(settings, now) {
            return true;
        }
        let held = self.lists.first(List::Hold);
        if held.is_some() {
            let pick = self.priority.clone().pick(settings, None, held, self.full_stripe_writes);
            return pick != Pick::Nothing;
        }
        self.lists.first(List::Delayed).is_some() && { self.plug }.opens(
            settings,
            self.pressure(settings),
            now,
        )
    }

    fn pressure(&self, settings: &PrioritySettings) -> Pressure {
        // Under a rule that gives each stripe a time of its own, no stripe waits until earlier
        // prereads are done.
        Pressure {
            reading: !settings.each_waits() && self.preread_active > 0,
            starved: self.starved.is_some(),
            idle: self.lists.first(List::Handle).is_none(),
        }
    }

    /// Whether no stripe is in use.
    pub(crate) fn is_quiet(&self) -> bool {
        self.active == 0
    }

    /// Whether a stripe below data sector `sector` of the members may still be written.
    pub(crate) fn may_write_below(&self, sector: Sectors) -> bool {
        let key = sector.0 / self.height.0;
        self.stripes.iter().any(|stripe| stripe.key < key && stripe.may_be_written())
    }
}

#[cfg(test)]
mod tests {
    use weft_ondisk::Level;

    use super::*;
    use crate::knobs::{CacheForm, PriorityRule, StripeSize};
    use crate::raid::parity::priority::rule;

    fn of_2008() -> Knobs {
        Knobs { stripe_cache_form: CacheForm::Of2008, ..Knobs::md() }
    }

    /// Acquires the stripe `key` for a request, which takes the stripe off its list.
    fn take(cache: &mut Cache, key: u64) -> StripeId {
        let geometry = Geometry::new(Level::Raid5, 2, 3, Sectors(8), Sectors(512));
        match cache.acquire(key, &geometry.expect("the geometry is legal")) {
            Acquired::Stripe(id) => id,
            Acquired::Starved => panic!("a stripe is free"),
        }
    }

    /// Acquires the stripe `key` and delays it, as when it needs a preread.
    fn delay(cache: &mut Cache, key: u64) -> StripeId {
        let id = take(cache, key);
        let stripe = cache.stripe_mut(id);
        (stripe.handle, stripe.delayed) = (true, true);
        cache.release(id);
        id
    }

    #[test]
    fn stripes_that_are_read_are_picked_in_short_runs_and_filled_ones_all_at_once() {
        let settings = &rule(PriorityRule::Bypass, 1);
        for (filled, used, runs) in [
            (false, 20, &[8, 8, 4][..]),
            // A sixteenth of the stripes in use is more than eight.
            (false, 160, &[10; 16]),
            (true, 160, &[160]),
        ] {
            let auto = Knobs { stripe_size: StripeSize::AUTO, ..Knobs::md() };
            let mut cache = Cache::new(256, Frame(0), 3, Sectors(8), 256, &auto);
            for key in 0..used {
                let id = take(&mut cache, key);
                let stripe = cache.stripe_mut(id);
                (stripe.handle, stripe.full_write) = (true, filled);
                cache.release(id);
            }
            let (mut next, mut found) = (0, Vec::new());
            while next < used {
                let mut picked = Vec::new();
                let last = cache.pick(settings, &mut picked) == Picked::Run;
                for id in &picked {
                    assert_eq!(cache.stripe(*id).key, next, "ascending, and each once");
                    next += 1;
                }
                assert_eq!(last, next == used, "others wait beside it");
                found.push(picked.len());
            }
            assert_eq!(found, runs);
            assert_eq!(cache.pick(settings, &mut Vec::new()), Picked::Nothing);
        }
    }

    #[test]
    fn a_plug_that_was_pulled_is_put_in_by_a_stripe_that_is_delayed_and_not_by_one_that_waits() {
        let plug = Some(&plug_2008::RULE);
        let unplug = &PrioritySettings { plug, ..rule(PriorityRule::Fifo, 1) };
        let millis = |millis: u64| Time(millis * 1_000_000);
        for another in [false, true] {
            let mut cache = Cache::new(16, Frame(0), 3, Sectors(8), 8, &of_2008());
            let reads = take(&mut cache, 0);
            cache.permit_preread(reads);
            let waits = delay(&mut cache, 1);
            cache.plug_delayed(unplug, millis(0));
            let wake = |cache: &Cache| cache.activation_wake(unplug);
            assert_eq!(wake(&cache), Some(millis(3)));
            // The plug is pulled without effect, because a stripe is being read.
            cache.activate_delayed(unplug, millis(3));
            assert!(!cache.take_ready(waits));
            if another {
                delay(&mut cache, 2);
            }
            cache.plug_delayed(unplug, millis(3));
            assert_eq!(wake(&cache), another.then_some(millis(6)));
            // Once that stripe has been read, the waiting stripe moves on, unless the plug was set
            // again.
            cache.forbid_preread(reads);
            cache.activate_delayed(unplug, millis(4));
            assert_eq!(cache.take_ready(waits), !another);
        }
    }

    #[test]
    fn no_stripe_waits_longer_than_it_may_on_whatever_list_it_is() {
        let millis = |millis: u64| Time(millis * 1_000_000);
        let endless = rule(PriorityRule::Bypass, 0);
        let zero = &PrioritySettings { bound: Span::millis(10), ..endless };
        let mut cache = Cache::new(32, Frame(0), 3, Sectors(8), 8, &Knobs::md());
        let reads = take(&mut cache, 0);
        cache.permit_preread(reads);
        cache.full_stripe_writes = 1;
        let waits = |cache: &mut Cache, key: u64, since: u64| {
            let id = take(cache, key);
            let stripe = cache.stripe_mut(id);
            let since = Since { at: millis(since), drained: 0 };
            (stripe.handle, stripe.delayed, stripe.waits_since) = (true, true, Some(since));
            cache.release(id);
            id
        };
        let first = waits(&mut cache, 1, 5);
        let second = waits(&mut cache, 2, 3);
        let third = waits(&mut cache, 3, 7);
        cache.lists.remove(third);
        cache.lists.push(List::Hold, third);
        let turn = |cache: &mut Cache, now: u64| {
            cache.end_overdue(zero, millis(now));
            cache.activate_delayed(zero, millis(now));
            [first, second, third].map(|id| cache.lists.of(id) == Some(List::Handle))
        };
        assert_eq!(cache.activation_wake(zero), Some(millis(13)));
        assert_eq!(cache.activation_wake(&endless), None, "md's wait has no end");
        assert_eq!(turn(&mut cache, 12), [false, false, false]);
        assert!(cache.has_runnable(zero, millis(13)));
        assert_eq!(turn(&mut cache, 13), [false, true, false]);
        assert_eq!(cache.activation_wake(zero), Some(millis(15)));
        assert_eq!(turn(&mut cache, 15), [true, true, false]);
        assert_eq!(turn(&mut cache, 17), [true, true, true]);
        assert_eq!(cache.activation_wake(zero), None);
        assert!([first, second, third].iter().all(|id| cache.stripe(*id).preread));
        // Without a bound a stripe stays where it is.
        let fourth = waits(&mut cache, 4, 20);
        cache.end_overdue(&endless, Time(u64::MAX));
        assert_eq!(cache.lists.of(fourth), Some(List::Delayed));
    }

    #[test]
    fn stripes_that_wait_make_room_for_a_request_when_they_are_more_than_half_of_all() {
        let stream = &rule(PriorityRule::Stream, 1);
        for (waiting, request_waits, made_room) in
            [(4, true, false), (5, true, true), (5, false, false)]
        {
            let mut cache = Cache::new(8, Frame(0), 3, Sectors(8), 8, &of_2008());
            let ids: Vec<StripeId> = (0..8).map(|key| take(&mut cache, key)).collect();
            // A full stripe is being written, so there will be free stripes.
            cache.full_stripe_writes = 1;
            ids[..waiting].iter().for_each(|id| cache.lists.push(List::Wait, *id));
            if request_waits {
                let geometry = Geometry::new(Level::Raid5, 2, 3, Sectors(8), Sectors(512)).unwrap();
                assert_eq!(cache.acquire(9, &geometry), Acquired::Starved);
            }
            assert_eq!(cache.has_waited(stream, Time(0)), made_room, "{waiting} of 8");
        }
    }

    #[test]
    fn a_request_waits_for_a_stripe_at_most_wait_max_behind_others_that_find_theirs_again() {
        let geometry = Geometry::new(Level::Raid5, 2, 3, Sectors(8), Sectors(512)).unwrap();
        let (wait_max, now) = (Span::millis(10), |millis: u64| Time(millis * 1_000_000));
        let auto = Knobs { stripe_size: StripeSize::AUTO, ..Knobs::md() };
        let mut cache = Cache::new(4, Frame(0), 3, Sectors(8), 8, &auto);
        let known: Vec<StripeId> = (0..4).map(|key| take(&mut cache, key)).collect();
        known.iter().for_each(|id| cache.release(*id));
        let others = [take(&mut cache, 0), take(&mut cache, 1), take(&mut cache, 2)];
        let placement = geometry.placement(weft_units::FullStripe(1));
        assert_eq!(cache.acquire_some(8, 2, || placement), Acquired::Starved);
        cache.relieve_within(wait_max, now(0));
        cache.release(others[0]);
        assert!(cache.is_free(0), "found again");
        take(&mut cache, 0);
        cache.relieve_within(wait_max, now(10));
        cache.release(others[0]);
        assert!(!cache.is_free(0));
        assert_eq!(cache.acquire(0, &geometry), Acquired::Starved, "the stripe is kept");
        assert_eq!(cache.acquire(1, &geometry), Acquired::Stripe(others[1]), "in use");
        cache.relieve_within(wait_max, now(11));
        assert!(matches!(cache.acquire_some(8, 2, || placement), Acquired::Stripe(_)));
    }
}
