//! `weft rescue --list` and `--to`: from the disks that are left to every file, in one command.

mod common;
#[path = "../../weft-files/tests/common/volumes.rs"]
#[allow(dead_code, reason = "each test uses a part of it")]
mod volumes;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::client::Client;
use common::{Served, contents, exits, json, weft};
use serde_json::Value;
use tempfile::{TempDir, tempdir};
use volumes::{EXTENT, FIRST, group, physical, uuid, volume};
use weft_nbd::Op;

/// Paths below a folder, with contents.
type Files = Vec<(PathBuf, Vec<u8>)>;

/// Bytes that do not repeat soon.
fn bytes(seed: usize, len: usize) -> Vec<u8> {
    let byte = |at: usize| (at * 31 + at / 251 * 7 + at / 65_536 * seed) % 255 + 1;
    (0..len).map(|at| u8::try_from(byte(at)).unwrap()).collect()
}

/// Files below a folder, with their contents.
fn files(at: &Path) -> Files {
    let (mut all, mut waiting) = (Vec::new(), vec![at.to_owned()]);
    while let Some(folder) = waiting.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true if path.ends_with("lost+found") => {}
                true => waiting.push(path),
                false => {
                    let name = path.strip_prefix(at).unwrap().to_owned();
                    all.push((name, std::fs::read(&path).unwrap()));
                }
            }
        }
    }
    all.sort();
    all
}

/// An ext4 image of `mib` MiB with some files, and these files. `None` for a skip.
fn image(dir: &Path, mib: u64) -> Option<Files> {
    let from = dir.join("from");
    std::fs::create_dir_all(from.join("photos/2026")).unwrap();
    for (len, number) in [10, 5000, 70_000, 2_000_000].into_iter().zip(1..) {
        std::fs::write(from.join(format!("photos/2026/{len}")), bytes(number, len)).unwrap();
    }
    std::fs::write(from.join("letter.txt"), "dear all\n").unwrap();
    let at = dir.join("image");
    std::fs::File::create(&at).unwrap().set_len(mib << 20).unwrap();
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap());
    let mut command = Command::new("mke2fs");
    command.args(["-q", "-F", "-t", "ext4", "-L", "family", "-d"]).args([&from, &at]);
    match command.env("PATH", path).status() {
        Ok(status) => assert!(status.success()),
        Err(error) => {
            weft_testing::skip(&format!("mke2fs: {error}"));
            return None;
        }
    }
    Some(files(&from))
}

/// Writes the content of the array of these members.
fn fill(dir: &Path, members: &[&str], content: &[u8]) {
    let server = Served::start(dir, members);
    let mut client = Client::connect(&server.uri);
    for (part, number) in content.chunks(1 << 20).zip(0_u64..) {
        let len = u32::try_from(part.len()).unwrap();
        client.request(Op::Write { offset: number << 20, len, fua: false }, part).unwrap();
    }
    drop(client);
    rustix::process::kill_process(server.pid(), rustix::process::Signal::TERM).unwrap();
    assert_eq!(server.wait(), Some(0));
}

/// A RAID 5 with a volume group in it, of which the last member is gone.
fn raid5_with_lvm() -> Option<(TempDir, Files)> {
    let dir = tempdir().unwrap();
    let members = ["d0.img", "d1.img", "d2.img", "d3.img"];
    let create = ["create", "-l5", "-n4", "-c64K", "--member-size=16M", "--name=nas"];
    exits(dir.path(), 0, &[&create[..], &members].concat());
    let expected = image(dir.path(), 12)?;
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

/// A RAID 1 with ext4 in it, of which one half is left.
fn half_of_raid1() -> Option<(TempDir, Files)> {
    let dir = tempdir().unwrap();
    let expected = image(dir.path(), 12)?;
    let half = std::fs::read(dir.path().join("image")).unwrap();
    for name in ["a.img", "b.img"] {
        std::fs::write(dir.path().join(name), &half).unwrap();
        let file = std::fs::File::options().write(true).open(dir.path().join(name)).unwrap();
        file.set_len(14 << 20).unwrap();
    }
    let create = ["create", "-l1", "-n2", "-e1.0", "--assume-clean", "--force", "--name=nas"];
    exits(dir.path(), 0, &[&create[..], &["a.img", "b.img"]].concat());
    for name in ["b.img", "image"] {
        std::fs::remove_file(dir.path().join(name)).unwrap();
    }
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
    let mut disk = std::fs::read(&path).unwrap();
    let (_, large) = expected.iter().find(|(name, _)| name.ends_with("2000000")).unwrap();
    let start = disk.windows(4096).position(|part| part == &large[..4096]).unwrap() + 8192;
    disk[start..start + 512].fill(0);
    std::fs::write(&path, &disk).unwrap();
    let map = format!(
        "# Mapfile. Created by GNU ddrescue version 1.27\n0x0 + 1\n0x0 {start:#x} +\n{start:#x} \
         0x200 -\n{:#x} {:#x} +\n",
        start + 512,
        disk.len() - start - 512
    );
    std::fs::write(dir.path().join("a.img.map"), map).unwrap();
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
