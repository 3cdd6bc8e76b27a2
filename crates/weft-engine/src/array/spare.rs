//! Spares: how members are added, take an empty slot, and are removed, and how former members
//! return.
//!
//! A returning member has all data that was written before it left. If the write-intent bitmap
//! records every later write, the member takes its slot at once, and only the recorded chunks are
//! copied.
//!
//! Source   md-raid.md §6.3, md-ondisk.md §1.4 (md: `add_new_disk`, `remove_and_add_spares`)

use weft_ondisk::{Features, Role, Superblock};
use weft_units::{Bytes, Sectors, Slot};

use super::write_intent::bitmap_change::room_for_bitmap;
use super::{Array, set_role};
use crate::array::bad_blocks::BadLog;
use crate::array::member::Member;
use crate::contract::error::ReplyError;
use crate::contract::input::Former;
use crate::contract::member::{MemberInfo, MemberState};
use crate::mutant::Mutant;

impl Array {
    /// Removes a failed member or a spare from the array. The error says that the member is in use,
    /// or that its requests or the record of its failure are outstanding.
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
        let (number, index) = (member.number as usize, member.info.index);
        self.forget_to_replace(index);
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

    /// Adds a new member as a spare, with a new superblock. The error says why the array takes no
    /// member now, or why the device does not fit.
    pub(crate) fn add(
        &mut self,
        info: MemberInfo,
        device_uuid: weft_ondisk::Uuid,
    ) -> Result<(), ReplyError> {
        self.may_join(&info)?;
        if !self.membership.is_redundant {
            return Err(ReplyError::Refused(format!(
                "{}: found an array without redundancy, expected mirrors or parity; nothing could be \
                 rebuilt on a spare",
                info.label
            )));
        }
        let template = self
            .members
            .iter()
            .find(|member| !member.is_faulty())
            .ok_or(ReplyError::Io)?
            .superblock()
            .clone();
        let spare = |number: u32| self.roles[number as usize] == Role::Spare;
        let number = self.free_number(None, spare)?;
        let block = Bytes(info.logical_block.into());
        if !self.serves_blocks(block) {
            return Err(ReplyError::Refused(format!(
                "{}: found logical blocks of {block}, expected at most {}, by which clients write; \
                 use a member with smaller blocks",
                info.label, self.request_unit
            )));
        }
        let superblock = spare_superblock(&template, &info, number, device_uuid)?;
        if let Some(bitmap) = &self.bitmap {
            room_for_bitmap(&superblock, &info, bitmap)?;
        }
        let (state, size) = (MemberState::Spare, self.member_size);
        let mut member = Member::new(info, Some(superblock), None, state, size);
        member.number = number;
        member.superblock_is_old = true;
        if self.bitmap.is_some() {
            member.needs_bitmap();
        }
        self.members.push(member);
        self.index_members();
        self.want_update();
        Ok(())
    }

    /// Checks that a member may join the array now, and that the index of `info` is free; the error
    /// says why not.
    fn may_join(&self, info: &MemberInfo) -> Result<(), ReplyError> {
        if self.membership.read_only || self.membership.broken {
            return Err(ReplyError::ReadOnly);
        }
        self.has_superblocks(&info.label)?;
        if self.position_of(info.index).is_some() {
            return Err(ReplyError::Invalid("the member index is taken"));
        }
        self.bitmap_stays()
    }

    /// Checks that the array has superblocks, in which a change can be recorded; otherwise the
    /// error says that it has none. `what` names the change in the error.
    pub(super) fn has_superblocks(&self, what: &str) -> Result<(), ReplyError> {
        if !self.is_built {
            return Ok(());
        }
        Err(ReplyError::Refused(format!(
            "{what}: found an array with its geometry given by hand, expected one with superblocks, \
             which would record the change; copy the content to a new array"
        )))
    }

    /// Number for a member that joins: its former number if that is free, otherwise, as in md, the
    /// first free number after those of the slots. Thus a removed member that returns is not
    /// confused with the member that replaced it. An error if no number is free.
    fn free_number(
        &self,
        former: Option<u32>,
        role_is_free: impl Fn(u32) -> bool,
    ) -> Result<u32, ReplyError> {
        let (slots, roles) = (self.slots.len() as u32, self.roles.len() as u32);
        let taken = |number: u32| self.members.iter().any(|member| member.number == number);
        let mut numbers = former.into_iter().chain(slots..roles).chain(0..slots);
        numbers
            .find(|&number| number < roles && role_is_free(number) && !taken(number))
            .ok_or(ReplyError::Invalid("the role table of the superblock is full"))
    }

    /// Whether a device with logical blocks of this size can be a member, because every request
    /// that clients may send is aligned to such blocks.
    fn serves_blocks(&self, block: Bytes) -> bool {
        self.request_unit <= Bytes(1) || block <= self.request_unit
    }

    /// Takes a former member back into its slot, and starts to copy the chunks that have their bit
    /// set.
    ///
    /// # Errors
    /// The bitmap does not record everything that the member misses, or the device is not
    /// a former member.
    ///
    /// Source   md-ondisk.md §3.5 (md: `super_1_validate` of a member for a running array)
    pub(crate) fn re_add(&mut self, info: MemberInfo, former: &Former) -> Result<(), ReplyError> {
        self.may_join(&info)?;
        let Former { superblock, bad_blocks } = former;
        let slot = self.slot_to_re_add(&info, superblock).map_err(|why| {
            let label = &info.label;
            ReplyError::Refused(format!("{label}: {why}; weft add copies all of it"))
        })?;
        let inactive = |number: u32| !matches!(self.roles[number as usize], Role::Active(_));
        let number = self.free_number(Some(superblock.dev_number()), inactive)?;
        let mut superblock = superblock.clone();
        superblock.set_dev_number(number);
        let state = MemberState::Rebuilding { recovery_offset: Sectors::ZERO };
        let size = self.member_size;
        let mut member = Member::new(info, Some(superblock), Some(slot), state, size);
        member.number = number;
        member.superblock_is_old = true;
        // The bitmap does not record the bad blocks that the member had when it left.
        member.bad = BadLog::new(bad_blocks.clone(), !bad_blocks.is_empty());
        member.needs_bitmap();
        member.follows_bitmap = true;
        self.slots[slot.index()] = Some(self.members.len());
        self.roles[number as usize] = Role::Active(slot);
        self.members.push(member);
        if let Some(bitmap) = &mut self.bitmap {
            bitmap.members_changed();
        }
        self.index_members();
        self.recount();
        self.want_update();
        Ok(())
    }

    /// Slot to which the former member with `superblock` returns, or the reason why it cannot.
    fn slot_to_re_add(&self, info: &MemberInfo, superblock: &Superblock) -> Result<Slot, String> {
        let Some(bitmap) = &self.bitmap else {
            return Err("the array has no bitmap, which would say what it misses".to_owned());
        };
        let in_sync = || self.members.iter().filter(|it| it.state == MemberState::InSync);
        let Some(other) = in_sync().next() else {
            return Err("found no member in sync".to_owned());
        };
        let (found, expected) = (superblock.set_uuid(), other.superblock().set_uuid());
        if found != expected {
            return Err(format!("superblock set_uuid: found {found}, expected {expected}"));
        }
        other.superblock().same_array(superblock)?;
        let slot = match superblock.own_role() {
            Ok(Role::Active(slot)) => slot,
            Ok(_) | Err(_) => return Err("its superblock gives it no slot".to_owned()),
        };
        if self.slots.get(slot.index()) != Some(&None) {
            return Err(format!("slot {} is not empty", slot.0));
        }
        let features = superblock.features();
        if features.contains(Features::RECOVERY) && !features.contains(Features::RECOVERY_BITMAP) {
            return Err("it was being rebuilt when it left".to_owned());
        }
        if let Some(reason) = superblock.refuses_writing().first() {
            return Err(format!("superblock {}: found {}", reason.name, reason.what));
        }
        let (found, events) = (superblock.events(), self.events);
        let since = bitmap.events_cleared();
        if found > events {
            return Err(format!(
                "events: found {found}, expected at most {events}: it was used since"
            ));
        }
        if found < since && !self.is_planted(Mutant::ReaddOfTooOld) {
            return Err(format!(
                "events: found {found}, expected at least {since}: bits were cleared since it left"
            ));
        }
        // A member that was used on its own since then has recorded all members of this array as
        // failed.
        let knows = |member: &Member| {
            member.slot.is_some_and(|slot| superblock.role(member.number) == Ok(Role::Active(slot)))
        };
        if !in_sync().any(knows) {
            return Err("its superblock knows none of the members that are here".to_owned());
        }
        room_for_bitmap(superblock, info, bitmap).map_err(|error| error.to_string())?;
        let end = superblock.data_offset() + self.member_size;
        let block = Bytes(info.logical_block.into());
        let on_blocks = superblock.data_offset().bytes().0.is_multiple_of(block.0);
        if end > info.size || !on_blocks || !self.serves_blocks(block) {
            return Err(format!(
                "superblock data_offset {}: found a member of {} with blocks of {} bytes, which it \
                 does not fit",
                superblock.data_offset(),
                info.size,
                info.logical_block
            ));
        }
        Ok(slot)
    }

    /// Makes spares the members of empty slots, as long as there are spares. Returns whether a slot
    /// was filled.
    pub(crate) fn fill_slots(&mut self) -> bool {
        let sealed = self.membership.read_only || self.membership.broken;
        assert!(!sealed, "the slots of an array that takes no writes stay as they are");
        let mut filled = false;
        for slot in 0..self.slots.len() {
            if self.slots[slot].is_some() {
                continue;
            }
            let is_kept = |it: &Member| self.is_named(it.info.index);
            let spares = || (0..self.members.len()).filter(|it| self.members[*it].may_take_slot());
            let spare = spares().min_by_key(|it| is_kept(&self.members[*it]));
            let Some(position) = spare else { break };
            self.forget_to_replace(self.members[position].info.index);
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
            member.follows_bitmap = false;
            let number = member.number;
            self.slots[slot] = Some(position);
            set_role(&mut self.roles, number, Role::Active(Slot(slot as u16)));
            filled = true;
        }
        if filled {
            if let Some(bitmap) = &mut self.bitmap {
                bitmap.members_changed();
            }
            self.recount();
            self.want_update();
        }
        filled
    }

    /// Whether a slot is empty and a spare may take it.
    ///
    /// The failure is recorded first, in an update of its own, as in md (`md_check_recovery` writes
    /// superblocks before `remove_and_add_spares`). In superblocks of version 0.90 the failed
    /// member and the spare have the same number, that of the slot. The failed member is then
    /// recognized only by an update count that is behind by more than one, because a crash may cut
    /// off the last update. A spare is also recorded as a spare before it takes a slot: until then
    /// its superblock may claim another slot, and a restart or `re-add` would believe that claim
    /// while the data of this slot is being written.
    pub(crate) fn can_fill_slots(&self) -> bool {
        self.failures_recorded()
            && self.slots.contains(&None)
            && self.members.iter().any(Member::may_take_slot)
    }
}

/// Superblock for a new spare, derived from `template`, the superblock of another member. The error
/// says why the device does not fit.
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
