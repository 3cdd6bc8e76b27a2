//! Membership of an array: which slots have a member, and up to where each slot can be read.

use weft_ondisk::BadBlocks;
use weft_units::{MemberIndex, SectorRange, Sectors, Slot};

use crate::array::member::Member;
use crate::contract::member::MemberState;
use crate::layout::slot_set::SlotSet;
use crate::layout::tolerance::Tolerance;
use crate::mutant::{self, Mutant};

/// Slots of an array that can be read and written, and where parity may be wrong.
#[derive(Clone, Debug)]
pub(crate) struct Membership {
    pub(crate) read_only: bool,
    /// Whether too few members are left, so that writes have stopped.
    pub(crate) broken: bool,
    /// Data sector of the members from which parity or copies may be wrong; `None` if all are
    /// correct.
    pub(crate) resync_from: Option<Sectors>,
    /// Slots with a member that is in sync everywhere; [`Membership::in_sync`] also includes partly
    /// rebuilt members.
    in_sync: SlotSet,
    /// Slots with a member that takes writes.
    present: SlotSet,
    /// Slots with a member that has bad blocks, which hold no valid data.
    with_bad: SlotSet,
    /// Slots with a member that has a bad-block log.
    with_bad_log: SlotSet,
    /// Slots with a replacement that has a bad-block log.
    replaced_with_log: SlotSet,
    /// Slots with a member that is being replaced.
    replaced: SlotSet,
    /// Slots with a member that does not answer.
    stalled: SlotSet,
    /// All slots of the array; `entries` has one entry for each slot.
    slots: SlotSet,
    entries: Vec<SlotEntry>,
    tolerance: Tolerance,
    /// Whether the array can lose at least one member when all are present. Otherwise no member is
    /// failed, and errors of members go to clients, as with md's RAID 0. An array that can lose no
    /// member need not be marked dirty either, because no members have to agree after a crash.
    pub(crate) is_redundant: bool,
    planted: Option<Mutant>,
}

#[derive(Clone, Debug, Default)]
struct SlotEntry {
    member: Option<MemberIndex>,
    /// Recovery offset of the slot's member; `None` if it is not under recovery.
    recovery_offset: Option<Sectors>,
    bad: BadBlocks,
}

/// Whether other members may be read in place of a stalled member, which would return correct data,
/// but late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadAround {
    /// Other members may be read in place of a stalled one: data and parity of the stripe are known
    /// to agree.
    Always,
    /// No other member is read in place of a stalled one: the read is for comparing parity, and a
    /// strip that is reconstructed from parity would always match it.
    Never,
    /// Other members are read in place of a stalled one only where parity was checked since the
    /// last crash, because wrong parity would yield wrong data.
    WhereChecked,
}

/// Event at a member that a personality reports to the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// A strip that could not be read is about to be rewritten on the member.
    Correcting { slot: Slot },
    /// A strip was rewritten and could be read back: `sectors` sectors from data sector `sector`
    /// on.
    Corrected { slot: Slot, sector: Sectors, sectors: Sectors },
    /// Sectors of the member, which is being rebuilt, cannot be computed, because too many of the
    /// other members cannot be read there. The sectors are recorded in the member's bad-block log.
    /// `sector` is the first data sector.
    Unrecovered { slot: Slot, sector: Sectors, sectors: Sectors },
    /// The member accepts a write of these sectors but cannot read it back. The sectors are
    /// recorded in the member's bad-block log. If the log has no room for them, the member is
    /// failed, provided that the array can run without it. `sector` is the first data sector.
    Suspect { slot: Slot, sector: Sectors, sectors: Sectors },
    /// The member failed a write. It is failed (taken out of use) even if that breaks the array.
    Failed { slot: Slot },
    /// A read failed. If the member has now failed more than `most` reads in succession, the
    /// member is failed, provided that the array can run without it.
    ReadFailed { slot: Slot, most: u32 },
}

impl Report {
    /// Slot of the member that the report is about.
    pub(crate) fn slot(self) -> Slot {
        match self {
            Self::Correcting { slot }
            | Self::Corrected { slot, .. }
            | Self::Suspect { slot, .. }
            | Self::Failed { slot }
            | Self::Unrecovered { slot, .. }
            | Self::ReadFailed { slot, .. } => slot,
        }
    }
}

impl Report {
    /// The report with its sectors, if it has any, moved up by `distance`.
    pub(crate) fn moved_up(mut self, distance: Sectors) -> Self {
        match &mut self {
            Self::Corrected { sector, .. }
            | Self::Suspect { sector, .. }
            | Self::Unrecovered { sector, .. } => *sector += distance,
            Self::Correcting { .. } | Self::Failed { .. } | Self::ReadFailed { .. } => {}
        }
        self
    }
}

impl Membership {
    /// Creates the membership of `slots` empty slots.
    pub(crate) fn new(
        slots: usize,
        tolerance: Tolerance,
        read_only: bool,
        resync_from: Option<Sectors>,
    ) -> Self {
        Self {
            read_only,
            broken: false,
            resync_from,
            in_sync: SlotSet::EMPTY,
            present: SlotSet::EMPTY,
            with_bad: SlotSet::EMPTY,
            with_bad_log: SlotSet::EMPTY,
            replaced_with_log: SlotSet::EMPTY,
            replaced: SlotSet::EMPTY,
            stalled: SlotSet::EMPTY,
            slots: SlotSet::first(slots as u16),
            entries: vec![SlotEntry::default(); slots],
            is_redundant: tolerance.is_redundant(slots),
            tolerance,
            planted: None,
        }
    }

    #[cfg(feature = "mutants")]
    pub(crate) fn plant(&mut self, mutant: Mutant) {
        self.planted = Some(mutant);
    }

    #[inline]
    pub(crate) fn is_planted(&self, mutant: Mutant) -> bool {
        mutant::is(self.planted, mutant)
    }

    /// Recomputes the sets of slots from the states of `members`. Members at slots that exist only
    /// in the other geometry of a reshape do not count.
    pub(crate) fn recount(&mut self, members: &[Member]) {
        let slots = self.slots;
        let has_slot = |member: &Member| member.slot.is_some_and(|slot| slots.contains(slot));
        let set_of = |wanted: &dyn Fn(&Member) -> bool| -> SlotSet {
            let of_slots = members.iter().filter(|member| has_slot(member) && wanted(member));
            of_slots.filter_map(|member| member.slot).collect()
        };
        self.in_sync = set_of(&|member| member.state == MemberState::InSync);
        self.present = set_of(&|member| !member.is_faulty());
        self.stalled = set_of(&|member| member.stalled && !member.is_faulty());
        self.with_bad = set_of(&|member| !member.bad.blocks().is_empty() && !member.is_faulty());
        self.with_bad_log = set_of(&|member| member.has_bad_log() && !member.is_faulty());
        let replacements = || members.iter().filter(|member| !member.is_faulty());
        self.replaced = replacements().filter_map(|member| member.replaces).collect();
        let logged = replacements().filter(|member| member.has_bad_log());
        self.replaced_with_log = logged.filter_map(|member| member.replaces).collect();
        let at_slots = members.iter().filter(|it| has_slot(it) && !it.is_faulty()).count();
        assert_eq!(at_slots, self.present.count() as usize, "a slot has one member");
        assert!(self.in_sync.without(self.present).is_empty(), "a member in sync takes writes");
        for (entry, slot) in self.entries.iter_mut().zip(0u16..) {
            let member = members.iter().find(|member| member.slot == Some(Slot(slot)));
            let member = member.filter(|member| !member.is_faulty());
            entry.member = member.map(|member| member.info.index);
            entry.recovery_offset = member.and_then(recovery_offset);
            entry.bad = member.map(|member| member.bad.blocks().clone()).unwrap_or_default();
        }
    }

    /// Updates the recovery offsets from the states of `members`.
    pub(crate) fn rebuilt(&mut self, members: &[Member]) {
        for member in members {
            if let Some(slot) = member.slot {
                self.entries[slot.index()].recovery_offset = recovery_offset(member);
            }
        }
    }

    /// Copies the state of the whole array (broken, read-only, resync) from `other`, the membership
    /// of the other geometry of a reshape.
    pub(crate) fn follow(&mut self, other: &Self) {
        (self.broken, self.resync_from) = (other.broken, other.resync_from);
        (self.read_only, self.planted) = (other.read_only, other.planted);
    }

    /// Slots from which a stripe that ends at data sector `end` (exclusive) can be read, because
    /// the slot's member is in sync up to there.
    pub(crate) fn in_sync(&self, end: Sectors) -> SlotSet {
        let mut set = self.in_sync;
        for slot in self.present.without(self.in_sync).ascending() {
            if self.entries[slot.index()]
                .recovery_offset
                .is_some_and(|recovery_offset| recovery_offset >= end)
            {
                set.insert(slot);
            }
        }
        set
    }

    /// Slots that can be read in the stripe with these data sectors. Members with bad blocks in the
    /// stripe are left out. Stalled members are left out too, if `around` permits reading the other
    /// members instead, and the other members suffice.
    #[inline]
    pub(crate) fn readable(&self, stripe: SectorRange, around: ReadAround) -> SlotSet {
        if self.stalled.is_empty() && self.present == self.in_sync && self.with_bad.is_empty() {
            return self.in_sync;
        }
        self.readable_in_part(stripe, around)
    }

    #[inline(never)]
    fn readable_in_part(&self, stripe: SectorRange, around: ReadAround) -> SlotSet {
        let mut in_sync = self.in_sync(stripe.end());
        for slot in self.with_bad.ascending() {
            if self.bad_in(slot, stripe).is_some() {
                in_sync.remove(slot);
            }
        }
        let may = match around {
            ReadAround::Always => true,
            ReadAround::WhereChecked => self.resync_from.is_none_or(|from| stripe.end() <= from),
            ReadAround::Never => false,
        };
        if !may {
            return in_sync;
        }
        let answering = in_sync.without(self.stalled);
        if self.tolerance.suffices(answering) { answering } else { in_sync }
    }

    /// Replaces the bad blocks of the member at `slot`.
    pub(crate) fn set_bad(&mut self, slot: Slot, bad: &BadBlocks) {
        self.with_bad.set(slot, !bad.is_empty());
        self.entries[slot.index()].bad.clone_from(bad);
    }

    /// Slots with a member that has bad blocks somewhere.
    #[inline]
    pub(crate) fn with_bad(&self) -> SlotSet {
        self.with_bad
    }

    /// First range of bad blocks of the member at `slot` within `sectors`; `None` if there is none.
    pub(crate) fn bad_in(&self, slot: Slot, sectors: SectorRange) -> Option<SectorRange> {
        self.entries[slot.index()].bad.first_in(sectors)
    }

    /// Slots with a member that is in sync in `sectors` but has bad blocks there.
    pub(crate) fn bad_in_sync(&self, sectors: SectorRange) -> SlotSet {
        let slots = self.with_bad.and(self.in_sync(sectors.end()));
        slots.ascending().filter(|slot| self.bad_in(*slot, sectors).is_some()).collect()
    }

    /// Slots that a recovery of `sectors` fills: slots with a member that is being rebuilt and has
    /// not reached the end of `sectors`, and slots with a member that is being replaced. `None` if
    /// sectors that cannot be computed could not be recorded as bad, because a member that is
    /// filled has no bad-block log or the array is broken.
    pub(crate) fn records_unrecovered(&self, sectors: SectorRange) -> Option<SlotSet> {
        let rebuilt = self.present.without(self.in_sync(sectors.end())).without(self.replaced);
        let all_can = rebuilt.without(self.with_bad_log).is_empty()
            && self.replaced.without(self.replaced_with_log).is_empty();
        (all_can && !self.broken).then_some(rebuilt.or(self.replaced))
    }

    /// Whether sectors that the member at `slot` fails to write are recorded as its bad blocks: it
    /// is in sync and has a bad-block log, and the array is not broken.
    pub(crate) fn records_unwritten(&self, slot: Slot) -> bool {
        self.in_sync.and(self.with_bad_log).contains(slot) && !self.broken
    }

    /// Slots with a member that takes writes.
    #[inline]
    pub(crate) fn present(&self) -> SlotSet {
        self.present
    }

    /// Whether every slot has an in-sync member.
    #[inline]
    pub(crate) fn is_whole(&self) -> bool {
        self.in_sync == self.slots
    }

    /// Whether every slot has an in-sync member that answers and has no bad blocks.
    #[inline]
    pub(crate) fn is_whole_and_answers(&self) -> bool {
        self.stalled.is_empty() && self.with_bad.is_empty() && self.is_whole()
    }

    /// Number of slots without an in-sync member.
    pub(crate) fn degraded(&self) -> usize {
        self.entries.len() - self.in_sync.count() as usize
    }

    /// Whether the in-sync members hold redundant data, so that there is something to compare.
    pub(crate) fn has_redundancy(&self) -> bool {
        self.tolerance.has_redundancy(self.in_sync)
    }

    /// Whether the members at `slots` suffice to reconstruct all data.
    pub(crate) fn suffices(&self, slots: SlotSet) -> bool {
        self.tolerance.suffices(slots)
    }

    /// Whether reads may go straight to their member, past the stripe cache: every slot has an
    /// in-sync member, and no stalled member could be replaced by reads of the others.
    pub(crate) fn reads_aligned(&self) -> bool {
        self.is_whole()
            && (self.stalled.is_empty()
                || self.readable(SectorRange::new(0, 0), ReadAround::Always) == self.in_sync)
    }

    /// Slots with a member that is being replaced.
    #[inline]
    pub(crate) fn replaced(&self) -> SlotSet {
        self.replaced
    }

    /// Slots with a member that is being rebuilt.
    #[inline]
    pub(crate) fn under_recovery(&self) -> SlotSet {
        self.present.without(self.in_sync)
    }

    /// Slots that a recovery fills: a member there is being rebuilt, or is being replaced.
    #[inline]
    pub(crate) fn filled(&self) -> SlotSet {
        self.under_recovery().or(self.replaced)
    }

    /// Whether the member at `slot` is being rebuilt.
    pub(crate) fn is_rebuilding(&self, slot: Slot) -> bool {
        self.present.contains(slot) && !self.in_sync.contains(slot)
    }

    /// Recovery offset of the member at `slot`; `None` if it is not being rebuilt.
    pub(crate) fn recovery_offset(&self, slot: Slot) -> Option<Sectors> {
        self.entries[slot.index()].recovery_offset
    }

    /// Index of the member at `slot`; `None` if the slot is empty or its member failed.
    #[inline]
    pub(crate) fn member_at(&self, slot: Slot) -> Option<MemberIndex> {
        self.entries[slot.index()].member
    }

    /// Whether the array would be broken without the member at `slot`.
    pub(crate) fn breaks(&self, slot: Slot) -> bool {
        self.breaks_without(std::iter::once(slot))
    }

    /// Whether the array would be broken without the members at `slots`.
    pub(crate) fn breaks_without(&self, slots: impl Iterator<Item = Slot>) -> bool {
        let mut left = self.in_sync;
        slots.for_each(|slot| left.remove(slot));
        left != self.in_sync && !self.tolerance.suffices(left)
    }

    /// Whether all data can be read without the member at `slot` and without the stalled members.
    pub(crate) fn can_read_around(&self, slot: Slot) -> bool {
        let others = self.in_sync.without(self.stalled).without(SlotSet::only(slot));
        self.tolerance.suffices(others)
    }
}

fn recovery_offset(member: &Member) -> Option<Sectors> {
    match member.state {
        MemberState::Rebuilding { recovery_offset } => Some(recovery_offset),
        MemberState::Faulty | MemberState::InSync | MemberState::Spare => None,
    }
}
