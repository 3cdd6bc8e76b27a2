//! Values that the verdict of a row depends on: assumed ones, and ones that were chosen after
//! results had been seen.
//!
//! A verdict depends on assumptions if the range of the row's gain over other assumed values
//! ([`Assumed`](super::Assumed), from `--ranges`) lies across an edge of the row's band: another
//! value gives another verdict. Where that range was not measured, the dependence is unknown. The
//! text of the experiment lists the values that were chosen after results had been seen
//! ([`Chosen`]), with the cases and columns that have them.

use serde::Deserialize;

use super::Experiment;
use super::text::PublishedRow;
use crate::statistics::Band;

/// A value, or a part of the model, that was chosen after results had been seen.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Chosen {
    /// Description of the value that was chosen, and of the value that it replaced.
    value: String,
    /// Prefix of the names of the cases that use the value; empty for all cases.
    #[serde(default)]
    cases: String,
    /// Columns that use the value; empty for all columns.
    #[serde(default)]
    pub(super) columns: Vec<String>,
}

/// Values that the verdict of a row depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HangsOn<'a> {
    /// Dependence on assumed values.
    pub assumed: Dependence,
    /// Descriptions of the values that were chosen after results had been seen.
    pub chosen: Vec<&'a str>,
}

/// Dependence of a row's verdict on assumed values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependence {
    /// No other assumed value that was tried takes the row across an edge of its band.
    No,
    /// The range of the gain over other assumed values was not measured.
    Unknown,
    /// Another assumed value takes the row across an edge of its band.
    Yes,
}

/// Letters that mark rows in reports, each with its meaning.
const MARKS: [(&str, &str); 3] = [
    ("a", "hangs on an assumed value: with another one the figure crosses an edge of its band"),
    ("u", "its range over other assumed values was not measured"),
    ("c", "hangs on what was chosen after results had been seen"),
];

impl HangsOn<'_> {
    /// Letters that mark the row in reports, such as `a` or `u, c`; empty for a row without a mark.
    #[must_use]
    pub fn marks(&self) -> String {
        let has = |mark: &&str| match *mark {
            "a" => self.assumed == Dependence::Yes,
            "u" => self.assumed == Dependence::Unknown,
            _ => !self.chosen.is_empty(),
        };
        MARKS.map(|(mark, _)| mark).into_iter().filter(has).collect::<Vec<_>>().join(", ")
    }
}

impl Experiment {
    /// Values that the verdict of a row of the experiment depends on.
    #[must_use]
    pub fn hangs_on(&self, row: &PublishedRow) -> HangsOn<'_> {
        let chosen = self.text.chosen.iter().filter(|chosen| {
            let mut cases = row.cases().chain(row.against.as_deref());
            // weft's own column is shown beside the figure and does not count for the row.
            let columns = [&row.baseline, &row.patched];
            let has = |column: &&String| chosen.columns.contains(column);
            cases.any(|case| case.starts_with(&chosen.cases))
                && (chosen.columns.is_empty() || columns.iter().any(has))
        });
        HangsOn { assumed: assumed(row), chosen: chosen.map(|it| it.value.as_str()).collect() }
    }

    /// Lines that explain the marks ([`HangsOn::marks`]) of the rows, one line for each mark that
    /// occurs.
    #[must_use]
    pub fn legend<'a>(&self, rows: impl IntoIterator<Item = &'a PublishedRow>) -> Vec<String> {
        let all: Vec<HangsOn<'_>> = rows.into_iter().map(|row| self.hangs_on(row)).collect();
        let line = |(mark, meaning): (&str, &str)| {
            all.iter().any(|of| of.marks().contains(mark)).then_some(())?;
            let mut line = format!("{mark}: {meaning}");
            if mark == "c" {
                let chosen = self.text.chosen.iter().map(|of| of.value.as_str());
                let chosen = chosen.filter(|value| all.iter().any(|of| of.chosen.contains(value)));
                line += &format!(": {}", chosen.collect::<Vec<_>>().join("; "));
            }
            Some(line)
        };
        MARKS.into_iter().filter_map(line).collect()
    }
}

fn assumed(row: &PublishedRow) -> Dependence {
    // Exact figures follow from the layout alone.
    if row.exact {
        return Dependence::No;
    }
    let Some(assumed) = &row.assumed else { return Dependence::Unknown };
    // A row without a magnitude is judged by its direction.
    let band = match row.has_magnitude() {
        true => row.band(),
        false => row.band().side().unwrap_or_else(|| row.band()),
    };
    let [low, high] = assumed.gain_pct.map(|gain| 1.0 + gain / 100.0);
    let apart = match band {
        Band::Above(least) => high <= least,
        Band::Below(most) => most <= low,
        Band::Inside { low: least, high: most } => high < least || most < low,
    };
    match apart || band.has(low) && band.has(high) {
        true => Dependence::No,
        false => Dependence::Yes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row_of(known: &Experiment, words: &str) -> PublishedRow {
        let row = known.rows().iter().find(|row| row.to_string().contains(words));
        row.unwrap_or_else(|| panic!("{words}")).clone()
    }

    #[test]
    fn a_row_hangs_on_what_is_assumed_if_its_range_crosses_an_edge_of_its_band() {
        let known = Experiment::named("000").unwrap();
        let mut row = row_of(&known, "dd stripe_cache_size=256");
        assert_eq!(row.band(), Band::Inside { low: 1.15, high: 1.55 });
        let mut of = |range: [f64; 2]| {
            row.assumed.as_mut().unwrap().gain_pct = range;
            known.hangs_on(&row).assumed
        };
        assert_eq!(of([8.9, 106.6]), Dependence::Yes);
        assert_eq!(of([20.0, 60.0]), Dependence::Yes);
        assert_eq!(of([15.1, 54.9]), Dependence::No, "inside of the band, whatever is assumed");
        assert_eq!(of([-5.0, 14.0]), Dependence::No, "outside of it, whatever is assumed");
        row.assumed = None;
        assert_eq!(known.hangs_on(&row).assumed, Dependence::Unknown);
        // Without a magnitude the direction counts alone, and an exact row follows from the layout.
        row.no_magnitude = "not calibrated".into();
        for (range, expected) in [([1.0, 10.0], Dependence::No), ([-1.0, 10.0], Dependence::Yes)] {
            row.assumed = Some(super::super::Assumed { gain_pct: range, over: String::new() });
            assert_eq!(known.hangs_on(&row).assumed, expected);
        }
        let exact = Experiment::named("004").unwrap();
        let row = row_of(&exact, "isolated");
        assert_eq!(exact.hangs_on(&row).marks(), "");
        assert_eq!(exact.legend([&row]), [""; 0]);
    }

    #[test]
    fn a_row_is_marked_by_what_was_chosen_for_its_cases_and_columns() {
        let known = Experiment::named("000").unwrap();
        let [dd, mixed] = ["dd stripe_cache_size=256", "mixed"].map(|of| row_of(&known, of));
        let (of_dd, of_mixed) = (known.hangs_on(&dd), known.hangs_on(&mixed));
        assert_eq!((of_dd.marks().as_str(), of_mixed.marks().as_str()), ("a, c", "u, c"));
        assert_eq!((of_dd.chosen.len(), of_mixed.chosen.len()), (2, 3));
        let legend = known.legend([&dd]);
        assert_eq!(legend.len(), 2, "{legend:?}");
        assert!(legend[0].starts_with("a: ") && legend[1].starts_with("c: "), "{legend:?}");
        assert!(legend[1].contains("four times the table") && !legend[1].contains("sync flag"));
        // Only columns with md's costs use the chosen values. weft's own column beside a row does
        // not count for the row.
        let known = Experiment::named("004").unwrap();
        let marks = |words: &str| known.hangs_on(&row_of(&known, words)).marks();
        assert_eq!(marks("dbench 10 clients"), "a, c");
        assert_eq!(marks("1 MiB write, costs x 1"), "u");
        let mut row = row_of(&known, "1 MiB write, costs x 1");
        row.beyond = Some("md_4k".into());
        assert_eq!(known.hangs_on(&row).marks(), "u");
        row.patched = "md_4k".into();
        assert_eq!(known.hangs_on(&row).marks(), "u, c");
    }

    #[test]
    fn a_column_of_what_was_chosen_has_to_exist() {
        let text =
            Experiment::named("004").unwrap().source().replace("\"md_64k\", ", "\"md_65k\", ");
        let error = Experiment::of(&text).unwrap_err().to_string();
        assert!(error.contains("chosen.columns: found \"md_65k\""), "{error}");
    }
}
