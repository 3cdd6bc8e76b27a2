//! Which values of the model make the baseline come out as it was published?
//!
//! A parameter of the drive is found by bisection so that a row's *baseline* column measures what was published of
//! the baseline. Of the published figures the fit is given those of baselines and no other ([`Figures`]), and it
//! runs no other column. What was found is written into the experiment's text, and stays there: runs of rows
//! use the written value, and finding it again must give the same.
//!
//! Parameters are found in the order of the text; each is found with those before it as found, and without those
//! after it.
//!
//! Source   experiments.md §4 (2)

use serde::Deserialize;
use weft_sim::drive::Model;

use super::error::ExperimentError;
use super::ground::{self, Ground, Hardware};
use super::text::Row;
use super::{Effort, Experiment, Sample, pool};
use crate::fit::{Baseline, Figures, Fitted, Range, fit};

/// A parameter that is fitted.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fit {
    /// The key of the drive's model.
    pub parameter: String,
    /// What it stands for.
    pub about: String,
    /// The row, as it is printed, whose baseline is known.
    pub row: String,
    low: f64,
    high: f64,
    tolerance: f64,
    /// What was found, and is used.
    pub value: f64,
}

/// What a fit found.
#[derive(Clone, Debug)]
pub struct Calibrated {
    /// What is fitted, and which value the text has.
    pub fit: Fit,
    /// What was found now.
    pub found: Fitted,
}

impl Fit {
    #[cfg(test)]
    pub(super) fn loosen(&mut self) {
        (self.low, self.high, self.tolerance) = (1000.0, 1400.0, 0.02);
    }

    /// As a line of a drive's model.
    fn line(&self, value: f64) -> String {
        // A tenth of what drives are described in is more than anybody knows of them.
        format!("{} = {value:.1}", self.parameter)
    }
}

impl Calibrated {
    /// Whether the text has what was found, within the fiftieth part that the figures do not tell apart.
    #[must_use]
    pub fn holds(&self) -> bool {
        (self.found.parameter / self.fit.value - 1.0).abs() < 0.02
    }
}

impl Experiment {
    /// What was fitted.
    #[must_use]
    pub fn fits(&self) -> &[Fit] {
        &self.text.fit
    }

    /// Published figures by row, apart by what may be done with them.
    fn figures(&self) -> Figures {
        let of = |published: fn(&Row) -> Option<f64>| {
            let rows = self.text.row.iter();
            rows.filter_map(move |row| published(row).map(|figure| (row.to_string(), figure)))
        };
        Figures::new(of(|row| row.published.baseline), of(|row| row.published.patched))
    }

    /// Finds all parameters again; says after each evaluation of the model which parameter, its value, and what
    /// the model says.
    ///
    /// # Errors
    /// It cannot be run as it is written, or nothing in the range makes the model say what was published.
    pub fn calibrate(
        &self,
        effort: Effort,
        progress: &dyn Fn(&Fit, f64, f64),
    ) -> Result<Vec<Calibrated>, ExperimentError> {
        let mut model = ground::plain_model(&self.text)?;
        let figures = self.figures();
        let mut found = Vec::new();
        for fit in &self.text.fit {
            let calibrated = self.find(fit, &model, figures.baseline(), effort, progress)?;
            model = self.with(&model, &fit.line(calibrated.found.parameter))?;
            found.push(calibrated);
        }
        Ok(found)
    }

    fn find(
        &self,
        of: &Fit,
        model: &Model,
        baseline: &Baseline,
        effort: Effort,
        progress: &dyn Fn(&Fit, f64, f64),
    ) -> Result<Calibrated, ExperimentError> {
        let Fit { low, high, tolerance, .. } = *of;
        let range = Range { low, high, tolerance, steps: STEPS_MAX };
        let mut wrong = None;
        let found = fit(range, baseline, &of.row, |parameter| {
            match self.says(of, model, parameter, effort) {
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
        let found = found
            .map_err(|source| ExperimentError::Fit { patch: self.text.patch.clone(), source })?;
        Ok(Calibrated { fit: of.clone(), found })
    }

    /// What the baseline measures with this value of the parameter.
    pub(super) fn says(
        &self,
        of: &Fit,
        model: &Model,
        parameter: f64,
        effort: Effort,
    ) -> Result<f64, ExperimentError> {
        let row = self.row_of(of)?;
        let (case, column) = (self.case_of(row), &self.text.column[&row.baseline]);
        let model = self.with(model, &of.line(parameter))?;
        let hardware = Hardware { model, costs: self.costs.costs };
        let ground = Ground::new(&self.text, &hardware, case, column, &[])?;
        let runs: Vec<Ground> =
            (0..effort.runs).map(|run| ground.with_seed(effort.seed.wrapping_add(run))).collect();
        let values = pool::deal(&runs, &|_, _| (), |ground| {
            let parts = 0..case.load.parts(effort.size);
            let parts = parts.map(|part| case.load.run(ground, effort.size, part)).collect();
            Sample::of(parts).values.get(&row.metric).copied().unwrap_or(f64::NAN)
        });
        Ok(values.iter().sum::<f64>() / values.len() as f64)
    }

    /// The row that a fit names.
    pub(super) fn row_of(&self, fit: &Fit) -> Result<&Row, ExperimentError> {
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

    /// The drive with everything that was fitted.
    pub(super) fn model(&self) -> Result<Model, ExperimentError> {
        let mut model = ground::plain_model(&self.text)?;
        for fit in &self.text.fit {
            model = self.with(&model, &fit.line(fit.value))?;
        }
        Ok(model)
    }
}

/// A range of a million tenths is cut to one of them in 20.
const STEPS_MAX: u32 = 24;
