//! Loads of experiments, and the metrics of each.
//!
//! | load | file |
//! |---|---|
//! | `dbench` on ext4 | `dbench.rs` |
//! | `dd` onto the device | `dd.rs` |
//! | `dd`s under a limit of dirty pages | `dirty.rs` |
//! | jobs of `fio`, and isolated writes | `fio.rs` |
//! | `dd` beside writers of single blocks | `mixed.rs` |
//! | readers of different levels | `readers.rs` |
//! | `tiobench` on XFS | `tiobench.rs` |
//!
//! A load has *parts*, which are separate runs: `tiobench` prints a table of eight figures, and the
//! published figure is their mean. The amount of work depends on the [`Size`]; limits and caches do
//! not.

mod dbench;
mod dd;
mod dirty;
mod fio;
mod mixed;
mod readers;
mod tiobench;

use std::collections::BTreeMap;

use serde::Deserialize;
use weft_sim::machine::Machine;
use weft_sim::workload::dirty_limit;
use weft_units::Time;

pub use dbench::Dbench;
pub use dd::Dd;
pub use dirty::Dirty;
pub use fio::{Fio, Isolated, Pattern};
pub use mixed::Mixed;
pub use readers::{Readers, Where};
pub use tiobench::Tiobench;

use super::bounds::{ArrayText, Bound};
use super::metric::Metric;
use super::testbed::Testbed;
use super::watch::{Inside, Series, Steady};

/// Load of an experiment: the programs that use the volume.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Load {
    /// Clients of a file server, on ext4.
    Dbench(Dbench),
    /// `dd` onto the device.
    Dd(Dd),
    /// `dd`s on the disks of a machine, under a limit of dirty pages.
    DirtyLimit(Dirty),
    /// Direct I/O with as many requests in flight as the depth allows.
    Fio(Fio),
    /// Single writes, one after the other, far apart.
    Isolated(Isolated),
    /// `dd`, and writers of single blocks beside it.
    Mixed(Mixed),
    /// Readers with direct I/O, each at an I/O priority (best-effort level) of its own.
    Readers(Readers),
    /// `tiobench` on XFS.
    Tiobench(Tiobench),
}

/// Amount of work of a run: short, default, or as published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Short runs for a first look.
    Quick,
    /// Runs long enough for narrow intervals.
    Default,
    /// Runs as long as the published ones.
    Full,
}

/// Amount of work at each [`Size`]: seconds, MiB or requests, as the load says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Amount {
    pub(super) quick: u64,
    pub(super) default: u64,
    pub(super) full: u64,
}

impl Size {
    /// Name of the size in JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Default => "default",
            Self::Full => "full",
        }
    }
}

impl Amount {
    /// The largest amount over all sizes.
    fn most(self) -> u128 {
        self.quick.max(self.default).max(self.full).into()
    }

    /// Amount of work at a size.
    #[must_use]
    pub fn at(&self, size: Size) -> u64 {
        match size {
            Size::Quick => self.quick,
            Size::Default => self.default,
            Size::Full => self.full,
        }
    }
}

/// Result of one part of a load; a part is a separate run.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Name of the part; empty if the load has one part.
    pub name: String,
    /// Values of the metrics that the load measures.
    pub values: BTreeMap<Metric, f64>,
    /// Length of the measured part, in seconds of virtual time.
    pub seconds: f64,
    /// Whether the measured part of the run was stationary; `None` for a load that ends by itself.
    pub settled: Option<bool>,
    /// Progress of the load over time, in steps of [`TICK`](super::TICK).
    pub series: Series,
    /// State inside the machine during the part: lists of stripes, waits and member traffic.
    pub inside: Inside,
    /// Dirty pages, disks and waits over time; `None` unless the load measures them.
    pub pool: Option<Box<dirty_limit::Measured>>,
}

impl Part {
    /// Result of a part of a run that ended by itself.
    fn of(machine: &Machine, values: &[(Metric, f64)], seconds: f64, series: Series) -> Self {
        assert_eq!(machine.host.answered().1, 0, "no request fails on these disks");
        let inside = Inside::of(machine);
        let values = values.iter().copied().chain(inside.metrics()).collect();
        Self { name: String::new(), values, seconds, settled: None, series, inside, pool: None }
    }

    /// Result of a part of an endless load, measured once it was steady.
    fn of_steady(
        machine: &Machine,
        values: &[(Metric, f64)],
        steady: &Steady,
        series: Series,
    ) -> Self {
        let settled = Some(steady.settled);
        Self { settled, ..Self::of(machine, values, steady.seconds(), series) }
    }
}

/// Interface of a load to its experiment.
trait Measure {
    /// Metrics that the load measures, which rows may compare.
    fn metrics(&self) -> &'static [Metric];

    /// Numbers in the load's text, each with the range that is legal.
    fn bounds(&self) -> Vec<Bound>;

    /// Bytes of the smallest volume that has room for the load, at every size. Only called for a
    /// load with numbers that are within their bounds.
    fn bytes(&self, array: ArrayText) -> u128;

    /// Amount of work of a part at each size of a run, in the unit of the load.
    fn amount(&self) -> Amount;

    /// Number of parts (separate runs) of the load.
    fn parts(&self, _: Size) -> usize {
        1
    }

    /// Runs the part with index `part` on a new machine, and returns its result.
    fn run(&self, testbed: &Testbed, size: Size, part: usize) -> Part;
}

impl Load {
    fn each(&self) -> &dyn Measure {
        match self {
            Self::Dbench(load) => load,
            Self::Dd(load) => load,
            Self::DirtyLimit(load) => load,
            Self::Fio(load) => load,
            Self::Isolated(load) => load,
            Self::Mixed(load) => load,
            Self::Readers(load) => load,
            Self::Tiobench(load) => load,
        }
    }

    /// Metrics that the load measures, which rows may compare.
    #[must_use]
    pub fn metrics(&self) -> &'static [Metric] {
        self.each().metrics()
    }

    pub(super) fn bounds(&self) -> Vec<Bound> {
        self.each().bounds()
    }

    pub(super) fn bytes(&self, array: ArrayText) -> u128 {
        self.each().bytes(array)
    }

    pub(super) fn parts(&self, size: Size) -> usize {
        self.each().parts(size)
    }

    /// Sets another additional time of dbench's operations, in percent of their published
    /// latencies. Does nothing for other loads.
    pub(super) fn take_operations(&mut self, percent: u32) {
        if let Self::Dbench(load) = self {
            load.take_operations(percent);
        }
    }

    /// Amount of work of all parts together, in the unit of the load.
    pub(super) fn work(&self, size: Size) -> f64 {
        self.each().amount().at(size) as f64 * self.parts(size) as f64
    }

    pub(super) fn run(&self, testbed: &Testbed, size: Size, part: usize) -> Part {
        self.each().run(testbed, size, part)
    }
}

/// Time limit of a load that ends by itself, in seconds of virtual time, and the largest number of
/// seconds that an endless load may run. A run that takes longer is broken.
const SECONDS_MAX: u64 = 36_000;

/// Virtual time at which a load that ends by itself is stopped.
const TIME_MAX: Time = Time(SECONDS_MAX * 1_000_000_000);
