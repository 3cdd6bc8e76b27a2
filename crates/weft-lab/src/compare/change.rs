//! Change of a case from one set to another: its size, its interval, and the smallest change that
//! the runs could detect.
//!
//! A change and its interval come from one estimate. With several runs on both sides, the estimate
//! is the ratio of the geometric means: paired if both sets have the same seeds, Welch's otherwise.
//! It is the difference of the arithmetic means if a side has a single run, as in the script
//! compare.rb of patch 001 (IO-less dirty throttling), or if a run has a value of 0 or less, which
//! has no logarithm. A change from a mean of 0 has no percentage and is given as the difference
//! itself.

use super::matched::Cell;
use crate::statistics::{
    Estimate, Sides, difference, gain_percent, ratio, unpaired_difference, unpaired_ratio,
};

/// Change of the metric of one case, from the first set of runs to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Change in percent of the first set's value; `None` if the mean of the first set is 0.
    pub percent: Option<f64>,
    /// Difference of the arithmetic means, other set minus first set, in the unit of the metric.
    pub difference: f64,
    /// 95 % interval of `percent` or, if the mean of the first set is 0, of `difference`; `None`
    /// unless both sets have several runs.
    pub interval: Option<(f64, f64)>,
    /// Smallest change, up or down, that runs of this number and this scatter would detect, in the
    /// unit of the interval; `None` if there is no interval.
    pub would_see: Option<f64>,
    /// Whether the interval is that of paired runs, which have the same seeds.
    pub is_paired: bool,
    /// Whether a run of either set has a value of 0 or less, so that there is no ratio of runs.
    pub has_zeros: bool,
}

impl Change {
    /// Change from `base` to `other`, which are the runs of one case in two sets.
    pub(super) fn between(base: &Cell, other: &Cell) -> Self {
        let is_paired = base.is_paired_with(other);
        let has_zeros = [base, other].iter().any(|cell| cell.values.iter().any(|of| *of <= 0.0));
        let by_difference = Self {
            percent: (base.mean != 0.0).then(|| (other.mean - base.mean) / base.mean.abs() * 100.0),
            difference: other.mean - base.mean,
            interval: None,
            would_see: None,
            is_paired: false,
            has_zeros,
        };
        let (ratio_of, difference_of) = if is_paired {
            (ratio as fn(&[f64], &[f64]) -> _, difference as fn(&[f64], &[f64]) -> _)
        } else {
            (unpaired_ratio as _, unpaired_difference as _)
        };
        if let Ok(Estimate { value, low, high, .. }) = ratio_of(&base.values, &other.values) {
            return Self {
                percent: Some(gain_percent(value)),
                interval: Some((gain_percent(low), gain_percent(high))),
                would_see: Some(gain_percent(high / value)),
                is_paired,
                ..by_difference
            };
        }
        let Ok(Estimate { low, high, .. }) = difference_of(&base.values, &other.values) else {
            return by_difference;
        };
        let unit = if base.mean == 0.0 { 1.0 } else { 100.0 / base.mean.abs() };
        Self {
            interval: Some((low * unit, high * unit)),
            would_see: Some((high - low) / 2.0 * unit),
            is_paired,
            ..by_difference
        }
    }

    /// Whether the change is significant: the interval excludes 0. `None` if there is no interval.
    #[must_use]
    pub fn is_sure(&self) -> Option<bool> {
        self.interval.map(|(low, high)| low > 0.0 || high < 0.0)
    }

    /// The change in percent, by which cases are sorted. A change from a mean of 0 counts as
    /// infinite, with its sign, or as 0 if the other mean is 0 too.
    #[must_use]
    pub fn rank(&self) -> f64 {
        self.percent.unwrap_or(if self.difference == 0.0 {
            0.0
        } else {
            f64::INFINITY.copysign(self.difference)
        })
    }

    /// Ratio of the other set to the first; `None` if it is not a finite number above 0.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        self.percent.map(|percent| percent / 100.0 + 1.0).filter(|ratio| *ratio > 0.0)
    }

    /// Whether the case is worse by more than `percent`: its whole interval lies beyond `percent`.
    /// A change from a mean of 0 exceeds any `percent`, so its interval need only exclude 0. False
    /// without an interval.
    #[must_use]
    pub fn is_worse_by(&self, percent: f64, lower_is_better: bool) -> bool {
        let Some((low, high)) = self.interval else { return false };
        let limit = if self.percent.is_some() { percent } else { 0.0 };
        if lower_is_better { low > limit } else { high < -limit }
    }
}

impl Cell {
    /// Whether the runs of this cell and of `other` are pairs: all have seeds, and both cells have
    /// the same seeds.
    pub(super) fn is_paired_with(&self, other: &Self) -> bool {
        !self.seeds.is_empty() && self.seeds == other.seeds
    }

    /// Runs of this cell as the baseline and of `other` as the patched side, for a mean over cases.
    pub(super) fn sides<'a>(&'a self, other: &'a Self) -> Sides<'a> {
        let is_paired = self.is_paired_with(other);
        Sides { baseline: &self.values, patched: &other.values, is_paired }
    }
}
