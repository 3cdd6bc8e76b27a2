//! Rate limit of a device's writers, `dirty_ratelimit`: the rate at which each may dirty pages at
//! the setpoint.
//!
//! N writers that have the same rate limit together dirty N times as much. Thus the rate limit,
//! times the device's bandwidth divided by the rate at which pages were dirtied over 200 ms, is the
//! bandwidth divided by N, without N being known. The rate limit follows this *balanced* rate in
//! small steps, and only if the position calls for a change in the same direction.
//!
//! Source   writeback.md §2.3

use super::Rules;
use super::position::RATELIMIT_CALC_SHIFT;

/// Rate limits of one device, in pages per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ratelimit {
    /// `dirty_ratelimit`: the rate at which each writer may dirty pages at the setpoint.
    pub(crate) rate: u64,
    /// `balanced_dirty_ratelimit`, computed at the end of the last interval.
    pub(crate) balanced: u64,
}

/// Observations over an interval of at least 200 ms, and state at the end of the interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// Setpoint: the number of pages, dirty or under writeback, to which the position ratio steers.
    pub(crate) setpoint: u64,
    /// Number of pages of all devices that are dirty or under writeback.
    pub(crate) dirty: u64,
    /// Position ratio as a fixed-point number; 1.0 is 1024.
    pub(crate) ratio: u64,
    /// Average write bandwidth of the device, in pages per second.
    pub(crate) bandwidth: u64,
    /// Number of the device's pages that were dirtied in the interval.
    pub(crate) dirtied: u64,
    /// Length of the interval, in ticks.
    pub(crate) elapsed: u64,
    /// Ticks per second.
    pub(crate) hz: u64,
}

impl Ratelimit {
    /// Rate limit of 100 MiB/s, used before the first measurement.
    pub(crate) const INITIAL: Self = Self { rate: 25_600, balanced: 25_600 };

    /// Adjusts the rate limit after an interval.
    pub(crate) fn step(&mut self, rules: &Rules, window: &Window) {
        let dirty_rate = window.dirtied * window.hz / window.elapsed.max(1);
        let task = times(self.rate, window.ratio).saturating_add(1);
        let balanced = balanced(task, window.bandwidth, dirty_rate);
        let balanced = if rules.think_time { balanced.min(window.bandwidth) } else { balanced };
        let rates = [self.balanced, balanced, task];
        let step = if window.dirty < window.setpoint {
            rates.into_iter().fold(u64::MAX, u64::min).saturating_sub(self.rate)
        } else {
            self.rate.saturating_sub(rates.into_iter().fold(0, u64::max))
        };
        // Small errors are damped by a power of two.
        let shift = self.rate / step.saturating_mul(2).saturating_add(1);
        let step = u32::try_from(shift).ok().and_then(|shift| step.checked_shr(shift));
        let step = step.unwrap_or(0).div_ceil(8);
        self.rate = if self.rate < balanced {
            self.rate.saturating_add(step)
        } else {
            self.rate.saturating_sub(step).max(1)
        };
        self.balanced = balanced;
    }
}

/// Multiplies a rate by a position ratio, which is a fixed-point number.
pub(super) fn times(rate: u64, ratio: u64) -> u64 {
    let product = (u128::from(rate) * u128::from(ratio)) >> RATELIMIT_CALC_SHIFT;
    u64::try_from(product).unwrap_or(u64::MAX)
}

fn balanced(task: u64, bandwidth: u64, dirty_rate: u64) -> u64 {
    let balanced = u128::from(task) * u128::from(bandwidth) / u128::from(dirty_rate | 1);
    u64::try_from(balanced).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::DirtyThrottle::{Mainline3_2, Mainline6_12};
    use super::super::Position;
    use super::*;
    use crate::page_cache::pool::Thresholds;

    /// Makes one step for a disk of 58 MiB/s with a limit of 100 MiB after 200 ms, from the rates
    /// `before` and with `dirtied` pages. Returns the rate of a task and the new rate limit.
    fn stepped(rules: &Rules, dirty: u64, before: (u64, u64), dirtied: u64) -> (u64, Ratelimit) {
        let position = Position {
            thresholds: Thresholds { background: 12_800, dirty: 25_600 },
            limit: 25_600,
            dirty,
            bdi_thresh: 25_600,
            bdi_background: 0,
            strictlimit: false,
            bdi_dirty: dirty,
            bandwidth: 14_848,
        };
        let ratio = position.ratio(rules);
        let mut limit = Ratelimit { rate: before.0, balanced: before.1 };
        let (setpoint, bandwidth) = (position.setpoint(), position.bandwidth);
        let window = Window { setpoint, dirty, ratio, bandwidth, dirtied, elapsed: 200, hz: 1000 };
        limit.step(rules, &window);
        (times(before.0, ratio) + 1, limit)
    }

    #[test]
    fn writeback_statements_36_to_40_steps_of_the_rate() {
        let (old, new) = (Mainline3_2.rules(), Mainline6_12.rules());
        // Rules, dirty pages, rates before, dirtied pages; expected rate of a task, balanced rate,
        // rate.
        let table = [
            (old, 22_400, (14_848, 14_848), 2970, (14_834, 14_831, 14_848)),
            (old, 24_000, (14_848, 14_848), 2970, (12_804, 12_801, 14_848)),
            (new, 20_800, (7_424, 14_848), 1485, (8_454, 14_848, 7_440)),
            (old, 24_000, (29_696, 14_848), 5939, (25_608, 12_804, 29_632)),
        ];
        for (rules, dirty, before, dirtied, expected) in table {
            let (task, after) = stepped(rules, dirty, before, dirtied);
            assert_eq!((task, after.balanced, after.rate), expected, "{dirty} {before:?}");
        }
        let (_, after) = stepped(old, 21_000, (25_600, 25_600), 2970);
        assert_eq!(after.rate, 25_600, "too fast, but below the setpoint: position alone acts");
    }

    #[test]
    fn a_rate_is_never_below_a_page_per_second() {
        let mut limit = Ratelimit { rate: 1, balanced: 0 };
        let none = Window {
            setpoint: 22_400,
            dirty: 25_600,
            ratio: 0,
            bandwidth: 0,
            dirtied: 1000,
            elapsed: 200,
            hz: 1000,
        };
        limit.step(Mainline6_12.rules(), &none);
        assert_eq!(limit, Ratelimit { rate: 1, balanced: 0 });
    }

    #[test]
    fn the_balanced_rate_is_the_speed_divided_by_the_writers() {
        // Ten writers at the setpoint dirty ten times the rate.
        let mut limit = Ratelimit::INITIAL;
        for interval in 0..200 {
            let (dirty, ratio) = if limit.rate > 1485 { (24_800, 594) } else { (20_000, 1453) };
            let window = Window {
                setpoint: 22_400,
                dirty,
                ratio,
                bandwidth: 14_848,
                dirtied: 10 * (limit.rate * ratio / 1024) / 5,
                elapsed: 200,
                hz: 1000,
            };
            limit.step(Mainline3_2.rules(), &window);
            assert!(limit.balanced.abs_diff(1485) < 10, "{interval}: {limit:?}");
        }
        assert!(limit.rate < 3000, "{limit:?}");
    }
}
