//! Pace of a sync: how fast it runs, and how much of the members' time it leaves to clients.
//!
//! A sync proceeds in steps of 128 KiB, because md checks its speed after each of them. A step may
//! begin when the ceiling permits it, and
//!
//! - no client has sent a request for 100 ms, or
//! - the sync is behind its floor, or
//! - with `sync_pace=md`, everything that the sync asked for before is done, or
//! - with `sync_pace=idle`, everything that the sync asked for before is done, no client waits
//!   for an answer, and none has waited for as long as the last step took.
//!
//! The third rule is md's since Linux 4.1: beside clients a sync has one step in flight at a time.
//! On a member with a queue that is a considerable part of its throughput, regardless of the floor.
//! With `sync_pace=idle`, the sync gets its floor beside clients that always have a request
//! waiting, it gets the pauses of other clients, and it gets the whole throughput when no client is
//! active. A client with short pauses (one request at a time, each after the answer to the last)
//! does not meet a step in each pause: a step begins only after a pause of its own length. In
//! pauses the sync uses the idle class, so that a scheduler serves an arriving client first, until
//! the sync is behind its floor.
//!
//! Measured  reads of four clients beside a check, floor 2 MB/s, simulated SSDs: 99th percentile
//!           0.27 ms against 0.92 ms at md's pace (`weft-sim/tests/shares.rs`)
//!
//! The floor and the ceiling are buckets of bytes that fill with time. The bucket of the floor
//! holds the bytes of 200 ms, that of the ceiling those of one second.
//!
//! Knobs    `sync_speed_min`, `sync_speed_max`, `sync_pace`
//! Source   md's `md_do_sync` and `is_mddev_idle` as `Documentation/admin-guide/md.rst` describes
//!          them; the floor of 200 ms is that of BFQ's idle class (io-schedulers.md §5.3)

use weft_units::{Bytes, Span, Time};

use crate::contract::input::Class;
use crate::knobs::{Knobs, SyncPace};

#[derive(Clone, Debug)]
pub(crate) struct Pace {
    kind: SyncPace,
    /// Floor and ceiling of the sync's speed, in bytes per second.
    min: u64,
    max: u64,
    /// Time of the last call of [`Pace::look`], which updates the pace.
    at: Time,
    /// Number of bytes that the sync may still move to reach its floor, in bytes × nanoseconds per
    /// second. It grows with time up to a limit.
    floor: u128,
    /// Number of bytes that the sync may still move before it exceeds its ceiling, in the unit of
    /// `floor`. It grows with time up to a limit.
    ceiling: u128,
    /// Number of bytes left in the current step, which is [`STEP_BYTES`] of the sync.
    left: u64,
    /// Number of client requests at the last call of [`Pace::look`].
    requests: u64,
    /// Time of the last call of [`Pace::look`] that found new client requests, or a client that
    /// waits; `None` if there was no such call.
    client_at: Option<Time>,
    client_waits: bool,
    /// Start of the current step; `None` if no client is active, or if the step is over.
    step_began: Option<Time>,
    /// Duration of the last finished step.
    step_took: Span,
    /// Number of bytes that the sync has begun to transfer.
    asked: u64,
    /// Times at which the last two periods of [`SPEED_PERIOD`] began, with `asked` at each.
    marks: [(Time, u64); 2],
}

impl Pace {
    pub(crate) fn new(knobs: &Knobs, now: Time) -> Self {
        let mut pace = Self {
            kind: knobs.sync_pace,
            min: 0,
            max: 0,
            at: now,
            floor: STEP,
            ceiling: u128::MAX,
            left: 0,
            requests: u64::MAX,
            client_at: None,
            client_waits: false,
            step_began: None,
            step_took: IDLE_AFTER,
            asked: 0,
            marks: [(now, 0); 2],
        };
        pace.set(knobs);
        pace
    }

    fn set(&mut self, knobs: &Knobs) {
        self.kind = knobs.sync_pace;
        (self.min, self.max) = (knobs.sync_speed_min.0, knobs.sync_speed_max.0.max(1));
    }

    /// Updates the pace for time `now`. `requests` is the number of client requests so far, and
    /// `client_waits` tells whether a client waits for an answer. `has_all` is true if every unit
    /// that the sync asked for is done.
    pub(crate) fn look(
        &mut self,
        now: Time,
        knobs: &Knobs,
        requests: u64,
        client_waits: bool,
        has_all: bool,
    ) {
        self.set(knobs);
        if has_all && let Some(began) = self.step_began.take() {
            self.step_took = now.since(began).max(PAUSE_MIN).min(IDLE_AFTER);
        }
        let elapsed = u128::from(now.since(self.at).0);
        self.at = now;
        if now >= self.marks[1].0 + SPEED_PERIOD {
            self.marks = [self.marks[1], (now, self.asked)];
        }
        let bucket = |rate: u64, span: u128| (u128::from(rate) * span).max(STEP);
        let filled = self.floor + u128::from(self.min) * elapsed;
        self.floor = filled.min(bucket(self.min, SECOND / 5));
        let filled = self.ceiling.saturating_add(u128::from(self.max) * elapsed);
        self.ceiling = filled.min(bucket(self.max, SECOND));
        let known = self.requests != u64::MAX;
        if client_waits || (known && self.requests != requests) {
            self.client_at = Some(now);
        }
        (self.requests, self.client_waits) = (requests, client_waits);
    }

    /// Whether a client had sent a request within 100 ms before the last call of [`Pace::look`], or
    /// waited for an answer.
    pub(crate) fn is_busy(&self) -> bool {
        self.client_waits || self.client_at.is_some_and(|at| self.at < at + IDLE_AFTER)
    }

    /// Whether the sync is behind its floor (`sync_speed_min`).
    pub(crate) fn is_behind(&self) -> bool {
        self.floor >= STEP
    }

    /// Speed of the sync in bytes per second, over the current period of [`SPEED_PERIOD`] and the
    /// period before it; `None` at the time of the start.
    pub(crate) fn speed(&self) -> Option<Bytes> {
        let (since, before) = self.marks[0];
        let (took, moved) = (self.at.since(since).0, self.asked - before);
        let speed = (u128::from(moved) * SECOND).checked_div(u128::from(took))?;
        Some(Bytes(u64::try_from(speed).unwrap_or(u64::MAX)))
    }

    /// I/O class for the member requests of the sync.
    pub(crate) fn class(&self) -> Class {
        match self.kind {
            SyncPace::Idle if self.is_busy() && self.is_behind() => Class::None,
            SyncPace::Idle => Class::Idle,
            SyncPace::Md => Class::None,
        }
    }

    /// Whether the sync may ask for more units now. `has_all` is true if every unit that it asked
    /// for is done.
    pub(crate) fn allows(&self, has_all: bool) -> bool {
        let drained = match self.kind {
            SyncPace::Md => has_all,
            SyncPace::Idle => {
                let quiet_at = self.quiet_at(self.step_took, self.client_waits);
                has_all && quiet_at.is_some_and(|at| at <= self.at)
            }
        };
        let due = !self.is_busy() || self.is_behind() || drained;
        self.left > 0 || (due && self.ceiling >= STEP)
    }

    /// Time at which clients will have been without a request for `pause`, if none arrives before;
    /// `None` while a client waits for an answer, and if no client has been active.
    fn quiet_at(&self, pause: Span, client_waits: bool) -> Option<Time> {
        self.client_at.filter(|_| !client_waits).map(|at| at + pause)
    }

    /// Counts bytes that the sync has begun to transfer against its floor, its ceiling and the
    /// current step.
    pub(crate) fn asked(&mut self, bytes: Bytes) {
        if self.left == 0 {
            self.left = STEP_BYTES;
        }
        // While no client is active, steps follow each other without a measured end.
        self.step_began = self.is_busy().then(|| self.step_began.unwrap_or(self.at));
        let moved = u128::from(bytes.0) * SECOND;
        self.asked += bytes.0;
        self.left = self.left.saturating_sub(bytes.0);
        self.floor = self.floor.saturating_sub(moved);
        self.ceiling = self.ceiling.saturating_sub(moved);
    }

    /// Time at which the sync may continue by itself; `None` if it may continue now, or only after
    /// an event. `client_waits` tells whether a client waits for an answer now. The value of the
    /// last call of [`Pace::look`] may be out of date: the last waiting client may have got its
    /// answer since then, and no further event may follow.
    pub(crate) fn wake(&self, has_all: bool, client_waits: bool) -> Option<Time> {
        if self.allows(has_all) {
            return None;
        }
        let filled = |has: u128, rate: u64| {
            let missing = STEP.saturating_sub(has);
            (rate > 0).then(|| self.at + Span(missing.div_ceil(u128::from(rate.max(1))) as u64))
        };
        let steps = has_all && self.kind == SyncPace::Idle;
        let idle = self.quiet_at(if steps { self.step_took } else { IDLE_AFTER }, client_waits);
        let behind = filled(self.floor, self.min).filter(|_| !self.is_behind());
        let due = idle.into_iter().chain(behind).min().filter(|_| self.is_busy());
        let due = if self.is_behind() { None } else { due };
        let below = filled(self.ceiling, self.max).filter(|_| self.ceiling < STEP);
        match (due, below) {
            (Some(due), Some(below)) => Some(due.max(below)),
            (due, below) => due.or(below),
        }
    }
}

const SECOND: u128 = 1_000_000_000;

/// Number of bytes after which md checks the speed of a sync (32 pages).
const STEP_BYTES: u64 = 128 << 10;
const STEP: u128 = STEP_BYTES as u128 * SECOND;

/// Time without a client request after which clients count as idle.
const IDLE_AFTER: Span = Span::millis(100);

/// Length of a period for which the speed of a sync is measured. md takes a mark every 3 s, and
/// measures the speed over ten marks.
const SPEED_PERIOD: Span = Span::secs(10);

/// Shortest pause of clients in which a step may begin.
const PAUSE_MIN: Span = Span::millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    const STRIPE: Bytes = Bytes(4096);

    #[test]
    fn the_speed_is_that_of_the_last_two_periods() {
        let knobs = Knobs::default();
        let mut pace = Pace::new(&knobs, Time(0));
        assert_eq!(pace.speed(), None);
        // One stripe a second for 30 s, then two.
        for second in 1..=60 {
            (0..if second <= 30 { 1 } else { 2 }).for_each(|_| pace.asked(STRIPE));
            pace.look(Time(second * 1_000_000_000), &knobs, 0, false, true);
            match second {
                5 | 25 => assert_eq!(pace.speed(), Some(Bytes(4096)), "{second}"),
                60 => assert_eq!(pace.speed(), Some(Bytes(8192))),
                _ => {}
            }
        }
    }

    /// Bytes that a sync transfers in ten seconds with a call of [`Pace::look`] each millisecond.
    /// The requests of the sync are done `lag` calls later. A client sends a request in each
    /// millisecond for which `works` returns true.
    fn moves(knobs: &Knobs, works: impl Fn(u64) -> bool, lag: u64) -> u64 {
        let mut pace = Pace::new(knobs, Time(0));
        let (mut moved, mut requests, mut done_at) = (0, 0, 0);
        pace.look(Time(0), knobs, 0, false, true);
        for millis in 0..10_000 {
            requests += u64::from(works(millis));
            pace.look(Time(millis * 1_000_000), knobs, requests, false, millis >= done_at);
            let mut asked = 0;
            while asked < 64 && pace.allows(asked == 0 && millis >= done_at) {
                pace.asked(STRIPE);
                asked += 1;
                done_at = millis + lag;
            }
            if let Some(wake) = pace.wake(asked == 0 && millis >= done_at, false) {
                assert!(wake > pace.at, "the next permitted time lies ahead");
            }
            moved += asked * STRIPE.0;
        }
        moved
    }

    fn knobs(kind: SyncPace, min: u64, max: u64) -> Knobs {
        let (sync_speed_min, sync_speed_max) = (Bytes::kib(min), Bytes::kib(max));
        Knobs { sync_pace: kind, sync_speed_min, sync_speed_max, ..Knobs::md() }
    }

    #[test]
    fn beside_clients_it_has_its_floor_within_a_tenth_and_all_when_they_rest() {
        for min in [1000, 8000] {
            let busy = moves(&knobs(SyncPace::Idle, min, 200_000), |_| true, 1);
            let floor = min * 1024 * 10;
            assert!(busy.abs_diff(floor) <= floor / 10, "{min}: {busy} of {floor}");
        }
        let alone = moves(&knobs(SyncPace::Idle, 1000, 2_000_000), |_| false, 1);
        assert_eq!(alone, 10_000 * 64 * 4096, "every look, all that fits");
        let half = moves(&knobs(SyncPace::Idle, 1000, 2_000_000), |millis| millis < 5000, 1);
        assert!(half > alone * 48 / 100 && half < alone * 52 / 100, "{half} of {alone}");
    }

    /// A client sends a request every 20 ms. Steps of 2 ms use all the time between two requests,
    /// except for a pause of a step's length after each request. Pauses shorter than a step are not
    /// used.
    #[test]
    fn the_pauses_of_clients_are_used_when_they_are_longer_than_a_step() {
        let (idle, md) = (knobs(SyncPace::Idle, 1000, 200_000), knobs(SyncPace::Md, 1000, 200_000));
        let works = |millis: u64| millis.is_multiple_of(20);
        let (in_pauses, of_md) = (moves(&idle, works, 2), moves(&md, works, 2));
        assert!(in_pauses * 100 > of_md * 80, "{in_pauses} of md's {of_md}");
        assert!(in_pauses * 100 < of_md * 98, "{in_pauses} of md's {of_md}");
        let floor = 1000 * 1024 * 10;
        for lag in [20, 30, 200] {
            let short = moves(&idle, works, lag);
            assert!(short.abs_diff(floor) <= floor / 10, "{lag} ms a step: {short} of {floor}");
        }
    }

    #[test]
    fn it_never_goes_beyond_its_ceiling_for_long() {
        for kind in [SyncPace::Idle, SyncPace::Md] {
            let moved = moves(&knobs(kind, 1000, 20_000), |_| false, 1);
            let ceiling = 20_000 * 1024 * 11;
            assert!(moved <= ceiling && moved > ceiling * 9 / 10, "{moved} of {ceiling}");
        }
    }

    /// Linux since 4.1: while clients are active, a sync has one step in flight at a time, even if
    /// it is then far above its floor.
    #[test]
    fn md_s_pace_beside_clients_is_a_step_at_a_time_or_the_floor() {
        let step = |lag| moves(&knobs(SyncPace::Md, 1000, 200_000), |_| true, lag);
        let expected = |lag: u64| 10_000 / lag * STEP_BYTES;
        assert!(step(4).abs_diff(expected(4)) < expected(4) / 10, "{}", step(4));
        assert!(step(20).abs_diff(expected(20)) < expected(20) / 3, "{}", step(20));
        let floor = moves(&knobs(SyncPace::Md, 50_000, 200_000), |_| true, 20);
        assert!(floor > 45_000 * 1024 * 10, "{floor}");
    }

    #[test]
    fn a_sync_without_a_floor_wakes_once_the_last_client_has_its_answer() {
        for kind in [SyncPace::Idle, SyncPace::Md] {
            let slow = knobs(kind, 0, 200_000);
            let mut pace = Pace::new(&slow, Time(0));
            pace.look(Time(0), &slow, 7, false, true);
            pace.asked(Bytes(STEP_BYTES));
            pace.look(Time(1000), &slow, 8, true, false);
            assert_eq!(pace.wake(false, true), None, "an event will follow");
            assert_eq!(pace.wake(false, false), Some(Time(1000) + IDLE_AFTER), "none will");
        }
    }

    #[test]
    fn what_it_asks_for_is_of_the_idle_class_until_a_client_comes() {
        let of_idle = knobs(SyncPace::Idle, 1000, 200_000);
        let mut pace = Pace::new(&of_idle, Time(0));
        pace.look(Time(0), &of_idle, 7, false, true);
        assert_eq!((pace.is_busy(), pace.class()), (false, Class::Idle), "old ones do not count");
        pace.look(Time(1000), &of_idle, 8, false, true);
        assert_eq!((pace.is_busy(), pace.class()), (true, Class::None));
        pace.look(Time(1000) + IDLE_AFTER, &of_idle, 8, false, true);
        assert_eq!(pace.class(), Class::Idle);
        pace.look(Time(2000) + IDLE_AFTER, &of_idle, 8, true, true);
        assert!(pace.is_busy(), "a client waits");
        let md = knobs(SyncPace::Md, 1000, 200_000);
        assert_eq!(Pace::new(&md, Time(0)).class(), Class::None);
    }
}
