//! Loads of experiments, and the metrics of each.
//!
//! | load | file |
//! |---|---|
//! | `dbench` on ext4 | `dbench.rs` |
//! | `dd` onto the device | `dd.rs` |
//! | jobs of `fio`, and isolated writes | `fio.rs` |
//! | `dd` beside writers of single blocks | `mixed.rs` |
//! | `tiobench` on XFS | `tiobench.rs` |
//!
//! A load has *parts*, which are runs of their own: `tiobench` prints a table of eight, and the
//! figure is their mean. How much is done depends on the [`Size`] of the whole; limits and caches
//! do not.

mod dbench;
mod dd;
mod fio;
mod mixed;
mod tiobench;

use std::collections::BTreeMap;

use serde::Deserialize;
use weft_sim::machine::Machine;

pub use dbench::Dbench;
pub use dd::Dd;
pub use fio::{Fio, Isolated, Pattern};
pub use mixed::Mixed;
pub use tiobench::Tiobench;

use super::bounds::{ArrayText, Bound};
use super::ground::Ground;
use super::metric::Metric;
use super::watch::{Inside, Series, Steady};

/// Workload that uses the volume.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Load {
    /// Clients of a file server, on ext4.
    Dbench(Dbench),
    /// `dd` onto the device.
    Dd(Dd),
    /// Direct I/O, as much at a time as the depth says.
    Fio(Fio),
    /// One write after the other, far apart.
    Isolated(Isolated),
    /// `dd`, and writers of single blocks beside it.
    Mixed(Mixed),
    /// `tiobench` on XFS.
    Tiobench(Tiobench),
}

/// Amount of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// For a first look.
    Quick,
    /// Enough for narrow intervals.
    Default,
    /// As much as was published.
    Full,
}

/// How much of something, by the size of the whole.
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

    /// At a size.
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
    /// What it is called, if there are several.
    pub name: String,
    /// Values of the metrics.
    pub values: BTreeMap<Metric, f64>,
    /// How long the measured part was, seconds of virtual time.
    pub seconds: f64,
    /// Whether that part had settled; `None` for loads that have an end.
    pub settled: Option<bool>,
    /// Course of the part.
    pub series: Series,
    /// Samples of the machine's inside.
    pub inside: Inside,
}

impl Part {
    /// Of a machine that is done.
    fn of(machine: &Machine, values: &[(Metric, f64)], seconds: f64, series: Series) -> Self {
        assert_eq!(machine.host.answered().1, 0, "nothing fails on these disks");
        let inside = Inside::of(machine);
        let values = values.iter().copied().chain(inside.preread_waits()).collect();
        Self { name: String::new(), values, seconds, settled: None, series, inside }
    }

    /// Of a run that could go on for ever.
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

impl Load {
    /// Metrics that rows may compare.
    #[must_use]
    pub fn metrics(&self) -> &'static [Metric] {
        match self {
            Self::Dbench(_) => Dbench::METRICS,
            Self::Dd(_) => Dd::METRICS,
            Self::Fio(_) => Fio::METRICS,
            Self::Isolated(_) => Isolated::METRICS,
            Self::Mixed(_) => Mixed::METRICS,
            Self::Tiobench(_) => Tiobench::METRICS,
        }
    }

    /// Numbers of its text, and where they have to lie.
    pub(super) fn bounds(&self) -> Vec<Bound> {
        match self {
            Self::Dbench(load) => load.bounds(),
            Self::Dd(load) => load.bounds(),
            Self::Fio(load) => load.bounds(),
            Self::Isolated(load) => load.bounds(),
            Self::Mixed(load) => load.bounds(),
            Self::Tiobench(load) => load.bounds(),
        }
    }

    /// Bytes of a volume on which it has room, at every size. The bounds of its numbers hold.
    pub(super) fn bytes(&self, array: ArrayText) -> u128 {
        match self {
            Self::Dbench(load) => load.bytes(),
            Self::Dd(load) => load.bytes(),
            Self::Fio(load) => load.bytes(),
            Self::Isolated(load) => load.bytes(),
            Self::Mixed(load) => load.bytes(),
            Self::Tiobench(load) => load.bytes(array),
        }
    }

    /// Number of parts.
    pub(super) fn parts(&self, size: Size) -> usize {
        match self {
            Self::Tiobench(load) => load.parts(size),
            _ => 1,
        }
    }

    /// How much all its parts do, in whatever it is counted in.
    pub(super) fn work(&self, size: Size) -> f64 {
        let each = match self {
            Self::Dbench(Dbench { seconds, .. }) | Self::Fio(Fio { seconds, .. }) => seconds,
            Self::Dd(Dd { count, .. }) | Self::Isolated(Isolated { count, .. }) => count,
            Self::Mixed(Mixed { mib, .. }) | Self::Tiobench(Tiobench { mib, .. }) => mib,
        };
        each.at(size) as f64 * self.parts(size) as f64
    }

    /// Runs a part.
    pub(super) fn run(&self, ground: &Ground, size: Size, part: usize) -> Part {
        match self {
            Self::Dbench(load) => load.run(ground, size),
            Self::Dd(load) => load.run(ground, size),
            Self::Fio(load) => load.run(ground, size),
            Self::Isolated(load) => load.run(ground, size),
            Self::Mixed(load) => load.run(ground, size),
            Self::Tiobench(load) => load.run(ground, size, part),
        }
    }
}

/// A run of something that ends by itself and takes longer is broken; it would take a disk's whole
/// life to find out how broken.
const SECONDS_MAX: u64 = 36_000;
