//! Judgement of weft's own policies, by every quantity that the patch was to improve.
//!
//! A policy of weft's own is *beyond* a patch if it is better in some quantity and worse in none. A
//! quantity is a metric in a case. In each quantity the policy's column is compared with the best
//! of the columns that the text names, so a gain in throughput does not hide longer waits.

use serde::Deserialize;

use super::error::ExperimentError;
use super::measured::side;
use super::metric::Metric;
use super::{CaseRuns, Experiment};
use crate::statistics::{Estimate, VERDICT_RUNS, ratio};

/// Part of an experiment's text about a policy of weft's own.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OwnText {
    /// Column that has the policy.
    pub(super) column: String,
    /// Columns that the policy is compared with.
    pub(super) against: Vec<String>,
    /// Metrics that the patch was to improve; a case is judged by the metrics that its load
    /// measures.
    pub(super) metrics: Vec<Metric>,
}

/// Comparison of a policy of weft's own with other columns, in every quantity.
#[derive(Clone, Debug)]
pub struct OwnPolicy {
    /// Name of the column that has the policy.
    pub column: String,
    /// Quantities in which the columns were compared, by case and metric.
    pub quantities: Vec<Quantity>,
}

/// A metric in a case, and how the policy compares with the best other column.
#[derive(Clone, Debug)]
pub struct Quantity {
    /// Name of the case.
    pub case: String,
    /// The metric.
    pub metric: Metric,
    /// Name of the best of the other columns.
    pub best: String,
    /// Ratio of the policy's column to the best other column.
    pub to_best: Estimate,
}

/// Comparison of a policy with the best other column in a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The whole interval is better by more than 1 %.
    Better,
    /// The interval does not lie wholly beyond 1 % on either side: the columns are equal, or these
    /// runs cannot tell them apart.
    Same,
    /// The whole interval is worse by more than 1 %.
    Worse,
}

/// Largest difference of a ratio from 1 that counts as none: one part in a hundred.
const TOLERANCE: f64 = 0.01;

impl OwnPolicy {
    /// Number of quantities with this answer.
    #[must_use]
    pub fn count(&self, answer: Answer) -> usize {
        self.quantities.iter().filter(|of| of.answer() == answer).count()
    }

    /// Whether the policy is beyond the patch: better in some quantity, and worse in none. `None`
    /// if there are too few runs for a verdict.
    #[must_use]
    pub fn is_beyond(&self) -> Option<bool> {
        let judged = self.quantities.iter().all(|of| of.to_best.count >= VERDICT_RUNS);
        judged.then(|| self.count(Answer::Better) > 0 && self.count(Answer::Worse) == 0)
    }

    /// The judgement in words, such as `not beyond: stream is better in 3 and worse in 8 of 16
    /// quantities`. Without a verdict, the sentence has the counts alone.
    #[must_use]
    pub fn sentence(&self) -> String {
        let beyond = match self.is_beyond() {
            Some(true) => "beyond: ",
            Some(false) => "not beyond: ",
            None => "",
        };
        let [better, worse] = [Answer::Better, Answer::Worse].map(|answer| self.count(answer));
        let (column, all) = (&self.column, self.quantities.len());
        format!("{beyond}{column} is better in {better} and worse in {worse} of {all} quantities")
    }

    /// The quantities in which the policy is worse, worst first.
    #[must_use]
    pub fn worse(&self) -> Vec<&Quantity> {
        let worse = self.quantities.iter().filter(|of| of.answer() == Answer::Worse);
        let mut worse: Vec<&Quantity> = worse.collect();
        worse.sort_by(|one, other| one.gain().value.total_cmp(&other.gain().value));
        worse
    }
}

impl Quantity {
    /// Whether the policy's column is better, the same or worse than the best other column.
    #[must_use]
    pub fn answer(&self) -> Answer {
        let gain = self.gain();
        match () {
            () if gain.low > 1.0 + TOLERANCE => Answer::Better,
            () if gain.high < 1.0 - TOLERANCE => Answer::Worse,
            () => Answer::Same,
        }
    }

    fn gain(&self) -> Estimate {
        self.metric.gain(self.to_best)
    }
}

impl Answer {
    /// Word for the answer in texts and in JSON.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Same => "same",
            Self::Worse => "worse",
        }
    }
}

impl Experiment {
    /// Compares weft's own policies with the other columns, in the cases that were run.
    pub(super) fn own_policies(
        &self,
        cases: &[CaseRuns],
    ) -> Result<Vec<OwnPolicy>, ExperimentError> {
        let policies = self.text.own.iter().map(|own| {
            let mut quantities = Vec::new();
            for case in cases {
                quantities.extend(own.quantities(case)?);
            }
            Ok(OwnPolicy { column: own.column.clone(), quantities })
        });
        policies.collect()
    }
}

impl OwnText {
    /// Quantities of a case; empty if the policy's column, or all columns to compare it with, were
    /// not run in the case.
    fn quantities(&self, case: &CaseRuns) -> Result<Vec<Quantity>, ExperimentError> {
        let has = |column: &&String| case.columns.contains_key(*column);
        let others: Vec<&String> = self.against.iter().filter(has).collect();
        if others.is_empty() || !has(&&self.column) {
            return Ok(Vec::new());
        }
        let mut quantities = Vec::new();
        for &metric in &self.metrics {
            if case.mean(&self.column, metric).is_none() {
                continue;
            }
            let own = side(case, &self.column, metric)?;
            let mut sides = Vec::new();
            for other in &others {
                sides.push(side(case, other, metric)?);
            }
            let sign = if metric.higher_is_better() { 1.0 } else { -1.0 };
            let figure = |of: &super::Side| of.mean.value * sign;
            let best = sides.iter().max_by(|one, other| figure(one).total_cmp(&figure(other)));
            let best = best.expect("some other column was run");
            let to_best = ratio(&best.runs, &own.runs)?;
            quantities.push(Quantity {
                case: case.name.clone(),
                metric,
                best: best.name.clone(),
                to_best,
            });
        }
        Ok(quantities)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::made_up;
    use super::*;

    #[test]
    fn a_policy_that_is_worse_in_a_quantity_is_not_beyond() {
        let own = OwnText {
            column: "own".into(),
            against: vec!["baseline".into(), "patched".into(), "not-run".into()],
            metrics: vec![Metric::Throughput, Metric::LatencyP99, Metric::PauseMax],
        };
        let judge = |throughput: f64, wait: f64| {
            let rates: [(&str, &[f64]); 3] =
                [("baseline", &[80.0]), ("patched", &[100.0]), ("own", &[throughput])];
            let mut case = made_up("case", &rates);
            for (column, wait) in [("baseline", 10.0), ("patched", 20.0), ("own", wait)] {
                for run in case.columns.get_mut(column).unwrap() {
                    run.values.insert(Metric::LatencyP99, wait);
                }
            }
            OwnPolicy { column: "own".into(), quantities: own.quantities(&case).unwrap() }
        };
        let words = |policy: &OwnPolicy| -> Vec<String> {
            let line = |of: &Quantity| {
                format!("{} to {}: {}", of.metric.name(), of.best, of.answer().word())
            };
            policy.quantities.iter().map(line).collect()
        };
        let faster = judge(150.0, 30.0);
        assert_eq!(
            words(&faster),
            ["throughput to patched: better", "latency_p99 to baseline: worse"]
        );
        assert_eq!(faster.is_beyond(), Some(false), "longer waits count");
        assert_eq!(
            faster.sentence(),
            "not beyond: own is better in 1 and worse in 1 of 2 quantities"
        );
        assert_eq!(judge(150.0, 10.05).is_beyond(), Some(true), "half a percent does not");
        assert_eq!(judge(99.5, 5.0).is_beyond(), Some(true));
        assert_eq!(judge(99.5, 10.0).is_beyond(), Some(false), "the same in all is not beyond");
        let slow = judge(50.0, 30.0);
        assert_eq!(slow.is_beyond(), Some(false));
        let worst = slow.worse().into_iter().map(|of| of.metric);
        assert_eq!(worst.collect::<Vec<_>>(), [Metric::LatencyP99, Metric::Throughput]);
        let mut few = judge(150.0, 5.0);
        few.quantities[0].to_best.count = VERDICT_RUNS - 1;
        assert_eq!(few.is_beyond(), None);
    }
}
