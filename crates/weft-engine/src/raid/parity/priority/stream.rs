//! Weft's own rule of stripe priority: each stripe waits for as long as waiting pays off.
//!
//! With threshold 0 of patch 000, held stripes wait until no full-stripe write is in flight: beside
//! a stream, for as long as the stream lasts. Under this rule they wait for the same moment, but
//! for a limited time. A stripe that a stream will fill (`raid/parity/streams.rs`) waits up to
//! `preread_wait_max`. A stripe that no stream will fill waits as long as 16 prereads take, as
//! measured: some 0.3 s on rotating disks, some ms on solid-state drives. A stripe that a stream
//! will fill also waits through moments in which no full-stripe write is in flight, whereas all
//! other rules would preread it then.
//!
//! Delayed stripes wait on a list of their own (`cache/wait.rs`) until their time has come. Then
//! they move to the hold list, and are handled first.

use weft_units::{Span, StripeId, Time};

use super::md::first_come;
use super::{Pick, Priority, Ready};

impl Priority {
    /// Picks a held stripe first, because it has waited for as long as waiting pays off. Held
    /// stripes are handled together, so that disks leave their current position once for all of
    /// them, but after [`HELD_TOGETHER`] of them a ready stripe is picked.
    pub(super) fn pick_waited(&mut self, ready: Option<Ready>, held: Option<StripeId>) -> Pick {
        if held.is_some() && (ready.is_none() || self.bypass_count < HELD_TOGETHER) {
            self.bypass_count += 1;
            return Pick::Held;
        }
        self.bypass_count = 0;
        first_come(ready, held)
    }
}

/// Time limit on the wait of a stripe to be filled, by weft's own rule.
///
/// While full-stripe writes are in flight a preread takes the disk arms away from them, so every
/// stripe waits. While none is in flight, only a stripe that a stream will fill waits, for as long
/// as a preread would take. Waiting that long and then reading takes at most twice the time of the
/// read, even if the stream never fills the stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// A stream will fill the stripe.
    Streams {
        /// Longest wait while no full-stripe write is in flight, counted from when the stream was
        /// last seen or the last full-stripe write ended, whichever is later.
        idle: Span,
        /// Time at which the stream was last seen.
        moved: Time,
        /// Latest end of the wait.
        until: Time,
    },
    /// No known stream will fill the stripe: it waits only while full-stripe writes are in flight.
    Alone {
        /// Latest end of the wait.
        until: Time,
    },
}

impl Patience {
    /// Time limit for a stripe that has lacked strips since `since`. `moved` is the time at which
    /// the stream that will fill it was last seen; `None` if no stream will. `preread` is the
    /// measured duration of prereads. While that is unknown, a stripe waits for full-stripe writes
    /// up to `wait_max`: with a short guess, rotating disks would preread amid their first
    /// full-stripe writes.
    #[must_use]
    pub(crate) fn new(
        since: Time,
        moved: Option<Time>,
        preread: Option<Span>,
        wait_max: Span,
    ) -> Self {
        let end = since + wait_max;
        match moved {
            Some(moved) => {
                let idle = preread.unwrap_or(IDLE_GUESS).clamp(IDLE_MIN, IDLE_MAX);
                Self::Streams { idle, moved, until: end }
            }
            None => {
                let share = |preread: Span| Span(preread.0.saturating_mul(ALONE_PREREADS));
                let until = preread.map_or(end, |preread| (since + share(preread)).min(end));
                Self::Alone { until }
            }
        }
    }

    /// End of the wait, provided that no full-stripe write begins or ends before. `idle_since` is
    /// the time at which the last full-stripe write ended; `None` while one is in flight.
    #[must_use]
    pub(crate) fn until(&self, idle_since: Option<Time>) -> Time {
        match (*self, idle_since) {
            (Self::Alone { .. }, Some(idle_since)) => idle_since,
            (Self::Streams { idle, moved, until }, Some(since)) => {
                (moved.max(since) + idle).min(until)
            }
            (Self::Alone { until } | Self::Streams { until, .. }, None) => until,
        }
    }
}

/// Longest time that a stripe waits to be filled, under any rule, once a client request waits for
/// its data: the client that would fill the stripe may itself be blocked behind that request. The
/// time is that of four prereads, as measured or guessed, but at least 2 ms and at most 20 ms.
#[must_use]
pub(crate) fn patience_for_others(preread: Option<Span>) -> Span {
    let few = Span(preread.unwrap_or(IDLE_GUESS).0.saturating_mul(4));
    few.clamp(Span::millis(2), IDLE_MAX)
}

/// Number of held stripes that are picked in a row before a ready stripe is picked.
const HELD_TOGETHER: u32 = 64;

/// Longest wait of a stripe that no stream will fill, as a multiple of the duration of a preread.
/// Such stripes take disk time from full-stripe writes, but seldom.
const ALONE_PREREADS: u64 = 16;

/// Bounds of the wait for a stream while disks are idle: the read times of a solid-state drive
/// under load and of a rotating disk.
const IDLE_MIN: Span = Span(500_000);
const IDLE_MAX: Span = Span::millis(20);
const IDLE_GUESS: Span = Span::millis(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knobs::PriorityRule;
    use crate::raid::parity::priority::rule;

    fn at(micros: u64) -> Time {
        Time(micros * 1000)
    }

    #[test]
    fn a_stripe_waits_for_as_long_as_it_pays() {
        let (since, wait_max) = (at(1_000_000), Span::secs(1));
        let until = |moved, preread, idle_since| {
            Patience::new(since, moved, Some(Span(preread)), wait_max).until(idle_since)
        };
        const MS: u64 = 1_000_000;
        // A stripe that no stream will fill waits for 16 prereads, or until no full-stripe write is
        // in flight.
        assert_eq!(until(None, 10 * MS, None), at(1_160_000));
        assert_eq!(until(None, 100 * MS, None), at(2_000_000), "but not longer than is allowed");
        assert_eq!(until(None, u64::MAX, None), at(2_000_000));
        assert_eq!(until(None, 10 * MS, Some(at(1_005_000))), at(1_005_000));
        // A stripe that a stream will fill waits up to the bound, or for one preread after the
        // stream was last seen or the last full-stripe write ended.
        let moved = Some(at(1_030_000));
        assert_eq!(until(moved, 10 * MS, None), at(2_000_000));
        assert_eq!(until(moved, 10 * MS, Some(at(1_005_000))), at(1_040_000));
        assert_eq!(until(moved, 10 * MS, Some(at(1_050_000))), at(1_060_000));
        assert_eq!(until(moved, 0, Some(at(0))), at(1_030_500), "reading takes some time");
        assert_eq!(until(moved, 500 * MS, Some(at(0))), at(1_050_000), "within reason");
        assert_eq!(until(Some(at(1_995_000)), 10 * MS, Some(at(0))), at(2_000_000));
        // No preread has been measured yet.
        let unknown = |moved| Patience::new(since, moved, None, wait_max);
        assert_eq!(unknown(None).until(None), at(2_000_000));
        assert_eq!(unknown(moved).until(Some(at(0))), at(1_031_000));
    }

    #[test]
    fn stripes_that_have_waited_go_together_but_not_without_end() {
        let stream = rule(PriorityRule::Stream, 1);
        let (waited, another) = (StripeId(11), StripeId(1));
        let ready = Some(Ready { stripe: another, io_started: false });
        let mut policy = Priority::default();
        let mut pick = |ready, held| policy.pick(&stream, ready, held, 9);
        for _ in 0..3 {
            let together = (0..1000).take_while(|_| pick(ready, Some(waited)) == Pick::Held);
            assert_eq!(together.count(), HELD_TOGETHER as usize);
        }
        assert_eq!(pick(None, Some(waited)), Pick::Held);
        assert_eq!(pick(ready, None), Pick::Ready);
        assert_eq!(pick(None, None), Pick::Nothing);
    }
}
