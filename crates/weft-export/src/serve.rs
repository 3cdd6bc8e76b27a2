//! How is a volume served from start to end?

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use thiserror::Error;
use weft_engine::{Config, ConfigError};
use weft_runtime::devices::{DeviceError, OpenMember};
use weft_runtime::{Backend, RuntimeError};
use weft_units::Bytes;

/// Where clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A TCP address. Refused unless it is on loopback or `insecure` is set.
    Tcp {
        /// Where.
        address: SocketAddr,
        /// Consent to plain text on a network.
        insecure: bool,
    },
    /// A unix socket, made with mode 0600 and removed at the end.
    Unix {
        /// Where.
        path: PathBuf,
    },
}

/// What clients see of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportOptions {
    /// Name to ask for. The first volume also answers to the empty name.
    pub name: String,
    /// Size; `None` for what the engine says.
    pub size: Option<Bytes>,
    /// Refuse writes before they reach the engine.
    pub read_only: bool,
    /// For people.
    pub description: String,
}

/// What to serve.
pub enum Source {
    /// Arrays.
    Arrays {
        /// What the engine is made of.
        config: Box<Config>,
        /// Every member the configuration names, by its index.
        members: Vec<OpenMember>,
    },
    /// One member as it is, without metadata (`--bare`).
    Bare {
        /// Which.
        member: Box<OpenMember>,
    },
}

/// What [`serve`] needs to know.
pub struct ServeOptions {
    /// What to serve.
    pub source: Source,
    /// What clients see, one per volume.
    pub exports: Vec<ExportOptions>,
    /// Where clients connect.
    pub listen: Vec<Listen>,
    /// Where administrators connect.
    pub control: Option<PathBuf>,
    /// How members are reached.
    pub backend: Backend,
    /// Most clients at one time; more wait to be accepted.
    pub clients_max: usize,
    /// Ends the server in good order when it becomes readable: a signalfd or the end of a pipe.
    pub shutdown: OwnedFd,
    /// Called once clients may connect, with the URI of every listener.
    pub on_ready: Box<dyn FnOnce(&Ready)>,
}

/// What is known once clients may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    /// An NBD URI per listener and volume.
    pub uris: Vec<String>,
    /// `io_uring` or `threads`, with the reason if it is not what was preferred.
    pub backend: String,
}

/// How a server ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum ExitState {
    /// Everything was finished, flushed and marked clean.
    Clean,
    /// The engine or a worker panicked. Nothing was acknowledged after; arrays stay marked dirty.
    Poisoned(String),
    /// A volume did not stop in good order; its array may stay marked dirty.
    StopFailed(String),
}

/// Why nothing was served.
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
        /// Where.
        at: String,
        /// Why.
        source: std::io::Error,
        /// What to do.
        hint: &'static str,
    },
    /// The runtime.
    #[error("{0}")]
    Runtime(#[from] RuntimeError),
    /// Not done for safety.
    #[error("{0}")]
    Refused(String),
}

/// Serves until told to stop.
///
/// Runs on the calling thread. Sockets are gone when it returns; members are closed.
///
/// # Errors
/// Nothing was served; [`ServeError`] says why.
pub fn serve(options: ServeOptions) -> Result<ExitState, ServeError> {
    let _ = options;
    Err(ServeError::Refused("serve: not implemented yet".into()))
}
