//! Servers that export weft volumes, and the socket by which they are administered.
//!
//! [`serve()`] is the whole of it: memory, members, engine, listeners, loop, and a good end.
//!
//! | Question | File |
//! |---|---|
//! | How is a volume served from start to end? | `serve.rs` |
//! | Who is connected over NBD, and who may come? | `nbd.rs` |
//! | What does one NBD client want, and what is it owed? | `connection.rs` |
//! | How many looks at members may one round take? | `looks.rs` |
//! | How does a socket come to listen, safely? | `socket.rs` |
//! | How does weft itself use a volume over NBD? | `client.rs` |
//! | What did clients ask for, and when? | `record.rs` |
//! | What is logged only now and then? | `rare.rs` |
//! | What can an administrator say? | `control.rs` |
//! | How is an administrator answered? | `control_port.rs` |
#![forbid(unsafe_code)]

mod allocation;
pub mod client;
mod connection;
pub mod control;
mod control_port;
mod looks;
mod nbd;
mod rare;
mod record;
mod serve;
mod socket;

pub use record::{Arrival, Recorder, Taken};
pub use serve::{
    ExitState, ExportOptions, Listen, Ready, ServeError, ServeOptions, Source, TimeLimits, serve,
};
