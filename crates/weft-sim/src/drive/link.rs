//! Link between a drive and its host: one server for the bytes of all commands.
//!
//! The link is one server in order of arrival. A command occupies it for its bytes and for a fixed
//! time of its own (frames, status).

use weft_units::{Bytes, Span, Time};

/// A link to the host.
#[derive(Clone, Debug)]
pub(super) struct Link {
    bytes_per_second: u64,
    free_at: Time,
    /// Time for which the link was occupied.
    pub(super) busy: Span,
}

impl Link {
    /// An idle link.
    pub(super) fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second, free_at: Time(0), busy: Span::ZERO }
    }

    /// Transfer time of these bytes.
    pub(super) fn duration(&self, bytes: Bytes) -> Span {
        Span((u128::from(bytes.0) * 1_000_000_000 / u128::from(self.bytes_per_second)) as u64)
    }

    /// Transfers bytes that are available at `now`. Returns the end of the transfer.
    pub(super) fn pass(&mut self, now: Time, bytes: Bytes, overhead: Span) -> Time {
        let occupied = Span(self.duration(bytes).0 + overhead.0);
        self.free_at = self.free_at.max(now) + occupied;
        self.busy = Span(self.busy.0 + occupied.0);
        self.free_at
    }

    /// Transfers bytes of which the last is available at `now` and the others before it, at the
    /// speed of the link or slower. Returns the end of the transfer.
    pub(super) fn follow(&mut self, now: Time, bytes: Bytes, overhead: Span) -> Time {
        let carried = self.duration(bytes);
        let begun = self.free_at.max(Time(now.0.saturating_sub(carried.0)));
        self.free_at = (begun + carried).max(now) + overhead;
        self.busy = Span(self.busy.0 + carried.0 + overhead.0);
        self.free_at
    }
}
