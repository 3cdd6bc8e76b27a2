//! What has a member accepted and not yet made durable?
//!
//! Every write that completed since the last flush is kept as versions of its sectors, oldest first.
//! A power cut may keep any of them or none, sector by sector; a flush makes durable what had
//! completed when the flush was *submitted*, which is all that the block layer promises.

use std::collections::BTreeMap;

/// A sector's content.
pub type Sector = [u8; 512];

/// What a sector became, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Position among all writes of the member, in order of completion.
    pub sequence: u64,
    /// The content.
    pub bytes: Box<Sector>,
}

/// The versions of all sectors that are not durable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolatileCache {
    sectors: BTreeMap<u64, Vec<Version>>,
}

impl VolatileCache {
    /// The newest content of a sector, if it is here.
    #[must_use]
    pub fn newest(&self, sector: u64) -> Option<&Sector> {
        self.sectors.get(&sector).and_then(|versions| versions.last()).map(|last| &*last.bytes)
    }

    /// Whether there is nothing that could be lost.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sectors.is_empty()
    }

    /// Every sector with versions, oldest version first.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &[Version])> {
        self.sectors.iter().map(|(sector, versions)| (*sector, versions.as_slice()))
    }

    /// Whether a sector of the range has versions.
    #[must_use]
    pub fn touches(&self, at: u64, count: u64) -> bool {
        self.sectors.range(at..at + count).next().is_some()
    }

    /// Adds a version.
    pub fn push(&mut self, sector: u64, version: Version) {
        let versions = self.sectors.entry(sector).or_default();
        assert!(versions.last().is_none_or(|last| last.sequence < version.sequence));
        versions.push(version);
    }

    /// Forgets a sector: something newer is durable.
    pub fn forget(&mut self, sector: u64) {
        self.sectors.remove(&sector);
    }

    /// Takes out, per sector, the newest version that completed before `sequence`; older ones go
    /// with it, newer ones stay.
    pub fn settle(&mut self, sequence: u64) -> Vec<(u64, Box<Sector>)> {
        let mut durable = Vec::new();
        self.sectors.retain(|sector, versions| {
            let count = versions.partition_point(|version| version.sequence < sequence);
            if let Some(last) = versions.drain(..count).next_back() {
                durable.push((*sector, last.bytes));
            }
            !versions.is_empty()
        });
        durable
    }

    /// Takes everything out.
    pub fn take(&mut self) -> BTreeMap<u64, Vec<Version>> {
        std::mem::take(&mut self.sectors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(sequence: u64) -> Version {
        Version { sequence, bytes: Box::new([sequence as u8; 512]) }
    }

    #[test]
    fn a_flush_settles_what_completed_before_it_and_no_more() {
        let mut cache = VolatileCache::default();
        cache.push(1, version(0));
        cache.push(1, version(1));
        cache.push(2, version(2));
        cache.push(1, version(3));
        let durable = cache.settle(3);
        assert_eq!(durable, [(1, version(1).bytes), (2, version(2).bytes)]);
        assert_eq!(cache.newest(1), Some(&[3; 512]));
        assert_eq!(cache.newest(2), None);
        assert!(cache.touches(0, 2) && !cache.touches(2, 9));
        assert_eq!(cache.settle(4).len(), 1);
        assert!(cache.is_empty());
    }
}
