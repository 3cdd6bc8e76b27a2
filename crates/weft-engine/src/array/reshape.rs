//! Reshape: when its progress is recorded, and what may be overwritten until then.
//!
//! A reshape copies the array from one geometry to another one on the same members. Below the
//! *position* the array has the geometry after the reshape, above it the geometry before. The data
//! of every member moves down by some distance at the same time, so that a copy is not written over
//! its own source, and no backup is needed. These rules make a crash safe at every point of time:
//!
//! - Data is copied in order of its array sectors, and a position is recorded only after a flush of
//!   all members that began when everything below it was copied.
//! - No sector is written from which a restart at the recorded position would read. When the next
//!   copy has to be written to such a sector, a newer position is recorded first. The gap grows as
//!   the reshape goes on, because a full stripe after it holds more than one before.
//! - Requests of clients that touch sectors between the recorded position and the end of the range
//!   that is being copied wait until that end is recorded: after a crash the geometry before
//!   applies there.
//!
//! At position 0 no data that a restart reads has moved. If only a part of the members have
//! recorded the beginning of a reshape, the next assembly therefore ignores that the reshape began.
//!
//! md records a position when it has to, and otherwise every ten seconds, even while a client waits
//! for one. weft also records a position when a client waits, and after [`UNRECORDED_MAX`] units.
//!
//! Source   md-reshape.md §3 to §5 (md: `reshape_request`, `raid5_start_reshape`)

use weft_ondisk::{Role, Superblock};
use weft_units::{ByteRange, SectorRange, Sectors, Slot};

use super::superblock_update::FlushFor;
use super::{Array, set_role};
use crate::array::member::Member;
use crate::array::membership::Membership;
use crate::array::outbox::{CompletionTarget, JobId};
use crate::assemble::Reshaping;
use crate::contract::error::ReplyError;
use crate::contract::input::ArrayShape;
use crate::contract::member::MemberState;
use crate::contract::snapshot::ReshapeSnapshot;
use crate::layout::Layout;
use crate::layout::geometry::Geometry;
use crate::mutant::Mutant;

/// One of the two geometries that an array has during a reshape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Geometry before the reshape. The part of the array that is not copied yet has it.
    Before,
    /// Geometry after the reshape. The part of the array that is already copied has it.
    After,
}

/// Progress of a reshape.
#[derive(Clone, Debug)]
pub(crate) struct Reshape {
    pub(crate) before: Geometry,
    pub(crate) after: Geometry,
    /// Array sector up to which everything is copied.
    copied: Sectors,
    /// Position up to which all copies are durable.
    durable: Sectors,
    /// Position in the superblocks that were written last or are being written.
    sent: Sectors,
    /// Position in the superblocks of all members.
    recorded: Sectors,
    /// Number of the superblock update in which all members record the position at which the
    /// reshape begins or goes on. Nothing is copied before that update is done. `None` for a
    /// reshape that a read-only array does not continue.
    begins: Option<u64>,
    /// Whether a flush is under way after which a new position is recorded.
    flushing: bool,
    /// Whether the copies past the recorded position were discarded, and the copy has not begun
    /// again from there.
    forgotten: bool,
}

impl Side {
    /// Bit in the kind of a part that marks the part as belonging to the geometry before. `JOB` is
    /// the bit that does so in the number of a computation.
    const KIND: u32 = 1 << 8;
    const JOB: u32 = 1 << 31;

    /// Marks a part of a member request as belonging to this geometry.
    pub(crate) fn mark(self, part: CompletionTarget) -> CompletionTarget {
        let bit = if self == Self::Before { Self::KIND } else { 0 };
        CompletionTarget { kind: part.kind | bit, ..part }
    }

    /// Geometry to which a marked part belongs, and the part without its mark.
    pub(crate) fn of_part(part: CompletionTarget) -> (Self, CompletionTarget) {
        let side = if part.kind & Self::KIND == 0 { Self::After } else { Self::Before };
        (side, CompletionTarget { kind: part.kind & !Self::KIND, ..part })
    }

    /// Marks the number of a computation as belonging to this geometry.
    pub(crate) fn mark_job(self, job: JobId) -> JobId {
        JobId(job.0 | if self == Self::Before { Self::JOB } else { 0 })
    }

    /// Geometry to which a marked computation belongs, and its number without the mark.
    pub(crate) fn of_job(job: JobId) -> (Self, JobId) {
        let side = if job.0 & Self::JOB == 0 { Self::After } else { Self::Before };
        (side, JobId(job.0 & !Self::JOB))
    }
}

impl Reshape {
    fn new(of: &Reshaping, before: Geometry) -> Self {
        Self {
            before,
            after: of.after.clone(),
            copied: of.position,
            durable: of.position,
            sent: of.position,
            recorded: of.position,
            begins: None,
            flushing: false,
            forgotten: false,
        }
    }

    /// Position in the superblocks of all members: array sector at which the geometry changes.
    pub(crate) fn recorded(&self) -> Sectors {
        self.recorded
    }

    /// Array sector up to which everything is copied.
    pub(crate) fn copied(&self) -> Sectors {
        self.copied
    }

    /// Position at which the reshape is over.
    pub(crate) fn end(&self) -> Sectors {
        self.after.array_size()
    }

    /// Number of sectors that one step of the copy writes on each member: the larger of the two
    /// chunk sizes, which is the height of one or more full stripes of the geometry after.
    ///
    /// Source   md-reshape.md §3
    pub(crate) fn unit_height(&self) -> Sectors {
        self.before.chunk().max(self.after.chunk())
    }

    /// First data sector, in the geometry before, that is read to copy the array from `position`
    /// on.
    pub(crate) fn read_from(&self, position: Sectors) -> Sectors {
        Sectors(full_stripes(&self.before, position))
    }

    /// Geometry that the array has at array sector `sector`.
    pub(crate) fn side_at(&self, sector: Sectors) -> Side {
        if sector < self.recorded { Side::After } else { Side::Before }
    }

    /// Range of the resync space ([`Layout::resync_size`]) that a write of `range` may change, in
    /// either geometry.
    fn resync_range(&self, range: ByteRange) -> SectorRange {
        let before = Layout::Parity(self.before.clone()).resync_range(range);
        let after = Layout::Parity(self.after.clone()).resync_range(range);
        let last = Sectors((range.end().0 - 1) / weft_units::SECTOR_BYTES);
        match (self.side_at(range.start.sectors_floor()), self.side_at(last)) {
            (Side::Before, Side::Before) => before,
            (Side::After, Side::After) => after,
            (_, _) => {
                let start = before.start.min(after.start);
                SectorRange { start, len: before.end().max(after.end()) - start }
            }
        }
    }
}

/// Creates a membership with the slots of the geometry `of` and no members. The membership gets the
/// state of the whole array from `other`.
fn slots_of(of: &Geometry, other: &Membership) -> Membership {
    let tolerance = Layout::Parity(of.clone()).tolerance();
    let mut slots = Membership::new(usize::from(of.members()), tolerance, false, None);
    slots.follow(other);
    slots
}

/// Data sector of the members at which the full stripe of array sector `sector` begins.
fn full_stripes(of: &Geometry, sector: Sectors) -> u64 {
    sector.0 / (of.chunk().0 * u64::from(of.data_members())) * of.chunk().0
}

/// Smallest distance by which the data of each member has to move down so that `after` can replace
/// `before` without a backup.
///
/// Source   md-reshape.md §5 (mdadm: `compute_backup_blocks`)
pub(crate) fn distance_min(before: &Geometry, after: &Geometry) -> Sectors {
    let full_stripe = |of: &Geometry| of.chunk().0 * u64::from(of.data_members());
    let (old, new) = (full_stripe(before), full_stripe(after));
    let common = old / greatest_common_divisor(old, new) * new;
    Sectors(common / u64::from(before.data_members()))
}

/// Geometry that a reshape of `before` to the shape `to` leads to; an error if there is none.
fn after_of(before: &Geometry, to: ArrayShape) -> Result<Geometry, ReplyError> {
    let slots = u32::from(to.raid_disks.unwrap_or(before.members()));
    let number = to.layout.unwrap_or(before.layout());
    let (chunk, size) = (to.chunk.unwrap_or(before.chunk()), before.member_size());
    let after = Geometry::new(before.level(), number, slots, chunk, size);
    let after = after.map_err(|error| ReplyError::Refused(error.to_string()))?;
    let rule = after.level().row().chunk;
    if !rule.allows_new(chunk) {
        let expected = rule.expected_new();
        return Err(ReplyError::Refused(format!("chunk: found {chunk}, expected {expected}")));
    }
    if after.member_size() != size {
        return Err(ReplyError::Refused(format!(
            "chunk: found {chunk}, expected one of which the members' data, {size}, is a multiple"
        )));
    }
    Ok(after)
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

impl Array {
    /// Goes on with the reshape that superblocks record, if they record one.
    pub(super) fn continue_reshape(&mut self, of: Option<&Reshaping>) {
        let Some(of) = of else { return };
        let before = self.layout.as_ref().and_then(Layout::parity).cloned();
        let before = before.expect("only levels with parity are reshaped");
        for member in &mut self.members {
            member.begin_moving();
        }
        self.membership_before = slots_of(&before, &self.membership);
        let mut reshape = Reshape::new(of, before);
        // The position may be recorded in the freshest superblock only, so an update records it in
        // all.
        reshape.begins = (!self.membership.read_only).then(|| self.want_update());
        self.reshape = Some(Box::new(reshape));
        self.recount();
    }

    pub(crate) fn is_reshaping(&self) -> bool {
        self.reshape.is_some()
    }

    /// Whether the array is being reshaped to the shape `to`.
    pub(crate) fn is_reshaping_to(&self, to: ArrayShape) -> bool {
        let Some(after) = self.reshape.as_ref().map(|reshape| &reshape.after) else {
            return false;
        };
        to.raid_disks.is_none_or(|slots| slots == after.members())
            && to.layout.is_none_or(|layout| layout == after.layout())
            && to.chunk.is_none_or(|chunk| chunk == after.chunk())
    }

    /// Whether the array is being reshaped or resized.
    #[inline]
    pub(crate) fn is_growing(&self) -> bool {
        self.reshape.is_some() || self.is_resizing()
    }

    /// The reshape under way. Panics if there is none.
    pub(crate) fn reshape(&self) -> &Reshape {
        self.reshape.as_ref().expect("the array is being reshaped")
    }

    /// Data sector, in the geometry after, at which the reshape goes on; `None` if there is nothing
    /// to copy, or if the beginning of the reshape is not recorded yet.
    pub(crate) fn reshape_from(&self) -> Option<Sectors> {
        let reshape = self.reshape.as_ref().filter(|_| !self.reshape_begins())?;
        let copied = Sectors(reshape.copied.0 / u64::from(reshape.after.data_members()));
        (reshape.copied < reshape.end()).then_some(copied)
    }

    pub(crate) fn reshape_snapshot(&self) -> Option<ReshapeSnapshot> {
        let reshape = self.reshape.as_ref()?;
        Some(ReshapeSnapshot {
            from: reshape.before.members(),
            to: reshape.after.members(),
            layout: reshape.after.layout(),
            chunk: reshape.after.chunk().bytes(),
            position: reshape.recorded,
            end: reshape.end(),
        })
    }

    /// Whether the beginning of the reshape is not recorded yet.
    pub(crate) fn reshape_begins(&self) -> bool {
        let begins = self.reshape.as_ref().and_then(|reshape| reshape.begins);
        begins.is_some_and(|number| !self.update_done(number))
    }

    /// Whether superblocks record that all of the array has the geometry after the reshape.
    pub(crate) fn is_reshaped(&self) -> bool {
        self.reshape
            .as_ref()
            .is_some_and(|reshape| reshape.recorded == reshape.end() && !self.membership.read_only)
    }

    /// Exchanges the memberships of the two geometries, so that `membership` is that of the other
    /// geometry.
    pub(crate) fn swap_memberships(&mut self) {
        self.membership_before.follow(&self.membership);
        std::mem::swap(&mut self.membership, &mut self.membership_before);
    }

    /// Recomputes the membership of the geometry before the reshape, after the states of members
    /// changed.
    pub(super) fn recount_before(&mut self) {
        let Some(reshape) = &self.reshape else { return };
        self.membership_before.recount(&self.members);
        for member in &self.members {
            let Some(slot) = member.slot else { continue };
            if slot.0 < reshape.before.members() && !member.bad.blocks().is_empty() {
                let below = member.shift(Side::Before);
                self.membership_before.set_bad(slot, &member.bad.blocks().moved_down(below));
            }
        }
        self.membership_before.follow(&self.membership);
    }

    /// Range of the resync space ([`Layout::resync_size`]) that a write of the array range `range`
    /// changes.
    pub(super) fn resync_range(&self, range: ByteRange) -> SectorRange {
        match (&self.reshape, &self.layout) {
            (Some(reshape), _) => reshape.resync_range(range),
            (None, Some(layout)) => layout.resync_range(range),
            (None, None) => SectorRange::new(0, 0),
        }
    }

    // Positions.

    /// Notes that every data sector below `sector` is copied to its place in the geometry after.
    pub(crate) fn reshaped_to(&mut self, sector: Sectors) {
        if let Some(reshape) = &mut self.reshape
            && !reshape.forgotten
        {
            let position = Sectors(sector.0 * u64::from(reshape.after.data_members()));
            reshape.copied = reshape.copied.max(position);
        }
    }

    /// Whether the copies of the array sectors below `end` may be written: the writes overwrite no
    /// sector that a restart at the position in the superblocks would read.
    pub(crate) fn may_copy_to(&self, end: Sectors) -> bool {
        let reshape = self.reshape();
        let Reshape { before, after, recorded, .. } = reshape;
        let read_from = reshape.read_from(*recorded).0;
        let written_to = full_stripes(after, end);
        let slots = self.members.iter().filter(|member| member.slot.is_some());
        let mut shifts = slots.map(|member| member.shift(Side::Before));
        if self.update_waits_for_corrections() {
            // A correction in flight cannot be told from a copy, so copies wait until it is
            // durable.
            return false;
        }
        // Sectors past the end of the array in the geometry before are not read.
        *recorded >= before.array_size()
            || shifts.all(|shift| written_to <= read_from + shift.0)
            || self.is_planted(Mutant::ReshapeOverSource)
    }

    /// Discards the copies past the recorded position, unless a newer position is being recorded.
    /// Returns whether the copies were discarded.
    pub(crate) fn forget_copied(&mut self) -> bool {
        let Some(reshape) = &mut self.reshape else { return false };
        let may = !reshape.flushing && reshape.durable == reshape.recorded;
        if may {
            reshape.copied = reshape.recorded;
            reshape.forgotten = true;
        }
        may
    }

    /// Notes that the copy begins again at the position that [`Array::reshape_from`] returns.
    pub(crate) fn reshape_goes_on(&mut self) {
        if let Some(reshape) = &mut self.reshape {
            reshape.forgotten = false;
        }
    }

    /// Requests that superblocks record how far the array is copied, after a flush.
    pub(crate) fn record_reshape(&mut self) {
        let planted = self.is_planted(Mutant::ReshapeNotFlushed);
        let sealed = self.membership.read_only || self.membership.broken;
        let Some(reshape) = &mut self.reshape else { return };
        if reshape.copied == reshape.durable || reshape.flushing || sealed {
            return;
        }
        if planted {
            reshape.durable = reshape.copied;
            self.want_update();
            return;
        }
        reshape.flushing = true;
        self.flushes.arrive(FlushFor::Reshape(reshape.copied));
    }

    /// Handles the end of the flush for the position `copied`. If the flush succeeded
    /// (`is_durable`), requests a superblock update that records the position.
    pub(super) fn reshape_flushed(&mut self, copied: Sectors, is_durable: bool) {
        let Some(reshape) = &mut self.reshape else { return };
        reshape.flushing = false;
        if is_durable {
            reshape.durable = reshape.durable.max(copied);
            self.want_update();
        }
    }

    /// Fixes the position that the superblocks of the update that starts now will record.
    pub(super) fn reshape_update_starts(&mut self) {
        if let Some(reshape) = &mut self.reshape {
            reshape.sent = reshape.durable;
        }
    }

    /// Position for a superblock that is written now; `None` without a reshape.
    pub(super) fn reshape_position(&self) -> Option<Sectors> {
        self.reshape.as_ref().map(|reshape| reshape.sent)
    }

    pub(super) fn reshape_update_done(&mut self) {
        if let Some(reshape) = &mut self.reshape {
            reshape.recorded = reshape.sent;
        }
    }

    // Begin and end.

    /// Geometry of the array, and the geometry with the shape `to` to which it can be reshaped.
    ///
    /// # Errors
    /// The reason why the array cannot be reshaped, with the value that was found and the one
    /// expected.
    pub(crate) fn can_reshape(&self, to: ArrayShape) -> Result<(Geometry, Geometry), ReplyError> {
        let refused = |text: String| Err(ReplyError::Refused(text));
        if self.membership.read_only || self.membership.broken {
            return Err(ReplyError::ReadOnly);
        }
        if self.is_growing() || !self.update_done(self.reshape_ended) {
            return Err(ReplyError::Busy("the array is being reshaped or resized; try again"));
        }
        let Some(before) = self.layout.as_ref().and_then(Layout::parity) else {
            return refused("found an array without parity, which is not reshaped".to_owned());
        };
        self.has_superblocks("raid-devices")?;
        let (found, slots) = (before.members(), to.raid_disks.unwrap_or(before.members()));
        let after = after_of(before, to)?;
        let sizes = self.members.iter().filter_map(Member::superblock_if_any);
        if let Some(size) = sizes.map(Superblock::size).find(|it| *it != before.member_size()) {
            return refused(format!(
                "superblock size: found {size}, expected {}, whole chunks",
                before.member_size()
            ));
        }
        if slots < found || after == *before {
            return refused(format!(
                "raid-devices: found {slots}, expected more than {found}, or another chunk or \
                 layout; an array does not shrink"
            ));
        }
        self.bitmap_stays()?;
        let whole = self.membership.is_whole() && self.membership.with_bad().is_empty();
        if !whole || self.membership.resync_from.is_some() || self.is_replacing() {
            return refused(
                "found an array that misses data or parity, expected every member in sync and \
                 without bad blocks; weft status says what is missing"
                    .to_owned(),
            );
        }
        if !self.to_replace.is_empty() {
            return Err(ReplyError::Busy("a member is to be replaced"));
        }
        let spares = self.members.iter().filter(|member| member.may_take_slot()).count();
        let wanted = usize::from(slots - found);
        if spares < wanted {
            return refused(format!(
                "raid-devices: found {spares} spares, expected {wanted}; weft add TARGET DEVICE… \
                 adds them"
            ));
        }
        let least = self.distance(before, &after);
        if i32::try_from(least.0).is_err() {
            return refused(format!("raid-devices: data would have to move by {least}"));
        }
        let mut members = self.members.iter().filter(|member| !member.is_faulty());
        members.try_for_each(|member| self.can_move(member, before.member_size(), least))?;
        Ok((before.clone(), after))
    }

    /// Distance by which the data of each member moves down. An array that keeps its number of
    /// members moves further than the smallest distance, where there is room: a position has to be
    /// recorded each time that this distance is copied.
    ///
    /// Source   md-reshape.md §5 (mdadm: the middle of the room)
    fn distance(&self, before: &Geometry, after: &Geometry) -> Sectors {
        let least = distance_min(before, after);
        if after.members() > before.members() {
            return least;
        }
        let members = self.members.iter().filter(|member| !member.is_faulty());
        let room = members.map(|member| self.room_of(member)).min().unwrap_or_default();
        Sectors(room.0 / 2).round_down(least).clamp(least, Sectors(least.0 * DISTANCE_MAX))
    }

    /// Number of free sectors before the data of a member, past the superblock and the bitmap.
    fn room_of(&self, member: &Member) -> Sectors {
        let bitmap_end = member.bitmap_start.zip(self.bitmap.as_ref());
        let bitmap_end = bitmap_end.map(|(start, bitmap)| bitmap.end_from(start));
        member.superblock().room_before_data(bitmap_end)
    }

    /// Checks that the `size` data sectors of a member can move down by `least` sectors; the error
    /// says why they cannot.
    fn can_move(&self, member: &Member, size: Sectors, least: Sectors) -> Result<(), ReplyError> {
        let refused = |text: String| Err(ReplyError::Refused(text));
        let label = &member.info.label;
        let superblock = member.superblock();
        if superblock.as_v1().is_none() {
            return refused(format!(
                "{label}: superblock version: found 0.90, expected 1.x: only that can record \
                 that data moves; mdadm --grow --backup-file does it"
            ));
        }
        let end = superblock.data_offset().checked_add(size);
        if end.is_none_or(|end| end > member.info.size) {
            return refused(format!(
                "{label}: superblock data_offset {}: found a member of {}, expected one that has \
                 {size} behind it",
                superblock.data_offset(),
                member.info.size
            ));
        }
        let room = self.room_of(member);
        if room < least {
            return refused(format!(
                "{label}: superblock data_offset {}: found {room} free before the data, expected \
                 {least}, by which the data moves; mdadm --grow --backup-file does without",
                superblock.data_offset()
            ));
        }
        let block = weft_units::Bytes(member.info.logical_block.into());
        if !least.bytes().0.is_multiple_of(block.0) {
            return refused(format!(
                "{label}: found logical blocks of {block}, by which data cannot move {least}"
            ));
        }
        Ok(())
    }

    /// Begins the reshape to `after`, which [`Array::can_reshape`] returned: spares take the new
    /// slots, and superblocks record the reshape. Returns the geometry before.
    pub(crate) fn begin_reshape(&mut self, after: &Geometry) -> Geometry {
        let before = self.layout.as_ref().and_then(Layout::parity).cloned();
        let before = before.expect("only levels with parity are reshaped");
        let down = self.distance(&before, after);
        let to = weft_ondisk::Reshape {
            new_level: after.level().code(),
            position: 0,
            delta_disks: i32::from(after.members()) - i32::from(before.members()),
            new_layout: after.layout(),
            new_chunk: after.chunk(),
            new_offset: -i32::try_from(down.0).expect("it was checked"),
        };
        for slot in before.members()..after.members() {
            let spare = self.members.iter().position(Member::may_take_slot);
            let position = spare.expect("there are enough spares");
            let member = &mut self.members[position];
            (member.state, member.slot) = (MemberState::InSync, Some(Slot(slot)));
            member.lacks_bitmap = self.bitmap.is_some();
            member.follows_bitmap = false;
            let number = member.number;
            self.slots.push(Some(position));
            set_role(&mut self.roles, number, Role::Active(Slot(slot)));
        }
        for member in self.members.iter_mut().filter(|member| !member.is_faulty()) {
            member.superblock_mut().begin_reshape(to);
            member.begin_moving();
        }
        self.membership = slots_of(after, &self.membership);
        let position = Sectors::ZERO;
        let of = Reshaping { after: after.clone(), position, held: false };
        self.membership_before = slots_of(&before, &self.membership);
        self.reshape = Some(Box::new(Reshape::new(&of, before.clone())));
        if let Some(bitmap) = &mut self.bitmap {
            bitmap.members_changed();
        }
        self.recount();
        let number = self.want_update();
        self.reshape.as_mut().expect("it was just set").begins = Some(number);
        before
    }

    /// Ends the reshape. The geometry after the reshape becomes the geometry of the array, and is
    /// returned.
    pub(crate) fn end_reshape(&mut self) -> Geometry {
        assert!(self.is_reshaped(), "all of the array has the geometry after the reshape");
        let reshape = self.reshape.take().expect("the array is being reshaped");
        let layout = Layout::Parity(reshape.after.clone());
        for member in &mut self.members {
            member.superblock_mut().end_reshape();
            member.end_moving();
        }
        (self.size, self.member_size) = (layout.array_size(), layout.member_size());
        // `resync_from` is a data sector of the geometry before, which has no meaning in the
        // geometry after the reshape. Therefore all parity counts as possibly wrong.
        if self.membership.resync_from.is_some() {
            self.membership.resync_from = Some(Sectors::ZERO);
        }
        if let Some(bitmap) = &mut self.bitmap {
            bitmap.set_layout(layout.clone());
        }
        self.layout = Some(layout);
        self.recount();
        self.reshape_ended = self.want_update();
        reshape.after
    }
}

/// Upper bound of the distance by which data moves, as a multiple of [`distance_min`].
const DISTANCE_MAX: u64 = 64;

/// Largest number of units that are copied before their position is recorded. A waiting client, or
/// a copy to sectors that a restart would read, requires the position earlier.
pub(crate) const UNRECORDED_MAX: u64 = 64;
