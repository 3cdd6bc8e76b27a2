//! Parts of member requests of a parity level: strips, runs of strips, and straight reads.

use weft_units::{Slot, StripeId};

use crate::array::outbox::CompletionTarget;
use crate::contract::token::RequestId;
use crate::raid::straight::StraightPart;

/// Part of a member request of a RAID 4, 5 or 6: a strip, a run of strips, or data of a client's
/// read.
#[derive(Clone, Copy, Debug)]
pub(super) enum StripePart {
    Run(StripRun),
    Strips(StripsIo),
    Straight(StraightPart),
    Strip(StripIo),
}

/// Read or write of one strip of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StripIo {
    pub(crate) stripe: StripeId,
    pub(crate) slot: Slot,
    /// Request that owns the memory; `None` if it is the stripe's own.
    pub(crate) zero_copy_from: Option<RequestId>,
}

/// Write of the strips of one slot in adjacent stripes of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StripRun {
    pub(crate) head: StripeId,
    pub(crate) slot: Slot,
    /// Distance of the run's first stripe from the first stripe of the batch, and (`count`) number
    /// of stripes in the run.
    pub(crate) first: u32,
    pub(crate) count: u32,
}

/// Read or write of the strips of one slot in adjacent stripes, each of which counts it as its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StripsIo {
    /// First of the stripes; the numbers of their entries follow each other.
    pub(crate) first: StripeId,
    pub(crate) slot: Slot,
    /// Number of stripes.
    pub(crate) count: u32,
}

impl StripePart {
    /// Converts the words that the outbox stores for a part back to the part.
    #[inline(always)]
    pub(super) fn of(target: CompletionTarget) -> Self {
        let [one, slot, three, four] = target.words;
        let (stripe, slot) = (StripeId(one), Slot(slot as u16));
        match target.kind {
            StripIo::KIND => {
                let zero_copy_from = (three == 1).then_some(RequestId(four));
                Self::Strip(StripIo { stripe, slot, zero_copy_from })
            }
            StripRun::KIND => Self::Run(StripRun { head: stripe, slot, first: three, count: four }),
            StripsIo::KIND => Self::Strips(StripsIo { first: stripe, slot, count: three }),
            _ => Self::Straight(StraightPart::of(target).expect("a parity level has four kinds")),
        }
    }
}

impl StripIo {
    const KIND: u32 = 1;

    /// Converts the strip to the words that the outbox stores for a part.
    #[inline(always)]
    pub(super) fn target(self) -> CompletionTarget {
        let Self { stripe, slot, zero_copy_from } = self;
        let owner = zero_copy_from.map_or([0, 0], |request| [1, request.0]);
        let words = [stripe.0, slot.0.into(), owner[0], owner[1]];
        CompletionTarget { kind: Self::KIND, words }
    }
}

impl StripRun {
    const KIND: u32 = 2;

    /// Converts the run to the words that the outbox stores for a part.
    #[inline(always)]
    pub(super) fn target(self) -> CompletionTarget {
        let words = [self.head.0, self.slot.0.into(), self.first, self.count];
        CompletionTarget { kind: Self::KIND, words }
    }
}

impl StripsIo {
    const KIND: u32 = 3;

    /// Converts the strips to the words that the outbox stores for a part.
    pub(super) fn target(self) -> CompletionTarget {
        let words = [self.first.0, self.slot.0.into(), self.count, 0];
        CompletionTarget { kind: Self::KIND, words }
    }
}

#[cfg(test)]
mod tests {
    use weft_units::Bytes;

    use super::*;

    #[test]
    fn parts_are_read_back_from_their_targets() {
        let (stripe, slot) = (StripeId(u32::MAX - 1), Slot(u16::MAX));
        for zero_copy_from in [None, Some(RequestId(0)), Some(RequestId(u32::MAX))] {
            let strip = StripIo { stripe, slot, zero_copy_from };
            assert!(matches!(StripePart::of(strip.target()), StripePart::Strip(it) if it == strip));
        }
        let run = StripRun { head: stripe, slot, first: 7, count: u32::MAX };
        assert!(matches!(StripePart::of(run.target()), StripePart::Run(it) if it == run));
        let strips = StripsIo { first: stripe, slot, count: u32::MAX };
        assert!(matches!(StripePart::of(strips.target()), StripePart::Strips(it) if it == strips));
        for start in [0, 512, u64::from(u32::MAX) + 512, u64::MAX] {
            let part = StraightPart { request: RequestId(9), start: Bytes(start), len: u32::MAX };
            let found = StripePart::of(part.target());
            assert!(matches!(found, StripePart::Straight(it) if it == part));
        }
    }
}
