//! Files out of btrfs: what mkfs.btrfs and the kernel made, subvolumes and snapshots, a log, copies
//! with wrong bytes.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use common::kernel::{blocks, fixture, fixtures, le64, seal};
use common::{bytes, list, make_folder, source, tool};
use sha2::{Digest, Sha256};
use tempfile::tempdir;
use weft_files::btrfs::{Btrfs, Point, Points};
use weft_files::copy::{Folder, Report, Start, copy};
use weft_files::inside::look;
use weft_files::probe::Kind;
use weft_files::source::Shared;
use weft_files::tree::{Attribute, Tree};

/// Paths that the kernel read from an image: kind, mode, names and sum of the content, by the path.
fn expected(name: &str) -> BTreeMap<String, String> {
    let sums = fs::read_to_string(fixtures().join(format!("{name}.sums"))).unwrap();
    let line = |line: &str| {
        let fields: Vec<&str> = line.splitn(5, ' ').collect();
        (fields[4].to_owned(), fields[..4].join(" "))
    };
    sums.lines().map(line).collect()
}

/// Paths of a folder, in the form of [`expected`].
fn found(at: &Path) -> BTreeMap<String, String> {
    let hex = |bytes: &[u8]| format!("{:x}", Sha256::digest(bytes));
    let entry = |(path, seen): (PathBuf, common::Seen)| {
        let whole = at.join(&path);
        let meta = fs::symlink_metadata(&whole).unwrap();
        let mode = meta.mode() & 0o7777;
        let line = match () {
            () if meta.is_dir() => format!("d {mode:o} 1 -"),
            () if meta.is_symlink() => {
                let target = fs::read_link(&whole).unwrap();
                format!("l 777 1 {}", hex(target.as_os_str().as_encoded_bytes()))
            }
            () => format!("f {mode:o} {} {}", seen.links, hex(&fs::read(&whole).unwrap())),
        };
        (path.to_str().unwrap().to_owned(), line)
    };
    list(at).into_iter().map(entry).collect()
}

fn copied(tree: &Btrfs, to: &Path) -> Report {
    copy(tree, &Folder::open(to).unwrap(), Start::Root(b"fs"), false, &mut |_| {}).unwrap()
}

fn open(image: Vec<u8>) -> Btrfs {
    Btrfs::open(&[Rc::new(image)]).unwrap()
}

/// The line with the mode that a copy without the owner has: without the set-user-ID bit.
fn without_owner(line: &str) -> String {
    line.replace("f 4711 ", "f 711 ")
}

/// Attributes of the node of a path.
fn attributes(tree: &Btrfs, path: &str) -> Vec<Attribute> {
    let mut node = tree.node(tree.root()).unwrap();
    for name in path.split('/') {
        let entries = tree.entries(&node).unwrap().list;
        let entry = entries.iter().find(|entry| entry.name == name.as_bytes()).unwrap();
        node = tree.node(entry.id).unwrap();
    }
    tree.attributes(&node).unwrap()
}

/// An image of `mkfs.btrfs` with the content of a folder; `None` for a skip.
fn image(of: &Path, at: &Path, options: &[&str]) -> Option<()> {
    fs::File::create(at).unwrap().set_len(128 << 20).unwrap();
    let mut arguments = vec!["-q", "--rootdir", of.to_str().unwrap()];
    arguments.extend(options);
    arguments.push(at.to_str().unwrap());
    tool("mkfs.btrfs", &arguments, "").map(|_| ())
}

#[test]
fn every_file_that_mkfs_put_there_comes_out() {
    let dir = tempdir().unwrap();
    let from = dir.path().join("from");
    make_folder(&from);
    let kinds: [&[&str]; 5] = [
        &["--csum", "crc32c"],
        &["--csum", "xxhash", "-n", "4096"],
        &["--csum", "sha256", "-n", "65536", "-m", "single"],
        &["--csum", "blake2", "-m", "dup"],
        &["-M", "-O", "^no-holes"],
    ];
    // mkfs.btrfs gives each name of a file an inode of its own.
    let alone = |seen: &common::Seen| common::Seen { links: seen.links.min(1), ..seen.clone() };
    for (kind, number) in kinds.iter().zip(0..) {
        let (at, to) = (dir.path().join("image"), dir.path().join(format!("to{number}")));
        if image(&from, &at, kind).is_none() {
            return;
        }
        let tree = Btrfs::open(&[source(&at)]).unwrap();
        let report = copied(&tree, &to);
        assert!(report.is_complete() && tree.notes.is_empty(), "{kind:?}: {report:?}");
        let found = list(&to.join("fs"));
        for (name, seen) in &list(&from) {
            let found = found.get(name).map(alone);
            assert_eq!(found, Some(alone(seen)), "{kind:?}: {}", name.display());
        }
        assert!(found.len() > 310, "{kind:?}");
        fs::set_permissions(
            to.join("fs/empty"),
            std::os::unix::fs::PermissionsExt::from_mode(0o700),
        )
        .unwrap();
    }
    fs::set_permissions(from.join("empty"), std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .unwrap();
}

#[test]
fn what_the_kernel_packed_linked_and_cloned_comes_out() {
    let dir = tempdir().unwrap();
    let tree = open(fixture("packed"));
    assert_eq!(tree.notes, [""; 0]);
    let report = copied(&tree, dir.path());
    assert!(report.is_complete() && report.damaged.is_empty(), "{report:?}");
    let all = expected("packed");
    // Read-only snapshots are left out. In other snapshots, names of subvolumes that are in the
    // origin only are left out.
    let is_here =
        |path: &String| !path.starts_with("snapshots/first") && path != "snapshots/written/inner";
    let here: BTreeMap<String, String> = all
        .iter()
        .filter(|(path, _)| is_here(path))
        .map(|(path, line)| (path.clone(), without_owner(line)))
        .collect();
    assert!(here.len() > 220 && here.len() < all.len(), "{} of {}", here.len(), all.len());
    assert_eq!(found(&dir.path().join("fs")), here);
    let sparse = fs::metadata(dir.path().join("fs/sparse")).unwrap();
    assert!(sparse.blocks() < 1000, "holes stay holes: {}", sparse.blocks());
    let plain = fs::metadata(dir.path().join("fs/plain")).unwrap();
    assert_eq!((plain.mtime(), plain.mtime_nsec()), (1_234_567_890, 123_456_789));
    for (path, value) in [("plain", "of a file"), ("folder", "of a folder")] {
        let expected = Attribute { name: b"user.comment".into(), value: value.into() };
        assert_eq!(attributes(&tree, path), [expected], "{path}");
    }
}

#[test]
fn a_snapshot_is_a_place_of_its_own() {
    let dir = tempdir().unwrap();
    let image: Shared = Rc::new(fixture("packed"));
    let places = look(vec![("nas".into(), Rc::clone(&image))]).places;
    let names: Vec<&str> = places.iter().map(|place| place.name.as_str()).collect();
    assert_eq!(names, ["nas", "nas:snapshots/first"]);
    assert!(places[0].notes[0].starts_with("1 read-only snapshot"), "{:?}", places[0].notes);
    let Ok((content, _)) = &places[1].content else { panic!("no content") };
    let Kind::Snapshot(id) = content.kind else { panic!("{:?}", content.kind) };
    let tree = Btrfs::open_at(&[image], id).unwrap();
    assert!(copied(&tree, dir.path()).is_complete());
    let all = expected("packed").into_iter();
    let inner = |(path, line): (String, String)| {
        path.strip_prefix("snapshots/first/").map(|path| (path.to_owned(), line))
    };
    let mut expected: BTreeMap<String, String> = all.filter_map(inner).collect();
    expected.remove("inner");
    assert!(expected.contains_key("lzo") && !expected.contains_key("new"));
    assert_eq!(found(&dir.path().join("fs")), expected);
}

#[test]
fn a_log_is_replayed_as_the_kernel_does() {
    let dir = tempdir().unwrap();
    let image = fixture("log");
    let tree = open(image.clone());
    assert!(tree.is_replayed() && tree.notes.is_empty(), "{:?}", tree.notes);
    assert!(copied(&tree, dir.path()).is_complete());
    assert_eq!(found(&dir.path().join("fs")), expected("log"));
    for path in ["attributes", "sub/attributes"] {
        let new = Attribute { name: b"user.new".into(), value: b"new".into() };
        assert_eq!(attributes(&tree, path), [new], "{path}");
    }
    // Without the log, the image has other files, so this test notices a log that is not replayed.
    let mut without = image;
    without[0x1_0060..0x1_0068].fill(0);
    seal(&mut without, 0x1_0000, 4096);
    let old = tempdir().unwrap();
    assert!(copied(&open(without), old.path()).is_complete());
    let old = found(&old.path().join("fs"));
    for path in ["a/removed", "renamed", "sub/renamed"] {
        assert!(old.contains_key(path) && !expected("log").contains_key(path), "{path}");
    }
}

#[test]
fn a_damaged_log_is_a_note_and_the_committed_files_come_out() {
    let mut image = fixture("log");
    let logs = le64(&image, 0x1_0060);
    let is_log = |at: &usize| le64(&image, at + 0x30) == logs;
    let places: Vec<usize> = blocks(&image, 4096).into_iter().filter(is_log).collect();
    assert!(!places.is_empty());
    for at in places {
        image[at + 200] ^= 1;
    }
    let tree = open(image);
    assert!(!tree.is_replayed());
    assert!(tree.notes[0].contains("log is not replayed: block at logical"), "{:?}", tree.notes);
    let dir = tempdir().unwrap();
    let report = copied(&tree, dir.path());
    assert!(!report.is_replayed && !report.is_complete());
    assert!(report.failed.is_empty() && report.damaged.is_empty() && report.suspect.is_empty());
    assert!(dir.path().join("fs/a/removed").exists());
}

#[test]
fn the_other_copy_takes_the_place_of_a_damaged_block() {
    let whole = fixture("packed");
    let all = blocks(&whole, 16384);
    let mut copies: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for at in &all {
        copies.entry(le64(&whole, at + 0x30)).or_default().push(*at);
    }
    // Every block has two copies; the first one of each is damaged, and then the second one.
    for copy in [0, 1] {
        let mut image = whole.clone();
        for places in copies.values().filter(|places| places.len() == 2) {
            image[places[copy] + 120] ^= 0x10;
        }
        let dir = tempdir().unwrap();
        let report = copied(&open(image), dir.path());
        assert!(report.is_complete(), "{copy}: {report:?}");
        assert!(report.files > 80);
    }
    // With both copies of the leaves damaged, files are lost, and each loss is reported.
    let mut image = whole.clone();
    for places in copies.values() {
        let is_leaf = whole[places[0] + 0x64] == 0 && le64(&whole, places[0] + 0x58) >= 256;
        for at in places.iter().filter(|_| is_leaf) {
            image[at + 120] ^= 0x10;
        }
    }
    let dir = tempdir().unwrap();
    let report = copied(&open(image), dir.path());
    assert!(!report.is_complete() && !report.failed.is_empty(), "{report:?}");
}

#[test]
fn a_lost_leaf_of_the_tree_of_roots_makes_every_copy_incomplete() {
    let whole = fixture("log");
    let of = |logical: u64| {
        let all = blocks(&whole, 4096).into_iter();
        all.filter(|at| le64(&whole, at + 0x30) == logical).collect::<Vec<usize>>()
    };
    let root = of(le64(&whole, 0x1_0050))[0];
    let count = usize::from(whole[root + 0x60]);
    assert!(whole[root + 0x64] == 1 && count > 1, "a node with leaves");
    let mut opened = 0;
    for leaf in (0..count).map(|item| le64(&whole, root + 0x65 + 33 * item + 17)) {
        let mut image = whole.clone();
        for at in of(leaf) {
            image[at + 120] ^= 0x10;
        }
        let Ok(tree) = Btrfs::open(&[Rc::new(image)]) else { continue };
        opened += 1;
        assert!(tree.doubts()[0].contains("a part of the tree of roots is lost"));
        let dir = tempdir().unwrap();
        let report = copied(&tree, dir.path());
        assert!(!report.is_complete() && report.doubts == tree.doubts(), "{report:?}");
    }
    assert!(opened > 0);
}

#[test]
fn wrong_bytes_of_a_file_are_named_and_are_zeros() {
    let mut image = fixture("packed");
    let plain = {
        let dir = tempdir().unwrap();
        copied(&open(image.clone()), dir.path());
        fs::read(dir.path().join("fs/plain")).unwrap()
    };
    let places: Vec<usize> = (0..image.len() - 4096)
        .step_by(4096)
        .filter(|at| image[*at..at + 4096] == plain[4096..8192])
        .collect();
    assert_eq!(places.len(), 1, "data is there once");
    image[places[0] + 7] ^= 1;
    let dir = tempdir().unwrap();
    let report = copied(&open(image), dir.path());
    let ranges: Vec<_> = report.damaged.iter().flat_map(|it| &it.ranges).collect();
    assert!(report.damaged.len() == 1 && ranges.len() == 1, "{report:?}");
    let (range, why) = ranges[0];
    assert_eq!(*range, 4096..8192);
    assert!(why.contains("checksum"), "{why}");
    let mut expected = plain;
    expected[4096..8192].fill(0);
    assert!(fs::read(dir.path().join("fs/plain")).unwrap() == expected);
}

#[test]
fn files_of_which_the_checksums_are_lost_come_out_and_are_named() {
    let whole = fixture("packed");
    let mut image = whole.clone();
    let of_sums = blocks(&whole, 16384).into_iter().filter(|at| le64(&whole, at + 0x58) == 7);
    let of_sums: Vec<usize> = of_sums.collect();
    assert!(!of_sums.is_empty());
    for at in of_sums {
        image[at + 120] ^= 0x10;
    }
    let (dir, of_whole) = (tempdir().unwrap(), tempdir().unwrap());
    let report = copied(&open(image), dir.path());
    let same = copied(&open(whole), of_whole.path());
    assert!(report.failed.is_empty() && report.damaged.is_empty(), "{report:?}");
    assert!(same.suspect.is_empty(), "{same:?}");
    let plain = report.suspect.iter().find(|it| it.path == b"plain").unwrap();
    assert!(
        plain.why.contains("bytes 0..20000 may be wrong: its checksums are lost: block at"),
        "{plain:?}"
    );
    let [found, expected] = [&dir, &of_whole].map(|it| fs::read(it.path().join("fs/plain")));
    assert!(found.unwrap() == expected.unwrap());
}

#[test]
fn content_behind_the_end_of_the_device_is_named() {
    let mut image = fixture("packed");
    let last = image.len() as u64 - 8192;
    for at in blocks(&image, 16384) {
        let (owner, level) = (le64(&image, at + 0x58), image[at + 0x64]);
        let items = if owner == 3 && level == 0 { image[at + 0x60] } else { 0 };
        for head in (0..usize::from(items)).map(|item| at + 0x65 + item * 25) {
            let place = u32::from_le_bytes(image[head + 17..head + 21].try_into().unwrap());
            let item = at + 0x65 + place as usize;
            // The chunk of data begins two blocks before the end.
            if image[head + 8] == 228 && le64(&image, item + 0x18) & 1 != 0 {
                image[item + 0x38..item + 0x40].copy_from_slice(&last.to_le_bytes());
                seal(&mut image, at, 16384);
            }
        }
    }
    let dir = tempdir().unwrap();
    let report = copied(&open(image), dir.path());
    assert!(report.files > 80 && report.failed.is_empty(), "{report:?}");
    let of_plain = report.damaged.iter().find(|it| it.path == b"plain").unwrap();
    let (range, why) = of_plain.ranges.last().unwrap();
    assert!(range.end == 20_000 && why.contains("no place on a device"), "{report:?}");
}

#[test]
fn the_second_superblock_takes_the_place_of_the_first() {
    let mut image = fixture("packed");
    image[0x1_0000..0x1_1000].fill(0);
    let tree = open(image.clone());
    assert!(tree.notes[0].contains("the one at byte 67108864 is used"), "{:?}", tree.notes);
    let places = look(vec![("nas".into(), Rc::new(image))]).places;
    assert!(matches!(&places[0].content, Ok((content, _)) if content.kind == Kind::Btrfs(1)));
}

#[test]
fn profiles_over_several_devices_are_read_when_all_are_there() {
    let dir = tempdir().unwrap();
    let from = dir.path().join("from");
    fs::create_dir(&from).unwrap();
    fs::write(from.join("large"), bytes(3, 3_000_000)).unwrap();
    let names: Vec<PathBuf> = (0..4).map(|n| dir.path().join(format!("device{n}"))).collect();
    for profile in ["raid0", "raid1", "raid10", "raid1c3", "raid5"] {
        for name in &names {
            fs::File::create(name).unwrap().set_len(160 << 20).unwrap();
        }
        let mut arguments = vec!["-q", "-f", "-d", profile, "-m", profile];
        arguments.extend(names.iter().map(|name| name.to_str().unwrap()));
        // The folder comes with the first device in some releases of mkfs.btrfs only.
        if tool("mkfs.btrfs", &arguments, "").is_none() {
            return;
        }
        let devices: Vec<Shared> = names.iter().map(|name| source(name)).collect();
        let all = Btrfs::open(&devices);
        let some = Btrfs::open(&devices[..3]).err().unwrap().to_string();
        assert!(some.contains("on 4 devices, of which 3 are here"), "{profile}: {some}");
        match profile {
            "raid5" => assert!(all.err().unwrap().to_string().contains("RAID5")),
            _ => {
                let tree = all.unwrap();
                let root = tree.node(tree.root()).unwrap();
                assert!(tree.entries(&root).unwrap().list.is_empty(), "{profile}");
            }
        }
        let sources = devices.into_iter().zip(0..).map(|(it, n)| (format!("d{n}"), it)).collect();
        let places = look(sources).places;
        assert_eq!((places[0].devices().len(), places[1].devices().len()), (4, 1), "{profile}");
    }
}

#[test]
fn points_lead_from_a_superblock_over_all_trees_without_a_device() {
    let image = fixture("packed");
    let part = |at: u64, len: u64| {
        let at = usize::try_from(at).unwrap();
        &image[at..at + usize::try_from(len).unwrap()]
    };
    assert!(Points::of(part(0, 4096)).is_none());
    let mut points = Points::of(part(64 << 10, 4096)).unwrap();
    assert!(points.superblocks().all(|at| points.is_superblock(at, part(at, 4096))));
    assert!(!points.is_superblock(64 << 20, part(64 << 10, 4096)));
    let (block, sector) = points.lens();
    let (mut blocks, mut sectors) = (BTreeMap::new(), 0);
    let mut waiting = points.roots();
    while let Some(point) = waiting.pop() {
        let len = if matches!(point, Point::Block(_)) { block } else { sector };
        let places = points.places(&point);
        for at in &places {
            let mut bytes = part(*at, len).to_vec();
            assert!(points.holds(&point, &bytes), "{point:?} at {at}");
            *bytes.last_mut().unwrap() ^= 1;
            assert!(!points.holds(&point, &bytes), "{point:?} with another byte");
        }
        match point {
            Point::Block(at) => {
                assert!(points.begins(at, part(places[0], 101)));
                if blocks.insert(at, places.len()).is_none() {
                    waiting.extend(points.below(at, part(places[0], len)));
                }
            }
            Point::Sector(..) => sectors += 1,
        }
    }
    let twice = blocks.values().filter(|copies| **copies == 2).count();
    assert!(twice >= 10 && sectors > 10, "{blocks:?} {sectors}");
}
