//! Tests of the signs of life of a server with an engine that hangs, and with one that panics.

mod common;

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use common::{Server, core, engine_of};
use weft_engine::{Engine, Input, Output, RequestOp, Snapshot, Turn};
use weft_export::{ExitState, Listen, NbdListen, Supervisor};
use weft_nbd::Op;
use weft_runtime::devices::OpenMember;
use weft_runtime::serve::poison::Core;
use weft_units::Time;

/// An engine that hangs at a flush until it is released, and panics at a write of zeroes.
struct Hanging {
    inner: Engine,
    release: Receiver<()>,
}

impl Core for Hanging {
    fn handle(&mut self, now: Time, input: Input) {
        if let Input::Client(request) = &input {
            match request.op {
                RequestOp::Flush => self.release.recv().unwrap(),
                RequestOp::WriteZeroes => panic!("planted"),
                _ => {}
            }
        }
        self.inner.handle(now, input);
    }

    fn run(&mut self, now: Time, turns_max: u32, outputs: &mut VecDeque<Output>) -> Turn {
        self.inner.run(now, turns_max, outputs)
    }

    fn next_wake(&self) -> Option<Time> {
        self.inner.next_wake()
    }

    fn snapshot(&self) -> Snapshot {
        self.inner.snapshot()
    }
}

/// A server with a watchdog of 200 ms, its messages, and what releases its engine.
fn watched() -> (Server, Receiver<String>, Sender<()>) {
    let (release, released) = channel();
    let (tell, told) = channel();
    let make = move |member: &OpenMember| -> Box<dyn Core> {
        Box::new(Hanging { inner: engine_of(member), release: released })
    };
    let listen = |path: &std::path::Path| vec![Listen::Nbd(NbdListen::unix(path.join("nbd")))];
    let server = Server::start_changed(core(make, 1024, 1 << 20), listen, |options| {
        options.supervisor = Some(Supervisor {
            tell: Box::new(move |text| tell.send(text.to_owned()).is_ok()),
            watchdog: Some(Duration::from_millis(200)),
        });
    });
    (server, told, release)
}

/// Number of signs of life within half a second.
fn signs_of_life(told: &Receiver<String>) -> usize {
    let start = Instant::now();
    let mut count = 0;
    while let Some(left) = Duration::from_millis(500).checked_sub(start.elapsed()) {
        count += usize::from(told.recv_timeout(left).is_ok_and(|text| text == "WATCHDOG=1"));
    }
    count
}

#[test]
fn a_server_with_an_engine_that_hangs_sends_no_sign_of_life() {
    let (server, told, release) = watched();
    // Clients go to workers in turn; each of them can hang the others.
    let mut clients: Vec<_> = (0..4).map(|_| server.client()).collect();
    for client in &mut clients {
        assert!(signs_of_life(&told) >= 2);
        client.send(Op::Flush, &[]);
        signs_of_life(&told);
        assert_eq!(signs_of_life(&told), 0);
        release.send(()).unwrap();
        client.receive().1.unwrap();
    }
    assert!(signs_of_life(&told) >= 2);
    drop(clients);
    assert_eq!(server.stop(), ExitState::Clean);
}

#[test]
fn a_server_that_was_poisoned_says_so() {
    let (server, told, _release) = watched();
    let mut client = server.client();
    let op = Op::WriteZeroes { offset: 0, len: 4096, fua: false, no_hole: true, fast: false };
    client.send(op, &[]);
    let deadline = Instant::now() + Duration::from_secs(20);
    let is_line =
        |text: &str| text == "STATUS=poisoned by a panic: nothing is acknowledged any more";
    while !told.recv_timeout(Duration::from_secs(20)).is_ok_and(|text| is_line(&text)) {
        assert!(Instant::now() < deadline);
    }
    assert!(matches!(server.stop(), ExitState::Poisoned(_)));
}
