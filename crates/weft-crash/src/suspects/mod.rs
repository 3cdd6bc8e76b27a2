//! Suspect columns: sectors of a stripe about which members disagree, and the values that a read
//! may return.
//!
//! A power cut, a process crash or a write that a member refuses can leave data and parity from
//! different times (the write hole). While every member can be read, reads do not show the
//! disagreement. Content that is reconstructed in such a column is wrong, but not arbitrary: it
//! follows from the parity relation and the content of the members:
//!
//! ```text
//!   data D₀ D₁ D₂ as on the members; each is some version that was written
//!   parity P Q each is computed from some choice of versions, not always the same one
//!   syndrome  P ⊕ D₀⊕D₁⊕D₂,  Q ⊕ g⁰D₀⊕g¹D₁⊕g²D₂
//!   D₁ lost   reads as D₁ ⊕ error, where the error solves the syndrome
//! ```
//!
//! The columns are therefore measured after each cut instead of being guessed. A column with
//! members that agree is not suspect. Otherwise its parity must be that of *some* choice of
//! versions, and its syndrome is kept: if a slot is lost from then on, its reconstructed content
//! may be wrong by the errors that the syndrome can cause, and by no others. Read-modify-write
//! keeps the syndrome; a full-stripe write, a resync or a rebuild makes it zero. Each column is
//! measured again after a write to it was answered, and stops being suspect as soon as its members
//! agree, independently of other columns.
//!
//! Mirrors are a simpler case: if copies differ, an error is the difference between two copies, and
//! it may become visible once the copy that was read is lost.
//!
//! Source   spec reliability.md §3 (P5), §5 (I1, I2, I3, I6, I7); H. P. Anvin, "The mathematics of
//!          RAID-6", §4

mod strips;

use std::collections::{BTreeMap, BTreeSet};

use weft_units::{Sectors, Slot};

use crate::array::Array;
use crate::model::Model;
pub use strips::{Outcome, Strips, Syndrome};
use strips::{add_multiple, closure, data_slots, errors_by};

/// Columns in which members disagree, or may disagree after a cut. A column is a set of sectors
/// that have to agree: with parity one sector at every slot, otherwise each copy of one array
/// sector.
#[derive(Clone, Debug, Default)]
pub struct Suspects {
    columns: BTreeMap<u64, Suspect>,
}

#[derive(Clone, Debug, Default)]
struct Suspect {
    /// Slots that were missing or unreadable at any time since the column became suspect. Content
    /// that was reconstructed for them stays on the media even after they have members again.
    lost: BTreeSet<u16>,
    syndromes: BTreeSet<Syndrome>,
    /// For a mirror with different copies: slot of the copy that is read; `None` in all other
    /// columns.
    preferred: Option<u16>,
    /// Whether a member refused a write to the column. The members of an open column are compared
    /// each time no write to the column is outstanding.
    open: bool,
    /// Whether the members of the column agree at present, but would disagree if a power cut
    /// brought back older content.
    dormant: bool,
}

/// Whether the parity that was found follows from some choice of written versions, one for each
/// data sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Explained {
    /// Some choice of versions explains the parity.
    Yes,
    /// There are too many choices to try.
    TooMany,
    /// No choice of versions explains the parity.
    No,
}

/// Largest number of combinations of versions that are tried for one column.
const CHOICES_MAX: usize = 4096;

fn xor(a: &[u8], b: &[u8]) -> Vec<u8> {
    a.iter().zip(b).map(|(a, b)| a ^ b).collect()
}

impl Suspects {
    /// Numbers of all recorded columns, including dormant ones, in which members agree at present.
    pub fn columns(&self) -> impl Iterator<Item = u64> {
        self.columns.keys().copied()
    }

    /// Whether no columns are recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Whether the members of a column disagree, or may disagree.
    #[must_use]
    pub fn contains(&self, column: u64) -> bool {
        self.columns.get(&column).is_some_and(|suspect| !suspect.dormant)
    }

    /// Adds syndromes to a column. The slots in `missing` have no member now.
    pub fn insert(
        &mut self,
        column: u64,
        syndromes: BTreeSet<Syndrome>,
        missing: impl IntoIterator<Item = u16>,
    ) {
        let suspect = self.columns.entry(column).or_default();
        suspect.dormant = false;
        suspect.syndromes.extend(syndromes);
        suspect.lost.extend(missing);
    }

    /// Adds a column of a mirror, with copies that differ by `by` (XOR). The copy at `preferred` is
    /// read until the copies agree.
    pub fn insert_copies(&mut self, column: u64, by: BTreeSet<Vec<u8>>, preferred: Slot) {
        let nothing = Vec::new();
        let syndromes = by.into_iter().map(|p| Syndrome { p, q: nothing.clone() }).collect();
        self.insert(column, syndromes, []);
        self.columns.entry(column).or_default().preferred = Some(preferred.0);
    }

    /// Slot of the copy that is read, if the copies of a column differ; `None` otherwise.
    #[must_use]
    pub fn preferred(&self, column: u64) -> Option<Slot> {
        self.columns.get(&column)?.preferred.map(Slot)
    }

    /// Adds a column in which members may disagree because a member refused a write. The slots in
    /// `missing` have no member now.
    pub fn open(&mut self, column: u64, missing: impl IntoIterator<Item = u16>) {
        self.insert(column, BTreeSet::new(), missing);
        self.columns.entry(column).or_default().open = true;
    }

    /// Whether a column was added by [`Self::open`], because a member refused a write to it, and
    /// was not cleared since.
    #[must_use]
    pub fn is_open(&self, column: u64) -> bool {
        self.columns.get(&column).is_some_and(|suspect| suspect.open)
    }

    /// Records that a slot has no member from now on.
    pub fn lose(&mut self, slot: u16) {
        self.columns.values_mut().for_each(|suspect| _ = suspect.lost.insert(slot));
    }

    /// Records that the member at a slot cannot read its sector of a column.
    pub fn lose_at(&mut self, slot: u16, column: u64) {
        if let Some(suspect) = self.columns.get_mut(&column) {
            suspect.lost.insert(slot);
        }
    }

    /// Slots that were missing or unreadable at a column since it became suspect.
    #[must_use]
    pub fn lost(&self, column: u64) -> Vec<Slot> {
        let suspect = self.columns.get(&column);
        suspect.map_or_else(Vec::new, |suspect| suspect.lost.iter().copied().map(Slot).collect())
    }

    /// Records that the members of a column agree. If their content is not yet `durable`, a power
    /// cut may undo the agreement, and the column is kept as dormant.
    pub fn clear(&mut self, column: u64, durable: bool) {
        if durable {
            self.columns.remove(&column);
        } else if let Some(suspect) = self.columns.get_mut(&column) {
            (suspect.open, suspect.dormant) = (false, true);
        }
    }

    /// Removes and returns all columns, so that their members can be compared again.
    #[must_use]
    pub fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Adds the lost slots and syndromes that `before` has for a column, because a power cut may
    /// still undo the column's present content.
    pub fn remember(&mut self, before: &Self, column: u64) {
        let Some(old) = before.columns.get(&column) else { return };
        match self.columns.get_mut(&column) {
            Some(suspect) => {
                suspect.lost.extend(&old.lost);
                suspect.syndromes.extend(old.syndromes.iter().cloned());
            }
            None => {
                let suspect = Suspect { open: false, dormant: true, ..old.clone() };
                self.columns.insert(column, suspect);
            }
        }
    }

    /// XOR differences by which the content of a slot may be wrong, if the slot was lost while the
    /// column was suspect; empty if it was not lost.
    #[must_use]
    pub fn errors(&self, array: &Array, column: u64, slot: Slot) -> Vec<Vec<u8>> {
        match self.columns.get(&column) {
            // For a mirror, only the loss of the copy that was read counts.
            Some(suspect)
                if !suspect.dormant
                    && suspect.lost.contains(&suspect.preferred.unwrap_or(slot.0)) =>
            {
                self.errors_if_lost(array, column, slot)
            }
            _ => Vec::new(),
        }
    }

    /// Variant of [`Self::errors`] that assumes that the slot was lost.
    #[must_use]
    pub fn errors_if_lost(&self, array: &Array, column: u64, slot: Slot) -> Vec<Vec<u8>> {
        let Some(suspect) = self.columns.get(&column) else { return Vec::new() };
        let Some(geometry) = array.layout.parity() else {
            return suspect.syndromes.iter().map(|by| by.p.clone()).collect();
        };
        let mut errors = BTreeSet::new();
        let placement = geometry.placement(geometry.full_stripe_of(Sectors(column)));
        for syndrome in closure(&placement, geometry.members(), &suspect.syndromes) {
            errors.extend(errors_by(&placement, geometry.members(), &syndrome, slot));
        }
        errors.into_iter().collect()
    }

    /// Whether each parity that is present, P or Q, follows from some choice of versions, or
    /// differs from such a parity by a known syndrome. `No` if one of them is not explained;
    /// otherwise `TooMany` if one of them has too many choices to try.
    #[must_use]
    pub fn explains(
        &self,
        array: &Array,
        column: u64,
        strips: &Strips,
        model: &Model,
    ) -> Explained {
        let (placement, members) = (&strips.placement, array.members());
        let known = self.columns.get(&column).map(|it| closure(placement, members, &it.syndromes));
        let known = known.unwrap_or_default();
        let mut sets = Vec::new();
        for slot in data_slots(placement, members) {
            let sector = array.array_sector(slot, column).expect("the slot holds data");
            let (written, mixed) = model.choices(sector);
            let mut contents = written.clone();
            // Content of a lost slot may have been reconstructed wrongly, and parity computed from
            // the result.
            for error in self.errors(array, column, slot) {
                contents.extend(written.iter().map(|it| xor(it, &error)));
            }
            sets.push((placement.exponent(slot), (contents, mixed)));
        }
        let mixed = sets.iter().any(|(_, (_, mixed))| *mixed);
        let sets: Vec<(u8, Vec<Vec<u8>>)> =
            sets.into_iter().map(|(exponent, (contents, _))| (exponent, contents)).collect();
        let mut explained = Explained::Yes;
        let parities = [(Some(placement.p), false), (placement.q, true)];
        for (slot, is_q) in parities {
            let Some(found) = slot.and_then(|slot| strips.at(slot)) else { continue };
            let mut residues: BTreeSet<Vec<u8>> =
                known.iter().map(|it| if is_q { it.q.clone() } else { it.p.clone() }).collect();
            residues.insert(vec![0; found.len()]);
            match is_chosen(found, &sets, is_q, mixed, &residues) {
                Explained::Yes => {}
                Explained::TooMany => explained = Explained::TooMany,
                Explained::No => return Explained::No,
            }
        }
        explained
    }
}

/// Whether a parity follows from one content of each of the `sets`, or differs from such a parity
/// by one of `residues`. With `by_byte`, each byte of a content may be taken from any content of
/// its set.
fn is_chosen(
    found: &[u8],
    sets: &[(u8, Vec<Vec<u8>>)],
    is_q: bool,
    by_byte: bool,
    residues: &BTreeSet<Vec<u8>>,
) -> Explained {
    if by_byte {
        let byte = |at: usize, all: &[Vec<u8>]| -> Vec<Vec<u8>> {
            all.iter()
                .map(|content| vec![content[at]])
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect()
        };
        let residues: Vec<Vec<u8>> = residues.iter().cloned().collect();
        return (0..found.len())
            .map(|at| {
                let sets: Vec<(u8, Vec<Vec<u8>>)> =
                    sets.iter().map(|(exponent, all)| (*exponent, byte(at, all))).collect();
                let residues = byte(at, &residues).into_iter().collect();
                is_chosen(&found[at..=at], &sets, is_q, false, &residues)
            })
            .find(|explained| *explained != Explained::Yes)
            .unwrap_or(Explained::Yes);
    }
    let mut rests = BTreeSet::from([found.to_vec()]);
    for (exponent, contents) in sets {
        let mut after = BTreeSet::new();
        for rest in &rests {
            for content in contents {
                let mut rest = rest.clone();
                match is_q {
                    true => add_multiple(*exponent, content, &mut rest),
                    false => rest = xor(&rest, content),
                }
                after.insert(rest);
            }
            if after.len() > CHOICES_MAX {
                return Explained::TooMany;
            }
        }
        rests = after;
    }
    if rests.is_disjoint(residues) { Explained::No } else { Explained::Yes }
}

#[cfg(test)]
mod tests {
    use weft_engine::layout::Layout;
    use weft_engine::layout::geometry::Geometry;
    use weft_ondisk::Level;
    use weft_units::rng::Rng;

    use super::strips::zero;
    use super::*;

    const LEN: usize = 16;

    /// An array, and the strips of one column with random content, in which parity does not match
    /// the data.
    fn torn(level: Level, members: u16, rng: &mut Rng) -> (Array, Strips) {
        let geometry = Geometry::new(level, 2, members.into(), Sectors(8), Sectors(64)).unwrap();
        let placement = geometry.placement(geometry.full_stripe_of(Sectors(0)));
        let block = |rng: &mut Rng| -> Vec<u8> { (0..LEN).map(|_| rng.below(256) as u8).collect() };
        let data_offset = vec![Sectors(8); members.into()];
        let blocks = (0..members).map(|_| Some(block(rng))).collect();
        (Array::new(Layout::Parity(geometry), data_offset), Strips { placement, blocks, len: LEN })
    }

    fn without(strips: &Strips, slots: &[Slot]) -> Strips {
        let mut strips = strips.clone();
        slots.iter().for_each(|slot| strips.blocks[slot.index()] = None);
        strips
    }

    /// For every set of lost slots, each reconstructed value is the content of its slot, or differs
    /// from it by a listed error.
    #[test]
    fn errors_are_those_that_reconstruction_makes() {
        let mut rng = Rng::new(7);
        let (mut wrong, mut compared) = (0, 0);
        for (level, members) in
            [(Level::Raid5, 3), (Level::Raid5, 5), (Level::Raid6, 4), (Level::Raid6, 6)]
        {
            let (array, strips) = torn(level, members, &mut rng);
            let mut suspects = Suspects::default();
            suspects.insert(0, strips.outcome().syndromes, 0..members);
            assert!(suspects.contains(0));
            let slots: Vec<Slot> = (0..members).map(Slot).collect();
            for (a, b) in slots.iter().flat_map(|a| slots.iter().map(move |b| (*a, *b))) {
                if a != b && level != Level::Raid6 {
                    continue;
                }
                for (slot, value) in without(&strips, &[a, b]).outcome().values {
                    let errors = suspects.errors(&array, 0, slot);
                    let error = xor(&value, strips.at(slot).unwrap());
                    assert!(
                        zero(&error) || errors.contains(&error),
                        "{level} {a:?} {b:?} {slot:?}"
                    );
                    compared += 1;
                    wrong += u32::from(!zero(&error));
                }
            }
        }
        // The errors are not merely allowed: every reconstruction is wrong.
        assert!(wrong > 40 && wrong == compared, "{wrong} of {compared}");
    }

    /// A slot is reconstructed wrongly from P and the result is stored, which makes Q wrong. The
    /// slots that are lost next have the errors that follow from this Q.
    #[test]
    fn errors_that_stay_make_others() {
        let (array, strips) = torn(Level::Raid6, 6, &mut Rng::new(8));
        let mut suspects = Suspects::default();
        suspects.insert(0, strips.outcome().syndromes, 0..6);
        let data = strips.data_slots();
        let (_, by_p) = without(&strips, &data[..1]).outcome().values.swap_remove(0);
        let mut rebuilt = strips.clone();
        rebuilt.blocks[data[0].index()] = Some(by_p);
        let lost = [data[1], data[2]];
        for (slot, value) in without(&rebuilt, &lost).outcome().values {
            let error = xor(&value, strips.at(slot).unwrap());
            assert!(suspects.errors(&array, 0, slot).contains(&error), "{slot:?}");
        }
    }

    #[test]
    fn a_slot_that_was_not_lost_has_no_excuse_and_neither_has_a_column_that_agrees() {
        let (array, strips) = torn(Level::Raid5, 3, &mut Rng::new(9));
        let slot = strips.data_slots()[0];
        let mut suspects = Suspects::default();
        suspects.insert(0, strips.outcome().syndromes, []);
        suspects.insert(1, strips.outcome().syndromes, []);
        assert_eq!(suspects.errors(&array, 0, slot).len(), 0);
        suspects.lose_at(slot.0, 0);
        assert_eq!(suspects.errors(&array, 0, slot).len(), 1);
        assert_eq!(suspects.errors(&array, 1, slot).len(), 0, "another column");
        suspects.lose(slot.0);
        assert_eq!(suspects.errors(&array, 1, slot).len(), 1);
        suspects.clear(0, true);
        assert_eq!(suspects.errors(&array, 0, slot).len(), 0);
        assert_eq!(suspects.errors(&array, 1, slot).len(), 1, "each on its own");
        suspects.clear(1, false);
        assert_eq!(suspects.errors(&array, 1, slot).len(), 0, "members agree, though not durably");
        assert_eq!(suspects.columns().count(), 1);
    }

    #[test]
    fn parity_is_of_some_choice_of_versions_or_of_none() {
        for level in [Level::Raid5, Level::Raid6] {
            let (_, strips) = torn(level, 5, &mut Rng::new(10));
            let (zeros, mut rng) = (vec![0; LEN], Rng::new(11));
            let mut block = || -> Vec<u8> { (0..LEN).map(|_| rng.below(256) as u8).collect() };
            let sets: Vec<(u8, Vec<Vec<u8>>)> = strips
                .data_slots()
                .into_iter()
                .map(|slot| {
                    (strips.placement.exponent(slot), vec![zeros.clone(), block(), block()])
                })
                .collect();
            let none = BTreeSet::from([zeros.clone()]);
            for is_q in [false, true] {
                let mut parity = zeros.clone();
                for (index, (exponent, contents)) in sets.iter().enumerate() {
                    match is_q {
                        true => add_multiple(*exponent, &contents[index % 3], &mut parity),
                        false => parity = xor(&parity, &contents[index % 3]),
                    }
                }
                let chosen = |parity: &[u8], by_byte, residues: &BTreeSet<Vec<u8>>| {
                    is_chosen(parity, &sets, is_q, by_byte, residues)
                };
                assert_eq!(chosen(&parity, false, &none), Explained::Yes);
                assert_eq!(chosen(&parity, true, &none), Explained::Yes);
                parity[3] ^= 1;
                assert_eq!(chosen(&parity, false, &none), Explained::No, "{level} {is_q}");
                let mut residue = zeros.clone();
                residue[3] = 1;
                let known = BTreeSet::from([zeros.clone(), residue]);
                assert_eq!(
                    chosen(&parity, false, &known),
                    Explained::Yes,
                    "the residue was known before"
                );
            }
        }
        let many: Vec<Vec<u8>> = (0..70).map(|byte| vec![byte; 2]).collect();
        let sets = [(0, many.clone()), (1, many.iter().map(|it| vec![it[0], 0]).collect())];
        let none = BTreeSet::from([vec![0; 2]]);
        assert_eq!(is_chosen(&[1, 1], &sets, false, false, &none), Explained::TooMany);
    }
}
