//! Fit of one parameter to a published figure of the baseline.
//!
//! A model is calibrated on published figures of the *baseline* only. [`Figures`] separates these
//! from figures that are to be predicted, and [`fit`] takes a [`Baseline`], so it cannot be given a
//! figure that is to be predicted. A test of `experiment/calibrate.rs` shows that the runs of a fit
//! do not read one either.
//!
//! Source   experiments.md §4 (2), statement 30

use std::collections::BTreeMap;

/// Published figures by name, divided into those of the baseline and those to be predicted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    baseline: Baseline,
    predicted: BTreeMap<String, f64>,
}

/// Figures of the baseline, which a fit may use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Baseline(BTreeMap<String, f64>);

impl Figures {
    /// Collects the figures of the baseline and those to be predicted.
    pub fn new(
        baseline: impl IntoIterator<Item = (String, f64)>,
        predicted: impl IntoIterator<Item = (String, f64)>,
    ) -> Self {
        Self {
            baseline: Baseline(baseline.into_iter().collect()),
            predicted: predicted.into_iter().collect(),
        }
    }

    /// The figures that a fit may use.
    #[must_use]
    pub fn baseline(&self) -> &Baseline {
        &self.baseline
    }

    /// Published figure to compare a prediction with; `None` if there is none of this name.
    #[must_use]
    pub fn predicted(&self, name: &str) -> Option<f64> {
        self.predicted.get(name).copied()
    }
}

impl Baseline {
    /// Figure of the baseline by its name; `None` if there is none.
    #[must_use]
    pub fn figure(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }
}

/// Range of the parameter of a fit, tolerance of the result, and limit on the number of steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// Smallest value of the parameter.
    pub low: f64,
    /// Largest value of the parameter.
    pub high: f64,
    /// Largest distance of the model's result from the figure, as a share of the figure.
    pub tolerance: f64,
    /// Largest number of evaluations of the model.
    pub steps: u32,
}

/// Result of a fit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fitted {
    /// Value of the parameter that was found.
    pub parameter: f64,
    /// Result of the model with this value of the parameter.
    pub model: f64,
    /// Published figure that the parameter is fitted to.
    pub figure: f64,
    /// Number of evaluations of the model.
    pub steps: u32,
}

/// Reasons why no parameter was found.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FitError {
    /// The baseline has no such figure.
    #[error("published figure {name:?}: found none in the baseline, expected a finite number")]
    Figure {
        /// Name of the figure.
        name: String,
    },
    /// The figure is outside the values that the model takes in the range.
    #[error(
        "fit to {figure}: the model says {at_low} at {low} and {at_high} at {high}, expected one below and one above; widen the range"
    )]
    Range {
        /// Published figure to be fitted to.
        figure: f64,
        /// Smallest value of the parameter.
        low: f64,
        /// Value of the model where the parameter is `low`.
        at_low: f64,
        /// Largest value of the parameter.
        high: f64,
        /// Value of the model where the parameter is `high`.
        at_high: f64,
    },
    /// The fit ran out of steps.
    #[error(
        "fit to {figure}: after {steps} steps the model says {model}, expected within {tolerance} of it"
    )]
    Steps {
        /// Published figure to be fitted to.
        figure: f64,
        /// Number of evaluations of the model.
        steps: u32,
        /// Result of the model that came nearest to the figure.
        model: f64,
        /// Permitted distance from the figure, as a share of it.
        tolerance: f64,
    },
}

/// Finds by bisection the parameter at which `model` returns the figure `name` of the baseline. The
/// model must be monotonic over the range.
///
/// # Errors
/// The baseline has no such figure, the model's results over the range do not include it, or the
/// steps ran out.
pub fn fit(
    range: Range,
    baseline: &Baseline,
    name: &str,
    mut model: impl FnMut(f64) -> f64,
) -> Result<Fitted, FitError> {
    let figure = baseline.figure(name).filter(|figure| figure.is_finite());
    let figure = figure.ok_or_else(|| FitError::Figure { name: name.to_owned() })?;
    let Range { mut low, mut high, tolerance, steps: steps_max } = range;
    let near = |model: f64| (model - figure).abs() <= tolerance * figure.abs();
    let (at_low, at_high) = (model(low), model(high));
    let mut steps = 2;
    for (parameter, model) in [(low, at_low), (high, at_high)] {
        if near(model) {
            return Ok(Fitted { parameter, model, figure, steps });
        }
    }
    let rises = at_low < figure && figure < at_high;
    let falls = at_high < figure && figure < at_low;
    if !rises && !falls {
        return Err(FitError::Range { figure, low, at_low, high, at_high });
    }
    let mut nearest =
        if (at_low - figure).abs() < (at_high - figure).abs() { at_low } else { at_high };
    while steps < steps_max {
        let parameter = low + (high - low) / 2.0;
        let answer = model(parameter);
        steps += 1;
        if near(answer) {
            return Ok(Fitted { parameter, model: answer, figure, steps });
        }
        if (answer - figure).abs() < (nearest - figure).abs() {
            nearest = answer;
        }
        if (answer < figure) == rises {
            low = parameter;
        } else {
            high = parameter;
        }
    }
    Err(FitError::Steps { figure, steps, model: nearest, tolerance })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: Range = Range { low: 0.0, high: 10.0, tolerance: 1e-6, steps: 60 };

    fn figures(predicted: f64) -> Figures {
        let named = |name: &str, value| (name.to_owned(), value);
        Figures::new(
            [named("flush", 49.0), named("falls", 0.25)],
            [named("flush after", predicted), named("rate after", predicted)],
        )
    }

    #[test]
    fn a_fit_finds_what_it_is_given_and_cannot_name_what_is_predicted() {
        let figures = figures(1.33);
        let fitted = fit(RANGE, figures.baseline(), "flush", |x| x * x).unwrap();
        assert!((fitted.parameter - 7.0).abs() < 1e-5, "{fitted:?}");
        assert_eq!(figures.predicted("flush after"), Some(1.33));
        for name in ["flush after", "rate after"] {
            let mut asked = 0;
            let error = fit(RANGE, figures.baseline(), name, |x| {
                asked += 1;
                x
            });
            assert!(matches!(error.unwrap_err(), FitError::Figure { .. }));
            assert_eq!(asked, 0, "the model is not even run");
        }
    }

    #[test]
    fn a_falling_model_is_fitted_too_and_the_ends_count() {
        let figures = figures(0.0);
        let fitted = fit(RANGE, figures.baseline(), "falls", |x| 1.0 / (1.0 + x)).unwrap();
        assert!((fitted.parameter - 3.0).abs() < 1e-4 && fitted.steps < 30, "{fitted:?}");
        let range = Range { high: 7.0, ..RANGE };
        let fitted = fit(range, figures.baseline(), "flush", |x| x * x).unwrap();
        assert_eq!((fitted.parameter, fitted.steps), (7.0, 2));
    }

    #[test]
    fn what_cannot_be_fitted_says_why() {
        let figures = figures(0.0);
        let error = fit(RANGE, figures.baseline(), "flush", |x| x).unwrap_err();
        assert!(matches!(error, FitError::Range { at_high: 10.0, .. }), "{error}");
        let short = Range { steps: 5, ..RANGE };
        let error = fit(short, figures.baseline(), "flush", |x| x * x).unwrap_err();
        assert!(matches!(error, FitError::Steps { steps: 5, .. }), "{error}");
        let error = fit(RANGE, figures.baseline(), "flush", |_| f64::NAN).unwrap_err();
        assert!(matches!(error, FitError::Range { .. }), "{error}");
        let nan = Figures::new([("x".to_owned(), f64::NAN)], []);
        assert!(fit(RANGE, nan.baseline(), "x", |x| x).is_err());
    }
}
