//! Budgets: the number of sectors that a queue may be served in one slot.
//!
//! A queue that uses up its budget gets a larger one, a queue that runs out of requests gets as
//! much as it used, and a queue that kept the member idle gets less. The share of a queue does not
//! depend on its budget, but its latency does. The largest budget is the number of sectors that the
//! member transfers in `timeout_sync` at its peak rate, once the rate has been measured and eleven
//! slots have begun; until then it is 16384 sectors.
//!
//! Inputs   the reason for which a slot ended, and the service in it
//! Answer   [`Budgets::after`]
//! Knobs    `max_budget`, `timeout_sync`
//! Source   io-schedulers.md §2.2

use super::peak_rate::PeakRate;
use super::stats::ExpireReason;
use crate::knobs::BfqKnobs;

/// State from which the budgets of a member's queues are computed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budgets {
    /// Measure of how many slots have begun: each slot moves it an eighth of the way to 256. The
    /// measured rate is trusted from `ENOUGH` on.
    assigned: u64,
    max: u64,
}

/// Facts about an ended slot that determine the queue's next budget.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotEnd {
    pub(super) reason: ExpireReason,
    /// Budget of the queue in the slot, in sectors.
    pub(super) own: u64,
    /// Number of sectors that the queue was charged in the slot.
    pub(super) served: u64,
    /// Whether requests of the queue are in flight at the member when the slot ends.
    pub(super) in_driver: bool,
    pub(super) sync: bool,
    pub(super) raised: bool,
}

impl Budgets {
    pub(super) fn new(knobs: &BfqKnobs) -> Self {
        let max = if knobs.max_budget > 0 { knobs.max_budget.into() } else { DEFAULT };
        Self { assigned: 0, max }
    }

    /// Counts a slot that begins.
    pub(super) fn on_slot(&mut self) {
        self.assigned = (7 * self.assigned + 256) / 8;
    }

    /// Updates the largest budget after a new measurement of the peak rate.
    pub(super) fn on_rate(&mut self, rate: &PeakRate, knobs: &BfqKnobs) {
        if knobs.max_budget == 0 {
            self.max = rate.sectors_in(knobs.timeout_sync).max(1);
        }
    }

    pub(super) fn max(&self) -> u64 {
        if self.known() { self.max } else { DEFAULT }
    }

    /// Budget of a new queue, in sectors.
    pub(super) fn first(&self) -> u64 {
        (self.max() * 2 / 3).max(1)
    }

    /// Budget of a queue for the slot that follows `slot`, in sectors.
    pub(super) fn after(&self, slot: &SlotEnd, knobs: &BfqKnobs) -> u64 {
        let (own, min, max) = (slot.own, self.max() / 32, self.max);
        let next = if !slot.sync {
            max
        } else if slot.raised {
            2 * min
        } else {
            match slot.reason {
                ExpireReason::TooIdle if slot.in_driver => (2 * own).min(max),
                ExpireReason::TooIdle if own > 5 * min => own - 4 * min,
                ExpireReason::TooIdle => min,
                ExpireReason::BudgetTimeout => (2 * own).min(max),
                ExpireReason::BudgetExhausted => (4 * own).min(max),
                ExpireReason::NoMoreRequests => slot.served.max(min),
                ExpireReason::Preempted => return own,
            }
        };
        let next = if self.known() && knobs.max_budget == 0 { next.min(max) } else { next };
        next.max(1)
    }

    /// Whether enough slots have begun for the rate to be meaningful.
    fn known(&self) -> bool {
        self.assigned >= ENOUGH
    }
}

const DEFAULT: u64 = 16_384;

/// Value of `assigned` from which the rate is trusted; the eleventh slot reaches it.
const ENOUGH: u64 = 194;

#[cfg(test)]
mod tests {
    use weft_units::Span;

    use super::*;

    fn slot(reason: ExpireReason, own: u64) -> SlotEnd {
        SlotEnd { reason, own, served: 700, in_driver: false, sync: true, raised: false }
    }

    #[test]
    fn statement_b16_budgets_follow_the_reason_for_which_slots_end() {
        use ExpireReason::*;
        let knobs = BfqKnobs::default();
        let budgets = Budgets::new(&knobs);
        let after = |slot| budgets.after(&slot, &knobs);
        assert_eq!(after(slot(BudgetExhausted, 1000)), 4000);
        assert_eq!(after(slot(BudgetExhausted, 5000)), 16_384, "the largest");
        assert_eq!(after(slot(BudgetTimeout, 1000)), 2000);
        assert_eq!(after(slot(TooIdle, 5000)), 5000 - 4 * 512);
        assert_eq!(after(slot(TooIdle, 2560)), 512);
        assert_eq!(after(SlotEnd { in_driver: true, ..slot(TooIdle, 1000) }), 2000);
        assert_eq!(after(slot(NoMoreRequests, 5000)), 700);
        assert_eq!(after(SlotEnd { served: 8, ..slot(NoMoreRequests, 5000) }), 512);
        let much = SlotEnd { served: 20_000, ..slot(NoMoreRequests, 5000) };
        assert_eq!(after(much), 20_000, "not bounded before the rate is known");
        assert_eq!(after(slot(Preempted, 5000)), 5000);
        assert_eq!(after(SlotEnd { raised: true, ..slot(BudgetExhausted, 5000) }), 1024);
        assert_eq!(after(SlotEnd { sync: false, ..slot(TooIdle, 5) }), 16_384);
    }

    #[test]
    fn statement_b17_the_eleventh_slot_is_the_first_to_know_the_rate() {
        let knobs = BfqKnobs::default();
        let mut budgets = Budgets::new(&knobs);
        budgets.on_rate(&PeakRate::new(false), &knobs);
        let mut assigned = Vec::new();
        for _ in 0..11 {
            assert_eq!(budgets.max(), DEFAULT);
            budgets.on_slot();
            assigned.push(budgets.assigned);
        }
        assert_eq!(assigned, [32, 60, 84, 105, 123, 139, 153, 165, 176, 186, 194]);
        assert_eq!(budgets.max(), 41_961, "two thirds of 258 MB/s for 125 ms");
        let knobs = BfqKnobs { timeout_sync: Span::millis(124), ..knobs };
        budgets.on_rate(&PeakRate::new(false), &knobs);
        assert_eq!(budgets.max(), 41_625, "the kernel's, at 250 Hz");
    }
}
