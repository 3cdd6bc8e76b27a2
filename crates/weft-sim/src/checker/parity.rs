//! I6: is every row's parity right, or the row known to be suspect?
//!
//! Computes P and Q of every column anew from what is on the media and compares. A scrub says how much
//! it looked at, so that a test can tell zero mismatches from zero rows.

use std::collections::BTreeSet;

use weft_engine::raid::geometry::Placement;
use weft_parity::Parity;
use weft_units::{Sectors, Slot};

use super::{Array, Record, View, Violation};
use crate::compute::syndromes;
use crate::disk::Disk;

const NAME: &str = "I6 parity or dirty";

/// What a scrub found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrub {
    /// Columns (member data sectors) looked at.
    pub columns: u64,
    /// Columns that hold anything but zeros.
    pub written: u64,
    /// Columns whose P or Q is wrong.
    pub wrong: BTreeSet<u64>,
}

/// Which bytes count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bytes {
    /// What would survive the worst power cut.
    Durable,
    /// What a read returns.
    Visible,
}

/// Looks at columns. Those with a member missing, as the record says, are left out.
#[must_use]
pub fn scrub(
    disks: &[Disk],
    array: &Array,
    record: &Record,
    columns: impl Iterator<Item = u64>,
    bytes: Bytes,
) -> Scrub {
    let parity = Parity::detect();
    let geometry = &array.geometry;
    let members: Vec<Option<usize>> =
        (0..geometry.members()).map(|slot| record.in_sync(Slot(slot))).collect();
    let mut scrub = Scrub::default();
    if members.contains(&None) {
        return scrub;
    }
    for column in columns {
        let placement = geometry.placement(geometry.chunk_row_of(Sectors(column)));
        let read = |slot: usize| {
            let disk = members[slot].expect("nobody is missing");
            let at = column + array.data_offset[disk].0;
            match bytes {
                Bytes::Durable => disks[disk].peek_stable(at, 1),
                Bytes::Visible => disks[disk].peek(at, 1),
            }
        };
        let blocks: Vec<Vec<u8>> = (0..members.len()).map(read).collect();
        scrub.columns += 1;
        if blocks.iter().all(|block| block.iter().all(|byte| *byte == 0)) {
            continue;
        }
        scrub.written += 1;
        if !consistent(&parity, &placement, &blocks) {
            scrub.wrong.insert(column);
        }
    }
    scrub
}

fn consistent(parity: &Parity, placement: &Placement, blocks: &[Vec<u8>]) -> bool {
    let data: Vec<(u8, Vec<u8>)> = (0u16..)
        .zip(blocks)
        .filter(|(slot, _)| placement.data_index(Slot(*slot)).is_some())
        .map(|(slot, block)| (placement.exponent(Slot(slot)), block.clone()))
        .collect();
    let (p, q) = syndromes(parity, &data, placement.q.is_some());
    p == blocks[placement.p.index()] && placement.q.is_none_or(|slot| q == blocks[slot.index()])
}

/// After a power cut: a column whose parity is wrong is one that a restart will look at.
pub fn after_cut(view: View<'_>, columns: impl Iterator<Item = u64>, found: &mut Vec<Violation>) {
    let scrub = scrub(view.disks, view.array, view.record, columns, Bytes::Durable);
    let dirty_from = view.record.dirty_from();
    for column in scrub.wrong {
        if dirty_from.is_none_or(|from| column < from.0) {
            let says =
                dirty_from.map_or("clean".to_owned(), |from| format!("dirty from {}", from.0));
            found.push(Violation::new(
                NAME,
                format!(
                    "after the cut the parity of column {column} is wrong and the array is {says}"
                ),
            ));
            return;
        }
    }
}
