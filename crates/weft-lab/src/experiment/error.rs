//! Errors of experiments: texts, knobs, models and fits that cannot be used.

use thiserror::Error;
use weft_engine::knobs::KnobError;
use weft_sim::drive::ModelError;
use weft_sim::machine::{CostsError, PartsError};

use crate::fit::FitError;
use crate::statistics::StatisticsError;

/// Reasons why an experiment cannot be run as written.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum ExperimentError {
    /// No experiment has the name that was asked for.
    #[error("{found}: no such experiment; expected one of {expected}")]
    Name {
        /// Name that was asked for.
        found: String,
        /// Names of all experiments.
        expected: String,
    },
    /// The text of an experiment is not TOML, or does not have the form of an experiment.
    #[error("experiment: {0}")]
    Text(String),
    /// The file of an experiment cannot be read.
    #[error(
        "{path}: {why}; name a file with an experiment, as weft reproduce 000 --print-experiment prints one"
    )]
    Unread {
        /// File that cannot be read.
        path: String,
        /// Message of the operating system, or a description of the file.
        why: String,
    },
    /// A file has an experiment that cannot be run as it is written.
    #[error(
        "{path}: {source}; correct it, or begin with what weft reproduce 000 --print-experiment prints"
    )]
    File {
        /// File with the experiment.
        path: String,
        /// Error in the text of the file.
        source: Box<ExperimentError>,
    },
    /// A field has a value with which no run is possible.
    #[error("experiment {patch}: {field}: found {found}, expected {expected}")]
    Value {
        /// Patch number of the experiment.
        patch: String,
        /// The field, as `case[2].load.count.quick`; lists count from 0.
        field: String,
        /// Value that the field has.
        found: String,
        /// Range or form that the field should have.
        expected: String,
    },
    /// No machine can be built as the text describes it.
    #[error("experiment {patch}: machine, column {column}: {source}")]
    Machine {
        /// Patch number of the experiment.
        patch: String,
        /// Name of the column that sets up the machine.
        column: String,
        /// Reason why the machine cannot be built.
        source: Box<PartsError>,
    },
    /// The text names something that it does not define.
    #[error("experiment {patch}: {field}: found {found:?}, expected one of {expected}")]
    Unknown {
        /// Patch number of the experiment.
        patch: String,
        /// Key of the experiment's file with the unknown name as its value, such as `row.baseline`.
        field: &'static str,
        /// Name that the text gives.
        found: String,
        /// Names that would be valid.
        expected: String,
    },
    /// A column or case names a knob that does not exist, or gives a knob a value that it does not
    /// take.
    #[error("experiment {patch}: {source}")]
    Knob {
        /// Patch number of the experiment.
        patch: String,
        /// Reason why the knob cannot be set.
        source: KnobError,
    },
    /// The text names a drive that does not exist, or a parameter or value that the drive's model
    /// does not take.
    #[error("experiment {patch}: {source}")]
    Model {
        /// Patch number of the experiment.
        patch: String,
        /// Reason why the drive's model cannot be used.
        source: ModelError,
    },
    /// A load does not measure the metric that a row compares.
    #[error(
        "experiment {patch}: row {row}: its load does not measure {metric}, expected one of {expected}"
    )]
    Metric {
        /// Patch number of the experiment.
        patch: String,
        /// Row that compares the metric.
        row: String,
        /// Metric that the row names.
        metric: &'static str,
        /// Metrics that the load of the row measures.
        expected: String,
    },
    /// The text names a table of costs that does not exist.
    #[error("experiment {patch}: {source}")]
    Costs {
        /// Patch number of the experiment.
        patch: String,
        /// Reason why there is no such table.
        source: CostsError,
    },
    /// No parameter makes the baseline reproduce its published figure.
    #[error("experiment {patch}: {source}")]
    Fit {
        /// Patch number of the experiment.
        patch: String,
        /// Reason why no parameter fits.
        source: FitError,
    },
    /// Samples of the experiment's runs cannot be compared.
    #[error("experiment: {0}")]
    Statistics(#[from] StatisticsError),
}
