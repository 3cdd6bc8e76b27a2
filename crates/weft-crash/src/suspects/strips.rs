//! Content of one column, the values that reconstruction may give for its missing slots, and its
//! syndromes.

use std::collections::BTreeSet;

use weft_engine::layout::geometry::Placement;
use weft_parity::Parity;
use weft_units::{Sectors, Slot};

use crate::array::Array;
use crate::disk::Disk;

/// Difference between the stored parity and that of the members' data: P ⊕ P′ and Q ⊕ Q′.
/// The difference of a missing parity counts as zero.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Syndrome {
    /// Difference of the stored P from the P of the members' data.
    pub p: Vec<u8>,
    /// Difference of the stored Q from the Q of the members' data; empty if the level has no Q.
    pub q: Vec<u8>,
}

/// Content of one column, a sector on every member.
#[derive(Clone, Debug)]
pub struct Strips {
    pub(super) placement: Placement,
    /// Content by slot; `None` for a slot without a member in sync.
    pub(super) blocks: Vec<Option<Vec<u8>>>,
    pub(super) len: usize,
}

/// Values that reconstruction may give for one column.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// All values that may be reconstructed for slots that hold data and have no member.
    pub values: Vec<(Slot, Vec<u8>)>,
    /// Nonzero syndromes that the column may have after each slot in `values` was given one of its
    /// values.
    pub syndromes: BTreeSet<Syndrome>,
}

pub(super) fn zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Adds gᵏ times `strip`, with k = `exponent`, to `to`.
pub(super) fn add_multiple(exponent: u8, strip: &[u8], to: &mut [u8]) {
    let zeros = vec![0; strip.len()];
    Parity::detect().update_pq(exponent, &zeros, strip, None, Some(to));
}

impl Syndrome {
    pub(super) fn is_zero(&self) -> bool {
        zero(&self.p) && zero(&self.q)
    }

    /// Syndrome after `error` is added (XOR) to the data of a slot, which is given by its exponent.
    pub(super) fn after(&self, exponent: u8, error: &[u8]) -> Self {
        let mut after = self.clone();
        after.take_away(exponent, error);
        after
    }

    pub(super) fn take_away(&mut self, exponent: u8, data: &[u8]) {
        Parity::detect().xor_into(&mut self.p, data);
        if !self.q.is_empty() {
            add_multiple(exponent, data, &mut self.q);
        }
    }

    /// Error that this syndrome causes in a slot, given by its exponent, that is reconstructed from
    /// Q.
    pub(super) fn by_q(&self, exponent: u8) -> Vec<u8> {
        let mut error = vec![0; self.q.len()];
        Parity::detect().recover_data_from_q(&[], &self.q, exponent, &mut error);
        error
    }

    /// Errors that this syndrome causes in two slots, given by their exponents, that are
    /// reconstructed together from P and Q.
    pub(super) fn of_two(&self, a: u8, b: u8) -> (Vec<u8>, Vec<u8>) {
        let (mut of_a, mut of_b) = (vec![0; self.p.len()], vec![0; self.p.len()]);
        Parity::detect().recover_two(&[], &self.p, &self.q, a, b, &mut of_a, &mut of_b);
        (of_a, of_b)
    }
}

impl Strips {
    /// Reads the content of a column from the disks, without regard to read errors. `disk_of` gives
    /// the number of the disk at a slot, or `None` if the slot has no member.
    #[must_use]
    pub fn read(
        array: &Array,
        disks: &[Disk],
        column: u64,
        disk_of: impl Fn(Slot) -> Option<usize>,
    ) -> Self {
        let geometry = array.geometry();
        let placement = geometry.placement(geometry.full_stripe_of(Sectors(column)));
        let block = |slot: u16| {
            let disk = disk_of(Slot(slot))?;
            Some(disks[disk].peek(column + array.data_offset[disk].0, 1))
        };
        let len = disks.first().map_or(0, |disk| disk.sector_bytes(array.data_offset[0].0));
        Self { placement, blocks: (0..geometry.members()).map(block).collect(), len }
    }

    /// Content of the column at a slot; `None` if the slot has no member.
    #[must_use]
    pub fn at(&self, slot: Slot) -> Option<&[u8]> {
        self.blocks[slot.index()].as_deref()
    }

    pub(super) fn data_slots(&self) -> Vec<Slot> {
        data_slots(&self.placement, self.blocks.len() as u16)
    }

    /// Values that may be reconstructed for data slots without a member, and the syndromes that may
    /// follow. There are no values if too many members are missing.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let (has_p, q) = (self.at(self.placement.p).is_some(), self.placement.q);
        let has_q = q.is_some_and(|q| self.at(q).is_some());
        let parity = |slot: Option<Slot>| {
            let block = slot.and_then(|slot| self.at(slot));
            block.map_or_else(|| vec![0; self.len], <[u8]>::to_vec)
        };
        let q_block = if q.is_some() { parity(q) } else { Vec::new() };
        let mut rest = Syndrome { p: parity(Some(self.placement.p)), q: q_block };
        let (mut missing, exponent) = (Vec::new(), |slot| self.placement.exponent(slot));
        for slot in self.data_slots() {
            match self.at(slot) {
                Some(block) => rest.take_away(exponent(slot), block),
                None => missing.push(slot),
            }
        }
        let known = |mut syndrome: Syndrome| {
            if !has_p {
                syndrome.p.fill(0);
            }
            if !has_q {
                syndrome.q.fill(0);
            }
            syndrome
        };
        let mut outcome = Outcome::default();
        match missing[..] {
            [] => outcome.syndromes.extend([known(rest)]),
            [slot] => {
                let by_p = has_p.then(|| rest.p.clone());
                let by_q = has_q.then(|| rest.by_q(exponent(slot)));
                for value in by_p.into_iter().chain(by_q) {
                    outcome.syndromes.insert(known(rest.after(exponent(slot), &value)));
                    outcome.values.push((slot, value));
                }
            }
            [a, b] if has_p && has_q => {
                let (of_a, of_b) = rest.of_two(exponent(a), exponent(b));
                outcome.values.extend([(a, of_a), (b, of_b)]);
            }
            _ => {}
        }
        outcome.syndromes.retain(|syndrome| !syndrome.is_zero());
        outcome
    }
}

pub(super) fn data_slots(placement: &Placement, members: u16) -> Vec<Slot> {
    (0..members).map(Slot).filter(|slot| placement.data_index(*slot).is_some()).collect()
}

/// Returns the given syndromes and all syndromes that may result when one parity, or the
/// reconstructed data of one slot, is rewritten. Without a Q, only the given syndromes are
/// returned; with a Q, syndromes of zero are left out.
pub(super) fn closure(
    placement: &Placement,
    members: u16,
    syndromes: &BTreeSet<Syndrome>,
) -> BTreeSet<Syndrome> {
    let mut states = syndromes.clone();
    if placement.q.is_none() {
        return states;
    }
    for syndrome in syndromes {
        let nothing = vec![0; syndrome.p.len()];
        states.insert(Syndrome { q: nothing.clone(), ..syndrome.clone() });
        states.insert(Syndrome { p: nothing, ..syndrome.clone() });
        for slot in data_slots(placement, members) {
            for error in errors_by(placement, members, syndrome, slot) {
                states.insert(syndrome.after(placement.exponent(slot), &error));
            }
        }
    }
    states.retain(|syndrome| !syndrome.is_zero());
    states
}

/// XOR differences that a syndrome can cause in the reconstructed content of a slot.
pub(super) fn errors_by(
    placement: &Placement,
    members: u16,
    syndrome: &Syndrome,
    slot: Slot,
) -> Vec<Vec<u8>> {
    let mut errors = vec![syndrome.p.clone()];
    if placement.q.is_some() {
        let own = placement.exponent(slot);
        errors.push(syndrome.by_q(own));
        let others = data_slots(placement, members).into_iter().filter(|other| *other != slot);
        errors.extend(others.map(|other| syndrome.of_two(own, placement.exponent(other)).0));
    }
    errors.retain(|error| !zero(error));
    errors
}
