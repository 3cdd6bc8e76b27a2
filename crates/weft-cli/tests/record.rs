//! Tests of `weft serve --record`: requests recorded by the real binary, and read as a trace.

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use common::client::Client;
use common::{Served, array, exits};
use rustix::process::Signal;
use weft_lab::replay::{Counts, Op, ReadOptions, Record, Trace};
use weft_nbd::Op as Ask;

fn end(served: Served, signal: Signal) -> Option<i32> {
    rustix::process::kill_process(served.pid(), signal).unwrap();
    served.wait()
}

fn read(path: &Path) -> (Vec<Record>, Counts) {
    let mut trace = Trace::open(&[path], &ReadOptions::default()).unwrap();
    let records = (&mut trace).map(Result::unwrap).collect();
    assert_eq!(trace.devices().names(), ["vol"]);
    (records, trace.counts().clone())
}

fn counts(records: &[Record]) -> BTreeMap<Op, (u64, u64)> {
    let mut counts = BTreeMap::<Op, (u64, u64)>::new();
    for record in records {
        let (requests, bytes) = counts.entry(record.op).or_default();
        *requests += 1;
        *bytes += record.length.0;
    }
    counts
}

#[test]
fn what_several_clients_ask_is_recorded_in_order() {
    let dir = array();
    let path = dir.path();
    let served = Served::start(path, &["--record=log", "a", "b", "c"]);
    let uri = served.uri.clone();
    let clients: Vec<_> = (0..4_u64)
        .map(|number| {
            let uri = uri.clone();
            std::thread::spawn(move || {
                let mut client = Client::connect(&uri);
                for turn in 0..50 {
                    let offset = number << 20 | turn << 12;
                    client.write(offset, &[7; 4096]);
                    assert_eq!(client.read(offset, 512), [7; 512]);
                    if turn % 10 == 0 {
                        client.request(Ask::Flush, &[]).unwrap();
                    }
                }
                let (offset, len, fua) = (number << 20, 65_536, true);
                client.request(Ask::Trim { offset, len, fua }, &[]).unwrap();
                // Neither request reaches the volume.
                let cache = Ask::Cache { offset, len };
                client.request(cache, &[]).unwrap();
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert_eq!(end(served, Signal::TERM), Some(0));
    let (records, said) = read(&path.join("log"));
    let expected = [
        (Op::Discard, (4, 4 << 16)),
        (Op::Flush, (20, 0)),
        (Op::Read, (200, 200 * 512)),
        (Op::Write, (200, 200 * 4096)),
    ];
    assert_eq!(counts(&records), BTreeMap::from(expected));
    assert_eq!((said.lost, said.cut_short, said.out_of_order), (0, 0, 0));
    // Writes of each client are in the order of issue.
    for number in 0..4_u64 {
        let writes = records.iter().filter(|record| record.op == Op::Write);
        let own = writes.filter(|record| record.offset.0 >> 20 == number);
        let at: Vec<u64> = own.map(|record| record.offset.0 & 0xf_ffff).collect();
        assert_eq!(at, (0..50).map(|turn| turn << 12).collect::<Vec<u64>>());
    }
    assert!(records.iter().filter(|record| record.op == Op::Discard).all(|trim| trim.flags.fua));
    let log = std::fs::read_to_string(path.join("serve.log")).unwrap();
    assert!(log.contains("log: 424 requests recorded"), "{log}");
}

/// A killed process leaves requests up to a moment before, and the log shows that it was cut.
#[test]
fn a_killed_server_leaves_a_log_that_can_be_read() {
    let dir = array();
    let path = dir.path();
    let served = Served::start(path, &["--record=log", "a", "b", "c"]);
    let mut client = Client::connect(&served.uri);
    (0..100).for_each(|block| client.write(block << 12, &[1; 4096]));
    // The first three lines are about the file.
    let lines = || std::fs::read_to_string(path.join("log")).unwrap().matches('\n').count();
    let start = Instant::now();
    while lines() < 103 {
        assert!(start.elapsed() < Duration::from_secs(30), "{} lines", lines());
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(end(served, Signal::KILL), None);
    let (records, said) = read(&path.join("log"));
    assert_eq!((records.len(), said.lost, said.cut_short), (100, 0, 1));
}

#[test]
fn nothing_but_a_log_is_overwritten_and_only_with_force() {
    let dir = array();
    let path = dir.path();
    let refused = |arguments: &[&str], what: &str| {
        let mut all = vec!["serve", "--exec=true"];
        all.extend(arguments);
        all.extend(["a", "b", "c"]);
        let text = exits(path, 3, &all).err;
        assert!(text.contains(what), "{arguments:?}: {text}");
    };
    let before = common::contents(path);
    std::os::unix::fs::symlink(path.join("b"), path.join("link")).unwrap();
    for force in [&[][..], &["--force"]] {
        refused(&[&["--record=a"], force].concat(), "--record a: is a member");
        refused(&[&["--record=link"], force].concat(), "--record link: is a member");
        let folder = [&["serve", "--exec=true", "--record=."], force, &["a", "b", "c"]].concat();
        assert!(exits(path, 2, &folder).err.contains("it is a folder"));
    }
    std::fs::remove_file(path.join("link")).unwrap();
    std::fs::write(path.join("text"), "fio job\n").unwrap();
    refused(&["--record=text"], "no log");
    refused(&["--record=text", "--force"], "no log");
    assert_eq!(std::fs::read(path.join("text")).unwrap(), b"fio job\n");
    std::fs::remove_file(path.join("text")).unwrap();
    assert!(common::contents(path) == before, "something was written");

    // --force overwrites a log, and a server that does not start leaves no new log.
    exits(path, 0, &["serve", "--exec=true", "--record=log", "a", "b", "c"]);
    let (records, said) = read(&path.join("log"));
    assert_eq!((records.len(), said.lost, said.cut_short), (0, 0, 0));
    refused(&["--record=log"], "exists");
    exits(path, 0, &["serve", "--exec=true", "--record=log", "--force", "a", "b", "c"]);
    let nowhere = "--listen=nbd+unix:///?socket=missing/socket";
    exits(path, 1, &["serve", nowhere, "--record=new", "a", "b", "c"]);
    assert!(!path.join("new").exists());
    exits(path, 2, &["serve", "--force", "a", "b", "c"]);
}

/// Two servers cannot write to one log.
#[test]
fn a_log_that_is_being_written_is_not_taken() {
    let dir = array();
    let path = dir.path();
    let served = Served::start(path, &["--record=log", "a", "b", "c"]);
    Client::connect(&served.uri).write(0, &[1; 512]);
    let other = ["serve", "--bare", "--record=log", "--force", "ram:1M"];
    let text = exits(path, 3, &other).err;
    assert!(text.contains("held by another process"), "{text}");
    assert_eq!(end(served, Signal::TERM), Some(0));
    assert_eq!(read(&path.join("log")).0.len(), 1);
}
