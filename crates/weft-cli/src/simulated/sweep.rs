//! Text of a sweep: table, bars, and the best setting by each metric.
//!
//! Every combination of the values of `--sweep` is run `--runs` times.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use weft_lab::experiment::Results;
use weft_lab::simulate::part::Joined;
use weft_lab::simulate::sweep::{Load, Metric, PERCENTS, Swept, fingerprint, sweep};
use weft_lab::simulate::{Outcome, Volume};
use weft_lab::statistics::Estimate;
use weft_terminal::outcome::{Exit, Failure, Outcome as Ending};
use weft_terminal::result_file::ResultFile;
use weft_terminal::terminal::{columns, print_json, stdout, style};

use super::advice::advised;
use super::found::Found;
use super::page::page;
use super::settings::settings;
use super::sheet::{count, nanoseconds};
use super::{INTERRUPTED, Simulated, bar, csv, failure, parts, shares};
use crate::result_kinds;
use crate::size;

/// Comparison that the user asked for: its load, and facts for the output.
pub(crate) struct Compared {
    /// Name of the load for output.
    pub(crate) title: String,
    /// Load to run.
    pub(crate) load: Load,
    /// Further facts about the sweep for its output, as name and value.
    pub(crate) facts: Vec<(String, String)>,
    /// Texts that the load was read from, by the names of their files.
    pub(crate) sources: Vec<(String, String)>,
    /// Text that precedes the comparison.
    pub(crate) head: String,
}

/// Form of a sweep's output.
pub(crate) struct Form {
    /// One JSON object.
    json: bool,
    /// Comma-separated values.
    csv: bool,
    /// Page of HTML and its path, beside the other output.
    page: Option<(PathBuf, ResultFile)>,
}

impl Form {
    /// Prepares the output. `report` is the path of the page, and `force` says whether a page there
    /// is overwritten.
    pub(crate) fn of(
        [json, csv]: [bool; 2],
        report: Option<&Path>,
        force: bool,
    ) -> Result<Self, Failure> {
        let page = result_kinds::report(report, force)?;
        Ok(Self { json, csv, page: report.map(Path::to_owned).zip(page) })
    }

    /// Whether the output is text: neither JSON nor CSV.
    pub(super) fn is_text(&self) -> bool {
        !self.json && !self.csv
    }
}

/// Simulates every setting and prints the comparison; with `--advise`, searches for the best
/// setting instead.
pub(crate) fn compare(simulated: &Simulated, what: &Compared, as_json: bool) -> Ending {
    if let Some(goal) = simulated.advise {
        return advised(simulated, goal, what, as_json);
    }
    let runs = simulated.runs.unwrap_or(1);
    let settings = settings(simulated)?;
    if simulated.list {
        return parts::print_list(&settings);
    }
    let number = simulated.part.map(|part| part.of(&settings)).transpose()?;
    let form = [as_json, simulated.csv];
    let form = Form::of(form, simulated.report.as_deref(), simulated.force)?;
    let results = simulated.results.as_deref().map(Results::at).transpose();
    let results = results.map_err(Failure::usage)?;
    let mut kept = Ok(());
    let bar = bar("sweep");
    let mut fingerprints = vec![Vec::new(); settings.volumes.len()];
    let mut keep = |setting: usize, run: u64, volume: &Volume, outcome: &Outcome| {
        fingerprints[setting].push(fingerprint(outcome));
        if let (Some(results), Ok(())) = (&results, &kept) {
            kept = settings.keep(results, setting, run, (volume, outcome));
        }
    };
    let progress = |done| bar.is_at(done);
    let swept = sweep(&what.load, &settings.volumes, runs, &progress, &mut keep);
    bar.finish();
    let swept = swept.map_err(|error| {
        let (setting, error) = *error;
        match failure(error) {
            Failure::Usage(text) => Failure::Usage(settings.told(setting, &text)),
            Failure::Failed(text) => Failure::Failed(settings.told(setting, &text)),
            other => other,
        }
    })?;
    let Some(swept) = swept else { return Ok(Exit::Of(INTERRUPTED)) };
    kept.map_err(Failure::failed)?;
    let sweep = parts::description(simulated, what, &settings);
    let all = Joined { sweep, settings: settings.described(fingerprints), swept };
    match number {
        Some(number) => parts::print_part(number, all),
        None => print_found(form, &Found::of(all)),
    }
}

/// Prints the results of a sweep.
pub(super) fn print_found(form: Form, found: &Found) -> Ending {
    if form.json {
        print_json(&to_json(found))?;
    } else if form.csv {
        csv::print_swept(found)?;
    } else {
        print_text(found)?;
    }
    if let Some((path, file)) = form.page {
        file.write(page(found, &path))?;
    }
    Ok(Exit::Done)
}

/// Prints the table of each job, the shares of the jobs, and sentences about the whole sweep.
fn print_text(found: &Found) -> Result<(), Failure> {
    for job in &found.swept {
        print(job, found)?;
    }
    shares::print(&found.swept, &found.knob, &found.names)?;
    let mut out = stdout();
    for line in found.lines() {
        writeln!(out, "  {line}")?;
    }
    Ok(())
}

fn print(swept: &Swept, found: &Found) -> Result<(), Failure> {
    let mut out = stdout();
    let Found { sweep, knob, names, effects, .. } = found;
    let (runs, caches) = (sweep.runs, found.caches());
    let (bold, plain) = (style::BOLD, style::PLAIN);
    let many = if runs == 1 { "one run each".to_owned() } else { format!("{runs} runs each") };
    writeln!(out, "{bold}{}{plain}, {many}", swept.job)?;
    let wide = columns() >= 92;
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let width = width.max(knob.chars().count());
    write!(out, "  {knob:<width$}")?;
    if caches.is_some() {
        write!(out, "  {:>9}", "cache")?;
    }
    write!(out, "  {:>16}", "MB/s")?;
    if wide {
        write!(out, "  {:>10}  {:>8}", "requests/s", "mean")?;
    }
    for percent in PERCENTS {
        write!(out, "  {:>8}", format!("{percent} %"))?;
    }
    writeln!(out)?;
    for (setting, name) in names.iter().enumerate() {
        let of = |metric| swept.estimate(setting, metric);
        let throughput = of(Metric::Throughput);
        let half = (throughput.high - throughput.low) / 2.0;
        let rate = if runs > 1 {
            format!("{:.1} ± {half:.1}", throughput.value)
        } else {
            format!("{:.1}", throughput.value)
        };
        write!(out, "  {name:<width$}")?;
        if let Some(caches) = &caches {
            let cache = caches[setting].map_or("-".to_owned(), |cache| size::human(cache.bytes));
            write!(out, "  {cache:>9}")?;
        }
        write!(out, "  {rate:>16}")?;
        if wide {
            write!(
                out,
                "  {:>10}  {:>8}",
                count(iops(swept, setting)),
                nanoseconds(of(Metric::Mean).value)
            )?;
        }
        for at in 0..PERCENTS.len() {
            write!(out, "  {:>8}", nanoseconds(of(Metric::Percentile(at)).value))?;
        }
        if let Some(other) = effects.same(setting, names) {
            write!(out, "  = {other}")?;
        }
        writeln!(out)?;
    }
    for metric in [Metric::Throughput, Metric::Percentile(1)] {
        print_bars(&mut out, swept, names, width, metric)?;
    }
    for line in verdicts(swept, names, runs) {
        writeln!(out, "  {line}")?;
    }
    Ok(())
}

/// Prints a bar for each setting, with a length in proportion to its value.
fn print_bars(
    out: &mut impl Write,
    swept: &Swept,
    names: &[String],
    width: usize,
    metric: Metric,
) -> Result<(), Failure> {
    let values: Vec<f64> =
        (0..names.len()).map(|setting| swept.estimate(setting, metric).value).collect();
    let most = values.iter().copied().fold(0.0, f64::max);
    if most <= 0.0 {
        return Ok(());
    }
    let room = columns().saturating_sub(width + 16).clamp(8, 60);
    let best = swept.best(metric).map(|best| best.setting);
    let best = best.filter(|_| alike(swept, names, metric).is_none());
    writeln!(out, "  {}", metric.name())?;
    for (setting, (name, value)) in names.iter().zip(&values).enumerate() {
        let told = match metric {
            Metric::Throughput => format!("{value:.1} MB/s"),
            _ => nanoseconds(*value),
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "up to 8 × 60")]
        let eighths = (value / most * room as f64 * 8.0).round() as usize;
        let part = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
        let bar = format!("{}{part}", "█".repeat(eighths / 8));
        let (green, plain) =
            if best == Some(setting) { (style::GREEN, style::PLAIN) } else { ("", "") };
        writeln!(out, "  {name:<width$}  {green}{bar}{plain} {told}")?;
    }
    Ok(())
}

/// Sentences, one for each metric, about the best setting and whether it is certainly the best.
pub(super) fn verdicts(swept: &Swept, names: &[String], runs: u64) -> Vec<String> {
    let mut lines = Vec::new();
    for metric in Metric::ALL {
        let Some(best) = swept.best(metric) else { continue };
        if let Some(apart) = alike(swept, names, metric) {
            lines.push(format!("{}: all settings within {apart:.1} %", metric.name()));
            continue;
        }
        let name = &names[best.setting];
        let level: Vec<&str> = best.level_with.iter().map(|at| names[*at].as_str()).collect();
        let how = match (&level[..], best.ahead) {
            (_, None) => String::new(),
            ([], Some(Estimate { value, low, high, .. })) => {
                let [value, low, high] = [value, low, high].map(|of| ((of - 1.0) * 100.0).abs());
                let (low, high) = (low.min(high), low.max(high));
                format!(", by {value:.1} % over the next (95 %: {low:.1} to {high:.1})")
            }
            (level, Some(_)) => format!("; not told apart from {} at 95 %", level.join("; ")),
        };
        lines.push(format!("best {}: {name}{how}", metric.name()));
    }
    if !lines.is_empty() && runs < 3 {
        lines.push(format!(
            "{} of each setting {} whether differences are more than chance: give --runs 3 or more",
            if runs == 1 { "one run" } else { "two runs" },
            if runs == 1 { "cannot say" } else { "hardly say" },
        ));
    }
    lines
}

/// Largest difference between settings in percent, if it is so small that no setting is preferred;
/// otherwise `None`. The rates of a replay at the trace's times are equal for all settings that
/// keep up.
pub(super) fn alike(swept: &Swept, names: &[String], metric: Metric) -> Option<f64> {
    let values = || (0..names.len()).map(|setting| swept.estimate(setting, metric).value);
    let (low, high) = (values().fold(f64::MAX, f64::min), values().fold(0.0, f64::max));
    let apart = (high / low - 1.0) * 100.0;
    (apart < ALIKE_PERCENT).then_some(apart.max(0.1))
}

/// Largest difference, in percent, at which settings count as equal.
const ALIKE_PERCENT: f64 = 0.5;

pub(super) fn iops(swept: &Swept, setting: usize) -> f64 {
    let samples = &swept.samples[setting];
    samples.iter().map(|sample| sample.iops).sum::<f64>() / samples.len().max(1) as f64
}

fn to_json(found: &Found) -> Value {
    let Found { sweep, knob, settings, names, swept, effects } = found;
    let runs = sweep.runs;
    let estimate = |of: Estimate| {
        if runs > 1 {
            json!({"value": of.value, "ci95": [of.low, of.high]})
        } else {
            json!({"value": of.value})
        }
    };
    let jobs: Vec<Value> = swept
        .iter()
        .map(|job| {
            let rows: Vec<Value> = names
                .iter()
                .enumerate()
                .map(|(setting, name)| {
                    let of = |metric| estimate(job.estimate(setting, metric));
                    json!({
                        "setting": name,
                        "throughput_mb_s": of(Metric::Throughput),
                        "requests_s": iops(job, setting),
                        "mean_ns": of(Metric::Mean),
                        "p50_ns": of(Metric::Percentile(0)),
                        "p99_ns": of(Metric::Percentile(1)),
                        "p99_9_ns": of(Metric::Percentile(2)),
                        "share": shares::to_json(job, setting, swept.len()),
                        "stripe_cache": settings[setting].stripe_cache.map(|cache| {
                            json!({"bytes": cache.bytes.0, "stripes": cache.stripes})
                        }),
                        "same_as": effects.same(setting, names),
                    })
                })
                .collect();
            let best: Vec<Value> = Metric::ALL
                .iter()
                .filter_map(|metric| {
                    let best = job.best(*metric)?;
                    let level: Vec<&String> =
                        best.level_with.iter().map(|at| &names[*at]).collect();
                    Some(json!({
                        "metric": metric.name(),
                        "setting": names[best.setting],
                        "level_with": level,
                        "ratio_to_next": best.ahead.map(|of| [of.low, of.value, of.high]),
                    }))
                })
                .collect();
            json!({"job": job.job, "settings": rows, "best": best})
        })
        .collect();
    json!({
        "schema": "weft.sweep/1",
        "load": sweep.load,
        "knob": knob,
        "runs": runs,
        "seed": sweep.seed,
        "without_effect": effects
            .without
            .iter()
            .map(|(knob, reason)| json!({"knob": knob, "reason": reason}))
            .collect::<Vec<_>>(),
        "stripe_cache_rule": found.cache_rule(),
        "jobs": jobs,
    })
}
