//! Waiting times of stripes until they were preread or filled, as histograms.
//!
//! A stripe that lacks strips is delayed, then held ([`crate::raid::parity`]). Its wait ends when
//! its prereads are submitted, or when writes have filled it, in which case the wait has saved the
//! prereads. Stripes that never waited are not counted.
//!
//! Times are counted in buckets, eight for each doubling, so that a percentile is at most an eighth
//! above the true value; the longest time is exact.

use weft_units::{Span, Time};

/// Waiting times of the stripes of one volume since the engine started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StripeWaits {
    /// Waits of stripes that had to be preread after all.
    pub preread: Waits,
    /// Waits of stripes that writes filled before they were preread.
    pub filled: Waits,
}

/// Histogram of waiting times.
#[derive(Clone, PartialEq, Eq)]
pub struct Waits {
    buckets: [u64; BUCKETS],
    count: u64,
    longest: Span,
}

impl Waits {
    /// Number of waits that were recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The longest wait; zero if none was recorded.
    #[must_use]
    pub fn longest(&self) -> Span {
        self.longest
    }

    /// Percentile of the waits, given in thousandths: `permille(999)` returns the 99.9th
    /// percentile. Zero if no wait was recorded.
    #[must_use]
    pub fn permille(&self, permille: u64) -> Span {
        let wanted = (self.count * permille.min(1000)).div_ceil(1000).max(1);
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return end_of(bucket).min(self.longest);
            }
        }
        self.longest
    }

    /// Adds all waits of `other` to this histogram.
    pub fn merge(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(other.buckets).for_each(|(ours, theirs)| *ours += theirs);
        self.count += other.count;
        self.longest = self.longest.max(other.longest);
    }

    pub(crate) fn record(&mut self, since: Time, until: Time) {
        let wait = until.since(since);
        self.buckets[bucket_of(wait)] += 1;
        self.count += 1;
        self.longest = self.longest.max(wait);
    }
}

impl Default for Waits {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], count: 0, longest: Span::ZERO }
    }
}

impl std::fmt::Debug for Waits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { count, longest, .. } = self;
        write!(f, "{count} waits, 99.9 % up to {:?}, longest {longest:?}", self.permille(999))
    }
}

/// Index of the bucket for a wait. All waits below 1024 ns share the first bucket, and all waits of
/// 2^38 ns or more the last one.
fn bucket_of(wait: Span) -> usize {
    let Some(doubling) = wait.0.checked_ilog2().and_then(|log| log.checked_sub(FIRST_LOG)) else {
        return 0;
    };
    let eighth = (wait.0 >> (doubling + FIRST_LOG - 3)) & 7;
    (1 + doubling as usize * 8 + eighth as usize).min(BUCKETS - 1)
}

/// Longest wait that belongs to a bucket; the largest [`Span`] for the last bucket, which has no
/// upper bound.
fn end_of(bucket: usize) -> Span {
    if bucket == 0 {
        return Span((1 << FIRST_LOG) - 1);
    }
    if bucket == BUCKETS - 1 {
        return Span(u64::MAX);
    }
    let (doubling, eighth) = ((bucket - 1) / 8, (bucket as u64 - 1) % 8);
    Span(((9 + eighth) << (doubling as u32 + FIRST_LOG - 3)) - 1)
}

/// Binary logarithm of the time in nanoseconds below which waits belong to the first bucket.
const FIRST_LOG: u32 = 10;

/// Number of buckets: those up to 2^38 ns, which is 275 s, and one for longer waits.
const BUCKETS: usize = 1 + 28 * 8 + 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(spans: impl IntoIterator<Item = u64>) -> Waits {
        let mut waits = Waits::default();
        spans.into_iter().for_each(|span| waits.record(Time(7), Time(7 + span)));
        waits
    }

    #[test]
    fn every_wait_is_in_the_bucket_that_ends_at_it_or_soon_after() {
        let spans = (0..40).flat_map(|log| {
            let doubling = 1_u64 << log;
            [doubling - 1, doubling, doubling + doubling / 3, doubling + doubling / 8 * 5]
        });
        for span in spans {
            let bucket = bucket_of(Span(span));
            assert!(end_of(bucket).0 >= span, "{span}");
            assert!(bucket == 0 || end_of(bucket - 1).0 < span, "{span}");
            if bucket > 0 && bucket < BUCKETS - 1 {
                assert!(end_of(bucket).0 <= span + span / 8, "{span}");
            }
        }
        assert_eq!(end_of(BUCKETS - 2), Span((1 << 38) - 1));
    }

    #[test]
    fn percentiles_are_an_eighth_too_long_at_most() {
        let waits = of((1..=10_000).map(|n| n * 1000));
        for permille in [500, 990, 999] {
            let (found, exact) = (waits.permille(permille).0, permille * 10_000);
            assert!((exact..=exact + exact / 8).contains(&found), "{permille}: {found}");
        }
        assert_eq!((waits.longest(), waits.permille(1000)), (Span(10_000_000), Span(10_000_000)));
        assert_eq!((of([]).permille(999), of([]).longest()), (Span::ZERO, Span::ZERO));
        assert_eq!(of([u64::MAX / 2]).permille(500), Span(u64::MAX / 2));
        let mut both = of((1..=5_000).map(|n| n * 1000));
        both.merge(&of((5_001..=10_000).map(|n| n * 1000)));
        assert_eq!(both, waits);
    }
}
