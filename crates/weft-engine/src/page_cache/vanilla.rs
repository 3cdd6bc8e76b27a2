//! Throttling before patch 001: writers over their limit write back themselves (3.1 and 2.6.24).
//!
//! A writer over its limit makes a pass over the device's dirty files as a flusher does, whichever
//! process dirtied them, until it has written about one
//! and a half times what it dirtied, and pauses when there is nothing to write but everything is
//! under way. Two rules of it:
//!
//! *3.1* (the baseline of patch 001). Nothing happens below half-way between the two limits. Above,
//! a writer whose device is over the writer's limit, or anyone when all is over, writes or pauses
//! 1, 2, 4, … ticks up to 100 ms. It goes on when it has written enough, when it is below, or after
//! 200 ms if things are not too bad. A pool that the disk drains in 17 ms stands empty during the
//! longer pauses.
//!
//! *2.6.24* (the kernel of patch 000). The device's share of the limit is cut to what is left of
//! the whole; a writer over it writes, or waits up to 100 ms for any queue to have room.
//!
//! Inputs   [`Facts`], how much it has written
//! Answer   [`Answer`]
//! Source   writeback.md §1.3 and §1.4 for 3.1; for 2.6.24 mm/page-writeback.c and
//!          mm/backing-dev.c, January 2008
//! Compare  patch 001, which only sleeps; to come as `dirty_throttle.rs`

use super::pool::Kernel;
use super::throttle::{Answer, Facts, ThrottleStep};
use super::ticks::TickRate;
use weft_units::Time;

/// One visit of one writer.
#[derive(Clone, Copy, Debug)]
pub struct Vanilla {
    kernel: Kernel,
    ticks: TickRate,
    /// Number of pages that are enough.
    nr_to_write: u64,
    written: u64,
    start: u64,
    /// The next pause, ticks.
    pause: u64,
    state: State,
}

/// Where a visit is.
///
/// ```text
/// Look ──▶ WriteBack ──▶ Wrote ──▶ Sleep ──▶ Slept ──▶ Look
///   │ │                    ▲                   │
///   │ └────────────────────┘ nothing to write  │
///   └──────────▶ Continue ◀──── Wrote, Slept ──┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The limits are looked at next.
    Look,
    /// It has written what it could, or found nothing to write.
    Wrote(Look),
    /// It has slept.
    Slept(Look),
    /// It may go on; there is no visit any more.
    Over,
}

/// What was seen when the limits were last looked at; 3.1 decides by it even after the pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    /// Whether nobody can be over a limit, so that the mark goes.
    may_clear: bool,
    /// Whether a long visit may end though a limit is exceeded.
    bearable: bool,
    background_due: bool,
}

impl Vanilla {
    /// A visit begins, of a writer that `nr_to_write` pages are asked of.
    #[must_use]
    pub fn new(kernel: Kernel, ticks: TickRate, now: Time, nr_to_write: u64) -> Self {
        let start = ticks.tick(now);
        Self { kernel, ticks, nr_to_write, written: 0, start, pause: 1, state: State::Look }
    }

    /// The tick in which the visit began.
    #[must_use]
    pub const fn start(&self) -> u64 {
        self.start
    }

    /// Next action of the writer. `written` is how many pages were written since the last answer,
    /// which is nothing unless that was [`ThrottleStep::WriteBack`].
    ///
    /// # Panics
    /// After [`ThrottleStep::Continue`].
    pub fn step(&mut self, now: Time, facts: &Facts, written: u64) -> Answer {
        assert!(self.state != State::Over, "the visit is over");
        self.written += written;
        match self.kernel {
            Kernel::V2_6_24 => self.step_2_6_24(now, facts),
            Kernel::V3_1 => self.step_3_1(now, facts),
        }
    }

    fn step_3_1(&mut self, now: Time, facts: &Facts) -> Answer {
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
        // Its `nr_to_write` is measured only when it has just written; what is under way already is
        // paused for.
        Answer { exceeded: Some(true), ..self.pause(now, look) }
    }

    fn step_2_6_24(&mut self, now: Time, facts: &Facts) -> Answer {
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

    fn pause(&mut self, now: Time, look: Look) -> Answer {
        self.state = State::Slept(look);
        let until = self.ticks.wake(now, self.pause);
        Answer::only(ThrottleStep::Sleep { until, or_uncongested: false })
    }

    fn go_on(&mut self, facts: &Facts, look: Look) -> Answer {
        self.state = State::Over;
        Answer {
            step: ThrottleStep::Continue,
            exceeded: look.may_clear.then_some(false),
            wake_flusher: look.background_due && !facts.flusher_busy,
        }
    }
}

/// A device's limit for one writer: up to an eighth lower for who dirties most, never below half.
fn task_limit(facts: &Facts, bdi_limit: u64) -> u64 {
    bdi_limit.saturating_sub(facts.writer_share.of(bdi_limit / 8)).max(bdi_limit / 2)
}

#[cfg(test)]
mod tests {
    use super::super::pool::{Counts, Thresholds};
    use super::super::proportion::Fraction;
    use super::*;

    const SOLE: Fraction = Fraction::ONE;

    /// One writer on one disk; limits of 100 MiB.
    fn facts(dirty: u64, writeback: u64) -> Facts {
        let counts = Counts { dirty, writeback };
        Facts {
            thresholds: Thresholds { background: 12_800, dirty: 25_600 },
            limit: 25_600,
            all: counts,
            bdi: counts,
            bdi_share: SOLE,
            writer_share: SOLE,
            flusher_busy: true,
        }
    }

    fn visit(kernel: Kernel, hz: u32) -> Vanilla {
        Vanilla::new(kernel, TickRate::new(hz), Time(0), 1536)
    }

    fn sleep_ms(answer: Answer) -> Option<u64> {
        match answer.step {
            ThrottleStep::Sleep { until, .. } => Some(until.0 / 1_000_000),
            ThrottleStep::Continue | ThrottleStep::WriteBack { .. } => None,
        }
    }

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
        let answer = visit(Kernel::V3_1, 250).step(Time(0), &flusher_asleep, 0);
        let expected =
            Answer { step: ThrottleStep::Continue, exceeded: Some(false), wake_flusher: true };
        assert_eq!(answer, expected);
        let answer = visit(Kernel::V3_1, 250).step(Time(0), &free, 0);
        assert!(!answer.wake_flusher, "it is at work already");
        // Half-way itself: the older kernel goes on strictly below it, here because the disk is
        // below.
        let answer = visit(Kernel::V2_6_24, 250).step(Time(0), &flusher_asleep, 0);
        assert_eq!(answer, Answer { exceeded: Some(false), ..expected });
    }

    #[test]
    fn over_the_limit_it_writes_and_its_nr_to_write_is_enough() {
        let mut visit = visit(Kernel::V3_1, 250);
        let over = facts(23_000, 0);
        let answer = visit.step(Time(0), &over, 0);
        assert_eq!(answer.step, ThrottleStep::WriteBack { pages: 1536 });
        assert_eq!(answer.exceeded, Some(true));
        let answer = visit.step(Time(0), &facts(21_464, 1536), 1536);
        assert_eq!(answer.step, ThrottleStep::Continue);
        assert_eq!(answer.exceeded, None, "23,000 is above seven eighths");
    }

    #[test]
    fn a_nr_to_write_half_done_is_followed_by_a_pause_and_a_look() {
        let mut visit = visit(Kernel::V3_1, 250);
        assert_eq!(
            visit.step(Time(0), &facts(23_000, 0), 0).step,
            ThrottleStep::WriteBack { pages: 1536 }
        );
        assert_eq!(sleep_ms(visit.step(Time(0), &facts(22_000, 1000), 1000)), Some(4));
        let answer = visit.step(Time(4_000_000), &facts(22_500, 500), 0);
        assert_eq!(answer.step, ThrottleStep::WriteBack { pages: 1536 });
        assert_eq!(
            visit.step(Time(4_000_000), &facts(22_000, 536), 536).step,
            ThrottleStep::Continue
        );
    }

    #[test]
    fn writeback_statements_48_and_49_pauses_and_the_way_out_after_200_ms() {
        // All under way already, below 24,000 (the bound of statement 48), over 22,400.
        let table: [(u32, &[u64]); 3] = [
            (1000, &[1, 3, 7, 15, 31, 63, 127, 227]),
            (250, &[4, 12, 28, 60, 124, 224]),
            (100, &[10, 30, 70, 150, 250]),
        ];
        for (hz, pauses) in table {
            for (writeback, leaves) in [(23_999, true), (24_000, false)] {
                let mut visit = visit(Kernel::V3_1, hz);
                let mut now = Time(0);
                let mut seen = Vec::new();
                let last = loop {
                    let answer = visit.step(now, &facts(0, writeback), 0);
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
        let mut visit = visit(Kernel::V3_1, 250);
        let all = Counts { dirty: 26_000, writeback: 0 };
        let idle = Counts { dirty: 10, writeback: 0 };
        let share = Fraction { numerator: 1, denominator: 10 };
        let facts = Facts { all, bdi: idle, bdi_share: share, ..facts(0, 0) };
        assert_eq!(sleep_ms(visit.step(Time(0), &facts, 0)), Some(4));
    }

    #[test]
    fn the_mark_stays_while_anybody_can_be_over_a_limit() {
        // (total of all, total of the device, limit behind the threshold) → the mark at the end.
        let table = [(20_000, 22_400, Some(false)), (20_000, 22_401, None), (26_000, 1_000, None)];
        for (all, bdi, mark) in table {
            let all = Counts { dirty: 0, writeback: all };
            let bdi = Counts { dirty: 0, writeback: bdi };
            let facts = Facts { all, bdi, limit: 30_000, ..facts(0, 0) };
            let mut visit = visit(Kernel::V3_1, 1000);
            let mut now = Time(0);
            let last = loop {
                let answer = visit.step(now, &facts, 0);
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
    fn the_older_kernel_waits_100_ms_or_for_room_in_a_queue() {
        let mut visit = visit(Kernel::V2_6_24, 250);
        let answer = visit.step(Time(0), &facts(23_000, 0), 0);
        assert_eq!(answer.step, ThrottleStep::WriteBack { pages: 1536 });
        let answer = visit.step(Time(0), &facts(22_000, 1000), 1000);
        let until = Time(100_000_000);
        assert_eq!(answer.step, ThrottleStep::Sleep { until, or_uncongested: true });
        // Written in all, not since the pause.
        let answer = visit.step(until, &facts(22_500, 500), 0);
        assert_eq!(answer.step, ThrottleStep::WriteBack { pages: 1536 });
        assert_eq!(visit.step(until, &facts(22_000, 1000), 536).step, ThrottleStep::Continue);
    }

    #[test]
    fn the_older_kernel_looks_again_after_it_has_written() {
        let mut visit = visit(Kernel::V2_6_24, 250);
        assert_eq!(
            visit.step(Time(0), &facts(23_000, 0), 0).step,
            ThrottleStep::WriteBack { pages: 1536 }
        );
        let answer = visit.step(Time(0), &facts(21_000, 1000), 500);
        assert_eq!(answer.step, ThrottleStep::Continue, "22,000 is not over 22,400");
        assert_eq!(answer.exceeded, Some(false));
    }

    #[test]
    fn the_older_kernel_cuts_a_share_to_what_is_left() {
        // Another device holds 20,000 of 25,600, so that only 5,600 are left for this one.
        let of = |dirty| {
            let all = Counts { dirty: 20_000 + dirty, writeback: 0 };
            Facts { all, bdi: Counts { dirty, writeback: 0 }, ..facts(0, 0) }
        };
        let step = |dirty| visit(Kernel::V2_6_24, 250).step(Time(0), &of(dirty), 0).step;
        assert_eq!(step(4900), ThrottleStep::Continue);
        assert_eq!(step(4901), ThrottleStep::WriteBack { pages: 1536 });
    }

    #[test]
    fn the_older_kernel_has_its_own_edges() {
        // Half-way is 19,200; here the device has no share, so that only this holds the writer
        // back.
        let none = Fraction { numerator: 0, denominator: 1 };
        let step = |dirty| {
            let facts = Facts { bdi_share: none, ..facts(dirty, 0) };
            visit(Kernel::V2_6_24, 250).step(Time(0), &facts, 0).step
        };
        assert_eq!(step(19_199), ThrottleStep::Continue);
        assert_eq!(step(19_200), ThrottleStep::WriteBack { pages: 1536 });
        // Exactly at its limit a writer goes on, and the mark stays.
        let mark = |dirty| visit(Kernel::V2_6_24, 250).step(Time(0), &facts(dirty, 0), 0);
        assert_eq!((mark(22_400).step, mark(22_400).exceeded), (ThrottleStep::Continue, None));
        assert_eq!(
            (mark(22_399).step, mark(22_399).exceeded),
            (ThrottleStep::Continue, Some(false))
        );
    }

    #[test]
    fn the_older_kernel_pauses_when_nothing_is_left_to_write() {
        let mut visit = visit(Kernel::V2_6_24, 1000);
        let answer = visit.step(Time(0), &facts(0, 24_000), 0);
        assert_eq!(sleep_ms(answer), Some(100));
        assert_eq!(answer.exceeded, Some(true));
    }
}
