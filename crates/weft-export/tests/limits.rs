//! Test of a process without descriptors: it accepts no new client and serves all others (F20).
//!
//! The test is in a file of its own because the limit applies to the whole process.

mod common;

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use common::{Server, bare, pattern};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use weft_export::ExitState;
use weft_runtime::Backend;

#[test]
fn without_descriptors_old_clients_are_served_and_new_ones_wait() {
    let server = Server::start(bare("8M"), Backend::Auto);
    let mut client = server.client();
    let old = getrlimit(Resource::Nofile);
    let open = common::descriptors() as u64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(open + 3), ..old }).unwrap();

    // Each connection takes one descriptor here and one in the server, until none are left.
    let mut waiting = Vec::new();
    while let Ok(stream) = UnixStream::connect(server.socket()) {
        waiting.push(stream);
    }
    let bytes = pattern(1, 4096);
    for index in 0..100 {
        client.write(index * 4096, &bytes).unwrap();
    }
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(client.read(0, 4096).unwrap(), bytes);

    setrlimit(Resource::Nofile, old).unwrap();
    let start = Instant::now();
    let mut late = server.client();
    assert_eq!(late.read(4096, 4096).unwrap(), bytes);
    assert!(start.elapsed() < Duration::from_secs(2));
    drop((client, late, waiting));
    server.settled();
    assert_eq!(server.stop(), ExitState::Clean);
}
