//! Write cache of a hard disk: dirty extents that are not yet on the platters.
//!
//! Dirty sectors are kept as extents that do not overlap. A write beside an extent makes it longer;
//! a write over an extent replaces its data in place. Extents are *destaged* to the platters from a
//! window of the oldest ones, in runs of contiguous sectors. A run has a largest size
//! (`destage_piece`). If the drive keeps the host's write commands apart, the run also ends where
//! the first command in it ends.
//!
//! A flush closes an epoch. Extents of different epochs are not merged, so that a flush never waits
//! for later writes.
//!
//! Source   `experiments.md` §2.1 (4), (5)

use super::arm::Target;
use super::geometry::Geometry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The dirty sectors in a disk's memory.
#[derive(Clone, Debug)]
pub(super) struct WriteCache {
    /// Extents by age, oldest first; the destage window is the first few of them.
    extents: BTreeMap<u64, Extent>,
    /// Age of each extent (its key in `extents`), by the extent's first sector.
    starts: BTreeMap<u64, u64>,
    aged: u64,
    /// Number of sectors that occupy room: reserved, dirty, or on their way to the platters.
    sectors: u64,
    limit: u64,
    epoch: u64,
    /// Epochs, oldest first, each with the number of its extents, plus one if a run of the epoch is
    /// being destaged. Epochs with a number of 0 are dropped, except for the newest.
    live: VecDeque<(u64, u64)>,
    /// The run that is being destaged: first sector, end, epoch. `None` without such a run.
    leaving: Option<(u64, u64, u64)>,
    /// Number of runs of other extents destaged since the last run of the oldest extent. Contiguous
    /// runs that end at `commands` count as if they were runs of the largest size.
    passed_over: usize,
    /// Sectors at which write commands of the host began or ended; `None` if destaged runs do not
    /// end there.
    commands: Option<BTreeSet<u64>>,
    /// Sequential destaging: end of the last run, and the number of contiguous sectors before it
    /// that `passed_over` has not counted yet.
    row: (u64, u64),
}

/// An extent: contiguous dirty sectors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// First sector, with its position on the platters.
    pub(super) start: Target,
    end: u64,
    epoch: u64,
}

impl WriteCache {
    /// A cache with room for `limit` sectors. With `by_command`, destaged runs end where a write
    /// command of the host ended.
    pub(super) fn new(limit: u64, by_command: bool) -> Self {
        Self {
            commands: by_command.then(BTreeSet::new),
            row: (0, 0),
            extents: BTreeMap::new(),
            starts: BTreeMap::new(),
            aged: 0,
            sectors: 0,
            limit,
            epoch: 0,
            live: VecDeque::from([(0, 0)]),
            leaving: None,
            passed_over: 0,
        }
    }

    /// Reserves room for a write of this many sectors. Returns whether there was room.
    pub(super) fn promise(&mut self, sectors: u64) -> bool {
        let fits = self.missing(sectors) == 0;
        if fits {
            self.sectors += sectors;
        }
        fits
    }

    /// Number of sectors by which the room for a write of `sectors` sectors is too small; 0 if it
    /// fits. An empty cache takes a write of any size.
    pub(super) fn missing(&self, sectors: u64) -> u64 {
        if self.sectors == 0 { 0 } else { (self.sectors + sectors).saturating_sub(self.limit) }
    }

    /// Whether so much is dirty that it should be destaged even while reads wait: more than ¾ of
    /// the limit.
    pub(super) fn is_pressing(&self) -> bool {
        self.sectors * 4 > self.limit * 3
    }

    /// Whether no extent waits to be destaged.
    pub(super) fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// Makes sectors dirty for which room was reserved.
    pub(super) fn insert(&mut self, geometry: &Geometry, start: u64, end: u64) {
        if let Some(commands) = &mut self.commands {
            forget(commands, start, end);
            commands.extend([start, end]);
        }
        let mut from = start;
        for (held_start, held_end) in self.overlapping(start, end) {
            self.sectors -= held_end.min(end) - held_start.max(start);
            if from < held_start {
                self.add(geometry, from, held_start);
            }
            from = held_end;
        }
        if from < end {
            self.add(geometry, from, end);
        }
    }

    /// Makes sectors dirty that are in no extent, merging them with adjacent extents of the epoch.
    fn add(&mut self, geometry: &Geometry, start: u64, end: u64) {
        let before = self.starts.range(..start).next_back().map(|(_, age)| *age);
        let before = before.filter(|age| {
            let extent = &self.extents[age];
            extent.end == start && extent.epoch == self.epoch
        });
        let after = self.starts.get(&end).copied();
        let after = after.filter(|age| self.extents[age].epoch == self.epoch);
        let end = match after {
            Some(age) => self.remove(age).end,
            None => end,
        };
        if let Some(age) = before {
            let kept = after.map_or(age, |after| after.min(age));
            let extent = Extent { end, ..self.remove(age) };
            self.put(kept, extent);
        } else {
            self.aged += 1;
            let start = Target::new(geometry, start);
            let extent = Extent { start, end, epoch: self.epoch };
            self.put(after.unwrap_or(self.aged), extent);
        }
    }

    fn put(&mut self, age: u64, extent: Extent) {
        self.count(extent.epoch, 1);
        self.starts.insert(extent.start.sector, age);
        let replaced = self.extents.insert(age, extent);
        debug_assert!(replaced.is_none(), "two extents of one age");
    }

    fn remove(&mut self, age: u64) -> Extent {
        let extent = self.extents.remove(&age).expect("both maps have the same extents");
        self.starts.remove(&extent.start.sector);
        self.count(extent.epoch, -1);
        extent
    }

    fn count(&mut self, epoch: u64, change: i64) {
        let entry = self.live.iter_mut().find(|(of, _)| *of == epoch);
        let entry = entry.expect("an epoch with an extent is listed");
        entry.1 = entry.1.checked_add_signed(change).expect("each extent was counted");
    }

    /// First sector and end of each extent that overlaps a range, in order.
    fn overlapping(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let first = self.starts.range(..=start).next_back().map_or(start, |(at, _)| *at);
        let near = self.starts.range(first..end.max(first));
        let near = near.map(|(at, age)| (*at, self.extents[age].end));
        near.filter(|(_, held_end)| *held_end > start).collect()
    }

    /// Whether all sectors of a range are dirty or being destaged.
    pub(super) fn has(&self, start: u64, end: u64) -> bool {
        if self.extents.is_empty() && self.leaving.is_none() {
            return false;
        }
        let mut ranges = self.overlapping(start, end);
        if let Some((leaving_start, leaving_end, _)) = self.leaving {
            ranges.push((leaving_start, leaving_end));
            ranges.sort_unstable();
        }
        let mut from = start;
        for (held_start, held_end) in ranges {
            if held_start <= from {
                from = from.max(held_end);
            }
        }
        from >= end
    }

    /// Whether any sector of a range is dirty or being destaged.
    pub(super) fn has_any(&self, start: u64, end: u64) -> bool {
        self.leaving.is_some_and(|(from, to, _)| from < end && start < to)
            || !self.overlapping(start, end).is_empty()
    }

    /// The `count` oldest extents with their ages, oldest first. While a flush waits, only extents
    /// of epochs up to `until_epoch` are included.
    pub(super) fn window(
        &self,
        count: usize,
        until_epoch: Option<u64>,
    ) -> impl Iterator<Item = (u64, &Extent)> {
        let until = until_epoch.unwrap_or(self.epoch);
        let live = self.live.iter().take_while(|(epoch, _)| *epoch <= until);
        let leaving = self.leaving.is_some_and(|(.., epoch)| epoch <= until);
        let due = live.map(|(_, count)| *count as usize).sum::<usize>() - usize::from(leaving);
        let extents = self.extents.iter().filter(move |(_, extent)| extent.epoch <= until);
        extents.take(count.min(due)).map(|(age, extent)| (*age, extent))
    }

    /// Number of runs of other extents destaged since the last run of the oldest extent.
    pub(super) fn passed_over(&self) -> usize {
        self.passed_over
    }

    /// Starts to destage a run of at most `most` sectors from the start of an extent. Returns the
    /// first sector and the length of the run.
    pub(super) fn leave(&mut self, geometry: &Geometry, age: u64, most: u64) -> (u64, u64) {
        assert!(self.leaving.is_none(), "there is one arm");
        let is_oldest = self.extents.first_key_value().is_some_and(|(oldest, _)| *oldest == age);
        let extent = self.remove(age);
        let start = extent.start.sector;
        let mut end = extent.end.min(start + most);
        let mut counts = true;
        if let Some(commands) = &mut self.commands {
            end = commands.range(start + 1..end).next().copied().unwrap_or(end);
            forget(commands, start, end);
            commands.remove(&start);
            // Contiguous runs that end at commands pass over the oldest extent only once for every
            // `most` sectors, as runs of the largest size would.
            let before = if self.row.0 == start { self.row.1 } else { most };
            counts = before >= most;
            self.row = (end, before % most + (end - start));
        }
        self.passed_over = if is_oldest { 0 } else { self.passed_over + usize::from(counts) };
        self.leaving = Some((start, end, extent.epoch));
        self.count(extent.epoch, 1);
        if end < extent.end {
            self.put(age, Extent { start: Target::new(geometry, end), ..extent });
        }
        (start, end - start)
    }

    /// Frees the room of the run that is being destaged up to this sector, because everything
    /// before the sector has been written to the platters.
    pub(super) fn passed(&mut self, sector: u64) {
        let (start, end, _) = self.leaving.as_mut().expect("a piece is leaving");
        let sector = sector.clamp(*start, *end);
        self.sectors -= sector - std::mem::replace(start, sector);
    }

    /// Records that all of the run that was being destaged is on the platters.
    pub(super) fn left(&mut self) {
        let (start, end, epoch) = self.leaving.take().expect("a piece was leaving");
        self.sectors -= end - start;
        self.count(epoch, -1);
        if self.extents.is_empty()
            && let Some(commands) = &mut self.commands
        {
            commands.clear();
        }
    }

    /// Removes dirty sectors that a write past the cache has replaced.
    pub(super) fn supersede(&mut self, geometry: &Geometry, start: u64, end: u64) {
        if let Some(commands) = &mut self.commands {
            forget(commands, start, end);
        }
        for (held_start, held_end) in self.overlapping(start, end) {
            let age = self.starts[&held_start];
            let extent = self.remove(age);
            self.sectors -= held_end.min(end) - held_start.max(start);
            let mut age = age;
            if held_start < start {
                self.put(age, Extent { end: start, ..extent });
                self.aged += 1;
                age = self.aged;
            }
            if end < held_end {
                self.put(age, Extent { start: Target::new(geometry, end), ..extent });
            }
        }
    }

    /// Closes the present epoch for a flush. Returns its number: this epoch must be destaged before
    /// the flush completes.
    pub(super) fn close_epoch(&mut self) -> u64 {
        let closed = self.epoch;
        self.epoch += 1;
        self.live.push_back((self.epoch, 0));
        closed
    }

    /// Whether this epoch and all earlier ones are on the platters.
    pub(super) fn is_clean_until(&mut self, epoch: u64) -> bool {
        while self.live.front().is_some_and(|(of, count)| *count == 0 && *of < self.epoch) {
            self.live.pop_front();
        }
        self.live.front().is_none_or(|(of, count)| *of > epoch || *count == 0)
    }
}

/// Removes the boundaries of commands that lie inside of a range.
fn forget(commands: &mut BTreeSet<u64>, start: u64, end: u64) {
    while let Some(inside) = commands.range(start + 1..end).next().copied() {
        commands.remove(&inside);
    }
}

#[cfg(test)]
mod tests {
    use super::super::geometry::small as geometry;
    use super::*;
    use std::collections::BTreeSet;
    use weft_units::rng::Rng;

    fn extents(cache: &WriteCache) -> Vec<(u64, u64)> {
        cache.starts.iter().map(|(start, age)| (*start, cache.extents[age].end)).collect()
    }

    #[test]
    fn neighbours_become_one_and_a_flush_keeps_them_apart() {
        let geometry = geometry();
        let mut cache = WriteCache::new(1_000, false);
        for (start, end) in [(0, 8), (16, 24), (8, 16), (100, 108)] {
            assert!(cache.promise(end - start));
            cache.insert(&geometry, start, end);
        }
        assert_eq!(extents(&cache), [(0, 24), (100, 108)]);
        let epoch = cache.close_epoch();
        assert!(cache.promise(16));
        cache.insert(&geometry, 104, 120);
        assert_eq!(extents(&cache), [(0, 24), (100, 108), (108, 120)]);
        assert_eq!(cache.sectors, 24 + 8 + 12);
        assert_eq!(cache.window(16, Some(epoch)).count(), 2);
        for most in [8, 100, 100] {
            assert!(!cache.is_clean_until(epoch));
            let (age, _) = cache.window(16, Some(epoch)).next().expect("something is due");
            cache.leave(&geometry, age, most);
            assert!(!cache.is_clean_until(epoch), "the piece is only on its way");
            cache.left();
        }
        assert!(cache.is_clean_until(epoch) && !cache.is_clean_until(epoch + 1));
        assert_eq!((extents(&cache), cache.sectors), (vec![(108, 120)], 12));
    }

    #[test]
    fn what_has_reached_the_platters_makes_room_before_its_piece_has_left() {
        let geometry = geometry();
        let mut cache = WriteCache::new(100, false);
        assert!(cache.promise(100));
        cache.insert(&geometry, 0, 100);
        let (age, _) = cache.window(1, None).next().expect("something is dirty");
        assert_eq!(cache.leave(&geometry, age, 80), (0, 80));
        assert_eq!(cache.missing(16), 16);
        cache.passed(10);
        assert_eq!(cache.missing(16), 6);
        assert!(!cache.promise(16) && !cache.has(0, 20) && cache.has(10, 20));
        cache.passed(16);
        assert!(cache.promise(16));
        // The end of the run frees the rest of its room, and no sector twice.
        cache.left();
        assert_eq!(cache.sectors, 20 + 16);
        assert!(cache.has(80, 100) && !cache.has_any(0, 80));
    }

    #[test]
    fn pieces_end_where_a_command_of_the_host_did() {
        let geometry = geometry();
        for (by_command, lengths) in [(true, vec![8, 16, 4, 8]), (false, vec![30, 6])] {
            let mut cache = WriteCache::new(1_000, by_command);
            // The last command overwrites the end of the third.
            for (start, end) in [(0, 8), (8, 24), (24, 36), (28, 36)] {
                assert!(cache.promise(end - start));
                cache.insert(&geometry, start, end);
            }
            let mut found = Vec::new();
            let oldest = |cache: &WriteCache| cache.window(1, None).next().map(|(age, _)| age);
            while let Some(age) = oldest(&cache) {
                found.push(cache.leave(&geometry, age, 30).1);
                cache.left();
            }
            assert_eq!(found, lengths);
        }
    }

    #[test]
    fn commands_in_a_row_pass_over_the_oldest_as_often_as_pieces_would() {
        let geometry = geometry();
        let mut cache = WriteCache::new(10_000, true);
        let row = (0..64).map(|at| (1_000 + at * 8, 1_008 + at * 8));
        for (start, end) in std::iter::once((0, 8)).chain(row) {
            assert!(cache.promise(end - start));
            cache.insert(&geometry, start, end);
        }
        let younger = cache.window(2, None).last().map(|(age, _)| age).expect("two entries remain");
        for _ in 0..64 {
            assert_eq!(cache.leave(&geometry, younger, 128).1, 8);
            cache.left();
        }
        assert_eq!(cache.passed_over(), 64 * 8 / 128);
    }

    #[test]
    fn the_cache_has_the_sectors_that_a_set_would_have() {
        for by_command in [false, true] {
            has_the_sectors_of_a_set(by_command);
        }
    }

    fn has_the_sectors_of_a_set(by_command: bool) {
        let geometry = geometry();
        let mut rng = Rng::new(11);
        let mut cache = WriteCache::new(u64::MAX / 8, by_command);
        let mut model = BTreeSet::new();
        for step in 0..20_000 {
            let start = rng.below(400);
            let end = start + 1 + rng.below(30);
            match rng.below(10) {
                0..5 => {
                    assert!(cache.promise(end - start));
                    cache.insert(&geometry, start, end);
                    model.extend(start..end);
                }
                5 => {
                    cache.supersede(&geometry, start, end);
                    model.retain(|sector| !(start..end).contains(sector));
                }
                6 => {
                    let epoch = cache.close_epoch();
                    assert_eq!(cache.is_clean_until(epoch), model.is_empty());
                }
                _ => {
                    let pick = cache.window(16, None).nth(rng.index(4)).map(|(age, _)| age);
                    if let Some(age) = pick {
                        let (start, length) = cache.leave(&geometry, age, 1 + rng.below(20));
                        cache.left();
                        model.retain(|sector| !(start..start + length).contains(sector));
                    }
                }
            }
            assert_eq!(cache.sectors, model.len() as u64, "step {step}");
            let (start, end) = (rng.below(400), 410 + rng.below(20));
            assert_eq!(cache.has(start, end), (start..end).all(|s| model.contains(&s)));
            assert_eq!(cache.has_any(start, start + 3), model.range(start..start + 3).count() > 0);
        }
    }
}
