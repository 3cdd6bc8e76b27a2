//! Fault injection for rings: short transfers, errors and late completions from a script (F21).
//!
//! [`FaultyRing`] wraps a real ring. For each operation a script decides whether it moves fewer
//! bytes than asked for, fails with an `errno` without being carried out, or completes late. Tests
//! of this and of other crates use it.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;

use super::ring::{FileKind, Ring, RingDone, RingOp};

/// Fault of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Injection {
    /// The operation is not carried out and ends with this error.
    Error(Errno),
    /// The operation is carried out, but its completion is held back during this many `reap` calls.
    Late(u32),
    /// The operation moves at most this many bytes.
    Short(usize),
}

/// Function that decides the fault of an operation, from the operation and its number (0 for the
/// first that was pushed); `None` for no fault.
pub type Script = Box<dyn FnMut(u64, &RingOp) -> Option<Injection> + Send>;

/// A ring that injects the faults that a script decides on.
pub struct FaultyRing<R> {
    pub(crate) inner: R,
    script: Script,
    count: u64,
    /// Completions held back, each with the number of `reap` calls left.
    held: Vec<(u32, RingDone)>,
    /// Operations in the inner ring that are to complete late: id, and number of `reap` calls
    /// during which the completion is held back.
    late: Vec<(u32, u32)>,
    most_outstanding: usize,
}

impl<R: Ring> FaultyRing<R> {
    /// Wraps a ring. `script` decides the fault of each operation.
    pub fn new(inner: R, script: Script) -> Self {
        let (held, late) = (Vec::new(), Vec::new());
        Self { inner, script, count: 0, held, late, most_outstanding: 0 }
    }

    /// Number of operations pushed so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Largest number of operations that were outstanding at one time.
    pub fn most_outstanding(&self) -> usize {
        self.most_outstanding
    }
}

impl<R: Ring> Ring for FaultyRing<R> {
    fn set_file(&mut self, index: u16, file: Option<Arc<OwnedFd>>) -> std::io::Result<()> {
        self.inner.set_file(index, file)
    }

    fn set_kind(&mut self, index: u16, kind: FileKind) {
        self.inner.set_kind(index, kind);
    }

    fn capacity(&self) -> usize {
        self.inner.capacity()
    }

    fn push(&mut self, mut op: RingOp) {
        let injection = (self.script)(self.count, &op);
        self.count += 1;
        match injection {
            Some(Injection::Error(errno)) => {
                self.held.push((0, RingDone { op, result: Err(errno), panicked: false }));
            }
            Some(Injection::Late(reaps)) => {
                self.late.push((op.id, reaps));
                self.inner.push(op);
            }
            Some(Injection::Short(0)) => {
                self.held.push((0, RingDone { op, result: Ok(0), panicked: false }));
            }
            Some(Injection::Short(bytes)) => {
                op.limit = op.limit.min(bytes);
                self.inner.push(op);
            }
            None => self.inner.push(op),
        }
        self.most_outstanding = self.most_outstanding.max(self.outstanding());
    }

    fn submit(&mut self) -> std::io::Result<()> {
        self.inner.submit()
    }

    fn reap(&mut self, done: &mut Vec<RingDone>) {
        for (delay, ended) in std::mem::take(&mut self.held) {
            match delay.checked_sub(1) {
                None => done.push(ended),
                Some(rest) => self.held.push((rest, ended)),
            }
        }
        let mut fresh = Vec::new();
        self.inner.reap(&mut fresh);
        for ended in fresh {
            match self.late.iter().position(|(id, _)| *id == ended.op.id) {
                Some(position) => {
                    let (_, delay) = self.late.swap_remove(position);
                    self.held.push((delay, ended));
                }
                None => done.push(ended),
            }
        }
    }

    fn cancel(&mut self, id: u32) {
        self.inner.cancel(id);
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        self.inner.wait_fd()
    }

    fn outstanding(&self) -> usize {
        self.inner.outstanding() + self.held.len()
    }

    fn busy(&self) -> bool {
        self.inner.busy() || !self.held.is_empty()
    }

    fn describe(&self) -> String {
        format!("faulty {}", self.inner.describe())
    }
}
