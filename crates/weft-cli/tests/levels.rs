//! Tests of every level in the commands: arrays made by `create` are read, examined, explained and
//! found by the other commands.

#![allow(clippy::cast_possible_truncation, reason = "pieces of a MiB")]

mod common;

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use common::client::Client;
use common::{Served, bytes_of, contents, exits, json, weft};
use tempfile::tempdir;
use weft_ondisk::{Level, Minor, Super1};
use weft_units::Sectors;

/// A level with its options, and members of these sizes in MiB.
struct Case {
    options: &'static [&'static str],
    mib: &'static [u64],
    level: Level,
    layout: u32,
    chunk_kib: u64,
    /// Size of the array in KiB, at metadata 1.2.
    kib: u64,
}

const fn case(
    level: Level,
    layout: u32,
    options: &'static [&'static str],
    mib: &'static [u64],
    chunk_kib: u64,
    kib: u64,
) -> Case {
    Case { options, mib, level, layout, chunk_kib, kib }
}

/// Data begins at 1 MiB with chunks of 64 KiB and without chunks, at 2 MiB with chunks of 512 KiB.
const CASES: [Case; 13] = [
    case(Level::Linear, 0, &["-llinear"], &[4, 8], 0, 10 << 10),
    case(Level::Raid0, 1, &["-l0"], &[8, 8], 512, 12 << 10),
    case(Level::Raid0, 1, &["-l0", "-c64K"], &[4, 8, 6], 64, 15 << 10),
    case(Level::Raid0, 2, &["-lraid0", "-c12K", "-palternate"], &[4, 8, 6], 12, 0),
    case(Level::Raid1, 0, &["-l1"], &[8, 9], 0, 7 << 10),
    case(Level::Raid1, 0, &["-lmirror", "-z3M"], &[8, 9, 5], 0, 3 << 10),
    case(Level::Raid10, 0x102, &["-l10", "-c64K"], &[8, 8, 8, 8], 64, 14 << 10),
    case(Level::Raid10, 0x201, &["-l10", "-c64K", "-pf2"], &[8, 8, 8], 64, 0),
    case(Level::Raid10, 0x1_0201, &["-l10", "-c64K", "-poffset=2"], &[8, 8, 8, 8], 64, 14 << 10),
    case(Level::Raid10, 0x103, &["-l10", "-c64K", "--layout=n3"], &[8, 8, 8, 8, 8], 64, 0),
    case(Level::Raid4, 0, &["-l4", "-c64K"], &[8, 8, 8], 64, 14 << 10),
    case(Level::Raid5, 2, &["-l5", "-c64K"], &[8, 8, 8], 64, 14 << 10),
    case(Level::Raid6, 2, &["-l6", "-c64K"], &[8, 8, 8, 8], 64, 14 << 10),
];

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Levels of which these cases have no array.
fn without_case(cases: &[Case]) -> Vec<Level> {
    Level::all().filter(|level| cases.iter().all(|case| case.level != *level)).collect()
}

#[test]
fn every_level_has_a_case() {
    assert_eq!(without_case(&CASES), []);
    assert_eq!(without_case(&CASES[1..]), [Level::Linear]);
}

/// Creates files of these sizes that consist of holes.
fn files(dir: &Path, mib: &[u64]) -> Vec<&'static str> {
    for (name, mib) in NAMES.iter().zip(mib) {
        File::create(dir.join(name)).unwrap().set_len(mib << 20).unwrap();
    }
    NAMES[..mib.len()].to_vec()
}

fn superblock(path: &Path, minor: Minor) -> Super1 {
    let image = std::fs::read(path).unwrap();
    let size = Sectors(image.len() as u64 / 512);
    let at = usize::try_from(minor.position(size).unwrap().bytes().0).unwrap();
    Super1::parse(&image[at..at + 4096], minor, size).unwrap()
}

#[test]
fn arrays_of_every_level_and_version_are_made_and_read() {
    let mut read = 0;
    for (version, minor) in [("1.0", Minor::V1_0), ("1.1", Minor::V1_1), ("1.2", Minor::V1_2)] {
        for case in &CASES {
            let dir = tempdir().unwrap();
            let members = files(dir.path(), case.mib);
            let count = format!("-n{}", members.len());
            let what = format!("{version} {:?}", case.options);
            let create = [&["create", "--json", "-e", version, &count], case.options].concat();
            let made = json(dir.path(), &[&create[..], &members].concat());
            assert_eq!(made["initial_sync"], "none", "{what}");
            assert_eq!(made["level"], case.level.name(), "{what}");
            for name in &members {
                let superblock = superblock(&dir.path().join(name), minor);
                assert_eq!((superblock.level, superblock.layout), (case.level, case.layout));
                assert_eq!(superblock.chunk.bytes().0, case.chunk_kib << 10, "{what}");
            }
            if version == "1.2" && case.kib > 0 {
                assert_eq!(made["array_bytes"], case.kib << 10, "{what}");
            }
            let before = contents(dir.path());
            let bytes = exits(dir.path(), 0, &[&["cat"], &members[..]].concat()).out;
            assert_eq!(made["array_bytes"], bytes.len(), "{what}");
            assert!(bytes.bytes().all(|byte| byte == 0), "{what}");
            for command in
                [&["assemble", "--read-only"][..], &["examine"], &["detail"], &["rescue"]]
            {
                let line = [command, &members[..]].concat();
                let text = exits(dir.path(), 0, &line).out;
                assert!(text.contains(case.level.name()), "{what}: {text}");
            }
            assert_eq!(contents(dir.path()), before, "{what}");
            read += 1;
        }
    }
    assert_eq!(read, 3 * CASES.len());
}

/// Pattern in which each word encodes its byte address in the array.
fn pattern(range: Range<u64>) -> Vec<u8> {
    bytes_of(range.step_by(8).map(|at| at ^ 0x5a5a_0000_0000))
}

/// Writes the pattern at every copy that `explain` reports. Returns the number of bytes written.
fn write_where_explained(dir: &Path, members: &[&str], size: u64) -> u64 {
    let (mut at, mut written) = (0, 0);
    while at < size {
        let (offset, length) = (at.to_string(), (size - at).to_string());
        let all = [&["explain", "--json", &offset, &length, "--members"], members].concat();
        let explained = json(dir, &all);
        for piece in explained["pieces"].as_array().unwrap() {
            let number = |name: &str| piece[name].as_u64().unwrap();
            let bytes = pattern(number("offset")..number("offset") + number("length"));
            let path = dir.join(piece["member"].as_str().unwrap());
            let member = File::options().write(true).open(path).unwrap();
            member.write_all_at(&bytes, number("sector") * 512).unwrap();
            written += number("length");
        }
        at = size - explained["left_out_bytes"].as_u64().unwrap();
    }
    written
}

#[test]
fn every_copy_lies_where_explain_says() {
    for case in CASES.iter().filter(|case| !case.level.has_parity()) {
        let dir = tempdir().unwrap();
        let members = files(dir.path(), case.mib);
        let count = format!("-n{}", members.len());
        let create = [&["create", "--json", &count], case.options, &members].concat();
        let size = json(dir.path(), &create)["array_bytes"].as_u64().unwrap();
        let written = write_where_explained(dir.path(), &members, size);
        let whole = weft(dir.path(), &[&["cat"], &members[..]].concat());
        let what = format!("{:?}", case.options);
        assert!(whole.stdout == pattern(0..size), "{what}");
        let mirrors = matches!(case.level, Level::Raid1 | Level::Raid10);
        let copies = written / size;
        assert_eq!((written % size, copies > 1), (0, mirrors), "{what}: {copies} copies");
        // The other copies are equal.
        for gone in members.iter().filter(|_| mirrors) {
            let rest: Vec<&str> = members.iter().copied().filter(|it| it != gone).collect();
            let read = weft(dir.path(), &[&["cat"], &rest[..]].concat());
            assert!(read.stdout == whole.stdout, "{what} without {gone}");
        }
    }
}

#[test]
fn explain_says_which_copy_is_read_and_which_are_written() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    let explain = |members: &[&str]| {
        let line = [&["explain", "--json", "1M", "8K", "--members"], members].concat();
        let explained = json(path, &line);
        let part = &explained["parts"][0];
        let slots = |value: &serde_json::Value| value.as_array().unwrap().len();
        let why = part["read"]["why"].as_str().unwrap().to_owned();
        (slots(&part["read"]["one_of"]), slots(&part["write"]["writes"]), why)
    };
    let members = files(path, &[8, 8, 8]);
    exits(path, 0, &[&["create", "-l1", "-n3"], &members[..]].concat());
    let (reads, writes, why) = explain(&members);
    assert_eq!((reads, writes), (3, 3), "{why}");
    let (reads, writes, why) = explain(&["b", "c"]);
    assert_eq!((reads, writes), (2, 2), "{why}");
    let text = exits(path, 0, &["explain", "4K", "--members", "b", "c"]).out;
    assert!(text.contains("copy 1 of 3: slot 0 (missing)"), "{text}");
    assert!(text.contains("not slot 0 (missing)"), "{text}");
    assert_eq!(explain(&["b"]), (1, 1, "the only copy that is here".into()));

    // Members with old contents may differ: one copy is read until a resync has passed.
    for name in &members {
        std::fs::write(path.join(name), vec![7; 8 << 20]).unwrap();
    }
    let created = exits(path, 0, &[&["create", "-l1", "-n3"], &members[..]].concat()).out;
    assert!(created.contains("initial sync: resync; serve makes the copies equal"), "{created}");
    let (reads, writes, why) = explain(&members);
    assert_eq!((reads, writes), (1, 3));
    assert!(why.contains("resync has not been here"), "{why}");

    let mostly = ["create", "-l1", "-n3", "--force", "--assume-clean", "a", "-W", "b", "c"];
    let created = exits(path, 0, &mostly).out;
    assert!(created.contains("slot 2   c (write-mostly)"), "{created}");
    assert!(exits(path, 0, &["examine", "c"]).out.contains("Flags : write-mostly"));
    let detail = exits(path, 0, &["detail", "a", "b", "c"]).out;
    assert_eq!(detail.matches("active sync writemostly   ").count(), 2, "{detail}");
    assert_eq!(explain(&members), (1, 3, "the others are write-mostly".into()));
    assert_eq!(explain(&["b", "c"]).0, 1, "the first, as there is no other");

    let members = files(path, &[8, 4, 8]);
    exits(path, 0, &[&["create", "-l0", "-n3", "-c64K", "--force"], &members[..]].concat());
    let text = exits(path, 0, &["explain", "10M", "--members", "a", "b", "c"]).out;
    assert!(text.contains("zone 1 (slots 0, 2)"), "{text}");
    assert_eq!(explain(&members), (1, 1, "the level keeps one copy".into()));
}

#[test]
fn what_a_level_cannot_have_is_said() {
    let dir = tempdir().unwrap();
    files(dir.path(), &[8; 5]);
    let cases: &[(&[&str], &str)] = &[
        (&["-l1", "-n1", "a"], "--force makes an array of one member"),
        (&["-l1", "-n2", "-c64K", "a", "b"], "--chunk: found 64 KiB, expected none"),
        (&["-llinear", "-n2", "-c64K", "a", "b"], "--chunk: found 64 KiB, expected none"),
        (&["-l0", "-n2", "-c6K", "a", "b"], "--chunk: found 6 KiB, expected a multiple of 4 KiB"),
        (&["-l10", "-n2", "-c12K", "a", "b"], "--chunk: found 12 KiB, expected a power of two"),
        (&["-l1", "-n2", "-pn2", "a", "b"], "--layout: raid1 has none"),
        (&["-l0", "-n2", "-pleft-symmetric", "a", "b"], "expected original or alternate for raid0"),
        (&["-l0", "-n2", "-pdangerous", "a", "b"], "expected original or alternate for raid0"),
        (&["-l10", "-n2", "-pls", "a", "b"], "--layout: found ls, expected nX, fX or oX"),
        (&["-l10", "-n2", "-pn3", "a", "b"], "found near=3, expected 2 or more copies of a chunk"),
        (&["-l10", "-n2", "-pf1", "a", "b"], "expected 2 or more copies of a chunk"),
        (&["-l5", "-n3", "-pn2", "a", "b", "c"], "--layout: found n2"),
        (&["-l0", "-n2", "-z4M", "a", "b"], "size: found 8192 sectors, expected none"),
        (&["-llinear", "-n2", "-z4M", "a", "b"], "size: found 8192 sectors, expected none"),
        (&["-l0", "-n2", "-x1", "a", "b", "c"], "spares: found 1, expected 0 for raid0"),
        (&["-llinear", "-n2", "a", "missing"], "missing members: found 1, expected at most 0"),
        (&["-l10", "-n4", "missing", "missing", "c", "d"], "at most 1 for raid10 that hold the"),
        (&["-l1", "-n2", "missing", "missing"], "missing"),
        (&["-l10", "-n2", "a", "-W", "b"], "--write-mostly: found raid10, expected raid1"),
        (&["-l1", "-n2", "a", "b", "--write-behind"], "--write-behind: weft answers a write when"),
        (&["-l1", "-n65", "a"], "expected 65"),
    ];
    let before = contents(dir.path());
    for (arguments, words) in cases {
        let text = exits(dir.path(), 2, &[&["create"], *arguments].concat()).err;
        assert!(text.contains(words), "{arguments:?}: {text}");
    }
    assert_eq!(contents(dir.path()), before);
}

#[test]
fn slots_of_mirrors_may_be_missing_where_the_chunk_is_elsewhere() {
    for (options, members, missing, sync) in [
        (&["-l1", "-n2"][..], &["a", "missing"][..], 1, "none"),
        (&["-l1", "-n3"], &["a", "missing", "b"], 1, "resync"),
        (&["-l10", "-n4"], &["missing", "a", "b", "missing"], 2, "none"),
        (&["-l10", "-n4"], &["missing", "a", "b", "c"], 1, "resync"),
        (&["-l1", "-n2", "-x1"], &["a", "missing", "b"], 1, "recovery"),
    ] {
        let dir = tempdir().unwrap();
        for name in ["a", "b", "c"] {
            std::fs::write(dir.path().join(name), vec![7; 8 << 20]).unwrap();
        }
        let made = json(dir.path(), &[&["create", "--json"], options, members].concat());
        let what = format!("{options:?} {members:?}: {made}");
        assert_eq!(made["initial_sync"], sync, "{what}");
        assert_eq!(made["missing_slots"].as_array().unwrap().len(), missing, "{what}");
        let here: Vec<&str> = members.iter().copied().filter(|it| *it != "missing").collect();
        let read = weft(dir.path(), &[&["cat"], &here[..]].concat());
        assert!(read.status.success() && !read.stdout.is_empty(), "{what}");
    }
}

#[test]
fn what_clients_write_is_on_every_copy_and_a_mirror_goes_on_without_a_member() {
    for case in CASES.iter().filter(|case| !case.level.has_parity()) {
        let dir = tempdir().unwrap();
        let path = dir.path();
        let members = files(path, case.mib);
        let count = format!("-n{}", members.len());
        exits(path, 0, &[&["create", &count], case.options, &members].concat());
        let mirrors = matches!(case.level, Level::Raid1 | Level::Raid10);
        let what = format!("{:?}", case.options);

        let served = Served::start(path, &[&["--name=vol"], &members[..]].concat());
        let mut client = Client::connect(&served.uri);
        let size = client.size();
        // Writes within a sector, across chunks, across zones and members, and at both ends.
        let places = [
            (0, 4096),
            (63 << 10, 2048),
            (1 << 20, 300 << 10),
            (size - 70_144, 70_144),
            (size / 2, 512),
        ];
        let mut expected = vec![0; usize::try_from(size).unwrap()];
        let mut write = |client: &mut Client, (at, len): (u64, u64)| {
            let bytes = pattern(at..at + len);
            client.write(at, &bytes);
            let at = usize::try_from(at).unwrap();
            expected[at..at + bytes.len()].copy_from_slice(&bytes);
        };
        for place in places {
            write(&mut client, place);
        }
        let status = exits(path, 0, &["status", "vol"]).out;
        assert!(status.contains(&format!("vol : active {} ", case.level)), "{what}: {status}");
        let detail = exits(path, 0, &["detail", "vol"]).out;
        assert_eq!(detail.matches("active sync").count(), members.len(), "{what}: {detail}");
        let explained = exits(path, 0, &["explain", "vol", "1M", "8K"]).out;
        let offline = [&["explain", "1M", "8K", "--members"], &members[..]].concat();
        let places = |text: &str| -> Vec<String> {
            text.lines().filter(|line| line.contains("sectors")).map(str::to_owned).collect()
        };
        assert_eq!(places(&explained), places(&exits(path, 0, &offline).out), "{what}");

        // After the loss of one member the array fails, or continues without any loss of data.
        let gone = members[1];
        if mirrors {
            exits(path, 0, &["fail", "vol", gone]);
            write(&mut client, (2 << 20, 100 << 10));
            exits(path, 4, &["status", "vol"]);
        } else {
            let text = exits(path, 3, &["fail", "vol", gone]).err;
            assert!(text.starts_with("weft: vol: "), "{what}: {text}");
        }
        for (piece, at) in expected.chunks(1 << 20).zip((0..).step_by(1 << 20)) {
            assert!(client.read(at, piece.len() as u32) == piece, "{what}: read at {at}");
        }
        exits(path, 0, &["stop", "vol"]);
        drop(client);
        assert_eq!(served.wait(), Some(0), "{what}");

        let here: Vec<&str> =
            members.iter().copied().filter(|it| !mirrors || *it != gone).collect();
        let read = weft(path, &[&["cat"], &here[..]].concat());
        assert!(read.stdout == expected, "{what}: {:?}", read.status);
        // It also continues without a second one, unless that holds the last copy of a chunk.
        let mut tried = 0;
        for other in here.iter().filter(|_| mirrors) {
            let rest: Vec<&str> = here.iter().copied().filter(|it| it != other).collect();
            if rest.is_empty() {
                continue;
            }
            let read = weft(path, &[&["cat"], &rest[..]].concat());
            assert!(!read.status.success() || read.stdout == expected, "{what} without {other}");
            tried += usize::from(read.status.success());
        }
        assert!(!mirrors || case.mib.len() < 4 || tried > 0, "{what}: {tried}");
    }
}
