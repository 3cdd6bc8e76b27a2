//! Advice: the number of members, chunk, stripe size, stripe cache and priority that measured best
//! for a load.
//!
//! One parameter is varied at a time, beginning with the given volume, and is varied again if
//! another parameter has changed since. A value replaces the present one only if it is better at 95
//! % in paired runs of the same seeds, and by at least [`LEAST_GAIN`]: a parameter without effect
//! keeps its value. The stripe cache keeps its memory when another parameter changes. The winner is
//! then run with seeds that the search has not used, beside the given volume, the best of all other
//! volumes and untuned md on the same drives; a value that won by chance loses there. The winner is
//! advised if it is better than the given volume by these seeds; otherwise the given volume is
//! advised.
//!
//! The search is a hill climb: it does not find two values that are good only together.
//!
//! Inputs   a load, a volume, a [`Goal`], and the parameters that are fixed
//! Answer   [`Advice`]; for several jobs, by the geometric mean over them

use weft_engine::knobs::{Knobs, SchedulerKind};
use weft_units::Bytes;

use super::sweep::{Load, Metric, PERCENTS, Sample, Swept, sweep};
use super::{SimulateError, Volume};
use crate::statistics::{Estimate, geometric_mean};

/// Metric that the search improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Highest throughput, in MB/s.
    Throughput,
    /// Lowest 99th percentile of latency.
    P99,
}

impl Goal {
    /// The metric that the goal improves.
    #[must_use]
    pub fn metric(self) -> Metric {
        match self {
            Self::Throughput => Metric::Throughput,
            Self::P99 => Metric::Percentile(1),
        }
    }

    /// Whether a ratio of paired runs shows that the volume in its numerator is better, at 95 % and
    /// by at least [`LEAST_GAIN`].
    #[must_use]
    pub fn is_better(self, ratio: &Estimate) -> bool {
        match self {
            Self::Throughput => ratio.low > 1.0 && ratio.value >= 1.0 + LEAST_GAIN,
            Self::P99 => ratio.high < 1.0 && ratio.value <= 1.0 - LEAST_GAIN,
        }
    }

    fn prefers(self, one: f64, other: f64) -> bool {
        if self == Self::Throughput { one > other } else { one < other }
    }
}

/// Least gain that counts, as a share of the metric: half a percent.
pub const LEAST_GAIN: f64 = 0.005;

/// Inputs of the search.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Load for which a volume is searched.
    pub load: &'a Load,
    /// Volume that the search begins with.
    pub volume: &'a Volume,
    /// Goal of the search.
    pub goal: Goal,
    /// Number of runs of each setting, two at least.
    pub runs: u64,
    /// Names of fixed parameters: `raid-devices`, `chunk` and knobs.
    pub fixed: &'a [String],
}

/// Step of the search: one parameter, with the measurement of each of its values.
#[derive(Clone, Debug)]
pub struct Step {
    /// Name of the parameter.
    pub name: &'static str,
    /// Each value of the parameter with the goal's metric; the first is the value before the step.
    pub values: Vec<(String, Estimate)>,
    /// Index of the value that is kept.
    pub taken: usize,
    /// Values for which the load does not fit the volume, each with the reason.
    pub left_out: Vec<(String, String)>,
}

/// A volume compared with the advised one, in paired runs with fresh seeds.
#[derive(Clone, Debug)]
pub struct Other {
    /// Parameters in which this volume differs from the advised one, with their values here; empty
    /// for untuned md.
    pub differs: Vec<(&'static str, String)>,
    /// Metric of the goal for this volume.
    pub value: Estimate,
    /// Ratio of the goal's metric for the advised volume to the metric for this volume.
    pub ratio: Estimate,
}

/// Result of the search: the advised volume, and the volumes that it was compared with.
#[derive(Clone, Debug)]
pub struct Advice {
    /// The advised volume.
    pub volume: Volume,
    /// Metric of the goal for the advised volume, measured with fresh seeds.
    pub value: Estimate,
    /// The volume that the search began with, if another one is better and therefore advised;
    /// `None` if it is the advised volume itself.
    pub given: Option<Other>,
    /// The best volume of the search besides the advised one, untuned md left out; `None` if the
    /// search ran no other volume.
    pub next: Option<Other>,
    /// Untuned md on the same drives, with chunks of 512 KiB.
    pub md: Other,
    /// Steps of the search.
    pub steps: Vec<Step>,
    /// Number of runs of each volume in the last comparison, with fresh seeds.
    pub runs: u64,
}

/// Searches the best volume. `progress` gets the completed share, and stops the search by returning
/// false: the result is then `None`.
///
/// # Errors
/// The load does not run on the given volume, or no parameter can be varied.
///
/// # Panics
/// A run panics.
pub fn advise(
    wanted: &Wanted<'_>,
    progress: &(dyn Fn(f64) -> bool + Sync),
) -> Result<Option<Advice>, SimulateError> {
    let names = searched(wanted.volume, wanted.fixed);
    if names.is_empty() {
        return Err(SimulateError::NothingToSearch);
    }
    let mut search = Search {
        wanted: *wanted,
        progress,
        done: 0,
        planned: names.len() * 2 + 1,
        tried: Vec::new(),
    };
    let mut at = wanted.volume.clone();
    let mut steps: Vec<Step> = Vec::new();
    // The parameters are varied in turn until none has changed in a whole round.
    let mut since_change = 0;
    for name in names.iter().copied().cycle().take(names.len() * PASSES_MAX) {
        if since_change == names.len() {
            break;
        }
        let Some((step, volume)) = search.step(name, &at)? else { return Ok(None) };
        since_change = if step.taken == 0 { since_change + 1 } else { 1 };
        at = volume;
        steps.push(step);
    }
    search.confirm(at, steps)
}

/// Largest number of rounds through all parameters.
const PASSES_MAX: usize = 3;

/// Parameters of a volume that can be varied, in search order.
fn searched(volume: &Volume, fixed: &[String]) -> Vec<&'static str> {
    let Some(level) = volume.level else { return Vec::new() };
    let alike = volume.members.iter().all(|(name, _)| *name == volume.members[0].0);
    let has_parity = level.has_parity();
    let names = [
        (MEMBERS, alike),
        (CHUNK, level.is_striped()),
        ("stripe_size", has_parity),
        (CACHE, has_parity),
        ("priority", has_parity),
    ];
    let is_fixed = |name: &str| fixed.iter().any(|of| of == name);
    let free = |name: &&str| match *name {
        CACHE => !is_fixed("stripe_cache_bytes") && !is_fixed("stripe_cache_size"),
        name => !is_fixed(name),
    };
    names.into_iter().filter(|(_, is)| *is).map(|(name, _)| name).filter(free).collect()
}

const MEMBERS: &str = "raid-devices";
const CHUNK: &str = "chunk";
/// Name of the stripe cache's size as one parameter of the search. Its knob is `stripe_cache_bytes`
/// with `stripe_size=auto`, and `stripe_cache_size` otherwise.
const CACHE: &str = "stripe cache";

/// Name of a parameter on the command line, and its value for a volume. The stripe cache has one of
/// two names.
fn value(volume: &Volume, name: &'static str) -> (&'static str, String) {
    match name {
        MEMBERS => (MEMBERS, volume.members.len().to_string()),
        CHUNK => (CHUNK, format!("{}K", volume.chunk.0 / 1024)),
        CACHE => {
            let is_auto = volume.knobs.show("stripe_size").as_deref() == Some("auto");
            let knob = if is_auto { "stripe_cache_bytes" } else { "stripe_cache_size" };
            (knob, volume.knobs.show(knob).unwrap_or_default())
        }
        knob => (knob, volume.knobs.show(knob).unwrap_or_default()),
    }
}

/// Copies of the volume, each with another value of the parameter, in the order of the values. The
/// stripe cache keeps its memory, unless the number of its stripes is fixed.
fn others(volume: &Volume, name: &'static str, fixed: &[String]) -> Vec<Volume> {
    let (knob, _) = value(volume, name);
    let memory = volume.cache_memory();
    let keeps_memory = name != CACHE && !fixed.iter().any(|name| name == "stripe_cache_size");
    let values: &[&str] = match knob {
        MEMBERS => &["3", "4", "5", "6", "8", "10", "12"],
        CHUNK => &["16", "64", "128", "256", "512", "1024"],
        "stripe_size" => &["auto", "4096", "16384", "65536"],
        "stripe_cache_bytes" | "stripe_cache_size" => &["8388608", "33554432", "134217728"],
        "priority" => &["stream", "bypass", "fifo"],
        _ => &[],
    };
    let with = |text: &&str| {
        let mut other = with(volume, knob, text)?;
        if keeps_memory {
            other.set_cache_memory(memory);
        }
        Some(other)
    };
    let volumes = values.iter().filter_map(with);
    volumes.filter(|other| value(other, name) != value(volume, name)).collect()
}

/// The volume with another value of a parameter; `None` if its level does not allow the value. The
/// size of a stripe cache is given in bytes even if its knob counts stripes.
fn with(volume: &Volume, knob: &str, text: &str) -> Option<Volume> {
    let mut other = volume.clone();
    match knob {
        MEMBERS => {
            let count: u16 = text.parse().ok()?;
            let level = volume.level?;
            let member = volume.members.first()?.clone();
            let fits = u32::from(count) >= level.row().members_min;
            other.members = fits.then(|| vec![member; usize::from(count)])?;
        }
        CHUNK => other.chunk = Bytes::kib(text.parse().ok()?),
        "stripe_cache_size" => other.set_cache_memory(Bytes(text.parse().ok()?)),
        knob => other.knobs.set(volume.knobs.parse(knob, text).ok()?),
    }
    Some(other)
}

/// Parameters in which `volume` differs from another one, with the values of `volume`.
fn differs(volume: &Volume, from: &Volume) -> Vec<(&'static str, String)> {
    let names = [MEMBERS, CHUNK, "stripe_size", CACHE, "priority"];
    let values = names.map(|name| (value(volume, name), value(from, name)));
    values.into_iter().filter(|(one, other)| one != other).map(|(one, _)| one).collect()
}

struct Search<'a> {
    wanted: Wanted<'a>,
    progress: &'a (dyn Fn(f64) -> bool + Sync),
    done: usize,
    planned: usize,
    /// Every volume that the search has run, with its metric of the goal.
    tried: Vec<(Volume, f64)>,
}

impl Search<'_> {
    /// Runs the load on each volume. Returns `None` if the search is stopped. The error has the
    /// index of the volume that cannot be run.
    fn run(
        &mut self,
        volumes: &[Volume],
        runs: u64,
    ) -> Result<Option<Swept>, Box<(usize, SimulateError)>> {
        let (done, planned) = (self.done as f64, self.planned.max(self.done + 1) as f64);
        let progress = |part: f64| (self.progress)((done + part) / planned);
        let swept = sweep(self.wanted.load, volumes, runs, &progress, &mut |_, _, _, _| {})?;
        self.done += 1;
        Ok(swept.map(|jobs| joined(&jobs)))
    }

    /// Tries all values of a parameter on the volume `at`. Returns the results and the volume to
    /// keep; `None` if the search is stopped.
    fn step(
        &mut self,
        name: &'static str,
        at: &Volume,
    ) -> Result<Option<(Step, Volume)>, SimulateError> {
        let (goal, runs) = (self.wanted.goal, self.wanted.runs);
        let mut volumes = vec![at.clone()];
        volumes.extend(others(at, name, self.wanted.fixed));
        let mut left_out = Vec::new();
        let swept = loop {
            match self.run(&volumes, runs) {
                Ok(Some(swept)) => break swept,
                Ok(None) => return Ok(None),
                Err(error) => match *error {
                    (0, error) | (_, error @ SimulateError::Stuck { .. }) => return Err(error),
                    (at, error) => {
                        let volume = volumes.remove(at);
                        left_out.push((value(&volume, name).1, error.to_string()));
                    }
                },
            }
        };
        let metric = goal.metric();
        let values: Vec<Estimate> =
            (0..volumes.len()).map(|of| swept.estimate(of, metric)).collect();
        let mut taken = 0;
        for other in 1..volumes.len() {
            let ratio = swept.against(0, other, metric);
            let better = ratio.is_ok_and(|ratio| goal.is_better(&ratio));
            if better && (taken == 0 || goal.prefers(values[other].value, values[taken].value)) {
                taken = other;
            }
        }
        for (volume, estimate) in volumes.iter().zip(&values) {
            self.tried.push((volume.clone(), estimate.value));
        }
        let named = volumes.iter().map(|volume| value(volume, name).1);
        let values = named.zip(values).collect();
        let step = Step { name: value(at, name).0, values, taken, left_out };
        Ok(Some((step, volumes.swap_remove(taken))))
    }

    /// Runs the winner with fresh seeds, beside untuned md, the next best and the given volume, and
    /// returns the advice; `None` if the search is stopped.
    fn confirm(
        &mut self,
        winner: Volume,
        steps: Vec<Step>,
    ) -> Result<Option<Advice>, SimulateError> {
        let goal = self.wanted.goal;
        let mut next: Option<(Volume, f64)> = None;
        for (volume, value) in self.tried.drain(..) {
            let best = next.as_ref().is_none_or(|(_, of)| goal.prefers(value, *of));
            if best && !differs(&volume, &winner).is_empty() {
                next = Some((volume, value));
            }
        }
        let mut knobs = Knobs::md();
        knobs.scheduler = SchedulerKind::MqDeadline;
        let chunk = Volume::MDADMS_CHUNK;
        let md = Volume { chunk, knobs, write_back: None, ..winner.clone() };
        let (mut volumes, md_at) = (vec![winner, md], 1);
        let mut place = |volume: Volume| {
            let known = [0].into_iter().chain(2..volumes.len());
            let known = known.into_iter().find(|at| differs(&volumes[*at], &volume).is_empty());
            known.unwrap_or_else(|| {
                volumes.push(volume);
                volumes.len() - 1
            })
        };
        let next = next.map(|(volume, _)| place(volume));
        let given = place(self.wanted.volume.clone());
        for volume in &mut volumes {
            volume.seed = volume.seed.wrapping_add(FRESH);
        }
        let runs = self.wanted.runs.max(CONFIRMING_RUNS);
        self.done = self.planned - 1;
        let swept = self.run(&volumes, runs).map_err(|error| error.1)?;
        let Some(swept) = swept else { return Ok(None) };
        let metric = goal.metric();
        // With fresh seeds, which favour neither volume, the next best may win.
        let beats = |one: usize, other: usize| {
            swept.against(other, one, metric).is_ok_and(|ratio| goal.is_better(&ratio))
        };
        let best = next.filter(|next| beats(*next, 0)).unwrap_or(0);
        let first = if best == given || beats(best, given) { best } else { given };
        let against = |other: usize| -> Result<Other, SimulateError> {
            Ok(Other {
                differs: differs(&volumes[other], &volumes[first]),
                value: swept.estimate(other, metric),
                ratio: swept.against(other, first, metric)?,
            })
        };
        // The second volume is the best of those that are neither advised nor md's: the winner of
        // the search, if that is not advised.
        let second = if best == first { next.filter(|next| *next != first) } else { Some(best) };
        let second = second.or_else(|| (first != 0).then_some(0));
        let (next, md) = (second.map(against).transpose()?, against(md_at)?);
        let given = (first != given).then(|| against(given)).transpose()?;
        let md = Other { differs: Vec::new(), ..md };
        let value = swept.estimate(first, metric);
        let volume = Volume { seed: self.wanted.volume.seed, ..volumes.swap_remove(first) };
        Ok(Some(Advice { volume, value, given, next, md, steps, runs }))
    }
}

/// Distance of the seeds of the last comparison from the seeds of the search, so that no seed is
/// used twice.
const FRESH: u64 = 1_000_003;

/// Least number of runs of the last comparison.
const CONFIRMING_RUNS: u64 = 5;

/// Combines the results of several jobs into one, by geometric means over the jobs that transferred
/// data.
fn joined(jobs: &[Swept]) -> Swept {
    if let [one] = jobs {
        return one.clone();
    }
    let over = |setting: usize, run: usize, metric: Metric| {
        let does = |job: &&Swept| job.samples.iter().flatten().all(|of| metric.of(of) > 0.0);
        let values: Vec<f64> =
            jobs.iter().filter(does).map(|job| metric.of(&job.samples[setting][run])).collect();
        geometric_mean(&values).unwrap_or(0.0)
    };
    let sample = |setting: usize, run: usize| Sample {
        throughput: over(setting, run, Metric::Throughput),
        mean: over(setting, run, Metric::Mean),
        percentiles: std::array::from_fn::<_, { PERCENTS.len() }, _>(|at| {
            over(setting, run, Metric::Percentile(at))
        }),
        ..Sample::default()
    };
    let settings = jobs.first().map_or(&[][..], |job| &job.samples);
    let samples: Vec<Vec<Sample>> = settings
        .iter()
        .enumerate()
        .map(|(setting, runs)| (0..runs.len()).map(|run| sample(setting, run)).collect())
        .collect();
    Swept { job: String::new(), courses: vec![Vec::new(); samples.len()], samples }
}
