//! Controls: comparisons that show that the patch causes the measured effect, and that the runs
//! detect an effect of its size.
//!
//! Most controls compare two things in one case of an experiment, by one judgement ([`is_one`]):
//!
//! | control | first | second | must be |
//! |---|---|---|---|
//! | mechanism off | baseline, mechanism off | patched, mechanism off, *other seeds* | the same |
//! | placebo | baseline | baseline, each turn of the engine's thread a little longer: another order of events | the same, not to the bit |
//! | the patch itself | baseline | patched, *other seeds* | told apart, and by more than 2 % |
//! | inverted | patched | baseline | worse |
//!
//! The second column has other seeds wherever equal seeds would give runs that are equal to the bit
//! and prove nothing. A result of "the same" is meaningful because the same number of runs tells
//! the patch itself apart.
//!
//! The *no-op patch* is judged in every row: both columns are the baseline, the second with other
//! seeds. Its verdict must be "differs" in rows that claim a size, must not be "agrees" in rows
//! with a band that excludes "no effect", and must be "agrees" in rows with the band "no effect".
//! The rules of judgement fail this control if they pass a patch that does nothing. Controls are
//! judged from [`VERDICT_RUNS`] runs on, as rows are.
//!
//! Source   experiments.md §4 (8), statement 31

use super::error::ExperimentError;
use super::measured::Measured;
use super::metric::Metric;
use super::testbed::Testbed;
use super::text::{PublishedRow, Text};
use super::{Case, Effort, Experiment, Sample, pool};
use crate::statistics::{Band, Estimate, SAME_WITHIN, VERDICT_RUNS, Verdict, is_one, ratio};

/// Comparison of runs with a known outcome, which checks the method of the experiment: two columns
/// must measure the same, or must differ.
#[derive(Clone, Debug)]
pub struct Control {
    /// Name of the control.
    pub name: &'static str,
    /// Description of the comparison, in a sentence.
    pub about: String,
    /// Ratio of the second column's metric to the first's.
    pub ratio: Estimate,
    /// Outcome that is expected.
    pub must_be: MustBe,
}

/// Requirement on the ratio of a control.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MustBe {
    /// The ratio must be 1 within the scatter of the runs, and the runs must differ in some bit,
    /// because equal runs compare nothing.
    Same {
        /// Whether the runs are equal to the bit.
        equal: bool,
    },
    /// The whole interval of the ratio must lie more than 2 % away from 1.
    Apart,
    /// The whole interval of the ratio must lie in a band.
    In(Band),
    /// Rows of a kind must get the right verdict for a patch that does nothing: every row, but for
    /// one row in twenty of `NoOpRows::Claims`.
    Rows {
        /// Kind of the rows.
        kind: NoOpRows,
        /// Number of rows that got the right verdict.
        right: usize,
        /// Number of rows of this kind.
        of: usize,
    },
}

/// Kinds of rows, by the verdict that a patch without any effect must get in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoOpRows {
    /// Rows that claim an effect of some size; the verdict must be [`Verdict::Differs`].
    Sized,
    /// Other rows with a band that excludes "no effect"; the verdict must not be
    /// [`Verdict::Agrees`].
    Claims,
    /// Rows with a band that claims no effect; the verdict must be [`Verdict::Agrees`].
    NoEffect,
}

impl NoOpRows {
    const ALL: [Self; 3] = [Self::Sized, Self::Claims, Self::NoEffect];

    fn of(measured: &Measured) -> Self {
        let row = &measured.row;
        match row.band().side() {
            None => Self::NoEffect,
            Some(_) if row.has_magnitude() && measured.unsettled == 0 => Self::Sized,
            Some(_) => Self::Claims,
        }
    }

    fn is_right(self, verdict: Verdict) -> bool {
        match self {
            Self::Sized => verdict == Verdict::Differs,
            Self::Claims => !matches!(verdict, Verdict::Agrees | Verdict::AgreesOtherwise),
            Self::NoEffect => verdict == Verdict::Agrees,
        }
    }
}

impl Control {
    /// Whether the control holds; `None` if it has fewer than [`VERDICT_RUNS`] runs.
    #[must_use]
    pub fn holds(&self) -> Option<bool> {
        (self.ratio.count >= VERDICT_RUNS).then(|| self.is_met())
    }

    /// Whether the ratio meets the requirement, even if there are too few runs for a verdict.
    pub(super) fn is_met(&self) -> bool {
        match self.must_be {
            MustBe::Same { equal } => !equal && is_one(&self.ratio),
            MustBe::Apart => {
                self.ratio.low > 1.0 + SAME_WITHIN || self.ratio.high < 1.0 - SAME_WITHIN
            }
            MustBe::In(Band::Above(least)) => self.ratio.low > least,
            MustBe::In(Band::Below(most)) => self.ratio.high < most,
            MustBe::In(Band::Inside { low, high }) => {
                low <= self.ratio.low && self.ratio.high <= high
            }
            // By chance, one in forty intervals of 95 % excludes "no effect" on the side of its
            // band.
            MustBe::Rows { kind: NoOpRows::Claims, right, of } => right + of / 20 >= of,
            MustBe::Rows { right, of, .. } => right == of,
        }
    }

    /// Expected outcome, in words.
    #[must_use]
    pub fn expected(&self) -> &'static str {
        match self.must_be {
            MustBe::Same { .. } => "0 % within 2 %",
            MustBe::Apart => "more than 2 % apart",
            MustBe::In(Band::Above(_)) => "more",
            MustBe::In(Band::Below(_)) => "less",
            MustBe::In(Band::Inside { .. }) => "in its band",
            MustBe::Rows { kind: NoOpRows::Sized, .. } => "each differs",
            MustBe::Rows { kind: NoOpRows::Claims, .. } => "none agrees, or one in twenty",
            MustBe::Rows { kind: NoOpRows::NoEffect, .. } => "each agrees",
        }
    }

    /// Verdict on the control in words: that it holds, or the conclusion if it does not; `None` if
    /// it has too few runs.
    #[must_use]
    pub fn verdict(&self) -> Option<&'static str> {
        let holds = self.holds()?;
        Some(match self.must_be {
            _ if holds => "holds",
            MustBe::Same { equal: true } => {
                "does not hold: all runs are equal, nothing was compared"
            }
            MustBe::Same { .. } if self.ratio.low <= 1.0 && 1.0 <= self.ratio.high => {
                "does not hold: so few runs scatter, and their mean is over 2 % away"
            }
            MustBe::Same { .. } => "does not hold: something else than the mechanism differs",
            MustBe::Apart => {
                "does not hold: so few runs do not see the patch, so the other controls say nothing"
            }
            MustBe::In(_) | MustBe::Rows { .. } => "does not hold",
        })
    }
}

/// Variants of the simulated machine that the controls compare, all under the same case.
#[derive(Clone, Copy)]
enum Column {
    /// The machine without the patch.
    Baseline,
    /// The machine with the patch.
    Patched,
    /// The machine with the patch, run with other seeds than the baseline.
    PatchedOtherSeeds,
    /// The baseline with the placebo: each run of the engine's thread takes a little longer.
    Placebo,
    /// The baseline with the settings that switch the patched mechanism off.
    BaselineOff,
    /// The machine with the patch and the settings that switch its mechanism off, run with other
    /// seeds.
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
    /// The seeds with which the rows of the experiment are measured.
    Own,
    /// Other seeds than those of the rows.
    Other,
}

/// Distance from the seeds of the rows to the other seeds, larger than the number of runs of any
/// effort.
const OTHER_SEEDS: u64 = 1 << 32;

impl Experiment {
    /// Runs the controls of the experiment, on as many threads as there are CPUs. Calls `progress`
    /// after each run with the number of runs done and the number of all runs, and begins again for
    /// each series of runs.
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
        let mut controls = vec![
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
        ];
        controls.extend(self.no_op(effort, progress)?);
        Ok(controls)
    }

    /// Controls that judge a patch that does nothing in every row of the experiment, one control
    /// for each kind of row.
    fn no_op(
        &self,
        effort: Effort,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<Vec<Control>, ExperimentError> {
        let mut plain = self.clone();
        plain.text.beside.clear();
        for row in &mut plain.text.row {
            (row.patched, row.beyond) = (row.baseline.clone(), None);
        }
        let other = Effort { seed: effort.seed.wrapping_add(OTHER_SEEDS), ..effort };
        let (mut found, other) = (plain.run(effort, progress)?, plain.run(other, progress)?);
        let by_other_seeds = |column: &str| format!("{column}, other seeds");
        for (case, other) in found.cases.iter_mut().zip(other.cases) {
            let columns = other.columns.into_iter();
            case.columns.extend(columns.map(|(name, of)| (by_other_seeds(&name), of)));
        }
        let rows = plain.text.row.into_iter().map(|mut row| {
            row.patched = by_other_seeds(&row.baseline);
            Measured::of(&row, &found.cases)
        });
        let rows = rows.collect::<Result<Vec<_>, _>>()?;
        Ok(no_op_controls(&rows))
    }

    /// The machine with the text's placebo: each run of the engine's thread takes a little longer.
    pub(super) fn placebo(&self, testbed: &Testbed) -> Testbed {
        let mut testbed = testbed.clone();
        let turn = &mut testbed.parts.costs.turn;
        *turn = turn.saturating_add(self.text.control.placebo.turn_ns);
        testbed
    }
}

/// Controls of the no-op patch, one for each kind of row that occurs. Each shows the first row that
/// is judged wrongly, or else the first row of its kind.
fn no_op_controls(rows: &[Measured]) -> Vec<Control> {
    let control = |kind: NoOpRows| {
        let rows: Vec<&Measured> = rows.iter().filter(|row| NoOpRows::of(row) == kind).collect();
        let (right, wrong): (Vec<&Measured>, Vec<&Measured>) =
            rows.iter().partition(|row| kind.is_right(row.judged));
        let shown = wrong.first().or(rows.first())?;
        let (right, of) = (right.len(), rows.len());
        let kinds = match kind {
            NoOpRows::Sized => "rows with a size",
            NoOpRows::Claims => "rows with a direction",
            NoOpRows::NoEffect => "rows of no effect",
        };
        let (row, twice) = (&shown.row, "the baseline in both columns");
        let about = match shown.verdict() {
            Some(verdict) => format!("{right} of {of} {kinds}, {twice}; {row}: {}", verdict.word()),
            None => format!("{of} {kinds}, {twice}; {row}"),
        };
        let must_be = MustBe::Rows { kind, right, of };
        Some(Control { name: "no-op patch", about, ratio: shown.ratio, must_be })
    };
    NoOpRows::ALL.into_iter().filter_map(control).collect()
}

/// Runs all parts of a case on the testbed, and joins them to a sample.
pub(super) fn sample(case: &Case, testbed: &Testbed, effort: Effort) -> Sample {
    let parts = 0..case.load.parts(effort.size);
    Sample::of(parts.map(|part| case.load.run(testbed, effort.size, part)).collect())
}

/// First row that compares throughputs in the case of the controls. Fails if there is none.
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
