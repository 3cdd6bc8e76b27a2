//! Stripe priority: which stripe is handled next (◆ patch 000).
//!
//! Some stripes are ready to be written. Others are held because they still need a preread; while
//! they wait, later writes may fill them, so that no preread is needed. md's rules ([`md`]) always
//! take ready stripes first. How often a held stripe was bypassed only decides whether it may be
//! handled while no stripe is ready and full-stripe writes are in flight. Weft's own rule
//! ([`stream`]) decides for each stripe how long waiting pays off.
//!
//! A stripe is delayed before it is held. The time at which delayed stripes move to the hold list
//! is a separate choice: in each turn, as today, or when a plug is pulled, as in 2008
//! ([`plug_2008`] has everything that surrounded the patch then).
//!
//! Under every rule a stripe waits no longer than `preread_wait_max`, and no longer than it takes
//! to write 64 times the content of the stripe cache. Then it is ready and takes its turn
//! (`cache/wait.rs`). md has no such bounds: a stripe waits for as long as others are preread or,
//! with threshold 0, for as long as filled stripes are written.
//!
//! Inputs   heads of the ready and held lists, full-stripe writes in flight; for weft's own rule
//!          also the start of a stripe's wait, the time at which the stream that will fill it was
//!          last seen, and the duration of prereads
//! Answer   [`Pick`], [`Patience`], [`Plug::opens`]
//! Knobs    `priority`, `preread_bypass_threshold` (stripes, 0..=stripe_cache_size, default 1),
//!          `activation`, `preread_wait_max` (seconds, default 1; md: none)
//! Source   md-raid.md §1.6; Linux "md: introduce get_priority_stripe() to improve raid456 write
//!          performance", 2008 (published: dd +33 %, tiobench +13 %, with threshold 0 +37 %)
//! Compare  [`PriorityRule::Fifo`] is the behaviour before the change, `activation=at_unplug` and
//!          `stripe_cache_form=2008` the surroundings of both in 2008 (md-raid.md §1.10)
//! Measured as exact sequences (statements 21 to 25 and 42). Weft's own rule on four simulated
//!          disks of 2007 against threshold 0, with the plug of 2008 (experiments/000.md): dd the
//!          same; tiobench with 1 to 8 threads 0 % (±0.3), 99.9 % of prereads within 0.35 s instead
//!          of 4.9 s. dd beside eight writers of single blocks loses: -45 %, both together are done
//!          25 % later (-28 % and 7 % where a disk empties its cache for 14 ms at a time), because
//!          a held stripe goes after 1.0 s instead of 9.4 s, when dd is done. Most of the loss is
//!          due to the disk: while its own cache is full, it lets a read wait for up to 2 s, and
//!          loses a turn with each sub-request that it writes meanwhile. A disk that let no read
//!          wait for more than 0.2 s would cost dd 15 %, and both would be done 5 % sooner (with
//!          the disk's cache emptied for 14 ms at a time). Solid-state drives: dd and tiobench the
//!          same or 1 % more, dd beside the writers -1 %, both done 12 % sooner, within 23 ms
//!          instead of 1.6 s

mod md;
pub(super) mod plug_2008;
mod stream;

use weft_units::{Span, StripeId};

pub(crate) use self::plug_2008::{Plug, PlugRule, Pressure};
pub(crate) use self::stream::{Patience, patience_for_others};
use super::list::List;
use crate::knobs::{Activation, Knobs, PriorityRule, WAITS_WITHOUT_BOUND};

/// Settings of stripe priority, derived from the knobs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrioritySettings {
    pub(crate) rule: PriorityRule,
    /// Number of times that the head of the hold list may be bypassed; zero: any number of times.
    pub(crate) threshold: u32,
    /// Longest wait of a stripe to be filled, under a rule that gives each stripe a time of its own
    /// ([`PriorityRule::Stream`]).
    pub(crate) wait_max: Span,
    /// Longest wait of a stripe to be filled, under the other rules.
    pub(crate) bound: Span,
    /// Whether a stripe that waits to be filled may preread, under any rule, once
    /// [`CACHES_PASSED_MAX`](crate::knobs::CACHES_PASSED_MAX) times the content of the cache was
    /// drained into other stripes.
    pub(crate) bounds_passed: bool,
    /// Plug that holds back delayed stripes; `None`: they move to the hold list in the next turn.
    pub(crate) plug: Option<&'static PlugRule>,
}

impl PrioritySettings {
    /// Settings from the knobs, with `bound` as the longest wait under rules without a time for
    /// each stripe.
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

    /// Whether each stripe waits until a time of its own. Otherwise all delayed stripes move on
    /// together, once the stripes that moved on before have done their prereads.
    #[inline]
    pub(crate) fn each_waits(&self) -> bool {
        self.rule == PriorityRule::Stream
    }

    /// List to which delayed stripes move when they may be preread.
    pub(crate) fn list_of_activated(&self) -> List {
        if self.rule == PriorityRule::Fifo { md::ACTIVATED_BEFORE } else { List::Hold }
    }
}

/// First stripe of the handle list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ready {
    pub(crate) stripe: StripeId,
    /// Whether member I/O was ever submitted for the stripe. If so, taking it first does not count
    /// as a bypass of the held stripe.
    pub(crate) io_started: bool,
}

/// Choice of the stripe that is handled next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pick {
    /// Handle the head of the hold list.
    Held,
    /// Handle no stripe yet: held stripes wait until full-stripe writes are done.
    Nothing,
    /// Handle the head of the handle list.
    Ready,
}

/// State of stripe priority: how often the head of the hold list was bypassed or, under weft's own
/// rule, how many held stripes were picked in a row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Priority {
    bypass_count: u32,
    last_held: Option<StripeId>,
}

impl Priority {
    /// Chooses between the heads of the handle list (`ready`) and the hold list (`held`), or
    /// neither. `full_stripe_writes` is the number in flight. Only the counters in `self` change.
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

/// Settings for tests: `rule` with md's other settings, without a plug.
#[cfg(test)]
pub(super) fn rule(rule: PriorityRule, threshold: u32) -> PrioritySettings {
    let knobs = Knobs { priority: rule, preread_bypass_threshold: threshold, ..Knobs::md() };
    PrioritySettings::new(&knobs, WAITS_WITHOUT_BOUND)
}
