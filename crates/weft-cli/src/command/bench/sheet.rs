//! What does a benchmark tell, to people and to scripts?
//!
//! Source   cli.md, "Experiments": the schema `weft.bench/1`

use std::io::Write;

use indicatif::ProgressBar;
use serde::Serialize;
use serde_json::json;

use super::rounds::{median, median_ratio, quartiles};
use crate::terminal::{self, complain, stdout, style};

/// One comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct SheetRow {
    /// Which benchmark.
    bench: &'static str,
    /// What was done.
    case: String,
    /// What `value` counts.
    unit: &'static str,
    /// Of weft.
    value: f64,
    /// What weft was compared with.
    baseline: Option<String>,
    /// The same of the baseline.
    baseline_value: Option<f64>,
    /// Above 1 is better for weft.
    ratio: Option<f64>,
    /// What the ratio must reach.
    #[serde(skip_serializing_if = "Option::is_none")]
    mark: Option<f64>,
    /// What `value` must not exceed.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<f64>,
    /// The quartiles of all rounds, where they are told.
    #[serde(skip_serializing_if = "Option::is_none")]
    quartiles: Option<[f64; 2]>,
}

impl SheetRow {
    /// A row of figures where more is better, over all rounds, against those of a baseline.
    pub(crate) fn faster(
        case: impl Into<String>,
        unit: &'static str,
        figures: &[f64],
        baseline: Option<(&str, &[f64])>,
    ) -> Self {
        let ratio = baseline.map(|(_, other)| median_ratio(figures, other));
        Self::new(case.into(), unit, figures, baseline, ratio)
    }

    /// A row of figures where less is better, over all rounds, against those of a baseline.
    pub(crate) fn fewer(
        case: impl Into<String>,
        unit: &'static str,
        figures: &[f64],
        baseline: Option<(&str, &[f64])>,
    ) -> Self {
        let ratio = baseline.map(|(_, other)| median_ratio(other, figures));
        Self::new(case.into(), unit, figures, baseline, ratio)
    }

    fn new(
        case: String,
        unit: &'static str,
        figures: &[f64],
        baseline: Option<(&str, &[f64])>,
        ratio: Option<f64>,
    ) -> Self {
        Self {
            bench: "",
            case,
            unit,
            value: median(figures),
            baseline: baseline.map(|(name, _)| name.to_owned()),
            baseline_value: baseline.map(|(_, other)| median(other)),
            // Nothing divided by nothing is no ratio, and JSON has no infinity.
            ratio: ratio.filter(|ratio| ratio.is_finite()),
            mark: None,
            limit: None,
            quartiles: None,
        }
    }

    /// The ratio that this row must reach.
    pub(crate) fn mark(self, mark: impl Into<Option<f64>>) -> Self {
        Self { mark: mark.into(), ..self }
    }

    /// The value that this row must not exceed.
    pub(crate) fn limit(self, limit: impl Into<Option<f64>>) -> Self {
        Self { limit: limit.into(), ..self }
    }

    /// Tells how far the rounds lie apart.
    pub(crate) fn with_quartiles(self, figures: &[f64]) -> Self {
        Self { quartiles: Some(quartiles(figures)), ..self }
    }

    /// Whether a row without a ratio has nothing to be judged by, or is as good as it must be.
    fn is_good(&self) -> bool {
        let reached = self.mark.zip(self.ratio).is_none_or(|(mark, ratio)| ratio >= mark);
        reached && self.limit.is_none_or(|limit| self.value <= limit)
    }

    /// What it is judged by, for people.
    fn judged(&self) -> String {
        let mut parts = Vec::new();
        if let Some([low, high]) = self.quartiles {
            parts.push(format!("{} to {}", figure(low), figure(high)));
        }
        if let Some(mark) = self.mark {
            parts.push(format!("≥ {mark:.2}"));
        }
        if let Some(limit) = self.limit {
            parts.push(format!("≤ {}", figure(limit)));
        }
        if self.mark.is_none() && self.limit.is_none() {
            return parts.concat();
        }
        let (colour, word) =
            if self.is_good() { (style::GREEN, "ok") } else { (style::RED, "BELOW") };
        format!("{} {colour}{word}{}", parts.join(", "), style::PLAIN)
    }
}

/// The rows of one benchmark.
#[derive(Debug)]
pub(crate) struct Sheet {
    bench: &'static str,
    rows: Vec<SheetRow>,
    /// What is true of all rows: names and texts.
    notes: Vec<(&'static str, String)>,
    bar: ProgressBar,
}

impl Sheet {
    pub(crate) fn new(bench: &'static str) -> Self {
        Self { bench, rows: Vec::new(), notes: Vec::new(), bar: ProgressBar::hidden() }
    }

    /// How many rows there will be: shows a bar on a terminal.
    pub(crate) fn expect(&mut self, rows: usize) {
        self.bar = terminal::steps(self.bench, rows as u64);
    }

    /// What is measured now.
    pub(crate) fn now(&self, case: &str) {
        self.bar.set_message(case.to_owned());
    }

    /// One row more.
    pub(crate) fn push(&mut self, row: SheetRow) {
        self.rows.push(SheetRow { bench: self.bench, ..row });
        self.step();
    }

    /// One step more of those that are expected, where they are not rows.
    pub(crate) fn step(&mut self) {
        self.bar.inc(1);
    }

    /// Says what is true of all rows.
    pub(crate) fn note(&mut self, name: &'static str, text: impl Into<String>) {
        self.notes.push((name, text.into()));
    }

    /// Says on standard error what is missing, and how to get it.
    pub(crate) fn absent(&self, what: &str) {
        self.bar.suspend(|| complain(&format!("bench {}: {what}", self.bench)));
    }

    /// Nothing more is measured.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }

    pub(crate) fn below_mark(&self) -> usize {
        self.rows.iter().filter(|row| !row.is_good()).count()
    }

    pub(crate) fn print_json(&self) -> std::io::Result<()> {
        let mut sheet = json!({"schema": "weft.bench/1", "rows": self.rows});
        for (name, text) in &self.notes {
            sheet[*name] = json!(text);
        }
        terminal::print_json(&sheet)
    }

    pub(crate) fn print_table(&self) -> std::io::Result<()> {
        let mut out = stdout();
        let case_width = self.rows.iter().map(|row| row.case.chars().count()).max().unwrap_or(0);
        let unit_width = self.rows.iter().map(|row| row.unit.chars().count()).max().unwrap_or(0);
        let (bold, plain) = (style::BOLD, style::PLAIN);
        writeln!(
            out,
            "{bold}{:case_width$}  {:>10}  {:>10}  {:unit_width$}  {:>6}  mark{plain}",
            self.bench, "weft", "baseline", "", "ratio"
        )?;
        for row in &self.rows {
            let baseline = row.baseline_value.map_or_else(|| "-".to_owned(), figure);
            let ratio = row.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
            let name = row.baseline.as_deref().unwrap_or("");
            writeln!(
                out,
                "{:case_width$}  {:>10}  {:>10}  {:unit_width$}  {:>6}  {}{}",
                row.case,
                figure(row.value),
                baseline,
                row.unit,
                ratio,
                row.judged(),
                if name.is_empty() { String::new() } else { format!("  against {name}") },
            )?;
        }
        for (name, text) in &self.notes {
            writeln!(out, "{name}: {text}")?;
        }
        out.flush()
    }
}

/// A number with as many digits as say something: `12`, `3.46`, `181`, `1048576`.
fn figure(value: f64) -> String {
    if value.fract() == 0.0 || value.abs() >= 1000.0 {
        format!("{value:.0}")
    } else if value.abs() >= 100.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_of_a_row_has_the_promised_names() {
        let other = [50.0, 60.0, 70.0];
        let mut sheet = Sheet::new("parity");
        sheet.push(SheetRow::faster(
            "xor",
            "GB/s",
            &[100.0, 120.0, 210.0],
            Some(("isa-l", &other)),
        ));
        sheet.push(SheetRow::fewer("writes", "requests", &[10.0], Some(("md", &[15.0]))));
        sheet.push(SheetRow::faster("alone", "GB/s", &[1.0], None));
        assert_eq!(
            serde_json::to_value(&sheet.rows).unwrap(),
            json!([
                {"bench": "parity", "case": "xor", "unit": "GB/s", "value": 120.0,
                 "baseline": "isa-l", "baseline_value": 60.0, "ratio": 2.0},
                {"bench": "parity", "case": "writes", "unit": "requests", "value": 10.0,
                 "baseline": "md", "baseline_value": 15.0, "ratio": 1.5},
                {"bench": "parity", "case": "alone", "unit": "GB/s", "value": 1.0,
                 "baseline": null, "baseline_value": null, "ratio": null},
            ])
        );
    }

    #[test]
    fn rows_below_their_marks_are_counted_and_those_without_a_ratio_are_not() {
        let row = |mark: Option<f64>, limit: Option<f64>, other: Option<f64>| {
            let other = other.map(|other| [other]);
            let baseline = other.as_ref().map(|other| ("other", &other[..]));
            SheetRow::faster("case", "unit", &[10.0], baseline).mark(mark).limit(limit)
        };
        for (row, below) in [
            (row(None, None, Some(20.0)), 0),
            (row(Some(0.5), None, Some(20.0)), 0),
            (row(Some(0.51), None, Some(20.0)), 1),
            (row(Some(2.0), None, None), 0),
            (row(None, Some(10.0), None), 0),
            (row(None, Some(9.0), None), 1),
        ] {
            let mut sheet = Sheet::new("test");
            sheet.push(row);
            assert_eq!(sheet.below_mark(), below, "{:?}", sheet.rows);
        }
    }

    #[test]
    fn quartiles_stand_where_a_mark_would() {
        let row = SheetRow::fewer("turn", "ns", &[12.0], None).with_quartiles(&[14.0, 10.0, 12.0]);
        assert_eq!((row.judged(), row.is_good()), ("11 to 13".to_owned(), true));
        assert_eq!(serde_json::to_value(&row).unwrap()["quartiles"], json!([11.0, 13.0]));
    }

    #[test]
    fn nothing_against_nothing_is_no_ratio() {
        let row = SheetRow::fewer("reads", "requests", &[0.0], Some(("md", &[0.0])));
        assert_eq!((row.ratio, row.baseline_value), (None, Some(0.0)));
        assert!(row.mark(1.0).is_good());
    }

    #[test]
    fn figures_are_short() {
        for (value, text) in
            [(12.0, "12"), (3.456, "3.46"), (181.23, "181.2"), (1_048_576.4, "1048576"), (0.0, "0")]
        {
            assert_eq!(figure(value), text);
        }
    }
}
