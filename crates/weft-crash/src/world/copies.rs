//! Measurement of copies: whether the copies of a sector agree, after a cut and after writes.
//!
//! After a power cut the copies may be from different times. Each copy is a version that was
//! written and not durably overwritten. Reads return the first copy, which is the content of the
//! sector from then on (I3). Once this copy is lost, another copy is read, which may hold another
//! version.

use std::collections::BTreeSet;

use weft_engine::assemble::{Assembly, SlotState};
use weft_units::Slot;

use super::World;
use crate::array::SlotSector;
use crate::checker::Record;
use crate::suspects::Suspects;
use crate::violation::Violation;

/// The present copies of a sector, each with its slot, in the order in which they are read.
type Found = Vec<(Slot, Vec<u8>)>;

impl World {
    fn copies(&self, column: u64, disk_of: impl Fn(SlotSector) -> Option<usize>) -> Found {
        let read = |place: SlotSector| {
            let disk = disk_of(place).filter(|disk| !self.is_bad(*disk, place.sector))?;
            let at = place.sector + self.array.data_offset[disk].0;
            Some((place.slot, self.disks[disk].peek(at, 1)))
        };
        self.array.places(column).into_iter().filter_map(read).collect()
    }

    /// Compares the copies of one sector of an array without parity when an engine starts; see
    /// [`World::measure_all`]. `older` is the result of [`World::is_older_than_gone`] for the
    /// assembly.
    pub(super) fn measure_copies(
        &mut self,
        column: u64,
        (assembly, older): (&Assembly, bool),
        before: &Suspects,
    ) {
        let copies = self.copies(column, |place| match assembly.slots.get(place.slot.index()) {
            Some(SlotState::InSync(member)) => {
                let disk = member.info.index.index();
                let at = place.sector + self.array.data_offset[disk].0;
                member.cut_at.is_none_or(|end| at < end.0).then_some(disk)
            }
            Some(SlotState::Rebuilding { member, recovery_offset }) => {
                (place.sector < recovery_offset.0).then_some(member.info.index.index())
            }
            _ => None,
        });
        self.excuses.measured += 1;
        let known = before.errors_if_lost(&self.array, column, Slot(0));
        for (slot, found) in &copies {
            if self.model.why_now(column, found).is_some()
                || self.model.media_allows_off(column, found, &known)
            {
                continue;
            }
            if self.options.data_promised {
                let message = format!(
                    "after a cut the copy of sector {column} at slot {} is nothing that may be read there",
                    slot.0
                );
                self.fail(Violation::new("I1 durability", message));
            } else if older || self.was_cut || self.watched_columns.contains(column) {
                self.model.add_possible(column, found);
            }
        }
        // If the copy that was read so far is lost, the first remaining copy is read from now on.
        if let Some((slot, found)) = copies.first() {
            let there = |slot: Slot| copies.iter().any(|(other, _)| *other == slot);
            let lost = before.preferred(column).is_some_and(|slot| !there(slot))
                || !before.errors(&self.array, column, *slot).is_empty();
            if lost && self.model.why_now(column, found).is_none() {
                self.model.is_reconstructed(column, found);
            }
        }
        let by = differences(&copies);
        if !by.is_empty() {
            self.excuses.disagreed += 1;
            self.suspects.insert_copies(column, by, copies[0].0);
        }
        if self.is_volatile(column) {
            self.suspects.remember(before, column);
        }
    }

    /// Whether any disk that the assembly does not count as in sync has recorded more events than
    /// the disks in sync: such a disk is gone, or its superblock is unreadable or torn. A mirror
    /// assembles from a single copy, however old, and durability is not promised in this case.
    pub(super) fn is_older_than_gone(&self, assembly: &Assembly) -> bool {
        let events = |disk: usize| {
            let before = self.record_before.of(disk).map(weft_ondisk::Superblock::events);
            let on_media = Record::on_media(&self.disks[disk], self.options.version);
            before.max(on_media.map(|superblock| superblock.events()))
        };
        let believed = assembly.slots.iter().filter_map(|state| match state {
            SlotState::InSync(member) => Some(member.info.index.index()),
            SlotState::Rebuilding { .. } | SlotState::Missing => None,
        });
        let believed: BTreeSet<usize> = believed.collect();
        let others = (0..self.disks.len()).filter(|disk| !believed.contains(disk));
        others.map(events).max() > believed.iter().map(|disk| events(*disk)).max()
    }

    /// Compares the copies of one suspect sector again; see [`World::look_again`].
    pub(super) fn look_again_at_copies(&mut self, column: u64) {
        let unrecorded = self.unrecorded();
        let disk_of = |place: SlotSector| self.disk_read(place.slot, place.sector, &unrecorded);
        let copies = self.copies(column, disk_of);
        if !differences(&copies).is_empty() || self.is_written_to(column) {
            return;
        }
        // If the copy that was read so far is lost, the first remaining copy is read from now on.
        if let Some((slot, left)) = copies.first() {
            let errors = self.suspects.errors(&self.array, column, *slot);
            if self.model.why_now(column, left).is_none()
                && !self.model.media_allows_off(column, left, &errors)
            {
                return;
            }
            // The record is needed even if this content is allowed already: a read of the lost copy
            // may still end with other content.
            if !errors.is_empty() {
                self.model.is_reconstructed(column, left);
            }
        }
        self.suspects.clear(column, !self.is_volatile(column));
    }
}

/// XOR differences between any two copies that are not equal.
fn differences(copies: &Found) -> BTreeSet<Vec<u8>> {
    let pairs = copies.iter().flat_map(|a| copies.iter().map(move |b| (&a.1, &b.1)));
    let by = pairs.map(|(a, b)| a.iter().zip(b).map(|(a, b)| a ^ b).collect::<Vec<u8>>());
    by.filter(|by| by.iter().any(|byte| *byte != 0)).collect()
}
