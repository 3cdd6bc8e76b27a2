//! What does the process wait for, and who is called when it comes?
//!
//! One thread, one `epoll_wait`: the ring, the sockets of the ports, the descriptor that says stop, and
//! as timeout the earliest moment anybody asked for. With nothing to do it sleeps without end; an idle
//! server uses no CPU at all.
//!
//! A [`Port`] is a way in: an NBD server, the control socket. It owns its descriptors, watches them
//! through the [`Context`] and records inputs; replies come to it as events. In each pass all ports
//! read first, then the engine decides, then all ports send: what arrived together is looked at
//! together.
//!
//! Stopping, in order: ports refuse new work; every volume gets `Stop`, which finishes, flushes and
//! marks clean; ports send what they still have, for at most [`DRAIN_SPAN`]; the loop ends. Being told
//! twice ends it at once.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use weft_engine::{Command, Tag, Verb};
use weft_units::{Span, Time, VolumeId};

use crate::RuntimeError;
use crate::driver::{Driver, Event};

/// A way in.
pub trait Port {
    /// Called once, before anything else.
    ///
    /// # Errors
    /// It cannot work; the reactor does not start.
    fn on_start(&mut self, cx: &mut Context<'_>) -> std::io::Result<()>;
    /// A descriptor is ready.
    fn on_ready(&mut self, cx: &mut Context<'_>, key: u32, ready: EventFlags);
    /// Something about one of its clients.
    fn on_event(&mut self, cx: &mut Context<'_>, event: Event);
    /// The end of a pass: send what is ready. May record inputs.
    fn on_pass(&mut self, cx: &mut Context<'_>);
    /// The engine or a worker has panicked: answer everything with an I/O error from here on.
    fn on_poison(&mut self, cx: &mut Context<'_>);
    /// Refuse new work.
    fn on_stop(&mut self, cx: &mut Context<'_>);
    /// The volumes have stopped; the last chance to say so.
    fn on_stopped(&mut self, cx: &mut Context<'_>, exit: &Exit);
    /// Whether everything it had to send has been sent.
    fn drained(&self) -> bool;
    /// When it wants a pass though nothing else happens.
    fn next_wake(&self) -> Option<Time>;
}

/// What a port may use while it is called.
pub struct Context<'a> {
    /// The engine and its memory.
    pub driver: &'a mut Driver,
    epoll: &'a OwnedFd,
    port: u8,
    stop: &'a mut bool,
}

/// How the loop ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Exit {
    /// Every volume was stopped in good order.
    Clean,
    /// A panic; see `poison.rs`.
    Poisoned(String),
    /// A volume did not stop in good order.
    StopFailed(String),
}

/// The loop.
pub struct Reactor {
    // Ports first: they are dropped before the memory their replies point to.
    ports: Vec<Box<dyn Port>>,
    driver: Driver,
    epoll: OwnedFd,
    shutdown: OwnedFd,
    volumes: u16,
    stop: bool,
    phase: Phase,
    poison_told: bool,
}

#[derive(Debug)]
enum Phase {
    Running,
    /// Volumes without an answer to `Stop`, and the first error.
    Stopping {
        left: u16,
        error: Option<String>,
    },
    /// Until then at the latest.
    Draining {
        until: Time,
        exit: Exit,
    },
}

impl Reactor {
    /// A loop over a driver of `volumes` volumes, to be stopped when `shutdown` becomes readable.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(driver: Driver, volumes: u16, shutdown: OwnedFd) -> Result<Self, RuntimeError> {
        let failed = |what| move |errno: Errno| RuntimeError::Io { what, source: errno.into() };
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed("epoll_create"))?;
        let watch = |fd: BorrowedFd<'_>, port: u8| {
            epoll::add(&epoll, fd, data(port, 0), EventFlags::IN).map_err(failed("epoll_ctl"))
        };
        watch(driver.members().ring().wait_fd(), PORT_RING)?;
        watch(shutdown.as_fd(), PORT_SHUTDOWN)?;
        Ok(Self {
            ports: Vec::new(),
            driver,
            epoll,
            shutdown,
            volumes,
            stop: false,
            phase: Phase::Running,
            poison_told: false,
        })
    }

    /// Takes a port in.
    ///
    /// # Errors
    /// What the port says in `on_start`.
    pub fn add_port(&mut self, port: Box<dyn Port>) -> std::io::Result<()> {
        assert!(self.ports.len() < usize::from(PORT_SHUTDOWN));
        self.ports.push(port);
        let last = self.ports.len() - 1;
        self.call(last, |port, cx| port.on_start(cx))
    }

    /// Runs until stopped.
    ///
    /// # Errors
    /// `epoll_wait` fails, which it does not.
    pub fn run(mut self) -> Result<Exit, RuntimeError> {
        let mut ready = Vec::with_capacity(READY_MAX);
        loop {
            self.driver.tick();
            self.pass();
            if let Some(exit) = self.finished() {
                return Ok(exit);
            }
            self.wait(&mut ready)?;
            self.driver.tick();
            for event in &ready {
                let epoll::Event { flags, data } = *event;
                self.dispatch(data.u64(), flags);
            }
        }
    }

    /// Lets the engine and the ports do all there is to do now.
    fn pass(&mut self) {
        self.driver.wake();
        for _ in 0..ROUNDS_MAX {
            self.driver.settle();
            self.deliver();
            if self.driver.poison().is_some() && !self.poison_told {
                self.poison_told = true;
                self.each(|port, cx| port.on_poison(cx));
            }
            self.each(|port, cx| port.on_pass(cx));
            if std::mem::take(&mut self.stop) && matches!(self.phase, Phase::Running) {
                self.begin_stop();
            }
            if !self.driver.busy() {
                break;
            }
        }
    }

    fn deliver(&mut self) {
        while let Some(event) = self.driver.event() {
            let client = match &event {
                Event::Credit { client, .. }
                | Event::Released { client, .. }
                | Event::Reply { client, .. } => *client,
            };
            let port = Driver::port_of(client);
            if port == PORT_SHUTDOWN {
                if let Event::Reply { result, .. } = event {
                    self.on_volume_stopped(result.map_err(|error| error.to_string()));
                }
            } else if usize::from(port) < self.ports.len() {
                self.call(usize::from(port), |port, cx| port.on_event(cx, event));
            }
        }
    }

    fn begin_stop(&mut self) {
        tracing::info!("stopping");
        self.phase = Phase::Stopping { left: self.volumes, error: None };
        self.each(|port, cx| port.on_stop(cx));
        let client = Driver::client(PORT_SHUTDOWN, 0);
        for volume in 0..self.volumes {
            let (tag, volume) = (Tag(u64::from(volume)), VolumeId(volume));
            self.driver.admin(Command { client, tag, volume, verb: Verb::Stop });
        }
    }

    fn on_volume_stopped(&mut self, result: Result<(), String>) {
        if let Phase::Stopping { left, error } = &mut self.phase {
            *left -= 1;
            if let Err(text) = result {
                error.get_or_insert(text);
            }
        }
    }

    /// Moves on through the phases; the end, when it has come.
    fn finished(&mut self) -> Option<Exit> {
        let poison = self.driver.poison().map(str::to_owned);
        let exit = match (&mut self.phase, poison) {
            (Phase::Running, _) => return None,
            (Phase::Stopping { .. }, Some(poison)) => Exit::Poisoned(poison),
            (Phase::Stopping { left: 0, error }, None) => match error.take() {
                Some(text) => Exit::StopFailed(text),
                None => Exit::Clean,
            },
            (Phase::Stopping { .. }, None) => return None,
            (Phase::Draining { until, exit }, _) => {
                let drained = self.ports.iter().all(|port| port.drained());
                let over = *until <= self.driver.now();
                return (drained || over).then(|| exit.clone());
            }
        };
        self.each(|port, cx| port.on_stopped(cx, &exit));
        self.each(|port, cx| port.on_pass(cx));
        let until = Time(self.driver.now().0 + DRAIN_SPAN.0);
        let drained = self.ports.iter().all(|port| port.drained());
        self.phase = Phase::Draining { until, exit: exit.clone() };
        drained.then_some(exit)
    }

    fn wait(&mut self, ready: &mut Vec<epoll::Event>) -> Result<(), RuntimeError> {
        let timeout = if self.driver.busy() || self.stop {
            Some(Timespec { tv_sec: 0, tv_nsec: 0 })
        } else {
            self.next_wake().map(|at| {
                let rest = at.0.saturating_sub(self.driver.now().0);
                Timespec {
                    tv_sec: i64::try_from(rest / NANOS).unwrap_or(i64::MAX),
                    tv_nsec: i64::try_from(rest % NANOS).expect("less than a second"),
                }
            })
        };
        ready.clear();
        let spare = rustix::buffer::spare_capacity(ready);
        match epoll::wait(&self.epoll, spare, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(RuntimeError::Io { what: "epoll_wait", source: errno.into() }),
        }
    }

    fn next_wake(&mut self) -> Option<Time> {
        let ports = self.ports.iter().filter_map(|port| port.next_wake()).min();
        let draining = match &self.phase {
            Phase::Draining { until, .. } => Some(*until),
            Phase::Running | Phase::Stopping { .. } => None,
        };
        [self.driver.next_wake(), ports, draining].into_iter().flatten().min()
    }

    fn dispatch(&mut self, data: u64, flags: EventFlags) {
        let [key_low @ .., _, _, _, port] = data.to_le_bytes();
        match port {
            // Reaped in `settle`.
            PORT_RING => {}
            PORT_SHUTDOWN => self.on_shutdown(),
            port => {
                let key = u32::from_le_bytes(key_low);
                self.call(usize::from(port), |port, cx| port.on_ready(cx, key, flags));
            }
        }
    }

    fn on_shutdown(&mut self) {
        let mut buffer = [0; 128];
        let read = rustix::io::read(&self.shutdown, &mut buffer);
        if !matches!(read, Ok(1..)) {
            // The end of a pipe stays readable; once is enough.
            let _ = epoll::delete(&self.epoll, &self.shutdown);
        }
        match self.phase {
            Phase::Running => self.stop = true,
            Phase::Stopping { .. } => {
                let exit = Exit::StopFailed("told to stop a second time".into());
                self.phase = Phase::Draining { until: Time(0), exit };
            }
            Phase::Draining { ref mut until, .. } => *until = Time(0),
        }
    }

    fn each(&mut self, mut action: impl FnMut(&mut dyn Port, &mut Context<'_>)) {
        for index in 0..self.ports.len() {
            self.call(index, &mut action);
        }
    }

    fn call<T>(
        &mut self,
        index: usize,
        action: impl FnOnce(&mut dyn Port, &mut Context<'_>) -> T,
    ) -> T {
        let Self { ports, driver, epoll, stop, .. } = self;
        let port = u8::try_from(index).expect("fewer than 254 ports");
        action(&mut *ports[index], &mut Context { driver, epoll, port, stop })
    }
}

impl Context<'_> {
    /// The number of the port, for [`Driver::client`].
    #[must_use]
    pub fn port(&self) -> u8 {
        self.port
    }

    /// Watches a descriptor; `key` comes back with `on_ready`.
    ///
    /// # Errors
    /// The kernel has no room for it.
    pub fn watch(&self, fd: BorrowedFd<'_>, key: u32, flags: EventFlags) -> std::io::Result<()> {
        Ok(epoll::add(self.epoll, fd, data(self.port, key), flags)?)
    }

    /// Watches it for something else.
    ///
    /// # Errors
    /// It was not watched.
    pub fn rewatch(&self, fd: BorrowedFd<'_>, key: u32, flags: EventFlags) -> std::io::Result<()> {
        Ok(epoll::modify(self.epoll, fd, data(self.port, key), flags)?)
    }

    /// Watches it no more.
    pub fn unwatch(&self, fd: BorrowedFd<'_>) {
        let _ = epoll::delete(self.epoll, fd);
    }

    /// Ends the loop in good order.
    pub fn stop(&mut self) {
        *self.stop = true;
    }
}

fn data(port: u8, key: u32) -> EventData {
    EventData::new_u64(u64::from(port) << 56 | u64::from(key))
}

/// How long ports may take to send their last replies.
pub const DRAIN_SPAN: Span = Span::secs(1);
const PORT_RING: u8 = 255;
const PORT_SHUTDOWN: u8 = 254;
const NANOS: u64 = 1_000_000_000;
/// Descriptors looked at per wait.
const READY_MAX: usize = 256;
/// Rounds before descriptors are looked at again.
const ROUNDS_MAX: u32 = 4;
