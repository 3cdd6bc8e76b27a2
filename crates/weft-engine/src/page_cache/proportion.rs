//! Floating proportions: the share of each device or process in recent events.
//!
//! This is the kernel's algorithm before 3.7. The events of all devices or processes are counted
//! together. A *period* is a number of events, so time advances only with events. At each half
//! period the count of every device or process is halved, lazily, when it is next used. After a few
//! halvings without events of its own, a device has no share left: this is how a disk of 2011 gets
//! stuck at a share of zero.
//!
//! There are two instances: completed writes by device (for a device's share of the dirty limit),
//! and dirtied pages by process (heavy writers have a slightly lower limit).
//!
//! Inputs   events; counting n at once is exactly the same as counting one n times
//! Answer   [`Fraction`]
//! Source   writeback.md §1.4

/// A fraction, not reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fraction {
    /// Number of recent events of one device or process.
    pub numerator: u64,
    /// Number of recent events of all devices or processes.
    pub denominator: u64,
}

impl Fraction {
    /// The whole, 1/1.
    pub const ONE: Self = Self { numerator: 1, denominator: 1 };

    /// Part of `whole` that corresponds to this fraction, rounded down.
    #[must_use]
    pub fn of(self, whole: u64) -> u64 {
        // Computed in 128 bits: a count of pages times a count of events.
        let share =
            u128::from(whole) * u128::from(self.numerator) / u128::from(self.denominator.max(1));
        u64::try_from(share).unwrap_or(u64::MAX)
    }
}

/// Counter of the events of all devices or processes, with the length of the period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proportion {
    /// Base-2 logarithm of the number of events in a period.
    shift: u32,
    events: u64,
}

/// Counter of the events of one device or process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    shift: u32,
    /// Value of the total event count, a multiple of half a period, up to which `events` has been
    /// halved.
    period: u64,
    events: u64,
}

impl Proportion {
    /// Creates a counter without events. The dirty limit, in pages, determines the period.
    #[must_use]
    pub fn for_limit(limit_pages: u64) -> Self {
        Self { shift: shift_for(limit_pages), events: 0 }
    }

    /// Base-2 logarithm of the number of events per period.
    #[must_use]
    pub const fn shift(&self) -> u32 {
        self.shift
    }

    /// Creates a share without events.
    #[must_use]
    pub const fn share(&self) -> Share {
        Share { shift: self.shift, period: self.events & !(self.half() - 1), events: 0 }
    }

    /// Counts `count` events of this share, with the same result as counting them one by one.
    pub fn count(&mut self, share: &mut Share, mut count: u64) {
        while count > 0 {
            self.catch_up(share);
            let until_half = self.half() - (self.events & (self.half() - 1));
            let now = count.min(until_half);
            share.events += now;
            self.events += now;
            count -= now;
        }
    }

    /// Fraction of recent events that belong to this share.
    pub fn fraction(&self, share: &mut Share) -> Fraction {
        self.catch_up(share);
        let denominator = self.half() + (self.events & (self.half() - 1));
        Fraction { numerator: share.events, denominator }
    }

    /// Changes the dirty limit, and with it the period.
    pub fn set_limit(&mut self, limit_pages: u64) {
        let shift = shift_for(limit_pages);
        self.events = rescale(self.events, self.shift, shift);
        self.shift = shift;
    }

    const fn half(&self) -> u64 {
        1 << (self.shift - 1)
    }

    /// Halves the count of a share for each half period since it was last used.
    fn catch_up(&self, share: &mut Share) {
        if share.shift != self.shift {
            share.period = rescale(share.period, share.shift, self.shift);
            share.shift = self.shift;
        }
        let now = self.events & !(self.half() - 1);
        let halves = now.wrapping_sub(share.period) >> (self.shift - 1);
        share.events =
            u32::try_from(halves).ok().and_then(|n| share.events.checked_shr(n)).unwrap_or(0);
        share.period = now;
    }
}

/// Base-2 logarithm of the period: half a period is the limit rounded up to a power of two.
fn shift_for(limit_pages: u64) -> u32 {
    2 + limit_pages.saturating_sub(1).max(1).ilog2()
}

const fn rescale(events: u64, from: u32, to: u32) -> u64 {
    if from < to { events << (to - from) } else { events >> (from - to) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writeback_statement_51_the_period_follows_the_limit() {
        let mebibytes = [(1, 9), (8, 12), (100, 16), (400, 18), (800, 19), (1024, 19)];
        for (limit, shift) in mebibytes {
            assert_eq!(Proportion::for_limit(limit * 256).shift(), shift, "{limit} MiB");
        }
    }

    /// Reference implementation that counts one event at a time, and halves at each boundary.
    fn naive(half: u64, owners: &[usize], of: usize) -> Fraction {
        let mut counts = [0u64; 3];
        let mut total = 0;
        for &owner in owners {
            if total > 0 && total % half == 0 {
                for count in &mut counts {
                    *count -= count.div_ceil(2);
                }
            }
            counts[owner] += 1;
            total += 1;
        }
        if total > 0 && total % half == 0 {
            counts[of] -= counts[of].div_ceil(2);
        }
        Fraction { numerator: counts[of], denominator: half + total % half }
    }

    #[test]
    fn batches_count_as_single_events_do() {
        // A limit of 5 pages, so that half a period is 8 events.
        for pattern in 0..3_u64.pow(7) {
            let mut all = Proportion::for_limit(5);
            let mut shares = [all.share(); 3];
            let mut owners = Vec::new();
            let mut digits = pattern;
            for length in [1, 3, 7, 8, 2, 5, 17] {
                let owner = usize::try_from(digits % 3).unwrap();
                digits /= 3;
                all.count(&mut shares[owner], length);
                owners.extend((0..length).map(|_| owner));
            }
            for (of, share) in shares.iter_mut().enumerate() {
                assert_eq!(all.fraction(share), naive(8, &owners, of), "{pattern}");
            }
        }
    }

    #[test]
    fn the_only_one_has_everything_and_an_idle_one_loses_it() {
        let mut all = Proportion::for_limit(256);
        let (mut busy, mut idle) = (all.share(), all.share());
        all.count(&mut idle, 10_000);
        let fraction = all.fraction(&mut idle);
        assert!(fraction.of(1000) >= 990, "{fraction:?}");
        all.count(&mut busy, 10 * 256);
        assert_eq!(all.fraction(&mut idle).numerator, 0);
        assert!(all.fraction(&mut busy).of(1000) >= 990);
    }

    #[test]
    fn a_lower_limit_keeps_the_fraction() {
        let mut all = Proportion::for_limit(4096);
        let mut share = all.share();
        all.count(&mut share, 3 * 4096 + 1024);
        let before = all.fraction(&mut share);
        all.set_limit(1024);
        let after = all.fraction(&mut share);
        assert_eq!(after.numerator, before.numerator);
        assert_eq!(4 * after.denominator, before.denominator);
    }

    #[test]
    fn a_changed_limit_keeps_the_phase() {
        let mut all = Proportion::for_limit(256);
        let mut share = all.share();
        all.count(&mut share, 300);
        all.count(&mut share, 10_000);
        let before = all.fraction(&mut share);
        all.set_limit(512);
        let after = all.fraction(&mut share);
        assert_eq!(all.shift(), 10);
        assert_eq!(after.numerator, before.numerator);
        assert_eq!(after.denominator, 2 * before.denominator);
    }
}
