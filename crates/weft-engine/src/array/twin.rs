//! Twin writes: while a member is being replaced, each write of its slot goes to two members, the
//! one at the slot (the *original*) and its *replacement*.
//!
//! A personality orders one write and gets one answer, after both members have answered. Thus a
//! flush that follows the answer covers the replacement too, and the replacement holds every
//! acknowledged write when it takes the slot. The answer is that of the member at the slot when
//! both have answered: the original until the swap, and the replacement after the swap or after the
//! original failed. A replacement that fails a write is failed, and the write counts as if there
//! were no replacement.
//!
//! The copy of a strip to a replacement ([`Array::stage_fill`]) is a twin write that goes to the
//! replacement only. Discards are twin writes too.
//!
//! Source   md-replace.md §1 (md: `ops_run_io`, `raid1_write_request`)

use smallvec::{SmallVec, smallvec};
use weft_units::{MemberIndex, SectorRange, Sectors, Slot};

use super::Array;
use crate::array::outbox::{CompletionTarget, Outbox, Owner};
use crate::contract::frame::Segment;
use crate::contract::input::{Attr, Fault};
use crate::contract::output::MemberOp;
use crate::contract::token::RequestId;
use crate::mutant::Mutant;
use crate::sched::request::MemberRequest;

/// Twin writes in progress, by index.
#[derive(Clone, Debug, Default)]
pub(super) struct Twins {
    entries: Vec<Option<Twin>>,
    free: Vec<u32>,
}

/// Answer to a member request of a twin write, or to the whole write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TwinAnswer {
    /// Member that answered; for the answer to the whole write, the member at the slot. `None` for
    /// a copy to a replacement that does not have the slot.
    pub(crate) member: Option<MemberIndex>,
    pub(crate) result: Result<(), Fault>,
    /// Whether the request of `member` was given up.
    pub(crate) given_up: bool,
    /// Whether the request of at least one member was given up, so that this member may still use
    /// the memory of the write.
    pub(crate) pins: bool,
}

/// Recipient of the answer to a twin write in the personality.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TwinOwner {
    Part(CompletionTarget),
    /// The write is a discard of a part of the range of this request.
    Discard(RequestId),
}

#[derive(Clone, Debug)]
struct Twin {
    owner: TwinOwner,
    slot: Slot,
    /// Data sectors that are written.
    sectors: SectorRange,
    /// Member at the slot when the write was ordered; `None` if the write is a copy.
    original: Option<MemberIndex>,
    replacement: MemberIndex,
    /// Results of the original and of the replacement. The flag of each is true if the member's
    /// request was given up.
    results: [(Result<(), Fault>, bool); 2],
    /// Number of members that have not answered.
    pending: u32,
    /// Number of members that may still use the memory of the write, because their requests were
    /// given up.
    pins: u32,
    /// Parts for which the personality has pinned memory, until `pins` is zero.
    pinned: Vec<CompletionTarget>,
}

/// Member request of a twin write.
#[derive(Clone, Copy, Debug)]
struct TwinPart {
    place: u32,
    /// Whether the request went to the replacement.
    is_second: bool,
}

impl TwinPart {
    fn target(self) -> CompletionTarget {
        CompletionTarget { kind: TWIN, words: [self.place, self.is_second.into(), 0, 0] }
    }
}

/// Whether the answer of this part goes to [`Array::twin_answered`].
#[inline]
pub(crate) fn is_twin(part: CompletionTarget) -> bool {
    part.kind == TWIN
}

/// Kind of the parts of twin writes. Personalities number the kinds of their parts from 0.
const TWIN: u32 = u32::MAX;

impl Twins {
    fn begin(&mut self, twin: Twin) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() as u32 - 1
        });
        let before = self.entries[place as usize].replace(twin);
        assert!(before.is_none(), "an entry is used by one write");
        place
    }

    fn at(&mut self, part: CompletionTarget) -> (TwinPart, &mut Twin) {
        let [place, is_second, ..] = part.words;
        let twin = self.entries[place as usize].as_mut().expect("a twin write is under way");
        (TwinPart { place, is_second: is_second == 1 }, twin)
    }

    /// Frees the entry of a write that both members have answered and no member can still touch.
    fn free_if_over(&mut self, place: u32) {
        let twin = self.entries[place as usize].as_ref();
        if twin.is_some_and(|twin| twin.pending == 0 && twin.pins == 0) {
            self.entries[place as usize] = None;
            self.free.push(place);
        }
    }
}

fn sectors_of(request: &MemberRequest) -> SectorRange {
    SectorRange { start: request.sector, len: request.bytes.sectors_floor() }
}

impl Array {
    /// Slot of the member at `position`, and position of its replacement; `None` if it has none.
    fn second_of(&self, position: usize) -> Option<(Slot, usize)> {
        let slot = self.members[position].slot?;
        Some((slot, self.replacement_of(slot)?))
    }

    /// Stages a write, like [`Array::stage`], for the member at `position` and, if that member is
    /// being replaced, for its replacement too.
    #[cold]
    pub(super) fn stage_twins(
        &mut self,
        position: usize,
        request: &MemberRequest,
        parts: &[Segment],
        completion: CompletionTarget,
        out: &mut Outbox,
    ) {
        let planted = self.is_planted(Mutant::ReplacementNotWritten);
        let Some((slot, second)) = self.second_of(position).filter(|_| !planted) else {
            out.stage(self.volume, &mut self.members[position], request, parts, completion);
            return;
        };
        let sectors = sectors_of(request);
        let place = self.twin((slot, second), sectors, TwinOwner::Part(completion), 2);
        for (position, is_second) in [(position, false), (second, true)] {
            let completion = TwinPart { place, is_second }.target();
            out.stage(self.volume, &mut self.members[position], request, parts, completion);
        }
    }

    /// Stages a write that fills the member at `slot`: it goes to the slot's replacement if there
    /// is one, and otherwise to the member itself. Returns whether there is either.
    pub(crate) fn stage_fill(
        &mut self,
        slot: Slot,
        request: &MemberRequest,
        parts: &[Segment],
        completion: CompletionTarget,
        out: &mut Outbox,
    ) -> bool {
        assert!(request.write, "a member is filled by writes");
        let (mut completion, replacement) = (completion, self.replacement_of(slot));
        let Some(position) = replacement.or(self.position_at(slot)) else { return false };
        if replacement.is_some() {
            let owner = TwinOwner::Part(completion);
            let place = self.twin((slot, position), sectors_of(request), owner, 1);
            completion = TwinPart { place, is_second: true }.target();
        }
        self.stage(position, request, parts, completion, out);
        true
    }

    /// Tells the member at `position`, and its replacement if it has one, to discard `sectors` of
    /// its data. `counted` is added to the number of sectors written to each of the two.
    pub(crate) fn discard(
        &mut self,
        position: usize,
        (sectors, counted): (SectorRange, Sectors),
        (request, fua, attr): (RequestId, bool, &Attr),
        out: &mut Outbox,
    ) {
        let mut owners: SmallVec<[(usize, Owner); 2]> =
            smallvec![(position, Owner::Discard(request))];
        if let Some((slot, second)) = self.second_of(position) {
            let place = self.twin((slot, second), sectors, TwinOwner::Discard(request), 2);
            let part = |is_second| Owner::TwinDiscard(TwinPart { place, is_second }.target());
            owners = smallvec![(position, part(false)), (second, part(true))];
        }
        for (position, owner) in owners {
            let member = &mut self.members[position];
            assert!(sectors.end() <= member.data_size, "a discard lies within the member's data");
            let (at, len) = (member.data_sector(sectors.start), sectors.len);
            out.submit(self.volume, member, MemberOp::Discard { at, len, fua }, attr, owner);
            member.sent(attr, true, counted);
        }
    }

    fn twin(
        &mut self,
        (slot, replacement): (Slot, usize),
        sectors: SectorRange,
        owner: TwinOwner,
        pending: u32,
    ) -> u32 {
        let replacement = self.members[replacement].info.index;
        let original = self.membership.member_at(slot).filter(|_| pending == 2);
        self.twins.begin(Twin {
            owner,
            slot,
            sectors,
            original,
            replacement,
            results: [(Ok(()), false); 2],
            pending,
            pins: 0,
            pinned: Vec::new(),
        })
    }

    /// Handles the answer of a member to its part of a twin write. Returns the recipient and the
    /// answer for it once both members have answered, and `None` before.
    #[cold]
    pub(crate) fn twin_answered(
        &mut self,
        part: CompletionTarget,
        answer: TwinAnswer,
        out: &mut Outbox,
    ) -> Option<(TwinOwner, TwinAnswer)> {
        let (TwinPart { is_second, .. }, twin) = self.twins.at(part);
        assert!(twin.pending > 0, "a member answers once");
        twin.pending -= 1;
        twin.pins += u32::from(answer.pins);
        twin.results[usize::from(is_second)] = (answer.result, answer.given_up);
        let (replacement, sectors) = (twin.replacement, twin.sectors);
        if is_second {
            let position = self.position_of(replacement);
            let filled = position.filter(|it| self.members[*it].replaces.is_some());
            match (filled, answer.result) {
                (Some(position), Err(_)) => self.lose(position, out),
                (_, Ok(())) if !answer.given_up => self.written_over(Some(replacement), sectors),
                (_, _) => {}
            }
        }
        let (TwinPart { place, .. }, twin) = self.twins.at(part);
        if twin.pending > 0 {
            return None;
        }
        let (owner, original, results) = (twin.owner, twin.original, twin.results);
        let pins = twin.pins > 0;
        let has_slot = self.membership.member_at(twin.slot) == Some(replacement);
        self.twins.free_if_over(place);
        let (member, (result, given_up)) =
            if has_slot { (Some(replacement), results[1]) } else { (original, results[0]) };
        Some((owner, TwinAnswer { member, result, given_up, pins }))
    }

    /// Records the parts for which the personality has pinned memory after it was notified that
    /// `part` was given up.
    pub(crate) fn twin_pinned(&mut self, part: CompletionTarget, pinned: Vec<CompletionTarget>) {
        self.twins.at(part).1.pinned = pinned;
    }

    /// Handles the late answer to a part (a member's request) of a twin write that was given up.
    /// Returns the parts for which the personality can unpin memory.
    pub(crate) fn twin_freed(&mut self, part: CompletionTarget) -> Vec<CompletionTarget> {
        let (TwinPart { place, .. }, twin) = self.twins.at(part);
        assert!(twin.pins > 0, "memory is freed as often as it was pinned");
        twin.pins -= 1;
        let freed = if twin.pins == 0 { std::mem::take(&mut twin.pinned) } else { Vec::new() };
        self.twins.free_if_over(place);
        freed
    }
}
