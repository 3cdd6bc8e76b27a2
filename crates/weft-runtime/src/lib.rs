//! The real world of the weft engine: memory, members, clock, and the loop that joins them.
#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "the one place that proves that memory outlives its use")]
pub mod buffers;
pub mod clock;
#[allow(unsafe_code, reason = "OFD locks, which rustix does not have")]
pub mod devices;

use thiserror::Error;

/// How members are reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// io_uring where it is allowed, else threads.
    #[default]
    Auto,
    /// A pool of threads with `preadv` and `pwritev`.
    Threads,
    /// io_uring or nothing.
    Uring,
}

/// Why the runtime cannot start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// The kernel said no.
    #[error("{what}: {source}")]
    Io {
        /// Doing what.
        what: &'static str,
        /// Why.
        source: std::io::Error,
    },
}
