//! Scales of charts: positions of values, and the values of the axis labels.

/// Scale of a chart, which maps values to positions in percent of the width, or in pixels of the
/// height.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    logarithmic: bool,
}

impl Scale {
    /// Creates a scale that maps values from `low` to `high` to positions from `from` to `to`.
    pub(super) fn new(low: f64, high: f64, from: f64, to: f64, logarithmic: bool) -> Self {
        let logarithmic = logarithmic && low > 0.0;
        let (low, high) = if low.is_finite() && high.is_finite() && high > low {
            (low, high)
        } else if low.is_finite() && low != 0.0 {
            // All values are equal: they lie in the middle.
            (low - low.abs() / 2.0, low + low.abs() / 2.0)
        } else {
            (0.0, 1.0)
        };
        Self { low, high, from, to, logarithmic }
    }

    /// Position at which a value is drawn. A value outside the scale is drawn at the nearer end.
    pub(super) fn at(&self, value: f64) -> f64 {
        let fraction = if self.logarithmic {
            libm::log(value.max(self.low) / self.low) / libm::log(self.high / self.low)
        } else {
            (value - self.low) / (self.high - self.low)
        };
        let fraction = if fraction.is_finite() { fraction.clamp(0.0, 1.0) } else { 0.0 };
        self.from + fraction * (self.to - self.from)
    }

    /// Whether a value lies within the scale.
    pub(super) fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Round values within the scale, about `count` of them.
    pub(super) fn ticks(&self, count: f64) -> Vec<f64> {
        if self.logarithmic {
            return self.powers(count);
        }
        let step = round_step((self.high - self.low) / count);
        let first = libm::ceil(self.low / step);
        let ticks = (0..=50).map(|at| (first + f64::from(at)) * step);
        ticks.take_while(|tick| *tick <= self.high + step * 1e-6).collect()
    }

    /// Powers of ten within the scale, or 1, 2 and 5 times these if there are few.
    fn powers(&self, count: f64) -> Vec<f64> {
        let decades = libm::log10(self.high / self.low);
        let factors: &[f64] = if decades > count / 2.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let skip = libm::ceil(decades / count).max(1.0);
        let mut ticks = Vec::new();
        let mut power = libm::floor(libm::log10(self.low));
        while libm::pow(10.0, power) <= self.high && ticks.len() < 50 {
            for factor in factors {
                let tick = factor * libm::pow(10.0, power);
                if tick >= self.low * (1.0 - 1e-9) && tick <= self.high * (1.0 + 1e-9) {
                    ticks.push(tick);
                }
            }
            power += skip;
        }
        ticks
    }
}

/// Smallest number, of 1, 2 or 5 times a power of ten, that is not below `step`; 1 if `step` is not
/// a finite number above 0.
pub(super) fn round_step(step: f64) -> f64 {
    if !(step.is_finite() && step > 0.0) {
        return 1.0;
    }
    let power = libm::pow(10.0, libm::floor(libm::log10(step)));
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= step * (1.0 - 1e-9));
    factor.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_stay_on_the_scale() {
        let scale = Scale::new(0.0, 200.0, 10.0, 90.0, false);
        assert_eq!((scale.at(0.0), scale.at(100.0), scale.at(200.0)), (10.0, 50.0, 90.0));
        assert_eq!((scale.at(-5.0), scale.at(1e9), scale.at(f64::NAN)), (10.0, 90.0, 10.0));
        assert!(scale.holds(200.0) && !scale.holds(-1.0) && !scale.holds(f64::NAN));
        let log = Scale::new(1.0, 100.0, 0.0, 100.0, true);
        assert!((log.at(10.0) - 50.0).abs() < 1e-9 && log.at(0.0) == 0.0);
        for (low, high) in [(5.0, 5.0), (0.0, 0.0), (f64::NAN, 1.0), (1.0, f64::INFINITY)] {
            let scale = Scale::new(low, high, 0.0, 100.0, false);
            assert!((0.0..=100.0).contains(&scale.at(5.0)), "{low} {high}");
            assert!(scale.ticks(5.0).len() < 30);
        }
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(Scale::new(0.0, 1.7, 0.0, 1.0, false).ticks(5.0), [0.0, 0.5, 1.0, 1.5]);
        assert_eq!(Scale::new(3.0, 11.0, 0.0, 1.0, false).ticks(5.0), [4.0, 6.0, 8.0, 10.0]);
        assert_eq!(Scale::new(1.0, 1000.0, 0.0, 1.0, true).ticks(5.0), [1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(Scale::new(3.0, 30.0, 0.0, 1.0, true).ticks(5.0), [5.0, 10.0, 20.0]);
        assert_eq!((round_step(0.3), round_step(7.0), round_step(0.0)), (0.5, 10.0, 1.0));
    }
}
