//! Text of the grid: arrays, loads and bounds.

use serde::Deserialize;
use thiserror::Error;

/// Reason why the text of the grid is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("experiments/grid.toml: {0}")]
pub struct GridError(pub(super) String);

/// Text of the grid, as read from TOML.
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
    pub(super) history: Vec<Change>,
}

/// A change of the bounds, or of the measurement that they bound.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Day of the change.
    pub date: String,
    /// Commit that made the change.
    pub commit: String,
    /// Value of [`Bound::mean_to_md`] after the change.
    pub mean_to_md: f64,
    /// Value of [`Bound::mean_to_fixed`] after the change.
    pub mean_to_fixed: f64,
    /// Description of the change.
    pub what: String,
    /// Result of the grid after the change, in words.
    pub found: String,
}

/// A job that is known to lose.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    /// Name of the array.
    pub array: String,
    /// Name of the load, and of the job if the load has several.
    pub load: String,
    /// Rate of the job under weft's defaults, as a multiple of md's.
    pub to_md: f64,
    /// 99th percentile of the job's latencies as a multiple of md's; `None` if the job loses only
    /// in its rate.
    pub p99: Option<f64>,
    /// Reason why the job loses, and why that is accepted.
    pub why: String,
}

/// Durations in milliseconds: one for arrays of SSDs, and one for arrays of hard disks.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ByDevice {
    ssd: u64,
    hdd: u64,
}

/// Largest losses that a line may have, and smallest mean gains of all lines.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// Least rate, as a multiple of md's.
    pub rate: f64,
    /// Largest 99th percentile at the same rate, as a multiple of md's.
    pub p99: f64,
    /// Longest wait of a request in milliseconds.
    pub wait_ms: u64,
    /// Least geometric mean, over all lines, of the rate as a multiple of md's.
    pub mean_to_md: f64,
    /// Least geometric mean, over all lines, of the rate as a multiple of the rate with md's best
    /// stripe size.
    pub mean_to_fixed: f64,
    /// Goal for `mean_to_md`.
    pub goal_mean_to_md: f64,
    /// Tolerance of a known loss around its listed figures, as a share of these.
    pub open_tolerance: f64,
}

/// An array of simulated drives.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Array {
    /// Name of the array.
    pub name: String,
    /// Level of the array, by md's name.
    pub level: String,
    /// Number of members.
    pub members: usize,
    /// Model of the drive of each member.
    pub device: String,
    /// Chunk size in KiB; with `None`, weft and md each use their default.
    pub chunk_kib: Option<u64>,
    /// Whether every load is run on the array, not only those that are run on all arrays.
    #[serde(default)]
    pub all_loads: bool,
    /// Faults, in the syntax of `weft sim --faults`; `None` for an array without faults.
    pub faults: Option<String>,
    /// Resync, recovery, check or repair that runs beside the load, by its name in md's
    /// `sync_action`; `None` if none runs.
    pub sync: Option<String>,
}

impl Array {
    /// Whether two arrays have the same level, number of members, drives and faults, so that a
    /// comparison of chunk sizes needs only one of them.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let Self { level, members, device, faults, .. } = self;
        (level, members, device, faults)
            == (&other.level, &other.members, &other.device, &other.faults)
    }
}

/// A load, or several loads before they are expanded.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Loads")]
pub struct Load {
    /// Name of the load.
    pub name: String,
    /// Whether the load is run on every array, not only those with `all_loads`.
    pub few: bool,
    /// Sections of a fio job file.
    pub job: String,
    several: Option<Loads>,
}

/// Several loads of one kind: all combinations of sizes and depths.
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
    /// Expands the load to one load of each size and depth.
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
