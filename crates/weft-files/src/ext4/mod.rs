//! ext2, ext3 and ext4, read-only, with their journal replayed.
//!
//! The crate `ext4-view` was the first choice. Version 1.0.0 refuses a journal that has to be
//! replayed unless it has checksums of version 3, which file systems of most NAS do not have; it
//! gives no inode numbers, link counts, attributes or places of content, and an unreadable block
//! ends the file. Only its parser of directories could have been used.

mod attributes;
mod directory;
mod group;
mod inode;
mod journal;
mod mapping;
mod superblock;

use std::ops::Range;

use crate::source::{Shared, Source, read_vec};
use crate::tree::{Attribute, Entries, Node, NodeKind, Piece, PieceBytes, Pieces, Tree, TreeError};
use group::Groups;
use inode::Inode;
use journal::Replayed;
use superblock::{Backup, Superblock};

/// An open ext2, ext3 or ext4 file system.
pub struct Ext4 {
    source: Replayed,
    superblock: Superblock,
    groups: Groups,
    /// Whether the journal was replayed in full: false if a part of it could not be read or used.
    is_replayed: bool,
    /// Notes for the user: journals that were replayed or could not be, and copies that are used.
    pub notes: Vec<String>,
    /// Faults of the superblock and of groups for which there is no sound copy.
    doubts: Vec<String>,
}

impl Ext4 {
    /// Opens the file system of a source. The journal is replayed in memory.
    ///
    /// # Errors
    /// There is no valid superblock, or the file system uses a feature that is not read. A journal
    /// that cannot be read is a note.
    pub fn open(source: &Shared) -> Result<Self, TreeError> {
        let mut superblock = Superblock::read(&**source)?;
        let (mut notes, mut is_replayed) = (Vec::new(), true);
        let mut replayed = Replayed::nothing(source, superblock.block_bytes);
        if superblock.has_journal() && superblock.journal_inode == 0 {
            is_replayed = false;
            notes.push("its journal is on another device and is not replayed".into());
        } else if superblock.has_journal() {
            match Self::journal(source, &superblock) {
                Ok(mut found) => {
                    is_replayed = found.is_whole;
                    notes.append(&mut found.notes);
                    if !found.blocks.is_empty() {
                        replayed.blocks = found.blocks;
                        // The superblock may be among the replayed blocks.
                        superblock = Superblock::read(&replayed).unwrap_or(superblock);
                    }
                }
                Err(error) => {
                    is_replayed = false;
                    notes.push(format!(
                        "its journal cannot be read and is not replayed: {error}; files that were \
                         being written may be old"
                    ));
                }
            }
        }
        notes.extend(superblock.backup.as_ref().map(Backup::note));
        let mut groups = Groups::read(&replayed, &superblock, u64::MAX);
        notes.append(&mut groups.notes);
        let mut doubts: Vec<String> = superblock.doubt.iter().cloned().collect();
        doubts.append(&mut groups.doubts);
        Ok(Self { source: replayed, superblock, groups, is_replayed, notes, doubts })
    }

    /// Reads the journal of a file system that is not replayed yet, and returns the blocks that the
    /// journal holds.
    fn journal(source: &Shared, superblock: &Superblock) -> Result<journal::Found, TreeError> {
        let number = superblock.journal_inode;
        let group = u64::from(number.saturating_sub(1) / superblock.inodes_per_group);
        let groups = Groups::read(&**source, superblock, group + 1);
        let inode = inode(&**source, superblock, &groups, number)?;
        let pieces = mapping::pieces(&**source, superblock, &inode);
        journal::read(&**source, superblock, &pieces)
    }

    fn inode(&self, id: u64) -> Result<Inode, TreeError> {
        let number = u32::try_from(id).unwrap_or(0);
        inode(&self.source, &self.superblock, &self.groups, number)
    }

    fn stored(&self, inode: &Inode) -> Result<Vec<attributes::Stored>, TreeError> {
        let mut all = attributes::in_inode(&inode.rest)?;
        if inode.attribute_block != 0 {
            let size = self.superblock.block_bytes;
            let at = inode.attribute_block.saturating_mul(size);
            let block = read_vec(&self.source, at, size)?;
            if let Some(start) = self.superblock.sum_start {
                attributes::verify(start, inode.attribute_block, &block)?;
            }
            all.extend(attributes::in_block(&block)?);
        }
        Ok(all)
    }

    /// Content that is stored in the inode itself.
    fn inline(&self, inode: &Inode) -> Result<Vec<u8>, TreeError> {
        let mut bytes = inode.block.clone();
        let stored = attributes::in_inode(&inode.rest)?;
        if let Some(more) = stored.into_iter().find(attributes::Stored::is_inline_data) {
            bytes.extend(more.value.unwrap_or_default());
        }
        Ok(bytes)
    }

    /// All of the content of an inode, with zeros for holes. It is an error if that is more than
    /// `len` bytes, or if a part cannot be read.
    fn read_all(&self, inode: &Inode, len: u64) -> Result<Vec<u8>, TreeError> {
        let size = inode.node.size;
        if size > len {
            let what = format!("inode {}, size", inode.node.id);
            return Err(TreeError::damaged(what, size, format!("at most {len}")));
        }
        let mut all = vec![0; usize::try_from(size).unwrap_or(0)];
        let pieces = mapping::pieces(&self.source, &self.superblock, inode);
        if let Some((_, why)) = pieces.faults.first() {
            return Err(TreeError::Refused(why.clone()));
        }
        for piece in &pieces.list {
            let at = |byte: u64| usize::try_from(byte).unwrap_or(usize::MAX);
            if let PieceBytes::Source(place) = piece.bytes
                && let Some(into) = all.get_mut(at(piece.range.start)..at(piece.range.end))
            {
                self.source.read_at(place, into)?;
            }
        }
        Ok(all)
    }
}

/// Bytes of the first backup of a superblock on a device without the first one, and a note that
/// says where the backup is; `None` if there is no valid backup.
pub(crate) fn backup(source: &dyn Source) -> Option<(Vec<u8>, String)> {
    let found = Superblock::backup(source)?;
    let note = found.backup.as_ref().map(Backup::note)?;
    Some((found.raw, note))
}

/// Reads the inode with this number; an error if it is damaged, unused or beyond the last one.
fn inode(
    source: &dyn Source,
    superblock: &Superblock,
    groups: &Groups,
    number: u32,
) -> Result<Inode, TreeError> {
    let Some(index) = number.checked_sub(1).filter(|_| number <= superblock.inodes) else {
        let expected = format!("1 to {}", superblock.inodes);
        return Err(TreeError::damaged("number of an inode", number, expected));
    };
    let (group, within) =
        (index / superblock.inodes_per_group, index % superblock.inodes_per_group);
    let at = groups
        .table(source, superblock, u64::from(group))?
        .saturating_mul(superblock.block_bytes)
        .saturating_add(u64::from(within) * superblock.inode_bytes);
    let bytes = read_vec(source, at, superblock.inode_bytes)?;
    Inode::parse(superblock, number, &bytes)
}

/// Ranges of the first `size` bytes that are in no segment and that no fault touches.
fn holes(pieces: &Pieces, size: u64) -> Vec<Range<u64>> {
    let mut known: Vec<Range<u64>> = pieces.list.iter().map(|piece| piece.range.clone()).collect();
    known.extend(pieces.faults.iter().map(|(range, _)| range.clone()));
    known.sort_by_key(|range| range.start);
    let (mut next, mut holes) = (0, Vec::new());
    for range in known.into_iter().chain(std::iter::once(size..size)) {
        if next < range.start {
            holes.push(next..range.start);
        }
        next = next.max(range.end);
    }
    holes
}

impl Tree for Ext4 {
    fn source(&self) -> &dyn Source {
        &self.source
    }

    fn used_bytes(&self) -> u64 {
        let used = self.superblock.blocks.saturating_sub(self.superblock.free_blocks);
        used.saturating_mul(self.superblock.block_bytes)
    }

    fn is_replayed(&self) -> bool {
        self.is_replayed
    }

    fn doubts(&self) -> &[String] {
        &self.doubts
    }

    fn root(&self) -> u64 {
        2
    }

    fn node(&self, id: u64) -> Result<Node, TreeError> {
        Ok(self.inode(id)?.node)
    }

    fn entries(&self, node: &Node) -> Result<Entries, TreeError> {
        let inode = self.inode(node.id)?;
        let mut entries = Entries::default();
        if inode.is_encrypted() {
            return Err(TreeError::Refused("encrypted by the file system".into()));
        }
        if inode.is_inline() {
            let bytes = self.inline(&inode)?;
            // The first four bytes are the number of the parent.
            directory::parse(&bytes[4..60], 4, &mut entries);
            directory::parse(&bytes[60..], 60, &mut entries);
            return Ok(entries);
        }
        let size = self.superblock.block_bytes;
        let pieces = mapping::pieces(&self.source, &self.superblock, &inode);
        for hole in holes(&pieces, inode.node.size) {
            entries.faults.push(format!(
                "bytes {}..{}: found a hole, expected blocks of the directory",
                hole.start, hole.end
            ));
        }
        for (range, why) in pieces.faults {
            entries.faults.push(format!("bytes {}..{}: {why}", range.start, range.end));
        }
        for (range, why) in pieces.doubts {
            entries.doubts.push(format!("bytes {}..{}: {why}", range.start, range.end));
        }
        for Piece { range, bytes } in pieces.list {
            let PieceBytes::Source(place) = bytes else { continue };
            if range.end > DIRECTORY_MAX {
                let expected = format!("at most {DIRECTORY_MAX}");
                let error = TreeError::damaged("size of a directory", range.end, expected);
                entries.faults.push(error.to_string());
                break;
            }
            let blocks = (range.end - range.start).div_ceil(size);
            for block in 0..blocks {
                let (at, within) = (place + block * size, range.start + block * size);
                match read_vec(&self.source, at, size) {
                    Ok(bytes) => {
                        let fault = inode.sum_start.and_then(|start| {
                            let is_indexed = inode.is_indexed();
                            directory::checksum_fault(start, &bytes, within, is_indexed)
                        });
                        entries.doubts.extend(fault);
                        directory::parse(&bytes, within, &mut entries);
                    }
                    Err(error) => entries.faults.push(error.to_string()),
                }
            }
        }
        Ok(entries)
    }

    fn pieces(&self, node: &Node) -> Result<Pieces, TreeError> {
        let inode = self.inode(node.id)?;
        if inode.is_encrypted() {
            return Err(TreeError::Refused("encrypted by the file system".into()));
        }
        if !inode.is_inline() {
            return Ok(mapping::pieces(&self.source, &self.superblock, &inode));
        }
        let mut bytes = self.inline(&inode)?;
        bytes.truncate(usize::try_from(node.size).unwrap_or(usize::MAX));
        let range = 0..bytes.len() as u64;
        let mut pieces = Pieces::default();
        if range.end < node.size {
            let why = format!("found {} bytes in the inode", range.end);
            pieces.faults.push((range.end..node.size, why));
        }
        pieces.list.push(Piece { range, bytes: PieceBytes::Here(bytes) });
        Ok(pieces)
    }

    fn target(&self, node: &Node) -> Result<Vec<u8>, TreeError> {
        let inode = self.inode(node.id)?;
        if inode.is_encrypted() {
            return Err(TreeError::Refused("encrypted by the file system".into()));
        }
        let size = usize::try_from(node.size).unwrap_or(usize::MAX);
        let mut target = match () {
            () if inode.is_inline() => self.inline(&inode)?,
            () if size < inode.block.len() && !inode.has_extents() => inode.block.clone(),
            () => self.read_all(&inode, self.superblock.block_bytes)?,
        };
        target.truncate(size);
        match target.is_empty() || target.contains(&0) {
            true => {
                let what = format!("inode {}, target of a link", node.id);
                Err(TreeError::damaged(what, target.escape_ascii(), "a path"))
            }
            false => Ok(target),
        }
    }

    fn attributes(&self, node: &Node) -> Result<Vec<Attribute>, TreeError> {
        let inode = self.inode(node.id)?;
        let mut all = Vec::new();
        for stored in self.stored(&inode)? {
            if stored.is_inline_data() {
                continue;
            }
            let value = match stored.value {
                Ok(value) => value,
                Err((number, len)) => {
                    let inode = self.inode(u64::from(number))?;
                    if inode.node.kind != NodeKind::File || inode.node.size != u64::from(len) {
                        let what = format!("inode {number} with the value of an attribute, size");
                        return Err(TreeError::damaged(what, inode.node.size, len.to_string()));
                    }
                    self.read_all(&inode, ATTRIBUTE_MAX)?
                }
            };
            all.extend(attributes::named(stored.index, &stored.name, value));
        }
        Ok(all)
    }
}

/// Largest size in bytes of a directory that is read: several million names. A damaged inode may
/// name all blocks.
const DIRECTORY_MAX: u64 = 256 << 20;
/// Largest size in bytes of an attribute's value: the limit of getxattr(2).
const ATTRIBUTE_MAX: u64 = 64 << 10;
