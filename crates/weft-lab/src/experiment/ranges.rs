//! Sensitivity of a magnitude to assumed parameters.
//!
//! A text lists alternatives to its assumptions ([`Circumstance`]), each by itself: another table
//! of CPU costs, other lines of the drive's model, knobs, or the time of dbench's operations. Rows
//! with a magnitude are run under each of them and as committed; the smallest and the largest gain
//! are the range of the row. The range is written into the text and printed beside the figure.

use serde::Deserialize;

use super::error::ExperimentError;
use super::text::PublishedRow;
use super::{Effort, Experiment, costs_of, run_all};
use crate::statistics::{Estimate, gain_percent};

/// An alternative to an assumption of the text.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Circumstance {
    /// Assumption that is changed, in a few words.
    pub name: String,
    /// Name of another table of CPU costs; `None` for the table of the text.
    #[serde(default)]
    costs: Option<String>,
    /// Lines of TOML that replace keys of the drive's model.
    #[serde(default)]
    drive: String,
    /// Knobs for every column; a column's own knobs override them.
    #[serde(default)]
    knobs: Vec<String>,
    /// Additional time of dbench's operations, in percent of their published latencies; `None` for
    /// the time in the text. Other loads do not use it.
    #[serde(default)]
    operation_percent: Option<u32>,
}

/// Gain of a row under each circumstance of the experiment, as a ratio of patched to baseline.
#[derive(Clone, Debug)]
pub struct Ranged {
    /// Row that claims a magnitude.
    pub row: PublishedRow,
    /// Ratios of patched to baseline, each with the name of its circumstance; the first is the
    /// ratio under the text's own assumptions.
    pub points: Vec<(String, Estimate)>,
}

impl Ranged {
    /// Smallest and largest gain over all circumstances, in percent.
    #[must_use]
    pub fn gain_pct(&self) -> [f64; 2] {
        let gains = || self.points.iter().map(|(_, ratio)| gain_percent(ratio.value));
        [gains().fold(f64::INFINITY, f64::min), gains().fold(f64::NEG_INFINITY, f64::max)]
    }
}

impl Experiment {
    /// Measures the rows that claim a magnitude under the text's own assumptions and under each
    /// circumstance, on as many threads as there are CPUs. Calls `progress` after each job with the
    /// number of jobs done and the number of all jobs.
    ///
    /// # Errors
    /// The experiment cannot be run as written.
    pub fn ranges(
        &self,
        effort: Effort,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<Vec<Ranged>, ExperimentError> {
        let mut plain = self.clone();
        plain.text.beside.clear();
        plain.text.row.retain(PublishedRow::has_magnitude);
        for row in &mut plain.text.row {
            row.beyond = None;
        }
        let under = self.text.circumstance.iter().map(|other| plain.under(other));
        let mut all = vec![plain.clone()];
        all.extend(under.collect::<Result<Vec<_>, _>>()?);
        let names = std::iter::once("as committed");
        let names = names.chain(self.text.circumstance.iter().map(|other| other.name.as_str()));
        let found = run_all(&all, effort, progress)?;
        let found: Vec<_> = names.zip(found).collect();
        let rows = plain.text.row.into_iter().enumerate();
        let ranged = |(nth, row): (usize, PublishedRow)| {
            let points =
                found.iter().map(|(name, outcome)| ((*name).to_owned(), outcome.rows[nth].ratio));
            Ranged { row, points: points.collect() }
        };
        Ok(rows.map(ranged).collect())
    }

    /// Copy of the experiment under the circumstance `other`, which replaces one assumption.
    pub(super) fn under(&self, other: &Circumstance) -> Result<Self, ExperimentError> {
        let mut under = self.clone();
        if let Some(name) = &other.costs {
            under.take_costs(costs_of(&self.text, name)?);
        }
        under.drive.push_str(&other.drive);
        under.text.machine.knobs.extend(other.knobs.iter().cloned());
        if let Some(percent) = other.operation_percent {
            under.text.case.iter_mut().for_each(|case| case.load.take_operations(percent));
        }
        Ok(under)
    }
}
