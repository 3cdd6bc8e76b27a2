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
//! | overlays over members that stay unwritten | `overlay/` |
//! | operations, by io_uring, threads or at once | `ring.rs`, `uring.rs`, `threads.rs`, `auto.rs` |
//! | member requests as operations of a ring | `member_io/` |
//! | the engine's driver, loop and clock | `driver.rs`, `reactor.rs`, `clock.rs` |
//! | threads, and the driver that they share | `worker.rs`, `hub.rs`, `gate.rs` |
//! | end of service after a panic | `poison.rs` |
//! | mark of writes that are in memory only | `unwritten.rs` |
//! | holes of members | `holes.rs` |
//! | fault injection for rings | `faulty.rs` |
//!
//! `unsafe` is in `buffers.rs` (memory), `uring.rs` (addresses for the kernel) and
//! `devices/lock.rs` (one `fcntl`), nowhere else.
#![deny(unsafe_code)]

pub mod auto;
#[allow(unsafe_code, reason = "the one place that proves that memory outlives its use")]
pub mod buffers;
pub mod clock;
mod device_error;
#[allow(unsafe_code, reason = "OFD locks, which rustix does not have")]
pub mod devices;
pub mod driver;
pub mod faulty;
mod gate;
pub mod holes;
mod hub;
pub mod member_io;
pub mod overlay;
pub mod partition;
pub mod poison;
pub mod pool;
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

use thiserror::Error;

use auto::AutoRing;
use buffers::Slab;
use devices::OpenMember;
use overlay::OverlayRing;
use ring::Ring;
use threads::ThreadRing;
use uring::UringRing;

/// Way in which members are read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// The fastest way for each member, see `auto.rs`: io_uring where it is allowed, threads
    /// otherwise; members of memory are copied at once.
    #[default]
    Auto,
    /// A pool of threads that call `preadv` and `pwritev`.
    Threads,
    /// io_uring; an error where it is refused.
    Uring,
}

/// Reasons why the runtime cannot start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// Operation that failed.
        what: &'static str,
        /// Error of the operating system.
        source: std::io::Error,
    },
}

impl Backend {
    /// Opens the backend like [`Backend::open`], with overlays if one of these members has one.
    ///
    /// # Errors
    /// The errors of [`Backend::open`].
    pub fn open_for(
        self,
        slab: &Slab,
        members: &[OpenMember],
    ) -> Result<Box<dyn Ring>, RuntimeError> {
        let ring = self.open(slab)?;
        if members.iter().all(|member| member.overlay().is_none()) {
            return Ok(ring);
        }
        let failed = |source| RuntimeError::Io { what: "setting up overlays", source };
        Ok(Box::new(OverlayRing::new(ring).map_err(failed)?))
    }

    /// Sets up the backend that was asked for. A fall-back to threads is logged with its cause.
    ///
    /// # Errors
    /// Fails when io_uring was demanded and is refused, or when no thread can be started.
    pub fn open(self, slab: &Slab) -> Result<Box<dyn Ring>, RuntimeError> {
        let threads = || -> Result<Box<dyn Ring>, RuntimeError> {
            let failed = |source| RuntimeError::Io { what: "starting threads", source };
            Ok(Box::new(ThreadRing::new(THREADS, THREAD_CAPACITY).map_err(failed)?))
        };
        let uring = || -> std::io::Result<Box<dyn Ring>> {
            Ok(Box::new(UringRing::new(slab, URING_CAPACITY)?))
        };
        let (below, threads_beside) = match self {
            Self::Threads => return threads(),
            Self::Uring => {
                let what = "io_uring_setup (kernel.io_uring_disabled, seccomp or RLIMIT_MEMLOCK?)";
                return uring().map_err(|source| RuntimeError::Io { what, source });
            }
            Self::Auto => match uring() {
                Ok(ring) => (ring, THREADS),
                Err(error) => {
                    tracing::warn!(%error, "io_uring refused; threads do its work");
                    (threads()?, 0)
                }
            },
        };
        let failed = |source| RuntimeError::Io { what: "epoll", source };
        Ok(Box::new(AutoRing::new(below, threads_beside).map_err(failed)?))
    }
}

/// Requests in flight: more than the queues of today's disks, far less than an engine may submit.
const URING_CAPACITY: u16 = 512;
/// Threads: enough to keep the queue of a disk busy.
const THREADS: usize = 8;
/// Requests given to the threads at one time.
const THREAD_CAPACITY: usize = 256;
