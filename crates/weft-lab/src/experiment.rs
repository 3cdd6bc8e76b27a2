//! What was published, what does weft measure of the same change, and do they agree?
//!
//! An experiment is a text in `experiments/`, with its bands, that is hashed into every report. Each row of it
//! runs a workload on a simulated [`Machine`] as it was before the patch and with it, several times: run
//! `r` has the seed `base + r` in both, so that platters stand in the same place and only the patch differs.
//!
//! Source   experiments.md §4

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Deserialize;
use sha2::{Digest, Sha256};
use thiserror::Error;
use weft_engine::knobs::{KnobError, Knobs};
use weft_engine::sched::mq_deadline::Settings;
use weft_engine::writeback::{Kernel, PoolConfig};
use weft_ondisk::Level;
use weft_sim::drive::{Drive, Model, ModelError};
use weft_sim::machine::{Costs, Machine, Parts};
use weft_sim::workload::dd::{Dd, Device};
use weft_units::{Bytes, Span, Time};

use crate::statistics::{Band, Estimate, StatisticsError, Verdict, mean, ratio, verdict};

/// The experiments that weft has, by patch.
const TEXTS: &[&str] = &[include_str!("../../../experiments/000.toml")];

/// A published experiment.
#[derive(Clone, Debug)]
pub struct Experiment {
    text: Text,
    /// SHA-256 of its text, in hexadecimal digits.
    pub hash: String,
}

/// The text, as it stands.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    patch: String,
    name: String,
    published_by: String,
    assumptions: Vec<String>,
    reason: String,
    machine: MachineText,
    variants: Variants,
    dd: DdText,
    row: Vec<Row>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineText {
    level: String,
    members: u16,
    model: String,
    chunk_kib: u64,
    memory_mib: u64,
    cpus: u32,
    kernel: String,
    knobs: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Variants {
    baseline: Vec<String>,
    patched: Vec<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DdText {
    block_kib: u64,
    count: u64,
    quick_count: u64,
}

/// A published figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Which workload.
    pub experiment: String,
    /// What distinguishes it from the workload's other rows.
    pub case: String,
    /// `NAME=VALUE`, on top of the machine's.
    knobs: Vec<String>,
    /// What was published: patched against baseline, percent.
    pub published_gain_pct: f64,
    /// Where the ratio of patched to baseline has to lie.
    pub band: [f64; 2],
}

/// An experiment cannot be run as it is written.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum ExperimentError {
    /// There is none of this name.
    #[error("{found}: no such experiment; expected one of {expected}")]
    Name {
        /// What was asked for.
        found: String,
        /// What there is.
        expected: String,
    },
    /// Its text is not understood.
    #[error("experiment: {0}")]
    Text(String),
    /// It has a knob that does not exist, or a value that it does not take.
    #[error("experiment {patch}: {source}")]
    Knob {
        /// Which experiment.
        patch: String,
        /// What is wrong.
        source: KnobError,
    },
    /// It has a drive that does not exist.
    #[error("experiment {patch}: {source}")]
    Model {
        /// Which experiment.
        patch: String,
        /// What is wrong.
        source: ModelError,
    },
    /// Its runs say nothing.
    #[error("experiment: {0}")]
    Statistics(#[from] StatisticsError),
}

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Runs of each variant; two at least.
    pub runs: u64,
    /// The first run's seed.
    pub seed: u64,
    /// Shorter runs: less is written, limits and caches stay.
    pub quick: bool,
}

/// What one run found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// MB/s, of 10^6 bytes.
    pub throughput: f64,
    /// KiB that members read for each MiB that was written.
    pub prereads: f64,
}

/// What a row's runs found.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Which row.
    pub row: Row,
    /// Runs before the patch.
    pub baseline: Vec<Sample>,
    /// Runs with it, in the same order.
    pub patched: Vec<Sample>,
    /// Means, MB/s.
    pub throughput: (Estimate, Estimate),
    /// Patched against baseline.
    pub ratio: Estimate,
    /// Means of prereads, KiB for each MiB written.
    pub prereads: (f64, f64),
    /// Against the band.
    pub verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Baseline,
    Patched,
}

impl Experiment {
    /// All that there are.
    ///
    /// # Errors
    /// A text is not understood; a test reads all of them.
    pub fn all() -> Result<Vec<Self>, ExperimentError> {
        TEXTS.iter().map(|text| Self::of(text)).collect()
    }

    /// By the number of its patch or by its name.
    ///
    /// # Errors
    /// There is none.
    pub fn named(name: &str) -> Result<Self, ExperimentError> {
        let all = Self::all()?;
        let expected: Vec<String> =
            all.iter().map(|known| format!("{} ({})", known.patch(), known.name())).collect();
        all.into_iter().find(|known| known.patch() == name || known.name() == name).ok_or_else(
            || ExperimentError::Name { found: name.into(), expected: expected.join(", ") },
        )
    }

    fn of(text: &str) -> Result<Self, ExperimentError> {
        let hash = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
        let text: Text =
            toml::from_str(text).map_err(|error| ExperimentError::Text(error.to_string()))?;
        Ok(Self { text, hash })
    }

    /// Its patch's number.
    #[must_use]
    pub fn patch(&self) -> &str {
        &self.text.patch
    }

    /// Its patch's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.text.name
    }

    /// On what it was measured when it was published.
    #[must_use]
    pub fn published_by(&self) -> &str {
        &self.text.published_by
    }

    /// What is taken for granted.
    #[must_use]
    pub fn assumptions(&self) -> &[String] {
        &self.text.assumptions
    }

    /// Why a row may disagree, as far as is known.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.text.reason
    }

    /// Runs all rows, on as many threads as there are CPUs, and says after each run how many of how many
    /// are done.
    ///
    /// # Errors
    /// It cannot be run as it is written.
    ///
    /// # Panics
    /// A run panics.
    pub fn run(
        &self,
        effort: Effort,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<Vec<Measured>, ExperimentError> {
        let mut jobs = Vec::new();
        for (number, row) in self.text.row.iter().enumerate() {
            for variant in [Variant::Baseline, Variant::Patched] {
                let parts = self.parts(row, variant)?;
                jobs.extend((0..effort.runs).map(|run| (number, variant, run, parts.clone())));
            }
        }
        let total = jobs.len();
        let samples = Mutex::new(vec![None; total]);
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(total);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let Some((_, _, run, parts)) = jobs.get(number) else { break };
                        let parts = Parts { seed: effort.seed + run, ..parts.clone() };
                        let sample = self.dd(&parts, effort.quick);
                        samples.lock().expect("no run panics")[number] = Some(sample);
                        progress(done.fetch_add(1, Ordering::Relaxed) + 1, total);
                    }
                });
            }
        });
        let samples = samples.into_inner().expect("no run panics");
        let of = |row: usize, variant: Variant| -> Vec<Sample> {
            let of_it = jobs
                .iter()
                .zip(&samples)
                .filter(|((number, of, ..), _)| (*number, *of) == (row, variant));
            of_it.map(|(_, sample)| sample.expect("every job was run")).collect()
        };
        let rows = self.text.row.iter().enumerate();
        rows.map(|(number, row)| {
            Measured::of(row, of(number, Variant::Baseline), of(number, Variant::Patched))
        })
        .collect()
    }

    fn parts(&self, row: &Row, variant: Variant) -> Result<Parts, ExperimentError> {
        let text = &self.text.machine;
        let of_variant = match variant {
            Variant::Baseline => &self.text.variants.baseline,
            Variant::Patched => &self.text.variants.patched,
        };
        let mut knobs = Knobs::md();
        for setting in row.knobs.iter().chain(&text.knobs).chain(of_variant) {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            let knob = knobs
                .parse(name, value)
                .map_err(|source| ExperimentError::Knob { patch: self.patch().into(), source })?;
            knobs.set(knob);
        }
        let model: Model = Drive::model(&text.model)
            .map_err(|source| ExperimentError::Model { patch: self.patch().into(), source })?;
        let level = match text.level.as_str() {
            "raid4" => Level::Raid4,
            "raid5" => Level::Raid5,
            "raid6" => Level::Raid6,
            found => {
                let message = format!("level: found {found}, expected raid4, raid5 or raid6");
                return Err(ExperimentError::Text(message));
            }
        };
        Ok(Parts {
            level,
            model,
            members: text.members,
            chunk: Bytes::kib(text.chunk_kib).sectors_floor(),
            member_size: None,
            knobs,
            queue: Settings::default(),
            costs: Costs::ZERO,
            seed: 0,
        })
    }

    fn pool(&self) -> PoolConfig {
        let MachineText { memory_mib, cpus, kernel, .. } = &self.text.machine;
        let kernel = if kernel == "3.1" { Kernel::V3_1 } else { Kernel::V2_6_24 };
        let pages = memory_mib * 256;
        // What the kernel and its programs took of a GiB then was about an eighth.
        PoolConfig::new(kernel, *cpus, pages, pages / 8 * 7)
    }

    fn dd(&self, parts: &Parts, quick: bool) -> Sample {
        let DdText { block_kib, count, quick_count } = self.text.dd;
        let count = if quick { quick_count } else { count };
        let mut machine = Machine::new(parts);
        // 2.6.24 wrote the pages of a block device one by one.
        machine.add_page_cache(self.pool(), Box::new(Device), Bytes::kib(4));
        let pid = machine.add_with(|pid| Box::new(Dd::new(pid, Bytes::kib(block_kib), count)));
        machine.run(Time(0) + Span::secs(RUN_SECONDS_MAX));
        let dd: &Dd = machine.process(pid);
        let bytes = dd.bytes().0 as f64;
        let seconds = dd.closed.map_or(f64::INFINITY, |at| at.0 as f64 / 1e9);
        let read: u64 = machine.host.traffic().map(|of| of.sectors_read).sum();
        let prereads = read as f64 / 2.0 / (bytes / 1_048_576.0);
        Sample { throughput: bytes / seconds / 1e6, prereads }
    }
}

impl Measured {
    fn of(row: &Row, baseline: Vec<Sample>, patched: Vec<Sample>) -> Result<Self, ExperimentError> {
        let rates = |samples: &[Sample]| -> Vec<f64> {
            samples.iter().map(|sample| sample.throughput).collect()
        };
        let prereads = |samples: &[Sample]| -> f64 {
            samples.iter().map(|sample| sample.prereads).sum::<f64>() / samples.len() as f64
        };
        let ratio = ratio(&rates(&baseline), &rates(&patched))?;
        let [low, high] = row.band;
        Ok(Self {
            row: row.clone(),
            throughput: (mean(&rates(&baseline))?, mean(&rates(&patched))?),
            ratio,
            prereads: (prereads(&baseline), prereads(&patched)),
            verdict: verdict(&ratio, Band::Inside { low, high }),
            baseline,
            patched,
        })
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.experiment, self.case)
    }
}

/// A run that takes longer is broken; it would take a disk's whole life to find out how broken.
const RUN_SECONDS_MAX: u64 = 3600;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_texts_are_understood_and_name_each_other_apart() {
        let all = Experiment::all().unwrap();
        for known in &all {
            assert_eq!(Experiment::named(known.name()).unwrap().hash, known.hash);
            for row in &known.text.row {
                known.parts(row, Variant::Baseline).unwrap();
                known.parts(row, Variant::Patched).unwrap();
            }
        }
        let error = Experiment::named("oo1").unwrap_err().to_string();
        assert_eq!(error, "oo1: no such experiment; expected one of 000 (priority)");
    }

    #[test]
    fn a_text_with_a_mistake_is_refused_by_name() {
        let text = TEXTS[0].replace("priority=fifo", "priority=lifo");
        let known = Experiment::of(&text).unwrap();
        let error = known.parts(&known.text.row[0], Variant::Baseline).unwrap_err().to_string();
        assert!(error.contains("priority: found lifo, expected"), "{error}");
        let text = TEXTS[0].replace("[dd]", "[d]");
        assert!(Experiment::of(&text).unwrap_err().to_string().contains("`d`"));
    }

    /// The mechanism, on runs too short to say how much it is worth.
    #[test]
    fn patch_000_saves_prereads_and_the_placebo_saves_nothing() {
        let mut known = Experiment::named("000").unwrap();
        known.text.row.truncate(1);
        let effort = Effort { runs: 3, seed: 7, quick: true };
        let measured = known.run(effort, &|_, _| ()).unwrap();
        let (before, after) = measured[0].prereads;
        assert!(after < before * 0.75, "{after} KiB instead of {before}");
        // The same runs again are the same to the bit.
        assert_eq!(known.run(effort, &|_, _| ()).unwrap()[0].patched, measured[0].patched);
        // Negative control: no patch in either variant.
        known.text.variants.patched = known.text.variants.baseline.clone();
        let placebo = known.run(effort, &|_, _| ()).unwrap();
        assert!((placebo[0].ratio.value - 1.0).abs() < 1e-12, "{:?}", placebo[0].ratio);
    }

    #[test]
    fn an_inverted_patch_loses() {
        let mut known = Experiment::named("000").unwrap();
        known.text.row.truncate(1);
        std::mem::swap(&mut known.text.variants.patched, &mut known.text.variants.baseline);
        let effort = Effort { runs: 3, seed: 1, quick: true };
        let measured = known.run(effort, &|_, _| ()).unwrap();
        assert!(measured[0].ratio.value < 1.0, "{:?}", measured[0].ratio);
        assert_eq!(measured[0].verdict, Verdict::Differs);
    }
}
