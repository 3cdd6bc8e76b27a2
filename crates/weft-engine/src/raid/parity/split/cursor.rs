//! Order in which a long request is attached to stripes.
//!
//! A unit is the part of the volume that one strip of a stripe holds. A request is divided into
//! sub-requests of at most 256 units. A sub-request that reaches into the next chunk starts with
//! the stripe at which that chunk begins, so that member offsets increase.
//!
//! Source   md-raid.md §2.1 (md: `raid5_bio_lowest_chunk_sector`, `RAID5_MAX_REQ_STRIPES`)

use smallvec::{SmallVec, smallvec};
use weft_units::{Bytes, Slot};

use crate::layout::geometry::Geometry;

/// Progress of attaching a long request to stripes: which units of its current sub-request are
/// attached. A unit is the part of the volume that one strip holds, and a sub-request has at most
/// 256 units.
#[derive(Clone, Debug)]
pub(super) struct Cursor {
    /// Byte range of the volume, `from .. to`, that the current sub-request covers.
    pub(super) from: u64,
    pub(super) to: u64,
    /// First unit (data of one strip) of the sub-request: the one that contains byte `from`.
    pub(super) first: u64,
    end: u64,
    /// Unit (data of one strip) at which the search for the next unattached one starts.
    at: u64,
    done: SmallVec<[u64; 4]>,
    pub(super) left: u64,
}

/// Units (the data of one strip each) of a request that lie in consecutive stripes of one full
/// stripe and are attached together. The request touches the same data chunks in each of these
/// stripes.
#[derive(Clone, Debug)]
pub(super) struct UnitRun {
    /// Unit (data of one strip) from which the run was computed. It is in the lowest stripe of the
    /// run.
    pub(super) first: u64,
    pub(super) stripes: u64,
    /// Number of stripes that the request needs in the chunk of `first`, from `first` on, whether
    /// attached or not.
    pub(super) wanted: u64,
    /// For each data chunk, its unit in the lowest stripe; `None` for a chunk that is not part of
    /// the run.
    units: SmallVec<[Option<u64>; 4]>,
}

impl Cursor {
    /// Creates the cursor for the next sub-request of a request, which begins at byte `from`. The
    /// request ends at byte `request_end`, and a unit has `unit` bytes.
    pub(super) fn new(geometry: &Geometry, from: u64, request_end: u64, unit: u64) -> Self {
        assert!(from < request_end, "something is left of the request");
        let first = from / unit;
        let end = request_end.div_ceil(unit).min(first + UNITS_MAX);
        let (at, left) = (first_unit(geometry, first, end, unit), end - first);
        let done = smallvec![0; left.div_ceil(64) as usize];
        Self { from, to: end * unit, first, end, at, done, left }
    }

    /// The next unit (data of one strip) that is not attached to a stripe, in the order from `at`
    /// to the end, then from `first` to `at`. `None` if all are attached.
    fn next(&self) -> Option<u64> {
        let is_left = |unit: &u64| !self.is_done(*unit);
        (self.at..self.end).find(is_left).or_else(|| (self.first..self.at).find(is_left))
    }

    fn is_done(&self, unit: u64) -> bool {
        let bit = unit - self.first;
        self.done[(bit / 64) as usize] >> (bit % 64) & 1 == 1
    }

    /// Number of consecutive units from `unit` on that are not attached to stripes, limited to
    /// `most`.
    fn left_from(&self, unit: u64, most: u64) -> u64 {
        let (from, end) = (unit - self.first, unit - self.first + most);
        let mut bit = from;
        while bit < end {
            let done = self.done[(bit / 64) as usize] >> (bit % 64);
            if done != 0 {
                return (bit + u64::from(done.trailing_zeros())).min(end) - from;
            }
            bit = (bit / 64 + 1) * 64;
        }
        most
    }

    /// The next units that are attached to stripes together. A unit has `unit` bytes, and the
    /// request ends at byte `end`.
    pub(super) fn run(&self, geometry: &Geometry, unit: u64, end: u64) -> UnitRun {
        let first = self.next().expect("units are left");
        self.run_from(first, geometry, unit, end)
    }

    /// Units (data of one strip each) from `from` on that are not attached to stripes.
    pub(super) fn units_left(&self, from: u64) -> impl Iterator<Item = u64> + '_ {
        (self.first.max(from)..self.end).filter(|unit| !self.is_done(*unit))
    }

    /// Like [`Cursor::run`], but beginning with unit `first`, which is not attached to a stripe.
    pub(super) fn run_from(&self, first: u64, geometry: &Geometry, unit: u64, end: u64) -> UnitRun {
        let units_per_chunk = geometry.chunk().bytes().0 / unit;
        let data_members = u64::from(geometry.data_members());
        let in_chunk = first & (units_per_chunk - 1);
        let full_stripe = first / (units_per_chunk * data_members) * data_members;
        let wanted = (units_per_chunk - in_chunk).min(self.end - first);
        let mut stripes = self.left_from(first, wanted);
        // A unit in which the request begins or ends is a run of its own.
        let begins_within = u64::from(self.from > self.first * unit);
        let ends_within = u64::from(end < self.end * unit);
        let edges =
            [self.first, self.first + begins_within, self.end - ends_within, self.end, u64::MAX];
        let mut units = SmallVec::new();
        for chunk in full_stripe..full_stripe + data_members {
            let number = chunk * units_per_chunk + in_chunk;
            units.push((self.first..self.end).contains(&number).then_some(number));
            let edge = edges.into_iter().find(|edge| *edge > number).expect("an edge lies above");
            stripes = stripes.min(edge - number);
        }
        UnitRun { first, stripes, wanted, units }
    }

    /// Records that the request is attached to the first `stripes` stripes of a run.
    pub(super) fn take(&mut self, run: &UnitRun, stripes: u64) {
        for (_, number) in run.strips() {
            let (from, to) = (number - self.first, number - self.first + stripes);
            for (word, at) in self.done.iter_mut().zip((0..).step_by(64)) {
                let bits = bits_below(to.saturating_sub(at)) & !bits_below(from.saturating_sub(at));
                assert!(*word & bits == 0, "a unit is attached once");
                *word |= bits;
            }
            assert!(self.left >= stripes, "attached units were left");
            self.left -= stripes;
        }
        while self.at < self.end && self.is_done(self.at) {
            let bit = self.at - self.first;
            let done = (self.done[(bit / 64) as usize] >> (bit % 64)).trailing_ones();
            self.at += u64::from(done);
        }
    }
}

impl UnitRun {
    /// Data chunks of the run by index, each with its unit in the lowest stripe of the run.
    pub(super) fn strips(&self) -> impl Iterator<Item = (u16, u64)> {
        let meant = |(index, unit): (u16, &Option<u64>)| unit.map(|unit| (index, unit));
        (0..).zip(&self.units).filter_map(meant)
    }
}

/// A word in which the low `count` bits are set, or all 64 bits if `count` is larger.
fn bits_below(count: u64) -> u64 {
    if count < 64 { (1 << count) - 1 } else { u64::MAX }
}

/// Unit (data of one strip) that is attached to its stripe first, of the units `first .. end` (md:
/// `raid5_bio_lowest_chunk_sector`): `first`, or the first unit of the next chunk. A unit has
/// `unit` bytes.
fn first_unit(geometry: &Geometry, first: u64, end: u64, unit: u64) -> u64 {
    let units_per_chunk = geometry.chunk().bytes().0 / unit;
    let next_chunk = (first / units_per_chunk + 1) * units_per_chunk;
    if next_chunk >= end {
        return first;
    }
    let position = geometry.locate(Bytes(first * unit).sectors_floor());
    let parity = geometry.placement(position.full_stripe).parity();
    let members = geometry.members();
    let higher = (position.slot.0 + 1..members).any(|slot| !parity.contains(Slot(slot)));
    if higher { next_chunk } else { first }
}

/// Largest number of units (data of one strip each) in a sub-request (md: `RAID5_MAX_REQ_STRIPES`).
const UNITS_MAX: u64 = 256;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use weft_ondisk::Level;
    use weft_units::Sectors;

    use super::*;

    const UNIT: u64 = 4096;

    /// Attaches the bytes `from .. end` run by run. `grant` returns how many of a run's stripes are
    /// attached at a time. Returns the units in the order in which they were attached.
    fn attach(geometry: &Geometry, from: u64, end: u64, grant: impl Fn(u64) -> u64) -> Vec<u64> {
        let (mut units, mut at) = (Vec::new(), from);
        while at < end {
            let mut cursor = Cursor::new(geometry, at, end, UNIT);
            while cursor.left > 0 {
                let run = cursor.run(geometry, UNIT, end);
                assert!(0 < run.stripes && run.stripes <= run.wanted);
                let stripes = grant(run.stripes);
                for (index, number) in run.strips() {
                    for unit in number..number + stripes {
                        let position = geometry.locate(Bytes(unit * UNIT).sectors_floor());
                        assert_eq!(position.data_index, index, "unit {unit}");
                        units.push(unit);
                    }
                }
                cursor.take(&run, stripes);
            }
            at = cursor.to;
        }
        units
    }

    #[test]
    fn every_unit_of_a_request_is_attached_once_wherever_it_lies() {
        let mut requests = 0;
        for (level, members, chunk) in [
            (Level::Raid4, 3, 8),
            (Level::Raid5, 3, 16),
            (Level::Raid5, 4, 64),
            (Level::Raid6, 5, 32),
            (Level::Raid6, 6, 128),
        ] {
            let layout = if level == Level::Raid4 { 0 } else { 2 };
            let size = Sectors(chunk * 64);
            let geometry = Geometry::new(level, layout, members, Sectors(chunk), size).unwrap();
            let full_stripe = geometry.full_stripe_bytes();
            let starts = [0, 512, UNIT, UNIT + 512, full_stripe - UNIT, full_stripe - 512];
            let lengths = [512, UNIT, 3 * UNIT, full_stripe, full_stripe + 512, 5 * full_stripe];
            for (from, len) in starts.into_iter().flat_map(|it| lengths.map(|len| (it, len))) {
                for grant in [|wanted| wanted, |_| 1, |wanted: u64| wanted.div_ceil(2)] {
                    let end = from + len;
                    let units = attach(&geometry, from, end, grant);
                    let once: BTreeSet<u64> = units.iter().copied().collect();
                    assert_eq!(once.len(), units.len(), "{level} {members}: {from}+{len}");
                    let all = from / UNIT..end.div_ceil(UNIT);
                    assert!(once.into_iter().eq(all), "{level} {members}: {from}+{len}");
                    requests += 1;
                }
            }
        }
        assert_eq!(requests, 5 * 36 * 3);
    }
}
