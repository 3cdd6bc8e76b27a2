//! Benchmarks of weft: the measurements of the program `weft-bench`, and the baselines.
//!
//! Each benchmark fills a [`Sheet`] of rows. A row compares weft with at most one baseline, which
//! is measured alternately with weft, in this process or beside it, a few milliseconds apart: the
//! speed of a machine varies, so a number from another day is no baseline. Only the figures of the
//! kernel (the requests of md, the time of mq-deadline) were measured once.
//!
//! | Benchmark | Measures | Peers |
//! |---|---|---|
//! | [`costs`] | each kind of the engine's work, for the tables of simulations | |
//! | [`engine`] | the engine alone, levels, rebuilds, patches 000 and 004 | kernel md, parity |
//! | [`member`] | reads and writes of a file through the runtime | fio |
//! | [`nbd`] | volumes over NBD | nbdkit, the minimal server |
//! | [`parity`] | XOR, P+Q, the rebuilding of two strips | ISA-L, scalar kernels |
//! | [`repeat`] | one operation many times, for a profiler | |
//! | [`sched`] | a request through each scheduler alone | kernel mq-deadline |
//!
//! The program adds the command line, the table and the JSON. Unsafe code is confined to the
//! tests' `allocations.rs` and three files: `nbd/memory.rs` (memory without locks),
//! `parity/arena.rs` (huge pages) and `parity/isal.rs` (a C library loaded at run time). None of it
//! serves a user's volume.
#![deny(unsafe_code)]

#[cfg(test)]
#[allow(unsafe_code, reason = "an allocator that counts, for tests")]
mod allocations;
mod alone;
pub mod costs;
mod driven;
pub mod engine;
mod error;
pub mod member;
pub mod nbd;
pub mod parity;
mod rebuild;
pub mod repeat;
mod rounds;
pub mod sched;
mod session;
mod sheet;
mod weft;

pub use error::BenchError;
pub use rounds::Effort;
pub use sheet::{Progress, Sheet, SheetRow};
