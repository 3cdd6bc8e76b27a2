//! Metrics of `dbench`: throughput, and the latencies of `Flush` and `WriteX`.
//!
//! The throughput counts reads and writes of all clients. The two operations that wait for the
//! disks are `Flush` and, with `-s`, `WriteX`.

use serde::Deserialize;
use weft_sim::machine::Machine;
use weft_sim::workload::dbench::{OperationKind, Settings};
use weft_sim::workload::ext4::{Log, Mount};
use weft_units::Span;

use super::{Amount, Measure, Part, SECONDS_MAX, Size};
use crate::experiment::bounds::{ArrayText, Bound};
use crate::experiment::metric::Metric;
use crate::experiment::testbed::Testbed;
use crate::experiment::watch::{Series, longest, warm_up};

/// Load `dbench CLIENTS`, with `-s` if `sync_open`. `log_buffers` is the number of log buffers of
/// an XFS; with 0 the file system has the log of ext4.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dbench {
    clients: u32,
    #[serde(default)]
    sync_open: bool,
    #[serde(default)]
    log_buffers: u32,
    /// I/O priority of jbd2: a best-effort level, 0 to 7.
    #[serde(default = "journal_level")]
    journal_level: u8,
    /// Whether the journal lies among the files on the disk.
    #[serde(default)]
    journal_near: bool,
    /// Additional time of each of dbench's operations, in percent of its latency in patch 004's
    /// table; 0 for none.
    #[serde(default)]
    operation_percent: u32,
    pub(super) seconds: Amount,
}

impl Dbench {
    /// Sets another additional time of dbench's operations, in percent as `operation_percent`.
    pub(super) fn take_operations(&mut self, percent: u32) {
        self.operation_percent = percent;
    }
}

impl Measure for Dbench {
    fn metrics(&self) -> &'static [Metric] {
        &[
            Metric::Throughput,
            Metric::FlushAverage,
            Metric::FlushMax,
            Metric::WriteAverage,
            Metric::WriteMax,
            Metric::FlushRounds,
            Metric::FlushesChecked,
            Metric::Prereads,
            Metric::PrereadWaitP999,
            Metric::PrereadWaitMax,
            Metric::MemberRequest,
            Metric::Commits,
            Metric::SyncsPerCommit,
            Metric::EngineBusy,
            Metric::AtDisk,
            Metric::Plugged,
            Metric::KeptForWeight,
            Metric::KeptForRaised,
            Metric::KeptAlone,
            Metric::Injected,
            Metric::QueueMerges,
        ]
    }

    fn amount(&self) -> Amount {
        self.seconds
    }

    fn bounds(&self) -> Vec<Bound> {
        let mut bounds = vec![
            Bound::of("load.clients", self.clients.into(), 1, 256),
            Bound::of("load.log_buffers", self.log_buffers.into(), 0, 256),
            Bound::of("load.journal_level", self.journal_level.into(), 0, 7),
            Bound::of("load.operation_percent", self.operation_percent.into(), 0, 1000),
        ];
        bounds.extend(Bound::amounts("load.seconds", self.seconds, SECONDS_MAX));
        bounds
    }

    /// Bytes of a volume with room for the smallest ext4 and, for each client, 128 MiB, which is
    /// more than the files of dbench's stock load need.
    fn bytes(&self, _: ArrayText) -> u128 {
        (2 << 30) + u128::from(self.clients) * (128 << 20)
    }

    fn run(&self, testbed: &Testbed, size: Size, _: usize) -> Part {
        let time = Span::secs(self.seconds.at(size));
        let mut machine = testbed.machine();
        let log = match self.log_buffers {
            0 => Log::Jbd2,
            buffers => Log::Xfs { buffers },
        };
        let Self { journal_level, journal_near, .. } = *self;
        let mount = Mount { log, journal_level, journal_near };
        let fs = mount.on(&mut machine, testbed.pool);
        let (warm_up, seed) = (warm_up(time), testbed.parts.seed);
        let settings = Settings::new(self.clients, longest(time));
        let Self { sync_open, operation_percent, .. } = *self;
        let settings = Settings { warm_up, seed, sync_open, operation_percent, ..settings };
        let run = settings.start(&mut machine, &fs);
        let mut series = Series::default();
        let steady = series.watch_steady(&mut machine, time, |m| run.table(m).bytes);
        let table = run.table(&machine);
        let (flush, write) = (table.row(OperationKind::Flush), table.row(OperationKind::WriteX));
        // Commits are counted from the beginning of the run, as the journal counts them.
        let all = steady.seconds() + warm_up.0 as f64 / 1e9;
        let commits = fs.commits().transactions as f64 / all;
        let syncs = flush.count as f64 / steady.seconds();
        let values = [
            (Metric::Throughput, steady.throughput()),
            (Metric::FlushAverage, flush.mean_ms()),
            (Metric::FlushMax, flush.max.0 as f64 / 1e6),
            (Metric::WriteAverage, write.mean_ms()),
            (Metric::WriteMax, write.max.0 as f64 / 1e6),
            (Metric::FlushRounds, flush_rounds(&machine)),
            (Metric::FlushesChecked, flushes_checked(&machine)),
            (Metric::Prereads, steady.done.prereads()),
            (Metric::MemberRequest, steady.done.member_request()),
            (Metric::Commits, commits),
            (Metric::SyncsPerCommit, if commits > 0.0 { syncs / commits } else { 0.0 }),
            (Metric::EngineBusy, steady.engine_busy()),
        ];
        Part::of_steady(&machine, &values, &steady, series)
    }
}

fn journal_level() -> u8 {
    Mount::default().journal_level
}

/// Number of flush requests that the flush order checker examined, all of them without a violation.
///
/// # Panics
/// The engine answered a flush too early.
fn flushes_checked(machine: &Machine) -> f64 {
    let found = machine.host.flush_order();
    assert_eq!(found.early, 0, "a flush was answered before its writes were durable: {found:?}");
    found.answers as f64
}

/// Number of flushes of the member that was flushed most often, divided by the number of flush
/// requests of the volume.
fn flush_rounds(machine: &Machine) -> f64 {
    let members = &machine.host.snapshot().volumes[0].members;
    let most = members.iter().map(|member| member.flushes).max().unwrap_or(0);
    most as f64 / machine.host.flushes_asked().max(1) as f64
}
