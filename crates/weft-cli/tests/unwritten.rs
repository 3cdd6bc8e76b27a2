//! Pages of the write-back cache that cannot be written to the members, through the real binary: a
//! stop fails and the volume goes on, or it discards them and reports the loss.
//!
//! Members are files, and the process cannot write beyond a limit on their size (`RLIMIT_FSIZE`).

#![allow(clippy::cast_possible_truncation, reason = "numbers of a test are small")]

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use common::client::Client;
use common::{Served, exits};
use rustix::process::{Resource, Rlimit, Signal, kill_process, prlimit};
use tempfile::{TempDir, tempdir};

const MIB: u64 = 1 << 20;
/// Size of the served disk, in bytes.
const SIZE: u64 = 8 * MIB;
/// Limit on the size of files that the process writes.
const LIMIT: u64 = 4 * MIB;

/// Serves a disk with a write-back cache; 1 MiB before the limit and 64 KiB after it wait to be
/// written.
fn served() -> (TempDir, Served, Client) {
    let dir = tempdir().unwrap();
    std::fs::File::create(dir.path().join("disk")).unwrap().set_len(SIZE).unwrap();
    let served = Served::start(dir.path(), &["--bare", "disk", "--write-back", "16M"]);
    limit(&served, Some(LIMIT));
    let mut client = Client::connect(&served.uri);
    client.write(0, &vec![1; MIB as usize]);
    client.write(LIMIT + 4096, &[2; 65536]);
    (dir, served, client)
}

fn limit(served: &Served, bytes: Option<u64>) {
    prlimit(Some(served.pid()), Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
}

fn disk(dir: &Path) -> Vec<u8> {
    std::fs::read(dir.join("disk")).unwrap()
}

/// Whether everything before the limit is written, and nothing after it.
fn is_written_up_to_the_limit(disk: &[u8]) -> bool {
    let (before, behind) = disk.split_at(LIMIT as usize);
    before[..MIB as usize].iter().all(|byte| *byte == 1) && behind.iter().all(|byte| *byte == 0)
}

/// Waits until the log contains a line with this text.
fn wait_for(served: &Served, text: &str) {
    let start = Instant::now();
    while !std::fs::read_to_string(&served.log).unwrap().contains(text) {
        assert!(start.elapsed() < Duration::from_secs(20), "no {text:?} in the log");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_stop_that_cannot_write_fails_and_the_volume_goes_on() {
    let (dir, served, mut client) = served();
    let path = dir.path();
    for _ in 0..2 {
        let told = exits(path, 1, &["stop", "disk"]).err;
        let what = "65536 bytes that clients wrote cannot be written";
        assert!(told.contains(what) && told.contains("65536 at byte 4198400"), "{told}");
        assert!(told.contains("--discard"), "what to do: {told}");
        // Writable pages are written, and clients are served, including the pages that cannot be
        // written.
        assert!(is_written_up_to_the_limit(&disk(path)));
        assert!(client.read(LIMIT + 4096, 65536) == [2; 65536]);
    }
    client.write(2 * MIB, &[3; 4096]);
    let told = exits(path, 1, &["stop", "--json", "disk"]).out;
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert!(told["error"].as_str().unwrap().contains("65536 bytes"), "{told}");
    limit(&served, None);
    exits(path, 0, &["stop", "disk"]);
    assert_eq!(served.wait(), Some(0));
    let disk = disk(path);
    assert!(disk[4_198_400..][..65536].iter().all(|byte| *byte == 2));
    assert!(disk[2 << 20..][..4096].iter().all(|byte| *byte == 3));
}

#[test]
fn a_stop_that_discards_counts_what_is_lost() {
    let (dir, served, _client) = served();
    let told = exits(dir.path(), 1, &["stop", "--discard", "disk"]).err;
    assert!(told.contains("65536 bytes that clients wrote are lost"), "{told}");
    assert_eq!(served.wait(), Some(1));
    assert!(is_written_up_to_the_limit(&disk(dir.path())));
}

#[test]
fn a_second_signal_gives_up_what_the_first_could_not_write() {
    let (dir, served, mut client) = served();
    kill_process(served.pid(), Signal::TERM).unwrap();
    wait_for(&served, "not stopped: 65536 bytes that clients wrote cannot be written");
    assert!(client.read(LIMIT + 4096, 65536) == [2; 65536]);
    // Signals that arrive together count as one.
    std::thread::sleep(Duration::from_millis(2100));
    let log = served.log.clone();
    kill_process(served.pid(), Signal::TERM).unwrap();
    assert_eq!(served.wait(), Some(1));
    let told = std::fs::read_to_string(log).unwrap();
    assert!(told.contains("65536 bytes that clients wrote are lost"), "{told}");
    assert!(is_written_up_to_the_limit(&disk(dir.path())));
}

/// systemd asks by `weft stop` first, and by a signal if that fails.
#[test]
fn the_first_signal_after_a_refused_stop_gives_nothing_up() {
    let (dir, served, mut client) = served();
    exits(dir.path(), 1, &["stop", "disk"]);
    let refused = "not stopped: 65536 bytes that clients wrote cannot be written";
    let refusals = || std::fs::read_to_string(&served.log).unwrap().matches(refused).count();
    let before = refusals();
    kill_process(served.pid(), Signal::TERM).unwrap();
    let start = Instant::now();
    while refusals() == before {
        assert!(start.elapsed() < Duration::from_secs(20), "the signal is not answered");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(client.read(LIMIT + 4096, 65536) == [2; 65536]);
    limit(&served, None);
    exits(dir.path(), 0, &["stop", "disk"]);
    assert_eq!(served.wait(), Some(0));
    assert!(disk(dir.path())[4_198_400..][..65536].iter().all(|byte| *byte == 2));
}

/// A surviving client would read old data from the next server, so that one must not start without
/// consent.
#[test]
fn after_a_kill_with_writes_in_memory_the_volume_is_not_served_without_consent() {
    let (dir, served, _client) = served();
    let path = dir.path();
    let (serve, cached) = (["serve", "--bare", "disk"], ["--write-back", "16M"]);
    wait_for(&served, "a client that connects again then reads old data");
    // While the server runs, the refusal is that of a running volume.
    assert!(!exits(path, 3, &serve).err.contains("--accept-lost-writes"));
    kill_process(served.pid(), Signal::KILL).unwrap();
    assert_eq!(served.wait(), None);
    for words in [serve.to_vec(), [serve.as_slice(), &cached].concat()] {
        let told = exits(path, 3, &words).err;
        assert!(told.contains("--accept-lost-writes") && told.contains("(process "), "{told}");
    }
    assert!(disk(path).iter().all(|byte| *byte == 0), "a page was written too early");
    // Consent applies once.
    let consent = ["--bare", "disk", "--write-back", "16M", "--accept-lost-writes"];
    let served = Served::start(path, &consent);
    let mut client = Client::connect(&served.uri);
    client.write(0, &[1; 4096]);
    kill_process(served.pid(), Signal::KILL).unwrap();
    served.wait();
    assert!(exits(path, 3, &serve).err.contains("--accept-lost-writes"));
    // Flushed data is not lost: no consent is needed.
    let served = Served::start(path, &consent);
    let mut client = Client::connect(&served.uri);
    client.write(0, &[1; 4096]);
    client.request(weft_nbd::Op::Flush, &[]).unwrap();
    kill_process(served.pid(), Signal::KILL).unwrap();
    served.wait();
    let served = Served::start(path, &["--bare", "disk"]);
    assert!(Client::connect(&served.uri).read(0, 4096) == [1; 4096]);
    kill_process(served.pid(), Signal::TERM).unwrap();
    assert_eq!(served.wait(), Some(0));
    // An orderly end leaves no mark, nor does a server without a cache.
    let served = Served::start(path, &consent[..4]);
    let mut client = Client::connect(&served.uri);
    client.write(0, &[1; 4096]);
    exits(path, 0, &["stop", "disk"]);
    served.wait();
    let left = common::names(&path.join("weft"));
    assert!(left.iter().all(|name| !name.ends_with(".unwritten")), "{left:?}");
}
