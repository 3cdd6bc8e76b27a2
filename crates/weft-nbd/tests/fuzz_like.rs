//! Tests of each half against 20,000 mutations of valid sessions (F17), from a fixed seed;
//! `WEFT_FUZZ_SEED=n` sets another seed, as `cargo xtask long fuzz` does.
//!
//! A session passes when nothing panics, when memory stays bounded (checked by the drivers in
//! `common`), and when a session that the server still follows ends politely.

mod common;

use common::client::Client;
use common::{Server, client_flags, extended, info_data, option, request};
use weft_nbd::{Goal, Op};
use weft_testing::fuzz;
use weft_units::rng::Rng;

const MUTATIONS: usize = 20_000;
const SEED: u64 = 0x7765_6674_2d6e_6264;

fn random() -> Rng {
    Rng::new(SEED.wrapping_add(fuzz::seed()))
}

const META: &[u8] = b"\0\0\0\x04disk\0\0\0\x02\0\0\0\x03x:y\0\0\0\x0fbase:allocation";

fn client_bytes(structured: bool, extended_headers: bool) -> Vec<u8> {
    let mut bytes = client_flags().to_vec();
    bytes.extend(option(3, &[]));
    bytes.extend(option(6, &info_data(b"disk", &[1, 2, 3])));
    if structured {
        bytes.extend(option(if extended_headers { 11 } else { 8 }, &[]));
        bytes.extend(option(9, b"\0\0\0\0\0\0\0\x01\0\0\0\x05base:"));
        bytes.extend(option(10, META));
    }
    bytes.extend(option(7, &info_data(b"disk", &[3])));
    if structured && extended_headers {
        bytes.extend(extended(1, 0x21, 1, 512, 64));
        bytes.extend([0x77; 64]);
        bytes.extend(extended(0, 0, 2, 500, 100));
        bytes.extend(extended(6, 2, 3, 0, 1 << 14));
        bytes.extend(extended(7, 0x20, 4, 0, 12));
        bytes.extend([0; 12]);
        bytes.extend(extended(7, 0, 7, 0, 9000));
        return bytes;
    }
    bytes.extend(request(1, 1, 1, 512, 64));
    bytes.extend([0x77; 64]);
    bytes.extend(request(0, 0, 2, 500, 100));
    bytes.extend(request(6, 2, 3, 0, 4096));
    bytes.extend(request(3, 0, 4, 0, 0));
    bytes.extend(request(4, 0, 5, 0, 512));
    bytes.extend(request(0, 0, 6, 0, 4096));
    bytes.extend(request(7, 0, 7, 0, 9000));
    bytes.extend(request(5, 0, 8, 0, 9000));
    bytes
}

/// Makes a few changes of the kinds that find faults: bits, bytes, boundary values, cuts and
/// copies.
fn mutate(random: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..1 + random.index(4) {
        if bytes.is_empty() {
            return;
        }
        let at = random.index(bytes.len());
        let end = (at + 1 + random.index(64)).min(bytes.len());
        match random.index(7) {
            0 => bytes[at] ^= 1 << random.index(8),
            1 => bytes[at] = random.next_u64().to_le_bytes()[0],
            2 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.index(5)],
            3 => bytes[at..end.min(at + 4)].fill(0xff),
            4 => {
                bytes.drain(at..end);
            }
            5 => {
                let copy = bytes[at..end].to_vec();
                let to = random.index(bytes.len());
                bytes.splice(to..to, copy);
            }
            _ => bytes.truncate(at),
        }
    }
}

fn feed(random: &mut Rng, bytes: &[u8], mut receive: impl FnMut(&[u8])) {
    let piece_max = [1, 16, 64, 4096][random.index(4)];
    let mut rest = bytes;
    while !rest.is_empty() {
        let (now, later) = rest.split_at((1 + random.index(piece_max)).min(rest.len()));
        receive(now);
        rest = later;
    }
}

#[test]
fn mutated_clients() {
    let mut random = random();
    let mut outcomes = [0; 2];
    for round in 0..MUTATIONS {
        let mut bytes = client_bytes(round % 2 == 0, round % 4 == 0);
        mutate(&mut random, &mut bytes);
        let mut server = Server::with_disk(1 << 14);
        feed(&mut random, &bytes, |piece| server.receive(piece));
        outcomes[usize::from(server.connection.is_closed())] += 1;
    }
    // Both outcomes are frequent; otherwise the mutations are too mild or too wild to test
    // anything.
    assert!(outcomes.iter().all(|&count| count > MUTATIONS / 20), "{outcomes:?}");
}

#[test]
fn mutated_servers() {
    let mut random = random();
    let mut outcomes = [0; 2];
    for round in 0..MUTATIONS {
        let structured = round % 2 == 0;
        // The messages of a valid server are recorded first, one by one.
        let ops = [
            Op::Read { offset: 0, len: 700, df: false },
            Op::Flush,
            Op::Write { offset: 1, len: 3, fua: true },
            Op::Read { offset: 9000, len: 20, df: structured },
            // Without the context, a client does not even send block status.
            Op::BlockStatus { offset: 0, len: 5000, one: false },
            Op::Cache { offset: 0, len: 5000 },
        ];
        let mut server = Server::with_disk(1 << 14);
        server.sparse = true;
        server.disk[600..4000].fill(7);
        let open = || match structured {
            true if round % 8 == 0 => Client::extended(Goal::Open("disk".into())),
            true => Client::with_allocation(Goal::Open("disk".into())),
            false => Client::new(Goal::Open("disk".into()), false),
        };
        let mut good = open();
        let mut handshake = Vec::new();
        while good.connection.is_none() {
            let bytes = server.take_sent();
            good.receive(&bytes);
            handshake.extend(bytes);
            server.receive(&good.take_sent());
        }
        for (cookie, op) in (1..).zip(ops) {
            let sent = good.request(cookie, op, if cookie == 3 { b"abc" } else { b"" });
            assert_eq!(sent.is_ok(), structured || cookie != 5);
        }
        server.receive(&good.take_sent());
        let mut replies = server.take_sent();
        if round % 4 < 2 {
            mutate(&mut random, &mut replies);
        } else {
            mutate(&mut random, &mut handshake);
        }

        let mut client = open();
        feed(&mut random, &handshake, |piece| client.receive(piece));
        if client.connection.is_some() {
            for (cookie, op) in (1..).zip(ops) {
                // An export changed by mutation may not take the request.
                let _ = client.request(cookie, op, &[]);
            }
        }
        feed(&mut random, &replies, |piece| client.receive(piece));
        outcomes[usize::from(client.failed.is_some())] += 1;
    }
    assert!(outcomes.iter().all(|&count| count > MUTATIONS / 20), "{outcomes:?}");
}

#[test]
fn random_rubbish() {
    let mut random = random();
    for round in 0..MUTATIONS {
        let len = random.index(300);
        let bytes: Vec<u8> = (0..len).map(|_| random.next_u64().to_le_bytes()[3]).collect();
        let mut server = Server::with_disk(4096);
        if round % 2 == 0 {
            server = server.open(round % 4 == 0);
        }
        feed(&mut random, &bytes, |piece| server.receive(piece));
    }
}
