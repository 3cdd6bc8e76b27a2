//! Results of a run: sums over the measured window of time, and samples over the whole run.

use hdrhistogram::Histogram;
use weft_engine::page_cache::Counts;
use weft_units::{Span, Time};

/// Results of a run. The window is the time after the warm-up.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Pages written in the window, as MiB per second over all disks.
    pub mib_per_second: f64,
    /// Number of pages written in the window.
    pub pages: u64,
    /// Number of pages written since the start of the run (`nr_written` of `/proc/vmstat`).
    pub pages_since_start: u64,
    /// By disk: the part of the window in which the disk had no request, from 0 to 1.
    pub idle: Vec<f64>,
    /// By disk: mean length in bytes of a run of contiguous requests in the window.
    pub run_bytes: Vec<f64>,
    /// Jain's index of the numbers of pages that writers dirtied in the window: 1 if all are equal.
    pub jain: f64,
    /// Length that 99 % of the pauses in the window do not exceed. In a pause, a writer waits in a
    /// call of `write` until the page cache lets it continue.
    pub pause_p99: Span,
    /// Length of the longest pause in the window.
    pub pause_max: Span,
    /// Largest number of pages that were dirty or under writeback at a time, since the start of the
    /// run.
    pub dirty_max: u64,
    /// The dirty limit, in pages.
    pub limit: u64,
    /// Number of dirty pages up to which writers are not throttled.
    pub free_run: u64,
    /// Number of flushes that the disks' volumes received since the start of the run, including
    /// those before a write (PREFLUSH).
    pub flushes: u64,
    /// Samples taken every 100 ms since the start of the run.
    pub samples: Vec<Sample>,
    /// Pauses of the first few writers since the start of the run. Their number is bounded.
    pub pauses: Vec<Pause>,
}

impl Measured {
    /// The setpoint of patch 001, in dirty pages: half-way between `free_run` and `limit`.
    #[must_use]
    pub const fn setpoint(&self) -> u64 {
        u64::midpoint(self.free_run, self.limit)
    }

    /// Mean of `idle` over all disks.
    #[must_use]
    pub fn idle_mean(&self) -> f64 {
        mean(&self.idle)
    }

    /// Mean of `run_bytes` over all disks.
    #[must_use]
    pub fn run_bytes_mean(&self) -> f64 {
        mean(&self.run_bytes)
    }
}

fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / of.len() as f64
}

/// State of the box at some time, and sums since the preceding sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Time of the sample.
    pub at: Time,
    /// Numbers of pages by state, over all disks.
    pub all: Counts,
    /// By disk: number of pages dirty or under writeback.
    pub disks: Vec<u64>,
    /// By disk: the part of the time since the preceding sample in which the disk had a request,
    /// from 0 to 1.
    pub busy: Vec<f64>,
    /// Number of pages written since the start of the run.
    pub written: u64,
    /// Length of the longest pause that ended since the preceding sample.
    pub pause_max: Span,
}

/// A pause of a writer, in a call of `write`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Number of the writer among those of all disks.
    pub writer: u32,
    /// Start of the pause.
    pub at: Time,
    /// Length of the pause.
    pub length: Span,
}

/// Record that all writers share: pauses, and numbers of pages that they dirtied.
#[derive(Debug)]
pub(super) struct Record {
    /// Whether the window of time that is measured has begun.
    pub(super) in_window: bool,
    /// Histogram of the lengths of pauses in the window, in microseconds.
    window: Histogram<u64>,
    /// Pauses of the first `WRITERS_KEPT` writers, up to `PAUSES_KEPT` pauses.
    pub(super) first: Vec<Pause>,
    /// Length of the longest pause since the last sample.
    latest: Span,
    /// Number of pages that each writer dirtied.
    pub(super) dirtied: Vec<u64>,
    /// Largest number of pages that were dirty or under writeback at a time.
    pub(super) dirty_max: u64,
}

/// Number of writers with pauses that are kept: the first `PAUSES_KEPT` pauses of all these writers
/// together.
const WRITERS_KEPT: u32 = 4;
const PAUSES_KEPT: usize = 20_000;

impl Record {
    /// An empty record for this number of writers.
    pub(super) fn new(writers: u32) -> Self {
        Self {
            in_window: false,
            window: Histogram::new(3).expect("three digits"),
            first: Vec::new(),
            latest: Span::ZERO,
            dirtied: vec![0; writers as usize],
            dirty_max: 0,
        }
    }

    /// Records that a writer dirtied pages, after which `dirty` were dirty or under writeback.
    pub(super) fn dirtied(&mut self, writer: u32, pages: u64, dirty: u64) {
        self.dirtied[writer as usize] += pages;
        self.dirty_max = self.dirty_max.max(dirty);
    }

    pub(super) fn count(&mut self, pause: Pause) {
        self.latest = self.latest.max(pause.length);
        if self.in_window {
            self.window += pause.length.0 / 1000;
        }
        if pause.writer < WRITERS_KEPT && self.first.len() < PAUSES_KEPT {
            self.first.push(pause);
        }
    }

    /// Returns the length of the longest pause since the last call, and starts anew.
    pub(super) fn latest(&mut self) -> Span {
        std::mem::take(&mut self.latest)
    }

    pub(super) fn pause_p99(&self) -> Span {
        Span(self.window.value_at_quantile(0.99) * 1000)
    }

    pub(super) fn pause_max(&self) -> Span {
        Span(self.window.max() * 1000)
    }
}

/// Jain's index of fairness: 1 for equal parts, 1/n if one of n parts is everything.
pub(super) fn jain(parts: &[u64]) -> f64 {
    let sum: f64 = parts.iter().map(|part| *part as f64).sum();
    let squares: f64 = parts.iter().map(|part| (*part as f64).powi(2)).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (parts.len() as f64 * squares) }
}
