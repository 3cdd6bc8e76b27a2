//! Table and JSON of a benchmark's rows, and its progress bar.
//!
//! Source   reference.md: the schema `weft.bench/1`

use std::io::{self, Write};

use indicatif::ProgressBar;
use serde_json::json;
use weft_bench::{Progress, Sheet, SheetRow};
use weft_terminal::terminal::{self, complain, stdout, style};

/// An empty sheet with a progress bar on the terminal.
pub(super) fn sheet(bench: &'static str) -> Sheet {
    Sheet::new(bench, Box::new(Bar { bench, bar: ProgressBar::hidden() }))
}

/// Progress bar of one benchmark.
struct Bar {
    bench: &'static str,
    bar: ProgressBar,
}

impl Progress for Bar {
    fn expect(&mut self, rows: usize) {
        self.bar = terminal::steps(self.bench, rows as u64);
    }

    fn now(&mut self, case: &str) {
        self.bar.set_message(case.to_owned());
    }

    fn step(&mut self) {
        self.bar.inc(1);
    }

    fn absent(&mut self, what: &str) {
        self.bar.suspend(|| complain(&format!("{}: {what}", self.bench)));
    }

    fn end(&mut self) {
        self.bar.finish_and_clear();
    }
}

pub(super) fn print_json(sheet: &Sheet) -> io::Result<()> {
    let mut value = json!({"schema": "weft.bench/1", "rows": sheet.rows});
    for (name, text) in &sheet.notes {
        value[*name] = json!(text);
    }
    terminal::print_json(&value)
}

pub(super) fn print(sheet: &Sheet) -> io::Result<()> {
    let mut out = stdout();
    let case_width = sheet.rows.iter().map(|row| row.case.chars().count()).max().unwrap_or(0);
    let unit_width = sheet.rows.iter().map(|row| row.unit.chars().count()).max().unwrap_or(0);
    let (bold, plain) = (style::BOLD, style::PLAIN);
    writeln!(
        out,
        "{bold}{:case_width$}  {:>10}  {:>10}  {:unit_width$}  {:>6}  mark{plain}",
        sheet.bench, "weft", "baseline", "", "ratio"
    )?;
    for row in &sheet.rows {
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
            judged(row),
            if name.is_empty() { String::new() } else { format!("  against {name}") },
        )?;
    }
    for (name, text) in &sheet.notes {
        writeln!(out, "{name}: {text}")?;
    }
    out.flush()
}

/// Quartiles, mark and limit of a row as text, with a verdict if the row has a mark or a limit.
fn judged(row: &SheetRow) -> String {
    let mut parts = Vec::new();
    if let Some([low, high]) = row.quartiles {
        parts.push(format!("{} to {}", figure(low), figure(high)));
    }
    if let Some(mark) = row.mark {
        parts.push(format!("≥ {mark:.2}"));
    }
    if let Some(limit) = row.limit {
        parts.push(format!("≤ {}", figure(limit)));
    }
    if row.mark.is_none() && row.limit.is_none() {
        return parts.concat();
    }
    let (colour, word) = if row.is_good() { (style::GREEN, "ok") } else { (style::RED, "BELOW") };
    format!("{} {colour}{word}{}", parts.join(", "), style::PLAIN)
}

/// A number with two decimals, with one from 100 on, and with none from 1000 on or if it is whole:
/// `3.46`, `181.2`, `1048576`, `12`.
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
    fn quartiles_stand_where_a_mark_would() {
        let row = SheetRow {
            bench: "costs",
            case: "turn".to_owned(),
            unit: "ns",
            value: 12.0,
            baseline: None,
            baseline_value: None,
            ratio: None,
            mark: None,
            limit: None,
            quartiles: Some([11.0, 13.0]),
        };
        assert_eq!((judged(&row), row.is_good()), ("11 to 13".to_owned(), true));
        assert_eq!(serde_json::to_value(&row).unwrap()["quartiles"], json!([11.0, 13.0]));
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
