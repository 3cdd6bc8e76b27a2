//! Images of ddrescue with their maps: data that was not rescued is not used; it is reconstructed
//! from the other members or reported as unreadable.

mod common;

use std::os::unix::fs::FileExt;
use std::path::Path;

use common::client::Client;
use common::{Served, exits, json, weft};
use tempfile::{TempDir, tempdir};
use weft_nbd::{NbdError, Op};

const MIB: usize = 1 << 20;
const SIZE: usize = 8 * MIB;

/// An array of three members without any zero byte, with its content.
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

/// Zeros a range of a member, as ddrescue leaves unreadable data. Returns its map in ddrescue's
/// form.
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
        // Without the map, zeros are data.
        let found = cat();
        assert!(found.status.success() && found.stdout != whole, "{level}: the hole shows");
        std::fs::write(path.join(map), text).unwrap();
        let found = cat();
        let says = String::from_utf8_lossy(&found.stderr).into_owned();
        assert!(found.status.success(), "{says}");
        assert!(says.contains(map) && says.contains("1048576 bytes in 1 areas"), "{says}");
        assert!(found.stdout == whole, "{level}: other bytes with {map}");
        // The commands of rescue give the same content, and every command mentions the map.
        let array = &json(path, &[&["rescue", "--json"], &MEMBERS[..]].concat())["arrays"][0];
        let line = array["commands"][0].as_str().unwrap();
        assert_eq!(line, "weft cat a.img b.img c.img >array.img");
        for command in ["rescue", "examine", "assemble"] {
            let output = weft(path, &[&[command], &MEMBERS[..]].concat());
            let says = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(says.contains(map) && says.contains("were not rescued"), "{command}: {says}");
        }
        // It must not be written: its map would not record the writes.
        let before = std::fs::read(path.join("a.img")).unwrap();
        let refused = exits(path, 3, &[&["serve"], &MEMBERS[..]].concat()).err;
        assert!(refused.contains("a.img: not used: map of ddrescue"), "{refused}");
        assert!(refused.contains("give the slot a new member"), "{refused}");
        let served = ["serve", "--run", "--exec=true", "--name", "t"];
        exits(path, 0, &[&served[..], &MEMBERS].concat());
        assert!(before == std::fs::read(path.join("a.img")).unwrap(), "a.img was written");
    }
}

/// The data of a member is there although its bitmap cannot be read; a damaged superblock is told.
#[test]
fn a_bitmap_that_was_not_rescued_costs_no_data() {
    let (dir, _) = array("5");
    let path = dir.path();
    let create = ["create", "-l5", "-n3", "--chunk=64K", "--assume-clean", "--bitmap=internal"];
    exits(path, 0, &[&create[..], &["--name=vol", "--force"], &MEMBERS].concat());
    let whole = weft(path, &[&["cat"], &MEMBERS[..]].concat());
    assert!(whole.status.success());
    // The bitmap is behind the superblock, which is at byte 4096.
    let text = lose(path, "a.img", 8192, 4096);
    std::fs::write(path.join("a.map"), text).unwrap();
    std::fs::remove_file(path.join("b.img")).unwrap();
    let left = ["a.img", "c.img"];
    let found = weft(path, &[&["cat"], &left[..]].concat());
    assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
    assert!(found.stdout == whole.stdout);
    let array = &json(path, &[&["rescue", "--json"], &left[..]].concat())["arrays"][0];
    assert_eq!(array["commands"][0], "weft cat a.img c.img >array.img");
    let mut image = std::fs::read(path.join("c.img")).unwrap();
    image[4096 + 100] ^= 1;
    std::fs::write(path.join("c.img"), image).unwrap();
    let told = exits(path, 1, &["rescue", "a.img", "c.img"]).out;
    assert!(told.contains("c.img: not used: ") && told.contains("sb_csum"), "{told}");
}

/// A place with unknown content may have had files.
#[test]
fn a_copy_without_the_head_of_an_array_is_not_complete() {
    let (dir, _) = array("1");
    let path = dir.path();
    let superblock = &json(path, &["examine", "--json", "a.img"])["members"][0]["superblock"];
    let start = usize::try_from(superblock["data_offset_bytes"].as_u64().unwrap()).unwrap();
    for name in MEMBERS {
        let text = lose(path, name, start, 4096);
        std::fs::write(path.join(name).with_extension("map"), text).unwrap();
    }
    let copy = ["rescue", "--to", "out", "--json"];
    let told = exits(path, 1, &[&copy[..], &MEMBERS].concat()).out;
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["complete"], false, "{told}");
    let place = &told["places"][0];
    let why = place["copied"].to_string();
    assert!(why.contains("bytes of a signature cannot be read"), "{place}");
}

#[test]
fn data_that_no_member_has_is_unreadable_and_not_zeros() {
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
    // One chunk of each stripe is parity, so one or two chunks of data are lost.
    let differ = skipped.stdout.iter().zip(&whole).filter(|(found, expected)| found != expected);
    let lost = differ.count();
    assert!((60 << 10..=128 << 10).contains(&lost), "{lost}");
    let map = std::fs::read_to_string(path.join("bad")).unwrap();
    assert!(map.lines().any(|line| line.ends_with('-')), "{map}");
}

/// A bare volume has no other member with the data: data that was not rescued is an error, both
/// where zeros are stored and where the image has a hole.
#[test]
fn what_a_bare_image_lacks_is_an_error_and_not_zeros() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    let whole: Vec<u8> = (0..SIZE).map(|at| u8::try_from(at / 512 % 251 + 1).unwrap()).collect();
    let (start, end) = (3 * MIB + 4096, 4 * MIB + 4096);
    for sparse in [false, true] {
        std::fs::write(path.join("a.img"), &whole).unwrap();
        let text = lose(path, "a.img", start, end - start);
        std::fs::write(path.join("a.map"), text).unwrap();
        if sparse {
            let file = std::fs::File::create(path.join("a.img")).unwrap();
            file.set_len(SIZE as u64).unwrap();
            file.write_all_at(&whole[..start], 0).unwrap();
            file.write_all_at(&whole[end..], end as u64).unwrap();
        }
        let served = Served::start(path, &["--bare", "--read-only", "a.img"]);
        let mut client = Client::connect(&served.uri);
        let mut read = |from: usize, to: usize| {
            let (offset, len) = (from as u64, u32::try_from(to - from).unwrap());
            client.request(Op::Read { offset, len, df: false }, &[])
        };
        let unread = [
            (start, start + 512),
            (end - 512, end),
            (start - 512, start + 512),
            (end - 512, end + 512),
            (start, end),
            (start + 4096, start + 4096 + (64 << 10)),
            (start - MIB, end + MIB),
        ];
        for (from, to) in unread {
            let found = read(from, to).map(|bytes| bytes.len());
            assert_eq!(found, Err(NbdError::Io), "{sparse} {from}..{to}");
        }
        for (from, to) in [(0, start), (start - 4096, start), (end, end + 4096), (end, SIZE)] {
            assert!(read(from, to).as_deref() == Ok(&whole[from..to]), "{sparse} {from}..{to}");
        }
        exits(path, 0, &["stop", "a"]);
        let log = served.log.clone();
        assert_eq!(served.wait(), Some(0));
        let log = std::fs::read_to_string(log).unwrap();
        assert!(log.contains("a.map: 1048576 bytes in 1 areas were not rescued"), "{log}");
        assert!(log.contains("not rescued, says its map of ddrescue"), "{log}");
    }
}

/// An image with missing data is refused as a new member and as a bare volume for writing. The
/// refusal gives the remedies, which differ from those for a member of an array.
#[test]
fn what_lacks_some_of_its_disk_is_not_made_a_member() {
    let dir = tempdir().unwrap();
    let path = dir.path();
    std::fs::write(path.join("a.img"), vec![7; SIZE]).unwrap();
    let text = lose(path, "a.img", 3 * MIB, MIB);
    std::fs::write(path.join("a.map"), text).unwrap();
    let before = std::fs::read(path.join("a.img")).unwrap();
    let create = ["create", "-l1", "-n2", "--member-size=8M", "--assume-clean", "--name=vol"];
    exits(path, 0, &[&create[..], &["b.img", "c.img"]].concat());
    let served = Served::start(path, &["b.img", "c.img"]);
    exits(path, 0, &["fail", "vol", "c.img"]);
    let refused: [&[&str]; 8] = [
        &["serve", "--bare", "a.img"],
        &["serve", "--bare", "--overlay", "changes", "a.img"],
        &["serve", "--bare", "a.img@1M+4M"],
        &["create", "-l1", "-n2", "a.img", "missing"],
        &["create", "-l1", "-n2", "--force", "--dry-run", "a.img", "missing"],
        &["add", "vol", "a.img"],
        &["add", "--force", "vol", "a.img"],
        &["re-add", "vol", "a.img"],
    ];
    for words in refused {
        let says = exits(path, 3, words).err;
        let last = says.lines().last().unwrap();
        assert!(last.contains("a.map: 1048576 bytes in 1 areas were not rescued"), "{says}");
        assert!(last.contains("name another file or device, or move the map away"), "{says}");
        assert!(!says.contains("the others") && !says.contains("new member"), "{says}");
        assert_eq!(last.contains("--read-only serves"), words[0] == "serve", "{says}");
    }
    assert!(before == std::fs::read(path.join("a.img")).unwrap(), "a.img was written");
    // A fully rescued part is like any other file, and so is the whole image once the map is
    // removed.
    exits(path, 0, &["create", "-l1", "-n2", "a.img@4M+2M", "missing"]);
    std::fs::rename(path.join("a.map"), path.join("away")).unwrap();
    exits(path, 0, &["add", "vol", "a.img"]);
    exits(path, 0, &["stop", "vol"]);
    assert_eq!(served.wait(), Some(0));
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

/// A map elsewhere can be named, and takes precedence over a map beside the image.
#[test]
fn a_map_that_is_named_is_believed() {
    let (dir, whole) = array("5");
    let path = dir.path();
    let text = lose(path, "a.img", 3 * MIB + 512, MIB);
    std::fs::write(path.join("days.txt"), text).unwrap();
    // Two maps beside it are refused, with any content.
    let all = "# Mapfile. Created by GNU ddrescue\n0 + 1\n0 0x800000 +\n";
    let named = ["--unreadable", "a.img=days.txt"];
    let cat = |words: &[&str]| {
        let found = weft(path, &[&["cat"], words, &MEMBERS].concat());
        (found.status.code(), found.stdout == whole, String::from_utf8(found.stderr).unwrap())
    };
    assert_eq!(cat(&[]), (Some(0), false, String::new()), "zeros are data without a map");
    for beside in [&[][..], &["a.map"], &["a.map", "a.img.map"]] {
        for name in beside {
            std::fs::write(path.join(name), all).unwrap();
        }
        let (status, same, says) = cat(&named);
        assert!(status == Some(0) && same, "{says}");
        assert!(says.contains("days.txt: 1048576 bytes in 1 areas were not rescued"), "{says}");
    }
    for command in ["assemble", "examine"] {
        let says = weft(path, &[&[command], &named[..], &MEMBERS].concat()).stderr;
        let says = String::from_utf8_lossy(&says).into_owned();
        assert!(says.contains("days.txt: 1048576 bytes in 1 areas"), "{command}: {says}");
    }
    // The commands of rescue name the map again.
    let array = &json(path, &[&["rescue", "--json"], &named[..], &MEMBERS].concat())["arrays"][0];
    let lines = array["commands"].as_array().unwrap();
    let lines: Vec<&str> = lines.iter().map(|line| line.as_str().unwrap()).collect();
    assert_eq!(
        lines,
        [
            "weft cat --unreadable a.img=days.txt a.img b.img c.img >array.img",
            "weft serve --read-only --unreadable a.img=days.txt a.img b.img c.img",
            "weft serve --overlay changes --unreadable a.img=days.txt a.img b.img c.img",
        ]
    );
    for line in &lines[1..] {
        let words: Vec<&str> = line.split(' ').skip(2).collect();
        let served = Served::start(path, &[&["--name", "t"], &words[..]].concat());
        let found = Client::connect(&served.uri).read(0, u32::try_from(whole.len()).unwrap());
        assert!(found == whole, "{line}: other bytes");
        exits(path, 0, &["stop", "t"]);
        assert_eq!(served.wait(), Some(0));
    }
    let bare = [&["--bare", "--read-only"], &named[..], &["a.img"]].concat();
    let served = Served::start(path, &bare);
    let read = Op::Read { offset: 3 * MIB as u64 + 512, len: 512, df: false };
    assert_eq!(Client::connect(&served.uri).request(read, &[]), Err(NbdError::Io));
}

#[test]
fn what_is_named_and_is_no_map_of_a_member_is_refused() {
    let (dir, _) = array("5");
    let path = dir.path();
    std::fs::write(path.join("notes"), "0x0 + 1\nhow it went: badly\n").unwrap();
    std::fs::write(path.join("of-array"), "# Mapfile of weft cat --skip-unreadable\n").unwrap();
    for (named, says) in [
        ("a.img=notes", "a.img: notes: line 2: area: found how it went: badly, expected pos size"),
        ("a.img=b.img", "a.img: b.img: line 1: status line: found \\u{1}"),
        ("a.img=none", "a.img: none: No such file or directory"),
        ("a.img=.", "a.img: .: found no regular file, expected a map of GNU ddrescue"),
        ("a.img=of-array", "a.img: of-array: line 1: found a map of weft cat, which counts in"),
        ("d.img=notes", "--unreadable: found the disk d.img, expected one that a member is or is"),
        ("a.img", "--unreadable: found a.img, expected DISK=MAP"),
    ] {
        let commands: [&[&str]; 6] = [
            &["cat"],
            &["rescue"],
            &["examine"],
            &["assemble"],
            &["serve", "--read-only"],
            &["serve", "--overlay", "changes", "--discard-overlay"],
        ];
        for command in commands {
            // Members that are not used are not opened.
            if command.len() > 3 && !says.starts_with("--unreadable") {
                continue;
            }
            let words = [command, &["--unreadable", named], &MEMBERS].concat();
            let found = exits(path, 2, &words).err;
            assert!(found.contains(says), "{words:?}: {found}");
        }
    }
}

const MEMBERS: [&str; 3] = ["a.img", "b.img", "c.img"];
