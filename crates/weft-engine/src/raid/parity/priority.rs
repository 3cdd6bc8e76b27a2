//! Stripe priority: which stripe is handled next, and how long a delayed one waits.
//!
//! Some stripes are ready to be written; others are held back because they still need a preread,
//! and waiting gives them a chance to be filled by later writes, after which they need none. Ready
//! stripes always go first. How often a held stripe was bypassed decides only this: with nothing
//! ready, may it go while full-stripe writes are in flight?
//!
//! Before it is held a stripe is delayed. When all delayed stripes become held ones is a choice of
//! its own: [`Activation`].
//!
//! Whatever the rule, no stripe waits longer than `preread_wait_max`: then it is ready, in its turn
//! (`cache/wait.rs`). md has no such bound, and keeps a stripe waiting for as long as others are
//! preread, or, with threshold 0, for as long as filled stripes are written.
//!
//! Weft's own rule ([`Variant::Stream`]) asks of each stripe what its waiting is worth
//! ([`Patience`]). With threshold 0 held stripes wait until no full-stripe write is in flight,
//! beside a stream for as long as it lasts. Here they wait for the same, but a stripe that a stream
//! will fill (`raid/parity/streams.rs`) up to `preread_wait_max`, and one that no stream will fill
//! as long as 16 prereads take, which is measured: some 0.3 s on disks that turn, some ms on
//! solid-state drives. And a stripe that a stream will fill does not go in a moment in which the
//! pipeline is empty, which all other rules allow.
//!
//! Inputs   heads of the ready and held lists, full-stripe writes in flight; of weft's own: since
//!          when a stripe lacks strips, when the stream was last seen that will bring them, how
//!          long prereads take
//! Answer   [`Pick`], [`Patience`]
//! Knobs    `priority`, `preread_bypass_threshold` (stripes, 0..=stripe_cache_size, default 1),
//!          `activation`, `preread_wait_max` (seconds, default 1; md: none)
//! Source   md-raid.md §1.6; Linux "md: introduce get_priority_stripe() to improve raid456 write
//!          performance", 2008 (published: dd +33 %, tiobench +13 %, with threshold 0 +37 %)
//! Compare  [`Variant::Fifo`] is the behaviour before the change, [`Activation::AtUnplug`] what was
//!          around both in 2008 (md-raid.md §1.10)
//! Measured as exact sequences (statements 21 to 25 and 42). Weft's own on four simulated disks of
//! 2007 against
//!          threshold 0, with the plug of 2008 (experiments/000.md): dd the same; tiobench with 1
//!          to 8 threads 0 % (±0.3), 99.9 % of prereads within 0.35 s and not 4.9 s. dd beside
//!          eight writers of single blocks loses: -28 %, both together are done 7 % later, because
//!          a held stripe goes after 1.0 s and not after 9.4 s, when dd is done. Most of that is
//!          the disk, which with a full cache of its own lets a read wait for up to 2 s and loses a
//!          turn with each sub-request that it writes meanwhile; if it let none wait for more than
//!          0.2 s, dd would lose 15 % and both be done 5 % sooner. Solid-state drives: dd and
//!          tiobench the same or 1 % more, dd beside the writers -1 %, both done 12 % sooner,
//!          within 23 ms and not 1.6 s

use weft_units::{Span, StripeId, Time};

use crate::knobs::{Activation, Knobs, PriorityRule, Writes};

/// The behaviours that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variant {
    /// Held stripes wait for full-stripe writes unless they were bypassed more than `threshold`
    /// times.
    Bypass {
        /// Zero: they always wait.
        threshold: u32,
    },
    /// As before the patch: none are held, stripes that may preread queue up behind those that are
    /// ready.
    Fifo,
    /// Weft's own: each stripe waits for as long as it pays, see [`Patience`].
    Stream {
        /// At most.
        wait_max: Span,
    },
}

impl Variant {
    /// The rule that the knobs name.
    pub(crate) fn of(knobs: &Knobs) -> Self {
        match knobs.priority {
            PriorityRule::Bypass => {
                let threshold = knobs.preread_bypass_threshold;
                // What is held then belongs to a stream, which fills it as a rule.
                let patient = knobs.stripe_size.is_auto() && threshold > 0;
                let threshold = if patient { threshold.max(AUTO_THRESHOLD) } else { threshold };
                Self::Bypass { threshold }
            }
            PriorityRule::Fifo => Self::Fifo,
            PriorityRule::Stream => Self::Stream { wait_max: knobs.preread_wait_max },
        }
    }
}

/// A stripe that is ready to be handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The stripe.
    pub stripe: StripeId,
    /// Whether member I/O was ever submitted for it. Passing such a stripe costs a held one
    /// nothing.
    pub io_started: bool,
}

/// The decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// The head of the held list.
    Held,
    /// None yet: held stripes wait for full-stripe writes to finish.
    Nothing,
    /// The head of the ready list.
    Ready,
}

/// How often the head of the held list was bypassed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Priority {
    bypass_count: u32,
    last_held: Option<StripeId>,
}

impl Priority {
    /// Decides; changes only its own counters.
    pub fn pick(
        &mut self,
        variant: Variant,
        ready: Option<Ready>,
        held: Option<StripeId>,
        full_stripe_writes: u32,
    ) -> Pick {
        let threshold = match variant {
            Variant::Bypass { threshold } => threshold,
            Variant::Fifo => return first_come(ready, held),
            Variant::Stream { .. } => return self.pick_waited(ready, held),
        };
        match (ready, held) {
            (Some(_), None) => {
                self.bypass_count = 0;
                Pick::Ready
            }
            (Some(ready), Some(held)) => {
                if ready.io_started {
                    // It holds a place already; the held stripe loses nothing by it.
                } else if self.last_held == Some(held) {
                    self.bypass_count += 1;
                } else {
                    // The head has changed: a stripe was promoted off it by a new write.
                    self.last_held = Some(held);
                    self.bypass_count = self.bypass_count.saturating_sub(threshold);
                }
                Pick::Ready
            }
            (None, Some(_)) => {
                let patience_over = threshold != 0 && self.bypass_count > threshold;
                if patience_over || full_stripe_writes == 0 {
                    self.bypass_count = self.bypass_count.saturating_sub(threshold);
                    Pick::Held
                } else {
                    Pick::Nothing
                }
            }
            (None, None) => Pick::Nothing,
        }
    }

    /// Held stripes have waited for as long as it pays. They go together and first, so that disks
    /// leave what they are at once for all of them; but not without end.
    fn pick_waited(&mut self, ready: Option<Ready>, held: Option<StripeId>) -> Pick {
        if held.is_some() && (ready.is_none() || self.bypass_count < HELD_TOGETHER) {
            self.bypass_count += 1;
            return Pick::Held;
        }
        self.bypass_count = 0;
        first_come(ready, held)
    }

    /// How often the head of the held list was bypassed, less what it has been paid back.
    #[must_use]
    pub fn bypass_count(&self) -> u32 {
        self.bypass_count
    }
}

/// A ready stripe, if there is one.
fn first_come(ready: Option<Ready>, held: Option<StripeId>) -> Pick {
    match (ready, held) {
        (Some(_), _) => Pick::Ready,
        (None, Some(_)) => Pick::Held,
        (None, None) => Pick::Nothing,
    }
}

/// How long a stripe waits by weft's own rule.
///
/// While full-stripe writes are in flight a preread takes the arms of the disks away from them, so
/// every stripe waits; while none are, only a stripe that a stream will fill does, for as long as
/// reading would take: who waits that long and reads then has lost twice the time at most, whatever
/// the stream does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
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
    pub fn new(since: Time, moved: Option<Time>, preread: Option<Span>, wait_max: Span) -> Self {
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
    pub fn until(&self, idle_since: Option<Time>) -> Time {
        match (*self, idle_since) {
            (Self::Alone { .. }, Some(idle_since)) => idle_since,
            (Self::Streams { idle, moved, until }, Some(since)) => {
                (moved.max(since) + idle).min(until)
            }
            (Self::Alone { until } | Self::Streams { until, .. }, None) => until,
        }
    }
}

/// How long a stripe waits to be filled, by whatever rule, when a request waits for what it has
/// been given: who is to fill it may wait behind that one. As long as a few prereads take, which
/// was measured or is guessed.
#[must_use]
pub fn patience_for_others(preread: Option<Span>) -> Span {
    let few = Span(preread.unwrap_or(IDLE_GUESS).0.saturating_mul(4));
    few.clamp(Span::millis(2), IDLE_MAX)
}

/// Rule by which delayed stripes become held ones.
pub(crate) fn activation(knobs: &Knobs) -> Activation {
    // Nothing else is delayed with `auto` than what belongs to a stream.
    let gathers = knobs.stripe_size.is_auto() && knobs.writes == Writes::Auto;
    if gathers && knobs.activation == Activation::EachTurn {
        Activation::Soon
    } else {
        knobs.activation
    }
}

fn delay(activation: Activation) -> Option<Span> {
    match activation {
        Activation::AtUnplug => Some(UNPLUG_DELAY),
        Activation::EachTurn => None,
        Activation::Soon => Some(STREAM_DELAY),
    }
}

/// What the plug is told, read at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressure {
    /// Stripes of the last generation are not through with their reads.
    pub reading: bool,
    /// A request waits for a stripe.
    pub starved: bool,
    /// No stripe is ready.
    pub idle: bool,
}

/// State of the plug: since when delayed stripes wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Plug {
    since: Option<Time>,
    /// Before it was put back.
    first: Option<Time>,
    delay: Span,
}

impl Plug {
    /// Whether the delayed stripes become held ones now.
    pub fn opens(
        &mut self,
        activation: Activation,
        variant: Variant,
        pressure: Pressure,
        now: Time,
    ) -> bool {
        let Pressure { reading, starved, idle } = pressure;
        let enough = activation == Activation::Soon
            && self.first.is_some_and(|first| now >= first + SOON_AT_LAST);
        let reading = reading && !enough;
        match (activation, self.since) {
            (Activation::EachTurn, _) => {
                // As the knob was before they may wait: nobody is to be woken for it.
                (self.since, self.first) = (None, None);
                !reading
            }
            // It was pulled while stripes were being read.
            (Activation::AtUnplug, None) => idle && !reading,
            (Activation::Soon, None) => {
                self.wait(activation, now);
                false
            }
            (_, Some(since)) => {
                if !starved && now < since + self.delay {
                    return false;
                }
                // Pulled too early it is put back, and waits as long again; before the patch it was
                // not.
                let back = reading && variant != Variant::Fifo;
                self.since = back.then_some(now);
                self.first = self.first.filter(|_| back);
                !reading
            }
        }
    }

    /// Stripes are delayed.
    pub fn wait(&mut self, activation: Activation, now: Time) {
        self.delay = delay(activation).unwrap_or(Span::ZERO);
        self.since.get_or_insert(now);
        self.first.get_or_insert(now);
    }

    /// When [`Plug::opens`] may say otherwise though nothing else happens.
    #[must_use]
    pub fn due(&self) -> Option<Time> {
        self.since.map(|since| since + self.delay)
    }

    /// No stripe is delayed.
    pub fn no_stripe_waits(&mut self, activation: Activation, starved: bool, now: Time) {
        let stays = activation == Activation::AtUnplug
            && !starved
            && self.due().is_some_and(|due| now < due);
        if !stays {
            (self.since, self.first) = (None, None);
        }
    }
}

/// Full stripes that may pass a held one of a stream.
const AUTO_THRESHOLD: u32 = 64;

/// Held stripes that have waited and go before a ready one.
const HELD_TOGETHER: u32 = 64;

/// How many prereads long a stripe that no stream will fill waits for full-stripe writes: it and
/// those that go with it take a part of the disks' time from them, and none of it often.
const ALONE_PREREADS: u64 = 16;

/// Bounds of how long a stripe waits for a stream while disks are idle: what a solid-state drive
/// takes to read under load, and what a disk takes that turns.
const IDLE_MIN: Span = Span(500_000);
const IDLE_MAX: Span = Span::millis(20);
const IDLE_GUESS: Span = Span::millis(1);

/// The block layer's `unplug_delay` of 2008.
const UNPLUG_DELAY: Span = Span::millis(3);
const STREAM_DELAY: Span = Span(500_000);

/// How often that is waited while stripes are read: what a disk takes that turns.
const SOON_AT_LAST: Span = Span::millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Time {
        Time(micros * 1000)
    }

    const CALM: Pressure = Pressure { reading: false, starved: false, idle: false };

    #[test]
    fn the_plug_of_2008_opens_after_three_milliseconds_or_when_stripes_run_out() {
        let unplug = Activation::AtUnplug;
        let bypass = Variant::Bypass { threshold: 1 };
        let reading = Pressure { reading: true, ..CALM };
        let starved = Pressure { starved: true, ..CALM };
        let mut plug = Plug::default();
        plug.wait(unplug, at(0));
        assert_eq!(plug.due(), Some(at(3000)));
        assert!(!plug.opens(unplug, bypass, CALM, at(2999)));
        assert!(!plug.opens(unplug, bypass, reading, at(3000)), "stripes are being read: put back");
        assert!(!plug.opens(unplug, bypass, CALM, at(5999)));
        assert!(plug.opens(unplug, bypass, CALM, at(6000)));
        assert_eq!(plug.due(), None);
        plug.wait(unplug, at(6000));
        assert!(plug.opens(unplug, bypass, starved, at(6001)), "a request waits for a stripe");
        assert!(plug.opens(Activation::EachTurn, bypass, CALM, at(7000)));
        plug.wait(unplug, at(7000));
        assert!(!plug.opens(Activation::EachTurn, bypass, reading, at(7000)));
        assert_eq!(plug.due(), None, "another knob: it would wake all the time");
    }

    #[test]
    fn the_plug_of_2008_stays_in_whatever_becomes_of_the_stripe_that_put_it_in() {
        let (unplug, fifo) = (Activation::AtUnplug, Variant::Fifo);
        let mut plug = Plug::default();
        plug.wait(unplug, at(0));
        plug.no_stripe_waits(unplug, false, at(1000));
        plug.wait(unplug, at(2900));
        assert!(plug.opens(unplug, fifo, CALM, at(3000)), "delayed for 100 us only");
        plug.wait(unplug, at(4000));
        plug.no_stripe_waits(unplug, false, at(7000));
        assert_eq!(plug.due(), None, "pulled with nothing behind it");
        // Weft's own waits for each stripe anew.
        let soon = Activation::Soon;
        plug.wait(soon, at(8000));
        plug.no_stripe_waits(soon, false, at(8100));
        plug.wait(soon, at(8400));
        assert!(!plug.opens(soon, fifo, CALM, at(8600)));
        assert!(plug.opens(soon, fifo, CALM, at(8900)));
    }

    #[test]
    fn stripes_of_a_stream_do_not_wait_for_the_reads_of_others_without_end() {
        let soon = Activation::Soon;
        let bypass = Variant::Bypass { threshold: 64 };
        let reading = Pressure { reading: true, ..CALM };
        let mut plug = Plug::default();
        for began in [0, 30_000] {
            plug.wait(soon, at(began));
            let opens = (1..100).map(|turn| began + turn * 500);
            let opened = opens.into_iter().find(|now| plug.opens(soon, bypass, reading, at(*now)));
            assert_eq!(opened, Some(began + 20_000));
            assert_eq!(plug.due(), None);
        }
    }

    #[test]
    fn before_the_patch_a_plug_pulled_too_early_was_not_put_back() {
        let (unplug, fifo) = (Activation::AtUnplug, Variant::Fifo);
        let reading = Pressure { reading: true, ..CALM };
        let mut plug = Plug::default();
        plug.wait(unplug, at(0));
        assert!(!plug.opens(unplug, fifo, reading, at(3000)));
        assert!(!plug.opens(unplug, fifo, CALM, at(3100)), "stripes are ready");
        let idle = Pressure { idle: true, ..CALM };
        assert!(plug.opens(unplug, fifo, idle, at(3100)));
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
        let stream = Variant::Stream { wait_max: Span::secs(1) };
        let ready = Some(Ready { stripe: StripeId(A), io_started: false });
        let mut policy = Priority::default();
        let mut pick = |ready, held| policy.pick(stream, ready, held, 9);
        for _ in 0..3 {
            let together = (0..1000).take_while(|_| pick(ready, Some(StripeId(H1))) == Pick::Held);
            assert_eq!(together.count(), HELD_TOGETHER as usize);
        }
        assert_eq!(pick(None, Some(StripeId(H1))), Pick::Held);
        assert_eq!(pick(ready, None), Pick::Ready);
        assert_eq!(pick(None, None), Pick::Nothing);
    }

    /// Runs the policy dry and returns `(picked, bypass_count after)` for each pick.
    fn run(
        mut policy: Priority,
        threshold: u32,
        ready: &[(u32, bool)],
        held: &[u32],
        full_stripe_writes: u32,
    ) -> Vec<(Option<u32>, u32)> {
        let (mut ready, mut held) = (ready.iter().peekable(), held.iter().peekable());
        let mut picks = Vec::new();
        loop {
            let head = ready.peek().map(|(stripe, io_started)| Ready {
                stripe: StripeId(*stripe),
                io_started: *io_started,
            });
            let pick = policy.pick(
                Variant::Bypass { threshold },
                head,
                held.peek().map(|stripe| StripeId(**stripe)),
                full_stripe_writes,
            );
            let stripe = match pick {
                Pick::Ready => ready.next().map(|(stripe, _)| *stripe),
                Pick::Held => held.next().copied(),
                Pick::Nothing => None,
            };
            picks.push((stripe, policy.bypass_count()));
            if stripe.is_none() {
                return picks;
            }
        }
    }

    const A: u32 = 1;
    const B: u32 = 2;
    const C: u32 = 3;
    const H1: u32 = 11;
    const H2: u32 = 12;

    fn seen(stripe: u32) -> Priority {
        Priority { bypass_count: 0, last_held: Some(StripeId(stripe)) }
    }

    /// md-raid.md §9, statement 21.
    #[test]
    fn statement_21_bypassed_twice_a_held_stripe_goes() {
        let picks = run(seen(H1), 1, &[(A, false), (B, false), (C, false)], &[H1, H2], 5);
        let expected =
            [(Some(A), 1), (Some(B), 2), (Some(C), 3), (Some(H1), 2), (Some(H2), 1), (None, 1)];
        assert_eq!(picks, expected);
    }

    /// md-raid.md §9, statement 22.
    #[test]
    fn statement_22_a_new_head_is_noticed_first() {
        let picks =
            run(Priority::default(), 1, &[(A, false), (B, false), (C, false)], &[H1, H2], 5);
        let expected = [(Some(A), 0), (Some(B), 1), (Some(C), 2), (Some(H1), 1), (None, 1)];
        assert_eq!(picks, expected);
    }

    /// The same with something to pay back: a stripe that was promoted off the list takes its share
    /// of it along.
    #[test]
    fn a_new_head_pays_back_what_the_one_before_it_was_bypassed() {
        for (threshold, paid) in [(1, 2), (2, 1), (5, 0)] {
            let policy = Priority { bypass_count: 3, last_held: Some(StripeId(H2)) };
            let picks = run(policy, threshold, &[(A, false)], &[H1], 5);
            assert_eq!(picks[0], (Some(A), paid), "threshold {threshold}");
        }
    }

    /// md-raid.md §9, statement 23.
    #[test]
    fn statement_23_a_stripe_with_io_started_bypasses_nothing() {
        let picks = run(seen(H1), 1, &[(A, true), (B, false), (C, false)], &[H1, H2], 5);
        let expected = [(Some(A), 0), (Some(B), 1), (Some(C), 2), (Some(H1), 1), (None, 1)];
        assert_eq!(picks, expected);
        let mut policy = Priority { bypass_count: 7, last_held: None };
        let ready = Some(Ready { stripe: StripeId(A), io_started: false });
        assert_eq!(policy.pick(Variant::Bypass { threshold: 1 }, ready, None, 5), Pick::Ready);
        assert_eq!(policy.bypass_count(), 0);
    }

    /// md-raid.md §9, statement 24.
    #[test]
    fn statement_24_threshold_zero_waits_for_every_filled_stripe_write() {
        let mut policy = Priority { bypass_count: 1000, last_held: Some(StripeId(H1)) };
        let zero = Variant::Bypass { threshold: 0 };
        assert_eq!(policy.pick(zero, None, Some(StripeId(H1)), 1), Pick::Nothing);
        assert_eq!(policy.pick(zero, None, Some(StripeId(H1)), 0), Pick::Held);
    }

    /// md-raid.md §9, statement 42.
    #[test]
    fn statement_42_a_larger_threshold_pays_back_more() {
        let ready: Vec<_> = (1..=6).map(|stripe| (stripe, false)).collect();
        let picks = run(seen(H1), 2, &ready, &[H1, H2], 5);
        assert_eq!(picks[5..], [(Some(6), 6), (Some(H1), 4), (Some(H2), 2), (None, 2)]);
    }

    #[test]
    fn fifo_lets_a_held_stripe_go_during_full_stripe_writes() {
        let mut policy = Priority::default();
        assert_eq!(policy.pick(Variant::Fifo, None, Some(StripeId(H1)), 9), Pick::Held);
        assert_eq!(policy.pick(Variant::Fifo, None, None, 0), Pick::Nothing);
    }
}
