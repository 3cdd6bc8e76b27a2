//! Worker: the thread that serves some clients, the events that it waits for, and its phases.
//!
//! A worker waits in one `epoll_wait` for its eventfd and the sockets of its ports, until the
//! earliest time that a port or the engine asked for. Without work it sleeps without a timeout, so
//! an idle server uses no CPU at all. The first worker also has the ring, the shutdown descriptor
//! and the engine's clock. Its legal phases:
//!
//! ```text
//! Running ──► Closing ──► Writing ──► Stopping ──► Draining ──► over
//!    ▲───────────┴───────────┘ a close or write failed; the next request goes on to Stopping
//!    └─────────────────────────────────────┴── poisoned, or one more request to stop ──┘
//! ```

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventFlags};
use rustix::io::Errno;
use weft_engine::{Command, Tag, Verb};
use weft_units::{Span, Time, VolumeId};

use super::clients::{WORKER_PORTS, WORKERS_MAX, client_of, port_of};
use super::driver::{Driver, Event};
use super::ending::{Ending, Exit};
use super::hub::{Held, Hub, Message};
use super::port::{Context, Port, data};
use crate::error::RuntimeError;

/// Worker: the part of the loop that runs in one thread.
pub(crate) struct Worker<'h> {
    hub: &'h Hub,
    index: usize,
    ports: Vec<Box<dyn Port + Send>>,
    epoll: OwnedFd,
    head: Option<Head>,
    poison_told: bool,
    /// Whether the worker has been told to end.
    ended: bool,
    eagerness: Eagerness,
    /// Messages for the other workers, collected while the driver's events are handed out.
    messages: Vec<Vec<Message>>,
}

/// Policy of busy polling before a worker sleeps. A client that was just answered sends its next
/// request a moment later, and waking a thread takes longer than that. Each busy poll yields first,
/// so that a client on the same CPU is not held up.
#[derive(Debug, Default)]
struct Eagerness {
    /// Number of waits in sequence in which busy polls found nothing.
    misses: u32,
}

impl Eagerness {
    fn wait(
        &mut self,
        epoll: &OwnedFd,
        ready: &mut Vec<epoll::Event>,
        timeout: Option<&Timespec>,
    ) -> Result<usize, Errno> {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        if timeout != Some(&at_once) {
            // After `MISSES_MAX` waits in a row in which polls found nothing, a worker polls
            // rarely.
            let polls = if self.misses < MISSES_MAX || self.misses.is_multiple_of(MISSES_MAX) {
                POLLS
            } else {
                0
            };
            for _ in 0..polls {
                let found =
                    epoll::wait(epoll, rustix::buffer::spare_capacity(ready), Some(&at_once))?;
                if found > 0 {
                    self.misses = 0;
                    return Ok(found);
                }
                std::thread::yield_now();
            }
            self.misses = self.misses.saturating_add(1);
        }
        epoll::wait(epoll, rustix::buffer::spare_capacity(ready), timeout)
    }
}

/// Number of busy polls before a worker sleeps. They take some 20 µs.
const POLLS: u32 = 40;

/// Number of successive waits in which polling found nothing, after which only every 16th wait
/// polls.
const MISSES_MAX: u32 = 16;

/// State that only the first worker has: the shutdown descriptor, and the progress of a stop.
struct Head {
    shutdown: OwnedFd,
    volumes: u16,
    stop: Option<Ending>,
    /// Whether the stop that is under way was asked for by the shutdown descriptor.
    is_by_signal: bool,
    /// Whether a stop was cancelled because a port could not be closed.
    was_kept: bool,
    /// Whether [`TOLD_LAST`] was read.
    was_told_last: bool,
    /// Number of times that all volumes were told to write everything (`Drain`).
    drains: u64,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    Running,
    /// Ports take block devices away from the kernel, while clients are served.
    Closing,
    /// Volumes write the unwritten data of their caches, while clients are served. `left` volumes
    /// have not finished; `error` is the first error.
    Writing {
        left: u16,
        error: Option<String>,
    },
    /// Volumes stop. `left` volumes have not answered `Stop`; `error` is the first error.
    Stopping {
        left: u16,
        error: Option<String>,
    },
    /// Ports send their last replies, until the time `until` at the latest.
    Draining {
        until: Time,
        exit: Exit,
    },
}

impl<'h> Worker<'h> {
    /// Creates a worker, which watches its eventfd.
    pub(crate) fn new(
        hub: &'h Hub,
        index: usize,
        ports: Vec<Box<dyn Port + Send>>,
    ) -> Result<Self, RuntimeError> {
        assert!(ports.len() <= usize::from(WORKER_PORTS));
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed("epoll_create"))?;
        let messages = (0..hub.workers()).map(|_| Vec::new()).collect();
        let (head, ended) = (None, false);
        let worker = Self {
            hub,
            index,
            ports,
            epoll,
            head,
            poison_told: false,
            ended,
            eagerness: Eagerness::default(),
            messages,
        };
        worker.watch(hub.eventfd(index), PORT_EVENTFD)?;
        if hub.looks_after(index) {
            worker.watch(hub.hold(index).members().ring().wait_fd(), PORT_RING)?;
        }
        Ok(worker)
    }

    /// Makes this the first worker, which also has the shutdown descriptor, the ring and the
    /// engine's clock.
    pub(crate) fn with_head(
        mut self,
        volumes: u16,
        shutdown: OwnedFd,
    ) -> Result<Self, RuntimeError> {
        assert_eq!(self.index, 0);
        self.watch(shutdown.as_fd(), PORT_SHUTDOWN)?;
        self.head = Some(Head {
            shutdown,
            volumes,
            stop: None,
            is_by_signal: false,
            was_kept: false,
            was_told_last: false,
            drains: 0,
            phase: Phase::Running,
        });
        Ok(self)
    }

    fn watch(&self, fd: BorrowedFd<'_>, port: u8) -> Result<(), RuntimeError> {
        epoll::add(&self.epoll, fd, data(port, 0), EventFlags::IN).map_err(failed("epoll_ctl"))
    }

    /// Starts the ports of the worker, up to the first one that fails.
    pub(crate) fn start(&mut self) -> std::io::Result<()> {
        let mut driver = self.hub.hold(self.index);
        (0..self.ports.len())
            .try_for_each(|index| self.call(&mut driver, index, |port, cx| port.on_start(cx)))
    }

    /// Runs until stopped. Returns how the loop has ended; only the first worker's result matters.
    pub(crate) fn run(mut self) -> Result<Exit, RuntimeError> {
        let mut ready = Vec::with_capacity(READY_MAX);
        let mut driver = self.hub.hold(self.index);
        loop {
            driver.tick();
            self.pass(&mut driver);
            if let Some(exit) = self.finished(&mut driver) {
                return Ok(exit);
            }
            self.wait(&mut driver, &mut ready)?;
            driver.tick();
            for event in &ready {
                let epoll::Event { flags, data } = *event;
                self.dispatch(&mut driver, data.u64(), flags);
            }
        }
    }

    /// Lets the engine and the ports do all work that can be done now.
    fn pass(&mut self, driver: &mut Held<'h>) {
        driver.wake();
        for _ in 0..ROUNDS_MAX {
            driver.settle();
            self.deliver(driver);
            if !self.poison_told && self.hub.share_poison(driver) {
                self.poison_told = true;
                self.hub.ring_others(self.index);
                self.each(driver, |port, cx| port.on_poison(cx));
            }
            self.each(driver, |port, cx| port.on_pass(cx));
            if let Some(head) = &mut self.head
                && let Some(how) = head.stop.take()
            {
                match (&head.phase, how) {
                    (Phase::Running, Ending::Write) => {
                        head.phase = Phase::Closing;
                        self.each(driver, |port, cx| port.on_closing(cx));
                    }
                    (Phase::Running | Phase::Closing | Phase::Writing { .. }, Ending::GiveUp) => {
                        self.begin_stop(driver);
                    }
                    _ => {}
                }
            }
            self.go_on_closing(driver);
            self.go_on_writing(driver);
            if !driver.busy() {
                break;
            }
        }
    }

    /// Hands out events: first those in the mailbox, then those of the driver.
    fn deliver(&mut self, driver: &mut Held<'h>) {
        for message in self.hub.take_messages(self.index) {
            match message {
                Message::End => self.ended = true,
                Message::Event(event) => self.on_event(driver, event),
                Message::Accepted(client) => self.call(driver, 0, |port, cx| {
                    port.on_accepted(cx, client);
                }),
                Message::Stop => self.each(driver, |port, cx| port.on_stop(cx)),
                Message::Stopped(exit) => {
                    self.each(driver, |port, cx| port.on_stopped(cx, &exit));
                }
            }
        }
        while let Some(event) = driver.event() {
            let port = port_of(event.client());
            let worker = if port == PORT_SHUTDOWN { 0 } else { usize::from(port / WORKER_PORTS) };
            if worker == self.index {
                self.on_event(driver, event);
            } else if let Some(messages) = self.messages.get_mut(worker) {
                messages.push(Message::Event(event));
            }
        }
        for (worker, messages) in self.messages.iter_mut().enumerate() {
            self.hub.tell(worker, messages);
        }
    }

    fn on_event(&mut self, driver: &mut Held<'h>, event: Event) {
        let port = port_of(event.client());
        if port == PORT_SHUTDOWN {
            if let Event::Reply { tag, result, .. } = event {
                let result = result.map_err(|error| error.to_string());
                self.on_volume_done(tag.0 >= TAG_DRAIN, result);
            }
            return;
        }
        let index = usize::from(port % WORKER_PORTS);
        if index < self.ports.len() {
            self.call(driver, index, |port, cx| port.on_event(cx, event));
        }
    }

    fn begin_stop(&mut self, driver: &mut Held<'h>) {
        tracing::info!("stopping");
        let drivers = u16::try_from(self.hub.drivers()).expect("at most WORKERS_MAX");
        let Some(head) = &mut self.head else { return };
        let left = head.volumes * drivers;
        head.phase = Phase::Stopping { left, error: None };
        self.each(driver, |port, cx| port.on_stop(cx));
        self.tell_others(|| Message::Stop);
        self.ask_all(driver, &Verb::Stop, 0);
    }

    /// Asks every volume to write all unwritten data in its cache to the members. Clients are
    /// served meanwhile.
    fn begin_writing(&mut self, driver: &mut Held<'h>) {
        let drivers = u16::try_from(self.hub.drivers()).expect("at most WORKERS_MAX");
        let Some(head) = &mut self.head else { return };
        let left = head.volumes * drivers;
        head.phase = Phase::Writing { left, error: None };
        head.drains += 1;
        let tag = TAG_DRAIN * head.drains;
        self.ask_all(driver, &Verb::Drain, tag);
    }

    /// Sends a command for every volume to each driver, with tags from `first` on in each.
    /// [`Self::on_volume_done`] gets the answers.
    fn ask_all(&self, driver: &mut Held<'h>, verb: &Verb, first: u64) {
        let Some(head) = &self.head else { return };
        let client = client_of(PORT_SHUTDOWN, 0);
        let ask = |driver: &mut Driver| {
            for volume in 0..head.volumes {
                let (tag, volume) = (Tag(first + u64::from(volume)), VolumeId(volume));
                driver.admin(Command { client, tag, volume, verb: verb.clone() });
            }
        };
        ask(driver);
        self.hub.others().for_each(|mut driver| ask(&mut driver));
        self.hub.ring_others(self.index);
    }

    /// Handles the answer of a volume to `Drain` (if `drain`) or to `Stop`.
    fn on_volume_done(&mut self, drain: bool, result: Result<(), String>) {
        let Some(head) = &mut self.head else { return };
        let (left, error) = match &mut head.phase {
            Phase::Writing { left, error } if drain => (left, error),
            Phase::Stopping { left, error } if !drain => (left, error),
            // A late answer to a drain that a stop has superseded.
            _ => return,
        };
        *left -= 1;
        if let Err(text) = result {
            error.get_or_insert(text);
        }
    }

    /// Goes on to the phase in which volumes write their data, once all ports are closed. If a port
    /// cannot be closed, the stop is cancelled. A signal after a stop that was cancelled for this
    /// reason goes on: a supervisor sends no further one, and kills the process later.
    fn go_on_closing(&mut self, driver: &mut Held<'h>) {
        if !self.head.as_ref().is_some_and(|head| matches!(head.phase, Phase::Closing)) {
            return;
        }
        let closed = self.ports.iter().map(|port| port.is_closed());
        match closed.collect::<Result<Vec<bool>, String>>() {
            Ok(closed) if closed.iter().all(|is_closed| *is_closed) => self.begin_writing(driver),
            Ok(_) => {}
            Err(why) => {
                let Some(head) = &mut self.head else { return };
                if head.is_by_signal && head.was_kept {
                    self.begin_writing(driver);
                } else {
                    head.was_kept = true;
                    self.refuse_stop(driver, &format!("not stopped: {why}"));
                }
            }
        }
    }

    /// Cancels a stop, for the reason `text`.
    fn refuse_stop(&mut self, driver: &mut Held<'h>, text: &str) {
        let Some(head) = &mut self.head else { return };
        (head.phase, head.is_by_signal) = (Phase::Running, false);
        tracing::error!("{text}");
        self.each(driver, |port, cx| port.on_stop_refused(cx, text));
    }

    /// Goes on to stop the volumes once all have written their data. If a volume failed to write,
    /// the stop is cancelled.
    fn go_on_writing(&mut self, driver: &mut Held<'h>) {
        let Some(head) = &mut self.head else { return };
        let Phase::Writing { left: 0, error } = &mut head.phase else { return };
        let Some(why) = error.take() else {
            self.begin_stop(driver);
            return;
        };
        let text = format!(
            "not stopped: {why}; the volume goes on, and they stay in memory. Make space and stop it \
             again; weft stop --discard or a second signal gives them up"
        );
        self.refuse_stop(driver, &text);
    }

    /// Advances the shutdown to its next phase when the current one is over. Returns the worker's
    /// exit once the last phase is over; `None` until then.
    fn finished(&mut self, driver: &mut Held<'h>) -> Option<Exit> {
        let drained = self.ports.iter().all(|port| port.drained());
        let Some(head) = &mut self.head else { return self.ended.then_some(Exit::Clean) };
        let poison = driver.poison().map(str::to_owned);
        let exit = match (&mut head.phase, poison) {
            (Phase::Running, _) | (Phase::Closing | Phase::Writing { .. }, None) => return None,
            (Phase::Closing | Phase::Writing { .. } | Phase::Stopping { .. }, Some(poison)) => {
                Exit::Poisoned(poison)
            }
            (Phase::Stopping { left: 0, error }, None) => match error.take() {
                Some(text) => Exit::StopFailed(text),
                None => Exit::Clean,
            },
            (Phase::Stopping { .. }, None) => return None,
            (Phase::Draining { until, exit }, _) => {
                let over = *until <= driver.now();
                let exit = ((drained && self.hub.others_drained()) || over).then(|| exit.clone());
                if exit.is_some() {
                    self.tell_others(|| Message::End);
                }
                return exit;
            }
        };
        let exit = match exit {
            Exit::Clean => self.release_members(driver),
            other => other,
        };
        self.each(driver, |port, cx| port.on_stopped(cx, &exit));
        self.hub.begin_draining();
        self.tell_others(|| Message::Stopped(exit.clone()));
        self.each(driver, |port, cx| port.on_pass(cx));
        let until = Time(driver.now().0 + DRAIN_SPAN.0);
        if let Some(head) = &mut self.head {
            head.phase = Phase::Draining { until, exit };
        }
        self.finished(driver)
    }

    /// Closes the members of volumes that have stopped. Returns [`Exit::Hanging`] if some members
    /// have not answered. Ports report the stop after that, so members can be opened again once it
    /// has been reported.
    fn release_members(&self, driver: &mut Held<'h>) -> Exit {
        let mut hanging = driver.release_members();
        self.hub.others().for_each(|mut driver| hanging.extend(driver.release_members()));
        if hanging.is_empty() {
            return Exit::Clean;
        }
        let text = hanging_text(&hanging);
        tracing::warn!("{text}");
        Exit::Hanging(text)
    }

    fn tell_others(&self, message: impl Fn() -> Message) {
        for worker in (0..self.hub.workers()).filter(|worker| *worker != self.index) {
            self.hub.tell(worker, &mut vec![message()]);
        }
    }

    fn wait(
        &mut self,
        driver: &mut Held<'h>,
        ready: &mut Vec<epoll::Event>,
    ) -> Result<(), RuntimeError> {
        let waits = self.ports.iter().any(|port| port.is_waiting());
        self.hub.report_waits(self.index, waits);
        if self.hub.is_draining() && self.ports.iter().all(|port| port.drained()) {
            self.hub.report_drained(self.index);
        }
        if self.hub.drivers() == 1 {
            self.hub.offer_frames(self.index, driver.returns());
        }
        let stop = self.head.as_ref().is_some_and(|head| head.stop.is_some());
        let timeout = if driver.busy() || stop {
            Some(Timespec { tv_sec: 0, tv_nsec: 0 })
        } else {
            self.next_wake(driver).map(|at| {
                let rest = at.0.saturating_sub(driver.now().0);
                Timespec {
                    tv_sec: i64::try_from(rest / NANOS).unwrap_or(i64::MAX),
                    tv_nsec: i64::try_from(rest % NANOS).expect("less than a second"),
                }
            })
        };
        ready.clear();
        let (epoll, eagerness) = (&self.epoll, &mut self.eagerness);
        let waited = driver.unlocked(|| eagerness.wait(epoll, ready, timeout.as_ref()));
        if self.index == 0 {
            self.hub.set_wake_at(0);
        }
        match waited {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(RuntimeError::Io { what: "epoll_wait", source: errno.into() }),
        }
    }

    /// Time at which this worker has to be awake even without an event; `None` for no such time.
    fn next_wake(&mut self, driver: &mut Held<'h>) -> Option<Time> {
        let ports = self.ports.iter().filter_map(|port| port.next_wake()).min();
        let engine = driver.next_wake();
        let Some(head) = &self.head else {
            if self.hub.looks_after(self.index) {
                return [engine, ports].into_iter().flatten().min();
            }
            if let Some(at) = engine {
                self.hub.want_wake_at(at.0);
            }
            return ports;
        };
        let draining = match &head.phase {
            Phase::Draining { until, .. } => Some(*until),
            Phase::Running | Phase::Closing | Phase::Writing { .. } | Phase::Stopping { .. } => {
                None
            }
        };
        let at = [engine, ports, draining].into_iter().flatten().min();
        self.hub.set_wake_at(at.map_or(u64::MAX, |at| at.0));
        at
    }

    fn dispatch(&mut self, driver: &mut Held<'h>, data: u64, flags: EventFlags) {
        let [key_low @ .., _, _, _, port] = data.to_le_bytes();
        match port {
            PORT_EVENTFD => self.hub.silence(self.index),
            // `settle` reaps the completions.
            PORT_RING => {}
            PORT_SHUTDOWN => self.on_shutdown(),
            port => {
                let key = u32::from_le_bytes(key_low);
                let index = usize::from(port % WORKER_PORTS);
                self.call(driver, index, |port, cx| port.on_ready(cx, key, flags));
            }
        }
    }

    fn on_shutdown(&mut self) {
        let Some(head) = &mut self.head else { return };
        let mut buffer = [0; 128];
        let read = rustix::io::read(&head.shutdown, &mut buffer);
        let told = matches!(read, Ok(1..));
        if !told {
            // A closed pipe stays readable, so the descriptor is not watched any longer.
            let _ = epoll::delete(&self.epoll, &head.shutdown);
        }
        // A closed pipe is the last message, because it closes only once. A signal can be repeated.
        let few = read.ok().filter(|count| *count < buffer.len());
        let is_last = !told || few.is_some_and(|count| buffer[..count].contains(&TOLD_LAST));
        let is_again = is_last && std::mem::replace(&mut head.was_told_last, true);
        match head.phase {
            Phase::Running | Phase::Closing | Phase::Writing { .. } if is_last => {
                head.stop = Some(Ending::GiveUp);
            }
            Phase::Running => (head.stop, head.is_by_signal) = (Some(Ending::Write), true),
            // The stop that was asked for is under way, by a control command.
            Phase::Closing | Phase::Writing { .. } => {}
            Phase::Stopping { .. } if !is_again => {}
            Phase::Stopping { .. } => {
                let exit = Exit::StopFailed("told to stop a second time".into());
                head.phase = Phase::Draining { until: Time(0), exit };
            }
            Phase::Draining { ref mut until, .. } => *until = Time(0),
        }
    }

    fn each(
        &mut self,
        driver: &mut Held<'h>,
        mut action: impl FnMut(&mut dyn Port, &mut Context<'_, 'h>),
    ) {
        for index in 0..self.ports.len() {
            self.call(driver, index, &mut action);
        }
    }

    fn call<T>(
        &mut self,
        driver: &mut Held<'h>,
        index: usize,
        action: impl FnOnce(&mut dyn Port, &mut Context<'_, 'h>) -> T,
    ) -> T {
        let Self { hub, ports, epoll, head, .. } = self;
        let worker = u8::try_from(self.index).expect("at most WORKERS_MAX");
        let port = worker * WORKER_PORTS + u8::try_from(index).expect("at most WORKER_PORTS");
        let mut stop = None;
        let value =
            action(&mut *ports[index], &mut Context { driver, hub, epoll, port, stop: &mut stop });
        if let Some(head) = head {
            head.stop = head.stop.max(stop);
        }
        value
    }
}

impl Drop for Worker<'_> {
    /// Wakes the other workers if this one has panicked, because the first worker has to handle the
    /// panic.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.hub.ring_others(self.index);
        }
    }
}

/// Message about members that hang after a stop in good order.
fn hanging_text(members: &[String]) -> String {
    format!(
        "stopped, but {} has not answered requests that were given up: what was acknowledged is \
         where the array wrote it without them; the process ends and does not wait, and the member \
         stays locked until the kernel has its I/O back",
        members.join(", ")
    )
}

fn failed(what: &'static str) -> impl Fn(Errno) -> RuntimeError {
    move |errno| RuntimeError::Io { what, source: errno.into() }
}

/// Byte that, read from the shutdown descriptor, asks the server to give up data that cannot be
/// written. A second one, while volumes stop, ends the server at once. A signalfd never returns
/// this byte.
pub const TOLD_LAST: u8 = b'e';
/// Lowest tag of a `Drain` command; tags below it are those of `Stop`. The tags of the `n`th drain,
/// counted from 1, begin at `n * TAG_DRAIN`.
const TAG_DRAIN: u64 = 1 << 32;
/// Longest time that ports may take to send their last replies.
pub const DRAIN_SPAN: Span = Span::secs(1);
const _: () = assert!(WORKERS_MAX * (WORKER_PORTS as usize) < PORT_EVENTFD as usize);
const PORT_RING: u8 = 255;
const PORT_SHUTDOWN: u8 = 254;
const PORT_EVENTFD: u8 = 253;
const NANOS: u64 = 1_000_000_000;
/// Largest number of ready descriptors that are handled after one wait.
const READY_MAX: usize = 256;
/// Largest number of rounds of a pass, after which descriptors are polled again.
const ROUNDS_MAX: u32 = 4;
