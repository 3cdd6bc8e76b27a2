//! Resync, recovery, check or repair (a *sync* below) beside a load: its speed, and its cost to the
//! load.
//!
//! The array is new and empty, so its parity is correct: a resync reads every member and writes
//! none, as after an unclean stop of an array with correct parity. A recovery writes the last
//! member. The cost to the load is found by running the load again without the sync.

use serde_json::{Value, json};
use weft_engine::{Notice, SyncAction, VolumeSnapshot};
use weft_units::{Bytes, Sectors, Span, Time};

use super::{Figures, Outcome};

/// Syncs that can run beside a load, each with its name in md's `sync_action`.
const ACTIONS: [(&str, SyncAction); 4] = [
    ("resync", SyncAction::Resync),
    ("recover", SyncAction::Recover),
    ("check", SyncAction::Check),
    ("repair", SyncAction::Repair),
];

/// Finds the sync with a name of md's `sync_action`.
///
/// # Errors
/// No sync has this name.
pub fn action(text: &str) -> Result<SyncAction, String> {
    let found = ACTIONS.iter().find(|(name, _)| *name == text);
    let names = ACTIONS.map(|(name, _)| name).join(", ");
    found.map(|(_, action)| *action).ok_or(format!("found {text:?}, expected one of {names}"))
}

/// Course of a sync beside a load.
#[derive(Clone, Debug)]
pub struct SyncOutcome {
    /// Name of the sync in md's `sync_action`.
    pub action: &'static str,
    /// Number of data sectors of each member that the sync has passed.
    pub completed: Sectors,
    /// Number of data sectors that each member has in all.
    pub total: Sectors,
    /// Duration of the sync, or its time until the load ended.
    pub took: Span,
    /// Whether the sync ended before the load.
    pub finished: bool,
    /// Each job of the load with its figures without and with the sync; empty until the load was
    /// run again.
    pub jobs: Vec<(String, Figures, Figures)>,
}

impl SyncOutcome {
    pub(super) fn of(
        action: SyncAction,
        volume: &VolumeSnapshot,
        notices: &[(Time, Notice)],
        elapsed: Span,
    ) -> Self {
        let ended = notices.iter().find_map(|(at, notice)| match notice {
            Notice::SyncFinished { complete: true, .. } => Some(at.since(Time(0))),
            _ => None,
        });
        let (completed, total) = volume.sync_completed.unwrap_or_default();
        let name = ACTIONS.iter().find(|(_, of)| *of == action).map_or("sync", |(name, _)| *name);
        Self {
            action: name,
            completed: if ended.is_some() { total } else { completed },
            total,
            took: ended.unwrap_or(elapsed),
            finished: ended.is_some(),
            jobs: Vec::new(),
        }
    }

    /// Speed of the sync in bytes of each member per second, as md's `sync_speed` counts.
    #[must_use]
    pub fn speed(&self) -> f64 {
        self.completed.bytes().0 as f64 * 1e9 / (self.took.0 as f64).max(1.0)
    }

    /// Time that the rest of the sync takes at the speed so far; `None` if the sync has made no
    /// progress.
    #[must_use]
    pub fn left(&self) -> Option<Span> {
        let Bytes(left) = (self.total - self.completed).bytes();
        let seconds = left as f64 / self.speed();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
        let span = Span((seconds * 1e9) as u64);
        (self.completed > Sectors::ZERO).then_some(span)
    }

    pub(super) fn to_json(&self) -> Value {
        let of = |it: &Figures| {
            let rate = it.rate * 1e6;
            json!({"bytes_per_second": rate, "p99_ns": it.p99.0, "max_ns": it.longest.0})
        };
        let job = |(name, without, with): &(String, Figures, Figures)| {
            let [without, with] = [without, with].map(of);
            json!({"job": name, "without": without, "with": with})
        };
        json!({
            "action": self.action,
            "finished": self.finished,
            "sectors_completed": self.completed.0,
            "sectors_total": self.total.0,
            "took_ns": self.took.0,
            "bytes_per_second": self.speed(),
            "jobs": self.jobs.iter().map(job).collect::<Vec<_>>(),
        })
    }
}

impl Outcome {
    /// Adds the figures of the load without the sync, if a sync ran.
    pub fn compare_without_sync(&mut self, without: &Self) {
        let Some(sync) = &mut self.sync else { return };
        let jobs = without.results.iter().zip(&self.results);
        let jobs =
            jobs.map(|(one, other)| (other.name.clone(), Figures::of(one), Figures::of(other)));
        sync.jobs = jobs.collect();
    }
}
