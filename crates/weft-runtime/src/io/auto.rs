//! Ring of `--backend auto`: a choice between io_uring, threads and the submitting thread for each
//! operation.
//!
//! io_uring begins an operation within the system call that submits it. An operation that would
//! block, on a file that cannot complete it asynchronously, goes to a kernel worker, and waking
//! that worker costs more than copying a block. tmpfs cannot tell beforehand whether an operation
//! would block, and neither can ext4 for writes to its page cache, so *every* such operation goes
//! to a worker. Hence:
//!
//! | file | reads | writes | flushes and discards |
//! |---|---|---|---|
//! | with `O_DIRECT`, or of FUSE or the network | io_uring | io_uring | io_uring |
//! | of tmpfs | at once | at once | io_uring |
//! | in the page cache, written without waiting | io_uring | io_uring | io_uring |
//! | in the page cache, otherwise | io_uring | the first io_uring, others threads | io_uring |
//!
//! *At once* is a copy from memory to memory in the thread that submits. Copies larger than
//! `AT_ONCE_BYTES` go to threads, so that two can run at the same time. Only operations that need
//! no device are done at once: a flush of a disk, a write that waits for a journal or a read of a
//! page that is not cached would hold up all clients. (Memory that was swapped out does so too,
//! like any memory of this process.)
//!
//! The first write to a file finds out, with `RWF_NOWAIT`, whether its file system writes to the
//! page cache without waiting. Where the file system cannot, the kernel's worker carries out the
//! writes of a file one after the other. That worker wakes faster than a thread of this process, so
//! it gets a write that is alone; threads carry out the writes that arrive while the worker is
//! busy.
//!
//! Threads carry out the operations of io_uring where io_uring is refused.
//!
//! Measured   the loop of `weft-bench member`, blocks of 4 KiB, nine rounds in turns on two busy
//!            CPUs. On tmpfs, against io_uring alone and threads alone: reads 7.7 and 38 times as
//!            fast at depth 1, 2.3 and 1.6 at 32; writes 5.6 and 23, 1.7 and 1.35. Writes to the
//!            page cache of ext4: at depth 1 io_uring 15,000 a second, threads 6,000; at 32 27,000
//!            and 78,000. fio's psync copies 64 KiB to tmpfs in 6 µs.
//! Source   pwritev2(2) `RWF_NOWAIT`; io_uring_enter(2) `IOSQE_ASYNC`

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::{Errno, ReadWriteFlags};

use super::ring::{Action, FileKind, Ring, RingDone, RingOp};
use super::threads::{Job, ThreadRing};

/// A ring that chooses, for each file, where its operations are carried out.
pub struct AutoRing {
    /// The underlying ring: io_uring, or threads if io_uring is refused.
    below: Box<dyn Ring>,
    /// Number of threads that are started beside `below` when the first file on tmpfs or in the
    /// page cache is added; 0 for no threads.
    threads_max: usize,
    threads: Option<ThreadRing>,
    files: Vec<Option<OfFile>>,
    at_once: VecDeque<Job>,
    done: Vec<RingDone>,
    /// Descriptor (epoll) that is readable when `below` or the threads have completions.
    both: OwnedFd,
}

struct OfFile {
    file: Arc<OwnedFd>,
    way: IoPath,
    /// Number of writes to the file in flight in `below`.
    writing: usize,
}

/// Place where the reads and writes of a file are carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IoPath {
    /// The file is memory. Short reads and writes are copied in the thread that submits; threads
    /// carry out the others.
    AtOnce,
    /// Reads and writes are carried out by `below`.
    Below,
    /// Reads and one write at a time are carried out by `below`; threads carry out the other
    /// writes.
    Threads,
    /// Not known yet: the first write to the file decides.
    Untried,
}

impl AutoRing {
    /// Creates the ring over `below`. Up to `threads_max` threads are started beside it when the
    /// first file needs them; 0 for none, as where `below` is a pool of threads itself.
    ///
    /// # Errors
    /// Fails when no descriptor is left.
    pub fn new(below: Box<dyn Ring>, threads_max: usize) -> std::io::Result<Self> {
        let both = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&both, below.wait_fd(), EventData::new_u64(0), EventFlags::IN)?;
        let (threads, files) = (None, Vec::new());
        let (at_once, done) = (VecDeque::new(), Vec::new());
        Ok(Self { below, threads_max, threads, files, at_once, done, both })
    }

    /// Lets the threads carry out operations on a file. The threads are started for the first such
    /// file.
    fn give_to_threads(&mut self, index: u16, file: Arc<OwnedFd>) -> std::io::Result<()> {
        let threads = match &mut self.threads {
            Some(threads) => threads,
            None => {
                let fresh = ThreadRing::new(self.threads_max, self.below.capacity())?;
                epoll::add(&self.both, fresh.wait_fd(), EventData::new_u64(1), EventFlags::IN)?;
                self.threads.insert(fresh)
            }
        };
        threads.set_file(index, Some(file))
    }

    /// Tries a write with `RWF_NOWAIT`, which writes as much as the page cache takes without
    /// waiting. If the file system does not support this, the file's path becomes
    /// [`IoPath::Threads`], otherwise [`IoPath::Below`]. A write that has moved no byte is then
    /// pushed again.
    fn try_write(&mut self, op: RingOp) {
        let file = self.files[usize::from(op.file)].as_mut().expect("the caller put the file in");
        let Action::Write { buffer, .. } = &op.action else { unreachable!("a write is tried") };
        let slices = buffer.slices(op.skip, op.limit);
        let flags = ReadWriteFlags::NOWAIT;
        let result = rustix::io::pwritev2(&file.file, &slices, op.offset, flags);
        drop(slices);
        file.way = match result {
            Ok(_) | Err(Errno::AGAIN) => IoPath::Below,
            Err(_) => IoPath::Threads,
        };
        match result {
            Ok(moved) if moved > 0 => {
                self.done.push(RingDone { op, result: Ok(moved), panicked: false });
            }
            // An error shows again when the operation is repeated without `RWF_NOWAIT`.
            Ok(_) | Err(_) => self.push(op),
        }
    }

    /// Number of files with one of these paths.
    fn count(&self, ways: &[IoPath]) -> usize {
        self.files.iter().flatten().filter(|file| ways.contains(&file.way)).count()
    }
}

impl Ring for AutoRing {
    fn set_file(&mut self, index: u16, file: Option<Arc<OwnedFd>>) -> std::io::Result<()> {
        let at = usize::from(index);
        if self.files.len() <= at {
            self.files.resize_with(at + 1, || None);
        }
        if let Some(threads) = &mut self.threads {
            threads.set_file(index, None)?;
        }
        self.below.set_file(index, file.clone())?;
        self.files[at] = file.map(|file| OfFile { file, way: IoPath::Below, writing: 0 });
        Ok(())
    }

    fn set_kind(&mut self, index: u16, kind: FileKind) {
        self.below.set_kind(index, kind);
        let file = self.files[usize::from(index)].as_ref().expect("the caller put the file in");
        let way = match kind {
            FileKind::Device | FileKind::Server => return,
            FileKind::Memory => IoPath::AtOnce,
            FileKind::PageCache => IoPath::Untried,
        };
        if self.threads_max == 0 {
            if way != IoPath::AtOnce {
                return;
            }
        } else if let Err(error) = self.give_to_threads(index, Arc::clone(&file.file)) {
            tracing::warn!(%error, "no threads; io_uring does all of it");
            return;
        }
        if let Some(file) = &mut self.files[usize::from(index)] {
            file.way = way;
        }
    }

    fn capacity(&self) -> usize {
        self.below.capacity()
    }

    fn push(&mut self, op: RingOp) {
        let file = self.files[usize::from(op.file)].as_mut().expect("the caller put the file in");
        let is_small = op.limit <= AT_ONCE_BYTES;
        let by_threads = match (file.way, &op.action) {
            (_, Action::Discard { .. } | Action::Flush) | (IoPath::Below, _) => false,
            (IoPath::AtOnce, Action::Read(_) | Action::Write { .. }) => {
                if is_small {
                    self.at_once.push_back(Job { op, file: Arc::clone(&file.file) });
                    return;
                }
                true
            }
            (IoPath::Threads | IoPath::Untried, Action::Read(_)) => false,
            (IoPath::Untried, Action::Write { durable: false, .. }) if is_small => {
                self.try_write(op);
                return;
            }
            (IoPath::Threads | IoPath::Untried, Action::Write { .. }) => file.writing > 0,
        };
        match &mut self.threads {
            Some(threads) if by_threads => threads.push(op),
            _ => {
                file.writing += usize::from(matches!(op.action, Action::Write { .. }));
                self.below.push(op);
            }
        }
    }

    fn submit(&mut self) -> std::io::Result<()> {
        // Operations of `below` and of the threads are started before this thread copies.
        self.below.submit()?;
        if let Some(threads) = &mut self.threads {
            threads.submit()?;
        }
        let mut copied = 0;
        while copied < TURN_BYTES
            && let Some(job) = self.at_once.pop_front()
        {
            copied += job.op.limit;
            self.done.push(job.carry_out());
        }
        Ok(())
    }

    fn reap(&mut self, done: &mut Vec<RingDone>) {
        done.append(&mut self.done);
        let first = done.len();
        self.below.reap(done);
        for RingDone { op, .. } in &done[first..] {
            if let Some(Some(file)) = self.files.get_mut(usize::from(op.file))
                && matches!(op.action, Action::Write { .. })
            {
                // A late completion may belong to a former file of this index.
                file.writing = file.writing.saturating_sub(1);
            }
        }
        if let Some(threads) = &mut self.threads {
            threads.reap(done);
        }
    }

    fn cancel(&mut self, id: u32) {
        if let Some(place) = self.at_once.iter().position(|job| job.op.id == id)
            && let Some(job) = self.at_once.remove(place)
        {
            let result = Err(Errno::CANCELED);
            self.done.push(RingDone { op: job.op, result, panicked: false });
            return;
        }
        self.below.cancel(id);
        if let Some(threads) = &mut self.threads {
            threads.cancel(id);
        }
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        self.both.as_fd()
    }

    fn outstanding(&self) -> usize {
        let threads = self.threads.as_ref().map_or(0, Ring::outstanding);
        self.below.outstanding() + threads + self.at_once.len() + self.done.len()
    }

    fn busy(&self) -> bool {
        let threads = self.threads.as_ref().is_some_and(Ring::busy);
        self.below.busy() || threads || !self.at_once.is_empty() || !self.done.is_empty()
    }

    fn describe(&self) -> String {
        let mut text = self.below.describe();
        let at_once = self.count(&[IoPath::AtOnce]);
        if at_once > 0 {
            text += &format!("; memory of {at_once} members at once");
        }
        let cached = self.count(&[IoPath::Threads, IoPath::Untried]);
        if cached > 0 {
            text += &format!("; writes to the page cache of {cached} members by threads");
        }
        text
    }
}

/// Longest read or write, in bytes, that the submitting thread copies itself.
const AT_ONCE_BYTES: usize = 64 << 10;
/// Number of bytes copied by one `submit`, after which it returns so that the caller can do other
/// work; the next `submit` goes on.
const TURN_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::{AlignedBytes, Buffer};

    /// A ring over a pool of threads, with a second pool of the same size beside it. The counts of
    /// outstanding operations tell which of the two has an operation.
    fn ring(kind: FileKind) -> AutoRing {
        let file = rustix::fs::memfd_create("member", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 4 << 20).unwrap();
        let below = Box::new(ThreadRing::new(1, 64).unwrap());
        let mut ring = AutoRing::new(below, 1).unwrap();
        ring.set_file(0, Some(Arc::new(file))).unwrap();
        ring.set_kind(0, kind);
        ring
    }

    fn write(id: u32, bytes: usize, durable: bool) -> RingOp {
        let buffer = Buffer::Owned(AlignedBytes::copy_of(&vec![7; bytes]));
        let action = Action::Write { buffer, durable };
        RingOp { id, file: 0, action, offset: 0, skip: 0, limit: bytes }
    }

    fn read(id: u32, bytes: usize) -> RingOp {
        let action = Action::Read(Buffer::Owned(AlignedBytes::zeroed(bytes)));
        RingOp { id, file: 0, action, offset: 0, skip: 0, limit: bytes }
    }

    fn flush(id: u32) -> RingOp {
        RingOp { id, file: 0, action: Action::Flush, offset: 0, skip: 0, limit: 0 }
    }

    /// Numbers of operations outstanding in `below`, in the threads beside it, and in neither.
    fn places(ring: &AutoRing) -> [usize; 3] {
        let beside = ring.threads.as_ref().map_or(0, Ring::outstanding);
        let below = ring.below.outstanding();
        [below, beside, ring.outstanding() - below - beside]
    }

    fn finish(ring: &mut AutoRing) -> Vec<RingDone> {
        let mut done = Vec::new();
        while ring.outstanding() > 0 {
            ring.submit().unwrap();
            ring.reap(&mut done);
            std::thread::yield_now();
        }
        done.sort_by_key(|ended| ended.op.id);
        done
    }

    #[test]
    fn each_operation_goes_the_way_of_its_file_and_size() {
        let ops = |id| {
            [write(id, 4096, false), write(id + 1, 4096, true), read(id + 2, 4096), flush(id + 3)]
                .into_iter()
                .chain([write(id + 4, AT_ONCE_BYTES + 512, false), read(id + 5, 1 << 20)])
        };
        for (kind, expected) in [
            (FileKind::Device, [6, 0, 0]),
            (FileKind::Server, [6, 0, 0]),
            // `below` has the flush, the threads have the long operations, neither has the short
            // ones.
            (FileKind::Memory, [1, 2, 3]),
            // `below` has the reads, the flush and the first write, the threads have the other
            // writes. The first write was tried with `RWF_NOWAIT` in vain: tmpfs does not write
            // without waiting.
            (FileKind::PageCache, [4, 2, 0]),
        ] {
            let mut ring = ring(kind);
            ops(0).for_each(|op| ring.push(op));
            assert_eq!(places(&ring), expected, "{kind:?}");
            let done = finish(&mut ring);
            let moved: Vec<_> = done.iter().map(|ended| ended.result.unwrap()).collect();
            assert_eq!(moved, [4096, 4096, 4096, 0, AT_ONCE_BYTES + 512, 1 << 20], "{kind:?}");
        }
    }

    #[test]
    fn the_first_write_shows_whether_a_file_system_writes_without_waiting() {
        let mut ring = ring(FileKind::PageCache);
        assert_eq!(ring.count(&[IoPath::Untried]), 1);
        // Neither write is tried with `RWF_NOWAIT`: a durable one has to wait, and the other is
        // long.
        ring.push(write(0, 4096, true));
        ring.push(write(1, 1 << 20, false));
        assert_eq!(ring.count(&[IoPath::Untried]), 1);
        ring.push(write(2, 4096, false));
        assert_eq!(ring.count(&[IoPath::Threads]), 1);
        assert!(ring.describe().ends_with("; writes to the page cache of 1 members by threads"));
        assert_eq!(places(&ring), [1, 2, 0]);
        assert_eq!(finish(&mut ring).len(), 3);
        // Two writes again: the first goes to `below`, the second to a thread.
        ring.push(write(3, 4096, false));
        ring.push(write(4, 4096, false));
        assert_eq!(places(&ring), [1, 1, 0]);
        assert_eq!(finish(&mut ring).len(), 2);
        // The first write to a later file under the same index is tried anew.
        let file = rustix::fs::memfd_create("next", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        ring.set_file(0, Some(Arc::new(file))).unwrap();
        ring.set_kind(0, FileKind::PageCache);
        assert_eq!(ring.count(&[IoPath::Untried]), 1);
    }

    #[test]
    fn what_is_done_at_once_is_done_in_turns_and_can_be_given_up_before() {
        let mut ring = ring(FileKind::Memory);
        let count = u32::try_from(TURN_BYTES / AT_ONCE_BYTES).unwrap() + 3;
        (0..count).for_each(|id| ring.push(write(id, AT_ONCE_BYTES, false)));
        ring.submit().unwrap();
        assert_eq!(ring.at_once.len(), 3);
        assert!(ring.busy(), "copies that remain raise no event");
        ring.cancel(count - 1);
        ring.cancel(0);
        let done = finish(&mut ring);
        let results: Vec<_> = done.iter().map(|ended| ended.result).collect();
        assert_eq!(results[..results.len() - 1], vec![Ok(AT_ONCE_BYTES); results.len() - 1]);
        assert_eq!(results.last(), Some(&Err(Errno::CANCELED)));
        assert!(!ring.busy());
    }

    #[test]
    fn its_descriptor_is_readable_when_a_thread_beside_it_has_ended_something() {
        use rustix::event::{PollFd, PollFlags, poll};
        let mut ring = ring(FileKind::Memory);
        ring.push(write(0, 1 << 20, false));
        assert_eq!(places(&ring), [0, 1, 0]);
        ring.submit().unwrap();
        let mut wait = [PollFd::from_borrowed_fd(ring.wait_fd(), PollFlags::IN)];
        poll(&mut wait, None).unwrap();
        let mut done = Vec::new();
        ring.reap(&mut done);
        assert_eq!(done[0].result, Ok(1 << 20));
    }
}
