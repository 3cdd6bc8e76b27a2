//! Write intent: marks the array dirty before it is written to, and clean after a pause.
//!
//! A client's write, and a sync that changes parity, take a `Lease` on the range that they are
//! about to change, wait until the lease is granted, and return it after their last member write.
//! There is one dirty state for the whole array: all leases wait for the same superblock update,
//! and the array does not become clean while a lease is outstanding. With a write-intent bitmap
//! (`bitmap`), a lease also waits for the bits of its range. An array without redundancy is never
//! marked clean or dirty: leases are granted at once, and a stop only flushes.
//!
//! Source   md-raid.md §6.5, reliability.md I5 (md: `md_write_start`, `md_write_end`, safe mode)

pub(super) mod bitmap;
pub(super) mod bitmap_change;

use weft_units::{ByteRange, SectorRange, Span, Time};

use self::bitmap::Chunks;
use super::Array;
use super::superblock_update::FlushFor;
use crate::contract::error::ReplyError;
use crate::mutant::Mutant;

/// Clean state of the array, and the number of outstanding leases (writes and syncs that keep the
/// array dirty).
#[derive(Clone, Debug)]
pub(super) struct WriteIntent {
    pub(super) state: CleanState,
    leases: u32,
    /// Number of outstanding leases that syncs hold, among all outstanding leases.
    sync_leases: u32,
    /// Time at which a write or sync last ended (returned its lease) or the array last became
    /// dirty, whichever is later.
    pub(super) last_write: Time,
    safe_mode_attempts: u64,
}

/// Permission to change a range of the array. It is valid once it is granted: when the dirty state,
/// and the bits of the range, are durable. Every lease must be returned after the change.
#[derive(Clone, Debug)]
#[must_use]
pub(crate) struct Lease {
    /// Chunks of the bitmap that the range touches; their bits must be durable before the change.
    chunks: Chunks,
}

/// Clean state that the superblocks record, or will record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CleanState {
    /// The superblock update with this number will record clean.
    BecomingClean(u64),
    /// The superblock update with this number will record dirty.
    BecomingDirty(u64),
    Clean,
    Dirty,
    /// Dirty, but the members are being flushed so that a superblock update can record clean. The
    /// number identifies the flush; a flush that began before a later write does not cover that
    /// write.
    EnteringSafeMode(u64),
}

impl WriteIntent {
    pub(super) fn new(state: CleanState, now: Time) -> Self {
        Self { state, leases: 0, sync_leases: 0, last_write: now, safe_mode_attempts: 0 }
    }

    pub(super) fn is_leased(&self) -> bool {
        self.leases > 0
    }

    /// Number of outstanding leases that writes of clients hold.
    pub(super) fn client_leases(&self) -> u32 {
        self.leases - self.sync_leases
    }
}

impl Array {
    /// Takes a lease on a range of the array for a client's write: permission to change the range,
    /// which keeps the array dirty. The write may start when [`Array::grants`] returns true.
    pub(crate) fn lease(&mut self, range: ByteRange) -> Lease {
        let size = self.size.bytes();
        assert!(range.end() <= size, "a lease lies within the array");
        let sectors =
            if self.bitmap.is_some() { self.resync_range(range) } else { SectorRange::new(0, 0) };
        let chunks = match &mut self.bitmap {
            Some(bitmap) => bitmap.take(sectors),
            None => Chunks::default(),
        };
        self.take_lease(chunks)
    }

    /// Takes a lease for a sync, which changes only stripes that have to be synced anyway: the
    /// array stays dirty while the lease is outstanding, but no bits are set for it.
    pub(crate) fn lease_for_sync(&mut self) -> Lease {
        self.intent.sync_leases += 1;
        self.take_lease(Chunks::default())
    }

    #[inline]
    fn take_lease(&mut self, chunks: Chunks) -> Lease {
        self.intent.leases += 1;
        match self.intent.state {
            CleanState::EnteringSafeMode(_) => self.intent.state = CleanState::Dirty,
            CleanState::BecomingClean(_) if self.is_planted(Mutant::NotDirtyWhileBecomingClean) => {
            }
            CleanState::Clean | CleanState::BecomingClean(_) => {
                let number = self.want_update();
                self.intent.state = CleanState::BecomingDirty(number);
            }
            CleanState::Dirty | CleanState::BecomingDirty(_) => {}
        }
        Lease { chunks }
    }

    /// Whether superblocks and bitmap durably record that the range of the lease may be written.
    pub(crate) fn grants(&self, lease: &Lease) -> bool {
        assert!(self.intent.leases > 0, "the lease is counted");
        self.is_dirty()
            && (self.bitmap.as_ref().is_none_or(|bitmap| bitmap.holds(lease.chunks))
                || self.is_planted(Mutant::DataBeforeBit))
    }

    /// Takes back a lease that [`Array::lease_for_sync`] gave, at the time `now`.
    #[allow(clippy::needless_pass_by_value, reason = "a lease that was given back is gone")]
    pub(crate) fn give_back_for_sync(&mut self, lease: Lease, now: Time) {
        assert!(self.intent.sync_leases > 0 && lease.chunks.is_empty(), "the lease is a sync's");
        self.intent.sync_leases -= 1;
        self.one_less(now);
    }

    fn one_less(&mut self, now: Time) {
        assert!(self.intent.leases > 0, "a lease is given back once");
        self.intent.leases -= 1;
        self.intent.last_write = now;
    }

    /// Returns the lease of a client's write after its last member write.
    #[allow(clippy::needless_pass_by_value, reason = "a lease that was given back is gone")]
    pub(crate) fn give_back(&mut self, lease: Lease, now: Time) {
        self.one_less(now);
        if let Some(bitmap) = &mut self.bitmap {
            bitmap.give_back(lease.chunks, now);
        }
    }

    /// Whether the superblocks durably record that writes may be in flight.
    pub(crate) fn is_dirty(&self) -> bool {
        let state = self.intent.state;
        self.is_planted(Mutant::AckBeforeSuperblock)
            || matches!(state, CleanState::Dirty | CleanState::EnteringSafeMode(_))
            || (matches!(state, CleanState::BecomingClean(_))
                && self.is_planted(Mutant::NotDirtyWhileBecomingClean))
    }

    /// Begins to mark the array clean if it has not been written to for `delay`; `None`: at once,
    /// because the array is being stopped.
    pub(crate) fn enter_safe_mode(&mut self, delay: Option<Span>, now: Time) {
        assert!(self.intent.last_write <= now, "time goes forward");
        if self.intent.state != CleanState::Dirty
            || self.intent.leases > 0
            || self.membership.read_only
            || self.membership.broken
        {
            return;
        }
        if delay.is_none_or(|delay| self.safe_mode_wake(delay).is_some_and(|due| due <= now)) {
            self.intent.safe_mode_attempts += 1;
            self.intent.state = CleanState::EnteringSafeMode(self.intent.safe_mode_attempts);
            self.flushes.arrive(FlushFor::Clean(self.intent.safe_mode_attempts));
        }
    }

    /// Time at which [`Array::enter_safe_mode`] next has something to do; `None` if it has nothing.
    pub(crate) fn safe_mode_wake(&self, delay: Span) -> Option<Time> {
        // While a resync is due the array stays dirty until it stops.
        let waits = self.intent.state == CleanState::Dirty
            && self.membership.is_redundant
            && self.intent.leases == 0
            && delay > Span::ZERO
            && self.membership.resync_from.is_none()
            && !self.membership.read_only
            && !self.membership.broken;
        waits.then(|| self.intent.last_write + delay)
    }

    /// Whether a stop of the array is over: superblocks and bitmap record that it is clean, or can
    /// no longer record anything.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_quiet()
            && self.bitmap_is_settled()
            && (self.intent.state == CleanState::Clean
                || self.membership.read_only
                || self.membership.broken)
    }

    /// Result of stopping the array: an error if the last flush failed. Always `Ok` for a read-only
    /// array.
    pub(crate) fn stop_result(&self) -> Result<(), ReplyError> {
        if self.membership.read_only { Ok(()) } else { self.flush_result() }
    }

    /// State of the array in md's words (`array_state`).
    pub(crate) fn state_word(&self) -> &'static str {
        match self.intent.state {
            _ if self.membership.read_only => "readonly",
            _ if self.membership.broken => "broken",
            CleanState::BecomingDirty(_) => "write-pending",
            CleanState::Clean | CleanState::BecomingClean(_) => "clean",
            CleanState::EnteringSafeMode(_) => "active-idle",
            CleanState::Dirty => "active",
        }
    }
}
