//! Line charts, as SVG.
//!
//! The lines are stretched to the width of the page; strokes, points and text are not.

use super::bars::told;
use super::html::{self, drawing, escaped};
use super::scale::{Scale, round_step};
use super::style::COLOURS;
use super::{Axis, Cell, Lines, Series, Table, number};

/// Height of the plot in pixels. `ABOVE` and `BELOW` are the heights of the space above and below
/// it.
const PLOT: f64 = 240.0;
const ABOVE: f64 = 30.0;
const BELOW: f64 = 56.0;

/// Largest number of points of a line that is drawn with dots, and largest number of rows in the
/// table of numbers. A line with more points has no dots.
const DOTTED_MAX: usize = 40;

/// Left end of the plot, in percent of the width; the numbers of the vertical axis are to the left
/// of it. `RIGHT` is the right end.
const LEFT: f64 = 13.0;
const RIGHT: f64 = 97.0;

/// HTML of the whole figure: the drawing as SVG, its legend, and a table of its numbers.
pub(super) fn figure(lines: &Lines, chart: u32) -> String {
    let (across, up) = (across(lines), up(lines));
    let mut svg = drawing(chart, ABOVE + PLOT + BELOW, &lines.title, &lines.description);
    let bottom = ABOVE + PLOT;
    svg += &format!("<text class=\"soft\" x=\"0\" y=\"13\">{}</text>\n", escaped(&lines.up));
    for tick in up.ticks(5.0) {
        let y = up.at(tick);
        svg += &format!(
            "<line class=\"grid\" x1=\"{LEFT}%\" x2=\"{RIGHT}%\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"soft\" x=\"{LEFT}%\" dx=\"-6\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
            y + 4.0,
            number(tick)
        );
    }
    let crowded = matches!(&lines.axis, Axis::Names(names) if names.len() > 3);
    for (at, (place, label)) in places(lines, &across).into_iter().enumerate() {
        let x = across.at(place);
        // With many names, every other one is lower, so that they fit on a narrow page.
        let drop = if crowded && at % 2 == 1 { 32.0 } else { 18.0 };
        svg += &format!(
            "<line class=\"grid\" x1=\"{x:.2}%\" x2=\"{x:.2}%\" y1=\"{bottom}\" y2=\"{}\"/>\
                 <text class=\"soft\" x=\"{x:.2}%\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
            bottom + 4.0,
            bottom + drop,
            escaped(&label)
        );
    }
    svg += &format!(
        "<text class=\"soft\" x=\"{RIGHT}%\" y=\"{}\" text-anchor=\"end\">{}</text>\n",
        bottom + 50.0,
        escaped(&lines.across)
    );
    for mark in lines.marks.iter().filter(|mark| mark.value.is_finite()) {
        let y = up.at(mark.value);
        svg += &format!(
            "<line class=\"mark\" x1=\"{LEFT}%\" x2=\"{RIGHT}%\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{RIGHT}%\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
            y - 5.0,
            escaped(&mark.label)
        );
    }
    for (at, series) in lines.series.iter().enumerate().filter(|(_, series)| drawn(series)) {
        svg.push_str(&line(series, colour(lines, at), &across, &up));
    }
    svg.push_str("</svg>\n");
    html::figure(&lines.title, &lines.description, &legend(lines), &svg, &numbers(lines))
}

/// Index of the colour of a line. If all other lines are compared with the first line, the first
/// line is grey.
fn colour(lines: &Lines, series: usize) -> usize {
    (series + usize::from(!lines.baseline)) % COLOURS
}

/// Whether a line has points. A line without points is not in the legend, but no other line takes
/// its colour.
fn drawn(series: &Series) -> bool {
    !series.points.is_empty()
}

/// Points of a line, each with its place on the horizontal axis and its value, if both are finite.
fn points(series: &Series) -> impl Iterator<Item = (f64, super::Value)> + '_ {
    let points = series.points.iter().copied();
    points.filter(|(place, value)| place.is_finite() && value.value.is_finite())
}

fn across(lines: &Lines) -> Scale {
    let places = || lines.series.iter().flat_map(|series| points(series).map(|point| point.0));
    let low = places().fold(f64::INFINITY, f64::min);
    let high = places().fold(f64::NEG_INFINITY, f64::max);
    match &lines.axis {
        Axis::Names(names) => {
            // Half a step between names is left free on both sides.
            Scale::new(-0.5, names.len().max(1) as f64 - 0.5, LEFT, RIGHT, false)
        }
        Axis::Linear => Scale::new(low, high, LEFT, RIGHT, false),
        Axis::Doubling => Scale::new(low, high, LEFT + 1.0, RIGHT - 1.0, true),
    }
}

fn up(lines: &Lines) -> Scale {
    let ends = lines.series.iter().flat_map(|series| {
        points(series).flat_map(|(_, value)| {
            let (low, high) = value.interval.unwrap_or((value.value, value.value));
            [low, value.value, high]
        })
    });
    let ends = ends.chain(lines.marks.iter().map(|mark| mark.value));
    let ends: Vec<f64> = ends.filter(|end| end.is_finite()).collect();
    let high = ends.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let (from, to) = (ABOVE + PLOT, ABOVE);
    if lines.logarithmic {
        let low = ends.iter().copied().filter(|end| *end > 0.0).fold(f64::INFINITY, f64::min);
        let decade = |value: f64, round: fn(f64) -> f64| libm::pow(10.0, round(libm::log10(value)));
        return Scale::new(decade(low, libm::floor), decade(high, libm::ceil), from, to, true);
    }
    // An interval may reach below 0 although no value does: it is cut there.
    let values = lines.series.iter().flat_map(|series| points(series).map(|point| point.1.value));
    let low = values.fold(0.0, f64::min);
    let step = round_step((high - low) / 5.0);
    Scale::new(libm::floor(low / step) * step, libm::ceil(high / step) * step, from, to, false)
}

/// Labels of the horizontal axis, each with its position on the axis (see [`Axis`]).
fn places(lines: &Lines, across: &Scale) -> Vec<(f64, String)> {
    match &lines.axis {
        Axis::Names(names) => {
            names.iter().enumerate().map(|(at, name)| (at as f64, name.clone())).collect()
        }
        Axis::Linear => across.ticks(6.0).into_iter().map(|tick| (tick, number(tick))).collect(),
        Axis::Doubling => {
            let mut places: Vec<f64> =
                lines.series.iter().flat_map(|series| points(series).map(|p| p.0)).collect();
            places.sort_by(f64::total_cmp);
            places.dedup();
            // At most eight labels, evenly picked, so that they have room.
            let every = places.len().div_ceil(8).max(1);
            places.into_iter().step_by(every).map(|place| (place, number(place))).collect()
        }
    }
}

fn line(series: &Series, colour: usize, across: &Scale, up: &Scale) -> String {
    let path: Vec<String> = points(series)
        .map(|(place, value)| format!("{:.3},{:.2}", across.at(place), up.at(value.value)))
        .collect();
    let long = if path.len() > DOTTED_MAX { " long" } else { "" };
    let height = ABOVE + PLOT;
    let mut svg = format!(
        "<svg x=\"0\" y=\"0\" width=\"100%\" height=\"{height}\" viewBox=\"0 0 100 {height}\" \
         preserveAspectRatio=\"none\"><polyline class=\"line l{colour}{long}\" vector-effect=\"non-scaling-stroke\" \
         points=\"{}\"/></svg>\n",
        path.join(" ")
    );
    if points(series).count() > DOTTED_MAX {
        return svg;
    }
    for (place, value) in points(series) {
        let (x, y) = (across.at(place), up.at(value.value));
        if let Some((low, high)) = value.interval {
            let (low, high) = (up.at(low), up.at(high));
            svg += &format!(
                "<line class=\"whisker\" x1=\"{x:.2}%\" x2=\"{x:.2}%\" y1=\"{low:.1}\" y2=\"{high:.1}\"/>"
            );
        }
        svg += &format!("<circle class=\"f{colour}\" cx=\"{x:.2}%\" cy=\"{y:.1}\" r=\"3.5\"/>\n");
    }
    svg
}

fn legend(lines: &Lines) -> String {
    let mut html = String::from("<ul class=\"legend\">");
    for (at, series) in lines.series.iter().enumerate().filter(|(_, series)| drawn(series)) {
        let colour = colour(lines, at);
        html += &format!(
            "<li><svg aria-hidden=\"true\"><path class=\"line l{colour}\" d=\"M0 6H26\"/>\
                 <circle class=\"f{colour}\" cx=\"13\" cy=\"6\" r=\"3.5\"/></svg>{}</li>",
            escaped(&series.name)
        );
    }
    html.push_str("</ul>\n");
    html
}

fn numbers(lines: &Lines) -> Table {
    let shown = || lines.series.iter().filter(|series| drawn(series));
    let mut places: Vec<f64> =
        lines.series.iter().flat_map(|series| series.points.iter().map(|point| point.0)).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let every = places.len().div_ceil(DOTTED_MAX).max(1);
    let places = places.into_iter().step_by(every);
    let mut columns = vec![lines.across.clone()];
    columns.extend(shown().map(|series| series.name.clone()));
    let rows = places.map(|place| {
        let name = match &lines.axis {
            Axis::Names(names) => {
                let at = names.iter().enumerate().find(|(at, _)| *at as f64 == place);
                Cell::Text(at.map_or_else(|| number(place), |(_, name)| name.clone()))
            }
            Axis::Doubling | Axis::Linear => Cell::Number(number(place)),
        };
        let values = shown().map(|series| {
            let point = series.points.iter().find(|point| point.0.total_cmp(&place).is_eq());
            Cell::Number(told(point.map(|point| point.1)))
        });
        std::iter::once(name).chain(values).collect()
    });
    let mut caption = lines.up.clone();
    if every > 1 {
        caption += &format!(", one in {every}");
    }
    Table { caption, columns, rows: rows.collect() }
}
