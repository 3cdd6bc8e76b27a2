//! Tests of [`DiskCopy`] on random disks with random bad sectors.

use std::ops::Range;

use weft_runtime::mapfile::{Mapfile, Status};
use weft_units::rng::Rng;

use super::disk_copy::{Answer, DiskCopy, Phase, Settings};

const SECTOR: u64 = 512;

/// A simulated disk with some unreadable sectors.
struct Disk {
    size: u64,
    /// Whether each sector is unreadable.
    bad: Vec<bool>,
    /// Number of times that a bad sector was read alone.
    alone: Vec<u32>,
    reads: u64,
    errors: u64,
    /// Reads in their order, each as number of bytes read before it and byte range.
    log: Vec<(u64, Range<u64>)>,
    read: u64,
}

/// A fault in the copy, which the checks must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    None,
    /// The sector before the last one of a failed area is read, and taken for the last one.
    TrimEnd,
    /// Every answer in pass 1 says that the whole block was read.
    Partial,
    /// A scraped sector is read twice.
    Twice,
}

impl Disk {
    fn draw(rng: &mut Rng) -> Self {
        let size = match rng.below(3) {
            0 => 1 + rng.below(300 << 10),
            1 => SECTOR * (1 + rng.below(8000)),
            _ => (8 << 20) + SECTOR * rng.below(40_000),
        };
        Self::draw_of(rng, size)
    }

    fn draw_of(rng: &mut Rng, size: u64) -> Self {
        let sectors = size.div_ceil(SECTOR);
        let mut bad = vec![false; usize::try_from(sectors).unwrap()];
        for _ in 0..rng.below(7) {
            let from = rng.index(bad.len());
            let most = [1, 3, 40, 700, 9000][rng.index(5)];
            let len = 1 + rng.index(most);
            // Some areas have good sectors inside.
            let share = [100, 100, 70][rng.index(3)];
            let end = (from + len).min(bad.len());
            bad[from..end].iter_mut().for_each(|bad| *bad |= rng.percent(share));
        }
        Self::of(size, bad)
    }

    fn of(size: u64, bad: Vec<bool>) -> Self {
        let alone = vec![0; bad.len()];
        Self { size, bad, alone, reads: 0, errors: 0, log: Vec::new(), read: 0 }
    }

    fn sectors(range: &Range<u64>) -> Range<usize> {
        let index = |at: u64| usize::try_from(at).unwrap();
        index(range.start / SECTOR)..index(range.end.div_ceil(SECTOR))
    }

    fn read(&mut self, range: &Range<u64>) -> Answer {
        assert!(range.start < range.end && range.end <= self.size, "{range:?}");
        let sectors = Self::sectors(range);
        self.reads += 1;
        self.log.push((self.read, range.clone()));
        if sectors.len() == 1 && self.bad[sectors.start] {
            self.alone[sectors.start] += 1;
        }
        match self.bad[sectors].iter().position(|bad| *bad) {
            None => {
                self.read += range.end - range.start;
                Answer::Read(range.end - range.start)
            }
            // A device may return the bytes before the bad sector.
            Some(good) => {
                self.errors += 1;
                if range.start.is_multiple_of(1024) && good > 0 {
                    Answer::Read(good as u64 * SECTOR - range.start % SECTOR)
                } else {
                    Answer::Failed
                }
            }
        }
    }
}

fn settings(rng: &mut Rng, size: u64) -> Settings {
    let domain = match rng.below(4) {
        0 => {
            let (a, b) = (rng.below(size + 1), rng.below(size + 1));
            let sector = |at: u64| at / SECTOR * SECTOR;
            sector(a.min(b))..sector(a.max(b))
        }
        _ => 0..size,
    };
    Settings {
        domain,
        block: SECTOR * [1, 2, 8, 128, 300][rng.index(5)],
        sector: SECTOR,
        is_reversed: rng.percent(30),
        scrapes: rng.percent(85),
        retries: u32::try_from(rng.below(3)).unwrap(),
    }
}

/// Copies a disk. `stops` returns the number of reads after which the copy is ended and resumed
/// with its map. Returns the final map.
fn copy(
    disk: &mut Disk,
    settings: &Settings,
    planted: Planted,
    mut stops: impl FnMut() -> u64,
) -> Mapfile {
    let mut disk_copy = DiskCopy::new(Mapfile::new(disk.size), settings.clone());
    let mut left = stops();
    while let Some(range) = disk_copy.next() {
        assert_eq!(disk_copy.next(), Some(range.clone()), "it is asked again without an answer");
        let domain = &settings.domain;
        assert!(range.start >= domain.start && range.end <= domain.end, "{range:?} {domain:?}");
        assert!(range.end - range.start <= settings.block.max(SECTOR));
        let mut answer = disk.read(&range);
        if disk_copy.phase() == Phase::Trim
            && planted == Planted::TrimEnd
            && disk_copy.map().status(range.end) != Some(Status::NonTrimmed)
            && range.start >= SECTOR
        {
            answer = disk.read(&(range.start - SECTOR..range.start));
        }
        if disk_copy.phase() == Phase::Copy(1) && planted == Planted::Partial {
            answer = Answer::Read(range.end - range.start);
        }
        if disk_copy.phase() == Phase::Scrape && planted == Planted::Twice {
            answer = disk.read(&range);
        }
        disk_copy.answer(&range, answer);
        left = left.saturating_sub(1);
        if left == 0 {
            let text = disk_copy.map().to_text("# title\n");
            let map = Mapfile::parse(text.as_bytes()).unwrap();
            assert_eq!(&map, disk_copy.map());
            disk_copy = DiskCopy::new(map, settings.clone());
            left = stops();
        }
    }
    assert_eq!((disk_copy.phase(), disk_copy.next()), (Phase::End, None));
    disk_copy.map().clone()
}

/// Descriptions of the faults of a finished copy; empty if it has none.
fn faults(disk: &Disk, settings: &Settings, map: &Mapfile, is_whole_run: bool) -> Vec<String> {
    let mut faults = Vec::new();
    if map.size() != disk.size {
        faults.push(format!("a map of {} bytes", map.size()));
    }
    let mut next = 0;
    for (area, status) in map.areas() {
        if area.start != next {
            faults.push(format!("nothing is said of {next}..{}", area.start));
        }
        next = area.end;
        for sector in Disk::sectors(&area) {
            let at = sector as u64 * SECTOR;
            let (is_in, is_bad) = (settings.domain.contains(&at), disk.bad[sector]);
            let is_right = match status {
                Status::Bad => is_in && is_bad,
                Status::Finished => is_in && !is_bad,
                Status::NonScraped => is_in && !settings.scrapes,
                Status::NonTried => !is_in || at < area.start,
                Status::NonTrimmed => false,
            };
            // Areas may begin or end within the last sector of a drawn part.
            if !is_right && area.start <= at {
                faults.push(format!("sector {sector}, which is bad: {is_bad}, is {status:?}"));
            }
        }
    }
    if next != disk.size {
        faults.push(format!("areas up to byte {next}"));
    }
    // The read that was not answered before a stop is not counted here: copies stop after answers.
    let most = 1 + settings.retries * if is_whole_run { 1 } else { 2 };
    for (sector, alone) in disk.alone.iter().enumerate().filter(|(_, alone)| **alone > most) {
        faults.push(format!("sector {sector} was read alone {alone} times"));
    }
    faults
}

#[test]
fn every_readable_sector_is_read_and_a_bad_one_once_alone() {
    let mut rng = Rng::new(2704);
    let mut bad = 0;
    for case in 0..600 {
        let mut disk = Disk::draw(&mut rng);
        let settings = settings(&mut rng, disk.size);
        let map = copy(&mut disk, &settings, Planted::None, || u64::MAX);
        let found = faults(&disk, &settings, &map, true);
        assert_eq!(found, [""; 0], "case {case}: {settings:?} of {}", disk.size);
        bad += map.bytes(Status::Bad);
    }
    assert!(bad > 1 << 20, "{bad} bytes were bad");
}

#[test]
fn a_copy_that_stops_anywhere_comes_to_the_same_end() {
    let mut rng = Rng::new(31);
    let mut stops = 0;
    for case in 0..300 {
        let size = 1 + rng.below(600 * SECTOR);
        let drawn = Disk::draw_of(&mut rng, size);
        let settings = settings(&mut rng, drawn.size);
        let fresh = || Disk::of(drawn.size, drawn.bad.clone());
        let whole = copy(&mut fresh(), &settings, Planted::None, || u64::MAX);
        let mut disk = fresh();
        let most = [2, 30, 300][rng.index(3)];
        let parts = copy(&mut disk, &settings, Planted::None, || {
            stops += 1;
            1 + rng.below(most)
        });
        let text = |map: &Mapfile| map.to_text("");
        assert_eq!(text(&parts), text(&whole), "case {case}: {settings:?}");
        assert_eq!(faults(&disk, &settings, &parts, true), [""; 0], "case {case}");
    }
    assert!(stops > 10_000, "{stops}");
}

/// A second run with other settings, as more retries or a larger part, needs nothing but the map.
#[test]
fn another_run_goes_on_where_the_map_says() {
    let mut rng = Rng::new(33);
    for case in 0..200 {
        let mut disk = Disk::draw(&mut rng);
        let first = settings(&mut rng, disk.size);
        let map = copy(&mut disk, &first, Planted::None, || u64::MAX);
        let second =
            Settings { domain: 0..disk.size, scrapes: true, ..settings(&mut rng, disk.size) };
        let mut disk_copy = DiskCopy::new(map.clone(), second.clone());
        while let Some(range) = disk_copy.next() {
            let read = map.areas_in(range.clone()).any(|(_, it)| it == Status::Finished);
            assert!(!read, "case {case}: {range:?} was read before");
            let answer = disk.read(&range);
            disk_copy.answer(&range, answer);
        }
        let retries = first.retries + second.retries;
        let both = Settings { retries, ..second };
        assert_eq!(faults(&disk, &both, disk_copy.map(), true), [""; 0], "case {case}");
    }
}

#[test]
fn planted_faults_of_the_copy_are_found() {
    for planted in [Planted::TrimEnd, Planted::Partial, Planted::Twice] {
        let mut rng = Rng::new(32);
        let mut found = 0;
        for _ in 0..60 {
            let mut disk = Disk::draw(&mut rng);
            let settings = settings(&mut rng, disk.size);
            let map = copy(&mut disk, &settings, planted, || u64::MAX);
            found += usize::from(!faults(&disk, &settings, &map, true).is_empty());
        }
        assert!(found > 5, "{planted:?} was found in {found} of 60 disks");
    }
}

/// On a disk of 1 GiB with a bad area of 20 MiB, all readable bytes outside the area are read
/// before trimming begins. Until trimming begins, only a few reads touch the bad area.
#[test]
fn bad_areas_come_last() {
    let size = 1 << 30;
    let bad = 400 << 20..420 << 20_u64;
    let sectors = usize::try_from(size / SECTOR).unwrap();
    let list = (0..sectors as u64).map(|sector| bad.contains(&(sector * SECTOR))).collect();
    let mut disk = Disk::of(size, list);
    let settings = Settings {
        domain: 0..size,
        block: 64 << 10,
        sector: SECTOR,
        is_reversed: false,
        scrapes: false,
        retries: 0,
    };
    let mut disk_copy = DiskCopy::new(Mapfile::new(size), settings.clone());
    let mut skipped = Vec::new();
    while let Some(range) = disk_copy.next().filter(|_| disk_copy.phase() == Phase::Copy(1)) {
        let errors = disk.errors;
        let answer = disk.read(&range);
        disk_copy.answer(&range, answer);
        if disk.errors > errors {
            skipped.push(disk_copy.map().current.position - range.end);
        }
    }
    // Twice as much after each failure, up to a hundredth of the disk in whole blocks.
    let blocks: Vec<u64> = skipped.iter().map(|bytes| bytes >> 16).collect();
    assert_eq!(blocks, [1, 2, 4, 8, 16, 32, 64, 128, 163], "64 KiB each");
    while let Some(range) = disk_copy.next().filter(|_| disk_copy.phase() != Phase::Trim) {
        let answer = disk.read(&range);
        disk_copy.answer(&range, answer);
    }
    assert_eq!(disk.read, size - (bad.end - bad.start), "all that is good, before trimming");
    let errors = disk.errors;
    while let Some(range) = disk_copy.next() {
        let answer = disk.read(&range);
        disk_copy.answer(&range, answer);
    }
    assert_eq!(disk.errors, errors + 2, "the ends of the area");
    assert_eq!(disk_copy.map().bytes(Status::NonScraped), bad.end - bad.start - 2 * SECTOR);
    assert!(disk.log.iter().all(|(_, range)| range.end - range.start <= settings.block));
}
