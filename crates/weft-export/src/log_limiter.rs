//! Rate-limited log lines: lines that a client can cause at will.
//!
//! A log line costs disk space. A line that a client can cause repeatedly is rate-limited, and says
//! how many like it were left out since the last one.

use weft_units::{Span, Time};

/// Rate limit of one kind of log line.
#[derive(Debug, Default)]
pub(crate) struct LogLimiter {
    again: Option<Time>,
    left_out: u64,
}

impl LogLimiter {
    /// Number of lines left out since the last one, if a line may be written now; `None` if this
    /// line is left out as well.
    pub(crate) fn now(&mut self, now: Time) -> Option<u64> {
        if self.again.is_some_and(|again| now < again) {
            self.left_out += 1;
            return None;
        }
        self.again = Some(now + PAUSE);
        Some(std::mem::take(&mut self.left_out))
    }
}

/// Shortest time between two lines of one kind: at most 8,640 a day.
const PAUSE: Span = Span::secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_counted() {
        let mut rare = LogLimiter::default();
        let lines: Vec<_> =
            (0..25).filter_map(|second| rare.now(Time(0) + Span::secs(second))).collect();
        assert_eq!(lines, [0, 9, 9]);
    }
}
