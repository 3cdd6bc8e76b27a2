//! Lists of directories, from any entry on.

use std::rc::Rc;

use fuser::{FileAttr, FileType};
use rustix::io::Errno;
use weft_files::tree::NodeKind;

use super::View;
use crate::directory::Directory;
use crate::numbers::{Named, ROOT};

/// An entry of a list: a name, with the attributes of its node.
pub(crate) struct Listed<'v> {
    pub(crate) name: &'v [u8],
    pub(crate) attributes: FileAttr,
    /// Whether the attributes are those of the node; false for `.` and `..`, and if the node cannot
    /// be read.
    pub(crate) is_read: bool,
}

impl View {
    /// The directory with an inode number, from the cache or the tree. A node that is not a
    /// directory is the error `ENOTDIR`.
    pub(super) fn directory(&mut self, number: u64) -> Result<Rc<Directory>, Errno> {
        if let Some(directory) = self.directories.get(number) {
            return Ok(directory);
        }
        let (at, node) = self.node(number)?;
        if node.kind != NodeKind::Directory {
            return Err(Errno::NOTDIR);
        }
        let entries = self.tree(at).0.entries(&node).map_err(|error| self.lost(number, &error))?;
        let mut directory = Directory::of(entries);
        let faults = std::mem::take(&mut directory.faults);
        if let Some(first) = faults.first() {
            let more = match faults.len() {
                1 => String::new(),
                many => format!(", and {} more", many - 1),
            };
            let why = format!("a part of the directory: {first}{more}");
            self.note(number, None, !directory.is_damaged, why);
        }
        let weight = 1 + directory.entries.len();
        let directory = Rc::new(directory);
        self.directories.put(number, weight, Rc::clone(&directory));
        Ok(directory)
    }

    /// Lists a directory from the entry with index `from` on, as long as `add` returns true. `add`
    /// gets each entry with the index of the next one. `with_lookup` counts a lookup for each
    /// entry.
    ///
    /// # Errors
    /// The inode is not a directory, or cannot be read. A directory with a lost part gives `EIO` in
    /// a call that begins behind its last entry.
    pub(crate) fn list(
        &mut self,
        number: u64,
        from: u64,
        with_lookup: bool,
        add: &mut dyn FnMut(&Listed<'_>, u64) -> bool,
    ) -> Result<(), Errno> {
        let start = usize::try_from(from).unwrap_or(usize::MAX);
        let dots = [(&b"."[..], number), (b"..", if number == ROOT { ROOT } else { UNKNOWN })];
        for ((name, its), next) in dots.into_iter().zip(1..).skip(start) {
            let attributes = self.own(its, FileType::Directory, 0o555, 0);
            if !add(&Listed { name, attributes, is_read: false }, next) {
                return Ok(());
            }
        }
        let skip = start.saturating_sub(dots.len());
        let first = start.max(dots.len()) as u64 + 1;
        let (at, _) = match self.named(number)? {
            Named::Root => {
                for (at, next) in (skip..self.shown.len()).zip(first..) {
                    let name = self.shown[at].name.clone();
                    let its = self.entry_number(at)?;
                    if !self.add(number, name.as_bytes(), its, with_lookup, next, add) {
                        break;
                    }
                }
                return Ok(());
            }
            Named::File(_) => return Err(Errno::NOTDIR),
            Named::Node(at, id) => (at, id),
        };
        let directory = self.directory(number)?;
        for (entry, next) in directory.entries.iter().skip(skip).zip(first..) {
            let Some(its) = self.numbers.node(at, entry.id) else { continue };
            if !self.add(number, &entry.name, its, with_lookup, next, add) {
                return Ok(());
            }
        }
        // The last entries were listed by an earlier request.
        match directory.is_damaged && skip >= directory.entries.len() {
            true => Err(Errno::IO),
            false => Ok(()),
        }
    }

    /// Passes an entry to `add`. Returns whether there was room for it.
    fn add(
        &mut self,
        parent: u64,
        name: &[u8],
        number: u64,
        with_lookup: bool,
        next: u64,
        add: &mut dyn FnMut(&Listed<'_>, u64) -> bool,
    ) -> bool {
        self.paths.looked_up(number, parent, name);
        let read = self.attributes(number);
        let unread = |_| self.own(number, FileType::RegularFile, 0, 0);
        let is_read = read.is_ok();
        let attributes = read.unwrap_or_else(unread);
        let is_added = add(&Listed { name, attributes, is_read }, next);
        if !is_added || !with_lookup {
            self.paths.forget(number, 1);
        }
        is_added
    }
}

/// Inode number of the parent directory in a list of names, the same as libfuse reports. A program
/// that needs the real number asks for the attributes of `..`, which the kernel knows.
const UNKNOWN: u64 = 0xffff_ffff;
