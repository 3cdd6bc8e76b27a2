//! Link between a host and one drive or several: one server for the bytes of all commands.
//!
//! The link serves one command at a time, in order of arrival. A command occupies it for its bytes
//! and for a fixed overhead (frames, status).

use weft_units::{Bytes, Span, Time};

/// A link between a host and one drive or several.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    bytes_per_second: u64,
    free_at: Time,
    /// Time for which the link was occupied so far.
    pub(super) busy: Span,
}

impl Link {
    /// An idle link with this rate.
    pub(crate) fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second, free_at: Time(0), busy: Span::ZERO }
    }

    /// Time to transfer this number of bytes.
    pub(super) fn duration(&self, bytes: Bytes) -> Span {
        Span((u128::from(bytes.0) * 1_000_000_000 / u128::from(self.bytes_per_second)) as u64)
    }

    /// Transfers bytes that are all available at `now`, after earlier transfers have ended. Returns
    /// the end of this transfer.
    pub(crate) fn pass(&mut self, now: Time, bytes: Bytes, overhead: Span) -> Time {
        let occupied = Span(self.duration(bytes).0 + overhead.0);
        self.free_at = self.free_at.max(now) + occupied;
        self.busy = Span(self.busy.0 + occupied.0);
        self.free_at
    }

    /// Transfers bytes that become available one after the other, the last one at `now`, for
    /// example as a medium reads them. Returns the end of the transfer.
    pub(super) fn follow(&mut self, now: Time, bytes: Bytes, overhead: Span) -> Time {
        let carried = self.duration(bytes);
        let begun = self.free_at.max(Time(now.0.saturating_sub(carried.0)));
        self.free_at = (begun + carried).max(now) + overhead;
        self.busy = Span(self.busy.0 + carried.0 + overhead.0);
        self.free_at
    }
}
