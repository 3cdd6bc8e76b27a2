//! Stripe priority: which stripe is handled next (◆ patch 000).
//!
//! Some stripes are ready to be written; others are held back because they still need a preread,
//! and waiting gives them a chance to be filled by later writes, after which they need none. The
//! kernel's rules ([`md`]) always take ready stripes first. How often a held stripe was bypassed
//! decides only this: with nothing ready, may it go while full-stripe writes are in flight? Weft's
//! own rule ([`stream`]) asks of each stripe what its waiting is worth.
//!
//! Before it is held a stripe is delayed. The moment in which delayed stripes become held ones is a
//! choice of its own: in each turn, as today, or when a plug is pulled ([`plug_2008`], which has
//! everything that was around the patch in 2008).
//!
//! Whatever the rule, no stripe waits longer than `preread_wait_max`, or while 64 times what the
//! stripe cache holds is written: then it is ready, in its turn (`cache/wait.rs`). md has no such
//! bounds, and keeps a stripe waiting for as long as others are preread, or, with threshold 0, for
//! as long as filled stripes are written.
//!
//! Inputs   heads of the ready and held lists, full-stripe writes in flight; of weft's own: since
//!          when a stripe lacks strips, when the stream was last seen that will bring them, how
//!          long prereads take
//! Answer   [`Pick`], [`Patience`], [`Plug::opens`]
//! Knobs    `priority`, `preread_bypass_threshold` (stripes, 0..=stripe_cache_size, default 1),
//!          `activation`, `preread_wait_max` (seconds, default 1; md: none)
//! Source   md-raid.md §1.6; Linux "md: introduce get_priority_stripe() to improve raid456 write
//!          performance", 2008 (published: dd +33 %, tiobench +13 %, with threshold 0 +37 %)
//! Compare  [`PriorityRule::Fifo`] is the behaviour before the change, `activation=at_unplug` and
//!          `stripe_cache_form=2008` what was around both in 2008 (md-raid.md §1.10)
//! Measured as exact sequences (statements 21 to 25 and 42). Weft's own on four simulated disks of
//! 2007 against
//!          threshold 0, with the plug of 2008 (experiments/000.md): dd the same; tiobench with 1
//!          to 8 threads 0 % (±0.3), 99.9 % of prereads within 0.35 s and not 4.9 s. dd beside
//!          eight writers of single blocks loses: -45 %, both together are done 25 % later (-28 %
//!          and 7 % where a disk empties its cache for 14 ms at a time), because a held stripe goes
//!          after 1.0 s and not after 9.4 s, when dd is done. Most of that is the disk, which with
//!          a full cache of its own lets a read wait for up to 2 s and loses a turn with each
//!          sub-request that it writes meanwhile; if it let none wait for more than 0.2 s, dd would
//!          lose 15 % and both be done 5 % sooner (so emptied). Solid-state drives: dd and
//!          tiobench the same or 1 % more, dd beside the writers -1 %, both done 12 % sooner,
//!          within 23 ms and not 1.6 s

mod md;
pub(super) mod plug_2008;
mod stream;

use weft_units::{Span, StripeId};

pub(crate) use self::plug_2008::{Plug, PlugRule, Pressure};
pub(crate) use self::stream::{Patience, patience_for_others};
use super::list::List;
use crate::knobs::{Activation, Knobs, PriorityRule, WAITS_WITHOUT_BOUND};

/// Settings of the policy, made from the knobs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrioritySettings {
    pub(crate) rule: PriorityRule,
    /// Bypasses that a held stripe bears; zero: any number.
    pub(crate) threshold: u32,
    /// Longest wait of a stripe that has a time of its own.
    pub(crate) wait_max: Span,
    /// Longest wait of a stripe by a rule that has no time for each.
    pub(crate) bound: Span,
    /// Whether a stripe is passed by [`CACHES_PASSED_MAX`](crate::knobs::CACHES_PASSED_MAX) at
    /// most, by any rule.
    pub(crate) bounds_passed: bool,
    /// The plug that holds delayed stripes back; `None`: they are held ones in the next turn.
    pub(crate) plug: Option<&'static PlugRule>,
}

impl PrioritySettings {
    /// Settings as the knobs say. `bound` is the longest wait of a stripe.
    #[inline]
    pub(crate) fn new(knobs: &Knobs, bound: Span) -> Self {
        let settings = Self {
            rule: knobs.priority,
            threshold: knobs.preread_bypass_threshold,
            wait_max: knobs.preread_wait_max,
            bound,
            bounds_passed: bound < WAITS_WITHOUT_BOUND,
            plug: match knobs.activation {
                Activation::AtUnplug => Some(&plug_2008::RULE),
                Activation::EachTurn => None,
            },
        };
        Self { bound: if settings.each_waits() { WAITS_WITHOUT_BOUND } else { bound }, ..settings }
    }

    /// Whether each stripe waits for a time of its own, and not for the generation before it.
    #[inline]
    pub(crate) fn each_waits(&self) -> bool {
        self.rule == PriorityRule::Stream
    }

    /// The list to which a generation of delayed stripes moves.
    pub(crate) fn list_of_activated(&self) -> List {
        if self.rule == PriorityRule::Fifo { md::ACTIVATED_BEFORE } else { List::Hold }
    }
}

/// A stripe that is ready to be handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ready {
    /// The stripe.
    pub(crate) stripe: StripeId,
    /// Whether member I/O was ever submitted for it. Passing such a stripe costs a held one
    /// nothing.
    pub(crate) io_started: bool,
}

/// The decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pick {
    /// The head of the held list.
    Held,
    /// None yet: held stripes wait for full-stripe writes to finish.
    Nothing,
    /// The head of the ready list.
    Ready,
}

/// Number of times that the head of the hold list was bypassed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Priority {
    bypass_count: u32,
    last_held: Option<StripeId>,
}

impl Priority {
    /// Decides; changes only its own counters.
    #[inline]
    pub(crate) fn pick(
        &mut self,
        settings: &PrioritySettings,
        ready: Option<Ready>,
        held: Option<StripeId>,
        full_stripe_writes: u32,
    ) -> Pick {
        match settings.rule {
            PriorityRule::Bypass => {
                self.pick_bypassing(settings.threshold, ready, held, full_stripe_writes)
            }
            PriorityRule::Fifo => md::first_come(ready, held),
            PriorityRule::Stream => self.pick_waited(ready, held),
        }
    }
}

/// Settings for tests: a rule as md has it, without a plug.
#[cfg(test)]
pub(super) fn rule(rule: PriorityRule, threshold: u32) -> PrioritySettings {
    let knobs = Knobs { priority: rule, preread_bypass_threshold: threshold, ..Knobs::md() };
    PrioritySettings::new(&knobs, WAITS_WITHOUT_BOUND)
}
