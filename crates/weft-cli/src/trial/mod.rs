//! `weft rescue --try`: the geometry of an array without superblocks, by trial.
//!
//! A hypothesis is a level, a layout, a chunk, a data offset, and the place where a file system
//! begins in the array. It determines in which slot, and where on that member, each structure of
//! the file system lies. The structures are checked one by one on each disk, so that not every
//! order of the disks has to be tried: the order is the assignment of disks to slots under which
//! most checks succeed. Many hypotheses get a few checks, the best of them get more, and the last
//! ones are read as an array.
//!
//! | part | file |
//! |---|---|
//! | hypotheses, from structures that are found on the disks | `anchors.rs` |
//! | levels, layouts, chunks, and the places that they give | `shape.rs` |
//! | scores, and the order that follows from them | `judge.rs`, `order.rs` |
//! | structures to expect | `inside.rs`, for each kind `btrfs.rs`, `ext4.rs`, `xfs.rs` |
//! | logical volumes, at which further file systems may begin | `lvm.rs` |
//! | reads, within their limits | `columns.rs` |
//!
//! Superblocks of md are not trusted: the data offset in a superblock is only a further place to
//! search.

mod anchors;
mod btrfs;
mod columns;
mod ext4;
mod inside;
mod judge;
mod lvm;
mod order;
mod shape;
mod xfs;

use std::cmp::Reverse;
use std::rc::Rc;

use weft_ondisk::Level;
use weft_units::Sectors;

use crate::look::Looked;
use anchors::Hints;
pub(crate) use anchors::{SEARCH, STARTS_TEXT};
use columns::Columns;
use judge::{Hypothesis, Judged};

/// Geometry under which a file system on the disks makes sense, with its score.
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
    /// Weight of the checks that succeeded minus that of those that failed, plus the number of
    /// places with right parity.
    pub(crate) score: i64,
    /// Weight of the checks that succeeded, and of all checks.
    pub(crate) hits: (u64, u64),
    /// Number of places with right parity, and of all places at which parity was compared.
    pub(crate) parity: (u64, u64),
    /// Name of the kind of file system for messages, with its article.
    pub(crate) inside: &'static str,
}

/// Geometries under which a file system makes sense, and how much was read to find them.
#[derive(Clone, Debug)]
pub(crate) struct Tried {
    /// Geometries by score, the best one first.
    pub(crate) guesses: Vec<Guess>,
    /// Number of bytes that were read from all disks together.
    pub(crate) read: u64,
    /// Whether the limit of bytes read per disk was reached, so that scores may be too low.
    pub(crate) is_limited: bool,
}

impl Tried {
    /// Number of geometries with the best score.
    pub(crate) fn best_count(&self) -> usize {
        let best = self.guesses.first().map(|it| it.score);
        self.guesses.iter().take_while(|it| Some(it.score) == best).count()
    }
}

/// Tries geometries of an array that consists of these disks and `missing` further members.
pub(crate) fn try_all(disks: &[Looked], missing: usize) -> Tried {
    let columns = Rc::new(Columns::new(disks.to_vec(), missing));
    let hints = Hints::of(disks);
    let mut judged: Vec<Judged> = Vec::new();
    let mut hypotheses: Vec<Hypothesis> = anchors::hypotheses(&columns, missing, &hints);
    for round in ROUNDS {
        columns.allow(round.percent);
        let each = hypotheses.drain(..).filter_map(|it| it.judge(&columns, round.checks));
        judged = each.collect();
        judged.sort_by_key(|it| (Reverse(it.score), hints.rank(&it.hypothesis)));
        judged.truncate(round.kept);
        hypotheses = judged.iter().map(|it| it.hypothesis.clone()).collect();
    }
    let confirmed =
        judged.into_iter().filter_map(|it| it.confirm(&columns, CHECKS_FEW, CHECKS_MAX));
    let mut judged: Vec<Judged> = confirmed.filter(|it| it.hits.0 >= HITS_MIN).collect();
    // Among equal scores, usual data offsets and chunks come first.
    judged.sort_by_key(|it| (Reverse(it.score), hints.rank(&it.hypothesis)));
    let guesses = judged.into_iter().map(|it| Guess::of(it, &columns)).collect();
    Tried { guesses, read: columns.bytes_read(), is_limited: columns.is_limited() }
}

impl Guess {
    fn of(judged: Judged, columns: &Columns) -> Self {
        let Judged { hypothesis, order, score, hits, parity, .. } = judged;
        let order = order.into_iter().map(|it| Some(it).filter(|it| columns.is_disk(*it)));
        Self {
            level: hypothesis.shape.level,
            layout: hypothesis.shape.layout,
            chunk: hypothesis.shape.chunk,
            data_offset: hypothesis.offset,
            start: hypothesis.start,
            order: order.collect(),
            score,
            hits,
            parity,
            inside: hypothesis.inside.name(),
        }
    }
}

/// Round of checks: each hypothesis gets at most `checks` of them, and the `kept` best hypotheses
/// go on to the next round.
struct Round {
    checks: usize,
    kept: usize,
    /// Percentage of the limit of bytes per disk that may have been read by the end of the round.
    percent: u64,
}

const ROUNDS: [Round; 4] = [
    Round { checks: 12, kept: 1000, percent: 50 },
    Round { checks: 48, kept: 200, percent: 65 },
    Round { checks: CHECKS_FEW, kept: 50, percent: 80 },
    Round { checks: CHECKS_MAX, kept: 8, percent: 100 },
];
/// Largest number of checks of a hypothesis with two disks exchanged.
const CHECKS_FEW: usize = 200;
/// Largest number of checks of a hypothesis.
const CHECKS_MAX: usize = 1500;
/// Smallest weight of successful checks with which a geometry is reported.
const HITS_MIN: u64 = 8;
