//! Tests of overload: service of other clients beside greedy, stalled, silent and non-reading ones.

#![allow(clippy::cast_possible_truncation, reason = "small numbers of a test")]

mod common;

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{
    CLIENTS_MAX, Client, Server, array_files_of, assembled, bare, core, engine_of, pattern, raid5,
};
use weft_engine::{Engine, Input, Output, RequestOp, Snapshot, Tag, Turn};
use weft_export::control::Command;
use weft_export::{ExitState, TimeLimits};
use weft_nbd::{EXTENTS_MAX, Op};
use weft_ondisk::Level;
use weft_runtime::Backend;
use weft_runtime::devices::OpenMember;
use weft_runtime::serve::poison::Core;
use weft_runtime::serve::turns::TURNS_MAX;
use weft_units::{ClientId, Sectors, Span, Time};

const MIB: u64 = 1 << 20;
const WRITE: u16 = 1;

/// Time limits that never end a handshake or a wait for a place.
const NEVER: TimeLimits = TimeLimits { handshake: LONG, handshake_wanted: LONG, place: LONG };
const LONG: Span = Span::secs(36_000);

/// Writes, reads back and flushes a MiB at offset 48 MiB.
fn serve_well(client: &mut Client, seed: u64) {
    let bytes = pattern(seed, 1 << 20);
    client.write(48 * MIB, &bytes).unwrap();
    assert!(client.read(48 * MIB, 1 << 20).unwrap() == bytes);
    client.flush().unwrap();
}

#[test]
fn writes_that_are_announced_and_not_sent_hold_up_no_other_client() {
    for sent in [0, 5000, 31 * MIB as usize] {
        let source = raid5(16_384, 32 << 20);
        let server = Server::start(source, Backend::Auto);
        let bytes = pattern(3, 32 << 20);
        let mut halves: Vec<_> = (0..2).map(|_| server.client()).collect();
        for half in &mut halves {
            half.send_raw(WRITE, 0, 0, 32 << 20);
            half.stream.write_all(&bytes[..sent]).unwrap();
        }
        let mut good: Vec<_> = (0..3).map(|_| server.client()).collect();
        good.iter_mut().zip(1..).for_each(|(client, seed)| serve_well(client, seed));
        // The frames of one request part for each client that has not sent that much.
        let held = server.status().frames_held;
        assert!(sent > 1 << 20 || held == 2 * 256, "{held} frames with {sent} bytes sent");
        for half in &mut halves {
            half.stream.write_all(&bytes[sent..]).unwrap();
            let mut reply = [0; 16];
            half.stream.read_exact(&mut reply).unwrap();
            assert_eq!(reply[4..8], [0; 4], "the write goes on where it stopped");
        }
        for piece in 0..4 {
            let found = good[0].read(piece * 8 * MIB, 8 << 20).unwrap();
            assert!(found == bytes[(piece * 8 * MIB) as usize..][..8 << 20], "piece {piece}");
        }
        drop((halves, good));
        server.settled();
        assert_eq!(server.stop(), ExitState::Clean);
    }
}

/// Sends as many reads as the socket takes, and reads no reply.
fn ask_and_be_deaf(client: &mut Client, count: u64, len: u32) {
    client.stream.set_nonblocking(true).unwrap();
    for index in 0..count {
        let op = Op::Read { offset: index % 16 * u64::from(len), len, df: false };
        if client.stream.write_all(&op.header(index).encode()).is_err() {
            break;
        }
    }
    client.stream.set_nonblocking(false).unwrap();
}

#[test]
fn clients_that_do_not_read_their_replies_hold_up_no_other_client() {
    let server = Server::start(raid5(16_384, 32 << 20), Backend::Auto);
    let mut good = server.client();
    (0..16).for_each(|index| good.write(index * MIB, &pattern(index + 1, 1 << 20)).unwrap());
    let mut deaf = Vec::new();
    for index in 0..16 {
        let mut client = server.client();
        ask_and_be_deaf(&mut client, 64, 1 << 20);
        deaf.push(client);
        serve_well(&mut good, index + 1);
        serve_well(&mut server.client(), index + 100);
    }
    assert!(server.status().frames_held > 16_384 / 2, "the deaf clients hold many frames");
    drop((good, deaf));
    server.settled();
    assert_eq!(server.stop(), ExitState::Clean);
}

#[test]
fn silent_connections_make_room_for_new_clients() {
    let limits = TimeLimits { handshake_wanted: Span::millis(50), ..NEVER };
    let server = Server::start_limited(bare("64M"), Backend::Auto, false, limits);
    let mut ready = server.client();
    let mut silent = Vec::new();
    for round in 0..3 {
        while server.status().clients < CLIENTS_MAX {
            silent.push(UnixStream::connect(server.socket()).unwrap());
        }
        serve_well(&mut server.client(), round + 1);
    }
    serve_well(&mut ready, 7);
    // While no client waits for a place, the longer limit applies.
    drop(silent);
    let mut slow = UnixStream::connect(server.socket()).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    slow.write_all(&[0, 0, 0, 3]).unwrap();
    slow.write_all(b"IHAVEOPT\0\0\0\x02\0\0\0\0").unwrap();
    let mut answer = Vec::new();
    slow.read_to_end(&mut answer).unwrap();
    assert_eq!(answer.len(), 18 + 20, "greeting, and the answer to an abort");
    drop(ready);
    server.settled();
    assert_eq!(server.stop(), ExitState::Clean);
}

#[test]
fn a_client_for_which_there_is_no_place_is_hung_up_on() {
    let limits = TimeLimits { place: Span::millis(100), ..NEVER };
    let server = Server::start_limited(bare("64M"), Backend::Auto, false, limits);
    let mut clients: Vec<_> = (0..CLIENTS_MAX).map(|_| server.client()).collect();
    for _ in 0..3 {
        let mut late = UnixStream::connect(server.socket()).unwrap();
        late.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(late.read(&mut [0; 64]).unwrap(), 0, "not a word, and the end");
    }
    clients.iter_mut().zip(1..).for_each(|(client, seed)| serve_well(client, seed));
    clients.pop();
    serve_well(&mut server.client(), 7);
    drop(clients);
    server.settled();
    assert_eq!(server.stop(), ExitState::Clean);
}

/// The answers to another administrator pace the test: after each, the server has served all
/// connections.
#[test]
fn a_control_connection_that_does_not_read_is_not_read_either() {
    let server = Server::start(raid5(1024, 1 << 20), Backend::Auto);
    let line = b"{\"v\":1,\"cmd\":\"status\"}\n";
    let mut deaf = UnixStream::connect(server.dir.path().join("control")).unwrap();
    deaf.set_nonblocking(true).unwrap();
    let mut other = server.control();
    let (looks, mut sent) = (500, 0);
    for _ in 0..looks {
        loop {
            match deaf.write(&line[sent % line.len()..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(other.command(Command::Status).unwrap().status.unwrap().volumes.len(), 1);
    }
    // Two sockets hold some 300 lines each, and 16 lines per turn could have been answered into
    // memory.
    let lines = sent / line.len();
    assert!((100..3000).contains(&lines), "{lines} lines were taken in {looks} looks");
    // The connection is answered once it reads.
    deaf.set_nonblocking(false).unwrap();
    deaf.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let (mut answers, mut buffer) = (0, vec![0; 1 << 16]);
    while answers < sent / line.len() {
        let count = deaf.read(&mut buffer).unwrap();
        assert!(count > 0, "hung up after {answers} answers");
        answers += buffer[..count].iter().filter(|byte| **byte == b'\n').count();
    }
    assert_eq!(answers, sent / line.len());
    assert_eq!(server.stop(), ExitState::Clean);
}

/// Clients on every thread that serves clients ask for block status of a volume with many holes all
/// the time. A client that reads gets its answers, with the right data. `src/nbd/stepped.rs` counts
/// the answers to the other clients, independently of thread scheduling.
#[test]
fn reads_end_beside_block_status_that_does_not() {
    let full_stripes = EXTENTS_MAX as u64;
    let source = move |dir: &Path| {
        let size = Sectors(256 * full_stripes + (8 << 11));
        assembled(&array_files_of(dir, Level::Raid5, 3, size), 2048, 4 << 20)
    };
    let server = Server::start(source, Backend::Auto);
    let mut good = server.client();
    let full_stripe = 2 * 65_536;
    (0..full_stripes)
        .for_each(|index| good.write(2 * index * full_stripe, &pattern(index, 4096)).unwrap());
    let over = AtomicBool::new(false);
    let (sent, ready) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let (server, over, sent) = (&server, &over, sent.clone());
            scope.spawn(move || {
                let mut client = server.client();
                let len = client.size().min(u64::from(u32::MAX) / full_stripe * full_stripe);
                let op = Op::BlockStatus { offset: 0, len, one: false };
                for _ in 0..100 {
                    client.send(op, &[]);
                }
                client.receive().1.unwrap();
                sent.send(()).unwrap();
                while !over.load(Ordering::Relaxed) {
                    client.send(op, &[]);
                    client.receive().1.unwrap();
                    assert!(client.extents.len() > 40, "{:?}", client.extents);
                }
            });
        }
        (0..8).for_each(|_| ready.recv().unwrap());
        for index in 0..20 {
            assert!(good.read(2 * index * full_stripe, 4096).unwrap() == pattern(index, 4096));
        }
        over.store(true, Ordering::Relaxed);
    });
    // The clients disconnected with requests outstanding, and gave up their turns.
    assert!(good.map(0, 64 * full_stripe).len() == 64);
    drop(good);
    server.settled();
    assert_eq!(server.stop(), ExitState::Clean);
}

/// Zeroes that the engine has at one time, with the client of each slice.
#[derive(Default)]
struct Zeroes {
    under_way: Vec<(ClientId, Tag)>,
    most: usize,
    slices: Vec<(ClientId, u64)>,
}

struct Watching {
    inner: Engine,
    zeroes: Arc<Mutex<Zeroes>>,
}

impl Core for Watching {
    fn handle(&mut self, now: Time, input: Input) {
        if let Input::Client(request) = &input
            && request.op == RequestOp::WriteZeroes
        {
            let mut zeroes = self.zeroes.lock().unwrap();
            zeroes.under_way.push((request.client, request.tag));
            zeroes.most = zeroes.most.max(zeroes.under_way.len());
            zeroes.slices.push((request.client, request.range.len.0));
        }
        self.inner.handle(now, input);
    }

    fn run(&mut self, now: Time, turns_max: u32, outputs: &mut VecDeque<Output>) -> Turn {
        let turns = self.inner.run(now, turns_max, outputs);
        for output in outputs {
            if let Output::Reply { client, tag, .. } = output {
                self.zeroes.lock().unwrap().under_way.retain(|slice| *slice != (*client, *tag));
            }
        }
        turns
    }

    fn next_wake(&self) -> Option<Time> {
        self.inner.next_wake()
    }

    fn snapshot(&self) -> Snapshot {
        self.inner.snapshot()
    }
}

#[test]
fn zeroes_of_several_clients_are_written_by_turns() {
    let zeroes: Arc<Mutex<Zeroes>> = Arc::default();
    let seen = Arc::clone(&zeroes);
    let make = move |member: &OpenMember| -> Box<dyn Core> {
        Box::new(Watching { inner: engine_of(member), zeroes })
    };
    let server = Server::start(core(make, 1024, 1 << 20), Backend::Auto);
    let mut clients: Vec<_> = (0..4).map(|_| server.client()).collect();
    let op = Op::WriteZeroes { offset: 0, len: 64 * MIB, fua: false, no_hole: true, fast: false };
    for index in 0..4 * 4 {
        clients[index % 4].send(op, &[]);
    }
    // A client that disconnects in the middle gives up its turn.
    drop(clients.pop());
    for client in &mut clients {
        (0..4).for_each(|_| drop(client.receive().1.unwrap()));
        assert_eq!(client.read(0, 4096).unwrap(), vec![0; 4096]);
    }
    drop(clients);
    server.settled();
    assert_eq!(server.stop(), ExitState::Clean);
    let seen = seen.lock().unwrap();
    let slices = &seen.slices;
    assert!(seen.most <= TURNS_MAX, "{} at one time", seen.most);
    assert!(slices.iter().all(|(_, len)| *len <= 4 << 20), "{slices:?}");
    assert!(slices.len() >= 3 * 4 * 16, "{} slices", slices.len());
    // Between the first slice of the last client and the last slice of the first one, all take
    // turns.
    let mut order: Vec<ClientId> = Vec::new();
    slices.iter().for_each(|(client, _)| {
        if !order.contains(client) {
            order.push(*client);
        }
    });
    let last_of = |client: ClientId| slices.iter().rposition(|slice| slice.0 == client).unwrap();
    let first_of = |client: ClientId| slices.iter().position(|slice| slice.0 == client).unwrap();
    order.retain(|client| last_of(*client) > slices.len() / 2);
    assert_eq!(order.len(), 3);
    let begin = order.iter().map(|client| first_of(*client)).max().unwrap();
    let end = order.iter().map(|client| last_of(*client)).min().unwrap();
    assert!(end > begin + 30, "together from {begin} to {end}");
    // A worker may be late to ask for a client's next turn, so shares are compared, not single
    // turns.
    for client in &order {
        let had = slices[begin..end].iter().filter(|slice| slice.0 == *client).count();
        assert!(had * 2 >= (end - begin) / 3, "{client:?} had {had} of {}", end - begin);
    }
}
