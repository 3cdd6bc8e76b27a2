//! Arm of a hard disk: seek time, settling and rotational latency.
//!
//! A move over `d` cylinders takes `a·√(d−1) + b·(d−1) + c`. The curve has three given
//! points: one cylinder, the mean over all pairs of cylinders, and the whole stroke (Lee's fit). A
//! write has to settle after a move. Then the arm waits until the platter has turned to the sector.
//!
//! An access to the sector after the last one is not a move: the skew between tracks provides the
//! time for it.
//!
//! Units    nanoseconds, cylinders
//! Source   `experiments.md` §2.1 (2), (3)

use super::geometry::{Geometry, PlatterPosition};

/// Curve of seek times over the distance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::drive) struct Seek {
    root: f64,
    linear: f64,
    least: u64,
    /// Settling time that a write adds to a seek, ns.
    pub(in crate::drive) settle: u64,
}

/// Three points that determine the seek curve: shortest move, mean and whole stroke, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::drive) struct SeekPoints {
    pub(in crate::drive) least: u64,
    pub(in crate::drive) average: u64,
    pub(in crate::drive) most: u64,
}

impl Seek {
    /// Curve through `points` for this number of cylinders; `None` if the seek time would fall with
    /// the distance anywhere.
    pub(in crate::drive) fn through(
        points: SeekPoints,
        cylinders: u32,
        settle: u64,
    ) -> Option<Self> {
        let SeekPoints { least, average, most } = points;
        let (least_f, average, most) = (least as f64, average as f64, most as f64);
        let cylinders = f64::from(cylinders);
        let root = (15.0 * average - 10.0 * least_f - 5.0 * most) / (3.0 * cylinders.sqrt());
        let linear = (7.0 * least_f - 15.0 * average + 8.0 * most) / (3.0 * cylinders);
        (root >= 0.0 && linear >= 0.0).then_some(Self { root, linear, least, settle })
    }

    /// Time of a move over `distance` cylinders, ns.
    pub(in crate::drive) fn time(&self, distance: u64) -> u64 {
        if distance == 0 {
            return 0;
        }
        // The multiplications and additions are in this order and rounded separately, so that the
        // result is the same on any host.
        let over = (distance - 1) as f64;
        #[allow(clippy::cast_sign_loss, reason = "neither factor is negative: `through` saw to it")]
        let beyond = (self.root * over.sqrt() + self.linear * over) as u64;
        self.least + beyond
    }
}

/// Position of the arm, and angle of the platter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arm {
    cylinder: u64,
    head: u64,
    /// Sector after the last access.
    next: u64,
    /// Angle of the platter at time zero, in ns.
    phase: u64,
}

/// Time until an access to a sector can begin, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Approach {
    /// Time of the move, the switch of heads and the settling.
    pub(super) seek: u64,
    /// Time for which the arm then waits until the platter has turned to the sector.
    pub(super) rotation: u64,
}

impl Approach {
    pub(super) fn total(self) -> u64 {
        self.seek + self.rotation
    }
}

/// A sector with its position on the platters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    /// Number of the sector.
    pub(super) sector: u64,
    /// Position of the sector on the platters.
    pub(super) place: PlatterPosition,
}

impl Target {
    pub(super) fn new(geometry: &Geometry, sector: u64) -> Self {
        Self { sector, place: geometry.place(sector) }
    }
}

impl Arm {
    pub(super) fn new(phase: u64) -> Self {
        Self { cylinder: 0, head: 0, next: 0, phase }
    }

    /// Time until an access to `target` can begin if the arm starts at `now`.
    pub(super) fn approach(
        &self,
        geometry: &Geometry,
        seek: &Seek,
        now: u64,
        target: &Target,
        write: bool,
    ) -> Approach {
        let place = &target.place;
        let distance = self.cylinder.abs_diff(place.cylinder);
        let moved = if target.sector == self.next {
            match (distance, place.head == self.head) {
                (0, true) => 0,
                (0, false) => geometry.head_switch,
                _ => geometry.cylinder_switch,
            }
        } else if distance == 0 {
            if place.head == self.head { 0 } else { geometry.head_switch }
        } else {
            seek.time(distance) + if write { seek.settle } else { 0 }
        };
        let passing = (now + moved + self.phase) % geometry.turn;
        let rotation = if place.angle >= passing {
            place.angle - passing
        } else {
            place.angle + geometry.turn - passing
        };
        Approach { seek: moved, rotation }
    }

    /// Whether a sector directly follows the last access.
    pub(super) fn is_before(&self, sector: u64) -> bool {
        self.next == sector
    }

    /// Records that the last access ended before sector `next`.
    pub(super) fn stand_behind(&mut self, geometry: &Geometry, next: u64) {
        let last = geometry.place(next.saturating_sub(1));
        (self.cylinder, self.head, self.next) = (last.cylinder, last.head, next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_units::rng::Rng;

    /// Statement 2 of `experiments.md` §7, over the distances of the oracle in §2.1.
    #[test]
    fn the_curve_goes_through_its_three_points_and_rises() {
        let cylinders = 150_000;
        let points = SeekPoints { least: 800_000, average: 8_500_000, most: 18_000_000 };
        let seek = Seek::through(points, cylinders, 1_000_000).unwrap();
        assert_eq!(seek.time(0), 0);
        assert_eq!(seek.time(1), points.least);
        let times: Vec<u64> = (0..u64::from(cylinders)).map(|d| seek.time(d)).collect();
        assert!(times.is_sorted());
        let mut rng = Rng::new(5);
        let mut sum = 0;
        let pairs = 200_000;
        for _ in 0..pairs {
            let (from, to) = (rng.below(150_000), rng.below(150_000));
            sum += seek.time(from.abs_diff(to));
        }
        let mean = sum / pairs;
        assert!(mean.abs_diff(points.average) * 100 < points.average, "mean {mean} ns");
        assert!(times[149_999].abs_diff(points.most) * 100 < points.most);
        let oracle =
            [(1, 0.80), (10, 0.88), (100, 1.06), (1_000, 1.65), (10_000, 3.83), (50_000, 8.93)];
        for (distance, expected) in oracle {
            let found = seek.time(distance) as f64 / 1e6;
            assert!((found - expected).abs() < 0.006, "{distance}: {found}, expected {expected}");
        }
    }

    #[test]
    fn a_curve_that_would_fall_is_refused() {
        let points = SeekPoints { least: 1_000_000, average: 4_000_000, most: 18_000_000 };
        assert_eq!(Seek::through(points, 1_000, 0), None);
        let points = SeekPoints { least: 1_000_000, average: 14_000_000, most: 18_000_000 };
        assert_eq!(Seek::through(points, 1_000, 0), None);
    }
}
