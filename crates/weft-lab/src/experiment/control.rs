//! Is it the patch that makes the difference, and would it be seen if it were not?
//!
//! In one case of an experiment: with the mechanism off in both columns they are the same; a patch that changes
//! nothing changes nothing; and the patch the wrong way round loses. What has to be the same is within 2 %.
//!
//! Source   experiments.md §4 (8), statement 31

use super::error::ExperimentError;
use super::ground::Ground;
use super::metric::Metric;
use super::text::{Row, Text};
use super::{Effort, Experiment, Sample, pool};
use crate::statistics::{Band, Estimate, ratio};

/// Something that must not be there, or must be.
#[derive(Clone, Debug)]
pub struct Control {
    /// Which.
    pub name: &'static str,
    /// What it is, in a sentence.
    pub about: String,
    /// The second of two things against the first.
    pub ratio: Estimate,
    /// Where that has to lie.
    pub band: Band,
}

impl Control {
    /// Whether it is as it has to be.
    #[must_use]
    pub fn holds(&self) -> bool {
        match self.band {
            Band::Above(least) => self.ratio.low > least,
            Band::Below(most) => self.ratio.high < most,
            Band::Inside { low, high } => low <= self.ratio.low && self.ratio.high <= high,
        }
    }
}

impl Experiment {
    /// Runs its controls, on as many threads as there are CPUs.
    ///
    /// # Errors
    /// It cannot be run as it is written.
    pub fn controls(
        &self,
        effort: Effort,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<Vec<Control>, ExperimentError> {
        let row = &self.control;
        let case = self.case_of(row);
        let hardware = self.hardware()?;
        let (off, placebo) = (&self.text.control.off, &self.text.control.placebo);
        let columns: [(&str, &[String]); COLUMNS] = [
            (&row.baseline, &[]),
            (&self.text.control.patched, &[]),
            (&row.baseline, off),
            (&self.text.control.patched, off),
            (&row.baseline, placebo),
        ];
        let mut jobs = Vec::new();
        for (column, on_top) in columns {
            let column = &self.text.column[column];
            let ground = Ground::new(&self.text, &hardware, case, column, on_top)?;
            jobs.extend(
                (0..effort.runs).map(|run| ground.with_seed(effort.seed.wrapping_add(run))),
            );
        }
        let values = pool::deal(&jobs, progress, |ground| {
            let parts = 0..case.load.parts(effort.size);
            let parts = parts.map(|part| case.load.run(ground, effort.size, part)).collect();
            Sample::of(parts).values.get(&row.metric).copied().unwrap_or(f64::NAN)
        });
        let runs = values.len() / columns.len();
        let [baseline, patched, baseline_off, patched_off, placebo_runs] =
            std::array::from_fn(|nth| &values[nth * runs..(nth + 1) * runs]);
        let off = off.join(" ");
        // For what is better when it is lower, losing is to be higher.
        let loses = if row.metric.higher_is_better() { Band::Below(1.0) } else { Band::Above(1.0) };
        Ok(vec![
            Control {
                name: "mechanism off",
                about: format!("{row}: both columns with {off}"),
                ratio: ratio(baseline_off, patched_off)?,
                band: SAME,
            },
            Control {
                name: "placebo",
                about: format!("{row}: the baseline with {}", placebo.join(" ")),
                ratio: ratio(baseline, placebo_runs)?,
                band: SAME,
            },
            Control {
                name: "inverted",
                about: format!("{row}: the patch taken away"),
                ratio: ratio(patched, baseline)?,
                band: loses,
            },
        ])
    }
}

/// The first row of the case that controls are run in.
pub(super) fn row_of(text: &Text) -> Result<Row, ExperimentError> {
    let of = &text.control.case;
    let rows = || text.row.iter().filter(|row| row.metric == Metric::Throughput);
    let row = rows().find(|row| row.of == *of).cloned();
    row.ok_or_else(|| ExperimentError::Unknown {
        patch: text.patch.clone(),
        field: "control.case",
        found: of.clone(),
        expected: rows().map(|row| row.of.clone()).collect::<Vec<_>>().join(", "),
    })
}

/// Columns that are run for them, in one case.
pub(super) const COLUMNS: usize = 5;

/// Source   experiments.md §4 (8)
const SAME: Band = Band::Inside { low: 0.98, high: 1.02 };
