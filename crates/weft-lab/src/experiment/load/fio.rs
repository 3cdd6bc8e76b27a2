//! Metrics of fio jobs and of isolated writes.
//!
//! The clones of one job use direct I/O, and each keeps `depth` requests in flight. In the
//! published job of patch 004 all clones begin at the start of the device; another case gives each
//! clone a part of its own.
//!
//! Isolated writes are issued one after the other, each to stripes that were not touched before, so
//! the bytes that members transfer for each write are exact.
//!
//! Neither load can be a job file: a job file has no length for each size of a run, does not run
//! until its rate is steady, and counts the first write too. Offsets differ as well: random ones
//! here are drawn from all blocks with a generator of their own, which recorded results depend on,
//! and a disjoint clone that reaches the end of its part goes on in the next part.

use serde::Deserialize;
use weft_engine::RequestOp;
use weft_sim::machine::{Machine, Pid};
use weft_sim::workload::jobs::{Found, Io, Job, Pace, Plug};
use weft_units::rng::Rng;
use weft_units::{ByteRange, Span, Time};

use super::{Amount, Measure, Part, SECONDS_MAX, Size, TIME_MAX};
use crate::experiment::bounds::{ArrayText, Bound};
use crate::experiment::metric::Metric;
use crate::experiment::testbed::Testbed;
use crate::experiment::watch::{Series, Totals, longest, warm_up};

/// Load of the clones of an fio job that writes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fio {
    pattern: Pattern,
    block_kib: u64,
    clones: u64,
    depth: u32,
    pub(super) seconds: Amount,
}

/// Offsets that clones write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// From front to back, each clone in a part of its own (`offset_increment`).
    Disjoint,
    /// Random offsets (`rw=randwrite`).
    Random,
    /// From front to back, every clone over the same blocks (`rw=write`).
    Same,
}

/// Load of writes one after the other, each in stripes that were not touched before.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Isolated {
    block_kib: u64,
    pub(super) count: Amount,
}

impl Measure for Fio {
    fn metrics(&self) -> &'static [Metric] {
        &[
            Metric::Throughput,
            Metric::Latency,
            Metric::LatencyP99,
            Metric::Prereads,
            Metric::PrereadWaitP999,
            Metric::PrereadWaitMax,
            Metric::MemberKibPerWrite,
            Metric::MemberRequest,
            Metric::EngineBusy,
        ]
    }

    fn amount(&self) -> Amount {
        self.seconds
    }

    fn bounds(&self) -> Vec<Bound> {
        let mut bounds = vec![
            Bound::of("load.block_kib", self.block_kib, 1, BLOCK_KIB_MAX),
            Bound::of("load.clones", self.clones, 1, 1024),
            Bound::of("load.depth", self.depth.into(), 1, 1024),
        ];
        bounds.extend(Bound::amounts("load.seconds", self.seconds, SECONDS_MAX));
        bounds
    }

    /// Bytes of a volume that has room for one block of each clone.
    fn bytes(&self, _: ArrayText) -> u128 {
        u128::from(self.clones) * u128::from(self.block_kib << 10)
    }

    fn run(&self, testbed: &Testbed, size: Size, _: usize) -> Part {
        let time = Span::secs(self.seconds.at(size));
        let mut machine = testbed.machine();
        let pace = Pace {
            plug: Plug::Request,
            warm_up: warm_up(time),
            run_time: Some(longest(time)),
            ..Pace::depth(self.depth)
        };
        let (volume, seed) = (machine.host.size().0, testbed.parts.seed);
        let pids: Vec<Pid> = (0..self.clones)
            .map(|clone| {
                let asks = self.asks(clone, volume, seed);
                machine.add_with(|pid| Box::new(Job::new(pid, pace, asks)))
            })
            .collect();
        let mut series = Series::default();
        let steady = series.watch_steady(&mut machine, time, |machine| {
            let of = |pid: &Pid| machine.process::<Job>(*pid).found(RequestOp::Write).bytes.0;
            pids.iter().map(of).sum()
        });
        let of = |pid: &Pid| machine.process::<Job>(*pid).found(RequestOp::Write);
        let found: Found = pids.iter().map(of).sum();
        let moved = (steady.done.read + steady.done.written) as f64 / 1024.0;
        let requests = found.requests.max(1) as f64;
        let values = [
            (Metric::Throughput, steady.throughput()),
            (Metric::Latency, found.time.0 as f64 / 1e6 / requests),
            (Metric::LatencyP99, found.p99().0 as f64 / 1e6),
            (Metric::Prereads, steady.done.prereads()),
            (Metric::MemberKibPerWrite, moved / requests),
            (Metric::MemberRequest, steady.done.member_request()),
            (Metric::EngineBusy, steady.engine_busy()),
        ];
        Part::of_steady(&machine, &values, &steady, series)
    }
}

impl Fio {
    #[cfg(test)]
    pub(in crate::experiment) fn shorten(&mut self) {
        self.seconds = Amount { quick: 1, default: 1, full: 1 };
    }

    fn asks(&self, clone: u64, volume: u64, seed: u64) -> Box<dyn Iterator<Item = Io>> {
        let block = self.block_kib << 10;
        let blocks = volume / block;
        let write = move |nth: u64| Io {
            op: RequestOp::Write,
            range: ByteRange::new(nth % blocks * block, block),
        };
        match self.pattern {
            Pattern::Disjoint => {
                let first = blocks / self.clones * clone;
                Box::new((first..).map(write))
            }
            Pattern::Random => {
                let mut rng = Rng::new(seed ^ ((clone + 1) << 40));
                Box::new(std::iter::repeat_with(move || write(rng.below(blocks))))
            }
            Pattern::Same => Box::new((0..).map(write)),
        }
    }
}

impl Measure for Isolated {
    fn metrics(&self) -> &'static [Metric] {
        &[Metric::MemberKibPerWrite, Metric::MemberRequest]
    }

    fn amount(&self) -> Amount {
        self.count
    }

    fn bounds(&self) -> Vec<Bound> {
        let mut bounds = vec![Bound::of("load.block_kib", self.block_kib, 1, BLOCK_KIB_MAX)];
        bounds.extend(Bound::amounts("load.count", self.count, 10_000));
        bounds
    }

    fn bytes(&self, _: ArrayText) -> u128 {
        (self.count.most() * u128::from(APART) + 1) * u128::from(self.block_kib << 10)
    }

    fn run(&self, testbed: &Testbed, size: Size, _: usize) -> Part {
        let count = self.count.at(size);
        let mut machine = testbed.machine();
        let block = self.block_kib << 10;
        let apart = APART * block;
        let asks = (0..=count)
            .map(move |nth| Io { op: RequestOp::Write, range: ByteRange::new(nth * apart, block) });
        let pace = Pace { think: PAUSE, ..Pace::depth(1) };
        let pid = machine.add_with(|pid| Box::new(Job::new(pid, pace, Box::new(asks))));
        let mut series = Series::default();
        // The first write is not counted, because it also causes writes of superblocks.
        let done = |machine: &Machine| machine.process::<Job>(pid).found(RequestOp::Write).requests;
        let mut answered = Time(0);
        while done(&machine) == 0 && answered < TIME_MAX {
            answered = answered + Span(PAUSE.0 / 2);
            machine.run(answered);
        }
        let before = Totals::of(&machine, block);
        series.watch(&mut machine, TIME_MAX, |m| done(m) * block);
        assert_eq!(done(&machine), count + 1, "all were answered");
        let moved = Totals::of(&machine, done(&machine) * block).since(&before);
        let kib = (moved.read + moved.written) as f64 / 1024.0 / count as f64;
        let values =
            [(Metric::MemberKibPerWrite, kib), (Metric::MemberRequest, moved.member_request())];
        let seconds = machine.host.now().0 as f64 / 1e9;
        Part::of(&machine, &values, seconds, series)
    }
}

/// Pause between two isolated writes: longer than a disk takes for a write, and shorter than the
/// time after which an idle array becomes clean.
const PAUSE: Span = Span::millis(50);

/// Distance in blocks between two isolated writes. As the distance is a large prime number, no two
/// writes share a full stripe, and the writes reach all members.
const APART: u64 = 7919;

/// Largest block size in KiB: a request of 32 MiB, the largest that a client of NBD may send.
const BLOCK_KIB_MAX: u64 = 32 << 10;
