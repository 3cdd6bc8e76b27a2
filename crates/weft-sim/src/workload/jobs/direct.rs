//! Clone of an fio job with direct I/O: a number of requests in flight, as with `libaio`.
//!
//! The clone keeps up to `depth` requests in flight, as `libaio` does with `direct=1`: a request
//! that is answered makes room for the next. Like a process that calls into md, it blocks while the
//! volume has no free stripes.
//!
//! Source   experiments.md §1.5; md-raid.md §1.5; fio HOWTO; `wait_for_completions` of fio 3.33 for
//!          `answers` and `low`

use std::collections::BTreeMap;
use std::fmt;

use weft_engine::{Flags, RequestOp};
use weft_units::{ByteRange, Span, Time};

use super::ledger::{Found, Ledger, Watcher};
use super::{Ask, Ended, Io, Pace};
use crate::machine::{Host, Pid, Process, Thread, Woken};

/// A clone with direct I/O, as a process.
pub struct Job {
    thread: Thread,
    pace: Pace,
    asks: Box<dyn Iterator<Item = Ask>>,
    /// The next request, which was taken from `asks` and not submitted yet; `None` if none was
    /// taken.
    next: Option<Ask>,
    ledger: Ledger,
    /// Requests in flight; the index is the name of the request.
    slots: Vec<Option<Ended>>,
    free: Vec<usize>,
    /// Names of requests that were answered but not reaped yet.
    answers: Vec<usize>,
    /// Whether `depth` was reached and the clone waits until at most `low` are in flight.
    drains: bool,
    /// Whether `asks` has no more requests.
    dry: bool,
    /// Number of requests until the next pause. `pauses` says whether a pause is due now.
    until_pause: u64,
    pauses: bool,
    asked_bytes: u64,
    last_flushes: u32,
}

impl Job {
    /// A clone of an fio job. It issues the requests of `asks`, each as soon as the pace allows.
    ///
    /// # Panics
    /// Panics if `depth` or `think_after` of the pace is zero.
    #[must_use]
    pub fn new(pid: Pid, pace: Pace, asks: Box<dyn Iterator<Item = Io>>) -> Self {
        Self::of(pid, pace, Box::new(asks.map(Ask::from)))
    }

    /// A clone that issues the requests of `asks` with their flags, and none before its due time.
    ///
    /// # Panics
    /// Panics as [`Job::new`] does.
    #[must_use]
    pub fn of(pid: Pid, pace: Pace, asks: Box<dyn Iterator<Item = Ask>>) -> Self {
        assert!(pace.depth > 0, "a depth of one at least");
        assert!(pace.think_after > 0, "a pause comes after a request");
        Self {
            thread: Thread::new(pid),
            pace,
            asks,
            next: None,
            ledger: Ledger::new(&pace),
            slots: vec![None; pace.depth as usize],
            free: (0..pace.depth as usize).rev().collect(),
            answers: Vec::new(),
            drains: false,
            dry: false,
            until_pause: pace.think_after,
            pauses: false,
            asked_bytes: 0,
            last_flushes: pace.last_flushes,
        }
    }

    /// Calls `watcher` for each request that is counted.
    #[must_use]
    pub fn watched(mut self, watcher: Watcher) -> Self {
        self.ledger.watcher = Some(watcher);
        self
    }

    /// Results for one kind of operation in the measured time.
    #[must_use]
    pub fn found(&self, op: RequestOp) -> &Found {
        self.ledger.found(op)
    }

    /// Length of the measured time: the run time, or less if the requests ended before. It includes
    /// the last flushes, if there are any.
    #[must_use]
    pub fn measured(&self) -> Span {
        self.ledger.measured(self.dry)
    }

    /// Mean number of requests in flight in the measured time.
    #[must_use]
    pub fn in_flight(&self) -> f64 {
        self.ledger.in_flight(self.dry)
    }

    /// Largest number of requests in flight at a time.
    #[must_use]
    pub fn deepest(&self) -> u32 {
        self.ledger.deepest
    }

    /// Number of system calls that submitted requests, by the number of requests in each.
    #[must_use]
    pub fn handed_over(&self) -> &BTreeMap<u32, u64> {
        &self.ledger.batches[0]
    }

    /// Number of times that answers were reaped, by the number of answers each time.
    #[must_use]
    pub fn answered(&self) -> &BTreeMap<u32, u64> {
        &self.ledger.batches[1]
    }

    /// Time at which the clone began, after its delay; `None` before its first run.
    #[must_use]
    pub fn begun(&self) -> Option<Time> {
        self.ledger.begun
    }

    /// Takes the next step. Returns false if the clone waits for an answer or has ended.
    fn step(&mut self, host: &mut Host) -> bool {
        let now = host.now();
        if self.is_over(now) {
            return self.flush_last(host);
        }
        if let Some(begun) = self.ledger.begun.filter(|begun| now < *begun) {
            self.sleep(host, begun);
            return true;
        }
        self.drains &= self.flying() > self.pace.low;
        if self.free.is_empty() || self.drains {
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
        let Some(due) = self.due() else {
            self.dry = true;
            return self.flush_last(host);
        };
        if due > now {
            self.sleep(host, due);
            return true;
        }
        if self.waits_for_others() || host.would_block(self.thread.pid()) {
            return false;
        }
        let most = self.pace.plug.most().min(self.free.len());
        let mut count = 0;
        while count < most
            && !self.pauses
            && self.due().is_some_and(|due| due <= now)
            && !self.waits_for_others()
        {
            self.ask(host);
            count += 1;
        }
        self.drains = self.free.is_empty();
        self.ledger.handed_over(count);
        let took = host.costs().syscall + count as u64 * host.costs().bio;
        self.thread.work(host, Span(took));
        if self.pace.plug.most() < usize::MAX {
            host.settle();
        }
        true
    }

    /// Submits the next request.
    fn ask(&mut self, host: &mut Host) {
        let now = host.now();
        let due = self.due().unwrap_or(now).min(now);
        let Ask { io, flags, .. } = self.next.take().expect("due found a request");
        let name = self.free.pop().expect("a slot is free");
        let in_flight = self.flying();
        self.ledger.deepest = self.ledger.deepest.max(in_flight);
        self.slots[name] = Some(Ended { io, due, begun: now, ended: now, in_flight });
        self.asked_bytes += io.range.len.0;
        self.until_pause -= 1;
        if self.until_pause == 0 {
            self.until_pause = self.pace.think_after;
            self.pauses = self.pace.think > Span::ZERO;
        }
        host.submit(self.thread.pid(), name as u64, io.op, io.range, flags);
    }

    /// Submits one of the last flushes, if nothing is in flight. Returns whether a flush was
    /// submitted.
    fn flush_last(&mut self, host: &mut Host) -> bool {
        if self.last_flushes == 0 || self.flying() > 0 {
            return false;
        }
        self.last_flushes -= 1;
        let io = Io { op: RequestOp::Flush, range: ByteRange::new(0, 0) };
        let name = self.free.pop().expect("no request is in flight");
        let now = host.now();
        self.slots[name] = Some(Ended { io, due: now, begun: now, ended: now, in_flight: 1 });
        host.submit(self.thread.pid(), name as u64, io.op, io.range, Flags::NONE);
        self.thread.work(host, Span(host.costs().syscall));
        true
    }

    fn end(&mut self, now: Time, name: usize) {
        self.answers.push(name);
        let wanted = self.pace.answers.min(self.flying()) as usize;
        if self.answers.len() < wanted {
            return;
        }
        self.ledger.answered(self.answers.len());
        let last = self.is_over(now);
        for name in std::mem::take(&mut self.answers) {
            let ended = self.slots[name].take().expect("an answered request is in flight");
            self.free.push(name);
            let last = last && ended.io.op == RequestOp::Flush && self.pace.last_flushes > 0;
            self.ledger.end(Ended { ended: now, ..ended }, last);
        }
    }

    fn flying(&self) -> u32 {
        self.pace.depth - self.free.len() as u32
    }

    fn is_over(&self, now: Time) -> bool {
        self.dry || self.ledger.is_over(now)
    }

    /// Time at which the next request may be issued, by its due time and the rate; `None` if there
    /// are no more requests.
    fn due(&mut self) -> Option<Time> {
        if self.next.is_none() {
            self.next = self.asks.next();
        }
        let begun = self.ledger.begun.expect("the job has begun");
        let own = begun + self.next?.due;
        let Some(rate) = self.pace.rate else { return Some(own) };
        let after = u128::from(self.asked_bytes) * 1_000_000_000 / u128::from(rate.0.max(1));
        Some(own.max(begun + Span(u64::try_from(after).unwrap_or(u64::MAX / 2))))
    }

    /// Whether the next request must wait for an overlapping request in flight.
    fn waits_for_others(&self) -> bool {
        let Some(next) = self.next.filter(|_| self.pace.apart) else { return false };
        let overlaps = |other: &Ended| {
            let (a, b) = (next.io.range, other.io.range);
            a.start.0 < b.start.0 + b.len.0 && b.start.0 < a.start.0 + a.len.0
        };
        self.slots.iter().flatten().any(overlaps)
    }

    fn sleep(&mut self, host: &mut Host, until: Time) {
        let until = self.ledger.to().map_or(until, |to| until.min(to));
        self.thread.sleep(host, until);
    }
}

impl Process for Job {
    fn run(&mut self, host: &mut Host, woken: Woken) {
        let now = host.now();
        if !self.ledger.begin(now) && self.is_done() {
            return;
        }
        self.ledger.measure_until(now, self.flying());
        if let Woken::Done(name) = woken {
            self.end(now, name as usize);
        }
        while self.thread.goes_on(host) && self.step(host) {}
    }

    fn is_done(&self) -> bool {
        self.is_over(self.ledger.seen) && self.flying() == 0 && self.last_flushes == 0
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_flight = self.flying();
        f.debug_struct("Job").field("pace", &self.pace).field("in_flight", &in_flight).finish()
    }
}
