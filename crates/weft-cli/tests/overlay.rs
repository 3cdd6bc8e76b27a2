//! Tests of overlays: changes stay out of the members until they are committed or dropped.

mod common;

use std::path::Path;

use common::client::Client;
use common::{Served, bytes_of, contents, exits, json, weft};
use tempfile::{TempDir, tempdir};
use weft_nbd::Op;
use weft_testing::{skip, uring_is_refused_on_purpose};

const MEMBERS: [&str; 4] = ["a", "b", "c", "d"];

fn pattern(seed: u64, len: u64) -> Vec<u8> {
    bytes_of((0..len / 8).map(|word| word * 11 + seed))
}

/// Creates a RAID 5 of four members with content, in a directory of its own.
fn array() -> (TempDir, Vec<u8>) {
    let dir = tempdir().unwrap();
    let path = dir.path();
    let made = ["create", "-l5", "-n4", "-c64K", "--member-size=6M", "--name=vol"];
    exits(path, 0, &[&made[..], &MEMBERS].concat());
    let served = Served::start(path, &MEMBERS);
    let mut client = Client::connect(&served.uri);
    let content = pattern(1, client.size());
    put(&mut client, 0, &content);
    drop(client);
    exits(path, 0, &["stop", "vol"]);
    assert_eq!(served.wait(), Some(0));
    (dir, content)
}

fn put(client: &mut Client, at: u64, bytes: &[u8]) {
    for (piece, index) in bytes.chunks(1 << 20).zip(0..) {
        client.write(at + (index << 20), piece);
    }
}

/// Changes of a client in these tests: writes of many sizes.
fn change(client: &mut Client, content: &mut [u8]) {
    for (at, len) in
        [(512, 512), (70_000, 3000), (200_000 / 512 * 512, 300 << 10), (5 << 20, 1 << 20)]
    {
        let data = pattern(at, len + 8)[..usize::try_from(len).unwrap()].to_vec();
        client.write(at, &data);
        content[usize::try_from(at).unwrap()..][..data.len()].copy_from_slice(&data);
    }
    client.request(Op::Flush, &[]).unwrap();
}

fn cat(path: &Path, members: &[&str]) -> Vec<u8> {
    let seen = weft(path, &[&["cat", "--overlay", "changes"][..], members].concat());
    assert!(seen.status.success(), "{}", String::from_utf8_lossy(&seen.stderr));
    seen.stdout
}

/// Files that a process has open for writing.
fn open_for_writing(served: &Served) -> Vec<String> {
    let process = format!("/proc/{}", served.pid().as_raw_nonzero());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(format!("{process}/fd")).unwrap().flatten() {
        let number = entry.file_name().into_string().unwrap();
        // The descriptor may be closed already.
        let info = std::fs::read_to_string(format!("{process}/fdinfo/{number}"));
        let (Ok(info), Ok(name)) = (info, std::fs::read_link(entry.path())) else { continue };
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap();
        let flags = u32::from_str_radix(flags.trim(), 8).unwrap();
        if flags & 3 != 0 && name.is_absolute() {
            found.push(name.display().to_string());
        }
    }
    found
}

#[test]
fn members_stay_as_they_are_through_writes_a_stop_and_a_kill() {
    for backend in ["--backend=uring", "--backend=threads"] {
        if backend.ends_with("uring") && !has_uring() {
            continue;
        }
        let (dir, mut content) = array();
        let path = dir.path();
        let before = contents(path);
        let same = |when: &str| {
            for (name, bytes) in before.iter().filter(|(name, _)| !name.ends_with("serve.log")) {
                assert!(std::fs::read(name).unwrap() == *bytes, "{} {when}", name.display());
            }
        };
        let serve = [&["--overlay", "changes", backend][..], &MEMBERS].concat();
        let served = Served::start(path, &serve);
        assert!(open_for_writing(&served).iter().any(|name| name.ends_with(".overlay")));
        for name in open_for_writing(&served) {
            assert!(!MEMBERS.iter().any(|member| name.ends_with(&format!("/{member}"))), "{name}");
        }
        let mut client = Client::connect(&served.uri);
        assert_eq!(client.read(0, 1 << 20), content[..1 << 20]);
        change(&mut client, &mut content);
        let all = u32::try_from(content.len() / 2).unwrap();
        assert!(client.read(0, all) == content[..content.len() / 2], "read back ({backend})");
        drop(client);
        let text = exits(path, 0, &["check", "vol"]).out;
        assert!(text.contains("parity agrees"), "{text}");
        exits(path, 0, &["stop", "vol"]);
        assert_eq!(served.wait(), Some(0));
        same("after a stop");

        // The next server sees the changes, makes more, and is killed.
        let served = Served::start(path, &serve);
        let mut client = Client::connect(&served.uri);
        let data = pattern(99, 128 << 10);
        client.write(1 << 20, &data);
        client.request(Op::Flush, &[]).unwrap();
        content[1 << 20..][..data.len()].copy_from_slice(&data);
        client.write(0, &[7; 4096]);
        drop(client);
        rustix::process::kill_process(served.pid(), rustix::process::Signal::KILL).unwrap();
        served.wait();
        same("after a kill");
        let seen = cat(path, &MEMBERS);
        assert!(
            seen[4096..] == content[4096..]
                && (seen[..4096] == [7; 4096] || seen[..4096] == content[..4096])
        );
        // The array is dirty, and is resynced in the overlay alone.
        let served = Served::start(path, &serve);
        exits(path, 0, &["wait", "vol"]);
        exits(path, 0, &["check", "vol"]);
        exits(path, 0, &["stop", "vol"]);
        assert_eq!(served.wait(), Some(0));
        for gone in 0..4 {
            let mut rest = MEMBERS.to_vec();
            rest.remove(gone);
            assert!(cat(path, &rest)[4096..] == content[4096..], "without {gone}");
        }
        same("at the end");
    }
}

/// Whether io_uring is tested. Containers often forbid it, which skips the test unless
/// `WEFT_NO_URING=1` declares it as intended.
fn has_uring() -> bool {
    let probe = tempdir().unwrap();
    let path = probe.path();
    exits(path, 0, &["create", "-l5", "-n3", "--member-size=4M", "a", "b", "c"]);
    let arguments = ["serve", "--backend=uring", "--exec", "true", "a", "b", "c"];
    let works = weft(path, &arguments).status.success();
    let refused_on_purpose = uring_is_refused_on_purpose();
    assert!(!works || !refused_on_purpose, "WEFT_NO_URING=1, and io_uring works: unset it");
    if !works && !refused_on_purpose {
        skip("io_uring is refused; only --backend=threads is tested");
    }
    works
}

#[test]
fn a_commit_is_what_writing_would_have_been() {
    let (dir, content) = array();
    let (mut direct, path) = (content.clone(), dir.path());
    let other = path.join("direct");
    std::fs::create_dir(&other).unwrap();
    for name in MEMBERS {
        std::fs::copy(path.join(name), other.join(name)).unwrap();
    }
    let run = |path: &Path, more: &[&str], content: &mut Vec<u8>| {
        let served = Served::start(path, &[more, &MEMBERS[..]].concat());
        change(&mut Client::connect(&served.uri), content);
        exits(path, 0, &["stop", "vol"]);
        assert_eq!(served.wait(), Some(0));
    };
    run(&other, &[], &mut direct);
    let mut overlaid = content.clone();
    run(path, &["--overlay", "changes"], &mut overlaid);

    let commit = |status: i32, more: &[&str]| {
        let serve = ["serve", "--overlay", "changes", "--commit-overlay"];
        exits(path, status, &[&serve[..], more].concat())
    };
    let before = contents(path);
    let text = commit(0, &[&["--dry-run"][..], &MEMBERS].concat()).out;
    assert!(text.contains("would write") && text.lines().count() == 4, "{text}");
    assert_eq!(contents(path), before);
    // Either all members are committed or none: the others would be out of date.
    let text = commit(3, &MEMBERS[..3]).err;
    assert!(text.contains("it was not named"), "{text}");
    assert_eq!(contents(path), before);
    let served = Served::start(path, &[&["--overlay", "changes"][..], &MEMBERS].concat());
    commit(3, &MEMBERS);
    exits(path, 0, &["stop", "vol"]);
    assert_eq!(served.wait(), Some(0));

    let text = commit(0, &MEMBERS);
    assert!(text.out.contains("wrote ") && text.out.lines().count() == 4, "{text:?}");
    assert!(!text.err.contains("touched since"), "weft's own doing: {text:?}");
    let left = || -> Vec<String> {
        let entries = std::fs::read_dir(path.join("changes")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    assert!(left().iter().all(|name| name.ends_with(".committed")), "{:?}", left());
    let superblock = &json(path, &["examine", "--json", "a"])["members"][0]["superblock"];
    let data = usize::try_from(superblock["data_offset_bytes"].as_u64().unwrap()).unwrap();
    for name in MEMBERS {
        let (a, b) = (std::fs::read(path.join(name)), std::fs::read(other.join(name)));
        assert!(a.unwrap()[data..] == b.unwrap()[data..], "data of {name}");
    }
    assert!(cat(path, &MEMBERS) == direct);
    // A repetition succeeds; another directory fails.
    for more in [&[][..], &["--dry-run"]] {
        let text = commit(0, &[more, &MEMBERS].concat());
        assert_eq!(text.out, "nothing to commit: already committed\n");
    }
    std::fs::create_dir(path.join("elsewhere")).unwrap();
    for wrong in ["elsewhere", "absent"] {
        let line = [&["serve", "--overlay", wrong, "--commit-overlay"][..], &MEMBERS].concat();
        let text = exits(path, 1, &line).err;
        assert!(text.contains("found no overlay"), "{text}");
    }
    // A new overlay that is dropped leaves nothing that looks like a commit.
    let served = Served::start(path, &[&["--overlay", "changes"][..], &MEMBERS].concat());
    exits(path, 0, &["stop", "vol"]);
    assert_eq!(served.wait(), Some(0));
    exits(
        path,
        0,
        &[&["serve", "--overlay", "changes", "--discard-overlay"][..], &MEMBERS].concat(),
    );
    assert_eq!(left(), [""; 0]);
    let text = commit(1, &MEMBERS).err;
    assert!(text.contains("found no overlay"), "{text}");
}

/// A change of a file before its overlay is still reported.
#[test]
fn a_member_that_another_program_touched_is_reported() {
    let (dir, _) = array();
    let path = dir.path();
    let serve = [&["serve", "--overlay", "changes", "--exec", "true"][..], &MEMBERS].concat();
    exits(path, 0, &serve);
    let member = std::fs::File::options().write(true).open(path.join("b")).unwrap();
    member.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    drop(member);
    let text = exits(path, 0, &serve).err;
    let told: Vec<&str> = text.lines().filter(|line| line.contains("touched since")).collect();
    assert!(!told.is_empty() && told.iter().all(|line| line.contains("/b: ")), "{text}");
}

#[test]
fn what_is_dropped_is_gone_and_degraded_sets_need_no_run() {
    let (dir, content) = array();
    let path = dir.path();
    let before: Vec<_> = MEMBERS.map(|name| std::fs::read(path.join(name)).unwrap()).to_vec();
    let serve = [&["--overlay", "changes"][..], &MEMBERS[1..]].concat();
    exits(path, 3, &[&["serve", "--exec", "true"][..], &MEMBERS[1..]].concat());
    let served = Served::start(path, &serve);
    let mut changed = content.clone();
    let mut client = Client::connect(&served.uri);
    change(&mut client, &mut changed);
    // A new member is rebuilt in its overlay.
    std::fs::write(path.join("new"), vec![0; 6 << 20]).unwrap();
    exits(path, 0, &["add", "vol", "new"]);
    exits(path, 0, &["wait", "vol"]);
    drop(client);
    exits(path, 0, &["stop", "vol"]);
    assert_eq!(served.wait(), Some(0));
    assert!(std::fs::read(path.join("new")).unwrap().iter().all(|byte| *byte == 0));
    assert!(cat(path, &["b", "new", "d"]) == changed, "the rebuilt member stands in for another");
    exits(path, 1, &["examine", "new"]);

    let members = ["b", "c", "d", "new"];
    let dropped = [&["serve", "--overlay", "changes", "--discard-overlay"][..], &members].concat();
    assert_eq!(exits(path, 0, &dropped).out.lines().count(), 4);
    exits(path, 1, &dropped);
    assert!(cat(path, &MEMBERS) == content);
    for (name, bytes) in MEMBERS.iter().zip(before) {
        assert!(std::fs::read(path.join(name)).unwrap() == bytes, "{name}");
    }
    let usage = ["serve", "--commit-overlay", "a"];
    exits(path, 2, &usage);
}
