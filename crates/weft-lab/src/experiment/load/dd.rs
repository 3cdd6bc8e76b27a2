//! Metrics of `dd`: its rate, up to the close of the device.
//!
//! The close writes everything back, and `dd` stops its clock after the close. A job file of fio
//! cannot express this: fio stops the clock of a job before the close, or with `fsync_on_close`
//! after a flush of the members' caches, which a close does not send.

use serde::Deserialize;
use weft_sim::workload::dd::{self, Device};
use weft_units::{Bytes, Time};

use super::{Amount, Measure, Part, Size, TIME_MAX};
use crate::experiment::bounds::{ArrayText, Bound};
use crate::experiment::metric::Metric;
use crate::experiment::testbed::Testbed;
use crate::experiment::watch::{Series, Totals};

/// Load `dd if=/dev/zero of=/dev/mdX` with `count` blocks of `block_kib` KiB.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dd {
    block_kib: u64,
    pub(super) count: Amount,
}

impl Measure for Dd {
    fn metrics(&self) -> &'static [Metric] {
        &[
            Metric::Throughput,
            Metric::WithoutClose,
            Metric::Prereads,
            Metric::PrereadWaitP999,
            Metric::PrereadWaitMax,
            Metric::MemberRequest,
        ]
    }

    fn amount(&self) -> Amount {
        self.count
    }

    fn bounds(&self) -> Vec<Bound> {
        let mut bounds = vec![Bound::pages_kib("load.block_kib", self.block_kib)];
        bounds.extend(Bound::amounts("load.count", self.count, 1 << 30));
        bounds
    }

    fn bytes(&self, _: ArrayText) -> u128 {
        self.count.most() * u128::from(self.block_kib << 10)
    }

    fn run(&self, testbed: &Testbed, size: Size, _: usize) -> Part {
        let mut machine = testbed.machine();
        // 2.6.24 wrote the pages of a block device one by one.
        machine.add_page_cache(testbed.pool, Box::new(Device), Bytes::kib(4));
        let (block, count) = (Bytes::kib(self.block_kib), self.count.at(size));
        let pid = machine.add_with(|pid| Box::new(dd::Dd::new(pid, block, count)));
        let mut series = Series::default();
        series.watch(&mut machine, TIME_MAX, |machine| machine.process::<dd::Dd>(pid).done().0);
        let dd: &dd::Dd = machine.process(pid);
        let rate = |at: Option<Time>| {
            dd.bytes().0 as f64 / 1e6 / at.map_or(f64::INFINITY, |at| at.0 as f64 / 1e9)
        };
        let totals = Totals::of(&machine, dd.bytes().0);
        let values = [
            (Metric::Throughput, rate(dd.closed)),
            (Metric::WithoutClose, rate(dd.written)),
            (Metric::Prereads, totals.prereads()),
            (Metric::MemberRequest, totals.member_request()),
        ];
        let seconds = dd.closed.map_or(0.0, |at| at.0 as f64 / 1e9);
        Part::of(&machine, &values, seconds, series)
    }
}
