//! Resize: a change of the array's size, or of its number of mirrors, which moves no data.
//!
//! One superblock update records the change, and the array has its new layout once every member has
//! recorded it. Until then the added part holds no data, so that a crash in the middle may leave
//! either layout. The added part is resynced, and its bits are set in the bitmap, which is written
//! before the superblocks.
//!
//! A mirror that is removed must have no member any more. The slots behind it move up.
//!
//! Source   md-reshape.md §8 (md: `update_size`, `raid1_reshape`)

use weft_ondisk::Role;
use weft_units::{Sectors, Slot};

use super::write_intent::bitmap_change::room_with_layout;
use super::{Array, set_role};
use crate::array::member::Member;
use crate::array::membership::Membership;
use crate::contract::error::ReplyError;
use crate::contract::input::ArrayShape;
use crate::contract::snapshot::LayoutSnapshot;
use crate::layout::Layout;
use crate::mutant::Mutant;

/// Change of the layout that moves no data.
#[derive(Clone, Debug)]
pub(super) struct Resize {
    after: Layout,
    /// Number of the superblock update that records the change.
    update: u64,
    /// Whether the superblock update that records the change has begun.
    begun: bool,
    /// First added sector of the resync space ([`Layout::resync_size`]); everything from there on
    /// has to be resynced. `None` if nothing is added.
    added: Option<Sectors>,
}

impl Array {
    /// Whether the size or the number of slots is being changed; members must not change meanwhile.
    pub(crate) fn is_resizing(&self) -> bool {
        self.resize.is_some()
    }

    /// Whether all members record the change, so that the array can be used with its new layout.
    pub(crate) fn is_resize_recorded(&self) -> bool {
        let resize = self.resize.as_ref();
        let is_recorded = |resize: &Resize| {
            let early = resize.begun && self.is_planted(Mutant::ResizeNotRecorded);
            self.update_done(resize.update) || early
        };
        resize.is_some_and(|resize| is_recorded(resize)) && !self.membership.broken
    }

    pub(crate) fn layout_snapshot(&self) -> Option<LayoutSnapshot> {
        self.layout.as_ref().map(|layout| LayoutSnapshot {
            level: layout.level(),
            number: layout.number(),
            chunk: layout.chunk().bytes(),
            member_size: layout.member_size().bytes(),
        })
    }

    /// Begins to use `size` data sectors of each member; `None`: as many as every member has room
    /// for. Returns `false` if the array uses as many already.
    ///
    /// # Errors
    /// The reason why the array cannot grow, with what was found and what was expected.
    pub(crate) fn grow_size(&mut self, size: Option<Sectors>) -> Result<bool, ReplyError> {
        let layout = self.resizable("size")?;
        let room = |member: &&Member| member.superblock().data_room(member.info.size);
        let here = || self.members.iter().filter(|member| !member.is_faulty());
        let Some(least) = here().min_by_key(room) else { return Err(ReplyError::Io) };
        let most = room(&least);
        let at_least = if size.is_none() { layout.member_size() } else { Sectors::ZERO };
        let size = size.unwrap_or(most);
        if size > most {
            return refused(format!(
                "{}: found room for {most} of data, expected {size}{}",
                least.info.label,
                if here().any(|member| room(&member) > most) {
                    "; the others have more"
                } else {
                    ""
                }
            ));
        }
        let after =
            self.layout_with(u32::from(layout.members()), size.round_down(UNIT).max(at_least))?;
        if after.member_size() < layout.member_size() {
            let (found, expected) = (after.member_size(), layout.member_size());
            return refused(format!(
                "size: found {found}, expected at least {expected}: an array does not shrink"
            ));
        }
        if after.member_size() == layout.member_size() {
            return Ok(false);
        }
        if !self.membership.is_whole() || self.membership.resync_from.is_some() {
            return refused(
                "size: found an array that misses data or parity, expected every member in sync; \
                 weft status says what is missing",
            );
        }
        if let (Layout::Mirrors(before), Layout::Mirrors(after)) = (&layout, &after)
            && !before.is_beginning_of(after)
        {
            return refused("size: found far copies, which would have to move");
        }
        for member in here() {
            self.has_room_for(member, &after)?;
        }
        self.begin_resize(after);
        Ok(true)
    }

    /// Begins to change the number of slots of an array of mirrors. Returns `None` if the array is
    /// not RAID 1, and `false` if it has as many slots already.
    ///
    /// Units    `frames` is the number of frames that a sync can use
    /// # Errors
    /// The reason why the array cannot have this number of slots, with what was found and what was
    /// expected.
    pub(crate) fn set_mirrors(
        &mut self,
        to: ArrayShape,
        frames: u32,
    ) -> Option<Result<bool, ReplyError>> {
        let layout = self.layout.as_ref()?;
        layout.level().is_mirror().then(|| match to {
            ArrayShape { raid_disks: Some(slots), layout: None, chunk: None } => {
                self.change_mirrors(slots, frames)
            }
            _ => refused("found RAID 1, which has neither a layout nor chunks"),
        })
    }

    fn change_mirrors(&mut self, slots: u16, frames: u32) -> Result<bool, ReplyError> {
        let layout = self.resizable("raid-devices")?;
        if slots == layout.members() {
            return Ok(false);
        }
        if self.members.iter().any(|member| member.superblock().as_v1().is_none()) {
            return refused(
                "raid-devices: found superblocks of version 0.90, expected 1.x; mdadm --grow \
                 changes them",
            );
        }
        if slots < 2 {
            return refused(format!("raid-devices: found {slots}, expected at least 2"));
        }
        let occupied = self.membership.present().count();
        if u32::from(slots) < occupied {
            return refused(format!(
                "raid-devices: found {occupied} members in use, expected at most {slots}; weft \
                 fail and weft remove take one away"
            ));
        }
        let after = self.layout_with(slots.into(), layout.member_size())?;
        if matches!(&after, Layout::Mirrors(mirrors) if mirrors.resync_frames(1) > frames) {
            return refused(
                "stripe_cache_size: found too little memory to copy to as many members; start with \
                 a larger one",
            );
        }
        self.begin_resize(after);
        Ok(true)
    }

    /// Layout of the array if it can be resized now.
    ///
    /// # Errors
    /// The reason why the array cannot be resized now; `what` names the change in the message.
    fn resizable(&self, what: &str) -> Result<Layout, ReplyError> {
        if self.membership.read_only || self.membership.broken {
            return Err(ReplyError::ReadOnly);
        }
        self.has_superblocks(what)?;
        let layout = self.layout.as_ref();
        let Some(layout @ (Layout::Mirrors(_) | Layout::Parity(_))) = layout else {
            return refused(format!(
                "{what}: found an array without mirrors and parity, which has a fixed size"
            ));
        };
        self.bitmap_stays()?;
        if self.is_replacing() || !self.to_replace.is_empty() {
            return Err(ReplyError::Busy("a member is being replaced"));
        }
        if !self.missed_for_space.is_empty() {
            return Err(ReplyError::Busy("a member had no space for its data"));
        }
        Ok(layout.clone())
    }

    fn layout_with(&self, slots: u32, size: Sectors) -> Result<Layout, ReplyError> {
        let of = self.layout.as_ref().expect("an array with redundancy has a layout");
        Layout::new(of.level(), of.number(), slots, of.chunk(), size, &[])
            .map_err(|error| ReplyError::Refused(error.to_string()))
    }

    /// Checks that a member has room for the array's data and bitmap with the layout `after`; the
    /// error says what is missing.
    fn has_room_for(&self, member: &Member, after: &Layout) -> Result<(), ReplyError> {
        let info = &member.info;
        let mut superblock = member.superblock().clone();
        superblock.set_size(after.member_size(), info.size);
        if let Err(error) = superblock.validate(info.size) {
            return refused(format!("{}: {error}", info.label));
        }
        match &self.bitmap {
            Some(bitmap) => room_with_layout(&superblock, info, (bitmap, after)),
            None => Ok(()),
        }
    }

    fn begin_resize(&mut self, after: Layout) {
        let update = self.want_update();
        let size = self.layout.as_ref().map_or(Sectors::ZERO, Layout::resync_size);
        let grows = self.membership.is_redundant && size < after.resync_size();
        let added = Some(size).filter(|_| grows && !self.is_planted(Mutant::ResizeNotResynced));
        self.resize = Some(Box::new(Resize { after, update, begun: false, added }));
    }

    /// First sector of the resync space ([`Layout::resync_size`]) that superblocks record as still
    /// to be resynced, including the part that a resize adds; `None` if no resync is due.
    pub(super) fn resync_to_record(&self) -> Option<Sectors> {
        let resize = self.resize.as_ref().filter(|resize| resize.begun);
        let added = resize.and_then(|resize| resize.added);
        self.membership.resync_from.into_iter().chain(added).min()
    }

    /// If the superblock update that starts now is to record a resize, applies the resize to the
    /// superblocks and the bitmap.
    pub(super) fn resize_update_starts(&mut self) {
        let Some(resize) = self.resize.as_mut().filter(|resize| !resize.begun) else { return };
        resize.begun = true;
        let after = resize.after.clone();
        let before = self.layout.as_ref().expect("an array with redundancy has a layout");
        let slots = before.members();
        for member in self.members.iter_mut().filter(|member| !member.is_faulty()) {
            let member_size = member.info.size;
            let superblock = member.superblock_mut();
            if after.members() == slots {
                superblock.set_size(after.member_size(), member_size);
            } else {
                superblock.set_raid_disks(after.members().into());
            }
        }
        if after.members() < slots {
            let occupied = self.slots.iter().flatten();
            let numbers = occupied.map(|position| self.members[*position].number);
            let numbers: Vec<u32> = numbers.collect();
            for (number, slot) in numbers.into_iter().zip(0u16..) {
                set_role(&mut self.roles, number, Role::Active(Slot(slot)));
            }
        }
        if let Some(bitmap) = &mut self.bitmap {
            bitmap.grow(after);
        }
    }

    /// Makes the new layout the layout of the array, now that every member has recorded it, and
    /// returns it.
    pub(crate) fn end_resize(&mut self) -> Layout {
        assert!(self.is_resize_recorded(), "members record the layout before it is used");
        self.membership.resync_from = self.resync_to_record();
        let after = self.resize.take().expect("the array is being resized").after;
        if usize::from(after.members()) != self.slots.len() {
            self.take_slots(&after);
        }
        for member in self.members.iter_mut().filter(|member| !member.is_faulty()) {
            member.data_size = after.member_size();
        }
        (self.size, self.member_size) = (after.array_size(), after.member_size());
        self.layout = Some(after.clone());
        self.recount();
        after
    }

    /// Gives members the slots that they have with the layout `after`, according to their roles.
    fn take_slots(&mut self, after: &Layout) {
        let slots = usize::from(after.members());
        let mut membership = Membership::new(slots, after.tolerance(), false, None);
        membership.follow(&self.membership);
        self.membership = membership;
        self.slots = vec![None; slots];
        for (position, member) in self.members.iter_mut().enumerate() {
            if member.slot.is_none() {
                continue;
            }
            let role = self.roles.get(member.number as usize);
            let Some(Role::Active(slot)) = role else { panic!("a member with a slot has a role") };
            member.slot = Some(*slot);
            self.slots[slot.index()] = Some(position);
        }
    }
}

fn refused<T>(text: impl Into<String>) -> Result<T, ReplyError> {
    Err(ReplyError::Refused(text.into()))
}

/// Unit of the size of a member's data: the largest logical block, 4 KiB.
const UNIT: Sectors = Sectors(8);
