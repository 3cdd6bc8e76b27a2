//! What does one clone of an `fio` job with direct I/O do?
//!
//! It keeps up to so many requests in flight, as `libaio` with `direct=1`: a request that ends makes room for
//! the next. What it asks for, somebody else says, request by request. As a process that calls into md it
//! goes no further while the volume has no rows, and its writes carry the `sync` flag, as `O_DIRECT` does.
//!
//! A latency goes from being handed over to the answer. What ends before the warm-up is over or after the run
//! time is not counted.
//!
//! Source   experiments.md §1.5, §4 (5); md-raid.md §1.5; fio HOWTO

use std::any::Any;
use std::fmt;

use hdrhistogram::Histogram;
use weft_engine::{Flags, RequestOp};
use weft_units::{ByteRange, Bytes, Span, Time};

use crate::machine::{Host, Pid, Process, Thread, Woken};

/// Something that a clone asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// What.
    pub op: RequestOp,
    /// Where; empty for a flush.
    pub range: ByteRange,
}

/// How fast a clone asks, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Requests in flight at most (`iodepth`).
    pub depth: u32,
    /// What is handed over together.
    pub plug: Plug,
    /// How long it pauses each time (`thinktime`). In a pause nothing is in flight.
    pub think: Span,
    /// After so many requests it pauses (`thinktime_blocks`).
    pub think_after: u64,
    /// Bytes per second at most (`rate`).
    pub rate: Option<Bytes>,
    /// What ends in this time is not counted (`ramp_time`).
    pub warm_up: Span,
    /// Nothing is asked for when it is over (`runtime`); it begins when the warm-up is over. Without one the
    /// clone ends when there is nothing more to ask for.
    pub run_time: Option<Span>,
}

/// What a clone hands over together, as one plug.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plug {
    /// All that it can ask for at one moment (`iodepth_batch` as large as `iodepth`).
    #[default]
    Moment,
    /// One request: one system call each (`iodepth_batch=1`, fio's default).
    Request,
}

impl Pace {
    /// As fast as so many in flight make it, until there is nothing more to ask for.
    #[must_use]
    pub const fn depth(depth: u32) -> Self {
        Self {
            depth,
            plug: Plug::Moment,
            think: Span::ZERO,
            think_after: 1,
            rate: None,
            warm_up: Span::ZERO,
            run_time: None,
        }
    }
}

/// A request that has ended and is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// What was asked for.
    pub io: Io,
    /// When it was handed over.
    pub begun: Time,
    /// When it was answered.
    pub ended: Time,
    /// How many of the clone were in flight when it was handed over, itself among them.
    pub in_flight: u32,
}

/// What a clone did with one kind of request in the measured time.
#[derive(Clone, Debug)]
pub struct Found {
    /// Requests.
    pub requests: u64,
    /// Their bytes.
    pub bytes: Bytes,
    /// The sum of their latencies.
    pub time: Span,
    /// Their latencies, ns, in three digits.
    pub latencies: Histogram<u64>,
}

/// Whoever wants to know of requests one by one.
pub type Watcher = Box<dyn FnMut(&Ended)>;

/// One clone.
pub struct Job {
    thread: Thread,
    pace: Pace,
    asks: Box<dyn Iterator<Item = Io>>,
    watcher: Option<Watcher>,
    /// By name: what is in flight.
    slots: Vec<Option<Ended>>,
    free: Vec<usize>,
    started: Option<Time>,
    /// It has nothing more to ask for.
    dry: bool,
    /// Requests until the next pause, and whether it is due.
    until_pause: u64,
    pauses: bool,
    asked_bytes: u64,
    found: [Found; KINDS],
    /// Requests in flight × ns, in the measured time, until `seen`.
    area: u128,
    seen: Time,
    deepest: u32,
}

impl Job {
    /// A clone that asks for this, at such a pace.
    ///
    /// # Panics
    /// The depth is zero, or it pauses after no request.
    #[must_use]
    pub fn new(pid: Pid, pace: Pace, asks: Box<dyn Iterator<Item = Io>>) -> Self {
        assert!(pace.depth > 0, "a depth of one at least");
        assert!(pace.think_after > 0, "a pause comes after a request");
        Self {
            thread: Thread::new(pid),
            pace,
            asks,
            watcher: None,
            slots: vec![None; pace.depth as usize],
            free: (0..pace.depth as usize).rev().collect(),
            started: None,
            dry: false,
            until_pause: pace.think_after,
            pauses: false,
            asked_bytes: 0,
            found: std::array::from_fn(|_| Found::new()),
            area: 0,
            seen: Time(0),
            deepest: 0,
        }
    }

    /// Tells somebody of each request that is counted.
    #[must_use]
    pub fn watched(mut self, watcher: Watcher) -> Self {
        self.watcher = Some(watcher);
        self
    }

    /// What it did of one kind.
    #[must_use]
    pub fn found(&self, op: RequestOp) -> &Found {
        &self.found[kind(op)]
    }

    /// How long the measured time was: the run time, or less if there was nothing more to ask for.
    #[must_use]
    pub fn measured(&self) -> Span {
        let (Some(from), to) = (self.from(), self.to()) else { return Span::ZERO };
        let to = match to {
            Some(to) if !self.dry => to,
            Some(to) => to.min(self.seen),
            None => self.seen,
        };
        to.since(from)
    }

    /// How many were in flight in the mean of the measured time.
    #[must_use]
    pub fn in_flight(&self) -> f64 {
        self.area as f64 / (self.measured().0 as f64).max(1.0)
    }

    /// How many were in flight at most.
    #[must_use]
    pub fn deepest(&self) -> u32 {
        self.deepest
    }

    fn from(&self) -> Option<Time> {
        self.started.map(|started| started + self.pace.warm_up)
    }

    fn to(&self) -> Option<Time> {
        Some(self.from()? + self.pace.run_time?)
    }

    /// Does the next thing. False: it waits for an answer, or has ended.
    fn step(&mut self, host: &mut Host) -> bool {
        let now = host.now();
        if self.is_over(now) || self.free.is_empty() {
            return false;
        }
        if self.pauses {
            if self.flying() > 0 {
                return false;
            }
            self.pauses = false;
            self.sleep(host, now + self.pace.think);
            return true;
        }
        if let Some(due) = self.due().filter(|due| *due > now) {
            self.sleep(host, due);
            return true;
        }
        if host.would_block(self.thread.pid()) {
            return false;
        }
        let most = if self.pace.plug == Plug::Request { 1 } else { self.free.len() };
        let mut count = 0;
        while count < most && !self.pauses && self.due().is_none_or(|due| due <= now) {
            if !self.ask(host) {
                break;
            }
            count += 1;
        }
        if count > 0 {
            let took = host.costs().syscall + count as u64 * host.costs().bio;
            self.thread.work(host, Span(took));
            if self.pace.plug == Plug::Request {
                host.settle();
            }
        }
        !self.dry
    }

    /// Hands one request over, if there is one.
    fn ask(&mut self, host: &mut Host) -> bool {
        let Some(io) = self.asks.next() else {
            self.dry = true;
            return false;
        };
        let now = host.now();
        let name = self.free.pop().expect("it was looked at");
        let in_flight = self.flying();
        self.deepest = self.deepest.max(in_flight);
        self.slots[name] = Some(Ended { io, begun: now, ended: now, in_flight });
        self.asked_bytes += io.range.len.0;
        self.until_pause -= 1;
        if self.until_pause == 0 {
            self.until_pause = self.pace.think_after;
            self.pauses = self.pace.think > Span::ZERO;
        }
        let sync = io.op == RequestOp::Write;
        let flags = Flags { sync, ..Flags::default() };
        host.submit(self.thread.pid(), name as u64, io.op, io.range, flags);
        true
    }

    fn end(&mut self, now: Time, name: usize) {
        let ended = self.slots[name].take().expect("only what was asked for is answered");
        self.free.push(name);
        let after_warm_up = self.from().is_some_and(|from| now >= from);
        if !after_warm_up || self.to().is_some_and(|to| now > to) {
            return;
        }
        let ended = Ended { ended: now, ..ended };
        self.found[kind(ended.io.op)].count(&ended);
        if let Some(watcher) = &mut self.watcher {
            watcher(&ended);
        }
    }

    /// Takes the time until now in, before the number in flight changes.
    fn measure_until(&mut self, now: Time) {
        let from = self.from().unwrap_or(now).max(self.seen);
        let to = self.to().unwrap_or(now).min(now);
        if from < to {
            self.area += u128::from(self.flying()) * u128::from(to.since(from).0);
        }
        self.seen = now;
    }

    fn flying(&self) -> u32 {
        self.pace.depth - self.free.len() as u32
    }

    fn is_over(&self, now: Time) -> bool {
        self.dry || self.to().is_some_and(|to| now >= to)
    }

    /// When the rate lets it ask again.
    fn due(&self) -> Option<Time> {
        let rate = u128::from(self.pace.rate?.0.max(1));
        let after = u128::from(self.asked_bytes) * 1_000_000_000 / rate;
        Some(self.started? + Span(u64::try_from(after).unwrap_or(u64::MAX / 2)))
    }

    fn sleep(&mut self, host: &mut Host, until: Time) {
        let until = self.to().map_or(until, |to| until.min(to));
        self.thread.sleep(host, until);
    }
}

impl Process for Job {
    fn run(&mut self, host: &mut Host, woken: Woken) {
        let now = host.now();
        if self.started.is_none() {
            (self.started, self.seen) = (Some(now), now);
        } else if self.is_done() {
            return;
        }
        self.measure_until(now);
        if let Woken::Done(name) = woken {
            self.end(now, name as usize);
        }
        while self.thread.goes_on(host) && self.step(host) {}
    }

    fn is_done(&self) -> bool {
        let over = self.dry || self.to().is_some_and(|to| self.seen >= to);
        over && self.flying() == 0
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_flight = self.flying();
        f.debug_struct("Job").field("pace", &self.pace).field("in_flight", &in_flight).finish()
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

    /// The mean latency; zero without requests.
    #[must_use]
    pub fn mean(&self) -> Span {
        Span(self.time.0 / self.requests.max(1))
    }
}

/// Kinds of requests.
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
