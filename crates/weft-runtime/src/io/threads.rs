//! Thread pool for file operations, where io_uring is forbidden.
//!
//! The threads take operations from the queues of the files in turn, and call `preadv`, `pwritev2`
//! and `fdatasync`. A file has at most three of eight threads, so that two files that do not answer
//! leave threads to the others. Containers often forbid io_uring (seccomp,
//! `kernel.io_uring_disabled`); the pool has the same semantics and is slower. An operation that
//! panics in its thread is handed back with [`RingDone::panicked`].

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::io::{Errno, ReadWriteFlags};

use super::completions::Completions;
use super::ring::{Action, Ring, RingDone, RingOp, share_of};
use crate::holes::punch;

/// Pool of threads with the interface of a ring.
#[derive(Debug)]
pub struct ThreadRing {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    files: Vec<Option<Arc<OwnedFd>>>,
    pushed: Vec<Job>,
    outstanding: usize,
    capacity: usize,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
    done: Completions<RingDone>,
}

#[derive(Debug, Default)]
struct Queue {
    /// Waiting operations of each file, by the index of the file.
    files: Vec<OfFile>,
    /// Index of the file from which the last operation was taken.
    turn: usize,
    /// Largest number of threads that may work on one file.
    share: usize,
    idle: usize,
    closed: bool,
}

/// Operations of one file that wait for a thread.
#[derive(Debug, Default)]
struct OfFile {
    jobs: VecDeque<Job>,
    /// Number of threads that work on the file.
    running: usize,
}

/// An operation with its file, which stays open until the operation has ended.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) op: RingOp,
    pub(crate) file: Arc<OwnedFd>,
}

impl Job {
    /// Carries out the operation in the calling thread. Returns the operation with its result,
    /// which is `EIO` if the code panicked.
    pub(crate) fn carry_out(mut self) -> RingDone {
        let Self { op, file } = &mut self;
        let performed = catch_unwind(AssertUnwindSafe(|| perform(op, file)));
        let panicked = performed.is_err();
        RingDone { op: self.op, result: performed.unwrap_or(Err(Errno::IO)), panicked }
    }
}

impl ThreadRing {
    /// Starts `workers` threads. The ring takes at most `capacity` operations at one time.
    ///
    /// # Errors
    /// Fails when no thread or descriptor is left.
    pub fn new(workers: usize, capacity: usize) -> std::io::Result<Self> {
        assert!(workers > 0 && capacity > 0);
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue { share: workers, ..Queue::default() }),
            work: Condvar::new(),
            done: Completions::new()?,
        });
        let mut ring = Self {
            shared,
            workers: Vec::new(),
            files: Vec::new(),
            pushed: Vec::new(),
            outstanding: 0,
            capacity,
        };
        for index in 0..workers {
            let shared = Arc::clone(&ring.shared);
            let name = format!("weft-io-{index}");
            let worker = std::thread::Builder::new().name(name).spawn(move || shared.work())?;
            ring.workers.push(worker);
        }
        Ok(ring)
    }
}

impl Ring for ThreadRing {
    fn set_file(&mut self, index: u16, file: Option<Arc<OwnedFd>>) -> std::io::Result<()> {
        let index = usize::from(index);
        if self.files.len() <= index {
            self.files.resize_with(index + 1, || None);
        }
        self.files[index] = file;
        let files = self.files.iter().flatten().count();
        lock(&self.shared.queue).share = share_of(self.workers.len(), files);
        Ok(())
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn push(&mut self, op: RingOp) {
        assert!(self.outstanding < self.capacity);
        let file = self.files[usize::from(op.file)].clone().expect("the caller put the file in");
        self.outstanding += 1;
        self.pushed.push(Job { op, file });
    }

    fn submit(&mut self) -> std::io::Result<()> {
        if self.pushed.is_empty() {
            return Ok(());
        }
        let count = self.pushed.len();
        let mut queue = lock(&self.shared.queue);
        self.pushed.drain(..).for_each(|job| queue.push(job));
        let wanted = count.min(queue.idle);
        drop(queue);
        for _ in 0..wanted {
            self.shared.work.notify_one();
        }
        Ok(())
    }

    fn reap(&mut self, done: &mut Vec<RingDone>) {
        self.outstanding -= self.shared.done.take(done);
    }

    fn cancel(&mut self, id: u32) {
        let mut queue = lock(&self.shared.queue);
        let found = queue.files.iter_mut().find_map(|file| {
            let position = file.jobs.iter().position(|job| job.op.id == id)?;
            file.jobs.remove(position)
        });
        drop(queue);
        let Some(job) = found else { return };
        let result = Err(Errno::CANCELED);
        self.shared.done.add(RingDone { op: job.op, result, panicked: false });
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        self.shared.done.as_fd()
    }

    fn outstanding(&self) -> usize {
        self.outstanding
    }

    fn busy(&self) -> bool {
        !self.pushed.is_empty()
    }

    fn describe(&self) -> String {
        format!("threads ({})", self.workers.len())
    }
}

impl Drop for ThreadRing {
    /// Waits for the operations that threads have started, and drops the others.
    fn drop(&mut self) {
        let mut queue = lock(&self.shared.queue);
        queue.closed = true;
        queue.files.iter_mut().for_each(|file| file.jobs.clear());
        drop(queue);
        self.shared.work.notify_all();
        for worker in self.workers.drain(..) {
            // Panics were caught and reported with their operations.
            let _ = worker.join();
        }
    }
}

impl Queue {
    fn push(&mut self, job: Job) {
        let index = usize::from(job.op.file);
        if self.files.len() <= index {
            self.files.resize_with(index + 1, OfFile::default);
        }
        self.files[index].jobs.push_back(job);
    }

    /// Takes the next operation of the next file that may have one more thread; `None` if there is
    /// none. An operation that is passed over here is not forgotten: a thread that ends an
    /// operation calls this function again.
    fn take(&mut self) -> Option<Job> {
        for _ in 0..self.files.len() {
            self.turn = (self.turn + 1) % self.files.len();
            let file = &mut self.files[self.turn];
            if file.running < self.share
                && let Some(job) = file.jobs.pop_front()
            {
                file.running += 1;
                return Some(job);
            }
        }
        None
    }
}

impl Shared {
    fn work(&self) {
        while let Some(job) = self.next() {
            let ended = job.carry_out();
            lock(&self.queue).files[usize::from(ended.op.file)].running -= 1;
            self.done.add(ended);
        }
    }

    fn next(&self) -> Option<Job> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(job) = queue.take() {
                return Some(job);
            }
            if queue.closed {
                return None;
            }
            queue.idle += 1;
            queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
    }
}

fn perform(op: &mut RingOp, file: &OwnedFd) -> Result<usize, Errno> {
    let RingOp { action, offset, skip, limit, .. } = op;
    match action {
        Action::Discard { len } => punch(file, *offset, *len).map(|()| 0),
        Action::Flush => rustix::fs::fdatasync(file).map(|()| 0),
        Action::Read(buffer) => {
            rustix::io::preadv(file, &mut buffer.slices_mut(*skip, *limit), *offset)
        }
        Action::Write { buffer, durable } => {
            let slices = buffer.slices(*skip, *limit);
            if *durable {
                rustix::io::pwritev2(file, &slices, *offset, ReadWriteFlags::DSYNC)
            } else {
                rustix::io::pwritev(file, &slices, *offset)
            }
        }
    }
}

/// Locks shared data. The data is consistent after every statement, so a panic leaves it usable.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::{Buffer, Slab};
    use smallvec::smallvec;
    use weft_engine::{Frame, Segment};

    /// A job that is never carried out. The tests only check the order in which jobs are taken.
    fn job(id: u32, file: u16) -> Job {
        let memory = rustix::fs::memfd_create("member", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let op = RingOp { id, file, action: Action::Flush, offset: 0, skip: 0, limit: 0 };
        Job { op, file: Arc::new(memory) }
    }

    #[test]
    fn files_that_do_not_answer_leave_threads_to_the_others() {
        let mut queue = Queue { share: 3, ..Queue::default() };
        (0..20).for_each(|id| queue.push(job(id, 0)));
        (20..40).for_each(|id| queue.push(job(id, 2)));
        let mut taken: Vec<u32> =
            std::iter::from_fn(|| queue.take()).map(|job| job.op.id).collect();
        taken.sort_unstable();
        assert_eq!(taken, [0, 1, 2, 20, 21, 22], "three each, in their order");
        // The six operations are still in their threads; a third file gets the remaining threads.
        (40..42).for_each(|id| queue.push(job(id, 1)));
        let taken: Vec<u32> = std::iter::from_fn(|| queue.take()).map(|job| job.op.id).collect();
        assert_eq!(taken, [40, 41]);
        queue.files[2].running -= 1;
        assert_eq!(queue.take().map(|job| job.op.id), Some(23));
        assert!(queue.take().is_none());
    }

    #[test]
    fn a_panic_comes_back_with_its_operation_and_the_thread_goes_on() {
        let slab = Slab::new(2).unwrap();
        let file = rustix::fs::memfd_create("member", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 4096).unwrap();
        let mut ring = ThreadRing::new(1, 8).unwrap();
        ring.set_file(0, Some(Arc::new(file))).unwrap();
        for id in 0..2 {
            // A read through a shared lease is a bug; the buffers catch it with a panic.
            let segment = Segment { frame: Frame(1), offset: 0, len: 512 };
            let buffer = Buffer::Frames(slab.lease_shared(smallvec![segment]));
            let action = match id {
                0 => Action::Read(buffer),
                _ => Action::Write { buffer, durable: false },
            };
            ring.push(RingOp { id, file: 0, action, offset: 0, skip: 0, limit: 512 });
        }
        ring.submit().unwrap();
        let mut done = Vec::new();
        while ring.outstanding() > 0 {
            ring.reap(&mut done);
            std::thread::yield_now();
        }
        let ends: Vec<_> = done.iter().map(|ended| (ended.op.id, ended.panicked)).collect();
        assert_eq!(ends, [(0, true), (1, false)]);
        assert_eq!((done[0].result, done[1].result), (Err(Errno::IO), Ok(512)));
        drop(done);
        assert_eq!(slab.leased_sectors(), 0);
    }
}
