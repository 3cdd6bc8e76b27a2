//! Stripe size: the bytes of a stripe-cache entry on each member.
//!
//! A stripe is looked up, locked, read and written as a whole. Small stripes transfer little for a
//! small write; large stripes need fewer lookups and requests for a large write. md used the page
//! size, which is 64 KiB on some machines, so that a 4 KiB write transfers 256 KiB instead of 16
//! KiB; since 2020 the size is 4 KiB by default and configurable.
//!
//! [`fixed`] follows md: every size from 4 KiB to 64 KiB, and each stripe handled separately.
//! [`auto`] is weft's own, for small and large requests alike: stripes of 4 KiB that are picked and
//! merged by full stripe. A stripe size implies more than the height of a stripe. Each such
//! decision is a field of [`StripeSizePolicy`], which other files check instead of the size.
//!
//! Inputs   the configured size
//! Answer   [`StripeSizePolicy`]; the height is in [`StripeSize`]
//! Knob     `stripe_size` (bytes, power of two, 4096..=65536, or `auto`)
//! Source   Documentation/admin-guide/md.rst, "stripe_size"; Linux
//!          "md/raid5: set default stripe_size as 4096", 2020
//! Compare  65536 is the behaviour before the change on a kernel with 64 KiB pages
//! See it   `weft-bench engine`; exact member bytes: md-raid.md §3.1, statements 27 and 50

pub(super) mod auto;
mod fixed;

use weft_units::{Sectors, Span};

use super::priority::{PlugRule, PrioritySettings};
use crate::knobs::{Knobs, StripeSize, Writes};
use crate::layout::geometry::Geometry;

/// Decisions that depend on the stripe size.
#[derive(Debug)]
pub(crate) struct StripeSizePolicy {
    /// Rule for runs: stripes of one full stripe that are on the same list are picked together, in
    /// ascending order, and their member requests merged. Inactive stripes then have one class
    /// instead of eight. `None`: each stripe is picked on its own.
    pub(super) runs: Option<&'static RunRule>,
    /// Whether a request that finds fewer free stripes than it needs in a full stripe waits for all
    /// of them, or for half the cache.
    pub(super) waits_for_runs: bool,
    /// Whether a request that finds no free stripe is still attached to those of its stripes that
    /// are delayed.
    pub(super) feeds_delayed: bool,
    /// Whether a write, with `writes=auto`, waits to be gathered with others if its stream will
    /// bring the rest of its stripe. Otherwise a write waits if it did not arrive alone in its
    /// stripe.
    pub(super) gathers_streams: bool,
    /// Whether a turn ends when it has made the longest request that members accept.
    pub(super) turn_is_one_request: bool,
    /// Whether a filled stripe is written from the client's frames without a copy, as all whole
    /// strips are with `skip_copy`.
    pub(super) filled_zero_copy: bool,
    /// Lower bound that is applied to `preread_bypass_threshold`, unless the threshold is zero.
    threshold_min: u32,
    /// Plug that holds back delayed stripes with `activation=each_turn` and `writes=auto`; `None`:
    /// they move on in the next turn.
    plug: Option<&'static PlugRule>,
}

/// Rule for how many adjacent stripes are picked together.
#[derive(Debug)]
pub(super) struct RunRule {
    /// Divisor: stripes that need reads are picked together up to the number of stripes in use
    /// divided by this.
    parts_of_active: u32,
    /// Number of stripes that need reads and may be picked together in any case.
    least: u32,
    /// Number of stripes of a sync that may be picked together in any case.
    of_sync: u32,
}

impl RunRule {
    /// Largest number of stripes in a run, with `active` stripes in use. The limit applies to
    /// stripes above the one that was picked first; adjacent stripes below it are all in the run. A
    /// turn ends where the limit cuts off a run. `filled` stripes are written in one run, because
    /// one long request is the most efficient. Stripes that need reads are handled in short runs,
    /// so that members read one run while they write the one before. The first of `synced` stripes
    /// is to be synced.
    #[inline]
    pub(super) fn stripes_max(&self, filled: bool, synced: bool, active: u32) -> usize {
        if filled {
            return usize::MAX;
        }
        let least = if synced { self.of_sync } else { self.least };
        (active / self.parts_of_active).max(least) as usize
    }
}

impl StripeSizePolicy {
    /// Policy of a stripe size.
    pub(crate) fn of(size: StripeSize) -> &'static Self {
        if size == StripeSize::AUTO { &auto::POLICY } else { &fixed::POLICY }
    }

    /// Whether a write is handled without waiting for more data, with `writes=auto`. `alone` is
    /// true if it is the only request for its stripe in this turn; `streams` is true if its stream
    /// will bring the rest of the stripe.
    #[inline]
    pub(super) fn goes_at_once(&self, alone: bool, streams: bool) -> bool {
        if self.gathers_streams { !streams } else { alone }
    }

    /// Settings of stripe priority from the knobs, adjusted to the stripe size.
    #[inline]
    pub(super) fn priority(&self, knobs: &Knobs, bound: Span) -> PrioritySettings {
        let mut settings = PrioritySettings::new(knobs, bound);
        if settings.threshold > 0 {
            settings.threshold = settings.threshold.max(self.threshold_min);
        }
        if knobs.writes == Writes::Auto {
            settings.plug = settings.plug.or(self.plug);
        }
        settings
    }
}

/// Stripe height in sectors: the largest stripe size that divides the chunk and does not exceed the
/// knob's value.
pub(crate) fn height(knobs: &Knobs, geometry: &Geometry) -> Sectors {
    knobs.stripe_size.at_most(geometry.chunk().bytes()).sectors()
}

/// Number of frames for a whole stripe of an array, parity included.
pub(crate) fn stripe_frames(knobs: &Knobs, geometry: &Geometry) -> u32 {
    knobs.stripe_size.stripe_frames(geometry.members(), geometry.chunk().bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knobs::Activation;

    #[test]
    fn auto_gathers_streams_where_writes_and_activation_are_left_to_it() {
        let settings = |size, writes, activation, preread_bypass_threshold| {
            let knobs = Knobs { writes, activation, preread_bypass_threshold, ..Knobs::md() };
            let found = StripeSizePolicy::of(size).priority(&knobs, Span::secs(1));
            (found.threshold, found.plug.map(|plug| plug.delay))
        };
        let (md, auto) = (StripeSize::default(), StripeSize::AUTO);
        let (soon, unplug) = (Some(Span(500_000)), Some(Span::millis(3)));
        let (each_turn, at_unplug) = (Activation::EachTurn, Activation::AtUnplug);
        assert_eq!(settings(md, Writes::Auto, each_turn, 1), (1, None));
        assert_eq!(settings(md, Writes::Auto, at_unplug, 1), (1, unplug));
        assert_eq!(settings(auto, Writes::Auto, each_turn, 1), (64, soon));
        assert_eq!(settings(auto, Writes::Auto, each_turn, 65), (65, soon));
        assert_eq!(settings(auto, Writes::Gather, each_turn, 0), (0, None));
        assert_eq!(settings(auto, Writes::Auto, at_unplug, 0), (0, unplug));
    }
}
