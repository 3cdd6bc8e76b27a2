//! Paths in the file systems of disks or of a running volume. The root has a folder for each file
//! system, with the name that it has in DIR of `rescue --to`.
//!
//! No link is followed: its target is a path of the machine that the disks are from. A name with
//! `*`, `?` or `[…]` means every name that it matches, unless the folder has exactly this name.

use std::cell::OnceCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use glob::Pattern;
use weft_files::open::Opened;
use weft_files::tree::{Entries, Node, NodeKind, Tree};
use weft_terminal::terminal::{complain, label, printable};

use super::{Contents, FileSystem};

/// File systems of disks or of a running volume, each opened when it is first needed.
pub(crate) struct Walk<'c> {
    all: Vec<FileSystem<'c>>,
    opened: Vec<OnceCell<Result<Opened, String>>>,
}

/// Root or node to which a path leads.
#[derive(Clone, Debug)]
pub(crate) enum Spot {
    /// The root, with a folder for each file system.
    Root,
    /// A node of the file system with this index.
    Node(usize, Box<Node>),
}

/// Path, as names from the root on, with the root or node to which it leads.
pub(crate) type Reached = (Vec<Vec<u8>>, Spot);

/// Everything that a path leads to: several things if it has a pattern.
#[derive(Debug, Default)]
pub(crate) struct Meant {
    pub(crate) reached: Vec<Reached>,
    /// Messages about entries that may match the pattern too and cannot be read.
    pub(crate) faults: Vec<String>,
}

impl Spot {
    /// Whether the spot is a folder, below which other names may lie.
    pub(crate) fn is_folder(&self) -> bool {
        match self {
            Self::Root => true,
            Self::Node(_, node) => node.kind == NodeKind::Directory,
        }
    }
}

impl<'c> Walk<'c> {
    pub(crate) fn new(contents: &'c Contents) -> Self {
        let all = contents.file_systems();
        let opened = all.iter().map(|_| OnceCell::new()).collect();
        Self { all, opened }
    }

    /// File systems, in the order of the root's names.
    pub(crate) fn file_systems(&self) -> &[FileSystem<'c>] {
        &self.all
    }

    /// Files of the file system with index `at`, which is opened at the first use. Notes on the
    /// file system are then printed to standard error.
    ///
    /// # Errors
    /// The file system cannot be read; the text names its folder.
    pub(crate) fn tree(&self, at: usize) -> Result<&dyn Tree, String> {
        let opened = self.opened[at].get_or_init(|| {
            let opened = self.all[at].open();
            let notes = opened.iter().flat_map(|it| it.notes.iter().chain(it.tree.doubts()));
            notes.for_each(|note| complain(&format!("note: {}: {note}", self.all[at].folder)));
            opened
        });
        match opened {
            Ok(opened) => Ok(&*opened.tree),
            Err(why) => Err(format!("{}: {why}", self.all[at].folder)),
        }
    }

    /// The node with the number `id` in the file system with index `at`; `path` names it in the
    /// error.
    ///
    /// # Errors
    /// The node cannot be read; the text names its path.
    pub(crate) fn node(&self, at: usize, id: u64, path: &[Vec<u8>]) -> Result<Node, String> {
        self.tree(at)?.node(id).map_err(|error| format!("{}: {error}", shown(path)))
    }

    /// Entries of a directory in the file system with index `at`; `path` names the directory in the
    /// error.
    ///
    /// # Errors
    /// No entry can be read; the text names the path.
    pub(crate) fn entries(
        &self,
        at: usize,
        node: &Node,
        path: &[Vec<u8>],
    ) -> Result<Entries, String> {
        self.tree(at)?.entries(node).map_err(|error| format!("{}: {error}", shown(path)))
    }

    /// Finds everything that a path leads to.
    ///
    /// # Errors
    /// Nothing has that name, the path leads through a link or a file, or a part of it cannot be
    /// read.
    pub(crate) fn find(&self, parts: &[Vec<u8>]) -> Result<Meant, String> {
        let mut faults = Vec::new();
        let mut reached: Vec<Reached> = vec![(Vec::new(), Spot::Root)];
        for part in parts {
            let mut next = Vec::new();
            let is_one = reached.len() == 1;
            for (path, spot) in &reached {
                // Among several matches of a pattern, those that are not folders are dropped.
                if !is_one && !spot.is_folder() {
                    continue;
                }
                match self.enter(path, spot, part, &mut faults) {
                    Ok(found) => next.extend(found),
                    Err(why) if is_one => return Err(why),
                    Err(why) => faults.push(why),
                }
            }
            if next.is_empty() {
                if let Some(why) = faults.into_iter().next() {
                    return Err(why);
                }
                let above = reached.first().map_or_else(String::new, |(path, _)| shown(path));
                return Err(self.missing(part, &above, is_one && above == "/"));
            }
            reached = next;
        }
        Ok(Meant { reached, faults })
    }

    fn missing(&self, part: &[u8], above: &str, is_root: bool) -> String {
        let part = label(Path::new(OsStr::from_bytes(part)));
        if is_root {
            let names: Vec<&str> = self.all.iter().map(|it| it.folder.as_str()).collect();
            return match names.as_slice() {
                [] => "found no file system, expected one or more; rescue --list says what is \
                       inside"
                    .to_owned(),
                names => format!("found {part}, expected one of /{}", names.join(", /")),
            };
        }
        format!("{above}: found no {part} in it; weft ls of {above} lists what is there")
    }

    /// Entries of a folder with exactly this name or, if there is none, those that it matches as a
    /// pattern. Entries that may match and cannot be read are added to `faults`.
    fn enter(
        &self,
        path: &[Vec<u8>],
        spot: &Spot,
        name: &[u8],
        faults: &mut Vec<String>,
    ) -> Result<Vec<Reached>, String> {
        let below = |name: &[u8]| [path, &[name.to_vec()]].concat();
        match spot {
            Spot::Root => {
                let names = self.all.iter().map(|it| it.folder.as_bytes());
                let mut found = Vec::new();
                for at in matching(name, names) {
                    let path = below(self.all[at].folder.as_bytes());
                    match self.tree(at).and_then(|tree| self.node(at, tree.root(), &path)) {
                        Ok(node) => found.push((path, Spot::Node(at, Box::new(node)))),
                        Err(why) if path.last().is_some_and(|its| its == name) => return Err(why),
                        Err(why) => faults.push(why),
                    }
                }
                Ok(found)
            }
            Spot::Node(at, node) => {
                self.must_be_folder(*at, node, path)?;
                let entries = self.entries(*at, node, path)?;
                let names = entries.list.iter().map(|entry| entry.name.as_slice());
                let mut found = Vec::new();
                for nth in matching(name, names) {
                    let entry = &entries.list[nth];
                    let full = below(&entry.name);
                    match self.node(*at, entry.id, &full) {
                        Ok(node) => found.push((full, Spot::Node(*at, Box::new(node)))),
                        Err(why) if entry.name == name => return Err(why),
                        Err(why) => faults.push(why),
                    }
                }
                // An exact match makes it irrelevant that other entries cannot be read.
                let is_exact = |(path, _): &Reached| path.last().is_some_and(|it| it == name);
                if !found.last().is_some_and(is_exact) {
                    let lost = |why| format!("{}: a part of it cannot be read: {why}", shown(path));
                    faults.extend(entries.faults.into_iter().map(lost));
                    let wrong = |why| format!("{}: a part of it may be wrong: {why}", shown(path));
                    faults.extend(entries.doubts.into_iter().map(wrong));
                }
                Ok(found)
            }
        }
    }

    fn must_be_folder(&self, at: usize, node: &Node, path: &[Vec<u8>]) -> Result<(), String> {
        let found = match node.kind {
            NodeKind::Directory => return Ok(()),
            NodeKind::Link => match self.tree(at)?.target(node) {
                Ok(target) => format!(
                    "a link to {}, which is not followed",
                    label(Path::new(OsStr::from_bytes(&target)))
                ),
                Err(error) => format!("a link with a target that cannot be read: {error}"),
            },
            NodeKind::File => "a file".to_owned(),
            NodeKind::Special(kind) => format!("a {kind}"),
        };
        Err(format!("{}: found {found}, expected a folder", shown(path)))
    }
}

/// Indices of the names that are `name`, or else of those that it matches as a pattern.
fn matching<'n>(name: &[u8], names: impl Iterator<Item = &'n [u8]> + Clone) -> Vec<usize> {
    if let Some(at) = names.clone().position(|other| other == name) {
        return vec![at];
    }
    let pattern = std::str::from_utf8(name).ok().filter(|it| it.contains(['*', '?', '[']));
    let Some(pattern) = pattern.and_then(|it| Pattern::new(it).ok()) else { return Vec::new() };
    let matches = |other: &[u8]| pattern.matches(&String::from_utf8_lossy(other));
    names.enumerate().filter(|(_, other)| matches(other)).map(|(at, _)| at).collect()
}

/// Text of a path for messages.
pub(crate) fn shown(path: &[Vec<u8>]) -> String {
    let text = label(Path::new(OsStr::from_bytes(&path.join(&b'/'))));
    printable(&format!("/{text}"))
}
