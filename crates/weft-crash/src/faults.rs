//! Faults of simulated members, and which of them weft's promises cover.
//!
//! | Fault | Here | Within the promises |
//! |---|---|---|
//! | latent read error (F5) | [`Faults::bad_reads`], until the sector is written | yes |
//! | sector unreadable for good | [`Faults::dead_reads`] | yes: a bad block, or the member fails |
//! | write error (F9) | [`Faults::bad_writes`], for good | yes, up to the level |
//! | remains of a failed write (F1) | [`Faults::tears`]: nothing, a beginning, any part, all | yes |
//! | member that becomes shorter (F9, F24) | [`Faults::ends_at`] | yes, up to the level |
//! | member gone (F9) | [`Faults::gone`] | yes, up to the level |
//! | failure of the k-th operation (F9, F10) | [`Faults::schedule`] | yes, up to the level |
//! | stall (F8) | [`Faults::stalled`]: nothing completes until it is cleared | yes |
//! | flush error (F26) | [`Faults::flush_error`] | yes: the member is failed |
//! | discard that fails | [`Faults::discards_fail`] | yes: zeros are stored |
//! | disk full (F19) | [`Faults::no_space`] | yes: not a failed member |
//! | flush that lies (F13) | [`Faults::lying_flush`] | no |
//! | bit rot (F6) | [`crate::disk::Disk::flip_bit`] | no: found by scrub |
//! | torn write, lost cache (F1, F11, F12) | [`crate::crash`] | yes |
//!
//! Source   spec reliability.md §4

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use weft_engine::Fault;

/// Faults that one member has now, and faults that are planned for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Sectors that cannot be read until they are written. A power cut before the write is durable
    /// makes them unreadable again.
    pub bad_reads: BTreeSet<u64>,
    /// Sectors that cannot be read even after they are written.
    pub dead_reads: BTreeSet<u64>,
    /// Sectors that cannot be written.
    pub bad_writes: BTreeSet<u64>,
    /// Whether the member is gone, so that all requests fail.
    pub gone: bool,
    /// Whether the member stalls: no request completes, and outstanding requests stay outstanding,
    /// unless the member is gone.
    pub stalled: bool,
    /// Number of discards that will fail. On the media, a failed discard has the effect of a failed
    /// write of zeros.
    pub discards_fail: u32,
    /// Whether flushes fail, including the flush of a metadata write.
    pub flush_error: bool,
    /// Whether a write that fails or is aborted may leave a part of its data on the media: nothing,
    /// the beginning, any part or all. If false, nothing is left, except for the sectors before the
    /// first sector in `bad_writes`.
    pub tears: bool,
    /// Number of sectors that the member still has after it shrank; `None` if it did not shrink.
    /// The sectors from this number on are gone for good, and requests for them fail as if the
    /// member were gone.
    pub ends_at: Option<u64>,
    /// Whether writes find no space.
    pub no_space: bool,
    /// Whether flushes succeed without effect.
    pub lying_flush: bool,
    /// Planned faults, by the number of the operation: the member counts its operations from 0.
    pub schedule: BTreeMap<u64, Planned>,
}

/// A fault that takes effect at a later operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planned {
    /// The member is gone from this operation on.
    Gone,
    /// Only this operation fails, with this fault.
    Once(Fault),
    /// No request completes from this operation on, until [`Faults::stalled`] is cleared.
    Silent,
}

impl Faults {
    /// The set of sectors that cannot be read: with `for_good` the set of sectors that stay
    /// unreadable, otherwise the set of those that can be read once they are written.
    pub(crate) fn unreadable(&mut self, for_good: bool) -> &mut BTreeSet<u64> {
        if for_good { &mut self.dead_reads } else { &mut self.bad_reads }
    }

    /// Whether any of these sectors of the disk cannot be read.
    pub(crate) fn is_unreadable(&self, sectors: Range<u64>) -> bool {
        let any = |set: &BTreeSet<u64>| set.range(sectors.clone()).next().is_some();
        any(&self.bad_reads) || any(&self.dead_reads)
    }

    /// First of the `count` sectors from `at` on that is in `set`; `None` if there is none.
    pub(crate) fn hits(set: &BTreeSet<u64>, at: u64, count: u64) -> Option<u64> {
        set.range(at..at + count).next().copied()
    }
}
