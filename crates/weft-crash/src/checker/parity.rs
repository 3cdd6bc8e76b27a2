//! Checker I6, parity or dirty: the parity of every stripe is right and copies agree, or the stripe
//! is recorded as suspect.
//!
//! The checker computes P and Q of every column anew from the media and compares them with the
//! stored ones. A scrub reports how many columns it read, so that a test can tell zero mismatches
//! from zero stripes. RAID 6 with one member missing has one parity left to compare. For mirrors
//! the checker compares the copies that are present, and counts columns with at most one copy left
//! as not written.
//!
//! After a cut a column is judged where the superblocks promise that its parity is right. A quiet
//! column is judged even without this promise. A column is quiet if no member had volatile data of
//! it, no unanswered request writes to it, and its parity was right before. Its stripe is not half
//! written, so it has no write hole (P5: only stripes that were being written may be damaged).

use std::collections::BTreeSet;

use weft_engine::layout::geometry::Placement;
use weft_parity::Parity;
use weft_units::{Sectors, Slot};

use super::{Array, Record, SlotSector, View, Violation};
use crate::crash::Judged;
use crate::disk::Disk;

const NAME: &str = "I6 parity or dirty";

/// Counts of a scrub, in columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrub {
    /// Number of columns that were read.
    pub columns: u64,
    /// Number of columns that could be compared and do not hold only zeros.
    pub written: u64,
    /// Columns with a wrong P or Q, or with copies that differ.
    pub wrong: BTreeSet<u64>,
}

/// Version of the media's content that is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bytes {
    /// Bytes that would survive the worst power cut.
    Durable,
    /// Bytes that a read returns.
    Visible,
}

/// Compares the parity or copies of `columns` on the media. Returns the counts; all are 0 if
/// members are missing and no redundancy is left.
#[must_use]
pub fn scrub(
    disks: &[Disk],
    array: &Array,
    record: &Record,
    columns: impl Iterator<Item = u64>,
    bytes: Bytes,
) -> Scrub {
    let mut scrub = Scrub::default();
    let Some(media) = Media::new(disks, array, record, bytes) else { return scrub };
    for column in columns {
        scrub.columns += 1;
        if let Some(right) = media.look(column) {
            scrub.written += 1;
            if !right {
                scrub.wrong.insert(column);
            }
        }
    }
    scrub
}

/// Media of an array with enough members in sync to compare parity or copies.
pub(super) struct Media<'a> {
    disks: &'a [Disk],
    array: &'a Array,
    record: &'a Record,
    bytes: Bytes,
    parity: Parity,
    /// Number of the disk in sync at each slot.
    members: Vec<Option<usize>>,
}

impl<'a> Media<'a> {
    pub(super) fn new(
        disks: &'a [Disk],
        array: &'a Array,
        record: &'a Record,
        bytes: Bytes,
    ) -> Option<Self> {
        let slots = 0..array.members();
        let members: Vec<_> = slots.map(|slot| record.in_sync(Slot(slot))).collect();
        let parity = Parity::detect();
        let compares = array.has_redundancy(|slot| members[slot.index()].is_some());
        compares.then_some(Self { disks, array, record, bytes, parity, members })
    }

    fn is_degraded(&self) -> bool {
        self.members.contains(&None)
    }

    /// Whether more strips of a column are missing, bad or unreadable than the level survives. No
    /// resync can make the rest of such a column agree.
    fn is_lost(&self, column: u64) -> bool {
        let reads = |place: &&SlotSector| {
            let Some(disk) = self.members[place.slot.index()] else { return false };
            let strip = self.array.read_as_one(place.sector);
            let first = self.array.data_offset[disk].0;
            let at = first + strip.start..first + strip.end;
            !self.record.is_bad(disk, place.sector) && !self.disks[disk].faults.is_unreadable(at)
        };
        let places = self.array.places(column);
        let read = places.iter().filter(reads).count();
        match self.array.layout.parity() {
            Some(geometry) => read < usize::from(geometry.data_members()),
            None => read == 0,
        }
    }

    /// Whether the parity of a column is right, or its copies agree. `None` if the column holds
    /// only zeros, or if too much of it is missing or bad to compare the rest.
    pub(super) fn look(&self, column: u64) -> Option<bool> {
        let read = |place: &SlotSector| {
            let disk = self.members[place.slot.index()]?;
            if self.record.is_bad(disk, place.sector) {
                return None;
            }
            let at = place.sector + self.array.data_offset[disk].0;
            Some(match self.bytes {
                Bytes::Durable => self.disks[disk].peek_stable(at, 1),
                Bytes::Visible => self.disks[disk].peek(at, 1),
            })
        };
        if self.is_lost(column) {
            return None;
        }
        let blocks: Vec<Option<Vec<u8>>> = self.array.places(column).iter().map(read).collect();
        if blocks.iter().flatten().all(|block| block.iter().all(|byte| *byte == 0)) {
            return None;
        }
        let Some(geometry) = self.array.layout.parity() else {
            let mut copies = blocks.iter().flatten();
            let first = copies.next()?;
            let mut others = copies.peekable();
            return others.peek().is_some().then(|| others.all(|other| other == first));
        };
        let placement = geometry.placement(geometry.full_stripe_of(Sectors(column)));
        // A level with one parity needs every block for the comparison; with P and Q, one block may
        // be missing or bad.
        let missing = blocks.iter().filter(|block| block.is_none()).count();
        if missing > usize::from(placement.q.is_some()) {
            return None;
        }
        Some(consistent(&self.parity, &placement, &blocks))
    }
}

/// Whether all parity that is present is right. At most one strip is missing. If a data strip is
/// missing, it is computed from P, and Q tells whether the result is right.
fn consistent(parity: &Parity, placement: &Placement, blocks: &[Option<Vec<u8>>]) -> bool {
    let (p, q) = (placement.p, placement.q);
    let data_of = |slot: Slot| placement.data_index(slot).is_some();
    let slots = || (0..blocks.len() as u16).map(Slot);
    let mut data: Vec<(u8, Vec<u8>)> = slots()
        .filter(|slot| data_of(*slot))
        .filter_map(|slot| Some((placement.exponent(slot), blocks[slot.index()].clone()?)))
        .collect();
    if let Some(lost) = slots().find(|slot| data_of(*slot) && blocks[slot.index()].is_none()) {
        let Some(mut block) = blocks[p.index()].clone() else { return true };
        for (_, other) in &data {
            block.iter_mut().zip(other).for_each(|(sum, byte)| *sum ^= byte);
        }
        data.push((placement.exponent(lost), block));
    }
    let (p_found, q_found) = syndromes(parity, &data, q.is_some());
    let right = |slot: Slot, found: &[u8]| {
        blocks[slot.index()].as_ref().is_none_or(|block| block[..] == *found)
    };
    right(p, &p_found) && q.is_none_or(|q| right(q, &q_found))
}

/// Returns P and Q of data strips, each given with its exponent. Without Q the exponents are
/// ignored, and Q is zero.
pub(super) fn syndromes(
    parity: &Parity,
    data: &[(u8, Vec<u8>)],
    with_q: bool,
) -> (Vec<u8>, Vec<u8>) {
    let len = data.first().map_or(0, |(_, bytes)| bytes.len());
    let (mut p, mut q) = (vec![0; len], vec![0; len]);
    let strips: Vec<(u8, &[u8])> = data.iter().map(|(k, bytes)| (*k, &bytes[..])).collect();
    if with_q {
        parity.pq(&strips, &mut p, &mut q);
    } else {
        let strips: Vec<&[u8]> = strips.iter().map(|(_, bytes)| *bytes).collect();
        parity.xor(&strips, &mut p);
    }
    (p, q)
}

/// Judges columns after a power cut or a process crash: a wrong parity is allowed only in a column
/// that was being written and that a restart will check. `quiet` says whether the parity of a
/// column was right before and the column was not being written. Returns the counts of the judged
/// columns.
pub fn after_cut(
    view: View<'_>,
    columns: impl Iterator<Item = u64>,
    quiet: impl Fn(u64) -> bool,
    bytes: Bytes,
    found: &mut Vec<Violation>,
) -> Judged {
    let mut judged = Judged::default();
    let media = Media::new(view.disks, view.array, view.record, bytes);
    let Some(media) = media else { return judged };
    let dirty_from = view.record.dirty_from();
    for column in columns {
        let promised = dirty_from.is_none_or(|from| column < from.0);
        if !promised && !quiet(column) {
            continue;
        }
        let Some(right) = media.look(column) else { continue };
        judged.columns += 1;
        judged.promised += u64::from(promised);
        judged.partly += u64::from(promised && dirty_from.is_some());
        judged.degraded += u64::from(media.is_degraded());
        if !right {
            let says =
                dirty_from.map_or("clean".to_owned(), |from| format!("dirty from {}", from.0));
            let what = if view.array.has_parity() {
                format!("the parity of column {column} is wrong")
            } else {
                format!("the copies of sector {column} differ")
            };
            let more = if promised { "" } else { "; no request was writing it" };
            found.push(Violation::new(
                NAME,
                format!("after the cut {what} and the array is {says}{more}"),
            ));
            break;
        }
    }
    judged
}
