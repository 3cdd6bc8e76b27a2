//! Tests of `weft serve --bare`, through the real binary.

mod common;

use std::path::Path;
use std::time::Duration;

use common::client::Client;
use common::{Served, exits, json};
use tempfile::tempdir;
use weft_nbd::Op;

const SIZE: usize = 8 << 20;

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| ((at / 512 * 7 + at) % 256).to_le_bytes()[0] ^ seed).collect()
}

#[test]
fn a_file_is_served_as_it_is_and_written_through() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    let before = pattern(SIZE, 1);
    std::fs::write(path.join("disk.img"), &before).unwrap();
    let served = Served::start(path, &["--bare", "disk.img"]);
    assert!(served.uri.contains("///disk?"), "{}", served.uri);
    let mut client = Client::connect(&served.uri);
    assert_eq!(client.size(), SIZE as u64);
    assert!(client.read(1 << 20, 2 << 20) == before[1 << 20..3 << 20]);
    let new = pattern(300 << 10, 99);
    client.write(512 * 3, &new);
    client.request(Op::Flush, &[]).unwrap();
    let status = json(path, &["status", "--json", "disk"]);
    assert_eq!(status["servers"][0]["volumes"][0]["level"], "bare", "{status}");
    drop(client);
    exits(path, 0, &["stop", "disk"]);
    assert_eq!(served.wait(), Some(0));
    let mut after = before;
    after[512 * 3..][..new.len()].copy_from_slice(&new);
    assert!(std::fs::read(path.join("disk.img")).unwrap() == after);
}

/// A bare member has a queue, but no array.
#[test]
fn the_queue_of_a_bare_member_is_tuned_and_nothing_else() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    std::fs::write(path.join("disk"), pattern(SIZE, 1)).unwrap();
    exits(path, 2, &["serve", "--bare", "disk", "--set", "stripe_cache_size=512"]);
    let served = Served::start(path, &["--bare", "disk", "--set", "queue_depth=4"]);
    exits(path, 0, &["set", "disk", "scheduler=mq-deadline"]);
    let knobs = json(path, &["get", "disk", "scheduler", "queue_depth", "--json"])["knobs"].clone();
    assert_eq!((&knobs["scheduler"], &knobs["queue_depth"]), (&"mq-deadline".into(), &"4".into()));
    let mut client = Client::connect(&served.uri);
    assert!(client.read(1 << 20, 2 << 20) == pattern(SIZE, 1)[1 << 20..3 << 20]);
    drop(client);
    exits(path, 2, &["set", "disk", "skip_copy=1"]);
    exits(path, 0, &["stop", "disk"]);
    assert_eq!(served.wait(), Some(0));
}

/// Kind and number of requests that a member or volume has answered.
fn count(answered: &serde_json::Value) -> (&str, u64) {
    (answered["kind"].as_str().unwrap(), answered["count"].as_u64().unwrap())
}

/// Complete status of a bare member for programs, except the parts that depend on its location.
#[test]
fn status_tells_of_a_bare_member_what_it_is_and_has_done() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    std::fs::write(path.join("disk"), pattern(SIZE, 2)).unwrap();
    for read_only in [false, true] {
        let arguments = ["--bare", "disk", "--read-only"];
        let served = Served::start(path, &arguments[..2 + usize::from(read_only)]);
        let mut client = Client::connect(&served.uri);
        client.read(8192, 4096);
        let mut written = [0, 0];
        if !read_only {
            client.write(4096, &pattern(1536, 9));
            client.write(512, &pattern(512, 9));
            written = [2, 4];
        }
        client.request(Op::Flush, &[]).unwrap();
        let status = json(path, &["status", "--json", "disk"]);
        let mut volume = status["servers"][0]["volumes"][0].clone();
        let member = volume["members"][0].as_object_mut().unwrap();
        assert!(member.remove("label").unwrap().as_str().unwrap().ends_with("/disk"));
        assert!(member.remove("mode").is_some());
        let by_member = member.remove("answered").unwrap();
        let by_volume = volume.as_object_mut().unwrap().remove("answered").unwrap();
        for answered in [by_member, by_volume] {
            let counts: Vec<(&str, u64)> = answered.as_array().unwrap().iter().map(count).collect();
            let expected = [("read", 1), ("write", written[0]), ("flush", 1)];
            assert_eq!(counts, expected.into_iter().filter(|it| it.1 > 0).collect::<Vec<_>>());
        }
        let shares = volume.as_object_mut().unwrap().remove("shares").unwrap();
        let share = |name: &str| shares[0][name].clone();
        assert_eq!(
            [share("who"), share("weight")],
            [serde_json::json!("client"), serde_json::json!(40)],
            "{shares}"
        );
        assert_eq!(share("sectors"), serde_json::json!(8 + written[1]), "{shares}");
        let expected = serde_json::json!({
            "array_state": if read_only { "readonly" } else { "active" },
            "degraded": 0,
            "events": 0,
            "level": "bare",
            "members": [{
                "corrected": 0,
                "dev_number": 0,
                "flushes": 1,
                "in_flight": 0,
                "index": 0,
                "queue": {"rotational": false, "rotational_from": "assumed", "scheduler": "none"},
                "reads": 1,
                "sectors_clients": 8 + written[1],
                "sectors_metadata": 0,
                "sectors_read": 8,
                "sectors_resync": 0,
                "sectors_written": written[1],
                "size": SIZE,
                "state": "in_sync",
                "writes": written[0],
            }],
            "mismatch_cnt": 0,
            "name": "disk",
            "no_space": false,
            "requests_active": 0,
            "size": SIZE,
            "slots": 1,
            "states": [],
            "stripe_cache_active": 0,
            "sync_action": "idle",
            "sync_stripes": 0,
        });
        assert_eq!(volume, expected);
        let commands: [&[&str]; 3] =
            [&["set", "disk", "read_around=1"], &["fail", "disk", "disk"], &["check", "disk"]];
        for command in commands {
            exits(path, 2, command);
        }
        drop(client);
        exits(path, 0, &["stop", "disk"]);
        assert_eq!(served.wait(), Some(0));
    }
}

#[test]
fn read_only_takes_no_writes() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    let before = pattern(SIZE, 2);
    std::fs::write(path.join("disk"), &before).unwrap();
    let served = Served::start(path, &["--bare", "--read-only", "disk"]);
    let mut client = Client::connect(&served.uri);
    let write = Op::Write { offset: 0, len: 512, fua: false };
    // The client half refuses by itself, because the export is read-only.
    assert!(
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            client.request(write, &[0; 512])
        }))
        .is_err()
    );
    assert!(client.read(0, 4096) == before[..4096]);
    exits(path, 0, &["stop", "disk"]);
    assert_eq!(served.wait(), Some(0));
    assert!(std::fs::read(path.join("disk")).unwrap() == before);
}

#[test]
fn a_member_of_an_array_is_not_written_past_its_array() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    exits(path, 0, &["create", "-l5", "-n3", "--member-size=8M", "--name=vol", "a", "b", "c"]);
    let refused = exits(path, 3, &["serve", "--bare", "a"]);
    assert!(refused.err.contains("found the metadata of an array"), "{}", refused.err);
    let served = Served::start(path, &["--bare", "--read-only", "a"]);
    let superblock = Client::connect(&served.uri).read(4096, 512);
    assert_eq!(superblock[..4], 0xa92b_4efc_u32.to_le_bytes());
    exits(path, 0, &["stop", "a"]);
    for usage in [&["serve", "--bare", "a", "b"][..], &["serve", "--bare", "--run", "a"]] {
        exits(path, 2, usage);
    }
}

/// Clients on different workers, which are threads, see the same member.
#[test]
fn memory_is_one_for_all_clients() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    let served = Served::start(path, &["--bare", "ram:64M", "--name=mem"]);
    let mut clients: Vec<_> = (0..5).map(|_| Client::connect(&served.uri)).collect();
    for index in 0..clients.len() {
        let bytes = pattern(70_656, u8::try_from(index).unwrap());
        let offset = (index as u64) << 20;
        clients[index].write(offset, &bytes);
        for other in &mut clients {
            assert!(other.read(offset, 70_656) == bytes, "client {index}");
        }
    }
    let status = json(path, &["status", "--json", "mem"]);
    let server = &status["servers"][0];
    let member = &server["volumes"][0]["members"][0];
    assert_eq!((member["reads"].as_u64(), member["writes"].as_u64()), (Some(25), Some(5)));
    assert_eq!(server["clients"], 5, "{status}");
    exits(path, 0, &["stop", "mem"]);
    assert_eq!(served.wait(), Some(0));
}

/// No thread of the server runs without requests; its memory stays within bounds.
#[test]
fn an_idle_server_uses_no_cpu_and_little_memory() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    std::fs::write(path.join("disk"), vec![1; SIZE]).unwrap();
    for member in ["disk", "ram:8M"] {
        let served = Served::start(path, &["--bare", member, "--name=idle"]);
        let mut clients: Vec<_> = (0..3).map(|_| Client::connect(&served.uri)).collect();
        for client in &mut clients {
            let bytes = pattern(4 << 20, 3);
            client.write(0, &bytes);
            assert!(client.read(0, 4 << 20) == bytes);
        }
        // A worker yields at each of its last polls, which takes a while on busy CPUs.
        std::thread::sleep(Duration::from_secs(1));
        let before = usage(served.pid());
        std::thread::sleep(Duration::from_secs(2));
        assert_eq!(usage(served.pid()), before, "{member}: switches and nanoseconds of CPU");
        // At most 64 MiB for payload, plus the process itself.
        let resident = resident_bytes(served.pid());
        assert!(resident < (64 + 8 + 24) << 20, "{member}: {resident} bytes are resident");
        drop(clients);
        exits(path, 0, &["stop", "idle"]);
        assert_eq!(served.wait(), Some(0));
    }
}

/// Context switches and nanoseconds of CPU time of every thread.
fn usage(pid: rustix::process::Pid) -> Vec<(u64, u64)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    tasks
        .map(|task| {
            let path = task.unwrap().path();
            (number(&path.join("status"), "voluntary_ctxt_switches:"), nanos(&path))
        })
        .collect()
}

fn nanos(task: &Path) -> u64 {
    let schedule = std::fs::read_to_string(task.join("schedstat")).unwrap();
    schedule.split_whitespace().next().unwrap().parse().unwrap()
}

fn resident_bytes(pid: rustix::process::Pid) -> u64 {
    number(Path::new(&format!("/proc/{pid}/status")), "VmRSS:") << 10
}

fn number(path: &Path, key: &str) -> u64 {
    let text = std::fs::read_to_string(path).unwrap();
    let line = text.lines().find(|line| line.starts_with(key)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
