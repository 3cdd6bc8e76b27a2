//! Durable superblocks: members in sync, and the clean state, as the next restart would read them.
//!
//! Checkers take this record from the media and never ask the engine for it.

use weft_ondisk::{Role, Superblock, Version};
use weft_units::{Sectors, Slot};

use crate::disk::Disk;
use crate::faults::Faults;

/// The durable superblock of every disk.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    supers: Vec<Option<Superblock>>,
    gone: Vec<bool>,
    freshest: Option<usize>,
}

/// The superblock of a disk, whether it can be read or not.
fn parsed(disk: &Disk, version: Version) -> Option<Superblock> {
    // A member that was cut short behind its superblock is still known by it.
    let at = version.position(disk.size()).filter(|at| at.0 + 8 <= disk.size().0)?;
    Superblock::parse(&disk.peek_stable(at.0, 8), version, disk.whole_size()).ok()
}

impl Record {
    /// Reads all of them, each where superblocks of this version are.
    #[must_use]
    pub fn read(disks: &[Disk], version: impl Into<Version>) -> Self {
        let version = version.into();
        let read = |disk: &Disk| {
            let at = version.position(disk.size())?;
            // What can never be read again is there for nobody.
            if Faults::hits(&disk.faults.dead_reads, at.0, 8).is_some() {
                return None;
            }
            parsed(disk, version)
        };
        Self::new(disks.iter().map(read).collect(), disks.iter().map(|d| d.faults.gone).collect())
    }

    /// As they were written, also where they can never be read again: whoever wrote them does not
    /// know. `None` if all can be read.
    #[must_use]
    pub fn written(disks: &[Disk], version: impl Into<Version>) -> Option<Self> {
        let version = version.into();
        let dead = |disk: &Disk| {
            let at = version.position(disk.size());
            at.is_some_and(|at| Faults::hits(&disk.faults.dead_reads, at.0, 8).is_some())
        };
        let gone = || disks.iter().map(|disk| disk.faults.gone).collect();
        let written = || Self::new(disks.iter().map(|it| parsed(it, version)).collect(), gone());
        disks.iter().any(dead).then(written)
    }

    /// Of superblocks that were read already.
    #[must_use]
    pub fn new(supers: Vec<Option<Superblock>>, gone: Vec<bool>) -> Self {
        let present = (0..supers.len()).filter(|disk| !gone[*disk]);
        // One with a slot: a spare may lag or lead.
        let has_slot = |sb: &Superblock| matches!(sb.own_role(), Ok(Role::Active(_)));
        let freshest = present
            .filter_map(|disk| {
                Some((supers[disk].as_ref().filter(|sb| has_slot(sb))?.events(), disk))
            })
            .max_by_key(|(events, disk)| (*events, std::cmp::Reverse(*disk)))
            .map(|(_, disk)| disk);
        Self { supers, gone, freshest }
    }

    /// The superblock of a disk.
    #[must_use]
    pub fn of(&self, disk: usize) -> Option<&Superblock> {
        self.supers.get(disk)?.as_ref()
    }

    /// The one with the most events, of disks that are there.
    #[must_use]
    pub fn freshest(&self) -> Option<&Superblock> {
        self.of(self.freshest?)
    }

    /// The slot at which a witness believes a disk to be in sync.
    fn slot_by(&self, witness: usize, disk: usize) -> Option<Slot> {
        let own = self.of(disk)?;
        // What does not know that it has a slot has not all of its data.
        let has_slot = matches!(own.own_role(), Ok(Role::Active(_)));
        if own.recovery_offset().is_some() || !has_slot {
            return None;
        }
        let witness = self.of(witness)?;
        // Further behind, it is not believed whatever its number; and the number may be another's
        // now.
        if own.events() + 1 < witness.events() {
            return None;
        }
        match witness.role(own.dev_number()).ok()? {
            Role::Active(slot) => Some(slot),
            _ => None,
        }
    }

    /// The disk that is in sync at a slot, as the freshest superblock says.
    #[must_use]
    pub fn in_sync(&self, slot: Slot) -> Option<usize> {
        let freshest = self.freshest?;
        (0..self.supers.len())
            .find(|disk| !self.gone[*disk] && self.slot_by(freshest, *disk) == Some(slot))
    }

    /// The disk that *some* survivor says is in sync at a slot: were the others lost, a restart
    /// would believe it. A disk is no witness for itself, and neither is one that is gone or that
    /// the freshest superblock does not count as in sync.
    #[must_use]
    pub fn believed(&self, slot: Slot) -> Option<usize> {
        let disks = 0..self.supers.len();
        let witness = |disk: usize, witness: usize| {
            witness != disk && !self.gone[witness] && self.is_in_sync(witness)
        };
        disks.clone().find(|disk| {
            disks
                .clone()
                .any(|other| witness(*disk, other) && self.slot_by(other, *disk) == Some(slot))
        })
    }

    /// Whether the freshest superblock counts a disk as in sync somewhere.
    #[must_use]
    pub fn is_in_sync(&self, disk: usize) -> bool {
        self.freshest.is_some_and(|freshest| self.slot_by(freshest, disk).is_some())
    }

    /// Whether every disk that is in sync says that the array is dirty.
    #[must_use]
    pub fn all_dirty(&self) -> bool {
        (0..self.supers.len())
            .filter(|disk| !self.gone[*disk] && self.is_in_sync(*disk))
            .all(|disk| self.of(disk).is_some_and(|sb| sb.dirty_from().is_some()))
    }

    /// The first member data sector whose parity may be wrong, as the freshest superblock says.
    #[must_use]
    pub fn dirty_from(&self) -> Option<Sectors> {
        self.freshest()?.dirty_from()
    }
}
