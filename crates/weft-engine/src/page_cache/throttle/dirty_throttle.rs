//! IO-less throttling, patch 001: a writer over its limits sleeps, and never writes back itself.
//!
//! The policy decides how long a writer sleeps, and after how many pages it is checked again.
//! Before the patch, a writer over its limit wrote back pages of other files and doubled its pause
//! each time. A small pool ran dry during these pauses, and as many files were written at once as
//! there were writers. With the patch only the flusher writes. A writer sleeps for as long as its
//! pages take at its *rate*, which converges to the bandwidth of the disk divided by the number of
//! writers.
//!
//! ```text
//! free run   up to half-way between the two thresholds no writer sleeps
//! position   ratio 1.0 at the setpoint, 2.0 at free run, 0 at the hard limit; multiplied by a
//!            linear factor per device, and by a boost for a device with so few dirty pages that
//!            it may run dry                                                    position.rs
//! rate       every 200 ms: bandwidth of the device relative to the dirty rate  ratelimit.rs
//! pause      pages ÷ (rate × position), 200 ms at most; next check             pause.rs
//! hard limit position 0: the writer is held until fewer pages are dirty
//! ```
//!
//! Patch 001 prevents the pool of each device from running dry: it has a reserve of half the
//! device's share plus 4 MiB, and the share is at least an eighth of the free pages. The 4 MiB were
//! dropped a week later (3.2): where 4 MiB times the number of devices is near the limit, all
//! devices are always boosted, and the writer that wakes first wins.
//!
//! Measured by its author, pages written in 300 s with and without the patch: 1 MiB limit, one `dd`
//! +65.8 %, 8 MiB, two `dd` +13.3 %, 100 MiB −3.5 % to −0.4 %, ten disks at 100 MiB +3 % to +25 %.
//! The patch loses with many writers in a small pool, which no table of the patch's mail shows (two
//! disks, 10 MiB, 100 `dd` each: 120.6 to 28.2 MiB/s in 3.2).
//!
//! Inputs   [`Facts`]; the pages that the writer has dirtied
//! Answer   [`Answer`]: sleep or continue, and the writer's [`Pace`]
//! Source   writeback.md §2; traces of Linux 6.12, which [`Mainline6_12`] recomputes
//!          (`fixtures/writeback`)
//! Compare  `baseline_3_1.rs`, the kernel before; the flusher's side is `Pool::over_background`
//!
//! [`Mainline6_12`]: DirtyThrottle::Mainline6_12

mod pause;
mod position;
mod ratelimit;
#[cfg(test)]
mod replay;

use pause::{Judged, Sleep};
pub(crate) use position::Position;
pub(crate) use ratelimit::{Ratelimit, Window};
use weft_units::Time;

use super::{Answer, Facts, Look, Pace, State, ThrottleEpisode, ThrottleStep};

/// Variants of IO-less throttling, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DirtyThrottle {
    /// Patch set v11 of 4 September 2011, before patch 001: a reserve that follows from the
    /// device's bandwidth, and a second, flatter line for devices far over their share. v11 also
    /// has a flag that lets writers continue while a device's queue runs low; its rule is not
    /// known, so it is left out.
    V11,
    /// Patch 001 of 28 September 2011, including the background threshold per device with which its
    /// author made the measurements. The pauses are assumed to be those of v12.
    Patch001,
    /// v12 of 3 October 2011, which became 3.2: patch 001 without the 4 MiB in the reserve.
    Mainline3_2,
    /// Linux 6.12, recomputed from traces. Compared with 3.2, think time is subtracted from pauses
    /// (3.3), and the cubic is clamped (3.12).
    Mainline6_12,
}

/// Rules in which the variants differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    reserve: Reserve,
    /// Whether a device's share is raised to at least an eighth of the pages that are free below
    /// the hard limit.
    share_floor: bool,
    /// Whether the position ratio falls from 1/2 to 0 along a second line up to the limit, for a
    /// device far over its share; otherwise it stays at a quarter.
    auxiliary_line: bool,
    /// Whether a device's flusher also writes when the device exceeds its share of the background
    /// threshold.
    pub(crate) bdi_background: bool,
    /// Whether a writer at the hard limit is held until its rate is above 0, and may continue if
    /// its device has no dirty pages. If not set, the writer is held until the position ratio is
    /// above 0.
    waits_for_rate: bool,
    /// Whether the rules after 3.2 apply: think time is subtracted from pauses, the rate is at most
    /// the device's bandwidth, *exceeded* is set only if both limits are exceeded, the cubic is
    /// clamped, and divisors are made odd.
    think_time: bool,
}

/// Reserve of a device, in pages. While the device has fewer dirty pages than its reserve, its
/// writers are throttled less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reserve {
    /// The pages that the device writes in a second, but no more than the free-run ceiling.
    OfBandwidth,
    /// Half the device's share, plus a number of pages.
    HalfShare { plus: u64 },
}

impl DirtyThrottle {
    pub(crate) const fn rules(self) -> &'static Rules {
        match self {
            Self::V11 => &Rules {
                reserve: Reserve::OfBandwidth,
                share_floor: false,
                auxiliary_line: true,
                bdi_background: false,
                waits_for_rate: false,
                think_time: false,
            },
            Self::Patch001 => &Rules {
                reserve: Reserve::HalfShare { plus: MIN_WRITEBACK_PAGES },
                share_floor: true,
                auxiliary_line: false,
                bdi_background: true,
                waits_for_rate: false,
                think_time: false,
            },
            Self::Mainline3_2 => &Rules {
                reserve: Reserve::HalfShare { plus: 0 },
                share_floor: true,
                auxiliary_line: false,
                bdi_background: true,
                waits_for_rate: true,
                think_time: false,
            },
            Self::Mainline6_12 => &Rules {
                reserve: Reserve::HalfShare { plus: 0 },
                share_floor: true,
                auxiliary_line: false,
                bdi_background: true,
                waits_for_rate: true,
                think_time: true,
            },
        }
    }
}

impl ThrottleEpisode {
    pub(super) fn step_io_less(&mut self, rules: &Rules, now: Time, facts: &Facts) -> Answer {
        if let State::Slept(look) = self.state
            && look.bearable
        {
            return self.go_on(facts, look);
        }
        let tick = self.ticks.tick(now);
        let thresholds = facts.thresholds;
        let (all, bdi) = (facts.all.total(), facts.bdi.total());
        let background_due = facts.all.dirty > thresholds.background;
        let position = Position::of(facts);
        let strict = position.is_strict(rules);
        let (dirty, limit, free_run) = if strict {
            (bdi, position.bdi_thresh, position.bdi_free_run())
        } else {
            (all, thresholds.dirty, thresholds.free_run())
        };
        if dirty <= free_run {
            let look = Look { may_clear: true, bearable: true, background_due };
            let nr_dirtied_pause = pause::poll_interval(dirty, limit);
            let pace = Pace { nr_dirtied: 0, nr_dirtied_pause, paused_when: Some(tick) };
            return Answer { pace: Some(pace), ..self.go_on(facts, look) };
        }
        let over = (bdi > position.bdi_thresh, strict || all > thresholds.dirty);
        let exceeded = if rules.think_time { over.0 && over.1 } else { over.0 || over.1 };
        let ratio = position.ratio(rules);
        let judged = Judged {
            hz: self.ticks.hz(),
            tick,
            bandwidth: facts.bandwidth,
            ratelimit: facts.ratelimit,
            task_ratelimit: ratelimit::times(facts.ratelimit, ratio),
            bdi_dirty: bdi,
            dirtied: self.nr_to_write,
            pace: facts.pace,
        };
        let held = if rules.waits_for_rate { judged.task_ratelimit == 0 } else { ratio == 0 };
        let (sleep, pace) = judged.decide(rules, held);
        // With `waits_for_rate`, a held writer may continue if its device has no dirty pages,
        // because then the pool is full of pages of other devices.
        let bearable = !held || (rules.waits_for_rate && bdi == 0);
        let look = Look { may_clear: !exceeded, bearable, background_due };
        let step = match sleep {
            Sleep::None => {
                self.state = State::Over;
                ThrottleStep::Continue
            }
            Sleep::Ticks(ticks) => {
                self.state = State::Slept(look);
                ThrottleStep::Sleep { until: self.ticks.wake(now, ticks), or_uncongested: false }
            }
        };
        let clears = (!exceeded && step == ThrottleStep::Continue).then_some(false);
        Answer {
            step,
            exceeded: if exceeded { Some(true) } else { clears },
            pace: Some(pace),
            wake_flusher: !facts.flusher_busy,
        }
    }
}

/// Number of pages that patch 001 adds to the reserve of each device: 4 MiB.
const MIN_WRITEBACK_PAGES: u64 = 1024;

#[cfg(test)]
mod tests;
