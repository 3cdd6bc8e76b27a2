//! Verdict of `--fail-above`: cases that are worse than a limit allows, for CI.
//!
//! A case counts as worse only if the whole interval of its change is beyond the limit, so that
//! chance alone rarely fails a build. A change without an interval cannot count; if there are no
//! other changes, the command fails instead of letting everything pass.

use serde_json::{Value, json};
use weft_lab::compare::{Change, Comparison, Row};
use weft_terminal::outcome::{Exit, Failure};

use super::print::change_text;

/// Cases that are worse by more than a limit.
pub(super) struct Verdict {
    percent: f64,
    /// Cases that are worse: name of the case, name of the set, and change in words.
    worse: Vec<(String, String, String)>,
    /// Number of changes without an interval, which cannot count.
    unknown: usize,
}

impl Verdict {
    /// Compares each change of the table with the limit, `percent`.
    ///
    /// # Errors
    /// No change has an interval.
    pub(super) fn of(
        comparison: &Comparison,
        percent: f64,
        lower_is_better: bool,
    ) -> Result<Self, Failure> {
        let named = |row: &Row| {
            let sets = comparison.sets.iter().map(|(name, _)| name.clone());
            let changes = sets.zip(row.changes.clone());
            let changes =
                changes.filter_map(|(set, change)| Some((row.case.clone(), set, change?)));
            changes.collect::<Vec<(String, String, Change)>>()
        };
        let changes: Vec<_> = comparison.rows.iter().flat_map(named).collect();
        let unknown = changes.iter().filter(|(.., change)| change.interval.is_none()).count();
        if unknown == changes.len() {
            return Err(Failure::failed(format!(
                "--fail-above {percent}: found no change with an interval, expected one at least; \
                 measure a case twice or more on both sides"
            )));
        }
        let is_worse = |(.., change): &(_, _, Change)| change.is_worse_by(percent, lower_is_better);
        let worse = changes.into_iter().filter(is_worse);
        let worse = worse.map(|(case, set, change)| (case, set, words(&change))).collect();
        Ok(Self { percent, worse, unknown })
    }

    /// Line that lists the cases that are worse, or says that there are none.
    pub(super) fn line(&self) -> String {
        let Self { percent, worse, unknown } = self;
        let unknown = match unknown {
            0 => String::new(),
            1 => "; 1 change has no interval and cannot count".to_owned(),
            count => format!("; {count} changes have no interval and cannot count"),
        };
        if worse.is_empty() {
            return format!("--fail-above {percent}: no case is worse by more than that{unknown}");
        }
        let each = worse.iter().map(|(case, set, words)| format!("{case} in {set} {words}"));
        let each: Vec<String> = each.collect();
        let verb = if worse.len() == 1 { "case is" } else { "cases are" };
        format!(
            "--fail-above {percent}: {} {verb} worse by more than that: {}{unknown}",
            worse.len(),
            each.join(", ")
        )
    }

    pub(super) fn exit(&self) -> Exit {
        if self.worse.is_empty() { Exit::Done } else { Exit::Mismatches }
    }

    pub(super) fn to_json(&self) -> Value {
        let each = self.worse.iter().map(|(case, set, _)| json!({"case": case, "set": set}));
        json!({
            "percent": self.percent,
            "worse": each.collect::<Vec<_>>(),
            "without_interval": self.unknown,
        })
    }
}

fn words(change: &Change) -> String {
    let text = change_text(change);
    match (change.percent, change.interval) {
        (Some(_), Some((low, high))) => format!("{text} ({low:+.1} to {high:+.1})"),
        (_, _) => text,
    }
}
