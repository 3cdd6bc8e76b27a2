//! Members without space: which data they miss, how long the array waits for them, and when they
//! are failed.
//!
//! A member file on a full file system has no space for strips, or for its superblock. Strips that
//! were not written for lack of space stay in the stripe cache and are written again later; where
//! that is not possible, parity is resynced (`Array::resync_for_space`). A member without space is
//! failed after `no_space_wait`, if the array can run without it.
//!
//! Source   weft's own; md fails a member at the first write error

use weft_units::{Sectors, Slot, Span, Time};

use super::Array;
use super::superblock_update::Corrections;
use crate::array::member::Member;
use crate::array::outbox::Outbox;
use crate::contract::member::MemberState;
use crate::knobs::Knobs;
use crate::layout::slot_set::SlotSet;

impl Array {
    /// Records that the member at `slot` had no space for strips. Returns whether it was already
    /// recorded as having none.
    pub(crate) fn found_no_space(&mut self, slot: Slot, now: Time) -> bool {
        let Some(position) = self.position_at(slot) else { return false };
        let full_since = &mut self.members[position].full_since;
        let known = full_since.is_some();
        full_since.get_or_insert(now);
        known
    }

    /// Records that members may disagree from data sector `sector` on, because a member had no
    /// space for a write or a discard. The members at the slots `missed` may lack data of which the
    /// level keeps no copy for a later write.
    pub(crate) fn resync_for_space(&mut self, sector: Sectors, missed: SlotSet) {
        assert!(!self.membership.read_only, "only writes need space");
        self.missed_for_space = self.missed_for_space.or(missed);
        let redundant = self.membership.has_redundancy();
        let from = self.membership.resync_from;
        self.resyncs_for_space = redundant && (from.is_none() || self.resyncs_for_space);
        self.membership.resync_from = Some(from.unwrap_or(sector).min(sector));
        self.need_resync_from(sector);
    }

    /// Records that the member under recovery at `slot` had no space for a write at data sector
    /// `sector`: it is no longer rebuilt from there on. The stripe cache keeps the strip and writes
    /// it later, but not if the array is stopped before.
    pub(crate) fn rebuilt_only_to(&mut self, slot: Slot, sector: Sectors) {
        let Some(position) = self.position_at(slot) else { return };
        if let MemberState::Rebuilding { recovery_offset } = &mut self.members[position].state {
            *recovery_offset = sector.min(*recovery_offset);
            self.membership.rebuilt(&self.members);
        }
    }

    /// Whether lack of space on a member is the only reason why members may disagree.
    pub(crate) fn resyncs_only_for_space(&self) -> bool {
        self.resyncs_for_space
    }

    /// Records that no member lacks space any more: each member that lacked space has stored the
    /// data that it missed, or was failed.
    pub(crate) fn found_space(&mut self) {
        for member in &mut self.members {
            member.full_since = None;
        }
        // With redundancy the resync stays, as a precaution. It is cancelled if a member fails
        // before it ends (`Array::lose`).
        if self.membership.has_redundancy() {
            return;
        }
        if self.take_back_resync_for_space(true) && !self.says_in_use() {
            self.want_update();
        }
    }

    /// Cancels a resync that lack of space had made necessary, because each member has stored the
    /// data that it missed. Data that only a failed member missed does not call for a resync, if
    /// the remaining members agree (`left_agree`). Returns whether a resync was cancelled.
    pub(super) fn take_back_resync_for_space(&mut self, left_agree: bool) -> bool {
        self.missed_for_space = SlotSet::EMPTY;
        let taken_back = std::mem::take(&mut self.resyncs_for_space) && left_agree;
        if taken_back {
            self.membership.resync_from = None;
            // The resync that is now cancelled would have covered writes since space was found. A
            // flush in flight may have started before those writes, so another flush has to cover
            // them.
            self.corrections = Corrections::Written;
        }
        taken_back
    }

    /// Whether no member is recorded as having no space for strips or for its superblock.
    pub(crate) fn has_no_full_member(&self) -> bool {
        self.members.iter().all(|member| member.is_full_since().is_none())
    }

    /// Whether a superblock update waits until a member has space.
    pub(crate) fn update_waits_for_space(&self) -> bool {
        self.updates.not_before.is_some() && self.updates.outstanding == 0 && !self.updates.held
    }

    /// Whether the array can do without all in-sync members that have no space. A member that
    /// shares its file system with a member without space counts as without space too.
    fn can_do_without_full(&self) -> bool {
        let full = |member: &Member| member.is_full_since().is_some();
        let spaces = || self.members.iter().filter(|it| full(it)).filter_map(|it| it.info.space);
        let has_space = |member: &&Member| {
            let shares = member.info.space.is_some_and(|space| spaces().any(|it| it == space));
            member.state == MemberState::InSync && !full(member) && !shares
        };
        let with_space = self.members.iter().filter(has_space).filter_map(|member| member.slot);
        self.membership.suffices(with_space.collect())
    }

    /// Fails the members that have had no space for `no_space_wait`, if the array can run without
    /// them.
    pub(crate) fn give_up_full(&mut self, knobs: &Knobs, out: &mut Outbox) {
        let (now, wait) = (out.now, knobs.no_space_wait);
        let is_due = |member: &Member| {
            !member.is_faulty()
                && wait > Span::ZERO
                && member.is_full_since().is_some_and(|since| since + wait <= now)
        };
        let suffices = self.can_do_without_full();
        for position in 0..self.members.len() {
            let member = &self.members[position];
            if is_due(member) && (suffices || member.state != MemberState::InSync) {
                self.fail(position, knobs, out);
                if self.update_waits_for_space() {
                    // The update may have waited only for this member.
                    self.updates.not_before = None;
                }
            }
        }
    }

    /// Whether a superblock update waits for space on a member, and no member can be failed
    /// instead. `wait` is the knob `no_space_wait`; at 0 no member is failed for lack of space.
    pub(crate) fn is_stuck(&self, wait: Span) -> bool {
        let may_give_up = |member: &Member| {
            member.superblock_full_since.is_some()
                && !member.is_faulty()
                && (member.state != MemberState::InSync || self.can_do_without_full())
        };
        self.update_waits_for_space()
            && (wait == Span::ZERO || !self.members.iter().any(may_give_up))
    }
}
