//! Tests of overload, round by round: how a reader fares beside clients that ask all the time.
//!
//! Server and clients run on one thread and move in turn, one round at a time, so that the counts
//! do not depend on thread scheduling.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

use weft_engine::{Config, Engine};
use weft_nbd::{
    BlockSizes, ClientConnection, ClientEvent, ClientHandshake, Goal, HandshakeEvent, Op,
};
use weft_runtime::Backend;
use weft_runtime::buffers::Slab;
use weft_runtime::devices::{Access, MemberSpec, OpenOptions};
use weft_runtime::serve::driver::{Driver, DriverParts};
use weft_runtime::serve::pool::Pool;
use weft_runtime::serve::reactor::{Exit, Reactor};
use weft_units::{MemberIndex, VolumeId};

use super::*;
use crate::allocation::Allocation;
use crate::connection_limit::TimeLimits;
use crate::hole_probes::LOOKS_MAX;

/// The client's end of a socket. It never blocks.
struct Peer {
    stream: UnixStream,
    handshake: ClientHandshake,
    connection: Option<ClientConnection>,
    unread: Vec<u8>,
    asked: u64,
    answered: u64,
}

impl Peer {
    fn new() -> (Self, OwnedFd) {
        let (stream, server) = UnixStream::pair().unwrap();
        stream.set_nonblocking(true).unwrap();
        server.set_nonblocking(true).unwrap();
        let handshake = ClientHandshake::new(Goal::Open("v".into())).unwrap().with_allocation();
        let (connection, unread) = (None, Vec::new());
        (Self { stream, handshake, connection, unread, asked: 0, answered: 0 }, server.into())
    }

    /// Receives and parses what the server has sent.
    fn step(&mut self) {
        let mut buffer = vec![0; 1 << 16];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => panic!("hung up on"),
                Ok(count) => self.unread.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        while self.look() {}
    }

    /// Parses a part of the received bytes. Returns whether there is more to parse.
    fn look(&mut self) -> bool {
        let Some(connection) = &mut self.connection else {
            let (count, event) = self.handshake.input(&self.unread);
            self.unread.drain(..count);
            let output = self.handshake.output().to_vec();
            self.stream.write_all(&output).unwrap();
            self.handshake.advance_output(output.len());
            match event {
                Some(HandshakeEvent::Ready(connection)) => self.connection = Some(connection),
                Some(other) => panic!("{other:?}"),
                None => {}
            }
            return count > 0 || self.connection.is_some();
        };
        let payload = connection.payload_remaining().min(self.unread.len());
        if payload > 0 {
            assert!(self.unread.drain(..payload).all(|byte| byte == 0));
            connection.payload_consumed(payload);
            return true;
        }
        let (count, event) = connection.input(&self.unread);
        self.unread.drain(..count);
        let more = count > 0 || event.is_some();
        if let Some(ClientEvent::Done { result, .. }) = event {
            result.unwrap();
            self.answered += 1;
        }
        more
    }

    fn ask(&mut self, op: Op) {
        let connection = self.connection.as_mut().expect("after the handshake");
        self.asked += 1;
        let header = connection.request(self.asked, op).unwrap();
        self.stream.write_all(&header).unwrap();
    }
}

/// A port with its clients, which send and receive after each round of the port, on the same
/// thread.
struct Stepped {
    port: NbdPort,
    sockets: Vec<OwnedFd>,
    good: Peer,
    floods: Vec<Peer>,
    /// Values at the time at which the good client sent its request: the number of rounds, and the
    /// number of answers to all floods (clients that ask all the time).
    asked: (u64, u64),
    rounds: u64,
    seen: Arc<Mutex<Seen>>,
}

/// Counts that a test compares.
#[derive(Debug, Default)]
struct Seen {
    /// Largest number of answers to all floods (clients that ask all the time) in one round.
    most: u64,
    /// For each read of the good client: numbers of rounds, and of answers to all floods, from the
    /// read's request to its answer.
    reads: Vec<(u64, u64)>,
    /// Number of answers to each flood (a client that asks all the time).
    floods: Vec<u64>,
}

impl Stepped {
    fn step(&mut self, cx: &mut Context<'_, '_>) {
        self.rounds += 1;
        let flooded = |floods: &[Peer]| floods.iter().map(|flood| flood.answered).sum::<u64>();
        let before = flooded(&self.floods);
        self.good.step();
        self.floods.iter_mut().for_each(Peer::step);
        let answered = flooded(&self.floods);
        let mut seen = self.seen.lock().unwrap();
        seen.most = seen.most.max(answered - before);
        if self.good.connection.is_none() || self.floods.iter().any(|it| it.connection.is_none()) {
            return;
        }
        for flood in &mut self.floods {
            while flood.asked < flood.answered + 100 {
                flood.ask(Op::BlockStatus { offset: 0, len: 64 << 20, one: false });
            }
        }
        // The good client sends its read only after the floods have had answers and keep requests
        // outstanding.
        if flooded(&self.floods) < 100 || self.good.asked > self.good.answered {
            return;
        }
        if self.good.asked > 0 {
            seen.reads.push((self.rounds - self.asked.0, answered - self.asked.1));
        }
        self.asked = (self.rounds, answered);
        self.good.ask(Op::Read { offset: 0, len: 4096, df: false });
        if seen.reads.len() == READS {
            seen.floods = self.floods.iter().map(|flood| flood.answered).collect();
            cx.stop(weft_runtime::serve::reactor::Ending::Write);
        }
    }
}

impl Port for Stepped {
    fn on_start(&mut self, cx: &mut Context<'_, '_>) -> std::io::Result<()> {
        self.port.on_start(cx)?;
        for socket in std::mem::take(&mut self.sockets) {
            assert_eq!(self.port.connections.enter(), 0);
            self.port.on_accepted(cx, Accepted { socket, listener: 0 });
        }
        Ok(())
    }

    fn on_ready(&mut self, cx: &mut Context<'_, '_>, key: u32, ready: EventFlags) {
        self.port.on_ready(cx, key, ready);
    }

    fn on_event(&mut self, cx: &mut Context<'_, '_>, event: Event) {
        self.port.on_event(cx, event);
    }

    fn on_pass(&mut self, cx: &mut Context<'_, '_>) {
        self.port.on_pass(cx);
        if !self.port.stopping {
            self.step(cx);
        }
    }

    fn on_poison(&mut self, _cx: &mut Context<'_, '_>) {
        panic!("poisoned");
    }

    fn on_stop(&mut self, cx: &mut Context<'_, '_>) {
        self.port.on_stop(cx);
    }

    fn on_stopped(&mut self, cx: &mut Context<'_, '_>, exit: &Exit) {
        assert_eq!(*exit, Exit::Clean);
        self.port.on_stopped(cx, exit);
    }

    fn drained(&self) -> bool {
        true
    }

    fn next_wake(&self) -> Option<Time> {
        Some(Time(0))
    }
}

/// Serves a reader beside `floods` clients that ask for block status all the time. Returns the
/// counts.
fn reader_beside(floods: usize) -> Seen {
    let spec = MemberSpec::parse("ram:64M").unwrap();
    let member = OpenOptions::new(Access::ReadWrite).open(&spec, MemberIndex(0), []).unwrap();
    let slab = Slab::new(1025).unwrap();
    let config = Config::for_single(member.info().clone(), false);
    let parts = DriverParts {
        core: Box::new(Engine::new(config, Time(0)).unwrap()),
        ring: Backend::Threads.open(&slab).unwrap(),
        slab,
        pool: Pool::new(1, 1024).with_floors(32),
        members: vec![member],
    };
    let (shutdown, _keep) = rustix::pipe::pipe().unwrap();
    let mut reactor = Reactor::new(Driver::new(parts).unwrap(), 1, shutdown);
    let info = ExportInfo::new("v", 64 << 20).unwrap().with_allocation();
    let info = info.with_block_sizes(BlockSizes::new(512, 4096, 32 << 20).unwrap());
    let served = Served {
        volume: VolumeId(0),
        allocation: Arc::new(Allocation::Bare),
        discards: false,
        recorder: None,
        name: "v".into(),
        whole: true,
        share: ClientShare::default(),
        chosen: Arc::default(),
    };
    let connections = Arc::new(ConnectionLimit::new(1, 32, TimeLimits::default()));
    let entrances = Arc::new([Entrance::default()]);
    let exports: Arc<[_]> = vec![info].into();
    let port =
        NbdPort::new(0, exports, vec![served], Vec::new(), Bytes::mib(1), connections, entrances);
    let (floods, mut sockets): (Vec<_>, Vec<_>) = (0..floods).map(|_| Peer::new()).unzip();
    let (good, socket) = Peer::new();
    // The reader comes last in every round.
    sockets.push(socket);
    let seen: Arc<Mutex<Seen>> = Arc::default();
    let asked = (0, 0);
    reactor.add_port(Box::new(Stepped {
        port,
        sockets,
        good,
        floods,
        asked,
        rounds: 0,
        seen: Arc::clone(&seen),
    }));
    assert_eq!(reactor.run(|| ()).unwrap(), Exit::Clean);
    Arc::into_inner(seen).unwrap().into_inner().unwrap()
}

/// The number of answers to block status in a round does not depend on the number of clients that
/// ask, and a read that arrives in one round is answered a few rounds later.
#[test]
fn block_status_of_many_leaves_as_much_as_that_of_one() {
    // Requests that arrive between two rounds may use what the first one left.
    let a_round = 2 * (LOOKS_MAX as u64 / 9 + 1);
    for floods in [1, 4, 16, 30] {
        let seen = reader_beside(floods);
        assert!(seen.most <= a_round, "{floods} floods: {} answers in one round", seen.most);
        for (rounds, answers) in &seen.reads {
            assert!(*rounds <= ROUNDS_UNSEEN + 1, "{floods} floods: {:?}", seen.reads);
            assert!(*answers <= rounds * a_round, "{floods} floods: {:?}", seen.reads);
        }
        // The floods take turns.
        let (least, most) = (seen.floods.iter().min().unwrap(), seen.floods.iter().max().unwrap());
        assert!(*least > 0 && most - least <= a_round, "{floods} floods: {:?}", seen.floods);
    }
}

const READS: usize = 100;
/// Largest number of rounds in succession in which the loop does not poll the sockets.
const ROUNDS_UNSEEN: u64 = 4;
