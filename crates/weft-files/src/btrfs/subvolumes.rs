//! Subvolumes: their trees and their names in each other, and the snapshots that are left out
//! because their origin has the same files.
//!
//! Source   btrfs documentation, "On-disk Format", "ROOT_ITEM", "ROOT_REF" and "ROOT_BACKREF";
//!          btrfs-subvolume(8)

use std::collections::BTreeMap;

use super::block::Key;
use super::kinds;
use super::log::{LOGS_MAX, Log};
use super::superblock::Root;
use super::volume::{Lost, Volume};
use crate::bytes::{array, le16, le64, part};

/// A subvolume, which may be a snapshot of another one.
#[derive(Debug)]
pub(super) struct Subvolume {
    pub(super) id: u64,
    pub(super) root: Root,
    /// Name in a directory of another subvolume; `None` at the top.
    pub(super) link: Option<Link>,
    pub(super) log: Option<Log>,
    is_read_only: bool,
    uuid: [u8; 16],
    /// UUID of the subvolume from which this snapshot was made; zeros if this subvolume is no
    /// snapshot.
    parent: [u8; 16],
}

/// Name of a subvolume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    /// Number of the subvolume that contains it.
    pub(super) within: u64,
    /// Inode number of the directory with the name, in the containing subvolume.
    pub(super) directory: u64,
    pub(super) name: Vec<u8>,
}

/// Content of the tree of roots.
#[derive(Debug, Default)]
pub(super) struct Roots {
    /// Subvolumes by their number.
    pub(super) subvolumes: BTreeMap<u64, Subvolume>,
    /// Root of the tree with the checksums of data; `None` if it was not found.
    pub(super) sums: Option<Root>,
    pub(super) lost: Vec<Lost>,
}

impl Roots {
    /// Reads the tree of roots.
    pub(super) fn read(volume: &Volume, root: &Root) -> Self {
        let mut roots = Self::default();
        let mut links = BTreeMap::new();
        let whole = Key::new(0, 0, 0)..=Key::new(u64::MAX, u8::MAX, u64::MAX);
        roots.lost = volume.scan(root, whole, &mut |key, item| {
            let is_subvolume =
                key.object == kinds::TOP || (kinds::FIRST..=kinds::LAST).contains(&key.object);
            match key.kind {
                kinds::ROOT_ITEM if key.object == kinds::SUM_TREE => roots.sums = root_of(item),
                kinds::ROOT_ITEM if is_subvolume => {
                    if let Some(subvolume) = Subvolume::parse(key.object, item) {
                        roots.subvolumes.insert(key.object, subvolume);
                    }
                }
                kinds::ROOT_BACKREF => drop(links.insert(key.object, link(key.offset, item))),
                kinds::ROOT_REF => {
                    links.entry(key.offset).or_insert_with(|| link(key.object, item));
                }
                _ => {}
            }
            true
        });
        for (id, link) in links {
            if let Some(subvolume) = roots.subvolumes.get_mut(&id) {
                subvolume.link = Some(link);
            }
        }
        roots
    }

    /// Reads the logs of all subvolumes. Returns messages about parts that cannot be used.
    pub(super) fn read_logs(&mut self, volume: &mut Volume, logs: &Root) -> Vec<String> {
        let mut roots = BTreeMap::new();
        let range = Key::new(kinds::LOGS, kinds::ROOT_ITEM, 0)
            ..=Key::new(kinds::LOGS, kinds::ROOT_ITEM, u64::MAX);
        let lost = volume.scan(logs, range, &mut |key, item| {
            roots.insert(key.offset, root_of(item));
            true
        });
        let mut faults: Vec<String> = lost.into_iter().map(|lost| lost.why).collect();
        let mut left = LOGS_MAX;
        for (id, root) in roots {
            let (Some(root), Some(subvolume)) = (root, self.subvolumes.get_mut(&id)) else {
                faults.push(format!("it names the tree {id}, which is not there"));
                continue;
            };
            let mut log = Log::read(volume, &root, &mut left);
            faults.append(&mut log.faults);
            let sums = log.of(kinds::SUMS, kinds::EXTENT_CSUM);
            volume.log_sums.extend(sums.map(|(key, item)| (key.offset, item.to_vec())));
            subvolume.log = Some(log);
        }
        faults
    }

    /// Path of a subvolume, from the top of the file system on. `directory` gives the path of a
    /// directory within a subvolume.
    pub(super) fn path(
        &self,
        id: u64,
        directory: &dyn Fn(&Subvolume, u64) -> Option<Vec<u8>>,
    ) -> Vec<u8> {
        let (mut parts, mut at) = (Vec::new(), id);
        while let Some(link) = self.subvolumes.get(&at).and_then(|it| it.link.as_ref()) {
            if parts.len() > NESTED_MAX {
                break;
            }
            let within = self.subvolumes.get(&link.within);
            let mut part = within.and_then(|it| directory(it, link.directory)).unwrap_or_default();
            part.extend(&link.name);
            parts.push(part);
            at = link.within;
        }
        parts.reverse();
        parts.join(&b'/')
    }

    /// Whether a subvolume is a read-only snapshot that is left out unless it is asked for: its
    /// origin is there and is writable, or a later read-only snapshot of it is there.
    pub(super) fn is_left_out(&self, subvolume: &Subvolume) -> bool {
        let is_made_of =
            |it: &Subvolume, of: &Subvolume| of.uuid != [0; 16] && it.parent == of.uuid;
        subvolume.is_read_only
            && self.subvolumes.values().any(|other| match other.is_read_only {
                false => is_made_of(subvolume, other),
                true => is_made_of(other, subvolume),
            })
    }
}

impl Subvolume {
    fn parse(id: u64, item: &[u8]) -> Option<Self> {
        // Older kernels neither write nor clear the second part of the item.
        let has_uuids = le64(item, 160) == le64(item, 239);
        let uuid = |at: usize| if has_uuids { array(item, at) } else { [0; 16] };
        Some(Self {
            id,
            root: root_of(item)?,
            link: None,
            log: None,
            is_read_only: le64(item, 208) & READ_ONLY != 0,
            uuid: uuid(247),
            parent: uuid(263),
        })
    }
}

/// Root of the tree that an item of the root tree describes; `None` if the item is cut off.
pub(super) fn root_of(item: &[u8]) -> Option<Root> {
    let level = *item.get(238)?;
    Some(Root { at: le64(item, 176), generation: le64(item, 160), level })
}

fn link(within: u64, item: &[u8]) -> Link {
    let name = part(item, 18, usize::from(le16(item, 16))).to_vec();
    Link { within, directory: le64(item, 0), name }
}

/// Flag of a subvolume that may not be written.
const READ_ONLY: u64 = 1;
/// Largest number of nested subvolumes in a path.
const NESTED_MAX: usize = 100;
