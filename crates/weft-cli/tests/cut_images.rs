//! Members that end before their data: data beyond the end is reconstructed from the others, and
//! unrecoverable blocks are reported one by one.

mod common;

use std::path::Path;
use std::process::{Command, Output};

use common::{Fixture, contents, exits, json, weft};
use tempfile::tempdir;

const SIZE: usize = 8 << 20;
const CUT: u64 = (5 << 20) + 512;

/// A RAID 5 of three members in sync: at every offset the XOR over all members is zero.
fn array(dir: &Path) {
    let byte = |at: usize, of: usize| u8::try_from((at / 512 * of + at / 7) % 251).unwrap();
    let a: Vec<u8> = (0..SIZE).map(|at| byte(at, 3)).collect();
    let b: Vec<u8> = (0..SIZE).map(|at| byte(at, 5)).collect();
    let c: Vec<u8> = a.iter().zip(&b).map(|(a, b)| a ^ b).collect();
    for (name, bytes) in [("a", a), ("b", b), ("c", c)] {
        std::fs::write(dir.join(name), bytes).unwrap();
    }
    let create = ["create", "--level", "5", "-n3", "--chunk", "64K", "--assume-clean"];
    exits(dir, 0, &[&create[..], &["a", "b", "c"]].concat());
}

fn cut(dir: &Path, name: &str) {
    std::fs::File::options().write(true).open(dir.join(name)).unwrap().set_len(CUT).unwrap();
}

fn cat(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    command.current_dir(dir).arg("cat").args(arguments).output().unwrap()
}

#[test]
fn the_end_of_a_cut_image_is_computed_from_the_others() {
    let dir = tempdir().unwrap();
    array(dir.path());
    let whole = cat(dir.path(), &["a", "b", "c"]);
    assert!(whole.status.success() && whole.stdout.len() > 12 << 20);
    for name in ["a", "b", "c"] {
        let dir = tempdir().unwrap();
        array(dir.path());
        cut(dir.path(), name);
        let before = contents(dir.path());
        let found = cat(dir.path(), &["a", "b", "c"]);
        let says = String::from_utf8_lossy(&found.stderr).into_owned();
        assert!(found.status.success(), "{name}: {says}");
        assert!(says.contains("what lies behind is computed"), "{name}: {says}");
        assert!(found.stdout == whole.stdout, "{name}: other bytes");
        // It must not be written: it has no room for the data.
        let refused = exits(dir.path(), 3, &["serve", "--name", "t", "a", "b", "c"]).err;
        assert!(refused.contains("not used: superblock data_offset"), "{refused}");
        assert!(refused.contains("compute its end from the others"), "{refused}");
        assert_eq!(contents(dir.path()), before);
        // With consent the others are written without it.
        let served = ["serve", "--run", "--exec=true", "--name", "t", "a", "b", "c"];
        let said = exits(dir.path(), 0, &served).err;
        assert!(said.contains("compute its end from the others"), "{said}");
        let after = contents(dir.path());
        let untouched = before.iter().find(|(path, _)| path.ends_with(name)).unwrap();
        assert!(after.contains(untouched), "{name} was written");
    }
}

#[test]
fn what_cannot_be_computed_is_an_error_and_can_be_skipped() {
    let dir = tempdir().unwrap();
    array(dir.path());
    let whole = cat(dir.path(), &["a", "b", "c"]).stdout;
    cut(dir.path(), "b");
    // With another member missing, some data beyond the end is lost.
    let plain = cat(dir.path(), &["a", "b"]);
    assert_eq!(plain.status.code(), Some(1));
    assert!(plain.stdout.len() < whole.len());
    for window in [&[][..], &["--offset", "6M"], &["--offset", "9001K", "--length", "1027K"]] {
        let arguments =
            [&["--skip-unreadable", "--map", "map", "--force"], window, &["a", "b"]].concat();
        let skipped = cat(dir.path(), &arguments);
        let says = String::from_utf8_lossy(&skipped.stderr).into_owned();
        assert_eq!(skipped.status.code(), Some(1), "{says}");
        let map = std::fs::read_to_string(dir.path().join("map")).unwrap();
        let mut areas: Vec<(usize, usize, char)> = Vec::new();
        for line in map.lines().filter(|line| !line.starts_with('#')).skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let number = |text: &str| usize::from_str_radix(&text[2..], 16).unwrap();
            let status = fields[2].chars().next().unwrap();
            areas.push((number(fields[0]), number(fields[1]), status));
        }
        // The areas are contiguous and cover the array.
        let mut next = 0;
        let (mut good, mut bad, mut lost) = (0, 0, 0);
        let first = areas.iter().take_while(|area| area.2 == '?').map(|area| area.1).sum::<usize>();
        for (start, len, status) in areas {
            assert_eq!(start, next, "{map}");
            next += len;
            if status == '?' {
                continue;
            }
            let found = &skipped.stdout[start - first..][..len];
            let expected = &whole[start..next];
            match status {
                '+' => {
                    assert!(found == expected, "{len} bytes at {start}");
                    good += len;
                }
                '-' => {
                    assert!(found.iter().all(|byte| *byte == 0), "{len} bytes at {start}");
                    lost += found.iter().zip(expected).filter(|(a, b)| a != b).count();
                    bad += len;
                }
                other => panic!("{other}: {map}"),
            }
        }
        assert_eq!((next, good + bad), (whole.len(), skipped.stdout.len()), "{map}");
        assert!(good > 0 && bad > 0 && lost > bad / 2, "{good} good, {bad} bad, {lost} lost");
        assert!(says.contains(&format!("{bad} bytes in")), "{says}");
    }
}

/// Superblocks of versions 1.0 and 0.90 are at the end: a cut image does not show which member it
/// was, and each command reports that it may have been cut.
#[test]
fn a_cut_image_that_had_its_superblock_at_the_end_is_reported() {
    // Cut in the data, and after the data: the second lacks only the superblock. With 0.90 the data
    // ends where the superblock begins.
    let images: [(&str, u64, u64, &str); 2] = [
        ("raid1-3-v10-bitmap", 3 << 20, 6056 * 512, "where an image that is cut has none"),
        ("raid5-4-v090", 2 << 20, 3968 * 512, "expected it at byte 2097152 or behind that"),
    ];
    for (name, size, behind_data, says_behind) in images {
        let dir = tempdir().unwrap();
        let path = dir.path();
        let fixture = Fixture::of(name);
        let members = fixture.unpack(path);
        let rescue = || {
            let words = [
                &["rescue", "--json"],
                &members.iter().map(String::as_str).collect::<Vec<_>>()[..],
            ];
            json(path, &words.concat())
        };
        let notices = |seen: &serde_json::Value| seen["disks"][1]["notices"].clone();
        let whole = rescue();
        assert_eq!(whole["disks"][1]["size_bytes"], size);
        assert_eq!(notices(&whole), serde_json::json!([]), "{name}: nothing is cut");
        let inside = "found its end at byte 1048576, expected it at byte ";
        for (end, says) in [(behind_data, says_behind), (1 << 20, inside)] {
            let file = std::fs::File::options().write(true).open(path.join("m1.img")).unwrap();
            file.set_len(end).unwrap();
            let seen = rescue();
            let told = notices(&seen);
            assert!(told[0].as_str().unwrap().contains(says), "{name} {end}: {told}");
            assert!(told[0].as_str().unwrap().contains("copy the rest too"), "{name}: {told}");
            assert_eq!(told.as_array().unwrap().len(), 1, "{name} {end}: {told}");
            assert_eq!(seen["arrays"][0]["missing_slots"], serde_json::json!([1]), "{name}");
            // The others hold all data.
            let all = [&["cat".to_owned()], &members[..]].concat();
            let found = weft(path, &all);
            let says = String::from_utf8_lossy(&found.stderr).into_owned();
            assert!(found.status.success() && found.stdout == fixture.content(), "{name}: {says}");
            assert!(says.contains("m1.img: not used: no md superblock found"), "{says}");
            assert!(says.contains(CUT_HAS_NONE), "{says}");
            // The cut member alone gives only the hint about its end.
            for (command, status) in
                [("assemble", 3), ("cat", 3), ("examine", 1), ("rescue", 1), ("serve", 3)]
            {
                let said = exits(path, status, &[command, "m1.img"]);
                let text = said.err + &said.out;
                assert!(text.contains(CUT_HAS_NONE), "{name}: {command}: {text}");
                assert!(!text.contains("create"), "{name}: {command}: {text}");
            }
        }
    }
}

const CUT_HAS_NONE: &str = "an image that is cut has none: copy the rest too";
