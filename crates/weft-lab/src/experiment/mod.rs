//! Experiments: published figures beside what weft measures of the same change, and the verdicts.
//!
//! An experiment is a text in `experiments/`, with its bands; every report contains the hash of the
//! text. Each row compares two *columns*, which are ways to tune a simulated machine, in a *case*,
//! which is a load in given circumstances. The columns are usually the machine before the patch and
//! with it. Run `r` has the seed `base + r` in every column, so platters start at the same angle,
//! clients issue the same requests, and only the column differs.
//!
//! | part | file |
//! |---|---|
//! | text of an experiment | `text.rs` |
//! | bounds of a text, and one from a file | `bounds.rs` |
//! | machine of a run | `testbed.rs` |
//! | loads and their metrics | `load/` |
//! | metrics | `metric.rs` |
//! | another machine than the text's | `other_machine.rs` |
//! | course of a run over time | `watch.rs` |
//! | threads that carry out runs | `pool.rs` |
//! | estimate of the duration | `estimate.rs` |
//! | measurement and verdict of a row | `measured.rs` |
//! | calibration of the model to the baseline | `calibrate.rs` |
//! | sensitivity to assumptions | `ranges.rs` |
//! | values that a verdict depends on | `hangs_on.rs` |
//! | judgement of weft's own policies | `own.rs` |
//! | controls: mechanism off, placebo, inverted | `control.rs` |
//! | files of every run | `results.rs` |
//!
//! Source   experiments.md §4

mod bounds;
mod calibrate;
mod control;
mod error;
mod estimate;
mod hangs_on;
mod load;
mod measured;
mod metric;
mod other_machine;
mod own;
mod pool;
mod ranges;
mod results;
mod tally;
mod testbed;
mod text;
mod watch;

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};
use weft_sim::machine::CostTable;

pub use calibrate::{Calibrated, FITS, Fit};
pub use control::{Control, MustBe};
pub use error::ExperimentError;
pub use estimate::estimate;
pub use hangs_on::{Dependence, HangsOn};
pub use load::{
    Amount, Dbench, Dd, Dirty, Fio, Isolated, Load, Mixed, Part, Pattern, Readers, Size, Tiobench,
    Where,
};
pub use measured::{Beyond, Measured, Side};
pub use metric::Metric;
pub use other_machine::OtherMachine;
pub use own::{Answer, OwnPolicy, Quantity};
pub(crate) use pool::deal;
pub use ranges::{Circumstance, Ranged};
pub use results::{Results, ResultsError};
pub use tally::{Counts, NO_VERDICTS, Tally};
pub use text::{Assumed, Case, ClaimKind, Column, Published, PublishedRow};
pub use watch::{Inside, Series, TICK, Totals};

use crate::statistics::Estimate;
use testbed::Testbed;
use text::Text;

/// Texts of the experiments that weft has, in the order of their patch numbers.
const TEXTS: &[&str] = &[
    include_str!("../../../../experiments/000.toml"),
    include_str!("../../../../experiments/001.toml"),
    include_str!("../../../../experiments/002.toml"),
    include_str!("../../../../experiments/003.toml"),
    include_str!("../../../../experiments/004.toml"),
];

/// Patch numbers, each with the change that the patch makes, in at most 28 letters: a column of
/// `weft reproduce` has room for so many.
const ABOUT: &[(&str, &str)] = &[
    ("000", "RAID 5: full stripes first"),
    ("001", "throttled writers only sleep"),
    ("002", "one flush serves all waiting"),
    ("003", "BFQ: no merging on SSDs"),
    ("004", "4 KiB stripes, 64 KiB pages"),
];

/// A published experiment: its text, and the rows to be run.
#[derive(Clone, Debug)]
pub struct Experiment {
    text: Text,
    /// Row for which the controls are run, even if a filter removed it from the rows.
    control: PublishedRow,
    /// Rows that parameters are fitted to, even if a filter removed them from the rows.
    fitted: Vec<PublishedRow>,
    costs: CostTable,
    /// Lines of TOML that replace keys of the drive's model, under an alternative to an assumption.
    drive: String,
    /// SHA-256 of the text of the experiment, in hexadecimal digits.
    pub hash: String,
    /// Text of the experiment, as read.
    source: String,
    /// Name of the file that the text was read from.
    origin: String,
}

/// Number and size of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Number of runs of each column; two at least.
    pub runs: u64,
    /// Seed of the first run; run `r`, counted from 0, has the seed `seed + r`.
    pub seed: u64,
    /// Amount of work of each run; limits and caches do not depend on it.
    pub size: Size,
}

/// Results of all runs of an experiment.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Published rows, in the order of the text.
    pub rows: Vec<Measured>,
    /// Comparisons beside the rows, without a published figure and without a claim.
    pub beside: Vec<Measured>,
    /// Judgements of weft's own policies, by every quantity that the patch was to improve.
    pub own_policies: Vec<OwnPolicy>,
    /// Cases, in the order of the text, without those that no row needs.
    pub cases: Vec<CaseRuns>,
}

/// Results of all runs of a case.
#[derive(Clone, Debug)]
pub struct CaseRuns {
    /// Name of the case, by which rows refer to it.
    pub name: String,
    /// Factor by which the machine's CPU costs are multiplied.
    pub costs_times: u64,
    /// Runs by column, in the order of their seeds.
    pub columns: BTreeMap<String, Vec<Sample>>,
}

/// Result of a run: metrics and parts.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Values of the metrics, each the mean over the parts.
    pub values: BTreeMap<Metric, f64>,
    /// Parts of the load, in order.
    pub parts: Vec<Part>,
}

/// A part of a run, which one thread carries out.
struct Job {
    testbed: Testbed,
    load: Load,
    size: Size,
    part: usize,
    /// Sample that the part belongs to: index of its case, name of its column, number of its run.
    of: (usize, String, u64),
}

/// Runs all rows of some experiments, on as many threads as there are CPUs, and returns the outcome
/// of each experiment. Calls the progress function after each job with the number of jobs done and
/// the number of all jobs.
///
/// # Errors
/// An experiment cannot be run as written.
///
/// # Panics
/// A run panics.
pub fn run_all(
    experiments: &[Experiment],
    effort: Effort,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Vec<Outcome>, ExperimentError> {
    let mut jobs = Vec::new();
    let mut counts = Vec::new();
    for known in experiments {
        let of_it = known.jobs(effort)?;
        counts.push(of_it.len());
        jobs.extend(of_it);
    }
    let parts = pool::deal(&jobs, progress, |job| job.load.run(&job.testbed, job.size, job.part));
    let mut found = jobs.into_iter().zip(parts);
    let outcomes = experiments.iter().zip(counts);
    outcomes.map(|(known, count)| known.outcome(found.by_ref().take(count).collect())).collect()
}

impl Experiment {
    /// Experiments that weft has, by patch.
    ///
    /// # Errors
    /// The text of an experiment is not valid; a test reads all of them.
    pub fn all() -> Result<Vec<Self>, ExperimentError> {
        TEXTS.iter().map(|text| Self::of(text)).collect()
    }

    /// The experiment with this patch number or name, such as `000` or `priority`.
    ///
    /// # Errors
    /// No experiment has the name.
    pub fn named(name: &str) -> Result<Self, ExperimentError> {
        let all = Self::all()?;
        let expected: Vec<String> =
            all.iter().map(|known| format!("{} ({})", known.patch(), known.name())).collect();
        all.into_iter().find(|known| known.patch() == name || known.name() == name).ok_or_else(
            || ExperimentError::Name { found: name.into(), expected: expected.join(", ") },
        )
    }

    /// Parses the TOML text of an experiment.
    ///
    /// # Errors
    /// The text is not TOML, does not have the form of an experiment, or cannot be run as written.
    pub fn of(text: &str) -> Result<Self, ExperimentError> {
        let hash = crate::text::hex(&Sha256::digest(text));
        let source = text.to_owned();
        let wrong = |error: toml::de::Error| ExperimentError::Text(error.to_string().trim().into());
        let text: Text = toml::from_str(&source).map_err(wrong)?;
        bounds::check_values(&toml::Value::Table(source.parse().map_err(wrong)?), "")?;
        bounds::check(&text)?;
        let origin = format!("experiments/{}.toml", text.patch);
        let control = control::row_of(&text)?;
        let costs = costs_of(&text, &text.machine.costs)?;
        let drive = String::new();
        let fitted = Vec::new();
        let mut known = Self { text, control, fitted, costs, drive, hash, source, origin };
        let fitted = known.text.fit.iter().map(|fit| known.row_of(fit).cloned());
        known.fitted = fitted.collect::<Result<_, _>>()?;
        known.check()?;
        Ok(known)
    }

    /// Number of the patch, such as `000`.
    #[must_use]
    pub fn patch(&self) -> &str {
        &self.text.patch
    }

    /// Name of the patch, such as `priority`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.text.name
    }

    /// The change that the patch makes, in a few words; empty for a patch number that none of
    /// weft's own experiments has.
    #[must_use]
    pub fn about(&self) -> &'static str {
        ABOUT.iter().find(|(patch, _)| *patch == self.text.patch).map_or("", |(_, about)| about)
    }

    /// Text of the experiment, which may be edited and read again by [`Experiment::from_file`].
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// File that the experiment comes from, as a user would name it.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Hardware and software of the published measurement.
    #[must_use]
    pub fn published_by(&self) -> &str {
        &self.text.published_by
    }

    /// Assumptions of the experiment, in words.
    #[must_use]
    pub fn assumptions(&self) -> &[String] {
        &self.text.assumptions
    }

    /// Keeps only rows that contain `words` in their workload and case, as printed. weft's own
    /// policies are then not judged, because that judgement needs every quantity.
    #[must_use]
    pub fn only(mut self, words: &str) -> Self {
        self.text.own.clear();
        for rows in [&mut self.text.row, &mut self.text.beside] {
            rows.retain(|row| row.to_string().contains(words));
        }
        self
    }

    /// Rows of published figures, in the order of the text.
    #[must_use]
    pub fn rows(&self) -> &[PublishedRow] {
        &self.text.row
    }

    /// Columns of the experiment, by name.
    pub fn columns(&self) -> impl Iterator<Item = (&str, &Column)> {
        self.text.column.iter().map(|(name, column)| (name.as_str(), column))
    }

    /// Cases of the experiment, in the order of the text.
    #[must_use]
    pub fn cases(&self) -> &[Case] {
        &self.text.case
    }

    /// Name of the table of CPU costs, for columns without a table of their own.
    #[must_use]
    pub fn costs(&self) -> &str {
        &self.costs.source
    }

    /// Replaces the table of CPU costs of every column. Fitted parameters keep their values,
    /// although they were fitted with the table that is replaced.
    #[must_use]
    pub fn with_costs(mut self, costs: CostTable) -> Self {
        // Assumptions of the text about its own costs no longer apply.
        self.text.assumptions.retain(|assumption| !assumption.starts_with(OF_COSTS));
        self.text.assumptions.push(format!(
            "{OF_COSTS} what the table {} says, which was asked for; what the text says of the size of figures is of its own.",
            costs.source
        ));
        self.take_costs(costs);
        self
    }

    /// Uses one table of CPU costs for the machine and every column.
    fn take_costs(&mut self, costs: CostTable) {
        self.text.column.values_mut().for_each(|column| column.costs = None);
        self.costs = costs;
    }

    /// Runs all rows: [`run_all`] of this experiment.
    ///
    /// # Errors
    /// The experiment cannot be run as written.
    ///
    /// # Panics
    /// A run panics.
    pub fn run(
        &self,
        effort: Effort,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<Outcome, ExperimentError> {
        let mut outcomes = run_all(std::slice::from_ref(self), effort, progress)?;
        Ok(outcomes.remove(0))
    }

    /// Outcome of the experiment, from the results of its jobs.
    fn outcome(&self, found: Vec<(Job, Part)>) -> Result<Outcome, ExperimentError> {
        let mut cases: BTreeMap<usize, CaseRuns> = BTreeMap::new();
        let mut found = found.into_iter().peekable();
        while let Some((job, part)) = found.next() {
            let mut parts = vec![part];
            while let Some((_, part)) = found.next_if(|(next, _)| next.of == job.of) {
                parts.push(part);
            }
            let (number, column, _) = job.of;
            let case = &self.text.case[number];
            let runs = cases.entry(number).or_insert_with(|| CaseRuns {
                name: case.name.clone(),
                costs_times: case.costs_times,
                columns: BTreeMap::new(),
            });
            runs.columns.entry(column).or_default().push(Sample::of(parts));
        }
        let cases: Vec<CaseRuns> = cases.into_values().collect();
        let measured = |rows: &[PublishedRow]| -> Result<Vec<Measured>, ExperimentError> {
            let measured = |row: &PublishedRow| -> Result<Measured, ExperimentError> {
                let not_met = self.not_met(row, &cases)?;
                not_met.iter().try_fold(Measured::of(row, &cases)?, |measured, why| {
                    Ok(measured.not_calibrated(why))
                })
            };
            rows.iter().map(measured).collect()
        };
        let (rows, beside) = (measured(&self.text.row)?, measured(&self.text.beside)?);
        Ok(Outcome { rows, beside, own_policies: self.own_policies(&cases)?, cases })
    }

    /// Descriptions of a baseline of `row` that was fitted to a published figure and does not
    /// reproduce it in these runs; empty if there is no such baseline.
    fn not_met(
        &self,
        row: &PublishedRow,
        cases: &[CaseRuns],
    ) -> Result<Vec<String>, ExperimentError> {
        let mut not_met = Vec::new();
        for fitted in &self.fitted {
            let Some(case) = cases.iter().find(|case| case.name == fitted.of) else { continue };
            let Some(published) = fitted.published.baseline else { continue };
            if (&row.of, &row.baseline) != (&fitted.of, &fitted.baseline) {
                continue;
            }
            let mean = measured::side(case, &fitted.baseline, fitted.metric)?.mean;
            let Estimate { value, low, high, .. } = mean;
            if !Fit::is_met(published, &mean) {
                not_met.push(format!(
                    "the baseline is fitted to {published:.1} {}, and is {value:.1} \
                     ({low:.1}…{high:.1}) in these runs",
                    fitted.metric.unit()
                ));
            }
        }
        Ok(not_met)
    }

    /// Jobs that the rows need, each once. Parts of a sample follow each other.
    fn jobs(&self, effort: Effort) -> Result<Vec<Job>, ExperimentError> {
        let hardware = self.hardware()?;
        let needed: BTreeSet<(&str, &str)> =
            self.compared().flat_map(PublishedRow::needs).collect();
        let mut jobs = Vec::new();
        for (number, case) in self.text.case.iter().enumerate() {
            for (name, column) in &self.text.column {
                if !needed.contains(&(case.name.as_str(), name.as_str())) {
                    continue;
                }
                let testbed = Testbed::new(&self.text, &hardware, case, column, &[])?;
                for run in 0..effort.runs {
                    let testbed = testbed.with_seed(effort.seed.wrapping_add(run));
                    jobs.extend((0..case.load.parts(effort.size)).map(|part| Job {
                        testbed: testbed.clone(),
                        load: case.load.clone(),
                        size: effort.size,
                        part,
                        of: (number, name.clone(), run),
                    }));
                }
            }
        }
        Ok(jobs)
    }

    /// All rows: the rows with a claim, and the rows without a claim that are shown beside them.
    fn compared(&self) -> impl Iterator<Item = &PublishedRow> {
        self.text.row.iter().chain(&self.text.beside)
    }

    /// Case that is run for a row.
    fn case_of(&self, row: &PublishedRow) -> &Case {
        let case = self.text.case.iter().find(|case| case.name == row.of);
        case.expect("a text names only cases that it has")
    }

    /// Parameters of a run of `column` in `case` as JSON, except its seed.
    fn parameters(&self, case: &str, column: &str) -> Result<serde_json::Value, ExperimentError> {
        let case = self.text.case.iter().find(|of| of.name == case);
        let case = case.expect("a text names only cases that it has");
        let testbed =
            Testbed::new(&self.text, &self.hardware()?, case, &self.text.column[column], &[])?;
        Ok(testbed.to_json(case))
    }

    /// Checks that every name in the text is defined, and that everything can be run.
    fn check(&self) -> Result<(), ExperimentError> {
        let text = &self.text;
        let hardware = self.hardware()?;
        let cases: Vec<&str> = text.case.iter().map(|case| case.name.as_str()).collect();
        let columns: Vec<&str> = text.column.keys().map(String::as_str).collect();
        let named = |field, found: &str, known: &[&str]| {
            if known.contains(&found) {
                return Ok(());
            }
            let (patch, expected) = (text.patch.clone(), known.join(", "));
            Err(ExperimentError::Unknown { patch, field, found: found.into(), expected })
        };
        for row in self.compared() {
            for (case, column) in row.needs() {
                named("row.of", case, &cases)?;
                named("row.baseline", column, &columns)?;
            }
            for case in text.case.iter().filter(|case| row.needs().any(|(of, _)| of == case.name)) {
                let metrics = case.load.metrics();
                if !metrics.contains(&row.metric) {
                    let expected: Vec<_> = metrics.iter().map(|metric| metric.name()).collect();
                    return Err(ExperimentError::Metric {
                        patch: text.patch.clone(),
                        row: row.to_string(),
                        metric: row.metric.name(),
                        expected: expected.join(", "),
                    });
                }
            }
        }
        for own in &text.own {
            named("own.column", &own.column, &columns)?;
            for column in &own.against {
                named("own.against", column, &columns)?;
            }
        }
        for column in text.chosen.iter().flat_map(|chosen| &chosen.columns) {
            named("chosen.columns", column, &columns)?;
        }
        for other in &text.circumstance {
            self.under(other)?.hardware()?;
        }
        named("control.patched", &text.control.patched, &columns)?;
        for case in &text.case {
            for column in text.column.values() {
                for on_top in [&[][..], &text.control.off] {
                    Testbed::new(text, &hardware, case, column, on_top)?;
                }
            }
        }
        Ok(())
    }
}

/// Ratio of patched to baseline as a function of CPU costs. Each point of the curve is the ratio of
/// one row.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Name of the curve, by which rows refer to it.
    pub name: String,
    /// Multiples of the machine's costs, each with the ratio at these costs, in ascending order.
    pub points: Vec<(u64, Estimate)>,
    /// Multiple of the costs from which the ratio is below 1, interpolated linearly between two
    /// points; `None` if the ratio is below 1 at no point.
    pub below_one_from: Option<f64>,
    /// Whether the ratio falls from each point to the next.
    pub falls: bool,
}

impl Outcome {
    /// Whether all rows have enough runs for verdicts.
    #[must_use]
    pub fn is_judged(&self) -> bool {
        self.rows.iter().all(|row| row.verdict().is_some())
    }

    /// The row that sums up the patch: the first row that claims a count of cases, else the first
    /// row with a published figure, else the first row. `None` without rows.
    #[must_use]
    pub fn headline(&self) -> Option<&Measured> {
        let count = self.rows.iter().find(|measured| measured.row.kind == ClaimKind::Count);
        let figure = || self.rows.iter().find(|measured| measured.row.is_figure());
        count.or_else(figure).or(self.rows.first())
    }

    /// Rows that have a reason ([`Measured::reason`]), with the reason.
    pub fn reasons(&self) -> impl Iterator<Item = (&PublishedRow, String)> {
        let reasons = self.rows.iter().map(|measured| (&measured.row, measured.reason()));
        reasons.filter(|(_, reason)| !reason.is_empty())
    }

    /// Rows that have a note, each with its note, also of the comparisons beside the rows.
    pub fn notes(&self) -> impl Iterator<Item = (&PublishedRow, &str)> {
        let rows = self.rows.iter().chain(&self.beside).map(|measured| &measured.row);
        rows.filter(|row| !row.note.is_empty()).map(|row| (row, row.note.as_str()))
    }

    /// Rows in which weft's own column was run, each with the results of that column: published
    /// rows, and comparisons of throughput beside them.
    pub fn own(&self) -> impl Iterator<Item = (&Measured, &Beyond)> {
        let beside = self.beside.iter().filter(|row| row.row.metric == Metric::Throughput);
        self.rows.iter().chain(beside).filter_map(|row| Some((row, row.beyond.as_ref()?)))
    }

    /// The row, among the rows of [`Outcome::own`] with a single case, in which weft's own column
    /// does worst. The column is compared with the better of baseline and patched, by the
    /// unfavourable end of the interval. `None` if [`Outcome::own`] has fewer than two rows, or
    /// none with a single case.
    #[must_use]
    pub fn worst_own(&self) -> Option<(&Measured, &Beyond)> {
        self.own().nth(1)?;
        let worst = |row: &Measured, own: &Beyond| row.row.metric.gain(own.to_better.1).low;
        let single = self.own().filter(|(row, _)| row.row.cases().count() == 1);
        single.min_by(|one, other| worst(one.0, one.1).total_cmp(&worst(other.0, other.1)))
    }

    /// Curves over CPU costs, made of the rows that are their points.
    #[must_use]
    pub fn curves(&self) -> Vec<Curve> {
        let mut curves: BTreeMap<&str, Vec<(u64, Estimate)>> = BTreeMap::new();
        for measured in self.rows.iter().chain(&self.beside) {
            if let Some(name) = &measured.row.curve {
                curves.entry(name).or_default().push((measured.costs_times, measured.ratio));
            }
        }
        curves.into_iter().map(|(name, points)| Curve::of(name, points)).collect()
    }
}

impl Curve {
    fn of(name: &str, mut points: Vec<(u64, Estimate)>) -> Self {
        points.sort_by_key(|(times, _)| *times);
        let falls = points.windows(2).all(|two| two[1].1.value < two[0].1.value);
        let first = points.first().filter(|(_, ratio)| ratio.value < 1.0).map(|(at, _)| *at as f64);
        let crossing = points.windows(2).find_map(|two| {
            let [(x0, from), (x1, to)] = [two[0], two[1]];
            let (x0, x1, from, to) = (x0 as f64, x1 as f64, from.value, to.value);
            (from >= 1.0 && to < 1.0).then(|| x0 + (x1 - x0) * (from - 1.0) / (from - to))
        });
        Self { name: name.to_owned(), points, below_one_from: first.or(crossing), falls }
    }
}

impl CaseRuns {
    /// The runs of a column; empty if no row needs them.
    #[must_use]
    pub fn column(&self, name: &str) -> &[Sample] {
        self.columns.get(name).map_or(&[], Vec::as_slice)
    }

    /// Mean of a metric over the runs of a column; `None` if no run has the metric.
    #[must_use]
    pub fn mean(&self, column: &str, metric: Metric) -> Option<f64> {
        let values: Vec<f64> = self
            .column(column)
            .iter()
            .filter_map(|sample| sample.values.get(&metric).copied())
            .collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }

    /// Number of runs, over all columns, that had not settled when they reached their longest time.
    #[must_use]
    pub fn unsettled(&self) -> usize {
        let samples = self.columns.values().flatten();
        samples.filter(|sample| !sample.settled()).count()
    }
}

impl Sample {
    fn of(parts: Vec<Part>) -> Self {
        let mut values: BTreeMap<Metric, f64> = BTreeMap::new();
        for part in &parts {
            for (metric, value) in &part.values {
                *values.entry(*metric).or_default() += value / parts.len() as f64;
            }
        }
        Self { values, parts }
    }

    /// Whether the measured time of every part was stationary. Parts of a load that ends by itself,
    /// for which this is not known, do not count.
    #[must_use]
    pub fn settled(&self) -> bool {
        self.parts.iter().all(|part| part.settled != Some(false))
    }
}

/// The CPU cost table `name`. Fails if there is no such table; the error names the experiment of
/// `text`.
fn costs_of(text: &Text, name: &str) -> Result<CostTable, ExperimentError> {
    CostTable::named(name)
        .map_err(|source| ExperimentError::Costs { patch: text.patch.clone(), source })
}

/// Beginning of the assumptions about CPU costs, by which they are found and replaced.
const OF_COSTS: &str = "CPU work costs";

#[cfg(test)]
mod tests;
