//! Results of a clone: requests, bytes and latencies in the measured time.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use weft_engine::RequestOp;
use weft_units::{Bytes, Span, Time};

use super::{Ended, Pace};

/// Results of a clone for one kind of operation in the measured time.
#[derive(Clone, Debug)]
pub struct Found {
    /// Number of requests that were counted.
    pub requests: u64,
    /// Sum of the requests' bytes.
    pub bytes: Bytes,
    /// Sum of the requests' latencies.
    pub time: Span,
    /// Histogram of the latencies in ns, with three significant digits.
    pub latencies: Histogram<u64>,
}

/// Callback for each request that is counted.
pub type Watcher = Box<dyn FnMut(&Ended)>;

/// Times at which a clone measures, and its results.
pub(super) struct Ledger {
    delay: Span,
    warm_up: Span,
    run_time: Option<Span>,
    /// Whether the clone ends with flushes, which extend the measured time until they are answered.
    flushes: bool,
    pub(super) watcher: Option<Watcher>,
    pub(super) begun: Option<Time>,
    found: [Found; KINDS],
    /// Integral over the measured time, up to `seen`, of the number of requests in flight, in ns.
    area: u128,
    pub(super) seen: Time,
    pub(super) deepest: u32,
    /// Number of submissions by the number of requests submitted together, and number of reaps by
    /// the number of answers reaped together.
    pub(super) batches: [BTreeMap<u32, u64>; 2],
}

impl Ledger {
    pub(super) fn new(pace: &Pace) -> Self {
        Self {
            delay: pace.delay,
            warm_up: pace.warm_up,
            run_time: pace.run_time,
            flushes: pace.last_flushes > 0,
            watcher: None,
            begun: None,
            found: std::array::from_fn(|_| Found::new()),
            area: 0,
            seen: Time(0),
            deepest: 0,
            batches: Default::default(),
        }
    }

    /// Records that the clone runs. Returns whether it is the first time.
    pub(super) fn begin(&mut self, now: Time) -> bool {
        let first = self.begun.is_none();
        if first {
            (self.begun, self.seen) = (Some(now + self.delay), now);
        }
        first
    }

    pub(super) fn found(&self, op: RequestOp) -> &Found {
        &self.found[kind(op)]
    }

    /// Length of the measured time; see [`super::Job::measured`]. `dry` says that there are no more
    /// requests.
    pub(super) fn measured(&self, dry: bool) -> Span {
        let (Some(from), to) = (self.from(), self.to()) else { return Span::ZERO };
        let to = match to {
            _ if self.flushes => self.seen,
            Some(to) if !dry => to,
            Some(to) => to.min(self.seen),
            None => self.seen,
        };
        Span(to.0.saturating_sub(from.0))
    }

    /// Mean number of requests in flight in the measured time.
    pub(super) fn in_flight(&self, dry: bool) -> f64 {
        self.area as f64 / (self.measured(dry).0 as f64).max(1.0)
    }

    /// Start of the measured time; `None` before the clone's first run.
    pub(super) fn from(&self) -> Option<Time> {
        self.begun.map(|begun| begun + self.warm_up)
    }

    /// End of the run time; `None` before the first run, or without a run time.
    pub(super) fn to(&self) -> Option<Time> {
        Some(self.from()? + self.run_time?)
    }

    pub(super) fn is_over(&self, now: Time) -> bool {
        self.to().is_some_and(|to| now >= to)
    }

    /// Counts a request that was answered, if it belongs to the measured time. `last` marks the
    /// last flushes.
    pub(super) fn end(&mut self, ended: Ended, last: bool) {
        let after_warm_up = self.from().is_some_and(|from| ended.ended >= from);
        let late = !last && self.to().is_some_and(|to| ended.ended > to);
        if !after_warm_up || late {
            return;
        }
        self.found[kind(ended.io.op)].count(&ended);
        if let Some(watcher) = &mut self.watcher {
            watcher(&ended);
        }
    }

    /// Counts a submission of `count` requests.
    pub(super) fn handed_over(&mut self, count: usize) {
        *self.batches[0].entry(count as u32).or_default() += 1;
    }

    /// Counts a reaping of `count` answers.
    pub(super) fn answered(&mut self, count: usize) {
        *self.batches[1].entry(count as u32).or_default() += 1;
    }

    /// Adds the time up to `now`, during which `flying` requests were in flight, to the integral.
    /// To be called before that number changes.
    pub(super) fn measure_until(&mut self, now: Time, flying: u32) {
        let from = self.from().unwrap_or(now).max(self.seen);
        let to = self.to().unwrap_or(now).min(now);
        if from < to {
            self.area += u128::from(flying) * u128::from(to.since(from).0);
        }
        self.seen = now;
    }
}

impl Found {
    fn new() -> Self {
        let latencies = Histogram::new(3).expect("three digits are allowed");
        Self { requests: 0, bytes: Bytes::ZERO, time: Span::ZERO, latencies }
    }

    fn count(&mut self, ended: &Ended) {
        let took = ended.ended.since(ended.begun);
        self.requests += 1;
        self.bytes = Bytes(self.bytes.0 + ended.io.range.len.0);
        self.time = Span(self.time.0 + took.0);
        self.latencies.record(took.0).expect("a histogram that grows takes any value");
    }

    /// Mean latency; zero without requests.
    #[must_use]
    pub fn mean(&self) -> Span {
        Span(self.time.0 / self.requests.max(1))
    }

    /// Latency that 99 % of requests did not exceed.
    #[must_use]
    pub fn p99(&self) -> Span {
        Span(self.latencies.value_at_quantile(0.99))
    }
}

/// Sum of the results of several clones.
impl<'a> std::iter::Sum<&'a Found> for Found {
    fn sum<I: Iterator<Item = &'a Self>>(found: I) -> Self {
        found.fold(Self::new(), |mut sum, one| {
            sum.requests += one.requests;
            sum.bytes = Bytes(sum.bytes.0 + one.bytes.0);
            sum.time = Span(sum.time.0 + one.time.0);
            sum.latencies.add(&one.latencies).expect("a histogram that grows takes any value");
            sum
        })
    }
}

/// Number of kinds of operations.
const KINDS: usize = 5;

fn kind(op: RequestOp) -> usize {
    match op {
        RequestOp::Read => 0,
        RequestOp::Write => 1,
        RequestOp::Trim => 2,
        RequestOp::WriteZeroes => 3,
        RequestOp::Flush => 4,
    }
}
