//! Log of a subvolume: changes that `fsync` made durable after the last commit.
//!
//! A log is a tree with the items of a few inodes, which take precedence over those of the
//! subvolume:
//!
//! - an inode replaces the one of the subvolume with the same number. If its generation is 0, the
//!   log only records that the inode exists: the inode of the subvolume stays, if there is one,
//!   with the size in the log unless that is 0. An inode with a link count of 0 counts as not in
//!   the log, with all of its items;
//! - attributes of an inode in the log are all of its attributes;
//! - extents replace the bytes that they cover;
//! - the references of an inode to a directory are all of its names there, and replace others with
//!   the same name or index;
//! - names of a directory in the log are added if their inode exists. For a range of indexes the
//!   log may have all names of the directory: others in that range were removed;
//! - checksums are those of the extents in the log.
//!
//! Source   btrfs documentation, "On-disk Format" (items); "Tree log" of the developer
//!          documentation. The kernel's own replay of the same logs is what the tests compare with

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use super::block::Key;
use super::kinds;
use super::names::{self, Reference};
use super::superblock::Root;
use super::volume::Volume;
use crate::bytes::{le32, le64};

/// Log of a subvolume, with its items in memory.
#[derive(Debug, Default)]
pub(super) struct Log {
    items: BTreeMap<Key, Vec<u8>>,
    /// Names of inodes in the log, by the inode number of the directory.
    references: BTreeMap<u64, Vec<Reference>>,
    /// Messages about parts of the log that cannot be used.
    pub(super) faults: Vec<String>,
}

impl Log {
    /// Reads a log. `left` is the number of bytes that logs may still take in memory, and is
    /// reduced.
    pub(super) fn read(volume: &Volume, root: &Root, left: &mut usize) -> Self {
        let mut log = Self::default();
        let whole = Key::new(0, 0, 0)..=Key::new(u64::MAX, u8::MAX, u64::MAX);
        let mut is_full = false;
        let lost = volume.scan(root, whole, &mut |key, item| {
            match left.checked_sub(item.len() + ITEM_COST) {
                Some(rest) => *left = rest,
                None => is_full = true,
            }
            if !is_full {
                log.items.insert(key, item.to_vec());
            }
            !is_full
        });
        log.faults.extend(lost.into_iter().map(|lost| lost.why));
        if is_full {
            log.faults.push("it is larger than any that the kernel writes".into());
        }
        let nameless = |(key, item): (&Key, &Vec<u8>)| {
            (key.kind == kinds::INODE_ITEM && le32(item, 40) == 0).then_some(key.object)
        };
        let nameless: BTreeSet<u64> = log.items.iter().filter_map(nameless).collect();
        log.items.retain(|key, _| !nameless.contains(&key.object));
        for (key, item) in &log.items {
            // The root of a subvolume refers to itself.
            let all = names::references(*key, item).into_iter();
            for reference in all.filter(|it| it.inode != it.directory) {
                log.references.entry(reference.directory).or_default().push(reference);
            }
        }
        log
    }

    /// The item of a key; `None` if the log has none.
    pub(super) fn get(&self, key: Key) -> Option<&[u8]> {
        self.items.get(&key).map(Vec::as_slice)
    }

    /// Items of one kind of an inode, by ascending key.
    pub(super) fn of(&self, inode: u64, kind: u8) -> impl Iterator<Item = (Key, &[u8])> {
        let range = Key::new(inode, kind, 0)..=Key::new(inode, kind, u64::MAX);
        self.items.range(range).map(|(key, item)| (*key, item.as_slice()))
    }

    /// Whether the inode is in the log.
    pub(super) fn has(&self, inode: u64) -> bool {
        self.items.contains_key(&Key::new(inode, kinds::INODE_ITEM, 0))
    }

    /// Names that inodes in the log have in a directory.
    pub(super) fn references(&self, directory: u64) -> &[Reference] {
        self.references.get(&directory).map_or(&[], Vec::as_slice)
    }

    /// Index ranges of a directory in which the log has all names.
    pub(super) fn known(&self, directory: u64) -> Vec<RangeInclusive<u64>> {
        let items = self.of(directory, kinds::DIR_LOG_INDEX);
        items.map(|(key, item)| key.offset..=le64(item, 0)).collect()
    }
}

/// Number of bytes that are counted for an item in addition to its own.
const ITEM_COST: usize = 64;
/// Largest size of all logs of a file system in memory, in bytes.
pub(super) const LOGS_MAX: usize = 64 << 20;
