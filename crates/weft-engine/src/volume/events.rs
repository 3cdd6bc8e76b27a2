//! Volume events: reports from the personality, and members that have no space.

use weft_units::{Sectors, Slot, Time};

use super::{FULL_RETRY, Volume};
use crate::array::outbox::Outbox;
use crate::contract::error::ReplyError;
use crate::contract::input::{Fault, SyncAction};
use crate::contract::output::Notice;
use crate::contract::snapshot::WrongStrip;
use crate::layout::slot_set::SlotSet;
use crate::mutant::Mutant;
use crate::raid::{Event, SPLITTING};

impl Volume {
    /// Tries again to write the strips for which members had no space, once per [`FULL_RETRY`].
    pub(super) fn write_deferred(&mut self, out: &mut Outbox) {
        if self.may_write_deferred() && self.retry_wake().is_some_and(|time| out.now >= time) {
            self.full_since = Some(out.now);
            self.array.give_up_full(&self.knobs, out);
            self.with_raid(out, |raid, cx| raid.write_deferred(cx));
            self.take_events(out);
        }
        let is_open = self.full_since.is_none() || self.has_deferred();
        if !is_open && self.raid.is_unproven() && !self.resync_comes(out.now) {
            // Only writes of clients can find out whether there is space again.
            self.full_since = None;
        }
    }

    /// Time at which to check whether a full member has space again; `None` if no timer is needed.
    pub(super) fn retry_wake(&self) -> Option<Time> {
        let due = self.full_since? + FULL_RETRY;
        // A sync that is not due needs no wake-up.
        let waits = self.may_write_deferred() || (self.sync.is_none() && self.sync_is_due(due));
        (waits && !self.array.membership.broken).then_some(due)
    }

    /// Whether strips wait for space and may still be written. In a volume that stops and is idle,
    /// they may be written only if its last superblocks will record a resync and are not written
    /// yet.
    fn may_write_deferred(&self) -> bool {
        let ends = || self.stopping && self.is_idle();
        let says_clean = || self.array.membership.resync_from.is_none();
        self.has_deferred() && !(ends() && (says_clean() || self.array.is_settled()))
    }

    /// Whether strips wait for space and will not be written again.
    pub(super) fn never_writes_deferred(&self) -> bool {
        let given_up = self.array.membership.broken || !self.may_write_deferred();
        self.has_deferred() && given_up
    }

    #[inline]
    pub(super) fn take_events(&mut self, out: &mut Outbox) {
        if !self.raid.events().is_empty() {
            self.take_some_events(out);
        }
    }

    #[inline(never)]
    fn take_some_events(&mut self, out: &mut Outbox) {
        loop {
            let mut events = std::mem::take(self.raid.events());
            for event in events.drain(..) {
                self.event(event, out);
            }
            // Keeps the allocation, unless new events were added.
            if self.raid.events().is_empty() {
                *self.raid.events() = events;
                return;
            }
        }
    }

    #[inline(always)]
    fn event(&mut self, event: Event, out: &mut Outbox) {
        match event {
            Event::Split { request, sub_requests, whole } => {
                if whole {
                    self.is_split(request, out);
                }
                let sub_requests = u64::from(sub_requests);
                self.active(request).pending += sub_requests;
                self.sub_requests_done(request, SPLITTING, out);
            }
            Event::SubRequestsDone { request, sub_requests, result } => {
                if let Err(error) = result {
                    self.raid.request_failed(request);
                    self.failed(request, error);
                }
                self.sub_requests_done(request, sub_requests.into(), out);
            }
            Event::Lock { part, range, writes } => self.lock(part, range, writes, out),
            Event::Pinned { .. } | Event::Unpinned { .. }
                if self.array.is_planted(Mutant::ZeroCopyNotPinned) => {}
            Event::Pinned { request } => self.active(request).pins += 1,
            Event::SyncDone { unit, mismatch, wrong, ok } => {
                let sync = self.sync.as_mut().expect("units are synced for a sync");
                sync.unit_done(unit, mismatch, ok);
                let left = match sync.action {
                    SyncAction::Check => true,
                    SyncAction::Correct => wrong.is_none(),
                    _ => false,
                };
                if mismatch && left {
                    let sector = sync.sector_of(unit);
                    let wrong = wrong.and_then(|slot| {
                        let member = self.array.at(slot)?;
                        let at = member.data_sector(sector);
                        Some(WrongStrip { member: member.info.index, slot, at })
                    });
                    sync.found_mismatch(unit, wrong);
                }
            }
            Event::SyncPutOff { unit, no_space } => {
                let sync = self.sync.as_mut().expect("units are synced for a sync");
                sync.unit_put_off(unit);
                if no_space {
                    self.full_since.get_or_insert(out.now);
                }
            }
            Event::NoSpaceForDiscard { slot, sector } => self.no_space(slot, sector, out),
            Event::NoSpace { slot, sector } => {
                // An unwritten strip of a slot under recovery, or of a failed member, does not make
                // the other members disagree.
                let membership = &self.array.membership;
                if membership.is_rebuilding(slot) {
                    self.array.rebuilt_only_to(slot, sector);
                } else if membership.present().contains(slot) {
                    self.array.resync_for_space(sector, SlotSet::EMPTY);
                }
                self.no_space(slot, sector, out);
            }
            Event::Unpinned { request } => self.unpin(request, out),
            Event::Written => {
                self.full_since = None;
                self.array.found_space();
                self.sync_failed_full = false;
            }
        }
    }

    /// Handles the report that the member at `slot` had no space for data at `sector`, a data
    /// sector of the members.
    fn no_space(&mut self, slot: Slot, sector: Sectors, out: &mut Outbox) {
        if let Some(sync) = &mut self.sync {
            self.sync_failed_full = true;
            match sync.action {
                // The copies that were made stay valid, and those that found no space are kept in
                // memory.
                SyncAction::Reshape => sync.stop(),
                _ => sync.rewind_to(sector),
            }
        }
        let known = self.array.found_no_space(slot, out.now);
        let first = self.full_since.replace(out.now).is_none();
        if first
            && !known
            && let Some(member) = self.array.at(slot)
        {
            out.notice(Notice::NoSpace { member: member.info.index });
        }
    }

    /// Handles the result of a superblock or bitmap write, in particular whether the member had
    /// space.
    pub(super) fn metadata_done(
        &mut self,
        position: Option<usize>,
        result: Result<(), Fault>,
        out: &mut Outbox,
    ) {
        if result == Err(Fault::NoSpace) || self.array.update_waits_for_space() {
            self.no_superblock_space(position, out);
        } else if self.full_since.is_some()
            && self.array.has_no_full_member()
            && !self.has_deferred()
        {
            self.full_since = None;
        }
    }

    /// Handles a superblock for which its member had no space, or an update that waits for space.
    /// Requests do not wait for the update: they fail with the same error as writes that find no
    /// space.
    #[cold]
    fn no_superblock_space(&mut self, position: Option<usize>, out: &mut Outbox) {
        let first = self.full_since.is_none();
        if first && let Some(position) = position {
            let member = self.array.members[position].info.index;
            out.notice(Notice::NoSpace { member });
        }
        self.full_since = Some(out.now);
        if !self.array.update_waits_for_space() {
            return;
        }
        self.array.give_up_full(&self.knobs, out);
        while let Some(id) = self.before_lease.pop_front() {
            self.active(id).error = Some(ReplyError::NoSpace);
            self.ready.push_back(id);
        }
        if self.array.is_stuck(self.knobs.no_space_wait) {
            while let Some(id) = self.held.pop_front() {
                self.failed(id, ReplyError::NoSpace);
                self.answer(id, out);
            }
        }
    }
}
