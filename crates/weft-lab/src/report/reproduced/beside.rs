//! Report section: measurements beside the published figures.

use super::super::{Bars, Block, Cell, Group, Table, number};
use super::{Found, runs, value, words};
use crate::experiment::{CaseRuns, Metric, Side};

impl Found<'_> {
    pub(super) fn beside(&self) -> Vec<Block> {
        let loads = self.loads();
        let charts = loads.iter().filter_map(|cases| self.of_columns(cases, Metric::Throughput));
        let beside = self.compared_beside();
        charts
            .map(Block::Bars)
            .chain(beside)
            .chain(self.outcome.cases.iter().map(|case| self.values(case)))
            .collect()
    }

    /// Chart of a metric in some cases, with a bar for each column; `None` if no column has the
    /// metric.
    pub(super) fn of_columns(&self, cases: &[&CaseRuns], metric: Metric) -> Option<Bars> {
        let columns = self.columns();
        let groups: Vec<Group> = cases
            .iter()
            .map(|case| {
                let runs: Vec<Vec<f64>> =
                    columns.iter().map(|column| runs(case, column, metric)).collect();
                Group {
                    label: case.name.clone(),
                    values: runs.iter().map(|runs| value(runs)).collect(),
                    band: None,
                    runs,
                }
            })
            .filter(|group| group.values.iter().any(Option::is_some))
            .collect();
        let names: Vec<&str> = groups.iter().map(|group| group.label.as_str()).collect();
        let title = format!("{}: {}", first_up(&words(metric.name())), names.join(", "));
        (!groups.is_empty()).then(|| Bars {
            title,
            description: String::new(),
            unit: metric.unit().to_owned(),
            series: columns.iter().map(|name| words(name)).collect(),
            reference: None,
            groups,
        })
    }

    /// Table of the comparisons without a published figure; `None` if there are none.
    fn compared_beside(&self) -> Option<Block> {
        let rows = self.outcome.beside.iter().map(|row| {
            let unit = if row.row.against.is_some() { "" } else { row.row.metric.unit() };
            let side =
                |side: &Side| format!("{} {unit} ({})", number(side.mean.value), words(&side.name));
            let own = row.beyond.as_ref().map(|own| &own.side);
            vec![
                Cell::Text(row.row.to_string()),
                Cell::Number(super::figures::gain(&row.ratio)),
                Cell::Number(side(&row.baseline)),
                Cell::Number(side(&row.patched)),
                Cell::Number(own.map_or("–".to_owned(), side)),
            ]
        });
        let columns = ["", "difference [95 %]", "from", "to", "weft's own"];
        (!self.outcome.beside.is_empty()).then(|| {
            Block::Table(Table {
                caption: "Beside it: nothing of this was published".to_owned(),
                columns: columns.map(str::to_owned).to_vec(),
                rows: rows.collect(),
            })
        })
    }

    /// Table of the means of all metrics in a case, for each column that was run.
    fn values(&self, case: &CaseRuns) -> Block {
        let mut columns = self.columns();
        columns.retain(|column| !case.column(column).is_empty());
        let metrics: Vec<Metric> = {
            let samples = case.columns.values().flatten();
            let mut metrics: Vec<Metric> =
                samples.flat_map(|sample| sample.values.keys().copied()).collect();
            metrics.sort_unstable();
            metrics.dedup();
            metrics
        };
        let mut heads = vec![String::new()];
        heads.extend(columns.iter().map(|name| words(name)));
        let rows = metrics.iter().map(|metric| {
            let mut row = vec![Cell::Text(format!("{}, {}", words(metric.name()), metric.unit()))];
            row.extend(columns.iter().map(|column| {
                Cell::Number(case.mean(column, *metric).map_or("–".to_owned(), number))
            }));
            row
        });
        let seconds = case.columns.values().flatten().flat_map(|sample| &sample.parts);
        let seconds = seconds.map(|part| part.seconds).fold(0.0, f64::max);
        let caption = format!("{}, {} s of virtual time at most", case.name, number(seconds));
        Block::Table(Table { caption, columns: heads, rows: rows.collect() })
    }
}

pub(super) fn first_up(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}
