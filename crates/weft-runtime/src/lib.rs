//! The real world of the weft engine: memory, members, clock, and the loop that joins them.
//!
//! ```text
//!              ports (NBD, control socket: weft-export)
//!                │ requests, commands      ▲ replies, frames, credit
//!   reactor.rs   ▼  a thread and an epoll per worker (worker.rs), one driver (hub.rs)
//!   driver.rs   engine: handle, run ───────┴──► weft-compute, on the slab (buffers.rs, pool.rs)
//!                │ member requests         ▲ one answer each
//!   member_io/   ▼  stages, short transfers, faults
//!   ring.rs     auto.rs, uring.rs, threads.rs ──► files and devices (devices/)
//! ```
//!
//! | Part | File |
//! |---|---|
//! | payload memory and leases on it | `buffers.rs` |
//! | frames of requests, and each client's share | `pool.rs` |
//! | turns of long requests | `turns.rs` |
//! | names of members, partitions | `spec.rs`, `partition/` |
//! | maps of ddrescue beside images | `rescued.rs` |
//! | opening and locking members | `devices/` |
//! | overlays over members that stay unwritten | `overlay/`, `commit.rs` |
//! | choice of the way of operations | `backend.rs` |
//! | operations, by io_uring, threads or at once | `ring.rs`, `uring.rs`, `threads.rs`, `auto.rs` |
//! | member requests as operations of a ring | `member_io/` |
//! | the engine's driver, loop and clock | `driver.rs`, `reactor.rs`, `clock.rs` |
//! | ports: what the loop serves, and how it ends | `port.rs`, `clients.rs`, `ending.rs` |
//! | threads, and the driver that they share | `worker.rs`, `hub.rs`, `gate.rs` |
//! | end of service after a panic | `poison.rs` |
//! | mark of writes that are in memory only | `unwritten.rs` |
//! | holes and locks of files | `holes.rs`, `file_lock.rs` |
//! | fault injection for rings | `faulty.rs` |
//!
//! `unsafe` is in `buffers.rs` (memory), `uring.rs` (addresses for the kernel) and
//! `file_lock.rs` (one `fcntl`), nowhere else.
#![deny(unsafe_code)]

pub mod auto;
mod backend;
#[allow(unsafe_code, reason = "the one place that proves that memory outlives its use")]
pub mod buffers;
pub mod clients;
pub mod clock;
pub mod commit;
mod device_error;
pub mod devices;
pub mod driver;
mod ending;
mod error;
pub mod faulty;
#[allow(unsafe_code, reason = "OFD locks, which rustix does not have")]
mod file_lock;
mod gate;
pub mod holes;
mod hub;
pub mod member_io;
pub mod overlay;
pub mod partition;
pub mod poison;
pub mod pool;
mod port;
pub mod reactor;
pub mod rescued;
pub mod ring;
pub mod spec;
pub mod threads;
pub mod turns;
pub mod unwritten;
#[allow(unsafe_code, reason = "hands addresses to the kernel")]
pub mod uring;
mod worker;

pub use backend::Backend;
pub use error::RuntimeError;
