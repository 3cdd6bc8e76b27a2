//! Text of `weft reproduce`: published beside measured figures, row by row.

use std::io::Write;

use weft_lab::experiment::{
    Beyond, Control, Curve, Effort, Experiment, Measured, Metric, Outcome as Found, Quantity,
};
use weft_lab::statistics::{Band, Estimate, Verdict, gain_percent};
use weft_terminal::outcome::Failure;
use weft_terminal::terminal::{stdout, wide_enough};

/// Prints the rows of an experiment, with explanations.
pub(super) fn print(
    experiment: &Experiment,
    found: &Found,
    controls: &[Control],
    effort: Effort,
) -> Result<(), Failure> {
    let mut out = stdout();
    print_rows(&mut out, experiment, found, effort)?;
    print_beyond(&mut out, experiment, found, name_width(found))?;
    for row in &found.beside {
        let own = row.beyond.as_ref().map(|Beyond { side, .. }| {
            format!("; {}: {} {}", side.name, number(side.mean.value), unit(row))
        });
        writeln!(
            out,
            "  beside: {}: {} → {} {}, {}{}",
            row.row,
            number(row.baseline.mean.value),
            number(row.patched.mean.value),
            unit(row),
            gain(&row.ratio),
            own.unwrap_or_default()
        )?;
    }
    for Curve { name, points, below_one_from, falls } in found.curves() {
        let point = |(times, ratio): &(u64, Estimate)| format!("x {times}: {:.2}", ratio.value);
        let points: Vec<String> = points.iter().map(point).collect();
        let from = below_one_from
            .map_or("never below 1".into(), |from| format!("below 1 from x {from:.1} on"));
        let falls = if falls { "it falls" } else { "it does not fall throughout" };
        writeln!(
            out,
            "  curve, {name} ({} costs): {}; {from}, {falls}",
            experiment.costs(),
            points.join(", ")
        )?;
    }
    for control in controls {
        let Control { name, about, ratio, .. } = control;
        let verdict = control.verdict().map_or(String::new(), |verdict| format!(": {verdict}"));
        writeln!(
            out,
            "  control, {name} ({about}): {}, expected {}{verdict}",
            gain(ratio),
            control.expected(),
        )?;
    }
    print_beside(&mut out, experiment, found)?;
    for row in &found.rows {
        let words = row.assumed_words();
        if !words.is_empty() && row.no_magnitude.is_empty() {
            writeln!(out, "  over what is assumed, {}: {words}", row.row)?;
        }
    }
    for (row, reason) in found.reasons() {
        writeln!(out, "  {row}: {reason}")?;
    }
    for (row, note) in found.notes() {
        writeln!(out, "  note, {row}: {note}")?;
    }
    for case in found.cases.iter().filter(|case| case.unsettled() > 0) {
        let (count, name) = (case.unsettled(), &case.name);
        writeln!(out, "  {name}: {count} runs had not settled after four times their time")?;
    }
    for fit in experiment.fits() {
        let (name, about, value, row) = (&fit.parameter, &fit.about, fit.value, &fit.row);
        writeln!(out, "  fitted: {name} = {value:.1} ({about}), to the baseline of {row}")?;
    }
    writeln!(out, "  taken for granted:")?;
    for assumption in experiment.assumptions() {
        writeln!(out, "  - {assumption}")?;
    }
    writeln!(out, "  {}, sha256 {}", experiment.origin(), experiment.hash)?;
    Ok(())
}

/// Width of the longest name of a row, in columns.
fn name_width(found: &Found) -> usize {
    found.rows.iter().map(|row| row.row.to_string().chars().count()).max().unwrap_or(0)
}

/// Prints published beside measured figures, row by row. If the terminal is too narrow for all
/// columns, only those that are compared are printed.
pub(super) fn print_rows(
    out: &mut impl Write,
    experiment: &Experiment,
    found: &Found,
    effort: Effort,
) -> Result<(), Failure> {
    let (patch, name, runs) = (experiment.patch(), experiment.name(), effort.runs);
    writeln!(out, "patch {patch} ({name}), {runs} runs of each variant")?;
    writeln!(out, "  published on {}", experiment.published_by())?;
    let wide = name_width(found);
    let all = wide_enough(wide + 101);
    let mut line = |name: &str,
                    values: [&str; 3],
                    compared: [&str; 2],
                    band: &str,
                    [marks, verdict]: [&str; 2]| {
        write!(out, "  {name:<wide$}  ")?;
        if all {
            let [baseline, patched, unit] = values;
            write!(out, "{baseline:>9} {patched:>9} {unit:<7} ")?;
        }
        let [published, measured] = compared;
        write!(out, "{published:>9}  {measured:>25}")?;
        if all {
            write!(out, "  {band:>13}")?;
        }
        writeln!(out, "{}", format!("  {marks:<5}  {verdict}").trim_end())
    };
    let ends = ["marks", if found.is_judged() { "verdict" } else { "" }];
    line("", ["baseline", "patched", ""], ["published", "measured"], "band", ends)?;
    for row in &found.rows {
        let published = row.row.published.gain_percent();
        line(
            &row.row.to_string(),
            [&number(row.baseline.mean.value), &number(row.patched.mean.value), unit(row)],
            [&published.map_or(String::new(), |gain| format!("{gain:+.1} %")), &magnitude(row)],
            &band(row.row.band()),
            [&experiment.hangs_on(&row.row).marks(), row.verdict().map_or("", Verdict::word)],
        )?;
    }
    for meaning in experiment.legend(found.rows.iter().map(|row| &row.row)) {
        writeln!(out, "  {meaning}")?;
    }
    Ok(())
}

/// Number of quantities that are printed of those in which a policy of weft's own is worse.
const WORST: usize = 8;

/// Prints, row by row, the results of columns that the publication does not have.
fn print_beyond(
    out: &mut impl Write,
    experiment: &Experiment,
    found: &Found,
    wide: usize,
) -> Result<(), Failure> {
    let mut last = "";
    for (row, Beyond { side, ratio, to_better: (better, to_better) }) in found.own() {
        if side.name != last {
            let about = experiment.columns().find(|(name, _)| *name == side.name);
            let about = about.map_or("", |(_, column)| &column.about);
            writeln!(out, "  weft's own, {}: {about}", side.name)?;
            last = &side.name;
        }
        writeln!(
            out,
            "  {:<wide$}  {:>9} {:<7} {:>25} to baseline, {:>25} to {better}",
            row.row.to_string(),
            number(side.mean.value),
            unit(row),
            gain(ratio),
            gain(to_better),
        )?;
    }
    if let Some((row, Beyond { to_better: (better, to_better), .. })) = found.worst_own() {
        writeln!(out, "  at its worst: {} to {better}, {}", gain(to_better), row.row)?;
    }
    for policy in found.own_policies.iter().filter(|policy| !policy.quantities.is_empty()) {
        let worse = policy.worse();
        writeln!(out, "  {}", policy.sentence())?;
        for Quantity { case, metric, best, to_best, .. } in worse.iter().take(WORST) {
            let metric = metric.name().replace('_', " ");
            writeln!(out, "    worse: {case}, {metric}: {} to {best}", gain(to_best))?;
        }
        if worse.len() > WORST {
            writeln!(out, "    worse in {} others (--json)", worse.len() - WORST)?;
        }
    }
    Ok(())
}

/// Prints, column by column, those measurements for which no figure is published.
fn print_beside(
    out: &mut impl Write,
    experiment: &Experiment,
    found: &Found,
) -> Result<(), Failure> {
    writeln!(out, "  beside, in the mean:")?;
    for case in &found.cases {
        let load = experiment.cases().iter().find(|of| of.name == case.name).map(|of| &of.load);
        let metrics = load.map_or(&[][..], |load| load.metrics());
        let title = |metric: &Metric| metric.name().replace('_', " ");
        let wide = |metric: &Metric| title(metric).len().max(metric.unit().len()).max(7);
        let line = |name: &str, cell: &dyn Fn(&Metric) -> String| {
            let cells =
                metrics.iter().map(|metric| format!("  {:>1$}", cell(metric), wide(metric)));
            format!("  {name:<16}{}", cells.collect::<String>())
        };
        writeln!(out, "{}", line(&case.name, &title))?;
        writeln!(out, "{}", line("", &|metric| metric.unit().to_owned()))?;
        for column in case.columns.keys() {
            let mean = |metric: &Metric| case.mean(column, *metric).map_or(String::new(), number);
            writeln!(out, "{}", line(&format!("  {column}"), &mean))?;
        }
    }
    Ok(())
}

pub(super) fn unit(row: &Measured) -> &'static str {
    if row.row.against.is_some() { "" } else { row.row.metric.unit() }
}

/// Text of a number, with about three digits.
fn number(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Text of the gain, or `no magnitude` if the row has none.
fn magnitude(row: &Measured) -> String {
    if row.no_magnitude.is_empty() { gain(&row.ratio) } else { "no magnitude".to_owned() }
}

/// Text of a gain with its interval, as `+12.3 % (+11.0…+13.6)`.
pub(crate) fn gain(ratio: &Estimate) -> String {
    let [value, low, high] = [ratio.value, ratio.low, ratio.high].map(gain_percent);
    format!("{value:+.1} % ({low:+.1}…{high:+.1})")
}

fn band(band: Band) -> String {
    match band {
        Band::Above(low) => format!("> {:+.0} %", gain_percent(low)),
        Band::Below(high) => format!("< {:+.0} %", gain_percent(high)),
        Band::Inside { low, high } => {
            format!("{:+.0}…{:+.0} %", gain_percent(low), gain_percent(high))
        }
    }
}
