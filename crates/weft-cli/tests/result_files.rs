//! Files that weft writes for its user: no other file is overwritten, and they are written in time.

mod common;

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{command, contents, exits};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::{TempDir, tempdir};

fn array(size: &str) -> TempDir {
    let dir = tempdir().unwrap();
    let create = ["create", "--level", "5", "-n3", "--chunk", "64K", "--assume-clean"];
    let members = ["--member-size", size, "a", "b", "c"];
    exits(dir.path(), 0, &[&create[..], &members].concat());
    dir
}

/// `weft cat --map` once truncated a member of 120 MiB to 174 bytes, also through a link.
#[test]
fn no_map_is_written_over_a_member_or_another_file() {
    let (dir, disk) = (array("8M"), block_device());
    let path = dir.path();
    std::os::unix::fs::symlink(path.join("c"), path.join("link")).unwrap();
    std::fs::hard_link(path.join("b"), path.join("hard")).unwrap();
    std::fs::write(path.join("days.map"), "# Mapfile. Created by GNU ddrescue\n").unwrap();
    std::fs::write(path.join("page.html"), "<!DOCTYPE html>\n<p>mine\n").unwrap();
    std::fs::write(path.join("weft.1"), ".TH weft 1\n.SH mine\n").unwrap();
    let before = contents(path);
    let cat = |file| vec!["cat", "--skip-unreadable", "--map", file, "a", "b", "c"];
    for force in [&[][..], &["--force"]] {
        for (words, told) in [
            (cat("a"), "--map a: is a member of the volume"),
            (cat("link"), "--map link: is a member of the volume"),
            (cat("hard"), "--map hard: is a member of the volume"),
            (cat("days.map"), "that is no map of weft cat"),
            (vec!["man", "."], "that is no man page of weft"),
            (vec!["reproduce", "004", "--report", "page.html"], "that is no report of weft"),
        ] {
            let words = [&words[..], force].concat();
            let out = exits(path, 3, &words);
            assert!(out.err.contains(told), "{words:?}: {}", out.err);
            assert!(out.out.is_empty(), "{words:?}: nothing is read first");
        }
    }
    // A block device is refused as well, accessible or not.
    match &disk {
        Some(disk) => {
            let out = exits(path, 3, &cat(disk.to_str().unwrap()));
            assert!(out.err.contains("found a block device"), "{}", out.err);
        }
        None => weft_testing::skip("found no block device in /dev: none was named as a map"),
    }
    assert!(contents(path) == before, "something was written");
    // A new map is written, and overwritten with consent.
    exits(path, 0, &cat("map"));
    let map = std::fs::read(path.join("map")).unwrap();
    assert!(exits(path, 3, &cat("map")).err.contains("--force overwrites it"));
    exits(path, 0, &[&cat("map")[..], &["--force"]].concat());
    assert_eq!(std::fs::read(path.join("map")).unwrap(), map);
    exits(path, 0, &["man", "pages"]);
    assert!(exits(path, 3, &["man", "pages"]).err.contains("--force overwrites it"));
    exits(path, 0, &["man", "pages", "--force"]);
}

fn block_device() -> Option<std::path::PathBuf> {
    use std::os::unix::fs::FileTypeExt;
    let mut all = std::fs::read_dir("/dev").ok()?.filter_map(Result::ok);
    all.find(|entry| entry.file_type().is_ok_and(|kind| kind.is_block_device()))
        .map(|entry| entry.path())
}

/// The map of an interrupted command lists the data read so far. Here the reader of its output
/// stops, so the map is partial.
#[test]
fn an_interrupted_cat_leaves_a_map_of_what_it_read() {
    let dir = array("64M");
    for signal in [Signal::INT, Signal::TERM] {
        let map = dir.path().join("map");
        let words = ["cat", "--skip-unreadable", "--map", "map", "a", "b", "c"];
        let mut child = command(dir.path(), &words)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut some = vec![0; 20 << 20];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut some).unwrap();
        assert!(!map.exists());
        kill_process(Pid::from_child(&child), signal).unwrap();
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            assert!(start.elapsed() < Duration::from_secs(20), "the command does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(status.code(), Some(128 + signal.as_raw()));
        let (read, all) = read_and_all(&map);
        assert!(read >= 19 << 20 && read < all, "{read} of {all}");
        assert_eq!(common::names(dir.path()), ["a", "b", "c", "map"], "nothing else is left");
        std::fs::remove_file(map).unwrap();
    }
}

/// Number of bytes of a map that were read, and of all bytes.
fn read_and_all(map: &Path) -> (u64, u64) {
    let text = std::fs::read_to_string(map).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#')).skip(1);
    let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
    lines.fold((0, 0), |(read, all), line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let len = number(fields[1]);
        (read + if fields[2] == "+" { len } else { 0 }, all + len)
    })
}
