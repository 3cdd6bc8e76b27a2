//! `weft rescue` on disks of a NAS: arrays of its system beside the one with data.

mod common;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use common::disks::{Files, files, fill, image};
use common::{Text, contents, exits, json, table};
use serde_json::Value;
use tempfile::{TempDir, tempdir};

/// Disks of three partitions each, as a NAS makes them: RAID 1 of the first ones with the system,
/// RAID 1 of the second ones with swap, RAID 5 of the third ones with data.
/// Returns the files of the data; `None` for a skip.
fn nas() -> Option<(TempDir, Files)> {
    let dir = tempdir().unwrap();
    let path = dir.path();
    for disk in DISKS {
        File::create(path.join(disk)).unwrap().set_len(64 << 20).unwrap();
        let parts = [(2048, 18_431), (18_432, 34_815), (34_816, 126_975)];
        table::gpt(&path.join(disk), &parts);
    }
    let members = |part: u32| DISKS.map(|disk| format!("{disk}#{part}"));
    for (part, level, version, name) in [
        (1, "-l1", "-e1.0", "--name=9"),
        (2, "-l1", "-e1.0", "--name=256"),
        (3, "-l5", "-e1.2", "--name=volume"),
    ] {
        let members = members(part);
        let options = ["create", level, "-n3", version, name, "--assume-clean"];
        exits(path, 0, &[&options[..], &members.each_ref().map(|it| &**it)].concat());
    }
    let content = |part: u32, bytes: Vec<u8>| {
        let members = members(part);
        fill(path, &members.each_ref().map(|it| &**it), &bytes);
    };
    let image = |mib, label, make: fn(&Path)| {
        let files = image(path, mib, label, make)?;
        let bytes = std::fs::read(path.join("image")).unwrap();
        for rest in ["image", "from"].map(|it| path.join(it)) {
            if rest.is_dir() { std::fs::remove_dir_all(rest) } else { std::fs::remove_file(rest) }
                .unwrap();
        }
        Some((files, bytes))
    };
    let (_, system) = image(7, "1.42.6-5", |from| {
        std::fs::create_dir_all(from.join("etc")).unwrap();
        std::fs::write(from.join("etc/passwd"), "root\n").unwrap();
    })?;
    content(1, system);
    let swap = path.join("swap");
    File::create(&swap).unwrap().set_len(7 << 20).unwrap();
    let search = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap());
    let made = Command::new("mkswap").arg(&swap).env("PATH", search).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    content(2, std::fs::read(&swap).unwrap());
    std::fs::remove_file(swap).unwrap();
    let (expected, data) = image(40, "family", |from| {
        std::fs::create_dir_all(from.join("photos")).unwrap();
        std::fs::write(from.join("photos/one"), vec![7; 300_000]).unwrap();
    })?;
    content(3, data);
    Some((dir, expected))
}

#[test]
fn the_system_of_a_nas_is_one_line_and_left_out_unless_it_is_asked_for() {
    let Some((dir, expected)) = nas() else { return };
    let path = dir.path();
    // One disk is gone.
    std::fs::remove_file(path.join(DISKS[2])).unwrap();
    let before = contents(path);
    let disks = ["rescue", DISKS[0], DISKS[1]];
    let ask = |more: &[&str]| exits(path, 0, &[&disks[..], more].concat());
    let Text { out, .. } = ask(&["--list"]);
    println!("{out}");
    let rows: Vec<&str> = out.lines().collect();
    assert!(rows[0].starts_with("volume  ext4  ") && rows[0].contains("label family"), "{out}");
    assert!(rows[1].starts_with("left out, the system of a NAS: 9 (ext4, "), "{out}");
    assert!(rows[1].contains("), 256 (swap, ") && rows[1].ends_with("; --all for these too"));
    assert!(rows[2].starts_with("next: weft rescue ") && rows.len() == 3, "{out}");
    let Text { out, .. } = ask(&["--list", "--all"]);
    assert!(!out.contains("left out") && out.lines().count() == 4, "{out}");
    let places = json(path, &[&disks[..], &["--list", "--json"]].concat());
    let is_system = |place: &Value| place["is_system"].as_bool().unwrap();
    let places: Vec<bool> = places["places"].as_array().unwrap().iter().map(is_system).collect();
    assert_eq!(places, [true, true, false]);

    let Text { out, .. } = ask(&["--to", "files"]);
    assert!(out.contains("left out, the system of a NAS: "), "{out}");
    assert_eq!(files(&path.join("files/volume")), expected);
    let folders = std::fs::read_dir(path.join("files")).unwrap();
    assert_eq!(folders.filter(|it| it.as_ref().unwrap().path().is_dir()).count(), 1);
    ask(&["--to", "all", "--all"]);
    let found = files(&path.join("all"));
    assert!(found.iter().any(|(name, _)| name.ends_with("etc/passwd")), "{found:?}");

    for folder in ["files", "all"] {
        std::fs::remove_dir_all(path.join(folder)).unwrap();
    }
    assert_eq!(contents(path), before, "a disk has changed");
}

#[test]
fn arrays_like_those_of_a_system_are_shown_if_the_data_cannot_be_read() {
    let Some((dir, _)) = nas() else { return };
    let Text { out, err } = exits(dir.path(), 0, &["rescue", DISKS[0], "--list"]);
    assert!(
        !out.contains("left out") && out.contains("  ext4  ") && out.contains("  swap  "),
        "{out}"
    );
    assert!(
        err.contains(":volume (") && err.contains("raid5, 86 MiB, 1 of 3 members found"),
        "{err}"
    );
}

#[test]
fn without_partition_tables_the_search_of_every_sector_is_offered_and_finds_the_same() {
    let Some((dir, expected)) = nas() else { return };
    let path = dir.path();
    let (rescue, offer) = ([&["rescue"], &DISKS[..]].concat(), "weft rescue --deep sda.img");
    let with_tables = exits(path, 0, &[&rescue[..], &["--list"]].concat());
    assert!(!with_tables.err.contains(offer), "{}", with_tables.err);
    for disk in DISKS {
        let file = File::options().write(true).open(path.join(disk)).unwrap();
        for at in [0, (64 << 20) - 34 * 512] {
            file.write_all_at(&[0; 34 * 512], at).unwrap();
        }
    }
    let Text { err, .. } = exits(path, 1, &[&rescue[..], &["--list"]].concat());
    let says = "sda.img, sdb.img, sdc.img: found no partition table that can be read, and only the";
    assert!(err.contains(says) && err.contains(&format!("{offer} sdb.img sdc.img\n")), "{err}");
    let deep = |more: &[&str]| exits(path, 0, &[&rescue[..], &["--deep"], more].concat());
    let Text { out, err } = deep(&["--list"]);
    assert!(!err.contains(offer), "{err}");
    let left_out = |text: &str| {
        let line = text.lines().find(|line| line.starts_with("left out, the system of a NAS: "));
        line.map(str::to_owned)
    };
    assert_eq!(left_out(&out), left_out(&with_tables.out));
    deep(&["--to", "files"]);
    assert_eq!(files(&path.join("files/volume")), expected);
    // The next command finds the same.
    let next =
        "next: weft rescue --deep sda.img sdb.img sdc.img --to FOLDER copies the files out\n";
    assert!(out.contains(next), "{out}");
}

const DISKS: [&str; 3] = ["sda.img", "sdb.img", "sdc.img"];
