//! Report charts of dirty pages under a limit: pools, disks and writers' waits, without and with
//! the patch.
//!
//! Charts over time show one run of each column. A case has such charts if the experiment's text
//! has a comparison without a published figure for the case, in a metric other than throughput; the
//! charts show the columns of this comparison. A table has the fairness and the longest wait of
//! every case.

use weft_sim::workload::dirty_limit::{Measured as Pool, Sample};

use super::super::{Axis, Block, Cell, Lines, Mark, Series, Table, Value, number};
use super::{Found, words};
use crate::experiment::{CaseRuns, Measured, Metric};

/// Largest number of points of a line. A line of more points, which fluctuates, is unreadable on a
/// page.
const POINTS_MAX: usize = 120;

/// Number of pages of 4 KiB in a MiB.
const OF_MIB: f64 = 256.0;

/// First run of a column, with its dirty pages and disks over time.
struct Run<'a> {
    column: String,
    pool: &'a Pool,
    /// Start of the measured time, in seconds.
    from: f64,
}

impl Found<'_> {
    pub(super) fn dirty(&self) -> Vec<Block> {
        let mut drawn: Vec<&str> = Vec::new();
        let mut blocks: Vec<Block> = self.waits_of_all().into_iter().collect();
        for row in &self.outcome.beside {
            let name = row.row.of.as_str();
            if row.row.metric == Metric::Throughput || drawn.contains(&name) {
                continue;
            }
            drawn.push(name);
            let case = self.outcome.cases.iter().find(|case| case.name == name);
            blocks.extend(case.map_or(Vec::new(), |case| charts(name, &runs(case, row))));
        }
        blocks
    }

    /// Table of the fairness and the longest wait of the writers, in every case; `None` if no case
    /// has dirty pages.
    fn waits_of_all(&self) -> Option<Block> {
        let all = self.outcome.cases.iter();
        let cases: Vec<_> = all.filter(|case| has_pool(case)).collect();
        let columns = self.columns();
        let rows = cases.iter().map(|case| {
            let cells = columns.iter().map(|column| {
                let of = |metric| case.mean(column, metric);
                let told = of(Metric::Fairness).zip(of(Metric::PauseMax));
                let told = told.map(|(jain, ms)| format!("{} · {} ms", number(jain), number(ms)));
                Cell::Number(told.unwrap_or("–".to_owned()))
            });
            std::iter::once(Cell::Text(case.name.clone())).chain(cells).collect()
        });
        let heads = columns.iter().map(|column| words(column));
        let columns = std::iter::once(String::new()).chain(heads).collect();
        let caption = "Fairness among equal writers (Jain's index) · a writer's longest wait";
        let table = Table { caption: caption.to_owned(), columns, rows: rows.collect() };
        (!cases.is_empty()).then_some(Block::Table(table))
    }
}

fn has_pool(case: &CaseRuns) -> bool {
    let mut parts = case.columns.values().flatten().flat_map(|sample| &sample.parts);
    parts.any(|part| part.pool.is_some())
}

/// First run of each column of the comparison `row`.
fn runs<'a>(case: &'a CaseRuns, row: &Measured) -> Vec<Run<'a>> {
    let columns = [Some(&row.row.baseline), Some(&row.row.patched), row.row.beyond.as_ref()];
    let runs = columns.into_iter().flatten().filter_map(|column| {
        let part = case.column(column).first()?.parts.first()?;
        let pool = part.pool.as_deref()?;
        let all = pool.samples.last().map_or(0.0, |sample| seconds(sample.at.0));
        Some(Run { column: words(column), pool, from: all - part.seconds })
    });
    runs.collect()
}

fn charts(case: &str, runs: &[Run<'_>]) -> Vec<Block> {
    let Some(first) = runs.first() else { return Vec::new() };
    let pages = |pages: u64| pages as f64 / OF_MIB;
    let marks = [("limit", first.pool.limit), ("setpoint of the patch", first.pool.setpoint())];
    let marks = marks.map(|(name, at)| Mark {
        value: pages(at),
        label: format!("{name}: {} MiB", number(pages(at))),
    });
    let dirty = Lines {
        title: format!("Dirty pages: {case}"),
        description: "Dirty and under writeback, of all disks. One run of each column.".to_owned(),
        up: "MiB".to_owned(),
        marks: marks.to_vec(),
        ..over_time(runs, |samples| mean(samples, |sample| pages(sample.all.total())))
    };
    let busy = Lines {
        title: format!("Disks that have work: {case}"),
        description: "Part of the time in which a disk has a request, in the mean of the disks."
            .to_owned(),
        up: "%".to_owned(),
        ..over_time(runs, |samples| {
            mean(samples, |sample| {
                sample.busy.iter().sum::<f64>() / sample.busy.len() as f64 * 100.0
            })
        })
    };
    let longest = Lines {
        title: format!("Longest wait of any writer: {case}"),
        description: "Of waits that ended since the point before.".to_owned(),
        up: "milliseconds".to_owned(),
        ..over_time(runs, |samples| {
            let longest = samples.iter().map(|sample| sample.pause_max.0).max();
            longest.unwrap_or(0) as f64 / 1e6
        })
    };
    let several = first.pool.idle.len() > 1;
    let by_disk = several.then(|| by_disk(case, runs));
    let lines = [dirty].into_iter().chain(by_disk).chain([busy, longest, waits(case, runs)]);
    let some = |lines: &Lines| lines.series.iter().any(|line| !line.points.is_empty());
    lines.filter(some).map(Block::Lines).collect()
}

/// Chart of a value over time, with a line for each run; `of` computes the value of a point from
/// the samples that the point stands for.
fn over_time(runs: &[Run<'_>], of: impl Fn(&[Sample]) -> f64) -> Lines {
    let series = runs.iter().map(|run| {
        let samples = &run.pool.samples;
        let together = samples.chunks(samples.len().div_ceil(POINTS_MAX).max(1));
        let points = together.map(|some| {
            let at = some.last().map_or(0, |sample| sample.at.0);
            (seconds(at), Value::exact(of(some)))
        });
        Series { name: run.column.clone(), points: points.collect() }
    });
    Lines {
        across: "seconds".to_owned(),
        baseline: true,
        series: series.collect(),
        ..Lines::default()
    }
}

/// Chart of the pages of each disk that are dirty or under writeback: the mean over time, with the
/// 5 % and the 95 % quantile.
fn by_disk(case: &str, runs: &[Run<'_>]) -> Lines {
    let count = runs.iter().map(|run| run.pool.idle.len()).max().unwrap_or(0);
    let series = runs.iter().map(|run| {
        let points = (0..run.pool.idle.len()).filter_map(|disk| {
            let counted = run.pool.samples.iter().filter(|sample| seconds(sample.at.0) >= run.from);
            let mut pages: Vec<u64> = counted.map(|sample| sample.disks[disk]).collect();
            pages.sort_unstable();
            let at = |permille: usize| {
                let rank = pages.len().saturating_sub(1) * permille / 1000;
                Some(*pages.get(rank)? as f64 / OF_MIB)
            };
            let value = pages.iter().sum::<u64>() as f64 / pages.len() as f64 / OF_MIB;
            Some((disk as f64, Value { value, interval: Some((at(50)?, at(950)?)) }))
        });
        Series { name: run.column.clone(), points: points.collect() }
    });
    Lines {
        title: format!("Pools of the disks: {case}"),
        description:
            "Dirty pages and pages under writeback of each disk: the mean of the time that \
                      is counted, and between what they were nine tenths of it."
                .to_owned(),
        across: "disk".to_owned(),
        up: "MiB".to_owned(),
        axis: Axis::Names((1..=count).map(|disk| disk.to_string()).collect()),
        baseline: true,
        series: series.collect(),
        ..Lines::default()
    }
}

/// Chart of the waits of a few writers (the first four): quantiles of their lengths.
fn waits(case: &str, runs: &[Run<'_>]) -> Lines {
    let ends = [("50 %", 500), ("90 %", 900), ("99 %", 990), ("longest", 1000)];
    let series = runs.iter().map(|run| {
        let counted = run.pool.pauses.iter().filter(|pause| seconds(pause.at.0) >= run.from);
        let mut waits: Vec<u64> = counted.map(|pause| pause.length.0).collect();
        waits.sort_unstable();
        let points = ends.iter().enumerate().filter_map(|(at, (_, permille))| {
            let rank = (waits.len() * permille).div_ceil(1000).max(1) - 1;
            // A logarithmic scale has no 0.
            let wait = waits.get(rank).filter(|wait| **wait > 0)?;
            Some((at as f64, Value::exact(*wait as f64 / 1e6)))
        });
        let count = number(waits.len() as f64);
        Series { name: format!("{} ({count})", run.column), points: points.collect() }
    });
    Lines {
        title: format!("How long writers waited: {case}"),
        description:
            "Of the first four writers; in brackets how many waits they had. So many of a \
                      hundred were no longer."
                .to_owned(),
        across: "of waits".to_owned(),
        up: "milliseconds".to_owned(),
        axis: Axis::Names(ends.iter().map(|(name, _)| (*name).to_owned()).collect()),
        logarithmic: true,
        baseline: true,
        series: series.collect(),
        ..Lines::default()
    }
}

fn mean(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> f64 {
    samples.iter().map(of).sum::<f64>() / samples.len() as f64
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}
