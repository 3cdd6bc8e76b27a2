//! Tests of the client against servers that are good, old, or hostile.

mod common;

use common::client::Client;
use common::{hex, show};
use weft_nbd::wire::option_reply;
use weft_nbd::{ClientError, Extent, Goal, NbdError, Op, RequestError, TransmissionFlags};

const GREETING: &str = "\"NBDMAGIC\" \"IHAVEOPT\" 0003";
const ACK_STRUCTURED: &str = "0003e889045565a9 00000008 00000001 00000000";
const GO_DISK: &str = "0003e889045565a9 00000007 00000003 0000000c 0000 0000000000100000 00ed
                       0003e889045565a9 00000007 00000001 00000000";

fn check_sent(client: &mut Client, expected: &str) {
    assert_eq!(show(&client.take_sent()), show(&hex(expected)));
}

fn open_disk() -> Goal {
    Goal::Open("disk".into())
}

/// A client past the handshake: an export of 1 MiB with every feature but read-only and fast
/// zeroes.
fn connected(structured: bool) -> Client {
    let mut client = Client::new(open_disk(), structured);
    client.receive(&hex(GREETING));
    if structured {
        client.receive(&hex(ACK_STRUCTURED));
    }
    client.receive(&hex(GO_DISK));
    client.take_sent();
    assert!(client.connection.is_some(), "{:?}", client.failed);
    client
}

fn read(offset: u64, len: u32) -> Op {
    Op::Read { offset, len, df: false }
}

#[test]
fn open_sends_the_documented_bytes() {
    let mut client = Client::new(open_disk(), true);
    check_sent(&mut client, "");
    client.receive(&hex(GREETING));
    check_sent(&mut client, "00000003 \"IHAVEOPT\" 00000008 00000000");
    client.receive(&hex(ACK_STRUCTURED));
    check_sent(&mut client, "\"IHAVEOPT\" 00000007 00000010 00000004 \"disk\" 0003 0001 0002 0003");
    client.receive(&hex("0003e889045565a9 00000007 00000003 00000006 0001 \"Disk\"
         0003e889045565a9 00000007 00000003 00000006 0002 \"a\" 1b \"bc\"
         0003e889045565a9 00000007 00000003 00000004 00ff abcd
         0003e889045565a9 00000007 00000003 0000000e 0003 00000200 00001000 00100000
         0003e889045565a9 00000007 00000003 0000000c 0000 0000000000100000 0081
         0003e889045565a9 00000007 00000001 00000000"));
    let connection = client.connection.as_ref().unwrap();
    assert!(connection.is_structured());
    let export = connection.export();
    assert_eq!(export.name(), "Disk");
    assert_eq!(export.description(), "a\u{fffd}bc");
    assert_eq!(export.size(), 1 << 20);
    assert_eq!(export.flags(), TransmissionFlags::HAS_FLAGS | TransmissionFlags::SEND_DF);
    assert_eq!(export.block_sizes().minimum(), 512);
    assert_eq!(export.block_sizes().payload_max(), 1 << 20);
    check_sent(&mut client, "");
}

#[test]
fn old_server_is_opened_by_export_name() {
    for (greeting, flags, zeroes) in [("0001", "00000001", 124), ("0003", "00000003", 0)] {
        let mut client = Client::new(open_disk(), true);
        client.receive(&hex(&format!("\"NBDMAGIC\" \"IHAVEOPT\" {greeting}")));
        check_sent(&mut client, &format!("{flags} \"IHAVEOPT\" 00000008 00000000"));
        client.receive(&hex("0003e889045565a9 00000008 80000001 00000000"));
        client.take_sent();
        client.receive(&hex("0003e889045565a9 00000007 80000001 00000000"));
        check_sent(&mut client, "\"IHAVEOPT\" 00000001 00000004 \"disk\"");
        client.receive(&hex("0000000000000200 0005"));
        client.receive(&vec![0; zeroes]);
        let connection = client.connection.as_ref().unwrap();
        assert!(!connection.is_structured());
        assert_eq!((connection.export().name(), connection.export().size()), ("disk", 512));
    }
}

#[test]
fn list_ends_with_a_polite_goodbye() {
    let mut client = Client::new(Goal::List, true);
    client.receive(&hex(GREETING));
    check_sent(&mut client, "00000003 \"IHAVEOPT\" 00000003 00000000");
    client.receive(&hex("0003e889045565a9 00000003 00000002 00000008 00000002 \"abcd\"
         0003e889045565a9 00000003 00000002 00000004 00000000
         0003e889045565a9 00000003 00000001 00000000"));
    assert_eq!(client.listed, [("ab".into(), "cd".into()), (String::new(), String::new())]);
    assert_eq!(client.finished, Some(None));
    check_sent(&mut client, "\"IHAVEOPT\" 00000002 00000000");
}

#[test]
fn info_tells_and_leaves() {
    let mut client = Client::new(Goal::Info("disk".into()), false);
    client.receive(&hex(GREETING));
    check_sent(
        &mut client,
        "00000003 \"IHAVEOPT\" 00000006 00000010 00000004 \"disk\" 0003 0001 0002 0003",
    );
    client.receive(&hex(&GO_DISK.replace("00000007", "00000006")));
    let export = client.finished.as_ref().unwrap().as_ref().unwrap();
    assert_eq!((export.name(), export.size()), ("disk", 1 << 20));
    check_sent(&mut client, "\"IHAVEOPT\" 00000002 00000000");
}

#[test]
fn refusal_is_told_in_the_servers_words() {
    let mut client = Client::new(open_disk(), false);
    client.receive(&hex(GREETING));
    client.take_sent();
    client.receive(&hex("0003e889045565a9 00000007 80000006 00000005 \"no\" 0a \"pe\""));
    let error = client.failed.clone().unwrap();
    assert_eq!(error.to_string(), "server refused option 7 with NBD_REP_ERR_UNKNOWN: no\u{fffd}pe");
    check_sent(&mut client, "\"IHAVEOPT\" 00000002 00000000");
}

#[test]
fn rude_handshakes_are_given_up() {
    let malformed = |what| ClientError::Malformed { what };
    for (name, bytes, expected) in [
        ("SSH", "\"SSH-2.0-OpenSSH_9.2p1\"", ClientError::Magic { found: 0x5353_482d_322e_302d }),
        (
            "oldstyle",
            "\"NBDMAGIC\" 0000420281861253 0000",
            ClientError::Magic { found: 0x0000_4202_8186_1253 },
        ),
        ("newstyle, not fixed", "\"NBDMAGIC\" \"IHAVEOPT\" 0002", ClientError::NotFixedNewstyle),
        (
            "reply to another option",
            "\"NBDMAGIC\" \"IHAVEOPT\" 0003 0003e889045565a9 00000008 00000001 00000000",
            malformed("reply to another option"),
        ),
        (
            "bad reply magic",
            "\"NBDMAGIC\" \"IHAVEOPT\" 0003 0003e889045565aa 00000007 00000001 00000000",
            ClientError::Magic { found: 0x0003_e889_0455_65aa },
        ),
        (
            "4 GiB of reply",
            "\"NBDMAGIC\" \"IHAVEOPT\" 0003 0003e889045565a9 00000007 00000003 ffffffff",
            ClientError::ReplyTooLong { len: 0xffff_ffff },
        ),
        (
            "success without facts",
            "\"NBDMAGIC\" \"IHAVEOPT\" 0003 0003e889045565a9 00000007 00000001 00000000",
            malformed("success without size and flags of the export"),
        ),
        (
            "list entry for GO",
            "\"NBDMAGIC\" \"IHAVEOPT\" 0003
             0003e889045565a9 00000007 00000002 00000004 00000000",
            malformed("unexpected type of reply"),
        ),
        (
            "flags without bit 0",
            "\"NBDMAGIC\" \"IHAVEOPT\" 0003
             0003e889045565a9 00000007 00000003 0000000c 0000 0000000000100000 0002
             0003e889045565a9 00000007 00000001 00000000",
            malformed("transmission flags without bit 0"),
        ),
        (
            "export too short",
            "\"NBDMAGIC\" \"IHAVEOPT\" 0003
             0003e889045565a9 00000007 00000003 0000000b 0000 000000000010000000",
            malformed("NBD_INFO_EXPORT has the wrong length"),
        ),
        (
            "block size 3",
            "\"NBDMAGIC\" \"IHAVEOPT\" 0003
             0003e889045565a9 00000007 00000003 0000000e 0003 00000003 00001000 02000000",
            malformed("NBD_INFO_BLOCK_SIZE breaks the size constraints"),
        ),
    ] {
        let mut client = Client::new(open_disk(), false);
        client.receive(&hex(bytes));
        assert_eq!(client.failed, Some(expected), "{name}");
    }
    let mut client = Client::new(Goal::List, false);
    client.receive(&hex(GREETING));
    client.receive(&hex("0003e889045565a9 00000003 00000002 00000004 00000001"));
    assert_eq!(client.failed, Some(malformed("list entry shorter than its name")));
}

#[test]
fn endless_list_ends() {
    let mut client = Client::new(Goal::List, false);
    client.receive(&hex(GREETING));
    let entry = hex("0003e889045565a9 00000003 00000002 00000004 00000000");
    client.receive(&entry.repeat(70_000));
    assert_eq!(client.listed.len(), 65_536);
    assert_eq!(client.failed, Some(ClientError::Malformed { what: "replies without end" }));
}

#[test]
fn requests_have_the_documented_bytes() {
    let zeroes = Op::WriteZeroes { offset: 1, len: 2, fua: true, no_hole: true, fast: false };
    for (op, expected) in [
        (read(0x1000, 0x200), "25609513 0000 0000 0000000000000007 0000000000001000 00000200"),
        (
            Op::Read { offset: 0, len: 1, df: true },
            "25609513 0004 0000 0000000000000007 0000000000000000 00000001",
        ),
        (
            Op::Write { offset: 0xff, len: 1, fua: true },
            "25609513 0001 0001 0000000000000007 00000000000000ff 00000001",
        ),
        (Op::Flush, "25609513 0000 0003 0000000000000007 0000000000000000 00000000"),
        (
            Op::Trim { offset: 1, len: 2, fua: false },
            "25609513 0000 0004 0000000000000007 0000000000000001 00000002",
        ),
        (zeroes, "25609513 0003 0006 0000000000000007 0000000000000001 00000002"),
    ] {
        let mut client = connected(true);
        client.request(7, op, &[]).unwrap();
        check_sent(&mut client, expected);
    }
    let mut client = connected(true);
    client.disconnect();
    check_sent(&mut client, "25609513 0000 0002 0000000000000000 0000000000000000 00000000");
    assert_eq!(client.request(1, Op::Flush, &[]), Err(RequestError::Closed));
}

#[test]
fn requests_a_server_would_refuse_are_not_sent() {
    let refused = |error| Err(RequestError::Refused(error));
    let mut client = connected(true);
    for (op, expected) in [
        (read(1 << 20, 1), refused(NbdError::Invalid)),
        (read(0, 0), refused(NbdError::Invalid)),
        (Op::Write { offset: 1 << 20, len: 1, fua: false }, refused(NbdError::NoSpace)),
        (
            Op::WriteZeroes { offset: 0, len: 1, fua: false, no_hole: false, fast: true },
            refused(NbdError::Invalid),
        ),
    ] {
        assert_eq!(client.request(1, op, &[]), expected, "{op:?}");
    }
    client.request(1, Op::Flush, &[]).unwrap();
    assert_eq!(client.request(1, Op::Flush, &[]), Err(RequestError::CookieInUse));
    for cookie in 2..=4096 {
        client.request(cookie, Op::Flush, &[]).unwrap();
    }
    assert_eq!(client.request(5000, Op::Flush, &[]), Err(RequestError::TooManyOpen));
    client.receive(&hex("67446698 00000000 0000000000000001"));
    client.request(5000, Op::Flush, &[]).unwrap();
}

#[test]
fn simple_replies_bring_data_or_an_error() {
    let mut client = connected(false);
    client.request(1, read(8, 4), &[]).unwrap();
    client.request(2, read(8, 4), &[]).unwrap();
    client.request(3, Op::Flush, &[]).unwrap();
    client.receive(&hex("67446698 00000000 0000000000000003
         67446698 00000005 0000000000000002
         67446698 00000000 0000000000000001 \"data\""));
    assert_eq!(client.done, [(3, Ok(())), (2, Err(NbdError::Io)), (1, Ok(()))]);
    assert_eq!(client.data[&1].1, b"data");
    assert_eq!(client.connection.unwrap().open_count(), 0);
}

#[test]
fn chunks_bring_data_holes_and_errors_in_any_order() {
    let mut client = connected(true);
    client.request(1, read(8, 12), &[]).unwrap();
    client.request(2, read(0, 4), &[]).unwrap();
    client.request(3, Op::Flush, &[]).unwrap();
    client.request(4, read(0, 1), &[]).unwrap();
    client.receive(&hex("668e33ef 0000 0001 0000000000000001 0000000c 0000000000000010 \"ghij\"
         668e33ef 0000 8002 0000000000000002 00000011 00000005 0003 \"bad\" 0000000000000002
         668e33ef 0000 0002 0000000000000001 0000000c 000000000000000c 00000004
         668e33ef 0001 0000 0000000000000002 00000000
         668e33ef 0001 8001 0000000000000003 00000008 0000006c 0002 \"no\"
         668e33ef 0001 0001 0000000000000001 0000000c 0000000000000008 \"abcd\"
         668e33ef 0001 ffff 0000000000000004 00000007 00000000 0000 ff"));
    assert_eq!(client.failed, None);
    assert_eq!(
        client.done,
        [
            (2, Err(NbdError::Io)),
            (3, Err(NbdError::Shutdown)),
            (1, Ok(())),
            (4, Err(NbdError::Invalid))
        ]
    );
    assert_eq!(client.data[&1].1, b"abcd\0\0\0\0ghij");
}

const fn malformed(what: &'static str) -> ClientError {
    ClientError::Malformed { what }
}

/// Replies that break the protocol, structured or not, and the error of the client for each. A read
/// of 4 bytes at 8 with DF is open under cookie 1, a flush under cookie 2.
const RUDE: &[(bool, &str, ClientError)] = &[
    (true, "67446698 00000000 0000000000000001", malformed("simple reply to a read")),
    (false, "67446698 00000000 0000000000000003", ClientError::UnknownCookie { cookie: 3 }),
    (false, "668e33ef", ClientError::Magic { found: 0x668e_33ef }),
    (true, "00000000", ClientError::Magic { found: 0 }),
    (
        true,
        "668e33ef 0001 0000 0000000000000003 00000000",
        ClientError::UnknownCookie { cookie: 3 },
    ),
    (
        true,
        "668e33ef 0001 0000 0000000000000001 00000000",
        malformed("success without all the data"),
    ),
    (
        true,
        "668e33ef 0001 0000 0000000000000001 00000001",
        malformed("end chunk with data or without end mark"),
    ),
    (
        true,
        "668e33ef 0000 0000 0000000000000001 00000000",
        malformed("end chunk with data or without end mark"),
    ),
    (true, "668e33ef 0001 0001 0000000000000001 00000008", malformed("data chunk without data")),
    (
        true,
        "668e33ef 0001 0001 0000000000000001 0000000d 0000000000000008",
        malformed("data outside the range asked for"),
    ),
    (
        true,
        "668e33ef 0001 0001 0000000000000001 00000009 0000000000000007",
        malformed("data outside the range asked for"),
    ),
    (
        true,
        "668e33ef 0001 0001 0000000000000001 ffffffff 0000000000000009",
        malformed("data outside the range asked for"),
    ),
    (
        true,
        "668e33ef 0001 0001 0000000000000002 00000009 0000000000000000",
        malformed("data for a request that is not a read"),
    ),
    (
        true,
        "668e33ef 0000 0001 0000000000000001 00000009 0000000000000008 61
         668e33ef 0000 0001 0000000000000001 00000009 0000000000000009",
        malformed("data in pieces despite NBD_CMD_FLAG_DF"),
    ),
    (
        true,
        "668e33ef 0001 0001 0000000000000001 00000009 0000000000000008 61",
        malformed("success without all the data"),
    ),
    (
        true,
        "668e33ef 0001 0002 0000000000000001 0000000b",
        malformed("hole chunk of the wrong length"),
    ),
    (
        true,
        "668e33ef 0001 0002 0000000000000001 0000000c 0000000000000008 00000000",
        malformed("data outside the range asked for"),
    ),
    (true, "668e33ef 0001 0007 0000000000000001 0000000c", malformed("unknown type of chunk")),
    (true, "668e33ef 0001 8001 0000000000000001 00000005", malformed("error chunk too short")),
    (
        true,
        "668e33ef 0001 8001 0000000000000001 ffffffff",
        ClientError::ReplyTooLong { len: 0xffff_ffff },
    ),
    (
        true,
        "668e33ef 0001 8001 0000000000000001 00000007 00000005 0002",
        malformed("error text beyond its chunk"),
    ),
    (
        true,
        "668e33ef 0001 8002 0000000000000001 0000000d 00000005 0000",
        malformed("error text beyond its chunk"),
    ),
];

#[test]
fn rude_replies_are_given_up() {
    for (structured, bytes, expected) in RUDE {
        let mut client = connected(*structured);
        client.request(1, Op::Read { offset: 8, len: 4, df: *structured }, &[]).unwrap();
        client.request(2, Op::Flush, &[]).unwrap();
        client.receive(&hex(bytes));
        assert_eq!(client.failed.as_ref(), Some(expected), "{bytes}");
        assert_eq!(client.done, [], "{bytes}");
        // The connection stays closed.
        client.receive(&[0xff; 64]);
        assert_eq!(client.request(9, Op::Flush, &[]), Err(RequestError::Closed));
    }
}

#[test]
fn data_told_twice_is_not_success() {
    let piece = |done: u8, at: u8, data: &str| {
        let len = 8 + data.len();
        format!("668e33ef 00{done:02x} 0001 0000000000000001 {len:08x} {at:016x} \"{data}\"")
    };
    for pieces in [
        &[piece(0, 0, "abcd"), piece(1, 2, "cdef")][..],
        &[piece(0, 0, "abcd"), piece(1, 0, "abcd")],
        &[piece(0, 4, "efgh"), piece(1, 3, "de")],
        &[piece(0, 0, "ab"), piece(0, 6, "gh"), piece(1, 4, "efgh")],
        &[piece(0, 6, "gh"), piece(0, 0, "ab"), piece(0, 3, "d"), piece(1, 1, "bcd")],
    ] {
        let mut client = connected(true);
        client.request(1, read(0, 8), &[]).unwrap();
        client.receive(&hex(&pieces.concat()));
        let expected = ClientError::Malformed { what: "data told twice" };
        assert_eq!(client.failed, Some(expected), "{pieces:?}");
    }
}

#[test]
fn read_in_single_bytes_backwards_is_bounded() {
    for (len, good) in [(1000_u32, true), (2000, false)] {
        let mut client = connected(true);
        client.request(1, read(0, len), &[]).unwrap();
        for at in (0..len).rev() {
            let done = u8::from(at == 0);
            client.receive(&hex(&format!(
                "668e33ef 00{done:02x} 0001 0000000000000001 00000009 {at:016x} 61"
            )));
        }
        assert_eq!(client.failed.is_none(), good);
        assert_eq!(client.done.len(), usize::from(good));
    }
}

#[test]
fn names_of_errors_are_those_of_the_document() {
    for (kind, name) in [
        (option_reply::ERR_UNSUP, "NBD_REP_ERR_UNSUP"),
        (option_reply::ERR_TLS_REQD, "NBD_REP_ERR_TLS_REQD"),
        (option_reply::ERR_TOO_BIG, "NBD_REP_ERR_TOO_BIG"),
        (0x8000_0fff, "an unknown error"),
    ] {
        let error = ClientError::Refused { option: 7, kind, message: String::new() };
        assert!(error.to_string().contains(name));
    }
}

/// A client past a handshake that agreed on `base:allocation` as context number 7.
fn with_context() -> Client {
    let mut client = Client::with_allocation(open_disk());
    client.receive(&hex(GREETING));
    client.receive(&hex(ACK_STRUCTURED));
    client.take_sent();
    client.receive(&hex("0003e889045565a9 0000000a 00000004 00000013 00000007 \"base:allocation\"
         0003e889045565a9 0000000a 00000001 00000000"));
    client.receive(&hex(GO_DISK));
    client.take_sent();
    assert!(client.connection.as_ref().unwrap().export().has_allocation());
    client
}

#[test]
fn extents_are_told_and_hostile_ones_end_the_session() {
    let status = |len, one| Op::BlockStatus { offset: 0, len, one };
    let good = "668e33ef 0001 0005 0000000000000001 00000014 00000007
                00000200 00000003 00001000 00000000";
    for (op, chunk, found) in [
        (status(4096, false), good, Some(vec![Extent::hole(512), Extent::data(4096)])),
        // The first extent must not cover everything when another follows.
        (status(512, false), good, None),
        (status(4096, true), good, None),
        // Replies of another context, empty, of a wrong length, without any extent.
        (
            status(512, false),
            "668e33ef 0001 0005 0000000000000001 0000000c 00000008 00000200 00000003",
            None,
        ),
        (
            status(512, false),
            "668e33ef 0001 0005 0000000000000001 0000000c 00000007 00000000 00000003",
            None,
        ),
        (status(512, false), "668e33ef 0001 0005 0000000000000001 00000010 00000007", None),
        (status(512, false), "668e33ef 0001 0005 0000000000000001 00000004 00000007", None),
        (status(512, false), "668e33ef 0001 0005 0000000000000001 ffffffff 00000007", None),
        (status(512, false), "668e33ef 0001 0000 0000000000000001 00000000", None),
        (
            status(512, true),
            "668e33ef 0001 0005 0000000000000001 0000000c 00000007 00000201 00000000",
            None,
        ),
        // Reply to a request that did not ask for block status.
        (
            read(0, 512),
            "668e33ef 0001 0005 0000000000000001 0000000c 00000007 00000200 00000003",
            None,
        ),
    ] {
        let mut client = with_context();
        client.request(1, op, &[]).unwrap();
        client.receive(&hex(chunk));
        assert_eq!(client.failed.is_none(), found.is_some(), "{op:?} {chunk}: {:?}", client.failed);
        if let Some(found) = found {
            assert_eq!(client.extents[&1], found);
            assert_eq!(client.done, [(1, Ok(()))]);
        }
    }
    // Block status sent twice, in two chunks.
    let mut client = with_context();
    client.request(1, status(512, false), &[]).unwrap();
    let chunk = "668e33ef 0000 0005 0000000000000001 0000000c 00000007 00000200 00000003";
    client.receive(&hex(&format!("{chunk} {chunk}")));
    assert!(client.failed.is_some());
}

#[test]
fn a_server_without_contexts_is_opened_all_the_same() {
    let mut client = Client::with_allocation(open_disk());
    client.receive(&hex(GREETING));
    client.receive(&hex(ACK_STRUCTURED));
    client.take_sent();
    client.receive(&hex("0003e889045565a9 0000000a 80000001 00000000"));
    client.receive(&hex(GO_DISK));
    let export = client.connection.as_ref().unwrap().export();
    assert!(!export.has_allocation());
    let op = Op::BlockStatus { offset: 0, len: 512, one: false };
    assert_eq!(client.request(1, op, &[]), Err(RequestError::Refused(NbdError::Invalid)));
}
