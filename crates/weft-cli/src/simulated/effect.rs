//! Settings and knobs of a sweep without effect: their results are equal, bit for bit.
//!
//! Two settings have equal results if every figure of every run is the same. A knob is without
//! effect if that holds for all its values, whatever the values of the other swept knobs.

use std::collections::BTreeMap;

use weft_engine::knobs::{SchedulerKind, StripeSize, TABLE};
use weft_lab::simulate::Volume;
use weft_lab::simulate::part::Setting;
use weft_ondisk::Level;
use weft_units::Bytes;

/// Settings and knobs of a sweep that are without effect.
pub(super) struct Effects {
    /// By setting: index of the first earlier setting with the same results; `None` if there is
    /// none.
    pub(super) same_as: Vec<Option<usize>>,
    /// Swept knobs that change nothing, each with the reason, which is empty if it is not known.
    pub(super) without: Vec<(String, String)>,
}

impl Effects {
    /// Finds settings and knobs without effect, by the fingerprints of the settings' runs.
    pub(super) fn of(knobs: &[String], settings: &[Setting]) -> Self {
        let mut firsts = BTreeMap::new();
        let same_as = settings.iter().enumerate().map(|(at, setting)| {
            let first = *firsts.entry(&setting.fingerprints).or_insert(at);
            (first != at).then_some(first)
        });
        let same_as = same_as.collect();
        let without = knobs.iter().enumerate().filter(|(axis, _)| changes_nothing(*axis, settings));
        let without = without.map(|(axis, knob)| (knob.clone(), reason_in_all(axis, settings)));
        Self { same_as, without: without.collect() }
    }

    /// A sentence for each knob without effect.
    pub(super) fn lines(&self) -> Vec<String> {
        let line = |(knob, reason): &(String, String)| {
            let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
            format!("{knob} changes nothing here, bit for bit{reason}")
        };
        self.without.iter().map(line).collect()
    }

    /// Name of the earlier setting with the same results as `setting`; `None` if there is none.
    pub(super) fn same<'a>(&self, setting: usize, names: &'a [String]) -> Option<&'a str> {
        self.same_as[setting].map(|other| names[other].as_str())
    }
}

/// Whether the results are equal for all values of a knob, whatever the values of the others.
fn changes_nothing(axis: usize, settings: &[Setting]) -> bool {
    // Settings that differ in this knob alone, by the values of the others.
    let mut alike = BTreeMap::new();
    settings.iter().any(|of| of.values[axis] != settings[0].values[axis])
        && settings.iter().all(|of| {
            let others = (&of.values[..axis], &of.values[axis + 1..]);
            *alike.entry(others).or_insert(&of.fingerprints) == &of.fingerprints
        })
}

/// Reason for which a knob cannot have an effect under any setting; empty if it could under one.
fn reason_in_all(axis: usize, settings: &[Setting]) -> String {
    let mut reasons: Vec<&str> = Vec::new();
    for setting in settings {
        let Some(reason) = &setting.reasons[axis] else { return String::new() };
        if !reasons.contains(&reason.as_str()) {
            reasons.push(reason);
        }
    }
    reasons.join("; ")
}

/// Knobs of the stripe cache, which only levels with parity have.
const OF_STRIPES: [&str; 11] = [
    "activation",
    "plan_rule",
    "preread_bypass_threshold",
    "preread_wait_max",
    "priority",
    "rmw_level",
    "skip_copy",
    "stripe_cache_bytes",
    "stripe_cache_form",
    "stripe_cache_size",
    "stripe_size",
];

/// Reason for which a knob cannot have an effect on this volume; `None` if it could have one.
pub(super) fn reason(knob: &str, volume: &Volume) -> Option<String> {
    let Volume { level, knobs, write_back, sync, .. } = volume;
    let name = level.map_or("a single member", Level::name);
    if OF_STRIPES.contains(&knob) && !level.is_some_and(Level::has_parity) {
        return Some(format!("{name} has no stripe cache"));
    }
    if knob == "chunk" && !level.is_some_and(Level::is_striped) {
        return Some(format!("{name} has no chunks"));
    }
    if knob == "fail_last_dev" {
        return Some("members do not fail here".to_owned());
    }
    let is_auto = knobs.stripe_size == StripeSize::AUTO;
    if knob == "stripe_cache_bytes" && !is_auto {
        return Some("it is the size with stripe_size=auto alone".to_owned());
    }
    if knob == "stripe_cache_size" && is_auto && knobs.stripe_cache_bytes > Bytes::ZERO {
        return Some("with stripe_size=auto the size is stripe_cache_bytes".to_owned());
    }
    let origin = TABLE.iter().find(|row| row.name == knob)?.origin;
    for (name, kind) in [
        ("bfq", SchedulerKind::Bfq),
        ("kyber", SchedulerKind::Kyber),
        ("mq-deadline", SchedulerKind::MqDeadline),
    ] {
        if origin.contains(&format!("({name})")) && knobs.scheduler != kind {
            return Some(format!("it is a knob of scheduler={name}"));
        }
    }
    let of_cache = ["vm", "bdi"].contains(&origin) || knob == "dirty_throttle";
    if of_cache && write_back.is_none() {
        return Some("it is a knob of the write-back cache, which is off".to_owned());
    }
    (knob.starts_with("sync_") && sync.is_none())
        .then(|| "it is a knob of a sync, and none runs".to_owned())
}
