//! Knobs of one volume that change in the file while its server runs.
//!
//! Knobs are set one by one, so that a knob that has to wait, as the size of the stripe cache does
//! while a sync runs, holds up no other. A knob that cannot be set now is asked for again after
//! [`TUNE_AGAIN`]; one that the server refuses is not, until its value in the file changes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use weft_engine::knobs::Knobs;
use weft_export::control::Command;
use weft_terminal::outcome::Failure;

use crate::target::Target;

/// Values of knobs as texts, by name.
type Values = BTreeMap<String, String>;

/// Knobs of the server of one volume, and the changes that it was asked for.
#[derive(Default)]
pub(super) struct Tuning {
    /// Knobs that the server has, with the values of the file.
    has: Values,
    /// Knobs of the file when the server was asked to set some; `None` if it has answered.
    asked: Option<Values>,
    /// Knobs that the server has refused, with the refused value; `None` is the default.
    refused: BTreeMap<String, Option<String>>,
    /// Time at which the server is asked again for knobs that it could not set; `None` if there are
    /// none.
    put_off: Option<Instant>,
    /// Log lines about knobs that wait, each of which is logged once.
    lines: BTreeSet<String>,
}

/// Answer of a server to the change of one knob.
pub(super) struct KnobAnswer {
    knob: String,
    /// Knob and value for the log.
    told: String,
    outcome: Result<(), Failure>,
}

impl Tuning {
    /// Knobs of a server that starts with those of the file.
    pub(super) fn of_start(knobs: &Values) -> Self {
        Self { has: knobs.clone(), ..Self::default() }
    }

    /// Plans a change of knobs for now, because the file was read again.
    pub(super) fn settings_come(&mut self) {
        self.put_off = None;
        self.lines.clear();
    }

    /// Time until the server is to be asked again; `None` if it is not, or has not answered yet.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        let again = self.put_off.filter(|_| self.asked.is_none());
        again.map(|again| again.saturating_duration_since(now))
    }

    /// Knobs that the server is to be asked for now, so that it has those of the file, `wanted`,
    /// with their values in the form that servers take. Empty while it has not answered.
    pub(super) fn next(&mut self, wanted: &Values, now: Instant) -> Vec<(String, String)> {
        let is_refused = |knob: &str| self.refused.get(knob) == Some(&wanted.get(knob).cloned());
        let mut knobs = changed(&self.has, wanted);
        knobs.retain(|(knob, _)| !is_refused(knob));
        if knobs.is_empty() {
            self.put_off = None;
        }
        if self.asked.is_some() || self.put_off.is_some_and(|again| again > now) {
            return Vec::new();
        }
        if !knobs.is_empty() {
            self.asked = Some(wanted.clone());
        }
        knobs
    }

    /// Handles the answers of the server. Returns lines for the log.
    pub(super) fn answered(&mut self, answers: Vec<KnobAnswer>, now: Instant) -> Vec<String> {
        let asked = self.asked.take().unwrap_or_default();
        self.put_off = None;
        let (mut set, mut lines) = (Vec::new(), Vec::new());
        for KnobAnswer { knob, told, outcome } in answers {
            let value = asked.get(&knob).cloned();
            match (outcome, value) {
                (Ok(()), value) => {
                    match value {
                        Some(value) => _ = self.has.insert(knob, value),
                        None => _ = self.has.remove(&knob),
                    }
                    set.push(told);
                }
                (Err(why @ (Failure::Usage(_) | Failure::Refused(_))), value) => {
                    lines.push(format!("not set: {told}: {}", why.message()));
                    self.refused.insert(knob, value);
                }
                (Err(why), _) => {
                    self.put_off = Some(now + TUNE_AGAIN);
                    let line = format!("not set yet: {told}: {}; it is tried again", why.message());
                    if self.lines.insert(line.clone()) {
                        lines.push(line);
                    }
                }
            }
        }
        if !set.is_empty() {
            lines.insert(0, format!("set {}", set.join(" ")));
        }
        lines
    }
}

/// Asks the server of a volume to set knobs, one after another.
pub(super) fn ask(name: &str, knobs: Vec<(String, String)>) -> Vec<KnobAnswer> {
    let mut target = Target::connect(name);
    let set = |(knob, value): (String, String)| {
        let told = format!("{knob}={value}");
        let command = Command::Set { knobs: vec![(knob.clone(), value)] };
        let outcome = match &mut target {
            Ok(target) => target.ask(command).map(|_| ()),
            Err(error) => Err(error.clone()),
        };
        KnobAnswer { knob, told, outcome }
    };
    knobs.into_iter().map(set).collect()
}

/// Knobs that differ between `before` and `after`, with their values in `after` in the form that
/// servers take. A knob that `after` lacks gets its default.
fn changed(before: &Values, after: &Values) -> Vec<(String, String)> {
    let gone = before.keys().filter(|knob| !after.contains_key(*knob)).filter_map(|knob| {
        let default = Knobs::default().show(knob)?;
        Some((knob.clone(), default))
    });
    let new = after.iter().filter(|(knob, value)| before.get(*knob) != Some(*value));
    let new = new.map(|(knob, value)| (knob.clone(), crate::knobs::plain(knob, value)));
    gone.chain(new).collect()
}

/// Time until a server that could not set a knob is asked again.
const TUNE_AGAIN: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    fn values(knobs: &[(&str, &str)]) -> Values {
        knobs.iter().map(|(knob, value)| ((*knob).to_owned(), (*value).to_owned())).collect()
    }

    fn answer(knob: &str, outcome: Result<(), Failure>) -> KnobAnswer {
        KnobAnswer { knob: knob.to_owned(), told: format!("{knob}=…"), outcome }
    }

    fn names(knobs: &[(String, String)]) -> Vec<&str> {
        knobs.iter().map(|(knob, _)| knob.as_str()).collect()
    }

    const CACHE: &str = "stripe_cache_size";
    const SPEED: &str = "sync_speed_max";

    #[test]
    fn a_knob_that_waits_holds_up_no_other_and_is_asked_for_again() {
        let now = Instant::now();
        let mut tuning = Tuning::of_start(&values(&[(CACHE, "300")]));
        let wanted = values(&[(CACHE, "400"), (SPEED, "9")]);
        assert_eq!(names(&tuning.next(&wanted, now)), [CACHE, SPEED]);
        assert!(tuning.next(&wanted, now).is_empty() && tuning.wait(now).is_none(), "it was asked");
        let busy = || vec![answer(CACHE, Err(Failure::failed("a sync is running")))];
        let answers = busy().into_iter().chain([answer(SPEED, Ok(()))]).collect();
        let lines = tuning.answered(answers, now);
        assert_eq!(lines[0], "set sync_speed_max=…");
        assert!(lines[1].starts_with("not set yet: stripe_cache_size=…: a sync"), "{lines:?}");
        assert!(tuning.next(&wanted, now).is_empty());
        assert_eq!(tuning.wait(now), Some(TUNE_AGAIN));
        let later = now + TUNE_AGAIN;
        assert_eq!(tuning.wait(later), Some(Duration::ZERO));
        assert_eq!(names(&tuning.next(&wanted, later)), [CACHE]);
        assert_eq!(tuning.answered(busy(), later), [""; 0], "it is told once");
        tuning.settings_come();
        assert_eq!(names(&tuning.next(&wanted, later)), [CACHE], "at once: the file was read");
        assert_eq!(
            tuning.answered(vec![answer(CACHE, Ok(()))], later),
            ["set stripe_cache_size=…"]
        );
        assert!(tuning.next(&wanted, later).is_empty() && tuning.wait(later).is_none());
    }

    #[test]
    fn a_change_that_is_taken_back_before_the_answer_is_not_waited_for() {
        let now = Instant::now();
        let before = values(&[(CACHE, "300")]);
        let mut tuning = Tuning::of_start(&before);
        assert_eq!(tuning.next(&values(&[(CACHE, "400")]), now).len(), 1);
        tuning.settings_come();
        assert!(tuning.next(&before, now).is_empty());
        let _ = tuning.answered(vec![answer(CACHE, Err(Failure::failed("busy")))], now);
        assert!(tuning.next(&before, now).is_empty());
        assert_eq!(tuning.wait(now), None, "otherwise the service would not sleep any more");
        // Set before it was taken back: it is set back.
        assert_eq!(tuning.next(&values(&[]), now), [(CACHE.to_owned(), "256".to_owned())]);
        let _ = tuning.answered(vec![answer(CACHE, Ok(()))], now);
        assert_eq!(names(&tuning.next(&before, now)), [CACHE]);
    }

    #[test]
    fn a_refused_value_is_asked_for_once() {
        let now = Instant::now();
        let mut tuning = Tuning::default();
        let (large, small) = (values(&[(CACHE, "32768")]), values(&[(CACHE, "400")]));
        assert_eq!(tuning.next(&large, now).len(), 1);
        let lines = tuning.answered(vec![answer(CACHE, Err(Failure::refused("too large")))], now);
        assert_eq!(lines, ["not set: stripe_cache_size=…: too large"]);
        assert!(tuning.next(&large, now).is_empty() && tuning.wait(now).is_none());
        assert_eq!(tuning.next(&small, now).len(), 1, "another value");
    }
}
