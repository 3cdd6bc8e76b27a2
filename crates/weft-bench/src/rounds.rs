//! Alternating rounds: a fair comparison on a machine that runs other work too.
//!
//! The contestants, weft and its baselines, alternate round after round, and each round gives one
//! ratio of measurements adjacent in time. Work on one thread is measured by that thread's CPU
//! time, which stops while other threads have the CPU. The median discards rounds that were
//! disturbed.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::BenchError;

/// Effort of a benchmark: number of rounds, and their length.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Number of rounds; `None` for the benchmark's own.
    pub rounds: Option<u32>,
    /// Whether rounds are short and, by default, few, for a first look.
    pub quick: bool,
}

impl Effort {
    /// The requested number of rounds, or the default: `full` for a record, `quick` for a first
    /// look.
    pub(crate) fn rounds(self, full: u32, quick: u32) -> u32 {
        self.rounds.unwrap_or(if self.quick { quick } else { full })
    }
}

/// A contestant, which is weft or a baseline: a function that does the work once and returns its
/// figure.
pub(crate) type Contestant<'a> = &'a mut dyn FnMut() -> Result<f64, BenchError>;

/// Runs the contestants in turns. Returns the figures of each contestant, one for each round.
///
/// Every second round runs in reverse order, so that no contestant always follows the same other
/// one.
pub(crate) fn in_turns(
    rounds: u32,
    contestants: &mut [Contestant<'_>],
) -> Result<Vec<Vec<f64>>, BenchError> {
    let count = contestants.len();
    let mut figures = vec![Vec::new(); count];
    for round in 0..rounds {
        let mut turn = |index: usize| -> Result<(), BenchError> {
            figures[index].push(contestants[index]()?);
            Ok(())
        };
        if round % 2 == 0 {
            (0..count).try_for_each(&mut turn)?;
        } else {
            (0..count).rev().try_for_each(&mut turn)?;
        }
    }
    Ok(figures)
}

/// Median of the figures; for an even count the mean of the two middle ones.
///
/// # Panics
/// There are no figures.
pub(crate) fn median(figures: &[f64]) -> f64 {
    assert!(!figures.is_empty());
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) {
        (sorted[middle - 1] + sorted[middle]) / 2.0
    } else {
        sorted[middle]
    }
}

/// First and third quartile: a quarter of the figures lies below the first, a quarter above the
/// third.
///
/// # Panics
/// There are no figures.
pub(crate) fn quartiles(figures: &[f64]) -> [f64; 2] {
    assert!(!figures.is_empty());
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    [1, 3].map(|quarter| {
        // Position in quarters of an index.
        let at = quarter * (sorted.len() - 1);
        let (below, above) = (sorted[at / 4], sorted[at.div_ceil(4)]);
        below + (above - below) * (at % 4) as f64 / 4.0
    })
}

/// Median of the ratios of `figures` to `baseline`, round by round: figures of one round are
/// adjacent in time.
pub(crate) fn median_ratio(figures: &[f64], baseline: &[f64]) -> f64 {
    let ratios: Vec<f64> = figures.iter().zip(baseline).map(|(ours, other)| ours / other).collect();
    median(&ratios)
}

/// Repeats `work` for at least `wall`. Returns the number of repetitions per second of this
/// thread's CPU time.
///
/// Runs at least once, even if other threads have the CPU all the time.
pub(crate) fn per_cpu_second(wall: Duration, mut work: impl FnMut()) -> f64 {
    let (start, cpu_start) = (Instant::now(), thread_cpu());
    let mut count = 0u64;
    loop {
        work();
        count += 1;
        if start.elapsed() >= wall {
            let cpu = thread_cpu().saturating_sub(cpu_start);
            return count as f64 / cpu.as_secs_f64().max(1e-9);
        }
    }
}

/// CPU time that the calling thread has used so far.
pub(crate) fn thread_cpu() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let secs = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::new(secs, u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_counts() {
        for (figures, expected) in
            [(&[3.0, 1.0, 100.0][..], 3.0), (&[4.0, 1.0, 2.0, 100.0], 3.0), (&[7.0], 7.0)]
        {
            assert!((median(figures) - expected).abs() < 1e-12, "{figures:?}");
        }
        assert!((median_ratio(&[2.0, 9.0, 4.0], &[1.0, 1.0, 4.0]) - 2.0).abs() < 1e-12);
    }

    #[test]
    fn quartiles_lie_around_the_median() {
        for (figures, expected) in [
            (&[5.0, 1.0, 3.0, 2.0, 4.0][..], [2.0, 4.0]),
            (&[7.0], [7.0, 7.0]),
            (&[1.0, 2.0], [1.25, 1.75]),
        ] {
            assert_eq!(quartiles(figures), expected, "{figures:?}");
        }
    }

    #[test]
    fn contestants_take_turns_and_change_order() {
        let order = std::cell::RefCell::new(String::new());
        let turn = |name: char| {
            order.borrow_mut().push(name);
            Ok(f64::from(u32::from(name)))
        };
        let (mut first, mut second) = (|| turn('a'), || turn('b'));
        let figures = in_turns(3, &mut [&mut first, &mut second]).unwrap();
        assert_eq!(*order.borrow(), "abbaab");
        assert_eq!(figures, [vec![97.0; 3], vec![98.0; 3]]);
    }

    #[test]
    fn a_contestant_that_fails_ends_it() {
        let mut fails = || Err(BenchError::failed("no"));
        assert_eq!(in_turns(2, &mut [&mut fails]).unwrap_err().to_string(), "no");
    }

    #[test]
    fn cpu_time_passes_with_work_and_not_with_sleep() {
        let before = thread_cpu();
        std::thread::sleep(Duration::from_millis(50));
        let slept = thread_cpu() - before;
        assert!(slept < Duration::from_millis(40), "{slept:?}");
        let rate = per_cpu_second(Duration::from_millis(5), || {
            std::hint::black_box(
                (0..1000u64).fold(0, |sum, value| sum ^ std::hint::black_box(value)),
            );
        });
        assert!(rate > 0.0 && thread_cpu() > before + slept);
    }
}
