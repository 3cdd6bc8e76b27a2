//! Errors of the runtime as a whole; `device_error.rs` has the errors of single members.

use thiserror::Error;

/// Reasons why the runtime cannot start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// Operation that failed.
        what: &'static str,
        /// Error of the operating system.
        source: std::io::Error,
    },
}
