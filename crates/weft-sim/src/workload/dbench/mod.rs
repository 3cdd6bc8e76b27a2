//! Workload `dbench N`: clients of a file server, from a load file or a synthetic load.
//!
//! Each of the `N` clients is a process that carries out the operations of a load, one after the
//! other without a pause. All clients have the same load, but client 3 has `clients\client3` where
//! the load has `clients\client1`.
//!
//! | part | file |
//! |---|---|
//! | operations of the protocol | `op.rs`: [`Op`] |
//! | a user's own load file | `load_file.rs`: [`Load`] |
//! | the load without a file | `synthetic.rs`: [`Synthetic`] |
//! | effect and duration of an operation | `client.rs`: [`Client`] |
//! | dbench's table of results | `table.rs`: [`Table`] |
//!
//! Source   experiments.md §1.6

mod client;
mod load_file;
mod op;
mod synthetic;
mod table;

pub use client::{Client, Run, Settings, Source};
pub use load_file::{Error, Load};
pub use op::{Handle, Names, Op, Open, OperationKind, Path};
pub use synthetic::Synthetic;
pub use table::{OperationRow, Table};
