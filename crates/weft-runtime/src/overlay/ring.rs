//! Ring for overlays: reads of unchanged data go to the member, all else to a thread of the
//! overlay.
//!
//! [`OverlayRing`] wraps a ring. Reads of what is as it is on the member go to the ring, which has
//! the member's file; all else of a member with an overlay goes to a thread of that overlay, which
//! does one thing after the other. Members without an overlay are the ring's alone.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

use rustix::event::EventfdFlags;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

use super::Overlay;
use crate::ring::{Action, FileKind, Ring, RingDone, RingOp};

/// A ring whose members may have overlays.
#[derive(Debug)]
pub struct OverlayRing<R> {
    inner: R,
    workers: Vec<Option<Worker>>,
    shared: Arc<Shared>,
    /// Readable when the inner ring or a worker has something.
    both: OwnedFd,
    /// Given to workers and not handed back.
    given: usize,
    /// Threads whose member was taken out.
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
    /// No descriptor is left.
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
            // It finishes what it was given, and ends when nobody can give it more.
            self.ending.push(worker.thread);
        }
    }
}

impl<R: Ring> Ring for OverlayRing<R> {
    fn set_file(&mut self, index: u16, file: Option<Arc<OwnedFd>>) -> std::io::Result<()> {
        self.end_worker(index);
        self.inner.set_file(index, file)
    }

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
        worker.orders.send(op).expect("a worker lives as long as it can be given something");
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
        // Before the list is left: what is added after raises it again.
        let _ = rustix::io::read(&self.shared.event, &mut [0; 8]);
        self.given -= ended.len();
        done.append(&mut ended);
    }

    fn cancel(&mut self, id: u32) {
        // What a worker has ends soon: it is page cache in between, or a flush that nothing stops.
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
            // Its panics were caught and reported with the operation.
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
