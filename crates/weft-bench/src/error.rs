//! Errors of benchmarks.

use weft_export::ServeError;
use weft_terminal::outcome::Failure;

/// Reasons why a measurement failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// A step of the benchmark failed.
    #[error("{0}")]
    Failed(String),
    /// An argument is not valid: a case that does not exist, for example, or instructions that this
    /// CPU lacks.
    #[error("{0}")]
    Usage(String),
    /// A benchmark was refused for safety; nothing was written.
    #[error("{0}")]
    Refused(String),
    /// A volume could not be served.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
impl BenchError {
    pub(crate) fn failed(message: impl ToString) -> Self {
        Self::Failed(message.to_string())
    }

    pub(crate) fn usage(message: impl ToString) -> Self {
        Self::Usage(message.to_string())
    }
}

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Self {
        match error {
            BenchError::Usage(text) => Self::Usage(text),
            BenchError::Refused(text) => Self::Refused(text),
            BenchError::Serve(ServeError::Refused(text)) => Self::Refused(text),
            _ => Self::failed(error),
        }
    }
}

/// Converts a failure to an error of a benchmark, which converts back to the same exit status.
impl From<Failure> for BenchError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Failed(text) => Self::Failed(text),
            Failure::Usage(text) => Self::Usage(text),
            Failure::Refused(text) => Self::Refused(text),
            Failure::BrokenPipe => Self::failed("the reader of the output is gone"),
        }
    }
}
