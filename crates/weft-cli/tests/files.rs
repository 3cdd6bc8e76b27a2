//! `weft rescue --list` and `--to`: from the disks that are left to every file, in one command.

mod common;
#[path = "../../weft-files/tests/common/volumes.rs"]
#[allow(dead_code, reason = "each test uses a part of it")]
mod volumes;

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::disks::{Files, bytes, files, fill, image, into_raid1, lose};
use common::{contents, exits, json, weft};
use serde_json::Value;
use tempfile::{TempDir, tempdir};
use volumes::{EXTENT, FIRST, group, physical, uuid, volume};

/// Makes some files in a folder.
fn make_files(from: &Path) {
    std::fs::create_dir_all(from.join("photos/2026")).unwrap();
    for (len, number) in [10, 5000, 70_000, 2_000_000].into_iter().zip(1..) {
        std::fs::write(from.join(format!("photos/2026/{len}")), bytes(number, len)).unwrap();
    }
    std::fs::write(from.join("letter.txt"), "dear all\n").unwrap();
}

/// A RAID 5 with a volume group in it; its last member is gone.
fn raid5_with_lvm() -> Option<(TempDir, Files)> {
    let dir = tempdir().unwrap();
    let members = ["d0.img", "d1.img", "d2.img", "d3.img"];
    let create = ["create", "-l5", "-n4", "-c64K", "--member-size=16M", "--name=nas"];
    exits(dir.path(), 0, &[&create[..], &members].concat());
    let expected = image(dir.path(), 12, "family", make_files)?;
    let extents = u32::try_from((12 << 20) / EXTENT).unwrap();
    // Half of the volume lies before the other half on the device.
    let half = extents / 2;
    let linear = |first: u32| format!("stripe_count = 1\nstripes = [\"pv0\", {first}]");
    let (front, back) = (linear(half + 3), linear(1));
    let segments = [(0, half, "striped", front.as_str()), (half, half, "striped", back.as_str())];
    let thin = [(0, 1, "thin", "")];
    let text = group(3, &(volume("volume_1", &segments) + &volume("new", &thin)));
    let mut device = physical(&uuid('a'), text.as_bytes(), 512, extents as usize + 3);
    let content = std::fs::read(dir.path().join("image")).unwrap();
    let middle = half as usize * EXTENT;
    let start = |extent: usize| FIRST + extent * EXTENT;
    let (at, behind) = (start(half as usize + 3), start(1));
    device[at..at + middle].copy_from_slice(&content[..middle]);
    device[behind..behind + middle].copy_from_slice(&content[middle..]);
    fill(dir.path(), &members, &device);
    std::fs::remove_file(dir.path().join("d3.img")).unwrap();
    std::fs::remove_file(dir.path().join("image")).unwrap();
    Some((dir, expected))
}

#[test]
fn a_degraded_raid_5_with_lvm_and_ext4_becomes_files_by_one_command() {
    let Some((dir, expected)) = raid5_with_lvm() else { return };
    let before = contents(dir.path());
    let disks = ["rescue", "d0.img", "d1.img", "d2.img"];
    let listed = weft(dir.path(), &[&disks[..], &["--list", "--json"]].concat());
    assert_eq!(listed.status.code(), Some(0), "{listed:?}");
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let places = listed["places"].as_array().unwrap();
    let holds: Vec<(&str, &str)> = places
        .iter()
        .map(|place| {
            let holds = place["holds"].as_str().or(place["refused"].as_str());
            (place["name"].as_str().unwrap(), holds.unwrap())
        })
        .collect();
    assert_eq!(holds[0], ("nas", "LVM2 physical volume"));
    assert_eq!(holds[1], ("vg1000/volume_1", "ext4"));
    assert!(holds[2].0 == "vg1000/new" && holds[2].1.contains("thin"), "{holds:?}");
    assert_eq!(places[1]["label"], "family");
    assert_eq!(listed["groups"][0]["missing"][0], uuid('b'));
    let text = exits(dir.path(), 0, &[&disks[..], &["--list"]].concat()).out;
    assert!(text.contains("weft rescue d0.img d1.img d2.img --to FOLDER"), "{text}");

    let to = [&disks[..], &["--to", "out", "--only", "vg1000/volume_1"]].concat();
    let said = exits(dir.path(), 0, &to);
    assert!(said.out.contains("5 files"), "{said:?}");
    assert_eq!(files(&dir.path().join("out/vg1000-volume_1")), expected);
    let again = exits(dir.path(), 0, &to);
    assert!(again.out.contains("0 files") && again.out.contains("5 were there already"));
    // Without --only the thin volume is missing from the copy, and the status says so.
    let all = exits(dir.path(), 1, &[&disks[..], &["--to", "out"]].concat());
    assert!(all.out.contains("vg1000/new: nothing was copied: a thin volume"), "{all:?}");
    let unknown = exits(dir.path(), 2, &[&disks[..], &["--to", "out", "--only", "x"]].concat());
    assert!(unknown.err.contains("expected one of nas, vg1000/volume_1"), "{unknown:?}");
    assert!(contents(dir.path()) == before, "no disk has changed");
}

/// A RAID 1 with ext4 in it; one of its members is gone.
fn half_of_raid1() -> Option<(TempDir, Files)> {
    let dir = tempdir().unwrap();
    let expected = image(dir.path(), 12, "family", make_files)?;
    into_raid1(dir.path());
    Some((dir, expected))
}

#[test]
fn half_of_a_raid_1_becomes_files_by_one_command() {
    let Some((dir, expected)) = half_of_raid1() else { return };
    let before = contents(dir.path());
    exits(dir.path(), 0, &["rescue", "a.img", "--to", "out"]);
    assert_eq!(files(&dir.path().join("out/nas")), expected);
    assert!(contents(dir.path()) == before, "no disk has changed");
}

#[test]
fn bytes_that_no_member_has_are_named_with_their_file() {
    let Some((dir, expected)) = half_of_raid1() else { return };
    let path = dir.path().join("a.img");
    let disk = std::fs::read(&path).unwrap();
    let (_, large) = expected.iter().find(|(name, _)| name.ends_with("2000000")).unwrap();
    let start = disk.windows(4096).position(|part| part == &large[..4096]).unwrap() + 8192;
    lose(&path, vec![start]);
    let output = weft(dir.path(), &["rescue", "a.img", "--to", "out", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    let copied = &said["places"][0]["copied"];
    assert_eq!(copied["damaged"].as_array().unwrap().len(), 1, "{copied}");
    let damaged = &copied["damaged"][0];
    assert_eq!(damaged["path"], "photos/2026/2000000");
    assert_eq!(
        (&damaged["ranges"][0]["start"], &copied["bytes_lost"]),
        (&8192.into(), &4096.into())
    );
    let found = files(&dir.path().join("out/nas"));
    for ((name, found), (_, expected)) in found.iter().zip(&expected) {
        let mut expected = expected.clone();
        if name.ends_with("2000000") {
            expected[8192..8192 + 4096].fill(0);
        }
        assert!(*found == expected, "{}", name.display());
    }
    let quiet = json(dir.path(), &["rescue", "a.img", "--list", "--json"]);
    assert_eq!(quiet["places"][0]["copied"], Value::Null);
}

/// Names that a terminal would obey, that look like others, or that are no text.
const ODD: [&[u8]; 5] = [
    b"clears\x1b[2Jthe screen",
    b"c1 \xc2\x9b31m red",
    "turns \u{202e}txt.exe".as_bytes(),
    b"two\nlines",
    b"no text \xff\xfe",
];

fn make_odd_files(from: &Path) {
    std::fs::create_dir_all(from.join("many")).unwrap();
    let odd = ODD.map(|name| PathBuf::from(std::ffi::OsStr::from_bytes(name)));
    let many = (0..25).map(|number| PathBuf::from(format!("many/{number}")));
    for (name, number) in odd.into_iter().chain(many).zip(1..) {
        // Each file has content of its own, so that its first bytes can be found on the disk.
        let mut content = bytes(number, 9000);
        content[..8].copy_from_slice(&(number as u64).to_le_bytes());
        std::fs::write(from.join(name), content).unwrap();
    }
}

/// Whether a text may go to a terminal: lines of letters.
fn is_plain(text: &str) -> bool {
    !text
        .contains(|c: char| (c.is_control() && c != '\n') || ('\u{202a}'..='\u{202e}').contains(&c))
}

#[test]
fn every_damaged_file_is_in_a_file_and_no_name_controls_the_terminal() {
    let dir = tempdir().unwrap();
    let Some(expected) = image(dir.path(), 12, "fam\u{202e}ily", make_odd_files) else { return };
    into_raid1(dir.path());
    let path = dir.path().join("a.img");
    let disk = std::fs::read(&path).unwrap();
    let place = |content: &[u8]| {
        (0..disk.len()).step_by(1024).find(|at| disk[*at..].starts_with(&content[..4096])).unwrap()
    };
    let places: Vec<usize> = expected.iter().map(|(_, content)| place(content)).collect();
    lose(&path, places.iter().map(|place| place + 4096).collect());
    // The block of the array with the lost sector, in the file.
    let lost = |place: usize| {
        let start = (place + 4096) / 4096 * 4096 - place;
        start..start + 4096
    };

    let said = exits(dir.path(), 1, &["rescue", "a.img", "--to", "out"]);
    assert!(is_plain(&said.out) && is_plain(&said.err), "{said:?}");
    assert!(said.out.contains("label fam\\u{202e}ily"), "{said:?}");
    assert!(said.out.contains("and 10 more\n"), "{said:?}");
    let list = "out/weft-rescue-1.jsonl";
    assert!(said.out.contains(&format!("{list} lists each of these paths")), "{said:?}");
    let verdict = format!(
        "not everything was copied as it was: 30 files with zeros for what cannot be read; {list} \
         lists all of it"
    );
    assert!(said.err.contains(&verdict), "{said:?}");
    // Names have the same bytes as on the disk, and files have all of their content except the lost
    // bytes.
    let found = files(&dir.path().join("out/nas"));
    assert_eq!(found.len(), 30);
    for (((name, found), (its, expected)), place) in found.iter().zip(&expected).zip(&places) {
        assert_eq!(name, its);
        let mut expected = expected.clone();
        expected[lost(*place)].fill(0);
        assert!(*found == expected, "{}", name.display());
    }
    // The list has every file with its bytes, and an end.
    let text = std::fs::read_to_string(dir.path().join(list)).unwrap();
    assert!(is_plain(&text));
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let damaged: Vec<&Value> = lines.iter().filter(|line| line["what"] == "damaged").collect();
    let bytes_of = |line: &Value| match line["path_bytes"].as_str() {
        Some(hex) => (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect(),
        None => line["path"].as_str().unwrap().as_bytes().to_vec(),
    };
    assert_eq!(damaged.len(), 30);
    for line in &damaged {
        let name = bytes_of(line);
        let at = expected.iter().position(|(its, _)| its.as_os_str().as_bytes() == name);
        let lost = lost(places[at.expect("a file of the image")]);
        assert_eq!(line["ranges"].as_array().unwrap().len(), 1, "{line}");
        assert_eq!(
            (&line["ranges"][0]["start"], &line["ranges"][0]["end"]),
            (&lost.start.into(), &lost.end.into())
        );
        assert_eq!(line["place"], "nas");
    }
    let names: std::collections::BTreeSet<Vec<u8>> =
        damaged.iter().map(|line| bytes_of(line)).collect();
    assert_eq!(names.len(), 30, "each once");
    let end = lines.last().unwrap();
    assert_eq!((&end["what"], &end["journal_replayed"]), (&"end".into(), &true.into()));

    // A second run does not overwrite the list of the first one.
    let again = weft(dir.path(), &["rescue", "a.img", "--to", "out", "--json"]);
    assert_eq!(again.status.code(), Some(1));
    let out = String::from_utf8(again.stdout).unwrap();
    assert!(is_plain(&out));
    let said: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(said["places"][0]["copied"]["kept"].as_array().unwrap().len(), 30);
    assert_eq!(
        (&said["complete"], &said["findings_file"]),
        (&false.into(), &"out/weft-rescue-2.jsonl".into())
    );
    assert!(said["verdict"].as_str().unwrap().contains("30 paths left as they were"));
    assert_eq!(std::fs::read_to_string(dir.path().join(list)).unwrap(), text);
}

#[test]
fn a_journal_that_is_damaged_makes_the_copy_incomplete() {
    let dir = tempdir().unwrap();
    let Some(expected) = image(dir.path(), 12, "family", make_files) else { return };
    let at = dir.path().join("image");
    let new: Vec<u8> = bytes(99, 4096).iter().map(|byte| byte ^ 0x55).collect();
    std::fs::write(dir.path().join("new"), &new).unwrap();
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap());
    let script = format!("jo -c -v 3\njw -b 2900 {}\njc\n", dir.path().join("new").display());
    std::fs::write(dir.path().join("script"), script).unwrap();
    let mut debugfs = Command::new("debugfs");
    debugfs.arg("-w").arg("-f").arg(dir.path().join("script")).arg(&at).env("PATH", path);
    match debugfs.output() {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(error) => return weft_testing::skip(&format!("debugfs: {error}")),
    }
    let mut disk = std::fs::read(&at).unwrap();
    // Blocks of so small a file system have 1 KiB.
    let logged = disk.windows(1024).position(|part| part == &new[..1024]).unwrap();
    disk[logged + 100] ^= 1;
    std::fs::write(&at, disk).unwrap();
    into_raid1(dir.path());
    let said = exits(dir.path(), 1, &["rescue", "a.img", "--to", "out"]);
    let verdict = "not everything was copied as it was: the journal of nas is not replayed in full";
    assert!(said.err.contains(verdict), "{said:?}");
    assert_eq!(files(&dir.path().join("out/nas")), expected);
    let again = weft(dir.path(), &["rescue", "a.img", "--to", "out", "--json"]);
    let said: Value = serde_json::from_slice(&again.stdout).unwrap();
    let copied = &said["places"][0]["copied"];
    assert_eq!(again.status.code(), Some(1));
    assert_eq!(copied["journal_replayed"], false);
    assert_eq!((&copied["complete"], &said["complete"]), (&false.into(), &false.into()));
    assert_eq!(copied["skipped"], 5);
}
