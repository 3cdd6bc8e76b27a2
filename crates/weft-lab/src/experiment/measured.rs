//! Measurement of a published row: ratio of paired runs, interval and verdict.
//!
//! A row compares two columns run by run: runs of a pair share their seed. A row with a second case
//! compares the ratio in its own case with the ratio in the second one. A row marked exact must
//! have the published figures in every run. A verdict needs [`VERDICT_RUNS`] runs of each column; a
//! row with fewer runs has figures and no verdict.

use super::error::ExperimentError;
use super::metric::Metric;
use super::text::{Assumed, ClaimKind, Joined, PublishedRow};
use super::{CaseRuns, Sample};
use crate::statistics::{Band, Estimate, VERDICT_RUNS, Verdict, mean, ratio, verdict};

/// Measurement of a row: its two sides, their ratio, and the judgement by the band.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The row that was measured.
    pub row: PublishedRow,
    /// Side before the patch; in a row of two cases, the case by which the ratio is divided.
    pub baseline: Side,
    /// Side with the patch; in a row of two cases, the row's own case.
    pub patched: Side,
    /// Ratio of patched to baseline, of paired runs.
    pub ratio: Estimate,
    /// Results of weft's own column; `None` if the row names no such column.
    pub beyond: Option<Beyond>,
    /// Factor by which the row's case multiplies the machine's CPU costs.
    pub costs_times: u64,
    /// Judgement of the ratio by the band, for any number of runs. It is a verdict only from
    /// [`VERDICT_RUNS`] runs on: [`Measured::verdict`].
    pub judged: Verdict,
    /// Number of runs that had not settled when they reached their longest time.
    pub unsettled: usize,
    /// Reason why the row has no magnitude, from its text or from the result of these runs; empty
    /// if there is no such reason.
    pub no_magnitude: String,
}

/// One side of the comparison that a row makes: a column or, in a row of two cases, a case.
#[derive(Clone, Debug)]
pub struct Side {
    /// Name of the column, or of the case if the row compares two cases.
    pub name: String,
    /// Values run by run; in a row of two cases, the ratios patched/baseline in this case.
    pub runs: Vec<f64>,
    /// Mean of all runs, with its interval.
    pub mean: Estimate,
}

/// weft's own column beside baseline and patched in a row.
#[derive(Clone, Debug)]
pub struct Beyond {
    /// Name and runs of weft's own column.
    pub side: Side,
    /// Ratio of weft's own column to the baseline.
    pub ratio: Estimate,
    /// Name of the better of baseline and patched, and the ratio of weft's own column to it.
    pub to_better: (String, Estimate),
}

impl Measured {
    pub(super) fn of(row: &PublishedRow, cases: &[CaseRuns]) -> Result<Self, ExperimentError> {
        let case = of_name(cases, &row.of);
        let sides = match &row.against {
            None if !row.and.is_empty() => joined(row, cases, &row.patched)?,
            None => (side(case, &row.baseline, row.metric)?, side(case, &row.patched, row.metric)?),
            Some(other) => {
                let ratios = |case: &CaseRuns| -> Result<Side, ExperimentError> {
                    let baseline = side(case, &row.baseline, row.metric)?;
                    let patched = side(case, &row.patched, row.metric)?;
                    let pairs = baseline.runs.iter().zip(&patched.runs);
                    let runs: Vec<f64> =
                        pairs.map(|(baseline, patched)| patched / baseline).collect();
                    Ok(Side { name: case.name.clone(), mean: mean(&runs)?, runs })
                };
                (ratios(of_name(cases, other))?, ratios(case)?)
            }
        };
        let (baseline, patched) = sides;
        let ratio = ratio(&baseline.runs, &patched.runs)?;
        let unsettled = case.unsettled()
            + row.against.as_ref().map_or(0, |other| of_name(cases, other).unsettled());
        let beyond = row.beyond.as_ref().map(|name| beyond(row, cases, name, &baseline, &patched));
        Ok(Self {
            judged: judged(row, unsettled, &ratio, &baseline, &patched),
            beyond: beyond.transpose()?,
            costs_times: case.costs_times,
            unsettled,
            no_magnitude: row.no_magnitude.clone(),
            row: row.clone(),
            baseline,
            patched,
            ratio,
        })
    }

    /// Marks a row with a baseline that missed the published figure to which it was fitted: the row
    /// keeps its direction and has no magnitude. Does nothing for exact rows and rows that claim no
    /// magnitude.
    pub(super) fn not_calibrated(mut self, why: &str) -> Self {
        if self.row.kind != ClaimKind::Magnitude || self.row.exact {
            return self;
        }
        let before = if self.no_magnitude.is_empty() { "" } else { "; " };
        self.no_magnitude += &format!("{before}{why}");
        self.judged = direction_only(&self.ratio, self.row.band());
        self
    }

    /// Verdict of the row; `None` if it has fewer than [`VERDICT_RUNS`] runs.
    #[must_use]
    pub fn verdict(&self) -> Option<Verdict> {
        (self.ratio.count >= VERDICT_RUNS).then_some(self.judged)
    }

    /// Reason why the row has no magnitude, or else the range of its gain over assumed parameters,
    /// in words. Empty if the row claims no magnitude and no range was measured.
    #[must_use]
    pub fn assumed_words(&self) -> String {
        match (&self.row.assumed, self.row.kind) {
            _ if !self.no_magnitude.is_empty() => format!("no magnitude: {}", self.no_magnitude),
            (Some(Assumed { gain_pct: [low, high], over }), _) => {
                format!("{low:+.1}…{high:+.1} % over {over}")
            }
            (None, ClaimKind::Magnitude) => {
                "its range over the assumed parameters was not measured".to_owned()
            }
            (None, _) => String::new(),
        }
    }

    /// Reasons why the row does not agree, in words; empty if it agrees. A row without a verdict
    /// has at most two reasons: why it has no magnitude, and the number of runs that had not
    /// settled.
    #[must_use]
    pub fn reason(&self) -> String {
        let verdict = self.verdict();
        if verdict == Some(Verdict::Agrees) {
            return String::new();
        }
        let mut reasons = Vec::new();
        if verdict.is_some() && !self.row.reason.is_empty() {
            reasons.push(self.row.reason.clone());
        }
        if verdict == Some(Verdict::AgreesOtherwise) {
            return reasons.join("; ");
        }
        if !self.no_magnitude.is_empty() {
            reasons.push(format!("no magnitude: {}", self.no_magnitude));
        }
        if self.unsettled > 0 {
            reasons.push(format!("{} runs of it had not settled", self.unsettled));
        }
        if verdict.is_none() {
            return reasons.join("; ");
        }
        if verdict == Some(Verdict::Undecided) {
            reasons.push(undecided(&self.ratio));
        }
        if reasons.is_empty() {
            reasons.push("not known".to_owned());
        }
        // The text of `excludes` only adds to other reasons.
        reasons.extend(self.excludes());
        reasons.join("; ")
    }

    /// The published gain, in words, if the interval of a magnitude does not cover it; otherwise
    /// `None`.
    fn excludes(&self) -> Option<String> {
        let published = self.row.published.gain_percent().filter(|_| self.row.has_magnitude())?;
        let Estimate { low, high, .. } = self.ratio;
        let covers = (low..=high).contains(&(1.0 + published / 100.0));
        (!covers).then(|| format!("the interval excludes the published {published:+.1} %"))
    }
}

/// Reason why a row is undecided, in words.
fn undecided(Estimate { low, high, .. }: &Estimate) -> String {
    let open = match *low <= 1.0 && 1.0 <= *high {
        true => "not told apart: the interval covers no change",
        false => "the direction is certain, but the interval covers an edge of the band",
    };
    format!("{open}: more runs make it narrower")
}

fn judged(
    row: &PublishedRow,
    unsettled: usize,
    ratio: &Estimate,
    baseline: &Side,
    patched: &Side,
) -> Verdict {
    if !row.exact {
        // The size of a value that still changes depends on the time of the measurement: only its
        // direction counts.
        let sized = unsettled == 0 && row.no_magnitude.is_empty();
        if row.kind == ClaimKind::Magnitude && !sized {
            return direction_only(ratio, row.band());
        }
        return match verdict(ratio, row.band()) {
            Verdict::Agrees if row.otherwise => Verdict::AgreesOtherwise,
            Verdict::Direction | Verdict::Undecided if row.kind == ClaimKind::Count => {
                Verdict::Differs
            }
            verdict => verdict,
        };
    }
    let is = |side: &Side, published: Option<f64>| {
        published.is_some_and(|published| side.runs.iter().all(|run| *run == published))
    };
    if is(baseline, row.published.baseline) && is(patched, row.published.patched) {
        Verdict::Agrees
    } else {
        // A row marked exact that is not exact agrees in direction at best; more runs would not
        // change that.
        match direction_only(ratio, row.band()) {
            Verdict::Undecided => Verdict::Differs,
            verdict => verdict,
        }
    }
}

/// Verdict on the ratio of a row without magnitude: it depends only on the side of 1 on which the
/// ratio lies.
fn direction_only(ratio: &Estimate, band: Band) -> Verdict {
    match band.side().map(|side| verdict(ratio, side)) {
        Some(Verdict::Agrees) => Verdict::Direction,
        Some(verdict) => verdict,
        None if ratio.low <= 1.0 && 1.0 <= ratio.high => Verdict::Undecided,
        None => Verdict::Differs,
    }
}

fn beyond(
    row: &PublishedRow,
    cases: &[CaseRuns],
    name: &str,
    baseline: &Side,
    patched: &Side,
) -> Result<Beyond, ExperimentError> {
    let side = if row.and.is_empty() {
        side(of_name(cases, &row.of), name, row.metric)?
    } else {
        joined(row, cases, name)?.1
    };
    let patched_is_better =
        (patched.mean.value > baseline.mean.value) == row.metric.higher_is_better();
    let better = if patched_is_better { patched } else { baseline };
    let to_better = (better.name.clone(), ratio(&better.runs, &side.runs)?);
    Ok(Beyond { ratio: ratio(&baseline.runs, &side.runs)?, to_better, side })
}

/// Both sides of a row that joins several cases: the baseline and the column `patched`. Each run of
/// a side has one figure for all cases. Fails with fewer than two runs.
fn joined(
    row: &PublishedRow,
    cases: &[CaseRuns],
    patched: &str,
) -> Result<(Side, Side), ExperimentError> {
    let mut pairs = Vec::new();
    for name in row.cases() {
        let case = of_name(cases, name);
        let of = |column: &str| side(case, column, row.metric);
        pairs.push((of(&row.baseline)?.runs, of(patched)?.runs));
    }
    let runs = pairs.first().map_or(0, |(runs, _)| runs.len());
    let count = pairs.len() as f64;
    let figure = |run: usize| -> (f64, f64) {
        match row.joined {
            Joined::Mean => {
                let sums = pairs.iter().fold((0.0, 0.0), |(one, other), (before, after)| {
                    (one + before[run].ln(), other + after[run].ln())
                });
                ((sums.0 / count).exp(), (sums.1 / count).exp())
            }
            Joined::Rises => {
                let rises = pairs.iter().filter(|(before, after)| after[run] > before[run]);
                (count, rises.count() as f64)
            }
        }
    };
    let (before, after): (Vec<f64>, Vec<f64>) = (0..runs).map(figure).unzip();
    let side = |name: &str, runs: Vec<f64>| -> Result<Side, ExperimentError> {
        Ok(Side { name: name.to_owned(), mean: mean(&runs)?, runs })
    };
    Ok((side(&row.baseline, before)?, side(patched, after)?))
}

pub(super) fn side(case: &CaseRuns, column: &str, metric: Metric) -> Result<Side, ExperimentError> {
    let runs: Vec<f64> = case.column(column).iter().map(|sample| value(sample, metric)).collect();
    Ok(Side { name: column.to_owned(), mean: mean(&runs)?, runs })
}

fn value(sample: &Sample, metric: Metric) -> f64 {
    let value = sample.values.get(&metric).copied().unwrap_or(f64::NAN);
    // A ratio to zero does not exist: a metric that may be zero counts as a very small value.
    if value == 0.0 && metric.may_be_zero() { VERY_LITTLE } else { value }
}

/// Value that replaces a measured zero, to which no ratio exists, in the unit of the metric. It is
/// below anything that a run measures: 0.001 KiB per MiB is less than one block in a GiB, and 0.001
/// ms less than any disk takes.
const VERY_LITTLE: f64 = 0.001;

fn of_name<'a>(cases: &'a [CaseRuns], name: &str) -> &'a CaseRuns {
    cases.iter().find(|case| case.name == name).expect("a text names only cases that it has")
}
