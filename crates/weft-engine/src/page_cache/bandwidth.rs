//! Write bandwidth of a device, in pages per second.
//!
//! One average covers about four seconds of completed writes and is updated at most every 200 ms. A
//! slower average follows the first one, but only while the first one keeps moving in one
//! direction. Before patch 001 the bandwidth determines only the flusher's chunk; with patch 001
//! all throttling follows from it.
//!
//! Inputs   pages completed so far, the tick
//! Answer   `bandwidth` and `average`, pages per second
//! Source   writeback.md §1.5

use super::ticks::TickRate;

/// Estimate of a device's write bandwidth, with the counters at its last update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bandwidth {
    bandwidth: u64,
    average: u64,
    stamp: u64,
    written: u64,
    dirtied: u64,
}

impl Bandwidth {
    /// Creates an estimate that starts at 100 MiB/s.
    #[must_use]
    pub const fn new(tick: u64) -> Self {
        Self { bandwidth: INITIAL, average: INITIAL, stamp: tick, written: 0, dirtied: 0 }
    }

    /// Bandwidth over the last seconds, in pages per second.
    #[must_use]
    pub const fn pages_per_second(&self) -> u64 {
        self.bandwidth
    }

    /// Slower average of the bandwidth, in pages per second.
    #[must_use]
    pub const fn average(&self) -> u64 {
        self.average
    }

    /// Updates the estimate if it is due. A call of a flusher updates it from 200 ms after the last
    /// update on, and a call of a throttled writer (`by_writer`) from one tick later on. Returns
    /// whether the estimate was updated.
    ///
    /// `written` and `dirtied` are the numbers of pages completed and dirtied so far. `start` is
    /// the tick in which the writer's call or the flusher's run began. An interval longer than a
    /// second that began before `start` counts as idle time and is discarded.
    pub fn update(
        &mut self,
        ticks: TickRate,
        tick: u64,
        start: u64,
        (written, dirtied): (u64, u64),
        by_writer: bool,
    ) -> bool {
        if !self.is_due(ticks, tick, by_writer) {
            return false;
        }
        let counted = self.counted(ticks, tick, start, by_writer);
        if let Some(elapsed) = counted {
            self.sample(ticks, elapsed, written - self.written);
        }
        (self.stamp, self.written, self.dirtied) = (tick, written, dirtied);
        counted.is_some()
    }

    /// Length in ticks of the interval that [`update`](Self::update) would evaluate now; `None` if
    /// it is not due, or the interval counts as idle time.
    #[must_use]
    pub fn counted(&self, ticks: TickRate, tick: u64, start: u64, by_writer: bool) -> Option<u64> {
        let elapsed = tick.saturating_sub(self.stamp);
        let was_idle = elapsed > ticks.hz() && self.stamp < start;
        (self.is_due(ticks, tick, by_writer) && !was_idle).then_some(elapsed)
    }

    /// Number of pages dirtied since the interval began; `dirtied` is the number dirtied so far.
    #[must_use]
    pub const fn dirtied_since(&self, dirtied: u64) -> u64 {
        dirtied - self.dirtied
    }

    const fn is_due(&self, ticks: TickRate, tick: u64, by_writer: bool) -> bool {
        tick.saturating_sub(self.stamp) >= interval(ticks) + by_writer as u64
    }

    /// Updates the estimate with an interval of `elapsed` ticks in which `written` pages were
    /// completed.
    pub(crate) fn sample(&mut self, ticks: TickRate, elapsed: u64, written: u64) {
        let hz = ticks.hz();
        let period = (3 * hz).next_power_of_two();
        if elapsed > period {
            self.bandwidth = written * hz / elapsed;
            self.average = self.bandwidth;
            return;
        }
        let old = self.bandwidth;
        let new = (written * hz + old * (period - elapsed)) >> period.ilog2();
        if self.average > old && old >= new {
            self.average -= (self.average - old) >> 3;
        }
        if self.average < old && old <= new {
            self.average += (old - self.average) >> 3;
        }
        self.bandwidth = new;
    }
}

#[cfg(test)]
impl Bandwidth {
    /// Creates an estimate with the given values, in pages per second.
    pub(crate) const fn known(bandwidth: u64, average: u64) -> Self {
        Self { bandwidth, average, stamp: 0, written: 0, dirtied: 0 }
    }
}

/// Shortest time between two updates by a flusher: 200 ms in ticks.
pub(crate) const fn interval(ticks: TickRate) -> u64 {
    ticks.hz() / 5
}

/// Estimate before the first update: 100 MiB/s, in pages per second.
const INITIAL: u64 = 25_600;

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(before: (u64, u64), elapsed: u64, written: u64) -> (u64, u64) {
        let mut estimate = Bandwidth::known(before.0, before.1);
        estimate.sample(TickRate::new(1000), elapsed, written);
        (estimate.bandwidth, estimate.average)
    }

    #[test]
    fn writeback_statements_29_to_33_single_samples() {
        let at_rest = (25_600, 25_600);
        assert_eq!(sampled(at_rest, 200, 5120), at_rest);
        assert_eq!(sampled(at_rest, 200, 2560), (24_975, 25_600));
        assert_eq!(sampled(at_rest, 200, 0), (24_350, 25_600));
        assert_eq!(sampled((25_600, 26_000), 200, 2560), (24_975, 25_950));
        assert_eq!(sampled(at_rest, 5000, 51_200), (10_240, 10_240));
    }

    #[test]
    fn writeback_statements_34_and_35_series_of_samples() {
        let ticks = TickRate::new(1000);
        let mut falling = Bandwidth::known(25_600, 25_600);
        for _ in 0..16 {
            falling.sample(ticks, 200, 2560);
        }
        assert_eq!((falling.pages_per_second(), falling.average()), (18_541, 21_260));
        let mut constant = Bandwidth::known(25_600, 25_600);
        let mut samples = 0;
        while constant.average() > 14_848 * 105 / 100 {
            constant.sample(ticks, 200, 14_848 / 5);
            samples += 1;
        }
        assert_eq!(samples, 64);
    }

    #[test]
    fn it_is_looked_at_after_200_ms_and_idle_time_is_not_counted() {
        let ticks = TickRate::new(1000);
        let mut estimate = Bandwidth::new(0);
        assert!(!estimate.update(ticks, 199, 0, (100, 0), false));
        assert!(!estimate.update(ticks, 200, 0, (100, 0), true));
        assert!({ estimate }.update(ticks, 200, 0, (100, 0), false));
        assert!(estimate.update(ticks, 201, 0, (100, 0), true));
        assert_ne!(estimate.pages_per_second(), INITIAL);
        assert_eq!({ estimate }.dirtied_since(7), 7);
        assert!({ estimate }.update(ticks, 500, 0, (100, 5), true));
        let before = estimate.pages_per_second();
        assert!(!estimate.update(ticks, 5000, 4990, (100, 0), true));
        assert_eq!(estimate.pages_per_second(), before, "5 s without writes");
        // A device is idle for more than a second, not for just a second.
        let estimate = Bandwidth::new(0);
        assert_eq!(estimate.counted(ticks, 1000, 990, false), Some(1000));
        assert_eq!(estimate.counted(ticks, 1001, 990, false), None);
    }
}
