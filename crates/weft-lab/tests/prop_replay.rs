//! Property tests of traces: reading always ends, and a trace that is written and read again is the
//! same.

use proptest::prelude::*;
use weft_lab::replay::iolog::{Version, Writer};
use weft_lab::replay::{Devices, Flags, Format, Op, ReadOptions, Record, Trace};
use weft_units::{Bytes, Span, Time};

/// A few valid lines of every text format.
const SAMPLES: &[(Format, &str)] = &[
    (Format::Alibaba, "419,W,8792731648,16384,1577808144360767\n725,R,0,4096,1577808144360773\n"),
    (
        Format::Biosnoop,
        "TIME(s) COMM PID DISK T SECTOR BYTES QUE(ms) LAT(ms)\n\
         0.000000 sync 22177 nvme1n1 W 41963894 3072 0.11 0.47\n\
         0.000771 a b 1061 sda FWS 545728 16384 -1.000 0.61\n",
    ),
    (Format::Blkparse, include_str!("fixture/blkparse.txt")),
    (Format::Fiu, "89966141424 4892 syslogd 904265560 8 W 6 0 531e779f8c3a9b9a7d2a7f1d\n"),
    (Format::Iolog2, "fio version 2 iolog\nx add\nx open\nx wait 500 0\nx write 0 512\nx close\n"),
    (Format::Iolog3, include_str!("fixture/fio_mixed.iolog")),
    (Format::Msr, "128166372003061629,hm,1,Read,383496192,32768,413\n"),
    (Format::Spc, "0,20941264,8192,W,0.551706\n"),
    (Format::Systor, "Timestamp,Response,IOType,LUN,Offset,Size\n1.5,0.1,W,4,8192,512\n"),
    (Format::Tencent, "1538323200,12910952,128,0,1063\n"),
];

/// Reads to the end, in this format or the detected one. Returns the number of records.
fn drain(format: Option<Format>, bytes: Vec<u8>) -> u64 {
    let options = ReadOptions { format, ..ReadOptions::default() };
    let Ok(mut trace) = Trace::of_bytes("t", bytes, &options) else { return 0 };
    let limit = 1 << 20;
    let read = trace.by_ref().take(limit).filter(Result::is_ok).count();
    assert!(read < limit);
    assert!(trace.next().is_none());
    assert!(trace.counts().records >= read as u64);
    read as u64
}

/// A change to some bytes.
#[derive(Clone, Debug)]
enum Edit {
    Cut(usize, usize),
    Insert(usize, Vec<u8>),
    Set(usize, u8),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let awkward = prop_oneof![
        Just(b"18446744073709551615".to_vec()),
        Just(b"-1".to_vec()),
        Just(b"\n".to_vec()),
        Just(b",".to_vec()),
        Just(b" ".to_vec()),
        Just(b"[".to_vec()),
        Just(b"=".to_vec()),
        proptest::collection::vec(any::<u8>(), 1..8),
    ];
    let edit = prop_oneof![
        (any::<usize>(), 0usize..20).prop_map(|(at, count)| Edit::Cut(at, count)),
        (any::<usize>(), awkward).prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Edit::Set(at, byte)),
    ];
    proptest::collection::vec(edit, 1..5)
}

fn edited(mut bytes: Vec<u8>, edits: &[Edit]) -> Vec<u8> {
    for edit in edits {
        let len = bytes.len();
        match edit {
            Edit::Cut(at, count) => {
                let at = at % (len + 1);
                bytes.drain(at..(at + count).min(len));
            }
            Edit::Insert(at, new) => {
                let at = at % (len + 1);
                bytes.splice(at..at, new.iter().copied());
            }
            Edit::Set(_, _) if len == 0 => {}
            Edit::Set(at, byte) => bytes[at % len] = *byte,
        }
    }
    bytes
}

/// Text formats that have no line among the samples.
fn without_sample(samples: &[(Format, &str)]) -> Vec<Format> {
    // These formats are tested with files or a generator of their own.
    let others = [Format::Blktrace, Format::Iolog2, Format::Iolog3];
    let has = |format: &Format| samples.iter().any(|(of, _)| of == format);
    Format::ALL.into_iter().filter(|format| !has(format) && !others.contains(format)).collect()
}

#[test]
fn every_text_format_has_a_sample() {
    assert_eq!(without_sample(SAMPLES), []);
    assert_eq!(without_sample(&SAMPLES[1..]), [SAMPLES[0].0]);
}

#[test]
fn every_sample_is_of_one_format_only() {
    for (format, text) in SAMPLES {
        let bytes = text.as_bytes().to_vec();
        let trace = Trace::of_bytes("t", bytes, &ReadOptions::default()).unwrap();
        assert_eq!(trace.formats(), [*format]);
    }
}

/// A record in a text format; `None` if the format has no such request.
fn line(format: Format, index: usize, record: &Record) -> Option<String> {
    let (ns, pid) = (record.time.0, record.pid.unwrap_or(1));
    let (offset, length) = (record.offset.0, record.length.0);
    let (sector, sectors) = (offset / 512, length / 512);
    let latency = record.latency.map_or(0, |latency| latency.0);
    let device = record.device.0;
    let has_letters = matches!(format, Format::Biosnoop | Format::Blkparse);
    let (letter, number, word) = match record.op {
        Op::Read => ("R", 0, "Read"),
        Op::Write => ("W", 1, "Write"),
        Op::Discard | Op::Flush if !has_letters => return None,
        Op::Discard => ("D", 2, ""),
        Op::Flush => ("FW", 3, ""),
    };
    let Flags { sync, meta, fua, preflush, ahead } = record.flags;
    let set = |flag: bool, letter: &str| if flag { letter.to_owned() } else { String::new() };
    let before = set(preflush && record.op != Op::Flush, "F");
    let after = [(fua, "F"), (ahead, "A"), (sync, "S"), (meta, "M")];
    let after: String = after.map(|(flag, letter)| set(flag, letter)).concat();
    let rwbs = format!("{before}{letter}{after}");
    let in_seconds = |ns: u64| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    let seconds = in_seconds(ns);
    Some(match format {
        Format::Alibaba => format!("{device},{letter},{offset},{length},{}\n", ns / 1000),
        Format::Biosnoop => {
            let (completed, ms) = (in_seconds(ns + latency), latency / 1_000_000);
            let latency = format!("{ms}.{:06}", latency % 1_000_000);
            format!("{completed} a [b] c {pid} sd{device} {rwbs} {sector} {length} {latency}\n")
        }
        Format::Blkparse => {
            let at = if record.op == Op::Flush {
                String::new()
            } else {
                format!("{sector} + {sectors} ")
            };
            format!("  8,{device}    0 {index:8} {seconds} {pid:5}  Q {rwbs} {at}[a [b] c]\n")
        }
        Format::Fiu => format!("{ns} {pid} proc {sector} {sectors} {letter} 8 {device} 0af\n"),
        Format::Msr => {
            format!("{},h,{device},{word},{offset},{length},{}\n", ns / 100, latency / 100)
        }
        Format::Spc => format!("{device},{sector},{length},{letter},{seconds}\n"),
        Format::Systor => {
            let latency = in_seconds(latency);
            format!("{seconds},{latency},{letter},{device},{offset},{length}\n")
        }
        Format::Tencent => format!("{},{sector},{sectors},{number},{device}\n", ns / 1_000_000_000),
        Format::Blktrace | Format::Iolog2 | Format::Iolog3 => return None,
    })
}

fn record() -> impl Strategy<Value = Record> {
    let op = prop_oneof![
        3 => Just(Op::Read), 5 => Just(Op::Write), 1 => Just(Op::Discard), 1 => Just(Op::Flush)
    ];
    let flags = any::<[bool; 5]>().prop_map(|[sync, meta, fua, preflush, ahead]| Flags {
        sync,
        meta,
        fua,
        preflush,
        ahead,
    });
    let time = prop_oneof![0u64..10_000_000, 0u64..10_000_000_000_000];
    let latency = proptest::option::of(0u64..1_000_000_000);
    (
        time,
        0u32..3,
        op,
        flags,
        0u64..1 << 40,
        1u64..5000,
        proptest::option::of(any::<u32>()),
        latency,
    )
        .prop_map(|(time, device, op, flags, sector, sectors, pid, latency)| Record {
            time: Time(time),
            device: weft_lab::replay::DeviceIndex(device),
            op,
            // A flush has no preflush and no readahead flag.
            flags: Flags { preflush: flags.preflush && op != Op::Flush, ..flags },
            offset: Bytes(if op == Op::Flush { 0 } else { sector * 512 }),
            length: Bytes(if op == Op::Flush { 0 } else { sectors * 512 }),
            pid,
            latency: latency.map(Span),
        })
}

/// All records of a text, with the names of their devices.
fn read(name: &str, bytes: Vec<u8>, format: Option<Format>) -> (Vec<Record>, Devices) {
    let options = ReadOptions { format, ..ReadOptions::default() };
    let mut trace = Trace::of_bytes(name, bytes, &options).unwrap();
    let records = trace.by_ref().map(Result::unwrap).collect();
    (records, trace.devices().clone())
}

fn written(version: Version, records: &[Record], devices: &Devices) -> Vec<u8> {
    let mut log = Writer::new(Vec::new(), version).unwrap();
    for record in records {
        log.write(devices, record).unwrap();
    }
    log.finish(devices).unwrap()
}

/// Statement 29: records are the same after writing them to a log and reading it again, with times
/// to a microsecond.
fn holds_experiments_29(records: &[Record], devices: &Devices) {
    let log = written(Version::Three, records, devices);
    let (again, devices_again) = read("log", log, None);
    assert_eq!(again.len(), records.len());
    assert_eq!(devices_again.names(), devices.names());
    let first = records.first().map_or(0, |record| record.time.0 / 1000);
    for (record, again) in records.iter().zip(&again) {
        let us = (record.time.0 / 1000).saturating_sub(first);
        assert_eq!(*again, Record { time: Time(us * 1000), ..*record });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_a_reader_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        format in proptest::option::of(proptest::sample::select(Format::ALL.to_vec())),
    ) {
        drain(format, bytes);
    }

    #[test]
    fn no_change_to_a_good_trace_makes_a_reader_panic(
        sample in proptest::sample::select(SAMPLES.to_vec()),
        edits in edits(),
        named in any::<bool>(),
    ) {
        let (format, text) = sample;
        prop_assert!(drain(Some(format), text.as_bytes().to_vec()) > 0);
        drain(named.then_some(format), edited(text.as_bytes().to_vec(), &edits));
    }

    #[test]
    fn no_change_to_a_packed_or_binary_trace_makes_a_reader_panic(
        which in 0usize..5,
        edits in edits(),
    ) {
        let bytes: &[u8] = [
            &include_bytes!("fixture/packed.gz")[..],
            include_bytes!("fixture/packed.zst"),
            include_bytes!("fixture/sda.blktrace.0"),
            include_bytes!("fixture/sda.blktrace.1"),
            include_bytes!("fixture/sdb.blktrace.0"),
        ][which];
        prop_assert!(drain(None, bytes.to_vec()) > 0);
        drain(None, edited(bytes.to_vec(), &edits));
    }

    #[test]
    fn experiments_29_each_format_round_trips_through_a_log(
        records in proptest::collection::vec(record(), 1..40),
        sample in proptest::sample::select(SAMPLES.to_vec()),
    ) {
        let (format, _) = sample;
        let mut records = records;
        records.sort_by_key(|record| record.time);
        let lines = records.iter().enumerate();
        let text: String = lines.filter_map(|(at, record)| line(format, at, record)).collect();
        if !text.is_empty() {
            let (parsed, devices) = read("t", text.into_bytes(), Some(format));
            prop_assert!(!parsed.is_empty());
            holds_experiments_29(&parsed, &devices);
        }
    }

    #[test]
    fn experiments_29_logs_round_trip_with_all_that_a_record_holds(
        records in proptest::collection::vec(record(), 1..40),
    ) {
        let mut records = records;
        records.sort_by_key(|record| record.time);
        let mut devices = Devices::default();
        for name in ["8,0", "/dev/md5", "usr_0"] {
            devices.intern(name).unwrap();
        }
        // Devices are numbered in order of appearance.
        let mut seen: Vec<u32> = Vec::new();
        for record in &mut records {
            let at = seen.iter().position(|device| *device == record.device.0);
            let at = at.unwrap_or_else(|| { seen.push(record.device.0); seen.len() - 1 });
            record.device.0 = u32::try_from(at).unwrap();
        }
        let first = records[0].time.0 / 1000;
        let (again, _) = read("log", written(Version::Three, &records, &devices), None);
        prop_assert_eq!(again.len(), records.len());
        for (record, again) in records.iter().zip(&again) {
            let us = record.time.0 / 1000 - first;
            prop_assert_eq!(*again, Record { time: Time(us * 1000), ..*record });
        }
        // Version 2 has a resolution of 100 µs; it reads exactly what it wrote.
        let (again, _) = read("log", written(Version::Two, &records, &devices), None);
        let origin = again[0].time.0 / 1000;
        let (first, mut clock) = (records[0].time.0 / 1000, 0);
        for (record, again) in records.iter().zip(&again) {
            let us = record.time.0 / 1000;
            let apart = (us - first).abs_diff(again.time.0 / 1000 - origin);
            prop_assert!(apart < 200, "{} µs apart", apart);
            prop_assert!(again.time.0 >= clock);
            clock = again.time.0;
            prop_assert_eq!(*again, Record { time: again.time, ..*record });
        }
    }
}
