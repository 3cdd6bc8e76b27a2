//! Changed bytes in file systems, LVM's text and partition tables: the result is an error or
//! another content, never a panic or an endless loop.

mod common;

use std::fs;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use common::kernel::{blocks, fixture, seal};
use common::volumes::{EXTENT, FIRST, group, physical, set_text, uuid, volume};
use common::{bytes, image, tool};
use tempfile::tempdir;
use weft_files::btrfs::Btrfs;
use weft_files::copy::{Folder, Start, copy};
use weft_files::ext4::Ext4;
use weft_files::inside::look;
use weft_files::source::{ReadError, Shared, Source, read_vec};
use weft_files::tree::{NodeKind, Tree};
use weft_testing::fuzz;
use weft_units::rng::{Rng, mix};

/// Longest time of one case: usual ones take milliseconds.
const LIMIT: Duration = Duration::from_secs(20);

/// Cases of each structure: 2000, and more by another seed under `cargo xtask long fuzz`.
fn cases() -> usize {
    fuzz::cases(2000)
}

/// Random numbers of a test.
fn random(test: u64) -> Rng {
    Rng::new(mix(fuzz::seed()) ^ mix(0) ^ test)
}

/// Largest memory of all cases: images of 4 MiB, and what is read of them.
const MEMORY_MAX: u64 = 512 << 20;

/// Another value of a byte.
fn mutated(rng: &mut Rng, byte: u8) -> u8 {
    let odd = [0x00, 0x01, 0x7f, 0x80, 0xff];
    match rng.below(3) {
        0 => byte ^ 1 << rng.below(8),
        1 => rng.pick(&odd),
        _ => u8::try_from(rng.below(256)).unwrap(),
    }
}

/// Changes one to eight of the bytes at `places`.
fn mutate(rng: &mut Rng, bytes: &mut [u8], places: &[usize]) {
    for _ in 0..=rng.below(8) {
        let at = rng.pick(places);
        bytes[at] = mutated(rng, bytes[at]);
    }
}

/// Reads every node that the tree names. Returns their number.
fn walk(tree: &dyn Tree) -> usize {
    let mut waiting = vec![tree.root()];
    let mut seen = std::collections::BTreeSet::new();
    while let Some(id) = waiting.pop() {
        let Ok(node) = tree.node(id) else { continue };
        if !seen.insert(id) {
            continue;
        }
        // An error is a legal outcome of this test.
        let _ = tree.attributes(&node);
        match node.kind {
            NodeKind::Directory => {
                let entries = tree.entries(&node).map(|entries| entries.list).unwrap_or_default();
                waiting.extend(entries.iter().map(|entry| entry.id));
            }
            NodeKind::File => {
                let pieces = tree.pieces(&node).unwrap_or_default();
                let mut end = 0;
                for piece in &pieces.list {
                    assert!(piece.range.start >= end && piece.range.end <= node.size, "{node:?}");
                    end = piece.range.end;
                }
            }
            NodeKind::Link => drop(tree.target(&node)),
            NodeKind::Special(_) => {}
        }
    }
    seen.len()
}

/// Bytes with changes in some places, without a copy of all bytes.
struct Changed {
    of: Rc<Vec<u8>>,
    changes: Vec<(usize, Vec<u8>)>,
}

impl Source for Changed {
    fn size(&self) -> u64 {
        self.of.size()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
        self.of.read_at(offset, into)?;
        let start = usize::try_from(offset).unwrap();
        for (at, bytes) in &self.changes {
            let (first, end) = (start.max(*at), (start + into.len()).min(at + bytes.len()));
            if first < end {
                into[first - start..end - start].copy_from_slice(&bytes[first - at..end - at]);
            }
        }
        Ok(())
    }
}

/// Parts of an image of ext with blocks of 1 KiB, by their names: the bytes that are changed.
fn parts(whole: &[u8]) -> Vec<(&'static str, Vec<usize>)> {
    let le = |at: usize| u32::from_le_bytes(whole[at..at + 4].try_into().unwrap()) as usize;
    let table = le(2048 + 8) * 1024;
    let inode_bytes = le(1024 + 0x58) & 0xffff;
    let blocks = |is_it: &dyn Fn(&[u8]) -> bool| -> Vec<usize> {
        let all = whole.chunks(1024).zip((0..).step_by(1024));
        let starts = all.filter(|(block, _)| is_it(block)).map(|(_, at)| at);
        starts.flat_map(|at| at..at + 1024).collect()
    };
    let is_directory = |block: &[u8]| block[4..10] == [12, 0, 1, 2, b'.', 0];
    let mut extents = blocks(&|block| block.starts_with(&[0x0a, 0xf3]));
    if extents.is_empty() {
        // Blocks of block numbers: the map of a file with several of them.
        extents = blocks(&|block| {
            let number = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().unwrap());
            number(0) > 0 && number(0) < 4096 && number(4) == number(0) + 1
        });
    }
    assert!(!extents.is_empty());
    vec![
        ("superblock and descriptors", (1024..2048 + 64).collect()),
        ("inodes", (table..table + 40 * inode_bytes).collect()),
        ("extents", extents),
        ("directories", blocks(&is_directory)),
        // Other blocks, without the contents of files, which are random and so have few zero bytes.
        (
            "journal and the rest",
            blocks(&|block| (1..=900).contains(&block.iter().filter(|byte| **byte != 0).count())),
        ),
    ]
}

/// Largest memory of this process so far, in bytes.
fn memory_max() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    kib << 10
}

#[test]
fn changed_bytes_of_ext_give_errors_and_no_panic() {
    let dir = tempdir().unwrap();
    let (from, at) = (dir.path().join("from"), dir.path().join("image"));
    fs::create_dir_all(from.join("folder/inner")).unwrap();
    for number in 0..20 {
        fs::write(from.join(format!("folder/{number}")), bytes(number, 3000)).unwrap();
    }
    let deep = fs::File::create(from.join("folder/inner/deep")).unwrap();
    for part in 0..8 {
        deep.write_all_at(&bytes(part, 20_000), part * 65_536).unwrap();
    }
    std::os::unix::fs::symlink("x".repeat(100), from.join("link")).unwrap();
    let kinds: [&[&str]; 4] = [
        &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum", "-N", "64"],
        &["-t", "ext4", "-b", "1024", "-O", "metadata_csum", "-N", "64"],
        &["-t", "ext3", "-b", "1024", "-N", "64"],
        &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,inline_data", "-N", "64"],
    ];
    let (mut rng, mut opened, mut nodes, mut slowest) = (random(27), 0, 0, Duration::ZERO);
    for kind in kinds {
        if image(&from, &at, 4, kind).is_none() {
            return;
        }
        let new = dir.path().join("new");
        fs::write(&new, bytes(5, 1024)).unwrap();
        let script = format!("jo\njw -b 900 {}\njc\n", new.display());
        tool("debugfs", &["-w", "-f", "/dev/stdin", at.to_str().unwrap()], &script);
        let whole = Rc::new(fs::read(&at).unwrap());
        for (part, places) in parts(&whole) {
            for case in 0..cases() / kinds.len() {
                let start = Instant::now();
                let mut changes = Vec::new();
                for _ in 0..=rng.below(8) {
                    let at = rng.pick(&places);
                    changes.push((at, vec![mutated(&mut rng, whole[at])]));
                }
                let source: Shared = Rc::new(Changed { of: Rc::clone(&whole), changes });
                if let Ok(tree) = Ext4::open(&source) {
                    opened += 1;
                    nodes += walk(&tree);
                    if case % 50 == 0 {
                        let to = tempdir().unwrap();
                        let folder = Folder::open(to.path()).unwrap();
                        let report =
                            copy(&tree, &folder, Start::Root(b"fs"), false, &mut |_| {}).unwrap();
                        let bytes = report.bytes;
                        assert!(bytes <= 64 << 20, "{kind:?}, {part} {case}: {bytes}");
                        tool("chmod", &["-R", "u+rwx", to.path().to_str().unwrap()], "");
                    }
                }
                if part.starts_with("super") {
                    drop(look(vec![("x".into(), source)]));
                }
                slowest = slowest.max(start.elapsed());
                assert!(start.elapsed() < LIMIT, "{kind:?}, {part} {case}: {:?}", start.elapsed());
            }
        }
    }
    assert!(
        opened > 4 * cases() && nodes > 20 * cases(),
        "{opened} opened, {nodes} nodes, {slowest:?}"
    );
    assert!(memory_max() < MEMORY_MAX, "{}", memory_max());
}

#[test]
fn changed_bytes_of_btrfs_give_errors_and_no_panic() {
    let (mut rng, mut opened, mut nodes, mut slowest) = (random(31), 0, 0, Duration::ZERO);
    for (name, block_len) in [("log", 4096), ("packed", 16384)] {
        let whole = Rc::new(fixture(name));
        let blocks = blocks(&whole, block_len);
        for case in 0..cases() / 2 {
            let start = Instant::now();
            // After a change, every copy of the block gets the right checksum.
            let at = if case % 8 == 0 { 0x1_0000 } else { rng.pick(&blocks) };
            let len = if case % 8 == 0 { 4096 } else { block_len };
            let mut block = whole[at..at + len].to_vec();
            let places: Vec<usize> =
                (32..len).filter(|at| block[*at] != 0 || at % 64 == 0).collect();
            // Every other case changes the header and the first keys.
            let head = places.partition_point(|at| *at < 512);
            mutate(&mut rng, &mut block, if case % 2 == 0 { &places[..head] } else { &places });
            seal(&mut block, 0, len);
            let is_copy = |other: &&usize| whole[**other..**other + len] == whole[at..at + len];
            let mut places: Vec<usize> = blocks.iter().filter(is_copy).copied().collect();
            places.push(at);
            let changes = places.into_iter().map(|at| (at, block.clone())).collect();
            let source: Shared = Rc::new(Changed { of: Rc::clone(&whole), changes });
            if let Ok(tree) = Btrfs::open(&[Rc::clone(&source)]) {
                opened += 1;
                nodes += walk(&tree);
                if case % 50 == 0 {
                    let to = tempdir().unwrap();
                    let folder = Folder::open(to.path()).unwrap();
                    let report =
                        copy(&tree, &folder, Start::Root(b"fs"), false, &mut |_| {}).unwrap();
                    assert!(report.bytes <= 64 << 20, "{name} {case}: {}", report.bytes);
                    tool("chmod", &["-R", "u+rwx", to.path().to_str().unwrap()], "");
                }
            }
            if case % 10 == 0 {
                drop(look(vec![("x".into(), source)]));
            }
            slowest = slowest.max(start.elapsed());
            assert!(start.elapsed() < LIMIT, "{name} {case}: {:?}", start.elapsed());
        }
    }
    assert!(
        opened > cases() / 2 && nodes > 10 * cases(),
        "{opened} opened, {nodes} nodes, {slowest:?}"
    );
}

#[test]
fn changed_bytes_of_lvm_give_errors_and_no_panic() {
    let striped = "stripe_count = 2\nstripe_size = 8\nstripes = [\"pv0\", 8, \"pv1\", 4]";
    let linear = "stripe_count = 1\nstripes = [\"pv0\", 2]";
    let volumes =
        volume("lv", &[(0, 3, "striped", linear)]) + &volume("fast", &[(0, 4, "striped", striped)]);
    let text = group(1, &volumes).into_bytes();
    let whole = physical(&uuid('a'), &text, 512, 16);
    let other: Shared = Rc::new(physical(&uuid('b'), b"", 512, 16));
    let (mut rng, mut readable, mut faults) = (random(28), 0, 0);
    for case in 0..cases() {
        let start = Instant::now();
        let mut device = whole.clone();
        if case % 4 == 0 {
            let places: Vec<usize> = (512..640).chain(4096..4160).chain(4608..6000).collect();
            mutate(&mut rng, &mut device, &places);
        } else {
            let mut changed = text.clone();
            let places: Vec<usize> = (0..text.len()).collect();
            if rng.below(2) == 0 {
                // A digit of the text is replaced by a number at the limit of a type.
                let is_digit = |at: &usize| text[*at].is_ascii_digit();
                let all: Vec<usize> = places.iter().copied().filter(is_digit).collect();
                let at = rng.pick(&all);
                let numbers =
                    ["0", "-1", "9223372036854775807", "4294967296", "99999999999999999999"];
                changed.splice(at..=at, rng.pick(&numbers).bytes());
            } else {
                mutate(&mut rng, &mut changed, &places);
            }
            set_text(&mut device, &changed, 512);
        }
        let found = look(vec![("a".into(), Rc::new(device)), ("b".into(), Rc::clone(&other))]);
        for place in found.places.iter().filter(|place| place.name.contains('/')) {
            let Ok((_, source)) = &place.content else { continue };
            readable += 1;
            for at in [0, EXTENT as u64, source.size().saturating_sub(512)] {
                // An error is one of the outcomes.
                let _ = read_vec(&**source, at, 512);
            }
        }
        faults += found.groups.iter().filter(|group| group.volumes.is_err()).count();
        assert!(start.elapsed() < LIMIT, "{case}: {:?}", start.elapsed());
    }
    assert!(
        readable > cases() * 2 / 5 && faults > cases() / 25,
        "{readable} volumes, {faults} faults"
    );
    assert!(memory_max() < MEMORY_MAX, "{}", memory_max());
}

#[test]
fn changed_bytes_of_partition_tables_give_errors_and_no_panic() {
    let mut disk = vec![0; 4 << 20];
    let entry = |kind: u8, start: u32, len: u32| {
        let mut entry = vec![0; 16];
        entry[4] = kind;
        entry[8..12].copy_from_slice(&start.to_le_bytes());
        entry[12..].copy_from_slice(&len.to_le_bytes());
        entry
    };
    for (sector, entries) in [
        (0, vec![entry(0x83, 2048, 1024), entry(0x05, 4096, 4000)]),
        (4096, vec![entry(0x83, 16, 500), entry(0x05, 600, 600)]),
        (4696, vec![entry(0x83, 16, 500)]),
    ] {
        let at: usize = sector * 512;
        let all: Vec<u8> = entries.concat();
        disk[at + 446..at + 446 + all.len()].copy_from_slice(&all);
        disk[at + 510..at + 512].copy_from_slice(&[0x55, 0xaa]);
    }
    let inner = physical(&uuid('a'), group(1, "").as_bytes(), 512, 1);
    disk[1 << 20..(1 << 20) + FIRST].copy_from_slice(&inner[..FIRST]);
    let found = look(vec![("x".into(), Rc::new(disk.clone()))]);
    assert_eq!(found.places.len(), 4, "the table, and three partitions");
    assert_eq!(found.groups.len(), 1);
    let places: Vec<usize> =
        [0, 4096, 4696].iter().flat_map(|s| s * 512 + 440..s * 512 + 512).collect();
    let (mut rng, mut several) = (random(29), 0);
    for case in 0..cases() {
        let start = Instant::now();
        let mut changed = disk.clone();
        mutate(&mut rng, &mut changed, &places);
        several += usize::from(look(vec![("x".into(), Rc::new(changed))]).places.len() > 1);
        assert!(start.elapsed() < LIMIT, "{case}: {:?}", start.elapsed());
    }
    assert!(several > cases() / 5, "{several}");
}

#[test]
fn a_table_that_names_itself_and_a_table_of_tables_end() {
    let mut disk = vec![0; 1 << 20];
    let mut table = |sector: usize, entries: &[(u32, u32)]| {
        for ((start, len), number) in entries.iter().zip(0..) {
            let at = sector * 512 + 446 + number * 16;
            disk[at + 4] = 0x83;
            disk[at + 8..at + 12].copy_from_slice(&start.to_le_bytes());
            disk[at + 12..at + 16].copy_from_slice(&len.to_le_bytes());
        }
        disk[sector * 512 + 510..sector * 512 + 512].copy_from_slice(&[0x55, 0xaa]);
    };
    table(0, &[(0, 2048), (0, 2048), (100, 1000)]);
    table(100, &[(0, 1000), (8, 8)]);
    let found = look(vec![("x".into(), Rc::new(disk))]);
    let names: Vec<&str> = found.places.iter().map(|place| place.name.as_str()).collect();
    assert_eq!(names, ["x", "x#3", "x#3#2"]);
}
