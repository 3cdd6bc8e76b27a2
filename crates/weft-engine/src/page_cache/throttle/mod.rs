//! Seam of throttling policies: the facts that a policy is told, and its answer.
//!
//! A writer that has dirtied its fill looks at the limits. The policy gets [`Facts`] and answers
//! one [`ThrottleStep`]; the writer carries it out and comes back with the next facts, until the
//! answer is [`ThrottleStep::Continue`]. The page cache knows nothing else of a policy, so patch
//! 001 (sleep, never write) is one more file beside the two kernels before the patch. An *episode*
//! is one writer's way from its fill to `Continue`.

mod baseline_2_6_24;
mod baseline_3_1;
mod dirty_throttle;
mod turns;

use super::pool::{Counts, Kernel, Thresholds};
use super::proportion::Fraction;
use super::ticks::TickRate;
pub use dirty_throttle::DirtyThrottle;
pub(crate) use dirty_throttle::{Position, Ratelimit, Rules, Window};
pub(crate) use turns::Turns;
use weft_units::Time;

/// What a policy is told, read at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The limits, pages.
    pub thresholds: Thresholds,
    /// The slow follower of the dirty threshold, pages.
    pub limit: u64,
    /// Pages of all devices.
    pub all: Counts,
    /// Pages of the writer's device.
    pub bdi: Counts,
    /// The device's part of the limits: that of recent completions, within its ratios.
    pub bdi_share: Fraction,
    /// Whether the writer is judged by its device's pages, however few there are in all.
    pub strictlimit: bool,
    /// The writer's part of what was dirtied lately.
    pub writer_share: Fraction,
    /// The device's average write bandwidth, pages per second.
    pub bandwidth: u64,
    /// `dirty_ratelimit`: what each of the device's writers may dirty at the setpoint, pages per
    /// second.
    pub ratelimit: u64,
    /// The writer's own counters.
    pub pace: Pace,
    /// Whether the device's flusher is at work.
    pub flusher_busy: bool,
}

/// Counters of one writer, where writers only sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Pages that became dirty by it since its last look at the limits.
    pub nr_dirtied: u64,
    /// With so many it looks again; with 0 at each page.
    pub nr_dirtied_pause: u64,
    /// The tick from which on its think time counts: the end of its last pause, or a bit off it to
    /// carry what it slept too little or too much.
    pub paused_when: Option<u64>,
}

impl Default for Pace {
    /// A writer that has not dirtied anything.
    fn default() -> Self {
        Self { nr_dirtied: 0, nr_dirtied_pause: 32, paused_when: None }
    }
}

/// Next action of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThrottleStep {
    /// Go on writing.
    Continue,
    /// Sleep.
    Sleep {
        /// At the latest until then.
        until: Time,
        /// Or until any device's queue has room again.
        or_uncongested: bool,
    },
    /// Write back dirty pages of the device, of whatever files, and come back with how many it
    /// were.
    WriteBack {
        /// Largest number of pages.
        pages: u64,
    },
}

/// An answer, with what it changes for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Next action of the writer.
    pub step: ThrottleStep,
    /// A new value for the device's *exceeded* mark: while it is set, writers are looked at every 8
    /// pages.
    pub exceeded: Option<bool>,
    /// New values for the writer's counters.
    pub pace: Option<Pace>,
    /// Whether to wake the device's flusher for background work.
    pub wake_flusher: bool,
}

impl Answer {
    /// A step that changes nothing for others.
    #[must_use]
    pub const fn only(step: ThrottleStep) -> Self {
        Self { step, exceeded: None, pace: None, wake_flusher: false }
    }
}

/// One throttle episode of one writer: from its fill of dirty pages until it may go on.
#[derive(Clone, Copy, Debug)]
pub struct ThrottleEpisode {
    kernel: Kernel,
    ticks: TickRate,
    /// Number of pages that are enough; where writers only sleep, that it has dirtied.
    nr_to_write: u64,
    written: u64,
    start: u64,
    /// The next pause, ticks.
    pause: u64,
    state: State,
}

/// Where an episode is.
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
    /// It may go on; the episode has ended.
    Over,
}

/// What was seen when the limits were last looked at; 3.1 decides by it even after the pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    /// Whether nobody can be over a limit, so that the mark goes.
    may_clear: bool,
    /// Whether a long episode may end though a limit is exceeded.
    bearable: bool,
    background_due: bool,
}

impl ThrottleEpisode {
    /// An episode begins, of a writer that `nr_to_write` pages are asked of or, where writers only
    /// sleep, that has dirtied as many since its last look.
    #[must_use]
    pub fn new(kernel: Kernel, ticks: TickRate, now: Time, nr_to_write: u64) -> Self {
        let start = ticks.tick(now);
        Self { kernel, ticks, nr_to_write, written: 0, start, pause: 1, state: State::Look }
    }

    /// The tick in which the episode began.
    #[must_use]
    pub const fn start(&self) -> u64 {
        self.start
    }

    /// Next action of the writer. `written` is how many pages were written since the last answer,
    /// which is nothing unless that was [`ThrottleStep::WriteBack`].
    ///
    /// # Panics
    /// After [`ThrottleStep::Continue`]; for [`Kernel::Weft`], which goes by credit.
    pub fn step(&mut self, now: Time, facts: &Facts, written: u64) -> Answer {
        assert!(self.state != State::Over, "the episode is over");
        self.written += written;
        match self.kernel {
            Kernel::V2_6_24 => self.step_2_6_24(now, facts),
            Kernel::V3_1 => self.step_3_1(now, facts),
            Kernel::IoLess(variant) => self.step_io_less(variant.rules(), now, facts),
            Kernel::Weft => unreachable!("writers that take turns have no episodes"),
        }
    }

    /// Whether the next step is a judgement by rate and speed: of a writer that only sleeps, unless
    /// its sleep was all that it had to do.
    pub(crate) const fn measures_first(&self) -> bool {
        let slept_enough = matches!(self.state, State::Slept(Look { bearable: true, .. }));
        matches!(self.kernel, Kernel::IoLess(_)) && !slept_enough
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
            pace: None,
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
    use super::*;

    const SOLE: Fraction = Fraction::ONE;

    /// One writer on one disk; limits of 100 MiB.
    pub(super) fn facts(dirty: u64, writeback: u64) -> Facts {
        let counts = Counts { dirty, writeback };
        Facts {
            thresholds: Thresholds { background: 12_800, dirty: 25_600 },
            limit: 25_600,
            all: counts,
            bdi: counts,
            bdi_share: SOLE,
            strictlimit: false,
            writer_share: SOLE,
            bandwidth: 14_848,
            ratelimit: 14_848,
            pace: Pace::default(),
            flusher_busy: true,
        }
    }

    pub(super) fn episode(kernel: Kernel, hz: u32) -> ThrottleEpisode {
        ThrottleEpisode::new(kernel, TickRate::new(hz), Time(0), 1536)
    }

    pub(super) fn sleep_ms(answer: Answer) -> Option<u64> {
        match answer.step {
            ThrottleStep::Sleep { until, .. } => Some(until.0 / 1_000_000),
            ThrottleStep::Continue | ThrottleStep::WriteBack { .. } => None,
        }
    }
}
