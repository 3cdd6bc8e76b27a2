//! `weft ls`: names inside of disks and of a running volume, against the folder that was copied in.

mod common;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use common::disks::{bytes, half_of_raid1, lose};
use common::{Served, command, contents, exits, json, weft};
use serde_json::Value;

/// A name that no other directory has, so that its sector is found on the disk.
const MARK: &str = "a-name-that-stands-in-one-sector";

fn make_files(from: &Path) {
    fs::create_dir_all(from.join("photos/2026/deep")).unwrap();
    for len in [10, 5000, 70_000] {
        fs::write(from.join(format!("photos/2026/{len}.jpg")), bytes(1, len)).unwrap();
    }
    fs::write(from.join("photos/read[me].txt"), "brackets").unwrap();
    fs::write(from.join(OsStr::from_bytes(b"caf\xe9")), "not UTF-8").unwrap();
    fs::write(from.join("letter.txt"), "dear all\n").unwrap();
    fs::hard_link(from.join("letter.txt"), from.join("same.txt")).unwrap();
    fs::set_permissions(from.join("letter.txt"), fs::Permissions::from_mode(0o4750)).unwrap();
    symlink("photos/2026", from.join("latest")).unwrap();
    fs::create_dir(from.join("marked")).unwrap();
    fs::write(from.join("marked").join(MARK), "").unwrap();
}

fn stdout(dir: &Path, arguments: &[&str]) -> String {
    let output = weft(dir, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Paths of everything below a folder, sorted, without `lost+found`.
fn below(at: &Path) -> Vec<PathBuf> {
    let (mut all, mut waiting) = (Vec::new(), vec![at.to_owned()]);
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.symlink_metadata().unwrap().is_dir() {
                waiting.push(path.clone());
            }
            all.push(path.strip_prefix(at).unwrap().to_owned());
        }
    }
    all.sort();
    all
}

#[test]
fn names_are_those_of_the_folder_on_disks_and_in_a_running_volume() {
    let Some(dir) = half_of_raid1(make_files) else { return };
    let dir = dir.path();
    let before = contents(dir);
    assert_eq!(stdout(dir, &["ls", "a.img"]), "nas\n");
    let root = "caf\\xe9\nlatest\nletter.txt\nlost+found\nmarked\nphotos\nsame.txt\n";
    for path in [":nas", ":/nas/", ":x/../nas/."] {
        assert_eq!(stdout(dir, &["ls", "a.img", path]), root, "{path}");
    }
    assert_eq!(
        stdout(dir, &["ls", "a.img:nas/photos/2026"]),
        "10.jpg\n5000.jpg\n70000.jpg\ndeep\n"
    );
    let two = stdout(dir, &["ls", "a.img", ":nas/marked", ":nas/photos/2026/deep", ":nas/latest"]);
    assert_eq!(two, format!("/nas/latest\n\n/nas/marked:\n{MARK}\n\n/nas/photos/2026/deep:\n"));
    // A pattern, and a name with its characters.
    let found = stdout(dir, &["ls", "-d", "a.img", ":nas/photos/2026/[57]*"]);
    assert_eq!(found, "/nas/photos/2026/5000.jpg\n/nas/photos/2026/70000.jpg\n");
    let found = stdout(dir, &["ls", "a.img", ":nas/photos/read[me].txt"]);
    assert_eq!(found, "/nas/photos/read[me].txt\n");
    let expected = stdout(dir, &["ls", "-lR", "a.img", ":nas"]);
    // Nothing was written.
    assert_eq!(contents(dir), before);

    let served = Served::of(dir, command(dir, &["serve", "--read-only", "--name=live", "a.img"]));
    assert_eq!(stdout(dir, &["ls", "live"]), "live\n");
    assert_eq!(stdout(dir, &["ls", "live:live"]), root);
    assert_eq!(stdout(dir, &["ls", "-lR", "live:live"]), expected.replace("/nas", "/live"));
    drop(served);
}

#[test]
fn everything_below_is_listed_once_with_what_stat_says() {
    let Some(dir) = half_of_raid1(make_files) else { return };
    let dir = dir.path();
    let from = dir.join("from");
    let listed = json(dir, &["ls", "-R", "--json", "a.img", ":nas"]);
    assert_eq!((&listed["schema"], &listed["complete"]), (&"weft.ls/1".into(), &true.into()));
    let mut found = Vec::new();
    for entry in listed["entries"].as_array().unwrap() {
        let path = match entry["path_bytes"].as_str() {
            Some(hex) => (0..hex.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
                .collect(),
            None => entry["path"].as_str().unwrap().as_bytes().to_vec(),
        };
        let path = Path::new(OsStr::from_bytes(&path)).strip_prefix("/nas").unwrap().to_owned();
        if path.starts_with("lost+found") {
            continue;
        }
        let stat = from.join(&path).symlink_metadata().unwrap();
        let mode = u32::from_str_radix(entry["mode"].as_str().unwrap(), 8).unwrap();
        assert_eq!(mode, stat.mode() & 0o7777, "{entry}");
        assert_eq!(entry["uid"], stat.uid(), "{entry}");
        if !stat.is_dir() {
            assert_eq!(
                (&entry["size_bytes"], &entry["links"]),
                (&stat.size().into(), &stat.nlink().into())
            );
        }
        let target = fs::read_link(from.join(&path)).ok();
        assert_eq!(entry["target"].as_str(), target.as_ref().and_then(|it| it.to_str()));
        let (year, kind) = (entry["modified"].as_str().unwrap(), entry["kind"].as_str().unwrap());
        assert!(year.starts_with("20") && year.ends_with('Z'), "{entry}");
        assert_eq!(kind == "directory", stat.is_dir());
        found.push(path);
    }
    found.sort();
    assert_eq!(found, below(&from));
    assert!(found.len() >= 12, "{found:?}");

    let long = stdout(dir, &["ls", "-l", "a.img", ":nas"]);
    let line = |name: &str| long.lines().find(|line| line.contains(name)).unwrap();
    assert!(line(" letter.txt").starts_with("-rwsr-x--- 2 "), "{long}");
    assert!(line(" latest").ends_with("latest -> photos/2026"), "{long}");
    assert!(line(" marked").starts_with("drwx"), "{long}");
}

#[test]
fn a_path_to_nothing_says_where_it_ends() {
    let Some(dir) = half_of_raid1(make_files) else { return };
    let dir = dir.path();
    for (arguments, status, says) in [
        (&["a.img:gone"][..], 1, "found gone, expected one of /nas"),
        (&["a.img:nas/photos/1999/x"], 1, "/nas/photos: found no 1999 in it"),
        (&["a.img:nas/*/nothing*"], 1, "found no nothing* in it"),
        (&["a.img:nas/latest/10.jpg"], 1, "/nas/latest: found a link to photos/2026, which is not"),
        (&["a.img:nas/letter.txt/x"], 1, "/nas/letter.txt: found a file, expected a folder"),
        (&["a.img:nas/../../nas/gone"], 1, "/nas: found no gone in it"),
        (&[":nas"], 2, "expected a disk or a running volume before it"),
        (&["a.img", ":nas", "b.img"], 2, "b.img: found another disk or volume"),
        (&["--long", "--json", "a.img"], 2, "cannot be used with"),
        (&["nothing:nas"], 1, "nothing: no running volume has this name"),
    ] {
        let output = weft(dir, &[&["ls"], arguments].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {error}");
        assert!(error.contains(says), "{arguments:?}: {error}");
    }
    // Other paths of the line are listed all the same.
    let output = weft(dir, &["ls", "a.img", ":nas/gone", ":nas/marked"]);
    assert_eq!((output.status.code(), output.stdout), (Some(1), format!("{MARK}\n").into_bytes()));
}

#[test]
fn a_folder_that_is_lost_is_told_and_the_rest_is_listed() {
    let Some(dir) = half_of_raid1(make_files) else { return };
    let dir = dir.path();
    exits(dir, 0, &["ls", "-R", "a.img"]);
    let disk = fs::read(dir.join("a.img")).unwrap();
    let places = disk.windows(MARK.len()).enumerate().filter(|(_, it)| *it == MARK.as_bytes());
    let sectors: Vec<usize> = places.map(|(at, _)| at / 512 * 512).collect();
    assert!(!sectors.is_empty(), "the name stands on the disk");
    lose(&dir.join("a.img"), sectors);
    let output = weft(dir, &["ls", "-R", "--json", "a.img"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(listed["complete"], false);
    let faults = listed["faults"].as_array().unwrap();
    let faults: Vec<&str> = faults.iter().map(|it| it.as_str().unwrap()).collect();
    assert!(faults.iter().any(|it| it.starts_with("/nas/marked: a part of it cannot be read")));
    // A lost sector takes the others of its 4 KiB with it, which are four blocks here.
    assert!((1..=4).contains(&faults.len()), "{faults:?}");
    let paths: Vec<&str> = listed["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["path"].as_str().unwrap())
        .collect();
    assert!(["/nas/letter.txt", "/nas/marked", "/nas/photos"].iter().all(|it| paths.contains(it)));
    assert!(!paths.iter().any(|path| path.ends_with(MARK)));
}
