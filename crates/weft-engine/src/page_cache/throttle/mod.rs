//! Throttling policy interface: the facts that a policy gets, and its answer.
//!
//! A writer that has dirtied as many pages as it may checks the limits. The policy gets [`Facts`]
//! and returns one [`ThrottleStep`]. The writer executes the step and returns with new facts, until
//! the step is [`ThrottleStep::Continue`]. The page cache depends on no other property of a policy,
//! so patch 001 (sleep, never write) is one more file beside the two kernels before the patch. An
//! *episode* lasts from a check of the limits to `Continue`.

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

/// Facts from which a policy decides, read at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The thresholds, in pages.
    pub thresholds: Thresholds,
    /// The kernel's `limit` in pages, which follows the dirty threshold slowly.
    pub limit: u64,
    /// Page counts of all devices.
    pub all: Counts,
    /// Page counts of the writer's device.
    pub bdi: Counts,
    /// The device's share of the limits: its share of recent completions, within its ratios.
    pub bdi_share: Fraction,
    /// Whether the writer is throttled by the dirty pages of its device even if few pages are dirty
    /// in total.
    pub strictlimit: bool,
    /// The writer's share of the pages dirtied recently.
    pub writer_share: Fraction,
    /// Average write bandwidth of the device, in pages per second.
    pub bandwidth: u64,
    /// `dirty_ratelimit`: the rate at which each writer of the device may dirty pages at the
    /// setpoint, in pages per second.
    pub ratelimit: u64,
    /// The writer's counters.
    pub pace: Pace,
    /// Whether the device's flusher is working.
    pub flusher_busy: bool,
}

/// Counters of one writer for IO-less throttling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Number of pages that the writer has dirtied since its last check of the limits.
    pub nr_dirtied: u64,
    /// Number of dirtied pages at which the writer checks the limits again; 0: at every page.
    pub nr_dirtied_pause: u64,
    /// Tick from which think time counts: the end of the last pause, shifted by the time by which
    /// the pause was too short or too long, so that this time is carried over. `None` before the
    /// first pause.
    pub paused_when: Option<u64>,
}

impl Default for Pace {
    /// Counters of a writer that has not dirtied anything.
    fn default() -> Self {
        Self { nr_dirtied: 0, nr_dirtied_pause: 32, paused_when: None }
    }
}

/// Next action of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThrottleStep {
    /// The writer may continue.
    Continue,
    /// The writer must sleep.
    Sleep {
        /// Latest time at which to wake up.
        until: Time,
        /// Whether room in any device's queue also ends the sleep.
        or_uncongested: bool,
    },
    /// Write back dirty pages of any files of the device, then report the number of pages written.
    WriteBack {
        /// Largest number of pages to write.
        pages: u64,
    },
}

/// Answer of a policy: a step, and its side effects on the device and the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Next action of the writer.
    pub step: ThrottleStep,
    /// New value of the device's *exceeded* flag; `None`: unchanged. While it is set, the device's
    /// writers check the limits every 8 pages.
    pub exceeded: Option<bool>,
    /// New values of the writer's counters; `None`: unchanged.
    pub pace: Option<Pace>,
    /// Whether to wake the device's flusher for background writeback.
    pub wake_flusher: bool,
}

impl Answer {
    /// An answer without side effects.
    #[must_use]
    pub const fn only(step: ThrottleStep) -> Self {
        Self { step, exceeded: None, pace: None, wake_flusher: false }
    }
}

/// Throttling of one writer, from a check of the limits until it may continue.
#[derive(Clone, Copy, Debug)]
pub struct ThrottleEpisode {
    kernel: Kernel,
    ticks: TickRate,
    /// Number of pages that the writer has to write back. With IO-less throttling, number of pages
    /// that it has dirtied.
    nr_to_write: u64,
    written: u64,
    start: u64,
    /// Length of the next pause, in ticks.
    pause: u64,
    state: State,
}

/// State of an episode.
///
/// ```text
/// Look ──▶ WriteBack ──▶ Wrote ──▶ Sleep ──▶ Slept ──▶ Look
///   │ │                    ▲                   │
///   │ └────────────────────┘ nothing to write  │
///   └──────────▶ Continue ◀──── Wrote, Slept ──┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The limits are checked next.
    Look,
    /// The writer has written back all that it could, or has found nothing to write.
    Wrote(Look),
    /// The writer has slept.
    Slept(Look),
    /// The writer may continue, and this throttling of it has ended.
    Over,
}

/// Result of a check of the limits. With 3.1 the result is used again after the following pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    /// Whether the *exceeded* flag may be cleared because no limit is exceeded.
    may_clear: bool,
    /// Whether the episode may end although a limit is exceeded: with 3.1 after 200 ms, with
    /// IO-less throttling after the writer's pause.
    bearable: bool,
    background_due: bool,
}

impl ThrottleEpisode {
    /// Begins an episode of a writer that must write back `nr_to_write` pages. With IO-less
    /// throttling, `nr_to_write` is the number of pages dirtied since the last check.
    #[must_use]
    pub fn new(kernel: Kernel, ticks: TickRate, now: Time, nr_to_write: u64) -> Self {
        let start = ticks.tick(now);
        Self { kernel, ticks, nr_to_write, written: 0, start, pause: 1, state: State::Look }
    }

    /// Tick in which this throttling of the writer began.
    #[must_use]
    pub const fn start(&self) -> u64 {
        self.start
    }

    /// Next action of the writer. `written` is the number of pages written since the last answer,
    /// which is zero unless that was [`ThrottleStep::WriteBack`].
    ///
    /// # Panics
    /// Panics after [`ThrottleStep::Continue`], and for [`Kernel::Weft`], which throttles by
    /// credit.
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

    /// Whether the rate limit and the bandwidth must be updated before the next step. An update is
    /// needed with IO-less throttling, unless the episode ends after the current sleep.
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

/// Limit of a device for one writer, in pages: up to an eighth lower for a heavy writer, but at
/// least half of `bdi_limit`.
fn task_limit(facts: &Facts, bdi_limit: u64) -> u64 {
    bdi_limit.saturating_sub(facts.writer_share.of(bdi_limit / 8)).max(bdi_limit / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOLE: Fraction = Fraction::ONE;

    /// One writer on one disk, with a limit of 100 MiB.
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

    #[test]
    fn an_episode_has_begun_in_the_tick_of_its_time() {
        let at = Time(0) + weft_units::Span::millis(1_234);
        let episode = ThrottleEpisode::new(Kernel::V3_1, TickRate::new(1000), at, 1536);
        assert_eq!(episode.start(), 1_234);
    }

    pub(super) fn sleep_ms(answer: Answer) -> Option<u64> {
        match answer.step {
            ThrottleStep::Sleep { until, .. } => Some(until.0 / 1_000_000),
            ThrottleStep::Continue | ThrottleStep::WriteBack { .. } => None,
        }
    }
}
