//! Files out of ext2, ext3 and ext4: every byte, mode, time and name; journals that are not empty.

mod common;

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

use common::{bytes, file_source, image, list, make_folder, source, tool};
use tempfile::tempdir;
use weft_files::copy::{Folder, Report, Start, copy};
use weft_files::ext4::Ext4;
use weft_files::inside::look;
use weft_files::probe::Kind;
use weft_files::source::Shared;
use weft_files::tree::{Tree, TreeError};

fn copied(from: &Shared, to: &Path) -> Report {
    let tree = Ext4::open(from).unwrap();
    copy(&tree, &Folder::open(to).unwrap(), Start::Root(b"fs"), false, &mut |_| {}).unwrap()
}

/// Gives write permission to the folders in a folder, so that all of it can be removed.
fn unlock(at: &Path) {
    for (path, seen) in list(at) {
        if seen.what == "folder" {
            fs::set_permissions(at.join(path), fs::Permissions::from_mode(0o700)).unwrap();
        }
    }
}

#[test]
fn every_file_of_every_kind_of_ext_comes_out_as_it_went_in() {
    let kinds: [&[&str]; 8] = [
        &["-t", "ext4"],
        &["-t", "ext4", "-b", "1024"],
        &["-t", "ext4", "-O", "^metadata_csum,^64bit"],
        &["-t", "ext4", "-O", "inline_data", "-I", "256"],
        &["-t", "ext4", "-O", "bigalloc", "-C", "16384"],
        &["-t", "ext4", "-O", "meta_bg,^resize_inode", "-b", "1024", "-g", "8192"],
        &["-t", "ext3", "-b", "1024"],
        &["-t", "ext2", "-b", "4096", "-I", "128"],
    ];
    let dir = tempdir().unwrap();
    let from = dir.path().join("from");
    make_folder(&from);
    let expected = list(&from);
    assert!(expected.len() > 310, "{}", expected.len());
    for (kind, number) in kinds.iter().zip(0..) {
        let (at, to) = (dir.path().join("image"), dir.path().join(format!("to{number}")));
        if image(&from, &at, 64, kind).is_none() {
            return;
        }
        let before = fs::read(&at).unwrap();
        let report = copied(&source(&at), &to);
        assert!(report.is_complete(), "{kind:?}: {report:?}");
        let found = list(&to.join("fs"));
        for (name, seen) in &expected {
            assert_eq!(found.get(name), Some(seen), "{kind:?}: {}", name.display());
        }
        assert_eq!(found.len(), expected.len(), "{kind:?}");
        let sparse = fs::metadata(to.join("fs/sparse")).unwrap();
        assert!(sparse.blocks() < 1000, "{kind:?}: holes stay holes, {}", sparse.blocks());
        // A second copy has nothing to do.
        let again = copied(&source(&at), &to);
        assert_eq!((again.files, again.bytes, again.kept.len()), (0, 0, 0), "{kind:?}: {again:?}");
        assert!(fs::read(&at).unwrap() == before, "the image is as it was");
        unlock(&to);
    }
    unlock(&from);
}

#[test]
fn attributes_come_out_of_inodes_and_blocks() {
    let dir = tempdir().unwrap();
    let (from, at) = (dir.path().join("from"), dir.path().join("image"));
    fs::create_dir(&from).unwrap();
    fs::write(from.join("a"), "x").unwrap();
    if image(&from, &at, 8, &["-t", "ext4"]).is_none() {
        return;
    }
    let value = "long value ".repeat(60);
    let script = format!("ea_set /a user.short one\nea_set /a user.long \"{value}\"\n");
    tool("debugfs", &["-w", "-f", "/dev/stdin", at.to_str().unwrap()], &script);
    let tree = Ext4::open(&source(&at)).unwrap();
    let root = tree.node(tree.root()).unwrap();
    let entries = tree.entries(&root).unwrap().list;
    let a = entries.iter().find(|entry| entry.name == b"a").unwrap();
    let mut attributes = tree.attributes(&tree.node(a.id).unwrap()).unwrap();
    attributes.sort_by(|a, b| a.name.cmp(&b.name));
    let found: Vec<(&[u8], &[u8])> =
        attributes.iter().map(|it| (it.name.as_slice(), it.value.as_slice())).collect();
    assert_eq!(found, [(&b"user.long"[..], value.as_bytes()), (&b"user.short"[..], b"one")]);
}

/// Blocks of a file, by debugfs.
fn blocks_of(at: &Path, name: &str) -> Vec<u64> {
    let said = tool("debugfs", &["-R", &format!("blocks {name}"), at.to_str().unwrap()], "");
    let said = said.unwrap();
    let numbers = said.lines().filter(|line| !line.starts_with("debugfs"));
    numbers.flat_map(str::split_whitespace).map(|word| word.parse().unwrap()).collect()
}

#[test]
fn a_journal_that_was_not_replayed_counts_and_stays_as_it_is() {
    let dir = tempdir().unwrap();
    let from = dir.path().join("from");
    fs::create_dir(&from).unwrap();
    for name in ["one", "two", "three"] {
        fs::write(from.join(name), bytes(3, 8192)).unwrap();
    }
    let kinds: [(&[&str], &str); 4] = [
        (&["-t", "ext4", "-b", "4096"], "jo -c -v 3"),
        (&["-t", "ext4", "-b", "4096"], "jo"),
        (&["-t", "ext4", "-b", "4096", "-O", "^metadata_csum,^64bit"], "jo"),
        (&["-t", "ext3", "-b", "1024"], "jo"),
    ];
    for (kind, open) in kinds {
        let at = dir.path().join("image");
        if image(&from, &at, 32, kind).is_none() {
            return;
        }
        let block = if kind.contains(&"1024") { 1024 } else { 4096 };
        // The new block begins with the magic number of the journal, so its copy in the journal is
        // escaped.
        let mut new = bytes(99, block);
        new[..4].copy_from_slice(&0xc03b_3998_u32.to_be_bytes());
        let new_at = dir.path().join("new");
        fs::write(&new_at, &new).unwrap();
        let (one, two) = (blocks_of(&at, "/one")[1], blocks_of(&at, "/two")[1]);
        let script = format!(
            "{open}\njw -b {one} {new}\njw -b {two} {new}\njw -r {two}\njc\n",
            new = new_at.display()
        );
        tool("debugfs", &["-w", "-f", "/dev/stdin", at.to_str().unwrap()], &script);
        let before = fs::read(&at).unwrap();
        let tree = Ext4::open(&source(&at)).unwrap();
        assert!(tree.notes.iter().any(|note| note.contains("3 transactions")), "{:?}", tree.notes);
        assert!(tree.is_replayed(), "{kind:?}: {:?}", tree.notes);
        let to = tempdir().unwrap();
        let report = copied(&source(&at), to.path());
        assert!(report.is_complete(), "{kind:?}: {report:?}");
        let mut expected = bytes(3, 8192);
        let read = |name| fs::read(to.path().join("fs").join(name)).unwrap();
        assert!(read("two") == expected && read("three") == expected, "{kind:?}: revoked");
        expected[block..2 * block].copy_from_slice(&new);
        assert!(read("one") == expected, "{kind:?}: replayed");
        assert!(fs::read(&at).unwrap() == before, "the image is as it was");
        if open.ends_with("-v 3") {
            // The new block is in the image twice; the first place is in the journal.
            let mut hurt = before;
            let first = hurt.windows(64).position(|part| part == &new[4..68]).unwrap();
            hurt[first] ^= 1;
            let hurt: Shared = std::rc::Rc::new(hurt);
            let tree = Ext4::open(&hurt).unwrap();
            assert!(!tree.is_replayed(), "{:?}", tree.notes);
        }
    }
}

#[test]
fn a_damaged_first_superblock_is_replaced_and_an_unknown_feature_is_refused() {
    let dir = tempdir().unwrap();
    let (from, at) = (dir.path().join("from"), dir.path().join("image"));
    fs::create_dir(&from).unwrap();
    fs::write(from.join("a"), bytes(5, 10_000)).unwrap();
    if image(&from, &at, 32, &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"]).is_none() {
        return;
    }
    let mut bytes_of = fs::read(&at).unwrap();
    bytes_of[1024 + 0x62] |= 0x80;
    fs::write(&at, &bytes_of).unwrap();
    let refused = Ext4::open(&source(&at)).err().unwrap();
    assert!(matches!(&refused, TreeError::Refused(says) if says.contains("0x800000")), "{refused}");
    bytes_of[1024..4096].fill(0xff);
    fs::write(&at, &bytes_of).unwrap();
    let to = tempdir().unwrap();
    let report = copied(&source(&at), to.path());
    assert!(report.is_complete(), "{report:?}");
    assert!(fs::read(to.path().join("fs/a")).unwrap() == bytes(5, 10_000));
}

/// First byte of the only inode of this size with the magic number of extents in its content.
fn inode_of(image: &[u8], size: u32) -> usize {
    let is_it = |at: &usize| {
        image[at + 4..at + 8] == size.to_le_bytes() && image[at + 40..at + 42] == [0x0a, 0xf3]
    };
    let found: Vec<usize> = (0..image.len() - 128).step_by(128).filter(is_it).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0]
}

#[test]
fn damaged_trees_of_extents_are_reported_and_are_no_holes() {
    let dir = tempdir().unwrap();
    let (from, at) = (dir.path().join("from"), dir.path().join("image"));
    fs::create_dir(&from).unwrap();
    fs::write(from.join("flat"), bytes(5, 12_345)).unwrap();
    let deep = fs::File::create(from.join("deep")).unwrap();
    for part in 0..8 {
        deep.write_all_at(&bytes(part, 4096), part * 16384).unwrap();
    }
    deep.set_len(131_073).unwrap();
    if image(&from, &at, 8, &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"]).is_none() {
        return;
    }
    let whole = fs::read(&at).unwrap();
    let (flat, deep) = (inode_of(&whole, 12_345) + 40, inode_of(&whole, 131_073) + 40);
    assert_eq!((whole[flat + 6], whole[deep + 6]), (0, 1), "depths");
    let leaf = u32::from_le_bytes(whole[deep + 16..deep + 20].try_into().unwrap());
    let leaf = usize::try_from(leaf).unwrap() * 1024;
    assert_eq!(whole[leaf..leaf + 2], [0x0a, 0xf3]);
    let copied = |changes: &[(usize, u8)]| {
        let mut image = whole.clone();
        for (at, byte) in changes {
            image[*at] = *byte;
        }
        let to = tempdir().unwrap();
        let image: Shared = std::rc::Rc::new(image);
        self::copied(&image, to.path())
    };
    assert!(copied(&[]).is_complete());
    for (changes, lost, says) in [
        (&[(flat + 16, 0), (flat + 17, 0)][..], 12_345, "an extent of 0 blocks"),
        (&[(leaf + 2, 0)], 131_073, "0 entries"),
        (&[(leaf + 12, 1)], 131_073, "the first block 1"),
        (&[(deep + 2, 0)], 131_073, "0 entries"),
    ] {
        let report = copied(changes);
        assert_eq!(report.bytes_lost(), lost, "{says}: {report:?}");
        assert!(report.damaged[0].ranges[0].1.contains(says), "{report:?}");
    }
}

#[test]
fn a_hole_in_a_directory_is_reported() {
    let dir = tempdir().unwrap();
    let (from, at) = (dir.path().join("from"), dir.path().join("image"));
    make_folder(&from);
    if image(&from, &at, 64, &["-t", "ext2", "-b", "1024", "-I", "128"]).is_none() {
        return;
    }
    let script = "set_inode_field /photos/2026 block[3] 0\n";
    tool("debugfs", &["-w", "-f", "/dev/stdin", at.to_str().unwrap()], script);
    let to = dir.path().join("to");
    let report = copied(&source(&at), &to);
    assert_eq!(report.failed.len(), 1, "{report:?}");
    assert_eq!(report.failed[0].path, b"photos/2026");
    assert!(report.failed[0].why.contains("bytes 3072..4096: found a hole"), "{report:?}");
    unlock(&to);
    unlock(&from);
}

/// Copies an image with other bytes at some places; returns the notes of the file system too.
fn changed(image: &[u8], changes: &[usize], to: &Path) -> (Report, Vec<String>) {
    let mut image = image.to_vec();
    changes.iter().for_each(|at| image[*at] ^= 0x10);
    let image: Shared = std::rc::Rc::new(image);
    let notes = Ext4::open(&image).unwrap().notes;
    (copied(&image, to), notes)
}

/// The only place of these bytes at a multiple of `step`.
fn place_of(image: &[u8], wanted: &[u8], step: usize) -> usize {
    let found: Vec<usize> =
        (0..image.len()).step_by(step).filter(|at| image[*at..].starts_with(wanted)).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0]
}

#[test]
fn wrong_checksums_are_told_with_file_and_block_and_the_data_is_copied() {
    let dir = tempdir().unwrap();
    let (from, at) = (dir.path().join("from"), dir.path().join("image"));
    fs::create_dir_all(from.join("folder")).unwrap();
    fs::write(from.join("folder/name-of-it"), bytes(5, 12_345)).unwrap();
    let deep = fs::File::create(from.join("deep")).unwrap();
    for part in 0..8 {
        deep.write_all_at(&bytes(part, 4096), part * 16384).unwrap();
    }
    if image(&from, &at, 8, &["-t", "ext4", "-b", "1024", "-O", "metadata_csum"]).is_none() {
        return;
    }
    let value = "long value ".repeat(60);
    let script = format!("ea_set /deep user.long \"{value}\"\n");
    tool("debugfs", &["-w", "-f", "/dev/stdin", at.to_str().unwrap()], &script);
    let whole = fs::read(&at).unwrap();
    let leaf = place_of(&whole, &[0x0a, 0xf3], 1024);
    let attributes = place_of(&whole, &0xea02_0000_u32.to_le_bytes(), 1024);
    let name = place_of(&whole, b"name-of-it", 4);
    let inode = inode_of(&whole, 12_345);
    let to = tempdir().unwrap();
    let (report, _) = changed(&whole, &[], to.path());
    assert!(report.is_complete() && report.files == 2, "{report:?}");
    for (place, path, says) in [
        // A byte behind the last extent.
        (leaf + 500, "deep", format!("bytes 0..118784 may be wrong: block {} of", leaf / 1024)),
        (attributes + 40, "deep", format!("block {} of attributes, checksum", attributes / 1024)),
        (name + 4, "folder", "names at byte 0, checksum".to_owned()),
        // The time of the last access.
        (inode + 8, "folder/name-of-it", "checksum: found".to_owned()),
    ] {
        let to = tempdir().unwrap();
        let (report, _) = changed(&whole, &[place], to.path());
        assert_eq!((report.files, report.damaged.len()), (2, 0), "{report:?}");
        assert_eq!(report.suspect.len(), 1, "{report:?}");
        assert_eq!(report.suspect[0].path, path.as_bytes(), "{report:?}");
        assert!(report.suspect[0].why.contains(&says), "{says}: {report:?}");
        assert!(!report.is_complete());
        let found = list(&to.path().join("fs"));
        let file = found.get(Path::new("deep")).unwrap();
        assert_eq!(file.what, list(&from)[Path::new("deep")].what, "the data is all there");
    }
}

#[test]
fn damaged_descriptors_of_groups_are_replaced_by_their_copies() {
    let dir = tempdir().unwrap();
    let (from, at) = (dir.path().join("from"), dir.path().join("image"));
    make_folder(&from);
    let kinds: [&[&str]; 5] = [
        &["-t", "ext4", "-b", "1024", "-O", "metadata_csum,64bit"],
        &["-t", "ext4", "-b", "1024", "-O", "metadata_csum,^64bit"],
        &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,uninit_bg,^64bit"],
        &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,uninit_bg,64bit"],
        &["-t", "ext4", "-b", "1024", "-O", "metadata_csum,meta_bg,^resize_inode"],
    ];
    for kind in kinds {
        if image(&from, &at, 64, kind).is_none() {
            return;
        }
        let mut whole = fs::read(&at).unwrap();
        // The block of descriptors is block 2; copies of it follow the backups of the superblock.
        let first = 2048;
        let to = dir.path().join("to");
        let (report, notes) = changed(&whole, &[first + 8, first + 9], &to);
        assert!(report.is_complete(), "{kind:?}: {report:?}");
        let says = "descriptor of group 0: checksum: found";
        assert!(notes.iter().any(|note| note.contains(says)), "{kind:?}: {notes:?}");
        assert_eq!(list(&to.join("fs")).len(), list(&from).len(), "{kind:?}");
        unlock(&to);
        fs::remove_dir_all(&to).unwrap();
        // Without a sound copy, the descriptor is used as far as it is possible, and is doubtful.
        let descriptor = whole[first..first + 32].to_vec();
        for at in (0..whole.len()).step_by(1024) {
            if whole[at + 8..at + 12] == descriptor[8..12]
                && whole[at + 4..at + 8] == descriptor[4..8]
            {
                whole[at + 0x1e] ^= 1;
            }
        }
        let (report, _) = changed(&whole, &[], &to);
        assert!(!report.is_complete() && report.doubts[0].contains(says), "{kind:?}: {report:?}");
        assert_eq!(list(&to.join("fs")).len(), list(&from).len(), "{kind:?}");
        unlock(&to);
        fs::remove_dir_all(&to).unwrap();
    }
    unlock(&from);
}

#[test]
fn a_lost_first_superblock_is_replaced_by_a_backup_of_any_group_and_block_size() {
    let dir = tempdir().unwrap();
    let (from, at) = (dir.path().join("from"), dir.path().join("image"));
    fs::create_dir(&from).unwrap();
    fs::write(from.join("a"), bytes(5, 10_000)).unwrap();
    for (block, mib) in [(1024, 40), (2048, 100), (4096, 390)] {
        let size = block.to_string();
        if image(&from, &at, mib, &["-t", "ext4", "-b", &size, "-N", "256"]).is_none() {
            return;
        }
        let file = fs::File::options().write(true).open(&at).unwrap();
        let backup = |group: u64| (group * block * 8 + u64::from(block == 1024)) * block;
        // The first superblock, then its first backup too.
        for (lost, group) in [(1024, 1), (backup(1), 3)] {
            file.write_all_at(&[0; 1024], lost).unwrap();
            let places = look(vec![("x".into(), file_source(&at))]).places;
            let content = &places[0].content.as_ref().unwrap().0;
            assert_eq!(content.kind, Kind::Ext(4), "{block}");
            let says = format!("the copy at byte {}, in group {group}, is used", backup(group));
            assert!(content.notes.iter().any(|note| note.contains(&says)), "{content:?}");
            let to = tempdir().unwrap();
            let report = copied(&file_source(&at), to.path());
            assert!(report.is_complete(), "{block}: {report:?}");
            assert!(fs::read(to.path().join("fs/a")).unwrap() == bytes(5, 10_000));
            let notes = Ext4::open(&file_source(&at)).unwrap().notes;
            assert!(notes.iter().any(|note| note.contains(&says)), "{notes:?}");
        }
        // A backup that names another group than the one at its place is not accepted.
        file.write_all_at(&[7, 0], backup(3) + 0x5a).unwrap();
        assert!(Ext4::open(&file_source(&at)).is_err());
        assert_eq!(
            look(vec![("x".into(), file_source(&at))]).places[0].content.as_ref().unwrap().0.kind,
            Kind::Nothing
        );
    }
}

#[test]
fn a_superblock_with_a_wrong_checksum_gives_way_to_a_backup_or_counts_as_doubtful() {
    let dir = tempdir().unwrap();
    let (from, at) = (dir.path().join("from"), dir.path().join("image"));
    fs::create_dir(&from).unwrap();
    fs::write(from.join("a"), bytes(5, 10_000)).unwrap();
    if image(&from, &at, 20, &["-t", "ext4", "-b", "1024", "-O", "metadata_csum"]).is_none() {
        return;
    }
    let whole = fs::read(&at).unwrap();
    let (label, backup) = (1024 + 0x78, 8193 * 1024 + 0x78);
    let to = tempdir().unwrap();
    let (report, notes) = changed(&whole, &[label], to.path());
    assert!(report.is_complete(), "{report:?}");
    assert!(notes.iter().any(|note| note.contains("checksum: found")), "{notes:?}");
    let to = tempdir().unwrap();
    let (report, _) = changed(&whole, &[label, backup], to.path());
    assert!(report.doubts[0].contains("superblock checksum: found"), "{report:?}");
    assert!(!report.is_complete() && report.files == 1, "{report:?}");
}

#[test]
fn an_index_of_names_has_a_checksum_of_its_own() {
    let dir = tempdir().unwrap();
    let (from, at) = (dir.path().join("from"), dir.path().join("image"));
    fs::create_dir(&from).unwrap();
    for number in 0..400 {
        fs::write(from.join(format!("{number:0100}")), "").unwrap();
    }
    let kind = ["-t", "ext4", "-b", "1024", "-O", "metadata_csum", "-N", "512"];
    if image(&from, &at, 8, &kind).is_none() {
        return;
    }
    // e2fsck indexes directories, and says by its status that it has.
    let script =
        format!("PATH=/usr/sbin:/sbin:$PATH; e2fsck -fyD '{}'; [ $? -le 1 ]", at.display());
    tool("sh", &["-c", &script], "");
    let whole = fs::read(&at).unwrap();
    // The first block: the names `.` and `..`, the second as long as the rest; eight bytes follow.
    let start = [2, 0, 0, 0, 12, 0, 1, 2, b'.', 0, 0, 0, 2, 0, 0, 0, 0xf4, 3, 2, 2, b'.', b'.'];
    let root = place_of(&whole, &start, 1024);
    assert_eq!(whole[root + 29], 8, "an index");
    let to = tempdir().unwrap();
    let (report, _) = changed(&whole, &[], to.path());
    assert!(report.is_complete() && report.files == 400, "{report:?}");
    let to = tempdir().unwrap();
    // A block number of the index, which the copy does not need.
    let (report, _) = changed(&whole, &[root + 44], to.path());
    assert_eq!((report.suspect.len(), report.files), (1, 400), "{report:?}");
    assert!(report.suspect[0].why.contains("index of names at byte 0, checksum"), "{report:?}");
}
