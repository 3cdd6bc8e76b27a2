//! Choice of the next sync.
//!
//! A reshape comes first, then the recovery of a member, then the resync after an unclean stop,
//! then the copy to a replacement, then check or repair.
//!
//! Source   md-raid.md §6.1

use weft_units::Time;

use super::command::Until;
use super::requests::Active;
use super::{FULL_RETRY, Volume};
use crate::array::outbox::Outbox;
use crate::array::resync_window::{Resync, Wanted};
use crate::array::sync_pace::Pace;
use crate::contract::error::ReplyError;
use crate::contract::input::SyncAction;
use crate::contract::output::Notice;
use crate::layout::slot_set::SlotSet;
use crate::mutant::Mutant;
use crate::raid::ArrayView;

impl Volume {
    pub(super) fn run_syncs(&mut self, out: &mut Outbox) {
        if self.sync.is_none() {
            self.choose_sync(out);
        }
        self.pace_sync(out);
        let Some(sync) = &mut self.sync else { return };
        let redundant = self.array.membership.has_redundancy();
        assert!(!self.array.membership.read_only, "a read-only array is not synced");
        // Without redundancy to compare with, the sync would count nothing and report success.
        let compares = !matches!(sync.action, SyncAction::Recover | SyncAction::Reshape);
        let blind = compares && !redundant;
        let rebuilding = self.array.rebuilding().map_or(SlotSet::EMPTY, |(slots, _)| slots);
        let spent = sync.action == SyncAction::Recover && sync.leave_out_all_but(rebuilding);
        // The recovery of a slot without a member goes before the copy to a replacement.
        let urgent = sync.action == SyncAction::Recover
            && self.array.is_replacing()
            && self.array.can_fill_slots();
        if spent || urgent || blind || self.array.membership.broken || self.quiescing.is_some() {
            sync.stop();
        }
        if self.array.is_dirty() || !changes_parity(sync.action) {
            self.raid.feed(sync, ArrayView::of(&self.array));
        }
        sync.checkpoint(&mut self.array, out);
        if sync.finish(&mut self.array, self.id, out) {
            let mut sync = self.sync.take().expect("a finished sync was running");
            let kept = self.array.is_planted(Mutant::LeaseNotGivenBack);
            if let Some(lease) = sync.lease.take().filter(|_| !kept) {
                self.array.give_back_for_sync(lease, out.now);
            }
            if sync.action == SyncAction::Recover && sync.has_failed() && !self.sync_failed_full {
                self.recovery_disabled = true;
                // If a slot has no member in sync, its recovery may be the one that failed, and not
                // the copy to a replacement.
                if self.array.membership.is_whole() {
                    self.array.fail_replacements(self.array.membership.replaced(), out);
                }
            }
            let reshape_failed = sync.action == SyncAction::Reshape && sync.has_failed();
            self.recovery_disabled |= reshape_failed && !self.sync_failed_full;
            sync.ended = Some(out.now);
            self.last_sync = Some(sync);
        }
    }

    /// Updates the speed control of the running sync from the time and from the activity of
    /// clients.
    fn pace_sync(&mut self, out: &mut Outbox) {
        let waits = self.sync.is_some() && self.client_waits();
        let Some(sync) = &mut self.sync else { return };
        let (requests, has_all) = (self.clients.requests(), sync.has_all());
        sync.pace.look(out.now, &self.knobs, requests, waits, has_all);
        self.array.sync_class = sync.pace.class();
        // Sync requests that were queued while clients were idle also count towards the sync's
        // minimum rate.
        if sync.pace.is_busy() && sync.pace.is_behind() {
            self.array.promote_syncs(out);
        }
    }

    /// Whether a client or the write-back cache waits for an answer.
    pub(super) fn client_waits(&self) -> bool {
        self.passing > 0 || self.requests.iter().flatten().any(Active::is_active)
    }

    /// Starts the next sync, if one is due.
    fn choose_sync(&mut self, out: &mut Outbox) {
        assert!(self.sync.is_none(), "one sync at a time");
        if self.syncs_held_back() {
            if self.quiescing.is_none() {
                self.wanted_sync = None;
            }
            return;
        }
        if self.wanted_sync.is_some() && !self.array.membership.has_redundancy() {
            self.wanted_sync = None;
        }
        if self.may_recover(out.now) && self.array.can_fill_slots() {
            self.array.fill_slots();
        }
        if self.may_recover(out.now) && self.array.can_bind() {
            self.array.bind_replacements();
        }
        let Some((action, wanted)) = self.next_sync(out.now) else { return };
        if self.wanted_sync.is_some_and(|(asked, _)| asked == action) {
            self.wanted_sync = None;
        }
        let lease = changes_parity(action).then(|| self.array.lease_for_sync());
        match action {
            SyncAction::Resync => self.array.resync_begins(),
            SyncAction::Reshape => self.array.reshape_goes_on(),
            _ => {}
        }
        self.sync_failed_full = false;
        self.syncs += 1;
        out.notice(Notice::SyncStarted { volume: self.id, action });
        let pass = self.raid.resync_pass(action, ArrayView::of(&self.array), &self.knobs);
        let pace = Pace::new(&self.knobs, out.now);
        self.sync = Some(Resync::new(action, wanted, &self.array, pass, lease, pace));
    }

    /// The next sync to run, and the sectors that it covers; `None` if no sync is due. In order
    /// of priority: a reshape, the recovery of a member, a resync, the copy to a replacement, an
    /// action that an administrator asked for.
    #[inline]
    fn next_sync(&self, now: Time) -> Option<(SyncAction, Wanted)> {
        let of = |action, from| (action, Wanted::all_from(from));
        if self.array.is_reshaping() {
            let from = self.array.reshape_from().filter(|_| self.may_copy(now));
            return from.map(|from| of(SyncAction::Reshape, from));
        }
        let (membership, mut recovery) = (&self.array.membership, None);
        if !membership.filled().is_empty() && self.may_recover(now) {
            recovery = self.array.rebuilding().map(|(_, from)| of(SyncAction::Recover, from));
        }
        if recovery.is_some() && !membership.under_recovery().is_empty() {
            return recovery;
        }
        if let Some(from) = self.array.membership.resync_from
            && self.array.membership.has_redundancy()
            && !self.frozen
            && !self.is_full(now)
            && (!self.array.resync_would_fail_again() || self.raid.is_unproven())
        {
            return Some(of(SyncAction::Resync, from));
        }
        let wanted = self.wanted_sync.filter(|_| !self.array.is_resizing());
        recovery.or(wanted)
    }

    /// Whether a sync will start in the next turn.
    pub(super) fn sync_is_due(&self, now: Time) -> bool {
        !self.syncs_held_back()
            && (self.next_sync(now).is_some()
                || (self.may_recover(now) && self.array.can_fill_slots())
                || (self.may_recover(now) && self.array.can_bind()))
    }

    /// Whether a resync runs, or will run once full members have been tried again.
    pub(super) fn resync_comes(&self, now: Time) -> bool {
        let next = || self.next_sync(now + FULL_RETRY).map(|(action, _)| action);
        let action = match &self.sync {
            Some(sync) => Some(sync.action),
            None if self.syncs_held_back() => None,
            None => next(),
        };
        action == Some(SyncAction::Resync)
    }

    fn syncs_held_back(&self) -> bool {
        self.array.membership.read_only
            || self.array.membership.broken
            || self.stopping
            || self.quiescing.is_some()
    }

    /// Whether a recovery may start: not while the array is reshaped or resized, syncs are frozen
    /// or a member lacks space, and not after a recovery that failed.
    fn may_recover(&self, now: Time) -> bool {
        self.may_copy(now) && !self.array.is_growing()
    }

    fn may_copy(&self, now: Time) -> bool {
        !self.recovery_disabled && !self.frozen && !self.is_full(now)
    }

    /// Whether a member had no space within the last [`FULL_RETRY`], or strips still wait for
    /// space.
    fn is_full(&self, now: Time) -> bool {
        self.has_deferred() || self.full_since.is_some_and(|since| now < since + FULL_RETRY)
    }

    /// Starts a sync of the sectors `wanted` that an administrator asked for, or stops the running
    /// sync. Returns the state that the command waits for; `None` if the command is answered at
    /// once.
    pub(super) fn sync_action(
        &mut self,
        action: SyncAction,
        wanted: Wanted,
    ) -> Result<Option<Until>, ReplyError> {
        match action {
            SyncAction::Frozen | SyncAction::Idle => {
                self.frozen = action == SyncAction::Frozen;
                self.wanted_sync = None;
                if let Some(sync) = &mut self.sync {
                    sync.stop();
                }
                return Ok(Some(Until::SyncStopped));
            }
            SyncAction::Recover | SyncAction::Reshape => {
                self.frozen = false;
                self.recovery_disabled = false;
                return Ok(None);
            }
            SyncAction::Correct if !self.raid.locates() => {
                return Err(ReplyError::Refused(
                    "correct: found neither raid6 nor three copies, so that nothing says which \
                     strip or copy is wrong; repair makes parity agree with the data, and copies \
                     with the first"
                        .to_owned(),
                ));
            }
            SyncAction::Check | SyncAction::Correct | SyncAction::Repair | SyncAction::Resync => {}
        }
        if self.sync.is_some() || self.wanted_sync.is_some() {
            return Err(ReplyError::Busy("a sync is running"));
        }
        if self.array.membership.read_only {
            return Err(ReplyError::ReadOnly);
        }
        if !self.array.membership.has_redundancy() {
            return Err(ReplyError::Refused(
                "degraded: there is no parity left to compare with; add a member first".to_owned(),
            ));
        }
        self.frozen = false;
        let action = match action {
            // A requested resync of an array that needs none is a repair.
            SyncAction::Resync => SyncAction::Repair,
            action => action,
        };
        self.wanted_sync = Some((action, wanted));
        Ok(None)
    }

    /// Starts a check, repair or correction of the sectors `wanted`. Fails for other actions, and
    /// for a range that is empty or begins behind the end of the sync.
    pub(super) fn sync_range(
        &mut self,
        action: SyncAction,
        wanted: Wanted,
    ) -> Result<Option<Until>, ReplyError> {
        if !matches!(action, SyncAction::Check | SyncAction::Correct | SyncAction::Repair) {
            return Err(ReplyError::Invalid(
                "from, to: only check, repair and correct begin and end where they are told to",
            ));
        }
        if wanted.to.is_some_and(|to| to <= wanted.from) {
            return Err(ReplyError::Invalid("to: found a sector that is not behind from"));
        }
        // Without redundancy there is no pass, and a better reason to refuse.
        if self.array.membership.has_redundancy() {
            let pass = self.raid.resync_pass(action, ArrayView::of(&self.array), &self.knobs);
            if wanted.from >= pass.size {
                return Err(ReplyError::OutOfRange);
            }
        }
        self.sync_action(action, wanted)
    }
}

/// Whether a sync with this action may write parity, so that the array must be dirty while it runs.
pub(super) fn changes_parity(action: SyncAction) -> bool {
    matches!(action, SyncAction::Correct | SyncAction::Repair | SyncAction::Resync)
}
