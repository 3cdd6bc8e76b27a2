//! Latencies: minimum, maximum, mean, deviation and percentiles.
//!
//! Minimum, maximum, mean and deviation are exact; percentiles come from a histogram with three
//! significant digits, in memory that depends on the range of values, not on their number.
//!
//! Source   G. Tene, HdrHistogram; B. P. Welford (1962) and Chan, Golub, LeVeque (1979) for mean
//! and deviation, alone and merged

use hdrhistogram::Histogram;
use weft_units::Span;

/// Significant digits of a percentile.
const DIGITS: u8 = 3;

/// Bounds of the classes in which requests are counted by latency, in nanoseconds: from 2 ns to 2
/// s, as in fio. The counts are exact, unlike percentiles.
pub const LEVELS_NS: [u64; 31] = {
    const STEPS: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];
    let mut bounds = [2_000_000_000; 31];
    let (mut at, mut unit) = (0, 1);
    while at < 30 {
        bounds[at] = STEPS[at % 10] * unit;
        at += 1;
        if at % 10 == 0 {
            unit *= 1000;
        }
    }
    bounds
};

/// Statistics of the latencies of many requests.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
    levels: [u64; LEVELS_NS.len() + 1],
    min: u64,
    max: u64,
    mean: f64,
    squares: f64,
}

impl Default for Latencies {
    fn default() -> Self {
        let histogram = Histogram::new(DIGITS).expect("three digits are allowed");
        Self {
            histogram,
            levels: [0; LEVELS_NS.len() + 1],
            min: u64::MAX,
            max: 0,
            mean: 0.0,
            squares: 0.0,
        }
    }
}

impl Latencies {
    /// Adds a request with this latency.
    pub fn record(&mut self, latency: Span) {
        let value = latency.0;
        // Without an upper bound, the histogram grows to any value below 2^63.
        let recorded = self.histogram.record(value.min(i64::MAX as u64));
        recorded.expect("a histogram that grows takes any value");
        self.levels[LEVELS_NS.partition_point(|bound| *bound <= value)] += 1;
        (self.min, self.max) = (self.min.min(value), self.max.max(value));
        let apart = value as f64 - self.mean;
        self.mean += apart / self.count() as f64;
        self.squares += apart * (value as f64 - self.mean);
    }

    /// Adds all requests of another set.
    pub fn merge(&mut self, other: &Self) {
        if other.count() == 0 {
            return;
        }
        let (ours, theirs) = (self.count() as f64, other.count() as f64);
        let apart = other.mean - self.mean;
        self.mean += apart * theirs / (ours + theirs);
        self.squares += other.squares + apart * apart * ours * theirs / (ours + theirs);
        (self.min, self.max) = (self.min.min(other.min), self.max.max(other.max));
        self.levels.iter_mut().zip(other.levels).for_each(|(ours, theirs)| *ours += theirs);
        self.histogram.add(&other.histogram).expect("a histogram that grows takes any other");
    }

    /// Number of requests.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The shortest latency; zero without requests.
    #[must_use]
    pub fn min(&self) -> Span {
        Span(if self.count() == 0 { 0 } else { self.min })
    }

    /// The longest latency; zero without requests.
    #[must_use]
    pub fn max(&self) -> Span {
        Span(self.max)
    }

    /// The mean latency, in nanoseconds; zero without requests.
    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        self.mean
    }

    /// The standard deviation of the latencies, in nanoseconds; zero with fewer than two requests.
    #[must_use]
    pub fn deviation_ns(&self) -> f64 {
        if self.count() < 2 { 0.0 } else { (self.squares / (self.count() - 1) as f64).sqrt() }
    }

    /// The latency that `percent` of the requests do not exceed, to 0.1 %, and never above the
    /// longest latency.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> Span {
        Span(self.histogram.value_at_percentile(percent).min(self.max))
    }

    /// Number of requests from the previous bound of [`LEVELS_NS`] up to, but not including, each
    /// bound; the last element counts all longer requests.
    #[must_use]
    pub fn levels(&self) -> &[u64; LEVELS_NS.len() + 1] {
        &self.levels
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: impl IntoIterator<Item = u64>) -> Latencies {
        let mut latencies = Latencies::default();
        values.into_iter().for_each(|value| latencies.record(Span(value)));
        latencies
    }

    #[test]
    fn a_known_set_has_its_known_numbers() {
        let all = of(1..=100_000);
        assert_eq!((all.min(), all.max(), all.count()), (Span(1), Span(100_000), 100_000));
        assert!((all.mean_ns() - 50_000.5).abs() < 1e-6);
        // The deviation of 1..=n is sqrt(n (n + 1) / 12).
        let exact = (100_000.0_f64 * 100_001.0 / 12.0).sqrt();
        assert!((all.deviation_ns() - exact).abs() < 1e-4);
        for percent in [1.0, 50.0, 90.0, 99.0, 99.9, 100.0] {
            let (found, exact) = (all.percentile(percent).0 as f64, percent * 1000.0);
            assert!((found - exact).abs() <= exact * 0.001 + 1.0, "{percent}: {found}");
        }
        assert_eq!(all.percentile(100.0), Span(100_000));
        assert_eq!(all.levels()[..4], [1, 2, 6, 10]);
        assert_eq!((all.levels().iter().sum::<u64>(), LEVELS_NS[29]), (100_000, 1_000_000_000));
    }

    #[test]
    fn parts_that_are_merged_are_the_whole() {
        let (mut left, right) = (of((0..500).map(|v| v * 7919 % 1009)), of(3000..3300));
        let whole = of((0..500).map(|v| v * 7919 % 1009).chain(3000..3300));
        left.merge(&right);
        left.merge(&Latencies::default());
        assert_eq!((left.count(), left.min(), left.max()), (800, whole.min(), whole.max()));
        assert!((left.mean_ns() - whole.mean_ns()).abs() < 1e-9);
        assert!((left.deviation_ns() - whole.deviation_ns()).abs() < 1e-9);
        assert_eq!(left.percentile(75.0), whole.percentile(75.0));
        let mut empty = Latencies::default();
        empty.merge(&right);
        assert_eq!((empty.min(), empty.mean_ns()), (right.min(), right.mean_ns()));
    }

    #[test]
    fn nothing_is_all_zero_and_the_longest_time_is_taken() {
        let none = Latencies::default();
        assert_eq!((none.min(), none.max(), none.percentile(99.0)), (Span(0), Span(0), Span(0)));
        assert_eq!((none.mean_ns(), none.deviation_ns()), (0.0, 0.0));
        let long = of([0, u64::MAX]);
        assert_eq!((long.min(), long.max(), long.count()), (Span(0), Span(u64::MAX), 2));
    }
}
