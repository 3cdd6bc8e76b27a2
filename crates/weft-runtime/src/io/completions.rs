//! Completions that threads hand to the thread of a ring, with a descriptor that becomes readable.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::event::EventfdFlags;

/// List of completions that were added by threads and not yet taken by the thread of the ring.
#[derive(Debug)]
pub(crate) struct Completions<T> {
    done: Mutex<Vec<T>>,
    event: OwnedFd,
}

impl<T> Completions<T> {
    /// Creates an empty list.
    ///
    /// # Errors
    /// Fails when no descriptor is left.
    pub(crate) fn new() -> std::io::Result<Self> {
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { done: Mutex::default(), event })
    }

    /// Adds a completion.
    pub(crate) fn add(&self, completion: T) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let first = done.is_empty();
        done.push(completion);
        if first {
            // Cannot fail: the counter is far from its limit.
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }

    /// Moves all completions into `taken`. Returns their number.
    pub(crate) fn take(&self, taken: &mut Vec<T>) -> usize {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let count = done.len();
        if count > 0 {
            // The event is cleared while the list is locked, so that a later completion raises it
            // again.
            let _ = rustix::io::read(&self.event, &mut [0; 8]);
            taken.append(&mut done);
        }
        count
    }
}

/// Descriptor that is readable while there are completions.
impl<T> AsFd for Completions<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
