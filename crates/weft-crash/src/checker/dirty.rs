//! Checker I5, dirty before data: superblocks say dirty, durably, before data changes, and say
//! clean only when all writes have ended and are durable.
//!
//! An array that is dirty only from some sector on counts as clean before that sector. A stopped
//! resync leaves such superblocks. All columns before that sector then must be durable and without
//! outstanding writes.
//!
//! A write counts if it changes the content of a member. Writes of a resync count too: parity is
//! wrong until they end. Writes to a member that is being rebuilt do not count, nor do rewrites of
//! unreadable blocks, which change no content.
//!
//! If a superblock that is written to a disk in sync changes the clean state or the roles, its
//! update count must change too: another disk may hold the same count with the earlier statement,
//! and a restart could not tell which of the two is newer.

use std::collections::{BTreeMap, BTreeSet};

use weft_engine::{Input, MemberOp, Notice, Origin, Output, Token};
use weft_ondisk::{Role, Superblock, Version};
use weft_units::{MemberIndex, SECTOR_BYTES, Sectors, Slot};

use super::{Record, View, Violation, bits};
use crate::disk::Disk;

const NAME: &str = "I5 dirty before data";

/// Checker I5: compares writes to members with the clean state in the durable superblocks.
#[derive(Clone, Debug, Default)]
pub struct Dirty {
    /// Outstanding data writes.
    writes: BTreeMap<Token, Write>,
    /// Members that the engine has reported as failed or replaced.
    failed: BTreeSet<MemberIndex>,
    /// Token of the write that was submitted last, for the call of [`Self::write`] that follows;
    /// `None` before the first write.
    submitted: Option<Token>,
}

#[derive(Clone, Copy, Debug)]
struct Write {
    /// Device number, in superblocks, of the disk that is written, recorded at submission; `None`
    /// if the disk has no superblock.
    number: Option<u32>,
    /// Disk and sectors of the write.
    place: bits::DiskRange,
    /// Column of the first sector.
    column: u64,
    /// Whether I5 covers the write: its origin is not a sync, or it changes the content of the
    /// member.
    counts: bool,
}

impl Dirty {
    /// Removes a write that completes.
    pub fn input(&mut self, input: &Input) {
        if let Input::Done { token, .. } = input {
            self.writes.remove(token);
        }
    }

    /// Records member writes, and checks metadata writes that say clean or clear bits.
    pub fn output(&mut self, view: View<'_>, output: &Output, found: &mut Vec<Violation>) {
        // Without redundancy no members can disagree, and nothing is marked dirty.
        if view.array.is_striped() {
            return;
        }
        if let Output::Notice(
            Notice::MemberFailed { member, .. } | Notice::MemberReplaced { member, .. },
        ) = output
        {
            self.failed.insert(*member);
        }
        let Output::Submit { token, member, op, attr } = output else { return };
        match op {
            MemberOp::Discard { at, .. } | MemberOp::Write { at, .. } => {
                let count = match op {
                    MemberOp::Discard { len, .. } => len.0,
                    MemberOp::Write { from, .. } => {
                        from.iter().map(|part| u64::from(part.len)).sum::<u64>() / SECTOR_BYTES
                    }
                    _ => 0,
                };
                let (disk, counts) = (view.disk(*member), attr.origin != Origin::Sync);
                let column = view.column_at(disk, at.0).unwrap_or(0);
                let number = number_of(view, disk);
                let place = (disk, at.0, count);
                self.writes.insert(*token, Write { number, place, column, counts });
                self.submitted = Some(*token);
            }
            MemberOp::WriteMetadata { at, bytes } => {
                self.superblock(view, view.disk(*member), bytes, found);
                let counts = |write: &Write| write.counts && view.record.is_in_sync(write.place.0);
                let outstanding = self.writes.iter().filter(|(_, write)| counts(write));
                let outstanding = outstanding.map(|(token, write)| (*token, write.place));
                let to = (view.disk(*member), at.0);
                bits::before_clear(view, to, bytes, outstanding, found);
            }
            MemberOp::Flush | MemberOp::Read { .. } => {}
        }
    }

    /// Checks that all superblocks say dirty, and that bits are set, before a write changes the
    /// content of a member. Called after [`Self::output`] for the same write.
    pub fn write(
        &mut self,
        view: View<'_>,
        disk: usize,
        (at, count): (u64, u64),
        bytes: &[u8],
        found: &mut Vec<Violation>,
    ) {
        let Some(first) = view.array.data_sector(disk, at) else { return };
        // The content of bad blocks is not read, not even after a crash, so its correction is no
        // change.
        let before = view.disks[disk].peek(at, count);
        let len = (before.len() as u64 / count.max(1)).max(1) as usize;
        let sectors = before.chunks(len).zip(bytes.chunks(len)).zip(first..);
        let changes = before.len() != bytes.len()
            || sectors
                .into_iter()
                .any(|((before, after), sector)| before != after && !view.is_bad(disk, sector));
        let write = self.submitted.and_then(|token| self.writes.get_mut(&token));
        let Some(write) = write else { return };
        // A restart does not use a member that is being rebuilt, nor a replacement. Corrections of
        // an original are written to its replacement as well.
        let corrects = !write.counts || view.record.is_replacement(disk);
        let rebuilt = corrects && !view.record.is_in_sync(disk);
        write.counts |= changes && !rebuilt;
        if changes && !rebuilt {
            bits::before_data(view, (disk, at, count), bytes, found);
        }
        // The engine cannot know that a superblock it wrote has become unreadable, nor which part
        // of a superblock a failed write has stored. Either record that says dirty therefore
        // suffices.
        if changes && !rebuilt && !view.record.all_dirty() && !view.written.all_dirty() {
            found.push(Violation::new(
                NAME,
                format!(
                    "data goes to disk {disk} at sector {at} and a superblock still says clean"
                ),
            ));
        }
    }

    /// Checks a superblock that is written to the disk `to`: a changed state needs a new update
    /// count, and where it says clean no data may be outstanding or volatile.
    fn superblock(&self, view: View<'_>, to: usize, bytes: &[u8], found: &mut Vec<Violation>) {
        let mut block = bytes.to_vec();
        block.resize(4096.max(bytes.len()), 0);
        // The size of any member will do: it determines the place of a superblock but not its
        // content.
        let size = view.disks.first().map_or(Sectors::ZERO, Disk::whole_size);
        let decode = |version: &Version| Superblock::decode(&block, *version, size).ok();
        let Some(sb) = Version::ALL.iter().find_map(decode) else { return };
        // Of two superblocks that differ, a restart uses the one with more events.
        let says = |sb: &Superblock| {
            let roles: Vec<_> = (0..sb.role_count() as u32).map(|number| sb.role(number)).collect();
            (sb.dirty_from(), roles)
        };
        let before = view.written.of(to).filter(|_| view.record.is_in_sync(to));
        if before.is_some_and(|it| it.events() == sb.events() && says(it) != says(&sb)) {
            let text =
                format!("disk {to} gets another state with the update count {}", sb.events());
            found.push(Violation::new(NAME, text));
        }
        // Columns below this one are clean; the rest is dirty.
        let clean_to = sb.dirty_from().map_or(u64::MAX, |from| from.0);
        if clean_to == 0 {
            return;
        }
        // A superblock write that found no space is repeated unchanged, after other members have
        // stored the same state. A restart finds this state without the repeated copy too.
        let recorded = |disk: usize| {
            let own = view.record.of(disk).filter(|_| disk != to && view.record.is_in_sync(disk));
            own.is_some_and(|own| own.events() == sb.events())
        };
        let repeats = || (0..view.disks.len()).any(recorded);
        // A superblock that is written again still lists the members that failed since its first
        // write. Under 0.90 the device number of a member is its slot, which another disk may
        // occupy by now.
        let failed = |disk: usize| {
            let index = view.disk_of.iter().rposition(|known| *known == disk);
            let index = index.map(|index| MemberIndex(index as u16));
            index.is_some_and(|it| self.failed.contains(&it))
                && (sb.version() == Version::V0_90 || repeats())
        };
        // Writes to a member that this superblock does not list as active do not count.
        let has_left = |write: &Write| {
            let role = write.number.and_then(|number| sb.role(number).ok());
            role.is_some_and(|role| !matches!(role, Role::Active(_))) || failed(write.place.0)
        };
        let covered = |write: &Write| write.counts && write.column < clean_to;
        if self.writes.values().any(|write| covered(write) && !has_left(write)) {
            found.push(Violation::new(NAME, "marked clean while a data write is outstanding"));
        }
        for (disk, state) in view.disks.iter().enumerate() {
            let data = view.array.data_offset.get(disk).map_or(0, |first| first.0);
            // The role that this superblock gives to the disk counts.
            let number = view.record.of(disk).map(|own| own.dev_number());
            let active = number.and_then(|number| sb.role(number).ok());
            if view.record.is_in_sync(disk)
                && matches!(active, Some(Role::Active(_)))
                && !state.faults.gone
                && !failed(disk)
                && view.record.own_slot(disk).is_some_and(|slot| {
                    let range = |(at, count): (u64, u64)| state.can_lose(data + at, count);
                    clean_ranges(view, slot, clean_to).into_iter().any(range)
                })
            {
                found.push(Violation::new(
                    NAME,
                    format!("marked clean while disk {disk} holds data that is not durable"),
                ));
            }
        }
    }
}

/// Device number of a disk, in superblocks; `None` if it has no superblock. A disk that shrank
/// below the place of its superblock keeps its number, because the engine knows the member until a
/// request to it fails.
fn number_of(view: View<'_>, disk: usize) -> Option<u32> {
    let cut_off = || Record::on_media(&view.disks[disk], view.record.freshest()?.version());
    let number = view.written.of(disk).map(Superblock::dev_number);
    number.or_else(|| cut_off().map(|superblock| superblock.dev_number()))
}

/// Data sectors of a slot's member in columns below `clean_to`, as ranges of first sector and
/// count.
fn clean_ranges(view: View<'_>, slot: Slot, clean_to: u64) -> Vec<(u64, u64)> {
    let array = view.array;
    if array.has_parity() || clean_to >= array.columns_count() {
        return vec![(0, array.layout.member_size().0.min(clean_to))];
    }
    let places = (0..clean_to).flat_map(|column| array.places(column));
    places.filter(|place| place.slot == slot).map(|place| (place.sector, 1)).collect()
}
