//! `weft reproduce`: published figures of a patch, beside weft's measurements of the same change.
//!
//! The engine that serves volumes runs on simulated disks, before the patch and with it, several
//! times under the same circumstances. Publications report a ratio, so ratios are compared.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use weft_lab::experiment::{
    Calibrated, Effort, Experiment, OtherMachine, Ranged, Results, Size, estimate,
};
use weft_lab::report::Report;
use weft_lab::statistics::{Estimate, gain_percent};
use weft_sim::machine::CostTable;
use weft_terminal::outcome::{Exit, Failure, Outcome};
use weft_terminal::terminal::{
    complain, print_json, remove_when_interrupted, stdout, steps, tries, wrapped,
};
use weft_units::Bytes;

use crate::knobs;
use crate::reproduced::{QUICK, Reproduced, SEED, assumed, gain, interval, step};
use crate::result_kinds;
use crate::simulated::LevelArg;
use crate::size;

/// Measures a published patch's effect again, on simulated disks
///
/// Of patches 000 (priority), 001 (io-less), 002 (flush-batch), 003 (queue-merge) and 004
/// (stripe-size).
/// Each row is run before the patch and with it; the gain is the mean of paired runs, with its 95 %
/// interval. A row agrees when the whole interval lies in the band that was written down
/// beforehand; agrees-otherwise when it does so by another mechanism than the published one; has
/// the direction when the interval lies outside of the band on its side of no change; is undecided
/// when the interval lies across an edge of the band, so that more runs would tell; and differs
/// otherwise. Fewer than ten runs give figures and intervals, and no verdicts.
#[derive(Debug, Args)]
pub(crate) struct Reproduce {
    /// Numbers or names of patches, or files as for --experiment; all patches that there are if
    /// none is given
    patches: Vec<String>,
    /// Run the experiment in this file, made from the output of --print-experiment; may be given
    /// several times
    #[arg(long, value_name = "FILE.toml")]
    experiment: Vec<PathBuf>,
    /// Print the text of the experiment that is named, to be changed and given to --experiment, and
    /// run nothing
    #[arg(long, conflicts_with_all = ["chunk", "controls", "costs", "fit", "json", "level", "only", "raid_devices", "ranges", "report", "results", "set"])]
    print_experiment: bool,
    /// Only rows with this text in their names, as `dd` or `1 MiB`
    #[arg(long, value_name = "WORDS")]
    only: Option<String>,
    /// Runs of each variant; verdicts need 10 [default: 10, with --quick 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=1000))]
    runs: Option<u64>,
    /// The first run's seed; the others follow
    #[arg(long, value_name = "S", default_value_t = SEED)]
    seed: u64,
    /// Fewer and shorter runs, with the same limits and caches
    #[arg(long)]
    quick: bool,
    /// Run as long as the published measurements, which takes hours
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// Also run the controls, which show that only the patch makes the difference and that another
    /// difference would be seen; --full runs them too
    #[arg(long)]
    controls: bool,
    /// Find the fitted parameters again, by runs of three seeds, instead of running rows
    #[arg(long, conflicts_with_all = ["controls", "results", "only", "report"])]
    fit: bool,
    /// Run the rows with a published magnitude under other values of the assumed parameters,
    /// instead of all rows
    #[arg(long, conflicts_with_all = ["controls", "results", "report", "fit"])]
    ranges: bool,
    /// Print every figure with its band and marks, and what explains it, instead of one line a
    /// patch
    #[arg(long, conflicts_with_all = ["json", "fit", "ranges", "print_experiment"])]
    rows: bool,
    /// Number of members, instead of the experiment's
    #[arg(short = 'n', long, value_name = "COUNT", help_heading = OTHER)]
    raid_devices: Option<u16>,
    /// Level instead of the experiment's: linear, 0, 1, 4, 5, 6, 10 or single
    #[arg(short, long, value_name = "LEVEL", help_heading = OTHER)]
    level: Option<LevelArg>,
    /// Chunk instead of the experiment's; a plain number is KiB
    #[arg(short, long, value_name = "SIZE", value_parser = size::kib, help_heading = OTHER)]
    chunk: Option<Bytes>,
    /// Set a knob in every column and case, except in columns that set the same knob; may be given
    /// several times
    #[arg(long, value_name = "KNOB=VALUE", help_heading = OTHER)]
    set: Vec<String>,
    /// CPU costs instead of the experiment's: zero, published, frozen, md-2020-arm64 or a file of
    /// `weft-bench costs --write`, with *N behind it for N times the costs
    #[arg(long, value_name = "TABLE", help_heading = OTHER)]
    costs: Option<String>,
    /// Keep every run's parameters, course and results in this new directory
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
    /// Write one HTML page: published beside measured, and the charts that say why
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Overwrite the page that --report names
    #[arg(long, requires = "report")]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Reproduce) -> Outcome {
    let experiments = experiments(arguments)?;
    if arguments.print_experiment {
        return print_source(&experiments);
    }
    let experiments = match &arguments.costs {
        Some(name) => {
            let table = CostTable::of_argument(name).map_err(Failure::usage)?;
            experiments.into_iter().map(|known| known.with_costs(table.clone())).collect()
        }
        None => experiments,
    };
    let other = other_machine(arguments)?;
    let experiments: Vec<Experiment> = experiments
        .into_iter()
        .map(|known| known.on(&other))
        .collect::<Result<_, _>>()
        .map_err(Failure::usage)?;
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
    let page = result_kinds::report(arguments.report.as_deref(), arguments.force)?;
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
        page.write(Report::reproduced(experiments, found, controls, effort).html())?;
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
    if arguments.rows {
        all.print_rows()?;
    } else {
        all.print_lines()?;
    }
    write!(stdout(), "{}", wrapped(&format!("{}\n", all.summary())))?;
    writeln!(
        stdout(),
        "all that was measured: sha256 {}",
        sheet["result_sha256"].as_str().unwrap_or("")
    )?;
    Ok(Exit::Done)
}

/// Heading of the options that change an experiment's machine.
const OTHER: &str = "Another machine than the experiment's";

/// Level, members, chunk and knobs that the options ask for in place of those in the experiments'
/// texts.
fn other_machine(arguments: &Reproduce) -> Result<OtherMachine, Failure> {
    let mut settings = Vec::new();
    for setting in &arguments.set {
        let (name, value) = knobs::split(setting)?;
        settings.push(format!("{name}={}", knobs::plain(name, value)));
    }
    if let Some(Bytes(found)) = arguments.chunk.filter(|chunk| !chunk.0.is_multiple_of(1024)) {
        return Err(Failure::usage(format!(
            "--chunk: found {found} bytes, expected whole KiB, a multiple of 4"
        )));
    }
    Ok(OtherMachine {
        level: arguments.level.map(|LevelArg(level)| level),
        members: arguments.raid_devices,
        chunk: arguments.chunk,
        knobs: settings,
    })
}

/// Experiments that the arguments name, or all experiments.
fn experiments(arguments: &Reproduce) -> Result<Vec<Experiment>, Failure> {
    let files = arguments.experiment.iter().map(|path| Experiment::from_file(path));
    let named = arguments.patches.iter().map(|name| match name.ends_with(".toml") {
        true => Experiment::from_file(Path::new(name)),
        false => Experiment::named(name),
    });
    let all: Vec<_> = named.chain(files).collect::<Result<_, _>>().map_err(Failure::usage)?;
    if all.is_empty() {
        return Experiment::all().map_err(Failure::failed);
    }
    let mut known: Vec<Experiment> = Vec::new();
    for experiment in all {
        // An experiment named twice, for example by number and by name, is run once.
        match known.iter().find(|other| other.patch() == experiment.patch()) {
            None => known.push(experiment),
            Some(other) if other.hash == experiment.hash => {}
            Some(other) => {
                return Err(Failure::usage(format!(
                    "{}: patch: found {:?}, which {} has as well, expected another; name them apart, \
                     or run one after the other",
                    experiment.origin(),
                    experiment.patch(),
                    other.origin()
                )));
            }
        }
    }
    Ok(known)
}

/// Prints the text of the experiment. More than one experiment is an error.
fn print_source(experiments: &[Experiment]) -> Outcome {
    let [experiment] = experiments else {
        let names: Vec<&str> = experiments.iter().map(Experiment::patch).collect();
        return Err(Failure::usage(format!(
            "--print-experiment: found {} experiments, expected one; name one of {}",
            names.len(),
            names.join(", ")
        )));
    };
    let mut out = stdout();
    out.write_all(experiment.source().as_bytes())?;
    out.flush()?;
    Ok(Exit::Done)
}

/// Repeats the fits of parameters that were fitted, and reports whether the values in the texts of
/// the experiments still hold. Fails if one of them does not.
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
            let line = format!(
                "patch {patch}: {} ({}), by the baseline of {}: {} by seeds of three fits, {:.1} \
                 ({:.1}…{:.1}) in the mean; the text has {:.1}, {has}\n",
                fit.parameter,
                fit.about,
                fit.row,
                each.join(", "),
                scatter.value,
                scatter.low,
                scatter.high,
                fit.value,
            );
            write!(out, "{}", wrapped(&line))?;
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

/// Runs the rows that have a published magnitude under other values of the assumed parameters, and
/// prints the ranges of their gains.
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
            let line =
                format!("patch {patch}, {}: {low:+.1}…{high:+.1} %; the text has {has}\n", of.row);
            write!(out, "{}", wrapped(&line))?;
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

fn hours(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// Keeps the rows with `words` in their names, and the experiments that have such rows. Fails if
/// there are none.
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
