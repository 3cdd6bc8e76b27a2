//! Throttling of 2.6.24, the kernel of patch 000: a writer over its limit writes back or waits.
//!
//! As in 3.1, the writer makes a pass over the device's dirty files. The device's share of the
//! limit is capped by the part of the limit that other devices do not use. A writer on a device
//! over its share writes back, or waits up to 100 ms until any queue has room.
//!
//! Inputs   [`Facts`], the number of pages written
//! Answer   [`Answer`]
//! Source   mm/page-writeback.c and mm/backing-dev.c, January 2008

use weft_units::Time;

use super::{Answer, Facts, Look, State, ThrottleEpisode, ThrottleStep, task_limit};

impl ThrottleEpisode {
    pub(super) fn step_2_6_24(&mut self, now: Time, facts: &Facts) -> Answer {
        let thresholds = facts.thresholds;
        let bdi_total = facts.bdi.total();
        let left = thresholds.dirty.saturating_sub(facts.all.total()) + bdi_total;
        let bdi_limit = task_limit(facts, facts.bdi_share.of(thresholds.dirty).min(left));
        let look = Look {
            may_clear: bdi_total < bdi_limit,
            bearable: false,
            background_due: facts.all.dirty > thresholds.background,
        };
        if bdi_total <= bdi_limit {
            return self.go_on(facts, look);
        }
        let wrote = matches!(self.state, State::Wrote(_));
        let free = facts.all.total() < u64::midpoint(thresholds.background, thresholds.dirty);
        if !wrote && free {
            return self.go_on(facts, look);
        }
        if !wrote && facts.bdi.dirty > 0 {
            self.state = State::Wrote(look);
            let step = ThrottleStep::WriteBack { pages: self.nr_to_write };
            return Answer { exceeded: Some(true), ..Answer::only(step) };
        }
        if self.written >= self.nr_to_write {
            return self.go_on(facts, look);
        }
        self.state = State::Slept(look);
        let until = self.ticks.wake(now, (self.ticks.hz() / 10).max(1));
        let step = ThrottleStep::Sleep { until, or_uncongested: true };
        Answer { exceeded: Some(true), ..Answer::only(step) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{episode, facts, sleep_ms};
    use super::*;
    use crate::page_cache::pool::{Counts, Kernel};
    use crate::page_cache::proportion::Fraction;

    #[test]
    fn the_older_kernel_waits_100_ms_or_for_room_in_a_queue() {
        let mut episode = episode(Kernel::V2_6_24, 250);
        let answer = episode.step(Time(0), &facts(23_000, 0), 0);
        assert_eq!(answer.step, ThrottleStep::WriteBack { pages: 1536 });
        let answer = episode.step(Time(0), &facts(22_000, 1000), 1000);
        let until = Time(100_000_000);
        assert_eq!(answer.step, ThrottleStep::Sleep { until, or_uncongested: true });
        // Written pages are counted over the whole episode, not only since the pause.
        let answer = episode.step(until, &facts(22_500, 500), 0);
        assert_eq!(answer.step, ThrottleStep::WriteBack { pages: 1536 });
        assert_eq!(episode.step(until, &facts(22_000, 1000), 536).step, ThrottleStep::Continue);
    }

    #[test]
    fn the_older_kernel_looks_again_after_it_has_written() {
        let mut episode = episode(Kernel::V2_6_24, 250);
        assert_eq!(
            episode.step(Time(0), &facts(23_000, 0), 0).step,
            ThrottleStep::WriteBack { pages: 1536 }
        );
        let answer = episode.step(Time(0), &facts(21_000, 1000), 500);
        assert_eq!(answer.step, ThrottleStep::Continue, "22,000 is not over 22,400");
        assert_eq!(answer.exceeded, Some(false));
    }

    #[test]
    fn the_older_kernel_cuts_a_share_to_what_is_left() {
        // Another device holds 20,000 of 25,600 pages, so only 5,600 are left for this one.
        let of = |dirty| {
            let all = Counts { dirty: 20_000 + dirty, writeback: 0 };
            Facts { all, bdi: Counts { dirty, writeback: 0 }, ..facts(0, 0) }
        };
        let step = |dirty| episode(Kernel::V2_6_24, 250).step(Time(0), &of(dirty), 0).step;
        assert_eq!(step(4900), ThrottleStep::Continue);
        assert_eq!(step(4901), ThrottleStep::WriteBack { pages: 1536 });
    }

    #[test]
    fn the_older_kernel_has_its_own_edges() {
        // Half-way is 19,200. The device has no share here, so only half-way decides about the
        // writer.
        let none = Fraction { numerator: 0, denominator: 1 };
        let step = |dirty| {
            let facts = Facts { bdi_share: none, ..facts(dirty, 0) };
            episode(Kernel::V2_6_24, 250).step(Time(0), &facts, 0).step
        };
        assert_eq!(step(19_199), ThrottleStep::Continue);
        assert_eq!(step(19_200), ThrottleStep::WriteBack { pages: 1536 });
        // A writer exactly at its limit continues, and the flag stays.
        let mark = |dirty| episode(Kernel::V2_6_24, 250).step(Time(0), &facts(dirty, 0), 0);
        assert_eq!((mark(22_400).step, mark(22_400).exceeded), (ThrottleStep::Continue, None));
        assert_eq!(
            (mark(22_399).step, mark(22_399).exceeded),
            (ThrottleStep::Continue, Some(false))
        );
    }

    #[test]
    fn the_older_kernel_pauses_when_nothing_is_left_to_write() {
        let mut episode = episode(Kernel::V2_6_24, 1000);
        let answer = episode.step(Time(0), &facts(0, 24_000), 0);
        assert_eq!(sleep_ms(answer), Some(100));
        assert_eq!(answer.exceeded, Some(true));
    }
}
