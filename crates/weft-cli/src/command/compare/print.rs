//! Table of a comparison, as the script of patch 001's mail printed it.
//!
//! ```text
//!                        A                         B
//! ------------------------  ------------------------
//!                 52934365       +3.2%      54643527  CASE
//! ```
//!
//! The first set has its value, 24 columns wide; each other set has its change in 11 columns and
//! its value in 12. The column between these two has `*` if the 95 % interval of the change does
//! not contain 0. Values are followed by their spread if there are repeats. Lines that the table of
//! the mail lacks follow an empty line.
//!
//! Source   writeback.md §5.1

use std::io::Write;

use weft_lab::compare::{Cell, Change, Comparison, GroupChange, Row};
use weft_terminal::outcome::Failure;
use weft_terminal::terminal::style;

/// Least width of a value, in columns.
const VALUE: usize = 12;
/// Width of a change with its percent sign, in columns.
const CHANGE: usize = 11;
/// Width of a spread in columns.
const SPREAD: usize = 8;

/// Change in percent below which single runs count as equal. Single runs have no interval, and runs
/// of one kernel differ by this much.
///
/// Source   writeback.md §0 (5)
const NO_CHANGE_PERCENT: f64 = 3.0;

/// Widths of a table's columns.
struct Widths {
    value: usize,
    spread: usize,
    sets: Vec<usize>,
}

/// Prints the table, the means of groups, the extremes, and the remarks.
pub(super) fn print(
    out: &mut impl Write,
    comparison: &Comparison,
    remarks: &[String],
    lower_is_better: bool,
) -> Result<(), Failure> {
    let widths = widths(comparison);
    let (bold, plain) = (style::BOLD, style::PLAIN);
    let mut names = Vec::new();
    let mut dashes = Vec::new();
    for ((name, _), width) in comparison.sets.iter().zip(&widths.sets) {
        names.push(format!("{name:>width$}"));
        dashes.push("-".repeat(*width));
    }
    writeln!(out, "{bold}{}{plain}", names.join("  "))?;
    writeln!(out, "{}", dashes.join("  "))?;
    for row in &comparison.rows {
        print_row(out, row, &widths, lower_is_better)?;
    }
    writeln!(out)?;
    for group in &comparison.groups {
        write!(out, "{:width$}", "", width = widths.sets[0])?;
        for (change, width) in group.changes.iter().zip(&widths.sets).skip(1) {
            let (percent, cases) = match change {
                Some(GroupChange { percent, cases: 1, .. }) => {
                    (percent_text(*percent), "1 case".to_owned())
                }
                Some(GroupChange { percent, cases, .. }) => {
                    (percent_text(*percent), format!("{cases} cases"))
                }
                None => (String::new(), "-".to_owned()),
            };
            let text = format!("{percent:>CHANGE$} {cases:>of$}", of = widths.value);
            let text = format!("{text}{:of$}", "", of = widths.spread);
            write!(out, "  {text:>width$}")?;
        }
        let name = if group.name.is_empty() { "in no folder" } else { &group.name };
        writeln!(out, "  geometric mean, {name}")?;
    }
    for (set, (name, _)) in comparison.sets.iter().enumerate().skip(1) {
        print_extremes(out, comparison, set, name)?;
        print_mean(out, comparison, set, name)?;
    }
    for remark in remarks {
        writeln!(out, "{remark}")?;
    }
    Ok(())
}

fn widths(comparison: &Comparison) -> Widths {
    let cells = comparison.rows.iter().flat_map(|row| &row.cells).flatten();
    let value = cells.map(|cell| value_text(cell).len()).max().unwrap_or(0).max(VALUE);
    let spread = if comparison.has_repeats() { SPREAD } else { 0 };
    let least = CHANGE + 1 + value + spread;
    let sets = comparison.sets.iter().map(|(name, _)| name.chars().count().max(least));
    Widths { value, spread, sets: sets.collect() }
}

fn print_row(
    out: &mut impl Write,
    row: &Row,
    widths: &Widths,
    lower_is_better: bool,
) -> Result<(), Failure> {
    for (set, (cell, change)) in row.cells.iter().zip(&row.changes).enumerate() {
        if set > 0 {
            write!(out, "  ")?;
        }
        let value = cell.as_ref().map_or("-".to_owned(), value_text);
        let spread = cell.as_ref().map_or(String::new(), spread_text);
        let value = format!("{value:>of$}{spread:of2$}", of = widths.value, of2 = widths.spread);
        let room = widths.sets[set] - widths.value - widths.spread;
        match change {
            None => write!(out, "{:room$}{value}", "")?,
            Some(change) => {
                let mark = if change.is_sure() == Some(true) { '*' } else { ' ' };
                let percent = change_text(change);
                let (colour, plain) = colour(change, lower_is_better);
                // Colour codes take no columns.
                let before = room.saturating_sub(1 + percent.len());
                write!(out, "{:before$}{colour}{percent}{plain}{mark}{value}", "")?;
            }
        }
    }
    writeln!(out, "  {}", row.case)?;
    Ok(())
}

/// Prints the numbers of cases in which `set` rose and fell, and the cases with the lowest and the
/// highest change.
fn print_extremes(
    out: &mut impl Write,
    comparison: &Comparison,
    set: usize,
    name: &str,
) -> Result<(), Failure> {
    let changes = comparison.rows.iter().filter_map(|row| Some((row, row.changes[set]?)));
    let mut changes: Vec<(&Row, Change)> = changes.collect();
    changes.sort_by(|a, b| a.1.rank().total_cmp(&b.1.rank()));
    let ([(least, low), ..], Some((most, high))) = (&changes[..], changes.last()) else {
        writeln!(out, "{name}: no case to compare")?;
        return Ok(());
    };
    if changes.len() == 1 {
        return Ok(());
    }
    let up = changes.iter().filter(|(_, change)| change.rank() > 0.0).count();
    let down = changes.iter().filter(|(_, change)| change.rank() < 0.0).count();
    writeln!(
        out,
        "{name}: {up} up, {down} down; from {} ({}) to {} ({})",
        rank_text(low),
        least.case,
        rank_text(high),
        most.case
    )?;
    Ok(())
}

/// Prints the mean change of all cases in `set`, if it has an interval.
fn print_mean(
    out: &mut impl Write,
    comparison: &Comparison,
    set: usize,
    name: &str,
) -> Result<(), Failure> {
    let all = comparison.groups.last().and_then(|group| group.changes[set]);
    let Some(GroupChange { percent, cases, interval: Some((low, high)), is_by_runs }) = all else {
        return Ok(());
    };
    if cases > 1 {
        let of = if is_by_runs { "runs" } else { "cases" };
        let [percent, low, high] = [percent, low, high].map(percent_text);
        writeln!(out, "{name}: all cases {percent} ({low} to {high} by the scatter of {of})")?;
    }
    Ok(())
}

/// Text of a change in percent, for the line about the lowest and highest change; a change from 0
/// is infinite.
fn rank_text(change: &Change) -> String {
    match change.rank() {
        f64::INFINITY => "+∞".to_owned(),
        f64::NEG_INFINITY => "-∞".to_owned(),
        percent => percent_text(percent),
    }
}

/// Text of a change in percent; `from 0` for a change from 0, which has no percentage.
pub(super) fn change_text(change: &Change) -> String {
    match change.percent {
        Some(percent) => percent_text(percent),
        None if change.difference == 0.0 => percent_text(0.0),
        None => "from 0".to_owned(),
    }
}

fn percent_text(percent: f64) -> String {
    format!("{percent:+.1}%")
}

/// Text of a mean: without decimals if it is whole or 10,000 or more, else with two or more.
fn value_text(cell: &Cell) -> String {
    let size = cell.mean.abs();
    match size {
        _ if cell.mean.fract() == 0.0 || size >= 10_000.0 => format!("{:.0}", cell.mean),
        _ if size >= 1.0 => format!("{:.2}", cell.mean),
        _ if size >= 1e-4 => format!("{:.5}", cell.mean),
        _ => format!("{:.3e}", cell.mean),
    }
}

/// Text of a spread, [`SPREAD`] columns wide up to 999.9 %.
fn spread_text(cell: &Cell) -> String {
    cell.spread_percent.map_or(String::new(), |spread| format!(" ±{spread:5.1}%"))
}

/// Colour codes before and after a change. A change gets a colour if its interval excludes 0 or,
/// for single runs, if it is not small.
fn colour(change: &Change, lower_is_better: bool) -> (&'static str, &'static str) {
    let counts = change.is_sure().unwrap_or(change.rank().abs() >= NO_CHANGE_PERCENT);
    if !counts {
        return ("", "");
    }
    let is_better = (change.rank() > 0.0) != lower_is_better;
    (if is_better { style::GREEN } else { style::RED }, style::PLAIN)
}
