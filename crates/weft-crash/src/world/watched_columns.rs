//! Watched columns: the columns in which a power cut, a process crash or a failed write may have
//! left members with content of different times.
//!
//! Verification reads all data sectors of a watched column, including those that no client wrote.
//! While the promises cover data, only [`crate::suspects`] decides which content a read may return;
//! the set of watched columns has no part in it.
//!
//! The set is cleared by a complete resync or repair, if every slot had a member and every sector
//! could be read since columns were added. Otherwise the columns stay for good, because wrongly
//! reconstructed content remains even though members agree about it after the resync.

use std::collections::BTreeSet;

/// The set of watched columns.
#[derive(Clone, Debug, Default)]
pub(super) struct WatchedColumns {
    columns: BTreeSet<u64>,
    /// Slots that were without a member at any time since the first of the columns was added.
    missing: BTreeSet<u16>,
    /// Whether a member ever failed to read a sector.
    unreadable: bool,
}

impl WatchedColumns {
    pub(super) fn columns(&self) -> impl Iterator<Item = u64> {
        self.columns.iter().copied()
    }

    pub(super) fn contains(&self, column: u64) -> bool {
        self.columns.contains(&column)
    }

    pub(super) fn extend(&mut self, columns: impl IntoIterator<Item = u64>) {
        self.columns.extend(columns);
    }

    /// Records the slots without a member when an engine starts.
    pub(super) fn started(&mut self, missing: impl Iterator<Item = u16>) {
        if self.columns.is_empty() {
            self.missing.clear();
        }
        self.missing.extend(missing);
    }

    pub(super) fn lose(&mut self, slot: u16) {
        self.missing.insert(slot);
    }

    pub(super) fn cannot_read(&mut self) {
        self.unreadable = true;
    }

    /// Clears the set after a complete resync, unless a slot was missing or a sector was
    /// unreadable.
    pub(super) fn synced(&mut self) {
        if self.missing.is_empty() && !self.unreadable {
            self.columns.clear();
        }
    }
}
