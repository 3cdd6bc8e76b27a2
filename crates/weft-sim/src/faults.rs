//! Faults of simulated members, and which of them the promises cover.
//!
//! | Fault | Here | Within the promises |
//! |---|---|---|
//! | latent read error (F5) | [`Faults::bad_reads`], until the sector is written | yes |
//! | sector that cannot be read even after it was written | [`Faults::dead_reads`] | yes: the member fails |
//! | write error (F9) | [`Faults::bad_writes`], for good | yes, up to the level |
//! | what a failed write leaves (F1) | [`Faults::tears`]: nothing, a beginning, any part, all | yes |
//! | member that becomes shorter (F9, F24) | [`Faults::ends_at`] | yes, up to the level |
//! | member gone (F9) | [`Faults::gone`] | yes, up to the level |
//! | the k-th operation fails (F9, F10) | [`Faults::schedule`] | yes, up to the level |
//! | stall (F8) | [`Faults::stalled`]: nothing completes until told | yes |
//! | flush error (F26) | [`Faults::flush_error`] | yes: the member is failed |
//! | discard that fails | [`Faults::discards_fail`] | yes: zeros are stored |
//! | disk full (F19) | [`Faults::no_space`] | yes: not a failed member |
//! | flush that lies (F13) | [`Faults::lying_flush`] | no |
//! | bit rot (F6) | [`crate::disk::Disk::flip_bit`] | no: found by scrub |
//! | torn write, lost cache (F1, F11, F12) | [`crate::crash`] | yes |
//!
//! Source   spec reliability.md §4

use std::collections::{BTreeMap, BTreeSet};

use weft_engine::Fault;

/// Faults that one member has now or is going to have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Sectors that cannot be read until they are written, durably if the power goes.
    pub bad_reads: BTreeSet<u64>,
    /// Sectors that cannot be read, whatever is written to them.
    pub dead_reads: BTreeSet<u64>,
    /// Sectors that cannot be written.
    pub bad_writes: BTreeSet<u64>,
    /// Nothing answers any more.
    pub gone: bool,
    /// Nothing completes; what is outstanding stays so.
    pub stalled: bool,
    /// So many discards fail from here on. What they leave is what a write leaves that fails.
    pub discards_fail: u32,
    /// Flushes fail, and so do writes that imply one.
    pub flush_error: bool,
    /// A write that fails, or is given up, leaves nothing, a beginning, any part or all of itself.
    /// Else it leaves nothing, but for what precedes a sector of `bad_writes`.
    pub tears: bool,
    /// Sectors that the member still has: it was cut short. What is behind them is gone for good,
    /// and so is the member for whoever asks for it.
    pub ends_at: Option<u64>,
    /// Writes find no space.
    pub no_space: bool,
    /// Flushes succeed and do nothing.
    pub lying_flush: bool,
    /// What happens to the operation with this number, counted from the member's first.
    pub schedule: BTreeMap<u64, Planned>,
}

/// A fault that waits for its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planned {
    /// The member is gone from here.
    Gone,
    /// This one fails; the next may not.
    Once(Fault),
    /// From here on nothing completes until told.
    Silent,
}

impl Faults {
    /// Sectors that cannot be read: for good, or until they are written.
    pub(crate) fn unreadable(&mut self, for_good: bool) -> &mut BTreeSet<u64> {
        if for_good { &mut self.dead_reads } else { &mut self.bad_reads }
    }

    /// Whether a range has a sector of the set.
    pub(crate) fn hits(set: &BTreeSet<u64>, at: u64, count: u64) -> Option<u64> {
        set.range(at..at + count).next().copied()
    }
}
