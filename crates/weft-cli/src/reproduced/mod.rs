//! Experiments that were run, with their results, for `reproduce` and `demo`.
//!
//! Source   reference.md: the schema `weft.reproduce/2`

mod json;
mod text;

use weft_terminal::outcome::Failure;
use weft_terminal::terminal::{stdout, steps, wrapped};

use std::io::Write;

use serde_json::Value;
use weft_lab::experiment::{
    Control, Effort, Experiment, NO_VERDICTS, Outcome as Found, Size, Tally, run_all,
};

pub(crate) use json::{assumed, interval};
pub(crate) use text::gain;

/// Default seed of the first run.
///
/// Source   experiments.md §4, 3
pub(crate) const SEED: u64 = 0x7765_6674;

/// Size and number of the runs with `--quick`.
pub(crate) const QUICK: (Size, u64) = (Size::Quick, 3);

/// Experiments that were run, and their outcomes.
pub(crate) struct Reproduced {
    pub(crate) experiments: Vec<Experiment>,
    /// Results, experiment by experiment.
    pub(crate) found: Vec<Found>,
    /// Controls of each experiment; empty unless they were requested.
    pub(crate) controls: Vec<Vec<Control>>,
    effort: Effort,
}

impl Reproduced {
    /// Runs every experiment, at the size of `weft reproduce --quick`.
    pub(crate) fn quick() -> Result<Self, Failure> {
        let (size, runs) = QUICK;
        let experiments = Experiment::all().map_err(Failure::failed)?;
        Self::run(experiments, Effort { runs, seed: SEED, size })
    }

    /// Runs all rows of the given experiments.
    pub(crate) fn run(experiments: Vec<Experiment>, effort: Effort) -> Result<Self, Failure> {
        let bar = steps("reproduce", 0);
        let found = run_all(&experiments, effort, &step(&bar)).map_err(Failure::failed)?;
        bar.finish_and_clear();
        let controls = experiments.iter().map(|_| Vec::new()).collect();
        Ok(Self { experiments, found, controls, effort })
    }

    /// Runs the controls of each experiment in addition.
    pub(crate) fn run_controls(&mut self) -> Result<(), Failure> {
        for (experiment, controls) in self.experiments.iter().zip(&mut self.controls) {
            let bar = steps("controls", 0);
            *controls = experiment.controls(self.effort, &step(&bar)).map_err(Failure::failed)?;
            bar.finish_and_clear();
        }
        Ok(())
    }

    /// JSON with the schema `weft.reproduce/2`.
    pub(crate) fn to_json(&self) -> Value {
        json::to_json(&self.experiments, &self.found, &self.controls, self.effort)
    }

    /// Prints the rows of each experiment, with explanations.
    pub(crate) fn print_rows(&self) -> Result<(), Failure> {
        let all = self.experiments.iter().zip(&self.found).zip(&self.controls);
        for ((experiment, found), controls) in all {
            let text = text::rows(experiment, found, controls, self.effort);
            write!(stdout(), "{}", wrapped(&text))?;
        }
        Ok(())
    }

    /// Prints one line for each experiment, and the controls.
    pub(crate) fn print_lines(&self) -> Result<(), Failure> {
        let all: Vec<_> = self.experiments.iter().zip(&self.found).collect();
        let mut text = text::lines(&all, self.effort);
        for (experiment, controls) in self.experiments.iter().zip(&self.controls) {
            text::controls(&mut text, &format!("{} ", experiment.patch()), controls);
        }
        write!(stdout(), "{}", wrapped(&text))?;
        Ok(())
    }

    /// Number of published figures and claims per verdict, as a sentence; or, with too few runs for
    /// verdicts, the number of runs that they need.
    pub(crate) fn summary(&self) -> String {
        let patches: Vec<&str> = self.experiments.iter().map(Experiment::patch).collect();
        match Tally::of(self.found.iter().map(|found| found.rows.as_slice())) {
            Some(tally) => format!("{} on simulated disks: {tally}", patches.join(" and ")),
            None => NO_VERDICTS.to_owned(),
        }
    }
}

/// Callback that shows on `bar` how many steps are completed, and of how many.
pub(crate) fn step(bar: &indicatif::ProgressBar) -> impl Fn(usize, usize) + Sync + '_ {
    |done, of| {
        bar.set_length(of as u64);
        bar.set_position(done as u64);
    }
}
