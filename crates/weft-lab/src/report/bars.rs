//! How are bars drawn?

use super::html::{self, drawing, escaped, push};
use super::scale::Scale;
use super::{Bars, Cell, Group, Table, Value, number};

/// Height of a bar, of the gap after it, of a group's label, of the space between groups, of the axis.
const BAR: f64 = 16.0;
const GAP: f64 = 5.0;
const LABEL: f64 = 21.0;
const BETWEEN: f64 = 14.0;
const AXIS: f64 = 40.0;

/// Where the longest bar ends, in percent of the width: behind it stands its number.
const LONGEST: f64 = 80.0;

fn height_of(bars: &Bars) -> f64 {
    let groups = bars.groups.iter();
    groups.map(|group| LABEL + shown(group).count() as f64 * (BAR + GAP) + BETWEEN).sum::<f64>()
        + AXIS
}

/// The bars that a group has, with the number of their series.
fn shown(group: &Group) -> impl Iterator<Item = (usize, Value)> + '_ {
    group.values.iter().enumerate().filter_map(|(series, value)| value.map(|value| (series, value)))
}

/// The whole figure.
pub(super) fn figure(bars: &Bars, chart: u32) -> String {
    let highest = bars.groups.iter().flat_map(|group| {
        let values = group.values.iter().flatten();
        let ends = values.flat_map(|v| [v.value, v.interval.map_or(v.value, |(_, high)| high)]);
        ends.chain(group.band.map(|(_, high)| high))
    });
    let highest = highest.chain(bars.reference).filter(|end| end.is_finite()).fold(0.0, f64::max);
    let scale = Scale::new(0.0, highest, 0.0, LONGEST, false);
    let height = height_of(bars);
    let mut svg = drawing(chart, height, &bars.title, &bars.description);
    let bottom = height - AXIS;
    for tick in scale.ticks(5.0) {
        let x = scale.at(tick);
        let anchor = if x == 0.0 { "start" } else { "middle" };
        push(
            &mut svg,
            format_args!(
                "<line class=\"grid\" x1=\"{x:.2}%\" x2=\"{x:.2}%\" y1=\"0\" y2=\"{bottom:.1}\"/>\
                 <text class=\"soft\" x=\"{x:.2}%\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>\n",
                bottom + 17.0,
                number(tick)
            ),
        );
    }
    push(
        &mut svg,
        format_args!(
            "<text class=\"soft\" x=\"{LONGEST}%\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
            bottom + 34.0,
            escaped(&bars.unit)
        ),
    );
    let mut y = 0.0;
    for group in &bars.groups {
        let rows = shown(group).count() as f64 * (BAR + GAP);
        if let Some((low, high)) = group.band {
            let (from, to) = (scale.at(low), scale.at(high.min(highest)));
            push(
                &mut svg,
                format_args!(
                    "<rect class=\"band\" x=\"{from:.2}%\" width=\"{:.2}%\" y=\"{:.1}\" height=\"{:.1}\"/>\n",
                    (to - from).max(0.0),
                    y + LABEL - 2.0,
                    rows - GAP + 4.0
                ),
            );
        }
        let label = escaped(&group.label);
        push(&mut svg, format_args!("<text x=\"0\" y=\"{:.1}\">{label}</text>\n", y + 14.0));
        y += LABEL;
        for (series, value) in shown(group) {
            if value.value.is_finite() {
                svg.push_str(&bar(value, series, y, &scale));
            } else {
                let y = y + BAR - 4.0;
                push(
                    &mut svg,
                    format_args!("<text class=\"soft\" x=\"0\" y=\"{y:.1}\">no number</text>\n"),
                );
            }
            y += BAR + GAP;
        }
        y += BETWEEN;
    }
    if let Some(reference) = bars.reference {
        let x = scale.at(reference);
        push(
            &mut svg,
            format_args!(
                "<line class=\"mark\" x1=\"{x:.2}%\" x2=\"{x:.2}%\" y1=\"{LABEL}\" y2=\"{bottom:.1}\"/>\n"
            ),
        );
    }
    svg.push_str("</svg>\n");
    html::figure(&bars.title, &bars.description, &legend(bars), &svg, &numbers(bars))
}

fn bar(value: Value, series: usize, y: f64, scale: &Scale) -> String {
    let width = scale.at(value.value);
    let middle = y + BAR / 2.0;
    let mut svg = format!(
        "<rect class=\"f{}\" x=\"0\" width=\"{width:.2}%\" y=\"{y:.1}\" height=\"{BAR}\" rx=\"2\"/>",
        series % 6
    );
    let mut end = width;
    if let Some((low, high)) = value.interval {
        let (low, high) = (scale.at(low), scale.at(high));
        end = end.max(high);
        push(
            &mut svg,
            format_args!(
                "<line class=\"whisker\" x1=\"{low:.2}%\" x2=\"{high:.2}%\" y1=\"{middle:.1}\" y2=\"{middle:.1}\"/>"
            ),
        );
        for x in [low, high] {
            push(
                &mut svg,
                format_args!(
                    "<line class=\"whisker\" x1=\"{x:.2}%\" x2=\"{x:.2}%\" y1=\"{:.1}\" y2=\"{:.1}\"/>",
                    middle - 4.0,
                    middle + 4.0
                ),
            );
        }
    }
    push(
        &mut svg,
        format_args!(
            "<text x=\"{end:.2}%\" dx=\"7\" y=\"{:.1}\">{}</text>\n",
            middle + 4.5,
            number(value.value)
        ),
    );
    svg
}

fn legend(bars: &Bars) -> String {
    let mut html = String::from("<ul class=\"legend\">");
    for (at, name) in bars.series.iter().enumerate() {
        push(
            &mut html,
            format_args!(
                "<li><svg aria-hidden=\"true\"><rect class=\"f{}\" width=\"26\" height=\"12\" rx=\"2\"/></svg>{}</li>",
                at % 6,
                escaped(name)
            ),
        );
    }
    if bars.groups.iter().any(|group| group.band.is_some()) {
        html.push_str(
            "<li><svg aria-hidden=\"true\"><rect class=\"band\" width=\"26\" height=\"12\"/></svg>band</li>",
        );
    }
    if bars.groups.iter().any(|g| g.values.iter().flatten().any(|v| v.interval.is_some())) {
        html.push_str(
            "<li><svg aria-hidden=\"true\"><path class=\"whisker\" d=\"M2 6H24M2 2V10M24 2V10\"/></svg>\
             95 % interval</li>",
        );
    }
    html.push_str("</ul>\n");
    html
}

fn numbers(bars: &Bars) -> Table {
    let mut columns = vec!["case".to_owned()];
    columns.extend(bars.series.iter().cloned());
    let banded = bars.groups.iter().any(|group| group.band.is_some());
    if banded {
        columns.push("band".to_owned());
    }
    let rows = bars.groups.iter().map(|group| {
        let mut row = vec![Cell::Text(group.label.clone())];
        row.extend(group.values.iter().map(|value| Cell::Number(told(*value))));
        if banded {
            let band = group.band.map_or("–".to_owned(), |(low, high)| {
                format!("{}–{}", number(low), number(high))
            });
            row.push(Cell::Number(band));
        }
        row
    });
    Table { caption: bars.unit.clone(), columns, rows: rows.collect() }
}

/// A value with its interval, as text.
pub(super) fn told(value: Option<Value>) -> String {
    match value {
        None => "–".to_owned(),
        Some(Value { value, interval: None }) => number(value),
        Some(Value { value, interval: Some((low, high)) }) => {
            format!("{} [{}, {}]", number(value), number(low), number(high))
        }
    }
}
