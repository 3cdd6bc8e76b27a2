//! Results of a sweep as its output needs them, whether its settings ran together or alone.

use weft_engine::knobs::STRIPES_MIN;
use weft_lab::simulate::StripeCache;
use weft_lab::simulate::part::{CacheSize, Description, Joined, Setting};
use weft_lab::simulate::sweep::Swept;

use super::effect::Effects;

/// Results of a sweep, with names of its settings and the effects that follow from the results.
pub(super) struct Found {
    /// Description of the sweep.
    pub(super) sweep: Description,
    /// Names of the swept knobs, joined by a comma.
    pub(super) knob: String,
    /// Settings, in the order of the sweep.
    pub(super) settings: Vec<Setting>,
    /// Names of the settings.
    pub(super) names: Vec<String>,
    /// Results of each job.
    pub(super) swept: Vec<Swept>,
    /// Settings and knobs without effect.
    pub(super) effects: Effects,
}

impl Found {
    pub(super) fn of(Joined { sweep, settings, swept }: Joined) -> Self {
        Self {
            knob: knob(&sweep.knobs),
            names: settings.iter().map(Setting::name).collect(),
            effects: Effects::of(&sweep.knobs, &settings),
            sweep,
            settings,
            swept,
        }
    }

    /// Stripe cache of each setting; `None` if all settings have the same.
    pub(super) fn caches(&self) -> Option<Vec<Option<StripeCache>>> {
        let caches: Vec<_> = self.settings.iter().map(|setting| setting.stripe_cache).collect();
        let differ = caches.iter().any(|cache| *cache != caches[0]);
        differ.then_some(caches)
    }

    /// Sentence about the sizes that stripe caches were given; empty if all have the sizes of the
    /// knobs.
    pub(super) fn cache_rule(&self) -> String {
        let has = |size: &dyn Fn(CacheSize) -> bool| {
            self.settings.iter().any(|setting| size(setting.cache_size))
        };
        if !has(&|size| size != CacheSize::Knobs) {
            return String::new();
        }
        let least = if has(&|size| size == CacheSize::Least) {
            format!(", but is {STRIPES_MIN} at least")
        } else {
            String::new()
        };
        format!("{}{least}", self.sweep.cache_rule)
    }

    /// Sentences about the whole sweep: knobs without effect, and sizes of stripe caches.
    pub(super) fn lines(&self) -> Vec<String> {
        let rule = Some(self.cache_rule()).filter(|rule| !rule.is_empty());
        self.effects.lines().into_iter().chain(rule).collect()
    }

    /// Values of each `--sweep` of the command line.
    pub(super) fn sweeps(&self) -> Vec<String> {
        let of = |(axis, knob): (usize, &String)| {
            let mut values: Vec<&str> = Vec::new();
            for setting in &self.settings {
                let value = setting.values[axis].as_str();
                // A value that is given twice is two settings.
                if self.sweep.knobs.len() == 1 || !values.contains(&value) {
                    values.push(value);
                }
            }
            format!("{knob}={}", values.join(","))
        };
        self.sweep.knobs.iter().enumerate().map(of).collect()
    }
}

/// Names of the swept knobs as a heading.
pub(super) fn knob(knobs: &[String]) -> String {
    if knobs.is_empty() { "volume".to_owned() } else { knobs.join(", ") }
}
