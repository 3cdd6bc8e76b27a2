//! Ring for files that may hang: each read ends within the time limit of its file.
//!
//! [`TimedRing`] wraps a ring. Each file with a time limit has a thread that reads it, one read
//! after the other, into memory of the thread. A read that does not end therefore holds no memory
//! of the caller, and its thread is never joined. All other operations go to the wrapped ring.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, mpsc};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

use super::completions::Completions;
use super::ring::{Action, FileKind, Ring, RingDone, RingOp};
use crate::timed::TimedFile;

/// A ring for files with and without time limits.
#[derive(Debug)]
pub(crate) struct TimedRing<R> {
    inner: R,
    /// Sender of orders to the thread of each file with a time limit. The thread ends when its
    /// sender is dropped.
    orders: Vec<Option<mpsc::Sender<Order>>>,
    done: Arc<Completions<Read>>,
    /// epoll descriptor that is readable when the inner ring or a thread has completions.
    both: OwnedFd,
    /// Reads in progress in the threads, each with its number.
    given: Vec<(u64, RingOp)>,
    next_number: u64,
}

/// Order to a thread: a read of its file.
#[derive(Debug)]
struct Order {
    number: u64,
    offset: u64,
    len: usize,
}

/// Result of a read by a thread: the number of the read, and its bytes or the error.
type Read = (u64, Result<Vec<u8>, Errno>);

impl<R: Ring> TimedRing<R> {
    /// Wraps a ring that has no files yet.
    ///
    /// # Errors
    /// Fails when no descriptor is left.
    pub(crate) fn new(inner: R) -> std::io::Result<Self> {
        let done = Arc::new(Completions::new()?);
        let both = epoll::create(CreateFlags::CLOEXEC)?;
        for fd in [inner.wait_fd(), done.as_fd()] {
            epoll::add(&both, fd, EventData::new_u64(0), EventFlags::IN)?;
        }
        let (orders, given) = (Vec::new(), Vec::new());
        Ok(Self { inner, orders, done, both, given, next_number: 0 })
    }

    /// Sends reads of the file at `index` to `timed`, which has a time limit, from now on.
    ///
    /// # Errors
    /// Fails when no thread is left.
    pub(crate) fn start(&mut self, index: u16, timed: Arc<TimedFile>) -> std::io::Result<()> {
        let place = usize::from(index);
        if self.orders.len() <= place {
            self.orders.resize_with(place + 1, || None);
        }
        let (orders, received) = mpsc::channel();
        let done = Arc::clone(&self.done);
        let name = format!("weft-timed-{index}");
        std::thread::Builder::new().name(name).spawn(move || work(&timed, &received, &done))?;
        self.orders[place] = Some(orders);
        Ok(())
    }
}

impl<R: Ring> Ring for TimedRing<R> {
    fn set_file(&mut self, index: u16, file: Option<Arc<OwnedFd>>) -> std::io::Result<()> {
        if let Some(orders) = self.orders.get_mut(usize::from(index)) {
            *orders = None;
        }
        self.inner.set_file(index, file)
    }

    fn set_kind(&mut self, index: u16, kind: FileKind) {
        self.inner.set_kind(index, kind);
    }

    fn capacity(&self) -> usize {
        self.inner.capacity()
    }

    fn push(&mut self, op: RingOp) {
        let orders = self.orders.get(usize::from(op.file)).and_then(Option::as_ref);
        let (Some(orders), Action::Read(buffer)) = (orders, &op.action) else {
            self.inner.push(op);
            return;
        };
        let (number, len) = (self.next_number, op.limit.min(buffer.len() - op.skip));
        self.next_number += 1;
        let order = Order { number, offset: op.offset, len };
        orders.send(order).expect("a thread runs until its sender is dropped");
        self.given.push((number, op));
    }

    fn submit(&mut self) -> std::io::Result<()> {
        self.inner.submit()
    }

    fn reap(&mut self, done: &mut Vec<RingDone>) {
        self.inner.reap(done);
        let mut ended = Vec::new();
        self.done.take(&mut ended);
        for (number, read) in ended {
            // A read that was cancelled has ended before.
            let Some(place) = self.given.iter().position(|(given, _)| *given == number) else {
                continue;
            };
            let (_, mut op) = self.given.swap_remove(place);
            let result = read.map(|bytes| {
                if let Action::Read(buffer) = &mut op.action {
                    buffer.fill(op.skip, &bytes);
                }
                bytes.len()
            });
            done.push(RingDone { op, result, panicked: false });
        }
    }

    fn cancel(&mut self, id: u32) {
        match self.given.iter().find(|(_, op)| op.id == id) {
            Some((number, _)) => self.done.add((*number, Err(Errno::CANCELED))),
            None => self.inner.cancel(id),
        }
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        self.both.as_fd()
    }

    fn outstanding(&self) -> usize {
        self.inner.outstanding() + self.given.len()
    }

    fn busy(&self) -> bool {
        self.inner.busy()
    }

    fn describe(&self) -> String {
        format!("{}, reads with a time limit by other processes", self.inner.describe())
    }
}

/// Body of a file's thread: carries out reads, one after the other, until the sender is dropped.
fn work(timed: &TimedFile, orders: &mpsc::Receiver<Order>, done: &Completions<Read>) {
    while let Ok(Order { number, offset, len }) = orders.recv() {
        let mut bytes = vec![0; len];
        let read = timed.read_at(&mut bytes, offset).map(|count| {
            bytes.truncate(count);
            bytes
        });
        done.add((number, read));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::{AlignedBytes, Buffer};
    use crate::io::threads::ThreadRing;
    use crate::timed::tests::{answering, silent};

    /// A ring with a file without a limit, and a file with one.
    fn ring(timed: TimedFile) -> TimedRing<ThreadRing> {
        let mut ring = TimedRing::new(ThreadRing::new(1, 8).unwrap()).unwrap();
        for index in 0..2 {
            let file = rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
            rustix::io::write(&file, b"without a limit").unwrap();
            ring.set_file(index, Some(Arc::new(file))).unwrap();
        }
        ring.start(1, Arc::new(timed)).unwrap();
        ring
    }

    fn read(id: u32, file: u16, offset: u64, skip: usize) -> RingOp {
        let action = Action::Read(Buffer::Owned(AlignedBytes::zeroed(skip + 4)));
        RingOp { id, file, action, offset, skip, limit: 4 }
    }

    /// Waits for all operations. Returns their results by id, each with the content of its buffer.
    fn finish(ring: &mut TimedRing<ThreadRing>) -> Vec<(u32, Result<usize, Errno>, Vec<u8>)> {
        use rustix::event::{PollFd, PollFlags, poll};
        let mut done = Vec::new();
        ring.submit().unwrap();
        while ring.outstanding() > 0 {
            poll(&mut [PollFd::from_borrowed_fd(ring.wait_fd(), PollFlags::IN)], None).unwrap();
            ring.reap(&mut done);
        }
        done.sort_by_key(|ended| ended.op.id);
        let bytes = |action| match action {
            Action::Read(buffer) => buffer.into_owned().unwrap().as_ref().to_vec(),
            Action::Discard { .. } | Action::Flush | Action::Write { .. } => Vec::new(),
        };
        done.into_iter().map(|it| (it.op.id, it.result, bytes(it.op.action))).collect()
    }

    #[test]
    fn reads_go_to_the_file_with_the_limit_and_everything_else_goes_on() {
        let mut ring = ring(answering(b"0123456789"));
        ring.push(read(0, 0, 8, 0));
        ring.push(read(1, 1, 2, 2));
        ring.push(read(2, 1, 8, 0));
        ring.push(RingOp { id: 3, file: 1, action: Action::Flush, offset: 0, skip: 0, limit: 0 });
        assert_eq!((ring.given.len(), ring.inner.outstanding()), (2, 2));
        let done = finish(&mut ring);
        assert_eq!(done[0], (0, Ok(4), b"a li".to_vec()));
        assert_eq!(done[1], (1, Ok(4), b"\0\x002345".to_vec()));
        assert_eq!(done[2], (2, Ok(2), b"89\0\0".to_vec()), "up to the end");
        assert_eq!((done[3].0, done[3].1), (3, Ok(0)));
    }

    #[test]
    fn a_read_that_hangs_times_out_or_is_cancelled() {
        let mut ring = ring(silent());
        ring.push(read(0, 1, 0, 0));
        assert_eq!(finish(&mut ring)[0].1, Err(Errno::TIMEDOUT));
        ring.push(read(1, 1, 0, 0));
        ring.cancel(1);
        // The thread may have answered before.
        let ended = finish(&mut ring)[0].1;
        assert!([Err(Errno::CANCELED), Err(Errno::TIMEDOUT)].contains(&ended), "{ended:?}");
    }
}
