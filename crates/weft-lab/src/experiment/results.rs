//! Result files of every run: parameters, samples, summary.
//!
//! ```text
//! DIR/CASE/COLUMN/RUN/params.json    knobs, drive, load, seed, hash of the experiment
//!                     samples.csv    rates over the run, in steps of 100 ms
//!                     summary.json   metrics of the run
//! ```
//!
//! The name of a case begins with its patch: `000-dd-256`. Runs are numbered from 0; run `r` has
//! the seed `base + r`. A directory that is not empty is not touched.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::json;
use thiserror::Error;

use super::error::ExperimentError;
use super::{Effort, Experiment, Outcome, Part, Sample, TICK};

/// Reasons why results cannot be written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ResultsError {
    /// The directory is not empty.
    #[error("{0}: found something in it, expected an empty or a new directory; name another one")]
    Taken(PathBuf),
    /// The directory cannot be made or read.
    #[error("{path}: {source}; name a directory that can be made")]
    Directory {
        /// Path of the file or directory.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A file cannot be written, or a directory cannot be made.
    #[error("{path}: {source}")]
    Io {
        /// Path of the file or directory.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The experiment cannot be described.
    #[error("{0}")]
    Experiment(#[from] ExperimentError),
}

/// A directory for results.
#[derive(Debug)]
pub struct Results(PathBuf);

impl Results {
    /// Makes the directory unless it exists.
    ///
    /// # Errors
    /// The directory is not empty or cannot be made.
    pub fn at(path: &Path) -> Result<Self, ResultsError> {
        let wrong = |source| ResultsError::Directory { path: path.into(), source };
        fs::create_dir_all(path).map_err(wrong)?;
        if fs::read_dir(path).map_err(wrong)?.next().is_some() {
            return Err(ResultsError::Taken(path.into()));
        }
        Ok(Self(path.into()))
    }

    /// Writes a text to a file in a folder of the directory; the folder `.` is the directory
    /// itself.
    ///
    /// # Errors
    /// The file cannot be written, or exists.
    pub fn keep(&self, folder: &str, file: &str, text: &[u8]) -> Result<(), ResultsError> {
        let dir = self.0.join(folder);
        fs::create_dir_all(&dir)
            .map_err(|source| ResultsError::Io { path: dir.clone(), source })?;
        write_file(&dir.join(file), text)
    }

    /// Writes all results of an experiment's runs.
    ///
    /// # Errors
    /// A file cannot be written, or the experiment cannot be run as written.
    pub fn write(
        &self,
        experiment: &Experiment,
        outcome: &Outcome,
        effort: Effort,
    ) -> Result<(), ResultsError> {
        for case in &outcome.cases {
            let of_case = self.0.join(format!("{}-{}", experiment.patch(), case.name));
            for (column, samples) in &case.columns {
                let parameters = experiment.parameters(&case.name, column)?;
                for (run, sample) in (0..).zip(samples) {
                    let dir = of_case.join(column).join(run.to_string());
                    fs::create_dir_all(&dir)
                        .map_err(|source| ResultsError::Io { path: dir.clone(), source })?;
                    let parameters = json!({
                        "patch": experiment.patch(),
                        "experiment_sha256": experiment.hash,
                        "case": case.name,
                        "column": column,
                        "seed": effort.seed.wrapping_add(run),
                        "size": effort.size.word(),
                        "machine": parameters,
                    });
                    write_file(&dir.join("params.json"), &pretty(&parameters))?;
                    write_file(&dir.join("samples.csv"), samples_csv(sample).as_bytes())?;
                    write_file(&dir.join("summary.json"), &pretty(&summary(sample)))?;
                }
            }
        }
        Ok(())
    }
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), ResultsError> {
    let written = fs::File::create_new(path).and_then(|mut file| file.write_all(bytes));
    written.map_err(|source| ResultsError::Io { path: path.into(), source })
}

fn pretty(value: &serde_json::Value) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(value).expect("values have text for keys");
    bytes.push(b'\n');
    bytes
}

/// CSV text of the rates and counts in each step of 100 ms, part by part, with a header line.
fn samples_csv(sample: &Sample) -> String {
    let mut text = String::from(
        "part,t_ms,throughput_mb_s,member_read_mb_s,member_write_mb_s,member_reads,member_writes,member_flushes,engine_busy_pct\n",
    );
    let seconds = TICK.0 as f64 / 1e9;
    for part in &sample.parts {
        let mut last = super::Totals::default();
        for (step, point) in (1..).zip(&part.series.points) {
            let step: u64 = step;
            let done = point.since(&last);
            last = *point;
            let rate = |bytes: u64| bytes as f64 / 1e6 / seconds;
            let busy = done.engine as f64 / TICK.0 as f64 * 100.0;
            let name = if part.name.contains(',') {
                format!("\"{}\"", part.name)
            } else {
                part.name.clone()
            };
            text += &format!(
                "{name},{},{:.3},{:.3},{:.3},{},{},{},{busy:.3}\n",
                step * TICK.0 / 1_000_000,
                rate(done.bytes),
                rate(done.read),
                rate(done.written),
                done.reads,
                done.writes,
                done.flushes,
            );
        }
    }
    text
}

fn summary(sample: &Sample) -> serde_json::Value {
    let values = |values: &std::collections::BTreeMap<super::Metric, f64>| {
        let named = values.iter().map(|(metric, value)| (metric.name().to_owned(), json!(value)));
        serde_json::Value::Object(named.collect())
    };
    let part = |part: &Part| {
        json!({
            "part": part.name,
            "seconds": part.seconds,
            "settled": part.settled,
            "values": values(&part.values),
        })
    };
    json!({
        "values": values(&sample.values),
        "settled": sample.settled(),
        "parts": sample.parts.iter().map(part).collect::<Vec<_>>(),
    })
}
