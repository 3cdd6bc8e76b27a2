//! `weft reproduce`: what was published of a patch, beside what weft measures of the same change.
//!
//! The engine that serves volumes runs on simulated disks, before the patch and with it, in the
//! same circumstances several times. What is published is a ratio, so a ratio is what is compared.
//!
//! Source   cli.md, "Experiments": the schema `weft.reproduce/1`

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use weft_lab::experiment::{
    Beyond, Calibrated, CaseRuns, ClaimKind, Control, Counts, Curve, Effort, Experiment, Measured,
    Metric, Outcome as Found, PublishedRow, Ranged, Results, Size, Tally, estimate, run_all,
};
use weft_lab::report::Report;
use weft_lab::statistics::{Band, Estimate, Verdict, gain_percent};
use weft_sim::machine::CostTable;

use crate::outcome::{Exit, Failure, Outcome};
use crate::result_file::ResultFile;
use crate::terminal::{
    complain, print_json, remove_when_interrupted, stdout, steps, tries, wide_enough,
};

/// Measures a published patch's effect again, on simulated disks
///
/// Of patches 000 (priority) and 004 (stripe-size) so far. Each row is run before the patch and
/// with it; the gain is the mean of paired runs, with its 95 % interval. A row agrees when the
/// whole interval lies in the band that was written down beforehand; agrees-otherwise when it does
/// so by another mechanism than the published one; has the direction when the interval lies outside
/// of the band on its side of no change; is undecided when the interval lies across an edge of the
/// band or across no change, so that more runs would tell; and differs otherwise.
#[derive(Debug, Args)]
pub(crate) struct Reproduce {
    /// Numbers or names of patches; all that there are if none is given
    patches: Vec<String>,
    /// Only rows that have this in their name, as `dd` or `1 MiB`
    #[arg(long, value_name = "WORDS")]
    only: Option<String>,
    /// Runs of each variant [default: 10, with --quick 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=1000))]
    runs: Option<u64>,
    /// The first run's seed; the others follow
    #[arg(long, value_name = "S", default_value_t = SEED)]
    seed: u64,
    /// Fewer and shorter runs, with the same limits and caches
    #[arg(long)]
    quick: bool,
    /// As much as was published, which takes hours
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// Also show that only the patch makes the difference, and that it would be seen if something
    /// else did; --full does
    #[arg(long)]
    controls: bool,
    /// Find the fitted parameters again, by runs of three seeds, instead of running rows
    #[arg(long, conflicts_with_all = ["controls", "results", "only", "report"])]
    fit: bool,
    /// Run magnitudes under other values of what is assumed, instead of all rows
    #[arg(long, conflicts_with_all = ["controls", "results", "report", "fit"])]
    ranges: bool,
    /// CPU costs instead of the experiment's: zero, published, frozen or a file of `bench costs
    /// --write`, and *N for N times as much
    #[arg(long, value_name = "TABLE")]
    costs: Option<String>,
    /// Keep every run's parameters, course and results in this new directory
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
    /// Write one HTML page: published beside measured, and the charts that say why
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Source   experiments.md §4, 3
const SEED: u64 = 0x7765_6674;

pub(crate) fn run(arguments: &Reproduce) -> Outcome {
    let experiments = if arguments.patches.is_empty() {
        Experiment::all().map_err(Failure::failed)?
    } else {
        let named = arguments.patches.iter().map(|name| Experiment::named(name));
        let mut named: Vec<_> = named.collect::<Result<_, _>>().map_err(Failure::usage)?;
        // One that is named twice, perhaps by its number and by its name, is run once.
        let mut known = BTreeSet::new();
        named.retain(|experiment| known.insert(experiment.patch().to_owned()));
        named
    };
    let experiments = match &arguments.costs {
        Some(name) => {
            let table = CostTable::of_argument(name).map_err(Failure::usage)?;
            experiments.into_iter().map(|known| known.with_costs(table.clone())).collect()
        }
        None => experiments,
    };
    let experiments = match &arguments.only {
        Some(words) => only(experiments, words)?,
        None => experiments,
    };
    let (size, runs) = match (arguments.quick, arguments.full) {
        (true, _) => QUICK,
        (_, true) => (Size::Full, 10),
        _ => (Size::Default, 10),
    };
    let effort = Effort { runs: arguments.runs.unwrap_or(runs), seed: arguments.seed, size };
    remove_when_interrupted(&[])?;
    if arguments.fit {
        return fit(&experiments, effort, arguments.json);
    }
    if arguments.ranges {
        return ranges(&experiments, effort, arguments.json);
    }
    let page = arguments.report.as_deref().map(ResultFile::at).transpose()?;
    let results = arguments.results.as_deref().map(Results::at).transpose();
    let results = results.map_err(Failure::refused)?;
    if arguments.full {
        let bar = steps("probe", 0);
        let time = estimate(&experiments, effort, true, &step(&bar)).map_err(Failure::failed)?;
        bar.finish_and_clear();
        complain(&format!(
            "about {} on this host as it is now, longer if runs do not settle",
            hours(time.as_secs())
        ));
    }
    let mut all = Reproduced::run(experiments, effort)?;
    if arguments.controls || arguments.full {
        all.run_controls()?;
    }
    let Reproduced { experiments, found, controls, .. } = &all;
    if let Some(page) = page {
        page.write(&Report::reproduced(experiments, found, controls, effort).html())?;
    }
    if let Some(results) = &results {
        for (experiment, found) in experiments.iter().zip(found) {
            results.write(experiment, found, effort).map_err(Failure::failed)?;
        }
    }
    let sheet = all.to_json();
    if arguments.json {
        print_json(&sheet)?;
        return Ok(Exit::Done);
    }
    for ((experiment, found), controls) in experiments.iter().zip(found).zip(controls) {
        print(experiment, found, controls, effort)?;
    }
    writeln!(stdout(), "{}", all.summary())?;
    writeln!(
        stdout(),
        "all that was measured: sha256 {}",
        sheet["result_sha256"].as_str().unwrap_or("")
    )?;
    Ok(Exit::Done)
}

/// How much `--quick` is: so many runs of this size.
const QUICK: (Size, u64) = (Size::Quick, 3);

/// Experiments that were run, and their outcomes.
pub(crate) struct Reproduced {
    experiments: Vec<Experiment>,
    found: Vec<Found>,
    /// Those of each experiment; none unless they were asked for.
    controls: Vec<Vec<Control>>,
    effort: Effort,
}

impl Reproduced {
    /// What `weft reproduce --quick` runs: every experiment that there is.
    pub(crate) fn quick() -> Result<Self, Failure> {
        let (size, runs) = QUICK;
        let experiments = Experiment::all().map_err(Failure::failed)?;
        Self::run(experiments, Effort { runs, seed: SEED, size })
    }

    fn run(experiments: Vec<Experiment>, effort: Effort) -> Result<Self, Failure> {
        let bar = steps("reproduce", 0);
        let found = run_all(&experiments, effort, &step(&bar)).map_err(Failure::failed)?;
        bar.finish_and_clear();
        let controls = experiments.iter().map(|_| Vec::new()).collect();
        Ok(Self { experiments, found, controls, effort })
    }

    fn run_controls(&mut self) -> Result<(), Failure> {
        for (experiment, controls) in self.experiments.iter().zip(&mut self.controls) {
            let bar = steps("controls", 0);
            *controls = experiment.controls(self.effort, &step(&bar)).map_err(Failure::failed)?;
            bar.finish_and_clear();
        }
        Ok(())
    }

    /// The schema `weft.reproduce/1`.
    pub(crate) fn to_json(&self) -> Value {
        to_json(&self.experiments, &self.found, &self.controls, self.effort)
    }

    /// The rows of each patch, and nothing else.
    pub(crate) fn print_rows(&self) -> Result<(), Failure> {
        let mut out = stdout();
        for (experiment, found) in self.experiments.iter().zip(&self.found) {
            print_rows(&mut out, experiment, found, self.effort)?;
        }
        Ok(())
    }

    /// How many published figures and claims have which verdict.
    pub(crate) fn summary(&self) -> String {
        let patches: Vec<&str> = self.experiments.iter().map(Experiment::patch).collect();
        format!("{} on simulated disks: {}", patches.join(" and "), self.tally())
    }

    fn tally(&self) -> Tally {
        Tally::of(self.found.iter().map(|found| found.rows.as_slice()))
    }
}

fn step(bar: &indicatif::ProgressBar) -> impl Fn(usize, usize) + Sync + '_ {
    |done, of| {
        bar.set_length(of as u64);
        bar.set_position(done as u64);
    }
}

/// Finds what was fitted again, and says whether the texts have it.
fn fit(experiments: &[Experiment], effort: Effort, json: bool) -> Outcome {
    let mut out = stdout();
    let (mut holds, mut fitted) = (true, Vec::new());
    for experiment in experiments {
        let patch = experiment.patch();
        if experiment.fits().is_empty() && !json {
            writeln!(out, "patch {patch}: nothing is fitted")?;
        }
        let bar = tries("fit");
        let found = experiment.calibrate(effort, &|fit, parameter, model| {
            bar.inc(1);
            bar.set_message(format!("{} = {parameter:.1}: {model:.3}", fit.parameter));
        });
        bar.finish_and_clear();
        for found in found.map_err(Failure::failed)? {
            holds &= found.holds();
            if json {
                fitted.push(found_json(patch, &found));
                continue;
            }
            let (fit, scatter) = (&found.fit, &found.scatter);
            let each: Vec<String> =
                found.found.iter().map(|of| format!("{:.1}", of.parameter)).collect();
            let has = if found.holds() { "within it" } else { "outside of it" };
            writeln!(
                out,
                "patch {patch}: {} ({}), by the baseline of {}: {} by seeds of three fits, {:.1} \
                 ({:.1}…{:.1}) in the mean; the text has {:.1}, {has}",
                fit.parameter,
                fit.about,
                fit.row,
                each.join(", "),
                scatter.value,
                scatter.low,
                scatter.high,
                fit.value,
            )?;
        }
    }
    if json {
        print_json(&json!({ "schema": "weft.fit/1", "holds": holds, "fitted": fitted }))?;
    }
    if holds {
        Ok(Exit::Done)
    } else {
        Err(Failure::failed(
            "--fit: found a value that an experiment's text has outside of the scatter of what was \
             found now; fits are of one size of runs, and what is fitted is said in experiments/",
        ))
    }
}

fn found_json(patch: &str, found: &Calibrated) -> Value {
    let (fit, scatter) = (&found.fit, &found.scatter);
    let fits = found.found.iter().map(|of| json!({ "value": of.parameter, "model": of.model }));
    json!({
        "patch": patch,
        "parameter": fit.parameter,
        "about": fit.about,
        "value": scatter.value,
        "ci95": [scatter.low, scatter.high],
        "fits": fits.collect::<Vec<_>>(),
        "value_in_text": fit.value,
        "to_baseline_of": fit.row,
        "published": found.found.first().map(|of| of.figure),
        "holds": found.holds(),
    })
}

/// Runs magnitudes under other values of what is assumed.
fn ranges(experiments: &[Experiment], effort: Effort, json: bool) -> Outcome {
    let mut out = stdout();
    let mut rows = Vec::new();
    for experiment in experiments {
        let bar = steps("ranges", 0);
        let ranged = experiment.ranges(effort, &step(&bar)).map_err(Failure::failed)?;
        bar.finish_and_clear();
        let patch = experiment.patch();
        if ranged.is_empty() && !json {
            writeln!(out, "patch {patch}: no row has a magnitude")?;
        }
        for Ranged { row, points } in &ranged {
            let point = |(name, ratio): &(String, Estimate)| {
                json!({
                    "circumstance": name,
                    "gain_pct": gain_percent(ratio.value),
                    "ci95": interval(ratio),
                })
            };
            rows.push(json!({
                "patch": patch,
                "experiment": row.experiment,
                "case": row.case,
                "circumstances": points.iter().map(point).collect::<Vec<_>>(),
                "assumed": assumed(row),
            }));
        }
        if json {
            continue;
        }
        for of in &ranged {
            let [low, high] = of.gain_pct();
            let has = of.row.assumed.as_ref().map_or("nothing".to_owned(), |assumed| {
                let [low, high] = assumed.gain_pct;
                format!("{low:+.1}…{high:+.1} %")
            });
            writeln!(out, "patch {patch}, {}: {low:+.1}…{high:+.1} %; the text has {has}", of.row)?;
            for (name, ratio) in &of.points {
                writeln!(out, "  {:>25}  {name}", gain(ratio))?;
            }
        }
    }
    if json {
        let (runs, size) = (effort.runs, effort.size.word());
        let sheet = json!({
            "schema": "weft.ranges/1", "seed": effort.seed, "runs": runs, "size": size, "rows": rows
        });
        print_json(&sheet)?;
    }
    Ok(Exit::Done)
}

/// Between what a row's gain lies when something is other than assumed, as its text has it.
fn assumed(row: &PublishedRow) -> Option<Value> {
    row.assumed
        .as_ref()
        .map(|assumed| json!({ "gain_pct": assumed.gain_pct, "over": assumed.over }))
}

fn hours(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// Experiments with the rows that the words select.
fn only(experiments: Vec<Experiment>, words: &str) -> Result<Vec<Experiment>, Failure> {
    let names: Vec<String> = experiments
        .iter()
        .flat_map(|known| known.rows().iter().map(|row| format!("  {} {row}", known.patch())))
        .collect();
    let mut left: Vec<Experiment> =
        experiments.into_iter().map(|known| known.only(words)).collect();
    left.retain(|known| !known.rows().is_empty());
    if left.is_empty() {
        let names = names.join("\n");
        return Err(Failure::usage(format!(
            "--only: found {words:?} in no row; there are\n{names}"
        )));
    }
    Ok(left)
}

// --- for people
// ------------------------------------------------------------------------------------

fn print(
    experiment: &Experiment,
    found: &Found,
    controls: &[Control],
    effort: Effort,
) -> Result<(), Failure> {
    let mut out = stdout();
    print_rows(&mut out, experiment, found, effort)?;
    print_beyond(&mut out, experiment, found, name_width(found))?;
    for row in &found.beside {
        writeln!(
            out,
            "  beside: {}: {} → {} {}, {}",
            row.row,
            number(row.baseline.mean.value),
            number(row.patched.mean.value),
            unit(row),
            gain(&row.ratio)
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
        writeln!(
            out,
            "  control, {name} ({about}): {}, expected {}: {}",
            gain(ratio),
            control.expected(),
            control.verdict()
        )?;
    }
    print_beside(&mut out, experiment, found)?;
    for row in &found.rows {
        let words = row.assumed_words();
        if !words.is_empty() && row.no_magnitude.is_empty() {
            writeln!(out, "  over what is assumed, {}: {words}", row.row)?;
        }
    }
    for row in found.rows.iter().filter(|row| row.verdict != Verdict::Agrees) {
        writeln!(out, "  {}: {}", row.row, row.reason())?;
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
    let patch = experiment.patch();
    writeln!(out, "  experiments/{patch}.toml, sha256 {}", experiment.hash)?;
    Ok(())
}

/// Columns that the longest name of a row takes.
fn name_width(found: &Found) -> usize {
    found.rows.iter().map(|row| row.row.to_string().chars().count()).max().unwrap_or(0)
}

/// Published beside measured, row by row. A terminal that is too narrow for all of it gets what is
/// compared.
fn print_rows(
    out: &mut impl Write,
    experiment: &Experiment,
    found: &Found,
    effort: Effort,
) -> Result<(), Failure> {
    let (patch, name, runs) = (experiment.patch(), experiment.name(), effort.runs);
    writeln!(out, "patch {patch} ({name}), {runs} runs of each variant")?;
    writeln!(out, "  published on {}", experiment.published_by())?;
    let wide = name_width(found);
    let all = wide_enough(wide + 94);
    let mut line =
        |name: &str, values: [&str; 3], compared: [&str; 2], band: &str, verdict: &str| {
            write!(out, "  {name:<wide$}  ")?;
            if all {
                let [baseline, patched, unit] = values;
                write!(out, "{baseline:>9} {patched:>9} {unit:<7} ")?;
            }
            let [published, measured] = compared;
            write!(out, "{published:>9}  {measured:>25}  ")?;
            if all {
                write!(out, "{band:>13}  ")?;
            }
            writeln!(out, "{verdict}")
        };
    line("", ["baseline", "patched", ""], ["published", "measured"], "band", "verdict")?;
    for row in &found.rows {
        let published = row.row.published.gain_percent();
        line(
            &row.row.to_string(),
            [&number(row.baseline.mean.value), &number(row.patched.mean.value), unit(row)],
            [&published.map_or(String::new(), |gain| format!("{gain:+.1} %")), &magnitude(row)],
            &band(row.row.band()),
            row.verdict.word(),
        )?;
    }
    Ok(())
}

/// weft's own answers, row by row.
fn print_beyond(
    out: &mut impl Write,
    experiment: &Experiment,
    found: &Found,
    wide: usize,
) -> Result<(), Failure> {
    let mut last = "";
    for row in &found.rows {
        let Some(Beyond { side, ratio, to_better: (better, to_better) }) = &row.beyond else {
            continue;
        };
        if side.name != last {
            let about = experiment.columns().find(|(name, _)| *name == side.name);
            let about = about.map_or("", |(_, column)| &column.about);
            writeln!(out, "  beyond, {}: {about}", side.name)?;
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
    Ok(())
}

/// What was measured beside the figures, column by column.
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

fn unit(row: &Measured) -> &'static str {
    if row.row.against.is_some() { "" } else { row.row.metric.unit() }
}

/// Three digits or so.
fn number(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// The gain, unless its size means nothing.
fn magnitude(row: &Measured) -> String {
    if row.no_magnitude.is_empty() { gain(&row.ratio) } else { "no magnitude".to_owned() }
}

fn gain(ratio: &Estimate) -> String {
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

// --- for programs
// ----------------------------------------------------------------------------------

fn to_json(
    experiments: &[Experiment],
    found: &[Found],
    controls: &[Vec<Control>],
    effort: Effort,
) -> Value {
    let all = || experiments.iter().zip(found);
    let texts: Vec<Value> = all()
        .zip(controls)
        .map(|((known, found), controls)| text(known, found, controls))
        .collect();
    let rows: Vec<Value> =
        all().flat_map(|(known, found)| found.rows.iter().map(|of| row(known, of))).collect();
    let mut sheet = json!({
        "schema": "weft.reproduce/1",
        "seed": effort.seed,
        "runs": effort.runs,
        "size": effort.size.word(),
        "experiments": texts,
        "rows": rows,
    });
    let tally = Tally::of(found.iter().map(|found| found.rows.as_slice()));
    let counts = |counts: Counts| {
        json!({
            "all": counts.all(),
            "agrees": counts.agree,
            "agrees_otherwise": counts.otherwise,
            "direction": counts.direction,
            "undecided": counts.undecided,
            "differs": counts.differ,
        })
    };
    sheet["summary"] = json!({
        "published_figures": counts(tally.figures),
        "claims": counts(tally.claims),
        "not_counted": tally.uncounted,
    });
    let hash = Sha256::digest(sheet.to_string());
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    sheet["result_sha256"] = hash.into();
    sheet
}

fn text(experiment: &Experiment, found: &Found, controls: &[Control]) -> Value {
    let columns: serde_json::Map<String, Value> = experiment
        .columns()
        .map(|(name, column)| (name.to_owned(), column.about.clone().into()))
        .collect();
    let fits: Vec<Value> = experiment
        .fits()
        .iter()
        .map(|fit| {
            json!({
                "parameter": fit.parameter,
                "about": fit.about,
                "value": fit.value,
                "to_baseline_of": fit.row,
            })
        })
        .collect();
    let controls: Vec<Value> = controls
        .iter()
        .map(|control| {
            json!({
                "name": control.name,
                "about": control.about,
                "gain_pct": gain_percent(control.ratio.value),
                "ci95": interval(&control.ratio),
                "expected": control.expected(),
                "holds": control.holds(),
            })
        })
        .collect();
    json!({
        "patch": experiment.patch(),
        "name": experiment.name(),
        "sha256": experiment.hash,
        "costs": experiment.costs(),
        "assumptions": experiment.assumptions(),
        "columns": columns,
        "fitted": fits,
        "controls": controls,
        "cases": found.cases.iter().map(case).collect::<Vec<_>>(),
        "curves": found.curves().iter().map(curve).collect::<Vec<_>>(),
        "beside": found.beside.iter().map(|of| row(experiment, of)).collect::<Vec<_>>(),
    })
}

fn curve(curve: &Curve) -> Value {
    let points = curve.points.iter().map(|(times, ratio)| {
        json!({ "costs_times": times, "ratio": ratio.value, "ci95": [ratio.low, ratio.high] })
    });
    json!({
        "name": curve.name,
        "points": points.collect::<Vec<_>>(),
        "below_one_from": curve.below_one_from,
        "falls": curve.falls,
    })
}

/// Everything that was measured in a case, run by run.
fn case(case: &CaseRuns) -> Value {
    let columns: serde_json::Map<String, Value> = case
        .columns
        .iter()
        .map(|(name, samples)| {
            let runs: Vec<Value> = samples.iter().map(|sample| values(&sample.values)).collect();
            (name.clone(), runs.into())
        })
        .collect();
    json!({
        "case": case.name,
        "costs_times": case.costs_times,
        "unsettled": case.unsettled(),
        "runs": columns,
    })
}

fn values(values: &std::collections::BTreeMap<Metric, f64>) -> Value {
    let named = values.iter().map(|(metric, value)| (metric.name().to_owned(), json!(value)));
    Value::Object(named.collect())
}

fn row(experiment: &Experiment, measured: &Measured) -> Value {
    let Measured { row, baseline, patched, ratio, verdict, .. } = measured;
    let band = match row.band() {
        _ if row.kind == ClaimKind::Beside => Value::Null,
        Band::Above(_) | Band::Below(_) => json!("direction"),
        Band::Inside { low, high } => json!([low, high]),
    };
    let better = if row.metric.higher_is_better() { "higher" } else { "lower" };
    // A row whose size means nothing has its direction and its runs.
    let sized = measured.no_magnitude.is_empty();
    let beyond = measured.beyond.as_ref().map(|beyond| {
        json!({
            "name": beyond.side.name,
            "value": beyond.side.mean.value,
            "gain_pct": gain_percent(beyond.ratio.value),
            "ci95": interval(&beyond.ratio),
            "to_better": {
                "column": beyond.to_better.0,
                "gain_pct": gain_percent(beyond.to_better.1.value),
                "ci95": interval(&beyond.to_better.1),
            },
        })
    });
    json!({
        "patch": experiment.patch(),
        "experiment": row.experiment,
        "case": row.case,
        "kind": row.kind.word(),
        "metric": row.metric.name(),
        "unit": unit(measured),
        "better": better,
        "published": {
            "baseline": row.published.baseline,
            "patched": row.published.patched,
            "gain_pct": row.published.gain_percent(),
        },
        "measured": {
            "baseline": baseline.mean.value,
            "patched": patched.mean.value,
            "gain_pct": sized.then(|| gain_percent(ratio.value)),
            "ci95": sized.then(|| interval(ratio)),
            "columns": [baseline.name, patched.name],
            "runs": { "baseline": baseline.runs, "patched": patched.runs },
        },
        "beyond": beyond,
        "band": band,
        "verdict": (row.kind != ClaimKind::Beside).then(|| verdict.word()),
        "reason": measured.reason(),
        "no_magnitude": measured.no_magnitude,
        "note": row.note,
        "cell": row.counted_as(),
        "counted": row.kind != ClaimKind::Beside && row.uncounted.is_empty(),
        "assumed": assumed(row),
    })
}

fn interval(ratio: &Estimate) -> [f64; 2] {
    [gain_percent(ratio.low), gain_percent(ratio.high)]
}
