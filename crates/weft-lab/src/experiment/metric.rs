//! Metrics of a run, with their units and directions.

use serde::Deserialize;

/// Something that is measured.
///
/// Order    what users see, then why
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Throughput as the load itself defines it.
    #[default]
    Throughput,
    /// Of `dd`, before it closes the device.
    WithoutClose,
    /// Of the phase that writes here and there.
    RandomWrite,
    /// Of `dd` and those beside it, until the last of them is done.
    AllDone,
    /// How long a request took, in the mean.
    Latency,
    /// How long 99 % of requests took at most.
    LatencyP99,
    /// Mean latency of dbench's `Flush`.
    FlushAverage,
    /// Longest latency of dbench's `Flush`.
    FlushMax,
    /// Mean latency of dbench's `WriteX`.
    WriteAverage,
    /// What members read, for what the load wrote.
    Prereads,
    /// How long 99.9 % of the stripes that had to be preread waited for that, at most.
    PrereadWaitP999,
    /// How long the stripe waited that waited longest for its preread.
    PrereadWaitMax,
    /// What members read and write for one write of the load.
    MemberKibPerWrite,
    /// Bytes of one request to a member, after merging.
    MemberRequest,
    /// Commits of the journal.
    Commits,
    /// The part of the time that the engine's thread works.
    EngineBusy,
}

impl Metric {
    /// The name in texts and in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::WithoutClose => "without_close",
            Self::RandomWrite => "random_write",
            Self::AllDone => "all_done",
            Self::Latency => "latency",
            Self::LatencyP99 => "latency_p99",
            Self::FlushAverage => "flush_average",
            Self::FlushMax => "flush_max",
            Self::WriteAverage => "write_average",
            Self::Prereads => "prereads",
            Self::PrereadWaitP999 => "preread_wait_p999",
            Self::PrereadWaitMax => "preread_wait_max",
            Self::MemberKibPerWrite => "member_kib_per_write",
            Self::MemberRequest => "member_request",
            Self::Commits => "commits",
            Self::EngineBusy => "engine_busy",
        }
    }

    /// Unit of the values.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::Throughput | Self::WithoutClose | Self::RandomWrite | Self::AllDone => "MB/s",
            Self::Latency
            | Self::LatencyP99
            | Self::FlushAverage
            | Self::FlushMax
            | Self::WriteAverage
            | Self::PrereadWaitP999
            | Self::PrereadWaitMax => "ms",
            Self::Prereads => "KiB/MiB",
            Self::MemberKibPerWrite | Self::MemberRequest => "KiB",
            Self::Commits => "1/s",
            Self::EngineBusy => "%",
        }
    }

    /// Whether a run may have nothing of it, with nothing wrong.
    pub(super) fn may_be_none(self) -> bool {
        matches!(self, Self::Prereads | Self::PrereadWaitP999 | Self::PrereadWaitMax)
    }

    /// Whether more of it is better.
    #[must_use]
    pub fn higher_is_better(self) -> bool {
        match self {
            Self::Throughput
            | Self::WithoutClose
            | Self::RandomWrite
            | Self::AllDone
            | Self::MemberRequest
            | Self::Commits => true,
            Self::Latency
            | Self::LatencyP99
            | Self::FlushAverage
            | Self::FlushMax
            | Self::WriteAverage
            | Self::Prereads
            | Self::PrereadWaitP999
            | Self::PrereadWaitMax
            | Self::MemberKibPerWrite
            | Self::EngineBusy => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_calls_a_metric_what_json_calls_it() {
        for metric in [
            Metric::Throughput,
            Metric::WithoutClose,
            Metric::RandomWrite,
            Metric::AllDone,
            Metric::Latency,
            Metric::LatencyP99,
            Metric::FlushAverage,
            Metric::FlushMax,
            Metric::WriteAverage,
            Metric::Prereads,
            Metric::PrereadWaitP999,
            Metric::PrereadWaitMax,
            Metric::MemberKibPerWrite,
            Metric::MemberRequest,
            Metric::Commits,
            Metric::EngineBusy,
        ] {
            let name = format!("\"{}\"", metric.name());
            assert_eq!(serde_json::from_str::<Metric>(&name).unwrap(), metric);
        }
    }
}
