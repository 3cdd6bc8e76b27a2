//! Which sync runs now?
//!
//! What is needed before what was asked for: a member to rebuild, then parity to check after an
//! unclean stop, then check or repair.
//!
//! Source   md-raid.md §6.1

use weft_units::Sectors;

use super::Volume;
use super::command::Until;
use crate::error::ReplyError;
use crate::input::SyncAction;
use crate::outbox::Outbox;
use crate::output::Notice;
use crate::raid::parity::sync::RowSync;

impl Volume {
    pub(super) fn run_syncs(&mut self, out: &mut Outbox) {
        if self.sync.is_none() {
            self.choose_sync(out);
        }
        let Some(sync) = &mut self.sync else { return };
        let spent = sync.action == SyncAction::Recover
            && self.array.rebuilding().is_none_or(|(slots, _)| !sync.rebuilds_only(slots));
        if spent || self.array.broken || self.resizing.is_some() {
            sync.stop();
        }
        if self.array.is_dirty() || !changes_parity(sync.action) {
            sync.feed(&mut self.rows, &self.array);
        }
        sync.checkpoint(&mut self.array);
        if sync.finish(&mut self.array, self.id, out) {
            let sync = self.sync.take().expect("it was there");
            if changes_parity(sync.action) {
                self.array.write_ends(out.now);
            }
            if sync.action == SyncAction::Recover && sync.has_failed() {
                self.recovery_disabled = true;
            }
            self.last_sync = Some(sync);
        }
    }

    /// Recovery before resync, what is needed before what was asked for.
    fn choose_sync(&mut self, out: &mut Outbox) {
        let held_back =
            self.array.read_only || self.array.broken || self.stopping || self.resizing.is_some();
        if held_back {
            self.wanted_sync = None;
            return;
        }
        if !self.recovery_disabled && !self.frozen {
            self.array.fill_slots();
        }
        let full = self.full_since.is_some();
        let redundant = self.array.degraded() < usize::from(self.array.geometry.parities());
        let (action, from) = match (self.array.rebuilding(), self.array.resync_from) {
            (Some((_, from)), _) if !self.recovery_disabled && !self.frozen => {
                (SyncAction::Recover, from)
            }
            (_, Some(from)) if redundant && !self.frozen && !full => (SyncAction::Resync, from),
            _ => match self.wanted_sync.take() {
                Some(action) => (action, Sectors::ZERO),
                None => return,
            },
        };
        if changes_parity(action) {
            self.array.write_begins();
        }
        out.notice(Notice::SyncStarted { volume: self.id, action });
        self.sync = Some(RowSync::new(action, from, &self.array, self.rows.cache.height()));
    }

    pub(super) fn sync_action(&mut self, action: SyncAction) -> Result<Option<Until>, ReplyError> {
        match action {
            SyncAction::Frozen | SyncAction::Idle => {
                self.frozen = action == SyncAction::Frozen;
                self.wanted_sync = None;
                if let Some(sync) = &mut self.sync {
                    sync.stop();
                }
                return Ok(Some(Until::SyncStopped));
            }
            SyncAction::Recover => {
                self.frozen = false;
                self.recovery_disabled = false;
                return Ok(None);
            }
            SyncAction::Check | SyncAction::Repair | SyncAction::Resync => {}
        }
        if self.sync.is_some() || self.wanted_sync.is_some() {
            return Err(ReplyError::Busy("a sync is running; stop it with idle"));
        }
        if self.array.read_only {
            return Err(ReplyError::ReadOnly);
        }
        if self.array.degraded() >= usize::from(self.array.geometry.parities()) {
            return Err(ReplyError::Refused(
                "degraded: there is no parity left to compare with; add a member first".to_owned(),
            ));
        }
        self.frozen = false;
        self.wanted_sync = Some(match action {
            // A resync of an array that needs none is a repair.
            SyncAction::Resync => SyncAction::Repair,
            action => action,
        });
        Ok(None)
    }
}

/// Whether the array counts as written while it runs.
pub(super) fn changes_parity(action: SyncAction) -> bool {
    matches!(action, SyncAction::Repair | SyncAction::Resync)
}
