//! Events of arrays, by mdadm's names: the differences between two statuses of a volume.
//!
//! Source   mdadm(8), "MONITOR MODE"

use std::collections::BTreeMap;

use serde_json::{Value, json};
use weft_export::control::VolumeStatus;

/// Something that happened to a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// mdadm's name of the event, such as `Fail`.
    pub(super) name: String,
    pub(super) volume: String,
    /// Member that the event is about, volume that a spare was moved from, or a remark; empty if
    /// there is none of these.
    pub(super) component: String,
}

impl Event {
    pub(super) fn new(name: impl Into<String>, volume: &str, component: &str) -> Self {
        Self { name: name.into(), volume: volume.into(), component: component.into() }
    }

    /// Whether the event is mailed: redundancy or a spare is lost, or the event is a test.
    pub(super) fn is_alarm(&self) -> bool {
        matches!(
            self.name.as_str(),
            "DegradedArray"
                | "DeviceDisappeared"
                | "Fail"
                | "FailSpare"
                | "SparesMissing"
                | "TestMessage"
        )
    }

    /// Text of the event, a line such as `Fail on tour, member /dev/sdb1`.
    pub(super) fn text(&self) -> String {
        let Self { name, volume, component } = self;
        match component.as_str() {
            "" => format!("{name} on {volume}"),
            remark if name == "RebuildFinished" => format!("{name} on {volume}, {remark}"),
            from if name == "MoveSpare" => format!("{name} on {volume}, from {from}"),
            member => format!("{name} on {volume}, member {member}"),
        }
    }

    pub(super) fn to_json(&self, time_secs: u64) -> Value {
        let Self { name, volume, component } = self;
        let component = (!component.is_empty()).then_some(component);
        json!({
            "schema": "weft.event/1",
            "event": name,
            "volume": volume,
            "component": component,
            "time_secs": time_secs,
        })
    }
}

/// State of a volume at one status, as far as events depend on it.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// States of the members, by label.
    members: BTreeMap<String, String>,
    /// Name of the running sync, such as `check`; `None` if none runs.
    sync: Option<String>,
    /// Number of whole steps of `--increment` percent that the running sync has completed.
    steps: u64,
}

/// Events of a volume since the status before. `before` is its state at that status, `None` if the
/// volume did not run then; the function replaces it by the present state. While a sync runs, its
/// progress gives an event for each `increment` percent.
pub(super) fn compare(
    before: &mut Option<Seen>,
    volume: &VolumeStatus,
    increment: u64,
) -> Vec<Event> {
    let name = volume.name.as_str();
    let member =
        |member: &weft_export::control::MemberStatus| (member.label.clone(), member.state.clone());
    let sync = volume.running_sync().map(str::to_owned);
    let percent = volume.sync_completed.map_or(0, |(done, total)| done * 100 / total.max(1));
    let steps = if sync.is_some() { percent / increment } else { 0 };
    let now = Seen { members: volume.members.iter().map(member).collect(), sync, steps };
    let mut events = Vec::new();
    let Some(last) = before.replace(now.clone()) else {
        if volume.degraded > 0 {
            events.push(Event::new("DegradedArray", name, ""));
        }
        return events;
    };
    for (label, state) in &last.members {
        let to = now.members.get(label).map_or("gone", String::as_str);
        let event = match (state.as_str(), to) {
            ("in_sync", "faulty" | "gone") => "Fail",
            ("rebuilding", "faulty" | "gone") | ("spare", "faulty") => "FailSpare",
            ("rebuilding" | "spare", "in_sync") => "SpareActive",
            _ => continue,
        };
        events.push(Event::new(event, name, label));
    }
    // A member that was added and recovered between two looks is in sync when it is first seen.
    let new = now.members.iter().filter(|(label, _)| !last.members.contains_key(*label));
    let active = new.filter(|(_, state)| *state == "in_sync").map(|(label, _)| label);
    events.extend(active.map(|label| Event::new("SpareActive", name, label)));
    let is_other = now.sync != last.sync;
    if is_other && last.sync.is_some() {
        let found = match volume.mismatch_cnt {
            0 => String::new(),
            sectors => format!("mismatches found: {sectors}"),
        };
        events.push(Event::new("RebuildFinished", name, &found));
    }
    if is_other && now.sync.is_some() {
        events.push(Event::new("RebuildStarted", name, ""));
    }
    let told = if is_other { 0 } else { last.steps };
    if now.sync.is_some() && now.steps > told && now.steps * increment < 100 {
        events.push(Event::new(format!("Rebuild{:02}", now.steps * increment), name, ""));
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_export::control::MemberStatus;

    fn volume(members: &[(&str, &str)], sync: &str, percent: u64) -> VolumeStatus {
        let member = |(label, state): &(&str, &str)| MemberStatus {
            label: (*label).into(),
            state: (*state).into(),
            ..MemberStatus::default()
        };
        let degraded = members.iter().filter(|(_, state)| *state != "in_sync").count();
        VolumeStatus {
            name: "v".into(),
            degraded,
            sync_action: sync.into(),
            sync_completed: (sync != "idle").then_some((percent, 100)),
            members: members.iter().map(member).collect(),
            ..VolumeStatus::default()
        }
    }

    fn names(before: &mut Option<Seen>, now: &VolumeStatus) -> String {
        let events = compare(before, now, 20);
        let texts = events.iter().map(|it| format!("{} {}", it.name, it.component));
        texts.map(|it| it.trim().to_owned()).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn a_disk_that_fails_and_one_that_takes_its_place_are_told_as_by_mdadm() {
        let mut seen = None;
        let mut look = |members: &[(&str, &str)], sync: &str, percent| {
            names(&mut seen, &volume(members, sync, percent))
        };
        assert_eq!(look(&[("a", "in_sync"), ("b", "in_sync")], "idle", 0), "");
        assert_eq!(look(&[("a", "in_sync"), ("b", "in_sync")], "idle", 0), "");
        assert_eq!(look(&[("a", "in_sync"), ("b", "faulty")], "idle", 0), "Fail b");
        assert_eq!(look(&[("a", "in_sync")], "idle", 0), "");
        assert_eq!(look(&[("a", "in_sync"), ("c", "spare")], "idle", 0), "");
        let rebuilds = [("a", "in_sync"), ("c", "rebuilding")];
        assert_eq!(look(&rebuilds, "recover", 3), "RebuildStarted");
        assert_eq!(look(&rebuilds, "recover", 19), "");
        assert_eq!(look(&rebuilds, "recover", 47), "Rebuild40");
        assert_eq!(look(&rebuilds, "recover", 59), "");
        assert_eq!(look(&rebuilds, "recover", 100), "");
        let end = look(&[("a", "in_sync"), ("c", "in_sync")], "idle", 0);
        assert_eq!(end, "SpareActive c, RebuildFinished");
        assert_eq!(look(&[("a", "in_sync")], "idle", 0), "Fail c");
        assert_eq!(look(&[("a", "in_sync"), ("d", "in_sync")], "idle", 0), "SpareActive d");
    }

    #[test]
    fn a_rebuild_that_fails_and_a_check_that_finds_something() {
        let mut seen = None;
        let before = volume(&[("a", "in_sync"), ("b", "rebuilding")], "recover", 60);
        assert_eq!(names(&mut seen, &before), "DegradedArray");
        let failed = volume(&[("a", "in_sync"), ("b", "faulty")], "idle", 0);
        assert_eq!(names(&mut seen, &failed), "FailSpare b, RebuildFinished");
        let whole = [("a", "in_sync"), ("b", "in_sync")];
        let mut seen = None;
        assert_eq!(names(&mut seen, &volume(&whole, "idle", 0)), "");
        assert_eq!(names(&mut seen, &volume(&whole, "check", 45)), "RebuildStarted, Rebuild40");
        let found = VolumeStatus { mismatch_cnt: 8, ..volume(&whole, "idle", 0) };
        assert_eq!(names(&mut seen, &found), "RebuildFinished mismatches found: 8");
        // One sync after the other, without a look between them.
        assert_eq!(names(&mut seen, &volume(&whole, "check", 99)), "RebuildStarted, Rebuild80");
        let repair = volume(&whole, "repair", 1);
        assert_eq!(names(&mut seen, &repair), "RebuildFinished, RebuildStarted");
    }

    #[test]
    fn what_costs_redundancy_is_an_alarm() {
        let is_alarm = |name: &str| Event::new(name, "v", "").is_alarm();
        assert!(["Fail", "FailSpare", "DegradedArray", "SparesMissing"].into_iter().all(is_alarm));
        assert!(
            !["RebuildStarted", "Rebuild20", "SpareActive", "MoveSpare"].into_iter().any(is_alarm)
        );
    }
}
