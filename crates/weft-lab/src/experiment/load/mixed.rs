//! Metrics of `dd` beside writers of single blocks.
//!
//! There are two rates: the rate of `dd` alone, and the rate of all processes until the last of
//! them is done. The work is fixed, so a policy that delays the writers until `dd` is done gains in
//! the first rate only.
//!
//! A job file of fio cannot express this: the clock of `dd` stops after the close of the device
//! (`dd.rs`), and the writers may be without the `sync` flag, which direct writes of a job always
//! carry.

use serde::Deserialize;
use weft_sim::workload::dd::Device;
use weft_sim::workload::mixed;
use weft_units::{Bytes, Time};

use super::{Amount, Measure, Part, Size, TIME_MAX};
use crate::experiment::bounds::{ArrayText, Bound};
use crate::experiment::metric::Metric;
use crate::experiment::testbed::Testbed;
use crate::experiment::watch::{Series, Totals};

/// Load of a `dd`, and of writers of single blocks beside it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mixed {
    pub(super) mib: Amount,
    writers: u64,
    /// Number of writes of each writer.
    writes: Amount,
    /// Whether the writes carry the `sync` flag.
    #[serde(default)]
    sync_flag: bool,
}

impl Measure for Mixed {
    fn metrics(&self) -> &'static [Metric] {
        &[
            Metric::Throughput,
            Metric::AllDone,
            Metric::Latency,
            Metric::LatencyP99,
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
        let mut bounds = vec![Bound::of("load.writers", self.writers, 0, 1024)];
        bounds.extend(Bound::amounts("load.mib", self.mib, 1 << 30));
        bounds.extend(Bound::amounts("load.writes", self.writes, 1 << 30));
        bounds
    }

    /// Bytes of a volume with room for the data of `dd` in its front half, and a rear half of equal
    /// size for the writers.
    fn bytes(&self, _: ArrayText) -> u128 {
        self.mib.most() * 2 * (1 << 20) + (8 << 10)
    }

    fn run(&self, testbed: &Testbed, size: Size, _: usize) -> Part {
        let mut machine = testbed.machine();
        machine.add_page_cache(testbed.pool, Box::new(Device), Bytes::kib(4));
        let (mib, writes) = (self.mib.at(size), self.writes.at(size));
        let Self { writers, sync_flag, .. } = *self;
        let all = mixed::Mixed { mib, writers, writes, sync_flag, seed: testbed.parts.seed };
        let all = all.add_to(&mut machine);
        let mut series = Series::default();
        series.watch(&mut machine, TIME_MAX, |machine| all.done(machine).0);
        let totals = Totals::of(&machine, all.done(&machine).0);
        let seconds = |at: Option<Time>| at.map_or(f64::INFINITY, |at| at.0 as f64 / 1e9);
        let (closed, over) = (seconds(all.dd(&machine).closed), seconds(all.ended(&machine)));
        let answers = all.answers(&machine);
        let values = [
            (Metric::Throughput, Bytes::mib(mib).0 as f64 / 1e6 / closed),
            (Metric::AllDone, totals.bytes as f64 / 1e6 / over),
            (Metric::Latency, answers.mean.0 as f64 / 1e6),
            (Metric::LatencyP99, answers.p99.0 as f64 / 1e6),
            (Metric::Prereads, totals.prereads()),
            (Metric::MemberRequest, totals.member_request()),
        ];
        Part::of(&machine, &values, over, series)
    }
}
