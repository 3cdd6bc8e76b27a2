//! Reshapes under way: the two geometries that superblocks describe, and where they meet.
//!
//! A crash may cut off the update that begins a reshape, or the update that ends it. At the
//! beginning no data has moved: a reshape that not every member records is ignored. At the end all
//! data has moved: a member that does not record the end yet gets the geometry after the reshape.
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
    /// Makes members agree about a reshape if a crash has cut off its first or its last update. The
    /// member at index `reference` has the freshest superblock.
    ///
    /// # Errors
    /// Members with a slot record different reshapes.
    pub(super) fn settle_reshapes(
        &mut self,
        pool: &mut [Member],
        reference: usize,
    ) -> Result<(), Refused> {
        let freshest = pool[reference].superblock.clone();
        match moves_down(&freshest) {
            None if freshest.reshape().is_some() => {}
            None => settle_ended(pool, &freshest),
            Some(reshape) if is_over(&freshest, reshape) => {
                for member in pool.iter_mut().filter(|it| it.superblock.reshape().is_some()) {
                    member.superblock.end_reshape();
                }
            }
            Some(reshape) if reshape.position == 0 && !is_begun(pool, &freshest) => {
                for Member { superblock, .. } in pool.iter_mut() {
                    match superblock.reshape().copied() {
                        Some(of) if is_over(superblock, &of) => superblock.end_reshape(),
                        _ => superblock.revert_reshape(),
                    }
                }
                let what =
                    "a reshape had not begun yet: a member does not record it, or is not here";
                self.tell(what.to_owned());
            }
            Some(reshape) => {
                self.same_reshape(pool, &freshest)?;
                // A spare may lag, or have been away when the reshape began.
                let before = freshest.raid_disks().wrapping_add_signed(-reshape.delta_disks);
                let down = Sectors(reshape.new_offset.unsigned_abs().into());
                for member in pool {
                    let superblock = &mut member.superblock;
                    let is_spare = superblock.own_role() == Ok(Role::Spare);
                    if is_spare
                        && superblock.reshape().is_none()
                        && superblock.raid_disks() == before
                        && down < superblock.data_offset()
                    {
                        superblock.begin_reshape(*reshape);
                    }
                }
            }
        }
        Ok(())
    }

    /// Refuses members with a slot if their superblock records a different reshape than the
    /// freshest superblock. A member that lags by more than one update is not used anyway.
    fn same_reshape(&self, pool: &[Member], freshest: &Superblock) -> Result<(), Refused> {
        for Member { superblock, info, .. } in pool {
            let counts = superblock.events().saturating_add(1) >= freshest.events();
            let has_slot = matches!(superblock.own_role(), Ok(Role::Active(_)));
            let (found, expected) = (shape_after(superblock), shape_after(freshest));
            if counts && has_slot && found.is_some() && found != expected {
                let text = format!(
                    "{}: superblock reshape: found one to {found:?}, expected one to {expected:?} \
                     (delta_disks, level, layout, chunk)",
                    info.label
                );
                return Err(self.refused(AssemblyState::MembersDisagree, text));
            }
        }
        Ok(())
    }

    /// Refuses a member that records a reshape which weft cannot read, or which weft cannot
    /// continue if the array may be written. `found` begins the error text.
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
        let is_back = superblock.features().contains(Features::RESHAPE_BACK);
        if reshape.delta_disks < 0 || is_back {
            return refused("a reshape to as many members or more, which goes forward");
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
        if moves_down(superblock).is_none() {
            return refused("for writing one that moves the data down");
        }
        if superblock.recovery_offset().is_some() {
            return refused("for writing no member that is rebuilt meanwhile");
        }
        Ok(())
    }

    /// Reshape that the superblock of `reference` records, from the layout `before`; `None` if it
    /// records none. Refuses a reshape with values that do not fit the array.
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
        if after.member_size() != before.member_size() {
            let text = format!(
                "{}: superblock new_chunk at byte 112: found {}, expected one of which the \
                 members' data, {}, is a multiple",
                reference.info.label,
                after.chunk(),
                before.member_size()
            );
            return Err(self.refused(AssemblyState::Unsupported, text));
        }
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
        let what = if u32::from(before.members()) == slots {
            let name = level.row().layouts.name(after.layout());
            let name = name.map(|name| format!(" and layout {name}")).unwrap_or_default();
            format!("to chunk {}K{name}", after.chunk().0 / 2)
        } else {
            format!("from {} to {slots} members", before.members())
        };
        let size = after.array_size().max(before.array_size());
        let note = format!("a reshape {what} is under way, at {position} of {size}");
        self.note(AssemblyState::ReshapePending, note);
        Ok(Some(Reshaping { after, position, held: false }))
    }
}

/// Reshape that a superblock records, if the level stays the same, the number of members does not
/// shrink and the data moves down; `None` otherwise.
fn moves_down(superblock: &Superblock) -> Option<&Reshape> {
    let same = |it: &&Reshape| it.new_level == superblock.level().code();
    let down = |it: &&Reshape| it.delta_disks >= 0 && it.new_offset < 0;
    let features = superblock.features();
    let is_back = features.contains(Features::RESHAPE_BACK);
    let moves = features.contains(Features::NEW_OFFSET) && !is_back;
    let has_parity = superblock.level().parity_count() > 0;
    superblock.reshape().filter(same).filter(down).filter(|_| moves && has_parity)
}

/// Whether all of the array has the geometry after the reshape, by the position that the superblock
/// records.
fn is_over(superblock: &Superblock, reshape: &Reshape) -> bool {
    superblock.array_size_after().is_some_and(|size| reshape.position >= size.0)
}

/// Change of shape by the reshape that the superblock records: difference of the number of slots,
/// and level, layout and chunk after the reshape. `None` if the superblock records no reshape.
fn shape_after(superblock: &Superblock) -> Option<(i32, i32, u32, u64)> {
    let of = superblock.reshape()?;
    Some((of.delta_disks, of.new_level, of.new_layout, of.new_chunk.0))
}

/// Whether all members with a slot, according to the freshest superblock, are in the pool and
/// record the reshape.
fn is_begun(pool: &[Member], freshest: &Superblock) -> bool {
    let records = |number: u32, slot: Slot| {
        pool.iter().any(|Member { superblock, .. }| {
            let is_at = superblock.own_role() == Ok(Role::Active(slot));
            let is_same = shape_after(superblock) == shape_after(freshest);
            superblock.dev_number() == number && is_at && is_same
        })
    };
    let numbers = 0..freshest.role_count() as u32;
    let mut roles = numbers.filter_map(|number| match freshest.role(number) {
        Ok(Role::Active(slot)) => Some((number, slot)),
        Ok(_) | Err(_) => None,
    });
    roles.all(|(number, slot)| records(number, slot))
}

/// Settles members that still record a reshape which the freshest superblock no longer records. A
/// member that lags by one update, or is a spare, missed the update that ended the reshape: it gets
/// the geometry after, whichever position it records. A member that records position 0, while the
/// freshest superblock has the geometry before, returns to the geometry before.
fn settle_ended(pool: &mut [Member], freshest: &Superblock) {
    for Member { superblock, .. } in pool.iter_mut() {
        let Some(of) = superblock.reshape().copied() else { continue };
        let slots = superblock.raid_disks();
        let after = (slots, of.new_layout, of.new_chunk);
        let before = slots.wrapping_add_signed(-of.delta_disks);
        let before = (before, superblock.layout(), superblock.chunk());
        let now = (freshest.raid_disks(), freshest.layout(), freshest.chunk());
        let is_spare = superblock.own_role() == Ok(Role::Spare);
        let lags = superblock.events().saturating_add(1) == freshest.events();
        if after != before && now == after {
            if lags || is_spare || is_over(superblock, &of) {
                superblock.end_reshape();
            }
        } else if moves_down(superblock).is_some() && now == before && of.position == 0 {
            superblock.revert_reshape();
        }
    }
}

/// Whether the next step of a forward reshape overwrites nothing that a restart would read:
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
    let unit = chunk.max(reshape.new_chunk.0.into());
    if old == 0 || new == 0 || chunk == 0 {
        return false;
    }
    let moves = superblock.features().contains(Features::NEW_OFFSET);
    let down = if moves { -i128::from(reshape.new_offset) } else { 0 };
    let (Ok(down), position) = (u128::try_from(down), u128::from(reshape.position)) else {
        return false;
    };
    let written_to = (position / (unit * new) + 1) * unit;
    let read_from = position / (chunk * old) * chunk;
    let size_before = u128::from(superblock.size().0) / chunk * chunk * old;
    position >= size_before || written_to <= read_from + down
}
