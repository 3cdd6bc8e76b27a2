//! I7: does a write to a row change only what was asked?
//!
//! Every sector of data that goes to a member is either one that a client wrote there and that is not
//! overwritten since, or what the array already holds there. A wrong address, a stale block carried
//! along by a wider write, a frame reused too early: all show here at once, before any read.

use weft_units::{Sectors, Slot};

use super::{View, Violation};

const NAME: &str = "I7 untouched data";

/// Compares payload with the model.
#[derive(Clone, Copy, Debug, Default)]
pub struct Untouched;

impl Untouched {
    /// See [`super::Checkers::write`].
    pub fn write(
        self,
        view: View<'_>,
        disk: usize,
        at: u64,
        bytes: &[u8],
        found: &mut Vec<Violation>,
    ) {
        let members = view.array.geometry.members();
        let slot = (0..members).map(Slot).find(|slot| view.record.in_sync(*slot) == Some(disk));
        let Some(slot) = slot else { return };
        let sector_bytes = view.disks[disk].sector_bytes(at);
        for (absolute, content) in (at..).zip(bytes.chunks_exact(sector_bytes)) {
            let Some(column) = view.array.data_sector(disk, absolute) else { continue };
            let Some(sector) = view.array.geometry.array_sector(slot, Sectors(column)) else {
                continue;
            };
            if view.model.suspect.contains(&column) || view.model.media_allows(sector.0, content) {
                continue;
            }
            // What was computed for a member that rejoined, or was never seen by the model.
            if view.disks[disk].peek(absolute, 1) == content {
                continue;
            }
            found.push(Violation::new(
                NAME,
                format!(
                    "disk {disk} gets at sector {absolute} what nobody wrote to array sector {}: {:#x}",
                    sector.0,
                    u64::from_le_bytes(content[..8].try_into().expect("8 bytes")),
                ),
            ));
            return;
        }
    }
}
