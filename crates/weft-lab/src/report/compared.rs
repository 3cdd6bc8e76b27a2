//! Report of a comparison: changes by case, means of groups, every value.

use super::{Bars, Block, Cell, Group, Report, Section, Table, Value, number};
use crate::compare::{Change, Comparison, GroupChange, Row};

impl Report {
    /// The page of a comparison of sets of runs, with remarks on it.
    #[must_use]
    pub fn compared(comparison: &Comparison, remarks: &[String]) -> Self {
        let names: Vec<&str> = comparison.sets.iter().map(|(name, _)| name.as_str()).collect();
        let mut facts = vec![("Metric".to_owned(), comparison.metric.clone())];
        for (name, runs) in &comparison.sets {
            facts.push((name.clone(), format!("{runs} runs")));
        }
        let mut sections = vec![
            Section {
                title: "Changes".to_owned(),
                blocks: vec![chart(comparison), rows(comparison)],
            },
            Section {
                title: "Geometric means of changes".to_owned(),
                blocks: vec![means(comparison)],
            },
        ];
        if !remarks.is_empty() {
            let blocks = vec![Block::List(remarks.to_vec())];
            sections.push(Section { title: "Remarks".to_owned(), blocks });
        }
        Self {
            title: format!("{}: {}", names.join(" and "), comparison.metric),
            summary: summary(comparison),
            facts,
            sections,
        }
    }
}

/// Summary with one sentence for each set but the base.
fn summary(comparison: &Comparison) -> String {
    let base = &comparison.sets[0].0;
    let mut sentences = Vec::new();
    for (set, (name, _)) in comparison.sets.iter().enumerate().skip(1) {
        let all = comparison.groups.last().and_then(|group| group.changes[set]);
        if let Some(GroupChange { percent, cases, interval, .. }) = all {
            let interval = interval.map_or(String::new(), interval_text);
            sentences.push(format!(
                "{name} against {base}: {percent:+.1} %{interval} in the geometric mean of {cases} cases."
            ));
        }
    }
    sentences.join(" ")
}

/// Chart of ratios to the base.
fn chart(comparison: &Comparison) -> Block {
    let ratio = |percent: f64| percent / 100.0 + 1.0;
    let bar = |change: &Change| {
        let interval = change.interval.map(|(low, high)| (ratio(low), ratio(high)));
        change.ratio().map(|value| Value { value, interval })
    };
    let of = |row: &Row| Group {
        label: row.case.clone(),
        values: row.changes.iter().map(|change| change.as_ref().and_then(bar)).collect(),
        ..Group::default()
    };
    let has_ratio = |row: &&Row| row.changes.iter().flatten().any(|of| of.ratio().is_some());
    let with_ratio = comparison.rows.iter().filter(has_ratio);
    Block::Bars(Bars {
        title: format!("{} against {}", comparison.metric, comparison.sets[0].0),
        description: "The line is the first set; a bar beyond it is more, one short of it less."
            .to_owned(),
        unit: "times the first set".to_owned(),
        // The first set is the reference line and has no bars.
        series: std::iter::once(String::new())
            .chain(comparison.sets.iter().skip(1).map(|(name, _)| name.clone()))
            .collect(),
        reference: Some(1.0),
        groups: with_ratio.map(of).collect(),
    })
}

fn rows(comparison: &Comparison) -> Block {
    let mut columns = vec!["case".to_owned()];
    for (set, (name, _)) in comparison.sets.iter().enumerate() {
        columns.push(name.clone());
        if set > 0 {
            columns.push(format!("change of {name}"));
        }
    }
    let rows = comparison.rows.iter().map(|row| {
        let mut cells = vec![Cell::Text(row.case.clone())];
        for (set, (cell, change)) in row.cells.iter().zip(&row.changes).enumerate() {
            cells.push(Cell::Number(cell.as_ref().map_or("–".to_owned(), |cell| {
                let spread = cell.spread_percent.map(|spread| format!(" ± {spread:.1} %"));
                format!("{}{}", number(cell.mean), spread.unwrap_or_default())
            })));
            if set > 0 {
                cells.push(Cell::Number(change.as_ref().map_or("–".to_owned(), told)));
            }
        }
        cells
    });
    let caption = "Means and standard deviations of runs; an asterisk: the 95 % interval of the \
                   change leaves 0 out";
    Block::Table(Table { caption: caption.to_owned(), columns, rows: rows.collect() })
}

/// A change as text, with its interval and the mark of its significance.
fn told(change: &Change) -> String {
    let mark = if change.is_sure() == Some(true) { " *" } else { "" };
    match change.percent {
        Some(percent) => {
            format!("{percent:+.1} %{}{mark}", change.interval.map_or(String::new(), interval_text))
        }
        None if change.difference == 0.0 => "+0.0 %".to_owned(),
        None => format!("from 0{mark}"),
    }
}

fn interval_text((low, high): (f64, f64)) -> String {
    format!(" ({low:+.1}…{high:+.1})")
}

fn means(comparison: &Comparison) -> Block {
    let mut columns = vec!["group".to_owned()];
    for (name, _) in comparison.sets.iter().skip(1) {
        columns.extend([name.clone(), "cases".to_owned()]);
    }
    let rows = comparison.groups.iter().map(|group| {
        let name = if group.name.is_empty() { "in no folder" } else { &group.name };
        let mut cells = vec![Cell::Text(name.to_owned())];
        for change in group.changes.iter().skip(1) {
            let (percent, count) = match change {
                Some(GroupChange { percent, cases, interval, .. }) => {
                    let interval = interval.map_or(String::new(), interval_text);
                    (format!("{percent:+.1} %{interval}"), cases.to_string())
                }
                None => ("–".to_owned(), "0".to_owned()),
            };
            cells.extend([Cell::Number(percent), Cell::Number(count)]);
        }
        cells
    });
    Block::Table(Table { caption: String::new(), columns, rows: rows.collect() })
}
