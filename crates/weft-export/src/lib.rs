//! Servers that export weft volumes, and the socket by which they are administered.
#![forbid(unsafe_code)]

mod connection;
pub mod control;
mod control_port;
mod nbd;
mod serve;
mod socket;

pub use serve::{ExitState, ExportOptions, Listen, Ready, ServeError, ServeOptions, Source, serve};
