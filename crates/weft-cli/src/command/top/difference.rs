//! Rates and latencies between two statuses of one server.
//!
//! The status has counters since the start of the server. A rate is the difference of two counters
//! divided by the time between them, which is measured by the server's clock (`uptime_ms`).

use weft_export::control::{AnsweredStatus, MemberStatus, ShareStatus, Status, VolumeStatus};
use weft_units::SECTOR_BYTES;

use crate::asked::Asked;

/// Time between two statuses of one server process, in milliseconds; at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval(u64);

/// Requests and bytes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Traffic {
    /// Reads per second.
    pub(super) reads: u64,
    /// Other requests per second: writes, flushes and trims of clients, but only writes to a
    /// member.
    pub(super) writes: u64,
    /// Bytes read per second.
    pub(super) bytes_read: u64,
    /// Bytes written per second.
    pub(super) bytes_written: u64,
}

/// Latency of the reads and writes that a member or volume answered between two statuses, in
/// microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Latency {
    /// Mean latency.
    pub(super) mean_us: u64,
    /// Bound below which at least 99 % of the latencies were: a power of two. `None` if the
    /// histogram has no such bound.
    pub(super) p99_below_us: Option<u64>,
}

impl Interval {
    /// Time from one status to a later one; `None` if they are of different processes, or no
    /// millisecond lies between them.
    pub(super) fn between(before: &Status, after: &Status) -> Option<Self> {
        let same = before.pid == after.pid;
        let span = after.uptime_ms.checked_sub(before.uptime_ms)?;
        (same && span > 0).then_some(Self(span))
    }

    /// Length of the interval in milliseconds.
    pub(super) fn millis(self) -> u64 {
        self.0
    }

    /// Rate per second, rounded, of a counter with these values at the start and end of the
    /// interval.
    pub(super) fn rate(self, before: u64, after: u64) -> u64 {
        let counted = u128::from(after.saturating_sub(before)) * 1000;
        let rate = (counted + u128::from(self.0) / 2) / u128::from(self.0);
        u64::try_from(rate).unwrap_or(u64::MAX)
    }

    /// Traffic of all clients of a volume in the interval.
    pub(super) fn volume(self, before: &VolumeStatus, after: &VolumeStatus) -> Traffic {
        self.traffic(Asked::by_clients(before), Asked::by_clients(after))
    }

    /// Traffic of an account in the interval. An account that `before` lacks began at 0.
    pub(super) fn account(self, before: &VolumeStatus, after: &ShareStatus) -> Traffic {
        let mut accounts = before.shares.iter();
        let same = accounts.find(|it| (&it.who, it.client) == (&after.who, after.client));
        self.traffic(same.map(Asked::by_account).unwrap_or_default(), Asked::by_account(after))
    }

    /// Traffic of a member in the interval, without flushes and discards.
    pub(super) fn member(self, before: &MemberStatus, after: &MemberStatus) -> Traffic {
        let asked = |it: &MemberStatus| Asked {
            reads: it.reads,
            writes: it.writes,
            bytes_read: it.sectors_read * SECTOR_BYTES,
            bytes_written: it.sectors_written * SECTOR_BYTES,
        };
        self.traffic(asked(before), asked(after))
    }

    fn traffic(self, before: Asked, after: Asked) -> Traffic {
        Traffic {
            reads: self.rate(before.reads, after.reads),
            writes: self.rate(before.writes, after.writes),
            bytes_read: self.rate(before.bytes_read, after.bytes_read),
            bytes_written: self.rate(before.bytes_written, after.bytes_written),
        }
    }
}

impl Traffic {
    /// Reads and other requests per second.
    pub(super) fn requests(self) -> u64 {
        self.reads + self.writes
    }

    /// Bytes read and written per second.
    pub(super) fn bytes(self) -> u64 {
        self.bytes_read.saturating_add(self.bytes_written)
    }
}

impl Latency {
    /// Latency of the reads and writes that were answered between two statuses of a member or
    /// volume; `None` if there were none, or the member is in memory and has no histogram.
    pub(super) fn between(before: &[AnsweredStatus], after: &[AnsweredStatus]) -> Option<Self> {
        let (mut count, mut sum_us) = (0, 0);
        let mut below = [0; AnsweredStatus::BOUNDS as usize];
        let is_io = |it: &&AnsweredStatus| matches!(it.kind.as_str(), "read" | "write");
        for now in after.iter().filter(is_io) {
            let then = before.iter().find(|it| it.kind == now.kind);
            let since = |field: fn(&AnsweredStatus) -> u64| {
                field(now).saturating_sub(then.map_or(0, field))
            };
            count += since(|it| it.count);
            sum_us += since(|it| it.sum_us);
            for (place, sum) in below.iter_mut().enumerate() {
                let at = |it: &AnsweredStatus| it.below.get(place).copied().unwrap_or_default();
                *sum += at(now).saturating_sub(then.map_or(0, at));
            }
        }
        let mean_us = sum_us.checked_div(count)?;
        let least = count - count / 100;
        let place = (0..).zip(below).find(|(_, answered)| *answered >= least);
        Some(Self { mean_us, p99_below_us: place.map(|(place, _): (u32, u64)| 2 << place) })
    }
}

/// Number of requests that a member has failed since the start of the server.
pub(super) fn errors(member: &MemberStatus) -> u64 {
    member.answered.iter().map(|it| it.errors).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_of_one_process_and_rounded() {
        let at = |pid, uptime_ms| Status { pid, uptime_ms, ..Status::default() };
        let of = |after| Interval::between(&at(7, 1000), &after);
        assert_eq!(of(at(7, 3000)), Some(Interval(2000)));
        // Another process, which began after the other one; and a status that is no later.
        assert_eq!(of(at(8, 3000)), None);
        assert_eq!(of(at(7, 1000)), None);
        assert_eq!(of(at(7, 900)), None);
        for (span, counted, expected) in [(2000, 3, 2), (2000, 2, 1), (500, 3, 6), (1000, 0, 0)] {
            assert_eq!(Interval(span).rate(10, 10 + counted), expected, "{counted} in {span} ms");
        }
        assert_eq!(Interval(1000).rate(10, 9), 0, "a counter that fell");
    }

    /// Reads by the power of two below which their latencies are: `(power, number)`.
    fn reads(answered: &[(usize, u64)]) -> [AnsweredStatus; 2] {
        let all = AnsweredStatus::BOUNDS as usize;
        let below = (1..=all).map(|power| {
            answered.iter().filter(|(of, _)| *of <= power).map(|(_, number)| number).sum()
        });
        let count = answered.iter().map(|(_, number)| number).sum();
        let read = AnsweredStatus {
            kind: "read".into(),
            count,
            sum_us: answered.iter().map(|(power, number)| number << (power - 1)).sum(),
            below: below.collect(),
            ..AnsweredStatus::default()
        };
        let flush = AnsweredStatus { kind: "flush".into(), count, ..AnsweredStatus::default() };
        [read, flush]
    }

    #[test]
    fn latencies_are_of_the_requests_between_two_statuses() {
        let before = reads(&[(20, 50)]);
        let of = |answered: &[(usize, u64)]| {
            Latency::between(&before, &reads(&[&[(20, 50)], answered].concat()))
        };
        assert_eq!(of(&[]), None);
        // 99 of 100 stayed below 2^8; with one of these less, 99 % did not.
        let fast = Latency { mean_us: (99 * 128 + 2048) / 100, p99_below_us: Some(256) };
        assert_eq!(of(&[(8, 99), (12, 1)]), Some(fast));
        assert_eq!(of(&[(8, 98), (12, 2)]).unwrap().p99_below_us, Some(4096));
        assert_eq!(of(&[(40, 1)]).unwrap().p99_below_us, None, "beyond the last bound");
    }

    #[test]
    fn a_new_account_began_with_nothing() {
        let share = |client, reads| ShareStatus {
            who: "client".into(),
            client: Some(client),
            reads,
            ..ShareStatus::default()
        };
        let before = VolumeStatus { shares: vec![share(1, 100)], ..VolumeStatus::default() };
        let reads = |after| Interval(1000).account(&before, &after).reads;
        assert_eq!((reads(share(1, 130)), reads(share(2, 30))), (30, 30));
    }
}
