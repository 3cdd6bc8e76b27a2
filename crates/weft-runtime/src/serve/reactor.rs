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
//! remaining replies, for at most [`DRAIN_SPAN`]. The workers end. [`TOLD_LAST`] gives up data that
//! cannot be written ([`Ending::GiveUp`]); while volumes stop, another one ends the loop at once.

use std::os::fd::OwnedFd;

use super::clients::{WORKER_PORTS, WORKERS_MAX};
use super::driver::Driver;
use super::hub::{Hub, Message};
use super::worker::Worker;
use crate::error::RuntimeError;

pub use super::ending::{Ending, Exit};
pub use super::hub::{Accepted, Held};
pub use super::port::{Context, Port};
pub use super::worker::{DRAIN_SPAN, TOLD_LAST};

/// The loop that serves clients, before it runs.
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

    /// Gives the next worker a driver of its own, for the same volumes. The volumes must consist of
    /// memory alone, because drivers do not coordinate. Either all workers have a driver, or only
    /// the first one.
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
    /// all ports have started. Returns how the loop has ended.
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
