//! Errors of a server that does not start, and error numbers of requests.

use rustix::io::Errno;
use thiserror::Error;
use weft_engine::{ConfigError, ReplyError};
use weft_runtime::RuntimeError;
use weft_runtime::devices::DeviceError;

/// Reasons why a server did not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The configuration is invalid.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// A member of the volume cannot be opened.
    #[error("{0}")]
    Device(#[from] DeviceError),
    /// An export has a name, a description or block sizes that NBD cannot express.
    #[error("{0}")]
    Export(#[from] weft_nbd::ExportError),
    /// A listener or the control socket cannot be opened.
    #[error("{at}: {source}{hint}")]
    Listen {
        /// Address that cannot be listened on.
        at: String,
        /// Error of the operating system.
        source: std::io::Error,
        /// Advice on how to make the address usable.
        hint: &'static str,
    },
    /// A system call of the runtime failed.
    #[error("{0}")]
    Runtime(#[from] RuntimeError),
    /// The server refused to serve, for safety; the text is the reason.
    #[error("{0}")]
    Refused(String),
}

/// Error number of the kernel for an error of the engine.
pub(crate) fn errno_of(error: &ReplyError) -> Errno {
    match error {
        ReplyError::NoSpace => Errno::NOSPC,
        ReplyError::Invalid(_) | ReplyError::OutOfRange => Errno::INVAL,
        ReplyError::ReadOnly | ReplyError::Refused(_) => Errno::PERM,
        _ => Errno::IO,
    }
}
