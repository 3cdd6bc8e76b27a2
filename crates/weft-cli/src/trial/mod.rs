//! `weft rescue --try`: the geometry of an array without superblocks, by trial.
//!
//! A hypothesis is level, layout, chunk, data offset, and where a file system begins in the array.
//! It says of each structure of the file system in which slot, and where on its member, it lies.
//! The structures are checked one by one on each disk, so that the order of the disks need not be
//! tried: it is the assignment of disks to slots under which most checks succeed. Many hypotheses
//! get a few checks, the best of them more, and the last ones are read as an array.
//!
//! | part | file |
//! |---|---|
//! | hypotheses, from what is found on the disks | `anchors.rs` |
//! | levels, layouts, chunks, and the places that they give | `shape.rs` |
//! | scores, and what they say of the order | `judge.rs`, `order.rs` |
//! | what bytes have to be | `inside.rs`, for each kind `btrfs.rs`, `ext4.rs`, `xfs.rs` |
//! | logical volumes, of which the first bytes are starts of file systems | `lvm.rs` |
//! | reads, within their limits | `columns.rs` |
//!
//! What superblocks of md say is not believed: a data offset in one is a place to look at.

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
    /// Places with the right parity, and all at which it was compared.
    pub(crate) parity: (u64, u64),
    /// Kind of the file system, with its article.
    pub(crate) inside: &'static str,
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
    // Of equals, the offset and the chunk that are usual come first.
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

/// Round of judgement: each hypothesis gets so many checks, and the best ones are kept.
struct Round {
    checks: usize,
    kept: usize,
    /// Part of what may be read of a disk that is read until its end.
    percent: u64,
}

const ROUNDS: [Round; 4] = [
    Round { checks: 12, kept: 1000, percent: 50 },
    Round { checks: 48, kept: 200, percent: 65 },
    Round { checks: CHECKS_FEW, kept: 50, percent: 80 },
    Round { checks: CHECKS_MAX, kept: 8, percent: 100 },
];
/// Number of checks of a hypothesis in an exchange of two disks.
const CHECKS_FEW: usize = 200;
/// Largest number of checks of a hypothesis.
const CHECKS_MAX: usize = 1500;
/// Smallest weight of checks for a hypothesis that is named.
const HITS_MIN: u64 = 8;
