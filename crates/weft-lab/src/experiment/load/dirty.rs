//! Metrics of `dd`s under a limit of dirty pages: the rate of the disks, and metrics that explain
//! it.
//!
//! A case is named as in the tables of patch 001, and the name describes all of it:
//! `JBOD-10HDD-thresh=100M/xfs-10dd-1M-24p-16384M-100M:10-X` are ten disks with a limit of 100 MiB,
//! XFS, ten `dd`s on each with blocks of 1 MiB, 24 CPUs, 16 GiB, `dirty_bytes` of 100 MiB and the
//! background ratio at its default. Kernel, `HZ` and the link that disks share are settings
//! (`HostSettings`); the drive is that of the machine. Each disk is a volume of its own, and the
//! queues of the disks are those of the load ([`DirtyLimit`]), not of the column.
//!
//! Source   writeback.md §4.2

use serde::Deserialize;
use weft_engine::page_cache;
use weft_sim::workload::dirty_limit::{DirtyLimit, FileSystem, Measured};
use weft_units::{Bytes, Span};

use super::{Amount, Measure, Part, Size};
use crate::experiment::bounds::{ArrayText, Bound};
use crate::experiment::metric::Metric;
use crate::experiment::testbed::Testbed;
use crate::experiment::watch::{Inside, Series, Totals};
use crate::run_name::{Field, RunName};

/// Load of endless `dd`s on every disk of a machine, under a limit of dirty pages.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dirty {
    cell: Cell,
    /// Seconds that are measured, after a warm-up of half as many.
    #[serde(default = "seconds")]
    seconds: Amount,
}

fn seconds() -> Amount {
    Amount { quick: 6, default: 30, full: 300 }
}

/// Settings of a cell in the tables of patch 001, from the fields of the cell's name.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
struct Cell {
    disks: u16,
    file_system: FileSystem,
    writers: u32,
    block: Bytes,
    cpus: u32,
    memory: Bytes,
    dirty: page_cache::Amount,
    background: page_cache::Amount,
}

impl TryFrom<String> for Cell {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        Self::parse(&name).ok_or_else(|| {
            format!(
                "cell: found {name:?}, expected one as \
                 JBOD-10HDD-thresh=100M/xfs-10dd-1M-24p-16384M-100M:10-X, with 64 disks and 1000 \
                 dd each at most"
            )
        })
    }
}

impl Cell {
    fn parse(name: &str) -> Option<Self> {
        let (box_name, run) = name.split_once('/')?;
        let mut disks = 1;
        if let Some(rest) = box_name.strip_prefix("JBOD-") {
            disks = rest.split_once("HDD-")?.0.parse().ok()?;
        }
        let run = RunName::parse(run)?;
        let of = |field| run.field(field);
        let cpus = of(Field::Cpu).strip_suffix('p')?.parse().ok()?;
        let cell = Self {
            disks,
            file_system: FileSystem::named(of(Field::Fs))?,
            writers: of(Field::Dd).strip_suffix("dd")?.parse().ok()?,
            block: bytes(of(Field::Bs))?,
            cpus,
            memory: memory_of(cpus, bytes(of(Field::Mem))?),
            dirty: amount(of(Field::Thresh))?,
            background: amount(of(Field::BgThresh))?,
        };
        let whole = cell.block.0 > 0 && cell.block.0.is_multiple_of(page_cache::PAGE_BYTES);
        let some = (1..=64).contains(&cell.disks) && (1..=1000).contains(&cell.writers);
        let host = (1..=1024).contains(&cell.cpus) && (1..=1 << 40).contains(&cell.memory.0);
        (whole && some && host).then_some(cell)
    }
}

/// Memory of the machine of a cell. `printed` is the size in the cell's name, which is rounded up
/// to a power of two: the machine with 8 CPUs has 2942 MiB, as another of its reports says, and the
/// name says 4096 MiB.
fn memory_of(cpus: u32, printed: Bytes) -> Bytes {
    if (cpus, printed) == (8, Bytes::mib(4096)) { Bytes::mib(2942) } else { printed }
}

/// Parses an amount of dirty pages: `100M` is bytes, `20` is percent. `None` for less than two
/// pages, for a percentage outside of 1 to 100, and for any other text.
fn amount(text: &str) -> Option<page_cache::Amount> {
    match text.parse::<u64>() {
        Ok(percent @ 1..=100) => Some(page_cache::Amount::Percent(percent)),
        Ok(_) => None,
        Err(_) => {
            let Bytes(of) = bytes(text)?;
            (of >= 2 * page_cache::PAGE_BYTES).then_some(page_cache::Amount::Bytes(of))
        }
    }
}

/// Parses a size as `4k`, `100M` or `1G`. `None` for any other text, and for a number of 2²⁰ or
/// more.
fn bytes(text: &str) -> Option<Bytes> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let shift = match unit {
        "k" => 10,
        "M" => 20,
        "G" => 30,
        _ => return None,
    };
    let number: u64 = number.parse().ok()?;
    (number < 1 << 20).then_some(Bytes(number << shift))
}

impl Measure for Dirty {
    fn metrics(&self) -> &'static [Metric] {
        &[
            Metric::Throughput,
            Metric::PagesWritten,
            Metric::DiskIdle,
            Metric::RunLength,
            Metric::Fairness,
            Metric::PauseP99,
            Metric::PauseMax,
            Metric::DirtyMost,
        ]
    }

    fn amount(&self) -> Amount {
        self.seconds
    }

    fn bounds(&self) -> Vec<Bound> {
        Bound::amounts("load.seconds", self.seconds, 100_000).into()
    }

    fn bytes(&self, _: ArrayText) -> u128 {
        // Files that run out of space are overwritten from the start.
        0
    }

    fn run(&self, testbed: &Testbed, size: Size, _: usize) -> Part {
        let seconds = self.seconds.at(size);
        let Cell { disks, file_system, writers, block, cpus, memory, dirty, background } =
            self.cell;
        let measured = DirtyLimit {
            kernel: testbed.pool.kernel,
            hz: testbed.host.hz,
            cpus,
            memory,
            disks,
            model: testbed.parts.model.clone(),
            link: testbed.host.link(),
            file_system,
            writers,
            block,
            dirty,
            background,
            warm_up: Span::millis(seconds * 500),
            measured: Span::secs(seconds),
            placebo: Span(testbed.parts.costs.turn),
            seed: testbed.parts.seed,
        }
        .run();
        let millis = |span: Span| span.0 as f64 / 1e6;
        let most = measured.dirty_max as f64 / measured.limit as f64 * 100.0;
        let values = [
            (Metric::Throughput, measured.mib_per_second * 1.048_576),
            (Metric::PagesWritten, measured.pages_since_start as f64),
            (Metric::DiskIdle, measured.idle_mean() * 100.0),
            (Metric::RunLength, measured.run_bytes_mean() / 1024.0),
            (Metric::Fairness, measured.jain),
            (Metric::PauseP99, millis(measured.pause_p99)),
            (Metric::PauseMax, millis(measured.pause_max)),
            (Metric::DirtyMost, most),
        ];
        Part {
            name: String::new(),
            values: values.into(),
            seconds: seconds as f64,
            settled: None,
            series: series(&measured),
            inside: Inside { time: Span(seconds * 1_500_000_000), ..Inside::default() },
            pool: Some(Box::new(measured)),
        }
    }
}

/// Totals over time, from the samples of a measurement. The bytes that disks wrote count as the
/// work of the load.
fn series(measured: &Measured) -> Series {
    let totals = |pages: u64| {
        let bytes = pages * page_cache::PAGE_BYTES;
        Totals { bytes, written: bytes, ..Totals::default() }
    };
    Series { points: measured.samples.iter().map(|sample| totals(sample.written)).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_the_tables_says_what_a_box_is() {
        let of = |name: &str| Cell::parse(name).unwrap();
        let jbod = of("JBOD-10HDD-thresh=100M/xfs-100dd-1M-24p-16384M-100M:10-X");
        assert_eq!((jbod.disks, jbod.writers, jbod.cpus), (10, 100, 24));
        assert_eq!((jbod.block, jbod.memory), (Bytes::mib(1), Bytes::mib(16384)));
        assert_eq!(jbod.file_system, FileSystem::Xfs);
        let one = of("thresh=400M-300M/ext4-2dd-4k-8p-4096M-400M:300M-X");
        assert_eq!((one.disks, one.writers, one.file_system), (1, 2, FileSystem::Ext4));
        assert_eq!((one.block, one.memory), (Bytes::kib(4), Bytes::mib(2942)));
        assert_eq!(one.dirty, page_cache::Amount::Bytes(400 << 20));
        assert_eq!(one.background, page_cache::Amount::Bytes(300 << 20));
        let ratio = of("JBOD-2HDD-6G/xfs-1dd-1M-24p-16384M-20:10-X");
        assert_eq!(ratio.dirty, page_cache::Amount::Percent(20));
        assert_eq!(ratio.background, page_cache::Amount::Percent(10));
    }

    #[test]
    fn a_name_of_something_else_is_refused_with_what_was_expected() {
        for name in [
            "",
            "thresh=1M",
            "thresh=1M/btrfs-1dd-4k-8p-4096M-1M:10-X",
            "thresh=1M/xfs-0dd-4k-8p-4096M-1M:10-X",
            "thresh=1M/xfs-1dd-1k-8p-4096M-1M:10-X",
            "thresh=1M/xfs-1dd-4k-0p-4096M-1M:10-X",
            "thresh=1M/xfs-1dd-4k-8p-4096M-1000:10-X",
            "thresh=1M/xfs-1dd-4k-8p-4096M-1M:10",
            "JBOD-0HDD-x/xfs-1dd-4k-8p-4096M-1M:10-X",
            "JBOD-65HDD-x/xfs-1dd-4k-8p-4096M-1M:10-X",
        ] {
            let told = Cell::try_from(name.to_owned()).unwrap_err();
            assert!(told.starts_with(&format!("cell: found {name:?}, expected")), "{told}");
        }
    }
}
