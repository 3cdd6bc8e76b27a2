//! Timer ticks: wake-up times of sleeps that are counted in ticks.
//!
//! The kernel of 2011 sleeps in ticks of `1/HZ` s, and a sleep ends *at* a tick: a sleep of p ticks
//! lasts between p − 1 and p ticks. For pools that a disk drains in 17 ms this determines the
//! throughput, so it is modelled and not rounded away.
//!
//! Source   writeback.md §1.3, §2.4 and §6.2 (HZ is a first-order parameter)

use weft_units::Time;

/// Ticks per second, `CONFIG_HZ`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TickRate {
    hz: u32,
    tick_ns: u64,
}

impl TickRate {
    /// Creates a rate of `hz` ticks per second.
    ///
    /// # Panics
    /// Panics if a tick is not a whole number of nanoseconds, as with 300 Hz.
    #[must_use]
    pub fn new(hz: u32) -> Self {
        assert!(hz >= 10 && 1_000_000_000 % hz == 0, "whole nanoseconds per tick, 10 Hz or more");
        Self { hz, tick_ns: 1_000_000_000 / u64::from(hz) }
    }

    /// Number of ticks per second.
    #[must_use]
    pub const fn hz(self) -> u64 {
        self.hz as u64
    }

    /// Number of ticks from the origin of time to `now`.
    #[must_use]
    pub const fn tick(self, now: Time) -> u64 {
        now.0 / self.tick_ns
    }

    /// Time at which tick number `tick` begins.
    #[must_use]
    pub const fn at(self, tick: u64) -> Time {
        Time(tick.saturating_mul(self.tick_ns))
    }

    /// Time at which a sleep of `ticks` ticks ends if it begins now.
    #[must_use]
    pub const fn wake(self, now: Time, ticks: u64) -> Time {
        self.at(self.tick(now) + ticks)
    }
}

impl Default for TickRate {
    /// 250 Hz, which the measurements of 2011 suggest but do not document.
    fn default() -> Self {
        Self::new(250)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_of_p_ticks_lasts_between_p_minus_1_and_p() {
        let ticks = TickRate::new(250);
        assert_eq!(ticks.wake(Time(0), 3), Time(12_000_000));
        assert_eq!(ticks.wake(Time(3_999_999), 1), Time(4_000_000));
        assert_eq!(ticks.wake(Time(4_000_000), 1), Time(8_000_000));
        assert_eq!(ticks.tick(Time(11_999_999)), 2);
        assert_eq!(ticks.hz(), 250);
    }
}
