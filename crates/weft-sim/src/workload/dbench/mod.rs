//! What does `dbench N` do?
//!
//! `N` clients, each a process that does one operation after the other without a pause, as a load
//! says. All of them see the same load; client 3 has `clients\client3` where the load has
//! `clients\client1`.
//!
//! | question | file |
//! |---|---|
//! | What is an operation? | `op.rs`: [`Op`] |
//! | What does a user's own load file say? | `load_file.rs`: [`Load`] |
//! | What does a client do who has none? | `synthetic.rs`: [`Synthetic`] |
//! | What does an operation do, and how long does it take? | `client.rs`: [`Client`] |
//! | What does dbench print? | `table.rs`: [`Table`] |
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
