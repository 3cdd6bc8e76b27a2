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
        let Some(reshape) = freshest.reshape().copied() else {
            for member in pool.iter_mut() {
                let superblock = &mut member.superblock;
                let Some(of) = superblock.reshape() else { continue };
                let before = superblock.raid_disks().wrapping_add_signed(-of.delta_disks);
                let (position, grows) = (of.position, of.delta_disks > 0);
                let is_over = superblock.array_size().is_some_and(|size| position >= size.0);
                if grows && superblock.raid_disks() == freshest.raid_disks() && is_over {
                    superblock.end_reshape();
                } else if grows && before == freshest.raid_disks() && position == 0 {
                    superblock.revert_reshape();
                }
            }
            return;
        };
        if reshape.position > 0 || reshape.delta_disks <= 0 {
            return;
        }
        let records = |number: u32, slot: Slot| {
            pool.iter().any(|member| {
                let superblock = &member.superblock;
                superblock.dev_number() == number
                    && superblock.own_role() == Ok(Role::Active(slot))
                    && superblock.reshape().is_some()
            })
        };
        let numbers = 0..freshest.role_count() as u32;
        let mut roles = numbers.filter_map(|number| match freshest.role(number) {
            Ok(Role::Active(slot)) => Some((number, slot)),
            Ok(_) | Err(_) => None,
        });
        if !roles.all(|(number, slot)| records(number, slot)) {
            for member in pool.iter_mut() {
                member.superblock.revert_reshape();
            }
            let what = "a reshape had not begun yet: a member does not record it, or is not here";
            self.tell(what.to_owned());
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
        let moves = superblock.features().contains(Features::NEW_OFFSET);
        if !moves && !is_past_the_critical_section(superblock, reshape) {
            return refused(
                "one that moves the data, or has passed the part of which mdadm keeps a backup",
            );
        }
        if self.options.read_only {
            return Ok(());
        }
        let goes_on = moves
            && reshape.delta_disks > 0
            && reshape.new_offset < 0
            && (reshape.new_layout, reshape.new_chunk) == (superblock.layout(), superblock.chunk());
        if !goes_on {
            return refused("for writing one to more members, with the data moving down");
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
        let backwards = superblock.features().contains(Features::RESHAPE_BACK);
        let backwards = reshape.delta_disks < 0 || reshape.delta_disks == 0 && backwards;
        let position = Sectors(reshape.position);
        let note = format!(
            "a reshape from {} to {slots} members is under way, at {position} of {}",
            before.members(),
            after.array_size().max(before.array_size()),
        );
        self.note(AssemblyState::ReshapePending, note);
        Ok(Some(Reshaping { after, position, backwards, held: false }))
    }
}

/// Whether a reshape in place has passed the part in which it overwrites what it has yet to read.
///
/// Source   md-reshape.md §6 (mdadm: `Grow_restart`)
fn is_past_the_critical_section(superblock: &Superblock, reshape: &Reshape) -> bool {
    let parity = superblock.level().parity_count();
    let data = |members: u32| u64::from(members.saturating_sub(parity));
    let new = data(superblock.raid_disks());
    let old = data(superblock.raid_disks().wrapping_add_signed(-reshape.delta_disks));
    let (chunk, new_chunk) = (superblock.chunk().0, reshape.new_chunk.0);
    if reshape.delta_disks <= 0 || old == 0 || chunk == 0 || new_chunk == 0 {
        return false;
    }
    let mut written = (new_chunk..=superblock.size().0).step_by(new_chunk as usize);
    // The first row that is written behind the rows that were read for it.
    let first = written.find(|rows| *rows < rows * new / old / chunk * chunk);
    first.is_some_and(|rows| reshape.position >= rows * new)
}
