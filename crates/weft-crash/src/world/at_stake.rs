//! Columns that a power cut or a failed write put at stake, which verification reads as a whole.
//!
//! This is no excuse ([`crate::suspects`]) but a choice of what verification reads: every sector
//! that was ever written, and all sectors that share a column with content that was not durable at
//! a power cut. A column leaves the set after a complete resync of an array with all its members.
//! If more members were lost than the level survives it stays for good, because wrongly
//! reconstructed content remains even though members agree about it after the resync.

use std::collections::BTreeSet;

/// Columns that are at stake.
#[derive(Clone, Debug, Default)]
pub(super) struct AtStake {
    columns: BTreeSet<u64>,
    /// Slots that had no member at any time since the columns were recorded.
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
