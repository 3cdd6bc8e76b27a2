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
//! A load has *parts*, which are runs of their own: `tiobench` prints a table of eight, and the
//! figure is their mean. How much is done depends on the [`Size`] of the whole; limits and caches
//! do not.

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

/// Workload that uses the volume.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Load {
    /// Clients of a file server, on ext4.
    Dbench(Dbench),
    /// `dd` onto the device.
    Dd(Dd),
    /// `dd`s on the disks of a box, under a limit of dirty pages.
    DirtyLimit(Dirty),
    /// Direct I/O, as much at a time as the depth says.
    Fio(Fio),
    /// One write after the other, far apart.
    Isolated(Isolated),
    /// `dd`, and writers of single blocks beside it.
    Mixed(Mixed),
    /// Direct readers, each at a level of its own.
    Readers(Readers),
    /// `tiobench` on XFS.
    Tiobench(Tiobench),
}

/// Amount of work.
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
    /// The word in JSON.
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
    /// The most at any size.
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

/// Result of a part of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Name of the part; empty where a load has one part.
    pub name: String,
    /// Values of the metrics that the load measures.
    pub values: BTreeMap<Metric, f64>,
    /// How long the measured part was, seconds of virtual time.
    pub seconds: f64,
    /// Whether that part had settled; `None` for loads that have an end.
    pub settled: Option<bool>,
    /// Course of the part.
    pub series: Series,
    /// Samples of the machine's inside.
    pub inside: Inside,
    /// Dirty pages, disks and waits over time, of loads that are about them.
    pub pool: Option<Box<dirty_limit::Measured>>,
}

impl Part {
    /// Part of a machine that is done.
    fn of(machine: &Machine, values: &[(Metric, f64)], seconds: f64, series: Series) -> Self {
        assert_eq!(machine.host.answered().1, 0, "nothing fails on these disks");
        let inside = Inside::of(machine);
        let values = values.iter().copied().chain(inside.metrics()).collect();
        Self { name: String::new(), values, seconds, settled: None, series, inside, pool: None }
    }

    /// Part of a run that could go on for ever, measured once it was steady.
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

/// What an experiment asks of a load.
trait Measure {
    /// Metrics that rows may compare.
    fn metrics(&self) -> &'static [Metric];

    /// Numbers of its text, and where they have to lie.
    fn bounds(&self) -> Vec<Bound>;

    /// Bytes of a volume on which it has room, at every size. The bounds of its numbers hold.
    fn bytes(&self, array: ArrayText) -> u128;

    /// How much a part does, in whatever it is counted in.
    fn amount(&self) -> Amount;

    /// Number of parts.
    fn parts(&self, _: Size) -> usize {
        1
    }

    /// Runs a part on a new machine.
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

    /// Metrics that rows may compare.
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

    /// Other times of operations, in percent, where they take any.
    pub(super) fn take_operations(&mut self, percent: u32) {
        if let Self::Dbench(load) = self {
            load.take_operations(percent);
        }
    }

    /// How much all its parts do.
    pub(super) fn work(&self, size: Size) -> f64 {
        self.each().amount().at(size) as f64 * self.parts(size) as f64
    }

    pub(super) fn run(&self, testbed: &Testbed, size: Size, part: usize) -> Part {
        self.each().run(testbed, size, part)
    }
}

/// A run of something that ends by itself and takes longer is broken; it would take a disk's whole
/// life to find out how broken.
const SECONDS_MAX: u64 = 36_000;

/// End of such a run.
const TIME_MAX: Time = Time(SECONDS_MAX * 1_000_000_000);
