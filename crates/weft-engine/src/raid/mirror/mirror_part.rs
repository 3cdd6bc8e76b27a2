//! Parts of member requests of a mirror: copies in a sync or correction, and straight parts.

use weft_units::Slot;

use crate::array::outbox::CompletionTarget;
use crate::raid::straight::StraightPart;

/// Part of a member request of a RAID 1 or RAID 10: data of a client request, or a copy in a sync
/// or correction.
#[derive(Clone, Copy, Debug)]
pub(super) enum MirrorPart {
    Copy(CopyIo),
    Straight(StraightPart),
}

/// Read or write of one copy in a sync or correction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CopyIo {
    /// Index of the range in sync or correction ([`super::sync`]'s `Part`) to which the copy
    /// belongs.
    pub(super) place: u32,
    pub(super) slot: Slot,
}

impl MirrorPart {
    /// Converts the words that the outbox stores for a part back to the part.
    #[inline(always)]
    pub(super) fn of(target: CompletionTarget) -> Self {
        let [place, slot, ..] = target.words;
        match target.kind {
            CopyIo::KIND => Self::Copy(CopyIo { place, slot: Slot(slot as u16) }),
            _ => Self::Straight(StraightPart::of(target).expect("a mirror has two kinds")),
        }
    }
}

impl CopyIo {
    const KIND: u32 = 1;

    /// Converts the copy to the words that the outbox stores for a part.
    pub(super) fn target(self) -> CompletionTarget {
        CompletionTarget { kind: Self::KIND, words: [self.place, self.slot.0.into(), 0, 0] }
    }
}

#[cfg(test)]
mod tests {
    use weft_units::Bytes;

    use super::*;
    use crate::contract::token::RequestId;

    #[test]
    fn parts_are_read_back_from_their_targets() {
        let copy = CopyIo { place: u32::MAX, slot: Slot(u16::MAX) };
        assert!(matches!(MirrorPart::of(copy.target()), MirrorPart::Copy(it) if it == copy));
        let part = StraightPart { request: RequestId(3), start: Bytes(1 << 40), len: 4096 };
        assert!(matches!(MirrorPart::of(part.target()), MirrorPart::Straight(it) if it == part));
    }
}
