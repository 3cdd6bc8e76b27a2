//! Copy of files from a file system into a folder.
//!
//! Each file is written under a temporary name (`PART`), gets its attributes, owner, mode and
//! times, and is then renamed. A file with its final name is therefore complete, and an interrupted
//! copy goes on where it ended. This holds if the process ends, but not after a power cut or an
//! error of the last write-back, which [`copy`] returns: each file would need an `fdatasync` of its
//! own, which on a disk takes longer than to copy a small file.
//!
//! A file in the folder with the size and time of the original is not read again. Any other file
//! with its name stays as it is, and the report names it. A file with unreadable or doubtful bytes
//! keeps the time of the copy, so that a later copy reports it again.
//!
//! No name leads out of the folder and no link in it is followed (`folder.rs`). If the folder takes
//! two names for the same one (`Name` and `name`), the first entry is copied and the other one is
//! reported. Directories get their modes and times at the end, because new names in them change
//! their times.
//!
//! If the folder has no space or fails, the copy ends: [`Stopped`] has the report so far.

mod folder;
mod report;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{self, AtFlags, Gid, Mode, Stat, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use thiserror::Error;

use crate::source::BLOCK_BYTES;
use crate::tree::{Entry, Node, NodeKind, NodeTime, Packed, PieceBytes, Tree};
pub use folder::Folder;
use folder::{is_file, is_name};
pub use report::{Damaged, Event, Report, ReportedPath};

/// A copy that ended early.
#[derive(Debug, Error)]
#[error("{error}")]
pub struct Stopped {
    /// Report of the copy up to its end.
    pub report: Box<Report>,
    /// Reason why the copy ended.
    pub error: CopyError,
}

/// Reason why a copy ended early.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The folder of the file system cannot be made.
    #[error("{0}")]
    Folder(#[from] io::Error),
    /// Copied files could not be written back.
    #[error(
        "writing back failed: {0}; files of this run may be incomplete; copy again into another \
         folder"
    )]
    Sync(io::Error),
    /// There is no space left.
    #[error(
        "no space left in the folder; free some and run the same command again: it goes on there"
    )]
    NoSpace,
    /// The folder cannot be written any more.
    #[error(
        "the folder cannot be written any more: {0}; mend that and run the same command again: it \
         goes on there"
    )]
    Target(io::Error),
}

/// Function that writes bytes to a file, at an offset.
type Write<'w> = dyn FnMut(&OwnedFd, &[u8], u64) -> Result<(), Errno> + 'w;

/// The part of a file system that is copied.
#[derive(Clone, Copy, Debug)]
pub enum Start<'s> {
    /// Single nodes, each under its name. Paths in the report begin in the folder of the copy.
    Entries(&'s [Entry]),
    /// Everything, into a folder of this name. Paths in the report begin in that folder.
    Root(&'s [u8]),
}

/// Copies the part `start` of a file system into `base`. With `owners`, owners are set as well,
/// which needs root. `tell` is called for each event when it happens, so that a caller can keep the
/// findings of a copy that is killed.
///
/// # Errors
/// The folder has no space left or cannot be written, it cannot be made, or writing back failed.
/// The error contains the report up to this point. All other findings are in the report.
pub fn copy(
    tree: &dyn Tree,
    base: &Folder,
    start: Start<'_>,
    owners: bool,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<Report, Stopped> {
    copy_by(tree, base, start, owners, tell, &mut write_all)
}

/// Does the work of [`copy`], and returns its result; writes to files by the function `write`.
fn copy_by(
    tree: &dyn Tree,
    base: &Folder,
    start: Start<'_>,
    owners: bool,
    tell: &mut dyn FnMut(Event<'_>),
    write: &mut Write<'_>,
) -> Result<Report, Stopped> {
    base.remove(PART);
    let opened = match start {
        Start::Entries(_) => base.walk(b""),
        Start::Root(name) => base.enter(name),
    };
    let opened = opened.map_err(CopyError::of);
    let opened = opened.and_then(|top| {
        let folds = folds_case(base, &top)?;
        Ok((top, folds))
    });
    let (top, folds) = match opened {
        Ok(opened) => opened,
        Err(error) => return Err(Stopped { report: Box::default(), error }),
    };
    let own = (rustix::process::geteuid(), rustix::process::getegid());
    let mut copy = Copy {
        tree,
        base,
        top,
        owners,
        own,
        folds,
        tell,
        write,
        report: Report {
            is_replayed: tree.is_replayed(),
            doubts: tree.doubts().to_vec(),
            ..Report::default()
        },
        first_names: BTreeMap::new(),
        buffer: Vec::new(),
    };
    let mut ended = match start {
        Start::Entries(entries) => copy.entries(entries),
        Start::Root(_) => copy.all(),
    };
    let report = copy.report;
    base.remove(PART);
    if let Err(error) = base.sync() {
        ended = ended.and(Err(CopyError::Sync(error)));
    }
    match ended {
        Ok(()) => Ok(report),
        Err(error) => Err(Stopped { report: Box::new(report), error }),
    }
}

impl CopyError {
    /// Reason for the end of a copy, from an error of the folder itself.
    fn of(error: Errno) -> Self {
        match error {
            Errno::NOSPC | Errno::DQUOT => Self::NoSpace,
            error => Self::Folder(error.into()),
        }
    }
}

/// Returns an error, which ends the copy, if `error` concerns the whole folder and not only one
/// path.
fn goes_on(error: Errno) -> Result<(), CopyError> {
    match error {
        Errno::NOSPC | Errno::DQUOT => Err(CopyError::NoSpace),
        Errno::IO
        | Errno::ROFS
        | Errno::NODEV
        | Errno::NXIO
        | Errno::STALE
        | Errno::NOTCONN
        | Errno::SHUTDOWN
        | Errno::TIMEDOUT
        | Errno::HOSTDOWN => Err(CopyError::Target(error.into())),
        _ => Ok(()),
    }
}

/// Whether one of the folders takes names that differ only in upper and lower case for the same
/// name.
fn folds_case(base: &Folder, top: &Folder) -> Result<bool, CopyError> {
    let mut folds = false;
    for folder in [base, top] {
        drop(folder.create(PART).map_err(CopyError::of)?);
        folds |= folder.stat(PART.to_ascii_uppercase().as_slice()).is_some();
        folder.remove(PART);
    }
    Ok(folds)
}

/// Entries of one directory that are in the folder already, keyed by their inode number there: the
/// name and the number of the node.
type Claimed = BTreeMap<u64, (Vec<u8>, u64)>;

/// A copy under way.
struct Copy<'c> {
    tree: &'c dyn Tree,
    base: &'c Folder,
    top: Folder,
    owners: bool,
    own: (Uid, Gid),
    folds: bool,
    tell: &'c mut dyn FnMut(Event<'_>),
    write: &'c mut Write<'c>,
    report: Report,
    /// Path of the first copy of each node with several names, by the number of the node.
    first_names: BTreeMap<u64, Vec<u8>>,
    buffer: Vec<u8>,
}

impl Copy<'_> {
    fn all(&mut self) -> Result<(), CopyError> {
        let root = match self.tree.node(self.tree.root()) {
            Ok(root) if root.kind == NodeKind::Directory => root,
            Ok(_) => {
                self.failed(b"", "the root is no directory");
                return Ok(());
            }
            Err(error) => {
                self.failed(b"", error);
                return Ok(());
            }
        };
        self.walk(Vec::new(), root)
    }

    /// Copies nodes by their names.
    fn entries(&mut self, entries: &[Entry]) -> Result<(), CopyError> {
        let top = self.top.walk(b"").map_err(CopyError::of)?;
        for (path, node) in self.named(&top, b"", entries.to_vec())? {
            self.walk(path, node)?;
        }
        Ok(())
    }

    /// Copies a directory with everything below it.
    fn walk(&mut self, path: Vec<u8>, node: Node) -> Result<(), CopyError> {
        let mut seen = BTreeSet::from([node.id]);
        let mut waiting = vec![(path, node)];
        let mut done = Vec::new();
        while let Some((path, node)) = waiting.pop() {
            let folder = match self.top.walk(&path) {
                Ok(folder) => folder,
                Err(Errno::NOTDIR | Errno::LOOP) => {
                    self.kept(&path, "exists and is no directory; nothing below it is copied");
                    continue;
                }
                Err(error) => {
                    goes_on(error)?;
                    self.failed(&path, error);
                    continue;
                }
            };
            self.report.directories += 1;
            let inner = self.names(&folder, &path, &node)?;
            for (path, child) in inner.into_iter().rev() {
                if path.iter().filter(|&&byte| byte == b'/').count() >= DEPTH_MAX {
                    self.failed(&path, format!("found more than {DEPTH_MAX} directories above it"));
                } else if seen.insert(child.id) {
                    waiting.push((path, child));
                } else {
                    self.failed(&path, "is a directory with another path too, where it is copied");
                }
            }
            done.push((path, node));
        }
        for (path, node) in done.into_iter().rev() {
            match self.top.walk(&path) {
                Ok(folder) => self.finish(&folder.fd(), &path, &node, true),
                Err(error) => self.failed(&path, error),
            }
        }
        Ok(())
    }

    /// Copies the entries of a directory. Directories among them are made, and are returned with
    /// their paths to be copied later.
    fn names(
        &mut self,
        folder: &Folder,
        path: &[u8],
        node: &Node,
    ) -> Result<Vec<(Vec<u8>, Node)>, CopyError> {
        self.suspect(path, node);
        let entries = match self.tree.entries(node) {
            Ok(entries) => entries,
            Err(error) => {
                self.failed(path, error);
                return Ok(Vec::new());
            }
        };
        for fault in entries.faults {
            self.failed(path, format!("a part of the directory is lost: {fault}"));
        }
        for doubt in entries.doubts {
            self.doubtful(path, format!("a part of the directory may be wrong: {doubt}"));
        }
        self.named(folder, path, entries.list)
    }

    /// Copies some entries of a directory. Directories among them are made, and are returned with
    /// their paths to be copied later.
    fn named(
        &mut self,
        folder: &Folder,
        path: &[u8],
        entries: Vec<Entry>,
    ) -> Result<Vec<(Vec<u8>, Node)>, CopyError> {
        let mut claimed = Claimed::new();
        let mut inner = Vec::new();
        let mut folded = BTreeSet::new();
        for entry in entries {
            let mut path = path.to_vec();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend(&entry.name);
            if !is_name(&entry.name) {
                self.failed(&path, "its name cannot be one of a file");
                continue;
            }
            let name = String::from_utf8_lossy(&entry.name).to_lowercase();
            if self.folds && !folded.insert(name) {
                self.failed(&path, "the folder has no two names that differ in case only");
                continue;
            }
            let child = match self.tree.node(entry.id) {
                Ok(child) => child,
                Err(error) => {
                    self.failed(&path, error);
                    continue;
                }
            };
            if child.kind == NodeKind::Directory {
                // An error is ignored: it occurs again when the directory is copied.
                let _ = folder.make(&entry.name);
            }
            let there = folder.stat(&entry.name);
            if let Some((other, id)) = there.and_then(|stat| claimed.get(&stat.st_ino))
                && *id != child.id
            {
                let why = match *other == entry.name {
                    true => "another entry of its directory has the same name".to_owned(),
                    false => format!("the folder takes its name for {}", other.escape_ascii()),
                };
                self.failed(&path, why);
                continue;
            }
            match child.kind {
                NodeKind::Directory => inner.push((path, child.clone())),
                NodeKind::File => self.file(folder, &path, &entry.name, &child)?,
                NodeKind::Link => self.link(folder, &path, &entry.name, &child)?,
                NodeKind::Special(kind) => {
                    let reported = ReportedPath { path, why: kind.to_owned() };
                    (self.tell)(Event::Special(&reported));
                    self.report.special.push(reported);
                }
            }
            if let Some(stat) = folder.stat(&entry.name) {
                claimed.entry(stat.st_ino).or_insert((entry.name, child.id));
            }
        }
        Ok(inner)
    }

    #[expect(clippy::needless_pass_by_value, reason = "texts and errors of several types")]
    fn failed(&mut self, path: &[u8], why: impl ToString) {
        let reported = ReportedPath { path: path.to_vec(), why: why.to_string() };
        (self.tell)(Event::Failed(&reported));
        self.report.failed.push(reported);
    }

    fn kept(&mut self, path: &[u8], why: &str) {
        let reported = ReportedPath { path: path.to_vec(), why: why.to_owned() };
        (self.tell)(Event::Kept(&reported));
        self.report.kept.push(reported);
    }

    fn doubtful(&mut self, path: &[u8], why: String) {
        let reported = ReportedPath { path: path.to_vec(), why };
        (self.tell)(Event::Suspect(&reported));
        self.report.suspect.push(reported);
    }

    fn suspect(&mut self, path: &[u8], node: &Node) {
        if let Some(why) = &node.fault {
            self.doubtful(path, why.clone());
        }
    }

    /// Copies a regular file, or gives an earlier copy of the same node a further name.
    fn file(
        &mut self,
        folder: &Folder,
        path: &[u8],
        name: &[u8],
        node: &Node,
    ) -> Result<(), CopyError> {
        self.suspect(path, node);
        let first = self.first_names.get(&node.id).cloned();
        if let Some(stat) = folder.stat(name) {
            if is_file(&stat) && is_same(&stat, node) {
                self.report.skipped += 1;
                (self.tell)(Event::Bytes(node.size));
                if !self.owners && first.is_none() {
                    self.count_owner(path, node);
                }
                if node.links > 1 {
                    self.first_names.entry(node.id).or_insert_with(|| path.to_vec());
                }
            } else {
                let why = "exists and differs in size or time (an earlier copy with unreadable or \
                           doubtful bytes does too, and its report lists them); it stays as it is, \
                           and is copied again if it is removed";
                self.kept(path, why);
            }
            return Ok(());
        }
        if let Some(first) = first {
            match self.further_name(&first, folder, name) {
                Ok(()) => {
                    self.report.hard_links += 1;
                    return Ok(());
                }
                Err(error) => {
                    goes_on(error)?;
                    self.report.links_copied += 1;
                }
            }
        }
        if !self.write(path, node)? {
            return Ok(());
        }
        match self.base.rename(PART, folder, name) {
            Ok(()) => {
                self.report.files += 1;
                if node.links > 1 {
                    self.first_names.insert(node.id, path.to_vec());
                }
            }
            Err(error) => {
                goes_on(error)?;
                self.failed(path, error);
            }
        }
        Ok(())
    }

    fn further_name(&self, first: &[u8], folder: &Folder, name: &[u8]) -> Result<(), Errno> {
        let at = first.iter().rposition(|&byte| byte == b'/');
        let (parent, last) = match at {
            Some(at) => (&first[..at], &first[at + 1..]),
            None => (&first[..0], first),
        };
        self.top.walk(parent)?.link(last, folder, name)
    }

    /// Writes the content of a file to `PART`, with all its properties. Returns whether the file
    /// could be written.
    fn write(&mut self, path: &[u8], node: &Node) -> Result<bool, CopyError> {
        let pieces = match self.tree.pieces(node) {
            Ok(pieces) => pieces,
            Err(error) => {
                self.failed(path, error);
                return Ok(false);
            }
        };
        self.base.remove(PART);
        let file = match self.base.create(PART) {
            Ok(file) => file,
            Err(error) => {
                goes_on(error)?;
                self.failed(path, format!("cannot be written: {error}"));
                return Ok(false);
            }
        };
        let mut damaged = Damaged { path: path.to_vec(), ranges: Vec::new() };
        let mut result = Ok(());
        for piece in pieces.list {
            result = match piece.bytes {
                PieceBytes::Here(bytes) => (self.write)(&file, &bytes, piece.range.start),
                PieceBytes::Packed(packed) => {
                    self.packed(&file, piece.range, &packed, &mut damaged)
                }
                PieceBytes::Source(at) => self.source(&file, piece.range, at, &mut damaged),
            };
            if result.is_err() {
                break;
            }
        }
        match result.and_then(|()| fs::ftruncate(&file, node.size)) {
            Ok(()) => {}
            Err(error) => {
                goes_on(error)?;
                self.failed(path, format!("cannot be written: {error}"));
                return Ok(false);
            }
        }
        for (range, why) in pieces.faults {
            damaged.ranges.push((range, why));
        }
        damaged.ranges.sort_by_key(|(range, _)| range.start);
        let is_whole = damaged.ranges.is_empty() && pieces.doubts.is_empty();
        if !damaged.ranges.is_empty() {
            (self.tell)(Event::Damaged(&damaged));
            self.report.damaged.push(damaged);
        }
        for (range, why) in pieces.doubts {
            let why = format!("bytes {}..{} may be wrong: {why}", range.start, range.end);
            self.doubtful(path, why);
        }
        self.finish(&file, path, node, is_whole);
        Ok(true)
    }

    /// Copies a range of a file from the source, where it begins at byte `at`.
    fn source(
        &mut self,
        file: &OwnedFd,
        range: Range<u64>,
        at: u64,
        damaged: &mut Damaged,
    ) -> Result<(), Errno> {
        let source = self.tree.source();
        self.buffer.resize(READ_BYTES, 0);
        let mut next = range.start;
        while next < range.end {
            let len = (range.end - next).min(READ_BYTES as u64);
            let bytes = &mut self.buffer[..usize::try_from(len).unwrap_or(0)];
            let from = at + (next - range.start);
            if source.read_at(from, bytes).is_err() {
                // Only the blocks of the source that cannot be read become zeros. A file may begin
                // within such a block, if the blocks of its file system are smaller.
                let (mut rest, mut offset) = (&mut *bytes, 0);
                while !rest.is_empty() {
                    let at = from + offset;
                    let left = BLOCK_BYTES as u64 - at % BLOCK_BYTES as u64;
                    let len = rest.len().min(usize::try_from(left).unwrap_or(BLOCK_BYTES));
                    let (block, behind) = rest.split_at_mut(len);
                    if let Err(error) = source.read_at(at, block) {
                        block.fill(0);
                        let start = next + offset;
                        damaged.add(start..start + len as u64, error.why);
                    }
                    (rest, offset) = (behind, offset + len as u64);
                }
            }
            write_holed(self.write, file, bytes, next)?;
            self.report.bytes += len;
            (self.tell)(Event::Bytes(len));
            next += len;
        }
        Ok(())
    }

    /// Copies a range of a file that is packed; bytes that cannot be unpacked stay zeros.
    fn packed(
        &mut self,
        file: &OwnedFd,
        range: Range<u64>,
        packed: &Packed,
        damaged: &mut Damaged,
    ) -> Result<(), Errno> {
        let len = range.end - range.start;
        let unpacked = self.tree.unpack(packed).map_err(|error| error.to_string());
        let bytes = unpacked.and_then(|bytes| {
            let start = usize::try_from(packed.skip).unwrap_or(usize::MAX);
            let end = usize::try_from(packed.skip.saturating_add(len)).unwrap_or(usize::MAX);
            let expected = || format!("found {} unpacked bytes, expected {end}", bytes.len());
            bytes.get(start..end).map(<[u8]>::to_vec).ok_or_else(expected)
        });
        match bytes {
            Ok(bytes) => write_holed(self.write, file, &bytes, range.start)?,
            Err(why) => damaged.add(range, why),
        }
        self.report.bytes += len;
        (self.tell)(Event::Bytes(len));
        Ok(())
    }

    fn link(
        &mut self,
        folder: &Folder,
        path: &[u8],
        name: &[u8],
        node: &Node,
    ) -> Result<(), CopyError> {
        self.suspect(path, node);
        let target = match self.tree.target(node) {
            Ok(target) => target,
            Err(error) => {
                self.failed(path, error);
                return Ok(());
            }
        };
        let name = OsStr::from_bytes(name);
        match fs::symlinkat(OsStr::from_bytes(&target), folder.fd(), name) {
            Ok(()) => self.report.links += 1,
            Err(Errno::EXIST) => {
                let is_same = fs::readlinkat(folder.fd(), name, Vec::new())
                    .is_ok_and(|there| there.as_bytes() == target);
                match is_same {
                    true => {
                        self.report.skipped += 1;
                        if !self.owners {
                            self.count_owner(path, node);
                        }
                    }
                    false => self.kept(path, "exists and is another link or no link"),
                }
                return Ok(());
            }
            Err(error) => {
                goes_on(error)?;
                self.failed(path, error);
                return Ok(());
            }
        }
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        if self.owners {
            let (uid, gid) = owner(node);
            if fs::chownat(folder.fd(), name, uid, gid, flags).is_err() {
                self.count_owner(path, node);
            }
        } else {
            self.count_owner(path, node);
        }
        // An error is ignored: few programs read the time of a link.
        let _ = fs::utimensat(folder.fd(), name, &times(node), flags);
        Ok(())
    }

    /// Counts and reports an owner that is not set, unless this process has the same user and
    /// group.
    fn count_owner(&mut self, path: &[u8], node: &Node) {
        if (node.uid, node.gid) != (self.own.0.as_raw(), self.own.1.as_raw()) {
            self.report.owners_lost += 1;
            (self.tell)(Event::Owner { path, node });
        }
    }

    /// Sets attributes, owner, mode and, if `with_times`, the times of a file or folder.
    fn finish(&mut self, file: &impl AsFd, path: &[u8], node: &Node, with_times: bool) {
        let mut has_owner = self.owners;
        if self.owners {
            let (uid, gid) = owner(node);
            if fs::fchown(file, uid, gid).is_err() {
                has_owner = false;
                self.count_owner(path, node);
            }
        } else {
            self.count_owner(path, node);
        }
        // Attributes come before the mode, which may forbid them to all but root.
        match self.tree.attributes(node) {
            Ok(attributes) => {
                for attribute in attributes {
                    let name = OsStr::from_bytes(&attribute.name);
                    let flags = XattrFlags::empty();
                    if fs::fsetxattr(file, name, &attribute.value, flags).is_err() {
                        self.report.attributes_lost += 1;
                    }
                }
            }
            Err(error) => {
                self.doubtful(path, format!("extended attributes: {error}"));
            }
        }
        // If the owner is not set, a set-user-ID program would run as the user of this process.
        let mode = if has_owner { node.mode } else { node.mode & 0o1777 };
        if let Err(error) = fs::fchmod(file, Mode::from_raw_mode(mode)) {
            self.failed(path, format!("mode: {error}"));
        }
        if with_times && let Err(error) = fs::futimens(file, &times(node)) {
            self.failed(path, format!("times: {error}"));
        }
    }
}

fn owner(node: &Node) -> (Option<Uid>, Option<Gid>) {
    (Some(Uid::from_raw(node.uid)), Some(Gid::from_raw(node.gid)))
}

fn times(node: &Node) -> Timestamps {
    let spec = |time: NodeTime| Timespec { tv_sec: time.seconds, tv_nsec: time.nanos.into() };
    Timestamps { last_access: spec(node.accessed), last_modification: spec(node.modified) }
}

/// Whether a file has the size and the time of a node, in the precision of the folder's file
/// system.
fn is_same(stat: &Stat, node: &Node) -> bool {
    #[allow(clippy::useless_conversion, reason = "signed on some machines")]
    let nanos = u64::try_from(stat.st_mtime_nsec).unwrap_or(0);
    let same_second = stat.st_mtime == node.modified.seconds;
    // FAT keeps times in units of two seconds.
    let close = nanos == 0 && stat.st_mtime == node.modified.seconds & !1;
    let own = node.modified.nanos;
    let same_time =
        same_second && TIME_UNITS.iter().any(|unit| nanos == u64::from(own / unit * unit));
    u64::try_from(stat.st_size).is_ok_and(|size| size == node.size) && (same_time || close)
}

/// Writes `bytes` to a file at `offset`; runs of zeros of [`HOLE_BYTES`] become holes.
fn write_holed(
    write: &mut Write<'_>,
    file: &OwnedFd,
    bytes: &[u8],
    offset: u64,
) -> Result<(), Errno> {
    for (part, offset) in bytes.chunks(HOLE_BYTES).zip((offset..).step_by(HOLE_BYTES)) {
        if part.iter().any(|&byte| byte != 0) {
            write(file, part, offset)?;
        }
    }
    Ok(())
}

fn write_all(file: &OwnedFd, mut bytes: &[u8], mut offset: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(file, bytes, offset) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => {
                bytes = &bytes[written..];
                offset += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Name of the file that is being written, in the folder that the user named.
pub const PART: &[u8] = b".weft-rescue.part";
/// Units of times of file systems, in ns: ext4; NTFS and SMB; UDF; exFAT; whole seconds.
const TIME_UNITS: [u32; 5] = [1, 100, 1_000, 10_000_000, 1_000_000_000];
/// Largest size of a read in bytes: several full stripes of common arrays.
const READ_BYTES: usize = 4 << 20;
/// Unit of holes in bytes: zeros of this length are not written.
const HOLE_BYTES: usize = 64 << 10;
/// Largest number of directories above a file.
const DEPTH_MAX: usize = 1000;
