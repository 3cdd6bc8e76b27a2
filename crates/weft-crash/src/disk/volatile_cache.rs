//! Volatile cache of a simulated member: writes that completed and are not yet durable.
//!
//! Every write that completed since the last flush is kept as versions of its sectors, oldest
//! first. After a power cut each sector may have any of its versions, or its durable content. A
//! flush makes those writes durable that had completed when the flush was *submitted*; the block
//! layer promises no more.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::payload::TAG_BYTES;
use crate::sector_map::SectorMap;

/// Content of a sector, as its payload is represented.
pub type Sector = SmallVec<[u8; TAG_BYTES]>;

/// A version of a sector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Number of the write among all completed writes of the disk.
    pub sequence: u64,
    /// Content of the sector: all its bytes, its tag, or nothing, as the `PayloadMode` says.
    pub bytes: Sector,
}

/// Versions of one sector, oldest first.
type Versions = SmallVec<[Version; 1]>;

/// Versions of all sectors that are not durable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolatileCache {
    sectors: SectorMap<Versions>,
}

impl VolatileCache {
    /// The newest volatile content of a sector; `None` if the cache has none.
    #[must_use]
    pub fn newest(&self, sector: u64) -> Option<&[u8]> {
        self.sectors.get(sector).and_then(|versions| versions.last()).map(|last| &last.bytes[..])
    }

    /// Whether the cache is empty, so that a cut can lose nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sectors.is_empty()
    }

    /// Every sector that has versions, with its versions, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &[Version])> {
        self.sectors.iter().map(|(sector, versions)| (sector, versions.as_slice()))
    }

    /// Whether any of the `count` sectors from `at` on has versions.
    #[must_use]
    pub fn touches(&self, at: u64, count: u64) -> bool {
        self.versions_of(at, count).next().is_some()
    }

    /// Each of the `count` sectors from `at` on that has versions, with its versions, oldest first.
    pub(super) fn versions_of(
        &self,
        at: u64,
        count: u64,
    ) -> impl Iterator<Item = (u64, &[Version])> {
        let sectors = self.sectors.range(at..at + count);
        sectors.map(|(sector, versions)| (sector, versions.as_slice()))
    }

    /// Newest content of each of the `count` sectors from `at` on that has versions in the cache,
    /// in order of sectors.
    pub(super) fn newest_of(&self, at: u64, count: u64) -> impl Iterator<Item = (u64, &[u8])> {
        let sectors = self.versions_of(at, count);
        sectors.filter_map(|(sector, versions)| Some((sector, &versions.last()?.bytes[..])))
    }

    /// Adds a version to each of the sectors from `at` on, one for each of `contents`.
    pub fn push<'a>(
        &mut self,
        at: u64,
        sequence: u64,
        contents: impl ExactSizeIterator<Item = &'a [u8]>,
    ) {
        let sectors = at..at + contents.len() as u64;
        let all = self.sectors.all_of(sectors, Versions::new);
        for ((_, versions), content) in all.zip(contents) {
            assert!(versions.last().is_none_or(|last| last.sequence < sequence));
            versions.push(Version { sequence, bytes: Sector::from_slice(content) });
        }
    }

    /// Drops all versions of a sector, because newer content is durable.
    pub fn forget(&mut self, sector: u64) {
        self.sectors.remove(sector);
    }

    /// Removes all versions from writes before `sequence`, and returns the newest removed version
    /// of each sector. Versions from later writes stay.
    pub fn settle(&mut self, sequence: u64) -> Vec<(u64, Sector)> {
        let mut durable = Vec::new();
        self.sectors.retain(|sector, versions| {
            let count = versions.partition_point(|version| version.sequence < sequence);
            if let Some(last) = versions.drain(..count).next_back() {
                durable.push((sector, last.bytes));
            }
            !versions.is_empty()
        });
        durable
    }

    /// Removes and returns all versions.
    pub fn take(&mut self) -> BTreeMap<u64, Vec<Version>> {
        let taken = std::mem::take(&mut self.sectors);
        taken.iter().map(|(sector, versions)| (sector, versions.to_vec())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(sequence: u64) -> Version {
        Version { sequence, bytes: Sector::from_elem(sequence as u8, 512) }
    }

    #[test]
    fn a_flush_settles_what_completed_before_it_and_no_more() {
        let mut cache = VolatileCache::default();
        for (sector, sequence) in [(1, 0), (1, 1), (2, 2), (1, 3)] {
            cache.push(sector, sequence, [&version(sequence).bytes[..]].into_iter());
        }
        let durable = cache.settle(3);
        assert_eq!(durable, [(1, version(1).bytes), (2, version(2).bytes)]);
        assert_eq!(cache.newest(1), Some(&[3; 512][..]));
        assert_eq!(cache.newest(2), None);
        assert!(cache.touches(0, 2) && !cache.touches(2, 9));
        assert_eq!(cache.settle(4).len(), 1);
        assert!(cache.is_empty());
    }
}
