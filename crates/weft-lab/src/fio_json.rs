//! Results in fio's JSON format.
//!
//! [`document`] writes the keys of fio 3.33, in its order and its units (a test compares them with
//! a list from a real run). Values that fio does not have are under one additional key, `weft`.
//!
//! Source   fio HOWTO, "JSON output"; output of fio 3.33; experiments.md §6

use crate::job::{Direction, Job, PERCENTILES};
use crate::latency::Latencies;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;
use weft_units::{Bytes, Span};

/// Result of one clone of a job, or of several clones that are reported together.
#[derive(Clone, Debug)]
pub struct JobResult {
    /// Name of the job.
    pub name: String,
    /// Reporting group of the job (`groupid`).
    pub group: u32,
    /// Options of the job as its section has them: name and value.
    pub options: Vec<(String, String)>,
    /// Percentiles of latencies that are reported, in percent.
    pub percentiles: Vec<f64>,
    /// Whether percentiles of the total latency are reported.
    pub lat_percentiles: bool,
    /// Whether percentiles of the latency from submission are reported.
    pub clat_percentiles: bool,
    /// Error number of the operating system with which the job ended; 0 for none.
    pub error: i32,
    /// Run time of the job without its warm-up.
    pub runtime: Span,
    /// Reads, writes and trims, by [`Direction`].
    pub directions: [DirectionResult; 3],
    /// Latencies of fsync and fdatasync.
    pub syncs: Latencies,
    /// Number of requests by queue depth at submission: 1, 2–3, 4–7, …, 64 or more.
    pub depth_levels: [u64; 7],
    /// Number of batches submitted, by size: 0, 1–4, 5–8, …, more than 64.
    pub submit_sizes: [u64; 7],
    /// Number of batches completed, by size in the same steps as `submit_sizes`.
    pub complete_sizes: [u64; 7],
}

/// Result of a job in one direction.
#[derive(Clone, Debug, Default)]
pub struct DirectionResult {
    /// Bytes transferred in this direction.
    pub bytes: Bytes,
    /// Time from the first request to the completion of the last.
    pub runtime: Span,
    /// Latencies from the time a request is due to its submission.
    pub submission: Latencies,
    /// Latencies from submission to completion.
    pub completion: Latencies,
    /// Latencies from the time a request is due to its completion.
    pub total: Latencies,
    /// Bytes per second in equal intervals of the run.
    pub bandwidth: Vec<f64>,
    /// Requests per second in equal intervals of the run.
    pub iops: Vec<f64>,
}

impl DirectionResult {
    /// Adds a request of `length` bytes with its latencies: `submission` lasts from its due time to
    /// its submission, `completion` from its submission to its completion.
    pub fn record(&mut self, length: Bytes, submission: Span, completion: Span) {
        self.bytes = Bytes(self.bytes.0.saturating_add(length.0));
        self.submission.record(submission);
        self.completion.record(completion);
        self.total.record(Span(submission.0.saturating_add(completion.0)));
    }

    fn merge(&mut self, other: &Self) {
        self.bytes = Bytes(self.bytes.0.saturating_add(other.bytes.0));
        self.runtime = self.runtime.max(other.runtime);
        self.submission.merge(&other.submission);
        self.completion.merge(&other.completion);
        self.total.merge(&other.total);
        for (ours, theirs) in
            [(&mut self.bandwidth, &other.bandwidth), (&mut self.iops, &other.iops)]
        {
            ours.resize(ours.len().max(theirs.len()), 0.0);
            ours.iter_mut().zip(theirs).for_each(|(ours, theirs)| *ours += theirs);
        }
    }
}

impl JobResult {
    /// Result of a job before its first request, with the job's name, group, options and
    /// percentiles.
    #[must_use]
    pub fn new(job: &Job) -> Self {
        Self {
            group: job.group,
            options: job.options.clone(),
            percentiles: job.report.percentiles.clone(),
            lat_percentiles: job.report.lat_percentiles,
            clat_percentiles: job.report.clat_percentiles,
            ..Self::named(&job.name)
        }
    }

    /// An empty result of a load other than a job, such as a trace, with fio's default percentiles.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            group: 0,
            options: Vec::new(),
            percentiles: PERCENTILES.to_vec(),
            lat_percentiles: false,
            clat_percentiles: true,
            error: 0,
            runtime: Span::ZERO,
            directions: Default::default(),
            syncs: Latencies::default(),
            depth_levels: [0; 7],
            submit_sizes: [0; 7],
            complete_sizes: [0; 7],
        }
    }

    /// Result of the job in one direction.
    pub fn direction(&mut self, direction: Direction) -> &mut DirectionResult {
        &mut self.directions[direction as usize]
    }

    /// Counts a request submitted at a queue depth of `outstanding`, itself included.
    pub fn on_depth(&mut self, outstanding: u32) {
        let level = outstanding.max(1).ilog2().min(6);
        self.depth_levels[level as usize] += 1;
    }

    /// Counts `count` submitted batches of `size` requests.
    pub fn on_submits(&mut self, size: u32, count: u64) {
        self.submit_sizes[batch_level(size)] += count;
    }

    /// Counts `count` completed batches of `size` requests.
    pub fn on_completes(&mut self, size: u32, count: u64) {
        self.complete_sizes[batch_level(size)] += count;
    }

    /// Adds the result of another clone or job, as `group_reporting` asks.
    pub fn merge(&mut self, other: &Self) {
        self.runtime = self.runtime.max(other.runtime);
        self.error = if self.error == 0 { other.error } else { self.error };
        for (ours, theirs) in self.directions.iter_mut().zip(&other.directions) {
            ours.merge(theirs);
        }
        self.syncs.merge(&other.syncs);
        for (ours, theirs) in [
            (&mut self.depth_levels, &other.depth_levels),
            (&mut self.submit_sizes, &other.submit_sizes),
            (&mut self.complete_sizes, &other.complete_sizes),
        ] {
            ours.iter_mut().zip(theirs).for_each(|(ours, theirs)| *ours += theirs);
        }
    }
}

/// Index of a batch size in the levels 0, 1–4, 5–8, 9–16, 17–32, 33–64, more.
fn batch_level(count: u32) -> usize {
    match count {
        0 => 0,
        1..=4 => 1,
        5..=8 => 2,
        9..=16 => 3,
        17..=32 => 4,
        33..=64 => 5,
        _ => 6,
    }
}

/// Values of the document outside of its list of jobs.
#[derive(Clone, Debug)]
pub struct Header {
    /// Version of weft, which the key `fio version` has after `fio-3.33-compat weft-`.
    pub weft_version: String,
    /// Time of the document, in milliseconds since the Unix epoch.
    pub timestamp_ms: u64,
    /// The timestamp as readable text.
    pub time: String,
    /// Options of `[global]`.
    pub global_options: Vec<(String, String)>,
    /// Values for which fio has no key, stored under the key `weft`.
    pub weft: Value,
}

/// Builds the JSON document, to be passed to `serde_json::to_string_pretty`.
#[must_use]
pub fn document<'a>(header: &'a Header, results: &'a [JobResult]) -> impl Serialize + use<'a> {
    Document {
        version: format!("fio-3.33-compat weft-{}", header.weft_version),
        timestamp: header.timestamp_ms / 1000,
        timestamp_ms: header.timestamp_ms,
        time: &header.time,
        global_options: Strings(&header.global_options),
        jobs: results.iter().map(job).collect(),
        disk_util: [],
        weft: &header.weft,
    }
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(rename = "fio version")]
    version: String,
    timestamp: u64,
    timestamp_ms: u64,
    time: &'a str,
    #[serde(rename = "global options")]
    global_options: Strings<'a>,
    jobs: Vec<JobEntry<'a>>,
    disk_util: [(); 0],
    weft: &'a Value,
}

#[derive(Serialize)]
struct JobEntry<'a> {
    jobname: &'a str,
    groupid: u32,
    error: i32,
    eta: u64,
    elapsed: u64,
    #[serde(rename = "job options")]
    options: Strings<'a>,
    read: DirectionEntry,
    write: DirectionEntry,
    trim: DirectionEntry,
    sync: SyncEntry,
    job_runtime: u64,
    usr_cpu: f64,
    sys_cpu: f64,
    ctx: u64,
    majf: u64,
    minf: u64,
    iodepth_level: Shares,
    iodepth_submit: Shares,
    iodepth_complete: Shares,
    latency_ns: Shares,
    latency_us: Shares,
    latency_ms: Shares,
    latency_depth: u64,
    latency_target: u64,
    latency_percentile: f64,
    latency_window: u64,
}

#[derive(Serialize)]
struct DirectionEntry {
    io_bytes: u64,
    io_kbytes: u64,
    bw_bytes: u64,
    bw: u64,
    iops: f64,
    runtime: u64,
    total_ios: u64,
    short_ios: u64,
    drop_ios: u64,
    slat_ns: LatencyEntry,
    clat_ns: LatencyEntry,
    lat_ns: LatencyEntry,
    bw_min: u64,
    bw_max: u64,
    bw_agg: f64,
    bw_mean: f64,
    bw_dev: f64,
    bw_samples: u64,
    iops_min: u64,
    iops_max: u64,
    iops_mean: f64,
    iops_stddev: f64,
    iops_samples: u64,
}

#[derive(Serialize)]
struct SyncEntry {
    total_ios: u64,
    lat_ns: LatencyEntry,
}

#[derive(Serialize)]
struct LatencyEntry {
    min: u64,
    max: u64,
    mean: f64,
    stddev: f64,
    #[serde(rename = "N")]
    count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    percentile: Option<Percentiles>,
}

/// JSON object with texts as values, in the order of the list.
struct Strings<'a>(&'a [(String, String)]);

impl Serialize for Strings<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// JSON object with percentages as values, in the order of the list.
struct Shares(Vec<(&'static str, f64)>);

impl Serialize for Shares {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

/// JSON object with percentages as keys and latencies in nanoseconds as values, in the order of the
/// list.
struct Percentiles(Vec<(f64, Span)>);

impl Serialize for Percentiles {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (percent, value) in &self.0 {
            map.serialize_entry(&format!("{percent:.6}"), &value.0)?;
        }
        map.end()
    }
}

fn job(result: &JobResult) -> JobEntry<'_> {
    const LEVELS: [&str; 7] = ["1", "2", "4", "8", "16", "32", ">=64"];
    const BATCHES: [&str; 7] = ["0", "4", "8", "16", "32", "64", ">=64"];
    let [read, write, trim] = [0, 1, 2].map(|at| direction(result, &result.directions[at]));
    let shares = |names: [&'static str; 7], counts: &[u64; 7]| {
        let sum: u64 = counts.iter().sum();
        Shares(names.into_iter().zip(counts.iter().map(|count| percent(*count, sum))).collect())
    };
    let milliseconds = milliseconds(result.runtime);
    JobEntry {
        jobname: &result.name,
        groupid: result.group,
        error: result.error,
        eta: 0,
        elapsed: milliseconds / 1000 + 1,
        options: Strings(&result.options),
        read,
        write,
        trim,
        sync: SyncEntry {
            total_ios: result.syncs.count(),
            lat_ns: latency(&result.syncs, Some(&result.percentiles)),
        },
        job_runtime: milliseconds,
        // A simulated host has no processes, so their CPU use is 0.
        usr_cpu: 0.0,
        sys_cpu: 0.0,
        ctx: 0,
        majf: 0,
        minf: 0,
        iodepth_level: shares(LEVELS, &result.depth_levels),
        iodepth_submit: shares(BATCHES, &result.submit_sizes),
        iodepth_complete: shares(BATCHES, &result.complete_sizes),
        latency_ns: latency_shares(result, 0),
        latency_us: latency_shares(result, 1),
        latency_ms: latency_shares(result, 2),
        latency_depth: result
            .depth_levels
            .iter()
            .rposition(|count| *count > 0)
            .map_or(0, |l| 1 << l),
        latency_target: 0,
        latency_percentile: 100.0,
        latency_window: 0,
    }
}

fn direction(result: &JobResult, direction: &DirectionResult) -> DirectionEntry {
    let DirectionResult { bytes, submission, completion, total, .. } = direction;
    let runtime = milliseconds(direction.runtime);
    let per_second = |amount: u64| {
        let rate = u128::from(amount) * 1000 / u128::from(runtime.max(1));
        u64::try_from(rate).unwrap_or(u64::MAX)
    };
    let percentiles = |tell: bool| tell.then_some(&result.percentiles[..]);
    let bandwidth: Vec<f64> = direction.bandwidth.iter().map(|rate| rate / 1024.0).collect();
    let (bw, iops) = (Series::of(&bandwidth), Series::of(&direction.iops));
    let rate_kib = per_second(bytes.0) as f64 / 1024.0;
    DirectionEntry {
        io_bytes: bytes.0,
        io_kbytes: bytes.0 / 1024,
        bw_bytes: per_second(bytes.0),
        bw: per_second(bytes.0) / 1024,
        iops: total.count() as f64 * 1000.0 / runtime.max(1) as f64,
        runtime,
        total_ios: total.count(),
        short_ios: 0,
        drop_ios: 0,
        slat_ns: latency(submission, None),
        clat_ns: latency(completion, percentiles(result.clat_percentiles)),
        lat_ns: latency(total, percentiles(result.lat_percentiles)),
        bw_min: bw.min,
        bw_max: bw.max,
        bw_agg: if rate_kib > 0.0 { (bw.mean * 100.0 / rate_kib).min(100.0) } else { 0.0 },
        bw_mean: bw.mean,
        bw_dev: bw.deviation,
        bw_samples: bw.count,
        iops_min: iops.min,
        iops_max: iops.max,
        iops_mean: iops.mean,
        iops_stddev: iops.deviation,
        iops_samples: iops.count,
    }
}

/// Whole milliseconds; a time above zero counts as at least one.
fn milliseconds(span: Span) -> u64 {
    if span == Span::ZERO { 0 } else { (span.0 / 1_000_000).max(1) }
}

fn latency(latencies: &Latencies, percentiles: Option<&[f64]>) -> LatencyEntry {
    let told = percentiles.filter(|_| latencies.count() > 0).map(|list| {
        let mut list = list.to_vec();
        list.sort_by(f64::total_cmp);
        Percentiles(list.iter().map(|p| (*p, latencies.percentile(*p))).collect())
    });
    LatencyEntry {
        min: latencies.min().0,
        max: latencies.max().0,
        mean: latencies.mean_ns(),
        stddev: latencies.deviation_ns(),
        count: latencies.count(),
        percentile: told,
    }
}

/// Shares of all requests with latencies from the previous bound up to each bound, in percent:
/// bounds in nanoseconds for `unit` 0, microseconds for 1, milliseconds for 2.
fn latency_shares(result: &JobResult, unit: usize) -> Shares {
    const NAMES: [&str; 12] =
        ["2", "4", "10", "20", "50", "100", "250", "500", "750", "1000", "2000", ">=2000"];
    let all: u64 = result.directions.iter().map(|direction| direction.total.count()).sum();
    let names = NAMES.iter().take(if unit == 2 { 12 } else { 10 }).enumerate();
    let shares = names.map(|(at, name)| {
        let directions = result.directions.iter();
        let count = directions.map(|direction| direction.total.levels()[unit * 10 + at]).sum();
        (*name, percent(count, all))
    });
    Shares(shares.collect())
}

fn percent(count: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { count as f64 * 100.0 / of as f64 }
}

/// Minimum, maximum, mean and standard deviation of samples.
struct Series {
    min: u64,
    max: u64,
    mean: f64,
    deviation: f64,
    count: u64,
}

impl Series {
    fn of(samples: &[f64]) -> Self {
        if samples.is_empty() {
            return Self { min: 0, max: 0, mean: 0.0, deviation: 0.0, count: 0 };
        }
        let count = samples.len();
        let mean = samples.iter().sum::<f64>() / count as f64;
        let squares: f64 = samples.iter().map(|sample| (sample - mean) * (sample - mean)).sum();
        let deviation = if count < 2 { 0.0 } else { (squares / (count - 1) as f64).sqrt() };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let whole = |value: f64| value.max(0.0) as u64;
        let min = whole(samples.iter().copied().fold(f64::INFINITY, f64::min));
        let max = whole(samples.iter().copied().fold(0.0, f64::max));
        Self { min, max, mean, deviation, count: count as u64 }
    }
}
