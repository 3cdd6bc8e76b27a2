//! Sheet of a benchmark: its rows, and their limits.
//!
//! A row may have a *mark*, the least acceptable ratio of weft's figure to that of the baseline,
//! and a *limit*, the largest acceptable figure.
//!
//! Source   reference.md: the schema `weft.bench/1`

use serde::Serialize;

use crate::rounds::{median, median_ratio, quartiles};

/// A row of a benchmark: weft's figure in one case, beside that of a baseline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SheetRow {
    /// Name of the benchmark.
    pub bench: &'static str,
    /// Case that was measured.
    pub case: String,
    /// Unit of `value`.
    pub unit: &'static str,
    /// Median of weft's figure over the rounds.
    pub value: f64,
    /// Name of the baseline; `None` if weft is measured alone.
    pub baseline: Option<String>,
    /// Median of the baseline over the rounds; `None` without a baseline.
    pub baseline_value: Option<f64>,
    /// Median over the rounds of the ratio to the baseline; above 1 is better for weft. `None`
    /// without a baseline, and if the ratio is not finite.
    pub ratio: Option<f64>,
    /// Least acceptable ratio; `None` if the row is reported for comparison only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark: Option<f64>,
    /// Largest acceptable `value`; `None` for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<f64>,
    /// First and third quartile over the rounds; `None` if they are not reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quartiles: Option<[f64; 2]>,
}

impl SheetRow {
    /// A row in which more is better, from the figures of all rounds and those of a baseline, if
    /// any.
    pub(crate) fn faster(
        case: impl Into<String>,
        unit: &'static str,
        figures: &[f64],
        baseline: Option<(&str, &[f64])>,
    ) -> Self {
        let ratio = baseline.map(|(_, other)| median_ratio(figures, other));
        Self::new(case.into(), unit, figures, baseline, ratio)
    }

    /// A row in which less is better, from the figures of all rounds and those of a baseline, if
    /// any.
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
            // A ratio of 0 to 0 does not exist, and JSON has no infinity.
            ratio: ratio.filter(|ratio| ratio.is_finite()),
            mark: None,
            limit: None,
            quartiles: None,
        }
    }

    /// Sets the ratio that this row must reach; `None` for no such ratio.
    pub(crate) fn mark(self, mark: impl Into<Option<f64>>) -> Self {
        Self { mark: mark.into(), ..self }
    }

    /// Sets the value that this row must not exceed; `None` for no such limit.
    pub(crate) fn limit(self, limit: impl Into<Option<f64>>) -> Self {
        Self { limit: limit.into(), ..self }
    }

    /// Adds the quartiles of `figures`, which are those of all rounds.
    pub(crate) fn with_quartiles(self, figures: &[f64]) -> Self {
        Self { quartiles: Some(quartiles(figures)), ..self }
    }

    /// Whether the row reaches its mark and does not exceed its limit. A row with neither is good,
    /// and a mark is ignored in a row without a ratio.
    #[must_use]
    pub fn is_good(&self) -> bool {
        let reached = self.mark.zip(self.ratio).is_none_or(|(mark, ratio)| ratio >= mark);
        reached && self.limit.is_none_or(|limit| self.value <= limit)
    }
}

/// Observer of a running benchmark.
pub trait Progress {
    /// Called when `rows` more rows are expected.
    fn expect(&mut self, rows: usize);
    /// Called when the measurement of a case begins.
    fn now(&mut self, case: &str);
    /// Called when an expected row is done.
    fn step(&mut self);
    /// Called when a baseline, or another requirement of some rows, is missing; `what` names it and
    /// says why or how to provide it.
    fn absent(&mut self, what: &str);
    /// Called when the benchmark ends.
    fn end(&mut self);
}

/// Rows of one benchmark.
pub struct Sheet {
    /// Name of the benchmark.
    pub bench: &'static str,
    /// Rows so far.
    pub rows: Vec<SheetRow>,
    /// Notes about all rows: name and text.
    pub notes: Vec<(&'static str, String)>,
    progress: Box<dyn Progress>,
}

impl Sheet {
    /// A sheet without rows for the benchmark `bench`, which reports its progress to `progress`.
    #[must_use]
    pub fn new(bench: &'static str, progress: Box<dyn Progress>) -> Self {
        Self { bench, rows: Vec::new(), notes: Vec::new(), progress }
    }

    /// Number of rows that miss their mark or exceed their limit.
    #[must_use]
    pub fn below_mark(&self) -> usize {
        self.rows.iter().filter(|row| !row.is_good()).count()
    }

    /// Reports the end of the benchmark to the progress observer.
    pub fn end(&mut self) {
        self.progress.end();
    }

    /// Reports to the progress observer that `rows` more rows are expected.
    pub(crate) fn expect(&mut self, rows: usize) {
        self.progress.expect(rows);
    }

    /// Reports the case that is about to be measured to the progress observer.
    pub(crate) fn now(&mut self, case: &str) {
        self.progress.now(case);
    }

    /// Adds a row.
    pub(crate) fn push(&mut self, row: SheetRow) {
        self.rows.push(SheetRow { bench: self.bench, ..row });
        self.step();
    }

    /// Reports an expected row as done to the progress observer, without adding a row to the sheet.
    pub(crate) fn step(&mut self) {
        self.progress.step();
    }

    /// Adds a note about all rows.
    pub(crate) fn note(&mut self, name: &'static str, text: impl Into<String>) {
        self.notes.push((name, text.into()));
    }

    /// Reports to the progress observer that a baseline, or another requirement of some rows, is
    /// missing; `what` names it and says why or how to provide it.
    pub(crate) fn absent(&mut self, what: &str) {
        self.progress.absent(what);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    struct Unwatched;

    impl Progress for Unwatched {
        fn expect(&mut self, _: usize) {}
        fn now(&mut self, _: &str) {}
        fn step(&mut self) {}
        fn absent(&mut self, _: &str) {}
        fn end(&mut self) {}
    }

    #[test]
    fn json_of_a_row_has_the_promised_names() {
        let other = [50.0, 60.0, 70.0];
        let mut sheet = Sheet::new("parity", Box::new(Unwatched));
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
            let mut sheet = Sheet::new("test", Box::new(Unwatched));
            sheet.push(row);
            assert_eq!(sheet.below_mark(), below, "{:?}", sheet.rows);
        }
    }

    #[test]
    fn nothing_against_nothing_is_no_ratio() {
        let row = SheetRow::fewer("reads", "requests", &[0.0], Some(("md", &[0.0])));
        assert_eq!((row.ratio, row.baseline_value), (None, Some(0.0)));
        assert!(row.mark(1.0).is_good());
    }

    #[test]
    fn quartiles_are_told_where_they_are_asked_for() {
        let row = SheetRow::fewer("turn", "ns", &[12.0], None).with_quartiles(&[14.0, 10.0, 12.0]);
        assert_eq!(serde_json::to_value(&row).unwrap()["quartiles"], json!([11.0, 13.0]));
    }
}
