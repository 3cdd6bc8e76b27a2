//! Text of an experiment: machine, columns, cases and rows, read from TOML.
//!
//! A text describes a machine; *columns*, which are ways to tune it (before the patch, with the
//! patch, and others); *cases*, which are loads in given circumstances; and *rows*, each of which
//! compares two columns in a case with the published figure, by a band that was written down
//! beforehand. An unknown key or name in a text is an error.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::calibrate::Fit;
use super::hangs_on::Chosen;
use super::load::Load;
use super::metric::Metric;
use super::own::OwnText;
use super::ranges::Circumstance;
use crate::statistics::Band;

/// Text of an experiment, as written.
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
    /// Values that were chosen after results had been seen.
    #[serde(default)]
    pub(super) chosen: Vec<Chosen>,
    /// weft's own policies, with the quantities that they are judged by.
    #[serde(default)]
    pub(super) own: Vec<OwnText>,
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
    /// Name of the table of CPU costs.
    pub(super) costs: String,
    /// Knobs as `NAME=VALUE`, for every column.
    pub(super) knobs: Vec<String>,
}

/// A way to tune the machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// Description of the column, in a few words.
    pub about: String,
    /// Knobs that the column starts from.
    #[serde(default)]
    pub(super) base: Base,
    /// Name of the column's own table of CPU costs; `None` for the table of the machine.
    #[serde(default)]
    pub(super) costs: Option<String>,
    /// Knobs as `NAME=VALUE`, which override those of the case and the machine.
    #[serde(default)]
    pub(super) knobs: Vec<String>,
}

/// Base of a column's knobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Base {
    /// Knobs of untuned md (`Knobs::md`).
    #[default]
    Md,
    /// The default knobs of weft, untuned (`Knobs::default`).
    Weft,
}

/// Settings of the controls that show that only the patch makes the difference.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ControlText {
    /// Name of the case in which the controls are run.
    pub(super) case: String,
    /// Name of the column with the better result; the inverted control expects the baseline to lose
    /// against this column.
    #[serde(default = "patched")]
    pub(super) patched: String,
    /// Knobs that switch the mechanism off, on top of those of the column.
    pub(super) off: Vec<String>,
    /// Change that has no effect on the result but shifts the time of every event.
    pub(super) placebo: Placebo,
}

/// Placebo: additional CPU time of the engine's thread.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Placebo {
    /// Additional time of each run of the engine's thread, in nanoseconds.
    pub(super) turn_ns: u64,
}

/// A load, and the changes to the machine under which it runs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Name of the case, by which rows refer to it.
    pub name: String,
    /// Knobs as `NAME=VALUE`, for every column.
    #[serde(default)]
    pub(super) knobs: Vec<String>,
    /// Factor by which the machine's CPU costs are multiplied.
    #[serde(default = "one")]
    pub costs_times: u64,
    /// Factor by which the duration of the machine's hops between threads is multiplied.
    #[serde(default = "one")]
    pub(super) hops_times: u64,
    /// Model of the case's own drive, which has no fitted parameters; empty for the machine's
    /// drive.
    #[serde(default)]
    pub(super) model: String,
    /// Lines of TOML that replace keys of the drive's model in this case, after fitted parameters
    /// are applied.
    #[serde(default)]
    pub(super) drive: String,
    /// Load that uses the volume.
    pub load: Load,
}

/// A published figure, and the comparison that is made for it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedRow {
    /// Name of the published workload.
    pub experiment: String,
    /// Case of the row as published, which distinguishes it from other rows of the workload.
    pub case: String,
    /// Name of the case that is run for the row.
    pub of: String,
    /// Names of further cases, which the row joins with the case `of` into one figure.
    #[serde(default)]
    pub(super) and: Vec<String>,
    /// Rule that joins the cases of a row into one figure.
    #[serde(default)]
    pub(super) joined: Joined,
    /// Name of another case: the ratio of the row is divided by the ratio in this case. `None` if
    /// it is not divided.
    #[serde(default)]
    pub against: Option<String>,
    /// Metric that is compared.
    #[serde(default)]
    pub metric: Metric,
    /// Name of the column before the patch.
    #[serde(default = "baseline")]
    pub baseline: String,
    /// Name of the column with the patch.
    #[serde(default = "patched")]
    pub patched: String,
    /// Name of weft's own column, which is compared with both; `None` if there is none.
    #[serde(default)]
    pub beyond: Option<String>,
    /// Kind of the row's claim.
    #[serde(default)]
    pub kind: ClaimKind,
    /// Whether baseline and patched must equal the published figures to the last digit.
    #[serde(default)]
    pub exact: bool,
    /// Name of the curve over `costs_times` that this row is a point of; `None` for a row of no
    /// curve.
    #[serde(default)]
    pub curve: Option<String>,
    /// Published figures of the row.
    #[serde(default)]
    pub published: Published,
    /// Published cell that several rows are about, which counts once; `None` if the row counts by
    /// itself.
    #[serde(default)]
    pub cell: Option<String>,
    /// Whether the row agrees by another mechanism than the published one, so that its agreement
    /// counts apart.
    #[serde(default)]
    pub otherwise: bool,
    /// Reason why the row is in no count; empty for a row that is counted.
    #[serde(default)]
    pub uncounted: String,
    /// Reason why the row's magnitude does not count; empty if there is none. A row with such a
    /// reason agrees in direction at best.
    #[serde(default)]
    pub no_magnitude: String,
    /// Range of the gain under other assumed parameters; `None` if it was not measured.
    #[serde(default)]
    pub assumed: Option<Assumed>,
    #[serde(default)]
    band: BandText,
    /// Known reason why the row does not agree; may be empty.
    #[serde(default)]
    pub reason: String,
    /// Note about the row that is printed with any verdict; may be empty.
    #[serde(default)]
    pub note: String,
}

/// Range of a gain over assumed parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assumed {
    /// The smallest and the largest measured gain, in percent.
    pub gain_pct: [f64; 2],
    /// Names of the parameters that were varied.
    pub over: String,
}

/// Rule that joins the cases of a row into one figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Joined {
    /// The geometric mean of the metric over the cases.
    #[default]
    Mean,
    /// Number of the cases in which the metric is larger with the patch.
    Rises,
}

/// Kind of a claim: size, count, direction or mechanism.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimKind {
    /// No claim: a comparison that is shown beside the rows.
    #[default]
    Beside,
    /// Claim of a count, such as the number of cases that gain. A count has no direction, so the
    /// verdict is agrees or differs.
    Count,
    /// Claim of a direction: which of two columns is larger.
    Direction,
    /// Claim of a magnitude: by which factor one column is larger.
    Magnitude,
    /// Claim of a mechanism: a value that explains the figure that users see.
    Mechanism,
}

impl ClaimKind {
    /// Word for the kind in JSON and in reports.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Beside => "beside",
            Self::Count => "count",
            Self::Direction => "direction",
            Self::Magnitude => "magnitude",
            Self::Mechanism => "mechanism",
        }
    }
}

/// Published figures of a row; each may be missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Figure before the patch, in the metric's unit; `None` if it was not published.
    #[serde(default)]
    pub baseline: Option<f64>,
    /// Figure with the patch, in the metric's unit; `None` if it was not published.
    #[serde(default)]
    pub patched: Option<f64>,
    #[serde(default)]
    gain_pct: Option<f64>,
}

impl Published {
    /// Published gain of patched over baseline, in percent, or the gain that follows from both
    /// figures; `None` if neither is known.
    #[must_use]
    pub fn gain_percent(&self) -> Option<f64> {
        let of_both = || Some((self.patched? / self.baseline? - 1.0) * 100.0);
        self.gain_pct.or_else(of_both)
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(untagged)]
enum BandText {
    /// No band: any ratio agrees.
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
    /// Sets every figure that is to be predicted to NaN, to show that a fit does not read it.
    #[cfg(test)]
    pub(super) fn blind(&mut self) {
        self.published.patched = Some(f64::NAN);
        self.published.gain_pct = Some(f64::NAN);
        self.band = BandText::Inside([f64::NAN; 2]);
        self.assumed = Some(Assumed { gain_pct: [f64::NAN; 2], over: String::new() });
    }

    /// Whether the row has a published gain, or both published figures, from which the gain
    /// follows.
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

    /// Whether the row has a band with valid limits, or claims nothing. A claim without a band
    /// would agree with any figure.
    pub(super) fn has_band(&self) -> bool {
        match self.band {
            BandText::Inside([low, high]) => 0.0 <= low && low <= high,
            BandText::None => self.kind == ClaimKind::Beside,
            BandText::Side(_) => true,
        }
    }

    /// Whether the row claims a magnitude, and no reason is given why it does not count.
    pub(super) fn has_magnitude(&self) -> bool {
        self.kind == ClaimKind::Magnitude && self.no_magnitude.is_empty()
    }

    /// Pairs of a case and a column that have to be run for the row.
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
    /// The cases that the row joins, without the case by which its ratio is divided.
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
