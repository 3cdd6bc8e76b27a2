//! View: the content of a mount, and the answers to the kernel's requests about it.
//!
//! Answers come from the sources and trees only; caches hold what the next request will probably
//! need, and no answer depends on them. Bytes that cannot be read are reported once for each file.

mod extended;
mod list;
mod shown;
mod stat;

use std::collections::HashSet;
use std::ops::Range;
use std::rc::Rc;
use std::time::{Instant, SystemTime};

use fuser::{FileAttr, FileType, INodeNo};
use rustix::io::Errno;
use weft_files::source::{ReadError, Shared};
use weft_files::tree::{Node, NodeKind, Tree, TreeError};

use crate::ahead::{Ahead, Fetch};
use crate::content::{Content, Lost};
use crate::directory::Directory;
use crate::kept::Kept;
use crate::numbers::{Named, Numbers};
use crate::paths::Paths;

pub(crate) use extended::{Latest, latest};
pub use shown::{Finding, Shown, What};
use stat::of_node;

/// Content of a mount.
pub struct View {
    shown: Vec<Shown>,
    /// Indices in `shown` of the entries with a tree, and of those with bytes.
    trees: Vec<usize>,
    files: Vec<usize>,
    numbers: Numbers,
    paths: Paths,
    directories: Kept<Rc<Directory>>,
    contents: Kept<Rc<Content>>,
    ahead: Ahead,
    /// File of the last read, until its readahead.
    last_read: Option<u64>,
    latest: Latest,
    /// Findings that were reported, by inode and [`Finding::is_doubt`]. Each inode has at most one
    /// report of either kind.
    told: HashSet<(u64, bool)>,
    tell: Box<dyn FnMut(&Finding)>,
    since: SystemTime,
    owner: (u32, u32),
    /// Whether the kernel may cache the bytes of files.
    cached: bool,
}

/// Use that the kernel's page cache makes of a file's bytes, decided when the file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caching {
    /// Keeps the bytes that it has cached.
    Keeps,
    /// Reads anew what it has cached, and caches it.
    Begins,
    /// Caches none: each read is a request of the program's size.
    Never,
}

impl View {
    /// A view of these entries. `tell` is called with findings that a reader would not notice.
    #[must_use]
    pub fn new(shown: Vec<Shown>, tell: Box<dyn FnMut(&Finding)>) -> Self {
        let of = |is_tree: bool| {
            let entries = shown.iter().enumerate();
            let own = entries.filter(|(_, it)| matches!(it.what, What::Files { .. }) == is_tree);
            own.map(|(at, _)| at).collect::<Vec<usize>>()
        };
        let (trees, files) = (of(true), of(false));
        let owner = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        Self {
            numbers: Numbers::new(trees.len()),
            shown,
            trees,
            files,
            paths: Paths::default(),
            directories: Kept::new(ENTRIES_KEPT),
            contents: Kept::new(PIECES_KEPT),
            ahead: Ahead::new(Instant::now),
            last_read: None,
            latest: Latest::default(),
            told: HashSet::new(),
            tell,
            since: SystemTime::now(),
            owner,
            cached: true,
        }
    }

    /// Turns the kernel's cache of file bytes off. A copy of a large file is faster then; small
    /// reads, and reads of what was read before, are slower.
    #[must_use]
    pub fn uncached(self) -> Self {
        Self { cached: false, ..self }
    }

    /// Whether the kernel need not ask before it opens a file: the bytes of no file can change, and
    /// it may cache them.
    pub(crate) fn opens_alike(&self) -> bool {
        let changes = |it: &Shown| matches!(it.what, What::Bytes { changes: true, .. });
        self.cached && !self.shown.iter().any(changes)
    }

    fn named(&self, number: u64) -> Result<Named, Errno> {
        let named = self.numbers.named(number).ok_or(Errno::STALE)?;
        let is_there = match named {
            Named::Root => true,
            Named::File(at) => at < self.files.len(),
            Named::Node(at, _) => at < self.trees.len(),
        };
        is_there.then_some(named).ok_or(Errno::STALE)
    }

    fn tree(&self, at: usize) -> (&dyn Tree, u64) {
        match &self.shown[self.trees[at]].what {
            What::Files { tree, size } => (&**tree, *size),
            What::Bytes { .. } => unreachable!("`trees` has the entries with a tree"),
        }
    }

    fn bytes(&self, at: usize) -> (Shared, bool) {
        match &self.shown[self.files[at]].what {
            What::Bytes { source, changes } => (Rc::clone(source), *changes),
            What::Files { .. } => unreachable!("`files` has the entries with bytes"),
        }
    }

    /// Reports a finding about an inode, unless one of its kind was reported before.
    fn note(&mut self, number: u64, range: Option<Range<u64>>, is_doubt: bool, why: String) {
        if self.told.len() >= TOLD_MAX || !self.told.insert((number, is_doubt)) {
            return;
        }
        let mut path = self.paths.path(number);
        let mut why = why;
        if self.told.len() == TOLD_MAX {
            (path, why) =
                (Vec::new(), format!("{TOLD_MAX} files were named; further ones are not"));
        }
        (self.tell)(&Finding { path, range, is_doubt, why });
    }

    /// Reports that an inode cannot be read, and returns the error for the answer.
    fn lost(&mut self, number: u64, why: &TreeError) -> Errno {
        self.note(number, None, false, why.to_string());
        Errno::IO
    }

    /// The node with an inode number, and the index of its tree. The top folder and its files have
    /// no node: the error is `EINVAL`.
    fn node(&mut self, number: u64) -> Result<(usize, Node), Errno> {
        let Named::Node(at, id) = self.named(number)? else { return Err(Errno::INVAL) };
        match self.tree(at).0.node(id) {
            Ok(node) => {
                if let Some(why) = &node.fault {
                    self.note(number, None, true, why.clone());
                }
                Ok((at, node))
            }
            Err(error) => Err(self.lost(number, &error)),
        }
    }

    /// Attributes of the inode with this name in a directory. Counts a lookup of the inode.
    pub(crate) fn lookup(&mut self, parent: u64, name: &[u8]) -> Result<FileAttr, Errno> {
        let number = match self.named(parent)? {
            Named::Root => {
                let at = self.shown.iter().position(|it| it.name.as_bytes() == name);
                self.entry_number(at.ok_or(Errno::NOENT)?)?
            }
            Named::File(_) => return Err(Errno::NOTDIR),
            Named::Node(at, _) => {
                let id = self.directory(parent)?.find(name).ok_or(Errno::NOENT)?;
                self.numbers.node(at, id).ok_or(Errno::OVERFLOW)?
            }
        };
        self.paths.looked_up(number, parent, name);
        self.attributes(number).inspect_err(|_| self.paths.forget(number, 1))
    }

    /// Subtracts lookups of an inode that the kernel has forgotten.
    pub(crate) fn forget(&mut self, number: u64, lookups: u64) {
        self.paths.forget(number, lookups);
    }

    /// Inode number of the entry with index `at` of the top folder.
    fn entry_number(&self, at: usize) -> Result<u64, Errno> {
        match self.trees.binary_search(&at) {
            Ok(tree) => {
                let root = self.tree(tree).0.root();
                self.numbers.node(tree, root).ok_or(Errno::OVERFLOW)
            }
            Err(_) => {
                self.files.binary_search(&at).map(|it| self.numbers.file(it)).or(Err(Errno::NOENT))
            }
        }
    }

    /// Attributes of an inode.
    pub(crate) fn attributes(&mut self, number: u64) -> Result<FileAttr, Errno> {
        match self.named(number)? {
            Named::Root => Ok(self.own(number, FileType::Directory, 0o555, 0)),
            Named::File(at) => {
                let (source, _) = self.bytes(at);
                Ok(self.own(number, FileType::RegularFile, 0o400, source.size()))
            }
            Named::Node(..) => self.node(number).map(|(_, node)| of_node(number, &node)),
        }
    }

    /// Attributes of the top folder or of a file in it.
    fn own(&self, number: u64, kind: FileType, perm: u16, size: u64) -> FileAttr {
        FileAttr {
            ino: INodeNo(number),
            size,
            blocks: size.div_ceil(512),
            atime: self.since,
            mtime: self.since,
            ctime: self.since,
            crtime: self.since,
            kind,
            perm,
            nlink: if kind == FileType::Directory { 2 } else { 1 },
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: BLOCK_BYTES,
            flags: 0,
        }
    }

    /// Target of a symbolic link; `EINVAL` for another node.
    pub(crate) fn target(&mut self, number: u64) -> Result<Vec<u8>, Errno> {
        let (at, node) = self.node(number)?;
        if node.kind != NodeKind::Link {
            return Err(Errno::INVAL);
        }
        self.tree(at).0.target(&node).map_err(|error| self.lost(number, &error))
    }

    /// Opens a file. Content that may have changed is read anew from here on.
    pub(crate) fn open(&mut self, number: u64) -> Result<Caching, Errno> {
        let changes = match self.named(number)? {
            Named::Root => return Err(Errno::ISDIR),
            Named::File(at) => self.bytes(at).1,
            Named::Node(..) => false,
        };
        if changes {
            self.ahead.drop_of(number);
        }
        Ok(match (self.cached, changes) {
            (false, _) => Caching::Never,
            (true, true) => Caching::Begins,
            (true, false) => Caching::Keeps,
        })
    }

    /// Bytes of a file from `offset` on: `len` of them, or fewer at its end.
    pub(crate) fn read(&mut self, number: u64, offset: u64, len: u32) -> Result<&[u8], Errno> {
        let held = self.by_ahead(number, |ahead, size, fetch| {
            let len = u64::from(len).min(size.saturating_sub(offset));
            let len = usize::try_from(len).unwrap_or(usize::MAX);
            if len > 0 {
                ahead.hold(number, offset, len, size, fetch)?;
            }
            Ok::<_, Lost>(len)
        })?;
        match held {
            Ok(len) => {
                self.last_read = Some(number);
                Ok(self.ahead.held(number, offset, len))
            }
            Err(lost) => {
                self.note(number, Some(lost.range), false, lost.why);
                Err(Errno::IO)
            }
        }
    }

    /// Reads what the reader of the file that was read last will ask for next, if it is a
    /// sequential one. Called while no request waits: the program uses what it has meanwhile.
    pub(crate) fn read_on(&mut self) {
        let Some(number) = self.last_read.take() else { return };
        // A fault is reported if its bytes are asked for.
        let _ = self.by_ahead(number, |ahead, size, fetch| ahead.read_on(number, size, fetch));
    }

    /// Calls `go` with the readahead, the size of the file, and the function that reads its bytes.
    fn by_ahead<T>(
        &mut self,
        number: u64,
        go: impl FnOnce(&mut Ahead, u64, &mut Fetch<'_, Lost>) -> T,
    ) -> Result<T, Errno> {
        match self.named(number)? {
            Named::Root => Err(Errno::ISDIR),
            Named::File(at) => {
                let What::Bytes { source, .. } = &self.shown[self.files[at]].what else {
                    return Err(Errno::INVAL);
                };
                Ok(go(&mut self.ahead, source.size(), &mut |offset, into| {
                    let lost = |error: ReadError| Lost { range: error.range, why: error.why };
                    source.read_at(offset, into).map_err(lost)
                }))
            }
            Named::Node(at, _) => {
                let content = self.content(number)?;
                let What::Files { tree, .. } = &self.shown[self.trees[at]].what else {
                    return Err(Errno::INVAL);
                };
                Ok(go(&mut self.ahead, content.size, &mut |offset, into| {
                    content.read(&**tree, offset, into)
                }))
            }
        }
    }

    /// Map of the content of a regular file, from the cache or the tree.
    fn content(&mut self, number: u64) -> Result<Rc<Content>, Errno> {
        if let Some(content) = self.contents.get(number) {
            return Ok(content);
        }
        let (at, node) = self.node(number)?;
        match node.kind {
            NodeKind::File => {}
            NodeKind::Directory => return Err(Errno::ISDIR),
            NodeKind::Link | NodeKind::Special(_) => return Err(Errno::INVAL),
        }
        let pieces = self.tree(at).0.pieces(&node).map_err(|error| self.lost(number, &error))?;
        let content = Rc::new(Content::of(&node, pieces));
        if let Some((range, why)) = content.doubts().first() {
            self.note(number, Some(range.clone()), true, why.clone());
        }
        self.contents.put(number, content.weight(), Rc::clone(&content));
        Ok(content)
    }

    /// Offset of the next data (`is_data`) or hole in a file, from `offset` on; `ENXIO` if `offset`
    /// is not before the end, or if no data follows.
    pub(crate) fn seek(&mut self, number: u64, offset: u64, is_data: bool) -> Result<u64, Errno> {
        let size = match self.named(number)? {
            Named::Root => return Err(Errno::ISDIR),
            Named::File(at) => self.bytes(at).0.size(),
            Named::Node(..) => {
                let content = self.content(number)?;
                return match is_data {
                    _ if offset >= content.size => Err(Errno::NXIO),
                    true => content.data_from(offset).ok_or(Errno::NXIO),
                    false => Ok(content.hole_from(offset)),
                };
            }
        };
        match is_data {
            _ if offset >= size => Err(Errno::NXIO),
            true => Ok(offset),
            false => Ok(size),
        }
    }

    /// Number of all blocks and of free blocks, each of 4 KiB, of the file system that an inode is
    /// on. For the top folder and its files: the blocks of all entries together, of which none are
    /// free.
    pub(crate) fn space(&self, number: u64) -> (u64, u64) {
        let (size, free) = match self.named(number) {
            Ok(Named::Node(at, _)) => {
                let (tree, size) = self.tree(at);
                (size, size.saturating_sub(tree.used_bytes()))
            }
            _ => {
                let of = |it: &Shown| match &it.what {
                    What::Bytes { source, .. } => source.size(),
                    What::Files { size, .. } => *size,
                };
                (self.shown.iter().map(of).fold(0, u64::saturating_add), 0)
            }
        };
        (size / u64::from(BLOCK_BYTES), free / u64::from(BLOCK_BYTES))
    }
}

/// Unit of space, and the preferred size of reads that is reported to programs.
pub(crate) const BLOCK_BYTES: u32 = 4096;
/// Largest number of directory entries in memory: at about 50 bytes each, 50 MB.
const ENTRIES_KEPT: usize = 1 << 20;
/// Largest number of segments of maps of files in memory: at about 100 bytes each, 25 MB.
const PIECES_KEPT: usize = 1 << 18;
/// Largest number of findings that are reported.
const TOLD_MAX: usize = 10_000;
