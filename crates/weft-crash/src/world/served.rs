//! Members that the running engine still reads, according to its own notices.
//!
//! A restart may use other members: if the last members could not record a failure, their
//! superblocks still count the failed member as in sync, although nothing was written to it since.

use std::collections::BTreeMap;

use weft_engine::MemberState;
use weft_engine::assemble::{Assembly, SlotState};
use weft_units::{MemberIndex, Slot};

use super::World;

/// Disks that the engine reads: the number of the disk, by slot.
#[derive(Clone, Debug, Default)]
pub(super) struct Served(BTreeMap<u16, usize>);

impl Served {
    /// Number of the disk that the engine reads at a slot; `None` if it reads none.
    pub(super) fn at(&self, slot: Slot) -> Option<usize> {
        self.0.get(&slot.0).copied()
    }
}

impl World {
    /// Records the disks of the members in sync, from the assembly with which the engine starts.
    pub(super) fn serves(&mut self, assembly: &Assembly) {
        let in_sync = (0u16..).zip(&assembly.slots).filter_map(|(slot, state)| match state {
            SlotState::InSync(member) => Some((slot, member.info.index.index())),
            SlotState::Missing | SlotState::Rebuilding { .. } => None,
        });
        self.served = Served(in_sync.collect());
    }

    /// Records that the member at a slot failed. The engine still reads this member if the others
    /// do not suffice.
    pub(super) fn serves_no_more(&mut self, slot: Slot) {
        let others = |other: Slot| other != slot && self.served.at(other).is_some();
        if self.array.suffices(others) {
            self.served.0.remove(&slot.0);
        }
    }

    /// Records that the member `by` serves a slot from now on and replaces the former one.
    pub(super) fn serves_by(&mut self, slot: Slot, by: MemberIndex) {
        self.served.0.insert(slot.0, self.disk_of[by.index()]);
    }

    /// Column of sector `absolute` of a disk; `None` if the sector holds no data of the array. The
    /// slot is taken from the disk's own superblock, or from the engine if the superblock does not
    /// record it yet.
    pub(super) fn column_served_at(&self, disk: usize, absolute: u64) -> Option<u64> {
        self.record.column_at(&self.array, disk, absolute).or_else(|| {
            let (slot, _) = self.served.0.iter().find(|(_, served)| **served == disk)?;
            self.array.column_of(Slot(*slot), self.array.data_sector(disk, absolute)?)
        })
    }

    /// Adds members that are in sync now because they were rebuilt.
    pub(super) fn serves_more(&mut self) {
        for member in &self.snapshot().volumes[0].members {
            if let (Some(slot), MemberState::InSync) = (member.slot, member.state) {
                self.served.0.entry(slot.0).or_insert(self.disk_of[member.member.index()]);
            }
        }
    }
}
