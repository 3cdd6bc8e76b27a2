//! Pace of a job: due times of requests under its rates.
//!
//! With a rate, the bytes requested in each direction since the start of the clone may not exceed
//! the rate, as in fio; with `rate_process=poisson` the spans between requests are drawn from the
//! exponential distribution with that mean. Requests keep the order of the job, so a direction with
//! a lower rate delays the others.

use weft_units::Span;
use weft_units::rng::Rng;

use crate::job::{Direction, Pace};

/// Rates of one clone of a job, and the requests that they have timed so far.
#[derive(Clone, Debug)]
pub(super) struct Rates {
    bytes: [Option<u64>; 3],
    requests: [Option<u64>; 3],
    poisson: Option<Rng>,
    asked: [u64; 3],
    due: [Span; 3],
}

impl Rates {
    pub(super) fn new(pace: &Pace, seed: u64) -> Self {
        Self {
            bytes: pace.rate.map(|rate| rate.map(|rate| rate.0)),
            requests: pace.rate_iops,
            poisson: pace.poisson.then(|| Rng::new(seed)),
            asked: [0; 3],
            due: [Span::ZERO; 3],
        }
    }

    /// Due time of the next request, of `length` bytes in this direction, since the start of the
    /// clone; zero if the direction has no rate.
    pub(super) fn due(&mut self, direction: Direction, length: u64) -> Span {
        let at = direction as usize;
        let (amount, rate) = match (self.bytes[at], self.requests[at]) {
            (Some(rate), _) => (length, rate),
            (None, Some(rate)) => (1, rate),
            (None, None) => return Span::ZERO,
        };
        if let Some(rng) = &mut self.poisson {
            let mean = amount as f64 * 1e9 / rate as f64;
            // The value lies in (0, 1], so its logarithm is finite.
            let uniform = (rng.below(1 << 53) + 1) as f64 / (1_u64 << 53) as f64;
            let gap = -libm::log(uniform) * mean;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "saturates"
            )]
            let gap = gap as u64;
            self.due[at] = Span(self.due[at].0.saturating_add(gap));
            return self.due[at];
        }
        let due = u128::from(self.asked[at]) * 1_000_000_000 / u128::from(rate.max(1));
        self.asked[at] = self.asked[at].saturating_add(amount);
        Span(u64::try_from(due).unwrap_or(u64::MAX / 4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_units::Bytes;

    #[test]
    fn an_even_rate_is_exact_and_each_direction_has_its_own() {
        let pace = Pace {
            rate: [Some(Bytes(4096 * 1000)), None, None],
            rate_iops: [None, Some(10), None],
            ..Pace::default()
        };
        let mut rates = Rates::new(&pace, 1);
        let mut due = |direction| rates.due(direction, 4096).0;
        assert_eq!([due(Direction::Read), due(Direction::Read)], [0, 1_000_000]);
        assert_eq!([due(Direction::Write), due(Direction::Write)], [0, 100_000_000]);
        assert_eq!([due(Direction::Trim), due(Direction::Trim)], [0, 0]);
    }

    #[test]
    fn random_spans_have_the_mean_and_the_deviation_of_the_exponential_distribution() {
        let pace = Pace { rate_iops: [Some(1000); 3], poisson: true, ..Pace::default() };
        let mut rates = Rates::new(&pace, 1);
        let dues: Vec<u64> = (0..20_000).map(|_| rates.due(Direction::Read, 512).0).collect();
        let gaps: Vec<f64> = dues.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let squares: f64 = gaps.iter().map(|gap| (gap - mean) * (gap - mean)).sum();
        let deviation = (squares / gaps.len() as f64).sqrt();
        assert!((mean / 1e6 - 1.0).abs() < 0.03, "{mean}");
        assert!((deviation / mean - 1.0).abs() < 0.05, "{deviation}");
    }
}
