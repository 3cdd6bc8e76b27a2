//! Tests of the view, on a small file system in memory with faults of every kind.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, UNIX_EPOCH};

use fuser::FileType;
use rustix::io::Errno;
use weft_files::source::{ReadError, Source};
use weft_files::tree::{
    Attribute, Entries, Entry, Node, NodeKind, NodeTime, Packed, Packing, Piece, PieceBytes,
    Pieces, Tree, TreeError,
};

use crate::numbers::ROOT;
use crate::view::{Caching, Finding, Shown, View, What};

/// A source in which each byte is computed from its offset, with a range that cannot be read.
struct Device {
    size: u64,
    bad: Range<u64>,
}

/// The byte at an offset of the source.
fn byte(at: u64) -> u8 {
    u8::try_from((at / 256 + at) % 251).unwrap()
}

impl Source for Device {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
        let end = offset + into.len() as u64;
        assert!(end <= self.size, "{offset}..{end} of {}", self.size);
        if offset < self.bad.end && self.bad.start < end {
            return Err(ReadError { range: self.bad.clone(), why: "bad block".into() });
        }
        into.iter_mut().zip(offset..).for_each(|(into, at)| *into = byte(at));
        Ok(())
    }
}

const BLOCK: u64 = 4096;

/// A file system in memory; node 2 is its root directory.
struct Fake(Device);

const NAMES: [(&[u8], u64); 11] = [
    (b"whole", 10),
    (b"again", 10),
    (b"part\xff", 11),
    (b"lost", 12),
    (b"a/b", 10),
    (b"whole", 11),
    (b"link", 13),
    (b"disk", 14),
    (b"below", 15),
    (b"unread", 99),
    (b"suspect", 16),
];

impl Tree for Fake {
    fn source(&self) -> &dyn Source {
        &self.0
    }

    fn used_bytes(&self) -> u64 {
        40 * BLOCK
    }

    fn root(&self) -> u64 {
        2
    }

    fn node(&self, id: u64) -> Result<Node, TreeError> {
        let kind = match id {
            2 | 15 => NodeKind::Directory,
            13 => NodeKind::Link,
            14 => NodeKind::Special("block device"),
            10..=16 => NodeKind::File,
            _ => return Err(TreeError::Refused(format!("node {id} cannot be read"))),
        };
        Ok(Node {
            id,
            kind,
            size: if kind == NodeKind::File { 8 * BLOCK + 100 } else { 5 },
            mode: 0o4751,
            uid: 70_000,
            gid: 80_000,
            links: if id == 10 { 2 } else { 0 },
            accessed: NodeTime { seconds: -2, nanos: 500_000_000 },
            modified: NodeTime { seconds: 1_000_000_000, nanos: 1 },
            changed: NodeTime { seconds: i64::MIN, nanos: 0 },
            stored: 5 * BLOCK,
            device: if id == 14 { 0x801 } else { 0 },
            fault: (id == 16).then(|| "checksum of an inode".into()),
        })
    }

    fn entries(&self, node: &Node) -> Result<Entries, TreeError> {
        let entry = |(name, id): &(&[u8], u64)| Entry { name: name.to_vec(), id: *id };
        let faults = if node.id == 15 { vec!["block 7 is bad".into()] } else { Vec::new() };
        let names = if node.id == 15 { &NAMES[..1] } else { &NAMES[..] };
        Ok(Entries { list: names.iter().map(entry).collect(), faults, doubts: Vec::new() })
    }

    fn pieces(&self, node: &Node) -> Result<Pieces, TreeError> {
        if node.id == 12 {
            return Err(TreeError::Refused("its map is lost".into()));
        }
        let piece = |range, bytes| Piece { range, bytes };
        let packed =
            Packed { at: 0, len: 9, unpacked_len: 2 * BLOCK, packing: Packing::Zstd, skip: BLOCK };
        let faults = match node.id {
            11 => vec![
                (6 * BLOCK..7 * BLOCK, "no place".into()),
                (6 * BLOCK..6 * BLOCK + 9, "".into()),
            ],
            _ => Vec::new(),
        };
        Ok(Pieces {
            list: vec![
                piece(4 * BLOCK..5 * BLOCK, PieceBytes::Packed(packed)),
                piece(0..2 * BLOCK, PieceBytes::Source(10 * BLOCK)),
                piece(8 * BLOCK..8 * BLOCK + 100, PieceBytes::Here(vec![7; 100])),
            ],
            faults,
            doubts: if node.id == 16 { vec![(0..9, "sums are lost".into())] } else { Vec::new() },
        })
    }

    fn unpack(&self, packed: &Packed) -> Result<Rc<Vec<u8>>, TreeError> {
        Ok(Rc::new((0..packed.unpacked_len).map(byte).collect()))
    }

    fn target(&self, _: &Node) -> Result<Vec<u8>, TreeError> {
        Ok(b"to\xff".to_vec())
    }

    fn attributes(&self, node: &Node) -> Result<Vec<Attribute>, TreeError> {
        match node.id {
            11 => Err(TreeError::Refused("their block is bad".into())),
            _ => Ok(vec![Attribute { name: b"user.a".to_vec(), value: vec![0, 255] }]),
        }
    }
}

/// Byte at offset `at` of the files 10 and 11, where they can be read.
fn expected(at: u64) -> u8 {
    match at / BLOCK {
        0 | 1 => byte(10 * BLOCK + at),
        4 => byte(BLOCK + at - 4 * BLOCK),
        8 => 7,
        _ => 0,
    }
}

type Findings = Rc<RefCell<Vec<Finding>>>;

fn device(bad: Range<u64>) -> Device {
    Device { size: 64 * BLOCK, bad }
}

/// A view with a file of a volume, which may change with `changes`, and with a file system; and its
/// findings. The range `bad` of both cannot be read.
fn view(bad: Range<u64>, changes: bool) -> (View, Findings) {
    let told = Findings::default();
    let tell = Rc::clone(&told);
    let source = Rc::new(device(bad.clone()));
    let shown = vec![
        Shown { name: "nas.img".into(), what: What::Bytes { source, changes } },
        Shown {
            name: "nas".into(),
            what: What::Files { tree: Box::new(Fake(device(bad))), size: 64 * BLOCK },
        },
    ];
    (View::new(shown, Box::new(move |it| tell.borrow_mut().push(it.clone()))), told)
}

/// Inode number of the file or folder at a path.
fn find(view: &mut View, path: &[&[u8]]) -> u64 {
    path.iter().fold(ROOT, |at, name| view.lookup(at, name).unwrap().ino.0)
}

/// Names of a directory, listed `at_once` entries at a time, and the error that ends the list, if
/// any.
fn names(view: &mut View, number: u64, at_once: usize) -> (Vec<Vec<u8>>, Option<Errno>) {
    let (mut all, mut from) = (Vec::new(), 0);
    loop {
        let mut added = 0;
        let listed = view.list(number, from, true, &mut |entry, next| {
            if added == at_once {
                return false;
            }
            (added, from) = (added + 1, next);
            all.push(entry.name.to_vec());
            true
        });
        match listed {
            Err(error) => return (all, Some(error)),
            Ok(()) if added == 0 => return (all, None),
            Ok(()) => {}
        }
    }
}

#[test]
fn names_lead_to_nodes_with_all_that_the_tree_says_of_them() {
    let (mut view, told) = view(0..0, false);
    let whole = find(&mut view, &[b"nas", b"whole"]);
    assert_eq!(find(&mut view, &[b"nas", b"again"]), whole, "two names of one node");
    let attributes = view.attributes(whole).unwrap();
    assert_eq!((attributes.uid, attributes.gid, attributes.perm), (70_000, 80_000, 0o4751));
    assert_eq!((attributes.size, attributes.blocks), (8 * BLOCK + 100, 40));
    assert_eq!((attributes.kind, attributes.nlink), (FileType::RegularFile, 2));
    assert_eq!(attributes.atime, UNIX_EPOCH - Duration::from_millis(1500));
    assert_eq!(attributes.mtime, UNIX_EPOCH + Duration::new(1_000_000_000, 1));
    let disk = find(&mut view, &[b"nas", b"disk"]);
    let attributes = view.attributes(disk).unwrap();
    assert_eq!((attributes.kind, attributes.rdev), (FileType::BlockDevice, 0x801));
    assert_eq!(attributes.nlink, 1, "of 0 in a damaged inode");
    let link = find(&mut view, &[b"nas", b"link"]);
    assert_eq!(view.target(link).unwrap(), b"to\xff");
    assert_eq!(view.target(disk).unwrap_err(), Errno::INVAL);
    let extended = view.extended(whole).unwrap();
    assert_eq!(
        (extended[0].name.as_slice(), extended[0].value.as_slice()),
        (&b"user.a"[..], &[0, 255][..])
    );
    let image = view.lookup(ROOT, b"nas.img").unwrap();
    assert_eq!((image.size, image.perm, image.kind), (64 * BLOCK, 0o400, FileType::RegularFile));
    assert!(view.extended(image.ino.0).unwrap().is_empty());
    let root = find(&mut view, &[b"nas"]);
    assert_eq!((view.space(root), view.space(ROOT)), ((64, 24), (128, 0)));
    for (parent, name, error) in [
        (ROOT, &b"other"[..], Errno::NOENT),
        (root, b"other", Errno::NOENT),
        (root, b"a/b", Errno::NOENT),
        (image.ino.0, b"x", Errno::NOTDIR),
        (whole, b"x", Errno::NOTDIR),
        (root, b"unread", Errno::IO),
        (0, b"x", Errno::STALE),
    ] {
        assert_eq!(
            view.lookup(parent, name).unwrap_err(),
            error,
            "{parent} {}",
            name.escape_ascii()
        );
    }
    let told = told.borrow();
    let paths: Vec<&[u8]> = told.iter().map(|it| it.path.as_slice()).collect();
    assert_eq!(paths, [&b"nas"[..], b"nas/unread"], "{told:?}");
    assert!(told[0].why.ends_with("is no name of a file; left out, and 1 more"), "{told:?}");
}

#[test]
fn a_directory_is_listed_in_any_number_of_parts() {
    let (mut view, told) = view(0..0, false);
    let root = find(&mut view, &[b"nas"]);
    let (whole, end) = names(&mut view, root, 100);
    assert_eq!(end, None);
    let shown: Vec<&[u8]> = whole.iter().map(Vec::as_slice).collect();
    let expected: [&[u8]; 11] = [
        b".",
        b"..",
        b"whole",
        b"again",
        b"part\xff",
        b"lost",
        b"link",
        b"disk",
        b"below",
        b"unread",
        b"suspect",
    ];
    assert_eq!(shown, expected);
    for at_once in 1..12 {
        assert_eq!(names(&mut view, root, at_once), (whole.clone(), None), "{at_once}");
    }
    let (top, _) = names(&mut view, ROOT, 1);
    assert_eq!(top, [&b"."[..], b"..", b"nas.img", b"nas"]);
    // A damaged directory lists the entries that are left, and then gives an error.
    let below = find(&mut view, &[b"nas", b"below"]);
    for at_once in [1, 2, 100] {
        let listed = names(&mut view, below, at_once);
        let expected = [&b"."[..], b"..", b"whole"].map(<[u8]>::to_vec).to_vec();
        assert_eq!(listed, (expected, Some(Errno::IO)), "{at_once}");
    }
    let told = told.borrow();
    let of_below = told.iter().filter(|it| it.path == b"nas/below").count();
    assert_eq!(of_below, 1, "{told:?}");
}

#[test]
fn every_byte_of_a_file_is_read_whatever_its_pieces_are() {
    let (mut view, told) = view(0..0, false);
    let number = find(&mut view, &[b"nas", b"whole"]);
    let size = 8 * BLOCK + 100;
    for len in [1000, 4096, 5000, 100_000_u32] {
        let mut all: Vec<u8> = Vec::new();
        while (all.len() as u64) < size {
            let bytes = view.read(number, all.len() as u64, len).unwrap();
            assert!(!bytes.is_empty());
            all.extend(bytes);
        }
        assert_eq!(all.len() as u64, size);
        assert!((0..).zip(&all).all(|(at, it)| *it == expected(at)), "{len}");
    }
    assert!(view.read(number, size, 10).unwrap().is_empty());
    assert!(view.read(number, u64::MAX, 10).unwrap().is_empty());
    let seek = |view: &mut View, at: u64, is_data| view.seek(number, at, is_data);
    for (at, data, hole) in [
        (0, Ok(0), Ok(2 * BLOCK)),
        (2 * BLOCK, Ok(4 * BLOCK), Ok(2 * BLOCK)),
        (4 * BLOCK + 1, Ok(4 * BLOCK + 1), Ok(5 * BLOCK)),
        (8 * BLOCK + 99, Ok(8 * BLOCK + 99), Ok(size)),
        (size, Err(Errno::NXIO), Err(Errno::NXIO)),
    ] {
        assert_eq!((seek(&mut view, at, true), seek(&mut view, at, false)), (data, hole), "{at}");
    }
    assert!(told.borrow().iter().all(|it| it.path == b"nas"), "nothing of the file");
}

#[test]
fn what_cannot_be_read_is_an_error_of_that_part_and_is_told_once() {
    // A bad block of the source that holds the second block of the files.
    let (mut view, told) = view(11 * BLOCK + 7..11 * BLOCK + 8, false);
    let part = find(&mut view, &[b"nas", b"part\xff"]);
    let block = u32::try_from(BLOCK).unwrap();
    for _ in 0..2 {
        for at in 0..9 {
            let read = view.read(part, at * BLOCK, block);
            match at {
                1 | 6 => assert_eq!(read.unwrap_err(), Errno::IO, "{at}"),
                _ => assert!((at * BLOCK..).zip(read.unwrap()).all(|(at, it)| *it == expected(at))),
            }
        }
        let lost = find(&mut view, &[b"nas", b"lost"]);
        assert_eq!(view.read(lost, 0, 10).unwrap_err(), Errno::IO);
        assert_eq!(view.extended(part).unwrap_err(), Errno::IO);
        let suspect = find(&mut view, &[b"nas", b"suspect"]);
        assert_eq!(view.read(suspect, 0, 10).unwrap().len(), 10);
    }
    let told = told.borrow();
    let lines: Vec<_> = told
        .iter()
        .filter(|it| it.path != b"nas")
        .map(|it| (it.path.as_slice(), it.range.clone(), it.is_doubt, it.why.as_str()))
        .collect();
    assert_eq!(
        lines,
        [
            (&b"nas/part\xff"[..], Some(BLOCK + 7..BLOCK + 8), false, "bad block"),
            (b"nas/lost", None, false, "its map is lost"),
            (b"nas/suspect", None, true, "checksum of an inode"),
        ]
    );
}

#[test]
fn the_bytes_of_a_volume_have_an_error_where_they_cannot_be_read() {
    let (mut view, told) = view(5 * BLOCK..5 * BLOCK + 1, false);
    let image = find(&mut view, &[b"nas.img"]);
    let block = u32::try_from(BLOCK).unwrap();
    for at in 0..64 {
        let read = view.read(image, at * BLOCK, block);
        assert_eq!(read.is_err(), at == 5, "{at}");
        if let Ok(bytes) = read {
            assert!((at * BLOCK..).zip(bytes).all(|(at, it)| *it == byte(at)));
        }
    }
    assert_eq!(view.read(image, 63 * BLOCK + 9, 2 * block).unwrap().len() as u64, BLOCK - 9);
    assert_eq!(told.borrow().len(), 1);
    assert_eq!(told.borrow()[0].path, b"nas.img");
}

#[test]
fn bytes_that_may_change_are_read_anew_when_a_file_is_opened() {
    for changes in [false, true] {
        let (mut view, _) = view(0..0, changes);
        let image = find(&mut view, &[b"nas.img"]);
        let whole = find(&mut view, &[b"nas", b"whole"]);
        assert_eq!(view.opens_alike(), !changes);
        let of_image = if changes { Caching::Begins } else { Caching::Keeps };
        assert_eq!((view.open(image), view.open(whole)), (Ok(of_image), Ok(Caching::Keeps)));
        assert_eq!(view.attributes(image).unwrap().perm, 0o400);
    }
}
