//! Geometry of a hard disk: zones, tracks and skew, which give each sector a position and an angle.
//!
//! Sectors fill a track, then the tracks of all heads of a cylinder, then the next cylinder
//! inwards. Cylinders are grouped into zones; the tracks of outer zones have more sectors:
//!
//! ```text
//!     cylinder          0 … N/Z     N/Z … 2N/Z            … N
//!     zone              0           1            …        Z-1
//!     sectors a track   spt_0     > spt_1      > …      > spt_Z-1      falls linearly
//! ```
//!
//! An angle is a time: from the index mark until the start of a sector passes under the head. The
//! first sector of a track is skewed against the last one of the preceding track by exactly the
//! time that the switch of the head or cylinder takes, so that a sequential access loses only that
//! time:
//!
//! ```text
//!     rate = 512 · spt · H / (H · t_rev + (H − 1) · t_head + t_cylinder)
//! ```
//!
//! Each angle within a track is computed from the index mark and rounded down, instead of adding up
//! angles. The times of the parts of a track therefore add up to that of the whole track to the
//! nanosecond, and an access that follows another one never misses its first sector.
//!
//! Units    nanoseconds, sectors of 512 bytes
//! Source   `experiments.md` §2.1 (1); the form of the rate is that of Hitachi's drive
//!          specifications

use weft_units::{SECTOR_BYTES, Sectors};

/// Parameters of the platters of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::drive) struct Platters {
    pub(in crate::drive) heads: u32,
    pub(in crate::drive) cylinders: u32,
    pub(in crate::drive) zones: u32,
    pub(in crate::drive) rpm: u32,
    pub(in crate::drive) head_switch_ns: u64,
    pub(in crate::drive) cylinder_switch_ns: u64,
    /// Sustained rate of the outermost zone, in bytes per second.
    pub(in crate::drive) rate_outer: u64,
    /// Sustained rate of the innermost zone, in bytes per second.
    pub(in crate::drive) rate_inner: u64,
}

impl Platters {
    /// Duration of a revolution, ns.
    pub(in crate::drive) fn turn_ns(&self) -> u64 {
        60_000_000_000 / u64::from(self.rpm)
    }

    /// Time to read a cylinder in order, including the switch to the next one, ns.
    fn cylinder_ns(&self) -> u64 {
        u64::from(self.heads) * self.turn_ns()
            + u64::from(self.heads - 1) * self.head_switch_ns
            + self.cylinder_switch_ns
    }

    /// Number of sectors of a track with this sustained rate.
    fn sectors_per_track(&self, rate: u64) -> u64 {
        let per_cylinder = u128::from(rate) * u128::from(self.cylinder_ns());
        let unit = 1_000_000_000 * u128::from(SECTOR_BYTES) * u128::from(self.heads);
        ((per_cylinder + unit / 2) / unit) as u64
    }
}

/// A zone: adjacent cylinders with tracks of the same length.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Zone {
    first_sector: u64,
    first_cylinder: u64,
    sectors_per_track: u64,
}

/// Geometry of the platters of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    zones: Vec<Zone>,
    capacity: u64,
    heads: u64,
    /// Duration of a revolution, ns.
    pub(super) turn: u64,
    /// Time of a switch to the next head of a cylinder, ns.
    pub(super) head_switch: u64,
    /// Time of a switch to the first head of the next cylinder, ns.
    pub(super) cylinder_switch: u64,
    cylinder_skew: u64,
}

/// Position of a sector on the platters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlatterPosition {
    /// Number of the cylinder, counted from the outside.
    pub(super) cylinder: u64,
    /// Number of the head within the cylinder.
    pub(super) head: u64,
    /// Time from the index mark until the start of the sector passes under the head, ns.
    pub(super) angle: u64,
    /// Number of the sector on its track.
    sector: u64,
    sectors_per_track: u64,
}

impl Geometry {
    pub(super) fn new(platters: &Platters) -> Self {
        let outer = platters.sectors_per_track(platters.rate_outer);
        let inner = platters.sectors_per_track(platters.rate_inner);
        let (heads, last) = (u64::from(platters.heads), u64::from(platters.zones - 1).max(1));
        let mut zones = Vec::new();
        let (mut first_sector, mut first_cylinder) = (0, 0);
        for zone in 0..u64::from(platters.zones) {
            let sectors_per_track = outer - (outer - inner) * zone / last;
            zones.push(Zone { first_sector, first_cylinder, sectors_per_track });
            let until = u64::from(platters.cylinders) * (zone + 1) / u64::from(platters.zones);
            first_sector += (until - first_cylinder) * heads * sectors_per_track;
            first_cylinder = until;
        }
        let (head_switch, cylinder_switch) = (platters.head_switch_ns, platters.cylinder_switch_ns);
        Self {
            zones,
            capacity: first_sector,
            heads,
            turn: platters.turn_ns(),
            head_switch,
            cylinder_switch,
            cylinder_skew: (heads - 1) * head_switch + cylinder_switch,
        }
    }

    /// Capacity of the disk.
    pub(super) fn capacity(&self) -> Sectors {
        Sectors(self.capacity)
    }

    /// Position of a sector. The sector after the last one of the disk has a position too.
    pub(super) fn place(&self, sector: u64) -> PlatterPosition {
        let zone = self.zones.partition_point(|zone| zone.first_sector <= sector) - 1;
        let zone = &self.zones[zone];
        let (track, sector) =
            ((sector - zone.first_sector) / zone.sectors_per_track, sector - zone.first_sector);
        let cylinder = zone.first_cylinder + track / self.heads;
        let head = track % self.heads;
        let sector = sector % zone.sectors_per_track;
        let skew = cylinder * self.cylinder_skew + head * self.head_switch;
        let angle = skew + sector * self.turn / zone.sectors_per_track;
        let angle = angle % self.turn;
        PlatterPosition { cylinder, head, angle, sector, sectors_per_track: zone.sectors_per_track }
    }

    /// Time to transfer `length` sectors from `place` on, ns. It includes the switches between
    /// their tracks, but none after the last sector.
    pub(super) fn transfer(&self, place: &PlatterPosition, mut length: u64) -> u64 {
        let mut at = *place;
        let mut total = 0;
        loop {
            let here = length.min(at.sectors_per_track - at.sector);
            total += self.within(&at, here);
            length -= here;
            if length == 0 {
                return total;
            }
            total += self.to_next_track(&mut at);
        }
    }

    /// Number of sectors from `place` on that have passed under the head after `elapsed` ns, at
    /// most `limit`.
    pub(super) fn passed(&self, place: &PlatterPosition, elapsed: u64, limit: u64) -> u64 {
        let mut at = *place;
        let (mut passed, mut used) = (0, 0);
        loop {
            let here = (limit - passed).min(at.sectors_per_track - at.sector);
            let whole = self.within(&at, here);
            if used + whole > elapsed {
                let begun = at.sector * self.turn / at.sectors_per_track;
                let end = begun + (elapsed - used);
                // The last sector that has ended by this time; angles are rounded down.
                let sectors = ((end + 1) * at.sectors_per_track - 1) / self.turn;
                return passed + sectors.saturating_sub(at.sector).min(here);
            }
            passed += here;
            used += whole;
            if passed == limit {
                return passed;
            }
            used += self.to_next_track(&mut at);
            if used > elapsed {
                return passed;
            }
        }
    }

    /// Time that `count` sectors from `at` on, all on one track, take to pass under the head, ns.
    fn within(&self, at: &PlatterPosition, count: u64) -> u64 {
        let angle = |sector: u64| sector * self.turn / at.sectors_per_track;
        angle(at.sector + count) - angle(at.sector)
    }

    /// Moves `at` to the start of the next track. Returns the time that the switch takes, ns.
    fn to_next_track(&self, at: &mut PlatterPosition) -> u64 {
        at.sector = 0;
        at.head += 1;
        if at.head < self.heads {
            return self.head_switch;
        }
        (at.head, at.cylinder) = (0, at.cylinder + 1);
        let zone = self.zones.partition_point(|zone| zone.first_cylinder <= at.cylinder) - 1;
        at.sectors_per_track = self.zones[zone].sectors_per_track;
        self.cylinder_switch
    }
}

/// Geometry of a disk with two heads and one zone, for tests.
#[cfg(test)]
pub(super) fn small() -> Geometry {
    Geometry::new(&Platters {
        heads: 2,
        cylinders: 1_000,
        zones: 1,
        rpm: 7200,
        head_switch_ns: 700_000,
        cylinder_switch_ns: 900_000,
        rate_outer: 50_000_000,
        rate_inner: 50_000_000,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Geometry {
        Geometry::new(&Platters {
            heads: 3,
            cylinders: 50,
            zones: 4,
            rpm: 7200,
            head_switch_ns: 700_000,
            cylinder_switch_ns: 900_000,
            rate_outer: 20_000_000,
            rate_inner: 11_000_000,
        })
    }

    #[test]
    fn pieces_take_as_long_as_the_whole_and_follow_each_other_without_a_wait() {
        let geometry = small();
        let whole = 7_000;
        for piece in [1, 8, 13, 512, 1_000] {
            let (mut at, mut time) = (100, 0);
            let start = geometry.place(at).angle;
            while at < 100 + whole {
                let length = piece.min(100 + whole - at);
                let place = geometry.place(at);
                let passing = (start + time) % geometry.turn;
                let switch = (place.angle + geometry.turn - passing) % geometry.turn;
                let switches = [0, geometry.head_switch, geometry.cylinder_switch];
                assert!(switches.contains(&switch), "{piece} at {at}: {switch} ns");
                assert!(switch == 0 || place.sector == 0, "{piece} at {at}: {switch} ns");
                time += switch + geometry.transfer(&place, length);
                at += length;
            }
            assert_eq!(time, geometry.transfer(&geometry.place(100), whole), "pieces of {piece}");
        }
    }

    #[test]
    fn passed_is_the_inverse_of_transfer() {
        let geometry = small();
        for first in [0, 37, 5_000, 20_011] {
            let place = geometry.place(first);
            for length in (1..4_000).step_by(41) {
                let time = geometry.transfer(&place, length);
                assert_eq!(geometry.passed(&place, time, 5_000), length, "{length} from {first}");
                assert_eq!(geometry.passed(&place, time - 1, 5_000), length - 1);
                assert_eq!(geometry.passed(&place, time, length - 1), length - 1);
            }
        }
    }

    #[test]
    fn every_sector_has_a_place_of_its_own_in_order() {
        let geometry = small();
        let places = (0..geometry.capacity().0).map(|sector| geometry.place(sector));
        let keys: Vec<_> = places.map(|at| (at.cylinder, at.head, at.sector)).collect();
        assert!(keys.is_sorted_by(|a, b| a < b));
        assert_eq!(keys.last().map(|key| (key.0, key.1)), Some((49, 2)));
    }
}
