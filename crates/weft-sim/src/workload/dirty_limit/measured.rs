//! Counts of a run: sums over its window of time, and samples over all of it.

use hdrhistogram::Histogram;
use weft_engine::page_cache::Counts;
use weft_units::{Span, Time};

/// Results of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Rate of pages written in the window, over all disks.
    pub mib_per_second: f64,
    /// Pages that were written in the window.
    pub pages: u64,
    /// Pages written since the start: `nr_written` of `/proc/vmstat`.
    pub pages_since_start: u64,
    /// By disk, the part of the window without a request.
    pub idle: Vec<f64>,
    /// By disk, mean bytes of contiguous requests in the window.
    pub run_bytes: Vec<f64>,
    /// Jain's index of the pages that writers dirtied in the window: 1 if all dirtied the same.
    pub jain: f64,
    /// Length that 99 % of pauses in the window do not exceed. A pause is a writer's wait in a call
    /// of `write` until the page cache lets it continue.
    pub pause_p99: Span,
    /// Longest wait in the window.
    pub pause_max: Span,
    /// Largest number of pages dirty and under writeback since the start.
    pub dirty_max: u64,
    /// Dirty limit in pages.
    pub limit: u64,
    /// Number of pages from which on writers are throttled.
    pub free_run: u64,
    /// Flushes that disks received since the start.
    pub flushes: u64,
    /// States every 100 ms since the start.
    pub samples: Vec<Sample>,
    /// Pauses of the first writers since the start; their number is bounded.
    pub pauses: Vec<Pause>,
}

impl Measured {
    /// The setpoint of patch 001 for dirty pages: half-way between free run and limit.
    #[must_use]
    pub const fn setpoint(&self) -> u64 {
        u64::midpoint(self.free_run, self.limit)
    }

    /// Mean of the disks' idle parts.
    #[must_use]
    pub fn idle_mean(&self) -> f64 {
        mean(&self.idle)
    }

    /// Mean of the disks' bytes of contiguous requests.
    #[must_use]
    pub fn run_bytes_mean(&self) -> f64 {
        mean(&self.run_bytes)
    }
}

fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / of.len() as f64
}

/// State at some time, and busy times since the sample before.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Time of the sample.
    pub at: Time,
    /// Counts of pages, over all disks.
    pub all: Counts,
    /// By disk, pages dirty and under writeback.
    pub disks: Vec<u64>,
    /// By disk, the part of the time with a request.
    pub busy: Vec<f64>,
    /// Pages written since the start.
    pub written: u64,
    /// Longest pause of any writer that ended since the sample before.
    pub pause_max: Span,
}

/// A pause of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Number of the writer, over all disks.
    pub writer: u32,
    /// Start of the pause.
    pub at: Time,
    /// Length of the pause.
    pub length: Span,
}

/// Pauses of the window, and those of the first writers.
#[derive(Debug)]
pub(super) struct Pauses {
    /// Histogram of the window, in microseconds.
    window: Histogram<u64>,
    pub(super) first: Vec<Pause>,
    /// Longest pause since the last sample.
    pub(super) latest: Span,
}

/// Number of writers with pauses that are kept one by one, and number of pauses kept.
const WRITERS_KEPT: u32 = 4;
const PAUSES_KEPT: usize = 20_000;

impl Pauses {
    pub(super) fn new() -> Self {
        let window = Histogram::new(3).expect("three digits");
        Self { window, first: Vec::new(), latest: Span::ZERO }
    }

    pub(super) fn count(&mut self, pause: Pause, in_window: bool) {
        self.latest = self.latest.max(pause.length);
        if in_window {
            self.window += pause.length.0 / 1000;
        }
        if pause.writer < WRITERS_KEPT && self.first.len() < PAUSES_KEPT {
            self.first.push(pause);
        }
    }

    pub(super) fn p99(&self) -> Span {
        Span(self.window.value_at_quantile(0.99) * 1000)
    }

    pub(super) fn max(&self) -> Span {
        Span(self.window.max() * 1000)
    }
}

/// Jain's index: 1 for equal parts, 1/n if one has everything.
pub(super) fn jain(parts: &[u64]) -> f64 {
    let sum: f64 = parts.iter().map(|part| *part as f64).sum();
    let squares: f64 = parts.iter().map(|part| (*part as f64).powi(2)).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (parts.len() as f64 * squares) }
}
