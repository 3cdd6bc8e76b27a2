//! NBD port: accepts clients, limits their number, spreads them over workers.
//!
//! `codec.rs` parses what a client sends; `session/` carries out its requests. Sockets are
//! registered once, edge-triggered, so that waiting for credit costs no system call. When the
//! process has no descriptor left, no client is accepted and all others are served. At the limit of
//! clients one more is accepted and waits for a place, for at most [`TimeLimits::place`]. After
//! that it is disconnected, and the next one waits.
//!
//! A handshake that takes longer than [`TimeLimits::handshake`] is ended. While a client waits for
//! a place, the limit is [`TimeLimits::handshake_wanted`].
//!
//! Clients are spread over workers, which are threads (`reactor.rs`): the port of the first worker
//! accepts, and gives a client to the worker with the fewest clients, the first among equals. A
//! single client is thus served by the thread that runs the members' ring, and several clients
//! share the CPUs.
//!
//! Source   NBD `proto.md`; reliability.md F16, F20, F22

mod codec;

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use weft_engine::{Run, Tag};
use weft_nbd::{ExportInfo, ServerConnection};
use weft_runtime::serve::clients::{CLIENTS_MAX, client_of};
use weft_runtime::serve::driver::{Driver, Event};
use weft_runtime::serve::reactor::{Accepted, Context, Port};
use weft_units::{Bytes, ClientId, Span, Time};

use crate::connection_limit::{ConnectionLimit, PLACES_MAX};
use crate::hole_probes::HoleProbeBudget;
use crate::keys::Keys;
use crate::log_limiter::LogLimiter;
use crate::session::{Connection, ConnectionStep, Served, end_turn_of_gone};
use crate::share::ClientShare;
use crate::socket::Listener;

/// NBD port of one worker: its clients, and for the first worker the listeners.
pub(crate) struct NbdPort {
    worker: usize,
    exports: Arc<[ExportInfo]>,
    /// Volume that each export serves, by the index of the export.
    served: Vec<Served>,
    listeners: Vec<Listener>,
    accepting: bool,
    /// Client that waits because the number of clients is at its limit, with the time at which it
    /// was accepted. No other client is accepted meanwhile.
    waiting: Option<(Time, Accepted)>,
    /// Time of the next `accept`, after the process ran out of descriptors; `None` otherwise.
    accept_again: Option<Time>,
    clients: Vec<Option<Box<Connection<ServerConnection>>>>,
    /// Free places of `clients`, oldest first, so that a client number is reused as late as
    /// possible.
    free: VecDeque<u32>,
    generations: Vec<u32>,
    /// Connections that have to be served at the end of this pass of the event loop.
    due: Vec<u32>,
    /// Emptied list that becomes `due` in the next pass: each pass swaps the two, so that none is
    /// allocated.
    due_spare: Vec<u32>,
    is_due: Vec<bool>,
    /// Set when a pass has returned frames or ended a turn of a long request, and a connection
    /// waits for frames or for a turn. The next pass then begins at once.
    again: bool,
    /// Clients in a handshake, oldest first, each with the time at which the handshake began.
    handshakes: VecDeque<(Time, ClientId)>,
    /// Frames that the engine still has for reads of disconnected clients, by client and tag.
    orphans: BTreeMap<(ClientId, Tag), Run>,
    looks: HoleProbeBudget,
    credit: Bytes,
    log: Log,
    buffer: Vec<u8>,
    stopping: bool,
    connections: Arc<ConnectionLimit>,
    /// Shares and keys of the clients of each listener, by its index.
    entrances: Arc<[Entrance]>,
}

/// Properties that all clients of a listener have in common.
#[derive(Debug, Default)]
pub(crate) struct Entrance {
    /// Share of the clients; `None` if the share of their export counts.
    pub(crate) share: Option<ClientShare>,
    /// Keys by which the clients must start TLS; `None` for plain text.
    pub(crate) keys: Option<Arc<Keys>>,
}

/// Rate limits of log lines that a client can cause repeatedly.
#[derive(Debug, Default)]
struct Log {
    accept: LogLimiter,
    turned_away: LogLimiter,
    tls: LogLimiter,
}

impl NbdPort {
    /// Creates the port of a worker. Only the port of the first worker has listeners.
    pub(crate) fn new(
        worker: usize,
        exports: Arc<[ExportInfo]>,
        served: Vec<Served>,
        listeners: Vec<Listener>,
        credit: Bytes,
        connections: Arc<ConnectionLimit>,
        entrances: Arc<[Entrance]>,
    ) -> Self {
        Self {
            worker,
            exports,
            served,
            listeners,
            accepting: false,
            waiting: None,
            accept_again: None,
            clients: Vec::new(),
            free: VecDeque::new(),
            generations: Vec::new(),
            due: Vec::new(),
            due_spare: Vec::new(),
            is_due: Vec::new(),
            again: false,
            handshakes: VecDeque::new(),
            orphans: BTreeMap::new(),
            looks: HoleProbeBudget::default(),
            credit,
            log: Log::default(),
            buffer: vec![0; BUFFER_BYTES],
            stopping: false,
            connections,
            entrances,
        }
    }

    fn accept(&mut self, cx: &mut Context<'_, '_>, listener: usize) {
        while self.waiting.is_none() {
            let accepted = self.listeners[listener].accept();
            match accepted.map(|socket| Accepted { socket, listener }) {
                Ok(client) if self.connections.is_full() => self.set_waiting(cx, Some(client)),
                Ok(client) => self.give_place(cx, client),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED | Errno::PERM) => {}
                Err(errno) => {
                    if let Some(more) = self.log.accept.now(cx.driver.now()) {
                        tracing::warn!(%errno, more, "no new connection is accepted for a while");
                    }
                    self.accept_again = Some(Time(cx.driver.now().0 + ACCEPT_PAUSE.0));
                    break;
                }
            }
        }
        self.set_accepting(cx, false);
    }

    fn give_place(&mut self, cx: &mut Context<'_, '_>, client: Accepted) {
        match self.connections.enter() {
            worker if worker == self.worker => self.admit(cx, client),
            worker => cx.hand_over(worker, client),
        }
    }

    /// Sets the client that waits because the number of clients is at its limit, or none. While a
    /// client waits, the limit for handshakes is shorter.
    fn set_waiting(&mut self, cx: &mut Context<'_, '_>, client: Option<Accepted>) {
        self.connections.wanted.store(client.is_some(), Ordering::Relaxed);
        if client.is_some() {
            self.wake_others(cx);
        }
        self.waiting = client.map(|client| (cx.driver.now(), client));
    }

    fn wake_others(&self, cx: &Context<'_, '_>) {
        let workers = 0..self.connections.workers();
        workers.filter(|worker| *worker != self.worker).for_each(|worker| cx.wake_worker(worker));
    }

    fn admit(&mut self, cx: &mut Context<'_, '_>, accepted: Accepted) {
        let Accepted { socket, listener } = accepted;
        // A free place is reused only after all others, unless a new one may be added.
        let places_max = (self.connections.max * 2).min(PLACES_MAX as usize);
        let fresh = self.clients.len() < places_max;
        let place = match (fresh, self.free.front()) {
            (true, _) | (false, None) => {
                self.clients.push(None);
                self.generations.push(0);
                self.is_due.push(false);
                u32::try_from(self.clients.len() - 1).expect("at most PLACES_MAX")
            }
            (false, Some(_)) => self.free.pop_front().expect("looked at just now"),
        };
        let generation = &mut self.generations[place as usize];
        *generation = (*generation + 1) % (CLIENTS_MAX / PLACES_MAX);
        let client = client_of(cx.port(), *generation * PLACES_MAX + place);
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        if let Err(error) = cx.watch(socket.as_fd(), KEY_CLIENTS + place, flags) {
            if let Some(more) = self.log.turned_away.now(cx.driver.now()) {
                tracing::warn!(%error, more, "client turned away");
            }
            self.free.push_back(place);
            self.connections.leave(self.worker);
            return;
        }
        self.see_sizes(cx.driver);
        let Entrance { share, keys } = &self.entrances[listener];
        let mut codec = ServerConnection::new(Arc::clone(&self.exports), Some(0));
        if keys.is_some() {
            codec = codec.require_tls();
        }
        let connection = Connection::new(socket, client, codec, self.credit);
        let mut connection = connection.with(*share, keys.clone());
        if cx.driver.poison().is_some() {
            connection.requests_mut().poison(cx.driver);
        }
        if self.stopping {
            connection.begin_shutdown();
        }
        self.clients[place as usize] = Some(Box::new(connection));
        self.handshakes.push_back((cx.driver.now(), client));
        self.set_due(place);
    }

    /// Raises the sizes of exports to those of volumes that have grown, for new clients. A
    /// connected client keeps the size that it was told, because the protocol has no message for a
    /// new size.
    fn see_sizes(&mut self, driver: &mut Driver) {
        let Some(snapshot) = driver.shared_snapshot() else { return };
        let size_of =
            |served: &Served| snapshot.volumes.get(served.volume.index()).map(|it| it.size.0);
        let grown = |(info, served): (&ExportInfo, &Served)| {
            size_of(served).filter(|size| served.whole && *size > info.size())
        };
        let pairs = || self.exports.iter().zip(&self.served);
        if pairs().any(|pair| grown(pair).is_some()) {
            let resized = |pair: (&ExportInfo, &Served)| {
                let info = pair.0.clone();
                grown(pair).map_or_else(|| info.clone(), |size| info.clone().with_size(size))
            };
            self.exports = pairs().map(resized).collect();
        }
    }

    fn set_accepting(&mut self, cx: &mut Context<'_, '_>, accepting: bool) {
        if self.accepting == accepting {
            return;
        }
        self.accepting = accepting;
        let flags = if accepting { EventFlags::IN } else { EventFlags::empty() };
        for (listener, key) in self.listeners.iter().zip(0..) {
            if let Err(error) = cx.rewatch(listener.as_fd(), key, flags) {
                tracing::error!(%error, "listener lost");
            }
        }
    }

    fn set_due(&mut self, place: u32) {
        if !std::mem::replace(&mut self.is_due[place as usize], true) {
            self.due.push(place);
        }
    }

    fn drop_client(&mut self, cx: &mut Context<'_, '_>, place: u32) {
        let Some(connection) = self.clients[place as usize].take() else { return };
        let client = connection.client();
        if let Some(reason) = connection.tls_failure()
            && let Some(more) = self.log.tls.now(cx.driver.now())
        {
            tracing::warn!(reason, more, "client hung up on: TLS failed");
        }
        for (tag, run) in connection.close(cx.driver, &mut self.looks) {
            self.orphans.insert((client, tag), run);
        }
        self.free.push_back(place);
        let was_full = self.connections.is_full();
        self.connections.leave(self.worker);
        if self.worker == 0 {
            self.accept_if_there_is_room(cx);
        } else if was_full {
            cx.wake_worker(0);
        }
    }

    fn accept_if_there_is_room(&mut self, cx: &mut Context<'_, '_>) {
        if !self.stopping && self.accept_again.is_none() && !self.connections.is_full() {
            if let Some((_, client)) = self.waiting.take() {
                self.set_waiting(cx, None);
                self.give_place(cx, client);
            }
            self.set_accepting(cx, true);
        }
    }

    /// Disconnects the waiting client if it has waited too long for the number of clients to fall
    /// below the limit, and lets the next one wait.
    fn end_late_wait(&mut self, cx: &mut Context<'_, '_>) {
        let late = |since: Time| since + self.connections.time.place <= cx.driver.now();
        if self.waiting.as_ref().is_some_and(|(since, _)| late(*since)) {
            if let Some(more) = self.log.turned_away.now(cx.driver.now()) {
                let clients = self.connections.count();
                tracing::warn!(clients, more, "client turned away: no place became free");
            }
            self.set_waiting(cx, None);
            self.set_accepting(cx, true);
        }
    }

    fn place_of(&self, client: ClientId) -> Option<u32> {
        let place = client.0 % PLACES_MAX;
        let connection = self.clients.get(place as usize)?.as_ref()?;
        (connection.client() == client).then_some(place)
    }

    /// Handles an event for a disconnected client: the reply to a read gives the read's frames
    /// back.
    fn on_orphan(&mut self, cx: &mut Context<'_, '_>, event: &Event) {
        match event {
            Event::Credit { .. } => {}
            Event::Released { client, run } => {
                let own = (*client, Tag(0))..=(*client, Tag(u64::MAX));
                let key = self.orphans.range(own).find(|(_, other)| *other == run);
                if let Some(key) = key.map(|(key, _)| *key) {
                    self.orphans.remove(&key);
                }
            }
            Event::Reply { client, tag, result } => {
                end_turn_of_gone(cx.driver, *client, *tag);
                let run = self.orphans.remove(&(*client, *tag));
                if let (Some(run), Ok(())) = (run, result) {
                    cx.driver.give_back_frames(run);
                }
            }
        }
    }

    /// Longest time for a handshake at present, which depends on whether a client waits to be
    /// admitted.
    fn handshake_span(&self) -> Span {
        let time = &self.connections.time;
        match self.connections.wanted.load(Ordering::Relaxed) {
            true => time.handshake_wanted.min(time.handshake),
            false => time.handshake,
        }
    }

    fn end_late_handshakes(&mut self, cx: &mut Context<'_, '_>) {
        while let Some((begun, client)) = self.handshakes.front().copied() {
            let place = self.place_of(client);
            let is_open = |place: &u32| {
                let connection = self.clients[*place as usize].as_ref();
                connection.is_some_and(|connection| !connection.is_ready())
            };
            let late = place.filter(is_open);
            if late.is_some() && begun + self.handshake_span() > cx.driver.now() {
                return;
            }
            self.handshakes.pop_front();
            if let Some(place) = late {
                tracing::debug!(client = client.0, "handshake took too long");
                self.drop_client(cx, place);
            }
        }
    }

    /// Serves one client: sends its replies, resumes requests that had to wait, and receives
    /// further bytes.
    fn work(&mut self, cx: &mut Context<'_, '_>, place: u32) {
        let Some(connection) = self.clients[place as usize].as_mut() else { return };
        let mut step = connection.send(cx.driver);
        if step == ConnectionStep::Open {
            step = connection.resume(cx.driver, &self.served, &mut self.looks);
        }
        if step == ConnectionStep::Open {
            step = connection.receive(cx.driver, &self.served, &mut self.looks, &mut self.buffer);
        }
        // Sends refusals, and replies to requests that need no engine.
        if step == ConnectionStep::Open {
            step = connection.send(cx.driver);
        }
        let more = connection.may_receive() || connection.is_waiting();
        match step {
            ConnectionStep::Closed => self.drop_client(cx, place),
            ConnectionStep::Open if more => self.set_due(place),
            ConnectionStep::Open => {}
        }
    }
}

impl Port for NbdPort {
    fn on_start(&mut self, cx: &mut Context<'_, '_>) -> std::io::Result<()> {
        for (listener, key) in self.listeners.iter().zip(0..) {
            cx.watch(listener.as_fd(), key, EventFlags::IN)?;
        }
        self.accepting = !self.listeners.is_empty();
        Ok(())
    }

    fn on_ready(&mut self, cx: &mut Context<'_, '_>, key: u32, ready: EventFlags) {
        let Some(place) = key.checked_sub(KEY_CLIENTS) else {
            self.accept(cx, key as usize);
            return;
        };
        let Some(connection) = self.clients[place as usize].as_mut() else { return };
        let gone = EventFlags::HUP | EventFlags::ERR | EventFlags::RDHUP;
        let (readable, writable) = (EventFlags::IN, EventFlags::OUT);
        connection.on_ready(
            ready.intersects(readable),
            ready.intersects(writable),
            ready.intersects(gone),
        );
        let step = connection.receive(cx.driver, &self.served, &mut self.looks, &mut self.buffer);
        if step == ConnectionStep::Closed {
            self.drop_client(cx, place);
        } else {
            self.set_due(place);
        }
    }

    fn on_event(&mut self, cx: &mut Context<'_, '_>, event: Event) {
        let Some(place) = self.place_of(event.client()) else {
            self.on_orphan(cx, &event);
            return;
        };
        let connection = self.clients[place as usize].as_mut().expect("found just now");
        connection.requests_mut().on_event(cx.driver, event);
        self.set_due(place);
    }

    fn on_accepted(&mut self, cx: &mut Context<'_, '_>, client: Accepted) {
        self.admit(cx, client);
    }

    fn is_waiting(&self) -> bool {
        self.due.iter().any(|place| {
            let connection = self.clients[*place as usize].as_ref();
            connection.is_some_and(|connection| connection.is_waiting())
        })
    }

    fn on_pass(&mut self, cx: &mut Context<'_, '_>) {
        self.end_late_handshakes(cx);
        if self.accept_again.is_some_and(|at| at <= cx.driver.now()) {
            self.accept_again = None;
        }
        if self.worker == 0 && !self.accepting {
            self.accept_if_there_is_room(cx);
        }
        self.end_late_wait(cx);
        self.looks.begin_round();
        let returns = cx.driver.returns();
        let due = std::mem::replace(&mut self.due, std::mem::take(&mut self.due_spare));
        for place in &due {
            self.is_due[*place as usize] = false;
            self.work(cx, *place);
        }
        self.due_spare = due;
        self.due_spare.clear();
        // A reply that was sent may have freed frames that an earlier connection waits for.
        self.again = cx.driver.returns() != returns && self.is_waiting();
    }

    fn on_poison(&mut self, cx: &mut Context<'_, '_>) {
        for place in 0..self.clients.len() {
            if let Some(connection) = &mut self.clients[place] {
                connection.requests_mut().poison(cx.driver);
                self.set_due(u32::try_from(place).expect("at most PLACES_MAX"));
            }
        }
    }

    fn on_stop(&mut self, cx: &mut Context<'_, '_>) {
        self.stopping = true;
        self.set_accepting(cx, false);
        self.waiting = None;
        for connection in self.clients.iter_mut().flatten() {
            connection.begin_shutdown();
        }
    }

    fn drained(&self) -> bool {
        self.clients.iter().flatten().all(|connection| connection.is_drained())
    }

    fn next_wake(&self) -> Option<Time> {
        let runnable = self.due.iter().any(|place| {
            let connection = self.clients[*place as usize].as_ref();
            connection
                .is_some_and(|connection| connection.may_receive() || connection.has_yielded())
        });
        if runnable || self.again {
            return Some(Time(0));
        }
        let handshake = self.handshakes.front().map(|(begun, _)| *begun + self.handshake_span());
        let wait = self.waiting.as_ref().map(|(since, _)| *since + self.connections.time.place);
        [handshake, self.accept_again, wait].into_iter().flatten().min()
    }
}

/// Pause before the next `accept`, after the process ran out of descriptors.
const ACCEPT_PAUSE: Span = Span::millis(200);
/// Size of the receive buffer in bytes, 256 KiB: room for 60 writes of 4 KiB, or for some 9,000
/// requests without payload.
const BUFFER_BYTES: usize = 256 << 10;

/// Event key of the first client; lower keys are those of the listeners.
const KEY_CLIENTS: u32 = 1 << 8;

#[cfg(test)]
mod stepped;
