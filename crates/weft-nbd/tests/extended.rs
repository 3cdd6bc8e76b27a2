//! Tests of extended headers, byte by byte as the protocol document gives them, and of their
//! misuse.

mod common;

use common::client::Client;
use common::{Server, client_flags, extended, hex, info_data, option, request, show};
use weft_nbd::{
    ClientError, CloseReason, ExportInfo, Goal, NbdError, Op, RequestError, ServerEvent,
    TransmissionFlags,
};

/// Export size of 1 TiB, all zeroes behind the first MiB.
const SIZE: u64 = 1 << 40;

fn server() -> Server {
    Server::with_disk(SIZE).open_after(&[11])
}

fn answer(server: &mut Server, bytes: &[u8]) -> String {
    server.receive(bytes);
    show(&server.take_sent())
}

#[test]
fn requests_and_replies_are_those_of_the_document() {
    let mut server = server();
    server.disk[4096..4100].copy_from_slice(b"data");
    let write =
        hex("21e41c71 0021 0001 00000000000000a1 0000000000001000 0000000000000004 \"DATA\"");
    let done = "6e8a278c 0001 0000 00000000000000a1 0000000000001000 0000000000000000";
    assert_eq!(answer(&mut server, &write), show(&hex(done)));
    assert_eq!(&server.disk[4096..4100], b"DATA");

    let read = hex("21e41c71 0000 0000 00000000000000a2 0000000000001000 0000000000000004");
    let data = "6e8a278c 0001 0001 00000000000000a2 0000000000001000 000000000000000c \
                0000000000001000 \"DATA\"";
    assert_eq!(answer(&mut server, &read), show(&hex(data)));

    // A request for half of the export.
    let zeroes = hex("21e41c71 0001 0006 00000000000000a3 0000000000100000 0000008000000000");
    let done = "6e8a278c 0001 0000 00000000000000a3 0000000000100000 0000000000000000";
    assert_eq!(answer(&mut server, &zeroes), show(&hex(done)));

    let status = hex("21e41c71 0000 0007 00000000000000a4 0000000000001000 000000fffffff000");
    let extents = "6e8a278c 0001 0006 00000000000000a4 0000000000001000 0000000000000028 \
                   00000001 00000002 0000000000000004 0000000000000000 \
                   000000ffffffeffc 0000000000000003";
    assert_eq!(answer(&mut server, &status), show(&hex(extents)));

    let beyond = hex("21e41c71 0000 0004 00000000000000a5 0000000000001000 0000010000000000");
    let error = "6e8a278c 0001 8001 00000000000000a5 0000000000001000 0000000000000006 \
                 00000016 0000";
    assert_eq!(answer(&mut server, &beyond), show(&hex(error)));

    server.sparse = true;
    let hole = hex("21e41c71 0000 0000 00000000000000a6 0000000000200000 0000000000001000");
    let zero = "6e8a278c 0001 0002 00000000000000a6 0000000000200000 000000000000000c \
                0000000000200000 00001000";
    assert_eq!(answer(&mut server, &hole), show(&hex(zero)));
}

#[test]
fn misuse_is_refused_and_leaves_the_stream_in_step() {
    let mut server = server();
    let good = extended(3, 0, 0x600d, 0, 0);
    let good_reply =
        show(&hex("6e8a278c 0001 0000 000000000000600d 0000000000000000 0000000000000000"));
    let tail = |len: u64| vec![0x21; usize::try_from(len).unwrap()];
    // (name, command, flags, length, payload, error)
    for (name, command, flags, len, payload, error) in [
        ("read longer than any payload", 0, 0, (32 << 20) + 1, false, 75),
        ("read of a TiB", 0, 0, SIZE, false, 75),
        ("read with payload", 0, 0x20, 512, true, 22),
        ("write too long", 1, 0x20, (32 << 20) + 1, true, 22),
        ("trim with payload", 4, 0x20, 64, true, 22),
        ("flush with payload", 3, 0x20, 64, true, 22),
        ("block status with payload, not offered", 7, 0x20, 12, true, 22),
        ("zeroes beyond the end", 6, 0, SIZE + 1, false, 28),
        ("cache that wraps around", 5, 0, u64::MAX, false, 22),
    ] {
        server.receive(&extended(command, flags, 7, 0, len));
        if payload {
            assert_eq!(server.take_sent(), b"", "{name}: not before its payload is there");
            server.receive(&tail(len));
        }
        let expected = format!(
            "6e8a278c 0001 8001 0000000000000007 0000000000000000 0000000000000006 {error:08x} 0000"
        );
        assert_eq!(show(&server.take_sent()), show(&hex(&expected)), "{name}");
        assert_eq!(answer(&mut server, &good), good_reply, "{name}");
        server.events.clear();
    }
    // A write without the payload flag has the same meaning.
    let mut bytes = extended(1, 0, 8, 512, 4);
    bytes.extend(b"data");
    let done = "6e8a278c 0001 0000 0000000000000008 0000000000000200 0000000000000000";
    assert_eq!(answer(&mut server, &bytes), show(&hex(done)));
    for (bytes, reason) in [
        (
            extended(1, 0x20, 7, 0, 1 << 40),
            CloseReason::PayloadTooLong { len: 1 << 40, most: 64 << 20 },
        ),
        (
            extended(0, 0x20, 7, 0, u64::MAX),
            CloseReason::PayloadTooLong { len: u64::MAX, most: 64 << 20 },
        ),
        (
            [request(3, 0, 7, 0, 0), vec![0; 4]].concat(),
            CloseReason::RequestMagic { found: 0x2560_9513 },
        ),
    ] {
        let mut server = self::server();
        server.receive(&bytes);
        assert_eq!(server.events, [ServerEvent::Close(reason)]);
    }
}

#[test]
fn options_are_agreed_on_once() {
    let reply = |option: u32, kind: &str, text: &str| {
        let head = format!("0003e889045565a9 {option:08x} {kind} {:08x}", text.len());
        [hex(&head), text.as_bytes().to_vec()].concat()
    };
    let mut server = Server::with_disk(SIZE);
    server.receive(&client_flags());
    let _ = server.take_sent();
    for (option, data, kind, text) in [
        (11, &b"x"[..], "80000003", "option takes no data"),
        (8, b"", "00000001", ""),
        (11, b"", "00000001", ""),
        (11, b"", "80000003", "extended headers were agreed on already"),
        (8, b"", "8000000a", "extended headers were agreed on"),
    ] {
        server.receive(&common::option(option, data));
        assert_eq!(
            show(&server.take_sent()),
            show(&reply(option, kind, text)),
            "{option} {data:?}"
        );
    }
    server.receive(&option(7, &info_data(b"disk", &[])));
    let _ = server.take_sent();
    let done = "6e8a278c 0001 0000 0000000000000001 0000000000000000 0000000000000000";
    assert_eq!(answer(&mut server, &extended(3, 0, 1, 0, 0)), show(&hex(done)));
}

/// Moves bytes both ways until both sides are silent.
fn converse(client: &mut Client, server: &mut Server) {
    loop {
        let (to_client, to_server) = (server.take_sent(), client.take_sent());
        if to_client.is_empty() && to_server.is_empty() {
            return;
        }
        client.receive(&to_client);
        server.receive(&to_server);
    }
}

#[test]
fn a_client_asks_for_long_ranges_where_the_server_takes_them() {
    let open = || Client::extended(Goal::Open("disk".into()));
    let mut server = Server::with_disk(SIZE);
    let mut client = open();
    converse(&mut client, &mut server);
    assert!(client.connection.as_ref().unwrap().is_extended());
    let half = SIZE / 2;
    let trim = Op::Trim { offset: half, len: half, fua: true };
    client.request(1, trim, &[]).unwrap();
    client.request(2, Op::BlockStatus { offset: 0, len: SIZE, one: false }, &[]).unwrap();
    client.request(3, Op::Cache { offset: 0, len: SIZE }, &[]).unwrap();
    let long = Op::Trim { offset: half, len: half + 1, fua: true };
    assert_eq!(client.request(4, long, &[]), Err(RequestError::Refused(NbdError::Invalid)));
    converse(&mut client, &mut server);
    assert_eq!(client.done, [(1, Ok(())), (2, Ok(())), (3, Ok(()))]);
    let told: u64 = client.extents[&2].iter().map(|extent| extent.len).sum();
    assert_eq!(told, SIZE);

    // Without extended headers a trim of this length is refused before it is sent.
    let mut client = Client::with_allocation(Goal::Open("disk".into()));
    converse(&mut client, &mut Server::with_disk(SIZE));
    assert_eq!(client.request(1, trim, &[]), Err(RequestError::Refused(NbdError::Invalid)));
}

#[test]
fn a_server_without_them_is_asked_for_structured_replies() {
    let mut client = Client::extended(Goal::Open("disk".into()));
    client.receive(&hex("\"NBDMAGICIHAVEOPT\" 0003"));
    let asked = hex("00000003 \"IHAVEOPT\" 0000000b 00000000");
    assert_eq!(show(&client.take_sent()), show(&asked));
    client.receive(&hex("0003e889045565a9 0000000b 80000001 00000000"));
    assert_eq!(show(&client.take_sent()), show(&hex("\"IHAVEOPT\" 00000008 00000000")));
}

#[test]
fn replies_that_break_the_rules_end_the_session() {
    let open = || {
        let flags = ExportInfo::DEFAULT_FLAGS | TransmissionFlags::SEND_TRIM;
        let export = ExportInfo::new("disk", SIZE).unwrap().with_flags(flags).with_allocation();
        let mut client = Client::extended(Goal::Open("disk".into()));
        converse(&mut client, &mut Server::new(vec![export]));
        client.request(1, Op::BlockStatus { offset: 512, len: 1024, one: false }, &[]).unwrap();
        let _ = client.take_sent();
        client
    };
    let malformed = |what| ClientError::Malformed { what };
    let header = |kind: &str, offset: &str, len: &str| {
        format!("6e8a278c 0001 {kind} 0000000000000001 {offset} {len}")
    };
    let here = "0000000000000200";
    for (reply, error) in [
        (hex("67446698 00000000 0000000000000001"), ClientError::Magic { found: 0x6744_6698 }),
        (
            hex("668e33ef 0001 0000 0000000000000001 00000000"),
            ClientError::Magic { found: 0x668e_33ef },
        ),
        (
            hex(&header("0000", "0000000000000201", "0000000000000000")),
            malformed("offset of a reply unlike that of its request"),
        ),
        (
            hex(&header("0006", here, "0000000100000008")),
            ClientError::ReplyTooLong { len: (1 << 32) + 8 },
        ),
        (hex(&header("0005", here, "000000000000000c")), malformed("extents of the other headers")),
        (hex(&header("0006", here, "0000000000000010")), malformed("extents of the wrong length")),
        (
            hex(&format!(
                "{} 00000001 00000002 0000000000000400 0000000000000000",
                header("0006", here, "0000000000000018")
            )),
            malformed("another number of extents than it says"),
        ),
        (
            hex(&format!(
                "{} 00000001 00000003 ffffffffffffffff 0000000000000000 0000000000000001 \
                 0000000000000000 0000000000000001 0000000000000000",
                header("0006", here, "0000000000000038")
            )),
            malformed("extents beyond the range asked for"),
        ),
    ] {
        let mut client = open();
        client.receive(&reply);
        assert_eq!(client.failed, Some(error), "{}", show(&reply));
    }
    // A valid reply, to show that the others are refused for their faults.
    let mut client = open();
    client.receive(&hex(&format!(
        "{} 00000001 00000001 0000000000000400 0000000000000003",
        header("0006", here, "0000000000000018")
    )));
    assert_eq!((client.failed, client.done), (None, vec![(1, Ok(()))]));
}
