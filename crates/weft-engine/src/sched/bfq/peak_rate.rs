//! Peak rate: sectors per microsecond that a member transfers with sequential requests.
//!
//! Dispatches are counted over intervals of about a second. An interval with fewer than 32
//! dispatches, or shorter than 300 ms, is discarded. An interval with few sequential dispatches
//! counts only if it was faster than the estimate. The weight of an interval in the estimate grows
//! with its length and its share of sequential dispatches.
//!
//! Inputs   dispatches and completions
//! Answer   [`PeakRate::sectors_in`]: sectors that the member transfers in a time
//! Source   io-schedulers.md §2.3

use weft_units::{Sectors, Span, Time};

use super::history::is_far;

/// Estimate of the peak rate, and the interval that is being measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeakRate {
    rotational: bool,
    /// Estimate in sectors per microsecond, in units of 2^-16.
    rate: u64,
    samples: u64,
    sequential: u64,
    sectors: u64,
    /// Length in sectors of the largest recent request.
    largest: u64,
    began: Time,
    dispatched: Time,
    completed: Time,
    end: Sectors,
}

impl PeakRate {
    pub(super) const fn new(rotational: bool) -> Self {
        let reference = if rotational { REFERENCE_DISK } else { REFERENCE_FLASH };
        Self {
            rotational,
            rate: reference * 2 / 3,
            samples: 0,
            sequential: 0,
            sectors: 0,
            largest: 0,
            began: Time(0),
            dispatched: Time(0),
            completed: Time(0),
            end: Sectors::ZERO,
        }
    }

    /// Peak rate in sectors per microsecond, times 2^16.
    pub(super) const fn rate(&self) -> u64 {
        self.rate
    }

    /// Number of sectors that the member transfers in `span` at its peak rate.
    pub(super) const fn sectors_in(&self, span: Span) -> u64 {
        (self.rate * (span.0 / 1000)) >> RATE_SHIFT
    }

    /// Adds the dispatch of a request, made while `others` requests were in flight. Returns whether
    /// the estimate has changed.
    pub(super) fn on_dispatch(
        &mut self,
        first: Sectors,
        len: Sectors,
        others: u32,
        now: Time,
    ) -> bool {
        let before = self.rate;
        let was_busy = others > 0 || now.since(self.completed) < SOON;
        if self.samples > 0 && others == 0 && now.since(self.dispatched) > IDLE_GAP {
            self.close();
        }
        if self.samples == 0 {
            (self.began, self.sequential, self.sectors, self.largest) = (now, 0, 0, 0);
        } else if was_busy && !is_far(self.end, first, len, self.rotational) {
            self.sequential += 1;
        }
        self.samples += 1;
        self.sectors += len.0;
        self.largest =
            if self.samples.is_multiple_of(32) { len.0 } else { self.largest.max(len.0) };
        (self.end, self.dispatched) = (first + len, now);
        if now.since(self.began) >= INTERVAL {
            self.close();
        }
        self.rate != before
    }

    /// Adds the completion of a request. Returns whether the estimate has changed.
    pub(super) fn on_complete(&mut self, now: Time) -> bool {
        let before = self.rate;
        let took = now.since(self.dispatched.max(self.completed));
        self.completed = now;
        // Slower than one sector per microsecond: the interval contains pauses.
        if self.samples > 0 && took > SOON && self.largest * 1000 < took.0 {
            self.close();
        }
        self.rate != before
    }

    fn close(&mut self) {
        let (samples, sequential) = (self.samples, self.sequential);
        self.samples = 0;
        let span = self.dispatched.since(self.began).max(self.completed.since(self.began));
        if samples < MIN_SAMPLES || span < MIN_INTERVAL {
            return;
        }
        let rate = (self.sectors << RATE_SHIFT) / (span.0 / 1000);
        let slower = rate <= self.rate;
        if sequential * 4 < samples * 3 && slower || rate > MAX_RATE {
            return;
        }
        let counts = (9 * sequential / samples * span.0 / INTERVAL.0).min(8);
        if counts == 0 {
            return;
        }
        let rest = 10 - counts;
        self.rate = (self.rate * (rest - 1) / rest + rate / rest).max(1);
    }
}

/// Peak rates of a common disk and of common flash, in sectors per microsecond, times 2^16. The
/// estimate for a new member starts at two thirds of these rates.
const REFERENCE_DISK: u64 = 14_000;
const REFERENCE_FLASH: u64 = 33_000;

const RATE_SHIFT: u32 = 16;

/// Upper bound of the measured rate, 10 GB/s: a faster interval is a measuring error.
const MAX_RATE: u64 = 20 << RATE_SHIFT;

const INTERVAL: Span = Span::secs(1);
const MIN_INTERVAL: Span = Span::millis(300);
const MIN_SAMPLES: u64 = 32;

/// Time without a request after which an interval no longer shows the peak rate.
const IDLE_GAP: Span = Span::millis(100);

const SOON: Span = Span::millis(2);

#[cfg(test)]
mod tests {
    use super::*;

    /// Dispatches and completes `count` requests that are `apart` sectors and `every` apart.
    /// Returns the estimates.
    fn run(peak: &mut PeakRate, count: u64, apart: u64, every: Span) -> Vec<u64> {
        let (mut now, mut rates) = (peak.dispatched, Vec::new());
        for number in 0..count {
            now = now + every;
            let first = Sectors(number * apart);
            let before = peak.rate;
            peak.on_dispatch(first, Sectors(if apart > 8 { 8 } else { apart }), 4, now);
            peak.on_complete(now);
            if peak.rate != before {
                rates.push(peak.rate);
            }
        }
        rates
    }

    #[test]
    fn statement_b19_sequential_requests_lead_to_their_rate_and_random_ones_never_lower_it() {
        let mut peak = PeakRate::new(false);
        assert_eq!(peak.rate, 22_000);
        // The kernel's own steps on a device of 2097 x 2^-16 sectors per microsecond.
        let rates = run(&mut peak, 60_000, 8, Span(250_000));
        let kernel = [12_047, 7_108, 4_631, 3_415];
        for (rate, kernel) in rates.iter().zip(kernel) {
            assert!(rate.abs_diff(kernel) < kernel / 40, "{rates:?}");
        }
        let steady = 8 * 65_536 / 250;
        let close = rates.iter().position(|rate| rate.abs_diff(steady) * 20 < steady);
        assert!(close.is_some_and(|step| step < 10), "{rates:?}");
        let mut random = PeakRate::new(true);
        assert!(run(&mut random, 100_000, 5_000, Span(250_000)).is_empty());
        // Control: random requests that are faster than the estimate raise it.
        assert!(run(&mut random, 600_000, 5_000, Span(2_000)).iter().all(|rate| *rate > 9_333));
    }

    #[test]
    fn a_member_was_busy_if_it_completed_a_request_less_than_2_ms_ago() {
        for (after, sequential) in [(SOON.0 - 1, 1), (SOON.0, 0), (SOON.0 + 1, 0)] {
            let mut peak = PeakRate::new(true);
            peak.on_dispatch(Sectors(0), Sectors(8), 0, Time(0));
            peak.on_complete(Time(1_000));
            peak.on_dispatch(Sectors(8), Sectors(8), 0, Time(1_000 + after));
            assert_eq!((peak.samples, peak.sequential), (2, sequential), "{after}");
        }
    }

    #[test]
    fn a_gap_of_more_than_100_ms_begins_a_new_interval() {
        for (after, samples) in [(IDLE_GAP.0, 2), (IDLE_GAP.0 + 1, 1)] {
            let mut peak = PeakRate::new(true);
            peak.on_dispatch(Sectors(0), Sectors(8), 0, Time(5));
            peak.on_complete(Time(1_000));
            peak.on_dispatch(Sectors(8), Sectors(8), 0, Time(5 + after));
            assert_eq!(peak.samples, samples, "{after}");
        }
    }

    #[test]
    fn a_completion_slower_than_a_sector_per_microsecond_ends_the_interval() {
        for (len, samples) in [(3_000, 1), (2_400, 0)] {
            let mut peak = PeakRate::new(true);
            peak.on_dispatch(Sectors(0), Sectors(len), 0, Time(0));
            peak.on_complete(Time(2_500_000));
            assert_eq!(peak.samples, samples, "{len}");
        }
    }

    /// Rate on a disk after an interval of half a second with 40 dispatches, `sequential` of them
    /// sequential.
    fn after_interval(sequential: u64) -> u64 {
        let mut peak = PeakRate::new(true);
        (peak.samples, peak.sequential, peak.sectors) = (40, sequential, 30_000);
        (peak.dispatched, peak.completed) = (Time(0) + Span::millis(500), Time(0));
        peak.close();
        peak.rate
    }

    #[test]
    fn an_interval_counts_by_its_length_and_by_its_share_of_sequential_dispatches() {
        let (old, new) = (14_000 * 2 / 3, (30_000 << RATE_SHIFT) / 500_000);
        assert!(new < old);
        assert_eq!(after_interval(29), old, "fewer than three quarters");
        // 9 x 30 / 40 is 6 for an interval of a second, and 3 for one of half a second.
        assert_eq!(after_interval(30), old * 6 / 7 + new / 7);
        assert_eq!(after_interval(40), old * 5 / 6 + new / 6);
    }
}
