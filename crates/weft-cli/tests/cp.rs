//! `weft cp`: picked files and folders of disks and of a running volume, against the folder that
//! was copied in.

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use common::disks::{bytes, files, half_of_raid1, image, lose};
use common::{Served, command, contents, exits, json, weft};
use serde_json::Value;
use tempfile::tempdir;

/// A name that no other directory has, so that its sector is found on the disk.
const MARK: &str = "a-name-that-stands-in-one-sector";

fn make_files(from: &Path) {
    fs::create_dir_all(from.join("photos/2026/deep")).unwrap();
    for len in [10, 5000, 70_000] {
        fs::write(from.join(format!("photos/2026/{len}.jpg")), bytes(1, len)).unwrap();
    }
    fs::write(from.join("photos/2026/deep/10.jpg"), "another one").unwrap();
    fs::write(from.join("letter.txt"), "dear all\n").unwrap();
    fs::hard_link(from.join("letter.txt"), from.join("same.txt")).unwrap();
    fs::set_permissions(from.join("letter.txt"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("/etc/passwd", from.join("link")).unwrap();
    fs::create_dir(from.join("marked")).unwrap();
    fs::write(from.join("marked").join(MARK), "").unwrap();
}

/// Names in a folder, sorted.
fn names(at: &Path) -> Vec<String> {
    let entries = fs::read_dir(at).unwrap();
    let mut names: Vec<String> =
        entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn picked_files_and_folders_lie_side_by_side_as_they_were() {
    let Some(dir) = half_of_raid1(make_files) else { return };
    let dir = dir.path();
    let before = contents(dir);
    let line = ["cp", "a.img", ":nas/photos/2026", ":/nas/*.txt", ":nas/link", "out"];
    let said = exits(dir, 0, &line);
    assert!(
        said.out.contains("nas: 5 files (") && said.out.contains("copied to out\n"),
        "{said:?}"
    );
    let out = dir.join("out");
    let owners = names(&out).into_iter().filter(|name| name.ends_with("-owners.sh"));
    assert!(owners.count() <= 1);
    assert!(names(&out).iter().take(4).eq(["2026", "letter.txt", "link", "same.txt"]));
    assert_eq!(files(&out.join("2026")), files(&dir.join("from/photos/2026")));
    for name in ["letter.txt", "2026/5000.jpg", "2026"] {
        let expected = match name {
            "letter.txt" => dir.join("from/letter.txt"),
            name => dir.join("from/photos").join(name),
        };
        let stat = |path: &Path| {
            let stat = path.symlink_metadata().unwrap();
            (stat.mode(), stat.mtime())
        };
        assert_eq!(stat(&out.join(name)), stat(&expected), "{name}");
    }
    let inode = |name: &str| out.join(name).metadata().unwrap().ino();
    assert_eq!(inode("letter.txt"), inode("same.txt"), "hard links stay links");
    assert_eq!(fs::read_link(out.join("link")).unwrap(), Path::new("/etc/passwd"));

    // Again: nothing is read once more.
    let again = exits(dir, 0, &line);
    assert!(again.out.contains("nas: 0 files (0 B)"), "{again:?}");
    assert!(again.out.contains("were there already"), "{again:?}");
    let all = json(dir, &["cp", "--json", "a.img", ":/", "all"]);
    assert_eq!((&all["schema"], &all["complete"]), (&"weft.cp/1".into(), &true.into()));
    assert_eq!(
        (&all["picked"][0]["path"], &all["copied"][0]["name"]),
        (&"/nas".into(), &"nas".into())
    );
    assert_eq!(files(&dir.join("all/nas")), files(&dir.join("from")));
    for name in ["out", "all"] {
        fs::remove_dir_all(dir.join(name)).unwrap();
    }
    assert!(contents(dir) == before, "no disk has changed");
}

#[test]
fn a_degraded_raid_5_and_a_running_volume_give_the_same_files() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    let Some(expected) = image(dir, 12, "family", make_files) else { return };
    let members = ["d0.img", "d1.img", "d2.img"];
    let create = ["create", "-l5", "-n3", "-c64K", "--member-size=16M", "--name=nas"];
    exits(dir, 0, &[&create[..], &members].concat());
    let server = Served::start(dir, &members);
    let mut client = common::client::Client::connect(&server.uri);
    let content = fs::read(dir.join("image")).unwrap();
    for (part, number) in content.chunks(1 << 20).zip(0_u64..) {
        let len = u32::try_from(part.len()).unwrap();
        let write = weft_nbd::Op::Write { offset: number << 20, len, fua: false };
        client.request(write, part).unwrap();
    }
    drop(client);
    rustix::process::kill_process(server.pid(), rustix::process::Signal::TERM).unwrap();
    assert_eq!(server.wait(), Some(0));
    fs::remove_file(dir.join("d1.img")).unwrap();
    let before = contents(dir);
    exits(dir, 0, &["cp", "d0.img", "d2.img", ":nas/*", "out"]);
    let copied = files(&dir.join("out"));
    let is_own = |name: &Path| name.to_string_lossy().starts_with("weft-rescue-");
    assert!(copied.into_iter().filter(|(name, _)| !is_own(name)).eq(expected.clone()));
    fs::remove_dir_all(dir.join("out")).unwrap();
    assert!(contents(dir) == before, "no disk has changed");

    let line = ["serve", "--read-only", "--name=live", "d0.img", "d2.img"];
    let served = Served::of(dir, command(dir, &line));
    exits(dir, 0, &["cp", "live:live/photos", "live:live/letter.txt", "out"]);
    assert_eq!(files(&dir.join("out/photos")), files(&dir.join("from/photos")));
    assert_eq!(fs::read(dir.join("out/letter.txt")).unwrap(), b"dear all\n");
    drop(served);
}

#[test]
fn nothing_is_overwritten_and_no_link_in_the_folder_is_followed() {
    let Some(dir) = half_of_raid1(make_files) else { return };
    let dir = dir.path();
    let (out, away) = (dir.join("out"), dir.join("away"));
    fs::create_dir_all(&out).unwrap();
    fs::create_dir_all(&away).unwrap();
    fs::write(out.join("letter.txt"), "mine").unwrap();
    symlink(&away, out.join("2026")).unwrap();
    let line =
        ["cp", "--json", "a.img", ":nas/letter.txt", ":nas/photos/2026", ":nas/same.txt", "out"];
    let output = weft(dir, &line);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    let kept = said["copied"][0]["kept"].as_array().unwrap();
    let kept: Vec<&str> = kept.iter().map(|it| it["path"].as_str().unwrap()).collect();
    assert_eq!(kept, ["letter.txt", "2026"], "{said}");
    assert_eq!(said["findings_file"], "out/weft-rescue-1.jsonl");
    assert_eq!(fs::read(out.join("letter.txt")).unwrap(), b"mine");
    assert_eq!(fs::read(out.join("same.txt")).unwrap(), b"dear all\n");
    assert_eq!(names(&away), [""; 0]);
    // Control: into another folder, without these files in the way, everything is copied.
    exits(dir, 0, &["cp", "a.img", ":nas/letter.txt", ":nas/photos/2026", "other"]);
}

#[test]
fn what_a_pattern_may_mean_in_a_lost_sector_is_told() {
    let Some(dir) = half_of_raid1(make_files) else { return };
    let dir = dir.path();
    exits(dir, 0, &["cp", "a.img", ":nas/*/a*", "before"]);
    assert!(names(&dir.join("before")).contains(&MARK.to_owned()));
    let disk = fs::read(dir.join("a.img")).unwrap();
    let places = disk.windows(MARK.len()).enumerate().filter(|(_, it)| *it == MARK.as_bytes());
    let sectors: Vec<usize> = places.map(|(at, _)| at / 512 * 512).collect();
    assert!(!sectors.is_empty(), "the name stands on the disk");
    lose(&dir.join("a.img"), sectors);
    let said = exits(dir, 1, &["cp", "a.img", ":nas/link", ":nas/*/[2a]*", "out"]);
    assert!(said.err.contains("/nas/marked: a part of it cannot be read"), "{said:?}");
    assert!(dir.join("out/link").is_symlink(), "other picks are copied");
}

#[test]
fn wrong_input_says_what_is_expected_and_makes_no_folder() {
    let Some(dir) = half_of_raid1(make_files) else { return };
    let dir = dir.path();
    for (arguments, status, says) in [
        (
            &["a.img", ":nas/photos/2026/10.jpg", ":nas/photos/2026/deep/10.jpg", "out"][..],
            2,
            "found /nas/photos/2026/10.jpg and /nas/photos/2026/deep/10.jpg, which would both be \
             out/10.jpg; copy one of them into another folder",
        ),
        (&["a.img", "out"], 2, "found no path before out, expected one or more"),
        (&["a.img"], 2, "found one argument, expected disks"),
        (&["a.img", ":nas/letter.txt", ":nas/link"], 2, ":nas/link: found a path inside, expected"),
        (&["a.img:nas/link", "a.img:nas"], 2, "a.img:nas: found a path inside, expected"),
        (&[":nas", "out"], 2, "expected a disk or a running volume before it"),
        (&["a.img", ":gone", "out"], 1, "found gone, expected one of /nas"),
        (&["a.img", ":nas/photos/1999/*", "out"], 1, "/nas/photos: found no 1999 in it"),
        (&["a.img", ":nas/letter.txt/x", "out"], 1, "/nas/letter.txt: found a file, expected a"),
        (&["nothing:nas", "out"], 1, "nothing: no running volume has this name"),
        (&["a.img", ":nas/letter.txt", "a.img"], 1, "a.img: "),
        (&["a.img", ":nas/letter.txt", "none/out"], 1, "none/out: "),
    ] {
        let said = exits(dir, status, &[&["cp"], arguments].concat());
        assert!(said.err.contains(says), "{arguments:?}: {said:?}");
        assert!(!dir.join("out").exists(), "{arguments:?}");
    }
    // The same thing twice is one thing, and what is there is copied beside what is not.
    let twice = ["cp", "a.img", ":nas/letter.txt", ":nas/letter*", ":nas/gone", "out"];
    let said = exits(dir, 1, &twice);
    assert!(said.err.contains("/nas: found no gone in it"), "{said:?}");
    assert_eq!(fs::read(dir.join("out/letter.txt")).unwrap(), b"dear all\n");
}
