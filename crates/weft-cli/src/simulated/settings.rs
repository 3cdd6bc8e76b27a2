//! Settings of a sweep: every combination of the swept values, with stripe caches of equal memory.
//!
//! A setting is a volume of its own. A number of stripes means another memory with each stripe size
//! and with each number of members. The stripe cache of each setting therefore has the memory that
//! it has without the sweep, unless `stripe_cache_size` is given or swept: a sweep of stripe sizes
//! compares stripe sizes, not sizes of memory.

use weft_lab::experiment::{Results, ResultsError};
use weft_lab::fio_json::document;
use weft_lab::simulate::part::{CacheSize, Setting};
use weft_lab::simulate::{Outcome, Volume};
use weft_terminal::outcome::Failure;
use weft_units::Bytes;

use super::effect::reason;
use super::found::knob;
use super::page::{drives_of_files, facts_of};
use super::{Simulated, header};
use crate::knobs;
use crate::size;

/// Settings to be compared: the swept knobs, and every combination of their values.
pub(super) struct Settings {
    /// Names of the swept knobs; empty if nothing is swept.
    pub(super) knobs: Vec<String>,
    /// Values of the swept knobs, by setting.
    pub(super) values: Vec<Vec<String>>,
    /// Volume of each setting.
    pub(super) volumes: Vec<Volume>,
    /// Source of the size of each setting's stripe cache.
    pub(super) cache_sizes: Vec<CacheSize>,
    /// Rule by which stripe caches got their size if that is not as given, in words.
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
        let folder = match &self.values[..] {
            [_] => ".".to_owned(),
            values => values[setting].join(",").replace([' ', '/'], ""),
        };
        results.keep(&folder, &format!("run{}.json", run + 1), &text)
    }

    pub(super) fn told(&self, setting: usize, text: &str) -> String {
        match &self.values[..] {
            [_] => text.to_owned(),
            values => format!("{}={}: {text}", knob(&self.knobs), values[setting].join(", ")),
        }
    }

    /// Settings as the output has them, with the fingerprints of their runs.
    pub(super) fn described(&self, fingerprints: Vec<Vec<String>>) -> Vec<Setting> {
        let of = |(at, fingerprints): (usize, Vec<String>)| {
            let volume = &self.volumes[at];
            Setting {
                values: self.values[at].clone(),
                fingerprints,
                stripe_cache: volume.stripe_cache(),
                cache_size: self.cache_sizes[at],
                reasons: self.knobs.iter().map(|knob| reason(knob, volume)).collect(),
                facts: facts_of(volume),
                drives: drives_of_files(volume),
            }
        };
        fingerprints.into_iter().enumerate().map(of).collect()
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
    let cache = CacheRule::of(simulated, &knobs)?;
    let (mut by_knob, mut volumes, mut cache_sizes) = (Vec::new(), Vec::new(), Vec::new());
    for Combination { names: values, simulated, knobs } in all {
        let mut volume = simulated.volume()?;
        for (name, value) in knobs {
            knobs::set(&mut volume.knobs, &name, &value).map_err(Failure::usage)?;
        }
        cache_sizes.push(cache.apply(&mut volume));
        by_knob.push(values);
        volumes.push(volume);
    }
    let knobs = knobs.into_iter().map(str::to_owned).collect();
    Ok(Settings { knobs, values: by_knob, volumes, cache_sizes, cache_rule: cache.words() })
}

/// Rule by which the stripe caches of a sweep get their size.
struct CacheRule {
    /// Memory of the stripe cache without the sweep.
    memory: Bytes,
    /// Whether `stripe_cache_size` is given or swept.
    gives_size: bool,
    /// Whether `stripe_cache_bytes` is given or swept.
    gives_bytes: bool,
}

impl CacheRule {
    fn of(simulated: &Simulated, swept: &[&str]) -> Result<Self, Failure> {
        // Faults and changed drives are left out: they do not change the memory, and may be valid
        // only with swept values.
        let mut without = Simulated { faults: None, drive: Vec::new(), ..simulated.clone() };
        let name = |setting: &String| setting.split_once('=').map(|(name, _)| name.to_owned());
        // A swept stripe size takes the place of a given one.
        without.set.retain(|setting| !name(setting).is_some_and(|name| swept.contains(&&*name)));
        let gives = |knob: &str| {
            swept.contains(&knob) || without.set.iter().filter_map(name).any(|name| name == knob)
        };
        let (gives_size, gives_bytes) = (gives("stripe_cache_size"), gives("stripe_cache_bytes"));
        let memory = without.volume()?.cache_memory();
        Ok(Self { memory, gives_size, gives_bytes })
    }

    /// Gives the stripe cache of a setting its size. Returns the source of the size.
    fn apply(&self, volume: &mut Volume) -> CacheSize {
        let Some(before) = volume.stripe_cache().filter(|_| !self.gives_size) else {
            return CacheSize::Knobs;
        };
        let own = volume.knobs.stripe_cache_bytes;
        let memory = if self.gives_bytes && own > Bytes::ZERO { own } else { self.memory };
        volume.set_cache_memory(memory);
        let after = volume.stripe_cache().unwrap_or(before);
        match after {
            _ if after == before => CacheSize::Knobs,
            _ if after.bytes > memory => CacheSize::Least,
            _ => CacheSize::Memory,
        }
    }

    fn words(&self) -> String {
        let from = if self.gives_bytes {
            "stripe_cache_bytes".to_owned()
        } else {
            format!("the memory of the default stripe cache, {}", size::human(self.memory))
        };
        format!("stripe_cache_size, which is not given, follows from {from}")
    }
}

/// Largest number of settings in a sweep, which may run alone on many machines. More would take
/// hours.
const SETTINGS_MAX: usize = 4096;

impl Simulated {
    /// Applies the value of a swept parameter that is not a knob. Returns false if `name` is no
    /// such parameter.
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
