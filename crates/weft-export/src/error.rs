//! Errors of a server that does not begin.

use thiserror::Error;
use weft_engine::ConfigError;
use weft_runtime::RuntimeError;
use weft_runtime::devices::DeviceError;

/// Reasons why nothing was served.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The configuration.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// A member.
    #[error("{0}")]
    Device(#[from] DeviceError),
    /// An export cannot be described by the protocol.
    #[error("{0}")]
    Export(#[from] weft_nbd::ExportError),
    /// A listener or the control socket.
    #[error("{at}: {source}{hint}")]
    Listen {
        /// Address that failed.
        at: String,
        /// Error of the operating system.
        source: std::io::Error,
        /// Advice.
        hint: &'static str,
    },
    /// The runtime.
    #[error("{0}")]
    Runtime(#[from] RuntimeError),
    /// Not done for safety.
    #[error("{0}")]
    Refused(String),
}
