//! Servers that export weft volumes, and the socket by which they are administered.
//!
//! [`serve()`] is a server from start to end: memory, members, engine, listeners, loop, and an
//! orderly stop.
//!
//! | Part | File |
//! |---|---|
//! | a server from start to end | `serve.rs` |
//! | NBD: clients, handshakes, codec | `nbd/` |
//! | ublk: a block device of this machine | `ublk/` |
//! | vhost-user: the disk of a virtual machine | `vhost_user/` |
//! | FUSE: a file of this machine | `fuse/` |
//! | the life of a client's requests, of any protocol | `session/` |
//! | places of clients, their time limits | `connection_limit.rs` |
//! | shares of clients | `share.rs` |
//! | state that ports share | `shared.rs` |
//! | budget for queries of members for holes | `hole_probes.rs` |
//! | listening sockets | `socket.rs` |
//! | bytes of a client, in plain text or by TLS | `transport.rs` |
//! | keys of TLS | `keys.rs` |
//! | a client for weft itself | `client.rs` |
//! | a client in the process of the server | `in_process.rs` |
//! | recording of requests | `record.rs` |
//! | thread for commands that block | `helper.rs` |
//! | rate-limited log lines | `log_limiter.rs` |
//! | control protocol | `control.rs` |
//! | server's side of the control protocol | `control_port/` |
#![forbid(unsafe_code)]

mod allocation;
pub mod client;
mod connection_limit;
pub mod control;
mod control_port;
mod error;
mod fuse;
mod helper;
mod hole_probes;
pub mod in_process;
pub mod keys;
mod log_limiter;
mod nbd;
mod record;
mod serve;
mod session;
mod share;
mod shared;
mod socket;
mod transport;
mod ublk;
mod vhost_user;

pub use connection_limit::TimeLimits;
pub use control_port::Supervisor;
pub use error::ServeError;
pub use record::{Arrival, Recorder, Taken, VolumeRequest};
pub use serve::{ExitState, ExportOptions, Ready, ServeOptions, Source, serve};
pub use share::ClientShare;
pub use socket::{Listen, NbdAddress, NbdListen, Protection};
