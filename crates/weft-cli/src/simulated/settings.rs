//! Settings of a sweep: every combination of the swept values, with stripe caches of equal memory.
//!
//! A setting is a volume of its own. A number of stripes means another memory with each stripe size
//! and with each number of members. The stripe cache of each setting therefore has the memory that
//! it has without the sweep, unless `stripe_cache_size` is given or swept: a sweep of stripe sizes
//! compares stripe sizes, not sizes of memory.

use weft_lab::experiment::{Results, ResultsError};
use weft_lab::fio_json::document;
use weft_lab::simulate::{Outcome, StripeCache, Volume};
use weft_terminal::outcome::Failure;
use weft_units::Bytes;

use super::{Simulated, header};
use crate::knobs;
use crate::size;

/// Settings to be compared: the swept knobs, and every combination of their values.
pub(super) struct Settings {
    /// Names of the swept knobs, joined by a comma.
    pub(super) knob: String,
    /// Names of the swept knobs; none for a volume as it is given.
    pub(super) knobs: Vec<String>,
    /// Values of the swept knobs, by setting.
    pub(super) values: Vec<Vec<String>>,
    /// Values of each setting, joined by a comma.
    pub(super) names: Vec<String>,
    /// Volume of each setting.
    pub(super) volumes: Vec<Volume>,
    /// How stripe caches were given their size, in words; empty if each is as given.
    pub(super) cache_rule: String,
}

impl Settings {
    /// Writes the result of a run to a file where `weft compare` finds it: in a folder for each
    /// setting, if there are several, with a file for each run.
    pub(super) fn keep(
        &self,
        results: &Results,
        setting: usize,
        run: u64,
        (volume, outcome): (&Volume, &Outcome),
    ) -> Result<(), ResultsError> {
        let header = header(outcome, volume);
        let mut text = serde_json::to_vec_pretty(&document(&header, &outcome.results))
            .expect("results have text for keys");
        text.push(b'\n');
        let folder = match &self.names[..] {
            [_] => ".".to_owned(),
            names => names[setting].replace([' ', '/'], ""),
        };
        results.keep(&folder, &format!("run{}.json", run + 1), &text)
    }

    pub(super) fn told(&self, setting: usize, text: &str) -> String {
        match &self.names[..] {
            [_] => text.to_owned(),
            names => format!("{}={}: {text}", self.knob, names[setting]),
        }
    }
}

/// Setting under construction: values of the swept parameters, and the volume that they describe.
#[derive(Clone)]
struct Combination {
    names: Vec<String>,
    simulated: Simulated,
    knobs: Vec<(String, String)>,
}

/// Settings with every combination of the swept values, in order.
pub(super) fn settings(simulated: &Simulated) -> Result<Settings, Failure> {
    let wrong = |text: &str, why: &str| Failure::usage(format!("--sweep {text}: {why}"));
    let mut knobs = Vec::new();
    let first = Combination { names: Vec::new(), simulated: simulated.clone(), knobs: Vec::new() };
    let mut all = vec![first];
    for text in &simulated.sweep {
        let (name, values) = text
            .split_once('=')
            .ok_or_else(|| wrong(text, "expected KNOB=A,B,…; weft get --help lists the knobs"))?;
        let values: Vec<&str> = values.split(',').map(str::trim).collect();
        if values.iter().any(|value| value.is_empty()) {
            return Err(wrong(text, "found an empty value, expected KNOB=A,B,…"));
        }
        if knobs.contains(&name) {
            return Err(wrong(text, &format!("{name} is swept already")));
        }
        knobs.push(name);
        let mut wider = Vec::new();
        for combination in &all {
            for value in &values {
                let mut with = combination.clone();
                with.names.push((*value).to_owned());
                if !with.simulated.takes(name, value)? {
                    with.knobs.push((name.to_owned(), (*value).to_owned()));
                }
                wider.push(with);
            }
        }
        if wider.len() > SETTINGS_MAX {
            let found = wider.len();
            return Err(Failure::usage(format!(
                "--sweep: found {found} combinations, expected at most {SETTINGS_MAX}"
            )));
        }
        all = wider;
    }
    let mut cache = CacheRule::of(simulated, &knobs)?;
    let (mut names, mut by_knob, mut volumes) = (Vec::new(), Vec::new(), Vec::new());
    for Combination { names: values, simulated, knobs } in all {
        let mut volume = simulated.volume()?;
        for (name, value) in knobs {
            knobs::set(&mut volume.knobs, &name, &value).map_err(Failure::usage)?;
        }
        cache.apply(&mut volume);
        names.push(if values.is_empty() { "as given".to_owned() } else { values.join(", ") });
        by_knob.push(values);
        volumes.push(volume);
    }
    let knob = if knobs.is_empty() { "volume".to_owned() } else { knobs.join(", ") };
    let knobs = knobs.into_iter().map(str::to_owned).collect();
    Ok(Settings { knob, knobs, values: by_knob, names, volumes, cache_rule: cache.words() })
}

/// Rule by which the stripe caches of a sweep get their size.
struct CacheRule {
    /// Memory of the stripe cache without the sweep.
    memory: Bytes,
    /// Whether `stripe_cache_size` is given or swept.
    gives_size: bool,
    /// Whether `stripe_cache_bytes` is given or swept.
    gives_bytes: bool,
    /// Whether a setting got another size than its knobs alone say.
    changed: bool,
    /// Whether a setting got the least size that there is, which is more than the memory.
    least: bool,
}

impl CacheRule {
    fn of(simulated: &Simulated, swept: &[&str]) -> Result<Self, Failure> {
        let mut without = simulated.clone();
        let name = |setting: &String| setting.split_once('=').map(|(name, _)| name.to_owned());
        // A swept stripe size takes the place of a given one.
        without.set.retain(|setting| !name(setting).is_some_and(|name| swept.contains(&&*name)));
        let gives = |knob: &str| {
            swept.contains(&knob) || without.set.iter().filter_map(name).any(|name| name == knob)
        };
        let (gives_size, gives_bytes) = (gives("stripe_cache_size"), gives("stripe_cache_bytes"));
        let memory = without.volume()?.cache_memory();
        Ok(Self { memory, gives_size, gives_bytes, changed: false, least: false })
    }

    fn apply(&mut self, volume: &mut Volume) {
        let Some(before) = volume.stripe_cache().filter(|_| !self.gives_size) else { return };
        let own = volume.knobs.stripe_cache_bytes;
        let memory = if self.gives_bytes && own > Bytes::ZERO { own } else { self.memory };
        volume.set_cache_memory(memory);
        let after = volume.stripe_cache().unwrap_or(before);
        self.changed |= after != before;
        self.least |= after != before && after.bytes > memory;
    }

    fn words(&self) -> String {
        if !self.changed {
            return String::new();
        }
        let from = if self.gives_bytes {
            "stripe_cache_bytes".to_owned()
        } else {
            format!("the memory of the default stripe cache, {}", size::human(self.memory))
        };
        let least = if self.least { ", but is 17 at least" } else { "" };
        format!("stripe_cache_size, which is not given, follows from {from}{least}")
    }
}

impl Settings {
    /// Stripe cache of each setting, if settings differ in it.
    pub(super) fn caches(&self) -> Option<Vec<Option<StripeCache>>> {
        let caches: Vec<_> = self.volumes.iter().map(Volume::stripe_cache).collect();
        let differ = caches.iter().any(|cache| *cache != caches[0]);
        differ.then_some(caches)
    }
}

/// Largest number of settings in a sweep. The result of more would be unreadable.
const SETTINGS_MAX: usize = 256;

impl Simulated {
    /// Applies a value of a parameter that is not a knob. Returns false if `name` is no such
    /// parameter.
    fn takes(&mut self, name: &str, value: &str) -> Result<bool, Failure> {
        let wrong = |error: String| Failure::usage(format!("--sweep {name}={value}: {error}"));
        match name {
            "kernel" => self.kernel = super::kernel(value).map_err(wrong)?,
            "write-back" | "write_back" => self.write_back = value.parse().map_err(wrong)?,
            "sync" if value == "none" => self.sync = None,
            "sync" => self.sync = Some(super::sync_action(value).map_err(wrong)?),
            "chunk" => self.chunk = Some(size::kib(value).map_err(wrong)?),
            "level" => self.level = value.parse().map_err(wrong)?,
            "raid-devices" | "raid_devices" => {
                let count = value.parse().ok().filter(|count| (2..=64).contains(count));
                self.raid_devices =
                    Some(count.ok_or_else(|| wrong("expected a number, 2..=64".to_owned()))?);
            }
            "device" if self.level.0.is_none() && self.raid_devices.is_none() => {
                self.device = vec![value.to_owned()];
            }
            "device" => {
                // The default number of members for these drives.
                let members = self.raid_devices.unwrap_or(match self.device.len() {
                    1 => 4,
                    count => u16::try_from(count).unwrap_or(u16::MAX),
                });
                (self.raid_devices, self.device) = (Some(members), vec![value.to_owned()]);
            }
            name => {
                let Some(key) = name.strip_prefix("drive.") else { return Ok(false) };
                self.drive.push(format!("{key}={value}"));
            }
        }
        Ok(true)
    }
}
