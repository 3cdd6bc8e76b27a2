//! Report section: published figures beside measured ones, with verdicts if there are enough runs.

use super::super::{Bars, Block, Cell, Group, Table, Value, number};
use super::beside::first_up;
use super::{Found, words};
use crate::experiment::{Beyond, Measured, NO_VERDICTS};
use crate::statistics::{Band, Estimate, gain_percent};

/// Ratios above this limit have a chart of their own: in one chart they would hide the differences
/// of the smaller ratios.
const LARGE: f64 = 2.5;

impl Found<'_> {
    pub(super) fn figures(&self) -> Vec<Block> {
        let mut blocks = vec![
            Block::Text(format!("Published on: {}.", self.experiment.published_by())),
            self.meaning_of_columns(),
        ];
        let drawn = self.rows().iter().filter(|row| !row.row.exact);
        let (large, small): (Vec<&Measured>, Vec<&Measured>) =
            drawn.partition(|row| largest(row) > LARGE);
        for (rows, title) in [(small, "Published beside measured"), (large, "The larger ones")] {
            if !rows.is_empty() {
                blocks.push(Block::Bars(self.ratios(&rows, title)));
            }
        }
        blocks.push(self.table());
        let legend = self.experiment.legend(self.rows().iter().map(|row| &row.row));
        blocks.extend((!legend.is_empty()).then_some(Block::List(legend)));
        if !self.outcome.is_judged() {
            blocks.push(Block::Text(format!("{}.", first_up(NO_VERDICTS))));
        }
        blocks.extend(self.reasons());
        blocks.extend(self.own());
        blocks.extend(self.of_controls());
        blocks
    }

    fn meaning_of_columns(&self) -> Block {
        let shown = self.columns();
        let about = |name: &&str| {
            let column = self.experiment.columns().find(|(known, _)| known == name);
            column.map(|(_, column)| format!("{}: {}", words(name), column.about))
        };
        Block::List(shown.iter().filter_map(about).collect())
    }

    fn ratios(&self, rows: &[&Measured], title: &str) -> Bars {
        let beyond = rows.iter().find_map(|row| row.beyond.as_ref());
        let mut series = vec!["published".to_owned(), "measured".to_owned()];
        series.extend(beyond.map(|beyond| format!("weft's own: {}", words(&beyond.side.name))));
        Bars {
            title: title.to_owned(),
            description: "Each bar is a ratio of two columns, usually patched to baseline; 1 is no difference. \
                          Measured ones should lie in their band, with the whole interval."
                .to_owned(),
            unit: "ratio".to_owned(),
            series,
            reference: Some(1.0),
            groups: rows.iter().map(|row| group(row)).collect(),
        }
    }

    fn table(&self) -> Block {
        let mut columns = vec![
            "figure",
            "marks",
            "published",
            "measured [95 %]",
            "over what is assumed",
            "band",
            "before → with it",
        ];
        if self.outcome.is_judged() {
            columns.insert(1, "verdict");
        }
        let rows = self.rows().iter().map(|row| {
            let unit = if row.row.against.is_some() { "" } else { row.row.metric.unit() };
            let [before, with] = [&row.baseline, &row.patched].map(|side| number(side.mean.value));
            let published = row.row.published.gain_percent().map_or("–".to_owned(), percent);
            let verdict = row.verdict().map(Cell::Verdict);
            let marks = self.experiment.hangs_on(&row.row).marks();
            let figures = [
                Cell::Text(if marks.is_empty() { "–".to_owned() } else { marks }),
                Cell::Number(published),
                Cell::Number(if row.no_magnitude.is_empty() {
                    gain(&row.ratio)
                } else {
                    "–".to_owned()
                }),
                Cell::Text(row.assumed_words()),
                Cell::Number(band(row.row.band())),
                Cell::Number(format!("{before} → {with} {unit}").trim_end().to_owned()),
            ];
            let name = Cell::Text(row.row.to_string());
            std::iter::once(name).chain(verdict).chain(figures).collect()
        });
        Block::Table(Table {
            caption: "Every figure and claim".to_owned(),
            columns: columns.into_iter().map(str::to_owned).collect(),
            rows: rows.collect(),
        })
    }

    /// Sentences about weft's own columns, and a table that compares them with the better of
    /// baseline and patched. Empty if no row has such a column.
    fn own(&self) -> Vec<Block> {
        let rows: Vec<Vec<Cell>> = self
            .outcome
            .own()
            .map(|(row, beyond)| {
                let (better, to_better) = &beyond.to_better;
                let value = format!("{} {}", number(beyond.side.mean.value), row.row.metric.unit());
                let higher = row.row.metric.higher_is_better();
                vec![
                    Cell::Text(row.row.to_string()),
                    Cell::Text(words(&beyond.side.name)),
                    Cell::Number(value),
                    Cell::Number(gain(to_better)),
                    Cell::Text(format!("{}, the better one", words(better))),
                    Cell::Text(if higher { "more is better" } else { "less is better" }.to_owned()),
                ]
            })
            .collect();
        let columns = ["figure", "weft's own", "measured", "against [95 %]", "which", ""];
        if rows.is_empty() {
            return Vec::new();
        }
        let worst = self.outcome.worst_own().map(|(row, Beyond { to_better, .. })| {
            Block::Text(format!(
                "weft's own, at its worst against the better of before and with it: {}, in {}.",
                gain(&to_better.1),
                row.row
            ))
        });
        let table = Table {
            caption: "weft's own, against the better of before and with it".to_owned(),
            columns: columns.map(str::to_owned).to_vec(),
            rows,
        };
        let judged = self.outcome.own_policies.iter();
        let judged = judged.filter(|policy| !policy.quantities.is_empty());
        let judged = judged.map(|policy| Block::Text(format!("{}.", policy.sentence())));
        worst.into_iter().chain(judged).chain([Block::Table(table)]).collect()
    }

    fn of_controls(&self) -> Option<Block> {
        let rows = self.controls.iter().map(|control| {
            vec![
                Cell::Text(control.name.to_owned()),
                Cell::Text(control.about.clone()),
                Cell::Number(gain(&control.ratio)),
                Cell::Text(control.expected().to_owned()),
                Cell::Text(control.verdict().unwrap_or_default().to_owned()),
            ]
        });
        let columns = ["control", "what", "measured [95 %]", "expected", ""];
        (!self.controls.is_empty()).then(|| {
            Block::Table(Table {
                caption: "Controls: is it the patch that makes the difference?".to_owned(),
                columns: columns.map(str::to_owned).to_vec(),
                rows: rows.collect(),
            })
        })
    }

    fn reasons(&self) -> Vec<Block> {
        let mut points: Vec<String> =
            self.outcome.reasons().map(|(row, reason)| format!("{row}: {reason}")).collect();
        points.extend(self.outcome.cases.iter().filter(|case| case.unsettled() > 0).map(|case| {
            format!(
                "{}: {} runs had not settled after the longest time",
                case.name,
                case.unsettled()
            )
        }));
        let notes: Vec<String> =
            self.outcome.notes().map(|(row, note)| format!("{row}: {note}")).collect();
        let head = match self.outcome.is_judged() {
            true => "Where it does not agree, and why:",
            false => "What has no size, and why:",
        };
        let lists = [(head, points), ("To be known as well:", notes)];
        let lists = lists.into_iter().filter(|(_, points)| !points.is_empty());
        lists
            .flat_map(|(head, points)| [Block::Text(head.to_owned()), Block::List(points)])
            .collect()
    }
}

fn group(row: &Measured) -> Group {
    let published = row.row.published.gain_percent().map(|gain| Value::exact(1.0 + gain / 100.0));
    let beyond = row.beyond.as_ref();
    let mut values = vec![published, Some(row.ratio.into())];
    let mut runs = vec![Vec::new(), pairs(&row.baseline.runs, &row.patched.runs)];
    if let Some(beyond) = beyond {
        values.push(Some(beyond.ratio.into()));
        runs.push(pairs(&row.baseline.runs, &beyond.side.runs));
    }
    let band = match row.row.band() {
        Band::Inside { low, high } => Some((low, high)),
        Band::Above(low) => Some((low, f64::INFINITY)),
        Band::Below(high) => Some((0.0, high)),
    };
    Group { label: row.row.to_string(), values, band, runs }
}

/// Ratio of patched to baseline, run by run.
fn pairs(baseline: &[f64], patched: &[f64]) -> Vec<f64> {
    baseline.iter().zip(patched).map(|(baseline, patched)| patched / baseline).collect()
}

fn largest(row: &Measured) -> f64 {
    let published = row.row.published.gain_percent().map_or(0.0, |gain| 1.0 + gain / 100.0);
    let beyond = row.beyond.as_ref().map_or(0.0, |beyond| beyond.ratio.value);
    published.max(row.ratio.value).max(beyond)
}

fn percent(percent: f64) -> String {
    format!("{} %", points(percent))
}

/// A percentage with its sign and at most one decimal, without the unit.
fn points(percent: f64) -> String {
    let sign = if percent > -0.05 { "+" } else { "\u{2212}" };
    let digits = format!("{:.1}", percent.abs());
    format!("{sign}{}", digits.trim_end_matches(".0"))
}

pub(super) fn gain(ratio: &Estimate) -> String {
    let [value, low, high] =
        [ratio.value, ratio.low, ratio.high].map(|of| points(gain_percent(of)));
    format!("{value} % [{low}, {high}]")
}

fn band(band: Band) -> String {
    let points = |ratio| points(gain_percent(ratio));
    match band {
        Band::Above(1.0) => "a gain".to_owned(),
        Band::Below(1.0) => "a loss".to_owned(),
        Band::Above(low) => format!("above {} %", points(low)),
        Band::Below(high) => format!("below {} %", points(high)),
        Band::Inside { low, high } if low == high => format!("exactly × {}", number(low)),
        Band::Inside { low, high } => format!("{} to {} %", points(low), points(high)),
    }
}
