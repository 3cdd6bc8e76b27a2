//! Members in practice: partitions, parts of images, unusual names; members that are replaced.

mod common;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use common::client::Client;
use common::{Served, bytes_of, contents, exits, json, table};
use tempfile::{TempDir, tempdir};

const MIB: u64 = 1 << 20;

/// Creates `disk` with three GPT partitions of 8 MiB, `old` with an MBR and two logical partitions,
/// and `plain` without a table; everything around the partitions is 0xa5.
fn disks() -> TempDir {
    let dir = tempdir().unwrap();
    for (name, mib) in [("disk", 26), ("old", 18), ("plain", 10)] {
        std::fs::write(dir.path().join(name), vec![0xa5; mib << 20]).unwrap();
    }
    let disk = dir.path().join("disk");
    table::gpt(&disk, &[(2048, 18_431), (18_432, 34_815), (34_816, 51_199)]);
    let old = dir.path().join("old");
    table::mbr(&old, 0, &[(0, 0, 0), (5, 63, 36_000)]);
    table::mbr(&old, 63 * 512, &[(0xfd, 63, 16_384), (5, 17_000, 17_000)]);
    table::mbr(&old, 17_063 * 512, &[(0xfd, 63, 16_384)]);
    dir
}

const MEMBERS: [&str; 4] = ["disk#1", "old#5", "disk#2", "plain@512K+8M"];

fn create(dir: &Path, members: &[&str]) {
    let options = ["create", "-l5", "-n4", "-c64K", "--name=vol", "--assume-clean", "--force"];
    exits(dir, 0, &[&options[..], members].concat());
}

fn pattern(seed: u64, len: u64) -> Vec<u8> {
    bytes_of((0..len / 8).map(|word| word * 7 + seed))
}

/// Members of the only volume of `weft status`: label, state, slot, and slot that is to be taken.
fn members(dir: &Path) -> Vec<(String, String, Option<u64>, Option<u64>)> {
    let status = json(dir, &["status", "--json"]);
    let members = status["servers"][0]["volumes"][0]["members"].as_array().unwrap().clone();
    let each = members.iter().map(|member| {
        let label = member["label"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
        let state = member["state"].as_str().unwrap().to_owned();
        (label, state, member["slot"].as_u64(), member["replaces"].as_u64())
    });
    each.collect()
}

#[test]
fn a_member_is_replaced_while_it_works_over_a_stop() {
    let dir = common::array();
    let path = dir.path();
    let served = Served::start(path, &["a", "b", "c", "--set", "sync_speed_max=500"]);
    let mut client = Client::connect(&served.uri);
    let content = pattern(3, client.size());
    for (piece, at) in content.chunks(1 << 20).zip((0..).step_by(1 << 20)) {
        client.write(at, piece);
    }
    let refused = exits(path, 3, &["replace", "vol", "b"]).err;
    assert!(refused.contains("found no free spare to replace it with; add one first"), "{refused}");
    exits(path, 0, &["add", "vol", "d", "--member-size", "8M"]);
    exits(path, 2, &["replace", "vol", "nothing"]);
    exits(path, 2, &["replace", "vol", "b", "--with", "d", "e"]);
    let refused = exits(path, 3, &["replace", "vol", "b", "--with", "a"]).err;
    assert!(refused.contains("found a member that is no free spare"), "{refused}");
    let refused = exits(path, 3, &["replace", "vol", "d"]).err;
    assert!(refused.contains("found a member that is not in sync"), "{refused}");
    let said = json(path, &["replace", "vol", "b", "--json"]);
    assert_eq!(said["schema"], "weft.replace/2");
    let with = said["with"].as_array().unwrap();
    assert!(with.len() == 1 && with[0].as_str().unwrap().ends_with("/d"), "{said}");
    exits(path, 1, &["replace", "vol", "b"]);
    let start = std::time::Instant::now();
    while members(path)[3] != ("d".into(), "rebuilding".into(), None, Some(1)) {
        assert!(start.elapsed().as_secs() < 30, "{:?}", members(path));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(members(path)[1], ("b".into(), "in_sync".into(), Some(1), None));
    let text = exits(path, 0, &["status"]);
    assert!(text.out.contains("d[3](R)"), "{}", text.out);
    assert!(text.err.contains("replacing: a member is being replaced"), "{}", text.err);
    drop(client);
    exits(path, 0, &["stop", "vol"]);
    assert_eq!(served.wait(), Some(0));

    let said = exits(path, 0, &["assemble", "a", "b", "c", "d"]).out;
    assert!(said.contains("replacement") && said.contains("to replace the member"), "{said}");
    let served = Served::start(path, &["a", "b", "c", "d"]);
    exits(path, 0, &["wait", "vol"]);
    let now: Vec<_> = members(path).into_iter().map(|it| (it.0, it.1, it.2)).collect();
    let is = |label: &str, state: &str, slot| (label.to_owned(), state.to_owned(), slot);
    assert!(now.contains(&is("b", "faulty", None)), "{now:?}");
    assert!(now.contains(&is("d", "in_sync", Some(1))), "{now:?}");
    exits(path, 0, &["remove", "vol", "b"]);
    exits(path, 0, &["check", "vol"]);
    exits(path, 0, &["stop", "vol"]);
    assert_eq!(served.wait(), Some(0));
    for rest in [["a", "d"], ["c", "d"]] {
        let seen = common::weft(path, &[&["cat"][..], &rest].concat());
        assert!(seen.status.success() && seen.stdout == content, "{rest:?}: {:?}", seen.stderr);
    }
}

/// While a check runs, no spare is bound: the request to replace a member is shown meanwhile, as
/// md's `want_replacement`.
#[test]
fn a_replacement_that_waits_is_shown_with_its_spare() {
    let dir = common::array();
    let path = dir.path();
    let served = Served::start(path, &["a", "b", "c", "--set", "sync_speed_max=100"]);
    exits(path, 0, &["add", "vol", "d", "e", "--member-size", "8M"]);
    exits(path, 0, &["check", "vol", "--no-wait"]);
    let said = exits(path, 0, &["replace", "vol", "c", "b", "--with", "e"]).out;
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].contains("/c with ") && lines[0].ends_with("/e"), "{said}");
    assert!(lines[1].contains("/b with ") && lines[1].ends_with("/d"), "{said}");

    let status = json(path, &["status", "--json"]);
    let of = |name: &str, key: &str| {
        let members = status["servers"][0]["volumes"][0]["members"].as_array().unwrap();
        let is_it = |it: &&serde_json::Value| it["label"].as_str().unwrap().ends_with(name);
        members.iter().find(is_it).unwrap()[key].clone()
    };
    assert_eq!((of("/c", "want_replacement"), of("/e", "reserved_for")), (true.into(), 2.into()));
    assert_eq!((of("/b", "want_replacement"), of("/d", "reserved_for")), (true.into(), 1.into()));
    assert_eq!(of("/a", "want_replacement"), serde_json::Value::Null);
    let text = exits(path, 0, &["status"]).out;
    let line = text.lines().find(|line| line.contains("want_replacement: ")).unwrap();
    assert!(line.contains("/b, by ") && line.ends_with("/d"), "{text}");
    let text = exits(path, 0, &["detail", "vol"]).out;
    let row = |name: &str| text.lines().find(|line| line.ends_with(name)).unwrap().to_owned();
    assert!(row("/c").contains("active sync want_replacement"), "{text}");
    assert!(row("/e").contains("spare reserved for 2"), "{text}");
    let detail = json(path, &["detail", "vol", "--json"]);
    assert_eq!(detail["members"][2]["want_replacement"], true);
    let metrics = exits(path, 0, &["metrics"]).out;
    let sample = |slot: u8, value: u8| {
        let of = format!(",slot=\"{slot}\"}} {value}");
        let mut lines = metrics.lines().filter(|line| line.ends_with(&of));
        lines.any(|line| line.starts_with("weft_member_want_replacement{"))
    };
    assert!(sample(0, 0) && sample(1, 1) && sample(2, 1), "{metrics}");

    exits(path, 0, &["set", "vol", "sync_speed_max=200000"]);
    exits(path, 0, &["idle", "vol"]);
    exits(path, 0, &["wait", "vol"]);
    let now = members(path);
    let is = |label: &str, slot| now.contains(&(label.into(), "in_sync".into(), Some(slot), None));
    assert!(is("e", 2) && is("d", 1), "{now:?}");
    let status = exits(path, 0, &["status"]).out;
    assert!(!status.contains("want_replacement"), "{status}");
    exits(path, 0, &["stop", "vol"]);
    assert_eq!(served.wait(), Some(0));
}

#[test]
fn partitions_and_parts_are_members_of_every_command() {
    let dir = disks();
    let path = dir.path();
    let before = contents(path);
    create(path, &MEMBERS);
    let served = Served::start(path, &MEMBERS);
    let mut client = Client::connect(&served.uri);
    let content = pattern(1, client.size());
    for (piece, at) in content.chunks(1 << 20).zip((0..).step_by(1 << 20)) {
        client.write(at, piece);
    }
    drop(client);
    // A member on one image fails, and another partition of the same image replaces it.
    exits(path, 0, &["fail", "vol", "disk#1"]);
    exits(path, 0, &["remove", "vol", "disk#1"]);
    exits(path, 0, &["add", "vol", "disk#3"]);
    exits(path, 0, &["wait", "vol"]);
    exits(path, 0, &["check", "vol"]);
    let status = json(path, &["status", "--json"]);
    let label = status["servers"][0]["volumes"][0]["members"].to_string();
    assert!(label.contains("/disk#3"), "{label}");
    exits(path, 0, &["stop", "vol"]);
    assert_eq!(served.wait(), Some(0));

    let now = ["disk#3", "old#5", "disk#2", "plain@1024s+16384s"];
    for gone in 0..5 {
        let mut rest: Vec<&str> = now.to_vec();
        if gone < 4 {
            rest.remove(gone);
        }
        let seen = common::weft(path, &[&["cat"][..], &rest].concat());
        assert!(seen.status.success() && seen.stdout == content, "{rest:?}: {:?}", seen.stderr);
    }
    for command in ["assemble", "detail", "explain"] {
        let members: &[&str] = if command == "explain" { &["0", "--members"] } else { &[] };
        exits(path, 0, &[&[command][..], members, &now].concat());
    }
    assert_eq!(json(path, &["examine", "--json", "old#5"])["members"][0]["size_bytes"], 8 << 20);

    // Nothing outside of the partitions was changed.
    let inside: [(&str, &[(u64, u64)]); 3] = [
        ("disk", &[(MIB, 25 * MIB)]),
        ("old", &[(126 * 512, 126 * 512 + 8 * MIB)]),
        ("plain", &[(MIB / 2, MIB / 2 + 8 * MIB)]),
    ];
    for (name, parts) in inside {
        let old = &before.iter().find(|(path, _)| path.ends_with(name)).unwrap().1;
        let new = std::fs::read(path.join(name)).unwrap();
        for (at, (a, b)) in (0..).zip(old.iter().zip(&new)) {
            let within = parts.iter().any(|(from, to)| (*from..*to).contains(&at));
            assert!(within || a == b, "byte {at} of {name}");
        }
    }
}

#[test]
fn what_is_not_there_is_answered_with_what_is() {
    let dir = disks();
    let path = dir.path();
    let before = contents(path);
    let one = |command: &str, member: &str| {
        exits(path, if command == "cat" { 2 } else { 1 }, &[command, member]).err
    };
    for (member, says) in [
        (
            "disk#4",
            "partition 4: found none in the GUID partition table, expected one of 1 (bytes 1048576+8388608, Linux RAID), 2 ",
        ),
        (
            "old#2",
            "found one that only holds others, expected one with data: 2 (bytes 32256+18432000, extended), 5 (bytes 64512+8388608, Linux RAID), 6 ",
        ),
        ("plain#1", "partition table: found none"),
    ] {
        let text = one("cat", member);
        assert!(text.contains(says), "{member}: {text}");
    }
    for (member, says) in [
        ("disk@1", "offset: found 1, expected a multiple of 512"),
        ("disk@0+1000", "length: found 1000, expected a multiple of 512"),
        ("disk@1T", "expected less than the size, 27262976"),
    ] {
        for command in ["cat", "assemble"] {
            let text = exits(path, 2, &[command, member]).err;
            assert!(text.contains(says), "{member}: {text}");
        }
    }
    for member in ["none#1", "none@1M"] {
        let text = exits(path, 1, &["assemble", member]).err;
        assert!(text.contains(&format!("{member}: none: No such file")), "{text}");
        exits(path, 1, &["cat", member]);
    }
    for (members, says) in [
        (["disk#1", "disk@1M+8M"], "named twice, also as disk#1"),
        (["disk#1", "disk"], "overlaps disk#1, expected members that have no byte in common"),
        (["disk@2M+2M", "disk#1"], "overlaps disk@2M+2M"),
    ] {
        for command in ["assemble", "create", "cat"] {
            let options: &[&str] = if command == "create" { &["-l5", "-n2"] } else { &[] };
            let text = exits(path, 2, &[&[command][..], options, &members].concat()).err;
            let says = if command == "cat" { "disk" } else { says };
            assert!(text.contains(says), "{command} {members:?}: {text}");
        }
    }
    assert_eq!(contents(path), before);
}

#[test]
fn a_damaged_first_table_gives_way_to_the_second_and_a_file_of_that_name_wins() {
    use std::os::unix::fs::FileExt;
    let dir = disks();
    let path = dir.path();
    create(path, &MEMBERS);
    let disk = std::fs::File::options().write(true).open(path.join("disk")).unwrap();
    disk.write_all_at(&[0; 4096], 512).unwrap();
    let text = exits(path, 0, &["examine", "disk#1"]);
    assert!(text.err.contains("the second one, at byte 27262464, is whole"), "{}", text.err);
    assert!(text.out.starts_with("disk#1:"), "{}", text.out);

    std::fs::write(path.join("disk#1"), vec![0; 8 << 20]).unwrap();
    let text = exits(path, 1, &["examine", "disk#1"]).err;
    assert!(text.contains("No md superblock detected on disk#1."), "{text}");
    std::fs::write(path.join("disk@1M"), vec![0; 8 << 20]).unwrap();
    exits(path, 1, &["examine", "disk@1M"]);
    exits(path, 0, &["examine", "disk@1M+8M"]);
}

/// Checks that the first command that `rescue` suggests for an array prints this content.
fn reads(dir: &Path, array: &serde_json::Value, content: &[u8]) {
    let next = array["commands"][0].as_str().unwrap();
    let arguments: Vec<&str> = next
        .split(' ')
        .filter(|word| !word.starts_with('>'))
        .map(|word| word.trim_matches('\''))
        .collect();
    let seen = common::weft(dir, &arguments[1..]);
    assert!(seen.status.success() && seen.stdout == content, "{next}: {:?}", seen.stderr);
}

#[test]
fn rescue_puts_together_what_is_on_disks_and_names_the_next_command() {
    use std::os::unix::fs::FileExt;
    let dir = disks();
    let path = dir.path();
    create(path, &MEMBERS);
    let served = Served::start(path, &MEMBERS);
    let mut client = Client::connect(&served.uri);
    let content = pattern(5, client.size());
    for (piece, at) in content.chunks(1 << 20).zip((0..).step_by(1 << 20)) {
        client.write(at, piece);
    }
    drop(client);
    exits(path, 0, &["stop", "vol"]);
    assert_eq!(served.wait(), Some(0));
    std::fs::remove_file(path.join("serve.log")).unwrap();
    let before = contents(path);

    let found = json(path, &["rescue", "--json", "disk", "old", "plain"]);
    let array = &found["arrays"][0];
    assert_eq!(found["arrays"].as_array().unwrap().len(), 1, "{found}");
    let names: Vec<&str> = array["members"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["member"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["disk#1", "disk#2", "old#5", "plain@524288+8388608"]);
    assert_eq!(array["members"][3]["where"], "in no partition");
    reads(path, array, &content);
    let text = exits(path, 0, &["rescue", "disk", "plain"]).out;
    for says in [
        "disk: 26 MiB, GUID partition table: 1 (bytes 1048576+8388608, Linux RAID), 2 ",
        "plain: 10 MiB, no partition table; 1 member\n",
        "missing  slot 1",
        "its data can be read, what is missing is reconstructed from the others",
        "    weft serve --overlay changes 'disk#1' 'disk#2' plain@524288+8388608\n",
    ] {
        assert!(text.contains(says), "{says} in {text}");
    }
    // No suggested command writes to a disk.
    let object = json(path, &["rescue", "--json", "disk", "plain"]).to_string();
    for text in [&text, &object] {
        assert!(text.contains("degraded") && !text.contains("weft add"), "{text}");
        let plain = text.matches("weft serve ").count();
        let safe = ["weft serve --read-only", "weft serve --overlay"];
        assert_eq!(
            plain,
            safe.map(|line| text.matches(line).count()).iter().sum::<usize>(),
            "{text}"
        );
    }
    let text = exits(path, 1, &["rescue", "old", "plain"]).out;
    assert!(text.contains("cannot be read (too-few-members): "), "{text}");
    // A refused array keeps its name, level and size.
    let title = text.lines().find(|line| line.starts_with("array ")).unwrap();
    assert!(title.contains(":vol (") && title.ends_with("raid5, 21 MiB, 2 of 4 members found"));
    let said = exits(path, 1, &["rescue", "--list", "old", "plain"]).err;
    assert!(said.contains(&format!("{title}: cannot be read: need 3 of 4 ")), "{title} in {said}");
    assert_eq!(said.matches("cannot be read: ").count(), 1, "{said}");
    let text = exits(path, 1, &["rescue", "/dev/null"]).err;
    assert!(text.contains("neither a file nor a block device"), "{text}");

    // Without its tables a disk has members only in unusual places, most of them deep inside.
    let disk = std::fs::File::options().write(true).open(path.join("disk")).unwrap();
    disk.write_all_at(&[0; 34 * 512], 0).unwrap();
    disk.write_all_at(&[0; 33 * 512], 26 * MIB - 33 * 512).unwrap();
    assert_eq!(
        json(path, &["rescue", "--json", "disk", "old", "plain"])["arrays"][0]["degraded"],
        1
    );
    let found = json(path, &["rescue", "--json", "--deep", "disk", "old"]);
    let array = &found["arrays"][0];
    assert_eq!(array["missing_slots"], serde_json::json!([3]), "{found}");
    assert_eq!(array["members"][1]["member"], "disk@9437184+8388608");
    reads(path, array, &content);
    for (name, bytes) in before.iter().filter(|(name, _)| !name.ends_with("disk")) {
        assert!(std::fs::read(name).unwrap() == *bytes, "{}", name.display());
    }
}

/// A partially copied partition or disk is named, with the existing and the missing part, and the
/// existing part is used.
#[test]
fn rescue_names_what_a_cut_image_has_left() {
    let dir = disks();
    let path = dir.path();
    create(path, &MEMBERS);
    let content = common::weft(path, &[&["cat"][..], &MEMBERS].concat()).stdout;
    let cut = |name: &str, bytes: u64| {
        let file = std::fs::File::options().write(true).open(path.join(name)).unwrap();
        file.set_len(bytes).unwrap();
    };
    cut("old", 5 * MIB);
    let text = exits(path, 0, &["rescue", "disk", "old", "plain"]).out;
    for says in [
        "old: 5 MiB, MBR",
        "note: partition 5: cut off: found 5178368 of its bytes 64512..8453120, expected all 8388608; \
         what is there is used; if the image was cut, copy the rest too",
        "  old@64512  slot 1  in sync  events 0  cut off",
    ] {
        assert!(text.contains(says), "{says}\n{text}");
    }
    // With a missing member, some data is lost.
    let array = &json(path, &["rescue", "--json", "disk", "old", "plain"])["arrays"][0];
    assert_eq!(array["members"][2]["where"], "cut off", "{array}");
    reads(path, array, &content);
    let text = exits(path, 0, &["rescue", "disk", "old"]).out;
    assert!(text.contains("weft cat 'disk#1' 'disk#2' old@64512 >array.img"), "{text}");
    // A superblock outside of any partition, of a member that extends beyond the end.
    cut("plain", 4 * MIB);
    let text = exits(path, 0, &["rescue", "disk", "old", "plain"]).out;
    assert!(text.contains("cut off: found 3670016 of its bytes 524288.."), "{text}");
    assert!(text.contains("  plain@524288  slot 3  in sync"), "{text}");
    // Only the partition table is left.
    cut("old", 60 << 10);
    let text = exits(path, 0, &["rescue", "disk", "old", "plain"]).out;
    assert!(text.contains("expected it before the end of the disk, 61440"), "{text}");
}

/// The superblock of the array would lie beside it, and the member could be of either array.
#[test]
fn a_member_with_a_superblock_of_another_version_is_not_added() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    for name in ["x", "y", "d", "e"] {
        File::create(path.join(name)).unwrap().set_len(8 << 20).unwrap();
    }
    for (version, name, members) in
        [("-e1.0", "--name=old", ["x", "y"]), ("-e1.2", "--name=vol", ["d", "e"])]
    {
        exits(
            path,
            0,
            &[&["create", "-l1", "-n2", version, name, "--assume-clean"], &members[..]].concat(),
        );
    }
    let served = Served::start(path, &["d", "e"]);
    let before = std::fs::read(path.join("x")).unwrap();
    let refused = exits(path, 3, &["add", "vol", "x", "--force"]).err;
    let says = "found a superblock of version 1.0 at byte 8380416 of array";
    assert!(refused.contains(says) && refused.contains("; wipefs -o 8380416 "), "{refused}");
    assert!(std::fs::read(path.join("x")).unwrap() == before);
    File::options()
        .write(true)
        .open(path.join("x"))
        .unwrap()
        .write_all_at(&[0; 4096], 16368 * 512)
        .unwrap();
    exits(path, 0, &["add", "vol", "x", "--force"]);
    exits(path, 0, &["stop", "vol"]);
    assert_eq!(served.wait(), Some(0));
}

#[test]
fn an_array_grows_over_a_stop() {
    let dir = common::array();
    let path = dir.path();
    let served = Served::start(path, &["a", "b", "c", "--set", "sync_speed_max=500"]);
    let mut client = Client::connect(&served.uri);
    let size = client.size();
    let content = pattern(5, size);
    let len = u32::try_from(size).unwrap();
    for (piece, at) in content.chunks(1 << 20).zip((0..).step_by(1 << 20)) {
        client.write(at, piece);
    }
    let refused = exits(path, 3, &["grow", "vol", "-n", "4"]).err;
    assert!(refused.contains("found 0 spares, expected 1; weft add TARGET DEVICE"), "{refused}");
    exits(path, 0, &["add", "vol", "d", "--member-size", "8M"]);
    for count in ["2", "3"] {
        let refused = exits(path, 3, &["grow", "vol", "-n", count]).err;
        assert!(refused.contains(&format!("found {count}, expected more than 3")), "{refused}");
    }
    exits(path, 2, &["grow", "vol", "-n", "many"]);
    let said = json(path, &["grow", "vol", "-n", "4", "--json"]);
    assert_eq!((&said["schema"], &said["raid_devices"]), (&"weft.grow/1".into(), &4.into()));
    exits(path, 1, &["grow", "vol", "-n", "5"]);
    exits(path, 1, &["replace", "vol", "a"]);
    let text = exits(path, 0, &["status"]);
    assert!(text.out.contains("reshape ="), "{}", text.out);
    let detail = exits(path, 0, &["detail", "vol"]).out;
    assert!(detail.contains("Delta Devices : 1, (3->4)"), "{detail}");
    let refused = exits(path, 3, &["explain", "vol", "0"]).err;
    assert!(refused.contains("found an array that is being reshaped"), "{refused}");
    drop(client);
    exits(path, 0, &["stop", "vol"]);
    assert_eq!(served.wait(), Some(0));

    let detail = exits(path, 0, &["detail", "a", "b", "c", "d"]).out;
    assert!(detail.contains("Reshape Status : "), "{detail}");
    let served = Served::start(path, &["a", "b", "c", "d"]);
    let mut client = Client::connect(&served.uri);
    assert!(client.read(0, len) == content, "the content is what it was");
    exits(path, 0, &["wait", "vol"]);
    let mut later = Client::connect(&served.uri);
    assert_eq!(later.size(), size / 2 * 3, "a client that connects then sees the new size");
    assert!(later.read(0, len) == content, "the content is what it was");
    assert!(later.read(size, 1 << 20).iter().all(|byte| *byte == 0), "what was added is zero");
    later.write(size, &content[..1 << 20]);
    let checked = exits(path, 0, &["check", "vol"]).out;
    assert!(checked.contains("agrees with the data everywhere"), "{checked}");
    drop((client, later));
    exits(path, 0, &["stop", "vol"]);
    assert_eq!(served.wait(), Some(0));
}
