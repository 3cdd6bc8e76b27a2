//! Text of an experiment: machine, columns, cases and rows, read from TOML.
//!
//! A machine; *columns*, which are ways to tune it (before the patch, with it, and others beside
//! them); *cases*, which are loads in some circumstances; and *rows*, each of which compares two
//! columns in a case with what was published, by a band that was written down beforehand. Whatever
//! a text says and weft does not know is an error.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::calibrate::Fit;
use super::load::Load;
use super::metric::Metric;
use super::ranges::Circumstance;
use crate::statistics::Band;

/// The text, as it stands.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Text {
    pub(super) patch: String,
    pub(super) name: String,
    pub(super) published_by: String,
    pub(super) assumptions: Vec<String>,
    pub(super) machine: MachineText,
    pub(super) column: BTreeMap<String, Column>,
    pub(super) control: ControlText,
    pub(super) case: Vec<Case>,
    #[serde(default)]
    pub(super) fit: Vec<Fit>,
    #[serde(default)]
    pub(super) circumstance: Vec<Circumstance>,
    pub(super) row: Vec<PublishedRow>,
    #[serde(default)]
    pub(super) beside: Vec<PublishedRow>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MachineText {
    pub(super) level: String,
    pub(super) members: u16,
    pub(super) model: String,
    pub(super) chunk_kib: u64,
    pub(super) memory_mib: u64,
    pub(super) cpus: u32,
    pub(super) kernel: String,
    /// The table of CPU costs.
    pub(super) costs: String,
    /// For every column.
    pub(super) knobs: Vec<String>,
}

/// A way to tune the machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// Description, in a few words.
    pub about: String,
    /// Knobs that the column starts from.
    #[serde(default)]
    pub(super) base: Base,
    /// Its own table of CPU costs, in place of the machine's.
    #[serde(default)]
    pub(super) costs: Option<String>,
    /// `NAME=VALUE`, on top of the case's and the machine's.
    #[serde(default)]
    pub(super) knobs: Vec<String>,
}

/// Base of a column's knobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Base {
    /// md untuned.
    #[default]
    Md,
    /// Knobs of weft untuned (`Knobs::default`).
    Weft,
}

/// How it is shown that only the patch makes the difference.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ControlText {
    /// Name of the case.
    pub(super) case: String,
    /// The column that wins there, and without which the baseline must lose.
    #[serde(default = "patched")]
    pub(super) patched: String,
    /// The mechanism off, on top of whatever the column says.
    pub(super) off: Vec<String>,
    /// What is no patch, and yet changes when everything happens.
    pub(super) placebo: Placebo,
}

/// Work that takes a little longer.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Placebo {
    /// How much longer a turn of the engine's thread takes.
    pub(super) turn_ns: u64,
}

/// A load in some circumstances.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Name that rows use.
    pub name: String,
    /// `NAME=VALUE`, for every column.
    #[serde(default)]
    pub(super) knobs: Vec<String>,
    /// Factor on the machine's CPU costs.
    #[serde(default = "one")]
    pub costs_times: u64,
    /// Factor on the machine's hops between threads.
    #[serde(default = "one")]
    pub(super) hops_times: u64,
    /// The case's own model of a drive, of which nothing is fitted; empty for the machine's.
    #[serde(default)]
    pub(super) model: String,
    /// Lines of the drive's model that are others in this case, after what was fitted.
    #[serde(default)]
    pub(super) drive: String,
    /// Workload that uses the volume.
    pub load: Load,
}

/// A published figure, and what is compared with it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedRow {
    /// Name of the published workload.
    pub experiment: String,
    /// Case of the row: what tells it from the workload's other rows.
    pub case: String,
    /// The case that is run.
    pub of: String,
    /// Other cases: the row is of all of them together.
    #[serde(default)]
    pub(super) and: Vec<String>,
    /// What a row of several cases compares.
    #[serde(default)]
    pub(super) joined: Joined,
    /// The ratio of the columns is divided by that in this case.
    #[serde(default)]
    pub against: Option<String>,
    /// Metric that is compared.
    #[serde(default)]
    pub metric: Metric,
    /// The column before the patch.
    #[serde(default = "baseline")]
    pub baseline: String,
    /// The column with it.
    #[serde(default = "patched")]
    pub patched: String,
    /// The column of weft's own answer.
    #[serde(default)]
    pub beyond: Option<String>,
    /// Kind of the claim.
    #[serde(default)]
    pub kind: ClaimKind,
    /// Whether baseline and patched have to be what was published, to the last digit.
    #[serde(default)]
    pub exact: bool,
    /// The curve that it is a point of, over `costs_times` of its case.
    #[serde(default)]
    pub curve: Option<String>,
    /// Published figure.
    #[serde(default)]
    pub published: Published,
    /// The published cell that it is about, where several rows are; it counts once.
    #[serde(default)]
    pub cell: Option<String>,
    /// Whether what makes the row agree is another mechanism than the published one.
    #[serde(default)]
    pub otherwise: bool,
    /// Why the row counts in no summary; empty for those that do.
    #[serde(default)]
    pub uncounted: String,
    /// Why its size means nothing; empty where it does. Then it has the direction at most.
    #[serde(default)]
    pub no_magnitude: String,
    /// Between what the gain lies when parameters are other than assumed, where that was measured.
    #[serde(default)]
    pub assumed: Option<Assumed>,
    #[serde(default)]
    band: BandText,
    /// Known reason why the row does not agree; may be empty.
    #[serde(default)]
    pub reason: String,
    /// Note about the row that is told whatever its verdict is; may be empty.
    #[serde(default)]
    pub note: String,
}

/// Range of a gain over assumed parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assumed {
    /// The smallest and the largest gain that was found, percent.
    pub gain_pct: [f64; 2],
    /// Names of the parameters that were varied.
    pub over: String,
}

/// How the cases of a row become one figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Joined {
    /// The geometric mean of the metric over the cases.
    #[default]
    Mean,
    /// In how many cases the metric is larger with the patch, of how many.
    Rises,
}

/// Kind of a claim: size, direction or mechanism.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimKind {
    /// No claim.
    #[default]
    Beside,
    /// Claim of a direction: which of two columns is larger.
    Direction,
    /// The magnitude: how much larger.
    Magnitude,
    /// Why: something that is not the figure that users see.
    Mechanism,
}

impl ClaimKind {
    /// Word for the kind in JSON and in reports.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Beside => "beside",
            Self::Direction => "direction",
            Self::Magnitude => "magnitude",
            Self::Mechanism => "mechanism",
        }
    }
}

/// Published figures of a row, as far as there are any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Before the patch, in the metric's unit.
    #[serde(default)]
    pub baseline: Option<f64>,
    /// With it.
    #[serde(default)]
    pub patched: Option<f64>,
    #[serde(default)]
    gain_pct: Option<f64>,
}

impl Published {
    /// Patched against baseline, percent.
    #[must_use]
    pub fn gain_percent(&self) -> Option<f64> {
        let of_both = || Some((self.patched? / self.baseline? - 1.0) * 100.0);
        self.gain_pct.or_else(of_both)
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(untagged)]
enum BandText {
    /// Anywhere.
    #[default]
    None,
    Inside([f64; 2]),
    Side(Side),
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Side {
    Above,
    Below,
}

impl PublishedRow {
    /// Puts NaN in place of everything that is said of what is predicted.
    #[cfg(test)]
    pub(super) fn blind(&mut self) {
        self.published.patched = Some(f64::NAN);
        self.published.gain_pct = Some(f64::NAN);
        self.band = BandText::Inside([f64::NAN; 2]);
        self.assumed = Some(Assumed { gain_pct: [f64::NAN; 2], over: String::new() });
    }

    /// Whether there is a published figure for it.
    #[must_use]
    pub fn is_figure(&self) -> bool {
        self.published.gain_percent().is_some()
    }

    /// Key under which verdicts are counted: the published cell, or the row itself.
    #[must_use]
    pub fn counted_as(&self) -> String {
        self.cell.clone().unwrap_or_else(|| self.to_string())
    }

    /// Band in which the ratio of patched to baseline has to lie.
    #[must_use]
    pub fn band(&self) -> Band {
        match self.band {
            BandText::None => Band::Inside { low: 0.0, high: f64::INFINITY },
            BandText::Inside([low, high]) => Band::Inside { low, high },
            BandText::Side(Side::Above) => Band::Above(1.0),
            BandText::Side(Side::Below) => Band::Below(1.0),
        }
    }

    /// Whether its band is one that a ratio can lie in.
    pub(super) fn has_band(&self) -> bool {
        match self.band {
            BandText::Inside([low, high]) => 0.0 <= low && low <= high,
            BandText::None | BandText::Side(_) => true,
        }
    }

    /// The cases and columns that it needs.
    pub(super) fn needs(&self) -> impl Iterator<Item = (&str, &str)> {
        let cases = [Some(self.of.as_str()), self.against.as_deref()];
        let cases = cases.into_iter().flatten().chain(self.and.iter().map(String::as_str));
        let columns = [Some(&self.baseline), Some(&self.patched), self.beyond.as_ref()];
        cases.flat_map(move |case| {
            columns.into_iter().flatten().map(move |column| (case, column.as_str()))
        })
    }
}

impl PublishedRow {
    /// The cases that it is of, without the one that it is divided by.
    pub(super) fn cases(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.of.as_str()).chain(self.and.iter().map(String::as_str))
    }
}

impl std::fmt::Display for PublishedRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.experiment, self.case)
    }
}

fn one() -> u64 {
    1
}

fn baseline() -> String {
    "baseline".into()
}

fn patched() -> String {
    "patched".into()
}
