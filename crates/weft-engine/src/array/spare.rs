//! Spares: members that are added, take an empty slot, and are removed.
//!
//! Source   md-raid.md §6.3, md-ondisk.md §1.4 (md: `add_new_disk`, `remove_and_add_spares`)

use weft_ondisk::{Bitmap, Role, Superblock};
use weft_units::{Bytes, Sectors, Slot};

use super::Array;
use crate::array::member::Member;
use crate::contract::error::ReplyError;
use crate::contract::member::{MemberInfo, MemberState};
use crate::mutant::Mutant;

impl Array {
    /// Forgets a member that failed, or a spare.
    pub(crate) fn remove(&mut self, position: usize) -> Result<(), ReplyError> {
        let member = &self.members[position];
        match member.state {
            MemberState::Faulty | MemberState::Spare => {}
            MemberState::InSync | MemberState::Rebuilding { .. } => {
                return Err(ReplyError::Busy("the member is in use; fail it first"));
            }
        }
        if member.in_flight > 0 || !(self.failures_recorded() || self.membership.broken) {
            return Err(ReplyError::Busy("requests of the member are outstanding; try again"));
        }
        let number = member.number as usize;
        if let Some(role) = self.roles.get_mut(number)
            && !self.membership.broken
        {
            *role = Role::Spare;
            if !self.membership.read_only {
                self.want_update();
            }
        }
        assert!(!self.slots.contains(&Some(position)), "a member in a slot is not removed");
        self.members.remove(position);
        self.index_members();
        for slot in self.slots.iter_mut().flatten() {
            *slot -= usize::from(*slot > position);
        }
        Ok(())
    }

    /// Takes in a new member as a spare.
    pub(crate) fn add(
        &mut self,
        info: MemberInfo,
        device_uuid: weft_ondisk::Uuid,
    ) -> Result<(), ReplyError> {
        if self.membership.read_only || self.membership.broken {
            return Err(ReplyError::ReadOnly);
        }
        if self.position_of(info.index).is_some() {
            return Err(ReplyError::Invalid("the member index is taken"));
        }
        let template = self
            .members
            .iter()
            .find(|member| !member.is_faulty())
            .ok_or(ReplyError::Io)?
            .superblock()
            .clone();
        let taken: Vec<u32> = self.members.iter().map(|member| member.number).collect();
        // As md: the first one past those of the slots. So a member that was removed and comes back
        // is not mistaken for the one that took its place.
        let free = |number: &u32| {
            self.roles.get(*number as usize) == Some(&Role::Spare) && !taken.contains(number)
        };
        let slots = self.slots.len() as u32;
        let number = (slots..self.roles.len() as u32)
            .chain(0..slots)
            .find(free)
            .ok_or(ReplyError::Invalid("the role table of the superblock is full"))?;
        let superblock = spare_superblock(&template, &info, number, device_uuid)?;
        if let Some(bitmap) = &self.bitmap {
            room_for_bitmap(&superblock, &info, bitmap)?;
        }
        let mut member = Member::new(info, Some(superblock), None, MemberState::Spare);
        member.number = number;
        member.lacks_bitmap = self.bitmap.is_some();
        self.members.push(member);
        self.index_members();
        self.want_update();
        Ok(())
    }

    /// Gives each empty slot a spare, if there is one. Whether it did.
    pub(crate) fn fill_slots(&mut self) -> bool {
        let sealed = self.membership.read_only || self.membership.broken;
        assert!(!sealed, "the slots of an array that takes no writes stay as they are");
        let mut filled = false;
        for slot in 0..self.slots.len() {
            if self.slots[slot].is_some() {
                continue;
            }
            let spare = self.members.iter().position(|member| member.state == MemberState::Spare);
            let Some(position) = spare else { break };
            let stale = self.is_planted(Mutant::StaleMemberAfterAdd);
            let member = &mut self.members[position];
            member.state = if stale {
                MemberState::InSync
            } else {
                MemberState::Rebuilding { recovery_offset: Sectors::ZERO }
            };
            let before = member.slot.replace(Slot(slot as u16));
            assert!(before.is_none(), "a spare has no slot");
            member.lacks_bitmap = self.bitmap.is_some();
            let number = member.number as usize;
            self.slots[slot] = Some(position);
            if self.roles.len() <= number {
                self.roles.resize(number + 1, Role::Spare);
            }
            self.roles[number] = Role::Active(Slot(slot as u16));
            filled = true;
        }
        if filled {
            self.recount();
            self.want_update();
        }
        filled
    }

    /// Whether a slot is empty and a spare is there.
    pub(crate) fn can_fill_slots(&self) -> bool {
        self.slots.contains(&None)
            && self.members.iter().any(|member| member.state == MemberState::Spare)
    }
}

/// The superblock of a new spare, after that of a member.
fn spare_superblock(
    template: &Superblock,
    info: &MemberInfo,
    number: u32,
    device_uuid: weft_ondisk::Uuid,
) -> Result<Superblock, ReplyError> {
    let data_offset = template.data_offset();
    if !data_offset.bytes().0.is_multiple_of(u64::from(info.logical_block)) {
        return Err(ReplyError::Refused(format!(
            "{}: found logical blocks of {} bytes, which data_offset {data_offset} does not fit; use \
             a member with smaller blocks",
            info.label, info.logical_block
        )));
    }
    template
        .of_spare(info.size, number, device_uuid)
        .map_err(|error| ReplyError::Refused(format!("{}: {error}", info.label)))
}

/// Whether a new member has room for the bitmap that the others have.
fn room_for_bitmap(
    superblock: &Superblock,
    info: &MemberInfo,
    bitmap: &Bitmap,
) -> Result<(), ReplyError> {
    let label = &info.label;
    let needed = Bytes(bitmap.of_new_member(info.logical_block).len() as u64).sectors_floor();
    match superblock.bitmap_room(info.size) {
        Ok(Some(room)) if room.len >= needed => Ok(()),
        Ok(room) => Err(ReplyError::Refused(format!(
            "{label}: found {} for the bitmap, expected at least {needed}; use a larger member",
            room.map_or(Sectors::ZERO, |room| room.len)
        ))),
        Err(error) => Err(ReplyError::Refused(format!("{label}: {error}; use a larger member"))),
    }
}
