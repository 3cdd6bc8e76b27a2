//! Tests of commands that need no running volume: written data, refusals and output.

mod common;

use common::{contents, exits, json, weft};
use tempfile::tempdir;

const CREATE: [&str; 8] =
    ["create", "--level", "5", "--raid-devices", "3", "--member-size", "16M", "--name=t"];

fn create(more: &[&'static str]) -> Vec<&'static str> {
    CREATE.iter().chain(more).copied().collect()
}

#[test]
fn dry_run_prints_every_offset_and_writes_nothing() {
    let dir = tempdir().unwrap();
    std::fs::write(dir.path().join("old"), vec![7; 16 << 20]).unwrap();
    let before = contents(dir.path());
    let text = exits(dir.path(), 0, &create(&["--dry-run", "old", "b", "c"])).out;
    assert_eq!(contents(dir.path()), before);
    for line in ["would create", "bytes 4096..8192", "make a sparse file of 16777216 bytes"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let planned = json(dir.path(), &create(&["--dry-run", "--json", "old", "b", "c"]));
    assert_eq!(contents(dir.path()), before);
    assert_eq!(planned["dry_run"], true);
    assert_eq!(planned["initial_sync"], "recovery");
    assert_eq!(planned["members"][0]["super_offset_bytes"], 4096);
    assert_eq!(planned["members"][1]["make_bytes"], 16 << 20);
}

#[test]
fn fresh_sparse_files_need_no_sync_and_stay_sparse() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempdir().unwrap();
    let text = exits(dir.path(), 0, &create(&["a", "b", "c"])).out;
    assert!(text.contains("initial sync: none; the members are all holes"), "{text}");
    for name in ["a", "b", "c"] {
        let metadata = dir.path().join(name).metadata().unwrap();
        assert_eq!(metadata.len(), 16 << 20);
        assert!(metadata.blocks() * 512 <= 64 << 10, "{name} has {} blocks", metadata.blocks());
    }
    let seen = json(dir.path(), &["examine", "--json", "a", "c"]);
    let members = seen["members"].as_array().unwrap();
    assert_eq!(members.len(), 2);
    for (member, slot) in members.iter().zip([0, 2]) {
        let superblock = &member["superblock"];
        assert_eq!(superblock["level"], "raid5");
        assert_eq!(superblock["state"], "clean");
        assert_eq!(superblock["chunk_bytes"], 512 << 10);
        assert_eq!(superblock["device_role"]["slot"], slot);
        assert_eq!(superblock["events"], 0);
    }
}

#[test]
fn members_with_data_are_rebuilt_resynced_or_trusted_as_mdadm_does() {
    for (level, options, sync, spares) in [
        ("5", &[][..], "recovery", 1),
        ("4", &[], "recovery", 1),
        ("6", &[], "resync", 0),
        ("5", &["--force"], "resync", 0),
        ("5", &["--assume-clean"], "none", 0),
    ] {
        let dir = tempdir().unwrap();
        for name in ["a", "b", "c", "d"] {
            std::fs::write(dir.path().join(name), vec![7; 16 << 20]).unwrap();
        }
        let mut arguments = vec!["create", "--level", level, "-n4", "--json"];
        arguments.extend(options);
        arguments.extend(["a", "b", "c", "d"]);
        let created = json(dir.path(), &arguments);
        assert_eq!(created["initial_sync"], sync, "{level} {options:?}");
        let members = created["members"].as_array().unwrap();
        let unslotted = members.iter().filter(|member| member["slot"].is_null()).count();
        assert_eq!(unslotted, spares, "{level} {options:?}");
        // The data area is unchanged.
        let bytes = std::fs::read(dir.path().join("a")).unwrap();
        assert!(bytes[8192..].iter().all(|byte| *byte == 7));
    }
}

#[test]
fn members_in_use_for_something_else_are_refused_unwritten() {
    let put = |at: usize, bytes: &'static [u8]| (at, bytes);
    for (what, (at, bytes)) in [
        ("partition", put(512, b"EFI PART")),
        ("LUKS", put(0, b"LUKS\xba\xbe")),
        ("XFS", put(0, b"XFSB")),
        ("LVM", put(512, b"LABELONE")),
        ("swap", put(4086, b"SWAPSPACE2")),
    ] {
        let dir = tempdir().unwrap();
        let mut disk = vec![0; 16 << 20];
        disk[at..at + bytes.len()].copy_from_slice(bytes);
        std::fs::write(dir.path().join("b"), disk).unwrap();
        let before = contents(dir.path());
        let text = exits(dir.path(), 3, &create(&["a", "b", "c"])).err;
        assert!(text.contains("--force"), "{what}: {text}");
        assert!(text.contains(what), "{what}: {text}");
        assert_eq!(contents(dir.path()), before, "{what}");
        exits(dir.path(), 0, &create(&["--force", "a", "b", "c"]));
        let put = bytes;
        // The old signature is gone, so no program can mistake the member for its former use.
        let bytes = std::fs::read(dir.path().join("b")).unwrap();
        assert!(!bytes.windows(put.len()).any(|window| window == put), "{what}");
    }
}

#[test]
fn create_leaves_signatures_where_data_is_and_says_so() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    let mut disk = vec![0; 16 << 20];
    disk[0x10040..0x10048].copy_from_slice(b"_BHRfS_M");
    disk[512..520].copy_from_slice(b"EFI PART");
    std::fs::write(path.join("b"), &disk).unwrap();
    let text = exits(path, 0, &create(&["--force", "-e1.0", "a", "b", "c"])).out;
    for name in ["a btrfs file system at byte 65600 stays", "a GUID partition table at byte 512"] {
        assert!(text.contains(name), "{name} in {text}");
    }
    let bytes = std::fs::read(path.join("b")).unwrap();
    assert!(bytes[..1 << 20] == disk[..1 << 20]);
}

#[test]
fn slots_left_empty_are_named_and_what_is_printed_next_works() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    let text = exits(path, 0, &create(&["a", "missing", "new\nline"])).out;
    assert!(text.contains("  slot 1   missing\n"), "{text}");
    assert!(text.contains("degraded: 2 of 3 slots are filled"), "{text}");
    let next = text.lines().find_map(|line| line.strip_prefix("next: weft serve ")).unwrap();
    assert_eq!(next, "a $'new\\012line'");
    let made = json(path, &create(&["--json", "d", "missing", "e"]));
    assert_eq!(made["missing_slots"], serde_json::json!([1]));
}

#[test]
fn a_member_of_another_array_is_refused_and_forced_only_on_request() {
    let dir = tempdir().unwrap();
    for metadata in ["1.0", "1.1", "1.2"] {
        exits(dir.path(), 0, &create(&["--force", "-e", metadata, "a", "b", "c"]));
        let before = contents(dir.path());
        let text = exits(dir.path(), 3, &create(&["a", "b", "d"])).err;
        assert!(text.contains("an md superblock"), "{text}");
        assert_eq!(contents(dir.path()), before);
    }
    // Each time the superblock at the other position was erased, so one array is left.
    exits(dir.path(), 0, &["examine", "a", "b", "c"]);
    exits(dir.path(), 0, &["assemble", "a", "b", "c"]);
}

#[test]
fn what_makes_no_sense_is_usage() {
    let dir = tempdir().unwrap();
    exits(dir.path(), 0, &create(&["x", "y", "z"]));
    let before = contents(dir.path());
    let cases: &[(&[&str], &str)] = &[
        (&["create", "--level", "raid7", "-n2", "a", "b"], "found raid7, expected linear, 0, 1,"),
        (&["create", "-l5", "-n3", "-c0", "--member-size=8M", "a", "b", "c"], "power of two, at"),
        (
            &["create", "-l5", "-n3", "-c1", "--member-size=8M", "a", "b", "c"],
            "found 1 KiB, expect",
        ),
        (&["serve", "--name=-x", "x", "y", "z"], "--name"),
        (&["create", "-l5", "-n4", "--member-size=8M", "a", "b", "c"], "found 3, expected 4"),
        (&["create", "-l5", "-n3", "-e0.90", "a", "b", "c"], "1.0, 1.1 or 1.2"),
        (&["create", "-l5", "-n3", "-p", "ls-6", "a", "b", "c"], "--layout"),
        (&["create", "-l4", "-n3", "-p", "ls", "a", "b", "c"], "raid4 has none"),
        (&["create", "-l5", "-n3", "-b", "file", "a", "b", "c"], "internal or none"),
        (&["create", "-l5", "-n3", "--bitmap-chunk", "64K", "a", "b", "c"], "--bitmap internal"),
        (
            &["create", "-l0", "-n2", "-b", "internal", "--member-size=8M", "a", "b"],
            "none for raid0",
        ),
        (&["create", "-l5", "-n3", "-k", "ppl", "a", "b", "c"], "resync"),
        (&["create", "-l5", "-n3", "-c", "48K", "--member-size=8M", "a", "b", "c"], "power of two"),
        (&["create", "-l5", "-n3", "-c", "100B", "--member-size=8M", "a", "b", "c"], "--chunk"),
        (&["create", "-l5", "-n3", "--member-size=8", "a", "b", "c"], "unit"),
        (&["create", "-l5", "-n3", "--member-size=8M", "a", "a", "c"], "named twice"),
        (&["create", "-l5", "-n3", "--member-size=8M", "a", "./a", "c"], "named twice"),
        (&["create", "-l5", "-n3", "--member-size=8M", "a", "missing", "missing"], "missing"),
        (&["create", "-l5", "-n3", "--member-size=8M", "a", "b", "ram:8M"], "memory"),
        (&["create", "-l5", "-n3", "--member-size=8M", "a", "b", "nbd://h/x"], "not supported"),
        (&["create", "-l5", "-n3", "--uuid", "7", "--member-size=8M", "a", "b", "c"], "--uuid"),
        (&["create", "-l5", "-n3", "--name", "a b", "--member-size=8M", "a", "b", "c"], "--name"),
        (&["create", "-l5", "-n500", "--member-size=8M", "a"], "expected 500"),
        (&["assemble"], "required"),
        (&["assemble", "x", "./x"], "named twice"),
        (&["assemble", "missing"], "only create"),
        (&["cat", "ram:1M"], "fresh memory"),
        (&["cat", "--offset", "99G", "x", "y", "z"], "--offset"),
        (&["cat", "--length", "99G", "x", "y", "z"], "--length"),
        (&["serve", "--set", "stripe_cache_size=1", "x", "y", "z"], "17..=32768"),
        (&["create", "/dev/md0", "-l5", "-n3", "x", "y", "z"], "/dev/md0 is no member: --name"),
        (&["serve", "--set", "nothing=1", "x", "y", "z"], "no such knob"),
        (&["serve", "--set", "nothing", "x", "y", "z"], "KNOB=VALUE"),
        (&["serve", "--name", "../x", "x", "y", "z"], "--name"),
        (&["serve", "--listen", "iscsi:/mnt", "x", "y", "z"], "--listen"),
        (&["explain", "--members", "x", "y", "z"], "OFFSET"),
        (&["explain", "99G", "--members", "x", "y", "z"], "inside the array"),
        (&["explain", "1X", "--members", "x", "y", "z"], "size"),
        (&["nonsense"], "unrecognized"),
    ];
    for (arguments, expected) in cases {
        let text = exits(dir.path(), 2, arguments).err;
        assert!(text.contains(expected), "{arguments:?}: expected {expected:?} in {text:?}");
        assert!(!text.contains("panicked"), "{arguments:?}: {text}");
    }
    assert_eq!(contents(dir.path()), before);
    // For a mistyped command a similar one is suggested, but none that ends a volume.
    for (slip, suggested) in [("statsu", true), ("top", false), ("sto", false), ("remve", false)] {
        let text = exits(dir.path(), 2, &[slip]).err;
        assert_eq!(text.contains("similar"), suggested, "{slip}: {text}");
    }
}

#[test]
fn what_cannot_be_done_fails_and_names_the_member() {
    let dir = tempdir().unwrap();
    std::fs::write(dir.path().join("tiny"), [0; 512]).unwrap();
    std::fs::write(dir.path().join("text"), vec![b'x'; 1 << 20]).unwrap();
    let cases: &[(&[&str], i32, &str)] = &[
        (&["create", "-l5", "-n3", "a", "b", "c"], 1, "--member-size"),
        (&["create", "-l5", "-n3", "--member-size=64K", "a", "b", "c"], 1, "a: size"),
        (&["create", "-l5", "-n3", "--member-size=9M", "tiny", "b", "c"], 1, "tiny: size"),
        (&["create", "-l5", "-n3", "--member-size=9M", "/dev/null", "b", "c"], 1, "/dev/null"),
        (&["create", "-l5", "-n3", "--member-size=9M", ".", "b", "c"], 1, "."),
        (&["create", "-l5", "-n3", "--member-size=9M", "no/a", "b", "c"], 1, "no/a"),
        (&["examine", "nowhere"], 1, "nowhere: No such file"),
        (&["examine", "tiny"], 1, "No md superblock detected on tiny."),
        (&["examine", "text"], 1, "No md superblock detected on text."),
        (&["detail", "text"], 3, "no md superblock"),
        (&["detail", "--test", "text"], 2, "no md superblock"),
        (&["detail", "--test", "./nowhere", "text"], 4, "nowhere"),
        (&["assemble", "text"], 3, "text: no md superblock found (looked at sectors"),
        (&["cat", "text"], 3, "no md superblock"),
        (&["serve", "text"], 3, "no md superblock"),
        (&["fail", "nobody", "x"], 1, "no running volume"),
        (&["stop", "./no.sock"], 1, "not running"),
    ];
    for (arguments, status, expected) in cases {
        let text = exits(dir.path(), *status, arguments).err;
        assert!(text.contains(expected), "{arguments:?}: expected {expected:?} in {text:?}");
        assert!(text.starts_with("weft: ") || text.contains("\nweft: "), "{text}");
    }
    let left: Vec<_> = contents(dir.path()).into_iter().map(|(path, _)| path).collect();
    assert_eq!(left, [dir.path().join("text"), dir.path().join("tiny")]);
}

#[test]
fn create_leaves_nothing_behind_when_it_fails_half_way() {
    let dir = tempdir().unwrap();
    std::fs::write(dir.path().join("a"), vec![7; 16 << 20]).unwrap();
    let before = contents(dir.path());
    // The last one fails when the first are already created.
    exits(dir.path(), 1, &create(&["a", "b", "/proc/self/c"]));
    assert_eq!(contents(dir.path()), before);
}

#[test]
fn assemble_says_why_for_every_member_and_writes_nothing() {
    let dir = tempdir().unwrap();
    exits(dir.path(), 0, &create(&["a", "b", "c"]));
    exits(dir.path(), 0, &["create", "-l5", "-n3", "--member-size=16M", "x", "y", "z"]);
    let before = contents(dir.path());
    let whole = json(dir.path(), &["assemble", "--json", "c", "a", "b"]);
    assert_eq!(whole["decision"], "serve");
    assert_eq!(whole["degraded"], 0);
    assert_eq!(whole["members"][0]["slot"], 2);
    assert_eq!(whole["members"][0]["state"], "in_sync");
    let text = exits(dir.path(), 3, &["assemble", "a", "b"]);
    assert!(text.err.contains("--run"), "{text:?}");
    let text = exits(dir.path(), 0, &["assemble", "--run", "a", "b"]).out;
    assert!(text.contains("missing") && text.contains("degraded"), "{text}");
    exits(dir.path(), 0, &["assemble", "--read-only", "a", "b"]);
    let text = exits(dir.path(), 3, &["assemble", "--run", "a", "x", "y"]).err;
    assert!(text.contains("2 arrays"), "{text}");
    let text = exits(dir.path(), 3, &["assemble", "--run", "a"]).err;
    assert!(text.contains("slot 1 missing"), "{text}");
    assert_eq!(contents(dir.path()), before);
}

#[test]
fn a_file_that_is_no_member_is_used_by_no_command() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    exits(path, 0, &create(&["a", "b", "c"]));
    std::fs::write(path.join("empty"), []).unwrap();
    std::fs::write(path.join("short"), [7; 300]).unwrap();
    std::fs::write(path.join("small"), [7; 2048]).unwrap();
    std::fs::write(path.join("junk"), vec![7; 1 << 20]).unwrap();
    let whole = weft(path, &["cat", "a", "b", "c"]).stdout;
    for (other, why) in [
        ("empty", "too small"),
        ("short", "too small"),
        ("small", "too small"),
        ("/proc/self/mem", "too small"),
        ("junk", "no md superblock"),
    ] {
        let text = exits(path, 0, &["assemble", "--run", "a", "b", other]).out;
        assert!(text.contains("not used") && text.contains(why), "{other}: {text}");
        let output = weft(path, &["cat", "a", "b", other]);
        assert!(output.status.success() && output.stdout == whole, "{other}: {output:?}");
        let exec = ["serve", "--exec=true", "a", "b", other];
        for (status, more) in [(0, "--read-only"), (0, "--run"), (3, "--buffered")] {
            let text = exits(path, status, &[&exec[..], &[more]].concat()).err;
            let said = text.lines().filter(|line| line.contains(": not used: "));
            let said: Vec<&str> = said.collect();
            assert!(
                matches!(said.as_slice(), [one] if one.contains(other) && one.contains(why)),
                "{other} {more}: {text}"
            );
        }
        exits(path, 0, &["serve", "--run", "--exec=true", "a", "b", "c"]);
        for command in [&["cat"][..], &["serve"], &["detail"], &["explain", "0", "--members"]] {
            let text = exits(path, 3, &[command, &[other]].concat()).err;
            let lines = text.lines().count();
            assert!(lines == 1 && text.contains(why), "{command:?} {other}: {text}");
        }
    }
}

#[test]
fn one_of_several_arrays_is_chosen_by_uuid_or_name_wherever_members_are_named() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    let uuid = "01234567:89abcdef:01234567:89abcdef";
    exits(path, 0, &create(&["--uuid", uuid, "a", "b", "c"]));
    exits(path, 0, &["create", "-l6", "-n4", "--member-size=16M", "-Nu", "w", "x", "y", "z"]);
    let all = ["a", "b", "c", "w", "x", "y", "z"];
    for command in [
        &["assemble"][..],
        &["cat", "--length=1"],
        &["detail"],
        &["explain", "0"],
        &["serve", "--exec=true"],
    ] {
        let members: &[&str] = if command[0] == "explain" { &["--members"] } else { &[] };
        for choice in [&["--uuid", uuid][..], &["--array", "t"], &["--array=u"]] {
            exits(path, 0, &[command, choice, members, &all].concat());
        }
        for choice in [&[][..], &["--array=v"], &["--array=u", "--uuid", uuid]] {
            exits(path, 3, &[command, choice, members, &all].concat());
        }
        exits(path, 2, &[command, &["--uuid=1"], members, &all].concat());
    }
    exits(path, 0, &[&["assemble", "--name=u"][..], &all].concat());
}

#[test]
fn detail_reads_as_mdadm_prints_it() {
    let dir = tempdir().unwrap();
    exits(dir.path(), 0, &create(&["a", "b", "c"]));
    let text = exits(dir.path(), 0, &["detail", "--test", "a", "b", "c"]).out;
    for line in [
        "        Raid Level : raid5\n",
        "             State : clean \n",
        "    Number   Major   Minor   RaidDevice State\n",
        "       1       0        0        1      active sync   b\n",
    ] {
        assert!(text.contains(line), "{line:?} in {text}");
    }
    let text = exits(dir.path(), 1, &["detail", "--test", "a", "b"]).out;
    assert!(text.contains("       -       0        0        2      removed\n"), "{text}");
    let value = json(dir.path(), &["detail", "--json", "a", "b"]);
    assert_eq!(value["degraded"], 1);
    assert_eq!(value["members"][2]["state"], "removed");
}

#[test]
fn explain_names_members_sectors_and_the_plan() {
    let dir = tempdir().unwrap();
    exits(
        dir.path(),
        0,
        &["create", "-l5", "-n5", "-c64K", "--member-size=16M", "a", "b", "c", "d", "e"],
    );
    let all = ["--json", "--members", "a", "b", "c", "d", "e"];
    let explain = |range: &[&str], members: &[&str]| {
        json(dir.path(), &[&["explain"], range, members].concat())
    };
    // md-raid.md §2.5: one block of four is read-modify-write, two are reconstruct-write.
    let one = explain(&["0"], &all);
    assert_eq!(one["pieces"][0]["slot"], 0);
    assert_eq!(one["pieces"][0]["sector"], 2048);
    let plan = |value: &serde_json::Value| value["stripes"][0]["write"]["plan"].clone();
    assert_eq!(plan(&one), "read-modify-write");
    assert_eq!(one["stripes"][0]["read"]["chunk_aligned"], true);
    let two = explain(&["0", "128K"], &all);
    assert_eq!(plan(&two), "reconstruct-write");
    assert_eq!(two["stripes"][0]["stripes"], 16);
    let full = explain(&["0", "256K"], &all);
    assert_eq!(full["stripes"][0]["write"]["reads"], serde_json::json!([]));
    assert_eq!(full["stripes"][0]["write"]["writes"], serde_json::json!([0, 1, 2, 3, 4]));
    let lost = explain(&["0"], &["--json", "--members", "b", "c", "d", "e"]);
    assert_eq!(lost["stripes"][0]["read"]["computes"], serde_json::json!([0]));
    assert_eq!(lost["pieces"][0]["member"], serde_json::Value::Null);
    let always = ["--set", "rmw_level=0", "--json", "--members", "a", "b", "c", "d", "e"];
    assert_eq!(plan(&explain(&["0"], &always)), "reconstruct-write");
    let text = exits(dir.path(), 0, &["explain", "100", "9", "--members", "a", "b", "c", "d", "e"]);
    assert!(text.out.contains("bytes 100..109"), "{}", text.out);
}

#[test]
fn a_reader_that_goes_is_no_error() {
    use std::process::Stdio;
    let dir = tempdir().unwrap();
    exits(dir.path(), 0, &create(&["a", "b", "c"]));
    for arguments in
        [&["examine", "a", "b", "c"][..], &["man"], &["completions", "zsh"], &["--help"]]
    {
        let mut child = common::command(dir.path(), arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
    }
}

#[test]
fn names_that_are_not_text_are_names() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let dir = tempdir().unwrap();
    let odd = OsStr::from_bytes(b"odd\xff\x1b[2J");
    let mut arguments: Vec<&OsStr> = create(&[]).into_iter().map(OsStr::new).collect();
    arguments.extend([odd, OsStr::new("b c")]);
    arguments.push(OsStr::new("./-dash"));
    let output = weft(dir.path(), &arguments);
    assert!(output.status.success(), "{output:?}");
    assert!(!output.stdout.contains(&0x1b), "{output:?}");
    let output = weft(dir.path(), &[OsStr::new("examine"), odd]);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_damaged_superblock_is_named_by_field_and_nothing_is_written() {
    let dir = tempdir().unwrap();
    exits(dir.path(), 0, &create(&["a", "b", "c"]));
    let path = dir.path().join("b");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4096 + 72] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let before = contents(dir.path());
    let said = exits(dir.path(), 1, &["examine", "b"]);
    assert!(said.err.contains("weft: b: superblock sb_csum at byte"), "{said:?}");
    // The superblock is shown nevertheless, as by mdadm.
    assert!(
        said.out.contains("Raid Level : raid4") && said.out.contains(" - expected "),
        "{said:?}"
    );
    let text = exits(dir.path(), 3, &["assemble", "a", "b", "c"]).out;
    assert!(text.contains("sb_csum"), "{text}");
    exits(dir.path(), 0, &["assemble", "--run", "a", "b", "c"]);
    assert_eq!(contents(dir.path()), before);
}
