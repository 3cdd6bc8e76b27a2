//! Backend: the kind of ring that carries out I/O on members, chosen when the server starts.

use crate::buffers::Slab;
use crate::devices::OpenMember;
use crate::error::RuntimeError;
use crate::io::auto::AutoRing;
use crate::io::threads::ThreadRing;
use crate::io::timed::TimedRing;
use crate::io::uring::UringRing;
use crate::overlay::{MemberRing, OverlayRing};

/// Way in which members are read and written: the choice of `--backend`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// The fastest way for each member (see `io/auto.rs`): io_uring where it is allowed, threads
    /// otherwise. Short reads and writes of members in memory are copied by the thread that submits
    /// them.
    #[default]
    Auto,
    /// A pool of threads that call `preadv` and `pwritev`.
    Threads,
    /// io_uring; an error where it is refused.
    Uring,
}

impl Backend {
    /// Creates the ring as [`Backend::open`] does. If any of `members` has an overlay or a time
    /// limit for reads, the ring supports these too.
    ///
    /// # Errors
    /// Fails as [`Backend::open`] does, or when no descriptor is left.
    pub fn open_for(
        self,
        slab: &Slab,
        members: &[OpenMember],
    ) -> Result<Box<dyn MemberRing>, RuntimeError> {
        let mut ring = self.open(slab)?;
        if members.iter().any(|member| member.timed().is_some()) {
            let failed = |source| RuntimeError::Io { what: "setting up time limits", source };
            ring = Box::new(TimedRing::new(ring).map_err(failed)?);
        }
        if members.iter().any(|member| member.overlay().is_some()) {
            let failed = |source| RuntimeError::Io { what: "setting up overlays", source };
            ring = Box::new(OverlayRing::new(ring).map_err(failed)?);
        }
        Ok(ring)
    }

    /// Creates the ring of the backend. Where [`Backend::Auto`] falls back to threads, the cause is
    /// logged.
    ///
    /// # Errors
    /// Fails when io_uring was demanded and is refused, or when no thread or descriptor is left.
    pub fn open(self, slab: &Slab) -> Result<Box<dyn MemberRing>, RuntimeError> {
        let threads = || -> Result<Box<dyn MemberRing>, RuntimeError> {
            let failed = |source| RuntimeError::Io { what: "starting threads", source };
            Ok(Box::new(ThreadRing::new(THREADS, THREAD_CAPACITY).map_err(failed)?))
        };
        let uring = || -> std::io::Result<Box<dyn MemberRing>> {
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

/// Largest number of requests in flight in io_uring. It is larger than the queues of today's disks,
/// and far smaller than the number that an engine may submit.
const URING_CAPACITY: u16 = 512;
/// Number of threads that carry out I/O: enough to keep the queue of a disk busy.
const THREADS: usize = 8;
/// Largest number of requests that the pool of threads takes at one time, including those that wait
/// for a thread.
const THREAD_CAPACITY: usize = 256;
