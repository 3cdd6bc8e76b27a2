//! Reshapes under way: the two geometries that superblocks describe, and where they meet.
//!
//! A crash may cut off the update that begins a reshape, or the one that ends it. At its beginning
//! nothing has moved, so that a reshape which is not recorded by every member is forgotten; at its
//! end everything has, so that a member which does not record the end yet has the new geometry too.
//!
//! Source   md-reshape.md §1, §4, §7

use weft_ondisk::{Features, Reshape, Role, Superblock};
use weft_units::{Sectors, Slot};

use super::decision::Decision;
use super::states::AssemblyState;
use super::{Member, Refused, Reshaping};
use crate::layout::Layout;
use crate::layout::geometry::Geometry;

impl Decision<'_> {
    /// Makes members agree about a reshape of which a crash has cut off the first or the last
    /// update. The member at index `reference` has the freshest superblock.
    pub(super) fn settle_reshapes(&mut self, pool: &mut [Member], reference: usize) {
        let freshest = pool[reference].superblock.clone();
        match grows_down(&freshest) {
            None if freshest.reshape().is_some() => {}
            None => settle_ended(pool, &freshest),
            Some(reshape) if is_over(&freshest, reshape) => {
                for member in pool.iter_mut().filter(|it| it.superblock.reshape().is_some()) {
                    member.superblock.end_reshape();
                }
            }
            Some(reshape) if reshape.position == 0 && !is_begun(pool, &freshest) => {
                pool.iter_mut().for_each(|member| member.superblock.revert_reshape());
                let what =
                    "a reshape had not begun yet: a member does not record it, or is not here";
                self.tell(what.to_owned());
            }
            Some(reshape) => {
                // A spare may lag, or have been away when the reshape began.
                let before = freshest.raid_disks().wrapping_add_signed(-reshape.delta_disks);
                let down = Sectors(reshape.new_offset.unsigned_abs().into());
                for member in pool {
                    let superblock = &mut member.superblock;
                    let is_spare = superblock.own_role() == Ok(Role::Spare);
                    if is_spare
                        && superblock.raid_disks() == before
                        && down < superblock.data_offset()
                    {
                        superblock.begin_reshape(freshest.raid_disks(), down);
                    }
                }
            }
        }
    }

    /// Refuses a member that records a reshape which weft does not read, or for writing does not
    /// continue.
    pub(super) fn reshape_is_understood(
        &self,
        member: &Member,
        found: &str,
    ) -> Result<(), Refused> {
        let superblock = &member.superblock;
        let refused = |expected: &str| {
            let text = format!("{found}, expected {expected}");
            Err(self.refused(AssemblyState::Reshaping, text))
        };
        let Some(reshape) = superblock.reshape() else {
            return refused("no reshape of version 0.90");
        };
        if superblock.level().parity_count() == 0 {
            return refused("a reshape of RAID 4, 5 or 6");
        }
        if superblock.level().code() != reshape.new_level {
            return refused("a reshape that keeps the level");
        }
        let same = (reshape.new_layout, reshape.new_chunk);
        if reshape.delta_disks <= 0 || same != (superblock.layout(), superblock.chunk()) {
            return refused("a reshape to more members, with the layout and the chunk as they are");
        }
        if !overwrites_nothing(superblock, reshape) {
            return refused(
                "one that moves the data down far enough, or has passed the part of which mdadm \
                 keeps a backup",
            );
        }
        if self.options.read_only {
            return Ok(());
        }
        if grows_down(superblock).is_none() {
            return refused("for writing one that moves the data down");
        }
        if superblock.recovery_offset().is_some() {
            return refused("for writing no member that is rebuilt meanwhile");
        }
        Ok(())
    }

    /// Reshape that the superblock of `reference` records, from the layout `before`.
    pub(super) fn reshape(
        &mut self,
        reference: &Member,
        before: &Layout,
    ) -> Result<Option<Reshaping>, Refused> {
        let superblock = &reference.superblock;
        let Some(reshape) = superblock.reshape() else { return Ok(None) };
        let slots = superblock.raid_disks();
        let (level, size) = (superblock.level(), superblock.size());
        let after = Geometry::new(level, reshape.new_layout, slots, reshape.new_chunk, size);
        let after = after.map_err(|error| {
            let text = format!("{}: superblock {error}", reference.info.label);
            self.refused(AssemblyState::Unsupported, text)
        })?;
        let position = Sectors(reshape.position);
        if position > after.array_size() {
            let text = format!(
                "{}: superblock reshape_position at byte 104: found {position}, \
                 expected at most {}",
                reference.info.label,
                after.array_size()
            );
            return Err(self.refused(AssemblyState::Unsupported, text));
        }
        let note = format!(
            "a reshape from {} to {slots} members is under way, at {position} of {}",
            before.members(),
            after.array_size().max(before.array_size()),
        );
        self.note(AssemblyState::ReshapePending, note);
        Ok(Some(Reshaping { after, position, held: false }))
    }
}

/// State of a reshape to more members for which the data moves down; `None` if the superblock
/// records none, or one of another kind.
fn grows_down(superblock: &Superblock) -> Option<&Reshape> {
    let same = |it: &&Reshape| {
        let kept = (it.new_level, it.new_layout, it.new_chunk);
        kept == (superblock.level().code(), superblock.layout(), superblock.chunk())
    };
    let down = |it: &&Reshape| it.delta_disks > 0 && it.new_offset < 0;
    let moves = superblock.features().contains(Features::NEW_OFFSET);
    let has_parity = superblock.level().parity_count() > 0;
    superblock.reshape().filter(same).filter(down).filter(|_| moves && has_parity)
}

/// Whether all of the array has the geometry after the reshape.
fn is_over(superblock: &Superblock, reshape: &Reshape) -> bool {
    superblock.array_size().is_some_and(|size| reshape.position >= size.0)
}

/// Whether all members with a slot, according to the freshest superblock, are in the pool and
/// record the reshape.
fn is_begun(pool: &[Member], freshest: &Superblock) -> bool {
    let records = |number: u32, slot: Slot| {
        pool.iter().any(|Member { superblock, .. }| {
            let is_at = superblock.own_role() == Ok(Role::Active(slot));
            superblock.dev_number() == number && is_at && superblock.reshape().is_some()
        })
    };
    let numbers = 0..freshest.role_count() as u32;
    let mut roles = numbers.filter_map(|number| match freshest.role(number) {
        Ok(Role::Active(slot)) => Some((number, slot)),
        Ok(_) | Err(_) => None,
    });
    roles.all(|(number, slot)| records(number, slot))
}

/// Settles members that still record a reshape which the freshest superblock does not record. A
/// member that lags by one update has missed the one that ended it, wherever it says that the
/// reshape had come, or the last one that forgot it.
fn settle_ended(pool: &mut [Member], freshest: &Superblock) {
    for Member { superblock, .. } in pool.iter_mut() {
        let Some(of) = superblock.reshape().copied() else { continue };
        let before = superblock.raid_disks().wrapping_add_signed(-of.delta_disks);
        let is_spare = superblock.own_role() == Ok(Role::Spare);
        let lags = superblock.events().saturating_add(1) == freshest.events();
        if of.delta_disks != 0 && superblock.raid_disks() == freshest.raid_disks() {
            if lags || is_spare || is_over(superblock, &of) {
                superblock.end_reshape();
            }
        } else if grows_down(superblock).is_some()
            && before == freshest.raid_disks()
            && of.position == 0
        {
            superblock.revert_reshape();
        }
    }
}

/// Whether the next step of a reshape to more members overwrites nothing that a restart would read:
/// data moves down far enough, or a reshape in place has passed the part for which mdadm keeps a
/// backup.
///
/// Source   md-reshape.md §4, §6, §7 (md: `raid5_run`; mdadm: `Grow_restart`)
fn overwrites_nothing(superblock: &Superblock, reshape: &Reshape) -> bool {
    let parity = superblock.level().parity_count();
    let data = |members: u32| u128::from(members.saturating_sub(parity));
    let new = data(superblock.raid_disks());
    let old = data(superblock.raid_disks().wrapping_add_signed(-reshape.delta_disks));
    let chunk = u128::from(superblock.chunk().0);
    if old == 0 || new == 0 || chunk == 0 {
        return false;
    }
    let moves = superblock.features().contains(Features::NEW_OFFSET);
    let down = if moves { -i128::from(reshape.new_offset) } else { 0 };
    let (Ok(down), position) = (u128::try_from(down), u128::from(reshape.position)) else {
        return false;
    };
    let written_to = (position / (chunk * new) + 1) * chunk;
    let read_from = position / (chunk * old) * chunk;
    let size_before = u128::from(superblock.size().0) / chunk * chunk * old;
    position >= size_before || written_to <= read_from + down
}
