//! Sweep of settings: paired runs of every combination, and the best by each metric.
//!
//! Every combination of the swept values is run on a volume of its own, `runs` times. Run `r` has
//! the seed `base + r` in all of them, so requests and platters are the same and only the setting
//! differs. A setting is better than another if the 95 % interval of the ratio of paired runs
//! excludes 1.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use weft_units::Span;

use super::trace::Replay;
use super::{Outcome, Progress, SimulateError, Stop, Volume, Watch, jobs};
use crate::fio_json::JobResult;
use crate::job::Job;
use crate::latency::Latencies;
use crate::statistics::{Estimate, StatisticsError, mean, ratio};
use crate::text::hex;

/// Load of a sweep.
#[derive(Clone, Debug)]
pub enum Load {
    /// The jobs of a job file.
    Jobs(Vec<Job>),
    /// A trace that is replayed.
    Trace(Box<Replay>),
}

impl Load {
    /// Runs the load once on a new volume of this kind, and returns the outcome. `watch` may stop
    /// the run.
    ///
    /// # Errors
    /// The load does not fit the volume, or no such volume exists.
    pub fn run(&self, volume: &Volume, watch: Watch<'_>) -> Result<Outcome, SimulateError> {
        match self {
            Self::Jobs(jobs) => jobs::run(volume, jobs, watch),
            Self::Trace(replay) => Ok(replay.run(volume, watch)?.outcome),
        }
    }
}

/// Figures of one job in one run, over all its clones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Throughput in MB/s, of 10^6 bytes.
    #[serde(rename = "throughput_mb_s")]
    pub throughput: f64,
    /// Requests per second.
    #[serde(rename = "requests_s")]
    pub iops: f64,
    /// Mean latency, in ns.
    #[serde(rename = "mean_ns")]
    pub mean: f64,
    /// Percentiles 50, 99 and 99.9 of latency, in ns.
    #[serde(rename = "percentiles_ns")]
    pub percentiles: [f64; 3],
    /// Share of the job in the bytes that all jobs of the run transferred, 0 to 1.
    pub share: f64,
}

/// Percentiles of a [`Sample`], in percent.
pub const PERCENTS: [f64; 3] = [50.0, 99.0, 99.9];

/// Metric that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Throughput; more is better.
    Throughput,
    /// Mean latency; less is better.
    Mean,
    /// Percentile of the latency, as an index into [`PERCENTS`]; less is better.
    Percentile(usize),
}

impl Metric {
    /// Every metric, in the order in which they are reported.
    pub const ALL: [Self; 5] = [
        Self::Throughput,
        Self::Mean,
        Self::Percentile(0),
        Self::Percentile(1),
        Self::Percentile(2),
    ];

    /// Name of the metric for output.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Throughput => "throughput".to_owned(),
            Self::Mean => "mean latency".to_owned(),
            Self::Percentile(at) => format!("{} % latency", PERCENTS[at]),
        }
    }

    /// Value of this metric in a sample.
    #[must_use]
    pub fn of(self, sample: &Sample) -> f64 {
        match self {
            Self::Throughput => sample.throughput,
            Self::Mean => sample.mean,
            Self::Percentile(at) => sample.percentiles[at],
        }
    }

    fn better(self, one: f64, other: f64) -> bool {
        if self == Self::Throughput { one > other } else { one < other }
    }
}

/// Results of one job under all settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Swept {
    /// Name of the job.
    pub job: String,
    /// Samples by setting, then by run.
    pub samples: Vec<Vec<Sample>>,
    /// Bytes per second in each [`COURSE_STEP`] of the first run, by setting.
    pub courses: Vec<Vec<f64>>,
}

/// Best setting of a metric, and its margin.
#[derive(Clone, Debug, PartialEq)]
pub struct Best {
    /// Index of the best setting.
    pub setting: usize,
    /// Indices of the settings that cannot be told apart from the best: the interval of the ratio
    /// includes 1, or there are too few runs.
    pub level_with: Vec<usize>,
    /// Ratio of the metric under the best setting to the metric under the next best, in paired
    /// runs; `None` if there are too few runs.
    pub ahead: Option<Estimate>,
}

/// Length of a step of [`Swept::courses`].
///
/// Source   fio's `bwavgtime`
pub const COURSE_STEP: Span = Span::millis(500);

impl Swept {
    /// Share of the job in the bytes that all jobs transferred, averaged over the runs, 0 to 1.
    #[must_use]
    pub fn share(&self, setting: usize) -> f64 {
        let samples = &self.samples[setting];
        samples.iter().map(|sample| sample.share).sum::<f64>() / samples.len().max(1) as f64
    }

    /// Mean of a metric under a setting, with its interval. With fewer than two runs, the interval
    /// has no width.
    #[must_use]
    pub fn estimate(&self, setting: usize, metric: Metric) -> Estimate {
        let values: Vec<f64> = self.values(setting, metric);
        mean(&values).unwrap_or_else(|_| {
            let value = values.first().copied().unwrap_or(0.0);
            Estimate { value, low: value, high: value, count: values.len() }
        })
    }

    fn values(&self, setting: usize, metric: Metric) -> Vec<f64> {
        self.samples[setting].iter().map(|sample| metric.of(sample)).collect()
    }

    /// Ratio of the metric under `setting` to the metric under `base`, in paired runs.
    ///
    /// # Errors
    /// There are fewer than two runs, or a value is not a finite number above 0.
    pub fn against(
        &self,
        base: usize,
        setting: usize,
        metric: Metric,
    ) -> Result<Estimate, StatisticsError> {
        ratio(&self.values(base, metric), &self.values(setting, metric))
    }

    /// The best setting of a metric, and whether it is certain; `None` if there is only one
    /// setting, or the job transferred nothing under one of them.
    #[must_use]
    pub fn best(&self, metric: Metric) -> Option<Best> {
        let count = self.samples.len();
        let value = |setting: usize| self.estimate(setting, metric).value;
        if count < 2 || (0..count).any(|setting| value(setting) <= 0.0) {
            return None;
        }
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by(|one, other| {
            let (one, other) = (value(*one), value(*other));
            if metric.better(one, other) {
                std::cmp::Ordering::Less
            } else if metric.better(other, one) {
                std::cmp::Ordering::Greater
            } else {
                std::cmp::Ordering::Equal
            }
        });
        let best = order[0];
        let sure = |other: &usize| {
            // If all pairs have the same ratio, there is no interval and the result is certain.
            self.against(*other, best, metric).is_ok_and(|of| {
                if metric == Metric::Throughput { of.low > 1.0 } else { of.high < 1.0 }
            })
        };
        let level_with: Vec<usize> =
            order[1..].iter().copied().filter(|other| !sure(other)).collect();
        let ahead = self.against(order[1], best, metric).ok();
        Some(Best { setting: best, level_with, ahead })
    }
}

/// Callback for every run: its setting, its number from 0, its volume and its outcome.
pub type Keep<'a> = &'a mut dyn FnMut(usize, u64, &Volume, &Outcome);

/// Runs a load on all these volumes, `runs` times each, on as many threads as there are CPUs.
/// `progress` gets the completed share, and stops the sweep by returning false: the result is then
/// `None`.
///
/// # Errors
/// A volume cannot exist, the load does not fit it, or a run fails or takes too long; the error has
/// the index of the volume.
///
/// # Panics
/// A run panics.
pub fn sweep(
    load: &Load,
    volumes: &[Volume],
    runs: u64,
    progress: &(dyn Fn(f64) -> bool + Sync),
    keep: Keep<'_>,
) -> Result<Option<Vec<Swept>>, Box<(usize, SimulateError)>> {
    let work: Vec<(usize, u64)> =
        (0..runs).flat_map(|run| (0..volumes.len()).map(move |setting| (setting, run))).collect();
    let outcomes: Mutex<Vec<Option<Outcome>>> = Mutex::new(vec![None; work.len()]);
    let parts: Vec<AtomicU64> = work.iter().map(|_| AtomicU64::new(0)).collect();
    let error: Mutex<Option<(usize, SimulateError)>> = Mutex::new(None);
    let (next, stopped) = (AtomicUsize::new(0), AtomicBool::new(false));
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(work.len());
    let worker = || {
        while !stopped.load(Ordering::Relaxed) {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some((setting, run)) = work.get(at).copied() else { return };
            let volume = of_run(&volumes[setting], run);
            let outcome = load.run(&volume, &mut |of: Progress| {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "0 to 1000"
                )]
                parts[at].store((of.done * 1000.0) as u64, Ordering::Relaxed);
                let sum: u64 = parts.iter().map(|part| part.load(Ordering::Relaxed)).sum();
                let on = progress(sum as f64 / 1000.0 / work.len() as f64);
                stopped.fetch_or(!on, Ordering::Relaxed);
                !stopped.load(Ordering::Relaxed)
            });
            parts[at].store(1000, Ordering::Relaxed);
            match outcome {
                Ok(outcome) => outcomes.lock().expect("no run panics")[at] = Some(outcome),
                Err(why) => {
                    error.lock().expect("no run panics").get_or_insert((setting, why));
                    stopped.store(true, Ordering::Relaxed);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(worker);
        }
    });
    if let Some(error) = error.into_inner().expect("no run panics") {
        return Err(Box::new(error));
    }
    let outcomes = outcomes.into_inner().expect("no run panics");
    let done = |outcome: &Option<Outcome>| outcome.as_ref().is_some_and(|of| of.stop == Stop::Done);
    if let Some(at) = outcomes.iter().position(|outcome| {
        outcome.as_ref().is_some_and(|of| matches!(of.stop, Stop::Failed(_) | Stop::Limit(_)))
    }) {
        let stop = outcomes[at].as_ref().map_or(Stop::Done, |of| of.stop);
        return Err(Box::new((work[at].0, SimulateError::Unfinished { stop })));
    }
    if !outcomes.iter().all(done) {
        return Ok(None);
    }
    let mut swept: Vec<Swept> = Vec::new();
    for ((setting, run), outcome) in work.into_iter().zip(outcomes.into_iter().flatten()) {
        keep(setting, run, &of_run(&volumes[setting], run), &outcome);
        let results = by_job(&outcome.results);
        let all: u64 = results.iter().map(bytes_of).sum();
        for (place, result) in results.into_iter().enumerate() {
            if swept.len() == place {
                let (samples, courses) = (vec![Vec::new(); volumes.len()], Vec::new());
                swept.push(Swept { job: result.name.clone(), samples, courses });
            }
            let of = &mut swept[place];
            if of.samples[setting].is_empty() {
                of.courses.push(course(&result));
            }
            let share = bytes_of(&result) as f64 / all.max(1) as f64;
            of.samples[setting].push(Sample { share, ..Sample::of(&result) });
        }
    }
    Ok(Some(swept))
}

/// SHA-256 of every figure of a run: equal for two runs if their results are equal bit for bit.
#[must_use]
pub fn fingerprint(outcome: &Outcome) -> String {
    let jobs = by_job(&outcome.results);
    let jobs: Vec<_> = jobs.iter().map(|job| (Sample::of(job), course(job))).collect();
    let members: Vec<_> = outcome.members.iter().map(|member| member.traffic).collect();
    let Outcome { elapsed, answered, client, engine_work, recovered, unreadable, .. } = outcome;
    let all = (jobs, members, elapsed, answered, client, engine_work, recovered, unreadable);
    hex(&Sha256::digest(format!("{all:?}")))
}

/// Copy of a volume with the seed of run `run`.
fn of_run(volume: &Volume, run: u64) -> Volume {
    Volume { seed: volume.seed.wrapping_add(run), ..volume.clone() }
}

/// Result of each job, merged from the results of its clones.
fn by_job(results: &[JobResult]) -> Vec<JobResult> {
    let mut jobs: Vec<JobResult> = Vec::new();
    for result in results {
        match jobs.last_mut() {
            Some(last) if (&last.name, last.group) == (&result.name, result.group) => {
                last.merge(result);
            }
            _ => jobs.push(result.clone()),
        }
    }
    jobs
}

/// Bytes that a job transferred in all directions.
fn bytes_of(result: &JobResult) -> u64 {
    result.directions.iter().map(|direction| direction.bytes.0).sum()
}

/// Bytes per second of a job in all directions, by [`COURSE_STEP`].
fn course(result: &JobResult) -> Vec<f64> {
    let steps = result.directions.iter().map(|of| of.bandwidth.len()).max().unwrap_or(0);
    let at =
        |step: usize| result.directions.iter().filter_map(|of| of.bandwidth.get(step)).sum::<f64>();
    (0..steps).map(at).collect()
}

impl Sample {
    /// Figures of a job over reads, writes and trims together. `share` is set to 1, as for the only
    /// job of a run.
    #[must_use]
    pub fn of(result: &JobResult) -> Self {
        let mut latencies = Latencies::default();
        let mut bytes = 0;
        for direction in &result.directions {
            latencies.merge(&direction.total);
            bytes += direction.bytes.0;
        }
        let seconds = result.runtime.max(Span(1)).0 as f64 / 1e9;
        Self {
            throughput: bytes as f64 / seconds / 1e6,
            iops: latencies.count() as f64 / seconds,
            mean: latencies.mean_ns(),
            percentiles: PERCENTS.map(|percent| latencies.percentile(percent).0 as f64),
            share: 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn swept(throughput: &[&[f64]]) -> Swept {
        let sample = |throughput: &f64| Sample {
            throughput: *throughput,
            mean: 1e9 / throughput,
            ..Sample::default()
        };
        let samples: Vec<Vec<Sample>> =
            throughput.iter().map(|runs| runs.iter().map(sample).collect()).collect();
        Swept { job: "j".to_owned(), courses: vec![Vec::new(); samples.len()], samples }
    }

    #[test]
    fn the_best_is_sure_only_where_paired_runs_say_so() {
        let of = swept(&[&[10.0, 11.0, 12.0], &[20.0, 22.5, 24.0], &[21.0, 22.0, 24.1]]);
        let best = of.best(Metric::Throughput).unwrap();
        assert_eq!((best.setting, &best.level_with[..]), (2, &[1][..]));
        assert!(best.ahead.unwrap().low < 1.0);
        let best = of.best(Metric::Mean).unwrap();
        assert!(best.setting != 0 && !best.level_with.contains(&0), "{best:?}");
        // The difference is small but present in each pair, although the runs differ by much more.
        let of = swept(&[&[100.0, 200.0, 300.0], &[102.0, 203.9, 306.1]]);
        assert!(of.best(Metric::Throughput).unwrap().level_with.is_empty());
    }

    #[test]
    fn one_run_is_no_proof_and_one_setting_no_choice() {
        let of = swept(&[&[10.0], &[20.0]]);
        let best = of.best(Metric::Throughput).unwrap();
        assert_eq!((best.setting, best.level_with, best.ahead), (1, vec![0], None));
        assert_eq!(swept(&[&[10.0, 11.0]]).best(Metric::Throughput), None);
        assert_eq!(swept(&[&[10.0], &[20.0]]).best(Metric::Percentile(0)), None, "never measured");
        let estimate = swept(&[&[10.0, 12.0]]).estimate(0, Metric::Throughput);
        assert!((estimate.value - 11.0).abs() < 1e-9 && estimate.low < 10.0);
    }
}
