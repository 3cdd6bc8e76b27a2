//! Metrics of a run, with their units and directions.

use serde::Deserialize;

use crate::statistics::Estimate;

/// Metric of a run.
///
/// Order    metrics that users see first, then metrics that explain them
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Throughput as the load itself defines it.
    #[default]
    Throughput,
    /// Throughput of `dd` before it closes the device.
    WithoutClose,
    /// Throughput of the phase of random writes of `tiobench`.
    RandomWrite,
    /// Throughput of `dd` and the writers beside it together, until the last process is done.
    AllDone,
    /// Mean latency of requests.
    Latency,
    /// Latency that 99 % of requests do not exceed.
    LatencyP99,
    /// Mean latency of dbench's `Flush`.
    FlushAverage,
    /// Longest latency of dbench's `Flush`.
    FlushMax,
    /// Mean latency of dbench's `WriteX`.
    WriteAverage,
    /// Longest latency of dbench's `WriteX`.
    WriteMax,
    /// Number of flushes sent to a member for each flush that was requested of the volume.
    FlushRounds,
    /// Number of flush requests that a checker examined; a run fails if a flush was answered before
    /// its writes were durable.
    FlushesChecked,
    /// KiB that members read for each MiB that the load wrote.
    Prereads,
    /// Wait that 99.9 % of prereads do not exceed.
    PrereadWaitP999,
    /// Longest wait of a stripe for its preread.
    PrereadWaitMax,
    /// KiB that members read and write for each write of the load.
    MemberKibPerWrite,
    /// Mean size of a request to a member after merging, KiB.
    MemberRequest,
    /// Number of commits of the journal per second.
    Commits,
    /// Number of dbench's `Flush` operations for each commit of the journal.
    SyncsPerCommit,
    /// Share of the time in which the engine's thread works.
    EngineBusy,
    /// Mean number of commands that the drives of members hold, over time.
    AtDisk,
    /// Share of the time in which `bfq` reserves a member for a queue without requests while other
    /// queues have requests.
    Plugged,
    /// Share of the time in which `bfq` reserves a member for a queue without requests because
    /// weights or classes differ, with or without requests of other queues.
    KeptForWeight,
    /// Share of the time in which `bfq` reserves a member for a queue without requests because the
    /// weight of the queue is raised.
    KeptForRaised,
    /// Share of the time in which `bfq` reserves a member for a queue without requests because no
    /// other queue has requests.
    KeptAlone,
    /// Number of requests per second that are dispatched to a member while it is reserved for
    /// another queue.
    Injected,
    /// Number of queues of `bfq` that are merged per second.
    QueueMerges,
    /// Number of pages written since the start of the run: `nr_written` of `/proc/vmstat`.
    PagesWritten,
    /// Share of the time in which a disk has no request, averaged over the disks.
    DiskIdle,
    /// Mean size of a sequential run of writes to a disk.
    RunLength,
    /// Jain's index of the amounts that writers dirtied: 1 if all are equal.
    Fairness,
    /// Wait in the page cache that 99 % of a writer's waits do not exceed.
    PauseP99,
    /// Longest wait of a writer for the page cache.
    PauseMax,
    /// Largest number of pages dirty and under writeback, as a share of the limit of dirty pages.
    DirtyMost,
    /// Largest difference between a client's share of all bytes and the share that its weight gives
    /// it.
    ShareError,
}

/// Every metric in the order of the enum: its name in texts and in JSON, its unit, and whether more
/// of it is better.
const TABLE: [(Metric, &str, &str, bool); 35] = [
    (Metric::Throughput, "throughput", "MB/s", true),
    (Metric::WithoutClose, "without_close", "MB/s", true),
    (Metric::RandomWrite, "random_write", "MB/s", true),
    (Metric::AllDone, "all_done", "MB/s", true),
    (Metric::Latency, "latency", "ms", false),
    (Metric::LatencyP99, "latency_p99", "ms", false),
    (Metric::FlushAverage, "flush_average", "ms", false),
    (Metric::FlushMax, "flush_max", "ms", false),
    (Metric::WriteAverage, "write_average", "ms", false),
    (Metric::WriteMax, "write_max", "ms", false),
    (Metric::FlushRounds, "flush_rounds", "1", false),
    (Metric::FlushesChecked, "flushes_checked", "1", true),
    (Metric::Prereads, "prereads", "KiB/MiB", false),
    (Metric::PrereadWaitP999, "preread_wait_p999", "ms", false),
    (Metric::PrereadWaitMax, "preread_wait_max", "ms", false),
    (Metric::MemberKibPerWrite, "member_kib_per_write", "KiB", false),
    (Metric::MemberRequest, "member_request", "KiB", true),
    (Metric::Commits, "commits", "1/s", true),
    (Metric::SyncsPerCommit, "syncs_per_commit", "1", true),
    (Metric::EngineBusy, "engine_busy", "%", false),
    (Metric::AtDisk, "at_disk", "1", true),
    (Metric::Plugged, "plugged", "%", false),
    (Metric::KeptForWeight, "kept_for_weight", "%", false),
    (Metric::KeptForRaised, "kept_for_raised", "%", false),
    (Metric::KeptAlone, "kept_alone", "%", false),
    (Metric::Injected, "injected", "1/s", true),
    (Metric::QueueMerges, "queue_merges", "1/s", false),
    (Metric::PagesWritten, "pages_written", "pages", true),
    (Metric::DiskIdle, "disk_idle", "%", false),
    (Metric::RunLength, "run_length", "KiB", true),
    (Metric::Fairness, "fairness", "1", true),
    (Metric::PauseP99, "pause_p99", "ms", false),
    (Metric::PauseMax, "pause_max", "ms", false),
    (Metric::DirtyMost, "dirty_most", "%", false),
    (Metric::ShareError, "share_error", "%", false),
];

impl Metric {
    fn row(self) -> (Self, &'static str, &'static str, bool) {
        TABLE[self as usize]
    }

    /// Finds the metric with this name; `None` if there is none.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        TABLE.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// Name of the metric in texts of experiments and in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Unit of the metric's values, such as `MB/s`; `1` for a number without a unit.
    #[must_use]
    pub fn unit(self) -> &'static str {
        self.row().2
    }

    /// Whether a higher value is better.
    #[must_use]
    pub fn higher_is_better(self) -> bool {
        self.row().3
    }

    /// Whether a correct run may have a value of zero.
    pub(super) fn may_be_zero(self) -> bool {
        let more_is_better =
            matches!(self, Self::SyncsPerCommit | Self::FlushesChecked | Self::Injected);
        more_is_better || !self.higher_is_better()
    }

    /// Ratio of two values of this metric as a gain, of which more than 1 is better: `ratio`
    /// itself, or its inverse if lower values are better.
    pub(super) fn gain(self, ratio: Estimate) -> Estimate {
        if self.higher_is_better() {
            return ratio;
        }
        let Estimate { value, low, high, count } = ratio;
        Estimate { value: 1.0 / value, low: 1.0 / high, high: 1.0 / low, count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_calls_a_metric_what_json_calls_it() {
        for (metric, name, ..) in TABLE {
            assert_eq!((metric.row().0, metric.name()), (metric, name), "rows are in order");
            assert_eq!(Metric::find(name), Some(metric));
            let read = serde_json::from_str::<Metric>(&format!("\"{name}\""));
            assert_eq!(read.unwrap(), metric);
        }
    }
}
