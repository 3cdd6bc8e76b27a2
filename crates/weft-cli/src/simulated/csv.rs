//! CSV of a simulation, for spreadsheets and plots: a row for each job and direction, or for each
//! job and setting of a sweep.
//!
//! The first line names the columns, and a name ends with its unit. Jobs and settings are in the
//! order of the text and the JSON; an interval is empty after a single run.
//!
//! Source   RFC 4180, by the crate csv

use csv::Writer;
use weft_lab::fio_json::{DirectionResult, JobResult};
use weft_lab::simulate::Outcome;
use weft_lab::simulate::sweep::Metric;
use weft_terminal::outcome::Failure;
use weft_terminal::terminal::stdout;

use super::found::Found;
use super::sweep::iops;

/// Prints the results of one run.
pub(crate) fn print_outcome(outcome: &Outcome) -> Result<(), Failure> {
    let mut out = Writer::from_writer(stdout());
    let percents = PERCENTS.map(|(name, _)| name);
    out.write_record(OUTCOME.iter().chain(&percents)).map_err(std::io::Error::from)?;
    for result in &outcome.results {
        for (way, of) in ["read", "write", "trim"].iter().zip(&result.directions) {
            if of.total.count() > 0 {
                out.write_record(row(result, way, of)).map_err(std::io::Error::from)?;
            }
        }
    }
    Ok(out.flush()?)
}

/// Columns of a run that precede its percentiles.
const OUTCOME: [&str; 13] = [
    "job",
    "group",
    "direction",
    "requests",
    "bytes",
    "runtime_ns",
    "mb_s",
    "requests_s",
    "slat_mean_ns",
    "clat_min_ns",
    "clat_mean_ns",
    "clat_stdev_ns",
    "clat_max_ns",
];

/// Columns for percentiles of completion latencies: each with its name and percentile.
const PERCENTS: [(&str, f64); 5] = [
    ("clat_p50_ns", 50.0),
    ("clat_p90_ns", 90.0),
    ("clat_p99_ns", 99.0),
    ("clat_p99_9_ns", 99.9),
    ("clat_p99_99_ns", 99.99),
];

fn row(result: &JobResult, way: &str, of: &DirectionResult) -> Vec<String> {
    let seconds = (of.runtime.0 as f64 / 1e9).max(1e-9);
    let latencies = &of.completion;
    let mut row = vec![
        result.name.clone(),
        result.group.to_string(),
        way.to_owned(),
        of.total.count().to_string(),
        of.bytes.0.to_string(),
        of.runtime.0.to_string(),
        (of.bytes.0 as f64 / seconds / 1e6).to_string(),
        (of.total.count() as f64 / seconds).to_string(),
        of.submission.mean_ns().to_string(),
        latencies.min().0.to_string(),
        latencies.mean_ns().to_string(),
        latencies.deviation_ns().to_string(),
        latencies.max().0.to_string(),
    ];
    row.extend(PERCENTS.map(|(_, percent)| latencies.percentile(percent).0.to_string()));
    row
}

/// Prints a comparison, with a column for each swept knob.
pub(super) fn print_swept(found: &Found) -> Result<(), Failure> {
    let Found { sweep, knob, settings, names, swept, effects } = found;
    let runs = sweep.runs;
    let mut out = Writer::from_writer(stdout());
    let mut columns = vec!["job".to_owned()];
    columns.extend(knob.split(", ").map(str::to_owned));
    columns.extend(["runs", "share", "requests_s"].map(str::to_owned));
    for (metric, _) in METRICS {
        columns.extend(["", "_low", "_high"].map(|end| format!("{metric}{end}")));
    }
    columns.extend(["cache_bytes", "cache_stripes", "same_as"].map(str::to_owned));
    out.write_record(&columns).map_err(std::io::Error::from)?;
    for job in swept {
        for (setting, name) in names.iter().enumerate() {
            let mut row = vec![job.job.clone()];
            row.extend(name.split(", ").map(str::to_owned));
            row.push(runs.to_string());
            row.push(job.share(setting).to_string());
            row.push(iops(job, setting).to_string());
            for (_, metric) in METRICS {
                let of = job.estimate(setting, metric);
                let end = |of: f64| if runs > 1 { of.to_string() } else { String::new() };
                row.extend([of.value.to_string(), end(of.low), end(of.high)]);
            }
            let cache = settings[setting].stripe_cache;
            row.push(cache.map_or(String::new(), |cache| cache.bytes.0.to_string()));
            row.push(cache.map_or(String::new(), |cache| cache.stripes.to_string()));
            row.push(effects.same(setting, names).unwrap_or_default().to_owned());
            out.write_record(&row).map_err(std::io::Error::from)?;
        }
    }
    Ok(out.flush()?)
}

/// Metrics of a sweep; each has a column for its value and two for the ends of its 95 % interval.
const METRICS: [(&str, Metric); 5] = [
    ("throughput_mb_s", Metric::Throughput),
    ("mean_ns", Metric::Mean),
    ("p50_ns", Metric::Percentile(0)),
    ("p99_ns", Metric::Percentile(1)),
    ("p99_9_ns", Metric::Percentile(2)),
];
