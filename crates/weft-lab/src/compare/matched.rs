//! Matching of cases across sets: means, changes against the first set, means of groups.
//!
//! Runs of a case in one set that have equal seeds, or equal bytes, are copies of one run and count
//! once: copies have no scatter, and would make any change look certain. A single run has no
//! interval, so the comparison cannot say whether its change exceeds the scatter of runs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::change::Change;
use super::find::Kind;
use super::{By, CompareError, Field, Run, Sets};
use crate::statistics::{
    Estimate, Sides, deviation, gain_percent, geometric_mean, mean_ratio, sampled_ratio,
};

/// Runs of one case in one set, with their values of the compared metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Value of the metric in each run, in the order of seeds; runs without seeds are in the order
    /// of their paths.
    pub values: Vec<f64>,
    /// Arithmetic mean of `values`.
    pub mean: f64,
    /// Standard deviation of `values`, in percent of the mean; `None` for a single run, and if the
    /// mean is 0.
    pub spread_percent: Option<f64>,
    /// Seeds of the runs; empty unless every run has one.
    pub(super) seeds: Vec<u64>,
}

/// A case, compared across the sets.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Name of the case.
    pub case: String,
    /// Name of the group to which the case belongs; empty for a case without a folder.
    pub group: String,
    /// Runs of the case, set by set; `None` for a set without a run of the case.
    pub cells: Vec<Option<Cell>>,
    /// Change of the case from the first set to each set; `None` for the first set itself, and if
    /// one of the two sets has no run of the case.
    pub changes: Vec<Option<Change>>,
}

/// Group of cases, with the geometric mean of their changes in each set.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Name of the group.
    pub name: String,
    /// Geometric mean of the changes, set by set; `None` if no case has a ratio to the first set.
    pub changes: Vec<Option<GroupChange>>,
}

/// Geometric mean of the changes of a group's cases, from the first set to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupChange {
    /// The mean change, in percent.
    pub percent: f64,
    /// Number of cases that the mean is over.
    pub cases: usize,
    /// 95 % interval of the mean in percent; `None` for a single case without an interval of its
    /// own.
    pub interval: Option<(f64, f64)>,
    /// Whether the interval follows from the scatter of the runs of every case. Otherwise it
    /// follows from the scatter of the cases.
    pub is_by_runs: bool,
}

/// A run that does not count, because it is a copy of another run of its case in the same set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copies {
    /// Name of the set.
    pub set: String,
    /// Path of the run that counts.
    pub counts: PathBuf,
    /// Path of the copy, which does not count.
    pub copy: PathBuf,
    /// Seed that both runs have; `None` if the runs are copies because their bytes are equal.
    pub seed: Option<u64>,
    /// Whether both runs have the same results.
    pub is_same: bool,
}

/// Order of cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// By name, as the script compare.rb sorts.
    #[default]
    Case,
    /// By the change of the last set, largest decrease first.
    Change,
    /// By the mean of the first set, smallest first.
    Value,
}

/// Selection and order of the cases that are shown.
#[derive(Clone, Debug, Default)]
pub struct Select {
    /// Parts of names: a case is shown if its name contains one of these; all cases if empty.
    pub only: Vec<String>,
    /// Least change, up or down, in percent, that some set must have for a case to be shown; `None`
    /// for no limit.
    pub at_least: Option<f64>,
    /// Whether only cases that every set has are shown.
    pub common: bool,
    /// Order of the cases.
    pub order: Order,
    /// Whether the order is reversed.
    pub reverse: bool,
    /// Field of the names of run folders by which cases are grouped; `None` groups by folder.
    pub group: Option<Field>,
}

/// Sets compared case by case.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Name of the metric that is compared.
    pub metric: String,
    /// Criterion that runs are divided into sets by.
    pub by: By,
    /// Name of each set and the number of its runs that have the metric; the first set is the base.
    pub sets: Vec<(String, usize)>,
    /// Cases that are shown, in the order that [`Select`] gives.
    pub rows: Vec<Row>,
    /// The groups of cases, by name; the mean of all cases comes last.
    pub groups: Vec<Group>,
    /// Runs that are copies of another run of their case, and do not count.
    pub copies: Vec<Copies>,
}

impl Comparison {
    /// Compares the sets by a metric.
    ///
    /// # Errors
    /// No run has the metric, no case is in two sets, or `select` leaves no case.
    pub fn of(sets: &Sets, metric: &str, select: &Select) -> Result<Self, CompareError> {
        let metric = sets.metric(metric)?.to_owned();
        let mut cases: BTreeMap<&str, Vec<Vec<&Run>>> = BTreeMap::new();
        let (mut counts, mut copies) = (Vec::new(), Vec::new());
        for (index, set) in sets.sets.iter().enumerate() {
            let having = set.runs.iter().filter(|(_, run)| run.values.contains_key(&metric));
            let mut count = 0;
            for (case, run) in having {
                let of_case =
                    cases.entry(case).or_insert_with(|| vec![Vec::new(); sets.sets.len()]);
                let known = &mut of_case[index];
                if let Some(other) = known.iter().find(|other| run.is_copy_of(other)) {
                    copies.push(Copies {
                        set: set.name.clone(),
                        counts: other.path.clone(),
                        copy: run.path.clone(),
                        seed: run.seed.filter(|_| run.seed == other.seed),
                        is_same: run.values == other.values,
                    });
                    continue;
                }
                known.push(run);
                count += 1;
            }
            counts.push((set.name.clone(), count));
        }
        let in_two =
            |runs: &&Vec<Vec<&Run>>| runs.iter().filter(|runs| !runs.is_empty()).count() > 1;
        if !cases.values().any(|runs| in_two(&runs)) {
            return Err(no_common_case(sets, &metric));
        }
        let mut rows: Vec<Row> =
            cases.into_iter().map(|(case, runs)| row(case, &runs, &metric, select.group)).collect();
        filter(&mut rows, select)?;
        sort(&mut rows, select);
        let groups = groups(&rows, sets.sets.len());
        Ok(Self { metric, by: sets.by, sets: counts, rows, groups, copies })
    }

    /// Number of missing cells: pairs of a shown case and a set that has no run of it.
    #[must_use]
    pub fn missing_count(&self) -> usize {
        self.rows.iter().flat_map(|row| &row.cells).filter(|cell| cell.is_none()).count()
    }

    /// Whether any case has several runs in one set.
    #[must_use]
    pub fn has_repeats(&self) -> bool {
        let mut cells = self.rows.iter().flat_map(|row| &row.cells).flatten();
        cells.any(|cell| cell.values.len() > 1)
    }
}

fn no_common_case(sets: &Sets, metric: &str) -> CompareError {
    let examples = sets.sets.iter().map(|set| {
        let case = set.runs.iter().find(|(_, run)| run.values.contains_key(metric));
        case.map_or_else(
            || format!("{} has no {metric}", set.name),
            |(case, _)| format!("{} has {case}", set.name),
        )
    });
    CompareError::NoCommonCase { examples: examples.collect() }
}

fn row(case: &str, runs: &[Vec<&Run>], metric: &str, group: Option<Field>) -> Row {
    let cells: Vec<Option<Cell>> = runs.iter().map(|runs| cell(runs, metric)).collect();
    let changes = (0..cells.len()).map(|set| {
        let base = cells[0].as_ref().filter(|_| set > 0)?;
        Some(Change::between(base, cells[set].as_ref()?))
    });
    let first = runs.iter().flatten().next();
    let group = match (group, first.map(|run| &run.kind)) {
        (Some(field), Some(Kind::Vmstat { name: Some(name), .. })) => name.field(field).to_owned(),
        (Some(_), _) => "others".to_owned(),
        (None, _) => case.rsplit_once('/').map_or(String::new(), |(folder, _)| folder.to_owned()),
    };
    Row { case: case.to_owned(), group, changes: changes.collect(), cells }
}

fn cell(runs: &[&Run], metric: &str) -> Option<Cell> {
    let mut runs: Vec<&Run> = runs.to_vec();
    runs.sort_by_key(|run| run.seed);
    let values: Vec<f64> = runs.iter().map(|run| run.values[metric]).collect();
    if values.is_empty() {
        return None;
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let spread = deviation(&values).ok().filter(|_| mean != 0.0);
    let seeds: Option<Vec<u64>> = runs.iter().map(|run| run.seed).collect();
    Some(Cell {
        spread_percent: spread.map(|spread| spread / mean.abs() * 100.0),
        seeds: seeds.unwrap_or_default(),
        values,
        mean,
    })
}

/// Removes the rows that `select` does not ask for. Fails if no row is left.
fn filter(rows: &mut Vec<Row>, select: &Select) -> Result<(), CompareError> {
    let left = |rows: &[Row], option: String, before: &(usize, String)| {
        let (count, example) = before.clone();
        if rows.is_empty() {
            Err(CompareError::Filtered { option, count, example })
        } else {
            Ok(())
        }
    };
    let before = (rows.len(), rows.first().map_or(String::new(), |row| row.case.clone()));
    if !select.only.is_empty() {
        rows.retain(|row| select.only.iter().any(|words| row.case.contains(words)));
        left(rows, format!("--only {}", select.only.join(" ")), &before)?;
    }
    if select.common {
        rows.retain(|row| row.cells.iter().all(Option::is_some));
        left(rows, "--common".to_owned(), &before)?;
    }
    if let Some(least) = select.at_least {
        let far = |change: &Change| change.rank().abs() >= least;
        rows.retain(|row| row.changes.iter().flatten().any(far));
        left(rows, format!("--at-least {least}"), &before)?;
    }
    Ok(())
}

/// Sorts rows, which come in order of name, by the key of `select`; rows without a key come last.
fn sort(rows: &mut [Row], select: &Select) {
    let key = |row: &Row| match select.order {
        Order::Case => None,
        Order::Change => row.changes.last().copied().flatten().map(|change| change.rank()),
        Order::Value => row.cells[0].as_ref().map(|cell| cell.mean),
    };
    rows.sort_by(|a, b| {
        let order = match (key(a), key(b)) {
            (Some(a), Some(b)) => a.total_cmp(&b),
            (None, None) => a.case.cmp(&b.case),
            (a, b) => return b.is_some().cmp(&a.is_some()),
        };
        if select.reverse { order.reverse() } else { order }
    });
}

/// The mean change of each group, if there are several groups, and of all cases.
fn groups(rows: &[Row], sets: usize) -> Vec<Group> {
    let mut named: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        named.entry(&row.group).or_default().push(row);
    }
    let of = |name: &str, rows: &[&Row]| Group {
        name: name.to_owned(),
        changes: (0..sets).map(|set| group_change(rows, set)).collect(),
    };
    let mut groups: Vec<Group> = Vec::new();
    if named.len() > 1 {
        groups.extend(named.iter().map(|(name, rows)| of(name, rows)));
    }
    groups.push(of("all cases", &rows.iter().collect::<Vec<_>>()));
    groups
}

/// Mean change of cases from the first set to the set with index `set`. Cases without a ratio to
/// the first set do not count; `None` if no case has a ratio.
fn group_change(rows: &[&Row], set: usize) -> Option<GroupChange> {
    let (mut ratios, mut runs): (Vec<f64>, Vec<Sides<'_>>) = (Vec::new(), Vec::new());
    for row in rows {
        let Some(ratio) = row.changes[set].and_then(|change| change.ratio()) else { continue };
        ratios.push(ratio);
        if let (Some(base), Some(other)) = (&row.cells[0], &row.cells[set]) {
            runs.push(base.sides(other));
        }
    }
    let by_runs = mean_ratio(&runs).ok();
    let of = by_runs.or_else(|| sampled_ratio(&ratios).ok());
    Some(GroupChange {
        percent: gain_percent(geometric_mean(&ratios).ok()?),
        cases: ratios.len(),
        interval: of.map(|Estimate { low, high, .. }| (gain_percent(low), gain_percent(high))),
        is_by_runs: by_runs.is_some(),
    })
}
