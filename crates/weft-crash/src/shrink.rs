//! Shrinking of a failing script to the steps that the failure needs.
//!
//! Runs of steps are removed, long runs first, then single steps, as long as the same checker still
//! reports.

use crate::script::{Failure, Plant, Script};

/// Returns the shortest failing script found within `attempts` runs, with its failure. `plant` is
/// called for each engine that starts, and may plant a bug.
#[must_use]
pub fn shrink(failure: &Failure, plant: Plant<'_>, attempts: usize) -> Failure {
    let mut best = failure.clone();
    let mut left = attempts;
    best.script.steps.truncate(best.step + 1);
    let mut width = best.script.steps.len() / 2;
    while width > 0 {
        let mut from = 0;
        while from < best.script.steps.len() && left > 0 {
            let mut steps = best.script.steps.clone();
            let to = (from + width).min(steps.len());
            steps.drain(from..to);
            let shorter = Script { steps, ..best.script.clone() };
            left -= 1;
            match shorter.run_with(plant) {
                Err(again) if again.violation.checker == best.violation.checker => best = *again,
                _ => from += width,
            }
        }
        width /= 2;
    }
    best
}
