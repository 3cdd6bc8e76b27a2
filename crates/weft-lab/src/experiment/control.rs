//! Controls: comparisons that show that the patch makes the difference, and that a difference would
//! be seen.
//!
//! Each control compares two things in one case of an experiment, by one judgement ([`is_same`]):
//!
//! | control | first | second | must be |
//! |---|---|---|---|
//! | mechanism off | baseline, mechanism off | patched, mechanism off, *other seeds* | the same |
//! | placebo | baseline | baseline, each turn of the engine's thread a little longer: another order of events | the same, not to the bit |
//! | the patch itself | baseline | patched, *other seeds* | told apart |
//! | inverted | patched | baseline | worse |
//!
//! The second column has other seeds where the same seeds would make the two equal to the bit:
//! there would be nothing to judge. A result of "the same" has weight because the same number of
//! runs tells the patch itself apart.
//!
//! Source   experiments.md §4 (8), statement 31

use super::error::ExperimentError;
use super::metric::Metric;
use super::testbed::Testbed;
use super::text::{PublishedRow, Text};
use super::{Case, Effort, Experiment, Sample, pool};
use crate::statistics::{Band, Estimate, is_same, ratio};

/// Comparison of two things that must be the same, or must differ.
#[derive(Clone, Debug)]
pub struct Control {
    /// Name of the control.
    pub name: &'static str,
    /// Description of the comparison, in a sentence.
    pub about: String,
    /// Ratio of the second thing to the first.
    pub ratio: Estimate,
    /// Outcome that is expected.
    pub must_be: MustBe,
}

/// Requirement on the ratio of a control.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MustBe {
    /// The ratio must be 1 within the scatter of runs that differ: equal runs compare nothing.
    Same {
        /// Whether the runs are equal to the bit.
        equal: bool,
    },
    /// The ratio must differ from 1.
    Apart,
    /// The ratio must lie in a band.
    In(Band),
}

impl Control {
    /// Whether the ratio meets the requirement.
    #[must_use]
    pub fn holds(&self) -> bool {
        match self.must_be {
            MustBe::Same { equal } => !equal && is_same(&self.ratio),
            MustBe::Apart => !is_same(&self.ratio),
            MustBe::In(Band::Above(least)) => self.ratio.low > least,
            MustBe::In(Band::Below(most)) => self.ratio.high < most,
            MustBe::In(Band::Inside { low, high }) => {
                low <= self.ratio.low && self.ratio.high <= high
            }
        }
    }

    /// Expected outcome, in words.
    #[must_use]
    pub fn expected(&self) -> &'static str {
        match self.must_be {
            MustBe::Same { .. } => "the same: covers 0 %, or within 2 % of it",
            MustBe::Apart => "not the same",
            MustBe::In(Band::Above(_)) => "more",
            MustBe::In(Band::Below(_)) => "less",
            MustBe::In(Band::Inside { .. }) => "in its band",
        }
    }

    /// Whether the control holds, and the conclusion if it does not.
    #[must_use]
    pub fn verdict(&self) -> &'static str {
        match self.must_be {
            _ if self.holds() => "holds",
            MustBe::Same { equal: true } => {
                "does not hold: all runs are equal, nothing was compared"
            }
            MustBe::Same { .. } => "does not hold: something else than the mechanism differs",
            MustBe::Apart => {
                "does not hold: so few runs do not see the patch, so the other controls say nothing"
            }
            MustBe::In(_) => "does not hold",
        }
    }
}

/// Variants that the controls run, in one case.
#[derive(Clone, Copy)]
enum Column {
    /// Without the patch.
    Baseline,
    /// With the patch.
    Patched,
    /// With the patch, with other seeds than the baseline's.
    PatchedOtherSeeds,
    /// The baseline, with each turn of the engine's thread a little longer.
    Placebo,
    /// The baseline without the mechanism.
    BaselineOff,
    /// With the patch, without the mechanism, with other seeds.
    PatchedOff,
}

impl Column {
    const ALL: [Self; COLUMNS] = [
        Self::Baseline,
        Self::Patched,
        Self::PatchedOtherSeeds,
        Self::Placebo,
        Self::BaselineOff,
        Self::PatchedOff,
    ];
}

// Samples of columns are stored in the order of this enum.
const _: () = {
    let mut index = 0;
    while index < COLUMNS {
        assert!(Column::ALL[index] as usize == index);
        index += 1;
    }
};

/// Seeds of a column's runs.
#[derive(Clone, Copy)]
enum Seeds {
    /// The seeds of the rows.
    Own,
    /// Other seeds than those of the rows.
    Other,
}

/// Distance from the seeds of the rows to the other seeds. No effort has as many runs.
const OTHER_SEEDS: u64 = 1 << 32;

impl Experiment {
    /// Runs the controls of the experiment, on as many threads as there are CPUs.
    ///
    /// # Errors
    /// The experiment cannot be run as written.
    pub fn controls(
        &self,
        effort: Effort,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<Vec<Control>, ExperimentError> {
        let row = &self.control;
        let case = self.case_of(row);
        let hardware = self.hardware()?;
        let (off, patched) = (&self.text.control.off, self.text.control.patched.as_str());
        let testbed = |column: &str, on_top: &[String]| {
            Testbed::new(&self.text, &hardware, case, &self.text.column[column], on_top)
        };
        let baseline = testbed(&row.baseline, &[])?;
        let placebo = self.placebo(&baseline);
        let with_it = testbed(patched, &[])?;
        let mut jobs = Vec::new();
        for column in Column::ALL {
            let (testbed, seeds) = match column {
                Column::Baseline => (baseline.clone(), Seeds::Own),
                Column::Patched => (with_it.clone(), Seeds::Own),
                Column::PatchedOtherSeeds => (with_it.clone(), Seeds::Other),
                Column::Placebo => (placebo.clone(), Seeds::Own),
                Column::BaselineOff => (testbed(&row.baseline, off)?, Seeds::Own),
                Column::PatchedOff => (testbed(patched, off)?, Seeds::Other),
            };
            let first = match seeds {
                Seeds::Own => effort.seed,
                Seeds::Other => effort.seed.wrapping_add(OTHER_SEEDS),
            };
            jobs.extend((0..effort.runs).map(|run| testbed.with_seed(first.wrapping_add(run))));
        }
        let samples = pool::deal(&jobs, progress, |testbed| sample(case, testbed, effort));
        let samples: Vec<&[Sample]> = samples.chunks(jobs.len() / COLUMNS).collect();
        let control = |name,
                       about: String,
                       first: Column,
                       second: Column,
                       must_be|
         -> Result<_, ExperimentError> {
            let samples_of = |column: Column| samples[column as usize];
            let of = |column: Column| -> Vec<f64> {
                let values = samples_of(column).iter().map(|sample| &sample.values);
                values.map(|of| of.get(&row.metric).copied().unwrap_or(f64::NAN)).collect()
            };
            let must_be = match must_be {
                MustBe::Same { .. } => {
                    MustBe::Same { equal: samples_of(first) == samples_of(second) }
                }
                must_be => must_be,
            };
            Ok(Control { name, about, ratio: ratio(&of(first), &of(second))?, must_be })
        };
        let same = MustBe::Same { equal: false };
        // For a metric that is better when lower, a loss is a higher value.
        let loses = if row.metric.higher_is_better() { Band::Below(1.0) } else { Band::Above(1.0) };
        let off = format!("{row}: both columns with {}, by different seeds", off.join(" "));
        let more = self.text.control.placebo.turn_ns;
        let placebo_about = format!("{row}: the baseline with {more} ns more for each turn");
        let before_and_with = format!("{row}: before and with it, by different seeds");
        let away = format!("{row}: the patch taken away");
        Ok(vec![
            control("mechanism off", off, Column::BaselineOff, Column::PatchedOff, same)?,
            control("placebo", placebo_about, Column::Baseline, Column::Placebo, same)?,
            control(
                "the patch itself",
                before_and_with,
                Column::Baseline,
                Column::PatchedOtherSeeds,
                MustBe::Apart,
            )?,
            control("inverted", away, Column::Patched, Column::Baseline, MustBe::In(loses))?,
        ])
    }

    /// The machine with the text's placebo: each turn of the engine's thread takes a little longer.
    pub(super) fn placebo(&self, testbed: &Testbed) -> Testbed {
        let mut testbed = testbed.clone();
        let turn = &mut testbed.parts.costs.turn;
        *turn = turn.saturating_add(self.text.control.placebo.turn_ns);
        testbed
    }
}

/// A run of a case.
pub(super) fn sample(case: &Case, testbed: &Testbed, effort: Effort) -> Sample {
    let parts = 0..case.load.parts(effort.size);
    Sample::of(parts.map(|part| case.load.run(testbed, effort.size, part)).collect())
}

/// First row of the case that the controls are run in.
pub(super) fn row_of(text: &Text) -> Result<PublishedRow, ExperimentError> {
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

/// Number of columns that the controls run, in one case.
pub(super) const COLUMNS: usize = 6;
