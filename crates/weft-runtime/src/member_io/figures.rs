//! Figures of a member: how long its requests took, and how many failed, by kind.
//!
//! A latency is measured from the server pass that hands a request to the member to the pass that
//! takes its answer. Retries and the wait for room in the ring are included. Members in memory,
//! which are read and written at once, have no latencies.

use hdrhistogram::Histogram;
use weft_units::Span;

use super::operation::Kind;

/// Requests of one kind that a member has answered.
#[derive(Clone, Debug)]
pub struct Answered {
    /// Kind of the requests: `read`, `write` (also of metadata), `flush` or `discard`.
    pub kind: &'static str,
    /// Histogram of the latencies in microseconds, with one significant digit.
    pub micros: Histogram<u64>,
    /// Sum of all latencies.
    pub sum: Span,
    /// Number of requests that failed or were aborted.
    pub errors: u64,
}

/// Requests that a member has answered, by kind.
#[derive(Debug)]
pub(super) struct Figures([Answered; 4]);

impl Figures {
    pub(super) fn new() -> Self {
        let of = |kind| {
            let micros = Histogram::new_with_bounds(1, MICROS_MAX, DIGITS).expect("valid bounds");
            Answered { kind, micros, sum: Span(0), errors: 0 }
        };
        Self(["read", "write", "flush", "discard"].map(of))
    }

    /// Counts an answered request of this kind: its latency `took`, and whether it has succeeded.
    pub(super) fn count(&mut self, kind: Kind, took: Span, is_ok: bool) {
        let answered = &mut self.0[match kind {
            Kind::Read => 0,
            Kind::Write { .. } | Kind::WriteMetadata => 1,
            Kind::Flush => 2,
            Kind::Discard { .. } => 3,
        }];
        answered.micros.saturating_record(took.0 / 1000);
        answered.sum.0 += took.0;
        answered.errors += u64::from(!is_ok);
    }

    pub(super) fn all(&self) -> &[Answered] {
        &self.0
    }
}

/// Largest latency that the histogram holds, in microseconds: one hour. Longer ones count as an
/// hour.
const MICROS_MAX: u64 = 3_600_000_000;
/// Significant digits of a latency that are kept. One digit needs 4 KiB for each kind of each
/// member.
const DIGITS: u8 = 1;
