//! Throttling of 3.1, before patch 001: a writer over its limit writes back, then pauses.
//!
//! A writer over its limit makes a pass over the device's dirty files like a flusher, whichever
//! process dirtied them, until it has written about one and a half times as many pages as it
//! dirtied. It pauses if it can write no page because all dirty pages are already under writeback.
//!
//! No writer is throttled below the mean of the two thresholds. Above that, a writer over its limit
//! on its device, or any writer if the total exceeds the dirty threshold, writes or pauses for 1,
//! 2, 4, … ticks, up to 100 ms. It continues when it has written enough, when it is below the
//! limits, or after 200 ms if these are exceeded only slightly. A pool that the disk drains in 17
//! ms becomes empty during the longer pauses.
//!
//! Inputs   [`Facts`], the number of pages written
//! Answer   [`Answer`]
//! Source   writeback.md §1.3 and §1.4
//! Compare  patch 001, where writers only sleep: `dirty_throttle.rs`

use weft_units::Time;

use super::{Answer, Facts, Look, State, ThrottleEpisode, ThrottleStep, task_limit};

impl ThrottleEpisode {
    pub(super) fn step_3_1(&mut self, now: Time, facts: &Facts) -> Answer {
        match self.state {
            State::Look | State::Over => {}
            State::Wrote(look) => {
                if self.written >= self.nr_to_write {
                    return self.go_on(facts, look);
                }
                return self.pause(now, look);
            }
            State::Slept(look) => {
                let long = self.ticks.tick(now) > self.start + self.ticks.hz() / 5;
                if look.bearable && long {
                    return self.go_on(facts, look);
                }
                self.pause = (2 * self.pause).min((self.ticks.hz() / 10).max(1));
            }
        }
        let thresholds = facts.thresholds;
        let background_due = facts.all.dirty > thresholds.background;
        let total = facts.all.total();
        if total <= u64::midpoint(thresholds.background, thresholds.dirty) {
            let look = Look { may_clear: true, bearable: true, background_due };
            return self.go_on(facts, look);
        }
        let bdi_limit = facts.bdi_share.of(thresholds.dirty);
        let task_limit = task_limit(facts, bdi_limit);
        let bdi_total = facts.bdi.total();
        let too_much = total > thresholds.dirty;
        let look = Look {
            may_clear: bdi_total <= bdi_limit - bdi_limit / 8 && !too_much,
            bearable: total < thresholds.dirty.max(facts.limit)
                && bdi_total < u64::midpoint(task_limit, bdi_limit),
            background_due,
        };
        if bdi_total <= task_limit && !too_much {
            return self.go_on(facts, look);
        }
        if facts.bdi.dirty > task_limit {
            self.state = State::Wrote(look);
            let step = ThrottleStep::WriteBack { pages: self.nr_to_write };
            return Answer { exceeded: Some(true), ..Answer::only(step) };
        }
        // Only a writer that has just written is compared with `nr_to_write`. If the pages are
        // already under writeback, the writer pauses.
        Answer { exceeded: Some(true), ..self.pause(now, look) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{episode, facts, sleep_ms};
    use super::*;
    use crate::page_cache::pool::{Counts, Kernel};
    use crate::page_cache::proportion::Fraction;

    #[test]
    fn writeback_statement_47_limits_of_a_writer() {
        let with_share = |numerator, denominator| Facts {
            writer_share: Fraction { numerator, denominator },
            ..facts(0, 0)
        };
        assert_eq!(task_limit(&with_share(1, 1), 25_600), 22_400);
        assert_eq!(task_limit(&with_share(1, 10), 25_600), 25_280);
        assert_eq!(task_limit(&with_share(9, 1), 25_600), 12_800, "never below half");
    }

    #[test]
    fn nothing_happens_up_to_half_way() {
        let free = facts(19_200, 0);
        let flusher_asleep = Facts { flusher_busy: false, ..free };
        let answer = episode(Kernel::V3_1, 250).step(Time(0), &flusher_asleep, 0);
        let go_on = Answer::only(ThrottleStep::Continue);
        let expected = Answer { exceeded: Some(false), wake_flusher: true, ..go_on };
        assert_eq!(answer, expected);
        let answer = episode(Kernel::V3_1, 250).step(Time(0), &free, 0);
        assert!(!answer.wake_flusher, "it is at work already");
        // Exactly half-way: 2.6.24 has a free run only strictly below it, and continues here
        // because the device is below its limit.
        let answer = episode(Kernel::V2_6_24, 250).step(Time(0), &flusher_asleep, 0);
        assert_eq!(answer, Answer { exceeded: Some(false), ..expected });
    }

    #[test]
    fn over_the_limit_it_writes_and_its_nr_to_write_is_enough() {
        let mut episode = episode(Kernel::V3_1, 250);
        let over = facts(23_000, 0);
        let answer = episode.step(Time(0), &over, 0);
        assert_eq!(answer.step, ThrottleStep::WriteBack { pages: 1536 });
        assert_eq!(answer.exceeded, Some(true));
        let answer = episode.step(Time(0), &facts(21_464, 1536), 1536);
        assert_eq!(answer.step, ThrottleStep::Continue);
        assert_eq!(answer.exceeded, None, "23,000 is above seven eighths");
    }

    #[test]
    fn a_nr_to_write_half_done_is_followed_by_a_pause_and_a_look() {
        let mut episode = episode(Kernel::V3_1, 250);
        assert_eq!(
            episode.step(Time(0), &facts(23_000, 0), 0).step,
            ThrottleStep::WriteBack { pages: 1536 }
        );
        assert_eq!(sleep_ms(episode.step(Time(0), &facts(22_000, 1000), 1000)), Some(4));
        let answer = episode.step(Time(4_000_000), &facts(22_500, 500), 0);
        assert_eq!(answer.step, ThrottleStep::WriteBack { pages: 1536 });
        assert_eq!(
            episode.step(Time(4_000_000), &facts(22_000, 536), 536).step,
            ThrottleStep::Continue
        );
    }

    #[test]
    fn writeback_statements_48_and_49_pauses_and_the_way_out_after_200_ms() {
        // All pages are under writeback: below 24,000 (the bound of statement 48) and above 22,400.
        let table: [(u32, &[u64]); 3] = [
            (1000, &[1, 3, 7, 15, 31, 63, 127, 227]),
            (250, &[4, 12, 28, 60, 124, 224]),
            (100, &[10, 30, 70, 150, 250]),
        ];
        for (hz, pauses) in table {
            for (writeback, leaves) in [(23_999, true), (24_000, false)] {
                let mut episode = episode(Kernel::V3_1, hz);
                let mut now = Time(0);
                let mut seen = Vec::new();
                let last = loop {
                    let answer = episode.step(now, &facts(0, writeback), 0);
                    let ThrottleStep::Sleep { until, or_uncongested: false } = answer.step else {
                        break answer;
                    };
                    now = until;
                    seen.push(until.0 / 1_000_000);
                    if seen.len() > pauses.len() {
                        break answer;
                    }
                };
                assert_eq!(seen[..pauses.len()], *pauses, "HZ {hz}");
                assert_eq!(
                    last.step == ThrottleStep::Continue,
                    leaves,
                    "HZ {hz}, {writeback} pages"
                );
            }
        }
    }

    #[test]
    fn a_writer_to_an_idle_disk_sleeps_because_of_the_others() {
        let mut episode = episode(Kernel::V3_1, 250);
        let all = Counts { dirty: 26_000, writeback: 0 };
        let idle = Counts { dirty: 10, writeback: 0 };
        let share = Fraction { numerator: 1, denominator: 10 };
        let facts = Facts { all, bdi: idle, bdi_share: share, ..facts(0, 0) };
        assert_eq!(sleep_ms(episode.step(Time(0), &facts, 0)), Some(4));
    }

    #[test]
    fn the_mark_stays_while_a_writer_can_be_over_a_limit() {
        // Total of all devices, total of the device, and the flag at the end.
        let table = [(20_000, 22_400, Some(false)), (20_000, 22_401, None), (26_000, 1_000, None)];
        for (all, bdi, mark) in table {
            let all = Counts { dirty: 0, writeback: all };
            let bdi = Counts { dirty: 0, writeback: bdi };
            let facts = Facts { all, bdi, limit: 30_000, ..facts(0, 0) };
            let mut episode = episode(Kernel::V3_1, 1000);
            let mut now = Time(0);
            let last = loop {
                let answer = episode.step(now, &facts, 0);
                match answer.step {
                    ThrottleStep::Sleep { until, .. } => now = until,
                    ThrottleStep::Continue => break answer,
                    ThrottleStep::WriteBack { .. } => unreachable!("nothing is dirty"),
                }
            };
            assert_eq!(last.exceeded, mark, "{all:?} {bdi:?}");
        }
    }

    #[test]
    fn a_writer_with_all_pages_under_writeback_pauses_and_marks_the_device() {
        let answer = episode(Kernel::V3_1, 250).step(Time(0), &facts(0, 24_000), 0);
        assert_eq!((sleep_ms(answer), answer.exceeded), (Some(4), Some(true)));
    }
}
