//! Points and spans of time, in nanoseconds from an origin that the driver chooses.

use std::ops::{Add, Sub};

/// Point in time, in nanoseconds since an origin that the driver chooses. The times that are given
/// to one engine never decrease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

/// Length of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub u64);

impl Span {
    /// The empty span. As the value of a knob it usually means "never".
    pub const ZERO: Self = Self(0);

    /// Creates a span of `count` milliseconds.
    #[must_use]
    pub const fn millis(count: u64) -> Self {
        Self(count * 1_000_000)
    }

    /// Creates a span of `count` seconds.
    #[must_use]
    pub const fn secs(count: u64) -> Self {
        Self(count * 1_000_000_000)
    }
}

impl Time {
    /// Time since an earlier point; zero when `earlier` is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Span> for Time {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Sub for Time {
    type Output = Span;
    fn sub(self, earlier: Self) -> Span {
        Span(self.0 - earlier.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_overflows_and_never_runs_backwards() {
        assert_eq!(Time(u64::MAX) + Span::secs(1), Time(u64::MAX));
        assert_eq!(Time(5).since(Time(9)), Span::ZERO);
        assert_eq!(Time(9) - Time(5), Span(4));
    }
}
