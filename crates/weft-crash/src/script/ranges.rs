//! Checks and repairs of a range: some of those that a script has begin and end in the middle.
//!
//! The choice has a random stream of its own, so that a script keeps all of its other steps.

use weft_engine::SyncAction;
use weft_units::rng::Rng;

use super::ScriptStep;

/// Percentage of checks, repairs and corrections that get a range. One in eight of the ranges is
/// everything.
const PERCENT: u64 = 40;

/// Gives some of the checks and repairs in `steps` a range within the first `sectors` sectors.
pub(super) fn draw(seed: u64, sectors: u64, steps: &mut [ScriptStep]) {
    let mut rng = Rng::new(seed ^ 0x7a9e);
    for step in steps {
        let ScriptStep::Sync(action) = *step else { continue };
        let has_range =
            matches!(action, SyncAction::Check | SyncAction::Correct | SyncAction::Repair);
        if !has_range || !rng.percent(PERCENT) {
            continue;
        }
        let from = if rng.percent(25) { 0 } else { rng.below(sectors) };
        let to = rng.percent(50).then(|| from + 1 + rng.below(sectors - from));
        *step = ScriptStep::SyncRange { action, from, to };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::{Profile, Script};

    #[test]
    fn only_checks_and_repairs_get_a_range() {
        let all = [SyncAction::Check, SyncAction::Idle, SyncAction::Repair, SyncAction::Resync];
        let before: Vec<ScriptStep> = (0..400)
            .map(|n| if n % 5 == 4 { ScriptStep::Add } else { ScriptStep::Sync(all[n % 4]) })
            .collect();
        let mut after = before.clone();
        draw(7, 100, &mut after);
        let mut changed = 0;
        for (before, after) in before.iter().zip(&after) {
            match *after {
                ScriptStep::SyncRange { action, from, to } => {
                    assert_eq!(*before, ScriptStep::Sync(action));
                    assert!(matches!(action, SyncAction::Check | SyncAction::Repair));
                    assert!(from < 100 && to.is_none_or(|to| (from + 1..=100).contains(&to)));
                    changed += 1;
                }
                _ => assert_eq!(before, after),
            }
        }
        assert!((30..130).contains(&changed), "{changed} of 160");
    }

    #[test]
    fn scripts_have_checks_and_repairs_of_ranges_and_golden_ones_have_none() {
        let (mut counts, mut ends, mut whole) = ([0; 2], [0; 2], 0);
        for seed in 0..400 {
            for step in Script::generate(seed, Profile::FAULTS_AND_CUTS).steps {
                match step {
                    ScriptStep::SyncRange { action, to, .. } => {
                        counts[usize::from(action == SyncAction::Repair)] += 1;
                        ends[usize::from(to.is_some())] += 1;
                    }
                    ScriptStep::Sync(SyncAction::Check | SyncAction::Repair) => whole += 1,
                    _ => {}
                }
            }
            let golden = Script::generate(seed, crate::golden::PROFILE);
            assert!(!golden.steps.iter().any(|it| matches!(it, ScriptStep::SyncRange { .. })));
        }
        let drawn = counts.iter().chain(&ends).all(|count| *count > 10);
        assert!(drawn && whole > 40, "{counts:?} {ends:?} {whole}");
    }
}
