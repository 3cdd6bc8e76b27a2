//! Ring: reads, writes and flushes of files, started together and finished one by one.
//!
//! A [`Ring`] takes operations, starts all of them with one `submit`, and hands each back with the
//! kernel's result: a count of bytes, possibly short, or an `errno`. `member_io/` retries and
//! interprets errors. There are two rings: io_uring and, where that is forbidden, a pool of
//! threads. `faulty.rs` wraps either for tests.
//!
//! An operation owns its memory (see `buffers.rs`) from `push` until it is handed back.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;

use crate::buffers::Buffer;

/// An operation on a file.
#[derive(Debug)]
pub struct RingOp {
    /// Number that the caller gives the operation, unique among those outstanding.
    pub id: u32,
    /// Index of the file, as given to [`Ring::set_file`].
    pub file: u16,
    /// Action on the file, with the memory that it reads or fills.
    pub action: Action,
    /// Offset in the file of the first byte to move, which is the one after `skip` in the buffer.
    pub offset: u64,
    /// Number of bytes at the start of the buffer that are skipped, because they were moved before.
    pub skip: usize,
    /// Largest number of bytes to move.
    pub limit: usize,
}

/// Action of an operation on its file, with its memory.
#[derive(Debug)]
pub enum Action {
    /// Deallocate a range with `FALLOC_FL_PUNCH_HOLE`, so that it reads as zeroes.
    Discard {
        /// Length in bytes.
        len: u64,
    },
    /// Flush the file with `fdatasync`.
    Flush,
    /// Read from the file into the buffer.
    Read(Buffer),
    /// Write the buffer to the file.
    Write {
        /// Memory with the data.
        buffer: Buffer,
        /// Whether to write with `RWF_DSYNC`, so that the data is durable on completion.
        durable: bool,
    },
}

/// Kind of a file, by the resource that its reads and writes may block on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A device or file that is read and written with `O_DIRECT`.
    Device,
    /// Memory only: a file on tmpfs.
    Memory,
    /// The page cache: pages that are cached or not, write-back, the journal of a file system.
    PageCache,
    /// Another process or host (FUSE, network), for which the kernel may block as soon as an
    /// operation begins. The thread that submits must not begin one itself.
    Server,
}

/// An operation that has ended, with its result.
#[derive(Debug)]
pub struct RingDone {
    /// The operation, with its memory.
    pub op: RingOp,
    /// Number of bytes moved (0 for a flush or a discard), or the error.
    pub result: Result<usize, Errno>,
    /// Whether the code that carried the operation out panicked.
    pub panicked: bool,
}

/// Number of operations, out of `all`, that one of `files` files may have in the ring: three
/// eighths, so that two files that hang leave room for the others; all if there is only one file.
pub(crate) fn share_of(all: usize, files: usize) -> usize {
    if files < 2 { all } else { (all * 3 / 8).max(1) }
}

/// A way to do I/O on many files at once.
pub trait Ring: Send {
    /// Registers a file under an index, or removes the file with that index (`None`). Outstanding
    /// operations keep their file.
    ///
    /// # Errors
    /// Fails when the kernel has no room for the file.
    fn set_file(&mut self, index: u16, file: Option<Arc<OwnedFd>>) -> std::io::Result<()>;

    /// Sets the kind of the registered file at `index`.
    fn set_kind(&mut self, index: u16, kind: FileKind) {
        let _ = (index, kind);
    }

    /// Largest number of operations that may be outstanding.
    fn capacity(&self) -> usize;

    /// Takes an operation. The caller keeps `outstanding < capacity`.
    fn push(&mut self, op: RingOp);

    /// Starts all operations that were pushed.
    ///
    /// # Errors
    /// Fails when no operation can be started ever again. A temporary shortage is not an error:
    /// `busy` then says that `submit` has to be called again.
    fn submit(&mut self) -> std::io::Result<()>;

    /// Moves the operations that have ended into `done`, with their results.
    fn reap(&mut self, done: &mut Vec<RingDone>);

    /// Cancels an operation, which is then handed back with `ECANCELED` or with its own result.
    fn cancel(&mut self, id: u32);

    /// Descriptor that is readable when an operation has ended.
    fn wait_fd(&self) -> BorrowedFd<'_>;

    /// Number of operations pushed and not handed back.
    fn outstanding(&self) -> usize;

    /// Whether `submit` or `reap` can make progress now, so that the caller must not wait.
    fn busy(&self) -> bool;

    /// Description for people: `io_uring` or `threads`, with details.
    fn describe(&self) -> String;
}

/// Ring of a driver that has only members in memory, and therefore needs no ring.
#[derive(Debug)]
pub struct NoRing {
    /// Descriptor that is never readable.
    event: OwnedFd,
}

impl NoRing {
    /// Creates a ring that never has anything to do.
    ///
    /// # Errors
    /// Fails when no descriptor is left.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self { event: rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)? })
    }
}

impl Ring for NoRing {
    fn set_file(&mut self, _index: u16, _file: Option<Arc<OwnedFd>>) -> std::io::Result<()> {
        Ok(())
    }

    fn capacity(&self) -> usize {
        0
    }

    fn push(&mut self, op: RingOp) {
        unreachable!("{op:?}: the caller keeps outstanding < capacity");
    }

    fn submit(&mut self) -> std::io::Result<()> {
        Ok(())
    }

    fn reap(&mut self, _done: &mut Vec<RingDone>) {}

    fn cancel(&mut self, _id: u32) {}

    fn wait_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn outstanding(&self) -> usize {
        0
    }

    fn busy(&self) -> bool {
        false
    }

    fn describe(&self) -> String {
        "memory".into()
    }
}

impl RingOp {
    /// Buffer of the operation; `None` for a flush or a discard, which moves no bytes.
    #[must_use]
    pub fn buffer(&self) -> Option<&Buffer> {
        match &self.action {
            Action::Discard { .. } | Action::Flush => None,
            Action::Read(buffer) | Action::Write { buffer, .. } => Some(buffer),
        }
    }
}

impl<R: Ring + ?Sized> Ring for Box<R> {
    fn set_file(&mut self, index: u16, file: Option<Arc<OwnedFd>>) -> std::io::Result<()> {
        (**self).set_file(index, file)
    }

    fn set_kind(&mut self, index: u16, kind: FileKind) {
        (**self).set_kind(index, kind);
    }

    fn capacity(&self) -> usize {
        (**self).capacity()
    }

    fn push(&mut self, op: RingOp) {
        (**self).push(op);
    }

    fn submit(&mut self) -> std::io::Result<()> {
        (**self).submit()
    }

    fn reap(&mut self, done: &mut Vec<RingDone>) {
        (**self).reap(done);
    }

    fn cancel(&mut self, id: u32) {
        (**self).cancel(id);
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        (**self).wait_fd()
    }

    fn outstanding(&self) -> usize {
        (**self).outstanding()
    }

    fn busy(&self) -> bool {
        (**self).busy()
    }

    fn describe(&self) -> String {
        (**self).describe()
    }
}
