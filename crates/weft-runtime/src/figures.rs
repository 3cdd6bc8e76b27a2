//! Figures of requests: how long they took, and how many failed, by kind.
//!
//! A latency is measured between two passes of the server. That of a member's request begins with
//! the pass that hands the request to the member, and ends with the pass that takes its answer.
//! Retries and the wait for room in the ring are included. Members in memory, which are read and
//! written at once, have no latencies. The latency of a client's request begins with the pass that
//! begins the request, or has received the payload of a write, and ends with the pass that has its
//! reply. The wait for frames that the client itself has in use is not included, but a request that
//! is too long for them goes part by part, and takes as long as the client takes for its parts.

use hdrhistogram::Histogram;
use weft_units::Span;

/// Kinds of requests that are counted separately, as in the kernel's statistics of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// A read.
    Read,
    /// A write, also one of zeroes or of metadata.
    Write,
    /// A flush.
    Flush,
    /// A discard.
    Discard,
}

/// Requests of one kind that were answered.
#[derive(Clone, Debug)]
pub struct Answered {
    /// Kind of the requests: `read`, `write`, `flush` or `discard`.
    pub kind: &'static str,
    /// Histogram of the latencies in microseconds, with one significant digit.
    pub micros: Histogram<u64>,
    /// Sum of all latencies.
    pub sum: Span,
    /// Number of requests that failed or were aborted.
    pub errors: u64,
}

/// Requests that were answered, by kind.
#[derive(Clone, Debug)]
pub struct Figures([Answered; 4]);

impl Figures {
    /// Figures before the first request.
    #[must_use]
    pub fn new() -> Self {
        let of = |kind| {
            let micros = Histogram::new_with_bounds(1, MICROS_MAX, DIGITS).expect("valid bounds");
            Answered { kind, micros, sum: Span(0), errors: 0 }
        };
        Self(["read", "write", "flush", "discard"].map(of))
    }

    /// Counts an answered request of this kind: its latency `took`, and whether it has succeeded.
    pub fn count(&mut self, kind: RequestKind, took: Span, is_ok: bool) {
        let answered = &mut self.0[kind as usize];
        answered.micros.saturating_record(took.0 / 1000);
        answered.sum.0 += took.0;
        answered.errors += u64::from(!is_ok);
    }

    /// Adds the requests of `other`.
    pub fn add(&mut self, other: &Self) {
        for (answered, other) in self.0.iter_mut().zip(&other.0) {
            answered.micros.add(&other.micros).expect("the bounds are equal");
            answered.sum.0 += other.sum.0;
            answered.errors += other.errors;
        }
    }

    /// The requests of each kind, also of kinds without a request.
    #[must_use]
    pub fn all(&self) -> &[Answered] {
        &self.0
    }
}

impl Default for Figures {
    fn default() -> Self {
        Self::new()
    }
}

/// Largest latency that the histogram holds, in microseconds: one hour. Longer ones count as an
/// hour.
const MICROS_MAX: u64 = 3_600_000_000;
/// Significant digits of a latency that are kept. One digit needs 4 KiB for each kind of each
/// member and each volume.
const DIGITS: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_several_servers_add_up() {
        let mut figures = Figures::new();
        figures.count(RequestKind::Write, Span::millis(5), true);
        let mut other = Figures::default();
        other.count(RequestKind::Write, Span::millis(3000), false);
        other.count(RequestKind::Discard, Span::secs(7200), true);
        figures.add(&other);
        let [read, write, flush, discard] = figures.all() else { panic!("four kinds") };
        assert_eq!([read, write, flush, discard].map(|it| it.micros.len()), [0, 2, 0, 1]);
        assert_eq!((write.sum, write.errors), (Span::millis(3005), 1));
        assert_eq!(write.micros.value_at_quantile(0.5) / 1000, 5);
        assert!(write.micros.max() >= 3_000_000 && discard.micros.max() >= MICROS_MAX, "saturated");
    }
}
