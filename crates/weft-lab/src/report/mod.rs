//! Report: a result as one HTML page with charts.
//!
//! A [`Report`] is plain values; [`Report::html`] renders them as one file, with charts as inline
//! SVG, without scripts and without external resources. Charts are as wide as the page: horizontal
//! positions are percentages and text keeps its size, so a phone shows the same as a large screen.
//! Colours follow the reader's light or dark preference and never carry a meaning alone; each chart
//! has a title, a description, and its numbers in a table below it.

mod bars;
mod compared;
mod html;
mod lines;
mod reproduced;
mod scale;
mod style;
mod sweep;

use crate::statistics::Verdict;

pub use html::BEGIN;
pub use sweep::{Setting, Sweep};

/// A report page: heading, summary, facts and sections.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Heading of the page.
    pub title: String,
    /// One or two sentences that state the result.
    pub summary: String,
    /// Facts by name: seed, runs, hashes, versions.
    pub facts: Vec<(String, String)>,
    /// Sections of the page.
    pub sections: Vec<Section>,
}

/// A part of a page, with a heading.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Section {
    /// Heading of the section.
    pub title: String,
    /// Blocks of the section, in order.
    pub blocks: Vec<Block>,
}

/// A part of a section.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// Values as bars.
    Bars(Bars),
    /// Lines of a command or of a file, as they are.
    Code(String),
    /// Values as lines over an axis.
    Lines(Lines),
    /// List of items, one below the other.
    List(Vec<String>),
    /// A paragraph.
    Text(String),
    /// Rows and columns of cells.
    Table(Table),
}

/// A table with a caption.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Text above the table that says what it shows.
    pub caption: String,
    /// Headings of the columns.
    pub columns: Vec<String>,
    /// Rows of the table, each with as many cells as there are columns.
    pub rows: Vec<Vec<Cell>>,
}

/// A cell of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Words, with a note beneath them.
    Noted(String, String),
    /// A number as text, aligned right.
    Number(String),
    /// Words, aligned left.
    Text(String),
    /// A number with its interval beneath it, if it has one; `None` if nothing was measured.
    Value(Option<Value>),
    /// Verdict of a comparison, as a sign and a word.
    Verdict(Verdict),
}

/// A value with its interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Value {
    /// Value, in the unit that its chart or table states.
    pub value: f64,
    /// Ends of the 95 % interval; `None` if the value has no interval.
    pub interval: Option<(f64, f64)>,
}

impl Value {
    /// A value without an interval.
    #[must_use]
    pub fn exact(value: f64) -> Self {
        Self { value, interval: None }
    }
}

impl From<crate::statistics::Estimate> for Value {
    fn from(estimate: crate::statistics::Estimate) -> Self {
        Self { value: estimate.value, interval: Some((estimate.low, estimate.high)) }
    }
}

/// A chart of horizontal bars, in groups: published beside measured values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bars {
    /// Title of the chart.
    pub title: String,
    /// Description of the chart for screen readers.
    pub description: String,
    /// Unit of the values.
    pub unit: String,
    /// Names of the bars of each group, in order; an empty name stands for a bar that no group has.
    pub series: Vec<String>,
    /// A value to mark across all groups, such as a ratio of 1; `None` for no mark.
    pub reference: Option<f64>,
    /// Groups of bars, from top to bottom.
    pub groups: Vec<Group>,
}

/// Bars of one group, one for each series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// Label of the group.
    pub label: String,
    /// Value of each series; `None` if the series has none.
    pub values: Vec<Option<Value>>,
    /// Band in which the measured value should lie, with its lower and upper end; `None` for no
    /// band.
    pub band: Option<(f64, f64)>,
    /// Values of single runs by series, to be drawn as marks; empty, or shorter than the list of
    /// series, where there is nothing to draw.
    pub runs: Vec<Vec<f64>>,
}

/// A chart of lines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lines {
    /// Title of the chart.
    pub title: String,
    /// Description of the chart for screen readers.
    pub description: String,
    /// Label of the horizontal axis, with its unit.
    pub across: String,
    /// Label of the vertical axis, with its unit.
    pub up: String,
    /// Scale of the horizontal axis.
    pub axis: Axis,
    /// Whether the vertical axis is logarithmic; all values are then above 0.
    pub logarithmic: bool,
    /// Whether the first line is the baseline of the others: it is then grey, as in bars.
    pub baseline: bool,
    /// Values to mark on the vertical axis across the whole plot, such as published values.
    pub marks: Vec<Mark>,
    /// Lines of the chart; their order determines their colours.
    pub series: Vec<Series>,
}

/// A value that a chart marks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mark {
    /// Value at which the mark lies on the axis.
    pub value: f64,
    /// Text of the mark.
    pub label: String,
}

/// Scale of an axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Axis {
    /// Names at equal distances; their places are 0, 1, ….
    Names(Vec<String>),
    /// Numbers on a linear scale.
    #[default]
    Linear,
    /// Numbers on a scale of powers of two; all are above 0.
    Doubling,
}

/// A line of a chart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Name of the line, for the legend.
    pub name: String,
    /// Points of the line from left to right, each with its place on the horizontal axis. A line
    /// without any points is left out, but no other line takes its colour.
    pub points: Vec<(f64, Value)>,
}

impl Report {
    /// HTML of the whole page.
    ///
    /// ```
    /// use weft_lab::report::{Block, Report, Section};
    /// let text = Block::Text("4 KiB < 64 KiB".to_owned());
    /// let section = Section { title: "Sizes".to_owned(), blocks: vec![text] };
    /// let page = Report { title: "A & B".to_owned(), sections: vec![section], ..Report::default() }.html();
    /// assert!(page.contains("<h1>A &amp; B</h1>") && page.contains("4 KiB &lt; 64 KiB"));
    /// ```
    #[must_use]
    pub fn html(&self) -> String {
        html::page(self)
    }
}

/// A number as text for readers, with about four significant digits; all digits before the decimal
/// point are kept. A dash for a value that is not finite.
#[must_use]
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let size = value.abs();
    let decimals = match size {
        _ if size >= 1000.0 || size == 0.0 => 0,
        _ if size >= 100.0 => 1,
        _ if size >= 10.0 => 2,
        _ if size >= 0.1 => 3,
        _ if size >= 0.000_1 => 5,
        _ => return format!("{value:.2e}"),
    };
    let text = format!("{value:.decimals$}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    };
    group_digits(&text)
}

/// Separates groups of three digits by thin spaces, in numbers above 9999, and replaces a hyphen
/// before the number by a minus sign.
fn group_digits(text: &str) -> String {
    let (sign, rest) = text.strip_prefix('-').map_or(("", text), |rest| ("\u{2212}", rest));
    let (whole, decimals) = rest.split_once('.').map_or((rest, None), |(w, d)| (w, Some(d)));
    let mut grouped = String::from(sign);
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) && whole.len() > 4 {
            grouped.push('\u{202f}');
        }
        grouped.push(digit);
    }
    if let Some(decimals) = decimals {
        grouped.push('.');
        grouped.push_str(decimals);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_have_the_digits_that_count() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (1.33, "1.33"),
            (-1.5, "\u{2212}1.5"),
            (0.987_65, "0.988"),
            (61.234, "61.23"),
            (307.799, "307.8"),
            (9999.4, "9999"),
            (1_234_567.8, "1\u{202f}234\u{202f}568"),
            (0.000_44, "0.00044"),
            (1e-9, "1.00e-9"),
            (f64::NAN, "–"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
