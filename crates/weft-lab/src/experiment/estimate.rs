//! How long will it take?
//!
//! Every job is run once at its quick size, with the clock of this host; a job's time grows with what it does. It is
//! the one place where a clock is read, and nothing that is measured depends on it.

use std::time::{Duration, Instant};

use super::error::ExperimentError;
use super::{Effort, Experiment, Size, pool};

/// How long [`super::run_all`] will take on this host, as it is now.
///
/// # Errors
/// One cannot be run as it is written.
pub fn estimate(
    experiments: &[Experiment],
    effort: Effort,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Duration, ExperimentError> {
    let probe = Effort { runs: 1, size: Size::Quick, ..effort };
    let mut jobs = Vec::new();
    for known in experiments {
        jobs.extend(known.jobs(probe)?);
    }
    let whole = Instant::now();
    let took = pool::deal(&jobs, progress, |job| {
        let began = Instant::now();
        job.load.run(&job.ground, job.size, job.part);
        began.elapsed()
    });
    let whole = whole.elapsed();
    let sum = |each: &dyn Fn(usize) -> f64| (0..jobs.len()).map(each).sum::<f64>();
    let of_probe = sum(&|nth| took[nth].as_secs_f64());
    let of_all = sum(&|nth| {
        let load = &jobs[nth].load;
        let more = load.work(effort.size) / load.work(Size::Quick);
        took[nth].as_secs_f64() * more * effort.runs as f64
    });
    // What the probe gained by running on several cores the whole gains as well.
    Ok(whole.mul_f64(of_all / of_probe.max(f64::MIN_POSITIVE)))
}
