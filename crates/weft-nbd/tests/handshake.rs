//! Tests of the server side of the handshake, byte by byte as `proto.md` gives it.

mod common;

use common::{Server, client_flags, hex, info_data, option, show};
use weft_nbd::{BlockSizes, CloseReason, ExportInfo, ServerEvent, TransmissionFlags};

const GREETING: &str = "\"NBDMAGIC\" \"IHAVEOPT\" 0003";
const REPLY: &str = "0003e889045565a9";

fn two_exports() -> Vec<ExportInfo> {
    vec![
        ExportInfo::new("disk", 0x10_0000).unwrap().with_description("RAID-5").unwrap(),
        ExportInfo::new("ro", 512)
            .unwrap()
            .with_flags(ExportInfo::DEFAULT_FLAGS | TransmissionFlags::READ_ONLY)
            .with_block_sizes(BlockSizes::new(512, 65_536, 1 << 20).unwrap()),
    ]
}

/// A server that has sent its greeting and received good flags.
fn greeted() -> Server {
    let mut server = Server::new(two_exports());
    server.receive(&client_flags());
    assert_eq!(server.take_sent(), hex(GREETING));
    server
}

fn check(server: &mut Server, input: &str, expected: &str) {
    server.receive(&hex(input));
    let (sent, expected) = (server.take_sent(), hex(expected));
    assert_eq!(show(&sent), show(&expected), "after {input}");
}

#[test]
fn greeting_comes_first_and_unasked() {
    let server = Server::new(two_exports());
    assert_eq!(server.connection.output(), hex("4e42444d41474943 49484156454f5054 0003"));
}

#[test]
fn client_flags_are_fixed_newstyle_and_perhaps_no_zeroes() {
    for (flags, good) in [
        ("00000001", true),
        ("00000003", true),
        ("00000000", false),
        ("00000002", false),
        ("00000005", false),
        ("80000001", false),
    ] {
        let mut server = Server::new(two_exports());
        server.receive(&hex(flags));
        assert_eq!(server.connection.is_closed(), !good, "{flags}");
        assert_eq!(server.events.is_empty(), good, "{flags}");
    }
}

/// An option as a client sends it, with the name of the case and the reply.
type OptionRow = (&'static str, &'static str, String);

fn info_and_go() -> Vec<OptionRow> {
    vec![
        (
            "INFO, nothing asked",
            "\"IHAVEOPT\" 00000006 0000000a 00000004 \"disk\" 0000",
            format!(
                "{REPLY} 00000006 00000003 0000000c 0000 0000000000100000 004d
                 {REPLY} 00000006 00000001 00000000"
            ),
        ),
        (
            "INFO, everything and the unknown asked",
            "\"IHAVEOPT\" 00000006 00000014 00000004 \"disk\" 0005 0003 0002 0001 0000 00ff",
            format!(
                "{REPLY} 00000006 00000003 0000000c 0000 0000000000100000 004d
                 {REPLY} 00000006 00000003 00000006 0001 \"disk\"
                 {REPLY} 00000006 00000003 00000008 0002 \"RAID-5\"
                 {REPLY} 00000006 00000003 0000000e 0003 00000001 00001000 02000000
                 {REPLY} 00000006 00000001 00000000"
            ),
        ),
        (
            "INFO, default export by its canonical name",
            "\"IHAVEOPT\" 00000006 00000008 00000000 0001 0001",
            format!(
                "{REPLY} 00000006 00000003 0000000c 0000 0000000000100000 004d
                 {REPLY} 00000006 00000003 00000006 0001 \"disk\"
                 {REPLY} 00000006 00000001 00000000"
            ),
        ),
        (
            "INFO, read-only export with block sizes",
            "\"IHAVEOPT\" 00000006 0000000a 00000002 \"ro\" 0001 0003",
            format!(
                "{REPLY} 00000006 00000003 0000000c 0000 0000000000000200 000f
                 {REPLY} 00000006 00000003 0000000e 0003 00000200 00010000 00100000
                 {REPLY} 00000006 00000001 00000000"
            ),
        ),
        (
            "INFO, unknown export",
            "\"IHAVEOPT\" 00000006 00000008 00000002 \"no\" 0000",
            format!("{REPLY} 00000006 80000006 00000010 \"export not found\""),
        ),
        (
            "GO, unknown export",
            "\"IHAVEOPT\" 00000007 00000008 00000002 \"no\" 0000",
            format!("{REPLY} 00000007 80000006 00000010 \"export not found\""),
        ),
        (
            "GO, no data",
            "\"IHAVEOPT\" 00000007 00000000",
            format!("{REPLY} 00000007 80000003 00000015 \"option data too short\""),
        ),
        (
            "GO, name beyond the data",
            "\"IHAVEOPT\" 00000007 00000006 ffffffff 0000",
            format!("{REPLY} 00000007 80000003 00000023 \"export name longer than option data\""),
        ),
    ]
}

fn other_options() -> Vec<OptionRow> {
    let unsup = |option: &str| format!("{REPLY} {option} 80000001 00000000");
    vec![
        (
            "LIST",
            "\"IHAVEOPT\" 00000003 00000000",
            format!(
                "{REPLY} 00000003 00000002 0000000e 00000004 \"diskRAID-5\"
                 {REPLY} 00000003 00000002 00000006 00000002 \"ro\"
                 {REPLY} 00000003 00000001 00000000"
            ),
        ),
        (
            "LIST with data",
            "\"IHAVEOPT\" 00000003 00000001 ff",
            format!("{REPLY} 00000003 80000003 00000014 \"option takes no data\""),
        ),
        (
            "STRUCTURED_REPLY",
            "\"IHAVEOPT\" 00000008 00000000",
            format!("{REPLY} 00000008 00000001 00000000"),
        ),
        (
            "STRUCTURED_REPLY with data",
            "\"IHAVEOPT\" 00000008 00000002 0000",
            format!("{REPLY} 00000008 80000003 00000014 \"option takes no data\""),
        ),
        ("PEEK_EXPORT", "\"IHAVEOPT\" 00000004 00000001 00", unsup("00000004")),
        ("STARTTLS", "\"IHAVEOPT\" 00000005 00000000", unsup("00000005")),
        (
            "LIST_META_CONTEXT before STRUCTURED_REPLY",
            "\"IHAVEOPT\" 00000009 00000003 000000",
            format!("{REPLY} 00000009 80000003 0000001d \"structured replies come first\""),
        ),
        ("beyond the last known", "\"IHAVEOPT\" 0000000c 00000000", unsup("0000000c")),
        ("unknown", "\"IHAVEOPT\" ffffffff 00000004 deadbeef", unsup("ffffffff")),
    ]
}

#[test]
fn every_option_has_its_documented_reply() {
    let table = [other_options(), info_and_go()].concat();
    for (name, input, expected) in &table {
        let mut server = greeted();
        check(&mut server, input, expected);
        assert!(server.events.is_empty(), "{name}");
        // After every reply the server understands the next option.
        check(
            &mut server,
            "\"IHAVEOPT\" 0000000c 00000000",
            "0003e889045565a9 0000000c 80000001 00000000",
        );
    }
    // All options in one session.
    let mut server = greeted();
    for (_, input, expected) in table.iter().filter(|row| row.0 != "STRUCTURED_REPLY") {
        check(&mut server, input, expected);
    }
}

const STARTTLS: &str = "\"IHAVEOPT\" 00000005 00000000";

/// A server that requires TLS and has received good flags.
fn greeted_with_tls() -> Server {
    let mut server = Server::new(two_exports());
    server.connection = server.connection.require_tls();
    server.receive(&client_flags());
    server.take_sent();
    server
}

#[test]
fn nothing_is_told_before_tls() {
    let required = |option: &str| {
        format!("{REPLY} {option} 80000005 0000001c \"NBD_OPT_STARTTLS comes first\"")
    };
    let mut server = greeted_with_tls();
    check(&mut server, "\"IHAVEOPT\" 00000003 00000000", &required("00000003"));
    check(&mut server, "\"IHAVEOPT\" 00000008 00000000", &required("00000008"));
    let go = "\"IHAVEOPT\" 00000007 0000000a 00000004 \"disk\" 0000";
    check(&mut server, go, &required("00000007"));
    check(&mut server, "\"IHAVEOPT\" 0000000c 00000000", &required("0000000c"));
    let data = "\"IHAVEOPT\" 00000005 00000001 00";
    let refused = format!("{REPLY} 00000005 80000003 00000014 \"option takes no data\"");
    check(&mut server, data, &refused);
    assert!(server.events.is_empty() && !server.connection.is_structured());

    check(&mut server, STARTTLS, &format!("{REPLY} 00000005 00000001 00000000"));
    assert_eq!(server.events, [ServerEvent::StartTls]);
    server.connection.tls_started();
    let started = format!("{REPLY} 00000005 80000003 00000017 \"TLS has started already\"");
    check(&mut server, STARTTLS, &started);
    server.receive(&hex(go));
    assert_eq!(server.events[1..], [ServerEvent::Ready { export: 0 }]);
}

#[test]
fn a_client_without_tls_may_leave_and_cannot_choose() {
    let mut server = greeted_with_tls();
    check(
        &mut server,
        "\"IHAVEOPT\" 00000002 00000000",
        &format!("{REPLY} 00000002 00000001 00000000"),
    );
    assert_eq!(server.events, [ServerEvent::Disconnect]);
    let mut server = greeted_with_tls();
    check(&mut server, "\"IHAVEOPT\" 00000001 00000004 \"disk\"", "");
    assert_eq!(server.events, [ServerEvent::Close(CloseReason::TlsRequired)]);
}

#[test]
fn plain_text_after_the_option_that_starts_tls_ends_the_session() {
    let mut server = greeted_with_tls();
    server.receive(&hex(&format!("{STARTTLS} \"IHAVEOPT\" 00000003 00000000")));
    let before = CloseReason::BeforeTls { len: 16 };
    assert_eq!(server.events, [ServerEvent::StartTls, ServerEvent::Close(before)]);
    assert_eq!(server.take_sent(), hex(&format!("{REPLY} 00000005 00000001 00000000")));
}

#[test]
fn go_enters_transmission() {
    let mut server = greeted();
    check(
        &mut server,
        "\"IHAVEOPT\" 00000007 0000000a 00000004 \"disk\" 0000",
        "0003e889045565a9 00000007 00000003 0000000c 0000 0000000000100000 004d
         0003e889045565a9 00000007 00000001 00000000",
    );
    assert_eq!(server.events, [ServerEvent::Ready { export: 0 }]);
    assert!(!server.connection.is_structured());
    check(
        &mut server,
        "25609513 0000 0003 0000000000000001 0000000000000000 00000000",
        "67446698 00000000 0000000000000001",
    );
}

#[test]
fn structured_replies_bring_the_df_flag() {
    let mut server = greeted();
    check(
        &mut server,
        "\"IHAVEOPT\" 00000008 00000000
         \"IHAVEOPT\" 00000007 00000008 00000002 \"ro\" 0000",
        "0003e889045565a9 00000008 00000001 00000000
         0003e889045565a9 00000007 00000003 0000000c 0000 0000000000000200 008f
         0003e889045565a9 00000007 00000001 00000000",
    );
    assert_eq!(server.events, [ServerEvent::Ready { export: 1 }]);
    assert!(server.connection.is_structured());
}

/// Exports with and without holes, asked for in all ways.
#[test]
fn contexts_are_listed_and_selected() {
    let exports = [ExportInfo::new("disk", 512).unwrap().with_allocation()];
    let exports = [&exports[..], &[ExportInfo::new("plain", 512).unwrap()]].concat();
    let mut server = Server::new(exports);
    server.receive(&common::client_flags());
    server.receive(&common::option(8, &[]));
    server.take_sent();
    let base = "\"base:allocation\"";
    let ack = |option: &str| format!("{REPLY} {option} 00000001 00000000");
    let context = |option: &str, id: &str| {
        format!("{REPLY} {option} 00000004 00000013 {id} {base} {}", ack(option))
    };
    let refused = |option: &str, kind: &str, len: &str, text: &str| {
        format!("{REPLY} {option} {kind} {len} \"{text}\"")
    };
    let (list, set) = ("00000009", "0000000a");
    for (data, expected) in [
        // Every context is listed, for no query and for a wildcard.
        (format!("{list} 0000000c 00000004 \"disk\" 00000000"), context(list, "00000000")),
        (
            format!("{list} 00000015 00000004 \"disk\" 00000001 00000005 \"base:\""),
            context(list, "00000000"),
        ),
        (format!("{list} 0000000d 00000005 \"plain\" 00000000"), ack(list)),
        (format!("{list} 00000013 00000000 00000001 00000007 \"x:dirty\""), ack(list)),
        // A context is selected by its name, among unknown names; the default export by the empty
        // name.
        (
            format!("{set} 00000025 00000000 00000002 00000006 \"qemu:a\" 0000000f {base}"),
            context(set, "00000001"),
        ),
        // A wildcard selects nothing, and so does an empty list of queries.
        (format!("{set} 00000011 00000000 00000001 00000005 \"base:\""), ack(set)),
        (format!("{set} 0000000c 00000004 \"disk\" 00000000"), ack(set)),
        (format!("{set} 00000020 00000005 \"plain\" 00000001 0000000f {base}"), ack(set)),
        (
            format!("{set} 0000000a 00000002 \"no\" 00000000"),
            refused(set, "80000006", "00000010", "export not found"),
        ),
        (
            format!("{set} 00000008 00000000 00000001"),
            refused(set, "80000003", "00000015", "option data too short"),
        ),
        (
            format!("{set} 0000000c 00000000 00000001 00000001"),
            refused(set, "80000003", "0000001e", "string longer than option data"),
        ),
    ] {
        check(&mut server, &format!("\"IHAVEOPT\" {data}"), &expected);
    }
}

/// A context belongs to the export that it was asked for.
#[test]
fn a_context_of_another_export_is_not_selected() {
    for (name, agreed) in [("disk", true), ("other", false)] {
        let exports = ["disk", "other"].map(|n| ExportInfo::new(n, 512).unwrap().with_allocation());
        let mut server = Server::new(exports.to_vec());
        server.receive(&common::client_flags());
        server.receive(&common::option(8, &[]));
        let meta = b"\0\0\0\x04disk\0\0\0\x01\0\0\0\x0fbase:allocation";
        server.receive(&common::option(10, meta));
        server.receive(&common::option(7, &common::info_data(name.as_bytes(), &[])));
        server.take_sent();
        server.receive(&common::request(7, 0, 9, 0, 512));
        let expected = match agreed {
            true => "668e33ef 0001 0005 0000000000000009 0000000c 00000001 00000200 00000003",
            false => "668e33ef 0001 8001 0000000000000009 00000006 00000016 0000",
        };
        assert_eq!(show(&server.take_sent()), show(&hex(expected)));
    }
}

#[test]
fn export_name_replies_with_and_without_zeroes() {
    for (flags, zeroes) in [("00000001", 124), ("00000003", 0)] {
        let mut server = Server::new(two_exports());
        server.receive(&hex(flags));
        server.take_sent();
        server.receive(&option(1, b"ro"));
        let expected = [hex("0000000000000200 000f"), vec![0; zeroes]].concat();
        assert_eq!(server.take_sent(), expected);
        assert_eq!(server.events, [ServerEvent::Ready { export: 1 }]);
    }
    let mut server = greeted();
    server.receive(&option(1, b""));
    assert_eq!(server.events, [ServerEvent::Ready { export: 0 }]);
}

#[test]
fn export_name_without_export_ends_the_session_silently() {
    for name in [&b"no"[..], b"\xff", b"di\0sk", &[b'a'; 4096]] {
        let mut server = greeted();
        server.receive(&option(1, name));
        assert_eq!(server.take_sent(), b"");
        assert_eq!(server.events, [ServerEvent::Close(CloseReason::UnknownExport)]);
        server.receive(&option(3, &[]));
        assert_eq!(server.take_sent(), b"");
    }
}

#[test]
fn abort_is_acknowledged_and_ends_the_session() {
    for input in ["\"IHAVEOPT\" 00000002 00000000", "\"IHAVEOPT\" 00000002 00000002 0000"] {
        let mut server = greeted();
        check(&mut server, input, "0003e889045565a9 00000002 00000001 00000000");
        assert_eq!(server.events, [ServerEvent::Disconnect]);
        assert!(server.connection.is_closed());
        server.receive(&[0xff; 100]);
        assert_eq!(server.events.len(), 1);
    }
}

#[test]
fn option_lengths_are_limited() {
    // (option, length, reply type if it goes on, reply type before it closes)
    let too_big = 0x8000_0009_u32;
    for (number, len, goes_on, closes) in [
        (7, 64 << 10, Some(0x8000_0003), None), // parsed, and not an information request
        (7, (64 << 10) + 1, Some(too_big), None),
        (6, 1 << 20, Some(too_big), None),
        (7, (1 << 20) + 1, None, Some(too_big)),
        (7, u32::MAX, None, Some(too_big)),
        (99, 1 << 20, Some(0x8000_0001), None),
        (99, (1 << 20) + 1, None, Some(too_big)),
        (3, 1 << 20, Some(0x8000_0003), None),
        (1, 4097, None, None),
        (1, u32::MAX, None, None),
    ] {
        let mut server = greeted();
        server.receive(&weft_nbd::wire::OptionHeader { option: number, len }.encode());
        if let Some(kind) = goes_on {
            assert_eq!(server.take_sent(), b"");
            assert!(server.connection.memory_bytes() < 8 << 10, "nothing is held in advance");
            for _ in 0..len / 1024 {
                server.receive(&[0xff; 1024]);
            }
            server.receive(&vec![0xff; len as usize % 1024]);
            let sent = server.take_sent();
            assert_eq!(sent[12..16], kind.to_be_bytes(), "option {number} of {len} bytes");
            assert!(server.events.is_empty());
            server.receive(&option(8, &[]));
            assert_eq!(server.take_sent()[12..16], [0, 0, 0, 1]);
        } else {
            let reason = CloseReason::OptionTooLong { option: number, len };
            assert_eq!(server.events, [ServerEvent::Close(reason)]);
            let sent = server.take_sent();
            match closes {
                Some(kind) => assert_eq!(sent[12..16], kind.to_be_bytes()),
                None => assert_eq!(sent, b""),
            }
        }
    }
}

#[test]
fn export_names_are_limited_to_4096_bytes() {
    let long = "a".repeat(4096);
    for (len, expected) in [(4096, 0x8000_0006_u32), (4097, 0x8000_0003)] {
        let mut server = greeted();
        server.receive(&option(7, &info_data(&vec![b'b'; len], &[])));
        assert_eq!(server.take_sent()[12..16], expected.to_be_bytes());
    }
    let mut server = Server::new(vec![ExportInfo::new(long.as_str(), 512).unwrap()]);
    server.receive(&client_flags());
    server.receive(&option(7, &info_data(long.as_bytes(), &[1])));
    assert_eq!(server.events, [ServerEvent::Ready { export: 0 }]);
}

#[test]
fn bad_option_magic_ends_the_session() {
    let mut server = greeted();
    server.receive(&hex("49484156454f5055 00000003 00000000"));
    let reason = CloseReason::OptionMagic { found: 0x4948_4156_454f_5055 };
    assert_eq!(server.events, [ServerEvent::Close(reason)]);
    assert_eq!(
        reason.to_string(),
        "option magic: found 0x49484156454f5055, expected 0x49484156454f5054"
    );
}

#[test]
fn stopping_server_refuses_all_options_but_abort() {
    let mut server = greeted();
    server.connection.begin_shutdown();
    for (number, data) in
        [(3, vec![]), (8, vec![]), (99, vec![1]), (7, info_data(b"disk", &[])), (6, vec![])]
    {
        server.receive(&option(number, &data));
        assert_eq!(server.take_sent()[12..16], 0x8000_0007_u32.to_be_bytes(), "{number}");
    }
    server.receive(&option(2, &[]));
    assert_eq!(server.take_sent()[12..16], [0, 0, 0, 1]);
    assert_eq!(server.events, [ServerEvent::Disconnect]);

    let mut server = greeted();
    server.connection.begin_shutdown();
    server.receive(&option(1, b"disk"));
    assert_eq!(server.events, [ServerEvent::Close(CloseReason::Shutdown)]);
}

#[test]
fn client_that_does_not_read_is_not_read_from() {
    let mut server = greeted();
    let list = option(3, &[]);
    let flood: Vec<u8> = list.iter().copied().cycle().take(list.len() * 10_000).collect();
    let mut taken = 0;
    loop {
        let (count, event) = server.connection.input(&flood[taken..]);
        assert_eq!(event, None);
        if count == 0 {
            break;
        }
        taken += count;
    }
    assert!(taken < flood.len() / 5);
    assert!(server.connection.memory_bytes() <= common::MEMORY_BYTES_MAX);
    // Once the client reads, the server goes on.
    server.receive(&flood[taken..]);
    assert_eq!(server.take_sent().len() % 10_000, 0);
}
