//! What is measured of `dd` beside writers of single blocks?
//!
//! `dd` streams onto the front half of the device, through its page cache. Beside it some writers write blocks of 4 KiB
//! anywhere in the back half, past the page cache, each waiting for its answer. What all do is fixed, so that
//! who puts the writers off until `dd` is done gains nothing by that: `dd`'s own rate is one figure, and the rate
//! until all are done another.

use hdrhistogram::Histogram;
use serde::Deserialize;
use weft_engine::RequestOp;
use weft_sim::machine::{Machine, Pid};
use weft_sim::rng::Rng;
use weft_sim::workload::dd::{Dd, Device};
use weft_sim::workload::jobs::{Io, Job, Pace};
use weft_units::{ByteRange, Bytes, Span, Time};

use super::{Amount, Part, SECONDS_MAX, Size};
use crate::experiment::ground::Ground;
use crate::experiment::metric::Metric;
use crate::experiment::watch::{Series, Totals, look_into};

/// `dd`, and writers of single blocks.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mixed {
    pub(super) mib: Amount,
    writers: u64,
    /// Of each writer.
    writes: Amount,
}

impl Mixed {
    pub(super) const METRICS: &[Metric] = &[
        Metric::Throughput,
        Metric::AllDone,
        Metric::Latency,
        Metric::LatencyP99,
        Metric::Prereads,
        Metric::PrereadWaitP999,
        Metric::PrereadWaitMax,
        Metric::MemberRequest,
    ];

    pub(super) fn run(&self, ground: &Ground, size: Size) -> Part {
        let mut machine = Machine::new(&ground.parts);
        look_into(&mut machine);
        machine.add_page_cache(ground.pool, Box::new(Device), Bytes::kib(4));
        let mib = self.mib.at(size);
        let dd = machine.add_with(|pid| Box::new(Dd::new(pid, Bytes::mib(1), mib)));
        let (volume, seed) = (machine.host.size().0, ground.parts.seed);
        let writers: Vec<Pid> = (1..=self.writers)
            .map(|writer| {
                let asks =
                    blocks(volume, seed ^ (writer << 40)).take(self.writes.at(size) as usize);
                machine.add_with(|pid| Box::new(Job::new(pid, Pace::depth(1), Box::new(asks))))
            })
            .collect();
        let written = |machine: &Machine| -> u64 {
            let of = |pid: &Pid| machine.process::<Job>(*pid).found(RequestOp::Write).bytes.0;
            machine.process::<Dd>(dd).done().0 + writers.iter().map(of).sum::<u64>()
        };
        let mut series = Series::default();
        series.watch(&mut machine, Time(0) + Span::secs(SECONDS_MAX), written);
        let totals = Totals::of(&machine, written(&machine));
        let closed = machine.process::<Dd>(dd).closed.unwrap_or(Time(u64::MAX));
        let mut latencies = Histogram::<u64>::new(3).expect("three digits are allowed");
        let (mut requests, mut waited, mut over) = (0, 0, closed);
        for writer in &writers {
            let job: &Job = machine.process(*writer);
            let found = job.found(RequestOp::Write);
            latencies.add(&found.latencies).expect("histograms of one kind");
            requests += found.requests;
            waited += found.time.0;
            over = over.max(Time(0) + job.measured());
        }
        let rate = |bytes: u64, until: Time| bytes as f64 / 1e6 / (until.0 as f64 / 1e9);
        let values = [
            (Metric::Throughput, rate(Bytes::mib(mib).0, closed)),
            (Metric::AllDone, rate(totals.bytes, over)),
            (Metric::Latency, waited as f64 / 1e6 / requests.max(1) as f64),
            (Metric::LatencyP99, latencies.value_at_quantile(0.99) as f64 / 1e6),
            (Metric::Prereads, totals.prereads()),
            (Metric::MemberRequest, totals.member_request()),
        ];
        Part::of(&machine, &values, over.0 as f64 / 1e9, series)
    }
}

/// Blocks anywhere in the back half.
fn blocks(volume: u64, seed: u64) -> impl Iterator<Item = Io> {
    let half = volume / BLOCK.0 / 2;
    let mut rng = Rng::new(seed);
    std::iter::repeat_with(move || Io {
        op: RequestOp::Write,
        range: ByteRange::new((half + rng.below(half)) * BLOCK.0, BLOCK.0),
    })
}

const BLOCK: Bytes = Bytes::kib(4);
