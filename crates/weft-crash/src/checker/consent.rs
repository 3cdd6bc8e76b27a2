//! Checker P5, consent: assembly refuses an array that is dirty and degraded unless the caller
//! consents, and refuses no other array for that reason.
//!
//! The parity of a stripe that was being written may be wrong, and the data of a missing member
//! would be computed from this parity. A missing member that holds only parity does no harm.

use weft_engine::assemble::{Assembly, AssemblyState, Refused, SlotState};
use weft_units::{Sectors, Slot};

use super::{Array, Violation};

const NAME: &str = "P5 dirty and degraded";

/// Whether an assembly needs consent: the level has parity, a member that holds data is missing or
/// not in sync, and the superblocks say that the array is dirty.
#[must_use]
pub fn needs_consent(array: &Array, with: &Assembly, dirty_from: Option<Sectors>) -> bool {
    // Nothing is computed on mirrors or on stripes without parity.
    let Some(geometry) = array.layout.parity() else { return false };
    let stripes = geometry.member_size().0 / geometry.chunk().0;
    let holds_data = |slot: u16| {
        (0..stripes).any(|stripe| {
            geometry.array_sector(Slot(slot), Sectors(stripe * geometry.chunk().0)).is_some()
        })
    };
    let mut slots = with.slots.iter().zip(0u16..);
    dirty_from.is_some()
        && slots.any(|(state, slot)| !matches!(state, SlotState::InSync(_)) && holds_data(slot))
}

/// Checks that an assembly without consent was refused if consent was `needed`, and was not refused
/// for lack of consent otherwise. Returns the violation, if there is one.
#[must_use]
pub fn judge(needed: bool, without: &Result<Assembly, Refused>) -> Option<Violation> {
    match without {
        Ok(_) if needed => Some(Violation::new(NAME, "dirty and degraded, and not refused")),
        Err(refused) if !needed && refused.state == AssemblyState::DirtyDegraded => {
            Some(Violation::new(NAME, format!("refused without need: {refused}")))
        }
        Ok(_) | Err(_) => None,
    }
}
