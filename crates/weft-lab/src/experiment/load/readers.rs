//! Metrics of direct readers, each at a best-effort level of its own.
//!
//! A level is a weight (`io-schedulers.md` §2.1), so the share that each reader should get is known
//! if the drive is the bottleneck. The *share error* is the distance of the worst reader from its
//! share, in percent of all bytes read. Random readers test the fairness of a scheduler;
//! interleaved readers, with requests that form a sequential stream only together, test its
//! merging.
//!
//! The load is not a job file, for the reasons in `fio.rs`, and because a share is a figure of all
//! readers together, where a job file has figures of each job or one sum.

use serde::Deserialize;
use weft_engine::{Class, RequestOp};
use weft_sim::machine::{Machine, Pid};
use weft_sim::workload::jobs::{Found, Io, Job, Pace, Plug};
use weft_units::rng::Rng;
use weft_units::{ByteRange, Span};

use super::{Amount, Measure, Part, SECONDS_MAX, Size};
use crate::experiment::bounds::{ArrayText, Bound};
use crate::experiment::metric::Metric;
use crate::experiment::testbed::Testbed;
use crate::experiment::watch::{Series, longest, warm_up};

/// Load of readers with direct I/O, one for each best-effort level in `levels`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Readers {
    levels: Vec<u8>,
    pattern: Where,
    block_kib: u64,
    depth: u32,
    pub(super) seconds: Amount,
}

/// Offsets that readers read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Where {
    /// Reader `i` of `n` has the blocks `i`, `i + n`, `i + 2 n`, ….
    Interleaved,
    /// Random offsets.
    Random,
}

/// Weight of a best-effort level in BFQ: 80 for level 0, 10 for level 7.
///
/// Source   io-schedulers.md §2.1
fn weight(level: u8) -> f64 {
    f64::from(8 - level) * 10.0
}

impl Measure for Readers {
    fn metrics(&self) -> &'static [Metric] {
        &[
            Metric::Throughput,
            Metric::Latency,
            Metric::LatencyP99,
            Metric::ShareError,
            Metric::AtDisk,
            Metric::Plugged,
            Metric::QueueMerges,
            Metric::MemberRequest,
        ]
    }

    fn amount(&self) -> Amount {
        self.seconds
    }

    fn bounds(&self) -> Vec<Bound> {
        let mut bounds = vec![
            Bound::of("load.levels", self.levels.len() as u64, 1, 64),
            Bound::of("load.block_kib", self.block_kib, 1, 32 << 10),
            Bound::of("load.depth", self.depth.into(), 1, 1024),
        ];
        let levels = self.levels.iter();
        bounds.extend(levels.map(|level| Bound::of("load.levels", (*level).into(), 0, 7)));
        bounds.extend(Bound::amounts("load.seconds", self.seconds, SECONDS_MAX));
        bounds
    }

    /// Bytes of a volume that has room for one block of each reader.
    fn bytes(&self, _: ArrayText) -> u128 {
        self.levels.len() as u128 * u128::from(self.block_kib << 10)
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
        let pids: Vec<Pid> = (0..)
            .zip(&self.levels)
            .map(|(nth, level)| {
                let asks = self.asks(nth, volume, seed);
                let pid = machine.add_with(|pid| Box::new(Job::new(pid, pace, asks)));
                machine.host.set_class(pid, Class::BestEffort(*level));
                pid
            })
            .collect();
        let mut series = Series::default();
        let bytes = |machine: &Machine, pid: Pid| {
            machine.process::<Job>(pid).found(RequestOp::Read).bytes.0
        };
        let steady = series.watch_steady(&mut machine, time, |machine| {
            pids.iter().map(|pid| bytes(machine, *pid)).sum()
        });
        let read: Vec<u64> = pids.iter().map(|pid| bytes(&machine, *pid)).collect();
        let of = |pid: &Pid| machine.process::<Job>(*pid).found(RequestOp::Read);
        let found: Found = pids.iter().map(of).sum();
        let values = [
            (Metric::Throughput, steady.throughput()),
            (Metric::Latency, found.time.0 as f64 / 1e6 / found.requests.max(1) as f64),
            (Metric::LatencyP99, found.p99().0 as f64 / 1e6),
            (Metric::ShareError, share_error(&self.levels, &read)),
            (Metric::MemberRequest, steady.done.member_request()),
        ];
        Part::of_steady(&machine, &values, &steady, series)
    }
}

impl Readers {
    fn asks(&self, nth: u64, volume: u64, seed: u64) -> Box<dyn Iterator<Item = Io>> {
        let block = self.block_kib << 10;
        let blocks = volume / block;
        let read = move |nth: u64| Io {
            op: RequestOp::Read,
            range: ByteRange::new(nth % blocks * block, block),
        };
        match self.pattern {
            Where::Interleaved => {
                let readers = self.levels.len() as u64;
                Box::new((0..).map(move |turn| read(turn * readers + nth)))
            }
            Where::Random => {
                let mut rng = Rng::new(seed ^ ((nth + 1) << 40));
                Box::new(std::iter::repeat_with(move || read(rng.below(blocks))))
            }
        }
    }
}

/// Largest difference between a reader's share of all bytes read and the share that its weight
/// gives it, in percent of all bytes.
fn share_error(levels: &[u8], read: &[u64]) -> f64 {
    let weights: f64 = levels.iter().map(|level| weight(*level)).sum();
    let all = read.iter().sum::<u64>().max(1) as f64;
    let off = levels
        .iter()
        .zip(read)
        .map(|(level, read)| (*read as f64 / all - weight(*level) / weights).abs() * 100.0);
    off.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::share_error;

    #[test]
    fn a_share_is_in_error_by_what_it_is_off_its_weight() {
        assert!(share_error(&[0, 4], &[200, 100]) < 1e-9);
        assert!((share_error(&[0, 4], &[100, 100]) - 100.0 / 6.0).abs() < 1e-9);
        assert!((share_error(&[4, 4, 4], &[90, 0, 0]) - 200.0 / 3.0).abs() < 1e-9);
    }
}
