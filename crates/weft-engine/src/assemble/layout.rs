//! Layout of an assembly: slots and sizes according to the superblocks, and whether enough members
//! are present.
//!
//! Source   md-ondisk.md §8.1, md-raid.md §5

use weft_ondisk::layout_id::Layouts;
use weft_ondisk::{Features, Role};
use weft_units::{Bytes, Sectors, Slot};

use super::decision::Decision;
use super::states::AssemblyState;
use super::{Assembly, Member, Refused, SlotState};
use crate::layout::Layout;
use crate::layout::geometry::{GeometryError, MEMBERS_MAX};
use crate::layout::slot_set::SlotSet;

impl Decision<'_> {
    /// Refuses a RAID 0 if no superblock records which layout it has and the layouts differ:
    /// several members have more chunks than the smallest one.
    pub(super) fn raid0_layout(
        &self,
        current: &[(Member, Role)],
        reference: &Member,
    ) -> Result<(), Refused> {
        let freshest = &reference.superblock;
        let has_one = freshest.features().contains(Features::RAID0_LAYOUT);
        let chunks = |member: &Member| match freshest.chunk() {
            Sectors::ZERO => member.superblock.used_size(),
            chunk => member.superblock.used_size().round_down(chunk),
        };
        let sizes: Vec<Sectors> = current.iter().map(|(member, _)| chunks(member)).collect();
        let least = sizes.iter().min();
        let larger = sizes.iter().filter(|size| Some(*size) > least).count();
        if freshest.level().row().layouts != Layouts::Zones
            || has_one && freshest.layout() != 0
            || larger <= 1
        {
            return Ok(());
        }
        let found = format!(
            "{}: superblock layout at byte 76: found {}, expected 1 or 2 for RAID0 on members of \
             different sizes",
            reference.info.label,
            if has_one { "0" } else { "none" },
        );
        Err(self.refused(AssemblyState::Unsupported, found))
    }

    /// Number of slots of the array. Refuses the array if its level does not permit this number.
    pub(super) fn slots(&self, reference: &Member) -> Result<u16, Refused> {
        let freshest = &reference.superblock;
        let (level, found) = (freshest.level(), freshest.raid_disks());
        let label = &reference.info.label;
        let min = level.row().members_min;
        if !(min..=MEMBERS_MAX).contains(&found) {
            let error = GeometryError::Members { level, found, min };
            return Err(
                self.refused(AssemblyState::Unsupported, format!("{label}: superblock {error}"))
            );
        }
        Ok(found as u16)
    }

    /// Layout that the superblock of `reference` describes; during a reshape, the layout before it.
    /// For RAID 0 and linear it also depends on the sizes of the members. Refuses an array that
    /// weft cannot lay out, or that has a zone which ends within a logical block.
    pub(super) fn layout(
        &self,
        reference: &Member,
        slots: &[SlotState],
    ) -> Result<Layout, Refused> {
        let freshest = &reference.superblock;
        let delta = freshest.reshape().map_or(0, |reshape| reshape.delta_disks);
        let members = freshest.raid_disks().wrapping_add_signed(-delta);
        let level = freshest.level();
        let (number, chunk, size) = (freshest.layout(), freshest.chunk(), freshest.size());
        let unsupported = |why: String| {
            let found = format!("{}: superblock {why}", reference.info.label);
            self.refused(AssemblyState::Unsupported, found)
        };
        let own = !level.uses_size();
        let size_of = |state: &SlotState| match state {
            SlotState::InSync(member) => Some(member.superblock.used_size()),
            SlotState::Missing | SlotState::Rebuilding { .. } => None,
        };
        let sizes: Option<Vec<Sectors>> =
            if own { slots.iter().map(size_of).collect() } else { Some(Vec::new()) };
        let Some(sizes) = sizes else {
            return Err(self.too_few("all members", slots));
        };
        let layout = Layout::new(level, number, members, chunk, size, &sizes)
            .map_err(|error| unsupported(error.to_string()))?;
        if let Layout::Striped(striped) = &layout {
            let blocks = slots.iter().filter_map(SlotState::member);
            let block = blocks.map(|member| member.info.logical_block).max().unwrap_or(512);
            let block = Bytes(block.into()).sectors_floor();
            if !striped.is_aligned(block) {
                let found = format!(
                    "{}: superblock sizes: found members that end within logical blocks of {block}, \
                     expected whole ones",
                    reference.info.label
                );
                return Err(self.refused(AssemblyState::Misaligned, found));
            }
        }
        Ok(layout)
    }

    /// Refuses an array that lacks in-sync members which it needs to reconstruct all data; during a
    /// reshape, the members that either layout needs.
    pub(super) fn enough(&self, assembly: &Assembly) -> Result<(), Refused> {
        let slots = &assembly.slots;
        let in_sync = slots.iter().zip(0u16..).filter(|it| matches!(it.0, SlotState::InSync(_)));
        let in_sync: SlotSet = in_sync.map(|(_, slot)| Slot(slot)).collect();
        let layouts = assembly.reshape.iter().map(|reshape| Layout::Parity(reshape.after.clone()));
        for layout in std::iter::once(assembly.layout.clone()).chain(layouts) {
            let slots_of = SlotSet::first(layout.members());
            if !layout.tolerance().suffices(in_sync.and(slots_of)) {
                return Err(self.too_few(&layout.needs(), slots));
            }
        }
        Ok(())
    }

    /// Creates the refusal of an array that lacks members. `needs` describes the members that it
    /// needs.
    fn too_few(&self, needs: &str, slots: &[SlotState]) -> Refused {
        let in_sync = slots.iter().filter(|state| matches!(state, SlotState::InSync(_))).count();
        let list: Vec<_> = slots
            .iter()
            .enumerate()
            .filter_map(|(slot, state)| match state {
                SlotState::InSync(_) => None,
                SlotState::Missing => Some(format!("slot {slot} missing")),
                SlotState::Rebuilding { member, recovery_offset } => Some(format!(
                    "slot {slot} ({}) rebuilt only to {recovery_offset}",
                    member.info.label
                )),
            })
            .collect();
        let found = format!("need {needs}, have {in_sync}: {}", list.join(", "));
        self.refused(AssemblyState::TooFewMembers, found)
    }
}
