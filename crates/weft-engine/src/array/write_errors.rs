//! Write errors of members that the array needs: which copies may differ, and when they are
//! resynced.
//!
//! A member that fails a write is failed. One that the array cannot do without stays in use, as by
//! md, and the client is told of the error. Where another member has written its copy of the same
//! sectors, two copies that both count may now differ. The array stays dirty from the first such
//! sector on and keeps the bits of the range, so that reads agree (they take the first copy) and
//! the copies are compared after the next start.
//!
//! A resync would probably meet the same bad sector again. It waits until every slot has a member
//! in sync again: then a member that still fails the write can be failed, and the resync ends.
//! Without that it is run once at each start.
//!
//! Source   weft's own for the dirty state; md keeps the member (`raid10_error`) and marks the bit
//!          as needed (`md_bitmap_endwrite`), but clears it after the next clean assembly

use weft_units::Sectors;

use super::Array;

impl Array {
    /// Copies may differ from a sector of the array on: a member that the array needs failed to
    /// write one, and another member has its own.
    pub(crate) fn copies_may_differ(&mut self, sector: Sectors) {
        assert!(!self.membership.read_only, "only writes fail to be written");
        let least = |of: Option<Sectors>| Some(of.unwrap_or(sector).min(sector));
        self.resyncs_for_space = false;
        self.unwritten_from = least(self.unwritten_from);
        self.membership.resync_from = least(self.membership.resync_from);
        self.need_resync_from(sector);
    }

    /// A resync begins, which goes over all copies that may differ.
    pub(crate) fn resync_begins(&mut self) {
        self.unwritten_from = None;
    }

    /// A resync has come up to a sector, or to the end: the array is dirty from there on, or from
    /// the first copy that the resync itself, or a client beside it, could not write.
    pub(crate) fn resynced_to(&mut self, sector: Option<Sectors>) {
        let unwritten = self.unwritten_from;
        self.membership.resync_from = match sector {
            Some(sector) => Some(unwritten.unwrap_or(sector).min(sector)),
            None => unwritten,
        };
        self.resyncs_for_space &= self.membership.resync_from.is_some();
    }

    /// Whether a resync would meet the write error that made it necessary, and have to keep the
    /// member once more.
    pub(crate) fn resync_would_fail_again(&self) -> bool {
        self.unwritten_from.is_some() && !self.membership.is_whole()
    }
}
