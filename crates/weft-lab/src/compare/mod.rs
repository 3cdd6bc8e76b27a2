//! Comparison of sets of runs, case by case.
//!
//! A set is everything below one argument, or all runs of one kernel, as for the script compare.rb
//! of patch 001 (IO-less dirty throttling). A case is identified by the path and the name that runs
//! of several sets have in common. Several runs of a case in one set are repeats: their means are
//! compared, and the interval of the change shows whether the change exceeds their scatter. Runs
//! with the same seeds are pairs; in one set they are one run. A case that only one set has leaves
//! a missing cell; its row stays.
//!
//! | part | file |
//! |---|---|
//! | search for runs | `find.rs` |
//! | formats of results | `formats.rs` |
//! | cases, means, copies, groups | `matched.rs` |
//! | changes and their intervals | `change.rs` |
//!
//! Source   writeback.md §5; experiments.md §4 (3)

mod change;
mod error;
mod find;
mod formats;
mod matched;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use find::Kind;

use crate::experiment::Metric;

pub use crate::run_name::{Field, RunName};
pub use change::Change;
pub use error::CompareError;
pub use find::{Found, Run};
pub use matched::{Cell, Comparison, Copies, Group, GroupChange, Order, Row, Select};

/// Criterion by which runs are divided into sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Each argument is a set.
    Argument,
    /// Each column of an experiment is a set; a column is a way to tune the experiment's machine.
    Column,
    /// Each value of a field of the names of run folders is a set.
    Field(Field),
}

impl By {
    /// All criteria, in the order of the help.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let fields = Field::ALL.into_iter().map(Self::Field);
        [Self::Argument, Self::Column].into_iter().chain(fields).collect()
    }

    /// Name of the criterion on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Argument => "argument",
            Self::Column => "column",
            Self::Field(field) => field.name(),
        }
    }
}

/// A set of runs.
#[derive(Clone, Debug)]
pub struct RunSet {
    /// Name of the set.
    pub name: String,
    /// Runs of the set, each with the name of its case.
    pub runs: Vec<(String, Run)>,
}

/// Sets of runs, and the criterion that divided them.
#[derive(Clone, Debug)]
pub struct Sets {
    /// Criterion that runs are divided into sets by.
    pub by: By,
    /// The sets, in the order in which they were named; the first is the base.
    pub sets: Vec<RunSet>,
    /// Arguments without any run, if other arguments have runs.
    pub empty: Vec<PathBuf>,
}

impl Sets {
    /// Reads the runs below the arguments and divides them into sets. Without `by`, run folders of
    /// several kernels are divided by kernel, and anything else by argument. The set named `base`
    /// comes first; without `base`, the first set found.
    ///
    /// # Errors
    /// A file or folder cannot be read or is not valid, no argument has a run, an argument that is
    /// to be a set has no run, a run lacks the field of `by`, there are fewer than two sets, or no
    /// set is named `base`.
    pub fn read(
        arguments: &[PathBuf],
        by: Option<By>,
        base: Option<&str>,
    ) -> Result<Self, CompareError> {
        let mut found = Vec::new();
        for argument in arguments {
            found.push((argument.as_path(), Found::below(argument)?));
        }
        let by = by.unwrap_or_else(|| likely(&found));
        let empty = found.iter().filter(|(_, found)| found.runs.is_empty());
        let empty: Vec<PathBuf> = empty.map(|(argument, _)| argument.to_path_buf()).collect();
        let first = found.iter().find(|(_, found)| found.runs.is_empty());
        if let Some((path, found_none)) = first
            && (by == By::Argument || empty.len() == found.len())
        {
            let (path, looked_at) = (path.to_path_buf(), found_none.looked_at);
            return Err(CompareError::NoRun { path, looked_at });
        }
        let mut sets = match by {
            By::Argument => of_arguments(found),
            By::Column | By::Field(_) => split(found, by)?,
        };
        if sets.len() < 2 {
            let mut runs = sets.iter().flat_map(|set| &set.runs);
            let is_weft = runs.any(|(_, run)| matches!(run.kind, Kind::Weft { .. }));
            let choices = if is_weft { "column" } else { "kernel, fs, thresh, …" };
            return Err(CompareError::Sets {
                found: sets.into_iter().map(|set| set.name).collect(),
                choices: choices.to_owned(),
            });
        }
        if let Some(name) = base {
            let Some(at) = sets.iter().position(|set| set.name == name) else {
                let known = sets.into_iter().map(|set| set.name).collect();
                return Err(CompareError::Base { name: name.to_owned(), known });
            };
            sets[..=at].rotate_right(1);
        }
        Ok(Self { by, sets, empty })
    }

    /// Every metric that some run has.
    #[must_use]
    pub fn metrics(&self) -> BTreeSet<&str> {
        let runs = self.sets.iter().flat_map(|set| &set.runs);
        runs.flat_map(|(_, run)| run.values.keys().map(String::as_str)).collect()
    }

    /// Default metric of the comparison: the first of `nr_written`, `throughput` and `bw_bytes`
    /// that some run has. If no run has one of them, the first of weft's own metrics that some run
    /// has, or else the first metric by name; `None` if there is no metric.
    #[must_use]
    pub fn default_metric(&self) -> Option<&str> {
        let metrics = self.metrics();
        let usual = USUAL.into_iter().find_map(|name| metrics.get(name).copied());
        let own = metrics.iter().filter_map(|name| Some((Metric::find(name)?, *name)));
        let own = || own.min().map(|(_, name)| name);
        usual.or_else(own).or_else(|| metrics.first().copied())
    }

    /// The metric called `name`, if some run has it.
    ///
    /// # Errors
    /// No run has the metric; the error names the metrics with the most similar names.
    pub fn metric(&self, name: &str) -> Result<&str, CompareError> {
        let metrics = self.metrics();
        metrics.get(name).copied().ok_or_else(|| {
            let likeness = |known: &str| {
                let held = if known.contains(name) { 1.0 } else { 0.0 };
                held + strsim::jaro_winkler(known, name)
            };
            let mut near: Vec<&str> = metrics.iter().copied().collect();
            near.sort_by(|a, b| likeness(b).total_cmp(&likeness(a)).then(a.cmp(b)));
            let near = near.into_iter().take(NEAR_COUNT).map(str::to_owned).collect();
            CompareError::Metric { name: name.to_owned(), near, count: metrics.len() }
        })
    }

    /// Whether a metric is a counter of the kernel read at the end of runs, which counts since
    /// boot.
    #[must_use]
    pub fn counts_since_boot(&self, metric: &str) -> bool {
        let mut runs = self.sets.iter().flat_map(|set| &set.runs);
        runs.any(|(_, run)| {
            let is_snapshot = matches!(run.kind, Kind::Vmstat { .. });
            is_snapshot && run.values.contains_key(metric) && !metric.ends_with(formats::GREW)
        })
    }

    /// Remarks on runs, each with the path of its run.
    pub fn remarks(&self) -> impl Iterator<Item = (&Path, &'static str)> {
        let runs = self.sets.iter().flat_map(|set| &set.runs);
        runs.filter_map(|(_, run)| Some((run.path.as_path(), run.remark?)))
    }
}

/// Whether lower values of a metric are better. Weft's own table decides for its metrics, and words
/// in the name, such as `lat`, for other metrics.
#[must_use]
pub fn lower_is_better(metric: &str) -> bool {
    let words =
        ["lat", "_ns", "pause", "error", "_err", "drop_ios", "short_ios", "cpu", "stddev", "_dev"];
    match Metric::find(metric.rsplit('.').next().unwrap_or(metric)) {
        Some(metric) => !metric.higher_is_better(),
        None => words.iter().any(|word| metric.contains(word)),
    }
}

/// Default metrics of a comparison, in this order: of `/proc/vmstat`, of weft and of fio.
const USUAL: [&str; 3] = ["nr_written", "throughput", "bw_bytes"];

/// Largest number of similar metrics that an error names.
const NEAR_COUNT: usize = 12;

/// Default criterion for sets. If every argument is a single run folder, with a name of the form in
/// `run_name.rs`, and the kernels differ, sets are kernels; otherwise every argument is a set.
fn likely(found: &[(&Path, Found)]) -> By {
    let mut kernels = BTreeSet::new();
    for (_, found) in found.iter().filter(|(_, found)| !found.runs.is_empty()) {
        match &found.runs[..] {
            [Run { below, kind: Kind::Vmstat { name: Some(name), .. }, .. }]
                if below.is_empty() =>
            {
                kernels.insert(name.field(Field::Kernel));
            }
            _ => return By::Argument,
        }
    }
    if kernels.len() > 1 { By::Field(Field::Kernel) } else { By::Argument }
}

/// Makes a set of the runs below each argument.
fn of_arguments(found: Vec<(&Path, Found)>) -> Vec<RunSet> {
    let names = short_names(&found.iter().map(|(argument, _)| *argument).collect::<Vec<_>>());
    // If each set has one kernel, the kernel distinguishes the sets and is left out of the names of
    // cases.
    let one_kernel = found.iter().all(|(_, found)| {
        let kernels = found.runs.iter().filter_map(|run| match &run.kind {
            Kind::Vmstat { name: Some(name), .. } => Some(name.field(Field::Kernel)),
            _ => None,
        });
        kernels.collect::<BTreeSet<_>>().len() <= 1
    });
    let blank = one_kernel.then_some(Field::Kernel);
    let alone = found.iter().all(|(_, found)| {
        matches!(&found.runs[..], [Run { below, kind: Kind::Vmstat { name: None, .. }, .. }] if below.is_empty())
    });
    let sets = names.into_iter().zip(found).map(|(name, (_, found))| {
        let of = |run: Run| {
            // If each argument is a single folder of snapshots without fields in its name, the
            // folders are runs of one case.
            let case = if alone { "run".to_owned() } else { run.case_below(blank) };
            (plain(&case), run)
        };
        RunSet { name: plain(&name), runs: found.runs.into_iter().map(of).collect() }
    });
    sets.collect()
}

/// Divides the runs into sets by a criterion other than the arguments, no matter which argument has
/// them. Fails if a run lacks the field of the criterion.
fn split(found: Vec<(&Path, Found)>, by: By) -> Result<Vec<RunSet>, CompareError> {
    let mut sets: Vec<RunSet> = Vec::new();
    let mut seen = BTreeSet::new();
    for run in found.into_iter().flat_map(|(_, found)| found.runs) {
        // A run that is named twice, by two patterns of the shell for example, counts once.
        if !seen.insert(fs::canonicalize(&run.path).unwrap_or_else(|_| run.path.clone())) {
            continue;
        }
        let (set, case) = match (&run.kind, by) {
            (Kind::Weft { case, column }, By::Column) => (column.clone(), case.clone()),
            (Kind::Vmstat { name: Some(name), .. }, By::Field(field)) => {
                let own = name.without(Some(field));
                let folder = find::named(&run.path).parent();
                let folder = folder.and_then(|folder| match folder.components().next_back() {
                    Some(Component::Normal(name)) => Some(name.to_string_lossy().into_owned()),
                    _ => None,
                });
                let case = folder.map_or(own.clone(), |folder| format!("{folder}/{own}"));
                (name.field(field).to_owned(), case)
            }
            _ => {
                let expected = match by {
                    By::Column => "runs of weft reproduce --results",
                    _ => "folders as xfs-10dd-1M-24p-16384M-100M:10-KERNEL with vmstat-end",
                };
                return Err(CompareError::By { path: run.path, by: by.name(), expected });
            }
        };
        let (set, case) = (plain(&set), plain(&case));
        match sets.iter_mut().find(|known| known.name == set) {
            Some(known) => known.runs.push((case, run)),
            None => sets.push(RunSet { name: set, runs: vec![(case, run)] }),
        }
    }
    Ok(sets)
}

impl Run {
    /// Name of the run's case: its path below the argument, with an X in place of the field `blank`
    /// of a run folder's name.
    fn case_below(&self, blank: Option<Field>) -> String {
        let mut parts = self.below.clone();
        match &self.kind {
            Kind::Fio { job, file } => {
                parts.extend(file.clone());
                parts.push(job.clone());
            }
            Kind::Vmstat { folder, name } => {
                let own = name.as_ref().map_or(folder.clone(), |name| name.without(blank));
                match parts.last_mut() {
                    Some(last) if last == folder => *last = own,
                    // The folder is the argument itself, or a repeat of its parent.
                    Some(_) => {}
                    None => parts.push(own),
                }
            }
            Kind::Weft { case, .. } if parts.is_empty() => parts.push(case.clone()),
            Kind::Weft { .. } => {}
        }
        parts.join("/")
    }
}

/// A name of a file or job with U+FFFD in place of each control character, safe to print.
fn plain(name: &str) -> String {
    name.replace(char::is_control, "\u{fffd}")
}

/// Shortest suffixes of the paths, in whole components, that distinguish them.
fn short_names(paths: &[&Path]) -> Vec<String> {
    let parts: Vec<Vec<String>> = paths
        .iter()
        .map(|path| {
            let parts = path.components().map(|part| part.as_os_str().to_string_lossy());
            parts.map(std::borrow::Cow::into_owned).collect()
        })
        .collect();
    let longest = parts.iter().map(Vec::len).max().unwrap_or(0);
    let names = |count: usize| -> Vec<String> {
        let last = |parts: &Vec<String>| parts[parts.len().saturating_sub(count)..].join("/");
        parts.iter().map(last).collect()
    };
    let apart = |names: &[String]| names.iter().collect::<BTreeSet<_>>().len() == names.len();
    let short = (1..=longest).map(names).find(|names| apart(names));
    short.unwrap_or_else(|| paths.iter().map(|path| path.display().to_string()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_latency_is_better_and_more_of_most_else() {
        for metric in
            ["write.clat_ns.percentile.99", "latency", "dd.flush_max", "usr_cpu", "total_err"]
        {
            assert!(lower_is_better(metric), "{metric}");
        }
        for metric in ["nr_written", "nr_written.run", "bw_bytes", "throughput", "write.iops"] {
            assert!(!lower_is_better(metric), "{metric}");
        }
    }

    #[test]
    fn sets_are_named_by_what_tells_their_paths_apart() {
        for (paths, names) in [
            (["runs/a/", "runs/b"], ["a", "b"]),
            (["old/results", "new/results"], ["old/results", "new/results"]),
            (["a.json", "b.json"], ["a.json", "b.json"]),
            (["same", "same"], ["same", "same"]),
        ] {
            assert_eq!(short_names(&paths.map(Path::new)), names);
        }
    }
}
