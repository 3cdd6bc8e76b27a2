//! Replacement of members that still work: a spare is filled beside the member, and takes over its
//! slot at the end.
//!
//! ```text
//! asked ──spare is bound──▶ filled: every write of the slot goes to both ([`super::twin`]),
//!                           and a recovery copies the rest
//!              ├── copied ──────────▶ swap: the original has failed, the replacement has the slot
//!              ├── original failed ─▶ the replacement has the slot, and its recovery goes on
//!              └── replacement failed ─▶ the original goes on
//! ```
//!
//! The request to replace a member is kept in memory only, as in md. Once a spare is bound, its
//! superblock and the table of roles record the replacement.
//!
//! Clients read the original until the swap, also where the replacement already has the data: after
//! a crash the two may differ where a write was in flight, and only one of them may count. (md
//! reads the replacement where it is filled.) For the same reason the copy starts again from the
//! beginning after a crash in the middle of a write.
//!
//! Source   md-replace.md §1 (md: `raid5_add_disk`, `raid5_spare_active`)

use weft_ondisk::Role;
use weft_units::{MemberIndex, Sectors, Slot};

use super::{Array, set_role};
use crate::array::bad_blocks::BadLog;
use crate::array::member::Member;
use crate::array::outbox::Outbox;
use crate::contract::error::ReplyError;
use crate::contract::input::{Account, Replace};
use crate::contract::member::MemberState;
use crate::contract::output::Notice;
use crate::contract::snapshot::{MemberSnapshot, Party};
use crate::layout::slot_set::SlotSet;
use crate::mutant::Mutant;

impl Array {
    /// Position in `members` of the member that is filled to replace the one at `slot`; `None` if
    /// there is none.
    pub(super) fn replacement_of(&self, slot: Slot) -> Option<usize> {
        if !self.membership.replaced().contains(slot) {
            return None;
        }
        self.members.iter().position(|member| member.replaces == Some(slot))
    }

    /// Position in `members` of the member that a recovery of `slot` fills: the replacement if
    /// there is one, otherwise the member at `slot`. `None` if there is neither.
    pub(super) fn filled_at(&self, slot: Slot) -> Option<usize> {
        self.replacement_of(slot).or(self.position_at(slot))
    }

    /// Marks a member to be replaced by a spare, which is bound as soon as possible.
    ///
    /// # Errors
    /// The array or the member cannot be replaced now, or there is no such spare.
    pub(crate) fn replace(&mut self, replace: Replace) -> Result<(), ReplyError> {
        let Replace { member, with } = replace;
        if self.membership.read_only || self.membership.broken {
            return Err(ReplyError::ReadOnly);
        }
        self.bitmap_stays()?;
        let position = self.position_of(member).ok_or(ReplyError::Invalid("no such member"))?;
        let original = &self.members[position];
        let label = &original.info.label;
        self.has_superblocks(label)?;
        let refused = |why: &str| Err(ReplyError::Refused(format!("{label}: {why}")));
        if !self.membership.is_redundant {
            return refused(
                "found an array without redundancy, expected mirrors or parity; copy the member \
                 while the array is stopped, and assemble the copy in its place",
            );
        }
        if !original.superblock().tells_rebuilding() {
            return refused(
                "superblock version: found 0.90, expected 1.0 or later, which has a field for a \
                 replacement; fail the member and add another one",
            );
        }
        let Some(slot) = original.slot.filter(|_| original.state == MemberState::InSync) else {
            return refused(
                "found a member that is not in sync, expected one that is; add a spare",
            );
        };
        let is_asked = self.to_replace.iter().any(|it| it.member == member);
        if is_asked || self.membership.replaced().contains(slot) {
            return Err(ReplyError::Busy("the member is being replaced"));
        }
        let named = |index: MemberIndex| with.is_none_or(|with| with == index);
        let is_free = |it: &Member| it.state == MemberState::Spare && named(it.info.index);
        let spares = self.members.iter().filter(|it| is_free(it)).count();
        // Replacements for which no spare was named take the spares that are left.
        let taken = self.to_replace.iter().filter(|it| with.is_none() || it.with == with).count();
        if spares <= taken {
            return refused(if with.is_some() {
                "with: found a member that is no free spare, expected one; add it first"
            } else {
                "found no free spare to replace it with; add one first"
            });
        }
        self.to_replace.push(replace);
        Ok(())
    }

    /// Whether the spare `index` was named to replace a member.
    pub(super) fn is_named(&self, index: MemberIndex) -> bool {
        self.to_replace.iter().any(|it| it.with == Some(index))
    }

    /// Records that member `index` leaves the array or its slot. A request to replace the member is
    /// dropped. If the member was named as the spare for another member, any spare may replace that
    /// other member.
    pub(super) fn forget_to_replace(&mut self, index: MemberIndex) {
        self.to_replace.retain(|it| it.member != index);
        let named = self.to_replace.iter_mut().filter(|it| it.with == Some(index));
        named.for_each(|it| it.with = None);
    }

    /// Whether a spare can be bound to the slot of a member that it is to replace. Failures have to
    /// be recorded and the spare's own superblock must record it as a spare first, as before a
    /// spare takes an empty slot.
    pub(crate) fn can_bind(&self) -> bool {
        !self.to_replace.is_empty()
            && self.failures_recorded()
            && self.to_replace.iter().any(|it| self.spare_for(*it).is_some())
    }

    /// Position of the spare that can be bound for `replace`: the spare that `replace` names, or,
    /// if it names none, a spare that no other replacement names. `None` if there is none.
    fn spare_for(&self, replace: Replace) -> Option<usize> {
        let fits = |member: &Member| match replace.with {
            Some(with) => member.info.index == with,
            None => !self.is_named(member.info.index),
        };
        self.members.iter().position(|it| it.may_take_slot() && fits(it))
    }

    /// Snapshots of all members. `party` returns the owner of an account.
    pub(crate) fn member_snapshots(&self, party: impl Fn(Account) -> Party) -> Vec<MemberSnapshot> {
        let snapshots = self.members.iter().map(|member| member.snapshot(&party));
        let mut snapshots: Vec<MemberSnapshot> = snapshots.collect();
        for (member, snapshot) in self.members.iter().zip(&mut snapshots) {
            let is_asked = self.to_replace.iter().any(|it| it.member == member.info.index);
            let is_copied = member.slot.is_some_and(|slot| self.replacement_of(slot).is_some());
            snapshot.want_replacement = is_asked || is_copied;
        }
        for replace in &self.to_replace {
            let slot = self.position_of(replace.member).and_then(|it| self.members[it].slot);
            let is_meant = |index: MemberIndex| match replace.with {
                Some(with) => index == with,
                None => !self.is_named(index),
            };
            let free = (0..self.members.len()).filter(|&it| {
                let (member, snapshot) = (&self.members[it], &snapshots[it]);
                let is_free = member.state == MemberState::Spare && snapshot.reserved_for.is_none();
                is_free && is_meant(member.info.index)
            });
            // Spares that can be bound at once go first, as in [`Array::bind_replacements`].
            if let Some(spare) = free.min_by_key(|it| !self.members[*it].may_take_slot()) {
                snapshots[spare].reserved_for = slot;
            }
        }
        snapshots
    }

    /// Binds spares to the slots of the members that they are to replace.
    pub(crate) fn bind_replacements(&mut self) {
        for replace in self.to_replace.clone() {
            let Some(spare) = self.spare_for(replace) else { continue };
            self.to_replace.retain(|it| *it != replace);
            let slot = self.position_of(replace.member).and_then(|it| self.members[it].slot);
            let Some(slot) = slot else { continue };
            let replacement = &mut self.members[spare];
            replacement.state = MemberState::Rebuilding { recovery_offset: Sectors::ZERO };
            replacement.replaces = Some(slot);
            replacement.lacks_bitmap = self.bitmap.is_some();
            replacement.follows_bitmap = false;
            let number = replacement.number;
            set_role(&mut self.roles, number, Role::Active(slot));
        }
        self.recount();
        self.want_update();
    }

    /// Whether a member is being replaced, or is to be.
    pub(crate) fn is_replacing(&self) -> bool {
        !self.membership.replaced().is_empty() || !self.to_replace.is_empty()
    }

    /// Gives the slot of a member that failed to its replacement, if there is one. The part that
    /// was not copied yet is rebuilt from the other members.
    pub(super) fn promote_replacement(&mut self, slot: Slot) {
        let Some(position) = self.replacement_of(slot) else { return };
        assert_eq!(self.slots[slot.index()], None, "the original has left its slot");
        let replacement = &mut self.members[position];
        replacement.replaces = None;
        replacement.slot = Some(slot);
        self.slots[slot.index()] = Some(position);
    }

    /// Gives the slots of the originals to the replacements that hold all data (in sync, with no
    /// slot yet). The originals count as failed from the next superblock update on, and no write is
    /// acknowledged before it.
    pub(super) fn swap(&mut self, out: &mut Outbox) {
        for position in 0..self.members.len() {
            let member = &self.members[position];
            let Some(slot) = member.replaces.filter(|_| member.state == MemberState::InSync) else {
                continue;
            };
            let by = member.info.index;
            // The slot of a broken array may be empty.
            let Some(original) = self.position_at(slot) else { continue };
            let number = self.members[position].number as usize;
            assert_eq!(self.roles[number], Role::Active(slot), "its role was recorded");
            self.members[position].replaces = None;
            self.members[position].slot = Some(slot);
            self.slots[slot.index()] = Some(position);
            self.missed_for_space.remove(slot);
            if self.is_planted(Mutant::BadBlocksForgottenAtSwap) {
                self.members[position].bad = BadLog::default();
            }
            let original = &mut self.members[original];
            original.state = MemberState::Faulty;
            original.slot = None;
            original.to_give_up = original.in_flight > 0;
            (original.full_since, original.superblock_full_since) = (None, None);
            self.roles[original.number as usize] = Role::Faulty;
            let member = original.info.index;
            out.notice(Notice::MemberReplaced { volume: self.volume, member, by, slot });
            if let Some(bitmap) = &mut self.bitmap {
                bitmap.members_changed();
            }
            let number = self.want_update();
            if !self.is_planted(Mutant::SwapNotRecorded) {
                self.updates.records_failures = self.updates.records_failures.max(number);
            }
        }
    }

    /// Fails the replacements of the members at `slots`.
    pub(crate) fn fail_replacements(&mut self, slots: SlotSet, out: &mut Outbox) {
        for position in 0..self.members.len() {
            if self.members[position].replaces.is_some_and(|slot| slots.contains(slot)) {
                self.lose(position, out);
            }
        }
    }
}
