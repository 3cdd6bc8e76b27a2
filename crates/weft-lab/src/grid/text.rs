//! Text of the grid: arrays, loads and bounds.

use serde::Deserialize;
use thiserror::Error;

/// Why the text is not understood.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("experiments/grid.toml: {0}")]
pub struct GridError(pub(super) String);

/// The whole text.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Text {
    pub(super) run_ms: ByDevice,
    pub(super) ramp_ms: ByDevice,
    pub(super) bound: Bound,
    pub(super) array: Vec<Array>,
    pub(super) load: Vec<Load>,
    pub(super) load_of_chunks: Vec<Load>,
    #[serde(default)]
    pub(super) open: Vec<Open>,
}

/// A job that is known to lose, until it no longer does.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    /// Name of its array.
    pub array: String,
    /// Name of its load, and of its job if the load has several.
    pub load: String,
    /// Its rate as a multiple of md's.
    pub to_md: f64,
    /// Its 99th percentile as a multiple of md's, if it loses by that.
    pub p99: Option<f64>,
    /// Why it loses, and why that is left.
    pub why: String,
}

/// Milliseconds that depend on how fast a device is.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ByDevice {
    ssd: u64,
    hdd: u64,
}

/// What no line may lose, and what all must gain.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// Least rate, as a multiple of md's.
    pub rate: f64,
    /// Largest 99th percentile at the same rate, as a multiple of md's.
    pub p99: f64,
    /// Longest wait of a request in milliseconds.
    pub wait_ms: u64,
    /// Least geometric mean of rates over md's.
    pub mean_to_md: f64,
    /// Least geometric mean of rates over those of md's best size of stripes.
    pub mean_to_fixed: f64,
    /// What the first of them is meant to become.
    pub goal_mean_to_md: f64,
    /// How far what is known to lose may be beyond its own figures, as a part of these.
    pub open_tolerance: f64,
}

/// An array of simulated drives.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Array {
    /// Its name.
    pub name: String,
    /// md's level.
    pub level: String,
    /// Number of members.
    pub members: usize,
    /// Model of each.
    pub device: String,
    /// Size of a chunk in KiB, as it was made; without it the array is made by defaults, weft's
    /// for weft and mdadm's for md.
    pub chunk_kib: Option<u64>,
    /// Every load is run on it, not only those that are run on all arrays.
    #[serde(default)]
    pub all_loads: bool,
    /// What goes wrong, as `weft sim --faults` has it.
    pub faults: Option<String>,
    /// Sync that runs beside the load, by md's name.
    pub sync: Option<String>,
}

impl Array {
    /// It differs by its chunks and its name alone.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let Self { level, members, device, faults, .. } = self;
        (level, members, device, faults)
            == (&other.level, &other.members, &other.device, &other.faults)
    }
}

/// A load; or several, before they are taken apart.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Loads")]
pub struct Load {
    /// Its name.
    pub name: String,
    /// It is run on every array.
    pub few: bool,
    /// Sections of a fio job file.
    pub job: String,
    several: Option<Loads>,
}

/// Loads of all sizes with all depths.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Loads {
    name: String,
    bs: Vec<String>,
    depth: Vec<u64>,
    few: Vec<String>,
    job: String,
}

impl From<Loads> for Load {
    fn from(several: Loads) -> Self {
        Self { name: String::new(), few: false, job: String::new(), several: Some(several) }
    }
}

impl Text {
    pub(super) fn of(text: &str) -> Result<Self, GridError> {
        toml::from_str(text).map_err(|error| GridError(error.to_string().trim().into()))
    }
}

impl ByDevice {
    pub(super) const fn of(self, is_hdd: bool) -> u64 {
        if is_hdd { self.hdd } else { self.ssd }
    }
}

impl Load {
    /// One load of each size with each depth.
    pub(super) fn each(&self) -> Vec<Self> {
        let Some(loads) = &self.several else { return vec![self.clone()] };
        let pairs = loads.bs.iter().flat_map(|bs| loads.depth.iter().map(move |depth| (bs, depth)));
        let load = |(bs, depth): (&String, &u64)| {
            let depth = depth.to_string();
            let fill = |text: &str| text.replace("{bs}", bs).replace("{depth}", &depth);
            let few = loads.few.contains(&format!("{bs} {depth}"));
            Self { name: fill(&loads.name), few, job: fill(&loads.job), several: None }
        };
        pairs.map(load).collect()
    }
}
