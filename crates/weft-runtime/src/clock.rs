//! Clock of the engine: monotonic nanoseconds since the clock was started.
//!
//! No other file of the runtime reads a clock.

use std::time::Instant;

use weft_units::Time;

/// A monotonic clock that starts at zero.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// Starts a clock, which shows zero now.
    #[must_use]
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Nanoseconds since the clock was started.
    #[must_use]
    pub fn now(&self) -> Time {
        // 2^64 ns are 584 years.
        Time(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}
