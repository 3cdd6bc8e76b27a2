//! Figures for the comparison of two runs of a job.

use crate::fio_json::JobResult;
use weft_units::Span;

/// Figures of one job in one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Throughput in MB/s, of 10^6 bytes.
    pub rate: f64,
    /// 99th percentile of the latencies of requests.
    pub p99: Span,
    /// Longest latency of a request.
    pub longest: Span,
    /// Number of completed requests.
    pub requests: u64,
}

impl Figures {
    /// Figures of a job, over all directions.
    #[must_use]
    pub fn of(job: &JobResult) -> Self {
        let mut all = crate::latency::Latencies::default();
        let mut bytes = 0;
        for way in &job.directions {
            all.merge(&way.total);
            bytes += way.bytes.0;
        }
        let seconds = job.runtime.0.max(1) as f64 / 1e9;
        Self {
            rate: bytes as f64 / 1e6 / seconds,
            p99: all.percentile(99.0),
            longest: all.max(),
            requests: all.count(),
        }
    }
}
