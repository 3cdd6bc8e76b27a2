//! Hub: the threads that serve clients share one driver, by a lock and a mailbox for each.
//!
//! A *worker* is a thread with its own `epoll` and its own clients. Most of the cost of serving a
//! client is moving bytes through its socket; that needs no engine, so a worker releases the driver
//! for it ([`Held::unlocked`]) and others go on, the longest waiting first (`gate.rs`). Bytes on
//! their way from or to a socket are held by a lease (`buffers.rs`), not by the lock.
//!
//! The worker that holds the driver lets the engine decide and carries out its outputs, for all
//! workers. Events for clients of another worker go into that worker's mailbox, and its eventfd is
//! written. A worker empties its mailbox before it takes new events from the driver, all under the
//! lock, so that each client gets its events in the order in which they happened.
//!
//! Where volumes consist of nothing but memory, as a bare member of RAM, each worker has a driver
//! of its own: the workers have nothing to agree on, and shared state would only travel from one
//! CPU's cache to another's.

use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::EventfdFlags;

use crate::driver::{Driver, Event};
use crate::gate::Gate;
use crate::reactor::Exit;

/// The driver, or one for each worker, and a mailbox for each worker.
pub(crate) struct Hub {
    drivers: Box<[Gate<Driver>]>,
    mailboxes: Box<[Mailbox]>,
    /// Time at which the first worker looks at the clock again; 0 while it is awake.
    wake_at: AtomicU64,
    /// Runs of frames that had come back when somebody last looked.
    returns: AtomicU64,
    /// Workers are asked whether they have sent all.
    draining: AtomicBool,
    /// A panic has stopped all acknowledgement, by any driver.
    poisoned: AtomicBool,
}

/// Events that other workers have left for a worker.
struct Mailbox {
    messages: Mutex<Vec<Message>>,
    eventfd: OwnedFd,
    /// Clients of the driver wait for frames that other drivers have.
    waits: AtomicBool,
    /// Everything its clients are owed has been sent.
    drained: AtomicBool,
}

/// Something for a worker.
#[derive(Debug)]
pub(crate) enum Message {
    /// Hang up on everybody and end.
    End,
    /// For one of its clients.
    Event(Event),
    /// A client of its own from now on.
    Socket(OwnedFd),
    /// Refuse new work.
    Stop,
    /// The volumes have stopped.
    Stopped(Exit),
}

/// The driver, while this thread has it.
pub struct Held<'h> {
    driver: &'h Gate<Driver>,
    guard: Option<MutexGuard<'h, Driver>>,
}

impl Hub {
    /// One driver, or one for each worker.
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

    /// Number of drivers.
    pub(crate) fn drivers(&self) -> usize {
        self.drivers.len()
    }

    /// Whether a worker looks after a driver: its ring, its clock.
    pub(crate) fn looks_after(&self, worker: usize) -> bool {
        worker < self.drivers.len()
    }

    /// Waits for the driver of a worker.
    pub(crate) fn hold(&self, worker: usize) -> Held<'_> {
        let driver = &self.drivers[worker % self.drivers.len()];
        Held { driver, guard: Some(lock_driver(driver)) }
    }

    /// The other drivers, for the first worker, which has its own. Nobody waits for another driver
    /// while it has one, except here.
    pub(crate) fn others(&self) -> impl Iterator<Item = Held<'_>> {
        (1..self.drivers.len()).map(|worker| self.hold(worker))
    }

    /// Takes part in the poison of any driver. Whether there is some.
    pub(crate) fn share_poison(&self, driver: &mut Driver) -> bool {
        if driver.poison().is_some() {
            self.poisoned.store(true, Ordering::Relaxed);
        } else if self.poisoned.load(Ordering::Relaxed) {
            driver.set_poison("another thread that serves clients was poisoned");
        }
        driver.poison().is_some()
    }

    /// Readable when something is in the mailbox of a worker.
    pub(crate) fn eventfd(&self, worker: usize) -> BorrowedFd<'_> {
        self.mailboxes[worker].eventfd.as_fd()
    }

    /// Wakes a worker.
    pub(crate) fn ring(&self, worker: usize) {
        // Cannot fail: the counter is far from its limit.
        let _ = rustix::io::write(&self.mailboxes[worker].eventfd, &1_u64.to_ne_bytes());
    }

    /// Wakes all workers but one.
    pub(crate) fn ring_others(&self, worker: usize) {
        (0..self.workers()).filter(|other| *other != worker).for_each(|other| self.ring(other));
    }

    /// Silences the eventfd of a worker, which is awake.
    pub(crate) fn silence(&self, worker: usize) {
        let _ = rustix::io::read(&self.mailboxes[worker].eventfd, &mut [0; 8]);
    }

    /// Puts messages into a mailbox; none are left.
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

    /// Takes what is in the mailbox of a worker.
    pub(crate) fn take_messages(&self, worker: usize) -> Vec<Message> {
        std::mem::take(&mut *lock(&self.mailboxes[worker].messages))
    }

    /// A worker says whether its clients wait for frames.
    pub(crate) fn report_waits(&self, worker: usize, waits: bool) {
        self.mailboxes[worker].waits.store(waits, Ordering::Relaxed);
    }

    /// From now on workers say when their clients have been sent all.
    pub(crate) fn begin_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// The clients of a worker have been sent all.
    pub(crate) fn report_drained(&self, worker: usize) {
        if !self.mailboxes[worker].drained.swap(true, Ordering::Relaxed) && worker > 0 {
            self.ring(0);
        }
    }

    /// Whether the clients of all other workers have been sent all.
    pub(crate) fn others_drained(&self) -> bool {
        self.mailboxes[1..].iter().all(|mailbox| mailbox.drained.load(Ordering::Relaxed))
    }

    /// Wakes who waits for frames, if frames have come back.
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

    /// The first worker says when it will wake by itself.
    pub(crate) fn set_wake_at(&self, at: u64) {
        self.wake_at.store(at, Ordering::Relaxed);
    }

    /// Another worker says when somebody has to be awake.
    pub(crate) fn want_wake_at(&self, at: u64) {
        if at < self.wake_at.load(Ordering::Relaxed) {
            self.ring(0);
        }
    }
}

impl Held<'_> {
    /// Lets go of the driver for the time of something that does not need it.
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
        // A worker has panicked while it had the driver; what it left half done is not used.
        let mut guard = PoisonError::into_inner(poisoned);
        guard.set_poison("a thread that serves clients panicked");
        driver.clear_poison();
        guard
    })
}

/// Messages are whole after every statement, so that a panic leaves them usable.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
