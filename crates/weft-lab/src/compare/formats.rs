//! Formats of results: `/proc/vmstat` snapshots, fio's JSON, weft's own `--results`.
//!
//! Each format gives the metrics of a run by name. A counter of `vmstat-end` has the kernel's name
//! and counts since boot, as the script compare.rb of patch 001 (IO-less dirty throttling) read it;
//! if there is a `vmstat-begin` too, `NAME.run` is the growth of the counter in between. The
//! numbers of fio are named by their path in the JSON (`write.clat_ns.percentile.99`), and four
//! sums over reads, writes and trims are added. The numbers of weft have the names of its metrics,
//! and `PART.METRIC` for the parts of a run.
//!
//! Source   proc(5), "/proc/vmstat"; fio HOWTO, "JSON output"; `experiment/results.rs`;
//!          writeback.md §4.1, §5.1

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::error::CompareError;
use crate::text::shortened;

/// Metrics of a run, by name.
pub(super) type Values = BTreeMap<String, f64>;

/// SHA-256 of the bytes that a run was read from.
pub(super) type Hash = [u8; 32];

/// SHA-256 of the texts of a run's files, each of which is hashed after its length.
pub(super) fn hash<'a>(texts: impl IntoIterator<Item = &'a str>) -> Hash {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    hash.finalize().into()
}

/// Jobs that an output of fio reports, and the seed of the run.
pub(super) struct FioRun {
    pub(super) jobs: Vec<FioJob>,
    /// Seed of a simulated run, which weft adds to fio's keys; `None` in an output of fio itself.
    pub(super) seed: Option<u64>,
}

/// A job in an output of fio, with its metrics.
pub(super) struct FioJob {
    pub(super) name: String,
    pub(super) values: Values,
    /// Error number that fio reports for the job; 0 for no error.
    pub(super) error: i64,
}

/// Results of a run of an experiment, as `weft reproduce --results` stores them.
pub(super) struct WeftRun {
    pub(super) case: String,
    pub(super) column: String,
    pub(super) seed: u64,
    pub(super) settled: bool,
    pub(super) values: Values,
    pub(super) hash: Hash,
}

pub(super) fn text(path: &Path) -> Result<String, CompareError> {
    let read = fs::read(path).map_err(|source| CompareError::Read { path: path.into(), source })?;
    Ok(String::from_utf8_lossy(&read).into_owned())
}

fn wrong(path: &Path, field: &str, found: &str, expected: &'static str) -> CompareError {
    let (path, field) = (path.into(), field.to_owned());
    let advice = "copy the file again, or leave this run out";
    CompareError::Field { path, field, found: found.to_owned(), expected, advice }
}

/// Counters, by name, of a snapshot of `/proc/vmstat` with this `text`. Fails if a line is not a
/// name and a number, or if there is no counter; the error names `path`.
fn counters(path: &Path, text: &str) -> Result<BTreeMap<String, u64>, CompareError> {
    let expected = "a name and a number, as /proc/vmstat has";
    let mut counters = BTreeMap::new();
    for (at, line) in text.lines().enumerate() {
        let field = format!("line {}", at + 1);
        let mut words = line.split_whitespace();
        match (words.next(), words.next(), words.next()) {
            (None, ..) => {}
            (Some(name), Some(value), None) => {
                let value: u64 =
                    value.parse().map_err(|_| wrong(path, &field, &quoted(line), expected))?;
                counters.insert(super::plain(name), value);
            }
            _ => return Err(wrong(path, &field, &quoted(line), expected)),
        }
    }
    if counters.is_empty() {
        return Err(wrong(path, "counters", "none", "those of /proc/vmstat"));
    }
    Ok(counters)
}

/// The metrics of a folder with `vmstat-end`, and the hash of its snapshots.
pub(super) fn vmstat(folder: &Path) -> Result<(Values, Hash), CompareError> {
    let (end_path, begin_path) = (folder.join(VMSTAT_END), folder.join("vmstat-begin"));
    let end_text = text(&end_path)?;
    let begin_text = if begin_path.exists() { Some(text(&begin_path)?) } else { None };
    let end = counters(&end_path, &end_text)?;
    let begin = begin_text.as_ref().map(|text| counters(&begin_path, text)).transpose()?;
    let begin = begin.unwrap_or_default();
    let mut values = Values::new();
    for (name, count) in end {
        if let Some(before) = begin.get(&name) {
            values.insert(format!("{name}{GREW}"), count as f64 - *before as f64);
        }
        values.insert(name, count as f64);
    }
    Ok((values, hash([&*end_text, begin_text.as_deref().unwrap_or_default()])))
}

/// Suffix of a counter's name for the growth of the counter during the run.
pub(super) const GREW: &str = ".run";

/// Name of the file that marks a folder as a run with counters of vmstat.
pub(super) const VMSTAT_END: &str = "vmstat-end";

/// The jobs of fio's output; `None` if the JSON is not from fio.
///
/// Notes that fio may print before the JSON object are skipped.
pub(super) fn fio(path: &Path, text: &str) -> Result<Option<FioRun>, CompareError> {
    let start = if text.starts_with('{') { Some(0) } else { text.find("\n{").map(|at| at + 1) };
    let Some(start) = start else { return Ok(None) };
    let parsed = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>().next();
    let document = match parsed {
        Some(Ok(document)) => document,
        Some(Err(error)) => return Err(wrong(path, "JSON", &error.to_string(), "a whole object")),
        None => return Ok(None),
    };
    let lists = ["jobs", "client_stats"].map(|list| document.get(list));
    let Some(jobs) = lists.into_iter().flatten().find_map(Value::as_array) else {
        return Ok(None);
    };
    let mut found = Vec::new();
    for (at, job) in jobs.iter().enumerate() {
        let field = format!("jobs[{at}].jobname");
        let name = job.get("jobname").and_then(Value::as_str);
        let name = name.ok_or_else(|| wrong(path, &field, "none", "a text, as fio prints"))?;
        if name == "All clients" {
            continue;
        }
        let error = job.get("error").and_then(Value::as_i64).unwrap_or(0);
        let mut values = Values::new();
        flatten("", job, &mut values);
        sums(job, &mut values);
        if !values.contains_key("io_bytes") {
            let field = format!("jobs[{at}].read, write, trim");
            return Err(wrong(path, &field, "none with numbers", "results of fio"));
        }
        found.push(FioJob { name: name.to_owned(), values, error });
    }
    if found.is_empty() {
        return Err(wrong(path, "jobs", "none", "one or more"));
    }
    number_clones(&mut found);
    let seed = document.get("weft").and_then(|weft| weft.get("seed")).and_then(Value::as_u64);
    Ok(Some(FioRun { jobs: found, seed }))
}

/// Adds every number in a JSON value to `values`, named by its path from `path` on. Numbers in
/// lists and in the bins of histograms are left out.
fn flatten(path: &str, value: &Value, values: &mut Values) {
    match value {
        Value::Number(number) => {
            values.extend(number.as_f64().map(|number| (super::plain(path), number)));
        }
        Value::Object(members) => {
            // The bins of json+ are a histogram, not metrics.
            for (name, member) in members.iter().filter(|(name, _)| *name != "bins") {
                let name = if path.ends_with("percentile") { short(name) } else { name };
                let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
                flatten(&path, member, values);
            }
        }
        Value::Array(_) | Value::Bool(_) | Value::Null | Value::String(_) => {}
    }
}

/// Percentile as text without the trailing zeros that fio prints, such as `99` for `99.000000`.
fn short(percentile: &str) -> &str {
    match percentile.contains('.') {
        true => percentile.trim_end_matches('0').trim_end_matches('.'),
        false => percentile,
    }
}

/// Adds the sums over reads, writes and trims to `values`. fio before version 3 reports bandwidth
/// in KiB a second only.
fn sums(job: &Value, values: &mut Values) {
    for name in ["bw_bytes", "iops", "io_bytes", "total_ios"] {
        let directions = ["read", "write", "trim"].map(|direction| {
            let number = |name: &str| job.get(direction)?.get(name)?.as_f64();
            let kib = || if name == "bw_bytes" { Some(number("bw")? * 1024.0) } else { None };
            number(name).or_else(kib)
        });
        let known: Vec<f64> = directions.into_iter().flatten().collect();
        if !known.is_empty() {
            values.insert(name.to_owned(), known.iter().sum());
        }
    }
}

/// Appends a number to the name of each clone of a job, if fio reported the clones one by one:
/// equal names would make them repeats of one run.
fn number_clones(jobs: &mut [FioJob]) {
    let names: Vec<String> = jobs.iter().map(|job| job.name.clone()).collect();
    for (at, job) in jobs.iter_mut().enumerate() {
        if names.iter().filter(|name| **name == job.name).count() > 1 {
            let number = names[..=at].iter().filter(|name| **name == job.name).count();
            job.name = format!("{}.{number}", job.name);
        }
    }
}

/// Reads a run that `weft reproduce --results` has stored in a folder.
pub(super) fn weft(folder: &Path) -> Result<WeftRun, CompareError> {
    let read = |name: &str| {
        let path = folder.join(name);
        let text = text(&path)?;
        let value: Result<Value, _> = serde_json::from_str(&text);
        let value =
            value.map_err(|error| wrong(&path, "JSON", &error.to_string(), "a whole object"))?;
        Ok::<_, CompareError>((path, value, text))
    };
    let (path, parameters, parameters_text) = read(PARAMS)?;
    let word = |field: &str| {
        let found = parameters.get(field).unwrap_or(&Value::Null);
        let expected = "a text, as weft reproduce --results writes";
        let text = found.as_str().map(str::to_owned);
        text.ok_or_else(|| wrong(&path, field, &found.to_string(), expected))
    };
    let case = format!("{}-{}", word("patch")?, word("case")?);
    let column = word("column")?;
    let seed = parameters.get("seed").unwrap_or(&Value::Null);
    let seed =
        seed.as_u64().ok_or_else(|| wrong(&path, "seed", &seed.to_string(), "a whole number"))?;
    let (path, summary, summary_text) = read(SUMMARY)?;
    let mut values = Values::new();
    let found = summary.get("values").unwrap_or(&Value::Null);
    if !found.is_object() {
        return Err(wrong(&path, "values", &found.to_string(), "an object of metrics"));
    }
    flatten("", found, &mut values);
    for part in summary.get("parts").and_then(Value::as_array).into_iter().flatten() {
        if let (Some(name), Some(found)) =
            (part.get("part").and_then(Value::as_str), part.get("values"))
        {
            flatten(name, found, &mut values);
        }
    }
    let settled = summary.get("settled").and_then(Value::as_bool).unwrap_or(true);
    let hash = hash([&*parameters_text, &*summary_text]);
    Ok(WeftRun { case, column, seed, settled, values, hash })
}

/// Name of a file that marks a folder as a run of `weft reproduce --results`, together with
/// `SUMMARY`.
pub(super) const PARAMS: &str = "params.json";
pub(super) const SUMMARY: &str = "summary.json";

/// A line in quotes for an error message, shortened to 60 characters.
fn quoted(line: &str) -> String {
    format!("{:?}", shortened(line, 60))
}
