//! `weft rescue --try`: the geometry of an array without superblocks, by trial.
//!
//! A hypothesis is level, layout, chunk, data offset, and where a file system begins in the array.
//! It says of each structure of the file system in which slot, and where on its member, it lies.
//! The structures are checked one by one on each disk, so that the order of the disks need not be
//! tried: it is the assignment of disks to slots under which most checks succeed (`order.rs`).
//! `ext4.rs` decides what a block has to be; `columns.rs` reads. Superblocks of md are ignored.

mod columns;
mod ext4;
mod order;

use std::collections::BTreeSet;

use weft_engine::layout::Layout;
use weft_ondisk::Level;
use weft_units::{Bytes, Sectors};

use crate::look::Looked;
use columns::Columns;
pub(crate) use columns::SEARCH;
use ext4::{Check, Super};

/// Geometry under which the disks make sense, with its score.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Guess {
    pub(crate) level: Level,
    pub(crate) layout: u32,
    pub(crate) chunk: Sectors,
    /// First byte of the data on each member.
    pub(crate) data_offset: u64,
    /// First byte of the file system in the array.
    pub(crate) start: u64,
    /// Disk in each slot; `None` for a missing one.
    pub(crate) order: Vec<Option<usize>>,
    /// Checks that succeeded less those that failed, by their weights.
    pub(crate) score: i64,
    /// Weight of the checks that succeeded, and of all.
    pub(crate) hits: (u64, u64),
}

/// Geometries that make sense, and what was read for them.
#[derive(Clone, Debug)]
pub(crate) struct Tried {
    /// Best first.
    pub(crate) guesses: Vec<Guess>,
    /// Number of bytes that were read of all disks.
    pub(crate) read: u64,
    /// Whether the limit of what is read of a disk was reached, so that scores may be too low.
    pub(crate) is_limited: bool,
}

impl Tried {
    /// Number of geometries with the best score.
    pub(crate) fn best_count(&self) -> usize {
        let best = self.guesses.first().map(|it| it.score);
        self.guesses.iter().take_while(|it| Some(it.score) == best).count()
    }
}

/// Tries geometries of an array on these disks, with so many further members missing.
pub(crate) fn try_all(disks: &[Looked], missing: usize) -> Tried {
    let columns = Columns::new(disks, missing);
    let slots = disks.len() + missing;
    let mut guesses: Vec<Guess> = Vec::new();
    let anchors: Vec<(u64, Super)> =
        (0..columns.readable()).flat_map(|column| columns.superblocks(column)).collect();
    let mut tried = BTreeSet::new();
    for (byte, found) in &anchors {
        for shape in shapes(slots, missing) {
            for start in STARTS {
                let Some(at) = shape.first_place(start + 1024, columns.smallest()) else {
                    continue;
                };
                let Some(offset) = byte.checked_sub(at).filter(|it| it.is_multiple_of(4096)) else {
                    continue;
                };
                if !tried.insert((found.uuid, shape, start, offset)) {
                    continue;
                }
                guesses.extend(shape.judge(&columns, found, start, offset));
            }
        }
    }
    // Of equals, the offset and the chunk that are usual come first.
    guesses.sort_by_key(|it| {
        let usual = u8::from(!USUAL.contains(&it.data_offset));
        (std::cmp::Reverse(it.score), usual, it.chunk != Sectors(1024), it.start)
    });
    let (read, is_limited) = (columns.bytes_read(), columns.is_limited());
    Tried { guesses, read, is_limited }
}

/// Level, layout number and chunk of a hypothesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Shape {
    level: Level,
    layout: u32,
    chunk: Sectors,
    slots: u32,
}

/// Shapes that an array with so many slots may have when so many members are missing.
fn shapes(slots: usize, missing: usize) -> Vec<Shape> {
    let of = |level: Level, layouts: &[u32]| -> Vec<Shape> {
        let chunks: &[u64] = if level == Level::Raid1 { &[0] } else { &CHUNKS };
        let pairs = layouts.iter().flat_map(|layout| chunks.iter().map(move |it| (*layout, *it)));
        let slots = u32::try_from(slots).unwrap_or(u32::MAX);
        pairs.map(|(layout, chunk)| Shape { level, layout, chunk: Sectors(chunk), slots }).collect()
    };
    let mut all = Vec::new();
    if missing == 0 {
        all.extend(of(Level::Raid0, &[1]));
    }
    if missing < slots {
        all.extend(of(Level::Raid1, &[0]));
        all.extend(of(Level::Raid10, &[0x102, 0x201, 0x1_0201]));
    }
    if missing <= 1 && slots >= 3 {
        all.extend(of(Level::Raid5, &[2, 0, 1, 3, 4, 5]));
    }
    if missing <= 2 && slots >= 4 {
        all.extend(of(Level::Raid6, &[2, 0, 1, 3]));
    }
    all
}

impl Shape {
    fn map(self, size: u64) -> Option<Layout> {
        let size = Bytes(size).sectors_floor();
        let size = if self.chunk == Sectors::ZERO { size } else { size.round_down(self.chunk) };
        let sizes = vec![size; self.slots as usize];
        Layout::new(self.level, self.layout, self.slots, self.chunk, size, &sizes).ok()
    }

    /// Byte of the data of a member at which a byte of the array lies.
    fn first_place(self, byte: u64, size: u64) -> Option<u64> {
        let map = self.map(size)?;
        places(&map, byte).first().map(|(_, at)| *at)
    }

    /// Judges the hypothesis that the file system begins at byte `start` of the array.
    fn judge(self, columns: &Columns<'_>, found: &Super, start: u64, offset: u64) -> Option<Guess> {
        let map = self.map(columns.smallest().checked_sub(offset)?)?;
        let slots = self.slots as usize;
        if found.bytes().saturating_add(start) > map.array_size().bytes().0 {
            return None;
        }
        let can_xor = self.level.parity_count() == 1;
        let mut scores = vec![vec![0_u64; slots]; slots];
        let mut totals = vec![0_u64; slots];
        let mut checks: Vec<Check> = found.checks();
        let mut done = 0;
        while let Some(check) = checks.get(done).cloned() {
            done += 1;
            for (slot, at) in places(&map, start + check.at) {
                totals[slot] += check.weight;
                for (column, score) in scores[slot].iter_mut().enumerate() {
                    let Some(bytes) = columns.read(column, offset + at, check.len, can_xor) else {
                        continue;
                    };
                    if found.holds(&check, &bytes) {
                        *score += check.weight;
                        if checks.len() < CHECKS_MAX {
                            checks.extend(found.further(&check, &bytes));
                        }
                    }
                }
            }
        }
        let order = order::best(&scores);
        let hits: u64 = order.iter().enumerate().map(|(slot, column)| scores[slot][*column]).sum();
        // A missing member that cannot be computed from the others was not checked.
        let seen = |column: usize| columns.is_readable(column, can_xor);
        let total: u64 =
            order.iter().zip(&totals).filter(|(it, _)| seen(**it)).map(|(_, it)| it).sum();
        let score = 2 * i64::try_from(hits).ok()? - i64::try_from(total).ok()?;
        let order = order.into_iter().map(|it| Some(it).filter(|it| columns.is_disk(*it)));
        Some(Guess {
            level: self.level,
            layout: self.layout,
            chunk: self.chunk,
            data_offset: offset,
            start,
            order: order.collect(),
            score,
            hits: (hits, total),
        })
        .filter(|guess| guess.hits.0 >= HITS_MIN)
    }
}

/// Slots and bytes of their data at which a byte of the array lies.
fn places(map: &Layout, byte: u64) -> Vec<(usize, u64)> {
    let (sector, within) = (Sectors(byte / 512), byte % 512);
    if sector >= map.array_size() {
        return Vec::new();
    }
    let one = |slot: weft_units::Slot, at: Sectors| (usize::from(slot.0), at.bytes().0 + within);
    match map {
        Layout::Mirrors(mirrors) => {
            mirrors.copies(sector).iter().map(|copy| one(copy.slot, copy.sector)).collect()
        }
        Layout::Parity(geometry) => {
            let at = geometry.locate(sector);
            vec![one(at.slot, at.sector)]
        }
        Layout::Striped(striped) => {
            let at = striped.locate(sector);
            vec![one(at.slot, at.sector)]
        }
    }
}

/// Bytes of an array at which file systems begin: without a table, behind LVM's or a partition
/// table's first MiB, and behind old ones of 63 sectors or 192 KiB.
const STARTS: [u64; 4] = [0, 1 << 20, 63 * 512, 192 << 10];
/// The bytes of [`STARTS`] that are not 0, for messages.
pub(crate) const STARTS_TEXT: &str = "31.5 KiB, 192 KiB or 1 MiB";
/// Chunks in sectors: 4 KiB to 2 MiB.
const CHUNKS: [u64; 10] = [1024, 128, 8, 16, 32, 64, 256, 512, 2048, 4096];
/// Data offsets of mdadm's versions in bytes.
const USUAL: [u64; 4] = [1 << 20, 128 << 20, 0, 64 << 10];
/// Largest number of checks of a hypothesis.
const CHECKS_MAX: usize = 1500;
/// Smallest weight of checks for a hypothesis that is named.
const HITS_MIN: u64 = 8;
