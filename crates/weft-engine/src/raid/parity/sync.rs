//! How does a sync go over all rows?
//!
//! Resync, recovery, check and repair are one loop: ask for rows in order, up to a window of 64 that
//! are not done, as long as the cache has room for them. Clients need rows as well, so a sync never
//! waits for one: it takes what is free.
//!
//! A resync or recovery that is stopped leaves how far it came, so that the next one goes on there;
//! a check or repair begins anew.
//!
//! Source   md-raid.md §6.1, §6.2

use std::collections::BTreeSet;
use std::ops::Range;

use weft_units::{Sectors, VolumeId};

use crate::array::Array;
use crate::input::SyncAction;
use crate::outbox::Outbox;
use crate::output::Notice;
use crate::raid::slot_set::SlotSet;
use crate::snapshot::{Mismatch, Mismatches, WrongStrip};

/// A sync under way.
#[derive(Clone, Debug)]
pub(crate) struct RowSync {
    pub(crate) action: SyncAction,
    /// Slots being rebuilt when it began, for a recovery.
    slots: SlotSet,
    /// Where it began.
    from: Sectors,
    /// The next row to ask for.
    next: u64,
    end: u64,
    window: BTreeSet<u64>,
    height: Sectors,
    pub(crate) rows: u64,
    pub(crate) mismatch_cnt: u64,
    /// What a check found; see [`Mismatches`].
    pub(crate) mismatches: Mismatches,
    stopping: bool,
    failed: bool,
}

impl RowSync {
    /// Begins at a data sector of the members.
    pub(crate) fn new(action: SyncAction, from: Sectors, array: &Array, height: Sectors) -> Self {
        let slots = array.rebuilding().map_or(SlotSet::EMPTY, |(slots, _)| slots);
        Self {
            action,
            slots,
            from,
            next: from.0 / height.0,
            end: array.geometry.member_size().0 / height.0,
            window: BTreeSet::new(),
            height,
            rows: 0,
            mismatch_cnt: 0,
            mismatches: Mismatches::default(),
            stopping: false,
            failed: false,
        }
    }

    /// Asks for rows while the window has room. `ask` says whether a row could be asked for: those who
    /// wait for others, and a cache without room, have it wait.
    pub(crate) fn feed(&mut self, cache_rows: u32, mut ask: impl FnMut(u64, SyncAction) -> bool) {
        let rows_max = window_rows(cache_rows);
        while !self.stopping && self.next < self.end && self.window.len() < rows_max {
            if !ask(self.next, self.action) {
                return;
            }
            self.window.insert(self.next);
            self.next += 1;
        }
    }

    /// Whether it would go on by itself, with nothing in flight for any row that it asked for (`syncs`), if
    /// it may ask for the row that is next.
    pub(crate) fn has_work(
        &self,
        cache_rows: u32,
        may: impl FnOnce(u64) -> bool,
        syncs: impl Fn(u64) -> bool,
    ) -> bool {
        if self.stopping || self.next >= self.end {
            return self.window.is_empty();
        }
        self.window.len() < window_rows(cache_rows)
            && may(self.next)
            && !self.window.iter().any(|key| syncs(*key))
    }

    /// Whether it asked for one of these rows, and it is not done.
    pub(crate) fn waits_for(&self, keys: &Range<u64>) -> bool {
        self.window.range(keys.clone()).next().is_some()
    }

    /// A row is done.
    pub(crate) fn row_done(&mut self, key: u64, mismatch: bool, ok: bool) {
        assert!(self.window.remove(&key), "a row is synced once");
        self.rows += 1;
        if mismatch {
            self.mismatch_cnt += self.height.0;
        }
        // A member is whole or it is not; but a row that cannot be read does not keep the parity of
        // the others from being checked (md goes on as well).
        if !ok && self.action == SyncAction::Recover {
            self.failed = true;
            self.rewind(key);
        }
    }

    /// A check found that data and parity disagree in a row, because of this strip alone if one is
    /// given.
    pub(crate) fn found_mismatch(&mut self, key: u64, wrong: Option<WrongStrip>) {
        let sector = self.sector_of(key);
        self.mismatches.add(Mismatch { sector, wrong });
    }

    /// Data sector of the members at which a row begins.
    pub(crate) fn sector_of(&self, key: u64) -> Sectors {
        Sectors(key * self.height.0)
    }

    /// Ends early, as if it had not passed this row: there is more to do from there.
    pub(crate) fn rewind(&mut self, key: u64) {
        self.stopping = true;
        self.next = self.next.min(key);
    }

    /// Asks for no more rows.
    pub(crate) fn stop(&mut self) {
        self.stopping = true;
    }

    /// Data sectors of each member below which every row is done.
    pub(crate) fn completed(&self) -> Sectors {
        let first = self.window.first().copied().unwrap_or(self.next).min(self.next);
        Sectors(first * self.height.0)
    }

    /// Data sectors that it will have passed at the end.
    pub(crate) fn total(&self) -> Sectors {
        Sectors(self.end * self.height.0)
    }

    /// Whether all the slots that it rebuilds are among these.
    pub(crate) fn rebuilds_only(&self, slots: SlotSet) -> bool {
        self.slots.without(slots).is_empty()
    }

    /// Whether a row could not be synced.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    /// Tells the array how far it is.
    pub(crate) fn checkpoint(&self, array: &mut Array) {
        match self.action {
            SyncAction::Recover => array.rebuilt_to(self.slots, self.completed(), false),
            SyncAction::Resync => array.membership.resync_from = Some(self.completed()),
            SyncAction::Check | SyncAction::Frozen | SyncAction::Idle | SyncAction::Repair => {}
        }
    }

    /// Whether it is over; then the array and the world are told.
    pub(crate) fn finish(&self, array: &mut Array, volume: VolumeId, out: &mut Outbox) -> bool {
        if !self.window.is_empty() || !(self.stopping || self.next >= self.end) {
            return false;
        }
        let complete = self.next >= self.end && !self.failed;
        match self.action {
            SyncAction::Recover => {
                array.rebuilt_to(self.slots, self.completed(), complete);
                if complete && array.membership.degraded() == 0 && self.from == Sectors::ZERO {
                    // Every row was read and written as a whole, by this one alone.
                    array.membership.resync_from = None;
                }
            }
            SyncAction::Resync => {
                array.membership.resync_from = (!complete).then(|| self.completed());
            }
            SyncAction::Check | SyncAction::Frozen | SyncAction::Idle | SyncAction::Repair => {}
        }
        if matches!(self.action, SyncAction::Recover | SyncAction::Resync)
            && !array.membership.read_only
        {
            array.want_round();
        }
        out.notice(Notice::SyncFinished {
            volume,
            action: self.action,
            mismatch_cnt: self.mismatch_cnt,
            rows: self.rows,
            complete,
        });
        true
    }
}

/// Rows that may be asked for and not done.
fn window_rows(cache_rows: u32) -> usize {
    WINDOW_ROWS.min(cache_rows as usize / 4).max(1)
}

/// Rows asked for and not done: enough to keep every member busy with requests of half a megabyte
/// (64 rows × 4 KiB × merged), a quarter of the default cache.
const WINDOW_ROWS: usize = 64;
