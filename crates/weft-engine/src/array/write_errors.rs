//! Write errors of members that the array needs: which copies may differ, and when they are
//! resynced.
//!
//! A member in sync that fails a write gets bad blocks ([`super::bad_blocks`]). If the member has
//! no log for them, it is failed, unless the array needs the member. A member that the array needs
//! stays in use, as in md, and the client gets the error. If another member has written its copy of
//! the same sectors, two valid copies may now differ. Therefore the array stays dirty from the
//! first such sector on and keeps the bits of the range. Until the copies are compared after the
//! next start, every read takes the first copy, so that reads agree with each other.
//!
//! A resync would probably fail at the same bad sector again. Therefore it waits until every slot
//! has an in-sync member: then a member that fails the write again can be failed, and the resync
//! ends. As long as a slot has no in-sync member, the resync runs once at each
//! start.
//!
//! Source   weft's own for the dirty state; md keeps the member (`raid10_error`) and marks the bit
//!          as needed (`md_bitmap_endwrite`), but clears it after the next clean assembly

use weft_units::Sectors;

use super::Array;
use crate::layout::slot_set::SlotSet;

impl Array {
    /// Records that copies may differ from sector `sector` of the array on, because a member that
    /// the array needs failed to write its copy and another member has written one.
    pub(crate) fn copies_may_differ(&mut self, sector: Sectors) {
        assert!(!self.membership.read_only, "only writes fail to be written");
        let least = |of: Option<Sectors>| Some(of.unwrap_or(sector).min(sector));
        self.resyncs_for_space = false;
        self.unwritten_from = least(self.unwritten_from);
        self.membership.resync_from = least(self.membership.resync_from);
        self.need_resync_from(sector);
    }

    /// Records that a resync begins, which covers all copies that may differ.
    pub(crate) fn resync_begins(&mut self) {
        self.unwritten_from = None;
    }

    /// Records that a resync has covered everything up to `sector`; `None`: to the end. The array
    /// stays dirty from `sector` on, or from the first copy that could not be written in the
    /// meantime, by the resync or for a client.
    pub(crate) fn resynced_to(&mut self, sector: Option<Sectors>) {
        let unwritten = self.unwritten_from;
        self.membership.resync_from = match sector {
            Some(sector) => Some(unwritten.unwrap_or(sector).min(sector)),
            None => unwritten,
        };
        // The reasons for the resync end with the resync.
        let is_dirty = self.membership.resync_from.is_some();
        self.resyncs_for_space &= is_dirty;
        if !is_dirty {
            self.missed_for_space = SlotSet::EMPTY;
        }
    }

    /// Whether a resync now would only meet the same write error again, on a member that the array
    /// cannot run without and therefore cannot fail.
    pub(crate) fn resync_would_fail_again(&self) -> bool {
        self.unwritten_from.is_some() && !self.membership.is_whole()
    }
}
