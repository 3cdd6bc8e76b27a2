//! Who do rows turn to?
//!
//! To the array, by a call, or to their end of a queue ([`crate::shard`]).

use weft_units::Slot;

use crate::array::{Array, MemberRequest};
use crate::frame::Part;
use crate::knobs::Knobs;
use crate::membership::{Membership, Report};
use crate::mutant::Mutant;
use crate::outbox::{Outbox, Who};
use crate::shard::Far;

/// What rows need of the world while they are handled.
pub(crate) struct Surroundings<'a> {
    pub(crate) link: Link<'a>,
    pub(crate) knobs: &'a Knobs,
    pub(crate) out: &'a mut Outbox,
}

/// Where the array is.
pub(crate) enum Link<'a> {
    /// Behind queues.
    Far(&'a mut Far),
    /// Here.
    Near(&'a mut Array),
}

impl Surroundings<'_> {
    /// Who can be read and written, as far as it is known.
    #[inline]
    pub(crate) fn membership(&self) -> &Membership {
        match &self.link {
            Link::Far(far) => &far.membership,
            Link::Near(array) => &array.membership,
        }
    }

    #[inline]
    pub(crate) fn is_planted(&self, mutant: Mutant) -> bool {
        self.membership().is_planted(mutant)
    }

    /// Whether the array is behind queues.
    #[inline]
    pub(crate) fn is_far(&self) -> bool {
        matches!(self.link, Link::Far(_))
    }

    /// Reports something of a member. It counts at once for whoever reports it.
    pub(crate) fn report(&mut self, report: Report) {
        match &mut self.link {
            Link::Far(far) => far.report(report),
            Link::Near(array) => array.report(report, array.membership.number, self.out),
        }
    }

    /// Sends a read or write of these parts to the member at a slot, which may be merged with others.
    /// Whether there is one.
    #[inline(always)]
    pub(crate) fn stage(
        &mut self,
        slot: Slot,
        request: &MemberRequest,
        parts: &[Part],
        who: Who,
    ) -> bool {
        match &mut self.link {
            Link::Far(far) => far.stage(slot, request, parts, who),
            Link::Near(array) => {
                let Some(position) = array.position_at(slot) else { return false };
                array.stage(position, request, parts, who, self.out);
                true
            }
        }
    }

    /// Bytes that a request to the member at a slot takes with it; see [`Outbox::room`]. `None` if
    /// there is none.
    pub(crate) fn room(&self, slot: Slot, request: &MemberRequest) -> Option<u64> {
        match &self.link {
            Link::Far(far) => far.membership.member_at(slot).map(|_| request.max.0),
            Link::Near(array) => {
                let position = array.position_at(slot)?;
                Some(array.room(position, request, self.out))
            }
        }
    }
}
