//! Images of ddrescue with their map beside them: what was not rescued is no data, it is computed
//! from the other members or told as unreadable.

mod common;

use std::path::Path;

use common::{exits, json, weft};
use tempfile::{TempDir, tempdir};

const MIB: usize = 1 << 20;
const SIZE: usize = 8 * MIB;

/// An array of three members without a byte of zero, and its content.
fn array(level: &str) -> (TempDir, Vec<u8>) {
    let dir = tempdir().unwrap();
    let byte = |at: usize, of: usize| u8::try_from((at / 512 * of + at / 7) % 251 + 1).unwrap();
    let a: Vec<u8> = (0..SIZE).map(|at| byte(at, 3)).collect();
    let b: Vec<u8> =
        if level == "1" { a.clone() } else { (0..SIZE).map(|at| byte(at, 5)).collect() };
    let c: Vec<u8> = match level {
        "1" => a.clone(),
        _ => a.iter().zip(&b).map(|(a, b)| a ^ b).collect(),
    };
    for (name, bytes) in [("a.img", a), ("b.img", b), ("c.img", c)] {
        std::fs::write(dir.path().join(name), bytes).unwrap();
    }
    let mut create = vec!["create", "--level", level, "-n3", "--assume-clean", "--name=vol"];
    if level != "1" {
        create.extend(["--chunk", "64K"]);
    }
    exits(dir.path(), 0, &[&create[..], &MEMBERS].concat());
    let whole = weft(dir.path(), &[&["cat"], &MEMBERS[..]].concat());
    assert!(whole.status.success());
    (dir, whole.stdout)
}

/// Zeros a range of a member, as ddrescue leaves what it cannot read; its map, as ddrescue has it.
fn lose(dir: &Path, name: &str, start: usize, len: usize) -> String {
    let path = dir.join(name);
    let mut image = std::fs::read(&path).unwrap();
    image[start..start + len].fill(0);
    std::fs::write(path, image).unwrap();
    format!(
        "# Mapfile. Created by GNU ddrescue version 1.27\n# Command line: ddrescue /dev/sdx {name}\n\
         # current_pos  current_status  current_pass\n{start:#x}     +               1\n\
         #      pos        size  status\n0x00000000  {start:#x}  +\n{start:#x}  {len:#x}  -\n\
         {:#x}  {:#x}  +\n",
        start + len,
        SIZE - start - len
    )
}

#[test]
fn what_was_not_rescued_is_computed_from_the_others() {
    for (level, map) in [("5", "a.img.map"), ("5", "a.log"), ("1", "a.map"), ("1", "a.img.mapfile")]
    {
        let (dir, whole) = array(level);
        let path = dir.path();
        let text = lose(path, "a.img", 3 * MIB + 512, MIB);
        let cat = || weft(path, &[&["cat"], &MEMBERS[..]].concat());
        // Without its map, zeros are data.
        let found = cat();
        assert!(found.status.success() && found.stdout != whole, "{level}: the hole shows");
        std::fs::write(path.join(map), text).unwrap();
        let found = cat();
        let says = String::from_utf8_lossy(&found.stderr).into_owned();
        assert!(found.status.success(), "{says}");
        assert!(says.contains(map) && says.contains("1048576 bytes in 1 areas"), "{says}");
        assert!(found.stdout == whole, "{level}: other bytes with {map}");
        // The lines of rescue give the same, and every look tells of the map.
        let array = &json(path, &[&["rescue", "--json"], &MEMBERS[..]].concat())["arrays"][0];
        let line = array["commands"][0].as_str().unwrap();
        assert_eq!(line, "weft cat a.img b.img c.img >array.img");
        for command in ["rescue", "examine", "assemble"] {
            let output = weft(path, &[&[command], &MEMBERS[..]].concat());
            let says = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(says.contains(map) && says.contains("were not rescued"), "{command}: {says}");
        }
        // Written it must not be: its map would not know.
        let before = std::fs::read(path.join("a.img")).unwrap();
        let refused = exits(path, 3, &[&["serve"], &MEMBERS[..]].concat()).err;
        assert!(refused.contains("a.img: not used: map of ddrescue"), "{refused}");
        assert!(refused.contains("give the slot a new member"), "{refused}");
        let served = ["serve", "--run", "--exec=true", "--name", "t"];
        exits(path, 0, &[&served[..], &MEMBERS].concat());
        assert!(before == std::fs::read(path.join("a.img")).unwrap(), "a.img was written");
    }
}

#[test]
fn what_nobody_has_is_unreadable_and_not_zeros() {
    let (dir, whole) = array("5");
    let path = dir.path();
    for name in ["a.img", "b.img"] {
        let text = lose(path, name, 3 * MIB, 64 << 10);
        std::fs::write(path.join(name).with_extension("map"), text).unwrap();
    }
    let plain = weft(path, &[&["cat"], &MEMBERS[..]].concat());
    assert_eq!(plain.status.code(), Some(1));
    let skip = ["cat", "--skip-unreadable", "--map", "bad"];
    let skipped = weft(path, &[&skip[..], &MEMBERS].concat());
    let says = String::from_utf8_lossy(&skipped.stderr).into_owned();
    assert_eq!(skipped.status.code(), Some(1), "{says}");
    assert_eq!(skipped.stdout.len(), whole.len());
    // A chunk of each stripe is parity: what is lost of data is one chunk or two.
    let differ = skipped.stdout.iter().zip(&whole).filter(|(found, expected)| found != expected);
    let lost = differ.count();
    assert!((60 << 10..=128 << 10).contains(&lost), "{lost}");
    let map = std::fs::read_to_string(path.join("bad")).unwrap();
    assert!(map.lines().any(|line| line.ends_with('-')), "{map}");
}

#[test]
fn a_damaged_map_is_named_and_a_log_of_something_else_is_none() {
    let (dir, whole) = array("5");
    let path = dir.path();
    std::fs::write(path.join("a.log"), "weft serve was here\n").unwrap();
    let found = weft(path, &[&["cat"], &MEMBERS[..]].concat());
    assert!(found.stdout == whole && found.stderr.is_empty(), "{found:?}");
    let text = lose(path, "a.img", 3 * MIB, MIB).replace("0x100000  -", "0x100000  !");
    std::fs::write(path.join("a.map"), text).unwrap();
    for command in ["cat", "rescue", "examine", "assemble"] {
        let refused = exits(path, 2, &[&[command], &MEMBERS[..]].concat()).err;
        assert!(refused.contains("a.map: line 7: status: found !"), "{command}: {refused}");
    }
}

const MEMBERS: [&str; 3] = ["a.img", "b.img", "c.img"];
