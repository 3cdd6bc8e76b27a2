//! Seam of throttling policies: the facts that a policy is told, and its answer.
//!
//! A writer that has dirtied its fill looks at the limits. The policy gets [`Facts`] and answers
//! one [`ThrottleStep`]; the writer carries it out and comes back with the next facts, until the
//! answer is [`ThrottleStep::Continue`]. The page cache knows nothing else of a policy, so the
//! answer of patch 001 (sleep, never write) will be one more file beside
//! [`vanilla`](super::vanilla).

use super::pool::{Counts, Thresholds};
use super::proportion::Fraction;
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
    /// The device's part of recent completions.
    pub bdi_share: Fraction,
    /// The writer's part of what was dirtied lately.
    pub writer_share: Fraction,
    /// Whether the device's flusher is at work.
    pub flusher_busy: bool,
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
    /// Whether to wake the device's flusher for background work.
    pub wake_flusher: bool,
}

impl Answer {
    /// A step that changes nothing for others.
    #[must_use]
    pub const fn only(step: ThrottleStep) -> Self {
        Self { step, exceeded: None, wake_flusher: false }
    }
}
