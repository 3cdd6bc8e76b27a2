//! Columns that a cut or a failed write had at stake, which verification reads as a whole.
//!
//! Not an excuse ([`crate::suspects`]) but a choice of what is looked at: beside every sector that
//! was ever written all that shares a column with something that was not durable at a cut. Until a
//! resync of an array with all members has passed everything. Beyond the level for good:
//! what was reconstructed wrongly there stays, though members agree about it after the resync.

use std::collections::BTreeSet;

/// Columns that were at stake.
#[derive(Clone, Debug, Default)]
pub(super) struct AtStake {
    columns: BTreeSet<u64>,
    /// Slots that were missing at any time since.
    missing: BTreeSet<u16>,
    /// Whether a member ever failed to read a sector.
    unreadable: bool,
}

impl AtStake {
    pub(super) fn columns(&self) -> impl Iterator<Item = u64> {
        self.columns.iter().copied()
    }

    pub(super) fn contains(&self, column: u64) -> bool {
        self.columns.contains(&column)
    }

    pub(super) fn extend(&mut self, columns: impl IntoIterator<Item = u64>) {
        self.columns.extend(columns);
    }

    /// An engine starts with these slots missing.
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

    /// A resync has passed everything.
    pub(super) fn synced(&mut self) {
        if self.missing.is_empty() && !self.unreadable {
            self.columns.clear();
        }
    }
}
