//! Ring for overlays: it sends reads of unchanged data to the member, and all other operations to a
//! thread of the overlay.
//!
//! [`OverlayRing`] wraps a ring. Reads of data that the overlay does not have go to the wrapped
//! ring, which has the member's file. All other operations on a member with an overlay go to a
//! thread of that overlay, which carries out one after the other. Operations on members without an
//! overlay go to the wrapped ring.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

use super::Overlay;
use crate::io::auto::AutoRing;
use crate::io::completions::Completions;
use crate::io::faulty::FaultyRing;
use crate::io::ring::{Action, FileKind, NoRing, Ring, RingDone, RingOp};
use crate::io::threads::ThreadRing;
use crate::io::timed::TimedRing;
use crate::io::uring::UringRing;
use crate::timed::TimedFile;

/// A ring for members, which may have overlays and time limits.
pub trait MemberRing: Ring {
    /// Sets the overlay of the registered file at `index`. The overlay gets all operations but
    /// reads of unchanged data, so that the file itself is not written.
    ///
    /// # Errors
    /// Fails when this kind of ring supports no overlays, or no thread can be started.
    fn set_overlay(&mut self, index: u16, overlay: Arc<Overlay>) -> std::io::Result<()> {
        let _ = (index, overlay);
        Err(std::io::ErrorKind::Unsupported.into())
    }

    /// Sends reads of the registered file at `index` to `timed`, which has a time limit.
    ///
    /// # Errors
    /// Fails when this kind of ring supports no time limits, or no thread can be started.
    fn set_timed(&mut self, index: u16, timed: Arc<TimedFile>) -> std::io::Result<()> {
        let _ = (index, timed);
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

impl MemberRing for AutoRing {}
impl MemberRing for NoRing {}
impl MemberRing for ThreadRing {}
impl MemberRing for UringRing {}

impl<R: Ring> MemberRing for TimedRing<R> {
    fn set_timed(&mut self, index: u16, timed: Arc<TimedFile>) -> std::io::Result<()> {
        self.start(index, timed)
    }
}

impl<R: MemberRing> MemberRing for FaultyRing<R> {
    fn set_overlay(&mut self, index: u16, overlay: Arc<Overlay>) -> std::io::Result<()> {
        self.inner.set_overlay(index, overlay)
    }

    fn set_timed(&mut self, index: u16, timed: Arc<TimedFile>) -> std::io::Result<()> {
        self.inner.set_timed(index, timed)
    }
}

impl<R: MemberRing + ?Sized> MemberRing for Box<R> {
    fn set_overlay(&mut self, index: u16, overlay: Arc<Overlay>) -> std::io::Result<()> {
        (**self).set_overlay(index, overlay)
    }

    fn set_timed(&mut self, index: u16, timed: Arc<TimedFile>) -> std::io::Result<()> {
        (**self).set_timed(index, timed)
    }
}

/// A ring for members with and without overlays.
#[derive(Debug)]
pub struct OverlayRing<R> {
    inner: R,
    workers: Vec<Option<Worker>>,
    done: Arc<Completions<RingDone>>,
    /// epoll descriptor that is readable when the inner ring or a worker has completions.
    both: OwnedFd,
    /// Number of operations in progress in the workers.
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

impl<R: Ring> OverlayRing<R> {
    /// Wraps a ring that has no files yet.
    ///
    /// # Errors
    /// Fails when no descriptor is left.
    pub fn new(inner: R) -> std::io::Result<Self> {
        let done = Arc::new(Completions::new()?);
        let both = epoll::create(CreateFlags::CLOEXEC)?;
        for fd in [inner.wait_fd(), done.as_fd()] {
            epoll::add(&both, fd, EventData::new_u64(0), EventFlags::IN)?;
        }
        let (workers, ending) = (Vec::new(), Vec::new());
        Ok(Self { inner, workers, done, both, given: 0, ending })
    }

    fn end_worker(&mut self, index: u16) {
        if let Some(worker) = self.workers.get_mut(usize::from(index)).and_then(Option::take) {
            // The thread finishes its operations and ends, because `orders` has no sender any more.
            self.ending.push(worker.thread);
        }
    }
}

impl<R: MemberRing> MemberRing for OverlayRing<R> {
    fn set_overlay(&mut self, index: u16, overlay: Arc<Overlay>) -> std::io::Result<()> {
        self.end_worker(index);
        let place = usize::from(index);
        if self.workers.len() <= place {
            self.workers.resize_with(place + 1, || None);
        }
        let (orders, received) = mpsc::channel();
        let (done, of) = (Arc::clone(&self.done), Arc::clone(&overlay));
        let name = format!("weft-overlay-{index}");
        let thread =
            std::thread::Builder::new().name(name).spawn(move || work(&of, &received, &done))?;
        self.workers[place] = Some(Worker { overlay, orders, thread });
        Ok(())
    }

    fn set_timed(&mut self, index: u16, timed: Arc<TimedFile>) -> std::io::Result<()> {
        self.inner.set_timed(index, timed)
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
        self.given -= self.done.take(done);
    }

    fn cancel(&mut self, id: u32) {
        // An operation of a worker needs no cancellation: it uses the page cache and ends soon, or
        // it is a flush, which cannot be stopped.
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

/// Body of an overlay's thread: carries out operations, one after the other, until the sender is
/// dropped.
fn work(overlay: &Overlay, orders: &mpsc::Receiver<RingOp>, done: &Completions<RingDone>) {
    while let Ok(mut op) = orders.recv() {
        let performed = catch_unwind(AssertUnwindSafe(|| overlay.perform(&mut op)));
        let panicked = performed.is_err();
        done.add(RingDone { op, result: performed.unwrap_or(Err(Errno::IO)), panicked });
    }
}
