//! Metrics of `dd`: its rate, up to the close of the device.
//!
//! The close writes back everything, and `dd` takes its time after that.

use serde::Deserialize;
use weft_sim::machine::Machine;
use weft_sim::workload::dd::{self, Device};
use weft_units::{Bytes, Span, Time};

use super::{Amount, Part, SECONDS_MAX, Size};
use crate::experiment::bounds::Bound;
use crate::experiment::ground::Ground;
use crate::experiment::metric::Metric;
use crate::experiment::watch::{Series, Totals, look_into};

/// `dd if=/dev/zero of=/dev/mdX`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dd {
    block_kib: u64,
    pub(super) count: Amount,
}

impl Dd {
    pub(super) const METRICS: &[Metric] = &[
        Metric::Throughput,
        Metric::WithoutClose,
        Metric::Prereads,
        Metric::PrereadWaitP999,
        Metric::PrereadWaitMax,
        Metric::MemberRequest,
    ];

    pub(super) fn bounds(&self) -> Vec<Bound> {
        let mut bounds = vec![Bound::pages_kib("load.block_kib", self.block_kib)];
        bounds.extend(Bound::amounts(
            ["load.count.quick", "load.count.default", "load.count.full"],
            self.count,
            1 << 30,
        ));
        bounds
    }

    pub(super) fn bytes(&self) -> u128 {
        self.count.most() * u128::from(self.block_kib << 10)
    }

    pub(super) fn run(&self, ground: &Ground, size: Size) -> Part {
        let mut machine = Machine::new(&ground.parts);
        look_into(&mut machine);
        // 2.6.24 wrote the pages of a block device one by one.
        machine.add_page_cache(ground.pool, Box::new(Device), Bytes::kib(4));
        let (block, count) = (Bytes::kib(self.block_kib), self.count.at(size));
        let pid = machine.add_with(|pid| Box::new(dd::Dd::new(pid, block, count)));
        let mut series = Series::default();
        let until = Time(0) + Span::secs(SECONDS_MAX);
        series.watch(&mut machine, until, |machine| machine.process::<dd::Dd>(pid).done().0);
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
