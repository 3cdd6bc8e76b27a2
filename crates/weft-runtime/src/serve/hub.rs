//! Hub: the driver that the worker threads share, its lock, and a mailbox for each worker.
//!
//! A *worker* is a thread with its own `epoll` and its own clients. Most of the cost of serving a
//! client is moving bytes through its socket, which needs no engine. While a worker moves bytes, it
//! therefore releases the driver ([`Held::unlocked`]), and the worker that has waited longest goes
//! on (`gate.rs`). A lease (`buffers.rs`), not the lock, protects bytes on their way from or to a
//! socket.
//!
//! The worker that holds the driver lets the engine decide and carries out its outputs for all
//! workers. It puts events for clients of another worker into that worker's mailbox and writes to
//! its eventfd. A worker empties its mailbox before it takes new events from the driver, all under
//! the lock, so each client gets its events in the order in which they happened.
//!
//! If all volumes are memory (bare members of RAM), each worker has a driver of its own: the
//! workers share no state, which would only move between the caches of CPUs.

use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::EventfdFlags;

use super::driver::{Driver, Event};
use super::ending::Exit;
use super::gate::Gate;

/// The driver that all workers share, or one driver for each worker, and a mailbox for each worker.
pub(crate) struct Hub {
    drivers: Box<[Gate<Driver>]>,
    mailboxes: Box<[Mailbox]>,
    /// Time at which the first worker wakes by itself, in nanoseconds of the engine's clock; 0
    /// while it is awake, and `u64::MAX` if it sleeps without a timeout.
    wake_at: AtomicU64,
    /// The driver's counter of returned frames, as of the last call of `offer_frames`.
    returns: AtomicU64,
    /// Whether workers have to report when they have sent everything to their clients.
    draining: AtomicBool,
    /// Whether a panic of any driver has stopped all acknowledgement.
    poisoned: AtomicBool,
}

/// Mailbox of a worker: messages that other workers have left for it.
struct Mailbox {
    messages: Mutex<Vec<Message>>,
    eventfd: OwnedFd,
    /// Whether clients of the worker wait for frames that clients of other workers hold.
    waits: AtomicBool,
    /// Whether everything that is due to clients of the worker has been sent.
    drained: AtomicBool,
}

/// A client that was accepted.
#[derive(Debug)]
pub struct Accepted {
    /// Socket of the client.
    pub socket: OwnedFd,
    /// Index of the listener that the client came through.
    pub listener: usize,
}

/// A message for a worker.
#[derive(Debug)]
pub(crate) enum Message {
    /// Disconnect all clients and end.
    End,
    /// An event for one of the worker's clients.
    Event(Event),
    /// A new client of the worker.
    Accepted(Accepted),
    /// Refuse new work.
    Stop,
    /// The volumes have stopped, with this result.
    Stopped(Exit),
}

/// The driver, while this worker's thread holds its lock.
pub struct Held<'h> {
    driver: &'h Gate<Driver>,
    guard: Option<MutexGuard<'h, Driver>>,
}

impl Hub {
    /// Creates a hub of one driver, or of one for each worker. Fails when no descriptor is left.
    pub(crate) fn new(drivers: Vec<Driver>, workers: usize) -> std::io::Result<Self> {
        assert!(drivers.len() == 1 || drivers.len() == workers);
        let mailbox = |_| {
            Ok(Mailbox {
                messages: Mutex::default(),
                eventfd: rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
                waits: AtomicBool::new(false),
                drained: AtomicBool::new(false),
            })
        };
        Ok(Self {
            drivers: drivers.into_iter().map(Gate::new).collect(),
            mailboxes: (0..workers).map(mailbox).collect::<std::io::Result<_>>()?,
            wake_at: AtomicU64::new(0),
            returns: AtomicU64::new(0),
            draining: AtomicBool::new(false),
            poisoned: AtomicBool::new(false),
        })
    }

    pub(crate) fn workers(&self) -> usize {
        self.mailboxes.len()
    }

    /// Number of drivers: 1 that all workers share, or one for each worker.
    pub(crate) fn drivers(&self) -> usize {
        self.drivers.len()
    }

    /// Whether a worker has a driver to run, with its ring and its clock. If all workers share one
    /// driver, the first worker runs it.
    pub(crate) fn looks_after(&self, worker: usize) -> bool {
        worker < self.drivers.len()
    }

    /// Waits for the driver that a worker uses, and locks it.
    pub(crate) fn hold(&self, worker: usize) -> Held<'_> {
        let driver = &self.drivers[worker % self.drivers.len()];
        Held { driver, guard: Some(lock_driver(driver)) }
    }

    /// The drivers of all other workers, for the first worker, which holds its own. A worker waits
    /// for another driver while it holds one only here, so two workers never wait for each other.
    pub(crate) fn others(&self) -> impl Iterator<Item = Held<'_>> {
        (1..self.drivers.len()).map(|worker| self.hold(worker))
    }

    /// Shares the poisoning of one driver with the others: records that `driver` is poisoned, or
    /// poisons `driver` if another one was recorded. Returns whether `driver` is poisoned.
    pub(crate) fn share_poison(&self, driver: &mut Driver) -> bool {
        if driver.poison().is_some() {
            self.poisoned.store(true, Ordering::Relaxed);
        } else if self.poisoned.load(Ordering::Relaxed) {
            driver.set_poison("another thread that serves clients was poisoned");
        }
        driver.poison().is_some()
    }

    /// Descriptor that is readable when something is in the mailbox of a worker.
    pub(crate) fn eventfd(&self, worker: usize) -> BorrowedFd<'_> {
        self.mailboxes[worker].eventfd.as_fd()
    }

    /// Wakes a worker through its eventfd.
    pub(crate) fn ring(&self, worker: usize) {
        // Cannot fail: the counter is far from its limit.
        let _ = rustix::io::write(&self.mailboxes[worker].eventfd, &1_u64.to_ne_bytes());
    }

    /// Wakes all workers but one.
    pub(crate) fn ring_others(&self, worker: usize) {
        (0..self.workers()).filter(|other| *other != worker).for_each(|other| self.ring(other));
    }

    /// Clears the eventfd of a worker, once the worker is awake.
    pub(crate) fn silence(&self, worker: usize) {
        let _ = rustix::io::read(&self.mailboxes[worker].eventfd, &mut [0; 8]);
    }

    /// Moves messages into the mailbox of a worker and wakes it. `messages` is empty afterwards.
    pub(crate) fn tell(&self, worker: usize, messages: &mut Vec<Message>) {
        if messages.is_empty() {
            return;
        }
        let mut mailbox = lock(&self.mailboxes[worker].messages);
        let first = mailbox.is_empty();
        mailbox.append(messages);
        drop(mailbox);
        if first {
            self.ring(worker);
        }
    }

    /// Takes all messages out of the mailbox of a worker.
    pub(crate) fn take_messages(&self, worker: usize) -> Vec<Message> {
        std::mem::take(&mut *lock(&self.mailboxes[worker].messages))
    }

    /// Records whether the clients of a worker wait for frames.
    pub(crate) fn report_waits(&self, worker: usize, waits: bool) {
        self.mailboxes[worker].waits.store(waits, Ordering::Relaxed);
    }

    /// Makes workers report, from now on, when everything that is due to their clients has been
    /// sent.
    pub(crate) fn begin_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Records that everything that is due to clients of a worker has been sent.
    pub(crate) fn report_drained(&self, worker: usize) {
        if !self.mailboxes[worker].drained.swap(true, Ordering::Relaxed) && worker > 0 {
            self.ring(0);
        }
    }

    /// Whether all other workers have reported that everything that is due to their clients was
    /// sent.
    pub(crate) fn others_drained(&self) -> bool {
        self.mailboxes[1..].iter().all(|mailbox| mailbox.drained.load(Ordering::Relaxed))
    }

    /// Wakes the workers with clients that wait for frames, if frames have come back to the pool
    /// since the last call. `returns` is the driver's counter of returned frames.
    pub(crate) fn offer_frames(&self, worker: usize, returns: u64) {
        if self.returns.swap(returns, Ordering::Relaxed) == returns {
            return;
        }
        for (other, mailbox) in self.mailboxes.iter().enumerate() {
            if other != worker && mailbox.waits.load(Ordering::Relaxed) {
                self.ring(other);
            }
        }
    }

    /// Records when the first worker wakes by itself, in nanoseconds of the engine's clock.
    pub(crate) fn set_wake_at(&self, at: u64) {
        self.wake_at.store(at, Ordering::Relaxed);
    }

    /// Wakes the first worker now if it would otherwise sleep beyond the time `at`, in nanoseconds
    /// of the engine's clock.
    pub(crate) fn want_wake_at(&self, at: u64) {
        if at < self.wake_at.load(Ordering::Relaxed) {
            self.ring(0);
        }
    }
}

impl Held<'_> {
    /// Releases the driver while `action`, which does not need it, runs.
    pub fn unlocked<T>(&mut self, action: impl FnOnce() -> T) -> T {
        self.guard = None;
        let value = action();
        self.guard = Some(lock_driver(self.driver));
        value
    }
}

impl Deref for Held<'_> {
    type Target = Driver;

    fn deref(&self) -> &Driver {
        self.guard.as_deref().expect("held outside of `unlocked`")
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Driver {
        self.guard.as_deref_mut().expect("held outside of `unlocked`")
    }
}

fn lock_driver(driver: &Gate<Driver>) -> MutexGuard<'_, Driver> {
    driver.lock().unwrap_or_else(|poisoned| {
        // A worker panicked while it held the driver. Its half-done changes are not used.
        let mut guard = PoisonError::into_inner(poisoned);
        guard.set_poison("a thread that serves clients panicked");
        driver.clear_poison();
        guard
    })
}

/// Locks a mailbox. Its messages are consistent after every statement, so a panic leaves them
/// usable.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
