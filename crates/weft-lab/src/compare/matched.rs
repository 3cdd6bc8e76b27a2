//! Matching of cases across sets: means, changes against the first set, means of groups.
//!
//! A change is the difference of the two means divided by the first one, as the script compare.rb
//! of patch 001 (IO-less dirty throttling) counted it. Its interval is that of the ratio of the
//! runs: paired if both sets have the same seeds, Welch's otherwise. A single run has no interval,
//! so the comparison cannot say whether its change exceeds the scatter of runs.

use std::collections::BTreeMap;

use super::find::Kind;
use super::{By, CompareError, Field, Run, Sets};
use crate::statistics::{Estimate, deviation, gain_percent, geometric_mean, ratio, unpaired_ratio};

/// The runs of a case in a set.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Value of each run, in the order of their seeds or paths.
    pub values: Vec<f64>,
    /// Mean of the runs.
    pub mean: f64,
    /// Standard deviation of the runs, in percent of the mean; `None` for a single run.
    pub spread_percent: Option<f64>,
    /// Seeds of the runs; empty unless every run has one.
    seeds: Vec<u64>,
}

/// The change of a case against the first set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Difference of the means of the two sets, in percent of the mean of the first set.
    pub percent: f64,
    /// 95 % interval of the change in percent, where both sets have several runs.
    pub interval: Option<(f64, f64)>,
    /// Whether the interval is that of pairs: runs with the same seeds.
    pub is_paired: bool,
}

impl Change {
    /// Whether the change is significant: the interval excludes 0 %. `None` if there is no
    /// interval.
    #[must_use]
    pub fn is_sure(&self) -> Option<bool> {
        self.interval.map(|(low, high)| low > 0.0 || high < 0.0)
    }
}

/// A case, compared across the sets.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Name of the case.
    pub case: String,
    /// Name of the group to which the case belongs.
    pub group: String,
    /// Runs of the case by set; `None` is a missing cell.
    pub cells: Vec<Option<Cell>>,
    /// Change of the case against the first set, by set; `None` for the first set itself, and if a
    /// mean is missing or 0.
    pub changes: Vec<Option<Change>>,
}

/// Geometric means of the changes of several cases.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Name of the group.
    pub name: String,
    /// Geometric mean of the changes in percent, and the number of cases that it is over, by set;
    /// `None` if no case has a change.
    pub changes: Vec<Option<(f64, usize)>>,
}

/// Order of cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// By name, as the script compare.rb sorts.
    #[default]
    Case,
    /// By the change of the last set, largest decrease first.
    Change,
    /// By the value of the first set, smallest first.
    Value,
}

/// Selection and order of the cases that are shown.
#[derive(Clone, Debug, Default)]
pub struct Select {
    /// Parts of names: a case is shown if its name contains one of these; all cases if empty.
    pub only: Vec<String>,
    /// Least change, in percent, that some set must show for a case to be shown.
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
}

impl Comparison {
    /// Compares the sets by a metric.
    ///
    /// # Errors
    /// No run has the metric, no case is in two sets, or `select` leaves none.
    pub fn of(sets: &Sets, metric: &str, select: &Select) -> Result<Self, CompareError> {
        let metric = sets.metric(metric)?.to_owned();
        let mut cases: BTreeMap<&str, Vec<Vec<&Run>>> = BTreeMap::new();
        let mut counts = Vec::new();
        for (index, set) in sets.sets.iter().enumerate() {
            let having = set.runs.iter().filter(|(_, run)| run.values.contains_key(&metric));
            let mut count = 0;
            for (case, run) in having {
                let of_case =
                    cases.entry(case).or_insert_with(|| vec![Vec::new(); sets.sets.len()]);
                of_case[index].push(run);
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
        Ok(Self { metric, by: sets.by, sets: counts, rows, groups })
    }

    /// Number of cells without a run.
    #[must_use]
    pub fn missing_count(&self) -> usize {
        self.rows.iter().flat_map(|row| &row.cells).filter(|cell| cell.is_none()).count()
    }

    /// Whether any cell has several runs.
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
        change(base, cells[set].as_ref()?)
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

/// The change from one cell to another; `None` if either mean is 0.
fn change(base: &Cell, other: &Cell) -> Option<Change> {
    if base.mean == 0.0 || other.mean == 0.0 {
        return None;
    }
    let is_paired = !base.seeds.is_empty() && base.seeds == other.seeds;
    let of_runs = if is_paired { ratio } else { unpaired_ratio };
    // Single runs, and runs with a value of 0 or less, have no interval.
    let interval = of_runs(&base.values, &other.values).ok();
    let interval =
        interval.map(|Estimate { low, high, .. }| (gain_percent(low), gain_percent(high)));
    let percent = (other.mean - base.mean) / base.mean.abs() * 100.0;
    Some(Change { percent, interval, is_paired: is_paired && interval.is_some() })
}

/// Removes the rows that `select` does not ask for.
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
        let far = |change: &Change| change.percent.abs() >= least;
        rows.retain(|row| row.changes.iter().flatten().any(far));
        left(rows, format!("--at-least {least}"), &before)?;
    }
    Ok(())
}

/// Sorts rows, which come in order of name, by the key of `select`; rows without a key come last.
fn sort(rows: &mut [Row], select: &Select) {
    let key = |row: &Row| match select.order {
        Order::Case => None,
        Order::Change => row.changes.last().copied().flatten().map(|change| change.percent),
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
    let of = |name: &str, rows: &[&Row]| {
        let change = |set: usize| {
            let ratios = rows.iter().filter_map(|row| {
                let ratio = row.changes[set]?.percent / 100.0 + 1.0;
                (ratio > 0.0).then_some(ratio)
            });
            let ratios: Vec<f64> = ratios.collect();
            Some((gain_percent(geometric_mean(&ratios).ok()?), ratios.len()))
        };
        Group { name: name.to_owned(), changes: (0..sets).map(change).collect() }
    };
    let mut groups: Vec<Group> = Vec::new();
    if named.len() > 1 {
        groups.extend(named.iter().map(|(name, rows)| of(name, rows)));
    }
    groups.push(of("all cases", &rows.iter().collect::<Vec<_>>()));
    groups
}
