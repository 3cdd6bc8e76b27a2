//! Reactor: ports (NBD server, control socket), the passes that serve them, and their orderly end.
//!
//! A [`Port`] owns its descriptors, watches them through the [`Context`] and records inputs;
//! replies reach it as events. In each pass all ports of a worker read first, then the engine
//! decides, then all ports send, so that requests that arrived together are handled together. Each
//! port lives in one worker, which is a thread (`worker.rs`); all share one driver (`hub.rs`).
//!
//! Stopping proceeds in order. Every volume gets `Drain`; if one cannot write out its write-back
//! cache, nothing stops ([`Port::on_stop_refused`]). Ports refuse new work. Every volume gets
//! `Stop`, which finishes its requests, flushes and marks the array clean. Ports send their
//! remaining replies, for at most [`DRAIN_SPAN`]. The workers end. A second request to stop gives
//! up data that cannot be written ([`Ending::GiveUp`]), and a third ends the loop at once.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, EventData, EventFlags};
use weft_engine::Snapshot;
use weft_units::Time;

use crate::RuntimeError;
use crate::driver::{Driver, Event};
use crate::hub::{Hub, Message};
use crate::worker::{WORKER_PORTS, WORKERS_MAX, Worker};

pub use crate::hub::Held;
pub use crate::worker::{DRAIN_SPAN, TOLD_LAST};

/// An interface to the outside: a server or a control socket.
pub trait Port {
    /// Called once, before anything else.
    ///
    /// # Errors
    /// Fails when the port cannot work; the reactor does not start then.
    fn on_start(&mut self, cx: &mut Context<'_, '_>) -> std::io::Result<()>;
    /// A descriptor is ready.
    fn on_ready(&mut self, cx: &mut Context<'_, '_>, key: u32, ready: EventFlags);
    /// An event for one of its clients.
    fn on_event(&mut self, cx: &mut Context<'_, '_>, event: Event);
    /// A client that a port of another worker has accepted, see [`Context::hand_over`]. Only the
    /// first port of a worker is called.
    fn on_socket(&mut self, cx: &mut Context<'_, '_>, socket: OwnedFd) {
        let _ = (cx, socket);
    }
    /// The end of a pass: the port sends what is ready. It may record inputs.
    fn on_pass(&mut self, cx: &mut Context<'_, '_>);
    /// The engine or a worker has panicked: the port answers everything with an I/O error from now
    /// on.
    fn on_poison(&mut self, cx: &mut Context<'_, '_>);
    /// The port refuses new work from now on.
    fn on_stop(&mut self, cx: &mut Context<'_, '_>);
    /// A volume could not write its clients' data: nothing stops, and clients are served as before.
    /// Only ports of the first worker are called.
    fn on_stop_refused(&mut self, cx: &mut Context<'_, '_>, text: &str) {
        let _ = (cx, text);
    }
    /// The volumes have stopped. This is the last chance to tell clients so.
    fn on_stopped(&mut self, cx: &mut Context<'_, '_>, exit: &Exit);
    /// Whether the port has sent everything that was due to its clients.
    fn drained(&self) -> bool;
    /// Whether the port needs a pass when frames have come back to the pool.
    fn is_waiting(&self) -> bool {
        false
    }
    /// Time at which the port needs a pass even without an event.
    fn next_wake(&self) -> Option<Time>;
}

/// The driver and the loop, for a port while it is called.
pub struct Context<'a, 'h> {
    /// The engine and its memory.
    pub driver: &'a mut Held<'h>,
    pub(crate) hub: &'a Hub,
    pub(crate) epoll: &'a OwnedFd,
    pub(crate) port: u8,
    pub(crate) stop: &'a mut Option<Ending>,
}

/// Ways of ending the loop in good order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    /// Ends after everything that clients wrote has been written to the members.
    Write,
    /// Gives up data that cannot be written, and counts it.
    GiveUp,
}

/// End of the loop.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Exit {
    /// Every volume was stopped in good order.
    Clean,
    /// Every volume was stopped like with [`Exit::Clean`], but members have not answered requests
    /// that the volumes have given up; the text, for people, says which. Memory and rings of the
    /// reactor are never freed in this case: the kernel may still write to them, and waiting for it
    /// may take for ever. The process should end.
    Hanging(String),
    /// A panic stopped all acknowledgement; see `poison.rs`.
    Poisoned(String),
    /// A volume did not stop in good order.
    StopFailed(String),
}

/// The loop before it runs.
pub struct Reactor {
    drivers: Vec<Driver>,
    volumes: u16,
    shutdown: OwnedFd,
    workers: Vec<Vec<Box<dyn Port + Send>>>,
}

impl Reactor {
    /// Creates a loop over a driver of `volumes` volumes, with one worker and no ports. It stops
    /// when `shutdown` becomes readable.
    #[must_use]
    pub fn new(driver: Driver, volumes: u16, shutdown: OwnedFd) -> Self {
        Self { drivers: vec![driver], volumes, shutdown, workers: vec![Vec::new()] }
    }

    /// Adds a driver for the next worker, of the same volumes. These must consist of memory alone,
    /// because workers with drivers of their own do not coordinate. Either all workers have a
    /// driver, or only the first one.
    pub fn add_driver(&mut self, driver: Driver) {
        self.drivers.push(driver);
    }

    /// Adds a port to the first worker.
    ///
    /// # Panics
    /// Panics if the worker has eight ports already.
    pub fn add_port(&mut self, port: Box<dyn Port + Send>) {
        assert!(self.workers[0].len() < usize::from(WORKER_PORTS));
        self.workers[0].push(port);
    }

    /// Adds a port with a worker of its own.
    ///
    /// # Panics
    /// Panics if there are 16 workers already.
    pub fn add_worker(&mut self, port: Box<dyn Port + Send>) {
        assert!(self.workers.len() < WORKERS_MAX);
        self.workers.push(vec![port]);
    }

    /// Runs until stopped, on this thread and one for each further worker. Calls `on_ready` once
    /// all ports have started.
    ///
    /// # Errors
    /// Fails when a port cannot start, or no thread or descriptor is left.
    pub fn run(self, on_ready: impl FnOnce()) -> Result<Exit, RuntimeError> {
        let failed = |what| move |source| RuntimeError::Io { what, source };
        let Self { drivers, volumes, shutdown, workers } = self;
        let hub = Hub::new(drivers, workers.len()).map_err(failed("eventfd"))?;
        let mut made = Vec::with_capacity(workers.len());
        for (index, ports) in workers.into_iter().enumerate() {
            made.push(Worker::new(&hub, index, ports)?);
        }
        for worker in &mut made {
            worker.start().map_err(failed("watching sockets"))?;
        }
        let mut made = made.into_iter();
        let first = made.next().expect("there is a first worker");
        let first = first.with_head(volumes, shutdown)?;
        let exit = std::thread::scope(|scope| {
            let started = made.zip(1..).try_for_each(|(worker, number)| {
                let name = format!("weft-worker-{number}");
                let thread = std::thread::Builder::new().name(name);
                thread.spawn_scoped(scope, move || worker.run()).map(|_| ())
            });
            let exit = started.map_err(failed("starting threads")).and_then(|()| {
                on_ready();
                first.run()
            });
            // The workers are told to end even when starting failed: the scope waits for them.
            (1..hub.workers()).for_each(|worker| hub.tell(worker, &mut vec![Message::End]));
            exit
        });
        if matches!(exit, Ok(Exit::Hanging(_))) {
            std::mem::forget(hub);
        }
        exit
    }
}

impl Context<'_, '_> {
    /// Counters and states of all drivers, `None` after a panic. Only for ports of the first
    /// worker.
    pub fn snapshot(&mut self) -> Option<Snapshot> {
        let mut whole = self.driver.snapshot()?;
        for mut driver in self.hub.others() {
            absorb(&mut whole, driver.snapshot()?);
        }
        Some(whole)
    }

    /// Number of frames that clients hold, over all pools. Only for ports of the first worker.
    #[must_use]
    pub fn frames_held(&self) -> u32 {
        let others: u32 = self.hub.others().map(|driver| driver.pool().held()).sum();
        self.driver.pool().held() + others
    }

    /// Number of the port, for [`Driver::client`].
    #[must_use]
    pub fn port(&self) -> u8 {
        self.port
    }

    /// Hands a client to the first port of a worker.
    pub fn hand_over(&self, worker: usize, socket: OwnedFd) {
        self.hub.tell(worker, &mut vec![Message::Socket(socket)]);
    }

    /// Wakes a worker, which has a pass then.
    pub fn wake_worker(&self, worker: usize) {
        self.hub.ring(worker);
    }

    /// Watches a descriptor. `on_ready` gets `key` when it is ready.
    ///
    /// # Errors
    /// Fails when the kernel has no room for it.
    pub fn watch(&self, fd: BorrowedFd<'_>, key: u32, flags: EventFlags) -> std::io::Result<()> {
        Ok(epoll::add(self.epoll, fd, data(self.port, key), flags)?)
    }

    /// Changes the events that a descriptor is watched for.
    ///
    /// # Errors
    /// Fails when the descriptor was not watched.
    pub fn rewatch(&self, fd: BorrowedFd<'_>, key: u32, flags: EventFlags) -> std::io::Result<()> {
        Ok(epoll::modify(self.epoll, fd, data(self.port, key), flags)?)
    }

    /// Ends the loop in good order. Only for ports of the first worker.
    pub fn stop(&mut self, how: Ending) {
        *self.stop = Some(how).max(*self.stop);
    }
}

/// Adds the snapshot of another driver of the same volumes.
fn absorb(whole: &mut Snapshot, part: Snapshot) {
    for (volume, other) in whole.volumes.iter_mut().zip(part.volumes) {
        volume.requests_active += other.requests_active;
        for (member, other) in volume.members.iter_mut().zip(other.members) {
            member.reads += other.reads;
            member.writes += other.writes;
            member.flushes += other.flushes;
            member.sectors_read += other.sectors_read;
            member.sectors_written += other.sectors_written;
            member.in_flight += other.in_flight;
        }
    }
    whole.clients.extend(part.clients);
    whole.tokens_outstanding += part.tokens_outstanding;
    whole.frames_held += part.frames_held;
}

pub(crate) fn data(port: u8, key: u32) -> EventData {
    EventData::new_u64(u64::from(port) << 56 | u64::from(key))
}
