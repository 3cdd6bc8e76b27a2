//! Bar charts with intervals and bands, as SVG.

use super::html::{self, drawing, escaped};
use super::scale::Scale;
use super::style::COLOURS;
use super::{Bars, Cell, Group, Table, Value, number};

/// Height of a bar in pixels. The next constants are the heights of the gap after a bar, of a
/// group's label, of the space between groups, and of the axis.
const BAR: f64 = 16.0;
const GAP: f64 = 5.0;
const LABEL: f64 = 21.0;
const BETWEEN: f64 = 14.0;
const AXIS: f64 = 40.0;

/// Distance in pixels between two lines of a label.
const LABEL_LINE: f64 = 16.0;

/// End of the longest bar, in percent of the width; its number is to the right of it.
const LONGEST: f64 = 80.0;

fn height_of(bars: &Bars) -> f64 {
    let groups = bars.groups.iter();
    groups
        .map(|group| label_height(group) + shown(group).count() as f64 * (BAR + GAP) + BETWEEN)
        .sum::<f64>()
        + AXIS
}

/// Breaks a label into lines that fit on a phone: text in SVG does not wrap by itself.
fn label_lines(label: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in label.split(' ') {
        let last = lines.last_mut().expect("there is one");
        if !last.is_empty() && last.chars().count() + 1 + word.chars().count() > LABEL_LETTERS {
            lines.push(word.to_owned());
        } else {
            let space = if last.is_empty() { "" } else { " " };
            last.push_str(space);
            last.push_str(word);
        }
    }
    lines
}

/// Largest number of letters in a line of a label: a font 13 pixels high and about 6.8 wide, on 290
/// pixels.
const LABEL_LETTERS: usize = 42;

fn label_height(group: &Group) -> f64 {
    LABEL + (label_lines(&group.label).len() - 1) as f64 * LABEL_LINE
}

/// The bars of a group that have a value, each with the index of its series.
fn shown(group: &Group) -> impl Iterator<Item = (usize, Value)> + '_ {
    group.values.iter().enumerate().filter_map(|(series, value)| value.map(|value| (series, value)))
}

/// HTML of the whole figure: the drawing as SVG, its legend, and a table of its numbers.
pub(super) fn figure(bars: &Bars, chart: u32) -> String {
    let highest = highest(bars);
    let scale = Scale::new(0.0, highest, 0.0, LONGEST, false);
    let height = height_of(bars);
    let mut svg = drawing(chart, height, &bars.title, &bars.description);
    let bottom = height - AXIS;
    for tick in scale.ticks(5.0) {
        let x = scale.at(tick);
        let anchor = if x == 0.0 { "start" } else { "middle" };
        svg += &format!(
            "<line class=\"grid\" x1=\"{x:.2}%\" x2=\"{x:.2}%\" y1=\"0\" y2=\"{bottom:.1}\"/>\
                 <text class=\"soft\" x=\"{x:.2}%\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>\n",
            bottom + 17.0,
            number(tick)
        );
    }
    svg += &format!(
        "<text class=\"soft\" x=\"{LONGEST}%\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
        bottom + 34.0,
        escaped(&bars.unit)
    );
    let mut y = 0.0;
    for group in &bars.groups {
        let rows = shown(group).count() as f64 * (BAR + GAP);
        if let Some((low, high)) = group.band {
            let (from, to) = (scale.at(low), scale.at(high.min(highest)));
            svg += &format!(
                "<rect class=\"band\" x=\"{from:.2}%\" width=\"{:.2}%\" y=\"{:.1}\" height=\"{:.1}\"/>\n",
                (to - from).max(0.0),
                y + label_height(group) - 2.0,
                rows - GAP + 4.0
            );
        }
        for (line, text) in (0u8..).zip(label_lines(&group.label)) {
            let (y, text) = (y + 14.0 + f64::from(line) * LABEL_LINE, escaped(&text));
            svg += &format!("<text x=\"0\" y=\"{y:.1}\">{text}</text>\n");
        }
        y += label_height(group);
        for (series, value) in shown(group) {
            if value.value.is_finite() {
                let runs = group.runs.get(series).map_or(&[][..], Vec::as_slice);
                svg.push_str(&bar(value, runs, series, y, &scale));
            } else {
                let y = y + BAR - 4.0;
                svg += &format!("<text class=\"soft\" x=\"0\" y=\"{y:.1}\">no number</text>\n");
            }
            y += BAR + GAP;
        }
        y += BETWEEN;
    }
    if let Some(reference) = bars.reference {
        let x = scale.at(reference);
        svg += &format!(
            "<line class=\"mark\" x1=\"{x:.2}%\" x2=\"{x:.2}%\" y1=\"{LABEL}\" y2=\"{bottom:.1}\"/>\n"
        );
    }
    svg.push_str("</svg>\n");
    html::figure(&bars.title, &bars.description, &legend(bars), &svg, &numbers(bars))
}

/// Value at the end of the scale. With few runs an interval may be many times as wide as the
/// values; the scale then cuts it.
fn highest(bars: &Bars) -> f64 {
    let most = |ends: &mut dyn Iterator<Item = f64>| {
        ends.filter(|end| end.is_finite()).fold(0.0, f64::max)
    };
    let values = || bars.groups.iter().flat_map(|group| group.values.iter().flatten());
    let bands = bars.groups.iter().filter_map(|group| group.band.map(|(_, high)| high));
    let runs = bars.groups.iter().flat_map(|group| group.runs.iter().flatten().copied());
    let mut shown =
        values().map(|value| value.value).chain(bands).chain(runs).chain(bars.reference);
    let shown = most(&mut shown);
    let intervals = most(&mut values().filter_map(|value| value.interval.map(|ends| ends.1)));
    shown.max(intervals.min(shown * INTERVAL_MAX))
}

/// Largest end of an interval that the scale still shows, as a multiple of the highest value.
const INTERVAL_MAX: f64 = 1.4;

fn bar(value: Value, runs: &[f64], series: usize, y: f64, scale: &Scale) -> String {
    let width = scale.at(value.value);
    // The interval is drawn above the middle of the bar, single runs below it.
    let (middle, below) = (y + BAR * 0.36, y + BAR * 0.76);
    let mut svg = format!(
        "<rect class=\"f{}\" x=\"0\" width=\"{width:.2}%\" y=\"{y:.1}\" height=\"{BAR}\" rx=\"2\"/>",
        series % COLOURS
    );
    let mut end = width;
    if let Some((low, high)) = value.interval.filter(|(low, high)| low < high) {
        // An end outside the chart has no mark.
        let marked = [low, high].map(|end| scale.holds(end));
        let (low, high) = (scale.at(low), scale.at(high));
        end = end.max(high);
        svg += &format!(
            "<line class=\"whisker\" x1=\"{low:.2}%\" x2=\"{high:.2}%\" y1=\"{middle:.1}\" y2=\"{middle:.1}\"/>"
        );
        for (x, _) in [low, high].into_iter().zip(marked).filter(|end| end.1) {
            svg += &format!(
                "<line class=\"whisker\" x1=\"{x:.2}%\" x2=\"{x:.2}%\" y1=\"{:.1}\" y2=\"{:.1}\"/>",
                middle - 4.0,
                middle + 4.0
            );
        }
    }
    for run in runs.iter().filter(|run| run.is_finite()) {
        let x = scale.at(*run);
        end = end.max(x);
        svg += &format!("<circle class=\"run\" cx=\"{x:.2}%\" cy=\"{below:.1}\" r=\"2.5\"/>");
    }
    svg += &format!(
        "<text x=\"{end:.2}%\" dx=\"7\" y=\"{:.1}\">{}</text>\n",
        y + BAR - 3.5,
        number(value.value)
    );
    svg
}

fn legend(bars: &Bars) -> String {
    let mut html = String::from("<ul class=\"legend\">");
    for (at, name) in bars.series.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
        html += &format!(
            "<li><svg aria-hidden=\"true\"><rect class=\"f{}\" width=\"26\" height=\"12\" rx=\"2\"/></svg>{}</li>",
            at % COLOURS,
            escaped(name)
        );
    }
    if bars.groups.iter().any(|group| group.band.is_some()) {
        html.push_str(
            "<li><svg aria-hidden=\"true\"><rect class=\"band\" width=\"26\" height=\"12\"/></svg>band</li>",
        );
    }
    if bars.groups.iter().any(|g| {
        g.values.iter().flatten().any(|v| v.interval.is_some_and(|(low, high)| low < high))
    }) {
        html.push_str(
            "<li><svg aria-hidden=\"true\"><path class=\"whisker\" d=\"M2 6H24M2 2V10M24 2V10\"/></svg>\
             95 % interval</li>",
        );
    }
    if bars.groups.iter().any(|group| group.runs.iter().any(|runs| !runs.is_empty())) {
        html.push_str(
            "<li><svg aria-hidden=\"true\"><circle class=\"run\" cx=\"13\" cy=\"6\" r=\"2.5\"/></svg>one run</li>",
        );
    }
    html.push_str("</ul>\n");
    html
}

fn numbers(bars: &Bars) -> Table {
    let mut columns = vec!["case".to_owned()];
    // A series without a name does not exist.
    let named = |series: usize| bars.series.get(series).is_none_or(|name| !name.is_empty());
    columns.extend(bars.series.iter().filter(|name| !name.is_empty()).cloned());
    let banded = bars.groups.iter().any(|group| group.band.is_some());
    if banded {
        columns.push("band".to_owned());
    }
    let single = |series: usize| {
        bars.groups.iter().any(|group| group.runs.get(series).is_some_and(|runs| !runs.is_empty()))
    };
    let single: Vec<usize> = (0..bars.series.len()).filter(|series| single(*series)).collect();
    columns.extend(single.iter().map(|series| format!("runs: {}", bars.series[*series])));
    let rows = bars.groups.iter().map(|group| {
        let mut row = vec![Cell::Text(group.label.clone())];
        let values = group.values.iter().enumerate().filter(|(series, _)| named(*series));
        row.extend(values.map(|(_, value)| Cell::Number(told(*value))));
        if banded {
            let band = group.band.map_or("–".to_owned(), |(low, high)| {
                format!("{}–{}", number(low), number(high))
            });
            row.push(Cell::Number(band));
        }
        row.extend(single.iter().map(|series| {
            let runs = group.runs.get(*series).map_or(&[][..], Vec::as_slice);
            let runs: Vec<String> = runs.iter().map(|run| number(*run)).collect();
            Cell::Text(runs.join(" "))
        }));
        row
    });
    Table { caption: bars.unit.clone(), columns, rows: rows.collect() }
}

/// A value with its interval, as text; a dash for `None`.
pub(super) fn told(value: Option<Value>) -> String {
    match value {
        None => "–".to_owned(),
        Some(Value { value, interval: None }) => number(value),
        Some(Value { value, interval: Some((low, high)) }) => {
            format!("{} [{}, {}]", number(value), number(low), number(high))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_breaks_between_words_and_loses_none() {
        for (label, lines) in [
            ("", 1),
            ("dd stripe_cache_size=256", 1),
            ("dd KiB read per MiB written, stripe_cache_size=256", 2),
            (
                "fio 1 MiB write: costs x 4 lose more than none of them would have lost alone, twice",
                2,
            ),
            ("a_word_that_is_longer_than_a_line_has_letters_is_not_broken", 1),
        ] {
            let found = label_lines(label);
            assert_eq!((found.len(), found.join(" ").as_str()), (lines, label));
        }
    }
}
