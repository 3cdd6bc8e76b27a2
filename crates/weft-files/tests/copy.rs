//! Copies into folders that are not empty, and out of file systems with false metadata.

use std::cell::RefCell;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use tempfile::tempdir;
use weft_files::copy::{Event, Folder, PART, Report, Start, copy};
use weft_files::source::{ReadError, Source};
use weft_files::tree::{
    Attribute, Entries, Entry, Node, NodeKind, NodeTime, Piece, PieceBytes, Pieces, Tree, TreeError,
};

/// Names of a directory with their nodes.
type Names = Vec<(&'static [u8], u64)>;

/// A file system in memory: nodes by number.
struct Fake {
    nodes: Vec<(NodeKind, Vec<u8>, Names)>,
    device: Device,
    pieces: RefCell<Vec<(u64, Range<u64>, u64)>>,
    /// Fault of every file.
    fault: Option<String>,
    mode: u32,
    attributes: Vec<Attribute>,
}

/// A device with a range that cannot be read.
struct Device(Vec<u8>, Range<u64>);

impl Source for Device {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
        let end = offset + into.len() as u64;
        if offset < self.1.end && self.1.start < end {
            return Err(ReadError { range: self.1.clone(), why: "bad block".into() });
        }
        self.0.read_at(offset, into)
    }
}

impl Fake {
    /// A root with these names; further nodes follow by `add`.
    fn of(root: &[(&'static [u8], u64)]) -> Self {
        Self {
            nodes: vec![(NodeKind::Directory, Vec::new(), root.to_vec())],
            device: Device(Vec::new(), 0..0),
            pieces: RefCell::default(),
            fault: None,
            mode: 0o4755,
            attributes: Vec::new(),
        }
    }

    fn add(mut self, kind: NodeKind, content: &[u8], names: &[(&'static [u8], u64)]) -> Self {
        self.nodes.push((kind, content.to_vec(), names.to_vec()));
        self
    }

    fn copy(&self, to: &Path) -> Report {
        let folder = Folder::open(to).unwrap();
        copy(self, &folder, Start::Root(b"fs"), false, &mut |_| {}).unwrap()
    }
}

impl Tree for Fake {
    fn source(&self) -> &dyn Source {
        &self.device
    }

    fn used_bytes(&self) -> u64 {
        0
    }

    fn root(&self) -> u64 {
        0
    }

    fn node(&self, id: u64) -> Result<Node, TreeError> {
        let at = usize::try_from(id).unwrap();
        let Some((kind, content, _)) = self.nodes.get(at) else {
            return Err(TreeError::Refused(format!("no node {id}")));
        };
        let time = NodeTime { seconds: 1_000_000_000, nanos: 123_456_789 };
        let pieces = self.pieces.borrow();
        let ends = pieces.iter().filter(|(its, ..)| *its == id).map(|(_, range, _)| range.end);
        Ok(Node {
            id,
            kind: *kind,
            size: ends.max().unwrap_or(content.len() as u64),
            mode: if *kind == NodeKind::File { self.mode } else { 0o755 },
            uid: 12345,
            gid: 54321,
            links: 2,
            accessed: time,
            modified: time,
            changed: time,
            stored: content.len() as u64,
            device: 0,
            fault: self.fault.clone().filter(|_| *kind == NodeKind::File),
        })
    }

    fn entries(&self, node: &Node) -> Result<Entries, TreeError> {
        let names = &self.nodes[usize::try_from(node.id).unwrap()].2;
        let entry = |(name, id): &(&[u8], u64)| Entry { name: name.to_vec(), id: *id };
        Ok(Entries { list: names.iter().map(entry).collect(), ..Entries::default() })
    }

    fn pieces(&self, node: &Node) -> Result<Pieces, TreeError> {
        let mut pieces = Pieces::default();
        for (id, range, at) in &*self.pieces.borrow() {
            if *id == node.id {
                let bytes = PieceBytes::Source(*at);
                pieces.list.push(Piece { range: range.clone(), bytes });
            }
        }
        let content = self.nodes[usize::try_from(node.id).unwrap()].1.clone();
        if !content.is_empty() {
            let range = 0..content.len() as u64;
            pieces.list.push(Piece { range, bytes: PieceBytes::Here(content) });
        }
        Ok(pieces)
    }

    fn target(&self, node: &Node) -> Result<Vec<u8>, TreeError> {
        Ok(self.nodes[usize::try_from(node.id).unwrap()].1.clone())
    }

    fn attributes(&self, node: &Node) -> Result<Vec<Attribute>, TreeError> {
        Ok(if node.kind == NodeKind::File { self.attributes.clone() } else { Vec::new() })
    }
}

fn paths(list: &[weft_files::copy::ReportedPath]) -> Vec<String> {
    list.iter().map(|it| String::from_utf8_lossy(&it.path).into_owned()).collect()
}

#[test]
fn a_copy_of_entries_has_them_under_their_names_and_nothing_else() {
    let dir = tempdir().unwrap();
    let fake = Fake::of(&[(b"good", 1), (b"d", 2), (b"left out", 1)])
        .add(NodeKind::File, b"content", &[])
        .add(NodeKind::Directory, b"", &[(b"below", 3)])
        .add(NodeKind::File, b"deep", &[]);
    let root = fake.node(fake.root()).unwrap();
    let of = |name: &[u8]| {
        let list = fake.entries(&root).unwrap().list;
        list.into_iter().find(|entry| entry.name == name).unwrap()
    };
    let evil = Entry { name: b"../evil".to_vec(), id: 1 };
    let gone = Entry { name: b"gone".to_vec(), id: 77 };
    let picked = [of(b"good"), of(b"d"), evil, gone];
    let to = dir.path().join("to");
    let folder = Folder::open(&to).unwrap();
    let before = fs::metadata(&to).unwrap().permissions();
    let report = copy(&fake, &folder, Start::Entries(&picked), false, &mut |_| {}).unwrap();
    let mut names: Vec<_> =
        fs::read_dir(&to).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["d", "good"]);
    assert_eq!(fs::read(to.join("good")).unwrap(), b"content");
    assert_eq!(fs::read(to.join("d/below")).unwrap(), b"deep");
    assert_eq!((report.files, report.directories), (2, 1), "{report:?}");
    assert_eq!(paths(&report.failed), ["../evil", "gone"]);
    assert!(!dir.path().join("evil").exists());
    // The folder that the user named keeps its mode: it is no part of the copy.
    assert_eq!(fs::metadata(&to).unwrap().permissions(), before);
}

#[test]
fn no_name_and_no_link_leads_out_of_the_folder() {
    let dir = tempdir().unwrap();
    let (to, away) = (dir.path().join("to"), dir.path().join("away"));
    fs::create_dir(&away).unwrap();
    // The link `d` of the file system comes before its folder of the same name, which is left out.
    let fake = Fake::of(&[
        (b"..", 1),
        (b"../evil", 1),
        (b"/evil", 1),
        (b"", 1),
        (b".", 1),
        (b"a\0b", 1),
        (b"d", 2),
        (b"d", 3),
        (b"loop", 0),
        (b"gone", 77),
        (b"good", 1),
    ])
    .add(NodeKind::File, b"content", &[])
    .add(NodeKind::Link, away.as_os_str().as_encoded_bytes(), &[])
    .add(NodeKind::Directory, b"", &[(b"evil", 1)]);
    let report = fake.copy(&to);
    assert_eq!(fs::read_dir(&away).unwrap().count(), 0);
    let names: Vec<_> =
        fs::read_dir(dir.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert_eq!(fs::read(to.join("fs/good")).unwrap(), b"content");
    assert_eq!(report.failed.len(), 9, "{report:?}");
    assert!(report.failed.iter().any(|it| it.path == b"d" && it.why.contains("same name")));
    assert!(!report.is_complete());
    assert!(!to.join(std::str::from_utf8(PART).unwrap()).exists());
}

#[test]
fn what_exists_stays_and_an_interrupted_copy_goes_on() {
    let dir = tempdir().unwrap();
    let (to, away) = (dir.path().join("to"), dir.path().join("away"));
    fs::create_dir_all(to.join("fs")).unwrap();
    fs::create_dir(&away).unwrap();
    fs::write(to.join("fs/mine"), "other").unwrap();
    symlink(&away, to.join("fs/folder")).unwrap();
    symlink("elsewhere", to.join("fs/link")).unwrap();
    fs::write(to.join(".weft-rescue.part"), "half of a file").unwrap();
    let fake = Fake::of(&[(b"mine", 1), (b"folder", 2), (b"link", 3), (b"new", 1), (b"again", 1)])
        .add(NodeKind::File, b"content", &[])
        .add(NodeKind::Directory, b"", &[(b"evil", 1)])
        .add(NodeKind::Link, b"target", &[]);
    let report = fake.copy(&to);
    let mut kept = paths(&report.kept);
    kept.sort();
    assert_eq!(kept, ["folder", "link", "mine"]);
    assert_eq!(fs::read(to.join("fs/mine")).unwrap(), b"other");
    assert_eq!(fs::read_dir(&away).unwrap().count(), 0);
    assert_eq!((report.files, report.hard_links, report.skipped), (1, 1, 0));
    let second = fake.copy(&to);
    assert_eq!((second.files, second.hard_links, second.skipped), (0, 0, 2));
    // A file with the same size and another time counts as a file of the user.
    fs::remove_file(to.join("fs/again")).unwrap();
    fs::write(to.join("fs/again"), "CONTENT").unwrap();
    assert!(paths(&fake.copy(&to).kept).contains(&"again".to_owned()));
    assert_eq!(fs::read(to.join("fs/again")).unwrap(), b"CONTENT");
    // The mode has lost its set-user-ID bit, because the owner is another user.
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &fs::metadata(to.join("fs/new")).unwrap().permissions(),
    );
    assert_eq!(mode & 0o7777, 0o755);
    assert!(report.owners_lost >= 2);
}

#[test]
fn blocks_that_cannot_be_read_are_zeros_and_named() {
    let dir = tempdir().unwrap();
    let mut fake = Fake::of(&[(b"hurt", 1), (b"whole", 2)]).add(NodeKind::File, b"", &[]).add(
        NodeKind::File,
        b"",
        &[],
    );
    let bytes: Vec<u8> = (0..9 << 20).map(|i: u32| u8::try_from(i % 251).unwrap() | 1).collect();
    fake.device = Device(bytes.clone(), 5_000_000..5_000_001);
    let all = 8 << 20;
    fake.pieces.borrow_mut().push((1, 0..all, 4096));
    fake.pieces.borrow_mut().push((2, 0..4096, 0));
    let report = fake.copy(dir.path());
    assert_eq!(report.damaged.len(), 1);
    let damaged = &report.damaged[0];
    let lost = (5_000_000 - 4096) / 4096 * 4096;
    assert_eq!(damaged.ranges, [(lost..lost + 4096, "bad block".to_owned())]);
    assert_eq!(report.bytes_lost(), 4096);
    let found = fs::read(dir.path().join("fs/hurt")).unwrap();
    let at = usize::try_from(lost).unwrap();
    assert!(found[..at] == bytes[4096..4096 + at], "before");
    assert!(found[at..at + 4096].iter().all(|byte| *byte == 0));
    assert!(found[at + 4096..] == bytes[at + 8192..4096 + (8 << 20)], "behind");
    // The next copy does not take the file for a complete one.
    assert_eq!(paths(&fake.copy(dir.path()).kept), ["hurt"]);
}

#[test]
fn one_copy_at_a_time_writes_to_a_folder() {
    let dir = tempdir().unwrap();
    let held = Folder::open(dir.path()).unwrap();
    assert!(Folder::open(dir.path()).err().unwrap().to_string().contains("another process"));
    drop(held);
    assert!(Folder::open(dir.path()).is_ok());
    File::create(dir.path().join("file")).unwrap();
    assert!(Folder::open(&dir.path().join("file")).is_err());
    assert!(Folder::open(&dir.path().join("a/b")).is_err(), "one folder is made, not two");
}

#[test]
fn a_file_system_that_cuts_times_does_not_make_a_file_another_one() {
    let dir = tempdir().unwrap();
    let fake = Fake::of(&[(b"file", 1)]).add(NodeKind::File, b"content", &[]);
    assert_eq!(fake.copy(dir.path()).files, 1);
    let file = File::options().write(true).open(dir.path().join("fs/file")).unwrap();
    let cases =
        [(123_456_700, 1), (123_456_000, 1), (120_000_000, 1), (0, 1), (123_456_788, 0), (1, 0)];
    for (nanos, skipped) in cases {
        file.set_modified(UNIX_EPOCH + Duration::new(1_000_000_000, nanos)).unwrap();
        let report = fake.copy(dir.path());
        assert_eq!(
            (report.skipped, report.kept.len()),
            (skipped, usize::from(skipped == 0)),
            "{nanos}"
        );
    }
}

#[test]
fn a_file_that_is_skipped_keeps_its_fault() {
    let dir = tempdir().unwrap();
    let mut fake = Fake::of(&[(b"file", 1)]).add(NodeKind::File, b"content", &[]);
    fake.fault = Some("checksum".into());
    for skipped in 0..2 {
        let report = fake.copy(dir.path());
        assert_eq!((report.skipped, paths(&report.suspect)), (skipped, vec!["file".to_owned()]));
        assert!(!report.is_complete());
    }
}

#[test]
fn attributes_of_a_file_that_none_may_write_are_set() {
    let dir = tempdir().unwrap();
    let attribute = Attribute { name: b"user.comment".to_vec(), value: b"old".to_vec() };
    let mut fake = Fake::of(&[(b"file", 1)]).add(NodeKind::File, b"content", &[]);
    fake.attributes = vec![attribute.clone()];
    if fake.copy(dir.path()).attributes_lost > 0 {
        weft_testing::skip("the folder for temporary files has no extended attributes");
        return;
    }
    fs::remove_file(dir.path().join("fs/file")).unwrap();
    fake.mode = 0o444;
    // With the mode set before the attributes, this would fail for any user but root.
    assert_eq!(fake.copy(dir.path()).attributes_lost, 0);
}

#[test]
fn a_copy_that_ends_early_leaves_no_part() {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("fs"), "a file where the folder goes").unwrap();
    let fake = Fake::of(&[(b"file", 1)]).add(NodeKind::File, b"content", &[]);
    fs::write(dir.path().join(".weft-rescue.part"), "half of a file").unwrap();
    let folder = Folder::open(dir.path()).unwrap();
    let ended = copy(&fake, &folder, Start::Root(b"fs"), false, &mut |_| {});
    assert!(ended.is_err());
    assert!(!dir.path().join(".weft-rescue.part").exists());
}

#[test]
fn two_names_that_the_folder_takes_for_one_are_told_and_nothing_is_overwritten() {
    let dir = tempdir().unwrap();
    // A folder that folds case resolves the second name to the first file. This link does so too.
    let fake = Fake::of(&[(b"Name", 1), (b"name", 2), (b"other", 2), (b"again", 1)])
        .add(NodeKind::File, b"content", &[])
        .add(NodeKind::File, b"CONTENT", &[]);
    fs::create_dir_all(dir.path().join("fs")).unwrap();
    let time = UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    fs::write(dir.path().join("fs/Name"), "content").unwrap();
    fs::hard_link(dir.path().join("fs/Name"), dir.path().join("fs/name")).unwrap();
    let file = File::options().write(true).open(dir.path().join("fs/Name")).unwrap();
    file.set_modified(time).unwrap();
    let report = fake.copy(dir.path());
    assert_eq!(paths(&report.failed), ["name"], "{report:?}");
    assert!(report.failed[0].why.contains("takes its name for Name"), "{report:?}");
    // `name` has the size and time of the second file, and is not taken for a copy of it.
    assert_eq!((report.skipped, report.files, report.hard_links), (1, 1, 1));
    assert_eq!(fs::read(dir.path().join("fs/Name")).unwrap(), b"content");
    assert_eq!(fs::read(dir.path().join("fs/other")).unwrap(), b"CONTENT");
}

#[test]
fn a_folder_without_permissions_takes_new_files_and_gets_its_mode_back() {
    let dir = tempdir().unwrap();
    let fake = Fake::of(&[(b"inner", 2)]).add(NodeKind::File, b"content", &[]).add(
        NodeKind::Directory,
        b"",
        &[(b"file", 1)],
    );
    let inner = dir.path().join("fs/inner");
    for mode in [0o500, 0o300, 0o000] {
        fs::create_dir_all(&inner).unwrap();
        let set = |mode| {
            let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
            fs::set_permissions(&inner, permissions).unwrap();
        };
        set(mode);
        let report = fake.copy(dir.path());
        assert_eq!((report.files, report.failed.len()), (1, 0), "{mode:o}: {report:?}");
        assert_eq!(fs::read(inner.join("file")).unwrap(), b"content");
        let now =
            std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&inner).unwrap().permissions());
        assert_eq!(now & 0o7777, 0o755, "{mode:o}");
        fs::remove_file(inner.join("file")).unwrap();
    }
}

#[test]
fn owners_that_are_not_set_are_told_once_for_each_node() {
    let dir = tempdir().unwrap();
    let fake = Fake::of(&[(b"file", 1), (b"same file", 1), (b"link", 2)])
        .add(NodeKind::File, b"content", &[])
        .add(NodeKind::Link, b"target", &[]);
    for _ in 0..2 {
        let folder = Folder::open(dir.path()).unwrap();
        let mut told = Vec::new();
        let mut tell = |event: Event<'_>| {
            if let Event::Owner { path, node } = event {
                told.push((String::from_utf8_lossy(path).into_owned(), node.uid, node.gid));
            }
        };
        let report = copy(&fake, &folder, Start::Root(b"fs"), false, &mut tell).unwrap();
        let expected = ["file", "link", ""].map(|path| (path.to_owned(), 12345, 54321));
        assert_eq!(told, expected);
        assert_eq!(report.owners_lost, 3);
    }
}
