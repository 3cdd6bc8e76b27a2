//! Statistics of runs: means and ratios with intervals, stationarity, verdicts.
//!
//! Means and ratios have the 95 % interval of Student's t. A ratio of two variants is the mean of
//! the logarithms of the ratios of paired runs: the runs of a pair share their seed, so random
//! effects that both share cancel. A verdict compares the interval with a band that was committed
//! before the first run. A run counts only if its measured part is stationary.
//!
//! Source   experiments.md §4 (3, 4, 5); reproduce.md (verdicts)

use std::fmt;

/// A value with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The estimate itself.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Number of samples, or of pairs of samples, that the estimate is made of.
    pub count: usize,
}

impl Estimate {
    /// The inverse of a ratio, with its interval.
    #[must_use]
    pub fn inverse(self) -> Self {
        let Self { value, low, high, count } = self;
        Self { value: value.recip(), low: high.recip(), high: low.recip(), count }
    }

    /// The estimate of a ratio, from this estimate of its logarithm.
    fn exp(self) -> Self {
        let Self { value, low, high, count } = self;
        Self { value: libm::exp(value), low: libm::exp(low), high: libm::exp(high), count }
    }
}

/// Reasons why samples cannot be evaluated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StatisticsError {
    /// There are too few samples.
    #[error("samples: found {found}, expected at least {expected}")]
    Count {
        /// Number of samples.
        found: usize,
        /// Number of samples that is needed.
        expected: usize,
    },
    /// The two sides have different numbers of runs.
    #[error(
        "paired runs: found {baseline} of the baseline and {patched} patched, expected as many"
    )]
    Pairs {
        /// Number of runs of the baseline.
        baseline: usize,
        /// Number of patched runs.
        patched: usize,
    },
    /// A value is not a finite number above 0.
    #[error("sample {index}: found {found}, expected a finite number above 0")]
    Sample {
        /// Index of the sample that cannot be used, from 0.
        index: usize,
        /// Value of this sample.
        found: f64,
    },
}

/// The mean of samples, with its interval.
///
/// # Errors
/// Fewer than two samples.
pub fn mean(samples: &[f64]) -> Result<Estimate, StatisticsError> {
    if samples.len() < 2 {
        return Err(StatisticsError::Count { found: samples.len(), expected: 2 });
    }
    let (value, count) = (average(samples), samples.len());
    let half = t_of_95_percent(count - 1) * deviation(samples)? / (count as f64).sqrt();
    Ok(Estimate { value, low: value - half, high: value + half, count })
}

/// The standard deviation of samples, in their unit: the root of their mean squared difference from
/// the mean, for which the sum is divided by one less than the number of samples.
///
/// # Errors
/// Fewer than two samples.
pub fn deviation(samples: &[f64]) -> Result<f64, StatisticsError> {
    if samples.len() < 2 {
        return Err(StatisticsError::Count { found: samples.len(), expected: 2 });
    }
    let value = average(samples);
    let squares: f64 = samples.iter().map(|sample| (sample - value) * (sample - value)).sum();
    Ok((squares / (samples.len() - 1) as f64).sqrt())
}

/// The ratio patched/baseline of paired runs: `exp` of the mean of `ln(patched/baseline)`.
///
/// ```
/// use weft_lab::statistics::ratio;
/// let ratio = ratio(&[100.0, 110.0, 90.0], &[133.0, 146.0, 120.0]).unwrap();
/// assert!((ratio.value - 1.33).abs() < 0.01 && ratio.low > 1.3 && ratio.high < 1.36);
/// ```
///
/// # Errors
/// The numbers of runs differ, there are fewer than two, or a value is not above 0.
pub fn ratio(baseline: &[f64], patched: &[f64]) -> Result<Estimate, StatisticsError> {
    is_paired(baseline, patched)?;
    Ok(difference(&logarithms(baseline)?, &logarithms(patched)?)?.exp())
}

/// The mean of the differences patched − baseline of paired runs, with its interval.
///
/// # Errors
/// The numbers of runs differ, or there are fewer than two.
pub fn difference(baseline: &[f64], patched: &[f64]) -> Result<Estimate, StatisticsError> {
    is_paired(baseline, patched)?;
    mean(&apart(baseline, patched))
}

fn is_paired(baseline: &[f64], patched: &[f64]) -> Result<(), StatisticsError> {
    let (baseline, patched) = (baseline.len(), patched.len());
    if baseline == patched { Ok(()) } else { Err(StatisticsError::Pairs { baseline, patched }) }
}

fn apart(baseline: &[f64], patched: &[f64]) -> Vec<f64> {
    baseline.iter().zip(patched).map(|(b, p)| p - b).collect()
}

/// The ratio patched/baseline of unpaired runs: `exp` of the difference of the means of logarithms,
/// with Welch's interval. Both the number of runs and their scatter may differ.
///
/// ```
/// use weft_lab::statistics::unpaired_ratio;
/// let ratio = unpaired_ratio(&[99.0, 100.0, 101.0], &[118.0, 120.0, 121.0, 121.0]).unwrap();
/// assert!((ratio.value - 1.2).abs() < 0.01 && ratio.low > 1.17 && ratio.high < 1.23);
/// ```
///
/// # Errors
/// One side has fewer than two runs, or a value is not above 0.
///
/// Source   B. L. Welch, "The generalization of 'Student's' problem", Biometrika 34 (1947); the
///          degrees of freedom are Satterthwaite's, rounded down
pub fn unpaired_ratio(baseline: &[f64], patched: &[f64]) -> Result<Estimate, StatisticsError> {
    Ok(unpaired_difference(&logarithms(baseline)?, &logarithms(patched)?)?.exp())
}

/// The difference of the means of unpaired runs, patched − baseline, with Welch's interval.
///
/// # Errors
/// One side has fewer than two runs.
///
/// Source   as for [`unpaired_ratio`]
pub fn unpaired_difference(baseline: &[f64], patched: &[f64]) -> Result<Estimate, StatisticsError> {
    let (base, other) = (Scatter::of_mean(baseline)?, Scatter::of_mean(patched)?);
    let value = average(patched) - average(baseline);
    let half = Scatter::sum(&[base, other]).half_width();
    let count = baseline.len() + patched.len();
    Ok(Estimate { value, low: value - half, high: value + half, count })
}

/// Scatter of an estimate: the square of its standard error, and its degrees of freedom.
#[derive(Clone, Copy, Debug)]
struct Scatter {
    square: f64,
    freedom: f64,
}

impl Scatter {
    /// Scatter of the mean of samples.
    fn of_mean(samples: &[f64]) -> Result<Self, StatisticsError> {
        let deviation = deviation(samples)?;
        let square = deviation * deviation / samples.len() as f64;
        Ok(Self { square, freedom: (samples.len() - 1) as f64 })
    }

    /// Scatter of a sum or a difference of independent estimates.
    ///
    /// Source   F. E. Satterthwaite, "An approximate distribution of estimates of variance
    ///          components", Biometrics Bulletin 2 (1946)
    fn sum(parts: &[Self]) -> Self {
        let square: f64 = parts.iter().map(|part| part.square).sum();
        let by_freedom = |part: &Self| part.square * part.square / part.freedom;
        let freedom = square * square / parts.iter().map(by_freedom).sum::<f64>();
        Self { square, freedom }
    }

    /// Half of the width of the 95 % interval.
    fn half_width(self) -> f64 {
        if self.square > 0.0 {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "above 0")]
            let freedom = self.freedom as usize;
            t_of_95_percent(freedom.max(1)) * self.square.sqrt()
        } else {
            0.0
        }
    }
}

/// Runs of a case before a change and with it.
#[derive(Clone, Copy, Debug)]
pub struct Sides<'a> {
    /// Runs before the change.
    pub baseline: &'a [f64],
    /// Runs with the change.
    pub patched: &'a [f64],
    /// Whether runs with the same index are pairs.
    pub is_paired: bool,
}

/// The geometric mean over cases of the ratio patched/baseline, with the interval that follows from
/// the scatter of the runs of each case. The cases are assumed to be independent, and are not
/// treated as a sample of all possible cases (as in [`sampled_ratio`]).
///
/// ```
/// use weft_lab::statistics::{Sides, mean_ratio};
/// let same = Sides { baseline: &[9.0, 10.0, 11.0], patched: &[9.0, 10.0, 11.0], is_paired: false };
/// let twice = Sides { patched: &[18.0, 20.0, 22.0], ..same };
/// let mean = mean_ratio(&[same, twice]).unwrap();
/// assert!((mean.value - 2.0_f64.sqrt()).abs() < 1e-9 && mean.low > 1.2 && mean.high < 1.7);
/// ```
///
/// # Errors
/// There are no cases, or a case has no ratio with an interval.
pub fn mean_ratio(cases: &[Sides<'_>]) -> Result<Estimate, StatisticsError> {
    let (mut values, mut scatters) = (Vec::new(), Vec::new());
    for Sides { baseline, patched, is_paired: paired } in cases {
        let (baseline, patched) = (logarithms(baseline)?, logarithms(patched)?);
        values.push(average(&patched) - average(&baseline));
        if *paired {
            is_paired(&baseline, &patched)?;
            scatters.push(Scatter::of_mean(&apart(&baseline, &patched))?);
        } else {
            scatters.push(Scatter::of_mean(&baseline)?);
            scatters.push(Scatter::of_mean(&patched)?);
        }
    }
    if values.is_empty() {
        return Err(StatisticsError::Count { found: 0, expected: 1 });
    }
    let (value, count) = (average(&values), values.len());
    let half = Scatter::sum(&scatters).half_width() / count as f64;
    Ok(Estimate { value, low: value - half, high: value + half, count }.exp())
}

/// The geometric mean of ratios: `exp` of the mean of their logarithms.
///
/// # Errors
/// There are no ratios, or a ratio is not above 0.
pub fn geometric_mean(ratios: &[f64]) -> Result<f64, StatisticsError> {
    if ratios.is_empty() {
        return Err(StatisticsError::Count { found: 0, expected: 1 });
    }
    Ok(libm::exp(average(&logarithms(ratios)?)))
}

/// The geometric mean of ratios, with an interval from the scatter of the ratios: they are treated
/// as a sample of all possible cases.
///
/// # Errors
/// There are fewer than two ratios, or a ratio is not above 0.
pub fn sampled_ratio(ratios: &[f64]) -> Result<Estimate, StatisticsError> {
    Ok(mean(&logarithms(ratios)?)?.exp())
}

fn logarithms(samples: &[f64]) -> Result<Vec<f64>, StatisticsError> {
    let logarithm = |(index, found): (usize, f64)| {
        let is_sample = found.is_finite() && found > 0.0;
        is_sample.then(|| libm::log(found)).ok_or(StatisticsError::Sample { index, found })
    };
    samples.iter().copied().enumerate().map(logarithm).collect()
}

/// A ratio as a gain in percent: 1.33 is 33.
#[must_use]
pub fn gain_percent(ratio: f64) -> f64 {
    (ratio - 1.0) * 100.0
}

/// The two-sided 95 % quantile of Student's t for `freedom` degrees of freedom, to six digits.
///
/// # Panics
/// `freedom` is 0.
#[must_use]
pub fn t_of_95_percent(freedom: usize) -> f64 {
    /// Quantiles for 1 to 30 degrees of freedom; a test integrates the density up to each.
    const TABLE: [f64; 30] = [
        12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157,
        2.228139, 2.200985, 2.178813, 2.160369, 2.144787, 2.131450, 2.119905, 2.109816, 2.100922,
        2.093024, 2.085963, 2.079614, 2.073873, 2.068658, 2.063899, 2.059539, 2.055529, 2.051831,
        2.048407, 2.045230, 2.042272,
    ];
    /// The two-sided 95 % quantile of the normal distribution.
    const Z: f64 = 1.959964;
    assert!(freedom > 0);
    if let Some(t) = TABLE.get(freedom - 1) {
        return *t;
    }
    // Source: Abramowitz and Stegun, 26.7.5 (expansion in powers of 1/freedom).
    let n = freedom as f64;
    let (z2, z4) = (Z * Z, Z * Z * Z * Z);
    Z + Z * (z2 + 1.0) / (4.0 * n)
        + Z * (5.0 * z4 + 16.0 * z2 + 3.0) / (96.0 * n * n)
        + Z * (3.0 * z4 * z2 + 19.0 * z4 + 17.0 * z2 - 15.0) / (384.0 * n * n * n)
}

/// Range of a ratio that agrees with the published figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Band {
    /// Ratios above this value, if only the direction of the figure must agree.
    Above(f64),
    /// Ratios below this value, if only the direction of the figure must agree.
    Below(f64),
    /// Ratios from `low` to `high`, such as the range of the published magnitude.
    Inside {
        /// Smallest ratio.
        low: f64,
        /// Largest ratio.
        high: f64,
    },
}

impl Band {
    /// Whether a ratio lies in the band.
    #[must_use]
    pub fn has(self, ratio: f64) -> bool {
        match self {
            Self::Above(low) => ratio > low,
            Self::Below(high) => ratio < high,
            Self::Inside { low, high } => (low..=high).contains(&ratio),
        }
    }

    /// The side of 1 on which the band lies: [`Band::Above`] or [`Band::Below`] 1; `None` if the
    /// band lies on both sides.
    #[must_use]
    pub fn side(self) -> Option<Self> {
        match self {
            Self::Above(low) | Self::Inside { low, .. } if low >= 1.0 => Some(Self::Above(1.0)),
            Self::Below(high) | Self::Inside { high, .. } if high <= 1.0 => Some(Self::Below(1.0)),
            _ => None,
        }
    }
}

impl fmt::Display for Band {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Above(low) => write!(f, "> {low}"),
            Self::Below(high) => write!(f, "< {high}"),
            Self::Inside { low, high } => write!(f, "{low}–{high}"),
        }
    }
}

/// Result of comparing a measured ratio with a published one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The whole interval lies in the band.
    Agrees,
    /// The whole interval lies in the band, but by another mechanism than the published one: no
    /// agreement.
    AgreesOtherwise,
    /// The whole interval lies outside of the band, but on the same side of 1 as the band: the
    /// direction of the effect agrees, its size does not.
    Direction,
    /// The interval lies across an edge of the band: more runs would decide.
    Undecided,
    /// The whole interval lies outside of the band, and not wholly on the band's side of 1.
    Differs,
}

impl Verdict {
    /// Word for the verdict in JSON and in reports.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::AgreesOtherwise => "agrees-otherwise",
            Self::Direction => "direction",
            Self::Undecided => "undecided",
            Self::Differs => "differs",
        }
    }
}

/// Fewest runs of each column for a verdict. Fewer runs have figures and intervals, and no verdict.
///
/// Source   experiments.md §4 (4)
pub const VERDICT_RUNS: usize = 10;

/// Compares a ratio with a band, by the interval and the band alone. A band around 1 means "no
/// effect" and has no direction to agree with.
///
/// An interval that includes 1 and lies wholly outside of the band gives [`Verdict::Differs`] and
/// not [`Verdict::Undecided`], so that a patch without any effect does not pass as undecided.
#[must_use]
pub fn verdict(ratio: &Estimate, band: Band) -> Verdict {
    let Estimate { low, high, .. } = *ratio;
    let (inside, outside) = match band {
        Band::Above(least) => (low > least, high <= least),
        Band::Below(most) => (high < most, low >= most),
        Band::Inside { low: least, high: most } => {
            (least <= low && high <= most, high < least || most < low)
        }
    };
    match band.side() {
        _ if inside => Verdict::Agrees,
        _ if low.is_nan() || high.is_nan() => Verdict::Differs,
        _ if !outside => Verdict::Undecided,
        Some(side) if side.has(low) && side.has(high) => Verdict::Direction,
        _ => Verdict::Differs,
    }
}

/// Largest difference from 1 at which a ratio still counts as equal to 1.
///
/// Source   experiments.md §4 (8)
pub const SAME_WITHIN: f64 = 0.02;

/// Whether a ratio cannot be told apart from 1: its 95 % interval covers 1, or lies entirely within
/// [`SAME_WITHIN`] of 1.
#[must_use]
pub fn is_met(ratio: &Estimate) -> bool {
    let Estimate { low, high, .. } = *ratio;
    (low <= 1.0 && 1.0 <= high) || [low, high].iter().all(|of| (of - 1.0).abs() <= SAME_WITHIN)
}

/// Whether a ratio is the same as 1: [`is_met`], and its mean within [`SAME_WITHIN`] of 1. (Runs
/// that scatter widely meet the first condition alone.)
#[must_use]
pub fn is_one(ratio: &Estimate) -> bool {
    (ratio.value - 1.0).abs() <= SAME_WITHIN && is_met(ratio)
}

/// Number of batches that the measured part of a run is split into.
pub const BATCH_COUNT: usize = 10;

/// Largest lag-1 autocorrelation of batch means in a stationary run.
pub const AUTOCORRELATION_MAX: f64 = 0.5;

/// Largest difference of the two halves of a stationary run, as a share of their mean.
pub const HALVES_APART_MAX: f64 = 0.05;

/// Result of the test whether a run was stationary (had settled).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stationarity {
    /// Lag-1 autocorrelation of the batch means, -1 to 1.
    pub autocorrelation: f64,
    /// Difference of the halves' means, as a share of the whole mean.
    pub halves_apart: f64,
}

impl Stationarity {
    /// Tests the measured part of a run, sampled at equal intervals. Samples that do not fill a
    /// batch are dropped at the beginning.
    ///
    /// # Errors
    /// There are fewer than two samples for each batch.
    pub fn of(samples: &[f64]) -> Result<Self, StatisticsError> {
        let expected = 2 * BATCH_COUNT;
        if samples.len() < expected {
            return Err(StatisticsError::Count { found: samples.len(), expected });
        }
        let each = samples.len() / BATCH_COUNT;
        let samples = &samples[samples.len() - each * BATCH_COUNT..];
        let batches: Vec<f64> = samples.chunks_exact(each).map(average).collect();
        let whole = average(&batches);
        let apart: Vec<f64> = batches.iter().map(|batch| batch - whole).collect();
        let squares: f64 = apart.iter().map(|apart| apart * apart).sum();
        let products: f64 = apart.windows(2).map(|pair| pair[0] * pair[1]).sum();
        let (first, last) = batches.split_at(BATCH_COUNT / 2);
        let difference = (average(first) - average(last)).abs();
        // Variation by rounding alone counts as none.
        let flat = squares <= BATCH_COUNT as f64 * (whole * 1e-9) * (whole * 1e-9);
        Ok(Self {
            autocorrelation: if flat { 0.0 } else { products / squares },
            halves_apart: if difference == 0.0 { 0.0 } else { difference / whole.abs() },
        })
    }

    /// Whether the run was stationary. A run that was not stationary is extended and does not
    /// count.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.autocorrelation <= AUTOCORRELATION_MAX && self.halves_apart <= HALVES_APART_MAX
    }
}

fn average(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64, within: f64) {
        assert!((found - expected).abs() <= within, "found {found}, expected {expected}");
    }

    #[test]
    fn quantiles_of_t_leave_two_and_a_half_percent_above_them() {
        for freedom in (1..=40).chain([60, 120, 1000]) {
            let n = freedom as f64;
            let scale = libm::exp(libm::lgamma((n + 1.0) / 2.0) - libm::lgamma(n / 2.0))
                / (n * std::f64::consts::PI).sqrt();
            let density = |t: f64| scale * libm::pow(1.0 + t * t / n, -(n + 1.0) / 2.0);
            let (steps, end) = (20_000, t_of_95_percent(freedom));
            let width = end / f64::from(steps);
            let inner: f64 = (1..steps)
                .map(|step| {
                    density(f64::from(step) * width) * if step % 2 == 1 { 4.0 } else { 2.0 }
                })
                .sum();
            let below = 0.5 + (density(0.0) + inner + density(end)) * width / 3.0;
            close(below, 0.975, 2e-7);
        }
    }

    #[test]
    fn a_mean_has_the_textbook_interval() {
        // Ten weights of a textbook example: mean 5.032, standard deviation 0.58304.
        let weights = [4.17, 5.58, 5.18, 6.11, 4.50, 4.61, 5.17, 4.53, 5.33, 5.14];
        let Estimate { value, low, high, count } = mean(&weights).unwrap();
        close(value, 5.032, 1e-12);
        close(low, 4.614882, 1e-5);
        close(high, 5.449118, 1e-5);
        assert_eq!(count, 10);
        let same = mean(&[7.0; 5]).unwrap();
        assert_eq!((same.low, same.high), (7.0, 7.0));
        assert!(mean(&[1.0]).is_err());
    }

    #[test]
    fn a_ratio_of_pairs_does_not_see_what_both_share() {
        let baseline = [10.0, 20.0, 40.0, 80.0];
        let patched = baseline.map(|run| run * 1.25);
        let exact = ratio(&baseline, &patched).unwrap();
        close(exact.value, 1.25, 1e-12);
        close(exact.high - exact.low, 0.0, 1e-9);
        // Logarithms ±0.1 around ln 2: deviation 0.11547, half width 3.182446 × 0.0577350.
        let patched = [2.0_f64, 2.0, 2.0, 2.0];
        let shift = [0.1, -0.1, 0.1, -0.1];
        let patched: Vec<f64> =
            patched.iter().zip(shift).map(|(run, shift)| run * libm::exp(shift)).collect();
        let spread = ratio(&[1.0; 4], &patched).unwrap();
        close(spread.value, 2.0, 1e-12);
        close(spread.low, 2.0 * libm::exp(-0.183_738), 1e-5);
        close(spread.high, 2.0 * libm::exp(0.183_738), 1e-5);
        let inverse = ratio(&patched, &[1.0; 4]).unwrap();
        close(inverse.value * spread.value, 1.0, 1e-12);
        let turned = spread.inverse();
        close(turned.low, inverse.low, 1e-12);
        close(turned.high, inverse.high, 1e-12);
        close(gain_percent(1.33), 33.0, 1e-9);
    }

    #[test]
    fn runs_that_are_no_pairs_have_welchs_interval() {
        // Logarithms 0 and ±0.1 beside 1 and ±0.3: standard error 0.182574, 2.44 degrees of
        // freedom, of which 2 count: half width 4.302653 × 0.182574.
        let runs = |mean: f64, apart: f64| [mean - apart, mean, mean + apart].map(libm::exp);
        let ratio = unpaired_ratio(&runs(0.0, 0.1), &runs(1.0, 0.3)).unwrap();
        close(ratio.value, libm::exp(1.0), 1e-12);
        close(ratio.low, libm::exp(1.0 - 4.302_653 * 0.182_574_2), 1e-6);
        close(ratio.high, libm::exp(1.0 + 4.302_653 * 0.182_574_2), 1e-6);
        assert_eq!(ratio.count, 6);
        // Runs without scatter have an interval of width zero; a single run has no ratio.
        let same = unpaired_ratio(&[2.0; 2], &[2.0; 5]).unwrap();
        assert_eq!((same.low, same.value, same.high), (1.0, 1.0, 1.0));
        assert!(matches!(
            unpaired_ratio(&[1.0], &[1.0, 2.0]),
            Err(StatisticsError::Count { found: 1, expected: 2 })
        ));
        assert!(unpaired_ratio(&[1.0, 0.0], &[1.0, 2.0]).is_err());
    }

    #[test]
    fn differences_have_the_intervals_of_their_ratios_logarithms() {
        let (baseline, patched) = ([1.0, 2.0, 4.0], [2.0, 3.0, 9.0]);
        let logs = |runs: [f64; 3]| runs.map(libm::log);
        type Of = fn(&[f64], &[f64]) -> Result<Estimate, StatisticsError>;
        let pairs: [(Of, Of); 2] = [(ratio, difference), (unpaired_ratio, unpaired_difference)];
        for (of_ratio, of_difference) in pairs {
            let (ratio, difference) = (
                of_ratio(&baseline, &patched).unwrap(),
                of_difference(&logs(baseline), &logs(patched)).unwrap(),
            );
            assert_eq!(ratio, difference.exp());
        }
        // Differences 1, 1, 5: mean 7/3, deviation 2.309401, half width 4.302653 × 1.333333.
        let paired = difference(&baseline, &patched).unwrap();
        close(paired.value, 7.0 / 3.0, 1e-12);
        close(paired.high - paired.low, 2.0 * 4.302_653 * 4.0 / 3.0, 1e-5);
        // A 0 is a value like any other.
        let zeros = unpaired_difference(&[0.0; 3], &[10.0, 12.0, 14.0]).unwrap();
        close(zeros.value, 12.0, 1e-12);
        close(zeros.high, 12.0 + 4.302_653 * 2.0 / 3.0_f64.sqrt(), 1e-5);
        assert!(difference(&[0.0; 2], &[0.0; 3]).is_err());
        assert!(unpaired_difference(&[0.0], &[0.0; 3]).is_err());
    }

    #[test]
    fn the_mean_of_cases_is_as_sure_as_their_runs() {
        // The mean of a single case is the ratio of this case, with its interval.
        let runs = |mean: f64, apart: f64| [mean - apart, mean, mean + apart].map(libm::exp);
        let (baseline, patched) = (runs(0.0, 0.1), runs(1.0, 0.3));
        let one = Sides { baseline: &baseline, patched: &patched, is_paired: false };
        let alone = unpaired_ratio(&baseline, &patched).unwrap();
        let of_one = mean_ratio(&[one]).unwrap();
        close(of_one.low, alone.low, 1e-12);
        close(of_one.high, alone.high, 1e-12);
        let paired = Sides { is_paired: true, ..one };
        let of_pair = mean_ratio(&[paired]).unwrap();
        close(of_pair.low, ratio(&baseline, &patched).unwrap().low, 1e-9);
        // Four cases with equal scatter have half the standard error, and four times the degrees of
        // freedom.
        let four = mean_ratio(&[paired; 4]).unwrap();
        let error = 0.2 / 3.0_f64.sqrt() / 2.0;
        close(libm::log(four.high / four.value), t_of_95_percent(8) * error, 1e-6);
        // The cases differ from each other by more than their runs scatter, so the interval over
        // cases is wider than the interval by runs.
        let twice = patched.map(|run| run * 2.0);
        let other = Sides { patched: &twice, ..paired };
        let by_runs = mean_ratio(&[paired, other]).unwrap();
        let by_cases = sampled_ratio(&[1.0, 2.0, 4.0]).unwrap();
        close(by_cases.value, 2.0, 1e-12);
        assert!(by_runs.low > 1.0 && by_cases.low < 1.0, "{by_runs:?} {by_cases:?}");
        assert!(sampled_ratio(&[2.0]).is_err() && mean_ratio(&[]).is_err());
        assert!(mean_ratio(&[Sides { baseline: &[0.0; 3], ..one }]).is_err());
    }

    #[test]
    fn a_geometric_mean_weighs_halving_as_doubling() {
        close(geometric_mean(&[0.5, 2.0]).unwrap(), 1.0, 1e-12);
        close(geometric_mean(&[1.0, 2.0, 4.0]).unwrap(), 2.0, 1e-12);
        assert!(geometric_mean(&[]).is_err() && geometric_mean(&[1.0, 0.0]).is_err());
        close(deviation(&[2.0, 4.0, 6.0]).unwrap(), 2.0, 1e-12);
        assert!(deviation(&[2.0]).is_err());
    }

    #[test]
    fn samples_that_cannot_be_compared_are_refused() {
        assert!(matches!(ratio(&[1.0; 3], &[1.0; 2]), Err(StatisticsError::Pairs { .. })));
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let error = ratio(&[1.0, 2.0], &[1.0, bad]).unwrap_err();
            assert!(matches!(error, StatisticsError::Sample { index: 1, .. }), "{error}");
        }
    }

    #[test]
    fn a_verdict_follows_from_interval_and_band() {
        use Verdict::{Agrees, Differs, Direction, Undecided};
        let gain = Band::Inside { low: 1.15, high: 1.55 };
        let loss = Band::Inside { low: 0.65, high: 0.93 };
        let none = Band::Inside { low: 0.95, high: 1.05 };
        let exact = Band::Inside { low: 0.0625, high: 0.0625 };
        let table = [
            (gain, 1.2, 1.4, Agrees),
            (gain, 1.15, 1.55, Agrees),
            (gain, 1.1, 1.4, Undecided),
            (gain, 1.1, 1.15, Undecided),
            (gain, 1.5, 1.6, Undecided),
            (gain, 0.99, 1.6, Undecided),
            (gain, 1.6, 1.7, Direction),
            (gain, 1.001, 1.01, Direction),
            // The interval excludes the published size and includes "no change".
            (gain, 0.99, 1.1, Differs),
            (gain, 0.99, 1.0, Differs),
            (gain, 1.0, 1.0, Differs),
            (gain, 0.99, 0.999, Differs),
            (gain, 0.8, 0.9, Differs),
            (loss, 0.7, 0.9, Agrees),
            (loss, 0.5, 0.6, Direction),
            (loss, 0.9, 1.0, Undecided),
            (loss, 0.94, 1.0, Differs),
            (loss, 0.94, 0.99, Direction),
            (loss, 1.0, 1.1, Differs),
            (loss, 1.001, 1.1, Differs),
            (none, 0.96, 1.04, Agrees),
            (none, 0.9, 1.0, Undecided),
            (none, 1.06, 1.1, Differs),
            (none, 0.8, 0.9, Differs),
            (exact, 0.0625, 0.0625, Agrees),
            (exact, 0.0625, 0.0626, Undecided),
            (Band::Above(1.0), 1.01, 1.2, Agrees),
            (Band::Above(1.0), 0.99, 1.2, Undecided),
            (Band::Above(1.0), 0.9, 1.0, Differs),
            (Band::Above(1.0), 0.9, 0.999, Differs),
            (Band::Above(2.0), 1.5, 3.0, Undecided),
            (Band::Above(2.0), 1.5, 1.9, Direction),
            (Band::Below(1.0), 0.5, 0.9, Agrees),
            (Band::Below(0.6), 0.5, 0.9, Undecided),
            (Band::Below(0.6), 0.7, 0.9, Direction),
            (Band::Below(1.0), 0.5, 1.1, Undecided),
            (Band::Below(1.0), 1.0, 1.1, Differs),
            (Band::Below(1.0), 1.001, 1.1, Differs),
        ];
        for (band, low, high, expected) in table {
            let estimate = Estimate { value: (low + high) / 2.0, low, high, count: 10 };
            assert_eq!(verdict(&estimate, band), expected, "{low}..{high} in {band}");
        }
        let nan = Estimate { value: f64::NAN, low: f64::NAN, high: f64::NAN, count: 2 };
        assert_eq!(verdict(&nan, gain), Differs);
    }

    #[test]
    fn one_is_within_two_percent_and_a_baseline_is_met_where_its_runs_cover_it_too() {
        let table = [
            (1.0, 1.0, true, true),
            (0.9, 1.2, false, true),
            (0.9, 1.1, true, true),
            (1.0, 1.5, false, true),
            (0.985, 1.015, true, true),
            (1.001, 1.019, true, true),
            (0.981, 0.999, true, true),
            // The whole interval must lie within 2 %, not only the mean.
            (1.001, 1.021, false, false),
            (0.979, 0.999, false, false),
            (1.03, 1.04, false, false),
            (0.5, 0.9, false, false),
        ];
        for (low, high, one, met) in table {
            let ratio = Estimate { value: (low + high) / 2.0, low, high, count: 5 };
            assert_eq!((is_one(&ratio), is_met(&ratio)), (one, met), "{low}..{high}");
        }
        let nan = Estimate { value: f64::NAN, low: f64::NAN, high: f64::NAN, count: 2 };
        assert!(!is_one(&nan) && !is_met(&nan));
    }

    #[test]
    fn a_run_that_drifts_or_swings_is_not_stationary() {
        let noise = |at: usize| ((at * 7919) % 101) as f64 / 101.0 - 0.5;
        let steady: Vec<f64> = (0..1000).map(|at| 100.0 + noise(at)).collect();
        let found = Stationarity::of(&steady).unwrap();
        assert!(found.holds(), "{found:?}");
        let drift: Vec<f64> = (0..1000).map(|at| 100.0 + at as f64 / 50.0).collect();
        let found = Stationarity::of(&drift).unwrap();
        assert!(!found.holds() && found.halves_apart > 0.08, "{found:?}");
        // One slow swing: the halves agree, the autocorrelation shows it.
        let swing = |at: usize| if (250..750).contains(&at) { 110.0 } else { 90.0 };
        let swings: Vec<f64> = (0..1000).map(|at| swing(at) + noise(at)).collect();
        let found = Stationarity::of(&swings).unwrap();
        assert!(!found.holds() && found.halves_apart < 0.001, "{found:?}");
        let flat = Stationarity::of(&[0.1; 20]).unwrap();
        assert!(flat.holds() && flat.autocorrelation == 0.0);
        assert!(Stationarity::of(&[0.0; 25]).unwrap().holds());
        assert!(Stationarity::of(&[1.0; 19]).is_err());
    }

    #[test]
    fn autocorrelation_is_the_textbook_one() {
        // 1..10: deviations ±4.5 …; products sum to 57.75, squares to 82.5.
        let ramp: Vec<f64> = (0..20).map(|at| f64::from(at / 2 + 1)).collect();
        close(Stationarity::of(&ramp).unwrap().autocorrelation, 0.7, 1e-12);
    }
}
