//! Bandwidth of a device, and the cost of a switch between runs, both measured from completions
//! alone.
//!
//! Completions form two groups: those that continue the previous completion in the same file, and
//! those that begin a run. The rate is the pages of the first group divided by its time. The cost
//! of switches is the time by which the second group took longer than its pages would take at that
//! rate. A regression of time over the length of runs would yield the same, but fails while all
//! runs have the same length. Only busy time counts: the time since the previous completion, if the
//! device had more to do after that one.
//!
//! A flash device has a cost near 0 by this rule, and so has a disk that hides its seeks.

use super::super::super::id::InodeId;
use std::ops::Range;
use weft_units::{Span, Time};

/// Measurements of one device.
#[derive(Clone, Debug, Default)]
pub(super) struct Speed {
    /// Time of the last completion; `None` if the device was idle after it, or nothing has
    /// completed.
    last: Option<Time>,
    /// Page that would continue the sequential run of the last completion, with its file; `None`
    /// before the first completion.
    next: Option<(InodeId, u64)>,
    in_row: Group,
    first: Group,
}

/// Sums over recent completions of one group: the completions that continue the previous completion
/// in its file, or the completions that begin a run.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    count: u64,
    pages: u64,
    nanos: u64,
}

impl Group {
    fn add(&mut self, pages: u64, span: Span) {
        *self = Self {
            count: self.count + 1,
            pages: self.pages + pages,
            nanos: self.nanos.saturating_add(span.0),
        };
        if self.nanos > MEMORY.0 {
            *self = Self { count: self.count / 2, pages: self.pages / 2, nanos: self.nanos / 2 };
        }
    }
}

impl Speed {
    /// Adds a completed write. `goes_on` is true if the device has more to do.
    pub(super) fn completed(
        &mut self,
        now: Time,
        inode: InodeId,
        pages: &Range<u64>,
        goes_on: bool,
    ) {
        let follows = self
            .next
            .is_some_and(|(run, page)| run == inode && page.abs_diff(pages.start) <= NEAR_PAGES);
        if let Some(last) = self.last {
            let group = if follows { &mut self.in_row } else { &mut self.first };
            group.add(pages.end - pages.start, now.since(last));
        }
        self.next = Some((inode, pages.end));
        self.last = goes_on.then_some(now);
    }

    /// Pages per second of busy time, without the time of switches between runs.
    const fn rate(&self) -> u64 {
        if self.knows_rate() { rate(self.in_row.pages, self.in_row.nanos) } else { INITIAL }
    }

    /// Pages per second of busy time, including the time of switches between runs.
    pub(super) const fn bandwidth(&self) -> u64 {
        let nanos = self.in_row.nanos + self.first.nanos;
        if nanos < ENOUGH.0 { INITIAL } else { rate(self.in_row.pages + self.first.pages, nanos) }
    }

    /// Cost of one switch between sequential runs, as the number of pages that could be written in
    /// the time of the switch.
    pub(super) const fn switch_pages(&self) -> u64 {
        let Group { count, pages, nanos } = self.first;
        if count < SWITCHES_MIN {
            return 0;
        }
        if !self.knows_rate() {
            // The switch may account for all of the time that a run took.
            return pages / count;
        }
        let could = pages_in(self.rate(), Span(nanos));
        let lost = could.saturating_sub(pages) / count;
        let most = self.run_in(SWITCH_MAX);
        if lost < most { lost } else { most }
    }

    /// Duration of one switch between sequential runs.
    pub(super) const fn switch(&self) -> Span {
        Span(self.switch_pages() * SECOND / self.rate())
    }

    /// Number of pages that can be written in `span` without switches; at least one.
    pub(super) const fn run_in(&self, span: Span) -> u64 {
        pages_in(self.rate(), span) + 1
    }

    /// Number of pages that can be written in `span` with switches at their recent rate; at least
    /// one.
    pub(super) const fn pages_in(&self, span: Span) -> u64 {
        pages_in(self.bandwidth(), span) + 1
    }

    const fn knows_rate(&self) -> bool {
        self.in_row.nanos >= ENOUGH.0
    }
}

/// Pages per second, at least one.
const fn rate(pages: u64, nanos: u64) -> u64 {
    let rate = pages as u128 * SECOND as u128 / nanos as u128;
    if rate == 0 { 1 } else { rate as u64 }
}

const fn pages_in(rate: u64, span: Span) -> u64 {
    (rate as u128 * span.0 as u128 / SECOND as u128) as u64
}

/// Busy time of a group at which its sums are halved, so that old completions fade.
const MEMORY: Span = Span::secs(2);

/// Busy time below which the sums of a group are too small to be used.
const ENOUGH: Span = Span::millis(5);

/// Number of switches between runs from which their cost is regarded as known.
const SWITCHES_MIN: u64 = 4;

/// Longest plausible switch. A longer delay has another cause, such as a cache that is emptied or a
/// disk that spins up.
const SWITCH_MAX: Span = Span::millis(50);

/// Distance in pages by which completions may be out of order and still count as one run: 4 MiB.
const NEAR_PAGES: u64 = 1024;

/// Rate that is assumed before there are enough measurements: 100 MiB/s, in pages per second, the
/// initial value of the kernel.
const INITIAL: u64 = 25_600;

const SECOND: u64 = 1_000_000_000;

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Measurements of a device with runs of `requests` requests of 64 pages each, at 100 µs per
    /// page and `switch` per run.
    pub(in super::super) fn device(requests: u64, switch: Span) -> Speed {
        let (mut speed, mut now) = (Speed::default(), Time(0));
        for run in 0..100 {
            now = now + switch;
            for request in 0..requests {
                now = now + Span(64 * 100_000);
                let start = run * 100_000 + request * 64;
                speed.completed(now, InodeId(0), &(start..start + 64), true);
            }
        }
        speed
    }

    #[test]
    fn rate_and_switch_are_told_apart_though_all_runs_are_of_one_length() {
        for requests in [2, 16] {
            let speed = device(requests, Span::millis(8));
            assert!((9_990..=10_000).contains(&speed.rate()), "{}", speed.rate());
            assert!((78..=81).contains(&speed.switch_pages()), "{}", speed.switch_pages());
        }
        assert_eq!(device(16, Span::ZERO).switch_pages(), 0);
    }

    #[test]
    fn where_every_request_is_a_run_all_of_its_time_may_be_the_switch() {
        let speed = device(1, Span::millis(8));
        assert_eq!(speed.switch_pages(), 64);
    }

    #[test]
    fn time_without_work_does_not_count() {
        let mut speed = Speed::default();
        for second in 0..100 {
            let now = Time(second * SECOND);
            speed.completed(now, InodeId(0), &(0..10), true);
            speed.completed(now + Span::millis(1), InodeId(0), &(10..20), false);
        }
        assert_eq!(speed.rate(), 10_000);
    }

    #[test]
    fn sums_are_halved_when_they_exceed_two_seconds() {
        let mut group = Group::default();
        group.add(10, MEMORY);
        assert_eq!((group.count, group.pages, group.nanos), (1, 10, MEMORY.0));
        group.add(10, Span(2));
        assert_eq!((group.count, group.pages, group.nanos), (1, 10, MEMORY.0 / 2 + 1));
    }

    #[test]
    fn four_switches_are_needed_to_know_their_cost_and_duration() {
        let with = |count| {
            let in_row = Group { count: 100, pages: 10_000, nanos: SECOND };
            let first = Group { count, pages: count * 10, nanos: count * 21_000_000 };
            Speed { in_row, first, ..Speed::default() }
        };
        assert_eq!((with(3).switch_pages(), with(3).switch()), (0, Span::ZERO));
        assert_eq!((with(4).switch_pages(), with(4).switch()), (200, Span::millis(20)));
    }

    #[test]
    fn at_least_one_page_is_written_in_any_time() {
        let speed =
            Speed { in_row: Group { count: 1, pages: 100, nanos: SECOND }, ..Speed::default() };
        assert_eq!([0, 9, 10, 1_000].map(|ms| speed.pages_in(Span::millis(ms))), [1, 1, 2, 101]);
        assert_eq!(speed.run_in(Span::millis(10)), 2);
    }
}
