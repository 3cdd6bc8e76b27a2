//! Servers that export weft volumes, and the socket by which they are administered.
#![forbid(unsafe_code)]

pub mod control;
mod serve;

pub use serve::{
    ExitState, ExportOptions, Listen, Ready, ServeError, ServeOptions, Source, serve,
};
