//! Runtime of the weft engine on a real machine: memory, members, clock, and the loop of them all.
//!
//! ```text
//!              ports (NBD, control socket: weft-export)
//!                │ requests, commands      ▲ replies, frames, credit
//!   serve/       ▼  a thread and an epoll per worker, one driver (hub.rs)
//!   driver.rs   engine: handle, run ───────┴──► weft-compute, on the slab (buffers.rs, pool.rs)
//!                │ member requests         ▲ one answer each
//!   member_io/   ▼  stages, short transfers, faults
//!   io/         rings: auto.rs, uring.rs, threads.rs ──► files and devices (devices/)
//! ```
//!
//! | Part | Files |
//! |---|---|
//! | driver, workers, ports, frames of requests | `serve/` |
//! | choice of the ring | `backend.rs` |
//! | member requests as operations of a ring | `member_io/` |
//! | commit of overlays | `commit.rs` |
//! | opening of devices: to serve them, to look at them, to make members | `devices/` |
//! | overlays over members that stay unwritten | `overlay/` |
//! | names of members | `spec.rs` |
//! | rings: io_uring, threads, at once, with a time limit, faulty | `io/` |
//! | maps of ddrescue, and those beside images | `mapfile.rs`, `rescued.rs` |
//! | holes and locks of files | `holes.rs`, `file_lock.rs` |
//! | reads with a time limit, by a child process | `timed/` |
//! | block devices that this process serves | `ublk/` |
//! | payload memory and leases on it | `buffers.rs` |
//! | mark of writes that are in memory only | `unwritten.rs` |
//! | the only clock | `clock.rs` |
//! | errors of the runtime and of a member | `error.rs`, `device_error.rs` |
//!
//! A part uses only parts further down in this table.
//!
//! `unsafe` is in `buffers.rs` (memory), `io/uring.rs` and `ublk/kernel.rs` (addresses for the
//! kernel) and `file_lock.rs` (one `fcntl`), nowhere else.
#![deny(unsafe_code)]

mod backend;
#[allow(unsafe_code, reason = "the one place that proves that memory outlives its use")]
pub mod buffers;
pub mod clock;
pub mod commit;
mod device_error;
pub mod devices;
mod error;
pub mod figures;
#[allow(unsafe_code, reason = "OFD locks, which rustix does not have")]
mod file_lock;
pub mod holes;
pub mod identity;
pub mod io;
pub mod mapfile;
pub mod member_io;
pub mod overlay;
pub mod rescued;
pub mod serve;
pub mod spec;
pub mod timed;
pub mod ublk;
pub mod unwritten;

pub use backend::Backend;
pub use error::RuntimeError;
