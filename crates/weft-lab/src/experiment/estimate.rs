//! Estimate of a run's duration on this host.
//!
//! Every job is run once at its quick size, timed by the clock of this host; the time of a job
//! grows with its amount of work. No other file reads a clock, and no measurement depends on it.
//! Runs that are extended because they have not settled are not known beforehand, so the estimate
//! leaves the extensions out.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::control::COLUMNS;
use super::error::ExperimentError;
use super::{Effort, Experiment, Job, PublishedRow, Size, pool};

/// Pairs of a case and the row's baseline column, one for each case that the row needs.
fn baselines(row: &PublishedRow) -> impl Iterator<Item = (&str, &str)> {
    row.needs().filter(|(_, column)| *column == row.baseline)
}

/// Estimates how long [`super::run_all`] takes on this host at its present load, from one run of
/// every job at its quick size; `controls` says whether the controls are run as well. Calls
/// `progress` after each job with the number of jobs done and the number of all jobs.
///
/// # Errors
/// An experiment cannot be run as written.
pub fn estimate(
    experiments: &[Experiment],
    effort: Effort,
    controls: bool,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Duration, ExperimentError> {
    let probe = Effort { runs: 1, size: Size::Quick, ..effort };
    let (mut jobs, mut times) = (Vec::new(), Vec::new());
    for known in experiments {
        let of_it = known.jobs(probe)?;
        let control = known.text.case.iter().position(|case| case.name == known.control.of);
        let is_control = |job: &&Job| controls && Some(job.of.0) == control;
        let columns: BTreeSet<&str> =
            of_it.iter().filter(is_control).map(|job| job.of.1.as_str()).collect();
        // The control "no-op patch" runs the baseline of every row twice.
        let baselines: BTreeSet<(&str, &str)> = known.text.row.iter().flat_map(baselines).collect();
        let is_baseline = |(case, column, _): &(usize, String, u64)| {
            controls && baselines.contains(&(known.text.case[*case].name.as_str(), column.as_str()))
        };
        times.extend(of_it.iter().map(|job| {
            let of_controls = COLUMNS as f64 / columns.len().max(1) as f64;
            let of_case = if is_control(&job) { of_controls } else { 0.0 };
            1.0 + of_case + if is_baseline(&job.of) { 2.0 } else { 0.0 }
        }));
        jobs.extend(of_it);
    }
    let whole = Instant::now();
    let took = pool::deal(&jobs, progress, |job| {
        let began = Instant::now();
        job.load.run(&job.testbed, job.size, job.part);
        began.elapsed()
    });
    let whole = whole.elapsed();
    let sum = |each: &dyn Fn(usize) -> f64| (0..jobs.len()).map(each).sum::<f64>();
    let of_probe = sum(&|nth| took[nth].as_secs_f64());
    let of_all = sum(&|nth| {
        let load = &jobs[nth].load;
        let more = load.work(effort.size) / load.work(Size::Quick);
        took[nth].as_secs_f64() * more * effort.runs as f64 * times[nth]
    });
    // The estimate assumes that all runs gain as much from several cores as the probe did.
    Ok(whole.mul_f64(of_all / of_probe.max(f64::MIN_POSITIVE)))
}
