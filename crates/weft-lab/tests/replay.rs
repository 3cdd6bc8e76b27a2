//! Tests of traces: from other programs, damaged, and in replay.

use weft_lab::replay::iolog::{Version, Writer};
use weft_lab::replay::shape::{Align, Changes, Fit, Options, Pace, Placement, Shaped};
use weft_lab::replay::{
    Assume, DeviceIndex, Devices, Event, Flags, Format, Op, ReadOptions, Record, ReplayError, Trace,
};
use weft_testing::skip;
use weft_units::rng::Rng;
use weft_units::{Bytes, Span, Time};

fn fixture(name: &str) -> String {
    format!("{}/tests/fixture/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A trace of the fixtures, read with default options.
fn open(name: &str) -> Trace {
    Trace::open(&[fixture(name)], &ReadOptions::default()).unwrap()
}

fn read_all(trace: &mut Trace) -> Vec<Record> {
    trace.map(|record| record.unwrap()).collect()
}

fn of_text(text: &str) -> Trace {
    Trace::of_bytes("t", text.as_bytes().to_vec(), &ReadOptions::default()).unwrap()
}

fn records(text: &str) -> Vec<Record> {
    read_all(&mut of_text(text))
}

/// The record as `(time in ns, op, offset, length)`.
fn brief(record: &Record) -> (u64, Op, u64, u64) {
    (record.time.0, record.op, record.offset.0, record.length.0)
}

#[test]
fn blktrace_of_two_cpus_in_either_byte_order_says_what_blkparse_prints() {
    for event in [Event::Queue, Event::Issue] {
        let options = ReadOptions { event, ..ReadOptions::default() };
        let mut text = Trace::open(&[fixture("blkparse.txt")], &options).unwrap();
        let printed = read_all(&mut text);
        assert_eq!(printed.len(), if event == Event::Queue { 8 } else { 1 });
        for name in ["sda", "sdb"] {
            let mut binary = Trace::open(&[fixture(name)], &options).unwrap();
            assert_eq!(binary.formats(), [Format::Blktrace; 2]);
            assert_eq!(read_all(&mut binary), printed, "{name}");
            assert_eq!(binary.devices().names(), ["8,0"]);
            assert_eq!(binary.process(697), Some("kjournald"));
            assert_eq!(binary.process(698), Some("fio [x]"));
            let (binary, text) = (binary.counts(), text.counts());
            for kind in ["issue events", "plug events", "complete events", "pass-through commands"]
            {
                assert_eq!(binary.skipped.get(kind), text.skipped.get(kind), "{kind}");
            }
            assert_eq!(binary.skipped["notes"], 4);
            assert_eq!(text.skipped["summary lines"], 38);
            assert_eq!(binary.lines, 22);
        }
    }
}

#[test]
fn flags_of_a_block_trace_are_kept() {
    let mut trace = open("sda");
    let all = read_all(&mut trace);
    let none = Flags::default();
    assert_eq!((all[2].op, all[2].flags), (Op::Read, Flags { ahead: true, ..none }));
    assert_eq!((all[3].op, all[3].flags), (Op::Flush, Flags { sync: true, ..none }));
    let all_set = Flags { sync: true, meta: true, fua: true, preflush: true, ahead: false };
    assert_eq!((all[4].op, all[4].flags), (Op::Write, all_set));
    assert_eq!((all[5].op, all[5].length), (Op::Discard, Bytes(65536)));
    assert_eq!((all[6].op, all[6].flags), (Op::Read, Flags { meta: true, ..none }));
    assert_eq!((all[7].op, all[7].flags), (Op::Write, Flags { sync: true, fua: true, ..none }));
}

#[test]
fn logs_that_fio_wrote_are_read() {
    let mut trace = open("fio_write.iolog");
    let all = read_all(&mut trace);
    assert_eq!(trace.devices().names(), ["/dev/md5"]);
    let count = |op| all.iter().filter(|record| record.op == op).count();
    assert_eq!((count(Op::Write), count(Op::Flush), all.len()), (16, 3, 19));
    assert_eq!(brief(&all[0]), (0, Op::Write, 0, 4096));
    assert_eq!(trace.counts().skipped["files added, opened or closed"], 3);
    let mut trace = open("fio_mixed.iolog");
    let all = read_all(&mut trace);
    assert_eq!(brief(&all[1]), (215_000, Op::Write, 8192, 8192));
    assert_eq!(all.iter().filter(|record| record.op == Op::Flush).count(), 2);
}

/// Reads logs of `serve --record` that lack requests, and logs of a killed server.
#[test]
fn a_log_says_what_it_lacks() {
    let begin = "fio version 3 iolog\n0 x add\n0 x open\n0 x write 0 512\n5 x read 0 512 lost=7\n";
    let counts = |text: &str| {
        let mut trace = of_text(text);
        let records = read_all(&mut trace).len();
        (records, trace.counts().clone())
    };
    let (records, whole) = counts(&format!("{begin}9 x close requests=2 lost=3\n"));
    assert_eq!((records, whole.lost, whole.cut_short), (2, 10, 0));
    let (records, killed) = counts(&format!("{begin}6 x write 0 51"));
    assert_eq!((records, killed.lost, killed.cut_short), (2, 7, 1));
    assert_eq!(killed.skipped["unfinished last lines"], 1);
    let (records, killed) = counts(begin);
    assert_eq!((records, killed.cut_short), (2, 1));
    assert!(!killed.skipped.contains_key("unfinished last lines"));
    // Without opened files, the end of a log is unknown.
    let (records, short) = counts("fio version 3 iolog\n0 x write 0 512\n1 x read 0 512");
    assert_eq!((records, short.cut_short), (2, 0));
    // A line was removed.
    let removed = format!("{begin}9 x close requests=3\n");
    let trace = of_text(&removed);
    let error = trace.filter_map(Result::err).next().expect("a line is missing");
    let text = error.to_string();
    assert!(text.contains("t:6:") && text.contains("2, for as many requests of x"), "{text}");
}

#[test]
fn a_writer_says_what_it_lacks_and_counts_the_rest() {
    let mut devices = Devices::default();
    let device = devices.intern("vol").unwrap();
    let mut log = Writer::new(Vec::new(), Version::Three).unwrap();
    log.open(&devices, device).unwrap();
    let (op, flags) = (Op::Write, Flags { fua: true, ..Flags::default() });
    let (offset, length) = (Bytes(512), Bytes(1024));
    let at = |us: u64| Record {
        time: Time(us * 1000),
        device,
        op,
        flags,
        offset,
        length,
        pid: None,
        latency: None,
    };
    log.write(&devices, &at(3)).unwrap();
    log.lost(2);
    log.lost(3);
    log.write(&devices, &at(8)).unwrap();
    log.lost(1);
    let text = String::from_utf8(log.finish(&devices).unwrap()).unwrap();
    assert_eq!(
        text,
        "fio version 3 iolog\n0 vol add\n0 vol open\n3 vol write 512 1024 flags=fua\n\
         8 vol write 512 1024 flags=fua lost=5\n8 vol close requests=2 lost=1\n"
    );
    let mut trace = of_text(&text);
    assert_eq!(read_all(&mut trace).len(), 2);
    assert_eq!(trace.counts().lost, 6);
}

#[test]
fn waits_of_version_2_add_up() {
    let all = records(
        "fio version 2 iolog\nx add\nx open\nx read 0 512\nx wait 400000 0\nx write 512 512\n\
         x wait 99 0\nx trim 0 512\nx wait 100 0\nx datasync 9 9\nx close\n",
    );
    let at: Vec<_> = all.iter().map(brief).collect();
    let late = 400_000_000;
    assert_eq!(at[0], (0, Op::Read, 0, 512));
    assert_eq!(at[1], (late, Op::Write, 512, 512));
    assert_eq!(at[2], (late, Op::Discard, 0, 512));
    assert_eq!(at[3], (late + 100_000, Op::Flush, 0, 0));
}

#[test]
fn tables_of_data_centres_are_read_in_their_units() {
    let msr = "128166372003061629,hm,1,Read,383496192,32768,413\n\
               128166372016382155,hm,1,Write,2822144,4096,66\n";
    let all = records(msr);
    assert_eq!(brief(&all[1]), (1_332_052_600, Op::Write, 2_822_144, 4096));
    assert_eq!(all[1].latency, Some(Span(6_600)));
    for header in [
        "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n",
        "\"timestamp\", \"hostname\", \"disknumber\", \"type\", \"offset\", \"size\", \"responsetime\"\r\n",
    ] {
        let text = format!("{header}{msr}");
        let mut trace = Trace::of_bytes("t", text.into_bytes(), &ReadOptions::default()).unwrap();
        assert_eq!(read_all(&mut trace), all);
        let counts = trace.counts();
        assert_eq!((counts.lines, counts.skipped["header lines"]), (3, 1));
    }
    let all = records("419,W,8792731648,16384,1577808144360767\n725,R,0,4096,1577808144360773\n");
    assert_eq!(brief(&all[1]), (6_000, Op::Read, 0, 4096));
    assert_eq!(all[1].device, DeviceIndex(1));
    let all = records("1538323200,12910952,128,0,1063\n1538323201,6265248,8,1,1071\n");
    assert_eq!(brief(&all[1]), (1_000_000_000, Op::Write, 6_265_248 * 512, 4096));
    let all = records("0,20941264,8192,W,0.551706\n1,20939840,8192,r,0.554041\n");
    assert_eq!(brief(&all[1]), (2_335_000, Op::Read, 20_939_840 * 512, 8192));
    let all = records(
        "Timestamp,Response,IOType,LUN,Offset,Size\n1455592797.022427082,0.000291,W,4,8192,512\n\
         1455592797.5,,R,4,0,4096\n",
    );
    assert_eq!(brief(&all[1]), (477_572_918, Op::Read, 0, 4096));
    assert_eq!((all[0].latency, all[1].latency), (Some(Span(291_000)), None));
    let all = records("89966141424 4892 syslogd 904265560 8 W 6 0 531e779f8c3a9b9a7d2a7f1d\n");
    assert_eq!(brief(&all[0]), (0, Op::Write, 904_265_560 * 512, 4096));
    assert_eq!(all[0].pid, Some(4892));
}

/// Columns and letters of libbpf-tools' program. Counterpart: with `Event::Issue` the time in the
/// queue counts neither for the order nor for the latency.
#[test]
fn biosnoop_prints_completions_that_are_read_in_order_of_issue() {
    let text = "TIME(s)   COMM           PID     DISK    T    SECTOR     BYTES   QUE(ms) LAT(ms)\n\
         0.000000  fio            4021    sda     WS   2048       4096      1.000   2.000\n\
         0.000500  tar [x] y      77      sdb     R    4096       8192     -1.000   2.800\n\
         0.001000  ?              0       sda     FF   -1         0         0.000   0.500\n\
         0.001500  fio            4021    sda     N    0          512       0.000   0.100\n";
    let none = Flags::default();
    for (event, order, latency) in [
        (Event::Queue, [Op::Write, Op::Read, Op::Flush], 3_000_000_u64),
        (Event::Issue, [Op::Read, Op::Write, Op::Flush], 2_000_000),
    ] {
        let options = ReadOptions { event, ..ReadOptions::default() };
        let mut trace = Trace::of_bytes("t", text.as_bytes().to_vec(), &options).unwrap();
        let all = read_all(&mut trace);
        assert_eq!(all.iter().map(|record| record.op).collect::<Vec<_>>(), order);
        let of = |op| *all.iter().find(|record| record.op == op).unwrap();
        let (write, read, flush) = (of(Op::Write), of(Op::Read), of(Op::Flush));
        assert_eq!(read.time.0.abs_diff(write.time.0), latency.abs_diff(2_300_000));
        assert_eq!((write.latency, write.pid), (Some(Span(latency)), Some(4021)));
        assert_eq!((write.offset, write.flags), (Bytes(2048 * 512), Flags { sync: true, ..none }));
        assert_eq!((read.device, read.length), (DeviceIndex(1), Bytes(8192)));
        assert_eq!((flush.offset, flush.length, flush.flags), (Bytes(0), Bytes(0), none));
        assert_eq!(trace.devices().names(), ["sda", "sdb"]);
        assert_eq!(trace.process(77), Some("tar [x] y"));
        let counts = trace.counts();
        assert_eq!((counts.out_of_order, counts.skipped["requests without a transfer"]), (0, 1));
    }
}

/// Columns and letters of bcc's program in Python.
#[test]
fn biosnoop_of_bcc_has_a_letter_for_reads_and_writes_only() {
    let header =
        "TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  P QUE(ms) LAT(ms)\n";
    let lines = "0.0 a 7 sda R 8 1073741824 ? 0.00 1.00\n0.1 a 7 sda R 0 0 R 0.00 1.00\n\
                 0.2 ? 0 <unknown> W 0 4096 ? 0.00 0.74\n0.3 a 7 sda W 8 512 S 0.00 0.74\n";
    let options = ReadOptions { assume: Assume::Sync, ..ReadOptions::default() };
    let mut trace =
        Trace::of_bytes("t", format!("{header}{lines}").into_bytes(), &options).unwrap();
    let all = read_all(&mut trace);
    assert_eq!(brief(&all[0]), (0, Op::Discard, 4096, 1 << 30));
    assert_eq!(brief(&all[1]), (100_000_000, Op::Flush, 0, 0));
    assert_eq!(brief(&all[2]), (300_260_000, Op::Write, 4096, 512));
    assert!(all[2].flags.sync && !all[0].flags.sync);
    assert_eq!(trace.counts().skipped["requests of an unknown disk"], 1);
    // Without a header, and a line of an old program that did not know the disk.
    let mut trace = of_text("0.0 a 7 xvda1 W 8 512 0.74\n0.1 ?  0   R 0 4096 0.74\n");
    assert_eq!((read_all(&mut trace).len(), trace.formats()[0]), (1, Format::Biosnoop));
    assert_eq!(trace.counts().skipped["requests of an unknown disk"], 1);
}

/// A request that took longer than others wait for it.
#[test]
fn biosnoop_orders_requests_within_a_second() {
    let text = "8.0 a 7 sda W 0 512 0.10\n9.0 a 7 sda W 1 512 0.10\n10.1 a 7 sda W 2 512 0.10\n\
                10.2 a 7 sda W 3 512 900.00\n10.3 a 7 sda W 4 512 2000.00\n";
    let mut trace = of_text(text);
    let order: Vec<u64> = read_all(&mut trace).iter().map(|r| r.offset.0 / 512).collect();
    assert_eq!((order, trace.counts().out_of_order), (vec![0, 1, 4, 3, 2], 1));
}

#[test]
fn writes_are_assumed_sync_only_where_the_format_cannot_say() {
    let options = ReadOptions { assume: Assume::Sync, ..ReadOptions::default() };
    let line = b"419,W,0,512,0\n419,R,0,512,1\n".to_vec();
    let all = read_all(&mut Trace::of_bytes("t", line, &options).unwrap());
    assert_eq!((all[0].flags.sync, all[1].flags.sync), (true, false));
    let line = b"fio version 3 iolog\n0 x write 0 512\n".to_vec();
    let all = read_all(&mut Trace::of_bytes("t", line, &options).unwrap());
    assert!(!all[0].flags.sync);
}

#[test]
fn packed_traces_are_unpacked() {
    for (name, skipped) in [("packed.gz", 2), ("packed.zst", 2)] {
        let mut trace = open(name);
        assert_eq!(brief(&read_all(&mut trace)[0]), (0, Op::Read, 0, 512), "{name}");
        assert_eq!(trace.counts().skipped.values().sum::<u64>(), skipped);
        let mut bytes = std::fs::read(fixture(name)).unwrap();
        bytes.truncate(bytes.len() - 3);
        let cut = Trace::of_bytes(name, bytes, &ReadOptions::default());
        let error = match cut {
            Err(error) => error,
            Ok(trace) => trace.filter_map(Result::err).next().expect("a cut file is an error"),
        };
        assert!(matches!(error, ReplayError::Io { .. }), "{name}: {error}");
    }
}

#[test]
fn every_malformed_line_is_told_by_file_line_column_and_field() {
    let good3 = "fio version 3 iolog\n";
    let good2 = "fio version 2 iolog\n";
    let msr = "128166372003061629,hm,1,Read,383496192,32768,413\n";
    let blk = "  8,0 3 1 0.000000000 697 Q W 223490 + 8 [kjournald]\n";
    let bio = "0.1 a 7 sda W 8 512 0.5\n";
    // Text before the bad line, the line, its column, its field, and a part of the error.
    let table: &[(&str, &str, usize, &str, &str)] = &[
        (good3, "x write 0 512", 1, "time in microseconds", "\"x\""),
        (good3, "1", 2, "file", "the end of the line"),
        (good3, "1 x frob 0 512", 5, "action", "frob"),
        (good3, "1 x wait 100 0", 5, "action", "wait"),
        (good3, "1 x write zero 512", 11, "offset", "zero"),
        (good3, "1 x write 0", 12, "length", "the end of the line"),
        (good3, "1 x write 9223372036854775807 1", 31, "length", "1"),
        (good3, "1 x write 0 512 flags=sync,sync", 23, "what is known beyond", "sync,sync"),
        (good3, "1 x write 0 512 colour=red", 17, "what is known beyond", "colour=red"),
        (good3, "1 x write 0 512 pid=4294967296", 21, "what is known beyond", "4294967296"),
        (good3, "18446744073709551616 x write 0 1", 1, "time in microseconds", "184467"),
        (good3, "1 x open 5", 10, "end of line", "5"),
        (good3, "", 1, "time in microseconds", "the end of the line"),
        (good2, "x wait", 7, "microseconds", "the end of the line"),
        (good2, "x wait 18446744073709551615 0", 8, "microseconds", "184467"),
        (good2, "x write 0 512 512", 15, "what is known beyond", "512"),
        (msr, "12816637200306162,hm,1,Read,-1,32768,413", 29, "Offset", "-1"),
        (msr, "128166372003061629,hm,1,read,0,32768,413", 25, "Type", "read"),
        // Only the first line may be a header.
        (
            msr,
            "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime",
            1,
            "Timestamp",
            "Timestamp",
        ),
        (msr, "128166372003061629,h m,1,Read,0,32768,413", 20, "Hostname", "h m"),
        (msr, "128166372003061629,hm,1,Read,0,32768", 37, "ResponseTime", "the end"),
        (msr, "128166372003061629,hm,1,Read,0,32768,413,9", 42, "end of line", "9"),
        (msr, "999999999999999999999,hm,1,Read,0,1,1", 1, "Timestamp", "9999"),
        ("1,R,0,512,5\n", "1,X,0,512,5", 3, "opcode", "X"),
        ("1,R,0,512,5\n", "4294967296,R,0,512,5", 1, "device_id", "4294967296"),
        ("1,R,0,512,5\n", "1,R,0,512,", 11, "timestamp", "nothing"),
        ("1,8,8,0,7\n", "1,8,8,2,7", 7, "IOType", "2"),
        ("1,8,8,0,7\n", "1,36028797018963968,8,0,7", 3, "Offset", "36028797018963968"),
        ("0,1,512,r,0.5\n", "0,1,512,r,0.5e1", 11, "Timestamp", "0.5e1"),
        ("0,1,512,r,0.5\n", "0,1,512,r,0.0123456789", 11, "Timestamp", "0.0123456789"),
        (blk, "8:0 3 2 0.1 697 Q W 223490 + 8 [x]", 1, "device", "8:0"),
        (blk, "8,0 3 2 0.1 697 Y W 223490 + 8 [x]", 17, "action", "Y"),
        (blk, "8,0 3 2 0.1 697 Q WX 223490 + 8 [x]", 19, "rwbs", "WX"),
        (blk, "8,0 3 2 0.1 697 Q WSS 223490 + 8 [x]", 19, "rwbs", "WSS"),
        (blk, "8,0 3 2 0.1 697 Q W 223490 - 8 [x]", 28, "+", "-"),
        (blk, "8,0 3 2 0.1 697 Q W 223490 + 8 x", 32, "process", "x"),
        (blk, "8,0 3 2 0.1 697 Q W 223490 + 8", 31, "process", "the end of the line"),
        (blk, "8,0 3 2 0.1 697 Q W", 20, "sector", "the end of the line"),
        (blk, "8,0 3 2", 8, "time", "the end of the line"),
        (bio, "0.2 a 7 sda W 8 512", 20, "LAT(ms)", "the end of the line"),
        (bio, "0.2 a b 7 sda W 8 512 -1", 23, "LAT(ms)", "-1"),
        (bio, "0.2 a 7 sda X 8 512 0.5", 13, "T", "X"),
        (bio, "0.2 a b sda W 8 512 0.5", 7, "PID", "b"),
        (bio, "0.2 a 7 sda W 8 512 4000000", 1, "TIME(s)", "0.2"),
        (bio, "TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)", 1, "TIME(s)", "TIME(s)"),
        ("1 2 p 8 8 R 8 0 ab\n", "1 2 p 8 8 R 8 0 xy", 17, "md5", "xy"),
        ("1 2 p 8 8 R 8 0 ab\n", "1 2 p 8 8 r 8 0 ab", 11, "op", "r"),
    ];
    for (before, line, column, field, found) in table {
        let mut trace = of_text(&format!("{before}{line}\n"));
        let error = trace.by_ref().find_map(Result::err);
        let error = error.unwrap_or_else(|| panic!("{line:?} was taken"));
        let ReplayError::Line { line: number, column: c, field: f, found: what, .. } = &error
        else {
            panic!("{line:?}: {error}");
        };
        assert_eq!((*number, *c, *f), (2, *column, *field), "{line:?}: {error}");
        assert!(what.contains(found), "{line:?}: {error}");
        assert!(trace.next().is_none(), "{line:?}: something after an error");
    }
    let shown = of_text("1,R,0,512,5\n1,X,0,512,5\n").find_map(Result::err).unwrap().to_string();
    assert_eq!(shown, "t:2:3: opcode: found \"X\", expected R, W");
}

#[test]
fn bytes_that_are_no_text_and_lines_without_end_are_errors() {
    let mut bytes = b"1,R,0,512,5\n1,R,0,5\xff2,5\n".to_vec();
    let error = Trace::of_bytes("t", bytes.clone(), &ReadOptions::default()).unwrap();
    let error = error.filter_map(Result::err).next().unwrap();
    assert!(error.to_string().starts_with("t:2:8: line: found byte 0xff"), "{error}");
    bytes.truncate(12);
    bytes.extend(std::iter::repeat_n(b'1', 1 << 20));
    let mut trace = Trace::of_bytes("t", bytes, &ReadOptions::default()).unwrap();
    let error = trace.find_map(Result::err).unwrap();
    assert!(error.to_string().starts_with("t:2:65537: line: found more text"), "{error}");
}

#[test]
fn malformed_blktrace_records_are_told_by_record_byte_and_field() {
    let good = std::fs::read(fixture("sda.blktrace.0")).unwrap();
    // The first record is a note with a payload of 16 bytes, so the second begins at byte 64; the
    // third, a queue event, at byte 120.
    let changes: [(usize, u8, &str, u64); 5] = [
        (120, 0x08, "version", 120),
        (123, 0x00, "magic", 120),
        (148, 18, "action", 148),
        (143, 0xff, "sector", 136),
        (0, 0x06, "version", 0),
    ];
    for (at, value, field, byte) in changes {
        let mut bytes = good.clone();
        bytes[at] = value;
        let trace = Trace::of_bytes("t", bytes, &ReadOptions::default()).unwrap();
        let error = trace.filter_map(Result::err).next().expect("an error");
        let ReplayError::Bytes { field: f, byte: b, .. } = &error else { panic!("{error}") };
        assert_eq!((*f, *b), (field, byte), "{error}");
    }
    for length in [good.len() - 1, good.len() - 16, good.len() - 17, 47, 100] {
        let trace = Trace::of_bytes("t", good[..length].to_vec(), &ReadOptions::default()).unwrap();
        let error = trace.filter_map(Result::err).next().expect("a cut file is an error");
        assert!(matches!(error, ReplayError::Bytes { .. }), "{length}: {error}");
    }
    let mut mixed = good;
    mixed.extend(std::fs::read(fixture("sdb.blktrace.0")).unwrap());
    let trace = Trace::of_bytes("t", mixed, &ReadOptions::default()).unwrap();
    let error = trace.filter_map(Result::err).next().unwrap().to_string();
    assert!(error.contains("expected the byte order of the first record"), "{error}");
}

#[test]
fn what_is_no_trace_is_refused_with_the_formats() {
    let mut tar = vec![b'x'; 512];
    tar[257..262].copy_from_slice(b"ustar");
    let table: [(&[u8], &str); 5] = [
        (b"", "an empty file"),
        (b"hello world\n", "\"hello world\""),
        (b"fio version 4 iolog\n", "fio version 4"),
        (b"\xff\xfe\n", "bytes that are no text"),
        (&tar, "a tar archive"),
    ];
    for (bytes, found) in table {
        let error = Trace::of_bytes("t", bytes.to_vec(), &ReadOptions::default());
        let error = error.err().expect("refused").to_string();
        assert!(error.contains(found) && error.contains("blkparse, blktrace"), "{error}");
    }
    let named = ReadOptions { format: Format::find("msr"), ..ReadOptions::default() };
    let mut trace = Trace::of_bytes("t", b"1,2\n".to_vec(), &named).unwrap();
    assert!(matches!(trace.next(), Some(Err(ReplayError::Line { .. }))));
    assert!(Format::ALL.iter().all(|format| Format::find(format.name()) == Some(*format)));
}

#[test]
fn several_files_are_one_stream_in_order_of_time() {
    let mut trace = of_text("1,R,0,512,5\n1,R,0,512,9\n1,R,0,512,8\n");
    let other = std::io::Cursor::new(b"2,W,0,512,6\n2,W,0,512,9\n".to_vec());
    trace.add("u".to_owned(), Box::new(other), &ReadOptions::default()).unwrap();
    let all = read_all(&mut trace);
    let order: Vec<_> = all.iter().map(|r| (r.time.0 / 1000, r.device.0)).collect();
    assert_eq!(order, [(0, 0), (1, 1), (4, 0), (3, 0), (4, 1)]);
    assert_eq!((trace.counts().out_of_order, trace.counts().records), (1, 5));
}

/// Result of `options` on a write of `length` at `offset`, from device 0 or 1.
fn shaped(options: Options, offset: u64, length: u64, device: u32) -> (Vec<(u64, u64)>, Changes) {
    let text = format!("0,R,0,1,0\n1,R,0,1,0\n{device},W,{offset},{length},100\n");
    let mut shaped = Shaped::new(of_text(&text), options);
    let all: Vec<_> = shaped.by_ref().map(Result::unwrap).collect();
    let writes = all.iter().filter(|record| record.op == Op::Write);
    (writes.map(|record| (record.offset.0, record.length.0)).collect(), shaped.changes())
}

#[test]
fn ranges_are_placed_divided_rounded_and_fitted() {
    let plain = Options::unchanged(Bytes(10_000));
    let with = |fit| Options { fit, ..plain };
    assert_eq!(shaped(plain, 9_000, 1_000, 0).0, [(9_000, 1_000)]);
    assert_eq!(shaped(with(Fit::Clip), 9_000, 2_000, 0).0, [(9_000, 1_000)]);
    let (none, changes) = shaped(with(Fit::Clip), 10_000, 2_000, 0);
    assert_eq!((none.len(), changes.beyond_end), (0, 1));
    let (one, changes) = shaped(with(Fit::Modulo), 29_000, 2_000, 0);
    assert_eq!((one, changes.cut), (vec![(9_000, 1_000)], 1));
    let (two, changes) = shaped(with(Fit::Wrap), 29_000, 2_000, 0);
    assert_eq!((two, changes.split), (vec![(9_000, 1_000), (0, 1_000)], 1));
    let block = Options { align: Align::Outward(Bytes(512)), fit: Fit::Wrap, ..plain };
    assert_eq!(shaped(block, 700, 400, 0).0, [(512, 1024)]);
    // 10,000 bytes hold 19 blocks of 512: the end is at 9,728.
    assert_eq!(shaped(block, 9_727, 2, 0).0, [(9_216, 512), (0, 512)]);
    let offset = Options { align: Align::Offset(Bytes(512)), ..plain };
    assert_eq!(shaped(offset, 700, 400, 0).0, [(512, 400)]);
    let side = Options { placement: Placement::SideBySide { stride: Bytes(4_000) }, ..plain };
    assert_eq!(shaped(side, 100, 10, 1).0, [(4_100, 10)]);
    let only = Options { placement: Placement::Only(DeviceIndex(0)), ..plain };
    let (none, changes) = shaped(only, 100, 10, 1);
    assert_eq!((none.len(), changes.other_device), (0, 2));
    let divided = Options { offset_divisor: 10, ..plain };
    assert_eq!(shaped(divided, 50_000, 10, 0).0, [(5_000, 10)]);
}

#[test]
fn what_does_not_fit_is_an_error_that_names_the_record() {
    let run = |options| {
        let mut shaped = Shaped::new(of_text("1,R,0,1,0\n1,W,9,9,0\n1,R,0,1,0\n"), options);
        let errors: Vec<_> = shaped.by_ref().filter_map(Result::err).collect();
        assert_eq!(errors.len(), 1);
        errors[0].to_string()
    };
    let error = run(Options::unchanged(Bytes(17)));
    assert!(error.starts_with("record 2: end of the request: found byte 18"), "{error}");
    let stride = Placement::SideBySide { stride: Bytes(16) };
    let error = run(Options { placement: stride, ..Options::unchanged(Bytes(100)) });
    assert!(error.contains("expected at most the stride of 16 bytes"), "{error}");
}

#[test]
fn times_are_scaled_and_seconds_spread() {
    let text = "10,0,1,0,7\n10,8,1,1,7\n10,16,1,1,7\n10,24,1,1,7\n11,0,1,0,7\n";
    let times = |options| -> Vec<u64> {
        let shaped = Shaped::new(of_text(text), options);
        shaped.map(|record| record.unwrap().time.0 / 1_000_000).collect()
    };
    let plain = Options::unchanged(Bytes::mib(1));
    assert_eq!(times(plain), [0, 0, 0, 0, 1000]);
    let spread = Options { spread: Span::secs(1), ..plain };
    assert_eq!(times(spread), [0, 250, 500, 750, 1000]);
    assert_eq!(times(Options { time_percent: 50, ..spread }), [0, 125, 250, 375, 500]);
    assert_eq!(times(Options { time_percent: 300, ..plain })[4], 3000);
    assert_eq!(plain.pace, Pace::OpenLoop);
}

#[test]
fn a_log_that_weft_wrote_is_one_that_fio_replays() {
    let fio = |arguments: &[&str], folder: &std::path::Path| {
        std::process::Command::new("fio").args(arguments).current_dir(folder).output()
    };
    let folder = tempfile::tempdir().unwrap();
    if fio(&["--version"], folder.path()).is_err() {
        skip("fio is not installed");
        return;
    }
    let mut trace = open("sda");
    let all = read_all(&mut trace);
    let file = std::fs::File::create(folder.path().join("log")).unwrap();
    let mut log = Writer::new(file, Version::Three).unwrap();
    for record in &all {
        log.write(trace.devices(), record).unwrap();
    }
    log.finish(trace.devices()).unwrap();
    let job = ["--name=j", "--ioengine=null", "--size=1g", "--read_iolog=log", "--thread"];
    let output = fio(&[&job[..], &["--output-format=json"]].concat(), folder.path()).unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let json: serde_json::Value = serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap();
    let count = |kind: &str| json["jobs"][0][kind]["total_ios"].as_u64().unwrap();
    let ours = |op| all.iter().filter(|record| record.op == op).count() as u64;
    assert_eq!(count("read"), ours(Op::Read));
    assert_eq!(count("write"), ours(Op::Write));
    assert_eq!(count("sync"), ours(Op::Flush));
}

#[test]
fn a_time_before_the_first_is_the_first() {
    let all = records("1,R,0,512,5\n1,R,0,512,3\n");
    assert_eq!(all[1].time, Time(0));
}

/// A blktrace record without payload.
fn blktrace_record(little: bool, fields: [u64; 6], cpu: u32, pid: u32) -> Vec<u8> {
    let [sequence, time, sector, bytes, event, mask] = fields;
    let mut record = Vec::new();
    let mut put = |value: u64, width: usize| {
        let bytes = value.to_be_bytes();
        let bytes = bytes[8 - width..].iter().copied();
        if little { record.extend(bytes.rev()) } else { record.extend(bytes) }
    };
    let action = event | (mask << 16);
    for (value, width) in [(0x6561_7407, 4), (sequence, 4), (time, 8), (sector, 8), (bytes, 4)] {
        put(value, width);
    }
    for (value, width) in [(action, 4), (u64::from(pid), 4), (8 << 20, 4), (u64::from(cpu), 4)] {
        put(value, width);
    }
    put(0, 2);
    put(0, 2);
    assert_eq!(record.len(), 48);
    record
}

#[test]
fn blkparse_prints_of_many_records_what_is_read_from_their_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let blkparse = |arguments: &[&str]| {
        std::process::Command::new("blkparse").args(arguments).current_dir(folder.path()).output()
    };
    if blkparse(&["-V"]).is_err() {
        skip("blkparse is not installed (Debian package blktrace)");
        return;
    }
    let mut rng = Rng::new(1);
    let mut draw = |bound: u64| rng.below(bound);
    for little in [true, false] {
        let (mut files, mut sequences) = ([Vec::new(), Vec::new()], [0, 0]);
        let mut time = 1_000_000;
        for _ in 0..2_000 {
            let cpu = draw(2);
            let at = usize::try_from(cpu).unwrap();
            sequences[at] += 1;
            time += draw(3_000_000) + 1;
            // Write, flush, sync, ahead, meta, FUA; reads and writes have data, empty requests have
            // a preflush.
            let (write, empty) = (draw(2) == 1, draw(8) == 0);
            let mut mask = (u64::from(write) << 1)
                | u64::from(!write)
                | (draw(2) << 3)
                | ((draw(4) / 3) << 12);
            if write {
                mask |= ((draw(4) / 3) << 2) | ((draw(4) / 3) << 15) | ((draw(8) / 7) << 13);
            } else {
                mask |= (draw(4) / 3) << 11;
            }
            let bytes = if write && empty { 0 } else { (draw(256) + 1) * 512 };
            if bytes == 0 {
                mask = (1 << 1) | (1 << 2) | (mask & (1 << 3));
            }
            // Queue and issue events, each in its category.
            let (event, category) = if draw(3) == 0 { (7, 1 << 6) } else { (1, 1 << 4) };
            let fields = [sequences[at], time, draw(1 << 40), bytes, event, mask | category];
            let pid = u32::try_from(draw(70_000)).unwrap();
            files[at].extend(blktrace_record(little, fields, u32::try_from(cpu).unwrap(), pid));
        }
        for (cpu, bytes) in files.iter().enumerate() {
            std::fs::write(folder.path().join(format!("t.blktrace.{cpu}")), bytes).unwrap();
        }
        let printed = blkparse(&["-i", "t"]).unwrap().stdout;
        for event in [Event::Queue, Event::Issue] {
            let options = ReadOptions { event, ..ReadOptions::default() };
            let text = read_all(&mut Trace::of_bytes("text", printed.clone(), &options).unwrap());
            let binary = read_all(&mut Trace::open(&[folder.path().join("t")], &options).unwrap());
            assert!(binary.len() > 500, "{}", binary.len());
            assert_eq!(text.len(), binary.len());
            for (text, binary) in text.iter().zip(&binary) {
                assert_eq!(text, binary);
            }
        }
    }
}
