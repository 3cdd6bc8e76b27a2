//! Ring for overlays: reads of unchanged data go to the member, all other operations to a thread of
//! the overlay.
//!
//! [`OverlayRing`] wraps a ring. Reads of data that the overlay does not have go to the wrapped
//! ring, which has the member's file. All other operations on a member with an overlay go to a
//! thread of that overlay, which carries out one after the other. Operations on members without an
//! overlay go to the wrapped ring.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

use rustix::event::EventfdFlags;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

use super::Overlay;
use crate::io::auto::AutoRing;
use crate::io::faulty::FaultyRing;
use crate::io::ring::{Action, FileKind, NoRing, Ring, RingDone, RingOp};
use crate::io::threads::ThreadRing;
use crate::io::uring::UringRing;

/// A ring for members, which may have overlays.
pub trait MemberRing: Ring {
    /// Sends writes to the registered file at `index` to `overlay`, so that the file itself is not
    /// written.
    ///
    /// # Errors
    /// Fails when this ring has no overlays, or no thread is left.
    fn set_overlay(&mut self, index: u16, overlay: Arc<Overlay>) -> std::io::Result<()> {
        let _ = (index, overlay);
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

impl MemberRing for AutoRing {}
impl MemberRing for NoRing {}
impl MemberRing for ThreadRing {}
impl MemberRing for UringRing {}

impl<R: MemberRing> MemberRing for FaultyRing<R> {
    fn set_overlay(&mut self, index: u16, overlay: Arc<Overlay>) -> std::io::Result<()> {
        self.inner.set_overlay(index, overlay)
    }
}

impl<R: MemberRing + ?Sized> MemberRing for Box<R> {
    fn set_overlay(&mut self, index: u16, overlay: Arc<Overlay>) -> std::io::Result<()> {
        (**self).set_overlay(index, overlay)
    }
}

/// A ring for members with and without overlays.
#[derive(Debug)]
pub struct OverlayRing<R> {
    inner: R,
    workers: Vec<Option<Worker>>,
    shared: Arc<Shared>,
    /// epoll descriptor that is readable when the inner ring or a worker has completions.
    both: OwnedFd,
    /// Number of operations that workers have and have not handed back.
    given: usize,
    /// Threads of members that were removed, to be joined.
    ending: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Worker {
    overlay: Arc<Overlay>,
    orders: mpsc::Sender<RingOp>,
    thread: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    done: Mutex<Vec<RingDone>>,
    event: OwnedFd,
}

impl<R: Ring> OverlayRing<R> {
    /// Wraps a ring that has no files yet.
    ///
    /// # Errors
    /// Fails when no descriptor is left.
    pub fn new(inner: R) -> std::io::Result<Self> {
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let both = epoll::create(CreateFlags::CLOEXEC)?;
        for fd in [inner.wait_fd(), event.as_fd()] {
            epoll::add(&both, fd, EventData::new_u64(0), EventFlags::IN)?;
        }
        let shared = Arc::new(Shared { done: Mutex::default(), event });
        let (workers, ending) = (Vec::new(), Vec::new());
        Ok(Self { inner, workers, shared, both, given: 0, ending })
    }

    fn end_worker(&mut self, index: u16) {
        if let Some(worker) = self.workers.get_mut(usize::from(index)).and_then(Option::take) {
            // The thread finishes its operations and ends, because `orders` has no sender any more.
            self.ending.push(worker.thread);
        }
    }
}

impl<R: Ring> MemberRing for OverlayRing<R> {
    fn set_overlay(&mut self, index: u16, overlay: Arc<Overlay>) -> std::io::Result<()> {
        self.end_worker(index);
        let place = usize::from(index);
        if self.workers.len() <= place {
            self.workers.resize_with(place + 1, || None);
        }
        let (orders, received) = mpsc::channel();
        let (shared, of) = (Arc::clone(&self.shared), Arc::clone(&overlay));
        let name = format!("weft-overlay-{index}");
        let thread =
            std::thread::Builder::new().name(name).spawn(move || shared.work(&of, &received))?;
        self.workers[place] = Some(Worker { overlay, orders, thread });
        Ok(())
    }
}

impl<R: Ring> Ring for OverlayRing<R> {
    fn set_file(&mut self, index: u16, file: Option<Arc<OwnedFd>>) -> std::io::Result<()> {
        self.end_worker(index);
        self.inner.set_file(index, file)
    }

    fn set_kind(&mut self, index: u16, kind: FileKind) {
        self.inner.set_kind(index, kind);
    }

    fn capacity(&self) -> usize {
        self.inner.capacity()
    }

    fn push(&mut self, op: RingOp) {
        let worker = self.workers.get(usize::from(op.file)).and_then(Option::as_ref);
        let Some(worker) = worker else {
            self.inner.push(op);
            return;
        };
        if let Action::Read(buffer) = &op.action {
            let len = op.limit.min(buffer.len() - op.skip);
            if worker.overlay.is_untouched(op.offset, len as u64) {
                self.inner.push(op);
                return;
            }
        }
        self.given += 1;
        worker.orders.send(op).expect("a worker runs until its sender is dropped");
    }

    fn submit(&mut self) -> std::io::Result<()> {
        self.inner.submit()
    }

    fn reap(&mut self, done: &mut Vec<RingDone>) {
        self.inner.reap(done);
        let mut ended = self.shared.done.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.is_empty() {
            return;
        }
        // The event is cleared while the list is locked, so that a later completion raises it
        // again.
        let _ = rustix::io::read(&self.shared.event, &mut [0; 8]);
        self.given -= ended.len();
        done.append(&mut ended);
    }

    fn cancel(&mut self, id: u32) {
        // Operations of a worker end soon: they use the page cache, or are a flush, which nothing
        // stops.
        self.inner.cancel(id);
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        self.both.as_fd()
    }

    fn outstanding(&self) -> usize {
        self.inner.outstanding() + self.given
    }

    fn busy(&self) -> bool {
        self.inner.busy()
    }

    fn describe(&self) -> String {
        format!("{}, writes to overlays", self.inner.describe())
    }
}

impl<R> Drop for OverlayRing<R> {
    fn drop(&mut self) {
        let threads = self.workers.drain(..).flatten().map(|worker| worker.thread);
        for thread in threads.chain(self.ending.drain(..)) {
            // Panics were caught and reported with their operations.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn work(&self, overlay: &Overlay, orders: &mpsc::Receiver<RingOp>) {
        while let Ok(mut op) = orders.recv() {
            let performed = catch_unwind(AssertUnwindSafe(|| overlay.perform(&mut op)));
            let panicked = performed.is_err();
            let result = performed.unwrap_or(Err(Errno::IO));
            let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
            let first = done.is_empty();
            done.push(RingDone { op, result, panicked });
            if first {
                // Cannot fail: the counter is far from its limit.
                let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
            }
        }
    }
}
