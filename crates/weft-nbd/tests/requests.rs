//! Tests of requests that a server carries out, refuses or gives up on; refused ones leave it in
//! step.

mod common;

use common::{Server, client_flags, hex, info_data, option, request, show};
use weft_nbd::{
    CloseReason, ExportInfo, NbdRequest, Op, ServerConnection, ServerEvent, TransmissionFlags,
};

const SIZE: u64 = 1 << 30;
const GOOD: u64 = 0x600d;

/// Sends a valid read of the first byte and checks the answer: the server is in step.
fn expect_in_step(server: &mut Server, structured: bool, after: &str) {
    server.events.clear();
    server.receive(&request(0, 0, GOOD, 0, 1));
    let op = Op::Read { offset: 0, len: 1, df: false };
    assert_eq!(server.events, [ServerEvent::Request(NbdRequest { cookie: GOOD, op })], "{after}");
    let expected = if structured {
        "668e33ef 0001 0001 000000000000600d 00000009 0000000000000000 00"
    } else {
        "67446698 00000000 000000000000600d 00"
    };
    assert_eq!(show(&server.take_sent()), show(&hex(expected)), "{after}");
}

#[test]
fn refused_requests_are_answered_and_leave_the_stream_in_step() {
    let max = 32 << 20;
    // (name, command, flags, offset, length, error; structured error)
    let table = [
        ("read beyond the end", 0, 0, SIZE, 1, 22, 22),
        ("read wrapping around", 0, 0, u64::MAX, 2, 22, 22),
        ("read too long", 0, 0, 0, max + 1, 22, 75),
        ("read with an unknown flag", 0, 0x80, 0, 1, 22, 22),
        ("read with no-hole", 0, 0x2, 0, 1, 22, 22),
        ("write beyond the end", 1, 0, SIZE - 1, 2, 28, 28),
        ("write wrapping around", 1, 0, u64::MAX, 2, 28, 28),
        ("write too long", 1, 0, 0, max + 1, 22, 22),
        ("write as long as is skipped", 1, 0, 0, 64 << 20, 22, 22),
        ("write with an unknown flag", 1, 0x8000, 0, 4096, 22, 22),
        ("write with DF", 1, 0x4, 0, 100, 22, 22),
        ("flush with an offset", 3, 0, 1, 0, 22, 22),
        ("flush with a length", 3, 0, 0, 1, 22, 22),
        ("trim beyond the end", 4, 0, SIZE, 1, 22, 22),
        ("cache beyond the end", 5, 0, SIZE, 1, 22, 22),
        ("zeroes beyond the end", 6, 0, SIZE, 1, 28, 28),
        ("fast zeroes, not announced", 6, 0x10, 0, 1, 22, 22),
        ("block status, not agreed on", 7, 0, 0, 1, 22, 22),
        ("block status, one extent", 7, 0x8, 0, 1, 22, 22),
        ("resize", 8, 0, 0, 1, 22, 22),
        ("unknown command", 0xffff, 0xffff, u64::MAX, u32::MAX, 22, 22),
    ];
    for structured in [false, true] {
        let mut server = Server::with_disk(SIZE).open(structured);
        for (name, command, flags, offset, len, simple_error, chunk_error) in table {
            server.receive(&request(command, flags, 7, offset, len));
            if command == 1 {
                assert_eq!(server.take_sent(), b"", "{name}: not before its payload is there");
                assert_eq!(server.connection.payload_remaining(), 0, "{name}");
                // A payload that looks like requests is still payload.
                let mut payload = request(2, 0, 0, 0, 0);
                payload.resize(len as usize, 0x25);
                server.receive(&payload);
            }
            assert!(server.events.is_empty(), "{name}");
            let expected = if structured {
                format!("668e33ef 0001 8001 0000000000000007 00000006 {chunk_error:08x} 0000")
            } else {
                format!("67446698 {simple_error:08x} 0000000000000007")
            };
            assert_eq!(show(&server.take_sent()), show(&hex(&expected)), "{name}");
            expect_in_step(&mut server, structured, name);
            server.events.clear();
        }
    }
}

#[test]
fn read_only_exports_refuse_writes_with_eperm() {
    for structured in [false, true] {
        let flags = ExportInfo::DEFAULT_FLAGS | TransmissionFlags::READ_ONLY;
        let export = ExportInfo::new("disk", SIZE).unwrap().with_flags(flags);
        let mut server = Server::new(vec![export]).open(structured);
        for (command, offset, len) in [(1, 0, 512), (1, SIZE, 512), (1, 0, 0), (4, 0, 1), (6, 0, 1)]
        {
            server.receive(&request(command, 0, 7, offset, len));
            if command == 1 {
                server.receive(&vec![0; len as usize]);
            }
            let expected = if structured {
                "668e33ef 0001 8001 0000000000000007 00000006 00000001 0000"
            } else {
                "67446698 00000001 0000000000000007"
            };
            assert!(server.events.is_empty());
            assert_eq!(show(&server.take_sent()), show(&hex(expected)));
            expect_in_step(&mut server, structured, "EPERM");
            server.events.clear();
        }
    }
}

#[test]
fn zero_bytes_long_requests_succeed_without_the_driver() {
    for structured in [false, true] {
        let mut server = Server::with_disk(SIZE).open(structured);
        for (command, offset) in [(0, 0), (0, SIZE), (1, 5), (1, SIZE), (4, 0), (6, SIZE)] {
            server.receive(&request(command, 0, 7, offset, 0));
            let expected = if structured && command == 0 {
                "668e33ef 0001 0000 0000000000000007 00000000"
            } else {
                "67446698 00000000 0000000000000007"
            };
            assert!(server.events.is_empty());
            assert_eq!(show(&server.take_sent()), show(&hex(expected)));
            expect_in_step(&mut server, structured, "nothing");
            server.events.clear();
        }
    }
}

#[test]
fn flags_reach_the_driver() {
    let flags = ExportInfo::DEFAULT_FLAGS
        | TransmissionFlags::SEND_FAST_ZERO
        | TransmissionFlags::SEND_TRIM
        | TransmissionFlags::SEND_CACHE;
    let export = ExportInfo::new("disk", SIZE).unwrap().with_flags(flags);
    let (offset, short, len) = (4096, 512, 512);
    let zeroes = |fua, no_hole, fast| Op::WriteZeroes { offset, len, fua, no_hole, fast };
    for (command, flags, op) in [
        (0, 0x0, Op::Read { offset, len: short, df: false }),
        (0, 0x4, Op::Read { offset, len: short, df: true }),
        (0, 0x5, Op::Read { offset, len: short, df: true }),
        (1, 0x0, Op::Write { offset, len: short, fua: false }),
        (1, 0x1, Op::Write { offset, len: short, fua: true }),
        (4, 0x1, Op::Trim { offset, len, fua: true }),
        (5, 0x0, Op::Cache { offset, len }),
        (5, 0x1, Op::Cache { offset, len }),
        (6, 0x0, zeroes(false, false, false)),
        (6, 0x1, zeroes(true, false, false)),
        (6, 0x2, zeroes(false, true, false)),
        (6, 0x10, zeroes(false, false, true)),
        (6, 0x13, zeroes(true, true, true)),
    ] {
        let mut server = Server::new(vec![export.clone()]).open(true);
        server.receive(&request(command, flags, 9, offset, short));
        assert_eq!(server.events, [ServerEvent::Request(NbdRequest { cookie: 9, op })]);
        let payload = if command == 1 { 512 } else { 0 };
        assert_eq!(server.connection.payload_remaining(), payload);
    }
    let mut server = Server::new(vec![export]).open(true);
    server.receive(&request(3, 0x1, 9, 0, 0));
    assert_eq!(server.events, [ServerEvent::Request(NbdRequest { cookie: 9, op: Op::Flush })]);
}

#[test]
fn payload_is_the_drivers() {
    let mut server = Server::with_disk(4096).open(false);
    let connection = &mut server.connection;
    let write = request(1, 0, 3, 8, 100);
    let (count, event) = connection.input(&[&write[..], &[7; 100]].concat());
    assert_eq!(count, 28, "not a byte of payload is taken");
    let op = Op::Write { offset: 8, len: 100, fua: false };
    assert_eq!(event, Some(ServerEvent::Request(NbdRequest { cookie: 3, op })));
    assert_eq!(connection.payload_remaining(), 100);
    connection.payload_consumed(0);
    connection.payload_consumed(99);
    assert_eq!(connection.payload_remaining(), 1);
    connection.payload_consumed(1);
    assert_eq!(connection.payload_remaining(), 0);
    connection.payload_consumed(0);
    let (count, event) = connection.input(&request(3, 0, 4, 0, 0));
    assert_eq!((count, event.is_some()), (28, true));
}

#[test]
#[should_panic(expected = "the payload of a write was not taken")]
fn forgotten_payload_is_a_bug_of_the_driver() {
    let mut server = Server::with_disk(4096).open(false);
    let _ = server.connection.input(&request(1, 0, 3, 8, 100));
    let _ = server.connection.input(&[0]);
}

#[test]
fn requests_that_cannot_be_skipped_end_the_session() {
    for (input, reason) in [
        (
            request(1, 0, 7, 0, (64 << 20) + 1),
            CloseReason::PayloadTooLong { len: (64 << 20) + 1, most: 64 << 20 },
        ),
        (
            request(1, 0, 7, 0, u32::MAX),
            CloseReason::PayloadTooLong { len: u32::MAX.into(), most: 64 << 20 },
        ),
        (vec![0; 28], CloseReason::RequestMagic { found: 0 }),
        // Extended headers were not agreed on.
        (hex("21e41c71").repeat(8), CloseReason::RequestMagic { found: 0x21e4_1c71 }),
        // The client sends an option, as if the handshake went on.
        (option(3, &[0; 12]), CloseReason::RequestMagic { found: 0x4948_4156 }),
    ] {
        for structured in [false, true] {
            let mut server = Server::with_disk(SIZE).open(structured);
            server.receive(&input);
            assert_eq!(server.events, [ServerEvent::Close(reason)]);
            assert!(server.connection.is_closed());
            server.receive(&request(0, 0, 7, 0, 1));
            assert_eq!(server.take_sent(), b"");
            assert_eq!(server.events.len(), 1);
        }
    }
}

#[test]
fn disconnect_leaves_open_requests_to_be_answered() {
    for flags in [0, 0xffff] {
        let mut server = Server::with_disk(SIZE).open(true);
        let (_, event) = server.connection.input(&request(3, 0, 5, 0, 0));
        let Some(ServerEvent::Request(flush)) = event else { panic!("{event:?}") };
        server.receive(&request(2, flags, 0, 1, 1));
        assert_eq!(server.events, [ServerEvent::Disconnect]);
        server.connection.reply(&flush, Ok(()));
        assert_eq!(show(&server.take_sent()), show(&hex("67446698 00000000 0000000000000005")));
    }
}

#[test]
fn stopping_server_refuses_requests_with_eshutdown() {
    let mut server = Server::with_disk(SIZE).open(false);
    server.connection.begin_shutdown();
    for (command, len) in [(0, 1), (1, 100), (3, 0), (4, 1), (6, 1)] {
        server.receive(&request(command, 0, 7, 0, len));
        if command == 1 {
            server.receive(&[0; 100]);
        }
        assert_eq!(show(&server.take_sent()), show(&hex("67446698 0000006c 0000000000000007")));
    }
    server.receive(&request(2, 0, 7, 0, 0));
    assert_eq!(server.events, [ServerEvent::Disconnect]);
}

#[test]
fn payload_limit_of_4_gib_keeps_replies_countable() {
    let block_sizes = weft_nbd::BlockSizes::new(1, 4096, u32::MAX).unwrap();
    let export = ExportInfo::new("disk", 1 << 40).unwrap().with_block_sizes(block_sizes);
    let mut server = Server::new(vec![export]).open(true);
    server.receive(&request(0, 0, 7, 0, u32::MAX - 7));
    assert!(server.events.is_empty());
    let op = Op::Read { offset: 0, len: u32::MAX - 8, df: false };
    let header = server.connection.reply_header(&NbdRequest { cookie: 7, op }, Ok(()));
    assert_eq!(header[16..20], u32::MAX.to_be_bytes());
}

#[test]
fn requests_hold_no_memory() {
    let mut server = Server::with_disk(1 << 20).open(true);
    server.take_sent();
    let before = server.connection.memory_bytes();
    for cookie in 0..10_000 {
        server.receive(&request(0, 0, cookie, 0, 512));
        server.receive(&request(1, 0, cookie, 0, 512));
        server.receive(&[1; 512]);
        server.take_sent();
    }
    assert_eq!(server.connection.memory_bytes(), before);
}

#[test]
#[should_panic(expected = "a successful read is answered with data")]
fn read_without_data_is_a_bug_of_the_driver() {
    let mut server = Server::with_disk(4096).open(true);
    let op = Op::Read { offset: 0, len: 1, df: false };
    server.connection.reply(&NbdRequest { cookie: 1, op }, Ok(()));
}

#[test]
fn failed_reads_are_answered_by_the_connection() {
    for (structured, expected) in [
        (false, "67446698 00000005 0000000000000001"),
        (true, "668e33ef 0001 8001 0000000000000001 00000006 00000005 0000"),
    ] {
        let mut server = Server::with_disk(4096).open(structured);
        let op = Op::Read { offset: 0, len: 1, df: false };
        server.connection.reply(&NbdRequest { cookie: 1, op }, Err(weft_nbd::NbdError::Io));
        assert_eq!(show(&server.take_sent()), show(&hex(expected)));
    }
}

/// Misbehaviour of clients that was seen or thought of, one session each; none makes the server
/// panic, and none is followed further than the document allows.
#[test]
fn rude_sequences() {
    let go = option(7, &info_data(b"disk", &[3]));
    let flags = client_flags();
    let sessions: Vec<(&str, Vec<Vec<u8>>, bool)> = vec![
        ("an HTTP request", vec![b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()], true),
        ("a TLS hello", vec![hex("16030100c8010000c40303")], true),
        ("requests before flags", vec![request(0, 0, 1, 0, 1)], true),
        ("requests before GO", vec![flags.to_vec(), request(0, 0, 1, 0, 1)], true),
        ("GO twice", vec![flags.to_vec(), go.clone(), go.clone()], true),
        ("flags twice", vec![flags.to_vec(), flags.to_vec(), go.clone()], true),
        ("oldstyle silence", vec![], false),
        ("half an option", vec![flags.to_vec(), go[..20].to_vec()], false),
        ("all at once", vec![[&flags[..], &go, &request(0, 0, 1, 0, 1)].concat()], false),
        ("disconnect at once", vec![[&flags[..], &go, &request(2, 0, 1, 0, 0)].concat()], true),
        ("a write without end", vec![flags.to_vec(), go, request(1, 0, 1, 0, 1 << 20)], false),
        ("STRUCTURED_REPLY many times", vec![flags.to_vec(), option(8, &[]).repeat(10_000)], false),
        ("ABORT, then more", vec![flags.to_vec(), option(2, &[]), option(3, &[])], true),
        ("byte order swapped", vec![vec![3, 0, 0, 0]], true),
    ];
    for (name, pieces, closed) in sessions {
        let mut server = Server::with_disk(1 << 20);
        for piece in &pieces {
            server.receive(piece);
        }
        assert_eq!(server.connection.is_closed(), closed, "{name}");
    }
}

#[test]
fn a_server_without_exports_can_be_asked() {
    let mut connection = ServerConnection::new([].into(), None);
    let input = [&client_flags()[..], &option(3, &[]), &option(7, &info_data(b"", &[]))].concat();
    assert_eq!(connection.input(&input), (input.len(), None));
    let sent = connection.output();
    assert_eq!(sent[18 + 12..][..4], [0, 0, 0, 1]);
    assert_eq!(sent[38 + 12..][..4], [0x80, 0, 0, 6]);
}
