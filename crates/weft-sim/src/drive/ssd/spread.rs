//! Spread of a solid-state drive's latencies: the time of a command beyond the smallest one.
//!
//! Data sheets give a typical latency and a 99.9th percentile. Between them lies a tail that falls
//! in frequency with the square of the latency, in steps of a length that the model gives:
//!
//! ```text
//!     longer by    0.41 steps    1      3       9      30.6       255
//!     takes one of      2        4     16     100      1000     65536: the longest
//! ```
//!
//! The two figures of a data sheet thus determine two parameters: the smallest latency, and the
//! step, which is the mean of the spread. That the tail is quadratic is assumed: an exponential
//! tail, which halves with every step, through the S4500's 52 and 800 µs would have a mean of
//! 114 µs, twice what its maker calls typical, whether that is the mean or the median. Only whole
//! numbers are used, so that a seed gives the same times on any host.
//!
//! The spread adds only latency: it occupies no die and no link. Reads from the buffer or of pages
//! that were read ahead, and writes that continue an earlier write, take the smallest time.

use weft_units::Span;
use weft_units::rng::Rng;

/// Random generator of the time by which a command exceeds the smallest latency.
#[derive(Clone, Debug)]
pub(super) struct Spread(Rng);

impl Spread {
    pub(super) fn new(rng: Rng) -> Self {
        Self(rng)
    }

    /// Draws the time by which a command exceeds the smallest latency. The time is more than `n`
    /// steps in one of `(n + 1)^2` cases; zero if the step is zero.
    pub(super) fn draw(&mut self, step: Span) -> Span {
        if step == Span::ZERO {
            return Span::ZERO;
        }
        // The root of a uniform number is below a part `p` of its maximum in `p^2` of all cases.
        let root = u64::from((self.0.next_u64() >> 32) as u32).isqrt().max(ROOT_MIN);
        Span(step.0 * (WHOLE - root) / root)
    }
}

/// Upper bound (exclusive) of the square roots of 32-bit numbers.
const WHOLE: u64 = 1 << 16;
/// Smallest root that is used. It bounds the times that are drawn at 255 steps, and models nothing.
const ROOT_MIN: u64 = WHOLE / 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_take_two_fifths_of_a_step_and_one_in_a_thousand_thirty_steps() {
        let mut spread = Spread::new(Rng::new(7));
        let step = Span(1_000);
        let mut drawn: Vec<u64> = (0..1_000_000).map(|_| spread.draw(step).0).collect();
        let mean = drawn.iter().sum::<u64>() / 1_000_000;
        assert!(mean.abs_diff(1_000) < 20, "a step on average, found {mean}");
        drawn.sort_unstable();
        for (one_of, expected) in [(2, 414), (4, 1_000), (16, 3_000), (100, 9_000), (1_000, 30_623)]
        {
            let found = drawn[1_000_000 - 1_000_000 / one_of];
            let off = found.abs_diff(expected);
            assert!(off * 20 < expected, "one of {one_of}: {found}, expected {expected}");
        }
        assert!(drawn[999_999] <= 255_000);
    }

    #[test]
    fn without_a_step_nothing_is_drawn() {
        let (mut some, mut none) = (Spread::new(Rng::new(7)), Spread::new(Rng::new(7)));
        assert!((0..1_000).all(|_| none.draw(Span::ZERO) == Span::ZERO));
        assert_eq!(none.draw(Span(1_000)), some.draw(Span(1_000)), "the stream has not moved");
    }
}
