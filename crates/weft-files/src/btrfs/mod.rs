//! btrfs, read-only, with all of its subvolumes and with its log replayed.
//!
//! Every block of a tree and every sector of data that has a checksum is checked; if the checksum
//! is wrong, the other copy is read, where there is one. The log is replayed in memory.
//!
//! A subvolume is a directory at the place of its name, starting from the top subvolume (number 5),
//! whatever the default subvolume is. Read-only snapshots mostly repeat the files of their origin.
//! They are therefore left out if their origin or a later snapshot of it is there; each of them can
//! be opened by itself.
//!
//! | part | file |
//! |---|---|
//! | the newest of the superblocks | `superblock.rs` |
//! | logical addresses and their copies | `chunks.rs` |
//! | blocks of trees | `block.rs` |
//! | walks over trees, data with its checksums | `volume.rs` |
//! | subvolumes and snapshots | `subvolumes.rs` |
//! | the log | `log.rs` |
//! | inodes, names, extents | `inode.rs`, `names.rs`, `extents.rs` |
//! | packed content | `unpack.rs` |
//! | blocks and sectors that a block names, without a device | `points.rs` |

mod block;
mod chunks;
mod extents;
mod inode;
mod kinds;
mod log;
mod names;
mod points;
mod subvolumes;
mod sum;
mod superblock;
mod unpack;
mod volume;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use crate::source::{Shared, Source, read_vec};
use crate::tree::{
    Attribute, Entries, Entry, Node, NodeKind, Packed, PieceBytes, Pieces, Tree, TreeError,
};
use block::Key;
use extents::Extents;
use inode::Inode;
use names::Named;
pub use points::{Point, Points};
use subvolumes::{Roots, Subvolume};
use volume::{Lost, Volume};

/// An open btrfs, or one of its subvolumes with everything below it.
pub struct Btrfs {
    volume: Volume,
    /// Subvolumes in the order of their numbers. The number of a node contains an index of this
    /// list.
    subvolumes: Vec<Subvolume>,
    /// Index in `subvolumes` of the subvolume at the root of the tree.
    top: usize,
    /// Snapshots that are left out of the tree, by their numbers.
    left_out: BTreeSet<u64>,
    unpacked: RefCell<Option<(Packed, Rc<Vec<u8>>)>>,
    /// Snapshots that are left out of the tree.
    pub snapshots: Vec<Snapshot>,
    /// Whether all of the logs were replayed.
    is_replayed: bool,
    /// Notes for the user: superblocks that are damaged, and parts of logs that cannot be read.
    pub notes: Vec<String>,
    /// Parts of the tree of roots that are lost, and that checksums are.
    doubts: Vec<String>,
    /// Whether a part of the tree of roots is lost.
    lacks_roots: bool,
}

/// Snapshot that is not part of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Number of the subvolume.
    pub id: u64,
    /// Path from the top of the file system on.
    pub path: Vec<u8>,
}

impl Btrfs {
    /// Opens the file system on some devices. The log is replayed in memory.
    ///
    /// # Errors
    /// There is no valid superblock, a device is missing, the file system uses a feature that is
    /// not read, or the trees of chunks or of roots cannot be read. A log that cannot be read is a
    /// note.
    pub fn open(devices: &[Shared]) -> Result<Self, TreeError> {
        Self::open_at(devices, kinds::TOP)
    }

    /// Opens one subvolume, which then is the root of the tree.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open), or there is no subvolume of this number.
    pub fn open_at(devices: &[Shared], subvolume: u64) -> Result<Self, TreeError> {
        let mut volume = Volume::open(devices)?;
        let mut notes = volume.superblock.notes();
        let mut roots = Roots::read(&volume, &volume.superblock.roots);
        let lost = roots.lost.iter().map(|lost| {
            format!("a part of the tree of roots is lost, and subvolumes with it: {}", lost.why)
        });
        let mut doubts: Vec<String> = lost.collect();
        let lacks_roots = !doubts.is_empty();
        volume.sums = roots.sums;
        if volume.sums.is_none() {
            doubts.push("its checksums of data are not found: content is not checked".into());
        }
        let mut is_replayed = true;
        if let Some(logs) = volume.superblock.logs {
            let faults = roots.read_logs(&mut volume, &logs);
            is_replayed = faults.is_empty();
            notes.extend(faults.iter().map(|why| {
                format!(
                    "a part of its log is not replayed: {why}; files that were being written \
                         may be old"
                )
            }));
        }
        let left: Vec<u64> = roots
            .subvolumes
            .values()
            .filter(|it| it.id != subvolume && roots.is_left_out(it))
            .map(|it| it.id)
            .collect();
        let directory = |it: &Subvolume, inode: u64| directory_path(&volume, it, inode);
        let snapshots: Vec<Snapshot> =
            left.iter().map(|&id| Snapshot { id, path: roots.path(id, &directory) }).collect();
        let subvolumes: Vec<Subvolume> = roots.subvolumes.into_values().collect();
        let Some(top) = subvolumes.iter().position(|it| it.id == subvolume) else {
            let why = roots.lost.into_iter().next().map(|lost| lost.why);
            let found = why.unwrap_or_else(|| "none".into());
            return Err(TreeError::damaged(format!("subvolume {subvolume}"), found, "its root"));
        };
        let left_out = left.into_iter().collect();
        let unpacked = RefCell::default();
        Ok(Self {
            volume,
            subvolumes,
            top,
            left_out,
            unpacked,
            snapshots,
            is_replayed,
            notes,
            doubts,
            lacks_roots,
        })
    }

    /// Subvolume and inode number that are encoded in `id`, the number of a node.
    fn find(&self, id: u64) -> Result<(&Subvolume, u64), TreeError> {
        let index = usize::try_from(id >> INODE_BITS).unwrap_or(usize::MAX);
        let found = self.subvolumes.get(index).map(|it| (it, id & INODE_MAX));
        found.ok_or_else(|| TreeError::damaged("number of a node", id, "one of a subvolume"))
    }

    /// Number of the node of an inode in a subvolume.
    fn id(&self, subvolume: &Subvolume, inode: u64) -> Result<u64, TreeError> {
        let found = self.subvolumes.binary_search_by_key(&subvolume.id, |it| it.id);
        let index = found.unwrap_or(usize::MAX) as u64;
        if inode > INODE_MAX || index >= 1 << (u64::BITS - INODE_BITS) {
            let why = format!("inode {inode} of subvolume {index} is above what is read");
            return Err(TreeError::Refused(why));
        }
        Ok(index << INODE_BITS | inode)
    }

    fn inode(&self, id: u64) -> Result<Inode, TreeError> {
        let (subvolume, number) = self.find(id)?;
        let key = Key::new(number, kinds::INODE_ITEM, 0);
        let logged = subvolume.log.as_ref().and_then(|log| log.get(key));
        let old = || {
            let item = get(&self.volume, subvolume, key)?;
            let found = || TreeError::damaged(format!("inode {number}"), "none", "an inode");
            Inode::parse(number, id, &item.ok_or_else(found)?)
        };
        let Some(logged) = logged else { return old() };
        let mut inode = Inode::parse(number, id, logged)?;
        if inode.generation == 0
            && let Ok(old) = old()
        {
            // A size of 0 in the log says nothing: the inode was not logged for its content.
            let size = inode.node.size;
            inode = old;
            if inode.node.kind == NodeKind::File && size != 0 {
                inode.node.size = size;
            }
        }
        let links = u32::try_from(self.references(subvolume, number).len());
        inode.node.links = inode.node.links.max(links.unwrap_or(u32::MAX));
        Ok(inode)
    }

    /// Names of an inode in the subvolume and in its log, each with the inode number of its
    /// directory. There are at least as many as after a replay of the log.
    fn references(&self, of: &Subvolume, inode: u64) -> BTreeSet<(u64, Vec<u8>)> {
        let (first, last) = (all(inode, kinds::INODE_REF).0, all(inode, kinds::INODE_EXTREF).1);
        let mut names = BTreeSet::new();
        let mut add = |key: Key, item: &[u8]| {
            let found = names::references(key, item).into_iter();
            names.extend(found.map(|it| (it.directory, it.name)));
        };
        self.volume.scan(&of.root, first..=last, &mut |key, item| {
            add(key, item);
            true
        });
        if let Some(log) = &of.log {
            for kind in [kinds::INODE_REF, kinds::INODE_EXTREF] {
                log.of(inode, kind).for_each(|(key, item)| add(key, item));
            }
        }
        names
    }

    /// Extents of a file after the replay of the log.
    fn extents(&self, node: &Node) -> Result<Extents, TreeError> {
        let (subvolume, number) = self.find(node.id)?;
        let sector = self.volume.superblock.sector_bytes;
        let mut extents = Extents::default();
        let (first, last) = all(number, kinds::EXTENT_DATA);
        let lost = self.volume.scan(&subvolume.root, first..=last, &mut |key, item| {
            extents.add(key.offset, item, sector);
            true
        });
        extents.add_lost(number, lost);
        if let Some(log) = &subvolume.log {
            let mut logged = Extents::default();
            for (key, item) in log.of(number, kinds::EXTENT_DATA) {
                logged.add(key.offset, item, sector);
            }
            extents.replace_by(logged);
        }
        Ok(extents)
    }

    /// Whether an inode is in a subvolume or its log.
    fn exists(&self, subvolume: &Subvolume, inode: u64) -> bool {
        let key = Key::new(inode, kinds::INODE_ITEM, 0);
        subvolume.log.as_ref().is_some_and(|log| log.has(inode))
            || matches!(get(&self.volume, subvolume, key), Ok(Some(_)))
    }

    /// Names of a directory by their index, after the replay of the log. Adds messages about names
    /// that are lost to `faults`.
    fn names(&self, subvolume: &Subvolume, number: u64, faults: &mut Vec<String>) -> Names {
        let mut names = Names::default();
        let (first, last) = all(number, kinds::DIR_INDEX);
        let lost = self.volume.scan(&subvolume.root, first..=last, &mut |key, item| {
            names.add(key.offset, item, faults);
            true
        });
        if !lost.is_empty() {
            // Each name is in the directory twice: by its index, and by its hash.
            let (first, last) = all(number, kinds::DIR_ITEM);
            let mut more = 1 << 63;
            let also = self.volume.scan(&subvolume.root, first..=last, &mut |_, item| {
                for named in names::named(item).unwrap_or_default() {
                    if !names.index_of.contains_key(&named.name) {
                        names.put(more, named);
                        more += 1;
                    }
                }
                true
            });
            // Names are lost only if the items by hash have a lost part too.
            if !also.is_empty() {
                faults.extend(lost.into_iter().map(|lost| lost.why));
            }
        }
        if let Some(log) = &subvolume.log {
            let known = log.known(number);
            let mut logged = Names::default();
            for (key, item) in log.of(number, kinds::DIR_INDEX) {
                logged.add(key.offset, item, faults);
            }
            names.retain(|index, named| {
                let is_known = known.iter().any(|range| range.contains(&index));
                !is_known || logged.all.get(&index).is_some_and(|it| it.name == named.name)
            });
            for (index, named) in logged.all {
                let Key { object, kind, .. } = named.location;
                if kind != kinds::INODE_ITEM || self.exists(subvolume, object) {
                    names.put(index, named);
                }
            }
            let references = log.references(number);
            let inodes: BTreeMap<u64, BTreeSet<&[u8]>> =
                references.iter().fold(BTreeMap::new(), |mut all, it| {
                    all.entry(it.inode).or_default().insert(&it.name);
                    all
                });
            // If an inode is in the log, the log has all of its names in this directory.
            names.retain(|_, named| {
                let Key { object, kind, .. } = named.location;
                let is_inode = kind == kinds::INODE_ITEM;
                let own = inodes.get(&object).filter(|_| is_inode);
                own.is_none_or(|own| own.contains(named.name.as_slice()))
            });
            for it in references {
                let location = Key::new(it.inode, kinds::INODE_ITEM, 0);
                let named = Named { location, name: it.name.clone(), value: Vec::new() };
                names.put(it.index, named);
            }
        }
        names
    }
}

/// Names of a directory.
#[derive(Default)]
struct Names {
    /// Names by their index.
    all: BTreeMap<u64, Named>,
    index_of: BTreeMap<Vec<u8>, u64>,
}

impl Names {
    /// Adds the name in an item, or a message to `faults` if the item has none.
    fn add(&mut self, index: u64, item: &[u8], faults: &mut Vec<String>) {
        match names::named(item).map(|all| all.into_iter().next()) {
            Ok(Some(named)) => self.put(index, named),
            Ok(None) => faults.push(format!("entry {index}: found no name, expected one")),
            Err(why) => faults.push(format!("entry {index}: {why}")),
        }
    }

    /// Adds a name, which replaces a name with the same index and an entry of the same name.
    fn put(&mut self, index: u64, named: Named) {
        if let Some(other) = self.index_of.insert(named.name.clone(), index) {
            self.all.remove(&other);
        }
        if let Some(other) = self.all.insert(index, named)
            && self.all.get(&index).is_some_and(|it| it.name != other.name)
        {
            self.index_of.remove(&other.name);
        }
    }

    /// Keeps the names for which `is_kept` holds.
    fn retain(&mut self, is_kept: impl Fn(u64, &Named) -> bool) {
        self.all.retain(|index, named| is_kept(*index, named));
        self.index_of.retain(|_, index| self.all.contains_key(index));
    }
}

/// First and last possible key of one kind of items of an object.
fn all(object: u64, kind: u8) -> (Key, Key) {
    (Key::new(object, kind, 0), Key::new(object, kind, u64::MAX))
}

/// The item of a key in the tree of a subvolume, without the log; `None` if there is none.
fn get(volume: &Volume, of: &Subvolume, key: Key) -> Result<Option<Vec<u8>>, TreeError> {
    let mut found = None;
    let lost = volume.scan(&of.root, key..=key, &mut |_, item| {
        found = Some(item.to_vec());
        false
    });
    match lost.into_iter().next() {
        Some(Lost { why, .. }) if found.is_none() => Err(TreeError::Refused(why)),
        _ => Ok(found),
    }
}

/// Path of a directory in its subvolume, with a `/` at its end; `None` if it is not known.
fn directory_path(volume: &Volume, of: &Subvolume, directory: u64) -> Option<Vec<u8>> {
    let (mut parts, mut at) = (Vec::new(), directory);
    while at != kinds::FIRST {
        if parts.len() > PATH_MAX {
            return None;
        }
        let (first, last) = all(at, kinds::INODE_REF);
        let mut reference = None;
        volume.scan(&of.root, first..=last, &mut |key, item| {
            reference = names::references(key, item).into_iter().next();
            false
        });
        let reference = reference?;
        let mut part = reference.name;
        part.push(b'/');
        parts.push(part);
        at = reference.directory;
    }
    parts.reverse();
    Some(parts.concat())
}

impl Tree for Btrfs {
    fn source(&self) -> &dyn Source {
        &self.volume
    }

    fn used_bytes(&self) -> u64 {
        self.volume.superblock.used_bytes
    }

    fn is_replayed(&self) -> bool {
        self.is_replayed
    }

    fn doubts(&self) -> &[String] {
        &self.doubts
    }

    fn root(&self) -> u64 {
        (self.top as u64) << INODE_BITS | kinds::FIRST
    }

    fn node(&self, id: u64) -> Result<Node, TreeError> {
        Ok(self.inode(id)?.node)
    }

    fn entries(&self, node: &Node) -> Result<Entries, TreeError> {
        let (subvolume, number) = self.find(node.id)?;
        let mut entries = Entries::default();
        let names = self.names(subvolume, number, &mut entries.faults);
        for named in names.all.into_values() {
            let object = named.location.object;
            let id = match named.location.kind {
                kinds::INODE_ITEM => self.id(subvolume, object),
                kinds::ROOT_ITEM => {
                    // A snapshot contains names of subvolumes that are in its origin only.
                    let found = self.subvolumes.binary_search_by_key(&object, |it| it.id);
                    let Some(below) = found.ok().and_then(|at| self.subvolumes.get(at)) else {
                        if self.lacks_roots {
                            let name = named.name.escape_ascii();
                            entries.faults.push(format!(
                                "{name}: no root of the subvolume {object}, which may be in the \
                                 lost part of the tree of roots"
                            ));
                        }
                        continue;
                    };
                    let is_here = below
                        .link
                        .as_ref()
                        .is_none_or(|link| (link.within, link.directory) == (subvolume.id, number));
                    if !is_here || self.left_out.contains(&object) {
                        continue;
                    }
                    self.id(below, kinds::FIRST)
                }
                other => {
                    let name = named.name.escape_ascii();
                    Err(TreeError::damaged(format!("kind of {name}"), other, "1 or 132"))
                }
            };
            match id {
                Ok(id) => entries.list.push(Entry { name: named.name, id }),
                Err(error) => entries.faults.push(error.to_string()),
            }
        }
        Ok(entries)
    }

    fn pieces(&self, node: &Node) -> Result<Pieces, TreeError> {
        let mut pieces = self.extents(node)?.pieces(node.size);
        for piece in &mut pieces.list {
            let PieceBytes::Source(at) = piece.bytes else { continue };
            let Range { start, end } = piece.range;
            let there = start + self.volume.reach(at, end - start);
            if there < end {
                piece.range.end = there;
                pieces.faults.push((there..end, NO_PLACE.into()));
            }
        }
        pieces.list.retain(|piece| !piece.range.is_empty());
        for piece in &pieces.list {
            let Range { start, end } = piece.range;
            let stored = match piece.bytes {
                PieceBytes::Source(at) => at..at.saturating_add(end - start),
                PieceBytes::Packed(packed) => packed.at..packed.at.saturating_add(packed.len),
                PieceBytes::Here(_) => continue,
            };
            if let Some(lost) = self.volume.lost_sums(&stored) {
                pieces.doubts.push((start..end, format!("its checksums are lost: {}", lost.why)));
            }
        }
        Ok(pieces)
    }

    fn unpack(&self, packed: &Packed) -> Result<Rc<Vec<u8>>, TreeError> {
        let packed = Packed { skip: 0, ..*packed };
        if let Some((last, bytes)) = &*self.unpacked.borrow()
            && *last == packed
        {
            return Ok(Rc::clone(bytes));
        }
        let bytes = read_vec(&self.volume, packed.at, packed.len)?;
        let len = usize::try_from(packed.unpacked_len).unwrap_or(usize::MAX);
        let sector = self.volume.superblock.sector_bytes;
        let unpacked = unpack::unpack(packed.packing, &bytes, len, sector);
        let unpacked = Rc::new(unpacked.map_err(TreeError::Refused)?);
        *self.unpacked.borrow_mut() = Some((packed, Rc::clone(&unpacked)));
        Ok(unpacked)
    }

    fn target(&self, node: &Node) -> Result<Vec<u8>, TreeError> {
        let size = node.size.min(self.volume.superblock.sector_bytes);
        let target = self.extents(node)?.inline(size)?;
        match target.is_empty() || target.contains(&0) {
            true => {
                let what = format!("node {}, target of a link", node.id);
                Err(TreeError::damaged(what, target.escape_ascii(), "a path"))
            }
            false => Ok(target),
        }
    }

    fn attributes(&self, node: &Node) -> Result<Vec<Attribute>, TreeError> {
        let (subvolume, number) = self.find(node.id)?;
        let mut items = Vec::new();
        match subvolume.log.as_ref().filter(|log| log.has(number)) {
            Some(log) => {
                let own = log.of(number, kinds::XATTR_ITEM);
                items.extend(own.map(|(_, item)| item.to_vec()));
            }
            None => {
                let (first, last) = all(number, kinds::XATTR_ITEM);
                let lost = self.volume.scan(&subvolume.root, first..=last, &mut |_, item| {
                    items.push(item.to_vec());
                    true
                });
                if let Some(lost) = lost.into_iter().next() {
                    return Err(TreeError::Refused(lost.why));
                }
            }
        }
        let mut attributes = Vec::new();
        for item in items {
            let named = names::named(&item);
            let named = named.map_err(|why| {
                TreeError::damaged(format!("attributes of inode {number}"), why, "whole ones")
            })?;
            // Properties of btrfs have no meaning on other file systems.
            let own = named.into_iter().filter(|named| !named.name.starts_with(b"btrfs."));
            attributes.extend(own.map(|Named { name, value, .. }| Attribute { name, value }));
        }
        Ok(attributes)
    }
}

const NO_PLACE: &str = "found no place on a device that has these bytes";
/// Number of the low bits of a node's number that hold the inode number; the bits above hold the
/// index of the subvolume.
const INODE_BITS: u32 = 44;
const INODE_MAX: u64 = (1 << INODE_BITS) - 1;
/// Largest number of directories in a path of a snapshot.
const PATH_MAX: usize = 1000;
