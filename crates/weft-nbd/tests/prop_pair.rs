//! Property tests of the two halves against each other, in all chunkings, and against arbitrary
//! bytes.

mod common;

use common::client::Client;
use common::{Server, client_flags, extended, info_data, option, request};
use proptest::prelude::*;
use weft_nbd::{ExportInfo, Goal, NbdUri, Op};
use weft_units::rng::Rng;

const SIZE: u32 = 1 << 16;

/// Moves bytes in pieces from one side to the other until both are silent.
fn converse(client: &mut Client, server: &mut Server, mut piece: impl FnMut() -> usize) {
    loop {
        let (to_client, to_server) = (server.take_sent(), client.take_sent());
        if to_client.is_empty() && to_server.is_empty() {
            return;
        }
        for (bytes, is_client) in [(to_client, true), (to_server, false)] {
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (now, later) = rest.split_at(piece().clamp(1, rest.len()));
                if is_client {
                    client.receive(now);
                } else {
                    server.receive(now);
                }
                rest = later;
            }
        }
    }
}

fn byte_of(cookie: u64) -> u8 {
    u8::try_from(cookie % 251).unwrap()
}

/// Format of message headers that the client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Headers {
    Simple,
    Structured,
    Extended,
}

const HEADERS: [Headers; 3] = [Headers::Simple, Headers::Structured, Headers::Extended];

/// Opens a session, sends all of `ops` at once and leaves. Every read is compared with a model that
/// applies requests in order, as this server does.
fn session(headers: Headers, ops: &[Op], mut piece: impl FnMut() -> usize) {
    let structured = headers != Headers::Simple;
    let mut server = Server::with_disk(u64::from(SIZE));
    server.sparse = true;
    let goal = Goal::Open(String::new());
    let mut client = match headers {
        Headers::Simple => Client::new(goal, false),
        Headers::Structured => Client::with_allocation(goal),
        Headers::Extended => Client::extended(goal),
    };
    converse(&mut client, &mut server, &mut piece);
    let connection = client.connection.as_ref().unwrap();
    assert_eq!(connection.is_structured(), structured);
    assert_eq!(connection.is_extended(), headers == Headers::Extended);
    let export = client.connection.as_ref().unwrap().export();
    assert_eq!((export.name(), export.has_allocation()), ("disk", structured));

    let mut model = vec![0; SIZE as usize];
    let mut expected = Vec::new();
    let mut statuses = Vec::new();
    let ops: Vec<Op> = ops
        .iter()
        .map(|op| match op {
            Op::BlockStatus { .. } if !structured => Op::Flush,
            op => *op,
        })
        .collect();
    for (cookie, op) in (1..).zip(ops.iter().copied()) {
        let payload = match op {
            Op::Write { len, .. } => vec![byte_of(cookie); len as usize],
            _ => Vec::new(),
        };
        client.request(cookie, op, &payload).unwrap();
        let range = |offset: u64, len: u64| {
            let at = usize::try_from(offset).unwrap();
            at..at + usize::try_from(len).unwrap()
        };
        match op {
            Op::BlockStatus { offset, len, one } => {
                statuses.push((cookie, one, model[range(offset, len)].to_vec()));
            }
            Op::Read { offset, len, .. } => {
                expected.push((cookie, model[range(offset, len.into())].to_vec()));
            }
            Op::Write { offset, len, .. } => {
                model[range(offset, len.into())].fill(byte_of(cookie));
            }
            Op::WriteZeroes { offset, len, .. } => model[range(offset, len)].fill(0),
            _ => {}
        }
    }
    converse(&mut client, &mut server, &mut piece);
    assert_eq!(client.failed, None);
    assert!(client.done.iter().all(|(_, result)| result.is_ok()));
    assert_eq!(client.done.len(), ops.len());
    for (cookie, data) in expected {
        assert_eq!(client.data[&cookie].1, data);
    }
    for (cookie, one, bytes) in statuses {
        let extents = &client.extents[&cookie];
        assert!(!one || extents.len() == 1);
        let mut rest = &bytes[..];
        for extent in extents {
            let (now, later) = rest.split_at(usize::try_from(extent.len).unwrap());
            assert_eq!(extent.zero, now.iter().all(|byte| *byte == 0));
            rest = later;
        }
        assert!(one || rest.is_empty() || extents.len() == weft_nbd::EXTENTS_MAX);
    }
    assert_eq!(server.disk, model);
    client.disconnect();
    converse(&mut client, &mut server, &mut piece);
    assert!(server.connection.is_closed());
}

fn op() -> impl Strategy<Value = Op> {
    let range =
        (0..SIZE).prop_flat_map(|offset| (Just(u64::from(offset)), 1..=(SIZE - offset).min(3000)));
    (0..8, range, any::<bool>(), any::<bool>()).prop_map(|(kind, (offset, len), fua, no_hole)| {
        let long = u64::from(len);
        match kind {
            0 => Op::Flush,
            5 => Op::BlockStatus { offset, len: long, one: fua },
            6 => Op::Cache { offset, len: long },
            7 => Op::Read { offset, len, df: false },
            1 => Op::Read { offset, len, df: false },
            2 => Op::Trim { offset, len: long, fua },
            3 => Op::Write { offset, len, fua },
            _ => Op::WriteZeroes { offset, len: long, fua, no_hole, fast: false },
        }
    })
}

#[test]
fn byte_by_byte_and_all_at_once() {
    let ops = [
        Op::Write { offset: 100, len: 300, fua: true },
        Op::Read { offset: 0, len: 512, df: false },
        Op::WriteZeroes { offset: 150, len: 10, fua: false, no_hole: true, fast: false },
        Op::Flush,
        Op::BlockStatus { offset: 0, len: 2000, one: false },
        Op::BlockStatus { offset: 120, len: 35, one: true },
        Op::Cache { offset: 0, len: SIZE.into() },
        Op::Read { offset: 140, len: 40, df: false },
        Op::Read { offset: 1000, len: 400, df: false },
        Op::Read { offset: u64::from(SIZE) - 1, len: 1, df: false },
    ];
    for headers in HEADERS {
        for piece in [1, 2, 3, 7, 27, 28, 29, 31, 32, 33, 100, usize::MAX] {
            session(headers, &ops, || piece);
        }
    }
}

#[test]
fn list_and_info_in_every_piece_size() {
    for piece in 1..60 {
        let exports: Vec<_> = (0..20)
            .map(|index| ExportInfo::new(format!("export {index}"), index).unwrap())
            .collect();
        let mut server = Server::new(exports.clone());
        let mut client = Client::new(Goal::List, true);
        converse(&mut client, &mut server, || piece);
        let names: Vec<_> = client.listed.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, exports.iter().map(ExportInfo::name).collect::<Vec<_>>());
        assert!(server.connection.is_closed());

        let mut server = Server::new(exports.clone());
        let mut client = Client::new(Goal::Info("export 7".into()), true);
        converse(&mut client, &mut server, || piece);
        let mut flags = exports[7].flags();
        flags.0 |= 1 << 7;
        assert_eq!(client.finished, Some(Some(exports[7].clone().with_flags(flags))));
        assert!(server.connection.is_closed());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_session_in_any_chunking(
        headers in prop::sample::select(&HEADERS[..]),
        ops in prop::collection::vec(op(), 0..30),
        seed in 1..u64::MAX,
        piece_max in 1..5000_usize,
    ) {
        let mut random = Rng::new(seed);
        session(headers, &ops, || 1 + random.index(piece_max));
    }

    #[test]
    fn server_sends_the_same_however_its_input_is_split(
        bytes in prop::collection::vec(
            prop_oneof![
                Just(option(8, &[])), Just(option(11, &[])), Just(option(3, &[])), Just(option(42, b"abc")),
                Just(option(6, &info_data(b"disk", &[3]))), Just(option(6, b"rubbish")),
                Just(option(10, b"\0\0\0\x04disk\0\0\0\x01\0\0\0\x0fbase:allocation")),
                Just(option(9, b"\0\0\0\0\0\0\0\0")), Just(option(10, b"rubbish")),
                Just(option(7, &info_data(b"disk", &[3]))),
                (0..9_u16, 0..32_u16, any::<u64>(), 0..2 * u64::from(SIZE), 0..600_u32)
                    .prop_map(|(command, flags, cookie, offset, len)| {
                        let mut bytes = request(command, flags, cookie, offset, len);
                        if command == 1 {
                            bytes.resize(28 + len as usize, 0x5a);
                        }
                        bytes
                    }),
                (0..9_u16, 0..64_u16, any::<u64>(), 0..2 * u64::from(SIZE), 0..600_u64)
                    .prop_map(|(command, flags, cookie, offset, len)| {
                        let mut bytes = extended(command, flags, cookie, offset, len);
                        if command == 1 || flags & 0x20 != 0 {
                            bytes.resize(32 + usize::try_from(len).unwrap(), 0x5a);
                        }
                        bytes
                    }),
            ],
            0..20,
        ),
        seed in 1..u64::MAX,
    ) {
        let mut bytes = bytes.concat();
        bytes.splice(0..0, client_flags());
        let mut whole = Server::with_disk(u64::from(SIZE));
        whole.receive(&bytes);
        let mut split = Server::with_disk(u64::from(SIZE));
        let mut random = Rng::new(seed);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at((1 + random.index(40)).min(rest.len()));
            split.receive(now);
            rest = later;
        }
        prop_assert_eq!(whole.take_sent(), split.take_sent());
        prop_assert_eq!(whole.events, split.events);
        prop_assert_eq!(whole.disk, split.disk);
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..2000),
        structured in any::<bool>(),
    ) {
        Server::with_disk(4096).receive(&bytes);
        Server::with_disk(4096).open(structured).receive(&bytes);
        Client::new(Goal::List, structured).receive(&bytes);
        Client::new(Goal::Open("disk".into()), structured).receive(&bytes);
    }

    #[test]
    fn uris_survive_printing(text in "(nbd|nbd\\+unix)://[a-z0-9.:@\\[\\]]{0,8}(/[ -~]{0,12})?(\\?socket=[ -~]{0,9})?") {
        if let Ok(uri) = text.parse::<NbdUri>() {
            prop_assert_eq!(uri.to_string().parse(), Ok(uri));
        }
    }
}
