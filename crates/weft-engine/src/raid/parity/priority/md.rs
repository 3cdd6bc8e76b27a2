//! md's rules of stripe priority: patch 000, and first come, first served before it.
//!
//! With patch 000 (since 2.6.26), delayed stripes move to the hold list. A held stripe is handled
//! when no stripe is ready and either no full-stripe write is in flight or it was bypassed more
//! than `preread_bypass_threshold` times; with threshold 0, only when none is in flight. A ready
//! stripe with member I/O already submitted does not count as a bypass. The threshold is subtracted
//! from the count when the head of the hold list changes, and when a held stripe is handled.
//!
//! Before the patch there is no hold list: delayed stripes queue up behind the ready ones.
//!
//! Source   md-raid.md §1.6, statements 21 to 25 and 42

use weft_units::StripeId;

use super::{Pick, Priority, Ready};
use crate::raid::parity::list::List;

/// List to which delayed stripes moved before patch 000, which introduced the hold list.
pub(super) const ACTIVATED_BEFORE: List = List::Handle;

impl Priority {
    /// Chooses the list to pick from by the rule of patch 000. `threshold` limits how often the
    /// head of the hold list is bypassed; zero: no limit. `full_stripe_writes` is the number in
    /// flight.
    #[inline]
    pub(super) fn pick_bypassing(
        &mut self,
        threshold: u32,
        ready: Option<Ready>,
        held: Option<StripeId>,
        full_stripe_writes: u32,
    ) -> Pick {
        match (ready, held) {
            (Some(_), None) => {
                self.bypass_count = 0;
                Pick::Ready
            }
            (Some(ready), Some(held)) => {
                if ready.io_started {
                    // I/O of this ready stripe is under way already, so handling it costs the held
                    // stripe nothing.
                } else if self.last_held == Some(held) {
                    self.bypass_count += 1;
                } else {
                    // The head has changed because a new write promoted the old head to the handle
                    // list.
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
}

/// Picks a stripe by the rule before patch 000: the ready stripe if there is one, otherwise the
/// held one.
#[inline]
pub(super) fn first_come(ready: Option<Ready>, held: Option<StripeId>) -> Pick {
    match (ready, held) {
        (Some(_), _) => Pick::Ready,
        (None, Some(_)) => Pick::Held,
        (None, None) => Pick::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knobs::PriorityRule::{Bypass, Fifo};
    use crate::raid::parity::priority::rule;

    /// Picks until nothing is left, and returns `(picked, bypass_count afterwards)` for each pick.
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
                &rule(Bypass, threshold),
                head,
                held.peek().map(|stripe| StripeId(**stripe)),
                full_stripe_writes,
            );
            let stripe = match pick {
                Pick::Ready => ready.next().map(|(stripe, _)| *stripe),
                Pick::Held => held.next().copied(),
                Pick::Nothing => None,
            };
            picks.push((stripe, policy.bypass_count));
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

    /// md-raid.md §9, statement 21: with threshold 1, a held stripe is handled after two bypasses
    /// or more.
    #[test]
    fn statement_21_bypassed_twice_a_held_stripe_goes() {
        let picks = run(seen(H1), 1, &[(A, false), (B, false), (C, false)], &[H1, H2], 5);
        let expected =
            [(Some(A), 1), (Some(B), 2), (Some(C), 3), (Some(H1), 2), (Some(H2), 1), (None, 1)];
        assert_eq!(picks, expected);
    }

    /// md-raid.md §9, statement 22: the pick that finds a new head of the hold list does not count
    /// as a bypass.
    #[test]
    fn statement_22_a_new_head_is_noticed_first() {
        let picks =
            run(Priority::default(), 1, &[(A, false), (B, false), (C, false)], &[H1, H2], 5);
        let expected = [(Some(A), 0), (Some(B), 1), (Some(C), 2), (Some(H1), 1), (None, 1)];
        assert_eq!(picks, expected);
    }

    /// Like statement 22, while bypasses of the old head remain in the count: a promoted stripe
    /// takes its share of the count along.
    #[test]
    fn a_new_head_pays_back_what_the_one_before_it_was_bypassed() {
        for (threshold, paid) in [(1, 2), (2, 1), (5, 0)] {
            let policy = Priority { bypass_count: 3, last_held: Some(StripeId(H2)) };
            let picks = run(policy, threshold, &[(A, false)], &[H1], 5);
            assert_eq!(picks[0], (Some(A), paid), "threshold {threshold}");
        }
    }

    /// md-raid.md §9, statement 23: a ready stripe with member I/O already submitted does not
    /// count as a bypass.
    #[test]
    fn statement_23_a_stripe_with_io_started_bypasses_nothing() {
        let picks = run(seen(H1), 1, &[(A, true), (B, false), (C, false)], &[H1, H2], 5);
        let expected = [(Some(A), 0), (Some(B), 1), (Some(C), 2), (Some(H1), 1), (None, 1)];
        assert_eq!(picks, expected);
        let mut policy = Priority { bypass_count: 7, last_held: None };
        let ready = Some(Ready { stripe: StripeId(A), io_started: false });
        assert_eq!(policy.pick(&rule(Bypass, 1), ready, None, 5), Pick::Ready);
        assert_eq!(policy.bypass_count, 0);
    }

    /// md-raid.md §9, statement 24: with threshold 0, a held stripe waits for all full-stripe
    /// writes.
    #[test]
    fn statement_24_threshold_zero_waits_for_every_filled_stripe_write() {
        let mut policy = Priority { bypass_count: 1000, last_held: Some(StripeId(H1)) };
        let zero = &rule(Bypass, 0);
        assert_eq!(policy.pick(zero, None, Some(StripeId(H1)), 1), Pick::Nothing);
        assert_eq!(policy.pick(zero, None, Some(StripeId(H1)), 0), Pick::Held);
    }

    /// md-raid.md §9, statement 42: the threshold is subtracted from the count of bypasses when a
    /// held stripe is handled.
    #[test]
    fn statement_42_a_larger_threshold_pays_back_more() {
        let ready: Vec<_> = (1..=6).map(|stripe| (stripe, false)).collect();
        let picks = run(seen(H1), 2, &ready, &[H1, H2], 5);
        assert_eq!(picks[5..], [(Some(6), 6), (Some(H1), 4), (Some(H2), 2), (None, 2)]);
    }

    #[test]
    fn fifo_lets_a_held_stripe_go_during_full_stripe_writes() {
        let mut policy = Priority::default();
        assert_eq!(policy.pick(&rule(Fifo, 1), None, Some(StripeId(H1)), 9), Pick::Held);
        assert_eq!(policy.pick(&rule(Fifo, 1), None, None, 0), Pick::Nothing);
    }
}
