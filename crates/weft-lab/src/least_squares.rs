//! Non-negative least squares: the cost of each kind of work, from the total times of mixed work.
//!
//! Each observation gives a count for every kind of work and the total time. The solution minimizes
//! the squared relative error over all observations, with no cost below zero: work never takes
//! negative time. If several solutions are equally good, because one kind of work is never done
//! without another, the result is the one that shares the time between the two kinds. The search
//! goes coordinate by coordinate; the problem is strictly convex, so its minimum is unique.
//!
//! Source   C. L. Lawson, R. J. Hanson, "Solving Least Squares Problems", 1974, chapter 23 (the
//!          problem); V. Franc and others, "Sequential coordinate-wise algorithm for the
//!          non-negative least squares problem", 2005 (the method)

/// One observation: the count of each kind of work, and the time of all work together.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// Count of each kind of work.
    pub counts: Vec<f64>,
    /// Time of the whole observation, above zero, in any unit.
    pub took: f64,
}

/// Cost of each kind of work, in the order of the counts: its time for each count, in the unit of
/// the observed times.
///
/// # Panics
/// There is no observation, observations differ in their number of kinds, or one has a time of
/// zero.
#[must_use]
pub fn costs(observations: &[Observation]) -> Vec<f64> {
    let kinds = observations.first().expect("something was observed").counts.len();
    // Divided by its time, each observation has the target value 1.
    let relative: Vec<Vec<f64>> = observations
        .iter()
        .map(|observation| {
            assert_eq!(observation.counts.len(), kinds);
            assert!(observation.took > 0.0, "work takes time");
            observation.counts.iter().map(|count| count / observation.took).collect()
        })
        .collect();
    let mut costs = vec![0.0; kinds];
    let mut missing = vec![1.0; relative.len()];
    let squares: Vec<f64> =
        (0..kinds).map(|kind| relative.iter().map(|row| row[kind] * row[kind]).sum()).collect();
    for _ in 0..SWEEPS {
        for kind in 0..kinds {
            if squares[kind] <= 0.0 {
                continue;
            }
            let slope: f64 =
                relative.iter().zip(&missing).map(|(row, rest)| row[kind] * rest).sum();
            let cost = (costs[kind] + slope / squares[kind]) / (1.0 + SHARED_OUT);
            let cost = cost.max(0.0);
            let change = cost - costs[kind];
            costs[kind] = cost;
            for (row, rest) in relative.iter().zip(&mut missing) {
                *rest -= change * row[kind];
            }
        }
    }
    costs
}

/// Time of an observation as the costs predict it, divided by its measured time.
#[must_use]
pub fn explained(costs: &[f64], observation: &Observation) -> f64 {
    let said: f64 = costs.iter().zip(&observation.counts).map(|(cost, count)| cost * count).sum();
    said / observation.took
}

/// Weight of the penalty on large costs, relative to the squared error. It is so small that it
/// changes a cost which the observations determine by less than their scatter.
const SHARED_OUT: f64 = 0.001;

/// Number of sweeps over all coordinates, far more than convergence takes.
const SWEEPS: u32 = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(costs: &[f64], counts: &[&[f64]]) -> Vec<Observation> {
        let of = |counts: &&[f64]| {
            let took = counts.iter().zip(costs).map(|(count, cost)| count * cost).sum();
            Observation { counts: counts.to_vec(), took }
        };
        counts.iter().map(of).collect()
    }

    const COUNTS: &[&[f64]] =
        &[&[1.0, 64.0, 0.0], &[1.0, 1.0, 1.0], &[1.0, 8.0, 300.0], &[3.0, 0.0, 2.0]];

    #[test]
    fn costs_come_back_from_sums() {
        let found = costs(&observed(&[700.0, 40.0, 3.0], COUNTS));
        for (found, put) in found.iter().zip([700.0, 40.0, 3.0]) {
            assert!((found / put - 1.0).abs() < 0.02, "{found} for {put}");
        }
    }

    #[test]
    fn what_is_only_done_together_shares_its_time() {
        let counts: &[&[f64]] = &[&[1.0, 2.0, 2.0], &[1.0, 9.0, 9.0], &[1.0, 0.0, 0.0]];
        let found = costs(&observed(&[10.0, 30.0, 0.0], counts));
        assert!((found[1] - found[2]).abs() < 0.01, "{found:?}");
        assert!((found[1] + found[2] - 30.0).abs() < 0.5, "{found:?}");
    }

    #[test]
    fn no_cost_is_below_zero_and_what_is_not_done_costs_nothing() {
        let mut observations = observed(&[10.0, 5.0, 1.0], COUNTS);
        for observation in &mut observations {
            // The observation takes less time than the other kinds of work explain, so the last
            // kind would need a negative cost.
            observation.took -= 2.0 * observation.counts[2].min(4.0);
            observation.counts.push(0.0);
        }
        let found = costs(&observations);
        assert!(found.iter().all(|cost| *cost >= 0.0), "{found:?}");
        assert!(found[3] == 0.0);
    }

    #[test]
    fn what_nothing_explains_is_seen() {
        let mut observations = observed(&[10.0, 5.0, 1.0], COUNTS);
        let found = costs(&observations);
        assert!((explained(&found, &observations[1]) - 1.0).abs() < 0.01);
        observations[1].took *= 2.0;
        assert!((explained(&found, &observations[1]) - 0.5).abs() < 0.01);
    }
}
