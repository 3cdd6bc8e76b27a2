//! Resync, recovery, check and repair of one stripe.
//!
//! ```text
//! all valid ──▶ compare parity ──▶ compute what disagrees ──▶ write it, and strips being rebuilt
//!                    └── check: locate it with P and Q, count it ──▶ done
//!                                  └── correct: compute it from the others ──▶ write it
//! ```
//!
//! Source   md-raid.md §6.2; md does not locate: H. P. Anvin, "The mathematics of RAID-6", §4

use weft_units::{Slot, StripeId};

use super::{Access, Stripes};
use crate::contract::input::{Located, SyncAction};
use crate::contract::output::{ComputeOp, Differs};
use crate::layout::slot_set::SlotSet;
use crate::raid::parity::plan::Facts;
use crate::raid::parity::stripe::{Operation, ResyncState};
use crate::raid::{Cx, Event};

impl Stripes {
    /// Whether the sync of stripe `key` has an operation of the stripe in flight. An operation that
    /// was already in flight when the sync was requested does not count: it belongs to a client,
    /// and its member may not answer.
    pub(crate) fn syncs_stripe(&self, key: u64) -> bool {
        let stripe = self.cache.find(key).map(|id| self.cache.stripe(id));
        stripe.is_some_and(|stripe| {
            stripe.in_flight > 0 && !matches!(stripe.sync, Some((_, ResyncState::Requested)))
        })
    }

    /// Compares stored parity with the data, unless the comparison could reveal nothing. Every
    /// strip must be valid.
    pub(super) fn sync_compare(&mut self, id: StripeId, facts: Facts, cx: &mut Cx<'_>) {
        let Some((parity, whole)) = self.to_compare(facts) else {
            self.sync_correct(id, SlotSet::EMPTY, cx);
            return;
        };
        let op = self.compare_op(id, parity, cx);
        self.compute(id, Operation::Comparing { parity, whole }, vec![op], cx);
    }

    /// Stored parity that is to be compared with the data, and whether every strip was read; `None`
    /// if the comparison could reveal nothing.
    pub(super) fn to_compare(&self, facts: Facts) -> Option<(SlotSet, bool)> {
        assert!(facts.all.without(facts.uptodate).is_empty(), "every strip is valid");
        let failed = facts.failed();
        // If as many strips were computed as there are parities, parity agrees by construction; a
        // strip computed from P agrees with P. But a strip may have been cached before its member
        // failed, and parity that was not checked since a crash may disagree with it.
        let unchecked = facts.resync_pending;
        let lost_data = !failed.and(facts.data()).is_empty();
        let mut parity = facts.parity().without(failed);
        if !unchecked && lost_data {
            parity.remove(facts.p);
        }
        let agrees = failed.count() >= facts.parity().count() && !unchecked;
        // A computed strip agrees with the strips it was computed from, which would hide the wrong
        // one.
        (!agrees && !parity.is_empty()).then_some((parity, failed.is_empty()))
    }

    /// The comparison of the stored parity at the slots `parity` with the data.
    pub(super) fn compare_op(&self, id: StripeId, parity: SlotSet, cx: &Cx<'_>) -> ComputeOp {
        let stripe = self.cache.stripe(id);
        let placement = stripe.placement();
        let stored = |slot: Slot| parity.contains(slot).then(|| self.whole(id, slot));
        ComputeOp::Compare {
            data: self.sources(id, stripe.data, cx),
            p: stored(placement.p),
            q: placement.q.and_then(stored),
        }
    }

    /// Handles the result of the comparison: parity strips that disagree with the data are computed
    /// again. A check and a sync of the kind `correct` locate the wrong strip instead, if the
    /// stripe has Q and every strip was read (`whole`).
    pub(super) fn sync_compared(
        &mut self,
        id: StripeId,
        differs: Differs,
        whole: bool,
        cx: &mut Cx<'_>,
    ) {
        self.parity_compared(id);
        let stripe = self.cache.stripe(id);
        let action = stripe.sync.map(|(action, _)| action);
        let locates = matches!(action, Some(SyncAction::Check | SyncAction::Correct));
        let placement = *stripe.placement();
        if differs == Differs::default() || locates {
            let mismatch = differs != Differs::default();
            if let Some(q) = placement.q.filter(|_| locates && mismatch && whole) {
                let op = ComputeOp::Locate {
                    data: self.sources(id, self.cache.stripe(id).data, cx),
                    p: self.whole(id, placement.p),
                    q: self.whole(id, q),
                };
                self.compute(id, Operation::Locating, vec![op], cx);
            } else if locates {
                self.sync_finished(id, mismatch, None, true);
                self.rest(id);
            } else {
                self.sync_correct(id, SlotSet::EMPTY, cx);
            }
            return;
        }
        let op = ComputeOp::Pq {
            data: self.sources(id, self.cache.stripe(id).data, cx),
            p: differs.p.then(|| self.whole(id, placement.p)),
            q: placement.q.filter(|_| differs.q).map(|q| self.whole(id, q)),
        };
        let mut strips = SlotSet::EMPTY;
        strips.set(placement.p, differs.p);
        if let Some(q) = placement.q {
            strips.set(q, differs.q);
        }
        self.compute(id, Operation::Regenerating(strips), vec![op], cx);
    }

    /// Records that stored parity was compared with the data.
    pub(super) fn parity_compared(&mut self, id: StripeId) {
        let stripe = self.cache.stripe_mut(id);
        let Some((_, state)) = &mut stripe.sync else {
            unreachable!("parity is compared for a sync only")
        };
        *state = ResyncState::Compared;
        let placement = *stripe.placement();
        if placement.q.is_none() && !stripe.deferred.contains(placement.p) {
            // md's check of a single parity drops the cached strip of P. A strip that is the only
            // copy is kept.
            stripe.uptodate.remove(placement.p);
        }
    }

    /// Handles the result of locating the wrong strip with P and Q. A located strip is counted and,
    /// if the action corrects, computed from the others.
    pub(super) fn sync_located(&mut self, id: StripeId, located: Located, cx: &mut Cx<'_>) {
        let placement = self.cache.stripe(id).placement();
        let wrong = match located {
            Located::Data(place) => self.cache.stripe(id).data.ascending().nth(place.into()),
            Located::P => Some(placement.p),
            Located::Q => placement.q,
            Located::Clean | Located::Unknown => None,
        };
        let stripe = self.cache.stripe_mut(id);
        let corrects = matches!(stripe.sync, Some((SyncAction::Correct, _)));
        if let Some(slot) = wrong.filter(|_| corrects) {
            let strips = SlotSet::only(slot);
            stripe.located = Some(slot);
            stripe.uptodate.remove(slot);
            self.compute_lost(id, strips, Operation::Regenerating(strips), cx);
            return;
        }
        self.sync_finished(id, true, wrong, true);
        self.rest(id);
    }

    /// Writes the strips that a sync corrects (`strips`), and those of members under recovery.
    pub(super) fn sync_correct(&mut self, id: StripeId, mut strips: SlotSet, cx: &mut Cx<'_>) {
        let stripe = self.cache.stripe_mut(id);
        let Some((action, state)) = &mut stripe.sync else { unreachable!("only a sync corrects") };
        *state = ResyncState::Compared;
        stripe.uptodate = stripe.uptodate.or(strips);
        stripe.mismatch = !strips.is_empty();
        let recovers = *action == SyncAction::Recover;
        let mut fills = SlotSet::EMPTY;
        if recovers {
            fills = cx.membership().filled().and(stripe.uptodate).without(strips);
            strips = strips.or(fills);
            // Read errors of these strips belong to former members, or to members that are being
            // replaced.
            stripe.read_error = stripe.read_error.without(strips);
            stripe.uncorrectable = stripe.uncorrectable.without(strips);
        }
        assert!(strips.without(stripe.uptodate).is_empty(), "a sync writes only valid strips");
        let slots = strips.and(cx.membership().present());
        let max = cx.knobs.max_sectors;
        if recovers {
            // md completes rebuilt strips one by one, from the lowest slot.
            for slot in slots.ascending() {
                let access = if fills.contains(slot) { Access::Fill } else { Access::WRITE };
                self.stage(id, SlotSet::only(slot), access, max, cx);
            }
        } else {
            self.stage(id, slots, Access::WRITE, max, cx);
        }
        let stripe = self.cache.stripe_mut(id);
        stripe.operation = Operation::SyncWriting;
        if stripe.in_flight == 0 {
            self.sync_written(id, cx);
        }
    }

    pub(super) fn sync_written(&mut self, id: StripeId, cx: &mut Cx<'_>) {
        let height = self.cache.height();
        let stripe = self.cache.stripe_mut(id);
        assert_eq!(stripe.in_flight, 0, "every member has answered");
        let no_space = stripe.no_space.take();
        let mismatch = std::mem::take(&mut stripe.mismatch);
        let located = stripe.located.take();
        stripe.faults = SlotSet::EMPTY;
        if let Some(slot) = no_space {
            stripe.uptodate = stripe.uptodate.and(stripe.deferred);
            // A correction that found no space is tried again when the sync returns to the stripe.
            stripe.uncorrectable.remove(slot);
            let sector = stripe.sector(height);
            self.events.push(Event::NoSpace { slot, sector });
        }
        let ok = no_space.is_none() && !cx.membership().broken;
        self.sync_finished(id, mismatch, located, ok);
        self.rest(id);
    }

    pub(super) fn sync_finished(
        &mut self,
        id: StripeId,
        mismatch: bool,
        wrong: Option<Slot>,
        ok: bool,
    ) {
        let stripe = self.cache.stripe_mut(id);
        assert!(stripe.sync.is_some(), "the sync of a stripe ends once");
        stripe.sync = None;
        stripe.operation = Operation::Idle;
        let key = stripe.key;
        self.events.push(Event::SyncDone { unit: key, mismatch, wrong, ok });
    }
}
