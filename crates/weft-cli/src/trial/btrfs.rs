//! btrfs as evidence: its superblocks, the blocks of its trees and sectors of data, each known by
//! its checksum, its UUID and the address that it records.

use weft_files::btrfs::{Point, Points};

use super::inside::{Check, SUPER_BYTES};

/// A btrfs, as one of its superblocks describes it.
#[derive(Clone, Debug)]
pub(super) struct Super {
    pub(super) points: Points,
}

/// Structure of btrfs that a check expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Landmark {
    /// Superblock that records this byte as its own address.
    Copy(u64),
    /// Block of a tree, or sector of data.
    Point(Point),
}

impl Super {
    /// Parses a superblock; `None` if the bytes are not a superblock.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..SUPER_BYTES).filter(|it| it[0x40..0x48] == *b"_BHRfS_M")?;
        Points::of(bytes).map(|points| Self { points })
    }

    /// Checks that follow from the superblock: its copies, and the roots of two trees.
    pub(super) fn checks(&mut self) -> Vec<Check<Landmark>> {
        let copy = |at| Check { at, len: SUPER_BYTES, weight: 4, what: Landmark::Copy(at) };
        let mut checks: Vec<_> = self.points.superblocks().map(copy).collect();
        let roots = self.points.roots();
        checks.extend(roots.into_iter().flat_map(|it| self.of_point(&it)));
        checks
    }

    /// Checks of a tree block or data sector, one for each of its copies.
    fn of_point(&self, point: &Point) -> Vec<Check<Landmark>> {
        let (block, sector) = self.points.lens();
        let (len, weight) = match point {
            Point::Block(_) => (block, 4),
            Point::Sector(..) => (sector, 2),
        };
        let len = usize::try_from(len).unwrap_or(0);
        let check = |at| Check { at, len, weight, what: Landmark::Point(point.clone()) };
        self.points.places(point).into_iter().map(check).collect()
    }

    pub(super) fn begins(&self, what: &Landmark, bytes: &[u8]) -> bool {
        match what {
            Landmark::Point(Point::Block(at)) => self.points.begins(*at, bytes),
            Landmark::Copy(_) | Landmark::Point(Point::Sector(..)) => true,
        }
    }

    /// Whether `bytes` are the structure that the check expects.
    pub(super) fn holds(&self, what: &Landmark, bytes: &[u8]) -> bool {
        self.begins(what, bytes)
            && match what {
                Landmark::Copy(place) => self.points.is_superblock(*place, bytes),
                Landmark::Point(point) => self.points.holds(point, bytes),
            }
    }

    /// Checks that follow from a block that was found: `bytes` have passed the check of `what`.
    pub(super) fn further(&mut self, what: &Landmark, bytes: &[u8]) -> Vec<Check<Landmark>> {
        let Landmark::Point(Point::Block(at)) = what else { return Vec::new() };
        let below = self.points.below(*at, bytes);
        below.into_iter().flat_map(|it| self.of_point(&it)).collect()
    }
}
