//! Errors of benchmarks: why something could not be measured.

use weft_export::ServeError;

/// Why something could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// It was tried and failed.
    #[error("{0}")]
    Failed(String),
    /// What was asked for does not exist: a case of this name, instructions of this CPU.
    #[error("{0}")]
    Usage(String),
    /// A benchmark was refused for safety; nothing was written.
    #[error("{0}")]
    Refused(String),
    /// A volume to be measured could not be served.
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
