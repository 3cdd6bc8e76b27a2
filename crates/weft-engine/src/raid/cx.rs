//! Context of a personality while it works: the members, the knobs, and where requests go out.

use weft_units::Slot;

use crate::array::Array;
use crate::array::membership::{Membership, Report};
use crate::array::outbox::{CompletionTarget, Outbox};
use crate::contract::frame::Segment;
use crate::knobs::Knobs;
use crate::mutant::Mutant;
use crate::sched::request::MemberRequest;

/// Array, knobs and outbox that a personality works with.
pub(crate) struct Cx<'a> {
    pub(crate) array: &'a mut Array,
    pub(crate) knobs: &'a Knobs,
    pub(crate) out: &'a mut Outbox,
}

impl Cx<'_> {
    /// Slots of the array, and which of them can be read and written.
    #[inline]
    pub(crate) fn membership(&self) -> &Membership {
        &self.array.membership
    }

    #[inline]
    pub(crate) fn is_planted(&self, mutant: Mutant) -> bool {
        self.membership().is_planted(mutant)
    }

    /// Passes a report about a member to the array.
    pub(crate) fn report(&mut self, report: Report) {
        self.array.report(report, self.out);
    }

    /// Stages a read or write for the member at `slot`, with `parts` as its memory; the outbox may
    /// merge it with other requests. The answer goes to `completion`. Returns whether the slot has
    /// a member.
    #[inline(always)]
    pub(crate) fn stage(
        &mut self,
        slot: Slot,
        request: &MemberRequest,
        parts: &[Segment],
        completion: CompletionTarget,
    ) -> bool {
        let Some(position) = self.array.position_at(slot) else { return false };
        self.array.stage(position, request, parts, completion, self.out);
        true
    }

    /// Number of bytes by which a staged request to the member at `slot` can still grow; see
    /// [`Outbox::room`]. `None` if the slot has no member.
    pub(crate) fn room(&self, slot: Slot, request: &MemberRequest) -> Option<u64> {
        let position = self.array.position_at(slot)?;
        Some(self.array.room(position, request, self.out))
    }
}
