//! Calibration: model parameters with which the baseline reproduces its published figures.
//!
//! A parameter of the drive is found by bisection so that the *baseline* column of a row measures
//! the figure published for it. A fit reads the published figures of baselines only ([`Figures`]),
//! and runs no other column. The parameter that was found is written into the experiment's text and
//! stays there: runs of rows use the written value.
//!
//! Runs scatter with their seeds, and so do fitted parameters. A parameter is therefore fitted
//! [`FITS`] times, each time by runs with other seeds, and the written value holds if it lies in
//! the 95 % interval of the fits. While a parameter is fitted, the parameters listed before it have
//! the values of the text, and the parameters listed after it are not applied.
//!
//! A fit is made at one size of runs, and at another size the baseline may miss its published
//! figure. Every report therefore checks this on its own runs ([`Fit::is_met`]): a row has no
//! magnitude if its baseline misses its figure.
//!
//! Source   experiments.md §4 (2)

use serde::Deserialize;
use weft_sim::drive::Model;
use weft_units::Span;

use super::control::sample;
use super::error::ExperimentError;
use super::testbed::{self, Hardware, Testbed};
use super::text::PublishedRow;
use super::{Effort, Experiment, Sample, pool};
use crate::fit::{Baseline, Figures, Fitted, Range, fit};
use crate::statistics::{Estimate, is_met, mean};

/// Parameter of the model that is fitted to a published figure, with its range and its value.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fit {
    /// Name of the parameter.
    pub parameter: String,
    /// Part of the machine that the parameter belongs to.
    #[serde(default)]
    of: FitOf,
    /// Prefix of the names of the cases in which the drive has this parameter; empty for all cases.
    #[serde(default)]
    cases: String,
    /// Meaning of the parameter.
    pub about: String,
    /// Name, as printed, of the row to which the parameter is fitted; the fit uses the baseline of
    /// the row.
    pub row: String,
    low: f64,
    high: f64,
    tolerance: f64,
    /// Fitted value, which runs use.
    pub value: f64,
}

/// Part of the machine that a fitted parameter belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FitOf {
    /// The drive: the parameter is a key of its model.
    #[default]
    Drive,
    /// The machine: the parameter is `flush_hop_us`, the time of a hop between threads.
    Machine,
}

/// Results of the fits of one parameter.
#[derive(Clone, Debug)]
pub struct Calibrated {
    /// The parameter, with the value that the text has.
    pub fit: Fit,
    /// Results, fit by fit.
    pub found: Vec<Fitted>,
    /// Mean of the fitted parameter over the seeds, with its interval.
    pub scatter: Estimate,
}

/// Number of times that each parameter is fitted, each time with other seeds.
pub const FITS: u64 = 3;

/// Distance between the seeds of one fit and those of the next.
const NEXT_SEEDS: u64 = 1 << 32;

impl Fit {
    /// Whether runs of the baseline reproduce its published figure: the 95 % interval of their mean
    /// covers the figure, or lies within 2 % of it.
    pub(super) fn is_met(published: f64, measured: &Estimate) -> bool {
        let Estimate { value, low, high, count } = *measured;
        let [value, low, high] = [value, low, high].map(|of| of / published);
        is_met(&Estimate { value, low, high, count })
    }

    /// Whether the fit can be made: `value` lies between `low` and `high`, `tolerance` is above 0
    /// and at most 1, and the machine has the parameter.
    pub(super) fn is_possible(&self) -> bool {
        let Self { low, high, tolerance, value, .. } = *self;
        let known = self.of == FitOf::Drive
            || self.parameter == FLUSH_HOP && low >= 0.0 && high <= FLUSH_HOP_MAX_US;
        known && low < high && (low..=high).contains(&value) && tolerance > 0.0 && tolerance <= 1.0
    }

    #[cfg(test)]
    pub(super) fn loosen(&mut self) {
        (self.low, self.high, self.tolerance) = (1000.0, 1400.0, 0.02);
    }

    /// Sets the parameter to `value` in a machine's hardware. Fails if the drive's model refuses
    /// it.
    fn set(&self, hardware: &mut Hardware, patch: &str, value: f64) -> Result<(), ExperimentError> {
        match self.of {
            FitOf::Drive if !self.cases.is_empty() => {
                let line = self.line(value);
                hardware.lines.retain(|(of, _)| *of != self.cases);
                hardware.lines.push((self.cases.clone(), line));
            }
            FitOf::Drive => {
                let patch = || patch.to_owned();
                let model = hardware.model.with(&self.line(value));
                hardware.model =
                    model.map_err(|source| ExperimentError::Model { patch: patch(), source })?;
            }
            FitOf::Machine => {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "0 to FLUSH_HOP_MAX_US, which `is_possible` holds"
                )]
                let tenths = (value * 10.0).round() as u64;
                hardware.flush_hop = Span(tenths * 100);
            }
        }
        Ok(())
    }

    /// Line of TOML that sets the parameter of a drive's model to `value`, rounded to a tenth.
    fn line(&self, value: f64) -> String {
        // Values are written to a tenth: drives are not known more precisely.
        format!("{} = {value:.1}", self.parameter)
    }
}

impl Calibrated {
    /// Summary of the fits in `found`. Fails for fewer than two fits.
    pub(super) fn of(fit: Fit, found: Vec<Fitted>) -> Result<Self, ExperimentError> {
        let parameters: Vec<f64> = found.iter().map(|found| found.parameter).collect();
        Ok(Self { fit, scatter: mean(&parameters)?, found })
    }

    /// Whether the value of the text agrees with the fits, within their scatter.
    #[must_use]
    pub fn holds(&self) -> bool {
        // The text holds values rounded to a tenth.
        (self.scatter.low - 0.05..=self.scatter.high + 0.05).contains(&self.fit.value)
    }
}

impl Experiment {
    /// The parameters that the experiment fits.
    #[must_use]
    pub fn fits(&self) -> &[Fit] {
        &self.text.fit
    }

    /// Published figures by row, divided into figures of baselines, which a fit may use, and
    /// figures of the patch, which are to be predicted.
    pub(super) fn figures(&self) -> Figures {
        let of = |published: fn(&PublishedRow) -> Option<f64>| {
            let rows = self.text.row.iter();
            rows.filter_map(move |row| published(row).map(|figure| (row.to_string(), figure)))
        };
        Figures::new(of(|row| row.published.baseline), of(|row| row.published.patched))
    }

    /// Fits all parameters again, [`FITS`] times each. Calls the progress function after each
    /// evaluation of the model with the parameter, its value, and the model's result.
    ///
    /// # Errors
    /// The experiment cannot be run as written, or no value in the range makes the model reproduce
    /// the published figure.
    pub fn calibrate(
        &self,
        effort: Effort,
        progress: &dyn Fn(&Fit, f64, f64),
    ) -> Result<Vec<Calibrated>, ExperimentError> {
        let mut hardware = self.plain_hardware()?;
        let figures = self.figures();
        let mut calibrated = Vec::new();
        for fit in &self.text.fit {
            let found = (0..FITS).map(|nth| {
                let seed = effort.seed.wrapping_add(nth.wrapping_mul(NEXT_SEEDS));
                let effort = Effort { seed, ..effort };
                self.find(fit, &hardware, figures.baseline(), effort, progress)
            });
            calibrated.push(Calibrated::of(fit.clone(), found.collect::<Result<_, _>>()?)?);
            fit.set(&mut hardware, self.patch(), fit.value)?;
        }
        Ok(calibrated)
    }

    /// Finds the value of a parameter with which the baseline of its row reproduces the published
    /// figure. Fails if a run fails, or if no value in the range does so.
    pub(super) fn find(
        &self,
        of: &Fit,
        hardware: &Hardware,
        baseline: &Baseline,
        effort: Effort,
        progress: &dyn Fn(&Fit, f64, f64),
    ) -> Result<Fitted, ExperimentError> {
        let Fit { low, high, tolerance, .. } = *of;
        let range = Range { low, high, tolerance, steps: STEPS_MAX };
        let mut wrong = None;
        let found = fit(range, baseline, &of.row, |parameter| {
            match self.says(of, hardware, parameter, effort) {
                Ok(value) => {
                    progress(of, parameter, value);
                    value
                }
                Err(error) => {
                    wrong = Some(error);
                    f64::NAN
                }
            }
        });
        if let Some(error) = wrong {
            return Err(error);
        }
        found.map_err(|source| ExperimentError::Fit { patch: self.text.patch.clone(), source })
    }

    /// Runs the baseline with this value of the parameter, and returns the mean of the row's
    /// metric.
    pub(super) fn says(
        &self,
        of: &Fit,
        hardware: &Hardware,
        parameter: f64,
        effort: Effort,
    ) -> Result<f64, ExperimentError> {
        let row = self.row_of(of)?;
        let (case, column) = (self.case_of(row), &self.text.column[&row.baseline]);
        let mut hardware = hardware.clone();
        of.set(&mut hardware, self.patch(), parameter)?;
        let testbed = Testbed::new(&self.text, &hardware, case, column, &[])?;
        let runs: Vec<Testbed> =
            (0..effort.runs).map(|run| testbed.with_seed(effort.seed.wrapping_add(run))).collect();
        let values = pool::deal(&runs, &|_, _| (), |testbed| {
            let Sample { values, .. } = sample(case, testbed, effort);
            values.get(&row.metric).copied().unwrap_or(f64::NAN)
        });
        Ok(values.iter().sum::<f64>() / values.len() as f64)
    }

    /// The row that a fit names. Fails if the experiment has no such row.
    pub(super) fn row_of(&self, fit: &Fit) -> Result<&PublishedRow, ExperimentError> {
        let rows = || self.text.row.iter();
        rows().find(|row| row.to_string() == fit.row).ok_or_else(|| ExperimentError::Unknown {
            patch: self.text.patch.clone(),
            field: "fit.row",
            found: fit.row.clone(),
            expected: rows().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        })
    }

    fn with(&self, model: &Model, line: &str) -> Result<Model, ExperimentError> {
        model
            .with(line)
            .map_err(|source| ExperimentError::Model { patch: self.text.patch.clone(), source })
    }

    /// The hardware without any fitted parameter.
    pub(super) fn plain_hardware(&self) -> Result<Hardware, ExperimentError> {
        let (model, costs) = (testbed::plain_model(&self.text)?, self.costs.costs);
        Ok(Hardware { model, costs, flush_hop: Span::ZERO, lines: Vec::new() })
    }

    /// The hardware with every fitted parameter.
    pub(super) fn hardware(&self) -> Result<Hardware, ExperimentError> {
        let mut hardware = self.plain_hardware()?;
        for fit in &self.text.fit {
            fit.set(&mut hardware, self.patch(), fit.value)?;
        }
        if !self.drive.is_empty() {
            hardware.model = self.with(&hardware.model, &self.drive)?;
        }
        Ok(hardware)
    }
}

/// Name of the only parameter of a machine that can be fitted, a time in microseconds.
/// `FLUSH_HOP_MAX_US` is its upper limit: one second.
const FLUSH_HOP: &str = "flush_hop_us";
const FLUSH_HOP_MAX_US: f64 = 1e6;

/// Largest number of bisection steps: 20 steps narrow a range of a million tenths to one tenth.
const STEPS_MAX: u32 = 24;
