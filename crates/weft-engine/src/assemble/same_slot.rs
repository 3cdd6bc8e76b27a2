//! Members that claim the same slot, and the choice of the one that is used.
//!
//! Source   md-replace.md §1, §2; md-ondisk.md §8 (version 0.90)

use weft_ondisk::{Features, Role};
use weft_units::Sectors;

use super::decision::Decision;
use super::states::AssemblyState;
use super::{Member, Replacement};

impl Decision<'_> {
    /// Takes out members that are being filled to replace a member that is present, and returns the
    /// others. If the array may be written, the members taken out become replacements, one for each
    /// slot in sync, and the copy goes on; otherwise they are dropped. If the member to be replaced
    /// is absent, the replacement counts as the member of the slot.
    ///
    /// Source   md-replace.md §1, §2
    pub(super) fn without_replacements(
        &mut self,
        members: Vec<(Member, Role)>,
    ) -> Vec<(Member, Role)> {
        if !members.iter().any(|(member, _)| replaces(member)) {
            return members;
        }
        let originals = members
            .iter()
            .filter(|(member, role)| matches!(role, Role::Active(_)) && !replaces(member));
        let originals: Vec<(Role, String, bool)> = originals
            .map(|(member, role)| {
                let is_in_sync = member.superblock.recovery_offset().is_none();
                (*role, member.info.label.clone(), is_in_sync)
            })
            .collect();
        let mut others = Vec::new();
        for (member, role) in members {
            let original = originals.iter().find(|(of, ..)| *of == role);
            let recovery_offset = member.superblock.recovery_offset();
            match (original.filter(|_| replaces(&member)), role) {
                (Some((_, _, true)), Role::Active(slot))
                    if !self.options.read_only
                        && self.replacements.iter().all(|it| it.slot != slot) =>
                {
                    self.states.push(AssemblyState::Replacing);
                    let recovery_offset = recovery_offset.unwrap_or_default();
                    self.replacements.push(Replacement { slot, member, recovery_offset });
                }
                (Some((_, label, _)), _) => {
                    let reason =
                        format!("is being filled to replace {label}, which is at its slot");
                    self.states.push(AssemblyState::Replacing);
                    self.drop(member.info, reason);
                }
                (None, _) => others.push((member, role)),
            }
        }
        others
    }

    /// Removes and returns the replacements that were found, each with the data sector up to which
    /// its copy is valid. The sector is 0 if a crash may have cut off a write, because the original
    /// and its replacement may then differ.
    pub(super) fn replacements(&mut self, dirty_from: Option<Sectors>) -> Vec<Replacement> {
        let mut replacements = std::mem::take(&mut self.replacements);
        for replacement in &mut replacements {
            if dirty_from.or(replacement.member.superblock.dirty_from()).is_some() {
                replacement.recovery_offset = Sectors::ZERO;
            }
        }
        replacements
    }

    /// Drops members if there is a fresher member for the same slot, and returns the others. In
    /// version 0.90 a member that takes a slot also takes the slot's number, so that other
    /// superblocks cannot distinguish the two members. mdadm does the same.
    pub(super) fn newest_of_each_slot(
        &mut self,
        members: Vec<(Member, Role)>,
    ) -> Vec<(Member, Role)> {
        let slotted = members.iter().filter(|(_, role)| matches!(role, Role::Active(_)));
        // A member and its replacement are both at the slot.
        let said: Vec<((Role, bool), u64, String)> = slotted
            .map(|(member, role)| {
                let place = (*role, replaces(member));
                (place, member.superblock.events(), member.info.label.clone())
            })
            .collect();
        let mut newest = Vec::new();
        for (member, role) in members {
            let (events, place) = (member.superblock.events(), (role, replaces(&member)));
            match said.iter().find(|(of, other, _)| *of == place && *other > events) {
                Some((_, other, label)) => {
                    let reason = format!(
                        "stale: events {events}, {label} is at its slot and at {other}; add it \
                         again to use it"
                    );
                    self.drop(member.info, reason);
                }
                None => newest.push((member, role)),
            }
        }
        newest
    }
}

/// Whether a member is being filled to replace another member at its slot.
fn replaces(member: &Member) -> bool {
    member.superblock.features().contains(Features::REPLACEMENT)
}
