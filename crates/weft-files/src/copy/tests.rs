//! A folder without space, or one that fails, in the middle of a copy.

use std::path::Path;

use super::*;
use crate::source::Source;
use crate::tree::{Attribute, Entries, Piece, Pieces, TreeError};

/// A root with five files of 1 MiB; the second one has a block that cannot be read.
struct Five(Holed);

struct Holed(Vec<u8>);

const FILE: u64 = 1 << 20;
const BAD: u64 = FILE + 8192;

impl Source for Holed {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), crate::source::ReadError> {
        if (offset..offset + into.len() as u64).contains(&BAD) {
            let range = BAD..BAD + 1;
            return Err(crate::source::ReadError { range, why: "bad block".into() });
        }
        self.0.read_at(offset, into)
    }
}

impl Tree for Five {
    fn source(&self) -> &dyn Source {
        &self.0
    }

    fn used_bytes(&self) -> u64 {
        5 * FILE
    }

    fn root(&self) -> u64 {
        0
    }

    fn node(&self, id: u64) -> Result<Node, TreeError> {
        let time = NodeTime { seconds: 1_000_000_000, nanos: 0 };
        let kind = if id == 0 { NodeKind::Directory } else { NodeKind::File };
        let (mode, links) = (0o755, 1);
        let (uid, gid, size) = (4711, 4712, FILE);
        let (accessed, modified, changed, fault) = (time, time, time, None);
        let (stored, device) = (FILE, 0);
        Ok(Node {
            id,
            kind,
            size,
            mode,
            uid,
            gid,
            links,
            accessed,
            modified,
            changed,
            stored,
            device,
            fault,
        })
    }

    fn entries(&self, _: &Node) -> Result<Entries, TreeError> {
        let list = (1..=5).map(|id| Entry { name: format!("file{id}").into_bytes(), id }).collect();
        Ok(Entries { list, ..Entries::default() })
    }

    fn pieces(&self, node: &Node) -> Result<Pieces, TreeError> {
        let bytes = PieceBytes::Source((node.id - 1) * FILE);
        Ok(Pieces { list: vec![Piece { range: 0..FILE, bytes }], ..Pieces::default() })
    }

    fn target(&self, _: &Node) -> Result<Vec<u8>, TreeError> {
        Err(TreeError::Refused("no link".into()))
    }

    fn attributes(&self, _: &Node) -> Result<Vec<Attribute>, TreeError> {
        Ok(Vec::new())
    }
}

/// Copies to a folder that takes `room` bytes and then fails with `error`. Returns the result, the
/// paths of damaged files that were reported during the copy, and the number of bytes written.
fn limited(to: &Path, room: u64, error: Errno) -> (Result<Report, Stopped>, Vec<Vec<u8>>, u64) {
    let bytes = (0..5 * FILE).map(|i| u8::try_from(i % 251).unwrap() | 1).collect();
    let tree = Five(Holed(bytes));
    let (mut told, mut written) = (Vec::new(), 0);
    let mut write = |file: &OwnedFd, bytes: &[u8], offset: u64| {
        if written + bytes.len() as u64 > room {
            return Err(error);
        }
        written += bytes.len() as u64;
        write_all(file, bytes, offset)
    };
    let mut tell = |event: Event<'_>| {
        if let Event::Damaged(damaged) = event {
            told.push(damaged.path.clone());
        }
    };
    let folder = Folder::open(to).unwrap();
    let ended = copy_by(&tree, &folder, Start::Root(b"fs"), false, &mut tell, &mut write);
    (ended, told, written)
}

#[test]
fn a_copy_without_space_has_its_report_and_goes_on_later() {
    let dir = tempfile::tempdir().unwrap();
    let (ended, told, _) = limited(dir.path(), 3 * FILE + 500_000, Errno::NOSPC);
    let Stopped { report, error } = ended.unwrap_err();
    assert!(matches!(error, CopyError::NoSpace));
    assert!(error.to_string().contains("run the same command again"), "{error}");
    assert_eq!((report.files, report.damaged.len()), (3, 1));
    assert_eq!(report.damaged[0].path, b"file2");
    assert_eq!(report.damaged[0].ranges, [(8192..12_288, "bad block".to_owned())]);
    assert_eq!(told, [b"file2"]);
    // No part of the fourth file is left, under any name.
    let mut names: Vec<_> = std::fs::read_dir(dir.path().join("fs")).unwrap().collect();
    assert_eq!(names.len(), 3);
    names = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "{names:?}");

    let (ended, _, written) = limited(dir.path(), u64::MAX, Errno::NOSPC);
    let report = ended.unwrap();
    // Complete files are not read again, and the damaged file is reported again.
    assert_eq!((report.files, report.skipped, report.bytes, written), (2, 2, 2 * FILE, 2 * FILE));
    assert_eq!(report.kept.len(), 1, "{report:?}");
    assert_eq!(report.kept[0].path, b"file2");
    assert!(!report.is_complete());
}

#[test]
fn a_folder_that_fails_ends_the_copy_and_an_error_of_one_file_does_not() {
    let dir = tempfile::tempdir().unwrap();
    for error in [Errno::IO, Errno::ROFS, Errno::STALE] {
        let Stopped { report, error } = limited(dir.path(), 0, error).0.unwrap_err();
        assert!(matches!(error, CopyError::Target(_)) && report.files == 0, "{error}");
    }
    let report = limited(dir.path(), 0, Errno::FBIG).0.unwrap();
    assert_eq!(report.failed.len(), 5, "{report:?}");
    assert!(matches!(
        limited(dir.path(), 0, Errno::DQUOT).0.unwrap_err().error,
        CopyError::NoSpace
    ));
}
