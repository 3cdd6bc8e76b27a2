//! Page mapping and garbage collection of a solid-state drive.
//!
//! The mapping is by page, in the form of a log. Its unit is the *slot*: 4 KiB of flash. The slots
//! that one program writes on all planes of a die are a *superpage*. One superpage of each die is a
//! *row*, which stands for a block of the whole drive: it is filled in order, and collected and
//! erased as a whole.
//!
//! ```text
//!                die 0         die 1              die D-1
//!     row r   │ s s s s s s s s │ s s s s s s s s │ … │ s s s s s s s s │   a superpage each
//! ```
//!
//! Once few rows are free, each host slot that is written pays for moving its share of the row with
//! the most garbage (greedy), so that collection keeps pace and never stops the drive. Recently
//! filled rows are left alone, up to half of the spare rows, so that slots which are overwritten
//! repeatedly have become garbage by the time such a row is considered. With writes all over the
//! drive this changes nothing: a young row has the least garbage anyway.
//!
//! **Scaled.** A map of a whole drive would need a byte of memory for each KiB of it. Only
//! `simulated` pages are mapped; regions of 1 MiB of the drive's addresses are folded onto them in
//! order, several onto one. This preserves the properties that determine how many slots are moved:
//! the share of the drive that is written, whether at random or in order, and the
//! over-provisioning. It does not preserve which of two regions that fold onto one holds data (so a
//! discard counts only if it covers all regions of a fold), nor random writes of units near the
//! size of a row, 1 to 2 MiB, which here make garbage of whole rows and in a real drive do not.
//!
//! In a fresh drive all rows of the whole drive are free: until as much as the whole drive holds
//! has been written, collection in the scaled map costs nothing.
//!
//! Source   `experiments.md` §2.2; greedy collection as in every page-level model since
//!          Hu, Eleftheriou, Haas, Iliadis, Pletka, "Write amplification analysis", SYSTOR 2009

use super::buckets::Buckets;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use weft_units::rng::Rng;

/// Marker for no page, no slot or no row.
pub(super) const NONE: u32 = u32::MAX;
/// Number of pages in a region, 1 MiB.
const REGION: u64 = 256;
/// Number of rows that collection keeps free, in addition to the two that are being filled.
const RESERVE: usize = 4;
/// Number of mappings in steady state that are kept for further drives, of some 9 MB each.
const KEPT: usize = 4;

/// Sizes of a mapping, in pages and slots of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::drive) struct MappingGeometry {
    /// Number of pages of the drive.
    pub(in crate::drive) pages: u64,
    /// Number of pages that are mapped, a multiple of those of a region.
    pub(in crate::drive) simulated: u64,
    /// Number of slots in addition to the mapped pages, in thousandths of these.
    pub(in crate::drive) over_provisioning: u32,
    /// Number of dies.
    pub(in crate::drive) dies: u32,
    /// Number of slots in a superpage.
    pub(in crate::drive) superpage: u32,
    /// Number of random rows among which collection chooses; zero to choose among all (greedy).
    pub(in crate::drive) choices: u32,
}

impl MappingGeometry {
    fn row(&self) -> u32 {
        self.dies * self.superpage
    }

    fn rows(&self) -> u32 {
        let slots = self.simulated + self.simulated * u64::from(self.over_provisioning) / 1_000;
        // Any shape has room for the rows that are being filled and those that are kept free.
        let least = self.simulated.div_ceil(u64::from(self.row())) + RESERVE as u64 + 3;
        slots.div_ceil(u64::from(self.row())).max(least) as u32
    }

    /// Mapped page onto which a page of the drive is folded, and the number of the region of the
    /// drive that contains the page.
    fn fold(&self, page: u64) -> (usize, u64) {
        let region = page / REGION;
        let folded = if self.simulated >= self.pages {
            region
        } else {
            let regions = self.pages.div_ceil(REGION);
            (u128::from(region) * u128::from(self.simulated / REGION) / u128::from(regions)) as u64
        };
        ((folded * REGION + page % REGION) as usize, region)
    }
}

/// Work of the dies that a write to the mapping causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Programs a superpage of the host's data, of which `padding` slots are empty.
    Program { die: u32, padding: u32 },
    /// Reads this number of slots of a die, to move them.
    Read { die: u32, slots: u32 },
    /// Programs a superpage of moved slots.
    Move { die: u32 },
    /// Erases a row, which is one of the many that make up a block of the flash.
    Erase,
}

/// Mapping of a drive's pages to slots, with garbage collection.
#[derive(Clone, Debug)]
pub(in crate::drive) struct Mapping {
    shape: MappingGeometry,
    /// By mapped page: its slot, or [`NONE`].
    slots: Vec<u32>,
    /// By slot: its mapped page, or [`NONE`].
    pages: Vec<u32>,
    /// By row: number of its valid slots.
    valid: Vec<u32>,
    /// Full rows by their number of valid slots, without the young ones.
    full: Buckets,
    /// Recently filled rows, oldest first, which collection leaves alone while other rows have
    /// garbage. There are at most `young_most` of them.
    young: VecDeque<u32>,
    young_most: usize,
    free: VecDeque<u32>,
    /// Row that the host's slots fill. `moved` is the row that moved slots fill.
    host: Head,
    moved: Head,
    victim: Option<Victim>,
    /// Number of the victim's slots that are due to be moved, multiplied by the victim's `garbage`,
    /// so that fractions add up.
    debt: u64,
    /// Number of slots that may still be written before collection costs anything.
    unused: u64,
    rng: Rng,
}

/// A row that is being filled, and its next slot.
#[derive(Clone, Copy, Debug)]
struct Head {
    row: u32,
    next: u32,
}

/// A row that garbage collection is emptying, and its next slot.
#[derive(Clone, Copy, Debug)]
struct Victim {
    row: u32,
    next: u32,
    /// Number of the row's valid slots when it was chosen. `garbage` is the number of its other
    /// slots then.
    valid: u32,
    garbage: u32,
}

impl Mapping {
    /// A mapping in which no page is mapped and all rows are free.
    pub(super) fn fresh(shape: MappingGeometry) -> Self {
        let rows = shape.rows();
        let mut free: VecDeque<u32> = (0..rows).collect();
        let mut head = || Head { row: free.pop_front().expect("free rows exist"), next: 0 };
        let (host, moved) = (head(), head());
        let whole = shape.pages + shape.pages * u64::from(shape.over_provisioning) / 1_000;
        Self {
            shape,
            slots: vec![NONE; shape.simulated as usize],
            pages: vec![NONE; (rows * shape.row()) as usize],
            valid: vec![0; rows as usize],
            full: Buckets::new(rows, shape.row()),
            young: VecDeque::new(),
            young_most: (rows as usize
                - shape.simulated.div_ceil(u64::from(shape.row())) as usize
                - RESERVE
                - 2)
                / 2,
            free,
            host,
            moved,
            victim: None,
            debt: 0,
            unused: whole,
            rng: Rng::new(0x0f17),
        }
    }

    /// The mapping after everything was written once in order and twice at random, page by page.
    /// Making such a mapping takes a quarter of a second, so those of the last four shapes are
    /// kept.
    pub(super) fn steady(shape: MappingGeometry) -> Self {
        static STEADY: Mutex<Vec<(MappingGeometry, Arc<OnceLock<Mapping>>)>> =
            Mutex::new(Vec::new());
        let steady = {
            let mut kept = STEADY.lock().unwrap_or_else(PoisonError::into_inner);
            let at = kept.iter().position(|(of, _)| *of == shape);
            let found = at.map_or_else(|| (shape, Arc::default()), |at| kept.remove(at));
            kept.truncate(KEPT - 1);
            kept.insert(0, found);
            Arc::clone(&kept[0].1)
        };
        steady.get_or_init(|| Self::written(shape)).clone()
    }

    fn written(shape: MappingGeometry) -> Self {
        let mut mapping = Self::fresh(shape);
        mapping.unused = 0;
        let mut nothing = |_: Work| {};
        let mut rng = Rng::new(0x57ea_d700);
        for page in 0..shape.simulated as usize {
            mapping.put(page, &mut nothing);
        }
        for _ in 0..2 * shape.simulated {
            let page = rng.below(shape.simulated) as usize;
            mapping.put(page, &mut nothing);
        }
        mapping
    }

    /// Sets the generator of the random numbers with which garbage collection chooses rows.
    pub(super) fn seeded(mut self, rng: Rng) -> Self {
        self.rng = rng;
        self
    }

    /// Writes a page of the drive. Calls `work` for each operation of the dies that the write
    /// requires.
    pub(super) fn write(&mut self, page: u64, work: &mut impl FnMut(Work)) {
        let (page, _) = self.shape.fold(page);
        self.put(page, work);
    }

    /// Pads the superpage that the host's slots have begun, if any, so that it can be programmed.
    pub(super) fn pad(&mut self, work: &mut impl FnMut(Work)) {
        let begun = self.host.next % self.shape.superpage;
        if begun > 0 {
            let padding = self.shape.superpage - begun;
            self.host.next += padding;
            let die = (self.host.next - 1) / self.shape.superpage;
            work(Work::Program { die, padding });
            self.full_host(work);
            self.collect(padding, work);
        }
    }

    /// Die from which a page of the drive is read. A page that was never written is read as if all
    /// pages had been written in order.
    pub(super) fn die(&self, page: u64) -> u32 {
        let (mapped, region) = self.shape.fold(page);
        let dies = u64::from(self.shape.dies);
        let at = match self.slots[mapped] {
            NONE => page / u64::from(self.shape.superpage),
            // Regions that fold onto the same one are on different dies.
            slot => u64::from(slot % self.shape.row() / self.shape.superpage) + region,
        };
        (at % dies) as u32
    }

    /// Discards the pages of the drive from `first` to `end`.
    pub(super) fn discard(&mut self, first: u64, end: u64) {
        let (regions, kept) = (self.shape.pages.div_ceil(REGION), self.shape.simulated / REGION);
        if self.shape.simulated >= self.shape.pages {
            for page in first..end {
                self.drop_page(page as usize);
            }
            return;
        }
        for folded in 0..kept {
            // All regions of this fold must be within the range.
            let from = (folded * regions).div_ceil(kept);
            let until = ((folded + 1) * regions).div_ceil(kept);
            if from * REGION >= first && (until * REGION).min(self.shape.pages) <= end {
                for page in folded * REGION..(folded + 1) * REGION {
                    self.drop_page(page as usize);
                }
            }
        }
    }

    fn drop_page(&mut self, page: usize) {
        let slot = std::mem::replace(&mut self.slots[page], NONE);
        self.invalidate(slot);
    }

    /// Writes a mapped page to the next slot of the host's row.
    fn put(&mut self, page: usize, work: &mut impl FnMut(Work)) {
        self.unused = self.unused.saturating_sub(1);
        let slot = self.host.row * self.shape.row() + self.host.next;
        self.host.next += 1;
        let old = std::mem::replace(&mut self.slots[page], slot);
        self.invalidate(old);
        self.pages[slot as usize] = page as u32;
        self.valid[self.host.row as usize] += 1;
        if self.host.next.is_multiple_of(self.shape.superpage) {
            let die = (self.host.next - 1) / self.shape.superpage;
            work(Work::Program { die, padding: 0 });
            self.full_host(work);
            self.collect(self.shape.superpage, work);
        }
    }

    fn invalidate(&mut self, slot: u32) {
        if slot == NONE {
            return;
        }
        self.pages[slot as usize] = NONE;
        let row = slot / self.shape.row();
        self.valid[row as usize] -= 1;
        self.full.lower(row, self.valid[row as usize]);
    }

    /// Records that a row is full. It counts as young until enough other rows are full.
    fn filled(&mut self, row: u32) {
        self.young.push_back(row);
        if self.young.len() > self.young_most
            && let Some(row) = self.young.pop_front()
        {
            self.full.add(row, self.valid[row as usize]);
        }
    }

    /// Takes a free row for the host's slots, if the present one is full.
    fn full_host(&mut self, work: &mut impl FnMut(Work)) {
        if self.host.next < self.shape.row() {
            return;
        }
        self.filled(self.host.row);
        // The moves that each slot pays for keep rows free. If padding has used them up, the victim
        // is emptied at once.
        while self.free.len() < 2 && self.empty_one(u64::MAX, work) {}
        let row = self.free.pop_front().expect("collection keeps a row free");
        self.host = Head { row, next: 0 };
    }

    /// Moves slots of the victim, in proportion to the `written` slots of the host, so that
    /// collection keeps pace with the host's writes.
    fn collect(&mut self, written: u32, work: &mut impl FnMut(Work)) {
        if self.free.len() > RESERVE {
            return;
        }
        let Some(victim) = self.victim.or_else(|| self.choose()) else { return };
        self.victim = Some(victim);
        self.debt += u64::from(written) * u64::from(victim.valid);
        let moves = self.debt / u64::from(victim.garbage);
        self.debt -= moves * u64::from(victim.garbage);
        if moves > 0 || victim.valid == 0 {
            self.empty_one(moves, work);
        }
    }

    /// Chooses the next victim: the full row with the most garbage, either of all rows or of as
    /// many random rows as `choices` of the shape says. If the row found has no garbage, the oldest
    /// young row is chosen instead. `None` if there is no such row.
    fn choose(&mut self) -> Option<Victim> {
        let (row, valid) = if self.shape.choices == 0 {
            self.full.least()?
        } else {
            let looks = (0..self.shape.choices).map(|_| self.rng.below(self.valid.len() as u64));
            let looks: Vec<u32> = looks.map(|row| row as u32).collect();
            let full = looks.into_iter().filter(|row| self.full.has(*row));
            let best = full.min_by_key(|row| self.valid[*row as usize]);
            best.map(|row| (row, self.valid[row as usize])).or_else(|| self.full.least())?
        };
        self.debt = 0;
        let garbage = self.shape.row() - valid;
        if garbage > 0 {
            self.full.remove(row);
            return Some(Victim { row, next: 0, valid, garbage });
        }
        // Only young rows have garbage.
        let row = self.young.pop_front()?;
        let valid = self.valid[row as usize];
        let garbage = (self.shape.row() - valid).max(1);
        Some(Victim { row, next: 0, valid, garbage })
    }

    /// Moves up to `moves` valid slots of the victim, which becomes a free row once it has none.
    /// Returns whether there was a victim.
    fn empty_one(&mut self, mut moves: u64, work: &mut impl FnMut(Work)) -> bool {
        let Some(mut victim) = self.victim.take().or_else(|| self.choose()) else { return false };
        let (row_slots, superpage) = (self.shape.row(), self.shape.superpage);
        let first = victim.row * row_slots;
        let silent = self.unused > 0;
        while victim.next < row_slots && self.valid[victim.row as usize] > 0 {
            if moves == 0 {
                self.victim = Some(victim);
                return true;
            }
            if victim.next.is_multiple_of(superpage) {
                let slots = &self.pages[(first + victim.next) as usize..][..superpage as usize];
                let slots = slots.iter().filter(|page| **page != NONE).count() as u32;
                if slots > 0 && !silent {
                    work(Work::Read { die: victim.next / superpage, slots });
                }
            }
            let page = self.pages[(first + victim.next) as usize];
            if page != NONE {
                moves -= 1;
                self.carry(page, first + victim.next, silent, work);
            }
            victim.next += 1;
        }
        self.free.push_back(victim.row);
        if !silent {
            work(Work::Erase);
        }
        true
    }

    /// Moves a page from slot `from` to the next slot for moved pages. `silent` moves cause no work
    /// of the dies.
    fn carry(&mut self, page: u32, from: u32, silent: bool, work: &mut impl FnMut(Work)) {
        if self.moved.next == self.shape.row() {
            self.filled(self.moved.row);
            let row = self.free.pop_front().expect("a row is kept for moving");
            self.moved = Head { row, next: 0 };
        }
        let slot = self.moved.row * self.shape.row() + self.moved.next;
        self.moved.next += 1;
        self.pages[from as usize] = NONE;
        self.valid[(from / self.shape.row()) as usize] -= 1;
        self.pages[slot as usize] = page;
        self.slots[page as usize] = slot;
        self.valid[self.moved.row as usize] += 1;
        if self.moved.next.is_multiple_of(self.shape.superpage) && !silent {
            work(Work::Move { die: (self.moved.next - 1) / self.shape.superpage });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(over_provisioning: u32, choices: u32) -> MappingGeometry {
        let (dies, superpage) = (8, 8);
        MappingGeometry {
            pages: 1 << 20,
            simulated: 1 << 15,
            over_provisioning,
            dies,
            superpage,
            choices,
        }
    }

    /// Numbers of host slots, moved slots, padding and erased rows, summed over some work.
    #[derive(Clone, Copy, Debug, Default)]
    struct Sum {
        host: u64,
        moved: u64,
        padding: u64,
        rows: u64,
    }

    fn run(mapping: &mut Mapping, pages: impl Iterator<Item = u64>) -> Sum {
        let mut sum = Sum::default();
        let mut work = |work: Work| match work {
            Work::Program { padding, .. } => {
                sum.host += u64::from(8 - padding);
                sum.padding += u64::from(padding);
            }
            Work::Move { .. } => sum.moved += 8,
            Work::Erase => sum.rows += 1,
            Work::Read { die, slots } => assert!(die < 8 && (1..=8).contains(&slots)),
        };
        for page in pages {
            mapping.write(page, &mut work);
        }
        sum
    }

    /// Asserts that every mapped page is in exactly one slot, and that every count is right.
    fn assert_whole(mapping: &Mapping) {
        let row = mapping.shape.row();
        let mut valid = vec![0; mapping.valid.len()];
        for (slot, page) in mapping.pages.iter().enumerate().filter(|(_, page)| **page != NONE) {
            assert_eq!(mapping.slots[*page as usize], slot as u32);
            valid[slot / row as usize] += 1;
        }
        assert_eq!(valid, mapping.valid);
        let mapped = mapping.slots.iter().filter(|slot| **slot != NONE).count();
        assert_eq!(mapped as u32, valid.iter().sum::<u32>());
        for free in &mapping.free {
            assert_eq!(valid[*free as usize], 0, "row {free} is free");
        }
        for (row, of) in mapping.full.of.iter().enumerate().filter(|(_, of)| **of != NONE) {
            assert_eq!(*of, valid[row]);
        }
    }

    #[test]
    fn more_spare_slots_mean_fewer_moves_and_greedy_moves_fewest() {
        let mut before = f64::INFINITY;
        for over_provisioning in [70, 120, 180, 280] {
            let mut found = [0.0; 2];
            for (index, choices) in [0, 3].into_iter().enumerate() {
                let mut mapping = Mapping::steady(shape(over_provisioning, choices));
                let mut rng = Rng::new(3);
                let sum = run(&mut mapping, (0..60_000).map(|_| rng.below(1 << 20)));
                assert_whole(&mapping);
                found[index] = (sum.host + sum.moved) as f64 / sum.host as f64;
            }
            assert!(found[0] < found[1], "{over_provisioning}: {found:?}");
            assert!(found[0] < before, "{over_provisioning}: {found:?} after {before}");
            before = found[0];
        }
        assert!((2.0..2.8).contains(&before), "28 %: {before}");
    }

    #[test]
    fn what_is_written_in_order_or_in_one_place_is_hardly_moved() {
        let mut mapping = Mapping::steady(shape(70, 0));
        run(&mut mapping, (0..1 << 20).chain(0..1 << 18));
        let sum = run(&mut mapping, 1 << 18..1 << 20);
        assert!(sum.moved * 20 < sum.host, "in order: {sum:?}");
        let mut mapping = Mapping::steady(shape(70, 0));
        let mut rng = Rng::new(3);
        run(&mut mapping, (0..100_000).map(|_| rng.below(1 << 12)));
        let sum = run(&mut mapping, (0..100_000).map(|_| rng.below(1 << 12)));
        assert!(sum.moved * 4 < sum.host, "in one place: {sum:?}");
        assert_whole(&mapping);
    }

    #[test]
    fn large_random_writes_are_moved_like_small_ones() {
        let amplification = |unit: u64| {
            let mut mapping = Mapping::steady(shape(120, 0));
            let mut rng = Rng::new(3);
            let mut pages: Vec<u64> = Vec::new();
            for _ in 0..160_000 / unit {
                let first = rng.below((1 << 20) / unit) * unit;
                pages.extend(first..first + unit);
            }
            run(&mut mapping, pages[..pages.len() / 2].iter().copied());
            let sum = run(&mut mapping, pages[pages.len() / 2..].iter().copied());
            (sum.host + sum.moved) as f64 / sum.host as f64
        };
        // A row has 64 slots here; writes of half a row would be moved much less.
        let (small, large) = (amplification(1), amplification(4));
        assert!((large / small - 1.0).abs() < 0.25, "1 page: {small}, 4 pages: {large}");
    }

    #[test]
    fn a_fresh_drive_moves_nothing_until_all_of_it_has_been_written() {
        let mut mapping = Mapping::fresh(shape(70, 0));
        let mut rng = Rng::new(3);
        let sum = run(&mut mapping, (0..1 << 20).map(|_| rng.below(1 << 20)));
        assert_eq!((sum.moved, sum.rows), (0, 0));
        assert_whole(&mapping);
        run(&mut mapping, (0..1 << 18).map(|_| rng.below(1 << 20)));
        let sum = run(&mut mapping, (0..1 << 15).map(|_| rng.below(1 << 20)));
        assert!(sum.moved > sum.host && sum.rows > 0, "{sum:?}");
    }

    #[test]
    fn padding_counts_and_a_discard_makes_room() {
        let mut mapping = Mapping::steady(shape(70, 0));
        let mut rng = Rng::new(3);
        let mut padding = 0;
        for _ in 0..20_000 {
            let mut programs = 0;
            let mut work = |work: Work| {
                if let Work::Program { padding: slots, .. } = work {
                    programs += 1;
                    padding += u64::from(slots);
                }
            };
            mapping.write(rng.below(1 << 20), &mut work);
            mapping.pad(&mut work);
            assert_eq!(programs, 1, "a write and padding are one program");
        }
        assert_eq!(padding, 140_000);
        assert_whole(&mapping);
        mapping.discard(0, 1 << 20);
        assert!(mapping.slots.iter().all(|slot| *slot == NONE));
        let sum = run(&mut mapping, (0..30_000).map(|_| rng.below(1 << 20)));
        assert!(sum.moved * 2 < sum.host, "{sum:?}");
        assert_whole(&mapping);
    }
}
