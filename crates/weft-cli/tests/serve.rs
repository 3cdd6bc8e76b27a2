//! Tests of a volume served, used and administered through the real binary.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use common::client::Client;
use common::{Served, array, bytes_of, command, contents, exits, json};
use serde_json::Value;
use tempfile::tempdir;
use weft_engine::knobs::{KnobRow, TABLE};
use weft_export::control;
use weft_nbd::Op;

/// Data in which every word encodes its address.
fn data(from: u64, len: u64) -> Vec<u8> {
    bytes_of((from..from + len).step_by(8).map(|at| at + 1))
}

fn signal(served: &Served, signal: rustix::process::Signal) {
    rustix::process::kill_process(served.pid(), signal).unwrap();
}

fn events(dir: &Path, member: &str) -> u64 {
    let seen = json(dir, &["examine", "--json", member]);
    assert_eq!(seen["members"][0]["superblock"]["state"], "clean", "{seen}");
    seen["members"][0]["superblock"]["events"].as_u64().unwrap()
}

/// Habits of mdadm: no name where only one volume runs, `failed` and `detached`,
/// members that are gone, options for modes, and knobs by nearly their name.
#[test]
fn the_only_volume_needs_no_name_and_members_are_named_as_mdadm_does() {
    let dir = array();
    let path = dir.path();
    for command in ["get", "stop", "detail", "wait", "check"] {
        let text = exits(path, 2, &[command]).err;
        assert!(text.contains("no volume is named, and none is running"), "{command}: {text}");
    }
    let served = Served::start(path, &["a", "b", "c"]);
    assert_eq!(exits(path, 0, &["get", "stripe_size"]).out, "stripe_size=auto\n");
    assert!(exits(path, 0, &["detail"]).out.contains("active sync"));
    assert!(exits(path, 0, &["check"]).out.contains("parity agrees"));
    let text = exits(path, 2, &["set", "vol", "strip_size=4096"]).err;
    assert!(text.ends_with("strip_size: no such knob; did you mean stripe_size?\n"), "{text}");
    let text = exits(path, 2, &["get", "vol", "nothing_like_it"]).err;
    assert!(text.ends_with("no such knob; weft set --help lists all\n"), "{text}");

    let mut watch = command(path, &["status", "--watch"]);
    let mut watch = watch.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(watch.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.filter(|line| line.starts_with("vol : active")).take(2).count(), 2);
    watch.kill().unwrap();
    watch.wait().unwrap();

    let text = exits(path, 0, &["remove", "vol", "failed", "detached"]);
    assert_eq!(text.out, "");
    assert!(text.err.contains("found no member that is failed or detached"), "{text:?}");
    std::fs::remove_file(path.join("b")).unwrap();
    assert!(exits(path, 0, &["fail", "vol", "detached"]).out.ends_with("/b\n"));
    assert!(exits(path, 0, &["remove", "vol", "failed"]).out.ends_with("/b\n"));
    exits(path, 0, &["stop"]);
    served.wait();

    // Without --run, a member that is gone may be one that was misspelt.
    let text = exits(path, 1, &["assemble", "a", "b", "c"]).err;
    assert!(text.contains("b: No such file"), "{text}");
    let text = exits(path, 0, &["assemble", "--run", "a", "b", "c"]);
    assert!(text.err.contains("b: no such file; left out for --run"), "{text:?}");
    let text = exits(path, 2, &["--stop", "/dev/md0"]).err;
    assert_eq!(text, "weft: --stop is an option of mdadm; here: weft stop md0\n");
}

#[test]
fn a_volume_is_served_written_administered_and_stopped_clean() {
    let dir = array();
    let path = dir.path();
    let served = Served::start(path, &["a", "b", "c"]);
    let mut client = Client::connect(&served.uri);
    let all = client.size();
    assert_eq!(all, 14 << 20);
    let content = data(0, all);
    for (piece, at) in content.chunks(1 << 20).zip((0..).step_by(1 << 20)) {
        client.write(at, piece);
    }
    client.request(Op::Flush, &[]).unwrap();

    let text = exits(path, 0, &["status", "vol"]).out;
    assert!(text.contains("vol : active raid5 c[2] b[1] a[0]\n"), "{text}");
    let shape = "      14336 blocks super 1.2 level 5, 64k chunk, algorithm 2 [3/3] [UUU]\n";
    assert!(text.contains(shape), "{text}");
    let text = exits(path, 0, &["detail", "vol"]).out;
    assert!(text.contains("active sync"), "{text}");
    exits(path, 0, &["explain", "vol", "1M"]);

    // Another process cannot get the members, and names of volumes are unique.
    let text = exits(path, 3, &["serve", "--name=other", "a", "b", "c"]).err;
    assert!(text.contains("held by another process"), "{text}");

    let checked = json(path, &["check", "--json", "vol"]);
    assert_eq!(checked["stripes"], (7 << 20) / 4096);
    assert_eq!(checked["mismatch_cnt"], 0);

    exits(path, 2, &["fail", "vol", "nobody"]);
    exits(path, 0, &["fail", "vol", "b"]);
    let text = exits(path, 4, &["status", "vol"]).out;
    assert!(text.contains("b[1](F)") && text.contains("[3/2] [U_U]"), "{text}");
    exits(path, 1, &["detail", "--test", "vol"]);
    let text = exits(path, 3, &["fail", "vol", "a"]).err;
    assert!(text.starts_with("weft: vol: "), "{text}");
    assert!(client.read(3 << 20, 1 << 20) == content[3 << 20..4 << 20], "degraded");
    exits(path, 0, &["remove", "vol", "b"]);
    let text = exits(path, 4, &["wait", "vol"]).out;
    assert!(text.contains("degraded: 1 of 3 slots"), "{text}");
    let text = exits(path, 1, &["add", "vol", "d"]).err;
    assert!(text.contains("--member-size"), "{text}");
    // A refused request leaves nothing behind.
    exits(path, 3, &["add", "vol", "d", "--member-size=1M"]);
    assert!(!path.join("d").exists());

    let other = tempdir().unwrap();
    let ext = other.path().join("ext");
    let mut disk = vec![0; 8 << 20];
    disk[..4].copy_from_slice(b"XFSB");
    std::fs::write(&ext, disk).unwrap();
    let text = exits(path, 3, &["add", "vol", ext.to_str().unwrap()]).err;
    assert!(text.contains("XFS"), "{text}");
    exits(path, 0, &["add", "vol", "d", "--member-size=8M"]);
    let waited = json(path, &["wait", "--json", "vol"]);
    assert_eq!((&waited["degraded"], &waited["frozen"]), (&0.into(), &false.into()));
    exits(path, 0, &["status", "vol"]);
    assert!(client.read(0, 4 << 20) == content[..4 << 20], "rebuilt");

    let text = exits(path, 0, &["get", "vol", "stripe_cache_size"]).out;
    assert_eq!(text, "stripe_cache_size=256\n");
    exits(path, 0, &["set", "vol", "stripe_cache_size=128", "rmw_level=0"]);
    let knobs = json(path, &["get", "--json", "vol"]);
    assert_eq!(knobs["knobs"]["stripe_cache_size"], "128");
    assert_eq!(knobs["knobs"]["rmw_level"], "0");
    exits(path, 2, &["set", "vol", "stripe_cache_size=5"]);
    exits(path, 2, &["get", "vol", "nothing"]);
    bitmap_comes_and_goes(path, &mut client, &content);
    assert_eq!(json(path, &["idle", "--json", "vol"])["schema"], "weft.idle/1");
    assert_eq!(json(path, &["check", "--no-wait", "--json", "vol"])["started"], true);
    assert_eq!(json(path, &["stop", "--json", "vol"])["volume"], "vol");
    assert_eq!(served.wait(), Some(0));
    exits(path, 1, &["status", "vol"]);
    assert_eq!(events(path, "a"), events(path, "d"));
    let output = common::weft(path, &["cat", "a", "b", "c", "d"]);
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout == content);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("b: not used: stale"), "{text}");
}

/// `set bitmap=` on a served array: `get`, `status`, `detail` and the members show it.
fn bitmap_comes_and_goes(path: &Path, client: &mut Client, content: &[u8]) {
    let text = exits(path, 2, &["set", "vol", "bitmap=external"]).err;
    assert!(text.contains("found \"external\", expected internal or none"), "{text}");
    for (value, has) in
        [("internal", true), ("internal", true), ("none", false), ("internal", true)]
    {
        exits(path, 0, &["set", "vol", &format!("bitmap={value}")]);
        client.write(1 << 20, &content[1 << 20..2 << 20]);
        assert_eq!(exits(path, 0, &["get", "vol", "bitmap"]).out, format!("bitmap={value}\n"));
        assert_eq!(json(path, &["get", "--json", "vol"])["knobs"]["bitmap"], value);
        let (status, detail) = (["status", "vol"], ["detail", "vol"]);
        assert_eq!(exits(path, 0, &status).out.contains(" bitmap: "), has, "{value}");
        let text = exits(path, 0, &detail).out;
        assert_eq!(text.contains("Intent Bitmap : Internal"), has, "{text}");
        let policy = if has { "Policy : bitmap" } else { "Policy : resync" };
        assert!(text.contains(policy), "{text}");
        let text = exits(path, 0, &["examine", "a"]).out;
        assert_eq!(text.contains("Internal Bitmap : 8 sectors from superblock"), has, "{text}");
    }
}

/// The command asks the server where data lies, and opens no member: an open of a member that hangs
/// would hang the command.
#[test]
fn explain_of_a_running_volume_opens_no_member() {
    let dir = array();
    let path = dir.path();
    let served = Served::start(path, &["a", "b", "c"]);
    let explained = exits(path, 0, &["explain", "vol", "1M"]).out;
    assert!(explained.contains(", sectors "), "{explained}");
    std::fs::rename(path.join("a"), path.join("away")).unwrap();
    assert_eq!(exits(path, 0, &["explain", "vol", "1M"]).out, explained);
    exits(path, 0, &["stop", "vol"]);
    assert_eq!(served.wait(), Some(0));
}

/// A member keeps its own scheduler until one is set for all members.
#[test]
fn knobs_of_a_queue_are_set_for_one_member() {
    let dir = array();
    let path = dir.path();
    let served = Served::start(path, &["a", "b", "c"]);
    let member = path.join("b").display().to_string();
    exits(path, 0, &["set", "vol", "scheduler=mq-deadline", "nr_requests=8", "--member", "b"]);
    let got = exits(path, 0, &["get", "vol", "scheduler", "nr_requests"]).out;
    let own = format!("{member}: scheduler=mq-deadline\n{member}: nr_requests=8\n");
    assert_eq!(got, format!("scheduler=none\nnr_requests=0\n{own}"));
    let got = exits(path, 0, &["get", "vol", "scheduler", "--member", "b"]).out;
    assert_eq!(got, "scheduler=mq-deadline\n");
    let got = exits(path, 0, &["get", "vol", "scheduler", "--member", "a"]).out;
    assert_eq!(got, "scheduler=none\n");
    let all = json(path, &["get", "--json", "vol"]);
    assert_eq!(all["knobs"]["nr_requests"], "0");
    let differs = serde_json::json!({"nr_requests": "8", "scheduler": "mq-deadline"});
    assert_eq!(all["members"], serde_json::json!({ member.as_str(): differs }));
    // Knobs that are not of a queue, unknown members, and values out of range are refused.
    for (knob, member, expected) in [
        ("rmw_level=0", "b", "rmw_level: of the whole volume"),
        ("bitmap=none", "b", "bitmap: of the whole array"),
        ("scheduler=none", "x", "no member x"),
        ("nr_requests=3", "b", "nr_requests: found 3, expected 0 | 4..=2048"),
    ] {
        let text = exits(path, 2, &["set", "vol", knob, "--member", member]).err;
        assert!(text.contains(expected), "{text}");
    }
    let text = exits(path, 2, &["get", "vol", "rmw_level", "--member", "b"]).err;
    assert!(text.contains("rmw_level: of the whole volume"), "{text}");
    exits(path, 0, &["set", "vol", "scheduler=none", "nr_requests=0"]);
    assert!(json(path, &["get", "--json", "vol"])["members"].is_null());
    exits(path, 0, &["stop", "vol"]);
    assert_eq!(served.wait(), Some(0));
}

/// Each member has one request in flight, and the rest wait; knobs change while clients write.
#[test]
fn members_behind_mq_deadline_hold_what_is_written() {
    let dir = array();
    let path = dir.path();
    let set = ["--set=scheduler=mq-deadline", "--set=queue_depth=1"];
    let served = Served::start(path, &[&set[..], &["a", "b", "c"]].concat());
    let shows = |name: &str| exits(path, 0, &["get", "vol", name]).out;
    assert_eq!(shows("scheduler"), "scheduler=mq-deadline\n");
    let content = data(0, 14 << 20);
    std::thread::scope(|scope| {
        for (part, first) in content.chunks(4 << 20).zip((0..).step_by(4 << 20)) {
            let uri = &served.uri;
            scope.spawn(move || {
                let mut client = Client::connect(uri);
                for (piece, at) in part.chunks(96 << 10).zip((first..).step_by(96 << 10)) {
                    client.write(at, piece);
                }
                client.request(Op::Flush, &[]).unwrap();
            });
        }
        for knob in ["fifo_batch=1", "read_expire=20", "scheduler=none", "scheduler=mq-deadline"] {
            exits(path, 0, &["set", "vol", knob]);
        }
    });
    assert_eq!(shows("read_expire"), "read_expire=20\n");
    let text = exits(path, 2, &["set", "vol", "scheduler=cfq"]).err;
    assert!(text.contains("scheduler: found cfq, expected none | mq-deadline"), "{text}");
    exits(path, 2, &["set", "vol", "queue_depth=1025"]);
    let mut client = Client::connect(&served.uri);
    for (piece, at) in content.chunks(1 << 20).zip((0..).step_by(1 << 20)) {
        assert!(client.read(at, 1 << 20) == piece, "while it is served, at {at}");
    }
    assert_eq!(json(path, &["check", "--json", "vol"])["mismatch_cnt"], 0);
    exits(path, 0, &["stop", "vol"]);
    assert_eq!(served.wait(), Some(0));
    // Knobs belong to the server: reading from the members does not use them.
    let output = common::weft(path, &["cat", "a", "b", "c"]);
    assert!(output.status.success() && output.stdout == content, "content of the members");
}

#[test]
fn a_flipped_byte_is_counted_and_repaired() {
    let dir = array();
    let path = dir.path();
    let served = Served::start(path, &["a", "b", "c"]);
    let mut client = Client::connect(&served.uri);
    client.write(0, &data(0, 4 << 20));
    // Full stripe 0 of left-symmetric on three members has its parity on slot 2.
    let file = std::fs::File::options().write(true).open(path.join("c")).unwrap();
    file.write_all_at(&[0xa5], (1 << 20) + 5000).unwrap();
    file.sync_all().unwrap();
    let text = exits(path, 5, &["check", "vol"]).out;
    assert!(text.contains("1792 stripes read") && text.contains("mismatch_cnt 8"), "{text}");
    // The byte is in stripe 1 of 1792, from byte 4096 of each member on.
    for (from, status, stripes) in [("5000", 5, 1791), ("8K", 0, 1790), ("14335s", 0, 1)] {
        let text = exits(path, status, &["check", "vol", "--from", from]).out;
        assert!(text.contains(&format!("{stripes} stripes read")), "--from {from}: {text}");
    }
    let text = exits(path, 2, &["check", "vol", "--from", "7M"]).err;
    let expected = "from: found sector 14336, expected less than 14336, the data sectors of each";
    assert!(text.contains(expected), "{text}");
    exits(path, 2, &["check", "vol", "--from", "half"]);
    for (to, status, stripes) in [("4K", 0, 1), ("5000", 5, 2), ("6M", 5, 1536), ("9T", 5, 1792)] {
        let text = exits(path, status, &["check", "vol", "--to", to]).out;
        assert!(text.contains(&format!("{stripes} stripes read")), "--to {to}: {text}");
    }
    for words in [["--to", "0", "--from", "0"], ["--to", "8K", "--from", "8K"]] {
        let text = exits(path, 2, &[&["check", "vol"][..], &words].concat()).err;
        assert!(text.contains("--to: found ") && text.contains("expected more than"), "{text}");
    }
    exits(path, 0, &["repair", "vol", "--to", "4K"]);
    exits(path, 0, &["repair", "vol", "--from", "8K"]);
    exits(path, 5, &["check", "vol"]);
    exits(path, 0, &["repair", "vol"]);
    exits(path, 0, &["check", "vol"]);
    assert!(client.read(0, 4 << 20) == data(0, 4 << 20));
    signal(&served, rustix::process::Signal::TERM);
    assert_eq!(served.wait(), Some(0));
}

/// Members of [`raid6`].
const FIVE: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Creates a RAID 6 of five members with 4 MiB of data.
fn raid6() -> (tempfile::TempDir, Served, Client) {
    let dir = tempdir().unwrap();
    let create = ["create", "--name=vol", "-l6", "-n5", "-c64K", "--member-size=8M"];
    exits(dir.path(), 0, &[&create[..], &FIVE].concat());
    let served = Served::start(dir.path(), &FIVE);
    let mut client = Client::connect(&served.uri);
    client.write(0, &data(0, 4 << 20));
    (dir, served, client)
}

/// Changes a byte of a member's data.
fn spoil(path: &Path, name: &str, at: u64) {
    let file = std::fs::File::options().read(true).write(true).open(path.join(name)).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, (1 << 20) + at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x5a], (1 << 20) + at).unwrap();
    file.sync_all().unwrap();
}

/// A strip that is wrong on one member alone is located; a stripe with wrong strips on two members
/// is not. The JSON has both.
#[test]
fn a_check_of_raid6_names_the_member_that_is_wrong() {
    let (dir, served, mut client) = raid6();
    let path = dir.path();
    let report = json(path, &["check", "--json", "vol"]);
    assert_eq!((&report["mismatch_cnt"], &report["mismatches"]), (&0.into(), &Value::Null));
    let spoil = |name: &str, at: u64| spoil(path, name, at);
    spoil("d", 5000);
    spoil("d", 70_000);
    let text = exits(path, 5, &["check", "vol"]).out;
    for expected in [
        "mismatch_cnt 16",
        "d: its strip alone is wrong in 2 stripes, by P and Q: 8 sectors each from sector 2056, 2184 of it",
        "or fail, remove and add the member to have all of it written",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    let text = exits(path, 0, &["status", "vol"]).err;
    assert!(text.contains("vol: note: check: ") && text.contains("wrong in 2 stripes"), "{text}");
    // After a rebuild from the others, the strips are right again.
    exits(path, 0, &["fail", "vol", "d"]);
    exits(path, 0, &["remove", "vol", "d"]);
    exits(path, 0, &["add", "vol", "d"]);
    exits(path, 0, &["wait", "vol"]);
    exits(path, 0, &["check", "vol"]);
    assert!(client.read(0, 4 << 20) == data(0, 4 << 20));

    for (name, at) in [("b", 200_000), ("a", 400_000), ("c", 400_100)] {
        spoil(name, at);
    }
    let text = exits(path, 5, &["check", "vol"]).out;
    for expected in [
        "b: its strip alone is wrong in 1 stripe, by P and Q: 8 sectors each from sector 2432 of it",
        "1 stripe: which member is wrong is not known; 8 sectors each from data sector 776 of every",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    // A rebuild would use wrong strips of other members.
    assert!(!text.contains("to have it written from the others"), "{text}");
    let status = json(path, &["status", "--json", "vol"]);
    let mismatches = &status["servers"][0]["volumes"][0]["mismatches"];
    assert_eq!(mismatches["not_located"], 1);
    let first = mismatches["first"].as_array().unwrap();
    let named = |sector: u64| first.iter().find(|it| it["sector"] == sector).unwrap();
    assert_eq!((&named(384)["slot"], &named(384)["member_sector"]), (&1.into(), &2432.into()));
    assert_eq!(named(776).get("member"), None);
    // The named strip is parity, and the other stripe has no located strip: no consent is needed.
    exits(path, 0, &["repair", "vol"]);
    exits(path, 0, &["check", "vol"]);
    signal(&served, rustix::process::Signal::TERM);
    assert_eq!(served.wait(), Some(0));
}

#[test]
fn repair_of_raid6_writes_parity_and_does_not_agree_with_data_that_is_wrong() {
    let (dir, served, mut client) = raid6();
    let path = dir.path();
    // P of the first full stripe is on e, its Q on a: both are computed from the data.
    spoil(path, "e", 5000);
    spoil(path, "a", 9000);
    let text = exits(path, 0, &["repair", "vol"]).out;
    assert!(text.contains("mismatch_cnt 16 sectors, written again"), "{text}");
    exits(path, 0, &["check", "vol"]);
    assert!(client.read(0, 4 << 20) == data(0, 4 << 20));
    spoil(path, "d", 5000);
    let members = || FIVE.map(|name| std::fs::read(path.join(name)).unwrap());
    let before = members();
    let text = exits(path, 3, &["repair", "vol"]).err;
    assert!(text.contains("d: its strip alone is wrong in 1 stripe"), "{text}");
    let text = exits(path, 2, &["repair", "--no-wait", "vol"]).err;
    assert!(text.contains("--trust data"), "{text}");
    // The time of the check in the superblocks may change.
    let data_of = |all: &[Vec<u8>]| all.iter().map(|it| it[1 << 20..].to_vec()).collect::<Vec<_>>();
    assert!(data_of(&members()) == data_of(&before), "a refused repair has written");
    exits(path, 0, &["repair", "--trust", "data", "vol"]);
    exits(path, 0, &["check", "vol"]);
    exits(path, 0, &["stop", "vol"]);
    assert_eq!(served.wait(), Some(0));
}

#[test]
fn repair_of_raid6_by_p_and_q_writes_the_strip_that_is_wrong() {
    let (dir, served, mut client) = raid6();
    let path = dir.path();
    let whole = data(0, 4 << 20);
    spoil(path, "d", 5000);
    spoil(path, "e", 9000);
    let text = exits(path, 0, &["repair", "--trust", "syndrome", "vol"]).out;
    assert!(text.contains("mismatch_cnt 16 sectors; the one strip that was wrong"), "{text}");
    exits(path, 0, &["check", "vol"]);
    assert!(client.read(0, 4 << 20) == whole, "a strip of data was written from the others");
    // Each of two strips has a wrong byte of its own: they cannot be located, and neither is
    // written.
    spoil(path, "d", 5000);
    spoil(path, "c", 5001);
    let members = || FIVE.map(|name| std::fs::read(path.join(name)).unwrap()[1 << 20..].to_vec());
    let before = members();
    let found = exits(path, 5, &["repair", "--trust", "syndrome", "--json", "vol"]).out;
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!((&found["schema"], &found["mismatch_cnt"]), (&"weft.repair/2".into(), &8.into()));
    assert_eq!(found["mismatches"]["not_located"], 1, "{found}");
    assert!(members() == before, "a stripe without a located strip was written");
    exits(path, 5, &["check", "vol"]);
    exits(path, 0, &["stop", "vol"]);
    assert_eq!(served.wait(), Some(0));
}

/// RAID 1 of three: the first copy rots, which md's repair would write over the others.
#[test]
fn repair_of_three_copies_takes_the_majority() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    let members = ["a", "b", "c"];
    let create = ["create", "--name=vol", "-l1", "-n3", "--member-size=8M"];
    exits(path, 0, &[&create[..], &members].concat());
    let served = Served::start(path, &members);
    let mut client = Client::connect(&served.uri);
    let whole = data(0, 4 << 20);
    client.write(0, &whole);
    exits(path, 0, &["wait", "vol"]);
    let text = exits(path, 0, &["check", "vol"]).out;
    assert!(text.contains("the copies agree everywhere"), "{text}");
    spoil(path, "a", 70_000);
    let text = exits(path, 5, &["check", "vol"]).out;
    let named = "a: its copy alone is wrong in 1 range, by the others: 128 sectors each from \
                 sector 2176 of it; weft repair --trust majority";
    assert!(text.contains(named), "{text}");
    let contents =
        || members.map(|name| std::fs::read(path.join(name)).unwrap()[1 << 20..].to_vec());
    let before = contents();
    let text = exits(path, 3, &["repair", "vol"]).err;
    assert!(text.contains("--trust majority") && text.contains("a: its copy alone"), "{text}");
    let text = exits(path, 2, &["repair", "--no-wait", "vol"]).err;
    assert!(text.contains("three copies or more"), "{text}");
    let text = exits(path, 2, &["repair", "--trust", "syndrome", "vol"]).err;
    assert!(text.contains("found raid1 in vol, expected raid6"), "{text}");
    assert!(contents() == before, "a refused repair has written");
    let text = exits(path, 0, &["repair", "--trust", "majority", "vol"]).out;
    assert!(
        text.contains("mismatch_cnt 128 sectors; copies that were outvoted are written"),
        "{text}"
    );
    exits(path, 0, &["check", "vol"]);
    let [a, b, c] = contents();
    assert!(a == b && b == c && a[..4 << 20] == whole);
    // The block now has three different contents, so no content is that of a majority.
    spoil(path, "a", 5000);
    spoil(path, "b", 5001);
    let found = exits(path, 5, &["repair", "--trust", "majority", "--json", "vol"]).out;
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(
        (&found["mismatch_cnt"], &found["mismatches"]["not_located"]),
        (&128.into(), &1.into())
    );
    exits(path, 0, &["repair", "--trust", "data", "vol"]);
    exits(path, 0, &["check", "vol"]);
    exits(path, 0, &["stop", "vol"]);
    assert_eq!(served.wait(), Some(0));
}

#[test]
fn signals_end_in_good_order_and_tell_systemd() {
    use rustix::process::Signal;
    for kind in [Signal::TERM, Signal::INT, Signal::HUP] {
        let dir = array();
        let path = dir.path();
        let socket = path.join("notify");
        let notified = UnixDatagram::bind(&socket).unwrap();
        let log = path.join("log");
        let mut child = command(path, &["serve", "a", "b", "c"])
            .env("NOTIFY_SOCKET", &socket)
            .stdout(std::process::Stdio::piped())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut buffer = [0; 64];
        let count = notified.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..count], b"READY=1");
        // The log names the backend, and whether O_DIRECT is used.
        let text = std::fs::read_to_string(&log).unwrap();
        assert!(text.contains("io_uring") || text.contains("threads"), "{text}");
        assert!(text.contains("O_DIRECT") || text.contains("buffered"), "{text}");
        let uri = format!("nbd+unix:///vol?socket={}", path.join("weft/vol.nbd").display());
        let mut client = Client::connect(&uri);
        client.write(4096, &data(4096, 8192));
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), kind).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0));
        let mut out = String::new();
        child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        assert_eq!(out, format!("ready {uri}\n"));
        assert!(events(path, "a") > 0);
        let output = common::weft(path, &["cat", "--offset=4096", "--length=8192", "a", "b", "c"]);
        assert!(output.stdout == data(4096, 8192));
    }
}

#[test]
fn a_member_with_a_deleted_file_is_reported_once_and_used_on() {
    let dir = array();
    let path = dir.path();
    let served = Served::start(path, &["a", "b", "c"]);
    let mut client = Client::connect(&served.uri);
    let mut durable = |at: u64| {
        client.write(at, &data(at, 8192));
        client.request(Op::Flush, &[]).unwrap();
        assert!(client.read(at, 8192) == data(at, 8192));
    };
    let deleted = || {
        let log = std::fs::read_to_string(path.join("serve.log")).unwrap();
        let lines = log.lines().filter(|line| line.contains("the member's file was deleted"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    durable(0);
    assert_eq!(deleted(), [""; 0]);
    std::fs::remove_file(path.join("b")).unwrap();
    for at in [4096, 64 << 10, 128 << 10] {
        durable(at);
    }
    assert!(exits(path, 0, &["status"]).out.contains("\nvol : active"));
    exits(path, 0, &["stop", "vol"]);
    assert_eq!(served.wait(), Some(0));
    let told = deleted();
    assert!(told.len() == 1 && told[0].contains("WARN"), "{told:?}");
    assert!(told[0].contains(path.join("b").to_str().unwrap()), "{told:?}");
}

#[test]
fn exec_runs_a_command_with_the_uri_and_returns_its_status() {
    let dir = array();
    let path = dir.path();
    let script = "test -S \"$unixsocket\" && echo \"$uri\" && exit 7";
    let text = exits(path, 7, &["serve", "a", "b", "c", "--exec", script]);
    assert!(text.out.starts_with("nbd+unix:///vol?socket="), "{text:?}");
    assert_eq!(text.out.lines().count(), 1, "{text:?}");
    exits(path, 0, &["serve", "a", "b", "c", "--exec", "true"]);
    exits(path, 143, &["serve", "a", "b", "c", "--exec", "kill $$"]);
}

#[test]
fn read_only_takes_no_writes_and_changes_no_byte() {
    let dir = array();
    let path = dir.path();
    let before: Vec<_> = ["a", "b"].map(|name| std::fs::read(path.join(name)).unwrap()).into();
    // The array is newly degraded, so a volume for writing is refused.
    exits(path, 3, &["serve", "a", "b"]);
    let served = Served::start(path, &["--read-only", "a", "b"]);
    let mut client = Client::connect(&served.uri);
    assert_eq!(client.read(0, 4096), [0; 4096]);
    let flags = client.connection.export().flags();
    assert!(flags.contains(weft_nbd::TransmissionFlags::READ_ONLY));
    exits(path, 0, &["stop", "vol"]);
    assert_eq!(served.wait(), Some(0));
    let after: Vec<_> = ["a", "b"].map(|name| std::fs::read(path.join(name)).unwrap()).into();
    assert!(before == after);
}

/// The kernel lab has the driver of these devices (interop/lab/cases/35-ublk.sh).
#[test]
fn a_block_device_that_cannot_be_made_is_refused_with_what_it_takes() {
    let dir = array();
    let path = dir.path();
    for listen in ["ublk:x", "ublk:-1", "ublk:4294967296"] {
        let text = exits(path, 2, &["serve", "--listen", listen, "a", "b", "c"]).err;
        assert!(text.contains("expected ublk: or ublk:N, the number of /dev/ublkbN"), "{text}");
    }
    if Path::new("/dev/ublk-control").exists() {
        return weft_testing::skip("ublk: found its driver, expected none");
    }
    let before = contents(path);
    let text = exits(path, 3, &["serve", "--listen", "ublk:", "a", "b", "c"]).err;
    assert!(text.contains("/dev/ublk-control: ") && text.contains("modprobe ublk_drv"), "{text}");
    assert!(contents(path) == before, "members were written");
}

#[test]
fn listeners_beyond_this_machine_are_refused() {
    let dir = array();
    let path = dir.path();
    let before = contents(path);
    let text = exits(path, 3, &["serve", "--listen", "nbd://0.0.0.0:0/x", "a", "b", "c"]).err;
    assert!(text.contains("--insecure-tcp"), "{text}");
    assert_eq!(contents(path), before);
    let served = Served::start(path, &["--listen", "nbd://127.0.0.1:0/x", "a", "b", "c"]);
    assert!(served.uri.starts_with("nbd://127.0.0.1"), "{}", served.uri);
    // The name here differs from the export's name for clients.
    let text = exits(path, 0, &["status"]).out;
    assert!(text.contains("\nvol : active"), "{text}");
    signal(&served, rustix::process::Signal::TERM);
    assert_eq!(served.wait(), Some(0));
}

/// Listens as under systemd: descriptor 3 is the listener, and `LISTEN_PID` names the process.
#[test]
fn a_socket_that_is_passed_is_listened_on() {
    let dir = array();
    let path = dir.path();
    let start = |socket: std::os::fd::OwnedFd, pid: &str| {
        let script = format!(
            "exec 3<&0 </dev/null; LISTEN_FDS=1 LISTEN_PID={pid} exec {} serve a b c --exec 'echo $uri'",
            env!("CARGO_BIN_EXE_weft")
        );
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &script]).current_dir(path).stdin(std::process::Stdio::from(socket));
        shell.env("XDG_RUNTIME_DIR", path).env("TMPDIR", path).env_remove("NOTIFY_SOCKET");
        let output = shell.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let socket = path.join("passed");
    let unix = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let (code, out, error) = start(unix.try_clone().unwrap().into(), "$$");
    assert_eq!((code, out.contains("/passed")), (Some(0), true), "{out}{error}");
    assert!(socket.exists(), "its creator removes it");
    // The socket is for another process.
    let (code, out, error) = start(unix.into(), "1");
    assert_eq!((code, out.contains("/passed")), (Some(0), false), "{out}{error}");
    let tcp = |address| std::net::TcpListener::bind(address).unwrap();
    let (code, out, error) = start(tcp("127.0.0.1:0").into(), "$$");
    assert_eq!((code, out.starts_with("nbd://127.0.0.1:")), (Some(0), true), "{out}{error}");
    let (code, _, error) = start(tcp("0.0.0.0:0").into(), "$$");
    assert_eq!((code, error.contains("--insecure-tcp")), (Some(3), true), "{error}");
    let datagram = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let (code, _, error) = start(datagram.into(), "$$");
    assert_eq!((code, error.contains("Accept=no")), (Some(3), true), "{error}");
}

#[test]
fn an_array_made_of_used_members_is_rebuilt_when_it_is_served() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    for (name, byte) in [("a", 1), ("b", 2), ("c", 3)] {
        std::fs::write(path.join(name), vec![byte; 8 << 20]).unwrap();
    }
    let created =
        json(path, &["create", "-l5", "-n3", "-c64K", "--name=vol", "--json", "a", "b", "c"]);
    assert_eq!(created["initial_sync"], "recovery");
    let served = Served::start(path, &["a", "b", "c"]);
    let text = exits(path, 0, &["wait", "vol"]).out;
    assert!(text.contains("all members are in sync"), "{text}");
    exits(path, 0, &["check", "vol"]);
    exits(path, 0, &["stop", "vol"]);
    assert_eq!(served.wait(), Some(0));
}

#[test]
fn a_log_that_cannot_be_written_does_not_end_the_volume() {
    let dir = array();
    let path = dir.path();
    let mut child = command(path, &["serve", "a", "b", "c"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::fs::File::options().write(true).open("/dev/full").unwrap())
        .spawn()
        .unwrap();
    let mut ready = [0; 5];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    exits(path, 0, &["fail", "vol", "a"]);
    exits(path, 0, &["stop", "vol"]);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let text = exits(path, 0, &["assemble", "a", "b", "c"]).out;
    assert!(text.contains("clean") && text.contains("a       ") && text.contains("not used"));
}

#[test]
fn signals_in_twos_end_it_in_good_order() {
    let dir = array();
    let path = dir.path();
    let served = Served::start(path, &["a", "b", "c"]);
    Client::connect(&served.uri).write(0, &data(0, 1 << 20));
    for kind in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        // The process may have ended after the first.
        let _ = rustix::process::kill_process(served.pid(), kind);
        let _ = rustix::process::kill_process(served.pid(), kind);
    }
    assert_eq!(served.wait(), Some(0));
    let text = exits(path, 0, &["assemble", "a", "b", "c"]).out;
    assert!(text.contains(", clean"), "{text}");
}

#[test]
fn a_limit_on_file_sizes_is_an_error_and_no_death() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    let weft = env!("CARGO_BIN_EXE_weft");
    let line = format!("ulimit -f 1000; exec '{weft}' create -l5 -n3 --member-size 64M a b c");
    let output =
        std::process::Command::new("sh").args(["-c", &line]).current_dir(path).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("File too large"), "{output:?}");
    assert!(contents(path).is_empty());
}

#[test]
fn a_check_that_loses_the_last_parity_does_not_say_that_parity_agrees() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    let made = ["create", "-l5", "-n3", "-c64K", "--member-size=512M", "--name=vol", "a", "b", "c"];
    exits(path, 0, &made);
    let served = Served::start(path, &["a", "b", "c"]);
    let running = || {
        let status = json(path, &["status", "--json", "vol"]);
        status["servers"][0]["volumes"][0]["sync_action"] == "check"
    };
    // The check may have ended before it was polled.
    let check = loop {
        let mut check = command(path, &["check", "vol"])
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        while !running() && check.try_wait().unwrap().is_none() {}
        if check.try_wait().unwrap().is_none() {
            break check;
        }
    };
    // The refusal names the running action, and how to wait for it.
    let text = exits(path, 1, &["check", "vol"]).err;
    assert!(text.contains("a check is running") && text.contains("weft wait"), "{text}");
    exits(path, 0, &["fail", "vol", "b"]);
    let output = check.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    exits(path, 0, &["stop", "vol"]);
    assert_eq!(served.wait(), Some(0));
}

#[test]
fn of_several_members_to_add_those_before_a_refused_one_are_named() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    let made = ["create", "-l6", "-n4", "-c64K", "--member-size=8M", "--name=vol"];
    exits(path, 0, &[&made[..], &["a", "b", "missing", "missing"]].concat());
    let served = Served::start(path, &["a", "b"]);
    // Memory is lost when the volume stops, unlike the other members.
    let text = exits(path, 3, &["add", "vol", "ram:8M"]).err;
    assert!(text.contains("ram:8M: found memory, expected a file or a block device"), "{text}");
    std::fs::write(path.join("small"), [0; 1 << 20]).unwrap();
    let text = exits(path, 1, &["add", "vol", "c", "small", "--member-size=8M"]).err;
    assert!(text.trim_end().ends_with("/c") && text.contains("; added before it: "), "{text}");
    exits(path, 4, &["wait", "vol"]);
    exits(path, 0, &["add", "vol", "d", "--member-size=8M"]);
    exits(path, 0, &["wait", "vol"]);
    exits(path, 0, &["stop", "vol"]);
    assert_eq!(served.wait(), Some(0));
}

/// Either all named members are failed or none, and a refusal names the possible ones.
#[test]
fn members_are_failed_all_or_none() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    let made = ["create", "-l6", "-n5", "-c64K", "--member-size=8M", "--name=vol"];
    let members = ["a", "b", "c", "d", "e"];
    exits(path, 0, &[&made[..], &members].concat());
    let served = Served::start(path, &members);
    let states = || -> String {
        let status = common::weft(path, &["status", "--json"]);
        let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
        let members = status["servers"][0]["volumes"][0]["members"].as_array().unwrap();
        members.iter().map(|it| &it["state"].as_str().unwrap()[..2]).collect()
    };
    let text = exits(path, 3, &["fail", "vol", "a", "b", "d"]).err;
    assert!(text.contains("none was failed, and only "), "{text}");
    assert!(text.contains("/a, ") && text.contains("/b may be"), "{text}");
    assert!(!text.contains("/d,") && !text.contains("/d may"), "{text}");
    assert_eq!(states(), "inininin".to_owned() + "in");
    exits(path, 2, &["fail", "vol", "a", "nobody"]);
    assert_eq!(states(), "inininin".to_owned() + "in");
    exits(path, 0, &["fail", "vol", "a", "d"]);
    assert_eq!(states(), "faininfain");
    let text = exits(path, 3, &["fail", "vol", "b"]).err;
    assert!(text.contains("/b: found a member that the array needs, expected one"), "{text}");
    assert!(text.contains("too few members would be left to know every byte"), "{text}");
    assert!(text.contains("it stays in use; weft add a member and weft wait"), "{text}");
    exits(path, 0, &["stop", "vol"]);
    assert_eq!(served.wait(), Some(0));
}

/// The result says where a check has ended, and so do `status` and `detail` until the next sync.
#[test]
fn the_last_check_is_shown_with_its_end_and_what_it_found() {
    let dir = array();
    let path = dir.path();
    let served = Served::start(path, &["a", "b", "c"]);
    let mut client = Client::connect(&served.uri);
    client.write(0, &data(0, 1 << 20));
    assert!(!exits(path, 0, &["status"]).out.contains("last "));
    let file = std::fs::File::options().write(true).open(path.join("c")).unwrap();
    file.write_all_at(&[0xa5], (1 << 20) + 5000).unwrap();
    file.sync_all().unwrap();
    let before = std::time::SystemTime::now();
    let before = before.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();

    let words = ["check", "vol", "--from", "4K", "--to", "2M"];
    let text = exits(path, 5, &words).out;
    assert!(
        text.contains("511 stripes read in ") && text.contains(", from 4 KiB to 2 MiB of 7 MiB;")
    );
    let text = common::weft(path, &[&words[..], &["--json"]].concat()).stdout;
    let told: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(told["from"], 8);
    assert_eq!(told["sync_completed"], serde_json::json!([4096, 14336]), "{told}");
    let status = json(path, &["status", "--json"]);
    let last = &status["servers"][0]["volumes"][0]["last_sync"];
    assert_eq!(
        (&last["action"], &last["from"], &last["to"]),
        (&"check".into(), &8.into(), &4096.into())
    );
    let ended = last["ended_secs"].as_u64().unwrap();
    assert!((before..before + 60).contains(&ended), "{ended} {before}");
    let found = ", mismatch_cnt 8 sectors, from 4 KiB to 2 MiB of 7 MiB";
    let text = exits(path, 0, &["status"]).out;
    let line = text.lines().find(|line| line.contains("last check: ")).unwrap();
    assert!(line.ends_with(found), "{text}");
    let text = exits(path, 0, &["detail", "vol"]).out;
    let line = text.lines().find(|line| line.contains("Last Check : ")).unwrap();
    assert!(line.ends_with(found), "{text}");
    let detail = json(path, &["detail", "vol", "--json"]);
    assert_eq!(
        (&detail["last_sync"]["to"], &detail["last_sync"]["mismatch_cnt"]),
        (&4096.into(), &8.into())
    );

    exits(path, 0, &["repair", "vol"]);
    let text = exits(path, 0, &["status"]).out;
    let line = text.lines().find(|line| line.contains("last repair: ")).unwrap();
    assert!(line.ends_with(", mismatch_cnt 8 sectors"), "{text}");
    drop(client);
    exits(path, 0, &["stop", "vol"]);
    assert_eq!(served.wait(), Some(0));
}

/// Without `fail_last_dev` the last copy is not failed, and mdadm gets EBUSY for it. The refusal
/// names the member, and the way out.
#[test]
fn the_last_copy_is_not_failed_and_the_refusal_says_what_to_do() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    exits(path, 0, &["create", "-l1", "-n2", "--member-size=8M", "--name=vol", "a", "b"]);
    let served = Served::start(path, &["a", "b"]);
    exits(path, 0, &["fail", "vol", "a"]);
    let said = common::weft(path, &["fail", "vol", "b", "--json"]);
    assert_eq!(said.status.code(), Some(3));
    let said: Value = serde_json::from_slice(&said.stdout).unwrap();
    let text = said["error"].as_str().unwrap().to_owned();
    assert_eq!((said["kind"].as_str(), said["exit"].as_u64()), (Some("refused"), Some(3)));
    assert!(text.contains("/b: found a member that the array needs"), "{text}");
    assert!(text.contains("no copy left; it stays in use; weft add a member"), "{text}");
    assert!(text.contains("fail_last_dev=1"), "{text}");

    let mut socket = control::Client::connect(&path.join("weft/vol.sock")).unwrap();
    let answer = socket.command(control::Command::Fail { members: vec!["1".into()] }).unwrap();
    assert_eq!((answer.ok, answer.kind), (false, Some(control::FailureKind::Refused)));
    let error = answer.error.unwrap();
    assert!(text.ends_with(&error), "{error}");
    let status = socket.command(control::Command::Status).unwrap().status.unwrap();
    assert_eq!(status.volumes[0].members[1].state, "in_sync");

    exits(path, 0, &["set", "vol", "fail_last_dev=1"]);
    exits(path, 0, &["fail", "vol", "b"]);
    let status = socket.command(control::Command::Status).unwrap().status.unwrap();
    assert_eq!(status.volumes[0].members[1].state, "faulty");
    drop(served);
}

#[test]
fn a_member_of_an_array_without_redundancy_is_not_failed() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    exits(path, 0, &["create", "-l0", "-n2", "--member-size=8M", "--name=vol", "a", "b"]);
    let served = Served::start(path, &["a", "b"]);
    let text = exits(path, 3, &["fail", "vol", "b"]).err;
    let expected = "/b: found a member that the array needs, expected one that it can do without: \
                    without redundancy, data is lost with any member; it stays in use; to do \
                    without the member, copy the content to another array";
    assert!(text.contains(expected), "{text}");
    exits(path, 0, &["stop", "vol"]);
    assert_eq!(served.wait(), Some(0));
}

/// Each historic value is refused at the start and at run time; every other word of the knob is
/// accepted.
#[test]
fn a_live_volume_refuses_values_that_only_reproduce_a_former_kernel() {
    let dir = array();
    let path = dir.path();
    let start = ["serve", "--name=vol", "--write-back=1M", "a", "b", "c"];
    let rows = || TABLE.iter().filter(|row| !row.historic.is_empty());
    let words = |row: &KnobRow| -> Vec<String> {
        row.range_live().split(" | ").map(|word| format!("{}={word}", row.name)).collect()
    };
    let refused = |arguments: &[&str], experiment: &str| {
        let text = exits(path, 2, arguments).err;
        let says = format!("which only simulations take (weft reproduce {experiment}), expected ");
        assert!(text.contains(&says), "{arguments:?}: {text}");
    };
    let taken: Vec<String> = rows().map(|row| format!("--set={}", words(row)[0])).collect();
    let taken: Vec<&str> = taken.iter().map(String::as_str).collect();
    for row in rows() {
        for (value, experiment) in row.historic {
            let set = format!("--set={}={value}", row.name);
            refused(&[&start[..], &[&set]].concat(), experiment);
            let of_experiment = format!("../../experiments/{experiment}.toml");
            assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(of_experiment).exists());
        }
    }
    let served = Served::start(path, &[&start[1..], &taken].concat());
    for row in rows() {
        for (value, experiment) in row.historic {
            let set = format!("{}={value}", row.name);
            refused(&["set", "vol", &set], experiment);
            assert_ne!(exits(path, 0, &["get", "vol", row.name]).out, format!("{set}\n"));
        }
        for set in words(row) {
            exits(path, 0, &["set", "vol", &set]);
            assert_eq!(exits(path, 0, &["get", "vol", row.name]).out, format!("{set}\n"));
        }
    }
    drop(served);
}

/// Arrays with several numbers of members are tested, because the default of `stripe_cache_bytes`
/// is not a multiple of the size of their stripes.
#[test]
fn a_knob_takes_the_value_that_it_shows_and_sizes_have_units() {
    for (level, count) in [("-l5", 3), ("-l5", 4), ("-l5", 6), ("-l6", 5), ("-l6", 6)] {
        let dir = tempdir().unwrap();
        let path = dir.path();
        let count_option = format!("-n{count}");
        let members = &["a", "b", "c", "d", "e", "f"][..count];
        let made = ["create", level, &count_option, "-c64K", "--member-size=8M", "--name=vol"];
        exits(path, 0, &[&made[..], &["--assume-clean"], members].concat());
        let served = Served::start(path, &[&["--set", "max_sectors_kb=1M"][..], members].concat());
        let shown = exits(path, 0, &["get", "vol"]).out;
        let knobs: Vec<&str> = shown.lines().filter(|line| !line.starts_with('#')).collect();
        assert!(knobs.len() > 40 && knobs.len() < shown.lines().count(), "{shown}");
        for line in knobs {
            exits(path, 0, &["set", "vol", line.split(' ').next().unwrap()]);
        }
        assert!(shown.contains("max_sectors_kb=1024 "), "{shown}");
        for (set, shows) in [
            ("stripe_cache_bytes=4M", "stripe_cache_bytes=4194304\n"),
            ("stripe_cache_bytes=8388608", "stripe_cache_bytes=8388608\n"),
            ("stripe_cache_bytes=8M", "stripe_cache_bytes=8388608\n"),
            ("stripe_size=64K", "stripe_size=65536\n"),
        ] {
            exits(path, 0, &["set", "vol", set]);
            let name = set.split('=').next().unwrap();
            assert_eq!(exits(path, 0, &["get", "vol", name]).out, shows, "{level} {count}");
        }
        let text = exits(path, 3, &["set", "vol", "stripe_cache_bytes=16M"]).err;
        assert!(text.contains("found 16777216, expected at most 8"), "{text}");
        exits(path, 0, &["stop", "vol"]);
        assert_eq!(served.wait(), Some(0));
    }
}

#[test]
fn a_volume_is_described_by_its_server_whatever_is_at_the_paths_now() {
    let dir = array();
    let path = dir.path();
    let served = Served::start(path, &["a", "b", "c"]);
    let before = exits(path, 0, &["status", "vol"]).out;
    for name in ["a", "b", "c"] {
        std::fs::remove_file(path.join(name)).unwrap();
    }
    exits(path, 0, &["create", "-l6", "-n4", "-c4", "--member-size=32M", "a", "b", "c", "d"]);
    assert_eq!(exits(path, 0, &["status", "vol"]).out, before);
    let text = exits(path, 0, &["detail", "vol"]).out;
    assert!(text.contains("Raid Level : raid5") && text.contains("Chunk Size : 64K"), "{text}");
    assert!(text.contains("Update Time"), "{text}");
    let text = exits(path, 0, &["explain", "vol", "0"]).out;
    assert!(text.contains("raid5, 3 members, chunk 64 KiB"), "{text}");
    exits(path, 0, &["stop", "vol"]);
    assert_eq!(served.wait(), Some(0));
}

/// Once, a hung member blocked every query of the array's state, because its superblock was read
/// for the write-mostly flag. A pipe without a writer hangs in the same way.
#[test]
fn status_and_detail_open_no_member() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    let words = ["create", "-l1", "-n2", "--member-size=8M", "--name=vol", "a", "-W", "b"];
    exits(path, 0, &words);
    let served = Served::start(path, &["a", "b"]);
    for name in ["a", "b"] {
        std::fs::remove_file(path.join(name)).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, path.join(name), 0o600.into()).unwrap();
    }
    let text = exits(path, 0, &["status", "vol"]).out;
    assert!(text.contains(" raid1 b[1](W) a[0]\n"), "{text}");
    let text = exits(path, 0, &["detail", "vol"]).out;
    assert!(text.contains("Update Time : ") && text.contains("sync writemostly   /"), "{text}");
    let seen = json(path, &["status", "--json", "vol"]);
    let members = &seen["servers"][0]["volumes"][0]["members"];
    let mostly = |slot: usize| members[slot].get("write_mostly").and_then(Value::as_bool);
    assert_eq!((mostly(0), mostly(1)), (None, Some(true)));
    exits(path, 0, &["stop", "vol"]);
    assert_eq!(served.wait(), Some(0));
}

/// Once, clients used up all descriptors, and administrators got no response while they stayed.
#[test]
fn administrators_are_answered_however_many_clients_there_are() {
    let dir = array();
    let path = dir.path();
    let mut limited = std::process::Command::new("sh");
    let weft = env!("CARGO_BIN_EXE_weft");
    limited.args(["-c", "ulimit -n 64; exec \"$0\" serve a b c", weft]).current_dir(path);
    limited.env("XDG_RUNTIME_DIR", path).env("TMPDIR", path).env_remove("NOTIFY_SOCKET");
    let served = Served::of(path, limited);
    let socket = path.join("weft/vol.nbd");
    let clients: Vec<_> =
        (0..70).map(|_| std::os::unix::net::UnixStream::connect(&socket).unwrap()).collect();
    let seen = json(path, &["status", "--json", "vol"]);
    let count = seen["servers"][0]["clients"].as_u64().unwrap();
    assert!((4..60).contains(&count), "{seen}");
    exits(path, 0, &["get", "vol"]);
    exits(path, 0, &["stop", "vol"]);
    assert_eq!(served.wait(), Some(0));
    drop(clients);
}
