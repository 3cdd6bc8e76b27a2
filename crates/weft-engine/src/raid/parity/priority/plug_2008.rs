//! Surroundings of patch 000 in 2008: the plug of the request queue, and the lists of the stripe
//! cache.
//!
//! In 2008, delayed stripes moved to the hold list when the plug of the array's request queue was
//! pulled: 3 ms after it was set, or when no stripe was free. A delayed stripe sets the plug. The
//! plug stays set even if that stripe moves on, so it may be pulled just after other stripes were
//! delayed. Today there is no plug: delayed stripes move on in the next turn. In both cases, the
//! stripes that moved on before must have finished their prereads first.
//!
//! Three more things differed (`stripe_cache_form=2008`). The stripes of a full stripe were written
//! one by one. Inactive stripes were on one list. And before the patch, the context that submitted
//! a request also took the first step of the request's stripe; with the patch the stripe waits
//! until stripes are handled. Members with a scheduler had a plug of their own
//! (`sched/member_queue.rs`).
//!
//! Source   md-raid.md §1.10

use weft_units::{Span, Time};

use super::PrioritySettings;
use crate::knobs::{CacheForm, Knobs, PriorityRule};

/// Rule of a plug, which holds back delayed stripes for some time, so that later writes may fill
/// them.
#[derive(Debug)]
pub(crate) struct PlugRule {
    /// Time from setting the plug to pulling it.
    pub(crate) delay: Span,
    /// Longest time that a due plug still waits for prereads to finish; `None`: no limit, as in md.
    pub(crate) reads_max: Option<Span>,
    /// Whether the plug belongs to the request queue instead of the delayed stripes. Such a plug
    /// stays set when no delayed stripe is left, and after it was pulled only a newly delayed
    /// stripe sets it again.
    pub(crate) of_queue: bool,
}

/// The plug of 2008, with the block layer's `unplug_delay`.
pub(crate) static RULE: PlugRule =
    PlugRule { delay: Span::millis(3), reads_max: None, of_queue: true };

/// Whether a stripe takes its first step as soon as a request for it arrives, before stripes that
/// are ready.
pub(crate) fn is_handled_at_arrival(knobs: &Knobs) -> bool {
    knobs.stripe_cache_form == CacheForm::Of2008 && knobs.priority == PriorityRule::Fifo
}

/// Whether adjacent filled stripes of a chunk are written as a batch, and inactive stripes are
/// divided into classes.
pub(crate) fn has_batches_and_classes(form: CacheForm) -> bool {
    form == CacheForm::Today
}

/// State of the stripe cache on which the plug depends, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pressure {
    /// Whether stripes that left the delayed list earlier have not finished their prereads.
    pub(crate) reading: bool,
    /// Whether a request waits for a free stripe.
    pub(crate) starved: bool,
    /// Whether no stripe is ready to be handled.
    pub(crate) idle: bool,
}

/// State of the plug. `since` is the time at which the plug was set; `None` if it is not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Plug {
    since: Option<Time>,
    /// Time at which the plug was first set, if it was put back since then because prereads were in
    /// flight; otherwise equal to `since`. `None` if the plug is not set.
    first: Option<Time>,
    delay: Span,
}

impl Plug {
    /// Whether delayed stripes may move to the hold list at `now`. Pulls the plug if it is due, or
    /// puts it back if prereads are in flight.
    pub(crate) fn opens(
        &mut self,
        settings: &PrioritySettings,
        pressure: Pressure,
        now: Time,
    ) -> bool {
        let Pressure { reading, starved, idle } = pressure;
        let Some(rule) = settings.plug else {
            // The knob may have changed while stripes waited behind the plug. The plug is removed,
            // so that it causes no more wake-ups.
            (self.since, self.first) = (None, None);
            return !reading;
        };
        let read_long =
            rule.reads_max.is_some_and(|max| self.first.is_some_and(|first| now >= first + max));
        let reading = reading && !read_long;
        match self.since {
            // The plug was already pulled, while prereads of stripes that moved on earlier were in
            // flight.
            None if rule.of_queue => idle && !reading,
            None => {
                self.wait(rule, now);
                false
            }
            Some(since) if !starved && now < since + self.delay => false,
            Some(_) => {
                // If prereads are in flight, the plug is put back and waits as long again; before
                // the patch it was not put back.
                let back = reading && settings.rule != PriorityRule::Fifo;
                self.since = back.then_some(now);
                self.first = self.first.filter(|_| back);
                !reading
            }
        }
    }

    /// Sets the plug, which holds back the stripes that are delayed at the end of a turn. `newly`
    /// is true if some of them were delayed in this turn.
    pub(crate) fn put_in(&mut self, rule: Option<&PlugRule>, newly: bool, now: Time) {
        if let Some(rule) = rule.filter(|rule| newly || !rule.of_queue) {
            self.wait(rule, now);
        }
    }

    fn wait(&mut self, rule: &PlugRule, now: Time) {
        self.delay = rule.delay;
        self.since.get_or_insert(now);
        self.first.get_or_insert(now);
    }

    /// Time at which the answer of [`Plug::opens`] may change without an event; `None` if it
    /// cannot.
    pub(crate) fn due(&self) -> Option<Time> {
        self.since.map(|since| since + self.delay)
    }

    /// Handles a moment without delayed stripes: the plug is removed. A plug of the request queue
    /// stays until it is due, unless a request waits for a free stripe.
    pub(crate) fn no_stripe_waits(&mut self, rule: Option<&PlugRule>, starved: bool, now: Time) {
        let stays = rule.is_some_and(|rule| rule.of_queue)
            && !starved
            && self.due().is_some_and(|due| now < due);
        if !stays {
            (self.since, self.first) = (None, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raid::parity::priority::rule;
    use crate::raid::parity::stripe_size::auto::PLUG as SOON;

    fn at(micros: u64) -> Time {
        Time(micros * 1000)
    }

    fn by(priority: PriorityRule, plug: Option<&'static PlugRule>) -> PrioritySettings {
        PrioritySettings { plug, ..rule(priority, 1) }
    }

    const CALM: Pressure = Pressure { reading: false, starved: false, idle: false };

    #[test]
    fn the_plug_of_2008_opens_after_three_milliseconds_or_when_stripes_run_out() {
        let unplug = by(PriorityRule::Bypass, Some(&RULE));
        let each_turn = by(PriorityRule::Bypass, None);
        let reading = Pressure { reading: true, ..CALM };
        let starved = Pressure { starved: true, ..CALM };
        let mut plug = Plug::default();
        plug.wait(&RULE, at(0));
        assert_eq!(plug.due(), Some(at(3000)));
        assert!(!plug.opens(&unplug, CALM, at(2999)));
        assert!(!plug.opens(&unplug, reading, at(3000)), "stripes are being read: put back");
        assert!(!plug.opens(&unplug, CALM, at(5999)));
        assert!(plug.opens(&unplug, CALM, at(6000)));
        assert_eq!(plug.due(), None);
        plug.wait(&RULE, at(6000));
        assert!(plug.opens(&unplug, starved, at(6001)), "a request waits for a stripe");
        assert!(plug.opens(&each_turn, CALM, at(7000)));
        plug.wait(&RULE, at(7000));
        assert!(!plug.opens(&each_turn, reading, at(7000)));
        assert_eq!(plug.due(), None, "another knob: it would wake all the time");
    }

    #[test]
    fn the_plug_of_2008_stays_in_whatever_becomes_of_the_stripe_that_put_it_in() {
        let unplug = by(PriorityRule::Fifo, Some(&RULE));
        let mut plug = Plug::default();
        plug.wait(&RULE, at(0));
        plug.no_stripe_waits(unplug.plug, false, at(1000));
        plug.wait(&RULE, at(2900));
        assert!(plug.opens(&unplug, CALM, at(3000)), "delayed for 100 us only");
        plug.wait(&RULE, at(4000));
        plug.no_stripe_waits(unplug.plug, false, at(7000));
        assert_eq!(plug.due(), None, "pulled with nothing behind it");
        // Weft's own plug waits for each stripe anew.
        let soon = by(PriorityRule::Fifo, Some(&SOON));
        plug.wait(&SOON, at(8000));
        plug.no_stripe_waits(soon.plug, false, at(8100));
        plug.wait(&SOON, at(8400));
        assert!(!plug.opens(&soon, CALM, at(8600)));
        assert!(plug.opens(&soon, CALM, at(8900)));
    }

    #[test]
    fn stripes_of_a_stream_do_not_wait_for_the_reads_of_others_without_end() {
        let soon = by(PriorityRule::Bypass, Some(&SOON));
        let reading = Pressure { reading: true, ..CALM };
        let mut plug = Plug::default();
        for began in [0, 30_000] {
            plug.wait(&SOON, at(began));
            let opens = (1..100).map(|turn| began + turn * 500);
            let opened = opens.into_iter().find(|now| plug.opens(&soon, reading, at(*now)));
            assert_eq!(opened, Some(began + 20_000));
            assert_eq!(plug.due(), None);
        }
    }

    #[test]
    fn before_the_patch_a_plug_pulled_too_early_was_not_put_back() {
        let unplug = by(PriorityRule::Fifo, Some(&RULE));
        let reading = Pressure { reading: true, ..CALM };
        let mut plug = Plug::default();
        plug.wait(&RULE, at(0));
        assert!(!plug.opens(&unplug, reading, at(3000)));
        assert!(!plug.opens(&unplug, CALM, at(3100)), "stripes are ready");
        let idle = Pressure { idle: true, ..CALM };
        assert!(plug.opens(&unplug, idle, at(3100)));
    }
}
