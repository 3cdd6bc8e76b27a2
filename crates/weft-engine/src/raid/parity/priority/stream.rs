//! Weft's own rule of stripe priority: each stripe waits for as long as it pays.
//!
//! With threshold 0 of patch 000 held stripes wait until no full-stripe write is in flight, beside
//! a stream for as long as it lasts. Here they wait for the same, but a stripe that a stream will
//! fill (`raid/parity/streams.rs`) up to `preread_wait_max`, and one that no stream will fill as
//! long as 16 prereads take, which is measured: some 0.3 s on disks that turn, some ms on
//! solid-state drives. And a stripe that a stream will fill does not go in a moment in which the
//! pipeline is empty, which all other rules allow.
//!
//! Delayed stripes wait on a list of their own (`cache/wait.rs`) until their time has come; then
//! they are held, and go first.

use weft_units::{Span, StripeId, Time};

use super::md::first_come;
use super::{Pick, Priority, Ready};

impl Priority {
    /// Held stripes have waited for as long as it pays. They go together and first, so that disks
    /// leave what they are at once for all of them; but not without end.
    pub(super) fn pick_waited(&mut self, ready: Option<Ready>, held: Option<StripeId>) -> Pick {
        if held.is_some() && (ready.is_none() || self.bypass_count < HELD_TOGETHER) {
            self.bypass_count += 1;
            return Pick::Held;
        }
        self.bypass_count = 0;
        first_come(ready, held)
    }
}

/// Wait of a stripe by weft's own rule.
///
/// While full-stripe writes are in flight a preread takes the arms of the disks away from them, so
/// every stripe waits; while none are, only a stripe that a stream will fill does, for as long as
/// reading would take: who waits that long and reads then has lost twice the time at most, whatever
/// the stream does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// A stream will fill it.
    Streams {
        /// While no full-stripe write is in flight: as long after the stream was seen last, and
        /// after the last of them ended.
        idle: Span,
        /// Time at which the stream was seen last.
        moved: Time,
        /// At any rate.
        until: Time,
    },
    /// No stream is known that will: it waits for full-stripe writes only.
    Alone {
        /// At any rate.
        until: Time,
    },
}

impl Patience {
    /// Of a stripe that lacks strips since then. `moved` is when the stream was last seen that will
    /// fill it, if there is one; `preread` is how long prereads take. While that is not known a
    /// stripe waits for full-stripe writes as long as it may: by a short guess disks that turn read
    /// in the midst of their first filled stripes.
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

    /// End of the wait, if it is known now. `idle_since` is when the last full-stripe write ended,
    /// with none in flight since.
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

/// Longest wait of a stripe to be filled, by whatever rule, when a request waits for what it has
/// been given: who is to fill it may wait behind that one. As long as a few prereads take, which
/// was measured or is guessed.
#[must_use]
pub(crate) fn patience_for_others(preread: Option<Span>) -> Span {
    let few = Span(preread.unwrap_or(IDLE_GUESS).0.saturating_mul(4));
    few.clamp(Span::millis(2), IDLE_MAX)
}

/// Held stripes that have waited and go before a ready one.
const HELD_TOGETHER: u32 = 64;

/// Wait for full-stripe writes, in prereads, of a stripe that no stream will fill: it and
/// those that go with it take a part of the disks' time from them, and none of it often.
const ALONE_PREREADS: u64 = 16;

/// Bounds of how long a stripe waits for a stream while disks are idle: what a solid-state drive
/// takes to read under load, and what a disk takes that turns.
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
        // Nobody will fill it: 16 prereads, or until no filled stripe is written.
        assert_eq!(until(None, 10 * MS, None), at(1_160_000));
        assert_eq!(until(None, 100 * MS, None), at(2_000_000), "but not longer than is allowed");
        assert_eq!(until(None, u64::MAX, None), at(2_000_000));
        assert_eq!(until(None, 10 * MS, Some(at(1_005_000))), at(1_005_000));
        // A stream will: as long as is allowed, or a preread longer than anything moves.
        let moved = Some(at(1_030_000));
        assert_eq!(until(moved, 10 * MS, None), at(2_000_000));
        assert_eq!(until(moved, 10 * MS, Some(at(1_005_000))), at(1_040_000));
        assert_eq!(until(moved, 10 * MS, Some(at(1_050_000))), at(1_060_000));
        assert_eq!(until(moved, 0, Some(at(0))), at(1_030_500), "reading takes some time");
        assert_eq!(until(moved, 500 * MS, Some(at(0))), at(1_050_000), "within reason");
        assert_eq!(until(Some(at(1_995_000)), 10 * MS, Some(at(0))), at(2_000_000));
        // Nothing was read yet.
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
