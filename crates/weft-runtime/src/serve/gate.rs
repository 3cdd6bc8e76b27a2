//! Fair lock: a mutex that a thread cannot take again and again while others wait.
//!
//! A plain mutex goes to the thread that asks first after a release. That is mostly the thread that
//! released it, because it is running while the waiting threads have yet to be woken. Here waiting
//! threads stand in a queue, the *line*. Once the first thread of the queue has waited for
//! [`PATIENCE`], a thread that arrives goes to the end of the queue. Until then a running thread
//! may overtake: a context switch each time would cost more than most of the work done under the
//! lock.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, LockResult, Mutex, MutexGuard, PoisonError, TryLockError};

use weft_units::Span;

use crate::clock::Clock;

/// A lock around a value, with the queue of the threads that wait for it.
#[derive(Debug)]
pub(crate) struct Gate<T> {
    value: Mutex<T>,
    line: Mutex<Line>,
    /// Condition that is signalled when the first thread of the queue has changed.
    moved: Condvar,
    /// Time at which the first thread of the queue began to wait, in nanoseconds; 0 while the queue
    /// is empty.
    since: AtomicU64,
    clock: Clock,
}

/// Queue of waiting threads, by number, with the time at which each began to wait.
#[derive(Debug, Default)]
struct Line {
    places: VecDeque<(u64, u64)>,
    next: u64,
}

impl<T> Gate<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            value: Mutex::new(value),
            line: Mutex::default(),
            moved: Condvar::new(),
            since: AtomicU64::new(0),
            clock: Clock::start(),
        }
    }

    /// Waits for the value. Fails if a thread has panicked while it held the value, like
    /// [`Mutex::lock`].
    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        if !self.is_owed() {
            match self.value.try_lock() {
                Ok(guard) => return Ok(guard),
                Err(TryLockError::Poisoned(error)) => return Err(error),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        self.stand_in_line()
    }

    /// Clears the poison of the inner lock, like [`Mutex::clear_poison`].
    pub(crate) fn clear_poison(&self) {
        self.value.clear_poison();
    }

    /// Whether the first thread of the queue has waited so long that no other may overtake it.
    fn is_owed(&self) -> bool {
        let since = self.since.load(Ordering::Relaxed);
        since > 0 && self.now().saturating_sub(since) >= PATIENCE.0
    }

    #[cold]
    fn stand_in_line(&self) -> LockResult<MutexGuard<'_, T>> {
        let mut line = lock(&self.line);
        let place = (line.next, self.now());
        line.next += 1;
        line.places.push_back(place);
        self.publish(&line);
        while line.places.front() != Some(&place) {
            line = self.moved.wait(line).unwrap_or_else(PoisonError::into_inner);
        }
        drop(line);
        // Only the first in line waits here.
        let guard = self.value.lock();
        let mut line = lock(&self.line);
        line.places.pop_front();
        self.publish(&line);
        if !line.places.is_empty() {
            self.moved.notify_all();
        }
        drop(line);
        guard
    }

    fn publish(&self, line: &Line) {
        let since = line.places.front().map_or(0, |(_, since)| *since);
        self.since.store(since, Ordering::Relaxed);
    }

    /// Nanoseconds since the lock was created, at least 1.
    fn now(&self) -> u64 {
        self.clock.now().0.max(1)
    }
}

/// Locks the queue of waiting threads. The queue is consistent after every statement, so a panic
/// leaves it usable.
fn lock(line: &Mutex<Line>) -> MutexGuard<'_, Line> {
    line.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Longest time for which the first thread of the queue may be overtaken: some 100 times the cost
/// of waking a thread.
const PATIENCE: Span = Span::millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    impl<T> Gate<T> {
        fn wait_for_line(&self, len: usize) {
            while lock(&self.line).places.len() < len {
                std::thread::yield_now();
            }
        }
    }

    /// A thread that releases the lock and asks again at once does not overtake a thread that has
    /// waited.
    #[test]
    fn a_thread_that_has_waited_is_the_next() {
        let gate = Gate::new(0);
        for round in 0..200 {
            let held = gate.lock().unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| *gate.lock().unwrap() += 1);
                gate.wait_for_line(1);
                std::thread::sleep(std::time::Duration::from_nanos(PATIENCE.0));
                drop(held);
                assert_eq!(*gate.lock().unwrap(), round + 1);
            });
        }
    }

    #[test]
    fn threads_that_wait_have_the_lock_in_the_order_in_which_they_came() {
        let gate = Gate::new(Vec::new());
        let held = gate.lock().unwrap();
        std::thread::scope(|scope| {
            for number in 0..8 {
                let gate = &gate;
                scope.spawn(move || gate.lock().unwrap().push(number));
                gate.wait_for_line(number + 1);
            }
            drop(held);
        });
        assert_eq!(*gate.lock().unwrap(), (0..8).collect::<Vec<_>>());
        assert_eq!(gate.since.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_panic_is_told_to_the_next() {
        let gate = Gate::new(1);
        let panicked = std::thread::scope(|scope| {
            let panics = || {
                let _held = gate.lock();
                panic!("planted")
            };
            scope.spawn(panics).join().is_err()
        });
        assert!(panicked);
        let error = gate.lock().unwrap_err();
        assert_eq!(**error.get_ref(), 1);
        drop(error);
        gate.clear_poison();
        assert!(gate.lock().is_ok());
    }
}
