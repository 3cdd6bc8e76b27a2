//! `weft cat --output`: sparse images of arrays, which later runs complete.

mod common;

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::disks::lose;
use common::faulty::{Faulty, areas, random};
use common::{command, contents, exits, weft};
use tempfile::tempdir;

const MIB: u64 = 1 << 20;

/// A RAID 0 of two members in `dir` with random bytes at its beginning and zeros behind. Returns
/// its content.
fn striped(dir: &Path, names: [&str; 2], size: u64, data: u64) -> Vec<u8> {
    for (name, seed) in names.iter().zip([3, 5]) {
        std::fs::write(dir.join(name), random(data + seed)).unwrap();
        let file = std::fs::File::options().write(true).open(dir.join(name)).unwrap();
        file.set_len(size).unwrap();
    }
    let create = ["create", "-l0", "-n2", "-c64K", "--force", "--name=vol"];
    exits(dir, 0, &[&create[..], &names].concat());
    let content = weft(dir, &[&["cat"][..], &names].concat()).stdout;
    assert!(content.iter().any(|byte| *byte != 0), "the array has data");
    content
}

#[test]
fn an_image_has_the_bytes_of_the_array_and_no_space_for_zeros() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    let content = striped(path, ["a", "b"], 32 * MIB, 3 * MIB);
    let text = exits(path, 0, &["cat", "--output", "image", "a", "b"]);
    assert!(text.out.contains("read; map image.map"), "{}", text.out);
    assert!(std::fs::read(path.join("image")).unwrap() == content);
    let blocks = path.join("image").metadata().unwrap().blocks() * 512;
    assert!(blocks < 8 * MIB, "{blocks} bytes on the disk");
    let all = [(0, content.len() as u64, "+".to_owned())];
    assert_eq!(areas(&path.join("image.map")), all);
    // A part has its first byte at the beginning of the file, as on standard output.
    let part = ["--offset", "1M", "--length", "500224", "a", "b"];
    exits(path, 0, &[&["cat", "--output", "part", "--map", "of part"][..], &part].concat());
    assert!(std::fs::read(path.join("part")).unwrap() == content[1 << 20..][..500_224]);
    assert_eq!(areas(&path.join("of part")), [(0, 500_224, "+".to_owned())]);
    // The same command has nothing left to do; it compares.
    exits(path, 0, &["cat", "--output", "image", "a", "b"]);
    assert!(std::fs::read(path.join("image")).unwrap() == content);
}

/// Blocks that the image takes on its disk.
fn blocks(path: &Path) -> u64 {
    path.join("image").metadata().map_or(0, |found| found.blocks())
}

#[test]
fn a_signal_saves_the_map_and_the_same_command_goes_on() {
    let Some(faulty) = Faulty::mount(Some("10000")) else { return };
    let path = faulty.path();
    let content = striped(&path.join("under"), ["a", "b"], 48 * MIB, 40 * MIB);
    let words = ["cat", "--output", "image", "mnt/a", "mnt/b"];
    for (signal, status) in
        [(rustix::process::Signal::INT, 130), (rustix::process::Signal::TERM, 143)]
    {
        let before = blocks(path);
        let child = command(path, &words).stderr(Stdio::piped()).spawn().unwrap();
        let begun = Instant::now();
        // The copy has begun or was resumed when the image takes more space than before.
        while blocks(path) <= before && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let id = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(id, signal).unwrap();
        let output = child.wait_with_output().unwrap();
        let says = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{says}");
        assert!(says.contains("the same command goes on there"), "{says}");
    }
    let map = areas(&path.join("image.map"));
    let [(0, read, plus), (_, left, unread)] = &map[..] else { panic!("{map:?}") };
    assert_eq!((plus.as_str(), unread.as_str()), ("+", "?"), "{map:?}");
    assert!(*read >= MIB && *left >= MIB, "{map:?}");
    let found = std::fs::read(path.join("image")).unwrap();
    let read = usize::try_from(*read).unwrap();
    assert!(found[..read] == content[..read]);
    // A copy is not resumed with other options, and nothing changes.
    let before = contents(path);
    for (more, says) in [
        (&["--offset", "64K"][..], "from byte 65536 on"),
        (&["--length", "1M"], "expected Copy of 1048576 bytes from byte 0 on"),
    ] {
        let text = exits(path, 3, &[&words[..], more].concat()).err;
        assert!(text.contains(says) && text.contains("the same options go on there"), "{text}");
    }
    assert_eq!(contents(path), before);
    exits(path, 0, &words);
    assert!(std::fs::read(path.join("image")).unwrap() == content);
}

#[test]
fn what_could_not_be_read_is_read_again_by_the_next_run() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    let content = striped(path, ["a.img", "b.img"], 16 * MIB, 12 * MIB);
    let whole = std::fs::read(path.join("b.img")).unwrap();
    lose(&path.join("b.img"), vec![8 << 20, (8 << 20) + 8192]);
    let words = ["cat", "--output", "image", "a.img", "b.img"];
    let text = exits(path, 1, &words).err;
    assert!(text.contains("--skip-unreadable goes on with zeros"), "{text}");
    assert!(text.contains("the same command goes on there"), "{text}");
    let skip = [&words[..], &["--skip-unreadable"]].concat();
    let text = exits(path, 1, &skip).err;
    assert!(text.contains("8192 bytes in 2 areas could not be read"), "{text}");
    let bad: Vec<_> = areas(&path.join("image.map")).into_iter().filter(|it| it.2 == "-").collect();
    assert_eq!(bad.iter().map(|area| area.1).collect::<Vec<_>>(), [4096, 4096]);
    let mut holed = content.clone();
    for (start, len, _) in &bad {
        let start = usize::try_from(*start).unwrap();
        holed[start..start + usize::try_from(*len).unwrap()].fill(0);
    }
    assert!(std::fs::read(path.join("image")).unwrap() == holed);
    // What was not read is no data for other commands either.
    let text = exits(path, 1, &["examine", "image"]).err;
    assert!(text.contains("8192 bytes in 2 areas were not rescued"), "{text}");
    // A better copy of the disk.
    std::fs::write(path.join("b.img"), whole).unwrap();
    std::fs::remove_file(path.join("b.img.map")).unwrap();
    exits(path, 0, &words);
    assert!(std::fs::read(path.join("image")).unwrap() == content);
}

#[test]
fn image_map_and_array_belong_together_or_nothing_is_written() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    striped(path, ["a", "b"], 8 * MIB, 6 * MIB);
    striped(path, ["c", "d"], 8 * MIB, 5 * MIB);
    exits(path, 0, &["cat", "--output", "image", "a", "b"]);
    std::fs::write(path.join("text"), "a text of the user\n").unwrap();
    std::fs::write(path.join("cat.map"), "# Mapfile of weft cat --skip-unreadable\n").unwrap();
    let changed = path.join("changed");
    std::fs::create_dir(&changed).unwrap();
    for name in ["a", "b", "image", "image.map"] {
        std::fs::copy(path.join(name), changed.join(name)).unwrap();
    }
    let mut disk = std::fs::read(path.join("a")).unwrap();
    let data = usize::try_from(MIB).unwrap();
    disk[data..].iter_mut().for_each(|byte| *byte ^= 1);
    std::fs::write(changed.join("a"), disk).unwrap();
    let before = contents(path);
    for (status, words, says) in [
        (3, &["--output", "text", "a", "b"][..], "there is no map text.map that says"),
        (3, &["--output", "text", "--force", "a", "b"], "there is no map text.map that says"),
        (3, &["--output", "a", "a", "b"], "there is no map a.map"),
        (3, &["--output", "a", "--map", "image.map", "--force", "a", "b"], "is a member"),
        (3, &["--output", "new", "--map", "text", "a", "b"], "no map of weft cat --output"),
        (3, &["--output", "new", "--map", "cat.map", "a", "b"], "no map of weft cat --output"),
        (3, &["--output", "new", "--map", "image.map", "a", "b"], "found 0 bytes"),
        (3, &["--output", "image", "c", "d"], "the same options go on there"),
        (
            3,
            &["--output", "changed/image", "changed/a", "changed/b"],
            "is another one in the array",
        ),
        (3, &["--output", "/dev/null", "a", "b"], "/dev/null"),
        (2, &["--map", "new", "a", "b"], "required"),
        (2, &["--force", "a", "b"], "required"),
        (2, &["--output", "new", "--offset", "99G", "a", "b"], "--offset"),
    ] {
        let found = exits(path, status, &[&["cat"], words].concat()).err;
        assert!(found.contains(says), "{words:?}: {found}");
        assert_eq!(contents(path), before, "{words:?}");
    }
    let again = weft(path, &["cat", "c", "d"]).stdout;
    exits(path, 0, &["cat", "--output", "image", "--force", "c", "d"]);
    assert!(std::fs::read(path.join("image")).unwrap() == again, "begun anew");
}

#[test]
fn a_full_file_system_keeps_the_map() {
    let Some(faulty) = Faulty::mount(None) else { return };
    let path = faulty.path();
    let content = striped(path, ["a", "b"], 8 * MIB, 6 * MIB);
    // The image of an earlier run that read nothing; faultfs cannot change the size of a file.
    let part = ["--length", "3M", "a", "b"];
    let words = [&["cat", "--map", "map", "--output", "mnt/image"][..], &part].concat();
    let first = [&["cat", "--map", "map", "--output", "under/image"][..], &part].concat();
    exits(path, 0, &first);
    let map = std::fs::read_to_string(path.join("map")).unwrap();
    std::fs::write(path.join("map"), map.replace("  +\n", "  ?\n")).unwrap();
    std::fs::write(path.join("under/image"), vec![0; 3 << 20]).unwrap();
    faulty.fault("image", "write enospc");
    let text = exits(path, 1, &words).err;
    assert!(text.contains("No space left on device"), "{text}");
    assert!(text.contains("the same command goes on there"), "{text}");
    assert_eq!(areas(&path.join("map")), [(0, 3 * MIB, "?".to_owned())]);
    faulty.mend("image");
    exits(path, 0, &words);
    let len = usize::try_from(3 * MIB).unwrap();
    assert!(std::fs::read(path.join("under/image")).unwrap() == content[..len]);
}
