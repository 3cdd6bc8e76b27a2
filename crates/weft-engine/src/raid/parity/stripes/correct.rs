//! Correction of read errors: retry, reconstruct, rewrite, re-read.
//!
//! A strip that could not be read is read once more, in a request of its own, so that its
//! neighbours do not fail with it. If that fails too, the strip counts as lost in this stripe:
//! readers are served from the other strips, and when the stripe has no other work the strip is
//! rewritten and read back. If that fails, the strip is recorded as bad blocks of the member, or
//! the member is failed. A member with too many errors in succession is failed.
//!
//! A stripe may have no work left without having computed the lost strip, as when a write computed
//! parity without it. The strip is then computed only so that it can be corrected. md, by step 14
//! of its order, leaves the strip as it is and counts it as lost for as long as the stripe is
//! cached: the recovery of another member would end at this stripe.
//!
//! Strips with recorded bad blocks are corrected likewise, which clears the record.
//!
//! Source   md-raid.md §2.10, order of steps §2.2

use weft_units::{Bytes, SectorRange, Slot, StripeId};

use super::{Access, Stripes};
use crate::array::membership::{ReadAround, Report};
use crate::layout::slot_set::SlotSet;
use crate::raid::Cx;
use crate::raid::parity::stripe::Operation;
use crate::raid::parity::stripe_part::StripIo;

impl Stripes {
    /// Handles recorded bad blocks of a stripe like read errors: the strips are computed and
    /// rewritten, which clears the record.
    ///
    /// Source   md-badblocks.md §5, of members without a write error
    #[cold]
    pub(super) fn meet_bad_blocks(&mut self, id: StripeId, cx: &Cx<'_>) {
        let bad = self.bad_in_sync(id, cx);
        let stripe = self.cache.stripe_mut(id);
        if !cx.membership().read_only {
            stripe.read_error = stripe.read_error.or(bad.without(stripe.deferred));
        }
    }

    /// Records bad blocks on the members that a recovery fills, where their strip is in `lost` and
    /// so cannot be written. Returns whether these members can record bad blocks, so that the
    /// recovery goes on.
    pub(super) fn record_unrecovered(
        &mut self,
        id: StripeId,
        lost: SlotSet,
        cx: &mut Cx<'_>,
    ) -> bool {
        let height = self.cache.height();
        let sector = self.cache.stripe(id).sector(height);
        let sectors = SectorRange { start: sector, len: height };
        let Some(filled) = cx.membership().records_unrecovered(sectors) else { return false };
        for slot in filled.and(lost).ascending() {
            cx.report(Report::Unrecovered { slot, sector, sectors: height });
        }
        true
    }

    /// Records, as bad blocks, a strip that a member in sync failed to write. Returns whether the
    /// member stays in use.
    pub(super) fn record_unwritten(&mut self, part: StripIo, cx: &mut Cx<'_>) -> bool {
        let sectors = self.sectors_of(part.stripe);
        let lost = !self.is_given_without(part.stripe, SlotSet::only(part.slot), cx);
        let recorded = cx.records_unwritten(part.slot, sectors, lost);
        if recorded {
            self.cache.stripe_mut(part.stripe).deferred.remove(part.slot);
        }
        recorded
    }

    /// Whether the content of all strips follows from the strips that members hold, without those
    /// at the slots `lost`.
    pub(super) fn is_given_without(&self, id: StripeId, lost: SlotSet, cx: &Cx<'_>) -> bool {
        let readable = cx.membership().readable(self.sectors_of(id), ReadAround::Never);
        let lost = lost.or(self.cache.stripe(id).deferred);
        cx.membership().suffices(readable.without(lost))
    }

    fn sectors_of(&self, id: StripeId) -> SectorRange {
        let height = self.cache.height();
        SectorRange { start: self.cache.stripe(id).sector(height), len: height }
    }

    /// Strips that failed to be written and are recorded as bad blocks.
    #[inline]
    pub(super) fn unwritten(&self, id: StripeId, cx: &Cx<'_>) -> SlotSet {
        let stripe = self.cache.stripe(id);
        if stripe.faults.is_empty() {
            return SlotSet::EMPTY;
        }
        stripe.faults.and(self.bad_in_sync(id, cx))
    }

    /// Strips with bad blocks of members in sync.
    fn bad_in_sync(&self, id: StripeId, cx: &Cx<'_>) -> SlotSet {
        cx.membership().bad_in_sync(self.sectors_of(id))
    }

    /// Strips that could not be read and can be rewritten.
    fn to_correct(&self, id: StripeId, cx: &Cx<'_>) -> SlotSet {
        let stripe = self.cache.stripe(id);
        let bad = stripe.correctable();
        if bad.is_empty() || cx.membership().read_only || cx.membership().broken {
            return SlotSet::EMPTY;
        }
        // The strip of a member under recovery was not read: the error belongs to the former member
        // at the slot.
        let height = self.cache.height();
        bad.and(cx.membership().in_sync(stripe.sector(height) + height))
    }

    /// Strips that are to be computed only so that they can be corrected.
    #[inline]
    pub(super) fn to_compute(&self, id: StripeId, cx: &Cx<'_>) -> SlotSet {
        let stripe = self.cache.stripe(id);
        if stripe.read_error.is_empty() || stripe.has_work() {
            return SlotSet::EMPTY;
        }
        self.to_correct(id, cx).without(stripe.uptodate)
    }

    /// Rewrites a strip that could not be read and has been computed. Returns whether there was
    /// such a strip.
    pub(super) fn correct(&mut self, id: StripeId, cx: &mut Cx<'_>) -> bool {
        let bad = self.to_correct(id, cx).and(self.cache.stripe(id).uptodate);
        let Some(slot) = bad.ascending().next() else { return false };
        cx.report(Report::Correcting { slot });
        self.cache.stripe_mut(id).operation = Operation::Rewriting(slot);
        self.stage(id, SlotSet::only(slot), Access::WRITE, Bytes::ZERO, cx);
        true
    }

    pub(super) fn rewritten(&mut self, id: StripeId, slot: Slot, cx: &mut Cx<'_>) {
        assert_eq!(self.cache.stripe(id).in_flight, 0, "the member has answered");
        let failed = !std::mem::take(&mut self.cache.stripe_mut(id).faults).is_empty();
        if failed || self.cache.stripe(id).pins > 0 {
            // The write failed the member, or found no space: the strip stays lost for now. Memory
            // is not read into while it is pinned, as when one of two members that are written
            // together has not answered.
            let stripe = self.cache.stripe_mut(id);
            stripe.operation = Operation::Idle;
            stripe.uncorrectable.insert(slot);
            self.rest_or_continue(id);
            return;
        }
        self.cache.stripe_mut(id).operation = Operation::Rereading(slot);
        self.stage(id, SlotSet::only(slot), Access::Read, Bytes::ZERO, cx);
        if self.cache.stripe(id).in_flight == 0 {
            self.reread(id, slot, cx);
        }
    }

    pub(super) fn reread(&mut self, id: StripeId, slot: Slot, cx: &mut Cx<'_>) {
        let height = self.cache.height();
        let stripe = self.cache.stripe_mut(id);
        assert_eq!(stripe.in_flight, 0, "the member has answered");
        let failed = !std::mem::take(&mut stripe.faults).is_empty();
        stripe.operation = Operation::Idle;
        stripe.read_error.remove(slot);
        stripe.retried.remove(slot);
        if failed {
            // A failed read leaves undefined content in the strip's memory, even if the member is
            // gone by now.
            stripe.uptodate.remove(slot);
        }
        let sector = stripe.sector(height);
        if cx.membership().member_at(slot).is_none() {
            self.rest_or_continue(id);
            return;
        }
        if failed {
            // A member that accepts a write and cannot read it back is failed if the array can do
            // without it.
            let stripe = self.cache.stripe_mut(id);
            stripe.read_error.insert(slot);
            stripe.uncorrectable.insert(slot);
            cx.report(Report::Suspect { slot, sector, sectors: height });
        } else {
            cx.report(Report::Corrected { slot, sector, sectors: height });
        }
        self.rest_or_continue(id);
    }

    /// Handles a strip that could not be read: after the first failure it is read once more, in a
    /// request of its own; after the second it counts as lost in this stripe.
    pub(super) fn read_failed(&mut self, part: StripIo, cx: &mut Cx<'_>) {
        let stripe = self.cache.stripe_mut(part.stripe);
        // P of RAID 6 is retried too. md gives it up at once, with every strip read together with
        // it.
        if stripe.retried.contains(part.slot) {
            stripe.read_error.insert(part.slot);
        } else {
            stripe.retried.insert(part.slot);
        }
        cx.report(Report::ReadFailed { slot: part.slot, most: cx.knobs.stripe_cache_size });
    }
}
