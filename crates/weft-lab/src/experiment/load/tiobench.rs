//! Metrics of `tiobench`: the mean of its table's rates.
//!
//! `tiobench` prints a row for each number of threads and each size of block. Patch 000's mail does
//! not say which row it published, so the figure is the mean of all rows. The read phases follow
//! the write phases and do not affect them: they are not run.
//!
//! Source   experiments.md §1.1

use serde::Deserialize;
use weft_sim::workload::tiobench::{self, Phase, Run};
use weft_sim::workload::xfs::Xfs;
use weft_units::Bytes;

use super::{Amount, Measure, Part, Size, TIME_MAX};
use crate::experiment::bounds::{ArrayText, Bound};
use crate::experiment::metric::Metric;
use crate::experiment::testbed::Testbed;
use crate::experiment::watch::{Series, Totals};

/// Load `tiobench --size … --numruns … --block …`, with a part for each number of threads, each
/// block size and each repetition.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tiobench {
    threads: Vec<u32>,
    block_kib: Vec<u64>,
    pub(super) mib: Amount,
    repeats: Amount,
}

impl Tiobench {
    /// Whether the load has no part, because it lists no number of threads or no block size.
    pub(in crate::experiment) fn is_empty(&self) -> bool {
        self.threads.is_empty() || self.block_kib.is_empty()
    }
}

impl Measure for Tiobench {
    fn metrics(&self) -> &'static [Metric] {
        &[
            Metric::Throughput,
            Metric::RandomWrite,
            Metric::Prereads,
            Metric::PrereadWaitP999,
            Metric::PrereadWaitMax,
            Metric::MemberRequest,
        ]
    }

    fn amount(&self) -> Amount {
        self.mib
    }

    fn bounds(&self) -> Vec<Bound> {
        // Even with the smallest amount, each thread has at least one block.
        let least = [self.mib.quick, self.mib.default, self.mib.full].into_iter().min();
        let block = self.block_kib.iter().max().map_or(1, |kib| kib.saturating_mul(1 << 10).max(1));
        let threads_max = (least.unwrap_or(0).saturating_mul(1 << 20) / block).min(64);
        let mut bounds: Vec<Bound> =
            self.block_kib.iter().map(|kib| Bound::pages_kib("load.block_kib", *kib)).collect();
        bounds.extend(Bound::amounts("load.mib", self.mib, 1 << 30));
        bounds.extend(Bound::amounts("load.repeats", self.repeats, 1000));
        let threads = self.threads.iter().copied();
        bounds.extend(threads.map(|it| Bound::of("load.threads", it.into(), 1, threads_max)));
        bounds
    }

    /// Bytes of a volume with room for sixteen allocation groups of XFS, each with the log and its
    /// share of the threads' files.
    fn bytes(&self, array: ArrayText) -> u128 {
        let chunk = u128::from(array.chunk.0);
        let threads = self.threads.iter().max().copied().unwrap_or(1);
        let files = u128::from(threads / 16 + 2);
        let group = files * (self.mib.most() * (1 << 20) + chunk) + (32 << 20) + 4 * chunk;
        16 * (group + chunk * u128::from(array.members))
    }

    fn parts(&self, size: Size) -> usize {
        let repeats = usize::try_from(self.repeats.at(size)).expect("a few times");
        self.threads.len() * self.block_kib.len() * repeats
    }

    fn run(&self, testbed: &Testbed, size: Size, part: usize) -> Part {
        let threads = self.threads[part % self.threads.len()];
        let rest = part / self.threads.len();
        let block = Bytes::kib(self.block_kib[rest % self.block_kib.len()]);
        let repeat = (rest / self.block_kib.len()) as u64;
        // In each repetition the disks start at another position.
        let testbed = testbed.with_seed(testbed.parts.seed ^ (repeat << 32));
        let mut machine = testbed.machine();
        let chunk = testbed.parts.chunk.bytes();
        let full_stripe = Bytes(chunk.0 * u64::from(testbed.parts.members - 1));
        let total = Bytes::mib(self.mib.at(size));
        let xfs = Xfs::new(machine.host.size(), chunk, full_stripe, total);
        machine.add_page_cache(testbed.pool, Box::new(xfs), BIO);
        let published =
            tiobench::Tiobench::published(threads, block, xfs.log(), testbed.parts.seed);
        let phases = vec![Phase::Write, Phase::RandomWrite];
        let pid = tiobench::Tiobench { size: total, phases, ..published }.add_to(&mut machine);
        let mut series = Series::default();
        // Totals of the members at the end of the first phase, to the nearest tick.
        let mut first_phase = None;
        series.watch(&mut machine, TIME_MAX, |machine| {
            let timed = machine.process::<Run>(pid).timed();
            if timed.len() > 1 && first_phase.is_none() {
                first_phase = Some(Totals::of(machine, timed[0].bytes.0));
            }
            timed.iter().map(|timed| timed.bytes.0).sum()
        });
        let timed = machine.process::<Run>(pid).timed();
        let rate = |phase: usize| timed.get(phase).map_or(0.0, |timed| timed.rate() / 1e6);
        let totals = first_phase.unwrap_or_default();
        let values = [
            (Metric::Throughput, rate(0)),
            (Metric::RandomWrite, rate(1)),
            (Metric::Prereads, totals.prereads()),
            (Metric::MemberRequest, totals.member_request()),
        ];
        let seconds = timed.last().map_or(0.0, |timed| timed.ended.0 as f64 / 1e9);
        let many = if threads == 1 { "" } else { "s" };
        let name = format!("{threads} thread{many}, {} KiB", block.0 >> 10);
        Part { name, ..Part::of(&machine, &values, seconds, series) }
    }
}

/// Largest request in which the file system writes pages back.
const BIO: Bytes = Bytes::kib(256);
