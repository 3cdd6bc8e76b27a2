//! NBD benchmark: volumes over NBD, against nbdkit and against the least server.
//!
//! Every server is a process of its own on a unix socket, and they take turns under one lean client
//! (`load.rs`), so that the server is the limit. The least server (`least.rs`) is what a socket
//! carries: memory, one receive and one send for many requests, and no engine. A client and a
//! server between which data crosses from one CPU to the other are two or three times slower than
//! both on one, and the kernel decides that; hence many short rounds and the median.

mod array;
mod least;
mod load;
mod measure;
#[allow(unsafe_code, reason = "memory that connections share without asking each other")]
mod memory;
mod server;

pub use array::serve as serve_array;
pub use least::serve as serve_least;
pub use measure::{EXPORT_BYTES, NbdLoad};
pub use server::{ServerKind, StartWeft};
