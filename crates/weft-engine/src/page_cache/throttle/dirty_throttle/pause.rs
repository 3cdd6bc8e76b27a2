//! Pause of a writer, in ticks, and the number of pages until its next check.
//!
//! A pause is the time that the writer's pages take at its rate. Later kernels subtract the time
//! that the writer took to dirty them, and carry over a remainder that is too short to sleep. The
//! number of pages that the writer may dirty until the next check is chosen for pauses from 10 ms
//! for few writers to 200 ms for many.
//!
//! Source   writeback.md §2.4

use super::super::Pace;
use super::Rules;

/// Facts that determine the pause of one writer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judged {
    pub(super) hz: u64,
    pub(super) tick: u64,
    /// Average write bandwidth of the device, in pages per second.
    pub(super) bandwidth: u64,
    /// `dirty_ratelimit`, in pages per second.
    pub(super) ratelimit: u64,
    /// `ratelimit` times the position ratio, in pages per second.
    pub(super) task_ratelimit: u64,
    /// Number of pages of the device that are dirty or under writeback.
    pub(super) bdi_dirty: u64,
    /// Number of pages that the writer has dirtied since its last check of the limits.
    pub(super) dirtied: u64,
    pub(super) pace: Pace,
}

/// Decision about the pause of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sleep {
    /// The writer continues at once.
    None,
    /// The writer sleeps this many ticks.
    Ticks(u64),
}

impl Judged {
    /// Decides how long the writer pauses, and computes its new counters. With `held`, the writer
    /// is held at the hard limit: it sleeps for the longest pause and is then checked again.
    pub(super) fn decide(&self, rules: &Rules, held: bool) -> (Sleep, Pace) {
        if rules.think_time { self.decide_by_think_time(held) } else { self.decide_v12(held) }
    }

    fn decide_v12(&self, held: bool) -> (Sleep, Pace) {
        let max = self.max_pause_v12();
        let pace = Pace { nr_dirtied: 0, ..self.pace };
        if held {
            return (Sleep::Ticks(max), pace);
        }
        let pause = (self.hz * self.dirtied / (self.task_ratelimit | 1)).min(max);
        if pause == 0 {
            return (Sleep::None, pace);
        }
        let nr_dirtied_pause = self.next_size_v12(pause, max);
        (Sleep::Ticks(pause), Pace { nr_dirtied_pause, ..pace })
    }

    fn max_pause_v12(&self) -> u64 {
        let hz = self.hz;
        let mut most = hz / 50 + self.writers_log2() * (20 * hz) / 1024;
        if self.bdi_dirty > 0 {
            most = most.min(self.bdi_dirty * hz / (8 * self.bandwidth + 1));
        }
        most.clamp(4, max_pause(hz).max(4))
    }

    /// Number of pages until the next check, after a pause of `pause` ticks out of at most `max`:
    /// larger if pauses are short, smaller if they have the maximum length.
    fn next_size_v12(&self, pause: u64, max: u64) -> u64 {
        let (dirtied, size) = (self.dirtied, self.pace.nr_dirtied_pause);
        let aim = self.ratelimit * (max / 2) / self.hz;
        if pause <= max / 4 && dirtied >= size {
            aim.clamp(dirtied + dirtied / 8, 4 * dirtied)
        } else if pause >= max {
            1 | aim.clamp(dirtied / 4, dirtied - dirtied / 8)
        } else {
            size
        }
    }

    fn decide_by_think_time(&self, held: bool) -> (Sleep, Pace) {
        let tick = self.tick;
        let max = self.max_pause();
        let (min, size) = self.min_pause(max);
        let slept = |pause: u64, base: u64| {
            let paused_when = Some(base + pause);
            (Sleep::Ticks(pause), Pace { nr_dirtied: 0, nr_dirtied_pause: size, paused_when })
        };
        if held {
            return slept(max, tick);
        }
        let period = self.hz * self.dirtied / self.task_ratelimit;
        let since = self.pace.paused_when.unwrap_or(tick);
        // The rest of a pause that was too short or too long is carried over.
        let due = since.saturating_add(period);
        if due < tick + min {
            let mut pace = self.pace;
            if due + self.hz < tick {
                pace = Pace { nr_dirtied: 0, paused_when: Some(tick), ..pace };
            } else if period > 0 {
                pace = Pace { nr_dirtied: 0, paused_when: Some(due), ..pace };
            } else if pace.nr_dirtied_pause <= self.dirtied {
                pace.nr_dirtied_pause += self.dirtied;
            }
            return (Sleep::None, pace);
        }
        let pause = due - tick;
        slept(pause.min(max), tick + pause.saturating_sub(max).min(max))
    }

    fn max_pause(&self) -> u64 {
        let per_eighth = self.bandwidth / (1 + self.hz / 8).next_power_of_two();
        (1 + self.bdi_dirty / (1 + per_eighth)).min(max_pause(self.hz))
    }

    /// Shortest useful pause in ticks, and number of pages until the next check. `max` is the
    /// longest pause in ticks.
    fn min_pause(&self, max: u64) -> (u64, u64) {
        let hz = self.hz;
        let second = hz.next_power_of_two();
        let mut ticks = (hz / 100).max(1) + self.writers_log2() * (10 * hz) / 1024;
        ticks = ticks.min(1 + max / 2);
        let mut pages = self.ratelimit * ticks / second;
        if pages < DIRTY_POLL_THRESH {
            ticks = max;
            pages = self.ratelimit * ticks / second;
            if pages > DIRTY_POLL_THRESH {
                pages = DIRTY_POLL_THRESH;
                ticks = hz * DIRTY_POLL_THRESH / self.ratelimit;
            }
        }
        if hz * pages / (self.task_ratelimit + 1) > max {
            ticks = max;
            pages = self.task_ratelimit * ticks / second;
        }
        (if pages >= DIRTY_POLL_THRESH { 1 + ticks / 2 } else { ticks }, pages)
    }

    /// Base-2 logarithm of the estimated number of writers of the device.
    fn writers_log2(&self) -> u64 {
        let log2 = |rate: u64| u64::from(rate.max(1).ilog2());
        log2(self.bandwidth).saturating_sub(log2(self.ratelimit))
    }
}

/// Number of pages until the next check of a writer in free run: about the square root of the pages
/// that are left below `thresh`, at least 1.
pub(super) fn poll_interval(dirty: u64, thresh: u64) -> u64 {
    match thresh.checked_sub(dirty) {
        None | Some(0) => 1,
        Some(left) => 1 << (left.ilog2() / 2),
    }
}

/// Longest pause: 200 ms in ticks.
fn max_pause(hz: u64) -> u64 {
    (hz / 5).max(1)
}

/// Number of pages below which a check of the limits costs more than it gains: 128 KiB.
const DIRTY_POLL_THRESH: u64 = 32;

#[cfg(test)]
mod tests {
    use super::super::DirtyThrottle::{Mainline3_2, Mainline6_12};
    use super::*;

    /// Facts of a disk of 58 MiB/s with all its writers at the setpoint, HZ 1000.
    fn judged(ratelimit: u64, bdi_dirty: u64) -> Judged {
        Judged {
            hz: 1000,
            tick: 5000,
            bandwidth: 14_848,
            ratelimit,
            task_ratelimit: ratelimit,
            bdi_dirty,
            dirtied: 32,
            pace: Pace { nr_dirtied: 32, nr_dirtied_pause: 32, paused_when: Some(5000) },
        }
    }

    #[test]
    fn writeback_statement_41_longest_pause_of_3_2() {
        let table =
            [(14_848, 22_400, 20), (1485, 22_400, 78), (148, 22_400, 137), (14_848, 224, 4)];
        for (ratelimit, bdi_dirty, ticks) in table {
            assert_eq!(judged(ratelimit, bdi_dirty).max_pause_v12(), ticks, "{ratelimit}");
        }
        assert_eq!(judged(1485, 1792).max_pause_v12(), 15);
    }

    #[test]
    fn writeback_statement_42_pause_and_next_look_of_3_2() {
        for (ratelimit, pause, size) in [(14_848, 2, 128), (1485, 21, 32), (148, 137, 11)] {
            let (sleep, pace) = judged(ratelimit, 22_400).decide(Mainline3_2.rules(), false);
            assert_eq!((sleep, pace.nr_dirtied_pause), (Sleep::Ticks(pause), size), "{ratelimit}");
            assert_eq!(pace.nr_dirtied, 0);
        }
        let fast = Judged { task_ratelimit: 40_000, ..judged(14_848, 22_400) };
        let (sleep, pace) = fast.decide(Mainline3_2.rules(), false);
        assert_eq!((sleep, pace.nr_dirtied, pace.nr_dirtied_pause), (Sleep::None, 0, 32));
    }

    #[test]
    fn writeback_statement_43_longest_pause_of_today() {
        for (bdi_dirty, ticks) in [(22_400, 192), (2240, 20), (1792, 16), (224, 2)] {
            assert_eq!(judged(14_848, bdi_dirty).max_pause(), ticks, "{bdi_dirty}");
        }
    }

    #[test]
    fn writeback_statement_44_shortest_pause_and_next_look_of_today() {
        let table = [
            (14_848, 22_400, (6, 145)),
            (7424, 22_400, (10, 137)),
            (1485, 22_400, (20, 56)),
            (148, 22_400, (192, 27)),
            (14_848, 1792, (5, 130)),
            (14_848, 224, (2, 29)),
        ];
        for (ratelimit, bdi_dirty, expected) in table {
            let judged = judged(ratelimit, bdi_dirty);
            assert_eq!(judged.min_pause(judged.max_pause()), expected, "{ratelimit} {bdi_dirty}");
        }
    }

    #[test]
    fn writeback_statement_45_four_ticks_of_250_hz_outlast_a_pool_of_1_mib() {
        let at = |hz| Judged { hz, ..judged(14_848, 224) }.max_pause_v12() * 1000 / hz;
        let drain_ms = 224 * 1000 / 14_848;
        assert_eq!((at(250), at(1000), drain_ms), (16, 4, 15));
    }

    #[test]
    fn writeback_statement_46_looks_of_a_writer_that_nothing_holds_back() {
        let table = [(0, 25_600, 128), (19_000, 25_600, 64), (25_600, 25_600, 1)];
        for (dirty, thresh, pages) in table {
            assert_eq!(poll_interval(dirty, thresh), pages, "{dirty}");
        }
        assert_eq!((poll_interval(0, 256), poll_interval(127, 256)), (16, 8));
        assert_eq!(poll_interval(30_000, 25_600), 1);
    }

    #[test]
    fn time_spent_dirtying_shortens_a_pause_and_what_is_left_is_carried() {
        // 32 pages at 1,485 pages/s are 21 ticks; the shortest pause is 20.
        let at = |paused_when| {
            let pace = Pace { paused_when, ..judged(0, 0).pace };
            Judged { pace, ..judged(1485, 22_400) }.decide(Mainline6_12.rules(), false)
        };
        let paused = Some(5021);
        let slept = Pace { nr_dirtied: 0, nr_dirtied_pause: 56, paused_when: paused };
        assert_eq!(at(Some(5000)), (Sleep::Ticks(21), slept));
        assert_eq!(at(Some(4999)), (Sleep::Ticks(20), Pace { paused_when: Some(5020), ..slept }));
        let carried = Pace { nr_dirtied: 0, nr_dirtied_pause: 32, paused_when: Some(5019) };
        assert_eq!(at(Some(4998)), (Sleep::None, carried));
        // A delay of more than a second is not carried over.
        assert_eq!(at(Some(3000)), (Sleep::None, Pace { paused_when: Some(5000), ..carried }));
        assert_eq!(at(None), (Sleep::Ticks(21), slept), "a writer that never paused");
    }

    #[test]
    fn a_pause_cut_short_is_carried_up_to_as_much_again() {
        // 32 pages at 50 pages/s are 640 ticks, of which 192 are slept and 192 carried over.
        let slow = Judged { task_ratelimit: 50, ..judged(148, 22_400) };
        let (sleep, pace) = slow.decide(Mainline6_12.rules(), false);
        assert_eq!((sleep, pace.paused_when), (Sleep::Ticks(192), Some(5000 + 2 * 192)));
    }

    #[test]
    fn pages_too_few_for_a_tick_are_counted_on() {
        let fast = Judged { task_ratelimit: 40_000, ..judged(14_848, 22_400) };
        let (sleep, pace) = fast.decide(Mainline6_12.rules(), false);
        assert_eq!((sleep, pace), (Sleep::None, Pace { nr_dirtied_pause: 64, ..fast.pace }));
        let early = Judged { pace: Pace { nr_dirtied_pause: 64, ..fast.pace }, ..fast };
        assert_eq!(early.decide(Mainline6_12.rules(), false).1, early.pace, "triggered by a CPU");
    }

    #[test]
    fn a_held_writer_sleeps_longest_and_then_looks_at_each_page() {
        let held = Judged { task_ratelimit: 0, ..judged(14_848, 224) };
        let (sleep, pace) = held.decide(Mainline6_12.rules(), true);
        assert_eq!((sleep, pace.nr_dirtied_pause), (Sleep::Ticks(2), 0));
        let (sleep, pace) = held.decide(Mainline3_2.rules(), true);
        assert_eq!((sleep, pace.nr_dirtied_pause), (Sleep::Ticks(4), 32));
    }

    #[test]
    fn the_next_look_after_a_pause_of_full_length_is_an_eighth_earlier_at_least() {
        let judged = Judged { dirtied: 800, ..judged(1 << 30, 22_400) };
        assert_eq!(judged.next_size_v12(200, 200), 701);
        let judged = Judged { ratelimit: 1, ..judged };
        assert_eq!(judged.next_size_v12(200, 200), 201, "a quarter at least");
    }

    #[test]
    fn a_delay_of_exactly_a_second_is_carried_over() {
        let at = |paused_when| {
            let pace = Pace { paused_when: Some(paused_when), ..judged(0, 0).pace };
            let judged = Judged { pace, ..judged(1485, 22_400) };
            judged.decide(Mainline6_12.rules(), false).1.paused_when
        };
        // The pause of 21 ticks would have ended at 4,000, and it is 5,000.
        assert_eq!((at(3_979), at(3_978)), (Some(4_000), Some(5_000)));
    }
}
