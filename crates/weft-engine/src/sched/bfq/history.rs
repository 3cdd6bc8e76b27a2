//! Access pattern of a queue: distance between requests, think time, and share of time in which the
//! queue is busy.
//!
//! A queue is *seeky* if more than 19 of its last 32 requests began far (more than 800 sectors)
//! from the end of the request before; on flash only small requests count. It *thinks long* if the
//! mean time from the completion of its last request to the next request exceeds half of
//! `slice_idle`. It is *I/O bound* if it was busy for four fifths of the last 200 ms.
//!
//! Source   io-schedulers.md §2.4, §2.6

use weft_units::{Sectors, Span, Time};

/// Bitmap of a queue's last 32 requests: a set bit is a request that began far from the end of the
/// one before.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeekHistory {
    far: u32,
    /// End of the last request of the queue.
    end: Sectors,
}

impl SeekHistory {
    pub(super) const fn new() -> Self {
        Self { far: 1, end: Sectors::ZERO }
    }

    pub(super) fn add(&mut self, first: Sectors, len: Sectors, rotational: bool) {
        self.far = self.far << 1 | u32::from(is_far(self.end, first, len, rotational));
        self.end = first + len;
    }

    pub(super) fn is_seeky(&self) -> bool {
        self.far.count_ones() > SEEKY
    }

    /// Whether each of the last 32 requests began far from the end of the one before.
    pub(super) fn is_totally_seeky(&self) -> bool {
        self.far == u32::MAX
    }
}

/// Whether a request at `first` begins far from `end`, the end of the request before. On flash only
/// small requests count as far.
pub(super) fn is_far(end: Sectors, first: Sectors, len: Sectors, rotational: bool) -> bool {
    first.0.abs_diff(end.0) > FAR.0 && (rotational || len < SMALL_ON_FLASH)
}

/// Think time of a queue: from the completion of a request to the arrival of the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct ThinkTime {
    /// Moving average that approaches 256 as samples are added; it tells whether there are enough
    /// samples.
    count: u64,
    total: u64,
    mean: u64,
    long: bool,
}

impl ThinkTime {
    pub(super) const fn new() -> Self {
        Self { count: 0, total: 0, mean: 0, long: false }
    }

    /// Adds the sample `thought`: the time from the completion of the last request to the next
    /// request.
    pub(super) fn add(&mut self, thought: Span, slice_idle: Span) {
        let thought = thought.0.min(2 * slice_idle.0);
        self.count = (7 * self.count + 256) / 8;
        self.total = (7 * self.total + 256 * thought) / 8;
        self.mean = (self.total + 128) / self.count;
        self.long = self.count > ENOUGH && self.mean > slice_idle.0 / 2;
    }

    pub(super) fn is_long(&self) -> bool {
        self.long
    }
}

/// Share of time in which a queue has requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Intensity {
    since: Time,
    idle: Span,
    pub(super) io_bound: bool,
    /// Whether the queue has requests for at least half of the time.
    pub(super) works: bool,
}

impl Intensity {
    pub(super) const fn new(now: Time) -> Self {
        Self { since: now, idle: Span::ZERO, io_bound: true, works: true }
    }

    /// Records that a queue becomes busy again, after an idle time of `idle`.
    pub(super) fn add(&mut self, idle: Span, now: Time) {
        self.idle = Span(self.idle.0 + idle.0);
        let window = now.since(self.since);
        self.io_bound = window.0.saturating_sub(self.idle.0) * 5 >= window.0 * 4;
        self.works = self.idle.0 * 2 <= window.0;
        if window > WINDOW {
            self.since = Time(now.0 - window.0 / 2);
            self.idle = Span(self.idle.0.min(window.0) / 2);
        }
    }
}

/// Largest number of far requests among the last 32 with which a queue is not seeky.
const SEEKY: u32 = 19;

/// Largest distance between two requests that does not count as far.
const FAR: Sectors = Sectors(800);

/// Smallest length of a request that never counts as far on flash.
const SMALL_ON_FLASH: Sectors = Sectors(64);

/// Value of `count` above which the mean is trusted; the third sample reaches it.
const ENOUGH: u64 = 80;

const WINDOW: Span = Span::millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_far_requests_of_32_are_seeky_and_large_ones_on_flash_are_not() {
        let mut history = SeekHistory::new();
        for step in 1..20 {
            history.add(Sectors(step * 10_000), Sectors(8), false);
            assert_eq!(history.is_seeky(), step == 19, "{step}");
        }
        assert!(!history.is_totally_seeky());
        let mut large = SeekHistory::new();
        let mut disk = SeekHistory::new();
        for step in 1..40 {
            large.add(Sectors(step * 10_000), Sectors(64), false);
            disk.add(Sectors(step * 10_000), Sectors(64), true);
        }
        assert!(!large.is_seeky() && disk.is_totally_seeky());
    }

    #[test]
    fn the_third_long_thought_tells() {
        let mut think = ThinkTime::new();
        for count in 1..=3 {
            think.add(Span::millis(5), Span::millis(8));
            assert_eq!(think.is_long(), count == 3);
        }
        (0..20).for_each(|_| think.add(Span::millis(1), Span::millis(8)));
        assert!(!think.is_long());
    }

    #[test]
    fn a_mean_thought_of_exactly_half_of_slice_idle_is_not_long() {
        let mut think = ThinkTime::new();
        (0..9).for_each(|_| think.add(Span::millis(4), Span::millis(8)));
        let mut next = think;
        next.add(Span::millis(4), Span::millis(8));
        for (slice_idle, long) in [(2 * next.mean, false), (2 * next.mean - 2, true)] {
            let mut think = think;
            think.add(Span::millis(4), Span(slice_idle));
            assert_eq!((think.mean, think.is_long()), (next.mean, long));
        }
    }

    #[test]
    fn a_queue_that_is_busy_for_four_fifths_is_io_bound() {
        let mut busy = Intensity::new(Time(0));
        for step in 1..=30 {
            busy.add(Span::millis(1), Time(0) + Span::millis(step * 10));
        }
        assert!(busy.io_bound && busy.works);
        for step in 31..=90 {
            busy.add(Span::millis(3), Time(0) + Span::millis(step * 10));
        }
        assert!(!busy.io_bound && busy.works);
        for step in 91..=150 {
            busy.add(Span::millis(6), Time(0) + Span::millis(step * 10));
        }
        assert!(!busy.works);
    }

    #[test]
    fn a_window_is_halved_only_when_it_is_longer_than_200_ms() {
        let mut busy = Intensity::new(Time(0));
        busy.add(Span::millis(60), Time(0) + Span::millis(200));
        assert_eq!((busy.since, busy.idle), (Time(0), Span::millis(60)));
        busy.add(Span::millis(40), Time(0) + Span::millis(240));
        assert_eq!((busy.since, busy.idle), (Time(0) + Span::millis(120), Span::millis(50)));
    }
}
