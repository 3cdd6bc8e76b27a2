//! Checker I7, untouched data: a write to a stripe changes only the sectors that a client wrote.
//!
//! Every data sector that is written to a member holds either a client's write that was not
//! overwritten since, or the content that the array already has in that sector. A wrong address, a
//! stale block carried along by a wider write and a frame reused too early all show here at once,
//! before any read.

use weft_units::Slot;

use super::{View, Violation};
use crate::excuses::ExcuseCounts;
use crate::model::Why;

const NAME: &str = "I7 untouched data";

/// Checker I7: compares the payload of member writes with the model.
#[derive(Clone, Copy, Debug, Default)]
pub struct Untouched;

impl Untouched {
    /// Checks the data sectors of a write. A sector with content that no client wrote passes if the
    /// content may have been reconstructed, and is counted in `excuses`.
    pub fn write(
        self,
        view: View<'_>,
        (disk, at): (usize, u64),
        bytes: &[u8],
        excuses: &mut ExcuseCounts,
        found: &mut Vec<Violation>,
    ) {
        let members = view.array.members();
        let slot = (0..members).map(Slot).find(|slot| view.record.in_sync(*slot) == Some(disk));
        let Some(slot) = slot else { return };
        let sector_bytes = view.disks[disk].sector_bytes(at);
        for (absolute, content) in (at..).zip(bytes.chunks_exact(sector_bytes)) {
            let Some(place) = view.array.data_sector(disk, absolute) else { continue };
            let Some(sector) = view.array.array_sector(slot, place) else { continue };
            let column = if view.array.has_parity() { place } else { sector };
            excuses.written += 1;
            match view.model.why(sector, content) {
                Some(why) => {
                    excuses.written_wrong += u64::from(why == Why::Reconstructed);
                    continue;
                }
                // The sector keeps its content, which was computed for a member that was added
                // again, or which the model never saw.
                None if view.disks[disk].peek(absolute, 1) == content => continue,
                None => {}
            }
            // Content reconstructed from members that disagreed is written back to the slot that
            // lost it.
            let errors = view.suspects.errors(view.array, column, slot);
            if view.model.media_allows_off(sector, content, &errors) {
                excuses.written_wrong += 1;
                continue;
            }
            found.push(Violation::new(
                NAME,
                format!(
                    "disk {disk} gets at sector {absolute} what was not written to array sector \
                     {}: {:#x}",
                    sector,
                    u64::from_le_bytes(content[..8].try_into().expect("8 bytes")),
                ),
            ));
            return;
        }
    }
}
