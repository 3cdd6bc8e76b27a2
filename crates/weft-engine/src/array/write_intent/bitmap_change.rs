//! Bitmap changes: how a bitmap is added to a running array, and how it is removed.
//!
//! A superblock update makes the change. Its header round and its superblock writes are ordered so
//! that the change is safe at every crash:
//!
//! - To add: every bit is set, or none if the array is whole and clean. The whole bitmap is written
//!   to every member, and then superblocks name it. A crash before that finds no bitmap, and all of
//!   a dirty array is resynced.
//! - To remove: superblocks that do not name the bitmap are written first, and bits are still set
//!   before data is written until the last of these superblocks is written. After that the bitmap
//!   stays in memory, unused, until the leases on its chunks are returned.
//!
//! Writes continue during the change. Writes that began before the bitmap existed hold no lease on
//! its chunks, so no bit is cleared until the last of these writes is done.
//!
//! Source   md's `update_array_info`, `location_store`; mdadm's `Grow_addbitmap`. Unlike md the
//!          array is not suspended

use weft_ondisk::{Bitmap, BitmapContext, NewBitmap, Superblock};
use weft_units::{Bytes, Sectors, Time};

use super::CleanState;
use super::bitmap::IntentBitmap;
use crate::array::Array;
use crate::array::member::Member;
use crate::contract::error::ReplyError;
use crate::contract::member::{MemberInfo, MemberState};
use crate::layout::Layout;

/// Addition or removal of the bitmap, which the next superblock update makes.
#[derive(Clone, Debug)]
pub(in crate::array) enum BitmapChange {
    Add {
        bitmap: Box<Bitmap>,
        /// Number of sectors from the superblock to the bitmap.
        offset: i32,
    },
    Remove,
}

impl Array {
    /// Whether the array has a bitmap, or one is being added or removed.
    pub(crate) fn has_bitmap(&self) -> bool {
        self.bitmap.is_some() || self.bitmap_change.is_some()
    }

    /// Checks that the bitmap is neither being added nor removed, because members must not change
    /// in the meantime; otherwise the error says that the array is busy.
    pub(in crate::array) fn bitmap_stays(&self) -> Result<(), ReplyError> {
        let leaves = self.bitmap.as_deref().is_some_and(IntentBitmap::is_leaving);
        if leaves || self.bitmap_change.is_some() {
            return Err(ReplyError::Busy("the bitmap is being added or removed; try again"));
        }
        Ok(())
    }

    /// Begins to add a bitmap. Returns `false` if the array has one already.
    ///
    /// # Errors
    /// The array has no redundancy, a member has no room, or another change is in progress.
    pub(crate) fn add_bitmap(&mut self, new: &NewBitmap) -> Result<bool, ReplyError> {
        self.may_change_bitmap()?;
        self.has_superblocks("bitmap")?;
        if self.bitmap.is_some() {
            return Ok(false);
        }
        if !self.membership.is_redundant {
            let why = "found an array without redundancy, expected mirrors or parity: it has \
                       nothing to resync, and so no use for a bitmap";
            return Err(ReplyError::Refused(why.to_owned()));
        }
        let here = || self.members.iter().filter(|member| !member.is_faulty());
        let room_of = |member: &&Member| NewBitmap::room_beside(member.superblock());
        let in_sync = here().find(|member| member.state == MemberState::InSync);
        let least = here().min_by_key(room_of);
        let (Some(template), Some(least)) = (in_sync, least) else { return Err(ReplyError::Io) };
        let template = template.superblock();
        let refused = |label: &str, why: &dyn std::fmt::Display| {
            ReplyError::Refused(format!("{label}: {why}"))
        };
        let (offset, bytes) = new
            .add_to(template, room_of(&least))
            .map_err(|error| refused(&least.info.label, &error))?;
        let context = BitmapContext {
            uuid: template.bitmap_uuid(),
            events: template.events(),
            sync_size: template.sync_size(),
            room: Bytes(bytes.len() as u64).sectors_ceil(),
            origin: None,
        };
        let bitmap =
            Bitmap::parse(&bytes, &context).map_err(|error| refused(&least.info.label, &error))?;
        let needed = Bytes(bitmap.encode().len() as u64);
        for member in here() {
            let mut superblock = member.superblock().clone();
            superblock.set_bitmap(Some(offset));
            has_room(&superblock, &member.info, needed)?;
        }
        self.bitmap_change = Some(BitmapChange::Add { bitmap: Box::new(bitmap), offset });
        self.want_update();
        Ok(true)
    }

    /// Begins to remove the bitmap. Returns `false` if the array has none.
    ///
    /// # Errors
    /// The array may not be written, or another change is in progress.
    pub(crate) fn remove_bitmap(&mut self) -> Result<bool, ReplyError> {
        self.may_change_bitmap()?;
        if self.bitmap.is_none() {
            return Ok(false);
        }
        self.bitmap_change = Some(BitmapChange::Remove);
        self.want_update();
        Ok(true)
    }

    /// Whether the members agree everywhere and durably: every slot has an in-sync member, no
    /// resync is due, nothing is being written, and the members were flushed after the last write.
    fn agrees_durably(&self) -> bool {
        let is_clean =
            matches!(self.intent.state, CleanState::Clean | CleanState::BecomingClean(_));
        is_clean && self.membership.is_whole() && self.membership.resync_from.is_none()
    }

    fn may_change_bitmap(&self) -> Result<(), ReplyError> {
        if self.membership.read_only || self.membership.broken {
            return Err(ReplyError::ReadOnly);
        }
        self.bitmap_stays()
    }

    /// Applies the pending change to the superblocks of the update that starts now. No part of an
    /// update may be in flight, and no member may lag.
    pub(in crate::array) fn change_bitmap(&mut self, now: Time) {
        let Some(change) = self.bitmap_change.take() else { return };
        let agrees = self.agrees_durably();
        let present = self.members.iter_mut().filter(|member| !member.is_faulty());
        match change {
            BitmapChange::Add { mut bitmap, offset } => {
                for member in present {
                    member.superblock_mut().set_bitmap(Some(offset));
                    member.needs_bitmap();
                }
                bitmap.header.events_cleared = self.events;
                if agrees {
                    bitmap.clear();
                }
                let layout = self.layout.clone().expect("an array with redundancy has a layout");
                let leases = self.intent.client_leases();
                let added =
                    IntentBitmap::new(&bitmap, layout, std::iter::empty(), self.events, now);
                self.bitmap = Some(Box::new(added.begun_with(leases)));
                if let Some(from) = self.membership.resync_from {
                    self.need_resync_from(from);
                }
            }
            BitmapChange::Remove => {
                for member in present {
                    member.superblock_mut().set_bitmap(None);
                    member.follows_bitmap = false;
                }
                let update = self.last_update();
                if let Some(bitmap) = &mut self.bitmap {
                    bitmap.leave_with(update);
                }
            }
        }
    }
}

/// Checks that a new member has room for the array's bitmap; the error says what is missing.
pub(in crate::array) fn room_for_bitmap(
    superblock: &Superblock,
    info: &MemberInfo,
    bitmap: &IntentBitmap,
) -> Result<(), ReplyError> {
    has_room(superblock, info, bitmap.bytes())
}

/// Checks that a member has room for the array's bitmap with `layout`; the error says what is
/// missing.
pub(in crate::array) fn room_with_layout(
    superblock: &Superblock,
    info: &MemberInfo,
    (bitmap, layout): (&IntentBitmap, &Layout),
) -> Result<(), ReplyError> {
    let refused = |found: &str| {
        ReplyError::Refused(format!(
            "{found}; weft set TARGET bitmap=none, and bitmap=internal afterwards"
        ))
    };
    let Some(bytes) = bitmap.bytes_with(layout) else {
        return Err(refused("bitmap sectors_reserved at byte 64: found less than the bits need"));
    };
    let room = has_room(superblock, info, bytes);
    room.map_err(|error| refused(&error.to_string()))
}

/// Checks that a member has room for a bitmap of `bytes` at the place that its superblock gives;
/// the error says what is missing.
fn has_room(superblock: &Superblock, info: &MemberInfo, bytes: Bytes) -> Result<(), ReplyError> {
    let label = &info.label;
    let block = u64::from(info.logical_block);
    let needed = Bytes(bytes.0.next_multiple_of(block)).sectors_ceil();
    match superblock.bitmap_room(info.size) {
        Ok(Some(room)) if !room.start.bytes().0.is_multiple_of(block) => {
            Err(ReplyError::Refused(format!(
                "{label}: bitmap at sector {}: expected a multiple of its blocks of {block} bytes; use \
                 a member with smaller blocks",
                room.start.0
            )))
        }
        Ok(Some(room)) if room.len >= needed => Ok(()),
        Ok(room) => Err(ReplyError::Refused(format!(
            "{label}: found {} for the bitmap, expected at least {needed}; use a larger member",
            room.map_or(Sectors::ZERO, |room| room.len)
        ))),
        Err(error) => Err(ReplyError::Refused(format!("{label}: {error}; use a larger member"))),
    }
}
