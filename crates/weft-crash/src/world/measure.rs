//! Measurement of columns: whether members agree, after a cut and after writes to suspect columns.

use std::collections::BTreeMap;

use weft_engine::MemberState;
use weft_engine::assemble::{Assembly, SlotState};
use weft_units::{ByteRange, Sectors, Slot};

use super::World;
use crate::array::SlotSectors;
use crate::model::Why;
use crate::options::Options;
use crate::payload::PayloadMode;
use crate::suspects::{Explained, Strips, Suspects};
use crate::violation::Violation;

impl World {
    /// Whether it makes sense to compare the content of members: there is payload, no disk lies,
    /// and checkers run.
    fn measures(&self) -> bool {
        let Options { payload, disks_lie, checked, .. } = self.options;
        payload != PayloadMode::None && !disks_lie && checked
    }

    /// Slots without a member in sync.
    fn missing(&self) -> Vec<u16> {
        (0..self.array.members())
            .filter(|slot| self.record.in_sync(Slot(*slot)).is_none())
            .collect()
    }

    /// Measures the columns when an engine starts on members that a cut may have left in
    /// disagreement: the content of their members is compared. Records the suspect columns and the
    /// content that reads of them may return.
    pub(super) fn measure_all(&mut self, assembly: &Assembly) {
        let rebuilding = |(slot, state): (u16, &SlotState)| match state {
            SlotState::Rebuilding { member, recovery_offset } => {
                Some((slot, (member.info.index.index(), recovery_offset.0)))
            }
            _ => None,
        };
        self.half_rebuilt = (0u16..).zip(&assembly.slots).filter_map(rebuilding).collect();
        let missing = (0u16..).zip(&assembly.slots);
        let missing: Vec<u16> = missing
            .filter(|(_, state)| !matches!(state, SlotState::InSync(_)))
            .map(|(slot, _)| slot)
            .collect();
        if !std::mem::take(&mut self.measure_due) || !self.measures() {
            missing.into_iter().for_each(|slot| self.suspects.lose(slot));
            return;
        }
        let columns = self.columns_of_interest();
        let before = self.suspects.take();
        let older = !self.array.has_parity() && self.is_older_than_gone(assembly);
        for column in columns {
            if !self.array.has_parity() {
                self.measure_copies(column, (assembly, older), &before);
                continue;
            }
            let disk_of = |slot: Slot| match assembly.slots.get(slot.index()) {
                // Sectors beyond the end of a member that shrank are reconstructed.
                Some(SlotState::InSync(member)) => {
                    let disk = member.info.index.index();
                    let at = column + self.array.data_offset[disk].0;
                    member.cut_at.is_none_or(|end| at < end.0).then_some(disk)
                }
                Some(SlotState::Rebuilding { member, recovery_offset }) => {
                    (column < recovery_offset.0).then_some(member.info.index.index())
                }
                _ => None,
            };
            let disk_of = |slot| disk_of(slot).filter(|disk| !self.is_bad(*disk, column));
            let strips = Strips::read(&self.array, &self.disks, column, disk_of);
            let outcome = strips.outcome();
            self.excuses.measured += 1;
            self.keep_reconstructed(&before, column, &strips);
            let wrong: Vec<(u64, Vec<u8>)> = outcome
                .values
                .into_iter()
                .map(|(slot, value)| (self.sector_of(slot, column), value))
                .filter(|(sector, value)| self.model.why_now(*sector, value) != Some(Why::Written))
                .collect();
            if !wrong.is_empty() || !outcome.syndromes.is_empty() {
                self.excuses.disagreed += 1;
                if self.options.data_promised {
                    match before.explains(&self.array, column, &strips, &self.model) {
                        Explained::Yes => {}
                        Explained::TooMany => self.excuses.too_many += 1,
                        Explained::No => self.fail(Violation::new(
                            "I6 parity or dirty",
                            format!(
                                "after a cut the parity of column {column} is that of no choice of \
                                 what was written"
                            ),
                        )),
                    }
                }
                for (sector, value) in wrong {
                    self.model.add_possible(sector, &value);
                }
                if !outcome.syndromes.is_empty() {
                    let lost = (0..self.array.members())
                        .filter(|slot| missing.contains(slot) || strips.at(Slot(*slot)).is_none());
                    self.suspects.insert(column, outcome.syndromes, lost);
                }
            }
            if !self.options.data_promised {
                self.believe(column, &strips);
            }
            if self.is_volatile(column) {
                self.suspects.remember(&before, column);
            }
        }
    }

    /// Allows reads to return content that was reconstructed wrongly for a lost slot and then
    /// written to the slot's new member. This content is on the media even if members agree by now.
    fn keep_reconstructed(&mut self, before: &Suspects, column: u64, strips: &Strips) {
        for slot in before.lost(column) {
            if let Some(found) = strips.at(slot)
                && let Some(sector) = self.array.array_sector(slot, column)
                && self.model.why_now(sector, found).is_none()
            {
                let errors = before.errors_if_lost(&self.array, column, slot);
                if self.model.media_allows_off(sector, found, &errors) {
                    self.model.add_possible(sector, found);
                }
            }
        }
    }

    /// Allows reads to return the content of members in sync, on an array that lost more members
    /// than the level survives: this content may be of any age. If neither the power was cut nor
    /// the process crashed, this applies only to watched columns, in which a write failed: in all
    /// other columns the members have the acknowledged content.
    fn believe(&mut self, column: u64, strips: &Strips) {
        if !self.was_cut && !self.watched_columns.contains(column) {
            return;
        }
        for (slot, sector) in self.array.data_of(column) {
            if let Some(found) = strips.at(slot)
                && self.model.why_now(sector, found).is_none()
            {
                self.model.add_possible(sector, found);
            }
        }
    }

    fn sector_of(&self, slot: Slot, column: u64) -> u64 {
        self.array.array_sector(slot, column).expect("the slot holds data")
    }

    /// Whether a disk has content of a column in its volatile cache, which a power cut may lose. A
    /// column is a set of sectors that have to agree: with parity one sector at every slot,
    /// otherwise each copy of one array sector.
    pub(super) fn is_volatile(&self, column: u64) -> bool {
        let places = self.array.places(column);
        let touched = |(disk, first): (&crate::disk::Disk, &Sectors)| {
            sectors_of(&places).any(|sector| disk.volatile().touches(first.0 + sector, 1))
        };
        self.disks.iter().zip(&self.array.data_offset).any(touched)
    }

    /// Whether a write to a column is in flight at a client or outstanding at a member.
    pub(super) fn is_written_to(&self, column: u64) -> bool {
        let in_flight = |(_, sector)| self.model.in_flight(sector);
        self.has_outstanding(column) || self.array.data_of(column).into_iter().any(in_flight)
    }

    /// Marks columns as open, because a member refused a write to them or the write ended halfway.
    pub(super) fn open_columns(&mut self, columns: impl IntoIterator<Item = u64>) {
        // For mirrors, the failed version in the model already allows any part of the write.
        if self.measures() && self.array.has_parity() {
            let missing = self.missing();
            for column in columns {
                self.suspects.open(column, missing.iter().copied());
            }
        }
    }

    /// Compares the members in the suspect columns of a range again, after a write to the range was
    /// answered.
    pub(super) fn look_again_at(&mut self, range: ByteRange) {
        if !self.suspects.is_empty() {
            let columns: Vec<u64> = self.array.columns(range).map(|(_, it)| it.number).collect();
            columns.into_iter().for_each(|column| self.look_again(column));
        }
    }

    /// Compares the members in every suspect column again.
    pub(super) fn look_again_at_all(&mut self) {
        let columns: Vec<u64> = self.suspects.columns().collect();
        columns.into_iter().for_each(|column| self.look_again(column));
    }

    /// Members that the running engine reads although no readable superblock says that they are in
    /// sync, by slot: number of the disk, and the data sector up to which it is read. The rebuild
    /// of such a member has ended, but the member had no space for its superblock, or its
    /// superblock became unreadable. Its content takes part in the comparison of the members.
    pub(super) fn unrecorded(&self) -> BTreeMap<u16, (usize, u64)> {
        let missing = self.missing();
        let volume = self.engine.as_ref().filter(|_| !missing.is_empty());
        let volume = volume.and_then(|engine| engine.snapshot().volumes.into_iter().next());
        let members = volume.map_or_else(Vec::new, |volume| volume.members);
        let read = members.iter().filter_map(|member| {
            let slot = member.slot?.0;
            let recovery_offset = match member.state {
                MemberState::InSync => u64::MAX,
                MemberState::Rebuilding { recovery_offset } => recovery_offset.0,
                MemberState::Faulty | MemberState::Spare => return None,
            };
            Some((slot, (self.disk_of[member.member.index()], recovery_offset)))
        });
        read.filter(|(slot, _)| missing.contains(slot)).collect()
    }

    /// Whether the superblocks count other disks as in sync than the running engine: a rebuild has
    /// ended, but its member had no space for its superblock, or a member has failed while it had
    /// none.
    pub(crate) fn is_update_due(&self) -> bool {
        let volumes = self.engine.as_ref().map_or_else(Vec::new, |it| it.snapshot().volumes);
        let mut members = volumes.iter().take(1).flat_map(|volume| &volume.members);
        members.any(|member| {
            let disk = self.disk_of[member.member.index()];
            let counts = |slot: Slot| self.record.in_sync(slot) == Some(disk);
            match (member.state, member.slot) {
                (MemberState::Faulty, _) => (0..self.array.members()).map(Slot).any(counts),
                (MemberState::InSync, Some(slot)) => !counts(slot),
                _ => false,
            }
        })
    }

    /// Compares the members in a suspect column again. The column stops being suspect once no write
    /// to it is in flight, its members agree, and the model allows its reconstructed content.
    pub(super) fn look_again(&mut self, column: u64) {
        let open = self.suspects.is_open(column);
        if !open && !self.suspects.contains(column) {
            return;
        }
        if !self.array.has_parity() {
            self.look_again_at_copies(column);
            return;
        }
        let unrecorded = self.unrecorded();
        let disk_of = |slot| self.disk_read(slot, column, &unrecorded);
        let strips = Strips::read(&self.array, &self.disks, column, disk_of);
        let outcome = strips.outcome();
        let values: Vec<(Slot, u64, Vec<u8>)> = outcome
            .values
            .into_iter()
            .map(|(slot, value)| (slot, self.sector_of(slot, column), value))
            .collect();
        if open && !self.has_outstanding(column) {
            for (_, sector, value) in &values {
                self.model.is_reconstructed(*sector, value);
            }
            self.suspects.insert(column, outcome.syndromes.clone(), []);
        }
        if !outcome.syndromes.is_empty() || self.is_written_to(column) {
            return;
        }
        // Content of slots that were lost, either stored on their new members or reconstructed by
        // reads.
        let there = self.suspects.lost(column).into_iter().filter_map(|slot| {
            let sector = self.array.array_sector(slot, column)?;
            Some((slot, sector, strips.at(slot)?.to_vec()))
        });
        let all: Vec<(Slot, u64, Vec<u8>)> = there.chain(values).collect();
        for (slot, sector, value) in &all {
            let errors = self.suspects.errors_if_lost(&self.array, column, *slot);
            if self.model.why_now(*sector, value).is_none()
                && !self.model.media_allows_off(*sector, value, &errors)
            {
                return;
            }
        }
        for (_, sector, value) in all {
            self.model.is_reconstructed(sector, &value);
        }
        self.suspects.clear(column, !self.is_volatile(column));
    }

    /// Number of the disk from which the running engine reads a data sector of a slot; `None` if it
    /// reads none. `unrecorded` is the result of [`Self::unrecorded`].
    pub(super) fn disk_read(
        &self,
        slot: Slot,
        sector: u64,
        unrecorded: &BTreeMap<u16, (usize, u64)>,
    ) -> Option<usize> {
        let half = || self.half_rebuilt.get(&slot.0).filter(|half| sector < half.1);
        let also = || unrecorded.get(&slot.0).filter(|it| sector < it.1);
        let others = || half().or_else(also).map(|(disk, _)| *disk);
        self.record.in_sync(slot).or_else(others).filter(|disk| !self.is_bad(*disk, sector))
    }

    /// Whether a data sector of a disk is recorded as one that holds no valid data.
    pub(super) fn is_bad(&self, disk: usize, sector: u64) -> bool {
        self.bad.contains(&(disk, sector))
    }

    /// Whether a write to a column may be outstanding at a disk. Without parity there may be false
    /// positives, because every disk is searched for the sectors of all copies, not only of its own
    /// copy.
    fn has_outstanding(&self, column: u64) -> bool {
        let places = self.array.places(column);
        self.disks.iter().zip(&self.array.data_offset).any(|(disk, first)| {
            sectors_of(&places).any(|sector| {
                let at = first.0 + sector;
                disk.outstanding_writes().any(|(start, count)| (start..start + count).contains(&at))
            })
        })
    }
}

/// Data sectors of the places: the first one, and all others that differ from it.
fn sectors_of(places: &SlotSectors) -> impl Iterator<Item = u64> {
    let mut rest = places.iter().map(|place| place.sector);
    let first = rest.next();
    first.into_iter().chain(rest.filter(move |sector| Some(*sector) != first))
}
