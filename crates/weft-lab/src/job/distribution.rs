//! Distributions of random offsets: uniform, zipf, pareto, normal and zoned.
//!
//! A distribution yields a rank; 0 is the most frequent. A permutation scatters ranks over the
//! region, as in fio, so blocks of neighbouring rank are not neighbours on the volume. Zones keep
//! their order.
//!
//! Source   zipf: Hörmann, Derflinger: "Rejection-inversion to generate variates from monotone
//! discrete distributions", ACM TOMACS 6 (1996). pareto: the self-similar distribution of Gray et
//! al., "Quickly generating billion-record synthetic databases", SIGMOD 1994, §3. normal: Box,
//! Muller (1958).

use super::Distribution;
use super::rng::{Rng, mix};

/// Generator of random block numbers below `count` with a given distribution.
#[derive(Clone, Debug)]
pub(super) struct Draw {
    kind: Kind,
    count: u64,
    key: u64,
}

#[derive(Clone, Debug)]
enum Kind {
    Normal {
        deviation: f64,
    },
    Power {
        exponent: f64,
    },
    Uniform,
    Zipf(Zipf),
    /// For each zone: cumulative percentage of the requests up to its end, its first block, and the
    /// block after its last.
    Zoned(Vec<(u64, u64, u64)>),
}

impl Draw {
    /// Prepares draws from `count` blocks, scattered by `key`.
    pub(super) fn new(distribution: &Distribution, count: u64, key: u64) -> Self {
        assert!(count > 0);
        let kind = match distribution {
            Distribution::Normal(percent) => {
                Kind::Normal { deviation: percent / 100.0 * count as f64 }
            }
            Distribution::Pareto(share) => {
                Kind::Power { exponent: libm::log(*share) / libm::log(1.0 - share) }
            }
            Distribution::Uniform => Kind::Uniform,
            Distribution::Zipf(theta) => Kind::Zipf(Zipf::new(count, *theta)),
            Distribution::Zoned(zones) => {
                let (mut requests, mut place) = (0, 0);
                let at = |percent: u64| {
                    u64::try_from(u128::from(count) * u128::from(percent) / 100).expect("a part")
                };
                let zones = zones.iter().map(|(access, size)| {
                    requests += u64::from(*access);
                    let first = at(place);
                    place += u64::from(*size);
                    // A zone smaller than a block becomes the block that contains its start.
                    (
                        requests,
                        first.min(count - 1),
                        at(place).clamp(first + 1, count.max(first + 1)),
                    )
                });
                Kind::Zoned(zones.collect())
            }
        };
        Self { kind, count, key }
    }

    pub(super) fn next(&self, rng: &mut Rng) -> u64 {
        let count = self.count;
        let rank = match &self.kind {
            Kind::Uniform => return rng.below(count),
            Kind::Zoned(zones) => {
                let draw = rng.below(zones.last().map_or(1, |zone| zone.0));
                let zone = zones.iter().find(|zone| draw < zone.0);
                let (_, first, end) = *zone.expect("the last zone ends above every draw");
                return (first + rng.below(end - first)).min(count - 1);
            }
            Kind::Power { exponent } => floor(count as f64 * libm::pow(rng.fraction(), *exponent)),
            Kind::Zipf(zipf) => zipf.next(rng),
            Kind::Normal { deviation } => {
                // 1 - u is above 0, so its logarithm is finite.
                let radius = (-2.0 * libm::log(1.0 - rng.fraction())).sqrt();
                let angle = libm::cos(2.0 * std::f64::consts::PI * rng.fraction());
                let place = 0.5 * count as f64 + radius * angle * deviation;
                floor(place.clamp(0.0, (count - 1) as f64))
            }
        };
        scatter(rank.min(count - 1), count, self.key)
    }
}

/// The integer part of a non-negative number.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped, saturates")]
fn floor(value: f64) -> u64 {
    value.max(0.0) as u64
}

/// Maps a rank to a block by a permutation of `0..count`: four rounds of a Feistel network on the
/// next even number of bits, repeated until the result is below `count` (less than four times on
/// average).
fn scatter(rank: u64, count: u64, key: u64) -> u64 {
    let half = (64 - (count - 1).leading_zeros()).div_ceil(2).max(1);
    let mask = (1u64 << half) - 1;
    let mut value = rank;
    loop {
        let (mut left, mut right) = (value >> half, value & mask);
        for round in 0..4u64 {
            let mixed = mix(right ^ key.wrapping_add(round.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
            (left, right) = (right, left ^ (mixed & mask));
        }
        value = left << half | right;
        if value < count {
            return value;
        }
    }
}

/// Distribution of ranks from 1 to `count` with probabilities proportional to rank^-theta.
#[derive(Clone, Debug)]
struct Zipf {
    count: f64,
    theta: f64,
    /// Lower end of the values of [`Zipf::integral`] between which a draw is uniform; `high` is the
    /// upper end.
    low: f64,
    high: f64,
    /// Largest distance below its rank at which a draw is accepted without a test.
    shortcut: f64,
}

impl Zipf {
    fn new(count: u64, theta: f64) -> Self {
        let mut zipf = Self { count: count as f64, theta, low: 0.0, high: 0.0, shortcut: 0.0 };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.high = zipf.integral(zipf.count + 0.5);
        zipf.shortcut = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.weight(2.0));
        zipf
    }

    /// Integral of x^-theta from 1 to `x`.
    fn integral(&self, x: f64) -> f64 {
        let (log, rest) = (libm::log(x), 1.0 - self.theta);
        if (rest * log).abs() < 1e-8 { log } else { libm::expm1(rest * log) / rest }
    }

    fn inverse(&self, y: f64) -> f64 {
        let rest = 1.0 - self.theta;
        if (rest * y).abs() < 1e-8 {
            return libm::exp(y);
        }
        libm::exp(libm::log1p((rest * y).max(-1.0)) / rest)
    }

    fn weight(&self, x: f64) -> f64 {
        libm::exp(-self.theta * libm::log(x))
    }

    /// Draws a rank, counted from 0.
    fn next(&self, rng: &mut Rng) -> u64 {
        loop {
            let y = self.high + rng.fraction() * (self.low - self.high);
            let x = self.inverse(y);
            let rank = libm::floor(x + 0.5).clamp(1.0, self.count);
            if rank - x <= self.shortcut || y >= self.integral(rank + 0.5) - self.weight(rank) {
                return floor(rank - 1.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(distribution: &Distribution, count: usize, draws: u32) -> Vec<u32> {
        let draw = Draw::new(distribution, count as u64, 7);
        let mut rng = Rng::new(1);
        let mut counts = vec![0; count];
        for _ in 0..draws {
            counts[usize::try_from(draw.next(&mut rng)).unwrap()] += 1;
        }
        counts
    }

    /// Shares of the blocks, most frequent first.
    fn shares(distribution: &Distribution, count: usize) -> Vec<f64> {
        let mut counts = counts(distribution, count, 200_000);
        counts.sort_unstable_by_key(|count| std::cmp::Reverse(*count));
        counts.iter().map(|count| f64::from(*count) / 200_000.0).collect()
    }

    fn close(found: f64, expected: f64, within: f64) {
        assert!((found - expected).abs() <= within, "found {found}, expected {expected}");
    }

    #[test]
    fn scattering_is_a_permutation() {
        for count in [1, 2, 3, 5, 64, 1000, 4097] {
            let mut seen = vec![false; usize::try_from(count).unwrap()];
            for rank in 0..count {
                let place = &mut seen[usize::try_from(scatter(rank, count, 99)).unwrap()];
                assert!(!std::mem::replace(place, true), "{count}");
            }
        }
        assert!(scatter(u64::MAX >> 1, 1 << 63, 1) < 1 << 63);
    }

    #[test]
    fn zipf_has_the_weights_of_its_definition() {
        for theta in [0.8, 1.0, 1.2, 2.5] {
            let shares = shares(&Distribution::Zipf(theta), 1000);
            let weight = |rank: u32| libm::pow(f64::from(rank), -theta);
            let sum: f64 = (1..=1000).map(weight).sum();
            for rank in [1, 2, 3, 10] {
                close(shares[rank as usize - 1], weight(rank) / sum, 0.004);
            }
        }
        // fio 3.33: zipf:1.2 on 1,000 blocks, 4,622 of 20,000 requests to one of them.
        close(shares(&Distribution::Zipf(1.2), 1000)[0], 4622.0 / 20000.0, 0.01);
    }

    #[test]
    fn pareto_is_self_similar() {
        let shares = shares(&Distribution::Pareto(0.2), 1000);
        close(shares[..200].iter().sum(), 0.8, 0.01);
        close(shares[..40].iter().sum(), 0.64, 0.01);
        // fio 3.33: 7,665 of 20,000 requests to one block.
        close(shares[0], 7665.0 / 20000.0, 0.01);
    }

    #[test]
    fn normal_has_its_deviation() {
        let shares = shares(&Distribution::Normal(10.0), 1000);
        // 100 blocks are ±0.5 deviations: 38.29 %; 200 are ±1: 68.27 %.
        close(shares[..100].iter().sum(), 0.3829, 0.02);
        close(shares[..200].iter().sum(), 0.6827, 0.02);
    }

    #[test]
    fn zones_get_their_shares_in_their_places() {
        let zones = Distribution::Zoned(vec![(50, 10), (30, 20), (20, 70)]);
        let counts = counts(&zones, 1000, 100_000);
        let share =
            |from: usize, to: usize| f64::from(counts[from..to].iter().sum::<u32>()) / 100_000.0;
        close(share(0, 100), 0.5, 0.01);
        close(share(100, 300), 0.3, 0.01);
        close(share(300, 1000), 0.2, 0.01);
        let tiny = Distribution::Zoned(vec![(50, 1), (50, 99)]);
        let draw = Draw::new(&tiny, 3, 1);
        let mut rng = Rng::new(1);
        assert!((0..1000).all(|_| draw.next(&mut rng) < 3));
    }
}
