//! Settings and knobs of a sweep without effect: their results are equal, bit for bit.
//!
//! Two settings have equal results if every figure of every run is the same. A knob is without
//! effect if that holds for all its values, whatever the values of the other swept knobs.

use weft_engine::knobs::{SchedulerKind, StripeSize, TABLE};
use weft_lab::simulate::Volume;
use weft_ondisk::Level;
use weft_units::Bytes;

use super::settings::Settings;

/// Settings and knobs of a sweep that are without effect.
pub(super) struct Effects {
    /// By setting: the first setting before it that has the same results.
    pub(super) same_as: Vec<Option<usize>>,
    /// Swept knobs that change nothing, each with the reason, which is empty if it is not known.
    pub(super) without: Vec<(String, String)>,
}

impl Effects {
    /// Compares the settings by the fingerprints of their runs.
    pub(super) fn of(settings: &Settings, fingerprints: &[Vec<String>]) -> Self {
        let count = settings.names.len();
        let earlier = |at: usize| (0..at).find(|other| fingerprints[*other] == fingerprints[at]);
        let changes_nothing = |axis: &usize| {
            let others = |at: usize| {
                let mut values = settings.values[at].clone();
                values.remove(*axis);
                values
            };
            let mut pairs = (0..count).flat_map(|at| (0..at).map(move |other| (other, at)));
            count > 1
                && settings.values.iter().any(|of| of[*axis] != settings.values[0][*axis])
                && pairs.all(|(one, other)| {
                    others(one) != others(other) || fingerprints[one] == fingerprints[other]
                })
        };
        let axes = (0..settings.knobs.len()).filter(changes_nothing);
        let without = axes.map(|axis| {
            let knob = &settings.knobs[axis];
            (knob.clone(), reason(knob, &settings.volumes).unwrap_or_default())
        });
        Self { same_as: (0..count).map(earlier).collect(), without: without.collect() }
    }

    /// A sentence for each knob without effect.
    pub(super) fn lines(&self) -> Vec<String> {
        let line = |(knob, reason): &(String, String)| {
            let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
            format!("{knob} changes nothing here, bit for bit{reason}")
        };
        self.without.iter().map(line).collect()
    }

    /// Name of the earlier setting with the same results, if there is one.
    pub(super) fn same<'a>(&self, setting: usize, names: &'a [String]) -> Option<&'a str> {
        self.same_as[setting].map(|other| names[other].as_str())
    }
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

/// Reason for which a knob cannot have an effect on any of these volumes; `None` if it could have
/// one.
fn reason(knob: &str, volumes: &[Volume]) -> Option<String> {
    let level = |volume: &Volume| volume.level.map_or("a single member", Level::name);
    let levels = || {
        let mut names: Vec<&str> = volumes.iter().map(level).collect();
        names.dedup();
        names.join(", ")
    };
    let has_parity = |volume: &Volume| volume.level.is_some_and(Level::has_parity);
    let is_striped = |volume: &Volume| volume.level.is_some_and(Level::is_striped);
    let is_auto = |volume: &Volume| volume.knobs.stripe_size == StripeSize::AUTO;
    let by_bytes =
        |volume: &Volume| is_auto(volume) && volume.knobs.stripe_cache_bytes > Bytes::ZERO;
    if OF_STRIPES.contains(&knob) && !volumes.iter().any(has_parity) {
        return Some(format!("{} has no stripe cache", levels()));
    }
    if knob == "chunk" && !volumes.iter().any(is_striped) {
        return Some(format!("{} has no chunks", levels()));
    }
    if knob == "stripe_cache_bytes" && !volumes.iter().any(is_auto) {
        return Some("it is the size with stripe_size=auto alone".to_owned());
    }
    if knob == "stripe_cache_size" && volumes.iter().all(by_bytes) {
        return Some("with stripe_size=auto the size is stripe_cache_bytes".to_owned());
    }
    let origin = TABLE.iter().find(|row| row.name == knob)?.origin;
    for (name, kind) in [
        ("bfq", SchedulerKind::Bfq),
        ("kyber", SchedulerKind::Kyber),
        ("mq-deadline", SchedulerKind::MqDeadline),
    ] {
        let of_it = origin.contains(&format!("({name})"));
        if of_it && !volumes.iter().any(|volume| volume.knobs.scheduler == kind) {
            return Some(format!("it is a knob of scheduler={name}"));
        }
    }
    let of_cache = ["vm", "bdi"].contains(&origin) || knob == "dirty_throttle";
    if of_cache && volumes.iter().all(|volume| volume.write_back.is_none()) {
        return Some("it is a knob of the write-back cache, which is off".to_owned());
    }
    let of_sync = knob.starts_with("sync_");
    (of_sync && volumes.iter().all(|volume| volume.sync.is_none()))
        .then(|| "it is a knob of a sync, and none runs".to_owned())
}
