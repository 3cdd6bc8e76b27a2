//! Why can an experiment not be run?

use thiserror::Error;
use weft_engine::knobs::KnobError;
use weft_sim::drive::ModelError;
use weft_sim::machine::CostsError;

use crate::fit::FitError;
use crate::statistics::StatisticsError;

/// An experiment cannot be run as it is written.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum ExperimentError {
    /// There is none of this name.
    #[error("{found}: no such experiment; expected one of {expected}")]
    Name {
        /// What was asked for.
        found: String,
        /// What there is.
        expected: String,
    },
    /// Its text is not understood.
    #[error("experiment: {0}")]
    Text(String),
    /// It names something that it does not have.
    #[error("experiment {patch}: {field}: found {found:?}, expected one of {expected}")]
    Unknown {
        /// Which experiment.
        patch: String,
        /// Where.
        field: &'static str,
        /// What it names.
        found: String,
        /// What it could name.
        expected: String,
    },
    /// It has a knob that does not exist, or a value that it does not take.
    #[error("experiment {patch}: {source}")]
    Knob {
        /// Which experiment.
        patch: String,
        /// What is wrong.
        source: KnobError,
    },
    /// It has a drive that does not exist.
    #[error("experiment {patch}: {source}")]
    Model {
        /// Which experiment.
        patch: String,
        /// What is wrong.
        source: ModelError,
    },
    /// A load does not say what a row compares.
    #[error(
        "experiment {patch}: row {row}: its load does not measure {metric}, expected one of {expected}"
    )]
    Metric {
        /// Which experiment.
        patch: String,
        /// Which row.
        row: String,
        /// What it compares.
        metric: &'static str,
        /// What it could compare.
        expected: String,
    },
    /// It has a table of costs that does not exist.
    #[error("experiment {patch}: {source}")]
    Costs {
        /// Which experiment.
        patch: String,
        /// What is wrong.
        source: CostsError,
    },
    /// Nothing makes its baseline come out as it was published.
    #[error("experiment {patch}: {source}")]
    Fit {
        /// Which experiment.
        patch: String,
        /// What is wrong.
        source: FitError,
    },
    /// Its runs say nothing.
    #[error("experiment: {0}")]
    Statistics(#[from] StatisticsError),
}
