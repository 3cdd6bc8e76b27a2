//! Text of `weft reproduce`: published beside measured figures, by patch or row by row.
//!
//! No line that is printed has more than 100 columns: tables are made for that, and
//! [`weft_terminal::terminal::wrapped`] breaks sentences.

use weft_lab::experiment::{
    Beyond, CaseRuns, ClaimKind, Control, Curve, Effort, Experiment, Measured, Metric,
    Outcome as Found, Quantity,
};
use weft_lab::statistics::{Band, Estimate, Verdict, gain_percent};
use weft_terminal::terminal::LINE;

/// Table with a line for each experiment: the figure that sums the experiment up, as published and
/// as measured.
pub(super) fn lines(all: &[(&Experiment, &Found)], effort: Effort) -> String {
    let is_judged = all.iter().any(|(_, found)| found.is_judged());
    let mut table = vec![["patch", "", "figure", "published", "measured", ""].map(str::to_owned)];
    table[0][5] = if is_judged { "verdict" } else { "" }.to_owned();
    for (experiment, found) in all {
        let Some(row) = found.headline() else { continue };
        let [published, measured] = figures(row);
        let about = match experiment.about() {
            "" => experiment.published_by(),
            about => about,
        };
        table.push([
            format!("{} {}", experiment.patch(), experiment.name()),
            about.to_owned(),
            row.row.experiment.clone(),
            published,
            measured,
            row.verdict().map_or("", Verdict::word).to_owned(),
        ]);
    }
    let letters = |text: &str| text.chars().count();
    let mut wide: [usize; 6] = std::array::from_fn(|column| {
        table.iter().map(|line| letters(&line[column])).max().unwrap_or(0)
    });
    // Separators: one column behind the name, two before each figure and the verdict.
    let others: usize = [0, 2, 3, 4, 5].map(|column| wide[column]).iter().sum();
    wide[1] = wide[1].min(LINE.saturating_sub(others + 9)).max(1);
    let mut text = String::new();
    for [name, about, figure, published, measured, verdict] in &table {
        let about = match letters(about) > wide[1] {
            true => about.chars().take(wide[1] - 1).chain(['…']).collect(),
            false => about.clone(),
        };
        let [w0, w1, w2, w3, w4, _] = wide;
        let line = format!(
            "{name:<w0$} {about:<w1$}  {figure:<w2$}  {published:>w3$}  {measured:<w4$}  {verdict}"
        );
        text += &format!("{}\n", line.trim_end());
    }
    text + &format!(
        "{} runs of each variant; one figure of each patch, all of them with --rows\n",
        effort.runs
    )
}

/// Texts of the published figure of a row, and of the measured figure with its interval. A count
/// has a range in place of the interval.
fn figures(row: &Measured) -> [String; 2] {
    if row.row.kind == ClaimKind::Count {
        let runs = &row.patched.runs;
        let (low, high) = runs.iter().fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), run| {
            (low.min(*run), high.max(*run))
        });
        let measured = format!("{:.1} rise ({low}…{high})", row.patched.mean.value);
        return [format!("{} rise", row.baseline.mean.value), measured];
    }
    let published = row.row.published.gain_percent();
    [published.map_or(String::new(), |gain| format!("{gain:+.1} %")), magnitude(row)]
}

/// Text of all rows of an experiment, with explanations.
pub(super) fn rows(
    experiment: &Experiment,
    found: &Found,
    controls_of_it: &[Control],
    effort: Effort,
) -> String {
    let mut text = String::new();
    published(&mut text, experiment, found, effort);
    beyond(&mut text, experiment, found);
    for row in &found.beside {
        let own = row.beyond.as_ref().map(|Beyond { side, .. }| {
            format!("; {}: {} {}", side.name, number(side.mean.value), unit(row))
        });
        text += &format!(
            "  beside: {}: {}, {}{}\n",
            row.row,
            sides(row),
            gain(&row.ratio),
            own.unwrap_or_default()
        );
    }
    for Curve { name, points, below_one_from, falls } in found.curves() {
        let point = |(times, ratio): &(u64, Estimate)| format!("x {times}: {:.2}", ratio.value);
        let points: Vec<String> = points.iter().map(point).collect();
        let from = below_one_from
            .map_or("never below 1".into(), |from| format!("below 1 from x {from:.1} on"));
        let falls = if falls { "it falls" } else { "it does not fall throughout" };
        text += &format!(
            "  curve, {name} ({} costs): {}; {from}, {falls}\n",
            experiment.costs(),
            points.join(", ")
        );
    }
    controls(&mut text, "  ", controls_of_it);
    beside(&mut text, experiment, found);
    explanations(&mut text, experiment, found);
    text
}

/// Adds the explanations of an experiment's rows: ranges, reasons, notes, fits and assumptions.
fn explanations(text: &mut String, experiment: &Experiment, found: &Found) {
    for row in &found.rows {
        let words = row.assumed_words();
        if !words.is_empty() && row.no_magnitude.is_empty() {
            *text += &format!("  over what is assumed, {}: {words}\n", row.row);
        }
    }
    for (row, reason) in found.reasons() {
        *text += &format!("  {row}: {reason}\n");
    }
    for (row, note) in found.notes() {
        *text += &format!("  note, {row}: {note}\n");
    }
    for case in found.cases.iter().filter(|case| case.unsettled() > 0) {
        let (count, name) = (case.unsettled(), &case.name);
        *text += &format!("  {name}: {count} runs had not settled after four times their time\n");
    }
    for fit in experiment.fits() {
        let (name, about, value, row) = (&fit.parameter, &fit.about, fit.value, &fit.row);
        *text += &format!("  fitted: {name} = {value:.1} ({about}), to the baseline of {row}\n");
    }
    *text += "  taken for granted:\n";
    for assumption in experiment.assumptions() {
        *text += &format!("  - {assumption}\n");
    }
    *text += &format!("  {}, sha256 {}\n", experiment.origin(), experiment.hash);
}

/// Adds the controls of an experiment, each in a line that begins with `begin`.
pub(super) fn controls(text: &mut String, begin: &str, controls: &[Control]) {
    for control in controls {
        let Control { name, about, ratio, .. } = control;
        let verdict = control.verdict().map_or(String::new(), |verdict| format!(": {verdict}"));
        *text += &format!(
            "{begin}control, {name} ({about}): {}, expected {}{verdict}\n",
            gain(ratio),
            control.expected(),
        );
    }
}

/// Adds the published and measured figures of each row, below the name of the row.
fn published(text: &mut String, experiment: &Experiment, found: &Found, effort: Effort) {
    let (patch, name, runs) = (experiment.patch(), experiment.name(), effort.runs);
    *text += &format!("patch {patch} ({name}), {runs} runs of each variant\n");
    *text += &format!("  published on {}\n", experiment.published_by());
    let mut line = |[sides, published, measured, band, marks, verdict]: [&str; 6]| {
        let line = format!(
            "    {sides:<20} {published:>9} {measured:>25}  {band:>12}  {marks:<5}  {verdict}"
        );
        *text += &format!("{}\n", line.trim_end());
    };
    let verdict = if found.is_judged() { "verdict" } else { "" };
    line(["", "published", "measured", "band", "marks", verdict]);
    for row in &found.rows {
        let published = row.row.published.gain_percent();
        line([&row.row.to_string(), "", "", "", "", ""]);
        line([
            &sides(row),
            &published.map_or(String::new(), |gain| format!("{gain:+.1} %")),
            &magnitude(row),
            &band(row.row.band()),
            &experiment.hangs_on(&row.row).marks(),
            row.verdict().map_or("", Verdict::word),
        ]);
    }
    for meaning in experiment.legend(found.rows.iter().map(|row| &row.row)) {
        *text += &format!("  {meaning}\n");
    }
}

/// Largest number of quantities that are printed of those in which a policy of weft's own is worse
/// than another.
const WORST: usize = 8;

/// Adds, row by row, the results of columns that are not in the publication.
fn beyond(text: &mut String, experiment: &Experiment, found: &Found) {
    let mut last = "";
    for (row, Beyond { side, ratio, to_better: (better, to_better) }) in found.own() {
        if side.name != last {
            let about = experiment.columns().find(|(name, _)| *name == side.name);
            let about = about.map_or("", |(_, column)| &column.about);
            *text += &format!("  weft's own, {}: {about}\n", side.name);
            last = &side.name;
        }
        let value = format!("{} {}", number(side.mean.value), unit(row));
        *text += &format!(
            "    {}\n    {value:<14} {:>24} to baseline {:>24} to {better}\n",
            row.row,
            gain(ratio),
            gain(to_better),
        );
    }
    if let Some((row, Beyond { to_better: (better, to_better), .. })) = found.worst_own() {
        *text += &format!("  at its worst: {} to {better}, {}\n", gain(to_better), row.row);
    }
    for policy in found.own_policies.iter().filter(|policy| !policy.quantities.is_empty()) {
        let worse = policy.worse();
        *text += &format!("  {}\n", policy.sentence());
        for Quantity { case, metric, best, to_best, .. } in worse.iter().take(WORST) {
            let metric = metric.name().replace('_', " ");
            *text += &format!("    worse: {case}, {metric}: {} to {best}\n", gain(to_best));
        }
        if worse.len() > WORST {
            *text += &format!("    worse in {} others (--json)\n", worse.len() - WORST);
        }
    }
}

/// Adds, column by column, those measurements for which no figure is published.
fn beside(text: &mut String, experiment: &Experiment, found: &Found) {
    *text += "  beside, in the mean:\n";
    for case in &found.cases {
        let load = experiment.cases().iter().find(|of| of.name == case.name).map(|of| &of.load);
        let mut metrics = load.map_or(&[][..], |load| load.metrics());
        let names = case.columns.keys().map(|name| name.chars().count() + 2);
        let name_wide = names.chain([case.name.chars().count(), 16]).max().unwrap_or(0);
        // Metrics for which a line has no room follow in a table of their own.
        while !metrics.is_empty() {
            let mut room = LINE.saturating_sub(name_wide + 2);
            let fits = metrics.iter().take_while(|metric| {
                let needed = metric_wide(metric) + 2;
                let fits = needed <= room;
                room = room.saturating_sub(needed);
                fits
            });
            let (now, later) = metrics.split_at(fits.count().max(1));
            means(text, case, now, name_wide);
            metrics = later;
        }
    }
}

fn metric_title(metric: &Metric) -> String {
    metric.name().replace('_', " ")
}

fn metric_wide(metric: &Metric) -> usize {
    metric_title(metric).len().max(metric.unit().len()).max(7)
}

/// Adds a table of the means of some metrics, column by column.
fn means(text: &mut String, case: &CaseRuns, metrics: &[Metric], wide: usize) {
    let mut line = |name: &str, cell: &dyn Fn(&Metric) -> String| {
        let cells =
            metrics.iter().map(|metric| format!("  {:>1$}", cell(metric), metric_wide(metric)));
        *text += &format!("  {name:<wide$}{}\n", cells.collect::<String>());
    };
    line(&case.name, &metric_title);
    line("", &|metric| metric.unit().to_owned());
    for column in case.columns.keys() {
        let mean = |metric: &Metric| case.mean(column, *metric).map_or(String::new(), number);
        line(&format!("  {column}"), &mean);
    }
}

/// Text of both sides of a row, before and after, with their unit: `192 → 232 MB/s`.
fn sides(row: &Measured) -> String {
    let [before, after] = [&row.baseline, &row.patched].map(|side| number(side.mean.value));
    format!("{before} → {after} {}", unit(row)).trim_end().to_owned()
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
