//! Ring: reads, writes and flushes of files, started together and finished one by one.
//!
//! A [`Ring`] is given operations, starts everything it was given with one `submit`, and hands each
//! back with the kernel's result: a count of bytes, possibly short, or an `errno`. Retries and the
//! meaning of errors are `member_io/`. Rings are io_uring and, where that is forbidden, a pool of
//! threads; `faulty.rs` wraps either for tests.
//!
//! An operation owns its memory (see `buffers.rs`) from `push` until it is handed back.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;

use crate::buffers::Buffer;
use crate::overlay::Overlay;

/// Something to be done to a file.
#[derive(Debug)]
pub struct RingOp {
    /// The caller's name for it; unique among those outstanding.
    pub id: u32,
    /// File, as given to [`Ring::set_file`].
    pub file: u16,
    /// Action on the file.
    pub action: Action,
    /// Byte of the file at which the first byte that is moved (after `skip`) goes.
    pub offset: u64,
    /// Bytes of the buffer that were moved before.
    pub skip: usize,
    /// Most bytes to move.
    pub limit: usize,
}

/// Action of an operation.
#[derive(Debug)]
pub enum Action {
    /// `FALLOC_FL_PUNCH_HOLE`.
    Discard {
        /// Bytes.
        len: u64,
    },
    /// `fdatasync`.
    Flush,
    /// Fill the buffer.
    Read(Buffer),
    /// Store the buffer.
    Write {
        /// Memory that is written.
        buffer: Buffer,
        /// With `RWF_DSYNC`.
        durable: bool,
    },
}

/// What reads and writes of a file wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A device, by `O_DIRECT`.
    Device,
    /// Memory alone: a file of tmpfs.
    Memory,
    /// The page cache: pages that are there or not, write-back, the journal of a file system.
    PageCache,
    /// Another process or host (FUSE, network), for which the kernel may wait even to begin:
    /// nobody but a thread of its own may begin an operation.
    Server,
}

/// End of an operation.
#[derive(Debug)]
pub struct RingDone {
    /// The operation, with its memory.
    pub op: RingOp,
    /// Bytes moved, or why none were.
    pub result: Result<usize, Errno>,
    /// Whether the code that carried the operation out panicked.
    pub panicked: bool,
}

/// Places of `all` that one of `files` files may have: three eighths, so that two files that do not
/// answer leave some to the others; all where it is alone.
pub(crate) fn share_of(all: usize, files: usize) -> usize {
    if files < 2 { all } else { (all * 3 / 8).max(1) }
}

/// A way to do I/O on many files at once.
pub trait Ring: Send {
    /// Puts a file in, or takes it out. Operations that are outstanding keep theirs.
    ///
    /// # Errors
    /// The kernel has no room for it.
    fn set_file(&mut self, index: u16, file: Option<Arc<OwnedFd>>) -> std::io::Result<()>;

    /// Lets the file at `index`, put in before, be written to an overlay only.
    ///
    /// # Errors
    /// This ring knows no overlays, or no thread is left.
    fn set_overlay(&mut self, index: u16, overlay: Arc<Overlay>) -> std::io::Result<()> {
        let _ = (index, overlay);
        Err(std::io::ErrorKind::Unsupported.into())
    }

    /// Tells what operations on the file at `index`, put in before, may wait for.
    fn set_kind(&mut self, index: u16, kind: FileKind) {
        let _ = (index, kind);
    }

    /// Number of operations that may be outstanding.
    fn capacity(&self) -> usize;

    /// Takes an operation. The caller keeps `outstanding < capacity`.
    fn push(&mut self, op: RingOp);

    /// Starts everything that was pushed.
    ///
    /// # Errors
    /// Nothing can be started any more, ever. A passing shortage is no error: see `busy`.
    fn submit(&mut self) -> std::io::Result<()>;

    /// Hands back what has ended.
    fn reap(&mut self, done: &mut Vec<RingDone>);

    /// Asks to give up on an operation, which is then handed back with `ECANCELED` or as it ended.
    fn cancel(&mut self, id: u32);

    /// Readable when something has ended.
    fn wait_fd(&self) -> BorrowedFd<'_>;

    /// Pushed and not handed back.
    fn outstanding(&self) -> usize;

    /// Whether `submit` or `reap` has something to do already, so that waiting would be wrong.
    fn busy(&self) -> bool;

    /// For people: `io_uring` or `threads`, with particulars.
    fn describe(&self) -> String;
}

/// For members of memory, which need no ring.
#[derive(Debug)]
pub struct NoRing {
    /// Never readable.
    event: OwnedFd,
}

impl NoRing {
    /// Something to wait for in vain.
    ///
    /// # Errors
    /// No descriptor is left.
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
    /// Buffer of the operation, if it moves bytes.
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

    fn set_overlay(&mut self, index: u16, overlay: Arc<Overlay>) -> std::io::Result<()> {
        (**self).set_overlay(index, overlay)
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
