//! NBD benchmark: volumes over NBD, compared with nbdkit and with the minimal server.
//!
//! Every server is a process of its own on a unix socket, and the servers alternate under one lean
//! client (`load.rs`), so the server is the bottleneck. The minimal server (`least.rs`) shows what
//! a socket carries: memory, one receive and one send for many requests, and no engine. Client and
//! server are two or three times slower on two CPUs, between which data must move, than on one CPU.
//! The kernel chooses the CPUs, so a measurement consists of many short rounds, and its result is
//! their median.

mod array;
mod least;
mod load;
mod measure;
#[allow(unsafe_code, reason = "memory that connections share without asking each other")]
mod memory;
mod server;

pub use array::serve as serve_array;
pub use least::serve as serve_least;
pub use measure::NbdLoad;
