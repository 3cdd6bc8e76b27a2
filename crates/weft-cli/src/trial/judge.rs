//! Score of a hypothesis: which disk fits which slot best, and how well all of them fit together.
//!
//! First each check is made on every column (`columns.rs`); the order of the disks is the
//! assignment of columns to slots under which most checks succeed (`order.rs`). Then the checks are
//! made again in that order, with missing members computed from the others, and parity is compared
//! where checks succeeded.

use std::collections::BTreeSet;

use weft_engine::layout::Layout;
use weft_parity::Parity;
use weft_units::{Sectors, Slot};

use super::columns::Columns;
use super::inside::{Check, Inside, LABEL, Landmark};
use super::order;
use super::shape::{GuessedShape, places};

/// Hypothesis: a geometry, and the place and kind of a file system in the array.
#[derive(Clone, Debug)]
pub(super) struct Hypothesis {
    pub(super) shape: GuessedShape,
    /// First byte of the data on each member.
    pub(super) offset: u64,
    /// First byte of the file system in the array.
    pub(super) start: u64,
    /// End of the space, in bytes of the array, in which the file system must lie.
    pub(super) end: u64,
    /// First byte in the array of the physical volume with the file system; `None` without LVM.
    pub(super) volume: Option<u64>,
    pub(super) inside: Inside,
}

/// A hypothesis with the order of the disks that fits it best, and its score.
#[derive(Clone, Debug)]
pub(super) struct Judged {
    pub(super) hypothesis: Hypothesis,
    /// Column in each slot, by slot.
    pub(super) order: Vec<usize>,
    /// Weight of the checks that succeeded minus that of those that failed, plus the number of
    /// places with right parity.
    pub(super) score: i64,
    /// Weight of the checks that succeeded, and of all checks.
    pub(super) hits: (u64, u64),
    /// Number of places with right parity, and of all places at which parity was compared.
    pub(super) parity: (u64, u64),
    /// Weight of the checks that succeeded, by slot and then by column.
    scores: Vec<Vec<u64>>,
}

/// Part of the bytes of a check that lies in one chunk: slot and first byte in the member's data of
/// each copy, and length of the part.
type Piece = (Vec<(usize, u64)>, usize);

impl Hypothesis {
    fn map(&self, columns: &Columns) -> Option<Layout> {
        self.shape.map(columns.smallest().checked_sub(self.offset)?)
    }

    /// Parts of the bytes of a check; empty if some of them are beyond the array or beyond `end`.
    fn pieces(&self, map: &Layout, check: &Check<Landmark>) -> Vec<Piece> {
        let of_volume = self.volume.filter(|_| check.what == Landmark::Label);
        let (mut byte, mut left) =
            (of_volume.unwrap_or(self.start).saturating_add(check.at), check.len);
        let mut pieces = Vec::new();
        if byte.saturating_add(left as u64) > self.end {
            return pieces;
        }
        while left > 0 {
            let room = usize::try_from(self.shape.left_in_chunk(byte)).unwrap_or(usize::MAX);
            let len = left.min(room);
            pieces.push((places(map, byte), len));
            byte += len as u64;
            left -= len;
        }
        let is_there = pieces.iter().all(|(places, _)| !places.is_empty());
        if is_there { pieces } else { Vec::new() }
    }

    /// Makes at most `checks_max` checks, including those that follow from checks that succeeded.
    /// `hold` makes one check, and returns its bytes if it succeeds.
    fn each(
        &self,
        map: &Layout,
        checks_max: usize,
        mut hold: impl FnMut(&Inside, &Check<Landmark>, &[Piece]) -> Option<Vec<u8>>,
    ) {
        let mut inside = self.inside.clone();
        let mut checks: Vec<Check<Landmark>> = self.volume.map(|_| LABEL).into_iter().collect();
        checks.extend(inside.checks());
        let mut done = 0;
        while let Some(check) = checks.get(done).cloned().filter(|_| done < checks_max) {
            done += 1;
            let pieces = self.pieces(map, &check);
            if !pieces.is_empty()
                && let Some(bytes) = hold(&inside, &check, &pieces)
                && checks.len() < checks_max
            {
                checks.extend(inside.further(&check.what, &bytes));
            }
        }
    }

    /// Makes checks on every column, and finds the order under which most of them succeed. `None`
    /// if none does, or the geometry does not fit the disks.
    pub(super) fn judge(self, columns: &Columns, checks_max: usize) -> Option<Judged> {
        let map = self.map(columns)?;
        let slots = self.shape.slots();
        let mut scores = vec![vec![0_u64; slots]; slots];
        let mut totals = vec![0_u64; slots];
        self.each(&map, checks_max, |inside, check, pieces| match pieces {
            [(places, len)] => {
                let mut found = None;
                for (slot, at) in places {
                    totals[*slot] += check.weight;
                    let mut is_held = vec![false; slots];
                    for source in 0..columns.sources(self.shape.parities()) {
                        let bytes = self.read(columns, source, *at, *len);
                        if let Some(bytes) = bytes.filter(|it| inside.holds(&check.what, it)) {
                            is_held[columns.column_of(source)] = true;
                            found = Some(bytes);
                        }
                    }
                    let scores = scores[*slot].iter_mut().zip(is_held);
                    scores.filter(|it| it.1).for_each(|(score, _)| *score += check.weight);
                }
                found
            }
            _ => {
                let heads: Vec<_> = pieces.iter().filter_map(|(it, _)| it.first()).collect();
                heads.iter().for_each(|(slot, _)| totals[*slot] += check.weight);
                let (chosen, bytes) = self.join(columns, inside, check, pieces, &scores)?;
                for ((slot, _), column) in heads.into_iter().zip(chosen) {
                    scores[*slot][column] += check.weight;
                }
                Some(bytes)
            }
        });
        let order = order::best(&scores);
        let hits = order.iter().enumerate().map(|(slot, column)| scores[slot][*column]).sum();
        // A missing member that cannot be computed from the others was not checked.
        let seen = |column: usize| columns.is_readable(column, self.shape.parities());
        let total = order.iter().zip(&totals).filter(|(it, _)| seen(**it)).map(|(_, it)| it).sum();
        let score = score(hits, total)?;
        let is_any = hits > 0;
        let judged =
            Judged { hypothesis: self, order, score, hits: (hits, total), parity: (0, 0), scores };
        is_any.then_some(judged)
    }

    fn read(&self, columns: &Columns, source: usize, at: u64, len: usize) -> Option<Vec<u8>> {
        columns.read(source, self.offset + at, len, self.shape.parities())
    }

    /// Finds a column for each part of a check, so that the bytes together are right. Columns that
    /// fit their slots best so far are tried first. Returns the columns and the bytes; `None` if no
    /// columns give right bytes.
    fn join(
        &self,
        columns: &Columns,
        inside: &Inside,
        check: &Check<Landmark>,
        pieces: &[Piece],
        scores: &[Vec<u64>],
    ) -> Option<(Vec<usize>, Vec<u8>)> {
        let mut choices = Vec::new();
        for (index, (places, len)) in pieces.iter().enumerate() {
            let (slot, at) = *places.first()?;
            let mut all: Vec<usize> = (0..columns.sources(self.shape.parities())).collect();
            all.sort_by_key(|it| std::cmp::Reverse(scores[slot][columns.column_of(*it)]));
            let bytes =
                |source| Some((columns.column_of(source), self.read(columns, source, at, *len)?));
            let is_start = |bytes: &[u8]| index > 0 || inside.begins(&check.what, bytes);
            let all = all.into_iter().filter_map(bytes).filter(|it| is_start(&it.1)).collect();
            choices.push((slot, all));
        }
        let mut join = Join { choices, chosen: Vec::new(), left: JOINS_MAX };
        let bytes = join.find(&|bytes| inside.holds(&check.what, bytes))?;
        let columns = join.chosen.iter().enumerate();
        Some((columns.map(|(it, index)| join.choices[it].1[*index].0).collect(), bytes))
    }
}

/// A column, and its bytes for a part of a check.
type Choice = (usize, Vec<u8>);

/// Search for a column for each part of a check.
struct Join {
    /// Slot of each part, and the columns that may be in it, with their bytes there.
    choices: Vec<(usize, Vec<Choice>)>,
    /// Index of the choice for each part that has one so far, from the first part on.
    chosen: Vec<usize>,
    /// Number of combinations that may still be tested.
    left: usize,
}

impl Join {
    /// Bytes of the first combination for which `is_right` holds; `None` if there is none. Parts in
    /// one slot are read from the same column, parts in different slots from different columns.
    fn find(&mut self, is_right: &dyn Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        let piece = self.chosen.len();
        if piece == self.choices.len() {
            self.left = self.left.saturating_sub(1);
            let all = self.choices.iter().zip(&self.chosen);
            let bytes: Vec<u8> = all.flat_map(|((_, all), it)| &all[*it].1).copied().collect();
            return Some(bytes).filter(|bytes| is_right(bytes));
        }
        for index in 0..self.choices[piece].1.len() {
            let (slot, column) = (self.choices[piece].0, self.choices[piece].1[index].0);
            let mut before = self.choices.iter().zip(&self.chosen);
            let fits = before.all(|((its, all), it)| (*its == slot) == (all[*it].0 == column));
            if !fits || self.left == 0 {
                continue;
            }
            self.chosen.push(index);
            if let Some(bytes) = self.find(is_right) {
                return Some(bytes);
            }
            self.chosen.pop();
        }
        None
    }
}

impl Judged {
    /// Makes at most `all` checks with the disks in their order, computes missing members and
    /// compares parity. Returns the result with the score of these checks. Before that, pairs of
    /// disks are exchanged where that improves the score of `few` checks. An exchange is tried for
    /// each pair that fits at least as well when exchanged, by the scores of its disks alone, and
    /// for all pairs if most of the parity is wrong.
    pub(super) fn confirm(mut self, columns: &Columns, few: usize, all: usize) -> Option<Self> {
        let map = self.hypothesis.map(columns)?;
        let slots = self.order.len();
        if !matches!(map, Layout::Parity(_)) {
            return self.in_order(columns, &map, all);
        }
        let fit = |slot: usize, column: usize| self.scores[slot][column];
        let judge = |order: &[usize]| {
            Self { order: order.to_vec(), ..self.clone() }.in_order(columns, &map, few)
        };
        let first = judge(&self.order)?;
        // Q depends on the order of the disks. If Q is mostly wrong, the disk that fits a slot best
        // may have strips of parity there that equal the data.
        let is_doubtful = self.hypothesis.shape.parities() == 2
            && first.parity.1 >= DOUBT_MIN
            && first.parity.0 * 2 < first.parity.1;
        // Among orders of one hypothesis, wrong parity counts against an order.
        let key = |it: &Self| it.score + it.parity.0.cast_signed() - it.parity.1.cast_signed();
        let mut best = key(&first);
        let mut order = first.order;
        for (a, b) in (0..slots).flat_map(|a| (a + 1..slots).map(move |b| (a, b))) {
            let (left, right) = (order[a], order[b]);
            let is_settled = fit(a, left) + fit(b, right) > fit(a, right) + fit(b, left);
            if is_settled && !is_doubtful {
                continue;
            }
            let mut other = order.clone();
            other.swap(a, b);
            if let Some(other) = judge(&other).filter(|it| key(it) > best) {
                best = key(&other);
                order = other.order;
            }
        }
        self.order = order;
        self.in_order(columns, &map, all)
    }

    fn in_order(&self, columns: &Columns, map: &Layout, checks_max: usize) -> Option<Self> {
        let ordered = Ordered { columns, map, order: &self.order, offset: self.hypothesis.offset };
        let (mut hits, mut total) = (0, 0);
        let mut sampled = BTreeSet::new();
        self.hypothesis.each(map, checks_max, |inside, check, pieces| {
            let copies = pieces.iter().map(|(places, _)| places.len()).min().unwrap_or(0);
            let mut found = None;
            for copy in 0..copies {
                let read =
                    |(places, len): &Piece| ordered.read(places[copy].0, places[copy].1, *len);
                let Some(bytes) = pieces.iter().map(read).collect::<Option<Vec<_>>>() else {
                    continue;
                };
                let bytes = bytes.concat();
                total += check.weight;
                if inside.holds(&check.what, &bytes) {
                    hits += check.weight;
                    sampled.extend(pieces.iter().map(|(places, _)| places[copy].1 / SAMPLE));
                    found = Some(bytes);
                }
            }
            found
        });
        let mut parity = (0, 0);
        // The samples are spread over all places: neighbouring places have parity on the same
        // members.
        let step = sampled.len().div_ceil(SAMPLES_MAX).max(1);
        for number in sampled.into_iter().step_by(step) {
            if let Some(is_right) = ordered.has_parity(number * SAMPLE) {
                parity = (parity.0 + u64::from(is_right), parity.1 + 1);
            }
        }
        // A resync after a mistake may have left wrong parity, so it does not lower the score.
        let score = score(hits, total)? + i64::try_from(parity.0).ok()?;
        Some(Self { score, hits: (hits, total), parity, ..self.clone() })
    }
}

/// Members of an array, with the disks in a given order.
struct Ordered<'a> {
    columns: &'a Columns,
    map: &'a Layout,
    order: &'a [usize],
    offset: u64,
}

impl Ordered<'_> {
    fn disk(&self, slot: usize, at: u64, len: usize) -> Option<Vec<u8>> {
        self.columns.disk(self.order[slot], self.offset + at, len)
    }

    /// Bytes of the member in a slot. Those of a missing member are computed with P; `None` if
    /// another member is missing too, or cannot be read.
    fn read(&self, slot: usize, at: u64, len: usize) -> Option<Vec<u8>> {
        if self.columns.is_disk(self.order[slot]) {
            return self.disk(slot, at, len);
        }
        let Layout::Parity(geometry) = self.map else { return None };
        let placement = geometry.placement(geometry.full_stripe_of(Sectors(at / 512)));
        let q = placement.q.map(|q| usize::from(q.0));
        let others = (0..self.order.len()).filter(|it| *it != slot && Some(*it) != q);
        self.columns.sum(others.map(|slot| self.order[slot]), self.offset + at, len)
    }

    /// Whether parity matches the data at byte `at` of the members' data; `None` without parity, or
    /// if too many members are missing to tell.
    fn has_parity(&self, at: u64) -> Option<bool> {
        let Layout::Parity(geometry) = self.map else { return None };
        let len = usize::try_from(SAMPLE).ok()?;
        let placement = geometry.placement(geometry.full_stripe_of(Sectors(at / 512)));
        let slots = 0..u16::try_from(self.order.len()).ok()?;
        let is_parity = |slot: &u16| Slot(*slot) == placement.p || Some(Slot(*slot)) == placement.q;
        let data: Option<Vec<(u8, Vec<u8>)>> = slots
            .filter(|slot| !is_parity(slot))
            .map(|slot| {
                let bytes = self.read(slot.into(), at, len)?;
                Some((placement.exponent(Slot(slot)), bytes))
            })
            .collect();
        let data = data?;
        let data: Vec<(u8, &[u8])> = data.iter().map(|(it, bytes)| (*it, &bytes[..])).collect();
        let (mut p, mut q) = (vec![0; len], vec![0; len]);
        let has_disk = |slot: Slot| self.columns.is_disk(self.order[usize::from(slot.0)]);
        let is_right = |slot: Slot, sum: &[u8]| Some(self.disk(slot.0.into(), at, len)? == sum);
        match placement.q {
            Some(slot) => {
                Parity::detect().pq(&data, &mut p, &mut q);
                // P was used to compute a missing member, so comparing P then proves nothing.
                match (has_disk(slot), has_disk(placement.p)) {
                    (true, true) => Some(is_right(slot, &q)? && is_right(placement.p, &p)?),
                    (true, false) => is_right(slot, &q),
                    (false, _) => None,
                }
            }
            None if self.order.iter().all(|it| self.columns.is_disk(*it)) => {
                let strips: Vec<&[u8]> = data.iter().map(|(_, bytes)| *bytes).collect();
                Parity::detect().xor(&strips, &mut p);
                is_right(placement.p, &p)
            }
            None => None,
        }
    }
}

/// Weight of the checks that succeeded minus that of those that failed, which is the rest of
/// `total`.
fn score(hits: u64, total: u64) -> Option<i64> {
    Some(2 * i64::try_from(hits).ok()? - i64::try_from(total).ok()?)
}

/// Size in bytes of a place at which parity is compared.
const SAMPLE: u64 = 4096;
/// Largest number of places at which parity is compared. [`DOUBT_MIN`] is the number of places from
/// which on wrong parity may cast doubt on an order.
const SAMPLES_MAX: usize = 64;
const DOUBT_MIN: u64 = 8;
/// Largest number of combinations of columns that are tested for one check.
const JOINS_MAX: usize = 1000;
