//! `weft image`: disks that fail for real, through a file system (FUSE) that fails on demand, and
//! images with maps beside them, in which unread areas cannot be read either.

mod common;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::faulty::{Faulty, areas, random};
use common::{command, contents, exits, json, weft};
use serde_json::Value;
use tempfile::tempdir;

const MIB: u64 = 1 << 20;

/// Expects that the image has the bytes of the disk where its map says so, and zeros elsewhere.
/// Returns the areas that were not read.
fn compared(image: &Path, map: &Path, disk: &[u8]) -> Vec<(u64, u64, String)> {
    let found = std::fs::read(image).unwrap();
    assert_eq!(found.len(), disk.len());
    let (mut next, mut unread) = (0, Vec::new());
    for (start, len, status) in areas(map) {
        assert_eq!(start, next, "areas cover the disk");
        next = start + len;
        let range = usize::try_from(start).unwrap()..usize::try_from(next).unwrap();
        if status == "+" {
            assert!(found[range.clone()] == disk[range], "{start} {len}");
        } else {
            assert!(found[range].iter().all(|byte| *byte == 0), "{start} {len} {status}");
            unread.push((start, len, status));
        }
    }
    assert_eq!(next, disk.len() as u64);
    unread
}

#[test]
fn a_dying_disk_is_copied_but_for_its_bad_sectors() {
    let Some(faulty) = Faulty::mount(None) else { return };
    let path = faulty.path();
    let bad = [(MIB, 1), (5 * MIB + 512, 700_000), (16 * MIB - 512, 512)];
    let disk = faulty.disk("disk", 16 * MIB, &bad);
    let before = contents(&path.join("under"));
    let text = exits(path, 1, &["image", "mnt/disk", "copy.img"]);
    assert!(text.err.contains("701440 bytes in 3 areas cannot be read"), "{}", text.err);
    assert!(text.out.contains("weft rescue copy.img"), "{}", text.out);
    let found = compared(&path.join("copy.img"), &path.join("copy.img.map"), &disk);
    let minus = |at, len| (at, len, "-".to_owned());
    let expected = [minus(MIB, 512), minus(5 * MIB + 512, 700_416), minus(16 * MIB - 512, 512)];
    assert_eq!(found, expected);
    assert_eq!(contents(&path.join("under")), before, "nothing was written to the disk");
    // Without scraping, and backwards.
    let words = ["image", "--no-scrape", "--reverse", "--json", "mnt/disk", "part.img"];
    let part: Value = serde_json::from_str(&exits(path, 1, &words).out).unwrap();
    assert_eq!(part["schema"], "weft.image/1");
    assert_eq!((&part["bad_areas"], &part["left_areas"]), (&4.into(), &1.into()), "{part}");
    compared(&path.join("part.img"), &path.join("part.img.map"), &disk);
    // The disk can read its bad sectors for a while: a retry reads them.
    faulty.mend("disk");
    let again = json(path, &["image", "--retries", "1", "--json", "mnt/disk", "copy.img"]);
    assert_eq!((&again["complete"], &again["errors"]), (&true.into(), &0.into()), "{again}");
    assert_eq!(again["reads"].as_u64().unwrap() * 512, 701_440, "bad sectors alone are read");
    assert_eq!(std::fs::read(path.join("copy.img")).unwrap(), disk);
}

#[test]
fn a_read_that_hangs_is_left_behind_and_the_program_ends() {
    let Some(faulty) = Faulty::mount(None) else { return };
    let path = faulty.path();
    let disk = faulty.disk("disk", 4 * MIB, &[]);
    // The read of one sector, and thus of its block, does not end in time.
    faulty.fault("disk", "read hang");
    let words = ["image", "--read-timeout", "1", "--block-size", "1M", "mnt/disk", "copy.img"];
    let begun = Instant::now();
    let child = command(path, &words).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    faulty.mend("disk");
    let output = child.wait_with_output();
    let took = begun.elapsed();
    let output = output.unwrap();
    let says = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{says}: the area is read again by sectors");
    assert!(took < Duration::from_secs(30), "{took:?}");
    assert_eq!(std::fs::read(path.join("copy.img")).unwrap(), disk);
    // A disk that never answers: the program gives up, and ends although its reads do not.
    faulty.fault("disk", "read hang");
    let words = ["image", "--read-timeout", "1", "mnt/disk", "none.img"];
    let begun = Instant::now();
    let text = exits(path, 1, &words);
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(7) && took < Duration::from_secs(60), "{took:?}");
    assert!(text.err.contains("has not ended 8 reads"), "{}", text.err);
    assert!(text.err.contains("the same command goes on there"), "{}", text.err);
    let hung = areas(&path.join("none.img.map"));
    assert_eq!(hung.iter().filter(|area| area.2 == "*").count(), 7, "{hung:?}");
    faulty.mend("disk");
    exits(path, 0, &["image", "mnt/disk", "none.img"]);
    assert_eq!(std::fs::read(path.join("none.img")).unwrap(), disk);
}

#[test]
fn a_signal_saves_the_map_and_the_same_command_goes_on() {
    let Some(faulty) = Faulty::mount(Some("20000")) else { return };
    let path = faulty.path();
    let disk = faulty.disk("disk", 16 * MIB, &[(3 * MIB, 4096)]);
    for (signal, status) in
        [(rustix::process::Signal::INT, 130), (rustix::process::Signal::TERM, 143)]
    {
        let words = ["image", "mnt/disk", "copy.img"];
        let child = command(path, &words).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(700));
        let id = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(id, signal).unwrap();
        let output = child.wait_with_output().unwrap();
        let says = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{says}");
        assert!(says.contains("the same command goes on there"), "{says}");
        let unread = compared(&path.join("copy.img"), &path.join("copy.img.map"), &disk);
        assert!(unread.iter().any(|area| area.2 == "?"), "{unread:?}");
    }
    exits(path, 1, &["image", "mnt/disk", "copy.img"]);
    let unread = compared(&path.join("copy.img"), &path.join("copy.img.map"), &disk);
    assert_eq!(unread, [(3 * MIB, 4096, "-".to_owned())]);
}

#[test]
fn a_full_file_system_keeps_the_map() {
    let Some(faulty) = Faulty::mount(None) else { return };
    let path = faulty.path();
    let disk = random(4 * MIB);
    std::fs::write(path.join("disk"), &disk).unwrap();
    // The image of an earlier run that read nothing.
    let image = std::fs::File::create(path.join("under/copy.img")).unwrap();
    image.set_len(4 * MIB).unwrap();
    std::fs::write(path.join("copy.map"), "# Mapfile of weft image\n0 ? 1\n0 0x400000 ?\n")
        .unwrap();
    let words = ["image", "--map", "copy.map", "disk", "mnt/copy.img"];
    exits(path, 0, &[&words[..], &["--length", "1M"]].concat());
    faulty.fault("copy.img", "write enospc");
    let text = exits(path, 1, &words);
    assert!(text.err.contains("No space left on device"), "{}", text.err);
    assert!(text.err.contains("the same command goes on there"), "{}", text.err);
    let plus = |at, len, status: &str| (at, len, status.to_owned());
    let expected = [plus(0, MIB, "+"), plus(MIB, 3 * MIB, "?")];
    assert_eq!(areas(&path.join("copy.map")), expected);
    faulty.mend("copy.img");
    exits(path, 0, &words);
    assert_eq!(std::fs::read(path.join("under/copy.img")).unwrap(), disk);
}

/// A disk without FUSE: what its own map does not mark as read cannot be read.
fn disk_with_map(dir: &Path, name: &str, bad: &[(u64, u64)]) -> Vec<u8> {
    let disk = random(4 * MIB);
    std::fs::write(dir.join(format!("{name}.img")), &disk).unwrap();
    map_of(dir, name, 4 * MIB, bad);
    disk
}

fn map_of(dir: &Path, name: &str, size: u64, bad: &[(u64, u64)]) {
    let mut text = "# Mapfile. Created by GNU ddrescue version 1.27\n0 + 1\n".to_owned();
    let mut next = 0;
    for (at, len) in bad.iter().copied().chain([(size, 0)]) {
        text += &format!("{next} {} +\n{at} {len} -\n", at - next);
        next = at + len;
    }
    std::fs::write(dir.join(format!("{name}.map")), text).unwrap();
}

#[test]
fn image_map_and_disk_belong_together_or_nothing_is_written() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    disk_with_map(path, "disk", &[(MIB, 512)]);
    exits(path, 1, &["image", "disk.img", "copy.img"]);
    let title = "# Mapfile of weft image\n0 ? 1\n";
    let write = |name: &str, text: &str| std::fs::write(path.join(name), text).unwrap();
    write("text", "a text of the user\n");
    write("short.map", &format!("{title}0 0x200000 ?\n"));
    write("all.map", &format!("{title}0 0x400000 +\n"));
    write("broken.map", &format!("{title}0 0x400000 !\n"));
    write("array.map", "# Mapfile of weft cat --skip-unreadable\n0 ? 1\n0 0x400000 ?\n");
    write("other", "");
    let mut other = random(4 * MIB);
    other[7] ^= 1;
    std::fs::write(path.join("other"), other).unwrap();
    std::os::unix::fs::symlink("disk.img", path.join("link")).unwrap();
    let before = contents(path);
    for (status, words, says) in [
        (3, &["disk.img", "text"][..], "there is no map text.map that says"),
        (3, &["disk.img", "disk.img"], "is a member of the volume"),
        (3, &["disk.img", "link"], "there is no map link.map"),
        (3, &["--map", "text", "disk.img", "new.img"], "holds something that is no map of a disk"),
        (3, &["--map", "array.map", "disk.img", "new.img"], "is no map of a disk"),
        (3, &["--map", "broken.map", "disk.img", "new.img"], "line 3: status: found !"),
        (3, &["--map", "short.map", "disk.img", "new.img"], "a map of a disk of 2097152 bytes"),
        (3, &["--map", "all.map", "disk.img", "new.img"], "found 0 bytes, expected 4194304"),
        (3, &["--map", "disk.img", "disk.img", "new.img"], "no map of a disk"),
        (3, &["other", "copy.img"], "byte 7 is another one on the disk"),
        (1, &["none", "new.img"], "No such file"),
        (2, &["disk.img@1M", "new.img"], "found a part of a disk"),
        (2, &["--block-size", "1000", "disk.img", "new.img"], "a multiple of the sector, 512"),
        (2, &["--sector-size", "100", "disk.img", "new.img"], "a multiple of 512"),
        (2, &["--offset", "5M", "disk.img", "new.img"], "--offset: found 5242880"),
        (2, &["--length", "5M", "disk.img", "new.img"], "--length: found 5242880"),
    ] {
        let found = exits(path, status, &[&["image"], words].concat()).err;
        assert!(found.contains(says), "{words:?}: {found}");
        assert_eq!(contents(path).len(), before.len(), "{words:?}: no file was made");
    }
    assert_eq!(contents(path), before, "no byte changed");
    if rustix::process::geteuid().is_root() && Path::new("/dev/loop0").exists() {
        let found = exits(path, 3, &["image", "disk.img", "/dev/loop0"]).err;
        assert!(found.contains("/dev/loop0"), "{found}");
    }
}

#[test]
fn an_image_is_sparse_and_a_part_has_its_place() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    let mut disk = vec![0; 8 << 20];
    disk[3 << 20..4 << 20].copy_from_slice(&random(MIB));
    std::fs::write(path.join("disk"), &disk).unwrap();
    exits(path, 0, &["image", "disk", "copy.img"]);
    assert_eq!(std::fs::read(path.join("copy.img")).unwrap(), disk);
    let stored = path.join("copy.img").metadata().unwrap().blocks() * 512;
    assert!((MIB..2 * MIB).contains(&stored), "{stored} bytes are stored");
    let words = ["image", "--offset", "3M", "--length", "2M", "disk", "part.img"];
    exits(path, 0, &words);
    let plain = |at, len, status: &str| (at, len, status.to_owned());
    let expected =
        [plain(0, 3 * MIB, "?"), plain(3 * MIB, 2 * MIB, "+"), plain(5 * MIB, 3 * MIB, "?")];
    assert_eq!(areas(&path.join("part.img.map")), expected);
    assert_eq!(compared(&path.join("part.img"), &path.join("part.img.map"), &disk).len(), 2);
    // The rest.
    let rest = json(path, &["image", "--json", "disk", "part.img"]);
    assert_eq!(rest["reads"], 96, "6 MiB in blocks of 64 KiB: {rest}");
    assert_eq!(std::fs::read(path.join("part.img")).unwrap(), disk);
}

/// The mirrors of a RAID 1 with ext4 are copied, each with other bad areas: `rescue` of the images
/// gives every file, and without the maps it would not.
#[test]
fn rescue_of_the_images_gives_the_files() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    let tree = path.join("tree");
    std::fs::create_dir(&tree).unwrap();
    let files: Vec<(PathBuf, Vec<u8>)> = (1..40)
        .map(|number| (PathBuf::from(format!("f{number}")), random(300_000 + number * 4099)))
        .collect();
    files.iter().for_each(|(name, bytes)| std::fs::write(tree.join(name), bytes).unwrap());
    std::fs::File::create(path.join("d0.img")).unwrap().set_len(32 * MIB).unwrap();
    let made = Command::new("mke2fs")
        .args(["-q", "-t", "ext4", "-E", "root_owner", "-d", "tree", "d0.img", "30M"])
        .current_dir(path)
        .status();
    if !made.is_ok_and(|made| made.success()) {
        weft_testing::skip("no mke2fs");
        return;
    }
    std::fs::copy(path.join("d0.img"), path.join("d1.img")).unwrap();
    let create = ["create", "-l1", "-n2", "--metadata", "1.0", "--assume-clean", "--force"];
    exits(path, 0, &[&create[..], &["--name", "files", "d0.img", "d1.img"]].concat());
    map_of(path, "d0", 32 * MIB, &[(0, 8192), (4 * MIB, 3 * MIB), (9 * MIB + 512, 512)]);
    map_of(path, "d1", 32 * MIB, &[(2 * MIB, MIB), (11 * MIB, 4 * MIB)]);
    exits(path, 1, &["image", "d0.img", "c0.img"]);
    exits(path, 1, &["image", "--map", "elsewhere", "d1.img", "c1.img"]);
    let words = ["rescue", "--unreadable", "c1.img=elsewhere", "c0.img", "c1.img", "--to"];
    exits(path, 0, &[&words[..], &["out"]].concat());
    let out = path.join("out/files");
    for (name, bytes) in &files {
        assert!(std::fs::read(out.join(name)).unwrap() == *bytes, "{}", name.display());
    }
    // Control: without its map the zeros of an image are data.
    let without = weft(path, &["rescue", "c1.img", "--to", "lost"]);
    let is_same = |(name, bytes): &(PathBuf, Vec<u8>)| {
        std::fs::read(path.join("lost/files").join(name)).is_ok_and(|found| found == *bytes)
    };
    assert!(!files.iter().all(is_same), "{without:?}");
}
